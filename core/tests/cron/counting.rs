//! `count_in` and `latest_in` against stepping, and ten years of a one-second schedule.

use crate::{at, next_times, schedule_with};
use proptest::prelude::*;
use proptest::sample::select;
use punctual_core::cron::{Dialect, Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::time::Timestamp;
use std::time::{Duration, Instant};

const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kolkata",
];

#[test]
fn ten_years_of_every_second_are_counted_exactly_and_at_once() {
    let (after, until) = (at("2016-11-29T12:00:00Z"), at("2026-11-29T12:00:00Z"));
    for zone in ["UTC", "America/New_York", "Antarctica/Troll"] {
        let schedule = schedule_with("* * * * * *", None, zone, GapPolicy::default(), OverlapPolicy::default());
        let started = Instant::now();
        assert_eq!(schedule.count_in(after, until), until.since(after).0 / 1_000);
        assert_eq!(schedule.latest_in(after, until), Some(until));
        assert!(started.elapsed() < Duration::from_millis(100), "{zone}: {:?}", started.elapsed());
    }
}

#[test]
fn the_last_fire_time_of_a_rare_schedule_is_found_far_back() {
    let schedule = schedule_with("0 0 29 2 *", None, "Europe/Berlin", GapPolicy::default(), OverlapPolicy::default());
    assert_eq!(schedule.latest_in(at("2020-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z")), Some(at("2024-02-28T23:00:00Z")));
    assert_eq!(schedule.latest_in(at("2024-02-28T23:00:00Z"), at("2028-01-01T00:00:00Z")), None);
    assert_eq!(schedule.latest_in(at("2024-02-28T22:59:59.999Z"), at("2024-02-28T23:00:00Z")), Some(at("2024-02-28T23:00:00Z")));
    assert_eq!(schedule.latest_in(at("2028-01-01T00:00:00Z"), at("2020-01-01T00:00:00Z")), None);
}

/// The clock went back on the last date that the zone's data names one by one; jiff 1.0.2 passes over it when looking back.
#[test]
fn a_repeated_hour_at_the_end_of_explicit_transitions_counts_once() {
    let schedule = schedule_with("30 23 * * *", None, "America/Ciudad_Juarez", GapPolicy::default(), OverlapPolicy::default());
    assert_eq!(schedule.count_in(at("2022-11-29T06:00:00Z"), at("2022-11-30T12:00:00Z")), 1);
    assert_eq!(schedule.next_after(at("2022-11-30T06:10:00Z")), Some(at("2022-12-01T06:30:00Z")));
}

/// 02:30 is missing and 03:00 is not; under each policy some of the instants belong to both.
#[test]
fn an_instant_that_fires_for_itself_and_for_a_missing_time_counts_once() {
    let (after, until) = (at("2025-03-09T05:00:00Z"), at("2025-03-09T12:00:00Z"));
    for (gap, expected) in [(GapPolicy::AfterGap, 2), (GapPolicy::Skip, 2), (GapPolicy::ShiftForward, 2)] {
        let schedule = schedule_with("0,30 2,3 * * *", None, "America/New_York", gap, OverlapPolicy::First);
        assert_eq!(schedule.count_in(after, until), expected, "{gap}");
        assert_eq!(next_times(&schedule, after, 3)[..2], [at("2025-03-09T07:00:00Z"), at("2025-03-09T07:30:00Z")], "{gap}");
    }
}

/// The wall time is behind, but its second pass is ahead, long before the next Sunday.
#[test]
fn a_second_pass_is_not_passed_over_for_the_next_week() {
    let sundays = |text, overlap| schedule_with(text, None, "America/New_York", GapPolicy::default(), overlap);
    let (first_pass, second_pass) = (at("2026-11-01T05:45:00Z"), at("2026-11-01T06:30:00Z"));
    assert_eq!(sundays("*/30 1 * * SUN", OverlapPolicy::First).next_after(first_pass), Some(at("2026-11-01T06:00:00Z")));
    assert_eq!(sundays("30 1 * * SUN", OverlapPolicy::Both).next_after(first_pass), Some(second_pass));
    assert_eq!(sundays("30 1 * * SUN", OverlapPolicy::Last).next_after(first_pass), Some(second_pass));
    assert_eq!(sundays("30 1 * * SUN", OverlapPolicy::First).next_after(first_pass), Some(at("2026-11-08T06:30:00Z")));
}

#[test]
fn a_schedule_of_a_single_year_ends() {
    let schedule = schedule_with("0 0 0 1 1 ? 2028", None, "UTC", GapPolicy::default(), OverlapPolicy::default());
    assert_eq!(next_times(&schedule, at("2026-01-01T00:00:00Z"), 5), [at("2028-01-01T00:00:00Z")]);
    assert_eq!(schedule.next_after(at("2028-01-01T00:00:00Z")), None);
    assert_eq!(schedule.count_in(at("1900-01-01T00:00:00Z"), at("2900-01-01T00:00:00Z")), 1);
    assert_eq!(schedule.next_after(at("0001-01-01T00:00:00Z")), Some(at("2028-01-01T00:00:00Z")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counting_agrees_with_stepping(
        text in crate::oracle::any_text(),
        zone in select(&ZONES[..]),
        gap in select(&[GapPolicy::AfterGap, GapPolicy::Skip, GapPolicy::ShiftForward][..]),
        overlap in select(&[OverlapPolicy::First, OverlapPolicy::Both, OverlapPolicy::Last][..]),
        // Milliseconds from 2008 to 2040.
        after in 1_200_000_000_000..2_200_000_000_000_i64,
        steps in 1..200_usize,
        beyond in 0..5_000_i64,
    ) {
        let Ok(expression) = Expression::parse(&text, Some(Dialect::Seconds6)) else { return Ok(()) };
        let schedule = Schedule::new(expression, crate::zone(zone), gap, overlap);
        let after = Timestamp(after);
        let times = next_times(&schedule, after, steps);
        let last = *times.last().expect("without a year field a schedule does not end");
        let until = Timestamp(schedule.next_after(last).map_or(last.0 + beyond, |next| (last.0 + beyond).min(next.0 - 1)));
        prop_assert_eq!(schedule.count_in(after, until), times.len() as u64, "`{}` in {} from {} to {}", text, zone, after, until);
        prop_assert_eq!(schedule.latest_in(after, until), Some(last), "`{}` in {} from {} to {}", text, zone, after, until);
        prop_assert_eq!(schedule.latest_in(last, until), None);
    }
}
