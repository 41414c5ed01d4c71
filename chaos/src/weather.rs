//! What is wrong just now, for all who have to know: a picture that faults change, and that proxies and workers look at.

use punctual_sim::history::Who;
use punctual_sim::plan::{FaultKind, Shape};
use punctual_sim::trouble::{NodeTrouble, WorldTrouble};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What is at an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A node.
    Node(Who),
    /// The database.
    Database,
    /// Redis.
    Redis,
    /// Somebody to whom nothing happens.
    Nobody,
}

/// What is wrong just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weather {
    schedulers: Vec<NodeTrouble>,
    workers: Vec<NodeTrouble>,
    /// With everything that is no node.
    pub world: WorldTrouble,
    /// How often the connections of each node were broken: schedulers, then workers.
    resets: Vec<u64>,
    /// How often the connections to Redis were broken, by scheduler.
    redis_resets: Vec<u64>,
    /// Where the database listens.
    pub database_port: u16,
    /// Where Redis listens.
    pub redis_port: u16,
}

/// What a worker has to know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forecast {
    /// With the worker.
    pub node: NodeTrouble,
    /// With the world.
    pub world: WorldTrouble,
}

/// What keeps bytes from one end to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Nothing gets through; what was sent waits.
    pub is_cut: bool,
    /// It takes this much longer.
    pub delay_ms: u64,
    /// Of a thousand pieces so many break the connection.
    pub lose_per_mille: u32,
}

impl Weather {
    /// Nothing is wrong.
    pub fn fine(shape: Shape, database_port: u16, redis_port: u16) -> Weather {
        Weather {
            schedulers: vec![NodeTrouble::default(); shape.schedulers],
            workers: vec![NodeTrouble::default(); shape.workers],
            world: WorldTrouble::default(),
            resets: vec![0; shape.schedulers + shape.workers],
            redis_resets: vec![0; shape.schedulers],
            database_port,
            redis_port,
        }
    }

    /// What is wrong with an end of a connection.
    pub fn node(&self, who: Who) -> NodeTrouble {
        match who {
            Who::Scheduler(index) => self.schedulers[index],
            Who::Worker(index) => self.workers[index],
            Who::World | Who::Database | Who::Client => NodeTrouble::default(),
        }
    }

    /// A fault of a node begins or ends.
    pub fn node_mut(&mut self, who: Who) -> Option<&mut NodeTrouble> {
        match who {
            Who::Scheduler(index) => self.schedulers.get_mut(index),
            Who::Worker(index) => self.workers.get_mut(index),
            Who::World | Who::Database | Who::Client => None,
        }
    }

    /// A fault begins.
    pub fn begin(&mut self, on: &[Who], kind: FaultKind, at: u64) {
        for who in on {
            if let Some(node) = self.node_mut(*who) {
                node.begin(kind, at);
            }
            if kind == FaultKind::Reset {
                self.reset(*who);
            }
        }
        self.world.begin(kind);
    }

    /// It ends.
    pub fn end(&mut self, on: &[Who], kind: FaultKind) {
        for who in on {
            if let Some(node) = self.node_mut(*who) {
                node.end(kind);
            }
        }
        self.world.end(kind);
    }

    /// The connections of a node break.
    pub fn reset(&mut self, who: Who) {
        if let Some(place) = self.place(who) {
            self.resets[place] += 1;
        }
    }

    /// A scheduler's connections to Redis break.
    pub fn reset_redis(&mut self, scheduler: usize) {
        self.redis_resets[scheduler] += 1;
    }

    fn place(&self, who: Who) -> Option<usize> {
        match who {
            Who::Scheduler(index) => Some(index),
            Who::Worker(index) => Some(self.schedulers.len() + index),
            Who::World | Who::Database | Who::Client => None,
        }
    }

    /// Changes when the connections between these ends are to break.
    pub fn breaks(&self, ends: [End; 2]) -> u64 {
        let of_end = |end: End| match end {
            End::Node(who) => self.place(who).map_or(0, |place| self.resets[place]),
            End::Database | End::Redis | End::Nobody => 0,
        };
        let of_redis = match ends {
            [End::Node(Who::Scheduler(index)), End::Redis] => self.redis_resets[index],
            _ => 0,
        };
        of_end(ends[0]) + of_end(ends[1]) + of_redis
    }

    /// What keeps bytes from one end to the other.
    pub fn passage(&self, from: End, to: End) -> Passage {
        let of = |end: End| if let End::Node(who) = end { self.node(who) } else { NodeTrouble::default() };
        let (sender, receiver) = (of(from), of(to));
        let is_database = from == End::Database || to == End::Database;
        let is_apart = is_database && sender.database_cut + receiver.database_cut > 0;
        let slow_ms = if from == End::Database { self.world.database_slow_ms } else { 0 };
        let is_protocol = matches!((from, to), (End::Node(_), End::Node(_)));
        Passage {
            is_cut: is_apart || sender.outgoing_cut > 0 || receiver.incoming_cut > 0,
            delay_ms: sender.delay_ms + slow_ms,
            lose_per_mille: if is_protocol { sender.lose_per_mille } else { 0 },
        }
    }

    /// What a worker has to know.
    pub fn forecast(&self, worker: usize) -> Forecast {
        Forecast { node: self.workers[worker], world: self.world.clone() }
    }
}

/// Who changes it, and who hears of it.
pub type Sky = watch::Sender<Weather>;
