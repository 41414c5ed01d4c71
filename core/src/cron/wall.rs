//! The search over a wall clock that is never moved.
//!
//! A *wall second* counts seconds from 1970-01-01T00:00:00 on that clock: with an offset it is an instant, without one just a civil time.
//! Searching is a handful of bit operations: the next hour in a set is the lowest bit of what is left of the set.

use super::calendar::{DAY_SECS, date_of, days_in_month, first_of_month};
use super::expression::{Expression, YEAR_MAX};
use crate::limits::CRON_SEARCH_YEARS;

/// The last year with dates at all.
const LAST_YEAR: i32 = 9_999;

impl Expression {
    /// The first matching wall second at or after `from`; `None` where there is none within the search limit.
    pub(super) fn next_wall_second(&self, from: i64) -> Option<i64> {
        let today = from.div_euclid(DAY_SECS);
        let mut day = self.next_date(today)?;
        if day == today {
            if let Some(time) = self.next_time(from.rem_euclid(DAY_SECS) as u32) {
                return Some(day * DAY_SECS + i64::from(time));
            }
            day = self.next_date(today + 1)?;
        }
        Some(day * DAY_SECS + i64::from(self.first_time()))
    }

    /// Whether a wall second matches.
    pub(super) fn matches_wall_second(&self, second: i64) -> bool {
        self.next_wall_second(second) == Some(second)
    }

    /// How many wall seconds match from `from` (inclusive) to `until` (exclusive).
    pub(super) fn count_wall_seconds(&self, from: i64, until: i64) -> u64 {
        if from >= until {
            return 0;
        }
        let (first_day, last_day) = (from.div_euclid(DAY_SECS), until.div_euclid(DAY_SECS));
        let before = |second: i64| self.count_times_before(second.rem_euclid(DAY_SECS) as u32);
        let on = |day: i64| u64::from(self.count_dates(day, day + 1) == 1);
        let whole_days = self.count_dates(first_day, last_day) * self.times_a_day();
        whole_days + on(last_day) * before(until) - on(first_day) * before(from)
    }

    /// The first matching day number at or after `day`.
    fn next_date(&self, day: i64) -> Option<i64> {
        if self.every_date {
            return Some(day);
        }
        let (year, month, day_of_month) = date_of(day);
        if year > LAST_YEAR {
            return None;
        }
        if self.allows_year(year) {
            let this_month = if self.months >> month & 1 == 1 {
                let first = day - i64::from(day_of_month) + 1;
                let rest = self.days_of(year, month, first) >> day_of_month;
                (rest != 0).then(|| day + i64::from(rest.trailing_zeros()))
            } else {
                None
            };
            let found = this_month.or_else(|| self.first_date_in(year, month + 1));
            if found.is_some() {
                return found;
            }
        }
        match &self.years {
            Some(years) => years.iter().filter(|&listed| listed > year).find_map(|listed| self.first_date_in(listed, 1)),
            None => (year + 1..=LAST_YEAR.min(year + i32::from(CRON_SEARCH_YEARS))).find_map(|year| self.first_date_in(year, 1)),
        }
    }

    /// The first matching day number of a year, from a month (1 to 13) on.
    fn first_date_in(&self, year: i32, from_month: u32) -> Option<i64> {
        let mut months = self.months & (!0 << from_month);
        while months != 0 {
            let month = months.trailing_zeros();
            let first = first_of_month(year, month);
            let days = self.days_of(year, month, first);
            if days != 0 {
                return Some(first + i64::from(days.trailing_zeros()) - 1);
            }
            months &= months - 1;
        }
        None
    }

    /// The first matching second of a day at or after `from` (0 to 86 399).
    fn next_time(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1 {
                let seconds = self.seconds >> second;
                if seconds != 0 {
                    return Some(from + seconds.trailing_zeros());
                }
            }
            let minutes = self.minutes & (!1 << minute);
            if minutes != 0 {
                return Some(hour * 3_600 + minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros());
            }
        }
        let hours = self.hours & (!1 << hour);
        (hours != 0).then(|| hours.trailing_zeros() * 3_600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros())
    }

    /// The first matching second of a day.
    fn first_time(&self) -> u32 {
        self.hours.trailing_zeros() * 3_600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros()
    }

    /// How many seconds of a matching day match.
    fn times_a_day(&self) -> u64 {
        u64::from(self.hours.count_ones() * self.minutes.count_ones() * self.seconds.count_ones())
    }

    /// How many seconds of a matching day match before `until` (0 to 86 399).
    fn count_times_before(&self, until: u32) -> u64 {
        let (hour, minute, second) = (until / 3_600, until / 60 % 60, until % 60);
        let below = |set: u64, limit: u32| (set & !(!0 << limit)).count_ones();
        let has = |set: u64, value: u32| (set >> value & 1) as u32;
        let in_minute = has(self.minutes, minute) * below(self.seconds, second);
        let in_hour = has(self.hours.into(), hour) * (below(self.minutes, minute) * self.seconds.count_ones() + in_minute);
        let in_day = below(self.hours.into(), hour) * self.minutes.count_ones() * self.seconds.count_ones() + in_hour;
        u64::from(in_day)
    }

    /// How many day numbers match from `from` (inclusive) to `until` (exclusive).
    fn count_dates(&self, from: i64, until: i64) -> u64 {
        if self.every_date {
            return (until - from) as u64;
        }
        let mut count = 0;
        let (mut year, mut month, day_of_month) = date_of(from);
        let mut first = from - i64::from(day_of_month) + 1;
        while first < until {
            if self.months >> month & 1 == 1 && self.allows_year(year) {
                let mut days = self.days_of(year, month, first);
                if first < from {
                    days &= !0 << day_of_month;
                }
                if until - first < 31 {
                    days &= !(!0 << (until - first + 1));
                }
                count += u64::from(days.count_ones());
            }
            first += i64::from(days_in_month(year, month));
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            if self.years.is_some() && year > i32::from(YEAR_MAX) {
                break;
            }
        }
        count
    }
}
