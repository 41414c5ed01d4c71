//! Why a commit is refused, in words that are the same on every database.

use punctual_core::batch::{Batch, InstanceUpdate, LeaseCheck};
use punctual_core::ids::{InboxId, InstanceId, PartitionId, ReplicaId};

/// A partition's lease as the store has it.
#[derive(Clone, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) owner: Option<&'a str>,
    pub(crate) epoch: u64,
    pub(crate) commits: u64,
}

/// Why a lease that a batch relies on is not its own. `None` found: there is no such partition.
pub(crate) fn not_held(replica: &ReplicaId, lease: &LeaseCheck, found: Option<Held<'_>>) -> String {
    let (partition, expected) = (lease.partition, i128::from(lease.commit_seq) - 1);
    match found {
        None => format!("there is no partition {partition}"),
        Some(Held { owner: Some(owner), epoch, commits }) if epoch == lease.epoch.0 && *owner == *replica.0 => {
            format!("partition {partition} has {commits} commits, not {expected}")
        }
        Some(Held { owner: Some(owner), epoch, .. }) if epoch == lease.epoch.0 => format!("partition {partition} is held by {owner}"),
        Some(_) => format!("partition {partition} is not held under epoch {} any more", lease.epoch),
    }
}

/// An update whose row has another state or fence, or is not there.
pub(crate) fn not_as_expected(update: &InstanceUpdate) -> String {
    let (id, state, fence) = (update.row.id, update.expected_state.name(), update.expected_fence);
    format!("instance {id} is not {state} under fence {fence} any more")
}

/// An entry that is gone.
pub(crate) fn applied_before(entry: InboxId) -> String {
    format!("inbox entry {entry} was applied before")
}

/// The partitions whose leases a batch relies on.
pub(crate) struct Covered(Vec<bool>);

impl Covered {
    /// Of a store with so many partitions.
    pub(crate) fn by(batch: &Batch, partitions: u16) -> Self {
        let mut covered = vec![false; usize::from(partitions)];
        for lease in &batch.leases {
            if let Some(covered) = covered.get_mut(usize::from(lease.partition.0)) {
                *covered = true;
            }
        }
        Covered(covered)
    }

    /// Fails with the reason if a partition is not among them.
    pub(crate) fn check(&self, partition: PartitionId, what: impl FnOnce() -> String) -> Result<(), String> {
        if self.0.get(usize::from(partition.0)).copied().unwrap_or(false) {
            return Ok(());
        }
        Err(format!("{} is of partition {partition}, whose lease is not among the batch's", what()))
    }

    /// The same, for an instance.
    pub(crate) fn check_instance(&self, id: InstanceId) -> Result<(), String> {
        self.check(id.partition(), || format!("instance {id}"))
    }
}
