//! What everyone may read: tasks, instances, outputs, occurrences, counts.
//!
//! Every page is found through an index and starts where the last one ended. Which index is said in the query: SQLite keeps no
//! statistics here, and a wrong guess over a hundred million rows is no page at all.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::{Epoch, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::instance::State;
use punctual_core::occurrence::Occurrence;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    DeadLetterFilter, InstanceCursor, InstanceFilter, InstanceView, OCCURRENCES_LOOKED_AT, PartitionView, ReplicaView, TaskView,
    VersionView,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::codes::{Coded, LIVE_STATES_END, TROUBLED_STATES_END};
use crate::sqlite::catalog::{required_text, task_id};
use crate::sqlite::rows::{self, INSTANCE_COLUMNS, coded, instance_columns, unsigned};

pub(crate) const TASKS: &str = "SELECT t.id, t.name, t.version, t.removed, s.next_fire,
         coalesce(v.document, (SELECT w.document FROM task_versions w
                               WHERE w.task = t.id AND w.document IS NOT NULL ORDER BY w.version DESC LIMIT 1)),
         t.source
     FROM tasks t
     LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version
     LEFT JOIN task_states s ON s.partition = t.partition AND s.task = t.id ";

pub(crate) fn view_of(row: &Row<'_>) -> rusqlite::Result<TaskView> {
    Ok(TaskView {
        task: TaskId(unsigned(row, 0)?),
        name: required_text(row, 1)?,
        version: Version(row.get(2)?),
        removed: row.get(3)?,
        next_fire: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        document: required_text(row, 5)?,
        source: required_text(row, 6)?,
    })
}

pub(crate) fn tasks(connection: &Connection, after: Option<&str>, limit: usize) -> rusqlite::Result<Vec<TaskView>> {
    // No name is empty, so all are behind the empty one.
    let sql = format!("{TASKS} WHERE t.name > ?1 AND t.removed = 0 ORDER BY t.name LIMIT ?2");
    connection.prepare_cached(&sql)?.query_map(params![after.unwrap_or(""), sql_limit(limit)], view_of)?.collect()
}

/// One task, also a removed one.
pub(crate) fn task_view(connection: &Connection, name: &str) -> rusqlite::Result<Option<TaskView>> {
    connection.prepare_cached(&format!("{TASKS} WHERE t.name = ?1"))?.query_row([name], view_of).optional()
}

pub(crate) fn task(connection: &mut Connection, name: &str) -> rusqlite::Result<Option<(TaskView, Vec<VersionView>)>> {
    let connection = connection.transaction()?;
    let Some(view) = task_view(&connection, name)? else { return Ok(None) };
    let versions = connection
        .prepare_cached("SELECT version, created_at, created_by, document FROM task_versions WHERE task = ?1 ORDER BY version DESC")?
        .query_map([view.task.0.cast_signed()], |row| {
            Ok(VersionView {
                version: Version(row.get(0)?),
                at: Timestamp(row.get(1)?),
                by: required_text(row, 2)?,
                document: rows::text(row, 3)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some((view, versions)))
}

pub(crate) const INSTANCES: &str = concat!("SELECT ", instance_columns!(), ", t.name FROM instances i");
pub(crate) const TASK_OF_INSTANCE: &str = " LEFT JOIN tasks t ON t.id = i.task WHERE ";

pub(crate) fn instance_view(row: &Row<'_>) -> rusqlite::Result<InstanceView> {
    Ok(InstanceView { row: rows::instance(row)?, task_name: required_text(row, INSTANCE_COLUMNS)? })
}

pub(crate) fn instances(connection: &mut Connection, filter: &InstanceFilter) -> rusqlite::Result<Vec<InstanceView>> {
    let connection = connection.transaction()?;
    let task = match &filter.task {
        None => None,
        Some(name) => match task_id(&connection, name)? {
            Some(task) => Some(task),
            None => return Ok(Vec::new()),
        },
    };
    let (sql, values) = instances_query(filter, task);
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), instance_view)?.collect()
}

/// The nodes of a run, in the order of their parts.
pub(crate) fn nodes(connection: &mut Connection, run: InstanceId) -> rusqlite::Result<Vec<InstanceView>> {
    let mut nodes = connection.prepare_cached(concat!(
        "SELECT ",
        instance_columns!(),
        ", t.name FROM instances w JOIN instances i INDEXED BY instances_firing
         ON i.fire_time = w.fire_time AND i.task = w.task AND i.ordinal = w.ordinal AND i.run = w.run
         LEFT JOIN tasks t ON t.id = i.task
         WHERE w.id = ?1 AND w.part = 0 AND i.part > 0 AND i.part & 4294967295 = 0 ORDER BY i.part"
    ))?;
    nodes.query_map([run.0.cast_signed()], instance_view)?.collect()
}

pub(crate) fn name_of(connection: &Connection, task: TaskId) -> rusqlite::Result<Option<Arc<str>>> {
    let mut name = connection.prepare_cached("SELECT name FROM tasks WHERE id = ?1")?;
    name.query_row([task.0.cast_signed()], |row| required_text(row, 0)).optional()
}

/// The query for a filter, and what it is run with. Only fixed text goes into it.
fn instances_query(filter: &InstanceFilter, task: Option<TaskId>) -> (String, Vec<Value>) {
    let index = match (filter.state.map(Coded::code), task) {
        _ if filter.key.is_some() => " INDEXED BY instances_by_key",
        (Some(state), _) if state < LIVE_STATES_END => " INDEXED BY instances_live",
        (_, Some(_)) => " INDEXED BY instances_by_task",
        (Some(state), None) if state < TROUBLED_STATES_END => " INDEXED BY instances_troubled",
        (_, None) => " INDEXED BY instances_firing",
    };
    let mut sql = [INSTANCES, index, TASK_OF_INSTANCE, "TRUE"].concat();
    let mut values = Vec::<Value>::new();
    if let Some(key) = &filter.key {
        sql.push_str(" AND i.key = ?");
        values.push(key.to_string().into());
    }
    if let Some(task) = task {
        sql.push_str(" AND i.task = ?");
        values.push(task.0.cast_signed().into());
    }
    if filter.whole {
        sql.push_str(" AND i.part = 0");
    }
    if let Some(state) = filter.state {
        let code = state.code();
        sql.push_str(" AND i.state = ?");
        values.push(i64::from(code).into());
        // What the partial indexes need to see.
        if code < LIVE_STATES_END {
            sql.push_str(" AND i.state < 5");
        } else if code < TROUBLED_STATES_END {
            sql.push_str(" AND i.state >= 5 AND i.state < 10");
        }
    }
    if let Some(before) = &filter.before {
        put_before(&mut sql, &mut values, before);
    }
    sql.push_str(" ORDER BY i.fire_time DESC, i.task DESC, i.ordinal DESC, i.run DESC, i.part DESC LIMIT ?");
    values.push(sql_limit(filter.limit).into());
    (sql, values)
}

/// What lies behind a place.
pub(crate) fn put_before(sql: &mut String, values: &mut Vec<Value>, before: &InstanceCursor) {
    sql.push_str(" AND (i.fire_time, i.task, i.ordinal, i.run, i.part) < (?, ?, ?, ?, ?)");
    let (task, ordinal) = (before.task.0.cast_signed(), before.ordinal.cast_signed());
    values.extend([before.fire_time.0, task, ordinal, i64::from(before.run), before.part.0.cast_signed()].map(Value::from));
}

/// The query for unsettled dead letters, and what it is run with.
pub(crate) fn dead_letters_sql(filter: &DeadLetterFilter, task: Option<TaskId>) -> (String, Vec<Value>) {
    let index = if task.is_some() { " INDEXED BY dead_letters_by_task" } else { " INDEXED BY dead_letters" };
    let mut sql = [INSTANCES, index, TASK_OF_INSTANCE, "i.state = 5 AND i.part = 0 AND i.settled = 0"].concat();
    let mut values = Vec::<Value>::new();
    if let Some(task) = task {
        sql.push_str(" AND i.task = ?");
        values.push(task.0.cast_signed().into());
    }
    if let Some(before) = filter.before {
        let (task, ordinal) = (before.task.0.cast_signed(), before.ordinal.cast_signed());
        sql.push_str(" AND (i.fire_time, i.task, i.ordinal, i.run) < (?, ?, ?, ?)");
        values.extend([before.fire_time.0, task, ordinal, i64::from(before.run)].map(Value::from));
    }
    sql.push_str(" ORDER BY i.fire_time DESC, i.task DESC, i.ordinal DESC, i.run DESC LIMIT ?");
    values.push(sql_limit(filter.limit).into());
    (sql, values)
}

pub(crate) fn instance(connection: &Connection, id: InstanceId) -> rusqlite::Result<Option<InstanceView>> {
    let sql = [INSTANCES, TASK_OF_INSTANCE, "i.id = ?1"].concat();
    connection.prepare_cached(&sql)?.query_row([id.0.cast_signed()], instance_view).optional()
}

pub(crate) fn instance_of_submission(connection: &Connection, ordinal: u64) -> rusqlite::Result<Option<InstanceView>> {
    let sql = [INSTANCES, TASK_OF_INSTANCE, "i.ordinal = ?1 AND i.ordinal <> 0 AND i.part = 0 ORDER BY i.run LIMIT 1"].concat();
    connection.prepare_cached(&sql)?.query_row([ordinal.cast_signed()], instance_view).optional()
}

pub(crate) fn outputs(connection: &Connection, id: InstanceId) -> rusqlite::Result<Vec<(u32, Output)>> {
    connection
        .prepare_cached("SELECT attempt, bytes, dropped FROM outputs WHERE instance = ?1 ORDER BY attempt")?
        .query_map([id.0.cast_signed()], |row| Ok((row.get(0)?, Output { bytes: row.get(1)?, dropped: unsigned(row, 2)? })))?
        .collect()
}

pub(crate) fn occurrences(connection: &Connection, task: &str, limit: usize) -> rusqlite::Result<Vec<Occurrence>> {
    let Some(task) = task_id(connection, task)? else { return Ok(Vec::new()) };
    occurrences_before(connection, task, i64::MAX, limit)
}

pub(crate) fn occurrences_around(
    connection: &Connection,
    task: &str,
    from: Timestamp,
    until: Timestamp,
) -> rusqlite::Result<Vec<Occurrence>> {
    let Some(task) = task_id(connection, task)? else { return Ok(Vec::new()) };
    let mut found = occurrences_before(connection, task, until.0, OCCURRENCES_LOOKED_AT)?;
    found.retain(|occurrence| occurrence.last >= from);
    Ok(found)
}

/// Those that begin before an instant, newest first.
fn occurrences_before(connection: &Connection, task: TaskId, until: i64, limit: usize) -> rusqlite::Result<Vec<Occurrence>> {
    connection
        .prepare_cached(
            "SELECT version, first, last, count, outcome, instance, at FROM occurrences
             WHERE task = ?1 AND first < ?3 ORDER BY first DESC, rowid DESC LIMIT ?2",
        )?
        .query_map(params![task.0.cast_signed(), sql_limit(limit), until], |row| {
            Ok(Occurrence {
                task,
                version: Version(row.get(0)?),
                first: Timestamp(row.get(1)?),
                last: Timestamp(row.get(2)?),
                count: unsigned(row, 3)?,
                outcome: coded(row, 4)?,
                instance: row.get::<_, Option<i64>>(5)?.map(|id| InstanceId(id.cast_unsigned())),
                at: Timestamp(row.get(6)?),
            })
        })?
        .collect()
}

pub(crate) fn counts(connection: &Connection) -> rusqlite::Result<Vec<(State, u64)>> {
    connection
        .prepare_cached("SELECT state, count FROM counts WHERE count <> 0 ORDER BY state")?
        .query_map([], |row| Ok((coded(row, 0)?, unsigned(row, 1)?)))?
        .collect()
}

pub(crate) fn replicas(connection: &Connection) -> rusqlite::Result<Vec<ReplicaView>> {
    connection
        .prepare_cached("SELECT id, since, expires_at FROM replicas ORDER BY id")?
        .query_map([], |row| {
            let (since, expires_at) = (Timestamp(row.get(1)?), Timestamp(row.get(2)?));
            Ok(ReplicaView { id: ReplicaId(required_text(row, 0)?), address: None, since, expires_at })
        })?
        .collect()
}

pub(crate) fn partition_views(connection: &Connection) -> rusqlite::Result<Vec<PartitionView>> {
    connection
        .prepare_cached(
            "SELECT l.partition, l.owner, l.epoch, l.expires_at, l.commit_seq, coalesce(e.count, 0), coalesce(i.count, 0) FROM leases l
             LEFT JOIN (SELECT partition, count(*) AS count FROM inbox GROUP BY partition) e ON e.partition = l.partition
             LEFT JOIN (SELECT id >> 48 AS partition, count(*) AS count FROM instances INDEXED BY instances_live
                        WHERE state < 5 GROUP BY id >> 48) i ON i.partition = l.partition
             ORDER BY l.partition",
        )?
        .query_map([], |row| {
            Ok(PartitionView {
                partition: PartitionId(row.get(0)?),
                owner: rows::text(row, 1)?.map(ReplicaId),
                epoch: Epoch(unsigned(row, 2)?),
                expires_at: Timestamp(row.get(3)?),
                commit_seq: unsigned(row, 4)?,
                inbox: unsigned(row, 5)?,
                live: unsigned(row, 6)?,
            })
        })?
        .collect()
}

/// A limit as SQL takes it: a negative one would be none.
pub(crate) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::instance::Part;

    fn plan(filter: &InstanceFilter, task: Option<TaskId>) -> String {
        let connection = Connection::open_in_memory().expect("a database");
        crate::sqlite::schema::MIGRATIONS.iter().for_each(|script| connection.execute_batch(script).expect("a schema"));
        let (sql, values) = instances_query(filter, task);
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("SQL");
        let lines = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).expect("a plan");
        lines.collect::<rusqlite::Result<Vec<_>>>().expect("a plan").join("; ")
    }

    #[test]
    fn a_page_costs_no_more_deep_in_the_list_than_at_its_top() {
        let before = Some(InstanceCursor { fire_time: Timestamp(1), task: TaskId(1), ordinal: 1, run: 1, part: Part::WHOLE });
        let all = InstanceFilter { before, limit: 10, ..InstanceFilter::default() };
        let at = |index: &str| format!("SEARCH i USING INDEX {index}");
        let name = "SEARCH t USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN";
        assert_eq!(plan(&all, None), format!("{} ((fire_time,task,ordinal,run,part)<(?,?,?,?,?)); {name}", at("instances_firing")));
        let failed = InstanceFilter { state: Some(State::Failed), ..all.clone() };
        let troubled = plan(&failed, None);
        assert!(troubled.starts_with(&format!("{} (state=? AND ", at("instances_troubled"))) && !troubled.contains("B-TREE"), "{troubled}");
        // Of one task: only neighbours of one fire time are sorted.
        let of_task = plan(&all, Some(TaskId(1)));
        assert!(of_task.starts_with(&format!("{} (task=? AND fire_time<?)", at("instances_by_task"))), "{of_task}");
    }
}
