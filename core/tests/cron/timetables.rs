//! Timetables against enumeration: each fire time of the schedule is looked at by itself, the way the rules say it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan};
use proptest::prelude::*;
use proptest::sample::select;
use punctual_core::cron::{
    Blackouts, Calendar, DailyBlackout, Dialect, Expression, GapPolicy, LeftOut, OverlapPolicy, Planned, Schedule, Series, Timetable,
    Window,
};
use punctual_core::ids::TaskId;
use punctual_core::time::{Millis, Timestamp};

use crate::{at, next_times, schedule};

const ZONES: [&str; 7] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Asia/Shanghai",
    "Pacific/Apia",
    // The clock goes back at midnight, into the day before.
    "America/Sao_Paulo",
];
/// Most fire times that are enumerated.
const STEPS: usize = 600;
const DAY_SECS: i64 = 86_400;

/// What refines a schedule, as lists.
#[derive(Clone, Debug)]
struct Refined {
    exclude: Vec<(Date, Date)>,
    include: Vec<(Date, Date)>,
    daily: Vec<DailyBlackout>,
    spans: Vec<(i64, i64)>,
    window: Window,
}

impl Refined {
    fn timetable(&self, schedule: &Arc<Schedule>, jitter: Millis) -> Timetable {
        let calendar = Calendar::new(self.exclude.clone(), self.include.clone()).expect("no day is both");
        let blackouts = Blackouts::new(self.daily.clone(), self.spans.clone());
        Timetable::new(Series::Cron(Arc::clone(schedule)), self.window, Some(Arc::new(calendar)), blackouts, jitter)
    }

    fn has(ranges: &[(Date, Date)], day: Date) -> bool {
        ranges.iter().any(|(first, last)| (*first..=*last).contains(&day))
    }

    fn left_out(&self, zone: &TimeZone, at: Timestamp) -> Option<LeftOut> {
        let local = zone.to_datetime(jiff::Timestamp::from_millisecond(at.0).unwrap());
        if Refined::has(&self.exclude, local.date()) {
            return Some(LeftOut::ExcludedDay);
        }
        let second = i64::from(local.hour()) * 3_600 + i64::from(local.minute()) * 60 + i64::from(local.second());
        let is_on = |window: &DailyBlackout, day: Date| window.weekdays >> day.weekday().to_sunday_zero_offset() & 1 == 1;
        let is_daily = self.daily.iter().any(|window| {
            let (from, to) = (i64::from(window.from), i64::from(window.to));
            if from < to {
                return is_on(window, local.date()) && (from..to).contains(&second);
            }
            let since_evening = is_on(window, local.date()) && second >= from;
            since_evening || (is_on(window, local.date().yesterday().unwrap()) && second < to)
        });
        let is_once = self.spans.iter().any(|(from, to)| (*from..*to).contains(&at.0.div_euclid(1_000)));
        (is_daily || is_once).then_some(LeftOut::BlackedOut)
    }

    /// The nominal fire times after `after` until `until`, one by one.
    fn nominal(&self, schedule: &Schedule, on_every_date: &Schedule, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let is_included = |at: &Timestamp| {
            Refined::has(&self.include, schedule.zone().to_datetime(jiff::Timestamp::from_millisecond(at.0).unwrap()).date())
        };
        let all = |schedule: &Schedule| {
            let next = |at: &Timestamp| schedule.next_after(*at);
            std::iter::successors(schedule.next_after(after), next).take_while(|at| *at <= until).collect::<Vec<_>>()
        };
        let by_date = all(schedule).into_iter().filter(|at| !is_included(at));
        let on_included = all(on_every_date).into_iter().filter(is_included);
        let in_window =
            |at: &Timestamp| self.window.starts_at.is_none_or(|start| start <= *at) && self.window.ends_at.is_none_or(|end| *at < end);
        by_date.chain(on_included).collect::<BTreeSet<_>>().into_iter().filter(in_window).collect()
    }
}

fn refined(around: i64) -> impl Strategy<Value = Refined> {
    let day = TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(around).unwrap()).date();
    let ranges = || proptest::collection::vec((-3..20_i32, 0..4_i32), 0..5);
    let dates = move |ranges: Vec<(i32, i32)>| -> Vec<(Date, Date)> {
        ranges.into_iter().map(|(from, length)| (day + from.days(), day + (from + length).days())).collect()
    };
    let quarter = |most: u32| (0..most).prop_map(|quarter| quarter * 900);
    let daily = (quarter(96), quarter(97), any::<u8>())
        .prop_filter("not empty", |(from, to, _)| from != to)
        .prop_map(|(from, to, weekdays)| DailyBlackout { from, to, weekdays: weekdays & 0x7f });
    let span = (0..10 * DAY_SECS, 1..2 * DAY_SECS).prop_map(move |(from, length)| (around + from, around + from + length));
    let bound = |range: std::ops::Range<i64>| proptest::option::weighted(0.3, range.prop_map(move |ms| Timestamp(around * 1_000 + ms)));
    (
        ranges(),
        ranges(),
        proptest::collection::vec(daily, 0..3),
        proptest::collection::vec(span, 0..2),
        bound(-1_000..86_400_000 * 3),
        bound(86_400_000 * 3..86_400_000 * 30),
    )
        .prop_map(move |(exclude, include, daily, spans, starts_at, ends_at)| {
            let exclude = dates(exclude);
            let include: Vec<_> =
                dates(include).into_iter().filter(|(first, last)| !exclude.iter().any(|(from, to)| first <= to && from <= last)).collect();
            Refined { exclude, include, daily, spans, window: Window { starts_at, ends_at } }
        })
}

/// Texts with six fields, the last three of which are the date's.
fn on_every_date(text: &str) -> String {
    let times: Vec<_> = text.split(' ').take(3).collect();
    format!("{} * * *", times.join(" "))
}

/// Around moves of the clock, and anywhere.
fn instants() -> impl Strategy<Value = i64> {
    let moves = select(vec![
        at("2026-03-07T12:00:00Z").0 / 1_000,
        at("2026-10-24T12:00:00Z").0 / 1_000,
        at("2026-10-31T12:00:00Z").0 / 1_000,
        at("2026-04-03T12:00:00Z").0 / 1_000,
        at("2018-02-16T12:00:00Z").0 / 1_000,
        at("2018-11-02T12:00:00Z").0 / 1_000,
        at("2011-12-28T12:00:00Z").0 / 1_000,
    ]);
    prop_oneof![moves, 1_200_000_000..2_200_000_000_i64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_timetable_agrees_with_looking_at_each_fire_time(
        text in prop_oneof![crate::oracle::any_text(), Just("0 0,30 * * * *".to_owned()), Just("0 30 9 * * 1-5".to_owned())],
        zone in select(&ZONES[..]),
        gap in select(&[GapPolicy::AfterGap, GapPolicy::Skip, GapPolicy::ShiftForward][..]),
        overlap in select(&[OverlapPolicy::First, OverlapPolicy::Both, OverlapPolicy::Last][..]),
        (around, refined) in instants().prop_flat_map(|around| (Just(around), refined(around))),
    ) {
        let Ok(expression) = Expression::parse(&text, Some(Dialect::Seconds6)) else { return Ok(()) };
        let of = |expression| Schedule::new(expression, crate::zone(zone), gap, overlap);
        let every_date = of(Expression::parse(&on_every_date(&text), Some(Dialect::Seconds6)).unwrap());
        let schedule = Arc::new(of(expression));
        let timetable = refined.timetable(&schedule, Millis::ZERO);
        let after = Timestamp(around * 1_000 - 86_400_000);
        // Whichever is nearer: 25 days, or as many fire times as can be looked at.
        let until = *next_times(&every_date, after, STEPS).last().unwrap();
        let until = until.min(Timestamp(after.0 + 25 * DAY_SECS * 1_000));
        let nominal = refined.nominal(&schedule, &every_date, after, until);
        let fate = |at: &Timestamp| refined.left_out(schedule.zone(), *at);
        let fired: Vec<_> = nominal.iter().copied().filter(|at| fate(at).is_none()).collect();

        let within = |next: Option<Timestamp>| next.filter(|next| *next <= until);
        let stepped: Vec<_> = std::iter::successors(within(timetable.next_after(after)), |at| within(timetable.next_after(*at))).collect();
        prop_assert_eq!(&stepped, &fired, "`{}` in {}", text, zone);
        let next = |at: &Timestamp| within(timetable.next_nominal_after(*at));
        let stepped: Vec<_> = std::iter::successors(within(timetable.next_nominal_after(after)), next).collect();
        prop_assert_eq!(&stepped, &nominal);
        prop_assert_eq!(timetable.count_in(after, until), fired.len() as u64);
        prop_assert_eq!(timetable.count_nominal_in(after, until), nominal.len() as u64);
        prop_assert_eq!(timetable.latest_in(after, until), fired.last().copied());
        prop_assert_eq!(timetable.latest_nominal_in(after, until), nominal.last().copied());
        for run in timetable.left_out_in(after, until) {
            let own: Vec<_> = nominal.iter().filter(|at| fate(at) == Some(run.reason)).collect();
            prop_assert_eq!((run.first, run.last, run.count), (*own[0], **own.last().unwrap(), own.len() as u64));
        }
        let left_out: u64 = timetable.left_out_in(after, until).iter().map(|run| run.count).sum();
        prop_assert_eq!(left_out, (nominal.len() - fired.len()) as u64);
        for at in nominal.iter().take(40) {
            prop_assert_eq!(timetable.left_out(*at), fate(at));
        }
        // Parts add up, wherever they are cut.
        if let Some(cut) = nominal.get(nominal.len() / 2) {
            prop_assert_eq!(timetable.count_in(after, *cut) + timetable.count_in(*cut, until), fired.len() as u64);
        }
    }

    #[test]
    fn a_preview_shows_each_nominal_fire_time_once(
        zone in select(&ZONES[..]),
        (around, refined) in instants().prop_flat_map(|around| (Just(around), refined(around))),
    ) {
        let schedule = Arc::new(schedule("0,30 * * * *", zone));
        let timetable = refined.timetable(&schedule, Millis::ZERO);
        let after = Timestamp(around * 1_000);
        let planned = timetable.explain(after, 30);
        let mut seen = 0;
        let mut last = after;
        for planned in &planned {
            let (first, until, count, reason) = match planned {
                Planned::Fires { at, .. } => (at.at, at.at, 1, None),
                Planned::LeftOut { first, last, count, reason } => (first.at, last.at, *count, Some(*reason)),
            };
            prop_assert!(first > last && until >= first);
            prop_assert_eq!(timetable.left_out(first), reason);
            prop_assert_eq!(timetable.left_out(until), reason);
            (seen, last) = (seen + count, until);
        }
        prop_assert_eq!(timetable.count_nominal_in(after, last), seen);
    }

    #[test]
    fn a_start_is_put_off_by_the_same_amount_each_time_and_never_too_far(
        text in crate::oracle::any_text(),
        zone in select(&ZONES[..]),
        task in any::<u64>(),
        jitter in prop_oneof![0..60_000_u64, 0..86_400_000_u64],
        (around, refined) in instants().prop_flat_map(|around| (Just(around), refined(around))),
    ) {
        let Ok(expression) = Expression::parse(&text, Some(Dialect::Seconds6)) else { return Ok(()) };
        let schedule = Arc::new(Schedule::new(expression, crate::zone(zone), GapPolicy::default(), OverlapPolicy::default()));
        let timetable = refined.timetable(&schedule, Millis(jitter));
        let mut fire_time = timetable.next_after(Timestamp(around * 1_000));
        for _ in 0..10 {
            let Some(at) = fire_time else { break };
            let start = timetable.start_of(TaskId(task), at);
            prop_assert!(start >= at && start.since(at).0 <= jitter);
            prop_assert_eq!(start, refined.timetable(&schedule, Millis(jitter)).start_of(TaskId(task), at));
            if let Some(next) = timetable.next_nominal_after(at) {
                prop_assert!(start < next, "{} starts at {}, behind {}", at, start, next);
            }
            prop_assert!(refined.window.ends_at.is_none_or(|end| start < end));
            prop_assert_eq!(refined.left_out(schedule.zone(), start), None);
            fire_time = timetable.next_after(at);
        }
    }
}

fn nightly_blackout() -> DailyBlackout {
    DailyBlackout { from: 22 * 3_600, to: 6 * 3_600, weekdays: 0x7f }
}

fn within(limit: Duration, what: &str, work: impl FnOnce()) {
    let started = Instant::now();
    work();
    assert!(started.elapsed() < limit, "{what}: {:?}", started.elapsed());
}

fn of(expression: &str, zone: &str, refined: &Refined) -> Timetable {
    refined.timetable(&Arc::new(schedule(expression, zone)), Millis::ZERO)
}

const PLAIN: Refined = Refined {
    exclude: Vec::new(),
    include: Vec::new(),
    daily: Vec::new(),
    spans: Vec::new(),
    window: Window { starts_at: None, ends_at: None },
};

#[test]
fn ten_years_of_every_second_with_blackouts_and_a_calendar_are_counted_at_once() {
    let (after, until) = (at("2016-11-29T12:00:00Z"), at("2026-11-29T12:00:00Z"));
    let day = date(2017, 1, 1);
    let every_month = (0..110).map(|month| day + Span::new().months(month)).map(|day| (day, day)).collect();
    let included = (0..110).map(|month| day + Span::new().months(month).days(10)).map(|day| (day, day)).collect();
    let refined = Refined { exclude: every_month, include: included, daily: vec![nightly_blackout()], ..PLAIN };
    for zone in ["UTC", "America/New_York"] {
        let timetable = of("* * * * * *", zone, &refined);
        within(Duration::from_millis(400), zone, || {
            let left_out = timetable.left_out_in(after, until);
            let fired = timetable.count_in(after, until);
            assert_eq!(fired + left_out.iter().map(|run| run.count).sum::<u64>(), until.since(after).0 / 1_000);
            assert_eq!(left_out.len(), 2);
            assert!(timetable.latest_in(after, until).is_some());
        });
    }
}

#[test]
fn what_can_never_fire_again_says_so_at_once() {
    let whole_day =
        vec![DailyBlackout { from: 0, to: 12 * 3_600, weekdays: 0x7f }, DailyBlackout { from: 12 * 3_600, to: 86_400, weekdays: 0x7f }];
    let from_now = at("2026-11-29T12:00:00Z");
    let over = Window { starts_at: None, ends_at: Some(at("2026-01-01T00:00:00Z")) };
    let cases = [
        ("each hour is blacked out", "* * * * * *", Refined { daily: whole_day, ..PLAIN }),
        ("its own hour is blacked out", "0 23 * * *", Refined { daily: vec![nightly_blackout()], ..PLAIN }),
        ("its seconds are blacked out", "* * 23 * * *", Refined { daily: vec![nightly_blackout()], ..PLAIN }),
        ("the window is over", "* * * * * *", Refined { window: over, ..PLAIN }),
        (
            "each day of the window is excluded",
            "* * * * * *",
            Refined {
                exclude: vec![(date(2027, 1, 1), date(2027, 1, 31))],
                window: Window { starts_at: Some(at("2027-01-01T00:00:00Z")), ends_at: Some(at("2027-02-01T00:00:00Z")) },
                ..PLAIN
            },
        ),
    ];
    for (what, expression, refined) in cases {
        let timetable = of(expression, "UTC", &refined);
        within(Duration::from_millis(250), what, || assert_eq!(timetable.next_after(from_now), None, "{what}"));
    }
}

#[test]
fn the_bounds_of_a_window_are_inclusive_and_exclusive() {
    let window = Window { starts_at: Some(at("2027-01-01T00:00:00Z")), ends_at: Some(at("2027-01-01T03:00:00Z")) };
    let timetable = of("0 * * * *", "UTC", &Refined { window, ..PLAIN });
    let mut fired = Vec::new();
    let mut next = timetable.next_after(at("2026-01-01T00:00:00Z"));
    while let Some(at) = next {
        fired.push(at);
        next = timetable.next_after(at);
    }
    assert_eq!(fired, [at("2027-01-01T00:00:00Z"), at("2027-01-01T01:00:00Z"), at("2027-01-01T02:00:00Z")]);
    // Half a second later the first hour is outside, and the last one inside.
    let window = Window { starts_at: Some(at("2027-01-01T00:00:00.5Z")), ends_at: Some(at("2027-01-01T03:00:00.5Z")) };
    let timetable = of("0 * * * *", "UTC", &Refined { window, ..PLAIN });
    assert_eq!(timetable.count_in(at("2026-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z")), 3);
    assert_eq!(timetable.next_after(at("2026-01-01T00:00:00Z")), Some(at("2027-01-01T01:00:00Z")));
}

#[test]
fn a_rate_with_a_start_keeps_its_phase() {
    let window = Window { starts_at: Some(at("2027-01-01T00:00:07Z")), ends_at: Some(at("2027-01-01T00:01:00Z")) };
    let rate = Timetable::new(Series::FixedRate(Millis::from_secs(20)), window, None, Blackouts::default(), Millis::ZERO);
    assert_eq!(rate.next_after(at("2020-01-01T00:00:00Z")), Some(at("2027-01-01T00:00:07Z")));
    assert_eq!(rate.next_after(at("2027-01-01T00:00:07Z")), Some(at("2027-01-01T00:00:27Z")));
    assert_eq!(rate.next_after(at("2027-01-01T00:00:30Z")), Some(at("2027-01-01T00:00:47Z")));
    assert_eq!(rate.next_after(at("2027-01-01T00:00:47Z")), None);
    assert_eq!(rate.count_in(at("2027-01-01T00:00:07Z"), at("2028-01-01T00:00:00Z")), 2);
    assert_eq!(rate.latest_in(at("2026-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z")), Some(at("2027-01-01T00:00:47Z")));
}

/// The year of a holiday and its make-up workdays in China.
#[test]
fn a_make_up_workday_fires_at_the_times_of_day_of_the_expression() {
    let days = |first: Date, last: Date| vec![(first, last)];
    let refined =
        Refined { exclude: days(date(2027, 2, 6), date(2027, 2, 12)), include: days(date(2027, 2, 20), date(2027, 2, 20)), ..PLAIN };
    let timetable = of("0 9 * * 1-5", "Asia/Shanghai", &refined);
    let fired: Vec<_> = timetable.explain(at("2027-02-04T12:00:00Z"), 9);
    let shown: Vec<_> = fired
        .iter()
        .map(|planned| match planned {
            Planned::Fires { at, is_included } => format!("{}{}", at.local.date(), if *is_included { " included" } else { "" }),
            Planned::LeftOut { first, last, count, reason } => format!("{}..{} {count} {reason}", first.local.date(), last.local.date()),
        })
        .collect();
    let expected = [
        "2027-02-05",
        "2027-02-08..2027-02-12 5 excluded day",
        "2027-02-15",
        "2027-02-16",
        "2027-02-17",
        "2027-02-18",
        "2027-02-19",
        "2027-02-20 included",
        "2027-02-22",
    ];
    assert_eq!(shown, expected);
}
