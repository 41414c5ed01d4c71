//! The proxy on real sockets, sources that become one history, and a short run on real processes.

mod merge;
mod proxy;
mod real;
