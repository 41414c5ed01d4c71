//! What an owner reads: its partition, and its inbox. Both in one snapshot, page by page; what can't be decoded is set aside, see
//! [`crate::set_aside`].

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_core::batch::{Output, Reference, Snapshot, TaskRecord};
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::Rerun;
use punctual_core::instance::{InstanceRow, Part};
use punctual_core::scheduler::Firings;
use punctual_core::time::Timestamp;
use punctual_driver::ports::InboxPage;
use rustc_hash::{FxHashMap, FxHashSet};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::Decode;
use crate::codec;
use crate::mysql::backfills;
use crate::mysql::error::Failure;
use crate::mysql::people::pauses_of;
use crate::mysql::rows::{self, INSTANCE_COLUMNS, required_text, text};
use crate::mysql::session::Session;
use crate::mysql::sql::{list, tuples};
use crate::set_aside::{
    Definitions, KIND_CANCEL, KIND_DEFINITION, KIND_KILL, KIND_MARK_NODE, KIND_RERUN_FROM, KIND_SKIP, Lookup, SetAside, StoredEntry,
    StoredVersion, read_entry,
};

/// Rows that are read at a time.
const PAGE_ROWS: usize = 2_000;

/// Reads what a new owner needs of a partition.
pub(crate) async fn snapshot(
    session: &mut Session,
    partition: PartitionId,
    decode: &Decode,
    set_aside: &Mutex<SetAside>,
) -> Result<Snapshot, Failure> {
    let mut definitions = Definitions::new(decode);
    let mut snapshot = Snapshot::default();
    read_tasks(session, partition, &mut definitions, set_aside, &mut snapshot).await?;
    read_live(session, partition, &mut definitions, set_aside, &mut snapshot).await?;
    read_slots(session, partition, &mut snapshot).await?;
    read_ended_nodes(session, &mut snapshot).await?;
    snapshot.backfills = backfills::running(session, partition).await?;
    snapshot.references = references(session, &format!("`partition` = {partition}")).await?;
    snapshot.pauses = pauses_of(session, partition).await?;
    Ok(snapshot)
}

async fn read_slots(session: &mut Session, partition: PartitionId, snapshot: &mut Snapshot) -> Result<(), Failure> {
    let mut from = 0_u64;
    loop {
        let sql = format!(
            "SELECT instance, body FROM group_slots WHERE `partition` = {partition} AND instance >= {from} ORDER BY instance LIMIT {PAGE_ROWS}"
        );
        let found = session.rows(sql).await?;
        for row in &found {
            let instance = InstanceId(row.try_get(0)?);
            from = instance.0 + 1;
            snapshot.slots.push(codec::slot(partition, instance, row.try_get::<&[u8], _>(1)?)?);
        }
        if found.len() < PAGE_ROWS {
            return Ok(());
        }
    }
}

/// What the ends of tasks make fire, of those tasks that `which` says in SQL.
pub(crate) async fn references(session: &mut Session, which: &str) -> Result<Vec<Reference>, Failure> {
    let sql = format!("SELECT task, target, target_partition, met_by FROM task_references WHERE {which} ORDER BY task, target");
    let reference = |row: &MySqlRow| {
        let (from, to) = (TaskId(row.try_get(0)?), TaskId(row.try_get(1)?));
        Ok(Reference { from, to, partition: PartitionId(row.try_get(2)?), on: rows::coded(row, 3)? })
    };
    session.rows(sql).await?.iter().map(reference).collect()
}

/// What this attempt of an instance wrote.
pub(crate) async fn output(session: &mut Session, instance: InstanceId, attempt: u32) -> Result<Option<Output>, Failure> {
    let sql =
        format!("SELECT bytes, dropped FROM outputs FORCE INDEX (PRIMARY) WHERE instance = {} AND attempt = {attempt} LIMIT 1", instance.0);
    let rows = session.rows(sql).await?;
    rows.first().map(|row| Ok(Output { bytes: row.try_get(0)?, dropped: row.try_get(1)? })).transpose()
}

/// What the parts of a firing have answered.
pub(crate) async fn results(
    session: &mut Session,
    of: Firings,
    from: Part,
    until: Part,
    limit: usize,
) -> Result<Vec<Option<Arc<str>>>, Failure> {
    let Firings { task, fire_time, ordinal, run, .. } = of;
    let sql = format!(
        "SELECT {INSTANCE_COLUMNS} FROM instances i FORCE INDEX (PRIMARY)
         WHERE i.fire_time = {} AND i.task = {} AND i.ordinal = {ordinal} AND i.run = {run} AND i.part >= {} AND i.part < {}
         ORDER BY i.part LIMIT {limit}",
        fire_time.0, task.0, from.0, until.0
    );
    session.rows(sql).await?.iter().map(|row| Ok(rows::instance(row)?.result)).collect()
}

async fn read_tasks(
    session: &mut Session,
    partition: PartitionId,
    definitions: &mut Definitions<'_>,
    set_aside: &Mutex<SetAside>,
    snapshot: &mut Snapshot,
) -> Result<(), Failure> {
    let mut after = String::new();
    loop {
        let sql = format!(
            "SELECT s.task, s.version, s.next_fire, s.fired_until, v.document FROM task_states s
             LEFT JOIN task_versions v ON v.task = s.task AND v.version = s.version
             WHERE s.`partition` = {partition} {after} AND s.version IS NOT NULL ORDER BY s.task LIMIT {PAGE_ROWS}"
        );
        let found = session.rows(sql).await?;
        let mut set_aside = set_aside.lock().unwrap_or_else(PoisonError::into_inner);
        for row in &found {
            let (task, version) = (TaskId(row.try_get(0)?), Version(row.try_get(1)?));
            let (next_fire, fired_until) = (row.try_get::<Option<i64>, _>(2)?, row.try_get::<Option<i64>, _>(3)?);
            match definitions.decoded(task, version, text(row, 4)?.as_deref()) {
                Ok(definition) => {
                    set_aside.task_is_understood(task);
                    let (next_fire, fired_until) = (next_fire.map(Timestamp), fired_until.map(Timestamp));
                    snapshot.tasks.push(TaskRecord { task, version, definition, next_fire, fired_until });
                }
                Err(reason) => set_aside.task_is_strange(task, version, &reason),
            }
            after = format!("AND s.task > {}", task.0);
        }
        if found.len() < PAGE_ROWS {
            return Ok(());
        }
    }
}

async fn read_live(
    session: &mut Session,
    partition: PartitionId,
    definitions: &mut Definitions<'_>,
    set_aside: &Mutex<SetAside>,
    snapshot: &mut Snapshot,
) -> Result<(), Failure> {
    let mut from = InstanceId::new(partition, 0).0;
    let last = from | ((1 << 48) - 1);
    loop {
        let sql = format!(
            "SELECT {INSTANCE_COLUMNS} FROM live l STRAIGHT_JOIN instances i
             ON i.fire_time = l.fire_time AND i.task = l.task AND i.ordinal = l.ordinal AND i.run = l.run AND i.part = l.part
             WHERE l.id BETWEEN {from} AND {last} ORDER BY l.id LIMIT {PAGE_ROWS}"
        );
        let found = session.rows(sql).await?;
        let instances = found.iter().map(rows::instance).collect::<Result<Vec<_>, _>>()?;
        let unknown: Vec<_> =
            instances.iter().map(|row| (row.task, row.version)).filter(|(task, version)| !definitions.knows(*task, *version)).collect();
        let documents = documents(session, &unknown).await?;
        let count = instances.len();
        let mut set_aside = set_aside.lock().unwrap_or_else(PoisonError::into_inner);
        for instance in instances {
            let (task, version) = (instance.task, instance.version);
            from = instance.id.0 + 1;
            let document = documents.get(&(task, version)).and_then(Option::as_deref);
            match definitions.decoded(task, version, document) {
                Ok(definition) => snapshot.instances.push((instance, definition)),
                Err(reason) => set_aside.version(task, version, &reason),
            }
        }
        if count < PAGE_ROWS {
            return Ok(());
        }
    }
}

/// The nodes that have ended of the runs that have not.
async fn read_ended_nodes(session: &mut Session, snapshot: &mut Snapshot) -> Result<(), Failure> {
    for (run, _) in snapshot.instances.iter().filter(|(row, _)| row.is_run()) {
        let nodes = nodes_of(session, run.fire_time, run.task, run.ordinal, run.run).await?;
        snapshot.ended_nodes.extend(nodes.into_iter().filter(|node| node.state.is_terminal()));
    }
    Ok(())
}

/// The nodes of a run, in the order of their parts.
async fn nodes_of(session: &mut Session, fire_time: Timestamp, task: TaskId, ordinal: u64, run: u32) -> Result<Vec<InstanceRow>, Failure> {
    let mut nodes: Vec<InstanceRow> = Vec::new();
    loop {
        let after = nodes.last().map_or(0, |node| node.part.0);
        let sql = format!(
            "SELECT {INSTANCE_COLUMNS} FROM instances i FORCE INDEX (PRIMARY)
             WHERE i.fire_time = {} AND i.task = {} AND i.ordinal = {ordinal} AND i.run = {run}
             AND i.part > {after} AND i.part & 4294967295 = 0 ORDER BY i.part LIMIT {PAGE_ROWS}",
            fire_time.0, task.0
        );
        let page = session.rows(sql).await?;
        for row in &page {
            nodes.push(rows::instance(row)?);
        }
        if page.len() < PAGE_ROWS {
            return Ok(nodes);
        }
    }
}

type Documents = FxHashMap<(TaskId, Version), Option<Arc<str>>>;

/// The documents of versions, of those that are there.
async fn documents(session: &mut Session, versions: &[(TaskId, Version)]) -> Result<Documents, Failure> {
    let mut documents = Documents::default();
    let mut versions = versions.to_vec();
    versions.sort_unstable();
    versions.dedup();
    if versions.is_empty() {
        return Ok(documents);
    }
    let wanted = tuples(versions, |values, (task, version)| values.unsigned(task.0).unsigned(version.0).done());
    for row in &session
        .rows(format!("SELECT task, version, document FROM task_versions FORCE INDEX (PRIMARY) WHERE (task, version) IN {wanted}"))
        .await?
    {
        documents.insert((TaskId(row.try_get(0)?), Version(row.try_get(1)?)), text(row, 2)?);
    }
    Ok(documents)
}

/// What waits in inboxes.
pub(crate) enum Waiting {
    /// This page.
    Read(InboxPage),
    /// There is something that can only be read together with what it speaks of, in one snapshot.
    In(Inboxes),
}

/// Inboxes in which something waits.
pub(crate) struct Inboxes {
    partitions: Vec<PartitionId>,
    /// Whether something waits in others as well.
    among_others: bool,
}

/// Reads as [`read_inbox`] does where that takes no snapshot: nothing waits, or nothing that speaks of documents.
pub(crate) async fn read_waiting(
    session: &mut Session,
    mut partitions: Vec<PartitionId>,
    after: InboxId,
    limit: usize,
    decode: &Decode,
    set_aside: &Mutex<SetAside>,
) -> Result<Waiting, Failure> {
    // Asking each partition takes longer than all the rest where nearly all of them have nothing.
    let mut waiting = FxHashSet::default();
    for row in &session.rows("SELECT DISTINCT `partition` FROM inbox FORCE INDEX (inbox_by_partition)".to_owned()).await? {
        waiting.insert(PartitionId(row.try_get(0)?));
    }
    partitions.retain(|partition| waiting.contains(partition));
    if partitions.is_empty() {
        return Ok(Waiting::Read(InboxPage::default()));
    }
    let inboxes = Inboxes { among_others: partitions.len() < waiting.len(), partitions };
    let entries = inboxes.entries(session, after, limit).await?;
    if entries.iter().any(|entry| entry.kind == KIND_DEFINITION || is_of_instance(entry)) {
        return Ok(Waiting::In(inboxes));
    }
    let mut page = InboxPage { entries: Vec::new(), more: entries.len() > limit };
    let mut definitions = Definitions::new(decode);
    let mut set_aside = set_aside.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in entries.into_iter().take(limit) {
        let Ok(read) = read_entry(entry, &mut Found::default(), &mut definitions, &mut set_aside);
        page.entries.extend(read);
    }
    // A page is full where there is more: what was set aside makes room for those behind it.
    Ok(if page.more && page.entries.len() < limit { Waiting::In(inboxes) } else { Waiting::Read(page) })
}

/// Reads the oldest entries behind `after` of these inboxes.
pub(crate) async fn read_inbox(
    session: &mut Session,
    inboxes: &Inboxes,
    after: InboxId,
    limit: usize,
    decode: &Decode,
    set_aside: &Mutex<SetAside>,
) -> Result<InboxPage, Failure> {
    let (mut page, mut definitions) = (InboxPage::default(), Definitions::new(decode));
    let mut after = after;
    loop {
        let entries = inboxes.entries(session, after, limit).await?;
        let mut found = Found::read(session, &entries).await?;
        let is_last = entries.len() < entries_at_once(limit);
        let mut set_aside = set_aside.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            after = entry.id;
            let Ok(read) = read_entry(entry, &mut found, &mut definitions, &mut set_aside);
            let Some(entry) = read else { continue };
            if page.entries.len() == limit {
                page.more = true;
                return Ok(page);
            }
            page.entries.push(entry);
        }
        if is_last {
            return Ok(page);
        }
    }
}

/// One more than asked for says whether there is more.
fn entries_at_once(limit: usize) -> usize {
    limit.saturating_add(1).min(PAGE_ROWS)
}

impl Inboxes {
    async fn entries(&self, session: &mut Session, after: InboxId, limit: usize) -> Result<Vec<StoredEntry>, Failure> {
        let found = session.rows(self.entries_sql(after.0, entries_at_once(limit))).await?;
        found.iter().map(stored_entry).collect()
    }

    fn entries_sql(&self, after: u64, count: usize) -> String {
        let columns = "id, `partition`, made_at, made_by, kind, task, version, body";
        if !self.among_others {
            let own = list(self.partitions.iter().map(|partition| u64::from(partition.0)));
            return format!(
                "SELECT {columns} FROM inbox FORCE INDEX (PRIMARY) WHERE id > {after} AND `partition` IN {own} ORDER BY id LIMIT {count}"
            );
        }
        // The oldest of each partition, and the oldest of those: however many wait for others, only so many are looked at.
        let each = |partition: &PartitionId| {
            format!("(SELECT {columns} FROM inbox WHERE `partition` = {partition} AND id > {after} ORDER BY id LIMIT {count})")
        };
        let all: Vec<_> = self.partitions.iter().map(each).collect();
        format!("{} ORDER BY id LIMIT {count}", all.join(" UNION ALL "))
    }
}

/// Whether an entry speaks of an instance, and so of the version that it is run by.
fn is_of_instance(entry: &StoredEntry) -> bool {
    matches!(entry.kind, KIND_CANCEL | KIND_KILL | KIND_SKIP | KIND_MARK_NODE | KIND_RERUN_FROM)
}

fn stored_entry(row: &MySqlRow) -> Result<StoredEntry, Failure> {
    Ok(StoredEntry {
        id: InboxId(row.try_get(0)?),
        partition: PartitionId(row.try_get(1)?),
        at: Timestamp(row.try_get(2)?),
        by: required_text(row, 3)?,
        kind: row.try_get(4)?,
        task: TaskId(row.try_get::<Option<u64>, _>(5)?.unwrap_or_default()),
        version: Version(row.try_get::<Option<u32>, _>(6)?.unwrap_or_default()),
        body: row.try_get::<Option<Vec<u8>>, _>(7)?.unwrap_or_default(),
    })
}

/// What the entries of a page speak of, read ahead.
#[derive(Default)]
struct Found {
    documents: Documents,
    newest: FxHashMap<TaskId, StoredVersion>,
    watermarks: FxHashMap<(PartitionId, TaskId), Option<Timestamp>>,
    instances: FxHashMap<InstanceId, (TaskId, StoredVersion)>,
    nodes: FxHashMap<InstanceId, Vec<InstanceRow>>,
}

impl Found {
    async fn read(session: &mut Session, entries: &[StoredEntry]) -> Result<Found, Failure> {
        let mut found = Found::default();
        let changed: Vec<_> = entries.iter().filter(|entry| entry.kind == KIND_DEFINITION).collect();
        if !changed.is_empty() {
            let versions: Vec<_> = changed.iter().map(|entry| (entry.task, entry.version)).collect();
            found.documents = documents(session, &versions).await?;
            let tasks = list(changed.iter().map(|entry| entry.task.0));
            let sql = format!(
                "SELECT t.id, v.version, v.document FROM tasks t
                 STRAIGHT_JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.id IN {tasks}"
            );
            for row in &session.rows(sql).await? {
                found.newest.insert(TaskId(row.try_get(0)?), (Version(row.try_get(1)?), text(row, 2)?));
            }
            let states = tuples(&changed, |values, entry| values.unsigned(entry.partition.0).unsigned(entry.task.0).done());
            let sql = format!(
                "SELECT `partition`, task, fired_until FROM task_states FORCE INDEX (PRIMARY) WHERE (`partition`, task) IN {states}"
            );
            for row in &session.rows(sql).await? {
                let key = (PartitionId(row.try_get(0)?), TaskId(row.try_get(1)?));
                found.watermarks.insert(key, row.try_get::<Option<i64>, _>(2)?.map(Timestamp));
            }
        }
        let rerun = entries.iter().filter(|entry| entry.kind == KIND_RERUN_FROM);
        let rerun: Vec<Rerun> = rerun.filter_map(|entry| codec::rerun(entry.task, &entry.body).ok()).collect();
        for of in &rerun {
            found.nodes.insert(of.instance, nodes_of(session, of.fire_time, of.task, of.ordinal, of.run).await?);
        }
        let spoken_of = |entry: &StoredEntry| match entry.kind {
            KIND_CANCEL | KIND_KILL | KIND_SKIP => codec::cancel(&entry.body).ok().map(|(instance, _)| instance.0),
            KIND_MARK_NODE => codec::mark(&entry.body).ok().map(|mark| mark.instance.0),
            _ => None,
        };
        let cancelled: Vec<_> = entries.iter().filter_map(spoken_of).chain(rerun.iter().map(|of| of.instance.0)).collect();
        if !cancelled.is_empty() {
            let sql = format!(
                "SELECT i.id, i.task, i.version, v.document FROM instances i FORCE INDEX (instances_by_id)
                 LEFT JOIN task_versions v ON v.task = i.task AND v.version = i.version WHERE i.id IN {}",
                list(cancelled)
            );
            for row in &session.rows(sql).await? {
                let version = (Version(row.try_get(2)?), text(row, 3)?);
                found.instances.insert(InstanceId(row.try_get(0)?), (TaskId(row.try_get(1)?), version));
            }
        }
        Ok(found)
    }
}

impl Lookup for Found {
    type Error = Infallible;

    fn versions(&mut self, task: TaskId, version: Version) -> Result<Vec<StoredVersion>, Infallible> {
        let own = self.documents.get(&(task, version)).map(|document| (version, document.clone()));
        let newest = self.newest.get(&task).filter(|(newest, _)| *newest != version);
        Ok(own.into_iter().chain(newest.cloned()).collect())
    }

    fn watermark(&mut self, partition: PartitionId, task: TaskId) -> Result<Option<Timestamp>, Infallible> {
        Ok(self.watermarks.get(&(partition, task)).copied().flatten())
    }

    fn instance(&mut self, id: InstanceId) -> Result<Option<(TaskId, StoredVersion)>, Infallible> {
        Ok(self.instances.get(&id).cloned())
    }

    fn nodes(&mut self, of: &Rerun) -> Result<Vec<InstanceRow>, Infallible> {
        Ok(self.nodes.get(&of.instance).cloned().unwrap_or_default())
    }
}
