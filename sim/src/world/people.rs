//! Those who use the API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madsim::time::sleep;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::PartitionId;
use punctual_core::inbox::Submission;
use punctual_core::time::Millis;
use punctual_driver::ports::{Signals, Submitted, Wake};
use serde_json::Value;

use crate::history::{Answer, Ask, What, Who};
use crate::plan::{Call, CallKind};
use crate::workload;
use crate::world::env::{Env, WakeUps, lock};
use crate::world::store::{Connection, Failed};

/// How long a client waits before it makes a call again whose answer was lost.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the scheduler makes of a document of the plan.
///
/// # Panics
///
/// Where the document is not valid: plans are checked before they run.
pub(super) fn definition(document: &Value) -> Arc<TaskDefinition> {
    let spec = workload::spec(document).unwrap_or_else(|finding| panic!("{document}: {finding:?}"));
    Arc::new(spec.to_definition(workload::zones()).unwrap_or_else(|findings| panic!("{document}: {findings:?}")))
}

/// Writes the plan's tasks, before anything else begins.
pub(super) fn define_tasks(env: &Arc<Env>) {
    for task in &env.plan.tasks {
        let definition = definition(&task.document);
        let name = definition.name.clone();
        lock(&env.database).define(env.at(), &name, Some(definition));
    }
}

/// Makes the plan's calls at their times.
pub(super) fn start(env: &Arc<Env>) {
    let numbers = Arc::new(AtomicU64::new(1));
    for (place, call) in env.plan.calls.iter().enumerate() {
        let (env, numbers, call) = (env.clone(), numbers.clone(), call.clone());
        madsim::task::spawn(async move {
            env.sleep_until(call.at_ms).await;
            Caller::new(&env, numbers, &format!("call/{place}")).make(call).await;
        });
    }
}

/// Somebody who makes a call.
pub(super) struct Caller {
    env: Arc<Env>,
    numbers: Arc<AtomicU64>,
    connection: Connection,
}

impl Caller {
    pub(super) fn new(env: &Arc<Env>, numbers: Arc<AtomicU64>, name: &str) -> Caller {
        Caller { env: env.clone(), numbers, connection: Connection::new(env, Who::Client, name) }
    }

    fn name(&self, task: usize) -> Arc<str> {
        Arc::from(self.env.plan.tasks[task].document["name"].as_str().unwrap_or_default())
    }

    async fn make(&self, call: Call) {
        match call.what {
            CallKind::Trigger { task, delay_ms, key } => {
                let submissions = vec![Submission { key: None, payload: None, delay: delay_ms.map(Millis) }];
                let name = self.name(task);
                let key = key.map(Arc::from);
                // A call whose answer was lost is made again only where a key makes it the same call.
                while self.trigger(&name, key.clone(), submissions.clone()).await == Answer::Unknown && key.is_some() {
                    if self.env.is_healed() {
                        return;
                    }
                    sleep(AGAIN_AFTER).await;
                }
            }
            CallKind::Cancel { nth } => self.cancel(nth).await,
            CallKind::Edit { task, document } => self.define(task, Some(definition(&document))).await,
            CallKind::Remove { task } => self.define(task, None).await,
        }
    }

    /// Fires a task by hand.
    pub(super) async fn trigger(&self, task: &Arc<str>, key: Option<Arc<str>>, submissions: Vec<Submission>) -> Answer {
        let call = self.asked(Ask::Trigger { task: task.clone(), key: key.clone() });
        let name = task.clone();
        let done = self
            .connection
            .ask(true, move |database, at| {
                let by = Arc::from("client");
                (database.trigger(at, &name, &by, key.as_ref(), submissions), database.data().names.len())
            })
            .await;
        let answer = answer_of(done.map(|(submitted, _)| submitted));
        self.answered(call, &answer, punctual_core::ids::partition_of(task, self.env.plan.shape.partitions));
        answer
    }

    async fn cancel(&self, nth: usize) {
        let live: Vec<_> = lock(&self.env.database).data().live.iter().copied().collect();
        if live.is_empty() {
            return;
        }
        let instance = live[nth % live.len()];
        let call = self.asked(Ask::Cancel { instance });
        let done = self.connection.ask(true, move |database, at| database.cancel(at, instance, &Arc::from("client"), None)).await;
        self.answered(call, &answer_of(done), instance.partition());
    }

    async fn define(&self, task: usize, definition: Option<Arc<TaskDefinition>>) {
        let name = self.name(task);
        let call = self.asked(Ask::Define { task: name.clone() });
        let asked_for = name.clone();
        let done = self
            .connection
            .ask(true, move |database, at| {
                let named = database.data().names.get(&asked_for);
                match named {
                    // What is removed can't be removed again.
                    Some(named) if named.removed && definition.is_none() => Submitted::NoSuchTask,
                    _ => Submitted::Accepted { entry: database.define(at, &asked_for, definition) },
                }
            })
            .await;
        self.answered(call, &answer_of(done), punctual_core::ids::partition_of(&name, self.env.plan.shape.partitions));
    }

    fn asked(&self, ask: Ask) -> u64 {
        let call = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.env.record(Who::Client, What::Asked { call, ask });
        call
    }

    fn answered(&self, call: u64, answer: &Answer, partition: PartitionId) {
        self.env.record(Who::Client, What::Answered { call, answer: answer.clone() });
        if matches!(answer, Answer::Accepted(_)) {
            WakeUps(self.env.clone()).wake(Wake::Inbox(partition));
        }
    }
}

fn answer_of(done: Result<Submitted, Failed>) -> Answer {
    match done {
        Ok(Submitted::Accepted { entry }) => Answer::Accepted(entry),
        Ok(Submitted::Repeated { entry }) => Answer::Repeated(entry),
        Ok(Submitted::KeyTaken) => Answer::Refused(Arc::from("the key was used for something else")),
        Ok(Submitted::NoSuchTask) => Answer::Refused(Arc::from("there is no such task")),
        Ok(Submitted::NoSuchInstance) => Answer::Refused(Arc::from("there is no such instance")),
        Err(Failed::Aborted) => Answer::Refused(Arc::from("the transaction was rolled back")),
        Err(Failed::NoAnswer) => Answer::Unknown,
    }
}
