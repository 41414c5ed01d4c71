//! Fire times: `fire.never_early`, `fire.accounted`, `fire.no_duplicate`, `misfire.by_policy`.

use std::sync::Arc;

use jiff::tz::TimeZone;
use punctual_core::cron::{Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::definition::{MisfireAction, TaskDefinition, Trigger};
use punctual_core::ids::{InboxId, InstanceId, TaskId};
use punctual_core::inbox::ordinal_of;
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::occurrence::Outcome;
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::history::{What, Who};

use crate::story::{Story, every, manual, policies, secs, with};

fn cron(name: &str, expression: &str) -> TaskDefinition {
    let expression = Expression::parse(expression, None).expect("a cron expression");
    let schedule = Schedule::new(expression, TimeZone::UTC, GapPolicy::AfterGap, OverlapPolicy::First);
    roomy(with(name, Trigger::Cron(Arc::new(schedule))))
}

/// Without a limit that could get in the way.
fn roomy(definition: TaskDefinition) -> TaskDefinition {
    policies(definition, |policies| policies.concurrency.max_running = 1_000)
}

fn rate(secs: u64) -> TaskDefinition {
    roomy(every("t", secs))
}

/// Fires these fire times, in seconds, each on time, and ends each at once.
fn fire_all(story: &mut Story, task: TaskId, fire_times: impl IntoIterator<Item = u64>) {
    for fire_time in fire_times {
        story.until(fire_time.max(story.at.div_ceil(1_000)));
        let id = story.fire(task, secs(fire_time));
        story.run(id, 0);
    }
}

/// A healed story of one task.
fn story_of(definition: TaskDefinition) -> (Story, TaskId) {
    let mut story = Story::new();
    story.heal();
    let task = story.define(1, definition);
    (story, task)
}

/// A story of one task that has not healed yet, so that nothing is said of the rate.
fn unhealed(definition: TaskDefinition) -> (Story, TaskId) {
    let mut story = Story::new();
    let task = story.define(1, definition);
    (story, task)
}

/// The run ends so many seconds after the beginning.
fn finish(story: &mut Story, at: u64) {
    story.until(at);
    story.finish();
}

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
fn a_rate_is_accounted_for() {
    let (mut story, task) = story_of(rate(30));
    fire_all(&mut story, task, (1..=13).map(|count| count * 30));
    finish(&mut story, 400);
    story.holds("fire.accounted");
    story.holds("fire.no_duplicate");
}

#[test]
fn a_cron_is_accounted_for() {
    let (mut story, task) = story_of(cron("t", "* * * * *"));
    fire_all(&mut story, task, (1..=6).map(|count| count * 60));
    finish(&mut story, 400);
    story.holds("fire.accounted");
}

/// Missing, in the middle, first and last.
#[test]
fn a_fire_time_that_nobody_fired_is_missing() {
    for missing in [60, 180, 300] {
        for definition in [rate(60), cron("t", "* * * * *")] {
            let (mut story, task) = unhealed(definition);
            fire_all(&mut story, task, [60, 120, 180, 240, 300].into_iter().filter(|at| *at != missing));
            story.until(302);
            story.heal();
            finish(&mut story, 365);
            story.violates("fire.accounted", &["task 1 (t)", &secs(missing).to_string(), "no outcome"]);
        }
    }
}

#[test]
fn what_is_just_due_at_the_end_need_not_be_there() {
    let (mut story, task) = story_of(rate(60));
    fire_all(&mut story, task, [60, 120, 180]);
    finish(&mut story, 299);
    story.holds("fire.accounted");
}

#[test]
fn occurrences_account_for_fire_times() {
    let (mut story, task) = story_of(policies(rate(10), |policies| policies.misfire.action = MisfireAction::Skip));
    fire_all(&mut story, task, [10, 20]);
    story.until(100);
    story.drop_run(task, secs(30), secs(90), 7, Outcome::MisfireSkipped);
    let id = story.fire(task, secs(100));
    story.run(id, 0);
    story.until(110);
    story.drop_run(task, secs(110), secs(110), 1, Outcome::LimitReached);
    story.commit();
    story.holds("fire.accounted");
}

#[test]
fn a_run_of_fire_times_is_counted() {
    for (first, last, count) in [(30, 90, 6), (30, 90, 8), (30, 80, 7), (30, 95, 7)] {
        let (mut story, task) = story_of(policies(rate(10), |policies| policies.misfire.action = MisfireAction::Skip));
        fire_all(&mut story, task, [10, 20]);
        story.until(100);
        story.drop_run(task, secs(first), secs(last), count, Outcome::MisfireSkipped);
        story.commit();
        story.violates("fire.accounted", &["task 1 (t)", "misfire_skipped", "not how many"]);
    }
    let (mut story, task) = unhealed(policies(cron("t", "* * * * *"), |policies| policies.misfire.action = MisfireAction::Skip));
    story.until(400);
    story.drop_run(task, secs(60), secs(360), 5, Outcome::MisfireSkipped);
    story.commit();
    story.violates("fire.accounted", &["task 1 (t)", "not how many"]);
}

#[test]
fn a_fire_time_has_one_outcome() {
    let (mut story, task) = story_of(policies(rate(10), |policies| policies.misfire.action = MisfireAction::Skip));
    fire_all(&mut story, task, [10, 20]);
    story.until(29);
    story.drop_run(task, secs(20), secs(20), 1, Outcome::MisfireSkipped);
    story.commit();
    story.violates("fire.accounted", &["task 1 (t)", "it had an outcome before"]);
}

#[test]
fn what_the_trigger_does_not_give_is_not_fired() {
    let (mut story, task) = story_of(rate(30));
    fire_all(&mut story, task, [30]);
    story.until(45);
    let id = story.fire(task, secs(45));
    story.run(id, 0);
    story.violates("fire.accounted", &["task 1 (t)", "instance 0-3", "does not give it"]);
}

/// Each with a fire time of its own, and yet there are too many of them.
#[test]
fn fire_times_that_run_away_are_found_without_trusting_them() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    for fire_time in [20, 30, 40] {
        story.fire(task, secs(fire_time));
    }
    let violations = story.violations();
    let accounted = violations.iter().find(|(property, _)| *property == "fire.accounted").expect("it is found");
    assert!(accounted.1.contains("more outcomes than fire times"), "{accounted:?}");
}

#[test]
fn what_has_no_trigger_does_not_fire() {
    for definition in [manual("t"), TaskDefinition { enabled: false, ..rate(10) }] {
        let (mut story, task) = story_of(definition);
        story.until(10);
        let id = story.fire(task, secs(10));
        story.run(id, 0);
        story.violates("fire.accounted", &["task 1 (t)", "instance 0-1", "nothing makes the task fire"]);
    }
}

#[test]
fn what_was_never_defined_does_not_fire() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    let id = story.insert(task, secs(20), 0, Origin::Schedule);
    story.row(id).task = TaskId(9);
    story.until(20);
    story.commit();
    story.violates("fire.accounted", &["task 9", "never defined"]);
}

/// The old version fires until its owner has heard of the edit; the new one begins behind that.
#[test]
fn an_edit_counts_from_when_it_was_written() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10, 20]);
    story.until(25);
    let mut edited = story.clone();
    let edit = edited.write_definition(task, 2, Some(rate(20)));
    edited.apply_definition(edit, task, Some(2));
    edited.commit();
    fire_all(&mut edited, task, [45, 65]);
    finish(&mut edited, 130);
    edited.holds("fire.accounted");
    // The owner hears of it late: 30 and 40 are the old one's, and 45 is still to come.
    let mut late = story.clone();
    let edit = late.write_definition(task, 2, Some(rate(20)));
    late.learn(task, 1, rate(10));
    fire_all(&mut late, task, [30, 40]);
    late.learn(task, 2, rate(20));
    late.apply_definition(edit, task, Some(2));
    late.commit();
    fire_all(&mut late, task, [45, 65]);
    finish(&mut late, 130);
    late.holds("fire.accounted");
    // Later still: 50 is the old one's too, and 45 is behind it, so 70 is next.
    let edit = story.write_definition(task, 2, Some(rate(20)));
    story.learn(task, 1, rate(10));
    fire_all(&mut story, task, [30, 40, 50]);
    story.learn(task, 2, rate(20));
    story.until(52);
    story.apply_definition(edit, task, Some(2));
    story.commit();
    fire_all(&mut story, task, [70, 90]);
    finish(&mut story, 155);
    story.holds("fire.accounted");
}

#[test]
fn an_edit_that_keeps_the_trigger_keeps_the_cursor() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    story.until(13);
    story.define(1, policies(rate(10), |policies| policies.retry.max_attempts = Some(3)));
    fire_all(&mut story, task, [20, 30]);
    let mut good = story.clone();
    finish(&mut good, 95);
    good.holds("fire.accounted");
    // As if it had begun anew.
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    story.until(13);
    story.define(1, policies(rate(10), |policies| policies.retry.max_attempts = Some(3)));
    fire_all(&mut story, task, [23]);
    story.violates("fire.accounted", &["task 1 (t)", &secs(20).to_string()]);
}

#[test]
fn the_old_version_fires_nothing_after_the_edit_was_applied() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    story.until(12);
    story.define(1, rate(15));
    story.until(20);
    let id = story.insert(task, secs(20), 0, Origin::Schedule);
    story.row(id).version = punctual_core::ids::Version(1);
    story.commit();
    story.violates("fire.accounted", &["task 1 (t)", "instance 0-3", "had been applied"]);
}

#[test]
fn a_new_version_fires_nothing_before_it_was_applied() {
    let (mut story, task) = story_of(rate(10));
    let edit = story.write_definition(task, 2, Some(rate(15)));
    story.until(15);
    let id = story.fire(task, secs(15));
    story.run(id, 0);
    story.apply_definition(edit, task, Some(2));
    story.drop_run_of(task, 1, secs(10), secs(10), 1, Outcome::LimitReached);
    story.commit();
    story.violates("fire.accounted", &["task 1 (t)", "instance 0-1", "had not been applied"]);
}

#[test]
fn fire_times_before_an_edit_are_given_up_by_it() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    story.until(45);
    let edit = story.write_definition(task, 2, Some(rate(60)));
    story.apply_definition(edit, task, Some(2));
    let mut lost = story.clone();
    story.drop_run_of(task, 1, secs(20), secs(40), 3, Outcome::Withdrawn);
    story.commit();
    fire_all(&mut story, task, [105]);
    finish(&mut story, 200);
    story.holds("fire.accounted");
    lost.commit();
    lost.violates("fire.accounted", &["task 1 (t)", &secs(20).to_string(), "no outcome"]);
}

#[test]
fn nothing_is_given_up_without_an_edit_or_after_it() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    story.until(20);
    story.drop_run(task, secs(20), secs(20), 1, Outcome::Withdrawn);
    story.commit();
    story.violates("fire.accounted", &["task 1 (t)", "withdrawn", "without an edit"]);
    let (mut story, task) = story_of(rate(10));
    story.until(5);
    let edit = story.write_definition(task, 2, None);
    story.until(30);
    story.apply_definition(edit, task, None);
    story.drop_run(task, secs(10), secs(30), 3, Outcome::Withdrawn);
    story.commit();
    story.violates("fire.accounted", &["task 1 (t)", "withdrawn", "the edit came before it"]);
}

#[test]
fn a_task_that_was_removed_and_made_again_begins_behind_what_it_had_fired() {
    let (mut story, task) = story_of(cron("t", "* * * * *"));
    fire_all(&mut story, task, [60]);
    story.remove(task);
    story.until(150);
    story.define(1, cron("t", "* * * * *"));
    fire_all(&mut story, task, [180, 240]);
    finish(&mut story, 320);
    story.holds("fire.accounted");
    let (mut story, task) = story_of(cron("t", "* * * * *"));
    fire_all(&mut story, task, [60]);
    story.remove(task);
    story.until(120);
    let id = story.insert(task, secs(120), 0, Origin::Schedule);
    story.commit();
    assert_eq!(id, InstanceId::new(crate::story::PARTITION, 3));
    story.violates("fire.accounted", &["task 1 (t)", "instance 0-3"]);
}

#[test]
fn a_fixed_delay_counts_from_the_end_of_the_last_instance() {
    let (mut story, task) = story_of(roomy(with("t", Trigger::FixedDelay { interval: Millis::from_secs(10) })));
    let mut due = secs(10);
    for _ in 0..4 {
        story.at = (due.0 - crate::story::START) as u64;
        let id = story.fire(task, due);
        story.run(id, 0);
        due = story.rows[&id].ended_at().unwrap().saturating_add(Millis::from_secs(10));
    }
    let end = story.at / 1_000 + 69;
    let mut good = story.clone();
    finish(&mut good, end);
    good.holds("fire.accounted");
    let mut stopped = story.clone();
    finish(&mut stopped, end + 10);
    stopped.violates("fire.accounted", &["task 1 (t)", "the fixed delay has stopped"]);
    for wrong in [-1, 500] {
        let mut story = story.clone();
        story.at = (due.0 + wrong - crate::story::START) as u64;
        let id = story.fire(task, Timestamp(due.0 + wrong));
        story.run(id, 0);
        story.violates("fire.accounted", &["task 1 (t)", "instance 0-9", "the interval after the last end"]);
    }
}

#[test]
fn a_fixed_delay_waits_for_its_instance() {
    let (mut story, task) = story_of(roomy(with("t", Trigger::FixedDelay { interval: Millis::from_secs(10) })));
    story.until(10);
    let first = story.fire(task, secs(10));
    story.start(first, 0);
    story.until(20);
    story.fire(task, secs(20));
    story.violates("fire.accounted", &["task 1 (t)", "instance 0-3", "the last instance has not ended"]);
}

#[test]
fn a_fixed_delay_that_skips_a_missed_fire_time_goes_on() {
    let definition = roomy(with("t", Trigger::FixedDelay { interval: Millis::from_secs(10) }));
    let (mut story, task) = story_of(policies(definition, |policies| policies.misfire.action = MisfireAction::Skip));
    story.until(60);
    story.drop_run(task, secs(10), secs(10), 1, Outcome::MisfireSkipped);
    story.commit();
    let mut stopped = story.clone();
    story.until(75);
    let id = story.fire(task, secs(75));
    story.run(id, 0);
    story.holds("fire.accounted");
    finish(&mut stopped, 140);
    stopped.violates("fire.accounted", &["task 1 (t)", "the fixed delay has stopped"]);
}

#[test]
fn a_delay_fires_once() {
    let (mut story, task) = story_of(roomy(with("t", Trigger::Delay { delay: Millis::from_secs(10) })));
    let nothing = story.clone();
    fire_all(&mut story, task, [10]);
    let mut good = story.clone();
    finish(&mut good, 200);
    good.holds("fire.accounted");
    story.until(20);
    let id = story.fire(task, secs(20));
    story.run(id, 0);
    story.violates("fire.accounted", &["task 1 (t)", "a delay fires once"]);
    let mut missing = nothing.clone();
    finish(&mut missing, 71);
    missing.violates("fire.accounted", &["task 1 (t)", &secs(10).to_string(), "the delay is over"]);
    let mut late = nothing;
    late.until(11);
    let id = late.fire(task, secs(11));
    late.run(id, 0);
    late.violates("fire.accounted", &["task 1 (t)", "the delay was over"]);
}

#[test]
fn where_the_databases_clock_was_set_the_chain_is_what_is_left() {
    let stepped = |fire_times: &[u64]| {
        let (mut story, task) = story_of(cron("t", "* * * * *"));
        fire_all(&mut story, task, [60, 120]);
        story.wall_offset = 3_600_000;
        story.record(Who::Database, What::ClockStepped { by: 3_600_000 });
        for fire_time in fire_times {
            let origin = if *fire_time < 3_700 { Origin::CatchUp } else { Origin::Schedule };
            let id = story.insert(task, secs(*fire_time), 0, origin);
            // Decided when it was just late: that is for another property to say.
            story.row(id).transitions[0].at = secs(*fire_time + if origin == Origin::CatchUp { 10 } else { 0 });
            story.commit();
        }
        story
    };
    assert_eq!(stepped(&[180, 240]).violations(), []);
    stepped(&[180, 300]).violates("fire.accounted", &["task 1 (t)", &secs(240).to_string()]);
}

#[test]
fn a_loop_may_jump_with_the_clock_and_never_repeats() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10, 20]);
    story.record(Who::Scheduler(0), What::ClockStepped { by: 3_000 });
    fire_all(&mut story, task, [33, 43]);
    story.holds("fire.accounted");
    story.until(44);
    let id = story.fire(task, secs(40));
    story.run(id, 0);
    story.violates("fire.accounted", &["task 1 (t)"]);
}

#[test]
fn what_was_undone_is_fired_again() {
    let (mut story, task) = story_of(rate(10));
    fire_all(&mut story, task, [10]);
    let before = story.clone();
    story.until(20);
    let from = story.history.records.len();
    story.fire(task, secs(20));
    story.record(Who::Database, What::TailLost { from });
    (story.commit_seq, story.rows, story.stored) = (before.commit_seq, before.rows, before.stored);
    story.until(21);
    let id = story.fire(task, secs(20));
    story.run(id, 0);
    story.holds("fire.accounted");
    story.holds("fire.no_duplicate");
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

fn missed(action: MisfireAction, deadline: Option<u64>) -> (Story, TaskId) {
    let definition = policies(cron("t", "* * * * *"), |policies| {
        policies.misfire.action = action;
        policies.misfire.deadline = deadline.map(Millis::from_secs);
    });
    let (mut story, task) = unhealed(definition);
    story.until(200);
    (story, task)
}

fn coalesce(story: &mut Story, task: TaskId, made_up_for_by: Option<InstanceId>) {
    story.drop_run(task, secs(60), secs(120), 2, Outcome::Coalesced);
    story.batch.occurrences.last_mut().unwrap().instance = made_up_for_by;
}

#[test]
fn missed_fire_times_go_by_the_policy() {
    let (mut story, task) = missed(MisfireAction::FireOnce, None);
    let id = story.insert(task, secs(180), 0, Origin::CatchUp);
    coalesce(&mut story, task, Some(id));
    story.commit();
    story.holds("misfire.by_policy");
    // Where the one that makes up for them is discarded, there is none to name.
    let (mut story, task) = missed(MisfireAction::FireOnce, None);
    coalesce(&mut story, task, None);
    story.drop_run(task, secs(180), secs(180), 1, Outcome::QueueFull);
    story.commit();
    story.holds("misfire.by_policy");
    let (mut story, task) = missed(MisfireAction::Skip, Some(100));
    story.drop_run(task, secs(60), secs(60), 1, Outcome::DeadlinePassed);
    story.drop_run(task, secs(120), secs(180), 2, Outcome::MisfireSkipped);
    story.commit();
    story.holds("misfire.by_policy");
    let (mut story, task) = missed(MisfireAction::FireAll { limit: 2 }, None);
    story.drop_run(task, secs(60), secs(60), 1, Outcome::CatchUpLimit);
    for fire_time in [120, 180] {
        story.insert(task, secs(fire_time), 0, Origin::CatchUp);
    }
    story.commit();
    story.holds("misfire.by_policy");
}

#[test]
fn an_outcome_that_the_policy_does_not_have_is_found() {
    let policies = [
        (Outcome::Coalesced, MisfireAction::Skip),
        (Outcome::Coalesced, MisfireAction::FireAll { limit: 9 }),
        (Outcome::MisfireSkipped, MisfireAction::FireOnce),
        (Outcome::CatchUpLimit, MisfireAction::FireOnce),
        (Outcome::DeadlinePassed, MisfireAction::FireOnce),
    ];
    for (outcome, action) in policies {
        let (mut story, task) = missed(action, None);
        story.drop_run(task, secs(60), secs(180), 3, outcome);
        story.commit();
        story.violates("misfire.by_policy", &["task 1 (t)", outcome.name(), "not the task's policy", "record"]);
    }
}

#[test]
fn coalesced_fire_times_name_what_makes_up_for_them() {
    let (mut story, task) = missed(MisfireAction::FireOnce, None);
    coalesce(&mut story, task, None);
    let id = story.insert(task, secs(180), 0, Origin::CatchUp);
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "coalesced", "names no instance"]);
    for wrong in [InstanceId(id.0 + 50), id] {
        let (mut story, task) = missed(MisfireAction::FireOnce, None);
        let early = story.insert(task, secs(60), 0, Origin::CatchUp);
        assert_eq!(early, id);
        story.drop_run(task, secs(120), secs(180), 2, Outcome::Coalesced);
        story.batch.occurrences.last_mut().unwrap().instance = Some(wrong);
        story.commit();
        story.violates("misfire.by_policy", &["task 1 (t)", "coalesced", "does not make up for it"]);
    }
}

#[test]
fn what_is_to_be_skipped_is_not_made_up_for() {
    let (mut story, task) = missed(MisfireAction::Skip, None);
    story.drop_run(task, secs(60), secs(120), 2, Outcome::MisfireSkipped);
    story.insert(task, secs(180), 0, Origin::CatchUp);
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "instance 0-1", "to be skipped"]);
}

#[test]
fn fire_once_makes_up_for_one_and_fire_all_for_as_many_as_it_says() {
    for (action, most) in [(MisfireAction::FireOnce, 1), (MisfireAction::FireAll { limit: 2 }, 2)] {
        let (mut story, task) = missed(action, None);
        for fire_time in [60, 120, 180] {
            story.insert(task, secs(fire_time), 0, Origin::CatchUp);
        }
        story.commit();
        story.violates("misfire.by_policy", &["task 1", "3 fire times", "instance 0-3", &format!("allowed are {most}")]);
    }
}

#[test]
fn lateness_decides_what_was_missed() {
    // Late and taken as on time.
    let (mut story, task) = missed(MisfireAction::FireAll { limit: 9 }, None);
    for fire_time in [60, 120] {
        story.insert(task, secs(fire_time), 0, Origin::CatchUp);
    }
    story.insert(task, secs(180), 0, Origin::Schedule);
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "instance 0-3", "taken as on time"]);
    // Just late and taken as missed.
    let (mut story, task) = story_of(cron("t", "* * * * *"));
    story.until(65);
    story.insert(task, secs(60), 0, Origin::CatchUp);
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "instance 0-1", "5000 ms late, and taken as missed"]);
    let (mut story, task) = story_of(policies(cron("t", "* * * * *"), |policies| policies.misfire.action = MisfireAction::Skip));
    story.until(65);
    story.drop_run(task, secs(60), secs(60), 1, Outcome::MisfireSkipped);
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "misfire_skipped", "taken as missed"]);
}

#[test]
fn the_deadline_decides_what_is_too_late() {
    let (mut story, task) = missed(MisfireAction::FireAll { limit: 9 }, Some(100));
    story.drop_run(task, secs(60), secs(120), 2, Outcome::DeadlinePassed);
    story.insert(task, secs(180), 0, Origin::CatchUp);
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "deadline_passed", "80000 ms late, and the deadline is 100000 ms"]);
    let (mut story, task) = missed(MisfireAction::FireAll { limit: 9 }, Some(100));
    for fire_time in [60, 120, 180] {
        story.insert(task, secs(fire_time), 0, Origin::CatchUp);
    }
    story.commit();
    story.violates("misfire.by_policy", &["task 1 (t)", "instance 0-1", "140000 ms late, and the deadline is 100000 ms"]);
}
