//! Attempts: `effect.once`, `attempt.exclusive`, `fence.monotone`, `speak.after_commit`, `timeout.enforced`.

use punctual_core::definition::{TaskDefinition, TimeoutAction};
use punctual_core::ids::{Fence, WorkerId};
use punctual_core::instance::{Cause, State};
use punctual_core::protocol::End;
use punctual_core::time::Millis;
use punctual_sim::history::{What, Who};
use punctual_sim::plan::{Fault, FaultKind, Selector};

use crate::story::{Story, policies};
use crate::tasks::{begun, retried, retrying};

/// The batch with this record is undone, and the owner begins where the database is.
fn lose_tail(story: &mut Story, from: usize, before: &Story) {
    story.record(Who::Database, What::TailLost { from });
    (story.commit_seq, story.rows, story.stored) = (before.commit_seq, before.rows.clone(), before.stored.clone());
    (story.sequence, story.next_entry) = (before.sequence, before.next_entry);
}

#[test]
fn an_attempt_after_a_loss_may_have_an_effect_of_its_own() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.effect(id, first, 0);
    story.end(id, first, 0, None);
    story.record(Who::Worker(0), What::Crashed);
    story.lose(id);
    story.ready_again(id);
    story.run(id, 1);
    story.holds("effect.once");
}

#[test]
fn a_failed_or_returned_attempt_may_have_had_its_effect() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.effect(id, first, 0);
    story.fail(id, 0, 1_000);
    story.pass(1_000);
    story.ready_again(id);
    let second = story.dispatch(id, 1);
    story.commit();
    story.begin(id, 1);
    story.effect(id, second, 1);
    story.row(id).attempt -= 1;
    story.change(id, State::Created, Cause::Returned);
    story.commit();
    story.end(id, second, 1, None);
    story.run(id, 0);
    story.holds("effect.once");
}

#[test]
fn one_attempt_has_one_effect() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    story.effect(id, fence, 0);
    story.succeed(id, 0);
    story.violates("effect.once", &["instance 0-1", "two effects under fence 2", "record"]);
}

#[test]
fn success_has_an_effect() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    story.end(id, fence, 0, Some(End::Succeeded));
    story.change(id, State::Succeeded, Cause::Finished);
    story.commit();
    story.violates("effect.once", &["instance 0-1", "task 1", "fence 2 without an effect"]);
}

#[test]
fn a_success_is_not_proved_by_another_attempts_effect() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.effect(id, first, 0);
    story.end(id, first, 0, None);
    story.lose(id);
    story.ready_again(id);
    let second = story.start(id, 1);
    story.end(id, second, 1, Some(End::Succeeded));
    story.change(id, State::Succeeded, Cause::Finished);
    story.commit();
    story.violates("effect.once", &["instance 0-1", "fence 3 without an effect"]);
}

#[test]
fn a_second_effect_needs_a_recorded_end_of_the_first_attempt() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.effect(id, first, 0);
    story.end(id, first, 0, None);
    // The store says that it was lost, but only after the other one was given out.
    story.change(id, State::Retrying, Cause::WorkerLost);
    story.change(id, State::Created, Cause::BackoffElapsed);
    let second = story.dispatch(id, 1);
    story.row(id).transitions[3].fence = second;
    story.row(id).transitions[4].fence = second;
    story.row(id).transitions.last_mut().unwrap().fence = Fence(second.0 + 1);
    story.row(id).fence = Fence(second.0 + 1);
    story.sequence += 1;
    story.commit();
    story.begin(id, 1);
    story.succeed(id, 1);
    story.violates("effect.once", &["instance 0-1", "fences 2 and 4", "no end of the older attempt"]);
}

#[test]
fn an_attempt_begins_once() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.begin(id, 0);
    story.succeed(id, 0);
    story.violates("effect.once", &["instance 0-1", "began twice under fence 2"]);
}

#[test]
fn what_is_not_idempotent_begins_once_in_all() {
    let (mut story, task) = begun(TaskDefinition { idempotent: false, ..retried("t") });
    let good = story.trigger(task);
    story.run(good, 0);
    story.holds("effect.once");
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.end(id, first, 0, None);
    story.lose(id);
    story.ready_again(id);
    story.run(id, 1);
    story.violates("effect.once", &["instance 0-3", "task 1", "not idempotent", "began 2 times"]);
}

#[test]
fn what_was_undone_with_the_tail_leaves_effects_open() {
    let (mut story, task) = retrying();
    let before = story.clone();
    let from = story.history.records.len();
    let id = story.trigger(task);
    story.run(id, 0);
    lose_tail(&mut story, from, &before);
    let again = story.trigger(task);
    assert_eq!(again, id, "the sequence was lost with the tail");
    story.run(again, 0);
    story.leaves_open("effect.once", "the tail was lost");
}

#[test]
fn two_handlers_may_overlap_for_the_grace() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.lose(id);
    story.ready_again(id);
    story.start(id, 1);
    story.pass(24_000);
    story.end(id, first, 0, None);
    story.succeed(id, 1);
    story.holds("attempt.exclusive");
}

#[test]
fn a_worker_that_stands_still_runs_nothing() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.record(Who::Worker(0), What::Paused);
    story.pass(40_000);
    story.lose(id);
    story.ready_again(id);
    story.start(id, 1);
    story.pass(100_000);
    story.record(Who::Worker(0), What::Resumed);
    story.pass(20_000);
    story.end(id, first, 0, None);
    story.succeed(id, 1);
    story.holds("attempt.exclusive");
}

#[test]
fn a_worker_that_crashes_ends_its_handlers() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.record(Who::Worker(0), What::Crashed);
    story.lose(id);
    story.ready_again(id);
    story.start(id, 1);
    story.pass(100_000);
    story.succeed(id, 1);
    story.holds("attempt.exclusive");
}

fn side_by_side(ms: u64) -> Story {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.lose(id);
    story.ready_again(id);
    story.start(id, 1);
    story.pass(ms);
    story.end(id, first, 0, None);
    story.succeed(id, 1);
    story
}

#[test]
fn two_handlers_do_not_run_side_by_side_for_long() {
    side_by_side(26_000).violates("attempt.exclusive", &["instance 0-1", "fences 2 and 3", "26000 ms", "records"]);
    let mut one_way = side_by_side(26_000);
    let fault = Fault { at_ms: 0, lasts_ms: 10, kind: FaultKind::CutOutgoing, on: Selector::Worker(0) };
    one_way.plan.faults.push(fault.clone());
    one_way.holds("attempt.exclusive");
    let mut too_long = side_by_side(56_000);
    too_long.plan.faults.push(fault);
    too_long.violates("attempt.exclusive", &["instance 0-1"]);
}

#[test]
fn a_handler_that_never_ends_overlaps_until_the_end() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.lose(id);
    story.ready_again(id);
    story.start(id, 1);
    story.pass(30_000);
    story.record(Who::World, What::FaultEnded(0));
    story.violates("attempt.exclusive", &["instance 0-1"]);
}

#[test]
fn fences_grow_from_attempt_to_attempt() {
    let (mut story, task) = retrying();
    for _ in 0..2 {
        let id = story.trigger(task);
        story.start(id, 0);
        story.fail(id, 0, 1_000);
        story.pass(1_000);
        story.ready_again(id);
        story.run(id, 1);
    }
    story.holds("fence.monotone");
}

#[test]
fn a_later_attempt_of_a_task_has_a_higher_fence() {
    let (mut story, task) = retrying();
    let (first, second) = (story.trigger(task), story.trigger(task));
    story.dispatch(first, 0);
    // As if somebody had given numbers out that he no longer remembers.
    let stale = Fence(1);
    story.commit();
    story.begin(first, 0);
    story.dispatch(second, 1);
    story.row(second).fence = stale;
    story.row(second).transitions.last_mut().unwrap().fence = stale;
    story.commit();
    story.begin(second, 1);
    story.violates("fence.monotone", &["task 1", "instance 0-2 under fence 1", "instance 0-1 under 3"]);
}

#[test]
fn a_batch_never_lowers_a_fence() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.row(id).fence = Fence(1);
    story.commit();
    story.violates("fence.monotone", &["instance 0-1", "its fence went from 2 to 1"]);
}

#[test]
fn each_dispatch_has_a_fence_of_its_own() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    story.lose(id);
    story.ready_again(id);
    story.dispatch(id, 1);
    story.row(id).fence = fence;
    story.row(id).transitions.last_mut().unwrap().fence = fence;
    story.commit();
    story.violates("fence.monotone", &["instance 0-1", "dispatched under fence 2 after 2"]);
}

#[test]
fn the_row_has_the_fence_of_its_log() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.row(id).fence = Fence(9);
    story.commit();
    story.violates("fence.monotone", &["instance 0-1", "the row's fence is 9, its log's is 2"]);
}

#[test]
fn a_result_counts_only_under_its_own_fence() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.lose(id);
    story.ready_again(id);
    let second = story.start(id, 1);
    story.effect(id, first, 0);
    story.end(id, first, 0, Some(End::Succeeded));
    story.change(id, State::Succeeded, Cause::Finished);
    story.commit();
    story.effect(id, second, 1);
    story.end(id, second, 1, Some(End::Succeeded));
    story.violates("fence.monotone", &["instance 0-1", "succeeded under fence 3", "the handler under 2"]);
}

#[test]
fn a_failure_counts_only_under_its_own_fence() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.lose(id);
    story.ready_again(id);
    story.start(id, 1);
    story.end(id, first, 0, Some(End::Failed));
    story.pass(1_000);
    story.change(id, State::Retrying, Cause::Finished);
    story.commit();
    story.violates("fence.monotone", &["instance 0-1", "retrying under fence 3", "the handler under 2"]);
}

#[test]
fn a_fence_that_was_undone_may_have_been_given_out_again() {
    let (mut story, task) = retrying();
    let (first, second) = (story.trigger(task), story.trigger(task));
    let before = story.clone();
    let from = story.history.records.len();
    story.dispatch(first, 0);
    story.commit();
    story.begin(first, 0);
    lose_tail(&mut story, from, &before);
    story.dispatch(second, 1);
    story.commit();
    story.begin(second, 1);
    story.leaves_open("fence.monotone", "the tail was lost");
}

#[test]
fn a_handler_begins_after_its_dispatch_was_committed() {
    let (mut story, task) = retrying();
    for worker in [0, 1, 0] {
        let id = story.trigger(task);
        story.run(id, worker);
    }
    story.holds("speak.after_commit");
}

#[test]
fn a_handler_does_not_begin_before_the_commit() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.dispatch(id, 0);
    story.begin(id, 0);
    story.pass(3);
    let committed = story.commit();
    story.violates("speak.after_commit", &["instance 0-1", "task 1", "fence 2", &format!("committed after that, in record {committed}")]);
}

#[test]
fn a_handler_does_not_begin_what_was_never_committed() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.dispatch(id, 0);
    story.begin(id, 0);
    story.violates("speak.after_commit", &["instance 0-1", "never dispatched"]);
}

#[test]
fn a_handler_begins_on_the_worker_that_it_was_given_to() {
    let (mut story, task) = retrying();
    let known = story.trigger(task);
    story.run(known, 0);
    let id = story.trigger(task);
    story.dispatch(id, 0);
    story.commit();
    story.begin(id, 1);
    story.violates("speak.after_commit", &["instance 0-3", "worker 1", "dispatched to w0"]);
    let (mut story, task) = retrying();
    let known = story.trigger(task);
    story.run(known, 0);
    let id = story.trigger(task);
    story.dispatch(id, 0);
    story.row(id).transitions.last_mut().unwrap().worker = Some(WorkerId("w9".into()));
    story.commit();
    story.begin(id, 0);
    story.violates("speak.after_commit", &["instance 0-3", "worker 0", "dispatched to w9"]);
}

#[test]
fn a_handler_is_told_what_the_row_says() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.dispatch(id, 0);
    story.commit();
    story.row(id).attempt = 7;
    story.begin(id, 0);
    story.violates("speak.after_commit", &["instance 0-1", "something else"]);
}

/// One second, and half a second of grace.
fn timed(action: TimeoutAction) -> TaskDefinition {
    policies(retried("t"), |policies| {
        policies.timeout.after = Some(Millis(1_000));
        policies.timeout.grace = Millis(500);
        policies.timeout.action = action;
    })
}

#[test]
fn a_handler_ends_within_timeout_and_grace() {
    let (mut story, task) = begun(timed(TimeoutAction::Kill));
    let id = story.trigger(task);
    story.start(id, 0);
    story.pass(3_000);
    story.record(Who::Worker(0), What::Paused);
    story.pass(60_000);
    story.record(Who::Worker(0), What::Resumed);
    story.pass(400);
    story.succeed(id, 0);
    story.holds("timeout.enforced");
}

#[test]
fn a_handler_that_may_run_on_does() {
    let (mut story, task) = begun(timed(TimeoutAction::Wait));
    let id = story.trigger(task);
    story.start(id, 0);
    story.pass(60_000);
    story.succeed(id, 0);
    story.holds("timeout.enforced");
}

#[test]
fn a_handler_that_runs_on_is_found() {
    let (mut story, task) = begun(timed(TimeoutAction::Kill));
    let id = story.trigger(task);
    story.start(id, 0);
    story.pass(3_600);
    let mut unended = story.clone();
    story.succeed(id, 0);
    story.violates("timeout.enforced", &["instance 0-1", "task 1", "fence 2", "3600 ms", "record"]);
    unended.record(Who::World, What::FaultEnded(0));
    unended.violates("timeout.enforced", &["instance 0-1"]);
}
