//! Schedulers and workers driven by hand: one clock, explicit queues, a store whose answers a test can hold, refuse or lose.
//!
//! Nothing here decides by chance. Deliveries happen in the order of their time, those of the same time in the order in which they were sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use punctual_core::batch::{CommitOutcome, Output};
use punctual_core::definition::{Band, Handler, TaskDefinition, Trigger};
use punctual_core::ids::{ConnectionId, Fence, InboxId, InstanceId, ReplicaId, TaskId, WorkerId, WorkerLife};
use punctual_core::inbox::{Request, Submission};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::limits;
#[cfg(feature = "simulation")]
use punctual_core::protocol::Hello;
use punctual_core::protocol::{End, ToScheduler, ToWorker};
use punctual_core::scheduler::{self, Alert, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_core::worker::{self, WorkerNode};

use crate::store_model::StoreModel;

/// The wall clock at the beginning: a full minute.
pub(crate) const START: i64 = 1_800_000_000_000;

/// The monotonic clock at that moment.
const ORIGIN: u64 = 1_000_100;

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Carried,
    Refused,
    UnknownApplied,
    UnknownNotApplied,
}

/// What a handler does in one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) takes: u64,
    pub(crate) end: End,
    /// How long after the cancel signal it ends; `None`: not until it is killed.
    pub(crate) obeys_after: Option<u64>,
}

impl Default for Run {
    fn default() -> Self {
        Run { takes: 1_000, end: End::Succeeded, obeys_after: Some(0) }
    }
}

/// The ground truth of what handlers did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Began {
    pub(crate) at: u64,
    pub(crate) worker: usize,
    pub(crate) life: u64,
    pub(crate) instance: InstanceId,
    pub(crate) fence: Fence,
    /// When it ended, and whether it did all that it was to do.
    pub(crate) ended: Option<(u64, bool)>,
}

pub(crate) struct Replica {
    pub(crate) scheduler: Option<Scheduler>,
    life: u64,
    pub(crate) stopped: bool,
    /// Events wait while it is paused.
    pub(crate) paused: bool,
    waiting: VecDeque<scheduler::Event>,
    asked_at: Monotonic,
}

pub(crate) struct Worker {
    pub(crate) node: Option<WorkerNode>,
    pub(crate) life: u64,
    pub(crate) slots: u32,
    pub(crate) draining: bool,
    pub(crate) drained: bool,
    /// Nothing gets through, and neither side is told.
    pub(crate) silent: bool,
}

struct Link {
    replica: usize,
    worker: usize,
    /// Assignments and all else to the worker wait.
    held: bool,
    down: VecDeque<Vec<ToWorker>>,
}

enum Delivery {
    Store(usize, u64, scheduler::Command, Monotonic),
    Answer(usize, u64, scheduler::Event),
    Up(ConnectionId, Vec<ToScheduler>),
    Down(ConnectionId, Vec<ToWorker>),
    HandlerEnds { worker: usize, life: u64, instance: InstanceId, fence: Fence, end: End },
}

pub(crate) struct World {
    /// Entries that an inbox is read by: few, so that reading takes several pages.
    pub(crate) inbox_page: usize,
    pub(crate) time: u64,
    pub(crate) wall_offset: i64,
    pub(crate) highest_offset: i64,
    pub(crate) store: StoreModel,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) workers: Vec<Worker>,
    links: BTreeMap<ConnectionId, Link>,
    next_connection: u64,
    queue: BTreeMap<(u64, u64), Delivery>,
    sent: u64,
    pub(crate) network_latency: u64,
    pub(crate) store_latency: u64,
    /// Calls of the store wait.
    pub(crate) store_is_held: bool,
    held: Vec<Delivery>,
    pub(crate) fates: VecDeque<Fate>,
    pub(crate) failing_snapshots: u32,
    pub(crate) scripts: BTreeMap<Arc<str>, Vec<Run>>,
    pub(crate) began: Vec<Began>,
    running: BTreeMap<(usize, InstanceId, Fence), usize>,
    pub(crate) alerts: Vec<(u64, Alert)>,
    pub(crate) commits: Vec<Arc<punctual_core::batch::Batch>>,
    pub(crate) keeps_commits: bool,
    pub(crate) steps: u64,
    /// How often a scheduler was called because it asked for it, at this moment.
    ticks: (u64, u32),
    partitions: u16,
}

/// A task with all defaults.
pub(crate) fn task(name: &str, trigger: Trigger) -> TaskDefinition {
    TaskDefinition {
        name: Arc::from(name),
        enabled: true,
        trigger,
        handler: Handler { name: Arc::from("command"), config: Arc::from("{}") },
        payload: None,
        policies: Arc::default(),
        idempotent: true,
        band: Band::Normal,
    }
}

pub(crate) fn every(secs: u64) -> Trigger {
    Trigger::FixedRate { interval: Millis::from_secs(secs) }
}

/// Every full minute.
pub(crate) fn minutely() -> Trigger {
    use punctual_core::cron::{Dialect, Expression, GapPolicy, OverlapPolicy, Schedule};
    let expression = Expression::parse("* * * * *", Some(Dialect::Unix5)).expect("a valid expression");
    Trigger::Cron(Arc::new(Schedule::new(expression, jiff::tz::TimeZone::UTC, GapPolicy::default(), OverlapPolicy::default())))
}

impl World {
    /// Replicas and workers that are all connected, and nothing else.
    pub(crate) fn new(partitions: u16, replicas: usize, workers: usize) -> World {
        let mut world = World {
            inbox_page: 2,
            time: ORIGIN - 100,
            wall_offset: 0,
            highest_offset: 0,
            store: StoreModel::new(partitions),
            replicas: Vec::new(),
            workers: Vec::new(),
            links: BTreeMap::new(),
            next_connection: 1,
            queue: BTreeMap::new(),
            sent: 0,
            network_latency: 1,
            store_latency: 1,
            store_is_held: false,
            held: Vec::new(),
            fates: VecDeque::new(),
            failing_snapshots: 0,
            scripts: BTreeMap::new(),
            began: Vec::new(),
            running: BTreeMap::new(),
            alerts: Vec::new(),
            commits: Vec::new(),
            keeps_commits: false,
            steps: 0,
            ticks: (0, 0),
            partitions,
        };
        for _ in 0..replicas {
            let asked_at = Monotonic(0);
            world.replicas.push(Replica { scheduler: None, life: 0, stopped: false, paused: false, waiting: VecDeque::new(), asked_at });
        }
        for _ in 0..workers {
            world.add_worker();
        }
        (0..replicas).for_each(|replica| world.start_replica(replica));
        world
    }

    /// One replica, one partition, this many workers; leases taken, everything loaded, the wall clock at [`START`].
    pub(crate) fn settled(workers: usize) -> World {
        let mut world = World::new(1, 1, workers);
        world.run(100);
        world
    }

    pub(crate) fn now(&self) -> Now {
        Now { wall: self.wall_at(self.time), monotonic: Monotonic(self.time) }
    }

    /// What the wall clock, as it is set now, says to that moment.
    pub(crate) fn wall_at(&self, time: u64) -> Timestamp {
        Timestamp(START + time as i64 - ORIGIN as i64 + self.wall_offset)
    }

    // Nodes.

    pub(crate) fn add_worker(&mut self) {
        self.workers.push(Worker { node: None, life: 0, slots: 4, draining: false, drained: false, silent: false });
        self.start_worker(self.workers.len() - 1);
    }

    pub(crate) fn start_replica(&mut self, replica: usize) {
        let config = scheduler::Config {
            replica: ReplicaId(Arc::from(format!("s{}", replica + 1))),
            partitions: self.partitions,
            misfire_threshold: limits::MISFIRE_THRESHOLD,
        };
        let now = self.now();
        let node = &mut self.replicas[replica];
        node.life += 1;
        node.stopped = false;
        node.scheduler = Some(Scheduler::new(config, now));
        self.tell_replica(replica, scheduler::Event::Tick);
        (0..self.workers.len()).for_each(|worker| self.connect_to(worker, replica));
    }

    pub(crate) fn crash_replica(&mut self, replica: usize) {
        self.replicas[replica].scheduler = None;
        self.replicas[replica].waiting.clear();
        self.replicas[replica].paused = false;
        self.drop_links(|link| link.replica == replica);
    }

    pub(crate) fn pause_replica(&mut self, replica: usize) {
        self.replicas[replica].paused = true;
    }

    pub(crate) fn resume_replica(&mut self, replica: usize) {
        self.replicas[replica].paused = false;
        while let Some(event) = self.replicas[replica].waiting.pop_front() {
            self.tell_replica(replica, event);
        }
        self.tell_replica(replica, scheduler::Event::Tick);
    }

    pub(crate) fn start_worker(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        node.life += 1;
        node.draining = false;
        node.drained = false;
        let config = worker::Config {
            worker: WorkerId(Arc::from(format!("w{}", worker + 1))),
            life: WorkerLife(node.life),
            slots: node.slots,
            handlers: vec![Arc::from("command")],
        };
        node.node = Some(WorkerNode::new(config, Monotonic(self.time)));
        self.connect(worker);
    }

    /// The process ends, with all that it ran; its connections break.
    pub(crate) fn crash_worker(&mut self, worker: usize) {
        self.workers[worker].node = None;
        let time = self.time;
        let gone: Vec<_> = self
            .running
            .range((worker, InstanceId(0), Fence(0))..(worker + 1, InstanceId(0), Fence(0)))
            .map(|(key, index)| (*key, *index))
            .collect();
        for (key, index) in gone {
            self.running.remove(&key);
            self.began[index].ended = Some((time, false));
        }
        self.disconnect(worker);
    }

    pub(crate) fn connect(&mut self, worker: usize) {
        (0..self.replicas.len()).for_each(|replica| self.connect_to(worker, replica));
    }

    fn connect_to(&mut self, worker: usize, replica: usize) {
        let is_linked = self.links.values().any(|link| link.worker == worker && link.replica == replica);
        let is_up = self.replicas[replica].scheduler.is_some() && self.workers[worker].node.is_some() && !self.workers[worker].silent;
        if is_linked || !is_up {
            return;
        }
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.links.insert(connection, Link { replica, worker, held: false, down: VecDeque::new() });
        self.tell_worker(worker, worker::Event::Connected(connection));
    }

    /// Its connections break, with what is under way on them, and both sides are told.
    pub(crate) fn disconnect(&mut self, worker: usize) {
        self.drop_links(|link| link.worker == worker);
    }

    fn drop_links(&mut self, is_meant: impl Fn(&Link) -> bool) {
        let gone: Vec<_> =
            self.links.iter().filter(|(_, link)| is_meant(link)).map(|(id, link)| (*id, link.replica, link.worker)).collect();
        for (connection, replica, worker) in gone {
            self.links.remove(&connection);
            self.tell_replica(replica, scheduler::Event::WorkerDisconnected { connection });
            self.tell_worker(worker, worker::Event::Disconnected(connection));
        }
    }

    /// Nothing gets through any more, and nobody is told: a cable that was pulled.
    pub(crate) fn silence(&mut self, worker: usize) {
        self.workers[worker].silent = true;
    }

    pub(crate) fn unsilence(&mut self, worker: usize) {
        if std::mem::take(&mut self.workers[worker].silent) {
            self.disconnect(worker);
            self.connect(worker);
        }
    }

    /// What goes to this worker waits on the way.
    pub(crate) fn hold_messages_to(&mut self, worker: usize) {
        self.links.values_mut().filter(|link| link.worker == worker).for_each(|link| link.held = true);
    }

    pub(crate) fn let_messages_through_to(&mut self, worker: usize) {
        let connections: Vec<_> = self.links.iter().filter(|(_, link)| link.worker == worker).map(|(id, _)| *id).collect();
        for connection in connections {
            let link = self.links.get_mut(&connection).expect("just listed");
            link.held = false;
            for messages in std::mem::take(&mut link.down) {
                self.send(0, Delivery::Down(connection, messages));
            }
        }
    }

    // What people do.

    pub(crate) fn define(&mut self, definition: TaskDefinition) -> TaskId {
        let name = definition.name.clone();
        let at = self.now().wall;
        let id = self.store.define(&name, Some(definition), at);
        self.signal();
        id
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let at = self.now().wall;
        self.store.define(name, None, at);
        self.signal();
    }

    pub(crate) fn trigger(&mut self, name: &str, delay: Option<u64>) -> InboxId {
        let (task, _) = self.store.names[name];
        let submission = Submission { key: None, payload: None, delay: delay.map(Millis) };
        let at = self.now().wall;
        let id = self.store.submit(name, Request::Trigger { task, submissions: vec![submission] }, at);
        self.signal();
        id
    }

    pub(crate) fn cancel(&mut self, instance: InstanceId) -> InboxId {
        let at = self.now().wall;
        let id = self.store.submit("", Request::Cancel { instance, reason: Some(Arc::from("no longer needed")) }, at);
        self.signal();
        id
    }

    fn signal(&mut self) {
        for replica in 0..self.replicas.len() {
            self.tell_replica(replica, scheduler::Event::InboxSignalled);
        }
    }

    pub(crate) fn script(&mut self, name: &str, runs: &[Run]) {
        self.scripts.insert(Arc::from(name), runs.to_vec());
    }

    // Time.

    /// Sets the wall clock.
    pub(crate) fn step_wall(&mut self, by: i64) {
        self.wall_offset += by;
        self.highest_offset = self.highest_offset.max(self.wall_offset);
        self.store.wall_was_set = true;
        for replica in 0..self.replicas.len() {
            self.tell_replica(replica, scheduler::Event::Tick);
        }
    }

    /// Lets time pass, and everything happen that belongs to it.
    pub(crate) fn run(&mut self, millis: u64) {
        let until = self.time + millis;
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.time = self.time.max(at);
            self.step();
        }
        self.time = until;
    }

    /// Lets time pass until the wall clock is this long after the beginning.
    pub(crate) fn run_until(&mut self, millis: u64) {
        let passed = self.now().wall.0 - START;
        self.run((millis as i64 - passed).max(0) as u64);
    }

    fn next_at(&self) -> Option<u64> {
        let queued = self.queue.keys().next().map(|(at, _)| *at);
        let replicas =
            self.replicas.iter().filter(|replica| !replica.paused).filter_map(|replica| replica.scheduler.as_ref()?.poll_timeout());
        let workers = self.workers.iter().filter_map(|worker| worker.node.as_ref()?.poll_timeout());
        replicas.chain(workers).map(|at| at.0).chain(queued).min()
    }

    fn step(&mut self) {
        self.steps += 1;
        if let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= self.time
        {
            let delivery = entry.remove();
            return self.deliver(delivery);
        }
        for replica in 0..self.replicas.len() {
            let timeout = self.replicas[replica].scheduler.as_ref().and_then(Scheduler::poll_timeout);
            if timeout.is_some_and(|at| at.0 <= self.time) && !self.replicas[replica].paused {
                self.tell_replica(replica, scheduler::Event::Tick);
                self.ticks = if self.ticks.0 == self.time { (self.time, self.ticks.1 + 1) } else { (self.time, 0) };
                assert!(self.ticks.1 < 1_000, "a scheduler asks for ever to be called at {}", self.time);
            }
        }
        for worker in 0..self.workers.len() {
            let timeout = self.workers[worker].node.as_ref().and_then(WorkerNode::poll_timeout);
            if timeout.is_some_and(|at| at.0 <= self.time) {
                self.tell_worker(worker, worker::Event::Tick);
            }
        }
    }

    fn send(&mut self, latency: u64, delivery: Delivery) {
        self.sent += 1;
        self.queue.insert((self.time + latency, self.sent), delivery);
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Store(..) if self.store_is_held => self.held.push(delivery),
            Delivery::Store(replica, life, command, asked_at) => {
                for event in self.ask_store(replica, command, asked_at) {
                    self.send(self.store_latency, Delivery::Answer(replica, life, event));
                }
            }
            Delivery::Answer(replica, life, event) => {
                if self.replicas[replica].life == life {
                    self.tell_replica(replica, event);
                }
            }
            Delivery::Up(connection, messages) => {
                let Some(link) = self.links.get(&connection) else { return };
                if !self.workers[link.worker].silent {
                    self.tell_replica(link.replica, scheduler::Event::WorkerMessages { connection, messages });
                }
            }
            Delivery::Down(connection, messages) => {
                let Some(link) = self.links.get_mut(&connection) else { return };
                if link.held {
                    link.down.push_back(messages);
                } else if !self.workers[link.worker].silent {
                    let worker = link.worker;
                    self.tell_worker(worker, worker::Event::Messages { connection, messages });
                }
            }
            Delivery::HandlerEnds { worker, life, instance, fence, end } => {
                if self.workers[worker].life == life && self.workers[worker].node.is_some() {
                    self.handler_ended(worker, instance, fence, end);
                }
            }
        }
    }

    /// Carries out what was held, in order.
    pub(crate) fn release_store(&mut self) {
        self.store_is_held = false;
        for delivery in std::mem::take(&mut self.held) {
            self.send(0, delivery);
        }
    }

    fn ask_store(&mut self, replica: usize, command: scheduler::Command, asked_at: Monotonic) -> Vec<scheduler::Event> {
        use scheduler::{Command, Event};
        let name = ReplicaId(Arc::from(format!("s{}", replica + 1)));
        let now = Monotonic(self.time);
        match command {
            Command::Beat => vec![Event::MembersSeen { members: self.store.beat(&name, now) }],
            Command::AcquireLeases { partitions, most } => {
                let mut events = Vec::new();
                let mut refused = Vec::new();
                for partition in partitions {
                    let answer = if events.len() < most { self.store.acquire(&name, partition, now) } else { None };
                    match answer {
                        Some((epoch, commit_seq, sequence)) => {
                            events.push(Event::LeaseGranted { partition, epoch, commit_seq, sequence, requested_at: asked_at });
                        }
                        None => refused.push(partition),
                    }
                }
                if !refused.is_empty() {
                    events.push(Event::LeaseRefused { partitions: refused });
                }
                events
            }
            Command::RenewLeases(asked) => {
                let lost = asked.iter().filter(|(id, epoch)| !self.store.renew(*id, *epoch, now)).map(|(id, _)| *id).collect();
                vec![Event::LeasesRenewed { requested_at: asked_at, asked, lost }]
            }
            Command::ReleaseLeases { leases, leaves } => {
                leases.iter().for_each(|(id, epoch)| self.store.release(*id, *epoch));
                if leaves {
                    self.store.leave(&name);
                }
                for replica in 0..self.replicas.len() {
                    self.tell_replica(replica, scheduler::Event::LeasesSignalled);
                }
                vec![]
            }
            Command::LoadSnapshot { partition, epoch } if self.failing_snapshots > 0 => {
                self.failing_snapshots -= 1;
                vec![Event::SnapshotFailed { partition, epoch }]
            }
            Command::LoadSnapshot { partition, epoch } => {
                vec![Event::SnapshotLoaded { partition, epoch, snapshot: self.store.snapshot(partition) }]
            }
            Command::Commit(batch) => {
                let fate = self.fates.pop_front().unwrap_or(Fate::Carried);
                let carried = match fate {
                    Fate::Carried | Fate::UnknownApplied => self.store.commit(&batch),
                    Fate::Refused => Err("refused by the test".into()),
                    Fate::UnknownNotApplied => Ok(()),
                };
                if self.keeps_commits {
                    self.commits.push(batch.clone());
                }
                let outcome = match (fate, carried) {
                    (Fate::UnknownApplied | Fate::UnknownNotApplied, _) => CommitOutcome::Unknown { reason: Arc::from("no answer came") },
                    (_, Ok(())) => CommitOutcome::Committed,
                    (_, Err(reason)) => CommitOutcome::Refused { reason: Arc::from(reason) },
                };
                vec![Event::CommitFinished { commit: batch.id, outcome }]
            }
            Command::ReadInbox { partitions, after } => {
                let (entries, more) = self.store.read_inbox(&partitions, after, self.inbox_page);
                vec![Event::InboxRead { entries, more }]
            }
            Command::Send { .. } | Command::Alert(_) | Command::Stopped => unreachable!("not for the store"),
        }
    }

    pub(crate) fn tell_replica(&mut self, replica: usize, event: scheduler::Event) {
        use scheduler::Command;
        let now = self.now();
        let node = &mut self.replicas[replica];
        if node.paused {
            return node.waiting.push_back(event);
        }
        let Some(machine) = &mut node.scheduler else { return };
        machine.handle_event(now, event);
        let life = node.life;
        let mut commands = Vec::new();
        while let Some(command) = machine.poll_command() {
            commands.push(command);
        }
        node.asked_at = now.monotonic;
        for command in commands {
            match command {
                Command::Send { connection, messages } => self.send(self.network_latency, Delivery::Down(connection, messages)),
                Command::Alert(alert) => self.alerts.push((self.time, alert)),
                Command::Stopped => self.replicas[replica].stopped = true,
                command => self.send(self.store_latency, Delivery::Store(replica, life, command, now.monotonic)),
            }
        }
    }

    pub(crate) fn tell_worker(&mut self, worker: usize, event: worker::Event) {
        use worker::Command;
        let now = Monotonic(self.time);
        let Some(machine) = &mut self.workers[worker].node else { return };
        machine.handle_event(now, event);
        let mut commands = Vec::new();
        while let Some(command) = machine.poll_command() {
            commands.push(command);
        }
        for command in commands {
            match command {
                Command::Send { connection, messages } => self.send(self.network_latency, Delivery::Up(connection, messages)),
                Command::Start(assignment) => {
                    let life = self.workers[worker].life;
                    let (instance, fence) = (assignment.instance, assignment.fence);
                    let run = self.run_of(&assignment.task_name, assignment.attempt);
                    self.running.insert((worker, instance, fence), self.began.len());
                    self.began.push(Began { at: self.time, worker, life, instance, fence, ended: None });
                    self.send(run.takes, Delivery::HandlerEnds { worker, life, instance, fence, end: run.end });
                }
                Command::Cancel { instance, fence } => {
                    let row = &self.store.instances[&instance];
                    let name = self.store.definitions[&(row.task, row.version)].name.clone();
                    if let Some(after) = self.run_of(&name, row.attempt).obeys_after {
                        let life = self.workers[worker].life;
                        self.send(after, Delivery::HandlerEnds { worker, life, instance, fence, end: End::Cancelled });
                    }
                }
                Command::Kill { instance, fence } => {
                    let life = self.workers[worker].life;
                    self.send(0, Delivery::HandlerEnds { worker, life, instance, fence, end: End::Cancelled });
                }
                Command::Drained => self.workers[worker].drained = true,
            }
        }
    }

    fn run_of(&self, name: &str, attempt: u32) -> Run {
        let runs = self.scripts.get(name).map_or(&[][..], Vec::as_slice);
        runs.get((attempt.max(1) - 1) as usize).or(runs.last()).copied().unwrap_or_default()
    }

    fn handler_ended(&mut self, worker: usize, instance: InstanceId, fence: Fence, end: End) {
        let Some(index) = self.running.remove(&(worker, instance, fence)) else { return };
        self.began[index].ended = Some((self.time, end == End::Succeeded));
        let output = Output { bytes: b"out".to_vec(), dropped: 0 };
        self.tell_worker(worker, worker::Event::Ended { instance, fence, end, code: None, detail: None, output });
    }

    pub(crate) fn drain(&mut self, worker: usize) {
        self.workers[worker].draining = true;
        self.tell_worker(worker, worker::Event::Drain);
    }

    /// A worker that drains takes nothing more for the rest of its life.
    pub(crate) fn crash_if_draining(&mut self, worker: usize) {
        if self.workers[worker].draining {
            self.crash_worker(worker);
        }
    }

    // What to look at.

    /// Whether there is a task of this name by its newest version.
    pub(crate) fn is_defined(&self, name: &str) -> bool {
        self.store.names.get(name).is_some_and(|key| self.store.definitions.contains_key(key))
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        self.replicas[0].scheduler.as_ref().expect("it runs")
    }

    /// The instances of a task, oldest first.
    pub(crate) fn rows(&self, name: &str) -> Vec<&InstanceRow> {
        let Some((task, _)) = self.store.names.get(name) else { return Vec::new() };
        let mut rows: Vec<_> = self.store.instances.values().filter(|row| row.task == *task).collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// The states of a task's instances, oldest first.
    pub(crate) fn states(&self, name: &str) -> Vec<State> {
        self.rows(name).iter().map(|row| row.state).collect()
    }

    /// The fire times of a task's instances in seconds since the beginning, oldest instance first.
    pub(crate) fn fire_times(&self, name: &str) -> Vec<i64> {
        self.rows(name).iter().map(|row| (row.fire_time.0 - START) / 1_000).collect()
    }

    pub(crate) fn first(&self, name: &str) -> InstanceId {
        self.rows(name)[0].id
    }

    /// Handlers that run now.
    pub(crate) fn running_count(&self) -> usize {
        self.running.len()
    }

    /// When the handlers of a task's instances began, in milliseconds since the beginning.
    pub(crate) fn starts(&self, name: &str) -> Vec<u64> {
        let (task, _) = self.store.names[name];
        let of_task = self.began.iter().filter(|began| self.store.instances.get(&began.instance).is_some_and(|row| row.task == task));
        of_task.map(|began| began.at - ORIGIN).collect()
    }

    pub(crate) fn connection_between(&self, worker: usize, replica: usize) -> ConnectionId {
        let link = self.links.iter().find(|(_, link)| link.worker == worker && link.replica == replica);
        *link.expect("they are connected").0
    }

    /// To the first replica.
    pub(crate) fn connection_of(&self, worker: usize) -> ConnectionId {
        self.connection_between(worker, 0)
    }

    /// What a worker says that holds nothing and has received nothing.
    #[cfg(feature = "simulation")]
    pub(crate) fn hello_of(&self, worker: usize) -> Hello {
        Hello {
            worker: WorkerId(Arc::from(format!("w{}", worker + 1))),
            life: WorkerLife(self.workers[worker].life),
            slots: self.workers[worker].slots,
            handlers: vec![Arc::from("command")],
            draining: false,
            running: vec![],
            received: 0,
        }
    }

    /// Nothing that a promise of the store or of the machines forbids has happened.
    pub(crate) fn assert_sound(&self) {
        assert!(self.store.violations.is_empty(), "{:#?}", self.store.violations);
    }
}
