//! Manual triggers that are not due yet: cancelled, or put off, by their keys.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use punctual_core::inbox::{DelayedChange, rescheduled_detail};
use punctual_core::instance::{Cause, InstanceRow, State as InstanceState};
use punctual_core::limits;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Actor, Catalog, Clock, TriggerChanged};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{Body, Client};
use super::reruns::Reason;
use super::{Api, ApiError, views};

/// Answers which it was: `cancelled` true, or false where the trigger's time had come.
pub(crate) async fn cancel<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Path((task, key)): Path<(String, String)>,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let actor = reason.actor(client)?;
    let became = |row: &InstanceRow| match row.state {
        InstanceState::Cancelled => Some(true),
        _ => has_come(row).then_some(false),
    };
    change(&api, task, key, DelayedChange::Cancel, actor, "cancelled", became).await
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reschedule {
    /// From now on, in milliseconds.
    delay_ms: Option<u64>,
    /// Or at this instant, such as 2026-12-01T09:30:00Z.
    at: Option<String>,
    by: Option<String>,
    reason: Option<String>,
}

/// Answers which it was: `rescheduled` true, or false where the trigger's time had come.
pub(crate) async fn reschedule<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Path((task, key)): Path<(String, String)>,
    client: Client,
    Body(asked): Body<Reschedule>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let now = api.clock.now().wall;
    let to = match (asked.delay_ms.map(Millis), asked.at) {
        (Some(delay), None) if delay <= limits::DELAY_MAX => now.saturating_add(delay),
        (Some(_), None) => {
            let problem = format!("is more than {} ms, a hundred years", limits::DELAY_MAX.0);
            return Err(ApiError::BadRequest { field: "delay_ms", problem });
        }
        (None, Some(text)) => instant(&text, now)?,
        _ => {
            let problem = "say when: `delay_ms`, or `at`, and only one of them".to_owned();
            return Err(ApiError::BadRequest { field: "delay_ms", problem });
        }
    };
    let actor = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    let detail = rescheduled_detail(to, &actor.by, actor.why.as_deref());
    let became = |row: &InstanceRow| {
        let is_this = |transition: &punctual_core::instance::Transition| {
            transition.cause == Cause::Rescheduled && transition.detail.as_deref() == Some(&*detail)
        };
        if row.transitions.iter().any(is_this) { Some(true) } else { has_come(row).then_some(false) }
    };
    change(&api, task, key, DelayedChange::Reschedule(to), actor, "rescheduled", became).await
}

fn instant(text: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    let refused = |problem: String| Err(ApiError::BadRequest { field: "at", problem });
    let Ok(at) = text.parse::<jiff::Timestamp>() else {
        return refused(format!("{text:?} is not an instant such as 2026-12-01T09:30:00Z"));
    };
    let at = Timestamp(at.as_millisecond());
    if at < now {
        return refused(format!("{text} has passed"));
    }
    if at.since(now) > limits::DELAY_MAX {
        return refused(format!("{text} is more than a hundred years ahead"));
    }
    Ok(at)
}

/// Whether a trigger does not wait for its time any more.
fn has_come(row: &InstanceRow) -> bool {
    row.state != InstanceState::Waiting || row.due_at.is_none()
}

async fn change<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    task: String,
    key: String,
    change: DelayedChange,
    actor: Actor,
    what: &'static str,
    became: impl Fn(&InstanceRow) -> Option<bool>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (name, asked_key): (Arc<str>, Arc<str>) = (Arc::from(task.as_str()), Arc::from(key.as_str()));
    let changed = api.store.change_trigger(name, asked_key, change, actor, api.clock.now().wall).await?;
    let (entry, ordinal) = match changed {
        TriggerChanged::Accepted { entry, ordinal } => (entry, ordinal),
        TriggerChanged::Over { ordinal } => {
            let found = api.store.instance_of_submission(ordinal).await?;
            return Ok((StatusCode::CONFLICT, Json(json!({ what: false, "instance": found.as_ref().map(views::instance) }))));
        }
        TriggerChanged::NoSuchTask => return Err(ApiError::NoSuchTask { name: task }),
        TriggerChanged::NoSuchTrigger => return Err(ApiError::NoSuchTrigger { task, key }),
    };
    api.signal();
    let became = &became;
    let known = api
        .when_applied(entry, || async move {
            let found = api.store.instance_of_submission(ordinal).await?;
            Ok(found.and_then(|view| became(&view.row).map(|became| (became, view))))
        })
        .await?;
    Ok(match known {
        Some((true, view)) => (StatusCode::OK, Json(json!({ what: true, "instance": views::instance(&view) }))),
        Some((false, view)) => (StatusCode::CONFLICT, Json(json!({ what: false, "instance": views::instance(&view) }))),
        // Its owner has not taken it up yet: the instance will tell.
        None => (StatusCode::ACCEPTED, Json(json!({ what: Value::Null, "instance": Value::Null }))),
    })
}
