//! The concurrency limit of a task: may a new instance start?

use crate::definition::{Blocking, ConcurrencyPolicy};
use crate::guard;
use crate::guard::Guard;

/// What becomes of a new instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It starts.
    Start,
    /// It waits behind those that wait already.
    Wait,
    /// It is discarded: the task is at its limit.
    Discard,
    /// It is discarded: the task's queue is full.
    QueueFull,
    /// The oldest one in progress is cancelled, and it waits for the place.
    Replace,
}

/// Decides on a new instance of a task that has `in_progress` instances in progress and `waiting` waiting.
pub fn admit(policy: ConcurrencyPolicy, in_progress: usize, waiting: usize) -> Admission {
    // Who comes later never overtakes those who wait.
    let is_free = in_progress < policy.max_running as usize && waiting == 0;
    if guard!(Guard::ConcurrencyLimit, is_free) {
        return Admission::Start;
    }
    match policy.blocking {
        Blocking::Queue { max_queue } if waiting < max_queue as usize => Admission::Wait,
        Blocking::Queue { .. } => Admission::QueueFull,
        Blocking::Discard => Admission::Discard,
        Blocking::Replace => Admission::Replace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocking: Blocking, in_progress: usize, waiting: usize, expected: Admission) {
        let policy = ConcurrencyPolicy { max_running: 2, blocking };
        assert_eq!(admit(policy, in_progress, waiting), expected, "{blocking:?}, {in_progress} in progress, {waiting} waiting");
    }

    #[test]
    fn below_the_limit_everything_starts() {
        for blocking in [Blocking::Queue { max_queue: 0 }, Blocking::Discard, Blocking::Replace] {
            check(blocking, 0, 0, Admission::Start);
            check(blocking, 1, 0, Admission::Start);
        }
    }

    #[test]
    fn at_the_limit_the_policy_decides() {
        check(Blocking::Queue { max_queue: 1 }, 2, 0, Admission::Wait);
        check(Blocking::Queue { max_queue: 1 }, 2, 1, Admission::QueueFull);
        check(Blocking::Queue { max_queue: 0 }, 2, 0, Admission::QueueFull);
        check(Blocking::Discard, 2, 0, Admission::Discard);
        check(Blocking::Replace, 2, 0, Admission::Replace);
        check(Blocking::Replace, 9, 3, Admission::Replace);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        check(Blocking::Queue { max_queue: 5 }, 1, 3, Admission::Wait);
    }
}
