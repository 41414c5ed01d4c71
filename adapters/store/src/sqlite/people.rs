//! What people do: pauses, the audit, dead letters, and changes to triggers that are not due yet.

use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId};
use punctual_core::inbox::{DelayedChange, ordinal_of};
use punctual_core::instance::State;
use punctual_core::pause::PauseScope;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    Actor, AuditAction, AuditFilter, AuditView, DeadLetterFilter, Discarded, InstanceAction, InstanceView, PauseSet, PauseTarget,
    PauseView, Submitted, TriggerChanged,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::audit::Audit;
use crate::codec;
use crate::codes::Coded;
use crate::pauses::{self, scope_of, target_of};
use crate::set_aside::{KIND_DELAYED, KIND_PAUSE, KIND_TRIGGER};
use crate::sqlite::catalog::{required_text, task_id};
use crate::sqlite::commit::transaction;
use crate::sqlite::history::{dead_letters_sql, instance_view, sql_limit};
use crate::sqlite::rows::{coded, text, unsigned};

/// Puts a write by a person on record, in the transaction that has it.
pub(crate) fn put_audit(connection: &Connection, now: Timestamp, written: &Audit<'_>) -> rusqlite::Result<()> {
    let Audit { actor, action, task, instance, subject } = *written;
    connection
        .prepare_cached(
            "INSERT INTO audit (at, made_by, made_from, why, action, task, instance, subject) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            now.0,
            &*actor.by,
            actor.from.as_deref(),
            actor.why.as_deref(),
            action.code(),
            task.map(|task| task.0.cast_signed()),
            instance.map(|instance| instance.0.cast_signed()),
            subject
        ])
        .map(drop)
}

fn actor(row: &Row<'_>, from: usize) -> rusqlite::Result<Actor> {
    Ok(Actor { by: required_text(row, from)?, from: text(row, from + 1)?, why: text(row, from + 2)? })
}

/// What people have done, newest first.
pub(crate) fn audit(connection: &mut Connection, filter: &AuditFilter) -> rusqlite::Result<Vec<AuditView>> {
    let connection = connection.transaction()?;
    let task = match &filter.task {
        None => None,
        Some(name) => match task_id(&connection, name)? {
            Some(task) => Some(task),
            None => return Ok(Vec::new()),
        },
    };
    let index = match (filter.instance, task) {
        (Some(_), _) => "INDEXED BY audit_by_instance",
        (None, Some(_)) => "INDEXED BY audit_by_task",
        (None, None) => "",
    };
    let mut sql = format!(
        "SELECT a.id, a.at, a.made_by, a.made_from, a.why, a.action, t.name, a.instance, a.subject
         FROM audit a {index} LEFT JOIN tasks t ON t.id = a.task WHERE a.id < ?"
    );
    let mut values = vec![Value::from(filter.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX)))];
    if let Some(instance) = filter.instance {
        sql.push_str(" AND a.instance = ?");
        values.push(instance.0.cast_signed().into());
    }
    if let Some(task) = task {
        sql.push_str(" AND a.task = ?");
        values.push(task.0.cast_signed().into());
    }
    sql.push_str(" ORDER BY a.id DESC LIMIT ?");
    values.push(sql_limit(filter.limit).into());
    let view = |row: &Row<'_>| {
        Ok(AuditView {
            id: unsigned(row, 0)?,
            at: Timestamp(row.get(1)?),
            actor: actor(row, 2)?,
            action: coded(row, 5)?,
            task: text(row, 6)?,
            instance: row.get::<_, Option<i64>>(7)?.map(|id| InstanceId(id.cast_unsigned())),
            subject: text(row, 8)?,
        })
    };
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), view)?.collect()
}

/// Puts something that is to be done with an instance into the inbox.
pub(crate) fn act(
    connection: &Connection,
    instance: InstanceId,
    action: InstanceAction,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<Submitted> {
    transaction(connection, |connection| {
        let mut stored = connection.prepare_cached("SELECT task FROM instances WHERE id = ?1")?;
        let Some(task) = stored.query_row([instance.0.cast_signed()], |row| unsigned(row, 0)).optional()? else {
            return Ok(Submitted::NoSuchInstance);
        };
        let body = codec::pack_cancel(instance, by.why.as_deref());
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .insert(params![instance.partition().0, now.0, &*by.by, pauses::kind_of_action(action), body])?;
        let (task, instance) = (Some(TaskId(task)), Some(instance));
        put_audit(connection, now, &Audit { actor: by, action: action.audited(), task, instance, subject: None })?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// Makes a pause, or lifts it, and tells all owners that it concerns.
pub(crate) fn set_pause(
    connection: &Connection,
    partitions: u16,
    target: &PauseTarget,
    is_paused: bool,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<PauseSet> {
    transaction(connection, |connection| {
        let mut named = connection.prepare_cached("SELECT id, partition, removed FROM tasks WHERE name = ?1")?;
        let place = |row: &Row<'_>| Ok((TaskId(unsigned(row, 0)?), PartitionId(row.get(1)?), row.get::<_, bool>(2)?));
        let mut task = None;
        match target {
            PauseTarget::All | PauseTarget::Worker(_) => {}
            PauseTarget::Group(group) if is_paused => {
                let mut labelled = connection
                    .prepare_cached("SELECT 1 FROM tasks INDEXED BY tasks_by_label WHERE label = ?1 AND label IS NOT NULL LIMIT 1")?;
                if !labelled.exists([&**group])? {
                    return Ok(PauseSet::NoSuchGroup);
                }
            }
            PauseTarget::Group(_) => {}
            PauseTarget::Task(name) => match named.query_row([&**name], place).optional()? {
                // What was removed can be released, not paused.
                Some((id, partition, removed)) if !removed || !is_paused => task = Some((id, partition)),
                _ => return Ok(PauseSet::NoSuchTask),
            },
        }
        let (kind, name) = (pauses::kind_of(target), target.name());
        let changed = match is_paused {
            true => connection
                .prepare_cached(
                    "INSERT INTO pauses (kind, name, task, partition, since, made_by, made_from, why) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                     ON CONFLICT (kind, name) DO NOTHING",
                )?
                .execute(params![
                    kind,
                    name,
                    task.map(|(id, _)| id.0.cast_signed()),
                    task.map(|(_, partition)| partition.0),
                    now.0,
                    &*by.by,
                    by.from.as_deref(),
                    by.why.as_deref()
                ])?,
            false => connection.prepare_cached("DELETE FROM pauses WHERE kind = ?1 AND name = ?2")?.execute(params![kind, name])?,
        };
        if changed == 0 {
            return Ok(PauseSet::Unchanged);
        }
        let task_id = task.map(|(id, _)| id);
        let body = codec::pack_pause(&scope_of(target, task_id), is_paused);
        let mut entry =
            connection.prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let concerned = task.map_or((0..partitions).collect(), |(_, partition)| vec![partition.0]);
        let mut entries = Vec::with_capacity(concerned.len());
        for partition in concerned {
            let id = entry.insert(params![partition, now.0, &*by.by, KIND_PAUSE, task_id.map(|id| id.0.cast_signed()), body])?;
            entries.push(InboxId(id.cast_unsigned()));
        }
        let action = pauses::audited_pause(target, is_paused);
        let subject = pauses::subject_of(target);
        put_audit(connection, now, &Audit { actor: by, action, task: task_id, instance: None, subject })?;
        Ok(PauseSet::Accepted { entries })
    })
}

/// All pauses.
pub(crate) fn all_pauses(connection: &Connection) -> rusqlite::Result<Vec<PauseView>> {
    connection
        .prepare_cached("SELECT kind, name, since, made_by, made_from, why FROM pauses ORDER BY kind, name")?
        .query_map([], |row| {
            let (target, since) = (target_of(row.get(0)?, required_text(row, 1)?), Timestamp(row.get(2)?));
            Ok(PauseView { target, since, actor: actor(row, 3)? })
        })?
        .collect()
}

/// The pauses that the owner of a partition has to know.
pub(crate) fn pauses_of(connection: &Connection, partition: PartitionId) -> rusqlite::Result<Vec<PauseScope>> {
    connection
        .prepare_cached("SELECT kind, name, task FROM pauses WHERE partition IS NULL OR partition = ?1 ORDER BY kind, name")?
        .query_map([partition.0], |row| {
            let task = row.get::<_, Option<i64>>(2)?.map(|task| TaskId(task.cast_unsigned()));
            Ok(scope_of(&target_of(row.get(0)?, required_text(row, 1)?), task))
        })?
        .collect()
}

/// Puts a change to a manual trigger that is not due yet into the inbox.
pub(crate) fn change_trigger(
    connection: &Connection,
    task: &str,
    key: &str,
    change: DelayedChange,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<TriggerChanged> {
    transaction(connection, |connection| {
        let mut named = connection.prepare_cached("SELECT id, partition FROM tasks WHERE name = ?1")?;
        let found = named.query_row([task], |row| Ok((unsigned(row, 0)?.cast_signed(), row.get::<_, u16>(1)?))).optional()?;
        let Some((id, partition)) = found else { return Ok(TriggerChanged::NoSuchTask) };
        let mut used = connection.prepare_cached("SELECT entry FROM idempotency WHERE key = ?1")?;
        let Some(asked) = used.query_row([key], |row| unsigned(row, 0)).optional()? else { return Ok(TriggerChanged::NoSuchTrigger) };
        let ordinal = ordinal_of(InboxId(asked), 0);
        let mut waits = connection.prepare_cached("SELECT 1 FROM inbox WHERE id = ?1 AND task = ?2 AND kind = ?3")?;
        if !waits.exists(params![asked.cast_signed(), id, KIND_TRIGGER])? {
            let mut made = connection.prepare_cached(
                "SELECT state, due_at FROM instances WHERE ordinal = ?1 AND ordinal <> 0 AND task = ?2 AND part = 0 ORDER BY run LIMIT 1",
            )?;
            let made =
                made.query_row(params![ordinal.cast_signed(), id], |row| Ok((coded::<State>(row, 0)?, row.get::<_, Option<i64>>(1)?)));
            match made.optional()? {
                None => return Ok(TriggerChanged::NoSuchTrigger),
                Some((State::Waiting, Some(_))) => {}
                Some(_) => return Ok(TriggerChanged::Over { ordinal }),
            }
        }
        let body = codec::pack_delayed(ordinal, change, by.why.as_deref());
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .insert(params![partition, now.0, &*by.by, KIND_DELAYED, id, body])?;
        let (action, task) = (pauses::audited_change(change), Some(TaskId(id.cast_unsigned())));
        put_audit(connection, now, &Audit { actor: by, action, task, instance: None, subject: Some(key) })?;
        Ok(TriggerChanged::Accepted { entry: InboxId(entry.cast_unsigned()), ordinal })
    })
}

/// Dead letters that nobody has settled, newest first.
pub(crate) fn dead_letters(connection: &mut Connection, filter: &DeadLetterFilter) -> rusqlite::Result<Vec<InstanceView>> {
    let connection = connection.transaction()?;
    let task = match &filter.task {
        None => None,
        Some(name) => match task_id(&connection, name)? {
            Some(task) => Some(task),
            None => return Ok(Vec::new()),
        },
    };
    let (sql, values) = dead_letters_sql(filter, task);
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), instance_view)?.collect()
}

/// A dead letter is run again: it is in the list no longer.
pub(crate) fn settle(connection: &Connection, instance: InstanceId) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE instances SET settled = 1 WHERE id = ?1 AND state = 5")?.execute([instance.0.cast_signed()]).map(drop)
}

/// Settles a dead letter without running it again.
pub(crate) fn discard(connection: &Connection, instance: InstanceId, by: &Actor, now: Timestamp) -> rusqlite::Result<Discarded> {
    transaction(connection, |connection| {
        let mut stored = connection.prepare_cached("SELECT state, settled, task, part FROM instances WHERE id = ?1")?;
        let found = stored.query_row([instance.0.cast_signed()], |row| {
            Ok((coded::<State>(row, 0)?, row.get::<_, bool>(1)?, TaskId(unsigned(row, 2)?), row.get::<_, i64>(3)?))
        });
        let task = match found.optional()? {
            None => return Ok(Discarded::NoSuchInstance),
            Some((State::DeadLettered, false, task, 0)) => task,
            Some((State::DeadLettered, true, ..)) => return Ok(Discarded::Settled),
            Some(_) => return Ok(Discarded::NotDead),
        };
        settle(connection, instance)?;
        let (task, instance) = (Some(task), Some(instance));
        put_audit(connection, now, &Audit { actor: by, action: AuditAction::Discard, task, instance, subject: None })?;
        Ok(Discarded::Done)
    })
}
