//! Instances: list, the whole story of one, what it wrote, cancelling.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::instance::{InstanceRow, Origin, Part, State as InstanceState};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    Actor, Catalog, Clock, InstanceAction, InstanceCursor, InstanceFilter, InstanceQuery, InstanceView, Submitted,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, Body, Client, Named, behind, check_length};
use super::openapi::{Attempted, Done};
use super::reruns::Reason;
use super::sight::Sight;
use super::tasks::checked_limit;
use super::{Api, ApiError, nodes, parts, veil, views};
use crate::identity::{Identity, Role};

/// Names of states, with commas between them.
const STATES: &str = "^(waiting|created|dispatched|running|retrying|succeeded|failed|timed_out|dead_lettered|cancelled|skipped)\
                      (,(waiting|created|dispatched|running|retrying|succeeded|failed|timed_out|dead_lettered|cancelled|skipped)){0,10}$";

/// Which instances; those that have all that is asked for.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this task.
    pub(crate) task: Option<String>,
    /// Of tasks of this group.
    pub(crate) group: Option<String>,
    /// In this state, or in one of these, with commas between them.
    #[schemars(regex(pattern = STATES))]
    pub(crate) state: Option<String>,
    /// With this idempotency key.
    pub(crate) key: Option<String>,
    /// With an attempt on this worker.
    pub(crate) worker: Option<String>,
    /// That came about so.
    #[schemars(regex(pattern = "^(schedule|catch_up|manual|chain|rerun|backfill)$"))]
    pub(crate) origin: Option<String>,
    /// With a fire time from this instant on.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) fired_after: Option<String>,
    /// With a fire time before this instant.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) fired_before: Option<String>,
    /// Made from this instant on.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) created_after: Option<String>,
    /// Made before this instant.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) created_before: Option<String>,
    /// The `next` of the page before.
    #[schemars(regex(pattern = r"^-?[0-9]{1,15}(_[0-9]{1,9}){3,4}$"))]
    pub(crate) after: Option<String>,
    /// The same, under its older name, which is not described any more.
    #[schemars(skip)]
    pub(crate) before: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    pub(crate) limit: Option<usize>,
    /// Also shards, and nodes of workflows.
    #[serde(default)]
    pub(crate) parts: bool,
}

/// So many rows are looked at for a page, where no index has all that is asked for.
const LOOK_AT: usize = 10_000;

/// A page of instances, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Instances {
    instances: Vec<views::InstanceShown>,
    /// For `after` of the next call; null: there are no more. A page may have fewer than asked for with more behind it.
    next: Option<String>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Instances>, ApiError> {
    let (instances, next) = page_of(&api, &identity, filter).await?;
    Ok(Json(Instances { instances: instances.iter().map(views::instance).collect(), next: next.map(cursor) }))
}

/// A page of instances that somebody sees, and where the next one begins.
pub(crate) async fn page_of<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    filter: Filter,
) -> Result<(Vec<InstanceView>, Option<InstanceCursor>), ApiError> {
    let mut sight = Sight::new(api, identity, Role::Viewer);
    let limit = checked_limit(filter.limit)?;
    check_length("state", filter.state.as_deref(), 200)?;
    let states = filter.state.map(|names| names.split(',').map(parse_state).collect::<Result<Vec<_>, _>>()).transpose()?;
    let origin = filter.origin.map(|name| parse_origin(&name)).transpose()?;
    let before = behind(filter.after, filter.before)?.map(|cursor| parse_cursor(&cursor)).transpose()?;
    let at = |field: &'static str, text: Option<String>| text.map(|text| super::backfills::instant(field, &text)).transpose();
    check_task(api, &mut sight, filter.task.as_deref()).await?;
    let (whole, key) = (!filter.parts, filter.key.map(Arc::from));
    let query = InstanceQuery {
        filter: InstanceFilter { task: filter.task.map(Arc::from), whole, state: None, key, before, limit },
        states: states.unwrap_or_default(),
        group: filter.group.map(Arc::from),
        worker: filter.worker.map(Arc::from),
        origin,
        fired_from: at("fired_after", filter.fired_after)?,
        fired_until: at("fired_before", filter.fired_before)?,
        created_from: at("created_after", filter.created_after)?,
        created_until: at("created_before", filter.created_before)?,
        look_at: LOOK_AT,
    };
    let page = api.store.instance_page(query).await?;
    let mut instances = sight.only(page.instances, |view| view.task_name.clone()).await?;
    veil::instances(api, identity, &mut instances).await?;
    Ok((instances, page.next))
}

/// Refuses the name of a task that is not there, or not to be seen.
pub(crate) async fn check_task<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    sight: &mut Sight<'_, S, C>,
    name: Option<&str>,
) -> Result<(), ApiError> {
    let Some(name) = name else { return Ok(()) };
    if api.store.task_now(Arc::from(name)).await?.is_none() || !sight.task(name).await? {
        return Err(ApiError::NoSuchTask { name: name.to_owned() });
    }
    Ok(())
}

pub(crate) async fn detail<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
) -> Result<Json<views::InstanceDetail>, ApiError> {
    let mut view = find(&api, &id).await?;
    veil::instances(&api, &identity, std::slice::from_mut(&mut view)).await?;
    let mut detail = views::instance_detail(&view);
    detail.node = nodes::name(&api, &view).await?;
    detail.calls = nodes::calls(&api, &view.row, true).await?;
    detail.nodes = nodes::of_run(&api, &identity, &view).await?;
    detail.parts = parts::of(&api, &view).await?;
    Ok(Json(detail))
}

/// What became of a cancellation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cancelled {
    /// False: it had ended, or ended otherwise; null: it has not ended yet.
    cancelled: Option<bool>,
    instance: views::InstanceShown,
}

pub(crate) async fn cancel<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Attempted<Cancelled>, ApiError> {
    end(&api, &identity, id, InstanceAction::Cancel, reason.actor(client)?).await
}

pub(crate) async fn kill<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Attempted<Cancelled>, ApiError> {
    end(&api, &identity, id, InstanceAction::Kill, reason.actor(client)?).await
}

/// Answers once the instance has ended, with how; where that takes longer, `cancelled` is null.
async fn end<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    id: String,
    action: InstanceAction,
    actor: Actor,
) -> Result<Attempted<Cancelled>, ApiError> {
    let view = find(api, &id).await?;
    if view.row.state.is_terminal() {
        let instance = veil::shown(api, identity, view).await?;
        return Ok(Attempted(StatusCode::CONFLICT, Json(Cancelled { cancelled: Some(false), instance })));
    }
    let entry = match api.store.act(view.row.id, action, actor, api.clock.now().wall).await? {
        Submitted::Accepted { entry } | Submitted::Repeated { entry } => entry,
        _ => return Err(ApiError::NoSuchInstance { id }),
    };
    api.signal();
    let instance = view.row.id;
    let ended = api
        .when_applied(entry, || async move { Ok(api.store.instance(instance).await?.filter(|view| view.row.state.is_terminal())) })
        .await?;
    let cancelled = ended.as_ref().map(|ended| ended.row.state == InstanceState::Cancelled);
    let instance = veil::shown(api, identity, ended.unwrap_or(view)).await?;
    let status = if cancelled == Some(false) { StatusCode::CONFLICT } else { StatusCode::ACCEPTED };
    Ok(Attempted(status, Json(Cancelled { cancelled, instance })))
}

/// What became of an instance that was to be left out.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SkipSaid {
    /// Null: its owner has not taken that up yet.
    skipped: Option<bool>,
    instance: views::InstanceShown,
}

/// Answers whether the instance was left out, or had begun; where nobody has taken that up in time, `skipped` is null.
pub(crate) async fn skip<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Done<SkipSaid>, ApiError> {
    let actor = reason.actor(client)?;
    let view = find(&api, &id).await?;
    let has_begun = |row: &InstanceRow| row.attempt > 0 || !matches!(row.state, InstanceState::Waiting | InstanceState::Created);
    if has_begun(&view.row) {
        return Err(ApiError::HasBegun { id: view.row.id, state: view.row.state.name() });
    }
    let instance = view.row.id;
    let entry = match api.store.act(instance, InstanceAction::Skip, actor, api.clock.now().wall).await? {
        Submitted::Accepted { entry } => entry,
        _ => return Err(ApiError::NoSuchInstance { id }),
    };
    api.signal();
    let api = &api;
    let known =
        api.when_applied(entry, || async move { Ok(api.store.instance(instance).await?.filter(|view| has_begun(&view.row))) }).await?;
    match known {
        Some(view) if view.row.state == InstanceState::Skipped => {
            let instance = veil::shown(api, &identity, view).await?;
            Ok(Done(StatusCode::OK, Json(SkipSaid { skipped: Some(true), instance })))
        }
        Some(view) => Err(ApiError::HasBegun { id: instance, state: view.row.state.name() }),
        None => {
            let instance = veil::shown(api, &identity, view).await?;
            Ok(Done(StatusCode::ACCEPTED, Json(SkipSaid { skipped: None, instance })))
        }
    }
}

pub(crate) async fn find<S: Catalog, C: Clock>(api: &Api<S, C>, id: &str) -> Result<InstanceView, ApiError> {
    let parsed = parse_id(id)?;
    api.store.instance(parsed).await?.ok_or_else(|| ApiError::NoSuchInstance { id: id.to_owned() })
}

/// Where the next page begins. Callers hand it back as it is.
pub(crate) fn cursor(place: InstanceCursor) -> String {
    let InstanceCursor { fire_time, task, ordinal, run, part } = place;
    format!("{}_{task}_{ordinal}_{run}_{}", fire_time.0, part.0)
}

pub(crate) fn parse_cursor(text: &str) -> Result<InstanceCursor, ApiError> {
    let mut parts = text.split('_');
    let mut parse = || {
        let cursor = InstanceCursor {
            fire_time: Timestamp(parts.next()?.parse().ok()?),
            task: TaskId(parts.next()?.parse().ok()?),
            ordinal: parts.next()?.parse().ok()?,
            run: parts.next()?.parse().ok()?,
            // Pages from before there were parts have none.
            part: Part(parts.next().unwrap_or("0").parse().ok()?),
        };
        let fits = [cursor.task.0, cursor.ordinal, cursor.part.0].iter().all(|number| *number <= i64::MAX as u64);
        (fits && parts.next().is_none()).then_some(cursor)
    };
    parse().ok_or_else(|| ApiError::BadRequest { field: "after", problem: format!("{text:?} is not the `next` of a page") })
}

pub(crate) fn parse_id(text: &str) -> Result<InstanceId, ApiError> {
    text.parse().map_err(|()| ApiError::BadRequest { field: "id", problem: format!("{text:?} is not an instance's id such as 43-17") })
}

fn parse_state(name: &str) -> Result<InstanceState, ApiError> {
    InstanceState::from_name(name).ok_or_else(|| {
        let all = InstanceState::ALL.map(InstanceState::name).join(", ");
        ApiError::BadRequest { field: "state", problem: format!("{name:?} is not one of {all}") }
    })
}

fn parse_origin(name: &str) -> Result<Origin, ApiError> {
    Origin::ALL.into_iter().find(|origin| origin.name() == name).ok_or_else(|| {
        let all = Origin::ALL.map(Origin::name).join(", ");
        ApiError::BadRequest { field: "origin", problem: format!("{name:?} is not one of {all}") }
    })
}
