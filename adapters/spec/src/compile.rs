//! From a task as written to a definition that the scheduler can follow, with every check on the way.
//!
//! Task files, stored documents and imported crontabs all come through here, so they get the same verdict.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use punctual_core::backoff::{self, BackoffPolicy};
use punctual_core::cron::{Schedule, Series};
use punctual_core::definition::{
    self, Blocking, BreakerPolicy, Chain, CodeSet, ConcurrencyPolicy, MisfireAction as Action, MisfirePolicy, Policies, RetryPolicy,
    Sharding, TaskDefinition, TimeoutPolicy,
};
use punctual_core::ids::WorkerId;
use punctual_core::limit_key;
use punctual_core::limits as core_limits;
use punctual_core::rate::RateLimit;
use punctual_core::routing as definition_routing;
use punctual_core::routing::{Routing, WorkerVersion, check_tag};
use punctual_core::time::Millis;

use crate::codes::{self, Wrong};
use crate::duration;
use crate::handler::{self, CommandConfig, HttpConfig, Program};
use crate::limits;
use crate::payload::{self, PayloadSchema};
use crate::problem::{Code, FieldPath, Finding, quoted};
use crate::spec::{
    self, Backoff, Band, CronTrigger, Factor, GroupLimits, Handler, MisfireAction, RetryBudget, RoutingStrategy, Shards, TaskSpec, Trigger,
    WhenFull,
};
use crate::timetable;
use crate::workflow;
use crate::zones::{ZoneError, Zones};

static COMMAND: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(handler::COMMAND));
static HTTP: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(handler::HTTP));

impl TaskSpec {
    /// Checks the task and makes the scheduler's definition of it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, not only the first thing.
    pub fn to_definition(&self, zones: &Zones) -> Result<TaskDefinition, Vec<Finding>> {
        let mut check = Check { findings: Vec::new() };
        check.payload_schema(self);
        self.checked(check, zones)
    }

    fn checked(&self, mut check: Check, zones: &Zones) -> Result<TaskDefinition, Vec<Finding>> {
        check.texts(self);
        let trigger = check.trigger(&self.trigger, zones).and_then(|trigger| check.timing(self, trigger, zones));
        check.misfire(self);
        check.after(self);
        check.concurrency(self);
        check.shards(self);
        check.retry(self);
        check.downstream(self);
        check.timeout(self);
        check.priority(self);
        check.rate_limit(self);
        check.group(self);
        let routing = check.routing(self);
        check.broadcast(self);
        let handler = check.handler(&self.handler, zones);
        let map = check.map_over(self, zones);
        let workflow = workflow::workflow(self, zones).map_err(|findings| check.findings.extend(findings)).ok().flatten();
        match trigger {
            Some(trigger) if check.findings.is_empty() => Ok(TaskDefinition {
                name: Arc::from(self.name.as_str()),
                enabled: self.enabled,
                trigger,
                handler,
                map,
                payload: self.payload.as_deref().map(Arc::from),
                policies: zones.shared_policies(Policies {
                    misfire: self.misfire_policy(),
                    concurrency: self.concurrency_policy(),
                    retry: self.retry_policy(),
                    sharding: self.sharding(),
                    timeout: TimeoutPolicy { after: self.timeout.after, grace: self.timeout.grace, action: self.timeout.action.into() },
                    rate: self.rate_limit.as_ref().map(|limit| RateLimit { starts: limit.starts, per: limit.per }),
                    breaker: self.breaker_policy(),
                    limit_key: self.concurrency.key.as_deref().map(|key| zones.shared_text(key)),
                    group: self.group_limits.as_ref().map(|limits| definition::GroupLimits {
                        max_running: limits.max_running,
                        rate: limits.rate_limit.as_ref().map(|limit| RateLimit { starts: limit.starts, per: limit.per }),
                    }),
                }),
                idempotent: self.idempotent,
                band: self.priority.band.into(),
                level: u8::try_from(self.priority.level).unwrap_or(core_limits::LEVEL_MAX),
                routing: (routing != Routing::default()).then(|| zones.shared_routing(routing)),
                chains: self.chains(),
                downstream: self.downstream.as_deref().map(|label| zones.shared_text(label)),
                group: self.group.as_deref().map(|group| zones.shared_text(group)),
                workflow,
                calls: None,
                takes: self.payload_schema.as_ref().map(payload::takes),
            }),
            _ => Err(check.findings),
        }
    }

    fn chains(&self) -> Option<Arc<[Chain]>> {
        let chains = self.after.iter().map(|after| Chain { task: Arc::from(after.task.as_str()), on: after.on.into() });
        (!self.after.is_empty()).then(|| chains.collect())
    }

    fn sharding(&self) -> Sharding {
        match &self.shards {
            Shards::None => Sharding::None,
            Shards::Count(count) => Sharding::Count(*count),
            Shards::Keys(keys) => Sharding::Keys(keys.iter().map(|key| Arc::from(key.as_str())).collect()),
        }
    }

    fn misfire_policy(&self) -> MisfirePolicy {
        let action = match self.misfire.action {
            MisfireAction::FireOnce => Action::FireOnce,
            MisfireAction::FireAll => Action::FireAll { limit: self.misfire.limit.unwrap_or(core_limits::CATCH_UP_DEFAULT) },
            MisfireAction::Skip => Action::Skip,
        };
        let rate = self.misfire.rate.as_ref().map(|limit| RateLimit { starts: limit.starts, per: limit.per });
        MisfirePolicy { action, deadline: self.misfire.deadline, rate }
    }

    fn concurrency_policy(&self) -> ConcurrencyPolicy {
        let blocking = match self.concurrency.when_full {
            WhenFull::Queue => Blocking::Queue { max_queue: self.concurrency.max_queue.unwrap_or(core_limits::MAX_QUEUE_DEFAULT) },
            WhenFull::Discard => Blocking::Discard,
            WhenFull::Replace => Blocking::Replace,
        };
        ConcurrencyPolicy { max_running: self.concurrency.max_running, blocking }
    }

    fn retry_policy(&self) -> RetryPolicy {
        let kind = match self.retry.backoff {
            Backoff::Fixed => backoff::Backoff::Fixed,
            Backoff::Linear => backoff::Backoff::Linear,
            Backoff::Exponential => backoff::Backoff::Exponential { factor_permille: self.retry.factor.unwrap_or(Factor::DEFAULT).0 },
        };
        RetryPolicy {
            max_attempts: self.retry.max_attempts,
            max_losses: self.retry.max_losses,
            backoff: BackoffPolicy { kind, first: self.retry.first, cap: self.retry.cap, jitter: self.retry.jitter.into() },
            on: definition::RetryOn { codes: self.retried_codes(), timeouts: self.retry.on.timeouts },
            budget: self
                .retry
                .budget
                .as_ref()
                .map(|budget| definition::RetryBudget { ratio_permille: budget.ratio.0, min_per_minute: budget.min_per_minute }),
        }
    }

    /// Of the two lists the one that is about what the task runs.
    fn retried_codes(&self) -> Option<CodeSet> {
        let (list, all) = match self.handler {
            Handler::Command(_) => (&self.retry.on.exit_codes, codes::EXIT_CODES),
            Handler::Http(_) => (&self.retry.on.statuses, codes::STATUSES),
            Handler::Custom(_) | Handler::None => return None,
        };
        list.as_ref().map(|list| CodeSet::of(list.iter().filter_map(|text| codes::parse(text, &all).ok())))
    }

    fn breaker_policy(&self) -> BreakerPolicy {
        let breaker = self.circuit_breaker.clone().unwrap_or_default();
        BreakerPolicy { failures: breaker.failures, within: breaker.within, open: breaker.open }
    }
}

/// Reads a stored document into a definition. The schema of its payload was checked when it was applied, and is no part of the definition: to
/// make it again for each read is what takes longest.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn decode(document: &str, zones: &Zones) -> Result<TaskDefinition, Vec<Finding>> {
    TaskSpec::from_json(document).map_err(|finding| vec![finding])?.checked(Check { findings: Vec::new() }, zones)
}

/// The schedule of a cron trigger: the one verdict that previews, task files and imports share.
///
/// # Errors
///
/// What is wrong with the expression and what is wrong with the zone.
pub fn schedule(cron: &CronTrigger, zones: &Zones) -> Result<Arc<Schedule>, Vec<Finding>> {
    let error = match zones.schedule(cron) {
        Ok(schedule) => return Ok(schedule),
        Err(error) => error,
    };
    // An expression that is refused hides whether the zone is: both are to be said.
    let zone_error = if matches!(error, ZoneError::Cron(_)) { zones.get(&cron.timezone).err() } else { None };
    Err(std::iter::once(error).chain(zone_error).map(zone_finding).collect())
}

/// What to say of a refused zone or expression.
pub(crate) fn zone_finding(error: ZoneError) -> Finding {
    let (field, code) = match &error {
        ZoneError::Cron(_) => ("cron", Code::Cron),
        ZoneError::Name(_) | ZoneError::Unknown { .. } => ("timezone", Code::Zone),
        ZoneError::Damaged { .. } => ("timezone", Code::ZoneData),
    };
    let help = match &error {
        ZoneError::Unknown { suggestion: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
        ZoneError::Unknown { .. } => Some("use an IANA name such as Europe/Berlin, letter by letter".to_owned()),
        ZoneError::Damaged { .. } => Some("repair the system's tzdata".to_owned()),
        ZoneError::Cron(_) | ZoneError::Name(_) => None,
    };
    Finding { code, path: FieldPath::of(&["trigger", field]), message: error.to_string(), help }
}

struct Check {
    findings: Vec<Finding>,
}

impl Check {
    fn refuse(&mut self, code: Code, fields: &[&'static str], message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding::new(code, FieldPath::of(fields), message).help(help));
    }

    fn texts(&mut self, spec: &TaskSpec) {
        if let Some((message, help)) = name_problem(&spec.name) {
            self.refuse(Code::Name, &["name"], message, help);
        }
        let texts = [
            ("description", &spec.description, limits::DESCRIPTION_CHARS_MAX, true),
            ("owner", &spec.owner, limits::OWNER_CHARS_MAX, false),
        ];
        for (field, text, most, lines) in texts {
            let Some(text) = text else { continue };
            if text.chars().nth(most).is_some() {
                let count = text.chars().count();
                self.refuse(Code::Text, &[field], format!("it has {count} characters"), format!("at most {most}"));
            }
            if text.chars().any(|c| c.is_control() && !(lines && (c == '\n' || c == '\t'))) {
                self.refuse(Code::Text, &[field], "it has control characters", "write plain text");
            }
        }
        if let Some(payload) = spec.payload.as_ref().filter(|payload| payload.len() > core_limits::PAYLOAD_BYTES_MAX) {
            let help = format!("at most {} bytes; keep large data elsewhere and pass where it is", core_limits::PAYLOAD_BYTES_MAX);
            self.refuse(Code::Text, &["payload"], format!("it has {} bytes", payload.len()), help);
        }
    }

    fn trigger(&mut self, trigger: &Trigger, zones: &Zones) -> Option<definition::Trigger> {
        let interval_min = core_limits::INTERVAL_MIN;
        Some(match trigger {
            Trigger::Cron(cron) => definition::Trigger::Cron(self.schedule(cron, zones)?),
            Trigger::FixedRate(interval) => {
                self.duration(&["trigger", "fixed_rate"], *interval, interval_min);
                definition::Trigger::FixedRate { interval: *interval }
            }
            Trigger::FixedDelay(interval) => {
                self.duration(&["trigger", "fixed_delay"], *interval, interval_min);
                definition::Trigger::FixedDelay { interval: *interval }
            }
            Trigger::Delay(delay) => {
                self.duration(&["trigger", "delay"], *delay, limits::DURATION_MIN);
                definition::Trigger::Delay { delay: *delay }
            }
            Trigger::Manual => definition::Trigger::Manual,
        })
    }

    /// The trigger with what refines it.
    fn timing(&mut self, spec: &TaskSpec, trigger: definition::Trigger, zones: &Zones) -> Option<definition::Trigger> {
        if spec.timing.is_default() {
            return Some(trigger);
        }
        let series = match trigger {
            definition::Trigger::Cron(schedule) => Series::Cron(schedule),
            definition::Trigger::FixedRate { interval } => Series::FixedRate(interval),
            definition::Trigger::FixedDelay { interval } => Series::FixedDelay(interval),
            // Refused below for whatever it says.
            other => {
                let refused = timetable::timetable(&spec.trigger, Series::FixedDelay(Millis::ZERO), &spec.timing, zones);
                self.findings.extend(refused.err().unwrap_or_default());
                return Some(other);
            }
        };
        let timetable = timetable::timetable(&spec.trigger, series, &spec.timing, zones);
        timetable.map(definition::Trigger::Timetable).map_err(|findings| self.findings.extend(findings)).ok()
    }

    fn schedule(&mut self, cron: &CronTrigger, zones: &Zones) -> Option<Arc<Schedule>> {
        schedule(cron, zones).map_err(|findings| self.findings.extend(findings)).ok()
    }

    fn misfire(&mut self, spec: &TaskSpec) {
        let misfire = &spec.misfire;
        if let Some(limit) = misfire.limit {
            if misfire.action == MisfireAction::FireAll {
                self.number(&["misfire", "limit"], limit, 1, core_limits::CATCH_UP_MAX);
            } else {
                self.refuse(Code::Conflict, &["misfire", "limit"], "a limit is for `action: fire_all` only", "leave it out");
            }
        }
        if let Some(rate) = &misfire.rate {
            if misfire.action == MisfireAction::FireAll {
                self.rate(&["misfire", "rate", "starts"], &["misfire", "rate", "per"], rate);
            } else {
                self.refuse(Code::Conflict, &["misfire", "rate"], "a rate is for `action: fire_all` only", "leave it out");
            }
        }
        if let Some(deadline) = misfire.deadline {
            self.duration(&["misfire", "deadline"], deadline, limits::DURATION_MIN);
        }
    }

    fn after(&mut self, spec: &TaskSpec) {
        if spec.after.len() > core_limits::CHAINS_MAX {
            let message = format!("{} tasks are named", spec.after.len());
            self.refuse(Code::Number, &["after"], message, format!("at most {}", core_limits::CHAINS_MAX));
        }
        let mut seen = HashSet::new();
        for (index, after) in spec.after.iter().enumerate() {
            let at = FieldPath::of(&["after"]).index(index);
            if let Some((message, help)) = name_problem(&after.task) {
                self.findings.push(Finding::new(Code::Name, at.field("task"), message).help(help));
            } else if after.task == spec.name {
                let message = "the task would fire after itself, for ever";
                self.findings.push(
                    Finding::new(Code::Conflict, at, message)
                        .help("use `trigger: {fixed_delay: ...}` for a task that runs again and again"),
                );
            } else if !seen.insert(&after.task) {
                let message = format!("{} is named twice", quoted(&after.task));
                self.findings.push(Finding::new(Code::Conflict, at, message).help("keep one; `on: any` stands for success and failure"));
            }
        }
    }

    fn shards(&mut self, spec: &TaskSpec) {
        match &spec.shards {
            Shards::None => {}
            Shards::Count(count) => self.number(&["shards"], *count, 1, core_limits::SHARDS_MAX),
            Shards::Keys(keys) => {
                let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
                self.number(&["shards"], count, 1, core_limits::SHARDS_MAX);
                let mut seen = HashSet::new();
                for (index, key) in keys.iter().enumerate() {
                    let at = FieldPath::of(&["shards"]).index(index);
                    if key.is_empty() || key.len() > core_limits::SHARD_KEY_BYTES_MAX || key.chars().any(char::is_control) {
                        let help = format!("1 to {} bytes, no control characters", core_limits::SHARD_KEY_BYTES_MAX);
                        self.findings.push(Finding::new(Code::Text, at, format!("{} is no key for a shard", quoted(key))).help(help));
                    } else if !seen.insert(key) {
                        let message = format!("{} is there twice", quoted(key));
                        self.findings.push(Finding::new(Code::Conflict, at, message).help("give each shard a key of its own"));
                    }
                }
            }
        }
    }

    fn concurrency(&mut self, spec: &TaskSpec) {
        let concurrency = &spec.concurrency;
        self.number(&["concurrency", "max_running"], concurrency.max_running, 1, core_limits::MAX_RUNNING_MAX);
        if let Some(max_queue) = concurrency.max_queue {
            if concurrency.when_full == WhenFull::Queue {
                self.number(&["concurrency", "max_queue"], max_queue, 1, core_limits::MAX_QUEUE_MAX);
            } else {
                let message = "only `when_full: queue` has a queue";
                self.refuse(Code::Conflict, &["concurrency", "max_queue"], message, "leave it out");
            }
        }
        if let Some(key) = &concurrency.key
            && let Some(problem) = limit_key::pointer_problem(key)
        {
            let help = "a JSON pointer into the payload, such as /customer/id: a slash before each step, ~1 for a slash in a name";
            self.refuse(Code::LimitKey, &["concurrency", "key"], format!("{} is no pointer: {problem}", quoted(key)), help);
        }
    }

    fn retry(&mut self, spec: &TaskSpec) {
        let retry = &spec.retry;
        if let Some(attempts) = retry.max_attempts {
            self.number(&["retry", "max_attempts"], attempts, 1, core_limits::ATTEMPTS_MAX);
        }
        self.number(&["retry", "max_losses"], retry.max_losses, 0, core_limits::ATTEMPTS_MAX);
        self.duration(&["retry", "first"], retry.first, limits::DURATION_MIN);
        self.duration(&["retry", "cap"], retry.cap, limits::DURATION_MIN);
        if retry.cap < retry.first {
            let (cap, first) = (duration::format(retry.cap), duration::format(retry.first));
            let message = format!("the longest wait ({cap}) is shorter than the first ({first})");
            self.refuse(Code::Conflict, &["retry", "cap"], message, "raise `cap` or lower `first`");
        }
        if let Some(factor) = retry.factor {
            if retry.backoff != Backoff::Exponential {
                self.refuse(Code::Conflict, &["retry", "factor"], "only `backoff: exponential` has a factor", "leave it out");
            } else if !(1_000..=limits::FACTOR_MAX * 1_000).contains(&factor.0) {
                let message = format!("{} is out of range", f64::from(factor.0) / 1_000.0);
                self.refuse(Code::Number, &["retry", "factor"], message, format!("1 to {}", limits::FACTOR_MAX));
            }
        }
        self.retry_on(spec);
        if let Some(budget) = &retry.budget {
            self.retry_budget(budget);
        }
    }

    fn retry_on(&mut self, spec: &TaskSpec) {
        let on = &spec.retry.on;
        let is_command = matches!(spec.handler, Handler::Command(_));
        let is_http = matches!(spec.handler, Handler::Http(_));
        let lists = [
            ("exit_codes", &on.exit_codes, codes::EXIT_CODES, is_command, "only a `command` has exit codes"),
            ("statuses", &on.statuses, codes::STATUSES, is_http, "only an `http` call has statuses"),
        ];
        for (field, list, all, applies, why_not) in lists {
            let Some(list) = list else { continue };
            // Of a workflow they are for those of its nodes that have any.
            if !applies && spec.nodes.is_empty() {
                self.refuse(Code::Conflict, &["retry", "on", field], why_not, "leave it out");
            }
            self.codes(&["retry", "on", field], list, &all);
        }
    }

    fn codes(&mut self, fields: &[&'static str], list: &[String], all: &RangeInclusive<u16>) {
        if list.is_empty() {
            self.refuse(Code::Number, fields, "it is empty: no code would be retried", "leave it out for all of them, or name some");
        }
        for (index, text) in list.iter().enumerate() {
            let (message, help) = match codes::parse(text, all) {
                Ok(_) => continue,
                Err(Wrong::Form) => {
                    let help = "write one as a number, several as a range such as 100-110".to_owned();
                    (format!("{} is neither a code nor a range of codes", quoted(text)), help)
                }
                Err(Wrong::OutOfRange) => (format!("{} is out of range", quoted(text)), format!("{} to {}", all.start(), all.end())),
                Err(Wrong::Backwards) => (format!("{} runs backwards", quoted(text)), "write the smaller code first".to_owned()),
            };
            self.findings.push(Finding::new(Code::Number, FieldPath::of(fields).index(index), message).help(help));
        }
    }

    fn retry_budget(&mut self, budget: &RetryBudget) {
        let (most, per_mille) = (core_limits::BUDGET_RATIO_PERMILLE_MAX, budget.ratio.0);
        if per_mille > most {
            let message = format!("{} is out of range", f64::from(per_mille) / 1_000.0);
            self.refuse(Code::Number, &["retry", "budget", "ratio"], message, format!("0 to {}", most / 1_000));
        }
        self.number(&["retry", "budget", "min_per_minute"], budget.min_per_minute, 0, core_limits::BUDGET_PER_MINUTE_MAX);
        if per_mille == 0 && budget.min_per_minute == 0 {
            let help = "raise `ratio` or `min_per_minute`; without `max_attempts` a task has no retries";
            self.refuse(Code::Conflict, &["retry", "budget"], "it allows no retry at all", help);
        }
    }

    fn payload_schema(&mut self, spec: &TaskSpec) {
        let Some(schema) = &spec.payload_schema else { return };
        let bytes = schema.to_string().len();
        if bytes > limits::PAYLOAD_SCHEMA_BYTES_MAX {
            let message = format!("it has {bytes} bytes");
            let help = format!("at most {} bytes", limits::PAYLOAD_SCHEMA_BYTES_MAX);
            return self.refuse(Code::PayloadSchema, &["payload_schema"], message, help);
        }
        match PayloadSchema::new(schema) {
            Err(problem) => {
                let help =
                    "write a JSON Schema that refers to nothing outside itself, and of moderate size; docs/task-file.md says what is taken";
                self.refuse(Code::PayloadSchema, &["payload_schema"], problem, help);
            }
            Ok(compiled) => {
                if let Some(payload) = &spec.payload
                    && let Err(problem) = compiled.check(Some(payload))
                {
                    let help = "make the task's own payload one that its `payload_schema` allows";
                    self.refuse(Code::PayloadSchema, &["payload"], problem, help);
                }
            }
        }
    }

    fn downstream(&mut self, spec: &TaskSpec) {
        if let Some(label) = &spec.downstream
            && let Some(message) = label_problem(label)
        {
            let help = format!("a name of 1 to {} characters, such as payments", limits::DOWNSTREAM_CHARS_MAX);
            self.refuse(Code::Text, &["downstream"], message, help);
        }
        let Some(breaker) = &spec.circuit_breaker else { return };
        if spec.downstream.is_none() {
            let message = "a circuit breaker stands before a downstream, and the task names none";
            self.refuse(Code::Conflict, &["circuit_breaker"], message, "add `downstream: ...`, or leave it out");
        }
        self.number(&["circuit_breaker", "failures"], breaker.failures, 1, core_limits::BREAKER_FAILURES_MAX);
        for (field, time) in [("within", breaker.within), ("open", breaker.open)] {
            if time < limits::DURATION_MIN || time > core_limits::BREAKER_TIME_MAX {
                let range = format!("{} to {}", duration::format(limits::DURATION_MIN), duration::format(core_limits::BREAKER_TIME_MAX));
                self.refuse(Code::Duration, &["circuit_breaker", field], format!("{} is out of range", duration::format(time)), range);
            }
        }
    }

    fn timeout(&mut self, spec: &TaskSpec) {
        if let Some(after) = spec.timeout.after {
            self.duration(&["timeout", "after"], after, limits::DURATION_MIN);
        }
        self.duration(&["timeout", "grace"], spec.timeout.grace, Millis::ZERO);
    }

    fn priority(&mut self, spec: &TaskSpec) {
        // One that stands alone is the level.
        let level = spec.priority.level;
        let fields: &[_] = if spec.priority.band == Band::Normal { &["priority"] } else { &["priority", "level"] };
        self.number(fields, level, 0, core_limits::LEVEL_MAX.into());
    }

    fn rate_limit(&mut self, spec: &TaskSpec) {
        if let Some(limit) = &spec.rate_limit {
            self.rate(&["rate_limit", "starts"], &["rate_limit", "per"], limit);
        }
    }

    fn rate(&mut self, starts: &[&'static str], per: &[&'static str], limit: &spec::RateLimit) {
        self.number(starts, limit.starts, 1, core_limits::RATE_STARTS_MAX);
        if !(core_limits::RATE_PER_MIN..=core_limits::RATE_PER_MAX).contains(&limit.per) {
            let [least, most] = [core_limits::RATE_PER_MIN, core_limits::RATE_PER_MAX].map(duration::format);
            let message = format!("{} is out of range", duration::format(limit.per));
            self.refuse(Code::Duration, per, message, format!("{least} to {most}"));
        }
    }

    fn group(&mut self, spec: &TaskSpec) {
        if spec.group_limits.is_some() && spec.group.is_none() {
            let message = "they are limits of a group, and the task is in none";
            self.refuse(Code::Group, &["group_limits"], message, "add `group: ...`, or leave them out");
        }
        for finding in group_findings(spec.group.as_deref(), spec.group_limits.as_ref()) {
            let mut path = FieldPath::of(&[if finding.path.0.is_empty() { "group" } else { "group_limits" }]);
            path.0.extend(finding.path.0);
            self.findings.push(Finding { path, ..finding });
        }
    }

    fn routing(&mut self, spec: &TaskSpec) -> Routing {
        let routing = &spec.routing;
        let strategy = match (routing.strategy, &routing.worker) {
            (RoutingStrategy::Pinned, Some(worker)) => {
                if worker.is_empty() || worker.len() > limits::WORKER_NAME_BYTES_MAX || worker.chars().any(char::is_control) {
                    let help = format!("the worker's name as `punctual status` shows it, 1 to {} bytes", limits::WORKER_NAME_BYTES_MAX);
                    self.refuse(Code::WorkerName, &["routing", "worker"], format!("{} is no name for a worker", quoted(worker)), help);
                }
                definition_routing::Strategy::Pinned(WorkerId(Arc::from(worker.as_str())))
            }
            (RoutingStrategy::Pinned, None) => {
                let help = "add `worker: NAME`, the name as `punctual status` shows it";
                self.refuse(Code::MissingField, &["routing", "worker"], "a pinned task names its worker", help);
                definition_routing::Strategy::LeastLoaded
            }
            (_, Some(_)) => {
                let help = "write `strategy: pinned` to mean this worker only, or leave it out";
                self.refuse(Code::Conflict, &["routing", "worker"], "only `strategy: pinned` has a worker", help);
                definition_routing::Strategy::LeastLoaded
            }
            (RoutingStrategy::LeastLoaded, None) => definition_routing::Strategy::LeastLoaded,
            (RoutingStrategy::RoundRobin, None) => definition_routing::Strategy::RoundRobin,
            (RoutingStrategy::Random, None) => definition_routing::Strategy::Random,
            (RoutingStrategy::Hash, None) => definition_routing::Strategy::Hash,
            (RoutingStrategy::Broadcast, None) => definition_routing::Strategy::Broadcast,
        };
        Routing { strategy, tags: self.tags(&routing.tags), min_worker_version: self.worker_version(routing.min_worker_version.as_deref()) }
    }

    /// Each worker has one shard: there is nothing else to divide by.
    fn broadcast(&mut self, spec: &TaskSpec) {
        if spec.routing.strategy == RoutingStrategy::Broadcast && spec.shards != Shards::None {
            let help = "leave out `shards`, or take another strategy";
            self.refuse(Code::Conflict, &["shards"], "what is broadcast has a shard for each worker, and no others", help);
        }
    }

    fn tags(&mut self, tags: &BTreeMap<String, String>) -> Vec<Arc<str>> {
        if tags.len() > core_limits::TAGS_MAX {
            let (message, help) = (format!("there are {} tags", tags.len()), format!("at most {}", core_limits::TAGS_MAX));
            self.refuse(Code::Tag, &["routing", "tags"], message, help);
        }
        let mut texts: Vec<Arc<str>> = Vec::with_capacity(tags.len());
        for (key, value) in tags {
            let tag = format!("{key}={value}");
            // A key with a `=` in it would read as another pair.
            if key.contains('=') || check_tag(&tag).is_err() {
                let path = FieldPath::of(&["routing", "tags"]).field(key.clone());
                self.findings.push(Finding::new(Code::Tag, path, format!("{} is not a tag", quoted(&tag))).help(format!(
                    "letters, digits and _ - . / on both sides, the value may have : too, neither is empty, {} bytes in all",
                    core_limits::TAG_BYTES_MAX
                )));
            }
            texts.push(Arc::from(tag));
        }
        texts.sort();
        texts
    }

    fn worker_version(&mut self, text: Option<&str>) -> Option<WorkerVersion> {
        let text = text?;
        let version = WorkerVersion::parse(text).ok();
        if version.is_none() {
            let help = "one to four numbers with dots between them, such as 1.4.0 or 1.4.0-rc.1; in quotes, or YAML may read a number";
            self.refuse(Code::WorkerVersion, &["routing", "min_worker_version"], format!("{} is not a version", quoted(text)), help);
        }
        version
    }

    fn duration(&mut self, fields: &[&'static str], duration: Millis, least: Millis) {
        if duration < least || duration > core_limits::DELAY_MAX {
            let range = format!("{} to {}", duration::format(least), duration::format(core_limits::DELAY_MAX));
            self.refuse(Code::Duration, fields, format!("{} is out of range", duration::format(duration)), range);
        }
    }

    fn number(&mut self, fields: &[&'static str], number: u32, least: u32, most: u32) {
        if !(least..=most).contains(&number) {
            self.refuse(Code::Number, fields, format!("{number} is out of range"), format!("{least} to {most}"));
        }
    }

    fn handler(&mut self, handler: &Handler, zones: &Zones) -> definition::Handler {
        let (name, config, field) = match handler {
            Handler::None => return definition::Handler { name: zones.shared_text(""), config: zones.shared_text("{}") },
            Handler::Command(config) => {
                self.command(config);
                (Arc::clone(&COMMAND), serde_json::to_string(config), handler::COMMAND)
            }
            Handler::Http(config) => {
                self.http(config);
                (Arc::clone(&HTTP), serde_json::to_string(config), handler::HTTP)
            }
            Handler::Custom(custom) => {
                self.handler_name(&custom.name);
                (zones.shared_text(&custom.name), serde_json::to_string(&custom.config), "handler")
            }
        };
        let config = config.expect("a configuration has only texts for keys");
        if config.len() > limits::HANDLER_CONFIG_BYTES_MAX {
            let help = format!("at most {} bytes", limits::HANDLER_CONFIG_BYTES_MAX);
            self.refuse(Code::Handler, &[field], format!("it has {} bytes of JSON", config.len()), help);
        }
        definition::Handler { name, config: zones.shared_text(&config) }
    }

    fn map_over(&mut self, spec: &TaskSpec, zones: &Zones) -> Option<Arc<definition::Map>> {
        let map = spec.map.as_ref()?;
        self.number(&["map", "parallel"], map.parallel, 1, core_limits::MAP_PARALLEL_MAX);
        if spec.shards != Shards::None || spec.routing.strategy == RoutingStrategy::Broadcast {
            let help = "leave out `map`, or `shards` and `strategy: broadcast`";
            self.refuse(Code::Conflict, &["map"], "a firing is divided in one way: by its items, in shards, or among workers", help);
        }
        if matches!(map.reduce, Some(Handler::Http(_))) {
            let help = "reduce with a command or a handler of your own";
            self.refuse(Code::Handler, &["map", "reduce"], "a call can't be given the results", help);
        }
        let list = self.handler_within(&map.list, "list", zones);
        let reduce = map.reduce.as_ref().map(|reduce| self.handler_within(reduce, "reduce", zones));
        Some(Arc::new(definition::Map { list, reduce, parallel: map.parallel }))
    }

    /// A handler of a map; what is wrong with it is said of its own field.
    fn handler_within(&mut self, handler: &Handler, field: &'static str, zones: &Zones) -> definition::Handler {
        let before = self.findings.len();
        let handler = self.handler(handler, zones);
        self.findings[before..].iter_mut().for_each(|finding| finding.path.begin_with(&["map", field]));
        handler
    }

    fn handler_name(&mut self, name: &str) {
        let path = &["handler", "name"];
        if name == handler::COMMAND || name == handler::HTTP {
            let message = format!("`{name}` is built in");
            self.refuse(Code::Handler, path, message, format!("write `{name}: ...` in place of `handler: ...`"));
        } else if name.is_empty() || name.chars().count() > limits::HANDLER_NAME_CHARS_MAX || name.chars().any(|c| c.is_control()) {
            let help = format!("1 to {} characters, no control characters", limits::HANDLER_NAME_CHARS_MAX);
            self.refuse(Code::Handler, path, format!("{} is no name for a handler", quoted(name)), help);
        }
    }

    fn command(&mut self, config: &CommandConfig) {
        let no_zero = "a zero character can't be passed to a program";
        let mut refuse = |path: FieldPath, message: &str, help: &str| {
            self.findings.push(Finding::new(Code::Handler, path, message).help(help));
        };
        let at = |field: &'static str| FieldPath::of(&[handler::COMMAND, field]);
        match &config.program {
            Program::Argv(argv) => {
                if argv.first().is_none_or(|program| program.trim().is_empty()) {
                    refuse(at("argv"), "there is no program to run", "a list: the program, then its arguments");
                }
                for (index, _) in argv.iter().enumerate().filter(|(_, argument)| argument.contains('\0')) {
                    refuse(at("argv").index(index), no_zero, "remove it");
                }
            }
            Program::Shell(line) => {
                if line.trim().is_empty() {
                    refuse(at("shell"), "there is nothing to run", "write a line for the shell");
                }
                if line.contains('\0') {
                    refuse(at("shell"), no_zero, "remove it");
                }
            }
        }
        for (name, value) in &config.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                refuse(at("env").field(name.clone()), "it is no name for an environment variable", "no `=`, not empty");
            }
            if value.contains('\0') {
                refuse(at("env").field(name.clone()), no_zero, "remove it");
            }
        }
        for (field, text) in [("working_directory", &config.working_directory), ("user", &config.user)] {
            if text.as_ref().is_some_and(|text| text.trim().is_empty() || text.contains(['\0', '\n'])) {
                refuse(at(field), "it is empty or has line breaks", "leave it out, or name one");
            }
        }
        if config.success_codes.is_empty() {
            refuse(at("success_codes"), "no exit code would mean success", "leave it out for [0]");
        }
    }

    fn http(&mut self, config: &HttpConfig) {
        let at = |field: &'static str| FieldPath::of(&[handler::HTTP, field]);
        if let Err(message) = check_url(&config.url) {
            let help = "write http://host/path or https://host/path";
            self.findings.push(Finding::new(Code::Handler, at("url"), message).help(help));
        }
        self.headers(&config.headers);
        if config.success_statuses.is_empty() {
            let finding = Finding::new(Code::Handler, at("success_statuses"), "no status would mean success");
            self.findings.push(finding.help("leave it out for [200-299]"));
        }
        if let Err(message) = config.success_ranges() {
            let finding = Finding::new(Code::Handler, at("success_statuses"), message);
            self.findings.push(finding.help("100 to 599"));
        }
    }

    fn headers(&mut self, headers: &BTreeMap<String, String>) {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        for (name, value) in headers {
            let path = FieldPath::of(&[handler::HTTP, "headers"]).field(name.clone());
            if name.is_empty() || !name.chars().all(is_token) {
                let finding = Finding::new(Code::Handler, path.clone(), format!("{} is no name for a header", quoted(name)));
                self.findings.push(finding.help("letters, digits and hyphens"));
            }
            if value.chars().any(|c| c.is_control() && c != '\t') {
                let finding = Finding::new(Code::Handler, path, "it has control characters");
                self.findings.push(finding.help("a header is one line"));
            }
        }
    }
}

/// What is wrong with a task's name, and what is allowed.
pub(crate) fn name_problem(name: &str) -> Option<(String, String)> {
    let help = format!("1 to {} characters, none of them control characters", core_limits::NAME_CHARS_MAX);
    let message = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.chars().nth(core_limits::NAME_CHARS_MAX).is_some() {
        format!("it has {} characters", name.chars().count())
    } else if name.chars().all(char::is_whitespace) {
        "it is blank".to_owned()
    } else if name.chars().any(char::is_control) {
        "it has control characters".to_owned()
    } else if name.trim() != name {
        "it begins or ends with a blank".to_owned()
    } else if matches!(name, "." | "..") {
        // Every client takes these two out of an address, escaped or not, so the API could never be asked about such a task.
        "it means a folder in an address".to_owned()
    } else {
        return None;
    };
    Some((message, help))
}

/// What is wrong with a group's name and limits. Paths lead from the limits; an empty one is about the name, or all of them.
pub(crate) fn group_findings(name: Option<&str>, group: Option<&GroupLimits>) -> Vec<Finding> {
    let mut check = Check { findings: Vec::new() };
    if let Some(message) = name.and_then(label_problem) {
        let help = format!("a name of 1 to {} characters, such as billing", core_limits::GROUP_CHARS_MAX);
        check.refuse(Code::Group, &[], message, help);
    }
    let Some(GroupLimits { max_running, rate_limit }) = group else { return check.findings };
    if max_running.is_none() && rate_limit.is_none() {
        check.refuse(Code::Group, &["max_running"], "the group has no limit", "write `max_running: 5`, or a `rate_limit`, or both");
    }
    if let Some(max_running) = max_running {
        check.number(&["max_running"], *max_running, 1, core_limits::MAX_RUNNING_MAX);
    }
    if let Some(limit) = rate_limit {
        check.rate(&["rate_limit", "starts"], &["rate_limit", "per"], limit);
    }
    check.findings
}

/// What is wrong with the name of a downstream.
fn label_problem(label: &str) -> Option<String> {
    if label.is_empty() {
        Some("it is empty".to_owned())
    } else if label.chars().nth(limits::DOWNSTREAM_CHARS_MAX).is_some() {
        Some(format!("it has {} characters", label.chars().count()))
    } else if label.chars().any(char::is_control) {
        Some("it has control characters".to_owned())
    } else if label.trim() != label {
        Some("it begins or ends with a blank".to_owned())
    } else {
        None
    }
}

/// Whether a URL can be called at all. Whether anybody answers is for the run to find out.
fn check_url(url: &str) -> Result<(), String> {
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return Err(format!("{} is not an http or https URL", quoted(url)));
    };
    if url.len() > limits::URL_BYTES_MAX {
        return Err(format!("it has {} bytes, at most {} are allowed", url.len(), limits::URL_BYTES_MAX));
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it has blanks or control characters".to_owned());
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    // An IPv6 host is in brackets, with colons of its own.
    let after_bracket = host_and_port.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match host_and_port[after_bracket..].rfind(':') {
        Some(colon) => (&host_and_port[..after_bracket + colon], Some(&host_and_port[after_bracket + colon + 1..])),
        None => (host_and_port, None),
    };
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    match port {
        Some(port) if !port.parse::<u16>().is_ok_and(|port| port > 0) => Err(format!("{} is no port", quoted(port))),
        _ => Ok(()),
    }
}
