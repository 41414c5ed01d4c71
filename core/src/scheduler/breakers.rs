//! What keeps failures from spreading: the circuit breakers of downstreams, and the budgets of retries.
//!
//! Both are this replica's own and in memory only: they see the attempts of its own partitions, and after a change of owner they begin
//! anew. Each replica learns for itself that a downstream has failed, and sends probes of its own.
//!
//! What a breaker holds stays `created` and is taken out of the ready queue, so that it stands in nobody's way. It is put back, in order,
//! when the breaker closes, and one of it when a probe may pass.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::breaker::{Admission, Breaker, BreakerState, Change};
use crate::budget::Budget;
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, PartitionId, TaskId};
use crate::instance::State;
use crate::retry::Failure;
use crate::scheduler::{Alert, Command, Scheduler};
use crate::time::{Millis, Monotonic};

/// So many that wait for nothing any more are never worth a sweep.
const STALE_MIN: usize = 64;

/// Breakers and budgets, where there is something to remember.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    by_label: BTreeMap<Arc<str>, Held>,
    budgets: FxHashMap<TaskId, Budget>,
}

/// A breaker and what it holds.
#[derive(Debug, Default)]
struct Held {
    breaker: Breaker,
    /// In the order in which they were ready. Some may have ended meanwhile.
    instances: VecDeque<InstanceId>,
    /// When they are so many, it is time to drop those that have ended.
    sweep_at: usize,
    /// The one whose result is waited for.
    probe: Option<InstanceId>,
    /// The one that was put back to be the probe.
    sought: Option<InstanceId>,
}

/// A circuit breaker as one replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// What it protects.
    pub downstream: Arc<str>,
    /// Where it stands.
    pub state: BreakerState,
    /// How long it still stays open; `None` where it isn't.
    pub opens_in: Option<Millis>,
    /// Failures in a row that are counted, those that opened it included.
    pub failures: usize,
    /// Instances that wait behind it.
    pub held: usize,
}

impl Breakers {
    /// Forgets what it holds of a partition.
    pub(super) fn forget(&mut self, id: PartitionId) {
        for held in self.by_label.values_mut() {
            held.instances.retain(|instance| instance.partition() != id);
        }
    }

    /// When a probe may pass for which somebody waits.
    pub(super) fn next_at(&self) -> Option<Monotonic> {
        let waiting = self.by_label.values().filter(|held| !held.instances.is_empty());
        let open_until = |held: &Held| match held.breaker.state() {
            BreakerState::Open { until } => Some(until),
            _ => None,
        };
        waiting.filter_map(open_until).min()
    }
}

impl Scheduler {
    /// The circuit breakers that have something to remember, by downstream.
    pub fn breakers(&self) -> Vec<BreakerView> {
        let view = |(downstream, held): (&Arc<str>, &Held)| {
            let state = held.breaker.state();
            let opens_in = match state {
                BreakerState::Open { until } => Some(until.since(self.now.monotonic)),
                _ => None,
            };
            let waiting = held.instances.iter().filter(|id| self.is_ready(**id)).count();
            BreakerView { downstream: downstream.clone(), state, opens_in, failures: held.breaker.failures(), held: waiting }
        };
        self.breakers.by_label.iter().map(view).collect()
    }

    /// Whether an instance that was taken from the ready queue has to wait behind a breaker. Then it is kept here.
    pub(super) fn is_held_by_breaker(&mut self, id: InstanceId) -> bool {
        let Some(live) = self.instances.get(&id) else { return false };
        let Some(label) = &live.definition.downstream else { return false };
        let Some(held) = self.breakers.by_label.get_mut(label) else { return false };
        if held.sought == Some(id) {
            held.sought = None;
        }
        let admission = held.breaker.admit(self.now.monotonic);
        if admission == Admission::Probe {
            held.probe = Some(id);
        }
        if guard!(Guard::BreakerHolds, admission != Admission::Wait) {
            return false;
        }
        held.instances.push_back(id);
        if held.instances.len() > held.sweep_at.max(STALE_MIN) {
            let instances = &self.instances;
            held.instances.retain(|id| instances.get(id).is_some_and(|live| live.row.state == State::Created));
            held.sweep_at = held.instances.len() * 2;
        }
        true
    }

    /// An attempt has failed or run out of time. One whose failure its task would not retry says more about the instance than about the
    /// downstream.
    pub(super) fn breaker_sees_failure(&mut self, id: InstanceId, failure: Failure) {
        let definition = self.instances[&id].definition.clone();
        let Some(label) = &definition.downstream else { return };
        if !failure.may_pass(&definition) {
            return self.breaker_sees_nothing(id);
        }
        let held = self.breakers.by_label.entry(label.clone()).or_default();
        let is_probe = held.probe.take_if(|probe| *probe == id).is_some();
        let policy = definition.policies.breaker;
        if held.breaker.failed(self.now.monotonic, policy, is_probe) == Change::Opened {
            let alert = Alert::BreakerOpened { downstream: label.clone(), failures: policy.failures, probe_in: policy.open };
            self.commands.push_back(Command::Alert(alert));
        }
    }

    /// An attempt has succeeded.
    pub(super) fn breaker_sees_success(&mut self, id: InstanceId) {
        let Some(label) = self.instances[&id].definition.downstream.clone() else { return };
        let Some(held) = self.breakers.by_label.get_mut(&label) else { return };
        let is_probe = held.probe.take_if(|probe| *probe == id).is_some();
        if held.breaker.succeeded(is_probe) == Change::Closed {
            let waiting = std::mem::take(&mut held.instances);
            held.sought = None;
            // First in their bands again, in their order.
            waiting.into_iter().rev().filter(|id| self.is_ready(*id)).collect::<Vec<_>>().into_iter().for_each(|id| self.make_ready(id));
            self.commands.push_back(Command::Alert(Alert::BreakerClosed { downstream: label }));
        }
    }

    /// An attempt is over and says nothing about its downstream.
    pub(super) fn breaker_sees_nothing(&mut self, id: InstanceId) {
        let Some(label) = &self.instances[&id].definition.downstream else { return };
        if let Some(held) = self.breakers.by_label.get_mut(label)
            && held.probe.take_if(|probe| *probe == id).is_some()
        {
            held.breaker.probe_gone();
        }
    }

    /// Looks for probes where one may pass.
    pub(super) fn breakers_due(&mut self) {
        if self.breakers.by_label.is_empty() || self.phase != super::Phase::Working {
            return;
        }
        let mut probes = Vec::new();
        for held in self.breakers.by_label.values_mut() {
            if held.instances.is_empty() || !held.breaker.half_open(self.now.monotonic) {
                continue;
            }
            let is_ready = |id: &InstanceId| self.instances.get(id).is_some_and(|live| live.row.state == State::Created);
            if held.sought.as_ref().is_some_and(is_ready) {
                continue;
            }
            while let Some(next) = held.instances.pop_front() {
                if is_ready(&next) {
                    held.sought = Some(next);
                    probes.push(next);
                    break;
                }
            }
        }
        probes.into_iter().for_each(|id| self.make_ready(id));
    }

    /// Finds probes that were lost, cancelled or given back, and forgets what nobody needs any more.
    pub(super) fn look_after_breakers(&mut self) {
        let now = self.now.monotonic;
        self.breakers.budgets.retain(|_, budget| !budget.is_unused(now));
        let instances = &self.instances;
        self.breakers.by_label.retain(|_, held| {
            if let Some(probe) = held.probe
                && !instances.get(&probe).is_some_and(|live| live.row.state.is_with_worker())
            {
                held.probe = None;
                held.breaker.probe_gone();
            }
            !held.breaker.is_idle(now) || !held.instances.is_empty()
        });
    }

    /// Whether an instance waits for a worker.
    fn is_ready(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|live| live.row.state == State::Created)
    }

    /// The first attempt of an instance has ended by its own account.
    pub(super) fn budget_sees_first_end(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        if live.definition.policies.retry.budget.is_some() {
            let now = self.now.monotonic;
            self.breakers.budgets.entry(live.row.task).or_insert_with(|| Budget::new(now)).first_ended(now);
        }
    }

    /// Takes one retry out of the budget of the instance's task. False: there is none left.
    pub(super) fn budget_allows_retry(&mut self, id: InstanceId) -> bool {
        let live = &self.instances[&id];
        let Some(policy) = live.definition.policies.retry.budget else { return true };
        let now = self.now.monotonic;
        self.breakers.budgets.entry(live.row.task).or_insert_with(|| Budget::new(now)).withdraw(now, policy)
    }
}
