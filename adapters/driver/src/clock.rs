//! The machine's own clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use punctual_core::time::{Monotonic, Now, Timestamp};

use crate::ports::Clock;

/// The clock of a store that lives on this machine: the machine's own.
#[derive(Clone, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose monotonic side begins now.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clocks")]
    pub fn new() -> Self {
        SystemClock { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clocks")]
    fn now(&self) -> Now {
        let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        let monotonic = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { wall: Timestamp(wall), monotonic: Monotonic(monotonic) }
    }
}
