//! An expression in plain English words.

use super::expression::{ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, Expression, LAST_OCCURRENCE, occurrence_bit, ones};

const ALL_MINUTES: u64 = (1 << 60) - 1;
const ALL_HOURS: u64 = (1 << 24) - 1;
/// A day's times are listed one by one up to this many.
const TIMES_LISTED_MAX: u32 = 6;

const MONTHS: [&str; 13] =
    ["", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ORDINALS: [&str; 7] = ["", "first", "second", "third", "fourth", "fifth", "last"];

impl Expression {
    /// The expression in words, such as "at 02:30 on Monday to Friday". Where both day fields are restricted it says that either is
    /// enough, because that surprises people.
    pub fn describe(&self) -> String {
        let parts = [self.describe_times(), self.describe_days(), self.describe_months(), self.describe_years()];
        let mut words = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        if self.either_day_field {
            words.push_str(" (both day fields are restricted: EITHER is enough)");
        }
        words
    }

    fn describe_times(&self) -> String {
        let times = self.seconds.count_ones() * self.minutes.count_ones() * self.hours.count_ones();
        if times <= TIMES_LISTED_MAX {
            return format!("at {}", joined(self.listed_times()));
        }
        let seconds = every_nth(self.seconds, 60).map(|nth| every("second", nth));
        let minutes = every_nth(self.minutes, 60).map(|nth| every("minute", nth));
        let listed_seconds = || counted("second", "seconds", self.seconds);
        let listed_minutes = || counted("minute", "minutes", self.minutes);
        // "every minute of every hour" says no more than "every minute".
        let of_hours = self.of_hours(minutes.is_none());
        let on_the_minute = self.seconds == 1;
        match (seconds, minutes) {
            (_, Some(minutes)) if on_the_minute => format!("{minutes}{of_hours}"),
            (_, None) if on_the_minute => format!("at {}{of_hours}", listed_minutes()),
            (Some(seconds), Some(_)) if self.minutes == ALL_MINUTES => format!("{seconds}{of_hours}"),
            (Some(seconds), minutes) => format!("{seconds} of {}{of_hours}", minutes.unwrap_or_else(listed_minutes)),
            (None, minutes) => format!("at {} of {}{of_hours}", listed_seconds(), minutes.unwrap_or_else(listed_minutes)),
        }
    }

    /// " of hours 9 to 17"; for all hours " of every hour" where that is wanted.
    fn of_hours(&self, even_if_all: bool) -> String {
        match every_nth(self.hours.into(), 24) {
            Some(1) if even_if_all => " of every hour".to_owned(),
            Some(1) => String::new(),
            Some(nth) => format!(" of every {} hour", ordinal(nth)),
            None => format!(" of {}", counted("hour", "hours", self.hours.into())),
        }
    }

    /// Every time of a day, as hh:mm or hh:mm:ss.
    fn listed_times(&self) -> Vec<String> {
        let mut times = Vec::new();
        for hour in ones(self.hours.into()) {
            for minute in ones(self.minutes) {
                for second in ones(self.seconds) {
                    let seconds = if self.seconds == 1 { String::new() } else { format!(":{second:02}") };
                    times.push(format!("{hour:02}:{minute:02}{seconds}"));
                }
            }
        }
        times
    }

    fn describe_days(&self) -> String {
        let by_day = if self.days == ALL_DAYS { None } else { Some(joined(self.day_words())) };
        let by_weekday = if self.weekdays == ALL_WEEKDAYS { None } else { Some(joined(self.weekday_words())) };
        match (by_day, by_weekday) {
            // A restricted field that names every day: either field is enough, so every day it is.
            _ if self.either_day_field && (self.days == ALL_DAYS || self.weekdays == ALL_WEEKDAYS) => "every day".to_owned(),
            (None, None) if self.fires_within_hours() => String::new(),
            (None, None) => "every day".to_owned(),
            (Some(by_day), None) => format!("on {by_day} of the month"),
            (None, Some(by_weekday)) => format!("on {by_weekday}"),
            (Some(by_day), Some(by_weekday)) if self.either_day_field => format!("on {by_day} of the month OR on {by_weekday}"),
            (Some(by_day), Some(by_weekday)) => format!("on {by_day} of the month where that is {by_weekday}"),
        }
    }

    /// Whether the times already say "every", so that "every day" would only repeat it.
    fn fires_within_hours(&self) -> bool {
        u64::from(self.hours) == ALL_HOURS && self.minutes.count_ones() * self.seconds.count_ones() * 24 > TIMES_LISTED_MAX
    }

    fn day_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.days != 0 {
            words.push(counted("day", "days", self.days.into()));
        }
        for before_last in ones(self.days_before_last.into()) {
            words.push(match before_last {
                0 => "the last day".to_owned(),
                1 => "the day before the last day".to_owned(),
                days => format!("the {} day before the last day", ordinal(days)),
            });
        }
        for day in ones(self.nearest_workdays.into()) {
            words.push(match day {
                0 => "the last working day (Monday to Friday)".to_owned(),
                day => format!("the working day (Monday to Friday) nearest to day {day}"),
            });
        }
        words
    }

    fn weekday_words(&self) -> Vec<String> {
        // Weeks are told from Monday, so that Saturday and Sunday stand together.
        let from_monday = u64::from(self.weekdays >> 1 | (self.weekdays & 1) << 6);
        let mut words = runs(from_monday, |day| WEEKDAYS[(day as usize + 1) % 7].to_owned());
        for nth in 1..=LAST_OCCURRENCE {
            for weekday in (0..7).filter(|&weekday| self.occurrences & occurrence_bit(weekday, nth) != 0) {
                words.push(format!("the {} {} of the month", ORDINALS[nth as usize], WEEKDAYS[weekday as usize]));
            }
        }
        words
    }

    fn describe_months(&self) -> String {
        if self.months == ALL_MONTHS {
            return String::new();
        }
        format!("in {}", joined(runs(self.months.into(), |month| MONTHS[month as usize].to_owned())))
    }

    fn describe_years(&self) -> String {
        let Some(years) = &self.years else { return String::new() };
        let years: Vec<String> = years.iter().map(|year| year.to_string()).collect();
        match years.as_slice() {
            [first, .., last] if years.len() > TIMES_LISTED_MAX as usize => format!("in {} years from {first} to {last}", years.len()),
            _ => format!("in {}", joined(years)),
        }
    }
}

/// The n of a set that is 0, n, 2n, ... to the end of its field, where that is even: `*/7` is not "every 7 minutes", it begins anew
/// each hour.
fn every_nth(set: u64, span: u32) -> Option<u32> {
    let nth = ones(set).nth(1)?;
    let expected = (0..span).step_by(nth as usize).fold(0, |bits, value| bits | 1 << value);
    (set & 1 == 1 && set == expected && span.is_multiple_of(nth)).then_some(nth)
}

/// "every minute", "every 5 minutes".
fn every(unit: &str, nth: u32) -> String {
    if nth == 1 { format!("every {unit}") } else { format!("every {nth} {unit}s") }
}

/// "hour 9", "hours 9 to 17".
fn counted(one: &str, many: &str, set: u64) -> String {
    let unit = if set.count_ones() == 1 { one } else { many };
    format!("{unit} {}", joined(runs(set, |value| value.to_string())))
}

/// The values of a set, three or more in a row as "a to b".
fn runs(set: u64, name: impl Fn(u32) -> String) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = set;
    while rest != 0 {
        let start = rest.trailing_zeros();
        let length = (!(rest >> start)).trailing_zeros();
        if length >= 3 {
            words.push(format!("{} to {}", name(start), name(start + length - 1)));
        } else {
            words.extend((start..start + length).map(&name));
        }
        rest &= !0_u64 << start << length;
    }
    words
}

/// "a", "a and b", "a, b and c".
fn joined(mut words: Vec<String>) -> String {
    let Some(last) = words.pop() else { return String::new() };
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

/// "2nd", "3rd", "4th".
fn ordinal(number: u32) -> String {
    let suffix = match number {
        2 | 22 => "nd",
        3 | 23 => "rd",
        1 | 21 => "st",
        _ => "th",
    };
    format!("{number}{suffix}")
}
