//! Whole life cycles a second through the store alone: instances inserted as dispatched, then updated to succeeded, each batch one durable
//! commit. `cargo run --release -p punctual-store --example raw_throughput -- [batch] [seconds] [tasks]`

use std::sync::Arc;
use std::time::Instant;

use punctual_core::batch::{Batch, InstanceUpdate, LeaseCheck};
use punctual_core::ids::{Fence, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition, WorkerRef};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{LeaseAnswer, Store};
use punctual_store::{Options, SqliteStore};

const PARTITIONS: u16 = 64;
const START: i64 = 1_790_000_000_000;

fn transition(from: Option<State>, to: State, cause: Cause, at: i64, fence: u64, worker: Option<&WorkerId>) -> Transition {
    let (attempt, fence) = if worker.is_some() { (1, Fence(fence)) } else { (0, Fence(0)) };
    Transition { from, to, cause, at: Timestamp(at), attempt, fence, worker: worker.cloned(), code: None, detail: None }
}

fn dispatched(number: u64, tasks: u64, worker: &WorkerId) -> InstanceRow {
    let task = number % tasks;
    let partition = PartitionId((task % u64::from(PARTITIONS)) as u16);
    let at = START + (number / 50) as i64;
    InstanceRow {
        id: InstanceId::new(partition, number),
        task: TaskId(task),
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
            transition(None, State::Waiting, Cause::Fired, at, number, None),
            transition(Some(State::Waiting), State::Created, Cause::SlotFree, at, number, None),
            transition(Some(State::Created), State::Dispatched, Cause::Assigned, at, number, Some(worker)),
        ],
    }
}

fn succeeded(mut row: InstanceRow) -> InstanceUpdate {
    let worker = row.worker.take().map(|worker| worker.id);
    let (at, fence) = (row.fire_time.0 + 3, row.fence);
    row.transitions.push(transition(Some(State::Dispatched), State::Running, Cause::Started, at, fence.0, worker.as_ref()));
    row.transitions.push(transition(Some(State::Running), State::Succeeded, Cause::Finished, at + 2, fence.0, worker.as_ref()));
    row.state = State::Succeeded;
    InstanceUpdate { expected_state: State::Dispatched, expected_fence: fence, row }
}

fn main() {
    let argument = |index: usize, default: u64| std::env::args().nth(index).map_or(default, |text| text.parse().expect("a number"));
    // Other programs on the machine slow the clock on the wall; processor time tells what the work itself takes.
    let (size, seconds, tasks) = (argument(1, 500), argument(2, 10), argument(3, 1_000));
    let folder = tempfile::tempdir().expect("a folder");
    let decode = Arc::new(|_: &str| Err("no documents here".to_owned()));
    let store = SqliteStore::open(Options::new(folder.path().join("raw.db"), decode)).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(measure(&store, size, seconds, tasks));
}

async fn measure(store: &SqliteStore, size: u64, seconds: u64, tasks: u64) {
    let worker = WorkerId("worker-1".into());
    let all = (0..PARTITIONS).map(PartitionId).collect();
    let answers = store.acquire(ReplicaId("bench".into()), all, usize::MAX, Millis::from_secs(10), Timestamp(START)).await.expect("leases");
    let mut leases: Vec<LeaseCheck> = answers
        .into_iter()
        .map(|answer| match answer {
            LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } => LeaseCheck { partition, epoch, commit_seq, sequence },
            LeaseAnswer::Held { partition, .. } => panic!("partition {partition} is held"),
        })
        .collect();
    let (mut number, mut last) = (0_u64, Vec::new());
    let mut commits_us = Vec::new();
    let mut reported = (Instant::now(), 0);
    let started = Instant::now();
    let processor_before = processor_us();
    let mut preparing = std::time::Duration::ZERO;
    while started.elapsed().as_secs() < seconds {
        let prepared = Instant::now();
        let inserts: Vec<_> = (number + 1..=number + size).map(|number| dispatched(number, tasks, &worker)).collect();
        let updates = last.drain(..).map(succeeded).collect();
        last.clone_from(&inserts);
        number += size;
        for lease in &mut leases {
            lease.commit_seq += 1;
            lease.sequence = number;
        }
        let batch = Arc::new(Batch { replica: ReplicaId("bench".into()), leases: leases.clone(), inserts, updates, ..Batch::default() });
        preparing += prepared.elapsed();
        let asked = Instant::now();
        let outcome = store.commit(batch).await.expect("a commit");
        assert_eq!(outcome, punctual_core::batch::CommitOutcome::Committed);
        commits_us.push(asked.elapsed().as_micros());
        if reported.0.elapsed().as_secs() >= 2 {
            println!("{:>9} rows, {:>7.0} life cycles/s", number, (number - reported.1) as f64 / reported.0.elapsed().as_secs_f64());
            reported = (Instant::now(), number);
        }
    }
    let elapsed = started.elapsed();
    let processor = processor_us() - processor_before;
    let storing = elapsed - preparing;
    commits_us.sort_unstable();
    let at = |share: f64| commits_us[((commits_us.len() - 1) as f64 * share) as usize] as f64 / 1_000.0;
    println!(
        "{} life cycles in batches of {size}: {:.0}/s, {:.0}/s without making the batches; commit p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms; \
         {:.1} us of processor time each, all threads together",
        number - size,
        (number - size) as f64 / elapsed.as_secs_f64(),
        (number - size) as f64 / storing.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
        processor / number as f64
    );
}

/// User and system time of this process so far, where Linux tells: in hundredths of a second.
fn processor_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10_000.0
}
