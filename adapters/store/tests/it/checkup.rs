//! What a checkup finds in what owners and people have written.

use punctual_core::instance::State;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Check, PauseTarget, Store};
use punctual_store::MySqlStore;
use punctual_store::conformance::{Owner, START, commit, tasks_in_force};

use crate::{Folder, block_on, mysql};

/// What is overdue is found unless a pause holds it: a drained worker and somebody else's pause do not.
async fn only_its_own_pause_excuses_what_is_overdue(store: &(impl Store + Catalog)) {
    let mut owner = Owner::of_all(store).await;
    let [(task, partition), _] = tasks_in_force(store, &mut owner, &["one", "two"]).await[..] else { panic!("two tasks") };
    let mut row = owner.dispatched(partition, task, START);
    (row.state, row.due_at, row.worker) = (State::Retrying, Some(START), None);
    let mut batch = owner.batch();
    batch.inserts.push(row);
    commit(store, batch).await;
    let pause = async |target: PauseTarget, is_paused| {
        store.set_pause(target, is_paused, "me".into(), START).await.expect("an answer");
    };
    let is_found = async || {
        let found = store.inconsistencies(Timestamp(START.0 + 600_000), false).await.expect("an answer");
        found.iter().any(|found| found.check == Check::Overdue)
    };
    assert!(is_found().await);
    pause(PauseTarget::Worker("w1".into()), true).await;
    pause(PauseTarget::Task("two".into()), true).await;
    assert!(is_found().await, "neither holds it");
    for target in [PauseTarget::Task("one".into()), PauseTarget::All] {
        pause(target.clone(), true).await;
        assert!(!is_found().await, "{target:?}");
        pause(target, false).await;
    }
    assert!(is_found().await);
}

#[test]
fn what_is_overdue_in_a_file() {
    block_on(async { only_its_own_pause_excuses_what_is_overdue(&Folder::new().open()).await });
}

#[test]
fn what_is_overdue_on_a_server() {
    mysql::block_on(async {
        let store = MySqlStore::open(mysql::options(mysql::database())).await.expect("a store");
        only_its_own_pause_excuses_what_is_overdue(&store).await;
    });
}
