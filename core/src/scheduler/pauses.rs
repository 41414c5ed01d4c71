//! Tasks that people have paused, and workers that they drain.
//!
//! A pause is in the store beside the tasks: it outlives edits, restarts and owners. An owner learns of it with the partition's snapshot,
//! and of what changes through the inbox; it is in effect with the batch that applies the entry.
//!
//! Nothing is looked for when a pause begins. A paused task is met where it would start something: its cursor comes, and it is *parked*; one of
//! its instances has its turn, and is *held*. So the end of a pause looks at what it has met, and at nothing else. A pause is no downtime:
//! fire times that came meanwhile are passed by, on record, whatever the misfire policy says.
//!
//! A drained worker is like one that says that it drains, by whatever owner: what it runs it may end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, PartitionId, TaskId, WorkerId};
use crate::instance::State;
use crate::misfire::{self, Run};
use crate::occurrence::Outcome;
use crate::pause::PauseScope;
use crate::probe;
use crate::scheduler::{Scheduler, Task};
use crate::time::Timestamp;

/// The pauses of this replica's partitions. Those where nothing is paused have none.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<PartitionId, Paused>);

/// A partition's.
#[derive(Debug, Default)]
struct Paused {
    all: bool,
    groups: BTreeSet<Arc<str>>,
    tasks: BTreeSet<TaskId>,
    workers: BTreeSet<WorkerId>,
    /// Paused tasks whose cursor has come.
    parked: BTreeSet<TaskId>,
    /// Their instances whose turn has come.
    held: BTreeSet<InstanceId>,
}

impl Paused {
    fn holds(&self, id: TaskId, task: &Task) -> bool {
        self.all || self.tasks.contains(&id) || task.definition.group.as_ref().is_some_and(|group| self.groups.contains(group))
    }

    fn set(&mut self, scope: PauseScope, is_paused: bool) {
        match (scope, is_paused) {
            (PauseScope::All, is_paused) => self.all = is_paused,
            (PauseScope::Group(group), true) => _ = self.groups.insert(group),
            (PauseScope::Group(group), false) => _ = self.groups.remove(&group),
            (PauseScope::Task(task), true) => _ = self.tasks.insert(task),
            (PauseScope::Task(task), false) => _ = self.tasks.remove(&task),
            (PauseScope::Worker(worker), true) => _ = self.workers.insert(worker),
            (PauseScope::Worker(worker), false) => _ = self.workers.remove(&worker),
        }
    }

    fn is_over(&self) -> bool {
        let Paused { all, groups, tasks, workers, parked, held } = self;
        !all && groups.is_empty() && tasks.is_empty() && workers.is_empty() && parked.is_empty() && held.is_empty()
    }
}

impl Pauses {
    /// Whether a worker is drained, as far as any partition has it.
    pub(super) fn drain(&self, worker: &WorkerId) -> bool {
        let is_drained = self.0.values().any(|paused| paused.workers.contains(worker));
        !guard!(Guard::DrainHolds, !is_drained)
    }

    /// Whether a task's cursor came while it was paused; from here on it is like any other.
    pub(super) fn unpark(&mut self, partition: PartitionId, task: TaskId) -> bool {
        self.0.get_mut(&partition).is_some_and(|paused| paused.parked.remove(&task))
    }

    /// An instance that waits for a worker has ended; whether it was held.
    pub(super) fn let_go(&mut self, instance: InstanceId) -> bool {
        self.0.get_mut(&instance.partition()).is_some_and(|paused| paused.held.remove(&instance))
    }
}

impl Scheduler {
    /// The pauses that hold tasks of a partition, as its snapshot has them.
    pub(super) fn take_up_pauses(&mut self, partition: PartitionId, scopes: Vec<PauseScope>) {
        if scopes.is_empty() {
            return;
        }
        probe!("pause.taken_over");
        let paused = self.pauses.0.entry(partition).or_default();
        scopes.into_iter().for_each(|scope| paused.set(scope, true));
        self.drain_workers();
    }

    /// Forgets what is paused of a partition.
    pub(super) fn forget_pauses(&mut self, partition: PartitionId) {
        self.pauses.0.remove(&partition);
        self.drain_workers();
    }

    /// Has each worker drained that somebody drains, and no other.
    fn drain_workers(&mut self) {
        for worker in &mut self.workers.list {
            let is_drained = self.pauses.drain(&worker.id);
            if worker.is_drained != is_drained {
                probe!("pause.drained");
                worker.is_drained = is_drained;
                self.workers.generation += 1;
            }
        }
    }

    /// Somebody has made a pause or lifted one, at `at`.
    pub(super) fn pause_changed(&mut self, partition: PartitionId, scope: PauseScope, is_paused: bool, at: Timestamp) {
        let is_of_worker = matches!(scope, PauseScope::Worker(_));
        self.pauses.0.entry(partition).or_default().set(scope, is_paused);
        if !is_paused {
            self.release_paused(partition, at);
        }
        if is_of_worker {
            self.drain_workers();
        }
    }

    /// Whether a task is paused.
    fn is_paused(&self, id: TaskId) -> bool {
        if self.pauses.0.is_empty() {
            return false;
        }
        let Some(task) = self.tasks.get(&id) else { return false };
        let is_paused = self.pauses.0.get(&task.partition).is_some_and(|paused| paused.holds(id, task));
        !guard!(Guard::PauseHolds, !is_paused)
    }

    /// A task's cursor has come. True where it is paused: then the cursor stands until the pause is over.
    pub(super) fn is_parked(&mut self, id: TaskId) -> bool {
        if !self.is_paused(id) {
            return false;
        }
        probe!("pause.parked");
        let task = self.tasks.get_mut(&id).expect("a paused task is known");
        task.timer = None;
        self.pauses.0.entry(task.partition).or_default().parked.insert(id);
        true
    }

    /// Whether an instance that was taken from the ready queue has to wait for the end of a pause. Then it is kept here.
    pub(super) fn is_held_by_pause(&mut self, id: InstanceId) -> bool {
        if !self.is_paused(self.instances[&id].row.task) {
            return false;
        }
        probe!("pause.held");
        self.pauses.0.entry(id.partition()).or_default().held.insert(id);
        true
    }

    /// A pause is over, or no longer holds what it held: whatever is not paused any more goes on. Fire times up to `at` are passed by.
    pub(super) fn release_paused(&mut self, partition: PartitionId, at: Timestamp) {
        let Some(paused) = self.pauses.0.get_mut(&partition) else { return };
        let (parked, held) = (std::mem::take(&mut paused.parked), std::mem::take(&mut paused.held));
        let (parked, go_on): (BTreeSet<_>, BTreeSet<_>) = parked.into_iter().partition(|task| self.is_paused(*task));
        let is_held = |id: &InstanceId| self.instances.get(id).is_some_and(|live| self.is_paused(live.row.task));
        let (held, ready): (BTreeSet<_>, BTreeSet<_>) = held.into_iter().partition(is_held);
        let paused = self.pauses.0.get_mut(&partition).expect("looked up above");
        (paused.parked, paused.held) = (parked, held);
        if paused.is_over() {
            self.pauses.0.remove(&partition);
        }
        go_on.into_iter().for_each(|task| self.pass_by_paused(task, at));
        for id in ready {
            if self.instances.get(&id).is_some_and(|live| live.row.state == State::Created) {
                self.make_ready(id);
            }
        }
    }

    /// A task is not paused any more: its fire times up to `at` are passed by, and its cursor goes on behind them.
    fn pass_by_paused(&mut self, id: TaskId, at: Timestamp) {
        let Some(task) = self.tasks.get(&id) else { return };
        let Some(cursor) = task.next_fire else { return };
        if cursor <= at {
            let (trigger, version) = (task.definition.trigger.clone(), task.version);
            self.disarm_task(id);
            let runs = misfire::passed_by(&trigger, cursor, at, Outcome::Paused);
            let last = runs.iter().map(|run| run.last).max();
            let next_fire = misfire::behind(&trigger, cursor, at);
            let task = self.tasks.get_mut(&id).expect("looked up above");
            task.next_fire = next_fire;
            task.fired_until = last.map_or(task.fired_until, |last| task.fired_until.max(last));
            self.mark_task(id);
            runs.into_iter().for_each(|run| self.record_run(id, version, run, None));
            // A fixed delay has no end of an instance to count from: it counts from here.
            self.rearm_fixed_delay(id);
        }
        if self.tasks[&id].timer.is_none() {
            self.arm_task(id);
        }
    }

    /// Fire times of a task that had come by an edit or a removal at `until`, with nobody there to fire them: those of a paused one were passed
    /// by.
    pub(super) fn given_up(&self, id: TaskId, was_parked: bool, cursor: Timestamp, until: Timestamp) -> Vec<Run> {
        let outcome = if was_parked { Outcome::Paused } else { Outcome::Withdrawn };
        misfire::passed_by(&self.tasks[&id].definition.trigger, cursor, until, outcome)
    }
}
