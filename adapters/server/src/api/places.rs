//! The places that connections to the API have: who gives way when all of them are taken.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Most connections at once; another one waits where none gives way. Half of the descriptors that most systems allow a process.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// For so long a request keeps its place at least: answers take less, and who sends a body byte by byte is not waited for.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// All places. Clones are of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<Taken>,
    /// Something has changed that somebody may wait for.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// In the order in which they came.
    by_number: BTreeMap<u64, Connected>,
}

#[derive(Debug)]
struct Connected {
    address: IpAddr,
    /// Since when it waits for a request; or since when it has one.
    since: Instant,
    has_request: bool,
    gives_way: Arc<Notify>,
}

impl Taken {
    /// Who gives way now: whoever waits for a request, else a request that takes long; of the address that has most of these, the one that has
    /// been so for longest. Of an address alone that is as good as any; of several, those who have few connections keep them.
    fn first_to_go(&self, now: Instant) -> Option<u64> {
        let waiting = |connected: &Connected| !connected.has_request;
        let long = |connected: &Connected| connected.has_request && now.duration_since(connected.since) >= REQUEST_TIME;
        self.first_of(waiting).or_else(|| self.first_of(long))
    }

    fn first_of(&self, may_go: impl Fn(&Connected) -> bool) -> Option<u64> {
        let mut counts = FxHashMap::<IpAddr, usize>::default();
        self.by_number.values().for_each(|connected| *counts.entry(connected.address).or_default() += 1);
        let those = self.by_number.iter().filter(|(_, connected)| may_go(connected));
        let rank = |connected: &Connected| (std::cmp::Reverse(counts[&connected.address]), connected.since);
        those.min_by_key(|(number, connected)| (rank(connected), **number)).map(|(number, _)| *number)
    }
}

impl Places {
    /// Takes a place, when there is one.
    pub(super) async fn take(&self, address: IpAddr) -> Place {
        loop {
            // Whoever changes something from here on is heard.
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if let Some(place) = self.try_take(address, Instant::now()) {
                return place;
            }
            // A request that has begun comes to be a long one by time alone.
            let _ = tokio::time::timeout(Duration::from_secs(1), changed).await;
        }
    }

    fn try_take(&self, address: IpAddr, now: Instant) -> Option<Place> {
        let mut taken = self.lock();
        if taken.by_number.len() >= CONNECTIONS_MAX {
            let goes = taken.first_to_go(now)?;
            let connected = taken.by_number.remove(&goes)?;
            connected.gives_way.notify_one();
        }
        let (number, gives_way) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        taken.by_number.insert(number, Connected { address, since: now, has_request: false, gives_way: gives_way.clone() });
        drop(taken);
        Some(Place { places: self.clone(), number, gives_way })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection; it is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    number: u64,
    gives_way: Arc<Notify>,
}

impl Place {
    /// Ends when another one has this place.
    pub(super) async fn given_up(&self) {
        self.gives_way.notified().await;
    }

    /// A request has come.
    pub(super) fn begins(&self) {
        self.becomes(true);
    }

    /// Its answer is written.
    pub(super) fn ends(&self) {
        self.becomes(false);
    }

    fn becomes(&self, has_request: bool) {
        if let Some(connected) = self.places.lock().by_number.get_mut(&self.number) {
            (connected.has_request, connected.since) = (has_request, Instant::now());
        }
        self.places.0.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_number.remove(&self.number);
        self.places.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn numbers(places: &Places) -> Vec<u64> {
        places.lock().by_number.keys().copied().collect()
    }

    #[tokio::test]
    async fn whoever_waits_gives_way_to_the_next_and_the_greediest_first() {
        let (places, now) = (Places::default(), Instant::now());
        let modest = places.try_take(address(1), now).unwrap();
        let mut greedy: Vec<_> = (1..CONNECTIONS_MAX).map(|_| places.try_take(address(2), now).unwrap()).collect();
        greedy[0].begins();
        let next = places.try_take(address(3), now).unwrap();
        assert_eq!(numbers(&places).len(), CONNECTIONS_MAX);
        assert!(numbers(&places).contains(&modest.number) && numbers(&places).contains(&greedy[0].number), "a request goes on");
        assert!(!numbers(&places).contains(&greedy[1].number), "the oldest that waits, of the one that has most");
        greedy[1].given_up().await;
        assert!(tokio::time::timeout(Duration::ZERO, next.given_up()).await.is_err());
        // What has gone is no place any more, and does not free the one that followed it.
        drop(greedy.remove(1));
        assert_eq!(numbers(&places).len(), CONNECTIONS_MAX);
        drop(next);
        assert_eq!(numbers(&places).len(), CONNECTIONS_MAX - 1);
    }

    #[tokio::test]
    async fn requests_keep_their_places_but_not_for_ever() {
        let (places, now) = (Places::default(), Instant::now());
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.try_take(address(1), now).unwrap()).collect();
        all.iter().for_each(Place::begins);
        assert!(places.try_take(address(2), now).is_none());
        all[7].ends();
        let taken = places.take(address(2)).await;
        assert!(!numbers(&places).contains(&all[7].number));
        taken.begins();
        assert!(places.try_take(address(3), now).is_none());
        assert!(places.try_take(address(3), now + 2 * REQUEST_TIME).is_some());
        all[0].given_up().await;
    }
}
