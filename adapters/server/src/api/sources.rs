//! All tasks of one source, as they are from now on.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_driver::ports::{Actor, Applied, Catalog, Clock, TaskDocument};
use punctual_spec::spec::TaskSpec;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::extract::{Asker, Body, Client, Named, check_length};
use super::reruns::Reason;
use super::rules::{group_of, may_on_task};
use super::{Api, ApiError, BY_BYTES_MAX};
use crate::identity::{Identity, Role};

/// Largest request body, in bytes: a hundred thousand tasks.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Problems that an answer names.
const PROBLEMS_MAX: usize = 20;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// The documents of its tasks. A task of this source that is not among them is removed.
    documents: Vec<Box<RawValue>>,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
    /// Who asks, for the audit.
    by: Option<String>,
    /// Why, for the audit.
    reason: Option<String>,
}

pub(crate) async fn apply<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(source): Named,
    Asker(identity): Asker,
    client: Client,
    Body(asked): Body<Source>,
) -> Result<Json<Value>, ApiError> {
    let actor = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    check_length("source", Some(&source), BY_BYTES_MAX)?;
    let mut documents = Vec::with_capacity(asked.documents.len());
    let mut problems = Vec::new();
    for (place, document) in asked.documents.iter().enumerate() {
        match read(&api, document.get()) {
            Ok(document) => documents.push(document),
            Err(problem) => problems.push(format!("document {place}: {problem}")),
        }
    }
    if !problems.is_empty() {
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        return Err(ApiError::BadRequest { field: "documents", problem: format!("{}{more}", problems.join("; ")) });
    }
    let source: Arc<str> = Arc::from(source);
    if !identity.may(Role::Editor, None) {
        may_apply(&api, &identity, &source, &documents).await?;
    }
    let applied = api.store.apply(source, actor, documents, asked.dry_run, api.clock.now().wall).await?;
    let Applied { created, changed, unchanged, removed, refused } = applied;
    if !refused.is_empty() {
        return Err(ApiError::Chains(refused));
    }
    if !asked.dry_run {
        api.signal();
    }
    let names = |names: &[Arc<str>]| names.iter().map(|name| json!(&**name)).collect::<Value>();
    Ok(Json(json!({ "created": names(&created), "changed": names(&changed), "unchanged": unchanged, "removed": names(&removed) })))
}

/// Refuses an application that changes, makes or removes what somebody may not edit: by the group that a task has, and by the one that it
/// would get. A task that fires after one that they don't even see would tell them of it.
async fn may_apply<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    source: &Arc<str>,
    documents: &[TaskDocument],
) -> Result<(), ApiError> {
    let may_edit = |group: Option<&str>| match identity.may(Role::Editor, group) {
        true => Ok(()),
        false => Err(ApiError::Forbidden { role: Role::Editor, group: group.map(Arc::from) }),
    };
    for document in documents {
        may_edit(document.definition.group.as_deref())?;
    }
    let planned = api.store.apply(source.clone(), Actor::default(), documents.to_vec(), true, api.clock.now().wall).await?;
    let named = documents.iter().map(|document| &document.definition.name);
    for name in named.chain(&planned.removed) {
        if let Some(group) = group_of(api, name).await? {
            may_edit(group.as_deref())?;
        }
    }
    for chain in documents.iter().flat_map(|document| document.definition.chains.as_deref().unwrap_or_default()) {
        let is_own = documents.iter().any(|document| document.definition.name == chain.task);
        if !is_own {
            may_on_task(api, identity, Role::Viewer, &chain.task, || ApiError::NoSuchTask { name: chain.task.to_string() }).await?;
        }
    }
    Ok(())
}

fn read<S, C>(api: &Api<S, C>, document: &str) -> Result<TaskDocument, String> {
    let spec = TaskSpec::from_json(document).map_err(|finding| finding.to_string())?;
    crate::open::document(&spec, &api.zones).map_err(|error| error.to_string())
}
