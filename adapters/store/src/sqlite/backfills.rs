//! Backfills: what is to be known before one is asked for, asking for it, and how they stand.

use punctual_core::backfill::{BackfillPlan, BackfillRow, BackfillState};
use punctual_core::ids::{InboxId, PartitionId, TaskId};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Actor, AuditAction, Fired, Submitted};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::audit::Audit;
use crate::codec;
use crate::set_aside::{KIND_BACKFILL, KIND_BACKFILL_CANCEL};
use crate::sqlite::catalog::required_text;
use crate::sqlite::commit::transaction;
use crate::sqlite::error::malformed;
use crate::sqlite::history;
use crate::sqlite::people::put_audit;
use crate::sqlite::rows::{coded, unsigned};

macro_rules! columns {
    () => {
        "id, partition, at, by, task, state, made, ended, body"
    };
}

fn backfill(row: &Row<'_>) -> rusqlite::Result<BackfillRow> {
    let plan = codec::backfill(TaskId(unsigned(row, 4)?), row.get_ref(8)?.as_blob()?).map_err(|what| malformed(8, what))?;
    Ok(BackfillRow {
        id: InboxId(unsigned(row, 0)?),
        partition: PartitionId(row.get(1)?),
        at: Timestamp(row.get(2)?),
        by: required_text(row, 3)?,
        plan: plan.into(),
        state: coded(row, 5)?,
        made: row.get(6)?,
        ended: row.get(7)?,
    })
}

/// The newest backfill of a task, also one that nobody has begun yet, and whether it has ended.
fn newest(connection: &Connection, task: TaskId) -> rusqlite::Result<Option<(InboxId, bool)>> {
    let mut newest = connection.prepare_cached(
        "SELECT id, state FROM (SELECT id, state FROM backfills WHERE task = ?1
         UNION ALL SELECT id, 0 FROM inbox WHERE kind = ?2 AND task = ?1) ORDER BY id DESC LIMIT 1",
    )?;
    let found = newest.query_row(params![task.0.cast_signed(), KIND_BACKFILL], |row| {
        Ok((InboxId(unsigned(row, 0)?), coded::<BackfillState>(row, 1)? != BackfillState::Running))
    });
    found.optional()
}

/// What is known of a task's fire times in `from..to`, as of one moment.
pub(crate) fn fired(connection: &mut Connection, task: &str, from: Timestamp, to: Timestamp) -> rusqlite::Result<Option<Fired>> {
    let connection = connection.transaction()?;
    let Some(view) = history::task_view(&connection, task)? else { return Ok(None) };
    let mut fired = connection.prepare_cached(
        "SELECT DISTINCT fire_time FROM instances INDEXED BY instances_by_task
         WHERE task = ?1 AND fire_time >= ?2 AND fire_time < ?3 AND part = 0 AND origin IN (0, 1, 6) ORDER BY fire_time",
    )?;
    let fired = fired.query_map(params![view.task.0.cast_signed(), from.0, to.0], |row| Ok(Timestamp(row.get(0)?)))?;
    let fired = fired.collect::<rusqlite::Result<_>>()?;
    let newest = newest(&connection, view.task)?.map(|(id, _)| id);
    Ok(Some(Fired { view, fired, newest }))
}

/// Puts a backfill into the inbox, unless one of the task runs, or another one was asked for after `after`.
pub(crate) fn ask(
    connection: &Connection,
    plan: &BackfillPlan,
    after: Option<InboxId>,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<Submitted> {
    transaction(connection, |connection| {
        let task = plan.task.0.cast_signed();
        let mut there = connection.prepare_cached("SELECT partition FROM tasks WHERE id = ?1 AND removed = 0")?;
        let Some(partition) = there.query_row([task], |row| row.get::<_, u16>(0)).optional()? else { return Ok(Submitted::NoSuchTask) };
        match newest(connection, plan.task)? {
            Some((backfill, false)) => return Ok(Submitted::BackfillRuns { backfill }),
            newest if newest.map(|(id, _)| id) != after => return Ok(Submitted::Outdated),
            _ => {}
        }
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .insert(params![partition, now.0, &*by.by, KIND_BACKFILL, task, codec::pack_backfill(plan)])?;
        let (action, task) = (AuditAction::Backfill, Some(plan.task));
        put_audit(connection, now, &Audit { actor: by, action, task, instance: None, subject: None })?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// Puts the end of a backfill into the inbox.
pub(crate) fn cancel(connection: &Connection, backfill: InboxId, by: &Actor, now: Timestamp) -> rusqlite::Result<Submitted> {
    transaction(connection, |connection| {
        let id = backfill.0.cast_signed();
        let mut there = connection.prepare_cached(
            "SELECT partition, task FROM backfills WHERE id = ?1 UNION ALL SELECT partition, task FROM inbox WHERE id = ?1 AND kind = ?2",
        )?;
        let found = there.query_row(params![id, KIND_BACKFILL], |row| Ok((row.get::<_, u16>(0)?, row.get::<_, i64>(1)?))).optional()?;
        let Some((partition, task)) = found else { return Ok(Submitted::NoSuchBackfill) };
        let entry =
            connection.prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.insert(
                params![partition, now.0, &*by.by, KIND_BACKFILL_CANCEL, task, codec::pack_backfill_cancel(backfill, by.why.as_deref())],
            )?;
        let (task, subject) = (Some(TaskId(task.cast_unsigned())), backfill.to_string());
        let audited = Audit { actor: by, action: AuditAction::CancelBackfill, task, instance: None, subject: Some(&subject) };
        put_audit(connection, now, &audited)?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// Backfills, of one task or of all, newest first.
pub(crate) fn list(connection: &Connection, task: Option<TaskId>, limit: usize) -> rusqlite::Result<Vec<BackfillRow>> {
    let sql = concat!("SELECT ", columns!(), " FROM backfills WHERE (?1 IS NULL OR task = ?1) ORDER BY id DESC LIMIT ?2");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection.prepare_cached(sql)?.query_map(params![task.map(|task| task.0.cast_signed()), limit], backfill)?.collect()
}

/// Those of a partition that run, or were cancelled with instances that still do.
pub(crate) fn running(connection: &Connection, partition: PartitionId) -> rusqlite::Result<Vec<BackfillRow>> {
    let sql =
        concat!("SELECT ", columns!(), " FROM backfills WHERE partition = ?1 AND (state = 0 OR (state = 2 AND ended < made)) ORDER BY id");
    connection.prepare_cached(sql)?.query_map([partition.0], backfill)?.collect()
}
