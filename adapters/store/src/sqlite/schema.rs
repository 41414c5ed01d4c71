//! The schema, its versions, and how a file is brought to the newest.
//!
//! `application_id` says that a file is ours, `user_version` which schema it has: the number of scripts of [`MIGRATIONS`] that were run
//! on it. A script, once released, is never edited. All that are missing run in one transaction, so a file has one schema or another,
//! never something between.
//!
//! Enum values are stored as the numbers of the `codes` module. Timestamps are milliseconds since 1970. Ids, fences and the like are
//! 64-bit patterns; all that are ordered stay below 2^63.

use punctual_driver::ports::StoreError;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::sqlite::error::Database;

/// "PNCT".
const APPLICATION_ID: i32 = 0x504e_4354;

/// One script a version, the oldest first.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9];

/// The newest schema that this program knows.
pub(crate) const NEWEST: u32 = MIGRATIONS.len() as u32;

// Notes on what is not obvious:
// - instances_firing has fire_time first: with the task first, each insert touches a page of its own, which was measured 2.5 times slower
//   over two million rows. It is a separate index so that a test can drop it.
// - instances_live has live rows only, so that a snapshot costs what is live and not what ever was, and so does its upkeep.
// - instances_troubled makes the few that ended otherwise than well quick to find; success, the usual end, never touches it.
// - counts is kept by each commit from the state changes it carries: a dozen rows, one page.
// - task_states is the owner's; clustered by partition because a new owner reads a partition's. A task that was removed keeps its row,
//   without a version, for its watermark.
// - task_versions.document is NULL in a version that removed the task.
const V1: &str = "
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    partition INTEGER PRIMARY KEY,
    owner TEXT,
    epoch INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    commit_seq INTEGER NOT NULL,
    sequence INTEGER NOT NULL
) STRICT;

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    partition INTEGER NOT NULL,
    version INTEGER NOT NULL,
    source TEXT NOT NULL,
    removed INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE task_versions (
    task INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    document TEXT,
    PRIMARY KEY (task, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_states (
    partition INTEGER NOT NULL,
    task INTEGER NOT NULL,
    version INTEGER,
    next_fire INTEGER,
    fired_until INTEGER,
    PRIMARY KEY (partition, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE instances (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    version INTEGER NOT NULL,
    fire_time INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    run INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    state INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    worker TEXT,
    worker_life INTEGER,
    due_at INTEGER,
    key TEXT,
    transitions BLOB NOT NULL,
    payload TEXT
) STRICT;
CREATE UNIQUE INDEX instances_firing ON instances (fire_time, task, ordinal, run);
CREATE INDEX instances_live ON instances (id) WHERE state < 5;
CREATE INDEX instances_troubled ON instances (state, fire_time, task, ordinal, run) WHERE state >= 5 AND state < 10;
CREATE INDEX instances_by_task ON instances (task, fire_time);
CREATE INDEX instances_by_key ON instances (key) WHERE key IS NOT NULL;
CREATE INDEX instances_by_ordinal ON instances (ordinal) WHERE ordinal <> 0;

CREATE TABLE counts (
    state INTEGER PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT;

CREATE TABLE outputs (
    instance INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX outputs_by_attempt ON outputs (instance, attempt);

CREATE TABLE occurrences (
    task INTEGER NOT NULL,
    version INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    instance INTEGER,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX occurrences_by_task ON occurrences (task, first);

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    at INTEGER NOT NULL,
    by TEXT NOT NULL,
    kind INTEGER NOT NULL,
    task INTEGER,
    version INTEGER,
    body BLOB
) STRICT;

CREATE TABLE idempotency (
    key TEXT PRIMARY KEY,
    request_hash BLOB NOT NULL,
    entry INTEGER NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// The replicas that share the partitions.
const V2: &str = "
CREATE TABLE replicas (
    id TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

// What a status shows of them. Nobody is alive when a schema is changed.
const V3: &str = "
ALTER TABLE replicas ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
";

// Parts of firings, and what the ends of tasks make fire. task_references is by the partition of the task that ends, whose owner reads it.
const V4: &str = "
ALTER TABLE instances ADD COLUMN part INTEGER NOT NULL DEFAULT 0;
ALTER TABLE instances ADD COLUMN more BLOB;
DROP INDEX instances_firing;
CREATE UNIQUE INDEX instances_firing ON instances (fire_time, task, ordinal, run, part);
DROP INDEX instances_troubled;
CREATE INDEX instances_troubled ON instances (state, fire_time, task, ordinal, run, part) WHERE state >= 5 AND state < 10;

CREATE TABLE task_references (
    partition INTEGER NOT NULL,
    task INTEGER NOT NULL,
    target INTEGER NOT NULL,
    target_partition INTEGER NOT NULL,
    met_by INTEGER NOT NULL,
    PRIMARY KEY (partition, task, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_references_by_target ON task_references (target);
";

// Slots of groups, by the group's partition, whose owner reads them; and backfills, by the inbox entry that asked for them.
//
// What people do. tasks.label is the group of a task that has one. A pause of one task has its partition, whose owner reads it. The audit is only
// added to. A dead letter is settled once it is run again or discarded: the partial indexes have the others.
const V5: &str = "
CREATE TABLE group_slots (
    partition INTEGER NOT NULL,
    instance INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (partition, instance)
) STRICT, WITHOUT ROWID;

ALTER TABLE tasks ADD COLUMN label TEXT;
CREATE INDEX tasks_by_label ON tasks (label) WHERE label IS NOT NULL;

CREATE TABLE pauses (
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    task INTEGER,
    partition INTEGER,
    since INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    made_from TEXT,
    why TEXT,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    made_from TEXT,
    why TEXT,
    action INTEGER NOT NULL,
    task INTEGER,
    instance INTEGER,
    subject TEXT
) STRICT;
CREATE INDEX audit_by_task ON audit (task, id) WHERE task IS NOT NULL;
CREATE INDEX audit_by_instance ON audit (instance, id) WHERE instance IS NOT NULL;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT raise(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit BEGIN SELECT raise(ABORT, 'the audit is only added to'); END;

ALTER TABLE instances ADD COLUMN settled INTEGER NOT NULL DEFAULT 0;
UPDATE instances SET settled = 1 WHERE state = 5 AND part = 0 AND EXISTS (
    SELECT 1 FROM instances n WHERE n.fire_time = instances.fire_time AND n.task = instances.task
    AND n.ordinal = instances.ordinal AND n.run > instances.run AND n.part = 0);
CREATE INDEX dead_letters ON instances (fire_time, task, ordinal, run) WHERE state = 5 AND part = 0 AND settled = 0;
CREATE INDEX dead_letters_by_task ON instances (task, fire_time, ordinal, run) WHERE state = 5 AND part = 0 AND settled = 0;

CREATE TABLE backfills (
    id INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    at INTEGER NOT NULL,
    by TEXT NOT NULL,
    task INTEGER NOT NULL,
    state INTEGER NOT NULL,
    made INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX backfills_by_task ON backfills (task, id);
CREATE INDEX backfills_running ON backfills (partition) WHERE state = 0;
";

// The tasks that nodes of a task's workflow call.
const V6: &str = "
CREATE TABLE task_calls (
    task INTEGER NOT NULL,
    called INTEGER NOT NULL,
    PRIMARY KEY (task, called)
) STRICT, WITHOUT ROWID;
";

// What the API reads and keeps. Failures of one task, so that they are found without its successes. task_days has a row for each of the last
// 32 days of a task, whose place a later day takes. answers is what was answered under an idempotency key; without a status the call is under
// way.
const V7: &str = "
CREATE INDEX instances_troubled_by_task ON instances (task, state, fire_time, ordinal, run, part) WHERE state >= 5 AND state < 10;

CREATE TABLE task_days (
    task INTEGER NOT NULL,
    place INTEGER NOT NULL,
    day INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    stopped INTEGER NOT NULL,
    PRIMARY KEY (task, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE answers (
    key TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB
) STRICT;
CREATE INDEX answers_by_age ON answers (at);
";

// Accounts. users.admin is whether they may change users: somebody has to be left who may. Of secrets there are digests only.
const V8: &str = "
CREATE TABLE users (
    name TEXT PRIMARY KEY,
    password TEXT NOT NULL,
    grants BLOB NOT NULL,
    disabled INTEGER NOT NULL,
    admin INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    password_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX users_admin ON users (name) WHERE admin = 1;

CREATE TABLE sessions (
    digest BLOB PRIMARY KEY,
    owner TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ends_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_owner ON sessions (owner, seen_at);
CREATE INDEX sessions_by_end ON sessions (expires_at);

CREATE TABLE api_tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    grants BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) STRICT;
CREATE INDEX api_tokens_by_owner ON api_tokens (owner, id);
";

// How many nodes of a task call another one: what is called multiplies.
const V9: &str = "
ALTER TABLE task_calls ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
";

/// Brings the database to the newest schema, lays a new one out for `partitions`, and ends all leases: whoever had them is dead, which
/// the lock that the caller holds proves. Answers with the number of partitions.
pub(crate) fn prepare(database: &Database, connection: &mut Connection, partitions: u16) -> Result<u16, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|error| database.error(error))?;
    let found = version(database, &transaction)?;
    let prepared = (|| -> rusqlite::Result<u16> {
        for script in &MIGRATIONS[found as usize..] {
            transaction.execute_batch(script)?;
        }
        if found == 0 {
            lay_out(&transaction, partitions)?;
        }
        if found < NEWEST {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", NEWEST)?;
        }
        transaction.execute("DELETE FROM replicas", [])?;
        transaction.execute("UPDATE leases SET owner = NULL, expires_at = 0 WHERE owner IS NOT NULL", [])?;
        let partitions = transaction.query_row("SELECT value FROM meta WHERE name = 'partitions'", [], |row| row.get(0))?;
        transaction.commit()?;
        Ok(partitions)
    })();
    prepared.map_err(|error| database.error(error))
}

/// Checks that the file is ours and not newer, before anything in it is changed.
pub(crate) fn check(database: &Database, connection: &Connection) -> Result<(), StoreError> {
    version(database, connection).map(drop)
}

fn lay_out(connection: &Connection, partitions: u16) -> rusqlite::Result<()> {
    connection.execute("INSERT INTO meta (name, value) VALUES ('partitions', ?1)", [partitions])?;
    let mut lease = connection
        .prepare("INSERT INTO leases (partition, owner, epoch, expires_at, commit_seq, sequence) VALUES (?1, NULL, 0, 0, 0, 0)")?;
    for partition in 0..partitions {
        lease.execute([partition])?;
    }
    let mut count = connection.prepare("INSERT INTO counts (state, count) VALUES (?1, 0)")?;
    for state in punctual_core::instance::State::ALL {
        count.execute(params![crate::codes::Coded::code(state)])?;
    }
    Ok(())
}

/// The schema that the file has; 0: it is empty.
fn version(database: &Database, connection: &Connection) -> Result<u32, StoreError> {
    let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| database.error(error));
    let application_id = read("PRAGMA application_id")?;
    let user_version = read("PRAGMA user_version")?;
    let tables = read("SELECT count(*) FROM sqlite_schema")?;
    if application_id == 0 && user_version == 0 && tables == 0 {
        return Ok(0);
    }
    if application_id != i64::from(APPLICATION_ID) || user_version < 1 {
        return Err(database.corrupt("it belongs to another program"));
    }
    match u32::try_from(user_version) {
        Ok(found) if found <= NEWEST => Ok(found),
        found => Err(StoreError::NewerSchema { database: database.name(), found: found.unwrap_or(u32::MAX), known: NEWEST }),
    }
}
