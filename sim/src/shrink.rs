//! Making a failing plan small.
//!
//! A candidate is a plan that is simpler in one way; it counts if it fails in the same way as the plan did. Whole families of faults go
//! first, then single faults, calls and tasks, then numbers and fields. It goes round until nothing more can be taken away.
//!
//! Two rules hold for each candidate. It has no problems that the plan did not have. And where the plan left its world enough time to
//! settle, the candidate does too: otherwise each would fail to converge, for the wrong reason.

mod documents;
mod values;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use crate::load::settling_ms;
use crate::plan::{CallKind, Family, FaultKind, HandlerPlan, Knobs, Operation, PauseOn, Plan};
use values::{lower_values, number_of, simpler_selectors, with_number};

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Candidates that were run.
    pub tried: usize,
    /// Candidates that may be run.
    pub budget: usize,
    /// What is being made smaller.
    pub step: &'static str,
    /// The smallest plan so far that fails.
    pub smallest: &'a Plan,
}

/// The smallest plan found that fails like `plan`, which is known to. At most `budget` candidates are run, none of them twice; `progress`
/// is told after each. The same arguments give the same plan.
pub fn shrink(plan: &Plan, budget: usize, fails: impl FnMut(&Plan) -> bool, progress: impl FnMut(&Progress)) -> Plan {
    let settles = plan.horizon_ms.saturating_sub(plan.heal_at_ms) >= settling_ms(plan);
    let mut shrinker =
        Shrinker { smallest: plan.clone(), settles, tried: 0, budget, step: "", seen: BTreeSet::from([hash(plan)]), fails, progress };
    loop {
        let before = shrinker.smallest.clone();
        shrinker.round();
        if shrinker.smallest == before || shrinker.tried >= budget {
            return shrinker.smallest;
        }
    }
}

struct Shrinker<F, P> {
    smallest: Plan,
    /// Whether the plan left its world the time to settle.
    settles: bool,
    tried: usize,
    budget: usize,
    step: &'static str,
    /// Of all candidates so far.
    seen: BTreeSet<u64>,
    fails: F,
    progress: P,
}

impl<F: FnMut(&Plan) -> bool, P: FnMut(&Progress)> Shrinker<F, P> {
    fn round(&mut self) {
        self.faults();
        self.time();
        self.step = "calls";
        self.list(|plan| plan.calls.len(), without_calls);
        self.step = "tasks";
        self.list(|plan| plan.tasks.len(), without_tasks);
        self.times_of_faults();
        self.kinds_of_faults();
        self.handlers();
        self.documents();
        self.details_of_calls();
        self.shape();
        self.knobs();
        self.time();
    }

    /// Runs a candidate, and keeps it if it fails.
    fn attempt(&mut self, mut candidate: Plan) -> bool {
        if self.tried >= self.budget {
            return false;
        }
        if self.settles {
            candidate.horizon_ms = candidate.horizon_ms.max(candidate.heal_at_ms.saturating_add(settling_ms(&candidate)));
        }
        if candidate == self.smallest || !self.seen.insert(hash(&candidate)) {
            return false;
        }
        self.tried += 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.smallest = candidate;
        }
        (self.progress)(&Progress { tried: self.tried, budget: self.budget, step: self.step, smallest: &self.smallest });
        fails
    }

    /// Runs the smallest plan with a change.
    fn change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut candidate = self.smallest.clone();
        change(&mut candidate);
        self.attempt(candidate)
    }

    /// Takes elements out of a list: all, halves, quarters, single ones.
    fn list(&mut self, length: impl Fn(&Plan) -> usize, without: impl Fn(&Plan, Range<usize>) -> Plan) {
        let mut chunk = length(&self.smallest);
        while chunk > 0 {
            let mut start = 0;
            while start < length(&self.smallest) {
                let end = (start + chunk).min(length(&self.smallest));
                if !self.attempt(without(&self.smallest, start..end)) {
                    start = end;
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
    }

    /// Makes a number as small and as round as can be, down to `floor`.
    fn number(&mut self, floor: u64, get: impl Fn(&Plan) -> u64, set: impl Fn(&mut Plan, u64)) {
        loop {
            let candidates = lower_values(get(&self.smallest), floor);
            if !candidates.into_iter().any(|value| self.change(|plan| set(plan, value))) {
                return;
            }
        }
    }

    fn faults(&mut self) {
        self.step = "families";
        self.change(|plan| plan.faults.clear());
        for family in Family::ALL {
            self.change(|plan| {
                let semi_synchronous = plan.knobs.semi_synchronous;
                plan.faults.retain(|fault| fault.kind.family(semi_synchronous) != family);
            });
        }
        self.step = "faults";
        self.list(|plan| plan.faults.len(), without_faults);
    }

    fn time(&mut self) {
        self.step = "time";
        self.change(|plan| heal_at(plan, plan.heal_at_ms));
        self.number(0, |plan| plan.heal_at_ms, heal_at);
    }

    fn times_of_faults(&mut self) {
        self.step = "times of faults";
        // All of them together first: what must overlap can't move alone.
        self.number(0, first_ms, |plan, ms| {
            let by_ms = first_ms(plan) - ms;
            plan.faults.iter_mut().for_each(|fault| fault.at_ms -= by_ms);
            plan.calls.iter_mut().for_each(|call| call.at_ms -= by_ms);
        });
        for index in 0..self.smallest.faults.len() {
            self.number(0, |plan| plan.faults[index].lasts_ms, |plan, ms| plan.faults[index].lasts_ms = ms);
            self.number(0, |plan| plan.faults[index].at_ms, |plan, ms| plan.faults[index].at_ms = ms);
        }
        self.change(|plan| plan.faults.sort_by_key(|fault| fault.at_ms));
    }

    fn kinds_of_faults(&mut self) {
        self.step = "kinds of faults";
        for index in 0..self.smallest.faults.len() {
            while simpler_selectors(self.smallest.faults[index].on).into_iter().any(|on| self.change(|plan| plan.faults[index].on = on)) {}
            if let Some((_, floor)) = number_of(self.smallest.faults[index].kind) {
                let get = |plan: &Plan| number_of(plan.faults[index].kind).map_or(floor, |(number, _)| number);
                self.number(floor, get, |plan, number| plan.faults[index].kind = with_number(plan.faults[index].kind, number));
            }
        }
    }

    fn handlers(&mut self) {
        self.step = "handlers";
        for index in 0..self.smallest.tasks.len() {
            let mut handler = |change: &dyn Fn(&mut HandlerPlan)| self.change(|plan| change(&mut plan.tasks[index].handler));
            handler(&|handler| handler.fails_per_mille = 0);
            handler(&|handler| handler.fails_for_good = false);
            handler(&|handler| handler.obeys_after_ms = Some(0));
            handler(&|handler| handler.takes_ms.1 = handler.takes_ms.0);
            handler(&|handler| handler.takes_ms.0 = handler.takes_ms.1);
            self.change(|plan| keep_services(plan, |plan| plan.tasks[index].handler.downstream = None));
            let longest = |plan: &Plan| plan.tasks[index].handler.takes_ms.1;
            self.number(0, longest, |plan, ms| {
                let (low, high) = plan.tasks[index].handler.takes_ms;
                // One length stays one length.
                plan.tasks[index].handler.takes_ms = (if low == high { ms } else { low.min(ms) }, ms);
            });
            self.number(
                0,
                |plan| u64::from(plan.tasks[index].handler.fails_per_mille),
                |plan, per_mille| {
                    plan.tasks[index].handler.fails_per_mille = per_mille as u32;
                },
            );
        }
    }

    fn documents(&mut self) {
        self.step = "documents";
        for index in 0..self.smallest.tasks.len() {
            while documents::simpler(&self.smallest.tasks[index].document)
                .into_iter()
                .any(|document| self.change(|plan| plan.tasks[index].document = document))
            {}
        }
        for index in 0..self.smallest.calls.len() {
            while let CallKind::Edit { task, document } = self.smallest.calls[index].what.clone()
                && documents::simpler(&document)
                    .into_iter()
                    .any(|document| self.change(|plan| plan.calls[index].what = CallKind::Edit { task, document }))
            {}
        }
    }

    fn details_of_calls(&mut self) {
        self.step = "details of calls";
        for index in 0..self.smallest.calls.len() {
            self.number(0, |plan| plan.calls[index].at_ms, |plan, ms| plan.calls[index].at_ms = ms);
            match self.smallest.calls[index].what.clone() {
                CallKind::Trigger { task, delay_ms, key } => {
                    let to = |delay_ms, key| move |plan: &mut Plan| plan.calls[index].what = CallKind::Trigger { task, delay_ms, key };
                    let is_at_once = self.change(to(None, key.clone()));
                    self.change(to(if is_at_once { None } else { delay_ms }, None));
                }
                CallKind::Cancel { .. } => {
                    let get = |plan: &Plan| if let CallKind::Cancel { nth } = plan.calls[index].what { nth as u64 } else { 0 };
                    self.number(0, get, |plan, nth| plan.calls[index].what = CallKind::Cancel { nth: nth as usize });
                }
                CallKind::Pause { .. } => {
                    let get = |plan: &Plan| if let CallKind::Pause { lasts_ms, .. } = plan.calls[index].what { lasts_ms } else { 0 };
                    let set = |plan: &mut Plan, ms: u64| {
                        if let CallKind::Pause { lasts_ms, .. } = &mut plan.calls[index].what {
                            *lasts_ms = ms;
                        }
                    };
                    self.number(0, get, set);
                }
                CallKind::Operate { .. } => {
                    let get = |plan: &Plan| if let CallKind::Operate { nth, .. } = plan.calls[index].what { nth as u64 } else { 0 };
                    let set = |plan: &mut Plan, to: u64| {
                        if let CallKind::Operate { nth, .. } = &mut plan.calls[index].what {
                            *nth = to as usize;
                        }
                    };
                    self.number(0, get, set);
                }
                CallKind::Edit { .. } | CallKind::Remove { .. } => {}
            }
        }
        self.change(|plan| plan.calls.sort_by_key(|call| call.at_ms));
    }

    fn shape(&mut self) {
        self.step = "shape";
        self.number(1, |plan| plan.shape.schedulers as u64, |plan, count| plan.shape.schedulers = count as usize);
        self.number(1, |plan| plan.shape.workers as u64, |plan, count| plan.shape.workers = count as usize);
        self.number(1, |plan| u64::from(plan.shape.slots), |plan, count| plan.shape.slots = count as u32);
        self.number(1, |plan| u64::from(plan.shape.partitions), |plan, count| plan.shape.partitions = count as u16);
    }

    fn knobs(&mut self) {
        self.step = "knobs";
        let quiet = Knobs::default();
        self.change(|plan| plan.knobs = quiet);
        self.change(|plan| plan.knobs.network_ms = quiet.network_ms);
        self.change(|plan| plan.knobs.database_ms = quiet.database_ms);
        self.change(|plan| plan.knobs.replica_lag_ms = quiet.replica_lag_ms);
        self.change(|plan| plan.knobs.semi_synchronous = quiet.semi_synchronous);
        self.change(|plan| plan.knobs.wake_ups = quiet.wake_ups);
        self.change(|plan| plan.knobs.commits_at_once = quiet.commits_at_once);
    }
}

fn hash(plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&serde_json::to_vec(plan).expect("a plan has neither maps with other keys than texts nor numbers that JSON lacks"));
    hasher.finish()
}

/// When the first fault begins or the first call is made; 0 where there is none.
fn first_ms(plan: &Plan) -> u64 {
    let faults = plan.faults.iter().map(|fault| fault.at_ms);
    faults.chain(plan.calls.iter().map(|call| call.at_ms)).min().unwrap_or(0)
}

fn without_faults(plan: &Plan, range: Range<usize>) -> Plan {
    let mut plan = plan.clone();
    plan.faults.drain(range);
    plan
}

fn without_calls(plan: &Plan, range: Range<usize>) -> Plan {
    let mut plan = plan.clone();
    plan.calls.drain(range);
    plan
}

/// Takes tasks out, and what is said of them; what is said of others follows them to their new places.
fn without_tasks(plan: &Plan, range: Range<usize>) -> Plan {
    let place = |task: usize| match task {
        _ if range.contains(&task) => None,
        _ if task >= range.end => Some(task - range.len()),
        _ => Some(task),
    };
    let mut plan = plan.clone();
    plan.calls.retain_mut(|call| match &mut call.what {
        CallKind::Trigger { task, .. } | CallKind::Edit { task, .. } | CallKind::Remove { task } => {
            place(*task).map(|place| *task = place).is_some()
        }
        CallKind::Pause { on: PauseOn::Task(task), .. } | CallKind::Operate { operation: Operation::Backfill { task, .. }, .. } => {
            place(*task).map(|place| *task = place).is_some()
        }
        CallKind::Cancel { .. } | CallKind::Pause { .. } | CallKind::Operate { .. } => true,
    });
    plan.faults.retain_mut(|fault| match &mut fault.kind {
        FaultKind::Flood { task, .. } => place(*task).map(|place| *task = place).is_some(),
        _ => true,
    });
    keep_services(&mut plan, |plan| drop(plan.tasks.drain(range.clone())));
    plan
}

/// Carries out a change after which other services may be called: each retry storm stays with its own, and goes where nobody calls it.
fn keep_services(plan: &mut Plan, change: impl FnOnce(&mut Plan)) {
    let before: Vec<String> = plan.downstreams().into_iter().map(str::to_owned).collect();
    change(plan);
    let after: Vec<String> = plan.downstreams().into_iter().map(str::to_owned).collect();
    plan.faults.retain_mut(|fault| match &mut fault.kind {
        FaultKind::RetryStorm { downstream } => {
            let place = before.get(*downstream).and_then(|name| after.iter().position(|other| other == name));
            place.map(|place| *downstream = place).is_some()
        }
        _ => true,
    });
}

/// Heals the world at this time, and ends the plan as soon as it can. What would come after it goes.
fn heal_at(plan: &mut Plan, heal_at_ms: u64) {
    let left_ms = plan.horizon_ms.saturating_sub(plan.heal_at_ms);
    plan.heal_at_ms = heal_at_ms;
    plan.faults.retain(|fault| fault.at_ms < heal_at_ms);
    for fault in &mut plan.faults {
        fault.lasts_ms = fault.lasts_ms.min(heal_at_ms - fault.at_ms);
    }
    plan.calls.retain(|call| call.at_ms < heal_at_ms);
    for call in &mut plan.calls {
        match &mut call.what {
            CallKind::Trigger { delay_ms: Some(ms), .. } | CallKind::Pause { lasts_ms: ms, .. } => *ms = (*ms).min(heal_at_ms - call.at_ms),
            _ => {}
        }
    }
    plan.horizon_ms = heal_at_ms.saturating_add(left_ms.min(settling_ms(plan)));
}
