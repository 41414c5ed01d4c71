//! `fire.accounted`.

use punctual_core::definition::{MisfireAction, TaskDefinition, Trigger};
use punctual_core::ids::{InstanceId, TaskId, Version};
use punctual_core::instance::Origin;
use punctual_core::occurrence::Outcome;
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::history::{What, Who};

use crate::story::{PARTITION, START, manual, policies, secs, with};
use crate::tasks::{cron, finish, fire_all, rate, roomy, story_of, unhealed};

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
    story.row(id).version = Version(1);
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
    assert_eq!(id, InstanceId::new(PARTITION, 3));
    story.violates("fire.accounted", &["task 1 (t)", "instance 0-3"]);
}

#[test]
fn a_fixed_delay_counts_from_the_end_of_the_last_instance() {
    let (mut story, task) = story_of(roomy(with("t", Trigger::FixedDelay { interval: Millis::from_secs(10) })));
    let mut due = secs(10);
    for _ in 0..4 {
        story.at = (due.0 - START) as u64;
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
        story.at = (due.0 + wrong - START) as u64;
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
