//! What is wrong with a plan that somebody wrote, or that is older than the code.

use std::collections::BTreeMap;
use std::fmt;

use punctual_core::limits;
use punctual_spec::decode;
use punctual_spec::limits::DOWNSTREAM_CHARS_MAX;
use serde_json::Value;

use crate::operations::BACKFILLED_MAX;
use crate::plan::{Call, CallKind, Fault, FaultKind, Operation, PauseOn, Plan, Selector, TaskPlan};
use crate::rehearsal::HOURS_MAX;
use crate::workload::{document, spec, zones};

/// Most schedulers.
pub const SCHEDULERS_MAX: u64 = 99;
/// Most workers.
pub const WORKERS_MAX: u64 = 999;
/// Most attempts that a worker runs at once: the worker protocol has a limit too, and refuses a worker with more.
pub const SLOTS_MAX: u64 = 10_000;
/// Latest beginning: 2200-01-01.
pub const STARTS_AT_MAX: i64 = 7_258_118_400_000;

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
/// Longest plan: the longest rehearsal, and time to settle.
const HORIZON_MS_MAX: u64 = (HOURS_MAX + 31 * 24) * HOUR;
/// What a world is like in which all is well may not by itself outlast a lease: no promise could be kept.
const NETWORK_MS_MAX: u64 = SECOND;
const DATABASE_MS_MAX: u64 = SECOND;
const REPLICA_LAG_MS_MAX: u64 = 60 * SECOND;
/// Most submissions of a flood.
const FLOOD_MAX: usize = 100_000;
/// Longest delay of messages and of the database, while a fault lasts.
const DELAY_MS_MAX: u64 = HOUR;
/// Farthest that a clock is set, and fastest that it runs: twice as fast.
const CLOCK_STEP_MS_MAX: u64 = 366 * 24 * HOUR;
const CLOCK_DRIFT_PER_MILLE_MAX: i64 = 1_000;
const HANDLERS_SLOW_MAX: u64 = 1_000;

const _: () = assert!(2 * (NETWORK_MS_MAX + DATABASE_MS_MAX) < limits::PARTITION_LEASE.0);
const _: () = assert!(HOURS_MAX * HOUR < HORIZON_MS_MAX);

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where in the plan, such as `faults[3].lasts_ms`.
    pub place: String,
    /// What.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Everything that is wrong with the plan. A world can carry out a plan that has none.
pub fn problems(plan: &Plan) -> Vec<Problem> {
    let mut check = Check { plan, problems: Vec::new() };
    check.numbers();
    check.tasks();
    for (index, call) in plan.calls.iter().enumerate() {
        check.call(&format!("calls[{index}]"), call);
    }
    for (index, fault) in plan.faults.iter().enumerate() {
        check.fault(&format!("faults[{index}]"), fault);
    }
    check.problems
}

struct Check<'a> {
    plan: &'a Plan,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn refuse(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { place: place.into(), message: message.into() });
    }

    fn numbers(&mut self) {
        let shape = self.plan.shape;
        let counts = [
            ("schedulers", shape.schedulers as u64),
            ("workers", shape.workers as u64),
            ("slots", u64::from(shape.slots)),
            ("partitions", u64::from(shape.partitions)),
        ];
        let most = [SCHEDULERS_MAX, WORKERS_MAX, SLOTS_MAX, u64::from(limits::PARTITIONS_MAX)];
        for ((field, count), most) in counts.into_iter().zip(most) {
            if count == 0 {
                self.refuse(format!("shape.{field}"), "there must be at least 1");
            }
            self.at_most(&format!("shape.{field}"), count, most);
        }
        let knobs = self.plan.knobs;
        self.range("knobs.network_ms", knobs.network_ms);
        self.range("knobs.database_ms", knobs.database_ms);
        self.at_most("knobs.network_ms", knobs.network_ms.1, NETWORK_MS_MAX);
        self.at_most("knobs.database_ms", knobs.database_ms.1, DATABASE_MS_MAX);
        self.at_most("knobs.replica_lag_ms", knobs.replica_lag_ms, REPLICA_LAG_MS_MAX);
        if knobs.commits_at_once == 0 {
            self.refuse("knobs.commits_at_once", "there must be at least 1");
        }
        self.at_most("knobs.commits_at_once", knobs.commits_at_once as u64, u64::from(limits::PARTITIONS_MAX));
        self.at_most("horizon_ms", self.plan.horizon_ms, HORIZON_MS_MAX);
        if !(0..=STARTS_AT_MAX).contains(&self.plan.starts_at) {
            self.refuse("starts_at", format!("it must be 0 to {STARTS_AT_MAX}: 1970 to 2200"));
        }
        if self.plan.horizon_ms < self.plan.heal_at_ms {
            self.refuse("horizon_ms", format!("it ends before it heals, at {}", self.plan.heal_at_ms));
        }
    }

    fn tasks(&mut self) {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, TaskPlan { document, handler }) in self.plan.tasks.iter().enumerate() {
            self.document(&format!("tasks[{index}].document"), document);
            if let Some(name) = document["name"].as_str()
                && let Some(other) = names.insert(name, index)
            {
                self.refuse(format!("tasks[{index}].document.name"), format!("tasks[{other}] has the same name, {name:?}"));
            }
            self.range(&format!("tasks[{index}].handler.takes_ms"), handler.takes_ms);
            self.per_mille(&format!("tasks[{index}].handler.fails_per_mille"), handler.fails_per_mille);
            self.at_most(&format!("tasks[{index}].handler.takes_ms"), handler.takes_ms.1, limits::DELAY_MAX.0);
            self.at_most(&format!("tasks[{index}].handler.obeys_after_ms"), handler.obeys_after_ms.unwrap_or(0), limits::DELAY_MAX.0);
            if let Some(name) = &handler.downstream {
                self.name(&format!("tasks[{index}].handler.downstream"), name);
            }
        }
    }

    fn document(&mut self, place: &str, text: &Value) {
        if let Err(findings) = decode(&text.to_string(), zones()) {
            for finding in findings {
                let field = finding.path.to_string();
                let place = if field.is_empty() { place.to_owned() } else { format!("{place}.{field}") };
                self.refuse(place, finding.message);
            }
            return;
        }
        if let Ok(canonical) = spec(text).map(document)
            && canonical != *text
        {
            self.refuse(place, format!("it is not in its canonical form, {canonical}"));
        }
    }

    fn call(&mut self, place: &str, call: &Call) {
        let healed = self.plan.heal_at_ms;
        if call.at_ms > healed {
            self.refuse(format!("{place}.at_ms"), format!("no calls are made after the world has healed, at {healed}"));
        }
        match &call.what {
            CallKind::Trigger { task, delay_ms, .. } => {
                self.task(&format!("{place}.what.trigger.task"), *task);
                self.at_most(&format!("{place}.what.trigger.delay_ms"), delay_ms.unwrap_or(0), limits::DELAY_MAX.0);
            }
            CallKind::Remove { task } => self.task(&format!("{place}.what.remove.task"), *task),
            CallKind::Edit { task, document } => {
                self.task(&format!("{place}.what.edit.task"), *task);
                self.document(&format!("{place}.what.edit.document"), document);
                let edited = self.plan.tasks.get(*task).map(|task| &task.document["name"]);
                if let Some(name) = edited.filter(|name| **name != document["name"]) {
                    self.refuse(format!("{place}.what.edit.document.name"), format!("the task's name is {name}"));
                }
            }
            CallKind::Pause { on, lasts_ms } => {
                if let PauseOn::Task(task) = on {
                    self.task(&format!("{place}.what.pause.on.task"), *task);
                }
                if call.at_ms.saturating_add(*lasts_ms) > healed {
                    self.refuse(format!("{place}.what.pause.lasts_ms"), format!("it is not over when the world heals, at {healed}"));
                }
            }
            CallKind::Operate { operation, .. } => match operation {
                Operation::Backfill { task, count, concurrency } => {
                    self.task(&format!("{place}.what.operate.operation.backfill.task"), *task);
                    self.at_most(&format!("{place}.what.operate.operation.backfill.count"), (*count).into(), BACKFILLED_MAX.into());
                    let most = limits::BACKFILL_CONCURRENCY_MAX.into();
                    self.at_most(&format!("{place}.what.operate.operation.backfill.concurrency"), (*concurrency).into(), most);
                    if *count == 0 || *concurrency == 0 {
                        self.refuse(format!("{place}.what.operate.operation.backfill"), "it makes up for nothing".to_owned());
                    }
                }
                Operation::Reschedule { by_ms } => {
                    self.at_most(&format!("{place}.what.operate.operation.reschedule.by_ms"), *by_ms, limits::DELAY_MAX.0);
                }
                _ => {}
            },
            CallKind::Cancel { .. } => {}
        }
    }

    fn fault(&mut self, place: &str, fault: &Fault) {
        let healed = self.plan.heal_at_ms;
        if fault.at_ms.saturating_add(fault.lasts_ms) > healed {
            self.refuse(format!("{place}.lasts_ms"), format!("it is not over when the world heals, at {healed}"));
        }
        if fault.kind.is_of_the_world() != (fault.on == Selector::World) {
            let message = if fault.kind.is_of_the_world() { "it is for nobody in particular: `world`" } else { "it is for nodes" };
            self.refuse(format!("{place}.on"), message);
        }
        let kind = format!("{place}.kind");
        match fault.kind {
            FaultKind::Lose { per_mille }
            | FaultKind::Duplicate { per_mille }
            | FaultKind::DatabaseAborts { per_mille }
            | FaultKind::CommitAppliedAnswerLost { per_mille }
            | FaultKind::CommitNotAppliedAnswerLost { per_mille }
            | FaultKind::WakeUpsLost { per_mille } => self.per_mille(&kind, per_mille),
            FaultKind::ClockDrift { per_mille } if per_mille <= -1_000 => self.refuse(kind, "the clock would run backwards"),
            FaultKind::ClockDrift { per_mille } => self.at_most(&kind, per_mille.max(0) as u64, CLOCK_DRIFT_PER_MILLE_MAX as u64),
            FaultKind::ClockStep { by } | FaultKind::DatabaseClockStep { by } => self.at_most(&kind, by.unsigned_abs(), CLOCK_STEP_MS_MAX),
            FaultKind::Delay { ms } | FaultKind::DatabaseSlow { ms } => self.at_most(&kind, ms, DELAY_MS_MAX),
            FaultKind::HandlersSlow { times } => self.at_most(&kind, times, HANDLERS_SLOW_MAX),
            FaultKind::RetryStorm { downstream } => {
                let services = self.plan.downstreams().len();
                if downstream >= services {
                    self.refuse(kind, format!("handlers call {services} services, and this is for number {downstream}, counted from 0"));
                }
            }
            FaultKind::Flood { task, count } => {
                self.task(&kind, task);
                self.at_most(&kind, count as u64, FLOOD_MAX as u64);
            }
            FaultKind::Crash
            | FaultKind::Restart
            | FaultKind::Pause
            | FaultKind::Isolate
            | FaultKind::CutOutgoing
            | FaultKind::CutIncoming
            | FaultKind::CutFromDatabase
            | FaultKind::Reset
            | FaultKind::DatabaseDown
            | FaultKind::DatabaseFull
            | FaultKind::Failover
            | FaultKind::WakeUpsDown
            | FaultKind::WakeUpsDoubled
            | FaultKind::HandlersHang
            | FaultKind::HandlersPanic => {}
        }
    }

    fn task(&mut self, place: &str, task: usize) {
        let count = self.plan.tasks.len();
        if task >= count {
            self.refuse(place, format!("there are {count} tasks, and this is number {task}, counted from 0"));
        }
    }

    fn range(&mut self, place: &str, (low, high): (u64, u64)) {
        if low > high {
            self.refuse(place, format!("the shortest, {low}, is longer than the longest, {high}"));
        }
    }

    fn at_most(&mut self, place: &str, number: u64, most: u64) {
        if number > most {
            self.refuse(place, format!("{number} is too much: {most} at most"));
        }
    }

    /// The name of a service, as in a task file.
    fn name(&mut self, place: &str, name: &str) {
        let length = name.chars().count();
        if name.is_empty() || length > DOWNSTREAM_CHARS_MAX || name.chars().any(char::is_control) {
            self.refuse(place, format!("a name has 1 to {DOWNSTREAM_CHARS_MAX} characters, without control characters"));
        }
    }

    fn per_mille(&mut self, place: &str, per_mille: u32) {
        if per_mille > 1_000 {
            self.refuse(place, format!("{per_mille} of 1000 are too many"));
        }
    }
}
