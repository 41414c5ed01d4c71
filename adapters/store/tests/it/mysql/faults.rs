//! What a server and a network can do to a commit: whatever is answered must be what is in the database afterwards.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual_core::batch::{Batch, CommitOutcome};
use punctual_core::ids::{InboxId, PartitionId, TaskId};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Store, StoreError};
use punctual_store::MySqlStore;
use punctual_store::conformance::{Owner, START, TTL, all_partitions, commit, document, ended};
use punctual_testbed::MariaDb;
use tokio::runtime::Builder;

use super::{block_on, database, options, server};

const P: PartitionId = PartitionId(2);
const T: TaskId = TaskId(1);

/// What was answered to a batch that inserted this row.
#[derive(Debug)]
enum Answer {
    Committed,
    NotApplied,
    Unknown,
}

fn answer(outcome: Result<CommitOutcome, StoreError>) -> Answer {
    match outcome {
        Ok(CommitOutcome::Committed) => Answer::Committed,
        Ok(CommitOutcome::Unknown { .. }) => Answer::Unknown,
        Ok(CommitOutcome::Refused { reason }) => panic!("refused: {reason}"),
        Err(error) => {
            assert!(error.is_passing(), "{error}");
            Answer::NotApplied
        }
    }
}

/// Commits one row after another until told to stop, each as an owner would: after a doubt the lease is taken anew.
async fn commits(store: &MySqlStore, name: &str, partition: PartitionId, stop: &AtomicBool) -> Vec<(InstanceRow, Answer)> {
    let mut answers = Vec::new();
    let mut owner = None;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(owning) = &mut owner else {
            match Owner::try_take(store, name, vec![partition], START).await {
                Ok(taken) => owner = Some(taken),
                Err(error) => assert!(error.is_passing(), "{error}"),
            }
            continue;
        };
        number += 1;
        let row = owning.dispatched(partition, T, Timestamp(START.0 + number));
        let row = InstanceRow { ordinal: u64::from(partition.0) + 1, ..row };
        let mut batch = owning.batch();
        batch.inserts.push(row.clone());
        let answered = answer(store.commit(Arc::new(batch)).await);
        if !matches!(answered, Answer::Committed) {
            owner = None;
        }
        answers.push((row, answered));
    }
    answers
}

/// Compares what was answered with what is there.
async fn judge(store: &MySqlStore, answers: &[(InstanceRow, Answer)]) {
    for (row, answer) in answers {
        let found = loop {
            match store.instance(row.id).await {
                Ok(found) => break found,
                // The last connections that were killed.
                Err(error) => assert!(error.is_passing(), "{error}"),
            }
        };
        // An id that was never written is given out again.
        let is_there = found.is_some_and(|view| view.row.fire_time == row.fire_time);
        match answer {
            Answer::Committed => assert!(is_there, "committed, and not there: {row:?}"),
            Answer::NotApplied => assert!(!is_there, "surely not applied, and there: {row:?}"),
            Answer::Unknown => {}
        }
    }
}

#[test]
fn connections_that_are_killed_leave_no_false_answer() {
    let url = database();
    let name = url.rsplit('/').next().expect("a name").to_owned();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(MySqlStore::open(options(&url)).await.expect("a store"));
        let stop = Arc::new(AtomicBool::new(false));
        let owners = (0..3).map(|number| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move { commits(&store, &format!("r{number}"), PartitionId(number), &stop).await })
        });
        let owners: Vec<_> = owners.collect();
        let killer = tokio::task::spawn_blocking(move || {
            for _ in 0..60 {
                let sql = format!("SELECT id FROM information_schema.processlist WHERE db = '{name}' ORDER BY RAND() LIMIT 1;");
                let victim = server().run(&sql).expect("a list");
                if let Ok(victim) = victim.trim().parse::<u64>() {
                    // It may have gone by itself.
                    let _ = server().run(&format!("KILL {victim};"));
                }
            }
        });
        killer.await.expect("the killer");
        stop.store(true, Ordering::Relaxed);
        let (mut committed, mut doubts) = (0, 0);
        for owner in owners {
            let answers = owner.await.expect("an owner");
            committed += answers.iter().filter(|(_, answer)| matches!(answer, Answer::Committed)).count();
            doubts += answers.iter().filter(|(_, answer)| !matches!(answer, Answer::Committed)).count();
            judge(&store, &answers).await;
        }
        assert!(committed > 50 && doubts > 5, "{committed} committed, {doubts} not");
    });
}

#[test]
fn a_server_that_dies_leaves_no_false_answer() {
    let mut server = MariaDb::start().expect("a server");
    let url = server.create("dies").expect("a database");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut all = Vec::new();
    for round in 0..3 {
        let store = Arc::new(runtime.block_on(MySqlStore::open(options(&url))).expect("a store"));
        let stop = Arc::new(AtomicBool::new(false));
        let owners = (0..2).map(|number| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            runtime.spawn(async move { commits(&store, &format!("r{number}"), PartitionId(round * 2 + number), &stop).await })
        });
        let owners: Vec<_> = owners.collect();
        // Until it is at work.
        let goal = format!("SELECT COUNT(*) < {} FROM dies.instances;", (round + 1) * 100);
        while server.run(&goal).expect("a count").trim() == "1" {}
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for owner in owners {
            all.extend(runtime.block_on(owner).expect("an owner"));
        }
        server.start_again().expect("it starts");
        let store = runtime.block_on(MySqlStore::open(options(&url))).expect("a store");
        runtime.block_on(judge(&store, &all));
    }
    assert!(all.iter().any(|(_, answer)| !matches!(answer, Answer::Committed)));
}

#[test]
fn who_was_taken_over_from_is_refused() {
    block_on(async {
        let url = database();
        let [one, two] =
            [MySqlStore::open(options(&url)).await, MySqlStore::open(options(&url)).await].map(|store| store.expect("a store"));
        let mut old = Owner::take(&one, "a", all_partitions(), START).await;
        let row = old.dispatched(P, T, START);
        let mut batch = old.batch();
        batch.inserts.push(row.clone());
        commit(&one, batch).await;
        let mut new = Owner::take(&two, "b", vec![P], START.saturating_add(TTL)).await;
        let mut late = old.batch_on(&[P]);
        late.updates.push(ended(&row, State::Failed, START));
        let refused = one.commit(Arc::new(late)).await.expect("an outcome");
        assert!(matches!(&refused, CommitOutcome::Refused { reason } if reason.contains("epoch")), "{refused:?}");
        let mut batch = new.batch();
        batch.updates.push(ended(&row, State::Succeeded, START));
        commit(&two, batch).await;
        assert_eq!(one.instance(row.id).await.expect("an answer").expect("the instance").row.state, State::Succeeded);
    });
}

/// A transaction of somebody else's that holds rows, in the way of whoever comes.
pub(super) struct InTheWay(std::process::Child);

impl InTheWay {
    pub(super) fn of(url: &str, statement: &str) -> Self {
        use std::process::{Command, Stdio};
        let (port, database) = url.rsplit_once('@').and_then(|(_, place)| place.split_once('/')).expect("an address");
        let port = port.rsplit(':').next().expect("a port");
        let client = Command::new("mariadb")
            .args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port", port, "--user=punctual", "--password=private"])
            .args(["--batch", "--skip-column-names", "--unbuffered", database])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a client");
        let mut in_the_way = InTheWay(client);
        in_the_way.go_on(&format!("START TRANSACTION; {statement}"));
        in_the_way
    }

    /// Carries further statements out.
    pub(super) fn go_on(&mut self, statements: &str) {
        let input = self.0.stdin.as_mut().expect("piped");
        writeln!(input, "{statements}; SELECT 'there';").expect("a statement");
        let lines = BufReader::new(self.0.stdout.as_mut().expect("piped")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "there"));
    }
}

impl Drop for InTheWay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_renewal_does_not_wait_for_a_commit_and_a_commit_says_what_it_waits_for() {
    block_on(async {
        let url = database();
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        let mut owner = Owner::of_all(&store).await;
        let renewal = owner.renewal(P);
        let in_the_way = InTheWay::of(&url, "SELECT * FROM fences FOR UPDATE");
        let began = std::time::Instant::now();
        let renewed = store.renew(punctual_core::ids::ReplicaId("a".into()), vec![renewal], TTL, START).await;
        assert_eq!(renewed.expect("an answer"), []);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let row = owner.dispatched(P, T, START);
        let mut batch = owner.batch();
        batch.inserts.push(row.clone());
        let batch = Arc::new(batch);
        let busy = store.commit(Arc::clone(&batch)).await;
        assert!(matches!(&busy, Err(error @ StoreError::Busy { .. }) if error.is_passing()), "{busy:?}");
        assert!(store.instance(row.id).await.expect("an answer").is_none());
        drop(in_the_way);
        // The very same batch goes through once nobody is in the way.
        let outcome = loop {
            match store.commit(Arc::clone(&batch)).await {
                Ok(outcome) => break outcome,
                Err(error) => assert!(matches!(error, StoreError::Busy { .. }), "{error}"),
            }
        };
        assert_eq!(outcome, CommitOutcome::Committed);
    });
}

/// Whoever reads on behind the last entry that was seen must not miss one that was numbered before and became visible after.
#[test]
fn entries_become_visible_in_the_order_of_their_numbers() {
    let url = database();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(MySqlStore::open(options(&url)).await.expect("a store"));
        let names: Vec<_> = (0..4).map(|number| format!("task-{number}")).collect();
        punctual_store::conformance::apply(&*store, names.iter().map(|name| document(name, "v1")).collect(), START).await;
        let writers: Vec<_> = names
            .iter()
            .map(|name| {
                let (store, name) = (Arc::clone(&store), Arc::<str>::from(name.as_str()));
                tokio::spawn(async move {
                    for _ in 0..25 {
                        store.trigger(Arc::clone(&name), "me".into(), None, vec![Default::default()], START).await.expect("a trigger");
                    }
                })
            })
            .collect();
        let (mut after, mut seen) = (InboxId(0), 0);
        while seen < 4 + 100 {
            // Asked before: what is written behind the reading counts as well.
            let is_all_written = writers.iter().all(tokio::task::JoinHandle::is_finished);
            let page = store.read_inbox(all_partitions(), after, 7).await.expect("a page");
            seen += page.entries.len();
            after = page.entries.last().map_or(after, |entry| entry.id);
            if is_all_written && page.entries.is_empty() {
                break;
            }
        }
        assert_eq!(seen, 104);
    });
}

#[test]
fn a_batch_as_large_as_they_come_is_one_commit() {
    block_on(async {
        let store = MySqlStore::open(options(database())).await.expect("a store");
        let mut owner = Owner::of_all(&store).await;
        let payload: Arc<str> = "p".repeat(60_000).into();
        let rows: Vec<_> = (0..punctual_core::limits::BATCH_ROWS_MAX)
            .map(|number| InstanceRow {
                payload: (number % 100 == 0).then(|| Arc::clone(&payload)),
                ..owner.dispatched(P, T, Timestamp(START.0 + number as i64))
            })
            .collect();
        let mut batch: Batch = owner.batch();
        batch.inserts.clone_from(&rows);
        commit(&store, batch).await;
        let mut batch = owner.batch();
        batch.updates = rows.iter().map(|row| ended(row, State::Succeeded, START)).collect();
        commit(&store, batch).await;
        assert_eq!(store.counts().await.expect("counts"), [(State::Succeeded, rows.len() as u64)]);
        let views = store.partition_views().await.expect("partitions");
        assert_eq!((views[2].live, views[2].commit_seq, views.len()), (0, 2, 8));
    });
}

/// Leases keep owners apart: what one locks, no other one comes to.
#[test]
fn owners_of_different_partitions_are_never_in_each_others_way() {
    let url = database();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(MySqlStore::open(options(&url)).await.expect("a store"));
        let owners: Vec<_> = (0..2)
            .map(|number| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let own: Vec<_> = (number * 4..number * 4 + 4).map(PartitionId).collect();
                    let mut owner = Owner::take(&*store, &format!("r{number}"), own.clone(), START).await;
                    let mut before: Vec<InstanceRow> = Vec::new();
                    for round in 0..20 {
                        let fire_time = |index: usize| Timestamp(START.0 + round * 10 + index as i64 / 50);
                        let task = |index: usize| TaskId(u64::from(number) + 2 * (index as u64 % 100));
                        let rows: Vec<_> = (0..300).map(|index| owner.dispatched(own[index % 4], task(index), fire_time(index))).collect();
                        let rows: Vec<_> = rows.into_iter().zip(1..).map(|(row, ordinal)| InstanceRow { ordinal, ..row }).collect();
                        let mut batch = owner.batch();
                        batch.updates = before.iter().map(|row| ended(row, State::Failed, START)).collect();
                        batch.inserts.clone_from(&rows);
                        before = rows;
                        if let Err(error) = store.commit(Arc::new(batch)).await {
                            panic!("{error}\n{}", server().run("SHOW ENGINE INNODB STATUS\\G").expect("a status"));
                        }
                    }
                })
            })
            .collect();
        for owner in owners {
            owner.await.expect("an owner");
        }
    });
}
