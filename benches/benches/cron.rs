//! The next fire time in a zone: Punctual's core, the crate `cron` and the crate `croner`, side by side.
//!
//! `corpus` asks what the corpus (`core/tests/data/cron.json`) asks: each row's `after`, then each of its expected answers but the last,
//! in the row's zone. Rows that one of the three cannot parse, or whose zone one of them lacks, are left out for all. Many of them are
//! chosen to be hard (moves of the clock, rare dates); `common` asks about expressions that most tasks have, on ordinary days.
//!
//! Only the time is compared; whether the answers are right is the business of core's tests (the rivals answer some rows wrongly).

use chrono_tz::Tz;
use criterion::{Criterion, Throughput};
use croner::parser::{CronParser, Seconds, Year};
use punctual_core::cron::{Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::time::Timestamp;
use serde_json::Value;
use std::hint::black_box;
use std::str::FromStr;

/// One row, as each of the three wants it.
struct Row {
    ours: Schedule,
    cron: cron::Schedule,
    croner: croner::Cron,
    /// The instants to ask after.
    afters: Vec<(Timestamp, chrono::DateTime<Tz>)>,
}

/// What most tasks have. Weekdays are named, because the three number them differently.
const COMMON: [&str; 8] =
    ["* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * MON-FRI", "15 0-23/2 * * *", "0 0 1 * *", "0 6 * * SUN"];

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    compare(&mut criterion, "cron/corpus", &corpus());
    compare(&mut criterion, "cron/common", &common());
    criterion.final_summary();
}

/// Times the three on the same questions.
fn compare(criterion: &mut Criterion, name: &str, rows: &[Row]) {
    let questions: usize = rows.iter().map(|row| row.afters.len()).sum();
    println!("{name}: {} rows, {questions} questions; divide each time by {questions} for one answer", rows.len());
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(questions as u64));
    group.bench_function("punctual", |bencher| bencher.iter(|| ask(rows, |row, (after, _)| row.ours.next_after(*after))));
    group.bench_function("cron-0.17", |bencher| bencher.iter(|| ask(rows, |row, (_, after)| row.cron.after(after).next())));
    group.bench_function("croner-4", |bencher| bencher.iter(|| ask(rows, |row, (_, after)| row.croner.find_next_occurrence(after, false))));
    group.finish();
}

/// Asks every question of every row.
fn ask<A>(rows: &[Row], answer: impl Fn(&Row, &(Timestamp, chrono::DateTime<Tz>)) -> A) {
    for row in rows {
        for after in &row.afters {
            black_box(answer(row, black_box(after)));
        }
    }
}

/// The rows of the corpus that all three accept.
fn corpus() -> Vec<Row> {
    let corpus: Vec<Value> = serde_json::from_str(include_str!("../../core/tests/data/cron.json")).expect("the corpus is JSON");
    let row_of = |value: &Value| {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let expected = value["expect"].as_array()?;
        let answers = expected.iter().take(expected.len().saturating_sub(1)).filter_map(Value::as_str);
        row(text("expr"), text("dialect"), text("tz"), std::iter::once(text("after")).chain(answers))
    };
    corpus.iter().filter_map(row_of).collect()
}

/// Common expressions in New York, asked at ten odd moments of a year.
fn common() -> Vec<Row> {
    let afters: Vec<String> = (1..=10).map(|month| format!("2026-{month:02}-{:02}T{:02}:17:31Z", month * 2 + 3, month * 2)).collect();
    let row_of = |expr| row(expr, "unix5", "America/New_York", afters.iter().map(String::as_str));
    COMMON.iter().map(|expr| row_of(expr).expect("all three accept common expressions")).collect()
}

fn row<'t>(expr: &str, dialect: &str, zone: &str, afters: impl Iterator<Item = &'t str>) -> Option<Row> {
    let expression = Expression::parse(expr, dialect.parse().ok()).ok()?;
    let ours = Schedule::new(expression, jiff::tz::TimeZone::get(zone).ok()?, GapPolicy::default(), OverlapPolicy::default());
    let with_seconds = if dialect == "unix5" && !expr.starts_with('@') { format!("0 {expr}") } else { expr.to_owned() };
    let cron = cron::Schedule::from_str(&with_seconds).ok()?;
    let croner = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build().parse(expr).ok()?;
    let zone: Tz = zone.parse().ok()?;
    let instants = afters.map(|after| {
        let after: jiff::Timestamp = after.parse().expect("RFC 3339");
        let chrono_after = chrono::DateTime::from_timestamp_millis(after.as_millisecond()).expect("within chrono's bounds");
        (Timestamp(after.as_millisecond()), chrono_after.with_timezone(&zone))
    });
    Some(Row { ours, cron, croner, afters: instants.collect() })
}
