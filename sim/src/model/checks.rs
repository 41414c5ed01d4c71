//! What may not be written: a batch that is not as the database finds things, and the guards that say so.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::batch::Batch;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::instance::State;
use punctual_driver::ports::InstanceCursor;

use crate::model::data::Data;

/// A check of the store that safety rests on. Each can be switched off, to show that something fails without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreGuard {
    /// A batch is refused where a lease is not its replica's under its epoch.
    LeaseOnCommit,
    /// A batch is refused where the partition doesn't have exactly one commit less than the batch says.
    CommitsInOrder,
    /// A lease is not renewed where the partition has fewer commits than were confirmed.
    CommitsOnRenewal,
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
        StoreGuard::LeaseOnCommit,
        StoreGuard::CommitsInOrder,
        StoreGuard::CommitsOnRenewal,
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

impl Data {
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
            if !guards.check(StoreGuard::LeaseOnCommit, epoch == check.epoch && lease.owner.is_some()) {
                return Err(format!("partition {partition} is not held under epoch {} any more", check.epoch));
            }
            if !guards.check(StoreGuard::LeaseOnCommit, lease.owner.as_ref() == Some(&batch.replica)) {
                return Err(format!("partition {partition} is held by {}", lease.owner.clone().unwrap_or_default()));
            }
            if !guards.check(StoreGuard::CommitsInOrder, commits + 1 == check.commit_seq) {
                return Err(format!("partition {partition} has {commits} commits, not {}", i128::from(check.commit_seq) - 1));
            }
        }
        let covered: BTreeSet<_> = batch.leases.iter().map(|lease| lease.partition).collect();
        let instances = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row)).map(|row| row.id.partition());
        let tasks = batch.tasks.iter().map(|task| task.partition);
        let outputs = batch.outputs.iter().map(|output| output.instance.partition());
        let entries = batch.applied.iter().filter_map(|id| Some(self.inbox.get(id)?.partition));
        let messages = batch.messages.iter().map(|message| message.from);
        let slots = batch.slots.iter().map(|write| write.partition).chain(batch.backfills.iter().map(|write| write.row.partition));
        match instances
            .chain(tasks)
            .chain(outputs)
            .chain(messages)
            .chain(slots)
            .chain(entries)
            .find(|partition| !covered.contains(partition))
        {
            Some(partition) => Err(format!("something is of partition {partition}, whose lease is not among the batch's")),
            None => Ok(()),
        }
    }

    /// In the order in which a batch is written: first inserts, then updates, which find what was inserted.
    fn check_rows(&self, guards: &mut Guards, batch: &Batch) -> Result<(), String> {
        let mut written: BTreeMap<InstanceId, (State, Fence)> = BTreeMap::new();
        let mut fired = BTreeSet::new();
        for row in &batch.inserts {
            let cursor = InstanceCursor::of(row);
            let is_new_id = !self.instances.contains_key(&row.id) && written.insert(row.id, (row.state, row.fence)).is_none();
            let is_new = !self.is_fired(cursor) && fired.insert(cursor);
            if !is_new_id || !guards.check(StoreGuard::FiringsUnique, is_new) {
                return Err(format!("instance {} of task {} at {} is there already", row.id, row.task, row.fire_time));
            }
        }
        for update in &batch.updates {
            let (id, expected) = (update.row.id, (update.expected_state, update.expected_fence));
            let found = written.get(&id).copied().or_else(|| self.instances.get(&id).map(|row| (row.state, row.fence)));
            if found.is_none() || !guards.check(StoreGuard::StateAndFenceOnUpdate, found == Some(expected)) {
                let (state, fence) = (expected.0.name(), expected.1);
                return Err(format!("instance {id} is not {state} under fence {fence}: it is {found:?}"));
            }
            written.insert(id, (update.row.state, update.row.fence));
        }
        let mut applied = BTreeSet::new();
        for id in &batch.applied {
            if !guards.check(StoreGuard::EntryThereOnApply, self.inbox.contains_key(id) && applied.insert(*id)) {
                return Err(format!("inbox entry {id} was applied before"));
            }
        }
        Ok(())
    }

    fn is_fired(&self, cursor: InstanceCursor) -> bool {
        self.firings.range((cursor, InstanceId(0))..).next().is_some_and(|(found, _)| *found == cursor)
    }
}
