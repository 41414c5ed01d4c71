//! What refines when a trigger fires, as its author means it: a window, a calendar of days, blackouts, jitter.
//!
//! In documents days are resolved: they hold the days themselves, in as few ranges as possible, never the name of a calendar.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use punctual_core::time::{Millis, Timestamp};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What refines when a trigger fires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Nothing fires before it.
    pub starts_at: Option<Moment>,
    /// Nothing fires at it or after it.
    pub ends_at: Option<Moment>,
    /// Days that are left out or put in.
    pub calendar: Option<Days>,
    /// When nothing fires.
    pub blackouts: Vec<Blackout>,
    /// By how much a start may be put off; zero: not at all.
    pub jitter: Millis,
}

impl Timing {
    /// Whether it says nothing.
    pub fn is_default(&self) -> bool {
        *self == Timing::default()
    }

    /// Brings what may be said in several ways into one.
    pub fn normalise(&mut self) {
        if let Some(days) = &mut self.calendar {
            days.normalise();
        }
        self.calendar = self.calendar.take().filter(|days| *days != Days::default());
        self.blackouts.sort();
        self.blackouts.dedup();
    }
}

/// Days of the trigger's zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Days {
    /// On these nothing fires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<DayRange>,
    /// On these it fires at its times of day, whatever its day fields say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<DayRange>,
}

impl Days {
    fn normalise(&mut self) {
        for ranges in [&mut self.exclude, &mut self.include] {
            ranges.sort_unstable();
            let mut merged: Vec<DayRange> = Vec::with_capacity(ranges.len());
            for range in ranges.drain(..) {
                match merged.last_mut() {
                    Some(last) if last.last.tomorrow().is_ok_and(|next| range.first <= next) => last.last = last.last.max(range.last),
                    _ => merged.push(range),
                }
            }
            *ranges = merged;
        }
    }

    /// How many days its ranges have.
    pub fn count(&self) -> u64 {
        self.exclude.iter().chain(&self.include).map(DayRange::count).sum()
    }
}

/// Days in a row: `2027-02-06..2027-02-12`, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DayRange {
    /// The first.
    pub first: Date,
    /// The last; not before the first.
    pub last: Date,
}

impl DayRange {
    fn count(&self) -> u64 {
        u64::try_from(self.last.duration_since(self.first).as_hours() / 24).unwrap_or(0) + 1
    }
}

impl fmt::Display for DayRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}..{}", self.first, self.last) }
    }
}

impl FromStr for DayRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let (first, last) = (date(first)?, date(last)?);
        if last < first { Err(format!("{last} is before {first}")) } else { Ok(DayRange { first, last }) }
    }
}

/// A date, written as 2027-02-20.
fn date(text: &str) -> Result<Date, String> {
    let has_form =
        text.len() == 10 && text.bytes().enumerate().all(|(i, byte)| if i == 4 || i == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    if !has_form {
        return Err(format!("{} is not a date", crate::problem::quoted(text)));
    }
    text.parse().map_err(|_| format!("there is no day {text}"))
}

/// An instant, or a time of the clock on the wall in the trigger's zone. In whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// With an offset from UTC, `Z` for none.
    Instant(jiff::Timestamp),
    /// Without one.
    Civil(DateTime),
}

impl Moment {
    /// The instant in a zone: a civil time that is missing is as much later as the clock jumped, one that comes twice is the first of them.
    /// `None` where it is out of range.
    pub fn instant_in(self, zone: &TimeZone) -> Option<Timestamp> {
        let instant = match self {
            Moment::Instant(instant) => instant,
            Moment::Civil(civil) => zone.to_ambiguous_timestamp(civil).compatible().ok()?,
        };
        Some(Timestamp(instant.as_millisecond()))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Instant(instant) => instant.fmt(f),
            Moment::Civil(civil) => civil.fmt(f),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = |nanosecond: i32| if nanosecond == 0 { Ok(()) } else { Err(format!("{text} is not a whole second")) };
        if let Some((day, _)) = text.split_once(['T', ' ']) {
            date(day)?;
        } else {
            return Ok(Moment::Civil(date(text)?.at(0, 0, 0, 0)));
        }
        let refused = || format!("{} is not a time", crate::problem::quoted(text));
        if text.contains('[') {
            return Err(refused());
        }
        // In this order: a civil time is also read from a text with an offset, which it would drop.
        if let Ok(instant) = text.parse::<jiff::Timestamp>() {
            return whole(instant.subsec_nanosecond()).map(|()| Moment::Instant(instant));
        }
        let civil: DateTime = text.parse().map_err(|_| refused())?;
        whole(civil.subsec_nanosecond()).map(|()| Moment::Civil(civil))
    }
}

/// A window in which nothing fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "BlackoutText", into = "BlackoutText")]
pub enum Blackout {
    /// On some weekdays, by the clock on the wall. It may pass midnight.
    Daily {
        /// Where it begins, in seconds from midnight.
        from: u32,
        /// Where it ends, exclusive, in seconds from midnight; 86 400 for midnight.
        to: u32,
        /// The weekdays on which it begins.
        days: Weekdays,
    },
    /// Once.
    Span {
        /// Where it begins.
        from: Moment,
        /// Where it ends, exclusive.
        to: Moment,
    },
}

/// The seconds of a day.
const DAY_SECS: u32 = 86_400;

impl Blackout {
    /// A window from its texts.
    ///
    /// # Errors
    ///
    /// The field that is wrong, and what is wrong with it.
    pub fn parse(from: &str, to: &str, days: Option<Weekdays>) -> Result<Blackout, (&'static str, String)> {
        let is_daily = |text: &str| text.len() <= 8 && text.contains(':');
        if is_daily(from) != is_daily(to) {
            return Err(("to", "one end is a time of day and the other has a date".to_owned()));
        }
        if !is_daily(from) {
            let moment = |field, text: &str| text.parse::<Moment>().map_err(|message| (field, message));
            if days.is_some() {
                return Err(("days", "a window with dates has no weekdays".to_owned()));
            }
            return Ok(Blackout::Span { from: moment("from", from)?, to: moment("to", to)? });
        }
        let from = time_of_day(from).map_err(|message| ("from", message))? % DAY_SECS;
        let to = match time_of_day(to).map_err(|message| ("to", message))? {
            0 if from > 0 => DAY_SECS,
            to => to,
        };
        if from == to {
            return Err(("to", "the window is empty: it ends where it begins".to_owned()));
        }
        Ok(Blackout::Daily { from, to, days: days.unwrap_or_default() })
    }
}

/// `22:00`, `22:00:30` or `24:00`, in seconds from midnight.
fn time_of_day(text: &str) -> Result<u32, String> {
    let refused = || format!("{} is not a time of day", crate::problem::quoted(text));
    if matches!(text, "24:00" | "24:00:00") {
        return Ok(DAY_SECS);
    }
    let has_form = matches!(text.len(), 5 | 8)
        && text.bytes().enumerate().all(|(i, byte)| if i % 3 == 2 { byte == b':' } else { byte.is_ascii_digit() });
    let numbers: Vec<i8> = text.split(':').filter_map(|part| part.parse().ok()).collect();
    let (hour, minute, second) = match numbers[..] {
        [hour, minute] if has_form => (hour, minute, 0),
        [hour, minute, second] if has_form => (hour, minute, second),
        _ => return Err(refused()),
    };
    let time = Time::new(hour, minute, second, 0).map_err(|_| refused())?;
    Ok(u32::from(time.hour().unsigned_abs()) * 3_600
        + u32::from(time.minute().unsigned_abs()) * 60
        + u32::from(time.second().unsigned_abs()))
}

fn time_text(seconds: u32) -> String {
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if second == 0 { format!("{hour:02}:{minute:02}") } else { format!("{hour:02}:{minute:02}:{second:02}") }
}

/// A blackout as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlackoutText {
    from: String,
    to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    days: Option<Weekdays>,
}

impl From<Blackout> for BlackoutText {
    fn from(blackout: Blackout) -> BlackoutText {
        match blackout {
            Blackout::Daily { from, to, days } => {
                BlackoutText { from: time_text(from), to: time_text(to), days: Some(days).filter(|days| *days != Weekdays::default()) }
            }
            Blackout::Span { from, to } => BlackoutText { from: from.to_string(), to: to.to_string(), days: None },
        }
    }
}

impl TryFrom<BlackoutText> for Blackout {
    type Error = String;

    fn try_from(text: BlackoutText) -> Result<Blackout, String> {
        Blackout::parse(&text.from, &text.to, text.days).map_err(|(field, message)| format!("{field}: {message}"))
    }
}

impl fmt::Display for Blackout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlackoutText { from, to, days } = (*self).into();
        write!(f, "{from} to {to}")?;
        days.map_or(Ok(()), |days| write!(f, " {days}"))
    }
}

/// Days of the week, as bits from Sunday (bit 0). At least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weekdays(pub u8);

/// The names of weekdays, in the order in which ranges of them are written.
pub(crate) const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Default for Weekdays {
    /// All of them.
    fn default() -> Self {
        Weekdays(0x7f)
    }
}

impl Weekdays {
    /// Whether the day with this place among [`WEEKDAYS`] is one of them.
    fn has(self, place: usize) -> bool {
        self.0 >> ((place + 1) % 7) & 1 == 1
    }
}

impl fmt::Display for Weekdays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut place = 0;
        while place < 7 {
            let length = (place..7).take_while(|place| self.has(*place)).count();
            match length {
                0 => {}
                1 => parts.push(WEEKDAYS[place].to_owned()),
                _ => parts.push(format!("{}-{}", WEEKDAYS[place], WEEKDAYS[place + length - 1])),
            }
            place += length + 1;
        }
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Weekdays {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = |name: &str| {
            let known = WEEKDAYS.iter().position(|day| day.eq_ignore_ascii_case(name.trim()));
            known.ok_or_else(|| format!("{} is not a weekday", crate::problem::quoted(name)))
        };
        let mut bits = 0_u8;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (place(first)?, place(last)?);
            // `sat-mon` goes on over Sunday.
            for step in 0..=(last + 7 - first) % 7 {
                bits |= 1 << ((first + step + 1) % 7);
            }
        }
        Ok(Weekdays(bits))
    }
}

macro_rules! as_text {
    ($($type:ident: $expected:literal),+) => {
        $(
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Text;
                    impl Visitor<'_> for Text {
                        type Value = $type;

                        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                            f.write_str($expected)
                        }

                        fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                            text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
                        }
                    }
                    deserializer.deserialize_str(Text)
                }
            }
        )+
    };
}

as_text! {
    DayRange: "a date such as 2027-02-20, or a range such as 2027-02-06..2027-02-12",
    Moment: "a time such as 2027-01-01T00:00:00 or 2027-01-01T00:00:00Z",
    Weekdays: "weekdays such as mon-fri"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_week_have_one_text() {
        for (text, canonical) in
            [("mon-fri", "mon-fri"), ("SAT,sun", "sat-sun"), ("sun,tue", "tue,sun"), ("sat-mon", "mon,sat-sun"), ("wed", "wed")]
        {
            let days: Weekdays = text.parse().unwrap();
            assert_eq!(days.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse(), Ok(days));
        }
        assert_eq!("mon-sun".parse(), Ok(Weekdays::default()));
        for text in ["", "mon-", "monday", "1-5", "mon fri", "mon-wed-fri"] {
            assert!(text.parse::<Weekdays>().is_err(), "{text}");
        }
    }

    #[test]
    fn dates_exist() {
        for text in ["2027-02-20", "2027-02-06..2027-02-12", "2028-02-29"] {
            assert_eq!(text.parse::<DayRange>().unwrap().to_string(), text);
        }
        for text in ["2027-02-30", "2027-02-29", "20270220", "2027-2-3", "2027-02-12..2027-02-06", "", "2027-02-06..", "tomorrow"] {
            assert!(text.parse::<DayRange>().is_err(), "{text}");
        }
        assert_eq!("2027-02-27..2027-03-01".parse::<DayRange>().unwrap().count(), 3);
    }

    #[test]
    fn moments_are_instants_or_civil_times_in_whole_seconds() {
        for (text, canonical) in [
            ("2027-01-01T00:00:00", "2027-01-01T00:00:00"),
            ("2027-01-01", "2027-01-01T00:00:00"),
            ("2027-01-01T08:00:00+08:00", "2027-01-01T00:00:00Z"),
            ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ] {
            let moment: Moment = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(moment.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(moment));
        }
        for text in [
            "2027-02-30T00:00:00",
            "2027-01-01T25:00:00",
            "2027-01-01T00:00:00.5",
            "2027-01-01T00:00:00.5Z",
            "soon",
            "2027-01-01T",
            "2027-01-01T00:00:00+08:00[Asia/Shanghai]",
        ] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let range = |text: &str| text.parse::<DayRange>().unwrap();
        let mut days =
            Days { exclude: ["2027-02-07..2027-02-12", "2027-01-01", "2027-02-06", "2027-02-08"].map(range).to_vec(), include: vec![] };
        days.normalise();
        assert_eq!(days.exclude, ["2027-01-01", "2027-02-06..2027-02-12"].map(range));
        assert_eq!(days.count(), 8);
    }

    #[test]
    fn a_window_of_the_day_has_one_text() {
        let parse = |from, to| Blackout::parse(from, to, None).map(|blackout| blackout.to_string());
        assert_eq!(parse("22:00", "06:00").as_deref(), Ok("22:00 to 06:00"));
        assert_eq!(parse("22:00:00", "00:00").as_deref(), Ok("22:00 to 24:00"));
        assert_eq!(parse("00:00", "24:00").as_deref(), Ok("00:00 to 24:00"));
        assert_eq!(parse("00:00:01", "00:00:02").as_deref(), Ok("00:00:01 to 00:00:02"));
        for (from, to) in
            [("22:00", "22:00"), ("00:00", "00:00"), ("24:00", "00:00"), ("25:00", "01:00"), ("9:00", "10:00"), ("22:00", "2027-01-01")]
        {
            assert!(parse(from, to).is_err(), "{from} {to}");
        }
    }
}
