//! Backfills: fire times of a range made up for.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::backfill::{BackfillPlan, BackfillRow, RangeProblem, fire_times_in};
use punctual_core::ids::InboxId;
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Clock, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, Body, Client, Named};
use super::openapi::Done;
use super::reruns::Reason;
use super::sight::Sight;
use super::tasks::checked_limit;
use super::{Api, ApiError};
use crate::identity::{Identity, Role};

/// Fire times that an answer shows.
const SHOWN: usize = 100;
/// Backfills that are looked through for those that somebody sees.
const LOOKED_AT_MAX: usize = 1_000;

/// In which order instances are made.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Oldest,
    Newest,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asks {
    /// The first instant, such as 2026-11-01T00:00:00Z.
    #[schemars(extend("format" = "date-time"))]
    from: String,
    /// The instant behind the last.
    #[schemars(extend("format" = "date-time"))]
    to: String,
    #[serde(default)]
    order: Order,
    /// How many at a time; 1 where it is left out.
    #[schemars(range(min = 1, max = 1_000))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    concurrency: Option<u32>,
    /// Those that have an instance as well.
    #[serde(default)]
    again: bool,
    /// Only says what it would do.
    #[serde(default)]
    dry_run: bool,
    /// Of a dry run: fire times behind this one.
    #[schemars(extend("format" = "date-time"))]
    after: Option<String>,
    /// Of a dry run: at most so many fire times are listed.
    #[schemars(range(min = 1, max = 1_000))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    limit: Option<usize>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
}

pub(super) fn instant(field: &'static str, text: &str) -> Result<Timestamp, ApiError> {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    let millis = parsed.ok().map(jiff::Timestamp::as_millisecond);
    let problem = || format!("{text:?} is not an instant; write it as 2026-11-01T00:00:00Z, or with an offset such as +01:00");
    millis.map(Timestamp).ok_or_else(|| ApiError::BadRequest { field, problem: problem() })
}

/// What is to be made up for.
struct Found {
    plan: BackfillPlan,
    newest: Option<InboxId>,
    /// Fire times that have an instance.
    passed_over: usize,
    /// Fire times from here on come by themselves.
    until: Timestamp,
}

async fn look<S: Catalog, C: Clock>(api: &Api<S, C>, name: &str, asks: &Asks, reason: Option<Arc<str>>) -> Result<Found, ApiError> {
    let (from, to) = (instant("from", &asks.from)?, instant("to", &asks.to)?);
    let concurrency = asks.concurrency.unwrap_or(1);
    if !(1..=limits::BACKFILL_CONCURRENCY_MAX).contains(&concurrency) {
        let problem = format!("{concurrency} is not within 1 to {}", limits::BACKFILL_CONCURRENCY_MAX);
        return Err(ApiError::BadRequest { field: "concurrency", problem });
    }
    if from >= to {
        return Err(ApiError::BackfillRange { problem: "its end is not behind its beginning".to_owned() });
    }
    let no_task = || ApiError::NoSuchTask { name: name.to_owned() };
    let fired = api.store.fired(Arc::from(name), from, to).await?.filter(|fired| !fired.view.removed).ok_or_else(no_task)?;
    let definition = punctual_spec::decode(&fired.view.document, &api.zones).map_err(|findings| ApiError::BackfillRange {
        problem: format!("this program can't read the task: {}", findings.first().map(ToString::to_string).unwrap_or_default()),
    })?;
    // What its cursor has not come to, the task fires by itself.
    let until = fired.view.next_fire.unwrap_or(api.clock.now().wall).min(to);
    let all = fire_times_in(&definition.trigger, fired.view.next_fire, from, until).map_err(|problem| match problem {
        RangeProblem::NoTimetable => ApiError::NoTimetable { name: name.to_owned() },
        RangeProblem::TooMany => ApiError::BackfillRange {
            problem: format!("there are more than {} fire times in it; make several backfills, one after the other", limits::BACKFILL_MAX),
        },
    })?;
    let count = all.len();
    let has_none = |at: &Timestamp| asks.again || fired.fired.binary_search(at).is_err();
    let mut fire_times: Vec<_> = all.into_iter().filter(has_none).collect();
    let passed_over = count - fire_times.len();
    if matches!(asks.order, Order::Newest) {
        fire_times.reverse();
    }
    let plan = BackfillPlan { task: fired.view.task, fire_times: fire_times.into(), concurrency, reason };
    Ok(Found { plan, newest: fired.newest, passed_over, until })
}

/// A backfill that was asked for, or what it would do.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BackfillSaid {
    /// What it would do.
    Would(Would),
    /// What it does.
    Does(Does),
}

/// What a backfill would do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Would {
    dry_run: bool,
    count: usize,
    /// Fire times that have an instance.
    passed_over: usize,
    /// Fire times from here on come by themselves.
    until: String,
    fire_times: Vec<String>,
    /// For `after` of the next call; null: these are the last.
    next: Option<String>,
}

/// A backfill that was asked for.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Does {
    backfill: BackfillShown,
    passed_over: usize,
}

/// A backfill. Until its owner has taken it up, only its id and its total are known.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct BackfillShown {
    id: String,
    /// How many fire times.
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    reason: Option<String>,
}

/// Backfills, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Backfills {
    backfills: Vec<BackfillShown>,
}

/// The end of a backfill; null: its owner has not taken that up yet.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Ended {
    backfill: Option<BackfillShown>,
}

/// Makes fire times up for, or says which there are.
pub(crate) async fn ask<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    client: Client,
    Body(mut asks): Body<Asks>,
) -> Result<Done<BackfillSaid>, ApiError> {
    let actor = Reason { reason: asks.reason.take(), by: asks.by.take() }.actor(client)?;
    let Found { plan, newest, passed_over, until } = look(&api, &name, &asks, actor.why.clone()).await?;
    let count = plan.fire_times.len();
    if asks.dry_run {
        let after = asks.after.as_deref().map(|after| instant("after", after)).transpose()?;
        let begin = after.map_or(0, |after| plan.fire_times.iter().position(|at| *at == after).map_or(count, |at| at + 1));
        let listed: Vec<_> = plan.fire_times[begin..].iter().take(checked_limit(Some(asks.limit.unwrap_or(SHOWN)))?).collect();
        let next = (begin + listed.len() < count).then(|| listed.last().map(ToString::to_string)).flatten();
        let listed: Vec<_> = listed.iter().map(ToString::to_string).collect();
        let would = Would { dry_run: true, count, passed_over, until: until.to_string(), fire_times: listed, next };
        return Ok(Done(StatusCode::OK, Json(BackfillSaid::Would(would))));
    }
    if count == 0 {
        let problem = format!(
            "nothing is left to be made up for in it: {passed_over} fire times have instances, and those from {until} on come by themselves"
        );
        return Err(ApiError::BackfillRange { problem });
    }
    let task = plan.task;
    let entry = match api.store.backfill(plan, newest, actor, api.clock.now().wall).await? {
        Submitted::Accepted { entry } => entry,
        Submitted::BackfillRuns { backfill } => return Err(ApiError::BackfillRuns { id: backfill }),
        Submitted::Outdated => return Err(ApiError::BackfillOutdated),
        _ => return Err(ApiError::NoSuchTask { name }),
    };
    api.signal();
    let api = &api;
    let made = api.when_applied(entry, || async move { Ok(find(api, Some(task), entry).await?) }).await?;
    let unknown = || BackfillShown { id: entry.to_string(), total: count, ..BackfillShown::default() };
    let backfill = made.as_ref().map_or_else(unknown, |row| view(row, &name));
    Ok(Done(StatusCode::ACCEPTED, Json(BackfillSaid::Does(Does { backfill, passed_over }))))
}

pub(crate) async fn find<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    task: Option<punctual_core::ids::TaskId>,
    id: InboxId,
) -> Result<Option<BackfillRow>, punctual_driver::ports::StoreError> {
    Ok(api.store.backfills(task, usize::MAX).await?.into_iter().find(|row| row.id == id))
}

fn view(row: &BackfillRow, task: &str) -> BackfillShown {
    let times = || row.plan.fire_times.iter();
    BackfillShown {
        id: row.id.to_string(),
        total: row.plan.fire_times.len(),
        task: Some(task.to_owned()),
        state: Some(row.state.name()),
        made: Some(row.made),
        done: Some(row.ended),
        concurrency: Some(row.plan.concurrency),
        first: times().min().map(ToString::to_string),
        last: times().max().map(ToString::to_string),
        at: Some(row.at.to_string()),
        by: Some(row.by.to_string()),
        reason: row.plan.reason.as_deref().map(str::to_owned),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// The backfills of a task, newest first.
pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asked(page): Asked<Page>,
) -> Result<Json<Backfills>, ApiError> {
    let Some(task) = api.store.task_now(Arc::from(name.as_str())).await? else {
        return Err(ApiError::NoSuchTask { name });
    };
    let rows = api.store.backfills(Some(task.task), checked_limit(page.limit)?).await?;
    Ok(Json(Backfills { backfills: rows.iter().map(|row| view(row, &name)).collect() }))
}

/// Those of all tasks that somebody sees, newest first.
pub(crate) async fn list_all<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(page): Asked<Page>,
) -> Result<Json<Backfills>, ApiError> {
    let seen = of_all(&api, &identity, checked_limit(page.limit)?).await?;
    Ok(Json(Backfills { backfills: seen.iter().map(|(row, task)| view(row, task)).collect() }))
}

/// The newest of those that somebody sees, each with its task's name.
pub(crate) async fn of_all<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    limit: usize,
) -> Result<Vec<(BackfillRow, Arc<str>)>, ApiError> {
    let (mut seen, mut sight) = (Vec::new(), Sight::new(api, identity, Role::Viewer));
    // What they don't see does not take the places of what they do.
    let read = if sight.is_whole() { limit } else { LOOKED_AT_MAX };
    for row in api.store.backfills(None, read).await? {
        let task = api.store.name_of(row.plan.task).await?.unwrap_or_default();
        if sight.task(&task).await? {
            seen.push((row, task));
        }
        if seen.len() == limit {
            break;
        }
    }
    Ok(seen)
}

/// Ends a backfill.
pub(crate) async fn cancel<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Done<Ended>, ApiError> {
    let actor = reason.actor(client)?;
    let unknown = || ApiError::NoSuchBackfill { id: id.clone() };
    let backfill = InboxId(id.parse().map_err(|_| unknown())?);
    let entry = match api.store.cancel_backfill(backfill, actor, api.clock.now().wall).await? {
        Submitted::Accepted { entry } => entry,
        _ => return Err(unknown()),
    };
    api.signal();
    let api = &api;
    let ended = api
        .when_applied(entry, || async move {
            Ok(find(api, None, backfill).await?.filter(|row| row.state != punctual_core::backfill::BackfillState::Running))
        })
        .await?;
    let name = match &ended {
        Some(row) => api.store.name_of(row.plan.task).await?.unwrap_or_default(),
        None => Arc::default(),
    };
    Ok(Done(StatusCode::ACCEPTED, Json(Ended { backfill: ended.as_ref().map(|row| view(row, &name)) })))
}
