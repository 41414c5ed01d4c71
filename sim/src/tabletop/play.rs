//! A plan's faults and calls, as the rehearsal world has them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_core::definition::TaskDefinition;
use punctual_core::ids::InstanceId;
use punctual_core::inbox::Submission;
use punctual_core::limits;
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_core::{scheduler, worker};
use punctual_driver::clock::StoreClock;
use punctual_driver::ports::{Clock, PauseTarget, Submitted, Wake};
use rand_chacha::ChaCha8Rng;

use crate::bank::{self, Flaw, PROBES};
use crate::behaviour::Behaviours;
use crate::calls::{self, AGAIN_AFTER_MS, Failed, answer_of};
use crate::history::{Answer, Ask as Asked, Recorder, What, Who};
use crate::operations;
use crate::plan::{Call, CallKind, FaultKind, Plan};
use crate::tabletop::links::Side;
use crate::tabletop::store::{Ask, Asker};
use crate::tabletop::{Delivery, World};
use crate::trouble::{NodeTrouble, PATIENCE_MS, Way, WorldTrouble, between, chance, is_on_record_as_cut, select};

/// Something of the plan that happens.
#[derive(Debug)]
pub(super) enum PlayEvent {
    FaultBegins(usize),
    FaultEnds(usize),
    /// A node that was to stop in this life has had its time for it.
    PatienceEnds(Who, u64),
    Called(usize),
    /// A caller makes its call again.
    CalledAgain(usize),
    /// Whoever made the pause of this call lifts it.
    PauseEnds(usize),
    Healed,
}

/// Beats in which a replica asks for the time before it makes do with what it knows, as in the driver.
const BEATS_FOR_THE_TIME: u32 = 10;

/// What only a world has that carries a plan out.
pub(super) struct Play {
    plan: Arc<Plan>,
    pub(super) behaviours: Behaviours,
    pub(super) trouble: WorldTrouble,
    schedulers: Vec<Node>,
    workers: Vec<Node>,
    clocks: Vec<NodeClock>,
    /// Of each replica's life: what its questions to the database meet.
    questions: Vec<ChaCha8Rng>,
    /// By worker and replica: latencies, and what is lost.
    links: Vec<ChaCha8Rng>,
    wake_ups: ChaCha8Rng,
    callers: Vec<Caller>,
    /// The last number that the calls of the plan, and those of each flood, were given.
    numbers: Vec<u64>,
    /// For whom the faults are that have begun.
    faults_on: BTreeMap<usize, Vec<Who>>,
    probes: BTreeMap<&'static str, u64>,
}

/// What faults do to a node.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    trouble: NodeTrouble,
    /// How often it was stopped without having been started again since.
    down: usize,
    paused: usize,
    /// It starts once it doesn't stand still any more.
    is_to_start: bool,
}

/// A scheduler's own clock, and the database's as it knows it.
struct NodeClock {
    own: Arc<Shown>,
    of_store: StoreClock<Shown>,
    /// Beats that were too slow to tell the time well.
    slow_beats: u32,
}

/// A clock that shows what it was told.
struct Shown(Mutex<Now>);

impl Clock for Shown {
    fn now(&self) -> Now {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeClock {
    fn new() -> NodeClock {
        let own = Arc::new(Shown(Mutex::new(Now { wall: Timestamp(0), monotonic: Monotonic(0) })));
        NodeClock { of_store: StoreClock::new(own.clone()), own, slow_beats: 0 }
    }

    fn show(&self, now: Now) {
        *self.own.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

/// Somebody who makes a call.
struct Caller {
    random: ChaCha8Rng,
    what: Wanted,
    /// Which numbers its calls get.
    series: usize,
    number: u64,
}

#[derive(Clone)]
enum Wanted {
    Trigger { task: Arc<str>, key: Option<Arc<str>>, submissions: Vec<Submission> },
    Cancel { instance: InstanceId },
    Define { task: Arc<str>, definition: Option<Arc<TaskDefinition>> },
    Pause { target: PauseTarget, is_paused: bool },
    Operate(operations::Order),
}

impl Play {
    fn new(plan: Arc<Plan>) -> Play {
        let shape = plan.shape;
        let pairs = (0..shape.workers).flat_map(|worker| (0..shape.schedulers).map(move |replica| (worker, replica)));
        Play {
            behaviours: Behaviours::new(&plan),
            trouble: WorldTrouble::default(),
            schedulers: vec![Node::default(); shape.schedulers],
            workers: vec![Node::default(); shape.workers],
            clocks: (0..shape.schedulers).map(|_| NodeClock::new()).collect(),
            questions: (0..shape.schedulers).map(|index| plan.stream(&format!("database/scheduler/{index}/0"))).collect(),
            links: pairs.map(|(worker, replica)| plan.stream(&format!("link/{worker}/{replica}"))).collect(),
            wake_ups: plan.stream("wake-ups"),
            callers: Vec::new(),
            numbers: (0..=plan.faults.len()).map(|series| (series as u64) << 32).collect(),
            faults_on: BTreeMap::new(),
            probes: PROBES.iter().map(|name| (*name, 0)).collect(),
            plan,
        }
    }

    fn node(&self, who: Who) -> NodeTrouble {
        match who {
            Who::Scheduler(index) => self.schedulers[index].trouble,
            Who::Worker(index) => self.workers[index].trouble,
            Who::World | Who::Database | Who::Client => NodeTrouble::default(),
        }
    }

    fn node_mut(&mut self, who: Who) -> &mut Node {
        match who {
            Who::Scheduler(index) => &mut self.schedulers[index],
            Who::Worker(index) => &mut self.workers[index],
            Who::World | Who::Database | Who::Client => unreachable!("faults of the world are not a node's"),
        }
    }

    pub(super) fn worker_trouble(&self, worker: usize) -> &NodeTrouble {
        &self.workers[worker].trouble
    }

    pub(super) fn wall(&self, who: Who, at: u64) -> Timestamp {
        Timestamp(self.plan.starts_at + at as i64 + self.node(who).ahead_ms(at))
    }

    pub(super) fn replica_starts(&mut self, replica: usize, life: u64) {
        self.questions[replica] = self.plan.stream(&format!("database/scheduler/{replica}/{life}"));
        self.clocks[replica] = NodeClock::new();
    }

    pub(super) fn way_to_database(&mut self, asker: &Asker, who: Who, writes: bool) -> Way {
        let delay_ms = self.node(who).delay_ms;
        let random = match asker {
            Asker::Replica { index, .. } => &mut self.questions[*index],
            Asker::Caller(caller) => &mut self.callers[*caller].random,
        };
        Way::draw(random, &self.plan.knobs, &self.trouble, delay_ms, writes)
    }

    /// Whether nothing gets through between somebody and the database.
    pub(super) fn is_cut_off(&self, who: Who, outgoing: bool) -> bool {
        let node = self.node(who);
        self.trouble.database_down > 0 || node.database_cut > 0 || if outgoing { node.outgoing_cut > 0 } else { node.incoming_cut > 0 }
    }

    pub(super) fn is_cut(&self, worker: usize, replica: usize, to: Side) -> bool {
        let (worker, replica) = (&self.workers[worker].trouble, &self.schedulers[replica].trouble);
        match to {
            Side::Scheduler => worker.outgoing_cut > 0 || replica.incoming_cut > 0,
            Side::Worker => replica.outgoing_cut > 0 || worker.incoming_cut > 0,
        }
    }

    fn sender(&self, worker: usize, replica: usize, to: Side) -> &NodeTrouble {
        match to {
            Side::Scheduler => &self.workers[worker].trouble,
            Side::Worker => &self.schedulers[replica].trouble,
        }
    }

    fn link(&mut self, worker: usize, replica: usize) -> &mut ChaCha8Rng {
        &mut self.links[worker * self.plan.shape.schedulers + replica]
    }

    pub(super) fn way_ms(&mut self, worker: usize, replica: usize, to: Side) -> u64 {
        let network_ms = self.plan.knobs.network_ms;
        let delay_ms = self.sender(worker, replica, to).delay_ms;
        between(self.link(worker, replica), network_ms) + delay_ms
    }

    pub(super) fn loses_frame(&mut self, worker: usize, replica: usize, to: Side) -> bool {
        let per_mille = self.sender(worker, replica, to).lose_per_mille;
        // Drawn in any case, so that what comes later is the same with and without.
        chance(self.link(worker, replica), per_mille.max(1)) && per_mille > 0
    }

    /// When a wake-up reaches a replica, for each time that it does.
    pub(super) fn wake_ups(&mut self) -> Vec<u64> {
        if !self.plan.knobs.wake_ups {
            return Vec::new();
        }
        let is_lost = chance(&mut self.wake_ups, self.trouble.wake_ups_lost_per_mille);
        let after = between(&mut self.wake_ups, self.plan.knobs.network_ms);
        if is_lost || self.trouble.wake_ups_down > 0 {
            *self.probes.entry("wake_up.lost").or_default() += 1;
            return Vec::new();
        }
        vec![after; 1 + usize::from(self.trouble.wake_ups_doubled > 0)]
    }
}

impl World {
    /// A plan's world at its beginning, with these guards of the store switched off. It writes its history here.
    pub fn of_plan(plan: &Plan, recorder: Recorder, flaws: &[Flaw]) -> World {
        let database = bank::database(plan, recorder.clone(), flaws);
        let mut world = World::empty(plan.shape.partitions, 0, database, recorder);
        world.commits_at_once = plan.knobs.commits_at_once;
        world.play = Some(Box::new(Play::new(Arc::new(plan.clone()))));
        calls::define_tasks(plan, &mut world.database, 0);
        (0..plan.shape.schedulers).for_each(|_| world.put_replica());
        (0..plan.shape.workers).for_each(|_| world.put_worker(plan.shape.slots));
        (0..plan.shape.schedulers).for_each(|replica| world.start_replica(replica));
        (0..plan.shape.workers).for_each(|worker| world.start_worker(worker));
        for (index, fault) in plan.faults.iter().enumerate().filter(|(_, fault)| fault.at_ms < plan.heal_at_ms) {
            world.queue.push(fault.at_ms, Delivery::Play(PlayEvent::FaultBegins(index)));
        }
        for (place, call) in plan.calls.iter().enumerate() {
            world.queue.push(call.at_ms, Delivery::Play(PlayEvent::Called(place)));
        }
        world.queue.push(plan.heal_at_ms, Delivery::Play(PlayEvent::Healed));
        world
    }

    /// Lets everything happen until the plan's horizon, and writes down what is left.
    pub fn play_out(&mut self) {
        let horizon_ms = self.the_play().plan.horizon_ms;
        self.run(horizon_ms.saturating_sub(self.time));
        self.record_what_is_left();
    }

    pub(super) fn probes(&self) -> BTreeMap<&'static str, u64> {
        self.play.as_ref().map(|play| play.probes.clone()).unwrap_or_default()
    }

    pub(super) fn probe(&mut self, name: &'static str) {
        debug_assert!(PROBES.contains(&name), "{name} is not in the catalogue");
        if let Some(play) = &mut self.play {
            *play.probes.entry(name).or_default() += 1;
        }
    }

    fn the_play(&mut self) -> &mut Play {
        self.play.as_mut().expect("a plan is carried out")
    }

    /// What a scheduler takes for the present.
    pub(super) fn now_of(&self, replica: usize) -> Now {
        let Some(play) = &self.play else { return self.now() };
        let clock = &play.clocks[replica];
        clock.show(Now { wall: play.wall(Who::Scheduler(replica), self.at()), monotonic: Monotonic(self.time) });
        clock.of_store.now()
    }

    /// The database has told a scheduler what its clock shows; answers whether it goes on with that. Nothing is owned before the time is
    /// known, as in the driver.
    pub(super) fn clock_told(&mut self, replica: usize, told: Option<Timestamp>, asked_at: Monotonic) -> bool {
        // So that its own clock shows the present.
        self.now_of(replica);
        let (Some(play), Some(told)) = (&mut self.play, told) else { return true };
        let clock = &mut play.clocks[replica];
        clock.of_store.told(told, asked_at);
        if clock.of_store.is_known_well() || clock.slow_beats >= BEATS_FOR_THE_TIME {
            return true;
        }
        clock.slow_beats += 1;
        false
    }

    pub(super) fn happen(&mut self, event: PlayEvent) {
        match event {
            PlayEvent::FaultBegins(index) => self.fault_begins(index),
            PlayEvent::FaultEnds(index) => self.fault_ends(index),
            PlayEvent::PatienceEnds(who, life) => {
                if self.life_of(who) == life && self.is_up(who) {
                    self.kill(who);
                }
            }
            PlayEvent::Called(place) => self.call(place),
            PlayEvent::CalledAgain(caller) => self.make_call(caller),
            PlayEvent::PauseEnds(place) => self.pause_ends(place),
            PlayEvent::Healed => {
                self.the_play().trouble.is_healed = true;
                if !self.the_play().plan.faults.is_empty() {
                    self.probe("everything.healed");
                }
                self.record_healed();
            }
        }
    }

    fn life_of(&self, who: Who) -> u64 {
        match who {
            Who::Scheduler(index) => self.replicas[index].life,
            Who::Worker(index) => self.workers[index].life,
            Who::World | Who::Database | Who::Client => 0,
        }
    }

    fn is_up(&self, who: Who) -> bool {
        match who {
            Who::Scheduler(index) => self.replicas[index].scheduler.is_some(),
            Who::Worker(index) => self.workers[index].node.is_some(),
            Who::World | Who::Database | Who::Client => true,
        }
    }

    fn kill(&mut self, who: Who) {
        match who {
            Who::Scheduler(index) => self.crash_replica(index),
            Who::Worker(index) => self.crash_worker(index),
            Who::World | Who::Database | Who::Client => {}
        }
    }

    fn fault_begins(&mut self, index: usize) {
        let plan = self.the_play().plan.clone();
        let fault = &plan.faults[index];
        let busy: Vec<_> = self.workers.iter().map(|worker| worker.running.len()).collect();
        let on = select(fault.on, plan.shape, |partition| self.database.data().lease(partition).owner.clone(), &busy);
        self.record(Who::World, What::FaultBegan(index));
        if is_on_record_as_cut(fault.kind) {
            on.iter().for_each(|who| self.record(*who, What::Cut));
        }
        let at = self.at();
        let play = self.the_play();
        on.iter().for_each(|who| play.node_mut(*who).trouble.begin(fault.kind, at));
        play.trouble.begin(fault.kind);
        play.faults_on.insert(index, on.clone());
        match fault.kind {
            FaultKind::Crash => on.iter().for_each(|who| self.crash(*who)),
            FaultKind::Restart => on.iter().for_each(|who| self.stop(*who, PATIENCE_MS.min(fault.lasts_ms / 2))),
            FaultKind::Pause => on.iter().for_each(|who| self.pause(*who)),
            FaultKind::Reset => on.iter().for_each(|who| match *who {
                Who::Worker(worker) => self.reset_links(Side::Worker, worker),
                Who::Scheduler(replica) => self.reset_links(Side::Scheduler, replica),
                Who::World | Who::Database | Who::Client => {}
            }),
            FaultKind::ClockStep { by } => on.iter().for_each(|who| self.record(*who, What::ClockStepped { by })),
            FaultKind::Failover => {
                let lost = self.database.fail_over(at);
                self.probe("database.failed_over");
                if lost > 0 {
                    self.probe("database.lost_its_tail");
                }
            }
            FaultKind::DatabaseClockStep { by } => self.database.step_clock(at, by),
            FaultKind::WakeUpsDown if !self.data().live.is_empty() => self.probe("wake_ups.flushed_with_work_waiting"),
            FaultKind::Flood { task, count } => self.flood(index, task, count),
            _ => {}
        }
        // The world heals a moment later, when all is right again.
        let ends_at = (fault.at_ms + fault.lasts_ms).min(plan.heal_at_ms - 1);
        self.queue.push(ends_at.max(self.time), Delivery::Play(PlayEvent::FaultEnds(index)));
    }

    fn fault_ends(&mut self, index: usize) {
        let plan = self.the_play().plan.clone();
        let fault = &plan.faults[index];
        let at = self.at();
        let play = self.the_play();
        let on = play.faults_on.remove(&index).unwrap_or_default();
        on.iter().for_each(|who| play.node_mut(*who).trouble.end(fault.kind));
        play.trouble.end(fault.kind);
        match fault.kind {
            FaultKind::Crash | FaultKind::Restart => on.iter().for_each(|who| self.start_again(*who)),
            FaultKind::Pause => on.iter().for_each(|who| self.go_on(*who)),
            FaultKind::Isolate | FaultKind::CutOutgoing | FaultKind::CutIncoming => self.let_through(),
            FaultKind::ClockStep { by } => on.iter().for_each(|who| self.record(*who, What::ClockStepped { by: -by })),
            FaultKind::DatabaseClockStep { by } => self.database.step_clock(at, -by),
            _ => {}
        }
        if is_on_record_as_cut(fault.kind) {
            on.iter().for_each(|who| self.record(*who, What::Mended));
        }
        self.record(Who::World, What::FaultEnded(index));
    }

    fn crash(&mut self, who: Who) {
        let node = self.the_play().node_mut(who);
        node.down += 1;
        node.is_to_start = false;
        if node.down == 1 {
            self.kill(who);
        }
    }

    /// A node is asked to stop in good order, has so long to do it, and is then killed.
    fn stop(&mut self, who: Who, patience_ms: u64) {
        let node = self.the_play().node_mut(who);
        node.down += 1;
        node.is_to_start = false;
        if node.down > 1 {
            return;
        }
        let life = self.life_of(who);
        self.send(patience_ms, Delivery::Play(PlayEvent::PatienceEnds(who, life)));
        match who {
            Who::Scheduler(index) => self.tell_replica(index, scheduler::Event::Shutdown),
            Who::Worker(index) => self.tell_worker(index, worker::Event::Drain),
            Who::World | Who::Database | Who::Client => {}
        }
    }

    fn start_again(&mut self, who: Who) {
        let node = self.the_play().node_mut(who);
        node.down -= 1;
        if node.down > 0 {
            return;
        }
        node.is_to_start = node.paused > 0;
        let waits = node.is_to_start;
        // Whether it has stopped or not: nothing of it may be left.
        if self.is_up(who) {
            self.kill(who);
        }
        if !waits {
            self.start(who);
        }
    }

    fn start(&mut self, who: Who) {
        match who {
            Who::Scheduler(index) => self.start_replica(index),
            Who::Worker(index) => self.start_worker(index),
            Who::World | Who::Database | Who::Client => {}
        }
    }

    fn pause(&mut self, who: Who) {
        let node = self.the_play().node_mut(who);
        node.paused += 1;
        if node.paused == 1 {
            match who {
                Who::Scheduler(index) => {
                    self.replicas[index].paused = true;
                    self.record(who, What::Paused);
                }
                Who::Worker(index) => self.pause_worker(index),
                Who::World | Who::Database | Who::Client => {}
            }
        }
    }

    fn go_on(&mut self, who: Who) {
        let node = self.the_play().node_mut(who);
        node.paused -= 1;
        if node.paused > 0 {
            return;
        }
        let starts = std::mem::take(&mut node.is_to_start);
        match who {
            Who::Scheduler(index) => self.resume_replica(index),
            Who::Worker(index) => self.resume_worker(index),
            Who::World | Who::Database | Who::Client => {}
        }
        if starts {
            self.start(who);
        }
    }

    fn call(&mut self, place: usize) {
        let plan = self.the_play().plan.clone();
        let Call { what, at_ms } = &plan.calls[place];
        let of_task = |task: usize| calls::name_of(&plan, task);
        let wanted = match what {
            CallKind::Trigger { task, delay_ms, key } => {
                let submissions = vec![calls::submission(&plan, *task, *at_ms, delay_ms.map(Millis))];
                let name = of_task(*task);
                Wanted::Trigger { task: name, key: key.as_deref().map(Arc::from), submissions }
            }
            CallKind::Cancel { nth } => {
                let live = &self.data().live;
                let Some(instance) = live.iter().nth(nth % live.len().max(1)).copied() else { return };
                Wanted::Cancel { instance }
            }
            CallKind::Edit { task, document } => {
                let name = of_task(*task);
                Wanted::Define { task: name, definition: Some(calls::definition(document)) }
            }
            CallKind::Pause { on, lasts_ms } => {
                self.send(*lasts_ms, Delivery::Play(PlayEvent::PauseEnds(place)));
                // A pause that was long under way may come after its end.
                let surely_over = plan.heal_at_ms.saturating_sub(plan.calls[place].at_ms) + calls::PAUSES_OVER_AFTER_MS;
                self.send(surely_over, Delivery::Play(PlayEvent::PauseEnds(place)));
                Wanted::Pause { target: calls::pause_target(&plan, on), is_paused: true }
            }
            CallKind::Remove { task } => {
                let name = of_task(*task);
                Wanted::Define { task: name, definition: None }
            }
            CallKind::Operate { operation, nth } => {
                let now = self.database.clock(self.at());
                let Some(order) = operations::order(&plan, self.data(), operation, *nth, now) else { return };
                Wanted::Operate(order)
            }
        };
        let random = plan.stream(&format!("database/call/{place}"));
        self.add_caller(Caller { random, what: wanted, series: 0, number: 0 });
    }

    fn pause_ends(&mut self, place: usize) {
        let plan = self.the_play().plan.clone();
        let CallKind::Pause { on, .. } = &plan.calls[place].what else { return };
        let random = plan.stream(&format!("database/call/{place}/end"));
        let what = Wanted::Pause { target: calls::pause_target(&plan, on), is_paused: false };
        self.add_caller(Caller { random, what, series: 0, number: 0 });
    }

    /// So many submissions at once.
    fn flood(&mut self, index: usize, task: usize, count: usize) {
        let plan = self.the_play().plan.clone();
        let name = calls::name_of(&plan, task);
        let sizes = (0..count).step_by(limits::SUBMISSIONS_MAX).map(|begun| limits::SUBMISSIONS_MAX.min(count - begun));
        for (number, size) in sizes.enumerate() {
            let random = plan.stream(&format!("database/flood/{index}/{number}"));
            let what = Wanted::Trigger { task: name.clone(), key: None, submissions: vec![Submission::default(); size] };
            self.add_caller(Caller { random, what, series: index + 1, number: 0 });
        }
    }

    fn add_caller(&mut self, caller: Caller) {
        let play = self.the_play();
        play.callers.push(caller);
        let place = play.callers.len() - 1;
        self.make_call(place);
    }

    fn make_call(&mut self, place: usize) {
        let play = self.the_play();
        let caller = &mut play.callers[place];
        play.numbers[caller.series] += 1;
        caller.number = play.numbers[caller.series];
        let (call, asked) = (
            caller.number,
            match &caller.what {
                Wanted::Trigger { task, key, .. } => Asked::Trigger { task: task.clone(), key: key.clone() },
                Wanted::Cancel { instance } => Asked::Cancel { instance: *instance },
                Wanted::Define { task, .. } => Asked::Define { task: task.clone() },
                Wanted::Pause { target, is_paused } => Asked::Pause { target: target.clone(), is_paused: *is_paused },
                Wanted::Operate(order) => order.ask(),
            },
        );
        self.record(Who::Client, What::Asked { call, ask: asked });
        self.ask(Box::new(Ask::of_caller(place, self.time)));
    }

    /// A call reaches the database.
    pub(super) fn carry_out_call(&mut self, place: usize) -> Submitted {
        let at = self.at();
        let what = self.the_play().callers[place].what.clone();
        let by = Arc::from("client");
        match what {
            Wanted::Trigger { task, key, submissions } => self.database.trigger(at, &task, &by, key.as_ref(), submissions),
            Wanted::Cancel { instance } => self.database.cancel(at, instance, &by, None),
            Wanted::Define { task, definition } => calls::define(&mut self.database, at, &task, definition),
            Wanted::Operate(order) => order.carry_out(&mut self.database, at),
            // One that is so already is refused as one of nothing is.
            Wanted::Pause { target, is_paused } => {
                calls::set_pause(&mut self.database, at, &target, is_paused).unwrap_or(Submitted::NoSuchTask)
            }
        }
    }

    pub(super) fn caller_hears(&mut self, place: usize, done: Result<Submitted, Failed>) {
        let has_failed = done.is_err();
        let answer = answer_of(done);
        let play = self.the_play();
        let call = play.callers[place].number;
        // A call whose answer was lost is made again only where a key makes it the same call.
        let has_key = matches!(play.callers[place].what, Wanted::Trigger { key: Some(_), .. });
        // Whoever lifts a pause sees to it that it is over.
        let lifts = matches!(play.callers[place].what, Wanted::Pause { is_paused: false, .. });
        let is_again = answer == Answer::Unknown && has_key && !play.trouble.is_healed || has_failed && lifts;
        self.record(Who::Client, What::Answered { call, answer: answer.clone() });
        if matches!(answer, Answer::Accepted(_)) {
            self.wake(Wake::Inbox);
        }
        if is_again {
            self.send(AGAIN_AFTER_MS, Delivery::Play(PlayEvent::CalledAgain(place)));
        }
    }
}
