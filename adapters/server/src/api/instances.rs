//! Instances: list, the whole story of one, what it wrote, cancelling.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::instance::{InstanceRow, Part, State as InstanceState};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Actor, Catalog, Clock, InstanceAction, InstanceCursor, InstanceFilter, InstanceView, Submitted};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{Asked, Body, Client, Named};
use super::reruns::Reason;
use super::tasks::checked_limit;
use super::{Api, ApiError, nodes, views};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    task: Option<String>,
    state: Option<String>,
    key: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
    /// Also shards, and nodes of workflows.
    #[serde(default)]
    parts: bool,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, ApiError> {
    let limit = checked_limit(filter.limit)?;
    let state = filter.state.map(|name| parse_state(&name)).transpose()?;
    let before = filter.before.map(|cursor| parse_cursor(&cursor)).transpose()?;
    if let Some(name) = &filter.task
        && api.store.task(Arc::from(name.as_str())).await?.is_none()
    {
        return Err(ApiError::NoSuchTask { name: name.clone() });
    }
    let (whole, key) = (!filter.parts, filter.key.map(Arc::from));
    let filter = InstanceFilter { task: filter.task.map(Arc::from), whole, state, key, before, limit };
    let instances = api.store.instances(filter).await?;
    let next = (instances.len() == limit).then(|| instances.last().map(|last| cursor(&last.row))).flatten();
    Ok(Json(json!({ "instances": instances.iter().map(views::instance).collect::<Vec<_>>(), "next": next })))
}

pub(crate) async fn detail<S: Catalog, C: Clock>(State(api): State<Api<S, C>>, Named(id): Named) -> Result<Json<Value>, ApiError> {
    let view = find(&api, &id).await?;
    let mut detail = views::instance_detail(&view);
    detail["node"] = json!(nodes::name(&api, &view).await?);
    detail["nodes"] = json!(nodes::of_run(&api, &view).await?);
    Ok(Json(detail))
}

pub(crate) async fn logs<S: Catalog, C: Clock>(State(api): State<Api<S, C>>, Named(id): Named) -> Result<Json<Value>, ApiError> {
    let view = find(&api, &id).await?;
    let outputs = api.store.outputs(view.row.id).await?;
    let outputs: Vec<_> = outputs.iter().map(|(attempt, output)| views::output(*attempt, output)).collect();
    Ok(Json(json!({ "instance": id, "state": view.row.state.name(), "outputs": outputs })))
}

pub(crate) async fn cancel<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    end(&api, id, InstanceAction::Cancel, reason.actor(client)?).await
}

pub(crate) async fn kill<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    end(&api, id, InstanceAction::Kill, reason.actor(client)?).await
}

/// Answers once the instance has ended, with how; where that takes longer, `cancelled` is null.
async fn end<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    id: String,
    action: InstanceAction,
    actor: Actor,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let view = find(api, &id).await?;
    if view.row.state.is_terminal() {
        return Ok((StatusCode::CONFLICT, Json(json!({ "cancelled": false, "instance": views::instance(&view) }))));
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
    let is_cancelled = ended.as_ref().map(|ended| ended.row.state == InstanceState::Cancelled);
    let instance = views::instance(ended.as_ref().unwrap_or(&view));
    Ok((StatusCode::ACCEPTED, Json(json!({ "cancelled": is_cancelled, "instance": instance }))))
}

/// Answers whether the instance was left out, or had begun; where nobody has taken that up in time, `skipped` is null.
pub(crate) async fn skip<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
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
            Ok((StatusCode::OK, Json(json!({ "skipped": true, "instance": views::instance(&view) }))))
        }
        Some(view) => Err(ApiError::HasBegun { id: instance, state: view.row.state.name() }),
        None => Ok((StatusCode::ACCEPTED, Json(json!({ "skipped": Value::Null, "instance": views::instance(&view) })))),
    }
}

pub(crate) async fn find<S: Catalog, C: Clock>(api: &Api<S, C>, id: &str) -> Result<InstanceView, ApiError> {
    let parsed = parse_id(id)?;
    api.store.instance(parsed).await?.ok_or_else(|| ApiError::NoSuchInstance { id: id.to_owned() })
}

/// Where the next page begins. Callers hand it back as it is.
pub(crate) fn cursor(row: &InstanceRow) -> String {
    cursor_text(&InstanceCursor::of(row))
}

pub(crate) fn cursor_text(cursor: &InstanceCursor) -> String {
    let InstanceCursor { fire_time, task, ordinal, run, part } = cursor;
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
    parse().ok_or_else(|| ApiError::BadRequest { field: "before", problem: format!("{text:?} is not the `next` of a page") })
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
