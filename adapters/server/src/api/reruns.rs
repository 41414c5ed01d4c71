//! Instances that have ended and run once more.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::instance::{InstanceRow, Part};
use punctual_core::limits;
use punctual_driver::ports::{Actor, Catalog, Clock, InstanceCursor, InstanceFilter, InstanceView, Rerunning, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Body, Client, Named, check_characters, check_length};
use super::instances::find;
use super::openapi::Done;
use super::{Api, ApiError, BY_CHARACTERS_MAX, nodes, views};

/// What is to be run again.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rerun {
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
    /// The nodes of a workflow's run; all where it is left out.
    from: Vec<String>,
    /// Of a firing that was divided: also the shards that have succeeded.
    all: bool,
    /// Whether what comes after them runs again also where it had succeeded.
    cascade: bool,
}

/// Why something is done, and who does it.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    pub(crate) reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    pub(crate) by: Option<String>,
}

impl Reason {
    /// Both, where they are not too long, and what they were sent with.
    pub(crate) fn actor(self, client: Client) -> Result<Actor, ApiError> {
        check_characters("by", self.by.as_deref(), BY_CHARACTERS_MAX)?;
        check_length("reason", self.reason.as_deref(), limits::DETAIL_BYTES_MAX)?;
        // Who has signed in is who they are, whatever they call themselves.
        let by = client.by.unwrap_or_else(|| Arc::from(self.by.as_deref().unwrap_or("api")));
        Ok(Actor { by, from: client.from, why: self.reason.map(Arc::from) })
    }
}

/// What became of a rerun.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RerunSaid {
    rerun_of: String,
    /// The new instance; null: its owner has not made it yet.
    instance: Option<views::InstanceShown>,
}

/// Answers with the new instance once its owner has made it.
pub(crate) async fn rerun<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    client: Client,
    Body(asked): Body<Rerun>,
) -> Result<Done<RerunSaid>, ApiError> {
    let actor = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    if asked.cascade && asked.from.is_empty() {
        return Err(ApiError::BadRequest {
            field: "cascade",
            problem: "it goes with `from`: a whole run runs all of its nodes".to_owned(),
        });
    }
    let of = find(&api, &id).await?;
    let instance = of.row.id;
    let which = match asked.from.is_empty() || !of.row.state.is_terminal() {
        true if asked.all => Rerunning::All,
        true => Rerunning::Unsuccessful,
        false => Rerunning::From(nodes::rerun_from(&api, &of, asked.from, asked.cascade).await?),
    };
    let (status, entry) = match api.store.rerun(instance, actor, which, api.clock.now().wall).await? {
        Submitted::Accepted { entry } => (StatusCode::ACCEPTED, entry),
        Submitted::Repeated { entry } => (StatusCode::OK, entry),
        Submitted::StillRuns => return Err(ApiError::StillRuns { id: instance }),
        Submitted::IsPart { whole } => return Err(ApiError::IsPart { id: instance, whole }),
        Submitted::NotNewest => return Err(ApiError::NotNewest { id: instance }),
        Submitted::NoSuchTask => return Err(ApiError::NoSuchTask { name: of.task_name.to_string() }),
        Submitted::NoWorkflow => return Err(ApiError::NoWorkflow { id: instance }),
        _ => return Err(ApiError::NoSuchInstance { id }),
    };
    api.signal();
    let (api, of) = (&api, &of);
    let made = api.when_applied(entry, || async move { Ok(next_run(&*api.store, of).await?) }).await?;
    Ok(Done(status, Json(RerunSaid { rerun_of: instance.to_string(), instance: made.as_ref().map(views::instance) })))
}

/// The run of a firing that follows this one, where there is one.
pub(super) async fn next_run<S: Catalog>(store: &S, of: &InstanceView) -> Result<Option<InstanceView>, punctual_driver::ports::StoreError> {
    let InstanceRow { run, .. } = of.row;
    let next = InstanceCursor { run: run + 1, part: Part::WHOLE, ..InstanceCursor::of(&of.row) };
    // The whole of a firing comes right below its first part.
    let before = Some(InstanceCursor { part: Part(1), ..next });
    let filter = InstanceFilter { task: Some(of.task_name.clone()), before, limit: 1, ..InstanceFilter::default() };
    Ok(store.instances(filter).await?.into_iter().next().filter(|found| InstanceCursor::of(&found.row) == next))
}
