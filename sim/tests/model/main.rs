//! The model of the database is what it says: it runs the suite that every store runs, does what the real stores do, and each of its guards is
//! one.
#![cfg(not(madsim))]

mod calls;
mod equivalence;
mod failover;
mod guards;
mod recorded;
mod set_aside;
mod steps;

use std::future::Future;

use punctual_sim::history::Recorder;
use punctual_sim::model::{Database, DatabaseConfig, ModelStore};
use punctual_store::Decode;
use punctual_store::conformance::{self, Factory, PARTITIONS, START};

/// Makes models.
pub(crate) struct Models;

impl Factory for Models {
    type Store = ModelStore;

    async fn open(&self, partitions: u16, decode: Decode) -> ModelStore {
        let config = DatabaseConfig { partitions, starts_at: START, replica_lag: None };
        ModelStore::new(Database::new(config, Recorder::default()), decode)
    }
}

/// A model laid out as the suite's stores are.
pub(crate) fn model() -> ModelStore {
    recording_model(&Recorder::default())
}

/// One that records there.
pub(crate) fn recording_model(recorder: &Recorder) -> ModelStore {
    let config = DatabaseConfig { partitions: PARTITIONS, starts_at: START, replica_lag: None };
    ModelStore::new(Database::new(config, recorder.clone()), conformance::decode())
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

mod suite {
    use super::{Models, block_on};

    punctual_store::conformance_tests!(Models, block_on);
}

#[test]
fn no_test_file_is_forgotten() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not run");
    }
}
