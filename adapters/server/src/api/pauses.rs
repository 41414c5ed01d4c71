//! Pauses: of a task, of a group, of everything.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use punctual_core::ids::InboxId;
use punctual_driver::ports::{Catalog, Clock, PauseSet, PauseTarget, PauseView};
use serde_json::{Value, json};

use super::extract::{Asker, Body, Client, Named};
use super::reruns::Reason;
use super::sight::Sight;
use super::{APPLY_WAIT, Api, ApiError};
use crate::identity::Role;

pub(crate) async fn list<S: Catalog, C: Clock>(State(api): State<Api<S, C>>, Asker(identity): Asker) -> Result<Json<Value>, ApiError> {
    let mut sight = Sight::new(&api, &identity, Role::Viewer);
    let mut pauses = Vec::new();
    for pause in api.store.pauses().await? {
        let is_seen = match &pause.target {
            // It holds everybody's.
            PauseTarget::All => true,
            PauseTarget::Group(group) => sight.group(Some(group)),
            PauseTarget::Task(task) => sight.task(task).await?,
        };
        if is_seen {
            pauses.push(view(&pause));
        }
    }
    Ok(Json(json!({ "pauses": pauses })))
}

macro_rules! handlers {
    ($($all:ident, $group:ident, $task:ident: $is_paused:literal;)*) => { $(
        pub(crate) async fn $all<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<(StatusCode, Json<Value>), ApiError> {
            set(&api, PauseTarget::All, $is_paused, reason, client).await
        }

        pub(crate) async fn $group<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            Named(group): Named,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<(StatusCode, Json<Value>), ApiError> {
            set(&api, PauseTarget::Group(Arc::from(group)), $is_paused, reason, client).await
        }

        pub(crate) async fn $task<S: Catalog, C: Clock>(
            State(api): State<Api<S, C>>,
            Named(name): Named,
            client: Client,
            Body(reason): Body<Reason>,
        ) -> Result<(StatusCode, Json<Value>), ApiError> {
            set(&api, PauseTarget::Task(Arc::from(name)), $is_paused, reason, client).await
        }
    )* };
}
handlers! {
    pause_all, pause_group, pause_task: true;
    resume_all, resume_group, resume_task: false;
}

/// Answers once all owners hold it, or let go; where that can't be told in time, `in_effect` is null.
async fn set<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    target: PauseTarget,
    is_paused: bool,
    reason: Reason,
    client: Client,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let actor = reason.actor(client)?;
    let shown = target_of(&target);
    let entries = match api.store.set_pause(target.clone(), is_paused, actor, api.clock.now().wall).await? {
        PauseSet::Accepted { entries } => entries,
        PauseSet::Unchanged => {
            return Ok((StatusCode::OK, Json(json!({ "paused": is_paused, "changed": false, "target": shown, "in_effect": true }))));
        }
        PauseSet::NoSuchTask => return Err(ApiError::NoSuchTask { name: target.name().to_owned() }),
        PauseSet::NoSuchGroup => return Err(ApiError::NoSuchGroup { group: target.name().to_owned() }),
    };
    api.signal();
    let in_effect = all_applied(api, &entries).await?.then_some(true);
    let entries: Vec<_> = entries.iter().map(ToString::to_string).collect();
    let answer = json!({ "paused": is_paused, "changed": true, "target": shown, "entries": entries, "in_effect": in_effect });
    Ok((StatusCode::ACCEPTED, Json(answer)))
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
pub(crate) fn of_task(pauses: &[PauseView], name: &str, group: Option<&str>) -> Vec<Value> {
    let holds = |target: &PauseTarget| match target {
        PauseTarget::All => true,
        PauseTarget::Group(paused) => Some(&**paused) == group,
        PauseTarget::Task(paused) => &**paused == name,
    };
    pauses.iter().filter(|pause| holds(&pause.target)).map(view).collect()
}

pub(crate) fn view(pause: &PauseView) -> Value {
    let mut value = target_of(&pause.target);
    value["since"] = json!(pause.since.to_string());
    value["by"] = json!(&*pause.actor.by);
    value["from"] = json!(pause.actor.from.as_deref());
    value["reason"] = json!(pause.actor.why.as_deref());
    value
}

fn target_of(target: &PauseTarget) -> Value {
    match target {
        PauseTarget::All => json!({ "all": true }),
        PauseTarget::Group(group) => json!({ "group": &**group }),
        PauseTarget::Task(task) => json!({ "task": &**task }),
    }
}
