//! How long to wait before an address is dialled again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::limits::{REDIAL, REDIAL_EAGER, REDIAL_EAGER_FOR, REDIAL_MIN, REDIAL_STABLE_AFTER};

/// Capped, exponential, with full jitter: workers that lost a replica together don't come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    /// How long it has been away.
    away: Duration,
    random: RandomState,
    drawn: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { bound: REDIAL[0], away: Duration::ZERO, random: RandomState::new(), drawn: 0 }
    }
}

impl Backoff {
    /// After a dialling, or a connection, that took this long.
    pub(crate) fn next(&mut self, lasted: Duration) -> Duration {
        if lasted >= REDIAL_STABLE_AFTER {
            (self.bound, self.away) = (REDIAL[0], Duration::ZERO);
        }
        let wait = self.draw(self.bound).max(REDIAL_MIN);
        self.away += wait;
        self.bound = (self.bound * 2).min(if self.away < REDIAL_EAGER_FOR { REDIAL_EAGER } else { REDIAL[1] });
        wait
    }

    /// At least the first, and up to the second on top.
    pub(crate) fn between(&mut self, [least, more]: [Duration; 2]) -> Duration {
        least + self.draw(more)
    }

    fn draw(&mut self, bound: Duration) -> Duration {
        self.drawn += 1;
        // The keys of the hasher are random, and that is all the randomness that is needed.
        let share = self.random.hash_one(self.drawn) as f64 / u64::MAX as f64;
        bound.mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_start_anew_after_a_connection_that_lasted() {
        let mut backoff = Backoff::default();
        let mut away = Duration::ZERO;
        while away < REDIAL_EAGER_FOR {
            let wait = backoff.next(Duration::ZERO);
            assert!((REDIAL_MIN..=REDIAL_EAGER).contains(&wait), "{wait:?}");
            away += wait;
        }
        for _ in 0..100 {
            let wait = backoff.next(Duration::ZERO);
            assert!((REDIAL_MIN..=REDIAL[1]).contains(&wait), "{wait:?}");
        }
        assert_eq!(backoff.bound, REDIAL[1]);
        assert!(backoff.next(REDIAL_STABLE_AFTER) <= REDIAL[0]);
        assert_eq!(backoff.bound, REDIAL[0] * 2);
    }

    #[test]
    fn waits_differ() {
        let (mut one, mut other) = (Backoff::default(), Backoff::default());
        let waits = |backoff: &mut Backoff| (0..20).map(|_| backoff.next(Duration::ZERO)).collect::<Vec<_>>();
        assert_ne!(waits(&mut one), waits(&mut other));
    }
}
