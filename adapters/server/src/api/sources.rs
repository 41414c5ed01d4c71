//! The tasks of one source: made and changed, and removed and taken over where that is asked for.

use std::sync::Arc;

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::Operation;
use aide::operation::add_parameters;
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::{header, request};
use punctual_driver::ports::{Actor, Applied, Applying, Catalog, Clock, Revision, TaskDocument};
use punctual_spec::spec::TaskSpec;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::extract::{Asker, Body, Client, Known, Named, check_characters, text_of};
use super::handed::check_handed;
use super::openapi::{Tagged, header_parameter};
use super::reruns::Reason;
use super::rules::{group_of, may_on_task};
use super::sight::Sight;
use super::{Api, ApiError, BY_CHARACTERS_MAX, veil};
use crate::identity::{Identity, Role};

/// Largest request body, in bytes: a hundred thousand tasks.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Problems that an answer names.
const PROBLEMS_MAX: usize = 20;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// The documents of its tasks.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    documents: Vec<Box<RawValue>>,
    /// Also removes the tasks of this source that are not among the documents; else they are left as they are.
    #[serde(default)]
    remove: bool,
    /// Also takes over tasks that another source has, such as the API or the console; else the call is refused where there are any.
    #[serde(default)]
    take_over: bool,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
}

/// What an application did, or would do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AppliedShown {
    created: Vec<String>,
    changed: Vec<String>,
    unchanged: usize,
    removed: Vec<String>,
    /// Tasks of the source that are not among the documents, and are left.
    left: Vec<String>,
    /// Tasks that another source had, or has where they may not be taken over.
    taken: Vec<TakenShown>,
}

/// A task that another source had.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TakenShown {
    name: String,
    source: String,
}

/// A source, and how it is.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SourceShown {
    source: String,
    /// How many tasks it has.
    tasks: u64,
    /// Changes with each change of a task of it. The ETag, for If-Match.
    revision: String,
}

pub(crate) async fn show<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(source): Named,
    known: Known,
) -> Result<Tagged<SourceShown>, ApiError> {
    check_characters("source", Some(&source), BY_CHARACTERS_MAX)?;
    let (revision, tasks) = api.store.revision(Arc::from(source.as_str())).await?;
    let revision = format!("{:016x}", revision.0);
    let (tag, is_known) = (revision.clone(), known.is(&revision));
    Ok(Tagged { tag, is_known, body: Json(SourceShown { source, tasks, revision }) })
}

/// The revision that a source has to have.
pub(crate) enum IfRevision {
    Any,
    Exactly(Revision),
    /// One that no source ever has.
    Unknown,
}

impl<S: Send + Sync> FromRequestParts<S> for IfRevision {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, ApiError> {
        let Some(tag) = text_of(parts, header::IF_MATCH)? else { return Ok(IfRevision::Any) };
        let revision = u64::from_str_radix(tag.trim_matches('"'), 16);
        Ok(revision.map_or(IfRevision::Unknown, |revision| IfRevision::Exactly(Revision(revision))))
    }
}

impl OperationInput for IfRevision {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let tag = json_schema!({ "type": "string", "maxLength": 1_000 });
        add_parameters(ctx, operation, [header_parameter("If-Match", "The ETag that the source must have now", tag)]);
    }
}

pub(crate) async fn apply<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(source): Named,
    Asker(identity): Asker,
    expected: IfRevision,
    client: Client,
    Body(asked): Body<Source>,
) -> Result<Json<AppliedShown>, ApiError> {
    let actor = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    check_characters("source", Some(&source), BY_CHARACTERS_MAX)?;
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
    let expected = match expected {
        IfRevision::Any => None,
        IfRevision::Exactly(revision) => Some(revision),
        IfRevision::Unknown => return Err(ApiError::SourceChanged),
    };
    let mut how = Applying { expected, remove: asked.remove, take_over: asked.take_over, dry_run: asked.dry_run };
    if !identity.may(Role::Editor, None) {
        how = may_apply(&api, &identity, &source, how, &documents).await?;
    }
    check_handed(&api, &documents).await?;
    let own: Vec<Arc<str>> = documents.iter().map(|document| document.definition.name.clone()).collect();
    let applied = api.store.apply_to(source, how, actor, documents, api.clock.now().wall).await?;
    let Applied { created, changed, unchanged, removed, left, taken, refused } = applied.map_err(|_| ApiError::SourceChanged)?;
    if !refused.is_empty() {
        return Err(ApiError::Chains(veil::chains(&api, &identity, &own, refused).await?));
    }
    if !taken.is_empty() && !how.take_over && !how.dry_run {
        return Err(ApiError::TakesOver { taken });
    }
    // What is left may be of groups that they don't see.
    let sight = Sight::new(&api, &identity, Role::Viewer);
    let left = if sight.is_whole() { left } else { Vec::new() };
    if !asked.dry_run {
        api.signal();
    }
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
    let taken = taken.iter().map(|(name, source)| TakenShown { name: name.to_string(), source: source.to_string() }).collect();
    let (created, changed, removed) = (names(&created), names(&changed), names(&removed));
    Ok(Json(AppliedShown { created, changed, unchanged, removed, left: names(&left), taken }))
}

/// Refuses an application that changes, makes or removes what somebody may not edit. One that removes is good for the source as it was looked
/// at only: a task that joins it later was not.
pub(super) async fn may_apply<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    source: &Arc<str>,
    how: Applying,
    documents: &[TaskDocument],
) -> Result<Applying, ApiError> {
    // Of what they may not make nothing else is said.
    documents.iter().try_for_each(|document| may_make(identity, document))?;
    let mut how = how;
    if how.remove {
        if how.expected.is_none() {
            how.expected = Some(api.store.revision(source.clone()).await?.0);
        }
        let dry = Applying { dry_run: true, ..how };
        let planned = api.store.apply_to(source.clone(), dry, Actor::default(), documents.to_vec(), api.clock.now().wall).await?;
        for name in planned.map_err(|_| ApiError::SourceChanged)?.removed {
            if let Some(group) = group_of(api, &name).await?
                && !identity.may(Role::Editor, group.as_deref())
            {
                return Err(ApiError::RemovesOthers);
            }
        }
    }
    may_edit(api, identity, documents, &[]).await?;
    Ok(how)
}

fn may_make(identity: &Identity, document: &TaskDocument) -> Result<(), ApiError> {
    let group = document.definition.group.as_deref();
    match identity.may(Role::Editor, group) {
        true => Ok(()),
        false => Err(ApiError::Forbidden { role: Role::Editor, group: group.map(Arc::from) }),
    }
}

/// Refuses edits of what somebody may not edit: by the group that a task has, and by the one that it would get. A task that fires after one
/// that they don't even see would tell them of it, and one that calls another makes it fire.
pub(super) async fn may_edit<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    documents: &[TaskDocument],
    removed: &[Arc<str>],
) -> Result<(), ApiError> {
    if identity.may(Role::Editor, None) {
        return Ok(());
    }
    documents.iter().try_for_each(|document| may_make(identity, document))?;
    for name in documents.iter().map(|document| &document.definition.name).chain(removed) {
        if let Some(group) = group_of(api, name).await?
            && !identity.may(Role::Editor, group.as_deref())
        {
            // One answer for all that they don't see: neither which task it is nor whose.
            return Err(match identity.may(Role::Viewer, group.as_deref()) {
                true => ApiError::Forbidden { role: Role::Editor, group },
                false => ApiError::OutOfReach,
            });
        }
    }
    let is_own = |name: &Arc<str>| documents.iter().any(|document| document.definition.name == *name);
    for document in documents {
        let after = document.definition.chains.as_deref().unwrap_or_default().iter().map(|chain| (chain.task.clone(), Role::Viewer));
        let called = document.definition.called_tasks().into_iter().map(|(called, _)| (called, Role::Operator));
        for (name, role) in after.chain(called).filter(|(name, _)| !is_own(name)) {
            may_on_task(api, identity, role, &name, || ApiError::NoSuchTask { name: name.to_string() }).await?;
        }
    }
    Ok(())
}

pub(super) fn read<S, C>(api: &Api<S, C>, document: &str) -> Result<TaskDocument, String> {
    let spec = TaskSpec::from_json(document).map_err(|finding| finding.to_string())?;
    crate::open::document(&spec, &api.zones).map_err(|error| error.to_string())
}
