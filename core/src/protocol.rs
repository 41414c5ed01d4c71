//! What schedulers and workers say to each other. Meaning only: how it travels is the transport's business.

use std::sync::Arc;

use crate::batch::Output;
use crate::definition::{Handler, TimeoutPolicy};
use crate::ids::{Fence, InstanceId, TaskId, Version, WorkerId, WorkerLife};
use crate::routing::WorkerTraits;
use crate::time::{Millis, Timestamp};

/// From a scheduler to a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    /// Answers a hello.
    Welcome {
        /// How often to send a heartbeat.
        heartbeat: Millis,
        /// How long an attempt lives without one.
        lease: Millis,
    },
    /// Run this.
    Assign(Arc<Assignment>),
    /// End this attempt: signal, grace, kill.
    Cancel {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// End this attempt at once: no signal, no grace.
    Kill {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// The report is committed, or refused for good: forget it.
    Acknowledge {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// Answers a heartbeat: the scheduler is there.
    Alive,
    /// Answer with a hello, and repeat the reports that were not acknowledged.
    GiveAccount,
}

/// From a worker to a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum ToScheduler {
    /// Opens a connection, and answers a request for an account: who I am and all that I hold.
    Hello(Hello),
    /// I am here.
    Heartbeat,
    /// The handler has begun.
    Started {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// The handler has ended. Repeated until acknowledged.
    Finished(Report),
    /// I can't start this now: give it to somebody else. It has not begun.
    Returned {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// Send me nothing more; I finish what I have.
    Draining,
}

/// A worker's account of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// Its id, stable over restarts.
    pub worker: WorkerId,
    /// This life of it.
    pub life: WorkerLife,
    /// How many attempts it runs at once, at least 1.
    pub slots: u32,
    /// The handlers that it knows.
    pub handlers: Vec<Arc<str>>,
    /// Whether it is draining.
    pub draining: bool,
    /// The attempts that it holds: all of them, also those that have ended and whose report was not acknowledged.
    pub running: Vec<Running>,
    /// How many assignments it has received over this connection before it wrote this.
    pub received: u64,
    /// What routing goes by.
    pub traits: WorkerTraits,
}

/// An attempt that a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The instance.
    pub instance: InstanceId,
    /// The attempt's fence.
    pub fence: Fence,
}

/// An attempt to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The instance.
    pub instance: InstanceId,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The attempt's fence.
    pub fence: Fence,
    /// The task.
    pub task: TaskId,
    /// The task's name.
    pub task_name: Arc<str>,
    /// The task's version.
    pub version: Version,
    /// The nominal instant.
    pub fire_time: Timestamp,
    /// Tells manual triggers of one millisecond apart.
    pub ordinal: u64,
    /// 1, and one more for each rerun.
    pub run: u32,
    /// Which shard it is, where the firing was divided.
    pub shard: Option<Shard>,
    /// What it does for a firing that is mapped over a list, where it runs no item.
    pub map: Option<MapRole>,
    /// Which node of a workflow it is, where it is one.
    pub node: Option<Node>,
    /// What to run.
    pub handler: Handler,
    /// What to run it with.
    pub payload: Option<Arc<str>>,
    /// What bounds it in time.
    pub timeout: TimeoutPolicy,
}

/// What an attempt does for a firing that is mapped over a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRole {
    /// It lists the items: its report has them.
    List,
    /// It reduces the results.
    Reduce {
        /// A line for each item, in their order: what its handler has answered, as JSON; `null` where it has answered nothing.
        results: Arc<str>,
    },
}

/// One of the shards that a firing was divided into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, counted from 0.
    pub index: u32,
    /// Of how many.
    pub count: u32,
    /// Its key, where they are not numbered only.
    pub key: Option<Arc<str>>,
}

/// A node of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// What its upstreams have answered: a JSON object with a member for each of them, by name. What is no JSON is a text there, `null` stands
    /// for nothing. At most [`INPUTS_BYTES_MAX`](crate::limits::INPUTS_BYTES_MAX) bytes: what does not fit any more has no member.
    pub inputs: Arc<str>,
}

impl Assignment {
    /// The key that all attempts of the instance share: `task id/fire time/shard`, with the ordinal behind it for what was asked for, the
    /// run behind that for a rerun, whose effects are meant to happen again, and the name of the node for one of a workflow.
    pub fn idempotency_key(&self) -> String {
        let shard = self.shard.as_ref().map_or(0, |shard| shard.index);
        let mut key = format!("{}/{}/{shard}", self.task, self.fire_time);
        if self.ordinal != 0 {
            key.push_str(&format!("/{}", self.ordinal));
        }
        if self.run > 1 {
            key.push_str(&format!("/run {}", self.run));
        }
        if let Some(node) = &self.node {
            key.push_str(&format!("/node {}", node.name));
        }
        key
    }
}

/// How an attempt ended, by the worker's account.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The instance.
    pub instance: InstanceId,
    /// The attempt's fence.
    pub fence: Fence,
    /// How it ended.
    pub end: End,
    /// The exit code of a command or the status of an HTTP call.
    pub code: Option<i32>,
    /// In words, at most [`DETAIL_BYTES_MAX`](crate::limits::DETAIL_BYTES_MAX) bytes.
    pub detail: Option<Arc<str>>,
    /// What it wrote.
    pub output: Output,
    /// What the handler answers, for those that come after it: at most [`RESULT_BYTES_MAX`](crate::limits::RESULT_BYTES_MAX) bytes.
    pub result: Option<Arc<str>>,
    /// The items that it lists, where it was to: each on a line of its own, as JSON. At most [`MAP_ITEMS_MAX`](crate::limits::MAP_ITEMS_MAX) of
    /// them, and [`MAP_BYTES_MAX`](crate::limits::MAP_BYTES_MAX) bytes in all.
    pub items: Option<Arc<str>>,
    /// The next attempt is to wait at least this long, by what this one met; longer than
    /// [`RETRY_AFTER_MAX`](crate::limits::RETRY_AFTER_MAX) counts as that. `None`: it met nothing that said so.
    pub retry_after: Option<Millis>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// As it should.
    Succeeded,
    /// Not as it should; may be retried.
    Failed,
    /// Not as it should; would fail again.
    FailedForGood,
    /// Its time was over and it was ended.
    TimedOut,
    /// It was asked to end and did.
    Cancelled,
}
