//! The store on MySQL 8.0 and MariaDB 10.6, or newer: as many replicas as share one database.
//!
//! - **One table for what is live and what has ended.** `instances` is clustered by fire time, task, ordinal and run, and partitioned by the
//!   month of the fire time: the key that makes a firing unique also against ended instances, and by which they are listed, is the table
//!   itself, and old months go whole. Which instances are live is in a small table of its own, `live`, which costs an insert and a delete a
//!   life.
//! - **The fenced commit** is in the `commit` module, leases in `leases`; a renewal never waits for a commit.
//! - **Time** is the database's, read in the statement that uses it. The callers' `now` is ignored.
//! - **Everything is read from and written to the primary.** A server that is read-only is refused, on each new connection.
//! - **What is promised** is what the server keeps: see [`MySqlStore::warnings`] for settings under which it may lose what it confirmed.
//! - **Documents** are opaque, as on SQLite.
//!
//! What is absent: retries, and any knowledge of what a batch means.

use std::str::FromStr;
use std::sync::{Arc, Mutex};

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
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection, Row};

use crate::Decode;
use crate::guards::Guards;
use crate::mysql::error::Database;
use crate::mysql::owner::Waiting;
use crate::mysql::session::{Connections, Isolation, Session};
use crate::plan::Plan;
use crate::set_aside::SetAside;

pub use self::logs::MySqlLogs;

mod accounts;
mod backfills;
mod catalog;
mod checkup;
mod commit;
mod editing;
mod error;
mod history;
mod kept;
mod leases;
mod logs;
mod months;
mod owner;
mod people;
mod reading;
#[cfg(feature = "recorder")]
pub mod recorder;
mod rows;
mod schema;
mod session;
mod sql;

/// Commits of a replica that are carried out at once. The server works on one with one core.
const COMMITS_AT_ONCE: usize = 2;
/// Connections that carry commits out; a lost one may take its time to end.
const COMMIT_CONNECTIONS: u32 = COMMITS_AT_ONCE as u32 + 1;
/// Connections of triggers, cancellations and documents, which take turns in any case.
const WRITE_CONNECTIONS: u32 = 4;
/// Connections of beats and leases.
const LEASE_CONNECTIONS: u32 = 2;
/// Connections that read.
const READ_CONNECTIONS: u32 = 4;
/// Connections that write lines of attempts, and change their table.
const LOG_WRITE_CONNECTIONS: u32 = 2;
/// Connections that read lines of attempts.
const LOG_READ_CONNECTIONS: u32 = 2;
/// What the time is in SQL, in milliseconds since 1970. Sessions are in UTC.
const NOW: &str = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";

/// How to open the store.
#[derive(Clone)]
pub struct MySqlOptions {
    /// Where the database is: `mysql://user:password@host:port/database`. Further settings behind `?`, such as `ssl-mode=VERIFY_IDENTITY`
    /// and `ssl-ca=`.
    pub url: String,
    /// How many partitions a new database is laid out for, 1 to [`PARTITIONS_MAX`](limits::PARTITIONS_MAX). One that exists keeps its own
    /// number.
    pub partitions: u16,
    /// Where this replica can be reached, for others to know; written with each beat.
    pub address: Option<String>,
    /// Makes definitions of documents.
    pub decode: Decode,
    guards: Guards,
    callers_clock: bool,
}

impl MySqlOptions {
    /// This database, with the usual number of partitions where it is new.
    pub fn new(url: impl Into<String>, decode: Decode) -> Self {
        let (partitions, guards) = (limits::PARTITIONS_DEFAULT, Guards::ALL);
        MySqlOptions { url: url.into(), partitions, address: None, decode, guards, callers_clock: false }
    }

    /// Leaves guards out, to show that a test notices.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// Goes by the callers' `now` instead of the database's clock.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn callers_clock(mut self) -> Self {
        self.callers_clock = true;
        self
    }
}

impl std::fmt::Debug for MySqlOptions {
    // Not the address: it has the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlOptions").field("partitions", &self.partitions).field("address", &self.address).finish_non_exhaustive()
    }
}

/// The store on MySQL or MariaDB.
pub struct MySqlStore {
    database: Database,
    partitions: u16,
    address: Option<Arc<str>>,
    guards: Guards,
    decode: Decode,
    callers_clock: bool,
    set_aside: Arc<Mutex<SetAside>>,
    commits: Connections,
    writes: Connections,
    leases: Connections,
    reads: Connections,
    logs: MySqlLogs,
}

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlStore").field("database", &self.database).field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

/// Reads an address. Its errors don't repeat it: it has the password.
fn parse(url: &str) -> Result<(Database, MySqlConnectOptions), StoreError> {
    let unreadable = |reason: &str| StoreError::Other { database: "address".to_owned(), reason: format!("it can't be read: {reason}") };
    if !url.starts_with("mysql://") && !url.starts_with("mariadb://") {
        return Err(unreadable("it does not begin with mysql://"));
    }
    let options = MySqlConnectOptions::from_str(url).map_err(|_| unreadable("it is not mysql://user:password@host:port/database"))?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(unreadable("it names no database"));
    }
    // Text is bytes here, and literals are written so that they mean the same in every mode.
    let options = options.timezone("+00:00".to_owned()).statement_cache_capacity(0);
    // A statement has whole batches in it, with payloads and keys: a slow one is nothing to log.
    let options = options.disable_statement_logging();
    Ok((Database::new(&options), options))
}

async fn migrated(database: &Database, options: &MySqlConnectOptions, partitions: u16) -> Result<u16, StoreError> {
    if !(1..=limits::PARTITIONS_MAX).contains(&partitions) {
        return Err(database.other(&format!("{partitions} partitions are not between 1 and {}", limits::PARTITIONS_MAX)));
    }
    let mut connection = session::connect(database, options).await?;
    let laid_out = schema::migrate(database, &mut connection, partitions).await;
    close(connection).await;
    laid_out
}

async fn close(connection: MySqlConnection) {
    // The server sees it go in any case.
    let _ = connection.close().await;
}

impl MySqlStore {
    /// Brings the database to the newest schema, and lays a new one out for `partitions`. Answers with the number of partitions that it has.
    /// Safe to be run by several at once.
    ///
    /// # Errors
    ///
    /// The address can't be read; the server is not there, too old, read-only or lets nobody in; a newer program wrote the schema.
    pub async fn migrate(url: &str, partitions: u16) -> Result<u16, StoreError> {
        let (database, options) = parse(url)?;
        migrated(&database, &options, partitions).await
    }

    /// Opens the database and brings it to the newest schema.
    ///
    /// # Errors
    ///
    /// As of [`MySqlStore::migrate`].
    pub async fn open(options: MySqlOptions) -> Result<Self, StoreError> {
        let (database, connect) = parse(&options.url)?;
        let partitions = migrated(&database, &connect, options.partitions).await?;
        let store = MySqlStore::with(options, &database, &connect, partitions);
        #[cfg(feature = "conformance")]
        if !store.guards.unique_firing {
            let mut session = store.writes.session().await?;
            let sql = "ALTER TABLE instances DROP PRIMARY KEY, ADD PRIMARY KEY (fire_time, task, ordinal, run, id)";
            let dropped = session.run(sql.to_owned()).await.map(drop);
            session.done(dropped)?;
        }
        store.make_months().await?;
        Ok(store)
    }

    /// Opens the database as it is, to look at it: its schema, the newest one, and the store if they are the same.
    ///
    /// # Errors
    ///
    /// As of [`MySqlStore::migrate`], but for the schema.
    pub async fn open_to_check(options: MySqlOptions) -> Result<(u32, u32, Option<Self>), StoreError> {
        let (database, connect) = parse(&options.url)?;
        let mut connection = session::connect(&database, &connect).await?;
        let read = async {
            let found = schema::found(&mut connection).await?;
            let partitions = if found == schema::NEWEST { schema::partitions_of(&mut connection).await? } else { 0 };
            Ok((found, partitions))
        };
        let read = read.await;
        close(connection).await;
        let (found, partitions) = read.map_err(|failure| database.error(failure))?;
        let store = (found == schema::NEWEST).then(|| MySqlStore::with(options, &database, &connect, partitions));
        Ok((found, schema::NEWEST, store))
    }

    fn with(options: MySqlOptions, database: &Database, connect: &MySqlConnectOptions, partitions: u16) -> Self {
        let connections = |most, isolation| Connections::new(database, connect, most, isolation);
        MySqlStore {
            partitions,
            address: options.address.map(Arc::from),
            guards: options.guards,
            decode: options.decode,
            callers_clock: options.callers_clock,
            set_aside: Arc::default(),
            commits: connections(COMMIT_CONNECTIONS, Isolation::ReadCommitted),
            writes: connections(WRITE_CONNECTIONS, Isolation::ReadCommitted),
            leases: connections(LEASE_CONNECTIONS, Isolation::ReadCommitted),
            reads: connections(READ_CONNECTIONS, Isolation::Snapshot),
            logs: MySqlLogs {
                writes: connections(LOG_WRITE_CONNECTIONS, Isolation::ReadCommitted),
                reads: connections(LOG_READ_CONNECTIONS, Isolation::Snapshot),
                callers_clock: options.callers_clock,
            },
            database: database.clone(),
        }
    }

    /// What the time is, by the database's clock, which counts.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub async fn time(&self) -> Result<Timestamp, StoreError> {
        let mut session = self.reads.session().await?;
        let read = months::database_ms(&mut session, NOW).await;
        session.done(read.map(Timestamp))
    }

    /// Makes the parts of the history for the coming months that are not there yet; answers with how many it made. [`MySqlStore::open`] does so;
    /// a replica that runs for months does so daily.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub async fn make_months(&self) -> Result<usize, StoreError> {
        months::make(&self.writes, NOW).await
    }

    /// Drops the history of months that ended `keep` whole months ago or more, and answers with their names, such as `m202611`. The last
    /// firing of each task stays. It stops at a month that has an instance which has not ended, or a dead letter that nobody has settled.
    ///
    /// # Errors
    ///
    /// What the server says. Months that were dropped before stay so.
    pub async fn drop_months(&self, keep: u32) -> Result<Vec<String>, StoreError> {
        months::drop_old(&self.writes, keep, NOW).await
    }

    /// The lines of attempts, over connections of their own. Before the first of them, [`keep`](punctual_driver::logs::LogStore::keep) makes
    /// room for their days.
    pub fn logs(&self) -> MySqlLogs {
        self.logs.clone()
    }

    /// In which ways this server's settings promise less than they could: what it confirmed may be lost in a crash.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub async fn warnings(&self) -> Result<Vec<String>, StoreError> {
        let mut session = self.reads.session().await?;
        let read = warnings(&mut session).await;
        session.done(read)
    }

    /// Ends all connections, once what they are in the middle of is over.
    pub async fn close(&self) {
        tokio::join!(self.commits.close(), self.writes.close(), self.leases.close(), self.reads.close(), self.logs.close());
    }

    /// What the time is, in SQL.
    fn now(&self, callers: Timestamp) -> String {
        if self.callers_clock { callers.0.to_string() } else { NOW.to_owned() }
    }
}

async fn warnings(session: &mut Session) -> Result<Vec<String>, error::Failure> {
    let mut warnings = Vec::new();
    let sql =
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite')";
    let mut settings = std::collections::BTreeMap::new();
    for row in &session.rows(sql.to_owned()).await? {
        settings.insert(row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
    }
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| found == value);
    if !is("innodb_flush_log_at_trx_commit", "1") {
        warnings.push(
            "innodb_flush_log_at_trx_commit is not 1: a crash of the server or its machine loses about a second of commits".to_owned(),
        );
    }
    if is("log_bin", "ON") && !is("sync_binlog", "1") {
        warnings.push("sync_binlog is not 1: after a crash the server's replicas may have more or less than it has".to_owned());
    }
    if is("innodb_doublewrite", "OFF") {
        warnings.push("innodb_doublewrite is OFF: a loss of power may damage the database".to_owned());
    }
    Ok(warnings)
}

impl Store for MySqlStore {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn commits_at_once(&self) -> usize {
        COMMITS_AT_ONCE
    }

    async fn beat(&self, replica: ReplicaId, ttl: Millis, now: Timestamp) -> Result<Beat, StoreError> {
        let mut session = self.leases.session().await?;
        let beat = leases::beat(&mut session, &replica, self.address.as_deref(), ttl, &self.now(now)).await;
        session.done(beat)
    }

    async fn acquire(
        &self,
        replica: ReplicaId,
        partitions: Vec<PartitionId>,
        most: usize,
        ttl: Millis,
        now: Timestamp,
    ) -> Result<Vec<LeaseAnswer>, StoreError> {
        let mut session = self.leases.begin().await?;
        let answers = leases::acquire(&mut session, &replica, &partitions, most, ttl, &self.now(now)).await;
        session.end(answers).await
    }

    async fn renew(&self, replica: ReplicaId, leases: Vec<Renewal>, ttl: Millis, now: Timestamp) -> Result<Vec<PartitionId>, StoreError> {
        let mut session = self.leases.session().await?;
        let lost = leases::renew(&mut session, &replica, &leases, ttl, &self.now(now)).await;
        session.done(lost)
    }

    async fn release(&self, replica: ReplicaId, leases: Vec<(PartitionId, Epoch)>, leaves: bool) -> Result<(), StoreError> {
        let mut session = self.leases.begin().await?;
        let released = leases::release(&mut session, &replica, &leases, leaves).await;
        session.end(released).await
    }

    async fn snapshot(&self, partition: PartitionId) -> Result<Snapshot, StoreError> {
        let mut session = self.reads.begin_snapshot().await?;
        let snapshot = owner::snapshot(&mut session, partition, &self.decode, &self.set_aside).await;
        session.leave(snapshot).await
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<CommitOutcome, StoreError> {
        commit::commit(&self.commits, self.partitions, self.guards, &batch).await
    }

    async fn read_inbox(&self, partitions: Vec<PartitionId>, after: InboxId, limit: usize) -> Result<InboxPage, StoreError> {
        let mut session = self.reads.session().await?;
        match owner::read_waiting(&mut session, partitions, after, limit, &self.decode, &self.set_aside).await {
            Ok(Waiting::In(inboxes)) => {
                session.give_back();
                let mut session = self.reads.begin_snapshot().await?;
                let page = owner::read_inbox(&mut session, &inboxes, after, limit, &self.decode, &self.set_aside).await;
                session.leave(page).await
            }
            Ok(Waiting::Read(page)) => session.done(Ok(page)),
            Err(failure) => session.done(Err(failure)),
        }
    }

    async fn output(&self, instance: InstanceId, attempt: u32) -> Result<Option<Output>, StoreError> {
        let mut session = self.reads.session().await?;
        let output = owner::output(&mut session, instance, attempt).await;
        session.done(output)
    }

    async fn results(&self, of: Firings, from: Part, until: Part, limit: usize) -> Result<Vec<Option<Arc<str>>>, StoreError> {
        let mut session = self.reads.session().await?;
        let results = owner::results(&mut session, of, from, until, limit).await;
        session.done(results)
    }
}

/// Whether it has ended its transaction.
fn is_written(submitted: &Submitted) -> bool {
    matches!(submitted, Submitted::Accepted { .. })
}

impl Catalog for MySqlStore {
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
        let mut session = self.writes.begin().await?;
        let plan = match catalog::compare(&mut session, &source, &documents, &how).await {
            Ok(plan) if how.expected.is_some_and(|expected| expected != plan.revision) => {
                return session.leave(Ok(Err(plan.revision))).await;
            }
            Ok(plan) if !how.dry_run && !plan.is_empty() => plan,
            compared => return session.leave(compared.map(Plan::into_applied).map(Ok)).await,
        };
        let written = catalog::write(&mut session, self.partitions, &source, &by, &plan, &self.now(now)).await;
        session.end(written.map(|()| Ok(plan.into_applied()))).await
    }

    async fn revision(&self, source: Arc<str>) -> Result<(Revision, u64), StoreError> {
        let mut session = self.reads.session().await?;
        let revision = editing::revision(&mut session, &source).await;
        session.done(revision)
    }

    async fn edit(&self, edit: TaskEdit, by: Actor, dry_run: bool, now: Timestamp) -> Result<Edited, StoreError> {
        let mut session = self.writes.begin().await?;
        let plan = match editing::compare(&mut session, &edit).await {
            Ok(Ok(plan)) if !dry_run && !plan.is_empty() => plan,
            compared => return session.leave(compared.map(|compared| compared.map_or_else(|refused| refused, Plan::into_edited))).await,
        };
        let written = catalog::write(&mut session, self.partitions, &edit.source, &by, &plan, &self.now(now)).await;
        session.end(written.map(|()| plan.into_edited())).await
    }

    async fn reserve_answer(&self, key: Arc<str>, digest: [u8; 32], now: Timestamp) -> Result<Reserved, StoreError> {
        let mut session = self.writes.begin().await?;
        let reserved = editing::reserve(&mut session, &key, &digest, &self.now(now)).await;
        session.end(reserved).await
    }

    async fn keep_answer(&self, key: Arc<str>, digest: [u8; 32], answer: Option<KeptAnswer>) -> Result<(), StoreError> {
        let mut session = self.writes.begin().await?;
        let kept = editing::keep(&mut session, &key, &digest, answer.as_ref()).await;
        session.end(kept).await
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
        let mut session = self.writes.session().await?;
        let submitted = catalog::trigger(&mut session, &task, &by, key.as_deref(), &submissions, &self.now(now)).await;
        session.end_unless(submitted, is_written).await
    }

    async fn act(&self, instance: InstanceId, action: InstanceAction, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        let mut session = self.writes.session().await?;
        let submitted = people::act(&mut session, instance, action, &by, &self.now(now)).await;
        session.end_unless(submitted, is_written).await
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
        let mut session = self.writes.session().await?;
        let submitted = catalog::mark_node(&mut session, instance, (node, mark), &subject, &by, &self.now(now)).await;
        session.end_unless(submitted, is_written).await
    }

    async fn nodes(&self, run: InstanceId) -> Result<Vec<InstanceView>, StoreError> {
        let mut session = self.reads.session().await?;
        let nodes = history::nodes(&mut session, run).await;
        session.done(nodes)
    }

    async fn rerun(&self, instance: InstanceId, by: Actor, which: Rerunning, now: Timestamp) -> Result<Submitted, StoreError> {
        let mut session = self.writes.session().await?;
        let submitted = catalog::rerun(&mut session, instance, &by, which, &self.now(now)).await;
        session.end_unless(submitted, is_written).await
    }

    async fn set_pause(&self, target: PauseTarget, is_paused: bool, by: Actor, now: Timestamp) -> Result<PauseSet, StoreError> {
        let mut session = self.writes.session().await?;
        let set = people::set_pause(&mut session, self.partitions, &target, is_paused, &by, &self.now(now)).await;
        session.end_unless(set, |set| matches!(set, PauseSet::Accepted { .. })).await
    }

    async fn pauses(&self) -> Result<Vec<PauseView>, StoreError> {
        let mut session = self.reads.session().await?;
        let pauses = people::all_pauses(&mut session).await;
        session.done(pauses)
    }

    async fn change_trigger(
        &self,
        task: Arc<str>,
        key: Arc<str>,
        change: DelayedChange,
        by: Actor,
        now: Timestamp,
    ) -> Result<TriggerChanged, StoreError> {
        let mut session = self.writes.session().await?;
        let changed = people::change_trigger(&mut session, &task, &key, change, &by, &self.now(now)).await;
        session.end_unless(changed, |changed| matches!(changed, TriggerChanged::Accepted { .. })).await
    }

    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<InstanceView>, StoreError> {
        let mut session = self.reads.session().await?;
        let dead = history::dead_letters(&mut session, &filter).await;
        session.done(dead)
    }

    async fn discard(&self, instance: InstanceId, by: Actor, now: Timestamp) -> Result<Discarded, StoreError> {
        let mut session = self.writes.session().await?;
        let discarded = people::discard(&mut session, instance, &by, &self.now(now)).await;
        session.end_unless(discarded, |discarded| *discarded == Discarded::Done).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditView>, StoreError> {
        let mut session = self.reads.session().await?;
        let audit = people::audit(&mut session, &filter).await;
        session.done(audit)
    }

    async fn fired(&self, task: Arc<str>, from: Timestamp, to: Timestamp) -> Result<Option<Fired>, StoreError> {
        let mut session = self.reads.begin_snapshot().await?;
        let fired = backfills::fired(&mut session, &task, from, to).await;
        session.leave(fired).await
    }

    async fn backfill(&self, plan: BackfillPlan, after: Option<InboxId>, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        let mut session = self.writes.session().await?;
        let submitted = backfills::ask(&mut session, &plan, after, &by, &self.now(now)).await;
        session.end_unless(submitted, is_written).await
    }

    async fn cancel_backfill(&self, backfill: InboxId, by: Actor, now: Timestamp) -> Result<Submitted, StoreError> {
        let mut session = self.writes.session().await?;
        let submitted = backfills::cancel(&mut session, backfill, &by, &self.now(now)).await;
        session.end_unless(submitted, is_written).await
    }

    async fn backfills(&self, task: Option<TaskId>, limit: usize) -> Result<Vec<BackfillRow>, StoreError> {
        let mut session = self.reads.session().await?;
        let backfills = backfills::list(&mut session, task, limit).await;
        session.done(backfills)
    }

    async fn tasks(&self, after: Option<Arc<str>>, limit: usize) -> Result<Vec<TaskView>, StoreError> {
        let mut session = self.reads.session().await?;
        let tasks = history::tasks(&mut session, after.as_deref(), limit).await;
        session.done(tasks)
    }

    async fn task_now(&self, name: Arc<str>) -> Result<Option<TaskView>, StoreError> {
        let mut session = self.reads.session().await?;
        let task = history::task_now(&mut session, &name).await;
        session.done(task)
    }

    async fn task(&self, name: Arc<str>) -> Result<Option<(TaskView, Vec<VersionView>)>, StoreError> {
        let mut session = self.reads.begin_snapshot().await?;
        let task = history::task(&mut session, &name).await;
        session.leave(task).await
    }

    async fn name_of(&self, task: TaskId) -> Result<Option<Arc<str>>, StoreError> {
        let mut session = self.reads.session().await?;
        let name = history::name_of(&mut session, task).await;
        session.done(name)
    }

    async fn instances(&self, filter: InstanceFilter) -> Result<Vec<InstanceView>, StoreError> {
        let mut session = self.reads.session().await?;
        let instances = history::instances(&mut session, &filter).await;
        session.done(instances)
    }

    async fn instance_page(&self, query: InstanceQuery) -> Result<InstancePage, StoreError> {
        let mut session = self.reads.session().await?;
        let page = reading::instance_page(&mut session, &query).await;
        session.done(page)
    }

    async fn task_page(&self, query: TaskQuery) -> Result<TaskPage, StoreError> {
        let mut session = self.reads.session().await?;
        let page = reading::task_page(&mut session, &query).await;
        session.done(page)
    }

    async fn coming(&self, until: Timestamp, limit: usize) -> Result<Vec<ComingTask>, StoreError> {
        let mut session = self.reads.session().await?;
        let coming = reading::coming(&mut session, until, limit).await;
        session.done(coming)
    }

    async fn task_days(&self, task: TaskId, from: i64) -> Result<Vec<TaskDay>, StoreError> {
        let mut session = self.reads.session().await?;
        let days = reading::task_days(&mut session, task, from).await;
        session.done(days)
    }

    async fn instance(&self, id: InstanceId) -> Result<Option<InstanceView>, StoreError> {
        let mut session = self.reads.session().await?;
        let instance = history::instance(&mut session, id).await;
        session.done(instance)
    }

    async fn instance_of_submission(&self, ordinal: u64) -> Result<Option<InstanceView>, StoreError> {
        let mut session = self.reads.session().await?;
        let instance = history::instance_of_submission(&mut session, ordinal).await;
        session.done(instance)
    }

    async fn outputs(&self, id: InstanceId) -> Result<Vec<(u32, Output)>, StoreError> {
        let mut session = self.reads.session().await?;
        let outputs = history::outputs(&mut session, id).await;
        session.done(outputs)
    }

    async fn occurrences(&self, task: Arc<str>, limit: usize) -> Result<Vec<Occurrence>, StoreError> {
        let mut session = self.reads.session().await?;
        let occurrences = history::occurrences(&mut session, &task, limit).await;
        session.done(occurrences)
    }

    async fn occurrences_around(&self, task: Arc<str>, from: Timestamp, until: Timestamp) -> Result<Vec<Occurrence>, StoreError> {
        let mut session = self.reads.session().await?;
        let occurrences = history::occurrences_around(&mut session, &task, from, until).await;
        session.done(occurrences)
    }

    async fn inconsistencies(&self, now: Timestamp, thorough: bool) -> Result<Vec<Inconsistency>, StoreError> {
        let mut session = self.reads.begin_snapshot().await?;
        let found = checkup::inconsistencies(&mut session, now, thorough).await;
        // Its limits in time go with the connection.
        drop(session);
        found.map_err(|failure| self.database.error(failure))
    }

    async fn counts(&self) -> Result<Vec<(State, u64)>, StoreError> {
        let mut session = self.reads.session().await?;
        let counts = history::counts(&mut session).await;
        session.done(counts)
    }

    async fn replicas(&self) -> Result<Vec<ReplicaView>, StoreError> {
        let mut session = self.reads.session().await?;
        let replicas = history::replicas(&mut session).await;
        session.done(replicas)
    }

    async fn partition_views(&self) -> Result<Vec<PartitionView>, StoreError> {
        let mut session = self.reads.begin_snapshot().await?;
        let views = history::partition_views(&mut session).await;
        session.leave(views).await
    }
}
