//! `fire.never_early` and `fire.no_duplicate`.

use punctual_core::ids::InboxId;
use punctual_core::inbox::ordinal_of;
use punctual_core::instance::{Cause, Origin, State};
use punctual_sim::history::{What, Who};

use crate::story::{manual, secs};
use crate::tasks::{fire_all, rate, roomy, story_of};

#[test]
fn what_comes_at_its_time_or_later_is_not_early() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10, 20, 30]);
    story.holds("fire.never_early");
}

#[test]
fn what_is_committed_before_its_fire_time_is_early() {
    let (mut story, task) = story_of(rate(10));
    story.at = 9_999;
    let id = story.fire(task, secs(10));
    story.at = 10_001;
    story.run(id, 0);
    story.violates("fire.never_early", &["instance 0-1", "task 1", "record"]);
}

#[test]
fn what_is_early_is_early_by_the_databases_clock() {
    let (mut story, task) = story_of(rate(10));
    story.wall_offset = 3_600_000;
    // By the owner's own clock it has come.
    story.record(Who::Scheduler(0), What::ClockStepped { by: 3_600_000 });
    story.wall_offset = 0;
    story.at = 9_000;
    let id = story.fire(task, secs(10));
    story.at = 10_001;
    story.run(id, 0);
    story.violates("fire.never_early", &["instance 0-1"]);
}

#[test]
fn a_handler_that_begins_before_the_fire_time_is_early() {
    let (mut story, task) = story_of(manual("t"));
    let entry = story.submit(task, 1, None);
    story.batch.applied.push(entry);
    // A delayed trigger.
    let id = story.insert(task, secs(10), ordinal_of(entry, 0), Origin::Manual);
    story.commit();
    story.at = 9_000;
    let mut good = story.clone();
    story.run(id, 0);
    story.violates("fire.never_early", &["instance 0-1", "task 1", "began at"]);
    good.at = 10_000;
    good.run(id, 0);
    good.holds("fire.never_early");
}

#[test]
fn after_the_databases_clock_was_set_nothing_is_early() {
    let (mut story, task) = story_of(rate(10));
    story.at = 5_000;
    let (mut before, task_before) = (story.clone(), task);
    story.wall_offset = -60_000;
    story.record(Who::Database, What::ClockStepped { by: -60_000 });
    story.at = 10_000;
    let id = story.fire(task, secs(10));
    story.run(id, 0);
    story.leaves_open("fire.never_early", "the database's clock was set");
    // What was early before is early.
    let id = before.fire(task_before, secs(10));
    before.at = 10_001;
    before.run(id, 0);
    before.record(Who::Database, What::ClockStepped { by: -60_000 });
    assert!(before.violations().iter().any(|(property, _)| *property == "fire.never_early"));
}

#[test]
fn a_firing_is_there_once() {
    let (mut story, task) = story_of(roomy(manual("t")));
    let entry = story.submit(task, 1, None);
    story.apply_trigger(entry, task);
    let fire_time = story.wall();
    story.commit();
    let before = story.batch.clone();
    // The same submission again, under another id.
    story.insert(task, fire_time, ordinal_of(entry, 0), Origin::Manual);
    story.batch.applied.clear();
    story.commit();
    assert_eq!(before.applied, [] as [InboxId; 0]);
    let violations = story.violations();
    let found = violations.iter().find(|(property, _)| *property == "fire.no_duplicate").expect("it is found");
    assert!(found.1.contains("instances 0-1 and 0-2 of task 1 are the same firing"), "{found:?}");
}

#[test]
fn a_fire_time_that_is_fired_twice_is_a_duplicate_too() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    story.until(11);
    story.fire(task, secs(10));
    let violations = story.violations();
    let properties: Vec<_> = violations.iter().map(|(property, _)| *property).collect();
    assert_eq!(properties, ["fire.accounted", "fire.no_duplicate"], "a duplicate has two outcomes too");
    assert!(violations[1].1.contains("instances 0-1 and 0-3 of task 1 are the same firing"), "{violations:?}");
}

#[test]
fn a_submission_is_one_instance_of_whatever_task() {
    let (mut story, task) = story_of(roomy(manual("t")));
    let other = story.define(2, roomy(manual("other")));
    let entry = story.submit(task, 1, None);
    story.apply_trigger(entry, task);
    story.commit();
    story.pass(10);
    story.insert(other, story.wall(), ordinal_of(entry, 0), Origin::Manual);
    story.commit();
    let violations = story.violations();
    let found = violations.iter().find(|(property, _)| *property == "fire.no_duplicate").expect("it is found");
    assert!(found.1.contains("the same submission"), "{found:?}");
}

#[test]
fn an_id_is_inserted_once() {
    let (mut story, task) = story_of(roomy(manual("t")));
    let id = story.trigger(task);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.commit();
    story.pass(10);
    story.sequence -= 1;
    story.stored.remove(&id);
    let again = story.trigger(task);
    assert_eq!(id, again);
    story.violates("fire.no_duplicate", &["instance 0-1", "inserted twice"]);
}

#[test]
fn a_firing_that_was_undone_after_it_had_begun_is_not_known() {
    let (mut story, task) = story_of(rate(10));
    let before = story.clone();
    story.until(10);
    let from = story.history.records.len();
    let id = story.fire(task, secs(10));
    story.start(id, 0);
    story.record(Who::Worker(0), What::Crashed);
    story.record(Who::Database, What::TailLost { from });
    (story.commit_seq, story.rows, story.stored) = (before.commit_seq, before.rows, before.stored);
    // The owner knows that numbers were lost.
    story.sequence = 100;
    story.until(12);
    let id = story.fire(task, secs(10));
    story.run(id, 0);
    story.leaves_open("fire.no_duplicate", "the tail was lost: instances 0-1 and 0-101 of task 1");
}
