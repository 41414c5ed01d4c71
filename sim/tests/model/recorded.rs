//! What the model and a real database recorded, in one form. What neither says anything about is not in it: the order of the rows within a batch,
//! and that of the leases within a call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::batch::Batch;
use punctual_core::ids::CommitId;
use punctual_core::time::Timestamp;
use punctual_sim::history::{History, What};
use punctual_store::recorder::{Logged, Seen};

/// The records of a model, refusals aside.
pub(crate) fn of_model(history: &History) -> Vec<Seen> {
    let (mut watermarks, mut payloads, mut slots) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let seen = history.records.iter().filter_map(|record| {
        // By the database's clock.
        let until = |until: u64| Timestamp(record.wall.0 + (until - record.at).cast_signed());
        Some(match record.what.clone() {
            What::Defined { entry, task, partition, version, definition } => Seen::Defined { entry, task, partition, version, definition },
            What::Submitted { entry, task, submissions, key } => Seen::Submitted { entry, task, submissions, key },
            What::CancelSubmitted { entry, instance } => Seen::CancelSubmitted { entry, instance },
            What::RerunSubmitted { entry, instance } => Seen::RerunSubmitted { entry, instance },
            What::SkipSubmitted { entry, instance } => Seen::SkipSubmitted { entry, instance },
            What::DelayedChanged { entry, task, ordinal } => Seen::DelayedChanged { entry, task, ordinal },
            What::PauseChanged { entry, partition, scope, is_paused } => Seen::PauseChanged { entry, partition, scope, is_paused },
            What::MarkSubmitted { entry, instance } => Seen::MarkSubmitted { entry, instance },
            What::Noticed { entry, partition, notice } => Seen::Noticed { entry, partition, notice },
            What::ReferencesChanged { entry, task } => Seen::ReferencesChanged { entry, task },
            What::LeaseGranted { partition, owner, epoch, until: at } => Seen::LeaseGranted { partition, owner, epoch, until: until(at) },
            What::LeaseRenewed { partition, epoch, until: at } => Seen::LeaseRenewed { partition, epoch, until: until(at) },
            What::LeaseReleased { partition, epoch } => Seen::LeaseReleased { partition, epoch },
            What::Committed(batch) => {
                let mut batch = (*batch).clone();
                // A batch may leave a watermark alone; a row has it.
                for write in &mut batch.tasks {
                    let stored = watermarks.entry((write.partition, write.task)).or_default();
                    write.fired_until = write.fired_until.or(*stored);
                    *stored = write.fired_until;
                }
                // What is not there goes without a trace.
                batch.slots.retain(|write| match &write.slot {
                    Some(_) => {
                        slots.insert((write.partition, write.instance));
                        true
                    }
                    None => slots.remove(&(write.partition, write.instance)),
                });
                // Its messages are told apart.
                batch.messages.clear();
                // Nor does an update change what an instance is, whatever it says.
                payloads.extend(batch.inserts.iter().map(|row| (row.id, row.payload.clone())));
                for update in &mut batch.updates {
                    update.row.payload.clone_from(&payloads[&update.row.id]);
                }
                Seen::Committed(Arc::new(batch))
            }
            _ => return None,
        })
    });
    in_one_order(seen.collect())
}

/// The records of a database.
pub(crate) fn of_database(logged: Vec<Logged>) -> Vec<Seen> {
    in_one_order(logged.into_iter().map(|logged| logged.seen).collect())
}

fn in_one_order(seen: Vec<Seen>) -> Vec<Seen> {
    let mut seen: Vec<_> = seen.into_iter().map(whole).filter(|seen| !is_nothing(seen)).collect();
    seen.chunk_by_mut(|one, other| std::mem::discriminant(one) == std::mem::discriminant(other)).for_each(|alike| {
        alike.sort_by_key(|seen| match seen {
            Seen::LeaseGranted { partition, .. } | Seen::LeaseRenewed { partition, .. } | Seen::LeaseReleased { partition, .. } => {
                partition.0
            }
            _ => 0,
        });
    });
    seen
}

/// A batch without a row and a lease is none: no owner sends it.
fn is_nothing(seen: &Seen) -> bool {
    matches!(seen, Seen::Committed(batch) if batch.leases.is_empty() && batch.is_empty())
}

fn whole(seen: Seen) -> Seen {
    let Seen::Committed(batch) = seen else { return seen };
    let mut batch = Batch { id: CommitId(0), ..(*batch).clone() };
    batch.inserts.sort_by_key(|row| row.id);
    batch.updates.sort_by_key(|update| update.row.id);
    batch.tasks.sort_by_key(|write| write.task);
    batch.outputs.sort_by_key(|output| (output.instance, output.attempt));
    batch.slots.sort_by_key(|write| (write.partition, write.instance));
    batch.applied.sort_unstable();
    Seen::Committed(Arc::new(batch))
}
