//! What the owner hands to the store and what the store hands back.

use std::sync::Arc;

use crate::backfill::{BackfillRow, BackfillWrite};
use crate::definition::{ChainOn, GroupLimits, TaskDefinition};
use crate::ids::{CommitId, Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use crate::inbox::Notice;
use crate::instance::{InstanceRow, State};
use crate::occurrence::Occurrence;
use crate::pause::PauseScope;
use crate::time::Timestamp;

/// One transaction: all of it or nothing, and nothing unless every lease that it relies on still holds.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Batch {
    /// Names the commit in its outcome.
    pub id: CommitId,
    /// The replica that wrote it: the owner of all the leases.
    pub replica: ReplicaId,
    /// The leases relied on, in the order of their partitions.
    pub leases: Vec<LeaseCheck>,
    /// New instances.
    pub inserts: Vec<InstanceRow>,
    /// Instances that exist.
    pub updates: Vec<InstanceUpdate>,
    /// Tasks that were taken over from their inbox entry, fired, or removed.
    pub tasks: Vec<TaskWrite>,
    /// Fire times that were not fired.
    pub occurrences: Vec<Occurrence>,
    /// What attempts wrote.
    pub outputs: Vec<AttemptOutput>,
    /// What it asks of other partitions' owners, or of its own: inbox entries that are there once the batch is.
    pub messages: Vec<Message>,
    /// Inbox entries that this batch applies.
    pub applied: Vec<InboxId>,
    /// Slots of groups that were asked for, granted or given back.
    pub slots: Vec<SlotWrite>,
    /// Backfills that have begun, gone on or ended.
    pub backfills: Vec<BackfillWrite>,
}

/// An instance's slot of a group, as the group's owner keeps it. There is at most one an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupSlot {
    /// The group's partition.
    pub partition: PartitionId,
    /// The group.
    pub group: Arc<str>,
    /// The instance.
    pub instance: InstanceId,
    /// Its task.
    pub task: TaskId,
    /// The inbox entry that asked for it: who asked first is granted first.
    pub place: InboxId,
    /// What the instance's task knows of the group's limits.
    pub limits: GroupLimits,
    /// Whether it is granted; else it waits.
    pub is_granted: bool,
}

/// A change of an instance's slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotWrite {
    /// The group's partition.
    pub partition: PartitionId,
    /// The instance.
    pub instance: InstanceId,
    /// The slot as it becomes; `None`: there is none any more.
    pub slot: Option<GroupSlot>,
}

/// An inbox entry that an owner writes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Message {
    /// Whose inbox it goes to.
    pub partition: PartitionId,
    /// The partition that it comes from, whose lease the batch relies on.
    pub from: PartitionId,
    /// When it was decided: the entry's time.
    pub at: Timestamp,
    /// On whose behalf.
    pub by: Arc<str>,
    /// What is asked for.
    pub notice: Notice,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.inserts.is_empty()
            && self.updates.is_empty()
            && self.tasks.is_empty()
            && self.occurrences.is_empty()
            && self.outputs.is_empty()
            && self.messages.is_empty()
            && self.applied.is_empty()
            && self.slots.is_empty()
            && self.backfills.is_empty()
    }
}

/// A lease that a batch relies on: refused unless the partition's row has this epoch, belongs to the batch's replica, and has exactly one
/// commit less: so a store that has lost commits, or has some that its owner doesn't know of, takes none. Written with it: `commit_seq` and
/// `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseCheck {
    /// The partition.
    pub partition: PartitionId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The partition's commits so far, this one included.
    pub commit_seq: u64,
    /// The last number of the partition's sequence that has been given out.
    pub sequence: u64,
}

/// A lease that is to last longer: not where it is no longer the owner's under this epoch, nor where the store has fewer commits of the
/// partition than it has confirmed. So an owner that has nothing to write learns of lost commits as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The partition.
    pub partition: PartitionId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The partition's commits that the store has confirmed to the owner.
    pub commit_seq: u64,
}

/// A changed instance: refused unless the row has this state and fence.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct InstanceUpdate {
    /// The state that the store holds.
    pub expected_state: State,
    /// The fence that the store holds.
    pub expected_fence: Fence,
    /// The row as it becomes.
    pub row: InstanceRow,
}

/// The owner's own record of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskWrite {
    /// The task.
    pub task: TaskId,
    /// Its partition.
    pub partition: PartitionId,
    /// The version in force; `None`: the task was removed, and only the watermark stays.
    pub version: Option<Version>,
    /// The cursor: the next fire time, where there is one.
    pub next_fire: Option<Timestamp>,
    /// The watermark: fire times up to then were dealt with and never come again. The store keeps it also when the task is removed, for
    /// the case that it is made again; `None` leaves the one that is there.
    pub fired_until: Option<Timestamp>,
}

/// What an attempt wrote, up to a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptOutput {
    /// The instance.
    pub instance: InstanceId,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The output.
    pub output: Output,
}

/// Captured output: both streams as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Output {
    /// What was kept: the beginning and, where that was too much, the end.
    pub bytes: Vec<u8>,
    /// How many bytes after the kept beginning were dropped.
    pub dropped: u64,
}

/// How a commit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It is durable.
    Committed,
    /// It was refused and did nothing: a lease, state, fence or unique key was not as expected.
    Refused {
        /// What was not as expected, for people.
        reason: Arc<str>,
    },
    /// Nobody knows.
    Unknown {
        /// What went wrong, for people.
        reason: Arc<str>,
    },
}

/// A partition as its new owner finds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The tasks as the last owner had them: new and edited ones whose inbox entry nobody has applied yet are not here.
    pub tasks: Vec<TaskRecord>,
    /// Instances that have not ended, oldest first, each with the definition that it is run by.
    pub instances: Vec<(InstanceRow, Arc<TaskDefinition>)>,
    /// The nodes that have ended of workflow runs that have not, in any order. Shards of nodes are not among them.
    pub ended_nodes: Vec<InstanceRow>,
    /// What its tasks' ends make fire.
    pub references: Vec<Reference>,
    /// The slots of the groups whose partition it is, in any order.
    pub slots: Vec<GroupSlot>,
    /// The pauses that hold any of its tasks, or might.
    pub pauses: Vec<PauseScope>,
    /// The backfills that run, or were cancelled with instances that still do, in any order.
    pub backfills: Vec<BackfillRow>,
}

/// A task whose end makes another one fire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The task that ends.
    pub from: TaskId,
    /// The task that fires.
    pub to: TaskId,
    /// That one's partition.
    pub partition: PartitionId,
    /// Which ends.
    pub on: ChainOn,
}

/// A task of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// The version in force.
    pub version: Version,
    /// The definition of that version.
    pub definition: Arc<TaskDefinition>,
    /// The cursor.
    pub next_fire: Option<Timestamp>,
    /// The watermark.
    pub fired_until: Option<Timestamp>,
}
