//! The machine's own clocks, and the store's as this machine knows it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use punctual_core::time::{Millis, Monotonic, Now, Timestamp};

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

/// The store's clock, as far as it is known here: what it said last, carried on by the machine's monotonic clock. So the machine's own wall
/// clock decides nothing, whatever is done to it. Until the store has spoken, and where it has no clock of its own, it is the machine's.
///
/// An answer says what the store's clock showed at some moment between question and answer. This clock takes it for the moment of the
/// answer, so it is behind the store's by at most the way of the answer, never ahead; of several answers the one that was quickest counts,
/// as long as the others don't contradict it.
#[derive(Debug)]
pub struct StoreClock<C> {
    own: Arc<C>,
    known: Mutex<Option<Known>>,
}

/// What is known of the store's clock.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// What it showed, or a little more,
    showed: Timestamp,
    /// at this moment of the monotonic clock,
    at: Monotonic,
    /// and how much more at most.
    within: Millis,
}

/// A clock that is known within this is known well.
const WELL: Millis = Millis(1_000);

impl<C: Clock> StoreClock<C> {
    /// A clock of which the store has not told anything yet.
    pub fn new(own: Arc<C>) -> Self {
        StoreClock { own, known: Mutex::new(None) }
    }

    /// The store answered, to a question of that moment, that its clock shows `told`.
    pub fn told(&self, told: Timestamp, asked_at: Monotonic) {
        let now = self.own.now().monotonic;
        let latest = told.saturating_add(now.since(asked_at));
        let within = now.since(asked_at);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *known {
            Some(known) if (told..=latest).contains(&known.showed.saturating_add(now.since(known.at))) => {
                known.within = known.within.min(within);
            }
            known => *known = Some(Known { showed: told, at: now, within }),
        }
    }

    /// Whether the store's clock is known within a second. While answers take longer than that, it may be behind by as much, and what is
    /// fired then is late.
    pub fn is_known_well(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|known| known.within <= WELL)
    }
}

impl<C: Clock> Clock for StoreClock<C> {
    fn now(&self) -> Now {
        let own = self.own.now();
        match *self.known.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(known) => Now { wall: known.showed.saturating_add(own.monotonic.since(known.at)), monotonic: own.monotonic },
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Set(Mutex<(i64, u64)>);

    impl Clock for Set {
        fn now(&self) -> Now {
            let (wall, monotonic) = *self.0.lock().expect("not poisoned");
            Now { wall: Timestamp(wall), monotonic: Monotonic(monotonic) }
        }
    }

    fn set(wall: i64, monotonic: u64) -> (Arc<Set>, StoreClock<Set>) {
        let own = Arc::new(Set(Mutex::new((wall, monotonic))));
        (own.clone(), StoreClock::new(own))
    }

    #[test]
    fn the_machines_wall_clock_counts_until_the_store_has_spoken() {
        let (own, clock) = set(500, 10);
        assert_eq!(clock.now().wall, Timestamp(500));
        clock.told(Timestamp(90_000), Monotonic(6));
        assert_eq!(clock.now().wall, Timestamp(90_000));
        *own.0.lock().expect("not poisoned") = (-7, 25);
        assert_eq!(clock.now(), Now { wall: Timestamp(90_015), monotonic: Monotonic(25) });
    }

    #[test]
    fn it_is_never_ahead_and_the_quickest_answer_counts() {
        let (own, clock) = set(0, 100);
        // The store's clock is the monotonic one, plus 1 000. The first answer took 40 ms to come back.
        clock.told(Timestamp(1_060), Monotonic(50));
        assert_eq!(clock.now().wall, Timestamp(1_060));
        own.0.lock().expect("not poisoned").1 = 200;
        clock.told(Timestamp(1_199), Monotonic(190));
        assert_eq!(clock.now().wall, Timestamp(1_199), "a better answer is followed");
        own.0.lock().expect("not poisoned").1 = 300;
        clock.told(Timestamp(1_210), Monotonic(205));
        assert_eq!(clock.now().wall, Timestamp(1_299), "a worse one that agrees is not");
    }

    #[test]
    fn it_is_known_well_once_an_answer_came_within_a_second() {
        let (own, clock) = set(0, 10_000);
        assert!(!clock.is_known_well());
        clock.told(Timestamp(90_000), Monotonic(5_000));
        assert!(!clock.is_known_well());
        own.0.lock().expect("not poisoned").1 = 11_000;
        clock.told(Timestamp(91_000), Monotonic(10_000));
        assert!(clock.is_known_well());
    }

    #[test]
    fn a_store_whose_clock_was_set_is_followed() {
        let (own, clock) = set(0, 100);
        clock.told(Timestamp(1_100), Monotonic(99));
        own.0.lock().expect("not poisoned").1 = 200;
        clock.told(Timestamp(701), Monotonic(198));
        assert_eq!(clock.now().wall, Timestamp(701));
        own.0.lock().expect("not poisoned").1 = 300;
        clock.told(Timestamp(5_000), Monotonic(299));
        assert_eq!(clock.now().wall.since(Timestamp(5_000)), Millis::ZERO);
    }
}
