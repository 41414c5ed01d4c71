//! What a task is, as far as deciding goes.
//!
//! Descriptions, owners and the like live in the stored document, not here. What a handler does is not the core's business either: it
//! passes the handler's configuration on to the worker unread.

use std::fmt;
use std::sync::Arc;

use crate::backoff::BackoffPolicy;
use crate::cron::{Schedule, Series, Timetable};
use crate::instance::{Part, State};
use crate::limits;
use crate::rate::RateLimit;
use crate::routing::Routing;
use crate::time::{Millis, Timestamp};
use crate::workflow::{Graph, NodeIndex};

/// One version of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDefinition {
    /// The task's name, 1 to 128 characters, unique among the tasks.
    pub name: Arc<str>,
    /// A task that is not enabled fires by hand only.
    pub enabled: bool,
    /// What makes it fire.
    pub trigger: Trigger,
    /// What is run.
    pub handler: Handler,
    /// Handed to the handler with each instance, unless a manual trigger brings its own.
    pub payload: Option<Arc<str>>,
    /// What is done when things don't go as they should. Shared by tasks that have the same: a million tasks hardly have more than a few.
    pub policies: Arc<Policies>,
    /// Whether an attempt may be repeated when nobody knows how far the last one got.
    pub idempotent: bool,
    /// The band of the ready queue that its instances wait in.
    pub band: Band,
    /// What lists the items that a firing is mapped over; `None`: it is not mapped. Then `handler` is what is run for each item.
    pub map: Option<Arc<Map>>,
    /// The tasks whose ends make it fire, besides its trigger; `None` where there are none.
    pub chains: Option<Arc<[Chain]>>,
    /// Who goes first inside the band, 0 to [`limits::LEVEL_MAX`], the highest first; [`limits::LEVEL_DEFAULT`] where the task doesn't say.
    pub level: u8,
    /// Which workers may have its instances; `None`: all that know the handler, the least loaded first.
    pub routing: Option<Arc<Routing>>,
    /// What its attempts depend on, by a name that tasks share: they share its circuit breaker. `None`: no breaker holds it.
    pub downstream: Option<Arc<str>>,
    /// The group of tasks that it belongs to, by its name: what holds for the group holds for all of them together. `None`: none.
    pub group: Option<Arc<str>>,
    /// The nodes that each of its firings goes through: they are run in place of its own handler, which nobody is given.
    pub workflow: Option<Arc<Workflow>>,
    /// For a node: the task that it calls, by its name. It is run as an instance of that, and nobody is given its handler.
    pub calls: Option<Arc<str>>,
    /// What it takes for a payload from a node of another task; `None`: anything. Whoever triggers it by hand is told at once, and not here.
    pub takes: Option<Takes>,
}

/// A rule for payloads that is none of core's business: a schema. It answers the same for the same payload, soon, and looks at nothing else.
#[derive(Clone, Debug)]
pub struct Takes(pub Arc<dyn PayloadRule>);

/// Says what is wrong with payloads.
pub trait PayloadRule: fmt::Debug + Send + Sync {
    /// What is wrong with this one; `None`: nothing.
    fn problem(&self, payload: Option<&str>) -> Option<String>;
    /// The rule as it is written: the same text is the same rule.
    fn text(&self) -> &str;
}

impl PartialEq for Takes {
    fn eq(&self, other: &Self) -> bool {
        self.0.text() == other.0.text()
    }
}

/// The nodes of a workflow: how they hang together, and what each of them runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    graph: Graph,
    nodes: Box<[Arc<TaskDefinition>]>,
}

impl Workflow {
    /// A workflow of this graph; `nodes` are what its nodes run, in their order. What a node doesn't say for itself it has of the task, its
    /// name included.
    ///
    /// # Panics
    ///
    /// Where there are not as many as the graph has nodes.
    pub fn new(graph: Graph, nodes: Vec<Arc<TaskDefinition>>) -> Self {
        assert_eq!(graph.len(), nodes.len(), "each node runs something");
        Workflow { graph, nodes: nodes.into() }
    }

    /// How the nodes hang together.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What all nodes run.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<TaskDefinition>> {
        self.nodes.iter()
    }

    /// What a node runs.
    pub fn node(&self, node: NodeIndex) -> &Arc<TaskDefinition> {
        &self.nodes[node.place()]
    }
}

impl TaskDefinition {
    /// A task with the default policies, enabled and without a payload.
    pub fn new(name: impl Into<Arc<str>>, trigger: Trigger, handler: Handler) -> Self {
        TaskDefinition {
            name: name.into(),
            enabled: true,
            trigger,
            handler,
            payload: None,
            policies: Arc::default(),
            idempotent: true,
            band: Band::Normal,
            map: None,
            chains: None,
            level: limits::LEVEL_DEFAULT,
            routing: None,
            downstream: None,
            group: None,
            workflow: None,
            calls: None,
            takes: None,
        }
    }

    /// What a part of its firings is run by: a node, and a shard of it, by the node's own definition.
    pub fn of_part(self: &Arc<Self>, part: Part) -> Arc<TaskDefinition> {
        let node = part.node_index().map(NodeIndex);
        let node = self.workflow.as_ref().zip(node).filter(|(workflow, node)| workflow.graph.contains(*node));
        Arc::clone(node.map_or(self, |(workflow, node)| workflow.node(node)))
    }

    /// The tasks that its nodes call, by name, each once, and how many nodes do.
    pub fn called_tasks(&self) -> Vec<(Arc<str>, u32)> {
        let nodes = self.workflow.iter().flat_map(|workflow| workflow.nodes.iter());
        let mut called: Vec<_> = nodes.filter_map(|node| Some((node.calls.clone()?, 1))).collect();
        called.sort_unstable();
        called.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            kept.1 += u32::from(is_same);
            is_same
        });
        called
    }
}

impl TaskDefinition {
    /// What is run for this part of a firing.
    pub fn handler_of(&self, part: Part) -> &Handler {
        match &self.map {
            Some(map) if part.is_list() => &map.list,
            Some(map) if part.is_reduce() => map.reduce.as_ref().unwrap_or(&self.handler),
            _ => &self.handler,
        }
    }
}

/// How a firing is mapped over a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Lists the items, at most [`limits::MAP_ITEMS_MAX`].
    pub list: Handler,
    /// Is given the results, when all items have succeeded. `None`: nothing follows.
    pub reduce: Option<Handler>,
    /// So many items are instances at once, 1 to [`limits::MAP_PARALLEL_MAX`].
    pub parallel: u32,
}

/// Another task whose ends make a task fire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The other task's name.
    pub task: Arc<str>,
    /// Which of its ends.
    pub on: ChainOn,
}

/// Which ends of a task make another one fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChainOn {
    /// It succeeded.
    #[default]
    Success,
    /// It failed, ran out of time or became a dead letter.
    Failure,
    /// It ended, however: also by being cancelled.
    Any,
}

impl ChainOn {
    /// Every choice.
    pub const ALL: [ChainOn; 3] = [ChainOn::Success, ChainOn::Failure, ChainOn::Any];

    /// Its name, the same in task files, API and database.
    pub const fn name(self) -> &'static str {
        match self {
            ChainOn::Success => "success",
            ChainOn::Failure => "failure",
            ChainOn::Any => "any",
        }
    }

    /// Whether an instance that ended in this state makes it fire. One that never started does not.
    pub const fn is_met_by(self, end: State) -> bool {
        let is_failure = matches!(end, State::Failed | State::TimedOut | State::DeadLettered);
        match self {
            ChainOn::Success => matches!(end, State::Succeeded),
            ChainOn::Failure => is_failure,
            ChainOn::Any => is_failure || matches!(end, State::Succeeded | State::Cancelled),
        }
    }
}

/// What is done when things don't go as they should.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policies {
    /// What becomes of fire times that passed while nobody could fire them.
    pub misfire: MisfirePolicy,
    /// How many instances may be in progress at once.
    pub concurrency: ConcurrencyPolicy,
    /// What follows a failed or lost attempt.
    pub retry: RetryPolicy,
    /// What bounds an attempt in time.
    pub timeout: TimeoutPolicy,
    /// Into how many instances a firing is divided.
    pub sharding: Sharding,
    /// How often its instances may start; `None`: as often as they come.
    pub rate: Option<RateLimit>,
    /// When the breaker of its downstream opens, for a task that has one.
    pub breaker: BreakerPolicy,
    /// Where in the payload the key of the concurrency limit stands, as a JSON pointer: the limit then holds for each value of it. `None`:
    /// it holds for the task.
    pub limit_key: Option<Arc<str>>,
    /// What its group is limited to, as its own file says, for a task that has one.
    pub group: Option<GroupLimits>,
}

/// What a group of tasks is limited to, all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupLimits {
    /// How many instances may have begun and not ended, 1 to [`limits::MAX_RUNNING_MAX`]; `None`: as many as there are.
    pub max_running: Option<u32>,
    /// How often one may begin; `None`: as often as they come.
    pub rate: Option<RateLimit>,
}

/// Into how many instances a firing is divided. What a firing was divided into stays so: a change applies from the next one on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharding {
    /// It is one instance.
    #[default]
    None,
    /// Into so many, 1 to [`limits::SHARDS_MAX`].
    Count(u32),
    /// Into one for each of these keys, which its handler is given.
    Keys(Arc<[Arc<str>]>),
}

/// What makes a task fire.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// At the times of a cron schedule.
    Cron(Arc<Schedule>),
    /// Every `interval`, counted from fire time to fire time, the first one `interval` after the task was made.
    FixedRate {
        /// From one fire time to the next.
        interval: Millis,
    },
    /// `interval` after the last instance has ended, the first one `interval` after the task was made.
    FixedDelay {
        /// From the end of an instance to the next fire time.
        interval: Millis,
    },
    /// Once, `delay` after the task was made, and once again `delay` after each manual trigger.
    Delay {
        /// From the submission to the fire time.
        delay: Millis,
    },
    /// One of the first three, refined: in a window, without some days or hours, with jitter. A trigger that nothing refines is none of these.
    Timetable(Arc<Timetable>),
    /// By hand only.
    Manual,
}

impl Trigger {
    /// The interval of a fixed delay, refined or not.
    pub fn fixed_delay(&self) -> Option<Millis> {
        match self {
            Trigger::FixedDelay { interval } => Some(*interval),
            Trigger::Timetable(timetable) => match timetable.series() {
                Series::FixedDelay(interval) => Some(*interval),
                Series::Cron(_) | Series::FixedRate(_) => None,
            },
            Trigger::Cron(_) | Trigger::FixedRate { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
        }
    }

    /// Whether a cursor goes by the wall clock: cron, a rate that counts from an instant, and whatever waits for its window. Everything else
    /// goes by the time that passes.
    pub fn goes_by_wall_clock(&self, cursor: Timestamp) -> bool {
        match self {
            Trigger::Cron(_) => true,
            Trigger::Timetable(timetable) => match timetable.series() {
                Series::Cron(_) => true,
                Series::FixedRate(_) => timetable.window().starts_at.is_some(),
                Series::FixedDelay(_) => timetable.window().starts_at == Some(cursor),
            },
            Trigger::FixedRate { .. } | Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => false,
        }
    }
}

/// What a worker is to run: a handler that it knows by name, and that handler's own configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// The name under which workers announce the handler: `command`, `http`, or a user's own.
    pub name: Arc<str>,
    /// The handler's configuration as a JSON object, read by the worker alone.
    pub config: Arc<str>,
}

/// What becomes of fire times that passed while nobody could fire them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MisfirePolicy {
    /// Which of the missed fire times are made up for.
    pub action: MisfireAction,
    /// A fire time later than this is skipped, whatever the action.
    pub deadline: Option<Millis>,
    /// How often those that [`FireAll`](MisfireAction::FireAll) makes up for begin; `None`: all at once.
    pub rate: Option<RateLimit>,
}

impl Default for MisfirePolicy {
    fn default() -> Self {
        MisfirePolicy { action: MisfireAction::FireOnce, deadline: None, rate: None }
    }
}

/// Which of the missed fire times are made up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MisfireAction {
    /// The latest one; the others are coalesced into it.
    FireOnce,
    /// The latest `limit` of them, in order; earlier ones are dropped, on record.
    FireAll {
        /// At most this many; 1 to [`limits::CATCH_UP_MAX`].
        limit: u32,
    },
    /// None.
    Skip,
}

/// How many instances of a task may be in progress at once. One that waits to be retried is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConcurrencyPolicy {
    /// At least 1, at most [`limits::MAX_RUNNING_MAX`].
    pub max_running: u32,
    /// What becomes of an instance that comes when that many are in progress.
    pub blocking: Blocking,
}

impl Default for ConcurrencyPolicy {
    fn default() -> Self {
        ConcurrencyPolicy { max_running: 1, blocking: Blocking::Queue { max_queue: limits::MAX_QUEUE_DEFAULT } }
    }
}

/// What becomes of an instance that comes when the task is at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocking {
    /// It waits, first in first out; where `max_queue` wait already it is discarded.
    Queue {
        /// At most [`limits::MAX_QUEUE_MAX`].
        max_queue: u32,
    },
    /// It is discarded, on record.
    Discard,
    /// The oldest one in progress is cancelled, and the new one starts when that has stopped.
    Replace,
}

/// What follows a failed or lost attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// At most this many attempts in all, failed ones and lost workers together. `None`: the first failure ends the instance, and up to
    /// `max_losses` lost workers are made up for.
    pub max_attempts: Option<u32>,
    /// An instance that has lost this many workers and loses one more is quarantined in the dead letters.
    pub max_losses: u32,
    /// How long to wait before the next attempt.
    pub backoff: BackoffPolicy,
    /// Which failures another attempt follows.
    pub on: RetryOn,
    /// How many retries the task may have in all; `None`: as many as its instances have.
    pub budget: Option<RetryBudget>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let backoff = BackoffPolicy::default();
        RetryPolicy { max_attempts: None, max_losses: limits::MAX_LOSSES_DEFAULT, backoff, on: RetryOn::default(), budget: None }
    }
}

/// Which failures another attempt follows. A failure without a code, such as a call that got no answer, is always among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryOn {
    /// Failures with one of these codes; `None`: with any.
    pub codes: Option<CodeSet>,
    /// Attempts that ran out of time.
    pub timeouts: bool,
}

impl Default for RetryOn {
    fn default() -> Self {
        RetryOn { codes: None, timeouts: true }
    }
}

/// How many codes a [`CodeSet`] tells apart: exit codes to 255, statuses to 599.
const CODES: usize = 600;

/// A set of exit codes or HTTP statuses, 0 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeSet {
    bits: [u64; CODES.div_ceil(64)],
}

impl CodeSet {
    /// The codes of these ranges, each from its first to its last. Those beyond 599 are left out.
    pub fn of(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut set = CodeSet::default();
        for (first, last) in ranges {
            for code in usize::from(first)..=usize::from(last).min(CODES - 1) {
                set.bits[code / 64] |= 1 << (code % 64);
            }
        }
        set
    }

    /// Whether this code is among them.
    pub fn contains(&self, code: i32) -> bool {
        usize::try_from(code).is_ok_and(|code| code < CODES && self.bits[code / 64] & (1 << (code % 64)) != 0)
    }
}

/// How many retries a task may have in all: in any minute at most `min_per_minute`, or `ratio_permille` thousandths of the first attempts
/// that ended in it, whichever is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryBudget {
    /// Retries for a thousand first attempts, at most [`limits::BUDGET_RATIO_PERMILLE_MAX`].
    pub ratio_permille: u32,
    /// Retries that a task may have however few first attempts it has, at most [`limits::BUDGET_PER_MINUTE_MAX`].
    pub min_per_minute: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget { ratio_permille: 200, min_per_minute: 10 }
    }
}

/// When a circuit breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BreakerPolicy {
    /// Failures in a row that open it, 1 to [`limits::BREAKER_FAILURES_MAX`].
    pub failures: u32,
    /// They count where they are no further apart than this, from the first to the last; at most [`limits::BREAKER_TIME_MAX`].
    pub within: Millis,
    /// How long it stays open before it lets an attempt probe, at most [`limits::BREAKER_TIME_MAX`].
    pub open: Millis,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        BreakerPolicy { failures: 5, within: Millis::from_secs(60), open: Millis::from_secs(30) }
    }
}

/// What bounds an attempt in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeoutPolicy {
    /// How long an attempt may run; `None`: as long as it likes.
    pub after: Option<Millis>,
    /// From the cancel signal to the kill.
    pub grace: Millis,
    /// What is done when the time is over.
    pub action: TimeoutAction,
}

impl Default for TimeoutPolicy {
    fn default() -> Self {
        TimeoutPolicy { after: None, grace: Millis::from_secs(10), action: TimeoutAction::Kill }
    }
}

/// What is done when an attempt's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutAction {
    /// It gets the cancel signal, and after the grace it is killed.
    Kill,
    /// It may end, and its result counts if its fence still holds; the overrun is on record.
    Wait,
}

/// A band of the ready queue. Urgent instances go first, by weight, so that none starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Before all others.
    Urgent,
    /// The usual one.
    #[default]
    Normal,
    /// When there is room.
    Low,
}

impl Band {
    /// Every band, in the order in which they are served.
    pub const ALL: [Band; 3] = [Band::Urgent, Band::Normal, Band::Low];

    /// Its place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        match self {
            Band::Urgent => 0,
            Band::Normal => 1,
            Band::Low => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_codes_has_those_of_its_ranges_and_no_others(
            ranges in proptest::collection::vec((0..700_u16, 0..700_u16), 0..4),
            code in prop_oneof![-2..800_i32, any::<i32>()],
        ) {
            let is_meant = ranges.iter().any(|(first, last)| (i32::from(*first)..=i32::from(*last)).contains(&code));
            prop_assert_eq!(CodeSet::of(ranges).contains(code), is_meant && code < 600);
        }
    }
}
