//! The next instant of an expression in a time zone.
//!
//! Almost every answer takes two zone look-ups: one to learn what the clock on the wall says at `after`, one to learn that the next
//! match on that clock is an ordinary time, neither missing nor repeated. Where it is not, or a policy makes the neighbourhood matter,
//! the search walks *stretches*: spans of real time under one offset, on which wall time and real time differ by a constant.
//!
//! ```text
//!   wall clock        gap: skipped               overlap: passed twice
//!                        ______                     __
//!                   ____/                      ____/  \____
//!   real time   ...-----|--- stretch ------------------|-----...
//! ```
//!
//! Two facts about the zone database are relied on, and a test reads all of it to hold them: no clock is moved by more than
//! [`REACH`] seconds, and no clock is moved twice within that time. So whatever happens at an instant, only the nearest move before
//! and after it can matter.

use super::expression::Expression;
use super::policy::{GapPolicy, OverlapPolicy};
use crate::time::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// More than any move of a clock, in seconds: moves across the date line are a day and a little.
pub(super) const REACH: i64 = 26 * 3_600;
/// A forward jump longer than this, in seconds, corrects the zone: what it leaves out is not caught up.
pub(super) const GAP_CAUGHT_UP_MAX: i64 = 3 * 3_600;

/// The first and last second that jiff can name, and so the bounds of every search.
const SECOND_MIN: i64 = Timestamp::MIN.0 / 1_000;
pub(super) const SECOND_MAX: i64 = Timestamp::MAX.0 / 1_000;

/// A cron expression in a time zone, with the policies for clock changes.
///
/// Asking is pure: nothing is remembered between calls, and every answer is the same for every `after` between one fire time and the
/// next. Fire times are whole seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub(super) expression: Expression,
    pub(super) zone: TimeZone,
    pub(super) gap: GapPolicy,
    pub(super) overlap: OverlapPolicy,
}

impl Schedule {
    /// Puts an expression into a zone. The policies apply to fixed-time expressions only, see [the rules](super).
    pub fn new(expression: Expression, zone: TimeZone, gap: GapPolicy, overlap: OverlapPolicy) -> Schedule {
        Schedule { expression, zone, gap, overlap }
    }

    /// The expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// The zone.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// What becomes of fixed wall times that do not exist.
    pub fn gap(&self) -> GapPolicy {
        self.gap
    }

    /// In which pass fixed wall times fire that come twice.
    pub fn overlap(&self) -> OverlapPolicy {
        self.overlap
    }

    /// The first fire time strictly after `after`; `None` where there is none within the search limit.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_second(after.0.div_euclid(1_000)).map(|second| Timestamp(second * 1_000))
    }

    /// As [`Schedule::next_after`], in seconds.
    pub(super) fn next_second(&self, after: i64) -> Option<i64> {
        let mut after = after.max(SECOND_MIN);
        while after < SECOND_MAX {
            let offset = self.offset_at(after);
            let matched = self.expression.next_wall_second(after + offset + 1);
            if let Some(second) = matched.and_then(|wall| self.undisturbed(after, offset, wall)).filter(|&second| second > after) {
                return (second <= SECOND_MAX).then_some(second);
            }
            let stretch = self.stretch_at(after + 1);
            if let Some(second) = self.first_in(&stretch, after + 1) {
                return (second <= SECOND_MAX).then_some(second);
            }
            // Nothing is left before the clock is moved. Wall times from the earlier of its two hands on may still come (again); where
            // the first match lies far beyond, go there instead of stretch by stretch.
            let wall = self.expression.next_wall_second(stretch.ends_at + stretch.offset.min(stretch.offset_after))?;
            after = (stretch.ends_at - 1).max(wall - 2 * REACH);
        }
        None
    }

    /// The instant of the next match `wall`, where no move of the clock can have a say in it. `offset` holds at `after`.
    ///
    /// It lies after `after` in every zone of the database; the caller still checks, should a zone from elsewhere break the two facts.
    fn undisturbed(&self, after: i64, offset: i64, wall: i64) -> Option<i64> {
        let second = wall - offset;
        let calm_at = |second: i64| self.offset_at(second) == offset;
        if self.expression.real_time {
            // Real time needs no more than that the clock is not moved on the way. Within reach one look at the end tells; farther
            // away the clock must not be moved back soon, and the match must be an ordinary time.
            if second - after <= REACH {
                return calm_at(second).then_some(second);
            }
            return if calm_at(after + REACH) { self.ordinary(wall) } else { None };
        }
        if self.gap == GapPolicy::ShiftForward || self.overlap != OverlapPolicy::First {
            // Matches that lie behind on the wall may still be ahead: shifted out of a gap, or in their second pass.
            return if calm_at(after - REACH) && calm_at(after + REACH) { self.ordinary(wall) } else { None };
        }
        // What lies behind on the wall is done with, so the next match decides alone.
        self.ordinary(wall)
    }

    /// The instant of a wall time that exists exactly once.
    fn ordinary(&self, wall: i64) -> Option<i64> {
        match self.zone.to_ambiguous_timestamp(civil(wall)?).offset() {
            AmbiguousOffset::Unambiguous { offset } => Some(wall - i64::from(offset.seconds())),
            AmbiguousOffset::Gap { .. } | AmbiguousOffset::Fold { .. } => None,
        }
    }

    /// The first fire time of a stretch at or after `from`, which lies in it.
    fn first_in(&self, stretch: &Stretch, from: i64) -> Option<i64> {
        let (wall_from, wall_until) = self.wall_times(stretch, from, stretch.ends_at);
        let on_wall = self.expression.next_wall_second(wall_from).filter(|&wall| wall < wall_until).map(|wall| wall - stretch.offset);
        let caught_up = self.caught_up(stretch, from);
        [on_wall, caught_up].into_iter().flatten().min()
    }

    /// The wall times (first, end) whose matches fire in a part of a stretch: all of them, but for the passes that the overlap policy
    /// leaves out.
    pub(super) fn wall_times(&self, stretch: &Stretch, from: i64, until: i64) -> (i64, i64) {
        let (mut wall_from, mut wall_until) = (from + stretch.offset, until + stretch.offset);
        if !self.expression.real_time {
            match self.overlap {
                OverlapPolicy::First => wall_from = wall_from.max(stretch.starts_at + stretch.offset_before),
                OverlapPolicy::Last => wall_until = wall_until.min(stretch.ends_at + stretch.offset_after),
                OverlapPolicy::Both => {}
            }
        }
        (wall_from, wall_until)
    }

    /// The wall times (first, end) that the jump at the start of a stretch left out and that are to be caught up.
    pub(super) fn missing_wall_times(&self, stretch: &Stretch) -> Option<(i64, i64)> {
        let jump = stretch.offset - stretch.offset_before;
        let caught_up = (1..=GAP_CAUGHT_UP_MAX).contains(&jump) && !self.expression.real_time && self.gap != GapPolicy::Skip;
        caught_up.then(|| (stretch.starts_at + stretch.offset_before, stretch.starts_at + stretch.offset))
    }

    /// The first instant at or after `from` at which a missing wall time is caught up.
    fn caught_up(&self, stretch: &Stretch, from: i64) -> Option<i64> {
        let (missing_from, missing_until) = self.missing_wall_times(stretch)?;
        let missed = |from: i64| self.expression.next_wall_second(from).filter(|&wall| wall < missing_until);
        match self.gap {
            GapPolicy::Skip => None,
            GapPolicy::AfterGap if from > stretch.starts_at => None,
            GapPolicy::AfterGap => missed(missing_from).map(|_| stretch.starts_at),
            GapPolicy::ShiftForward => missed(from + stretch.offset_before).map(|wall| wall - stretch.offset_before),
        }
    }

    /// The zone's offset from UTC at an instant, in seconds east.
    pub(super) fn offset_at(&self, second: i64) -> i64 {
        self.zone.to_offset(instant(second)).seconds().into()
    }

    /// The stretch that an instant lies in, with the move of the clock before it (if near) and the one after it.
    pub(super) fn stretch_at(&self, second: i64) -> Stretch {
        let looked_back_to = second - REACH;
        let offset = self.offset_at(looked_back_to);
        let (starts_at, ends_at) = (looked_back_to, SECOND_MAX + 1);
        let mut stretch = Stretch { starts_at, ends_at, offset, offset_before: offset, offset_after: offset };
        // Looking forward from before the instant, because jiff 1.0.2's `preceding` passes over the last explicit transition of zones
        // whose rule also names an earlier one (America/Ciudad_Juarez in 2022).
        for transition in self.zone.following(instant(looked_back_to)) {
            let (at, offset) = (transition.timestamp().as_second(), i64::from(transition.offset().seconds()));
            if offset == stretch.offset {
                continue; // The database also records changes of name; those move no clock.
            }
            if at > second {
                (stretch.ends_at, stretch.offset_after) = (at, offset);
                break;
            }
            stretch = Stretch { starts_at: at, ends_at, offset, offset_before: stretch.offset, offset_after: offset };
        }
        stretch
    }
}

/// A span of real time under one offset. Instants and offsets in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// The move of the clock that begins it, where that is within [`REACH`]; otherwise some instant of it.
    pub(super) starts_at: i64,
    /// The move of the clock that ends it.
    pub(super) ends_at: i64,
    pub(super) offset: i64,
    /// The offset of the stretch before; the same offset where that does not matter.
    pub(super) offset_before: i64,
    /// The offset of the stretch after; the same offset where there is none.
    pub(super) offset_after: i64,
}

/// An instant as jiff has it; those beyond jiff's bounds are the nearest within.
pub(super) fn instant(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second.clamp(SECOND_MIN, SECOND_MAX)).expect("the bounds are jiff's own")
}

/// A wall second as a civil time.
pub(super) fn civil(wall: i64) -> Option<jiff::civil::DateTime> {
    jiff::Timestamp::from_second(wall).ok().map(|timestamp| Offset::UTC.to_datetime(timestamp))
}
