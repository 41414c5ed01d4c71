//! What everyone else writes: task documents, manual triggers, cancellations; each with its inbox entry in one transaction.
//!
//! **Turns.** Numbers of inbox entries are given out before the transactions that write them end, and an owner reads on behind the highest
//! number it has seen: an entry that became visible below it would never be read. So whoever writes entries holds the row `inbox` of `gate`
//! from before the first number until the transaction has ended. Applications of documents hold the row `tasks` from their first look on:
//! what one compares, another one does not change.

use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version, partition_of};
use punctual_core::inbox::Submission;
use punctual_driver::ports::{Submitted, TaskDocument};
use rustc_hash::FxHashMap;
use sqlx::Row;

use crate::codec;
use crate::mysql::error::Failure;
use crate::mysql::rows::text;
use crate::mysql::session::Session;
use crate::mysql::sql::{literal, statements, tuples};
use crate::plan::{Change, Plan, Planner, StoredTask, request_hash};
use crate::set_aside::{KIND_CANCEL, KIND_DEFINITION, KIND_TRIGGER};

/// Tasks that are compared at a time.
const COMPARED_AT_ONCE: usize = 500;

async fn take_turn(session: &mut Session, gate: &str) -> Result<(), Failure> {
    session.rows(format!("SELECT name FROM gate WHERE name = '{gate}' FOR UPDATE")).await.map(drop)
}

/// Compares the documents with what is stored. Until the transaction ends nobody else applies any.
pub(crate) async fn compare(session: &mut Session, source: &str, documents: &[TaskDocument]) -> Result<Plan, Failure> {
    take_turn(session, "tasks").await?;
    let mut planner = Planner::new(documents);
    let counting: Vec<_> =
        documents.iter().enumerate().filter(|(index, task)| planner.counts(*index, task)).map(|(_, task)| task).collect();
    for some in counting.chunks(COMPARED_AT_ONCE) {
        let names = tuples(some, |values, task| values.bytes(task.definition.name.as_bytes()).done());
        let sql = format!(
            "SELECT t.name, t.id, t.version, t.removed, t.source, v.document FROM tasks t FORCE INDEX (tasks_by_name)
             LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.name IN {names}"
        );
        let found = session.rows(sql).await?;
        let mut stored = FxHashMap::default();
        for row in &found {
            stored.insert(row.try_get::<&[u8], _>(0)?, row);
        }
        for &task in some {
            let Some(row) = stored.get(task.definition.name.as_bytes()) else {
                planner.compare(task, None);
                continue;
            };
            let stored = StoredTask {
                id: TaskId(row.try_get(1)?),
                version: Version(row.try_get(2)?),
                is_removed: row.try_get::<u8, _>(3)? != 0,
                is_own: row.try_get::<&[u8], _>(4)? == source.as_bytes(),
                is_equal: row.try_get::<Option<&[u8]>, _>(5)? == Some(task.document.as_bytes()),
            };
            planner.compare(task, Some(stored));
        }
    }
    let sql = format!("SELECT id, name, version FROM tasks WHERE source = {} AND removed = 0 ORDER BY id", literal(source.as_bytes()));
    for row in &session.rows(sql).await? {
        planner.made_before(TaskId(row.try_get(0)?), &text(row, 1)?.unwrap_or_default(), Version(row.try_get(2)?));
    }
    Ok(planner.plan())
}

/// Writes what differs, each change with its inbox entry. In the transaction that compared.
pub(crate) async fn write(
    session: &mut Session,
    partitions: u16,
    source: &str,
    by: &str,
    plan: &Plan,
    now_sql: &str,
) -> Result<(), Failure> {
    let last = session.rows("SELECT CAST(COALESCE(MAX(id), 0) AS UNSIGNED) FROM tasks".to_owned()).await?;
    let last: u64 = last.first().ok_or(Failure::Sql(sqlx::Error::RowNotFound))?.try_get(0)?;
    let created = (last + 1..).zip(&plan.created).map(|(id, (name, document))| Change {
        task: TaskId(id),
        name: name.clone(),
        version: Version(1),
        document: Some(document.clone()),
    });
    let created: Vec<_> = created.collect();
    let changes: Vec<_> = created.iter().chain(&plan.changed).chain(&plan.removed).collect();
    let tasks = statements(
        "INSERT INTO tasks (id, name, `partition`, version, source, removed, updated_at) VALUES ",
        &changes,
        " ON DUPLICATE KEY UPDATE version = VALUES(version), source = VALUES(source), removed = VALUES(removed), \
         updated_at = VALUES(updated_at)",
        |values, change| {
            let values = values.unsigned(change.task.0).bytes(change.name.as_bytes()).unsigned(partition_of(&change.name, partitions).0);
            values.unsigned(change.version.0).bytes(source.as_bytes()).unsigned(change.document.is_none()).expression(now_sql);
        },
    );
    session.run_all(tasks).await?;
    let versions = statements(
        "INSERT INTO task_versions (task, version, created_at, created_by, document) VALUES ",
        &changes,
        "",
        |values, change| {
            let values = values.unsigned(change.task.0).unsigned(change.version.0).expression(now_sql).bytes(by.as_bytes());
            values.text(change.document.as_deref());
        },
    );
    session.run_all(versions).await?;
    let source = literal(source.as_bytes());
    for some in plan.taken_over.chunks(crate::mysql::sql::STATEMENT_ROWS_MAX) {
        let ids = crate::mysql::sql::list(some.iter().map(|task| task.0));
        session.run(format!("UPDATE tasks SET source = {source} WHERE id IN {ids}")).await?;
    }
    let entries =
        statements("INSERT INTO inbox (`partition`, made_at, made_by, kind, task, version) VALUES ", &changes, "", |values, change| {
            let values = values.unsigned(partition_of(&change.name, partitions).0).expression(now_sql).bytes(by.as_bytes());
            values.unsigned(KIND_DEFINITION).unsigned(change.task.0).unsigned(change.version.0);
        });
    if !entries.is_empty() {
        take_turn(session, "inbox").await?;
        session.run_all(entries).await?;
    }
    Ok(())
}

/// Inserts one entry; answers with its number. The caller has the turn.
async fn insert_entry(
    session: &mut Session,
    partition: PartitionId,
    by: &str,
    kind: u8,
    task: Option<TaskId>,
    body: &[u8],
    now_sql: &str,
) -> Result<InboxId, Failure> {
    let sql = "INSERT INTO inbox (`partition`, made_at, made_by, kind, task, body) VALUES ";
    let insert = statements(sql, [()], "", |values, ()| {
        let values = values.unsigned(partition.0).expression(now_sql).bytes(by.as_bytes()).unsigned(kind);
        values.optional(task.map(|task| task.0)).bytes(body);
    });
    session.run_all(insert).await?;
    let rows = session.rows("SELECT CAST(LAST_INSERT_ID() AS UNSIGNED)".to_owned()).await?;
    Ok(InboxId(rows.first().ok_or(Failure::Sql(sqlx::Error::RowNotFound))?.try_get(0)?))
}

/// Puts a manual trigger into the inbox, once a key. In a transaction.
pub(crate) async fn trigger(
    session: &mut Session,
    task: &str,
    by: &str,
    key: Option<&str>,
    submissions: &[Submission],
    now_sql: &str,
) -> Result<Submitted, Failure> {
    let body = codec::pack_submissions(submissions);
    let named = session.rows(format!("SELECT id, `partition`, removed FROM tasks WHERE name = {}", literal(task.as_bytes()))).await?;
    let Some(row) = named.first() else { return Ok(Submitted::NoSuchTask) };
    let (id, partition, is_removed) = (TaskId(row.try_get(0)?), PartitionId(row.try_get(1)?), row.try_get::<u8, _>(2)? != 0);
    // Of two with one key the second waits here, and finds what the first wrote.
    take_turn(session, "inbox").await?;
    let hash = request_hash(id, &body);
    if let Some(key) = key {
        let used =
            session.rows(format!("SELECT entry, request_hash FROM idempotency WHERE submission_key = {}", literal(key.as_bytes()))).await?;
        if let Some(row) = used.first() {
            let entry = InboxId(row.try_get(0)?);
            return Ok(if row.try_get::<&[u8], _>(1)? == hash { Submitted::Repeated { entry } } else { Submitted::KeyTaken });
        }
    }
    if is_removed {
        return Ok(Submitted::NoSuchTask);
    }
    let entry = insert_entry(session, partition, by, KIND_TRIGGER, Some(id), &body, now_sql).await?;
    if let Some(key) = key {
        let (key, hash) = (literal(key.as_bytes()), literal(&hash));
        let sql = format!(
            "INSERT INTO idempotency (submission_key, request_hash, entry, made_at) VALUES ({key}, {hash}, {}, {now_sql})",
            entry.0
        );
        session.run(sql).await?;
    }
    Ok(Submitted::Accepted { entry })
}

/// Puts a cancellation into the inbox. In a transaction.
pub(crate) async fn cancel(
    session: &mut Session,
    instance: InstanceId,
    by: &str,
    reason: Option<&str>,
    now_sql: &str,
) -> Result<Submitted, Failure> {
    if session.rows(format!("SELECT 1 FROM instances WHERE id = {} LIMIT 1", instance.0)).await?.is_empty() {
        return Ok(Submitted::NoSuchInstance);
    }
    take_turn(session, "inbox").await?;
    let body = codec::pack_cancel(instance, reason);
    let entry = insert_entry(session, instance.partition(), by, KIND_CANCEL, None, &body, now_sql).await?;
    Ok(Submitted::Accepted { entry })
}
