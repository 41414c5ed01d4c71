//! What operators do: instances that run once more.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::definition::{Blocking, Sharding, TaskDefinition, Trigger};
use punctual_core::ids::{InstanceId, Version};
use punctual_core::inbox::Submission;
use punctual_core::instance::{Cause, Origin, Part, State};
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_core::rate::RateLimit;
use punctual_core::time::Millis;
use punctual_sim::tabletop::{Run, World, minutely, task};

const SECOND: u64 = 1_000;

fn failing() -> Run {
    Run { end: End::FailedForGood, ..Run::default() }
}

fn limited(blocking: Blocking) -> TaskDefinition {
    let mut definition = task("a", Trigger::Manual);
    let policies = Arc::make_mut(&mut definition.policies);
    (policies.concurrency.max_running, policies.concurrency.blocking) = (1, blocking);
    definition
}

/// The runs and states of a task's whole firings, oldest first.
fn runs(world: &World, name: &str) -> Vec<(u32, State)> {
    world.rows(name).iter().filter(|row| row.part == Part::WHOLE).map(|row| (row.run, row.state)).collect()
}

/// A scheduled instance has failed, the task was edited, and it runs once more: the same firing, under the new version.
#[test]
fn a_rerun_is_the_same_firing_under_the_version_in_force() {
    let mut world = World::settled(1);
    world.define(task("a", minutely()));
    world.script("a", &[failing()]);
    world.run(65 * SECOND);
    world.define(task("a", Trigger::Manual));
    world.run(SECOND);
    let first = world.first("a");
    world.script("a", &[Run::default()]);
    world.rerun(first);
    world.run(5 * SECOND);
    let [of, again] = world.rows("a")[..] else { panic!("{:?}", world.states("a")) };
    assert_eq!((of.state, again.state), (State::Failed, State::Succeeded));
    assert_eq!((again.fire_time, again.ordinal, again.run, again.version), (of.fire_time, of.ordinal, 2, Version(2)));
    assert_eq!((again.origin, again.attempt, again.links.as_ref().and_then(|links| links.cause)), (Origin::Rerun, 1, Some(first)));
    let made = &again.transitions[0];
    assert_eq!((made.cause, made.detail.as_deref()), (Cause::RerunRequested, Some("by ops: once more")));
    world.assert_sound();
}

/// C364: whoever asks, and however often.
#[test]
fn a_double_click_makes_one_run() {
    for partitions in [1, 8] {
        let mut world = World::new(partitions, 2, 2);
        world.run(15 * SECOND);
        world.define(task("a", Trigger::Manual));
        world.script("a", &[failing()]);
        world.submit("a", vec![Submission { payload: Some("p".into()), key: Some("k".into()), delay: None }]);
        world.run(5 * SECOND);
        let first = world.first("a");
        world.script("a", &[Run::default()]);
        let entries = [(); 3].map(|()| world.rerun(first));
        world.run(5 * SECOND);
        assert_eq!([entries[0], world.rerun(first)], [entries[1], entries[2]]);
        world.run(5 * SECOND);
        assert_eq!(runs(&world, "a"), [(1, State::Failed), (2, State::Succeeded)]);
        let again = world.rows("a")[1];
        assert_eq!((again.payload.as_deref(), again.key.as_deref()), (Some("p"), Some("k")));
        world.assert_sound();
    }
}

/// C364: ten thousand at once, of a task that may start a hundred in a second.
#[test]
fn ten_thousand_reruns_keep_to_the_rate() {
    const COUNT: usize = 10_000;
    let mut world = World::settled(0);
    (0..30).for_each(|_| world.add_worker());
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).concurrency.max_running = 50_000;
    world.define(definition.clone());
    world.script("a", &[Run { takes: 1, ..failing() }]);
    (0..10).for_each(|_| _ = world.submit("a", vec![Submission::default(); COUNT / 10]));
    world.run(120 * SECOND);
    assert_eq!(world.states("a"), vec![State::Failed; COUNT]);
    Arc::make_mut(&mut definition.policies).rate = Some(RateLimit { starts: 1_000, per: Millis::from_secs(10) });
    world.define(definition);
    world.run(SECOND);
    let failed: Vec<InstanceId> = world.rows("a").iter().map(|row| row.id).collect();
    failed.iter().chain(&failed).for_each(|id| _ = world.rerun(*id));
    let before = world.starts("a").len();
    world.run(200 * SECOND);
    let rows = world.rows("a");
    let of: BTreeSet<_> = rows.iter().filter_map(|row| row.links.as_ref()?.cause).collect();
    assert_eq!((rows.len(), of), (2 * COUNT, failed.into_iter().collect()));
    let starts = &world.starts("a")[before..];
    assert_eq!(starts.len(), COUNT);
    // A start is counted where it is decided, a little before the handler begins.
    for some in starts.windows(1_002) {
        assert!(some[1_001] - some[0] + 100 >= 10 * SECOND, "{} to {}", some[0], some[1_001]);
    }
}

/// What runs once more is neither more nor less than any other firing, but it is not lost for want of a place in the queue.
#[test]
fn a_rerun_waits_behind_a_full_queue() {
    let mut world = World::settled(1);
    world.define(limited(Blocking::Queue { max_queue: 1 }));
    world.script("a", &[failing()]);
    world.trigger("a", None);
    world.run(5 * SECOND);
    world.script("a", &[Run { takes: 10_000, ..Run::default() }]);
    (0..3).for_each(|_| _ = world.trigger("a", None));
    world.run(SECOND);
    world.rerun(world.first("a"));
    world.run(SECOND);
    use State::{Failed, Running, Skipped, Waiting};
    assert_eq!(runs(&world, "a"), [(1, Failed), (1, Running), (1, Waiting), (1, Skipped), (2, Waiting)]);
    world.run(60 * SECOND);
    assert_eq!(runs(&world, "a").last(), Some(&(2, State::Succeeded)));
    world.assert_sound();
}

#[test]
fn a_rerun_replaces_and_is_discarded_as_its_task_says() {
    for (blocking, before, again) in
        [(Blocking::Replace, State::Cancelled, State::Running), (Blocking::Discard, State::Running, State::Skipped)]
    {
        let mut world = World::settled(1);
        world.define(limited(blocking));
        world.script("a", &[failing()]);
        world.trigger("a", None);
        world.run(5 * SECOND);
        world.script("a", &[Run { takes: 60_000, ..Run::default() }]);
        world.trigger("a", None);
        world.run(SECOND);
        world.rerun(world.first("a"));
        world.run(SECOND);
        assert_eq!(runs(&world, "a"), [(1, State::Failed), (1, before), (2, again)], "{blocking:?}");
        world.assert_sound();
    }
}

/// Where nothing of it has succeeded, and where all of it is asked for.
#[test]
fn a_rerun_of_all_of_a_divided_firing_divides_it_anew() {
    let mut world = World::settled(2);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(3);
    world.define(definition.clone());
    world.script("a", &[failing()]);
    world.trigger("a", None);
    world.run(10 * SECOND);
    assert_eq!(runs(&world, "a"), [(1, State::Failed)]);
    world.script("a", &[Run::default()]);
    let shard = world.rows("a").iter().find(|row| row.part != Part::WHOLE).expect("it has shards").id;
    assert_eq!(world.rerun(shard), None, "a shard is not run again by itself");
    world.rerun(world.first("a"));
    world.run(10 * SECOND);
    assert_eq!(runs(&world, "a"), [(1, State::Failed), (2, State::Succeeded)]);
    let shards_of = |world: &World, run: u32| world.rows("a").iter().filter(|row| row.run == run && row.part != Part::WHOLE).count();
    assert_eq!(shards_of(&world, 2), 3);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(2);
    world.define(definition);
    let newest = |world: &World, run: u32| world.rows("a").iter().find(|row| row.run == run).expect("a run").id;
    world.rerun(newest(&world, 2));
    world.run(10 * SECOND);
    assert_eq!(shards_of(&world, 3), 2, "all have succeeded, so all run again");
    world.rerun_all(newest(&world, 3));
    world.run(10 * SECOND);
    assert_eq!((shards_of(&world, 4), runs(&world, "a").len()), (2, 4));
    world.assert_sound();
}

#[test]
fn what_cannot_run_once_more_is_refused() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[Run { takes: 10_000, ..failing() }]);
    world.trigger("a", None);
    world.run(SECOND);
    assert_eq!(world.rerun(world.first("a")), None, "it has not ended");
    world.run(20 * SECOND);
    let first = world.first("a");
    assert!(world.rerun(first).is_some());
    world.run(20 * SECOND);
    let second = world.rows("a")[1].id;
    assert!(world.rerun(second).is_some(), "each run may be run again");
    world.run(20 * SECOND);
    world.remove("a");
    world.run(SECOND);
    assert_eq!(world.rerun(world.rows("a")[2].id), None, "its task is no more");
    assert_eq!(runs(&world, "a").len(), 3);
    world.assert_sound();
}

/// The removal comes first in the inbox, the rerun was asked for before anybody knew.
#[test]
fn a_rerun_of_a_task_that_was_removed_is_on_record() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.trigger("a", None);
    world.run(5 * SECOND);
    let first = world.first("a");
    // Both are in the inbox before the owner reads it, the rerun behind.
    world.crash_replica(0);
    world.remove("a");
    world.put_rerun(first);
    world.start_replica(0);
    world.run(20 * SECOND);
    assert_eq!(runs(&world, "a"), [(1, State::Succeeded)]);
    let occurrences: Vec<_> = world.data().occurrences.iter().map(|occurrence| (occurrence.version, occurrence.outcome)).collect();
    assert_eq!(occurrences, [(Version(0), Outcome::Withdrawn)]);
    world.assert_sound();
}

/// The owner dies at any moment after it was asked for.
#[test]
fn a_takeover_neither_loses_a_rerun_nor_doubles_it() {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[failing()]);
    world.trigger("a", None);
    world.run(5 * SECOND);
    for run in 1..10_u32 {
        let newest = world.rows("a").last().expect("a run").id;
        world.rerun(newest);
        world.run(u64::from(run) * 3);
        let owner = world.owner();
        world.crash_replica(owner);
        world.run(14 * SECOND);
        world.start_replica(owner);
        world.run(40 * SECOND);
        assert_eq!(runs(&world, "a").iter().map(|(run, _)| *run).collect::<Vec<_>>(), (1..=run + 1).collect::<Vec<_>>());
    }
    world.assert_sound();
}
