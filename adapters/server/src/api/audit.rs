//! What people have done.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_driver::ports::{AuditFilter, AuditView, Catalog, Clock};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::Asked;
use super::instances::parse_id;
use super::tasks::checked_limit;
use super::{Api, ApiError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    task: Option<String>,
    instance: Option<String>,
    before: Option<u64>,
    limit: Option<usize>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, ApiError> {
    let limit = checked_limit(filter.limit)?;
    let instance = filter.instance.map(|id| parse_id(&id)).transpose()?;
    if let Some(name) = &filter.task
        && api.store.task_now(Arc::from(name.as_str())).await?.is_none()
    {
        return Err(ApiError::NoSuchTask { name: name.clone() });
    }
    let filter = AuditFilter { task: filter.task.map(Arc::from), instance, before: filter.before, limit };
    let found = api.store.audit(filter).await?;
    let next = (found.len() == limit).then(|| found.last().map(|last| last.id)).flatten();
    Ok(Json(json!({ "audit": found.iter().map(view).collect::<Vec<_>>(), "next": next })))
}

fn view(audit: &AuditView) -> Value {
    json!({
        "id": audit.id,
        "at": audit.at.to_string(),
        "by": &*audit.actor.by,
        "from": audit.actor.from.as_deref(),
        "reason": audit.actor.why.as_deref(),
        "action": audit.action.name(),
        "task": audit.task.as_deref(),
        "instance": audit.instance.map(|id| id.to_string()),
        "subject": audit.subject.as_deref(),
    })
}
