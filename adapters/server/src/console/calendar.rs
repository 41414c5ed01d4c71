//! What is to fire in the coming hours, and which minutes have a herd in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Clock};
use punctual_spec::spec::TaskSpec;

use super::Console;
use super::error::{Answer, answered};
use super::fires::trigger_in_short;
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
    let (known, is_cut, _) = tasks_until(&console.api, &viewer.identity, now, until, TASKS_MAX).await?;
    // It takes the processor a while, and leases are renewed meanwhile.
    let working = tokio::task::spawn_blocking(move || worked_out(known, now, until, w));
    let Worked { all, tasks, steady, looped, is_partial } =
        working.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    let is_partial = is_partial || is_cut;
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

/// What the fire times of tasks are.
#[derive(Default)]
struct Worked {
    /// By time; of which of the tasks.
    all: Vec<(Timestamp, usize)>,
    tasks: Vec<(Arc<str>, String)>,
    steady: Vec<Fire>,
    looped: usize,
    is_partial: bool,
}

fn worked_out(known: Vec<ComingOf>, now: Timestamp, until: Timestamp, w: &'static Words) -> Worked {
    let (mut worked, mut fires) = (Worked::default(), 0);
    let most = usize::try_from((until.0 - now.0) / MINUTE_MS).unwrap_or(0);
    for ComingOf { task: view, definition, paused } in known {
        let Some(spec) = TaskSpec::from_json(&view.document).ok().filter(|spec| spec.enabled && !paused) else { continue };
        // Once a minute is as much as can be told apart.
        let behind = Timestamp(now.0.saturating_sub(JUST_DUE_MS));
        let ahead = times(&definition.trigger, Some(view.next_fire), behind).take_while(|at| *at < until);
        let ahead: Vec<_> = ahead.take(most + 1).collect();
        // Those that are not kept took as long.
        fires += ahead.len();
        if fires > FIRES_MAX {
            worked.is_partial = true;
            break;
        }
        let Some(first) = ahead.first().copied() else { continue };
        let trigger = trigger_in_short(&spec, w);
        if ahead.len() > most {
            if worked.steady.len() < STEADY_MAX {
                let address = format!("/tasks/{}", segment(&view.name));
                worked.steady.push(Fire { at: Time(first), address, task: view.name, trigger });
            }
            continue;
        }
        worked.looped += usize::from(definition.trigger.fixed_delay().is_some());
        let task = worked.tasks.len();
        worked.tasks.push((view.name, trigger));
        worked.all.extend(ahead.into_iter().map(|at| (at, task)));
    }
    worked.all.sort_unstable();
    worked
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
