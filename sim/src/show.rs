//! A history in words, a line a record.

use std::fmt::Write as _;

use punctual_core::batch::Batch;
use punctual_core::instance::InstanceRow;

use crate::history::{Record, What};

/// A record as a line of text.
pub fn line(index: usize, record: &Record) -> String {
    let Record { at, wall, who, what } = record;
    let who = format!("{who:?}");
    let what = match what {
        What::Committed(batch) => format!("commit of {}: {}", batch.replica, in_words(batch)),
        What::Defined { entry, task, partition, version, definition } => {
            let what = definition.as_ref().map_or("removed".to_owned(), |definition| {
                let enabled = if definition.enabled { "" } else { ", disabled" };
                format!("{}: {}{enabled}", definition.name, trigger(&definition.trigger))
            });
            format!("task {task} of partition {partition} version {version} is {what} (entry {entry})")
        }
        other => format!("{other:?}"),
    };
    format!("{index:>6} {:>9.3}s {wall} {who:<12} {what}", *at as f64 / 1_000.0)
}

fn trigger(trigger: &punctual_core::definition::Trigger) -> String {
    use punctual_core::cron::Series;
    use punctual_core::definition::Trigger;
    match trigger {
        Trigger::Cron(schedule) => format!("cron: {}", schedule.expression().describe()),
        Trigger::FixedRate { interval } => format!("every {} ms", interval.0),
        Trigger::FixedDelay { interval } => format!("{} ms after its end", interval.0),
        Trigger::Delay { delay } => format!("once after {} ms", delay.0),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(schedule) => format!("cron, refined: {}", schedule.expression().describe()),
            Series::FixedRate(interval) => format!("every {} ms, refined", interval.0),
            Series::FixedDelay(interval) => format!("{} ms after its end, refined", interval.0),
        },
        Trigger::Manual => "manual".to_owned(),
    }
}

fn in_words(batch: &Batch) -> String {
    let mut text = String::new();
    for lease in &batch.leases {
        _ = write!(text, "[{}: epoch {} commit {}] ", lease.partition, lease.epoch, lease.commit_seq);
    }
    for row in &batch.inserts {
        _ = write!(text, "new {}; ", row_in_words(row, 0));
    }
    for update in &batch.updates {
        let known = update.row.transitions.iter().rposition(|transition| transition.to == update.expected_state).map_or(0, |last| last + 1);
        _ = write!(text, "{}; ", row_in_words(&update.row, known));
    }
    for task in &batch.tasks {
        let next = task.next_fire.map_or("never".to_owned(), |next| next.to_string());
        let until = task.fired_until.map_or("nothing".to_owned(), |until| until.to_string());
        match task.version {
            Some(version) => _ = write!(text, "task {} version {version} next {next} fired until {until}; ", task.task),
            None => _ = write!(text, "task {} removed; ", task.task),
        }
    }
    for run in &batch.occurrences {
        let (first, last, outcome) = (run.first, run.last, run.outcome.name());
        _ = write!(text, "task {} {} fire times {first}..{last} {outcome} {:?}; ", run.task, run.count, run.instance);
    }
    if !batch.applied.is_empty() {
        let applied: Vec<_> = batch.applied.iter().map(|entry| entry.0).collect();
        _ = write!(text, "entries {applied:?} applied");
    }
    text
}

fn row_in_words(row: &InstanceRow, known: usize) -> String {
    let steps: Vec<_> = row.transitions[known.min(row.transitions.len())..]
        .iter()
        .map(|step| format!("{} ({}) at {}", step.to.name(), step.cause.name(), step.at))
        .collect();
    format!("{} of task {} for {} fence {}: {}", row.id, row.task, row.fire_time, row.fence, steps.join(", "))
}
