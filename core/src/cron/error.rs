//! What may be wrong with a cron expression or a zone name, and what to do about it.

use super::Dialect;
use std::fmt;

/// One field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Second, 0 to 59.
    Second,
    /// Minute, 0 to 59.
    Minute,
    /// Hour, 0 to 23.
    Hour,
    /// Day of month, 1 to 31.
    DayOfMonth,
    /// Month, 1 to 12.
    Month,
    /// Day of week, from Sunday.
    Weekday,
    /// Year, 1970 to 2099.
    Year,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Field::Second => "second",
            Field::Minute => "minute",
            Field::Hour => "hour",
            Field::DayOfMonth => "day-of-month",
            Field::Month => "month",
            Field::Weekday => "weekday",
            Field::Year => "year",
        })
    }
}

/// Why a text was refused. The message names the field and the text, and says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Nothing but blanks.
    #[error("the cron expression is empty: give five fields, such as `30 2 * * *` for 02:30 every day")]
    Empty,
    /// Longer than [`CRON_EXPRESSION_BYTES_MAX`](crate::limits::CRON_EXPRESSION_BYTES_MAX).
    #[error(
        "the cron expression has {bytes} bytes, at most {} are allowed: split it into several tasks",
        crate::limits::CRON_EXPRESSION_BYTES_MAX
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A character that is neither printable ASCII, a blank nor a tab.
    #[error("the cron expression has {character:?} at byte {at}: only ASCII letters, digits and signs on one line are allowed")]
    Character {
        /// The first such character.
        character: char,
        /// Where it begins, in bytes.
        at: usize,
    },
    /// Six fields for the five-field dialect: a seconds field was pasted in front.
    #[error(
        "six fields where unix5 has five (minute hour day month weekday): drop the seconds field `{first}` in front, \
         or choose the dialect seconds6"
    )]
    SecondsGiven {
        /// The field in front.
        first: String,
    },
    /// Five fields for a dialect that begins with seconds.
    #[error("five fields where {dialect} has six: the seconds field in front is missing; put `0` there, or choose the dialect unix5")]
    SecondsMissing {
        /// The dialect asked for.
        dialect: Dialect,
    },
    /// Any other wrong number of fields.
    #[error("{found} fields, separated by blanks: {expected}")]
    FieldCount {
        /// How many were found.
        found: usize,
        /// What would be right.
        expected: &'static str,
    },
    /// Six fields with a `?` and weekday numbers, which mean one thing in Quartz and another elsewhere.
    #[error(
        "six fields with `?` and weekday numbers `{weekday}`: Sunday is 1 in quartz and 0 in seconds6; name the dialect, \
         or write weekdays by name (MON-FRI)"
    )]
    AmbiguousDialect {
        /// The weekday field.
        weekday: String,
    },
    /// An `@` word that is not a macro.
    #[error(
        "`{text}` is not a macro: use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually alone; \
         for `@every` choose an interval trigger"
    )]
    Macro {
        /// The text.
        text: String,
    },
    /// A part of a field that makes no sense there.
    #[error("`{text}` in the {field} field is not understood: {expected}")]
    Malformed {
        /// The field.
        field: Field,
        /// The part of it.
        text: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// A value beyond the field's limits.
    #[error("`{text}` in the {field} field is out of range: {minimum} to {maximum}")]
    OutOfRange {
        /// The field.
        field: Field,
        /// The value as written.
        text: String,
        /// The smallest value.
        minimum: u16,
        /// The largest value.
        maximum: u16,
    },
    /// A step of zero.
    #[error("`{text}` in the {field} field has a step of zero, which never moves on: use 1 or more")]
    ZeroStep {
        /// The field.
        field: Field,
        /// The part of it.
        text: String,
    },
    /// A step that leaves the field at once, so that it would not do what it says.
    #[error(
        "the step of `{text}` in the {field} field is beyond its {span} values: steps begin anew each time the field wraps, \
         at most {} makes sense; for a longer period choose an interval trigger (fixed rate)", .span - 1
    )]
    StepBeyondField {
        /// The field.
        field: Field,
        /// The part of it.
        text: String,
        /// How many values the field has.
        span: u16,
    },
    /// `?` outside the two day fields.
    #[error("`?` in the {field} field: it may only stand for a whole day-of-month or weekday field; write `*`")]
    QuestionMark {
        /// The field.
        field: Field,
    },
    /// Quartz wants exactly one of the two day fields to be `?`.
    #[error(
        "quartz wants exactly one `?`: day-of-month is `{day_of_month}` and weekday is `{weekday}`; write `?` for the one that is not to decide"
    )]
    QuartzDayFields {
        /// The day-of-month field.
        day_of_month: String,
        /// The weekday field.
        weekday: String,
    },
    /// No date matches, ever: 30 February.
    #[error(
        "no date ever matches day-of-month `{day_of_month}` in month `{month}` (weekday `{weekday}`, year `{year}`): check these fields"
    )]
    NeverMatches {
        /// The day-of-month field.
        day_of_month: String,
        /// The month field.
        month: String,
        /// The weekday field.
        weekday: String,
        /// The year field, `*` where there is none.
        year: String,
    },
    /// Not a zone name.
    #[error("`{}` is not a time zone: {reason}", .text.escape_debug())]
    ZoneName {
        /// The text, cut to the longest length of a name.
        text: String,
        /// Why not, and what to do.
        reason: &'static str,
    },
}
