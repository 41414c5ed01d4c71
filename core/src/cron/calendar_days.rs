//! What takes fire times out or puts them in: a calendar of days, and blackout windows.
//!
//! Both are kept sorted and merged, and cut time into *pieces* in which all fire times have the same fate. Questions about many fire times
//! go from piece to piece, never from fire time to fire time.

use std::fmt;

use jiff::civil::Date;

use super::calendar::{DAY_SECS, first_of_month};
use super::schedule::{Schedule, Stretch};

/// Seconds in a week.
const WEEK_SECS: i64 = 7 * DAY_SECS;
/// From the beginning of the week, a Sunday, to the weekday of 1970-01-01, a Thursday.
const EPOCH_IN_WEEK: i64 = 4 * DAY_SECS;

/// Why a fire time is not fired although its schedule names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// The calendar excludes its day. That goes before a blackout.
    ExcludedDay,
    /// It lies in a blackout.
    BlackedOut,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LeftOut::ExcludedDay => "excluded day",
            LeftOut::BlackedOut => "blacked out",
        })
    }
}

/// Days of a zone on which nothing fires, and days on which a schedule fires at its times of day whatever its day fields say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// Sorted and disjoint.
    ranges: Vec<DayRange>,
}

/// Days in a row, by their day numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DayRange {
    first: i64,
    last: i64,
    is_included: bool,
}

impl Calendar {
    /// A calendar of ranges of days, from the first to the last of each. Ranges that end before they begin are empty.
    ///
    /// # Errors
    ///
    /// The first day that is both excluded and included.
    pub fn new(exclude: impl IntoIterator<Item = (Date, Date)>, include: impl IntoIterator<Item = (Date, Date)>) -> Result<Calendar, Date> {
        let excluded = merged(exclude.into_iter().map(day_numbers).collect());
        let included = merged(include.into_iter().map(day_numbers).collect());
        let both = excluded.iter().find_map(|(from, end)| {
            let other = included.iter().find(|(other_from, other_end)| other_from < end && from < other_end)?;
            Some(*from.max(&other.0))
        });
        if let Some(day) = both {
            let epoch = jiff::civil::date(1970, 1, 1);
            return Err(epoch.saturating_add(jiff::Span::new().days(day)));
        }
        let range = |is_included| move |(from, end): (i64, i64)| DayRange { first: from, last: end - 1, is_included };
        let mut ranges: Vec<_> = excluded.into_iter().map(range(false)).chain(included.into_iter().map(range(true))).collect();
        ranges.sort_unstable_by_key(|range| range.first);
        Ok(Calendar { ranges })
    }

    /// Whether it says nothing about any day.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The day number of the last day that is included, where any is.
    pub(super) fn last_included(&self) -> Option<i64> {
        self.ranges.iter().rev().find(|range| range.is_included).map(|range| range.last)
    }

    /// What it says of a day, `None` for nothing, and the first day of which it may say something else.
    fn of_day(&self, day: i64) -> (Option<bool>, i64) {
        let index = self.ranges.partition_point(|range| range.last < day);
        match self.ranges.get(index) {
            Some(range) if range.first <= day => (Some(range.is_included), range.last + 1),
            Some(range) => (None, range.first),
            None => (None, i64::MAX / DAY_SECS),
        }
    }
}

/// The day numbers of a range, the end exclusive.
fn day_numbers((first, last): (Date, Date)) -> (i64, i64) {
    let number = |date: Date| first_of_month(date.year().into(), date.month().unsigned_abs().into()) + i64::from(date.day()) - 1;
    (number(first), number(last) + 1)
}

/// A window that comes each week on some days, by the clock on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DailyBlackout {
    /// Where it begins, in seconds from midnight, below 86 400.
    pub from: u32,
    /// Where it ends, exclusive, in seconds from midnight, at most 86 400. Not after `from`: it passes midnight.
    pub to: u32,
    /// The weekdays on which it begins, as bits, from Sunday (bit 0).
    pub weekdays: u8,
}

/// Windows in which nothing fires, merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Blackouts {
    /// Seconds of the week from Sunday midnight on the wall clock, ends exclusive.
    week: Vec<(i64, i64)>,
    /// Instants in seconds, ends exclusive.
    spans: Vec<(i64, i64)>,
}

impl Blackouts {
    /// Windows of the week, and spans of instants in seconds since 1970 with exclusive ends.
    pub fn new(daily: impl IntoIterator<Item = DailyBlackout>, spans: impl IntoIterator<Item = (i64, i64)>) -> Blackouts {
        let mut week = Vec::new();
        for window in daily {
            for weekday in (0..7).filter(|weekday| window.weekdays >> weekday & 1 == 1) {
                let midnight = i64::from(weekday) * DAY_SECS;
                let next_day = if window.to > window.from { 0 } else { DAY_SECS };
                let (from, to) = (midnight + i64::from(window.from), midnight + next_day + i64::from(window.to));
                week.push((from, to.min(WEEK_SECS)));
                week.push((0, to - WEEK_SECS));
            }
        }
        Blackouts { week: merged(week), spans: merged(spans.into_iter().collect()) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.week.is_empty() && self.spans.is_empty()
    }

    /// Whether they leave no second of any week.
    pub fn cover_everything(&self) -> bool {
        self.week == [(0, WEEK_SECS)]
    }

    /// Whether a wall second lies in one, and the wall second at which that may change.
    fn of_wall_second(&self, wall: i64) -> (bool, i64) {
        if self.week.is_empty() {
            return (false, i64::MAX);
        }
        let in_week = (wall + EPOCH_IN_WEEK).rem_euclid(WEEK_SECS);
        let (is_inside, boundary) = of_point(&self.week, in_week);
        (is_inside, wall - in_week + boundary.min(WEEK_SECS))
    }
}

/// Whether a point lies in one of these merged ranges, and where that changes.
fn of_point(ranges: &[(i64, i64)], point: i64) -> (bool, i64) {
    match ranges.get(ranges.partition_point(|(_, end)| *end <= point)) {
        Some((from, end)) if *from <= point => (true, *end),
        Some((from, _)) => (false, *from),
        None => (false, i64::MAX),
    }
}

/// The same points in as few ranges as possible, sorted; empty ones are dropped.
fn merged(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.retain(|(from, end)| from < end);
    ranges.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
    for (from, end) in ranges {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((from, end)),
        }
    }
    merged
}

/// A span of time in which all fire times have one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Exclusive, in seconds; after it the fate may be another.
    pub(super) ends_at: i64,
    /// `None`: fire times fire.
    pub(super) left_out: Option<LeftOut>,
    /// The calendar includes the day.
    pub(super) is_included: bool,
}

/// The pieces of a schedule's time, looked up in any order; cheap where it goes forward.
pub(super) struct Pieces<'a> {
    schedule: &'a Schedule,
    calendar: Option<&'a Calendar>,
    blackouts: &'a Blackouts,
    stretch: Option<Stretch>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(schedule: &'a Schedule, calendar: Option<&'a Calendar>, blackouts: &'a Blackouts) -> Pieces<'a> {
        Pieces { schedule, calendar, blackouts, stretch: None }
    }

    /// The piece around a second.
    pub(super) fn at(&mut self, second: i64) -> Piece {
        let (mut ends_at, mut verdict, mut is_blacked_out) = (i64::MAX, None, false);
        if self.calendar.is_some() || !self.blackouts.week.is_empty() {
            let stretch = self.stretch_at(second);
            let wall = second + stretch.offset;
            ends_at = stretch.ends_at;
            if let Some(calendar) = self.calendar {
                let (of_day, boundary) = calendar.of_day(wall.div_euclid(DAY_SECS));
                verdict = of_day;
                ends_at = ends_at.min(boundary * DAY_SECS - stretch.offset);
            }
            if verdict == Some(false) {
                return Piece { ends_at, left_out: Some(LeftOut::ExcludedDay), is_included: false };
            }
            let (is_inside, boundary) = self.blackouts.of_wall_second(wall);
            is_blacked_out = is_inside;
            ends_at = ends_at.min(boundary.saturating_sub(stretch.offset));
        }
        let (is_inside, boundary) = of_point(&self.blackouts.spans, second);
        is_blacked_out |= is_inside;
        let left_out = is_blacked_out.then_some(LeftOut::BlackedOut);
        Piece { ends_at: ends_at.min(boundary), left_out, is_included: verdict == Some(true) }
    }

    fn stretch_at(&mut self, second: i64) -> Stretch {
        match self.stretch {
            Some(stretch) if (stretch.starts_at..stretch.ends_at).contains(&second) => stretch,
            _ => *self.stretch.insert(self.schedule.stretch_at(second)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_whatever_their_order() {
        assert_eq!(merged(vec![(5, 7), (1, 3), (3, 4), (6, 9), (2, 2)]), [(1, 4), (5, 9)]);
        assert_eq!(of_point(&[(1, 4), (5, 9)], 4), (false, 5));
        assert_eq!(of_point(&[(1, 4), (5, 9)], 8), (true, 9));
        assert_eq!(of_point(&[(1, 4), (5, 9)], 9), (false, i64::MAX));
    }

    #[test]
    fn a_window_that_passes_saturdays_midnight_goes_on_on_sunday() {
        let night = Blackouts::new([DailyBlackout { from: 79_200, to: 21_600, weekdays: 1 << 6 }], []);
        assert_eq!(night.week, [(0, 21_600), (6 * 86_400 + 79_200, WEEK_SECS)]);
    }

    #[test]
    fn halves_of_the_day_cover_everything() {
        let day = |from, to| DailyBlackout { from, to, weekdays: 0x7f };
        assert!(Blackouts::new([day(0, 43_200), day(43_200, 0)], []).cover_everything());
        assert!(!Blackouts::new([day(0, 43_200), day(43_201, 0)], []).cover_everything());
    }

    #[test]
    fn a_day_may_not_be_both() {
        let day = |day| jiff::civil::date(2027, 2, day);
        assert_eq!(Calendar::new([(day(6), day(12))], [(day(12), day(20))]), Err(day(12)));
        assert!(Calendar::new([(day(6), day(12))], [(day(13), day(20))]).is_ok());
    }
}
