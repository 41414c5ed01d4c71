//! What a database carried out, recorded by the database itself: triggers write the image of each row that a commit, a lease or a call of the
//! catalog writes into one more table, `recorded`, in the transaction that writes the row. So processes that know nothing of it are watched,
//! what was rolled back leaves nothing, and a failover that loses a transaction loses its record too. A replica takes the records over with
//! the rows (with `binlog_format = ROW` its own triggers don't run), so a promoted one has all that it carried out itself or took over.
//!
//! **The order.** Records are numbered when their rows are written, at the statement and not at COMMIT: two transactions that have nothing to
//! do with each other may be recorded one within the other. Where one follows from the other their order is right all the same. A transaction
//! that reads or writes what another one wrote waits for that one's end, by then all of the first are numbered, and numbers only grow:
//!
//! - A commit holds its rows of `fences` from its beginning to its end. The next commit of the partition comes behind it, and so do the next
//!   grant and a release, which are taken for carried out where they change `fences`: in `leases`, which no commit locks, they are too early.
//! - A lease's row is locked by whoever grants, renews or releases it. A renewal and a commit don't wait for each other, and neither means
//!   anything for the other.
//! - An entry that a commit applies was read before, so its transaction had ended; an instance that is cancelled likewise.
//!
//! A commit stands where its last row does: its COMMIT, and whatever somebody does because of it, come later. It has the time of that row, too.
//!
//! **Which rows are one commit.** Each is on one connection, and writes its fences first: a fence after anything else begins the next one. So
//! does a fence of another statement, unless the statement before was full. A batch that relies on no lease would not be told apart; no owner
//! has one to send.

use std::mem;
use std::sync::Arc;

use punctual_core::batch::{AttemptOutput, Batch, InstanceUpdate, LeaseCheck, Output, TaskWrite};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{CommitId, Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::Notice;
use punctual_core::occurrence::Occurrence;
use punctual_core::pause::PauseScope;
use punctual_core::time::Timestamp;
use punctual_driver::ports::StoreError;
use rustc_hash::FxHashMap;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Decode as SqlDecode, MySql, MySqlConnection, Row, Type};

use crate::Decode;
use crate::codec::{self, Malformed};
use crate::codes::Coded;
use crate::mysql::error::{Database, Failure};
use crate::mysql::rows::{self, INSTANCE_COLUMNS, INSTANCE_COLUMNS_COUNT, text};
use crate::mysql::session::{Connections, Isolation, Session};
use crate::mysql::sql::STATEMENT_ROWS_MAX;
use crate::mysql::{close, parse, session};
use crate::set_aside::{
    Definitions, KIND_CANCEL, KIND_DEFINITION, KIND_DELAYED, KIND_KILL, KIND_NOTICE, KIND_PAUSE, KIND_REFERENCES, KIND_RERUN, KIND_SKIP,
    KIND_TRIGGER,
};

/// Rows that are read at a time.
const PAGE_ROWS: usize = 2_000;

/// Something that was carried out, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// When the statement ran, by the server's wall clock, in microseconds since 1970. Of a commit: its last statement.
    pub at_micros: i64,
    /// Of an inbox entry, when it was made, as its row says: what its owner goes by. A little before the statement's trigger ran.
    pub made_at: Option<Timestamp>,
    /// What.
    pub seen: Seen,
}

/// What was carried out. Times within are the server's own, or the callers' where the store goes by theirs.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// A batch, as its rows say: a watermark that it left alone is the one that was there, and what an instance is comes from its insert. Ids of
    /// commits are counted from 1. Rows are in the order in which they were written.
    Committed(Arc<Batch>),
    /// A definition was written, and with it an inbox entry.
    Defined {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
        /// Its partition.
        partition: PartitionId,
        /// Its version.
        version: Version,
        /// What it is now; `None`: removed.
        definition: Option<Arc<TaskDefinition>>,
    },
    /// A manual trigger was written to the inbox.
    Submitted {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
        /// How many instances it asks for.
        submissions: usize,
        /// The idempotency key of the call.
        key: Option<Arc<str>>,
    },
    /// A cancellation was written to the inbox.
    CancelSubmitted {
        /// The entry.
        entry: InboxId,
        /// The instance.
        instance: InstanceId,
    },
    /// A rerun was written to the inbox.
    RerunSubmitted {
        /// The entry.
        entry: InboxId,
        /// The instance that is to run once more.
        instance: InstanceId,
    },
    /// That an instance is to be left out was written to the inbox.
    SkipSubmitted {
        /// The entry.
        entry: InboxId,
        /// The instance.
        instance: InstanceId,
    },
    /// A change to a manual trigger that is not due yet was written to the inbox.
    DelayedChanged {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
        /// The ordinal of the trigger's instance.
        ordinal: u64,
    },
    /// A pause, or its end, was written to an owner's inbox.
    PauseChanged {
        /// The entry.
        entry: InboxId,
        /// Whose inbox.
        partition: PartitionId,
        /// What it holds.
        scope: PauseScope,
        /// Whether it holds from now on.
        is_paused: bool,
    },
    /// An owner has written to an inbox.
    Noticed {
        /// The entry.
        entry: InboxId,
        /// Whose inbox.
        partition: PartitionId,
        /// What it asks for.
        notice: Notice,
    },
    /// What a task's ends make fire was written to its owner's inbox.
    ReferencesChanged {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
    },
    /// A lease was granted.
    LeaseGranted {
        /// The partition.
        partition: PartitionId,
        /// To whom.
        owner: ReplicaId,
        /// Under which epoch.
        epoch: Epoch,
        /// Until when, unless it is renewed.
        until: Timestamp,
    },
    /// A lease was renewed.
    LeaseRenewed {
        /// The partition.
        partition: PartitionId,
        /// Under which epoch.
        epoch: Epoch,
        /// Until when.
        until: Timestamp,
    },
    /// A lease was given up.
    LeaseReleased {
        /// The partition.
        partition: PartitionId,
        /// Under which epoch.
        epoch: Epoch,
    },
}

/// What a record is of, by the number that is stored.
mod kind {
    pub(super) const FENCE: u8 = 1;
    pub(super) const GRANTED: u8 = 2;
    pub(super) const RELEASED: u8 = 3;
    /// Goes before [`GRANTED`], which does not say until when.
    pub(super) const GRANTED_UNTIL: u8 = 4;
    pub(super) const RENEWED: u8 = 5;
    pub(super) const INSERTED: u8 = 6;
    pub(super) const UPDATED: u8 = 7;
    pub(super) const TASK: u8 = 8;
    pub(super) const OCCURRENCE: u8 = 9;
    pub(super) const OUTPUT: u8 = 10;
    pub(super) const ENTRY: u8 = 11;
    /// Goes behind the [`ENTRY`] of a trigger.
    pub(super) const KEY: u8 = 12;
    pub(super) const APPLIED: u8 = 13;
}

/// A column is named as where it comes from. What has none in a kind of record is NULL there.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS recorded (
    number BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at_micros BIGINT NOT NULL,
    statement_micros BIGINT NOT NULL,
    connection BIGINT UNSIGNED NOT NULL,
    kind TINYINT UNSIGNED NOT NULL,
    `partition` SMALLINT UNSIGNED,
    owner VARBINARY(512),
    epoch BIGINT UNSIGNED,
    commit_seq BIGINT UNSIGNED,
    sequence BIGINT UNSIGNED,
    expires_at BIGINT,
    entry BIGINT UNSIGNED,
    entry_kind TINYINT UNSIGNED,
    body LONGBLOB,
    id BIGINT UNSIGNED,
    task BIGINT UNSIGNED,
    version INT UNSIGNED,
    fire_time BIGINT,
    ordinal BIGINT UNSIGNED,
    run INT UNSIGNED,
    origin TINYINT UNSIGNED,
    state TINYINT UNSIGNED,
    fence BIGINT UNSIGNED,
    attempt INT UNSIGNED,
    failures INT UNSIGNED,
    losses INT UNSIGNED,
    worker VARBINARY(1024),
    worker_life BIGINT UNSIGNED,
    due_at BIGINT,
    submission_key VARBINARY(1024),
    transitions LONGBLOB,
    payload LONGBLOB,
    part BIGINT UNSIGNED,
    more LONGBLOB,
    expected_state TINYINT UNSIGNED,
    expected_fence BIGINT UNSIGNED,
    next_fire BIGINT,
    fired_until BIGINT,
    last_fire_time BIGINT,
    fire_times BIGINT UNSIGNED,
    outcome TINYINT UNSIGNED,
    made_at BIGINT,
    dropped BIGINT UNSIGNED,
    bytes LONGBLOB
) ENGINE = InnoDB";

/// A trigger.
struct Watch {
    /// After what.
    after: &'static str,
    /// Of which rows, in SQL.
    when: &'static str,
    /// Its records' kind, in SQL.
    kind: String,
    /// Columns that are written as they have become.
    columns: &'static str,
    /// Further columns, and what they get.
    further: &'static [(&'static str, &'static str)],
}

const INSTANCE: &str = "id, task, version, fire_time, ordinal, run, origin, state, fence, attempt, failures, losses, worker, worker_life, due_at, \
     submission_key, transitions, payload, part, more";
const TASK: &str = "`partition`, task, version, next_fire, fired_until";
const OUTPUT: &str = "attempt, dropped, bytes";

fn watches() -> Vec<Watch> {
    let watch = |after, kind: u8, columns, further| Watch { after, when: "TRUE", kind: kind.to_string(), columns, further };
    vec![
        Watch {
            after: "UPDATE ON leases",
            when: "NEW.owner IS NOT NULL",
            kind: format!("IF(NEW.epoch <> OLD.epoch, {}, {})", kind::GRANTED_UNTIL, kind::RENEWED),
            columns: "`partition`, owner, epoch, expires_at",
            further: &[],
        },
        Watch {
            after: "UPDATE ON fences",
            when: "TRUE",
            kind: format!("IF(NEW.epoch <> OLD.epoch, {}, IF(NEW.owner IS NULL, {}, {}))", kind::GRANTED, kind::RELEASED, kind::FENCE),
            columns: "`partition`, owner, epoch, commit_seq, sequence",
            further: &[],
        },
        watch("INSERT ON instances", kind::INSERTED, INSTANCE, &[]),
        watch("UPDATE ON instances", kind::UPDATED, INSTANCE, &[("expected_state", "OLD.state"), ("expected_fence", "OLD.fence")]),
        watch("INSERT ON task_states", kind::TASK, TASK, &[]),
        watch("UPDATE ON task_states", kind::TASK, TASK, &[]),
        watch(
            "INSERT ON occurrences",
            kind::OCCURRENCE,
            "task, version, fire_time, last_fire_time, fire_times, outcome, made_at",
            &[("id", "NEW.instance")],
        ),
        watch("INSERT ON outputs", kind::OUTPUT, OUTPUT, &[("id", "NEW.instance")]),
        watch("UPDATE ON outputs", kind::OUTPUT, OUTPUT, &[("id", "NEW.instance")]),
        watch(
            "INSERT ON inbox",
            kind::ENTRY,
            "`partition`, task, version, body, made_at",
            &[("entry", "NEW.id"), ("entry_kind", "NEW.kind")],
        ),
        watch("DELETE ON inbox", kind::APPLIED, "", &[("entry", "OLD.id")]),
        watch("INSERT ON idempotency", kind::KEY, "entry, submission_key", &[]),
    ]
}

impl Watch {
    fn sql(&self) -> String {
        let names: Vec<_> = self.columns.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let (mut columns, mut values) = (String::new(), String::new());
        for name in names {
            columns += &format!(", {name}");
            values += &format!(", NEW.{name}");
        }
        for (name, value) in self.further {
            columns += &format!(", {name}");
            values += &format!(", {value}");
        }
        // The time now, and when the statement began that the trigger is a part of.
        let [now, began] = ["SYSDATE(6)", "NOW(6)"].map(|instant| format!("CAST(UNIX_TIMESTAMP({instant}) * 1000000 AS SIGNED)"));
        format!(
            "CREATE TRIGGER IF NOT EXISTS record_{} AFTER {} FOR EACH ROW
             IF {} THEN
                 INSERT INTO recorded (at_micros, statement_micros, connection, kind{columns}) VALUES ({now}, {began}, CONNECTION_ID(), {}{values});
             END IF",
            self.after.to_lowercase().replace(' ', "_"),
            self.after,
            self.when,
            self.kind,
        )
    }
}

/// Has a migrated database record what it carries out from now on. Where it does so already, nothing changes. On a server with a binary log,
/// the user needs the right to make triggers there.
///
/// # Errors
///
/// The database has no schema; or what the server says.
pub async fn install(url: &str) -> Result<(), StoreError> {
    let (database, options) = parse(url)?;
    let mut connection = session::connect(&database, &options).await?;
    let installed = make(&mut connection).await.map_err(|error| database.error(error.into()));
    close(connection).await;
    installed
}

async fn make(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(TABLE).execute(&mut *connection).await?;
    for watch in watches() {
        sqlx::raw_sql(AssertSqlSafe(watch.sql())).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Everything that was carried out since [`install`], in its order. As of one moment: what is under way is not there.
///
/// # Errors
///
/// What the server says; a definition that can't be decoded.
pub async fn read(url: &str, decode: Decode) -> Result<Vec<Logged>, StoreError> {
    let (database, mut session) = reader(url).await?;
    let logged = read_all(&mut session, &database, &decode).await;
    session.leave(logged).await
}

/// What is left: instances that have not ended, and inbox entries that nobody has applied.
///
/// # Errors
///
/// What the server says.
pub async fn left(url: &str) -> Result<(Vec<InstanceId>, Vec<InboxId>), StoreError> {
    let (_, mut session) = reader(url).await?;
    let left = read_left(&mut session).await;
    session.leave(left).await
}

/// Begins to read, all of one moment.
async fn reader(url: &str) -> Result<(Database, Session), StoreError> {
    let (database, options) = parse(url)?;
    let session = Connections::new(&database, &options, 1, Isolation::Snapshot).begin_snapshot().await?;
    Ok((database, session))
}

async fn read_left(session: &mut Session) -> Result<(Vec<InstanceId>, Vec<InboxId>), Failure> {
    let live = numbers(session, "live").await?.into_iter().map(InstanceId).collect();
    let inbox = numbers(session, "inbox").await?.into_iter().map(InboxId).collect();
    Ok((live, inbox))
}

/// The ids of a table, none of which is 0.
async fn numbers(session: &mut Session, table: &str) -> Result<Vec<u64>, Failure> {
    let mut ids = Vec::new();
    loop {
        let after = ids.last().copied().unwrap_or(0);
        let page = session.rows_long(format!("SELECT id FROM {table} WHERE id > {after} ORDER BY id LIMIT {PAGE_ROWS}")).await?;
        for row in &page {
            ids.push(row.try_get(0)?);
        }
        if page.len() < PAGE_ROWS {
            return Ok(ids);
        }
    }
}

/// Where [`read_all`] has a record's columns that are text.
const OWNER: usize = INSTANCE_COLUMNS_COUNT;
const DOCUMENT: usize = INSTANCE_COLUMNS_COUNT + 1;

async fn read_all(session: &mut Session, database: &Database, decode: &Decode) -> Result<Vec<Logged>, Failure> {
    let mut reading = Reading {
        database,
        definitions: Definitions::new(decode),
        open: FxHashMap::default(),
        granted_until: FxHashMap::default(),
        submitted: FxHashMap::default(),
        commits: 0,
        done: Vec::new(),
    };
    let mut after = 0_u64;
    loop {
        let sql = format!(
            "SELECT {INSTANCE_COLUMNS}, i.owner, v.document, i.number, i.at_micros, i.statement_micros, i.connection, i.kind, i.`partition`,
                 i.epoch, i.commit_seq, i.sequence, i.expires_at, i.entry, i.entry_kind, i.body, i.expected_state, i.expected_fence,
                 i.next_fire, i.fired_until, i.last_fire_time, i.fire_times, i.outcome, i.made_at, i.dropped, i.bytes
             FROM recorded i LEFT JOIN task_versions v ON i.entry_kind = {KIND_DEFINITION} AND v.task = i.task AND v.version = i.version
             WHERE i.number > {after} ORDER BY i.number LIMIT {PAGE_ROWS}"
        );
        let page = session.rows_long(sql).await?;
        for row in &page {
            reading.take(row)?;
        }
        match page.last() {
            Some(last) if page.len() == PAGE_ROWS => after = last.try_get("number")?,
            _ => return Ok(reading.end()),
        }
    }
}

/// A commit whose rows are being read.
struct Open {
    batch: Batch,
    /// The last row's number and time.
    number: u64,
    at_micros: i64,
    /// The statement of the last fence, and how many it had.
    statement_micros: i64,
    statement_rows: usize,
}

struct Reading<'a> {
    database: &'a Database,
    definitions: Definitions<'a>,
    /// By connection.
    open: FxHashMap<u64, Open>,
    /// Leases that were granted where only their time is known yet, by connection.
    granted_until: FxHashMap<(u64, PartitionId), Timestamp>,
    /// Where the last trigger of a connection is.
    submitted: FxHashMap<u64, usize>,
    commits: u64,
    /// With numbers, to be brought into their order.
    done: Vec<(u64, Logged)>,
}

impl Reading<'_> {
    fn take(&mut self, row: &MySqlRow) -> Result<(), Failure> {
        let (number, at_micros, connection) = (row.try_get("number")?, row.try_get("at_micros")?, row.try_get("connection")?);
        let seen = match row.try_get::<u8, _>("kind")? {
            kind::GRANTED_UNTIL => {
                self.granted_until.insert((connection, partition(row)?), Timestamp(row.try_get("expires_at")?));
                return Ok(());
            }
            kind::GRANTED => {
                let partition = partition(row)?;
                let until = self.granted_until.remove(&(connection, partition)).ok_or(Malformed("a grant has no time"))?;
                Seen::LeaseGranted { partition, owner: owner(row)?, epoch: Epoch(row.try_get("epoch")?), until }
            }
            kind::RENEWED => {
                let (epoch, until) = (Epoch(row.try_get("epoch")?), Timestamp(row.try_get("expires_at")?));
                Seen::LeaseRenewed { partition: partition(row)?, epoch, until }
            }
            kind::RELEASED => Seen::LeaseReleased { partition: partition(row)?, epoch: Epoch(row.try_get("epoch")?) },
            kind::ENTRY => {
                let entry = self.entry(row)?;
                if matches!(entry, Seen::Submitted { .. } | Seen::RerunSubmitted { .. }) {
                    self.submitted.insert(connection, self.done.len());
                }
                entry
            }
            kind::KEY => return self.key(connection, row),
            kind => {
                let open = self.open_commit(connection, kind, row)?;
                (open.number, open.at_micros) = (number, at_micros);
                return add(&mut open.batch, kind, row);
            }
        };
        let made_at = match seen {
            Seen::Defined { .. }
            | Seen::Submitted { .. }
            | Seen::CancelSubmitted { .. }
            | Seen::RerunSubmitted { .. }
            | Seen::Noticed { .. }
            | Seen::ReferencesChanged { .. } => Some(Timestamp(row.try_get("made_at")?)),
            _ => None,
        };
        self.done.push((number, Logged { at_micros, made_at, seen }));
        Ok(())
    }

    /// The commit that a row is of: of a fence it may be a new one.
    fn open_commit(&mut self, connection: u64, kind: u8, row: &MySqlRow) -> Result<&mut Open, Failure> {
        if kind != kind::FENCE {
            return Ok(self.open.get_mut(&connection).ok_or(Malformed("a row of a commit comes before its fences"))?);
        }
        let (statement_micros, partition) = (row.try_get("statement_micros")?, partition(row)?);
        let continues = self.open.get(&connection).is_some_and(|open| {
            let is_next =
                open.statement_rows == STATEMENT_ROWS_MAX && open.batch.leases.last().is_some_and(|last| last.partition < partition);
            open.batch.is_empty() && (open.statement_micros == statement_micros || is_next)
        });
        if !continues {
            self.commits += 1;
            let batch = Batch { id: CommitId(self.commits), replica: owner(row)?, ..Batch::default() };
            let open = Open { batch, number: 0, at_micros: 0, statement_micros, statement_rows: 0 };
            if let Some(before) = self.open.insert(connection, open) {
                self.done.push(before.close());
            }
        }
        let open = self.open.get_mut(&connection).ok_or(Malformed("a commit has no fences"))?;
        if mem::replace(&mut open.statement_micros, statement_micros) != statement_micros {
            open.statement_rows = 0;
        }
        open.statement_rows += 1;
        Ok(open)
    }

    fn entry(&mut self, row: &MySqlRow) -> Result<Seen, Failure> {
        let entry = InboxId(row.try_get("entry")?);
        match row.try_get::<u8, _>("entry_kind")? {
            KIND_DEFINITION => {
                let (task, version) = (task(row)?, Version(row.try_get("version")?));
                let definition = match text(row, DOCUMENT)? {
                    Some(document) => Some(self.definition(task, version, &document)?),
                    None => None,
                };
                Ok(Seen::Defined { entry, task, partition: partition(row)?, version, definition })
            }
            KIND_TRIGGER => {
                let submissions = codec::submissions(row.try_get("body")?)?.len();
                Ok(Seen::Submitted { entry, task: task(row)?, submissions, key: None })
            }
            KIND_CANCEL | KIND_KILL => {
                let (instance, _) = codec::cancel(row.try_get("body")?)?;
                Ok(Seen::CancelSubmitted { entry, instance })
            }
            KIND_SKIP => Ok(Seen::SkipSubmitted { entry, instance: codec::cancel(row.try_get("body")?)?.0 }),
            KIND_DELAYED => Ok(Seen::DelayedChanged { entry, task: task(row)?, ordinal: codec::delayed(row.try_get("body")?)?.0 }),
            KIND_PAUSE => {
                let (scope, is_paused) = codec::pause(row.try_get("body")?)?;
                Ok(Seen::PauseChanged { entry, partition: partition(row)?, scope, is_paused })
            }
            KIND_NOTICE => {
                let task = TaskId(optional(row, "task")?.unwrap_or_default());
                Ok(Seen::Noticed { entry, partition: partition(row)?, notice: codec::notice(task, row.try_get("body")?)? })
            }
            KIND_RERUN => Ok(Seen::RerunSubmitted { entry, instance: codec::rerun(task(row)?, row.try_get("body")?)?.instance }),
            KIND_REFERENCES => Ok(Seen::ReferencesChanged { entry, task: task(row)? }),
            _ => Err(Malformed("an entry's kind is unknown").into()),
        }
    }

    fn definition(&mut self, task: TaskId, version: Version, document: &str) -> Result<Arc<TaskDefinition>, Failure> {
        self.definitions.decoded(task, version, Some(document)).map_err(|reason| {
            let reason = format!("version {version} of task {task} can't be decoded: {reason}");
            StoreError::Corrupt { database: self.database.name(), reason }.into()
        })
    }

    /// A trigger's key was written behind it.
    fn key(&mut self, connection: u64, row: &MySqlRow) -> Result<(), Failure> {
        let found = InboxId(row.try_get("entry")?);
        let last = self.submitted.remove(&connection).and_then(|index| self.done.get_mut(index));
        match last {
            Some((_, Logged { seen: Seen::Submitted { entry, key, .. }, .. })) if *entry == found => {
                // Where an instance has its own.
                *key = text(row, INSTANCE_KEY)?;
                Ok(())
            }
            // Its key says no more than the entry itself.
            Some((_, Logged { seen: Seen::RerunSubmitted { entry, .. }, .. })) if *entry == found => Ok(()),
            _ => Err(Malformed("a key has no trigger").into()),
        }
    }

    fn end(mut self) -> Vec<Logged> {
        self.done.extend(self.open.into_values().map(Open::close));
        self.done.sort_unstable_by_key(|(number, _)| *number);
        self.done.into_iter().map(|(_, logged)| logged).collect()
    }
}

/// Where [`INSTANCE_COLUMNS`] has the key.
const INSTANCE_KEY: usize = 15;

impl Open {
    fn close(self) -> (u64, Logged) {
        (self.number, Logged { at_micros: self.at_micros, made_at: None, seen: Seen::Committed(Arc::new(self.batch)) })
    }
}

/// Adds a row to its batch.
fn add(batch: &mut Batch, kind: u8, row: &MySqlRow) -> Result<(), Failure> {
    match kind {
        kind::FENCE => batch.leases.push(LeaseCheck {
            partition: partition(row)?,
            epoch: Epoch(row.try_get("epoch")?),
            commit_seq: row.try_get("commit_seq")?,
            sequence: row.try_get("sequence")?,
        }),
        kind::INSERTED => batch.inserts.push(rows::instance(row)?),
        kind::UPDATED => batch.updates.push(InstanceUpdate {
            expected_state: coded(row, "expected_state")?,
            expected_fence: Fence(row.try_get("expected_fence")?),
            row: rows::instance(row)?,
        }),
        kind::TASK => batch.tasks.push(TaskWrite {
            task: task(row)?,
            partition: partition(row)?,
            version: optional(row, "version")?.map(Version),
            next_fire: optional(row, "next_fire")?.map(Timestamp),
            fired_until: optional(row, "fired_until")?.map(Timestamp),
        }),
        kind::OCCURRENCE => batch.occurrences.push(Occurrence {
            task: task(row)?,
            version: Version(row.try_get("version")?),
            first: Timestamp(row.try_get("fire_time")?),
            last: Timestamp(row.try_get("last_fire_time")?),
            count: row.try_get("fire_times")?,
            outcome: coded(row, "outcome")?,
            instance: optional(row, "id")?.map(InstanceId),
            at: Timestamp(row.try_get("made_at")?),
        }),
        kind::OUTPUT => batch.outputs.push(AttemptOutput {
            instance: InstanceId(row.try_get("id")?),
            attempt: row.try_get("attempt")?,
            output: Output { bytes: row.try_get("bytes")?, dropped: row.try_get("dropped")? },
        }),
        kind::APPLIED => batch.applied.push(InboxId(row.try_get("entry")?)),
        _ => return Err(Malformed("a record's kind is unknown").into()),
    }
    Ok(())
}

fn owner(row: &MySqlRow) -> Result<ReplicaId, Failure> {
    rows::required_text(row, OWNER).map(ReplicaId)
}

fn partition(row: &MySqlRow) -> Result<PartitionId, Failure> {
    Ok(PartitionId(row.try_get("partition")?))
}

fn task(row: &MySqlRow) -> Result<TaskId, Failure> {
    Ok(TaskId(row.try_get("task")?))
}

fn optional<T>(row: &MySqlRow, column: &str) -> Result<Option<T>, Failure>
where
    T: for<'a> SqlDecode<'a, MySql> + Type<MySql>,
{
    Ok(row.try_get(column)?)
}

fn coded<T: Coded>(row: &MySqlRow, column: &str) -> Result<T, Failure> {
    Ok(T::from_code(row.try_get(column)?).ok_or(Malformed("a number stands for nothing"))?)
}
