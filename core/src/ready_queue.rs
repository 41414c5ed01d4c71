//! The ready queue: what is ready to run and has no worker yet.
//!
//! One queue for each *route*, which is what its instances [need](Needs) of a worker, so that what nobody can run never blocks what
//! somebody can. Inside it three bands, and inside a band whoever has the lowest [`Place`]: the time at which it became ready, less
//! [`AGING_INTERVAL`](limits::AGING_INTERVAL) for each level of its task. That is aging without anybody's place being written again: one
//! that has waited so long has gained one level on what comes now. It gains beyond the highest level too, so it is passed over for a bounded
//! time only.
//!
//! The bands are served in turn by weight ([`Turn`]), so urgent work goes first and low work still moves. Each worker keeps a turn of its own:
//! what is weighed are its slots, whatever queue their work comes from.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;

use crate::definition::Band;
use crate::guard;
use crate::guard::Guard;
use crate::ids::InstanceId;
use crate::limits;
use crate::routing::Needs;
use crate::time::{Monotonic, Timestamp};

/// Of 21 instances that a worker is given while all bands are full, so many come from each.
const WEIGHTS: [u32; 3] = [16, 4, 1];

/// So many that want no worker any more are never worth a sweep.
const STALE_MIN: usize = 64;

/// Where an instance stands in its band: the lowest is first. It keeps its place for as long as it lives, so one that is given back or
/// tried again stands where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When it became ready, in milliseconds of the monotonic clock, before its beginning where an owner before this one saw it; less what its
    /// level is worth.
    key: i64,
    /// Of those that became ready together, the earlier fire time goes first.
    fire_time: Timestamp,
    /// The instance.
    pub instance: InstanceId,
}

impl Place {
    /// The place of an instance that became ready at `ready_at`, milliseconds of the monotonic clock.
    pub fn new(ready_at: i64, level: u8, fire_time: Timestamp, instance: InstanceId) -> Place {
        let head_start = i64::from(level).saturating_mul(limits::AGING_INTERVAL.0 as i64);
        Place { key: ready_at.saturating_sub(head_start), fire_time, instance }
    }
}

/// A monotonic instant as places count it.
pub fn ready_now(now: Monotonic) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

/// A route, by its number in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub usize);

/// Instances that wait for a worker.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    routes: Vec<Route>,
    by_needs: FxHashMap<Needs, RouteId>,
    /// The routes in which something waits.
    occupied: BTreeSet<RouteId>,
    len: usize,
    /// How many of them want no worker any more.
    stale: usize,
}

#[derive(Debug)]
struct Route {
    needs: Needs,
    bands: [BinaryHeap<Reverse<Place>>; 3],
}

impl ReadyQueue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an instance into its band. Answers its route where that is a new one, or a number that was another one's before.
    pub fn push(&mut self, needs: Needs, band: Band, place: Place) -> Option<RouteId> {
        let (id, is_new) = self.route_of(needs);
        let route = &mut self.routes[id.0];
        if route.is_empty() {
            self.occupied.insert(id);
        }
        route.bands[band.index()].push(Reverse(place));
        self.len += 1;
        is_new.then_some(id)
    }

    /// The routes in which something waits, in the order of their numbers.
    pub fn occupied(&self) -> impl Iterator<Item = RouteId> {
        self.occupied.iter().copied()
    }

    /// What instances of this route need of a worker.
    pub fn needs(&self, route: RouteId) -> &Needs {
        &self.routes[route.0].needs
    }

    /// How many wait in a route, for each band.
    pub fn waiting(&self, route: RouteId) -> [usize; 3] {
        self.routes[route.0].bands.each_ref().map(BinaryHeap::len)
    }

    /// Who is first in a band of a route.
    pub fn first(&self, route: RouteId, band: Band) -> Option<Place> {
        self.routes[route.0].bands[band.index()].peek().map(|Reverse(place)| *place)
    }

    /// Takes the first in a band of a route.
    pub fn pop(&mut self, route: RouteId, band: Band) -> Option<Place> {
        let of_route = &mut self.routes[route.0];
        let Reverse(place) = of_route.bands[band.index()].pop()?;
        self.len -= 1;
        if of_route.is_empty() {
            self.occupied.remove(&route);
        }
        Some(place)
    }

    /// Puts back what was just taken: it stays where it was.
    pub fn put_back(&mut self, route: RouteId, band: Band, place: Place) {
        self.routes[route.0].bands[band.index()].push(Reverse(place));
        self.occupied.insert(route);
        self.len += 1;
    }

    /// One of those that wait wants no worker any more; it is still handed out. True when they are so many that it is time for a
    /// [`retain`](Self::retain).
    pub fn forget_one(&mut self) -> bool {
        self.stale += 1;
        self.stale > STALE_MIN && self.stale > self.len / 2
    }

    /// One that was handed out wanted no worker any more.
    pub fn passed_over(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// Drops what `keep` doesn't want.
    pub fn retain(&mut self, mut keep: impl FnMut(InstanceId) -> bool) {
        for id in &self.occupied {
            for band in &mut self.routes[id.0].bands {
                band.retain(|Reverse(place)| keep(place.instance));
            }
        }
        let routes = &self.routes;
        self.occupied.retain(|id| !routes[id.0].is_empty());
        self.len = self.occupied.iter().map(|id| self.routes[id.0].len()).sum();
        self.stale = 0;
    }

    fn route_of(&mut self, needs: Needs) -> (RouteId, bool) {
        if let Some(id) = self.by_needs.get(&needs) {
            return (*id, false);
        }
        let route = Route { needs: needs.clone(), bands: Default::default() };
        let unused = if self.routes.len() < limits::ROUTES_KEPT_MAX { None } else { self.routes.iter().position(Route::is_empty) };
        let id = match unused {
            Some(index) => {
                self.by_needs.remove(&self.routes[index].needs);
                self.routes[index] = route;
                RouteId(index)
            }
            None => {
                self.routes.push(route);
                RouteId(self.routes.len() - 1)
            }
        };
        self.by_needs.insert(needs, id);
        (id, true)
    }
}

impl Route {
    fn len(&self) -> usize {
        self.bands.iter().map(BinaryHeap::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.bands.iter().all(BinaryHeap::is_empty)
    }
}

/// Whose turn it is among the bands. Whoever hands out slots serves the bands in their order, each as far as its turn
/// [allows](Self::allows), and [renews](Self::renew) the turn when none of those that wait is allowed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn([u32; 3]);

impl Default for Turn {
    fn default() -> Self {
        Turn(WEIGHTS)
    }
}

impl Turn {
    /// Whether the band may be served in this turn.
    pub fn allows(self, band: Band) -> bool {
        guard!(Guard::BandsTakeTurns, self.0[band.index()] > 0)
    }

    /// The band was served.
    pub fn take(&mut self, band: Band) {
        let left = &mut self.0[band.index()];
        *left = left.saturating_sub(1);
    }

    /// Begins a new turn.
    pub fn renew(&mut self) {
        self.0 = WEIGHTS;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn needs(handler: &str) -> Needs {
        Needs { handler: Arc::from(handler), routing: None, understands: Default::default(), worker: None }
    }

    fn place(ready_at: i64, level: u8, id: u64) -> Place {
        Place::new(ready_at, level, Timestamp(0), InstanceId(id))
    }

    /// One queue and one server.
    #[derive(Default)]
    struct Served {
        queue: ReadyQueue,
        turn: Turn,
    }

    impl Served {
        fn push(&mut self, band: Band, place: Place) {
            self.queue.push(needs("shell"), band, place);
        }

        fn serve(&mut self) -> Option<(Band, InstanceId)> {
            let route = self.queue.occupied().next()?;
            loop {
                for band in Band::ALL {
                    if self.turn.allows(band)
                        && let Some(place) = self.queue.pop(route, band)
                    {
                        self.turn.take(band);
                        return Some((band, place.instance));
                    }
                }
                self.turn.renew();
            }
        }
    }

    #[test]
    fn a_level_of_a_band_is_first_in_first_out_and_who_comes_back_keeps_its_place() {
        let mut served = Served::default();
        (1..=3).for_each(|id| served.push(Band::Normal, place(id as i64, 5, id)));
        assert_eq!(served.serve(), Some((Band::Normal, InstanceId(1))));
        served.push(Band::Normal, place(1, 5, 1));
        let taken: Vec<_> = std::iter::from_fn(|| served.serve()).map(|(_, id)| id.0).collect();
        assert_eq!(taken, [1, 2, 3]);
        assert!(served.queue.is_empty());
    }

    #[test]
    fn a_higher_level_goes_first_and_one_that_has_waited_has_gained() {
        let interval = limits::AGING_INTERVAL.0 as i64;
        let mut served = Served::default();
        served.push(Band::Normal, place(0, 5, 1));
        served.push(Band::Normal, place(0, 6, 2));
        served.push(Band::Normal, place(interval - 1, 6, 3));
        served.push(Band::Normal, place(interval, 6, 4));
        served.push(Band::Normal, place(interval + 1, 6, 5));
        let taken: Vec<_> = std::iter::from_fn(|| served.serve()).map(|(_, id)| id.0).collect();
        assert_eq!(taken, [2, 3, 1, 4, 5], "a tie is the older one's");
    }

    #[test]
    fn of_those_that_became_ready_together_the_earlier_fire_time_goes_first() {
        let mut served = Served::default();
        served.push(Band::Normal, Place::new(9, 5, Timestamp(2_000), InstanceId(1)));
        served.push(Band::Normal, Place::new(9, 5, Timestamp(1_000), InstanceId(2)));
        assert_eq!(served.serve(), Some((Band::Normal, InstanceId(2))));
    }

    #[test]
    fn urgent_goes_first_and_low_still_moves() {
        let mut served = Served::default();
        for id in 0..100 {
            Band::ALL.into_iter().for_each(|band| served.push(band, place(0, 5, id)));
        }
        let taken: Vec<_> = (0..42).filter_map(|_| served.serve()).map(|(band, _)| band).collect();
        assert_eq!(taken[0], Band::Urgent);
        let of = |band| taken.iter().filter(|taken| **taken == band).count();
        assert_eq!(Band::ALL.map(of), [32, 8, 2], "two turns by weight");
    }

    #[test]
    fn what_needs_something_else_waits_elsewhere() {
        let mut queue = ReadyQueue::default();
        let nobody = queue.push(needs("nobody"), Band::Urgent, place(0, 5, 1)).expect("a new route");
        let shell = queue.push(needs("shell"), Band::Low, place(0, 5, 2)).expect("a new route");
        assert_eq!(queue.push(needs("shell"), Band::Low, place(0, 5, 3)), None);
        assert_eq!(queue.pop(shell, Band::Low).map(|place| place.instance), Some(InstanceId(2)));
        assert_eq!(queue.pop(shell, Band::Urgent), None);
        assert_eq!((queue.waiting(nobody), queue.waiting(shell), queue.len()), ([1, 0, 0], [0, 0, 1], 2));
        queue.retain(|instance| instance == InstanceId(1));
        assert_eq!(queue.occupied().collect::<Vec<_>>(), [nobody]);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn routes_that_nobody_uses_give_their_numbers_to_new_ones() {
        let mut queue = ReadyQueue::default();
        let keeper = queue.push(needs("kept"), Band::Low, place(0, 5, 1)).expect("a new route");
        for handler in 0..2 * limits::ROUTES_KEPT_MAX {
            let route = queue.push(needs(&handler.to_string()), Band::Normal, place(0, 5, 2)).expect("a new route");
            assert!(queue.pop(route, Band::Normal).is_some());
        }
        assert_eq!(queue.routes.len(), limits::ROUTES_KEPT_MAX);
        assert_eq!(queue.by_needs.len(), limits::ROUTES_KEPT_MAX);
        assert_eq!(queue.needs(keeper), &needs("kept"));
    }

    /// Capacity is one a second. Each second one of the highest level comes, for ever; one of the lowest came first.
    #[test]
    fn the_lowest_level_starts_when_it_has_waited_for_the_difference() {
        let levels = i64::from(limits::LEVEL_MAX);
        let bound_secs = levels * (limits::AGING_INTERVAL.0 as i64 / 1_000) + 1;
        let mut served = Served::default();
        served.push(Band::Normal, place(0, 0, u64::MAX));
        let begun = (0..2 * bound_secs).find(|second| {
            served.push(Band::Normal, place(second * 1_000, limits::LEVEL_MAX, *second as u64));
            served.serve() == Some((Band::Normal, InstanceId(u64::MAX)))
        });
        let begun = begun.expect("it starts");
        assert!(begun <= bound_secs, "{begun} s, at most {bound_secs} s");
        assert!(begun >= bound_secs - 1, "the highest level goes first until then: {begun} s");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(usize, u8),
        Serve,
        Pass(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..3_usize, 0..=limits::LEVEL_MAX).prop_map(|(band, level)| Step::Push(band, level)),
            3 => Just(Step::Serve),
            1 => (0..60_000_i64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// Whoever is first in its band waits for two turns of the others at most, whatever comes meanwhile: the rest of one, and a whole one.
        #[test]
        fn no_band_starves(steps in proptest::collection::vec(step(), 0..600)) {
            let (mut served, mut now, mut id) = (Served::default(), 0, 0);
            let mut passed_over = [0_u32; 3];
            for step in steps {
                match step {
                    Step::Pass(millis) => now += millis,
                    Step::Push(band, level) => {
                        id += 1;
                        served.push(Band::ALL[band], place(now, level, id));
                    }
                    Step::Serve => {
                        let waits: Vec<_> = served.queue.occupied().map(|route| served.queue.waiting(route)).collect();
                        let Some((band, _)) = served.serve() else { continue };
                        for other in Band::ALL.map(Band::index) {
                            let is_passed_over = other != band.index() && waits[0][other] > 0;
                            passed_over[other] = if is_passed_over { passed_over[other] + 1 } else { 0 };
                            let others: u32 = (0..3).filter(|band| *band != other).map(|band| WEIGHTS[band]).sum();
                            prop_assert!(passed_over[other] <= 2 * others, "band {other} was passed over {} times", passed_over[other]);
                        }
                    }
                }
            }
        }

        /// In a band nobody is served before one that became ready as early or earlier on the same level or a higher one, nor before one that has
        /// waited longer by more than the levels between them are worth.
        #[test]
        fn a_band_goes_by_level_and_by_waiting(steps in proptest::collection::vec(step(), 0..300)) {
            let (mut served, mut now, mut id) = (Served::default(), 0_i64, 0);
            let mut waiting: Vec<(usize, i64, u8, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Pass(millis) => now += millis,
                    Step::Push(band, level) => {
                        id += 1;
                        served.push(Band::ALL[band], place(now, level, id));
                        waiting.push((band, now, level, id));
                    }
                    Step::Serve => {
                        let Some((band, taken)) = served.serve() else { continue };
                        let at = waiting.iter().position(|one| one.3 == taken.0).expect("it waited");
                        let (_, ready_at, level, _) = waiting.remove(at);
                        for (_, other_at, other_level, other) in waiting.iter().filter(|one| one.0 == band.index()) {
                            let is_before = *other_at <= ready_at && *other_level >= level && (*other_at, *other_level) != (ready_at, level);
                            prop_assert!(!is_before, "{taken} was served before {other}");
                            let levels = i64::from(level.saturating_sub(*other_level));
                            let gained = (ready_at - other_at) / limits::AGING_INTERVAL.0 as i64;
                            prop_assert!(gained <= levels, "{other} has waited long enough to go before {taken}");
                        }
                    }
                }
            }
        }
    }
}
