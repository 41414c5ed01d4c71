//! What an application of task documents changes: the documents compared with what is stored.

use std::sync::Arc;

use punctual_core::chains::{self, Call, ChainProblem, Edge};
use punctual_core::definition::Chain;
use punctual_core::ids::{TaskId, Version};
use punctual_driver::ports::{Applied, Applying, AuditAction, Edited, Revision, TaskDocument, TaskEdit};
use rustc_hash::{FxHashMap, FxHashSet};

/// What an application has to write.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) created: Vec<Creation>,
    pub(crate) changed: Vec<Change>,
    pub(crate) removed: Vec<Change>,
    /// Unchanged ones that another source made.
    pub(crate) taken_over: Vec<TaskId>,
    unchanged: usize,
    /// Of the source, not among the documents, and not to be removed.
    left: Vec<Arc<str>>,
    /// What another source has, and which.
    taken: Vec<(Arc<str>, Arc<str>)>,
    /// Nothing is to be taken over, and something would be.
    is_held: bool,
    refused: Vec<ChainProblem>,
    /// How the source was.
    pub(crate) revision: Revision,
}

/// A task that nodes call, and how many do.
pub(crate) type Callee = (Arc<str>, u32);

#[derive(Debug)]
pub(crate) struct Creation {
    pub(crate) name: Arc<str>,
    pub(crate) document: Arc<str>,
    pub(crate) chains: Option<Arc<[Chain]>>,
    pub(crate) calls: Vec<Callee>,
    pub(crate) group: Option<Arc<str>>,
}

impl Change {
    /// What the audit calls it.
    pub(crate) fn audited(&self) -> AuditAction {
        match (self.document.is_some(), self.version) {
            (false, _) => AuditAction::Remove,
            (true, Version(1)) => AuditAction::Create,
            (true, _) => AuditAction::Change,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) task: TaskId,
    pub(crate) name: Arc<str>,
    /// The version that the change makes.
    pub(crate) version: Version,
    /// `None`: it removes the task.
    pub(crate) document: Option<Arc<str>>,
    pub(crate) chains: Option<Arc<[Chain]>>,
    /// The tasks that its nodes call, and how many nodes do.
    pub(crate) calls: Vec<Callee>,
    pub(crate) group: Option<Arc<str>>,
}

/// How the tasks that are stored hang together.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    pub(crate) edges: Vec<Edge>,
    pub(crate) calls: Vec<Call>,
}

impl Ties {
    /// The names of which it has to be known whether they are there.
    pub(crate) fn names_to_look_up(&self) -> Vec<Arc<str>> {
        let after = self.edges.iter().map(|edge| &edge.after);
        let mut names: Vec<_> = after.chain(self.calls.iter().map(|call| &call.called)).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Plan {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_held
            || !self.refused.is_empty()
            || self.created.is_empty() && self.changed.is_empty() && self.removed.is_empty() && self.taken_over.is_empty()
    }

    /// Keeps what an application may not do from being done: what it would remove is left, what it would take holds all of it.
    pub(crate) fn hold_to(&mut self, how: &Applying) {
        if !how.remove {
            self.left = std::mem::take(&mut self.removed).into_iter().map(|change| change.name).collect();
        }
        self.is_held = !how.take_over && !self.taken.is_empty();
    }

    /// Every name that has another meaning afterwards, and the tasks whose ends make it fire then.
    fn chains(&self) -> impl Iterator<Item = (&Arc<str>, &[Chain])> {
        let created = self.created.iter().map(|created| (&created.name, &created.chains));
        let changed = self.changed.iter().chain(&self.removed).map(|change| (&change.name, &change.chains));
        created.chain(changed).map(|(name, chains)| (name, chains.as_deref().unwrap_or_default()))
    }

    /// The same names, and the tasks that their nodes call then.
    fn calls(&self) -> impl Iterator<Item = (&Arc<str>, &[Callee])> {
        let created = self.created.iter().map(|created| (&created.name, &*created.calls));
        created.chain(self.changed.iter().chain(&self.removed).map(|change| (&change.name, &*change.calls)))
    }

    /// Whether it can make tasks hang together as they must not.
    pub(crate) fn may_break_chains(&self) -> bool {
        !self.removed.is_empty() || self.chains().any(|(_, chains)| !chains.is_empty()) || self.calls().any(|(_, calls)| !calls.is_empty())
    }

    /// The ties that there would be: those that are stored, as far as they stay, and what the documents say.
    pub(crate) fn ties_afterwards(&self, stored: Ties) -> Ties {
        let Ties { mut edges, mut calls } = stored;
        let replaced: FxHashSet<_> = self.chains().map(|(name, _)| name).collect();
        edges.retain(|edge| !replaced.contains(&edge.task));
        calls.retain(|call| !replaced.contains(&call.task));
        let chains = self.chains().flat_map(|(task, chains)| chains.iter().map(move |chain| (task, chain)));
        edges.extend(chains.map(|(task, chain)| Edge { after: chain.task.clone(), task: task.clone() }));
        let called = self.calls().flat_map(|(task, calls)| calls.iter().map(move |called| (task, called)));
        calls.extend(called.map(|(task, (called, times))| Call { task: task.clone(), called: called.clone(), times: *times }));
        Ties { edges, calls }
    }

    /// Checks how tasks would hang together. `there`: which of the names that were looked up there are now.
    pub(crate) fn check_chains(&mut self, afterwards: &Ties, mut there: FxHashSet<Arc<str>>) {
        self.removed.iter().for_each(|change| _ = there.remove(&change.name));
        there.extend(self.created.iter().map(|created| created.name.clone()));
        there.extend(self.changed.iter().map(|change| change.name.clone()));
        self.refused = chains::problems(&afterwards.edges, &afterwards.calls, |name| there.contains(name));
    }

    /// What it means for the one task that it is about.
    pub(crate) fn into_edited(self) -> Edited {
        match self.into_applied() {
            Applied { refused, .. } if !refused.is_empty() => Edited::Refused(refused),
            applied => Edited::Done(applied),
        }
    }

    pub(crate) fn into_applied(self) -> Applied {
        if !self.refused.is_empty() {
            return Applied { refused: self.refused, ..Applied::default() };
        }
        Applied {
            created: self.created.into_iter().map(|created| created.name).collect(),
            changed: self.changed.into_iter().map(|change| change.name).collect(),
            unchanged: self.unchanged,
            removed: self.removed.into_iter().map(|change| change.name).collect(),
            left: self.left,
            taken: self.taken,
            refused: Vec::new(),
        }
    }
}

/// A task as it is stored, next to a document of its name.
#[derive(Clone, Debug)]
pub(crate) struct StoredTask {
    pub(crate) id: TaskId,
    pub(crate) version: Version,
    pub(crate) is_removed: bool,
    /// Whether its newest document is the one it is compared with.
    pub(crate) is_equal: bool,
    /// The source that has it, where that is another one than the one that applies.
    pub(crate) foreign: Option<Arc<str>>,
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
        let (chains, group) = (task.definition.chains.clone(), task.definition.group.clone());
        let calls = task.definition.called_tasks();
        let Some(stored) = stored else { return self.plan.created.push(Creation { name, document, chains, calls, group }) };
        if let Some(source) = stored.foreign.as_ref().filter(|_| !stored.is_removed) {
            self.plan.taken.push((name.clone(), source.clone()));
        }
        if stored.is_removed || !stored.is_equal {
            let version = Version(stored.version.0 + 1);
            self.plan.changed.push(Change { task: stored.id, name, version, document: Some(document), chains, calls, group });
            return;
        }
        self.plan.unchanged += 1;
        if stored.foreign.is_some() {
            self.plan.taken_over.push(stored.id);
        }
    }

    /// A task that the source made before and that was not removed: it is now, unless it is among the documents.
    pub(crate) fn made_before(&mut self, id: TaskId, name: &str, version: Version) {
        self.plan.revision = self.plan.revision.with(id, version);
        if !self.last.contains_key(name) {
            let version = Version(version.0 + 1);
            let (name, calls) = (name.into(), Vec::new());
            self.plan.removed.push(Change { task: id, name, version, document: None, chains: None, calls, group: None });
        }
    }

    /// What an edit of one task has to write. It was not refused.
    pub(crate) fn of_edit(edit: &'a TaskEdit, stored: Option<StoredTask>) -> Plan {
        let mut planner = Planner::new(edit.document.as_slice());
        match (&edit.document, stored) {
            (Some(task), stored) => planner.compare(task, stored),
            (None, Some(stored)) => planner.made_before(stored.id, &edit.name, stored.version),
            (None, None) => {}
        }
        planner.plan
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
