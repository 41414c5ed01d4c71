//! Runs handlers in tests, with no scheduler and no connection.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::definition::{Handler, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, TaskId, Version};
use punctual_core::protocol::{Assignment, End};
use punctual_core::time::Timestamp;
use punctual_driver::ports::Stop;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::{HandlerError, TaskContext, handler};

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// In words.
    pub detail: Option<String>,
    /// The lines that it logged, and its result behind them.
    pub output: String,
    /// Its result as JSON, for those that come after it: at most [`RESULT_BYTES_MAX`](punctual_core::limits::RESULT_BYTES_MAX) bytes.
    pub result: Option<String>,
    /// What it lists, where it was to: each item on a line of its own, as JSON.
    pub items: Option<String>,
    /// How long the next attempt is to wait at least, where the error said so.
    pub retry_after: Option<Duration>,
}

/// An attempt as a test wants it. The defaults are a first attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What it is given.
    pub assignment: Assignment,
    /// Tells it to end.
    pub stop: watch::Sender<Stop>,
}

impl Default for Attempt {
    fn default() -> Self {
        let assignment = Assignment {
            instance: InstanceId(1),
            attempt: 1,
            fence: Fence(1),
            task: TaskId(1),
            task_name: "test".into(),
            version: Version(1),
            fire_time: Timestamp(0),
            ordinal: 0,
            run: 1,
            shard: None,
            map: None,
            node: None,
            handler: Handler { name: "test".into(), config: "{}".into() },
            payload: None,
            timeout: TimeoutPolicy::default(),
        };
        Attempt { assignment, stop: watch::channel(Stop::No).0 }
    }
}

impl Attempt {
    /// The attempt as its handler sees it, for what a handler calls.
    pub fn context(&self) -> TaskContext {
        TaskContext::new(Arc::new(self.assignment.clone()), self.stop.subscribe(), None)
    }

    /// Runs a handler in this attempt with this payload.
    pub async fn run<P, R, F, H>(&self, handler: H, payload: Value) -> Outcome
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Future<Output = Result<R, HandlerError>> + Send + 'static,
        H: Fn(TaskContext, P) -> F + Send + Sync + 'static,
    {
        let assignment = Assignment { payload: Some(payload.to_string().into()), ..self.assignment.clone() };
        let ended = handler::run(handler::erase(handler), Arc::new(assignment), self.stop.subscribe(), None).await;
        Outcome {
            end: ended.end,
            detail: ended.detail.as_deref().map(str::to_owned),
            output: String::from_utf8_lossy(&ended.output.bytes).into_owned(),
            result: ended.result.as_deref().map(str::to_owned),
            items: ended.items.as_deref().map(str::to_owned),
            retry_after: ended.retry_after.map(|wait| Duration::from_millis(wait.0)),
        }
    }
}

/// Runs a handler in a first attempt with this payload.
pub async fn run<P, R, F, H>(handler: H, payload: Value) -> Outcome
where
    P: DeserializeOwned,
    R: Serialize,
    F: Future<Output = Result<R, HandlerError>> + Send + 'static,
    H: Fn(TaskContext, P) -> F + Send + Sync + 'static,
{
    Attempt::default().run(handler, payload).await
}
