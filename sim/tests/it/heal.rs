//! When all is well again: `heal.converges`, `heal.no_orphans`, `heal.rate`.

use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::ids::{InstanceId, PartitionId, TaskId};
use punctual_core::instance::{Cause, State};
use punctual_core::occurrence::Outcome;
use punctual_core::time::Millis;
use punctual_sim::history::{Left, What, Who};
use punctual_sim::plan::{Fault, FaultKind, Selector};

use crate::story::{PARTITION, Story, every, manual, policies, secs, with};

fn story_of(definition: TaskDefinition) -> (Story, TaskId) {
    let mut story = Story::new();
    let definition = policies(definition, |policies| {
        policies.retry.max_attempts = Some(4);
        policies.retry.backoff.cap = Millis::from_secs(3_600);
    });
    let task = story.define(1, definition);
    (story, task)
}

/// A manual task whose handler takes up to ten seconds.
fn story() -> (Story, TaskId) {
    let (mut story, task) = story_of(manual("t"));
    story.takes("t", 10_000);
    (story, task)
}

/// Heals, and ends so many milliseconds later.
fn end_after(story: &mut Story, ms: u64) {
    story.heal();
    story.pass(ms);
    story.finish();
}

fn waiting(story: &mut Story, task: TaskId) -> InstanceId {
    let entry = story.submit(task, 1, None);
    let id = story.apply_trigger(entry, task);
    story.row(id).transitions.clear();
    story.change(id, State::Waiting, Cause::LimitReached);
    story.commit();
    id
}

#[test]
fn what_has_ended_has_converged() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.run(id, 0);
    end_after(&mut story, 100_000);
    story.holds("heal.converges");
    story.holds("heal.no_orphans");
}

#[test]
fn without_a_heal_or_too_soon_after_it_nothing_is_said() {
    let (mut story, _) = story();
    let mut unhealed = story.clone();
    unhealed.pass(100_000);
    unhealed.finish();
    end_after(&mut story, 59_999);
    for property in ["heal.converges", "heal.no_orphans", "heal.rate"] {
        unhealed.leaves_open(property, "never healed");
        story.leaves_open(property, "59999 ms after");
    }
    let (mut story, _) = self::story();
    story.heal();
    story.pass(100_000);
    story.record(Who::World, What::FaultEnded(0));
    story.leaves_open("heal.converges", "no scheduler says");
}

#[test]
fn a_ready_instance_that_nobody_takes_is_stuck() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    end_after(&mut story, 61_000);
    story.violates("heal.converges", &["instance 0-1", "task 1", "created since 0 ms", "record"]);
    let (mut story, task) = self::story();
    story.heal();
    story.pass(61_000);
    assert_eq!(story.trigger(task), id);
    story.finish();
    story.holds("heal.converges");
}

#[test]
fn a_backlog_that_is_worked_off_is_not_stuck() {
    let (mut story, task) = story_of(policies(manual("t"), |policies| policies.concurrency.max_running = 10));
    story.takes("t", 10_000);
    let (first, second) = (story.trigger(task), story.trigger(task));
    story.heal();
    story.pass(50_000);
    // Who came later goes first, and the older one waits.
    let mut overtaken = story.clone();
    overtaken.run(second, 0);
    overtaken.pass(20_000);
    overtaken.finish();
    overtaken.violates("heal.converges", &["instance 0-1"]);
    story.run(first, 0);
    story.pass(20_000);
    story.finish();
    story.holds("heal.converges");
}

#[test]
fn where_the_workers_have_no_room_nobody_is_stuck() {
    let (mut story, task) = story_of(policies(manual("t"), |policies| policies.concurrency.max_running = 10));
    story.takes("t", 3 * 3_600_000);
    let (first, _second) = (story.trigger(task), story.trigger(task));
    story.start(first, 0);
    let mut roomy = story.clone();
    for (story, slots) in [(&mut story, 1), (&mut roomy, 2)] {
        (story.plan.shape.workers, story.plan.shape.slots) = (1, slots);
        end_after(story, 600_000);
    }
    story.holds("heal.converges");
    roomy.violates("heal.converges", &["instance 0-2", "created"]);
}

#[test]
fn an_attempt_that_never_ends_is_stuck() {
    for is_running in [false, true] {
        let (mut story, task) = story();
        let id = story.trigger(task);
        if is_running {
            story.start(id, 0);
        } else {
            story.dispatch(id, 0);
            story.commit();
        }
        let mut young = story.clone();
        end_after(&mut young, 69_000);
        young.holds("heal.converges");
        let mut slow = story.clone();
        slow.plan.faults.push(Fault { at_ms: 0, lasts_ms: 1, kind: FaultKind::HandlersSlow { times: 10 }, on: Selector::Worker(0) });
        end_after(&mut slow, 150_000);
        slow.holds("heal.converges");
        end_after(&mut story, 71_000);
        let state = if is_running { "running" } else { "dispatched" };
        story.violates("heal.converges", &["instance 0-1", state]);
    }
}

#[test]
fn a_retry_that_does_not_come_is_stuck() {
    let wait = |ms: u64| {
        let (mut story, task) = story_of(policies(manual("t"), |policies| policies.retry.backoff.first = Millis(ms)));
        let id = story.trigger(task);
        story.start(id, 0);
        story.fail(id, 0, ms);
        end_after(&mut story, 100_000);
        story
    };
    wait(50_000).holds("heal.converges");
    wait(500_000).holds("heal.converges");
    wait(30_000).violates("heal.converges", &["instance 0-1", "retrying"]);
}

#[test]
fn a_delayed_instance_is_stuck_once_it_is_due() {
    let delayed = |ms: u64| {
        let (mut story, task) = story();
        let entry = story.submit(task, 1, None);
        let id = story.apply_trigger(entry, task);
        story.row(id).transitions.clear();
        story.change(id, State::Waiting, Cause::Triggered);
        let due_at = story.wall().saturating_add(Millis(ms));
        story.row(id).due_at = Some(due_at);
        story.commit();
        end_after(&mut story, 100_000);
        story
    };
    delayed(50_000).holds("heal.converges");
    delayed(30_000).violates("heal.converges", &["instance 0-1", "waiting"]);
}

#[test]
fn behind_a_limit_one_waits_for_what_moves() {
    let (mut story, task) = story();
    story.takes("t", 10_000);
    let first = story.trigger(task);
    let second = waiting(&mut story, task);
    let mut stuck = story.clone();
    story.heal();
    story.pass(50_000);
    story.start(first, 0);
    story.pass(20_000);
    story.finish();
    story.holds("heal.converges");
    // With nobody in front of it.
    stuck.run(first, 0);
    end_after(&mut stuck, 61_000);
    stuck.violates("heal.converges", &[&format!("instance {second}"), "waiting"]);
}

#[test]
fn what_waits_behind_what_is_stuck_is_stuck_too() {
    let (mut story, task) = story();
    story.trigger(task);
    waiting(&mut story, task);
    end_after(&mut story, 61_000);
    story.violates("heal.converges", &["instance 0-1", "and 1 more"]);
}

#[test]
fn an_entry_that_nobody_applies_is_stuck() {
    let (mut story, task) = story();
    let entry = story.submit(task, 1, None);
    let mut applied = story.clone();
    let id = applied.apply_trigger(entry, task);
    applied.commit();
    applied.run(id, 0);
    end_after(&mut applied, 61_000);
    applied.submit(task, 1, None);
    applied.holds("heal.converges");
    end_after(&mut story, 61_000);
    story.violates("heal.converges", &[&format!("entry {entry}"), "record"]);
}

fn left(story: &mut Story, scheduler: usize, is_up: bool, partitions: Vec<PartitionId>) {
    story.record(Who::Scheduler(scheduler), What::Left(Left::InScheduler { is_up, instances: 0, partitions }));
}

#[test]
fn each_partition_has_one_running_owner() {
    let (mut story, _) = story();
    story.heal();
    story.pass(61_000);
    let mut nobody = story.clone();
    left(&mut nobody, 0, true, vec![]);
    left(&mut nobody, 1, false, vec![PARTITION]);
    nobody.violates("heal.converges", &["partition 0 is nobody's"]);
    let mut two = story.clone();
    left(&mut two, 0, true, vec![PARTITION]);
    left(&mut two, 1, true, vec![PARTITION]);
    two.violates("heal.converges", &["partition 0 is owned by the schedulers [0, 1]"]);
    left(&mut story, 0, true, vec![PARTITION]);
    left(&mut story, 1, false, vec![PARTITION]);
    story.holds("heal.converges");
}

#[test]
fn a_handler_whose_instance_has_ended_is_an_orphan() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.commit();
    let mut young = story.clone();
    end_after(&mut young, 69_000);
    young.holds("heal.no_orphans");
    end_after(&mut story, 71_000);
    story.violates("heal.no_orphans", &["instance 0-1", "task 1", "fence 2", "worker 0", "cancelled", "records"]);
}

#[test]
fn a_handler_that_was_followed_by_another_is_an_orphan() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.record(Who::Worker(0), What::Paused);
    story.lose(id);
    story.ready_again(id);
    story.run(id, 1);
    end_after(&mut story, 71_000);
    story.violates("heal.no_orphans", &["instance 0-1", "fence 2", "worker 0"]);
}

#[test]
fn a_worker_holds_what_it_runs_and_no_more() {
    let holding = |running: usize, reports: usize| {
        let (mut story, task) = story();
        let id = story.trigger(task);
        story.run(id, 0);
        end_after(&mut story, 61_000);
        story.record(Who::Worker(0), What::Left(Left::InWorker { is_up: true, running, reports }));
        story
    };
    holding(0, 0).holds("heal.no_orphans");
    holding(1, 0).violates("heal.no_orphans", &["worker 0 holds 1 attempts"]);
    holding(0, 1).violates("heal.no_orphans", &["worker 0 holds 1 reports"]);
    // What has just ended may still be there.
    let (mut story, task) = story();
    story.heal();
    story.pass(61_000);
    let id = story.trigger(task);
    story.run(id, 0);
    story.finish();
    story.record(Who::Worker(0), What::Left(Left::InWorker { is_up: true, running: 0, reports: 1 }));
    story.record(Who::Worker(1), What::Left(Left::InWorker { is_up: false, running: 3, reports: 3 }));
    story.holds("heal.no_orphans");
}

#[test]
fn schedulers_hold_what_lives_and_no_more() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.run(id, 0);
    story.heal();
    story.pass(61_000);
    story.record(Who::Scheduler(0), What::Left(Left::InScheduler { is_up: true, instances: 1, partitions: vec![PARTITION] }));
    story.violates("heal.no_orphans", &["schedulers hold 1 instances"]);
}

/// Every ten seconds, for five minutes after the heal, but for those that are left out.
fn rated(leave_out: impl Fn(u64) -> bool) -> Story {
    let mut story = Story::new();
    story.heal();
    let task = story.define(1, policies(every("t", 10), |policies| policies.concurrency.max_running = 100));
    for fire_time in (1..=30).map(|count| count * 10) {
        story.until(fire_time);
        if leave_out(fire_time) {
            story.drop_run(task, secs(fire_time), secs(fire_time), 1, Outcome::Disabled);
            story.commit();
        } else {
            let id = story.fire(task, secs(fire_time));
            story.run(id, 0);
        }
    }
    story.until(305);
    story.finish();
    story
}

#[test]
fn most_fire_times_are_fired() {
    rated(|_| false).holds("heal.rate");
    rated(|fire_time| [100, 200].contains(&fire_time)).holds("heal.rate");
    rated(|fire_time| fire_time % 40 == 0).violates("heal.rate", &["of 18 fire times", "were fired"]);
    // Soon after the heal much may still be out of order.
    rated(|fire_time| fire_time < 60).holds("heal.rate");
}

#[test]
fn what_the_limit_discards_counts_as_fired() {
    let mut story = Story::new();
    story.heal();
    let task = story.define(1, every("t", 10));
    for fire_time in (1..=30).map(|count| count * 10) {
        story.until(fire_time);
        story.drop_run(task, secs(fire_time), secs(fire_time), 1, Outcome::LimitReached);
        story.commit();
    }
    story.until(305);
    story.finish();
    story.holds("heal.rate");
}

#[test]
fn each_task_that_has_a_fire_time_fires() {
    let mut story = rated(|_| false);
    // Beside many that do, one does not.
    let at = std::mem::replace(&mut story.at, 1_000);
    let task = story.define(2, every("rare", 100));
    story.at = at;
    story.drop_run(task, secs(101), secs(301), 3, Outcome::Disabled);
    story.commit();
    story.violates("heal.rate", &["task 2 (rare) has 1 fire times"]);
}

#[test]
fn a_fixed_delay_fires_too() {
    let delayed = |fires: bool| {
        let (mut story, task) = story_of(with("t", Trigger::FixedDelay { interval: Millis::from_secs(10) }));
        story.takes("t", 1_000);
        story.heal();
        let mut due = secs(10);
        while story.at < 300_000 {
            story.at = due.since(secs(0)).0;
            if fires {
                let id = story.fire(task, due);
                story.run(id, 0);
                due = story.rows[&id].ended_at().unwrap();
            } else {
                story.drop_run(task, due, due, 1, Outcome::Disabled);
                story.commit();
            }
            due = due.saturating_add(Millis::from_secs(10));
        }
        story.finish();
        story
    };
    delayed(true).holds("heal.rate");
    delayed(false).violates("heal.rate", &["task 1 (t)", "fired for none"]);
}

#[test]
fn a_disabled_or_late_task_is_not_expected_to_fire() {
    let mut story = rated(|_| false);
    story.define(2, TaskDefinition { enabled: false, ..every("disabled", 10) });
    story.define(3, every("late", 10));
    story.holds("heal.rate");
}
