//! Marks of explained fire times.

use crate::{at, schedule, schedule_with};
use punctual_core::cron::{GapPolicy, Mark, OverlapPolicy, Schedule};

/// Local time, offset and mark of the next fire times, one a line.
fn explained(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
    let line = |occurrence: &punctual_core::cron::Occurrence| format!("{} {} {:?}", occurrence.local, occurrence.offset, occurrence.mark);
    schedule.explain(at(after), count).iter().map(line).collect()
}

#[test]
fn a_missing_time_is_marked_as_made_up_after_the_gap() {
    let nightly = schedule("30 2 * * *", "America/New_York");
    let expected = ["2025-03-08T02:30:00 -05 Normal", "2025-03-09T03:00:00 -04 AfterGap", "2025-03-10T02:30:00 -04 Normal"];
    assert_eq!(explained(&nightly, "2025-03-07T12:00:00Z", 3), expected);
}

#[test]
fn a_shifted_time_is_marked() {
    let nightly = schedule_with("30 2,3 * * *", None, "America/New_York", GapPolicy::ShiftForward, OverlapPolicy::First);
    let expected = ["2025-03-09T03:30:00 -04 DayOfTransition", "2025-03-10T02:30:00 -04 Normal"];
    assert_eq!(explained(&nightly, "2025-03-09T05:00:00Z", 2), expected, "03:30 fires for itself; the shifted 02:30 is the same instant");
    let nightly = schedule_with("30 2 * * *", None, "America/New_York", GapPolicy::ShiftForward, OverlapPolicy::First);
    assert_eq!(explained(&nightly, "2025-03-09T05:00:00Z", 1), ["2025-03-09T03:30:00 -04 ShiftedFromGap"]);
}

#[test]
fn passes_of_a_repeated_hour_are_marked() {
    let both = schedule_with("30 1 * * *", None, "America/New_York", GapPolicy::AfterGap, OverlapPolicy::Both);
    let expected = ["2026-11-01T01:30:00 -04 FirstPass", "2026-11-01T01:30:00 -05 SecondPass", "2026-11-02T01:30:00 -05 Normal"];
    assert_eq!(explained(&both, "2026-11-01T04:00:00Z", 3), expected);
    let hourly = schedule("0 * * * *", "America/New_York");
    let expected = ["2026-11-01T00:00:00 -04 DayOfTransition", "2026-11-01T01:00:00 -04 FirstPass", "2026-11-01T01:00:00 -05 SecondPass"];
    assert_eq!(explained(&hourly, "2026-11-01T03:30:00Z", 3), expected);
}

#[test]
fn the_day_of_a_move_is_marked_before_and_after_it() {
    let noon = schedule("0 0,12 * * *", "Europe/Berlin");
    let expected = [
        "2026-03-28T12:00:00 +01 Normal",
        "2026-03-29T00:00:00 +01 DayOfTransition",
        "2026-03-29T12:00:00 +02 DayOfTransition",
        "2026-03-30T00:00:00 +02 Normal",
    ];
    assert_eq!(explained(&noon, "2026-03-28T06:00:00Z", 4), expected);
}

#[test]
fn a_schedule_that_ends_explains_fewer() {
    let once = schedule("0 0 0 1 1 ? 2028", "UTC");
    assert_eq!(once.explain(at("2026-01-01T00:00:00Z"), 10).len(), 1);
    assert_eq!(once.explain(at("2029-01-01T00:00:00Z"), 10).len(), 0);
    assert_eq!(Mark::AfterGap.to_string(), "after the gap");
}
