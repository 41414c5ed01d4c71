//! Cron, from outside: the corpus of public bug reports, every zone of the database, and a slow oracle that follows the rules literally.

#![allow(clippy::disallowed_methods, reason = "tests are part of the world that core is kept from")]

mod corpus;
mod counting;
mod every_zone;
mod explaining;
mod oracle;
mod parsing;
mod timetables;
mod words;

use jiff::tz::TimeZone;
use punctual_core::cron::{Dialect, Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::time::Timestamp;

/// A zone from the data that comes with the tests.
fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// An instant from RFC 3339.
fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_millisecond())
}

/// A schedule with the default policies.
fn schedule(expression: &str, zone_name: &str) -> Schedule {
    schedule_with(expression, None, zone_name, GapPolicy::default(), OverlapPolicy::default())
}

fn schedule_with(expression: &str, dialect: Option<Dialect>, zone_name: &str, gap: GapPolicy, overlap: OverlapPolicy) -> Schedule {
    let parsed = Expression::parse(expression, dialect).unwrap_or_else(|error| panic!("{expression}: {error}"));
    Schedule::new(parsed, zone(zone_name), gap, overlap)
}

/// The next fire times, at most `count`.
fn next_times(schedule: &Schedule, after: Timestamp, count: usize) -> Vec<Timestamp> {
    std::iter::successors(schedule.next_after(after), |at| schedule.next_after(*at)).take(count).collect()
}

#[test]
fn every_file_of_this_folder_is_a_module() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cron");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").expect("only Rust files here");
        assert!(module == "main" || include_str!("main.rs").contains(&format!("mod {module};")), "{name} is forgotten");
    }
}
