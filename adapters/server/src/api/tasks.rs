//! Tasks: list, detail, what became of their fire times, and firing by hand.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use axum::http::{HeaderMap, StatusCode};
use punctual_core::ids::InboxId;
use punctual_core::inbox::{Submission, ordinal_of};
use punctual_core::instance::{Origin, State};
use punctual_core::limits;
use punctual_core::time::Millis;
use punctual_driver::ports::{Catalog, Clock, InstanceFilter, Submitted, TaskView};
use punctual_spec::payload::{self, PayloadSchema};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::extract::{Asked, Asker, Body, Client, Named};
use super::reruns::Reason;
use super::sight::Sight;
use super::{Api, ApiError, PAGE_DEFAULT, PAGE_MAX, views};
use crate::identity::Role;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(page): Asked<Page>,
) -> Result<Json<Value>, ApiError> {
    let limit = checked_limit(page.limit)?;
    let mut sight = Sight::new(&api, &identity, Role::Viewer);
    let store = &*api.store;
    let read = |after| async move { Ok(store.tasks(after, limit).await?) };
    let name = |view: &TaskView| view.name.clone();
    let (tasks, next) = sight.page(limit, page.after.map(Arc::from), read, name, |view| Some(view.name.clone())).await?;
    let pauses = api.store.pauses().await?;
    let tasks: Vec<_> = tasks.iter().map(|view| views::task(view, &pauses, &api.zones)).collect();
    Ok(Json(json!({ "tasks": tasks, "next": next.as_deref() })))
}

pub(crate) async fn detail<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Named(name): Named,
) -> Result<Json<Value>, ApiError> {
    let Some((view, versions)) = api.store.task(Arc::from(name.as_str())).await? else {
        return Err(ApiError::NoSuchTask { name });
    };
    let mut value = views::task(&view, &api.store.pauses().await?, &api.zones);
    let versions = versions.iter().map(|version| {
        let definition: Option<Value> = version.document.as_deref().and_then(|document| serde_json::from_str(document).ok());
        json!({
            "version": version.version.0,
            "at": version.at.to_string(),
            "by": &*version.by,
            "removed": version.document.is_none(),
            "definition": definition,
        })
    });
    value["versions"] = versions.collect();
    value["catching_up"] = catching_up(&api, &view).await?;
    Ok(Json(value))
}

/// Missed fire times that still wait to be made up for, of a task that spaces them.
async fn catching_up<S: Catalog, C: Clock>(api: &Api<S, C>, view: &TaskView) -> Result<Value, ApiError> {
    let document: Value = serde_json::from_str(&view.document).unwrap_or(Value::Null);
    if document["misfire"].get("rate").is_none() {
        return Ok(Value::Null);
    }
    let limit = limits::CATCH_UP_MAX as usize;
    let filter = InstanceFilter { task: Some(view.name.clone()), state: Some(State::Waiting), limit, ..InstanceFilter::default() };
    let waiting = api.store.instances(filter).await?;
    let due: Vec<_> = waiting.iter().filter(|of| of.row.origin == Origin::CatchUp).filter_map(|of| of.row.due_at).collect();
    Ok(match due.iter().max() {
        Some(last) => json!({ "left": due.len(), "last_begins_at": last.to_string() }),
        None => Value::Null,
    })
}

pub(crate) async fn occurrences<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Named(name): Named,
    Asked(page): Asked<Page>,
) -> Result<Json<Value>, ApiError> {
    let name: Arc<str> = Arc::from(name);
    if api.store.task(name.clone()).await?.is_none() {
        return Err(ApiError::NoSuchTask { name: name.to_string() });
    }
    let occurrences = api.store.occurrences(name, checked_limit(page.limit)?).await?;
    Ok(Json(json!({ "occurrences": occurrences.iter().map(views::occurrence).collect::<Vec<_>>() })))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trigger {
    /// Any JSON; text is handed over as it is, everything else as its JSON text, character for character.
    payload: Option<Box<RawValue>>,
    /// In milliseconds; the trigger's own delay where it is left out.
    delay_ms: Option<u64>,
    /// The version of the task that the payload was written for: refused where the payload's schema has changed since.
    task_version: Option<u32>,
    /// Who asks, for the audit.
    by: Option<String>,
    /// Why, for the audit.
    reason: Option<String>,
}

pub(crate) async fn trigger<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Named(name): Named,
    headers: HeaderMap,
    client: Client,
    Body(trigger): Body<Trigger>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let actor = Reason { reason: trigger.reason, by: trigger.by }.actor(client)?;
    let key = match headers.get("idempotency-key").map(|key| key.to_str()) {
        None => None,
        Some(Ok(key)) if (1..=255).contains(&key.len()) => Some(Arc::from(key)),
        Some(_) => {
            return Err(ApiError::BadRequest { field: "Idempotency-Key", problem: "must be 1 to 255 visible ASCII characters".to_owned() });
        }
    };
    let submission = submission(trigger.payload, trigger.delay_ms, key.clone())?;
    check_payload(&api, &name, submission.payload.as_deref(), trigger.task_version).await?;
    let task: Arc<str> = Arc::from(name.as_str());
    let submitted = api.store.trigger(task, actor, key, vec![submission], api.clock.now().wall).await?;
    let (status, entry) = match submitted {
        Submitted::Accepted { entry } => (StatusCode::ACCEPTED, entry),
        Submitted::Repeated { entry } => (StatusCode::OK, entry),
        Submitted::KeyTaken => return Err(ApiError::KeyTaken),
        _ => return Err(ApiError::NoSuchTask { name }),
    };
    api.signal();
    Ok((status, Json(accepted(&api, entry).await?)))
}

fn submission(payload: Option<Box<RawValue>>, delay_ms: Option<u64>, key: Option<Arc<str>>) -> Result<Submission, ApiError> {
    let payload = payload.map(|payload| serde_json::from_str::<String>(payload.get()).unwrap_or_else(|_| payload.get().to_owned()));
    if payload.as_ref().is_some_and(|payload| payload.len() > limits::PAYLOAD_BYTES_MAX) {
        let problem = format!("is longer than {} bytes; pass a reference to the data instead", limits::PAYLOAD_BYTES_MAX);
        return Err(ApiError::BadRequest { field: "payload", problem });
    }
    let delay = delay_ms.map(Millis);
    if delay.is_some_and(|delay| delay > limits::DELAY_MAX) {
        let problem = format!("is more than {} ms, a hundred years", limits::DELAY_MAX.0);
        return Err(ApiError::BadRequest { field: "delay_ms", problem });
    }
    Ok(Submission { key, payload: payload.map(Arc::from), delay })
}

/// Checks a payload against the schema of the task's version in force, where it has one; and that it was written for the same schema.
async fn check_payload<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    name: &str,
    payload: Option<&str>,
    written_for: Option<u32>,
) -> Result<(), ApiError> {
    let Some((view, versions)) = api.store.task(Arc::from(name)).await? else {
        return Err(ApiError::NoSuchTask { name: name.to_owned() });
    };
    let document = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let now = document(&view.document);
    let schema = now.get("payload_schema");
    if let Some(written_for) = written_for.filter(|written_for| *written_for != view.version.0) {
        let version = versions.iter().find(|version| version.version.0 == written_for);
        let Some(older) = version.and_then(|version| version.document.as_deref()).map(document) else {
            let problem = format!("the task {name:?} has no version {written_for}; version {} is in force", view.version.0);
            return Err(ApiError::BadRequest { field: "task_version", problem });
        };
        if let Some(changes) = payload::changes(older.get("payload_schema"), schema) {
            return Err(ApiError::OlderSchema { written_for, version: view.version.0, changes });
        }
    }
    let Some(schema) = schema else { return Ok(()) };
    // It was checked when the task was applied.
    let Ok(schema) = PayloadSchema::new(schema) else { return Ok(()) };
    schema.check(payload.or_else(|| now["payload"].as_str())).map_err(|problem| ApiError::Payload { problem })
}

/// Waits for the owner to apply the entry, so that the caller learns the instance's id.
async fn accepted<S: Catalog, C: Clock>(api: &Api<S, C>, entry: InboxId) -> Result<Value, ApiError> {
    let ordinal = ordinal_of(entry, 0);
    let found = api.when_applied(entry, || async move { Ok(api.store.instance_of_submission(ordinal).await?) }).await?;
    Ok(json!({ "submission": entry.to_string(), "instance": found.as_ref().map(views::instance) }))
}

pub(crate) fn checked_limit(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        limit => Err(ApiError::BadRequest { field: "limit", problem: format!("{limit} is not within 1 to {PAGE_MAX}") }),
    }
}
