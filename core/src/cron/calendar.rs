//! Days, dates and months of the Gregorian calendar, as plain integers.
//!
//! A *day number* counts days from 1970-01-01. Weekdays count from Sunday (0). The date arithmetic is Howard Hinnant's, from
//! "chrono-compatible low-level date algorithms": it counts years from March, so that the leap day comes last.

/// Seconds in a civil day.
pub(super) const DAY_SECS: i64 = 86_400;

/// Day numbers from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;
/// Days in 400 years, after which the calendar (weekdays too) repeats.
const DAYS_PER_ERA: i64 = 146_097;

/// A date: year, month (1 to 12), day of month (1 to 31).
pub(super) fn date_of(day_number: i64) -> (i32, u32, u32) {
    let shifted = day_number + DAYS_TO_1970;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA) as u32;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era as i32 + era as i32 * 400 + i32::from(month <= 2);
    (year, month, day)
}

/// The day number of the first day of a month.
pub(super) fn first_of_month(year: i32, month: u32) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - DAYS_TO_1970
}

/// How many days a month has.
pub(super) fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The weekday of a day number, 0 for Sunday.
pub(super) fn weekday_of(day_number: i64) -> u32 {
    // 1970-01-01 was a Thursday.
    (day_number + 4).rem_euclid(7) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_jiff_over_an_era() {
        let mut date = jiff::civil::date(1899, 12, 31);
        let start = first_of_month(1899, 12) + 30;
        for day_number in start..start + DAYS_PER_ERA {
            let (year, month, day) = date_of(day_number);
            assert_eq!((i32::from(date.year()), date.month() as u32, date.day() as u32), (year, month, day));
            assert_eq!(day_number, first_of_month(year, month) + i64::from(day) - 1);
            assert_eq!(date.days_in_month() as u32, days_in_month(year, month));
            assert_eq!(date.weekday().to_sunday_zero_offset() as u32, weekday_of(day_number));
            date = date.tomorrow().unwrap();
        }
    }
}
