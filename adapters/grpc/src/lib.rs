//! The worker protocol over gRPC.
//!
//! What is absent: decisions. Nothing here knows what an instance is, or what a lost worker means; frames of `punctual-proto` are carried
//! between a scheduler node and worker nodes, and whoever is not who it says, or sends what is no frame, is turned away before a node hears
//! of it.
//!
//! Workers dial out. [`server::serve`] is the scheduler's side, [`client::dial`] the worker's: it keeps one stream to each replica, learns
//! of further ones from those that it has, and dials again what breaks. One stream is one connection of the protocol: it begins with the
//! worker's hello, and its end is never a success, since a gap in it can't be told from a pause.
//!
//! | file | what it knows |
//! | --- | --- |
//! | [`server`] | how a replica listens, and what it may listen on |
//! | [`tokens`] | who may speak, and as which worker |
//! | `visitor` | connections before anybody has said who they are: how many, and for how long |
//! | `service` | one worker's stream, from its token to its end |
//! | [`client`] | which replicas there are, and a task for each |
//! | `replica` | one replica: dialling, one stream, dialling again |
//! | `address` | what seeds and addresses may look like |
//! | `pump` | messages of a node as frames of a stream, and back, for both sides |
//! | `codec`, `status` | frames as messages of gRPC, and why a stream ends, in gRPC's words |
//! | `logs` | lines of attempts, in calls beside the stream |
//! | [`limits`] | the limits, and how they belong together |
//!
//! *Nobody else suffers.* Whatever a peer does to its own connection — bytes that are no HTTP/2, half a header and then silence, a stream
//! that is never read — costs a bounded number of bytes for a bounded time, and only this connection ends.
//!
//! *A cut link is noticed.* Both sides ping every [`limits::KEEPALIVE_INTERVAL`] and give a connection up that has not answered within
//! [`limits::KEEPALIVE_TIMEOUT`] more.

mod address;
mod backoff;
pub mod client;
mod codec;
pub mod limits;
mod logs;
mod pump;
mod replica;
pub mod server;
mod service;
mod status;
pub mod tokens;
mod visitor;

pub use client::{ClientOptions, ClientTls, DialError, LinkState, dial};
pub use limits::Timing;
pub use server::{ServeError, ServerOptions, ServerTls, serve};
pub use tokens::{Tokens, WorkerToken};

/// The service of `worker.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/punctual.worker.v1.rs"));
}
