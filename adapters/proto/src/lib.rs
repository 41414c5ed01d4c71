//! The worker protocol on the wire.
//!
//! What is absent: sockets, clocks, async, state of the cluster. Messages of the core go in and bytes come out, or the other way round;
//! whoever holds the socket moves the bytes, and resets the connection at the first error.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `worker.proto`, [`wire`] | the messages, and the Rust that is made of them |
//! | [`convert`] | messages of the core as messages of the wire, and back |
//! | `check` | what a message may hold, in both directions |
//! | [`frame`] | frames: their numbers, their limit, their form in a stream of bytes |
//! | [`version`] | which version of the protocol two sides speak |
//! | [`connection`] | all of it together, for each side of a connection |
//! | [`limits`] | the limits, and why a frame holds every message |

mod check;
pub mod connection;
pub mod convert;
pub mod frame;
pub mod limits;
pub mod version;

/// The messages of `worker.proto`.
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/punctual.worker.v1.rs"));
}
