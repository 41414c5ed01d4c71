//! The scheduling core of Punctual.
//!
//! What is absent: I/O, clocks, randomness, async, threads, the environment. Data comes in, data goes out; whoever drives the core
//! carries its commands out and feeds the answers back in. The same code therefore runs in production, in property tests and in the
//! simulated world.

pub mod backoff;
pub mod limits;
pub mod time;
pub mod wheel;
