//! What an application of task documents changes: the documents compared with what is stored.

use std::sync::Arc;

use punctual_core::ids::{TaskId, Version};
use punctual_driver::ports::{Applied, TaskDocument};
use rustc_hash::FxHashMap;

/// What an application has to write.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Names and documents.
    pub(crate) created: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) changed: Vec<Change>,
    pub(crate) removed: Vec<Change>,
    /// Unchanged ones that another source made.
    pub(crate) taken_over: Vec<TaskId>,
    unchanged: usize,
}

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) task: TaskId,
    pub(crate) name: Arc<str>,
    /// The version that the change makes.
    pub(crate) version: Version,
    /// `None`: it removes the task.
    pub(crate) document: Option<Arc<str>>,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.created.is_empty() && self.changed.is_empty() && self.removed.is_empty() && self.taken_over.is_empty()
    }

    pub(crate) fn into_applied(self) -> Applied {
        Applied {
            created: self.created.into_iter().map(|(name, _)| name).collect(),
            changed: self.changed.into_iter().map(|change| change.name).collect(),
            unchanged: self.unchanged,
            removed: self.removed.into_iter().map(|change| change.name).collect(),
        }
    }
}

/// A task as it is stored, next to a document of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredTask {
    pub(crate) id: TaskId,
    pub(crate) version: Version,
    pub(crate) is_removed: bool,
    /// Whether its newest document is the one it is compared with.
    pub(crate) is_equal: bool,
    /// Whether the source that applies made it.
    pub(crate) is_own: bool,
}

/// Makes a [`Plan`], one task after another.
pub(crate) struct Planner<'a> {
    plan: Plan,
    last: FxHashMap<&'a str, usize>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(documents: &'a [TaskDocument]) -> Self {
        let last = documents.iter().enumerate().map(|(index, task)| (&*task.definition.name, index)).collect();
        Planner { plan: Plan::default(), last }
    }

    /// Whether this document counts: of two of one name the later one does.
    pub(crate) fn counts(&self, index: usize, task: &TaskDocument) -> bool {
        self.last[&*task.definition.name] == index
    }

    /// What a document that counts means for the task of its name.
    pub(crate) fn compare(&mut self, task: &TaskDocument, stored: Option<StoredTask>) {
        let (name, document) = (Arc::clone(&task.definition.name), Arc::clone(&task.document));
        let Some(stored) = stored else { return self.plan.created.push((name, document)) };
        if stored.is_removed || !stored.is_equal {
            let version = Version(stored.version.0 + 1);
            self.plan.changed.push(Change { task: stored.id, name, version, document: Some(document) });
            return;
        }
        self.plan.unchanged += 1;
        if !stored.is_own {
            self.plan.taken_over.push(stored.id);
        }
    }

    /// A task that the source made before and that was not removed: it is now, unless it is among the documents.
    pub(crate) fn made_before(&mut self, id: TaskId, name: &str, version: Version) {
        if !self.last.contains_key(name) {
            self.plan.removed.push(Change { task: id, name: name.into(), version: Version(version.0 + 1), document: None });
        }
    }

    pub(crate) fn plan(self) -> Plan {
        self.plan
    }
}

/// FNV-1a in 128 bits over a task and what is asked of it: tells one trigger from another under the same key, no secret.
pub(crate) fn request_hash(task: TaskId, body: &[u8]) -> [u8; 16] {
    let bytes = task.0.to_le_bytes().into_iter().chain(body.iter().copied());
    bytes
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
        .to_le_bytes()
}
