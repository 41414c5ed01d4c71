//! What people do, as the database sees it.

use std::sync::Arc;

use punctual_core::definition::TaskDefinition;
use punctual_core::inbox::Submission;
use punctual_core::time::Millis;
use punctual_driver::ports::{Actor, PauseSet, PauseTarget, Submitted};
use serde_json::Value;

use crate::features;
use crate::history::Answer;
use crate::model::Database;
use crate::plan::{PauseOn, Plan};
use crate::workload;

/// How long a client waits before it makes a call again whose answer was lost.
pub(crate) const AGAIN_AFTER_MS: u64 = 1_000;

/// So long after the world has healed nobody's question is under way any more that was asked before: whoever has made a pause lifts it again.
pub(crate) const PAUSES_OVER_AFTER_MS: u64 = 15_000;

/// No answer came from the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Surely nothing was written.
    Aborted,
    /// Surely nothing was written, for want of room.
    Full,
    /// Nobody knows.
    NoAnswer,
}

/// What the scheduler makes of a document of the plan.
///
/// # Panics
///
/// Where the document is not valid: plans are checked before they run.
pub(crate) fn definition(document: &Value) -> Arc<TaskDefinition> {
    let spec = workload::spec(document).unwrap_or_else(|finding| panic!("{document}: {finding:?}"));
    Arc::new(spec.to_definition(workload::zones()).unwrap_or_else(|findings| panic!("{document}: {findings:?}")))
}

/// The name of a plan's task.
pub(crate) fn name_of(plan: &Plan, task: usize) -> Arc<str> {
    Arc::from(plan.tasks[task].document["name"].as_str().unwrap_or_default())
}

/// What a call of a plan submits. Where the task's limit has a key, one of a few values of it, and now and then none.
pub(crate) fn submission(plan: &Plan, task: usize, at_ms: u64, delay: Option<Millis>) -> Submission {
    let is_keyed = plan.tasks[task].document["concurrency"]["key"] == features::LIMIT_KEY;
    let payload = match at_ms / 100 % 4 {
        3 => None,
        value => is_keyed.then(|| Arc::from(format!("{{\"customer\":{{\"id\":{value}}}}}"))),
    };
    Submission { key: None, payload, delay }
}

/// Writes the plan's tasks, before anything else begins.
pub(crate) fn define_tasks(plan: &Plan, database: &mut Database, at: u64) {
    for task in &plan.tasks {
        let definition = definition(&task.document);
        let name = definition.name.clone();
        database.define(at, &name, Some(definition));
    }
}

/// Writes a version of a task, `None`: its removal. What is removed can't be removed again.
pub(crate) fn define(database: &mut Database, at: u64, name: &Arc<str>, definition: Option<Arc<TaskDefinition>>) -> Submitted {
    match database.data().names.get(name) {
        Some(named) if named.removed && definition.is_none() => Submitted::NoSuchTask,
        _ => Submitted::Accepted { entry: database.define(at, name, definition) },
    }
}

/// The name of the worker of this number.
pub(crate) fn worker_name(worker: usize) -> Arc<str> {
    Arc::from(format!("w{}", worker + 1))
}

/// What a plan pauses, by the names that people use.
pub(crate) fn pause_target(plan: &Plan, on: &PauseOn) -> PauseTarget {
    match on {
        PauseOn::All => PauseTarget::All,
        PauseOn::Group(group) => PauseTarget::Group(Arc::from(group.as_str())),
        PauseOn::Task(task) => PauseTarget::Task(name_of(plan, *task)),
        PauseOn::Worker(worker) => PauseTarget::Worker(worker_name(*worker)),
    }
}

/// Makes a pause, or lifts it. One that is as it is has no entry; neither has one of nothing.
pub(crate) fn set_pause(database: &mut Database, at: u64, target: &PauseTarget, is_paused: bool) -> Option<Submitted> {
    match database.set_pause(at, target, is_paused, &Actor::from("client")) {
        PauseSet::Accepted { entries } => entries.first().map(|entry| Submitted::Accepted { entry: *entry }),
        PauseSet::Unchanged => None,
        PauseSet::NoSuchTask | PauseSet::NoSuchGroup => Some(Submitted::NoSuchTask),
    }
}

/// What a client is answered.
pub(crate) fn answer_of(done: Result<Submitted, Failed>) -> Answer {
    match done {
        Ok(Submitted::Accepted { entry }) => Answer::Accepted(entry),
        Ok(Submitted::Repeated { entry }) => Answer::Repeated(entry),
        Ok(Submitted::KeyTaken) => Answer::Refused(Arc::from("the key was used for something else")),
        Ok(Submitted::NoSuchTask) => Answer::Refused(Arc::from("there is no such task")),
        Ok(Submitted::NoSuchInstance) => Answer::Refused(Arc::from("there is no such instance")),
        Ok(Submitted::StillRuns) => Answer::Refused(Arc::from("the instance has not ended")),
        Ok(Submitted::IsPart { .. }) => Answer::Refused(Arc::from("the instance is a part of another one")),
        Ok(Submitted::NotNewest) => Answer::Refused(Arc::from("the instance was run again before")),
        Ok(Submitted::NoWorkflow) => Answer::Refused(Arc::from("the instance is no run of a workflow")),
        Ok(Submitted::NoSuchNode) => Answer::Refused(Arc::from("there is no such node")),
        Ok(Submitted::HasEnded) => Answer::Refused(Arc::from("the run has ended")),
        Ok(Submitted::BackfillRuns { .. } | Submitted::Outdated) => {
            Answer::Refused(Arc::from("a backfill of the task runs, or has run since"))
        }
        Ok(Submitted::NoSuchBackfill) => Answer::Refused(Arc::from("there is no such backfill")),
        Err(Failed::Aborted) => Answer::Refused(Arc::from("the transaction was rolled back")),
        Err(Failed::Full) => Answer::Refused(Arc::from("the database is full")),
        Err(Failed::NoAnswer) => Answer::Unknown,
    }
}
