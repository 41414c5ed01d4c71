//! How things look in JSON, the same in the API and in the CLI's `--json`. Ids are text, such as `43-17`.

use punctual_core::batch::Output;
use punctual_core::instance::{Cause, InstanceRow, MapPhase, MapProgress, State, Transition};
use punctual_core::misfire;
use punctual_core::occurrence::Occurrence;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{InstanceView, PauseView, TaskView};
use punctual_spec::zones::Zones;
use serde_json::{Value, json};

use super::pauses;

/// A task in a list.
pub(crate) fn task(view: &TaskView, pauses: &[PauseView], zones: &Zones) -> Value {
    let document: Value = serde_json::from_str(&view.document).unwrap_or(Value::Null);
    let paused = pauses::of_task(pauses, &view.name, document["group"].as_str());
    json!({
        "name": &*view.name,
        "id": view.task.to_string(),
        "version": view.version.0,
        "removed": view.removed,
        "next_fire": instant(next_fire(view, &document, zones).filter(|_| paused.is_empty())),
        "paused": paused,
        "definition": document,
    })
}

/// When the task fires next: its cursor, unless that stands on a fire time that the task leaves out.
fn next_fire(view: &TaskView, document: &Value, zones: &Zones) -> Option<Timestamp> {
    let cursor = view.next_fire?;
    let may_leave_out = ["calendar", "blackouts"].iter().any(|field| document["trigger"].get(field).is_some());
    if !may_leave_out {
        return Some(cursor);
    }
    match punctual_spec::decode(&view.document, zones) {
        Ok(definition) => misfire::fired_from(&definition.trigger, cursor),
        Err(_) => Some(cursor),
    }
}

/// An instance in a list.
pub(crate) fn instance(view: &InstanceView) -> Value {
    let row = &view.row;
    let (last, links) = (row.transitions.last(), row.links.as_deref());
    json!({
        "id": row.id.to_string(),
        "task": &*view.task_name,
        "version": row.version.0,
        "fire_time": row.fire_time.to_string(),
        "run": row.run,
        "shard": shard(row),
        "shards": links.map(|links| links.shards).filter(|_| row.has_parts() && !row.is_run()),
        "nodes_count": links.map(|links| links.nodes).filter(|nodes| *nodes > 0),
        "carried_over": links.map(|links| links.carried).filter(|carried| *carried > 0),
        "map": links.and_then(|links| map(row, links.map.as_deref()?)),
        "part": part(row),
        "parent": row.parent().map(|id| id.to_string()),
        "caused_by": links.and_then(|links| links.cause).map(|id| id.to_string()),
        "origin": row.origin.name(),
        "state": row.state.name(),
        "cause": last.map(|last| last.cause.name()),
        "code": last.and_then(|last| last.code),
        "detail": last.and_then(|last| last.detail.as_deref()),
        "attempt": row.attempt,
        "failures": row.failures,
        "losses": row.losses,
        "worker": row.worker.as_ref().map(|worker| worker.id.to_string()),
        "due_at": instant(row.due_at),
        "waits_for_group": row.waits_for_group().map(|group| &**group),
        "key": row.key.as_deref(),
        "created_at": row.created_at().to_string(),
        "ended_at": instant(row.ended_at()),
    })
}

/// How far a firing has come that is mapped over a list.
fn map(row: &InstanceRow, progress: &MapProgress) -> Option<Value> {
    let (phase, items) = (progress.phase, row.links.as_deref()?.shards);
    Some(json!({
        "phase": match phase {
            MapPhase::List => "list",
            MapPhase::Items => "items",
            MapPhase::Reduce => "reduce",
        },
        "items": (phase != MapPhase::List).then_some(items),
        "made": progress.made,
        "failed": row.failures,
        "result_bytes": progress.result_bytes,
    }))
}

/// What an instance does for a firing that is mapped, where it runs no item of it.
fn part(row: &InstanceRow) -> Option<&'static str> {
    match row.part {
        part if part.is_list() => Some("list"),
        part if part.is_reduce() => Some("reduce"),
        _ => None,
    }
}

/// Which shard an instance is, counted from 0; nothing where it is none.
fn shard(row: &InstanceRow) -> Option<Value> {
    let (index, links) = (row.part.shard_index()?, row.links.as_deref()?);
    Some(json!({ "index": index, "count": links.shards, "key": links.shard_key.as_deref() }))
}

/// An instance with its whole story.
pub(crate) fn instance_detail(view: &InstanceView) -> Value {
    let mut value = instance(view);
    value["payload"] = json!(view.row.payload.as_deref());
    value["result"] = json!(view.row.result.as_deref());
    value["fence"] = json!(view.row.fence.to_string());
    value["transitions"] = view.row.transitions.iter().map(transition).collect();
    value["attempts"] = attempts(&view.row).iter().map(attempt).collect();
    value
}

fn transition(transition: &Transition) -> Value {
    json!({
        "at": transition.at.to_string(),
        "from": transition.from.map(State::name),
        "to": transition.to.name(),
        "cause": transition.cause.name(),
        "attempt": transition.attempt,
        "fence": transition.fence.to_string(),
        "worker": transition.worker.as_ref().map(ToString::to_string),
        "code": transition.code,
        "detail": transition.detail.as_deref(),
    })
}

/// One attempt, put together from the transitions that speak of it.
pub(crate) struct Attempt<'a> {
    /// Counted from 1.
    pub(crate) number: u32,
    /// When it was assigned.
    pub(crate) assigned: &'a Transition,
    /// When the worker began.
    pub(crate) started_at: Option<Timestamp>,
    /// How it ended.
    pub(crate) ended: Option<&'a Transition>,
}

/// The attempts of an instance, oldest first. Assignments that came back unbegun are attempts of the same number.
pub(crate) fn attempts(row: &InstanceRow) -> Vec<Attempt<'_>> {
    let mut attempts: Vec<Attempt<'_>> = Vec::new();
    for transition in &row.transitions {
        match transition.cause {
            Cause::Assigned => attempts.push(Attempt { number: transition.attempt, assigned: transition, started_at: None, ended: None }),
            Cause::Started => {
                if let Some(last) = attempts.last_mut() {
                    last.started_at = Some(transition.at);
                }
            }
            _ => {
                if let Some(last) = attempts.last_mut().filter(|last| last.ended.is_none() && last.assigned.fence == transition.fence) {
                    last.ended = Some(transition);
                }
            }
        }
    }
    attempts
}

fn attempt(attempt: &Attempt<'_>) -> Value {
    json!({
        "attempt": attempt.number,
        "fence": attempt.assigned.fence.to_string(),
        "worker": attempt.assigned.worker.as_ref().map(ToString::to_string),
        "assigned_at": attempt.assigned.at.to_string(),
        "started_at": instant(attempt.started_at),
        "ended_at": instant(attempt.ended.map(|ended| ended.at)),
        "state": attempt.ended.map(|ended| ended.to.name()),
        "cause": attempt.ended.map(|ended| ended.cause.name()),
        "code": attempt.ended.and_then(|ended| ended.code),
        "detail": attempt.ended.and_then(|ended| ended.detail.as_deref()),
    })
}

/// What an attempt wrote. Bytes that are not UTF-8 show as replacement characters.
pub(crate) fn output(attempt: u32, output: &Output) -> Value {
    json!({ "attempt": attempt, "output": String::from_utf8_lossy(&output.bytes), "dropped_bytes": output.dropped })
}

/// Fire times that were not fired.
pub(crate) fn occurrence(occurrence: &Occurrence) -> Value {
    json!({
        "first": occurrence.first.to_string(),
        "last": occurrence.last.to_string(),
        "count": occurrence.count,
        "outcome": occurrence.outcome.name(),
        "instance": occurrence.instance.map(|id| id.to_string()),
        "at": occurrence.at.to_string(),
        "version": occurrence.version.0,
    })
}

fn instant(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}
