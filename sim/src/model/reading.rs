//! What owners read: a partition, and its inbox.
//!
//! A program that can't decode a document sets the task aside, as the port says. From the first entry on that it can't make anything of,
//! all entries of that task stay where they are, in their order; they go on once the task's newest version is one that it can decode,
//! which then stands in for those that it can't. Where the version in force is one that it can't decode, that holds until an edit.
//! A cancellation stays also where it is its instance's version that can't be decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::batch::{Snapshot, TaskRecord};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::{InboxEntry, Request, Rerun};
use punctual_core::instance::{InstanceRow, Part};
use punctual_driver::ports::InstanceCursor;

use crate::model::data::{Data, StoredVersion};

/// What a program makes of a version that has a document; `None`: it can't decode it.
pub(crate) type Understood<'a> = &'a dyn Fn(&StoredVersion) -> Option<Arc<TaskDefinition>>;

/// A program that decodes all that was ever written.
pub(crate) fn as_written(version: &StoredVersion) -> Option<Arc<TaskDefinition>> {
    version.definition.clone()
}

impl Data {
    pub(crate) fn snapshot(&self, partition: PartitionId, understood: Understood<'_>) -> Snapshot {
        let definition = |task: TaskId, version: Version| {
            let version = self.versions.get(&(task, version)).filter(|version| version.document.is_some());
            version.and_then(understood)
        };
        let tasks = self.tasks.iter().filter(|(_, task)| task.partition == partition).filter_map(|(task, stored)| {
            let version = stored.version?;
            let definition = definition(*task, version)?;
            Some(TaskRecord { task: *task, version, definition, next_fire: stored.next_fire, fired_until: stored.fired_until })
        });
        let first = InstanceId::new(partition, 0);
        let last = InstanceId(first.0 | ((1 << 48) - 1));
        let live = self.live.range(first..=last).filter_map(|instance| {
            let row = &self.instances[instance];
            Some((row.clone(), definition(row.task, row.version)?))
        });
        let references = self.references.values();
        let own = references.filter(|reference| self.partition_of(&self.names_of[&reference.from]) == partition);
        let instances: Vec<_> = live.collect();
        let runs = instances.iter().map(|(row, _)| row).filter(|row| row.is_run());
        let ended_nodes = runs.flat_map(|run| self.nodes_of(run)).filter(|node| node.state.is_terminal()).cloned().collect();
        let slots = self.slots.values().filter(|slot| slot.partition == partition);
        Snapshot {
            tasks: tasks.collect(),
            instances,
            ended_nodes,
            references: own.cloned().collect(),
            slots: slots.cloned().collect(),
            pauses: self.pauses_of(partition),
            backfills: self.backfills.values().filter(|row| row.partition == partition && row.is_unfinished()).cloned().collect(),
        }
    }

    /// The nodes of a run, in the order of their parts.
    pub(crate) fn nodes_of(&self, run: &InstanceRow) -> Vec<&InstanceRow> {
        let first = InstanceCursor { part: Part::WHOLE, ..InstanceCursor::of(run) };
        let last = InstanceCursor { part: Part(u64::MAX), ..first };
        let of_firing = self.firings.range((first, InstanceId(0))..=(last, InstanceId(u64::MAX))).map(|(_, id)| &self.instances[id]);
        of_firing.filter(|row| row.part.node_index().is_some() && !row.part.is_shard()).collect()
    }

    pub(crate) fn read_inbox(
        &self,
        partitions: &[PartitionId],
        after: InboxId,
        limit: usize,
        understood: Understood<'_>,
    ) -> (Vec<InboxEntry>, bool) {
        let mut reader = Reader { data: self, understood, standings: BTreeMap::new() };
        let mut entries = Vec::new();
        // From the beginning: what was met before `after` says what is set aside behind it.
        for entry in self.inbox.values().filter(|entry| partitions.contains(&entry.partition)) {
            let Some(request) = reader.request(entry) else { continue };
            if entry.id <= after {
                continue;
            }
            if entries.len() == limit {
                return (entries, true);
            }
            entries.push(InboxEntry { request, ..entry.clone() });
        }
        (entries, false)
    }
}

/// How a task stands with a reader who has come so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It goes on.
    Understood,
    /// Its version in force can't be decoded. An edit helps.
    NotInForce,
    /// An entry of it can't be decoded, so that those behind it wait.
    Blocked,
}

/// Goes through an inbox in its order.
struct Reader<'a> {
    data: &'a Data,
    understood: Understood<'a>,
    standings: BTreeMap<TaskId, Standing>,
}

impl Reader<'_> {
    /// What the next entry asks for; `None`: it is set aside.
    fn request(&mut self, entry: &InboxEntry) -> Option<Request> {
        match &entry.request {
            Request::DefinitionChanged { task, version, .. } => {
                let changed = self.changed(*task, *version);
                self.standings.insert(*task, if changed.is_some() { Standing::Understood } else { Standing::Blocked });
                let (version, definition) = changed?;
                let fired_until = self.data.tasks.get(task).and_then(|stored| stored.fired_until);
                Some(Request::DefinitionChanged { task: *task, version, definition, fired_until })
            }
            Request::Notice(notice) => {
                let goes_on = notice.task().is_none_or(|task| self.standing(task) == Standing::Understood);
                goes_on.then(|| entry.request.clone())
            }
            Request::Trigger { task, .. } | Request::ReferencesChanged { task, .. } => {
                (self.standing(*task) == Standing::Understood).then(|| entry.request.clone())
            }
            Request::Rerun { of } => {
                let goes_on = self.standing(of.task) == Standing::Understood;
                let of = if goes_on { self.with_ended(of)? } else { return None };
                Some(Request::Rerun { of })
            }
            Request::Backfill { plan } => (self.standing(plan.task) == Standing::Understood).then(|| entry.request.clone()),
            Request::CancelBackfill { task, .. } => (self.standing(*task) == Standing::Understood).then(|| entry.request.clone()),
            Request::PauseChanged { .. } => Some(entry.request.clone()),
            Request::Delayed { task, .. } => (self.standing(*task) == Standing::Understood).then(|| entry.request.clone()),
            Request::MarkNode { instance, .. }
            | Request::Cancel { instance, .. }
            | Request::Kill { instance, .. }
            | Request::Skip { instance, .. } => {
                let row = self.data.instances.get(instance);
                let goes_on =
                    row.is_none_or(|row| self.standing(row.task) == Standing::Understood && !self.is_beyond_it(row.task, row.version));
                goes_on.then(|| entry.request.clone())
            }
        }
    }

    /// A rerun with what the nodes of the run before have come to; `None`: the version that it was of can't be decoded.
    fn with_ended(&self, of: &Rerun) -> Option<Box<Rerun>> {
        let mut of = Box::new(of.clone());
        if let Some((from, row)) = of.from.as_deref_mut().zip(self.data.instances.get(&of.instance)) {
            let definition = self.data.versions.get(&(row.task, row.version)).and_then(self.understood)?;
            if let Some(workflow) = &definition.workflow {
                from.take_ended(workflow.graph(), self.data.nodes_of(row).into_iter().cloned());
            }
        }
        Some(of)
    }

    /// The version that an entry stands for: its own, or else the task's newest.
    fn changed(&self, task: TaskId, version: Version) -> Option<(Version, Option<Arc<TaskDefinition>>)> {
        let (newest, newest_version) = self.data.versions.range((task, version)..=(task, Version(u32::MAX))).next_back()?;
        let newest = self.meaning(newest_version).map(|definition| (newest.1, definition));
        if self.standings.get(&task) == Some(&Standing::Blocked) && newest.is_none() {
            return None;
        }
        let own = self.data.versions.get(&(task, version)).and_then(|version| self.meaning(version));
        own.map(|definition| (version, definition)).or(newest)
    }

    /// What a version makes of its task, a removal included.
    fn meaning(&self, version: &StoredVersion) -> Option<Option<Arc<TaskDefinition>>> {
        if version.document.is_none() { Some(None) } else { (self.understood)(version).map(Some) }
    }

    /// Whether a version has a document that this program can't decode.
    fn is_beyond_it(&self, task: TaskId, version: Version) -> bool {
        self.data.versions.get(&(task, version)).is_some_and(|version| self.meaning(version).is_none())
    }

    fn standing(&mut self, task: TaskId) -> Standing {
        if let Some(standing) = self.standings.get(&task) {
            return *standing;
        }
        let in_force = self.data.tasks.get(&task).and_then(|stored| stored.version);
        let is_beyond_it = in_force.is_some_and(|version| self.is_beyond_it(task, version));
        let standing = if is_beyond_it { Standing::NotInForce } else { Standing::Understood };
        self.standings.insert(task, standing);
        standing
    }
}
