//! Not small.

use std::time::{Duration, Instant};

use punctual_core::ids::InboxId;
use punctual_driver::ports::{Catalog, Store};
use punctual_store::conformance::{START, all_partitions, document};

use crate::{Folder, block_on, name};

#[test]
fn a_hundred_thousand_tasks_are_applied_at_once_and_once() {
    // More of them on demand.
    let tasks = std::env::var("PUNCTUAL_TEST_TASKS").map_or(100_000, |text| text.parse().expect("a number"));
    let folder = Folder::new();
    block_on(async {
        let store = folder.open();
        let documents: Vec<_> = (0..tasks).map(|number| document(&format!("task-{number}"), "v1")).collect();
        let started = Instant::now();
        let applied = store.apply(name("files"), "me".into(), documents.clone(), false, START).await.expect("an answer");
        println!("{tasks} tasks applied in {:?}", started.elapsed());
        assert_eq!(applied.created.len(), tasks);
        assert!(started.elapsed() < Duration::from_secs(60));
        let started = Instant::now();
        let applied = store.apply(name("files"), "me".into(), documents, false, START).await.expect("an answer");
        println!("and once more in {:?}", started.elapsed());
        assert_eq!((applied.created.len(), applied.unchanged), (0, tasks));
        let page = store.read_inbox(all_partitions(), InboxId(0), 256).await.expect("a page");
        assert_eq!((page.entries.len(), page.more), (256, true));
    });
}
