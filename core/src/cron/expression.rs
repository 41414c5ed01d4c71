//! A parsed cron expression: bit sets, and which days of a month they select.

use super::Dialect;
use super::calendar::{days_in_month, first_of_month, weekday_of};

/// The first year that a year field may name.
pub(super) const YEAR_MIN: u16 = 1970;
/// The last year that a year field may name.
pub(super) const YEAR_MAX: u16 = 2099;

/// Days 1 to 31, as bits.
pub(super) const ALL_DAYS: u32 = 0xffff_fffe;
/// Months 1 to 12, as bits.
pub(super) const ALL_MONTHS: u16 = 0x1ffe;
/// Weekdays 0 (Sunday) to 6, as bits.
pub(super) const ALL_WEEKDAYS: u8 = 0x7f;
/// The place of "last" among the occurrences of a weekday in a month; 1 to 5 are counted from the first.
pub(super) const LAST_OCCURRENCE: u32 = 6;

/// The fields of a cron expression. It holds no zone and no policy, and it is small: schedulers keep one for each task.
///
/// [`Expression::parse`](Expression::parse) makes it; [`Schedule`](super::Schedule) asks it for instants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// Seconds 0 to 59.
    pub(super) seconds: u64,
    /// Minutes 0 to 59.
    pub(super) minutes: u64,
    /// `FRI#3` and `FRIL`: the bit [`occurrence_bit`] for each weekday and occurrence.
    pub(super) occurrences: u64,
    /// The years of a Quartz year field; `None` where every year will do.
    pub(super) years: Option<Box<YearSet>>,
    /// Hours 0 to 23.
    pub(super) hours: u32,
    /// Plain days of the month, 1 to 31.
    pub(super) days: u32,
    /// `L` and `L-n`: bit n for n days before the last.
    pub(super) days_before_last: u32,
    /// `nW`: bit n for the working day nearest to day n; bit 0 is `LW`, the last working day.
    pub(super) nearest_workdays: u32,
    /// Months 1 to 12.
    pub(super) months: u16,
    /// Plain weekdays, from Sunday (0).
    pub(super) weekdays: u8,
    /// The second, minute or hour field starts with `*`.
    pub(super) real_time: bool,
    /// Both day fields are restricted, so either may match.
    pub(super) either_day_field: bool,
    /// Every date matches; derived from the sets once, because it saves the search all calendar work.
    pub(super) every_date: bool,
    pub(super) dialect: Dialect,
}

/// The bit of the n-th (1 to 5, or [`LAST_OCCURRENCE`]) such weekday of a month.
pub(super) const fn occurrence_bit(weekday: u32, nth: u32) -> u64 {
    1 << (weekday * LAST_OCCURRENCE + nth - 1)
}

impl Expression {
    /// The dialect that the text was read in.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the schedule follows real time: its second, minute or hour field starts with `*`.
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// The same times of day on every date.
    pub(super) fn on_every_date(&self) -> Expression {
        let (days, weekdays, months) = (ALL_DAYS, ALL_WEEKDAYS, ALL_MONTHS);
        let (occurrences, days_before_last, nearest_workdays, years) = (0, 0, 0, None);
        let (either_day_field, every_date) = (false, true);
        Expression {
            days,
            weekdays,
            months,
            occurrences,
            days_before_last,
            nearest_workdays,
            years,
            either_day_field,
            every_date,
            ..self.clone()
        }
    }

    /// Whether the year field, if there is one, allows this year.
    pub(super) fn allows_year(&self, year: i32) -> bool {
        self.years.as_ref().is_none_or(|years| years.contains(year))
    }

    /// Works out [`Expression::every_date`].
    pub(super) fn covers_every_date(&self) -> bool {
        let (all_days, all_weekdays) = (self.days == ALL_DAYS, self.weekdays == ALL_WEEKDAYS);
        let day_fields = if self.either_day_field { all_days || all_weekdays } else { all_days && all_weekdays };
        day_fields && self.months == ALL_MONTHS && self.years.is_none()
    }

    /// Whether any date at all matches. The calendar repeats after 400 years, so these are enough.
    pub(super) fn has_a_date(&self) -> bool {
        let years = if self.years.is_some() { i32::from(YEAR_MIN)..=i32::from(YEAR_MAX) } else { 2000..=2399 };
        years.filter(|&year| self.allows_year(year)).any(|year| {
            (1..=12).filter(|month| self.months >> month & 1 == 1).any(|month| self.days_of(year, month, first_of_month(year, month)) != 0)
        })
    }

    /// The days of a month that the two day fields select, as bits 1 to 31. `first` is the day number of its first day.
    pub(super) fn days_of(&self, year: i32, month: u32, first: i64) -> u32 {
        let length = days_in_month(year, month);
        let first_weekday = weekday_of(first);
        let by_day = self.days | self.counted_days(length, first_weekday);
        let by_weekday = weekday_pattern(self.weekdays, first_weekday) | self.occurrence_days(length, first_weekday);
        let days = if self.either_day_field { by_day | by_weekday } else { by_day & by_weekday };
        days & (ALL_DAYS >> (31 - length))
    }

    /// What `L`, `L-n`, `nW` and `LW` select. A day that the month lacks selects nothing.
    fn counted_days(&self, length: u32, first_weekday: u32) -> u32 {
        let mut days = 0;
        for before_last in ones(self.days_before_last.into()).take_while(|&before_last| before_last < length) {
            days |= 1 << (length - before_last);
        }
        for day in ones(self.nearest_workdays.into()).take_while(|&day| day <= length) {
            let day = if day == 0 { length } else { day };
            let workday = match (first_weekday + day - 1) % 7 {
                6 if day == 1 => 3,            // Saturday the first: not back into the month before, so Monday the third
                6 => day - 1,                  // Saturday: the Friday before
                0 if day == length => day - 2, // Sunday the last: not on into the next month, so the Friday before
                0 => day + 1,                  // Sunday: the Monday after
                _ => day,
            };
            days |= 1 << workday;
        }
        days
    }

    /// What `FRI#3` and `FRIL` select. A month without a fifth Friday has no `FRI#5`.
    fn occurrence_days(&self, length: u32, first_weekday: u32) -> u32 {
        let mut days = 0;
        for bit in ones(self.occurrences) {
            let (weekday, nth) = (bit / LAST_OCCURRENCE, bit % LAST_OCCURRENCE + 1);
            let first = 1 + (weekday + 7 - first_weekday) % 7;
            let day = if nth == LAST_OCCURRENCE { first + (length - first) / 7 * 7 } else { first + (nth - 1) * 7 };
            days |= u32::from(day <= length) << day.min(31);
        }
        days
    }
}

/// Spreads a set of weekdays over the days of a month that begins on `first_weekday`.
fn weekday_pattern(weekdays: u8, first_weekday: u32) -> u32 {
    let doubled = u32::from(weekdays) | u32::from(weekdays) << 7;
    let first_week = u64::from(doubled >> first_weekday & 0x7f);
    // The same seven bits five times over, then moved up because days count from one.
    ((first_week * 0x1020_4081) << 1) as u32
}

/// The positions of the bits that are set, ascending.
pub(super) fn ones(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// A set of the years [`YEAR_MIN`] to [`YEAR_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct YearSet([u64; 3]);

impl YearSet {
    /// Adds a year within the limits.
    pub(super) fn insert(&mut self, year: u16) {
        let index = usize::from(year - YEAR_MIN);
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// Whether the year is in the set; years beyond the limits never are.
    pub(super) fn contains(&self, year: i32) -> bool {
        let index = year - i32::from(YEAR_MIN);
        (0..=i32::from(YEAR_MAX - YEAR_MIN)).contains(&index) && self.0[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Its years, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = i32> {
        (i32::from(YEAR_MIN)..=i32::from(YEAR_MAX)).filter(|&year| self.contains(year))
    }
}
