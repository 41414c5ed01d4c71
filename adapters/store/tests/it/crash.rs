//! `kill -9` at any moment: every batch that was answered is there, and none is half there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use punctual_core::ids::{PartitionId, TaskId};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::time::{Millis, Timestamp};
use punctual_store::SqliteStore;
use punctual_store::conformance::{Owner, START, all_partitions, commit, ended};

use rusqlite::Connection;

use crate::{Folder, block_on, options};

const DATABASE: &str = "PUNCTUAL_TEST_CRASH";
const P: PartitionId = PartitionId(1);
const ROWS: u64 = 100;
const LIVES: u64 = 30;

/// Numbered batches without end: batch n inserts its rows and ends those of the batch before. Each is said once it is answered.
async fn commit_without_end(store: SqliteStore) {
    let mut owner = Owner::take(&store, "a", all_partitions(), START).await;
    let mut before: Vec<InstanceRow> = Vec::new();
    loop {
        let number = owner.lease(P).commit_seq + 1;
        let rows: Vec<_> = (0..ROWS)
            .map(|task| {
                let fire_time = Timestamp(i64::try_from(number).expect("few"));
                owner.dispatched(P, TaskId(task), fire_time)
            })
            .collect();
        let mut batch = owner.batch_on(&[P]);
        batch.updates.extend(before.iter().map(|row| ended(row, State::Succeeded, START)));
        batch.inserts.clone_from(&rows);
        commit(&store, batch).await;
        before = rows;
        let mut out = std::io::stdout().lock();
        writeln!(out, "committed {number}").and_then(|()| out.flush()).expect("a reader");
    }
}

#[test]
fn a_killed_process_loses_no_answered_batch_and_leaves_none_half_done() {
    if let Ok(path) = std::env::var(DATABASE) {
        block_on(commit_without_end(SqliteStore::open(options(path)).expect("a store")));
        return;
    }
    let folder = Folder::new();
    let mut answered = 0;
    for life in 0..LIVES {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "crash::a_killed_process_loses_no_answered_batch_and_leaves_none_half_done", "--nocapture"])
            .env(DATABASE, folder.database())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut last = None;
        for line in lines {
            let line = line.expect("a line");
            let Some(number) = line.strip_prefix("committed ").and_then(|number| number.parse::<u64>().ok()) else { continue };
            // From the third answer on it may die at any moment: somewhere inside a commit, mostly.
            if last.is_none() {
                let pause = Duration::from_micros(life * life * 211 % 60_000);
                let id = child.id();
                std::thread::spawn(move || {
                    std::thread::sleep(pause);
                    Command::new("kill").args(["-9", &id.to_string()]).status().expect("kill");
                });
            }
            last = Some(number);
        }
        assert!(!child.wait().expect("an end").success());
        let last = last.expect("the child committed nothing");
        assert!(last > answered, "a new life goes on behind the last");
        answered = last;
        answered = check(&folder, answered);
    }
}

/// Looks at what is there; answers with the last batch.
fn check(folder: &Folder, answered: u64) -> u64 {
    let batches = block_on(async {
        let store = folder.open();
        let owner = Owner::take(&store, "check", vec![P], START.saturating_add(Millis(1))).await;
        let batches = owner.lease(P).commit_seq;
        assert!(batches == answered || batches == answered + 1, "{answered} batches were answered, {batches} are there");
        batches
    });
    let database = Connection::open(folder.database()).expect("the database");
    let read = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number").cast_unsigned();
    assert_eq!(read("SELECT count(*) FROM instances"), batches * ROWS);
    assert_eq!(read("SELECT sum(count) FROM counts"), batches * ROWS);
    let uneven = "SELECT count(*) FROM (SELECT 1 FROM instances GROUP BY fire_time HAVING count(*) <> 100 OR min(state) <> max(state))";
    assert_eq!(read(uneven), 0, "a batch is half there");
    let verdict = database.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(verdict.as_deref(), Ok("ok"));
    batches
}
