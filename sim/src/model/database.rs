//! A primary with a clock of its own, a replica behind it, failover, and the history of what was carried out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use punctual_core::batch::{Batch, Renewal, Snapshot};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId};
use punctual_core::inbox::{InboxEntry, NodeMark, Notice, Request, Rerun, Submission};
use punctual_core::instance::Part;
use punctual_core::time::{Millis, Timestamp};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{
    Actor, Applied, Applying, Beat, Edited, InstanceAction, LeaseAnswer, Rerunning, Standing, Submitted, TaskDocument, TaskEdit,
};

use crate::history::{Recorder, What, Who};
use crate::model::catalog::Change;
use crate::model::checks::{Guards, Refusal, StoreGuard};
use crate::model::data::{Data, Write, later, trigger_request};
use crate::model::reading::{Understood, as_written};

/// How a database is laid out.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseConfig {
    /// How many partitions.
    pub partitions: u16,
    /// What its clock shows at the beginning.
    pub starts_at: Timestamp,
    /// How far its replica is behind; `None`: it has none, and can't fail over.
    pub replica_lag: Option<Millis>,
}

/// The database. All times are virtual milliseconds since the beginning of the run, unless they are called the clock's.
#[derive(Debug)]
pub struct Database {
    config: DatabaseConfig,
    data: Data,
    guards: Guards,
    recorder: Recorder,
    clock_offset: i64,
    replica: Option<Replica>,
    /// How often it has failed over.
    generation: u64,
}

/// Does what the primary did, so much later.
#[derive(Debug)]
struct Replica {
    lag: u64,
    data: Data,
    /// What it has not done yet: when the primary did it, and the first record of it.
    log: VecDeque<(u64, usize, Write)>,
}

impl Replica {
    fn catch_up(&mut self, at: u64) {
        while self.log.front().is_some_and(|(done_at, ..)| done_at + self.lag <= at) {
            let (_, _, write) = self.log.pop_front().expect("looked at");
            self.data.apply(&write);
        }
    }
}

impl Database {
    /// An empty one.
    pub fn new(config: DatabaseConfig, recorder: Recorder) -> Database {
        let data = Data::new(config.partitions);
        let replica = config.replica_lag.map(|lag| Replica { lag: lag.0, data: data.clone(), log: VecDeque::new() });
        Database { config, data, guards: Guards::default(), recorder, clock_offset: 0, replica, generation: 0 }
    }

    /// What is stored.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// What its clock shows.
    pub fn clock(&self, at: u64) -> Timestamp {
        Timestamp(self.config.starts_at.0 + at as i64 + self.clock_offset)
    }

    /// How often it has failed over. An answer to what was asked of an earlier primary never comes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Switches a guard off.
    pub fn switch_off(&mut self, guard: StoreGuard) {
        self.guards.off.insert(guard);
    }

    /// How often a guard had something to hold back.
    pub fn hits(&self, guard: StoreGuard) -> u64 {
        self.guards.hits.get(&guard).copied().unwrap_or(0)
    }

    /// Sets its clock.
    pub fn step_clock(&mut self, at: u64, by: i64) {
        self.clock_offset += by;
        self.record(at, What::ClockStepped { by });
    }

    /// The replica takes the primary's place. Answers with how many writes were lost.
    pub fn fail_over(&mut self, at: u64) -> usize {
        let Some(replica) = &mut self.replica else { return 0 };
        replica.catch_up(at);
        self.generation += 1;
        let lost = std::mem::take(&mut replica.log);
        let Some((_, from, _)) = lost.front() else { return 0 };
        let from = *from;
        self.data = replica.data.clone();
        self.record(at, What::TailLost { from });
        lost.len()
    }

    /// A replica of the scheduler says that it is alive.
    pub fn beat(&mut self, at: u64, replica: &ReplicaId, ttl: Millis) -> Beat {
        let now = self.clock(at);
        self.write(at, Write::Beat { replica: replica.clone(), until: later(now, ttl), now }, None);
        Beat { members: self.data.members.keys().cloned().collect(), now: Some(now) }
    }

    /// Grants leases. `asker_clock` is what the asker takes for the present; it decides nothing.
    pub fn acquire(
        &mut self,
        at: u64,
        replica: &ReplicaId,
        partitions: &[PartitionId],
        most: usize,
        ttl: Millis,
        asker_clock: Timestamp,
    ) -> Vec<LeaseAnswer> {
        let now = match self.guards.check(StoreGuard::LeasesByOwnClock, false) {
            false => self.clock(at),
            true => asker_clock,
        };
        let mut answers = Vec::new();
        let mut granted = 0;
        for &partition in partitions {
            if granted == most {
                break;
            }
            if self.data.is_free(partition, replica, now) {
                granted += 1;
                let until = later(now, ttl);
                let epoch = Epoch(self.data.lease(partition).epoch.0 + 1);
                let what = What::LeaseGranted { partition, owner: replica.clone(), epoch, until: at + ttl.0 };
                self.write(at, Write::Grant { partition, replica: replica.clone(), until }, Some(what));
                answers.push(self.data.granted(partition));
            } else {
                answers.push(self.data.held(partition));
            }
        }
        answers
    }

    /// Extends leases; answers with those that could not be.
    pub fn renew(&mut self, at: u64, replica: &ReplicaId, leases: &[Renewal], ttl: Millis) -> Vec<PartitionId> {
        let until = later(self.clock(at), ttl);
        let mut lost = Vec::new();
        for &Renewal { partition, epoch, commit_seq } in leases {
            let is_held = self.data.is_held(partition, replica, epoch);
            if is_held && self.guards.check(StoreGuard::CommitsOnRenewal, self.data.lease(partition).commit_seq >= commit_seq) {
                let what = What::LeaseRenewed { partition, epoch, until: at + ttl.0 };
                self.write(at, Write::Renew { partition, until }, Some(what));
            } else {
                lost.push(partition);
            }
        }
        lost
    }

    /// Takes leases back.
    pub fn release(&mut self, at: u64, replica: &ReplicaId, leases: &[(PartitionId, Epoch)], leaves: bool) {
        for &(partition, epoch) in leases {
            if self.data.is_held(partition, replica, epoch) {
                self.write(at, Write::Release { partition }, Some(What::LeaseReleased { partition, epoch }));
            }
        }
        if leaves {
            self.write(at, Write::Leave { replica: replica.clone() }, None);
        }
    }

    /// Somebody takes a lease away from its holder and gives it to `replica`.
    pub fn reassign(&mut self, at: u64, partition: PartitionId, replica: &ReplicaId, ttl: Millis) {
        let epoch = self.data.lease(partition).epoch;
        if self.data.lease(partition).owner.is_some() {
            self.write(at, Write::Release { partition }, Some(What::LeaseReleased { partition, epoch }));
        }
        let until = later(self.clock(at), ttl);
        let what = What::LeaseGranted { partition, owner: replica.clone(), epoch: Epoch(epoch.0 + 1), until: at + ttl.0 };
        self.write(at, Write::Grant { partition, replica: replica.clone(), until }, Some(what));
    }

    /// Somebody deletes the row of an instance.
    pub fn delete_instance(&mut self, instance: InstanceId) {
        self.data.delete_instance(instance);
    }

    /// What a new owner needs of a partition.
    pub fn snapshot(&mut self, at: u64, partition: PartitionId) -> Snapshot {
        self.snapshot_as(at, partition, &as_written)
    }

    /// The same for a program that makes of documents what it can.
    pub(crate) fn snapshot_as(&mut self, at: u64, partition: PartitionId, understood: Understood<'_>) -> Snapshot {
        self.read(at).snapshot(partition, understood)
    }

    /// The oldest entries of these partitions' inboxes behind `after`, and whether there are more.
    pub fn read_inbox(&mut self, at: u64, partitions: &[PartitionId], after: InboxId, limit: usize) -> (Vec<InboxEntry>, bool) {
        self.read_inbox_as(at, partitions, after, limit, &as_written)
    }

    /// The same for a program that makes of documents what it can.
    pub(crate) fn read_inbox_as(
        &mut self,
        at: u64,
        partitions: &[PartitionId],
        after: InboxId,
        limit: usize,
        understood: Understood<'_>,
    ) -> (Vec<InboxEntry>, bool) {
        self.read(at).read_inbox(partitions, after, limit, understood)
    }

    /// What owners read: the primary.
    fn read(&mut self, at: u64) -> &Data {
        let from_primary = !self.guards.check(StoreGuard::ReadsFromPrimary, false);
        match &mut self.replica {
            Some(replica) if !from_primary => {
                replica.catch_up(at);
                &replica.data
            }
            _ => &self.data,
        }
    }

    /// Carries a batch out, all or nothing.
    pub fn commit(&mut self, at: u64, batch: &Arc<Batch>) -> Result<(), Refusal> {
        if let Err(refusal) = self.data.check(&mut self.guards, batch) {
            let is_lease = matches!(refusal, Refusal::Lease(_));
            let reason = Arc::from(refusal.reason());
            self.record(at, What::CommitRefused { replica: batch.replica.clone(), is_lease, reason });
            return Err(refusal);
        }
        let first = self.data.last_entry().0 + 1;
        self.write(at, Write::Commit(batch.clone()), Some(What::Committed(batch.clone())));
        for (entry, message) in (first..).zip(&batch.messages) {
            let (entry, partition, notice) = (InboxId(entry), message.partition, self.data.addressed(&message.notice));
            self.record(at, What::Noticed { entry, partition, notice });
        }
        Ok(())
    }

    /// Writes a version of a task, `None`: its removal.
    pub fn define(&mut self, at: u64, name: &Arc<str>, definition: Option<Arc<TaskDefinition>>) -> InboxId {
        let text = |text: &str| Arc::from(text);
        let by = text("client");
        let entry = self.define_as(at, name, &text("plan"), &by, definition.as_ref().map(|_| text("{}")), definition);
        self.refer(at, std::slice::from_ref(name), &by);
        entry
    }

    /// Writes a version of a task with its document.
    pub fn define_as(
        &mut self,
        at: u64,
        name: &Arc<str>,
        source: &Arc<str>,
        by: &Arc<str>,
        document: Option<Arc<str>>,
        definition: Option<Arc<TaskDefinition>>,
    ) -> InboxId {
        let now = self.clock(at);
        let write =
            Write::Define { name: name.clone(), source: source.clone(), by: by.clone(), document, definition: definition.clone(), at: now };
        let index = self.recorder.len();
        self.data.apply(&write);
        self.replicate(at, index, write);
        let named = &self.data.names[name];
        let entry = self.data.last_entry();
        let (task, version, partition) = (named.task, named.version, self.data.partition_of(name));
        self.record(at, What::Defined { entry, task, partition, version, definition });
        entry
    }

    /// Makes the tasks of `source` be these documents, or only says what that would change.
    /// Also says whether it was carried out.
    pub fn apply(&mut self, at: u64, source: &Arc<str>, by: &Arc<str>, documents: &[TaskDocument], how: &Applying) -> (Applied, bool) {
        let (changes, applied) = self.data.compare(source, documents, how);
        if how.dry_run || !applied.refused.is_empty() || (!how.take_over && !applied.taken.is_empty()) {
            return (applied, false);
        }
        self.carry_out(at, source, by, changes);
        (applied, true)
    }

    /// Makes, changes or removes one task.
    pub fn edit(&mut self, at: u64, edit: &TaskEdit, by: &Arc<str>, dry_run: bool) -> Edited {
        let standing = self
            .data
            .names
            .get(&edit.name)
            .map(|named| Standing { source: named.source.clone(), version: Some(named.version).filter(|_| !named.removed) });
        if let Some(refused) = edit.refused(standing.as_ref()) {
            return refused;
        }
        let (changes, applied) = self.data.compare_edit(edit);
        if !applied.refused.is_empty() {
            return Edited::Refused(applied.refused);
        }
        if !dry_run {
            self.carry_out(at, &edit.source, by, changes);
        }
        Edited::Done(applied)
    }

    fn carry_out(&mut self, at: u64, source: &Arc<str>, by: &Arc<str>, changes: Vec<Change<'_>>) {
        let mut changed = Vec::new();
        for change in changes {
            match &change {
                Change::Version(task) => changed.push(task.definition.name.clone()),
                Change::Removal(name) => changed.push(name.clone()),
                Change::TakeOver(_) => {}
            }
            match change {
                Change::Version(task) => {
                    let (document, definition) = (Some(task.document.clone()), Some(task.definition.clone()));
                    self.define_as(at, &task.definition.name, source, by, document, definition);
                }
                Change::Removal(name) => _ = self.define_as(at, &name, source, by, None, None),
                Change::TakeOver(name) => self.write(at, Write::TakeOver { name, source: source.clone() }, None),
            }
        }
        self.refer(at, &changed, by);
    }

    /// Which tasks' ends make these fire has changed: writes it, and tells the owners of those that end.
    fn refer(&mut self, at: u64, changed: &[Arc<str>], by: &Arc<str>) {
        let mut concerned = BTreeSet::new();
        for name in changed {
            let task = self.data.names[name].task;
            let before = self.data.referring_to(task);
            if before.is_empty() && !self.data.is_chained(task) && !self.data.calls_others(task) {
                continue;
            }
            concerned.extend(before);
            self.write(at, Write::Refer { task }, None);
            concerned.extend(self.data.referring_to(task));
        }
        let mut concerned: Vec<_> = concerned.into_iter().map(|task| (self.data.partition_of(&self.data.names_of[&task]), task)).collect();
        concerned.sort_unstable();
        for (_, task) in concerned {
            let entry = InboxId(self.data.last_entry().0 + 1);
            let write = Write::TellReferences { task, by: by.clone(), at: self.clock(at) };
            self.write(at, write, Some(What::ReferencesChanged { entry, task }));
        }
    }

    /// Fires a task by hand. A repeated call is answered as one also where the task is gone by then.
    pub fn trigger(&mut self, at: u64, name: &str, by: &Arc<str>, key: Option<&Arc<str>>, submissions: Vec<Submission>) -> Submitted {
        let Some(named) = self.data.names.get(name) else { return Submitted::NoSuchTask };
        let (task, removed) = (named.task, named.removed);
        let count = submissions.len();
        let request = trigger_request(task, submissions);
        let before = key.and_then(|key| self.data.submitted_before(key, &request));
        if let Some(before) = before
            && !self.guards.check(StoreGuard::SubmissionKeys, false)
        {
            return before;
        }
        if removed {
            return Submitted::NoSuchTask;
        }
        let (partition, now) = (self.data.partition_of(name), self.clock(at));
        let entry = InboxId(self.data.last_entry().0 + 1);
        let what = What::Submitted { entry, task, submissions: count, key: key.cloned() };
        self.write(at, Write::Submit { partition, by: by.clone(), key: key.cloned(), request, at: now }, Some(what));
        Submitted::Accepted { entry }
    }

    /// Asks for an instance to be cancelled.
    pub fn cancel(&mut self, at: u64, instance: InstanceId, by: &Arc<str>, reason: Option<Arc<str>>) -> Submitted {
        self.act(at, instance, InstanceAction::Cancel, &Actor { by: by.clone(), from: None, why: reason })
    }

    /// Says what a node of a run has come to.
    pub fn mark_node(
        &mut self,
        at: u64,
        instance: InstanceId,
        node: NodeIndex,
        mark: NodeMark,
        by: &Arc<str>,
        reason: Option<Arc<str>>,
    ) -> Submitted {
        let Some(row) = self.data.instances.get(&instance) else { return Submitted::NoSuchInstance };
        match row.links.as_ref().map_or(0, |links| links.nodes) {
            0 if row.part != Part::WHOLE => return Submitted::IsPart { whole: row.parent().unwrap_or(instance) },
            0 => return Submitted::NoWorkflow,
            _ if row.state.is_terminal() => return Submitted::HasEnded,
            nodes if node.0 >= nodes => return Submitted::NoSuchNode,
            _ => {}
        }
        let (partition, now) = (instance.partition(), self.clock(at));
        let entry = InboxId(self.data.last_entry().0 + 1);
        let request = Request::MarkNode { instance, node, mark, reason };
        let write = Write::Submit { partition, by: by.clone(), key: None, request, at: now };
        self.write(at, write, Some(What::MarkSubmitted { entry, instance }));
        Submitted::Accepted { entry }
    }

    /// Asks for an instance that has ended to run once more. There is one entry for each, however often that is asked.
    pub fn rerun(&mut self, at: u64, instance: InstanceId, by: &Arc<str>, reason: Option<Arc<str>>, which: Rerunning) -> Submitted {
        let Some(row) = self.data.instances.get(&instance) else { return Submitted::NoSuchInstance };
        if row.part != Part::WHOLE {
            return Submitted::IsPart { whole: row.parent().unwrap_or(instance) };
        }
        if !row.state.is_terminal() {
            return Submitted::StillRuns;
        }
        if matches!(which, Rerunning::From(_)) && !row.is_run() {
            return Submitted::NoWorkflow;
        }
        if let Some(entry) = self.data.entry_under(&rerun_key(instance)) {
            // It may run again, but not as this one wants it.
            return if self.data.is_rerun_as(row, &which) { Submitted::Repeated { entry } } else { Submitted::NotNewest };
        }
        if self.data.has_later_run(row) {
            return Submitted::NotNewest;
        }
        if self.data.name_of(row.task).and_then(|name| self.data.names.get(name)).is_none_or(|named| named.removed) {
            return Submitted::NoSuchTask;
        }
        Submitted::Accepted { entry: self.put_rerun(at, instance, by, reason, which) }
    }

    /// Writes a rerun to an inbox without asking whether there may be one.
    ///
    /// # Panics
    ///
    /// Where there is no such instance.
    pub fn put_rerun(&mut self, at: u64, instance: InstanceId, by: &Arc<str>, reason: Option<Arc<str>>, which: Rerunning) -> InboxId {
        let row = &self.data.instances[&instance];
        let of = Rerun {
            instance,
            task: row.task,
            fire_time: row.fire_time,
            ordinal: row.ordinal,
            run: row.run,
            hops: row.links.as_ref().map_or(0, |links| links.hops),
            payload: row.payload.clone(),
            key: row.key.clone(),
            reason,
            shards: self.data.shards_again(row, &which),
            from: match which {
                Rerunning::From(from) => Some(Box::new(from)),
                Rerunning::Unsuccessful | Rerunning::All => None,
            },
        };
        let (partition, now, key) = (instance.partition(), self.clock(at), Some(rerun_key(instance)));
        let entry = InboxId(self.data.last_entry().0 + 1);
        let request = Request::Rerun { of: Box::new(of) };
        let write = Write::Submit { partition, by: by.clone(), key, request, at: now };
        self.write(at, write, Some(What::RerunSubmitted { entry, instance }));
        entry
    }

    /// Writes a trigger to an inbox without asking whether the task, whose name this is, was ever defined.
    pub fn put_trigger(&mut self, at: u64, name: &str, by: &Arc<str>, task: TaskId, submissions: Vec<Submission>) -> InboxId {
        let (partition, now) = (self.data.partition_of(name), self.clock(at));
        let entry = InboxId(self.data.last_entry().0 + 1);
        let what = What::Submitted { entry, task, submissions: submissions.len(), key: None };
        let request = trigger_request(task, submissions);
        self.write(at, Write::Submit { partition, by: by.clone(), key: None, request, at: now }, Some(what));
        entry
    }

    /// Writes what an owner would ask of another one, once more.
    pub fn put_notice(&mut self, at: u64, partition: PartitionId, by: &Arc<str>, notice: Notice) -> InboxId {
        let (now, notice) = (self.clock(at), self.data.addressed(&notice));
        let entry = InboxId(self.data.last_entry().0 + 1);
        let what = What::Noticed { entry, partition, notice: notice.clone() };
        self.write(at, Write::Submit { partition, by: by.clone(), key: None, request: Request::Notice(notice), at: now }, Some(what));
        entry
    }

    pub(crate) fn write(&mut self, at: u64, write: Write, what: Option<What>) {
        let index = self.recorder.len();
        self.data.apply(&write);
        if let Some(what) = what {
            self.record(at, what);
        }
        self.replicate(at, index, write);
    }

    fn replicate(&mut self, at: u64, index: usize, write: Write) {
        if let Some(replica) = &mut self.replica {
            replica.catch_up(at);
            replica.log.push_back((at, index, write));
        }
    }

    fn record(&self, at: u64, what: What) {
        self.recorder.record(at, self.clock(at), Who::Database, what);
    }
}

/// What an instance's rerun is remembered under; no key that a caller may use.
fn rerun_key(instance: InstanceId) -> Arc<str> {
    Arc::from(format!("\u{1}rerun:{instance}"))
}
