//! Firings that are mapped over a list.

use std::sync::Arc;

use punctual_core::definition::{Handler, Map, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, InstanceRow, MapPhase, Part, State};
use punctual_core::limits::{MAP_ITEMS_MAX, MAP_PAGE_ITEMS};
use punctual_core::protocol::End;
use punctual_sim::tabletop::{Run, World, task};

const SECOND: u64 = 1_000;

fn mapped(parallel: u32, is_reduced: bool) -> TaskDefinition {
    let handler = |config: &str| Handler { name: Arc::from("command"), config: Arc::from(config) };
    let map = Map { list: handler("{\"list\":1}"), reduce: is_reduced.then(|| handler("{\"reduce\":1}")), parallel };
    TaskDefinition { map: Some(Arc::new(map)), ..task("a", Trigger::Manual) }
}

fn whole(world: &World) -> &InstanceRow {
    world.rows("a").into_iter().find(|row| row.part == Part::WHOLE).expect("a firing")
}

fn items(world: &World) -> Vec<&InstanceRow> {
    let mut items: Vec<_> = world.rows("a").into_iter().filter(|row| row.part.shard_index().is_some()).collect();
    items.sort_by_key(|row| row.part);
    items
}

fn quick() -> Run {
    Run { takes: 10, ..Run::default() }
}

#[test]
pub(crate) fn each_item_is_run_once_and_the_results_are_reduced_in_their_order() {
    let mut world = World::settled(3);
    world.define(mapped(2, true));
    world.listed = Some(7);
    world.trigger("a", None);
    world.run(20 * SECOND);
    let row = whole(&world);
    assert_eq!((row.state, row.transitions.last().map(|last| last.cause)), (State::Succeeded, Some(Cause::PartsEnded)));
    assert_eq!(row.result.as_deref(), Some("7"), "what the reduce handler has answered");
    let payloads: Vec<_> = items(&world).iter().filter_map(|row| row.payload.as_deref()).collect();
    assert_eq!(payloads, ["0", "1", "2", "3", "4", "5", "6"]);
    assert_eq!(world.reduced.iter().map(|(_, results)| &**results).collect::<Vec<_>>(), ["0\n1\n2\n3\n4\n5\n6\n"]);
    assert_eq!(world.began.len(), 9, "one lists, one reduces, and the firing itself is given to nobody");
    world.assert_sound();
}

#[test]
fn no_more_items_run_at_once_than_the_task_allows() {
    let mut world = World::settled(3);
    world.define(mapped(4, false));
    world.listed = Some(40);
    world.script("a", &[Run { takes: 500, ..Run::default() }]);
    world.trigger("a", None);
    let mut most = 0;
    for _ in 0..100 {
        world.run(100);
        most = most.max(items(&world).iter().filter(|row| !row.state.is_terminal()).count());
    }
    assert_eq!((most, items(&world).len(), whole(&world).state), (4, 40, State::Succeeded));
    world.assert_sound();
}

#[test]
fn an_empty_list_is_done_at_once() {
    for is_reduced in [false, true] {
        let mut world = World::settled(1);
        world.define(mapped(2, is_reduced));
        world.listed = Some(0);
        world.trigger("a", None);
        world.run(10 * SECOND);
        assert_eq!((whole(&world).state, world.began.len()), (State::Succeeded, 1 + usize::from(is_reduced)));
        assert_eq!(world.reduced.iter().map(|(_, results)| &**results).collect::<Vec<_>>(), vec![""; usize::from(is_reduced)]);
        world.assert_sound();
    }
}

/// Nothing is reduced where something is missing; the other items run all the same.
#[test]
fn an_item_that_fails_fails_the_firing_when_all_have_ended() {
    let mut world = World::settled(2);
    world.define(mapped(2, true));
    world.listed = Some(6);
    world.trigger("a", None);
    for _ in 0..1_000 {
        world.run(10);
        if items(&world).len() >= 2 {
            break;
        }
    }
    let second = items(&world)[1].id;
    world.cancel(second);
    world.run(20 * SECOND);
    let row = whole(&world);
    assert_eq!((row.state, row.failures), (State::Failed, 1));
    assert_eq!(row.transitions.last().and_then(|last| last.detail.as_deref()), Some("1 of 6 items did not succeed"));
    assert_eq!((items(&world).len(), world.reduced.len()), (6, 0));
    world.assert_sound();
}

#[test]
fn a_list_that_fails_fails_the_firing() {
    let mut world = World::settled(2);
    world.define(mapped(2, true));
    world.script("a", &[Run { end: End::FailedForGood, ..Run::default() }]);
    world.trigger("a", None);
    world.run(10 * SECOND);
    assert_eq!((whole(&world).state, items(&world).len()), (State::Failed, 0));
    world.assert_sound();
}

/// Whenever its owner dies, the next one goes on where it was: no item is left out, and none is there twice.
#[test]
fn a_takeover_goes_on_with_the_items() {
    for after in [200, 700, 1_300, 2_100, 3_300, 5_000] {
        let mut world = World::new(1, 2, 2);
        world.run(100);
        world.define(mapped(3, true));
        world.listed = Some(11);
        world.script("a", &[Run { takes: 700, ..Run::default() }]);
        world.trigger("a", None);
        world.run(after);
        let owner = world.owner();
        world.crash_replica(owner);
        world.run(60 * SECOND);
        assert_eq!((whole(&world).state, whole(&world).result.as_deref()), (State::Succeeded, Some("11")), "after {after} ms");
        world.assert_sound();
    }
}

#[test]
fn cancelling_ends_what_runs_and_makes_no_more() {
    let mut world = World::settled(2);
    world.define(mapped(2, true));
    world.listed = Some(50);
    world.trigger("a", None);
    world.run(3 * SECOND);
    world.cancel(whole(&world).id);
    world.run(10 * SECOND);
    assert_eq!(whole(&world).state, State::Cancelled);
    assert!(items(&world).len() < 20 && items(&world).iter().all(|row| row.state.is_terminal()));
    world.assert_sound();
}

#[test]
fn a_task_that_is_removed_begins_no_more_items() {
    let mut world = World::settled(2);
    world.define(mapped(2, true));
    world.listed = Some(50);
    world.trigger("a", None);
    world.run(3 * SECOND);
    world.remove("a");
    world.run(20 * SECOND);
    assert_eq!(whole(&world).state, State::Cancelled);
    assert!(items(&world).len() < 20);
    world.assert_sound();
}

/// As many as there may be: what is in memory is a page of items and those that run, however many there are.
#[test]
fn a_hundred_thousand_items_keep_memory_bounded() {
    const PARALLEL: u32 = 200;
    let mut world = World::settled(0);
    (0..8).for_each(|_| world.add_worker_with(64));
    world.define(mapped(PARALLEL, true));
    world.listed = Some(MAP_ITEMS_MAX);
    world.script("a", &[quick()]);
    world.run(5 * SECOND);
    world.trigger("a", None);
    world.run(100);
    let id = whole(&world).id;
    let (mut most_instances, mut most_items) = (0, 0);
    let mut is_over = false;
    for _ in 0..10_000 {
        world.run(20);
        let replica = world.replicas[0].scheduler.as_ref().expect("it runs");
        most_instances = most_instances.max(replica.instance_count());
        most_items = most_items.max(replica.mapped_item_count());
        is_over = world.data().instances[&id].state.is_terminal();
        if is_over {
            break;
        }
    }
    assert!(is_over);
    let row = &world.data().instances[&id];
    assert_eq!((row.state, row.result.as_deref()), (State::Succeeded, Some("100000")));
    assert!(most_instances <= 1 + PARALLEL as usize * 2, "{most_instances} instances in memory");
    assert!(most_items <= MAP_PAGE_ITEMS, "{most_items} items in memory");
    let progress = row.links.as_ref().and_then(|links| links.map.as_deref().copied()).expect("it is mapped");
    assert_eq!((progress.phase, progress.made), (MapPhase::Reduce, MAP_ITEMS_MAX));
}

/// More than one firing may hand on.
#[test]
fn results_that_are_too_much_are_refused_with_the_reason() {
    let mut world = World::settled(3);
    world.define(TaskDefinition { payload: None, ..mapped(1_000, true) });
    world.listed = Some(250);
    world.answer_with = Some(Arc::from("x".repeat(16_000)));
    world.trigger("a", None);
    world.run(60 * SECOND);
    let row = whole(&world);
    assert_eq!((row.state, row.transitions.last().map(|last| last.cause)), (State::Failed, Some(Cause::ResultsTooLarge)));
    assert!(world.reduced.is_empty());
}
