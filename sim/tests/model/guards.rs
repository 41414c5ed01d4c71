//! Each guard by itself: in place, the bad write is refused; switched off, it goes through. A guard that nothing notices is none.

use std::sync::Arc;

use punctual_core::batch::{Batch, Renewal};
use punctual_core::ids::{Fence, PartitionId, ReplicaId, TaskId};
use punctual_core::inbox::Submission;
use punctual_core::instance::{InstanceRow, State};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{Catalog, LeaseAnswer, Submitted};
use punctual_sim::history::Recorder;
use punctual_sim::model::{Database, DatabaseConfig, ModelStore, Refusal, StoreGuard};
use punctual_store::conformance::{Owner, PARTITIONS, START, TTL, all_partitions, apply, commit, document, ended, entry_ids};

use crate::{block_on, model};

const P: PartitionId = PartitionId(2);
const T: TaskId = TaskId(1);

/// Runs `bad` with all guards, where its batch must be refused, and without `guard`, where it must be committed.
fn noticed<F>(guard: StoreGuard, bad: F) -> Refusal
where
    F: AsyncFn(&ModelStore, Owner, InstanceRow) -> Batch,
{
    let outcome = |is_off: bool| {
        let store = model();
        block_on(async {
            let mut owner = Owner::of_all(&store).await;
            let row = owner.dispatched(P, T, START);
            let mut batch = owner.batch();
            batch.inserts.push(row.clone());
            commit(&store, batch).await;
            if is_off {
                store.with(|database, _| database.switch_off(guard));
            }
            let batch = Arc::new(bad(&store, owner, row).await);
            let hits = store.with(|database, _| database.hits(guard));
            let outcome = store.with(|database, at| database.commit(at, &batch));
            assert!(store.with(|database, _| database.hits(guard)) > hits, "it had something to hold back");
            outcome
        })
    };
    outcome(true).expect("switched off, the bad write goes through");
    outcome(false).expect_err("in place, it refuses")
}

#[test]
fn the_epoch_keeps_an_old_owner_out() {
    let refusal = noticed(StoreGuard::LeaseOnCommit, async |store, mut old, row| {
        // The same replica, in another life.
        Owner::take(store, "a", all_partitions(), START.saturating_add(TTL)).await;
        let mut batch = old.batch();
        batch.updates.push(ended(&row, State::Succeeded, START));
        batch
    });
    assert!(matches!(refusal, Refusal::Lease(_)), "{refusal:?}");
}

#[test]
fn the_owner_keeps_another_replica_out() {
    let refusal = noticed(StoreGuard::LeaseOnCommit, async |_, mut owner, row| {
        let mut batch = owner.batch();
        batch.updates.push(ended(&row, State::Succeeded, START));
        batch.replica = ReplicaId("b".into());
        batch
    });
    assert!(matches!(refusal, Refusal::Lease(_)), "{refusal:?}");
}

#[test]
fn the_count_of_commits_keeps_a_repetition_out() {
    let refusal = noticed(StoreGuard::CommitsInOrder, async |_, mut owner, row| {
        let mut batch = owner.batch();
        batch.updates.push(ended(&row, State::Succeeded, START));
        batch.leases.iter_mut().for_each(|lease| lease.commit_seq -= 1);
        batch
    });
    assert!(matches!(refusal, Refusal::Lease(_)), "{refusal:?}");
}

#[test]
fn the_state_keeps_an_ended_instance_ended() {
    let refusal = noticed(StoreGuard::StateAndFenceOnUpdate, async |store, mut owner, row| {
        let mut batch = owner.batch();
        batch.updates.push(ended(&row, State::Succeeded, START));
        commit(store, batch).await;
        let mut batch = owner.batch();
        batch.updates.push(ended(&row, State::Failed, START));
        batch
    });
    assert!(matches!(refusal, Refusal::Row(_)), "{refusal:?}");
}

#[test]
fn the_fence_keeps_an_old_attempt_out() {
    let refusal = noticed(StoreGuard::StateAndFenceOnUpdate, async |store, mut owner, row| {
        let mut again = ended(&row, State::Dispatched, START);
        again.row.fence = Fence(row.fence.0 + 1);
        let mut batch = owner.batch();
        batch.updates.push(again);
        commit(store, batch).await;
        let mut batch = owner.batch();
        batch.updates.push(ended(&row, State::Succeeded, START));
        batch
    });
    assert!(matches!(refusal, Refusal::Row(_)), "{refusal:?}");
}

#[test]
fn the_unique_key_keeps_a_firing_from_happening_twice() {
    let refusal = noticed(StoreGuard::FiringsUnique, async |_, mut owner, row| {
        let mut batch = owner.batch();
        batch.inserts.push(owner.dispatched(P, T, row.fire_time));
        batch
    });
    assert!(matches!(refusal, Refusal::Row(_)), "{refusal:?}");
}

#[test]
fn the_inbox_keeps_an_entry_from_being_applied_twice() {
    let refusal = noticed(StoreGuard::EntryThereOnApply, async |store, mut owner, row| {
        store.cancel(row.id, "me".into(), None, START).await.expect("a cancellation");
        let entries = entry_ids(store).await;
        let mut batch = owner.batch();
        batch.applied.clone_from(&entries);
        commit(store, batch).await;
        let mut batch = owner.batch();
        batch.inserts.push(owner.dispatched(P, T, Timestamp(1)));
        batch.applied = entries;
        batch
    });
    assert!(matches!(refusal, Refusal::Row(_)), "{refusal:?}");
}

#[test]
fn the_key_keeps_a_submission_from_being_made_twice() {
    let entries = |is_off: bool| {
        let store = model();
        if is_off {
            store.with(|database, _| database.switch_off(StoreGuard::SubmissionKeys));
        }
        block_on(async {
            apply(&store, vec![document("one", "v1")], START).await;
            let trigger = || store.trigger("one".into(), "me".into(), Some("k".into()), vec![Submission::default()], START);
            let (first, second) = (trigger().await.expect("an answer"), trigger().await.expect("an answer"));
            assert_eq!(store.with(|database, _| database.hits(StoreGuard::SubmissionKeys)), 1);
            let Submitted::Accepted { entry } = first else { panic!("{first:?}") };
            assert_eq!(second == Submitted::Repeated { entry }, !is_off, "{second:?}");
            entry_ids(&store).await.len()
        })
    };
    assert_eq!((entries(false), entries(true)), (2, 3));
}

fn database(replica_lag: Option<Millis>) -> Database {
    Database::new(DatabaseConfig { partitions: PARTITIONS, starts_at: START, replica_lag }, Recorder::default())
}

#[test]
fn the_databases_clock_keeps_an_asker_whose_clock_is_fast_out() {
    let answer = |is_off: bool| {
        let mut database = database(None);
        if is_off {
            database.switch_off(StoreGuard::LeasesByOwnClock);
        }
        database.acquire(0, &ReplicaId("a".into()), &[P], 1, TTL, START);
        let fast = START.saturating_add(TTL);
        database.acquire(1, &ReplicaId("b".into()), &[P], 1, TTL, fast).remove(0)
    };
    assert!(matches!(answer(false), LeaseAnswer::Held { .. }));
    assert!(matches!(answer(true), LeaseAnswer::Granted { .. }), "the lease was taken while it held");
}

#[test]
fn owners_read_the_primary_and_not_what_was() {
    let read = |is_off: bool| {
        let mut database = database(Some(Millis(500)));
        if is_off {
            database.switch_off(StoreGuard::ReadsFromPrimary);
        }
        let definition = document("one", "v1").definition;
        let entry = database.define(100, &"one".into(), Some(definition));
        let seen = |database: &mut Database, at| database.read_inbox(at, &all_partitions(), Default::default(), 10).0.len();
        let early = (seen(&mut database, 100), seen(&mut database, 599));
        let partition = punctual_core::ids::partition_of("one", PARTITIONS);
        let replica = ReplicaId("a".into());
        let LeaseAnswer::Granted { epoch, .. } = database.acquire(600, &replica, &[partition], 1, TTL, START).remove(0) else {
            panic!("it is free")
        };
        let lease = punctual_core::batch::LeaseCheck { partition, epoch, commit_seq: 1, sequence: 1 };
        let task = punctual_core::batch::TaskWrite {
            task: T,
            partition,
            version: Some(punctual_core::ids::Version(1)),
            next_fire: None,
            fired_until: None,
        };
        let batch = Batch { replica, leases: vec![lease], tasks: vec![task], applied: vec![entry], ..Batch::default() };
        database.commit(600, &Arc::new(batch)).expect("a commit");
        let tasks = |database: &mut Database, at| database.snapshot(at, partition).tasks.len();
        let late = (tasks(&mut database, 1_099), seen(&mut database, 1_099));
        let caught_up = (tasks(&mut database, 1_100), seen(&mut database, 1_100));
        (early, late, caught_up)
    };
    assert_eq!(read(false), ((1, 1), (1, 0), (1, 0)));
    assert_eq!(read(true), ((0, 0), (0, 1), (1, 0)), "the replica shows what was, until it has caught up");
}

#[test]
fn a_renewal_shows_that_commits_were_forgotten() {
    let renewed = |is_off: bool| {
        let mut database = database(None);
        if is_off {
            database.switch_off(StoreGuard::CommitsOnRenewal);
        }
        let replica = ReplicaId("a".into());
        let LeaseAnswer::Granted { epoch, .. } = database.acquire(0, &replica, &[P], 1, TTL, START).remove(0) else { panic!("it is free") };
        database.renew(1, &replica, &[Renewal { partition: P, epoch, commit_seq: 1 }], TTL)
    };
    assert_eq!((renewed(false), renewed(true)), (vec![P], vec![]));
}

#[test]
fn every_guard_has_a_test() {
    let tests = include_str!("guards.rs");
    for guard in StoreGuard::ALL {
        assert!(tests.contains(&format!("StoreGuard::{guard:?}")), "{guard:?} has none");
    }
}
