//! The ports: what the loops need of the world.

use std::future::Future;
use std::sync::Arc;

use punctual_core::backfill::{BackfillPlan, BackfillRow};
use punctual_core::batch::{Batch, CommitOutcome, Output, Renewal, Snapshot};
use punctual_core::chains::ChainProblem;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::{DelayedChange, InboxEntry, NodeMark, RerunFrom, Submission};
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::occurrence::Occurrence;
use punctual_core::protocol::{Assignment, End};
use punctual_core::scheduler::{Alert, Firings};
use punctual_core::time::{Millis, Now, Timestamp};
use punctual_core::workflow::NodeIndex;
use tokio::sync::watch;

pub use crate::checkup::{Check, Inconsistency};
pub use crate::editing::{Applying, Edited, Expected, KeptAnswer, Reserved, Revision, Standing, TaskEdit};
pub use crate::people::{
    Actor, AuditAction, AuditFilter, AuditView, DeadLetterFilter, Discarded, InstanceAction, PauseSet, PauseTarget, PauseView,
    TriggerChanged,
};
pub use crate::reading::{ComingTask, InstancePage, InstanceQuery, TaskDay, TaskPage, TaskQuery};

/// Reads both clocks. The wall clock is the store's.
pub trait Clock: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Now;
}

/// What went wrong with the store. Each kind has a code that docs/errors.md explains.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the database.
    #[error("PUN-201: the database {database} is in use by another process{}. Stop that one first, or name another file with --db", holder.as_ref().map(|who| format!(" ({who})")).unwrap_or_default())]
    InUse {
        /// Where it is.
        database: String,
        /// Who has it, where known.
        holder: Option<String>,
    },
    /// The database can't be written.
    #[error(
        "PUN-202: the database {database} can't be written: {reason}. Make the file and its folder writable for this user, or name another file with --db"
    )]
    ReadOnly {
        /// Where it is.
        database: String,
        /// What the system said.
        reason: String,
    },
    /// No room is left. Nothing of the transaction was written.
    #[error("PUN-203: no room is left for the database {database}: {reason}. Free some space; work goes on by itself then")]
    Full {
        /// Where it is.
        database: String,
        /// What the system said.
        reason: String,
    },
    /// The file is not a database, or a damaged one.
    #[error(
        "PUN-204: {database} is not a Punctual database, or is damaged: {reason}. Restore it from a backup, or name another file with --db"
    )]
    Corrupt {
        /// Where it is.
        database: String,
        /// What the system said.
        reason: String,
    },
    /// The schema is newer than this program.
    #[error(
        "PUN-205: the database {database} was written by a newer Punctual (schema {found}, this one knows {known}). Use that version or a newer one"
    )]
    NewerSchema {
        /// Where it is.
        database: String,
        /// The schema's version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// Locked for now: the same call may succeed later. Nothing of the transaction was written.
    #[error(
        "PUN-206: the database {database} is locked by another program: {reason}. It is tried again; end that program's transaction if this goes on"
    )]
    Busy {
        /// Where it is.
        database: String,
        /// What the system said.
        reason: String,
    },
    /// The database server does not answer. Nothing was written by the call that says so.
    #[error("PUN-209: the database {database} can't be reached: {reason}. Check that the server runs and that host and port are right")]
    Unreachable {
        /// Where it is.
        database: String,
        /// What the system said.
        reason: String,
    },
    /// The database server knows neither user nor password, or does not let the user do what is needed.
    #[error("PUN-210: the database {database} refuses this user: {reason}. Check user and password, and what the user may do")]
    Denied {
        /// Where it is.
        database: String,
        /// What the server said.
        reason: String,
    },
    /// The database server is too old.
    #[error("PUN-211: the database {database} is too old: {found}. Punctual needs MySQL 8.0 or MariaDB 10.6, or a newer one")]
    TooOld {
        /// Where it is.
        database: String,
        /// Its version, in its own words.
        found: String,
    },
    /// The database server has no database of this name.
    #[error("PUN-212: there is no database {database}: {reason}. Make it with CREATE DATABASE, or name another one")]
    NoDatabase {
        /// Where it would be.
        database: String,
        /// What the server said.
        reason: String,
    },
    /// The database server takes no writes.
    #[error(
        "PUN-213: the database {database} takes no writes: {reason}. Name the primary; a server that is read-only for a while only is used again afterwards"
    )]
    ReadOnlyServer {
        /// Where it is.
        database: String,
        /// What the server said.
        reason: String,
    },
    /// The connection ended before the database server said whether it was written: it may be there or not.
    #[error(
        "PUN-214: the database {database} has not said whether it was written: {reason}. Ask again, under the same idempotency key where there is one: what is there is not written twice"
    )]
    Unsure {
        /// Where it is.
        database: String,
        /// What went wrong.
        reason: String,
    },
    /// Something else.
    #[error("PUN-207: the database {database} failed: {reason}")]
    Other {
        /// Where it is.
        database: String,
        /// What the system said.
        reason: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later with nobody changing the program.
    pub fn is_passing(&self) -> bool {
        use StoreError::{Busy, Full, Other, Unreachable, Unsure};
        matches!(self, Full { .. } | Busy { .. } | Unreachable { .. } | Unsure { .. } | Other { .. })
    }
}

/// A partition's lease as it was when asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It is the caller's, under a new epoch.
    Granted {
        /// The partition.
        partition: PartitionId,
        /// Higher than any before.
        epoch: Epoch,
        /// Commits so far.
        commit_seq: u64,
        /// The last number of the sequence that was given out.
        sequence: u64,
    },
    /// Somebody else has it.
    Held {
        /// The partition.
        partition: PartitionId,
        /// Who.
        owner: ReplicaId,
        /// Until when, by the store's clock.
        expires_at: Timestamp,
    },
}

/// Who is alive, and what time it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The replicas that are alive, the caller included, in the order of their ids.
    pub members: Vec<ReplicaId>,
    /// What the store's clock said when it answered; `None`: the store goes by the caller's clock.
    pub now: Option<Timestamp>,
}

/// Wakes replicas up. A wake-up that is lost costs latency, never work: owners read their inboxes and ask for leases by themselves, only
/// later.
pub trait Signals: Send + Sync + 'static {
    /// Wakes all replicas up that this may concern. Who calls this doesn't wait for them.
    fn wake(&self, wake: Wake);
}

/// What replicas are woken up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something has come into an inbox.
    Inbox,
    /// Leases were given up, or a replica goes.
    Leases,
}

/// For a replica that has the store to itself: there is nobody to be woken up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Signals for Alone {
    fn wake(&self, _: Wake) {}
}

/// A page of the inbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxPage {
    /// The oldest entries, in order.
    pub entries: Vec<InboxEntry>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// The owner's side of the store. `now` is the store's clock; an implementation with a clock of its own uses that. No call names a partition
/// twice.
pub trait Store: Send + Sync + 'static {
    /// How many partitions the store was laid out for.
    fn partitions(&self) -> u16;

    /// How many commits it carries out at once: more than one where those that share no partition don't wait for each other.
    fn commits_at_once(&self) -> usize {
        1
    }

    /// Says that this replica is alive for another `ttl`, and tells who else is.
    fn beat(&self, replica: ReplicaId, ttl: Millis, now: Timestamp) -> impl Future<Output = Result<Beat, StoreError>> + Send;

    /// Takes the leases of these partitions that are free, have run out, or are `replica`'s own, each under a new epoch, until `most` were
    /// taken. One answer for each partition that it came to, in the order asked for.
    fn acquire(
        &self,
        replica: ReplicaId,
        partitions: Vec<PartitionId>,
        most: usize,
        ttl: Millis,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<LeaseAnswer>, StoreError>> + Send;

    /// Extends leases of this replica that still have this epoch, and no fewer commits than were confirmed; answers with those that it did
    /// not extend.
    fn renew(
        &self,
        replica: ReplicaId,
        leases: Vec<Renewal>,
        ttl: Millis,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<PartitionId>, StoreError>> + Send;

    /// Gives leases of this replica up that still have this epoch. A lease that was given up is nobody's: commits and renewals under it are
    /// refused. A replica that `leaves` is alive no longer.
    fn release(
        &self,
        replica: ReplicaId,
        leases: Vec<(PartitionId, Epoch)>,
        leaves: bool,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Reads what a new owner needs of a partition.
    fn snapshot(&self, partition: PartitionId) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Carries a batch out, all or nothing. What surely did nothing but may pass ([`StoreError::is_passing`]) is an `Err`: the same
    /// batch is then tried again. Everything else is an outcome.
    ///
    /// Refused, with nothing written: a lease whose epoch is not the partition's, that is not the batch's replica's, or that does not have
    /// exactly one commit less than the batch says; an instance, task or entry of a partition whose lease is
    /// not among the batch's; an update of an instance that has another state or fence, or is not there; an instance whose id, or whose
    /// fire time, task, ordinal and run, is there already; an inbox entry that is gone. An update changes what happens to an instance,
    /// never what it is: task, version, fire time, ordinal, run, origin, payload and key stay as inserted. An attempt's output that is
    /// written again takes the place of the first. What a batch says finds what the same batch has said before: inserts, then updates,
    /// then entries, each in their order.
    fn commit(&self, batch: Arc<Batch>) -> impl Future<Output = Result<CommitOutcome, StoreError>> + Send;

    /// Reads the oldest entries behind `after` of these partitions' inboxes, at most `limit`. They stay until a batch applies them.
    ///
    /// A task with a document that this program can't decode is set aside: its entries stay in the inbox for a program that can, and those
    /// of other tasks go on. [`snapshot`](Store::snapshot) leaves it out likewise. The entries that stay are those from the first definition
    /// on of which this program can decode neither its own version nor the task's newest; all of a task whose version in force it can't
    /// decode, up to an edit that it can; and cancellations of an instance whose version it can't decode. Whoever owns a partition anew
    /// takes a snapshot and reads the inbox from its beginning: a store may remember from there what is set aside.
    fn read_inbox(
        &self,
        partitions: Vec<PartitionId>,
        after: InboxId,
        limit: usize,
    ) -> impl Future<Output = Result<InboxPage, StoreError>> + Send;

    /// Reads what this attempt of an instance wrote, as far as batches have; `None`: nothing is there.
    fn output(&self, instance: InstanceId, attempt: u32) -> impl Future<Output = Result<Option<Output>, StoreError>> + Send;

    /// What the parts of a firing have answered from `from` on and before `until`, in their order, at most `limit` of them.
    fn results(
        &self,
        of: Firings,
        from: Part,
        until: Part,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Option<Arc<str>>>, StoreError>> + Send;
}

/// A task as its author wrote it.
#[derive(Clone, Debug)]
pub struct TaskDocument {
    /// What the core makes of it.
    pub definition: Arc<TaskDefinition>,
    /// The document in its one canonical form, as JSON: two documents are the same if these are.
    pub document: Arc<str>,
}

/// What an application of task documents did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Tasks that are new, by name.
    pub created: Vec<Arc<str>>,
    /// Tasks that have a new version.
    pub changed: Vec<Arc<str>>,
    /// Tasks that were as they are.
    pub unchanged: usize,
    /// Tasks that were removed.
    pub removed: Vec<Arc<str>>,
    /// Tasks of the source that are not among the documents, and were left.
    pub left: Vec<Arc<str>>,
    /// Tasks that another source had, and which. Where none may be taken over and there are any, nothing was written.
    pub taken: Vec<(Arc<str>, Arc<str>)>,
    /// Why nothing was done, where tasks would hang together as they must not.
    pub refused: Vec<ChainProblem>,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is in the inbox.
    Accepted {
        /// Its entry; with [`ordinal_of`](punctual_core::inbox::ordinal_of) it gives the instances' ordinals.
        entry: InboxId,
    },
    /// The same submission was accepted before, under the same key.
    Repeated {
        /// The entry it got then.
        entry: InboxId,
    },
    /// The key was used for another submission.
    KeyTaken,
    /// There is no such task.
    NoSuchTask,
    /// There is no such instance.
    NoSuchInstance,
    /// The instance has not ended.
    StillRuns,
    /// The instance is a part of this one, which can only be run again as a whole.
    IsPart {
        /// The whole.
        whole: InstanceId,
    },
    /// The instance has been run again since: its newest run counts.
    NotNewest,
    /// The instance is no run of a workflow, so it has no nodes.
    NoWorkflow,
    /// The run has no node of this number.
    NoSuchNode,
    /// The run has ended.
    HasEnded,
    /// A backfill of the task has not ended.
    BackfillRuns {
        /// Which.
        backfill: InboxId,
    },
    /// What the caller went by has changed: it is to look again.
    Outdated,
    /// There is no such backfill.
    NoSuchBackfill,
}

/// What runs again of a firing that was divided, or of the run of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rerunning {
    /// The shards that have not succeeded.
    #[default]
    Unsuccessful,
    /// All of it, divided anew.
    All,
    /// Of the run of a workflow only what follows from these nodes.
    From(RerunFrom),
}

/// What is known of a task's fire times in a range, as of one moment.
#[derive(Clone, Debug)]
pub struct Fired {
    /// The task.
    pub view: TaskView,
    /// Those that have an instance, made by the task's trigger or by a backfill; in order, each once.
    pub fired: Vec<Timestamp>,
    /// The newest backfill of the task.
    pub newest: Option<InboxId>,
}

/// A task and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// Its name.
    pub name: Arc<str>,
    /// Its newest version.
    pub version: Version,
    /// That version's document; of a removed task the last one it had.
    pub document: Arc<str>,
    /// Whether it was removed.
    pub removed: bool,
    /// The cursor, where the owner has one.
    pub next_fire: Option<Timestamp>,
    /// The source that has it.
    pub source: Arc<str>,
}

/// A version of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionView {
    /// Which one.
    pub version: Version,
    /// When it was made.
    pub at: Timestamp,
    /// Who made it.
    pub by: Arc<str>,
    /// Its document; `None`: with this version the task was removed.
    pub document: Option<Arc<str>>,
}

/// A place in the list of instances, which is ordered by fire time, then task, ordinal, run and part: what is unique for ever. Ids would not
/// do: their upper bits are the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceCursor {
    /// The fire time.
    pub fire_time: Timestamp,
    /// The task.
    pub task: TaskId,
    /// The ordinal.
    pub ordinal: u64,
    /// The run.
    pub run: u32,
    /// The part.
    pub part: Part,
}

impl InstanceCursor {
    /// The place of this instance.
    pub fn of(row: &InstanceRow) -> Self {
        InstanceCursor { fire_time: row.fire_time, task: row.task, ordinal: row.ordinal, run: row.run, part: row.part }
    }
}

/// Which instances to list, newest first: by fire time, where that is equal by task, ordinal and run.
#[derive(Clone, Debug, Default)]
pub struct InstanceFilter {
    /// Of this task only.
    pub task: Option<Arc<str>>,
    /// Whole firings only: no shards, no nodes of workflows.
    pub whole: bool,
    /// In this state only.
    pub state: Option<State>,
    /// With this idempotency key only.
    pub key: Option<Arc<str>>,
    /// Behind this place only: that of the last instance of the page before.
    pub before: Option<InstanceCursor>,
    /// At most this many.
    pub limit: usize,
}

/// An instance and what belongs to it.
#[derive(Clone, Debug)]
pub struct InstanceView {
    /// Its row.
    pub row: InstanceRow,
    /// Its task's name.
    pub task_name: Arc<str>,
}

/// A replica that has said that it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaView {
    /// Which one.
    pub id: ReplicaId,
    /// Where it can be reached, where it said so.
    pub address: Option<Arc<str>>,
    /// When it said so first, without a gap since.
    pub since: Timestamp,
    /// Until when it counts as alive, unless it says so again; by the store's clock.
    pub expires_at: Timestamp,
}

/// A partition and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Which one.
    pub partition: PartitionId,
    /// Who has its lease, also where that has run out; `None`: nobody.
    pub owner: Option<ReplicaId>,
    /// The epoch of the last lease.
    pub epoch: Epoch,
    /// Until when the lease holds, by the store's clock; of no meaning without an owner.
    pub expires_at: Timestamp,
    /// Commits so far.
    pub commit_seq: u64,
    /// Inbox entries that wait.
    pub inbox: u64,
    /// Instances that have not ended.
    pub live: u64,
}

/// So many occurrences are looked at for those around a time.
pub const OCCURRENCES_LOOKED_AT: usize = 1_000;

/// Everyone else's side of the store: they write to the inbox, in the same transaction as what the entry speaks of, and read.
pub trait Catalog: Send + Sync + 'static {
    /// Makes the tasks of `source` be these documents: new ones are made, changed ones get a new version, and those that `source` made
    /// before and that are not among them are removed. Does nothing where nothing differs. With `dry_run`, only says what it would do.
    ///
    /// A removal is a version too, and a task that comes back goes on counting under its old id. A task that another source made is taken
    /// over. Of two documents of one name the later one counts. Nothing is done where tasks would hang together as they must not
    /// ([`chains::problems`](punctual_core::chains::problems)): then [`Applied::refused`] says why.
    fn apply(
        &self,
        source: Arc<str>,
        by: Actor,
        documents: Vec<TaskDocument>,
        dry_run: bool,
        now: Timestamp,
    ) -> impl Future<Output = Result<Applied, StoreError>> + Send;

    /// [Applies](Catalog::apply) documents as far as it may go; answers with how the source is where that is not as the caller knows it.
    fn apply_to(
        &self,
        source: Arc<str>,
        how: Applying,
        by: Actor,
        documents: Vec<TaskDocument>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Result<Applied, Revision>, StoreError>> + Send;

    /// Which tasks a source has, and how many.
    fn revision(&self, source: Arc<str>) -> impl Future<Output = Result<(Revision, u64), StoreError>> + Send;

    /// Makes, changes or removes one task, in the source that the edit names; with `dry_run`, only says what that would do.
    fn edit(&self, edit: TaskEdit, by: Actor, dry_run: bool, now: Timestamp) -> impl Future<Output = Result<Edited, StoreError>> + Send;

    /// Remembers that a call is under way, unless the key is known: of several who ask, one is told that it is new. A call that has been
    /// under way for [`UNDER_WAY_MS`](crate::editing::UNDER_WAY_MS) counts as new: who began it has died. What is older than
    /// [`ANSWER_KEPT_MS`](crate::editing::ANSWER_KEPT_MS) is forgotten.
    fn reserve_answer(&self, key: Arc<str>, digest: [u8; 32], now: Timestamp) -> impl Future<Output = Result<Reserved, StoreError>> + Send;

    /// Keeps the answer to a call that was reserved; without one, the call counts as never made.
    fn keep_answer(
        &self,
        key: Arc<str>,
        digest: [u8; 32],
        answer: Option<KeptAnswer>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Fires a task by hand: 1 to [`SUBMISSIONS_MAX`](punctual_core::limits::SUBMISSIONS_MAX) submissions. A `key` makes the call
    /// repeatable: it is the same call if task and submissions are, whoever makes it.
    fn trigger(
        &self,
        task: Arc<str>,
        by: Actor,
        key: Option<Arc<str>>,
        submissions: Vec<Submission>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Submitted, StoreError>> + Send;

    /// Asks for something to be done with an instance.
    fn act(
        &self,
        instance: InstanceId,
        action: InstanceAction,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<Submitted, StoreError>> + Send;

    /// Asks for an instance to be cancelled.
    fn cancel(
        &self,
        instance: InstanceId,
        by: Actor,
        reason: Option<Arc<str>>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Submitted, StoreError>> + Send {
        self.act(instance, InstanceAction::Cancel, Actor { why: reason.or(by.why.clone()), ..by }, now)
    }

    /// Asks for an instance that has ended to run once more: the newest run of a whole firing. The new run is of the same task, fire time
    /// and ordinal, under the version that is in force then. However often, and by whomever, that is asked of one instance, it has one
    /// entry: later calls are answered with it.
    ///
    /// Of a firing that was divided, [`Rerunning::Unsuccessful`] means those shards only that have not succeeded, by the numbers and keys
    /// that they had; all of them where each has.
    fn rerun(
        &self,
        instance: InstanceId,
        by: Actor,
        which: Rerunning,
        now: Timestamp,
    ) -> impl Future<Output = Result<Submitted, StoreError>> + Send;

    /// Makes a pause, or lifts it. It is beside the tasks: it outlives their edits, and their removal.
    fn set_pause(
        &self,
        target: PauseTarget,
        is_paused: bool,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<PauseSet, StoreError>> + Send;

    /// All pauses: that of all tasks, then groups, then tasks, then workers, by name.
    fn pauses(&self) -> impl Future<Output = Result<Vec<PauseView>, StoreError>> + Send;

    /// Asks for the manual trigger of a task under this key to be cancelled or to come at another time, unless its time has come: the first
    /// one of several submissions.
    fn change_trigger(
        &self,
        task: Arc<str>,
        key: Arc<str>,
        change: DelayedChange,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<TriggerChanged, StoreError>> + Send;

    /// Dead letters that nobody has settled.
    fn dead_letters(&self, filter: DeadLetterFilter) -> impl Future<Output = Result<Vec<InstanceView>, StoreError>> + Send;

    /// Settles a dead letter without running it again.
    fn discard(&self, instance: InstanceId, by: Actor, now: Timestamp) -> impl Future<Output = Result<Discarded, StoreError>> + Send;

    /// What people have done.
    fn audit(&self, filter: AuditFilter) -> impl Future<Output = Result<Vec<AuditView>, StoreError>> + Send;

    /// Says what a node of a workflow's run has come to: one that waits, or that has failed. Whether it does is for the owner to say: where
    /// it does not, the call is of no effect. `subject`: what the audit says of it, in the words of whoever knows the node's name.
    fn mark_node(
        &self,
        instance: InstanceId,
        node: NodeIndex,
        mark: NodeMark,
        subject: Arc<str>,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<Submitted, StoreError>> + Send;

    /// The nodes of a workflow's run that have started or will not, by their part: shards of them are not among them.
    fn nodes(&self, run: InstanceId) -> impl Future<Output = Result<Vec<InstanceView>, StoreError>> + Send;

    /// What is known of a task's fire times from `from` on and before `to`.
    fn fired(&self, task: Arc<str>, from: Timestamp, to: Timestamp) -> impl Future<Output = Result<Option<Fired>, StoreError>> + Send;

    /// Asks for fire times to be made up for. `after`: the task's newest backfill by what the caller has read ([`Fired::newest`]). Where
    /// there is a newer one by now, or that one has not ended, nothing is written.
    fn backfill(
        &self,
        plan: BackfillPlan,
        after: Option<InboxId>,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<Submitted, StoreError>> + Send;

    /// Asks for the end of a backfill.
    fn cancel_backfill(&self, backfill: InboxId, by: Actor, now: Timestamp) -> impl Future<Output = Result<Submitted, StoreError>> + Send;

    /// Backfills that their owner has taken up, of one task or of all, newest first, at most `limit`.
    fn backfills(&self, task: Option<TaskId>, limit: usize) -> impl Future<Output = Result<Vec<BackfillRow>, StoreError>> + Send;

    /// All tasks that were not removed, by name; `after` is the last name of the page before.
    fn tasks(&self, after: Option<Arc<str>>, limit: usize) -> impl Future<Output = Result<Vec<TaskView>, StoreError>> + Send;

    /// One task as it is now, also a removed one.
    fn task_now(&self, name: Arc<str>) -> impl Future<Output = Result<Option<TaskView>, StoreError>> + Send;

    /// One task, also a removed one, with all its versions, newest first.
    fn task(&self, name: Arc<str>) -> impl Future<Output = Result<Option<(TaskView, Vec<VersionView>)>, StoreError>> + Send;

    /// The name of a task, also a removed one.
    fn name_of(&self, task: TaskId) -> impl Future<Output = Result<Option<Arc<str>>, StoreError>> + Send;

    /// Instances, newest first.
    fn instances(&self, filter: InstanceFilter) -> impl Future<Output = Result<Vec<InstanceView>, StoreError>> + Send;

    /// A page of instances by whatever may be asked of them.
    fn instance_page(&self, query: InstanceQuery) -> impl Future<Output = Result<InstancePage, StoreError>> + Send;

    /// A page of tasks, by name.
    fn task_page(&self, query: TaskQuery) -> impl Future<Output = Result<TaskPage, StoreError>> + Send;

    /// Tasks whose cursor comes before `until`, those that come first first, at most `limit`.
    fn coming(&self, until: Timestamp, limit: usize) -> impl Future<Output = Result<Vec<ComingTask>, StoreError>> + Send;

    /// How the whole firings of a task ended, a day each, the oldest first; the days from `from` on of those that are kept
    /// ([`TASK_DAYS`](crate::reading::TASK_DAYS)). Days without any are left out.
    fn task_days(&self, task: TaskId, from: i64) -> impl Future<Output = Result<Vec<TaskDay>, StoreError>> + Send;

    /// One instance.
    fn instance(&self, id: InstanceId) -> impl Future<Output = Result<Option<InstanceView>, StoreError>> + Send;

    /// The instance that a manual trigger became, where its owner has applied it.
    fn instance_of_submission(&self, ordinal: u64) -> impl Future<Output = Result<Option<InstanceView>, StoreError>> + Send;

    /// What the attempts of an instance wrote, by attempt.
    fn outputs(&self, id: InstanceId) -> impl Future<Output = Result<Vec<(u32, Output)>, StoreError>> + Send;

    /// The fire times of a task that were not fired, newest first, at most `limit`.
    fn occurrences(&self, task: Arc<str>, limit: usize) -> impl Future<Output = Result<Vec<Occurrence>, StoreError>> + Send;

    /// Those whose fire times lie around or in `from..until`, the newest first: at most [`OCCURRENCES_LOOKED_AT`] that begin before `until` are
    /// looked at.
    fn occurrences_around(
        &self,
        task: Arc<str>,
        from: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Result<Vec<Occurrence>, StoreError>> + Send;

    /// What in the store contradicts something else in it, as of one moment; with `thorough` also what takes a look at all that there is. A
    /// store that says nothing twice has nothing to compare.
    fn inconsistencies(&self, _now: Timestamp, _thorough: bool) -> impl Future<Output = Result<Vec<Inconsistency>, StoreError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// How many instances are in each state, terminal ones included; states without any may be left out.
    fn counts(&self) -> impl Future<Output = Result<Vec<(State, u64)>, StoreError>> + Send;

    /// The replicas on record, by id. One whose time is over may still be there.
    fn replicas(&self) -> impl Future<Output = Result<Vec<ReplicaView>, StoreError>> + Send;

    /// All partitions, in their order.
    fn partition_views(&self) -> impl Future<Output = Result<Vec<PartitionView>, StoreError>> + Send;
}

/// Is told what has happened; must not block.
pub trait Observer: Send + Sync + 'static {
    /// This batch is durable.
    fn committed(&self, _batch: &Arc<Batch>) {}

    /// The scheduler wants people to know.
    fn alerted(&self, _alert: &Alert) {}

    /// The store fails; it is tried again. Told once for each spell of failures.
    fn store_failed(&self, _error: &StoreError) {}

    /// The store works again.
    fn store_recovered(&self) {}
}

/// How urgently an attempt is asked to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Not at all.
    #[default]
    No,
    /// Please: the handler may clean up.
    Cancel,
    /// Now.
    Kill,
}

/// What a handler has to say at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How it ended. One that was stopped may say anything: the worker node knows that it stopped it.
    pub end: End,
    /// The exit code of a command or the status of an HTTP call.
    pub code: Option<i32>,
    /// In words.
    pub detail: Option<Arc<str>>,
    /// What it wrote.
    pub output: Output,
    /// What it answers, at most [`RESULT_BYTES_MAX`](punctual_core::limits::RESULT_BYTES_MAX) bytes.
    pub result: Option<Arc<str>>,
    /// The items that it lists, where it was to: each on a line of its own, as JSON.
    pub items: Option<Arc<str>>,
    /// How long the next attempt is to wait at least, where it met something that said so.
    pub retry_after: Option<Millis>,
}

/// Runs handlers.
pub trait Executor: Send + Sync + 'static {
    /// The handlers that it knows.
    fn handlers(&self) -> Vec<Arc<str>>;

    /// Runs one attempt to its end. `stop` says when it is to end early; dropping the future ends the attempt at once.
    fn run(&self, assignment: Arc<Assignment>, stop: watch::Receiver<Stop>) -> impl Future<Output = Ended> + Send + 'static;
}
