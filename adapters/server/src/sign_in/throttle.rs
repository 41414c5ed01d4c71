//! How often somebody may try to sign in: by name, and by address. Each has so many tries at once, and one more every so often.
//!
//! The memory is bounded: a fixed number of places, which names and addresses share by their hash under a random key. Who makes up names
//! or addresses fills nothing and pushes nobody out; two that share a place share its tries.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::origin::network;

/// Places of names, and of addresses.
const PLACES: usize = 1 << 14;

/// So many tries at once, and one more each `interval_ms`.
#[derive(Clone, Copy, Debug)]
struct Rate {
    at_once: u64,
    interval_ms: u64,
}

const OF_NAME: Rate = Rate { at_once: 10, interval_ms: 15_000 };
/// Many may come from one address.
const OF_ADDRESS: Rate = Rate { at_once: 40, interval_ms: 3_000 };

/// When each place is as if it had never been used, in milliseconds.
#[derive(Debug)]
struct Places {
    rate: Rate,
    clear_at: Vec<u64>,
}

impl Places {
    fn new(rate: Rate) -> Self {
        Places { rate, clear_at: vec![0; PLACES] }
    }

    /// How long until the place has a try.
    fn wait(&self, place: usize, now: u64) -> u64 {
        let full = self.rate.at_once * self.rate.interval_ms;
        let next = self.clear_at[place].max(now) + self.rate.interval_ms;
        next.saturating_sub(now + full)
    }

    fn take(&mut self, place: usize, now: u64) {
        self.clear_at[place] = self.clear_at[place].max(now) + self.rate.interval_ms;
    }

    fn give_back(&mut self, place: usize) {
        self.clear_at[place] = self.clear_at[place].saturating_sub(self.rate.interval_ms);
    }
}

/// Counts tries.
#[derive(Debug)]
pub(crate) struct Throttle {
    names: Mutex<Places>,
    addresses: Mutex<Places>,
    hasher: std::hash::RandomState,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Throttle {
            names: Mutex::new(Places::new(OF_NAME)),
            addresses: Mutex::new(Places::new(OF_ADDRESS)),
            hasher: std::hash::RandomState::new(),
        }
    }

    /// Takes a try of a name and of an address, before the password is looked at: what is tried at once counts as well.
    ///
    /// # Errors
    ///
    /// How long until there is one.
    pub(crate) fn take(&self, name: &str, address: Option<IpAddr>, now: Duration) -> Result<(), Duration> {
        let now = now.as_millis() as u64;
        let (name, address) = (self.place(&name), address.map(|address| self.place(&network(address))));
        // Both under their locks, so that what is refused takes none.
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = names.wait(name, now).max(address.map_or(0, |address| addresses.wait(address, now)));
        if wait > 0 {
            return Err(Duration::from_millis(wait));
        }
        names.take(name, now);
        if let Some(address) = address {
            addresses.take(address, now);
        }
        Ok(())
    }

    /// Gives a try back that was right.
    pub(crate) fn give_back(&self, name: &str, address: Option<IpAddr>) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.place(&name));
        if let Some(address) = address {
            self.addresses.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.place(&network(address)));
        }
    }

    fn place(&self, of: &impl std::hash::Hash) -> usize {
        self.hasher.hash_one(of) as usize % PLACES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn address(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn a_name_has_so_many_tries_wherever_they_come_from() {
        let throttle = Throttle::new();
        for number in 0..10 {
            assert_eq!(throttle.take("ann", address(&format!("10.0.{number}.1")), at(5)), Ok(()));
        }
        assert_eq!(throttle.take("ann", address("10.9.9.9"), at(5)), Err(at(15_000)));
        assert_eq!(throttle.take("ann", address("10.9.9.9"), at(15_004)), Err(at(1)));
        assert_eq!(throttle.take("ann", address("10.9.9.9"), at(15_005)), Ok(()));
        assert!(throttle.take("ann", None, at(15_005)).is_err());
    }

    #[test]
    fn an_address_has_so_many_tries_whatever_the_names() {
        let throttle = Throttle::new();
        let tries = (0..1_000).filter(|number| throttle.take(&format!("user {number}"), address("10.0.0.1"), at(0)).is_ok()).count();
        assert_eq!(tries, 40);
        assert_eq!(throttle.take("another", address("10.0.0.2"), at(0)), Ok(()));
        let of_network =
            (0..1_000).filter(|number| throttle.take(&format!("v6 {number}"), address(&format!("2001:db8::{number:x}")), at(0)).is_ok());
        assert_eq!(of_network.count(), 40);
        // A mapped address is the one that it stands for.
        assert!(throttle.take("mapped", address("::ffff:10.0.0.1"), at(0)).is_err());
    }

    #[test]
    fn what_was_right_does_not_count() {
        let throttle = Throttle::new();
        for _ in 0..100 {
            assert_eq!(throttle.take("ann", address("10.0.0.1"), at(0)), Ok(()));
            throttle.give_back("ann", address("10.0.0.1"));
        }
    }

    #[test]
    fn what_is_refused_costs_nothing() {
        let throttle = Throttle::new();
        for _ in 0..50 {
            let _ = throttle.take("ann", address("10.0.0.1"), at(0));
        }
        let left = (0..100).filter(|number| throttle.take(&format!("user {number}"), address("10.0.0.1"), at(0)).is_ok()).count();
        assert_eq!(left, 30, "ten were taken");
    }
}
