//! Firings that are for all workers.

use std::sync::Arc;

use punctual_core::definition::{Band, Blocking, ConcurrencyPolicy, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, InstanceRow, Part, State};
use punctual_core::limits::BROADCAST_WORKERS_MAX;
use punctual_core::protocol::ToScheduler;
use punctual_core::routing::{Nobody, Routing, Strategy, Understanding};
use punctual_core::scheduler::Alert;
use punctual_sim::tabletop::{Run, World, task};

use crate::desk::Desk;
use crate::queueing::roomy;

const SECOND: u64 = 1_000;

fn broadcast(definition: TaskDefinition) -> TaskDefinition {
    TaskDefinition { routing: Some(Arc::new(Routing { strategy: Strategy::Broadcast, ..Routing::default() })), ..definition }
}

fn shards(world: &World) -> Vec<&InstanceRow> {
    world.rows("a").into_iter().filter(|row| row.part != Part::WHOLE).collect()
}

fn key(row: &InstanceRow) -> &str {
    row.links.as_ref().and_then(|links| links.shard_key.as_deref()).expect("a shard for a worker")
}

#[test]
fn each_worker_has_one_shard_and_runs_no_other() {
    let mut world = World::settled(3);
    world.define(broadcast(task("a", Trigger::Manual)));
    world.script("a", &[Run { takes: 5 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(2 * SECOND);
    world.add_worker();
    world.run(10 * SECOND);
    assert_eq!(shards(&world).iter().map(|row| key(row)).collect::<Vec<_>>(), ["w1", "w2", "w3"], "who comes later has none");
    for began in &world.began {
        let row = shards(&world).into_iter().find(|row| row.id == began.instance).expect("a shard");
        assert_eq!(key(row), format!("w{}", began.worker + 1));
    }
    assert_eq!((world.began.len(), world.rows("a")[0].state), (3, State::Succeeded));
    world.assert_sound();
}

/// One has no room, one drains, one is too old to know shards; and one comes back in time.
#[test]
fn it_is_for_those_that_may_have_it_with_room_or_without() {
    let mut desk = Desk::new();
    desk.worker("full", 1);
    let plain = desk.define(roomy("plain"));
    desk.trigger(plain, 1);
    desk.worker("free", 2);
    desk.worker_with("old", 9, |hello| hello.traits.understands = Understanding::Firings);
    desk.worker("drains", 9);
    desk.says("drains", ToScheduler::Draining);
    let all = desk.define(broadcast(roomy("all")));
    desk.trigger(all, 1);
    desk.run(10);
    assert_eq!(desk.states(all).len(), 3, "the firing, and a shard for each of two");
    assert_eq!(desk.workers_of("all"), ["free"]);
    desk.end(&desk.starts[0].clone());
    desk.run(10);
    assert_eq!(desk.workers_of("all"), ["free", "full"]);
}

/// Its shard for a worker stands before one that has waited there for longer: both are served.
#[test]
fn shards_that_go_first_push_nobody_out() {
    let mut desk = Desk::new();
    let plain = desk.define(roomy("plain"));
    let patient = desk.define(broadcast(roomy("patient")));
    let hasty = desk.define(broadcast(TaskDefinition { level: 9, ..roomy("hasty") }));
    desk.worker("one", 1);
    desk.trigger(plain, 1);
    desk.worker("two", 1);
    desk.trigger(patient, 1);
    desk.run(10);
    assert_eq!((desk.workers_of("plain"), desk.workers_of("patient")), (vec!["one"], vec!["two"]));
    desk.trigger(hasty, 1);
    desk.run(10);
    assert_eq!(desk.states(hasty), [State::Created], "there is no room, and it is not divided yet");
    let mut ended = 0;
    while let Some(start) = desk.starts.get(ended).cloned() {
        desk.end(&start);
        desk.run(10);
        ended += 1;
    }
    for (task, name) in [(patient, "patient"), (hasty, "hasty")] {
        assert_eq!(desk.workers_of(name).len(), 2, "{name} has run on both");
        assert!(desk.states(task).iter().all(|state| *state == State::Succeeded), "{:?}", desk.states(task));
    }
}

/// However urgent it is: there is another slot.
#[test]
fn what_can_go_elsewhere_leaves_the_last_slot_to_a_shard() {
    let mut desk = Desk::new();
    let mut urgent = TaskDefinition { band: Band::Urgent, ..roomy("urgent") };
    Arc::make_mut(&mut urgent.policies).concurrency = ConcurrencyPolicy { max_running: 1, blocking: Blocking::Queue { max_queue: 1 } };
    let urgent = desk.define(urgent);
    let all = desk.define(broadcast(roomy("all")));
    desk.worker("first", 1);
    desk.trigger(urgent, 2);
    desk.worker("second", 1);
    desk.trigger(all, 1);
    desk.run(10);
    let [busy, shard] = [0, 1].map(|nth| desk.starts[nth].clone());
    assert_eq!((&*busy.worker, &*shard.worker), ("first", "second"));
    desk.end(&shard);
    // Its slot is free now, and the next urgent one is ready.
    desk.end(&busy);
    desk.run(10);
    assert_eq!((desk.workers_of("urgent"), desk.workers_of("all")), (vec!["first", "second"], vec!["second", "first"]));
}

#[test]
fn while_there_is_nobody_it_waits_undivided_and_says_so() {
    let mut desk = Desk::new();
    desk.worker_with("old", 9, |hello| hello.traits.understands = Understanding::Firings);
    let all = desk.define(broadcast(roomy("all")));
    desk.trigger(all, 1);
    desk.run(120_000);
    assert_eq!(desk.states(all), [State::Created]);
    assert_eq!(desk.scheduler.waiting_for()[0].nobody, Some(Nobody::NoShards));
    desk.worker("a", 1);
    desk.worker("b", 1);
    desk.run(10);
    assert_eq!(desk.workers_of("all"), ["a"], "there was nobody else when it was divided");
    assert_eq!(desk.states(all).len(), 2);
}

/// Nobody else may have its shard, and the firing doesn't wait for it for ever.
#[test]
pub(crate) fn a_worker_that_is_gone_before_it_began_costs_its_shard() {
    let mut desk = Desk::new();
    let all = desk.define(broadcast(roomy("all")));
    let plain = desk.define(roomy("plain"));
    desk.worker("busy", 1);
    desk.trigger(plain, 1);
    desk.worker("free", 1);
    desk.trigger(all, 1);
    desk.run(10);
    desk.disconnect("busy");
    desk.end(&desk.starts.iter().find(|start| &*start.task == "all").expect("one has begun").clone());
    desk.run(29_000);
    assert!(desk.states(all).contains(&State::Running), "it may come back");
    desk.run(5_000);
    let states = desk.states(all);
    assert_eq!(states.iter().filter(|state| **state == State::Failed).count(), 2, "the shard, and the firing: {states:?}");
    assert_eq!(states.iter().filter(|state| **state == State::Succeeded).count(), 1);
    assert_eq!(desk.workers_of("all"), ["free"]);
    let told = |alert: &&Alert| matches!(alert, Alert::NobodyFor { reason: Nobody::PinnedWorkerAway, .. });
    assert_eq!(desk.alerts.iter().filter(told).count(), 1);
}

/// What it had begun is tried again there, by the task's own retries.
#[test]
fn a_worker_that_comes_back_has_its_shard() {
    let mut world = World::settled(2);
    world.define(broadcast(task("a", Trigger::Manual)));
    world.script("a", &[Run { takes: 5 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    world.crash_worker(1);
    world.run(SECOND);
    world.start_worker(1);
    world.run(120 * SECOND);
    assert!(world.rows("a").iter().all(|row| row.state == State::Succeeded), "{:?}", world.states("a"));
    assert_eq!(world.began.iter().map(|began| began.worker).collect::<Vec<_>>(), [0, 1, 1]);
    world.assert_sound();
}

/// The next owner knows for whom they are, and waits a lease's time for them too.
#[test]
fn a_takeover_keeps_the_shards_to_their_workers() {
    let mut world = World::new(1, 2, 3);
    world.run(100);
    world.define(broadcast(task("a", Trigger::Manual)));
    world.script("a", &[Run { takes: 20 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    let owner = world.owner();
    world.crash_replica(owner);
    world.crash_worker(2);
    world.run(200 * SECOND);
    let ends: Vec<_> = shards(&world).iter().map(|row| (key(row), row.transitions.last().map(|last| last.cause))).collect();
    assert_eq!(ends[2], ("w3", Some(Cause::WorkerGone)));
    let elsewhere = world
        .began
        .iter()
        .filter(|began| shards(&world).iter().any(|row| row.id == began.instance && key(row) != format!("w{}", began.worker + 1)));
    assert_eq!(elsewhere.count(), 0);
    assert_eq!(world.rows("a")[0].state, State::Failed);
    world.assert_sound();
}

#[test]
fn a_rerun_goes_to_the_workers_that_have_not_succeeded() {
    let mut world = World::settled(3);
    world.define(broadcast(task("a", Trigger::Manual)));
    world.script("a", &[Run { takes: 5 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(SECOND);
    world.cancel(shards(&world)[1].id);
    world.run(10 * SECOND);
    world.add_worker();
    world.rerun(world.rows("a")[0].id);
    world.run(10 * SECOND);
    let again: Vec<_> = shards(&world).into_iter().filter(|row| row.run == 2).map(key).collect();
    assert_eq!(again, ["w2"]);
    assert!(world.rows("a").iter().filter(|row| row.run == 2).all(|row| row.state == State::Succeeded));
    world.assert_sound();
}

#[test]
fn more_workers_than_the_limit_are_refused_with_the_reason() {
    let mut desk = Desk::new();
    for number in 0..=BROADCAST_WORKERS_MAX {
        desk.worker(&format!("w{number}"), 1);
    }
    let all = desk.define(broadcast(roomy("all")));
    desk.trigger(all, 1);
    desk.run(10);
    assert_eq!((desk.states(all), desk.starts.len()), (vec![State::Failed], 0));
}

/// Cancelled while it waits for somebody, and while it is under way.
#[test]
fn it_can_be_cancelled() {
    let mut world = World::settled(0);
    world.define(broadcast(task("a", Trigger::Manual)));
    world.script("a", &[Run { takes: 60 * SECOND, ..Run::default() }]);
    world.trigger("a", None);
    world.run(5 * SECOND);
    world.cancel(world.rows("a")[0].id);
    world.run(SECOND);
    assert_eq!(world.states("a"), [State::Cancelled]);
    (0..2).for_each(|_| world.add_worker());
    world.run(SECOND);
    world.trigger("a", None);
    world.run(SECOND);
    let second = world.rows("a").iter().find(|row| row.state == State::Running && row.part == Part::WHOLE).expect("it runs").id;
    world.cancel(second);
    world.run(5 * SECOND);
    assert!(world.rows("a").iter().all(|row| row.state == State::Cancelled), "{:?}", world.states("a"));
    world.assert_sound();
}
