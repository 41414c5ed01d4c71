//! What is wrong with a plan that somebody wrote, or that is older than the code.

use std::collections::BTreeMap;
use std::fmt;

use punctual_core::limits;
use punctual_spec::decode;
use serde_json::Value;

use crate::plan::{Call, CallKind, Fault, FaultKind, Plan, Selector, TaskPlan};
use crate::workload::{document, spec, zones};

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
        for (field, _) in counts.iter().filter(|(_, count)| *count == 0) {
            self.refuse(format!("shape.{field}"), "there must be at least 1");
        }
        if shape.partitions > limits::PARTITIONS_MAX {
            self.refuse("shape.partitions", format!("there may be {} at most", limits::PARTITIONS_MAX));
        }
        let knobs = self.plan.knobs;
        self.range("knobs.network_ms", knobs.network_ms);
        self.range("knobs.database_ms", knobs.database_ms);
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
            CallKind::Trigger { task, .. } => self.task(&format!("{place}.what.trigger.task"), *task),
            CallKind::Remove { task } => self.task(&format!("{place}.what.remove.task"), *task),
            CallKind::Edit { task, document } => {
                self.task(&format!("{place}.what.edit.task"), *task);
                self.document(&format!("{place}.what.edit.document"), document);
                let edited = self.plan.tasks.get(*task).map(|task| &task.document["name"]);
                if let Some(name) = edited.filter(|name| **name != document["name"]) {
                    self.refuse(format!("{place}.what.edit.document.name"), format!("the task's name is {name}"));
                }
            }
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
            FaultKind::RetryStorm { downstream } => {
                let services = self.plan.downstreams().len();
                if downstream >= services {
                    self.refuse(kind, format!("handlers call {services} services, and this is for number {downstream}, counted from 0"));
                }
            }
            FaultKind::Flood { task, .. } => self.task(&kind, task),
            _ => {}
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

    fn per_mille(&mut self, place: &str, per_mille: u32) {
        if per_mille > 1_000 {
            self.refuse(place, format!("{per_mille} of 1000 are too many"));
        }
    }
}
