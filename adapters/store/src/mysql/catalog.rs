//! What everyone else writes: task documents, manual triggers, reruns; each with its inbox entry in one transaction.
//!
//! **Turns.** Numbers of inbox entries are given out before the transactions that write them end, and an owner reads on behind the highest
//! number it has seen: an entry that became visible below it would never be read. So whoever writes entries holds the row `inbox` of `gate`
//! from before the first number until the transaction has ended. Applications of documents hold the row `tasks` from their first look on:
//! what one compares, another one does not change.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::chains::{Call, Edge};
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version, partition_of};
use punctual_core::inbox::{NodeMark, Submission};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{Actor, Applying, AuditAction, Rerunning, Submitted, TaskDocument};
use rustc_hash::{FxHashMap, FxHashSet};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::audit::Audit;
use crate::codec;
use crate::codes::Coded;
use crate::mysql::error::Failure;
use crate::mysql::owner::references;
use crate::mysql::people::{audit_sql, settle_sql};
use crate::mysql::rows::{self, INSTANCE_COLUMNS, required_text, text};
use crate::mysql::session::{Answer, Session};
use crate::mysql::sql::{STATEMENT_ROWS_MAX, list, literal, statements, tuples};
use crate::plan::{Change, Plan, Planner, StoredTask, Ties, request_hash};
use crate::reruns::{divided_into, mark_refused, rerun_hash, rerun_key, rerun_of, shards_again};
use crate::set_aside::{KIND_DEFINITION, KIND_MARK_NODE, KIND_REFERENCES, KIND_RERUN, KIND_RERUN_FROM, KIND_TRIGGER};

/// Tasks that are compared at a time.
const COMPARED_AT_ONCE: usize = 500;

pub(crate) const TAKE_INBOX_TURN: &str = "SELECT name FROM gate WHERE name = 'inbox' FOR UPDATE";
pub(crate) const TAKE_TASKS_TURN: &str = "SELECT name FROM gate WHERE name = 'tasks' FOR UPDATE";

/// Compares the documents with what is stored. Until the transaction ends nobody else applies any.
pub(crate) async fn compare(session: &mut Session, source: &str, documents: &[TaskDocument], how: &Applying) -> Result<Plan, Failure> {
    session.rows(TAKE_TASKS_TURN.to_owned()).await?;
    let mut planner = Planner::new(documents);
    let counting: Vec<_> =
        documents.iter().enumerate().filter(|(index, task)| planner.counts(*index, task)).map(|(_, task)| task).collect();
    for some in counting.chunks(COMPARED_AT_ONCE) {
        let names = tuples(some, |values, task| values.bytes(task.definition.name.as_bytes()).done());
        let sql = format!(
            "SELECT t.name, t.id, t.version, t.removed, t.source, v.document FROM tasks t FORCE INDEX (tasks_by_name)
             LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.name IN {names}"
        );
        let found = session.rows(sql).await?;
        let mut stored = FxHashMap::default();
        for row in &found {
            stored.insert(row.try_get::<&[u8], _>(0)?, row);
        }
        for &task in some {
            let Some(row) = stored.get(task.definition.name.as_bytes()) else {
                planner.compare(task, None);
                continue;
            };
            let stored = StoredTask {
                id: TaskId(row.try_get(1)?),
                version: Version(row.try_get(2)?),
                is_removed: row.try_get::<u8, _>(3)? != 0,
                foreign: Some(required_text(row, 4)?).filter(|owner| **owner != *source),
                is_equal: row.try_get::<Option<&[u8]>, _>(5)? == Some(task.document.as_bytes()),
            };
            planner.compare(task, Some(stored));
        }
    }
    let sql = format!("SELECT id, name, version FROM tasks WHERE source = {} AND removed = 0 ORDER BY id", literal(source.as_bytes()));
    for row in &session.rows(sql).await? {
        planner.made_before(TaskId(row.try_get(0)?), &text(row, 1)?.unwrap_or_default(), Version(row.try_get(2)?));
    }
    let mut plan = planner.plan();
    plan.hold_to(how);
    if plan.may_break_chains() {
        let ties = plan.ties_afterwards(stored_ties(session).await?);
        let there = those_that_exist(session, ties.names_to_look_up()).await?;
        plan.check_chains(&ties, there);
    }
    Ok(plan)
}

pub(crate) async fn stored_ties(session: &mut Session) -> Result<Ties, Failure> {
    let sql = "SELECT a.name, t.name FROM task_references r JOIN tasks a ON a.id = r.task JOIN tasks t ON t.id = r.target \
               ORDER BY r.task, r.target";
    let edge = |row: &MySqlRow| Ok(Edge { after: required_text(row, 0)?, task: required_text(row, 1)? });
    let edges = session.rows(sql.to_owned()).await?.iter().map(edge).collect::<Result<_, Failure>>()?;
    let sql = "SELECT a.name, t.name, c.times FROM task_calls c JOIN tasks a ON a.id = c.task JOIN tasks t ON t.id = c.called \
               ORDER BY c.task, c.called";
    let call = |row: &MySqlRow| Ok(Call { task: required_text(row, 0)?, called: required_text(row, 1)?, times: row.try_get::<u32, _>(2)? });
    let calls = session.rows(sql.to_owned()).await?.iter().map(call).collect::<Result<_, Failure>>()?;
    Ok(Ties { edges, calls })
}

pub(crate) async fn those_that_exist(session: &mut Session, names: Vec<Arc<str>>) -> Result<FxHashSet<Arc<str>>, Failure> {
    let mut there = FxHashSet::default();
    for some in names.chunks(COMPARED_AT_ONCE) {
        let names = tuples(some, |values, name| values.bytes(name.as_bytes()).done());
        let sql = format!("SELECT name FROM tasks FORCE INDEX (tasks_by_name) WHERE removed = 0 AND name IN {names}");
        for row in &session.rows(sql).await? {
            there.insert(required_text(row, 0)?);
        }
    }
    Ok(there)
}

/// Writes what differs, each change with its inbox entry. In the transaction that compared.
pub(crate) async fn write(
    session: &mut Session,
    partitions: u16,
    source: &str,
    actor: &Actor,
    plan: &Plan,
    now_sql: &str,
) -> Result<(), Failure> {
    let by = &*actor.by;
    let last = session.rows("SELECT CAST(COALESCE(MAX(id), 0) AS UNSIGNED) FROM tasks".to_owned()).await?;
    let last: u64 = last.first().ok_or(Failure::Sql(sqlx::Error::RowNotFound))?.try_get(0)?;
    let created = (last + 1..).zip(&plan.created).map(|(id, created)| Change {
        task: TaskId(id),
        name: created.name.clone(),
        version: Version(1),
        document: Some(created.document.clone()),
        chains: created.chains.clone(),
        calls: created.calls.clone(),
        group: created.group.clone(),
    });
    let created: Vec<_> = created.collect();
    let changes: Vec<_> = created.iter().chain(&plan.changed).chain(&plan.removed).collect();
    let tasks = statements(
        "INSERT INTO tasks (id, name, `partition`, version, source, removed, updated_at, label) VALUES ",
        &changes,
        " ON DUPLICATE KEY UPDATE version = VALUES(version), source = VALUES(source), removed = VALUES(removed), \
         updated_at = VALUES(updated_at), label = VALUES(label)",
        |values, change| {
            let values = values.unsigned(change.task.0).bytes(change.name.as_bytes()).unsigned(partition_of(&change.name, partitions).0);
            values
                .unsigned(change.version.0)
                .bytes(source.as_bytes())
                .unsigned(change.document.is_none())
                .expression(now_sql)
                .text(change.group.as_deref());
        },
    );
    session.run_all(tasks).await?;
    let versions = statements(
        "INSERT INTO task_versions (task, version, created_at, created_by, document) VALUES ",
        &changes,
        "",
        |values, change| {
            let values = values.unsigned(change.task.0).unsigned(change.version.0).expression(now_sql).bytes(by.as_bytes());
            values.text(change.document.as_deref());
        },
    );
    session.run_all(versions).await?;
    let audited = changes.iter().map(|change| {
        let (action, task) = (change.audited(), Some(change.task));
        Audit { actor, action, task, instance: None, subject: Some(source) }
    });
    session.run_all(audit_sql(audited, now_sql)).await?;
    let source = literal(source.as_bytes());
    for some in plan.taken_over.chunks(crate::mysql::sql::STATEMENT_ROWS_MAX) {
        let ids = crate::mysql::sql::list(some.iter().map(|task| task.0));
        session.run(format!("UPDATE tasks SET source = {source} WHERE id IN {ids}")).await?;
    }
    let entries =
        statements("INSERT INTO inbox (`partition`, made_at, made_by, kind, task, version) VALUES ", &changes, "", |values, change| {
            let values = values.unsigned(partition_of(&change.name, partitions).0).expression(now_sql).bytes(by.as_bytes());
            values.unsigned(KIND_DEFINITION).unsigned(change.task.0).unsigned(change.version.0);
        });
    let concerned = write_references(session, partitions, &changes).await?;
    write_calls(session, &changes).await?;
    if !entries.is_empty() {
        session.rows(TAKE_INBOX_TURN.to_owned()).await?;
        session.run_all(entries).await?;
        tell_references(session, &concerned, by, now_sql).await?;
    }
    Ok(())
}

/// Writes which tasks' ends make these tasks fire from now on. Answers with the partition and the id of each task of which that has changed.
async fn write_references(session: &mut Session, partitions: u16, changes: &[&Change]) -> Result<BTreeSet<(u16, u64)>, Failure> {
    let mut concerned = BTreeSet::new();
    for some in changes.chunks(STATEMENT_ROWS_MAX) {
        let targets = list(some.iter().map(|change| change.task.0));
        let stored =
            format!("SELECT `partition`, task FROM task_references FORCE INDEX (task_references_by_target) WHERE target IN {targets}");
        let before = session.rows(stored).await?;
        for row in &before {
            concerned.insert((row.try_get(0)?, row.try_get(1)?));
        }
        if !before.is_empty() {
            session.run(format!("DELETE FROM task_references WHERE target IN {targets}")).await?;
        }
    }
    let chains = |change: &&Change| change.chains.clone().unwrap_or_default();
    let names = changes.iter().flat_map(|change| chains(change).iter().map(|chain| chain.task.clone()).collect::<Vec<_>>());
    let ids = ids_of(session, names.collect()).await?;
    let mut rows = Vec::new();
    for change in changes {
        for chain in chains(change).iter() {
            let id = *ids.get(&chain.task).ok_or(Failure::Sql(sqlx::Error::RowNotFound))?;
            let (of, target_partition) = (partition_of(&chain.task, partitions).0, partition_of(&change.name, partitions).0);
            rows.push((of, id, change.task.0, target_partition, chain.on.code()));
            concerned.insert((of, id));
        }
    }
    let inserts = statements(
        "INSERT INTO task_references (`partition`, task, target, target_partition, met_by) VALUES ",
        rows,
        "",
        |values, (of, id, target, target_partition, on)| {
            values.unsigned(of).unsigned(id).unsigned(target).unsigned(target_partition).unsigned(on);
        },
    );
    session.run_all(inserts).await?;
    Ok(concerned)
}

/// The ids of the tasks of these names.
pub(crate) async fn ids_of(session: &mut Session, mut names: Vec<Arc<str>>) -> Result<FxHashMap<Arc<str>, u64>, Failure> {
    names.sort_unstable();
    names.dedup();
    let mut ids = FxHashMap::default();
    for some in names.chunks(COMPARED_AT_ONCE) {
        let names = tuples(some, |values, name| values.bytes(name.as_bytes()).done());
        for row in &session.rows(format!("SELECT name, id FROM tasks FORCE INDEX (tasks_by_name) WHERE name IN {names}")).await? {
            ids.insert(required_text(row, 0)?, row.try_get::<u64, _>(1)?);
        }
    }
    Ok(ids)
}

/// Writes which tasks the nodes of these tasks call from now on.
async fn write_calls(session: &mut Session, changes: &[&Change]) -> Result<(), Failure> {
    for some in changes.chunks(STATEMENT_ROWS_MAX) {
        let tasks = list(some.iter().map(|change| change.task.0));
        session.run(format!("DELETE FROM task_calls WHERE task IN {tasks}")).await?;
    }
    let ids = ids_of(session, changes.iter().flat_map(|change| change.calls.iter().map(|(name, _)| name.clone())).collect()).await?;
    let called = |change: &&Change| change.calls.iter().filter_map(|(name, times)| Some((*ids.get(name)?, *times))).collect::<Vec<_>>();
    let rows = changes.iter().flat_map(|change| called(change).into_iter().map(|(called, times)| (change.task.0, called, times)));
    let inserts = statements("INSERT INTO task_calls (task, called, times) VALUES ", rows, "", |values, (task, called, times)| {
        values.unsigned(task).unsigned(called).unsigned(u64::from(times));
    });
    session.run_all(inserts).await.map(drop)
}

/// Tells the owners of tasks what their ends make fire now. The caller has the turn.
async fn tell_references(session: &mut Session, concerned: &BTreeSet<(u16, u64)>, by: &str, now_sql: &str) -> Result<(), Failure> {
    let mut entries = Vec::with_capacity(concerned.len());
    for (partition, task) in concerned {
        let references = references(session, &format!("`partition` = {partition} AND task = {task}")).await?;
        entries.push((*partition, *task, codec::pack_references(&references)));
    }
    let sql = "INSERT INTO inbox (`partition`, made_at, made_by, kind, task, body) VALUES ";
    let inserts = statements(sql, entries, "", |values, (partition, task, body)| {
        let values = values.unsigned(partition).expression(now_sql).bytes(by.as_bytes()).unsigned(KIND_REFERENCES);
        values.unsigned(task).bytes(&body);
    });
    session.run_all(inserts).await.map(drop)
}

/// Begins a transaction, asks `before`, takes the turn of those who write entries and asks `in_turn`, in one message. What both answered.
pub(crate) async fn ask_in_turn(session: &mut Session, before: String, in_turn: Option<String>) -> Result<[Answer; 2], Failure> {
    let mut sql = format!("START TRANSACTION; {before}; {TAKE_INBOX_TURN}");
    if let Some(in_turn) = in_turn {
        sql.push_str("; ");
        sql.push_str(&in_turn);
    }
    let mut answers = session.answers(sql).await?.into_iter().skip(1);
    let before = answers.next().unwrap_or_default();
    Ok([before, answers.nth(1).unwrap_or_default()])
}

/// An entry that somebody asks for.
pub(crate) struct NewEntry<'a> {
    pub(crate) partition: PartitionId,
    pub(crate) by: &'a str,
    pub(crate) kind: u8,
    pub(crate) task: Option<TaskId>,
    pub(crate) body: &'a [u8],
}

/// Writes one entry, and what `with_it` says of it, where `LAST_INSERT_ID()` is its number; ends the transaction. The caller has the turn.
pub(crate) async fn write_entry(
    session: &mut Session,
    entry: NewEntry<'_>,
    with_it: impl IntoIterator<Item = String>,
    now_sql: &str,
) -> Result<InboxId, Failure> {
    let sql = "INSERT INTO inbox (`partition`, made_at, made_by, kind, task, body) VALUES ";
    let mut script = statements(sql, [entry], "", |values, entry| {
        let values = values.unsigned(entry.partition.0).expression(now_sql).bytes(entry.by.as_bytes()).unsigned(entry.kind);
        values.optional(entry.task.map(|task| task.0)).bytes(entry.body);
    });
    script.push("SELECT CAST(LAST_INSERT_ID() AS UNSIGNED)".to_owned());
    script.extend(with_it);
    script.push("COMMIT".to_owned());
    let answers = session.answers(script.join("; ")).await?;
    let row = answers.get(1).and_then(|answer| answer.rows.first()).ok_or(Failure::Sql(sqlx::Error::RowNotFound))?;
    Ok(InboxId(row.try_get(0)?))
}

/// Puts a manual trigger into the inbox, once a key. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn trigger(
    session: &mut Session,
    task: &str,
    by: &Actor,
    key: Option<&str>,
    submissions: &[Submission],
    now_sql: &str,
) -> Result<Submitted, Failure> {
    let body = codec::pack_submissions(submissions);
    let named = format!("SELECT id, `partition`, removed FROM tasks WHERE name = {}", literal(task.as_bytes()));
    // Of two with one key the second waits for its turn, and finds what the first wrote.
    let used = key.map(|key| format!("SELECT entry, request_hash FROM idempotency WHERE submission_key = {}", literal(key.as_bytes())));
    let [named, used] = ask_in_turn(session, named, used).await?;
    let Some(row) = named.rows.first() else { return Ok(Submitted::NoSuchTask) };
    let (id, partition, is_removed) = (TaskId(row.try_get(0)?), PartitionId(row.try_get(1)?), row.try_get::<u8, _>(2)? != 0);
    let hash = request_hash(id, &body);
    if let Some(row) = used.rows.first() {
        let entry = InboxId(row.try_get(0)?);
        return Ok(if row.try_get::<&[u8], _>(1)? == hash { Submitted::Repeated { entry } } else { Submitted::KeyTaken });
    }
    if is_removed {
        return Ok(Submitted::NoSuchTask);
    }
    let remember = key.map(|key| {
        let (key, hash) = (literal(key.as_bytes()), literal(&hash));
        format!(
            "INSERT INTO idempotency (submission_key, request_hash, entry, made_at) VALUES ({key}, {hash}, LAST_INSERT_ID(), {now_sql})"
        )
    });
    let entry = NewEntry { partition, by: &by.by, kind: KIND_TRIGGER, task: Some(id), body: &body };
    let audited = Audit { actor: by, action: AuditAction::Trigger, task: Some(id), instance: None, subject: key };
    // Last, since it has a number of its own.
    let with_it = remember.into_iter().chain(audit_sql([audited], now_sql));
    Ok(Submitted::Accepted { entry: write_entry(session, entry, with_it, now_sql).await? })
}

/// Puts what somebody says of a node into the inbox. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn mark_node(
    session: &mut Session,
    instance: InstanceId,
    (node, mark): (NodeIndex, NodeMark),
    subject: &str,
    by: &Actor,
    now_sql: &str,
) -> Result<Submitted, Failure> {
    let stored = format!("SELECT {INSTANCE_COLUMNS} FROM instances i FORCE INDEX (instances_by_id) WHERE i.id = {} LIMIT 1", instance.0);
    let [stored, _] = ask_in_turn(session, stored, None).await?;
    let Some(row) = stored.rows.first() else { return Ok(Submitted::NoSuchInstance) };
    let row = rows::instance(row)?;
    if let Some(refused) = mark_refused(&row, node) {
        return Ok(refused);
    }
    let body = codec::pack_mark(instance, node, mark, by.why.as_deref());
    let entry = NewEntry { partition: instance.partition(), by: &by.by, kind: KIND_MARK_NODE, task: None, body: &body };
    let action = AuditAction::MarkNode;
    let audited = Audit { actor: by, action, task: Some(row.task), instance: Some(instance), subject: Some(subject) };
    Ok(Submitted::Accepted { entry: write_entry(session, entry, audit_sql([audited], now_sql), now_sql).await? })
}

/// Puts a rerun into the inbox, once an instance. The transaction that it begins is ended only where it is accepted.
pub(crate) async fn rerun(
    session: &mut Session,
    instance: InstanceId,
    by: &Actor,
    which: Rerunning,
    now_sql: &str,
) -> Result<Submitted, Failure> {
    let (id, key) = (instance.0, literal(rerun_key(instance).as_bytes()));
    // In its turn: of two that ask for one rerun the second finds what the first wrote.
    let script = [
        "START TRANSACTION".to_owned(),
        TAKE_INBOX_TURN.to_owned(),
        format!("SELECT {INSTANCE_COLUMNS} FROM instances i FORCE INDEX (instances_by_id) WHERE i.id = {id} LIMIT 1"),
        format!("SELECT entry, request_hash FROM idempotency WHERE submission_key = {key}"),
        format!(
            "SELECT n.run FROM instances i FORCE INDEX (instances_by_id) STRAIGHT_JOIN instances n FORCE INDEX (PRIMARY)
             ON n.fire_time = i.fire_time AND n.task = i.task AND n.ordinal = i.ordinal AND n.run > i.run AND n.part = 0
             WHERE i.id = {id} LIMIT 1"
        ),
        format!(
            "SELECT t.id FROM instances i FORCE INDEX (instances_by_id) STRAIGHT_JOIN tasks t FORCE INDEX (PRIMARY) ON t.id = i.task
             WHERE i.id = {id} AND t.removed = 0 LIMIT 1"
        ),
    ];
    let mut answers = session.answers(script.join("; ")).await?.into_iter().skip(2);
    let [stored, used, newer, task] = std::array::from_fn(|_| answers.next().unwrap_or_default());
    let Some(row) = stored.rows.first() else { return Ok(Submitted::NoSuchInstance) };
    let row = rows::instance(row)?;
    let divided_into = divided_into(&row, &which);
    let mut of = match rerun_of(row, by.why.as_deref(), which) {
        Ok(of) => of,
        Err(refused) => return Ok(refused),
    };
    if let Some(count) = divided_into {
        // Literal: the order of states is fixed, 10 is success.
        let (fire_time, task, ordinal, run) = (of.fire_time.0, of.task.0, of.ordinal, of.run);
        let parts = format!(
            "SELECT {INSTANCE_COLUMNS} FROM instances i FORCE INDEX (PRIMARY)
             WHERE i.fire_time = {fire_time} AND i.task = {task} AND i.ordinal = {ordinal} AND i.run = {run} AND i.part > 0
             AND i.state <> 10 ORDER BY i.part"
        );
        let parts = session.rows(parts).await?;
        of.shards = shards_again(count, parts.iter().map(rows::instance).collect::<Result<_, _>>()?);
    }
    let hash = rerun_hash(&of);
    if let Some(row) = used.rows.first() {
        // It may run again, but not as this one wants it.
        let is_same = row.try_get::<Vec<u8>, _>(1)? == hash;
        return Ok(if is_same { Submitted::Repeated { entry: InboxId(row.try_get(0)?) } } else { Submitted::NotNewest });
    }
    if !newer.rows.is_empty() {
        return Ok(Submitted::NotNewest);
    }
    if task.rows.is_empty() {
        return Ok(Submitted::NoSuchTask);
    }
    let (body, kind) = (codec::pack_rerun(&of), if of.from.is_some() { KIND_RERUN_FROM } else { KIND_RERUN });
    let hash = literal(&hash);
    let remember = format!(
        "INSERT INTO idempotency (submission_key, request_hash, entry, made_at) VALUES ({key}, {hash}, LAST_INSERT_ID(), {now_sql})"
    );
    let entry = NewEntry { partition: instance.partition(), by: &by.by, kind, task: Some(of.task), body: &body };
    let (action, task) = (AuditAction::Rerun, Some(of.task));
    let audited = Audit { actor: by, action, task, instance: Some(instance), subject: None };
    let with_it = [remember, settle_sql(instance)].into_iter().chain(audit_sql([audited], now_sql));
    Ok(Submitted::Accepted { entry: write_entry(session, entry, with_it, now_sql).await? })
}
