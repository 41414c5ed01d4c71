//! Firings that are divided into shards.

use std::sync::Arc;

use punctual_core::definition::{Chain, ChainOn, Sharding, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, InstanceRow, Part, State};
use punctual_core::protocol::End;

use punctual_sim::tabletop::{Run, START, World, every, task};

const SECOND: u64 = 1_000;

fn sharded(name: &str, trigger: Trigger, count: u32) -> TaskDefinition {
    let mut definition = task(name, trigger);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(count);
    definition
}

fn whole<'a>(world: &'a World, name: &str) -> Vec<&'a InstanceRow> {
    world.rows(name).into_iter().filter(|row| row.part == Part::WHOLE).collect()
}

fn shards<'a>(world: &'a World, name: &str) -> Vec<&'a InstanceRow> {
    world.rows(name).into_iter().filter(|row| row.part != Part::WHOLE).collect()
}

#[test]
fn a_firing_succeeds_when_all_its_shards_have() {
    let mut world = World::settled(2);
    world.define(sharded("a", Trigger::Manual, 3));
    world.trigger("a", None);
    world.run(500);
    assert_eq!(whole(&world, "a")[0].state, State::Running);
    world.run(3 * SECOND);
    let [row] = whole(&world, "a")[..] else { panic!("one firing") };
    assert_eq!((row.state, row.transitions.last().map(|last| last.cause)), (State::Succeeded, Some(Cause::PartsEnded)));
    let indices: Vec<_> = shards(&world, "a").iter().map(|row| row.part.shard_index()).collect();
    assert_eq!(indices, [Some(0), Some(1), Some(2)]);
    assert!(shards(&world, "a").iter().all(|shard| shard.parent() == Some(row.id) && shard.state == State::Succeeded));
    assert_eq!(world.began.len(), 3, "the firing itself is given to nobody");
    world.assert_sound();
}

/// C353: what is chained to a sharded task fires once, after all shards have succeeded, and not at all where one has failed for good.
#[test]
fn what_is_chained_fires_once_for_all_shards() {
    let mut world = World::settled(2);
    world.define(sharded("a", Trigger::Manual, 3));
    let chains = Arc::from([Chain { task: Arc::from("a"), on: ChainOn::Success }]);
    world.define(TaskDefinition { chains: Some(chains), ..task("b", Trigger::Manual) });
    world.trigger("a", None);
    world.run(10 * SECOND);
    assert_eq!(world.rows("b").len(), 1);
    let last_end = shards(&world, "a").iter().filter_map(|row| row.ended_at()).max();
    assert!(last_end <= Some(world.rows("b")[0].created_at()));
    world.script("a", &[Run { end: End::FailedForGood, ..Run::default() }]);
    world.trigger("a", None);
    world.run(10 * SECOND);
    assert_eq!(whole(&world, "a")[1].state, State::Failed);
    assert_eq!(world.rows("b").len(), 1);
    world.assert_sound();
}

/// C355: 3 shards become 5 and then 2 while a firing runs. Each firing keeps what it was divided into.
#[test]
fn a_change_of_the_count_is_for_the_next_firing() {
    let mut world = World::settled(3);
    world.define(sharded("a", every(20), 3));
    world.script("a", &[Run { takes: 10 * SECOND, ..Run::default() }]);
    world.run_until(22 * SECOND);
    world.define(sharded("a", every(20), 5));
    world.run_until(42 * SECOND);
    world.define(sharded("a", every(20), 2));
    world.run_until(90 * SECOND);
    let of = |fire_time: i64| -> Vec<u32> {
        let own = |row: &&InstanceRow| (row.fire_time.0 - START) / 1_000 == fire_time;
        shards(&world, "a").into_iter().filter(own).filter_map(|row| row.part.shard_index()).collect()
    };
    assert_eq!((of(20), of(40), of(60)), (vec![0, 1, 2], vec![0, 1, 2, 3, 4], vec![0, 1]));
    let counts = |row: &&InstanceRow| row.links.as_ref().map(|links| links.shards);
    assert_eq!(whole(&world, "a").iter().filter_map(counts).collect::<Vec<_>>()[..3], [3, 5, 2]);
    world.assert_sound();
}

/// C357: a worker dies after one shard has ended there, another one half way. Only what was not done is given out again, once.
#[test]
fn a_lost_worker_costs_only_the_shards_that_it_had() {
    let mut world = World::settled(2);
    world.define(sharded("a", Trigger::Manual, 6));
    world.script("a", &[Run { takes: 5 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(2 * SECOND);
    world.crash_worker(0);
    let lost = world.began.iter().filter(|began| began.worker == 0).count();
    assert!(lost > 0);
    world.run(60 * SECOND);
    assert_eq!(whole(&world, "a")[0].state, State::Succeeded);
    assert_eq!(world.began.len(), 6 + lost);
    assert_eq!(shards(&world, "a").iter().filter(|row| row.losses == 1).count(), lost);
    world.assert_sound();
}

#[test]
fn a_takeover_finds_the_shards_and_ends_what_they_are_of() {
    let mut world = World::new(1, 2, 2);
    world.run(100);
    world.define(sharded("a", Trigger::Manual, 5));
    world.script("a", &[Run { takes: 20 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(60 * SECOND);
    assert_eq!(whole(&world, "a")[0].state, State::Succeeded);
    assert_eq!(world.began.len(), 5, "what ran was adopted");
    world.assert_sound();
}

/// One shard has failed when the owner dies; the next owner reads only what has not ended.
#[test]
fn a_takeover_remembers_the_shards_that_failed() {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    world.define(sharded("a", Trigger::Manual, 2));
    world.script("a", &[Run { takes: 40 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    world.cancel(shards(&world, "a")[0].id);
    world.run(SECOND);
    assert_eq!((whole(&world, "a")[0].state, whole(&world, "a")[0].failures), (State::Running, 1));
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(90 * SECOND);
    assert_eq!(shards(&world, "a")[1].state, State::Succeeded);
    assert_eq!(whole(&world, "a")[0].state, State::Failed);
    world.assert_sound();
}

#[test]
fn cancelling_a_firing_cancels_all_its_shards() {
    let mut world = World::settled(1);
    world.define(sharded("a", Trigger::Manual, 9));
    world.script("a", &[Run { takes: 60 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    let cancelled = world.cancel(whole(&world, "a")[0].id);
    world.run(5 * SECOND);
    assert!(world.rows("a").iter().all(|row| row.state == State::Cancelled), "{:?}", world.states("a"));
    assert!(!world.data().inbox.contains_key(&cancelled));
    world.assert_sound();
}

/// The limit counts firings, not shards.
#[test]
fn shards_count_against_the_limit_as_one() {
    let mut world = World::settled(2);
    world.define(sharded("a", Trigger::Manual, 4));
    world.trigger("a", None);
    world.trigger("a", None);
    world.run(500);
    let states: Vec<_> = whole(&world, "a").iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Running, State::Waiting]);
    world.run(10 * SECOND);
    assert!(whole(&world, "a").iter().all(|row| row.state == State::Succeeded));
    world.assert_sound();
}

#[test]
fn shards_by_key_are_given_their_keys() {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Keys(Arc::from([Arc::from("eu"), Arc::from("us")]));
    world.define(definition);
    world.trigger("a", None);
    world.run(5 * SECOND);
    let keys: Vec<_> = shards(&world, "a").iter().filter_map(|row| row.links.as_ref()?.shard_key.clone()).collect();
    assert_eq!(keys, [Arc::from("eu"), Arc::<str>::from("us")]);
}

/// The shards of a run that were made, by their numbers, and the end of its whole.
fn run_of(world: &World, run: u32) -> (Vec<u32>, State, Option<Arc<str>>) {
    let of_run = |row: &&&InstanceRow| row.run == run;
    let numbers = shards(world, "a").iter().filter(of_run).filter_map(|row| row.part.shard_index()).collect();
    let wholes = whole(world, "a");
    let row = wholes.iter().find(of_run).expect("there is such a run");
    (numbers, row.state, row.transitions.last().and_then(|last| last.detail.clone()))
}

/// One shard of a run does not succeed.
fn cancel_shard(world: &mut World, run: u32, index: u32) {
    let shards = shards(world, "a");
    let shard = shards.iter().find(|row| row.run == run && row.part == Part::shard(index)).expect("there is such a shard");
    world.cancel(shard.id);
}

/// The rule is another one by now. What was divided stays so, run by run.
#[test]
pub(crate) fn a_rerun_has_the_shards_that_have_not_succeeded() {
    let mut world = World::settled(2);
    world.define(sharded("a", Trigger::Manual, 4));
    world.script("a", &[Run { takes: 5 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    cancel_shard(&mut world, 1, 1);
    cancel_shard(&mut world, 1, 3);
    world.run(10 * SECOND);
    assert_eq!(run_of(&world, 1).1, State::Failed);
    world.define(sharded("a", Trigger::Manual, 9));
    world.rerun(whole(&world, "a")[0].id);
    world.run(SECOND);
    cancel_shard(&mut world, 2, 3);
    world.run(10 * SECOND);
    let (numbers, state, detail) = run_of(&world, 2);
    assert_eq!((numbers, state), (vec![1, 3], State::Failed));
    assert_eq!(detail.as_deref(), Some("1 of 4 shards did not succeed, 2 were carried over"));
    let divided = whole(&world, "a")[1].transitions.iter().find(|step| step.cause == Cause::Divided).and_then(|step| step.detail.clone());
    assert_eq!(divided.as_deref(), Some("2 of 4 shards have succeeded before and are carried over"));
    world.rerun(whole(&world, "a")[1].id);
    world.run(10 * SECOND);
    let (numbers, state, _) = run_of(&world, 3);
    assert_eq!((numbers, state), (vec![3], State::Succeeded));
    assert_eq!(whole(&world, "a")[2].links.as_ref().map(|links| (links.shards, links.carried)), Some((4, 3)));
    world.assert_sound();
}

/// What is to run again is known to whoever owns it when its turn comes.
#[test]
fn a_takeover_divides_a_rerun_that_waits_as_it_was_asked_for() {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    world.define(sharded("a", Trigger::Manual, 3));
    world.script("a", &[Run { takes: 5 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    cancel_shard(&mut world, 1, 2);
    world.run(10 * SECOND);
    world.script("a", &[Run { takes: 40 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    world.rerun(whole(&world, "a")[0].id);
    world.run(SECOND);
    let rerun = |world: &World| whole(world, "a").into_iter().find(|row| row.run == 2).cloned().expect("it was asked for");
    assert_eq!(rerun(&world).state, State::Waiting);
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(120 * SECOND);
    let row = rerun(&world);
    assert_eq!((row.state, row.links.as_ref().map(|links| (links.shards, links.carried))), (State::Succeeded, Some((3, 2))));
    assert_eq!(shards(&world, "a").iter().filter(|row| row.run == 2).count(), 1);
    world.assert_sound();
}
