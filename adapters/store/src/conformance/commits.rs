//! Commits: all or nothing, and nothing unless all is as expected.

use std::sync::Arc;

use punctual_core::batch::{AttemptOutput, Batch, CommitOutcome, GroupSlot, Message, Output, SlotWrite, TaskWrite};
use punctual_core::definition::GroupLimits;
use punctual_core::ids::{Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::{Notice, Request};
use punctual_core::instance::{CallLink, Cause, InstanceRow, Links, Origin, Part, State, Transition};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::rate::RateLimit;
use punctual_core::scheduler::Firings;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, Store};

use super::{
    Factory, Owner, START, TTL, all_partitions, apply, apply_inbox, commit, definition, document, dump, ended, entry_ids, open, refused,
    tasks_in_force,
};

const P: PartitionId = PartitionId(2);
const T: TaskId = TaskId(1);

fn occurrence(task: TaskId, first: i64) -> Occurrence {
    Occurrence {
        task,
        version: Version(1),
        first: Timestamp(first),
        last: Timestamp(first + 9_000),
        count: 10,
        outcome: Outcome::Coalesced,
        instance: None,
        at: START,
    }
}

fn output(row: &InstanceRow, text: &str) -> AttemptOutput {
    let output = Output { bytes: text.as_bytes().to_vec(), dropped: 7 };
    AttemptOutput { instance: row.id, attempt: row.attempt, output }
}

/// A store with an owner and one instance dispatched.
async fn with_one<F: Factory>(factory: &F) -> (F::Store, Owner, InstanceRow) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let row = owner.dispatched(P, T, START);
    let mut batch = owner.batch_on(&[P]);
    batch.inserts.push(row.clone());
    commit(&store, batch).await;
    (store, owner, row)
}

/// A batch with something of everything.
async fn full_batch(store: &(impl Store + Catalog), owner: &mut Owner) -> Batch {
    let made = tasks_in_force(store, owner, &["one"]).await;
    let (task, partition) = made[0];
    let old = owner.dispatched(partition, task, START);
    let mut batch = owner.batch();
    batch.inserts.push(old.clone());
    commit(store, batch).await;
    store.trigger("one".into(), "me".into(), None, vec![Default::default()], START).await.expect("a trigger");
    let new = owner.dispatched(partition, task, Timestamp(START.0 + 1));
    let mut batch = owner.batch();
    batch.outputs.push(output(&old, "done"));
    batch.updates.push(ended(&old, State::Succeeded, START));
    batch.inserts.push(new);
    batch.tasks.push(TaskWrite {
        task,
        partition,
        version: Some(Version(1)),
        next_fire: Some(Timestamp(START.0 + 2)),
        fired_until: Some(START),
    });
    batch.occurrences.push(occurrence(task, 5));
    batch.applied = entry_ids(store).await;
    assert_eq!(batch.applied.len(), 1);
    batch
}

/// Instances, cursor, occurrences, output, and the entry gone.
pub async fn all_of_a_committed_batch_is_there<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let batch = full_batch(&store, &mut owner).await;
    commit(&store, batch.clone()).await;
    let (update, insert) = (&batch.updates[0].row, &batch.inserts[0]);
    let view = store.instance(update.id).await.expect("an answer").expect("the instance");
    assert_eq!((&view.row, &*view.task_name), (update, "one"));
    assert_eq!(store.instance(insert.id).await.expect("an answer").expect("the instance").row, *insert);
    assert_eq!(store.outputs(update.id).await.expect("outputs"), [(1, batch.outputs[0].output.clone())]);
    assert_eq!(store.occurrences("one".into(), 10).await.expect("occurrences"), batch.occurrences);
    assert_eq!(store.task("one".into()).await.expect("an answer").expect("the task").0.next_fire, batch.tasks[0].next_fire);
    assert_eq!(entry_ids(&store).await, []);
}

/// Whatever else is right about it.
pub async fn a_batch_under_an_old_epoch_is_refused_whole<F: Factory>(factory: &F) {
    let (store, mut old, row) = with_one(factory).await;
    Owner::take(&store, "b", all_partitions(), START.saturating_add(TTL)).await;
    let mut batch = old.batch_on(&[P]);
    batch.inserts.push(old.dispatched(P, T, Timestamp(1)));
    batch.updates.push(ended(&row, State::Succeeded, START));
    refused(&store, batch, "partition 2").await;
    // And commits so far are not counted on.
    let after = Owner::take(&store, "b", vec![P], START.saturating_add(TTL)).await;
    assert_eq!(after.lease(P).commit_seq, 1);
}

/// The leases that hold don't help, and are left as they are.
pub async fn a_batch_is_refused_if_one_of_its_leases_is_lost<F: Factory>(factory: &F) {
    let (store, mut old, _) = with_one(factory).await;
    Owner::take(&store, "b", vec![PartitionId(5)], START.saturating_add(TTL)).await;
    let mut batch = old.batch();
    batch.inserts.push(old.dispatched(P, T, Timestamp(1)));
    refused(&store, batch, "partition 5").await;
    let after = Owner::take(&store, "a", vec![P], START).await;
    assert_eq!(after.lease(P).commit_seq, 1);
}

/// New and old instances, tasks, outputs and entries alike.
pub async fn a_write_in_a_partition_not_relied_on_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    let other = PartitionId(6);
    store.cancel(row.id, "me".into(), None, START).await.expect("a cancellation");
    let entries = entry_ids(&store).await;
    assert_eq!(entries.len(), 1);
    let mut batch = owner.batch_on(&[other]);
    batch.inserts.push(owner.dispatched(P, T, Timestamp(1)));
    owner.refused(&store, batch, "partition 2").await;
    let mut batch = owner.batch_on(&[other]);
    batch.updates.push(ended(&row, State::Succeeded, START));
    owner.refused(&store, batch, "partition 2").await;
    let mut batch = owner.batch_on(&[other]);
    batch.tasks.push(TaskWrite { task: T, partition: P, version: Some(Version(1)), next_fire: None, fired_until: None });
    owner.refused(&store, batch, "partition 2").await;
    let mut batch = owner.batch_on(&[other]);
    batch.outputs.push(output(&row, "out"));
    owner.refused(&store, batch, "partition 2").await;
    let mut batch = owner.batch_on(&[other]);
    batch.applied = entries;
    owner.refused(&store, batch, "partition 2").await;
}

/// The first of two locks on one door: the fence is right.
pub async fn an_update_of_another_state_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    let mut batch = owner.batch();
    let mut update = ended(&row, State::Succeeded, START);
    update.expected_state = State::Running;
    batch.updates.push(update);
    refused(&store, batch, "not running").await;
}

/// Whatever else is kept of that state is there already, and must not be in the way of saying why.
pub async fn an_update_to_what_an_instance_is_already_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, mut row) = with_one(factory).await;
    for state in State::ALL {
        let update = ended(&row, state, START);
        row = update.row.clone();
        let mut batch = owner.batch();
        batch.updates.push(update);
        commit(&store, batch).await;
        let mut update = ended(&row, state, START);
        update.expected_state = if state == State::Running { State::Created } else { State::Running };
        let mut batch = owner.batch();
        batch.updates.push(update);
        owner.refused(&store, batch, "under fence").await;
    }
}

/// The second: the state is right.
pub async fn an_update_under_another_fence_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    let mut batch = owner.batch();
    let mut update = ended(&row, State::Succeeded, START);
    update.expected_fence = Fence(row.fence.0 - 1);
    batch.updates.push(update);
    refused(&store, batch, "fence").await;
}

/// An update never makes a row.
pub async fn an_update_of_what_is_not_there_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, mut row) = with_one(factory).await;
    row.id = InstanceId::new(P, 999);
    let mut batch = owner.batch();
    batch.updates.push(ended(&row, State::Succeeded, START));
    refused(&store, batch, "not dispatched").await;
}

/// Unique for ever are fire time, task, ordinal and run together; each alone may differ.
pub async fn a_firing_that_is_there_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    let mut batch = owner.batch();
    batch.inserts.push(owner.dispatched(P, T, row.fire_time));
    owner.refused(&store, batch, "there already").await;
    let mut batch = owner.batch();
    batch.updates.push(ended(&row, State::Succeeded, START));
    commit(&store, batch).await;
    let mut batch = owner.batch();
    batch.inserts.push(owner.dispatched(P, T, row.fire_time));
    owner.refused(&store, batch, "there already").await;

    let mut others = [(); 4].map(|()| owner.dispatched(P, T, row.fire_time));
    others[0].fire_time = Timestamp(START.0 + 1);
    others[1].task = TaskId(2);
    others[2].ordinal = 1;
    others[3].run = 2;
    let mut batch = owner.batch();
    batch.inserts.extend(others);
    commit(&store, batch).await;
}

/// Whatever it fires.
pub async fn an_id_that_is_there_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    let mut batch = owner.batch();
    batch.inserts.push(InstanceRow { id: row.id, ..owner.dispatched(P, T, Timestamp(1)) });
    refused(&store, batch, "there already").await;
}

/// As if each line were written when the next one comes: inserts, then updates, then entries.
pub async fn a_batch_finds_what_it_has_written_itself<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    let mut batch = owner.batch();
    let new = owner.dispatched(P, T, Timestamp(1));
    batch.inserts = vec![new.clone(), InstanceRow { id: new.id, ..owner.dispatched(P, T, Timestamp(2)) }];
    owner.refused(&store, batch, "there already").await;
    let mut batch = owner.batch();
    batch.inserts = vec![owner.dispatched(P, T, Timestamp(1)), owner.dispatched(P, T, Timestamp(1))];
    owner.refused(&store, batch, "there already").await;
    let mut batch = owner.batch();
    batch.updates = vec![ended(&row, State::Succeeded, START), ended(&row, State::Failed, START)];
    owner.refused(&store, batch, "not dispatched").await;
    store.cancel(row.id, "me".into(), None, START).await.expect("a cancellation");
    let entries = entry_ids(&store).await;
    let mut batch = owner.batch();
    batch.applied = vec![entries[0], entries[0]];
    owner.refused(&store, batch, "applied before").await;

    let mut batch = owner.batch();
    let (began, end) = (ended(&new, State::Running, START), State::Succeeded);
    batch.inserts = vec![new];
    batch.updates = vec![began.clone(), ended(&began.row, end, START)];
    commit(&store, batch.clone()).await;
    assert_eq!(store.instance(began.row.id).await.expect("an answer").expect("the instance").row, batch.updates[1].row);
}

/// An entry is applied once.
pub async fn an_inbox_entry_that_is_gone_is_refused<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    store.cancel(row.id, "me".into(), None, START).await.expect("a cancellation");
    let entries = entry_ids(&store).await;
    let mut batch = owner.batch();
    batch.applied.clone_from(&entries);
    commit(&store, batch).await;
    let mut batch = owner.batch();
    batch.inserts.push(owner.dispatched(P, T, Timestamp(1)));
    batch.applied = entries;
    owner.refused(&store, batch, "applied before").await;
    let mut batch = owner.batch();
    batch.applied = vec![InboxId(4_711)];
    owner.refused(&store, batch, "applied before").await;
}

/// Whatever of it was written before the one thing that was wrong.
pub async fn a_refused_batch_leaves_no_trace<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let good = full_batch(&store, &mut owner).await;
    let mut bad = good.clone();
    bad.applied.push(InboxId(4_711));
    refused(&store, bad, "applied before").await;
    // What was good about it still is.
    commit(&store, good).await;
}

/// Payload, key and the rest stay as inserted.
pub async fn an_update_changes_what_happens_to_an_instance_and_not_what_it_is<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let row = InstanceRow { payload: Some("{}".into()), key: Some("k".into()), ..owner.dispatched(P, T, START) };
    let mut batch = owner.batch();
    batch.inserts.push(row.clone());
    commit(&store, batch).await;
    let mut batch = owner.batch();
    let update = ended(&row, State::Failed, START);
    batch.updates.push(update.clone());
    commit(&store, batch).await;
    assert_eq!(store.instance(row.id).await.expect("an answer").expect("the instance").row, update.row);
}

/// Each column at its extremes.
pub async fn rows_come_back_as_they_were<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let mut rows = Vec::new();
    for (index, state) in State::ALL.into_iter().enumerate() {
        let mut row = owner.dispatched(P, T, Timestamp(START.0 - index as i64));
        row.state = state;
        row.origin = Origin::ALL[index % Origin::ALL.len()];
        rows.push(row);
    }
    rows[0].fire_time = Timestamp::MIN;
    rows[0].worker = None;
    rows[1].fire_time = Timestamp::MAX;
    rows[1].due_at = Some(Timestamp::MAX);
    rows[2].payload = Some("pay\u{0}load'; DROP TABLE instances; -- 每日".into());
    rows[2].key = Some(String::new().into());
    (rows[3].attempt, rows[3].failures, rows[3].losses, rows[3].run) = (u32::MAX, u32::MAX - 1, 0, u32::MAX);
    rows[4].version = Version(u32::MAX);
    rows[5].transitions = Cause::ALL
        .into_iter()
        .map(|cause| Transition {
            from: Some(State::Running),
            to: State::Retrying,
            cause,
            at: Timestamp(-1),
            attempt: 9,
            fence: Fence(cause as u64),
            worker: None,
            code: Some(i32::MIN),
            detail: Some("détail".into()),
        })
        .collect();
    let calls = [
        CallLink::Calls { task: "每日".into(), instance: None },
        CallLink::Calls { task: "b".into(), instance: Some(InstanceId(u64::MAX)) },
        CallLink::CalledBy { task: TaskId(u64::MAX) },
    ];
    for (row, call) in rows[6..].iter_mut().zip(calls) {
        row.links = Some(Box::new(Links { call: Some(Box::new(call)), ..Links::default() }));
    }
    let mut batch = owner.batch();
    batch.inserts.clone_from(&rows);
    commit(&store, batch).await;
    for row in rows {
        assert_eq!(store.instance(row.id).await.expect("an answer").expect("the instance").row, row);
    }
}

/// As long as they are not zero.
pub async fn counts_follow_the_states<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    assert_eq!(store.counts().await.expect("counts"), [(State::Dispatched, 1)]);
    let mut batch = owner.batch();
    batch.inserts.push(owner.dispatched(P, T, Timestamp(1)));
    batch.updates.push(ended(&row, State::Succeeded, START));
    commit(&store, batch).await;
    let mut counts = store.counts().await.expect("counts");
    counts.retain(|(_, count)| *count > 0);
    counts.sort();
    assert_eq!(counts, [(State::Dispatched, 1), (State::Succeeded, 1)]);
}

/// The items of a map are output of the firing, a page each; results are those of its parts, in their order.
pub async fn an_owner_reads_what_was_written_before_page_by_page<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let whole = owner.dispatched(P, T, START);
    let mut batch = owner.batch();
    batch.inserts.push(whole.clone());
    for (attempt, text) in [(1, "1\n2"), (2, "3")] {
        let output = Output { bytes: text.as_bytes().to_vec(), dropped: 0 };
        batch.outputs.push(AttemptOutput { instance: whole.id, attempt, output });
    }
    // Inserted in another order than theirs; the list and what reduces are no items.
    let parts = [Part::shard(2), Part::shard(0), Part::WHOLE.and_list(), Part::shard(1), Part::WHOLE.and_reduce()];
    let parts = parts.map(|part| InstanceRow { part, ..owner.dispatched(P, T, START) });
    batch.inserts.extend(parts.iter().cloned());
    // Another run of the same firing.
    batch.inserts.push(InstanceRow { part: Part::shard(0), run: 2, result: Some("no".into()), ..owner.dispatched(P, T, START) });
    commit(&store, batch).await;
    let mut batch = owner.batch();
    for row in &parts {
        let mut update = ended(row, State::Succeeded, START);
        update.row.result = row.part.shard_index().filter(|index| *index != 1).map(|index| format!("result {index}").into());
        batch.updates.push(update);
    }
    commit(&store, batch).await;
    let page = async |attempt| store.output(whole.id, attempt).await.expect("an answer").map(|output| output.bytes);
    assert_eq!(page(1).await.as_deref(), Some(&b"1\n2"[..]));
    assert_eq!((page(2).await.as_deref(), page(3).await), (Some(&b"3"[..]), None));
    let of = Firings { whole: whole.id, task: T, fire_time: START, ordinal: 0, run: 1 };
    let results = async |from: u32, limit| {
        let (from, until) = (Part::shard(from), Part::shard(3));
        let found = store.results(of, from, until, limit).await.expect("results");
        found.into_iter().map(|result| result.map(|text| text.to_string())).collect::<Vec<_>>()
    };
    let all = [Some("result 0".to_owned()), None, Some("result 2".to_owned())];
    assert_eq!(results(0, 10).await, all);
    assert_eq!((results(0, 2).await, results(2, 2).await, results(3, 2).await), (all[..2].to_vec(), all[2..].to_vec(), vec![]));
}

/// A worker that repeats its report brings nothing new, and no refusal either.
pub async fn an_output_that_is_written_again_takes_the_place_of_the_first<F: Factory>(factory: &F) {
    let (store, mut owner, row) = with_one(factory).await;
    for text in ["first", "second"] {
        let mut batch = owner.batch();
        batch.outputs.push(output(&row, text));
        commit(&store, batch).await;
    }
    assert_eq!(store.outputs(row.id).await.expect("outputs"), [(1, output(&row, "second").output)]);
}

/// An instance of an old version keeps it, tasks have the version in force, what nobody has applied is not there.
pub async fn a_snapshot_has_what_is_live_with_the_definition_it_runs_by<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let mut rows = Vec::new();
    for (index, state) in State::ALL.into_iter().enumerate() {
        rows.push(InstanceRow { state, ..owner.dispatched(partition, task, Timestamp(START.0 + index as i64)) });
    }
    let mut batch = owner.batch();
    batch.inserts.clone_from(&rows);
    commit(&store, batch).await;
    apply(&store, vec![document("one", "v2")], START).await;
    apply_inbox(&store, &mut owner, Some(Timestamp(77))).await;
    apply(&store, vec![document("one", "v3"), document("two", "v1")], START).await;

    let snapshot = store.snapshot(partition).await.expect("a snapshot");
    assert_eq!(snapshot.tasks.len(), 1);
    let record = &snapshot.tasks[0];
    assert_eq!((record.task, record.version, record.next_fire), (task, Version(2), Some(Timestamp(77))));
    assert_eq!(*record.definition, definition("one", "v2"));
    rows.retain(|row| !row.state.is_terminal());
    let live: Vec<_> = snapshot.instances.iter().map(|(row, _)| row.clone()).collect();
    assert_eq!(live, rows);
    assert!(snapshot.instances.iter().all(|(_, ran_by)| **ran_by == definition("one", "v1")));
    for other in all_partitions().into_iter().filter(|other| *other != partition) {
        let snapshot = store.snapshot(other).await.expect("a snapshot");
        assert!(snapshot.tasks.is_empty() && snapshot.instances.is_empty());
    }
}

/// Once its owner has applied the removal.
pub async fn a_removed_task_leaves_the_snapshot<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (_, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    apply(&store, vec![], START).await;
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").tasks.len(), 1);
    apply_inbox(&store, &mut owner, None).await;
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").tasks, []);
    // An empty batch is a commit like any other.
    let before = dump(&store).await;
    let outcome = store.commit(Arc::new(owner.batch())).await.expect("an outcome");
    assert_eq!((outcome, dump(&store).await), (CommitOutcome::Committed, before));
    let lease = Owner::take(&store, "a", vec![partition], START.saturating_add(Millis(1))).await.lease(partition);
    assert_eq!(lease.commit_seq, owner.lease(partition).commit_seq);
}

/// Not even where it has the epoch right: a failover may have lost who was granted it.
pub async fn a_batch_of_somebody_else_is_refused<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let row = owner.dispatched(P, T, START);
    let mut batch = owner.batch();
    batch.inserts.push(row);
    batch.replica = ReplicaId("b".into());
    refused(&store, batch.clone(), "is held by a").await;
    batch.replica = ReplicaId("a".into());
    commit(&store, batch).await;
}

/// An owner that counts otherwise than the store knows of other commits than the store does.
pub async fn a_batch_that_knows_of_too_many_or_too_few_commits_is_refused<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let first = owner.batch();
    commit(&store, first.clone()).await;
    let mut again = first;
    let row = owner.dispatched(P, T, START);
    again.inserts.push(row);
    refused(&store, again.clone(), "has 1 commits, not 0").await;
    again.leases.iter_mut().for_each(|lease| lease.commit_seq += 2);
    refused(&store, again.clone(), "has 1 commits, not 2").await;
    let mut none = again.clone();
    none.leases.iter_mut().for_each(|lease| lease.commit_seq = 0);
    refused(&store, none, "has 1 commits, not -1").await;
    again.leases.iter_mut().for_each(|lease| lease.commit_seq -= 1);
    commit(&store, again).await;
}

fn slot(instance: InstanceId, place: u64, is_granted: bool) -> GroupSlot {
    let limits = GroupLimits { max_running: Some(3), rate: Some(RateLimit { starts: 5, per: Millis(700) }) };
    GroupSlot { partition: P, group: "clé".into(), instance, task: T, place: InboxId(place), limits, is_granted }
}

fn put(slot: &GroupSlot) -> SlotWrite {
    SlotWrite { partition: slot.partition, instance: slot.instance, slot: Some(slot.clone()) }
}

/// Asked for, granted and given back; what is asked of others and answered comes through the inbox as it was.
pub async fn slots_of_groups_are_written_with_the_batch_and_read_with_their_partition<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let [one, two] = [7, 8].map(|number| InstanceId::new(PartitionId(5), number));
    let mut batch = owner.batch();
    batch.slots = vec![put(&slot(one, 1, false)), put(&slot(two, 2, false))];
    let notices = [
        Notice::GroupAsk { group: "clé".into(), instance: one, task: T, limits: slot(one, 1, false).limits },
        Notice::GroupGrant { task: T, instance: one },
        Notice::GroupRelease { group: "clé".into(), instance: two },
    ];
    let message = |notice: &Notice| Message { partition: PartitionId(5), from: P, at: START, by: "clé".into(), notice: notice.clone() };
    batch.messages = notices.iter().map(message).collect();
    commit(&store, batch).await;
    assert_eq!(store.snapshot(P).await.expect("a snapshot").slots, [slot(one, 1, false), slot(two, 2, false)]);
    assert_eq!(store.snapshot(PartitionId(5)).await.expect("a snapshot").slots, []);
    let page = store.read_inbox(vec![PartitionId(5)], InboxId(0), 10).await.expect("a page");
    let read: Vec<_> = page.entries.into_iter().map(|entry| entry.request).collect();
    assert_eq!(read, notices.map(Request::Notice));
    let mut batch = owner.batch();
    let gone = SlotWrite { partition: P, instance: two, slot: None };
    batch.slots = vec![put(&slot(one, 1, true)), gone.clone()];
    commit(&store, batch).await;
    assert_eq!(store.snapshot(P).await.expect("a snapshot").slots, [slot(one, 1, true)]);
    let mut batch = owner.batch();
    batch.slots = vec![gone];
    commit(&store, batch).await;
    assert_eq!(store.snapshot(P).await.expect("a snapshot").slots, [slot(one, 1, true)], "what is gone may go again");
}

/// The store looks up which task it is, also a removed one; one that never was is nobody's.
pub async fn whoever_calls_a_task_by_its_name_is_put_through<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    apply(&store, vec![document("clé", "v1"), document("gone", "v1")], START).await;
    apply(&store, vec![document("clé", "v1")], START).await;
    apply_inbox(&store, &mut owner, None).await;
    let id = async |name: &str| store.task(name.into()).await.expect("an answer").expect("the task").0.task;
    let (there, gone) = (id("clé").await, id("gone").await);
    let caller = InstanceId::new(P, 7);
    let called = |name: &str| Notice::Called { name: name.into(), task: None, caller, caller_task: T, hops: 3, payload: Some("p".into()) };
    let notices = [
        called("clé"),
        Notice::CallCancelled { name: "gone".into(), task: None, caller, is_killed: true },
        called("never"),
        Notice::CallEnded { task: T, caller, instance: Some(caller), state: State::DeadLettered, result: None, detail: Some("why".into()) },
    ];
    let mut batch = owner.batch();
    let message = |notice: &Notice| Message { partition: PartitionId(5), from: P, at: START, by: "clé".into(), notice: notice.clone() };
    batch.messages = notices.iter().map(message).collect();
    commit(&store, batch).await;
    let page = store.read_inbox(vec![PartitionId(5)], InboxId(0), 10).await.expect("a page");
    let read: Vec<_> = page.entries.into_iter().map(|entry| entry.request).collect();
    let found = [Some(there), Some(gone), None, None];
    assert_eq!(read, notices.into_iter().zip(found).map(|(notice, task)| Request::Notice(notice.for_task(task))).collect::<Vec<_>>());
}

/// Nothing of the batch is there.
pub async fn a_slot_of_a_partition_not_relied_on_is_refused<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let mut batch = owner.batch_on(&[PartitionId(1)]);
    batch.slots = vec![put(&slot(InstanceId::new(PartitionId(1), 7), 1, false))];
    owner.refused(&store, batch, "partition 2").await;
    assert_eq!(store.snapshot(P).await.expect("a snapshot").slots, []);
}
