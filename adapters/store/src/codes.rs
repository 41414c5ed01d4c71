//! The numbers that stand for enum values in the database. They are written down once and never change their meaning; a new value gets
//! a new number.

use punctual_core::backfill::BackfillState;
use punctual_core::definition::ChainOn;
use punctual_core::inbox::NodeMark;
use punctual_core::instance::{Cause, MapPhase, Origin, State};
use punctual_core::occurrence::Outcome;
use punctual_driver::accounts::Role;
use punctual_driver::ports::AuditAction;

/// A closed set of values with a number each.
pub(crate) trait Coded: Sized {
    /// Its number.
    fn code(self) -> u8;
    /// The value of this number.
    fn from_code(code: u8) -> Option<Self>;
}

macro_rules! coded {
    ($name:ident { $($value:ident = $code:literal),* $(,)? }) => {
        impl Coded for $name {
            fn code(self) -> u8 {
                match self {
                    $($name::$value => $code,)*
                }
            }

            fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some($name::$value),)*
                    _ => None,
                }
            }
        }
    };
}

// States that are not terminal come first, below LIVE_STATES_END; then terminal ones other than success, below TROUBLED_STATES_END.
// Partial indexes and their queries rely on the order; SQL has both bounds as literals.
coded!(State {
    Waiting = 0,
    Created = 1,
    Dispatched = 2,
    Running = 3,
    Retrying = 4,
    DeadLettered = 5,
    Failed = 6,
    TimedOut = 7,
    Cancelled = 8,
    Skipped = 9,
    Succeeded = 10,
});

coded!(Cause {
    Fired = 0,
    CaughtUp = 1,
    Triggered = 2,
    LimitReached = 3,
    SlotFree = 4,
    DelayElapsed = 5,
    Assigned = 6,
    Started = 7,
    Returned = 8,
    Finished = 9,
    TimedOut = 10,
    WorkerLost = 11,
    BackoffElapsed = 12,
    AttemptsExhausted = 13,
    Quarantined = 14,
    OutcomeUnknown = 15,
    Replaced = 16,
    CancelRequested = 17,
    TaskRemoved = 18,
    TaskDisabled = 19,
    Chained = 20,
    Divided = 21,
    PartsEnded = 22,
    ParentEnded = 23,
    NotRetried = 24,
    RetryBudgetExhausted = 25,
    RerunRequested = 26,
    WorkerGone = 43,
    TooManyParts = 44,
    ResultsTooLarge = 45,
    Rescheduled = 33,
    SkipRequested = 34,
    KillRequested = 35,
    RuleMet = 27,
    NodeSkipped = 28,
    Marked = 29,
    CarriedOver = 30,
    Backfilled = 39,
    Called = 46,
    Calls = 47,
    CallEnded = 48,
});

coded!(MapPhase { List = 0, Items = 1, Reduce = 2 });

coded!(Origin { Schedule = 0, CatchUp = 1, Manual = 2, Chain = 3, Rerun = 4, Backfill = 6, Call = 7 });

// SQL has that of those that run as a literal.
coded!(BackfillState { Running = 0, Done = 1, Cancelled = 2 });

coded!(NodeMark { Skipped = 0, Succeeded = 1, Failed = 2 });

coded!(ChainOn { Success = 0, Failure = 1, Any = 2 });

coded!(Outcome {
    Coalesced = 0,
    MisfireSkipped = 1,
    DeadlinePassed = 2,
    CatchUpLimit = 3,
    LimitReached = 4,
    QueueFull = 5,
    Disabled = 6,
    Withdrawn = 7,
    BlackedOut = 8,
    ExcludedDay = 9,
    ChainTooLong = 10,
    Paused = 11,
});

coded!(AuditAction {
    Create = 0,
    Change = 1,
    Remove = 2,
    Trigger = 3,
    Cancel = 4,
    Kill = 5,
    Skip = 6,
    Rerun = 7,
    Pause = 8,
    Resume = 9,
    Discard = 10,
    CancelTrigger = 11,
    Reschedule = 12,
    MarkNode = 13,
    Backfill = 14,
    CancelBackfill = 15,
    Drain = 16,
    Undrain = 17,
    AddUser = 40,
    ChangeUser = 41,
    SetPassword = 42,
    RemoveUser = 43,
    MakeToken = 44,
    RevokeToken = 45,
    SignIn = 46,
    SignOut = 47,
});

coded!(Role { Viewer = 0, Operator = 1, Editor = 2, Admin = 3 });

/// The first state code that is terminal.
pub(crate) const LIVE_STATES_END: u8 = 5;
/// The first state code that is success.
pub(crate) const TROUBLED_STATES_END: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_found_by_its_number() {
        for state in State::ALL {
            assert_eq!(State::from_code(state.code()), Some(state));
            assert_eq!(state.code() < LIVE_STATES_END, !state.is_terminal(), "{state:?}");
            assert_eq!(state.code() >= TROUBLED_STATES_END, state == State::Succeeded, "{state:?}");
        }
        for cause in Cause::ALL {
            assert_eq!(Cause::from_code(cause.code()), Some(cause));
        }
        for origin in Origin::ALL {
            assert_eq!(Origin::from_code(origin.code()), Some(origin));
        }
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_code(outcome.code()), Some(outcome));
        }
        for action in AuditAction::ALL {
            assert_eq!(AuditAction::from_code(action.code()), Some(action));
        }
        for role in Role::ALL {
            assert_eq!(Role::from_code(role.code()), Some(role));
        }
        for mark in NodeMark::ALL {
            assert_eq!(NodeMark::from_code(mark.code()), Some(mark));
        }
        assert_eq!(State::from_code(11), None);
        for on in ChainOn::ALL {
            assert_eq!(ChainOn::from_code(on.code()), Some(on));
        }
        assert_eq!(Cause::from_code(u8::MAX), None);
    }
}
