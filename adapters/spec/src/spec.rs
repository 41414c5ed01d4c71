//! A task as its author means it, and its one canonical form: the document that is stored, compared and shown.
//!
//! A document is JSON and looks like an entry of a task file. What has its default value is left out, so the defaults are part of the
//! format: changing one would change what stored documents mean.

use std::collections::BTreeMap;

use punctual_core::cron;
use punctual_core::limits;
use punctual_core::time::Millis;
use serde::{Deserialize, Serialize};

use crate::choice::choices;
use crate::codes;
use crate::duration;
use crate::handler::{CommandConfig, HttpConfig};
use crate::problem::{Code, FieldPath, Finding};
use crate::timing::Timing;
use crate::workflow::WorkflowNode;

/// A task. It may hold anything that its types can hold; [`TaskSpec::to_definition`] says whether it makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    /// Its name.
    pub name: String,
    /// What it is for, in words.
    pub description: Option<String>,
    /// Whom to ask about it.
    pub owner: Option<String>,
    /// Whether it fires by itself.
    pub enabled: bool,
    /// What makes it fire.
    pub trigger: Trigger,
    /// What refines when it does.
    pub timing: Timing,
    /// The tasks whose ends make it fire as well.
    pub after: Vec<After>,
    /// What it runs.
    pub handler: Handler,
    /// For a workflow, what it runs in place of that.
    pub nodes: Vec<WorkflowNode>,
    /// What the handler is given.
    pub payload: Option<String>,
    /// What payloads have to be like: a JSON Schema.
    pub payload_schema: Option<serde_json::Value>,
    /// What becomes of missed fire times.
    pub misfire: Misfire,
    /// How many instances may be in progress.
    pub concurrency: Concurrency,
    /// Into how many instances a firing is divided.
    pub shards: Shards,
    /// What lists the items that a firing is mapped over; `handler` is run for each.
    pub map: Option<Map>,
    /// What follows a failure.
    pub retry: Retry,
    /// What it depends on, by a name that tasks share.
    pub downstream: Option<String>,
    /// When the circuit breaker of that opens; by its default where it is left out.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// What bounds an attempt.
    pub timeout: Timeout,
    /// Whether an attempt may be repeated when nobody knows how far the last one got.
    pub idempotent: bool,
    /// Where its instances stand among those that wait for a worker.
    pub priority: Priority,
    /// How often its instances may start; as often as they come where it is left out.
    pub rate_limit: Option<RateLimit>,
    /// Which workers may have its instances.
    pub routing: Routing,
    /// The group of tasks that it belongs to: people address them together, and they share what it is limited to.
    pub group: Option<String>,
    /// What that group is limited to.
    pub group_limits: Option<GroupLimits>,
}

/// What makes a task fire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A cron schedule.
    Cron(CronTrigger),
    /// From fire time to fire time.
    FixedRate(Millis),
    /// From the end of an instance to the next fire time.
    FixedDelay(Millis),
    /// Once, this long after the task was made or triggered.
    Delay(Millis),
    /// By hand only.
    Manual,
}

/// A task whose ends make another one fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Its name.
    pub task: String,
    /// Which of its ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on: On,
}

/// Into how many instances a firing is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Shards {
    /// It is one instance.
    #[default]
    None,
    /// Into so many.
    Count(u32),
    /// Into one for each of these keys.
    Keys(Vec<String>),
}

/// A cron schedule in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CronTrigger {
    /// The expression, its fields separated by single blanks.
    pub cron: String,
    /// The IANA name of the zone.
    #[serde(default = "utc", skip_serializing_if = "is_utc")]
    pub timezone: String,
    /// How to read the expression; by the number of its fields where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// What becomes of wall times that do not exist.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gap: Gap,
    /// What becomes of wall times that come twice.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overlap: Overlap,
}

impl CronTrigger {
    /// The expression in UTC with the default policies.
    pub fn new(cron: impl Into<String>) -> Self {
        CronTrigger { cron: cron.into(), timezone: utc(), dialect: None, gap: Gap::AfterGap, overlap: Overlap::First }
    }

    /// Leaves single blanks between the fields, and a dialect only where it says something. What is refused stays as it is.
    pub fn normalise(&mut self) {
        if self.cron.len() > limits::CRON_EXPRESSION_BYTES_MAX {
            return;
        }
        let is_single = |text: &str| !text.contains('\t') && !text.contains("  ") && text.trim_matches([' ', '\t']) == text;
        if !is_single(&self.cron) {
            self.cron = self.cron.split([' ', '\t']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        }
        if self.dialect == Some(Dialect::Unix5) && self.cron.split(' ').count() == 5 {
            self.dialect = None;
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

fn is_utc(zone: &str) -> bool {
    zone == "UTC"
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

choices! {
    /// How the fields of an expression are to be read.
    Dialect {
        /// Five fields.
        Unix5 = "unix5",
        /// Six fields, seconds first.
        Seconds6 = "seconds6",
        /// Quartz: six or seven fields, weekdays from 1.
        Quartz = "quartz",
    }
}

choices! {
    /// What becomes of wall times that do not exist.
    Gap {
        /// Once, at the first instant after the gap.
        AfterGap = "after_gap",
        /// Nothing.
        Skip = "skip",
        /// Later by the length of the gap.
        ShiftForward = "shift_forward",
    }
}

choices! {
    /// What becomes of wall times that come twice.
    Overlap {
        /// The first time counts.
        First = "first",
        /// Both count.
        Both = "both",
        /// The last time counts.
        Last = "last",
    }
}

choices! {
    /// Which ends of a task make another one fire.
    On {
        /// It succeeded.
        Success = "success",
        /// It failed, ran out of time or became a dead letter.
        Failure = "failure",
        /// Any.
        Any = "any",
    }
}

choices! {
    /// Which missed fire times are made up for.
    MisfireAction {
        /// The latest.
        FireOnce = "fire_once",
        /// The latest `limit` of them.
        FireAll = "fire_all",
        /// None.
        Skip = "skip",
    }
}

choices! {
    /// What becomes of an instance that comes when the task is at its limit.
    WhenFull {
        /// It waits.
        Queue = "queue",
        /// It is discarded.
        Discard = "discard",
        /// The oldest in progress is cancelled for it.
        Replace = "replace",
    }
}

choices! {
    /// How the wait grows from attempt to attempt.
    Backoff {
        /// It stays.
        Fixed = "fixed",
        /// By `first` each time.
        Linear = "linear",
        /// By `factor` each time.
        Exponential = "exponential",
    }
}

choices! {
    /// How much of the wait is left to chance.
    Jitter {
        /// All of it.
        Full = "full",
        /// Half of it.
        Equal = "equal",
        /// Nothing.
        None = "none",
    }
}

choices! {
    /// What is done when an attempt's time is over.
    TimeoutAction {
        /// Cancel signal, grace, kill.
        Kill = "kill",
        /// It may end.
        Wait = "wait",
    }
}

choices! {
    /// A band of the ready queue.
    Band {
        /// Before all others.
        Urgent = "urgent",
        /// The usual one.
        Normal = "normal",
        /// When there is room.
        Low = "low",
    }
}

choices! {
    /// Which of several workers that could have an instance gets it.
    RoutingStrategy {
        /// The one with the most room.
        LeastLoaded = "least_loaded",
        /// Each in turn.
        RoundRobin = "round_robin",
        /// Any of them.
        Random = "random",
        /// The task's own, for as long as it is there and has room.
        Hash = "hash",
        /// The one that is named.
        Pinned = "pinned",
        /// All of them: one shard for each.
        Broadcast = "broadcast",
    }
}

macro_rules! defaults_and_conversions {
    ($($type:ident::$default:ident => $core:ty { $($variant:ident),+ })+) => {
        $(
            impl Default for $type {
                fn default() -> Self {
                    $type::$default
                }
            }

            impl From<$type> for $core {
                fn from(value: $type) -> $core {
                    match value {
                        $($type::$variant => <$core>::$variant),+
                    }
                }
            }
        )+
    };
}

defaults_and_conversions! {
    On::Success => punctual_core::definition::ChainOn { Success, Failure, Any }
    Gap::AfterGap => cron::GapPolicy { AfterGap, Skip, ShiftForward }
    Overlap::First => cron::OverlapPolicy { First, Both, Last }
    Jitter::Equal => punctual_core::backoff::Jitter { Full, Equal, None }
    TimeoutAction::Kill => punctual_core::definition::TimeoutAction { Kill, Wait }
    Band::Normal => punctual_core::definition::Band { Urgent, Normal, Low }
}

#[expect(clippy::derivable_impls, reason = "the macro that makes the enum marks no default")]
impl Default for RoutingStrategy {
    fn default() -> Self {
        RoutingStrategy::LeastLoaded
    }
}

/// Where a task's instances stand among those that wait for a worker. Written as the name of the band, or as the level in the normal band, or
/// as a map of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The band.
    pub band: Band,
    /// Who goes first inside the band: the highest level.
    pub level: u32,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { band: Band::default(), level: LEVEL_DEFAULT }
    }
}

impl From<Band> for Priority {
    fn from(band: Band) -> Priority {
        Priority { band, ..Priority::default() }
    }
}

/// The level where the task doesn't say.
const LEVEL_DEFAULT: u32 = limits::LEVEL_DEFAULT as u32;

/// The ways to write a priority.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenPriority {
    Band(Band),
    Level(u32),
    Both(PriorityMap),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorityMap {
    #[serde(default, skip_serializing_if = "is_default")]
    band: Band,
    #[serde(default = "default_level", skip_serializing_if = "is_default_level")]
    level: u32,
}

fn default_level() -> u32 {
    LEVEL_DEFAULT
}

fn is_default_level(level: &u32) -> bool {
    *level == LEVEL_DEFAULT
}

impl Serialize for Priority {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Priority { band, level } = *self;
        match (band, level) {
            (band, LEVEL_DEFAULT) => WrittenPriority::Band(band),
            (Band::Normal, level) => WrittenPriority::Level(level),
            (band, level) => WrittenPriority::Both(PriorityMap { band, level }),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match WrittenPriority::deserialize(deserializer)? {
            WrittenPriority::Band(band) => band.into(),
            WrittenPriority::Level(level) => Priority { level, ..Priority::default() },
            WrittenPriority::Both(PriorityMap { band, level }) => Priority { band, level },
        })
    }
}

/// How often a task's instances may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// So many attempts.
    pub starts: u32,
    /// In any stretch of time of this length.
    #[serde(with = "duration::text")]
    pub per: Millis,
}

/// What a group of tasks is limited to, all of them together. At least one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupLimits {
    /// Instances that may have begun and not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// How often one may begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// Which workers may have a task's instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// Which of several.
    #[serde(skip_serializing_if = "is_default")]
    pub strategy: RoutingStrategy,
    /// The one that is meant, for `pinned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Tags that the worker has to have, by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The oldest version of the worker program that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_worker_version: Option<String>,
}

impl From<Dialect> for cron::Dialect {
    fn from(dialect: Dialect) -> cron::Dialect {
        match dialect {
            Dialect::Unix5 => cron::Dialect::Unix5,
            Dialect::Seconds6 => cron::Dialect::Seconds6,
            Dialect::Quartz => cron::Dialect::Quartz,
        }
    }
}

/// What a task runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Handler {
    /// A program.
    Command(CommandConfig),
    /// An HTTP call.
    Http(HttpConfig),
    /// A handler of the user's own.
    Custom(CustomHandler),
    /// Nothing by itself: each node of the workflow says what it runs.
    None,
}

/// How a firing is mapped over a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// What lists the items.
    pub list: Handler,
    /// What is given the results.
    pub reduce: Option<Handler>,
    /// So many items run at once.
    pub parallel: u32,
}

/// A handler that workers announce under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomHandler {
    /// The name.
    pub name: String,
    /// What the handler is configured with.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub config: serde_json::Map<String, serde_json::Value>,
}

/// What becomes of missed fire times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Misfire {
    /// Which of them are made up for.
    #[serde(skip_serializing_if = "is_fire_once")]
    pub action: MisfireAction,
    /// How many, for `fire_all`; [`limits::CATCH_UP_DEFAULT`] where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// A fire time later than this is skipped.
    #[serde(with = "duration::optional_text", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// How often they begin, for `fire_all`; all at once where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
}

fn is_fire_once(action: &MisfireAction) -> bool {
    *action == MisfireAction::FireOnce
}

impl Default for Misfire {
    fn default() -> Self {
        Misfire { action: MisfireAction::FireOnce, limit: None, deadline: None, rate: None }
    }
}

/// How many instances may be in progress at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Concurrency {
    /// This many.
    #[serde(skip_serializing_if = "is_one")]
    pub max_running: u32,
    /// What becomes of the next one.
    #[serde(skip_serializing_if = "is_queue")]
    pub when_full: WhenFull,
    /// How many may wait, for `queue`; [`limits::MAX_QUEUE_DEFAULT`] where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queue: Option<u32>,
    /// Where in the payload the key stands, a JSON pointer: the limit holds for each value of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_queue(when_full: &WhenFull) -> bool {
    *when_full == WhenFull::Queue
}

impl Default for Concurrency {
    fn default() -> Self {
        Concurrency { max_running: 1, when_full: WhenFull::Queue, max_queue: None, key: None }
    }
}

/// What follows a failed or lost attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Attempts in all; one where it is left out, besides those whose worker was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Workers that an instance may lose.
    #[serde(skip_serializing_if = "is_default_losses")]
    pub max_losses: u32,
    /// How the wait grows.
    #[serde(skip_serializing_if = "is_exponential")]
    pub backoff: Backoff,
    /// The first wait.
    #[serde(with = "duration::text", skip_serializing_if = "is_default_first")]
    pub first: Millis,
    /// The longest wait.
    #[serde(with = "duration::text", skip_serializing_if = "is_default_cap")]
    pub cap: Millis,
    /// By what an exponential wait grows; 2 where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<Factor>,
    /// How much of it is left to chance.
    #[serde(skip_serializing_if = "is_default")]
    pub jitter: Jitter,
    /// Which failures another attempt follows.
    #[serde(skip_serializing_if = "is_default")]
    pub on: RetryOn,
    /// How many retries the task may have in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<RetryBudget>,
}

/// Which failures another attempt follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOn {
    /// Exit codes of a command, as numbers or ranges such as `100-110`; all where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_codes: Option<Vec<String>>,
    /// Statuses of an HTTP call, as numbers or ranges such as `500-599`; all where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statuses: Option<Vec<String>>,
    /// Whether attempts that ran out of time are among them.
    #[serde(skip_serializing_if = "is_true")]
    pub timeouts: bool,
}

fn is_true(truth: &bool) -> bool {
    *truth
}

impl Default for RetryOn {
    fn default() -> Self {
        RetryOn { exit_codes: None, statuses: None, timeouts: true }
    }
}

/// How many retries a task may have in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudget {
    /// Retries for each first attempt that ended in the last minute.
    #[serde(skip_serializing_if = "is_default_ratio")]
    pub ratio: Factor,
    /// Retries a minute, however few first attempts there are.
    #[serde(skip_serializing_if = "is_default_min_per_minute")]
    pub min_per_minute: u32,
}

/// Retries for each first attempt where the task doesn't say.
const RATIO_DEFAULT: Factor = Factor(200);
/// Retries a minute where the task doesn't say.
const MIN_PER_MINUTE_DEFAULT: u32 = 10;

fn is_default_ratio(ratio: &Factor) -> bool {
    *ratio == RATIO_DEFAULT
}

fn is_default_min_per_minute(retries: &u32) -> bool {
    *retries == MIN_PER_MINUTE_DEFAULT
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget { ratio: RATIO_DEFAULT, min_per_minute: MIN_PER_MINUTE_DEFAULT }
    }
}

/// When the circuit breaker of a downstream opens, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Failures in a row that open it.
    #[serde(skip_serializing_if = "is_default_failures")]
    pub failures: u32,
    /// In how much time they count.
    #[serde(with = "duration::text", skip_serializing_if = "is_default_within")]
    pub within: Millis,
    /// How long it stays open before an attempt probes.
    #[serde(with = "duration::text", skip_serializing_if = "is_default_open")]
    pub open: Millis,
}

/// Failures in a row where the task doesn't say.
const FAILURES_DEFAULT: u32 = 5;
/// In how much time they count where the task doesn't say.
const WITHIN_DEFAULT: Millis = Millis::from_secs(60);
/// How long a breaker stays open where the task doesn't say.
const OPEN_DEFAULT: Millis = Millis::from_secs(30);

fn is_default_failures(failures: &u32) -> bool {
    *failures == FAILURES_DEFAULT
}

fn is_default_within(within: &Millis) -> bool {
    *within == WITHIN_DEFAULT
}

fn is_default_open(open: &Millis) -> bool {
    *open == OPEN_DEFAULT
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        CircuitBreaker { failures: FAILURES_DEFAULT, within: WITHIN_DEFAULT, open: OPEN_DEFAULT }
    }
}

/// The same of retries.
pub(crate) fn normalise_retry(retry: &mut Retry) {
    if retry.backoff == Backoff::Exponential && retry.factor == Some(Factor::DEFAULT) {
        retry.factor = None;
    }
    for (list, all) in [(&mut retry.on.exit_codes, codes::EXIT_CODES), (&mut retry.on.statuses, codes::STATUSES)] {
        if let Some(list) = list {
            codes::normalise(list, &all);
        }
    }
}

/// The first wait where the task doesn't say.
const FIRST_DEFAULT: Millis = Millis::from_secs(30);
/// The longest wait where the task doesn't say.
const CAP_DEFAULT: Millis = Millis::from_secs(30 * 60);

fn is_default_losses(losses: &u32) -> bool {
    *losses == limits::MAX_LOSSES_DEFAULT
}

fn is_exponential(backoff: &Backoff) -> bool {
    *backoff == Backoff::Exponential
}

fn is_default_first(first: &Millis) -> bool {
    *first == FIRST_DEFAULT
}

fn is_default_cap(cap: &Millis) -> bool {
    *cap == CAP_DEFAULT
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            max_attempts: None,
            max_losses: limits::MAX_LOSSES_DEFAULT,
            backoff: Backoff::Exponential,
            first: FIRST_DEFAULT,
            cap: CAP_DEFAULT,
            factor: None,
            jitter: Jitter::Equal,
            on: RetryOn::default(),
            budget: None,
        }
    }
}

/// A factor in thousandths, written as a number with at most three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor(pub u32);

impl Factor {
    /// The factor where the task doesn't say.
    pub const DEFAULT: Factor = Factor(2_000);

    /// The factor of this number, where it has at most three decimals and is not negative.
    pub fn from_number(number: f64) -> Option<Factor> {
        let permille = (number * 1_000.0).round();
        let exact = (permille / 1_000.0 - number).abs() < 1e-9 && (0.0..=f64::from(u32::MAX)).contains(&permille);
        exact.then_some(Factor(permille as u32))
    }
}

impl Serialize for Factor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            serializer.serialize_u32(self.0 / 1_000)
        } else {
            serializer.serialize_f64(f64::from(self.0) / 1_000.0)
        }
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        Factor::from_number(number).ok_or_else(|| serde::de::Error::custom("a factor has at most three decimals"))
    }
}

/// What bounds an attempt in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeout {
    /// How long it may run.
    #[serde(with = "duration::optional_text", skip_serializing_if = "Option::is_none")]
    pub after: Option<Millis>,
    /// From the cancel signal to the kill.
    #[serde(with = "duration::text", skip_serializing_if = "is_default_grace")]
    pub grace: Millis,
    /// What is done then.
    #[serde(skip_serializing_if = "is_default")]
    pub action: TimeoutAction,
}

/// From the cancel signal to the kill where the task doesn't say.
const GRACE_DEFAULT: Millis = Millis::from_secs(10);

fn is_default_grace(grace: &Millis) -> bool {
    *grace == GRACE_DEFAULT
}

impl Default for Timeout {
    fn default() -> Self {
        Timeout { after: None, grace: GRACE_DEFAULT, action: TimeoutAction::Kill }
    }
}

impl Handler {
    /// Brings what may be said in several ways into one.
    pub(crate) fn normalise(&mut self) {
        match self {
            Handler::Command(config) => {
                config.success_codes.sort_unstable();
                config.success_codes.dedup();
            }
            Handler::Http(config) => {
                config.success_statuses.sort();
                config.success_statuses.dedup();
            }
            Handler::Custom(custom) => {
                custom.config.sort_keys();
                custom.config.values_mut().for_each(serde_json::Value::sort_all_objects);
            }
            Handler::None => {}
        }
    }
}

impl TaskSpec {
    /// A task with the default policies.
    pub fn new(name: impl Into<String>, trigger: Trigger, handler: Handler) -> Self {
        TaskSpec {
            name: name.into(),
            description: None,
            owner: None,
            enabled: true,
            trigger,
            timing: Timing::default(),
            after: Vec::new(),
            handler,
            nodes: Vec::new(),
            payload: None,
            payload_schema: None,
            misfire: Misfire::default(),
            concurrency: Concurrency::default(),
            shards: Shards::None,
            map: None,
            retry: Retry::default(),
            downstream: None,
            circuit_breaker: None,
            timeout: Timeout::default(),
            idempotent: true,
            priority: Priority::default(),
            rate_limit: None,
            routing: Routing::default(),
            group: None,
            group_limits: None,
        }
    }

    /// Brings what may be said in several ways into one, so that equal meaning gives equal text.
    pub fn normalise(&mut self) {
        for text in [&mut self.description, &mut self.owner, &mut self.group] {
            if text.as_deref() == Some("") {
                *text = None;
            }
        }
        if let Some(schema) = &mut self.payload_schema {
            schema.sort_all_objects();
        }
        if let Trigger::Cron(trigger) = &mut self.trigger {
            trigger.normalise();
        }
        self.timing.normalise();
        self.handler.normalise();
        if let Some(map) = &mut self.map {
            map.list.normalise();
            map.reduce.iter_mut().for_each(Handler::normalise);
        }
        self.nodes.iter_mut().for_each(WorkflowNode::normalise);
        if self.misfire.action == MisfireAction::FireAll && self.misfire.limit == Some(limits::CATCH_UP_DEFAULT) {
            self.misfire.limit = None;
        }
        if self.concurrency.when_full == WhenFull::Queue && self.concurrency.max_queue == Some(limits::MAX_QUEUE_DEFAULT) {
            self.concurrency.max_queue = None;
        }
        normalise_retry(&mut self.retry);
        if self.downstream.is_some() && self.circuit_breaker == Some(CircuitBreaker::default()) {
            self.circuit_breaker = None;
        }
    }

    /// The canonical document.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self);
        json.expect("a spec has neither maps with other keys than texts nor numbers that JSON lacks")
    }

    /// Reads a document. It need not be canonical; what comes out is normalised.
    ///
    /// # Errors
    ///
    /// [`Code::Document`] where it is not JSON, or not of this shape.
    pub fn from_json(document: &str) -> Result<TaskSpec, Finding> {
        let mut spec: TaskSpec = serde_json::from_str(document).map_err(|error| {
            Finding::new(Code::Document, FieldPath::default(), format!("the task document can't be read: {error}"))
                .help("it was written by another version of Punctual, or by hand")
        })?;
        spec.normalise();
        Ok(spec)
    }
}
