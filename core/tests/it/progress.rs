//! What running attempts have written so far.

use punctual_core::batch::Output;
use punctual_core::definition::Trigger;
use punctual_core::guard::{self, Guard};
use punctual_core::ids::{ConnectionId, Fence, InstanceId};
use punctual_core::instance::State;
use punctual_core::limits;
use punctual_core::protocol::{End, Report, ToScheduler};
use punctual_core::scheduler::Event;
use punctual_sim::tabletop::{Run, World, task};

fn output(text: &str) -> Output {
    Output { bytes: text.into(), dropped: 0 }
}

/// A world in which a task's handler takes its time, and the attempt's instance and fence.
fn running() -> (World, InstanceId, Fence) {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[Run { takes: 60_000, ..Run::default() }]);
    world.trigger("a", None);
    world.run(1_000);
    let row = world.rows("a")[0].clone();
    assert_eq!(row.state, State::Running);
    (world, row.id, row.fence)
}

fn tell(world: &mut World, messages: Vec<ToScheduler>) {
    let connection = world.connection_of(0);
    world.tell_replica(0, Event::WorkerMessages { connection, messages });
}

fn progress(instance: InstanceId, fence: Fence, text: &str) -> ToScheduler {
    ToScheduler::Progress { instance, fence, output: output(text) }
}

fn stored(world: &World, instance: InstanceId) -> Vec<(u32, Output)> {
    world.data().outputs_of(instance)
}

#[test]
fn it_is_written_while_the_attempt_runs_and_the_report_takes_its_place() {
    let (mut world, instance, fence) = running();
    tell(&mut world, vec![progress(instance, fence, "one")]);
    world.run(100);
    assert_eq!(stored(&world, instance), [(1, output("one"))]);
    tell(&mut world, vec![progress(instance, fence, "one two"), progress(instance, fence, "one two three")]);
    world.run(100);
    assert_eq!(stored(&world, instance), [(1, output("one two three"))]);
    assert_eq!(world.states("a"), [State::Running]);

    // One batch has both: the end counts, also where it has nothing to say.
    let report = Report {
        instance,
        fence,
        end: End::Succeeded,
        code: None,
        detail: None,
        output: Output::default(),
        result: None,
        items: None,
        retry_after: None,
    };
    tell(&mut world, vec![progress(instance, fence, "one two three four"), ToScheduler::Finished(report)]);
    world.run(100);
    assert_eq!(world.states("a"), [State::Succeeded]);
    assert_eq!(stored(&world, instance), [(1, Output::default())]);
    tell(&mut world, vec![progress(instance, fence, "late")]);
    world.run(100);
    assert_eq!(stored(&world, instance), [(1, Output::default())], "it has ended");
}

#[test]
fn what_waits_for_a_commit_is_the_latest_alone() {
    let (mut world, instance, fence) = running();
    world.keeps_commits = true;
    world.store_latency = 200;
    for number in 0..50 {
        tell(&mut world, vec![progress(instance, fence, &format!("line {number}"))]);
    }
    world.run(2_000);
    assert_eq!(stored(&world, instance), [(1, output("line 49"))]);
    let written: Vec<_> = world.commits.iter().map(|batch| batch.outputs.len()).filter(|outputs| *outputs > 0).collect();
    assert_eq!(written, [1, 1], "the first, and what came until it was through");
}

/// An attempt of before writes on, and is heard.
fn of_an_older_attempt() -> Vec<(u32, Output)> {
    let (mut world, instance, fence) = running();
    tell(&mut world, vec![progress(instance, Fence(fence.0 - 1), "old")]);
    world.run(1_000);
    stored(&world, instance)
}

#[test]
fn only_the_current_attempt_is_heard() {
    guard::reset();
    assert_eq!(of_an_older_attempt(), []);
    assert_eq!(guard::hits(Guard::FenceOnProgress), 1);
    guard::switch_off(Guard::FenceOnProgress);
    assert_eq!(of_an_older_attempt(), [(1, output("old"))], "the guard is needed");
    guard::reset();
}

#[test]
fn nothing_is_taken_from_a_connection_that_is_nobodys() {
    let (mut world, instance, fence) = running();
    let messages = vec![progress(instance, fence, "strange")];
    world.tell_replica(0, Event::WorkerMessages { connection: ConnectionId(9_000), messages });
    world.run(1_000);
    assert_eq!(stored(&world, instance), []);
}

#[test]
fn a_flood_reaches_the_store_as_a_trickle() {
    let (mut world, instance, fence) = running();
    world.keeps_commits = true;
    let line = "x".repeat(limits::OUTPUT_BYTES_MAX);
    for _ in 0..10_000 / 50 {
        for _ in 0..20 {
            tell(&mut world, vec![progress(instance, fence, &line)]);
        }
        world.run(50);
    }
    let bytes: usize = world.commits.iter().flat_map(|batch| &batch.outputs).map(|written| written.output.bytes.len()).sum();
    let intervals = 10_000 / usize::try_from(limits::PROGRESS_INTERVAL.0).expect("seconds") + 1;
    assert!(bytes > 0 && bytes <= intervals * 2 * limits::PROGRESS_BYTES_MAX, "{bytes} bytes in {intervals} intervals");
    world.assert_sound();
}
