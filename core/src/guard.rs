//! Guards: the checks that safety rests on, by name.
//!
//! `guard!(Guard::FenceOnResult, report.fence == row.fence)` is its condition, no more, in a normal build. With the feature `simulation`
//! a guard can be switched off for the running thread, so that a test can show that something fails without it, and its hits are
//! counted, so that a test can show that it was there.

/// Every guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// A result counts only under the attempt's current fence.
    FenceOnResult,
    /// A start or a return counts only under the attempt's current fence.
    FenceOnProgress,
    /// What leaves the replica waits for the commit that justifies it.
    SpeakAfterCommit,
    /// A commit whose outcome is unknown makes the owner reload.
    UnknownCommitReloads,
    /// A refused commit makes the owner reload.
    RefusedCommitReloads,
    /// The cursor moves in the firing's own batch.
    CursorMovesWithFiring,
    /// Fire times that were missed go through the misfire policy.
    MisfireScan,
    /// An instance beyond the limit does not start.
    ConcurrencyLimit,
    /// Attempts are bounded.
    AttemptsBounded,
    /// A task that is not idempotent is not dispatched again once a worker may have begun.
    NotIdempotentNotRepeated,
    /// An inbox entry is applied once.
    InboxOnce,
    /// An owner whose lease it can't trust any more lets go.
    LeaseTrusted,
    /// A worker keeps a result until it is acknowledged.
    ResultKeptUntilAcknowledged,
    /// A worker that has heard from no scheduler for its lease ends its attempts.
    WorkerSelfFences,
    /// A worker does not begin what was sent before its scheduler had given it up.
    LateAssignmentReturned,
    /// The absence of an attempt in a worker's account counts only for what the worker had received when it gave the account.
    AccountCoversAssignment,
    /// A worker is told to send several heartbeats in the time of a lease.
    HeartbeatsWithinLease,
    /// A worker that started anew is not taken for the life of it that was given an attempt.
    WorkerLivesApart,
    /// The wait before an attempt is capped.
    BackoffCapped,
    /// A commit whose outcome is unknown is not carried out again.
    UnknownCommitNotRepeated,
    /// A cancellation stays in the inbox until its instance has ended.
    CancelKeptUntilEnd,
    /// A wall clock that was set back moves no cursor.
    StepBackMovesNoCursor,
    /// Chained tasks come to an end.
    ChainsEnd,
    /// A task that has used up its rate does not start.
    RateLimit,
    /// A task whose retries are used up has no more.
    RetryBudget,
    /// While a circuit breaker is open, nothing that depends on its downstream is begun but a probe.
    BreakerHolds,
    /// What is to run once more waits also behind a queue that is full.
    RerunsWait,
    /// A worker is given no part of a firing that it would take for the whole.
    PartsUnderstood,
    /// A group of tasks has no more slots than its limit.
    GroupLimit,
    /// Nothing of a paused task starts.
    PauseHolds,
    /// A worker that somebody drains is given nothing more.
    DrainHolds,
    /// A node of a workflow waits until its rule is met.
    NodesWait,
    /// A new owner knows of the nodes that have ended of runs that have not.
    EndedNodesKnown,
    /// A band that has had its turn waits for the others.
    BandsTakeTurns,
    /// A new owner knows which of its instances nodes of workflows have called.
    CallsKnown,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Guard; 35] = [
        Guard::FenceOnResult,
        Guard::FenceOnProgress,
        Guard::SpeakAfterCommit,
        Guard::UnknownCommitReloads,
        Guard::RefusedCommitReloads,
        Guard::CursorMovesWithFiring,
        Guard::MisfireScan,
        Guard::ConcurrencyLimit,
        Guard::AttemptsBounded,
        Guard::NotIdempotentNotRepeated,
        Guard::InboxOnce,
        Guard::LeaseTrusted,
        Guard::ResultKeptUntilAcknowledged,
        Guard::WorkerSelfFences,
        Guard::LateAssignmentReturned,
        Guard::AccountCoversAssignment,
        Guard::HeartbeatsWithinLease,
        Guard::WorkerLivesApart,
        Guard::BackoffCapped,
        Guard::UnknownCommitNotRepeated,
        Guard::CancelKeptUntilEnd,
        Guard::StepBackMovesNoCursor,
        Guard::ChainsEnd,
        Guard::RateLimit,
        Guard::RetryBudget,
        Guard::BreakerHolds,
        Guard::RerunsWait,
        Guard::PartsUnderstood,
        Guard::GroupLimit,
        Guard::PauseHolds,
        Guard::DrainHolds,
        Guard::NodesWait,
        Guard::EndedNodesKnown,
        Guard::BandsTakeTurns,
        Guard::CallsKnown,
    ];
}

/// The condition; with the feature `simulation`, true where the guard is switched off.
#[macro_export]
macro_rules! guard {
    ($guard:expr, $condition:expr) => {{
        let holds: bool = $condition;
        $crate::guard::check($guard, holds)
    }};
}

#[cfg(not(feature = "simulation"))]
#[doc(hidden)]
#[inline(always)]
pub const fn check(_: Guard, holds: bool) -> bool {
    holds
}

#[cfg(feature = "simulation")]
pub use switchboard::{check, hits, reset, switch_off};

#[cfg(feature = "simulation")]
mod switchboard {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use super::Guard;

    thread_local! {
        static OFF: RefCell<BTreeSet<Guard>> = const { RefCell::new(BTreeSet::new()) };
        static HITS: RefCell<BTreeMap<Guard, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    #[doc(hidden)]
    pub fn check(guard: Guard, holds: bool) -> bool {
        if !holds {
            HITS.with_borrow_mut(|hits| *hits.entry(guard).or_default() += 1);
        }
        holds || OFF.with_borrow(|off| off.contains(&guard))
    }

    /// Switches a guard off for this thread.
    pub fn switch_off(guard: Guard) {
        OFF.with_borrow_mut(|off| off.insert(guard));
    }

    /// Switches all guards on again for this thread and forgets the hits.
    pub fn reset() {
        OFF.with_borrow_mut(BTreeSet::clear);
        HITS.with_borrow_mut(BTreeMap::clear);
    }

    /// How often this thread's guards had something to hold back.
    pub fn hits(guard: Guard) -> u64 {
        HITS.with_borrow(|hits| hits.get(&guard).copied().unwrap_or(0))
    }
}
