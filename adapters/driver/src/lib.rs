//! Carries the core's commands out to the world and the world's events back in.
//!
//! What is absent: SQL, HTTP, processes, any concrete store or transport. Those come in through the [`ports`]; production and the
//! simulated world run this same code.
//!
//! `tokio::select!` is always `biased;` here, and nothing iterates over a hash map: a run is the same for the same input.

pub mod accounts;
pub mod alarm;
pub mod checkup;
pub mod clock;
pub mod editing;
pub mod link;
pub mod logs;
pub mod people;
pub mod ports;
pub mod reading;
pub mod scheduler;
pub mod worker;
