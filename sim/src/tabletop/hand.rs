//! What only a test does: it makes worlds by hand, asks for things, sets the clock, and looks.

use std::sync::Arc;

use punctual_core::backfill::BackfillPlan;
use punctual_core::definition::{Handler, TaskDefinition, Trigger};
use punctual_core::ids::{InboxId, InstanceId, PartitionId, ReplicaId, TaskId, WorkerId, WorkerLife};
use punctual_core::inbox::{DelayedChange, NodeMark, Notice, RerunFrom, Submission};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::protocol::Hello;
use punctual_core::scheduler::{self, Scheduler};
use punctual_core::time::{Millis, Timestamp};
use punctual_core::worker;
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{Actor, InstanceAction, PauseTarget, Rerunning, Submitted, TriggerChanged, Wake};
use serde_json::json;

use crate::calls::{answer_of, worker_name};
use crate::check::{self, Judgement, Verdict};
use crate::history::{Answer, Ask, Left, Recorder, What, Who};
use crate::model::{Database, DatabaseConfig};
use crate::plan::{HandlerPlan, Knobs, Plan, Shape, TaskPlan};
use crate::tabletop::{Delivery, World};

/// What the wall clock shows when a world that is driven by hand has settled: a full minute.
pub const START: i64 = 1_800_000_000_000;

/// The monotonic clock at that moment.
const ORIGIN: u64 = 1_000_100;
/// How long a world takes to settle.
const SETTLES_MS: u64 = 100;
/// Attempts that a worker runs at once.
const SLOTS: u32 = 4;

/// A task with all defaults.
pub fn task(name: &str, trigger: Trigger) -> TaskDefinition {
    TaskDefinition::new(name, trigger, Handler { name: Arc::from("command"), config: Arc::from("{}") })
}

/// Every so many seconds.
pub fn every(secs: u64) -> Trigger {
    Trigger::FixedRate { interval: Millis::from_secs(secs) }
}

/// Every full minute.
pub fn minutely() -> Trigger {
    use punctual_core::cron::{Dialect, Expression, GapPolicy, OverlapPolicy, Schedule};
    let expression = Expression::parse("* * * * *", Some(Dialect::Unix5)).expect("a valid expression");
    Trigger::Cron(Arc::new(Schedule::new(expression, jiff::tz::TimeZone::UTC, GapPolicy::default(), OverlapPolicy::default())))
}

impl World {
    /// Replicas and workers that are all connected, and nothing else. The inbox is read in small pages.
    pub fn new(partitions: u16, replicas: usize, workers: usize) -> World {
        let config = DatabaseConfig { partitions, starts_at: Timestamp(START - SETTLES_MS as i64), replica_lag: None };
        let recorder = Recorder::default();
        let database = Database::new(config, recorder.clone());
        let mut world = World::empty(partitions, ORIGIN - SETTLES_MS, database, recorder);
        world.inbox_page = 2;
        (0..replicas).for_each(|_| world.put_replica());
        (0..workers).for_each(|_| world.add_worker());
        (0..replicas).for_each(|replica| world.start_replica(replica));
        world
    }

    /// One replica, one partition, this many workers; leases taken, everything loaded, the wall clock at [`START`].
    pub fn settled(workers: usize) -> World {
        let mut world = World::new(1, 1, workers);
        world.run(SETTLES_MS);
        world
    }

    /// Adds a worker, and starts it.
    pub fn add_worker(&mut self) {
        self.put_worker(SLOTS);
        self.start_worker(self.workers.len() - 1);
    }

    /// Another worker, with so many slots.
    pub fn add_worker_with(&mut self, slots: u32) {
        self.put_worker(slots);
        self.start_worker(self.workers.len() - 1);
    }

    /// What the wall clock, as it is set now, says to that moment of the monotonic one.
    pub fn wall_at(&self, time: u64) -> Timestamp {
        Timestamp(START + time as i64 - ORIGIN as i64 + self.wall_offset)
    }

    /// Lets time pass until the wall clock is this long after [`START`].
    pub fn run_until(&mut self, millis: u64) {
        let passed = self.now().wall.0 - START;
        self.run((millis as i64 - passed).max(0) as u64);
    }

    /// Sets the database's clock, which is everybody's wall clock here: leases run out by it, too.
    pub fn step_wall(&mut self, by: i64) {
        self.wall_offset += by;
        self.highest_offset = self.highest_offset.max(self.wall_offset);
        self.database.step_clock(self.at(), by);
        for replica in 0..self.replicas.len() {
            self.record(Who::Scheduler(replica), What::ClockStepped { by });
            self.tell_replica(replica, scheduler::Event::Tick);
        }
    }

    // What people do.

    fn asked(&mut self, ask: Ask) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        self.record(Who::Client, What::Asked { call, ask });
        call
    }

    fn answered(&mut self, call: u64, done: Submitted) -> Option<InboxId> {
        let answer = answer_of(Ok(done));
        self.record(Who::Client, What::Answered { call, answer: answer.clone() });
        self.wake(Wake::Inbox);
        match answer {
            Answer::Accepted(entry) | Answer::Repeated(entry) => Some(entry),
            Answer::Refused(_) | Answer::Unknown => None,
        }
    }

    /// Writes a definition. A name keeps its id.
    pub fn define(&mut self, definition: TaskDefinition) -> TaskId {
        let name = definition.name.clone();
        self.write_version(&name, Some(Arc::new(definition)));
        self.data().names[&name].task
    }

    /// Removes a task.
    pub fn remove(&mut self, name: &str) {
        self.write_version(&Arc::from(name), None);
    }

    fn write_version(&mut self, name: &Arc<str>, definition: Option<Arc<TaskDefinition>>) {
        let call = self.asked(Ask::Define { task: name.clone() });
        let entry = self.database.define(self.at(), name, definition);
        self.answered(call, Submitted::Accepted { entry });
    }

    /// Fires a task by hand.
    ///
    /// # Panics
    ///
    /// Where there is no such task.
    pub fn trigger(&mut self, name: &str, delay: Option<u64>) -> InboxId {
        self.submit(name, vec![Submission { key: None, payload: None, delay: delay.map(Millis) }])
    }

    /// Fires a task by hand so many times, in one call. One that was removed takes it, too: whoever asks may not have heard of that.
    ///
    /// # Panics
    ///
    /// Where there never was such a task.
    pub fn submit(&mut self, name: &str, submissions: Vec<Submission>) -> InboxId {
        let call = self.asked(Ask::Trigger { task: Arc::from(name), key: None });
        let (at, by, task) = (self.at(), Arc::from("ops"), self.task_id(name));
        let submitted = if self.is_defined(name) {
            self.database.trigger(at, name, &by, None, submissions)
        } else {
            Submitted::Accepted { entry: self.database.put_trigger(at, name, &by, task, submissions) }
        };
        self.answered(call, submitted).expect("it was accepted")
    }

    /// Fires a task by hand under a key.
    pub fn trigger_under(&mut self, name: &str, key: &str, delay: u64) -> InboxId {
        let call = self.asked(Ask::Trigger { task: Arc::from(name), key: Some(Arc::from(key)) });
        let (at, key) = (self.at(), Arc::from(key));
        let submission = Submission { key: Some(Arc::clone(&key)), payload: None, delay: Some(Millis(delay)) };
        let submitted = self.database.trigger(at, name, &Arc::from("ops"), Some(&key), vec![submission]);
        self.answered(call, submitted).expect("it was accepted")
    }

    /// Writes a trigger of a task that nobody has defined.
    pub fn submit_unknown(&mut self, name: &str, task: TaskId, submissions: Vec<Submission>) {
        self.database.put_trigger(self.at(), name, &Arc::from("ops"), task, submissions);
    }

    /// Asks for an instance to be cancelled.
    ///
    /// # Panics
    ///
    /// Where there is no such instance.
    pub fn cancel(&mut self, instance: InstanceId) -> InboxId {
        let call = self.asked(Ask::Cancel { instance });
        let submitted = self.database.cancel(self.at(), instance, &Arc::from("ops"), Some(Arc::from("no longer needed")));
        self.answered(call, submitted).expect("the instance is there")
    }

    /// Asks for something to be done with an instance.
    pub fn act(&mut self, instance: InstanceId, action: InstanceAction) {
        let by = Actor { by: Arc::from("ops"), from: None, why: Some(Arc::from("no longer needed")) };
        self.database.act(self.at(), instance, action, &by);
        self.wake(Wake::Inbox);
    }

    /// Makes a pause, or lifts it.
    ///
    /// # Panics
    ///
    /// Where there is nothing to be paused, or nothing was.
    pub fn set_pause(&mut self, target: &PauseTarget, is_paused: bool) {
        let call = self.asked(Ask::Pause { target: target.clone(), is_paused });
        let at = self.at();
        let submitted = crate::calls::set_pause(&mut self.database, at, target, is_paused);
        self.answered(call, submitted.expect("it was otherwise")).expect("there is something to be paused");
    }

    /// Asks for a manual trigger that is not due yet to be cancelled or to come at another time.
    pub fn change_trigger(&mut self, name: &str, key: &str, change: DelayedChange) -> TriggerChanged {
        let by = Actor { by: Arc::from("ops"), from: None, why: Some(Arc::from("another time")) };
        let changed = self.database.change_trigger(self.at(), name, &Arc::from(key), change, &by);
        self.wake(Wake::Inbox);
        changed
    }

    /// Asks for an instance to run once more. `None`: that was refused.
    pub fn rerun(&mut self, instance: InstanceId) -> Option<InboxId> {
        let call = self.asked(Ask::Rerun { instance });
        let submitted = self.database.rerun(self.at(), instance, &Arc::from("ops"), Some(Arc::from("once more")), Rerunning::Unsuccessful);
        self.answered(call, submitted)
    }

    /// Asks for all of an instance that has ended to run once more, also the shards that have succeeded. `None`: that was refused.
    pub fn rerun_all(&mut self, instance: InstanceId) -> Option<InboxId> {
        let call = self.asked(Ask::Rerun { instance });
        let submitted = self.database.rerun(self.at(), instance, &Arc::from("ops"), Some(Arc::from("once more")), Rerunning::All);
        self.answered(call, submitted)
    }

    /// Asks for a run of a workflow to run again from some nodes. `None`: that was refused.
    pub fn rerun_from(&mut self, instance: InstanceId, nodes: &[&str], cascade: bool) -> Option<InboxId> {
        let call = self.asked(Ask::Rerun { instance });
        let from = RerunFrom { nodes: nodes.iter().map(|node| Arc::from(*node)).collect(), cascade, ended: Vec::new() };
        let submitted = self.database.rerun(self.at(), instance, &Arc::from("ops"), Some(Arc::from("mended")), Rerunning::From(from));
        self.answered(call, submitted)
    }

    /// Says what a node of a run has come to. `None`: that was refused.
    pub fn mark(&mut self, instance: InstanceId, node: u32, mark: NodeMark) -> Option<InboxId> {
        let call = self.asked(Ask::Mark { instance });
        let reason = Some(Arc::from("done by hand"));
        let submitted = self.database.mark_node(self.at(), instance, NodeIndex(node), mark, &Arc::from("ops"), reason);
        self.answered(call, submitted)
    }

    /// Asks for fire times to be made up for; `None` where that is refused.
    pub fn backfill(&mut self, name: &str, fire_times: &[Timestamp], concurrency: u32) -> Option<InboxId> {
        let (at, by) = (self.at(), Arc::from("ops"));
        let newest = self.data().fired(name, Timestamp(0), Timestamp(0)).and_then(|fired| fired.newest);
        let plan = BackfillPlan { task: self.task_id(name), fire_times: fire_times.into(), concurrency, reason: Some(Arc::from("a test")) };
        match self.database.backfill(at, &Arc::new(plan), newest, &by) {
            Submitted::Accepted { entry } => Some(entry),
            _ => None,
        }
    }

    /// Asks for the end of a backfill.
    pub fn cancel_backfill(&mut self, backfill: InboxId) {
        let (at, by) = (self.at(), Arc::from("ops"));
        self.database.cancel_backfill(at, backfill, &by, None);
    }

    /// Writes a rerun of an instance without asking whether there may be one: whoever asks may not have heard of the task's removal.
    ///
    /// # Panics
    ///
    /// Where there is no such instance.
    pub fn put_rerun(&mut self, instance: InstanceId) {
        self.database.put_rerun(self.at(), instance, &Arc::from("ops"), None, Rerunning::Unsuccessful);
    }

    /// Writes what an owner would ask of the owner of a task, once more.
    pub fn put_notice(&mut self, name: &str, notice: Notice) {
        let partition = self.data().partition_of(name);
        self.database.put_notice(self.at(), partition, &Arc::from("an owner"), notice);
        self.wake(Wake::Inbox);
    }

    /// A worker is to drain.
    pub fn drain(&mut self, worker: usize) {
        self.workers[worker].draining = true;
        self.tell_worker(worker, worker::Event::Drain);
    }

    /// A worker that drains takes nothing more for the rest of its life.
    pub fn crash_if_draining(&mut self, worker: usize) {
        if self.workers[worker].draining {
            self.crash_worker(worker);
        }
    }

    // What happens to the database.

    /// Carries out what was held, in order.
    pub fn release_store(&mut self) {
        self.store_is_held = false;
        for delivery in std::mem::take(&mut self.held) {
            self.send(0, delivery);
        }
    }

    /// Somebody takes a lease away and gives it to `owner` for this long.
    pub fn steal_lease(&mut self, partition: PartitionId, owner: &str, ttl: Millis) {
        self.database.reassign(self.at(), partition, &ReplicaId(Arc::from(owner)), ttl);
    }

    /// Somebody deletes the row of an instance.
    pub fn delete_instance(&mut self, instance: InstanceId) {
        self.database.delete_instance(instance);
    }

    // What to look at.

    /// Whether there is a task of this name by its newest version.
    pub fn is_defined(&self, name: &str) -> bool {
        self.data().names.get(name).is_some_and(|named| !named.removed)
    }

    /// The number of a task.
    ///
    /// # Panics
    ///
    /// Where there never was one of this name.
    pub fn task_id(&self, name: &str) -> TaskId {
        self.data().names[name].task
    }

    /// The first replica's machine.
    ///
    /// # Panics
    ///
    /// Where it doesn't run.
    pub fn scheduler(&self) -> &Scheduler {
        self.replicas[0].scheduler.as_ref().expect("it runs")
    }

    /// The replica that holds the first partition; the first one where none does.
    pub fn owner(&self) -> usize {
        let owner = self.data().leases[0].owner.as_ref();
        owner.and_then(|owner| self.replicas.iter().position(|replica| replica.id == *owner)).unwrap_or(0)
    }

    /// The instances of a task, oldest first.
    pub fn rows(&self, name: &str) -> Vec<&InstanceRow> {
        let Some(named) = self.data().names.get(name) else { return Vec::new() };
        self.data().instances.values().filter(|row| row.task == named.task).collect()
    }

    /// The states of a task's instances, oldest first.
    pub fn states(&self, name: &str) -> Vec<State> {
        self.rows(name).iter().map(|row| row.state).collect()
    }

    /// The fire times of a task's instances in seconds after [`START`], oldest instance first.
    pub fn fire_times(&self, name: &str) -> Vec<i64> {
        self.rows(name).iter().map(|row| (row.fire_time.0 - START) / 1_000).collect()
    }

    /// A task's oldest instance.
    ///
    /// # Panics
    ///
    /// Where it has none.
    pub fn first(&self, name: &str) -> InstanceId {
        self.rows(name)[0].id
    }

    /// When the handlers of a task's instances began, in milliseconds after [`START`].
    pub fn starts(&self, name: &str) -> Vec<u64> {
        let task = self.task_id(name);
        let of_task = self.began.iter().filter(|began| self.data().instances.get(&began.instance).is_some_and(|row| row.task == task));
        of_task.map(|began| began.at - ORIGIN).collect()
    }

    /// What a worker says that holds nothing and has received nothing.
    pub fn hello_of(&self, worker: usize) -> Hello {
        Hello {
            worker: WorkerId(worker_name(worker)),
            life: WorkerLife(self.workers[worker].life),
            slots: self.workers[worker].slots,
            traits: Default::default(),
            handlers: vec![Arc::from("command")],
            draining: false,
            running: vec![],
            received: 0,
        }
    }

    // Judging.

    /// From here on nothing goes wrong any more.
    pub fn record_healed(&mut self) {
        self.record(Who::World, What::Healed);
    }

    /// Writes down what is left at the end of the run.
    pub fn record_what_is_left(&mut self) {
        let data = self.data();
        let left = Left::InDatabase { live: data.live.iter().copied().collect(), inbox: data.inbox.keys().copied().collect() };
        self.record(Who::Database, What::Left(left));
        for (index, replica) in self.replicas.iter().enumerate() {
            let machine = replica.scheduler.as_ref();
            let (instances, partitions) = machine.map_or((0, Vec::new()), |it| (it.written_count(), it.owned_partitions()));
            let left = Left::InScheduler { is_up: machine.is_some(), instances, partitions };
            self.record(Who::Scheduler(index), What::Left(left));
        }
        for (index, worker) in self.workers.iter().enumerate() {
            let machine = worker.node.as_ref();
            let (running, reports) = machine.map_or((0, 0), |it| (it.running_count(), it.report_count()));
            let left = Left::InWorker { is_up: machine.is_some(), running, reports };
            self.record(Who::Worker(index), What::Left(left));
        }
    }

    /// The plan that this run, driven by hand, is judged against.
    fn plan_so_far(&self) -> Plan {
        let shape = Shape { schedulers: self.replicas.len(), workers: self.workers.len(), slots: SLOTS, partitions: self.partitions };
        let tasks = self.data().names.keys().map(|name| {
            let longest = self.longest_runs.get(name).copied().unwrap_or(1_000);
            let handler =
                HandlerPlan { takes_ms: (0, longest), fails_per_mille: 0, fails_for_good: false, obeys_after_ms: None, downstream: None };
            TaskPlan { document: json!({ "name": &**name }), handler }
        });
        Plan {
            seed: 0,
            shape,
            knobs: Knobs::default(),
            tasks: tasks.collect(),
            calls: Vec::new(),
            faults: Vec::new(),
            heal_at_ms: self.at(),
            horizon_ms: self.at(),
            starts_at: START - SETTLES_MS as i64,
        }
    }

    /// What the properties say of the run so far.
    pub fn judge(&self) -> Vec<Judgement> {
        self.recorder.with(|history| check::judge(&self.plan_so_far(), history))
    }

    /// What was violated so far.
    pub fn violations(&self) -> Vec<String> {
        let violated = self.judge().into_iter().filter_map(|judgement| match judgement.verdict {
            Verdict::Violated { witness } => Some(format!("{}: {witness}", judgement.property)),
            Verdict::Held | Verdict::Unknown(_) => None,
        });
        violated.collect()
    }

    /// The run so far in words, a line a record.
    pub fn told(&self) -> String {
        let lines = |history: &crate::history::History| {
            let lines: Vec<_> = history.records.iter().enumerate().map(|(index, record)| crate::show::line(index, record)).collect();
            lines.join("\n")
        };
        self.recorder.with(lines)
    }

    /// Nothing that a property forbids has happened.
    ///
    /// # Panics
    ///
    /// Where something has.
    pub fn assert_sound(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Those who may want to know are woken up.
    pub(super) fn wake(&mut self, wake: Wake) {
        let event = || match wake {
            Wake::Inbox => scheduler::Event::InboxSignalled,
            Wake::Leases => scheduler::Event::LeasesSignalled,
        };
        for replica in 0..self.replicas.len() {
            let Some(play) = &mut self.play else {
                self.tell_replica(replica, event());
                continue;
            };
            if self.replicas[replica].scheduler.is_none() {
                continue;
            }
            let life = self.replicas[replica].life;
            for after in play.wake_ups() {
                self.send(after, Delivery::ToReplica(replica, life, event()));
            }
        }
    }
}
