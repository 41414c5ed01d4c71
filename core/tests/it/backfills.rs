//! Fire times of the past that are made up for: by backfills, and by `fire_all` at a rate.

use std::sync::Arc;

use punctual_core::backfill::BackfillState;
use punctual_core::definition::{Blocking, MisfireAction, TaskDefinition, Trigger};
use punctual_core::ids::InboxId;
use punctual_core::instance::{Cause, InstanceRow, Origin, State};
use punctual_core::rate::RateLimit;
use punctual_core::time::{Millis, Timestamp};

use punctual_sim::tabletop::{Run, START, World, task};

const SECOND: u64 = 1_000;
const HOUR: i64 = 3_600_000;

fn hourly(max_running: u32, blocking: Blocking) -> TaskDefinition {
    let mut definition = task("t", Trigger::Manual);
    let concurrency = &mut Arc::make_mut(&mut definition.policies).concurrency;
    (concurrency.max_running, concurrency.blocking) = (max_running, blocking);
    definition
}

fn hours(count: i64) -> Vec<Timestamp> {
    (1..=count).map(|hour| Timestamp(START - (count + 1 - hour) * HOUR)).collect()
}

fn takes(world: &mut World, millis: u64) {
    world.script("t", &[Run { takes: millis, ..Run::default() }]);
}

fn rows(world: &World) -> Vec<&InstanceRow> {
    let mut rows = world.rows("t");
    rows.sort_by_key(|row| row.id);
    rows
}

/// State, instances made and instances that have ended.
fn progress(world: &World, id: InboxId) -> (BackfillState, u32, u32) {
    let row = &world.data().backfills[&id];
    (row.state, row.made, row.ended)
}

#[test]
fn each_fire_time_gets_one_instance_in_order_and_so_many_at_once() {
    let mut world = World::settled(4);
    world.define(hourly(10, Blocking::Discard));
    takes(&mut world, 2 * SECOND);
    let id = world.backfill("t", &hours(6), 2).expect("accepted");
    world.run(SECOND);
    assert_eq!(progress(&world, id), (BackfillState::Running, 2, 0));
    world.run(2 * SECOND);
    assert_eq!(progress(&world, id), (BackfillState::Running, 4, 2));
    world.run(20 * SECOND);
    assert_eq!(progress(&world, id), (BackfillState::Done, 6, 6));
    let times: Vec<_> = rows(&world).iter().map(|row| row.fire_time).collect();
    assert_eq!(times, hours(6));
    let first = rows(&world)[0];
    assert_eq!((first.origin, first.transitions[0].cause), (Origin::Backfill, Cause::Backfilled));
    assert_eq!(first.transitions[0].detail.as_deref(), Some("by ops: a test"));
    world.assert_sound();
}

/// What runs when it is cancelled may end, and counts then, whoever owns it by then.
#[test]
fn a_cancelled_backfill_counts_what_ends_later() {
    for is_taken_over in [false, true] {
        let mut world = World::settled(4);
        world.define(hourly(2, Blocking::Discard));
        takes(&mut world, 20 * SECOND);
        let id = world.backfill("t", &hours(9), 4).expect("accepted");
        world.run(SECOND);
        world.cancel_backfill(id);
        world.run(SECOND);
        assert_eq!(progress(&world, id), (BackfillState::Cancelled, 4, 2), "two wait and are cancelled, two run");
        if is_taken_over {
            world.crash_replica(0);
            world.start_replica(0);
        }
        world.run(SECOND);
        let again = world.backfill("t", &hours(1), 1).expect("another one may begin");
        world.run(60 * SECOND);
        assert_eq!(progress(&world, id), (BackfillState::Cancelled, 4, 4));
        assert_eq!(progress(&world, again), (BackfillState::Done, 1, 1));
        world.assert_sound();
    }
}

/// It goes on where the owner before has come to, and makes none twice.
#[test]
fn a_backfill_survives_takeovers() {
    let mut world = World::new(1, 2, 4);
    world.run(20 * SECOND);
    world.define(hourly(10, Blocking::Queue { max_queue: 1 }));
    takes(&mut world, SECOND);
    let id = world.backfill("t", &hours(30), 3).expect("accepted");
    for round in 0..5 {
        world.run(2 * SECOND + round * 130);
        let owner = world.owner();
        world.crash_replica(owner);
        world.run(14 * SECOND);
        world.start_replica(owner);
    }
    world.run(60 * SECOND);
    assert_eq!(progress(&world, id), (BackfillState::Done, 30, 30));
    let mut times: Vec<_> = rows(&world).iter().map(|row| row.fire_time).collect();
    times.sort_unstable();
    assert_eq!(times, hours(30));
    world.assert_sound();
}

#[test]
fn a_cancelled_backfill_makes_no_more_and_lets_run_what_runs() {
    let mut world = World::settled(1);
    world.define(hourly(1, Blocking::Queue { max_queue: 1 }));
    takes(&mut world, 5 * SECOND);
    let id = world.backfill("t", &hours(20), 3).expect("accepted");
    world.run(7 * SECOND);
    assert_eq!(progress(&world, id), (BackfillState::Running, 4, 1));
    world.cancel_backfill(id);
    world.run(30 * SECOND);
    assert_eq!(progress(&world, id).0, BackfillState::Cancelled);
    use State::{Cancelled, Succeeded};
    assert_eq!(rows(&world).iter().map(|row| row.state).collect::<Vec<_>>(), [Succeeded, Succeeded, Cancelled, Cancelled]);
    assert!(world.backfill("t", &hours(2), 1).is_some(), "another one may follow");
    world.run(30 * SECOND);
    world.assert_sound();
}

#[test]
fn a_task_has_one_backfill_at_a_time_and_a_removed_one_none() {
    let mut world = World::settled(1);
    world.define(hourly(1, Blocking::Replace));
    takes(&mut world, 5 * SECOND);
    let id = world.backfill("t", &hours(3), 1).expect("accepted");
    assert!(world.backfill("t", &hours(3), 1).is_none(), "also while nobody has begun it");
    world.run(2 * SECOND);
    assert!(world.backfill("t", &hours(3), 1).is_none());
    world.remove("t");
    world.run(20 * SECOND);
    assert_eq!(progress(&world, id).0, BackfillState::Cancelled);
    assert!(world.backfill("t", &hours(3), 1).is_none());
    assert_eq!(world.rows("t").len(), 1);
    world.assert_sound();
}

fn spaced(limit: u32) -> TaskDefinition {
    let mut definition = task("t", punctual_sim::tabletop::every(10));
    let policies = Arc::make_mut(&mut definition.policies);
    policies.misfire.action = MisfireAction::FireAll { limit };
    policies.misfire.rate = Some(RateLimit { starts: 2, per: Millis(8 * SECOND) });
    policies.concurrency.max_running = 10;
    definition
}

/// A world whose task has missed twenty fire times and makes them up for.
fn after_downtime() -> World {
    let mut world = World::settled(4);
    world.define(spaced(20));
    takes(&mut world, 100);
    world.run(15 * SECOND);
    world.crash_replica(0);
    world.run(300 * SECOND);
    world.start_replica(0);
    world.run(15 * SECOND);
    world
}

fn caught_up(world: &World) -> Vec<&InstanceRow> {
    world.rows("t").into_iter().filter(|row| row.origin == Origin::CatchUp).collect()
}

/// All are on record at once, each with the time at which it begins: the last one's is the end in sight.
#[test]
fn what_fire_all_makes_up_for_begins_at_its_rate() {
    let mut world = after_downtime();
    assert_eq!(caught_up(&world).len(), 20);
    let waiting = caught_up(&world).into_iter().filter(|row| row.state == State::Waiting && row.due_at.is_some()).count();
    assert!(waiting >= 14, "{waiting} still wait");
    world.run(90 * SECOND);
    assert!(caught_up(&world).iter().all(|row| row.state == State::Succeeded));
    let mut begun: Vec<_> = caught_up(&world)
        .iter()
        .map(|row| {
            let begins = row.transitions.iter().find(|step| step.to == State::Running).expect("it ran");
            (begins.at, row.fire_time)
        })
        .collect();
    begun.sort_unstable();
    assert!(begun.iter().map(|(_, fire_time)| fire_time).is_sorted(), "in order: {begun:?}");
    for stretch in begun.windows(3) {
        assert!(stretch[2].0.since(stretch[0].0) >= Millis(8 * SECOND - 500), "{stretch:?}");
    }
    world.assert_sound();
}

#[test]
fn those_that_are_still_to_begin_survive_a_takeover() {
    let mut world = after_downtime();
    world.crash_replica(0);
    world.run(12 * SECOND);
    world.start_replica(0);
    world.run(120 * SECOND);
    let rows = caught_up(&world);
    assert!(rows.iter().all(|row| row.state == State::Succeeded));
    let mut times: Vec<_> = rows.iter().map(|row| row.fire_time).collect();
    times.dedup();
    assert_eq!(times.len(), rows.len());
    world.assert_sound();
}

/// C379: whoever is disabled while it makes up for what it missed begins none of the rest, and they don't come back.
#[test]
fn a_disabled_task_begins_none_of_those_that_still_wait() {
    let mut world = after_downtime();
    let begun = caught_up(&world).iter().filter(|row| row.state == State::Succeeded).count();
    world.define(TaskDefinition { enabled: false, ..spaced(20) });
    world.run(SECOND);
    let rest = caught_up(&world).iter().filter(|row| row.state == State::Cancelled).count();
    assert_eq!((begun + rest, rest > 10), (20, true));
    world.define(spaced(20));
    world.run(60 * SECOND);
    assert_eq!(caught_up(&world).iter().filter(|row| row.state == State::Cancelled).count(), rest);
    assert_eq!(caught_up(&world).len(), 20);
    world.assert_sound();
}
