//! What people change about what has not begun, and what they end at once.

use std::sync::Arc;

use punctual_core::definition::{Blocking, Trigger};
use punctual_core::inbox::{DelayedChange, ordinal_of};
use punctual_core::instance::{Cause, InstanceRow, State};
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::tabletop::{InstanceAction, Run, TriggerChanged, World, task};

const SECOND: u64 = 1_000;

fn world() -> World {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world
}

fn causes(row: &InstanceRow) -> Vec<Cause> {
    row.transitions.iter().map(|transition| transition.cause).collect()
}

#[test]
fn a_trigger_that_is_not_due_is_cancelled_by_its_key() {
    let mut world = world();
    let entry = world.trigger_under("a", "k", 60_000);
    world.run(SECOND);
    let changed = world.change_trigger("a", "k", DelayedChange::Cancel);
    assert!(matches!(changed, TriggerChanged::Accepted { ordinal, .. } if ordinal == ordinal_of(entry, 0)));
    world.run(120 * SECOND);
    assert_eq!((world.states("a"), world.starts("a").len()), (vec![State::Cancelled], 0));
    assert_eq!(causes(world.rows("a")[0]), [Cause::Triggered, Cause::CancelRequested]);
    assert!(matches!(world.change_trigger("a", "k", DelayedChange::Cancel), TriggerChanged::Over { .. }));
    assert_eq!(world.change_trigger("a", "other", DelayedChange::Cancel), TriggerChanged::NoSuchTrigger);
    assert_eq!(world.change_trigger("b", "k", DelayedChange::Cancel), TriggerChanged::NoSuchTask);
    world.define(task("b", Trigger::Manual));
    assert_eq!(world.change_trigger("b", "k", DelayedChange::Cancel), TriggerChanged::NoSuchTrigger, "the key is another task's");
    world.assert_sound();
}

#[test]
fn a_trigger_that_is_not_due_is_put_off_and_comes_then() {
    let mut world = world();
    world.trigger_under("a", "k", 10_000);
    world.run(SECOND);
    let to = Timestamp(world.rows("a")[0].fire_time.0 + 20_000);
    world.change_trigger("a", "k", DelayedChange::Reschedule(to));
    world.run(SECOND);
    let row = world.rows("a")[0].clone();
    assert_eq!((row.state, row.due_at, causes(&row)), (State::Waiting, Some(to), vec![Cause::Triggered, Cause::Rescheduled]));
    assert_eq!(row.transitions[1].detail.as_deref(), Some(&*format!("to {to} by ops: another time")));
    // Whoever owns it next finds it put off.
    world.crash_replica(0);
    world.start_replica(0);
    world.run(26 * SECOND);
    assert_eq!(world.starts("a").len(), 0, "it was put off");
    world.run(4 * SECOND);
    assert_eq!((world.starts("a").len(), world.states("a")), (1, vec![State::Succeeded]));
    world.assert_sound();
}

/// It races with its due time: at each moment it has either run or been cancelled, and its row says which.
#[test]
fn a_trigger_that_is_cancelled_as_it_comes_either_runs_or_does_not() {
    let (mut ran, mut cancelled) = (0, 0);
    for early_ms in 0..40 {
        let mut world = world();
        world.trigger_under("a", "k", 5_000);
        world.run(4_980 + early_ms);
        let changed = world.change_trigger("a", "k", DelayedChange::Cancel);
        world.run(10 * SECOND);
        match (world.states("a")[0], changed) {
            (State::Cancelled, TriggerChanged::Accepted { .. }) => {
                assert_eq!(world.starts("a").len(), 0);
                cancelled += 1;
            }
            (State::Succeeded, TriggerChanged::Accepted { .. } | TriggerChanged::Over { .. }) => {
                assert_eq!(world.starts("a").len(), 1);
                ran += 1;
            }
            other => panic!("{other:?}"),
        }
        world.assert_sound();
    }
    assert!(ran > 0 && cancelled > 0, "{ran} ran, {cancelled} were cancelled");
}

/// The change is in the inbox behind the trigger, which nobody has read yet.
#[test]
fn a_trigger_that_nobody_has_taken_up_is_cancelled() {
    let mut world = world();
    world.run(SECOND);
    world.crash_replica(0);
    world.trigger_under("a", "k", 60_000);
    assert!(matches!(world.change_trigger("a", "k", DelayedChange::Cancel), TriggerChanged::Accepted { .. }));
    world.start_replica(0);
    world.run(90 * SECOND);
    assert_eq!(world.states("a"), [State::Cancelled]);
    world.assert_sound();
}

#[test]
fn a_kill_gives_no_time_to_clean_up() {
    let mut world = world();
    world.script("a", &[Run { takes: 60_000, obeys_after: Some(5_000), ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    // It was asked to end first, and cleans up.
    world.cancel(world.first("a"));
    world.run(SECOND);
    assert_eq!(world.states("a"), [State::Running]);
    world.act(world.first("a"), InstanceAction::Kill);
    world.run(500);
    assert_eq!(world.states("a"), [State::Cancelled]);
    let last = world.rows("a")[0].transitions.last().cloned().expect("a transition");
    assert_eq!(last.cause, Cause::KillRequested);
    assert!(last.detail.is_some_and(|detail| detail.starts_with("by ops: no longer needed")));
    world.assert_sound();
}

/// What waits or is ready is left out; what has begun goes on.
#[test]
fn a_skip_leaves_out_what_has_not_begun() {
    let mut world = World::settled(0);
    let mut definition = task("a", Trigger::Manual);
    let policies = Arc::make_mut(&mut definition.policies);
    (policies.concurrency.max_running, policies.concurrency.blocking) = (1, Blocking::Queue { max_queue: 10 });
    policies.timeout.grace = Millis(100);
    world.define(definition);
    // A replica without a worker waits a moment before it takes its share.
    (0..4).for_each(|_| _ = world.trigger("a", None));
    world.trigger("a", Some(60_000));
    world.run(5 * SECOND);
    let ids: Vec<_> = world.rows("a").iter().map(|row| row.id).collect();
    // The one that is ready, one that waits behind it, one that is not due.
    [0, 2, 4].into_iter().for_each(|index| world.act(ids[index], InstanceAction::Skip));
    world.run(SECOND);
    use State::{Created, Skipped, Waiting};
    assert_eq!(world.states("a"), [Skipped, Created, Skipped, Waiting, Skipped]);
    world.add_worker();
    world.script("a", &[Run { takes: 5_000, ..Run::default() }]);
    world.run(3 * SECOND);
    world.act(ids[1], InstanceAction::Skip);
    world.run(30 * SECOND);
    assert_eq!(world.states("a"), [Skipped, State::Succeeded, Skipped, State::Succeeded, Skipped]);
    world.assert_sound();
}
