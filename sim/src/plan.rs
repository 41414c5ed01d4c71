//! A plan: everything that a world is going to do, as data.
//!
//! A plan and its seed give the same history each time. What chance decides while a plan runs (latencies, how long a handler takes, whether
//! it fails) comes from streams of random numbers, one for each actor, made from the plan's seed and the actor's name: taking one step
//! out of a plan leaves all others as they were.

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a world is going to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What the streams of random numbers are made from.
    pub seed: u64,
    /// How many of what there are.
    pub shape: Shape,
    /// How the world is set.
    pub knobs: Knobs,
    /// The tasks, in the form of task documents, and how their handlers behave.
    pub tasks: Vec<TaskPlan>,
    /// What people do.
    pub calls: Vec<Call>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// From then on nothing goes wrong any more, handlers succeed, and no calls are made. In virtual milliseconds, like all times here.
    pub heal_at_ms: u64,
    /// When it ends.
    pub horizon_ms: u64,
    /// What the wall clock says when it begins: milliseconds since 1970, UTC. It decides which nights of daylight saving a run sees.
    #[serde(default = "starts_at", skip_serializing_if = "is_usual_start")]
    pub starts_at: i64,
}

/// Where a plan doesn't say: 2027-01-15T08:00:00Z, far from any move of a clock.
pub const STARTS_AT: i64 = 1_800_000_000_000;

const fn starts_at() -> i64 {
    STARTS_AT
}

fn is_usual_start(starts_at: &i64) -> bool {
    *starts_at == STARTS_AT
}

/// How many of what there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Scheduler replicas, at least 1.
    pub schedulers: usize,
    /// Workers, at least 1.
    pub workers: usize,
    /// Attempts that a worker runs at once, at least 1.
    pub slots: u32,
    /// Partitions of the store, at least 1.
    pub partitions: u16,
}

/// How the world is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knobs {
    /// Shortest and longest way of a message between nodes.
    pub network_ms: (u64, u64),
    /// Shortest and longest time that the database takes.
    pub database_ms: (u64, u64),
    /// How far the database's replica is behind its primary.
    pub replica_lag_ms: u64,
    /// Whether the database confirms a commit only when its replica has it: then a failover loses nothing that was confirmed.
    pub semi_synchronous: bool,
    /// Whether there is somebody who wakes owners up when something comes into their inbox; else they find it by reading.
    pub wake_ups: bool,
    /// How many commits of a scheduler may be under way at once, at least 1.
    #[serde(default = "one_commit")]
    pub commits_at_once: usize,
}

const fn one_commit() -> usize {
    1
}

/// A task and how its handler behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPlan {
    /// The task document, in its canonical form as JSON.
    pub document: Value,
    /// How its handler behaves until the world heals.
    pub handler: HandlerPlan,
}

/// How a handler behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandlerPlan {
    /// Shortest and longest run.
    pub takes_ms: (u64, u64),
    /// Of a thousand attempts, so many fail.
    pub fails_per_mille: u32,
    /// Of those that fail, whether the failure is for good.
    #[serde(default)]
    pub fails_for_good: bool,
    /// How long after the cancel signal it ends; `None`: not until it is killed.
    #[serde(default)]
    pub obeys_after_ms: Option<u64>,
    /// The service that it calls, if any: a retry storm makes all calls of one fail.
    #[serde(default)]
    pub downstream: Option<String>,
}

/// Something that people do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// When.
    pub at_ms: u64,
    /// What.
    pub what: CallKind,
}

/// What people do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallKind {
    /// Fire a task by hand.
    Trigger {
        /// Its place in the plan's list.
        task: usize,
        /// After this delay.
        delay_ms: Option<u64>,
        /// Under this idempotency key: a call whose answer was lost is made again under its key.
        key: Option<String>,
    },
    /// Cancel one of the instances that have not ended, the `nth` by id, counted around.
    Cancel {
        /// Which.
        nth: usize,
    },
    /// Replace a task's document.
    Edit {
        /// Its place in the plan's list.
        task: usize,
        /// The new document.
        document: Value,
    },
    /// Pause tasks, and let them go on after a while.
    Pause {
        /// What is paused.
        on: PauseOn,
        /// For how long.
        lasts_ms: u64,
    },
    /// Remove a task. An edit brings it back.
    Remove {
        /// Its place in the plan's list.
        task: usize,
    },
    /// What an operator does with what is there by then.
    Operate {
        /// What.
        operation: Operation,
        /// With the `nth` of those that it may meet, counted around.
        nth: usize,
    },
}

/// What operators do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// End an instance at once.
    Kill,
    /// Leave out a firing that has not begun.
    Skip,
    /// Run a firing that has ended once more: of shards those that have not succeeded.
    Rerun,
    /// The same, all of it.
    RerunAll,
    /// Run a workflow's run again from one of its nodes.
    RerunFrom,
    /// Say what a node of a run has come to.
    Mark(Mark),
    /// Make up for fire times before the plan begins.
    Backfill {
        /// The task's place in the plan's list.
        task: usize,
        /// For how many.
        count: u32,
        /// How many at a time.
        concurrency: u32,
    },
    /// End a backfill.
    EndBackfill,
    /// Let a trigger that is not due yet come at another time.
    Reschedule {
        /// So much later than now.
        by_ms: u64,
    },
    /// Cancel a trigger that is not due yet.
    Withdraw,
}

/// What somebody says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It is left out.
    Skipped,
    /// It is done.
    Succeeded,
    /// It can't be done.
    Failed,
}

/// What people pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PauseOn {
    /// Every task.
    All,
    /// The tasks with this group.
    Group(String),
    /// The task with this place in the plan's list.
    Task(usize),
    /// The worker with this number, from 0, there or not: it is drained.
    Worker(usize),
}

/// Something that goes wrong, and is right again after a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When it begins.
    pub at_ms: u64,
    /// How long it lasts.
    pub lasts_ms: u64,
    /// What goes wrong.
    pub kind: FaultKind,
    /// For whom; settled when it begins.
    pub on: Selector,
}

/// What goes wrong. Each belongs to a [`Family`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKind {
    /// The node dies, with its memory; it starts again at the fault's end.
    Crash,
    /// The node stops in good order (a scheduler hands its partitions over, a worker drains); it starts again at the fault's end.
    Restart,
    /// The node stands still, and goes on as if nothing had been.
    Pause,
    /// Nothing gets through between the node and the others, either way.
    Isolate,
    /// Nothing gets through from the node to the others.
    CutOutgoing,
    /// Nothing gets through from the others to the node.
    CutIncoming,
    /// Nothing gets through between the node and the database, either way. All others it reaches.
    CutFromDatabase,
    /// Messages of the node take this much longer.
    Delay {
        /// In milliseconds.
        ms: u64,
    },
    /// Of a thousand frames of the node so many are lost, and their connections reset when that is noticed.
    Lose {
        /// Per mille.
        per_mille: u32,
    },
    /// Of a thousand frames of the node so many come twice.
    Duplicate {
        /// Per mille.
        per_mille: u32,
    },
    /// The node's connections break, once, at the beginning.
    Reset,
    /// The node's wall clock is set by this much, and back at the end.
    ClockStep {
        /// In milliseconds.
        by: i64,
    },
    /// The node's wall clock runs faster or slower by so many parts of a thousand.
    ClockDrift {
        /// Parts of a thousand.
        per_mille: i64,
    },
    /// The database takes this much longer.
    DatabaseSlow {
        /// In milliseconds.
        ms: u64,
    },
    /// The database answers nobody.
    DatabaseDown,
    /// The database has no room left: it can be read, and nothing can be written. No swarm draws it, since that would change what all seeds
    /// mean; the chaos runs do.
    DatabaseFull,
    /// Of a thousand commits so many are aborted, surely without effect.
    DatabaseAborts {
        /// Per mille.
        per_mille: u32,
    },
    /// Of a thousand commits so many are carried out and the answer is lost.
    CommitAppliedAnswerLost {
        /// Per mille.
        per_mille: u32,
    },
    /// Of a thousand commits so many are not carried out and the answer is lost.
    CommitNotAppliedAnswerLost {
        /// Per mille.
        per_mille: u32,
    },
    /// The database fails over to its replica, once, at the beginning. What had not reached the replica is lost; with semi-synchronous
    /// replication that is nothing that was confirmed.
    Failover,
    /// The database's own clock is set by this much, and back at the end.
    DatabaseClockStep {
        /// In milliseconds.
        by: i64,
    },
    /// Nobody is woken up.
    WakeUpsDown,
    /// Of a thousand wake-ups so many are lost.
    WakeUpsLost {
        /// Per mille.
        per_mille: u32,
    },
    /// Each wake-up comes twice.
    WakeUpsDoubled,
    /// Handlers of the worker that run or begin meanwhile hang: they end when they are killed, or else at the fault's end.
    HandlersHang,
    /// Handlers of the worker take so many times as long.
    HandlersSlow {
        /// Times.
        times: u64,
    },
    /// Handlers of the worker panic at their beginning.
    HandlersPanic,
    /// Everything that calls the plan's downstream with this number fails.
    RetryStorm {
        /// Its place in [`Plan::downstreams`].
        downstream: usize,
    },
    /// So many submissions of one manual task come in one second, once, at the beginning.
    Flood {
        /// The task's place in the plan's list.
        task: usize,
        /// How many.
        count: usize,
    },
}

/// Faults of a kind. Each family is off in half of the plans that a seed draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Nodes that die.
    NodeCrash,
    /// Nodes that are stopped and started in good order.
    RollingRestart,
    /// Nodes that stand still.
    NodePause,
    /// Links that are cut, delayed, lossy, repeating, reset.
    Network,
    /// Nodes' clocks.
    Clock,
    /// The database's clock.
    DatabaseClock,
    /// A database that is slow, away or full.
    DbJitter,
    /// Commits that are aborted, or whose answer is lost.
    DbUnknown,
    /// A failover that loses nothing that was confirmed.
    DbFailover,
    /// A failover that loses the tail. The promises are weaker then.
    DbLostTail,
    /// Wake-ups that are lost, doubled or away.
    WakeUps,
    /// Handlers that hang, are slow or panic.
    Handlers,
    /// A service that fails for everybody at once.
    RetryStorm,
    /// Tens of thousands of tasks in one second.
    Flood,
}

/// For whom a fault is; settled when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Selector {
    /// For nobody in particular: the database, the wake-ups, a service.
    World,
    /// This scheduler, counted from 0 and around.
    Scheduler(usize),
    /// This worker, counted from 0 and around.
    Worker(usize),
    /// Whoever owns this partition, counted around; the first scheduler where nobody does.
    Owner(usize),
    /// A worker that runs an attempt, the `nth` of those, counted around; that worker where none does.
    Busy(usize),
    /// Fewer than half of the schedulers, from the first on.
    Minority,
    /// All schedulers.
    AllSchedulers,
    /// All workers.
    AllWorkers,
    /// All schedulers and workers.
    Everybody,
}

impl Default for Knobs {
    /// A quiet world.
    fn default() -> Self {
        Knobs { network_ms: (1, 5), database_ms: (1, 5), replica_lag_ms: 0, semi_synchronous: true, wake_ups: true, commits_at_once: 1 }
    }
}

impl Plan {
    /// The services that handlers call, each once, in the order of the tasks.
    pub fn downstreams(&self) -> Vec<&str> {
        downstreams(&self.tasks)
    }

    /// The stream of random numbers of this actor.
    pub fn stream(&self, actor: &str) -> ChaCha8Rng {
        stream(self.seed, actor)
    }
}

/// The services that the handlers of these tasks call, each once, in the order of the tasks.
pub fn downstreams(tasks: &[TaskPlan]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in tasks.iter().filter_map(|task| task.handler.downstream.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The stream of random numbers that belongs to this seed and actor.
pub fn stream(seed: u64, actor: &str) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    // FNV-1a over the name: any mixing that never changes will do.
    let name = actor.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    key[8..16].copy_from_slice(&name.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 14] = [
        Family::NodeCrash,
        Family::RollingRestart,
        Family::NodePause,
        Family::Network,
        Family::Clock,
        Family::DatabaseClock,
        Family::DbJitter,
        Family::DbUnknown,
        Family::DbFailover,
        Family::DbLostTail,
        Family::WakeUps,
        Family::Handlers,
        Family::RetryStorm,
        Family::Flood,
    ];

    /// Its name, on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Family::NodeCrash => "node-crash",
            Family::RollingRestart => "rolling-restart",
            Family::NodePause => "node-pause",
            Family::Network => "network",
            Family::Clock => "clock",
            Family::DatabaseClock => "database-clock",
            Family::DbJitter => "db-jitter",
            Family::DbUnknown => "db-unknown",
            Family::DbFailover => "db-failover",
            Family::DbLostTail => "db-lost-tail",
            Family::WakeUps => "wake-ups",
            Family::Handlers => "handlers",
            Family::RetryStorm => "retry-storm",
            Family::Flood => "flood",
        }
    }

    /// The family of this name.
    pub fn from_name(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }
}

impl FaultKind {
    /// Whether it happens once, at its beginning, and lasts no time.
    pub const fn is_instant(self) -> bool {
        matches!(self, FaultKind::Reset | FaultKind::Failover | FaultKind::Flood { .. })
    }

    /// Whether it is for nobody in particular: its selector is [`Selector::World`].
    pub const fn is_of_the_world(self) -> bool {
        matches!(
            self,
            FaultKind::DatabaseSlow { .. }
                | FaultKind::DatabaseDown
                | FaultKind::DatabaseFull
                | FaultKind::DatabaseAborts { .. }
                | FaultKind::CommitAppliedAnswerLost { .. }
                | FaultKind::CommitNotAppliedAnswerLost { .. }
                | FaultKind::Failover
                | FaultKind::DatabaseClockStep { .. }
                | FaultKind::WakeUpsDown
                | FaultKind::WakeUpsLost { .. }
                | FaultKind::WakeUpsDoubled
                | FaultKind::RetryStorm { .. }
                | FaultKind::Flood { .. }
        )
    }

    /// The family that it belongs to. A failover belongs to [`Family::DbLostTail`] where the plan's replication is asynchronous.
    pub const fn family(self, semi_synchronous: bool) -> Family {
        match self {
            FaultKind::Crash => Family::NodeCrash,
            FaultKind::Restart => Family::RollingRestart,
            FaultKind::Pause => Family::NodePause,
            FaultKind::Isolate
            | FaultKind::CutOutgoing
            | FaultKind::CutIncoming
            | FaultKind::CutFromDatabase
            | FaultKind::Delay { .. }
            | FaultKind::Lose { .. }
            | FaultKind::Duplicate { .. }
            | FaultKind::Reset => Family::Network,
            FaultKind::ClockStep { .. } | FaultKind::ClockDrift { .. } => Family::Clock,
            FaultKind::DatabaseClockStep { .. } => Family::DatabaseClock,
            FaultKind::DatabaseSlow { .. } | FaultKind::DatabaseDown | FaultKind::DatabaseFull => Family::DbJitter,
            FaultKind::DatabaseAborts { .. } | FaultKind::CommitAppliedAnswerLost { .. } | FaultKind::CommitNotAppliedAnswerLost { .. } => {
                Family::DbUnknown
            }
            FaultKind::Failover if semi_synchronous => Family::DbFailover,
            FaultKind::Failover => Family::DbLostTail,
            FaultKind::WakeUpsDown | FaultKind::WakeUpsLost { .. } | FaultKind::WakeUpsDoubled => Family::WakeUps,
            FaultKind::HandlersHang | FaultKind::HandlersSlow { .. } | FaultKind::HandlersPanic => Family::Handlers,
            FaultKind::RetryStorm { .. } => Family::RetryStorm,
            FaultKind::Flood { .. } => Family::Flood,
        }
    }
}
