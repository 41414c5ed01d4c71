//! Scheduler and worker nodes, and what is left of them at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use madsim::runtime::{Handle, NodeHandle};
use madsim::task::NodeId;
use madsim::time::timeout;
use punctual_core::ids::{ReplicaId, WorkerId, WorkerLife};
use punctual_core::scheduler::Alert;
use punctual_core::{limits, scheduler, worker};
use punctual_driver::link::{ToSchedulerNode, ToWorkerNode};
use punctual_driver::ports::Observer;
use tokio::sync::{mpsc, oneshot};

use crate::behaviour::HANDLERS;
use crate::calls::worker_name;
use crate::history::{Left, What, Who};
use crate::world::env::{Env, NodeClock, WakeUps, lock};
use crate::world::handlers::Handlers;
use crate::world::store::Connection;
use crate::world::transport;

/// How long a node may take to tell how it stands.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// A node, and how often it was stopped without having been started again since.
pub(super) struct Node {
    pub(super) who: Who,
    handle: NodeHandle,
    down: AtomicUsize,
    paused: AtomicUsize,
    worker: std::sync::Mutex<Option<mpsc::Sender<ToWorkerNode>>>,
}

/// All nodes.
pub(super) struct Nodes {
    pub(super) schedulers: Vec<Arc<Node>>,
    pub(super) workers: Vec<Arc<Node>>,
}

impl Nodes {
    pub(super) fn get(&self, who: Who) -> &Arc<Node> {
        match who {
            Who::Scheduler(index) => &self.schedulers[index],
            Who::Worker(index) => &self.workers[index],
            Who::World | Who::Database | Who::Client => unreachable!("they are no nodes"),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.schedulers.iter().chain(&self.workers)
    }
}

impl Node {
    pub(super) fn id(&self) -> NodeId {
        self.handle.id()
    }

    pub(super) fn is_up(&self) -> bool {
        self.down.load(Ordering::Relaxed) == 0
    }

    /// The node dies, with its memory.
    pub(super) fn crash(&self, env: &Env) {
        if self.down.fetch_add(1, Ordering::Relaxed) == 0 {
            env.record(self.who, What::Crashed);
            self.kill(env);
        }
    }

    fn kill(&self, env: &Env) {
        if let Who::Scheduler(index) = self.who {
            lock(&env.inboxes)[index] = None;
        }
        *lock(&self.worker) = None;
        Handle::current().kill(self.id());
    }

    /// It may start again.
    pub(super) fn start_again(&self) {
        if self.down.fetch_sub(1, Ordering::Relaxed) == 1 {
            let runtime = Handle::current();
            // Whether it has stopped or was killed: nothing of it may be left.
            runtime.kill(self.id());
            runtime.restart(self.id());
            if self.paused.load(Ordering::Relaxed) > 0 {
                runtime.pause(self.id());
            }
        }
    }

    /// It stands still.
    pub(super) fn pause(&self, env: &Env) {
        if self.paused.fetch_add(1, Ordering::Relaxed) == 0 {
            env.record(self.who, What::Paused);
            Handle::current().pause(self.id());
        }
    }

    pub(super) fn resume(&self, env: &Env) {
        if self.paused.fetch_sub(1, Ordering::Relaxed) == 1 {
            env.record(self.who, What::Resumed);
            Handle::current().resume(self.id());
        }
    }

    /// It is asked to stop in good order, has so long to do it, and is then killed.
    pub(super) async fn stop(&self, env: &Env, patience: Duration) {
        if self.down.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let is_asked = match self.who {
            Who::Scheduler(index) => {
                let inbox = lock(&env.inboxes)[index].clone();
                match inbox {
                    Some(inbox) => inbox.send(ToSchedulerNode::Shutdown).await.is_ok(),
                    None => false,
                }
            }
            _ => {
                let inbox = lock(&self.worker).clone();
                match inbox {
                    Some(inbox) => inbox.send(ToWorkerNode::Drain).await.is_ok(),
                    None => false,
                }
            }
        };
        let has_stopped = || match self.who {
            Who::Scheduler(index) => lock(&env.inboxes)[index].is_none(),
            _ => lock(&self.worker).is_none(),
        };
        let until = madsim::time::Instant::now() + patience;
        while is_asked && !has_stopped() && madsim::time::Instant::now() < until {
            madsim::time::sleep(Duration::from_millis(100)).await;
        }
        if !has_stopped() {
            env.record(self.who, What::Crashed);
        }
        self.kill(env);
    }
}

/// Starts all nodes.
pub(super) async fn start(env: &Arc<Env>) -> Arc<Nodes> {
    let schedulers = (0..env.plan.shape.schedulers).map(|index| {
        let lives = Arc::new(AtomicU64::new(0));
        let env = env.clone();
        node(Who::Scheduler(index), format!("scheduler-{index}"), [10, 0, 1, 1 + index as u8], move |_| {
            let life = lives.fetch_add(1, Ordering::Relaxed) + 1;
            run_scheduler(env.clone(), index, life)
        })
    });
    let schedulers = schedulers.collect();
    let workers = (0..env.plan.shape.workers).map(|index| {
        let lives = Arc::new(AtomicU64::new(0));
        let env = env.clone();
        node(Who::Worker(index), format!("worker-{index}"), worker_address(index), move |node| {
            let life = lives.fetch_add(1, Ordering::Relaxed) + 1;
            run_worker(env.clone(), node, index, life)
        })
    });
    Arc::new(Nodes { schedulers, workers: workers.collect() })
}

/// There are more workers than a byte counts.
fn worker_address(index: usize) -> [u8; 4] {
    let number = 1 + index;
    [10, 0, 2 + (number / 256) as u8, (number % 256) as u8]
}

fn node<F>(who: Who, name: String, address: [u8; 4], main: impl Fn(Arc<Node>) -> F + Send + Sync + 'static) -> Arc<Node>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = Handle::current();
    let place = Arc::new(std::sync::Mutex::new(None::<Arc<Node>>));
    let of_main = place.clone();
    let main = Arc::new(main);
    let init = move || {
        let (place, main) = (of_main.clone(), main.clone());
        async move {
            // The node is known as soon as all are built.
            let node = lock(&place).clone().expect("the node is built before it runs");
            main(node).await;
        }
    };
    let handle = runtime.create_node().name(name).ip(address.into()).init(init).build();
    let node = Node { who, handle, down: AtomicUsize::new(0), paused: AtomicUsize::new(0), worker: std::sync::Mutex::new(None) };
    let node = Arc::new(node);
    *lock(&place) = Some(node.clone());
    node
}

struct Telling {
    env: Arc<Env>,
    who: Who,
}

impl Observer for Telling {
    fn alerted(&self, alert: &Alert) {
        self.env.record(self.who, What::Alerted(Arc::from(format!("{alert:?}"))));
    }
}

async fn run_scheduler(env: Arc<Env>, index: usize, life: u64) {
    let who = Who::Scheduler(index);
    env.record(who, What::Started { life });
    let (inbox, inbound) = mpsc::channel(punctual_driver::scheduler::QUEUE_MAX);
    lock(&env.inboxes)[index] = Some(inbox.clone());
    let listening = tokio::spawn(transport::listen(env.clone(), index, life, inbox));
    let config = scheduler::Config {
        replica: ReplicaId(Arc::from(format!("s{}-{life}", index + 1))),
        partitions: env.plan.shape.partitions,
        commits_at_once: env.plan.knobs.commits_at_once,
        misfire_threshold: limits::MISFIRE_THRESHOLD,
    };
    let store = Arc::new(Connection::new(&env, who, &format!("scheduler/{index}/{life}")));
    let clock = Arc::new(NodeClock { env: env.clone(), who });
    let telling = Arc::new(Telling { env: env.clone(), who });
    punctual_driver::scheduler::run(config, store, clock, Arc::new(WakeUps(env.clone())), telling, inbound).await;
    // In good order: nobody else ends the loop.
    listening.abort();
    lock(&env.inboxes)[index] = None;
    env.record(who, What::Stopped);
}

async fn run_worker(env: Arc<Env>, node: Arc<Node>, index: usize, life: u64) {
    let who = Who::Worker(index);
    env.record(who, What::Started { life });
    let (inbox, inbound) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
    *lock(&node.worker) = Some(inbox.clone());
    let numbers = Arc::new(AtomicU64::new(0));
    let dialling = (0..env.plan.shape.schedulers)
        .map(|scheduler| tokio::spawn(transport::dial(env.clone(), index, life, scheduler, numbers.clone(), inbox.clone())));
    let dialling: Vec<_> = dialling.collect();
    drop(inbox);
    let config = worker::Config {
        worker: WorkerId(worker_name(index)),
        life: WorkerLife(life),
        slots: env.plan.shape.slots,
        handlers: HANDLERS.iter().map(|name| Arc::from(*name)).collect(),
        traits: crate::features::traits(index),
    };
    let handlers = Arc::new(Handlers { env: env.clone(), index, life });
    let clock = Arc::new(NodeClock { env: env.clone(), who });
    punctual_driver::worker::run(config, handlers, clock, inbound).await;
    dialling.iter().for_each(tokio::task::JoinHandle::abort);
    *lock(&node.worker) = None;
    env.record(who, What::Stopped);
}

/// Writes down what is left at the end of the run.
pub(super) async fn record_what_is_left(env: &Arc<Env>, nodes: &Nodes) {
    {
        let database = lock(&env.database);
        let data = database.data();
        let left = Left::InDatabase { live: data.live.iter().copied().collect(), inbox: data.inbox.keys().copied().collect() };
        drop(database);
        env.record(Who::Database, What::Left(left));
    }
    for node in nodes.all() {
        let left = match node.who {
            Who::Scheduler(index) => {
                let (asker, answer) = oneshot::channel();
                let inbox = lock(&env.inboxes)[index].clone();
                let is_up = match inbox {
                    Some(inbox) => inbox.send(ToSchedulerNode::Status(asker)).await.is_ok(),
                    None => false,
                };
                let status = if is_up { timeout(STATUS_TIMEOUT, answer).await.ok().and_then(Result::ok) } else { None };
                let (instances, partitions) = status.map_or((0, Vec::new()), |status| (status.instances, status.partitions));
                Left::InScheduler { is_up, instances, partitions }
            }
            _ => {
                let (asker, answer) = oneshot::channel();
                let inbox = lock(&node.worker).clone();
                let is_up = match inbox {
                    Some(inbox) => inbox.send(ToWorkerNode::Status(asker)).await.is_ok(),
                    None => false,
                };
                let status = if is_up { timeout(STATUS_TIMEOUT, answer).await.ok().and_then(Result::ok) } else { None };
                let (running, reports) = status.map_or((0, 0), |status| (status.running, status.reports));
                Left::InWorker { is_up, running, reports }
            }
        };
        env.record(node.who, What::Left(left));
    }
}
