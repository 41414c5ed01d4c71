//! What is to fire in the coming hours, and which minutes have a herd in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use punctual_core::definition::Trigger;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Clock, StoreError};
use punctual_spec::spec::TaskSpec;

use super::Console;
use super::error::{Answer, answered};
use super::fires;
use super::form::{Fields, Query, segment};
use super::page::{Nav, Page, Viewer};
use super::show::{Count, Time};
use super::words::Words;
use crate::api::fires::{ComingOf, TASKS_MAX, tasks_until, times};

/// Fire times that are worked out.
const FIRES_MAX: usize = 200_000;
/// Tasks that are listed of those that fire all the time.
const STEADY_MAX: usize = 20;
const MINUTE_MS: i64 = 60_000;
/// A fire time that came so lately is still being fired.
const JUST_DUE_MS: i64 = 10_000;
/// So many tasks in a minute are a herd, where that is also so many times what is usual.
const HERD: usize = 10;
const HERD_TIMES_USUAL: usize = 3;
/// Herds that are listed, and tasks of each.
const HERDS: usize = 10;
const TASKS_OF_HERD: usize = 8;
/// Fire times that are listed.
const LISTED: usize = 60;

/// A quarter of an hour.
struct Slot {
    x: usize,
    y: f64,
    height: f64,
    is_herd: bool,
    label: String,
}

struct Herd {
    at: Time,
    count: usize,
    tasks: Vec<(Arc<str>, String)>,
    more: usize,
}

struct Fire {
    at: Time,
    task: Arc<str>,
    address: String,
    trigger: String,
}

#[derive(Template)]
#[template(path = "console/calendar.html")]
struct CalendarPage {
    p: Page,
    w: &'static Words,
    hours: u32,
    all: Count,
    tasks: usize,
    slots: Vec<Slot>,
    width: usize,
    peak: usize,
    herds: Vec<Herd>,
    fires: Vec<Fire>,
    /// Tasks that fire more than once a minute.
    steady: Vec<Fire>,
    is_partial: bool,
    looped: usize,
}

pub(super) async fn page<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer, Query(query): Query) -> Response {
    let answer = show(&console, &viewer, &query).await;
    answered(&viewer, answer)
}

/// Slots of the drawing.
const SLOTS: usize = 96;

async fn show<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, query: &Fields) -> Answer {
    let w = viewer.words();
    let hours: u32 = match query.get("hours") {
        Some("6") => 6,
        Some("168") => 168,
        _ => 24,
    };
    let now = console.api.clock.now().wall;
    let until = now.saturating_add(Millis::from_secs(u64::from(hours) * 3_600));
    let (known, mut is_partial, _) = tasks_until(&console.api, &viewer.identity, now, until, TASKS_MAX).await?;
    let worked_out = tokio::task::spawn_blocking(move || work_out(known, now, until, hours, w)).await;
    let Ok(WorkedOut { mut all, tasks, steady, looped, is_partial: is_cut }) = worked_out else {
        let reason = "the fire times could not be worked out: see the log for a panic".to_owned();
        return Err(StoreError::Other { database: "calendar".to_owned(), reason }.into());
    };
    is_partial |= is_cut;
    all.sort_unstable();
    let herds = herds(&all);
    let link = |task: usize| (tasks[task].0.clone(), format!("/tasks/{}", segment(&tasks[task].0)));
    let shown = herds.iter().take(HERDS).map(|(at, of)| Herd {
        at: Time(*at),
        count: of.len(),
        tasks: of.iter().take(TASKS_OF_HERD).map(|task| link(*task)).collect(),
        more: of.len().saturating_sub(TASKS_OF_HERD),
    });
    let (slots, peak) = slots(&all, &herds, now, until);
    let page = CalendarPage {
        p: viewer.page(Nav::Calendar, w.calendar),
        w,
        hours,
        all: Count(all.len() as u64),
        tasks: tasks.len(),
        width: SLOTS,
        slots,
        peak,
        herds: shown.collect(),
        fires: all
            .iter()
            .take(LISTED)
            .map(|(at, task)| {
                let (name, address) = link(*task);
                Fire { at: Time(*at), task: name, address, trigger: tasks[*task].1.clone() }
            })
            .collect(),
        steady,
        is_partial,
        looped,
    };
    Ok(viewer.show(&page))
}

/// The fire times of tasks.
#[derive(Default)]
struct WorkedOut {
    /// Each with the place of its task.
    all: Vec<(Timestamp, usize)>,
    tasks: Vec<(Arc<str>, String)>,
    steady: Vec<Fire>,
    looped: usize,
    is_partial: bool,
}

/// Takes up to [`FIRES_MAX`] steps: not on a thread that others wait for.
fn work_out(known: Vec<ComingOf>, now: Timestamp, until: Timestamp, hours: u32, w: &Words) -> WorkedOut {
    let (mut done, mut steps) = (WorkedOut::default(), 0);
    // Once a minute is as much as can be told apart.
    let most = hours as usize * 60;
    for ComingOf { task: view, definition, paused } in known {
        let Some(spec) = TaskSpec::from_json(&view.document).ok().filter(|spec| spec.enabled && !paused) else { continue };
        if steps >= FIRES_MAX {
            done.is_partial = true;
            break;
        }
        // Of what is known to fire more often than that the first is enough.
        let is_steady = matches!(definition.trigger, Trigger::FixedRate { interval } if interval.0 < MINUTE_MS.unsigned_abs());
        let most = if is_steady { 0 } else { most };
        let behind = Timestamp(now.0.saturating_sub(JUST_DUE_MS));
        let ahead = times(&definition.trigger, Some(view.next_fire), behind).take_while(|at| *at < until);
        let ahead: Vec<_> = ahead.take(most + 1).collect();
        steps += ahead.len();
        let Some(first) = ahead.first().copied() else { continue };
        let trigger = fires::trigger_in_short(&spec, w);
        if ahead.len() > most {
            if done.steady.len() < STEADY_MAX {
                let address = format!("/tasks/{}", segment(&view.name));
                done.steady.push(Fire { at: Time(first), address, task: view.name, trigger });
            }
            continue;
        }
        if steps > FIRES_MAX {
            done.is_partial = true;
            break;
        }
        done.looped += usize::from(definition.trigger.fixed_delay().is_some());
        let task = done.tasks.len();
        done.tasks.push((view.name, trigger));
        done.all.extend(ahead.into_iter().map(|at| (at, task)));
    }
    done
}

/// Minutes in which many more tasks fire than usual, the largest first.
fn herds(all: &[(Timestamp, usize)]) -> Vec<(Timestamp, Vec<usize>)> {
    let mut minutes: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, task) in all {
        let tasks = minutes.entry(at.0.div_euclid(MINUTE_MS)).or_default();
        // In order of time, a task that fires every second comes again and again.
        if !tasks.contains(task) {
            tasks.push(*task);
        }
    }
    let mut sizes: Vec<usize> = minutes.values().map(Vec::len).collect();
    sizes.sort_unstable();
    let usual = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let is_herd = |count: usize| count >= HERD && count >= usual * HERD_TIMES_USUAL;
    let mut herds: Vec<_> = minutes
        .into_iter()
        .filter(|(_, tasks)| is_herd(tasks.len()))
        .map(|(minute, tasks)| (Timestamp(minute * MINUTE_MS), tasks))
        .collect();
    herds.sort_by_key(|(at, tasks)| (std::cmp::Reverse(tasks.len()), *at));
    herds
}

/// Bars on a field of 96 by 100, and what a full one stands for.
fn slots(all: &[(Timestamp, usize)], herds: &[(Timestamp, Vec<usize>)], from: Timestamp, until: Timestamp) -> (Vec<Slot>, usize) {
    let length = (until.0 - from.0).max(1);
    let slot_of = |at: Timestamp| usize::try_from((at.0 - from.0).max(0) * SLOTS as i64 / length).unwrap_or(0).min(SLOTS - 1);
    let mut counts = [0_usize; SLOTS];
    all.iter().for_each(|(at, _)| counts[slot_of(*at)] += 1);
    let peak = counts.iter().copied().max().unwrap_or(0);
    let has_herd: Vec<usize> = herds.iter().map(|(at, _)| slot_of(*at)).collect();
    let slot = |(x, count): (usize, usize)| {
        let height = if count == 0 { 0.0 } else { (count as f64 * 100.0 / peak as f64).max(2.0) };
        let begin = Timestamp(from.0 + length * x as i64 / SLOTS as i64);
        Slot { x, y: 100.0 - height, height, is_herd: has_herd.contains(&x), label: format!("{begin}: {count}") }
    };
    (counts.into_iter().enumerate().map(slot).collect(), peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(count: usize, trigger: &str) -> Vec<ComingOf> {
        let tasks: String = (0..count).map(|task| format!("  - {{name: t{task}, trigger: {trigger}, command: x}}\n")).collect();
        let file = punctual_spec::file::read_text("t", &format!("tasks:\n{tasks}"), &punctual_spec::zones::Zones::load());
        let tasks = file.unwrap_or_else(|problems| panic!("{problems}")).tasks.into_iter();
        let coming = tasks.map(|task| ComingOf {
            task: punctual_driver::ports::ComingTask {
                name: task.spec.name.as_str().into(),
                version: punctual_core::ids::Version(1),
                document: task.spec.to_json().into(),
                next_fire: Timestamp(1_000),
            },
            definition: (*task.definition).clone(),
            paused: false,
        });
        coming.collect()
    }

    /// Also those of tasks that fire all the time, of which only the first is shown.
    #[test]
    fn no_more_fire_times_are_worked_out_than_are_said() {
        let week = |known| work_out(known, Timestamp(0), Timestamp(7 * 24 * 60 * MINUTE_MS), 7 * 24, &crate::console::words::EN);
        let done = week(known(19, "{cron: \"*/20 * * * * *\"}"));
        assert_eq!((done.steady.len(), done.is_partial), (19, false));
        let done = week(known(40, "{cron: \"*/20 * * * * *\"}"));
        assert_eq!((done.steady.len(), done.is_partial), (20, true));
        // An interval says so by itself.
        let done = week(known(100, "{fixed_rate: 30s}"));
        assert_eq!((done.steady.len(), done.all.len(), done.is_partial), (STEADY_MAX, 0, false));
        let done = week(known(2, "{fixed_rate: 1m}"));
        assert_eq!((done.steady.len(), done.tasks.len(), done.is_partial), (0, 2, false));
    }

    #[test]
    fn a_minute_with_many_more_tasks_than_usual_is_a_herd() {
        let minute =
            |number: i64, tasks: std::ops::Range<usize>| tasks.map(move |task| (Timestamp(number * MINUTE_MS + task as i64), task));
        let mut all: Vec<_> = (0..30).flat_map(|number| minute(number, 0..2)).collect();
        assert!(herds(&all).is_empty());
        all.extend(minute(5, 2..20));
        all.sort_unstable();
        let found = herds(&all);
        assert_eq!((found.len(), found[0].0, found[0].1.len()), (1, Timestamp(5 * MINUTE_MS), 20));
        // The same number in each minute is what is usual.
        let usual: Vec<_> = (0..30).flat_map(|number| minute(number, 0..20)).collect();
        assert!(herds(&usual).is_empty());
        let (slots, peak) = slots(&all, &found, Timestamp(0), Timestamp(96 * MINUTE_MS));
        assert_eq!((slots.len(), peak, slots[5].is_herd, slots[6].is_herd), (SLOTS, 20, true, false));
    }
}
