//! Those who use the API: the plan's calls, each to a replica that is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use punctual_core::ids::{InboxId, InstanceId};
use punctual_sim::history::{Answer, Ask, What, Who};
use punctual_sim::plan::{Call, CallKind, PauseOn, Plan};
use punctual_sim::tabletop::PauseTarget;
use punctual_sim::workload::{document, spec};
use punctual_spec::spec::{CustomHandler, Handler};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::http::{Said, encoded, request};
use crate::merge::ENTRY_UNTOLD;
use crate::worker::HANDLER;

/// How long a client waits before it makes a call again whose answer was lost.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// So long after all is well again nobody's question is under way any more that was asked before: whoever has made a pause lifts it again.
const PAUSES_OVER_AFTER_MS: u64 = 15_000;
/// Calls of a flood that are under way at once.
const FLOOD_AT_ONCE: usize = 64;

/// Those who use the API.
#[derive(Debug, Default)]
pub struct People {
    numbers: AtomicU64,
    turns: AtomicUsize,
}

/// A task's document as it is here: the plan's, run by the handler that workers have, with a payload that is JSON, as such handlers want it.
pub fn own_document(of_plan: &Value) -> Value {
    let Ok(mut spec) = spec(of_plan) else { return of_plan.clone() };
    spec.handler = Handler::Custom(CustomHandler { name: HANDLER.to_owned(), config: Map::new() });
    spec.payload = spec.payload.map(|text| Value::String(text).to_string());
    document(spec)
}

fn name_of(plan: &Plan, task: usize) -> Arc<str> {
    Arc::from(plan.tasks[task].document["name"].as_str().unwrap_or_default())
}

impl Cluster {
    /// Makes the plan's tasks, until each is there.
    pub async fn define_all(&self) {
        for (task, planned) in self.plan.tasks.iter().enumerate() {
            while self.define(task, Some(&planned.document)).await == Answer::Unknown {
                sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// Makes a call of the plan.
    pub async fn make(&self, call: &Call) {
        match &call.what {
            CallKind::Trigger { task, delay_ms, key } => {
                let name = name_of(&self.plan, *task);
                let key: Option<Arc<str>> = key.as_deref().map(Arc::from);
                // A call whose answer was lost is made again only where a key makes it the same call.
                while self.trigger(&name, key.clone(), *delay_ms).await == Answer::Unknown && key.is_some() && !self.is_healed() {
                    sleep(AGAIN_AFTER).await;
                }
            }
            CallKind::Cancel { nth } => self.cancel(*nth).await,
            CallKind::Edit { task, document } => drop(self.define(*task, Some(document)).await),
            CallKind::Remove { task } => drop(self.define(*task, None).await),
            // Whom it meets is found in the database's memory: it is not drawn for real processes.
            CallKind::Operate { .. } => {}
            CallKind::Pause { on, lasts_ms } => {
                self.set_pause(on, true).await;
                sleep(Duration::from_millis(*lasts_ms)).await;
                self.lift_pause(on).await;
                // A pause that was long under way may come after its end.
                sleep(Duration::from_millis((self.plan.heal_at_ms + PAUSES_OVER_AFTER_MS).saturating_sub(self.origin.at_ms()))).await;
                self.lift_pause(on).await;
            }
        }
    }

    /// So many submissions at once; fewer where they take until all is to be well again.
    pub async fn flood(self: &Arc<Self>, task: usize, count: usize) {
        let name = name_of(&self.plan, task);
        let mut calls = JoinSet::new();
        for _ in 0..count {
            while self.origin.at_ms() < self.plan.heal_at_ms && !self.replicas.iter().any(|replica| replica.node.is_well()) {
                sleep(AGAIN_AFTER).await;
            }
            if self.origin.at_ms() >= self.plan.heal_at_ms {
                break;
            }
            if calls.len() >= FLOOD_AT_ONCE {
                calls.join_next().await;
            }
            let (cluster, name) = (self.clone(), name.clone());
            calls.spawn(async move { cluster.trigger(&name, None, None).await });
        }
        calls.join_all().await;
    }

    async fn trigger(&self, task: &Arc<str>, key: Option<Arc<str>>, delay_ms: Option<u64>) -> Answer {
        let ask = Ask::Trigger { task: task.clone(), key: key.clone() };
        let path = format!("/api/v1/tasks/{}/trigger", encoded(task));
        let body = delay_ms.map_or_else(|| json!({ "by": "client" }), |delay_ms| json!({ "by": "client", "delay_ms": delay_ms }));
        let headers: Vec<(&str, &str)> = key.iter().map(|key| ("Idempotency-Key", &**key)).collect();
        self.ask(ask, "POST", &path, &headers, &body, |said| {
            let entry = said.body["submission"].as_str().and_then(|entry| entry.parse().ok()).map(InboxId);
            match (said.status, entry) {
                (202, Some(entry)) => Answer::Accepted(entry),
                (200, Some(entry)) => Answer::Repeated(entry),
                _ => answer_without_entry(said),
            }
        })
        .await
    }

    /// Whether a pause was made or not: whoever asked for it sees to it that it is over.
    async fn lift_pause(&self, on: &PauseOn) {
        while self.set_pause(on, false).await == Answer::Unknown {
            sleep(AGAIN_AFTER).await;
        }
    }

    async fn set_pause(&self, on: &PauseOn, is_paused: bool) -> Answer {
        let verb = if is_paused { "pause" } else { "resume" };
        let (target, path) = match on {
            PauseOn::All => (PauseTarget::All, format!("/api/v1/{verb}")),
            PauseOn::Group(group) => (PauseTarget::Group(Arc::from(group.as_str())), format!("/api/v1/groups/{}/{verb}", encoded(group))),
            PauseOn::Task(task) => {
                let name = name_of(&self.plan, *task);
                let path = format!("/api/v1/tasks/{}/{verb}", encoded(&name));
                (PauseTarget::Task(name), path)
            }
            PauseOn::Worker(worker) => {
                let name: Arc<str> = Arc::from(format!("w{}", worker + 1));
                let path = format!("/api/v1/workers/{name}/{}", if is_paused { "drain" } else { "undrain" });
                (PauseTarget::Worker(name), path)
            }
        };
        let ask = Ask::Pause { target, is_paused };
        self.ask(ask, "POST", &path, &[], &json!({ "by": "client" }), |said| {
            let entry = said.body["entries"][0].as_str().and_then(|entry| entry.parse().ok()).map(InboxId);
            match (said.status, entry) {
                (202, Some(entry)) => Answer::Accepted(entry),
                // It is so already.
                (200, _) => Answer::Refused(Arc::from("it is so already")),
                _ => answer_without_entry(said),
            }
        })
        .await
    }

    async fn cancel(&self, nth: usize) {
        let mut live: Vec<InstanceId> = Vec::new();
        for state in ["waiting", "created", "dispatched", "running", "retrying"] {
            let path = format!("/api/v1/instances?limit=1000&state={state}");
            let Some(said) = request(self.replica(), "GET", &path, &[], None).await else { continue };
            let instances = said.body["instances"].as_array().cloned().unwrap_or_default();
            live.extend(instances.iter().filter_map(|instance| instance["id"].as_str()?.parse::<InstanceId>().ok()));
        }
        live.sort_unstable();
        live.dedup();
        if live.is_empty() {
            return;
        }
        let instance = live[nth % live.len()];
        let path = format!("/api/v1/instances/{instance}/cancel");
        let answered = |said: &Said| match said.status {
            202 => Answer::Accepted(ENTRY_UNTOLD),
            // It has ended in another way; whether before it was asked for, or before that was taken up, is not said.
            409 if said.body["cancelled"] == false => Answer::Unknown,
            _ => answer_without_entry(said),
        };
        self.ask(Ask::Cancel { instance }, "POST", &path, &[], &json!({ "by": "client" }), answered).await;
    }

    /// Writes a version of a task, `None`: its removal. Each task is a source of its own.
    async fn define(&self, task: usize, of_plan: Option<&Value>) -> Answer {
        let name = name_of(&self.plan, task);
        let documents: Vec<Value> = of_plan.map(own_document).into_iter().collect();
        let path = format!("/api/v1/sources/{}", encoded(&name));
        let body = json!({ "documents": documents, "remove": true, "take_over": true, "by": "client" });
        self.ask(Ask::Define { task: name }, "PUT", &path, &[], &body, |said| {
            let has_written =
                ["created", "changed", "removed"].iter().any(|list| said.body[*list].as_array().is_some_and(|list| !list.is_empty()));
            match said.status {
                200 if has_written => Answer::Accepted(ENTRY_UNTOLD),
                200 => Answer::Refused(Arc::from("it is like that already")),
                _ => answer_without_entry(said),
            }
        })
        .await
    }

    async fn ask(
        &self,
        ask: Ask,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
        answer: impl Fn(&Said) -> Answer,
    ) -> Answer {
        let call = self.people.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        self.notes.note(Who::Client, What::Asked { call, ask });
        let said = request(self.replica(), method, path, headers, Some(body)).await;
        let answer = said.as_ref().map_or(Answer::Unknown, answer);
        self.notes.note(Who::Client, What::Answered { call, answer: answer.clone() });
        answer
    }

    /// The port of a replica that is well; each in turn.
    fn replica(&self) -> u16 {
        let turn = self.people.turns.fetch_add(1, Ordering::Relaxed);
        let well: Vec<u16> = self.replicas.iter().filter(|replica| replica.node.is_well()).map(|replica| replica.api).collect();
        match well.is_empty() {
            true => self.replicas[turn % self.replicas.len()].api,
            false => well[turn % well.len()],
        }
    }
}

/// What refuses has written nothing; what fails may have.
fn answer_without_entry(said: &Said) -> Answer {
    match said.status {
        400..500 => Answer::Refused(Arc::from(said.body["detail"].as_str().unwrap_or("refused"))),
        _ => Answer::Unknown,
    }
}
