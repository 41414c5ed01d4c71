//! Connections between schedulers and workers: latency, cuts, breaking and dialling again.
//!
//! As with sockets, what is under way waits while the link is cut, and comes in order once it is mended, unless the connection broke. A side
//! that hears nothing for long enough takes the other one for dead.

use std::collections::VecDeque;

use punctual_core::ids::ConnectionId;
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_core::{scheduler, worker};

use crate::history::{What, Who};
use crate::tabletop::{Delivery, World};
use crate::trouble::{REDIAL_AFTER_MS, SILENCE_MAX_MS};

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Worker,
    Scheduler,
}

impl Side {
    pub(super) const fn other(self) -> Side {
        match self {
            Side::Worker => Side::Scheduler,
            Side::Scheduler => Side::Worker,
        }
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) is_open: bool,
    heard_at: u64,
    /// When what was sent to it last arrives.
    last_due: u64,
    /// What goes to it waits.
    pub(super) is_held: bool,
    held: VecDeque<Delivery>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) replica: usize,
    pub(super) worker: usize,
    ends: [End; 2],
}

impl Link {
    pub(super) fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    fn is_open(&self, side: Side) -> bool {
        self.ends[side as usize].is_open
    }
}

impl World {
    /// Connects a worker with all replicas.
    pub fn connect(&mut self, worker: usize) {
        for replica in 0..self.replicas.len() {
            if self.play.is_some() {
                let (life, after) = (self.workers[worker].life, self.way_ms(worker, replica, Side::Scheduler));
                self.send(after, Delivery::Dial(worker, life, replica));
            } else {
                self.connect_to(worker, replica);
            }
        }
        if std::mem::take(&mut self.workers[worker].disconnected) {
            self.record(Who::Worker(worker), What::Mended);
        }
    }

    pub(super) fn connect_to(&mut self, worker: usize, replica: usize) {
        let is_linked = self.links.values().any(|link| link.worker == worker && link.replica == replica && link.is_open(Side::Worker));
        let is_up = self.replicas[replica].scheduler.is_some() && self.workers[worker].node.is_some() && !self.workers[worker].silent;
        if is_linked || !is_up {
            return;
        }
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let end = || End { is_open: true, heard_at: self.time, last_due: 0, is_held: false, held: VecDeque::new() };
        self.links.insert(connection, Link { replica, worker, ends: [end(), end()] });
        if self.play.is_some() {
            self.send(SILENCE_MAX_MS, Delivery::KeepAlive(connection));
        }
        self.tell_worker(worker, worker::Event::Connected(connection));
    }

    pub(super) fn dial(&mut self, worker: usize, life: u64, replica: usize) {
        if self.workers[worker].life != life || self.workers[worker].node.is_none() {
            return;
        }
        if self.workers[worker].paused {
            return self.workers[worker].waiting.push_back(Delivery::Dial(worker, life, replica));
        }
        let is_cut = self.is_cut(worker, replica, Side::Scheduler) || self.is_cut(worker, replica, Side::Worker);
        if is_cut || self.replicas[replica].scheduler.is_none() {
            return self.send(REDIAL_AFTER_MS, Delivery::Dial(worker, life, replica));
        }
        self.connect_to(worker, replica);
    }

    /// Connections break, with what is under way on them, and both sides are told at once.
    pub(super) fn drop_links(&mut self, is_meant: impl Fn(&Link) -> bool) {
        let gone: Vec<_> = self.links.iter().filter(|(_, link)| is_meant(link)).map(|(id, _)| *id).collect();
        for connection in gone {
            self.close(connection, Side::Scheduler);
            self.close(connection, Side::Worker);
        }
    }

    /// Connections of a node break: it knows at once, the others when they are told.
    pub(super) fn reset_links(&mut self, side: Side, index: usize) {
        let of_node = |link: &Link| if side == Side::Worker { link.worker == index } else { link.replica == index };
        let gone: Vec<_> = self.links.iter().filter(|(_, link)| of_node(link)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|connection| self.hang_up(connection, side));
    }

    /// This side lets go of the connection, and the other one is told.
    fn hang_up(&mut self, connection: ConnectionId, side: Side) {
        self.close(connection, side);
        let Some(link) = self.links.get(&connection) else { return };
        let after = self.way_ms(link.worker, link.replica, side.other());
        self.send(after, Delivery::PeerGone(connection, side.other()));
    }

    fn close(&mut self, connection: ConnectionId, side: Side) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let (replica, worker) = (link.replica, link.worker);
        if !std::mem::replace(&mut link.end(side).is_open, false) {
            return;
        }
        if !link.is_open(side.other()) {
            self.links.remove(&connection);
        }
        match side {
            Side::Scheduler => self.tell_replica(replica, scheduler::Event::WorkerDisconnected { connection }),
            Side::Worker => {
                self.tell_worker(worker, worker::Event::Disconnected(connection));
                if self.play.is_some() && self.workers[worker].node.is_some() {
                    let life = self.workers[worker].life;
                    self.send(REDIAL_AFTER_MS, Delivery::Dial(worker, life, replica));
                }
            }
        }
    }

    pub(super) fn peer_is_gone(&mut self, connection: ConnectionId, side: Side) {
        let Some(link) = self.links.get(&connection) else { return };
        let (worker, replica) = (link.worker, link.replica);
        if self.is_cut(worker, replica, side) {
            self.hold(connection, side, Delivery::PeerGone(connection, side));
        } else {
            self.close(connection, side);
        }
    }

    pub(super) fn keep_alive(&mut self, connection: ConnectionId) {
        let mut next = u64::MAX;
        for side in [Side::Worker, Side::Scheduler] {
            let Some(link) = self.links.get_mut(&connection) else { return };
            let (worker, replica) = (link.worker, link.replica);
            let (is_open, heard_at) = (link.end(side).is_open, link.end(side).heard_at);
            if !is_open {
                continue;
            }
            // Who stands still notices nothing; it hears what has come meanwhile first.
            if self.is_paused(worker, replica, side) {
                next = next.min(self.time + SILENCE_MAX_MS);
            } else if heard_at + SILENCE_MAX_MS <= self.time {
                self.hang_up(connection, side);
            } else {
                next = next.min(heard_at + SILENCE_MAX_MS);
            }
        }
        if next != u64::MAX && self.links.contains_key(&connection) {
            self.queue.push(next, Delivery::KeepAlive(connection));
        }
    }

    fn hold(&mut self, connection: ConnectionId, side: Side, delivery: Delivery) {
        if let Some(link) = self.links.get_mut(&connection) {
            link.end(side).held.push_back(delivery);
        }
    }

    /// What was held and can get through now does, in its order.
    pub(super) fn let_through(&mut self) {
        let connections: Vec<_> = self.links.keys().copied().collect();
        for connection in connections {
            for side in [Side::Worker, Side::Scheduler] {
                let Some(link) = self.links.get_mut(&connection) else { continue };
                let (worker, replica) = (link.worker, link.replica);
                if link.end(side).is_held || link.end(side).held.is_empty() || self.is_cut(worker, replica, side) {
                    continue;
                }
                let held = self.links.get_mut(&connection).map(|link| std::mem::take(&mut link.end(side).held));
                held.into_iter().flatten().for_each(|delivery| self.send(0, delivery));
            }
        }
    }

    pub(super) fn send_up(&mut self, worker: usize, connection: ConnectionId, messages: Vec<ToScheduler>) {
        if let Some(due) = self.due(worker, connection, Side::Scheduler) {
            self.queue.push(due, Delivery::Up(connection, messages));
        }
    }

    pub(super) fn send_down(&mut self, replica: usize, connection: ConnectionId, messages: Vec<ToWorker>) {
        if let Some(due) = self.due(replica, connection, Side::Worker) {
            self.queue.push(due, Delivery::Down(connection, messages));
        }
    }

    /// When what a node sends now to the other side of its connection arrives there: never before what went before.
    fn due(&mut self, sender: usize, connection: ConnectionId, to: Side) -> Option<u64> {
        let link = self.links.get(&connection)?;
        debug_assert_eq!(sender, if to == Side::Worker { link.replica } else { link.worker });
        if !link.is_open(to.other()) {
            return None;
        }
        let (worker, replica) = (link.worker, link.replica);
        let Some(play) = &mut self.play else { return Some(self.time + self.network_latency) };
        let is_lost = play.loses_frame(worker, replica, to);
        let due = self.time + play.way_ms(worker, replica, to);
        if is_lost {
            self.hang_up(connection, to.other());
            return None;
        }
        let end = self.links.get_mut(&connection)?.end(to);
        end.last_due = end.last_due.max(due);
        Some(end.last_due)
    }

    fn way_ms(&mut self, worker: usize, replica: usize, to: Side) -> u64 {
        let latency = self.network_latency;
        self.play.as_mut().map_or(latency, |play| play.way_ms(worker, replica, to))
    }

    fn is_cut(&self, worker: usize, replica: usize, to: Side) -> bool {
        self.play.as_ref().is_some_and(|play| play.is_cut(worker, replica, to))
    }

    /// Whether something that arrives is to be taken in; what has to wait is put aside.
    fn takes_in(&mut self, connection: ConnectionId, to: Side) -> Option<(usize, usize, bool)> {
        let time = self.time;
        let link = self.links.get_mut(&connection)?;
        let (worker, replica) = (link.worker, link.replica);
        // What the other side sent before it let go is lost with the connection.
        if !link.is_open(Side::Worker) || !link.is_open(Side::Scheduler) || self.workers[worker].silent {
            return None;
        }
        let waits = link.end(to).is_held || self.play.as_ref().is_some_and(|play| play.is_cut(worker, replica, to));
        if !waits {
            link.end(to).heard_at = time;
        }
        Some((worker, replica, waits))
    }

    pub(super) fn reach_replica(&mut self, connection: ConnectionId, messages: Vec<ToScheduler>) {
        match self.takes_in(connection, Side::Scheduler) {
            Some((_, _, true)) => self.hold(connection, Side::Scheduler, Delivery::Up(connection, messages)),
            Some((_, replica, false)) => self.tell_replica(replica, scheduler::Event::WorkerMessages { connection, messages }),
            None => {}
        }
    }

    pub(super) fn reach_worker(&mut self, connection: ConnectionId, messages: Vec<ToWorker>) {
        match self.takes_in(connection, Side::Worker) {
            Some((_, _, true)) => self.hold(connection, Side::Worker, Delivery::Down(connection, messages)),
            Some((worker, _, false)) => self.tell_worker(worker, worker::Event::Messages { connection, messages }),
            None => {}
        }
    }

    /// What goes to this worker waits on the way.
    pub fn hold_messages_to(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.workers[worker].held, true) {
            self.record(Who::Worker(worker), What::Cut);
        }
        self.links.values_mut().filter(|link| link.worker == worker).for_each(|link| link.end(Side::Worker).is_held = true);
    }

    /// It does no longer.
    pub fn let_messages_through_to(&mut self, worker: usize) {
        if std::mem::take(&mut self.workers[worker].held) {
            self.record(Who::Worker(worker), What::Mended);
        }
        self.links.values_mut().filter(|link| link.worker == worker).for_each(|link| link.end(Side::Worker).is_held = false);
        self.let_through();
    }

    /// Its connections break, with what is under way on them, and both sides are told. Nobody dials again by itself.
    pub fn disconnect(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.workers[worker].disconnected, true) {
            self.record(Who::Worker(worker), What::Cut);
        }
        self.drop_links(|link| link.worker == worker);
    }

    /// Nothing gets through any more, and nobody is told: a cable that was pulled.
    pub fn silence(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.workers[worker].silent, true) {
            self.record(Who::Worker(worker), What::Cut);
        }
    }

    /// The cable is back.
    pub fn unsilence(&mut self, worker: usize) {
        if std::mem::take(&mut self.workers[worker].silent) {
            self.record(Who::Worker(worker), What::Mended);
            self.disconnect(worker);
            self.connect(worker);
        }
    }

    /// The connection between a worker and a replica.
    ///
    /// # Panics
    ///
    /// Where there is none.
    pub fn connection_between(&self, worker: usize, replica: usize) -> ConnectionId {
        let link = self.links.iter().find(|(_, link)| link.worker == worker && link.replica == replica);
        *link.expect("they are connected").0
    }

    /// The connection between a worker and the first replica.
    pub fn connection_of(&self, worker: usize) -> ConnectionId {
        self.connection_between(worker, 0)
    }
}
