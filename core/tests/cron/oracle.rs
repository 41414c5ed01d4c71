//! A slow oracle: it walks real time minute by minute, reads the wall clock each minute and follows the rules literally.
//!
//! It shares nothing with the code under test: expressions are drawn as a model (sets of values and a text that means the same), dates
//! are matched by asking jiff's calendar, and gaps and overlaps are noticed by looking at the clock, not by asking for transitions.

use crate::{next_times, schedule_with};
use jiff::Timestamp as Instant;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, ToSpan};
use proptest::prelude::*;
use proptest::sample::select;
use punctual_core::cron::{Dialect, GapPolicy, OverlapPolicy};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A plain field: its text and what it means.
#[derive(Clone, Debug)]
struct Field {
    text: String,
    values: BTreeSet<i8>,
}

/// One item of a day field.
#[derive(Clone, Debug)]
enum DayItem {
    Plain(Field),
    DaysBeforeLast(i8),
    NearestWorkday(i8),
    LastWorkday,
    Nth(i8, i8),
    LastWeekday(i8),
}

/// An expression: its text (six fields) and what it means.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    second: Field,
    minute: Field,
    hour: Field,
    day: DayItem,
    month: Field,
    weekday: DayItem,
}

/// A field of a single number.
fn fixed(text: &str) -> Field {
    Field { text: text.to_owned(), values: [text.parse().unwrap()].into() }
}

/// A field that lists its values.
fn listed(values: BTreeSet<i8>) -> Field {
    Field { text: values.iter().map(i8::to_string).collect::<Vec<_>>().join(","), values }
}

/// A field from `minimum` to `maximum`, of every form that plain fields have.
fn field(minimum: i8, maximum: i8) -> impl Strategy<Value = Field> {
    let all: BTreeSet<i8> = (minimum..=maximum).collect();
    let span = maximum - minimum + 1;
    let value = minimum..=maximum;
    prop_oneof![
        2 => Just(Field { text: "*".to_owned(), values: all }),
        3 => value.clone().prop_map(|value| Field { text: value.to_string(), values: [value].into() }),
        1 => (1..span).prop_map(move |step| Field {
            text: format!("*/{step}"),
            values: (minimum..=maximum).step_by(step as usize).collect(),
        }),
        1 => (value.clone(), 1..span).prop_map(move |(start, step)| Field {
            text: format!("{start}/{step}"),
            values: (start..=maximum).step_by(step as usize).collect(),
        }),
        2 => (value.clone(), value.clone(), 1..span).prop_map(move |(start, end, step)| {
            let mut sequence = vec![start];
            while sequence.last() != Some(&end) {
                let last = sequence[sequence.len() - 1];
                sequence.push(if last == maximum { minimum } else { last + 1 });
            }
            Field { text: format!("{start}-{end}/{step}"), values: sequence.into_iter().step_by(step as usize).collect() }
        }),
        2 => proptest::collection::btree_set(value, 1..5).prop_map(listed),
    ]
}

fn model(time_fields: impl Strategy<Value = (Field, Field, Field)>) -> impl Strategy<Value = Model> {
    let day = prop_oneof![
        6 => field(1, 31).prop_map(DayItem::Plain),
        1 => (0..=30_i8).prop_map(DayItem::DaysBeforeLast),
        1 => (1..=31_i8).prop_map(DayItem::NearestWorkday),
        1 => Just(DayItem::LastWorkday),
    ];
    let weekday = prop_oneof![
        6 => field(0, 6).prop_map(DayItem::Plain),
        1 => (0..=6_i8, 1..=5_i8).prop_map(|(weekday, nth)| DayItem::Nth(weekday, nth)),
        1 => (0..=6_i8).prop_map(DayItem::LastWeekday),
    ];
    (time_fields, day, field(1, 12), weekday).prop_map(|((second, minute, hour), day, month, weekday)| Model {
        second,
        minute,
        hour,
        day,
        month,
        weekday,
    })
}

/// Expressions of which the time of day matters more than the date: for walks across a move of the clock.
fn daily_model() -> impl Strategy<Value = Model> {
    let second = prop_oneof![8 => Just(fixed("0")), 1 => field(0, 59)];
    // The hours around midnight are those in which clocks are moved.
    let early = proptest::collection::btree_set(prop_oneof![0..=4_i8, 22..=23_i8], 1..4).prop_map(listed);
    let hour = prop_oneof![field(0, 23), early];
    (model((second, field(0, 59), hour)), 0..4).prop_map(|(mut model, keep_weekday)| {
        let star = |minimum: i8, maximum: i8| Field { text: "*".to_owned(), values: (minimum..=maximum).collect() };
        model.month = star(1, 12);
        model.day = DayItem::Plain(star(1, 31));
        if keep_weekday > 0 {
            model.weekday = DayItem::Plain(star(0, 6));
        }
        model
    })
}

/// Any expression that tests of other modules may want, as text for [`Dialect::Seconds6`].
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    model((field(0, 59), field(0, 59), field(0, 23))).prop_map(|model| model.text())
}

impl DayItem {
    fn text(&self) -> String {
        match self {
            DayItem::Plain(field) => field.text.clone(),
            DayItem::DaysBeforeLast(0) => "L".to_owned(),
            DayItem::DaysBeforeLast(days) => format!("L-{days}"),
            DayItem::NearestWorkday(day) => format!("{day}W"),
            DayItem::LastWorkday => "LW".to_owned(),
            DayItem::Nth(weekday, nth) => format!("{weekday}#{nth}"),
            DayItem::LastWeekday(weekday) => format!("{weekday}L"),
        }
    }

    fn matches(&self, date: Date, value: i8) -> bool {
        let weekday = |number: i8| Weekday::from_sunday_zero_offset(number).unwrap();
        let is_workday = |date: &Date| !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday);
        // Workdays of the month, the nearest to a date first; between Friday and Monday at equal distance cannot happen.
        let nearest = |to: Date| {
            let days = (1..=date.days_in_month()).map(|day| Date::new(date.year(), date.month(), day).unwrap());
            days.filter(is_workday).min_by_key(|day| (day.day() - to.day()).abs())
        };
        match self {
            DayItem::Plain(field) => field.values.contains(&value),
            DayItem::DaysBeforeLast(days) => date.day() == date.days_in_month() - days,
            DayItem::NearestWorkday(day) => Date::new(date.year(), date.month(), *day).is_ok_and(|to| nearest(to) == Some(date)),
            DayItem::LastWorkday => nearest(date.last_of_month()) == Some(date),
            DayItem::Nth(number, nth) => date.nth_weekday_of_month(*nth, weekday(*number)).is_ok_and(|nth| nth == date),
            DayItem::LastWeekday(number) => date.nth_weekday_of_month(-1, weekday(*number)).is_ok_and(|last| last == date),
        }
    }
}

impl Model {
    pub(crate) fn text(&self) -> String {
        let Model { second, minute, hour, day, month, weekday } = self;
        format!("{} {} {} {} {} {}", second.text, minute.text, hour.text, day.text(), month.text, weekday.text())
    }

    fn matches_date(&self, date: Date) -> bool {
        let by_day = self.day.matches(date, date.day());
        let by_weekday = self.weekday.matches(date, date.weekday().to_sunday_zero_offset());
        let unrestricted = |item: &DayItem| item.text().starts_with('*');
        let day_fields = if unrestricted(&self.day) || unrestricted(&self.weekday) { by_day && by_weekday } else { by_day || by_weekday };
        self.month.values.contains(&date.month()) && day_fields
    }

    fn matches_minute(&self, wall: DateTime) -> bool {
        self.hour.values.contains(&wall.hour()) && self.minute.values.contains(&wall.minute()) && self.matches_date(wall.date())
    }

    fn is_real_time(&self) -> bool {
        [&self.second, &self.minute, &self.hour].into_iter().any(|field| field.text.starts_with('*'))
    }

    /// Every fire time after `from` until `until`, both on whole minutes.
    fn fire_times(&self, zone: &TimeZone, gap: GapPolicy, overlap: OverlapPolicy, from: Instant, until: Instant) -> Vec<Timestamp> {
        let mut minutes: BTreeSet<Instant> = BTreeSet::new();
        let mut alone: BTreeSet<Instant> = BTreeSet::new();
        let mut passes: BTreeMap<DateTime, Vec<Instant>> = BTreeMap::new();
        let minute = SignedDuration::from_mins(1);
        // A little earlier and later, for passes and shifts that reach in.
        let (mut at, end) = (from - 30.hours(), until + 30.hours());
        let mut expected_wall = zone.to_datetime(at);
        while at <= end {
            let wall = zone.to_datetime(at);
            let jump = wall.duration_since(expected_wall);
            if jump > SignedDuration::ZERO && jump <= SignedDuration::from_hours(3) && !self.is_real_time() {
                let mut missing = expected_wall;
                while missing < wall {
                    if self.matches_minute(missing) {
                        match gap {
                            GapPolicy::AfterGap => _ = alone.insert(at),
                            GapPolicy::Skip => {}
                            GapPolicy::ShiftForward => _ = minutes.insert(at + missing.duration_since(expected_wall)),
                        }
                    }
                    missing += minute;
                }
            }
            if self.matches_minute(wall) {
                passes.entry(wall).or_default().push(at);
            }
            expected_wall = wall + minute;
            at += minute;
        }
        for instants in passes.values() {
            match overlap {
                _ if self.is_real_time() => minutes.extend(instants),
                OverlapPolicy::Both => minutes.extend(instants),
                OverlapPolicy::First => _ = minutes.insert(instants[0]),
                OverlapPolicy::Last => _ = minutes.insert(instants[instants.len() - 1]),
            }
        }
        let seconds = minutes.iter().flat_map(|minute| self.second.values.iter().map(|&second| *minute + i64::from(second).seconds()));
        let all: BTreeSet<Instant> = seconds.chain(alone).filter(|at| (from..=until).contains(at) && *at > from).collect();
        all.into_iter().map(|at| Timestamp(at.as_millisecond())).collect()
    }
}

const GAPS: [GapPolicy; 3] = [GapPolicy::AfterGap, GapPolicy::Skip, GapPolicy::ShiftForward];
const OVERLAPS: [OverlapPolicy; 3] = [OverlapPolicy::First, OverlapPolicy::Both, OverlapPolicy::Last];

/// Moves of the clock that differ in kind: zone and an instant of the day.
const MOVES: [(&str, &str); 16] = [
    ("America/New_York", "2025-03-09T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"), // midnight is missing
    ("America/Sao_Paulo", "2019-02-17T02:00:00Z"), // the hour before midnight comes twice
    ("Africa/Cairo", "2023-10-26T21:00:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T15:30:00Z"), // half an hour
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Antarctica/Troll", "2025-03-30T01:00:00Z"), // two hours
    ("Antarctica/Troll", "2025-10-26T01:00:00Z"),
    ("Pacific/Chatham", "2025-09-27T14:00:00Z"),
    ("Africa/Casablanca", "2025-02-23T02:00:00Z"), // winter in spring
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),      // a day is missing
    ("Antarctica/Casey", "2010-03-04T15:00:00Z"),  // three hours back
    ("Antarctica/Casey", "2016-10-21T16:00:00Z"),  // three hours forward
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"),    // the half hour before midnight is missing
    ("America/Caracas", "2016-05-01T07:00:00Z"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fire_times_around_a_move_of_the_clock_agree(
        model in daily_model(),
        (zone_name, moved_at) in select(&MOVES[..]),
        gap in select(&GAPS[..]),
        overlap in select(&OVERLAPS[..]),
        start_minutes_before in 0..1_600_i64,
    ) {
        let schedule = schedule_with(&model.text(), Some(Dialect::Seconds6), zone_name, gap, overlap);
        let moved_at: Instant = moved_at.parse().unwrap();
        let (from, until) = (moved_at - start_minutes_before.minutes(), moved_at + 30.hours());
        let expected = model.fire_times(&crate::zone(zone_name), gap, overlap, from, until);
        // No need to walk a one-second schedule to its end.
        let count = expected.len().min(3_000);
        let got = next_times(&schedule, Timestamp(from.as_millisecond()), count);
        prop_assert_eq!(&got[..], &expected[..count], "`{}` in {} from {}", model.text(), zone_name, from);
        let (after, last) = (Timestamp(from.as_millisecond()), Timestamp(until.as_millisecond()));
        prop_assert_eq!(schedule.count_in(after, last), expected.len() as u64, "`{}` in {} from {}", model.text(), zone_name, from);
        prop_assert_eq!(schedule.latest_in(after, last), expected.last().copied());
    }

    #[test]
    fn dates_agree_day_by_day(model in model((Just(fixed("0")), Just(fixed("0")), Just(fixed("0")))), start in 0..20_000_i64) {
        let from = jiff::civil::date(1970, 1, 1) + start.days();
        let expected: Vec<Date> = (1..=1_500_i64).map(|days| from + days.days()).filter(|&date| model.matches_date(date)).collect();
        match punctual_core::cron::Expression::parse(&model.text(), Some(Dialect::Seconds6)) {
            // Refused: no such date may exist.
            Err(error) => prop_assert!(expected.is_empty(), "`{}`: {}", model.text(), error),
            Ok(_) => {
                let schedule = schedule_with(&model.text(), Some(Dialect::Seconds6), "UTC", GapPolicy::Skip, OverlapPolicy::First);
                let instant = |date: Date| Timestamp(TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).unwrap().as_millisecond());
                let expected: Vec<Timestamp> = expected.into_iter().map(instant).collect();
                prop_assert_eq!(next_times(&schedule, instant(from), expected.len()), expected.clone(), "`{}`", model.text());
                prop_assert_eq!(schedule.count_in(instant(from), instant(from + 1_500.days())), expected.len() as u64);
            }
        }
    }
}
