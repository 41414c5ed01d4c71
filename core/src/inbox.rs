//! The inbox: the only door through which anybody but its owner reaches a partition.

use std::sync::Arc;

use crate::backfill::BackfillPlan;
use crate::batch::Reference;
use crate::definition::{GroupLimits, TaskDefinition};
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use crate::limits;
use crate::time::{Millis, Timestamp};

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
    /// Another owner asks.
    Notice(Notice),
    /// An instance that has ended is to run once more.
    Rerun {
        /// Which, and what the new run is to have of it.
        of: Box<Rerun>,
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
}

impl Notice {
    /// The task that it is for, where it is for one.
    pub const fn task(&self) -> Option<TaskId> {
        match self {
            Notice::Chained { task, .. } | Notice::GroupGrant { task, .. } => Some(*task),
            Notice::GroupAsk { .. } | Notice::GroupRelease { .. } => None,
        }
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

/// The ordinal of the `index`-th submission of an entry: unique among all manual firings, and the same if the entry is read again.
pub fn ordinal_of(entry: InboxId, index: usize) -> u64 {
    assert!(index < limits::SUBMISSIONS_MAX);
    entry.0 * limits::SUBMISSIONS_MAX as u64 + index as u64
}
