//! An instance's row, both ways.

use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{InstanceRow, Part, WorkerRef};
use punctual_core::time::Timestamp;
use rusqlite::{Row, Statement, params};

use crate::codec::{self, Malformed};
use crate::codes::Coded;
use crate::sqlite::error::malformed;

/// The columns that [`instance`] reads, of a table called `i`, in its order.
macro_rules! instance_columns {
    () => {
        "i.id, i.task, i.version, i.fire_time, i.ordinal, i.run, i.origin, i.state, i.fence, i.attempt, i.failures, i.losses, \
         i.worker, i.worker_life, i.due_at, i.key, i.transitions, i.payload, i.part, i.more"
    };
}
pub(crate) use instance_columns;

/// How many columns that is.
pub(crate) const INSTANCE_COLUMNS: usize = 20;

pub(crate) const INSERT_INSTANCE: &str = "INSERT INTO instances (id, task, version, fire_time, ordinal, run, origin, state, fence, \
     attempt, failures, losses, worker, worker_life, due_at, key, transitions, payload, part, more) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";

/// Only what may change: what is not set costs no index.
macro_rules! update_instance_sql {
    ($guards:literal) => {
        concat!(
            "UPDATE instances SET state = ?2, fence = ?3, attempt = ?4, failures = ?5, losses = ?6, worker = ?7, worker_life = ?8, \
             due_at = ?9, transitions = ?10, more = ?13, settled = settled AND ?2 = 5 WHERE id = ?1 ",
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
        row.part.0.cast_signed(),
        codec::pack_more(row),
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
        codec::pack_more(row),
    ])?;
    Ok(changed == 1)
}

/// Reads [`instance_columns`].
pub(crate) fn instance(row: &Row<'_>) -> rusqlite::Result<InstanceRow> {
    let worker = match (text(row, 12)?, row.get::<_, Option<i64>>(13)?) {
        (Some(id), Some(life)) => Some(WorkerRef { id: WorkerId(id), life: WorkerLife(life.cast_unsigned()) }),
        _ => None,
    };
    let (links, result) = codec::more(row.get_ref(19)?.as_blob_or_null()?).map_err(|what| malformed(19, what))?;
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
        part: Part(unsigned(row, 18)?),
        links,
        result,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_core::batch::InstanceUpdate;
    use punctual_core::instance::{CallLink, Cause, Links, MapPhase, MapProgress, Origin, SlotLink, State, Transition};
    use rusqlite::Connection;

    use super::*;

    fn any_call() -> impl Strategy<Value = CallLink> {
        let called_by = |task: u64| CallLink::CalledBy { task: TaskId(task) };
        let calls = |(task, instance): (String, Option<u64>)| CallLink::Calls { task: task.into(), instance: instance.map(InstanceId) };
        prop_oneof![any::<(String, Option<u64>)>().prop_map(calls), any::<u64>().prop_map(called_by)]
    }

    prop_compose! {
        fn any_row()(
            (id, task, version, fire_time) in any::<(u64, u64, u32, i64)>(),
            (ordinal, run, fence, attempt, failures, losses) in any::<(u64, u32, u64, u32, u32, u32)>(),
            (worker, due_at, payload, key) in any::<(Option<(String, u64)>, Option<i64>, Option<String>, Option<String>)>(),
            state in proptest::sample::select(&State::ALL[..]),
            origin in proptest::sample::select(&Origin::ALL[..]),
            ats in proptest::collection::vec(any::<i64>(), 1..4),
            (part, result) in any::<(u64, Option<String>)>(),
            (carried, nodes, is_for_worker, again) in (any::<u32>(), any::<u32>(), any::<bool>(), proptest::option::of(codec::tests::any_shards_again())),
            map in any::<Option<(u32, u64)>>(),
            call in proptest::option::of(any_call()),
            links in proptest::option::of(any::<(Option<u64>, u32, Option<String>, Option<u64>, u32, Option<(String, bool)>)>()),
        ) -> InstanceRow {
            InstanceRow {
                id: InstanceId(id),
                task: TaskId(task),
                version: Version(version),
                fire_time: Timestamp(fire_time),
                ordinal,
                run,
                part: Part(part),
                links: links.map(|(parent, shards, key, cause, hops, slot)| {
                    let map = map.map(|(made, result_bytes)| MapProgress { phase: MapPhase::Items, made, result_bytes });
                    let slot = slot.map(|(group, is_granted): (String, bool)| SlotLink { group: group.into(), is_granted });
                    let (parent, cause, shard_key) = (parent.map(InstanceId), cause.map(InstanceId), key.map(Into::into));
                    Box::new(Links { parent, shards, shard_key, cause, hops, nodes, carried, is_for_worker, again: again.map(Box::new), map: map.map(Box::new), slot, call: call.map(Box::new) })
                }),
                result: result.map(Into::into),
                origin,
                state,
                fence: Fence(fence),
                attempt,
                failures,
                losses,
                worker: worker.map(|(id, life)| WorkerRef { id: WorkerId(id.into()), life: WorkerLife(life) }),
                due_at: due_at.map(Timestamp),
                payload: payload.map(Into::into),
                key: key.map(Into::into),
                transitions: ats
                    .into_iter()
                    .map(|at| Transition {
                        from: None,
                        to: state,
                        cause: Cause::Fired,
                        at: Timestamp(at),
                        attempt,
                        fence: Fence(fence),
                        worker: None,
                        code: None,
                        detail: None,
                    })
                    .collect(),
            }
        }
    }

    fn read(connection: &Connection) -> InstanceRow {
        connection.query_row(concat!("SELECT ", instance_columns!(), " FROM instances i"), [], instance).expect("the row")
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn rows_come_back_as_they_were(row in any_row(), next in any_row()) {
            let connection = Connection::open_in_memory().expect("a database");
            crate::sqlite::schema::MIGRATIONS.iter().for_each(|script| connection.execute_batch(script).expect("a schema"));
            let mut packed = Vec::new();
            insert_instance(&mut connection.prepare(INSERT_INSTANCE).expect("SQL"), &row, &mut packed).expect("an insert");
            prop_assert_eq!(&read(&connection), &row);
            // All that may change does.
            let (id, task, version, fire_time) = (row.id, row.task, row.version, row.fire_time);
            let (ordinal, run, part, origin) = (row.ordinal, row.run, row.part, row.origin);
            let next = InstanceRow { id, task, version, fire_time, ordinal, run, part, origin, payload: row.payload.clone(), key: row.key.clone(), ..next };
            let update = InstanceUpdate { expected_state: row.state, expected_fence: row.fence, row: next };
            let mut statement = connection.prepare(update_instance_sql!("AND state = ?11 AND fence = ?12")).expect("SQL");
            prop_assert!(update_instance(&mut statement, &update, &mut packed).expect("an update"));
            prop_assert_eq!(&read(&connection), &update.row);
        }
    }
}
