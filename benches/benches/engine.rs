//! The engine alone: whole life cycles of no-op instances through both machines, with a store that answers at once.
//!
//! What a life cycle costs here is what is left over for the store and the transport of the time that one takes in production.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use punctual_core::batch::{CommitOutcome, Output, Renewal, Snapshot};
use punctual_core::definition::{Blocking, ConcurrencyPolicy, Handler, Policies, TaskDefinition, Trigger, Workflow};
use punctual_core::ids::{ConnectionId, Epoch, InboxId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::{InboxEntry, Request, Submission};
use punctual_core::limits;
use punctual_core::protocol::End;
use punctual_core::routing::WorkerTraits;
use punctual_core::scheduler::{self, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_core::worker::{self, WorkerNode};
use punctual_core::workflow::{Graph, NodeSpec};

const PARTITIONS: u16 = 64;
const TASKS: u64 = 1_000;
const SUBMISSIONS: usize = 500;

fn definition(task: u64) -> TaskDefinition {
    let handler = Handler { name: Arc::from("noop"), config: Arc::from("{}") };
    TaskDefinition {
        policies: Arc::new(Policies {
            concurrency: ConcurrencyPolicy { max_running: limits::MAX_RUNNING_MAX, blocking: Blocking::Discard },
            ..Policies::default()
        }),
        ..TaskDefinition::new(format!("task-{task}"), Trigger::Manual, handler)
    }
}

/// Both machines, joined directly.
struct Pair {
    scheduler: Scheduler,
    worker: WorkerNode,
    now: u64,
    next_entry: u64,
    inbox: Vec<InboxEntry>,
}

const LINK: ConnectionId = ConnectionId(1);

impl Pair {
    fn new() -> Self {
        let config = scheduler::Config {
            replica: ReplicaId(Arc::from("bench")),
            partitions: PARTITIONS,
            commits_at_once: 1,
            misfire_threshold: limits::MISFIRE_THRESHOLD,
        };
        let now = Now { wall: Timestamp(0), monotonic: Monotonic(0) };
        let worker = worker::Config {
            worker: WorkerId(Arc::from("bench")),
            life: WorkerLife(1),
            slots: 100_000,
            handlers: vec![Arc::from("noop")],
            traits: WorkerTraits::default(),
        };
        let mut pair = Pair {
            scheduler: Scheduler::new(config, now),
            worker: WorkerNode::new(worker, now.monotonic),
            now: 0,
            next_entry: 1,
            inbox: Vec::new(),
        };
        pair.worker.handle_event(Monotonic(0), worker::Event::Connected(LINK));
        pair.run();
        for task in 0..TASKS {
            let request = Request::DefinitionChanged {
                task: TaskId(task),
                version: Version(1),
                definition: Some(Arc::new(definition(task))),
                fired_until: None,
            };
            pair.put(task, request);
        }
        pair.run();
        pair
    }

    fn put(&mut self, task: u64, request: Request) {
        let partition = PartitionId((task % u64::from(PARTITIONS)) as u16);
        let entry = InboxEntry { id: InboxId(self.next_entry), partition, at: Timestamp(self.now as i64), by: Arc::from("bench"), request };
        self.next_entry += 1;
        self.inbox.push(entry);
    }

    /// Lets both talk until neither has anything more to say.
    fn run(&mut self) {
        self.now += 1;
        self.tell(scheduler::Event::InboxSignalled);
        loop {
            let mut is_idle = true;
            while let Some(command) = self.scheduler.poll_command() {
                is_idle = false;
                self.carry_out(command);
            }
            while let Some(command) = self.worker.poll_command() {
                is_idle = false;
                match command {
                    worker::Command::Send { messages, .. } => {
                        self.tell(scheduler::Event::WorkerMessages { connection: LINK, messages });
                    }
                    worker::Command::Start(assignment) => {
                        let ended = worker::Event::Ended {
                            instance: assignment.instance,
                            fence: assignment.fence,
                            end: End::Succeeded,
                            code: None,
                            detail: None,
                            output: Output::default(),
                            result: None,
                            items: None,
                            retry_after: None,
                        };
                        self.worker.handle_event(Monotonic(self.now), ended);
                    }
                    _ => unreachable!("nothing is stopped here"),
                }
            }
            if is_idle {
                break;
            }
        }
    }

    fn carry_out(&mut self, command: scheduler::Command) {
        match command {
            scheduler::Command::Beat => self.tell(scheduler::Event::MembersSeen { members: vec![ReplicaId("bench".into())] }),
            scheduler::Command::AcquireLeases { partitions, .. } => {
                for partition in partitions {
                    let requested_at = Monotonic(self.now);
                    self.tell(scheduler::Event::LeaseGranted { partition, epoch: Epoch(1), commit_seq: 0, sequence: 0, requested_at });
                }
            }
            scheduler::Command::LoadSnapshot { partition, epoch } => {
                self.tell(scheduler::Event::SnapshotLoaded { partition, epoch, snapshot: Snapshot::default() });
            }
            scheduler::Command::Commit(batch) => {
                black_box(&batch);
                self.tell(scheduler::Event::CommitFinished { commit: batch.id, outcome: CommitOutcome::Committed });
            }
            scheduler::Command::ReadInbox { .. } => {
                let more = self.inbox.len() > limits::INBOX_READ_MAX;
                let rest = self.inbox.split_off(self.inbox.len().min(limits::INBOX_READ_MAX));
                let entries = std::mem::replace(&mut self.inbox, rest);
                self.tell(scheduler::Event::InboxRead { entries, more });
            }
            scheduler::Command::Send { messages, .. } => {
                self.worker.handle_event(Monotonic(self.now), worker::Event::Messages { connection: LINK, messages });
            }
            scheduler::Command::RenewLeases(_) | scheduler::Command::ReleaseLeases { .. } => {}
            scheduler::Command::ReadItems { .. } | scheduler::Command::ReadResults { .. } => unreachable!("nothing is mapped here"),
            scheduler::Command::Alert(alert) => panic!("{alert:?}"),
            scheduler::Command::Stopped => {}
        }
    }

    fn tell(&mut self, event: scheduler::Event) {
        let now = Now { wall: Timestamp(self.now as i64), monotonic: Monotonic(self.now) };
        self.scheduler.handle_event(now, event);
    }
}

fn life_cycles(criterion: &mut Criterion) {
    let mut pair = Pair::new();
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(10 * SUBMISSIONS as u64));
    group.sample_size(20);
    let mut task = 0;
    group.bench_function("life cycles of 5000 no-op instances", |bencher| {
        bencher.iter(|| {
            for _ in 0..10 {
                task = (task + 1) % TASKS;
                let submissions = vec![Submission::default(); SUBMISSIONS];
                pair.put(task, Request::Trigger { task: TaskId(task), submissions });
            }
            pair.run();
            assert_eq!(pair.scheduler.instance_count(), 0, "every instance has ended");
        });
    });
    group.finish();
}

/// A cron fire is the search for the next fire time and an instance's life.
fn fires(criterion: &mut Criterion) {
    let mut pair = Pair::new();
    for task in 0..TASKS {
        let trigger = Trigger::FixedRate { interval: Millis::from_secs(1) };
        let definition = TaskDefinition { trigger, ..definition(task) };
        pair.put(
            task,
            Request::DefinitionChanged {
                task: TaskId(task),
                version: Version(2),
                definition: Some(Arc::new(definition)),
                fired_until: None,
            },
        );
    }
    pair.run();
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(TASKS));
    group.sample_size(20);
    group.bench_function("1000 fires of loops", |bencher| {
        bencher.iter(|| {
            // Leases are renewed by nobody here: the clock is turned within what they last.
            pair.now += 999;
            pair.tell(scheduler::Event::LeasesRenewed {
                requested_at: Monotonic(pair.now),
                asked: (0..PARTITIONS)
                    .map(|partition| Renewal { partition: PartitionId(partition), epoch: Epoch(1), commit_seq: 0 })
                    .collect(),
                lost: Vec::new(),
            });
            pair.run();
            assert_eq!(pair.scheduler.instance_count(), 0, "every instance has ended");
        });
    });
    group.finish();
}

/// Workflows of so many nodes, in layers: each node comes after two of the layer before, and the last one after the whole last layer.
fn workflow(task: u64, layers: usize, width: usize) -> TaskDefinition {
    let name = |layer: usize, place: usize| format!("n{layer}.{}", place % width);
    let mut nodes = Vec::new();
    for layer in 0..layers {
        for place in 0..width {
            let before = layer.checked_sub(1).map(|before| [name(before, place), name(before, place + 1)]);
            let before: Vec<_> = before.iter().flatten().map(String::as_str).collect();
            nodes.push(NodeSpec::new(&name(layer, place), if width > 1 { before } else { before[..before.len().min(1)].to_vec() }));
        }
    }
    let last: Vec<_> = (0..width).map(|place| name(layers - 1, place)).collect();
    nodes.push(NodeSpec::new("last", last.iter().map(String::as_str)));
    let plain = definition(task);
    let definitions = nodes.iter().map(|_| Arc::new(plain.clone())).collect();
    let graph = Graph::new(nodes).expect("a graph");
    TaskDefinition { workflow: Some(Arc::new(Workflow::new(graph, definitions))), ..plain }
}

/// Whole runs through both machines. What a node costs does not depend on how many there are.
fn runs_of_workflows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine/workflow");
    group.sample_size(10);
    for (what, layers, width) in [("1000 nodes", 27, 37), ("10000 nodes", 101, 99), ("depth 1000", 1_000, 1), ("fan-in of 5000", 1, 5_000)]
    {
        let mut pair = Pair::new();
        let definition = Some(Arc::new(workflow(TASKS, layers, width)));
        pair.put(TASKS, Request::DefinitionChanged { task: TaskId(TASKS), version: Version(1), definition, fired_until: None });
        pair.run();
        group.throughput(Throughput::Elements((layers * width + 1) as u64));
        group.bench_function(what, |bencher| {
            bencher.iter(|| {
                pair.put(TASKS, Request::Trigger { task: TaskId(TASKS), submissions: vec![Submission::default()] });
                // What a commit has no room for goes on with the next tick.
                for _ in 0..20 {
                    pair.run();
                }
                assert_eq!(pair.scheduler.instance_count(), 0, "the run has ended");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, life_cycles, fires, runs_of_workflows);
criterion_main!(benches);
