//! What people have done.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_driver::ports::{AuditFilter, AuditView, Catalog, Clock};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{Asked, Asker};
use super::instances::{check_task, parse_id};
use super::sight::Sight;
use super::tasks::checked_limit;
use super::{Api, ApiError};
use crate::identity::Role;

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
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Value>, ApiError> {
    let mut sight = Sight::new(&api, &identity, Role::Viewer);
    let limit = checked_limit(filter.limit)?;
    let instance = filter.instance.map(|id| parse_id(&id)).transpose()?;
    check_task(&api, &mut sight, filter.task.as_deref()).await?;
    let filter = AuditFilter { task: filter.task.map(Arc::from), instance, before: filter.before, limit };
    let (store, filter) = (&*api.store, &filter);
    let read = |before| async move { Ok(store.audit(AuditFilter { before, ..filter.clone() }).await?) };
    let (found, next) = sight.page(limit, filter.before, read, |audit: &AuditView| audit.id, |audit| audit.task.clone()).await?;
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
