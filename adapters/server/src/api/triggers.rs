//! Manual triggers that are not due yet: cancelled, or put off, by their keys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::inbox::{DelayedChange, rescheduled_detail};
use punctual_core::instance::{Cause, InstanceRow, State as InstanceState};
use punctual_core::limits;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Actor, Catalog, Clock, InstanceView, TriggerChanged};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Body, Client, NamedTwo};
use super::openapi::Attempted;
use super::reruns::Reason;
use super::{Api, ApiError, views};

/// What became of the change of a trigger; which of both stands there is what was asked for.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TriggerSaid {
    /// Whether it is cancelled; null: that is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<Option<bool>>,
    /// Whether it comes at another time; null: that is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    rescheduled: Option<Option<bool>>,
    instance: Option<views::InstanceShown>,
}

/// What was asked of a trigger.
#[derive(Clone, Copy)]
enum What {
    Cancelled,
    Rescheduled,
}

impl What {
    fn said(self, is_done: Option<bool>, view: Option<&InstanceView>) -> Json<TriggerSaid> {
        let (cancelled, rescheduled) = match self {
            What::Cancelled => (Some(is_done), None),
            What::Rescheduled => (None, Some(is_done)),
        };
        Json(TriggerSaid { cancelled, rescheduled, instance: view.map(views::instance) })
    }
}

/// Answers which it was: `cancelled` true, or false where the trigger's time had come.
pub(crate) async fn cancel<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    NamedTwo(task, key): NamedTwo,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Attempted<TriggerSaid>, ApiError> {
    let actor = reason.actor(client)?;
    let became = |row: &InstanceRow| match row.state {
        InstanceState::Cancelled => Some(true),
        _ => has_come(row).then_some(false),
    };
    change(&api, task, key, DelayedChange::Cancel, actor, What::Cancelled, became).await
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reschedule {
    /// From now on, in milliseconds.
    #[schemars(range(max = limits::DELAY_MAX.0))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    delay_ms: Option<u64>,
    /// Or at this instant, such as 2026-12-01T09:30:00Z.
    #[schemars(extend("format" = "date-time"))]
    at: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
}

/// Answers which it was: `rescheduled` true, or false where the trigger's time had come.
pub(crate) async fn reschedule<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    NamedTwo(task, key): NamedTwo,
    client: Client,
    Body(asked): Body<Reschedule>,
) -> Result<Attempted<TriggerSaid>, ApiError> {
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
    change(&api, task, key, DelayedChange::Reschedule(to), actor, What::Rescheduled, became).await
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
    what: What,
    became: impl Fn(&InstanceRow) -> Option<bool>,
) -> Result<Attempted<TriggerSaid>, ApiError> {
    let (name, asked_key): (Arc<str>, Arc<str>) = (Arc::from(task.as_str()), Arc::from(key.as_str()));
    let changed = api.store.change_trigger(name, asked_key, change, actor, api.clock.now().wall).await?;
    let (entry, ordinal) = match changed {
        TriggerChanged::Accepted { entry, ordinal } => (entry, ordinal),
        TriggerChanged::Over { ordinal } => {
            let found = api.store.instance_of_submission(ordinal).await?;
            return Ok(Attempted(StatusCode::CONFLICT, what.said(Some(false), found.as_ref())));
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
        Some((true, view)) => Attempted(StatusCode::OK, what.said(Some(true), Some(&view))),
        Some((false, view)) => Attempted(StatusCode::CONFLICT, what.said(Some(false), Some(&view))),
        // Its owner has not taken it up yet: the instance will tell.
        None => Attempted(StatusCode::ACCEPTED, what.said(None, None)),
    })
}
