//! Whole life cycles a second through the store on MariaDB, next to a bare loop that writes the same columns of the same rows: instances
//! inserted as dispatched, then running, then succeeded, in batches of 500, each batch one durable commit; or with running folded away.
//! `cargo run --release -p punctual-store --example mysql_throughput -- [seconds] [batch] [url]`
//!
//! Without an address it starts a private MariaDB.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::batch::{Batch, CommitOutcome, InstanceUpdate, LeaseCheck};
use punctual_core::ids::{Fence, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition, WorkerRef};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{LeaseAnswer, Store};
use punctual_store::{MySqlOptions, MySqlStore};
use punctual_testbed::MariaDb;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

const PARTITIONS: u16 = 64;

fn transition(from: Option<State>, to: State, cause: Cause, at: i64, row: (u64, Option<&WorkerId>)) -> Transition {
    let (attempt, fence) = if row.1.is_some() { (1, Fence(row.0)) } else { (0, Fence(0)) };
    Transition { from, to, cause, at: Timestamp(at), attempt, fence, worker: row.1.cloned(), code: None, detail: None }
}

fn dispatched(number: u64, partition: u16, start: i64) -> InstanceRow {
    let worker = WorkerId("worker-1".into());
    let at = start + (number / 50) as i64;
    InstanceRow {
        id: InstanceId::new(PartitionId(partition), number),
        task: TaskId(number % 1_000 * u64::from(PARTITIONS) + u64::from(partition)),
        version: Version(1),
        fire_time: Timestamp(at),
        ordinal: 0,
        run: 1,
        part: Part::WHOLE,
        links: None,
        result: None,
        origin: Origin::Schedule,
        state: State::Dispatched,
        fence: Fence(number),
        attempt: 1,
        failures: 0,
        losses: 0,
        worker: Some(WorkerRef { id: worker.clone(), life: WorkerLife(7) }),
        due_at: None,
        payload: None,
        key: None,
        transitions: vec![
            transition(None, State::Waiting, Cause::Fired, at, (number, None)),
            transition(Some(State::Waiting), State::Created, Cause::SlotFree, at, (number, None)),
            transition(Some(State::Created), State::Dispatched, Cause::Assigned, at, (number, Some(&worker))),
        ],
    }
}

fn next(row: &InstanceRow, state: State, cause: Cause) -> InstanceUpdate {
    let mut next = row.clone();
    let worker = row.worker.as_ref().map(|worker| &worker.id);
    next.transitions.push(transition(Some(row.state), state, cause, row.fire_time.0 + 3, (row.fence.0, worker)));
    next.state = state;
    if state == State::Succeeded {
        next.worker = None;
    }
    InstanceUpdate { expected_state: row.state, expected_fence: row.fence, row: next }
}

/// Instances of the two batches before, on their way to their end.
struct Lives {
    number: u64,
    partitions: std::ops::Range<u16>,
    start: i64,
    folds: bool,
    dispatched: Vec<InstanceRow>,
    running: Vec<InstanceRow>,
}

impl Lives {
    fn new(partitions: std::ops::Range<u16>, start: i64, folds: bool) -> Self {
        Lives { number: 0, partitions, start, folds, dispatched: Vec::new(), running: Vec::new() }
    }

    fn batch(&mut self, size: u64) -> (Vec<InstanceRow>, Vec<InstanceUpdate>) {
        let count = u64::from(self.partitions.end - self.partitions.start);
        let inserts: Vec<_> = (self.number + 1..=self.number + size)
            .map(|number| dispatched(number, self.partitions.start + (number % count) as u16, self.start))
            .collect();
        self.number += size;
        let before = std::mem::replace(&mut self.dispatched, inserts.clone());
        if self.folds {
            return (inserts, before.iter().map(|row| next(row, State::Succeeded, Cause::Finished)).collect());
        }
        let mut updates: Vec<_> = self.running.iter().map(|row| next(row, State::Succeeded, Cause::Finished)).collect();
        let started: Vec<_> = before.iter().map(|row| next(row, State::Running, Cause::Started)).collect();
        self.running = started.iter().map(|update| update.row.clone()).collect();
        updates.extend(started);
        (inserts, updates)
    }
}

async fn through_the_store(url: String, part: u16, parts: u16, size: u64, until: Instant, folds: bool) -> u64 {
    let mut options = MySqlOptions::new(url, Arc::new(|_: &str| Err("no documents here".to_owned())));
    options.partitions = PARTITIONS;
    let store = MySqlStore::open(options).await.expect("a store");
    let share = PARTITIONS / parts;
    let partitions = part * share..(part + 1) * share;
    let replica = ReplicaId(format!("bench-{part}").into());
    let all: Vec<_> = partitions.clone().map(PartitionId).collect();
    let answers = store.acquire(replica.clone(), all, usize::MAX, Millis::from_secs(3_600), Timestamp(0)).await.expect("leases");
    let mut leases: Vec<LeaseCheck> = answers
        .into_iter()
        .map(|answer| match answer {
            LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } => LeaseCheck { partition, epoch, commit_seq, sequence },
            LeaseAnswer::Held { partition, .. } => panic!("partition {partition} is held"),
        })
        .collect();
    let start = 1_793_500_000_000 + if folds { 1_000_000_000 } else { 0 };
    let mut lives = Lives::new(partitions, start, folds);
    lives.number = leases.iter().map(|lease| lease.sequence).max().unwrap_or(0);
    let mut ended = 0;
    while Instant::now() < until {
        let (inserts, updates) = lives.batch(size);
        ended += updates.iter().filter(|update| update.row.state == State::Succeeded).count() as u64;
        for lease in &mut leases {
            lease.commit_seq += 1;
            lease.sequence = lives.number;
        }
        let batch = Batch { replica: replica.clone(), leases: leases.clone(), inserts, updates, ..Batch::default() };
        let batch = Arc::new(batch);
        loop {
            match store.commit(Arc::clone(&batch)).await {
                Ok(outcome) => break assert_eq!(outcome, CommitOutcome::Committed),
                Err(error) => println!("tried again: {error}"),
            }
        }
    }
    store.close().await;
    ended
}

/// The same rows without checks, leases or lists of what is live: one statement an insert, one an update, one COMMIT.
async fn raw(url: String, part: u16, parts: u16, size: u64, until: Instant, folds: bool) -> u64 {
    let mut connection = MySqlConnection::connect(&url).await.expect("a connection");
    let share = PARTITIONS / parts;
    let mut lives = Lives::new(part * share..(part + 1) * share, 1_793_500_000_000, folds);
    let mut ended = 0;
    while Instant::now() < until {
        let (inserts, updates) = lives.batch(size);
        ended += updates.iter().filter(|update| update.row.state == State::Succeeded).count() as u64;
        let mut sql = String::from("START TRANSACTION; INSERT INTO raw VALUES ");
        put(&mut sql, inserts.iter());
        if !updates.is_empty() {
            sql.push_str("; INSERT INTO raw VALUES ");
            put(&mut sql, updates.iter().map(|update| &update.row));
            sql.push_str(" ON DUPLICATE KEY UPDATE state = VALUES(state), worker = VALUES(worker), transitions = VALUES(transitions)");
        }
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("a write");
        sqlx::raw_sql("COMMIT").execute(&mut connection).await.expect("a commit");
    }
    ended
}

fn put<'a>(sql: &mut String, rows: impl Iterator<Item = &'a InstanceRow>) {
    for (index, row) in rows.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let worker = row.worker.as_ref().map_or("NULL", |_| "'worker-1'");
        let _ = write!(
            sql,
            "{comma}({},{},0,1,{},1,0,{},{},1,0,0,{worker},7,NULL,NULL,'{:0>width$}',NULL)",
            row.fire_time.0,
            row.task.0,
            row.id.0,
            row.state as u8,
            row.fence.0,
            row.id.0,
            width = row.transitions.len() * 10
        );
    }
}

const RAW: &str = "CREATE TABLE raw (fire_time BIGINT, task BIGINT UNSIGNED, ordinal BIGINT UNSIGNED, run INT UNSIGNED, id BIGINT UNSIGNED,
    version INT UNSIGNED, origin TINYINT UNSIGNED, state TINYINT UNSIGNED, fence BIGINT UNSIGNED, attempt INT UNSIGNED, failures INT UNSIGNED,
    losses INT UNSIGNED, worker VARBINARY(1024), worker_life BIGINT UNSIGNED, due_at BIGINT, submission_key VARBINARY(1024),
    transitions LONGBLOB, payload LONGBLOB, PRIMARY KEY (fire_time, task, ordinal, run), KEY (id), KEY (task, fire_time)) ENGINE = InnoDB";

fn main() {
    let argument = |index: usize, default: u64| std::env::args().nth(index).map_or(default, |text| text.parse().expect("a number"));
    let (seconds, size) = (argument(1, 10), argument(2, 500));
    let server = std::env::args().nth(3).is_none().then(|| MariaDb::start().expect("a server"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    for connections in [1, 2] {
        for folds in [true, false] {
            for is_raw in [true, false] {
                let name = format!("bench_{connections}_{folds}_{is_raw}");
                let url = match &server {
                    Some(server) => server.create(&name).expect("a database"),
                    None => std::env::args().nth(3).expect("an address"),
                };
                let until = Instant::now() + Duration::from_secs(seconds);
                let began = Instant::now();
                let ended: u64 = runtime.block_on(async {
                    if is_raw {
                        let mut connection = MySqlConnection::connect(&url).await.expect("a connection");
                        sqlx::raw_sql("DROP TABLE IF EXISTS raw").execute(&mut connection).await.expect("no table");
                        sqlx::raw_sql(RAW).execute(&mut connection).await.expect("a table");
                    }
                    let tasks: Vec<_> = (0..connections)
                        .map(|part| match is_raw {
                            true => tokio::spawn(raw(url.clone(), part, connections, size, until, folds)),
                            false => tokio::spawn(through_the_store(url.clone(), part, connections, size, until, folds)),
                        })
                        .collect();
                    let mut ended = 0;
                    for task in tasks {
                        ended += task.await.expect("a run");
                    }
                    ended
                });
                println!(
                    "{connections} connection(s), {}, {}: {:.0} life cycles/s",
                    if folds { "running folded away" } else { "dispatched, running, succeeded" },
                    if is_raw { "bare loop" } else { "the store" },
                    ended as f64 / began.elapsed().as_secs_f64()
                );
            }
        }
    }
}
