//! Fire times to come: of a task, and of all tasks in a range.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use axum::Json;
use axum::extract::State;
use punctual_core::cron::{Planned, Series};
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::limits;
use punctual_core::misfire;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Clock, ComingTask, TaskView};
use punctual_spec::zones::Zones;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, Named};
use super::tasks::{checked_limit, find};
use super::views::FireShown;
use super::{Api, ApiError, backfills, views};
use crate::identity::{Identity, Role};

/// Most fire times of one task that are shown.
const COUNT_MAX: usize = 1_000;
/// So many tasks are looked at for a page of what is coming.
pub(crate) const TASKS_MAX: usize = 2_000;
/// So many fire times are counted for warnings behind the last that is shown.
const COUNTED_MAX: usize = 20_000;
/// The longest range of what is coming.
const RANGE_MAX: Millis = Millis::from_secs(93 * 86_400);
/// A minute with so many fire times is a herd, unless the caller says how many.
const HERD: u32 = 60;
const HERD_MAX: u32 = 1_000_000;
const MINUTE_MS: i64 = 60_000;

/// How many fire times, and from when on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextFires {
    /// 10 where it is left out.
    #[schemars(range(min = 1, max = 1_000))]
    count: Option<usize>,
    /// Fire times behind this instant; the present where it is left out.
    #[schemars(extend("format" = "date-time"))]
    after: Option<String>,
}

/// When a task fires next.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Fires {
    task: String,
    /// Of the time zones that they were computed with.
    tzdata: String,
    /// Whether the task fires by itself at all: it is enabled, and no pause holds it.
    fires: bool,
    next_fires: Vec<FireShown>,
}

pub(crate) async fn of_task<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asked(asked): Asked<NextFires>,
) -> Result<Json<Fires>, ApiError> {
    let count = asked.count.unwrap_or(10);
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(ApiError::BadRequest { field: "count", problem: format!("{count} is not within 1 to {COUNT_MAX}") });
    }
    let after = asked.after.map(|text| backfills::instant("after", &text)).transpose()?;
    let (view, _) = find(&api, &name).await?;
    let definition = punctual_spec::decode(&view.document, &api.zones).map_err(|findings| ApiError::BadRequest {
        field: "task",
        problem: format!("this program can't read it: {}", findings.first().map(ToString::to_string).unwrap_or_default()),
    })?;
    let pauses = api.store.pauses().await?;
    let is_held = !super::pauses::of_task(&pauses, &view.name, definition.group.as_deref()).is_empty();
    let next_fires = match definition.enabled && !view.removed {
        true => next(&definition.trigger, view.next_fire, after.unwrap_or(api.clock.now().wall), count),
        false => Vec::new(),
    };
    let fires = definition.enabled && !view.removed && !is_held;
    Ok(Json(Fires { task: name, tzdata: api.zones.version().to_string(), fires, next_fires }))
}

/// That a task fires much later than its trigger says: a clock was wrong when it fired last, and no fire time comes twice.
pub(super) fn warning(view: &TaskView, zones: &Zones, now: Timestamp) -> Option<String> {
    // Most are told apart without their documents.
    let cursor = view.next_fire.filter(|cursor| !view.removed && cursor.since(now) > limits::FIRED_AHEAD_TOLD)?;
    let definition = punctual_spec::decode(&view.document, zones).ok()?;
    let by_trigger = far_ahead(&definition.trigger, cursor, now)?;
    Some(format!(
        "it fires next at {cursor}, although its trigger says {by_trigger}: it was fired by a clock that was far ahead, and no fire time comes twice. \
         Give it another name to have it fire now"
    ))
}

/// When a trigger says that it fires next, if its cursor is much later.
pub(crate) fn far_ahead(trigger: &Trigger, cursor: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let is_far = |from: Timestamp| cursor.since(from) > limits::FIRED_AHEAD_TOLD;
    if !is_far(now) {
        return None;
    }
    misfire::first(trigger, now).filter(|first| is_far(*first))
}

/// Fire times ahead: by the clock of a zone, with what is left out between them, or plain instants.
pub(crate) enum Ahead {
    Planned(Vec<Planned>),
    Plain(Vec<Timestamp>),
}

/// The next fire times of a trigger, and what it leaves out between them. `cursor`: where its owner has come to.
pub(crate) fn ahead(trigger: &Trigger, cursor: Option<Timestamp>, after: Timestamp, count: usize) -> Ahead {
    match trigger {
        Trigger::Cron(schedule) => {
            Ahead::Planned(schedule.explain(after, count).into_iter().map(|at| Planned::Fires { at, is_included: false }).collect())
        }
        Trigger::Timetable(timetable) if matches!(timetable.series(), Series::Cron(_)) => {
            Ahead::Planned(timetable.explain(after, count).into_iter().collect())
        }
        _ => Ahead::Plain(times(trigger, cursor, after).take(count).collect()),
    }
}

/// The same, as answers have it.
pub(super) fn next(trigger: &Trigger, cursor: Option<Timestamp>, after: Timestamp, count: usize) -> Vec<FireShown> {
    match ahead(trigger, cursor, after, count) {
        Ahead::Planned(planned) => planned.iter().map(views::planned).collect(),
        Ahead::Plain(times) => times.into_iter().map(views::plain_fire).collect(),
    }
}

/// The fire times of a trigger behind an instant, from its cursor on.
pub(crate) fn times(trigger: &Trigger, cursor: Option<Timestamp>, after: Timestamp) -> impl Iterator<Item = Timestamp> {
    let first = cursor.and_then(|cursor| misfire::fired_from(trigger, cursor)).and_then(|first| match first > after {
        true => Some(first),
        // Far ahead of the cursor, in one step.
        false => misfire::following(trigger, misfire::last_until(trigger, first, after)),
    });
    std::iter::successors(first, |at| misfire::following(trigger, *at))
}

/// Of which range.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    /// The present where it is left out.
    #[schemars(extend("format" = "date-time"))]
    from: Option<String>,
    /// The instant behind the last; a day after `from` where it is left out.
    #[schemars(extend("format" = "date-time"))]
    to: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
    /// A minute with so many fire times is told of; 60 where it is left out.
    #[schemars(range(min = 2, max = 1_000_000))]
    herd: Option<u32>,
}

/// What is coming, in order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Coming {
    from: String,
    to: String,
    fires: Vec<ComingFire>,
    /// Minutes in which many fire at once, as far as this answer comes.
    herds: Vec<Herd>,
    /// For `from` of the next call; null: this is all until `to`.
    next: Option<String>,
    /// Whether there are so many tasks that not all were looked at: what fires later than `next` may be missing.
    more_tasks: bool,
}

/// A fire time to come.
#[derive(Serialize, JsonSchema)]
struct ComingFire {
    at: String,
    task: String,
    /// Whether a pause holds the task now.
    paused: bool,
}

/// A minute in which many fire at once.
#[derive(Serialize, JsonSchema)]
struct Herd {
    minute: String,
    fires: u32,
}

/// A task that is to fire, as far as somebody sees it.
pub(crate) struct ComingOf {
    pub(crate) task: ComingTask,
    pub(crate) definition: TaskDefinition,
    /// Whether a pause holds it now.
    pub(crate) paused: bool,
}

/// The tasks that fire before an instant, those that do so first; whether there are more than are looked at, and until when all are known.
pub(crate) async fn tasks_until<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    from: Timestamp,
    to: Timestamp,
    most: usize,
) -> Result<(Vec<ComingOf>, bool, Timestamp), ApiError> {
    let tasks = api.store.coming(to, most).await?;
    let pauses = api.store.pauses().await?;
    let more_tasks = tasks.len() == most;
    // What is not looked at fires no earlier than the last that is.
    let to = tasks.last().filter(|_| more_tasks).map_or(to, |last| last.next_fire.max(from).min(to));
    let mut known = Vec::with_capacity(tasks.len());
    for task in tasks {
        let Ok(definition) = punctual_spec::decode(&task.document, &api.zones) else { continue };
        let group = definition.group.as_deref();
        if !identity.may(Role::Viewer, group) {
            continue;
        }
        let paused = !super::pauses::of_task(&pauses, &task.name, group).is_empty();
        known.push(ComingOf { task, definition, paused });
    }
    Ok((known, more_tasks, to))
}

pub(crate) async fn coming<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(range): Asked<Range>,
) -> Result<Json<Coming>, ApiError> {
    let limit = checked_limit(range.limit)?;
    let herd = range.herd.unwrap_or(HERD);
    if !(2..=HERD_MAX).contains(&herd) {
        return Err(ApiError::BadRequest { field: "herd", problem: format!("{herd} is not within 2 to {HERD_MAX}") });
    }
    let at = |field: &'static str, text: Option<String>| text.map(|text| backfills::instant(field, &text)).transpose();
    let from = at("from", range.from)?.unwrap_or(api.clock.now().wall);
    let to = at("to", range.to)?.unwrap_or_else(|| from.saturating_add(Millis::from_secs(86_400)));
    if from >= to || to.since(from) > RANGE_MAX {
        let problem = format!("{to} is not behind {from}, or more than {} days", RANGE_MAX.0 / 86_400_000);
        return Err(ApiError::BadRequest { field: "to", problem });
    }
    let (known, more_tasks, to) = tasks_until(&api, &identity, from, to, TASKS_MAX).await?;
    let mut iterators: Vec<_> = known
        .iter()
        .map(|known| times(&known.definition.trigger, Some(known.task.next_fire), Timestamp(from.0.saturating_sub(1))))
        .collect();
    let mut heads = BinaryHeap::new();
    for (index, times) in iterators.iter_mut().enumerate() {
        heads.extend(times.next().map(|at| Reverse((at, index))));
    }
    let (mut fires, mut herds, mut next) = (Vec::new(), Vec::new(), None);
    let (mut minute, mut in_minute, mut counted) = (None, 0_u32, 0);
    let mut close = |minute: Option<i64>, in_minute: u32| {
        if let Some(minute) = minute.filter(|_| in_minute >= herd) {
            herds.push(Herd { minute: Timestamp(minute * MINUTE_MS).to_string(), fires: in_minute });
        }
    };
    while let Some(Reverse((at, index))) = heads.pop().filter(|Reverse((at, _))| *at < to) {
        let this_minute = Some(at.0.div_euclid(MINUTE_MS));
        if this_minute != minute {
            close(minute, in_minute);
            (minute, in_minute) = (this_minute, 0);
            // A page ends with a whole minute, if it can: who goes on misses nothing and gets nothing twice.
            if fires.len() >= limit {
                next = Some(at);
                break;
            }
        }
        in_minute += 1;
        counted += 1;
        if fires.len() < limit {
            let ComingOf { task, paused, .. } = &known[index];
            fires.push(ComingFire { at: at.to_string(), task: task.name.to_string(), paused: *paused });
        }
        if counted >= limit + COUNTED_MAX {
            next = Some(Timestamp((at.0.div_euclid(MINUTE_MS) + 1) * MINUTE_MS));
            break;
        }
        heads.extend(iterators[index].next().map(|at| Reverse((at, index))));
    }
    if next.is_none() {
        next = more_tasks.then_some(to);
    }
    close(minute, in_minute);
    Ok(Json(Coming { from: from.to_string(), to: to.to_string(), fires, herds, next: views::instant(next), more_tasks }))
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::{TaskId, Version};

    use super::*;

    #[test]
    fn a_cursor_that_no_trigger_gives_is_told_of() {
        let zones = Zones::bundled();
        let now = Timestamp(1_800_000_000_000);
        let warned = |trigger: &str, ahead_h: i64, removed: bool| {
            let document = format!(r#"{{"name":"a","trigger":{trigger},"command":{{"shell":"x"}}}}"#);
            let next_fire = Some(Timestamp(now.0 + ahead_h * 3_600_000));
            let view = TaskView {
                task: TaskId(1),
                name: "a".into(),
                version: Version(1),
                document: document.into(),
                removed,
                next_fire,
                source: "s".into(),
            };
            warning(&view, &zones, now)
        };
        let hourly = r#"{"cron":"0 * * * *"}"#;
        let warning = warned(hourly, 24 * 365, false).expect("a warning");
        assert!(warning.contains("2028-01-15T") && warning.contains("2027-01-15T"), "{warning}");
        assert_eq!((warned(hourly, 1, false), warned(hourly, 24 * 365, true)), (None, None));
        // Rarely is not too late.
        assert_eq!((warned(r#"{"cron":"0 0 1 1 *"}"#, 24 * 350, false), warned(r#"{"delay":"30d"}"#, 24 * 29, false)), (None, None));
        assert!(warned(r#"{"fixed_rate":"10s"}"#, 2, false).is_some());
    }
}
