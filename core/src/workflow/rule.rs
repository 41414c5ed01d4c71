//! Trigger rules and failure policies: what a node makes of its upstreams, and they of it.

use super::named;
use super::run::NodeState;

/// When a node starts, by what its direct upstreams came to; the table is in the [module's documentation](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerRule {
    /// When all upstreams have succeeded. Skipped as soon as one has failed or was skipped.
    #[default]
    AllSucceeded,
    /// When all upstreams have ended, in whatever way.
    AllDone,
    /// As soon as one upstream has failed. Skipped when all have ended and none has.
    OneFailed,
    /// As soon as one upstream has succeeded. Skipped when all have ended and none has.
    OneSucceeded,
    /// When all upstreams have ended, each succeeded or skipped. Skipped as soon as one has failed.
    NoneFailed,
}

named!(TriggerRule {
    AllSucceeded = "all_succeeded",
    AllDone = "all_done",
    OneFailed = "one_failed",
    OneSucceeded = "one_succeeded",
    NoneFailed = "none_failed",
});

/// What follows when a node fails or is cancelled; the table is in the [module's documentation](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailurePolicy {
    /// Its dependants decide by their rule, the rest of the run goes on, and the run fails at its end.
    #[default]
    SkipDownstream,
    /// The whole run is ended: nothing starts any more, what runs is cancelled, and the run fails.
    FailRun,
    /// For its dependants and for the run's end it has succeeded.
    Continue,
}

named!(FailurePolicy { SkipDownstream = "skip_downstream", FailRun = "fail_run", Continue = "continue" });

/// What an ended node counts as for its dependants and for the run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Succeeded,
    Failed,
    Skipped,
}

/// What a node in this state counts as; nothing as long as it has not ended.
pub(super) fn outcome(state: NodeState, policy: FailurePolicy) -> Option<Outcome> {
    match state {
        NodeState::Waiting | NodeState::Started => None,
        NodeState::Succeeded => Some(Outcome::Succeeded),
        NodeState::Failed | NodeState::Cancelled if policy == FailurePolicy::Continue => Some(Outcome::Succeeded),
        NodeState::Failed | NodeState::Cancelled => Some(Outcome::Failed),
        NodeState::Skipped => Some(Outcome::Skipped),
    }
}

/// The upstreams of a node, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) unfinished: u32,
    pub(super) succeeded: u32,
    pub(super) failed: u32,
    pub(super) skipped: u32,
}

impl Tally {
    /// Where upstreams with this outcome are counted; `None` for those that have not ended.
    pub(super) fn of(&mut self, outcome: Option<Outcome>) -> &mut u32 {
        match outcome {
            None => &mut self.unfinished,
            Some(Outcome::Succeeded) => &mut self.succeeded,
            Some(Outcome::Failed) => &mut self.failed,
            Some(Outcome::Skipped) => &mut self.skipped,
        }
    }

    fn total(self) -> u32 {
        self.unfinished + self.succeeded + self.failed + self.skipped
    }
}

/// What a rule says of the upstreams so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Open,
    /// The node may start, whatever follows.
    Met,
    /// The node can't start any more, whatever follows.
    OutOfReach,
}

impl TriggerRule {
    /// What the rule says. As more upstreams end, it may go from open to one of the others, and stays there.
    pub(super) fn verdict(self, upstreams: Tally) -> Verdict {
        let all_ended = upstreams.unfinished == 0;
        let (met, out_of_reach) = match self {
            _ if upstreams.total() == 0 => (true, false),
            TriggerRule::AllSucceeded => (all_ended, upstreams.failed + upstreams.skipped > 0),
            TriggerRule::AllDone => (all_ended, false),
            TriggerRule::OneFailed => (upstreams.failed > 0, all_ended && upstreams.failed == 0),
            TriggerRule::OneSucceeded => (upstreams.succeeded > 0, all_ended && upstreams.succeeded == 0),
            TriggerRule::NoneFailed => (all_ended, upstreams.failed > 0),
        };
        match (met, out_of_reach) {
            (_, true) => Verdict::OutOfReach,
            (true, false) => Verdict::Met,
            (false, false) => Verdict::Open,
        }
    }
}
