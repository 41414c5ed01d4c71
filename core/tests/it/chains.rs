//! Tasks that fire when another one has ended.

use std::sync::Arc;

use punctual_core::definition::{Chain, ChainOn, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::limits;
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_core::scheduler::Alert;

use punctual_sim::tabletop::{Run, World, every, task};

const SECOND: u64 = 1_000;

fn after(name: &str, chains: &[(&str, ChainOn)]) -> TaskDefinition {
    let chains = chains.iter().map(|(task, on)| Chain { task: Arc::from(*task), on: *on }).collect();
    TaskDefinition { chains: Some(chains), ..task(name, Trigger::Manual) }
}

fn failing() -> Run {
    Run { end: End::Failed, ..Run::default() }
}

/// Each task fires for the ends that it asks for, once for each, wherever the two are owned.
#[test]
fn a_task_fires_for_the_ends_that_it_asks_for() {
    for partitions in [1, 8] {
        let mut world = World::new(partitions, 2, 2);
        world.run(15 * SECOND);
        world.define(task("a", Trigger::Manual));
        world.define(after("well", &[("a", ChainOn::Success)]));
        world.define(after("badly", &[("a", ChainOn::Failure)]));
        world.define(after("always", &[("a", ChainOn::Any)]));
        world.trigger("a", None);
        world.run(5 * SECOND);
        world.script("a", &[failing()]);
        world.trigger("a", None);
        world.run(5 * SECOND);
        let fired = |name: &str| world.rows(name).len();
        assert_eq!((fired("well"), fired("badly"), fired("always")), (1, 1, 2), "{partitions} partitions");
        let row = world.rows("well")[0];
        let links = row.links.as_ref().expect("it hangs together with what it fired after");
        assert_eq!((row.origin, links.cause, links.hops), (Origin::Chain, Some(world.rows("a")[0].id), 1));
        assert_eq!((row.transitions[0].cause, row.transitions[0].detail.as_deref()), (Cause::Chained, Some("a")));
        world.assert_sound();
    }
}

/// C354: a task that is chained has its own times as well; each trigger gives an instance of its own that says where it comes from.
#[test]
fn a_chained_task_may_have_its_own_times() {
    let mut world = World::settled(2);
    world.define(task("a", Trigger::Manual));
    world.define(TaskDefinition { trigger: every(10), ..after("b", &[("a", ChainOn::Success)]) });
    world.trigger("a", None);
    world.run(25 * SECOND);
    let origins: Vec<_> = world.rows("b").iter().map(|row| row.origin).collect();
    assert_eq!(origins.iter().filter(|origin| **origin == Origin::Schedule).count(), 2);
    assert_eq!(origins.iter().filter(|origin| **origin == Origin::Chain).count(), 1);
}

#[test]
fn a_cancelled_instance_makes_only_those_fire_that_take_any_end() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.define(after("well", &[("a", ChainOn::Success)]));
    world.define(after("always", &[("a", ChainOn::Any)]));
    world.trigger("a", Some(20 * SECOND));
    world.run(SECOND);
    world.cancel(world.first("a"));
    world.run(5 * SECOND);
    assert_eq!(world.states("a"), [State::Cancelled]);
    assert_eq!((world.rows("well").len(), world.rows("always").len()), (0, 1));
}

#[test]
fn a_disabled_task_does_not_fire_and_it_is_on_record() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.define(TaskDefinition { enabled: false, ..after("b", &[("a", ChainOn::Success)]) });
    world.trigger("a", None);
    world.run(5 * SECOND);
    assert!(world.rows("b").is_empty());
    let outcomes: Vec<_> = world.data().occurrences.iter().map(|occurrence| occurrence.outcome).collect();
    assert_eq!(outcomes, [Outcome::Disabled]);
}

/// The owner dies with the end of the first committed and the second not fired yet: its next owner finds the notice in the inbox.
#[test]
fn a_takeover_between_the_two_loses_nothing() {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    world.define(task("a", Trigger::Manual));
    world.define(after("b", &[("a", ChainOn::Success)]));
    for _ in 0..20 {
        world.trigger("a", None);
        // Further each time, past the moment at which the end is written.
        world.run(950 + world.rows("a").len() as u64 * 10);
        let owner = world.owner();
        world.crash_replica(owner);
        world.run(14 * SECOND);
        world.start_replica(owner);
        world.run(20 * SECOND);
    }
    assert_eq!(world.rows("b").len(), 20);
    world.assert_sound();
}

/// Chains that an edit made into a ring before anybody checked come to an end.
#[test]
fn a_ring_of_tasks_comes_to_an_end() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.define(after("b", &[("a", ChainOn::Success)]));
    // The world's people check nothing.
    world.define(after("a", &[("b", ChainOn::Success)]));
    world.script("a", &[Run { takes: 10, ..Run::default() }]);
    world.script("b", &[Run { takes: 10, ..Run::default() }]);
    world.trigger("a", None);
    world.run(60 * SECOND);
    let fired = world.rows("a").len() + world.rows("b").len();
    assert_eq!(fired as u32, limits::CHAIN_HOPS_MAX + 1);
    let alerts = world.alerts.iter().filter(|(_, alert)| matches!(alert, Alert::ChainTooLong { .. }));
    assert_eq!(alerts.count(), 1);
}

/// A task that is taken away, and one whose chain is, fire no more.
#[test]
fn what_is_not_chained_any_more_does_not_fire() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.define(after("b", &[("a", ChainOn::Success)]));
    world.define(after("c", &[("a", ChainOn::Success)]));
    world.run(SECOND);
    world.define(task("b", Trigger::Manual));
    world.remove("c");
    world.run(SECOND);
    world.trigger("a", None);
    world.run(5 * SECOND);
    assert_eq!(world.rows("a").len(), 1);
    assert!(world.rows("b").is_empty() && world.rows("c").is_empty());
    world.assert_sound();
}
