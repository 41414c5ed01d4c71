//! The database as plain maps: the specification of [`Store`](punctual_driver::ports::Store) and of the catalogue that goes with it.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `data` | what is stored, and what each write does to it |
//! | `database` | a primary with a clock of its own, a replica behind it, failover, and the history of what was carried out |

mod data;
mod database;

pub use data::{Data, Lease, Refusal, StoreGuard, StoredTask};
pub use database::{Database, DatabaseConfig};
