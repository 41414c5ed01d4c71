//! Cron: which instants an expression names in a time zone.
//!
//! What is absent: the clock, zone data, caches. The caller hands in the zone and the instant; the same question has the same answer for
//! ever. A reader may follow the files in this order:
//!
//! | file | what it knows |
//! | --- | --- |
//! | `expression` | the parsed fields as bit sets, and which days of a month they select |
//! | `parse` | text to fields, dialects, macros |
//! | `error` | what may be wrong with a text, and what to do about it |
//! | `wall` | the next match on a wall clock that is never moved; counting matches |
//! | `calendar` | day numbers, dates, months |
//! | `schedule` | expression + zone + policies: the next instant, across gaps and overlaps |
//! | `count` | how many instants lie between two others, and the last of them |
//! | `calendar_days` | days that are left out or put in, blackout windows, and the pieces that they cut time into |
//! | `timetable` | a schedule or an interval with all that refines when it fires |
//! | `describe`, `explain` | words and marked occurrences for people |
//! | `zone` | which texts may be zone names at all |
//!
//! # The rules
//!
//! 1. `after` is exclusive; fire times strictly increase.
//! 2. [`Dialect::Unix5`]: minute, hour, day of month, month, weekday, where 0 and 7 are Sunday. [`Dialect::Seconds6`]: seconds first, the
//!    same weekdays. [`Dialect::Quartz`]: seconds first, weekdays 1 to 7 from Sunday, an optional year last, exactly one day field is `?`.
//! 3. Where both day fields are restricted, either may match. A day field that starts with `*` (also `*/2`) or is `?` is unrestricted, and
//!    then both must match.
//! 4. `N/step` runs from N to the field's maximum (Saturday, for weekdays). A reversed range wraps and its steps count along it. A step
//!    of zero, or as large as the field, is refused.
//! 5. A schedule whose second, minute or hour starts with `*` follows *real time*: it fires in both passes of a repeated hour and never
//!    for wall times that do not exist; the policies do not apply to it. Any other is *fixed-time*, and [`GapPolicy`] and
//!    [`OverlapPolicy`] say what becomes of wall times that are missing or repeated.
//! 6. A forward jump of more than three hours is a correction of the zone (a move across the date line): nothing is caught up.
//! 7. `W` stays in its month. A month that lacks the day is skipped, and so is one without a fifth Friday by `FRI#5`.
//! 8. A date that can never come is refused by the parser. A search covers [`CRON_SEARCH_YEARS`](crate::limits::CRON_SEARCH_YEARS).
//! 9. Text is ASCII, at most [`CRON_EXPRESSION_BYTES_MAX`](crate::limits::CRON_EXPRESSION_BYTES_MAX) bytes, names have three letters in
//!    any case, blanks and tabs separate.

mod calendar;
mod calendar_days;
mod count;
mod describe;
mod error;
mod explain;
mod expression;
mod parse;
mod policy;
mod schedule;
mod timetable;
mod wall;
mod zone;

pub use calendar_days::{Blackouts, Calendar, DailyBlackout, LeftOut};
pub use error::{CronError, Field};
pub use explain::{Mark, Occurrence};
pub use expression::Expression;
pub use policy::{Dialect, GapPolicy, OverlapPolicy, UnknownName};
pub use schedule::Schedule;
pub use timetable::{LeftOutRun, Planned, Series, Timetable, Window};
pub use zone::validate_zone_name;
