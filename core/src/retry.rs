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

/// After an attempt that failed (`State::Failed`) or ran out of time (`State::TimedOut`).
pub fn after_failure(definition: &TaskDefinition, instance: InstanceId, score: Score, how: State) -> Next {
    let cause = if how == State::TimedOut { Cause::TimedOut } else { Cause::Finished };
    let attempts = score.failures.saturating_add(score.losses);
    let is_bounded_by = definition.policies.retry.max_attempts.unwrap_or(1).min(limits::ATTEMPTS_MAX);
    if !guard!(Guard::NotIdempotentNotRepeated, definition.idempotent) {
        return Next::End(how, cause);
    }
    if !guard!(Guard::AttemptsBounded, attempts < is_bounded_by) {
        return match definition.policies.retry.max_attempts {
            // Nothing was to follow a failure, so nothing was exhausted.
            None | Some(1) => Next::End(how, cause),
            Some(_) => Next::End(State::DeadLettered, Cause::AttemptsExhausted),
        };
    }
    Next::Again(delay(definition, score.failures, seed(instance, attempts)))
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

    use super::*;
    use crate::scheduler::testing::definition;

    const ID: InstanceId = InstanceId(7);

    fn score(failures: u32, losses: u32) -> Score {
        Score { failures, losses }
    }

    #[test]
    fn without_a_retry_the_first_failure_is_final() {
        let task = definition("t");
        assert_eq!(after_failure(&task, ID, score(1, 0), State::Failed), Next::End(State::Failed, Cause::Finished));
        assert_eq!(after_failure(&task, ID, score(1, 0), State::TimedOut), Next::End(State::TimedOut, Cause::TimedOut));
    }

    #[test]
    fn four_attempts_are_one_and_three_retries() {
        let mut task = definition("t");
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(4);
        for failures in 1..=3 {
            assert!(matches!(after_failure(&task, ID, score(failures, 0), State::Failed), Next::Again(_)));
        }
        assert_eq!(after_failure(&task, ID, score(4, 0), State::Failed), Next::End(State::DeadLettered, Cause::AttemptsExhausted));
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
        assert_eq!(after_failure(&task, ID, score(1, 0), State::Failed), Next::End(State::Failed, Cause::Finished));
    }
}
