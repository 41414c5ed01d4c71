//! Those who use the API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madsim::time::sleep;
use punctual_core::definition::TaskDefinition;
use punctual_core::inbox::Submission;
use punctual_core::time::Millis;
use punctual_driver::ports::{PauseTarget, Signals, Submitted, Wake};

use crate::calls::{self, AGAIN_AFTER_MS, answer_of, definition};
use crate::history::{Answer, Ask, What, Who};
use crate::operations;
use crate::plan::{Call, CallKind, Operation};
use crate::world::env::{Env, WakeUps, lock};
use crate::world::store::Connection;

const AGAIN_AFTER: Duration = Duration::from_millis(AGAIN_AFTER_MS);

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
        calls::name_of(&self.env.plan, task)
    }

    async fn make(&self, call: Call) {
        match call.what {
            CallKind::Trigger { task, delay_ms, key } => {
                let submissions = vec![calls::submission(&self.env.plan, task, call.at_ms, delay_ms.map(Millis))];
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
            CallKind::Operate { operation, nth } => self.operate(&operation, nth).await,
            CallKind::Pause { on, lasts_ms } => {
                let target = calls::pause_target(&self.env.plan, &on);
                self.set_pause(&target, true).await;
                sleep(Duration::from_millis(lasts_ms)).await;
                self.lift_pause(&target).await;
                // A pause that was long under way may come after its end.
                self.env.sleep_until(self.env.plan.heal_at_ms + calls::PAUSES_OVER_AFTER_MS).await;
                self.lift_pause(&target).await;
            }
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
        self.answered(call, &answer);
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
        self.answered(call, &answer_of(done));
    }

    async fn operate(&self, operation: &Operation, nth: usize) {
        let order = {
            let database = lock(&self.env.database);
            let now = database.clock(self.env.at());
            operations::order(&self.env.plan, database.data(), operation, nth, now)
        };
        let Some(order) = order else { return };
        let call = self.asked(order.ask());
        let done = self.connection.ask(true, move |database, at| order.carry_out(database, at)).await;
        self.answered(call, &answer_of(done));
    }

    /// Whether a pause was made or not: whoever asked for it sees to it that it is over.
    async fn lift_pause(&self, target: &PauseTarget) {
        while self.set_pause(target, false).await == Answer::Unknown {
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Makes a pause, or lifts it. One that was refused for now is asked for again by whoever lifts it.
    async fn set_pause(&self, target: &PauseTarget, is_paused: bool) -> Answer {
        let call = self.asked(Ask::Pause { target: target.clone(), is_paused });
        let asked_for = target.clone();
        let done = self.connection.ask(true, move |database, at| calls::set_pause(database, at, &asked_for, is_paused)).await;
        let has_failed = done.is_err();
        // One that is so already is refused as one of nothing is.
        let answer = answer_of(done.map(|done| done.unwrap_or(Submitted::NoSuchTask)));
        self.answered(call, &answer);
        // What surely wrote nothing may be tried again.
        if has_failed { Answer::Unknown } else { answer }
    }

    async fn define(&self, task: usize, definition: Option<Arc<TaskDefinition>>) {
        let name = self.name(task);
        let call = self.asked(Ask::Define { task: name.clone() });
        let asked_for = name.clone();
        let done = self.connection.ask(true, move |database, at| calls::define(database, at, &asked_for, definition)).await;
        self.answered(call, &answer_of(done));
    }

    fn asked(&self, ask: Ask) -> u64 {
        let call = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.env.record(Who::Client, What::Asked { call, ask });
        call
    }

    fn answered(&self, call: u64, answer: &Answer) {
        self.env.record(Who::Client, What::Answered { call, answer: answer.clone() });
        if matches!(answer, Answer::Accepted(_)) {
            WakeUps(self.env.clone()).wake(Wake::Inbox);
        }
    }
}
