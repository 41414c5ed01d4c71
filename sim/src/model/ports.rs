//! The model behind the ports: what production talks to, and what every other store is compared with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_core::backfill::{BackfillPlan, BackfillRow};
use punctual_core::batch::{Batch, CommitOutcome, Output, Renewal, Snapshot};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId};
use punctual_core::inbox::{DelayedChange, NodeMark, Submission};
use punctual_core::instance::{Part, State};
use punctual_core::limits;
use punctual_core::occurrence::Occurrence;
use punctual_core::scheduler::Firings;
use punctual_core::time::{Millis, Timestamp};
use punctual_core::workflow::NodeIndex;
use punctual_driver::editing::{ANSWER_KEPT_MS, UNDER_WAY_MS};
use punctual_driver::ports::{
    Actor, Applied, Applying, AuditAction, AuditFilter, AuditView, Beat, Catalog, ComingTask, DeadLetterFilter, Discarded, Edited, Fired,
    InboxPage, InstanceAction, InstanceFilter, InstancePage, InstanceQuery, InstanceView, KeptAnswer, LeaseAnswer, OCCURRENCES_LOOKED_AT,
    PartitionView, PauseSet, PauseTarget, PauseView, ReplicaView, Rerunning, Reserved, Revision, Store, StoreError, Submitted, TaskDay,
    TaskDocument, TaskEdit, TaskPage, TaskQuery, TaskView, TriggerChanged, VersionView,
};

use crate::model::data::{Member, StoredVersion};
use crate::model::database::Database;

/// Makes a definition of a document, or says why not.
pub type Decode = Arc<dyn Fn(&str) -> Result<TaskDefinition, String> + Send + Sync>;

type Decoded = BTreeMap<Arc<str>, Option<Arc<TaskDefinition>>>;

/// A database as a program sees it that has this codec. Clones share the database.
///
/// Each operation's `now` is the database's clock: where that is ahead, virtual time goes on to it, and where it is behind, the database's
/// clock is set back. Operations without one happen at the time of the last that had one.
#[derive(Clone)]
pub struct ModelStore {
    shared: Arc<Mutex<Shared>>,
    decode: Decode,
    /// By document: each is decoded once.
    decoded: Arc<Mutex<Decoded>>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    /// Virtual milliseconds since the beginning of the run.
    at: u64,
    /// Calls by their idempotency keys.
    answers: BTreeMap<Arc<str>, Known>,
}

/// A call that was made under a key.
#[derive(Debug)]
struct Known {
    digest: [u8; 32],
    at: Timestamp,
    answer: Option<KeptAnswer>,
}

/// What an application changed goes to the audit.
fn put_applied_on_record(database: &mut Database, at: u64, by: &Actor, source: &Arc<str>, applied: &Applied) {
    let written =
        [(AuditAction::Create, &applied.created), (AuditAction::Change, &applied.changed), (AuditAction::Remove, &applied.removed)];
    for (action, name) in written.into_iter().flat_map(|(action, names)| names.iter().map(move |name| (action, name))) {
        let task = database.data().names[name].task;
        database.audited(at, by, action, Some(task), None, Some(source.clone()));
    }
}

impl Shared {
    fn follow(&mut self, now: Timestamp) {
        let ahead = now.0.saturating_sub(self.database.clock(self.at).0);
        match u64::try_from(ahead) {
            Ok(ahead) => self.at += ahead,
            Err(_) => self.database.step_clock(self.at, ahead),
        }
    }
}

impl std::fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStore").finish_non_exhaustive()
    }
}

impl ModelStore {
    /// A program with this codec on this database.
    pub fn new(database: Database, decode: Decode) -> ModelStore {
        ModelStore { shared: Arc::new(Mutex::new(Shared { database, at: 0, answers: BTreeMap::new() })), decode, decoded: Arc::default() }
    }

    /// Another program, with another codec, on the same database.
    pub fn with_decode(&self, decode: Decode) -> ModelStore {
        ModelStore { shared: Arc::clone(&self.shared), decode, decoded: Arc::default() }
    }

    /// Lets time pass until the database's clock shows `now`.
    pub fn follow(&self, now: Timestamp) {
        self.lock().follow(now);
    }

    /// The database itself, and what virtual time it is.
    pub fn with<T>(&self, body: impl FnOnce(&mut Database, u64) -> T) -> T {
        let shared = &mut *self.lock();
        body(&mut shared.database, shared.at)
    }

    fn at<T>(&self, now: Timestamp, body: impl FnOnce(&mut Database, u64) -> T) -> T {
        let shared = &mut *self.lock();
        shared.follow(now);
        body(&mut shared.database, shared.at)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn understand(&self, version: &StoredVersion) -> Option<Arc<TaskDefinition>> {
        let document = version.document.as_ref()?;
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let definition = decoded.entry(document.clone()).or_insert_with(|| (self.decode)(document).ok().map(Arc::new));
        definition.clone()
    }
}

fn other(reason: String) -> StoreError {
    StoreError::Other { database: "the model".to_owned(), reason }
}

impl Store for ModelStore {
    fn partitions(&self) -> u16 {
        self.with(|database, _| database.data().leases.len() as u16)
    }

    async fn beat(&self, replica: ReplicaId, ttl: Millis, now: Timestamp) -> Result<Beat, StoreError> {
        // It goes by the caller's clock, so it has nothing to say about the time.
        Ok(Beat { now: None, ..self.at(now, |database, at| database.beat(at, &replica, ttl)) })
    }

    async fn acquire(
        &self,
        replica: ReplicaId,
        partitions: Vec<PartitionId>,
        most: usize,
        ttl: Millis,
        now: Timestamp,
    ) -> Result<Vec<LeaseAnswer>, StoreError> {
        self.at(now, |database, at| match partitions.iter().find(|partition| usize::from(partition.0) >= database.data().leases.len()) {
            Some(partition) => Err(other(format!("there is no partition {partition}"))),
            None => Ok(database.acquire(at, &replica, &partitions, most, ttl, now)),
        })
    }

    async fn renew(&self, replica: ReplicaId, leases: Vec<Renewal>, ttl: Millis, now: Timestamp) -> Result<Vec<PartitionId>, StoreError> {
        Ok(self.at(now, |database, at| database.renew(at, &replica, &leases, ttl)))
    }

    async fn release(&self, replica: ReplicaId, leases: Vec<(PartitionId, Epoch)>, leaves: bool) -> Result<(), StoreError> {
        self.with(|database, at| database.release(at, &replica, &leases, leaves));
        Ok(())
    }

    async fn snapshot(&self, partition: PartitionId) -> Result<Snapshot, StoreError> {
        Ok(self.with(|database, at| database.snapshot_as(at, partition, &|version| self.understand(version))))
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<CommitOutcome, StoreError> {
        Ok(match self.with(|database, at| database.commit(at, &batch)) {
            Ok(()) => CommitOutcome::Committed,
            Err(refusal) => CommitOutcome::Refused { reason: refusal.reason().into() },
        })
    }

    async fn read_inbox(&self, partitions: Vec<PartitionId>, after: InboxId, limit: usize) -> Result<InboxPage, StoreError> {
        let understood = |version: &StoredVersion| self.understand(version);
        let (entries, more) = self.with(|database, at| database.read_inbox_as(at, &partitions, after, limit, &understood));
        Ok(InboxPage { entries, more })
    }

    async fn output(&self, instance: InstanceId, attempt: u32) -> Result<Option<Output>, StoreError> {
        Ok(self.with(|database, _| database.data().output_of(instance, attempt)))
    }

    async fn results(&self, of: Firings, from: Part, until: Part, limit: usize) -> Result<Vec<Option<Arc<str>>>, StoreError> {
        Ok(self.with(|database, _| database.data().results_of(of, from, until, limit)))
    }
}

impl Catalog for ModelStore {
    async fn apply(
        &self,
        source: Arc<str>,
        by: Actor,
        documents: Vec<TaskDocument>,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<Applied, StoreError> {
        Ok(self.at(now, |database, at| {
            let how = Applying { remove: true, take_over: true, dry_run, expected: None };
            let (applied, _) = database.apply(at, &source, &by.by, &documents, &how);
            if !dry_run {
                put_applied_on_record(database, at, &by, &source, &applied);
            }
            applied
        }))
    }

    async fn apply_to(
        &self,
        source: Arc<str>,
        how: Applying,
        by: Actor,
        documents: Vec<TaskDocument>,
        now: Timestamp,
    ) -> Result<Result<Applied, Revision>, StoreError> {
        let (is, _) = self.with(|database, _| database.data().revision(&source));
        if how.expected.is_some_and(|expected| expected != is) {
            return Ok(Err(is));
        }
        Ok(Ok(self.at(now, |database, at| {
            let (applied, is_written) = database.apply(at, &source, &by.by, &documents, &how);
            if is_written {
                put_applied_on_record(database, at, &by, &source, &applied);
            }
            applied
        })))
    }

    async fn revision(&self, source: Arc<str>) -> Result<(Revision, u64), StoreError> {
        Ok(self.with(|database, _| database.data().revision(&source)))
    }

    async fn edit(&self, edit: TaskEdit, by: Actor, dry_run: bool, now: Timestamp) -> Result<Edited, StoreError> {
        Ok(self.at(now, |database, at| {
            let edited = database.edit(at, &edit, &by.by, dry_run);
            if let Edited::Done(applied) = &edited
                && !dry_run
            {
                put_applied_on_record(database, at, &by, &edit.source, applied);
            }
            edited
        }))
    }

    async fn reserve_answer(&self, key: Arc<str>, digest: [u8; 32], now: Timestamp) -> Result<Reserved, StoreError> {
        let now = self.at(now, |database, at| database.clock(at));
        let answers = &mut self.lock().answers;
        answers.retain(|_, known| known.at.0 >= now.0 - ANSWER_KEPT_MS);
        Ok(match answers.get(&key) {
            Some(known) if known.digest != digest => Reserved::Other,
            Some(Known { answer: Some(answer), .. }) => Reserved::Answered(answer.clone()),
            Some(known) if known.at.0 > now.0 - UNDER_WAY_MS => Reserved::UnderWay,
            Some(_) | None => {
                answers.insert(key, Known { digest, at: now, answer: None });
                Reserved::New
            }
        })
    }

    async fn keep_answer(&self, key: Arc<str>, digest: [u8; 32], answer: Option<KeptAnswer>) -> Result<(), StoreError> {
        let answers = &mut self.lock().answers;
        match (answers.get_mut(&key).filter(|known| known.digest == digest && known.answer.is_none()), answer) {
            (Some(known), Some(answer)) => known.answer = Some(answer),
            (Some(_), None) => _ = answers.remove(&key),
            (None, _) => {}
        }
        Ok(())
    }

    async fn trigger(
        &self,
        task: Arc<str>,
        by: Actor,
        key: Option<Arc<str>>,
        submissions: Vec<Submission>,
        now: Timestamp,
    ) -> Result<Submitted, StoreError> {
        if !(1..=limits::SUBMISSIONS_MAX).contains(&submissions.len()) {
            return Err(other(format!("{} submissions are not between 1 and {}", submissions.len(), limits::SUBMISSIONS_MAX)));
        }
        Ok(self.at(now, |database, at| {
            let submitted = database.trigger(at, &task, &by.by, key.as_ref(), submissions);
            if let Submitted::Accepted { .. } = submitted {
                let task = database.data().names[&task].task;
                database.audited(at, &by, AuditAction::Trigger, Some(task), None, key);
            }
            submitted
        }))
    }

    async fn act(&self, instance: InstanceId, action: InstanceAction, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        Ok(self.at(now, |database, at| database.act(at, instance, action, &by)))
    }

    async fn rerun(&self, instance: InstanceId, by: Actor, which: Rerunning, now: Timestamp) -> Result<Submitted, StoreError> {
        Ok(self.at(now, |database, at| {
            let submitted = database.rerun(at, instance, &by.by, by.why.clone(), which);
            if let Submitted::Accepted { .. } = submitted {
                let task = database.data().instances[&instance].task;
                database.audited(at, &by, AuditAction::Rerun, Some(task), Some(instance), None);
            }
            submitted
        }))
    }

    async fn set_pause(&self, target: PauseTarget, is_paused: bool, by: Actor, now: Timestamp) -> Result<PauseSet, StoreError> {
        Ok(self.at(now, |database, at| database.set_pause(at, &target, is_paused, &by)))
    }

    async fn pauses(&self) -> Result<Vec<PauseView>, StoreError> {
        Ok(self.with(|database, _| database.data().pause_views()))
    }

    async fn change_trigger(
        &self,
        task: Arc<str>,
        key: Arc<str>,
        change: DelayedChange,
        by: Actor,
        now: Timestamp,
    ) -> Result<TriggerChanged, StoreError> {
        Ok(self.at(now, |database, at| database.change_trigger(at, &task, &key, change, &by)))
    }

    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<InstanceView>, StoreError> {
        Ok(self.with(|database, _| database.data().dead_letter_views(&filter)))
    }

    async fn discard(&self, instance: InstanceId, by: Actor, now: Timestamp) -> Result<Discarded, StoreError> {
        Ok(self.at(now, |database, at| database.discard(at, instance, &by)))
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditView>, StoreError> {
        Ok(self.with(|database, _| database.data().audit_views(&filter)))
    }

    async fn mark_node(
        &self,
        instance: InstanceId,
        node: NodeIndex,
        mark: NodeMark,
        subject: Arc<str>,
        by: Actor,
        now: Timestamp,
    ) -> Result<Submitted, StoreError> {
        Ok(self.at(now, |database, at| {
            let submitted = database.mark_node(at, instance, node, mark, &by.by, by.why.clone());
            if let Submitted::Accepted { .. } = submitted {
                let task = database.data().instances[&instance].task;
                database.audited(at, &by, AuditAction::MarkNode, Some(task), Some(instance), Some(subject));
            }
            submitted
        }))
    }

    async fn nodes(&self, run: InstanceId) -> Result<Vec<InstanceView>, StoreError> {
        Ok(self.with(|database, _| database.data().node_views(run)))
    }

    async fn fired(&self, task: Arc<str>, from: Timestamp, to: Timestamp) -> Result<Option<Fired>, StoreError> {
        Ok(self.with(|database, _| database.data().fired(&task, from, to)))
    }

    async fn backfill(&self, plan: BackfillPlan, after: Option<InboxId>, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        Ok(self.at(now, |database, at| {
            let task = plan.task;
            let submitted = database.backfill(at, &Arc::new(plan), after, &by.by);
            if let Submitted::Accepted { .. } = submitted {
                database.audited(at, &by, AuditAction::Backfill, Some(task), None, None);
            }
            submitted
        }))
    }

    async fn cancel_backfill(&self, backfill: InboxId, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        Ok(self.at(now, |database, at| {
            let task = database.data().partition_of_backfill(backfill).map(|(_, task)| task);
            let submitted = database.cancel_backfill(at, backfill, &by.by, by.why.clone());
            if let Submitted::Accepted { .. } = submitted {
                database.audited(at, &by, AuditAction::CancelBackfill, task, None, Some(Arc::from(backfill.to_string())));
            }
            submitted
        }))
    }

    async fn backfills(&self, task: Option<TaskId>, limit: usize) -> Result<Vec<BackfillRow>, StoreError> {
        Ok(self.with(|database, _| database.data().backfills_of(task, limit)))
    }

    async fn tasks(&self, after: Option<Arc<str>>, limit: usize) -> Result<Vec<TaskView>, StoreError> {
        Ok(self.with(|database, _| database.data().task_views(after.as_deref(), limit)))
    }

    async fn task_now(&self, name: Arc<str>) -> Result<Option<TaskView>, StoreError> {
        Ok(self.with(|database, _| database.data().task_with_versions(&name).map(|(view, _)| view)))
    }

    async fn task(&self, name: Arc<str>) -> Result<Option<(TaskView, Vec<VersionView>)>, StoreError> {
        Ok(self.with(|database, _| database.data().task_with_versions(&name)))
    }

    async fn name_of(&self, task: TaskId) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.with(|database, _| database.data().name_of(task).cloned()))
    }

    async fn instances(&self, filter: InstanceFilter) -> Result<Vec<InstanceView>, StoreError> {
        Ok(self.with(|database, _| database.data().instance_views(&filter)))
    }

    async fn instance_page(&self, query: InstanceQuery) -> Result<InstancePage, StoreError> {
        Ok(self.with(|database, _| database.data().instance_page(&query)))
    }

    async fn task_page(&self, query: TaskQuery) -> Result<TaskPage, StoreError> {
        Ok(self.with(|database, _| database.data().task_page(&query)))
    }

    async fn coming(&self, until: Timestamp, limit: usize) -> Result<Vec<ComingTask>, StoreError> {
        Ok(self.with(|database, _| database.data().coming(until, limit)))
    }

    async fn task_days(&self, task: TaskId, from: i64) -> Result<Vec<TaskDay>, StoreError> {
        Ok(self.with(|database, _| database.data().task_days(task, from)))
    }

    async fn instance(&self, id: InstanceId) -> Result<Option<InstanceView>, StoreError> {
        Ok(self.with(|database, _| database.data().instance(id)))
    }

    async fn instance_of_submission(&self, ordinal: u64) -> Result<Option<InstanceView>, StoreError> {
        Ok(self.with(|database, _| database.data().instance_of_submission(ordinal)))
    }

    async fn outputs(&self, id: InstanceId) -> Result<Vec<(u32, Output)>, StoreError> {
        Ok(self.with(|database, _| database.data().outputs_of(id)))
    }

    async fn occurrences(&self, task: Arc<str>, limit: usize) -> Result<Vec<Occurrence>, StoreError> {
        Ok(self.with(|database, _| database.data().occurrences_of(&task, limit)))
    }

    async fn occurrences_around(&self, task: Arc<str>, from: Timestamp, until: Timestamp) -> Result<Vec<Occurrence>, StoreError> {
        let mut found = self.with(|database, _| database.data().occurrences_of(&task, usize::MAX));
        found.retain(|occurrence| occurrence.first < until);
        found.truncate(OCCURRENCES_LOOKED_AT);
        found.retain(|occurrence| occurrence.last >= from);
        Ok(found)
    }

    async fn counts(&self) -> Result<Vec<(State, u64)>, StoreError> {
        Ok(self.with(|database, _| database.data().counts()))
    }

    /// The model does not keep where a replica is.
    async fn replicas(&self) -> Result<Vec<ReplicaView>, StoreError> {
        let view = |(id, member): (&ReplicaId, &Member)| ReplicaView {
            id: id.clone(),
            address: None,
            since: member.since,
            expires_at: member.expires_at,
        };
        Ok(self.with(|database, _| database.data().members.iter().map(view).collect()))
    }

    async fn partition_views(&self) -> Result<Vec<PartitionView>, StoreError> {
        Ok(self.with(|database, _| database.data().partition_views()))
    }
}
