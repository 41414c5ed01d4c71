//! What all actors of the world share: time, the history, the state of what is wrong just now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use madsim::runtime::{Handle, NodeHandle};
use madsim::time::{Instant, sleep_until};
use punctual_core::time::{Monotonic, Now, Timestamp};
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Clock, Signals, Wake};
use tokio::sync::{broadcast, mpsc};

use crate::bank::{self, Flaw};
use crate::behaviour::Behaviours;
use crate::history::{Recorder, What, Who};
use crate::model::Database;
use crate::plan::Plan;
use crate::trouble::{NodeTrouble, WorldTrouble, between, chance};

/// What all actors share.
pub(super) struct Env {
    pub(super) plan: Arc<Plan>,
    recorder: Recorder,
    origin: Instant,
    pub(super) database: Mutex<Database>,
    pub(super) database_node: NodeHandle,
    pub(super) trouble: Mutex<WorldTrouble>,
    schedulers: Vec<Mutex<NodeTrouble>>,
    workers: Vec<Mutex<NodeTrouble>>,
    /// Connections of a node break when something comes here. Not a watch channel: that wakes its listeners in an order of its own.
    resets: BTreeMap<Who, broadcast::Sender<()>>,
    /// Where the loops of the schedulers that run listen.
    pub(super) inboxes: Mutex<Vec<Option<mpsc::Sender<ToSchedulerNode>>>>,
    pub(super) behaviours: Behaviours,
    /// Which worker runs how many attempts.
    pub(super) busy: Mutex<Vec<usize>>,
    probes: Mutex<BTreeMap<&'static str, u64>>,
    wake_ups: Mutex<rand_chacha::ChaCha8Rng>,
}

impl Env {
    pub(super) fn new(plan: Arc<Plan>, recorder: Recorder, flaws: &[Flaw]) -> Arc<Env> {
        let database = bank::database(&plan, recorder.clone(), flaws);
        let behaviours = Behaviours::new(&plan);
        let (schedulers, workers) = (plan.shape.schedulers, plan.shape.workers);
        let nodes = (0..schedulers).map(Who::Scheduler).chain((0..workers).map(Who::Worker));
        Arc::new(Env {
            recorder,
            origin: Instant::now(),
            database: Mutex::new(database),
            database_node: Handle::current().create_node().name("database").ip([10, 0, 0, 2].into()).build(),
            trouble: Mutex::default(),
            schedulers: (0..schedulers).map(|_| Mutex::default()).collect(),
            workers: (0..workers).map(|_| Mutex::default()).collect(),
            resets: nodes.map(|who| (who, broadcast::Sender::new(1))).collect(),
            inboxes: Mutex::new(vec![None; schedulers]),
            behaviours,
            busy: Mutex::new(vec![0; workers]),
            probes: Mutex::default(),
            wake_ups: Mutex::new(plan.stream("wake-ups")),
            plan,
        })
    }

    /// Virtual milliseconds since the beginning.
    pub(super) fn at(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    pub(super) async fn sleep_until(&self, at_ms: u64) {
        sleep_until(self.origin + Duration::from_millis(at_ms)).await;
    }

    pub(super) fn record(&self, who: Who, what: What) {
        let at = self.at();
        self.recorder.record(at, self.wall(who, at), who, what);
    }

    /// What the wall clock of this actor shows.
    pub(super) fn wall(&self, who: Who, at: u64) -> Timestamp {
        let now = self.plan.starts_at + at as i64;
        let node = match who {
            Who::Scheduler(index) => lock(&self.schedulers[index]),
            Who::Worker(index) => lock(&self.workers[index]),
            Who::World | Who::Database | Who::Client => return Timestamp(now),
        };
        Timestamp(now + node.ahead_ms(at))
    }

    /// What is wrong with a node just now.
    pub(super) fn node(&self, who: Who) -> NodeTrouble {
        match who {
            Who::Scheduler(index) => *lock(&self.schedulers[index]),
            Who::Worker(index) => *lock(&self.workers[index]),
            Who::World | Who::Database | Who::Client => NodeTrouble::default(),
        }
    }

    pub(super) fn change_node(&self, who: Who, change: impl FnOnce(&mut NodeTrouble)) {
        match who {
            Who::Scheduler(index) => change(&mut lock(&self.schedulers[index])),
            Who::Worker(index) => change(&mut lock(&self.workers[index])),
            Who::World | Who::Database | Who::Client => unreachable!("faults of the world are not a node's"),
        }
    }

    pub(super) fn is_healed(&self) -> bool {
        lock(&self.trouble).is_healed
    }

    /// Breaks the connections of a node.
    pub(super) fn reset(&self, who: Who) {
        // Where there is no connection there is nothing to break.
        let _ = self.resets[&who].send(());
    }

    /// Hears when the connections of a node break.
    pub(super) fn resets_of(&self, who: Who) -> broadcast::Receiver<()> {
        self.resets[&who].subscribe()
    }

    /// The run is over.
    pub(super) fn close(&self) {
        self.recorder.close();
    }

    /// Counts that this was come through.
    pub(super) fn probe(&self, name: &'static str) {
        debug_assert!(crate::bank::PROBES.contains(&name), "{name} is not in the catalogue");
        *lock(&self.probes).entry(name).or_default() += 1;
    }

    pub(super) fn probes(&self) -> BTreeMap<&'static str, u64> {
        let hits = lock(&self.probes);
        crate::bank::PROBES.iter().map(|name| (*name, hits.get(name).copied().unwrap_or(0))).collect()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node's own clocks: one that nobody can set, and one that is as it was set.
pub(super) struct NodeClock {
    pub(super) env: Arc<Env>,
    pub(super) who: Who,
}

impl Clock for NodeClock {
    fn now(&self) -> Now {
        let at = self.env.at();
        Now { wall: self.env.wall(self.who, at), monotonic: Monotonic(at) }
    }
}

/// Whoever wakes schedulers up: the model of what Redis does between replicas. It may lose a wake-up or repeat it.
pub(super) struct WakeUps(pub(super) Arc<Env>);

impl Signals for WakeUps {
    fn wake(&self, wake: Wake) {
        let env = &self.0;
        if !env.plan.knobs.wake_ups {
            return;
        }
        let (is_down, lost, doubled) = {
            let trouble = lock(&env.trouble);
            (trouble.wake_ups_down > 0, trouble.wake_ups_lost_per_mille, trouble.wake_ups_doubled > 0)
        };
        let inboxes: Vec<_> = lock(&env.inboxes).iter().flatten().cloned().collect();
        for inbox in inboxes {
            let (is_lost, delay) = {
                let random = &mut *lock(&env.wake_ups);
                (chance(random, lost), between(random, env.plan.knobs.network_ms))
            };
            if is_down || is_lost {
                env.probe("wake_up.lost");
                continue;
            }
            let message = match wake {
                Wake::Inbox => || ToSchedulerNode::InboxSignalled,
                Wake::Leases => || ToSchedulerNode::LeasesSignalled,
            };
            env.database_node.spawn(async move {
                madsim::time::sleep(Duration::from_millis(delay)).await;
                for _ in 0..1 + usize::from(doubled) {
                    // A full queue loses wake-ups; they cost latency only.
                    let _ = inbox.try_send(message());
                }
            });
        }
    }
}
