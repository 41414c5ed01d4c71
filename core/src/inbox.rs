//! The inbox: the only door through which anybody but its owner reaches a partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backfill::BackfillPlan;
use crate::batch::Reference;
use crate::definition::{GroupLimits, TaskDefinition};
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use crate::instance::{InstanceRow, ShardsAgain, State};
use crate::limits;
use crate::pause::PauseScope;
use crate::time::{Millis, Timestamp};
use crate::workflow::{Graph, NodeIndex};

/// One entry, applied by the owner in the same transaction that removes it.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxEntry {
    /// Its place in the order of arrival.
    pub id: InboxId,
    /// Whose inbox it is in.
    pub partition: PartitionId,
    /// When it was written, by the store's clock.
    pub at: Timestamp,
    /// Who wrote it.
    pub by: Arc<str>,
    /// What is asked for.
    pub request: Request,
}

/// What an inbox entry asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A task was made, edited or removed: from now on this version counts.
    DefinitionChanged {
        /// The task.
        task: TaskId,
        /// The version, one more with each change.
        version: Version,
        /// The new definition; `None`: the task was removed.
        definition: Option<Arc<TaskDefinition>>,
        /// The watermark that an owner has left with the task, also where it was removed since: fire times up to then were dealt with.
        fired_until: Option<Timestamp>,
    },
    /// The task is to fire by hand.
    Trigger {
        /// The task.
        task: TaskId,
        /// One instance each, 1 to [`limits::SUBMISSIONS_MAX`].
        submissions: Vec<Submission>,
    },
    /// What the ends of a task make fire has changed.
    ReferencesChanged {
        /// The task.
        task: TaskId,
        /// All that there are now.
        references: Vec<Reference>,
    },
    /// Somebody has made a pause, or lifted it.
    PauseChanged {
        /// What it holds.
        scope: PauseScope,
        /// Whether it holds from now on.
        is_paused: bool,
    },
    /// Another owner asks.
    Notice(Notice),
    /// An instance that has ended is to run once more.
    Rerun {
        /// Which, and what the new run is to have of it.
        of: Box<Rerun>,
    },
    /// Somebody says what a node of a workflow's run has come to, which waits or has failed.
    MarkNode {
        /// The run.
        instance: InstanceId,
        /// The node.
        node: NodeIndex,
        /// What it has come to.
        mark: NodeMark,
        /// Why, in the caller's words.
        reason: Option<Arc<str>>,
    },
    /// Fire times of a task are to be made up for.
    Backfill {
        /// Which.
        plan: Arc<BackfillPlan>,
    },
    /// A backfill is to make no more.
    CancelBackfill {
        /// Which.
        backfill: InboxId,
        /// Its task.
        task: TaskId,
        /// Why, in the caller's words.
        reason: Option<Arc<str>>,
    },
    /// An instance is to be cancelled.
    Cancel {
        /// The instance.
        instance: InstanceId,
        /// Why, in the caller's words.
        reason: Option<Arc<str>>,
    },
    /// The same, and its attempt gets no time to clean up.
    Kill {
        /// The instance.
        instance: InstanceId,
        /// Why, in the caller's words.
        reason: Option<Arc<str>>,
    },
    /// An instance that has not begun is to be left out.
    Skip {
        /// The instance.
        instance: InstanceId,
        /// Why, in the caller's words.
        reason: Option<Arc<str>>,
    },
    /// A manual trigger is to be cancelled, or to come at another time, unless its time has come.
    Delayed {
        /// The task.
        task: TaskId,
        /// The [ordinal](ordinal_of) of its instance.
        ordinal: u64,
        /// What is to become of it.
        change: DelayedChange,
        /// Why, in the caller's words.
        reason: Option<Arc<str>>,
    },
}

/// What is to become of a manual trigger that is not due yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DelayedChange {
    /// It never fires.
    Cancel,
    /// It becomes due then.
    Reschedule(Timestamp),
}

/// What is on record of a manual trigger that was put off, or forward: the same words for whoever looks whether it was.
pub fn rescheduled_detail(to: Timestamp, by: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("to {to} by {by}: {reason}"),
        None => format!("to {to} by {by}"),
    }
}

/// What a new run has of an instance that has ended. Whoever asks has read it, so that the owner, who remembers nothing of what has ended,
/// needs no look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rerun {
    /// The instance: a whole firing, and the newest run of it.
    pub instance: InstanceId,
    /// Its task.
    pub task: TaskId,
    /// Its fire time.
    pub fire_time: Timestamp,
    /// Its ordinal.
    pub ordinal: u64,
    /// Its run; the new instance is the next one.
    pub run: u32,
    /// How many chained tasks lie behind it.
    pub hops: u32,
    /// Its payload.
    pub payload: Option<Arc<str>>,
    /// Its idempotency key.
    pub key: Option<Arc<str>>,
    /// Why, in the caller's words.
    pub reason: Option<Arc<str>>,
    /// The shards that are to run again; `None`: all of it, divided as the task says now.
    pub shards: Option<Box<ShardsAgain>>,
    /// For the run of a workflow: which nodes are to run again; `None`: all of them.
    pub from: Option<Box<RerunFrom>>,
}

/// From where the run of a workflow is to run again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RerunFrom {
    /// The nodes, at least one.
    pub nodes: Vec<Arc<str>>,
    /// Whether what comes after them runs again also where it had succeeded.
    pub cascade: bool,
    /// What the nodes of that run have come to. Whoever reads the entry looks it up: it changes no more.
    pub ended: Vec<EndedNode>,
}

/// What a node of a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedNode {
    /// Its name.
    pub name: Arc<str>,
    /// Its instance.
    pub instance: InstanceId,
    /// How it ended.
    pub state: State,
    /// What its handler answered.
    pub result: Option<Arc<str>>,
}

impl RerunFrom {
    /// Takes in what the nodes of a run of this graph have come to, by their rows in the order of their parts: what an operator has said
    /// of one takes the place of what it had come to itself.
    pub fn take_ended(&mut self, graph: &Graph, rows: impl IntoIterator<Item = InstanceRow>) {
        let mut ended: BTreeMap<u32, EndedNode> = BTreeMap::new();
        for row in rows {
            let node = row.part.node_index().filter(|node| !row.part.is_shard() && graph.contains(NodeIndex(*node)));
            if let Some(node) = node.filter(|_| row.state.is_terminal()) {
                let name = Arc::clone(graph.name(NodeIndex(node)));
                ended.insert(node, EndedNode { name, instance: row.id, state: row.state, result: row.result });
            }
        }
        self.ended = ended.into_values().collect();
    }
}

/// What an operator says that a node has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeMark {
    /// It is not to run.
    Skipped,
    /// What it was to do is done.
    Succeeded,
    /// It can't be done.
    Failed,
}

impl NodeMark {
    /// Every one of them.
    pub const ALL: [NodeMark; 3] = [NodeMark::Skipped, NodeMark::Succeeded, NodeMark::Failed];

    /// The state that the node has then.
    pub const fn state(self) -> State {
        match self {
            NodeMark::Skipped => State::Skipped,
            NodeMark::Succeeded => State::Succeeded,
            NodeMark::Failed => State::Failed,
        }
    }
}

/// What one owner asks of another, or of itself: written in the batch that gives it cause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// An instance of another task has ended, and the task is to fire for it.
    Chained {
        /// The task.
        task: TaskId,
        /// The instance that ended.
        cause: InstanceId,
        /// How many chained tasks lie behind this firing, this one included.
        hops: u32,
        /// What that instance's handler answered: this one's payload, where its task has none.
        payload: Option<Arc<str>>,
    },
    /// An instance is about to begin, and asks for a slot of its group.
    GroupAsk {
        /// The group.
        group: Arc<str>,
        /// The instance.
        instance: InstanceId,
        /// Its task.
        task: TaskId,
        /// What its task knows of the group's limits.
        limits: GroupLimits,
    },
    /// An instance has the slot that it asked for.
    GroupGrant {
        /// Its task.
        task: TaskId,
        /// The instance.
        instance: InstanceId,
    },
    /// An instance has ended and gives its slot back, or wants none any more.
    GroupRelease {
        /// The group.
        group: Arc<str>,
        /// The instance.
        instance: InstanceId,
    },
    /// A node of a workflow's run is to be run as an instance of a task.
    Called {
        /// The task, by its name: whoever calls knows no more of it.
        name: Arc<str>,
        /// The task. Only in an entry: the store looks it up when it writes one. `None` there: there never was one of this name.
        task: Option<TaskId>,
        /// The node.
        caller: InstanceId,
        /// That one's task.
        caller_task: TaskId,
        /// How many chained or called tasks lie behind this firing, this one included.
        hops: u32,
        /// What the node is to work on; `None`: what the called task says.
        payload: Option<Arc<str>>,
    },
    /// What a node has called is to end.
    CallCancelled {
        /// The called task, by its name.
        name: Arc<str>,
        /// The called task, as above.
        task: Option<TaskId>,
        /// The node.
        caller: InstanceId,
        /// Whether its attempts get no time to clean up.
        is_killed: bool,
    },
    /// What a node has called has ended, or can't be.
    CallEnded {
        /// The node's task.
        task: TaskId,
        /// The node.
        caller: InstanceId,
        /// The instance; `None`: there is none.
        instance: Option<InstanceId>,
        /// How it ended; [`State::Skipped`] where there is none.
        state: State,
        /// What it has answered.
        result: Option<Arc<str>>,
        /// Why it ended so, in words.
        detail: Option<Arc<str>>,
    },
}

impl Notice {
    /// The task that it is for, where it is for one.
    pub const fn task(&self) -> Option<TaskId> {
        match self {
            Notice::Chained { task, .. } | Notice::GroupGrant { task, .. } | Notice::CallEnded { task, .. } => Some(*task),
            Notice::Called { task, .. } | Notice::CallCancelled { task, .. } => *task,
            Notice::GroupAsk { .. } | Notice::GroupRelease { .. } => None,
        }
    }

    /// The name of the task that it is for, where whoever writes it knows no more of that: the store looks the task up.
    pub const fn name_of_task(&self) -> Option<&Arc<str>> {
        match self {
            Notice::Called { name, .. } | Notice::CallCancelled { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The same for this task, which the store has looked up.
    #[must_use]
    pub fn for_task(mut self, found: Option<TaskId>) -> Notice {
        if let Notice::Called { task, .. } | Notice::CallCancelled { task, .. } = &mut self {
            *task = found;
        }
        self
    }
}

/// One manual firing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// The caller's idempotency key; kept with the instance.
    pub key: Option<Arc<str>>,
    /// In place of the definition's payload.
    pub payload: Option<Arc<str>>,
    /// In place of the trigger's own delay, at most [`limits::DELAY_MAX`].
    pub delay: Option<Millis>,
}

/// The ordinal of what a node calls: no other instance has it, whoever looks for the one that a node has called finds it by that.
pub const fn called_ordinal(caller: InstanceId) -> u64 {
    // Ids end below this bit, and no entry comes as far.
    caller.0 | 1 << 62
}

/// The ordinal of the `index`-th submission of an entry: unique among all manual firings, and the same if the entry is read again.
pub fn ordinal_of(entry: InboxId, index: usize) -> u64 {
    assert!(index < limits::SUBMISSIONS_MAX);
    entry.0 * limits::SUBMISSIONS_MAX as u64 + index as u64
}
