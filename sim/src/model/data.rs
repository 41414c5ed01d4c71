//! What is stored, and what each write does to it.
//!
//! A write is a value: the primary carries it out, and its replica does the same a little later. What may not be written is refused
//! before (see `checks`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::backfill::{BackfillRow, BackfillWrite};
use punctual_core::batch::{Batch, GroupSlot, Output, Reference};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, partition_of};
use punctual_core::inbox::{InboxEntry, Notice, Request, Submission};
use punctual_core::instance::{InstanceRow, Links, Part, ShardsAgain, State};
use punctual_core::occurrence::Occurrence;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Actor, InstanceCursor, LeaseAnswer, PauseTarget, Rerunning, Submitted};

use crate::model::people::{Audited, People};

/// A partition's lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub owner: Option<ReplicaId>,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Commits so far.
    pub commit_seq: u64,
    /// The last number of the sequence that was given out.
    pub sequence: u64,
    /// When it runs out, by the database's clock.
    pub expires_at: Timestamp,
}

/// The owner's record of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// Its partition.
    pub partition: PartitionId,
    /// The version in force; `None`: removed.
    pub version: Option<Version>,
    /// The cursor.
    pub next_fire: Option<Timestamp>,
    /// Fire times up to then were dealt with.
    pub fired_until: Option<Timestamp>,
}

/// A name that was ever defined.
#[derive(Clone, Debug)]
pub struct Named {
    /// The task.
    pub task: TaskId,
    /// Its newest version.
    pub version: Version,
    /// Whether that version removed it.
    pub removed: bool,
    /// Who made it.
    pub source: Arc<str>,
}

/// A version of a task.
#[derive(Clone, Debug)]
pub struct StoredVersion {
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Arc<str>,
    /// Its document; `None`: it removed the task.
    pub document: Option<Arc<str>>,
    /// What the core makes of it.
    pub definition: Option<Arc<TaskDefinition>>,
}

/// A write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Beat {
        replica: ReplicaId,
        until: Timestamp,
        now: Timestamp,
    },
    Leave {
        replica: ReplicaId,
    },
    /// Whether it may be granted was checked before.
    Grant {
        partition: PartitionId,
        replica: ReplicaId,
        until: Timestamp,
    },
    Renew {
        partition: PartitionId,
        until: Timestamp,
    },
    Release {
        partition: PartitionId,
    },
    Define {
        name: Arc<str>,
        source: Arc<str>,
        by: Arc<str>,
        document: Option<Arc<str>>,
        definition: Option<Arc<TaskDefinition>>,
        at: Timestamp,
    },
    /// The tasks whose ends make a task fire are those of its newest definition from now on.
    Refer {
        task: TaskId,
    },
    /// What a task's ends make fire has changed.
    TellReferences {
        task: TaskId,
        by: Arc<str>,
        at: Timestamp,
    },
    /// A task that is as another source's document says.
    TakeOver {
        name: Arc<str>,
        source: Arc<str>,
    },
    Submit {
        partition: PartitionId,
        by: Arc<str>,
        key: Option<Arc<str>>,
        request: Request,
        at: Timestamp,
    },
    SetPause {
        target: PauseTarget,
        /// Since when and by whom; `None`: it is lifted.
        pause: Option<(Timestamp, Actor)>,
    },
    /// A dead letter is run again or discarded.
    Settle {
        instance: InstanceId,
    },
    Audit(Audited),
    Commit(Arc<Batch>),
}

/// A replica that has said that it is alive.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// When it said so first, without a gap since.
    pub since: Timestamp,
    /// Until when that counts.
    pub expires_at: Timestamp,
}

/// What is stored.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// The replicas that have said that they are alive.
    pub members: BTreeMap<ReplicaId, Member>,
    /// By partition.
    pub leases: Vec<Lease>,
    /// The owners' records.
    pub tasks: BTreeMap<TaskId, StoredTask>,
    /// By name, whatever was ever defined.
    pub names: BTreeMap<Arc<str>, Named>,
    /// Every version.
    pub versions: BTreeMap<(TaskId, Version), StoredVersion>,
    /// Every instance.
    pub instances: BTreeMap<InstanceId, InstanceRow>,
    /// Those that have not ended.
    pub live: BTreeSet<InstanceId>,
    /// The instances in the order in which they are listed.
    pub(crate) firings: BTreeSet<(InstanceCursor, InstanceId)>,
    /// Those of manual triggers, by ordinal and run.
    pub(crate) by_ordinal: BTreeSet<(u64, u32, InstanceId)>,
    pub(crate) names_of: BTreeMap<TaskId, Arc<str>>,
    /// The inboxes.
    pub inbox: BTreeMap<InboxId, InboxEntry>,
    /// Fire times that were not fired.
    pub occurrences: Vec<Occurrence>,
    /// What the ends of tasks make fire, by the task that ends and the one that fires.
    pub references: BTreeMap<(TaskId, TaskId), Reference>,
    /// The tasks that nodes of others call: who calls, and who is called.
    pub calls: BTreeMap<(TaskId, TaskId), u32>,
    /// Slots of groups, by the group's partition and their instances.
    pub slots: BTreeMap<(PartitionId, InstanceId), GroupSlot>,
    /// Backfills, by the entries that asked for them.
    pub backfills: BTreeMap<InboxId, BackfillRow>,
    /// What attempts wrote.
    pub outputs: BTreeMap<(InstanceId, u32), Output>,
    /// What people have done, and what waits for them.
    pub(crate) people: People,
    keys: BTreeMap<Arc<str>, (Request, InboxId)>,
    last_entry: u64,
}

impl Data {
    pub(crate) fn new(partitions: u16) -> Data {
        Data { leases: vec![Lease::default(); usize::from(partitions)], ..Data::default() }
    }

    /// The lease of a partition.
    pub fn lease(&self, partition: PartitionId) -> &Lease {
        &self.leases[usize::from(partition.0)]
    }

    /// The definition of a version.
    pub fn definition(&self, task: TaskId, version: Version) -> Option<&Arc<TaskDefinition>> {
        self.versions.get(&(task, version)).and_then(|version| version.definition.as_ref())
    }

    pub(crate) fn partition_of(&self, name: &str) -> PartitionId {
        partition_of(name, self.leases.len() as u16)
    }

    /// Whether a lease may be granted to this replica.
    pub(crate) fn is_free(&self, partition: PartitionId, replica: &ReplicaId, now: Timestamp) -> bool {
        let lease = self.lease(partition);
        lease.owner.as_ref().is_none_or(|owner| owner == replica) || lease.expires_at <= now
    }

    pub(crate) fn is_held(&self, partition: PartitionId, replica: &ReplicaId, epoch: Epoch) -> bool {
        let lease = self.leases.get(usize::from(partition.0));
        lease.is_some_and(|lease| lease.epoch == epoch && lease.owner.as_ref() == Some(replica))
    }

    pub(crate) fn granted(&self, partition: PartitionId) -> LeaseAnswer {
        let Lease { epoch, commit_seq, sequence, .. } = *self.lease(partition);
        LeaseAnswer::Granted { partition, epoch, commit_seq, sequence }
    }

    pub(crate) fn held(&self, partition: PartitionId) -> LeaseAnswer {
        let lease = self.lease(partition);
        LeaseAnswer::Held { partition, owner: lease.owner.clone().unwrap_or_default(), expires_at: lease.expires_at }
    }

    /// What became of a submission with this key before, if there was one.
    pub(crate) fn submitted_before(&self, key: &str, request: &Request) -> Option<Submitted> {
        let (before, entry) = self.keys.get(key)?;
        Some(if before == request { Submitted::Repeated { entry: *entry } } else { Submitted::KeyTaken })
    }

    /// The entry that was written under this key.
    pub(crate) fn entry_under(&self, key: &str) -> Option<InboxId> {
        self.keys.get(key).map(|(_, entry)| *entry)
    }

    /// Whether what was asked of this instance's rerun, which there is, is this.
    pub(crate) fn is_rerun_as(&self, row: &InstanceRow, which: &Rerunning) -> bool {
        let key = format!("\u{1}rerun:{}", row.id);
        let Some((Request::Rerun { of }, _)) = self.keys.get(key.as_str()) else { return false };
        let from = match which {
            Rerunning::From(from) => Some(from),
            Rerunning::Unsuccessful | Rerunning::All => None,
        };
        of.from.as_deref() == from && of.shards == self.shards_again(row, which)
    }

    /// Whether a firing has been run again after this run.
    pub(crate) fn has_later_run(&self, row: &InstanceRow) -> bool {
        let place = InstanceCursor::of(row);
        let later = InstanceCursor { run: u32::MAX, part: Part(u64::MAX), ..place };
        let runs = self.firings.range((place, InstanceId(0))..=(later, InstanceId(u64::MAX)));
        runs.into_iter().any(|(place, _)| place.run > row.run && place.part == Part::WHOLE)
    }

    /// The shards of this firing that are to run again.
    pub(crate) fn shards_again(&self, whole: &InstanceRow, which: &Rerunning) -> Option<Box<ShardsAgain>> {
        let is_divided = |links: &&Links| whole.has_parts() && links.shards > 0 && links.map.is_none();
        let links = whole.links.as_deref().filter(|_| *which == Rerunning::Unsuccessful).filter(is_divided)?;
        let place = InstanceCursor::of(whole);
        let parts = (InstanceCursor { part: Part(1), ..place }, InstanceId(0))
            ..=(InstanceCursor { part: Part(u64::MAX), ..place }, InstanceId(u64::MAX));
        let rows = self.firings.range(parts).map(|(_, id)| &self.instances[id]);
        let again: Vec<_> = rows.filter(|row| row.state != State::Succeeded).collect();
        let are_for_workers = again.iter().any(|row| row.links.as_ref().is_some_and(|links| links.is_for_worker));
        let key = |row: &InstanceRow| row.links.as_ref().and_then(|links| links.shard_key.clone());
        let shards: Vec<_> = again.iter().filter_map(|row| Some((row.part.shard_index()?, key(row)))).collect();
        (!shards.is_empty()).then(|| Box::new(ShardsAgain { count: links.shards, are_for_workers, shards }))
    }

    pub(crate) fn last_entry(&self) -> InboxId {
        InboxId(self.last_entry)
    }

    /// Carries a write out that was checked before.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Beat { replica, until, now } => {
                self.members.retain(|_, member| member.expires_at > *now);
                self.members.entry(replica.clone()).or_insert(Member { since: *now, expires_at: *until }).expires_at = *until;
            }
            Write::Leave { replica } => _ = self.members.remove(replica),
            Write::Grant { partition, replica, until } => {
                let lease = self.lease_mut(*partition);
                lease.owner = Some(replica.clone());
                lease.epoch.0 += 1;
                lease.expires_at = *until;
            }
            Write::Renew { partition, until } => self.lease_mut(*partition).expires_at = *until,
            Write::Release { partition } => {
                let lease = self.lease_mut(*partition);
                (lease.owner, lease.expires_at) = (None, Timestamp(0));
            }
            Write::Define { name, source, by, document, definition, at } => {
                self.define(name, source, by, document.clone(), definition.clone(), *at);
            }
            Write::Refer { task } => self.refer(*task),
            Write::TellReferences { task, by, at } => {
                let (partition, references) = (self.partition_of(&self.names_of[task]), self.references_of(*task));
                self.put_entry(partition, by, Request::ReferencesChanged { task: *task, references }, *at);
            }
            Write::TakeOver { name, source } => {
                if let Some(named) = self.names.get_mut(name) {
                    named.source = source.clone();
                }
            }
            Write::Submit { partition, by, key, request, at } => {
                let entry = self.put_entry(*partition, by, request.clone(), *at);
                if let Request::Rerun { of } = request {
                    self.people.settle(of.instance);
                }
                if let Some(key) = key {
                    self.keys.insert(key.clone(), (request.clone(), entry));
                }
            }
            Write::SetPause { target, pause } => self.people.set_pause(target, pause.clone()),
            Write::Settle { instance } => self.people.settle(*instance),
            Write::Audit(audited) => self.people.put_audit(audited.clone()),
            Write::Commit(batch) => self.commit(batch),
        }
    }

    fn lease_mut(&mut self, partition: PartitionId) -> &mut Lease {
        &mut self.leases[usize::from(partition.0)]
    }

    fn put_entry(&mut self, partition: PartitionId, by: &Arc<str>, request: Request, at: Timestamp) -> InboxId {
        self.last_entry += 1;
        let id = InboxId(self.last_entry);
        self.inbox.insert(id, InboxEntry { id, partition, at, by: by.clone(), request });
        id
    }

    /// A name keeps its task for ever.
    fn define(
        &mut self,
        name: &Arc<str>,
        source: &Arc<str>,
        by: &Arc<str>,
        document: Option<Arc<str>>,
        definition: Option<Arc<TaskDefinition>>,
        at: Timestamp,
    ) {
        let partition = self.partition_of(name);
        let next = TaskId(self.names.len() as u64 + 1);
        let fresh = || Named { task: next, version: Version(0), removed: false, source: source.clone() };
        let named = self.names.entry(name.clone()).or_insert_with(fresh);
        named.version.0 += 1;
        named.removed = document.is_none();
        named.source = source.clone();
        let (task, version) = (named.task, named.version);
        self.names_of.insert(task, name.clone());
        self.versions.insert((task, version), StoredVersion { at, by: by.clone(), document, definition: definition.clone() });
        self.put_entry(partition, by, Request::DefinitionChanged { task, version, definition, fired_until: None }, at);
    }

    fn refer(&mut self, task: TaskId) {
        self.references.retain(|(_, to), _| *to != task);
        let name = &self.names_of[&task];
        let (named, partition) = (&self.names[name], self.partition_of(name));
        let chains = self.definition(task, named.version).and_then(|definition| definition.chains.clone()).unwrap_or_default();
        for chain in chains.iter() {
            // Whether it is there was checked before.
            let Some(from) = self.names.get(&chain.task).map(|named| named.task) else { continue };
            self.references.insert((from, task), Reference { from, to: task, partition, on: chain.on });
        }
        self.calls.retain(|(caller, _), _| *caller != task);
        let called = self.definition(task, named.version).map(|definition| definition.called_tasks()).unwrap_or_default();
        let called: Vec<_> = called.iter().filter_map(|(name, times)| Some(((task, self.names.get(name)?.task), *times))).collect();
        self.calls.extend(called);
    }

    /// Whether a task's newest definition has it fire after others.
    pub(crate) fn is_chained(&self, task: TaskId) -> bool {
        let version = self.names_of.get(&task).and_then(|name| self.names.get(name)).map(|named| named.version);
        version.and_then(|version| self.definition(task, version)).is_some_and(|definition| definition.chains.is_some())
    }

    /// Whether nodes of a task call others, now or by its newest definition.
    pub(crate) fn calls_others(&self, task: TaskId) -> bool {
        let version = self.names_of.get(&task).and_then(|name| self.names.get(name)).map(|named| named.version);
        let definition = version.and_then(|version| self.definition(task, version));
        self.calls.range((task, TaskId(0))..=(task, TaskId(u64::MAX))).next().is_some()
            || definition.is_some_and(|definition| !definition.called_tasks().is_empty())
    }

    /// A notice as its entry has it: where it names a task, with that.
    pub(crate) fn addressed(&self, notice: &Notice) -> Notice {
        match notice.name_of_task() {
            Some(name) => notice.clone().for_task(self.names.get(name).map(|named| named.task)),
            None => notice.clone(),
        }
    }

    /// The tasks whose ends make this one fire.
    pub(crate) fn referring_to(&self, task: TaskId) -> BTreeSet<TaskId> {
        self.references.keys().filter(|(_, to)| *to == task).map(|(from, _)| *from).collect()
    }

    /// What the ends of a task make fire.
    pub(crate) fn references_of(&self, task: TaskId) -> Vec<Reference> {
        self.references.range((task, TaskId(0))..=(task, TaskId(u64::MAX))).map(|(_, reference)| reference.clone()).collect()
    }

    fn commit(&mut self, batch: &Batch) {
        for check in &batch.leases {
            let lease = self.lease_mut(check.partition);
            (lease.commit_seq, lease.sequence) = (check.commit_seq, check.sequence);
        }
        for row in &batch.inserts {
            self.firings.insert((InstanceCursor::of(row), row.id));
            if row.ordinal != 0 && row.part == Part::WHOLE {
                self.by_ordinal.insert((row.ordinal, row.run, row.id));
            }
            self.put_row(row.clone());
        }
        for update in &batch.updates {
            let mut row = update.row.clone();
            if let Some(stored) = self.instances.get(&row.id) {
                // An update changes what happens to an instance, never what it is.
                (row.task, row.version, row.fire_time) = (stored.task, stored.version, stored.fire_time);
                (row.ordinal, row.run, row.part, row.origin) = (stored.ordinal, stored.run, stored.part, stored.origin);
                (row.payload, row.key) = (stored.payload.clone(), stored.key.clone());
            }
            self.put_row(row);
        }
        for write in &batch.tasks {
            let (partition, version, next_fire) = (write.partition, write.version, write.next_fire);
            let fired_until = write.fired_until.or(self.tasks.get(&write.task).and_then(|stored| stored.fired_until));
            self.tasks.insert(write.task, StoredTask { partition, version, next_fire, fired_until });
        }
        for output in &batch.outputs {
            self.outputs.insert((output.instance, output.attempt), output.output.clone());
        }
        self.occurrences.extend(batch.occurrences.iter().cloned());
        for message in &batch.messages {
            let notice = self.addressed(&message.notice);
            self.put_entry(message.partition, &message.by, Request::Notice(notice), message.at);
        }
        for write in &batch.slots {
            match &write.slot {
                Some(slot) => _ = self.slots.insert((write.partition, write.instance), slot.clone()),
                None => _ = self.slots.remove(&(write.partition, write.instance)),
            }
        }
        for BackfillWrite { row, is_new } in &batch.backfills {
            match self.backfills.get_mut(&row.id) {
                Some(stored) => (stored.state, stored.made, stored.ended) = (row.state, row.made, row.ended),
                None if *is_new => {
                    self.backfills.insert(row.id, row.clone());
                    self.forget_backfills(row.plan.task);
                }
                None => {}
            }
        }
        for id in &batch.applied {
            self.inbox.remove(id);
        }
    }

    pub(crate) fn delete_instance(&mut self, id: InstanceId) {
        let Some(row) = self.instances.remove(&id) else { return };
        self.live.remove(&id);
        self.firings.remove(&(InstanceCursor::of(&row), id));
        self.by_ordinal.remove(&(row.ordinal, row.run, id));
    }

    fn put_row(&mut self, row: InstanceRow) {
        match row.state.is_terminal() {
            true => self.live.remove(&row.id),
            false => self.live.insert(row.id),
        };
        self.people.row_is(self.instances.get(&row.id).map(|before| before.state), &row);
        self.instances.insert(row.id, row);
    }
}

/// The request that a manual trigger is.
pub(crate) fn trigger_request(task: TaskId, submissions: Vec<Submission>) -> Request {
    Request::Trigger { task, submissions }
}

/// So much later.
pub(crate) fn later(at: Timestamp, ttl: Millis) -> Timestamp {
    at.saturating_add(ttl)
}
