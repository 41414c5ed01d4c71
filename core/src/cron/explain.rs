//! Fire times for people: local time, offset, and what the clock did.

use super::calendar::DAY_SECS;
use super::policy::GapPolicy;
use super::schedule::{Schedule, instant};
use crate::time::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset};
use std::fmt;

/// What is special about a fire time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Nothing.
    Normal,
    /// It makes up for wall times that a forward jump left out, at the first instant after it.
    AfterGap,
    /// It was shifted out of a gap by the length of the gap.
    ShiftedFromGap,
    /// The wall time comes twice; this is the first time.
    FirstPass,
    /// The wall time comes twice; this is the second time.
    SecondPass,
    /// An ordinary time on a day on which the clock is moved.
    DayOfTransition,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mark::Normal => "",
            Mark::AfterGap => "after the gap",
            Mark::ShiftedFromGap => "shifted from the gap",
            Mark::FirstPass => "first pass",
            Mark::SecondPass => "second pass",
            Mark::DayOfTransition => "clock changes that day",
        })
    }
}

/// One fire time, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The instant.
    pub at: Timestamp,
    /// What the clock on the wall says then.
    pub local: DateTime,
    /// The zone's offset from UTC then.
    pub offset: Offset,
    /// What is special about it.
    pub mark: Mark,
}

impl Schedule {
    /// The next `count` fire times after `after` (exclusive), or fewer where the schedule ends.
    pub fn explain(&self, after: Timestamp, count: usize) -> Vec<Occurrence> {
        let next = |at: &Timestamp| self.next_after(*at);
        std::iter::successors(self.next_after(after), next).take(count).map(|at| self.occurrence(at)).collect()
    }

    /// Explains one of the schedule's fire times.
    pub(super) fn occurrence(&self, at: Timestamp) -> Occurrence {
        let second = at.0.div_euclid(1_000);
        let offset = self.zone.to_offset(instant(second));
        let local = offset.to_datetime(instant(second));
        Occurrence { at, local, offset, mark: self.mark(second, local, offset) }
    }

    fn mark(&self, second: i64, local: DateTime, offset: Offset) -> Mark {
        let stretch = self.stretch_at(second);
        if let Some((missing_from, missing_until)) = self.missing_wall_times(&stretch) {
            let missed_any = self.expression.count_wall_seconds(missing_from, missing_until) > 0;
            let on_its_own = self.expression.matches_wall_second(second + stretch.offset);
            match self.gap {
                GapPolicy::AfterGap if second == stretch.starts_at && missed_any => return Mark::AfterGap,
                GapPolicy::ShiftForward if !on_its_own => return Mark::ShiftedFromGap,
                _ => {}
            }
        }
        if let AmbiguousOffset::Fold { before, .. } = self.zone.to_ambiguous_timestamp(local).offset() {
            return if offset == before { Mark::FirstPass } else { Mark::SecondPass };
        }
        // Midnight by the offset in force: a move of the clock between this and the next midnight lies on that date.
        let midnight = second - (second + stretch.offset).rem_euclid(DAY_SECS);
        let moved_before = stretch.offset_before != stretch.offset && stretch.starts_at >= midnight;
        let moved_after = stretch.offset_after != stretch.offset && stretch.ends_at < midnight + DAY_SECS;
        if moved_before || moved_after { Mark::DayOfTransition } else { Mark::Normal }
    }
}
