//! When a task fires next, and what makes it fire, in words.

use punctual_core::cron::{Occurrence, Planned, Series};
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::time::{Millis, Timestamp};
use punctual_spec::duration;
use punctual_spec::spec::{self, TaskSpec};

use super::page::Lang;
use super::show::Time;
use super::terms;
use super::words::Words;
use crate::api::fires::{Ahead, ahead};

/// A fire time to come, or neighbours that are left out.
pub(super) struct Fire {
    pub(super) at: Time,
    /// By the clock of the task's zone, with its offset; empty where the task has no zone.
    pub(super) local: String,
    /// What is special about it.
    pub(super) note: String,
    pub(super) is_left_out: bool,
}

/// Fire times to come, as a table.
#[derive(Default)]
pub(super) struct Fires {
    pub(super) rows: Vec<Fire>,
    /// The name of the zone that the task goes by; empty where it has none.
    pub(super) zone: String,
    pub(super) has_notes: bool,
}

/// Those of a definition.
pub(super) fn fires(definition: &TaskDefinition, cursor: Option<Timestamp>, after: Timestamp, count: usize, lang: Lang) -> Fires {
    let rows = if definition.enabled { next(&definition.trigger, cursor, after, count, lang) } else { Vec::new() };
    let zone = zone(definition).and_then(|zone| zone.iana_name()).unwrap_or_default().to_owned();
    Fires { has_notes: rows.iter().any(|fire| !fire.note.is_empty()), rows, zone }
}

/// The next fire times after `after`, with what is left out between them; `count` lines at most.
fn next(trigger: &Trigger, cursor: Option<Timestamp>, after: Timestamp, count: usize, lang: Lang) -> Vec<Fire> {
    let plain = |at| Fire { at: Time(at), local: String::new(), note: String::new(), is_left_out: false };
    match ahead(trigger, cursor, after, count) {
        Ahead::Planned(planned) => planned.iter().map(|planned| of(planned, lang)).collect(),
        Ahead::Plain(times) => times.into_iter().map(plain).collect(),
    }
}

fn of(planned: &Planned, lang: Lang) -> Fire {
    let join = |parts: &[&str]| parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("; ");
    match planned {
        Planned::Fires { at, is_included } => {
            let included = if *is_included { lang.pick("included day", "纳入日") } else { "" };
            Fire { at: Time(at.at), local: local(at), note: join(&[terms::mark(at.mark, lang), included]), is_left_out: false }
        }
        Planned::LeftOut { first, last, count, reason } => {
            let reason = terms::left_out(*reason, lang);
            let note = match count {
                1 => reason.to_owned(),
                count => format!("{reason} ({count}, – {})", last.local.strftime("%Y-%m-%d %H:%M")),
            };
            Fire { at: Time(first.at), local: local(first), note, is_left_out: true }
        }
    }
}

/// By the clock on the wall, with the offset from UTC.
fn local(occurrence: &Occurrence) -> String {
    clock(&occurrence.local, occurrence.offset.seconds())
}

fn clock(local: &jiff::civil::DateTime, offset_seconds: i32) -> String {
    let (sign, size) = (if offset_seconds < 0 { '-' } else { '+' }, offset_seconds.unsigned_abs());
    let format = if local.second() == 0 { "%a %Y-%m-%d %H:%M" } else { "%a %Y-%m-%d %H:%M:%S" };
    format!("{} {sign}{:02}:{:02}", local.strftime(format), size / 3_600, size / 60 % 60)
}

/// An instant by the clock of a zone.
pub(super) fn in_zone(at: Timestamp, zone: &jiff::tz::TimeZone) -> Option<String> {
    let instant = jiff::Timestamp::from_millisecond(at.0).ok()?;
    let offset = zone.to_offset(instant);
    Some(clock(&offset.to_datetime(instant), offset.seconds()))
}

/// The zone that a trigger's times are of, with its name.
pub(super) fn zone(definition: &TaskDefinition) -> Option<&jiff::tz::TimeZone> {
    match &definition.trigger {
        Trigger::Cron(schedule) => Some(schedule.zone()),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(schedule) => Some(schedule.zone()),
            _ => None,
        },
        _ => None,
    }
}

/// What makes a task fire, short enough for a list.
pub(super) fn trigger_in_short(spec: &TaskSpec, w: &Words) -> String {
    match &spec.trigger {
        spec::Trigger::Cron(cron) => cron.cron.clone(),
        spec::Trigger::FixedRate(interval) => w.trigger_rate.replace("{}", &duration::format(*interval)),
        spec::Trigger::FixedDelay(interval) => w.trigger_delay_after_end.replace("{}", &duration::format(*interval)),
        spec::Trigger::Delay(delay) => w.trigger_once.replace("{}", &duration::format(*delay)),
        spec::Trigger::Manual if !spec.after.is_empty() => {
            let names: Vec<_> = spec.after.iter().take(3).map(|after| after.task.as_str()).collect();
            w.trigger_after.replace("{}", &names.join(", "))
        }
        spec::Trigger::Manual => w.trigger_manual.to_owned(),
    }
}

/// What makes a task fire, a line for each thing.
pub(super) fn trigger_in_words(spec: &TaskSpec, definition: &TaskDefinition, lang: Lang, w: &Words) -> Vec<String> {
    let mut lines = vec![trigger_in_short(spec, w)];
    if let spec::Trigger::Cron(cron) = &spec.trigger {
        let described = match (&definition.trigger, lang) {
            (Trigger::Cron(schedule), Lang::En) => Some(schedule.expression().describe()),
            (Trigger::Timetable(timetable), Lang::En) => match timetable.series() {
                Series::Cron(schedule) => Some(schedule.expression().describe()),
                _ => None,
            },
            _ => None,
        };
        lines.extend(described);
        lines.push(w.fires_in_zone.replace("{}", &cron.timezone));
    }
    lines.extend(refinements(spec, w));
    for after in &spec.after {
        let on = match after.on {
            spec::On::Success => w.after_success,
            spec::On::Failure => w.after_failure,
            spec::On::Any => w.after_any,
        };
        lines.push(on.replace("{}", &after.task));
    }
    if !spec.enabled {
        lines.push(w.fires_disabled.to_owned());
    }
    lines
}

fn refinements(spec: &TaskSpec, w: &Words) -> Vec<String> {
    let timing = &spec.timing;
    let mut lines = Vec::new();
    lines.extend(timing.starts_at.map(|at| w.fires_from.replace("{}", &at.to_string())));
    lines.extend(timing.ends_at.map(|at| w.fires_until.replace("{}", &at.to_string())));
    if let Some(days) = &timing.calendar {
        let shown = |ranges: &[punctual_spec::timing::DayRange]| {
            let shown: Vec<_> = ranges.iter().take(8).map(ToString::to_string).collect();
            let more = if ranges.len() > 8 { format!(" … ({})", ranges.len()) } else { String::new() };
            shown.join(", ") + &more
        };
        lines.extend((!days.exclude.is_empty()).then(|| w.fires_not_on.replace("{}", &shown(&days.exclude))));
        lines.extend((!days.include.is_empty()).then(|| w.fires_also_on.replace("{}", &shown(&days.include))));
    }
    lines.extend(timing.blackouts.iter().map(|blackout| w.fires_blackout.replace("{}", &blackout.to_string())));
    if timing.jitter > Millis::ZERO {
        lines.push(w.fires_jitter.replace("{}", &duration::format(timing.jitter)));
    }
    lines
}

/// Whether a timetable leaves this out is for the timetable to say: the cursor may stand on a fire time that is.
pub(super) fn next_of(definition: &TaskDefinition, cursor: Option<Timestamp>) -> Option<Timestamp> {
    punctual_core::misfire::fired_from(&definition.trigger, cursor?)
}
