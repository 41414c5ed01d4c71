//! Schedulers and workers on real sockets.

mod end_to_end;
mod harness;
mod links;
mod logs;
mod raw;
mod replicas;
mod tls;
mod tokens;
mod trouble;
