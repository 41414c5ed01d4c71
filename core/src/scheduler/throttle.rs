//! Rate limits: instances whose task has started as many as it may leave the ready queue, so that they stand in nobody's way, and come
//! back to their places when it may start more.
//!
//! What a task has started lately is known to its owner alone. An owner that takes a partition over doesn't know it, and goes on as if all
//! that is allowed had been started just then: the limit holds over a takeover too.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, PartitionId, TaskId};
use crate::probe;
use crate::rate::{RateLimit, StartLog};
use crate::ready_queue::Place;
use crate::scheduler::Scheduler;
use crate::time::{Millis, Monotonic};

/// What is known of the tasks that have a rate.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    tasks: FxHashMap<TaskId, Throttled>,
    sweep_at: Monotonic,
}

/// One task's.
#[derive(Debug)]
struct Throttled {
    partition: PartitionId,
    log: StartLog,
    /// Those that wait for the rate, by their places.
    waiting: BTreeSet<Place>,
    /// The one of those that has the timer; there is one while any waits.
    timer: Option<InstanceId>,
}

/// How often those that have started nothing lately are forgotten.
const SWEEP_INTERVAL: Millis = Millis::from_secs(60);

impl Throttle {
    /// How many instances wait.
    pub(super) fn count(&self) -> usize {
        self.tasks.values().map(|task| task.waiting.len()).sum()
    }

    /// Forgets what is known of a partition.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.tasks.retain(|_, task| task.partition != partition);
    }

    /// Forgets tasks that have started nothing for longer than any limit counts: whoever starts then may start as many as a new one.
    pub(super) fn sweep(&mut self, now: Monotonic) {
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP_INTERVAL;
            self.tasks.retain(|_, task| !task.waiting.is_empty() || !task.log.is_idle(now));
        }
    }

    fn of(&mut self, task: TaskId, partition: PartitionId) -> &mut Throttled {
        let new = || Throttled { partition, log: StartLog::default(), waiting: BTreeSet::new(), timer: None };
        self.tasks.entry(task).or_insert_with(new)
    }
}

impl Scheduler {
    /// The rate of a task, as it is now.
    pub(super) fn rate_of(&self, task: TaskId) -> Option<RateLimit> {
        self.tasks.get(&task)?.definition.policies.rate
    }

    /// A task was read from the store: nobody here knows what it has started.
    pub(super) fn take_over_rate(&mut self, task: TaskId) {
        if let Some(limit) = self.rate_of(task) {
            let (partition, now) = (self.tasks[&task].partition, self.now.monotonic);
            self.throttle.of(task, partition).log = StartLog::used_up(limit, now);
        }
    }

    /// Whether a task with this rate may start nothing now.
    pub(super) fn is_throttled(&mut self, task: TaskId, partition: PartitionId, limit: RateLimit) -> bool {
        let is_free = self.throttle.of(task, partition).log.free(limit, self.now.monotonic) > 0;
        !guard!(Guard::RateLimit, is_free)
    }

    /// An instance of a task with this rate starts.
    pub(super) fn note_start(&mut self, task: TaskId, partition: PartitionId, limit: RateLimit) {
        self.throttle.of(task, partition).log.note(limit, self.now.monotonic);
    }

    /// An instance that may not start now waits until its task may start more.
    pub(super) fn throttle(&mut self, id: InstanceId) {
        probe!("rate.throttled");
        let live = &self.instances[&id];
        let (task, place) = (live.row.task, live.place());
        self.throttle.of(task, id.partition()).waiting.insert(place);
        self.time_throttled(task, 0);
    }

    /// Puts an instance that has become ready with those of its task that wait for the rate, where there are some.
    pub(super) fn joins_throttled(&mut self, task: TaskId, id: InstanceId) -> bool {
        let Some(of_task) = self.throttle.tasks.get_mut(&task).filter(|task| !task.waiting.is_empty()) else { return false };
        of_task.waiting.insert(self.instances[&id].place())
    }

    /// An instance has ended; whether it was one of those that wait for the rate.
    pub(super) fn leaves_throttled(&mut self, id: InstanceId) -> bool {
        let live = &self.instances[&id];
        let Some(place) = live.ready_at.map(|_| live.place()) else { return false };
        let task = live.row.task;
        let Some(of_task) = self.throttle.tasks.get_mut(&task) else { return false };
        let was_there = of_task.waiting.remove(&place);
        if of_task.timer == Some(id) {
            of_task.timer = None;
            self.time_throttled(task, 0);
        }
        was_there
    }

    /// The timer of those that wait for the rate has come: as many as may start now are ready again.
    pub(super) fn rate_opens(&mut self, id: InstanceId) {
        let task = self.instances[&id].row.task;
        let limit = self.rate_of(task);
        let now = self.now.monotonic;
        let Some(of_task) = self.throttle.tasks.get_mut(&task) else { return };
        of_task.timer = None;
        let free = limit.map_or(u64::MAX, |limit| of_task.log.free(limit, now));
        let mut released = Vec::new();
        while (released.len() as u64) < free
            && let Some(place) = of_task.waiting.pop_first()
        {
            released.push(place.instance);
        }
        let count = released.len() as u64;
        released.into_iter().for_each(|id| self.push_ready(id));
        self.time_throttled(task, count);
    }

    /// The rate of a task was edited: all that wait for it are ready, and throttled again where they still have to be.
    pub(super) fn release_throttled(&mut self, task: TaskId) {
        let Some(of_task) = self.throttle.tasks.get_mut(&task) else { return };
        let waiting = std::mem::take(&mut of_task.waiting);
        if let Some(key) = of_task.timer.take().and_then(|id| self.instances.get_mut(&id)?.timer.take()) {
            self.instance_timers.cancel(key);
        }
        waiting.into_iter().for_each(|place| self.push_ready(place.instance));
    }

    /// Sets the timer of those that wait for the rate, unless there is one: to when one more may start than the `before` that are ready.
    fn time_throttled(&mut self, task: TaskId, before: u64) {
        let now = self.now.monotonic;
        let limit = self.rate_of(task);
        let Some(of_task) = self.throttle.tasks.get_mut(&task).filter(|task| task.timer.is_none()) else { return };
        let Some(first) = of_task.waiting.first().map(|place| place.instance) else { return };
        let opens_at = limit.map_or(now, |limit| of_task.log.opens_at(limit, now, before));
        of_task.timer = Some(first);
        self.arm_instance(first, opens_at.since(now));
    }
}
