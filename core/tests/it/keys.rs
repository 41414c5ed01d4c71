//! Limits with a key: they hold for each value at a place in the payload.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::definition::{Blocking, TaskDefinition, Trigger};
use punctual_core::inbox::Submission;
use punctual_core::instance::{Cause, InstanceRow, State};

use punctual_sim::tabletop::{Run, World, task};

const SECOND: u64 = 1_000;

fn keyed(blocking: Blocking) -> TaskDefinition {
    let mut definition = task("t", Trigger::Manual);
    let policies = Arc::make_mut(&mut definition.policies);
    policies.limit_key = Some(Arc::from("/customer"));
    policies.concurrency.blocking = blocking;
    definition
}

fn submit(world: &mut World, customers: &[&str]) {
    let payload =
        |customer: &&str| Submission { payload: Some(Arc::from(format!("{{\"customer\":{customer}}}"))), ..Submission::default() };
    world.submit("t", customers.iter().map(payload).collect());
}

/// The states of each customer's instances, oldest first.
fn states(world: &World) -> BTreeMap<String, Vec<State>> {
    let customer = |row: &&InstanceRow| row.payload.as_deref().unwrap_or("none").replace("{\"customer\":", "").replace('}', "");
    let mut states: BTreeMap<String, Vec<State>> = BTreeMap::new();
    for row in world.rows("t") {
        states.entry(customer(&row)).or_default().push(row.state);
    }
    states
}

fn slow(world: &mut World) {
    world.script("t", &[Run { takes: 5 * SECOND, ..Run::default() }]);
}

#[test]
fn each_value_has_a_limit_and_a_queue_of_its_own() {
    let mut world = World::settled(4);
    world.define(keyed(Blocking::Queue { max_queue: 1 }));
    slow(&mut world);
    submit(&mut world, &["1", "1", "1", "2", "\"1\"", "null", "null"]);
    world.submit("t", vec![Submission::default()]);
    world.run(SECOND);
    use State::{Running, Skipped, Waiting};
    assert_eq!(states(&world)["1"], [Running, Waiting, Skipped], "one runs, one waits, one finds the queue full");
    assert_eq!(states(&world)["2"], [Running], "another value doesn't wait");
    assert_eq!(states(&world)["\"1\""], [Running], "a text is no number");
    assert_eq!(
        (&states(&world)["null"][..], &states(&world)["none"][..]),
        (&[Running, Waiting][..], &[Skipped][..]),
        "what has none shares"
    );
    let waiting = world.rows("t").into_iter().find(|row| row.state == Waiting).expect("one waits");
    let detail = waiting.transitions[0].detail.as_deref().unwrap_or_default();
    assert!(detail.ends_with("; /customer = 1"), "it says for which key: {detail}");
    world.run(20 * SECOND);
    assert!(world.rows("t").iter().all(|row| matches!(row.state, State::Succeeded | Skipped)));
    world.assert_sound();
}

#[test]
fn discard_and_replace_go_by_the_value() {
    let mut world = World::settled(4);
    world.define(keyed(Blocking::Discard));
    slow(&mut world);
    submit(&mut world, &["1", "2"]);
    world.run(SECOND);
    submit(&mut world, &["2", "3"]);
    world.run(SECOND);
    assert_eq!(states(&world)["2"], [State::Running, State::Skipped]);
    assert_eq!(states(&world)["3"], [State::Running]);
    world.run(20 * SECOND);
    world.define(keyed(Blocking::Replace));
    submit(&mut world, &["1", "2"]);
    world.run(SECOND);
    submit(&mut world, &["2"]);
    world.run(3 * SECOND);
    assert_eq!(states(&world)["2"][2..], [State::Cancelled, State::Running]);
    assert_eq!(states(&world)["1"][1..], [State::Running], "another value's is left alone");
    let replaced = world.rows("t").into_iter().find(|row| row.state == State::Cancelled).expect("one was replaced");
    assert_eq!(replaced.transitions.last().map(|last| last.cause), Some(Cause::Replaced));
    world.assert_sound();
}

/// The queues of all values are in the store: a new owner goes on with them, in their order.
#[test]
fn queues_survive_a_takeover() {
    let mut world = World::new(1, 2, 4);
    world.run(20 * SECOND);
    world.define(keyed(Blocking::Queue { max_queue: 10 }));
    slow(&mut world);
    submit(&mut world, &["1", "1", "1", "2", "2"]);
    world.run(SECOND);
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(14 * SECOND);
    world.start_replica(owner);
    world.run(40 * SECOND);
    assert!(world.rows("t").iter().all(|row| row.state == State::Succeeded));
    let mut of_one: Vec<_> = world.rows("t").into_iter().filter(|row| row.payload.as_deref() == Some("{\"customer\":1}")).collect();
    of_one.sort_by_key(|row| row.id);
    let begun: Vec<_> =
        of_one.iter().map(|row| row.transitions.iter().find(|step| step.to == State::Running).map(|step| step.at)).collect();
    assert!(begun.is_sorted(), "first in, first out: {begun:?}");
    world.assert_sound();
}

#[test]
fn an_edit_of_the_key_counts_those_that_are_there_anew() {
    let mut world = World::settled(4);
    let mut without = keyed(Blocking::Queue { max_queue: 10 });
    Arc::make_mut(&mut without.policies).limit_key = None;
    world.define(without.clone());
    slow(&mut world);
    submit(&mut world, &["1", "2", "3", "1"]);
    world.run(SECOND);
    assert_eq!(world.states("t"), [State::Running, State::Waiting, State::Waiting, State::Waiting]);
    world.define(keyed(Blocking::Queue { max_queue: 10 }));
    world.run(SECOND);
    assert_eq!(world.states("t"), [State::Running, State::Running, State::Running, State::Waiting]);
    world.define(without);
    world.run(30 * SECOND);
    assert!(world.rows("t").iter().all(|row| row.state == State::Succeeded));
    world.assert_sound();
}
