//! What a file can suffer: to be opened twice, to be read-only, damaged, of another program, newer, full, locked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use punctual_core::batch::CommitOutcome;
use punctual_core::ids::{Fence, InstanceId, PartitionId, ReplicaId, TaskId, WorkerId};
use punctual_core::instance::State;
use punctual_core::time::Timestamp;
use punctual_driver::logs::{AttemptLines, Day, Level, LogBatch, LogLine, LogQuery, LogStore, TraceId};
use punctual_driver::ports::{Catalog, LeaseAnswer, Store, StoreError};
use punctual_store::conformance::{self, Owner, START, TTL, commit, document, dump, ended, entry_ids, tasks_in_force};
use punctual_store::{Decode, Options, SqliteLogs, SqliteStore};
use rusqlite::Connection;

use crate::{Folder, block_on, name, options};

#[test]
fn all_is_there_after_a_restart_and_leases_are_free_at_once() {
    let folder = Folder::new();
    let before = block_on(async {
        let store = folder.open();
        let mut owner = Owner::of_all(&store).await;
        let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
        let rows = [1, 2].map(|at| owner.dispatched(partition, task, Timestamp(at)));
        let mut batch = owner.batch();
        batch.inserts.extend(rows.clone());
        commit(&store, batch).await;
        let mut batch = owner.batch();
        batch.updates.push(ended(&rows[0], State::Failed, START));
        commit(&store, batch).await;
        store.trigger(name("one"), "me".into(), None, vec![Default::default()], START).await.expect("a trigger");
        dump(&store).await
    });
    block_on(async {
        // Another number of partitions is asked for; the file keeps its own.
        let store = SqliteStore::open(Options::new(folder.database(), conformance::decode())).expect("a store");
        assert_eq!(store.partitions(), conformance::PARTITIONS);
        assert_eq!(dump(&store).await, before);
        let answers = store.acquire(ReplicaId(name("b")), vec![PartitionId(0)], 1, TTL, START).await.expect("an answer");
        let [LeaseAnswer::Granted { epoch, commit_seq, .. }] = answers[..] else { panic!("{answers:?}") };
        assert_eq!((epoch.0, commit_seq), (2, 3));
    });
}

#[test]
fn a_second_process_is_told_who_has_the_database() {
    const HOLDER: &str = "PUNCTUAL_TEST_HOLDER";
    const DATABASE: &str = "PUNCTUAL_TEST_DATABASE";
    let in_use = |opened: Result<SqliteStore, StoreError>, by: &str| match opened {
        Err(StoreError::InUse { holder, .. }) => assert_eq!(holder.as_deref(), Some(by)),
        other => panic!("{other:?}"),
    };
    if let (Ok(holder), Ok(database)) = (std::env::var(HOLDER), std::env::var(DATABASE)) {
        in_use(SqliteStore::open(options(database)), &holder);
        return;
    }
    let folder = Folder::new();
    let store = folder.open();
    let holder = format!("process {}", std::process::id());
    in_use(folder.try_open(), &holder);
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(["--exact", "file::a_second_process_is_told_who_has_the_database"]).env(HOLDER, holder).env(DATABASE, folder.database());
    let output = child.output().expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    drop(store);
    folder.open();
}

#[test]
fn a_read_only_file_or_folder_is_said_to_be() {
    // Root may write anywhere: the test goes on as nobody.
    const FOLDER: &str = "PUNCTUAL_TEST_READ_ONLY";
    if let Ok(path) = std::env::var(FOLDER) {
        for database in ["file/punctual.db", "folder/punctual.db", "missing/punctual.db"] {
            let opened = SqliteStore::open(options(format!("{path}/{database}")));
            assert!(matches!(opened, Err(StoreError::ReadOnly { .. })), "{database}: {opened:?}");
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let allow = |name: &str, mode| fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).expect("permissions");
    fs::create_dir(path("file")).expect("a folder");
    fs::create_dir(path("folder")).expect("a folder");
    drop(SqliteStore::open(options(path("file/punctual.db"))).expect("a store"));
    allow("", 0o755);
    allow("file", 0o777);
    allow("file/punctual.db.lock", 0o666);
    allow("file/punctual.db", 0o444);
    allow("folder", 0o555);
    // By another process: a child that another test has just forked would share a file open for writing here, and none such can be run.
    let copied = Command::new("cp").arg(std::env::current_exe().expect("a path")).arg(path("test")).status();
    assert!(copied.expect("cp").success());
    allow("test", 0o755);
    let mut child = Command::new(path("test"));
    child.args(["--exact", "file::a_read_only_file_or_folder_is_said_to_be", "--nocapture"]).env(FOLDER, folder.path());
    let output = child.uid(65_534).output();
    // Who is not root has no right to become nobody, and no need to.
    let output = output.unwrap_or_else(|_| {
        let mut child = Command::new(path("test"));
        child.args(["--exact", "file::a_read_only_file_or_folder_is_said_to_be", "--nocapture"]).env(FOLDER, folder.path());
        child.output().expect("a child")
    });
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn what_is_no_database_is_said_to_be_none_and_left_alone() {
    let folder = Folder::new();
    let text = "This is a letter and not a database. ".repeat(100);
    fs::write(folder.database(), &text).expect("a file");
    assert!(matches!(folder.try_open(), Err(StoreError::Corrupt { .. })));
    assert_eq!(fs::read_to_string(folder.database()).expect("the file"), text);
}

#[test]
fn another_programs_database_is_left_alone() {
    let folder = Folder::new();
    let other = Connection::open(folder.database()).expect("a database");
    other.execute_batch("CREATE TABLE letters (text TEXT)").expect("a table");
    drop(other);
    match folder.try_open() {
        Err(StoreError::Corrupt { reason, .. }) => assert!(reason.contains("another program"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let other = Connection::open(folder.database()).expect("the database");
    assert_eq!(other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, u32>(0)), Ok(1));
}

#[test]
fn a_damaged_database_is_said_to_be() {
    let folder = Folder::new();
    block_on(async {
        let store = folder.open();
        let documents = (0..2_000).map(|number| document(&format!("task-{number}"), "v1")).collect();
        store.apply(name("files"), "me".into(), documents, false, START).await.expect("tasks");
    });
    let mut bytes = fs::read(folder.database()).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 16_384].fill(0xa5);
    fs::write(folder.database(), bytes).expect("the file");
    assert!(matches!(folder.try_open(), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_day_of_lines_that_is_full_or_damaged_is_said_and_goes_on_once_it_can() {
    let folder = Folder::new();
    let logs = SqliteLogs::beside(folder.database());
    let line = |seq: u64| LogLine { seq, at: START, level: Level::Info, dropped: 0, message: "x".repeat(2_000).into() };
    let batch = |seqs: std::ops::Range<u64>| {
        let (instance, fence, trace) = (InstanceId(1), Fence(1), TraceId([1; 16]));
        let attempt = AttemptLines { instance, fence, attempt: 1, task: TaskId(1), trace, lines: seqs.map(line).collect() };
        vec![Arc::new(LogBatch { worker: WorkerId(name("w")), attempts: vec![attempt] })]
    };
    let count = || block_on(logs.lines(LogQuery::of(InstanceId(1), START))).map(|page| page.lines.len());
    block_on(logs.append(batch(1..3), START)).expect("stored");
    logs.set_pages_max(Some(20));
    let full = block_on(logs.append(batch(3..100), START));
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert_eq!(count().expect("read"), 2, "nothing is half there");
    logs.set_pages_max(None);
    block_on(logs.append(batch(3..100), START)).expect("stored");
    assert_eq!(count().expect("read"), 99);
    // A file that is none any more.
    logs.set_pages_max(None);
    let day = Day::of(START);
    let file = folder.database().with_file_name("punctual.db.logs").join(format!("{day}.db"));
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.display()));
    }
    fs::write(&file, "no database ".repeat(1_000)).expect("written");
    let damaged = block_on(logs.append(batch(100..101), START));
    assert!(matches!(damaged, Err(StoreError::Corrupt { .. })), "{damaged:?}");
    assert!(!damaged.expect_err("damaged").is_passing());
    fs::remove_file(&file).expect("removed");
    block_on(logs.append(batch(100..101), START)).expect("stored");
}

/// Whatever comes while an old day is dropped: a line that was taken afterwards is there until days are dropped again.
#[test]
fn a_day_that_is_dropped_while_it_is_written_loses_nothing_that_comes_later() {
    let folder = Folder::new();
    let logs = SqliteLogs::beside(folder.database());
    let tomorrow = Timestamp(START.0 + 86_400_000);
    let batch = |seq: u64| {
        let line = LogLine { seq, at: START, level: Level::Info, dropped: 0, message: "x".into() };
        let (instance, fence, trace) = (InstanceId(1), Fence(1), TraceId([1; 16]));
        let attempt = AttemptLines { instance, fence, attempt: 1, task: TaskId(1), trace, lines: vec![line] };
        vec![Arc::new(LogBatch { worker: WorkerId(name("w")), attempts: vec![attempt] })]
    };
    for round in 1..=100 {
        std::thread::scope(|scope| {
            scope.spawn(|| block_on(logs.keep(1, tomorrow)).expect("kept"));
            scope.spawn(|| (0..5).for_each(|at| block_on(logs.append(batch(10 * round + at), tomorrow)).expect("stored")));
        });
        block_on(logs.append(batch(10 * round + 9), tomorrow)).expect("stored");
        let found = block_on(logs.lines(LogQuery::of(InstanceId(1), START))).expect("lines").lines;
        assert_eq!(found.last().map(|found| found.line.seq), Some(10 * round + 9), "round {round}");
    }
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = Folder::new();
    drop(folder.open());
    let newer = Connection::open(folder.database()).expect("a database");
    newer.pragma_update(None, "user_version", 99).expect("a version");
    drop(newer);
    match folder.try_open() {
        Err(StoreError::NewerSchema { found: 99, known, .. }) => assert!(known < 99),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_database_loses_nothing_and_takes_the_same_batch_later() {
    let folder = Folder::new();
    block_on(async {
        let store = SqliteStore::open(folder.options().pages_max(200)).expect("a store");
        let mut owner = Owner::of_all(&store).await;
        let mut committed = 0;
        let refused = loop {
            let mut batch = owner.batch();
            for number in 0..500 {
                batch.inserts.push(owner.dispatched(PartitionId(1), TaskId(number), Timestamp(committed)));
            }
            let batch = Arc::new(batch);
            match store.commit(Arc::clone(&batch)).await {
                Ok(outcome) => assert_eq!(outcome, CommitOutcome::Committed),
                Err(error) => {
                    assert!(matches!(error, StoreError::Full { .. }) && error.is_passing(), "{error:?}");
                    break batch;
                }
            }
            committed += 1;
            assert!(committed < 100, "200 pages never became full");
        };
        assert!(matches!(store.commit(Arc::clone(&refused)).await, Err(StoreError::Full { .. })));
        let count = async || store.counts().await.expect("counts");
        assert_eq!(count().await, [(State::Dispatched, 500 * u64::try_from(committed).expect("a count"))]);
        store.set_pages_max(1_000_000).await.expect("room");
        assert_eq!(store.commit(refused).await.expect("an outcome"), CommitOutcome::Committed);
        assert_eq!(count().await, [(State::Dispatched, 500 * u64::try_from(committed + 1).expect("a count"))]);
    });
}

#[test]
fn another_programs_transaction_is_waited_out() {
    let folder = Folder::new();
    block_on(async {
        let store = folder.open();
        let mut owner = Owner::of_all(&store).await;
        let other = Connection::open(folder.database()).expect("a database");
        other.execute_batch("BEGIN EXCLUSIVE").expect("a transaction");
        let mut batch = owner.batch();
        batch.inserts.push(owner.dispatched(PartitionId(1), TaskId(1), START));
        let batch = Arc::new(batch);
        for _ in 0..2 {
            let error = store.commit(Arc::clone(&batch)).await.expect_err("a lock");
            assert!(matches!(error, StoreError::Busy { .. }) && error.is_passing(), "{error:?}");
        }
        let renewed = store.renew(ReplicaId("a".into()), vec![owner.renewal(PartitionId(1))], TTL, START).await;
        assert!(matches!(renewed, Err(StoreError::Busy { .. })));
        other.execute_batch("ROLLBACK").expect("an end");
        assert_eq!(store.commit(batch).await.expect("an outcome"), CommitOutcome::Committed);
    });
}

#[test]
fn a_database_that_is_locked_when_opened_is_busy() {
    let folder = Folder::new();
    drop(folder.open());
    let other = Connection::open(folder.database()).expect("a database");
    other.execute_batch("BEGIN EXCLUSIVE").expect("a transaction");
    assert!(matches!(folder.try_open(), Err(StoreError::Busy { .. })));
    other.execute_batch("ROLLBACK").expect("an end");
    folder.open();
}

#[test]
fn a_layout_of_no_partitions_is_refused() {
    let folder = Folder::new();
    let mut options = folder.options();
    options.partitions = 0;
    assert!(SqliteStore::open(options).is_err());
    assert!(!folder.database().exists());
}

#[test]
fn a_program_that_cannot_decode_a_version_in_force_loses_nothing_of_it() {
    let folder = Folder::new();
    let (bad, row) = block_on(async {
        let store = folder.open();
        let mut owner = Owner::of_all(&store).await;
        let (task, partition) = tasks_in_force(&store, &mut owner, &["bad", "good"]).await[0];
        let row = owner.dispatched(partition, task, START);
        let mut batch = owner.batch();
        batch.inserts.push(row.clone());
        commit(&store, batch).await;
        ((task, partition), row)
    });
    block_on(async {
        // A program that has never heard of a thing that the document speaks of.
        let decode = conformance::decode();
        let older: Decode = Arc::new(move |document| if document.contains("bad") { Err("what?".to_owned()) } else { decode(document) });
        let store = SqliteStore::open(Options::new(folder.database(), older)).expect("a store");
        let snapshot = store.snapshot(bad.1).await.expect("a snapshot");
        assert!(snapshot.tasks.iter().all(|record| record.task != bad.0) && snapshot.instances.is_empty());
        for task in ["bad", "good"] {
            store.trigger(name(task), "me".into(), None, vec![Default::default()], START).await.expect("a trigger");
        }
        store.cancel(row.id, "me".into(), None, START).await.expect("a cancellation");
        assert_eq!(entry_ids(&store).await.len(), 1, "the good task goes on, the bad one's entries stay");
    });
    block_on(async {
        let store = folder.open();
        let snapshot = store.snapshot(bad.1).await.expect("a snapshot");
        assert!(snapshot.tasks.iter().any(|record| record.task == bad.0));
        assert_eq!(snapshot.instances.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>(), [row]);
        assert_eq!(entry_ids(&store).await.len(), 3);
    });
}
