//! `misfire.by_policy`.

use punctual_core::definition::MisfireAction;
use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::instance::Origin;
use punctual_core::occurrence::Outcome;
use punctual_core::time::Millis;

use crate::story::{Story, policies, secs};
use crate::tasks::{cron, story_of, unhealed};

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
