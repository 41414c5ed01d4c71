//! The simulated world.
//!
//! A [`plan`] says what happens, drawn from a seed or read from a file. A world carries it out: the tabletop world drives the core's
//! machines by hand in a plain loop, the rehearsal world runs the production loops on simulated time and network. Both write a
//! [`history`], and the same properties judge it.

pub mod bank;
pub mod behaviour;
mod calls;
pub mod check;
pub mod draw;
pub mod faults;
pub mod features;
pub mod files;
pub mod history;
pub mod load;
pub mod model;
pub mod operations;
pub mod outcome;
pub mod plan;
pub mod problems;
pub mod regressions;
pub mod rehearsal;
pub mod report;
pub mod show;
pub mod shrink;
pub mod swarm;
pub mod tabletop;
pub mod trial;
pub mod trouble;
pub mod workload;
#[cfg(madsim)]
pub mod world;
