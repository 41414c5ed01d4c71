//! The stores: one behaviour, on two databases.
//!
//! - [`SqliteStore`]: embedded, one file, one process.
//! - [`MySqlStore`]: MySQL 8.0 and MariaDB 10.6 or newer, as many replicas as share it.
//!
//! Both keep what the ports of [`punctual_driver::ports`] promise, and the conformance suite (feature `conformance`) holds them to it.
//! What the two share is here: how values are packed and numbered, what is set aside because it can't be decoded, what an application of
//! documents changes, and the guards that tests leave out.

use std::sync::Arc;

use punctual_core::definition::TaskDefinition;

mod accounts;
mod audit;
mod checkup;
mod codec;
mod codes;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg_attr(not(feature = "conformance"), allow(unreachable_pub))]
mod guards;
mod mysql;
mod pauses;
mod plan;
mod reading;
mod refusal;
mod reruns;
mod set_aside;
mod sqlite;

#[cfg(feature = "conformance")]
#[doc(hidden)]
pub use guards::Guards;
#[cfg(feature = "recorder")]
pub use mysql::recorder;
pub use mysql::{MySqlLogs, MySqlOptions, MySqlStore};
pub use sqlite::{Options, SqliteLogs, SqliteStore};

/// Makes a definition of a stored document, or says why not.
pub type Decode = Arc<dyn Fn(&str) -> Result<TaskDefinition, String> + Send + Sync>;
