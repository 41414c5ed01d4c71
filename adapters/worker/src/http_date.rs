//! The dates of HTTP, in all three forms that RFC 9110 (5.6.7) has recipients accept.

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_SECS: u64 = 86_400;

/// An HTTP date in seconds since 1970; `None` where it is none, or before that. The name of the weekday is not checked.
///
/// Two digits of a year are of 1970 to 2069: what this is read for is never far from now.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    let (day, month, year, time) = match words[..] {
        // Sun, 06 Nov 1994 08:49:37 GMT, and Sunday, 06-Nov-94 08:49:37 GMT.
        [_, day, month, year, time, "GMT"] => (day, month, year, time),
        // Sun Nov  6 08:49:37 1994.
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = MONTHS.iter().position(|name| *name == month)?;
    let year = match (year.len(), number(year)?) {
        (4, year) => year,
        (2, year) if year < 70 => 2_000 + year,
        (2, year) => 1_900 + year,
        _ => return None,
    };
    let mut parts = time.split(':');
    let (hour, minute, second) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    let day = number(day)?;
    // 60 is a leap second.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 || day < 1 || day > days_of(year, month) || year < 1970 {
        return None;
    }
    let days = days_before_year(year) - days_before_year(1970) + (0..month).map(|month| days_of(year, month)).sum::<u64>() + day - 1;
    Some(days * DAY_SECS + hour * 3_600 + minute * 60 + second)
}

/// A number of at most four digits.
fn number(text: &str) -> Option<u64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// How many days a month has; the first is 0.
fn days_of(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// The days of all years before this one, counted from the first.
fn days_before_year(year: u64) -> u64 {
    let before = year - 1;
    before * 365 + before / 4 - before / 100 + before / 400
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_core::time::Timestamp;

    use super::*;

    #[test]
    fn all_three_forms_are_read() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text), Some(784_111_777), "{text}");
        }
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse("Tue, 29 Feb 2000 23:59:60 GMT"), Some(951_868_800));
        assert_eq!(parse("Monday, 01-Jan-69 00:00:00 GMT"), Some(3_124_224_000));
    }

    #[test]
    fn what_is_no_date_is_none() {
        let wrong = [
            "",
            "soon",
            "120s",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Tue, 29 Feb 1900 00:00:00 GMT",
            "Wed, 29 Feb 2023 00:00:00 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "1994-11-06T08:49:37Z",
        ];
        for text in wrong {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_date_of_the_usual_form_is_its_instant(seconds in 0..253_402_207_200_u64) {
            // RFC 3339, as the core writes it: the parts are the same.
            let text = Timestamp(seconds as i64 * 1_000).to_string();
            let (date, time) = text.trim_end_matches('Z').split_once('T').unwrap();
            let parts: Vec<&str> = date.split('-').collect();
            let month = MONTHS[parts[1].parse::<usize>().unwrap() - 1];
            prop_assert_eq!(parse(&format!("Day, {} {month} {} {time} GMT", parts[2], parts[0])), Some(seconds));
        }

        #[test]
        fn any_text_is_read_or_not(text in any::<String>(), like in "[A-Z][a-z]{2},? [0-9]{1,4}[ -][A-Z][a-z]{2}[ -][0-9]{1,9} [0-9:]{0,12}( GMT)?") {
            let _ = (parse(&text), parse(&like));
        }
    }
}
