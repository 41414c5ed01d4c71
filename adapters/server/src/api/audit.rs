//! What people have done.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_driver::ports::{AuditFilter, AuditView, Catalog, Clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, behind};
use super::instances::{check_task, parse_id};
use super::sight::Sight;
use super::tasks::checked_limit;
use super::{Api, ApiError};
use crate::identity::{Identity, Role};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// What concerns this task.
    pub(crate) task: Option<String>,
    /// What concerns this instance.
    #[schemars(regex(pattern = r"^(0|[1-9][0-9]{0,3})-(0|[1-9][0-9]{0,13})$"))]
    pub(crate) instance: Option<String>,
    /// The `next` of the page before.
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    pub(crate) after: Option<u64>,
    /// The same, under its older name, which is not described any more.
    #[schemars(skip)]
    pub(crate) before: Option<u64>,
    #[schemars(range(min = 1, max = 1_000))]
    pub(crate) limit: Option<usize>,
}

/// What people have done, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AuditPage {
    audit: Vec<AuditShown>,
    next: Option<u64>,
}

/// A write by a person.
#[derive(Serialize, JsonSchema)]
struct AuditShown {
    id: u64,
    at: String,
    by: String,
    from: Option<String>,
    reason: Option<String>,
    action: &'static str,
    task: Option<String>,
    instance: Option<String>,
    /// What else it names: the source of a task, the key of a trigger, a group.
    subject: Option<String>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
) -> Result<Json<AuditPage>, ApiError> {
    let (found, next) = page_of(&api, &identity, filter).await?;
    Ok(Json(AuditPage { audit: found.iter().map(view).collect(), next }))
}

/// A page of what is on record of what somebody sees, and the number that the next one begins behind.
pub(crate) async fn page_of<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    filter: Filter,
) -> Result<(Vec<AuditView>, Option<u64>), ApiError> {
    let mut sight = Sight::new(api, identity, Role::Viewer);
    let limit = checked_limit(filter.limit)?;
    let before = behind(filter.after, filter.before)?;
    if before.is_some_and(|before| i64::try_from(before).is_err()) {
        return Err(ApiError::BadRequest { field: "after", problem: "is not the `next` of a page".to_owned() });
    }
    let instance = filter.instance.map(|id| parse_id(&id)).transpose()?;
    check_task(api, &mut sight, filter.task.as_deref()).await?;
    let filter = AuditFilter { task: filter.task.map(Arc::from), instance, before, limit };
    let (store, filter) = (&*api.store, &filter);
    let read = |before| async move { Ok(store.audit(AuditFilter { before, ..filter.clone() }).await?) };
    sight.page(limit, filter.before, read, |audit: &AuditView| audit.id, |audit| audit.task.clone()).await
}

fn view(audit: &AuditView) -> AuditShown {
    AuditShown {
        id: audit.id,
        at: audit.at.to_string(),
        by: audit.actor.by.to_string(),
        from: audit.actor.from.as_deref().map(str::to_owned),
        reason: audit.actor.why.as_deref().map(str::to_owned),
        action: audit.action.name(),
        task: audit.task.as_deref().map(str::to_owned),
        instance: audit.instance.map(|id| id.to_string()),
        subject: audit.subject.as_deref().map(str::to_owned),
    }
}
