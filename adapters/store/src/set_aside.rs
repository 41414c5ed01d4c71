//! What this program can't read, and what an inbox entry asks for.
//!
//! Documents that this program can't decode (a newer program wrote them, a zone is not on this machine) must neither stop the others nor
//! lose anything. The task is *set aside*: a snapshot leaves it and its live instances out, its inbox entries stay where they are, and an
//! error is logged once. All of it is there for a program that understands. From the first entry on that can't be decoded, all entries of its
//! task wait, in their order. An edit helps too: an entry whose own version can't be decoded takes on the task's newest version, if that
//! one can; a reader that is past it by then meets it at its next start.

use std::sync::Arc;

use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::{InboxEntry, Request, Rerun};
use punctual_core::instance::InstanceRow;
use punctual_core::time::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Decode;
use crate::codec;

/// What inbox entries ask for, by the number that is stored.
pub(crate) const KIND_DEFINITION: u8 = 1;
pub(crate) const KIND_TRIGGER: u8 = 2;
pub(crate) const KIND_CANCEL: u8 = 3;
pub(crate) const KIND_NOTICE: u8 = 4;
pub(crate) const KIND_REFERENCES: u8 = 5;
pub(crate) const KIND_RERUN: u8 = 6;
pub(crate) const KIND_PAUSE: u8 = 20;
pub(crate) const KIND_DELAYED: u8 = 21;
pub(crate) const KIND_KILL: u8 = 22;
pub(crate) const KIND_SKIP: u8 = 23;
pub(crate) const KIND_MARK_NODE: u8 = 10;
/// A rerun from some nodes: what the others have come to is looked up.
pub(crate) const KIND_RERUN_FROM: u8 = 11;
pub(crate) const KIND_BACKFILL: u8 = 30;
pub(crate) const KIND_BACKFILL_CANCEL: u8 = 31;

/// What this program can't read.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    /// Tasks whose version in force can't be decoded: their inbox entries stay where they are, until an edit.
    in_force: FxHashSet<TaskId>,
    /// The first entry of a task that can't be decoded: those behind it stay where they are.
    blocked: FxHashMap<TaskId, InboxId>,
    /// Versions that were logged.
    versions: FxHashSet<(TaskId, Version)>,
    /// Entries that were logged.
    entries: FxHashSet<InboxId>,
}

impl SetAside {
    /// The version in force of this task can be decoded.
    pub(crate) fn task_is_understood(&mut self, task: TaskId) {
        self.in_force.remove(&task);
    }

    /// The version in force of this task can't be.
    pub(crate) fn task_is_strange(&mut self, task: TaskId, version: Version, reason: &str) {
        self.in_force.insert(task);
        self.version(task, version, reason);
    }

    fn block(&mut self, task: TaskId, version: Version, entry: InboxId, reason: &str) {
        self.blocked.entry(task).and_modify(|first| *first = entry.min(*first)).or_insert(entry);
        self.version(task, version, reason);
    }

    /// Whether an entry of this task stays where it is because of what is before it.
    fn holds(&self, task: TaskId, entry: InboxId) -> bool {
        self.in_force.contains(&task) || self.is_behind_one(task, entry)
    }

    fn is_behind_one(&self, task: TaskId, entry: InboxId) -> bool {
        self.blocked.get(&task).is_some_and(|first| *first < entry)
    }

    /// Logs a version that can't be decoded, once.
    pub(crate) fn version(&mut self, task: TaskId, version: Version, reason: &str) {
        if self.versions.insert((task, version)) {
            tracing::error!(
                code = "PUN-208",
                %task,
                %version,
                reason,
                "a task's document can't be decoded by this program: what needs it is set aside, all else goes on"
            );
        }
    }

    /// The request, unless its entry can't be decoded and stays where it is.
    fn unless_malformed(&mut self, entry: InboxId, request: Result<Request, codec::Malformed>) -> Option<Request> {
        request.map_err(|malformed| self.entry(entry, malformed.0)).ok()
    }

    fn entry(&mut self, entry: InboxId, reason: &str) {
        if self.entries.insert(entry) {
            tracing::error!(code = "PUN-208", %entry, reason, "an inbox entry can't be decoded by this program: it is left in the inbox, others go on");
        }
    }
}

/// Decodes each version once.
pub(crate) struct Definitions<'a> {
    decode: &'a Decode,
    known: FxHashMap<(TaskId, Version), Result<Arc<TaskDefinition>, String>>,
}

impl<'a> Definitions<'a> {
    pub(crate) fn new(decode: &'a Decode) -> Self {
        Definitions { decode, known: FxHashMap::default() }
    }

    /// Whether this version was decoded before, so that its document is not needed.
    pub(crate) fn knows(&self, task: TaskId, version: Version) -> bool {
        self.known.contains_key(&(task, version))
    }

    /// The definition of a version whose document is this, or why there is none. The document is not looked at if the version is known.
    pub(crate) fn decoded(&mut self, task: TaskId, version: Version, document: Option<&str>) -> Result<Arc<TaskDefinition>, String> {
        let decode = self.decode;
        let decoded = self.known.entry((task, version)).or_insert_with(|| match document {
            Some(document) => decode(document).map(Arc::new),
            None => Err("the version has no document".to_owned()),
        });
        decoded.clone()
    }
}

/// An inbox entry as it is stored.
#[derive(Debug)]
pub(crate) struct StoredEntry {
    pub(crate) id: InboxId,
    pub(crate) partition: PartitionId,
    pub(crate) at: Timestamp,
    pub(crate) by: Arc<str>,
    pub(crate) kind: u8,
    /// Of what is for one task.
    pub(crate) task: TaskId,
    /// Of definitions.
    pub(crate) version: Version,
    /// Of all kinds but definitions.
    pub(crate) body: Vec<u8>,
}

/// A version of a task and its document, which one that removed the task has not.
pub(crate) type StoredVersion = (Version, Option<Arc<str>>);

/// What a store knows about what entries speak of.
pub(crate) trait Lookup {
    /// Why it could not tell.
    type Error;

    /// This version of a task, where it is there, then the newest, where that is another one.
    fn versions(&mut self, task: TaskId, version: Version) -> Result<Vec<StoredVersion>, Self::Error>;

    /// Up to when an owner has dealt with a task's fire times.
    fn watermark(&mut self, partition: PartitionId, task: TaskId) -> Result<Option<Timestamp>, Self::Error>;

    /// The task of an instance and the version that it is run by.
    fn instance(&mut self, id: InstanceId) -> Result<Option<(TaskId, StoredVersion)>, Self::Error>;

    /// The nodes of the run that a rerun is of, in the order of their parts.
    fn nodes(&mut self, of: &Rerun) -> Result<Vec<InstanceRow>, Self::Error>;
}

/// The entry as its owner reads it; `None`: it is set aside.
pub(crate) fn read_entry<L: Lookup>(
    entry: StoredEntry,
    lookup: &mut L,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> Result<Option<InboxEntry>, L::Error> {
    let request = match entry.kind {
        KIND_DEFINITION => definition_changed(&entry, lookup, definitions, set_aside)?,
        KIND_TRIGGER if set_aside.holds(entry.task, entry.id) => None,
        KIND_TRIGGER => {
            let submissions = codec::submissions(&entry.body);
            set_aside.unless_malformed(entry.id, submissions.map(|submissions| Request::Trigger { task: entry.task, submissions }))
        }
        KIND_CANCEL | KIND_KILL | KIND_SKIP => match codec::cancel(&entry.body) {
            Ok((instance, _)) if is_set_aside(entry.id, instance, lookup, definitions, set_aside)? => None,
            Ok((instance, reason)) => Some(match entry.kind {
                KIND_KILL => Request::Kill { instance, reason },
                KIND_SKIP => Request::Skip { instance, reason },
                _ => Request::Cancel { instance, reason },
            }),
            Err(malformed) => {
                set_aside.entry(entry.id, malformed.0);
                None
            }
        },
        // Also that of a task which is set aside: it is to be known when the task is understood.
        KIND_PAUSE => {
            let changed = codec::pause(&entry.body).map(|(scope, is_paused)| Request::PauseChanged { scope, is_paused });
            set_aside.unless_malformed(entry.id, changed)
        }
        KIND_MARK_NODE => match codec::mark(&entry.body) {
            Ok(mark) if is_set_aside(entry.id, mark.instance, lookup, definitions, set_aside)? => None,
            Ok(codec::Mark { instance, node, mark, reason }) => Some(Request::MarkNode { instance, node, mark, reason }),
            Err(malformed) => {
                set_aside.entry(entry.id, malformed.0);
                None
            }
        },
        KIND_NOTICE | KIND_REFERENCES | KIND_RERUN | KIND_RERUN_FROM | KIND_DELAYED | KIND_BACKFILL | KIND_BACKFILL_CANCEL
            if set_aside.holds(entry.task, entry.id) =>
        {
            None
        }
        KIND_NOTICE => set_aside.unless_malformed(entry.id, codec::notice(entry.task, &entry.body).map(Request::Notice)),
        KIND_REFERENCES => {
            let references = codec::references(entry.task, &entry.body);
            let changed = references.map(|references| Request::ReferencesChanged { task: entry.task, references });
            set_aside.unless_malformed(entry.id, changed)
        }
        KIND_DELAYED => {
            let task = entry.task;
            let changed = codec::delayed(&entry.body).map(|(ordinal, change, reason)| Request::Delayed { task, ordinal, change, reason });
            set_aside.unless_malformed(entry.id, changed)
        }
        KIND_RERUN => {
            let rerun = codec::rerun(entry.task, &entry.body).map(|of| Request::Rerun { of: Box::new(of) });
            set_aside.unless_malformed(entry.id, rerun)
        }
        KIND_RERUN_FROM => match codec::rerun(entry.task, &entry.body) {
            Ok(of) => rerun_from(&entry, of, lookup, definitions, set_aside)?,
            Err(malformed) => {
                set_aside.entry(entry.id, malformed.0);
                None
            }
        },
        KIND_BACKFILL => {
            let plan = codec::backfill(entry.task, &entry.body).map(|plan| Request::Backfill { plan: plan.into() });
            set_aside.unless_malformed(entry.id, plan)
        }
        KIND_BACKFILL_CANCEL => {
            let task = entry.task;
            let cancel = codec::backfill_cancel(&entry.body);
            set_aside.unless_malformed(entry.id, cancel.map(|(backfill, reason)| Request::CancelBackfill { backfill, task, reason }))
        }
        _ => {
            set_aside.entry(entry.id, "its kind is unknown");
            None
        }
    };
    Ok(request.map(|request| InboxEntry { id: entry.id, partition: entry.partition, at: entry.at, by: entry.by, request }))
}

/// A rerun from some nodes, with what the nodes of that run have come to. Their names are in the version that the run was of.
fn rerun_from<L: Lookup>(
    entry: &StoredEntry,
    mut of: Rerun,
    lookup: &mut L,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> Result<Option<Request>, L::Error> {
    if let Some((task, (version, document))) = lookup.instance(of.instance)? {
        match definitions.decoded(task, version, document.as_deref()) {
            Ok(definition) => {
                let rows = lookup.nodes(&of)?;
                if let Some((from, workflow)) = of.from.as_deref_mut().zip(definition.workflow.as_ref()) {
                    from.take_ended(workflow.graph(), rows);
                }
            }
            Err(reason) => {
                set_aside.version(task, version, &reason);
                set_aside.entry(entry.id, "the version that it is of can't be decoded");
                return Ok(None);
            }
        }
    }
    Ok(Some(Request::Rerun { of: Box::new(of) }))
}

fn definition_changed<L: Lookup>(
    entry: &StoredEntry,
    lookup: &mut L,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> Result<Option<Request>, L::Error> {
    let task = entry.task;
    // One behind another that can't be decoded goes on only once the newest version can be: then that one does too.
    let needs_newest = set_aside.is_behind_one(task, entry.id);
    let (mut understood, mut wrong) = (None, Some("the version is not there".to_owned()));
    for (version, document) in lookup.versions(task, entry.version)? {
        let definition = match document {
            None => Ok(None),
            Some(document) => definitions.decoded(task, version, Some(&document)).map(Some),
        };
        wrong = match definition {
            Ok(definition) => {
                understood.get_or_insert((version, definition));
                None
            }
            Err(reason) => Some(reason),
        };
        if wrong.is_none() && !needs_newest {
            break;
        }
    }
    match (understood, wrong) {
        (Some((version, definition)), None) => {
            set_aside.in_force.remove(&task);
            set_aside.blocked.remove(&task);
            let fired_until = lookup.watermark(entry.partition, task)?;
            Ok(Some(Request::DefinitionChanged { task, version, definition, fired_until }))
        }
        (_, wrong) => {
            set_aside.block(task, entry.version, entry.id, &wrong.unwrap_or_default());
            Ok(None)
        }
    }
}

/// Whether a cancellation stays where it is: with its task, or because nobody can be told what its instance is.
fn is_set_aside<L: Lookup>(
    entry: InboxId,
    instance: InstanceId,
    lookup: &mut L,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> Result<bool, L::Error> {
    let Some((task, (version, document))) = lookup.instance(instance)? else { return Ok(false) };
    if set_aside.holds(task, entry) {
        return Ok(true);
    }
    match definitions.decoded(task, version, document.as_deref()) {
        Err(reason) if document.is_some() => {
            set_aside.version(task, version, &reason);
            Ok(true)
        }
        _ => Ok(false),
    }
}
