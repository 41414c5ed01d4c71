//! Dead letters: what was given up and waits for a person to run it again or to discard it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_core::ids::InboxId;
use punctual_core::limits;
use punctual_driver::ports::{Catalog, Clock, DeadLetterFilter, Discarded, InstanceCursor, InstanceView, Rerunning, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, Body, Client, behind, check_length};
use super::instances::{check_task, cursor, find, parse_cursor};
use super::reruns::{Reason, next_run};
use super::rules::may_on_task;
use super::sight::Sight;
use super::tasks::checked_limit;
use super::{Api, ApiError, PAGE_MAX, veil, views};
use crate::identity::{Identity, Role};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this task only.
    pub(crate) task: Option<String>,
    /// The `next` of the page before.
    #[schemars(regex(pattern = r"^-?[0-9]{1,15}(_[0-9]{1,9}){3,4}$"))]
    pub(crate) after: Option<String>,
    /// The same, under its older name, which is not described any more.
    #[schemars(skip)]
    pub(crate) before: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    pub(crate) limit: Option<usize>,
}

/// Dead letters that nobody has settled, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLetters {
    dead_letters: Vec<views::InstanceShown>,
    next: Option<String>,
}

/// Dead letters of which is told as what they run again.
const RUNS_TOLD_MAX: usize = 100;

/// What became of dead letters that were to be run again.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replayed {
    replayed: Vec<String>,
    /// Those that were to be run again before.
    repeated: Vec<String>,
    /// As what they run again, of those that were named: up to a hundred.
    runs: Vec<RunAgain>,
    refused: Vec<Refusal>,
    /// Whether there may be more: ask again.
    more: bool,
}

/// A dead letter that runs again.
#[derive(Serialize, JsonSchema)]
struct RunAgain {
    of: String,
    /// The new instance; null: its owner has not made it yet.
    instance: Option<String>,
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
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
) -> Result<Json<DeadLetters>, ApiError> {
    let (letters, next) = page_of(&api, &identity, filter).await?;
    let next = next.map(cursor);
    Ok(Json(DeadLetters { dead_letters: letters.iter().map(views::instance).collect(), next }))
}

/// A page of dead letters that somebody sees, and where the next one begins.
pub(crate) async fn page_of<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    filter: Filter,
) -> Result<(Vec<InstanceView>, Option<InstanceCursor>), ApiError> {
    let mut sight = Sight::new(api, identity, Role::Viewer);
    let limit = checked_limit(filter.limit)?;
    let before = behind(filter.after, filter.before)?.map(|text| parse_cursor(&text)).transpose()?;
    check_task(api, &mut sight, filter.task.as_deref()).await?;
    let (mut letters, next) = page(api, &mut sight, DeadLetterFilter { task: filter.task.map(Arc::from), before, limit }).await?;
    veil::instances(api, identity, &mut letters).await?;
    Ok((letters, next))
}

/// The dead letters of a filter that somebody sees, and the place of the last one that was read where there may be more.
async fn page<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    sight: &mut Sight<'_, S, C>,
    filter: DeadLetterFilter,
) -> Result<(Vec<InstanceView>, Option<InstanceCursor>), ApiError> {
    let (store, filter) = (&*api.store, &filter);
    let read = |before| async move { Ok(store.dead_letters(DeadLetterFilter { before, ..filter.clone() }).await?) };
    let place = |view: &InstanceView| InstanceCursor::of(&view.row);
    sight.page(filter.limit, filter.before, read, place, |view| Some(view.task_name.clone())).await
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
    /// At most [`PAGE_MAX`] of them, and whether there may be more. Where all are meant, those that somebody may not settle are left out.
    async fn found<S: Catalog, C: Clock>(self, api: &Api<S, C>, identity: &Identity) -> Result<(Vec<InstanceView>, bool), ApiError> {
        let ways = [!self.instances.is_empty(), self.task.is_some(), self.all].iter().filter(|way| **way).count();
        if ways != 1 {
            let problem = "say which: `instances`, or `task`, or `all`, and only one of them".to_owned();
            return Err(ApiError::BadRequest { field: "instances", problem });
        }
        if self.instances.is_empty() {
            check_task(api, &mut Sight::new(api, identity, Role::Viewer), self.task.as_deref()).await?;
            if let Some(task) = &self.task {
                may_on_task(api, identity, Role::Operator, task, || ApiError::NoSuchTask { name: task.clone() }).await?;
            }
            let limit = checked_limit(Some(self.limit.unwrap_or(PAGE_MAX)))?;
            let filter = DeadLetterFilter { task: self.task.map(Arc::from), before: None, limit };
            let (found, next) = page(api, &mut Sight::new(api, identity, Role::Operator), filter).await?;
            return Ok((found, next.is_some()));
        }
        if self.instances.len() > PAGE_MAX {
            let problem = format!("{} are more than {PAGE_MAX}; ask in parts", self.instances.len());
            return Err(ApiError::BadRequest { field: "instances", problem });
        }
        let mut found = Vec::with_capacity(self.instances.len());
        for id in &self.instances {
            let view = find(api, id).await?;
            may_on_task(api, identity, Role::Operator, &view.task_name, || ApiError::NoSuchInstance { id: id.clone() }).await?;
            found.push(view);
        }
        Ok((found, false))
    }
}

/// Runs dead letters again, each once however often that is asked. What can't be is said of each, and the others go on.
pub(crate) async fn replay<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    client: Client,
    Body(which): Body<Which>,
) -> Result<Json<Replayed>, ApiError> {
    let (chosen, reason) = which.split();
    let actor = reason.actor(client)?;
    let are_named = !chosen.instances.is_empty();
    let (found, more) = chosen.found(&api, &identity).await?;
    let (mut replayed, mut repeated, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut begun = Vec::new();
    for of in found {
        let id = of.row.id;
        if of.row.state != punctual_core::instance::State::DeadLettered {
            refused.push(refusal(&ApiError::NotDead { id }, &of));
            continue;
        }
        match api.store.rerun(id, actor.clone(), Rerunning::Unsuccessful, api.clock.now().wall).await? {
            Submitted::Accepted { entry } => {
                replayed.push(id.to_string());
                begun.push((of, entry));
            }
            Submitted::Repeated { entry } => {
                repeated.push(id.to_string());
                begun.push((of, entry));
            }
            Submitted::NoSuchTask => refused.push(refusal(&ApiError::NoSuchTask { name: of.task_name.to_string() }, &of)),
            Submitted::IsPart { whole } => refused.push(refusal(&ApiError::IsPart { id, whole }, &of)),
            _ => refused.push(refusal(&ApiError::NotNewest { id }, &of)),
        }
    }
    api.signal();
    begun.truncate(if are_named { RUNS_TOLD_MAX } else { 0 });
    let runs = runs_again(&api, &begun).await?;
    Ok(Json(Replayed { replayed, repeated, runs, refused, more }))
}

/// As what these run again, as far as their owners have made that in time.
async fn runs_again<S: Catalog, C: Clock>(api: &Api<S, C>, begun: &[(InstanceView, InboxId)]) -> Result<Vec<RunAgain>, ApiError> {
    let mut runs: Vec<_> = begun.iter().map(|(of, _)| RunAgain { of: of.row.id.to_string(), instance: None }).collect();
    let looking = async {
        for (run, (of, entry)) in runs.iter_mut().zip(begun) {
            let made = api.when_applied(*entry, || async move { Ok(next_run(&*api.store, of).await?) }).await?;
            run.instance = made.map(|view| view.row.id.to_string());
        }
        Ok::<_, ApiError>(())
    };
    // They are made side by side, so the time for one is enough for all.
    tokio::time::timeout(super::APPLY_WAIT, looking).await.unwrap_or(Ok(()))?;
    Ok(runs)
}

/// Settles dead letters without running them again.
pub(crate) async fn discard<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    client: Client,
    Body(which): Body<Which>,
) -> Result<Json<DiscardedShown>, ApiError> {
    let (chosen, reason) = which.split();
    check_length("reason", reason.reason.as_deref(), limits::DETAIL_BYTES_MAX)?;
    if reason.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(ApiError::BadRequest { field: "reason", problem: "say why they are discarded, for the record".to_owned() });
    }
    let actor = reason.actor(client)?;
    let (found, more) = chosen.found(&api, &identity).await?;
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
