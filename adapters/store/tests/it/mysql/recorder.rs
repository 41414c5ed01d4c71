//! What a database records of what it carries out: exactly what was done, in an order that is right where it matters.

use std::sync::Arc;

use punctual_core::batch::{AttemptOutput, Batch, Output, TaskWrite};
use punctual_core::ids::{CommitId, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, partition_of};
use punctual_core::inbox::Submission;
use punctual_core::instance::{InstanceRow, State};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Store, StoreError, Submitted};
use punctual_store::conformance::{
    self, Owner, PARTITIONS, START, TTL, all_partitions, apply, broken_document, commit, definition, document, ended, refused,
};
use punctual_store::recorder::{self, Logged, Seen};
use punctual_store::{MySqlOptions, MySqlStore};
use punctual_testbed::MariaDb;

use super::faults::InTheWay;
use super::{block_on, database, options};

const P: PartitionId = PartitionId(2);

async fn recording(url: &str) -> MySqlStore {
    let store = MySqlStore::open(options(url)).await.expect("a store");
    recorder::install(url).await.expect("it records");
    store
}

async fn read(url: &str) -> Vec<Logged> {
    recorder::read(url, conformance::decode()).await.expect("what was recorded")
}

async fn seen(url: &str) -> Vec<Seen> {
    read(url).await.into_iter().map(|logged| logged.seen).collect()
}

fn committed(number: u64, batch: &Batch) -> Seen {
    Seen::Committed(Arc::new(Batch { id: CommitId(number), ..batch.clone() }))
}

fn at(millis: u64) -> Timestamp {
    START.saturating_add(Millis(millis))
}

fn granted(owner: &str, partition: PartitionId, epoch: u64, until: Timestamp) -> Seen {
    Seen::LeaseGranted { partition, owner: ReplicaId(owner.into()), epoch: punctual_core::ids::Epoch(epoch), until }
}

/// Does one of each, and answers with what should be recorded.
async fn one_of_each(store: &MySqlStore) -> Vec<Seen> {
    let mut expected = Vec::new();
    let mut owner = Owner::of_all(store).await;
    expected.extend(all_partitions().into_iter().map(|partition| granted("a", partition, 1, at(TTL.0))));

    // Documents: two that are made, then one that is changed and one that is removed.
    let partition = partition_of("one", PARTITIONS);
    let defined = |entry, task, version, name: &str, payload: Option<&str>| Seen::Defined {
        entry: InboxId(entry),
        task: TaskId(task),
        partition: partition_of(name, PARTITIONS),
        version: Version(version),
        definition: payload.map(|payload| Arc::new(definition(name, payload))),
    };
    apply(store, vec![document("one", "v1"), document("two", "v1")], START).await;
    apply(store, vec![document("one", "v2")], START).await;
    expected.push(defined(1, 1, 1, "one", Some("v1")));
    expected.push(defined(2, 2, 1, "two", Some("v1")));
    expected.push(defined(3, 1, 2, "one", Some("v2")));
    expected.push(defined(4, 2, 2, "two", None));

    // Triggers: one counts, its repetition does not.
    let submissions = vec![Submission::default(); 3];
    for _ in 0..2 {
        store.trigger("one".into(), "me".into(), Some("key".into()), submissions.clone(), START).await.expect("an answer");
    }
    store.trigger("one".into(), "me".into(), None, vec![Submission::default()], START).await.expect("an answer");
    let submitted = |entry, submissions, key: Option<&str>| Seen::Submitted {
        entry: InboxId(entry),
        task: TaskId(1),
        submissions,
        key: key.map(Into::into),
    };
    expected.extend([submitted(5, 3, Some("key")), submitted(6, 1, None)]);

    // A commit of everything that can be in one.
    let rich =
        InstanceRow { payload: Some("p".repeat(70_000).into()), key: Some("k".into()), ..owner.dispatched(partition, TaskId(1), at(1)) };
    let poor = owner.dispatched(partition, TaskId(1), at(2));
    let occurrence = |first: Timestamp, instance| Occurrence {
        task: TaskId(1),
        version: Version(2),
        first,
        last: Timestamp(first.0 + 5),
        count: 6,
        outcome: Outcome::Coalesced,
        instance,
        at: START,
    };
    let output = |attempt, bytes: &[u8]| AttemptOutput { instance: rich.id, attempt, output: Output { bytes: bytes.to_vec(), dropped: 7 } };
    let task = |task, version, next_fire| TaskWrite {
        task: TaskId(task),
        partition: partition_of(if task == 1 { "one" } else { "two" }, PARTITIONS),
        version,
        next_fire,
        fired_until: Some(at(2)),
    };
    let mut batch = owner.batch();
    batch.inserts = vec![rich.clone(), poor.clone()];
    batch.tasks = vec![task(1, Some(Version(2)), Some(at(3))), task(2, None, None)];
    batch.occurrences = vec![occurrence(at(5), Some(poor.id)), occurrence(at(4), None)];
    batch.outputs = vec![output(1, b"\0\xff"), output(2, b"")];
    batch.applied = [1, 2, 3, 4].map(InboxId).into();
    commit(store, batch.clone()).await;
    expected.push(committed(1, &batch));

    // Two that only say how far they come: nothing but their statements tells them apart.
    for number in 2..4 {
        let partition = PartitionId(number);
        let batch = owner.batch_on(&[partition]);
        commit(store, batch.clone()).await;
        expected.push(committed(u64::from(number), &batch));
    }

    // Changes: one instance twice, one to what it is already, a cursor that leaves the watermark alone, an output once more.
    let running = InstanceRow { state: State::Running, ..rich.clone() };
    let first = punctual_core::batch::InstanceUpdate { expected_state: rich.state, expected_fence: rich.fence, row: running.clone() };
    let same = punctual_core::batch::InstanceUpdate { expected_state: poor.state, expected_fence: poor.fence, row: poor.clone() };
    let mut batch = owner.batch_on(&[partition]);
    batch.updates = vec![first, same, ended(&running, State::Succeeded, at(9))];
    batch.tasks = vec![TaskWrite { fired_until: None, ..task(1, Some(Version(2)), Some(at(4))) }, task(1, Some(Version(2)), Some(at(4)))];
    batch.outputs = vec![output(2, b"more")];
    commit(store, batch.clone()).await;
    batch.tasks[0].fired_until = Some(at(2));
    expected.push(committed(4, &batch));

    // What is refused or fails leaves nothing, whatever was written of it before.
    let mut bad = owner.batch_on(&[partition]);
    bad.inserts.push(owner.dispatched(partition, TaskId(1), at(10)));
    bad.updates.push(ended(&rich, State::Failed, at(10)));
    owner.refused(store, bad, "is not dispatched").await;
    refused(store, Batch { replica: ReplicaId("b".into()), ..owner.clone().batch() }, "partition 0").await;

    // A cancellation, a renewal, a lease that is given up and one that is taken over.
    let cancelled = store.cancel(poor.id, "me".into(), None, START).await.expect("an answer");
    assert_eq!(cancelled, Submitted::Accepted { entry: InboxId(7) });
    expected.push(Seen::CancelSubmitted { entry: InboxId(7), instance: poor.id });
    let (me, epoch) = (ReplicaId("a".into()), owner.lease(P).epoch);
    assert_eq!(store.renew(me.clone(), vec![owner.renewal(P)], TTL, at(100)).await.expect("an answer"), []);
    expected.push(Seen::LeaseRenewed { partition: P, epoch, until: at(100 + TTL.0) });
    store.release(me.clone(), vec![(P, epoch)], true).await.expect("an answer");
    store.release(me, vec![(P, epoch)], true).await.expect("an answer");
    expected.push(Seen::LeaseReleased { partition: P, epoch });
    let mut other = Owner::take(store, "b", vec![P], at(200)).await;
    expected.push(granted("b", P, 2, at(200 + TTL.0)));
    let batch = other.batch();
    commit(store, batch.clone()).await;
    expected.push(committed(5, &batch));
    expected
}

#[test]
fn exactly_what_was_carried_out_is_recorded() {
    block_on(async {
        let url = database();
        let before = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_micros();
        let store = recording(&url).await;
        recorder::install(&url).await.expect("a second time changes nothing");
        let expected = one_of_each(&store).await;
        assert_eq!(seen(&url).await, expected);
        let logged = read(&url).await;
        let after = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_micros();
        let times: Vec<_> = logged.iter().map(|logged| u128::from(logged.at_micros.unsigned_abs())).collect();
        assert!(times.is_sorted() && times[0] >= before - 1_000 && times[times.len() - 1] <= after + 1_000, "{before} {times:?} {after}");
        let (live, inbox) = recorder::left(&url).await.expect("what is left");
        let poor = InstanceId::new(partition_of("one", PARTITIONS), 3);
        assert_eq!((live, inbox), (vec![poor], [5, 6, 7].map(InboxId).to_vec()));
    });
}

#[test]
fn what_fails_in_the_middle_leaves_no_record() {
    block_on(async {
        let url = database();
        let store = recording(&url).await;
        let mut owner = Owner::take(&store, "a", vec![P], START).await;
        let in_the_way = InTheWay::of(&url, "INSERT INTO task_states VALUES (2, 1, 1, NULL, NULL)");
        let row = owner.dispatched(P, TaskId(1), START);
        let mut batch = owner.batch();
        batch.inserts.push(row);
        batch.tasks.push(TaskWrite { task: TaskId(1), partition: P, version: None, next_fire: None, fired_until: None });
        let batch = Arc::new(batch);
        let busy = store.commit(Arc::clone(&batch)).await;
        assert!(matches!(busy, Err(StoreError::Busy { .. })), "{busy:?}");
        drop(in_the_way);
        assert_eq!(seen(&url).await, [granted("a", P, 1, at(TTL.0))]);
        while store.commit(Arc::clone(&batch)).await.is_err() {}
        assert_eq!(seen(&url).await, [granted("a", P, 1, at(TTL.0)), committed(1, &batch)]);
    });
}

/// The grant changes leases before it waits for the commit, and comes behind it all the same.
#[test]
fn what_waits_for_a_commit_is_recorded_behind_it() {
    block_on(async {
        let url = database();
        let store = recording(&url).await;
        let mut owner = Owner::take(&store, "a", vec![P], START).await;
        let mut commit = InTheWay::of(&url, "UPDATE fences SET commit_seq = 1 WHERE `partition` = 2");
        let waiting = tokio::spawn({
            let (store, asked) = (Arc::new(store), vec![PartitionId(1), P, PartitionId(3)]);
            async move { store.acquire(ReplicaId("b".into()), asked, 3, TTL, at(TTL.0)).await }
        });
        let name = url.rsplit('/').next().expect("a name");
        let is_waiting = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{name}' AND info LIKE 'UPDATE fences%' AND time_ms > 50"
        );
        while super::server().run(&is_waiting).expect("a count").trim() == "0" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        commit.go_on("INSERT INTO task_states VALUES (2, 1, 1, NULL, NULL)");
        commit.go_on("COMMIT");
        waiting.await.expect("a task").expect("leases");
        let task = TaskWrite { task: TaskId(1), partition: P, version: Some(Version(1)), next_fire: None, fired_until: None };
        let batch = Batch { tasks: vec![task], ..owner.batch() };
        let until = at(2 * TTL.0);
        let expected = [
            granted("a", P, 1, at(TTL.0)),
            granted("b", PartitionId(1), 1, until),
            committed(1, &batch),
            granted("b", P, 2, until),
            granted("b", PartitionId(3), 1, until),
        ];
        assert_eq!(seen(&url).await, expected);
    });
}

/// Statements of two transactions are recorded one between the other's; each batch is whole all the same.
#[test]
fn commits_at_once_are_told_apart() {
    let url = database();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(recording(&url).await);
        let owners: Vec<_> = (0..3)
            .map(|number| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let own = PartitionId(number);
                    let mut owner = Owner::take(&*store, &format!("r{number}"), vec![own], START).await;
                    let mut batches = Vec::new();
                    let mut before: Vec<InstanceRow> = Vec::new();
                    for round in 0..20 {
                        let task = TaskId(u64::from(number));
                        let rows: Vec<_> = (0..40).map(|index| owner.dispatched(own, task, at(round * 100 + index))).collect();
                        let mut batch = owner.batch();
                        batch.updates = before.iter().map(|row| ended(row, State::Failed, START)).collect();
                        batch.inserts.clone_from(&rows);
                        before = rows;
                        commit(&*store, batch.clone()).await;
                        batches.push(batch);
                    }
                    batches
                })
            })
            .collect();
        let mut expected = Vec::new();
        for owner in owners {
            expected.push(owner.await.expect("an owner"));
        }
        let mut found = vec![Vec::new(); 3];
        for seen in seen(&url).await {
            if let Seen::Committed(batch) = seen {
                found[usize::from(batch.leases[0].partition.0)].push(Batch { id: CommitId(0), ..(*batch).clone() });
            }
        }
        assert_eq!(found, expected);
        let name = url.rsplit('/').next().expect("a name");
        let changes = super::server()
            .run(&format!(
                "SELECT COUNT(*) FROM (SELECT kind, connection, LAG(connection) OVER (ORDER BY number) AS before_it FROM {name}.recorded) r
                 WHERE connection <> before_it AND kind <> 1"
            ))
            .expect("a count");
        assert_ne!(changes.trim(), "0", "they were never under way at once");
    });
}

/// A commit on so many partitions that their fences are several statements.
#[test]
fn a_commit_of_many_partitions_is_one() {
    block_on(async {
        let url = database();
        let mut options = MySqlOptions::new(&url, conformance::decode()).callers_clock();
        options.partitions = 2_500;
        let store = MySqlStore::open(options).await.expect("a store");
        recorder::install(&url).await.expect("it records");
        let all: Vec<_> = (0..2_500).map(PartitionId).collect();
        let mut owner = Owner::take(&store, "a", all, START).await;
        let mut expected = Vec::new();
        for number in 1..3 {
            let batch = owner.batch();
            commit(&store, batch.clone()).await;
            expected.push(committed(number, &batch));
        }
        assert_eq!(seen(&url).await.split_off(2_500), expected);
    });
}

#[test]
fn a_definition_that_cannot_be_decoded_is_named() {
    block_on(async {
        let url = database();
        let store = recording(&url).await;
        apply(&store, vec![broken_document("bad")], START).await;
        let error = recorder::read(&url, conformance::decode()).await.expect_err("it is broken");
        assert!(error.to_string().contains("version 1 of task 1 can't be decoded: it is broken"), "{error}");
    });
}

#[test]
fn a_replica_that_is_promoted_has_the_same_records_and_goes_on() {
    let (primary, replica) = MariaDb::start_pair().expect("a pair");
    let url = primary.create("pair").expect("a database");
    block_on(async {
        let store = recording(&url).await;
        let mut expected = one_of_each(&store).await;
        let logged = read(&url).await;
        let position = primary.run("SELECT @@gtid_binlog_pos;").expect("a position");
        let reached = replica.run(&format!("SELECT MASTER_GTID_WAIT('{}', 30);", position.trim())).expect("an answer");
        assert_eq!(reached.trim(), "0");
        replica.promote().expect("a promotion");
        drop(primary);
        let url = replica.url("pair");
        assert_eq!(read(&url).await, logged);
        let store = MySqlStore::open(options(&url)).await.expect("a store");
        let mut owner = Owner::take(&store, "c", vec![P], at(200 + TTL.0)).await;
        let batch = owner.batch();
        commit(&store, batch.clone()).await;
        expected.extend([granted("c", P, 3, at(200 + 2 * TTL.0)), committed(6, &batch)]);
        assert_eq!(seen(&url).await, expected);
    });
}
