//! Backfills: fire times of the past, made up for a few at a time.
//!
//! The owner keeps a row of each: how many instances it has made is written in the batch that makes them, so a new owner goes on behind the
//! last one. A backfill's instances wait in the queue of their task's limit whatever the task does with those beyond it: they are bounded by
//! the backfill itself.
//!
//! One that was cancelled is kept until what still ran has ended, so that its row says how many have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::backfill::{BackfillPlan, BackfillRow, BackfillState, InFlight, backfill_of, is_of};
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId};
use crate::inbox::InboxEntry;
use crate::instance::{Cause, Origin, Part};
use crate::probe;
use crate::scheduler::Scheduler;
use crate::scheduler::firing::Firing;
use crate::scheduler::requests::by_whom;

/// Those of this replica's partitions that run, or were cancelled with instances that still do.
#[derive(Debug, Default)]
pub(super) struct Backfills {
    running: BTreeMap<InboxId, Running>,
    /// Those that may make more instances as soon as there is room.
    to_go_on: BTreeSet<InboxId>,
}

#[derive(Debug)]
struct Running {
    row: BackfillRow,
    in_flight: InFlight,
}

impl Running {
    fn is_running(&self) -> bool {
        self.row.state == BackfillState::Running
    }
}

impl Backfills {
    /// The one of a task that makes instances.
    fn of_task(&self, task: TaskId) -> Option<InboxId> {
        self.running.iter().find(|(_, running)| running.is_running() && running.row.plan.task == task).map(|(id, _)| *id)
    }

    /// Forgets those of a partition.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.running.retain(|_, running| running.row.partition != partition);
        let running = &self.running;
        self.to_go_on.retain(|id| running.contains_key(id));
    }
}

impl Scheduler {
    /// Somebody wants fire times made up for. A task has one backfill at a time: whoever writes the entry sees to that.
    pub(super) fn backfill(&mut self, entry: &InboxEntry, plan: Arc<BackfillPlan>) {
        let task = plan.task;
        let is_refused = !self.tasks.contains_key(&task) || self.backfills.of_task(task).is_some();
        let state = if is_refused { BackfillState::Cancelled } else { BackfillState::Running };
        let (id, partition, at, by) = (entry.id, entry.partition, entry.at, entry.by.clone());
        let row = BackfillRow { id, partition, at, by, plan, state, made: 0, ended: 0 };
        self.lanes.pending(partition).put_backfill(row.clone(), true);
        if !is_refused {
            probe!("backfill.begun");
            self.backfills.running.insert(id, Running { row, in_flight: BTreeSet::new() });
            self.backfills.to_go_on.insert(id);
            self.backfills_go_on();
        }
    }

    /// Somebody wants no more of a backfill: what no worker has is cancelled, what runs may end.
    pub(super) fn cancel_backfill(&mut self, id: InboxId, by: &str, reason: Option<&str>) {
        self.end_backfill(id, Cause::CancelRequested, Some(by_whom(by, reason)));
    }

    /// A task was removed, and its backfill with it.
    pub(super) fn cancel_backfill_of(&mut self, task: TaskId) {
        if let Some(id) = self.backfills.of_task(task) {
            self.end_backfill(id, Cause::TaskRemoved, None);
        }
    }

    fn end_backfill(&mut self, id: InboxId, cause: Cause, detail: Option<Arc<str>>) {
        let Some(running) = self.backfills.running.get_mut(&id).filter(|running| running.is_running()) else { return };
        running.row.state = BackfillState::Cancelled;
        self.backfills.to_go_on.remove(&id);
        self.lanes.pending(running.row.partition).put_backfill(running.row.clone(), false);
        for instance in running.in_flight.clone() {
            if self.instances.get(&instance).is_some_and(|live| !live.row.is_with_worker() && !live.row.has_parts()) {
                self.cancel_instance(instance, cause, detail.clone());
            }
        }
        self.forget_backfill_that_is_over(id);
    }

    fn forget_backfill_that_is_over(&mut self, id: InboxId) {
        if self.backfills.running.get(&id).is_some_and(|running| !running.is_running() && running.in_flight.is_empty()) {
            self.backfills.running.remove(&id);
        }
    }

    /// What a snapshot has of them, and of the instances that they have made.
    pub(super) fn take_up_backfills(&mut self, partition: PartitionId, rows: Vec<BackfillRow>) {
        for row in rows {
            let of_partition = self.instances.iter().filter(|(id, _)| id.partition() == partition);
            let is_in_flight = |live: &crate::scheduler::Live| live.row.part == Part::WHOLE && is_of(&live.row, row.id);
            let in_flight: InFlight = of_partition.filter(|(_, live)| is_in_flight(live)).map(|(id, _)| *id).collect();
            let id = row.id;
            if row.state == BackfillState::Running {
                self.backfills.to_go_on.insert(id);
            }
            self.backfills.running.insert(id, Running { row: BackfillRow { partition, ..row }, in_flight });
            self.forget_backfill_that_is_over(id);
        }
    }

    /// An instance has ended: where it is a backfill's, the next one has its turn.
    pub(super) fn backfilled_one_ended(&mut self, id: InstanceId) {
        let row = &self.instances[&id].row;
        if row.origin != Origin::Backfill || row.part != Part::WHOLE {
            return;
        }
        let backfill = backfill_of(row);
        let Some(running) = self.backfills.running.get_mut(&backfill) else { return };
        if running.in_flight.remove(&id) {
            running.row.ended = running.row.made - running.in_flight.len() as u32;
            self.lanes.pending(id.partition()).put_backfill(running.row.clone(), false);
            if running.is_running() {
                self.backfills.to_go_on.insert(backfill);
            }
            self.forget_backfill_that_is_over(backfill);
        }
    }

    /// Makes as many instances as backfills may have, as far as there is room, and ends those that are done.
    pub(super) fn backfills_go_on(&mut self) {
        while let Some(id) = self.backfills.to_go_on.first().copied() {
            let Some(running) =
                self.backfills.running.get_mut(&id).filter(|running| self.partitions[usize::from(running.row.partition.0)].is_owned())
            else {
                // Its partition is to be handed over: the next owner goes on.
                self.backfills.to_go_on.remove(&id);
                continue;
            };
            let row = &running.row;
            let next = row.plan.fire_times.get(row.made as usize).copied();
            if next.is_none() || running.in_flight.len() >= row.plan.concurrency as usize {
                self.backfills.to_go_on.remove(&id);
                if next.is_none() && running.in_flight.is_empty() {
                    let Running { mut row, .. } = self.backfills.running.remove(&id).expect("just looked up");
                    row.state = BackfillState::Done;
                    self.lanes.pending(row.partition).put_backfill(row, false);
                }
                continue;
            }
            if !self.takes_new_work() {
                return;
            }
            self.make_backfilled(id, next.expect("looked at above"));
        }
    }

    fn make_backfilled(&mut self, id: InboxId, fire_time: crate::time::Timestamp) {
        let row = &self.backfills.running[&id].row;
        let (plan, ordinal, by) = (row.plan.clone(), row.ordinal(), by_whom(&row.by, row.plan.reason.as_deref()));
        let Some(task) = self.tasks.get(&plan.task) else {
            return self.cancel_backfill_of(plan.task);
        };
        let firing = Firing {
            task: plan.task,
            version: task.version,
            definition: task.definition.clone(),
            fire_time,
            ordinal,
            run: 1,
            part: Part::WHOLE,
            origin: Origin::Backfill,
            payload: None,
            key: None,
            links: None,
            detail: Some(by),
            carried: Vec::new(),
        };
        let instance = self.fire(firing);
        let Some(running) = self.backfills.running.get_mut(&id) else { return };
        running.row.made += 1;
        running.in_flight.extend(instance);
        self.lanes.pending(running.row.partition).put_backfill(running.row.clone(), false);
    }

    /// The backfills that run in this replica's partitions, by id.
    pub fn backfills(&self) -> Vec<BackfillRow> {
        self.backfills.running.values().filter(|running| running.is_running()).map(|running| running.row.clone()).collect()
    }
}
