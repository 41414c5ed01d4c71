//! The places that connections to the API have: who gives way when all of them are taken.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Connections at once; another one waits where none gives way. Half of the descriptors that most systems allow a process.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// For so long a new connection may have nothing of a request, and any only a part of one, without giving way: most come at once. Short, so that
/// those who come again each time that they are sent away fill no queue in front of the others.
const ASKING_TIME: Duration = Duration::from_millis(200);
/// For so long an answer may take without its connection giving way: they take less.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// All places. Clones are of the same.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    taken: Mutex<Taken>,
    /// Something has changed that somebody may wait for.
    changed: Notify,
}

#[derive(Debug)]
struct Taken {
    /// How many there are.
    most: usize,
    next: u64,
    /// In the order in which they came.
    by_number: BTreeMap<u64, Connected>,
    /// Who waits for a place, where all are taken.
    newcomer: Option<IpAddr>,
}

/// What a connection does, in the order in which they give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has been answered, and has asked for nothing since.
    Idle,
    /// It has come, and has asked for nothing yet.
    New,
    /// The body of its request is on its way.
    Receiving,
    /// Its request is there, and the answer is not written.
    Answering,
}

#[derive(Debug)]
struct Connected {
    address: IpAddr,
    phase: Phase,
    since: Instant,
    gives_way: Arc<Notify>,
}

impl Connected {
    /// From when on it may be asked to give way.
    fn keeps_until(&self) -> Instant {
        match self.phase {
            Phase::Idle => self.since,
            Phase::New | Phase::Receiving => self.since + ASKING_TIME,
            Phase::Answering => self.since + ANSWER_TIME,
        }
    }
}

impl Taken {
    /// Who gives way to a newcomer, or from when on somebody does. It is one of an address that has its fair share of all places, or more, so
    /// that nobody is kept out by what others open: by its phase, then of the address that has most, then the one that has been so for longest.
    fn first_to_go(&self, newcomer: IpAddr, now: Instant) -> Result<u64, Instant> {
        let mut counts = FxHashMap::<IpAddr, usize>::from_iter([(newcomer, 0)]);
        self.by_number.values().for_each(|connected| *counts.entry(connected.address).or_default() += 1);
        let share = self.most / counts.len();
        let greedy = || self.by_number.iter().filter(|(_, connected)| counts[&connected.address] >= share);
        let rank = |connected: &Connected| (connected.phase, Reverse(counts[&connected.address]), connected.since);
        let goes = greedy().filter(|(_, connected)| connected.keeps_until() <= now).min_by_key(|(_, connected)| rank(connected));
        // Where all places are taken, some address has its share of them.
        goes.map(|(number, _)| *number).ok_or_else(|| greedy().map(|(_, connected)| connected.keeps_until()).min().unwrap_or(now))
    }

    /// Frees a place for the newcomer, or says from when on one may be free.
    fn make_room(&mut self, now: Instant) -> Result<(), Instant> {
        if let Some(newcomer) = self.newcomer
            && self.by_number.len() >= self.most
        {
            let goes = self.first_to_go(newcomer, now)?;
            if let Some(connected) = self.by_number.remove(&goes) {
                connected.gives_way.notify_one();
            }
        }
        Ok(())
    }
}

impl Places {
    /// So many.
    pub(super) fn new(most: usize) -> Self {
        let taken = Taken { most, next: 0, by_number: BTreeMap::new(), newcomer: None };
        Places(Arc::new(Inner { taken: Mutex::new(taken), changed: Notify::new() }))
    }

    /// Takes a place, when there is one. One waits at a time.
    pub(super) async fn take(&self, address: IpAddr) -> Place {
        loop {
            // Whoever changes something from here on is heard.
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            match self.try_take(address, Instant::now()) {
                Ok(place) => return place,
                Err(until) => drop(tokio::time::timeout_at(until, changed).await),
            }
        }
    }

    /// Takes a place, or says when to ask again.
    fn try_take(&self, address: IpAddr, now: Instant) -> Result<Place, Instant> {
        let mut taken = self.lock();
        taken.newcomer = Some(address);
        taken.make_room(now)?;
        taken.newcomer = None;
        let (number, gives_way) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        let connected = Connected { address, phase: Phase::New, since: now, gives_way: gives_way.clone() };
        taken.by_number.insert(number, connected);
        drop(taken);
        Ok(Place { places: self.clone(), number, gives_way })
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

    /// What the connection does from now on.
    pub(super) fn enters(&self, phase: Phase) {
        let (mut taken, now) = (self.places.lock(), Instant::now());
        if let Some(connected) = taken.by_number.get_mut(&self.number) {
            (connected.phase, connected.since) = (phase, now);
        }
        // At once: the next request may be there already, and the next moment too late.
        if taken.make_room(now).is_ok() {
            self.places.0.changed.notify_one();
        }
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
        let (places, now) = (Places::new(CONNECTIONS_MAX), Instant::now());
        let modest = places.try_take(address(1), now).unwrap();
        let mut greedy: Vec<_> = (1..CONNECTIONS_MAX).map(|_| places.try_take(address(2), now).unwrap()).collect();
        greedy[0].enters(Phase::Answering);
        assert_eq!(places.try_take(address(3), now).unwrap_err(), now + ASKING_TIME, "its request may be on its way");
        let next = places.try_take(address(3), now + ASKING_TIME).unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn requests_keep_their_places_but_not_for_ever() {
        let (places, now) = (Places::new(CONNECTIONS_MAX), Instant::now());
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.try_take(address(1), now).unwrap()).collect();
        all.iter().for_each(|place| place.enters(Phase::Answering));
        assert_eq!(places.try_take(address(2), now).unwrap_err(), now + ANSWER_TIME);
        all[7].enters(Phase::Idle);
        let taken = places.take(address(2)).await;
        assert!(!numbers(&places).contains(&all[7].number));
        taken.enters(Phase::Answering);
        assert!(places.try_take(address(3), now).is_err());
        drop(places.take(address(3)).await);
        assert_eq!(now.elapsed().as_secs(), ANSWER_TIME.as_secs(), "by time alone");
        all[0].given_up().await;
    }

    /// However often they ask: after each answer they may be sent away, and no moment is missed.
    #[tokio::test(start_paused = true)]
    async fn quick_requests_without_end_keep_nobody_out() {
        let (places, begun) = (Places::new(CONNECTIONS_MAX), Instant::now());
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.try_take(address(1), begun).unwrap()).collect();
        all.iter().for_each(|place| place.enters(Phase::Answering));
        let waits = tokio::spawn({
            let places = places.clone();
            async move { places.take(address(2)).await }
        });
        tokio::task::yield_now().await;
        // It has the next request already.
        all[3].enters(Phase::Idle);
        all[3].enters(Phase::Answering);
        all[3].given_up().await;
        let newcomer = waits.await.unwrap();
        assert!(begun.elapsed() < ASKING_TIME && numbers(&places).contains(&newcomer.number));
        assert_eq!(numbers(&places).len(), CONNECTIONS_MAX, "one has gone for the other");
    }

    /// Whoever comes again each time that it is sent away has no more than its share while others want theirs.
    #[tokio::test(start_paused = true)]
    async fn slow_bodies_keep_nobody_out() {
        let (places, begun) = (Places::new(CONNECTIONS_MAX), Instant::now());
        let flood = || async {
            let place = places.take(address(1)).await;
            place.enters(Phase::Receiving);
            place
        };
        let mut slow = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            slow.push(flood().await);
        }
        let honest = places.take(address(2)).await;
        assert!(begun.elapsed() <= ASKING_TIME + Duration::from_millis(2), "{:?}", begun.elapsed());
        // It has sent nothing yet, and is not who goes.
        for _ in 0..2 * CONNECTIONS_MAX {
            slow.push(flood().await);
            assert!(numbers(&places).contains(&honest.number));
        }
    }
}
