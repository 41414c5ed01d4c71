//! Pauses: of a task, of a group, of everything; and drained workers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::ids::InboxId;
use punctual_driver::ports::{Catalog, Clock, PauseSet, PauseTarget, PauseView};
use schemars::JsonSchema;
use serde::Serialize;

use super::cluster::own_status;
use super::extract::{Asker, Body, Client, Named};
use super::openapi::Done;
use super::reruns::Reason;
use super::sight::Sight;
use super::{APPLY_WAIT, Api, ApiError};
use crate::identity::{Identity, Role};

/// All pauses.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Pauses {
    pauses: Vec<PauseShown>,
}

/// What a pause holds: one of these.
#[derive(Serialize, JsonSchema)]
struct Target {
    /// Everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<bool>,
    /// The tasks of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// A task.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// A worker, which is drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
}

/// A pause.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PauseShown {
    #[serde(flatten)]
    target: Target,
    since: String,
    by: String,
    from: Option<String>,
    reason: Option<String>,
}

/// What became of a pause or its end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PauseSaid {
    paused: bool,
    /// False: it was so already.
    changed: bool,
    target: Target,
    /// What the owners were told.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<String>>,
    /// True: all owners hold it, or let go; null: that can't be told yet.
    in_effect: Option<bool>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(State(api): State<Api<S, C>>, Asker(identity): Asker) -> Result<Json<Pauses>, ApiError> {
    Ok(Json(Pauses { pauses: seen(&api, &identity).await?.iter().map(view).collect() }))
}

/// The pauses that somebody sees.
pub(crate) async fn seen<S: Catalog, C: Clock>(api: &Api<S, C>, identity: &Identity) -> Result<Vec<PauseView>, ApiError> {
    let mut sight = Sight::new(api, identity, Role::Viewer);
    let mut pauses = Vec::new();
    for pause in api.store.pauses().await? {
        let is_seen = match &pause.target {
            // They hold everybody's.
            PauseTarget::All | PauseTarget::Worker(_) => true,
            PauseTarget::Group(group) => sight.group(Some(group)),
            PauseTarget::Task(task) => sight.task(task).await?,
        };
        if is_seen {
            pauses.push(pause);
        }
    }
    Ok(pauses)
}

macro_rules! handlers {
    ($($all:ident, $group:ident, $task:ident, $worker:ident: $is_paused:literal;)*) => { $(
        pub(crate) async fn $all<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<Done<PauseSaid>, ApiError> {
            set(&api, PauseTarget::All, $is_paused, reason, client).await
        }

        pub(crate) async fn $group<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            Named(group): Named,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<Done<PauseSaid>, ApiError> {
            set(&api, PauseTarget::Group(Arc::from(group)), $is_paused, reason, client).await
        }

        pub(crate) async fn $task<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            Named(name): Named,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<Done<PauseSaid>, ApiError> {
            set(&api, PauseTarget::Task(Arc::from(name)), $is_paused, reason, client).await
        }

        pub(crate) async fn $worker<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            Named(worker): Named,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<Done<PauseSaid>, ApiError> {
            // One that has gone for good can be let go. Where nobody can be asked who is there, the name is believed.
            if $is_paused && own_status(&api).await.is_some_and(|own| own.workers.iter().all(|view| *view.worker.0 != *worker)) {
                return Err(ApiError::NoSuchWorker { worker });
            }
            set(&api, PauseTarget::Worker(Arc::from(worker)), $is_paused, reason, client).await
        }
    )* };
}
handlers! {
    pause_all, pause_group, pause_task, drain: true;
    resume_all, resume_group, resume_task, undrain: false;
}

/// Answers once all owners hold it, or let go; where that can't be told in time, `in_effect` is null.
async fn set<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    target: PauseTarget,
    is_paused: bool,
    reason: Reason,
    client: Client,
) -> Result<Done<PauseSaid>, ApiError> {
    let actor = reason.actor(client)?;
    let shown = target_of(&target);
    let entries = match api.store.set_pause(target.clone(), is_paused, actor, api.clock.now().wall).await? {
        PauseSet::Accepted { entries } => entries,
        PauseSet::Unchanged => {
            let said = PauseSaid { paused: is_paused, changed: false, target: shown, entries: None, in_effect: Some(true) };
            return Ok(Done(StatusCode::OK, Json(said)));
        }
        PauseSet::NoSuchTask => return Err(ApiError::NoSuchTask { name: target.name().to_owned() }),
        PauseSet::NoSuchGroup => return Err(ApiError::NoSuchGroup { group: target.name().to_owned() }),
    };
    api.signal();
    let in_effect = all_applied(api, &entries).await?.then_some(true);
    let entries = Some(entries.iter().map(ToString::to_string).collect());
    let said = PauseSaid { paused: is_paused, changed: true, target: shown, entries, in_effect };
    Ok(Done(StatusCode::ACCEPTED, Json(said)))
}

/// Whether all of these entries have been applied: by this replica, or because no inbox has anything.
async fn all_applied<S: Catalog, C: Clock>(api: &Api<S, C>, entries: &[InboxId]) -> Result<bool, ApiError> {
    let own = async {
        for entry in entries {
            api.applied.wait(*entry).await;
        }
    };
    if tokio::time::timeout(APPLY_WAIT, own).await.is_ok() {
        return Ok(true);
    }
    Ok(api.store.partition_views().await?.iter().all(|partition| partition.inbox == 0))
}

/// The pauses that hold a task.
pub(crate) fn of_task(pauses: &[PauseView], name: &str, group: Option<&str>) -> Vec<PauseShown> {
    let holds = |target: &PauseTarget| match target {
        PauseTarget::All => true,
        PauseTarget::Group(paused) => Some(&**paused) == group,
        PauseTarget::Task(paused) => &**paused == name,
        PauseTarget::Worker(_) => false,
    };
    pauses.iter().filter(|pause| holds(&pause.target)).map(view).collect()
}

pub(crate) fn view(pause: &PauseView) -> PauseShown {
    PauseShown {
        target: target_of(&pause.target),
        since: pause.since.to_string(),
        by: pause.actor.by.to_string(),
        from: pause.actor.from.as_deref().map(str::to_owned),
        reason: pause.actor.why.as_deref().map(str::to_owned),
    }
}

fn target_of(target: &PauseTarget) -> Target {
    let none = Target { all: None, group: None, task: None, worker: None };
    match target {
        PauseTarget::All => Target { all: Some(true), ..none },
        PauseTarget::Group(group) => Target { group: Some(group.to_string()), ..none },
        PauseTarget::Task(task) => Target { task: Some(task.to_string()), ..none },
        PauseTarget::Worker(worker) => Target { worker: Some(worker.to_string()), ..none },
    }
}
