//! The workers that this replica knows, and who holds which attempt.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::definition::Band;
use crate::ids::{ConnectionId, InstanceId, WorkerId, WorkerLife};
use crate::instance::WorkerRef;
use crate::limits;
use crate::ready_queue::Turn;
use crate::routing::{self, Candidate, Needs, Nobody, WorkerTraits};
use crate::time::Monotonic;

/// The workers that this replica knows, and who holds which attempt.
#[derive(Debug, Default)]
pub(super) struct Workers {
    pub(super) list: Vec<Worker>,
    by_id: FxHashMap<WorkerId, usize>,
    pub(super) by_connection: FxHashMap<ConnectionId, usize>,
    /// Who holds an attempt, and the band that it is of.
    holders: FxHashMap<InstanceId, (usize, Band)>,
    /// Places in the list whose worker is gone for good.
    free: Vec<usize>,
    /// When to ask for accounts once more.
    pub(super) account_again_at: Option<Monotonic>,
    /// Those that something waits for which nobody else may have.
    pub(super) awaited: Vec<usize>,
    /// Counts the changes of who is there and what they have to offer.
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) life: WorkerLife,
    pub(super) connection: Option<ConnectionId>,
    pub(super) slots: usize,
    pub(super) handlers: FxHashSet<Arc<str>>,
    /// It says so itself.
    pub(super) draining: bool,
    /// A person has it so.
    pub(super) is_drained: bool,
    /// What routing goes by.
    pub(super) traits: WorkerTraits,
    /// What it holds by this replica's account, assignments that were not sent yet included.
    pub(super) held: FxHashSet<InstanceId>,
    /// How many of those are of each band.
    held_of: [usize; 3],
    /// Whose turn it is, for each kind of slots: those that the urgent band alone may use, those of the normal band and above, and the others.
    turns: [Turn; 3],
    /// Its attempts live until then.
    pub(super) lease_until: Monotonic,
    /// Assignments sent over its connection.
    pub(super) assigned: u64,
    /// How many of those had been sent when it was last asked for an account: what it holds of what was known before a reload is in
    /// accounts that cover as many.
    pub(super) account_from: u64,
    /// It gave something back: until then it gets nothing more.
    pub(super) full_until: Monotonic,
    /// How often in a row.
    pub(super) returns: u32,
}

impl Worker {
    /// How many more instances of this band it may hold.
    pub(super) fn room(&self, band: Band) -> usize {
        routing::room(self.slots, self.traits.reserved, self.held_of, band)
    }

    /// Whether it can be given anything at all now. One whose lease is over may still have a connection that nobody has found dead yet.
    pub(super) fn is_there(&self, now: Monotonic) -> bool {
        self.takes_part(now) && self.full_until <= now
    }

    /// Whether it has a shard of what is broadcast now, with room for it or without.
    pub(super) fn takes_part(&self, now: Monotonic) -> bool {
        self.connection.is_some() && !self.draining && !self.is_drained && self.lease_until > now
    }

    /// The turn that its next free slot is given by: that of the lowest band that may have it.
    pub(super) fn turn(&mut self) -> &mut Turn {
        &mut self.turns[self.kind_of_next_slot()]
    }

    /// Whether its next free slot may go to this band in this turn.
    pub(super) fn allows(&self, band: Band) -> bool {
        self.turns[self.kind_of_next_slot()].allows(band)
    }

    fn kind_of_next_slot(&self) -> usize {
        [Band::Low, Band::Normal].into_iter().find(|band| self.room(*band) > 0).unwrap_or(Band::Urgent).index()
    }
}

/// A worker as one replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Its id.
    pub worker: WorkerId,
    /// Attempts that it runs at once.
    pub slots: usize,
    /// Attempts of this replica's partitions that it holds.
    pub held: usize,
    /// The handlers that it knows, in order.
    pub handlers: Vec<Arc<str>>,
    /// Whether this replica can talk to it.
    pub is_connected: bool,
    /// Whether it takes nothing more.
    pub is_draining: bool,
    /// Whether that is because a person drains it.
    pub is_drained: bool,
    /// What routing goes by.
    pub traits: WorkerTraits,
}

impl Candidate for Worker {
    fn is_worker(&self, worker: &WorkerId) -> bool {
        self.id == *worker
    }

    fn knows(&self, handler: &str) -> bool {
        self.handlers.contains(handler)
    }

    fn traits(&self) -> &WorkerTraits {
        &self.traits
    }

    fn is_draining(&self) -> bool {
        self.draining || self.is_drained
    }
}

impl Workers {
    /// All that are connected or hold something, by id.
    pub(super) fn views(&self) -> Vec<WorkerView> {
        let known = self.list.iter().filter(|worker| worker.connection.is_some() || !worker.held.is_empty());
        let mut views: Vec<_> = known
            .map(|worker| {
                let mut handlers: Vec<_> = worker.handlers.iter().cloned().collect();
                handlers.sort_unstable();
                WorkerView {
                    worker: worker.id.clone(),
                    slots: worker.slots,
                    held: worker.held.len(),
                    handlers,
                    is_connected: worker.connection.is_some(),
                    is_draining: worker.draining || worker.is_drained,
                    is_drained: worker.is_drained,
                    traits: worker.traits.clone(),
                }
            })
            .collect();
        views.sort_unstable_by(|one, other| one.worker.0.cmp(&other.worker.0));
        views
    }

    pub(super) fn of_connection(&mut self, connection: ConnectionId) -> Option<&mut Worker> {
        self.by_connection.get(&connection).map(|index| &mut self.list[*index])
    }

    pub(super) fn index_of(&mut self, id: &WorkerId) -> usize {
        if let Some(index) = self.by_id.get(id) {
            return *index;
        }
        let worker = Worker {
            id: id.clone(),
            life: WorkerLife(0),
            connection: None,
            slots: 0,
            handlers: FxHashSet::default(),
            draining: false,
            is_drained: false,
            traits: WorkerTraits::default(),
            held: FxHashSet::default(),
            held_of: [0; 3],
            turns: [Turn::default(); 3],
            lease_until: Monotonic(0),
            assigned: 0,
            account_from: 0,
            full_until: Monotonic(0),
            returns: 0,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.list[index] = worker;
                index
            }
            None => {
                self.list.push(worker);
                self.list.len() - 1
            }
        };
        self.by_id.insert(id.clone(), index);
        self.generation += 1;
        index
    }

    /// Forgets workers that are gone and hold nothing, so that those which come under a new name each time don't pile up.
    pub(super) fn forget_gone(&mut self, now: Monotonic) {
        for (index, worker) in self.list.iter().enumerate() {
            let is_gone = worker.connection.is_none() && worker.held.is_empty() && worker.lease_until <= now;
            if is_gone && self.by_id.get(&worker.id) == Some(&index) {
                self.by_id.remove(&worker.id);
                self.free.push(index);
            }
        }
    }

    /// A worker of which the store says that it holds an attempt: it has a lease's time to show itself.
    pub(super) fn expect(&mut self, worker: Option<&WorkerRef>, instance: InstanceId, band: Band, now: Monotonic) {
        let nobody = WorkerId(Arc::from(""));
        let index = self.index_of(worker.map_or(&nobody, |worker| &worker.id));
        self.list[index].lease_until = self.list[index].lease_until.max(now + limits::WORKER_LEASE);
        self.hold(index, instance, band);
    }

    pub(super) fn hold(&mut self, index: usize, instance: InstanceId, band: Band) {
        self.release(instance);
        let worker = &mut self.list[index];
        worker.held.insert(instance);
        worker.held_of[band.index()] += 1;
        self.holders.insert(instance, (index, band));
    }

    /// Who holds an attempt.
    pub(super) fn holder(&self, instance: InstanceId) -> Option<&Worker> {
        self.holders.get(&instance).map(|(index, _)| &self.list[*index])
    }

    /// The attempt is not with a worker any more.
    pub(super) fn release(&mut self, instance: InstanceId) {
        if let Some((index, band)) = self.holders.remove(&instance) {
            let worker = &mut self.list[index];
            worker.held.remove(&instance);
            worker.held_of[band.index()] -= 1;
        }
    }

    /// Forgets attempts.
    pub(super) fn forget(&mut self, is_meant: impl Fn(InstanceId) -> bool) {
        let Workers { holders, list, .. } = self;
        holders.retain(|instance, (index, band)| {
            if is_meant(*instance) {
                list[*index].held.remove(instance);
                list[*index].held_of[band.index()] -= 1;
            }
            !is_meant(*instance)
        });
    }

    /// Of all that are connected, those that may have an instance of these needs, in the order in which they were first known; or why there is
    /// none.
    pub(super) fn eligible(&self, needs: &Needs) -> Result<Vec<usize>, Nobody> {
        let connected: Vec<_> = self.list.iter().enumerate().filter(|(_, worker)| worker.connection.is_some()).collect();
        routing::eligible(needs, &connected)
    }

    /// Whether anybody could be given anything now.
    pub(super) fn have_room(&self, now: Monotonic) -> bool {
        self.list.iter().any(|worker| worker.room(Band::Urgent) > 0 && worker.is_there(now))
    }
}
