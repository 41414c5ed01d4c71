//! What people do: pauses, the audit, dead letters, and changes to triggers that are not due yet. Each write is on record in its own
//! transaction, and whoever writes entries has the turn, see the catalog module.

use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId};
use punctual_core::inbox::{DelayedChange, ordinal_of};
use punctual_core::instance::{Part, State};
use punctual_core::pause::PauseScope;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    Actor, AuditAction, AuditFilter, AuditView, Discarded, InstanceAction, PauseSet, PauseTarget, PauseView, Submitted, TriggerChanged,
};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::audit::Audit;
use crate::codec;
use crate::codes::Coded;
use crate::mysql::catalog::{NewEntry, TAKE_INBOX_TURN, ask_in_turn, write_entry};
use crate::mysql::error::Failure;
use crate::mysql::history::task_id;
use crate::mysql::rows::{self, required_text, text};
use crate::mysql::session::Session;
use crate::mysql::sql::{literal, statements};
use crate::pauses::{self, scope_of, target_of};
use crate::set_aside::{KIND_DELAYED, KIND_PAUSE, KIND_TRIGGER};

/// Puts writes by people on record.
pub(crate) fn audit_sql<'a>(written: impl IntoIterator<Item = Audit<'a>>, now_sql: &str) -> Vec<String> {
    let sql = "INSERT INTO audit (made_at, made_by, made_from, why, action, task, instance, subject) VALUES ";
    statements(sql, written, "", |values, audit| {
        let Audit { actor, action, task, instance, subject } = audit;
        let values = values.expression(now_sql).bytes(actor.by.as_bytes()).text(actor.from.as_deref()).text(actor.why.as_deref());
        let values = values.unsigned(action.code()).optional(task.map(|task| task.0)).optional(instance.map(|instance| instance.0));
        values.text(subject);
    })
}

/// A dead letter is run again or discarded: it is in the list no longer.
pub(crate) fn settle_sql(instance: InstanceId) -> String {
    format!("DELETE FROM dead_letters WHERE id = {}", instance.0)
}

fn actor(row: &MySqlRow, from: usize) -> Result<Actor, Failure> {
    Ok(Actor { by: required_text(row, from)?, from: text(row, from + 1)?, why: text(row, from + 2)? })
}

/// What people have done, newest first.
pub(crate) async fn audit(session: &mut Session, filter: &AuditFilter) -> Result<Vec<AuditView>, Failure> {
    let task = match &filter.task {
        None => None,
        Some(name) => match task_id(session, name).await? {
            Some(task) => Some(task),
            None => return Ok(Vec::new()),
        },
    };
    let (index, which) = match (filter.instance, task) {
        (Some(instance), task) => {
            let of_task = task.map_or(String::new(), |task| format!(" AND a.task = {}", task.0));
            ("audit_by_instance", format!("a.instance = {}{of_task}", instance.0))
        }
        (None, Some(task)) => ("audit_by_task", format!("a.task = {}", task.0)),
        (None, None) => ("PRIMARY", "TRUE".to_owned()),
    };
    let before = filter.before.unwrap_or(u64::MAX);
    let sql = format!(
        "SELECT a.id, a.made_at, a.made_by, a.made_from, a.why, a.action, t.name, a.instance, a.subject
         FROM audit a FORCE INDEX ({index}) LEFT JOIN tasks t ON t.id = a.task
         WHERE {which} AND a.id < {before} ORDER BY a.id DESC LIMIT {}",
        filter.limit
    );
    let view = |row: &MySqlRow| {
        Ok(AuditView {
            id: row.try_get(0)?,
            at: Timestamp(row.try_get(1)?),
            actor: actor(row, 2)?,
            action: rows::coded(row, 5)?,
            task: text(row, 6)?,
            instance: row.try_get::<Option<u64>, _>(7)?.map(InstanceId),
            subject: text(row, 8)?,
        })
    };
    session.rows(sql).await?.iter().map(view).collect()
}

/// Puts something that is to be done with an instance into the inbox. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn act(
    session: &mut Session,
    instance: InstanceId,
    action: InstanceAction,
    by: &Actor,
    now_sql: &str,
) -> Result<Submitted, Failure> {
    let stored = format!("SELECT task FROM instances FORCE INDEX (instances_by_id) WHERE id = {} LIMIT 1", instance.0);
    let [stored, _] = ask_in_turn(session, stored, None).await?;
    let Some(row) = stored.rows.first() else { return Ok(Submitted::NoSuchInstance) };
    let task = Some(TaskId(row.try_get(0)?));
    let body = codec::pack_cancel(instance, by.why.as_deref());
    let kind = pauses::kind_of_action(action);
    let entry = NewEntry { partition: instance.partition(), by: &by.by, kind, task: None, body: &body };
    let audited = Audit { actor: by, action: action.audited(), task, instance: Some(instance), subject: None };
    Ok(Submitted::Accepted { entry: write_entry(session, entry, audit_sql([audited], now_sql), now_sql).await? })
}

/// Makes a pause, or lifts it, and tells all owners that it concerns. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn set_pause(
    session: &mut Session,
    partitions: u16,
    target: &PauseTarget,
    is_paused: bool,
    by: &Actor,
    now_sql: &str,
) -> Result<PauseSet, Failure> {
    let (kind, name) = (pauses::kind_of(target), literal(target.name().as_bytes()));
    let look = match target {
        PauseTarget::All | PauseTarget::Worker(_) => "SELECT 1".to_owned(),
        PauseTarget::Group(_) => format!("SELECT 1 FROM tasks FORCE INDEX (tasks_by_label) WHERE label = {name} LIMIT 1"),
        PauseTarget::Task(_) => format!("SELECT id, `partition`, removed FROM tasks WHERE name = {name}"),
    };
    // In its turn: of two that pause one task the second finds what the first wrote.
    let there = format!("SELECT 1 FROM pauses WHERE kind = {kind} AND name = {name}");
    let [named, there] = ask_in_turn(session, look, Some(there)).await?;
    let task = match (target, named.rows.first()) {
        (PauseTarget::Group(_), None) if is_paused => return Ok(PauseSet::NoSuchGroup),
        (PauseTarget::Task(_), Some(row)) => {
            let is_removed = row.try_get::<u8, _>(2)? != 0;
            // What was removed can be released, not paused.
            if is_removed && is_paused {
                return Ok(PauseSet::NoSuchTask);
            }
            Some((TaskId(row.try_get(0)?), PartitionId(row.try_get(1)?)))
        }
        (PauseTarget::Task(_), None) => return Ok(PauseSet::NoSuchTask),
        (PauseTarget::All | PauseTarget::Group(_) | PauseTarget::Worker(_), _) => None,
    };
    if there.rows.is_empty() != is_paused {
        return Ok(PauseSet::Unchanged);
    }
    let task_id = task.map(|(id, _)| id);
    let mut script = match is_paused {
        false => vec![format!("DELETE FROM pauses WHERE kind = {kind} AND name = {name}")],
        true => {
            let sql = "INSERT INTO pauses (kind, name, task, `partition`, since, made_by, made_from, why) VALUES ";
            statements(sql, [target], "", |values, target| {
                let values = values.unsigned(kind).bytes(target.name().as_bytes()).optional(task_id.map(|id| id.0));
                let values = values.optional(task.map(|(_, partition)| partition.0)).expression(now_sql).bytes(by.by.as_bytes());
                values.text(by.from.as_deref()).text(by.why.as_deref());
            })
        }
    };
    let body = codec::pack_pause(&scope_of(target, task_id), is_paused);
    let concerned = task.map_or((0..partitions).collect(), |(_, partition)| vec![partition.0]);
    let sql = "INSERT INTO inbox (`partition`, made_at, made_by, kind, task, body) VALUES ";
    let action = pauses::audited_pause(target, is_paused);
    let subject = pauses::subject_of(target);
    script.extend(audit_sql([Audit { actor: by, action, task: task_id, instance: None, subject }], now_sql));
    // Whoever has the turn is alone: what comes behind this is its own.
    script.push("SELECT CAST(COALESCE(MAX(id), 0) AS UNSIGNED) INTO @last FROM inbox".to_owned());
    script.extend(statements(sql, concerned, "", |values, partition| {
        let values = values.unsigned(partition).expression(now_sql).bytes(by.by.as_bytes()).unsigned(KIND_PAUSE);
        values.optional(task_id.map(|id| id.0)).bytes(&body);
    }));
    script.push("SELECT id FROM inbox FORCE INDEX (PRIMARY) WHERE id > @last ORDER BY id".to_owned());
    script.push("COMMIT".to_owned());
    let mut answers = session.answers(script.join("; ")).await?;
    answers.pop();
    let written = answers.pop().unwrap_or_default();
    let entries = written.rows.iter().map(|row| Ok(InboxId(row.try_get(0)?))).collect::<Result<_, Failure>>()?;
    Ok(PauseSet::Accepted { entries })
}

/// All pauses.
pub(crate) async fn all_pauses(session: &mut Session) -> Result<Vec<PauseView>, Failure> {
    let sql = "SELECT kind, name, since, made_by, made_from, why FROM pauses ORDER BY kind, name";
    let view = |row: &MySqlRow| {
        let (target, since) = (target_of(row.try_get(0)?, required_text(row, 1)?), Timestamp(row.try_get(2)?));
        Ok(PauseView { target, since, actor: actor(row, 3)? })
    };
    session.rows(sql.to_owned()).await?.iter().map(view).collect()
}

/// The pauses that the owner of a partition has to know.
pub(crate) async fn pauses_of(session: &mut Session, partition: PartitionId) -> Result<Vec<PauseScope>, Failure> {
    let sql = format!("SELECT kind, name, task FROM pauses WHERE `partition` IS NULL OR `partition` = {partition} ORDER BY kind, name");
    let scope = |row: &MySqlRow| {
        let task = row.try_get::<Option<u64>, _>(2)?.map(TaskId);
        Ok(scope_of(&target_of(row.try_get(0)?, required_text(row, 1)?), task))
    };
    session.rows(sql).await?.iter().map(scope).collect()
}

/// Puts a change to a manual trigger that is not due yet into the inbox. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn change_trigger(
    session: &mut Session,
    task: &str,
    key: &str,
    change: DelayedChange,
    by: &Actor,
    now_sql: &str,
) -> Result<TriggerChanged, Failure> {
    let named = format!("SELECT id, `partition` FROM tasks WHERE name = {}", literal(task.as_bytes()));
    let used = format!("SELECT entry FROM idempotency WHERE submission_key = {}", literal(key.as_bytes()));
    let [named, used] = ask_in_turn(session, named, Some(used)).await?;
    let Some(row) = named.rows.first() else { return Ok(TriggerChanged::NoSuchTask) };
    let (task, partition) = (TaskId(row.try_get(0)?), PartitionId(row.try_get(1)?));
    let Some(row) = used.rows.first() else { return Ok(TriggerChanged::NoSuchTrigger) };
    let asked = InboxId(row.try_get(0)?);
    let ordinal = ordinal_of(asked, 0);
    // First the entry: its owner makes the instance in the transaction that removes it.
    let waits = format!("SELECT 1 FROM inbox WHERE id = {} AND task = {} AND kind = {KIND_TRIGGER}", asked.0, task.0);
    if session.rows(waits).await?.is_empty() {
        let made = format!(
            "SELECT i.state, i.due_at FROM submissions d STRAIGHT_JOIN instances i ON i.fire_time = d.fire_time AND i.task = d.task
             AND i.ordinal = d.ordinal AND i.run = d.run AND i.part = {} WHERE d.ordinal = {ordinal} AND d.task = {} ORDER BY d.run LIMIT 1",
            Part::WHOLE.0, task.0
        );
        let made = session.rows(made).await?;
        let Some(row) = made.first() else { return Ok(TriggerChanged::NoSuchTrigger) };
        if rows::coded::<State>(row, 0)? != State::Waiting || row.try_get::<Option<i64>, _>(1)?.is_none() {
            return Ok(TriggerChanged::Over { ordinal });
        }
    }
    let body = codec::pack_delayed(ordinal, change, by.why.as_deref());
    let entry = NewEntry { partition, by: &by.by, kind: KIND_DELAYED, task: Some(task), body: &body };
    let action = pauses::audited_change(change);
    let audited = Audit { actor: by, action, task: Some(task), instance: None, subject: Some(key) };
    let entry = write_entry(session, entry, audit_sql([audited], now_sql), now_sql).await?;
    Ok(TriggerChanged::Accepted { entry, ordinal })
}

/// Settles a dead letter without running it again. The transaction that it begins is ended only where it is done.
pub(crate) async fn discard(session: &mut Session, instance: InstanceId, by: &Actor, now_sql: &str) -> Result<Discarded, Failure> {
    let id = instance.0;
    // In the turn of those who write reruns: one of the two settles it.
    let script = [
        "START TRANSACTION".to_owned(),
        TAKE_INBOX_TURN.to_owned(),
        format!("SELECT state, task, part FROM instances FORCE INDEX (instances_by_id) WHERE id = {id} LIMIT 1"),
        format!("SELECT 1 FROM dead_letters WHERE id = {id}"),
    ];
    let mut answers = session.answers(script.join("; ")).await?.into_iter().skip(2);
    let [stored, listed] = std::array::from_fn(|_| answers.next().unwrap_or_default());
    let Some(row) = stored.rows.first() else { return Ok(Discarded::NoSuchInstance) };
    if rows::coded::<State>(row, 0)? != State::DeadLettered || row.try_get::<u64, _>(2)? != Part::WHOLE.0 {
        return Ok(Discarded::NotDead);
    }
    if listed.rows.is_empty() {
        return Ok(Discarded::Settled);
    }
    let (action, task) = (AuditAction::Discard, Some(TaskId(row.try_get(1)?)));
    let audited = Audit { actor: by, action, task, instance: Some(instance), subject: None };
    let script = [settle_sql(instance)].into_iter().chain(audit_sql([audited], now_sql)).chain(["COMMIT".to_owned()]);
    session.answers(script.collect::<Vec<_>>().join("; ")).await?;
    Ok(Discarded::Done)
}
