//! What everyone else writes: task documents, manual triggers, cancellations; each with its inbox entry in one transaction.
//!
//! An application first compares, on a reading connection, and writes only what differs. Nobody else writes tasks: the process has the
//! database to itself and applications take turns. A start with a million unchanged tasks therefore holds no commit up.

use std::sync::Arc;

use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version, partition_of};
use punctual_core::inbox::Submission;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Applied, Submitted, TaskDocument};
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::FxHashMap;

use crate::codec;
use crate::commit::transaction;
use crate::owner::{KIND_CANCEL, KIND_DEFINITION, KIND_TRIGGER};
use crate::rows::{text, unsigned};

/// What an application has to write.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    created: Vec<(Arc<str>, Arc<str>)>,
    changed: Vec<Change>,
    removed: Vec<Change>,
    /// Unchanged ones that another source made.
    taken_over: Vec<TaskId>,
    unchanged: usize,
}

#[derive(Debug)]
struct Change {
    task: TaskId,
    name: Arc<str>,
    version: Version,
    document: Option<Arc<str>>,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.created.is_empty() && self.changed.is_empty() && self.removed.is_empty() && self.taken_over.is_empty()
    }

    pub(crate) fn into_applied(self) -> Applied {
        Applied {
            created: self.created.into_iter().map(|(name, _)| name).collect(),
            changed: self.changed.into_iter().map(|change| change.name).collect(),
            unchanged: self.unchanged,
            removed: self.removed.into_iter().map(|change| change.name).collect(),
        }
    }
}

/// Compares the documents with what is stored.
pub(crate) fn compare(connection: &mut Connection, source: &str, documents: &[TaskDocument]) -> rusqlite::Result<Plan> {
    let connection = connection.transaction()?;
    let mut plan = Plan::default();
    // Of two documents of one name the later one counts.
    let last: FxHashMap<&str, usize> = documents.iter().enumerate().map(|(index, task)| (&*task.definition.name, index)).collect();
    let mut stored = connection.prepare_cached(
        "SELECT t.id, t.version, t.removed, t.source, v.document FROM tasks t
         LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.name = ?1",
    )?;
    for (index, task) in documents.iter().enumerate() {
        let name = &task.definition.name;
        if last[&**name] != index {
            continue;
        }
        let mut found = stored.query([&**name])?;
        let Some(row) = found.next()? else {
            plan.created.push((Arc::clone(name), Arc::clone(&task.document)));
            continue;
        };
        let (id, removed) = (TaskId(unsigned(row, 0)?), row.get::<_, bool>(2)?);
        let is_equal = row.get_ref(4)?.as_str_or_null()? == Some(&*task.document);
        if removed || !is_equal {
            let version = Version(row.get::<_, u32>(1)? + 1);
            plan.changed.push(Change { task: id, name: Arc::clone(name), version, document: Some(Arc::clone(&task.document)) });
            continue;
        }
        plan.unchanged += 1;
        if row.get_ref(3)?.as_str()? != source {
            plan.taken_over.push(id);
        }
    }
    let mut made_before = connection.prepare_cached("SELECT id, name, version FROM tasks WHERE source = ?1 AND removed = 0 ORDER BY id")?;
    let mut found = made_before.query([source])?;
    while let Some(row) = found.next()? {
        let name = row.get_ref(1)?.as_str()?;
        if !last.contains_key(name) {
            let version = Version(row.get::<_, u32>(2)? + 1);
            plan.removed.push(Change { task: TaskId(unsigned(row, 0)?), name: name.into(), version, document: None });
        }
    }
    Ok(plan)
}

/// Writes what differs, each change with its inbox entry, in one transaction.
pub(crate) fn write(connection: &Connection, partitions: u16, source: &str, by: &str, plan: &Plan, now: Timestamp) -> rusqlite::Result<()> {
    transaction(connection, |connection| {
        let mut task = connection
            .prepare_cached("INSERT INTO tasks (name, partition, version, source, removed, updated_at) VALUES (?1, ?2, 1, ?3, 0, ?4)")?;
        let mut version = connection
            .prepare_cached("INSERT INTO task_versions (task, version, created_at, created_by, document) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut entry =
            connection.prepare_cached("INSERT INTO inbox (partition, at, by, kind, task, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        for (name, document) in &plan.created {
            let partition = partition_of(name, partitions);
            let id = task.insert(params![&**name, partition.0, source, now.0])?;
            version.execute(params![id, 1, now.0, by, &**document])?;
            entry.execute(params![partition.0, now.0, by, KIND_DEFINITION, id, 1])?;
        }
        let mut change =
            connection.prepare_cached("UPDATE tasks SET version = ?2, source = ?3, removed = ?4, updated_at = ?5 WHERE id = ?1")?;
        for changed in plan.changed.iter().chain(&plan.removed) {
            let id = changed.task.0.cast_signed();
            change.execute(params![id, changed.version.0, source, changed.document.is_none(), now.0])?;
            version.execute(params![id, changed.version.0, now.0, by, changed.document.as_deref()])?;
            let partition = partition_of(&changed.name, partitions);
            entry.execute(params![partition.0, now.0, by, KIND_DEFINITION, id, changed.version.0])?;
        }
        let mut take_over = connection.prepare_cached("UPDATE tasks SET source = ?2 WHERE id = ?1")?;
        for id in &plan.taken_over {
            take_over.execute(params![id.0.cast_signed(), source])?;
        }
        Ok(())
    })
}

/// Puts a manual trigger into the inbox, once a key.
pub(crate) fn trigger(
    connection: &Connection,
    task: &str,
    by: &str,
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
        let hash = request_hash(id, &body);
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
            .insert(params![partition.0, now.0, by, KIND_TRIGGER, id, body])?;
        if let Some(key) = key {
            connection
                .prepare_cached("INSERT INTO idempotency (key, request_hash, entry, at) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![key, &hash[..], entry, now.0])?;
        }
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// Puts a cancellation into the inbox.
pub(crate) fn cancel(
    connection: &Connection,
    instance: InstanceId,
    by: &str,
    reason: Option<&str>,
    now: Timestamp,
) -> rusqlite::Result<Submitted> {
    transaction(connection, |connection| {
        let mut exists = connection.prepare_cached("SELECT 1 FROM instances WHERE id = ?1")?;
        if !exists.exists([instance.0.cast_signed()])? {
            return Ok(Submitted::NoSuchInstance);
        }
        let entry = connection
            .prepare_cached("INSERT INTO inbox (partition, at, by, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .insert(params![instance.partition().0, now.0, by, KIND_CANCEL, codec::pack_cancel(instance, reason)])?;
        Ok(Submitted::Accepted { entry: InboxId(entry.cast_unsigned()) })
    })
}

/// FNV-1a in 128 bits over the task and what is asked of it: tells one request from another, no secret.
fn request_hash(task: i64, body: &[u8]) -> [u8; 16] {
    let bytes = task.to_le_bytes().into_iter().chain(body.iter().copied());
    bytes
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
        .to_le_bytes()
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
