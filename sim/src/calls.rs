//! What people do, as the database sees it.

use std::sync::Arc;

use punctual_core::definition::TaskDefinition;
use punctual_core::inbox::Submission;
use punctual_core::time::Millis;
use punctual_driver::ports::Submitted;
use serde_json::Value;

use crate::features;
use crate::history::Answer;
use crate::model::Database;
use crate::plan::Plan;
use crate::workload;

/// How long a client waits before it makes a call again whose answer was lost.
pub(crate) const AGAIN_AFTER_MS: u64 = 1_000;

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
        Ok(Submitted::BackfillRuns { .. } | Submitted::Outdated) => {
            Answer::Refused(Arc::from("a backfill of the task runs, or has run since"))
        }
        Ok(Submitted::NoSuchBackfill) => Answer::Refused(Arc::from("there is no such backfill")),
        Err(Failed::Aborted) => Answer::Refused(Arc::from("the transaction was rolled back")),
        Err(Failed::Full) => Answer::Refused(Arc::from("the database is full")),
        Err(Failed::NoAnswer) => Answer::Unknown,
    }
}
