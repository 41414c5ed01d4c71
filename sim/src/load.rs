//! How much work a plan's tasks are, and how long a world that has healed needs to settle.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::cron::Series;
use punctual_core::definition::{Blocking, Policies, Sharding, TaskDefinition, TimeoutAction, Trigger};
use punctual_core::limits;
use punctual_core::routing::Strategy;
use punctual_core::time::Timestamp;
use punctual_spec::decode;
use serde_json::Value;

use crate::behaviour::ITEMS_MAX;
use crate::plan::{Call, CallKind, FaultKind, HandlerPlan, Knobs, Plan, Shape, TaskPlan};
use crate::workload::zones;

/// Least time in which the rate after the healing is judged.
const JUDGED_MS_MIN: u64 = 60_000;
/// Longest interval or delay that the judged time follows.
const JUDGED_MS_MAX: u64 = 120_000;
/// Of a thousand slots so many may be taken by what fires: what was missed has to be made up for with the rest.
const TAKEN_PER_MILLE_MAX: u64 = 600;
/// A breaker is kept open by attempts of which so many of a thousand fail.
const FAILS_MOSTLY_PER_MILLE: u64 = 500;
/// Most slots of a worker, and most workers, that a drawn shape grows to.
const SLOTS_MAX: u32 = 6;
const WORKERS_MAX: usize = 4;

/// The work that a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Load {
    name: Arc<str>,
    /// The tasks that its nodes call, and how many nodes do.
    calls: Vec<(Arc<str>, u32)>,
    /// Into how many instances a firing is divided; all counts below are of those.
    shards: u64,
    /// How many of those have to wait for each other.
    in_turn: u64,
    /// Its group, where that has a limit, and how many of its instances may be in progress, all tasks together.
    in_group: Option<(Arc<str>, u64)>,
    /// What it shares a breaker over, and for how long that is open, where its attempts fail so often that it hardly ever closes.
    behind_breaker: Option<(Arc<str>, u64)>,
    /// Whether it has an instance for each worker, which waits for that one's slots.
    is_for_workers: bool,
    /// From fire to fire; `None`: it does not fire by itself again.
    interval_ms: Option<u64>,
    /// From a call to the fire that it makes.
    delay_ms: u64,
    /// Longest and usual attempt.
    longest_ms: u64,
    usual_ms: u64,
    /// Attempts that a thousand firings make.
    attempts_per_mille: u64,
    /// Instances in progress at once.
    max_running: u64,
    /// Instances that wait behind the limit.
    max_queue: u64,
    /// Longest wait before an attempt.
    backoff_ms: u64,
}

impl Load {
    /// `workers`: so many there are.
    fn of(document: &Value, handler: &HandlerPlan, workers: u64) -> Option<Load> {
        let definition = decode(&document.to_string(), zones()).ok()?;
        Some(Load::of_definition(&definition, handler, workers))
    }

    fn of_definition(definition: &TaskDefinition, handler: &HandlerPlan, workers: u64) -> Load {
        let policies = &definition.policies;
        let bounded =
            |takes_ms: u64| kill_ms(policies).map_or(takes_ms, |after_ms| takes_ms.min(after_ms.saturating_add(policies.timeout.grace.0)));
        let (retry, shards) = (&policies.retry, shards(definition, workers));
        let failures = retry.max_attempts.unwrap_or(1).max(retry.max_losses);
        let without_jitter = punctual_core::backoff::BackoffPolicy { jitter: punctual_core::backoff::Jitter::None, ..retry.backoff };
        let in_turn = in_turn(definition);
        let may_fail = u64::from(handler.fails_per_mille).saturating_add(too_long_per_mille(policies, handler)) >= FAILS_MOSTLY_PER_MILLE;
        Load {
            name: Arc::clone(&definition.name),
            calls: definition.called_tasks(),
            shards,
            in_turn,
            in_group: definition.group.clone().zip(policies.group.and_then(|group| group.max_running).map(u64::from)),
            behind_breaker: definition.downstream.clone().filter(|_| may_fail).map(|label| (label, policies.breaker.open.0)),
            is_for_workers: definition.routing.as_ref().is_some_and(|routing| routing.strategy == Strategy::Broadcast),
            interval_ms: interval_ms(definition, handler.takes_ms.0.midpoint(handler.takes_ms.1).saturating_mul(in_turn)),
            delay_ms: if let Trigger::Delay { delay } = definition.trigger { delay.0 } else { 0 },
            longest_ms: bounded(handler.takes_ms.1).saturating_mul(in_turn),
            usual_ms: bounded(handler.takes_ms.0.midpoint(handler.takes_ms.1)),
            attempts_per_mille: attempts_per_mille(policies, handler).saturating_mul(shards),
            max_running: u64::from(policies.concurrency.max_running).saturating_mul(shards),
            max_queue: match policies.concurrency.blocking {
                Blocking::Queue { max_queue } => u64::from(max_queue).saturating_mul(shards),
                Blocking::Discard | Blocking::Replace => 0,
            },
            backoff_ms: without_jitter.delay(failures, 0).0.saturating_mul(in_turn),
        }
    }

    /// Slots that it takes, in thousandths, where an attempt costs this much besides its handler.
    fn slots_per_mille(&self, spoken_ms: u64) -> u64 {
        let Some(interval_ms) = self.interval_ms else { return 0 };
        let instance = self.usual_ms.saturating_add(spoken_ms).saturating_mul(self.attempts_per_mille);
        (instance / interval_ms.max(1)).min(self.max_running.saturating_mul(1_000))
    }

    /// How long one instance of its group is in progress, where shards that are for one worker wait so long for that one.
    fn in_group_ms(&self, for_worker_ms: u64, spoken_ms: u64) -> u64 {
        // Two owners write what they say to each other, and read it from their inboxes.
        let retries_per_mille = (self.attempts_per_mille / self.shards.max(1)).saturating_sub(1_000);
        let waits_ms = self.backoff_ms.saturating_mul(retries_per_mille) / 1_000;
        let for_worker_ms = if self.is_for_workers { for_worker_ms } else { 0 };
        self.longest_ms.saturating_add(waits_ms).saturating_add(for_worker_ms).saturating_add(spoken_ms.saturating_mul(self.in_turn + 2))
    }

    /// Of a thousand places of its own limit, so many are taken by what fires by itself and by these calls. Callers wait as long as its queue.
    fn own_places_per_mille(&self, all: &[(usize, Load)], spoken_ms: u64) -> u64 {
        let busy_ms = self.longest_ms.saturating_add(spoken_ms.saturating_mul(self.in_turn + 2)).saturating_mul(1_000);
        let every = |interval_ms: Option<u64>| interval_ms.map_or(0, |interval_ms| busy_ms / interval_ms.max(1));
        let calls = all.iter().flat_map(|(_, caller)| caller.calls.iter().map(move |(name, times)| (caller, name, times)));
        let calls = calls.filter(|(_, name, _)| **name == self.name);
        let called = calls.map(|(caller, _, times)| every(caller.interval_ms).saturating_mul(u64::from(*times)));
        called.fold(every(self.interval_ms), u64::saturating_add) * self.shards.max(1) / self.max_running.max(1)
    }

    /// How long one firing keeps its downstream, where that is tried by one attempt at a time.
    fn behind_breaker_ms(&self, open_ms: u64, spoken_ms: u64) -> u64 {
        let attempt_ms = (self.longest_ms / self.in_turn.max(1)).saturating_add(open_ms).saturating_add(spoken_ms);
        attempt_ms.saturating_mul(self.attempts_per_mille) / 1_000
    }

    /// Instances that there may be when the world heals, where so many were submitted by hand and this much time has passed.
    fn backlog(&self, submissions: u64, ms: u64) -> u64 {
        let fired = self.interval_ms.map_or(1, |interval_ms| ms / interval_ms.max(1) + 1);
        self.max_queue.saturating_add(self.max_running).min(fired.saturating_add(submissions).saturating_mul(self.shards))
    }
}

/// Into how many instances a firing is divided at most, or goes through.
fn shards(definition: &TaskDefinition, workers: u64) -> u64 {
    if let Some(workflow) = &definition.workflow {
        return workflow.graph().nodes().map(|node| shards(workflow.node(node), workers)).fold(0, u64::saturating_add);
    }
    if let Some(map) = &definition.map {
        return 1 + u64::from(ITEMS_MAX) + u64::from(map.reduce.is_some());
    }
    if definition.routing.as_ref().is_some_and(|routing| routing.strategy == Strategy::Broadcast) {
        return workers;
    }
    match &definition.policies.sharding {
        Sharding::None => 1,
        Sharding::Count(count) => u64::from(*count),
        Sharding::Keys(keys) => keys.len() as u64,
    }
}

/// How many of those have to wait for each other at worst.
fn in_turn(definition: &TaskDefinition) -> u64 {
    if let Some(workflow) = &definition.workflow {
        return workflow.graph().nodes().map(|node| in_turn(workflow.node(node))).sum();
    }
    definition.map.as_ref().map_or(1, |map| 1 + u64::from(ITEMS_MAX.div_ceil(map.parallel)) + u64::from(map.reduce.is_some()))
}

/// Attempts that a thousand instances make under these policies, where each fails as often as the handler does or runs longer than it may.
pub(crate) fn attempts_per_mille(policies: &Policies, handler: &HandlerPlan) -> u64 {
    let fails = u64::from(handler.fails_per_mille).min(1_000);
    let fails_again = if handler.fails_for_good { 0 } else { fails };
    let repeated = fails_again + (1_000 - fails) * too_long_per_mille(policies, handler) / 1_000;
    let mut reached = 1_000;
    let attempts = (0..policies.retry.max_attempts.unwrap_or(1)).map_while(|_| {
        let now = reached;
        reached = reached * repeated / 1_000;
        (now > 0).then_some(now)
    });
    attempts.sum()
}

/// Of a thousand runs of the handler, so many are ended for the time that they take.
fn too_long_per_mille(policies: &Policies, handler: &HandlerPlan) -> u64 {
    let Some(after_ms) = kill_ms(policies) else { return 0 };
    let (shortest_ms, longest_ms) = handler.takes_ms;
    let too_long = longest_ms.saturating_sub(after_ms.max(shortest_ms));
    if shortest_ms > after_ms { 1_000 } else { too_long.saturating_mul(1_000) / longest_ms.saturating_sub(shortest_ms).max(1) }
}

/// How long an attempt may run before it is asked to end.
fn kill_ms(policies: &Policies) -> Option<u64> {
    let timeout = &policies.timeout;
    timeout.after.filter(|_| timeout.action == TimeoutAction::Kill).map(|after| after.0)
}

/// From fire to fire, by the calendar of 2026 for cron schedules.
fn interval_ms(definition: &TaskDefinition, usual_ms: u64) -> Option<u64> {
    if !definition.enabled {
        return None;
    }
    match &definition.trigger {
        Trigger::Cron(schedule) => {
            let first = schedule.next_after(Timestamp(1_767_225_600_000))?;
            Some(schedule.next_after(first)?.since(first).0)
        }
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::FixedDelay(interval) => Some(interval.0.saturating_add(usual_ms)),
            Series::FixedRate(interval) => Some(interval.0),
            // What is left out only makes it less.
            Series::Cron(_) => {
                let start = timetable.window().starts_at.unwrap_or(Timestamp(1_767_225_600_000));
                let first = timetable.next_after(start)?;
                Some(timetable.next_after(first)?.since(first).0)
            }
        },
        Trigger::FixedRate { interval } => Some(interval.0),
        Trigger::FixedDelay { interval } => Some(interval.0.saturating_add(usual_ms)),
        Trigger::Delay { .. } | Trigger::Manual => None,
    }
}

/// Grows the shape, unless it is fixed, and then shortens the heaviest handlers, or how far the replica is behind where commits wait for it,
/// until the workers can bear what fires: in a world that is always too small nothing ever settles. Of a task that is edited the heaviest
/// version counts.
pub fn balance(tasks: &mut [TaskPlan], calls: &[Call], knobs: &mut Knobs, shape: &mut Shape, is_fixed: bool) {
    let slots_of = |tasks: &[TaskPlan], place: usize, knobs: &Knobs, workers: usize| {
        let edits = calls.iter().filter_map(|call| match &call.what {
            CallKind::Edit { task, document } if *task == place => Some(document),
            _ => None,
        });
        let of_version = |document: &Value| {
            Load::of(document, &tasks[place].handler, workers as u64).map_or(0, |load| load.slots_per_mille(spoken_ms(knobs)))
        };
        edits.chain([&tasks[place].document]).map(of_version).max().unwrap_or(0)
    };
    let of_all = |tasks: &[TaskPlan], knobs: &Knobs, workers: usize| -> Vec<u64> {
        (0..tasks.len()).map(|place| slots_of(tasks, place, knobs, workers)).collect()
    };
    let mut taken = of_all(tasks, knobs, shape.workers);
    loop {
        let slots = shape.workers as u64 * u64::from(shape.slots);
        if taken.iter().sum::<u64>() <= slots * TAKEN_PER_MILLE_MAX {
            break;
        }
        if !is_fixed && shape.slots < SLOTS_MAX {
            shape.slots += 1;
            continue;
        }
        if !is_fixed && shape.workers < WORKERS_MAX {
            shape.workers += 1;
            taken = of_all(tasks, knobs, shape.workers);
            continue;
        }
        let Some(heaviest) = (0..tasks.len()).rev().max_by_key(|&task| taken[task]).filter(|&task| taken[task] > 0) else { break };
        let (low, high) = tasks[heaviest].handler.takes_ms;
        if high < lag_ms(knobs) {
            knobs.replica_lag_ms /= 2;
            taken = of_all(tasks, knobs, shape.workers);
        } else if high > 0 {
            tasks[heaviest].handler.takes_ms = (low / 2, high / 2);
            taken[heaviest] = slots_of(tasks, heaviest, knobs, shape.workers);
        } else {
            break;
        }
    }
    let_through(tasks, calls, knobs, shape);
}

/// Each task, and each that it is edited to.
fn definitions(tasks: &[TaskPlan], calls: &[Call]) -> Vec<(usize, TaskDefinition)> {
    let edited = calls.iter().filter_map(|call| match &call.what {
        CallKind::Edit { task, document } if *task < tasks.len() => Some((*task, document)),
        _ => None,
    });
    let written = tasks.iter().enumerate().map(|(task, plan)| (task, &plan.document));
    written.chain(edited).filter_map(|(task, document)| Some((task, decode(&document.to_string(), zones()).ok()?))).collect()
}

/// The work of each.
fn loads(definitions: &[(usize, TaskDefinition)], tasks: &[TaskPlan], workers: u64) -> Vec<(usize, Load)> {
    definitions.iter().map(|(task, definition)| (*task, Load::of_definition(definition, &tasks[*task].handler, workers))).collect()
}

/// Shortens handlers, or how far the replica is behind where commits wait for it, until what groups, breakers, and the limits of called tasks
/// let through one after the other keeps up with what fires, however many slots there are.
fn let_through(tasks: &mut [TaskPlan], calls: &[Call], knobs: &mut Knobs, shape: &Shape) {
    let definitions = definitions(tasks, calls);
    while let Some(place) = held_up_by(&loads(&definitions, tasks, shape.workers as u64), knobs, shape) {
        let (low, high) = tasks[place].handler.takes_ms;
        if high < lag_ms(knobs) {
            knobs.replica_lag_ms /= 2;
        } else if high > 0 {
            tasks[place].handler.takes_ms = (low / 2, high / 2);
        } else {
            return;
        }
    }
}

/// The task for whose handler a group, a downstream, or who calls it waits longest that does not keep up with what fires.
fn held_up_by(loads: &[(usize, Load)], knobs: &Knobs, shape: &Shape) -> Option<usize> {
    let (spoken_ms, for_worker_ms) = (spoken_ms(knobs), for_worker_ms(loads, shape));
    let longest = |of: &dyn Fn(&Load) -> bool| {
        let among = loads.iter().filter(|(_, load)| of(load));
        among.max_by_key(|(place, load)| (load.longest_ms / load.in_turn.max(1), std::cmp::Reverse(*place))).map(|(place, _)| *place)
    };
    // Of a task that is edited the heaviest version counts.
    let taken_per_mille = |busy_ms: &dyn Fn(&Load) -> Option<u64>| {
        let mut of_tasks = BTreeMap::<usize, u64>::new();
        for (place, load) in loads {
            let (Some(busy_ms), Some(interval_ms)) = (busy_ms(load), load.interval_ms) else { continue };
            let taken = of_tasks.entry(*place).or_default();
            *taken = busy_ms.saturating_mul(1_000).checked_div(interval_ms).unwrap_or(u64::MAX).max(*taken);
        }
        of_tasks.into_values().fold(0, u64::saturating_add)
    };
    for (group, most) in loads.iter().filter_map(|(_, load)| load.in_group.as_ref()) {
        let is_in = |load: &Load| load.in_group.as_ref().is_some_and(|(other, _)| other == group);
        if taken_per_mille(&|load| is_in(load).then(|| load.in_group_ms(for_worker_ms, spoken_ms))) > most * TAKEN_PER_MILLE_MAX {
            let waits_for_all = loads.iter().any(|(_, load)| is_in(load) && load.is_for_workers);
            return longest(&|load| waits_for_all || is_in(load));
        }
    }
    for (label, _) in loads.iter().filter_map(|(_, load)| load.behind_breaker.as_ref()) {
        let open_ms = |load: &Load| load.behind_breaker.as_ref().filter(|(other, _)| other == label).map(|(_, open_ms)| *open_ms);
        if taken_per_mille(&|load| open_ms(load).map(|open_ms| load.behind_breaker_ms(open_ms, spoken_ms))) > TAKEN_PER_MILLE_MAX {
            return longest(&|load| open_ms(load).is_some());
        }
    }
    let is_called = |load: &Load| loads.iter().any(|(_, caller)| caller.calls.iter().any(|(name, _)| *name == load.name));
    let mut called = loads.iter().filter(|(_, load)| is_called(load));
    called.find(|(_, load)| load.own_places_per_mille(loads, spoken_ms) > TAKEN_PER_MILLE_MAX).map(|(place, _)| *place)
}

/// How long after its healing the plan's world needs until everything is as if nothing had been, and its rate has been seen: what runs
/// ends, leases of the dead run out, retries come due, what queued up is worked off, then the time in which the rate is judged.
pub fn settling_ms(plan: &Plan) -> u64 {
    let definitions = definitions(&plan.tasks, &plan.calls);
    let loads = loads(&definitions, &plan.tasks, plan.shape.workers as u64);
    let slowest = plan.faults.iter().map(|fault| if let FaultKind::HandlersSlow { times } = fault.kind { times } else { 1 }).max();
    let running_ms = loads.iter().map(|(_, load)| load.longest_ms).max().unwrap_or(0).saturating_mul(slowest.unwrap_or(1));
    let backoff_ms = loads.iter().map(|(_, load)| load.backoff_ms).max().unwrap_or(0);
    let interval_ms = loads.iter().filter_map(|(_, load)| load.interval_ms).max().unwrap_or(0);
    // What the database's clock was ahead when it is set back, nothing fires for.
    let stepped_ms = plan.faults.iter().map(|fault| match fault.kind {
        FaultKind::DatabaseClockStep { by } => by.unsigned_abs(),
        _ => 0,
    });
    // What was asked for just before, and fires later.
    let delayed_ms = loads.iter().map(|(_, load)| load.delay_ms.min(JUDGED_MS_MAX)).max().unwrap_or(0);
    running_ms
        .saturating_add(limits::WORKER_LEASE.0 + limits::PARTITION_LEASE.0)
        .saturating_add(backoff_ms)
        .saturating_add(backlog_ms(plan, &loads))
        .saturating_add(called_ms(&definitions))
        .saturating_add(stepped_ms.max().unwrap_or(0))
        .saturating_add(interval_ms.max(delayed_ms).clamp(JUDGED_MS_MIN, JUDGED_MS_MAX))
        .checked_next_multiple_of(1_000)
        .unwrap_or(u64::MAX)
}

/// How long firings of one task, those that queued up one after the other, wait for the delays of what their nodes call.
fn called_ms(definitions: &[(usize, TaskDefinition)]) -> u64 {
    let delay_ms = |name: &str| {
        let delays = definitions.iter().filter(|(_, definition)| &*definition.name == name);
        delays.map(|(_, definition)| if let Trigger::Delay { delay } = definition.trigger { delay.0 } else { 0 }).max().unwrap_or(0)
    };
    let waits = definitions.iter().map(|(_, definition)| {
        let called = definition.called_tasks().into_iter();
        let firing_ms = called.fold(0_u64, |sum_ms, (name, times)| sum_ms.saturating_add(delay_ms(&name).saturating_mul(u64::from(times))));
        let concurrency = &definition.policies.concurrency;
        let waiting = if let Blocking::Queue { max_queue } = concurrency.blocking { max_queue / concurrency.max_running.max(1) } else { 0 };
        firing_ms.saturating_mul(u64::from(waiting) + 2)
    });
    waits.max().unwrap_or(0)
}

/// How long what queued up takes: the longest queue one after the other, or all of them on the slots that are left. A task that is edited
/// counts as what is the most work.
fn backlog_ms(plan: &Plan, loads: &[(usize, Load)]) -> u64 {
    let spoken_ms = spoken_ms(&plan.knobs);
    let slots = (plan.shape.workers as u64).saturating_mul(u64::from(plan.shape.slots)).max(1);
    let (mut longest_ms, mut work_ms, mut taken_per_mille) = (0, 0_u64, 0_u64);
    let (mut in_groups_ms, mut in_group, mut behind_breaker_ms) = (0_u64, u64::MAX, 0_u64);
    let for_worker_ms = for_worker_ms(loads, &plan.shape);
    for task in 0..plan.tasks.len() {
        let submissions = submissions(plan, task);
        let (mut most_ms, mut most_per_mille) = (0, 0);
        for (_, load) in loads.iter().filter(|(other, _)| *other == task) {
            let backlog = load.backlog(submissions, plan.heal_at_ms);
            let attempt_ms = load.longest_ms.saturating_add(spoken_ms);
            longest_ms = attempt_ms.saturating_mul(backlog.div_ceil(load.max_running.min(slots))).max(longest_ms);
            most_ms = attempt_ms.saturating_mul(backlog).max(most_ms);
            most_per_mille = load.slots_per_mille(spoken_ms).max(most_per_mille);
            let firings = backlog.div_ceil(load.shards.max(1));
            if let Some((_, most)) = load.in_group {
                in_groups_ms = load.in_group_ms(for_worker_ms, spoken_ms).saturating_mul(firings).saturating_add(in_groups_ms);
                in_group = most.max(1).min(in_group);
            }
            if let Some((_, open_ms)) = load.behind_breaker {
                behind_breaker_ms = load.behind_breaker_ms(open_ms, spoken_ms).saturating_mul(firings).saturating_add(behind_breaker_ms);
            }
        }
        work_ms = work_ms.saturating_add(most_ms);
        taken_per_mille = most_per_mille.saturating_add(taken_per_mille);
    }
    let left_per_mille =
        (slots.saturating_mul(1_000)).saturating_sub(taken_per_mille).max(slots.saturating_mul(1_000 - TAKEN_PER_MILLE_MAX));
    longest_ms.max(work_ms.saturating_mul(1_000) / left_per_mille).max(in_groups_ms / in_group).max(behind_breaker_ms)
}

/// How long a shard that is for one worker waits for a slot there.
fn for_worker_ms(loads: &[(usize, Load)], shape: &Shape) -> u64 {
    loads.iter().map(|(_, load)| load.longest_ms / load.in_turn.max(1)).max().unwrap_or(0) / u64::from(shape.slots.max(1))
}

/// What an attempt costs besides its handler: there and back, and a commit for each.
fn spoken_ms(knobs: &Knobs) -> u64 {
    knobs.network_ms.1.saturating_add(knobs.database_ms.1).saturating_add(lag_ms(knobs)).saturating_mul(2)
}

/// How long a commit waits for the replica.
fn lag_ms(knobs: &Knobs) -> u64 {
    if knobs.semi_synchronous { knobs.replica_lag_ms } else { 0 }
}

/// How many times a task is fired by hand.
fn submissions(plan: &Plan, task: usize) -> u64 {
    let called = plan.calls.iter().filter(|call| matches!(call.what, CallKind::Trigger { task: other, .. } if other == task)).count();
    let flooded = plan.faults.iter().map(|fault| match fault.kind {
        FaultKind::Flood { task: other, count } if other == task => count,
        _ => 0,
    });
    (called + flooded.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use punctual_core::time::Millis;
    use serde_json::json;

    use super::*;

    #[test]
    fn attempts_that_run_out_of_time_count_like_those_that_fail() {
        let policies = |kill_ms: u64| {
            let mut policies = Policies::default();
            policies.retry.max_attempts = Some(3);
            policies.timeout.after = Some(Millis(kill_ms));
            policies
        };
        let handler = |fails_per_mille, fails_for_good| HandlerPlan {
            takes_ms: (30_000, 60_000),
            fails_per_mille,
            fails_for_good,
            obeys_after_ms: None,
            downstream: None,
        };
        assert_eq!(attempts_per_mille(&policies(60_000), &handler(0, false)), 1_000);
        assert_eq!(attempts_per_mille(&policies(45_000), &handler(0, false)), 1_750, "half of them are too long");
        assert_eq!(attempts_per_mille(&policies(45_000), &handler(200, false)), 1_960, "and of the others one in five fails");
        assert_eq!(attempts_per_mille(&policies(45_000), &handler(200, true)), 1_560, "which nothing follows");
        assert_eq!(attempts_per_mille(&policies(10_000), &handler(0, false)), 3_000, "all are too long");
    }

    fn handler(takes_ms: (u64, u64)) -> HandlerPlan {
        HandlerPlan { takes_ms, fails_per_mille: 0, fails_for_good: false, obeys_after_ms: None, downstream: None }
    }

    fn task(more: serde_json::Value) -> TaskPlan {
        let mut document = json!({"name": "a", "trigger": {"fixed_rate": "3s"}, "handler": {"name": "noop"}});
        document.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        TaskPlan { document, handler: handler((10, 10)) }
    }

    fn load(more: serde_json::Value, workers: u64) -> Load {
        Load::of(&task(more).document, &handler((10, 10)), workers).expect("a document that can be read")
    }

    #[test]
    fn broadcasts_maps_and_nodes_count_with_all_that_they_are() {
        assert_eq!(load(json!({"routing": {"strategy": "broadcast"}}), 3).shards, 3);
        let map = load(json!({"map": {"list": {"handler": {"name": "noop"}}, "reduce": {"handler": {"name": "noop"}}, "parallel": 2}}), 3);
        assert_eq!((map.shards, map.longest_ms), (8, 50), "a list, six items two at a time, and what reduces them");
        let nodes = json!([{"name": "n0"}, {"name": "n1"}]);
        assert_eq!(load(json!({"nodes": nodes, "routing": {"strategy": "broadcast"}}), 3).shards, 6);
    }

    #[test]
    fn commits_that_wait_for_a_replica_make_a_world_smaller() {
        let mut tasks = vec![task(json!({"nodes": (0..8).map(|node| json!({"name": format!("n{node}")})).collect::<Vec<_>>()}))];
        let mut knobs = Knobs { network_ms: (1, 1), database_ms: (1, 1), replica_lag_ms: 1_000, ..Knobs::default() };
        let mut shape = Shape { schedulers: 1, workers: 1, slots: 2, partitions: 1 };
        balance(&mut tasks, &[], &mut knobs.clone(), &mut shape, false);
        assert!(shape.slots > 2);
        let mut shape = Shape { slots: 2, workers: 1, ..shape };
        balance(&mut tasks, &[], &mut knobs, &mut shape, true);
        let taken = Load::of(&tasks[0].document, &tasks[0].handler, 1).expect("it can be read").slots_per_mille(spoken_ms(&knobs));
        assert!(knobs.replica_lag_ms < 1_000 && taken <= 2 * TAKEN_PER_MILLE_MAX, "{knobs:?}, {taken}");
    }

    #[test]
    fn a_group_of_one_lets_its_tasks_go_one_after_the_other() {
        let settles = |more: serde_json::Value| {
            let tasks = (0..6).map(|_| TaskPlan { handler: handler((5_000, 5_000)), ..task(more.clone()) }).collect();
            let shape = Shape { schedulers: 1, workers: 4, slots: 6, partitions: 1 };
            let (calls, faults) = (Vec::new(), Vec::new());
            let plan = Plan {
                seed: 0,
                shape,
                knobs: Knobs::default(),
                tasks,
                calls,
                faults,
                heal_at_ms: 60_000,
                horizon_ms: 60_000,
                starts_at: 0,
            };
            settling_ms(&plan)
        };
        let grouped = json!({"group": "g", "group_limits": {"max_running": 1}});
        assert!(settles(grouped) > settles(json!({})) + 5 * 5_000);
    }

    #[test]
    fn a_task_that_is_called_keeps_up_with_its_calls() {
        let balanced = |calls: bool| {
            let nodes = if calls { json!([{"name": "n0", "task": "b"}, {"name": "n1", "task": "b"}]) } else { json!([{"name": "n0"}]) };
            let called = TaskPlan { handler: handler((2_000, 2_000)), ..task(json!({"name": "b", "trigger": {"fixed_rate": "5s"}})) };
            let mut tasks = [task(json!({"trigger": {"fixed_rate": "20s"}, "nodes": nodes})), called];
            balance(&mut tasks, &[], &mut Knobs::default(), &mut Shape { schedulers: 1, workers: 4, slots: 6, partitions: 1 }, true);
            tasks[1].handler.takes_ms.1
        };
        assert_eq!((balanced(false), balanced(true)), (2_000, 1_000), "two fifths of its time are its own, and two calls take a fifth");
    }

    #[test]
    fn delays_of_what_is_called_take_time_to_settle() {
        let caller = |called: &str| {
            task(json!({"trigger": {"cron": "* * * * *"}, "concurrency": {"max_queue": 4}, "nodes": [{"name": "n0", "task": called}]}))
        };
        let delayed = |caller| [caller, task(json!({"name": "b", "trigger": {"delay": "50s"}}))];
        let waits = |tasks: &[TaskPlan]| called_ms(&definitions(tasks, &[]));
        assert_eq!((waits(&delayed(caller("c"))), waits(&delayed(caller("b")))), (0, 6 * 50_000));
    }

    /// A handler that is longer than its task's time, four times over for each minute, behind a breaker that lets one through at a time.
    #[test]
    fn what_a_breaker_or_a_group_lets_through_keeps_up_with_what_fires() {
        let shape = |slots| Shape { schedulers: 1, workers: 3, slots, partitions: 1 };
        let balanced = |more: serde_json::Value, long: serde_json::Value, slots| {
            let long = TaskPlan { handler: handler((30_000, 40_000)), ..task(long) };
            let mut tasks = [task(more), long];
            balance(&mut tasks, &[], &mut Knobs::default(), &mut shape(slots), true);
            tasks[1].handler.takes_ms.1
        };
        let tries_again = json!({"trigger": {"cron": "* * * * *"}, "timeout": {"after": "25s"}, "retry": {"max_attempts": 4}});
        let behind_breaker = |downstream: serde_json::Value| {
            let mut document = tries_again.clone();
            document["downstream"] = downstream;
            balanced(json!({}), document, 6)
        };
        assert_eq!(behind_breaker(json!(null)), 40_000, "there are slots enough");
        assert!(behind_breaker(json!("mail")) <= 25_000);
        let rare = json!({"trigger": {"cron": "0 0 * * *"}});
        let broadcast = |max_running: u32| json!({"routing": {"strategy": "broadcast"}, "trigger": {"fixed_rate": "30s"}, "group": "g", "group_limits": {"max_running": max_running}});
        assert_eq!(balanced(broadcast(9), rare.clone(), 6), 40_000);
        assert_eq!(balanced(broadcast(1), rare.clone(), 6), 40_000);
        assert!(balanced(broadcast(1), rare, 1) <= 20_000, "it waits for each worker's only slot");
    }
}
