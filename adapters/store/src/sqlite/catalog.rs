//! What everyone else writes: task documents, manual triggers, reruns; each with its inbox entry in one transaction.
//!
//! An application first compares, on a reading connection, and writes only what differs. Nobody else writes tasks: the process has the
//! database to itself and applications take turns. A start with a million unchanged tasks therefore holds no commit up.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::batch::Reference;
use punctual_core::chains::{Call, Edge};
use punctual_core::definition::Chain;
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version, partition_of};
use punctual_core::inbox::{NodeMark, Submission};
use punctual_core::time::Timestamp;
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{Actor, Applying, AuditAction, Rerunning, Submitted, TaskDocument};
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::FxHashSet;

use crate::audit::Audit;
use crate::codec;
use crate::codes::Coded;
use crate::plan::{Callee, Plan, Planner, StoredTask, Ties, request_hash};
use crate::reruns::{divided_into, mark_refused, rerun_hash, rerun_key, rerun_of, shards_again};
use crate::set_aside::{KIND_DEFINITION, KIND_MARK_NODE, KIND_REFERENCES, KIND_RERUN, KIND_RERUN_FROM, KIND_TRIGGER};
use crate::sqlite::commit::transaction;
use crate::sqlite::people::{put_audit, settle};
use crate::sqlite::rows::{self, coded, instance_columns, text, unsigned};

/// Compares the documents with what is stored.
pub(crate) fn compare(connection: &mut Connection, source: &str, documents: &[TaskDocument], how: &Applying) -> rusqlite::Result<Plan> {
    let connection = connection.transaction()?;
    let mut planner = Planner::new(documents);
    let mut stored = connection.prepare_cached(
        "SELECT t.id, t.version, t.removed, t.source, v.document FROM tasks t
         LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.name = ?1",
    )?;
    for (index, task) in documents.iter().enumerate() {
        if !planner.counts(index, task) {
            continue;
        }
        let found = stored.query_row([&*task.definition.name], |row| {
            Ok(StoredTask {
                id: TaskId(unsigned(row, 0)?),
                version: Version(row.get(1)?),
                is_removed: row.get(2)?,
                foreign: Some(row.get_ref(3)?.as_str()?).filter(|owner| *owner != source).map(Arc::from),
                is_equal: row.get_ref(4)?.as_str_or_null()? == Some(&*task.document),
            })
        });
        planner.compare(task, found.optional()?);
    }
    let mut made_before = connection.prepare_cached("SELECT id, name, version FROM tasks WHERE source = ?1 AND removed = 0 ORDER BY id")?;
    let mut found = made_before.query([source])?;
    while let Some(row) = found.next()? {
        planner.made_before(TaskId(unsigned(row, 0)?), row.get_ref(1)?.as_str()?, Version(row.get(2)?));
    }
    let mut plan = planner.plan();
    plan.hold_to(how);
    if plan.may_break_chains() {
        let ties = plan.ties_afterwards(stored_ties(&connection)?);
        let there = those_that_exist(&connection, ties.names_to_look_up())?;
        plan.check_chains(&ties, there);
    }
    Ok(plan)
}

pub(crate) fn stored_ties(connection: &Connection) -> rusqlite::Result<Ties> {
    let mut stored = connection.prepare_cached(
        "SELECT a.name, t.name FROM task_references r JOIN tasks a ON a.id = r.task JOIN tasks t ON t.id = r.target ORDER BY r.task, r.target",
    )?;
    let edges = stored.query_map([], |row| Ok(Edge { after: required_text(row, 0)?, task: required_text(row, 1)? }))?;
    let mut stored = connection.prepare_cached(
        "SELECT a.name, t.name, c.times FROM task_calls c JOIN tasks a ON a.id = c.task JOIN tasks t ON t.id = c.called ORDER BY c.task, c.called",
    )?;
    let calls =
        stored.query_map([], |row| Ok(Call { task: required_text(row, 0)?, called: required_text(row, 1)?, times: row.get(2)? }))?;
    Ok(Ties { edges: edges.collect::<Result<_, _>>()?, calls: calls.collect::<Result<_, _>>()? })
}

pub(crate) fn those_that_exist(connection: &Connection, names: Vec<Arc<str>>) -> rusqlite::Result<FxHashSet<Arc<str>>> {
    let mut there = FxHashSet::default();
    let mut named = connection.prepare_cached("SELECT 1 FROM tasks WHERE name = ?1 AND removed = 0")?;
    for name in names {
        if named.exists([&*name])? {
            there.insert(name);
        }
    }
    Ok(there)
}

/// Writes what differs, each change with its inbox entry, in one transaction.
pub(crate) fn write(
    connection: &Connection,
    partitions: u16,
    source: &str,
    actor: &Actor,
    plan: &Plan,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let by = &*actor.by;
    transaction(connection, |connection| {
        let mut task = connection.prepare_cached(
            "INSERT INTO tasks (name, partition, version, source, removed, updated_at, label) VALUES (?1, ?2, 1, ?3, 0, ?4, ?5)",
        )?;
        let mut version = connection
            .prepare_cached("INSERT INTO task_versions (task, version, created_at, created_by, document) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut entry =
            connection.prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let (mut chains, mut calls) = (Vec::new(), Vec::new());
        let audited = |task: i64, action| {
            let (task, subject) = (Some(TaskId(task.cast_unsigned())), Some(source));
            put_audit(connection, now, &Audit { actor, action, task, instance: None, subject })
        };
        for created in &plan.created {
            let partition = partition_of(&created.name, partitions);
            let id = task.insert(params![&*created.name, partition.0, source, now.0, created.group.as_deref()])?;
            version.execute(params![id, 1, now.0, by, &*created.document])?;
            entry.execute(params![partition.0, now.0, by, KIND_DEFINITION, id, 1])?;
            chains.push((id, partition, created.chains.as_deref().unwrap_or_default()));
            calls.push((id, &*created.calls));
            audited(id, AuditAction::Create)?;
        }
        let mut change = connection
            .prepare_cached("UPDATE tasks SET version = ?2, source = ?3, removed = ?4, updated_at = ?5, label = ?6 WHERE id = ?1")?;
        for changed in plan.changed.iter().chain(&plan.removed) {
            let id = changed.task.0.cast_signed();
            change.execute(params![id, changed.version.0, source, changed.document.is_none(), now.0, changed.group.as_deref()])?;
            version.execute(params![id, changed.version.0, now.0, by, changed.document.as_deref()])?;
            let partition = partition_of(&changed.name, partitions);
            entry.execute(params![partition.0, now.0, by, KIND_DEFINITION, id, changed.version.0])?;
            chains.push((id, partition, changed.chains.as_deref().unwrap_or_default()));
            calls.push((id, &*changed.calls));
            audited(id, changed.audited())?;
        }
        write_references(connection, &chains, by, now)?;
        write_calls(connection, &calls)?;
        let mut take_over = connection.prepare_cached("UPDATE tasks SET source = ?2 WHERE id = ?1")?;
        for id in &plan.taken_over {
            take_over.execute(params![id.0.cast_signed(), source])?;
        }
        Ok(())
    })
}

/// Writes which tasks' ends make these tasks fire from now on, and tells the owners of those that end.
fn write_references(connection: &Connection, tasks: &[(i64, PartitionId, &[Chain])], by: &str, now: Timestamp) -> rusqlite::Result<()> {
    let mut concerned = BTreeSet::new();
    let mut forget = connection.prepare_cached("DELETE FROM task_references WHERE target = ?1 RETURNING partition, task")?;
    let mut named = connection.prepare_cached("SELECT id, partition FROM tasks WHERE name = ?1")?;
    let mut insert = connection
        .prepare_cached("INSERT INTO task_references (partition, task, target, target_partition, met_by) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let place = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u16>(0)?, row.get::<_, i64>(1)?));
    for (task, partition, chains) in tasks {
        let before = forget.query_map([task], place)?.collect::<rusqlite::Result<Vec<_>>>()?;
        concerned.extend(before);
        for chain in *chains {
            let (id, of) = named.query_row([&*chain.task], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, u16>(1)?)))?;
            insert.execute(params![of, id, task, partition.0, chain.on.code()])?;
            concerned.insert((of, id));
        }
    }
    let mut entry = connection.prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (partition, task) in concerned {
        let references = references(connection, PartitionId(partition), Some(TaskId(task.cast_unsigned())))?;
        entry.execute(params![partition, now.0, by, KIND_REFERENCES, task, codec::pack_references(&references)])?;
    }
    Ok(())
}

/// Writes which tasks the nodes of these tasks call from now on.
fn write_calls(connection: &Connection, tasks: &[(i64, &[Callee])]) -> rusqlite::Result<()> {
    let mut forget = connection.prepare_cached("DELETE FROM task_calls WHERE task = ?1")?;
    let mut insert =
        connection.prepare_cached("INSERT INTO task_calls (task, called, times) SELECT ?1, id, ?3 FROM tasks WHERE name = ?2")?;
    for (task, calls) in tasks {
        forget.execute([task])?;
        for (called, times) in *calls {
            insert.execute(params![task, &**called, times])?;
        }
    }
    Ok(())
}

/// What the ends of a partition's tasks make fire, or of one of them.
pub(crate) fn references(connection: &Connection, partition: PartitionId, of: Option<TaskId>) -> rusqlite::Result<Vec<Reference>> {
    let mut stored = connection.prepare_cached(
        "SELECT task, target, target_partition, met_by FROM task_references
         WHERE partition = ?1 AND (?2 IS NULL OR task = ?2) ORDER BY task, target",
    )?;
    let reference = |row: &rusqlite::Row<'_>| {
        let (from, to) = (TaskId(unsigned(row, 0)?), TaskId(unsigned(row, 1)?));
        Ok(Reference { from, to, partition: PartitionId(row.get(2)?), on: coded(row, 3)? })
    };
    stored.query_map(params![partition.0, of.map(|task| task.0.cast_signed())], reference)?.collect()
}

/// Puts a manual trigger into the inbox, once a key.
pub(crate) fn trigger(
    connection: &Connection,
    task: &str,
    by: &Actor,
    key: Option<&str>,
    submissions: &[Submission],
    now: Timestamp,
) -> rusqlite::Result<Submitted> {
    let body = codec::pack_submissions(submissions);
    transaction(connection, |connection| {
        let mut named = connection.prepare_cached("SELECT id, partition, removed FROM tasks WHERE name = ?1")?;
        let found =
            named.query_row([task], |row| Ok((row.get::<_, i64>(0)?, PartitionId(row.get(1)?), row.get::<_, bool>(2)?))).optional()?;
        let Some((id, partition, removed)) = found else { return Ok(Submitted::NoSuchTask) };
        let hash = request_hash(TaskId(id.cast_unsigned()), &body);
        if let Some(key) = key {
            let mut used = connection.prepare_cached("SELECT entry, request_hash FROM idempotency WHERE key = ?1")?;
            let earlier = used.query_row([key], |row| Ok((InboxId(unsigned(row, 0)?), row.get_ref(1)?.as_blob()? == hash))).optional()?;
            match earlier {
                Some((entry, true)) => return Ok(Submitted::Repeated { entry }),
                Some((_, false)) => return Ok(Submitted::KeyTaken),
                None => {}
            }
        }
        if removed {
            return Ok(Submitted::NoSuchTask);
        }
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .insert(params![partition.0, now.0, &*by.by, KIND_TRIGGER, id, body])?;
        if let Some(key) = key {
            connection
                .prepare_cached("INSERT INTO idempotency (key, request_hash, entry, at) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![key, &hash[..], entry, now.0])?;
        }
        let task = Some(TaskId(id.cast_unsigned()));
        put_audit(connection, now, &Audit { actor: by, action: AuditAction::Trigger, task, instance: None, subject: key })?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// Puts what somebody says of a node into the inbox.
pub(crate) fn mark_node(
    connection: &Connection,
    instance: InstanceId,
    (node, mark): (NodeIndex, NodeMark),
    subject: &str,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<Submitted> {
    transaction(connection, |connection| {
        let mut stored = connection.prepare_cached(concat!("SELECT ", instance_columns!(), " FROM instances i WHERE i.id = ?1"))?;
        let Some(row) = stored.query_row([instance.0.cast_signed()], rows::instance).optional()? else {
            return Ok(Submitted::NoSuchInstance);
        };
        if let Some(refused) = mark_refused(&row, node) {
            return Ok(refused);
        }
        let body = codec::pack_mark(instance, node, mark, by.why.as_deref());
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .insert(params![instance.partition().0, now.0, &*by.by, KIND_MARK_NODE, body])?;
        let written =
            Audit { actor: by, action: AuditAction::MarkNode, task: Some(row.task), instance: Some(instance), subject: Some(subject) };
        put_audit(connection, now, &written)?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// Puts a rerun into the inbox, once an instance.
pub(crate) fn rerun(
    connection: &Connection,
    instance: InstanceId,
    by: &Actor,
    which: Rerunning,
    now: Timestamp,
) -> rusqlite::Result<Submitted> {
    transaction(connection, |connection| {
        let mut stored = connection.prepare_cached(concat!("SELECT ", instance_columns!(), " FROM instances i WHERE i.id = ?1"))?;
        let Some(row) = stored.query_row([instance.0.cast_signed()], rows::instance).optional()? else {
            return Ok(Submitted::NoSuchInstance);
        };
        let divided_into = divided_into(&row, &which);
        let mut of = match rerun_of(row, by.why.as_deref(), which) {
            Ok(of) => of,
            Err(refused) => return Ok(refused),
        };
        let task = of.task.0.cast_signed();
        if let Some(count) = divided_into {
            // Literal: the order of states is fixed, 10 is success.
            let mut parts = connection.prepare_cached(concat!(
                "SELECT ",
                instance_columns!(),
                " FROM instances i INDEXED BY instances_firing
                 WHERE i.fire_time = ?1 AND i.task = ?2 AND i.ordinal = ?3 AND i.run = ?4 AND i.part > 0 AND i.state <> 10 ORDER BY i.part"
            ))?;
            let parts = parts.query_map(params![of.fire_time.0, task, of.ordinal.cast_signed(), of.run], rows::instance)?;
            of.shards = shards_again(count, parts.collect::<Result<_, _>>()?);
        }
        let (key, hash) = (rerun_key(instance), rerun_hash(&of));
        let mut used = connection.prepare_cached("SELECT entry, request_hash FROM idempotency WHERE key = ?1")?;
        let earlier = used.query_row([&key], |row| Ok((InboxId(unsigned(row, 0)?), row.get_ref(1)?.as_blob()? == hash))).optional()?;
        match earlier {
            Some((entry, true)) => return Ok(Submitted::Repeated { entry }),
            // It runs again, but not as this one wants it.
            Some((_, false)) => return Ok(Submitted::NotNewest),
            None => {}
        }
        let mut newer = connection.prepare_cached(
            "SELECT 1 FROM instances INDEXED BY instances_firing
             WHERE fire_time = ?1 AND task = ?2 AND ordinal = ?3 AND run > ?4 AND part = 0 LIMIT 1",
        )?;
        if newer.exists(params![of.fire_time.0, task, of.ordinal.cast_signed(), of.run])? {
            return Ok(Submitted::NotNewest);
        }
        let mut there = connection.prepare_cached("SELECT 1 FROM tasks WHERE id = ?1 AND removed = 0")?;
        if !there.exists([task])? {
            return Ok(Submitted::NoSuchTask);
        }
        let (body, kind) = (codec::pack_rerun(&of), if of.from.is_some() { KIND_RERUN_FROM } else { KIND_RERUN });
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .insert(params![instance.partition().0, now.0, &*by.by, kind, task, body])?;
        connection.prepare_cached("INSERT INTO idempotency (key, request_hash, entry, at) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            key,
            &hash[..],
            entry,
            now.0
        ])?;
        settle(connection, instance)?;
        let (task, instance) = (Some(of.task), Some(instance));
        put_audit(connection, now, &Audit { actor: by, action: AuditAction::Rerun, task, instance, subject: None })?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// The id of a task.
pub(crate) fn task_id(connection: &Connection, name: &str) -> rusqlite::Result<Option<TaskId>> {
    connection
        .prepare_cached("SELECT id FROM tasks WHERE name = ?1")?
        .query_row([name], |row| unsigned(row, 0))
        .optional()
        .map(|id| id.map(TaskId))
}

/// Text that is never NULL.
pub(crate) fn required_text(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
    text(row, column).map(Option::unwrap_or_default)
}
