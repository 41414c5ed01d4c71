//! How the server finds rows: on a database that has many, no query of a commit, a takeover or a listing reads a whole table.

use std::sync::Arc;

use punctual_core::batch::{AttemptOutput, CommitOutcome, Output, TaskWrite};
use punctual_core::ids::{InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::Submission;
use punctual_core::instance::{InstanceRow, Origin, State};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, InstanceCursor, InstanceFilter, InstanceQuery, Store, TaskQuery};
use punctual_store::MySqlStore;
use punctual_store::conformance::{Owner, START, TTL, all_partitions, apply, commit, document, ended, entry_ids, tasks_in_force};
use punctual_testbed::MariaDb;

use super::{block_on, options};

/// The tables that have more than a row a partition or a replica.
const LARGE: [&str; 10] =
    ["tasks", "task_versions", "task_states", "instances", "live", "troubled", "submission_keys", "submissions", "outputs", "inbox"];
const INSTANCES: usize = 3_000;

/// A store with thousands of rows in its tables, of which a third is live, and its owner. Answers with the live ones, too.
async fn filled(store: &MySqlStore) -> (Owner, Vec<InstanceRow>) {
    let names: Vec<_> = (0..500).map(|number| format!("task-{number:03}")).collect();
    apply(store, names.iter().map(|name| document(name, "v1")).collect(), START).await;
    let mut owner = Owner::of_all(store).await;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let tasks = tasks_in_force(store, &mut owner, &names).await;
    let rows: Vec<_> = (0..INSTANCES)
        .map(|number| {
            let (task, partition) = tasks[number % tasks.len()];
            let row = owner.dispatched(partition, task, Timestamp(START.0 + number as i64 / 10));
            InstanceRow { ordinal: number as u64 + 1, key: Some(format!("key-{number}").into()), ..row }
        })
        .collect();
    let mut batch = owner.batch();
    batch.inserts.clone_from(&rows);
    batch.outputs = rows.iter().map(|row| output(row.id)).collect();
    batch.occurrences = rows.iter().map(|row| occurrence(row.task, row.fire_time)).collect();
    commit(store, batch).await;
    let mut batch = owner.batch();
    let state = |index: usize| if index.is_multiple_of(3) { State::Failed } else { State::Succeeded };
    batch.updates =
        rows.iter().enumerate().filter(|(index, _)| index % 3 < 2).map(|(index, row)| ended(row, state(index), START)).collect();
    commit(store, batch).await;
    for row in rows.iter().take(300) {
        store.cancel(row.id, "me".into(), None, START).await.expect("a cancellation");
    }
    (owner, rows.into_iter().skip(2).step_by(3).collect())
}

fn output(instance: InstanceId) -> AttemptOutput {
    AttemptOutput { instance, attempt: 1, output: Output { bytes: b"said".to_vec(), dropped: 0 } }
}

fn occurrence(task: TaskId, at: Timestamp) -> Occurrence {
    let (version, outcome) = (Version(1), Outcome::Coalesced);
    Occurrence { task, version, first: at, last: at, count: 1, outcome, instance: None, at }
}

/// All that a replica asks of a store, once.
async fn everything(store: &MySqlStore, mut owner: Owner, live: Vec<InstanceRow>) {
    let me = || ReplicaId("a".into());
    store.beat(me(), TTL, START).await.expect("a beat");
    let renewals = all_partitions().into_iter().map(|partition| owner.renewal(partition)).collect();
    assert_eq!(store.renew(me(), renewals, TTL, START).await.expect("renewed"), []);
    let entries = entry_ids(store).await;
    let mut batch = owner.batch();
    batch.updates = live.iter().take(400).map(|row| ended(row, State::Failed, START)).collect();
    batch.outputs = live.iter().skip(400).take(100).map(|row| output(row.id)).collect();
    batch.applied = entries.into_iter().take(200).collect();
    let task = |row: &InstanceRow| TaskWrite {
        task: row.task,
        partition: row.id.partition(),
        version: Some(Version(1)),
        next_fire: None,
        fired_until: Some(START),
    };
    batch.tasks = live.iter().take(100).map(task).collect();
    let failed: Vec<_> = batch.updates.iter().map(|update| update.row.clone()).collect();
    commit(store, batch).await;
    let mut batch = owner.batch();
    batch.updates = failed.iter().map(|row| ended(row, State::Succeeded, START)).collect();
    commit(store, batch).await;
    // One that is refused: the row that was not as expected is looked for.
    let mut batch = owner.batch();
    batch.updates = failed.iter().map(|row| ended(row, State::Succeeded, START)).collect();
    let refused = store.commit(Arc::new(batch)).await.expect("an outcome");
    assert!(matches!(&refused, CommitOutcome::Refused { reason } if reason.contains("any more")), "{refused:?}");
    store.snapshot(PartitionId(1)).await.expect("a snapshot");
    store.read_inbox(all_partitions(), InboxId(0), 100).await.expect("a page");
    let submission = vec![Submission::default()];
    store.trigger("task-007".into(), "me".into(), Some("once".into()), submission, START).await.expect("a trigger");
    store.tasks(Some("task-100".into()), 20).await.expect("tasks");
    store.task("task-100".into()).await.expect("a task");
    store.name_of(live[0].task).await.expect("a name");
    store.instance(live[0].id).await.expect("an instance");
    store.instance_of_submission(live[0].ordinal).await.expect("an instance");
    store.outputs(live[0].id).await.expect("outputs");
    store.occurrences("task-100".into(), 20).await.expect("occurrences");
    let task = || Some(Arc::from("task-100"));
    let before = live.get(500).map(InstanceCursor::of);
    for (task, state, key) in [
        (None, None, None),
        (task(), None, None),
        (None, Some(State::Failed), None),
        (None, Some(State::Dispatched), None),
        (task(), Some(State::Failed), None),
        (None, None, live[0].key.clone()),
    ] {
        for before in [None, before] {
            let filter = InstanceFilter { task: task.clone(), whole: false, state, key: key.clone(), before, limit: 20 };
            store.instances(filter).await.expect("instances");
        }
    }
    for query in [
        InstanceQuery { states: vec![State::Failed], ..InstanceQuery::default() },
        InstanceQuery { states: vec![State::Failed, State::TimedOut], ..InstanceQuery::default() },
        InstanceQuery { states: vec![State::Succeeded, State::Failed], ..InstanceQuery::default() },
        InstanceQuery { origin: Some(Origin::Chain), fired_until: Some(Timestamp(START.0 + 100)), ..InstanceQuery::default() },
        InstanceQuery { worker: Some("w1".into()), ..InstanceQuery::default() },
        InstanceQuery { group: Some("none".into()), ..InstanceQuery::default() },
    ] {
        for (task, before) in [(None, None), (task(), before), (task(), None), (None, before)] {
            let filter = InstanceFilter { task, before, limit: 20, ..InstanceFilter::default() };
            store.instance_page(InstanceQuery { filter, look_at: 100, ..query.clone() }).await.expect("a page");
        }
    }
    let names = TaskQuery { contains: Some("99".into()), limit: 20, look_at: 100, ..TaskQuery::default() };
    store.task_page(names).await.expect("a page");
    store.task_days(live[0].task, 0).await.expect("days");
    store.reserve_answer("a".into(), [1; 32], START).await.expect("an answer");
    store.keep_answer("a".into(), [1; 32], None).await.expect("kept");
    store.counts().await.expect("counts");
    store.release(me(), vec![(PartitionId(1), owner.lease(PartitionId(1)).epoch)], true).await.expect("released");
}

/// The plan of a statement says of each table how it is read.
fn whole_tables(plan: &str) -> Vec<&str> {
    let reads_all = |line: &&str| {
        let columns: Vec<_> = line.split('\t').collect();
        let rows = columns[8].parse::<u64>().unwrap_or(0);
        !columns[2].starts_with('<') && matches!(columns[3], "ALL" | "index") && rows > 200
    };
    plan.lines().filter(reads_all).collect()
}

#[test]
fn no_query_reads_a_whole_table() {
    let server = MariaDb::start().expect("a server");
    let url = server.create("plans").expect("a database");
    block_on(async {
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        let (owner, live) = filled(&store).await;
        let analyzed = LARGE.map(|table| format!("plans.{table}")).join(", ");
        server.run(&format!("ANALYZE TABLE {analyzed}; SET GLOBAL log_output = 'TABLE', general_log = 1;")).expect("a log");
        everything(&store, owner, live).await;
        server.run("SET GLOBAL general_log = 0;").expect("a setting");
        // A message's statements are logged one after another, each with what comes behind it. No literal has a semicolon or a line end.
        let log = server
            .run(
                "SELECT REPLACE(SUBSTRING_INDEX(CONVERT(argument USING utf8mb4), ';', 1), '\\n', ' ') FROM mysql.general_log
                 WHERE command_type = 'Query' AND user_host LIKE 'punctual%';",
            )
            .expect("a log");
        let (mut seen, mut found) = (0, String::new());
        for statement in log.lines().map(str::trim) {
            let is_planned = ["SELECT", "(SELECT", "UPDATE", "DELETE"].iter().any(|verb| statement.starts_with(verb));
            // Sums are over all there is, and so are lists of what is live, which is kept apart because it is little.
            if !is_planned || statement.contains("GROUP BY") || statement.contains("FROM live d") {
                continue;
            }
            seen += 1;
            let sql = format!("SET in_predicate_conversion_threshold = 0; USE plans; EXPLAIN {statement};");
            let plan = server.run(&sql).expect("a plan");
            if !whole_tables(&plan).is_empty() {
                found += &format!("{}\n{plan}\n", statement.chars().take(500).collect::<String>());
            }
        }
        assert_eq!(found, "");
        assert!(seen > 40, "{seen} statements\n{log}");
        let scanned = server.run("USE plans; EXPLAIN SELECT * FROM live;").expect("a plan");
        assert_eq!(whole_tables(&scanned).len(), 1, "it would be noticed: {scanned}");
    });
}
