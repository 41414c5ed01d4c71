//! Backfills: what is to be known before one is asked for, asking for it, and how they stand.

use punctual_core::backfill::{BackfillPlan, BackfillRow, BackfillState};
use punctual_core::ids::{InboxId, PartitionId, TaskId};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Actor, AuditAction, Fired, Submitted};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::audit::Audit;
use crate::codec;
use crate::codes::Coded;
use crate::mysql::catalog::{NewEntry, ask_in_turn, write_entry};
use crate::mysql::error::Failure;
use crate::mysql::history;
use crate::mysql::people::audit_sql;
use crate::mysql::rows::{coded, required_text};
use crate::mysql::session::{Answer, Session};
use crate::set_aside::{KIND_BACKFILL, KIND_BACKFILL_CANCEL};

const COLUMNS: &str = "id, `partition`, asked_at, asked_by, task, state, made, ended, body";

fn backfill(row: &MySqlRow) -> Result<BackfillRow, Failure> {
    let plan = codec::backfill(TaskId(row.try_get(4)?), row.try_get::<&[u8], _>(8)?)?;
    Ok(BackfillRow {
        id: InboxId(row.try_get(0)?),
        partition: PartitionId(row.try_get(1)?),
        at: Timestamp(row.try_get(2)?),
        by: required_text(row, 3)?,
        plan: plan.into(),
        state: coded(row, 5)?,
        made: row.try_get(6)?,
        ended: row.try_get(7)?,
    })
}

/// Finds the newest backfill of a task, also one that nobody has begun yet.
fn newest_sql(task: TaskId) -> String {
    format!(
        "SELECT id, CAST(state AS UNSIGNED) FROM (SELECT id, state FROM backfills WHERE task = {0}
         UNION ALL SELECT id, 0 FROM inbox WHERE kind = {KIND_BACKFILL} AND task = {0}) b ORDER BY id DESC LIMIT 1",
        task.0
    )
}

/// Which one it is, and whether it has ended.
fn newest(answer: &Answer) -> Result<Option<(InboxId, bool)>, Failure> {
    let Some(row) = answer.rows.first() else { return Ok(None) };
    let is_running = row.try_get::<u64, _>(1)? == u64::from(BackfillState::Running.code());
    Ok(Some((InboxId(row.try_get(0)?), !is_running)))
}

/// What is known of a task's fire times in `from..to`, as of one moment.
pub(crate) async fn fired(session: &mut Session, task: &str, from: Timestamp, to: Timestamp) -> Result<Option<Fired>, Failure> {
    let Some((view, _)) = history::task(session, task).await? else { return Ok(None) };
    let sql = format!(
        "SELECT DISTINCT fire_time FROM instances FORCE INDEX (instances_by_task)
         WHERE task = {} AND fire_time >= {} AND fire_time < {} AND part = 0 AND origin IN (0, 1, 6) ORDER BY fire_time",
        view.task.0, from.0, to.0
    );
    let fired = session.rows(sql).await?.iter().map(|row| Ok(Timestamp(row.try_get(0)?))).collect::<Result<_, Failure>>()?;
    let answer = Answer { rows: session.rows(newest_sql(view.task)).await?, ..Answer::default() };
    Ok(Some(Fired { newest: newest(&answer)?.map(|(id, _)| id), view, fired }))
}

/// Puts a backfill into the inbox, unless one of the task runs, or another one was asked for after `after`. The transaction that it begins is ended
/// only where it is accepted.
pub(crate) async fn ask(
    session: &mut Session,
    plan: &BackfillPlan,
    after: Option<InboxId>,
    by: &Actor,
    now_sql: &str,
) -> Result<Submitted, Failure> {
    let there = format!("SELECT `partition` FROM tasks WHERE id = {} AND removed = 0", plan.task.0);
    let [there, found] = ask_in_turn(session, there, Some(newest_sql(plan.task))).await?;
    let Some(row) = there.rows.first() else { return Ok(Submitted::NoSuchTask) };
    match newest(&found)? {
        Some((backfill, false)) => return Ok(Submitted::BackfillRuns { backfill }),
        newest if newest.map(|(id, _)| id) != after => return Ok(Submitted::Outdated),
        _ => {}
    }
    let body = codec::pack_backfill(plan);
    let entry = NewEntry { partition: PartitionId(row.try_get(0)?), by: &by.by, kind: KIND_BACKFILL, task: Some(plan.task), body: &body };
    let audited = Audit { actor: by, action: AuditAction::Backfill, task: Some(plan.task), instance: None, subject: None };
    Ok(Submitted::Accepted { entry: write_entry(session, entry, audit_sql([audited], now_sql), now_sql).await? })
}

/// Puts the end of a backfill into the inbox. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn cancel(session: &mut Session, backfill: InboxId, by: &Actor, now_sql: &str) -> Result<Submitted, Failure> {
    let there = format!(
        "SELECT `partition`, task FROM backfills WHERE id = {0}
         UNION ALL SELECT `partition`, task FROM inbox WHERE id = {0} AND kind = {KIND_BACKFILL}",
        backfill.0
    );
    let [there, _] = ask_in_turn(session, there, None).await?;
    let Some(row) = there.rows.first() else { return Ok(Submitted::NoSuchBackfill) };
    let (partition, task) = (PartitionId(row.try_get(0)?), TaskId(row.try_get::<Option<u64>, _>(1)?.unwrap_or_default()));
    let body = codec::pack_backfill_cancel(backfill, by.why.as_deref());
    let subject = backfill.to_string();
    let audited = Audit { actor: by, action: AuditAction::CancelBackfill, task: Some(task), instance: None, subject: Some(&subject) };
    let entry = NewEntry { partition, by: &by.by, kind: KIND_BACKFILL_CANCEL, task: Some(task), body: &body };
    Ok(Submitted::Accepted { entry: write_entry(session, entry, audit_sql([audited], now_sql), now_sql).await? })
}

/// Backfills, of one task or of all, newest first.
pub(crate) async fn list(session: &mut Session, task: Option<TaskId>, limit: usize) -> Result<Vec<BackfillRow>, Failure> {
    let of_task = task.map(|task| format!("WHERE task = {}", task.0)).unwrap_or_default();
    session.rows(format!("SELECT {COLUMNS} FROM backfills {of_task} ORDER BY id DESC LIMIT {limit}")).await?.iter().map(backfill).collect()
}

/// Those of a partition that run, or were cancelled with instances that still do.
pub(crate) async fn running(session: &mut Session, partition: PartitionId) -> Result<Vec<BackfillRow>, Failure> {
    let sql = format!(
        "SELECT {COLUMNS} FROM backfills WHERE `partition` = {partition} AND (state = 0 OR (state = 2 AND ended < made)) ORDER BY id"
    );
    session.rows(sql).await?.iter().map(backfill).collect()
}
