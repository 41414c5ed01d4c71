//! The inbox: in order, once, and for everyone.

use punctual_core::ids::{InboxId, InstanceId, PartitionId, Version, partition_of};
use punctual_core::inbox::{Request, Rerun, Submission};
use punctual_core::instance::{InstanceRow, Links, Origin, Part, ShardsAgain, State};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Actor, Catalog, Rerunning, Store, Submitted};

use super::{
    Factory, Owner, PARTITIONS, START, all_partitions, apply, apply_inbox, broken_document, commit, definition, document, ended, entry_ids,
    open, tasks_in_force,
};

async fn trigger(store: &impl Catalog, task: &str, key: Option<&str>, payload: &str) -> Submitted {
    let submission = Submission { payload: Some(payload.into()), ..Submission::default() };
    store.trigger(task.into(), "me".into(), key.map(Into::into), vec![submission], START).await.expect("an answer")
}

fn accepted(submitted: Submitted) -> InboxId {
    match submitted {
        Submitted::Accepted { entry } => entry,
        other => panic!("{other:?}"),
    }
}

/// Reading takes nothing away; applying does.
pub async fn entries_come_in_order_up_to_the_limit_and_stay_until_applied<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let names = ["a", "b", "c", "d", "e"];
    apply(&store, names.iter().map(|name| document(name, "v1")).collect(), START).await;
    for _ in 0..2 {
        let page = store.read_inbox(all_partitions(), InboxId(0), 3).await.expect("a page");
        assert_eq!((page.entries.len(), page.more), (3, true));
        assert!(page.entries.is_sorted_by(|a, b| a.id < b.id));
        assert!(page.entries.iter().all(|entry| entry.at == START && &*entry.by == "tester"));
    }
    let page = store.read_inbox(all_partitions(), InboxId(0), 5).await.expect("a page");
    assert_eq!((page.entries.len(), page.more), (5, false), "exactly as many as asked for are no sign of more");
    let rest = store.read_inbox(all_partitions(), page.entries[1].id, 2).await.expect("a page");
    assert_eq!((rest.entries.as_slice(), rest.more), (&page.entries[2..4], true));
    let mut batch = owner.batch();
    batch.applied = vec![page.entries[0].id, page.entries[3].id];
    commit(&store, batch).await;
    let left: Vec<_> = [1, 2, 4].map(|index| page.entries[index].id).into();
    assert_eq!(entry_ids(&store).await, left);
    // New ones come behind all that ever were.
    assert!(accepted(trigger(&store, "a", None, "p").await) > page.entries[4].id);
    apply_inbox(&store, &mut owner, None).await;
    assert!(accepted(trigger(&store, "a", None, "p").await) > page.entries[4].id);
}

/// Each task has its partition.
pub async fn only_entries_of_the_asked_partitions_come<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let names: Vec<String> = (0..40).map(|number| format!("task-{number}")).collect();
    apply(&store, names.iter().map(|name| document(name, "v1")).collect(), START).await;
    let asked = vec![PartitionId(1), PartitionId(6)];
    let expected = names.iter().filter(|name| asked.contains(&partition_of(name, PARTITIONS))).count();
    assert!(expected > 2, "the names reach the partitions");
    let page = store.read_inbox(asked.clone(), InboxId(0), 100).await.expect("a page");
    assert_eq!((page.entries.len(), page.more), (expected, false));
    assert!(page.entries.iter().all(|entry| asked.contains(&entry.partition)));
    assert!(store.read_inbox(asked, InboxId(0), expected - 1).await.expect("a page").more);
    assert_eq!(store.read_inbox(vec![], InboxId(0), 100).await.expect("a page"), Default::default());
}

/// Definitions, removals, submissions with all they may have, cancellations.
pub async fn requests_come_back_as_they_were<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let row = owner.dispatched(partition, task, START);
    let mut batch = owner.batch();
    batch.inserts.push(row.clone());
    commit(&store, batch).await;

    let submissions = vec![
        Submission::default(),
        Submission { key: Some("clé".into()), payload: Some("{\"a\":1}".into()), delay: Some(Millis(u64::MAX)) },
    ];
    let at = Timestamp(START.0 + 5);
    apply(&store, vec![document("one", "v2")], START).await;
    store.trigger("one".into(), "me".into(), Some("k".into()), submissions.clone(), at).await.expect("an answer");
    store.cancel(row.id, "you".into(), Some("no more".into()), at).await.expect("an answer");
    store.cancel(row.id, "you".into(), None, at).await.expect("an answer");
    apply(&store, vec![], START).await;

    let page = store.read_inbox(all_partitions(), InboxId(0), 100).await.expect("a page");
    let expected = [
        Request::DefinitionChanged { task, version: Version(2), definition: Some(definition("one", "v2").into()), fired_until: None },
        Request::Trigger { task, submissions },
        Request::Cancel { instance: row.id, reason: Some("no more".into()) },
        Request::Cancel { instance: row.id, reason: None },
        Request::DefinitionChanged { task, version: Version(3), definition: None, fired_until: None },
    ];
    let requests: Vec<_> = page.entries.iter().map(|entry| entry.request.clone()).collect();
    assert_eq!(requests, expected);
    assert!(page.entries.iter().all(|entry| entry.partition == partition));
    assert_eq!((page.entries[1].at, &*page.entries[1].by, &*page.entries[2].by), (at, "me", "you"));
}

/// A task that is removed and made again is not fired again for what was fired before.
pub async fn the_watermark_outlives_the_task<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let fired = Some(Timestamp(START.0 + 9));
    apply(&store, vec![document("one", "v1")], START).await;
    apply_inbox(&store, &mut owner, fired).await;
    apply(&store, vec![], START).await;
    apply_inbox(&store, &mut owner, fired).await;
    let partition = partition_of("one", PARTITIONS);
    assert_eq!(store.snapshot(partition).await.expect("a snapshot").tasks, []);

    apply(&store, vec![document("one", "v1")], START).await;
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let Request::DefinitionChanged { fired_until, .. } = &page.entries[0].request else { panic!("{page:?}") };
    assert_eq!(*fired_until, fired);
}

/// The watermark says what was dealt with: an owner's record that has none takes nothing of that back.
pub async fn a_watermark_that_is_not_written_stays<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let fired = Some(Timestamp(START.0 + 9));
    apply(&store, vec![document("one", "v1")], START).await;
    apply_inbox(&store, &mut owner, fired).await;
    apply(&store, vec![document("one", "v2")], START).await;
    apply_inbox(&store, &mut owner, None).await;
    let snapshot = store.snapshot(partition_of("one", PARTITIONS)).await.expect("a snapshot");
    let record = &snapshot.tasks[0];
    assert_eq!((record.version, record.next_fire, record.fired_until), (Version(2), None, fired));
}

/// Its entries stay, in their order; those of others go on.
pub async fn a_document_that_cannot_be_decoded_stops_nobody_else<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["bad", "good"]).await[0];
    let row = owner.dispatched(partition, task, START);
    let mut batch = owner.batch();
    batch.inserts.push(row.clone());
    commit(&store, batch).await;

    apply(&store, vec![broken_document("bad"), document("good", "v2")], START).await;
    trigger(&store, "bad", None, "p").await;
    store.cancel(row.id, "me".into(), None, START).await.expect("an answer");
    let good = accepted(trigger(&store, "good", None, "p").await);
    for _ in 0..2 {
        let page = store.read_inbox(all_partitions(), InboxId(0), 2).await.expect("a page");
        assert_eq!((page.entries.len(), page.more), (2, false), "what is set aside takes no room in a page");
        assert_eq!(page.entries[1].id, good);
    }
    // The version in force is still the one before: the task and its instance are in the snapshot.
    let snapshot = store.snapshot(partition).await.expect("a snapshot");
    assert!(snapshot.tasks.iter().any(|record| record.task == task && record.version == Version(1)));
    let mut batch = owner.batch();
    batch.updates.push(ended(&row, State::Succeeded, START));
    commit(&store, batch).await;
}

/// However often they are read, and wherever the reading begins: what one reading gives, the next does too.
pub async fn entries_behind_one_that_cannot_be_decoded_wait<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    tasks_in_force(&store, &mut owner, &["bad"]).await;
    let first = accepted(trigger(&store, "bad", None, "p").await);
    apply(&store, vec![broken_document("bad")], START).await;
    let behind = accepted(trigger(&store, "bad", None, "p").await);
    apply(&store, vec![document("bad", "v3")], START).await;
    apply(&store, vec![broken_document("bad")], START).await;
    trigger(&store, "bad", None, "p").await;
    for _ in 0..2 {
        assert_eq!(entry_ids(&store).await, [first]);
        for after in [first, behind] {
            assert_eq!(store.read_inbox(all_partitions(), after, 10).await.expect("a page"), Default::default());
        }
    }
    apply(&store, vec![document("bad", "v5")], START).await;
    assert_eq!(entry_ids(&store).await.len(), 7);
}

/// Also where its owner has not come across the instance: whoever knows what it is can end it in the right way.
pub async fn a_cancellation_of_what_cannot_be_decoded_waits<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["bad"]).await[0];
    apply(&store, vec![broken_document("bad")], START).await;
    apply(&store, vec![document("bad", "v3")], START).await;
    apply_inbox(&store, &mut owner, None).await;
    let [strange, known] = [2, 3].map(|version| {
        let fire_time = Timestamp(START.0 + i64::from(version));
        InstanceRow { version: Version(version), ..owner.dispatched(partition, task, fire_time) }
    });
    let mut batch = owner.batch();
    batch.inserts = vec![strange.clone(), known.clone()];
    commit(&store, batch).await;
    store.cancel(strange.id, "me".into(), None, START).await.expect("an answer");
    let entry = accepted(store.cancel(known.id, "me".into(), None, START).await.expect("an answer"));
    assert_eq!(entry_ids(&store).await, [entry]);
}

/// It stands in for the version before, so nothing is left behind.
pub async fn an_edit_helps_a_document_that_cannot_be_decoded<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    apply(&store, vec![broken_document("bad")], START).await;
    trigger(&store, "bad", None, "p").await;
    assert_eq!(entry_ids(&store).await, []);
    apply(&store, vec![document("bad", "v2")], START).await;
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    assert_eq!(page.entries.len(), 3);
    for index in [0, 2] {
        let Request::DefinitionChanged { version, definition: made, .. } = &page.entries[index].request else { panic!("{page:?}") };
        assert_eq!((*version, made.as_deref()), (Version(2), Some(&definition("bad", "v2"))));
    }
    apply_inbox(&store, &mut owner, None).await;
    assert_eq!(entry_ids(&store).await, []);
}

/// Also when the task is gone by then.
pub async fn a_key_makes_a_trigger_repeatable<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    tasks_in_force(&store, &mut owner, &["one"]).await;
    let entry = accepted(trigger(&store, "one", Some("k"), "p").await);
    assert_eq!(trigger(&store, "one", Some("k"), "p").await, Submitted::Repeated { entry });
    assert_eq!(entry_ids(&store).await, [entry]);
    apply_inbox(&store, &mut owner, None).await;
    apply(&store, vec![], START).await;
    assert_eq!(trigger(&store, "one", Some("k"), "p").await, Submitted::Repeated { entry });
}

/// Another payload, or another task.
pub async fn a_key_that_was_used_for_something_else_is_taken<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let entry = accepted(trigger(&store, "one", Some("k"), "p").await);
    assert_eq!(trigger(&store, "one", Some("k"), "q").await, Submitted::KeyTaken);
    assert_eq!(trigger(&store, "two", Some("k"), "p").await, Submitted::KeyTaken);
    assert_eq!(entry_ids(&store).await, [entry]);
}

/// As nobody said that they are the same.
pub async fn without_a_key_each_trigger_counts<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    tasks_in_force(&store, &mut owner, &["one"]).await;
    let first = accepted(trigger(&store, "one", None, "p").await);
    let second = accepted(trigger(&store, "one", None, "p").await);
    assert_eq!(entry_ids(&store).await, [first, second]);
}

/// Nothing is written for it.
pub async fn what_is_not_there_is_neither_triggered_nor_cancelled<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    tasks_in_force(&store, &mut owner, &["gone"]).await;
    apply(&store, vec![], START).await;
    apply_inbox(&store, &mut owner, None).await;
    assert_eq!(trigger(&store, "gone", Some("k"), "p").await, Submitted::NoSuchTask);
    assert_eq!(trigger(&store, "never", Some("k"), "p").await, Submitted::NoSuchTask);
    let nowhere = punctual_core::ids::InstanceId::new(PartitionId(1), 1);
    assert_eq!(store.cancel(nowhere, "me".into(), None, START).await.expect("an answer"), Submitted::NoSuchInstance);
    assert_eq!(entry_ids(&store).await, []);
}

async fn rerun(store: &impl Catalog, id: InstanceId, by: &str) -> Submitted {
    store.rerun(id, Actor { why: Some("once more".into()), ..by.into() }, Rerunning::Unsuccessful, START).await.expect("an answer")
}

/// A task in force with an instance that has ended, which a trigger has made.
async fn with_ended<S: Store + Catalog>(store: &S, owner: &mut Owner) -> InstanceRow {
    let (task, partition) = tasks_in_force(store, owner, &["one"]).await[0];
    let links = Links { cause: Some(InstanceId::new(PartitionId(3), 9)), hops: 4, ..Links::default() };
    let row = InstanceRow {
        ordinal: 5 << 10,
        origin: Origin::Chain,
        payload: Some("{}".into()),
        key: Some("clé".into()),
        links: Some(Box::new(links)),
        ..owner.dispatched(partition, task, START)
    };
    let mut batch = owner.batch();
    batch.inserts.push(row.clone());
    commit(store, batch).await;
    let mut batch = owner.batch();
    batch.updates.push(ended(&row, State::Failed, START));
    commit(store, batch).await;
    row
}

/// It remembers nothing of what has ended.
pub async fn a_rerun_has_what_its_owner_needs<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let row = with_ended(&store, &mut owner).await;
    let id = accepted(rerun(&store, row.id, "me").await);
    let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
    let [entry] = &page.entries[..] else { panic!("{page:?}") };
    assert_eq!((entry.id, entry.partition, entry.at, &*entry.by), (id, row.id.partition(), START, "me"));
    let InstanceRow { id: instance, task, fire_time, ordinal, run, payload, key, .. } = row;
    let of = Rerun {
        instance,
        task,
        fire_time,
        ordinal,
        run,
        hops: 4,
        payload,
        key,
        reason: Some("once more".into()),
        shards: None,
        from: None,
    };
    assert_eq!(entry.request, Request::Rerun { of: Box::new(of) });
}

/// A double click, and the same question long after.
pub async fn an_instance_has_one_rerun_however_often_it_is_asked_for<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let row = with_ended(&store, &mut owner).await;
    let entry = accepted(rerun(&store, row.id, "me").await);
    assert_eq!(rerun(&store, row.id, "you").await, Submitted::Repeated { entry });
    assert_eq!(store.rerun(row.id, "you".into(), Rerunning::All, START).await.expect("an answer"), Submitted::Repeated { entry });
    assert_eq!(entry_ids(&store).await, [entry]);
    apply_inbox(&store, &mut owner, None).await;
    assert_eq!(rerun(&store, row.id, "me").await, Submitted::Repeated { entry });
    assert_eq!(entry_ids(&store).await, []);
}

/// By the numbers and keys that they had, and all of it where that is asked for or nothing else is left.
pub async fn of_what_was_divided_only_what_has_not_succeeded_runs_again<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    for (ordinal, which, states, expected) in [
        (1 << 10, Rerunning::Unsuccessful, [State::Succeeded, State::Failed, State::Cancelled], Some(vec![1, 2])),
        (2 << 10, Rerunning::All, [State::Succeeded, State::Failed, State::Cancelled], None),
        (3 << 10, Rerunning::Unsuccessful, [State::Succeeded; 3], None),
    ] {
        let shards = Links { shards: 3, ..Links::default() };
        let whole = InstanceRow { ordinal, links: Some(Box::new(shards)), ..owner.dispatched(partition, task, START) };
        let mut batch = owner.batch();
        batch.inserts.push(whole.clone());
        let mut parts = Vec::new();
        for index in 0..3 {
            let links = Links {
                parent: Some(whole.id),
                shards: 3,
                shard_key: Some(format!("w{index}").into()),
                is_for_worker: true,
                ..Links::default()
            };
            let part = InstanceRow {
                ordinal: whole.ordinal,
                part: Part::shard(index),
                links: Some(Box::new(links)),
                ..owner.dispatched(partition, task, START)
            };
            batch.inserts.push(part.clone());
            parts.push(part);
        }
        commit(&store, batch).await;
        let mut batch = owner.batch();
        batch.updates = parts.iter().zip(states).map(|(part, state)| ended(part, state, START)).collect();
        batch.updates.push(ended(&whole, State::Failed, START));
        commit(&store, batch).await;
        accepted(store.rerun(whole.id, "me".into(), which.clone(), START).await.expect("an answer"));
        let page = store.read_inbox(all_partitions(), InboxId(0), 10).await.expect("a page");
        let Some(entry) = page.entries.last() else { panic!("{page:?}") };
        let Request::Rerun { of } = &entry.request else { panic!("{entry:?}") };
        let again = expected.map(|indices| ShardsAgain {
            count: 3,
            are_for_workers: true,
            shards: indices.into_iter().map(|index| (index, Some(format!("w{index}").into()))).collect(),
        });
        assert_eq!(of.shards.as_deref(), again.as_ref(), "{which:?}, {states:?}");
        // What is asked for once more is known; what would run other shards is not what runs.
        let same = store.rerun(whole.id, "you".into(), which.clone(), START).await.expect("an answer");
        assert_eq!(same, Submitted::Repeated { entry: entry.id });
        let other = if which == Rerunning::All { Rerunning::Unsuccessful } else { Rerunning::All };
        let is_other = states.contains(&State::Failed);
        let answer = store.rerun(whole.id, "me".into(), other, START).await.expect("an answer");
        assert_eq!(answer, if is_other { Submitted::NotNewest } else { Submitted::Repeated { entry: entry.id } });
    }
}

/// A part is run again with the whole.
pub async fn only_the_newest_run_of_what_has_ended_is_run_again<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let first = with_ended(&store, &mut owner).await;
    let partition = first.id.partition();
    let second = InstanceRow { run: 2, ordinal: first.ordinal, ..owner.dispatched(partition, first.task, START) };
    let links = Links { parent: Some(second.id), shards: 1, ..Links::default() };
    let shard = InstanceRow {
        run: 2,
        ordinal: first.ordinal,
        part: Part::shard(0),
        links: Some(Box::new(links)),
        ..owner.dispatched(partition, first.task, START)
    };
    let mut batch = owner.batch();
    batch.inserts = vec![second.clone(), shard.clone()];
    commit(&store, batch).await;
    assert_eq!(rerun(&store, first.id, "me").await, Submitted::NotNewest);
    assert_eq!(rerun(&store, second.id, "me").await, Submitted::StillRuns);
    assert_eq!(rerun(&store, shard.id, "me").await, Submitted::IsPart { whole: second.id });
    assert_eq!(rerun(&store, InstanceId::new(PartitionId(1), 999), "me").await, Submitted::NoSuchInstance);
    assert_eq!(entry_ids(&store).await, []);
    let mut batch = owner.batch();
    batch.updates = vec![ended(&second, State::Failed, START)];
    commit(&store, batch).await;
    apply(&store, vec![], START).await;
    apply_inbox(&store, &mut owner, None).await;
    assert_eq!(rerun(&store, second.id, "me").await, Submitted::NoSuchTask, "a removed task has no version in force");
    apply(&store, vec![document("one", "v9")], START).await;
    apply_inbox(&store, &mut owner, None).await;
    accepted(rerun(&store, second.id, "me").await);
}
