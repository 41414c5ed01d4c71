//! What an owner reads: its partition, and its inbox.
//!
//! Documents that this program can't decode (a newer program wrote them, a zone is not on this machine) must neither stop the others nor
//! lose anything. The task is *set aside*: a snapshot leaves it and its live instances out, its inbox entries stay where they are, and an
//! error is logged once. All of it is there for a program that understands. From the first entry on that can't be decoded, all entries of its
//! task wait, in their order. An edit helps too: an entry whose own version can't be decoded takes on the task's newest version, if that
//! one can; a reader that is past it by then meets it at its next start.

use std::sync::Arc;

use punctual_core::batch::{Snapshot, TaskRecord};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::{InboxEntry, Request};
use punctual_core::time::Timestamp;
use punctual_driver::ports::InboxPage;
use rusqlite::{Connection, OptionalExtension, Row, params};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Decode;
use crate::codec;
use crate::rows::{self, INSTANCE_COLUMNS, instance_columns, text, unsigned};

/// What inbox entries ask for, by the number that is stored.
pub(crate) const KIND_DEFINITION: u8 = 1;
pub(crate) const KIND_TRIGGER: u8 = 2;
pub(crate) const KIND_CANCEL: u8 = 3;

/// What this program can't read.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    /// Tasks whose version in force can't be decoded: their inbox entries stay where they are, until an edit.
    in_force: FxHashSet<TaskId>,
    /// The first entry of a task that can't be decoded: those behind it stay where they are.
    blocked: FxHashMap<TaskId, InboxId>,
    /// Versions that were logged.
    versions: FxHashSet<(TaskId, Version)>,
    /// Entries that were logged.
    entries: FxHashSet<InboxId>,
}

impl SetAside {
    fn block(&mut self, task: TaskId, version: Version, entry: InboxId, reason: &str) {
        self.blocked.entry(task).and_modify(|first| *first = entry.min(*first)).or_insert(entry);
        self.version(task, version, reason);
    }

    /// Whether an entry of this task stays where it is because of what is before it.
    fn holds(&self, task: TaskId, entry: InboxId) -> bool {
        self.in_force.contains(&task) || self.is_behind_one(task, entry)
    }

    fn is_behind_one(&self, task: TaskId, entry: InboxId) -> bool {
        self.blocked.get(&task).is_some_and(|first| *first < entry)
    }

    fn version(&mut self, task: TaskId, version: Version, reason: &str) {
        if self.versions.insert((task, version)) {
            tracing::error!(
                code = "PUN-208",
                %task,
                %version,
                reason,
                "a task's document can't be decoded by this program: what needs it is set aside, all else goes on"
            );
        }
    }

    fn entry(&mut self, entry: InboxId, reason: &str) {
        if self.entries.insert(entry) {
            tracing::error!(code = "PUN-208", %entry, reason, "an inbox entry can't be decoded by this program: it is left in the inbox, others go on");
        }
    }
}

/// Decodes each version once.
struct Definitions<'a> {
    decode: &'a Decode,
    known: FxHashMap<(TaskId, Version), Result<Arc<TaskDefinition>, String>>,
}

impl<'a> Definitions<'a> {
    fn new(decode: &'a Decode) -> Self {
        Definitions { decode, known: FxHashMap::default() }
    }

    /// The definition of a version whose document is in `column`.
    fn decoded(
        &mut self,
        task: TaskId,
        version: Version,
        row: &Row<'_>,
        column: usize,
    ) -> rusqlite::Result<Result<Arc<TaskDefinition>, String>> {
        if let Some(known) = self.known.get(&(task, version)) {
            return Ok(known.clone());
        }
        let decoded = match row.get_ref(column)?.as_str_or_null()? {
            Some(document) => (self.decode)(document).map(Arc::new),
            None => Err("the version has no document".to_owned()),
        };
        self.known.insert((task, version), decoded.clone());
        Ok(decoded)
    }
}

/// Reads what a new owner needs of a partition, all of it as of one moment.
pub(crate) fn snapshot(
    connection: &mut Connection,
    partition: PartitionId,
    decode: &Decode,
    set_aside: &mut SetAside,
) -> rusqlite::Result<Snapshot> {
    let connection = connection.transaction()?;
    let mut definitions = Definitions::new(decode);
    let mut snapshot = Snapshot::default();

    let mut tasks = connection.prepare_cached(
        "SELECT s.task, s.version, s.next_fire, v.document, s.fired_until FROM task_states s
         LEFT JOIN task_versions v ON v.task = s.task AND v.version = s.version
         WHERE s.partition = ?1 AND s.version IS NOT NULL ORDER BY s.task",
    )?;
    let mut found = tasks.query([partition.0])?;
    while let Some(row) = found.next()? {
        let (task, version) = (TaskId(unsigned(row, 0)?), Version(row.get(1)?));
        let next_fire = row.get::<_, Option<i64>>(2)?.map(Timestamp);
        let fired_until = row.get::<_, Option<i64>>(4)?.map(Timestamp);
        match definitions.decoded(task, version, row, 3)? {
            Ok(definition) => {
                set_aside.in_force.remove(&task);
                snapshot.tasks.push(TaskRecord { task, version, definition, next_fire, fired_until });
            }
            Err(reason) => {
                set_aside.in_force.insert(task);
                set_aside.version(task, version, &reason);
            }
        }
    }

    let mut instances = connection.prepare_cached(concat!(
        "SELECT ",
        instance_columns!(),
        ", v.document FROM instances i INDEXED BY instances_live
         LEFT JOIN task_versions v ON v.task = i.task AND v.version = i.version
         WHERE i.state < 5 AND i.id BETWEEN ?1 AND ?2 ORDER BY i.id"
    ))?;
    let first = InstanceId::new(partition, 0).0.cast_signed();
    let last = first | ((1 << 48) - 1);
    let mut found = instances.query([first, last])?;
    while let Some(row) = found.next()? {
        let instance = rows::instance(row)?;
        match definitions.decoded(instance.task, instance.version, row, INSTANCE_COLUMNS)? {
            Ok(definition) => snapshot.instances.push((instance, definition)),
            Err(reason) => set_aside.version(instance.task, instance.version, &reason),
        }
    }
    Ok(snapshot)
}

/// Reads the oldest entries behind `after` of these partitions' inboxes. It steps over the entries of other partitions, of which the one process that
/// has the database owns hardly any.
pub(crate) fn read_inbox(
    connection: &mut Connection,
    partitions: &[PartitionId],
    after: InboxId,
    limit: usize,
    decode: &Decode,
    set_aside: &mut SetAside,
) -> rusqlite::Result<InboxPage> {
    let connection = connection.transaction()?;
    let mut definitions = Definitions::new(decode);
    let mut page = InboxPage::default();
    let mut entries =
        connection.prepare_cached("SELECT id, partition, at, by, kind, task, version, body FROM inbox WHERE id > ?1 ORDER BY id")?;
    let mut found = entries.query([after.0.cast_signed()])?;
    while let Some(row) = found.next()? {
        let partition = PartitionId(row.get(1)?);
        if !partitions.contains(&partition) {
            continue;
        }
        let Some(request) = request(&connection, row, &mut definitions, set_aside)? else { continue };
        if page.entries.len() == limit {
            page.more = true;
            break;
        }
        let (id, at) = (InboxId(unsigned(row, 0)?), Timestamp(row.get(2)?));
        page.entries.push(InboxEntry { id, partition, at, by: text(row, 3)?.unwrap_or_default(), request });
    }
    Ok(page)
}

/// What an entry asks for; `None`: it is set aside.
fn request(
    connection: &Connection,
    row: &Row<'_>,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> rusqlite::Result<Option<Request>> {
    let entry = InboxId(unsigned(row, 0)?);
    let body = || row.get_ref(7)?.as_bytes_or_null().map(Option::unwrap_or_default).map_err(rusqlite::Error::from);
    match row.get::<_, u8>(4)? {
        KIND_DEFINITION => definition_changed(connection, row, definitions, set_aside),
        KIND_TRIGGER => {
            let task = TaskId(unsigned(row, 5)?);
            if set_aside.holds(task, entry) {
                return Ok(None);
            }
            match codec::submissions(body()?) {
                Ok(submissions) => Ok(Some(Request::Trigger { task, submissions })),
                Err(malformed) => {
                    set_aside.entry(entry, malformed.0);
                    Ok(None)
                }
            }
        }
        KIND_CANCEL => match codec::cancel(body()?) {
            Ok((instance, _)) if is_set_aside(connection, entry, instance, definitions, set_aside)? => Ok(None),
            Ok((instance, reason)) => Ok(Some(Request::Cancel { instance, reason })),
            Err(malformed) => {
                set_aside.entry(entry, malformed.0);
                Ok(None)
            }
        },
        _ => {
            set_aside.entry(entry, "its kind is unknown");
            Ok(None)
        }
    }
}

fn definition_changed(
    connection: &Connection,
    row: &Row<'_>,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> rusqlite::Result<Option<Request>> {
    let (entry, task, version) = (InboxId(unsigned(row, 0)?), TaskId(unsigned(row, 5)?), Version(row.get(6)?));
    let entry_partition: u16 = row.get(1)?;
    // One behind another that can't be decoded goes on only once the newest version can be: then that one does too.
    let needs_newest = set_aside.is_behind_one(task, entry);
    let mut stored = connection.prepare_cached(
        "SELECT version, document FROM task_versions WHERE task = ?1 AND version >= ?2 ORDER BY version = ?2 DESC, version DESC LIMIT 2",
    )?;
    // Its own version, then the newest.
    let mut found = stored.query(params![task.0.cast_signed(), version.0])?;
    let (mut understood, mut wrong) = (None, Some("the version is not there".to_owned()));
    while let Some(row) = found.next()? {
        let version = Version(row.get(0)?);
        let definition = match row.get_ref(1)?.as_str_or_null()? {
            None => Ok(None),
            Some(_) => definitions.decoded(task, version, row, 1)?.map(Some),
        };
        wrong = match definition {
            Ok(definition) => {
                understood.get_or_insert((version, definition));
                None
            }
            Err(reason) => Some(reason),
        };
        if wrong.is_none() && !needs_newest {
            break;
        }
    }
    match (understood, wrong) {
        (Some((version, definition)), None) => {
            set_aside.in_force.remove(&task);
            set_aside.blocked.remove(&task);
            let fired_until = watermark(connection, PartitionId(entry_partition), task)?;
            Ok(Some(Request::DefinitionChanged { task, version, definition, fired_until }))
        }
        (_, wrong) => {
            set_aside.block(task, version, entry, &wrong.unwrap_or_default());
            Ok(None)
        }
    }
}

/// Up to when an owner has dealt with a task's fire times.
fn watermark(connection: &Connection, partition: PartitionId, task: TaskId) -> rusqlite::Result<Option<Timestamp>> {
    let mut states = connection.prepare_cached("SELECT fired_until FROM task_states WHERE partition = ?1 AND task = ?2")?;
    let fired_until = states.query_row(params![partition.0, task.0.cast_signed()], |row| row.get::<_, Option<i64>>(0)).optional()?;
    Ok(fired_until.flatten().map(Timestamp))
}

/// Whether a cancellation stays where it is: with its task, or because nobody can be told what its instance is.
fn is_set_aside(
    connection: &Connection,
    entry: InboxId,
    instance: InstanceId,
    definitions: &mut Definitions<'_>,
    set_aside: &mut SetAside,
) -> rusqlite::Result<bool> {
    let mut version = connection.prepare_cached(
        "SELECT i.task, i.version, v.document FROM instances i
         LEFT JOIN task_versions v ON v.task = i.task AND v.version = i.version WHERE i.id = ?1",
    )?;
    let mut found = version.query([instance.0.cast_signed()])?;
    let Some(row) = found.next()? else { return Ok(false) };
    let (task, version) = (TaskId(unsigned(row, 0)?), Version(row.get(1)?));
    if set_aside.holds(task, entry) {
        return Ok(true);
    }
    let has_document = row.get_ref(2)?.as_str_or_null()?.is_some();
    match definitions.decoded(task, version, row, 2)? {
        Err(reason) if has_document => {
            set_aside.version(task, version, &reason);
            Ok(true)
        }
        _ => Ok(false),
    }
}
