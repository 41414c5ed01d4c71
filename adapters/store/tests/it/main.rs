//! The stores: the suite that every store runs, what only a file can suffer, and, in `mysql`, what only a server can.

mod checkup;
mod crash;
mod file;
mod guards;
mod mysql;
mod scale;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_driver::logs::LogStore;
use punctual_driver::ports::StoreError;
use punctual_store::conformance::logs::LogFactory;
use punctual_store::conformance::{self, Factory};
use punctual_store::{Decode, Options, SqliteLogs, SqliteStore};

/// A folder that goes with the test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.path().join("punctual.db")
    }

    pub(crate) fn options(&self) -> Options {
        options(self.database())
    }

    pub(crate) fn open(&self) -> SqliteStore {
        self.try_open().expect("a store")
    }

    pub(crate) fn try_open(&self) -> Result<SqliteStore, StoreError> {
        SqliteStore::open(self.options())
    }
}

impl Factory for Folder {
    type Store = SqliteStore;

    async fn open(&self, partitions: u16, decode: Decode) -> SqliteStore {
        let mut options = Options::new(self.database(), decode);
        options.partitions = partitions;
        SqliteStore::open(options).expect("a store")
    }
}

impl LogFactory for Folder {
    async fn open_logs(&self) -> Arc<dyn LogStore> {
        Arc::new(SqliteLogs::beside(self.database()))
    }
}

/// As the suite wants them.
pub(crate) fn options(path: impl Into<PathBuf>) -> Options {
    let mut options = Options::new(path, conformance::decode());
    options.partitions = conformance::PARTITIONS;
    options
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// The name of a replica, as often as needed.
pub(crate) fn name(name: &str) -> Arc<str> {
    name.into()
}

mod suite {
    use super::{Folder, block_on};

    punctual_store::conformance_tests!(Folder::new(), block_on);
    punctual_store::accounts_conformance_tests!(Folder::new(), block_on);
    punctual_store::logs_conformance_tests!(Folder::new(), block_on);
}
