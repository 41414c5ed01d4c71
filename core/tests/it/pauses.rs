//! Pauses: of a task, of a group, of everything.

use std::sync::Arc;

use punctual_core::definition::{MisfireAction, Sharding, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_core::routing::{Nobody, Routing, Strategy};
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::tabletop::{PauseTarget, Run, World, every, minutely, task};

const SECOND: u64 = 1_000;

fn of_task(name: &str) -> PauseTarget {
    PauseTarget::Task(Arc::from(name))
}

fn in_group(name: &str, trigger: Trigger) -> TaskDefinition {
    TaskDefinition { group: Some(Arc::from("g")), ..task(name, trigger) }
}

/// What became of fire times that were not fired: outcome and count.
fn passed(world: &World) -> Vec<(Outcome, u64)> {
    world.data().occurrences.iter().map(|occurrence| (occurrence.outcome, occurrence.count)).collect()
}

/// C311: every 5 s, pause 10 s, resume, policy fire_all. Nothing is made up for, and one row says what was passed by.
#[test]
fn resuming_is_not_a_misfire() {
    let mut world = World::settled(1);
    let mut definition = task("a", every(5));
    Arc::make_mut(&mut definition.policies).misfire.action = MisfireAction::FireAll { limit: 100 };
    world.define(definition);
    world.run(11 * SECOND);
    assert_eq!(world.states("a").len(), 2);
    world.set_pause(&of_task("a"), true);
    world.run(10 * SECOND);
    assert_eq!((world.states("a").len(), passed(&world)), (2, Vec::new()));
    world.set_pause(&of_task("a"), false);
    world.run(SECOND);
    assert_eq!((world.states("a").len(), passed(&world)), (2, vec![(Outcome::Paused, 2)]));
    world.run(4 * SECOND);
    let rows = world.rows("a");
    assert_eq!((rows.len(), rows[2].origin), (3, Origin::Schedule));
    assert_eq!(rows[2].fire_time.since(rows[1].fire_time), Millis::from_secs(15), "the rate keeps its beat");
    world.assert_sound();
}

fn drain(world: &mut World, is_drained: bool) {
    world.set_pause(&PauseTarget::Worker(Arc::from("w1")), is_drained);
}

/// How many attempts the first worker was given since.
fn given_since(world: &World, since: Timestamp) -> usize {
    let transitions = world.rows("a").into_iter().flat_map(|row| &row.transitions);
    let given = transitions.filter(|transition| transition.to == State::Dispatched && transition.at > since);
    given.filter(|transition| transition.worker.as_ref().is_some_and(|worker| &*worker.0 == "w1")).count()
}

/// A world of two workers, of which one is drained, its owner another one since, and it comes back itself; and how much it was given since.
pub(crate) fn with_a_drained_worker() -> (World, usize) {
    let mut world = World::settled(2);
    world.define(task("a", every(2)));
    world.script("a", &[Run { takes: 1_500, ..Run::default() }]);
    world.run(10 * SECOND);
    drain(&mut world, true);
    world.run(2 * SECOND);
    let since = world.now().wall;
    world.run(4 * SECOND);
    world.crash_replica(0);
    world.start_replica(0);
    world.run(20 * SECOND);
    world.crash_worker(0);
    world.start_worker(0);
    world.run(10 * SECOND);
    let given = given_since(&world, since);
    (world, given)
}

#[test]
fn a_drained_worker_ends_what_it_has_and_is_given_nothing_more() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[Run { takes: 5_000, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    drain(&mut world, true);
    world.run(SECOND);
    world.trigger("a", None);
    world.run(20 * SECOND);
    assert_eq!(world.states("a"), [State::Succeeded, State::Created], "what ran may end");
    let why: Vec<_> = world.scheduler().waiting_for().iter().filter_map(|waiting| waiting.nobody).collect();
    assert_eq!(why, [Nobody::Draining]);
    assert!(world.scheduler().workers().iter().all(|worker| worker.is_drained && worker.is_draining));
    drain(&mut world, false);
    world.run(10 * SECOND);
    assert_eq!(world.states("a"), vec![State::Succeeded; 2], "it goes on by itself");
    world.assert_sound();
}

#[test]
fn a_worker_is_drained_over_takeovers_and_lives_of_its_own() {
    let (mut world, given) = with_a_drained_worker();
    assert_eq!(given, 0);
    assert!(world.rows("a").len() > 8, "the other one has them");
    let since = world.now().wall;
    drain(&mut world, false);
    world.run(20 * SECOND);
    assert!(given_since(&world, since) > 0);
    world.assert_sound();
}

#[test]
fn each_kind_of_trigger_goes_on_after_a_pause() {
    let triggers = [
        (minutely(), Outcome::Paused, 1, 60),
        (every(7), Outcome::Paused, 10, 7),
        (Trigger::FixedDelay { interval: Millis::from_secs(20) }, Outcome::Paused, 1, 20),
    ];
    for (trigger, outcome, count, next_secs) in triggers {
        let mut world = World::settled(1);
        world.define(task("a", trigger.clone()));
        world.set_pause(&of_task("a"), true);
        world.run(75 * SECOND);
        assert_eq!(world.rows("a").len(), 0, "{trigger:?}");
        world.set_pause(&of_task("a"), false);
        world.run(next_secs * SECOND + 500);
        assert_eq!((passed(&world), world.rows("a").len()), (vec![(outcome, count)], 1), "{trigger:?}");
        world.assert_sound();
    }
    // What was to come once has passed.
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Delay { delay: Millis::from_secs(5) }));
    world.set_pause(&of_task("a"), true);
    world.run(10 * SECOND);
    world.set_pause(&of_task("a"), false);
    world.run(60 * SECOND);
    assert_eq!((passed(&world), world.rows("a").len()), (vec![(Outcome::Paused, 1)], 0));
    world.assert_sound();
}

/// What runs goes on, what is ready waits, what is asked for waits, and all of it goes on in its order.
#[test]
fn a_pause_holds_what_has_not_begun() {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).concurrency.max_running = 2;
    world.define(definition);
    world.script("a", &[Run { takes: 5_000, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    world.set_pause(&of_task("a"), true);
    world.run(SECOND);
    world.trigger("a", None);
    world.trigger("a", Some(2_000));
    world.trigger("a", None);
    world.run(20 * SECOND);
    use State::{Created, Succeeded};
    assert_eq!(world.states("a").iter().filter(|state| **state == Succeeded).count(), 1);
    assert!(world.states("a").iter().all(|state| matches!(state, Succeeded | Created | State::Waiting)), "{:?}", world.states("a"));
    assert_eq!(world.starts("a").len(), 1);
    world.set_pause(&of_task("a"), false);
    world.run(20 * SECOND);
    assert_eq!(world.states("a"), vec![Succeeded; 4]);
    world.assert_sound();
}

/// The attempt that failed is not repeated in the pause, however short its backoff.
#[test]
fn a_pause_holds_retries() {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    let retry = &mut Arc::make_mut(&mut definition.policies).retry;
    (retry.max_attempts, retry.backoff.first, retry.backoff.cap) = (Some(3), Millis(500), Millis(500));
    world.define(definition);
    world.script("a", &[Run { takes: 2_000, end: End::Failed, ..Run::default() }, Run::default()]);
    world.trigger("a", None);
    world.run(SECOND);
    world.set_pause(&of_task("a"), true);
    world.run(30 * SECOND);
    assert_eq!((world.starts("a").len(), world.states("a")), (1, vec![State::Created]));
    world.set_pause(&of_task("a"), false);
    world.run(5 * SECOND);
    assert_eq!((world.starts("a").len(), world.states("a")), (2, vec![State::Succeeded]));
    world.assert_sound();
}

#[test]
fn groups_and_everything_are_paused_together() {
    for partitions in [1, 8] {
        let mut world = World::new(partitions, 2, 2);
        world.run(15 * SECOND);
        world.define(in_group("a", Trigger::Manual));
        world.define(in_group("b", Trigger::Manual));
        world.define(task("c", Trigger::Manual));
        let group = PauseTarget::Group(Arc::from("g"));
        let starts = |world: &mut World| {
            let before: Vec<_> = ["a", "b", "c"].map(|name| world.starts(name).len()).into();
            ["a", "b", "c"].iter().for_each(|name| _ = world.trigger(name, None));
            world.run(5 * SECOND);
            ["a", "b", "c"].map(|name| world.starts(name).len()).iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>()
        };
        world.set_pause(&group, true);
        world.run(SECOND);
        assert_eq!(starts(&mut world), [0, 0, 1]);
        world.set_pause(&PauseTarget::All, true);
        world.run(SECOND);
        assert_eq!(starts(&mut world), [0, 0, 0]);
        // What two pauses hold waits for the end of both.
        world.set_pause(&group, false);
        world.run(5 * SECOND);
        assert_eq!(["a", "b", "c"].map(|name| world.starts(name).len()), [0, 0, 1]);
        world.set_pause(&PauseTarget::All, false);
        world.run(10 * SECOND);
        assert_eq!(["a", "b", "c"].map(|name| world.starts(name).len()), [2, 2, 2]);
        world.assert_sound();
    }
}

/// An edit that takes a task out of its group ends the pause for it; any other leaves it paused.
#[test]
fn a_pause_outlives_edits_and_removals() {
    let mut world = World::settled(1);
    world.define(in_group("a", every(5)));
    world.define(in_group("b", every(5)));
    world.set_pause(&PauseTarget::Group(Arc::from("g")), true);
    world.set_pause(&of_task("b"), true);
    world.run(12 * SECOND);
    world.define(TaskDefinition { payload: Some("p".into()), ..in_group("a", every(5)) });
    world.run(10 * SECOND);
    assert_eq!(world.rows("a").len(), 0);
    world.define(task("a", every(5)));
    world.run(6 * SECOND);
    assert_eq!(world.rows("a").len(), 1, "it has no group any more");
    assert_eq!(passed(&world), [(Outcome::Paused, 4)]);
    // Another trigger: what had passed of the old one was passed by in the pause.
    world.define(in_group("b", every(4)));
    world.run(20 * SECOND);
    assert!(passed(&world).contains(&(Outcome::Paused, 5)), "{:?}", passed(&world));
    world.remove("b");
    world.run(SECOND);
    world.define(task("b", every(5)));
    world.run(20 * SECOND);
    assert_eq!(world.rows("b").len(), 0, "it comes back as it went: paused");
    world.set_pause(&of_task("b"), false);
    world.run(6 * SECOND);
    assert_eq!(world.rows("b").len(), 1);
    world.assert_sound();
}

/// Owners die while it holds; whoever comes after them holds as well.
#[test]
fn a_pause_outlives_its_owners() {
    let mut world = World::new(2, 2, 1);
    world.run(15 * SECOND);
    world.define(task("a", every(2)));
    world.run(5 * SECOND);
    world.set_pause(&of_task("a"), true);
    world.trigger("a", None);
    world.run(SECOND);
    let begun = world.starts("a").len();
    for replica in [0, 1, 0] {
        world.crash_replica(replica);
        world.run(20 * SECOND);
        world.start_replica(replica);
        world.run(20 * SECOND);
        assert_eq!(world.starts("a").len(), begun);
    }
    world.set_pause(&of_task("a"), false);
    world.run(5 * SECOND);
    assert!(world.starts("a").len() > begun);
    world.assert_sound();
}

/// Shards that have not begun wait; those that run go on.
#[test]
fn a_pause_holds_shards() {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(6);
    world.define(definition);
    world.script("a", &[Run { takes: 3_000, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    assert_eq!(world.starts("a").len(), 4, "as many as the worker has slots");
    world.set_pause(&of_task("a"), true);
    world.run(20 * SECOND);
    assert_eq!(world.starts("a").len(), 4);
    // A removal lets what has begun end, and the rest of the shards belong to it.
    world.remove("a");
    world.run(20 * SECOND);
    assert_eq!(world.starts("a").len(), 6);
    world.assert_sound();
}

/// What is for all workers is divided among those that are there when the pause is over.
#[test]
fn a_pause_holds_what_is_to_be_broadcast() {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    definition.routing = Some(Arc::new(Routing { strategy: Strategy::Broadcast, ..Routing::default() }));
    world.define(definition);
    world.set_pause(&of_task("a"), true);
    world.trigger("a", None);
    world.run(10 * SECOND);
    assert_eq!(world.states("a"), [State::Created]);
    world.add_worker();
    world.run(SECOND);
    world.set_pause(&of_task("a"), false);
    world.run(10 * SECOND);
    assert_eq!(world.states("a"), [State::Succeeded; 3]);
    world.assert_sound();
}

/// What is cancelled while it is held does not start afterwards.
#[test]
fn what_is_held_can_be_cancelled() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.set_pause(&of_task("a"), true);
    world.trigger("a", None);
    world.run(SECOND);
    let held = world.first("a");
    world.cancel(held);
    world.run(SECOND);
    assert_eq!(world.rows("a")[0].transitions.last().map(|last| last.cause), Some(Cause::CancelRequested));
    world.set_pause(&of_task("a"), false);
    world.run(10 * SECOND);
    assert_eq!((world.states("a"), world.starts("a").len()), (vec![State::Cancelled], 0));
    world.assert_sound();
}
