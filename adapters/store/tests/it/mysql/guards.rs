//! Each guard by itself, as on SQLite: in place, the bad write is refused; left out, it goes through.

use std::sync::Arc;

use punctual_core::batch::{Batch, CommitOutcome};
use punctual_core::instance::InstanceRow;
use punctual_store::conformance::{Owner, START, commit};
use punctual_store::{Guards, MySqlStore};

use super::{block_on, database, options};
use crate::guards::{P, T};

/// Runs `bad` with all guards, where its batch must be refused, and with `guards`, where it must be committed.
fn noticed<F>(guards: Guards, bad: F)
where
    F: AsyncFn(&MySqlStore, Owner, InstanceRow) -> Batch,
{
    let outcome = |guards: Guards| {
        block_on(async {
            let store = MySqlStore::open(options(database()).guards(guards)).await.expect("a store");
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

crate::guards::guard_tests!();
