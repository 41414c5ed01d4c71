//! Partitions and their leases: taking, trusting, renewing, loading and letting go.

use std::sync::Arc;

use crate::batch::Snapshot;
use crate::guard;
use crate::guard::Guard;
use crate::ids::{Epoch, Fence, InstanceId, PartitionId};
use crate::instance::{InstanceRow, State};
use crate::limits;
use crate::scheduler::{Alert, Armed, Command, Live, Scheduler, Sent, Task};
use crate::time::{Millis, Monotonic};

/// How long to wait before a partition is asked for again.
const ACQUIRE_RETRY: Millis = Millis(1_000);

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

    fn holds_lease(&self) -> bool {
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

    pub(super) fn owned_partitions(&self) -> Vec<PartitionId> {
        self.leases().filter(|(_, partition)| partition.is_owned()).map(|(id, _)| id).collect()
    }

    fn leases(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().enumerate().map(|(index, partition)| (PartitionId(index as u16), partition))
    }

    /// Asks for what is free, renews what is old, and lets go of what can't be trusted any more.
    pub(super) fn look_after_leases(&mut self) {
        let now = self.now.monotonic;
        if self.phase >= super::Phase::ShuttingDown {
            return;
        }
        let mut wanted = Vec::new();
        let mut old = Vec::new();
        let mut distrusted = Vec::new();
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let id = PartitionId(index as u16);
            if partition.holds_lease() {
                if !guard!(Guard::LeaseTrusted, now < partition.trusted_until) {
                    distrusted.push(id);
                } else if now.since(partition.renewal_asked_at).0 * 3 >= limits::PARTITION_LEASE.0 {
                    partition.renewal_asked_at = now;
                    old.push((id, partition.epoch));
                }
            } else if partition.phase == Phase::Free || matches!(partition.phase, Phase::FreeUntil(at) if at <= now) {
                partition.phase = Phase::Acquiring;
                wanted.push(id);
            }
        }
        for id in distrusted {
            self.drop_partition(id, "its lease could not be renewed in time");
        }
        if !old.is_empty() {
            self.commands.push_back(Command::RenewLeases(old));
        }
        if !wanted.is_empty() {
            self.commands.push_back(Command::AcquireLeases(wanted));
        }
    }

    pub(super) fn lease_granted(&mut self, id: PartitionId, epoch: Epoch, commit_seq: u64, sequence: u64, requested_at: Monotonic) {
        let partition = self.partition(id);
        assert!(epoch > partition.epoch, "partition {id}: epoch {epoch} after {}", partition.epoch);
        partition.phase = Phase::Loading;
        partition.epoch = epoch;
        partition.commit_seq = commit_seq;
        // A store that lost its tail may hand out an older number than this replica has used: never go back.
        partition.sequence = partition.sequence.max(sequence);
        partition.trusted_until = trusted_until(requested_at);
        partition.renewal_asked_at = requested_at;
        self.commands.push_back(Command::LoadSnapshot { partition: id, epoch });
    }

    pub(super) fn lease_refused(&mut self, ids: &[PartitionId]) {
        let retry_at = self.now.monotonic + ACQUIRE_RETRY;
        for id in ids {
            let partition = self.partition(*id);
            if partition.phase == Phase::Acquiring {
                partition.phase = Phase::FreeUntil(retry_at);
            }
        }
    }

    pub(super) fn leases_renewed(&mut self, requested_at: Monotonic, asked: &[(PartitionId, Epoch)], lost: &[PartitionId]) {
        for (id, epoch) in asked {
            let partition = self.partition(*id);
            if !partition.holds_lease() || partition.epoch != *epoch {
                continue;
            }
            if lost.contains(id) {
                self.drop_partition(*id, "another replica has taken it");
            } else {
                partition.trusted_until = partition.trusted_until.max(trusted_until(requested_at));
            }
        }
    }

    pub(super) fn snapshot_failed(&mut self, id: PartitionId, epoch: Epoch) {
        let retry_at = self.now.monotonic + ACQUIRE_RETRY;
        let partition = self.partition(id);
        if partition.phase == Phase::Loading && partition.epoch == epoch {
            partition.phase = Phase::FreeUntil(retry_at);
        }
    }

    pub(super) fn snapshot_loaded(&mut self, id: PartitionId, epoch: Epoch, snapshot: Snapshot) {
        let partition = self.partition(id);
        if partition.phase != Phase::Loading || partition.epoch != epoch {
            return;
        }
        partition.phase = Phase::Owned;
        for record in snapshot.tasks {
            let task = Task {
                version: record.version,
                definition: record.definition,
                partition: id,
                next_fire: record.next_fire,
                timer: None,
                is_dirty: false,
                instances: None,
            };
            self.tasks.insert(record.task, task);
        }
        let mut interrupted = false;
        for (row, definition) in snapshot.instances {
            interrupted |= row.state.is_with_worker();
            self.adopt_instance(row, definition);
        }
        // Timers come last: whether a fixed delay waits for an instance is known only now.
        let tasks: Vec<_> = self.tasks.iter().filter(|(_, task)| task.partition == id).map(|(task, _)| *task).collect();
        for task in tasks {
            self.arm_loaded_task(task);
        }
        if interrupted {
            self.ask_workers_for_accounts();
        }
        self.inbox.restart();
    }

    fn adopt_instance(&mut self, row: InstanceRow, definition: Arc<crate::definition::TaskDefinition>) {
        let (id, state) = (row.id, row.state);
        let instances = self.tasks.get_mut(&row.task).map(|task| task.instances.get_or_insert_default());
        match instances {
            Some(instances) if state.is_in_progress() => {
                instances.in_progress.insert(id);
            }
            Some(instances) if row.due_at.is_none() => instances.waiting.push_back(id),
            _ => {}
        }
        let due_in = row.due_at.map(|due_at| due_at.since(self.now.wall));
        let live =
            Live { stored: Some((state, row.fence)), row, definition, is_dirty: false, timer: None, sent: Sent::Unknown, cancel: None };
        match state {
            State::Created => self.ready.push(&live.definition.handler.name, live.definition.band, id),
            State::Dispatched | State::Running => self.workers.expect(live.row.worker.as_ref(), id, self.now.monotonic),
            _ => {}
        }
        self.instances.insert(id, live);
        if let Some(due_in) = due_in {
            self.arm_instance(id, due_in);
        }
    }

    /// Forgets all that is known of a partition, so that it is read again.
    pub(super) fn drop_partition(&mut self, id: PartitionId, reason: &str) {
        self.commands.push_back(Command::Alert(Alert::PartitionReloaded { partition: id, reason: Arc::from(reason) }));
        self.partition(id).phase = Phase::Free;
        self.housekeeping_at = self.now.monotonic;
        let Scheduler { tasks, wall_timers, monotonic_timers, .. } = self;
        tasks.retain(|_, task| {
            if task.partition == id {
                match task.timer {
                    Some(Armed::Wall(key)) => wall_timers.cancel(key),
                    Some(Armed::Monotonic(key, _)) => monotonic_timers.cancel(key),
                    None => false,
                };
            }
            task.partition != id
        });
        let Scheduler { instances, monotonic_timers, .. } = self;
        instances.retain(|instance, live| {
            if instance.partition() == id {
                live.timer.map(|key| monotonic_timers.cancel(key));
            }
            instance.partition() != id
        });
        self.ready.retain(|instance| instance.partition() != id);
        self.workers.forget(|instance| instance.partition() == id);
        self.pending.forget(id);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.forget(id);
        }
        self.inbox.forget_partition(id);
    }
}

fn trusted_until(requested_at: Monotonic) -> Monotonic {
    requested_at + limits::PARTITION_LEASE - limits::PARTITION_LEASE_MARGIN
}
