//! The store as plain maps: the specification of what a batch, a lease and the inbox do.
//!
//! Everything that a store promises is checked here where it is applied, so that no test has to look: transitions chain and are legal,
//! terminal is final, fences grow, a fire time has one instance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::batch::{Batch, InstanceUpdate, Snapshot, TaskRecord};
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::ids::{Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, partition_of};
use punctual_core::inbox::{InboxEntry, Request};
use punctual_core::instance::{InstanceRow, Origin, State};
use punctual_core::limits;
use punctual_core::occurrence::Occurrence;
use punctual_core::time::{Monotonic, Timestamp};

#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    pub(crate) owner: Option<ReplicaId>,
    pub(crate) epoch: Epoch,
    pub(crate) commit_seq: u64,
    pub(crate) sequence: u64,
    /// By the store's own clock, which nobody sets.
    pub(crate) expires_at: Monotonic,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredTask {
    pub(crate) partition: PartitionId,
    pub(crate) version: Version,
    pub(crate) next_fire: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct StoreModel {
    /// Fire times up to then were dealt with, also of tasks that were removed.
    watermarks: BTreeMap<TaskId, Timestamp>,
    pub(crate) leases: Vec<Lease>,
    replicas: BTreeMap<ReplicaId, Monotonic>,
    pub(crate) tasks: BTreeMap<TaskId, StoredTask>,
    pub(crate) definitions: BTreeMap<(TaskId, Version), Arc<TaskDefinition>>,
    pub(crate) instances: BTreeMap<InstanceId, InstanceRow>,
    live: BTreeSet<InstanceId>,
    in_progress: BTreeMap<TaskId, BTreeSet<InstanceId>>,
    unique: BTreeSet<(TaskId, Timestamp, u64, u32)>,
    pub(crate) inbox: BTreeMap<InboxId, InboxEntry>,
    last_entry: u64,
    pub(crate) occurrences: Vec<Occurrence>,
    pub(crate) outputs: BTreeMap<(InstanceId, u32), u64>,
    /// Batches that were carried out, newest last.
    pub(crate) commits: u64,
    pub(crate) names: BTreeMap<Arc<str>, (TaskId, Version)>,
    /// What no store would have let happen, or no owner should have asked for.
    pub(crate) violations: Vec<String>,
    /// The wall clock was set, so that fixed rates have taken it up.
    pub(crate) wall_was_set: bool,
}

impl StoreModel {
    pub(crate) fn new(partitions: u16) -> Self {
        StoreModel { leases: vec![Lease::default(); usize::from(partitions)], ..StoreModel::default() }
    }

    /// Those that have said that they are alive, and until when that counts.
    pub(crate) fn beat(&mut self, replica: &ReplicaId, now: Monotonic) -> Vec<ReplicaId> {
        self.replicas.insert(replica.clone(), now + limits::PARTITION_LEASE);
        self.replicas.retain(|_, until| *until > now);
        self.replicas.keys().cloned().collect()
    }

    pub(crate) fn leave(&mut self, replica: &ReplicaId) {
        self.replicas.remove(replica);
    }

    pub(crate) fn lease(&mut self, id: PartitionId) -> &mut Lease {
        &mut self.leases[usize::from(id.0)]
    }

    /// Takes a lease that is free, has run out, or is the asker's own.
    pub(crate) fn acquire(&mut self, replica: &ReplicaId, id: PartitionId, now: Monotonic) -> Option<(Epoch, u64, u64)> {
        let lease = self.lease(id);
        if lease.owner.as_ref().is_some_and(|owner| owner != replica) && lease.expires_at > now {
            return None;
        }
        lease.owner = Some(replica.clone());
        lease.epoch.0 += 1;
        lease.expires_at = now + limits::PARTITION_LEASE;
        Some((lease.epoch, lease.commit_seq, lease.sequence))
    }

    pub(crate) fn renew(&mut self, id: PartitionId, epoch: Epoch, now: Monotonic) -> bool {
        let lease = self.lease(id);
        let holds = lease.epoch == epoch && lease.owner.is_some();
        if holds {
            lease.expires_at = now + limits::PARTITION_LEASE;
        }
        holds
    }

    pub(crate) fn release(&mut self, id: PartitionId, epoch: Epoch) {
        let lease = self.lease(id);
        if lease.epoch == epoch {
            lease.owner = None;
        }
    }

    pub(crate) fn snapshot(&self, id: PartitionId) -> Snapshot {
        let tasks = self.tasks.iter().filter(|(_, task)| task.partition == id).map(|(task, stored)| TaskRecord {
            task: *task,
            version: stored.version,
            definition: self.definitions[&(*task, stored.version)].clone(),
            next_fire: stored.next_fire,
            fired_until: self.watermarks.get(task).copied(),
        });
        let live = self.live.iter().filter(|instance| instance.partition() == id).map(|instance| {
            let row = &self.instances[instance];
            (row.clone(), self.definitions[&(row.task, row.version)].clone())
        });
        Snapshot { tasks: tasks.collect(), instances: live.collect() }
    }

    pub(crate) fn read_inbox(&self, partitions: &[PartitionId], after: InboxId, limit: usize) -> (Vec<InboxEntry>, bool) {
        let mut entries: Vec<_> = self
            .inbox
            .range(InboxId(after.0 + 1)..)
            .filter(|(_, entry)| partitions.contains(&entry.partition))
            .map(|(_, entry)| entry.clone())
            .take(limit + 1)
            .collect();
        let more = entries.len() > limit;
        entries.truncate(limit);
        for entry in &mut entries {
            if let Request::DefinitionChanged { task, fired_until, .. } = &mut entry.request {
                *fired_until = self.watermarks.get(task).copied();
            }
        }
        (entries, more)
    }

    /// Writes a definition and says so in the inbox. A name keeps its id.
    pub(crate) fn define(&mut self, name: &str, definition: Option<TaskDefinition>, at: Timestamp) -> TaskId {
        let next = TaskId(self.names.len() as u64 + 1);
        let (task, version) = self.names.entry(Arc::from(name)).or_insert((next, Version(0)));
        version.0 += 1;
        let (task, version) = (*task, *version);
        let definition = definition.map(Arc::new);
        if let Some(definition) = &definition {
            self.definitions.insert((task, version), definition.clone());
        }
        self.submit(name, Request::DefinitionChanged { task, version, definition, fired_until: None }, at);
        task
    }

    pub(crate) fn submit(&mut self, name: &str, request: Request, at: Timestamp) -> InboxId {
        let partition = match &request {
            Request::Cancel { instance, .. } => instance.partition(),
            _ => partition_of(name, self.leases.len() as u16),
        };
        self.last_entry += 1;
        let id = InboxId(self.last_entry);
        self.inbox.insert(id, InboxEntry { id, partition, at, by: Arc::from("ops"), request });
        id
    }

    /// All or nothing.
    pub(crate) fn commit(&mut self, batch: &Batch) -> Result<(), String> {
        self.check_epochs(batch)?;
        // Whoever holds the lease knows what the store holds.
        self.check_rows(batch).inspect_err(|reason| self.violations.push(format!("an owner's commit was refused: {reason}")))?;
        self.commits += 1;
        self.judge_fire_times(batch);
        for check in &batch.leases {
            let lease = self.lease(check.partition);
            lease.commit_seq = check.commit_seq;
            lease.sequence = check.sequence;
        }
        for row in &batch.inserts {
            self.judge(None, row);
            self.unique.insert((row.task, row.fire_time, row.ordinal, row.run));
            self.put(row);
        }
        for update in &batch.updates {
            let before = self.instances[&update.row.id].clone();
            self.judge(Some(&before), &update.row);
            self.put(&update.row);
        }
        for write in &batch.tasks {
            if let Some(fired_until) = write.fired_until {
                self.watermarks.insert(write.task, fired_until);
            }
            match write.version {
                Some(version) => {
                    self.tasks.insert(write.task, StoredTask { partition: write.partition, version, next_fire: write.next_fire });
                }
                None => {
                    self.tasks.remove(&write.task);
                }
            }
        }
        for task in batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row)).map(|row| row.task).collect::<BTreeSet<_>>()
        {
            self.judge_limit(task);
        }
        for output in &batch.outputs {
            self.outputs.insert((output.instance, output.attempt), output.output.bytes.len() as u64);
        }
        self.occurrences.extend(batch.occurrences.iter().cloned());
        for id in &batch.applied {
            let entry = self.inbox.remove(id).expect("checked before");
            // `cancel.effective`: as long as its instance goes on, the request stays.
            if let Request::Cancel { instance, .. } = entry.request
                && self.instances.get(&instance).is_some_and(|row| !row.state.is_terminal())
            {
                self.violations.push(format!("instance {instance}: the request to cancel it is gone and it goes on"));
            }
        }
        Ok(())
    }

    fn check_epochs(&mut self, batch: &Batch) -> Result<(), String> {
        for check in &batch.leases {
            let lease = self.lease(check.partition);
            if lease.owner.as_ref() != Some(&batch.replica) {
                return Err(format!("partition {} is not {}'s", check.partition, batch.replica));
            }
            if lease.commit_seq + 1 != check.commit_seq {
                return Err(format!("partition {} has {} commits, not {}", check.partition, lease.commit_seq, check.commit_seq - 1));
            }
            if lease.epoch != check.epoch {
                return Err(format!("partition {} is under epoch {}, not {}", check.partition, lease.epoch, check.epoch));
            }
        }
        Ok(())
    }

    fn check_rows(&self, batch: &Batch) -> Result<(), String> {
        let mut fresh = BTreeSet::new();
        for row in &batch.inserts {
            let key = (row.task, row.fire_time, row.ordinal, row.run);
            if self.unique.contains(&key) || !fresh.insert(key) || self.instances.contains_key(&row.id) {
                return Err(format!("there is an instance of task {} for {}", row.task, row.fire_time));
            }
        }
        for InstanceUpdate { expected_state, expected_fence, row } in &batch.updates {
            let stored = self.instances.get(&row.id).map(|row| (row.state, row.fence));
            if stored != Some((*expected_state, *expected_fence)) {
                return Err(format!("instance {} is {stored:?}, not {expected_state:?} under {expected_fence}", row.id));
            }
        }
        for output in &batch.outputs {
            if self.outputs.contains_key(&(output.instance, output.attempt)) {
                return Err(format!("instance {} has an output of attempt {}", output.instance, output.attempt));
            }
        }
        for id in &batch.applied {
            if !self.inbox.contains_key(id) {
                return Err(format!("inbox entry {id} was applied before"));
            }
        }
        Ok(())
    }

    fn put(&mut self, row: &InstanceRow) {
        let of_task = self.in_progress.entry(row.task).or_default();
        match row.state.is_in_progress() {
            true => of_task.insert(row.id),
            false => of_task.remove(&row.id),
        };
        match row.state.is_terminal() {
            true => self.live.remove(&row.id),
            false => self.live.insert(row.id),
        };
        self.instances.insert(row.id, row.clone());
    }

    /// `fire.accounted`: where a cursor moves, all that it passes is in the same batch, each fire time once. For fixed rates.
    fn judge_fire_times(&mut self, batch: &Batch) {
        for write in &batch.tasks {
            let Some(stored) = self.tasks.get(&write.task).cloned() else { continue };
            if stored.next_fire == write.next_fire && Some(stored.version) == write.version {
                continue;
            }
            let fired = batch.inserts.iter().filter(|row| row.task == write.task && row.origin != Origin::Manual);
            let fired = fired.map(|row| (row.version, row.fire_time, row.fire_time, 1));
            let passed = batch.occurrences.iter().filter(|occurrence| occurrence.task == write.task);
            let passed = passed.map(|occurrence| (occurrence.version, occurrence.first, occurrence.last, occurrence.count));
            let mut runs: Vec<_> = fired.chain(passed).collect();
            runs.sort_unstable();
            let mut version = stored.version;
            let mut expected = stored.next_fire;
            for (of, first, last, count) in runs {
                let Trigger::FixedRate { interval } = self.definitions[&(write.task, of)].trigger else { continue };
                if of != version {
                    (version, expected) = (of, None);
                }
                let is_next = expected.is_none_or(|expected| first == expected || first > expected && self.wall_was_set);
                let is_counted = last == first.saturating_add(interval.saturating_mul(count - 1));
                if !is_next || !is_counted {
                    self.violations
                        .push(format!("task {}: {count} fire times {first}..{last} where {expected:?} was the next", write.task));
                }
                expected = Some(last.saturating_add(interval));
            }
            let is_rate = matches!(self.definitions[&(write.task, version)].trigger, Trigger::FixedRate { .. });
            if is_rate && write.version == Some(version) && expected.is_some() && expected != write.next_fire {
                self.violations.push(format!("task {}: the cursor went to {:?}, not to {expected:?}", write.task, write.next_fire));
            }
        }
    }

    /// `limit.held`: by the rows, for tasks whose limit is never edited downwards.
    fn judge_limit(&mut self, task: TaskId) {
        let of_task = &self.in_progress[&task];
        let limits = of_task.iter().map(|id| self.definitions[&(task, self.instances[id].version)].policies.concurrency.max_running);
        let current = self.names.values().find(|(id, _)| *id == task).and_then(|key| self.definitions.get(key));
        let limit = limits.chain(current.map(|definition| definition.policies.concurrency.max_running)).max().unwrap_or(0);
        if of_task.len() > limit as usize {
            self.violations.push(format!("task {task}: {} instances in progress, the limit is {limit}", of_task.len()));
        }
    }

    /// `state.legal`, `state.terminal_final`, `audit.unbroken`, `fence.monotone`, `retry.bounded`.
    fn judge(&mut self, before: Option<&InstanceRow>, row: &InstanceRow) {
        let mut bad = |what: String| self.violations.push(format!("instance {}: {what}", row.id));
        let known = before.map_or(&[][..], |before| &before.transitions);
        if !row.transitions.starts_with(known) {
            bad("the audit log was rewritten".into());
        }
        if before.is_some_and(|before| before.state.is_terminal()) {
            bad(format!("{:?} was not final", before.map(|before| before.state)));
        }
        let mut last = None;
        let mut fence = Fence(0);
        for transition in &row.transitions {
            if transition.from != last {
                bad(format!("{:?} -> {:?} comes after {last:?}", transition.from, transition.to));
            }
            if transition.from.is_some_and(|from| !from.may_become(transition.to)) {
                bad(format!("{:?} -> {:?} is not legal", transition.from, transition.to));
            }
            if transition.fence < fence {
                bad(format!("fence {} after {fence}", transition.fence));
            }
            if transition.to == State::Dispatched && transition.fence <= fence {
                bad(format!("attempt under fence {} after {fence}", transition.fence));
            }
            (last, fence) = (Some(transition.to), transition.fence);
        }
        if last != Some(row.state) || fence != row.fence {
            bad(format!("the row says {:?} under {}, its log {last:?} under {fence}", row.state, row.fence));
        }
        let definition = &self.definitions[&(row.task, row.version)];
        let most = definition.policies.retry.max_attempts.unwrap_or(1 + definition.policies.retry.max_losses).min(limits::ATTEMPTS_MAX);
        if row.attempt > most || row.failures + row.losses > most.max(definition.policies.retry.max_losses + 1) {
            self.violations.push(format!("instance {}: attempt {} of {most}", row.id, row.attempt));
        }
    }
}
