//! Backfills: fire times of the past that somebody wants made up for, one instance each.
//!
//! Whoever asks says which fire times, in the order in which their instances are to be made: those of the task's trigger in a range, without
//! those that have an instance. What the task's cursor has not come to is left to the cursor, so no fire time comes from both.

use std::sync::Arc;

use crate::cron::Series;
use crate::definition::Trigger;
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId};
use crate::inbox::ordinal_of;
use crate::instance::InstanceRow;
use crate::limits;
use crate::time::{Millis, Timestamp};

/// What a backfill is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackfillPlan {
    /// The task.
    pub task: TaskId,
    /// The fire times, in the order of their instances; 1 to [`limits::BACKFILL_MAX`], each once.
    pub fire_times: Arc<[Timestamp]>,
    /// At most so many of its instances have not ended at once, 1 to [`limits::BACKFILL_CONCURRENCY_MAX`].
    pub concurrency: u32,
    /// Why, in the caller's words.
    pub reason: Option<Arc<str>>,
}

/// How a backfill stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackfillState {
    /// Instances are being made, or have not ended.
    Running,
    /// All instances have been made, and have ended.
    Done,
    /// Somebody has ended it, its task was removed, or it never began.
    Cancelled,
}

impl BackfillState {
    /// Every state.
    pub const ALL: [BackfillState; 3] = [BackfillState::Running, BackfillState::Done, BackfillState::Cancelled];

    /// Its name, the same in API, CLI and database.
    pub const fn name(self) -> &'static str {
        match self {
            BackfillState::Running => "running",
            BackfillState::Done => "done",
            BackfillState::Cancelled => "cancelled",
        }
    }
}

/// A backfill as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackfillRow {
    /// The inbox entry that asked for it.
    pub id: InboxId,
    /// Its task's partition.
    pub partition: PartitionId,
    /// When it was asked for.
    pub at: Timestamp,
    /// Who asked.
    pub by: Arc<str>,
    /// What it is to do.
    pub plan: Arc<BackfillPlan>,
    /// How it stands.
    pub state: BackfillState,
    /// Instances that were made so far: those of the first fire times of the plan.
    pub made: u32,
    /// How many of them have ended.
    pub ended: u32,
}

impl BackfillRow {
    /// Whether its owner has something to do with it: it runs, or was cancelled with instances that still do.
    pub fn is_unfinished(&self) -> bool {
        match self.state {
            BackfillState::Running => true,
            BackfillState::Done => false,
            BackfillState::Cancelled => self.ended < self.made,
        }
    }

    /// The ordinal of its instances.
    pub fn ordinal(&self) -> u64 {
        ordinal_of(self.id, 0)
    }
}

/// The backfill that made an instance of this origin.
pub(crate) fn backfill_of(row: &InstanceRow) -> InboxId {
    InboxId(row.ordinal / limits::SUBMISSIONS_MAX as u64)
}

/// A backfill in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackfillWrite {
    /// The row as it becomes.
    pub row: BackfillRow,
    /// Whether it is new; else only its state and its counts have changed.
    pub is_new: bool,
}

/// Why there are no fire times of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeProblem {
    /// The trigger gives none by itself: a delay, a fixed delay, or by hand only.
    NoTimetable,
    /// There are more than [`limits::BACKFILL_MAX`].
    TooMany,
}

/// The fire times that a trigger gives in `from..to`, the oldest first. `cursor`: one of its fire times, from which those of a fixed rate are
/// counted back.
///
/// # Errors
///
/// [`RangeProblem`].
pub fn fire_times_in(trigger: &Trigger, cursor: Option<Timestamp>, from: Timestamp, to: Timestamp) -> Result<Vec<Timestamp>, RangeProblem> {
    let before = Timestamp(from.0.saturating_sub(1));
    match trigger {
        Trigger::Cron(schedule) => collect(to, |after| schedule.next_after(after.unwrap_or(before))),
        Trigger::FixedRate { interval } => {
            let first = first_of_rate(*interval, cursor.ok_or(RangeProblem::NoTimetable)?, from);
            collect(to, |after| Some(after.map_or(first, |after| after.saturating_add(*interval))))
        }
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(_) => collect(to, |after| timetable.next_after(after.unwrap_or(before))),
            Series::FixedRate(interval) => {
                let window = timetable.window();
                let first = first_of_rate(*interval, cursor.ok_or(RangeProblem::NoTimetable)?, from.max(window.starts_at.unwrap_or(from)));
                let to = to.min(window.ends_at.unwrap_or(to));
                collect(to, |after| Some(after.map_or(first, |after| after.saturating_add(*interval))))
            }
            Series::FixedDelay(_) => Err(RangeProblem::NoTimetable),
        },
        Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => Err(RangeProblem::NoTimetable),
    }
}

/// The first instant from `from` on that is a whole number of intervals away from `cursor`.
fn first_of_rate(interval: Millis, cursor: Timestamp, from: Timestamp) -> Timestamp {
    let interval = i128::from(interval.0.max(1));
    let away = (i128::from(cursor.0) - i128::from(from.0)).rem_euclid(interval);
    from.saturating_add(Millis(u64::try_from(away).unwrap_or(0)))
}

fn collect(to: Timestamp, mut next: impl FnMut(Option<Timestamp>) -> Option<Timestamp>) -> Result<Vec<Timestamp>, RangeProblem> {
    let mut fire_times: Vec<Timestamp> = Vec::new();
    while let Some(fire_time) = next(fire_times.last().copied()).filter(|fire_time| *fire_time < to) {
        if fire_times.len() == limits::BACKFILL_MAX {
            return Err(RangeProblem::TooMany);
        }
        fire_times.push(fire_time);
    }
    Ok(fire_times)
}

/// Whether an instance is one of a backfill's.
pub(crate) fn is_of(row: &InstanceRow, id: InboxId) -> bool {
    row.origin == crate::instance::Origin::Backfill && backfill_of(row) == id
}

/// Names the instances of a backfill that have not ended.
pub(crate) type InFlight = std::collections::BTreeSet<InstanceId>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400_000;

    #[test]
    fn the_range_has_its_beginning_and_not_its_end() {
        let rate = Trigger::FixedRate { interval: Millis(1_000) };
        let of = |from, to| fire_times_in(&rate, Some(Timestamp(100_500)), Timestamp(from), Timestamp(to)).map(|found| found.len());
        assert_eq!(of(500, 3_500), Ok(3));
        assert_eq!(of(501, 3_501), Ok(3));
        assert_eq!(of(501, 1_500), Ok(0));
        assert_eq!(of(0, limits::BACKFILL_MAX as i64 * 1_000), Ok(limits::BACKFILL_MAX));
        assert_eq!(of(0, limits::BACKFILL_MAX as i64 * 1_000 + 501), Err(RangeProblem::TooMany));
    }

    #[test]
    fn what_has_no_times_of_its_own_has_no_range() {
        for trigger in [Trigger::Manual, Trigger::FixedDelay { interval: Millis(1) }, Trigger::Delay { delay: Millis(1) }] {
            assert_eq!(fire_times_in(&trigger, None, Timestamp(0), Timestamp(DAY)), Err(RangeProblem::NoTimetable), "{trigger:?}");
        }
    }

    proptest! {
        /// Whatever the range is, a rate's fire times in it are all those and only those that are whole intervals from the cursor.
        #[test]
        fn a_rate_is_counted_from_the_cursor(interval in 100..10_000_u64, cursor in 0..DAY, from in -DAY..DAY, length in 0..900_000_i64) {
            let (from, to) = (Timestamp(from), Timestamp(from + length));
            let found = fire_times_in(&Trigger::FixedRate { interval: Millis(interval) }, Some(Timestamp(cursor)), from, to).unwrap();
            let expected: Vec<_> =
                (from.0..to.0).filter(|at| (at - cursor).rem_euclid(interval as i64) == 0).map(Timestamp).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
