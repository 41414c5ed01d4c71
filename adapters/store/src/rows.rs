//! An instance's row, both ways.

use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{InstanceRow, WorkerRef};
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};

use crate::codec::{self, Malformed};
use crate::codes::Coded;
use crate::error::malformed;

/// The columns that [`instance`] reads, of a table called `i`, in its order.
macro_rules! instance_columns {
    () => {
        "i.id, i.task, i.version, i.fire_time, i.ordinal, i.run, i.origin, i.state, i.fence, i.attempt, i.failures, i.losses, \
         i.worker, i.worker_life, i.due_at, i.key, i.transitions, i.payload"
    };
}
pub(crate) use instance_columns;

/// How many columns that is.
pub(crate) const INSTANCE_COLUMNS: usize = 18;

pub(crate) const INSERT_INSTANCE: &str = "INSERT INTO instances (id, task, version, fire_time, ordinal, run, origin, state, fence, \
     attempt, failures, losses, worker, worker_life, due_at, key, transitions, payload) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

/// Only what may change: what is not set costs no index.
macro_rules! update_instance_sql {
    ($guards:literal) => {
        concat!(
            "UPDATE instances SET state = ?2, fence = ?3, attempt = ?4, failures = ?5, losses = ?6, worker = ?7, worker_life = ?8, \
             due_at = ?9, transitions = ?10 WHERE id = ?1 ",
            $guards
        )
    };
}
pub(crate) use update_instance_sql;

/// Runs [`INSERT_INSTANCE`].
pub(crate) fn insert_instance(statement: &mut Statement<'_>, row: &InstanceRow, packed: &mut Vec<u8>) -> rusqlite::Result<()> {
    packed.clear();
    codec::put_transitions(packed, &row.transitions);
    statement.execute(params![
        row.id.0.cast_signed(),
        row.task.0.cast_signed(),
        row.version.0,
        row.fire_time.0,
        row.ordinal.cast_signed(),
        row.run,
        row.origin.code(),
        row.state.code(),
        row.fence.0.cast_signed(),
        row.attempt,
        row.failures,
        row.losses,
        row.worker.as_ref().map(|worker| &*worker.id.0),
        row.worker.as_ref().map(|worker| worker.life.0.cast_signed()),
        row.due_at.map(|due_at| due_at.0),
        row.key.as_deref(),
        &**packed,
        row.payload.as_deref(),
    ])?;
    Ok(())
}

/// Runs [`update_instance_sql`]; false: no row was as expected.
pub(crate) fn update_instance(
    statement: &mut Statement<'_>,
    update: &punctual_core::batch::InstanceUpdate,
    packed: &mut Vec<u8>,
) -> rusqlite::Result<bool> {
    let row = &update.row;
    packed.clear();
    codec::put_transitions(packed, &row.transitions);
    let changed = statement.execute(params![
        row.id.0.cast_signed(),
        row.state.code(),
        row.fence.0.cast_signed(),
        row.attempt,
        row.failures,
        row.losses,
        row.worker.as_ref().map(|worker| &*worker.id.0),
        row.worker.as_ref().map(|worker| worker.life.0.cast_signed()),
        row.due_at.map(|due_at| due_at.0),
        &**packed,
        update.expected_state.code(),
        update.expected_fence.0.cast_signed(),
    ])?;
    Ok(changed == 1)
}

/// Reads [`instance_columns`].
pub(crate) fn instance(row: &Row<'_>) -> rusqlite::Result<InstanceRow> {
    let worker = match (text(row, 12)?, row.get::<_, Option<i64>>(13)?) {
        (Some(id), Some(life)) => Some(WorkerRef { id: WorkerId(id), life: WorkerLife(life.cast_unsigned()) }),
        _ => None,
    };
    Ok(InstanceRow {
        id: InstanceId(unsigned(row, 0)?),
        task: TaskId(unsigned(row, 1)?),
        version: Version(row.get(2)?),
        fire_time: Timestamp(row.get(3)?),
        ordinal: unsigned(row, 4)?,
        run: row.get(5)?,
        origin: coded(row, 6)?,
        state: coded(row, 7)?,
        fence: Fence(unsigned(row, 8)?),
        attempt: row.get(9)?,
        failures: row.get(10)?,
        losses: row.get(11)?,
        worker,
        due_at: row.get::<_, Option<i64>>(14)?.map(Timestamp),
        key: text(row, 15)?,
        transitions: codec::transitions(row.get_ref(16)?.as_blob()?).map_err(|what| malformed(16, what))?,
        payload: text(row, 17)?,
    })
}

/// A 64-bit pattern.
pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// Text or NULL.
pub(crate) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Arc<str>>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.map(Arc::from))
}

/// An enum value by its number.
pub(crate) fn coded<T: Coded>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    T::from_code(row.get(column)?).ok_or_else(|| malformed(column, Malformed("a number stands for nothing")))
}
