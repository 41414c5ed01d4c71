//! Giving what is ready to workers that have room.
//!
//! All routes are looked at together: in the order of the bands, and inside a band by place, so that the same worker's slots go to whoever
//! is first, whatever route it waits in. A worker's turn says which bands it may be given; when all that wait for it have had theirs, it
//! begins a new one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::definition::Band;
use crate::ids::{ConnectionId, Fence, InstanceId};
use crate::instance::{Cause, InstanceRow, State, WorkerRef};
use crate::limits;
use crate::probe;
use crate::protocol::{Assignment, MapRole, Shard, ToWorker};
use crate::ready_queue::{Place, RouteId, ready_now};
use crate::routing::{self, Needs, Nobody, Strategy};
use crate::scheduler::workers::{Worker, Workers};
use crate::scheduler::{Alert, Command, Live, Scheduler, Sent};
use crate::time::{Millis, Monotonic};

/// What is known of a route.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// The [generation](Workers::generation) of the workers that the rest was found out with.
    generation: Option<u64>,
    /// The workers that may have its instances, whatever room they have.
    eligible: Vec<usize>,
    /// Whether any of those has a slot for the band.
    is_open: [bool; 3],
    /// Why there is no such worker.
    nobody: Option<Nobody>,
    /// Since when, as far as this replica knows.
    nobody_since: Option<Monotonic>,
    /// The reason that people were told last.
    told: Option<Nobody>,
    /// The worker that was given one last.
    last: Option<usize>,
}

/// What waits in one route of this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingView {
    /// What the instances need of a worker.
    pub needs: Needs,
    /// How many wait, those that were cancelled lately included.
    pub waiting: usize,
    /// Why nobody can be given them; `None`: somebody can, as soon as there is room.
    pub nobody: Option<Nobody>,
}

/// One round through the bands.
#[derive(Default)]
struct Round {
    assigned: usize,
    /// Something was broadcast: its shards wait in routes that nobody has looked at.
    has_new_routes: bool,
    /// Workers with room for what waits, in their next turn.
    out_of_turn: Vec<(usize, Band)>,
}

impl Scheduler {
    /// What waits for a worker, route by route.
    pub fn waiting_for(&self) -> Vec<WaitingView> {
        let view = |route: RouteId| WaitingView {
            needs: self.ready.needs(route).clone(),
            waiting: self.ready.waiting(route).iter().sum(),
            nobody: self.routes[route.0].told,
        };
        self.ready.occupied().map(view).collect()
    }

    /// Puts an instance where it stands among those that are ready; at once, or when its partition's inbox has been read.
    pub(super) fn make_ready(&mut self, id: InstanceId) {
        if let Some(new) = self.new_partitions.iter_mut().find(|new| new.id == id.partition()) {
            return new.ready.push(id);
        }
        if self.instances.contains_key(&id) && (self.call_if_due(id) || self.awaits_results(id)) {
            return;
        }
        let now = ready_now(self.now.monotonic);
        let Some(live) = self.instances.get_mut(&id) else { return };
        live.ready_at.get_or_insert(now);
        let task = live.row.task;
        if !self.joins_throttled(task, id) {
            self.push_ready(id);
        }
    }

    /// Puts an instance into the ready queue.
    pub(super) fn push_ready(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        let (needs, band, place) = (Needs::of(&live.definition, &live.row), live.definition.band, live.place());
        if let Some(RouteId(index)) = self.ready.push(needs, band, place) {
            if self.routes.len() <= index {
                self.routes.resize_with(index + 1, Route::default);
            }
            self.routes[index] = Route::default();
        }
    }

    /// Assigns what is ready to workers that have room.
    pub(super) fn assign_ready(&mut self) {
        if self.ready.is_empty() || self.phase != super::Phase::Working {
            return;
        }
        self.look_for_workers();
        self.give_up_the_gone();
        if !self.workers.have_room(self.now.monotonic) {
            return;
        }
        let mut idle_rounds = 0;
        // Two rounds without an assignment, with new turns between them, and there is nothing to give or nobody to give it to.
        while idle_rounds < 2 {
            let round = self.assign_round();
            if round.has_new_routes {
                self.look_for_workers();
            }
            idle_rounds = if round.assigned > 0 { 0 } else { idle_rounds + 1 };
            if round.out_of_turn.is_empty() && !round.has_new_routes {
                return;
            }
            for (index, band) in round.out_of_turn {
                let worker = &mut self.workers.list[index];
                // Where no room is left, the others are still to have their turn.
                if worker.room(band) > 0 && !worker.allows(band) {
                    worker.turn().renew();
                }
            }
        }
    }

    /// Finds out who may have what waits, where that may have changed, and tells people of what nobody can run.
    fn look_for_workers(&mut self) {
        let now = self.now.monotonic;
        let Scheduler { ready, routes, workers, commands, .. } = self;
        workers.awaited.clear();
        for id in ready.occupied() {
            let route = &mut routes[id.0];
            if route.generation != Some(workers.generation) {
                route.find_workers(workers, ready.needs(id));
                route.nobody_since = route.nobody.map(|_| route.nobody_since.unwrap_or(now));
            }
            if ready.needs(id).worker.is_some() {
                workers.awaited.extend(&route.eligible);
            }
            let waits = ready.waiting(id);
            let is_shut_out =
                route.nobody.is_none() && Band::ALL.iter().any(|band| waits[band.index()] > 0 && !route.is_open[band.index()]);
            let nobody = if is_shut_out { Some(Nobody::Reserved) } else { route.nobody };
            if nobody != route.told {
                route.told = nobody;
                if let Some(reason) = nobody {
                    probe!("route.nobody");
                    commands.push_back(Command::Alert(Alert::NobodyFor { needs: ready.needs(id).clone(), reason }));
                }
            }
        }
    }

    /// What was broadcast to a worker that can't be given it for the length of a lease ends: nobody else may have it.
    fn give_up_the_gone(&mut self) {
        let now = self.now.monotonic;
        let is_over = |id: &RouteId| {
            self.ready.needs(*id).worker.is_some()
                && self.routes[id.0].nobody_since.is_some_and(|since| now.since(since) >= limits::WORKER_LEASE)
        };
        let over: Vec<_> = self.ready.occupied().filter(is_over).collect();
        for route in over {
            let why = self.routes[route.0].nobody.map_or("", Nobody::reason);
            while let Some(place) = Band::ALL.into_iter().find_map(|band| self.ready.pop(route, band)) {
                let id = place.instance;
                self.ready.passed_over();
                let is_live = self.instances.get(&id).is_some_and(|live| live.row.state == State::Created);
                if is_live && self.is_owned(id.partition()) {
                    self.worker_is_gone(id, why);
                }
            }
        }
    }

    /// Serves each band as far as the workers' room and their turns go.
    fn assign_round(&mut self) -> Round {
        let mut round = Round::default();
        for band in Band::ALL {
            let first_of = |id: RouteId| self.ready.first(id, band).map(|place| Reverse((place, id)));
            let mut firsts: BinaryHeap<_> =
                self.ready.occupied().filter(|id| self.routes[id.0].is_open[band.index()]).filter_map(first_of).collect();
            while let Some(Reverse((_, route))) = firsts.pop() {
                // It is taken out first: what it leads to may stand before it in the same route.
                let Some(place) = self.ready.pop(route, band) else { continue };
                if !self.serve(route, band, place, &mut round) {
                    // Nobody has room for what waits there.
                    self.ready.put_back(route, band, place);
                    continue;
                }
                if let Some(next) = self.ready.first(route, band) {
                    firsts.push(Reverse((next, route)));
                }
            }
        }
        round
    }

    /// Deals with the first instance of a band of a route. False where it stays where it is.
    fn serve(&mut self, route: RouteId, band: Band, place: Place, round: &mut Round) -> bool {
        let id = place.instance;
        // Cancelled ones are left in the queue and passed over here, and so are those that are to be handed over.
        let Some(live) = self.instances.get(&id).filter(|live| live.row.state == State::Created && self.is_owned(id.partition())) else {
            self.ready.passed_over();
            return true;
        };
        let (task, is_to_be_broadcast) = (live.row.task, live.is_to_be_broadcast());
        if self.is_held_by_pause(id) {
            return true;
        }
        if is_to_be_broadcast {
            let eligible = std::mem::take(&mut self.routes[route.0].eligible);
            let is_divided = self.broadcast(id, &eligible);
            self.routes[route.0].eligible = eligible;
            round.has_new_routes |= is_divided;
            round.assigned += usize::from(is_divided);
            return is_divided;
        }
        let limit = self.rate_of(task);
        if limit.is_some_and(|limit| self.is_throttled(task, id.partition(), limit)) {
            self.throttle(id);
            return true;
        }
        let live = &self.instances[&id];
        let Some(index) = self.routes[route.0].choose(&self.workers, live, band, self.now.monotonic, round) else { return false };
        if self.is_held_by_breaker(id) {
            return true;
        }
        self.routes[route.0].last = Some(index);
        self.workers.list[index].turn().take(band);
        if let Some(limit) = limit {
            self.note_start(task, id.partition(), limit);
        }
        self.assign(id, index);
        round.assigned += 1;
        true
    }

    fn assign(&mut self, id: InstanceId, index: usize) {
        let fence = self.new_fence(id.partition());
        let worker = &self.workers.list[index];
        let connection = worker.connection.expect("candidates are connected");
        let live = self.instances.get_mut(&id).expect("looked up above");
        let stray = live.stray.take().map(|connection| (connection, live.row.fence));
        live.row.attempt += 1;
        live.row.fence = fence;
        live.row.worker = Some(WorkerRef { id: worker.id.clone(), life: worker.life });
        live.sent = Sent::NotYet;
        live.cancel = None;
        live.change(State::Dispatched, Cause::Assigned, self.now.wall);
        let band = live.definition.band;
        self.workers.hold(index, id, band);
        self.mark_instance(id);
        if let Some((connection, fence)) = stray {
            self.hold_message(id.partition(), connection, ToWorker::Cancel { instance: id, fence });
        }
        self.hold_assignment(id, fence, connection);
    }

    /// The commit that made this assignment is through.
    pub(super) fn send_assignment(&mut self, id: InstanceId, fence: Fence, connection: ConnectionId) {
        if !self.is_current(id, fence) {
            return;
        }
        let live = self.instances.get_mut(&id).expect("current instances are live");
        if let Some((cause, detail)) = live.cancel.take() {
            return self.end(id, State::Cancelled, cause, None, detail);
        }
        if self.workers.of_connection(connection).is_none() {
            return self.take_back(id);
        }
        let (payload, node) = (self.payload_of(id), self.node_of(id));
        let worker = self.workers.of_connection(connection).expect("just looked up");
        worker.assigned += 1;
        let live = self.instances.get_mut(&id).expect("current instances are live");
        live.sent = Sent::Over(connection, worker.assigned);
        let row = &self.instances[&id].row;
        let map = match row.part {
            part if part.is_list() => Some(MapRole::List),
            part if part.is_reduce() => Some(MapRole::Reduce { results: self.results_for(row).unwrap_or_default() }),
            _ => None,
        };
        let definition = &self.instances[&id].definition;
        let assignment = Assignment {
            instance: id,
            attempt: row.attempt,
            fence,
            task: row.task,
            task_name: definition.name.clone(),
            version: row.version,
            fire_time: row.fire_time,
            ordinal: row.ordinal,
            run: row.run,
            shard: shard_of(row),
            map,
            handler: definition.handler_of(row.part).clone(),
            node,
            payload,
            timeout: definition.policies.timeout,
        };
        self.send(connection, ToWorker::Assign(Arc::new(assignment)));
    }
}

fn shard_of(row: &InstanceRow) -> Option<Shard> {
    let (index, links) = (row.part.shard_index()?, row.links.as_ref()?);
    Some(Shard { index, count: links.shards, key: links.shard_key.clone() })
}

impl Route {
    fn find_workers(&mut self, workers: &Workers, needs: &Needs) {
        self.generation = Some(workers.generation);
        self.is_open = [false; 3];
        match workers.eligible(needs) {
            Ok(eligible) => {
                let has_slot = |worker: &Worker, band| routing::room(worker.slots, worker.traits.reserved, [0; 3], band) > 0;
                self.is_open = Band::ALL.map(|band| eligible.iter().any(|index| has_slot(&workers.list[*index], band)));
                (self.eligible, self.nobody) = (eligible, None);
            }
            Err(nobody) => (self.eligible, self.nobody) = (Vec::new(), Some(nobody)),
        }
    }

    /// The worker that gets the instance, where one has room for it and it is its band's turn there.
    fn choose(&self, workers: &Workers, live: &Live, band: Band, now: Monotonic, round: &mut Round) -> Option<usize> {
        let worker = |index: &usize| &workers.list[*index];
        let with_room = self.eligible.iter().copied().filter(|index| worker(index).room(band) > 0 && worker(index).is_there(now));
        let in_turn = with_room.clone().filter(|index| worker(index).allows(band));
        let strategy = live.definition.routing.as_ref().map_or(&Strategy::LeastLoaded, |routing| &routing.strategy);
        let chosen = match strategy {
            Strategy::LeastLoaded | Strategy::Pinned(_) | Strategy::Broadcast => in_turn.max_by_key(|index| {
                let room = worker(index).room(band);
                // The last slot is left to what can go nowhere else.
                (room > 1 || !workers.awaited.contains(index), room, Reverse(*index))
            }),
            Strategy::RoundRobin => in_turn.min_by_key(|index| (Some(*index) <= self.last, *index)),
            Strategy::Random => {
                let in_turn: Vec<_> = in_turn.collect();
                (!in_turn.is_empty()).then(|| in_turn[routing::drawn(live.row.id, live.row.attempt + 1, in_turn.len())])
            }
            // A task stays with its worker: it waits for its turn there rather than go elsewhere.
            Strategy::Hash => routing::rendezvous(live.row.task, with_room.clone().map(|index| (index, &worker(&index).id)))
                .filter(|index| worker(index).allows(band)),
        };
        if chosen.is_none() {
            round.out_of_turn.extend(with_room.map(|index| (index, band)));
        }
        chosen
    }
}

impl Live {
    /// Where it stands among those that are ready.
    pub(super) fn place(&self) -> Place {
        let ready_at = self.ready_at.expect("whatever waits for a worker became ready some time");
        Place::new(ready_at, self.definition.level, self.row.fire_time, self.row.id)
    }

    /// When it became ready, for one that was read from the store: a new owner goes by what the one before has written.
    pub(super) fn was_ready_at(row: &crate::instance::InstanceRow, wall: crate::time::Timestamp, now: Monotonic) -> Option<i64> {
        let became_ready = row.transitions.iter().find(|transition| transition.to == State::Created)?;
        let Millis(waited) = wall.since(became_ready.at);
        Some(ready_now(now).saturating_sub_unsigned(waited))
    }
}
