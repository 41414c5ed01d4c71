//! When a replica says for the first time that it is there.

use std::sync::Arc;

use punctual_core::ids::{ConnectionId, PartitionId, ReplicaId, WorkerId, WorkerLife};
use punctual_core::protocol::{Hello, ToScheduler};
use punctual_core::scheduler::{Command, Config, Event, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_sim::tabletop::START;

/// As patient as a replica is.
const PATIENCE_MS: u64 = 2_000;

fn now(monotonic: u64) -> Now {
    Now { wall: Timestamp(START + monotonic as i64), monotonic: Monotonic(monotonic) }
}

fn starting() -> Scheduler {
    let replica = ReplicaId(Arc::from("s"));
    Scheduler::new(Config { replica, partitions: 1, commits_at_once: 1, misfire_threshold: Millis(5_000) }, now(0))
}

fn beats(scheduler: &mut Scheduler, at: u64, event: Event) -> bool {
    scheduler.handle_event(now(at), event);
    std::iter::from_fn(|| scheduler.poll_command()).any(|command| matches!(command, Command::Beat))
}

#[test]
fn a_replica_joins_with_its_first_worker() {
    let mut scheduler = starting();
    assert!(!beats(&mut scheduler, 0, Event::Tick));
    let hello = Hello {
        worker: WorkerId(Arc::from("w")),
        life: WorkerLife(1),
        slots: 1,
        handlers: vec![],
        draining: false,
        running: vec![],
        received: 0,
        traits: Default::default(),
    };
    let messages = vec![ToScheduler::Hello(hello)];
    assert!(beats(&mut scheduler, 300, Event::WorkerMessages { connection: ConnectionId(1), messages }));
}

#[test]
fn a_replica_that_no_worker_comes_to_joins_all_the_same() {
    let mut scheduler = starting();
    let joined = (0..=PATIENCE_MS + 500).step_by(100).find(|at| beats(&mut scheduler, *at, Event::Tick));
    assert!(joined.is_some_and(|at| at >= PATIENCE_MS), "{joined:?}");
}

/// What a replica is refused may have been given up before it hears that it was refused.
#[test]
fn a_lease_that_is_given_up_meanwhile_is_asked_for_again_at_once() {
    let mut scheduler = starting();
    let asks = |scheduler: &mut Scheduler, at: u64, event: Event| {
        scheduler.handle_event(now(at), event);
        std::iter::from_fn(|| scheduler.poll_command()).any(|command| matches!(command, Command::AcquireLeases { .. }))
    };
    let members = vec![ReplicaId(Arc::from("s"))];
    assert!(asks(&mut scheduler, 1, Event::MembersSeen { members }));
    let refused = || Event::LeaseRefused { partitions: vec![PartitionId(0)] };
    assert!(!asks(&mut scheduler, 2, Event::LeasesSignalled), "the answer is still to come");
    assert!(asks(&mut scheduler, 3, refused()), "the lease was given up meanwhile");
    assert!(!asks(&mut scheduler, 4, refused()), "nothing has happened: it waits a second");
    assert!(asks(&mut scheduler, 5, Event::LeasesSignalled));
}
