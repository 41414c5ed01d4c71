//! The database as plain maps: the specification of [`Store`](punctual_driver::ports::Store) and of the catalogue that goes with it.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `data` | what is stored, and what each write does to it |
//! | `checks` | what may not be written, and the guards that say so |
//! | `reading` | what owners read, and what is set aside for a program that can't decode it |
//! | `catalog` | what everybody may read, and what an application of documents has to write |
//! | `backfills` | what is to be known before a backfill is asked for, and asking for it |
//! | `database` | a primary with a clock of its own, a replica behind it, failover, and the history of what was carried out |
//! | `people` | what people do: pauses, the audit, dead letters |
//! | `ports` | all that behind the ports |

mod backfills;
mod catalog;
mod checks;
mod data;
mod database;
mod people;
mod ports;
mod reading;

pub use checks::{Refusal, StoreGuard};
pub use data::{Data, Lease, Named, StoredTask, StoredVersion};
pub use database::{Database, DatabaseConfig};
pub use ports::{Decode, ModelStore};
