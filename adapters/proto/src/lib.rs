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
//! | [`version`] | which version of the protocol two sides speak |
//! | [`limits`] | the limits, and why a frame holds every message |

mod check;
pub mod convert;
pub mod limits;
pub mod version;

/// The messages of `worker.proto`.
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/punctual.worker.v1.rs"));
}
