//! The next fire time in a zone: Punctual's core, the crate `cron` and the crate `croner`, side by side.
//!
//! The questions are those of the corpus (`core/tests/data/cron.json`): each row's `after`, then each of its expected answers but the
//! last, in the row's zone. Rows that one of the three cannot parse, or whose zone one of them lacks, are left out for all. Only the time
//! is compared here; whether the answers are right is the business of core's tests (the rivals answer some of these rows wrongly).

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

fn main() {
    let rows = rows();
    let questions: usize = rows.iter().map(|row| row.afters.len()).sum();
    println!("{} rows, {questions} questions: divide each time by {questions} for one answer", rows.len());
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("cron/next_fire");
    group.throughput(Throughput::Elements(questions as u64));
    group.bench_function("punctual", |bencher| bencher.iter(|| ask(&rows, |row, (after, _)| row.ours.next_after(*after))));
    group.bench_function("cron-0.17", |bencher| bencher.iter(|| ask(&rows, |row, (_, after)| row.cron.after(after).next())));
    group.bench_function("croner-4", |bencher| bencher.iter(|| ask(&rows, |row, (_, after)| row.croner.find_next_occurrence(after, false))));
    group.finish();
    criterion.final_summary();
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
fn rows() -> Vec<Row> {
    let corpus: Vec<Value> = serde_json::from_str(include_str!("../../core/tests/data/cron.json")).expect("the corpus is JSON");
    corpus.iter().filter_map(row).collect()
}

fn row(value: &Value) -> Option<Row> {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let expected = value["expect"].as_array()?;
    let (expr, dialect, zone) = (text("expr"), text("dialect"), text("tz"));
    let expression = Expression::parse(expr, dialect.parse().ok()).ok()?;
    let ours = Schedule::new(expression, jiff::tz::TimeZone::get(zone).ok()?, GapPolicy::default(), OverlapPolicy::default());
    let with_seconds = if dialect == "unix5" && !expr.starts_with('@') { format!("0 {expr}") } else { expr.to_owned() };
    let cron = cron::Schedule::from_str(&with_seconds).ok()?;
    let croner = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build().parse(expr).ok()?;
    let zone: Tz = zone.parse().ok()?;
    let answers = expected.iter().take(expected.len().saturating_sub(1)).filter_map(Value::as_str);
    let afters = std::iter::once(text("after")).chain(answers).map(|after| {
        let after: jiff::Timestamp = after.parse().expect("the corpus has instants");
        let chrono_after = chrono::DateTime::from_timestamp_millis(after.as_millisecond()).expect("the instant is within chrono's bounds");
        (Timestamp(after.as_millisecond()), chrono_after.with_timezone(&zone))
    });
    Some(Row { ours, cron, croner, afters: afters.collect() })
}
