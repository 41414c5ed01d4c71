//! What an owner reads: its partition, and its inbox.

use punctual_core::batch::{Snapshot, TaskRecord};
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::Rerun;
use punctual_core::instance::InstanceRow;
use punctual_core::time::Timestamp;
use punctual_driver::ports::InboxPage;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::Decode;
use crate::set_aside::{Definitions, Lookup, SetAside, StoredEntry, StoredVersion, read_entry};
use crate::sqlite::catalog::references;
use crate::sqlite::rows::{self, INSTANCE_COLUMNS, instance_columns, text, unsigned};

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
        match definitions.decoded(task, version, row.get_ref(3)?.as_str_or_null()?) {
            Ok(definition) => {
                set_aside.task_is_understood(task);
                snapshot.tasks.push(TaskRecord { task, version, definition, next_fire, fired_until });
            }
            Err(reason) => set_aside.task_is_strange(task, version, &reason),
        }
    }

    snapshot.references = references(&connection, partition, None)?;

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
        match definitions.decoded(instance.task, instance.version, row.get_ref(INSTANCE_COLUMNS)?.as_str_or_null()?) {
            Ok(definition) => snapshot.instances.push((instance, definition)),
            Err(reason) => set_aside.version(instance.task, instance.version, &reason),
        }
    }
    for (run, _) in snapshot.instances.iter().filter(|(row, _)| row.is_run()) {
        let nodes = nodes_of(&connection, run.fire_time, run.task, run.ordinal, run.run)?;
        snapshot.ended_nodes.extend(nodes.into_iter().filter(|node| node.state.is_terminal()));
    }
    Ok(snapshot)
}

/// The nodes of a run, in the order of their parts.
fn nodes_of(connection: &Connection, fire_time: Timestamp, task: TaskId, ordinal: u64, run: u32) -> rusqlite::Result<Vec<InstanceRow>> {
    let mut nodes = connection.prepare_cached(concat!(
        "SELECT ",
        instance_columns!(),
        " FROM instances i INDEXED BY instances_firing
         WHERE i.fire_time = ?1 AND i.task = ?2 AND i.ordinal = ?3 AND i.run = ?4 AND i.part > 0 AND i.part & 4294967295 = 0 ORDER BY i.part"
    ))?;
    nodes.query_map(params![fire_time.0, task.0.cast_signed(), ordinal.cast_signed(), run], rows::instance)?.collect()
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
        if !partitions.contains(&PartitionId(row.get(1)?)) {
            continue;
        }
        let Some(entry) = read_entry(stored_entry(row)?, &mut Read(&connection), &mut definitions, set_aside)? else { continue };
        if page.entries.len() == limit {
            page.more = true;
            break;
        }
        page.entries.push(entry);
    }
    Ok(page)
}

fn stored_entry(row: &Row<'_>) -> rusqlite::Result<StoredEntry> {
    Ok(StoredEntry {
        id: InboxId(unsigned(row, 0)?),
        partition: PartitionId(row.get(1)?),
        at: Timestamp(row.get(2)?),
        by: text(row, 3)?.unwrap_or_default(),
        kind: row.get(4)?,
        task: TaskId(row.get::<_, Option<i64>>(5)?.unwrap_or_default().cast_unsigned()),
        version: Version(row.get::<_, Option<u32>>(6)?.unwrap_or_default()),
        body: row.get_ref(7)?.as_bytes_or_null()?.unwrap_or_default().to_vec(),
    })
}

/// Looks up what entries speak of.
struct Read<'a>(&'a Connection);

impl Lookup for Read<'_> {
    type Error = rusqlite::Error;

    fn versions(&mut self, task: TaskId, version: Version) -> rusqlite::Result<Vec<StoredVersion>> {
        let mut stored = self.0.prepare_cached(
            "SELECT version, document FROM task_versions WHERE task = ?1 AND version >= ?2 ORDER BY version = ?2 DESC, version DESC LIMIT 2",
        )?;
        stored.query_map(params![task.0.cast_signed(), version.0], |row| Ok((Version(row.get(0)?), text(row, 1)?)))?.collect()
    }

    fn watermark(&mut self, partition: PartitionId, task: TaskId) -> rusqlite::Result<Option<Timestamp>> {
        let mut states = self.0.prepare_cached("SELECT fired_until FROM task_states WHERE partition = ?1 AND task = ?2")?;
        let fired_until = states.query_row(params![partition.0, task.0.cast_signed()], |row| row.get::<_, Option<i64>>(0)).optional()?;
        Ok(fired_until.flatten().map(Timestamp))
    }

    fn instance(&mut self, id: InstanceId) -> rusqlite::Result<Option<(TaskId, StoredVersion)>> {
        let mut version = self.0.prepare_cached(
            "SELECT i.task, i.version, v.document FROM instances i
             LEFT JOIN task_versions v ON v.task = i.task AND v.version = i.version WHERE i.id = ?1",
        )?;
        let found = version.query_row([id.0.cast_signed()], |row| Ok((TaskId(unsigned(row, 0)?), (Version(row.get(1)?), text(row, 2)?))));
        found.optional()
    }

    fn nodes(&mut self, of: &Rerun) -> rusqlite::Result<Vec<InstanceRow>> {
        nodes_of(self.0, of.fire_time, of.task, of.ordinal, of.run)
    }
}
