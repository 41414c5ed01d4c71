//! The bank of planted bugs: guards that can be switched off, and what has to notice.

use punctual_core::guard::Guard;

use crate::model::StoreGuard;

/// A guard that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// One of the core's.
    Core(Guard),
    /// One of the store's.
    Store(StoreGuard),
}

/// The places of the world that a sweep must have come through, besides the core's own.
pub const PROBES: [&str; 9] = [
    "commit.unknown_applied",
    "commit.unknown_not_applied",
    "database.failed_over",
    "database.lost_its_tail",
    "frame.repeated",
    "frame.missed",
    "wake_up.lost",
    "wake_ups.flushed_with_work_waiting",
    "everything.healed",
];
