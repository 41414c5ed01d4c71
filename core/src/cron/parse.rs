//! From text to fields.
//!
//! The grammar, one line a rule. A list is a set, so items may overlap. Names may stand for numbers in the month and weekday fields.
//!
//! ```text
//! expression    macro | field field ...          separated by blanks and tabs
//! field         item | item "," item ...         the whole of a day field may be "?"
//! item          range | range "/" step
//! range         "*" | value | value "-" value    a reversed range wraps
//! day of month  item | "L" | "L-" n | n "W" | "LW"
//! weekday       item | value "L" | value "#" n | "L" (Quartz only: Saturday)
//! ```

use super::error::{CronError, Field};
use super::expression::{ALL_DAYS, ALL_WEEKDAYS, Expression, LAST_OCCURRENCE, YEAR_MAX, YEAR_MIN, YearSet, occurrence_bit};
use super::policy::Dialect;
use crate::limits::CRON_EXPRESSION_BYTES_MAX;

const BLANKS: [char; 2] = [' ', '\t'];

const MACROS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Expression {
    /// Reads a cron expression.
    ///
    /// Without a dialect the number of fields decides: five are [`Dialect::Unix5`], six [`Dialect::Seconds6`], seven [`Dialect::Quartz`].
    /// Six fields of which a day field is `?` come from Quartz (or from one of the libraries that copy its `?` but not its weekday
    /// numbers), so they are read as Quartz where weekdays are named or absent, and refused where weekdays are numbers. Macros such as
    /// `@daily` are the same in every dialect.
    ///
    /// # Errors
    ///
    /// A [`CronError`] that says what to write instead, also for dates that can never come. The verdict depends on the text and the
    /// dialect alone.
    pub fn parse(text: &str, dialect: Option<Dialect>) -> Result<Expression, CronError> {
        if text.len() > CRON_EXPRESSION_BYTES_MAX {
            return Err(CronError::TooLong { bytes: text.len() });
        }
        if let Some((at, character)) = text.char_indices().find(|&(_, c)| !(c == '\t' || c == ' ' || c.is_ascii_graphic())) {
            return Err(CronError::Character { character, at });
        }
        let trimmed = text.trim_matches(BLANKS);
        if trimmed.is_empty() {
            return Err(CronError::Empty);
        }
        if trimmed.starts_with('@') {
            let found = MACROS.iter().find(|(name, _)| trimmed.eq_ignore_ascii_case(name));
            let (_, meaning) = found.ok_or_else(|| CronError::Macro { text: trimmed.to_owned() })?;
            let fields = Fields::split(meaning, Some(Dialect::Unix5))?;
            return fields.parse();
        }
        Fields::split(trimmed, dialect)?.parse()
    }
}

/// The texts of the fields, each in its place.
struct Fields<'t> {
    dialect: Dialect,
    second: &'t str,
    minute: &'t str,
    hour: &'t str,
    day_of_month: &'t str,
    month: &'t str,
    weekday: &'t str,
    year: &'t str,
}

impl<'t> Fields<'t> {
    /// Splits the text, decides the dialect and checks the number of fields.
    fn split(text: &'t str, dialect: Option<Dialect>) -> Result<Self, CronError> {
        let words: Vec<&str> = text.split(BLANKS).filter(|word| !word.is_empty()).collect();
        let dialect = match dialect {
            Some(dialect) => dialect,
            None => infer_dialect(&words)?,
        };
        let (second, rest, year) = match (dialect, words.as_slice()) {
            (Dialect::Unix5, rest @ [_, _, _, _, _]) => ("0", rest, "*"),
            (Dialect::Seconds6 | Dialect::Quartz, [second, rest @ ..]) if rest.len() == 5 => (*second, rest, "*"),
            (Dialect::Quartz, [second, rest @ .., year]) if rest.len() == 5 => (*second, rest, *year),
            (Dialect::Unix5, [first, rest @ ..]) if rest.len() == 5 => return Err(CronError::SecondsGiven { first: (*first).to_owned() }),
            (Dialect::Seconds6 | Dialect::Quartz, [_, _, _, _, _]) => return Err(CronError::SecondsMissing { dialect }),
            _ => return Err(CronError::FieldCount { found: words.len(), expected: expected_fields(dialect) }),
        };
        let [minute, hour, day_of_month, month, weekday] = *rest else { unreachable!("each arm above has checked the length") };
        Ok(Fields { dialect, second, minute, hour, day_of_month, month, weekday, year })
    }

    fn parse(&self) -> Result<Expression, CronError> {
        let is_question_mark = |text: &str| text == "?";
        if self.dialect == Dialect::Quartz && is_question_mark(self.day_of_month) == is_question_mark(self.weekday) {
            return Err(CronError::QuartzDayFields { day_of_month: self.day_of_month.to_owned(), weekday: self.weekday.to_owned() });
        }
        let starts_with_star = |text: &str| text.starts_with('*');
        let restricted = |text: &str| !starts_with_star(text) && !is_question_mark(text);
        let mut expression = Expression {
            seconds: bits(Field::Second, self.second, self.dialect)?,
            minutes: bits(Field::Minute, self.minute, self.dialect)?,
            occurrences: 0,
            years: None,
            hours: bits(Field::Hour, self.hour, self.dialect)? as u32,
            days: 0,
            days_before_last: 0,
            nearest_workdays: 0,
            months: bits(Field::Month, self.month, self.dialect)? as u16,
            weekdays: 0,
            real_time: [self.second, self.minute, self.hour].into_iter().any(starts_with_star),
            either_day_field: restricted(self.day_of_month) && restricted(self.weekday),
            every_date: false,
            dialect: self.dialect,
        };
        parse_days_of_month(self.day_of_month, self.dialect, &mut expression)?;
        parse_weekdays(self.weekday, self.dialect, &mut expression)?;
        if self.year != "*" {
            let mut years = YearSet::default();
            Items { field: Field::Year, dialect: self.dialect }.parse_list(self.year, &mut |year| years.insert(year))?;
            expression.years = Some(Box::new(years));
        }
        expression.every_date = expression.covers_every_date();
        if !expression.every_date && !expression.has_a_date() {
            return Err(CronError::NeverMatches {
                day_of_month: self.day_of_month.to_owned(),
                month: self.month.to_owned(),
                weekday: self.weekday.to_owned(),
                year: self.year.to_owned(),
            });
        }
        Ok(expression)
    }
}

/// The dialect that a text without one is written in.
fn infer_dialect(words: &[&str]) -> Result<Dialect, CronError> {
    match words {
        [_, _, _, day_of_month, _, weekday] if *day_of_month == "?" || *weekday == "?" => {
            // Digits after `#` count weeks, not weekdays.
            let numbers =
                weekday.split(',').any(|item| item.split('#').next().is_some_and(|day| day.contains(|c: char| c.is_ascii_digit())));
            if numbers { Err(CronError::AmbiguousDialect { weekday: (*weekday).to_owned() }) } else { Ok(Dialect::Quartz) }
        }
        [_, _, _, _, _, _] => Ok(Dialect::Seconds6),
        [_, _, _, _, _, _, _] => Ok(Dialect::Quartz),
        [_, _, _, _, _] => Ok(Dialect::Unix5),
        _ => Err(CronError::FieldCount {
            found: words.len(),
            expected: "give five (minute hour day month weekday), six (seconds first) or seven (Quartz, with a year)",
        }),
    }
}

fn expected_fields(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Unix5 => "unix5 has five (minute hour day month weekday)",
        Dialect::Seconds6 => "seconds6 has six (second minute hour day month weekday)",
        Dialect::Quartz => "quartz has six or seven (second minute hour day month weekday, and optionally the year)",
    }
}

/// A field without special forms, as a set of bits.
fn bits(field: Field, text: &str, dialect: Dialect) -> Result<u64, CronError> {
    let mut bits = 0;
    Items { field, dialect }.parse_list(text, &mut |value| bits |= 1 << value)?;
    Ok(bits)
}

fn parse_days_of_month(text: &str, dialect: Dialect, expression: &mut Expression) -> Result<(), CronError> {
    if text == "?" {
        expression.days = ALL_DAYS;
        return Ok(());
    }
    let items = Items { field: Field::DayOfMonth, dialect };
    for item in text.split(',') {
        let upper = item.to_ascii_uppercase();
        if upper == "L" {
            expression.days_before_last |= 1;
        } else if upper == "LW" {
            expression.nearest_workdays |= 1;
        } else if let Some(before_last) = upper.strip_prefix("L-") {
            let number = parse_digits(before_last).ok_or_else(|| items.malformed(item))?;
            if !(1..=30).contains(&number) {
                return Err(items.malformed(item));
            }
            expression.days_before_last |= 1 << number;
        } else if let Some(day) = upper.strip_suffix('W') {
            expression.nearest_workdays |= 1 << items.parse_value(day, item)?;
        } else {
            items.parse_item(item, &mut |day| expression.days |= 1 << day)?;
        }
    }
    Ok(())
}

fn parse_weekdays(text: &str, dialect: Dialect, expression: &mut Expression) -> Result<(), CronError> {
    if text == "?" {
        expression.weekdays = ALL_WEEKDAYS;
        return Ok(());
    }
    let items = Items { field: Field::Weekday, dialect };
    for item in text.split(',') {
        let upper = item.to_ascii_uppercase();
        if upper == "L" && dialect == Dialect::Quartz {
            expression.weekdays |= 1 << 6;
        } else if upper == "L" {
            return Err(CronError::Malformed {
                field: Field::Weekday,
                text: item.to_owned(),
                expected: "alone it is Saturday to some and Sunday to others; name the weekday (SAT), or FRIL for the last Friday of a month",
            });
        } else if let Some(weekday) = upper.strip_suffix('L') {
            expression.occurrences |= occurrence_bit(items.parse_weekday(weekday, item)?, LAST_OCCURRENCE);
        } else if let Some((weekday, nth)) = upper.split_once('#') {
            let weekday = items.parse_weekday(weekday, item)?;
            match parse_digits(nth) {
                Some(nth @ 1..=5) => expression.occurrences |= occurrence_bit(weekday, nth.into()),
                _ => return Err(items.malformed(item)),
            }
        } else {
            items.parse_item(item, &mut |weekday| expression.weekdays |= 1 << weekday)?;
        }
    }
    Ok(())
}

/// The plain items of one field.
#[derive(Clone, Copy)]
struct Items {
    field: Field,
    dialect: Dialect,
}

impl Items {
    /// The smallest and largest value as they are written. Unix weekdays have 7 as a second Sunday.
    fn limits(self) -> (u16, u16) {
        match self.field {
            Field::Second | Field::Minute => (0, 59),
            Field::Hour => (0, 23),
            Field::DayOfMonth => (1, 31),
            Field::Month => (1, 12),
            Field::Weekday if self.dialect == Dialect::Quartz => (1, 7),
            Field::Weekday => (0, 7),
            Field::Year => (YEAR_MIN, YEAR_MAX),
        }
    }

    /// The values as they are kept: the first one, and how many there are.
    fn span(self) -> (u16, u16) {
        match self.field {
            Field::Weekday => (0, 7),
            _ => (self.limits().0, self.limits().1 - self.limits().0 + 1),
        }
    }

    fn parse_list(self, text: &str, insert: &mut dyn FnMut(u16)) -> Result<(), CronError> {
        if text.contains('?') {
            return Err(CronError::QuestionMark { field: self.field });
        }
        text.split(',').try_for_each(|item| self.parse_item(item, insert))
    }

    /// Reads one item and inserts its values.
    fn parse_item(self, item: &str, insert: &mut dyn FnMut(u16)) -> Result<(), CronError> {
        let (first_value, span) = self.span();
        let last_value = first_value + span - 1;
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.parse_step(step, item)?)),
            None => (item, None),
        };
        let (start, end) = if range == "*" {
            (first_value, last_value)
        } else if let Some((start, end)) = range.split_once('-') {
            self.range_ends(self.parse_value(start, item)?, self.parse_value(end, item)?)
        } else {
            let (start, _) = self.range_ends(self.parse_value(range, item)?, 0);
            (start, if step.is_some() { last_value } else { start })
        };
        if end < start && self.field == Field::Year {
            return Err(self.malformed(item));
        }
        let length = if end >= start { end - start } else { end + span - start };
        for distance in (0..=length).step_by(step.unwrap_or(1).into()) {
            insert((start - first_value + distance) % span + first_value);
        }
        Ok(())
    }

    /// The ends of a range as values that are kept. `5-7` must stay a range from Friday to Sunday, so an end of 7 is left as it is.
    fn range_ends(self, start: u16, end: u16) -> (u16, u16) {
        match (self.field, self.dialect) {
            (Field::Weekday, Dialect::Quartz) => (start - 1, end.saturating_sub(1)),
            (Field::Weekday, _) if start == 7 => (0, end % 7),
            _ => (start, end),
        }
    }

    /// A weekday from Sunday (0).
    fn parse_weekday(self, text: &str, item: &str) -> Result<u32, CronError> {
        let value = self.parse_value(text, item)?;
        Ok(self.range_ends(value, 0).0.into())
    }

    fn parse_step(self, text: &str, item: &str) -> Result<u16, CronError> {
        let (_, span) = self.span();
        match parse_digits(text) {
            None => Err(self.malformed(item)),
            Some(0) => Err(CronError::ZeroStep { field: self.field, text: item.to_owned() }),
            Some(step) if step >= span => Err(CronError::StepBeyondField { field: self.field, text: item.to_owned(), span }),
            Some(step) => Ok(step),
        }
    }

    /// A number or a name, as it is written: Quartz weekdays from 1.
    fn parse_value(self, text: &str, item: &str) -> Result<u16, CronError> {
        let position = |names: &[&str]| names.iter().position(|name| text.eq_ignore_ascii_case(name)).map(|index| index as u16);
        let named = match self.field {
            Field::Month => position(&MONTHS).map(|index| index + 1),
            Field::Weekday => position(&WEEKDAYS).map(|index| index + self.limits().0),
            _ => None,
        };
        let value = named.or_else(|| parse_digits(text)).ok_or_else(|| self.malformed(item))?;
        let (minimum, maximum) = self.limits();
        if (minimum..=maximum).contains(&value) {
            Ok(value)
        } else {
            Err(CronError::OutOfRange { field: self.field, text: text.to_owned(), minimum, maximum })
        }
    }

    fn malformed(self, item: &str) -> CronError {
        let expected = match self.field {
            Field::Second | Field::Minute | Field::Hour | Field::Year => {
                "use `*`, a number, a range `a-b`, a step `*/n`, or a list of these"
            }
            Field::DayOfMonth => "use `*`, `?`, a number, a range `a-b`, a step `*/n`, `L`, `L-n` (n from 1 to 30), `nW`, `LW`, or a list",
            Field::Month => "use `*`, a number, a name (JAN to DEC, three letters), a range `a-b`, a step `*/n`, or a list of these",
            Field::Weekday => {
                "use `*`, `?`, a number, a name (SUN to SAT, three letters), a range `a-b`, a step `*/n`, `FRIL`, `FRI#3`, or a list"
            }
        };
        CronError::Malformed { field: self.field, text: item.to_owned(), expected }
    }
}

/// A number of nothing but digits; one too large for the type is the type's largest value, which no field allows.
fn parse_digits(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u16::MAX))
}
