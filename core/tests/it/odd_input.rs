//! What comes from outside may be nonsense: nothing panics, nothing grows, nothing is said that isn't so.

use std::sync::Arc;

use punctual_core::batch::{Output, Renewal, Snapshot};
use punctual_core::definition::{Blocking, Trigger};
use punctual_core::ids::{ConnectionId, Epoch, Fence, InboxId, InstanceId, PartitionId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::{InboxEntry, Request, Submission};
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition};
use punctual_core::protocol::{End, Hello, Report, Running, ToScheduler, ToWorker};
use punctual_core::scheduler::{Command, Config, Event, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};

use punctual_sim::tabletop::{Run, START, World, every, task};

fn hello(worker: &str, running: Vec<Running>) -> Hello {
    Hello {
        worker: WorkerId(Arc::from(worker)),
        life: WorkerLife(1),
        slots: u32::MAX,
        handlers: vec![Arc::from("command")],
        draining: false,
        running,
        received: u64::MAX,
        traits: Default::default(),
    }
}

#[test]
fn a_worker_may_say_anything() {
    let mut world = World::settled(1);
    world.define(task("a", every(1)));
    world.run(2_500);
    let known = world.first("a");
    let odd = [InstanceId(0), InstanceId(u64::MAX), known, InstanceId(known.0 + 1_000), InstanceId::new(PartitionId(77), 3)];
    for connection in [ConnectionId(9_000), world.connection_of(0)] {
        for instance in odd {
            for fence in [Fence(0), Fence(1), Fence(u64::MAX)] {
                let report = Report {
                    instance,
                    fence,
                    end: End::Cancelled,
                    code: None,
                    detail: None,
                    output: Output { bytes: b"odd".to_vec(), dropped: u64::MAX },
                    result: None,
                    items: None,
                    retry_after: None,
                };
                let messages = vec![
                    ToScheduler::Started { instance, fence },
                    ToScheduler::Returned { instance, fence },
                    ToScheduler::Finished(report),
                    ToScheduler::Hello(hello("odd", vec![Running { instance, fence }])),
                    ToScheduler::Heartbeat,
                ];
                world.tell_replica(0, Event::WorkerMessages { connection, messages });
            }
        }
    }
    world.run(5_000);
    world.assert_sound();
}

#[test]
fn a_scheduler_may_say_anything_to_a_worker() {
    let mut world = World::settled(1);
    let messages = vec![
        ToWorker::Cancel { instance: InstanceId(7), fence: Fence(1) },
        ToWorker::Kill { instance: InstanceId(7), fence: Fence(1) },
        ToWorker::Acknowledge { instance: InstanceId(u64::MAX), fence: Fence(0) },
        ToWorker::Welcome { heartbeat: Millis(0), lease: Millis(0) },
        ToWorker::GiveAccount,
    ];
    for connection in [ConnectionId(9_000), world.connection_of(0)] {
        world.tell_worker(0, punctual_core::worker::Event::Messages { connection, messages: messages.clone() });
    }
    world.run(100);
    assert!(world.steps < 2_000, "{} steps in a tenth of a second", world.steps);
}

/// Two workers that claim one connection: the first is gone, and nothing is handed out to it for ever.
#[test]
fn two_workers_on_one_connection_are_one() {
    let mut world = World::settled(1);
    let connection = world.connection_of(0);
    world.tell_replica(0, Event::WorkerMessages { connection, messages: vec![ToScheduler::Hello(hello("other", vec![]))] });
    world.define(task("a", Trigger::Manual));
    world.trigger("a", None);
    let before = world.commit_count;
    world.run(10_000);
    assert!(world.commit_count - before < 50, "{} commits", world.commit_count - before);
}

#[test]
fn a_trigger_of_a_task_that_nobody_knows_is_on_record() {
    let mut world = World::settled(1);
    world.submit_unknown("nobody", TaskId(404), vec![Submission::default(); 2_000]);
    world.run(2_000);
    assert!(world.data().inbox.is_empty());
    assert!(world.data().occurrences.iter().all(|run| run.task == TaskId(404)));
    assert!(!world.data().occurrences.is_empty());
}

pub(crate) fn row(id: InstanceId, state: State) -> InstanceRow {
    let first = Transition {
        from: None,
        to: state,
        cause: Cause::Triggered,
        at: Timestamp(START),
        attempt: 0,
        fence: Fence(0),
        worker: None,
        code: None,
        detail: None,
    };
    InstanceRow {
        id,
        task: TaskId(404),
        version: Version(1),
        fire_time: Timestamp(START),
        ordinal: 9,
        run: 1,
        part: Part::WHOLE,
        links: None,
        result: None,
        origin: Origin::Manual,
        state,
        fence: Fence(0),
        attempt: 0,
        failures: 0,
        losses: 0,
        worker: None,
        due_at: None,
        payload: None,
        key: None,
        transitions: vec![first],
    }
}

/// Rows of a task that is gone, in every state, with and without a time to be due, and rows of another partition.
#[test]
fn a_snapshot_may_hold_odd_rows() {
    let at = |monotonic: u64| Now { wall: Timestamp(START + monotonic as i64), monotonic: Monotonic(monotonic) };
    let config = Config {
        replica: punctual_core::ids::ReplicaId(Arc::from("s")),
        partitions: 1,
        commits_at_once: 1,
        misfire_threshold: Millis(5_000),
    };
    let mut scheduler = Scheduler::new(config, at(0));
    scheduler.handle_event(at(0), Event::Tick);
    let (partition, epoch) = (PartitionId(0), Epoch(1));
    let granted = Event::LeaseGranted { partition, epoch, commit_seq: 0, sequence: 1_000, requested_at: Monotonic(0) };
    scheduler.handle_event(at(1), granted);
    let definition = Arc::new(task("gone", Trigger::Manual));
    let mut instances = Vec::new();
    for (index, state) in State::ALL.into_iter().enumerate() {
        for due_at in [None, Some(Timestamp(START + 50)), Some(Timestamp(-1))] {
            let id = InstanceId::new(partition, 10 * index as u64 + due_at.map_or(1, |at| 2 + u64::from(at.0 > 0)));
            instances.push((InstanceRow { due_at, ..row(id, state) }, definition.clone()));
        }
    }
    instances.push((row(InstanceId::new(PartitionId(3), 1), State::Created), definition));
    scheduler.handle_event(at(2), Event::SnapshotLoaded { partition, epoch, snapshot: Snapshot { instances, ..Snapshot::default() } });
    let mut commits = 0;
    for time in 3..2_000 {
        scheduler.handle_event(at(time), Event::Tick);
        while let Some(command) = scheduler.poll_command() {
            if let Command::Commit(batch) = command {
                commits += 1;
                assert!(batch.updates.iter().all(|update| update.row.id.partition() == partition));
                let outcome = punctual_core::batch::CommitOutcome::Committed;
                scheduler.handle_event(at(time), Event::CommitFinished { commit: batch.id, outcome });
            }
        }
    }
    assert!((1..20).contains(&commits), "{commits} commits");
}

/// Events that answer nothing: of other epochs, of commits that are over, of partitions that are not ours.
#[test]
fn answers_to_nothing_change_nothing() {
    let mut world = World::settled(1);
    world.define(task("a", every(5)));
    world.run(1_000);
    let (partition, epoch) = (PartitionId(0), Epoch(77));
    let entry = InboxEntry {
        id: InboxId(9_999),
        partition,
        at: Timestamp(START),
        by: Arc::from("nobody"),
        request: Request::Trigger { task: TaskId(1), submissions: vec![Submission::default()] },
    };
    for event in [
        Event::SnapshotLoaded { partition, epoch, snapshot: Snapshot::default() },
        Event::SnapshotFailed { partition, epoch },
        Event::LeaseRefused { partitions: vec![partition] },
        Event::LeasesRenewed {
            requested_at: Monotonic(0),
            asked: vec![Renewal { partition, epoch, commit_seq: 0 }],
            lost: vec![partition],
        },
        Event::CommitFinished {
            commit: punctual_core::ids::CommitId(404),
            outcome: punctual_core::batch::CommitOutcome::Refused { reason: Arc::from("") },
        },
        Event::InboxRead { entries: vec![entry], more: true },
        Event::WorkerDisconnected { connection: ConnectionId(404) },
    ] {
        world.tell_replica(0, event);
    }
    world.run(20_000);
    assert_eq!(world.fire_times("a"), [5, 10, 15, 20]);
    assert!(world.alerts.is_empty(), "{:?}", world.alerts);
    world.assert_sound();
}

/// Workers under a new name each time, tasks that come and go, instances that are replaced before anybody takes them.
#[test]
fn nothing_piles_up() {
    let mut world = World::settled(0);
    let mut definition = task("a", every(1));
    Arc::make_mut(&mut definition.policies).concurrency.blocking = Blocking::Replace;
    world.define(definition);
    world.run(300_000);
    let early = format!("{:?}", world.scheduler()).len();
    world.run(1_200_000);
    assert!(world.scheduler().instance_count() <= 3, "{}", world.scheduler().instance_count());
    let late = format!("{:?}", world.scheduler()).len();
    assert!(late < early * 5 / 4, "{early} characters of memory became {late}");
    world.add_worker();
    world.script("a", &[Run { takes: 10, ..Run::default() }]);
    world.run(10_000);
    world.assert_sound();
}

/// Half a million delayed instances fill the memory, and empty it as they come due.
#[test]
fn a_memory_full_of_delayed_instances_empties() {
    let mut world = World::settled(1);
    world.workers[0].slots = u32::MAX;
    world.crash_worker(0);
    world.start_worker(0);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).concurrency.max_running = 1_000;
    Arc::make_mut(&mut definition.policies).concurrency.blocking = Blocking::Discard;
    world.define(definition);
    world.script("a", &[Run { takes: 1, ..Run::default() }]);
    world.run(100);
    let submissions = vec![Submission { delay: Some(Millis(3_600_000)), ..Submission::default() }; 1_024];
    for _ in 0..489 {
        world.submit("a", submissions.clone());
    }
    world.run(60_000);
    assert!(world.scheduler().instance_count() >= punctual_core::limits::LIVE_INSTANCES_MAX);
    world.run(3_700_000);
    assert_eq!(world.scheduler().instance_count(), 0);
    assert!(world.data().inbox.is_empty());
}
