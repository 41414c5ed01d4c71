//! Calls as data, carried out on any store, and their replies in a form that can be compared.

use std::sync::Arc;

use punctual_core::batch::{Batch, CommitOutcome, Renewal, Snapshot};
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId};
use punctual_core::inbox::Submission;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    Applied, AuditFilter, Catalog, DeadLetterFilter, InboxPage, InstanceFilter, LeaseAnswer, PauseTarget, Store, StoreError, Submitted,
    TaskDocument,
};
use punctual_store::conformance::{TTL, all_partitions};

/// A call of a port.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Beat(ReplicaId),
    Acquire(ReplicaId, Vec<PartitionId>, usize),
    Renew(ReplicaId, Vec<Renewal>),
    Release(ReplicaId, Vec<(PartitionId, Epoch)>, bool),
    Snapshot(PartitionId),
    Commit(Arc<Batch>),
    Inbox(Vec<PartitionId>, InboxId, usize),
    Apply {
        source: Arc<str>,
        documents: Vec<TaskDocument>,
        dry_run: bool,
    },
    Trigger {
        task: Arc<str>,
        by: Arc<str>,
        key: Option<Arc<str>>,
        submissions: Vec<Submission>,
    },
    Cancel(InstanceId, Option<Arc<str>>),
    Rerun(InstanceId, Option<Arc<str>>),
    Pause(PauseTarget, bool),
    Discard(InstanceId),
    /// Pauses, dead letters and the audit.
    People,
    Tasks(Option<Arc<str>>, usize),
    Task(Arc<str>),
    NameOf(TaskId),
    Instances(InstanceFilter),
    Instance(InstanceId),
    OfSubmission(u64),
    Outputs(InstanceId),
    Occurrences(Arc<str>, usize),
    Counts,
    Replicas,
    Partitions,
}

/// What came back. What no port says anything about (the words of a refusal, the order of counts) is not in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Members(Vec<ReplicaId>),
    Leases(Vec<LeaseAnswer>),
    Lost(Vec<PartitionId>),
    Done,
    Snapshot(Snapshot),
    Committed,
    Refused,
    Unknown,
    Page(InboxPage),
    Applied(Applied),
    Submitted(Submitted),
    /// Whatever only needs to be equal.
    Read(String),
    /// An error; whether it may pass.
    Failed(bool),
}

/// Carries a call out at this time.
pub(crate) async fn carry_out(store: &(impl Store + Catalog), call: Call, now: Timestamp) -> Reply {
    match attempt(store, call, now).await {
        Ok(reply) => reply,
        Err(error) => Reply::Failed(error.is_passing()),
    }
}

async fn attempt(store: &(impl Store + Catalog), call: Call, now: Timestamp) -> Result<Reply, StoreError> {
    let read = |what: &dyn std::fmt::Debug| Reply::Read(format!("{what:#?}"));
    Ok(match call {
        Call::Beat(replica) => {
            let beat = store.beat(replica, TTL, now).await?;
            assert!(beat.now.is_none_or(|told| told == now), "it goes by the caller's clock");
            Reply::Members(beat.members)
        }
        Call::Acquire(replica, partitions, most) => Reply::Leases(store.acquire(replica, partitions, most, TTL, now).await?),
        Call::Renew(replica, leases) => Reply::Lost(store.renew(replica, leases, TTL, now).await?),
        Call::Release(replica, leases, leaves) => {
            store.release(replica, leases, leaves).await?;
            Reply::Done
        }
        Call::Snapshot(partition) => Reply::Snapshot(store.snapshot(partition).await?),
        Call::Commit(batch) => match store.commit(batch).await? {
            CommitOutcome::Committed => Reply::Committed,
            CommitOutcome::Refused { .. } => Reply::Refused,
            CommitOutcome::Unknown { .. } => Reply::Unknown,
        },
        Call::Inbox(partitions, after, limit) => Reply::Page(store.read_inbox(partitions, after, limit).await?),
        Call::Apply { source, documents, dry_run } => {
            let mut applied = store.apply(source, "tester".into(), documents, dry_run, now).await?;
            for names in [&mut applied.created, &mut applied.changed, &mut applied.removed] {
                names.sort_unstable();
            }
            Reply::Applied(applied)
        }
        Call::Trigger { task, by, key, submissions } => Reply::Submitted(store.trigger(task, by.into(), key, submissions, now).await?),
        Call::Cancel(instance, reason) => Reply::Submitted(store.cancel(instance, "me".into(), reason, now).await?),
        Call::Rerun(instance, reason) => Reply::Submitted(store.rerun(instance, "me".into(), reason, now).await?),
        Call::Pause(target, is_paused) => read(&store.set_pause(target, is_paused, "me".into(), now).await?),
        Call::Discard(id) => read(&store.discard(id, "me".into(), now).await?),
        Call::People => {
            let letters = store.dead_letters(DeadLetterFilter { limit: usize::MAX, ..DeadLetterFilter::default() }).await?;
            let mut audit = store.audit(AuditFilter { limit: usize::MAX, ..AuditFilter::default() }).await?;
            // Only their order means something.
            audit.iter_mut().for_each(|audit| audit.id = 0);
            read(&(store.pauses().await?, letters, audit))
        }
        Call::Tasks(after, limit) => read(&store.tasks(after, limit).await?),
        Call::Task(name) => read(&store.task(name).await?),
        Call::NameOf(task) => read(&store.name_of(task).await?),
        Call::Instances(filter) => read(&store.instances(filter).await?),
        Call::Instance(id) => read(&store.instance(id).await?),
        Call::OfSubmission(ordinal) => read(&store.instance_of_submission(ordinal).await?),
        Call::Outputs(id) => read(&store.outputs(id).await?),
        Call::Occurrences(task, limit) => read(&store.occurrences(task, limit).await?),
        Call::Counts => {
            let mut counts = store.counts().await?;
            counts.retain(|(_, count)| *count > 0);
            counts.sort();
            read(&counts)
        }
        Call::Replicas => read(&store.replicas().await?),
        Call::Partitions => {
            let mut views = store.partition_views().await?;
            // Of no meaning then.
            views.iter_mut().filter(|view| view.owner.is_none()).for_each(|view| view.expires_at = Timestamp(0));
            read(&views)
        }
    })
}

/// The calls that read all that can be read. The last one takes all leases, to see them.
pub(crate) fn everything(names: &[&str]) -> Vec<Call> {
    let mut calls: Vec<Call> = all_partitions().into_iter().map(Call::Snapshot).collect();
    calls.push(Call::Inbox(all_partitions(), InboxId(0), usize::MAX));
    calls.push(Call::Tasks(None, usize::MAX));
    for name in names {
        calls.push(Call::Task((*name).into()));
        calls.push(Call::Occurrences((*name).into(), usize::MAX));
    }
    calls.extend((0..=names.len() as u64 + 1).map(|task| Call::NameOf(TaskId(task))));
    calls.push(Call::Instances(InstanceFilter { limit: usize::MAX, ..InstanceFilter::default() }));
    calls.extend([Call::Counts, Call::People, Call::Replicas, Call::Partitions]);
    let nobody = ReplicaId("nobody".into());
    calls.push(Call::Acquire(nobody.clone(), all_partitions(), usize::MAX));
    calls.push(Call::Beat(nobody));
    calls
}
