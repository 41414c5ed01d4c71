//! Schedulers and workers: starting, stopping, pausing, and what they ask for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, ReplicaId, WorkerId, WorkerLife};
use punctual_core::limits;
use punctual_core::scheduler::{self, Scheduler};
use punctual_core::time::Monotonic;
use punctual_core::worker::{self, WorkerNode};

use crate::behaviour::HANDLERS;
use crate::calls::worker_name;
use crate::history::{What, Who};
use crate::tabletop::handlers::Running;
use crate::tabletop::links::Side;
use crate::tabletop::store::Ask;
use crate::tabletop::{Delivery, World};

/// A scheduler replica.
pub struct Replica {
    /// The machine, while it runs.
    pub scheduler: Option<Scheduler>,
    pub(super) life: u64,
    pub(super) id: ReplicaId,
    /// It has stopped in good order.
    pub stopped: bool,
    /// It stands still: what reaches it waits.
    pub paused: bool,
    pub(super) waiting: VecDeque<Delivery>,
    /// When the machine wants to be called.
    pub(super) timeout: Option<u64>,
}

/// A worker.
pub struct Worker {
    /// The machine, while it runs.
    pub node: Option<WorkerNode>,
    /// How often it has started.
    pub life: u64,
    /// Attempts that it runs at once, from its next start on.
    pub slots: u32,
    pub(super) draining: bool,
    /// It has drained.
    pub drained: bool,
    /// Nothing gets through, and neither side is told.
    pub silent: bool,
    /// Driven by hand: its connections were broken, and nobody has dialled again.
    pub(super) disconnected: bool,
    /// Driven by hand: what goes to it waits on the way.
    pub(super) held: bool,
    pub(super) paused: bool,
    pub(super) waiting: VecDeque<Delivery>,
    pub(super) timeout: Option<u64>,
    pub(super) running: BTreeMap<(InstanceId, Fence), Running>,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("id", &self.id).field("paused", &self.paused).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("life", &self.life).field("paused", &self.paused).finish_non_exhaustive()
    }
}

impl World {
    pub(super) fn put_replica(&mut self) {
        self.replicas.push(Replica {
            scheduler: None,
            life: 0,
            id: ReplicaId::default(),
            stopped: false,
            paused: false,
            waiting: VecDeque::new(),
            timeout: None,
        });
    }

    pub(super) fn put_worker(&mut self, slots: u32) {
        self.workers.push(Worker {
            node: None,
            life: 0,
            slots,
            draining: false,
            drained: false,
            silent: false,
            disconnected: false,
            held: false,
            paused: false,
            waiting: VecDeque::new(),
            timeout: None,
            running: BTreeMap::new(),
        });
    }

    /// Starts a replica that does not run.
    pub fn start_replica(&mut self, replica: usize) {
        let node = &mut self.replicas[replica];
        node.life += 1;
        node.stopped = false;
        // By hand a replica keeps its id over its lives, as one does whose id was set.
        node.id = ReplicaId(Arc::from(match self.play {
            Some(_) => format!("s{}-{}", replica + 1, node.life),
            None => format!("s{}", replica + 1),
        }));
        let (life, id) = (node.life, node.id.clone());
        let config = scheduler::Config {
            replica: id,
            partitions: self.partitions,
            commits_at_once: self.commits_at_once,
            misfire_threshold: limits::MISFIRE_THRESHOLD,
        };
        if let Some(play) = &mut self.play {
            play.replica_starts(replica, life);
        }
        let now = self.now_of(replica);
        self.replicas[replica].scheduler = Some(Scheduler::new(config, now));
        self.record(Who::Scheduler(replica), What::Started { life });
        self.tell_replica(replica, scheduler::Event::Tick);
        if self.play.is_none() {
            (0..self.workers.len()).for_each(|worker| self.connect_to(worker, replica));
        }
    }

    /// Ends a replica, with its memory; its connections break.
    pub fn crash_replica(&mut self, replica: usize) {
        if self.replicas[replica].scheduler.take().is_some() {
            self.record(Who::Scheduler(replica), What::Crashed);
        }
        let node = &mut self.replicas[replica];
        node.waiting.clear();
        node.timeout = None;
        if self.play.is_none() {
            node.paused = false;
        }
        self.drop_links(|link| link.replica == replica);
    }

    /// A replica stands still.
    pub fn pause_replica(&mut self, replica: usize) {
        if self.replicas[replica].scheduler.is_some() && !std::mem::replace(&mut self.replicas[replica].paused, true) {
            self.record(Who::Scheduler(replica), What::Paused);
        }
    }

    /// It goes on as if nothing had been.
    pub fn resume_replica(&mut self, replica: usize) {
        if std::mem::take(&mut self.replicas[replica].paused) {
            self.record(Who::Scheduler(replica), What::Resumed);
        }
        for delivery in std::mem::take(&mut self.replicas[replica].waiting) {
            self.deliver(delivery);
        }
        self.tell_replica(replica, scheduler::Event::Tick);
    }

    /// Starts a worker that does not run.
    pub fn start_worker(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        node.life += 1;
        node.draining = false;
        node.drained = false;
        let life = node.life;
        let config = worker::Config {
            worker: WorkerId(worker_name(worker)),
            life: WorkerLife(life),
            slots: node.slots,
            handlers: match self.play {
                Some(_) => HANDLERS.iter().map(|name| Arc::from(*name)).collect(),
                None => vec![Arc::from("command")],
            },
            traits: crate::features::traits(worker),
        };
        node.node = Some(WorkerNode::new(config, Monotonic(self.time)));
        node.timeout = node.node.as_ref().and_then(|node| node.poll_timeout()).map(|at| at.0);
        self.record(Who::Worker(worker), What::Started { life });
        self.connect(worker);
    }

    /// Ends a worker, with all that it ran; its connections break.
    pub fn crash_worker(&mut self, worker: usize) {
        if self.workers[worker].node.take().is_some() {
            self.record(Who::Worker(worker), What::Crashed);
        }
        self.clear_worker(worker);
        self.drop_links(|link| link.worker == worker);
    }

    fn clear_worker(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        node.waiting.clear();
        node.timeout = None;
        for ((instance, fence), running) in std::mem::take(&mut node.running) {
            self.began[running.began].ended = Some((self.time, false));
            self.record(Who::Worker(worker), What::Ended { instance, fence, end: None });
        }
    }

    pub(super) fn pause_worker(&mut self, worker: usize) {
        self.workers[worker].paused = true;
        self.record(Who::Worker(worker), What::Paused);
    }

    pub(super) fn resume_worker(&mut self, worker: usize) {
        self.workers[worker].paused = false;
        self.record(Who::Worker(worker), What::Resumed);
        for delivery in std::mem::take(&mut self.workers[worker].waiting) {
            self.deliver(delivery);
        }
        if self.workers[worker].timeout.is_some_and(|at| at <= self.time) {
            self.tell_worker(worker, worker::Event::Tick);
        }
    }

    /// Something happens to a scheduler.
    pub fn tell_replica(&mut self, replica: usize, event: scheduler::Event) {
        use scheduler::Command;
        if self.replicas[replica].scheduler.is_none() {
            return;
        }
        if self.replicas[replica].paused {
            let node = &mut self.replicas[replica];
            return node.waiting.push_back(Delivery::ToReplica(replica, node.life, event));
        }
        let now = self.now_of(replica);
        self.steps += 1;
        let Some(machine) = &mut self.replicas[replica].scheduler else { return };
        machine.handle_event(now, event);
        while let Some(command) = self.replicas[replica].scheduler.as_mut().and_then(Scheduler::poll_command) {
            match command {
                Command::Send { connection, messages } => self.send_down(replica, connection, messages),
                Command::Alert(alert) => {
                    self.record(Who::Scheduler(replica), What::Alerted(Arc::from(format!("{alert:?}"))));
                    self.alerts.push((self.time, alert));
                }
                Command::Stopped => self.replica_has_stopped(replica),
                command => {
                    let node = &self.replicas[replica];
                    self.ask(Box::new(Ask::of_replica(replica, node.life, node.id.clone(), command, self.time)));
                }
            }
        }
        let node = &mut self.replicas[replica];
        node.timeout = node.scheduler.as_ref().and_then(Scheduler::poll_timeout).map(|at| at.0);
    }

    fn replica_has_stopped(&mut self, replica: usize) {
        self.replicas[replica].stopped = true;
        self.record(Who::Scheduler(replica), What::Stopped);
        if self.play.is_some() {
            self.replicas[replica].scheduler = None;
            self.replicas[replica].waiting.clear();
            self.drop_links(|link| link.replica == replica);
        }
    }

    /// Something happens to a worker.
    pub fn tell_worker(&mut self, worker: usize, event: worker::Event) {
        use worker::Command;
        let now = Monotonic(self.time);
        let node = &mut self.workers[worker];
        let Some(machine) = &mut node.node else { return };
        if node.paused {
            return node.waiting.push_back(Delivery::ToWorker(worker, node.life, event));
        }
        self.steps += 1;
        machine.handle_event(now, event);
        while let Some(command) = self.workers[worker].node.as_mut().and_then(WorkerNode::poll_command) {
            match command {
                Command::Send { connection, messages } => self.send_up(worker, connection, messages),
                Command::Start(assignment) => self.start_handler(worker, &assignment),
                Command::Cancel { instance, fence } => self.cancel_handler(worker, instance, fence),
                Command::Kill { instance, fence } => self.kill_handler(worker, instance, fence),
                Command::Drained => self.worker_has_drained(worker),
            }
        }
        let node = &mut self.workers[worker];
        node.timeout = node.node.as_ref().and_then(WorkerNode::poll_timeout).map(|at| at.0);
    }

    fn worker_has_drained(&mut self, worker: usize) {
        self.workers[worker].drained = true;
        self.record(Who::Worker(worker), What::Stopped);
        if self.play.is_some() {
            self.workers[worker].node = None;
            self.clear_worker(worker);
            self.drop_links(|link| link.worker == worker);
        }
    }

    /// Whether the node on this side of a connection stands still.
    pub(super) fn is_paused(&self, worker: usize, replica: usize, side: Side) -> bool {
        match side {
            Side::Worker => self.workers[worker].paused,
            Side::Scheduler => self.replicas[replica].paused,
        }
    }
}
