//! The history, read once: what became of each instance.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use punctual_core::batch::Batch;
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::ids::{Fence, InstanceId, TaskId};
use punctual_core::instance::{Cause, InstanceRow, Origin, State};
use punctual_core::misfire;
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_core::time::Timestamp;
use punctual_spec::decode;

use super::FaultSpan;
use super::words;
use crate::history::{History, What, Who};
use crate::plan::{HandlerPlan, Plan};
use crate::workload::zones;

/// A run, as far as reports want to know.
pub(super) struct Facts<'a> {
    pub(super) plan: &'a Plan,
    /// In the plan's order.
    pub(super) tasks: Vec<TaskFacts<'a>>,
    /// By when they began.
    pub(super) faults: Vec<FaultSpan>,
    /// After each change: when, how many instances were due and had no worker, how many had one.
    pub(super) levels: Vec<(u64, u64, u64)>,
}

/// A task.
pub(super) struct TaskFacts<'a> {
    pub(super) name: String,
    pub(super) handler: &'a HandlerPlan,
    /// As the plan has it; `None` where its document can't be read.
    pub(super) definition: Option<TaskDefinition>,
    /// When it came into being.
    pub(super) made_ms: Option<u64>,
    /// By id.
    pub(super) instances: Vec<Instance>,
    /// Fire times that did not become instances.
    pub(super) dropped: Vec<Dropped>,
}

/// An instance.
pub(super) struct Instance {
    /// Its fire time; before the beginning where that is negative.
    pub(super) fire_ms: i64,
    pub(super) origin: Origin,
    /// When it was made.
    pub(super) made_ms: u64,
    /// When it was first given to a worker.
    pub(super) dispatched_ms: Option<u64>,
    pub(super) state: State,
    /// Why it changed its state, each time, from its making on.
    pub(super) causes: Vec<(State, Cause)>,
    /// By when they began.
    pub(super) attempts: Vec<Attempt>,
}

/// An attempt, by its handler's own account.
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) began_ms: u64,
    /// `None`: the run ended first, or the worker was lost without a word.
    pub(super) ended_ms: Option<u64>,
    pub(super) end: Option<End>,
}

/// Fire times with the same fate.
pub(super) struct Dropped {
    pub(super) at_ms: u64,
    pub(super) outcome: Outcome,
    pub(super) count: u64,
}

impl<'a> Facts<'a> {
    pub(super) fn of(plan: &'a Plan, history: &History) -> Facts<'a> {
        let mut reader = Reader::new(plan);
        let undone = undone(history);
        for (index, record) in history.records.iter().enumerate() {
            if !undone[index] {
                reader.read(record.at, &record.what);
            }
        }
        reader.finish()
    }

    /// When the run ended.
    pub(super) fn end_ms(&self) -> u64 {
        self.plan.horizon_ms
    }

    /// The instant on the wall.
    pub(super) fn wall(&self, at_ms: u64) -> Timestamp {
        Timestamp(self.plan.starts_at).saturating_add(punctual_core::time::Millis(at_ms))
    }
}

impl TaskFacts<'_> {
    /// The fire times that its trigger names after the task was made and until then.
    pub(super) fn expected(&self, facts: &Facts) -> Option<u64> {
        let definition = self.definition.as_ref()?;
        let made_at = facts.wall(self.made_ms?);
        if !definition.enabled {
            return Some(0);
        }
        match &definition.trigger {
            Trigger::Cron(_) | Trigger::FixedRate { .. } | Trigger::Timetable(_) => {
                if definition.trigger.fixed_delay().is_some() {
                    return None;
                }
                let first = misfire::first(&definition.trigger, made_at);
                let first = first.and_then(|first| misfire::fired_from(&definition.trigger, first));
                // What falls on the very end is not fired any more.
                let end = facts.wall(facts.end_ms().saturating_sub(1));
                Some(first.filter(|first| *first <= end).map_or(0, |first| misfire::count_until(&definition.trigger, first, end)))
            }
            Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
        }
    }

    /// The usual time from fire time to fire time.
    pub(super) fn interval_ms(&self, facts: &Facts) -> Option<u64> {
        let definition = self.definition.as_ref().filter(|definition| definition.enabled)?;
        match &definition.trigger {
            Trigger::Cron(schedule) => {
                let mut at = schedule.next_after(facts.wall(self.made_ms.unwrap_or(0)))?;
                let mut gaps = Vec::new();
                for _ in 0..GAPS {
                    let Some(next) = schedule.next_after(at) else { break };
                    gaps.push(next.since(at).0);
                    at = next;
                }
                words::percentile(&mut gaps, 500)
            }
            Trigger::FixedRate { interval } => Some(interval.0),
            Trigger::Timetable(timetable) => {
                let mut at = timetable.next_after(facts.wall(self.made_ms.unwrap_or(0)))?;
                let mut gaps = Vec::new();
                while let Some(next) = timetable.next_after(at)
                    && gaps.len() < GAPS
                {
                    gaps.push(next.since(at).0);
                    at = next;
                }
                words::percentile(&mut gaps, 500)
            }
            Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
        }
    }
}

/// So many fire times tell what is usual.
const GAPS: usize = 500;

impl Instance {
    /// When its handler first began.
    pub(super) fn began_ms(&self) -> Option<u64> {
        self.attempts.first().map(|attempt| attempt.began_ms)
    }

    /// From its fire time to its handler's beginning.
    pub(super) fn lateness_ms(&self) -> Option<u64> {
        Some(since(self.began_ms()?, self.fire_ms))
    }

    /// From the time that it was due to its first worker, or to the end of the run.
    pub(super) fn queue_wait_ms(&self) -> Option<u64> {
        let due_ms = self.fire_ms.max(i64::try_from(self.made_ms).unwrap_or(i64::MAX));
        Some(since(self.dispatched_ms?, due_ms))
    }

    /// How often that was the cause of a change.
    pub(super) fn count(&self, cause: Cause) -> u64 {
        self.causes.iter().filter(|(_, other)| *other == cause).count() as u64
    }

    /// How often it went back to wait for another attempt.
    pub(super) fn retries(&self) -> u64 {
        self.causes.iter().filter(|(state, _)| *state == State::Retrying).count() as u64
    }

    /// Whether it was ended by a person or for a newer one, or never begun on purpose.
    pub(super) fn was_cancelled(&self) -> bool {
        matches!(self.state, State::Cancelled | State::Skipped)
    }

    /// Whether it ended in any other way than it should.
    pub(super) fn has_gone_wrong(&self) -> bool {
        matches!(self.state, State::Failed | State::TimedOut | State::DeadLettered)
    }
}

fn since(at_ms: u64, earlier_ms: i64) -> u64 {
    u64::try_from(i64::try_from(at_ms).unwrap_or(i64::MAX).saturating_sub(earlier_ms)).unwrap_or(0)
}

/// Which records a failover has undone.
fn undone(history: &History) -> Vec<bool> {
    let mut undone = vec![false; history.records.len()];
    for (index, record) in history.records.iter().enumerate() {
        if let What::TailLost { from } = record.what {
            let from = from.min(index);
            for (undone, lost) in undone[from..index].iter_mut().zip(&history.records[from..index]) {
                *undone |= lost.who == Who::Database;
            }
        }
    }
    undone
}

struct Reader<'a> {
    facts: Facts<'a>,
    names: HashMap<String, usize>,
    by_id: HashMap<TaskId, usize>,
    instances: BTreeMap<InstanceId, (usize, Instance)>,
    attempts: HashMap<(InstanceId, Fence), usize>,
    /// Faults that go on, by their place in the plan: their place in the facts.
    open_faults: HashMap<usize, usize>,
    backlog: u64,
    running: u64,
    /// What an instance counts as at the moment.
    counted: HashMap<InstanceId, Level>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Neither,
    Backlog,
    Running,
}

impl<'a> Reader<'a> {
    fn new(plan: &'a Plan) -> Self {
        let tasks: Vec<TaskFacts> = plan
            .tasks
            .iter()
            .map(|task| TaskFacts {
                name: task.document["name"].as_str().unwrap_or_default().to_owned(),
                handler: &task.handler,
                definition: decode(&task.document.to_string(), zones()).ok(),
                made_ms: None,
                instances: Vec::new(),
                dropped: Vec::new(),
            })
            .collect();
        Reader {
            names: tasks.iter().enumerate().map(|(index, task)| (task.name.clone(), index)).collect(),
            facts: Facts { plan, tasks, faults: Vec::new(), levels: Vec::new() },
            by_id: HashMap::new(),
            instances: BTreeMap::new(),
            attempts: HashMap::new(),
            open_faults: HashMap::new(),
            backlog: 0,
            running: 0,
            counted: HashMap::new(),
        }
    }

    fn read(&mut self, at_ms: u64, what: &What) {
        match what {
            What::Defined { task, definition: Some(definition), .. } => self.defined(at_ms, *task, definition),
            What::Committed(batch) => self.committed(at_ms, batch),
            What::Began { instance, fence, attempt, task, fire_time, ordinal, .. } => {
                // A commit that a failover has undone may have been acted upon: what began is true all the same.
                if !self.instances.contains_key(instance) {
                    let Some(&task) = self.by_id.get(task) else { return };
                    let origin = if *ordinal == 0 { Origin::Schedule } else { Origin::Manual };
                    self.instances.insert(*instance, (task, self.new_instance(at_ms, *fire_time, origin)));
                }
                let Some((_, known)) = self.instances.get_mut(instance) else { return };
                self.attempts.insert((*instance, *fence), known.attempts.len());
                known.attempts.push(Attempt { number: *attempt, began_ms: at_ms, ended_ms: None, end: None });
            }
            What::Ended { instance, fence, end } => {
                let Some(&place) = self.attempts.get(&(*instance, *fence)) else { return };
                let Some((_, known)) = self.instances.get_mut(instance) else { return };
                known.attempts[place].ended_ms = Some(at_ms);
                known.attempts[place].end = *end;
            }
            What::FaultBegan(fault) => self.fault_began(at_ms, *fault),
            What::FaultEnded(fault) => {
                if let Some(span) = self.open_faults.remove(fault) {
                    self.facts.faults[span].until_ms = at_ms;
                }
            }
            _ => {}
        }
    }

    fn defined(&mut self, at_ms: u64, task: TaskId, definition: &Arc<TaskDefinition>) {
        let Some(&index) = self.names.get(&*definition.name) else { return };
        self.by_id.insert(task, index);
        self.facts.tasks[index].made_ms.get_or_insert(at_ms);
    }

    fn new_instance(&self, at_ms: u64, fire_time: Timestamp, origin: Origin) -> Instance {
        Instance {
            fire_ms: fire_time.0.saturating_sub(self.facts.plan.starts_at),
            origin,
            made_ms: at_ms,
            dispatched_ms: None,
            state: State::Created,
            causes: Vec::new(),
            attempts: Vec::new(),
        }
    }

    fn committed(&mut self, at_ms: u64, batch: &Batch) {
        for row in &batch.inserts {
            let Some(&task) = self.by_id.get(&row.task) else { continue };
            let mut instance = self.new_instance(at_ms, row.fire_time, row.origin);
            if let Some((_, phantom)) = self.instances.remove(&row.id) {
                instance.attempts = phantom.attempts;
            }
            self.instances.insert(row.id, (task, instance));
            self.row(at_ms, row);
        }
        for update in &batch.updates {
            self.row(at_ms, &update.row);
        }
        for occurrence in &batch.occurrences {
            if let Some(&task) = self.by_id.get(&occurrence.task) {
                let (outcome, count) = (occurrence.outcome, occurrence.count);
                self.facts.tasks[task].dropped.push(Dropped { at_ms, outcome, count });
            }
        }
        self.facts.levels.push((at_ms, self.backlog, self.running));
    }

    fn row(&mut self, at_ms: u64, row: &InstanceRow) {
        let Some((_, instance)) = self.instances.get_mut(&row.id) else { return };
        instance.state = row.state;
        for transition in row.transitions.iter().skip(instance.causes.len()) {
            instance.causes.push((transition.to, transition.cause));
            if transition.to == State::Dispatched {
                instance.dispatched_ms.get_or_insert(at_ms);
            }
        }
        let level = match row.state {
            state if state.is_terminal() => Level::Neither,
            state if state.is_with_worker() => Level::Running,
            State::Waiting if row.due_at.is_some() => Level::Neither,
            _ => Level::Backlog,
        };
        let before = if level == Level::Neither { self.counted.remove(&row.id) } else { self.counted.insert(row.id, level) };
        for (counted, up) in [(before.unwrap_or(Level::Neither), false), (level, true)] {
            let number = match counted {
                Level::Neither => continue,
                Level::Backlog => &mut self.backlog,
                Level::Running => &mut self.running,
            };
            *number = if up { *number + 1 } else { number.saturating_sub(1) };
        }
    }

    fn fault_began(&mut self, at_ms: u64, fault: usize) {
        let Some(planned) = self.facts.plan.faults.get(fault) else { return };
        let until_ms = if planned.kind.is_instant() { at_ms } else { self.facts.plan.heal_at_ms.max(at_ms) };
        self.open_faults.insert(fault, self.facts.faults.len());
        self.facts.faults.push(FaultSpan {
            fault,
            family: planned.kind.family(self.facts.plan.knobs.semi_synchronous).name().to_owned(),
            what: words::fault(planned, &self.facts.plan.downstreams()),
            from_ms: at_ms,
            until_ms,
        });
    }

    fn finish(mut self) -> Facts<'a> {
        for (task, instance) in std::mem::take(&mut self.instances).into_values() {
            self.facts.tasks[task].instances.push(instance);
        }
        self.facts
    }
}
