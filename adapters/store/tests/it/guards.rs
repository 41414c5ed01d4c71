//! Each guard by itself: in place, the bad write is refused; left out, it goes through. A guard that nothing notices is none.

use std::sync::Arc;

use punctual_core::batch::{Batch, CommitOutcome};
use punctual_core::ids::TaskId;
use punctual_core::instance::InstanceRow;
use punctual_store::conformance::{Owner, START, commit};
use punctual_store::{Guards, Options, SqliteStore};

use crate::{Folder, block_on};

pub(crate) const P: PartitionId = PartitionId(2);
pub(crate) const T: TaskId = TaskId(1);

/// Runs `bad` with all guards, where its batch must be refused, and with `guards`, where it must be committed.
fn noticed<F>(guards: Guards, bad: F)
where
    F: AsyncFn(&SqliteStore, Owner, InstanceRow) -> Batch,
{
    let outcome = |guards: Guards| {
        let folder = Folder::new();
        let options: Options = folder.options().guards(guards);
        let store = SqliteStore::open(options).expect("a store");
        block_on(async {
            let mut owner = Owner::of_all(&store).await;
            let row = owner.dispatched(P, T, START);
            let mut batch = owner.batch();
            batch.inserts.push(row.clone());
            commit(&store, batch).await;
            let batch = bad(&store, owner, row).await;
            store.commit(Arc::new(batch)).await.expect("an outcome")
        })
    };
    assert!(matches!(outcome(Guards::ALL), CommitOutcome::Refused { .. }), "in place, it refuses");
    assert_eq!(outcome(guards), CommitOutcome::Committed, "left out, the bad write goes through");
}

/// The tests, of whatever store `noticed` is about.
macro_rules! guard_tests {
    () => {
        use punctual_core::ids::{Fence, PartitionId, ReplicaId};
        use punctual_core::instance::State;
        use punctual_core::time::Timestamp;
        use punctual_driver::ports::{Catalog, Store};
        use punctual_store::conformance::{TTL, all_partitions, ended, entry_ids};

        #[test]
        fn the_epoch_keeps_an_old_owner_out() {
            noticed(Guards { lease_epoch: false, ..Guards::ALL }, async |store, mut old, row| {
                // The same replica, in another life.
                Owner::take(store, "a", all_partitions(), START.saturating_add(TTL)).await;
                let mut batch = old.batch();
                batch.updates.push(ended(&row, State::Succeeded, START));
                batch
            });
        }

        #[test]
        fn the_owner_keeps_another_replica_out() {
            noticed(Guards { lease_owner: false, ..Guards::ALL }, async |_, mut owner, row| {
                let mut batch = owner.batch();
                batch.updates.push(ended(&row, State::Succeeded, START));
                batch.replica = ReplicaId("b".into());
                batch
            });
        }

        #[test]
        fn the_count_of_commits_keeps_a_repetition_out() {
            noticed(Guards { lease_commits: false, ..Guards::ALL }, async |_, mut owner, row| {
                let mut batch = owner.batch();
                batch.updates.push(ended(&row, State::Succeeded, START));
                batch.leases.iter_mut().for_each(|lease| lease.commit_seq -= 1);
                batch
            });
        }

        #[test]
        fn the_leases_relied_on_cover_all_that_is_written() {
            noticed(Guards { lease_relied_on: false, ..Guards::ALL }, async |_, mut owner, row| {
                let mut batch = owner.batch_on(&[PartitionId(5)]);
                batch.updates.push(ended(&row, State::Succeeded, START));
                batch
            });
        }

        #[test]
        fn the_state_keeps_an_ended_instance_ended() {
            noticed(Guards { instance_state: false, ..Guards::ALL }, async |store, mut owner, row| {
                let mut batch = owner.batch();
                batch.updates.push(ended(&row, State::Succeeded, START));
                commit(store, batch).await;
                let mut batch = owner.batch();
                batch.updates.push(ended(&row, State::Failed, START));
                batch
            });
        }

        #[test]
        fn the_fence_keeps_an_old_attempt_out() {
            noticed(Guards { instance_fence: false, ..Guards::ALL }, async |store, mut owner, row| {
                let mut again = ended(&row, State::Dispatched, START);
                again.row.fence = Fence(row.fence.0 + 1);
                let mut batch = owner.batch();
                batch.updates.push(again);
                commit(store, batch).await;
                let mut batch = owner.batch();
                batch.updates.push(ended(&row, State::Succeeded, START));
                batch
            });
        }

        #[test]
        fn the_unique_key_keeps_a_firing_from_happening_twice() {
            noticed(Guards { unique_firing: false, ..Guards::ALL }, async |_, mut owner, row| {
                let mut batch = owner.batch();
                batch.inserts.push(owner.dispatched(P, T, row.fire_time));
                batch
            });
        }

        #[test]
        fn the_inbox_keeps_an_entry_from_being_applied_twice() {
            noticed(Guards { inbox_entry: false, ..Guards::ALL }, async |store, mut owner, row| {
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
        }
    };
}
pub(crate) use guard_tests;

guard_tests!();
