//! The scheduling core of Punctual.
//!
//! What is absent: I/O, clocks, randomness, async, threads, the environment. Data comes in, data goes out; whoever drives the core
//! carries its commands out and feeds the answers back in. The same code therefore runs in production, in property tests and in the
//! simulated world.

pub mod backfill;
pub mod backoff;
pub mod batch;
pub mod breaker;
pub mod budget;
pub mod chains;
pub mod concurrency;
pub mod cron;
pub mod definition;
pub mod guard;
pub mod ids;
pub mod inbox;
pub mod instance;
pub mod limit_key;
pub mod limits;
pub mod misfire;
pub mod occurrence;
pub mod pause;
pub mod probe;
pub mod protocol;
pub mod rate;
pub mod ready_queue;
pub mod retry;
pub mod routing;
pub mod scheduler;
pub mod text;
pub mod time;
pub mod wheel;
pub mod worker;
pub mod workflow;
