//! Seats of those who listen to something: so many in all, and of these half at most for one person, who can't keep all others out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// All seats. Clones are of the same.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_person: FxHashMap<Arc<str>, usize>,
}

impl Seats {
    /// So many.
    pub(crate) fn new(most: usize) -> Self {
        Seats { most, taken: Arc::default() }
    }

    /// Takes one. `None`: all are taken, or half of them by this person.
    pub(crate) fn take(&self, person: &Arc<str>) -> Option<Seat> {
        let mut taken = self.lock();
        let own = taken.by_person.get(person).copied().unwrap_or(0);
        if taken.all >= self.most || own >= self.most / 2 {
            return None;
        }
        taken.all += 1;
        taken.by_person.insert(person.clone(), own + 1);
        Some(Seat { seats: self.clone(), person: person.clone() })
    }

    /// Whether nobody has one.
    pub(crate) fn are_free(&self) -> bool {
        self.lock().all == 0
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them; it is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Seats,
    person: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.all -= 1;
        let own = taken.by_person.get_mut(&self.person).expect("whoever has a seat is counted");
        *own -= 1;
        if *own == 0 {
            taken.by_person.remove(&self.person);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_has_half_of_them_at_most() {
        let (seats, names) = (Seats::new(4), ["ann", "bob", "eve"].map(Arc::<str>::from));
        let take = |person: usize| seats.take(&names[person]);
        let mut anns = vec![take(0).unwrap(), take(0).unwrap()];
        assert!(take(0).is_none(), "she has her half");
        let bobs = [take(1).unwrap(), take(1).unwrap()];
        assert!(take(2).is_none(), "all are taken");
        anns.pop();
        let eves = take(2).unwrap();
        assert!(take(0).is_none(), "it was her place, and is another's now");
        drop((anns, bobs, eves));
        assert!(seats.are_free() && seats.lock().by_person.is_empty());
    }
}
