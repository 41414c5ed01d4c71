//! What is stored, and what each write does to it.
//!
//! A write is a value: the primary carries it out, and its replica does the same a little later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::batch::{Batch, Output, Snapshot, TaskRecord};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, partition_of};
use punctual_core::inbox::{InboxEntry, Request, Submission};
use punctual_core::instance::InstanceRow;
use punctual_core::occurrence::Occurrence;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{LeaseAnswer, Submitted};

/// A check of the store that safety rests on. Each can be switched off, to show that something fails without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreGuard {
    /// A batch is refused under an epoch that is not the partition's.
    EpochOnCommit,
    /// A batch is refused where the lease is not its replica's.
    OwnerOnCommit,
    /// A batch is refused where the partition doesn't have exactly one commit less than the batch says.
    CommitsInOrder,
    /// An update is refused where the row has another state or fence.
    StateAndFenceOnUpdate,
    /// A task has one instance for each fire time, ordinal and run.
    FiringsUnique,
    /// A batch is refused that applies an inbox entry which is gone.
    EntryThereOnApply,
    /// A trigger's idempotency key stands for one entry.
    SubmissionKeys,
    /// Leases end by the database's clock, not by the asker's.
    LeasesByOwnClock,
    /// Owners read the primary, never the replica.
    ReadsFromPrimary,
}

impl StoreGuard {
    /// Every guard.
    pub const ALL: [StoreGuard; 9] = [
        StoreGuard::EpochOnCommit,
        StoreGuard::OwnerOnCommit,
        StoreGuard::CommitsInOrder,
        StoreGuard::StateAndFenceOnUpdate,
        StoreGuard::FiringsUnique,
        StoreGuard::EntryThereOnApply,
        StoreGuard::SubmissionKeys,
        StoreGuard::LeasesByOwnClock,
        StoreGuard::ReadsFromPrimary,
    ];
}

/// Which guards are off, and how often each had something to hold back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards {
    pub(crate) off: BTreeSet<StoreGuard>,
    pub(crate) hits: BTreeMap<StoreGuard, u64>,
}

impl Guards {
    /// The condition; true where the guard is off.
    pub(crate) fn check(&mut self, guard: StoreGuard, holds: bool) -> bool {
        if !holds {
            *self.hits.entry(guard).or_default() += 1;
        }
        holds || self.off.contains(&guard)
    }
}

/// Why a batch was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its replica doesn't hold a lease that it relies on.
    Lease(String),
    /// A row is not what the owner took it for, which whoever holds the lease should know.
    Row(String),
}

impl Refusal {
    /// In words.
    pub fn reason(&self) -> &str {
        match self {
            Refusal::Lease(reason) | Refusal::Row(reason) => reason,
        }
    }
}

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
    Submit {
        partition: PartitionId,
        by: Arc<str>,
        key: Option<Arc<str>>,
        request: Request,
        at: Timestamp,
    },
    Commit(Arc<Batch>),
}

/// What is stored.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// The replicas that have said that they are alive, and until when that counts.
    pub members: BTreeMap<ReplicaId, Timestamp>,
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
    unique: BTreeSet<(TaskId, Timestamp, u64, u32)>,
    /// The inboxes.
    pub inbox: BTreeMap<InboxId, InboxEntry>,
    /// Fire times that were not fired.
    pub occurrences: Vec<Occurrence>,
    /// What attempts wrote.
    pub outputs: BTreeMap<(InstanceId, u32), Output>,
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
        let lease = self.lease(partition);
        lease.epoch == epoch && lease.owner.as_ref() == Some(replica)
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

    pub(crate) fn last_entry(&self) -> InboxId {
        InboxId(self.last_entry)
    }

    pub(crate) fn snapshot(&self, partition: PartitionId) -> Snapshot {
        let tasks = self.tasks.iter().filter(|(_, task)| task.partition == partition).filter_map(|(task, stored)| {
            let version = stored.version?;
            let definition = self.definition(*task, version)?.clone();
            Some(TaskRecord { task: *task, version, definition, next_fire: stored.next_fire, fired_until: stored.fired_until })
        });
        let first = InstanceId::new(partition, 0);
        let last = InstanceId(first.0 | ((1 << 48) - 1));
        let live = self.live.range(first..=last).filter_map(|instance| {
            let row = &self.instances[instance];
            Some((row.clone(), self.definition(row.task, row.version)?.clone()))
        });
        Snapshot { tasks: tasks.collect(), instances: live.collect() }
    }

    pub(crate) fn read_inbox(&self, partitions: &[PartitionId], after: InboxId, limit: usize) -> (Vec<InboxEntry>, bool) {
        let behind = self.inbox.range(InboxId(after.0 + 1)..);
        let meant = behind.filter(|(_, entry)| partitions.contains(&entry.partition));
        let mut entries: Vec<_> = meant.map(|(_, entry)| entry.clone()).take(limit + 1).collect();
        let more = entries.len() > limit;
        entries.truncate(limit);
        for entry in &mut entries {
            if let Request::DefinitionChanged { task, fired_until, .. } = &mut entry.request {
                *fired_until = self.tasks.get(task).and_then(|stored| stored.fired_until);
            }
        }
        (entries, more)
    }

    /// Whether a batch may be carried out.
    pub(crate) fn check(&self, guards: &mut Guards, batch: &Batch) -> Result<(), Refusal> {
        self.check_leases(guards, batch).map_err(Refusal::Lease)?;
        self.check_rows(guards, batch).map_err(Refusal::Row)
    }

    fn check_leases(&self, guards: &mut Guards, batch: &Batch) -> Result<(), String> {
        for check in &batch.leases {
            let partition = check.partition;
            let Some(lease) = self.leases.get(usize::from(partition.0)) else {
                return Err(format!("there is no partition {partition}"));
            };
            let (epoch, commits) = (lease.epoch, lease.commit_seq);
            // What was given up is nobody's, under whatever epoch.
            if !guards.check(StoreGuard::EpochOnCommit, epoch == check.epoch && lease.owner.is_some()) {
                return Err(format!("partition {partition} is not held under epoch {} any more", check.epoch));
            }
            if !guards.check(StoreGuard::OwnerOnCommit, lease.owner.as_ref() == Some(&batch.replica)) {
                return Err(format!("partition {partition} is held by {}", lease.owner.clone().unwrap_or_default()));
            }
            if !guards.check(StoreGuard::CommitsInOrder, commits + 1 == check.commit_seq) {
                return Err(format!("partition {partition} has {commits} commits, not {}", check.commit_seq - 1));
            }
        }
        let covered: BTreeSet<_> = batch.leases.iter().map(|lease| lease.partition).collect();
        let instances = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row)).map(|row| row.id.partition());
        let tasks = batch.tasks.iter().map(|task| task.partition);
        let outputs = batch.outputs.iter().map(|output| output.instance.partition());
        let entries = batch.applied.iter().filter_map(|id| Some(self.inbox.get(id)?.partition));
        match instances.chain(tasks).chain(outputs).chain(entries).find(|partition| !covered.contains(partition)) {
            Some(partition) => Err(format!("something is of partition {partition}, whose lease is not among the batch's")),
            None => Ok(()),
        }
    }

    fn check_rows(&self, guards: &mut Guards, batch: &Batch) -> Result<(), String> {
        let mut fresh = BTreeSet::new();
        for row in &batch.inserts {
            let key = unique_key(row);
            let is_new = !self.unique.contains(&key) && fresh.insert(key);
            if !guards.check(StoreGuard::FiringsUnique, is_new) || self.instances.contains_key(&row.id) {
                return Err(format!("an instance of task {} for {} is there already", row.task, row.fire_time));
            }
        }
        for update in &batch.updates {
            let (id, expected) = (update.row.id, (update.expected_state, update.expected_fence));
            let stored = self.instances.get(&id).map(|row| (row.state, row.fence));
            if stored.is_none() || !guards.check(StoreGuard::StateAndFenceOnUpdate, stored == Some(expected)) {
                let (state, fence) = (expected.0.name(), expected.1);
                return Err(format!("instance {id} is not {state} under fence {fence}: it is {stored:?}"));
            }
        }
        for id in &batch.applied {
            if !guards.check(StoreGuard::EntryThereOnApply, self.inbox.contains_key(id)) {
                return Err(format!("inbox entry {id} was applied before"));
            }
        }
        Ok(())
    }

    /// Carries a write out that was checked before.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Beat { replica, until, now } => {
                self.members.insert(replica.clone(), *until);
                self.members.retain(|_, until| *until > *now);
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
            Write::Submit { partition, by, key, request, at } => {
                let entry = self.put_entry(*partition, by, request.clone(), *at);
                if let Some(key) = key {
                    self.keys.insert(key.clone(), (request.clone(), entry));
                }
            }
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
        named.removed = definition.is_none();
        named.source = source.clone();
        let (task, version) = (named.task, named.version);
        self.versions.insert((task, version), StoredVersion { at, by: by.clone(), document, definition: definition.clone() });
        self.put_entry(partition, by, Request::DefinitionChanged { task, version, definition, fired_until: None }, at);
    }

    fn commit(&mut self, batch: &Batch) {
        for check in &batch.leases {
            let lease = self.lease_mut(check.partition);
            (lease.commit_seq, lease.sequence) = (check.commit_seq, check.sequence);
        }
        for row in &batch.inserts {
            self.unique.insert(unique_key(row));
            self.put_row(row.clone());
        }
        for update in &batch.updates {
            let mut row = update.row.clone();
            if let Some(stored) = self.instances.get(&row.id) {
                // An update changes what happens to an instance, never what it is.
                (row.task, row.version, row.fire_time) = (stored.task, stored.version, stored.fire_time);
                (row.ordinal, row.run, row.origin) = (stored.ordinal, stored.run, stored.origin);
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
        for id in &batch.applied {
            self.inbox.remove(id);
        }
    }

    fn put_row(&mut self, row: InstanceRow) {
        match row.state.is_terminal() {
            true => self.live.remove(&row.id),
            false => self.live.insert(row.id),
        };
        self.instances.insert(row.id, row);
    }
}

fn unique_key(row: &InstanceRow) -> (TaskId, Timestamp, u64, u32) {
    (row.task, row.fire_time, row.ordinal, row.run)
}

/// The request that a manual trigger is.
pub(crate) fn trigger_request(task: TaskId, submissions: Vec<Submission>) -> Request {
    Request::Trigger { task, submissions }
}

/// So much later.
pub(crate) fn later(at: Timestamp, ttl: Millis) -> Timestamp {
    at.saturating_add(ttl)
}
