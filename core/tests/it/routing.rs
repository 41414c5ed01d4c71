//! Which worker gets an instance, and what is said of what nobody can run.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::definition::{Band, Sharding, TaskDefinition};
use punctual_core::ids::WorkerId;
use punctual_core::protocol::{Hello, ToScheduler};
use punctual_core::routing::{Nobody, Routing, Strategy, Understanding, WorkerVersion};
use punctual_core::scheduler::Alert;

use crate::desk::Desk;
use crate::queueing::roomy;

fn routed(name: &str, routing: Routing) -> TaskDefinition {
    TaskDefinition { routing: Some(Arc::new(routing)), ..roomy(name) }
}

fn by(name: &str, strategy: Strategy) -> TaskDefinition {
    routed(name, Routing { strategy, ..Routing::default() })
}

fn tagged(name: &str, tags: &[&str]) -> TaskDefinition {
    routed(name, Routing { tags: tags.iter().map(|tag| Arc::from(*tag)).collect(), ..Routing::default() })
}

fn version(text: &str) -> Option<WorkerVersion> {
    Some(WorkerVersion::parse(text).expect("a version"))
}

fn with_tags(tags: &'static [&'static str]) -> impl FnOnce(&mut Hello) {
    move |hello| hello.traits.tags = tags.iter().map(|tag| Arc::from(*tag)).collect()
}

fn reasons(desk: &Desk) -> Vec<Nobody> {
    desk.alerts.iter().filter_map(|alert| if let Alert::NobodyFor { reason, .. } = alert { Some(*reason) } else { None }).collect()
}

#[test]
fn a_task_that_asks_for_tags_goes_to_those_that_have_them_all() {
    let mut desk = Desk::new();
    desk.worker_with("eu", 10, with_tags(&["zone=eu"]));
    desk.worker_with("gpu", 10, with_tags(&["zone=eu", "gpu=true"]));
    desk.worker("plain", 100);
    let gpu = desk.define(tagged("gpu", &["gpu=true", "zone=eu"]));
    let eu = desk.define(tagged("eu", &["zone=eu"]));
    let any = desk.define(roomy("any"));
    for task in [gpu, eu, any] {
        desk.trigger(task, 6);
    }
    desk.run(10);
    assert_eq!(desk.workers_of("gpu"), ["gpu"; 6]);
    assert_eq!(desk.workers_of("eu").into_iter().collect::<BTreeSet<_>>(), ["eu", "gpu"].into());
    assert_eq!(desk.workers_of("any"), ["plain"; 6], "the least loaded");
}

#[test]
fn what_nobody_can_run_is_told_once_with_the_reason_and_starts_when_somebody_can() {
    let mut desk = Desk::new();
    let definition =
        routed("picky", Routing { tags: vec![Arc::from("zone=eu")], min_worker_version: version("1.4"), ..Routing::default() });
    let (picky, any) = (desk.define(definition), desk.define(roomy("any")));
    desk.trigger(picky, 3);
    desk.run(60_000);
    assert_eq!(reasons(&desk), [Nobody::NotConnected], "once");
    desk.worker_with("other", 4, |hello| hello.handlers = vec![Arc::from("http")]);
    desk.run(60_000);
    desk.worker("us", 4);
    desk.run(60_000);
    desk.trigger(any, 1);
    desk.run(10);
    assert_eq!(desk.workers_of("any"), ["us"], "what nobody can run stands in nobody's way");
    desk.worker_with("eu", 4, |hello| {
        with_tags(&["zone=eu"])(hello);
        hello.traits.version = version("1.3.9");
    });
    desk.run(60_000);
    let waiting = desk.scheduler.waiting_for();
    assert_eq!(waiting.len(), 1);
    assert_eq!((waiting[0].waiting, waiting[0].nobody), (3, Some(Nobody::TooOld)));
    assert_eq!(waiting[0].needs.to_string(), "handler command, tag zone=eu, worker version 1.4 or newer");
    assert_eq!(reasons(&desk), [Nobody::NotConnected, Nobody::UnknownHandler, Nobody::LacksTags, Nobody::TooOld]);

    desk.worker_with("eu", 4, |hello| {
        with_tags(&["zone=eu"])(hello);
        hello.traits.version = version("1.4.0");
    });
    assert_eq!(desk.workers_of("picky"), ["eu"; 3], "at once, by its hello alone");
    assert!(desk.scheduler.waiting_for().is_empty());
    assert_eq!(reasons(&desk).len(), 4);
}

#[test]
fn a_pinned_task_waits_for_its_worker() {
    let mut desk = Desk::new();
    desk.worker("w1", 100);
    let pinned = desk.define(by("pinned", Strategy::Pinned(WorkerId(Arc::from("w2")))));
    desk.trigger(pinned, 2);
    desk.run(1_000);
    assert_eq!(reasons(&desk), [Nobody::PinnedWorkerAway]);
    desk.worker("w2", 1);
    assert_eq!(desk.workers_of("pinned"), ["w2"]);
    desk.run(1_000);
    assert_eq!(desk.starts.len(), 1, "it is full, and nobody else will do");
    assert_eq!(desk.scheduler.waiting_for()[0].nobody, None);
    desk.end(&desk.starts[0].clone());
    desk.run(10);
    assert_eq!(desk.workers_of("pinned"), ["w2"; 2]);
}

#[test]
fn workers_that_drain_are_given_nothing_and_that_is_said() {
    let mut desk = Desk::new();
    desk.worker("w1", 4);
    desk.says("w1", ToScheduler::Draining);
    let task = desk.define(roomy("a"));
    desk.trigger(task, 1);
    desk.run(1_000);
    assert_eq!(reasons(&desk), [Nobody::Draining]);
    desk.worker("w2", 4);
    assert_eq!(desk.workers_of("a"), ["w2"]);
    desk.says("w2", ToScheduler::Draining);
    desk.trigger(task, 1);
    desk.run(1_000);
    assert_eq!(reasons(&desk), [Nobody::Draining; 2], "it was over in between");
}

#[test]
fn slots_that_are_all_kept_for_bands_above_are_a_reason() {
    let mut desk = Desk::new();
    desk.worker_with("w", 2, |hello| hello.traits.reserved = [2, 0]);
    let task = desk.define(roomy("a"));
    let urgent = desk.define(TaskDefinition { band: Band::Urgent, ..roomy("urgent") });
    desk.trigger(urgent, 1);
    desk.trigger(task, 1);
    desk.run(1_000);
    assert_eq!(reasons(&desk), [Nobody::Reserved]);
    assert_eq!(desk.scheduler.waiting_for()[0].nobody, Some(Nobody::Reserved));
    assert_eq!(desk.workers_of("urgent"), ["w"]);
    desk.worker("w2", 1);
    assert_eq!(desk.workers_of("a"), ["w2"]);
}

#[test]
fn round_robin_goes_by_turns_and_passes_over_who_is_full() {
    let mut desk = Desk::new();
    ["a", "b", "c"].iter().for_each(|name| desk.worker(name, 4));
    let task = desk.define(by("t", Strategy::RoundRobin));
    for _ in 0..6 {
        desk.trigger(task, 1);
        desk.run(5);
    }
    assert_eq!(desk.workers_of("t"), ["a", "b", "c", "a", "b", "c"]);
    let fill = desk.define(by("fill", Strategy::Pinned(WorkerId(Arc::from("a")))));
    desk.trigger(fill, 2);
    desk.run(5);
    desk.trigger(task, 3);
    desk.run(5);
    // What leaves together leaves worker by worker.
    let mut workers = desk.workers_of("t")[6..].to_vec();
    workers.sort_unstable();
    assert_eq!(workers, ["b", "b", "c"]);
}

#[test]
fn random_is_the_same_for_the_same_attempt_and_reaches_everybody() {
    let chosen = || {
        let mut desk = Desk::new();
        ["a", "b", "c"].iter().for_each(|name| desk.worker(name, 100));
        let task = desk.define(by("t", Strategy::Random));
        desk.trigger(task, 90);
        desk.run(10);
        desk.workers_of("t").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let workers = chosen();
    assert_eq!(workers, chosen());
    for name in ["a", "b", "c"] {
        let count = workers.iter().filter(|worker| *worker == name).count();
        assert!((15..50).contains(&count), "{name} was given {count} of 90");
    }
}

#[test]
fn a_hashed_task_keeps_its_worker_and_moves_only_when_that_goes() {
    let mut desk = Desk::new();
    ["a", "b", "c"].iter().for_each(|name| desk.worker(name, 1_000));
    let names: Vec<String> = (0..30).map(|index| format!("t{index}")).collect();
    let tasks: Vec<_> = names.iter().map(|name| desk.define(by(name, Strategy::Hash))).collect();
    let fire = |desk: &mut Desk| {
        tasks.iter().for_each(|task| desk.trigger(*task, 1));
        desk.run(10);
    };
    fire(&mut desk);
    fire(&mut desk);
    desk.says("b", ToScheduler::Draining);
    fire(&mut desk);
    let mut moved = 0;
    for name in &names {
        let workers = desk.workers_of(name);
        assert_eq!(workers[0], workers[1], "{name}");
        assert_ne!(workers[2], "b");
        assert!(workers[0] == "b" || workers[2] == workers[0], "{name} went from {} to {}", workers[0], workers[2]);
        moved += usize::from(workers[2] != workers[0]);
    }
    assert!((3..20).contains(&moved), "{moved} of 30 were b's");
}

#[test]
fn a_worker_that_says_it_is_another_kind_is_taken_at_its_word() {
    let mut desk = Desk::new();
    desk.worker_with("w", 10, with_tags(&["zone=eu"]));
    let eu = desk.define(tagged("eu", &["zone=eu"]));
    desk.trigger(eu, 1);
    desk.worker_with("w", 10, with_tags(&["zone=us"]));
    desk.trigger(eu, 1);
    desk.run(10);
    assert_eq!(desk.starts.len(), 1);
    assert_eq!(reasons(&desk), [Nobody::LacksTags]);
    let view = &desk.scheduler.workers()[0];
    assert_eq!(view.traits.tags, [Arc::from("zone=us")]);
}

fn of_before(hello: &mut Hello) {
    hello.traits.understands = Understanding::Firings;
}

/// How many shards it is given, while there is nobody else.
pub(crate) fn shards_given_to_a_worker_of_before() -> usize {
    let mut desk = Desk::new();
    desk.worker_with("old", 10, of_before);
    let sharded = desk.define(sharded("sharded", 3));
    desk.trigger(sharded, 1);
    desk.run(10);
    desk.starts.len()
}

fn sharded(name: &str, count: u32) -> TaskDefinition {
    let mut definition = roomy(name);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(count);
    definition
}

/// It would pass over that it is given a shard, and run the whole task for each.
#[test]
fn a_worker_from_before_there_were_shards_is_given_none() {
    let mut desk = Desk::new();
    desk.worker_with("old", 10, of_before);
    let (sharded, plain) = (desk.define(sharded("sharded", 3)), desk.define(roomy("plain")));
    desk.trigger(sharded, 1);
    desk.trigger(plain, 2);
    desk.run(60_000);
    assert_eq!((desk.workers_of("plain"), desk.workers_of("sharded")), (vec!["old"; 2], vec![]));
    assert_eq!(reasons(&desk), [Nobody::NoShards], "once");
    let waiting = desk.scheduler.waiting_for();
    assert_eq!((waiting[0].waiting, waiting[0].nobody), (3, Some(Nobody::NoShards)));
    assert_eq!(waiting[0].needs.to_string(), "handler command, understands shards");
    assert!(Nobody::NoShards.reason().contains("upgrade the workers"));
    desk.worker("new", 2);
    assert_eq!(desk.workers_of("sharded"), ["new"; 2], "at once");
    desk.worker_with("old", 10, |_| {});
    assert_eq!(desk.workers_of("sharded"), ["new", "new", "old"], "it was upgraded");
}
