//! The store on MariaDB: the suite that every store runs, and what only a server can suffer.

mod faults;
mod guards;
mod months;
mod order;
mod plans;
mod recorder;
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use punctual_driver::logs::LogStore;
use punctual_store::conformance::logs::LogFactory;
use punctual_store::conformance::{self, Factory};
use punctual_store::{Decode, MySqlOptions, MySqlStore};
use punctual_testbed::MariaDb;

/// The server that all tests of this process share, each with a database of its own.
pub(crate) fn server() -> &'static MariaDb {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    SERVER.get_or_init(|| MariaDb::start().expect("a server"))
}

/// A new database's address.
pub(crate) fn database() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("test{}", COUNT.fetch_add(1, Ordering::Relaxed));
    server().create(&name).expect("a database")
}

/// As the suite wants them.
pub(crate) fn options(url: impl Into<String>) -> MySqlOptions {
    let mut options = MySqlOptions::new(url, conformance::decode());
    options.partitions = conformance::PARTITIONS;
    options.callers_clock()
}

struct Fresh;

impl Factory for Fresh {
    type Store = MySqlStore;

    async fn open(&self, partitions: u16, decode: Decode) -> MySqlStore {
        let mut options = MySqlOptions::new(database(), decode).callers_clock();
        options.partitions = partitions;
        MySqlStore::open(options).await.expect("a store")
    }
}

impl LogFactory for Fresh {
    async fn open_logs(&self) -> Arc<dyn LogStore> {
        Arc::new(self.open(1, conformance::decode()).await.logs())
    }
}

/// Runs a test with timers and network.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

mod suite {
    use super::{Fresh, block_on};

    punctual_store::conformance_tests!(Fresh, block_on);
    punctual_store::accounts_conformance_tests!(Fresh, block_on);
    punctual_store::logs_conformance_tests!(Fresh, block_on);
}
