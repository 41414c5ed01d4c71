//! A scheduler by itself at a desk: a store that answers at once, and workers of any kind that do as they are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::batch::{Batch, CommitOutcome, Output, Snapshot, TaskRecord};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{ConnectionId, Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::{InboxEntry, Request, Submission};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::protocol::{Assignment, End, Hello, Report, ToScheduler, ToWorker};
use punctual_core::scheduler::{Alert, Command, Config, Event, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_sim::tabletop::START;

const PARTITION: PartitionId = PartitionId(0);
const HEARTBEAT_MS: u64 = 5_000;
const JOINS_WITHIN_MS: u64 = 3_000;

/// An attempt that a worker has begun.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// In milliseconds.
    pub(crate) at: u64,
    pub(crate) worker: Arc<str>,
    pub(crate) task: Arc<str>,
    pub(crate) instance: InstanceId,
    fence: Fence,
    connection: ConnectionId,
}

pub(crate) struct Desk {
    pub(crate) scheduler: Scheduler,
    now: u64,
    /// Where the test's time begins.
    origin: u64,
    pub(crate) starts: Vec<Start>,
    pub(crate) alerts: Vec<Alert>,
    /// How long an attempt takes, in milliseconds, by the task's name; others take as long as the test does.
    pub(crate) takes: BTreeMap<&'static str, u64>,
    /// How attempts end, by the task's name; others succeed.
    pub(crate) ends: BTreeMap<&'static str, End>,
    rows: BTreeMap<InstanceId, InstanceRow>,
    tasks: BTreeMap<TaskId, (Version, Arc<TaskDefinition>)>,
    connections: BTreeMap<Arc<str>, ConnectionId>,
    next_connection: u64,
    inbox: Vec<InboxEntry>,
    next_entry: u64,
    to_end: Vec<(u64, Start)>,
    heartbeat_at: u64,
    commit_seq: u64,
    sequence: u64,
    epoch: u64,
}

fn scheduler(now: Now) -> Scheduler {
    let replica = ReplicaId(Arc::from("s"));
    Scheduler::new(Config { replica, partitions: 1, commits_at_once: 1, misfire_threshold: Millis(5_000) }, now)
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let now = Now { wall: Timestamp(START), monotonic: Monotonic(0) };
        let mut desk = Desk {
            scheduler: scheduler(now),
            now: 0,
            origin: 0,
            starts: Vec::new(),
            alerts: Vec::new(),
            takes: BTreeMap::new(),
            ends: BTreeMap::new(),
            rows: BTreeMap::new(),
            tasks: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 1,
            inbox: Vec::new(),
            next_entry: 1,
            to_end: Vec::new(),
            heartbeat_at: HEARTBEAT_MS,
            commit_seq: 0,
            sequence: 0,
            epoch: 0,
        };
        desk.tell(Event::Tick);
        // A replica waits a moment for its first worker before it takes its share.
        desk.run(JOINS_WITHIN_MS);
        assert!(desk.scheduler.owns_everything());
        desk.origin = desk.now;
        desk
    }

    /// A worker that knows the handler of all tasks, with so many slots.
    pub(crate) fn worker(&mut self, name: &str, slots: u32) {
        self.worker_with(name, slots, |_| {});
    }

    /// A worker whose hello is changed before it is said. Said again, it takes the place of what was said before.
    pub(crate) fn worker_with(&mut self, name: &str, slots: u32, change: impl FnOnce(&mut Hello)) {
        let name: Arc<str> = Arc::from(name);
        let connection = *self.connections.entry(name.clone()).or_insert(ConnectionId(self.next_connection));
        self.next_connection += 1;
        let mut hello = Hello {
            worker: WorkerId(name),
            life: WorkerLife(1),
            slots,
            handlers: vec![Arc::from("command")],
            draining: false,
            running: Vec::new(),
            received: u64::MAX,
            traits: Default::default(),
        };
        change(&mut hello);
        self.tell(Event::WorkerMessages { connection, messages: vec![ToScheduler::Hello(hello)] });
    }

    pub(crate) fn says(&mut self, worker: &str, message: ToScheduler) {
        let connection = self.connections[worker];
        self.tell(Event::WorkerMessages { connection, messages: vec![message] });
    }

    pub(crate) fn disconnect(&mut self, worker: &str) {
        let connection = self.connections.remove(worker).expect("a worker that is connected");
        self.tell(Event::WorkerDisconnected { connection });
    }

    /// Makes a task, or edits the one of this name.
    pub(crate) fn define(&mut self, definition: TaskDefinition) -> TaskId {
        let known = self.tasks.iter().find(|(_, (_, known))| known.name == definition.name).map(|(id, (version, _))| (*id, version.0 + 1));
        let (task, version) = known.unwrap_or((TaskId(self.tasks.len() as u64 + 1), 1));
        let (version, definition) = (Version(version), Arc::new(definition));
        self.tasks.insert(task, (version, definition.clone()));
        self.put(Request::DefinitionChanged { task, version, definition: Some(definition), fired_until: None });
        task
    }

    pub(crate) fn remove(&mut self, task: TaskId) {
        let (version, _) = self.tasks.remove(&task).expect("a task that is defined");
        self.put(Request::DefinitionChanged { task, version: Version(version.0 + 1), definition: None, fired_until: None });
    }

    pub(crate) fn trigger(&mut self, task: TaskId, count: usize) {
        self.put(Request::Trigger { task, submissions: vec![Submission::default(); count] });
    }

    pub(crate) fn cancel(&mut self, instance: InstanceId) {
        self.put(Request::Cancel { instance, reason: None });
    }

    fn put(&mut self, request: Request) {
        let (id, at) = (InboxId(self.next_entry), self.wall());
        self.next_entry += 1;
        self.inbox.push(InboxEntry { id, partition: PARTITION, at, by: Arc::from("test"), request });
        self.tell(Event::InboxSignalled);
    }

    /// Lets an attempt end.
    pub(crate) fn end(&mut self, start: &Start) {
        let end = self.ends.get(&*start.task).copied().unwrap_or(End::Succeeded);
        let (instance, fence) = (start.instance, start.fence);
        let report = Report {
            instance,
            fence,
            end,
            code: None,
            detail: None,
            output: Output::default(),
            result: None,
            items: None,
            retry_after: None,
        };
        self.tell(Event::WorkerMessages { connection: start.connection, messages: vec![ToScheduler::Finished(report)] });
    }

    /// An attempt is given back.
    pub(crate) fn give_back(&mut self, start: &Start) {
        let (instance, fence) = (start.instance, start.fence);
        let messages = vec![ToScheduler::Returned { instance, fence }];
        self.tell(Event::WorkerMessages { connection: start.connection, messages });
    }

    /// Another scheduler takes over, on another clock; the workers come to it and say that they hold nothing.
    pub(crate) fn take_over(&mut self) {
        let workers: Vec<_> = self.scheduler.workers();
        self.scheduler = scheduler(self.clocks());
        self.connections.clear();
        self.tell(Event::Tick);
        for worker in workers {
            let (name, slots, traits) = (worker.worker.0.clone(), worker.slots as u32, worker.traits);
            self.worker_with(&name, slots, |hello| hello.traits = traits);
        }
    }

    /// Lets time pass, in milliseconds.
    pub(crate) fn run(&mut self, millis: u64) {
        let until = self.now + millis;
        loop {
            let timeout = self.scheduler.poll_timeout().map_or(u64::MAX, |at| at.0.max(self.now));
            let ends_at = self.to_end.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX);
            let next = timeout.min(ends_at).min(self.heartbeat_at);
            if next > until {
                break;
            }
            // Whoever wants to be called again at once is called a moment later.
            self.now = next.max(self.now + u64::from(next == self.now && ends_at > self.now && self.heartbeat_at > self.now));
            if self.heartbeat_at <= self.now {
                self.heartbeat_at += HEARTBEAT_MS;
                for connection in self.connections.values().copied().collect::<Vec<_>>() {
                    self.tell(Event::WorkerMessages { connection, messages: vec![ToScheduler::Heartbeat] });
                }
            }
            let now = self.now;
            let ended: Vec<_> = self.to_end.extract_if(.., |(at, _)| *at <= now).collect();
            ended.iter().for_each(|(_, start)| self.end(start));
            self.tell(Event::Tick);
        }
        self.now = until;
        self.tell(Event::Tick);
    }

    /// The states of a task's instances, in the order of their ids.
    pub(crate) fn states(&self, task: TaskId) -> Vec<State> {
        self.rows.values().filter(|row| row.task == task).map(|row| row.state).collect()
    }

    /// The instances of a task, in the order of their ids.
    pub(crate) fn instances(&self, task: TaskId) -> Vec<InstanceId> {
        self.rows.values().filter(|row| row.task == task).map(|row| row.id).collect()
    }

    /// When a task's attempts began, in milliseconds.
    pub(crate) fn starts_of(&self, task: &str) -> Vec<u64> {
        self.starts.iter().filter(|start| &*start.task == task).map(|start| start.at).collect()
    }

    /// Who was given a task's attempts, in order.
    pub(crate) fn workers_of(&self, task: &str) -> Vec<&str> {
        self.starts.iter().filter(|start| &*start.task == task).map(|start| &*start.worker).collect()
    }

    fn wall(&self) -> Timestamp {
        Timestamp(START + self.now as i64)
    }

    fn clocks(&self) -> Now {
        Now { wall: self.wall(), monotonic: Monotonic(self.now) }
    }

    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while !events.is_empty() {
            let event = events.remove(0);
            let now = self.clocks();
            self.scheduler.handle_event(now, event);
            while let Some(command) = self.scheduler.poll_command() {
                events.extend(self.carry_out(command));
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Option<Event> {
        let requested_at = Monotonic(self.now);
        Some(match command {
            Command::Beat => Event::MembersSeen { members: vec![ReplicaId(Arc::from("s"))] },
            Command::AcquireLeases { .. } => {
                self.epoch += 1;
                let (epoch, commit_seq, sequence) = (Epoch(self.epoch), self.commit_seq, self.sequence);
                Event::LeaseGranted { partition: PARTITION, epoch, commit_seq, sequence, requested_at }
            }
            Command::RenewLeases(asked) => Event::LeasesRenewed { requested_at, asked, lost: Vec::new() },
            Command::LoadSnapshot { partition, epoch } => Event::SnapshotLoaded { partition, epoch, snapshot: self.snapshot() },
            Command::Commit(batch) => {
                self.write(&batch);
                Event::CommitFinished { commit: batch.id, outcome: CommitOutcome::Committed }
            }
            Command::ReadInbox { after, .. } => {
                let entries = self.inbox.iter().filter(|entry| entry.id > after).cloned().collect();
                Event::InboxRead { entries, more: false }
            }
            Command::Send { connection, messages } => {
                let assigned = messages.iter().filter_map(|message| if let ToWorker::Assign(it) = message { Some(it) } else { None });
                assigned.for_each(|assignment| self.begin(connection, assignment));
                return None;
            }
            Command::Alert(alert) => {
                self.alerts.push(alert);
                return None;
            }
            Command::ReadItems { .. } | Command::ReadResults { .. } => unreachable!("nothing is mapped at the desk"),
            Command::ReleaseLeases { .. } | Command::Stopped => return None,
        })
    }

    fn begin(&mut self, connection: ConnectionId, assignment: &Assignment) {
        let (worker, _) = self.connections.iter().find(|(_, its)| **its == connection).expect("a worker that is connected");
        let Assignment { instance, fence, .. } = *assignment;
        let task = assignment.task_name.clone();
        let start = Start { at: self.now - self.origin, worker: worker.clone(), task, instance, fence, connection };
        if let Some(takes) = self.takes.get(&*start.task) {
            self.to_end.push((self.now + takes, start.clone()));
        }
        self.starts.push(start);
    }

    fn write(&mut self, batch: &Batch) {
        for row in batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row)) {
            self.rows.insert(row.id, row.clone());
        }
        for lease in &batch.leases {
            (self.commit_seq, self.sequence) = (lease.commit_seq, lease.sequence);
        }
        self.inbox.retain(|entry| !batch.applied.contains(&entry.id));
    }

    fn snapshot(&self) -> Snapshot {
        let record = |(task, (version, definition)): (&TaskId, &(Version, Arc<TaskDefinition>))| TaskRecord {
            task: *task,
            version: *version,
            definition: definition.clone(),
            next_fire: None,
            fired_until: None,
        };
        let live = self.rows.values().filter(|row| !row.state.is_terminal());
        let instances = live.map(|row| (row.clone(), self.tasks[&row.task].1.clone())).collect();
        Snapshot { tasks: self.tasks.iter().map(record).collect(), instances, ..Snapshot::default() }
    }
}
