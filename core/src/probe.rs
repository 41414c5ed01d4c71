//! Probes: places that a good test run must have come through.
//!
//! `probe!("wheel.cascaded")` is nothing in a normal build. With the feature `simulation` it is counted, and a sweep that never hits one
//! of [`CATALOGUE`] has not tested what it claims to test.

/// Every probe.
pub const CATALOGUE: [&str; 56] = [
    "wheel.cascaded",
    "misfire.fired_late",
    "misfire.skipped",
    "misfire.coalesced",
    "commit.refused",
    "commit.unknown",
    "commit.folded",
    "result.refused_by_fence",
    "attempt.adopted",
    "attempt.lost",
    "attempt.never_received",
    "attempt.returned",
    "retry.exhausted",
    "instance.quarantined",
    "backfill.begun",
    "group.full",
    "group.throttled",
    "limit.queued",
    "limit.discarded",
    "limit.replaced",
    "clock.stepped_back",
    "worker.self_fenced",
    "worker.slot_kept",
    "backpressure.held",
    "takeover.with_attempts_in_flight",
    "partition.handed_over",
    "lease.lost",
    "tail.lost",
    "cancel.raced_with_success",
    "chain.told",
    "shards.divided",
    "shards.failed",
    "rate.throttled",
    "route.nobody",
    "timetable.left_out",
    "rerun.fired",
    "shards.broadcast",
    "shards.carried_over",
    "shards.worker_gone",
    "map.begun",
    "map.reduced",
    "pause.taken_over",
    "pause.parked",
    "pause.drained",
    "pause.held",
    "workflow.begun",
    "workflow.restored",
    "workflow.failed",
    "node.skipped",
    "node.marked",
    "rerun.from_node",
    "call.made",
    "call.fired",
    "call.impossible",
    "call.ended",
    "call.cancelled",
];

/// Counts that this place was come through.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {{
        const _: () = assert!($crate::probe::is_listed($name), "a probe that is not in the catalogue");
        $crate::probe::hit($name);
    }};
}

#[doc(hidden)]
pub const fn is_listed(name: &str) -> bool {
    let mut index = 0;
    while index < CATALOGUE.len() {
        if same(CATALOGUE[index].as_bytes(), name.as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

const fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(not(feature = "simulation"))]
#[doc(hidden)]
#[inline(always)]
pub const fn hit(_: &'static str) {}

#[cfg(feature = "simulation")]
pub use counter::{hit, hits, reset};

#[cfg(feature = "simulation")]
mod counter {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        static HITS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    #[doc(hidden)]
    pub fn hit(name: &'static str) {
        HITS.with_borrow_mut(|hits| *hits.entry(name).or_default() += 1);
    }

    /// Forgets this thread's hits.
    pub fn reset() {
        HITS.with_borrow_mut(BTreeMap::clear);
    }

    /// This thread's hits of a probe.
    pub fn hits(name: &str) -> u64 {
        HITS.with_borrow(|hits| hits.get(name).copied().unwrap_or(0))
    }
}
