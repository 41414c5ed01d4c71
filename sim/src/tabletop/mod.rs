//! The tabletop world: the core's machines in a plain event loop, on one thread, without async, network or sockets.
//!
//! Schedulers and workers are the real ones; the database is the [model](crate::model); everything between them is a queue of things to
//! come. It is driven in two ways. [`run`] carries a [`Plan`] out, as the rehearsal world does, at about a million steps a second.
//! Tests drive a [`World`] by hand: they let time pass, hold the store or messages back, decide what becomes of the next commits, set the
//! clock. Nothing is left to chance then. Either way it writes a [`History`](crate::history::History), and the same properties judge it.
//!
//! Leases and the inbox go by the database's clock. Driven by hand, there is no other wall clock: whoever sets it sets everybody's.
//!
//! What there is not, since there are no bytes: frames that come twice. A frame that is lost resets its connection at once.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `queue` | what is to come, in the order of its time |
//! | `nodes` | schedulers and workers: starting, stopping, pausing, and what they ask for |
//! | `links` | connections between them: latency, cuts, breaking and dialling again |
//! | `store` | the way to the database and back |
//! | `handlers` | what handlers do, and their own account of it |
//! | `hand` | what only a test does |
//! | `play` | a plan's faults and calls |

mod hand;
mod handlers;
mod links;
mod nodes;
mod play;
mod queue;
mod store;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use punctual_core::batch::Batch;
use punctual_core::ids::{ConnectionId, Fence, InstanceId};
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_core::scheduler::{self, Alert};
use punctual_core::time::{Monotonic, Now, Timestamp};
use punctual_core::worker;

use crate::bank::Flaw;
use crate::history::{Recorder, What, Who};
use crate::model::{Data, Database};
use crate::outcome::{Counted, Outcome, store_hits};
use crate::plan::Plan;

pub use hand::{START, every, minutely, task};
pub use handlers::{Began, Run};
pub use nodes::{Replica, Worker};
pub use store::Fate;
// What is asked for by hand is said in the ports' words.
pub use punctual_driver::ports::{InstanceAction, PauseTarget, TriggerChanged};

use handlers::HandlerEnd;
use links::{Link, Side};
use play::{Play, PlayEvent};
use queue::Queue;
use store::{Ask, Reply, Request};

/// Carries a plan out, with these guards switched off.
pub fn run(plan: &Plan, flaws: &[Flaw]) -> Outcome {
    let recorder = Recorder::default();
    Outcome::of(flaws, &recorder, || {
        let mut world = World::of_plan(plan, recorder.clone(), flaws);
        world.play_out();
        Counted { probes: world.probes(), hits: store_hits(&world.database, flaws) }
    })
}

/// Something that is under way.
#[derive(Debug)]
enum Delivery {
    /// A question reaches the database.
    Request(Box<Request>),
    /// Its answer reaches whoever asked.
    Reply(Box<Reply>),
    /// Whoever asked gives up waiting for the answer.
    Unheard(Box<Ask>),
    /// The same is asked again.
    Again(Box<Ask>),
    ToReplica(usize, u64, scheduler::Event),
    ToWorker(usize, u64, worker::Event),
    Up(ConnectionId, Vec<ToScheduler>),
    Down(ConnectionId, Vec<ToWorker>),
    /// This side of a connection learns that the other one is gone.
    PeerGone(ConnectionId, Side),
    /// A worker, in this life, dials a replica.
    Dial(usize, u64, usize),
    /// A connection's sides look whether they still hear each other.
    KeepAlive(ConnectionId),
    HandlerEnds(HandlerEnd),
    Play(PlayEvent),
}

/// Schedulers, workers, their database, and time.
pub struct World {
    /// Entries that an inbox is read by.
    pub inbox_page: usize,
    /// The machines' monotonic clock.
    pub time: u64,
    /// What it showed at the beginning: virtual time counts from there.
    began_at: u64,
    /// How far the wall clock was set from where it would be, driven by hand.
    pub wall_offset: i64,
    /// The most that it ever was.
    pub highest_offset: i64,
    database: Database,
    recorder: Recorder,
    /// The scheduler replicas.
    pub replicas: Vec<Replica>,
    /// The workers.
    pub workers: Vec<Worker>,
    partitions: u16,
    commits_at_once: usize,
    links: BTreeMap<ConnectionId, Link>,
    next_connection: u64,
    queue: Queue<Delivery>,
    /// How long a message takes, driven by hand.
    pub network_latency: u64,
    /// How long the way to the store takes, and the way back, driven by hand.
    pub store_latency: u64,
    /// Questions to the store wait.
    pub store_is_held: bool,
    held: Vec<Delivery>,
    /// What becomes of the next commits, driven by hand.
    pub fates: VecDeque<Fate>,
    /// So many snapshots can't be read.
    pub failing_snapshots: u32,
    /// What handlers do, by task name and attempt, driven by hand.
    pub scripts: BTreeMap<Arc<str>, Vec<Run>>,
    /// What the handlers of nodes answer, driven by hand.
    results: BTreeMap<Arc<str>, Arc<str>>,
    /// What nodes were given of what their upstreams have answered, by instance.
    pub inputs: BTreeMap<InstanceId, Arc<str>>,
    /// The longest that each task's handler was ever told to take.
    longest_runs: BTreeMap<Arc<str>, u64>,
    /// How many items a handler lists, driven by hand.
    pub listed: Option<u32>,
    /// What a handler answers that runs an item or a shard, driven by hand; else its payload.
    pub answer_with: Option<Arc<str>>,
    /// What handlers that reduce were given, and for which instance.
    pub reduced: Vec<(InstanceId, Arc<str>)>,
    /// Every attempt that has begun.
    pub began: Vec<Began>,
    /// What schedulers have told people, and when by the monotonic clock.
    pub alerts: Vec<(u64, Alert)>,
    /// The batches that were written, if they are kept.
    pub commits: Vec<Arc<Batch>>,
    /// Whether they are.
    pub keeps_commits: bool,
    /// How many batches the database has carried out.
    pub commit_count: u64,
    /// Events that a machine or the database has handled.
    pub steps: u64,
    /// How often a scheduler was called because it asked for it, at this moment.
    ticks: (u64, u32),
    next_call: u64,
    play: Option<Box<Play>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("time", &self.time).field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl World {
    /// A world without nodes.
    fn empty(partitions: u16, began_at: u64, database: Database, recorder: Recorder) -> World {
        World {
            inbox_page: punctual_core::limits::INBOX_READ_MAX,
            time: began_at,
            began_at,
            wall_offset: 0,
            highest_offset: 0,
            database,
            recorder,
            replicas: Vec::new(),
            workers: Vec::new(),
            partitions,
            commits_at_once: 2,
            links: BTreeMap::new(),
            next_connection: 1,
            queue: Queue::new(),
            network_latency: 1,
            store_latency: 1,
            store_is_held: false,
            held: Vec::new(),
            fates: VecDeque::new(),
            failing_snapshots: 0,
            scripts: BTreeMap::new(),
            results: BTreeMap::new(),
            inputs: BTreeMap::new(),
            longest_runs: BTreeMap::new(),
            listed: None,
            answer_with: None,
            reduced: Vec::new(),
            began: Vec::new(),
            alerts: Vec::new(),
            commits: Vec::new(),
            keeps_commits: false,
            commit_count: 0,
            steps: 0,
            ticks: (0, 0),
            next_call: 1,
            play: None,
        }
    }

    /// What the database has stored.
    pub fn data(&self) -> &Data {
        self.database.data()
    }

    /// Virtual milliseconds since the beginning.
    pub fn at(&self) -> u64 {
        self.time - self.began_at
    }

    /// What a scheduler that knows the database's clock takes for the present.
    pub fn now(&self) -> Now {
        Now { wall: self.database.clock(self.at()), monotonic: Monotonic(self.time) }
    }

    /// What the wall clock of whoever this is shows.
    fn wall(&self, who: Who) -> Timestamp {
        let at = self.at();
        match (&self.play, who) {
            (Some(play), who) => play.wall(who, at),
            (None, _) => self.database.clock(at),
        }
    }

    fn record(&self, who: Who, what: What) {
        self.recorder.record(self.at(), self.wall(who), who, what);
    }

    /// Lets time pass, and everything happen that belongs to it.
    pub fn run(&mut self, millis: u64) {
        let until = self.time + millis;
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.time = self.time.max(at);
            self.step();
        }
        self.time = until;
    }

    fn next_at(&self) -> Option<u64> {
        let replicas = self.replicas.iter().filter(|replica| !replica.paused).filter_map(|replica| replica.timeout);
        let workers = self.workers.iter().filter(|worker| !worker.paused).filter_map(|worker| worker.timeout);
        replicas.chain(workers).chain(self.queue.next_at()).min()
    }

    fn step(&mut self) {
        if let Some(delivery) = self.queue.pop(self.time) {
            return self.deliver(delivery);
        }
        for replica in 0..self.replicas.len() {
            let node = &self.replicas[replica];
            if !node.paused && node.timeout.is_some_and(|at| at <= self.time) {
                self.tell_replica(replica, scheduler::Event::Tick);
                self.ticks = if self.ticks.0 == self.time { (self.time, self.ticks.1 + 1) } else { (self.time, 0) };
                assert!(self.ticks.1 < 1_000, "a scheduler asks for ever to be called at {}", self.time);
            }
        }
        for worker in 0..self.workers.len() {
            let node = &self.workers[worker];
            if !node.paused && node.timeout.is_some_and(|at| at <= self.time) {
                self.tell_worker(worker, worker::Event::Tick);
            }
        }
    }

    fn send(&mut self, after: u64, delivery: Delivery) {
        self.queue.push(self.time + after, delivery);
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Request(_) if self.store_is_held => self.held.push(delivery),
            Delivery::Request(request) => self.reach_database(*request),
            Delivery::Reply(reply) => self.reach_asker(*reply),
            Delivery::Unheard(ask) => self.finish(*ask, Err(crate::calls::Failed::NoAnswer)),
            Delivery::Again(ask) => self.ask(ask),
            Delivery::ToReplica(replica, life, event) => {
                if self.replicas[replica].life == life {
                    self.tell_replica(replica, event);
                }
            }
            Delivery::ToWorker(worker, life, event) => {
                if self.workers[worker].life == life {
                    self.tell_worker(worker, event);
                }
            }
            Delivery::Up(connection, messages) => self.reach_replica(connection, messages),
            Delivery::Down(connection, messages) => self.reach_worker(connection, messages),
            Delivery::PeerGone(connection, side) => self.peer_is_gone(connection, side),
            Delivery::Dial(worker, life, replica) => self.dial(worker, life, replica),
            Delivery::KeepAlive(connection) => self.keep_alive(connection),
            Delivery::HandlerEnds(end) => self.handler_ends(end),
            Delivery::Play(event) => self.happen(event),
        }
    }

    /// Handlers that run now.
    pub fn running_count(&self) -> usize {
        self.workers.iter().map(|worker| worker.running.len()).sum()
    }

    fn running_mut(&mut self, worker: usize, instance: InstanceId, fence: Fence) -> Option<&mut handlers::Running> {
        self.workers[worker].running.get_mut(&(instance, fence))
    }
}
