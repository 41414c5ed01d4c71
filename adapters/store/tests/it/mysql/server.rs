//! Opening: the schema, several at once, and what is wrong with an address or a server.

use punctual_core::ids::{PartitionId, ReplicaId, TaskId};
use punctual_core::instance::State;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Store, StoreError};
use punctual_store::conformance::{self, Owner, START, commit, ended};
use punctual_store::{MySqlOptions, MySqlStore};
use punctual_testbed::MariaDb;

use super::{block_on, database, options, server};

#[test]
fn replicas_that_start_at_once_make_one_schema() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = database();
        let opened: Vec<_> = (1..=8)
            .map(|partitions| {
                tokio::spawn({
                    let url = url.clone();
                    async move { MySqlStore::migrate(&url, partitions).await }
                })
            })
            .collect();
        let mut laid_out = Vec::new();
        for opened in opened {
            laid_out.push(opened.await.expect("a task").expect("a schema"));
        }
        laid_out.dedup();
        assert_eq!(laid_out.len(), 1, "one number of partitions: {laid_out:?}");
        assert_eq!(MySqlStore::migrate(&url, 64).await.expect("again"), laid_out[0]);
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        assert_eq!(store.partitions(), laid_out[0]);
        assert_eq!(store.partition_views().await.expect("partitions").len(), usize::from(laid_out[0]));
    });
}

#[test]
fn a_newer_schema_is_left_alone() {
    block_on(async {
        let url = database();
        MySqlStore::migrate(&url, 8).await.expect("a schema");
        let name = url.rsplit('/').next().expect("a name");
        server().run(&format!("INSERT INTO {name}.schema_version VALUES (99, 0);")).expect("a row");
        match MySqlStore::open(options(&url)).await {
            Err(error @ StoreError::NewerSchema { found: 99, known: 7, .. }) => {
                assert!(error.to_string().starts_with("PUN-205"), "{error}")
            }
            other => panic!("{other:?}"),
        }
    });
}

async fn refused(url: String) -> String {
    let error = MySqlStore::open(options(url)).await.expect_err("it can't be opened");
    let text = error.to_string();
    assert!(!text.contains("private") && !text.contains("secret") && !format!("{error:?}").contains("secret"), "{text}");
    text
}

#[test]
fn what_is_wrong_is_said_in_words_that_help() {
    block_on(async {
        let port = server().port();
        let at = format!("127.0.0.1:{port}");
        let text = refused(format!("mysql://punctual:secret@{at}/none")).await;
        assert!(text.starts_with(&format!("PUN-210: the database {at}/none refuses this user: ")), "{text}");
        let text = refused(server().url("not_there")).await;
        assert!(text.starts_with(&format!("PUN-212: there is no database {at}/not_there: ")), "{text}");
        let unused = punctual_testbed::free_port();
        let text = refused(format!("mysql://punctual:secret@127.0.0.1:{unused}/none")).await;
        assert!(text.starts_with(&format!("PUN-209: the database 127.0.0.1:{unused}/none can't be reached: ")), "{text}");
        for (url, why) in [
            ("postgres://me:secret@there/x", "it does not begin with mysql://"),
            ("mysql://me:secret@there", "it names no database"),
            ("mysql://me:secret@there:port/x", "it is not mysql://user:password@host:port/database"),
        ] {
            let text = refused(url.to_owned()).await;
            assert!(text.starts_with("PUN-207") && text.ends_with(why), "{text}");
        }
        let none = MySqlStore::migrate(&database(), 0).await.expect_err("no partitions");
        assert!(none.to_string().contains("0 partitions are not between 1 and"), "{none}");
    });
}

#[test]
fn a_server_that_takes_no_writes_is_refused_and_one_that_promises_less_is_told_of() {
    let server = MariaDb::start_with(&["--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=0"]).expect("a server");
    let url = server.create("weak").expect("a database");
    block_on(async {
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        let warnings = store.warnings().await.expect("warnings");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("innodb_flush_log_at_trx_commit is not 1"), "{warnings:?}");
        let strong = MySqlStore::open(options(database())).await.expect("a store");
        assert_eq!(strong.warnings().await.expect("warnings"), [""; 0]);
        server.run("SET GLOBAL read_only = 1;").expect("a setting");
        let text = refused(url.clone()).await;
        assert!(text.starts_with("PUN-213") && text.contains("read_only") && text.contains("ame the primary"), "{text}");
    });
}

#[test]
fn time_is_the_databases_own_and_a_replica_says_where_it_is() {
    block_on(async {
        let url = database();
        let mut options = MySqlOptions::new(&url, conformance::decode());
        options.partitions = conformance::PARTITIONS;
        options.address = Some("10.0.0.7:7000".to_owned());
        let store = MySqlStore::open(options).await.expect("a store");
        let name = url.rsplit('/').next().expect("a name");
        let wall = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64;
        let before = wall();
        // A caller whose clock is far off.
        let beat = store.beat(ReplicaId("a".into()), Millis(60_000), Timestamp(5)).await.expect("a beat");
        let now = beat.now.expect("its time").0;
        assert!(before - 2 <= now && now <= wall() + 2, "{before} {now}");
        let replicas = store.replicas().await.expect("replicas");
        assert_eq!((replicas.len(), replicas[0].address.as_deref()), (1, Some("10.0.0.7:7000")));
        assert!(replicas[0].expires_at.0 - replicas[0].since.0 >= 60_000);
        let first = replicas[0].since;
        store.beat(ReplicaId("a".into()), Millis(60_000), Timestamp(5)).await.expect("a beat");
        assert_eq!(store.replicas().await.expect("replicas")[0].since, first);
        // A lease ends by the database's clock: nobody has to say that it is over.
        let take = |replica: &str| store.acquire(ReplicaId(replica.into()), vec![PartitionId(1)], 1, Millis(60_000), Timestamp(0));
        take("a").await.expect("a lease");
        assert!(matches!(take("b").await.expect("an answer")[0], punctual_driver::ports::LeaseAnswer::Held { .. }));
        server().run(&format!("UPDATE {name}.leases SET expires_at = UNIX_TIMESTAMP(NOW(3)) * 1000 - 1;")).expect("an update");
        assert!(matches!(take("b").await.expect("an answer")[0], punctual_driver::ports::LeaseAnswer::Granted { .. }));
        let views = store.partition_views().await.expect("partitions");
        assert_eq!((views[1].owner.clone(), views[1].epoch.0), (Some(ReplicaId("b".into())), 2));
    });
}

#[test]
fn months_are_made_ahead_and_dropped_whole_unless_something_in_them_lives() {
    block_on(async {
        let url = database();
        let name = url.rsplit('/').next().expect("a name").to_owned();
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        assert_eq!(store.make_months().await.expect("months"), 0, "they are there");
        super::months::make_old_months(&name);
        let mut owner = Owner::of_all(&store).await;
        let january = owner.dispatched(PartitionId(1), TaskId(1), Timestamp(949_000_000_000));
        let february = owner.dispatched(PartitionId(1), TaskId(1), Timestamp(950_000_000_000));
        let today = owner.dispatched(PartitionId(1), TaskId(1), START);
        let mut batch = owner.batch();
        batch.inserts = vec![january.clone(), february.clone(), today.clone()];
        commit(&store, batch).await;
        let mut batch = owner.batch();
        batch.updates = vec![ended(&january, State::Failed, START), ended(&today, State::Succeeded, START)];
        commit(&store, batch).await;
        let dropped = store.drop_months(2).await.expect("dropped");
        assert_eq!(dropped, ["m200001"], "February has one that is alive");
        assert!(store.instance(january.id).await.expect("an answer").is_none());
        assert_eq!(store.counts().await.expect("counts"), [(State::Dispatched, 1), (State::Succeeded, 1)]);
        let mut batch = owner.batch();
        batch.updates = vec![ended(&february, State::Succeeded, START)];
        commit(&store, batch).await;
        // As if somebody had died before February was dropped, and somebody else when March was half gone.
        server()
            .run(&format!(
                "USE {name}; INSERT INTO counts VALUES (0, 10, -1) ON DUPLICATE KEY UPDATE instances = instances - 1;
                 INSERT INTO meta VALUES ('dropping-m200002-10', 1), ('dropping-m200003-10', 7);
                 ALTER TABLE outputs DROP PARTITION m200002; ALTER TABLE instances DROP PARTITION m200003;"
            ))
            .expect("half a drop");
        assert_eq!(store.drop_months(2).await.expect("dropped"), ["m200002", "m200003"]);
        let left = server()
            .run(&format!(
                "SELECT COUNT(*) FROM {name}.meta WHERE name LIKE 'dropping%' UNION ALL
                 SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = '{name}' AND partition_name LIKE 'm2000%';"
            ))
            .expect("counts");
        assert_eq!(left, "0\n0\n");
        assert_eq!(store.counts().await.expect("counts"), [(State::Succeeded, 1)]);
        assert!(store.instance(today.id).await.expect("an answer").is_some());
    });
}

/// A look at a database neither lays tables out nor brings them up to date.
#[test]
fn a_checkup_leaves_the_schema_as_it_is() {
    block_on(async {
        let url = database();
        let name = url.rsplit('/').next().expect("a name");
        let tables =
            || server().run(&format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{name}';")).expect("a count");
        let (found, newest, store) = MySqlStore::open_to_check(options(&url)).await.expect("an answer");
        assert_eq!((found, store.is_none(), &*tables()), (0, true, "0\n"));
        MySqlStore::migrate(&url, 8).await.expect("a schema");
        let before = tables();
        server().run(&format!("DELETE FROM {name}.schema_version WHERE version = {newest};")).expect("an older schema");
        let (found, _, store) = MySqlStore::open_to_check(options(&url)).await.expect("an answer");
        assert_eq!((found, store.is_none(), tables()), (newest - 1, true, before));
        MySqlStore::migrate(&url, 8).await.expect("a schema");
        let (found, _, store) = MySqlStore::open_to_check(options(&url)).await.expect("an answer");
        let store = store.expect("the newest schema is looked at");
        assert_eq!((found, store.partitions()), (newest, 8));
        let wall = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64;
        assert!((store.time().await.expect("a time").0 - wall).abs() < 60_000);
        for thorough in [false, true] {
            assert_eq!(store.inconsistencies(START, thorough).await.expect("an answer"), []);
        }
    });
}
