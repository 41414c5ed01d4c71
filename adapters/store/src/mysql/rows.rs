//! An instance's row, both ways, and values of rows.

use std::sync::Arc;

use punctual_core::batch::InstanceUpdate;
use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{InstanceRow, Part, WorkerRef};
use punctual_core::time::Timestamp;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::codec::{self, Malformed};
use crate::codes::Coded;
use crate::guards::Guards;
use crate::mysql::error::Failure;
use crate::mysql::sql::{Use, Values};

/// The columns that [`instance`] reads, of a table called `i`, in its order.
pub(crate) const INSTANCE_COLUMNS: &str = "i.id, i.task, i.version, i.fire_time, i.ordinal, i.run, i.origin, i.state, i.fence, \
     i.attempt, i.failures, i.losses, i.worker, i.worker_life, i.due_at, i.submission_key, i.transitions, i.payload, i.part, i.more";
/// How many that is.
pub(crate) const INSTANCE_COLUMNS_COUNT: usize = 20;

/// Goes before the rows of [`put_instance`].
pub(crate) const INSERT_INSTANCES: &str = "INSERT INTO instances (id, task, version, fire_time, ordinal, run, origin, state, fence, attempt, \
     failures, losses, worker, worker_life, due_at, submission_key, transitions, payload, part, more) VALUES ";

/// Writes a row.
pub(crate) fn put_instance(values: &mut Values<'_>, row: &InstanceRow, packed: &mut Vec<u8>) {
    packed.clear();
    codec::put_transitions(packed, &row.transitions);
    values
        .unsigned(row.id.0)
        .unsigned(row.task.0)
        .unsigned(row.version.0)
        .signed(row.fire_time.0)
        .unsigned(row.ordinal)
        .unsigned(row.run)
        .unsigned(row.origin.code())
        .unsigned(row.state.code())
        .unsigned(row.fence.0)
        .unsigned(row.attempt)
        .unsigned(row.failures)
        .unsigned(row.losses)
        .text(row.worker.as_ref().map(|worker| &*worker.id.0))
        .optional(row.worker.as_ref().map(|worker| worker.life.0))
        .at(row.due_at)
        .text(row.key.as_deref())
        .bytes(packed)
        .text(row.payload.as_deref())
        .unsigned(row.part.0)
        .optional_bytes(codec::pack_more(row).as_deref());
}

/// What the values of [`put_change`] are for. Only what may change is written, and only where the row is as expected.
pub(crate) fn change_uses(guards: Guards) -> [Use; 18] {
    let guarded = |is_there: bool, column| if is_there { Use::Match(column) } else { Use::Ignore };
    [
        Use::Match("fire_time"),
        Use::Match("task"),
        Use::Match("ordinal"),
        Use::Match("run"),
        Use::Match("part"),
        Use::Match("id"),
        guarded(guards.instance_state, "state"),
        guarded(guards.instance_fence, "fence"),
        Use::Set("state"),
        Use::Set("fence"),
        Use::Set("attempt"),
        Use::Set("failures"),
        Use::Set("losses"),
        Use::Set("worker"),
        Use::Set("worker_life"),
        Use::Set("due_at"),
        Use::Set("transitions"),
        Use::Set("more"),
    ]
}

/// Writes which row an update is of, what it is expected to have, and what it gets.
pub(crate) fn put_change(values: &mut Values<'_>, update: &InstanceUpdate, packed: &mut Vec<u8>) {
    let row = &update.row;
    packed.clear();
    codec::put_transitions(packed, &row.transitions);
    put_place(values, row)
        .unsigned(row.id.0)
        .unsigned(update.expected_state.code())
        .unsigned(update.expected_fence.0)
        .unsigned(row.state.code())
        .unsigned(row.fence.0)
        .unsigned(row.attempt)
        .unsigned(row.failures)
        .unsigned(row.losses)
        .text(row.worker.as_ref().map(|worker| &*worker.id.0))
        .optional(row.worker.as_ref().map(|worker| worker.life.0))
        .at(row.due_at)
        .bytes(packed)
        .optional_bytes(codec::pack_more(row).as_deref());
}

/// Writes which part of which firing an instance is: its primary key.
pub(crate) fn put_place<'a, 'b>(values: &'a mut Values<'b>, row: &InstanceRow) -> &'a mut Values<'b> {
    put_firing(values, row).unsigned(row.part.0)
}

/// Writes the firing that an instance is, or is a part of.
pub(crate) fn put_firing<'a, 'b>(values: &'a mut Values<'b>, row: &InstanceRow) -> &'a mut Values<'b> {
    values.signed(row.fire_time.0).unsigned(row.task.0).unsigned(row.ordinal).unsigned(row.run)
}

/// Reads [`INSTANCE_COLUMNS`].
pub(crate) fn instance(row: &MySqlRow) -> Result<InstanceRow, Failure> {
    let worker = match (text(row, 12)?, row.try_get::<Option<u64>, _>(13)?) {
        (Some(id), Some(life)) => Some(WorkerRef { id: WorkerId(id), life: WorkerLife(life) }),
        _ => None,
    };
    let (links, result) = codec::more(row.try_get(19)?)?;
    Ok(InstanceRow {
        id: InstanceId(row.try_get(0)?),
        task: TaskId(row.try_get(1)?),
        version: Version(row.try_get(2)?),
        fire_time: Timestamp(row.try_get(3)?),
        ordinal: row.try_get(4)?,
        run: row.try_get(5)?,
        origin: coded(row, 6)?,
        state: coded(row, 7)?,
        fence: Fence(row.try_get(8)?),
        attempt: row.try_get(9)?,
        failures: row.try_get(10)?,
        losses: row.try_get(11)?,
        worker,
        due_at: row.try_get::<Option<i64>, _>(14)?.map(Timestamp),
        key: text(row, 15)?,
        transitions: codec::transitions(row.try_get(16)?)?,
        payload: text(row, 17)?,
        part: Part(row.try_get(18)?),
        links,
        result,
    })
}

/// Text or NULL.
pub(crate) fn text(row: &MySqlRow, column: usize) -> Result<Option<Arc<str>>, Failure> {
    let Some(bytes) = row.try_get::<Option<&[u8]>, _>(column)? else { return Ok(None) };
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed("text is not UTF-8"))?;
    Ok(Some(text.into()))
}

/// Text that is never NULL.
pub(crate) fn required_text(row: &MySqlRow, column: usize) -> Result<Arc<str>, Failure> {
    text(row, column).map(Option::unwrap_or_default)
}

/// An enum value by its number.
pub(crate) fn coded<T: Coded>(row: &MySqlRow, column: usize) -> Result<T, Failure> {
    Ok(T::from_code(row.try_get(column)?).ok_or(Malformed("a number stands for nothing"))?)
}
