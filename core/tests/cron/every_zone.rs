//! Properties over every IANA zone and every move of its clock from 2000 to 2037.

use crate::{Timestamp, next_times, schedule_with};
use jiff::Timestamp as Instant;
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use punctual_core::cron::{Expression, GapPolicy, OverlapPolicy, Schedule};
use std::collections::BTreeMap;

/// A moment at which a clock is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Move {
    at: Instant,
    before: Offset,
    after: Offset,
}

impl Move {
    /// What the wall clock would have said, had it not been moved.
    fn wall_before(&self) -> DateTime {
        self.before.to_datetime(self.at)
    }

    /// Seconds that the clock goes forward.
    fn jump(&self) -> i32 {
        self.after.seconds() - self.before.seconds()
    }
}

/// Every zone with its moves between two years. Zones that are the same under two names are taken once.
fn zones_with_moves(from_year: i16, until_year: i16) -> Vec<(String, TimeZone, Vec<Move>)> {
    let start = |year: i16| TimeZone::UTC.to_timestamp(jiff::civil::date(year, 1, 1).at(0, 0, 0, 0)).unwrap();
    let mut by_moves = BTreeMap::new();
    for name in jiff::tz::db().available() {
        let zone = crate::zone(name.as_str());
        let mut before = zone.to_offset(start(from_year));
        let mut moves = Vec::new();
        for transition in zone.following(start(from_year)).take_while(|transition| transition.timestamp() < start(until_year + 1)) {
            if transition.offset() != before {
                moves.push(Move { at: transition.timestamp(), before, after: transition.offset() });
                before = transition.offset();
            }
        }
        by_moves.entry(moves).or_insert((name.to_string(), zone));
    }
    by_moves.into_iter().map(|(moves, (name, zone))| (name, zone, moves)).collect()
}

fn stamp(at: Instant) -> Timestamp {
    Timestamp(at.as_millisecond())
}

fn daily(zone: &TimeZone, time: Time) -> Schedule {
    let text = format!("{} {} {} * * *", time.second(), time.minute(), time.hour());
    Schedule::new(Expression::parse(&text, None).unwrap(), zone.clone(), GapPolicy::AfterGap, OverlapPolicy::First)
}

/// The search relies on this to look no farther than the nearest move of the clock.
#[test]
fn no_clock_is_moved_by_a_day_and_two_hours_or_twice_within_that_time() {
    let reach = 26 * 3_600;
    let mut count = 0;
    for (name, _, moves) in zones_with_moves(1800, 2400) {
        for pair in moves.windows(2) {
            let apart = pair[1].at.as_second() - pair[0].at.as_second();
            assert!(apart > reach, "{name}: moved at {} and {}", pair[0].at, pair[1].at);
        }
        assert!(moves.iter().all(|moved| i64::from(moved.jump().abs()) < reach), "{name}");
        count += moves.len();
    }
    assert!(count > 50_000, "only {count} moves");
}

/// Strictly increasing, never at or before `after`, and the same answer for every `after` between one fire time and the next.
#[test]
fn answers_increase_and_depend_on_nothing_but_the_gap_they_are_asked_in() {
    let policies = [
        (GapPolicy::AfterGap, OverlapPolicy::First),
        (GapPolicy::Skip, OverlapPolicy::Both),
        (GapPolicy::ShiftForward, OverlapPolicy::Last),
    ];
    for (name, zone, moves) in zones_with_moves(2000, 2037) {
        for moved in moves {
            let hour_of_move = moved.wall_before().hour();
            let texts = ["*/20 * * * *".to_owned(), format!("10,40 {hour_of_move} * * *"), "30 0-23/3 * * *".to_owned()];
            for (text, (gap, overlap)) in texts.iter().zip(policies.iter().cycle().skip(moved.at.as_second() as usize / 86_400 % 3)) {
                let schedule = Schedule::new(Expression::parse(text, None).unwrap(), zone.clone(), *gap, *overlap);
                let mut after = stamp(moved.at - 5.hours());
                for _ in 0..24 {
                    let next = schedule.next_after(after).unwrap_or_else(|| panic!("{name} {text} ends at {after}"));
                    assert!(next > after, "{name} `{text}`: {next} after {after}");
                    for between in [after.0 + 1, (after.0 + next.0) / 2, next.0 - 1_000, next.0 - 1] {
                        let between = Timestamp(between.clamp(after.0, next.0 - 1));
                        assert_eq!(schedule.next_after(between), Some(next), "{name} `{text}` asked at {between}");
                    }
                    after = next;
                }
            }
        }
    }
}

/// A fixed daily schedule runs exactly once for each local date that exists, at whatever time of day.
#[test]
fn a_fixed_daily_time_runs_once_for_each_local_date() {
    for (name, zone, moves) in zones_with_moves(2000, 2037) {
        for moved in moves {
            let first = moved.wall_before().date().saturating_sub(2.days());
            let dates: Vec<Date> = first.series(1.day()).take(5).collect();
            let midnight = |date: Date| zone.to_timestamp(date.at(0, 0, 0, 0)).unwrap();
            let exists = |date: &&Date| zone.to_datetime(midnight(**date)).date() == **date;
            let (from, until) = (stamp(midnight(first) - 1.second()), stamp(midnight(first.saturating_add(5.days())) - 1.second()));
            let expected = dates.iter().filter(exists).count();
            let around =
                [-3_601, -1_800, -1, 0, 1, 900, 1_800, 3_599, 3_600, 7_200].map(|seconds: i64| moved.wall_before() + seconds.seconds());
            for time in around.map(|wall| wall.time()) {
                let schedule = daily(&zone, time);
                let fired = next_times(&schedule, from, 8).into_iter().take_while(|&at| at <= until).count();
                assert_eq!(fired, expected, "{name} at {time} around {}", moved.at);
                assert_eq!(schedule.count_in(from, until), expected as u64, "{name} at {time} around {}", moved.at);
            }
        }
    }
}

/// A jump of more than three hours catches nothing up, under any policy; there are two in these years, both across the date line.
#[test]
fn a_move_across_the_date_line_catches_nothing_up() {
    let mut found = Vec::new();
    for (name, zone, moves) in zones_with_moves(2000, 2037) {
        for moved in moves.iter().filter(|moved| moved.jump() > 3 * 3_600) {
            for gap in [GapPolicy::AfterGap, GapPolicy::Skip, GapPolicy::ShiftForward] {
                let expression = Expression::parse("30 12 * * *", None).unwrap();
                let schedule = Schedule::new(expression, zone.clone(), gap, OverlapPolicy::First);
                let next = schedule.next_after(stamp(moved.at - 1.hour())).unwrap();
                assert_eq!(zone.to_datetime(Instant::from_millisecond(next.0).unwrap()).time(), jiff::civil::time(12, 30, 0, 0));
            }
            found.push(name.clone());
        }
    }
    assert_eq!(found, ["Pacific/Apia", "Pacific/Fakaofo"]);
}

/// Schedules that fire rarely, asked next to every move of a clock: the answer must be found at once, not stretch by stretch.
#[test]
fn rare_dates_are_found_at_once_from_anywhere() {
    let started = std::time::Instant::now();
    let mut questions = 0_u32;
    for (name, zone, moves) in zones_with_moves(2020, 2037) {
        let Some(moved) = moves.last() else { continue };
        for text in ["0 0 * 2 MON#5", "30 2 29 2 *", "* * 29 2 SUNL"] {
            for (gap, overlap) in [(GapPolicy::AfterGap, OverlapPolicy::First), (GapPolicy::ShiftForward, OverlapPolicy::Last)] {
                let schedule = Schedule::new(Expression::parse(text, None).unwrap(), zone.clone(), gap, overlap);
                assert!(schedule.next_after(stamp(moved.at - 1.minute())).is_some(), "{name} `{text}`");
                questions += 1;
            }
        }
    }
    let each = started.elapsed() / questions;
    assert!(each < std::time::Duration::from_millis(10), "{each:?} each");
}

#[test]
fn the_ends_of_time_are_no_trap() {
    for name in ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Apia"] {
        for (gap, overlap) in [(GapPolicy::AfterGap, OverlapPolicy::First), (GapPolicy::ShiftForward, OverlapPolicy::Last)] {
            for text in ["* * * * *", "30 2 * * *", "0 0 29 2 *"] {
                let schedule = schedule_with(text, None, name, gap, overlap);
                assert!(schedule.next_after(Timestamp::MIN).is_some());
                assert!(schedule.next_after(Timestamp(i64::MIN)).is_some());
                assert_eq!(schedule.next_after(Timestamp::MAX), None);
                assert_eq!(schedule.next_after(Timestamp(i64::MAX)), None);
                assert!(schedule.latest_in(Timestamp(i64::MIN), Timestamp(i64::MAX)).is_some());
            }
        }
    }
}
