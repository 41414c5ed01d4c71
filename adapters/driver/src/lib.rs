//! Carries the core's commands out to the world and the world's events back in.
//!
//! What is absent: SQL, HTTP, processes, any concrete store or transport. Those come in through the [`ports`]; production and the
//! simulated world run this same code.

pub mod ports;
