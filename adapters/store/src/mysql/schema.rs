//! The schema, its versions, and how a database is brought to the newest.
//!
//! `schema_version` has a row for each script of [`MIGRATIONS`] that was run. DDL commits by itself on these servers, so a script is run
//! statement by statement and each statement can be run again (`IF NOT EXISTS`, or what adds a column that is there by now is left out:
//! MySQL has no `IF NOT EXISTS` for columns); its row is written last. Whoever migrates holds a named
//! lock, so replicas that start at once do it one after another. A script, once released, is never edited.
//!
//! Names, keys and other text are bytes: no collation may call two names the same. Enum values are stored as the numbers of the `codes`
//! module. Timestamps are milliseconds since 1970.

use std::time::Duration;

use punctual_core::instance::State;
use punctual_driver::ports::StoreError;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};
use tokio::time::timeout;

use crate::codes::Coded;
use crate::mysql::error::{Database, Failure};
use crate::mysql::months;

/// One script a version, the oldest first. `{months}` stands for the partitions of a table that is kept by month.
const MIGRATIONS: &[&[&str]] = &[V1, V2, V3, V4, V5, V6, V7];

/// The newest schema that this program knows.
pub(crate) const NEWEST: u32 = MIGRATIONS.len() as u32;

/// The named lock of those who change tables; a server has one name space for all its databases.
pub(crate) const LOCK: &str = "CONCAT('punctual:', SHA1(DATABASE()))";
/// How long one replica waits for another one's change.
pub(crate) const LOCK_SECS: u64 = 60;
/// How long a statement of a migration may take.
const DDL_TIMEOUT: Duration = Duration::from_secs(600);

// Notes on what is not obvious:
// - leases has what is renewed, fences what commits are checked against; owner and epoch stand in both and change together. A commit locks
//   its fences for as long as it takes, and a renewal must not wait for it.
// - instances is clustered by firing, which is what makes it unique, is the order of listings, and has its month in front: a unique key of a
//   table with partitions must contain what it is partitioned by. Rows come in at the end, where all that is hot lies together.
// - live, troubled, keys and submissions stand for partial indexes, which these servers lack: only rows that belong there cost a write.
// - counts is by the first partition of the batch that changed them, whose lease keeps others away from the row; only the sums mean
//   something.
// - outputs knows its instance's fire time, to go with it when the month goes.
// - gate has the rows that writers of others take turns by: see the catalog module.
const V1: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS meta (
        name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
        value BIGINT NOT NULL
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS gate (
        name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS replicas (
        id VARBINARY(512) NOT NULL PRIMARY KEY,
        address VARBINARY(1024),
        since BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS leases (
        `partition` SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
        owner VARBINARY(512),
        epoch BIGINT UNSIGNED NOT NULL,
        expires_at BIGINT NOT NULL
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS fences (
        `partition` SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
        owner VARBINARY(512),
        epoch BIGINT UNSIGNED NOT NULL,
        commit_seq BIGINT UNSIGNED NOT NULL,
        sequence BIGINT UNSIGNED NOT NULL
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS tasks (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        name VARBINARY(1024) NOT NULL,
        `partition` SMALLINT UNSIGNED NOT NULL,
        version INT UNSIGNED NOT NULL,
        source VARBINARY(1024) NOT NULL,
        removed TINYINT UNSIGNED NOT NULL,
        updated_at BIGINT NOT NULL,
        UNIQUE KEY tasks_by_name (name),
        KEY tasks_by_source (source, removed)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS task_versions (
        task BIGINT UNSIGNED NOT NULL,
        version INT UNSIGNED NOT NULL,
        created_at BIGINT NOT NULL,
        created_by VARBINARY(1024) NOT NULL,
        document LONGBLOB,
        PRIMARY KEY (task, version)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS task_states (
        `partition` SMALLINT UNSIGNED NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        version INT UNSIGNED,
        next_fire BIGINT,
        fired_until BIGINT,
        PRIMARY KEY (`partition`, task)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS instances (
        fire_time BIGINT NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        ordinal BIGINT UNSIGNED NOT NULL,
        run INT UNSIGNED NOT NULL,
        id BIGINT UNSIGNED NOT NULL,
        version INT UNSIGNED NOT NULL,
        origin TINYINT UNSIGNED NOT NULL,
        state TINYINT UNSIGNED NOT NULL,
        fence BIGINT UNSIGNED NOT NULL,
        attempt INT UNSIGNED NOT NULL,
        failures INT UNSIGNED NOT NULL,
        losses INT UNSIGNED NOT NULL,
        worker VARBINARY(1024),
        worker_life BIGINT UNSIGNED,
        due_at BIGINT,
        submission_key VARBINARY(1024),
        transitions LONGBLOB NOT NULL,
        payload LONGBLOB,
        PRIMARY KEY (fire_time, task, ordinal, run),
        KEY instances_by_id (id),
        KEY instances_by_task (task, fire_time)
    ) ENGINE = InnoDB PARTITION BY RANGE (fire_time) ({months})",
    "CREATE TABLE IF NOT EXISTS live (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        fire_time BIGINT NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        ordinal BIGINT UNSIGNED NOT NULL,
        run INT UNSIGNED NOT NULL
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS troubled (
        state TINYINT UNSIGNED NOT NULL,
        fire_time BIGINT NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        ordinal BIGINT UNSIGNED NOT NULL,
        run INT UNSIGNED NOT NULL,
        PRIMARY KEY (state, fire_time, task, ordinal, run)
    ) ENGINE = InnoDB PARTITION BY RANGE (fire_time) ({months})",
    "CREATE TABLE IF NOT EXISTS submission_keys (
        submission_key VARBINARY(1024) NOT NULL,
        fire_time BIGINT NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        ordinal BIGINT UNSIGNED NOT NULL,
        run INT UNSIGNED NOT NULL,
        PRIMARY KEY (submission_key, fire_time, task, ordinal, run)
    ) ENGINE = InnoDB PARTITION BY RANGE (fire_time) ({months})",
    "CREATE TABLE IF NOT EXISTS submissions (
        ordinal BIGINT UNSIGNED NOT NULL,
        run INT UNSIGNED NOT NULL,
        fire_time BIGINT NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        PRIMARY KEY (ordinal, run, fire_time, task)
    ) ENGINE = InnoDB PARTITION BY RANGE (fire_time) ({months})",
    "CREATE TABLE IF NOT EXISTS outputs (
        instance BIGINT UNSIGNED NOT NULL,
        attempt INT UNSIGNED NOT NULL,
        fire_time BIGINT NOT NULL,
        dropped BIGINT UNSIGNED NOT NULL,
        bytes LONGBLOB NOT NULL,
        PRIMARY KEY (instance, attempt, fire_time)
    ) ENGINE = InnoDB PARTITION BY RANGE (fire_time) ({months})",
    "CREATE TABLE IF NOT EXISTS occurrences (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
        task BIGINT UNSIGNED NOT NULL,
        version INT UNSIGNED NOT NULL,
        fire_time BIGINT NOT NULL,
        last_fire_time BIGINT NOT NULL,
        fire_times BIGINT UNSIGNED NOT NULL,
        outcome TINYINT UNSIGNED NOT NULL,
        instance BIGINT UNSIGNED,
        made_at BIGINT NOT NULL,
        PRIMARY KEY (id, fire_time),
        KEY occurrences_by_task (task, fire_time, id)
    ) ENGINE = InnoDB PARTITION BY RANGE (fire_time) ({months})",
    "CREATE TABLE IF NOT EXISTS counts (
        `partition` SMALLINT UNSIGNED NOT NULL,
        state TINYINT UNSIGNED NOT NULL,
        instances BIGINT NOT NULL,
        PRIMARY KEY (`partition`, state)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS inbox (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        `partition` SMALLINT UNSIGNED NOT NULL,
        made_at BIGINT NOT NULL,
        made_by VARBINARY(1024) NOT NULL,
        kind TINYINT UNSIGNED NOT NULL,
        task BIGINT UNSIGNED,
        version INT UNSIGNED,
        body LONGBLOB,
        KEY inbox_by_partition (`partition`, id)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS idempotency (
        submission_key VARBINARY(1024) NOT NULL PRIMARY KEY,
        request_hash BINARY(16) NOT NULL,
        entry BIGINT UNSIGNED NOT NULL,
        made_at BIGINT NOT NULL,
        KEY idempotency_by_age (made_at)
    ) ENGINE = InnoDB",
    "INSERT IGNORE INTO gate (name) VALUES ('inbox'), ('tasks')",
];

// Parts of firings, and what the ends of tasks make fire. task_references is by the partition of the task that ends, whose owner reads it.
const V2: &[&str] = &[
    "ALTER TABLE instances ADD COLUMN part BIGINT UNSIGNED NOT NULL DEFAULT 0, ADD COLUMN more LONGBLOB,
        DROP PRIMARY KEY, ADD PRIMARY KEY (fire_time, task, ordinal, run, part)",
    "ALTER TABLE live ADD COLUMN part BIGINT UNSIGNED NOT NULL DEFAULT 0",
    "ALTER TABLE troubled ADD COLUMN part BIGINT UNSIGNED NOT NULL DEFAULT 0,
        DROP PRIMARY KEY, ADD PRIMARY KEY (state, fire_time, task, ordinal, run, part)",
    "CREATE TABLE IF NOT EXISTS task_references (
        `partition` SMALLINT UNSIGNED NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        target BIGINT UNSIGNED NOT NULL,
        target_partition SMALLINT UNSIGNED NOT NULL,
        met_by TINYINT UNSIGNED NOT NULL,
        PRIMARY KEY (`partition`, task, target),
        KEY task_references_by_target (target)
    ) ENGINE = InnoDB",
];

// Slots of groups, by the group's partition, whose owner reads them; and backfills, by the inbox entry that asked for them.
//
// What people do. tasks.label is the group of a task that has one. A pause of one task has its partition, whose owner reads it. The audit is only
// added to. dead_letters has those that were neither run again nor discarded: what listing them costs does not grow with what was settled.
const V3: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS group_slots (
        `partition` SMALLINT UNSIGNED NOT NULL,
        instance BIGINT UNSIGNED NOT NULL,
        body LONGBLOB NOT NULL,
        PRIMARY KEY (`partition`, instance)
    ) ENGINE = InnoDB",
    "ALTER TABLE tasks ADD COLUMN label VARBINARY(1024), ADD KEY tasks_by_label (label)",
    "CREATE TABLE IF NOT EXISTS pauses (
        kind TINYINT UNSIGNED NOT NULL,
        name VARBINARY(1024) NOT NULL,
        task BIGINT UNSIGNED,
        `partition` SMALLINT UNSIGNED,
        since BIGINT NOT NULL,
        made_by VARBINARY(1024) NOT NULL,
        made_from VARBINARY(1024),
        why BLOB,
        PRIMARY KEY (kind, name)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS audit (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        made_at BIGINT NOT NULL,
        made_by VARBINARY(1024) NOT NULL,
        made_from VARBINARY(1024),
        why BLOB,
        action TINYINT UNSIGNED NOT NULL,
        task BIGINT UNSIGNED,
        instance BIGINT UNSIGNED,
        subject VARBINARY(1024),
        KEY audit_by_task (task, id),
        KEY audit_by_instance (instance, id)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS dead_letters (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        fire_time BIGINT NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        ordinal BIGINT UNSIGNED NOT NULL,
        run INT UNSIGNED NOT NULL,
        KEY dead_letters_by_place (fire_time, task, ordinal, run),
        KEY dead_letters_by_task (task, fire_time, ordinal, run)
    ) ENGINE = InnoDB",
    "INSERT IGNORE INTO dead_letters (id, fire_time, task, ordinal, run)
        SELECT i.id, i.fire_time, i.task, i.ordinal, i.run FROM troubled d STRAIGHT_JOIN instances i
        ON i.fire_time = d.fire_time AND i.task = d.task AND i.ordinal = d.ordinal AND i.run = d.run AND i.part = d.part
        WHERE d.state = 5 AND d.part = 0 AND NOT EXISTS (
            SELECT 1 FROM instances n WHERE n.fire_time = i.fire_time AND n.task = i.task AND n.ordinal = i.ordinal AND n.run > i.run
            AND n.part = 0)",
    "CREATE TABLE IF NOT EXISTS backfills (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        `partition` SMALLINT UNSIGNED NOT NULL,
        asked_at BIGINT NOT NULL,
        asked_by VARBINARY(1024) NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        state TINYINT UNSIGNED NOT NULL,
        made INT UNSIGNED NOT NULL,
        ended INT UNSIGNED NOT NULL,
        body LONGBLOB NOT NULL,
        KEY backfills_by_task (task, id),
        KEY backfills_running (`partition`, state)
    ) ENGINE = InnoDB",
];

// The tasks that nodes of a task's workflow call.
const V4: &[&str] = &["CREATE TABLE IF NOT EXISTS task_calls (
        task BIGINT UNSIGNED NOT NULL,
        called BIGINT UNSIGNED NOT NULL,
        PRIMARY KEY (task, called)
    ) ENGINE = InnoDB"];

// What the API reads and keeps. Failures of one task, so that they are found without its successes. task_days has a row for each of the last
// 32 days of a task, whose place a later day takes. answers is what was answered under an idempotency key; without a status the call is under
// way.
const V5: &[&str] = &[
    "ALTER TABLE troubled ADD KEY troubled_by_task (task, state, fire_time, ordinal, run, part)",
    "CREATE TABLE IF NOT EXISTS task_days (
        task BIGINT UNSIGNED NOT NULL,
        place TINYINT UNSIGNED NOT NULL,
        day BIGINT NOT NULL,
        succeeded BIGINT UNSIGNED NOT NULL,
        failed BIGINT UNSIGNED NOT NULL,
        stopped BIGINT UNSIGNED NOT NULL,
        PRIMARY KEY (task, place)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS answers (
        answer_key VARBINARY(1024) NOT NULL PRIMARY KEY,
        digest BINARY(32) NOT NULL,
        made_at BIGINT NOT NULL,
        status SMALLINT UNSIGNED,
        headers BLOB,
        body LONGBLOB,
        KEY answers_by_age (made_at)
    ) ENGINE = InnoDB",
];

// Accounts. users.admin is whether they may change users: somebody has to be left who may. Of secrets there are digests only.
const V6: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS users (
        name VARBINARY(512) NOT NULL PRIMARY KEY,
        password VARBINARY(1024) NOT NULL,
        grants BLOB NOT NULL,
        disabled TINYINT UNSIGNED NOT NULL,
        admin TINYINT UNSIGNED NOT NULL,
        created_at BIGINT NOT NULL,
        password_at BIGINT NOT NULL,
        KEY users_admin (admin, name)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS sessions (
        digest BINARY(32) NOT NULL PRIMARY KEY,
        owner VARBINARY(512) NOT NULL,
        created_at BIGINT NOT NULL,
        seen_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        ends_at BIGINT NOT NULL,
        KEY sessions_by_owner (owner, seen_at),
        KEY sessions_by_end (expires_at)
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS api_tokens (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        digest BINARY(32) NOT NULL,
        name VARBINARY(1024) NOT NULL,
        owner VARBINARY(512) NOT NULL,
        grants BLOB NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        used_at BIGINT,
        UNIQUE KEY api_tokens_by_digest (digest),
        KEY api_tokens_by_owner (owner, id)
    ) ENGINE = InnoDB",
    "INSERT IGNORE INTO gate (name) VALUES ('accounts')",
];

// How many nodes of a task call another one: what is called multiplies. And lines of attempts, by the day on which they were written, with
// which they go. Partitions of days are made by whoever keeps them.
const V7: &[&str] = &[
    "ALTER TABLE task_calls ADD COLUMN times INT UNSIGNED NOT NULL DEFAULT 1",
    "CREATE TABLE IF NOT EXISTS log_lines (
        instance BIGINT UNSIGNED NOT NULL,
        fence BIGINT UNSIGNED NOT NULL,
        seq BIGINT UNSIGNED NOT NULL,
        day INT NOT NULL,
        attempt INT UNSIGNED NOT NULL,
        task BIGINT UNSIGNED NOT NULL,
        worker VARBINARY(1024) NOT NULL,
        trace BINARY(16) NOT NULL,
        written_at BIGINT NOT NULL,
        level TINYINT UNSIGNED NOT NULL,
        dropped BIGINT UNSIGNED NOT NULL,
        message BLOB NOT NULL,
        PRIMARY KEY (instance, fence, seq, day)
    ) ENGINE = InnoDB PARTITION BY RANGE (day) (PARTITION later VALUES LESS THAN MAXVALUE)",
];

async fn run(connection: &mut MySqlConnection, sql: String) -> Result<(), Failure> {
    timeout(DDL_TIMEOUT, sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection)).await.map_err(|_| Failure::Timeout)??;
    Ok(())
}

async fn number(connection: &mut MySqlConnection, sql: String) -> Result<Option<i64>, Failure> {
    let rows = timeout(DDL_TIMEOUT, sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection)).await.map_err(|_| Failure::Timeout)??;
    Ok(match rows.first() {
        Some(row) => row.try_get(0)?,
        None => None,
    })
}

/// Brings the database to the newest schema, and lays a new one out for `partitions`. Answers with the number of partitions that it has.
pub(crate) async fn migrate(database: &Database, connection: &mut MySqlConnection, partitions: u16) -> Result<u16, StoreError> {
    let error = |failure| database.error(failure);
    let taken = number(connection, format!("SELECT CAST(GET_LOCK({LOCK}, {LOCK_SECS}) AS SIGNED)")).await.map_err(error)?;
    if taken != Some(1) {
        return Err(taken_too_long(database));
    }
    let migrated = locked(database, connection, partitions).await;
    // It goes with the connection, whatever happens here.
    let _ = number(connection, format!("SELECT CAST(RELEASE_LOCK({LOCK}) AS SIGNED)")).await;
    migrated
}

/// Another one has had the lock for too long.
pub(crate) fn taken_too_long(database: &Database) -> StoreError {
    let reason = format!("another replica has been changing its tables for more than {LOCK_SECS} s");
    StoreError::Busy { database: database.name(), reason }
}

async fn locked(database: &Database, connection: &mut MySqlConnection, partitions: u16) -> Result<u16, StoreError> {
    let found = version(connection).await.map_err(|failure| database.error(failure))?;
    if found > NEWEST {
        return Err(StoreError::NewerSchema { database: database.name(), found, known: NEWEST });
    }
    apply(connection, found, partitions).await.map_err(|failure| database.error(failure))
}

/// The schema that the database has, which is left as it is; 0: none.
pub(crate) async fn found(connection: &mut MySqlConnection) -> Result<u32, Failure> {
    let sql = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.tables
         WHERE table_schema = DATABASE() AND table_name = 'schema_version'";
    match number(connection, sql.to_owned()).await? {
        Some(1) => newest_applied(connection).await,
        _ => Ok(0),
    }
}

/// The schema that the database has, which may be made ready for one; 0: none.
async fn version(connection: &mut MySqlConnection) -> Result<u32, Failure> {
    let table =
        "CREATE TABLE IF NOT EXISTS schema_version (version INT UNSIGNED NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL) ENGINE = InnoDB";
    run(connection, table.to_owned()).await?;
    newest_applied(connection).await
}

async fn newest_applied(connection: &mut MySqlConnection) -> Result<u32, Failure> {
    let found = number(connection, "SELECT CAST(MAX(version) AS SIGNED) FROM schema_version".to_owned()).await?;
    Ok(u32::try_from(found.unwrap_or(0)).unwrap_or(u32::MAX))
}

async fn apply(connection: &mut MySqlConnection, found: u32, partitions: u16) -> Result<u16, Failure> {
    for (version, script) in (1_u32..).zip(MIGRATIONS) {
        if version <= found {
            continue;
        }
        let now = number(connection, "SELECT CAST(UNIX_TIMESTAMP() AS SIGNED) * 1000".to_owned()).await?.unwrap_or(0);
        let months = months::definitions(now);
        for statement in *script {
            if !has_added_column(connection, statement).await? {
                run(connection, statement.replace("{months}", &months)).await?;
            }
        }
        if version == 1 {
            lay_out(connection, partitions).await?;
        }
        run(connection, format!("INSERT INTO schema_version (version, applied_at) VALUES ({version}, {now})")).await?;
    }
    partitions_of(connection).await
}

/// How many partitions the database was laid out for.
pub(crate) async fn partitions_of(connection: &mut MySqlConnection) -> Result<u16, Failure> {
    let laid_out = number(connection, "SELECT value FROM meta WHERE name = 'partitions'".to_owned()).await?;
    let laid_out = laid_out.and_then(|partitions| u16::try_from(partitions).ok());
    laid_out.ok_or(Failure::Malformed(crate::codec::Malformed("the number of partitions is not there")))
}

/// Whether a statement adds a column or a key that is there: it was run before, by a migration that was broken off behind it.
async fn has_added_column(connection: &mut MySqlConnection, statement: &str) -> Result<bool, Failure> {
    let mut words = statement.split_whitespace();
    let (Some("ALTER"), Some("TABLE"), Some(table), Some("ADD"), Some(kind), Some(added)) =
        (words.next(), words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Ok(false);
    };
    let (known, name) = match kind {
        "COLUMN" => ("columns", "column_name"),
        "KEY" => ("statistics", "index_name"),
        _ => return Ok(false),
    };
    let sql = format!(
        "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.{known}
         WHERE table_schema = DATABASE() AND table_name = '{table}' AND {name} = '{added}'"
    );
    Ok(number(connection, sql).await?.is_some_and(|count| count > 0))
}

/// Fixes the number of partitions, in one transaction.
async fn lay_out(connection: &mut MySqlConnection, partitions: u16) -> Result<(), Failure> {
    let each = |row: &dyn Fn(u16) -> String| (0..partitions).map(row).collect::<Vec<_>>().join(",");
    let leases = each(&|partition| format!("({partition}, 0, 0)"));
    let fences = each(&|partition| format!("({partition}, 0, 0, 0)"));
    let counts: Vec<_> = State::ALL.into_iter().map(|state| format!("(0, {}, 0)", state.code())).collect();
    for sql in [
        "START TRANSACTION".to_owned(),
        // A layout that was begun and not finished has no version yet; it is replaced.
        "DELETE FROM leases".to_owned(),
        "DELETE FROM fences".to_owned(),
        "DELETE FROM counts".to_owned(),
        format!("INSERT INTO leases (`partition`, epoch, expires_at) VALUES {leases}"),
        format!("INSERT INTO fences (`partition`, epoch, commit_seq, sequence) VALUES {fences}"),
        format!("INSERT INTO counts (`partition`, state, instances) VALUES {}", counts.join(",")),
        format!("REPLACE INTO meta (name, value) VALUES ('partitions', {partitions})"),
        "COMMIT".to_owned(),
    ] {
        run(connection, sql).await?;
    }
    Ok(())
}
