//! `retry.bounded`.

use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, State};
use punctual_core::time::Millis;

use crate::story::{Story, policies};
use crate::tasks::{begun, retried, retrying};

/// Retried so often, with the waits that it is given.
fn retries(definition: TaskDefinition, waits: &[u64]) -> (Story, InstanceId) {
    let (mut story, task) = begun(definition);
    let id = story.trigger(task);
    for wait in waits {
        story.start(id, 0);
        story.fail(id, 0, *wait);
        story.pass(*wait);
        story.ready_again(id);
    }
    (story, id)
}

#[test]
fn three_retries_after_a_second_each_are_within_bounds() {
    let (mut story, id) = retries(retried("t"), &[1_000, 1_000, 1_000]);
    story.run(id, 1);
    story.holds("retry.bounded");
}

#[test]
fn lost_workers_are_made_up_for_at_once_and_then_with_a_wait() {
    let (mut story, task) = begun(policies(retried("t"), |policies| policies.retry.max_attempts = None));
    let id = story.trigger(task);
    for wait in [0, 1_000, 1_000] {
        let fence = story.start(id, 0);
        story.end(id, fence, 0, None);
        story.row(id).losses += 1;
        story.change(id, State::Retrying, Cause::WorkerLost);
        let due_at = story.wall().saturating_add(Millis(wait));
        story.row(id).due_at = Some(due_at);
        story.commit();
        story.pass(wait);
        story.ready_again(id);
    }
    story.run(id, 1);
    story.holds("retry.bounded");
    let id = story.trigger(task);
    for _ in 0..2 {
        let fence = story.start(id, 0);
        story.end(id, fence, 0, None);
        story.lose(id);
        story.ready_again(id);
    }
    story.violates("retry.bounded", &["instance 0-6", "the wait from"]);
}

#[test]
fn an_attempt_too_many_is_found() {
    let (mut story, id) = retries(policies(retried("t"), |policies| policies.retry.max_attempts = Some(2)), &[1_000]);
    story.run(id, 0);
    story.holds("retry.bounded");
    let (story, _) = retries(policies(retried("t"), |policies| policies.retry.max_attempts = Some(2)), &[1_000, 1_000]);
    story.violates("retry.bounded", &["instance 0-1", "task 1", "retried", "2 attempts"]);
}

#[test]
fn without_a_retry_nothing_follows_a_failure() {
    let (story, _) = retries(policies(retried("t"), |policies| policies.retry.max_attempts = None), &[1_000]);
    story.violates("retry.bounded", &["instance 0-1", "1 attempts"]);
}

#[test]
fn a_failure_of_what_is_not_idempotent_is_final() {
    let (story, _) = retries(TaskDefinition { idempotent: false, ..retried("t") }, &[1_000]);
    story.violates("retry.bounded", &["instance 0-1", "not idempotent"]);
}

#[test]
fn a_worker_lost_too_many_is_found() {
    let definition = policies(retried("t"), |policies| {
        policies.retry.max_losses = 1;
        policies.retry.backoff.first = Millis(0);
    });
    let (mut story, task) = begun(definition);
    let id = story.trigger(task);
    for _ in 0..2 {
        let fence = story.start(id, 0);
        story.end(id, fence, 0, None);
        story.lose(id);
        story.ready_again(id);
    }
    story.violates("retry.bounded", &["instance 0-1", "2 lost workers"]);
}

#[test]
fn an_attempt_that_the_log_does_not_have_counts_too() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.row(id).attempt = 9;
    story.commit();
    story.violates("retry.bounded", &["instance 0-1", "attempt 9"]);
}

#[test]
fn a_wait_that_was_decided_too_short_or_too_long_is_found() {
    for wait in [500, 2_000] {
        let (mut story, task) = retrying();
        let id = story.trigger(task);
        story.start(id, 0);
        story.fail(id, 0, wait);
        story.violates("retry.bounded", &["instance 0-1", &format!("is {wait} ms")]);
    }
}

#[test]
fn a_wait_that_was_cut_short_is_found() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.fail(id, 0, 1_000);
    story.pass(400);
    story.ready_again(id);
    story.violates("retry.bounded", &["instance 0-1", "over after 400 ms"]);
}

#[test]
fn a_wait_that_only_the_log_kept_is_found() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.start(id, 0);
    story.fail(id, 0, 1_000);
    story.pass(100);
    story.ready_again(id);
    // By its log it waited, by the handlers it did not.
    story.history.records.pop();
    story.commit_seq -= 1;
    story.stored.insert(id, (State::Retrying, story.rows[&id].fence));
    let later = story.wall().saturating_add(Millis(900));
    story.row(id).transitions.last_mut().unwrap().at = later;
    story.dispatch(id, 0);
    story.row(id).transitions.last_mut().unwrap().at = later;
    story.commit();
    story.begin(id, 0);
    story.violates("retry.bounded", &["instance 0-1", "the next handler began"]);
}

#[test]
fn waits_follow_the_backoff_and_its_jitter() {
    let growing = |kind, jitter| {
        policies(retried("t"), |policies| {
            policies.retry.backoff = BackoffPolicy { kind, first: Millis(1_000), cap: Millis(3_000), jitter };
        })
    };
    let doubling = Backoff::Exponential { factor_permille: 2_000 };
    for (kind, jitter, waits) in [
        (doubling, Jitter::None, [1_000, 2_000, 3_000]),
        (Backoff::Linear, Jitter::None, [1_000, 2_000, 3_000]),
        (doubling, Jitter::Equal, [500, 1_500, 3_000]),
        (doubling, Jitter::Full, [0, 2_000, 1]),
        (doubling, Jitter::Proportional { permille: 200 }, [1_200, 1_600, 3_000]),
    ] {
        let (story, _) = retries(growing(kind, jitter), &waits);
        story.holds("retry.bounded");
    }
    for (kind, jitter, waits) in [
        (doubling, Jitter::None, [1_000, 1_000, 1_000]),
        (Backoff::Linear, Jitter::None, [1_000, 2_000, 2_000]),
        (doubling, Jitter::Equal, [400, 1_500, 3_000]),
        (doubling, Jitter::Full, [0, 2_100, 0]),
        (doubling, Jitter::Proportional { permille: 200 }, [1_300, 1_600, 3_000]),
        (doubling, Jitter::Proportional { permille: 200 }, [1_000, 2_000, 3_100]),
    ] {
        let (story, _) = retries(growing(kind, jitter), &waits);
        story.violates("retry.bounded", &["instance 0-1", "the wait from"]);
    }
}
