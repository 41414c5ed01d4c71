//! What became of the fire times that were not simply fired.
//!
//! A fire time that was fired is on record as its instance. All others are on record here, a run of neighbours with the same fate in
//! one value, so that ten years of a one-second task take one row.

use crate::ids::{InstanceId, TaskId, Version};
use crate::time::Timestamp;

/// The fate of one fire time, or of several in a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Occurrence {
    /// The task.
    pub task: TaskId,
    /// The version whose trigger gave the fire times.
    pub version: Version,
    /// The first fire time.
    pub first: Timestamp,
    /// The last fire time; equal to `first` where there is one.
    pub last: Timestamp,
    /// How many with this fate there are from `first` to `last`. Those that were left out or passed by at once are folded by their fate: what
    /// lies between them with another fate has a value of its own.
    pub count: u64,
    /// What became of them.
    pub outcome: Outcome,
    /// The instance that they were coalesced into.
    pub instance: Option<InstanceId>,
    /// When that was decided.
    pub at: Timestamp,
}

/// What became of a fire time that was not fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Missed, and made up for by one later instance (`fire_once`).
    Coalesced,
    /// Missed, and skipped by the task's misfire policy.
    MisfireSkipped,
    /// Missed by more than the task's deadline.
    DeadlinePassed,
    /// Missed, and beyond what `fire_all` makes up for.
    CatchUpLimit,
    /// Discarded because the task was at its concurrency limit.
    LimitReached,
    /// Discarded because the task's queue was full.
    QueueFull,
    /// Passed while the task was disabled.
    Disabled,
    /// It had come and was not fired yet when the task was edited or removed, and was given up with that.
    Withdrawn,
    /// Not fired for another task's end: too many chained tasks lie behind it.
    ChainTooLong,
    /// Left out by the task: it lies in a blackout.
    BlackedOut,
    /// Left out by the task: its calendar excludes the day.
    ExcludedDay,
    /// Passed while the task was paused.
    Paused,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 12] = [
        Outcome::Coalesced,
        Outcome::MisfireSkipped,
        Outcome::DeadlinePassed,
        Outcome::CatchUpLimit,
        Outcome::LimitReached,
        Outcome::QueueFull,
        Outcome::Disabled,
        Outcome::Withdrawn,
        Outcome::ChainTooLong,
        Outcome::BlackedOut,
        Outcome::ExcludedDay,
        Outcome::Paused,
    ];

    /// Its name, the same in API, CLI, console and database.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Coalesced => "coalesced",
            Outcome::MisfireSkipped => "misfire_skipped",
            Outcome::DeadlinePassed => "deadline_passed",
            Outcome::CatchUpLimit => "catch_up_limit",
            Outcome::LimitReached => "limit_reached",
            Outcome::QueueFull => "queue_full",
            Outcome::Disabled => "disabled",
            Outcome::Withdrawn => "withdrawn",
            Outcome::ChainTooLong => "chain_too_long",
            Outcome::BlackedOut => "blacked_out",
            Outcome::ExcludedDay => "excluded_day",
            Outcome::Paused => "paused",
        }
    }
}
