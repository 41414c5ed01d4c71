//! `punctual cron explain --task`: the next fire times of a task of a file, with what is left out and why.

use std::path::Path;

use punctual_core::cron::{LeftOut, Occurrence, Planned, Schedule, Series, Timetable};
use punctual_core::definition::Trigger;
use punctual_core::time::{Millis, Timestamp};
use punctual_spec::duration;
use punctual_spec::file::{FileTask, read_file};
use punctual_spec::spec;
use punctual_spec::timing::Timing;
use punctual_spec::zones::Zones;
use serde::Serialize;
use serde_json::json;

use super::super::{Exit, Output};
use super::{Fire, row};

/// Explains a task. `count` lines at most: fire times, and neighbours that are left out.
pub(super) fn explain(file: &Path, name: &str, after: Timestamp, count: usize, json: bool, zones: &Zones, output: &mut Output) -> Exit {
    let tasks = match read_file(file, zones) {
        Ok(tasks) => tasks.tasks,
        Err(problems) => {
            output.remark(problems.to_string().trim_end());
            return Exit::Refused;
        }
    };
    let Some(task) = tasks.iter().find(|task| task.spec.name == name) else {
        let names = tasks.iter().map(|task| task.spec.name.as_str()).take(10).collect::<Vec<_>>().join(", ");
        output.remark(format_args!("{} has no task {name:?}; it has: {names}", file.display()));
        return Exit::Refused;
    };
    let lines = lines(&task.definition.trigger, after, count);
    if json {
        output.json(&Explanation {
            task: name,
            enabled: task.spec.enabled,
            tzdata: zones.version(),
            trigger: trigger_json(task),
            after: after.to_string(),
            next: lines.iter().map(Line::json).collect(),
        });
        return Exit::Done;
    }
    output.line(format_args!("{name}: {} (tzdata {})", heading(task), zones.version()));
    refinements(&task.spec.timing).iter().for_each(|line| output.line(format_args!("  {line}")));
    if !task.spec.enabled {
        output.line("  it is not enabled: it fires by hand only");
    }
    output.line("");
    if lines.is_empty() {
        output.line(match task.definition.trigger {
            Trigger::Cron(_) | Trigger::Timetable(_) => format!("nothing known ahead after {after}"),
            _ => "its fire times count from when it is made, from its last end, or from whoever asks for it".to_owned(),
        });
        return Exit::Done;
    }
    output.line(format_args!("{:<24}{:<11}UTC", "local time", "offset"));
    lines.iter().for_each(|line| output.line(line.text()));
    Exit::Done
}

/// The answer as JSON.
#[derive(Serialize)]
struct Explanation<'a> {
    task: &'a str,
    enabled: bool,
    tzdata: &'a str,
    trigger: serde_json::Value,
    after: String,
    next: Vec<serde_json::Value>,
}

/// One line of the preview.
enum Line {
    Planned(Planned),
    /// Of an interval that counts from an instant.
    Instant(Timestamp),
}

fn lines(trigger: &Trigger, after: Timestamp, count: usize) -> Vec<Line> {
    let plain = |schedule: &Schedule| {
        let fires = schedule.explain(after, count).into_iter();
        fires.map(|at| Line::Planned(Planned::Fires { at, is_included: false })).collect()
    };
    match trigger {
        Trigger::Cron(schedule) => plain(schedule),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(_) => timetable.explain(after, count).into_iter().map(Line::Planned).collect(),
            Series::FixedRate(_) if timetable.window().starts_at.is_some() => instants(timetable, after, count),
            Series::FixedRate(_) | Series::FixedDelay(_) => Vec::new(),
        },
        Trigger::FixedRate { .. } | Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => Vec::new(),
    }
}

fn instants(timetable: &Timetable, after: Timestamp, count: usize) -> Vec<Line> {
    let next = |at: &Timestamp| timetable.next_after(*at);
    std::iter::successors(timetable.next_after(after), next).take(count).map(Line::Instant).collect()
}

impl Line {
    fn text(&self) -> String {
        match self {
            Line::Instant(at) => format!("{:<24}{:<11}{at}", "", ""),
            Line::Planned(Planned::Fires { at, is_included }) => {
                let note = if *is_included { "included day" } else { "" };
                noted(at, note)
            }
            Line::Planned(Planned::LeftOut { first, count: 1, reason, .. }) => noted(first, &format!("left out: {reason}")),
            Line::Planned(Planned::LeftOut { first, last, count, reason }) => {
                let until = last.local.strftime("%a %Y-%m-%d %H:%M:%S");
                noted(first, &format!("left out: {reason}, {count} fire times until {until}"))
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Line::Instant(at) => json!({ "utc": at.to_string(), "fires": true }),
            Line::Planned(Planned::Fires { at, is_included }) => {
                let mut value = json!(Fire::of(at));
                value["fires"] = json!(true);
                value["included_day"] = json!(is_included);
                value
            }
            Line::Planned(Planned::LeftOut { first, last, count, reason }) => {
                let mut value = json!(Fire::of(first));
                value["fires"] = json!(false);
                value["left_out"] = json!(match reason {
                    LeftOut::ExcludedDay => "excluded_day",
                    LeftOut::BlackedOut => "blacked_out",
                });
                value["count"] = json!(count);
                value["until"] = json!(last.at.to_string());
                value
            }
        }
    }
}

fn noted(occurrence: &Occurrence, note: &str) -> String {
    let line = row(occurrence);
    if note.is_empty() { line } else { format!("{line}  {note}") }
}

/// What makes the task fire, in one line.
fn heading(task: &FileTask) -> String {
    match &task.spec.trigger {
        spec::Trigger::Cron(cron) => format!("{}  in {}", cron.cron, cron.timezone),
        spec::Trigger::FixedRate(interval) => format!("every {}", duration::format(*interval)),
        spec::Trigger::FixedDelay(interval) => format!("{} after the last end", duration::format(*interval)),
        spec::Trigger::Delay(delay) => format!("once, {} after it is made or triggered", duration::format(*delay)),
        spec::Trigger::Manual => "by hand".to_owned(),
    }
}

fn trigger_json(task: &FileTask) -> serde_json::Value {
    serde_json::to_value(&task.spec).map(|mut document| document["trigger"].take()).unwrap_or_default()
}

/// What refines the trigger, a line each.
fn refinements(timing: &Timing) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(timing.starts_at.map(|at| format!("from {at}")));
    lines.extend(timing.ends_at.map(|at| format!("until {at} (exclusive)")));
    if let Some(days) = &timing.calendar {
        let some = |ranges: &[punctual_spec::timing::DayRange]| {
            let shown = ranges.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join(", ");
            if ranges.len() > 8 { format!("{shown} and {} more", ranges.len() - 8) } else { shown }
        };
        lines.extend((!days.exclude.is_empty()).then(|| format!("not on {}", some(&days.exclude))));
        lines.extend((!days.include.is_empty()).then(|| format!("also on {}", some(&days.include))));
    }
    lines.extend(timing.blackouts.iter().map(|blackout| format!("blackout {blackout}")));
    if timing.jitter > Millis::ZERO {
        lines.push(format!("each start is put off by up to {}", duration::format(timing.jitter)));
    }
    lines
}
