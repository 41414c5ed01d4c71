//! What follows an attempt that failed or was lost.

use crate::definition::TaskDefinition;
use crate::guard;
use crate::guard::Guard;
use crate::ids::InstanceId;
use crate::instance::{Cause, State};
use crate::limits;
use crate::time::Millis;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, after this wait.
    Again(Millis),
    /// The end.
    End(State, Cause),
}

/// How an instance's attempts have gone so far, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Attempts that failed or ran out of time.
    pub failures: u32,
    /// Attempts whose worker was lost.
    pub losses: u32,
}

/// An attempt that failed or ran out of time, by its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `State::Failed` or `State::TimedOut`.
    pub how: State,
    /// The exit code or the status.
    pub code: Option<i32>,
    /// The next attempt is to wait at least this long.
    pub retry_after: Option<Millis>,
}

impl Failure {
    /// What the transition says of it.
    pub fn cause(self) -> Cause {
        if self.how == State::TimedOut { Cause::TimedOut } else { Cause::Finished }
    }

    /// Whether it is one that the task retries, as long as there are attempts left. Time that has run out is judged as that, whatever the
    /// code.
    pub fn may_pass(self, definition: &TaskDefinition) -> bool {
        let on = &definition.policies.retry.on;
        match (self.how, self.code, &on.codes) {
            (State::TimedOut, _, _) => on.timeouts,
            (_, Some(code), Some(codes)) => codes.contains(code),
            _ => true,
        }
    }
}

/// After an attempt that failed or ran out of time.
pub fn after_failure(definition: &TaskDefinition, instance: InstanceId, score: Score, failure: Failure) -> Next {
    let (how, cause) = (failure.how, failure.cause());
    let attempts = score.failures.saturating_add(score.losses);
    let is_bounded_by = definition.policies.retry.max_attempts.unwrap_or(1).min(limits::ATTEMPTS_MAX);
    if !guard!(Guard::NotIdempotentNotRepeated, definition.idempotent) {
        return Next::End(how, cause);
    }
    if is_bounded_by > 1 && !failure.may_pass(definition) {
        return Next::End(how, Cause::NotRetried);
    }
    if !guard!(Guard::AttemptsBounded, attempts < is_bounded_by) {
        return match definition.policies.retry.max_attempts {
            // Nothing was to follow a failure, so nothing was exhausted.
            None | Some(1) => Next::End(how, cause),
            Some(_) => Next::End(State::DeadLettered, Cause::AttemptsExhausted),
        };
    }
    let asked = failure.retry_after.unwrap_or(Millis::ZERO).min(limits::RETRY_AFTER_MAX);
    Next::Again(delay(definition, score.failures, seed(instance, attempts)).max(asked))
}

/// After an attempt whose worker was lost. `may_have_begun`: a worker may have started it.
pub fn after_loss(definition: &TaskDefinition, instance: InstanceId, score: Score, may_have_begun: bool) -> Next {
    let attempts = score.failures.saturating_add(score.losses);
    if !guard!(Guard::NotIdempotentNotRepeated, definition.idempotent || !may_have_begun) {
        return Next::End(State::DeadLettered, Cause::OutcomeUnknown);
    }
    if score.losses > definition.policies.retry.max_losses {
        return Next::End(State::DeadLettered, Cause::Quarantined);
    }
    if definition.policies.retry.max_attempts.is_some_and(|most| attempts >= most) || attempts >= limits::ATTEMPTS_MAX {
        return Next::End(State::DeadLettered, Cause::WorkerLost);
    }
    // One lost worker is nobody's fault; an instance that loses one after the other may be what kills them.
    match score.losses {
        0 | 1 => Next::Again(Millis::ZERO),
        losses => Next::Again(delay(definition, losses - 1, seed(instance, attempts))),
    }
}

fn delay(definition: &TaskDefinition, failures: u32, seed: u64) -> Millis {
    let mut policy = definition.policies.retry.backoff;
    if guard!(Guard::BackoffCapped, false) {
        policy.cap = limits::DELAY_MAX;
    }
    policy.delay(failures, seed)
}

fn seed(instance: InstanceId, attempts: u32) -> u64 {
    instance.0.rotate_left(16) ^ u64::from(attempts)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::definition::{CodeSet, RetryOn};
    use crate::scheduler::testing::definition;

    const ID: InstanceId = InstanceId(7);

    fn score(failures: u32, losses: u32) -> Score {
        Score { failures, losses }
    }

    fn failed() -> Failure {
        Failure { how: State::Failed, code: None, retry_after: None }
    }

    fn timed_out() -> Failure {
        Failure { how: State::TimedOut, ..failed() }
    }

    fn with_code(code: i32) -> Failure {
        Failure { code: Some(code), ..failed() }
    }

    #[test]
    fn without_a_retry_the_first_failure_is_final() {
        let task = definition("t");
        assert_eq!(after_failure(&task, ID, score(1, 0), failed()), Next::End(State::Failed, Cause::Finished));
        assert_eq!(after_failure(&task, ID, score(1, 0), timed_out()), Next::End(State::TimedOut, Cause::TimedOut));
    }

    #[test]
    fn four_attempts_are_one_and_three_retries() {
        let mut task = definition("t");
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(4);
        for failures in 1..=3 {
            assert!(matches!(after_failure(&task, ID, score(failures, 0), failed()), Next::Again(_)));
        }
        assert_eq!(after_failure(&task, ID, score(4, 0), failed()), Next::End(State::DeadLettered, Cause::AttemptsExhausted));
    }

    #[test]
    fn a_worker_lost_in_the_last_attempt_is_a_dead_letter() {
        let mut task = definition("t");
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(3);
        assert_eq!(after_loss(&task, ID, score(2, 1), true), Next::End(State::DeadLettered, Cause::WorkerLost));
        assert!(matches!(after_loss(&task, ID, score(1, 1), true), Next::Again(_)));
    }

    #[test]
    fn losses_are_counted_apart_and_end_in_quarantine() {
        let task = definition("t");
        assert_eq!(after_loss(&task, ID, score(0, 1), true), Next::Again(Millis::ZERO));
        assert!(matches!(after_loss(&task, ID, score(0, 3), true), Next::Again(wait) if wait > Millis::ZERO));
        assert_eq!(after_loss(&task, ID, score(0, 4), true), Next::End(State::DeadLettered, Cause::Quarantined));
    }

    #[test]
    fn what_is_not_idempotent_is_not_repeated_once_it_may_have_begun() {
        let mut task = definition("t");
        task.idempotent = false;
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(9);
        assert_eq!(after_loss(&task, ID, score(0, 1), true), Next::End(State::DeadLettered, Cause::OutcomeUnknown));
        assert_eq!(after_loss(&task, ID, score(0, 1), false), Next::Again(Millis::ZERO));
        assert_eq!(after_failure(&task, ID, score(1, 0), failed()), Next::End(State::Failed, Cause::Finished));
    }

    #[test]
    fn only_the_listed_failures_are_retried() {
        let mut task = definition("t");
        let retry = &mut Arc::make_mut(&mut task.policies).retry;
        retry.max_attempts = Some(3);
        retry.on = RetryOn { codes: Some(CodeSet::of([(75, 75), (500, 599)])), timeouts: false };
        let after = |failures, failure| after_failure(&task, ID, score(failures, 0), failure);
        for failure in [with_code(75), with_code(500), with_code(599), failed()] {
            assert!(matches!(after(1, failure), Next::Again(_)), "{failure:?}");
            assert_eq!(after(3, failure), Next::End(State::DeadLettered, Cause::AttemptsExhausted));
        }
        for failures in [1, 3] {
            assert_eq!(after(failures, with_code(1)), Next::End(State::Failed, Cause::NotRetried));
            assert_eq!(after(failures, with_code(-1)), Next::End(State::Failed, Cause::NotRetried));
            assert_eq!(after(failures, timed_out()), Next::End(State::TimedOut, Cause::NotRetried));
            let late = Failure { code: Some(75), ..timed_out() };
            assert_eq!(after(failures, late), Next::End(State::TimedOut, Cause::NotRetried), "a code excuses no overrun");
        }
    }

    #[test]
    fn where_nothing_is_retried_the_list_says_nothing() {
        let mut task = definition("t");
        Arc::make_mut(&mut task.policies).retry.on = RetryOn { codes: Some(CodeSet::default()), timeouts: false };
        for attempts in [None, Some(1)] {
            Arc::make_mut(&mut task.policies).retry.max_attempts = attempts;
            assert_eq!(after_failure(&task, ID, score(1, 0), with_code(1)), Next::End(State::Failed, Cause::Finished));
        }
    }

    proptest! {
        #[test]
        fn the_wait_is_no_shorter_than_what_was_asked_for_nor_than_the_backoff(
            first in 1..100_000_u64,
            cap in 1..10_000_000_u64,
            failures in 1..9_u32,
            asked in prop_oneof![Just(None), (0..200_000_000_u64).prop_map(Some), any::<u64>().prop_map(Some)],
        ) {
            let mut task = definition("t");
            let retry = &mut Arc::make_mut(&mut task.policies).retry;
            retry.max_attempts = Some(10);
            (retry.backoff.first, retry.backoff.cap) = (Millis(first), Millis(cap));
            let wait = |retry_after: Option<u64>| {
                match after_failure(&task, ID, score(failures, 0), Failure { retry_after: retry_after.map(Millis), ..failed() }) {
                    Next::Again(wait) => wait,
                    Next::End(..) => unreachable!("an attempt is left"),
                }
            };
            let backoff = wait(None);
            prop_assert!(backoff <= Millis(cap));
            let asked_for = Millis(asked.unwrap_or(0)).min(limits::RETRY_AFTER_MAX);
            prop_assert_eq!(wait(asked), backoff.max(asked_for));
        }
    }
}
