//! Dead letters: what was given up and waits for a person to run it again or to discard it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_core::limits;
use punctual_driver::ports::{Catalog, Clock, DeadLetterFilter, Discarded, InstanceView, Rerunning, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Body, Client, behind, check_length};
use super::instances::{cursor, find, parse_cursor};
use super::reruns::Reason;
use super::tasks::checked_limit;
use super::{Api, ApiError, PAGE_MAX, views};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this task only.
    task: Option<String>,
    /// The `next` of the page before.
    #[schemars(regex(pattern = r"^-?[0-9]{1,15}(_[0-9]{1,9}){3,4}$"))]
    after: Option<String>,
    /// The same, under its older name, which is not described any more.
    #[schemars(skip)]
    before: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// Dead letters that nobody has settled, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLetters {
    dead_letters: Vec<views::InstanceShown>,
    next: Option<String>,
}

/// What became of dead letters that were to be run again.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replayed {
    replayed: Vec<String>,
    /// Those that were to be run again before.
    repeated: Vec<String>,
    refused: Vec<Refusal>,
    /// Whether there may be more: ask again.
    more: bool,
}

/// What became of dead letters that were to be discarded.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiscardedShown {
    discarded: Vec<String>,
    refused: Vec<Refusal>,
    /// Whether there may be more: ask again.
    more: bool,
}

/// Why something was not done with one of them.
#[derive(Serialize, JsonSchema)]
struct Refusal {
    instance: String,
    task: String,
    code: &'static str,
    detail: String,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asked(filter): Asked<Filter>,
) -> Result<Json<DeadLetters>, ApiError> {
    let limit = checked_limit(filter.limit)?;
    let before = behind(filter.after, filter.before)?.map(|text| parse_cursor(&text)).transpose()?;
    check_task(&api, filter.task.as_deref()).await?;
    let filter = DeadLetterFilter { task: filter.task.map(Arc::from), before, limit };
    let letters = api.store.dead_letters(filter).await?;
    let next = (letters.len() == limit).then(|| letters.last().map(|last| cursor(&last.row))).flatten();
    Ok(Json(DeadLetters { dead_letters: letters.iter().map(views::instance).collect(), next }))
}

/// Which dead letters: those that are named, or those of a task, the newest first.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    #[serde(default)]
    instances: Vec<String>,
    task: Option<String>,
    /// Every one there is.
    #[serde(default)]
    all: bool,
    #[schemars(range(min = 1, max = 1_000))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    limit: Option<usize>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
}

impl Which {
    fn split(self) -> (Chosen, Reason) {
        let Which { instances, task, all, limit, by, reason } = self;
        (Chosen { instances, task, all, limit }, Reason { reason, by })
    }
}

struct Chosen {
    instances: Vec<String>,
    task: Option<String>,
    all: bool,
    limit: Option<usize>,
}

impl Chosen {
    /// At most [`PAGE_MAX`] of them, and whether there may be more.
    async fn found<S: Catalog, C: Clock>(self, api: &Api<S, C>) -> Result<(Vec<InstanceView>, bool), ApiError> {
        let ways = [!self.instances.is_empty(), self.task.is_some(), self.all].iter().filter(|way| **way).count();
        if ways != 1 {
            let problem = "say which: `instances`, or `task`, or `all`, and only one of them".to_owned();
            return Err(ApiError::BadRequest { field: "instances", problem });
        }
        if self.instances.is_empty() {
            check_task(api, self.task.as_deref()).await?;
            let limit = checked_limit(Some(self.limit.unwrap_or(PAGE_MAX)))?;
            let filter = DeadLetterFilter { task: self.task.map(Arc::from), before: None, limit };
            let found = api.store.dead_letters(filter).await?;
            let is_full = found.len() == limit;
            return Ok((found, is_full));
        }
        if self.instances.len() > PAGE_MAX {
            let problem = format!("{} are more than {PAGE_MAX}; ask in parts", self.instances.len());
            return Err(ApiError::BadRequest { field: "instances", problem });
        }
        let mut found = Vec::with_capacity(self.instances.len());
        for id in &self.instances {
            found.push(find(api, id).await?);
        }
        Ok((found, false))
    }
}

/// Runs dead letters again, each once however often that is asked. What can't be is said of each, and the others go on.
pub(crate) async fn replay<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    client: Client,
    Body(which): Body<Which>,
) -> Result<Json<Replayed>, ApiError> {
    let (chosen, reason) = which.split();
    let actor = reason.actor(client)?;
    let (found, more) = chosen.found(&api).await?;
    let (mut replayed, mut repeated, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for of in found {
        let id = of.row.id;
        if of.row.state != punctual_core::instance::State::DeadLettered {
            refused.push(refusal(&ApiError::NotDead { id }, &of));
            continue;
        }
        match api.store.rerun(id, actor.clone(), Rerunning::Unsuccessful, api.clock.now().wall).await? {
            Submitted::Accepted { .. } => replayed.push(id.to_string()),
            Submitted::Repeated { .. } => repeated.push(id.to_string()),
            Submitted::NoSuchTask => refused.push(refusal(&ApiError::NoSuchTask { name: of.task_name.to_string() }, &of)),
            Submitted::IsPart { whole } => refused.push(refusal(&ApiError::IsPart { id, whole }, &of)),
            _ => refused.push(refusal(&ApiError::NotNewest { id }, &of)),
        }
    }
    api.signal();
    Ok(Json(Replayed { replayed, repeated, refused, more }))
}

/// Settles dead letters without running them again.
pub(crate) async fn discard<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    client: Client,
    Body(which): Body<Which>,
) -> Result<Json<DiscardedShown>, ApiError> {
    let (chosen, reason) = which.split();
    check_length("reason", reason.reason.as_deref(), limits::DETAIL_BYTES_MAX)?;
    if reason.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(ApiError::BadRequest { field: "reason", problem: "say why they are discarded, for the record".to_owned() });
    }
    let actor = reason.actor(client)?;
    let (found, more) = chosen.found(&api).await?;
    let (mut discarded, mut refused) = (Vec::new(), Vec::new());
    for of in found {
        let id = of.row.id;
        match api.store.discard(id, actor.clone(), api.clock.now().wall).await? {
            Discarded::Done => discarded.push(id.to_string()),
            Discarded::Settled => refused.push(refusal(&ApiError::Settled { id }, &of)),
            Discarded::NotDead | Discarded::NoSuchInstance => refused.push(refusal(&ApiError::NotDead { id }, &of)),
        }
    }
    Ok(Json(DiscardedShown { discarded, refused, more }))
}

fn refusal(error: &ApiError, of: &InstanceView) -> Refusal {
    Refusal { instance: of.row.id.to_string(), task: of.task_name.to_string(), code: error.code(), detail: error.to_string() }
}

async fn check_task<S: Catalog, C: Clock>(api: &Api<S, C>, name: Option<&str>) -> Result<(), ApiError> {
    match name {
        Some(name) if api.store.task(Arc::from(name)).await?.is_none() => Err(ApiError::NoSuchTask { name: name.to_owned() }),
        _ => Ok(()),
    }
}
