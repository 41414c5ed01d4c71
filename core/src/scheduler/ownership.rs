//! Partitions and their leases: taking, trusting, renewing, loading and letting go.
//!
//! # Who owns what
//!
//! Each replica says every [`BEAT_INTERVAL`] that it is alive, and learns who else is. All know the same members, so each knows its share: the
//! partitions divided evenly, the rest to those whose ids come first. A replica asks for partitions until it has its share, and hands over
//! what it has beyond it. Nobody decides who takes which: the store gives each lease to one.
//!
//! A replica that starts waits for its first worker, but not for long, before it says that it is there: until then the others go on.
//!
//! A partition that is to be handed over is *leaving*: nothing of it is fired, assigned or taken in any more, and as soon as all that it
//! had to write is written its lease is released and the others are woken up. The next owner reads it, asks the workers for their
//! accounts and adopts what runs.
//!
//! # How long a lease is trusted
//!
//! From before the request for it left, on the monotonic clock, for the lease's length less a margin. The store counts the same length
//! from later, so it gives the lease to nobody else before its owner has let go.
//!
//! # What each failure does
//!
//! | what happens | what the owner does |
//! | --- | --- |
//! | a renewal is not answered | goes on until the lease is not trusted any more, then forgets the partition |
//! | a renewal is refused | forgets the partition: another replica has it |
//! | a commit is refused, or its outcome unknown | forgets the partitions in it, and takes them again under a new epoch |
//! | the store has forgotten commits (`commit_seq` is lower than was confirmed, or a worker holds a fence that was never given out) | says so, never gives out a number again, goes on from what the store has |

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::batch::{Renewal, Snapshot, TaskRecord};
use crate::definition::Blocking;
use crate::guard;
use crate::guard::Guard;
use crate::ids::{Epoch, Fence, InstanceId, PartitionId, ReplicaId, TaskId};
use crate::instance::{Cause, InstanceRow, State};
use crate::limits;
use crate::probe;
use crate::scheduler::places;
use crate::scheduler::{Alert, Armed, Command, Live, Removed, Scheduler, Sent, Task};
use crate::time::{Millis, Monotonic, Timestamp};

/// How often a replica says that it is alive.
const BEAT_INTERVAL: Millis = Millis(1_000);

/// How long a replica waits for a worker before it says for the first time that it is alive: from then on others hand partitions over to it,
/// and what it can't run yet would be late.
const JOIN_WITHOUT_WORKER_AFTER: Millis = Millis(2_000);

/// How long to wait before a partition is asked for again.
const ACQUIRE_RETRY: Millis = Millis(1_000);

/// Partitions that are read at once.
const LOADS_AT_ONCE: usize = 2;

/// A partition as this replica sees it.
#[derive(Debug, Default)]
pub(super) struct Partition {
    phase: Phase,
    pub(super) epoch: Epoch,
    pub(super) commit_seq: u64,
    pub(super) sequence: u64,
    /// The lease is relied on until then: from before the request for it was sent, less a margin.
    trusted_until: Monotonic,
    /// When the last renewal was asked for.
    renewal_asked_at: Monotonic,
    /// Commits of it that were refused in a row.
    refusals: u32,
    /// Numbers of the sequence above this one were given out by this replica: nobody else has owned the partition since.
    ours_above: u64,
    /// Its commits that are known to be durable.
    confirmed_seq: u64,
    /// When it was read.
    loaded_at: Monotonic,
}

/// The replicas that are alive.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// How many there are; 0: not known yet.
    count: usize,
    /// This replica's place among them.
    rank: usize,
    beat_at: Monotonic,
    /// Leases were given up while this replica was asking: what it is refused may be free by now.
    was_signalled: bool,
}

impl Membership {
    /// Of a replica that begins now.
    pub(super) fn beginning(now: Monotonic) -> Self {
        Membership { beat_at: now + JOIN_WITHOUT_WORKER_AFTER, ..Membership::default() }
    }

    /// How many of so many partitions belong to this replica.
    fn share(&self, partitions: usize) -> usize {
        match self.count {
            0 => 0,
            count => partitions / count + usize::from(self.rank < partitions % count),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Not ours; to be asked for at this time.
    #[default]
    Free,
    /// Not ours; to be asked for again later.
    FreeUntil(Monotonic),
    /// Asked for.
    Acquiring,
    /// Ours, being read.
    Loading,
    /// Ours and in memory.
    Owned,
    /// Ours, to be handed over once all is written.
    Leaving,
}

/// A partition that was loaded and whose inbox has not been read yet. What people asked for while nobody owned it comes first: until then
/// no cursor is armed and nothing is assigned.
#[derive(Debug)]
pub(super) struct NewPartition {
    pub(super) id: PartitionId,
    tasks: Vec<TaskId>,
    /// Instances that are ready for a worker.
    pub(super) ready: Vec<InstanceId>,
    inbox_was_read: bool,
}

impl Partition {
    pub(super) fn is_owned(&self) -> bool {
        self.phase == Phase::Owned
    }

    /// The next number of the sequence that ids and fences come from.
    pub(super) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A commit of it went through.
    pub(super) fn commit_went_through(&mut self) {
        self.refusals = 0;
        self.confirmed_seq = self.commit_seq;
    }

    /// A commit of it was refused. Once may be chance; what is refused again and again is not to keep everything else from its work,
    /// since a batch is refused with all the partitions that are in it.
    pub(super) fn commit_was_refused(&mut self, now: Monotonic) {
        if self.refusals > 0 && self.phase == Phase::Free {
            self.phase = Phase::FreeUntil(now + ACQUIRE_RETRY.saturating_mul(1 << self.refusals.min(6)));
        }
        self.refusals = self.refusals.saturating_add(1);
    }

    /// When it was read.
    pub(super) fn loaded_at(&self) -> Monotonic {
        self.loaded_at
    }

    /// Whether this replica has given this fence out. What others have given out may still be on its way to a worker, over connections that
    /// this replica knows nothing of.
    pub(super) fn gave_out(&self, fence: Fence) -> bool {
        fence.0 > self.ours_above
    }

    fn holds_lease(&self) -> bool {
        matches!(self.phase, Phase::Loading | Phase::Owned | Phase::Leaving)
    }

    fn is_free(&self, now: Monotonic) -> bool {
        self.phase == Phase::Free || matches!(self.phase, Phase::FreeUntil(at) if at <= now)
    }

    /// Ours, or about to be, and to stay.
    fn counts(&self) -> bool {
        matches!(self.phase, Phase::Loading | Phase::Owned)
    }
}

impl Scheduler {
    pub(super) fn partition(&mut self, id: PartitionId) -> &mut Partition {
        &mut self.partitions[usize::from(id.0)]
    }

    pub(super) fn is_owned(&self, id: PartitionId) -> bool {
        self.partitions.get(usize::from(id.0)).is_some_and(Partition::is_owned)
    }

    pub(super) fn new_instance_id(&mut self, partition: PartitionId) -> InstanceId {
        let number = self.partition(partition).next_number();
        InstanceId::new(partition, number)
    }

    pub(super) fn new_fence(&mut self, partition: PartitionId) -> Fence {
        Fence(self.partition(partition).next_number())
    }

    pub(super) fn owned_leases(&self) -> Vec<(PartitionId, Epoch)> {
        self.leases().filter(|(_, partition)| partition.holds_lease()).map(|(id, partition)| (id, partition.epoch)).collect()
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().enumerate().map(|(index, partition)| (PartitionId(index as u16), partition))
    }

    /// Asks for what is free, renews what is old, and lets go of what can't be trusted any more.
    pub(super) fn look_after_leases(&mut self) {
        let now = self.now.monotonic;
        if self.phase >= super::Phase::ShuttingDown {
            return;
        }
        let distrusted: Vec<_> = self
            .leases()
            .filter(|(_, partition)| partition.holds_lease() && !guard!(Guard::LeaseTrusted, now < partition.trusted_until))
            .map(|(id, _)| id)
            .collect();
        for id in distrusted {
            probe!("lease.lost");
            self.drop_partition(id, "its lease could not be renewed in time");
        }
        if self.membership.beat_at <= now {
            self.membership.beat_at = now + BEAT_INTERVAL;
            self.commands.push_back(Command::Beat);
        }
        let mut old = Vec::new();
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            if partition.holds_lease() && now.since(partition.renewal_asked_at).0 * 3 >= limits::PARTITION_LEASE.0 {
                partition.renewal_asked_at = now;
                let (epoch, commit_seq) = (partition.epoch, partition.confirmed_seq);
                old.push(Renewal { partition: PartitionId(index as u16), epoch, commit_seq });
            }
        }
        if !old.is_empty() {
            self.commands.push_back(Command::RenewLeases(old));
        }
        self.ask_for_share();
    }

    fn is_asking(&self) -> bool {
        self.partitions.iter().any(|partition| partition.phase == Phase::Acquiring)
    }

    /// Asks for partitions until this replica has its share.
    fn ask_for_share(&mut self) {
        let now = self.now.monotonic;
        let count = self.partitions.len();
        let share = self.membership.share(count);
        let have = self.partitions.iter().filter(|partition| partition.counts()).count();
        if have >= share || self.is_asking() {
            return;
        }
        // Each replica begins elsewhere, so that those who start together don't get in each other's way.
        let first = self.membership.rank * count / self.membership.count;
        let mut partitions = Vec::new();
        for index in (first..count).chain(0..first) {
            if self.partitions[index].is_free(now) {
                self.partitions[index].phase = Phase::Acquiring;
                partitions.push(PartitionId(index as u16));
            }
        }
        if !partitions.is_empty() {
            self.commands.push_back(Command::AcquireLeases { partitions, most: share - have });
        }
    }

    /// A worker has come: a replica that has waited for one joins the others.
    pub(super) fn join(&mut self) {
        if self.membership.count == 0 {
            self.membership.beat_at = self.membership.beat_at.min(self.now.monotonic);
            self.look_after_leases();
        }
    }

    pub(super) fn members_seen(&mut self, members: Vec<ReplicaId>) {
        let rank = members.iter().position(|member| *member == self.config.replica);
        // One that is not among them has been too slow, and is again with its next beat.
        let Some(rank) = rank else { return };
        let share_before = self.membership.share(self.partitions.len());
        (self.membership.count, self.membership.rank) = (members.len(), rank);
        let share = self.membership.share(self.partitions.len());
        if share > share_before {
            self.try_again();
        }
        let surplus = self.partitions.iter().filter(|partition| partition.counts()).count().saturating_sub(share);
        let owned = self.partitions.iter_mut().rev().filter(|partition| partition.is_owned());
        owned.take(surplus).for_each(|partition| partition.phase = Phase::Leaving);
        self.look_after_leases();
    }

    /// Somebody has given leases up, or goes.
    pub(super) fn leases_signalled(&mut self) {
        self.membership.beat_at = self.now.monotonic;
        self.membership.was_signalled = self.is_asking();
        self.try_again();
        self.look_after_leases();
    }

    /// What could not be had may be free now.
    fn try_again(&mut self) {
        for partition in &mut self.partitions {
            if matches!(partition.phase, Phase::FreeUntil(_)) && partition.refusals == 0 {
                partition.phase = Phase::Free;
            }
        }
    }

    /// Releases the leases of leaving partitions that have nothing more to write.
    pub(super) fn hand_over(&mut self) {
        if self.phase >= super::Phase::ShuttingDown || !self.partitions.iter().any(|partition| partition.phase == Phase::Leaving) {
            return;
        }
        let leaving = self.leases().filter(|(_, partition)| partition.phase == Phase::Leaving).map(|(id, partition)| (id, partition.epoch));
        let mut leases: Vec<_> = leaving.collect();
        leases.retain(|(id, _)| !self.lanes.has_something_to_write(*id));
        for (id, _) in &leases {
            probe!("partition.handed_over");
            self.forget_partition(*id);
            let retry_at = self.now.monotonic + ACQUIRE_RETRY;
            self.partition(*id).phase = Phase::FreeUntil(retry_at);
        }
        if !leases.is_empty() {
            self.commands.push_back(Command::ReleaseLeases { leases, leaves: false });
        }
    }

    pub(super) fn lease_granted(&mut self, id: PartitionId, epoch: Epoch, commit_seq: u64, sequence: u64, requested_at: Monotonic) {
        let partition = self.partition(id);
        let (known, epoch_before) = (partition.confirmed_seq, partition.epoch);
        let was_ours = epoch_before.0 > 0 && epoch.0 == epoch_before.0 + 1;
        if !was_ours {
            partition.ours_above = partition.sequence.max(sequence);
        }
        partition.epoch = epoch;
        partition.confirmed_seq = commit_seq;
        if commit_seq < known || epoch <= epoch_before {
            self.tail_was_lost(id, known, commit_seq);
        }
        let trusted_until = trusted_until(requested_at);
        if trusted_until <= self.now.monotonic {
            // The answer was so long under way that it is worth nothing.
            self.partition(id).phase = Phase::Free;
            return self.look_after_leases();
        }
        let partition = self.partition(id);
        partition.phase = Phase::Loading;
        partition.commit_seq = commit_seq;
        // A store that lost its tail may hand out an older number than this replica has used: never go back.
        partition.sequence = partition.sequence.max(sequence);
        partition.trusted_until = trusted_until;
        partition.renewal_asked_at = requested_at;
        self.to_load.push_back((id, epoch));
        self.start_loads();
    }

    /// Reads the next partitions: a few at a time, so that what was read doesn't pile up, and those that are there can begin.
    fn start_loads(&mut self) {
        while self.loads < LOADS_AT_ONCE
            && let Some((id, epoch)) = self.to_load.pop_front()
        {
            let partition = self.partition(id);
            if partition.phase == Phase::Loading && partition.epoch == epoch {
                self.loads += 1;
                self.commands.push_back(Command::LoadSnapshot { partition: id, epoch });
            }
        }
    }

    pub(super) fn lease_refused(&mut self, ids: &[PartitionId]) {
        let retry_at = self.now.monotonic + ACQUIRE_RETRY;
        for id in ids {
            let partition = self.partition(*id);
            if partition.phase == Phase::Acquiring {
                partition.phase = Phase::FreeUntil(retry_at);
            }
        }
        if std::mem::take(&mut self.membership.was_signalled) {
            self.try_again();
            self.look_after_leases();
        }
    }

    /// A worker speaks of an attempt under this fence, and the owner knows of none. If the fence was never given out, the store has forgotten
    /// that it was; then no number up to it is given out again.
    pub(super) fn fence_seen(&mut self, id: PartitionId, fence: Fence) {
        let partition = self.partition(id);
        if fence.0 > partition.sequence && fence.0 - partition.sequence <= limits::LOST_TAIL_MAX {
            partition.sequence = fence.0;
            let commits = partition.confirmed_seq;
            self.tail_was_lost(id, commits, commits);
        }
    }

    /// The store has forgotten what it had confirmed.
    fn tail_was_lost(&mut self, partition: PartitionId, known: u64, found: u64) {
        probe!("tail.lost");
        let lost = self.partition(partition);
        lost.ours_above = lost.sequence;
        self.commands.push_back(Command::Alert(Alert::TailLost { partition, known, found }));
    }

    pub(super) fn leases_renewed(&mut self, requested_at: Monotonic, asked: &[Renewal], lost: &[PartitionId]) {
        let trusted_until = trusted_until(requested_at);
        for Renewal { partition: id, epoch, .. } in asked {
            let partition = self.partition(*id);
            if !partition.holds_lease() || partition.epoch != *epoch {
                continue;
            }
            if lost.contains(id) {
                self.drop_partition(*id, "another replica has it, or the store has forgotten commits");
            } else {
                partition.trusted_until = partition.trusted_until.max(trusted_until);
            }
        }
    }

    pub(super) fn snapshot_failed(&mut self, id: PartitionId, epoch: Epoch) {
        let retry_at = self.now.monotonic + ACQUIRE_RETRY;
        self.load_ended();
        let partition = self.partition(id);
        if partition.phase == Phase::Loading && partition.epoch == epoch {
            partition.phase = Phase::FreeUntil(retry_at);
        }
    }

    fn load_ended(&mut self) {
        self.loads = self.loads.saturating_sub(1);
        self.start_loads();
    }

    pub(super) fn snapshot_loaded(&mut self, id: PartitionId, epoch: Epoch, snapshot: Snapshot) {
        self.load_ended();
        let now = self.now.monotonic;
        let partition = self.partition(id);
        if partition.phase != Phase::Loading || partition.epoch != epoch {
            return;
        }
        partition.phase = Phase::Owned;
        partition.loaded_at = now;
        let mut tasks = Vec::with_capacity(snapshot.tasks.len());
        let ahead = self.now.wall.saturating_add(limits::FIRED_AHEAD_TOLD);
        let fired = |record: &TaskRecord| Some((record.fired_until.filter(|fired| *fired > ahead)?, record.task));
        let fired_ahead = snapshot.tasks.iter().filter(|record| record.next_fire.is_some()).filter_map(fired);
        if let Some((until, task)) = fired_ahead.clone().max() {
            self.commands.push_back(Command::Alert(Alert::FiredAhead { partition: id, tasks: fired_ahead.count(), task, until }));
        }
        for record in snapshot.tasks {
            tasks.push(record.task);
            let task = Task {
                version: record.version,
                definition: record.definition,
                partition: id,
                next_fire: record.next_fire,
                timer: None,
                fired_until: record.fired_until.unwrap_or(Timestamp::MIN),
                is_dirty: false,
                instances: None,
            };
            self.tasks.insert(record.task, Box::new(task));
            self.take_over_rate(record.task);
        }
        // An edit that nobody has applied yet may have been made before the cursors come.
        self.new_partitions.push(NewPartition { id, tasks, ready: Vec::new(), inbox_was_read: false });
        self.take_up_references(id, snapshot.references);
        self.take_up_pauses(id, snapshot.pauses);
        let (mut interrupted, mut is_takeover) = (false, false);
        let (mut busy_tasks, mut runs) = (BTreeSet::new(), Vec::new());
        for (row, definition) in snapshot.instances {
            if row.id.partition() != id || row.state.is_terminal() {
                continue;
            }
            interrupted |= row.is_with_worker();
            is_takeover |= row.is_with_worker() && !self.partition(id).gave_out(row.fence);
            busy_tasks.insert(row.task);
            if row.is_run() {
                runs.push(row.id);
            }
            let definition = definition.of_part(row.part);
            self.adopt_instance(row, definition);
        }
        // Before anything of theirs can end here.
        self.take_up_backfills(id, snapshot.backfills);
        self.take_up_runs(&runs, snapshot.ended_nodes);
        for task in busy_tasks {
            self.take_up_limit(task);
        }
        self.take_up_slots(id, snapshot.slots);
        if is_takeover {
            probe!("takeover.with_attempts_in_flight");
        }
        if interrupted {
            self.ask_workers_for_accounts();
        }
        self.inbox.restart();
    }

    /// The inbox was read for these partitions since they were loaded, or could not be read.
    pub(super) fn inbox_was_read_for(&mut self, ids: &[PartitionId]) {
        for new in &mut self.new_partitions {
            new.inbox_was_read |= ids.contains(&new.id);
        }
    }

    /// Lets partitions whose inbox has been read begin: their cursors are armed and their instances wait for workers.
    pub(super) fn open_new_partitions(&mut self) {
        if self.new_partitions.is_empty() {
            return;
        }
        let (ready, rest) = std::mem::take(&mut self.new_partitions).into_iter().partition(|new: &NewPartition| new.inbox_was_read);
        self.new_partitions = rest;
        for new in ready {
            new.tasks.into_iter().for_each(|task| self.arm_loaded_task(task));
            new.ready.into_iter().for_each(|instance| self.make_ready(instance));
        }
        self.look_after_maps();
    }

    /// What the owner before had in mind for those that wait behind a limit.
    fn take_up_limit(&mut self, task: TaskId) {
        let Some(of_task) = self.tasks.get(&task).and_then(|task| task.instances.as_ref()) else { return };
        let limit = self.tasks[&task].definition.policies.concurrency.max_running as usize;
        for key in of_task.keys_waited_for() {
            let of_task = self.tasks.get(&task).and_then(|task| task.instances.as_ref());
            let Some(of_key) = of_task.and_then(|of| of.of(key)) else { continue };
            let replaces =
                of_key.waiting.front().is_some_and(|id| self.instances[id].definition.policies.concurrency.blocking == Blocking::Replace);
            match of_key.in_progress.first().copied() {
                Some(oldest) if replaces && of_key.in_progress.len() >= limit => self.cancel_instance(oldest, Cause::Replaced, None),
                _ => self.fill_free_places(task, key),
            }
        }
    }

    fn adopt_instance(&mut self, row: InstanceRow, definition: Arc<crate::definition::TaskDefinition>) {
        let (id, state) = (row.id, row.state);
        let (task, partition) = (row.task, id.partition());
        let is_delayed = state == State::Waiting && row.due_at.is_some();
        let is_part = row.parent().is_some();
        let limit_key = self.tasks.get(&task).filter(|_| !is_part).and_then(|task| places::key_of(&task.definition, &row, &definition));
        match self.tasks.get_mut(&task).map(|task| task.instances.get_or_insert_default()) {
            // What it is a part of counts.
            _ if is_part => {}
            Some(of_task) if state.is_in_progress() => of_task.begin(limit_key, id),
            Some(of_task) if is_delayed => {
                of_task.delay(row.ordinal, id);
            }
            Some(of_task) => of_task.wait(limit_key, id),
            None if state.is_in_progress() => {
                let removed = || Removed { partition, in_progress: BTreeSet::new(), fired_until: Timestamp::MIN };
                self.removed.entry(task).or_insert_with(removed).in_progress.insert(id);
            }
            None => {}
        }
        let is_without_task = !self.tasks.contains_key(&task);
        // Never longer than what was decided, also where the wall clock was set back since.
        let decided_at = row.transitions.last().map_or(row.fire_time, |last| last.at);
        let due_in = |due_at: Timestamp| due_at.since(self.wall_read).min(due_at.since(decided_at));
        let due_in = match state {
            State::Retrying => Some(row.due_at.map_or(Millis::ZERO, due_in)),
            _ if is_delayed => row.due_at.map(due_in),
            _ => None,
        };
        let (is_with_worker, waits_for_group) = (row.is_with_worker(), row.waits_for_group().is_some());
        let ready_at = Live::was_ready_at(&row, self.wall_read, self.now.monotonic);
        let live = Live {
            stored: Some((state, row.fence)),
            limit_key,
            row,
            definition,
            is_dirty: false,
            timer: None,
            ready_at,
            sent: Sent::Unknown,
            cancel: None,
            stray: None,
            cancel_requests: Vec::new(),
        };
        if is_with_worker {
            self.workers.expect(live.row.worker.as_ref(), id, live.definition.band, self.now.monotonic);
        }
        self.instances.insert(id, live);
        self.take_up_part(id);
        if self.instances[&id].row.caller().is_some() && !guard!(Guard::CallsKnown, false) {
            self.take_up_call(id);
        }
        if state == State::Created && !waits_for_group {
            self.make_ready(id);
        }
        if let Some(due_in) = due_in {
            self.arm_instance(id, due_in);
        }
        if is_without_task && state == State::Waiting && !is_part {
            self.cancel_instance(id, Cause::TaskRemoved, None);
        }
    }

    /// Forgets all that is known of a partition, so that it is read again.
    pub(super) fn drop_partition(&mut self, id: PartitionId, reason: &str) {
        self.commands.push_back(Command::Alert(Alert::PartitionReloaded { partition: id, reason: Arc::from(reason) }));
        self.forget_partition(id);
    }

    fn forget_partition(&mut self, id: PartitionId) {
        self.partition(id).phase = Phase::Free;
        self.new_partitions.retain(|new| new.id != id);
        self.removed.retain(|_, removed| removed.partition != id);
        self.references.retain(|_, references| references.partition != id);
        self.parts.retain(|whole, _| whole.partition() != id);
        self.maps.retain(|whole, _| whole.partition() != id);
        self.calls.retain(|_, called| called.partition() != id);
        let Scheduler { tasks, cron_timers, loop_timers, .. } = self;
        tasks.retain(|_, task| {
            if task.partition == id {
                match task.timer {
                    Some(Armed::Cron(key)) => cron_timers.cancel(key),
                    Some(Armed::Loop(key, _)) => loop_timers.cancel(key),
                    None => false,
                };
            }
            task.partition != id
        });
        let Scheduler { instances, instance_timers, .. } = self;
        instances.retain(|instance, live| {
            if instance.partition() == id {
                live.timer.map(|key| instance_timers.cancel(key));
            }
            instance.partition() != id
        });
        self.ready.retain(|instance| instance.partition() != id);
        self.forget_pauses(id);
        self.throttle.forget(id);
        self.breakers.forget(id);
        self.groups.forget(id);
        self.backfills.forget(id);
        self.workers.forget(|instance| instance.partition() == id);
        self.lanes.forget(id);
        self.inbox.forget_partition(id);
    }
}

fn trusted_until(requested_at: Monotonic) -> Monotonic {
    requested_at + limits::PARTITION_LEASE - limits::PARTITION_LEASE_MARGIN
}
