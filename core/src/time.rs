//! Instants and durations, in whole milliseconds.
//!
//! There are two clocks and they never mix. *Wall* time ([`Timestamp`]) says when a task is due; it can jump when somebody sets the clock.
//! *Monotonic* time ([`Monotonic`]) says how long something has lasted; leases, heartbeats, timeouts and backoffs are measured on it.
//! Core reads neither: whoever drives it hands in a [`Now`] with each event.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A duration in milliseconds. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// No time at all.
    pub const ZERO: Millis = Millis(0);

    /// A duration of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Millis(secs.saturating_mul(1_000))
    }

    /// The sum, or the largest duration where it would overflow.
    pub const fn saturating_add(self, other: Millis) -> Self {
        Millis(self.0.saturating_add(other.0))
    }

    /// The product, or the largest duration where it would overflow.
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Millis(self.0.saturating_mul(factor))
    }
}

/// A point on the wall clock: milliseconds since 1970-01-01T00:00:00Z, negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The earliest instant that Punctual handles, -009999-01-02T01:59:59Z as jiff has it.
    pub const MIN: Timestamp = Timestamp(-377_705_023_201_000);
    /// The latest instant that Punctual handles, 9999-12-30T22:00:00Z as jiff has it.
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000);

    /// How long after `earlier` this is; zero where it is not after it.
    pub const fn since(self, earlier: Timestamp) -> Millis {
        let distance = self.0.saturating_sub(earlier.0);
        Millis(if distance < 0 { 0 } else { distance as u64 })
    }

    /// The instant `duration` later, at most [`Timestamp::MAX`].
    pub const fn saturating_add(self, duration: Millis) -> Self {
        let millis = if duration.0 > i64::MAX as u64 { i64::MAX } else { duration.0 as i64 };
        let sum = self.0.saturating_add(millis);
        if sum > Self::MAX.0 { Self::MAX } else { Timestamp(sum) }
    }

    /// The instant `duration` earlier, at least [`Timestamp::MIN`].
    pub const fn saturating_sub(self, duration: Millis) -> Self {
        let millis = if duration.0 > i64::MAX as u64 { i64::MAX } else { duration.0 as i64 };
        let difference = self.0.saturating_sub(millis);
        if difference < Self::MIN.0 { Self::MIN } else { Timestamp(difference) }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with milliseconds only where there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => timestamp.fmt(f),
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

/// A point on a clock that never jumps: milliseconds since an origin of the process's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// How long after `earlier` this is; zero where it is not after it.
    pub const fn since(self, earlier: Monotonic) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for Monotonic {
    type Output = Monotonic;
    fn add(self, duration: Millis) -> Monotonic {
        Monotonic(self.0.saturating_add(duration.0))
    }
}

impl AddAssign<Millis> for Monotonic {
    fn add_assign(&mut self, duration: Millis) {
        *self = *self + duration;
    }
}

impl Sub<Millis> for Monotonic {
    type Output = Monotonic;
    fn sub(self, duration: Millis) -> Monotonic {
        Monotonic(self.0.saturating_sub(duration.0))
    }
}

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The cluster's wall clock, which is the store's.
    pub wall: Timestamp,
    /// This node's monotonic clock.
    pub monotonic: Monotonic,
}
