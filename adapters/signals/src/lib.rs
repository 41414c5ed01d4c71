//! Wake-ups between replicas, over Redis.
//!
//! Redis carries nothing that is not also in the store: a wake-up says "look", and whoever misses it looks a little later by itself. So
//! Redis may be flushed, restarted or absent at any time; that costs latency, never work.
//!
//! Each wake-up is one `PUBLISH` on a channel of the cluster's own; many in a row become one. There is no scripting and no key, so any
//! Redis will do: a single one, one behind sentinels, any node of a cluster ([`Address`]).
//!
//! What is absent: anything that decides. A delayed trigger is in the store and in its owner's timing wheel.

mod address;
mod redis;

pub use address::{Address, AddressError};
pub use redis::{RedisSignals, State};

use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Signals, Wake};
use tokio::sync::mpsc;

/// Wake-ups within one process: what [`RedisSignals`] does, for a replica that is alone.
#[derive(Clone, Debug)]
pub struct LocalSignals {
    node: mpsc::Sender<ToSchedulerNode>,
}

impl LocalSignals {
    /// Wakes this scheduler node up.
    pub fn new(node: mpsc::Sender<ToSchedulerNode>) -> LocalSignals {
        LocalSignals { node }
    }
}

impl Signals for LocalSignals {
    fn wake(&self, wake: Wake) {
        // A node whose queue is full is awake.
        let _ = self.node.try_send(message(&wake));
    }
}

fn message(wake: &Wake) -> ToSchedulerNode {
    match wake {
        Wake::Inbox => ToSchedulerNode::InboxSignalled,
        Wake::Leases => ToSchedulerNode::LeasesSignalled,
    }
}
