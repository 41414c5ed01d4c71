//! The way to the store: what is to be written gathers while a commit is in flight, and what rests on it is held until it is through.
//!
//! There are as many lanes as the store carries out commits at once. A partition has one lane, so that its commits follow each other, and
//! those that are in flight together touch nothing of each other's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::backfill::{BackfillRow, BackfillWrite};
use crate::batch::{AttemptOutput, Batch, CommitOutcome, GroupSlot, InstanceUpdate, LeaseCheck, Message, SlotWrite, TaskWrite};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{CommitId, ConnectionId, Fence, InboxId, InstanceId, PartitionId, TaskId};
use crate::occurrence::Occurrence;
use crate::probe;
use crate::protocol::ToWorker;
use crate::scheduler::{Alert, Command, Scheduler};
use crate::time::Timestamp;

/// What the next batch of a lane will hold.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Instances whose row has changed, in the order of their first change.
    instances: Vec<InstanceId>,
    tasks: Vec<TaskId>,
    pub(super) removed_tasks: Vec<(PartitionId, TaskId, Timestamp)>,
    pub(super) occurrences: Vec<(PartitionId, Occurrence)>,
    outputs: Vec<AttemptOutput>,
    /// What other owners are asked.
    pub(super) messages: Vec<Message>,
    pub(super) applied: Vec<(PartitionId, InboxId)>,
    /// Slots of groups that have changed, as they are now.
    pub(super) slots: BTreeMap<(PartitionId, InstanceId), Option<GroupSlot>>,
    /// Backfills that have changed, as they are now.
    backfills: BTreeMap<(PartitionId, InboxId), BackfillWrite>,
    held: Vec<Held>,
}

/// What may leave the replica once the batch is committed.
#[derive(Debug)]
enum Held {
    /// An assignment, if the attempt is still the current one by then.
    Assign(InstanceId, Fence, ConnectionId),
    Send(PartitionId, ConnectionId, ToWorker),
    Alert(PartitionId, Alert),
    /// The next page of a firing that is mapped is to be read.
    Read(InstanceId),
}

impl Held {
    fn partition(&self) -> PartitionId {
        match self {
            Held::Assign(instance, ..) | Held::Read(instance) => instance.partition(),
            Held::Send(partition, ..) | Held::Alert(partition, _) => *partition,
        }
    }
}

/// The commit that is under way.
#[derive(Debug)]
struct InFlight {
    id: CommitId,
    partitions: Vec<PartitionId>,
    /// Instances whose end it writes; they are not in memory any more.
    ended: FxHashSet<InstanceId>,
    /// How many instances in memory it writes for the first time.
    begun: usize,
    applied: Vec<(PartitionId, InboxId)>,
    held: Vec<Held>,
}

impl Pending {
    /// About how many rows the batch will have.
    fn rows(&self) -> usize {
        self.instances.len()
            + self.tasks.len()
            + self.removed_tasks.len()
            + self.occurrences.len()
            + self.outputs.len()
            + self.messages.len()
            + self.applied.len()
            + self.slots.len()
            + self.backfills.len()
    }

    /// A backfill has begun or changed.
    pub(super) fn put_backfill(&mut self, row: BackfillRow, is_new: bool) {
        let before = self.backfills.remove(&(row.partition, row.id)).is_some_and(|before| before.is_new);
        self.backfills.insert((row.partition, row.id), BackfillWrite { row, is_new: is_new || before });
    }

    /// What an attempt has written, at its end.
    pub(super) fn put_output(&mut self, written: AttemptOutput) {
        self.outputs.push(written);
    }

    /// Whether there is nothing to write and nothing held.
    fn is_empty(&self) -> bool {
        self.rows() == 0 && self.held.is_empty()
    }

    /// Whether there is something of a partition in it. Tasks that are to be written are named by whoever owns them, so any counts.
    fn concerns(&self, id: PartitionId) -> bool {
        self.instances.iter().any(|instance| instance.partition() == id)
            || !self.tasks.is_empty()
            || self.removed_tasks.iter().any(|(partition, ..)| *partition == id)
            || self.occurrences.iter().any(|(partition, _)| *partition == id)
            || self.outputs.iter().any(|output| output.instance.partition() == id)
            || self.messages.iter().any(|message| message.from == id)
            || self.applied.iter().any(|(partition, _)| *partition == id)
            || self.slots.keys().any(|(partition, _)| *partition == id)
            || self.backfills.keys().any(|(partition, _)| *partition == id)
            || self.held.iter().any(|held| held.partition() == id)
    }

    /// Forgets what concerns a partition. Its instances and tasks are gone from memory, and are passed over when the batch is made.
    fn forget(&mut self, id: PartitionId) {
        self.instances.retain(|instance| instance.partition() != id);
        self.removed_tasks.retain(|(partition, ..)| *partition != id);
        self.occurrences.retain(|(partition, _)| *partition != id);
        self.outputs.retain(|output| output.instance.partition() != id);
        self.messages.retain(|message| message.from != id);
        self.applied.retain(|(partition, _)| *partition != id);
        self.slots.retain(|(partition, _), _| *partition != id);
        self.backfills.retain(|(partition, _), _| *partition != id);
        self.held.retain(|held| held.partition() != id);
    }
}

/// One commit after the other.
#[derive(Debug, Default)]
struct Lane {
    pending: Pending,
    in_flight: Option<InFlight>,
}

/// All lanes. A partition's is that of its number, counted around.
#[derive(Debug)]
pub(super) struct Lanes(Vec<Lane>);

impl Lanes {
    /// So many, but at least one.
    pub(super) fn new(count: usize) -> Self {
        Lanes((0..count.max(1)).map(|_| Lane::default()).collect())
    }

    fn place(&self, partition: PartitionId) -> usize {
        usize::from(partition.0) % self.0.len()
    }

    /// What the next batch with this partition in it will hold.
    pub(super) fn pending(&mut self, partition: PartitionId) -> &mut Pending {
        let place = self.place(partition);
        &mut self.0[place].pending
    }

    /// About how many rows the next batches will have.
    pub(super) fn rows(&self) -> usize {
        self.0.iter().map(|lane| lane.pending.rows()).sum()
    }

    /// Whether nothing is being written or is to be.
    pub(super) fn are_idle(&self) -> bool {
        self.0.iter().all(|lane| lane.in_flight.is_none() && lane.pending.is_empty())
    }

    /// Whether anything of a partition is being written, or is to be.
    pub(super) fn has_something_to_write(&self, id: PartitionId) -> bool {
        let Lane { pending, in_flight } = &self.0[self.place(id)];
        in_flight.as_ref().is_some_and(|in_flight| in_flight.partitions.contains(&id)) || pending.concerns(id)
    }

    /// Whether a commit in flight writes this instance's end.
    pub(super) fn is_ending(&self, id: InstanceId) -> bool {
        self.0[self.place(id.partition())].in_flight.as_ref().is_some_and(|in_flight| in_flight.ended.contains(&id))
    }

    /// Forgets what concerns a partition.
    pub(super) fn forget(&mut self, id: PartitionId) {
        let place = self.place(id);
        let Lane { pending, in_flight } = &mut self.0[place];
        pending.forget(id);
        if let Some(in_flight) = in_flight {
            in_flight.forget(id);
        }
    }

    fn take_in_flight(&mut self, commit: CommitId) -> Option<InFlight> {
        self.0.iter_mut().find_map(|lane| lane.in_flight.take_if(|in_flight| in_flight.id == commit))
    }
}

impl InFlight {
    /// What the commit still justifies is not said any more for this partition.
    fn forget(&mut self, id: PartitionId) {
        self.partitions.retain(|partition| *partition != id);
        self.held.retain(|held| held.partition() != id);
        self.ended.retain(|instance| instance.partition() != id);
        self.applied.retain(|(partition, _)| *partition != id);
    }
}

impl Scheduler {
    /// An instance's row has changed and is to be written.
    pub(super) fn mark_instance(&mut self, id: InstanceId) {
        let live = self.instances.get_mut(&id).expect("marked instances are live");
        if live.is_dirty {
            probe!("commit.folded");
        } else {
            live.is_dirty = true;
            self.lanes.pending(id.partition()).instances.push(id);
        }
    }

    /// A task's cursor or version has changed and is to be written.
    pub(super) fn mark_task(&mut self, id: TaskId) {
        let task = self.tasks.get_mut(&id).expect("marked tasks are known");
        if !task.is_dirty {
            task.is_dirty = true;
            let partition = task.partition;
            self.lanes.pending(partition).tasks.push(id);
        }
    }

    /// Sends the current attempt to this connection once it is committed.
    pub(super) fn hold_assignment(&mut self, id: InstanceId, fence: Fence, connection: ConnectionId) {
        if guard!(Guard::SpeakAfterCommit, false) {
            return self.send_assignment(id, fence, connection);
        }
        self.lanes.pending(id.partition()).held.push(Held::Assign(id, fence, connection));
    }

    /// Sends a message once what it rests on is committed.
    pub(super) fn hold_message(&mut self, partition: PartitionId, connection: ConnectionId, message: ToWorker) {
        if guard!(Guard::SpeakAfterCommit, false) {
            return self.send(connection, message);
        }
        self.lanes.pending(partition).held.push(Held::Send(partition, connection, message));
    }

    /// Reads the next page of a firing that is mapped once all that was written before is there.
    pub(super) fn hold_reading(&mut self, whole: InstanceId) {
        self.lanes.pending(whole.partition()).held.push(Held::Read(whole));
    }

    /// Raises an alert once what it speaks of is committed.
    pub(super) fn hold_alert(&mut self, partition: PartitionId, alert: Alert) {
        self.lanes.pending(partition).held.push(Held::Alert(partition, alert));
    }

    /// Instances in memory that the store doesn't have yet.
    pub(super) fn unwritten_count(&self) -> usize {
        let is_new = |id: &&InstanceId| self.instances.get(id).is_some_and(|live| live.stored.is_none());
        let of_lane = |lane: &Lane| {
            let under_way = lane.in_flight.as_ref().map_or(0, |in_flight| in_flight.begun);
            under_way + lane.pending.instances.iter().filter(is_new).count()
        };
        self.lanes.0.iter().map(of_lane).sum()
    }

    /// Hands out the next batch of each lane, unless one is in flight or there is nothing to write.
    pub(super) fn start_commits(&mut self) {
        for lane in 0..self.lanes.0.len() {
            self.start_commit(lane);
        }
    }

    fn start_commit(&mut self, lane: usize) {
        let Lane { pending, in_flight } = &mut self.lanes.0[lane];
        if in_flight.is_some() || pending.is_empty() {
            return;
        }
        let pending = std::mem::take(pending);
        let mut batch = Batch { id: CommitId(self.next_commit), replica: self.config.replica.clone(), ..Batch::default() };
        let mut partitions = BTreeSet::new();
        let mut ended = FxHashSet::default();
        for id in pending.instances {
            self.write_instance(id, &mut batch, &mut partitions, &mut ended);
        }
        for id in pending.tasks {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            task.is_dirty = false;
            partitions.insert(task.partition);
            let (partition, version, next_fire) = (task.partition, Some(task.version), task.next_fire);
            let write = TaskWrite { task: id, partition, version, next_fire, fired_until: watermark(task.fired_until) };
            batch.tasks.push(write);
        }
        for (partition, task, fired_until) in pending.removed_tasks {
            partitions.insert(partition);
            batch.tasks.push(TaskWrite { task, partition, version: None, next_fire: None, fired_until: watermark(fired_until) });
        }
        for (partition, occurrence) in pending.occurrences {
            partitions.insert(partition);
            batch.occurrences.push(occurrence);
        }
        for (partition, id) in &pending.applied {
            partitions.insert(*partition);
            batch.applied.push(*id);
        }
        partitions.extend(pending.messages.iter().map(|message| message.from));
        batch.messages = pending.messages;
        partitions.extend(pending.slots.keys().map(|(partition, _)| *partition));
        let slots = pending.slots.into_iter();
        batch.slots.extend(slots.map(|((partition, instance), slot)| SlotWrite { partition, instance, slot }));
        partitions.extend(pending.backfills.keys().map(|(partition, _)| *partition));
        batch.backfills = pending.backfills.into_values().collect();
        batch.outputs = pending.outputs;
        partitions.extend(batch.outputs.iter().map(|output| output.instance.partition()));
        if batch.is_empty() {
            // What is held rests on commits that are through.
            return self.release(pending.held);
        }
        for id in &partitions {
            let partition = self.partition(*id);
            partition.commit_seq += 1;
            let (epoch, commit_seq, sequence) = (partition.epoch, partition.commit_seq, partition.sequence);
            batch.leases.push(LeaseCheck { partition: *id, epoch, commit_seq, sequence });
        }
        self.next_commit += 1;
        self.lanes.0[lane].in_flight = Some(InFlight {
            id: batch.id,
            partitions: partitions.into_iter().collect(),
            begun: batch.inserts.iter().filter(|row| !row.state.is_terminal()).count(),
            ended,
            applied: pending.applied,
            held: pending.held,
        });
        self.commands.push_back(Command::Commit(Arc::new(batch)));
    }

    fn write_instance(
        &mut self,
        id: InstanceId,
        batch: &mut Batch,
        partitions: &mut BTreeSet<PartitionId>,
        ended: &mut FxHashSet<InstanceId>,
    ) {
        let Some(live) = self.instances.get_mut(&id) else { return };
        live.is_dirty = false;
        partitions.insert(id.partition());
        let stored = live.stored.replace((live.row.state, live.row.fence));
        let row = if live.row.state.is_terminal() {
            ended.insert(id);
            self.parts.remove(&id);
            self.instances.remove(&id).expect("just looked up").row
        } else {
            live.row.clone()
        };
        match stored {
            None => batch.inserts.push(row),
            Some((expected_state, expected_fence)) => batch.updates.push(InstanceUpdate { expected_state, expected_fence, row }),
        }
    }

    pub(super) fn commit_finished(&mut self, commit: CommitId, outcome: CommitOutcome) {
        let Some(in_flight) = self.lanes.take_in_flight(commit) else { return };
        let InFlight { partitions, applied, held, .. } = in_flight;
        self.inbox.forget(applied.into_iter().map(|(_, id)| id));
        let mut is_refused = false;
        let reason = match outcome {
            CommitOutcome::Committed => {
                partitions.iter().for_each(|id| self.partition(*id).commit_went_through());
                return self.release(held);
            }
            CommitOutcome::Refused { reason } => {
                is_refused = true;
                probe!("commit.refused");
                if guard!(Guard::RefusedCommitReloads, false) {
                    return self.release(held);
                }
                reason
            }
            CommitOutcome::Unknown { reason } => {
                probe!("commit.unknown");
                if guard!(Guard::UnknownCommitReloads, false) {
                    return self.release(held);
                }
                reason
            }
        };
        // What rests on partitions that the batch has nothing of rests on commits that went through before.
        let (in_doubt, sound): (Vec<_>, Vec<_>) = held.into_iter().partition(|held| partitions.contains(&held.partition()));
        self.release(sound);
        for held in in_doubt {
            if let Held::Assign(instance, ..) = held {
                self.workers.release(instance);
            }
        }
        for id in partitions {
            self.drop_partition(id, &reason);
            if is_refused {
                let now = self.now.monotonic;
                self.partition(id).commit_was_refused(now);
            }
        }
        self.look_after_leases();
    }

    fn release(&mut self, held: Vec<Held>) {
        for held in held {
            match held {
                Held::Assign(instance, fence, connection) => self.send_assignment(instance, fence, connection),
                Held::Send(_, connection, message) => self.send(connection, message),
                Held::Read(whole) => self.read_page(whole),
                Held::Alert(_, alert) => self.commands.push_back(Command::Alert(alert)),
            }
        }
    }

    /// Whether the attempt under this fence is the instance's current one.
    pub(super) fn is_current(&self, id: InstanceId, fence: Fence) -> bool {
        self.instances.get(&id).is_some_and(|live| live.row.fence == fence && live.row.is_with_worker())
    }
}

/// The watermark as it is stored; `None` where nothing was fired yet.
fn watermark(fired_until: Timestamp) -> Option<Timestamp> {
    (fired_until > Timestamp::MIN).then_some(fired_until)
}
