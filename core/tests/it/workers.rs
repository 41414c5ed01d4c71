//! A worker node by itself.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutPolicy};
use punctual_core::ids::{ConnectionId, Fence, InstanceId, PartitionId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::limits;
use punctual_core::protocol::{Assignment, End, ToScheduler, ToWorker};
use punctual_core::time::{Millis, Monotonic, Timestamp};
use punctual_core::worker::{Command, Config, Event, WorkerNode};

const SCHEDULER: ConnectionId = ConnectionId(1);
const ANOTHER: ConnectionId = ConnectionId(2);
/// Just as long as makes a worker give up.
const SILENCE: Millis = limits::WORKER_LEASE;

struct Worker {
    node: WorkerNode,
    now: Monotonic,
}

impl Worker {
    /// A worker that two schedulers have welcomed.
    fn welcomed() -> Worker {
        let handlers = vec![Arc::from("noop")];
        let config = Config { worker: WorkerId(Arc::from("w")), life: WorkerLife(1), slots: 4, handlers, traits: Default::default() };
        let mut worker = Worker { node: WorkerNode::new(config, Monotonic(0)), now: Monotonic(0) };
        for connection in [SCHEDULER, ANOTHER] {
            worker.hears(Event::Connected(connection));
            worker.told(connection, vec![welcome()]);
        }
        worker
    }

    /// What it does about an event.
    fn hears(&mut self, event: Event) -> Vec<Command> {
        self.node.handle_event(self.now, event);
        std::iter::from_fn(|| self.node.poll_command()).collect()
    }

    fn told(&mut self, connection: ConnectionId, messages: Vec<ToWorker>) -> Vec<Command> {
        self.hears(Event::Messages { connection, messages })
    }
}

fn welcome() -> ToWorker {
    ToWorker::Welcome { heartbeat: limits::HEARTBEAT_INTERVAL, lease: limits::WORKER_LEASE }
}

fn assignment(sequence: u64) -> Arc<Assignment> {
    Arc::new(Assignment {
        instance: InstanceId::new(PartitionId(0), sequence),
        attempt: 1,
        fence: Fence(sequence),
        task: TaskId(1),
        task_name: Arc::from("a"),
        version: Version(1),
        fire_time: Timestamp(0),
        ordinal: 0,
        run: 1,
        shard: None,
        map: None,
        node: None,
        handler: Handler { name: Arc::from("noop"), config: Arc::from("{}") },
        payload: None,
        timeout: TimeoutPolicy::default(),
    })
}

fn started(commands: &[Command]) -> Vec<u64> {
    let starts =
        commands.iter().filter_map(|command| if let Command::Start(assignment) = command { Some(assignment.fence.0) } else { None });
    starts.collect()
}

fn sent(commands: &[Command], to: ConnectionId) -> Vec<&ToScheduler> {
    let messages = commands.iter().filter_map(|command| match command {
        Command::Send { connection, messages } if *connection == to => Some(messages),
        _ => None,
    });
    messages.flatten().collect()
}

#[test]
fn what_is_heard_at_last_does_not_make_up_for_the_silence() {
    let mut worker = Worker::welcomed();
    assert_eq!(started(&worker.told(SCHEDULER, vec![ToWorker::Assign(assignment(1))])), [1]);
    // It stood still; the first that it sees is an old sign of life.
    worker.now = Monotonic(0) + SILENCE;
    let commands = worker.told(SCHEDULER, vec![ToWorker::Alive]);
    assert!(commands.contains(&Command::Cancel { instance: InstanceId::new(PartitionId(0), 1), fence: Fence(1) }), "{commands:?}");
}

#[test]
fn after_a_silence_nothing_is_begun_before_the_account_was_answered() {
    let mut worker = Worker::welcomed();
    // One answer is still on its way.
    worker.told(SCHEDULER, vec![ToWorker::GiveAccount]);
    worker.now = Monotonic(0) + SILENCE;
    let commands = worker.told(SCHEDULER, vec![ToWorker::Assign(assignment(1)), welcome(), ToWorker::Assign(assignment(2))]);
    assert!(started(&commands).is_empty());
    let returned: Vec<u64> = sent(&commands, SCHEDULER)
        .into_iter()
        .filter_map(|message| if let ToScheduler::Returned { fence, .. } = message { Some(fence.0) } else { None })
        .collect();
    assert_eq!(returned, [1, 2]);
    let accounts = |commands: &[Command], to| sent(commands, to).iter().filter(|message| matches!(message, ToScheduler::Hello(_))).count();
    assert_eq!(
        (accounts(&commands, SCHEDULER), accounts(&commands, ANOTHER)),
        (1, 0),
        "the other link was silent as well, but nobody has spoken on it"
    );
    assert_eq!(started(&worker.told(SCHEDULER, vec![welcome(), ToWorker::Assign(assignment(3))])), [3]);
}

#[test]
fn each_link_is_as_fresh_as_it_was_heard_of() {
    let mut worker = Worker::welcomed();
    for _ in 0..4 {
        worker.now += Millis(SILENCE.0 / 4);
        worker.told(SCHEDULER, vec![ToWorker::Alive]);
    }
    assert_eq!(started(&worker.told(ANOTHER, vec![ToWorker::Assign(assignment(1))])), Vec::<u64>::new());
    assert_eq!(started(&worker.told(SCHEDULER, vec![ToWorker::Assign(assignment(2))])), [2]);
}

#[test]
fn a_lease_of_nothing_is_not_taken() {
    let mut worker = Worker::welcomed();
    worker.told(SCHEDULER, vec![ToWorker::Welcome { heartbeat: Millis(0), lease: Millis(0) }]);
    let commands = worker.told(SCHEDULER, vec![ToWorker::Alive, ToWorker::Assign(assignment(1))]);
    assert_eq!(started(&commands), [1]);
    assert!(!sent(&commands, SCHEDULER).iter().any(|message| matches!(message, ToScheduler::Hello(_))), "or both would talk for ever");
}

fn assign(sequence: u64) -> Vec<ToWorker> {
    vec![ToWorker::Assign(assignment(sequence))]
}

fn ended(sequence: u64) -> Event {
    Event::Ended {
        instance: InstanceId::new(PartitionId(0), sequence),
        fence: Fence(sequence),
        end: End::Succeeded,
        code: None,
        detail: None,
        output: Output::default(),
        result: None,
        items: None,
        retry_after: None,
    }
}

/// One scheduler has filled all slots, and gives the next one as soon as one ends; another one is turned away since `turned_away_ms`.
fn crowded(turned_away_ms: u64) -> Worker {
    let mut worker = Worker::welcomed();
    for sequence in 1..=4 {
        assert_eq!(started(&worker.told(SCHEDULER, assign(sequence))), [sequence]);
    }
    assert!(started(&worker.told(ANOTHER, assign(11))).is_empty());
    worker.now += Millis(turned_away_ms);
    worker.told(SCHEDULER, vec![ToWorker::Alive]);
    worker.told(ANOTHER, vec![ToWorker::Alive]);
    worker
}

fn says_hello(commands: &[Command], to: ConnectionId) -> bool {
    sent(commands, to).iter().any(|message| matches!(message, ToScheduler::Hello(_)))
}

#[test]
pub(crate) fn a_slot_is_kept_for_the_scheduler_that_was_turned_away_for_long() {
    let mut worker = crowded(5_000);
    let commands = worker.hears(ended(1));
    assert!(says_hello(&commands, ANOTHER) && !says_hello(&commands, SCHEDULER));
    assert!(started(&worker.told(SCHEDULER, assign(5))).is_empty(), "it is not for the one that is there first each time");
    assert_eq!(started(&worker.told(ANOTHER, assign(12))), [12]);
    // It has had its own.
    assert!(!says_hello(&worker.hears(ended(2)), ANOTHER));
    assert_eq!(started(&worker.told(SCHEDULER, assign(6))), [6]);
}

#[test]
fn no_slot_is_kept_for_one_that_was_just_turned_away_or_comes_no_more() {
    let mut worker = crowded(4_000);
    assert!(!says_hello(&worker.hears(ended(1)), ANOTHER));
    assert_eq!(started(&worker.told(SCHEDULER, assign(5))), [5]);

    let mut worker = crowded(5_000);
    assert!(says_hello(&worker.hears(ended(1)), ANOTHER));
    worker.now += Millis(3_000);
    assert_eq!(started(&worker.told(SCHEDULER, assign(5))), [5], "it has not come for it");
    assert!(!says_hello(&worker.hears(ended(2)), ANOTHER));
}
