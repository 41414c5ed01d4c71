//! What outlives the month that it lies in.

use punctual_core::batch::{AttemptOutput, Output};
use punctual_core::ids::{PartitionId, TaskId};
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Discarded, InstanceFilter};
use punctual_store::MySqlStore;
use punctual_store::conformance::{Owner, START, apply, commit, ended, tasks_in_force};

use super::{block_on, database, options, server};

/// Three months of long ago, as if the database had been made then.
pub(crate) fn make_old_months(name: &str) {
    for table in ["instances", "troubled", "submission_keys", "submissions", "outputs", "occurrences"] {
        let first = server()
            .run(&format!(
                "SELECT CONCAT(partition_name, ' VALUES LESS THAN (', partition_description, ')') FROM information_schema.partitions \
                 WHERE table_schema = '{name}' AND table_name = '{table}' ORDER BY partition_ordinal_position LIMIT 1;"
            ))
            .expect("a partition");
        let (first, definition) = (first.split(' ').next().expect("a name"), first.trim());
        server()
            .run(&format!(
                "ALTER TABLE {name}.{table} REORGANIZE PARTITION {first} INTO (PARTITION m200001 VALUES LESS THAN (949363200000), \
                 PARTITION m200002 VALUES LESS THAN (951868800000), PARTITION m200003 VALUES LESS THAN (954547200000), \
                 PARTITION {definition});"
            ))
            .expect("older months");
    }
}

const JANUARY: i64 = 949_000_000_000;
const FEBRUARY: i64 = 950_000_000_000;

struct Old {
    store: MySqlStore,
    owner: Owner,
    /// The name of the database.
    name: String,
    tasks: Vec<(TaskId, PartitionId)>,
}

impl Old {
    async fn new(tasks: &[&str]) -> Old {
        let url = database();
        let name = url.rsplit('/').next().expect("a name").to_owned();
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        make_old_months(&name);
        let mut owner = Owner::of_all(&store).await;
        let tasks = tasks_in_force(&store, &mut owner, tasks).await;
        Old { store, owner, name, tasks }
    }

    /// An instance that has ended, with what it wrote.
    async fn ended(&mut self, task: usize, at: i64, state: State, change: impl FnOnce(&mut InstanceRow)) -> InstanceRow {
        let (task, partition) = self.tasks[task];
        let mut row = self.owner.dispatched(partition, task, Timestamp(at));
        change(&mut row);
        let mut batch = self.owner.batch();
        batch.inserts.push(row.clone());
        batch.updates.push(ended(&row, state, Timestamp(at + 1)));
        let output = Output { bytes: b"what it wrote".to_vec(), dropped: 0 };
        batch.outputs.push(AttemptOutput { instance: row.id, attempt: 1, output });
        commit(&self.store, batch).await;
        row
    }

    async fn is_there(&self, row: &InstanceRow) -> bool {
        let found = self.store.instance(row.id).await.expect("an answer");
        let outputs = self.store.outputs(row.id).await.expect("outputs");
        assert_eq!(found.is_some(), outputs.len() == 1, "what it wrote goes with it");
        found.is_some()
    }

    async fn with(&self, filter: InstanceFilter) -> Vec<punctual_core::ids::InstanceId> {
        let filter = InstanceFilter { limit: 10, ..filter };
        self.store.instances(filter).await.expect("instances").iter().map(|view| view.row.id).collect()
    }
}

/// C371: of each task that there is the last firing stays, with its parts, its key and what it wrote, month after month.
#[test]
fn the_last_firing_of_a_task_outlives_its_month() {
    block_on(async {
        let mut old = Old::new(&["idle", "busy", "removed"]).await;
        let before = old.ended(0, JANUARY - 1_000, State::Succeeded, |_| {}).await;
        let last = old.ended(0, JANUARY, State::Failed, |row| (row.key, row.ordinal) = (Some("k".into()), 77)).await;
        let part = old
            .ended(0, JANUARY, State::Failed, |row| {
                (row.ordinal, row.part) = (77, Part::shard(1));
            })
            .await;
        let busy = old.ended(1, JANUARY, State::Succeeded, |_| {}).await;
        let busy_later = old.ended(1, START.0, State::Succeeded, |_| {}).await;
        let removed = old.ended(2, JANUARY, State::Succeeded, |_| {}).await;
        let february = old.ended(1, FEBRUARY, State::Succeeded, |_| {}).await;
        let documents = ["idle", "busy"].map(|name| punctual_store::conformance::document(name, "v1")).to_vec();
        assert_eq!(apply(&old.store, documents, START).await.removed.len(), 1);
        assert_eq!(old.store.drop_months(2).await.expect("dropped"), ["m200001", "m200002", "m200003"]);
        for (row, stays) in
            [(&before, false), (&last, true), (&part, true), (&busy, false), (&busy_later, true), (&removed, false), (&february, false)]
        {
            assert_eq!(old.is_there(row).await, stays, "{}", row.id);
        }
        assert_eq!(old.store.counts().await.expect("counts"), [(State::Failed, 2), (State::Succeeded, 1)]);
        // It is found in every way that it was.
        let failed = InstanceFilter { state: Some(State::Failed), whole: true, ..InstanceFilter::default() };
        assert_eq!(old.with(failed).await, [last.id]);
        assert_eq!(old.with(InstanceFilter { key: Some("k".into()), ..InstanceFilter::default() }).await, [last.id]);
        assert_eq!(old.with(InstanceFilter { task: Some("idle".into()), whole: true, ..InstanceFilter::default() }).await, [last.id]);
        let submitted = old.store.instance_of_submission(77).await.expect("an answer").expect("an instance");
        assert_eq!(submitted.row.id, last.id);
        let left = server()
            .run(&format!(
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{}' AND table_name LIKE 'kept%';",
                old.name
            ))
            .expect("a count");
        assert_eq!(left, "0\n");
    });
}

/// C371: dead letters that nobody has settled stay, and the months behind theirs with them.
#[test]
fn a_dead_letter_outlives_its_month() {
    block_on(async {
        let mut old = Old::new(&["a", "b"]).await;
        let january = old.ended(0, JANUARY, State::Succeeded, |_| {}).await;
        let dead = old.ended(0, FEBRUARY, State::DeadLettered, |_| {}).await;
        let beside = old.ended(0, FEBRUARY + 1, State::Succeeded, |_| {}).await;
        old.ended(0, START.0, State::Succeeded, |_| {}).await;
        assert_eq!(old.store.drop_months(2).await.expect("dropped"), ["m200001"]);
        assert_eq!((old.is_there(&january).await, old.is_there(&dead).await, old.is_there(&beside).await), (false, true, true));
        assert_eq!(old.store.discard(dead.id, "ops".into(), START).await.expect("an answer"), Discarded::Done);
        assert_eq!(old.store.drop_months(2).await.expect("dropped"), ["m200002", "m200003"]);
        assert_eq!((old.is_there(&dead).await, old.is_there(&beside).await), (false, false));
    });
}

/// Somebody has died when the month was half gone. Whoever comes next puts back what was kept.
#[test]
fn what_is_kept_survives_whoever_drops_the_month() {
    for gone in [&[][..], &["instances"][..], &["instances", "troubled", "outputs"][..], &["all"][..]] {
        block_on(async {
            let mut old = Old::new(&["idle", "busy"]).await;
            let last = old.ended(0, JANUARY, State::Failed, |_| {}).await;
            let busy = old.ended(1, JANUARY, State::Succeeded, |_| {}).await;
            old.ended(1, START.0, State::Succeeded, |_| {}).await;
            let name = &old.name;
            let mut sql = format!("USE {name};");
            for table in ["instances", "troubled", "submission_keys", "submissions", "outputs"] {
                sql += &format!("CREATE TABLE kept_{table} LIKE {table};");
            }
            sql += &format!(
                "INSERT INTO kept_instances SELECT * FROM instances WHERE task = {0};
                 INSERT INTO kept_troubled SELECT * FROM troubled WHERE task = {0};
                 INSERT INTO kept_outputs SELECT * FROM outputs WHERE instance = {1};",
                last.task.0, last.id.0
            );
            if !gone.is_empty() {
                // The other one was counted off.
                sql += "UPDATE counts SET instances = instances - 1 WHERE `partition` = 0 AND state = 10;";
            }
            let all = ["instances", "troubled", "submission_keys", "submissions", "outputs", "occurrences"];
            let tables = if gone == ["all"] { &all[..] } else { gone };
            for table in tables {
                sql += &format!("ALTER TABLE {table} DROP PARTITION m200001;");
            }
            server().run(&sql).expect("half a drop");
            if gone == ["all"] {
                // No other month has to be old for it.
                assert_eq!(old.store.drop_months(10_000).await.expect("dropped"), Vec::<String>::new());
                assert!(old.is_there(&last).await);
            }
            let dropped = old.store.drop_months(2).await.expect("dropped");
            assert_eq!(dropped.len(), if gone == ["all"] { 2 } else { 3 }, "{dropped:?}");
            assert_eq!((old.is_there(&last).await, old.is_there(&busy).await), (true, false), "{gone:?}");
            let failed = InstanceFilter { state: Some(State::Failed), ..InstanceFilter::default() };
            assert_eq!(old.with(failed).await, [last.id], "{gone:?}");
            assert_eq!(old.store.counts().await.expect("counts"), [(State::Failed, 1), (State::Succeeded, 1)], "{gone:?}");
        });
    }
}

/// Somebody has died when the month was half gone, and then something fires for a time in it.
#[test]
fn what_is_kept_survives_what_fires_late_for_the_month() {
    block_on(async {
        let mut old = Old::new(&["idle", "busy"]).await;
        let last = old.ended(0, JANUARY, State::Failed, |_| {}).await;
        old.ended(1, START.0, State::Succeeded, |_| {}).await;
        let mut sql = format!("USE {};", old.name);
        for table in ["instances", "troubled", "submission_keys", "submissions", "outputs"] {
            sql += &format!("CREATE TABLE kept_{table} LIKE {table};");
        }
        sql += "INSERT INTO kept_instances SELECT * FROM instances WHERE fire_time < 949363200000;
                INSERT INTO kept_troubled SELECT * FROM troubled; INSERT INTO kept_outputs SELECT * FROM outputs WHERE fire_time < 949363200000;
                ALTER TABLE instances DROP PARTITION m200001; ALTER TABLE troubled DROP PARTITION m200001;";
        server().run(&sql).expect("half a drop");
        let (task, partition) = old.tasks[1];
        let late = old.owner.dispatched(partition, task, Timestamp(JANUARY + 1));
        let mut batch = old.owner.batch();
        batch.inserts.push(late.clone());
        commit(&old.store, batch).await;
        assert_eq!(old.store.drop_months(2).await.expect("dropped"), Vec::<String>::new(), "one of January is alive");
        assert!(old.is_there(&last).await);
        let mut batch = old.owner.batch();
        batch.updates.push(ended(&late, State::Succeeded, START));
        commit(&old.store, batch).await;
        assert_eq!(old.store.drop_months(2).await.expect("dropped"), ["m200001", "m200002", "m200003"]);
        assert!(old.is_there(&last).await);
        let failed = InstanceFilter { state: Some(State::Failed), ..InstanceFilter::default() };
        assert_eq!(old.with(failed).await, [last.id]);
        assert_eq!(old.store.counts().await.expect("counts"), [(State::Failed, 1), (State::Succeeded, 1)]);
    });
}

/// Copies that were left behind have the columns of an older schema.
#[test]
fn tables_of_copies_that_were_left_behind_are_made_anew() {
    block_on(async {
        let mut old = Old::new(&["idle"]).await;
        let last = old.ended(0, JANUARY, State::Succeeded, |_| {}).await;
        let sql = format!("USE {}; CREATE TABLE kept_instances LIKE instances; ALTER TABLE kept_instances DROP COLUMN worker;", old.name);
        server().run(&sql).expect("an old table");
        assert_eq!(old.store.drop_months(2).await.expect("dropped"), ["m200001", "m200002", "m200003"]);
        assert!(old.is_there(&last).await);
    });
}
