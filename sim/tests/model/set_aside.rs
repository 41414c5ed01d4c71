//! Two programs on one database, of which one can't decode all that the other wrote.

use std::sync::Arc;

use punctual_core::ids::{InboxId, Version, partition_of};
use punctual_core::inbox::{Request, Submission};
use punctual_core::instance::InstanceRow;
use punctual_driver::ports::{Catalog, Store};
use punctual_sim::model::ModelStore;
use punctual_store::Decode;
use punctual_store::conformance::{
    Owner, PARTITIONS, START, all_partitions, apply, apply_inbox, commit, decode, document, entry_ids, tasks_in_force,
};

use crate::{block_on, model};

/// A program that can decode no document with "new" in it, on the same database.
fn older(store: &ModelStore) -> ModelStore {
    let decode = decode();
    let older: Decode = Arc::new(move |document| if document.contains("new") { Err("what?".to_owned()) } else { decode(document) });
    store.with_decode(older)
}

async fn trigger(store: &ModelStore, name: &str) {
    store.trigger(name.into(), "me".into(), None, vec![Submission::default()], START).await.expect("an answer");
}

#[test]
fn a_version_in_force_that_cannot_be_decoded_waits_for_a_program_that_can() {
    let store = model();
    let older = older(&store);
    block_on(async {
        let mut owner = Owner::of_all(&store).await;
        let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
        apply(&store, vec![document("one", "new")], START).await;
        apply_inbox(&store, &mut owner, None).await;
        let row = InstanceRow { version: Version(2), ..owner.dispatched(partition, task, START) };
        let mut batch = owner.batch();
        batch.inserts.push(row.clone());
        commit(&store, batch).await;
        trigger(&store, "one").await;
        store.cancel(row.id, "me".into(), None, START).await.expect("an answer");
        assert_eq!((entry_ids(&store).await.len(), entry_ids(&older).await.len()), (2, 0));
        let newer = store.snapshot(partition).await.expect("a snapshot");
        assert_eq!((newer.tasks.len(), newer.instances.len()), (1, 1));
        assert_eq!(older.snapshot(partition).await.expect("a snapshot"), Default::default());
        // An edit helps the task, not the instance that runs by the old version.
        apply(&store, vec![document("one", "v3")], START).await;
        trigger(&store, "one").await;
        assert_eq!((entry_ids(&store).await.len(), entry_ids(&older).await.len()), (4, 2));
        apply_inbox(&older, &mut owner, None).await;
        assert_eq!(entry_ids(&older).await.len(), 1, "what waited before the edit goes on once that is in force");
        assert_eq!(entry_ids(&store).await.len(), 2);
    });
}

#[test]
fn entries_behind_one_that_cannot_be_decoded_wait_wherever_the_reader_begins() {
    let store = model();
    let older = older(&store);
    block_on(async {
        let mut owner = Owner::of_all(&store).await;
        tasks_in_force(&store, &mut owner, &["one"]).await;
        trigger(&store, "one").await;
        apply(&store, vec![document("one", "new 2")], START).await;
        trigger(&store, "one").await;
        apply(&store, vec![document("one", "v3")], START).await;
        apply(&store, vec![document("one", "new 4")], START).await;
        trigger(&store, "one").await;
        let all = entry_ids(&store).await;
        assert_eq!(all.len(), 6);
        assert_eq!(entry_ids(&older).await, all[..1]);
        for after in &all {
            let page = older.read_inbox(all_partitions(), *after, 10).await.expect("a page");
            assert_eq!(page, Default::default());
        }
        // The newest version stands in for those that can't be decoded.
        apply(&store, vec![document("one", "v5")], START).await;
        let page = older.read_inbox(vec![partition_of("one", PARTITIONS)], InboxId(0), 10).await.expect("a page");
        let versions: Vec<_> = page
            .entries
            .iter()
            .filter_map(|entry| if let Request::DefinitionChanged { version, .. } = &entry.request { Some(version.0) } else { None })
            .collect();
        assert_eq!((page.entries.len(), versions), (7, vec![5, 3, 5, 5]));
    });
}
