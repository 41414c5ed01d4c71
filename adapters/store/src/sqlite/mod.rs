//! The store on embedded SQLite: one file, one process.
//!
//! Everything that decides anything runs as one closure on the writer's thread, with cached prepared statements: a batch of a thousand
//! rows is one job, not a thousand hops over a channel. That is why this is `rusqlite`, which is synchronous, and not an asynchronous
//! driver, which hands every statement to a thread of its own and was measured ten times slower row by row.
//!
//! - **Durability.** A write-ahead log with `synchronous = FULL`: what was answered as committed survives a crash of the process and of
//!   the machine. The log is copied into the database by another thread (see the `threads` module).
//! - **One process.** A lock of the operating system's on `<path>.lock` is held while the store is open ([`StoreError::InUse`] for
//!   everyone else). It proves that whoever had leases before is dead, so [`SqliteStore::open`] ends them all: a new start takes over at
//!   once instead of waiting for their time to run out.
//! - **Reads.** History is read on connections of its own, an owner's reads on another. All see every commit that was answered
//!   before they were asked. A listing orders by fire time, see [`InstanceCursor`](punctual_driver::ports::InstanceCursor).
//! - **Time** is an argument. The store has no clock.
//! - **Documents** are opaque to it: it is handed a [`Decode`] when it is opened.
//!
//! What is absent: retries, timeouts, any knowledge of what a batch means. Those are the driver's and the core's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_core::backfill::{BackfillPlan, BackfillRow};
use punctual_core::batch::{Batch, CommitOutcome, Output, Renewal, Snapshot};
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId};
use punctual_core::inbox::{DelayedChange, NodeMark, Submission};
use punctual_core::instance::{Part, State};
use punctual_core::limits;
use punctual_core::occurrence::Occurrence;
use punctual_core::scheduler::Firings;
use punctual_core::time::{Millis, Timestamp};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{
    Actor, Applied, Applying, AuditFilter, AuditView, Beat, Catalog, ComingTask, DeadLetterFilter, Discarded, Edited, Fired, InboxPage,
    Inconsistency, InstanceAction, InstanceFilter, InstancePage, InstanceQuery, InstanceView, KeptAnswer, LeaseAnswer, PartitionView,
    PauseSet, PauseTarget, PauseView, ReplicaView, Rerunning, Reserved, Revision, Store, StoreError, Submitted, TaskDay, TaskDocument,
    TaskEdit, TaskPage, TaskQuery, TaskView, TriggerChanged, VersionView,
};
use rusqlite::{Connection, OpenFlags};

use crate::Decode;
use crate::guards::Guards;
use crate::set_aside::SetAside;
use crate::sqlite::error::Database;
use crate::sqlite::lock::ProcessLock;
use crate::sqlite::threads::Threads;

pub use self::logs::SqliteLogs;

mod accounts;
mod backfills;
mod catalog;
pub(crate) mod checkup;
mod commit;
mod editing;
mod error;
mod history;
mod leases;
mod lock;
mod logs;
mod owner;
mod people;
mod reading;
mod rows;
mod schema;
mod threads;

/// How long a statement waits for another program's transaction before it is given up as [`StoreError::Busy`].
const BUSY_TIMEOUT: Duration = Duration::from_millis(100);
/// Files up to this size are checked when they are opened; larger ones would take too long.
const CHECKED_BYTES_MAX: u64 = 32 << 20;
/// Connections that read history.
const HISTORY_CONNECTIONS: usize = 2;
/// Prepared statements that a connection keeps.
const STATEMENTS_MAX: usize = 128;

/// How to open the store.
#[derive(Clone)]
pub struct Options {
    /// The file; it is made where it is not there.
    pub path: PathBuf,
    /// How many partitions a new database is laid out for, 1 to [`PARTITIONS_MAX`](limits::PARTITIONS_MAX). One that exists keeps its own
    /// number.
    pub partitions: u16,
    /// Makes definitions of documents.
    pub decode: Decode,
    guards: Guards,
    pages_max: Option<u32>,
}

impl Options {
    /// This file, with the usual number of partitions where it is new.
    pub fn new(path: impl Into<PathBuf>, decode: Decode) -> Self {
        Options { path: path.into(), partitions: limits::PARTITIONS_DEFAULT, decode, guards: Guards::ALL, pages_max: None }
    }

    /// Leaves guards out, to show that a test notices.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// Makes the database full at so many pages.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn pages_max(mut self, pages: u32) -> Self {
        self.pages_max = Some(pages);
        self
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("path", &self.path).field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

/// The store on one SQLite file. Dropping it finishes the jobs that were handed over and gives the file up.
pub struct SqliteStore {
    database: Database,
    partitions: u16,
    guards: Guards,
    decode: Decode,
    set_aside: Arc<Mutex<SetAside>>,
    applying: Arc<tokio::sync::Mutex<()>>,
    // Threads end in this order, and the lock is given up after them all.
    owner: Threads,
    history: Threads,
    checkups: Threads,
    writer: Threads,
    _lock: ProcessLock,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("database", &self.database).field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Checks a file that is only read, beside the process that has it or without one: its schema, the newest one, and what contradicts what.
    /// A file of another schema than the newest is not looked at.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn checkup(path: &std::path::Path, now: Timestamp) -> Result<(u32, u32, Vec<Inconsistency>), StoreError> {
        let (schema, found) = checkup::of_file(path, now, schema::NEWEST)?;
        Ok((schema, schema::NEWEST, found))
    }

    /// Opens the file, makes it where it is not there, brings it to the newest schema, and ends all leases: the lock shows that whoever had
    /// them is dead. Blocks for as long as that takes.
    pub fn open(mut options: Options) -> Result<Self, StoreError> {
        let database = Database::new(&options.path);
        // A file, whatever it is called: SQLite takes some relative names, such as `:memory:`, for something else.
        options.path = std::path::absolute(&options.path).map_err(|error| database.io(&error))?;
        if !(1..=limits::PARTITIONS_MAX).contains(&options.partitions) {
            return Err(database.other(&format!("{} partitions are not between 1 and {}", options.partitions, limits::PARTITIONS_MAX)));
        }
        let lock = ProcessLock::take(&database, &options.path)?;
        let mut writer = open_writer(&database, &options)?;
        let partitions = schema::prepare(&database, &mut writer, options.partitions)?;
        #[cfg(feature = "conformance")]
        if !options.guards.unique_firing {
            writer.execute_batch("DROP INDEX instances_firing").map_err(|error| database.error(error))?;
        }
        if let Some(pages) = options.pages_max {
            let full = writer.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
            full.map_err(|error| database.error(error))?;
        }
        let connection = |flags| open_connection(&options, flags).map_err(|error| database.error(error));
        let copier = connection(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let owner = vec![connection(OpenFlags::SQLITE_OPEN_READ_ONLY)?];
        let history = (0..HISTORY_CONNECTIONS).map(|_| connection(OpenFlags::SQLITE_OPEN_READ_ONLY)).collect::<Result<_, _>>()?;
        let checkups = vec![connection(OpenFlags::SQLITE_OPEN_READ_ONLY)?];
        let started = |threads: std::io::Result<Threads>| threads.map_err(|error| database.other(&error.to_string()));
        Ok(SqliteStore {
            owner: started(Threads::start("store-owner", owner))?,
            history: started(Threads::start("store-history", history))?,
            checkups: started(Threads::start("store-checkup", checkups))?,
            writer: started(Threads::start_writer(writer, copier))?,
            database,
            partitions,
            guards: options.guards,
            decode: options.decode,
            set_aside: Arc::default(),
            applying: Arc::default(),
            _lock: lock,
        })
    }

    /// Changes how many pages make the database full.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub async fn set_pages_max(&self, pages: u32) -> Result<(), StoreError> {
        self.write(move |connection| connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))).await
    }

    async fn on<T: Send + 'static>(
        &self,
        threads: &Threads,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match threads.call(job).await {
            Ok(answer) => answer.map_err(|error| self.database.error(error)),
            Err(threads::JobLost) => Err(self.database.other("the job was lost: see the log for a panic")),
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.on(&self.writer, job).await
    }

    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.on(&self.history, job).await
    }

    async fn read_as_owner<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection, &Decode, &mut SetAside) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (decode, set_aside) = (Arc::clone(&self.decode), Arc::clone(&self.set_aside));
        self.on(&self.owner, move |connection| job(connection, &decode, &mut set_aside.lock().unwrap_or_else(PoisonError::into_inner)))
            .await
    }
}

/// Pages that a connection keeps in memory, in KiB. What is written lies together, so a few are enough.
const CACHE_KIB: i64 = 8_192;

fn open_connection(options: &Options, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(&options.path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

fn open_writer(database: &Database, options: &Options) -> Result<Connection, StoreError> {
    let error = |error| database.error(error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = open_connection(options, flags).map_err(error)?;
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(error)? {
        return Err(StoreError::ReadOnly { database: database.name(), reason: "the file is read-only".to_owned() });
    }
    let bytes = std::fs::metadata(&options.path).map_err(|error| database.io(&error))?.len();
    if bytes <= CHECKED_BYTES_MAX {
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(error)?;
        if verdict != "ok" {
            return Err(database.corrupt(&verdict));
        }
    }
    schema::check(database, &connection)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(error)?;
    if mode != "wal" {
        return Err(database.other(&format!("the file system allows no write-ahead log (journal mode {mode})")));
    }
    Ok(connection)
}

impl Store for SqliteStore {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    async fn beat(&self, replica: ReplicaId, ttl: Millis, now: Timestamp) -> Result<Beat, StoreError> {
        let members = self.write(move |connection| leases::beat(connection, &replica, ttl, now)).await?;
        Ok(Beat { members, now: None })
    }

    async fn acquire(
        &self,
        replica: ReplicaId,
        partitions: Vec<PartitionId>,
        most: usize,
        ttl: Millis,
        now: Timestamp,
    ) -> Result<Vec<LeaseAnswer>, StoreError> {
        self.write(move |connection| leases::acquire(connection, &replica, &partitions, most, ttl, now)).await
    }

    async fn renew(&self, replica: ReplicaId, leases: Vec<Renewal>, ttl: Millis, now: Timestamp) -> Result<Vec<PartitionId>, StoreError> {
        self.write(move |connection| leases::renew(connection, &replica, &leases, ttl, now)).await
    }

    async fn release(&self, replica: ReplicaId, leases: Vec<(PartitionId, Epoch)>, leaves: bool) -> Result<(), StoreError> {
        self.write(move |connection| leases::release(connection, &replica, &leases, leaves)).await
    }

    async fn snapshot(&self, partition: PartitionId) -> Result<Snapshot, StoreError> {
        self.read_as_owner(move |connection, decode, set_aside| owner::snapshot(connection, partition, decode, set_aside)).await
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<CommitOutcome, StoreError> {
        let (partitions, guards) = (self.partitions, self.guards);
        match self.writer.call(move |connection| commit::commit(connection, partitions, guards, &batch)).await {
            Ok(answer) => answer.map_err(|error| self.database.error(error)),
            Err(threads::JobLost) => Ok(CommitOutcome::Unknown { reason: "the job was lost: see the log for a panic".into() }),
        }
    }

    async fn read_inbox(&self, partitions: Vec<PartitionId>, after: InboxId, limit: usize) -> Result<InboxPage, StoreError> {
        self.read_as_owner(move |connection, decode, set_aside| owner::read_inbox(connection, &partitions, after, limit, decode, set_aside))
            .await
    }

    async fn output(&self, instance: InstanceId, attempt: u32) -> Result<Option<Output>, StoreError> {
        self.read(move |connection| owner::output(connection, instance, attempt)).await
    }

    async fn results(&self, of: Firings, from: Part, until: Part, limit: usize) -> Result<Vec<Option<Arc<str>>>, StoreError> {
        self.read(move |connection| owner::results(connection, of, from, until, limit)).await
    }
}

impl Catalog for SqliteStore {
    async fn apply(
        &self,
        source: Arc<str>,
        by: Actor,
        documents: Vec<TaskDocument>,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<Applied, StoreError> {
        let how = Applying { remove: true, take_over: true, dry_run, expected: None };
        Ok(self.apply_to(source, how, by, documents, now).await?.unwrap_or_default())
    }

    async fn apply_to(
        &self,
        source: Arc<str>,
        how: Applying,
        by: Actor,
        documents: Vec<TaskDocument>,
        now: Timestamp,
    ) -> Result<Result<Applied, Revision>, StoreError> {
        // The turn goes with the writing job: it ends when that has, even if nobody awaits it any longer.
        let turn = Arc::clone(&self.applying).lock_owned().await;
        let compared_source = Arc::clone(&source);
        let plan = self.read(move |connection| catalog::compare(connection, &compared_source, &documents, &how)).await?;
        if how.expected.is_some_and(|expected| expected != plan.revision) {
            return Ok(Err(plan.revision));
        }
        if how.dry_run || plan.is_empty() {
            return Ok(Ok(plan.into_applied()));
        }
        let partitions = self.partitions;
        self.write(move |connection| {
            let _turn = turn;
            catalog::write(connection, partitions, &source, &by, &plan, now)?;
            Ok(Ok(plan.into_applied()))
        })
        .await
    }

    async fn revision(&self, source: Arc<str>) -> Result<(Revision, u64), StoreError> {
        self.read(move |connection| editing::revision(connection, &source)).await
    }

    async fn edit(&self, edit: TaskEdit, by: Actor, dry_run: bool, now: Timestamp) -> Result<Edited, StoreError> {
        let turn = Arc::clone(&self.applying).lock_owned().await;
        let compared = edit.clone();
        let plan = match self.read(move |connection| editing::compare(connection, &compared)).await? {
            Ok(plan) => plan,
            Err(refused) => return Ok(refused),
        };
        if dry_run || plan.is_empty() {
            return Ok(plan.into_edited());
        }
        let partitions = self.partitions;
        self.write(move |connection| {
            let _turn = turn;
            catalog::write(connection, partitions, &edit.source, &by, &plan, now)?;
            Ok(plan.into_edited())
        })
        .await
    }

    async fn reserve_answer(&self, key: Arc<str>, digest: [u8; 32], now: Timestamp) -> Result<Reserved, StoreError> {
        self.write(move |connection| editing::reserve(connection, &key, &digest, now)).await
    }

    async fn keep_answer(&self, key: Arc<str>, digest: [u8; 32], answer: Option<KeptAnswer>) -> Result<(), StoreError> {
        self.write(move |connection| editing::keep(connection, &key, &digest, answer.as_ref())).await
    }

    async fn trigger(
        &self,
        task: Arc<str>,
        by: Actor,
        key: Option<Arc<str>>,
        submissions: Vec<Submission>,
        now: Timestamp,
    ) -> Result<Submitted, StoreError> {
        if submissions.is_empty() || submissions.len() > limits::SUBMISSIONS_MAX {
            let count = submissions.len();
            return Err(self.database.other(&format!("{count} submissions are not between 1 and {}", limits::SUBMISSIONS_MAX)));
        }
        self.write(move |connection| catalog::trigger(connection, &task, &by, key.as_deref(), &submissions, now)).await
    }

    async fn act(&self, instance: InstanceId, action: InstanceAction, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        self.write(move |connection| people::act(connection, instance, action, &by, now)).await
    }

    async fn rerun(&self, instance: InstanceId, by: Actor, which: Rerunning, now: Timestamp) -> Result<Submitted, StoreError> {
        self.write(move |connection| catalog::rerun(connection, instance, &by, which, now)).await
    }

    async fn set_pause(&self, target: PauseTarget, is_paused: bool, by: Actor, now: Timestamp) -> Result<PauseSet, StoreError> {
        let partitions = self.partitions;
        self.write(move |connection| people::set_pause(connection, partitions, &target, is_paused, &by, now)).await
    }

    async fn pauses(&self) -> Result<Vec<PauseView>, StoreError> {
        self.read(|connection| people::all_pauses(connection)).await
    }

    async fn change_trigger(
        &self,
        task: Arc<str>,
        key: Arc<str>,
        change: DelayedChange,
        by: Actor,
        now: Timestamp,
    ) -> Result<TriggerChanged, StoreError> {
        self.write(move |connection| people::change_trigger(connection, &task, &key, change, &by, now)).await
    }

    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<InstanceView>, StoreError> {
        self.read(move |connection| people::dead_letters(connection, &filter)).await
    }

    async fn discard(&self, instance: InstanceId, by: Actor, now: Timestamp) -> Result<Discarded, StoreError> {
        self.write(move |connection| people::discard(connection, instance, &by, now)).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditView>, StoreError> {
        self.read(move |connection| people::audit(connection, &filter)).await
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
        self.write(move |connection| catalog::mark_node(connection, instance, (node, mark), &subject, &by, now)).await
    }

    async fn nodes(&self, run: InstanceId) -> Result<Vec<InstanceView>, StoreError> {
        self.read(move |connection| history::nodes(connection, run)).await
    }

    async fn fired(&self, task: Arc<str>, from: Timestamp, to: Timestamp) -> Result<Option<Fired>, StoreError> {
        self.read(move |connection| backfills::fired(connection, &task, from, to)).await
    }

    async fn backfill(&self, plan: BackfillPlan, after: Option<InboxId>, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        self.write(move |connection| backfills::ask(connection, &plan, after, &by, now)).await
    }

    async fn cancel_backfill(&self, backfill: InboxId, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        self.write(move |connection| backfills::cancel(connection, backfill, &by, now)).await
    }

    async fn backfills(&self, task: Option<TaskId>, limit: usize) -> Result<Vec<BackfillRow>, StoreError> {
        self.read(move |connection| backfills::list(connection, task, limit)).await
    }

    async fn tasks(&self, after: Option<Arc<str>>, limit: usize) -> Result<Vec<TaskView>, StoreError> {
        self.read(move |connection| history::tasks(connection, after.as_deref(), limit)).await
    }

    async fn task_now(&self, name: Arc<str>) -> Result<Option<TaskView>, StoreError> {
        self.read(move |connection| history::task_view(connection, &name)).await
    }

    async fn task(&self, name: Arc<str>) -> Result<Option<(TaskView, Vec<VersionView>)>, StoreError> {
        self.read(move |connection| history::task(connection, &name)).await
    }

    async fn name_of(&self, task: TaskId) -> Result<Option<Arc<str>>, StoreError> {
        self.read(move |connection| history::name_of(connection, task)).await
    }

    async fn instances(&self, filter: InstanceFilter) -> Result<Vec<InstanceView>, StoreError> {
        self.read(move |connection| history::instances(connection, &filter)).await
    }

    async fn instance_page(&self, query: InstanceQuery) -> Result<InstancePage, StoreError> {
        self.read(move |connection| reading::instance_page(connection, &query)).await
    }

    async fn task_page(&self, query: TaskQuery) -> Result<TaskPage, StoreError> {
        self.read(move |connection| reading::task_page(connection, &query)).await
    }

    async fn coming(&self, until: Timestamp, limit: usize) -> Result<Vec<ComingTask>, StoreError> {
        self.read(move |connection| reading::coming(connection, until, limit)).await
    }

    async fn task_days(&self, task: TaskId, from: i64) -> Result<Vec<TaskDay>, StoreError> {
        self.read(move |connection| reading::task_days(connection, task, from)).await
    }

    async fn instance(&self, id: InstanceId) -> Result<Option<InstanceView>, StoreError> {
        self.read(move |connection| history::instance(connection, id)).await
    }

    async fn instance_of_submission(&self, ordinal: u64) -> Result<Option<InstanceView>, StoreError> {
        self.read(move |connection| history::instance_of_submission(connection, ordinal)).await
    }

    async fn outputs(&self, id: InstanceId) -> Result<Vec<(u32, Output)>, StoreError> {
        self.read(move |connection| history::outputs(connection, id)).await
    }

    async fn occurrences(&self, task: Arc<str>, limit: usize) -> Result<Vec<Occurrence>, StoreError> {
        self.read(move |connection| history::occurrences(connection, &task, limit)).await
    }

    async fn occurrences_around(&self, task: Arc<str>, from: Timestamp, until: Timestamp) -> Result<Vec<Occurrence>, StoreError> {
        self.read(move |connection| history::occurrences_around(connection, &task, from, until)).await
    }

    async fn inconsistencies(&self, now: Timestamp, thorough: bool) -> Result<Vec<Inconsistency>, StoreError> {
        // On a thread of its own: it may take minutes, also for nobody, and sessions and bearers are looked up on those of history.
        self.on(&self.checkups, move |connection| checkup::inconsistencies(connection, now, thorough)).await
    }

    async fn counts(&self) -> Result<Vec<(State, u64)>, StoreError> {
        self.read(|connection| history::counts(connection)).await
    }

    async fn replicas(&self) -> Result<Vec<ReplicaView>, StoreError> {
        self.read(|connection| history::replicas(connection)).await
    }

    async fn partition_views(&self) -> Result<Vec<PartitionView>, StoreError> {
        self.read(|connection| history::partition_views(connection)).await
    }
}
