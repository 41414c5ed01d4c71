//! What everyone may read: tasks, instances, outputs, occurrences, counts, replicas, partitions.
//!
//! Every page is found through an index and starts where the last one ended. Which index is said in the query: a wrong guess over a hundred
//! million rows is no page at all.

use std::fmt::Write;
use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::{Epoch, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::instance::{Part, State};
use punctual_core::occurrence::Occurrence;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    DeadLetterFilter, InstanceCursor, InstanceFilter, InstanceView, OCCURRENCES_LOOKED_AT, PartitionView, ReplicaView, TaskView,
    VersionView,
};
use rustc_hash::FxHashMap;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::codes::{Coded, LIVE_STATES_END, TROUBLED_STATES_END};
use crate::mysql::error::Failure;
use crate::mysql::rows::{self, INSTANCE_COLUMNS, INSTANCE_COLUMNS_COUNT, coded, required_text, text};
use crate::mysql::session::Session;
use crate::mysql::sql::literal;

pub(crate) const TASKS: &str = "SELECT t.id, t.name, t.version, t.removed, s.next_fire,
         COALESCE(v.document, (SELECT w.document FROM task_versions w
                               WHERE w.task = t.id AND w.document IS NOT NULL ORDER BY w.version DESC LIMIT 1)),
         t.source
     FROM tasks t
     LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version
     LEFT JOIN task_states s ON s.`partition` = t.`partition` AND s.task = t.id";

pub(crate) fn task_view(row: &MySqlRow) -> Result<TaskView, Failure> {
    Ok(TaskView {
        task: TaskId(row.try_get(0)?),
        name: required_text(row, 1)?,
        version: Version(row.try_get(2)?),
        removed: row.try_get::<u8, _>(3)? != 0,
        next_fire: row.try_get::<Option<i64>, _>(4)?.map(Timestamp),
        document: required_text(row, 5)?,
        source: required_text(row, 6)?,
    })
}

pub(crate) async fn tasks(session: &mut Session, after: Option<&str>, limit: usize) -> Result<Vec<TaskView>, Failure> {
    session.rows(tasks_sql(after, limit)).await?.iter().map(task_view).collect()
}

fn tasks_sql(after: Option<&str>, limit: usize) -> String {
    // No name is empty, so all are behind the empty one.
    let after = literal(after.unwrap_or("").as_bytes());
    format!(
        "{} WHERE t.name > {after} AND t.removed = 0 ORDER BY t.name LIMIT {limit}",
        TASKS.replace("tasks t\n", "tasks t FORCE INDEX (tasks_by_name)\n")
    )
}

pub(crate) async fn task_now(session: &mut Session, name: &str) -> Result<Option<TaskView>, Failure> {
    let found = session.rows(format!("{TASKS} WHERE t.name = {}", literal(name.as_bytes()))).await?;
    found.first().map(task_view).transpose()
}

pub(crate) async fn task(session: &mut Session, name: &str) -> Result<Option<(TaskView, Vec<VersionView>)>, Failure> {
    let Some(view) = task_now(session, name).await? else { return Ok(None) };
    let sql =
        format!("SELECT version, created_at, created_by, document FROM task_versions WHERE task = {} ORDER BY version DESC", view.task.0);
    let version = |row: &MySqlRow| {
        let (version, at) = (Version(row.try_get(0)?), Timestamp(row.try_get(1)?));
        Ok(VersionView { version, at, by: required_text(row, 2)?, document: text(row, 3)? })
    };
    let versions = session.rows(sql).await?.iter().map(version).collect::<Result<_, Failure>>()?;
    Ok(Some((view, versions)))
}

/// The nodes of a run, in the order of their parts.
pub(crate) async fn nodes(session: &mut Session, run: InstanceId) -> Result<Vec<InstanceView>, Failure> {
    let sql = format!(
        "SELECT {INSTANCE_COLUMNS}, t.name FROM instances w FORCE INDEX (instances_by_id) STRAIGHT_JOIN instances i FORCE INDEX (PRIMARY)
         ON i.fire_time = w.fire_time AND i.task = w.task AND i.ordinal = w.ordinal AND i.run = w.run
         LEFT JOIN tasks t ON t.id = i.task
         WHERE w.id = {} AND w.part = 0 AND i.part > 0 AND i.part & 4294967295 = 0 ORDER BY i.part",
        run.0
    );
    session.rows(sql).await?.iter().map(instance_view).collect()
}

pub(crate) async fn name_of(session: &mut Session, task: TaskId) -> Result<Option<Arc<str>>, Failure> {
    let found = session.rows(format!("SELECT name FROM tasks WHERE id = {}", task.0)).await?;
    found.first().map(|row| required_text(row, 0)).transpose()
}

pub(crate) async fn task_id(session: &mut Session, name: &str) -> Result<Option<TaskId>, Failure> {
    let found = session.rows(format!("SELECT id FROM tasks WHERE name = {}", literal(name.as_bytes()))).await?;
    Ok(match found.first() {
        Some(row) => Some(TaskId(row.try_get(0)?)),
        None => None,
    })
}

pub(crate) fn instance_view(row: &MySqlRow) -> Result<InstanceView, Failure> {
    Ok(InstanceView { row: rows::instance(row)?, task_name: required_text(row, INSTANCE_COLUMNS_COUNT)? })
}

pub(crate) async fn instances(session: &mut Session, filter: &InstanceFilter) -> Result<Vec<InstanceView>, Failure> {
    let task = match &filter.task {
        None => None,
        Some(name) => match task_id(session, name).await? {
            Some(task) => Some(task),
            None => return Ok(Vec::new()),
        },
    };
    session.rows(instances_sql(filter, task)).await?.iter().map(instance_view).collect()
}

pub(crate) const WITH_INSTANCE: &str = "STRAIGHT_JOIN instances i ON i.fire_time = d.fire_time AND i.task = d.task AND i.ordinal = d.ordinal \
     AND i.run = d.run AND i.part = ";

/// The query for a filter. `d` is the table whose index has the order, `i` has the rows.
fn instances_sql(filter: &InstanceFilter, task: Option<TaskId>) -> String {
    let state = filter.state.map(Coded::code);
    // Where the rows themselves have the index, they are the driving table.
    let (from, d) = match (state, task) {
        _ if filter.key.is_some() => (format!("submission_keys d {WITH_INSTANCE} 0"), "d"),
        (Some(state), _) if state < LIVE_STATES_END => (format!("live d {WITH_INSTANCE} d.part"), "d"),
        (_, Some(_)) => ("instances i FORCE INDEX (instances_by_task)".to_owned(), "i"),
        (Some(state), None) if state < TROUBLED_STATES_END => (format!("troubled d FORCE INDEX (PRIMARY) {WITH_INSTANCE} d.part"), "d"),
        (_, None) => ("instances i FORCE INDEX (PRIMARY)".to_owned(), "i"),
    };
    let mut sql = format!("SELECT {INSTANCE_COLUMNS}, t.name FROM {from} LEFT JOIN tasks t ON t.id = i.task WHERE TRUE");
    // Keys are those of whole firings, and their index has no parts.
    let part_of = if filter.key.is_some() { "i" } else { d };
    // Writing to a String can't fail.
    if let Some(key) = &filter.key {
        let _ = write!(sql, " AND d.submission_key = {}", literal(key.as_bytes()));
    }
    if let Some(task) = task {
        let _ = write!(sql, " AND {d}.task = {}", task.0);
    }
    if filter.whole {
        sql.push_str(" AND i.part = 0");
    }
    if let Some(state) = state {
        let _ = write!(sql, " AND i.state = {state}");
        if from.starts_with("troubled") {
            let _ = write!(sql, " AND d.state = {state}");
        }
    }
    if let Some(before) = &filter.before {
        put_before(&mut sql, d, part_of, before);
    }
    let _ = write!(
        sql,
        " ORDER BY {d}.fire_time DESC, {d}.task DESC, {d}.ordinal DESC, {d}.run DESC, {part_of}.part DESC LIMIT {}",
        filter.limit
    );
    sql
}

/// What lies behind a place, spelled out: these servers don't search an index by a comparison of rows.
pub(crate) fn put_before(sql: &mut String, d: &str, part_of: &str, before: &InstanceCursor) {
    let InstanceCursor { fire_time: Timestamp(fire_time), task: TaskId(task), ordinal, run, part: Part(part) } = *before;
    let _ = write!(
        sql,
        " AND {d}.fire_time <= {fire_time} AND ({d}.fire_time < {fire_time} OR {d}.task < {task} OR ({d}.task = {task} AND \
         ({d}.ordinal < {ordinal} OR ({d}.ordinal = {ordinal} AND ({d}.run < {run} OR ({d}.run = {run} AND {part_of}.part < {part}))))))"
    );
}

/// Dead letters that nobody has settled, newest first.
pub(crate) async fn dead_letters(session: &mut Session, filter: &DeadLetterFilter) -> Result<Vec<InstanceView>, Failure> {
    let task = match &filter.task {
        None => None,
        Some(name) => match task_id(session, name).await? {
            Some(task) => Some(task),
            None => return Ok(Vec::new()),
        },
    };
    session.rows(dead_letters_sql(filter, task)).await?.iter().map(instance_view).collect()
}

fn dead_letters_sql(filter: &DeadLetterFilter, task: Option<TaskId>) -> String {
    let index = if task.is_some() { "dead_letters_by_task" } else { "dead_letters_by_place" };
    let mut sql = format!(
        "SELECT {INSTANCE_COLUMNS}, t.name FROM dead_letters d FORCE INDEX ({index}) {WITH_INSTANCE} 0
         LEFT JOIN tasks t ON t.id = i.task WHERE TRUE"
    );
    // Writing to a String can't fail.
    if let Some(task) = task {
        let _ = write!(sql, " AND d.task = {}", task.0);
    }
    if let Some(before) = &filter.before {
        put_before(&mut sql, "d", "i", before);
    }
    let _ = write!(sql, " ORDER BY d.fire_time DESC, d.task DESC, d.ordinal DESC, d.run DESC LIMIT {}", filter.limit);
    sql
}

pub(crate) async fn instance(session: &mut Session, id: InstanceId) -> Result<Option<InstanceView>, Failure> {
    let sql =
        format!("SELECT {INSTANCE_COLUMNS}, t.name FROM instances i LEFT JOIN tasks t ON t.id = i.task WHERE i.id = {} LIMIT 1", id.0);
    session.rows(sql).await?.first().map(instance_view).transpose()
}

pub(crate) async fn instance_of_submission(session: &mut Session, ordinal: u64) -> Result<Option<InstanceView>, Failure> {
    let sql = format!(
        "SELECT {INSTANCE_COLUMNS}, t.name FROM submissions d {WITH_INSTANCE} 0 LEFT JOIN tasks t ON t.id = i.task
         WHERE d.ordinal = {ordinal} ORDER BY d.run LIMIT 1"
    );
    session.rows(sql).await?.first().map(instance_view).transpose()
}

pub(crate) async fn outputs(session: &mut Session, id: InstanceId) -> Result<Vec<(u32, Output)>, Failure> {
    let sql = format!("SELECT attempt, bytes, dropped FROM outputs WHERE instance = {} ORDER BY attempt", id.0);
    let output = |row: &MySqlRow| Ok((row.try_get(0)?, Output { bytes: row.try_get(1)?, dropped: row.try_get(2)? }));
    session.rows(sql).await?.iter().map(output).collect()
}

pub(crate) async fn occurrences(session: &mut Session, task: &str, limit: usize) -> Result<Vec<Occurrence>, Failure> {
    let Some(task) = task_id(session, task).await? else { return Ok(Vec::new()) };
    found_occurrences(session, task, occurrences_sql(task, "", limit)).await
}

pub(crate) async fn occurrences_around(
    session: &mut Session,
    task: &str,
    from: Timestamp,
    until: Timestamp,
) -> Result<Vec<Occurrence>, Failure> {
    let Some(task) = task_id(session, task).await? else { return Ok(Vec::new()) };
    let sql = occurrences_sql(task, &format!("AND fire_time < {}", until.0), OCCURRENCES_LOOKED_AT);
    let mut found = found_occurrences(session, task, sql).await?;
    found.retain(|occurrence| occurrence.last >= from);
    Ok(found)
}

async fn found_occurrences(session: &mut Session, task: TaskId, sql: String) -> Result<Vec<Occurrence>, Failure> {
    let occurrence = |row: &MySqlRow| {
        Ok(Occurrence {
            task,
            version: Version(row.try_get(0)?),
            first: Timestamp(row.try_get(1)?),
            last: Timestamp(row.try_get(2)?),
            count: row.try_get(3)?,
            outcome: coded(row, 4)?,
            instance: row.try_get::<Option<u64>, _>(5)?.map(InstanceId),
            at: Timestamp(row.try_get(6)?),
        })
    };
    session.rows(sql).await?.iter().map(occurrence).collect()
}

fn occurrences_sql(task: TaskId, only: &str, limit: usize) -> String {
    format!(
        "SELECT version, fire_time, last_fire_time, fire_times, outcome, instance, made_at
         FROM occurrences FORCE INDEX (occurrences_by_task) WHERE task = {} {only} ORDER BY fire_time DESC, id DESC LIMIT {limit}",
        task.0
    )
}

pub(crate) async fn counts(session: &mut Session) -> Result<Vec<(State, u64)>, Failure> {
    let sql = "SELECT state, CAST(SUM(instances) AS SIGNED) AS sum FROM counts GROUP BY state HAVING sum > 0 ORDER BY state";
    let count = |row: &MySqlRow| Ok((coded(row, 0)?, row.try_get::<i64, _>(1)?.unsigned_abs()));
    session.rows(sql.to_owned()).await?.iter().map(count).collect()
}

pub(crate) async fn replicas(session: &mut Session) -> Result<Vec<ReplicaView>, Failure> {
    let view = |row: &MySqlRow| {
        let (since, expires_at) = (Timestamp(row.try_get(2)?), Timestamp(row.try_get(3)?));
        Ok(ReplicaView { id: ReplicaId(required_text(row, 0)?), address: text(row, 1)?, since, expires_at })
    };
    session.rows("SELECT id, address, since, expires_at FROM replicas ORDER BY id".to_owned()).await?.iter().map(view).collect()
}

pub(crate) async fn partition_views(session: &mut Session) -> Result<Vec<PartitionView>, Failure> {
    let inbox = counted(session, "SELECT `partition`, COUNT(*) FROM inbox GROUP BY `partition`").await?;
    let live = counted(session, "SELECT CAST(id >> 48 AS UNSIGNED) AS shard, COUNT(*) FROM live GROUP BY shard").await?;
    let sql = "SELECT l.`partition`, l.owner, l.epoch, l.expires_at, f.commit_seq FROM leases l
               JOIN fences f ON f.`partition` = l.`partition` ORDER BY l.`partition`";
    let view = |row: &MySqlRow| {
        let partition = PartitionId(row.try_get(0)?);
        let count = |counts: &FxHashMap<PartitionId, u64>| counts.get(&partition).copied().unwrap_or(0);
        Ok(PartitionView {
            partition,
            owner: text(row, 1)?.map(ReplicaId),
            epoch: Epoch(row.try_get(2)?),
            expires_at: Timestamp(row.try_get(3)?),
            commit_seq: row.try_get(4)?,
            inbox: count(&inbox),
            live: count(&live),
        })
    };
    session.rows(sql.to_owned()).await?.iter().map(view).collect()
}

async fn counted(session: &mut Session, sql: &str) -> Result<FxHashMap<PartitionId, u64>, Failure> {
    let rows = session.rows(sql.to_owned()).await?;
    // The one kind of column or the other: numbers of partitions fit both.
    let count = |row: &MySqlRow| {
        let partition = row.try_get::<u64, _>(0)?;
        Ok((PartitionId(u16::try_from(partition).unwrap_or(u16::MAX)), row.try_get::<i64, _>(1)?.unsigned_abs()))
    };
    rows.iter().map(count).collect()
}
