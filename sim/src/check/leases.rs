//! `lease.exclusive`: one owner, and only it writes.

use std::collections::BTreeMap;

use punctual_core::batch::Batch;
use punctual_core::ids::{Epoch, PartitionId, ReplicaId};
use punctual_core::time::{Millis, Timestamp};

use crate::check::facts::Facts;
use crate::check::{Case, Verdict};
use crate::history::{Record, What};

/// A lease's row, as the records have it.
#[derive(Clone, Debug, Default)]
struct Lease {
    /// `None`: nobody's.
    owner: Option<ReplicaId>,
    epoch: Epoch,
    /// When it runs out, by the database's clock.
    until: Timestamp,
    commit_seq: u64,
    sequence: u64,
}

/// All leases, and how they were before each record, for the case that it is undone.
#[derive(Default)]
struct Book {
    leases: BTreeMap<PartitionId, Lease>,
    changes: Vec<(usize, PartitionId, Lease)>,
    keeps_changes: bool,
}

impl Book {
    /// A lease that this record is about to change.
    fn change(&mut self, record: usize, partition: PartitionId) -> &mut Lease {
        let lease = self.leases.entry(partition).or_default();
        if self.keeps_changes {
            self.changes.push((record, partition, lease.clone()));
        }
        lease
    }

    /// Everything from this record on is undone.
    fn undo(&mut self, from: usize) {
        while let Some((_, partition, before)) = self.changes.pop_if(|(record, ..)| *record >= from) {
            self.leases.insert(partition, before);
        }
    }
}

/// By the records of leases there is at most one owner at any time: a lease is granted to another one only when it was released or has run
/// out, each time under a higher epoch. Each batch names for each partition that it writes the epoch that was granted last and not given
/// up, comes from that lease's owner, and has a commit number one higher than the last; the sequence of ids and fences never goes back.
///
/// Leases run out by the database's clock, whatever is done to it. Whoever holds the leases knows the rows: no batch of theirs is refused for
/// anything else; after a failover that lost the tail that is not known, since nobody has told them.
///
/// A failover that loses the tail takes leases back to where they were. Whoever goes on writing as if nothing had been has a gap in its
/// commit numbers.
pub(super) fn exclusive(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut book = Book { keeps_changes: !facts.tails.is_empty(), ..Book::default() };
    for (index, record) in facts.records.iter().enumerate() {
        match &record.what {
            What::LeaseGranted { partition, owner, epoch, until } => {
                let lease = book.change(index, *partition);
                let holder = lease.owner.as_ref().filter(|holder| *holder != owner && lease.until > record.wall);
                if let Some(holder) = holder {
                    let until = lease.until;
                    case.violated(|| {
                        format!("partition {partition} was granted to {owner} while {holder} held it until {until} (record {index})")
                    });
                }
                if *epoch <= lease.epoch {
                    let before = lease.epoch;
                    case.violated(|| format!("partition {partition}: epoch {epoch} comes after {before} (record {index})"));
                }
                (lease.owner, lease.epoch, lease.until) = (Some(owner.clone()), *epoch, by_wall(record, *until));
            }
            What::LeaseRenewed { partition, epoch, until } => {
                let lease = book.change(index, *partition);
                if lease.owner.is_none() || lease.epoch != *epoch {
                    let now = lease.epoch;
                    case.violated(|| format!("partition {partition}: epoch {epoch} was renewed, {now} is the last (record {index})"));
                } else {
                    lease.until = by_wall(record, *until);
                }
            }
            What::LeaseReleased { partition, epoch } => {
                let lease = book.change(index, *partition);
                if lease.epoch == *epoch {
                    lease.owner = None;
                }
            }
            What::Committed(batch) => {
                for check in &batch.leases {
                    let lease = book.change(index, check.partition);
                    if let Some(what) = why_not(lease, batch, check.epoch, check.commit_seq, check.sequence) {
                        let partition = check.partition;
                        case.violated(|| format!("partition {partition}: {what} (record {index})"));
                    }
                    (lease.commit_seq, lease.sequence) = (check.commit_seq, check.sequence);
                }
                if let Some(partition) = uncovered(facts, index, batch) {
                    case.violated(|| format!("a batch writes partition {partition} and does not check its lease (record {index})"));
                }
            }
            What::TailLost { from } => book.undo(*from),
            What::CommitRefused { replica, is_lease: false, reason } => {
                let was_lost = facts.tails.first().is_some_and(|(_, lost)| *lost < index);
                case.violated_unless_undone(was_lost, || {
                    format!("{replica} holds the leases and does not know the rows: {reason} (record {index})")
                });
            }
            _ => {}
        }
    }
    case.verdict()
}

fn why_not(lease: &Lease, batch: &Batch, epoch: Epoch, commit_seq: u64, sequence: u64) -> Option<String> {
    if lease.epoch != epoch {
        return Some(format!("a batch under epoch {epoch}, the last that was granted is {}", lease.epoch));
    }
    match &lease.owner {
        None => return Some(format!("a batch under epoch {epoch}, which was given up")),
        Some(owner) if *owner != batch.replica => return Some(format!("a batch of {}, the owner is {owner}", batch.replica)),
        Some(_) => {}
    }
    if commit_seq != lease.commit_seq + 1 {
        return Some(format!("commit {commit_seq} comes after {}", lease.commit_seq));
    }
    (sequence < lease.sequence).then(|| format!("the sequence goes back from {} to {sequence}", lease.sequence))
}

/// When a lease that is granted now runs out, by the database's clock.
fn by_wall(record: &Record, until: u64) -> Timestamp {
    record.wall.saturating_add(Millis(until.saturating_sub(record.at)))
}

/// A partition that a batch writes without relying on its lease.
fn uncovered(facts: &Facts<'_>, record: usize, batch: &Batch) -> Option<PartitionId> {
    let rows = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row)).map(|row| row.id.partition());
    let tasks = batch.tasks.iter().map(|write| write.partition);
    let outputs = batch.outputs.iter().map(|output| output.instance.partition());
    let entries = batch.applied.iter().filter_map(|id| facts.entry_at(*id, record)?.partition);
    let mut last = None;
    rows.chain(tasks).chain(outputs).chain(entries).find(|partition| {
        let is_new = last.replace(*partition) != Some(*partition);
        is_new && !batch.leases.iter().any(|check| check.partition == *partition)
    })
}
