//! Fire times: timers, firing, and the way of a new instance to the ready queue.

use std::sync::Arc;

use crate::concurrency::{Admission, admit};
use crate::cron::Series;
use crate::definition::{Blocking, ConcurrencyPolicy, MisfireAction, TaskDefinition, Trigger};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{Fence, InstanceId, TaskId, Version};
use crate::instance::{Cause, InstanceRow, Links, Origin, Part, State};
use crate::limit_key::LimitKey;
use crate::limits;
use crate::misfire;
use crate::occurrence::{Occurrence, Outcome};
use crate::probe;
use crate::rate::RateLimit;
use crate::scheduler::nodes::NodeEnd;
use crate::scheduler::places::{self, TaskInstances};
use crate::scheduler::{Armed, Live, STEP_MIN, Scheduler, Sent, monotonic_tick, wall_tick};
use crate::time::{Millis, Timestamp};

/// A new instance, before it is admitted.
pub(super) struct Firing {
    pub(super) task: TaskId,
    pub(super) version: Version,
    pub(super) definition: Arc<TaskDefinition>,
    pub(super) fire_time: Timestamp,
    pub(super) ordinal: u64,
    pub(super) run: u32,
    pub(super) part: Part,
    pub(super) origin: Origin,
    pub(super) payload: Option<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
    pub(super) links: Option<Box<Links>>,
    /// Who asked for it.
    pub(super) detail: Option<Arc<str>>,
    /// Nodes that are not run again.
    pub(super) carried: Vec<NodeEnd>,
}

impl Scheduler {
    /// Fires all cursors that have come, as far as there is room.
    pub(super) fn fire_due(&mut self) {
        let (wall, monotonic) = (wall_tick(self.now.wall), monotonic_tick(self.now.monotonic));
        while self.takes_new_work() {
            let due = self.loop_timers.pop_due(monotonic).or_else(|| self.cron_timers.pop_due(wall));
            let Some((_, task)) = due else { break };
            self.cursor_came(task);
        }
        let is_due = |next: Option<u64>, now: u64| next.is_some_and(|deadline| deadline <= now);
        // For want of room to write, that is: a full memory empties by what ends.
        let is_memory_full = self.instances.len() >= limits::LIVE_INSTANCES_MAX;
        self.fires_wait = self.phase == super::Phase::Working
            && !is_memory_full
            && (is_due(self.loop_timers.next_deadline(), monotonic) || is_due(self.cron_timers.next_deadline(), wall));
    }

    /// Lets delayed and retrying instances go on. They are in memory already, so a full memory is no reason to wait: they empty it.
    pub(super) fn instances_due(&mut self) {
        let monotonic = monotonic_tick(self.now.monotonic);
        while self.has_room_to_write()
            && let Some((_, instance)) = self.instance_timers.pop_due(monotonic)
        {
            self.instance_due(instance);
        }
    }

    /// Arms the timer of a task's cursor. A loop's is measured on the monotonic clock, from what the wall clock says now.
    pub(super) fn arm_task(&mut self, id: TaskId) {
        let (wall, monotonic) = (self.wall_read, self.now.monotonic);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(next_fire) = task.next_fire else { return };
        assert!(task.timer.is_none(), "task {id} would have two timers");
        let trigger = &task.definition.trigger;
        let due_at = misfire::due_at(trigger, id, next_fire);
        if trigger.goes_by_wall_clock(next_fire) {
            task.timer = Some(Armed::Cron(self.cron_timers.insert(wall_tick(due_at), id)));
            return;
        }
        let longest = longest_wait(trigger).saturating_add(due_at.since(next_fire));
        let mut wait = due_at.since(wall);
        if wait.0 >= longest.0.saturating_add(STEP_MIN.0) {
            // The wall clock was set back since the cursor was written. The loop keeps its pace.
            wait = longest;
        }
        let deadline = monotonic_tick(monotonic + wait).saturating_sub(wall.since(due_at).0);
        task.timer = Some(Armed::Loop(self.loop_timers.insert(deadline, id), deadline));
    }

    pub(super) fn disarm_task(&mut self, id: TaskId) {
        match self.tasks.get_mut(&id).and_then(|task| task.timer.take()) {
            Some(Armed::Cron(key)) => self.cron_timers.cancel(key),
            Some(Armed::Loop(key, _)) => self.loop_timers.cancel(key),
            None => false,
        };
    }

    /// Arms a task that was read from the store, unless an inbox entry has done so.
    pub(super) fn arm_loaded_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        if task.timer.is_some() {
            return;
        }
        if task.next_fire.is_none() && !self.has_scheduled_instance(id) {
            self.rearm_fixed_delay(id);
        } else {
            self.arm_task(id);
        }
    }

    /// Whether an instance that the task fired by itself has not ended.
    pub(super) fn has_scheduled_instance(&self, id: TaskId) -> bool {
        let of_task = self.tasks.get(&id).and_then(|task| task.instances.as_ref());
        of_task.is_some_and(|of| of.in_progress().chain(of.waiting()).any(|id| self.instances[&id].row.origin.is_own()))
    }

    /// After the wall clock was set back: its wheel can't go back, so it is made anew.
    pub(super) fn rebuild_cron_timers(&mut self) {
        self.cron_timers = crate::wheel::Wheel::new(wall_tick(self.now.wall));
        let mut cron: Vec<_> =
            self.tasks.iter().filter(|(_, task)| matches!(task.timer, Some(Armed::Cron(_)))).map(|(id, _)| *id).collect();
        cron.sort_unstable();
        for id in cron {
            let now = self.now.wall;
            let task = self.tasks.get_mut(&id).expect("just listed");
            task.timer = None;
            if guard!(Guard::StepBackMovesNoCursor, false) {
                task.next_fire = misfire::first(&task.definition.trigger, now);
            }
            self.arm_task(id);
        }
    }

    /// A task's cursor has come.
    fn cursor_came(&mut self, id: TaskId) {
        let monotonic = monotonic_tick(self.now.monotonic);
        // One that is to be handed over fires nothing any more; its next owner does.
        if !self.tasks.get(&id).is_some_and(|task| self.is_owned(task.partition)) {
            return;
        }
        if self.is_parked(id) {
            return;
        }
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let late = match task.timer.take() {
            Some(Armed::Loop(_, deadline)) => Millis(monotonic.saturating_sub(deadline)),
            _ => Millis::ZERO,
        };
        let Some(mut cursor) = task.next_fire else { return };
        let definition = task.definition.clone();
        let mut now = self.now.wall;
        if !definition.trigger.goes_by_wall_clock(cursor) {
            // A loop goes by the time that has passed, whatever was done to the wall clock. Its fire times follow a clock that was set
            // ahead; they can't follow one that was set back, since fire times never repeat.
            let jitter = misfire::due_at(&definition.trigger, id, cursor).since(cursor);
            if now.since(cursor.saturating_add(jitter).saturating_add(late)) >= STEP_MIN {
                cursor = now.saturating_sub(late).saturating_sub(jitter);
            }
            now = cursor.saturating_add(jitter).saturating_add(late);
        }
        // Both wheels hand out what is due, never what is to come.
        assert!(cursor <= now, "task {id}: {cursor} has not come at {now}");
        let version = task.version;
        let plan = misfire::plan(&definition.trigger, id, cursor, now, self.config.misfire_threshold, definition.policies.misfire);
        task.next_fire = plan.next;
        let last_dropped = plan.dropped.iter().chain(&plan.left_out).map(|run| run.last).max();
        for last in plan.on_time.last().or(plan.caught_up.last()).copied().into_iter().chain(last_dropped) {
            task.fired_until = task.fired_until.max(last);
        }
        if !guard!(Guard::CursorMovesWithFiring, false) {
            self.mark_task(id);
        }
        let is_all_dropped = plan.caught_up.is_empty() && plan.on_time.is_empty();
        let mut made_up_by = None;
        let spacing = definition.policies.misfire.rate.filter(|_| plan.caught_up.len() > 1);
        let mut caught_up_count = 0;
        let caught_up = plan.caught_up.into_iter().map(|fire_time| (fire_time, Origin::CatchUp));
        for (fire_time, origin) in caught_up.chain(plan.on_time.into_iter().map(|fire_time| (fire_time, Origin::Schedule))) {
            if origin == Origin::CatchUp {
                probe!("misfire.fired_late");
            }
            let definition = definition.clone();
            let firing = Firing {
                task: id,
                version,
                definition,
                fire_time,
                ordinal: 0,
                run: 1,
                part: Part::WHOLE,
                origin,
                payload: None,
                key: None,
                links: None,
                detail: None,
                carried: Vec::new(),
            };
            if origin == Origin::CatchUp
                && let Some(RateLimit { starts, per }) = spacing
            {
                // So many now, the next ones when that much time has passed: each waits for its own, in the store too.
                let wait = per.saturating_mul(caught_up_count / u64::from(starts.max(1)));
                caught_up_count += 1;
                if wait > Millis::ZERO {
                    self.fire_later(firing, wait);
                    continue;
                }
            }
            let instance = self.fire(firing);
            made_up_by = made_up_by.or(instance.filter(|_| origin == Origin::CatchUp));
        }
        for run in plan.dropped {
            let instance = made_up_by.filter(|_| run.outcome == Outcome::Coalesced);
            match run.outcome {
                Outcome::Coalesced => probe!("misfire.coalesced"),
                _ => probe!("misfire.skipped"),
            }
            self.record_run(id, version, run, instance);
        }
        for run in plan.left_out {
            probe!("timetable.left_out");
            self.record_run(id, version, run, None);
        }
        if is_all_dropped {
            // A fixed delay has no end of an instance to count from: it counts from here.
            self.rearm_fixed_delay(id);
        }
        // A fixed delay whose firing was dropped or discarded has its next one already.
        if self.tasks[&id].timer.is_none() {
            self.arm_task(id);
        }
    }

    /// Makes an instance that waits for a time before it is admitted.
    pub(super) fn fire_later(&mut self, firing: Firing, wait: Millis) -> InstanceId {
        let (task, ordinal, cause) = (firing.task, firing.ordinal, cause_of(firing.origin));
        let id = self.insert(firing, State::Waiting, cause);
        let due_at = self.now.wall.saturating_add(wait);
        self.instances.get_mut(&id).expect("just inserted").row.due_at = Some(due_at);
        if let Some(task) = self.tasks.get_mut(&task) {
            task.instances.get_or_insert_default().delay(ordinal, id);
        }
        self.arm_instance(id, wait);
        id
    }

    /// Makes an instance, or puts on record why not.
    pub(super) fn fire(&mut self, firing: Firing) -> Option<InstanceId> {
        let task = self.tasks.get(&firing.task)?;
        let key = task
            .definition
            .policies
            .limit_key
            .as_deref()
            .map(|pointer| LimitKey::of(pointer, firing.payload.as_deref().or(firing.definition.payload.as_deref())));
        let of_task = task.instances.as_deref();
        let of_key = of_task.and_then(|of| of.of(key));
        let (in_progress, waiting) = of_key.map_or((0, 0), |of| (of.in_progress.len(), of.waiting.len()));
        let are_keys_full = key.is_some() && of_task.is_some_and(TaskInstances::keys_are_full);
        let mut policy = firing.definition.policies.concurrency;
        if firing.origin == Origin::CatchUp {
            make_room_for_catch_up(&mut policy, &firing.definition);
        }
        if firing.origin == Origin::Rerun {
            make_room_for_rerun(&mut policy);
        }
        if firing.origin == Origin::Backfill {
            // Bounded by itself: it displaces nobody and is not discarded.
            policy.blocking = Blocking::Queue { max_queue: u32::MAX };
        }
        match admit(policy, in_progress, waiting) {
            Admission::Start => {
                let cause = cause_of(firing.origin);
                let id = self.insert(firing, State::Created, cause);
                self.enter_progress(id);
                Some(id)
            }
            Admission::Wait if are_keys_full && !matches!(firing.origin, Origin::Rerun | Origin::Backfill) => {
                self.discard(firing, Outcome::QueueFull)
            }
            Admission::Wait => {
                probe!("limit.queued");
                let id = self.insert_waiting(firing);
                self.enter_queue(id);
                Some(id)
            }
            Admission::Replace => {
                probe!("limit.replaced");
                let task = firing.task;
                self.cancel_waiting(task, Some(key), Cause::Replaced, |_| true);
                let oldest = self.oldest_in_progress(task, key);
                let id = self.insert_waiting(firing);
                self.enter_queue(id);
                if let Some(oldest) = oldest {
                    self.cancel_instance(oldest, Cause::Replaced, None);
                }
                Some(id)
            }
            Admission::Discard => self.discard(firing, Outcome::LimitReached),
            Admission::QueueFull => self.discard(firing, Outcome::QueueFull),
        }
    }

    /// Makes an instance that waits for a place of its task's limit, and says for which key.
    fn insert_waiting(&mut self, mut firing: Firing) -> InstanceId {
        firing.detail = places::with_key(firing.detail.take(), &firing.definition, firing.payload.as_deref());
        self.insert(firing, State::Waiting, Cause::LimitReached)
    }

    pub(super) fn oldest_in_progress(&self, task: TaskId, key: Option<LimitKey>) -> Option<InstanceId> {
        self.tasks.get(&task)?.instances.as_ref()?.of(key)?.in_progress.first().copied()
    }

    /// A scheduled firing that is discarded is an occurrence. One that was asked for gets an instance all the same, so that whoever asked can
    /// see what became of it.
    fn discard(&mut self, firing: Firing, outcome: Outcome) -> Option<InstanceId> {
        probe!("limit.discarded");
        if !firing.origin.is_own() {
            let now = self.now.wall;
            let cause = cause_of(firing.origin);
            let id = self.insert(firing, State::Waiting, cause);
            let live = self.instances.get_mut(&id).expect("just inserted");
            live.change(State::Skipped, Cause::LimitReached, now).detail = Some(Arc::from(match outcome {
                Outcome::QueueFull => "the task's queue is full",
                _ => "the task is at its limit of running instances",
            }));
            self.end_fixed_delay(id);
            self.tell_caller(id);
            return Some(id);
        }
        let Firing { task, version, fire_time, .. } = firing;
        self.record_run(task, version, misfire::Run { first: fire_time, last: fire_time, count: 1, outcome }, None);
        self.rearm_fixed_delay(task);
        None
    }

    /// Makes the row and the memory of a new instance.
    pub(super) fn insert(&mut self, firing: Firing, state: State, cause: Cause) -> InstanceId {
        // The task may be gone by the time that the last of its runs makes a part.
        let whole = firing.links.as_ref().and_then(|links| links.parent);
        let partition = whole.map_or_else(|| self.tasks[&firing.task].partition, InstanceId::partition);
        let id = self.new_instance_id(partition);
        let Firing { task, version, definition, fire_time, ordinal, run, part, origin, payload, key, links, detail, carried } = firing;
        if !carried.is_empty() {
            self.carry_over(id, carried);
        }
        let row = InstanceRow {
            id,
            task,
            version,
            fire_time,
            ordinal,
            run,
            part,
            origin,
            state,
            fence: Fence(0),
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: None,
            due_at: None,
            payload,
            key,
            links,
            result: None,
            transitions: Vec::with_capacity(5),
        };
        // Parts count with what they are parts of.
        let of_task = self.tasks.get(&task).filter(|_| part == Part::WHOLE);
        let limit_key = of_task.and_then(|task| places::key_of(&task.definition, &row, &definition));
        let mut live = Live {
            row,
            limit_key,
            definition,
            stored: None,
            is_dirty: false,
            timer: None,
            ready_at: None,
            sent: Sent::NotYet,
            cancel: None,
            stray: None,
            cancel_requests: Vec::new(),
        };
        live.change(state, cause, self.now.wall).detail = detail;
        let has_links = live.row.links.is_some();
        self.instances.insert(id, live);
        self.mark_instance(id);
        if has_links {
            self.take_up_call(id);
        }
        id
    }

    /// A created instance takes a place of its task's limit and waits for a worker.
    pub(super) fn enter_progress(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        if let Some(task) = self.tasks.get_mut(&live.row.task) {
            task.instances.get_or_insert_default().begin(live.limit_key, id);
        }
        if !self.asks_for_slot(id) {
            self.begin(id);
        }
    }

    /// Whatever it had to wait for, it has: it waits for a worker, or its shards do.
    pub(super) fn begin(&mut self, id: InstanceId) {
        if !self.map_if_due(id) && !self.divide_if_due(id) {
            self.make_ready(id);
        }
    }

    fn enter_queue(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        if let Some(task) = self.tasks.get_mut(&live.row.task) {
            task.instances.get_or_insert_default().wait(live.limit_key, id);
        }
    }

    /// An instance's timer: a retry, a delayed trigger, or its task's rate.
    pub(super) fn arm_instance(&mut self, id: InstanceId, due_in: Millis) {
        let key = self.instance_timers.insert(monotonic_tick(self.now.monotonic + due_in), id);
        self.instances.get_mut(&id).expect("armed instances are live").timer = Some(key);
    }

    fn instance_due(&mut self, id: InstanceId) {
        if !self.is_owned(id.partition()) {
            return;
        }
        let now = self.now.wall;
        let Some(live) = self.instances.get_mut(&id) else { return };
        live.timer = None;
        live.row.due_at = None;
        match live.row.state {
            State::Retrying => {
                live.change(State::Created, Cause::BackoffElapsed, now);
                self.make_ready(id);
                self.mark_instance(id);
            }
            State::Waiting => self.delay_elapsed(id),
            State::Created => self.rate_opens(id),
            state => unreachable!("instance {id} is {state:?} and has a timer"),
        }
    }

    /// A delayed trigger's time has come: from here on it is like any other manual one.
    fn delay_elapsed(&mut self, id: InstanceId) {
        let now = self.now.wall;
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        let (mut policy, key) = (live.definition.policies.concurrency, live.limit_key);
        if live.row.origin == Origin::CatchUp {
            make_room_for_catch_up(&mut policy, &live.definition);
        }
        let (task, ordinal) = (live.row.task, live.row.ordinal);
        let of_task = self.tasks.get(&task).and_then(|task| task.instances.as_ref());
        let of_key = of_task.and_then(|of| of.of(key));
        let (in_progress, waiting) = of_key.map_or((0, 0), |of| (of.in_progress.len(), of.waiting.len()));
        let mut admission = admit(policy, in_progress, waiting);
        if admission == Admission::Wait && key.is_some() && of_task.is_some_and(|of| of.keys_are_full()) {
            admission = Admission::QueueFull;
        }
        let oldest = of_key.and_then(|of| of.in_progress.first().copied());
        if let Some(of_task) = self.tasks.get_mut(&task).and_then(|task| task.instances.as_mut()) {
            of_task.delay_is_over(ordinal, id);
        }
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        match admission {
            Admission::Start => {
                live.change(State::Created, Cause::DelayElapsed, now);
                self.enter_progress(id);
            }
            Admission::Wait => self.enter_queue(id),
            Admission::Replace => {
                self.cancel_waiting(task, Some(key), Cause::Replaced, |_| true);
                self.enter_queue(id);
                if let Some(oldest) = oldest {
                    self.cancel_instance(oldest, Cause::Replaced, None);
                }
            }
            Admission::Discard | Admission::QueueFull => {
                live.change(State::Skipped, Cause::LimitReached, now);
                self.tell_caller(id);
            }
        }
        self.mark_instance(id);
    }

    /// An instance has ended or is about to wait no more: its place goes to the next one, and a fixed delay begins to run.
    pub(super) fn leave_progress(&mut self, id: InstanceId) {
        let Some(live) = self.instances.get(&id) else { return };
        if let Some(whole) = live.row.parent() {
            return self.part_ended(whole, id);
        }
        let (task_id, key) = (live.row.task, live.limit_key);
        let Some(task) = self.tasks.get_mut(&task_id) else {
            return self.forget_left_behind(task_id, id);
        };
        if let Some(instances) = &mut task.instances {
            instances.leave(key, id);
        }
        self.fill_free_places(task_id, key);
        self.end_fixed_delay(id);
    }

    /// Starts those that wait behind a task's limits, whatever their keys.
    pub(super) fn fill_all_free_places(&mut self, task: TaskId) {
        let of_task = self.tasks.get(&task).and_then(|task| task.instances.as_ref());
        for key in of_task.map(|of| of.keys_waited_for()).unwrap_or_default() {
            self.fill_free_places(task, key);
        }
        self.fill_free_places(task, None);
    }

    /// Starts those that wait behind the limit, as far as it allows.
    pub(super) fn fill_free_places(&mut self, task_id: TaskId, key: Option<LimitKey>) {
        let now = self.now.wall;
        while let Some(task) = self.tasks.get_mut(&task_id) {
            let limit = task.definition.policies.concurrency.max_running as usize;
            let Some(instances) = &mut task.instances else { return };
            let Some(next) = instances.next(key, limit) else {
                instances.tidy(key);
                if instances.is_empty() {
                    task.instances = None;
                }
                return;
            };
            let live = self.instances.get_mut(&next).expect("waiting instances are live");
            live.change(State::Created, Cause::SlotFree, now);
            self.mark_instance(next);
            self.enter_progress(next);
        }
    }

    /// The next fire time of a fixed delay counts from the end of its scheduled instance.
    pub(super) fn end_fixed_delay(&mut self, id: InstanceId) {
        let Some(live) = self.instances.get(&id) else { return };
        let task = live.row.task;
        // After an edit of the trigger there may be several; the last one counts.
        if live.row.origin.is_own() && !self.has_scheduled_instance(task) {
            self.rearm_fixed_delay(task);
        }
    }

    pub(super) fn rearm_fixed_delay(&mut self, id: TaskId) {
        let now = self.now.wall;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Some(interval) = task.definition.trigger.fixed_delay()
            && task.definition.enabled
            && task.next_fire.is_none()
        {
            let due = now.saturating_add(interval).max(task.fired_until.saturating_add(Millis(1)));
            task.next_fire = misfire::next_delayed(&task.definition.trigger, due);
            self.mark_task(id);
            self.arm_task(id);
        }
    }

    /// Puts on record that a task did not fire for what happened at `at`.
    pub(super) fn record_not_fired(&mut self, id: TaskId, at: Timestamp, outcome: Outcome) {
        let version = self.tasks[&id].version;
        self.record_run(id, version, misfire::Run { first: at, last: at, count: 1, outcome }, None);
    }

    /// Puts fire times that are not fired on record; `instance`: what makes up for them.
    pub(super) fn record_run(&mut self, task: TaskId, version: Version, run: misfire::Run, instance: Option<InstanceId>) {
        let partition = self.tasks[&task].partition;
        let misfire::Run { first, last, count, outcome } = run;
        let occurrence = Occurrence { task, version, first, last, count, outcome, instance, at: self.now.wall };
        self.lanes.pending(partition).occurrences.push((partition, occurrence));
    }
}

/// The longest wait of a loop from one fire time to the next.
fn longest_wait(trigger: &Trigger) -> Millis {
    match trigger {
        Trigger::FixedRate { interval } | Trigger::FixedDelay { interval } => *interval,
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::FixedRate(interval) | Series::FixedDelay(interval) => *interval,
            Series::Cron(_) => Millis::ZERO,
        },
        Trigger::Delay { delay } => *delay,
        Trigger::Cron(_) | Trigger::Manual => Millis::ZERO,
    }
}

pub(super) fn cause_of(origin: Origin) -> Cause {
    match origin {
        Origin::Schedule => Cause::Fired,
        Origin::CatchUp => Cause::CaughtUp,
        Origin::Manual => Cause::Triggered,
        Origin::Chain => Cause::Chained,
        Origin::Rerun => Cause::RerunRequested,
        Origin::Backfill => Cause::Backfilled,
        Origin::Call => Cause::Called,
    }
}

/// What `fire_all` makes up for has a bound of its own: the queue takes it in whatever its length is.
fn make_room_for_catch_up(policy: &mut ConcurrencyPolicy, definition: &TaskDefinition) {
    if let (Blocking::Queue { max_queue }, MisfireAction::FireAll { limit }) = (&mut policy.blocking, definition.policies.misfire.action) {
        *max_queue = (*max_queue).max(limit);
    }
}

/// What somebody wants to have run again is not lost because much waits already.
fn make_room_for_rerun(policy: &mut ConcurrencyPolicy) {
    if let Blocking::Queue { max_queue } = &mut policy.blocking
        && !guard!(Guard::RerunsWait, false)
    {
        *max_queue = u32::MAX;
    }
}
