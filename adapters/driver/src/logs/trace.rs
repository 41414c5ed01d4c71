//! The trace that an instance is: one number for all that is done for it, wherever that happens, as W3C's trace context has it.
//!
//! It comes of what the instance is, so every worker that runs an attempt knows it, and whoever reads it later as well. Nothing of it is
//! stored or sent to a worker.

use std::fmt;

use punctual_core::ids::Fence;
use punctual_core::protocol::Assignment;
use sha2::{Digest, Sha256};

/// A trace. Never all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

impl TraceId {
    /// The trace of an attempt's instance: the same for all its attempts, another one for each rerun.
    pub fn of(assignment: &Assignment) -> TraceId {
        let mut digest = Sha256::new();
        digest.update(b"punctual instance\0");
        digest.update(assignment.instance.0.to_be_bytes());
        digest.update(assignment.fire_time.0.to_be_bytes());
        digest.update(assignment.task.0.to_be_bytes());
        digest.update(assignment.task_name.as_bytes());
        let digest = digest.finalize();
        let mut trace = [0; 16];
        trace.copy_from_slice(&digest[..16]);
        // All zeros would be none; one of 2^128 is.
        trace[15] |= u8::from(trace == [0; 16]);
        TraceId(trace)
    }

    /// The value of `traceparent` for what an attempt does: version, trace, the attempt as the parent of whatever comes, sampled.
    pub fn parent(self, fence: Fence) -> String {
        let mut digest = Sha256::new();
        digest.update(b"punctual attempt\0");
        digest.update(self.0);
        digest.update(fence.0.to_be_bytes());
        let digest = digest.finalize();
        let mut span = [0; 8];
        span.copy_from_slice(&digest[..8]);
        let span = u64::from_be_bytes(span).max(1);
        format!("00-{self}-{span:016x}-01")
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::definition::{Handler, TimeoutPolicy};
    use punctual_core::ids::{InstanceId, TaskId, Version};
    use punctual_core::time::Timestamp;

    use super::*;

    #[test]
    fn an_instance_is_one_trace_and_each_attempt_a_span_of_it() {
        let attempt = |instance: u64, fence: u64| Assignment {
            instance: InstanceId(instance),
            attempt: fence as u32,
            fence: Fence(fence),
            task: TaskId(1),
            task_name: "每日".into(),
            version: Version(1),
            fire_time: Timestamp(0),
            ordinal: 0,
            run: 1,
            shard: None,
            map: None,
            node: None,
            handler: Handler { name: "h".into(), config: "{}".into() },
            payload: None,
            timeout: TimeoutPolicy::default(),
        };
        let (first, again, other) = (TraceId::of(&attempt(1, 1)), TraceId::of(&attempt(1, 2)), TraceId::of(&attempt(2, 1)));
        assert!(first == again && first != other && first != TraceId([0; 16]));
        let parents = [first.parent(Fence(1)), first.parent(Fence(2))];
        assert_ne!(parents[0], parents[1]);
        for parent in parents {
            let parts: Vec<_> = parent.split('-').collect();
            assert_eq!((parts[0], parts[1], parts[2].len(), parts[3]), ("00", &*first.to_string(), 16, "01"));
        }
    }
}
