//! Many fire times at once: how many there are, and the last of them, without visiting each.

use super::policy::GapPolicy;
use super::schedule::{SECOND_MAX, Schedule, Stretch};
use crate::time::Timestamp;

impl Schedule {
    /// The exact number of fire times after `after` (exclusive) until `until` (inclusive).
    ///
    /// Stretches under one offset are counted by arithmetic, so ten years of a one-second schedule cost microseconds.
    pub fn count_in(&self, after: Timestamp, until: Timestamp) -> u64 {
        let from = after.0.div_euclid(1_000).max(Timestamp::MIN.0 / 1_000) + 1;
        self.count_seconds(from, until.0.div_euclid(1_000).min(SECOND_MAX) + 1)
    }

    /// How many of the seconds in `from..end` are fire times.
    pub(super) fn count_seconds(&self, mut from: i64, end: i64) -> u64 {
        let mut count = 0;
        while from < end {
            let stretch = self.stretch_at(from);
            let part_end = stretch.ends_at.min(end);
            let (wall_from, wall_until) = self.wall_times(&stretch, from, part_end);
            count += self.expression.count_wall_seconds(wall_from, wall_until) + self.count_caught_up(&stretch, from, part_end);
            from = part_end;
        }
        count
    }

    /// How many instants in `from..until` fire for a missing wall time alone, and not for their own wall time as well.
    fn count_caught_up(&self, stretch: &Stretch, from: i64, until: i64) -> u64 {
        let Some((missing_from, missing_until)) = self.missing_wall_times(stretch) else { return 0 };
        let expression = &self.expression;
        if self.gap == GapPolicy::AfterGap {
            let missed_any = expression.count_wall_seconds(missing_from, missing_until) > 0;
            let on_its_own = expression.matches_wall_second(stretch.starts_at + stretch.offset);
            return u64::from(from <= stretch.starts_at && missed_any && !on_its_own);
        }
        // A gap of at most three hours: short enough to visit each.
        let jump = stretch.offset - stretch.offset_before;
        let end = missing_until.min(until + stretch.offset_before);
        let first = missing_from.max(from + stretch.offset_before);
        std::iter::successors(expression.next_wall_second(first), |wall| expression.next_wall_second(wall + 1))
            .take_while(|&wall| wall < end)
            .filter(|&wall| !expression.matches_wall_second(wall + jump))
            .count() as u64
    }

    /// The last fire time after `after` (exclusive) until `until` (inclusive).
    pub fn latest_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let after = after.0.div_euclid(1_000).max(Timestamp::MIN.0 / 1_000);
        let until = until.0.div_euclid(1_000).min(SECOND_MAX);
        let next_in = |from: i64, until: i64| self.next_second(from).filter(|&second| second <= until);
        latest_second(after, until, next_in).map(|second| Timestamp(second * 1_000))
    }
}

/// The last second after `after` (exclusive) until `until` (inclusive) of those that `next_in(after, until)` gives the first of.
///
/// Looks back from `until` in spans that grow eightfold until one holds a fire time, then halves that span.
pub(super) fn latest_second(after: i64, until: i64, next_in: impl Fn(i64, i64) -> Option<i64>) -> Option<i64> {
    let mut span = 1;
    // There is none after `empty_from`.
    let mut empty_from = until;
    let mut latest = loop {
        let from = until.saturating_sub(span).max(after);
        if let Some(second) = next_in(from, empty_from) {
            break second;
        }
        if from <= after {
            return None;
        }
        empty_from = from;
        span *= 8;
    };
    while latest < empty_from {
        let middle = latest + (empty_from - latest) / 2;
        match next_in(middle, empty_from) {
            Some(later) => latest = later,
            None => empty_from = middle,
        }
    }
    Some(latest)
}
