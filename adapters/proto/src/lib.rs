//! The worker protocol on the wire.

/// The messages of `worker.proto`.
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/punctual.worker.v1.rs"));
}
