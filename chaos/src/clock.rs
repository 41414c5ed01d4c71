//! One clock for all sources: the machine's monotonic one, which nobody sets and every process can read.

use std::time::{SystemTime, UNIX_EPOCH};

use punctual_core::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, in microseconds. The same in every process of the machine, whatever its wall clock is made to say.
pub fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// This process's wall clock, in microseconds since 1970.
pub fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The beginning of a run, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// By the monotonic clock, in microseconds.
    pub monotonic_us: i64,
    /// By the machine's wall clock, in microseconds since 1970.
    pub wall_us: i64,
}

impl Origin {
    /// Now; at a whole millisecond of the wall clock, so that both clocks are rounded alike.
    pub fn now() -> Origin {
        let (monotonic_us, wall_us) = (monotonic_us(), wall_us());
        let part = wall_us.rem_euclid(1_000);
        Origin { monotonic_us: monotonic_us - part, wall_us: wall_us - part }
    }

    /// Microseconds since the beginning; less than 0 before it.
    pub fn since(self) -> i64 {
        monotonic_us() - self.monotonic_us
    }

    /// Milliseconds since the beginning; 0 before it.
    pub fn at_ms(self) -> u64 {
        millis(self.since())
    }

    /// When something was by the monotonic clock, in microseconds since the beginning.
    pub fn of_monotonic(self, us: i64) -> i64 {
        us - self.monotonic_us
    }

    /// When something was by the machine's wall clock, in microseconds since the beginning.
    pub fn of_wall(self, us: i64) -> i64 {
        us - self.wall_us
    }

    /// What an untouched wall clock says so many milliseconds after the beginning.
    pub fn wall(self, at_ms: u64) -> Timestamp {
        Timestamp(self.wall_us.div_euclid(1_000) + at_ms as i64)
    }

    /// How far the machine's wall clock has moved against the monotonic one since the beginning, in microseconds.
    pub fn drift_us(self) -> i64 {
        (wall_us() - self.wall_us) - self.since()
    }
}

/// Microseconds as milliseconds, those before the beginning as 0.
pub fn millis(us: i64) -> u64 {
    u64::try_from(us.div_euclid(1_000)).unwrap_or(0)
}
