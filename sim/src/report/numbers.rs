//! The figures of each task and each service.

use std::collections::BTreeMap;

use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::instance::Cause;
use punctual_core::protocol::End;
use punctual_spec::duration;
use punctual_spec::spec::{self, TaskSpec};

use crate::load::attempts_per_mille as attempts_per_thousand;

use super::observe::{Facts, Instance, TaskFacts};
use super::{DownstreamReport, Numbers, Spread, TaskReport, words};

const MINUTE: u64 = 60_000;

/// The spread of these values.
pub(super) fn spread(mut values: Vec<u64>) -> Spread {
    let p50_ms = words::percentile(&mut values, 500).unwrap_or(0);
    let p99_ms = words::percentile(&mut values, 990).unwrap_or(0);
    Spread { count: values.len() as u64, p50_ms, p99_ms, max_ms: values.last().copied().unwrap_or(0) }
}

/// Each task's figures, in the order of the file.
pub(super) fn tasks(facts: &Facts) -> Vec<TaskReport> {
    facts
        .tasks
        .iter()
        .enumerate()
        .map(|(index, task)| {
            let numbers = numbers(facts, task);
            TaskReport {
                name: task.name.clone(),
                trigger: trigger(&facts.plan.tasks[index].document, task.definition.as_ref()),
                downstream: task.handler.downstream.clone(),
                interval_ms: task.interval_ms(facts),
                trouble: trouble(&numbers),
                numbers,
            }
        })
        .collect()
}

/// What wants to be looked at first: what was lost weighs more than what was repeated, and that more than what was late.
fn trouble(numbers: &Numbers) -> u64 {
    let lost = numbers.gone_wrong() + numbers.dropped_total() + numbers.unfinished;
    let repeated = numbers.retries + numbers.lost_workers + numbers.timeouts;
    10 * lost + 3 * repeated + numbers.limit_reached + numbers.lateness.p99_ms / MINUTE
}

fn numbers(facts: &Facts, task: &TaskFacts) -> Numbers {
    let instances = &task.instances;
    let sum = |of: fn(&Instance) -> u64| instances.iter().map(of).sum::<u64>();
    let mut dropped = BTreeMap::new();
    for fates in &task.dropped {
        *dropped.entry(fates.outcome.name().to_owned()).or_insert(0) += fates.count;
    }
    let mut states = BTreeMap::new();
    for instance in instances.iter().filter(|instance| instance.state.is_terminal()) {
        *states.entry(instance.state.name().to_owned()).or_insert(0) += 1;
    }
    let by_hand = instances.iter().filter(|instance| !instance.origin.is_own()).count() as u64;
    let fired = instances.len() as u64;
    let attempts = || instances.iter().flat_map(|instance| &instance.attempts);
    let expected = task.expected(facts).map_or(fired + dropped.values().sum::<u64>(), |expected| expected + by_hand);
    Numbers {
        expected,
        fired,
        dropped,
        states,
        unfinished: instances.iter().filter(|instance| !instance.state.is_terminal()).count() as u64,
        lateness: spread(instances.iter().filter_map(Instance::lateness_ms).collect()),
        queue_wait: spread(instances.iter().filter_map(Instance::queue_wait_ms).collect()),
        runs: spread(run_times(task).collect()),
        attempts: attempts().count() as u64,
        failures: attempts().filter(|attempt| matches!(attempt.end, Some(End::Failed | End::FailedForGood))).count() as u64,
        retries: sum(Instance::retries),
        lost_workers: sum(|instance| instance.count(Cause::WorkerLost) + instance.count(Cause::OutcomeUnknown)),
        timeouts: sum(|instance| instance.count(Cause::TimedOut)),
        limit_reached: sum(|instance| instance.count(Cause::LimitReached)),
        peak_running: peak_running(task, facts.end_ms()),
    }
}

/// How long the attempts ran that came to an end.
pub(super) fn run_times<'a>(task: &'a TaskFacts) -> impl Iterator<Item = u64> + use<'a> {
    let attempts = task.instances.iter().flat_map(|instance| &instance.attempts);
    attempts.filter_map(|attempt| Some(attempt.ended_ms?.saturating_sub(attempt.began_ms)))
}

/// How long the attempts took that nobody cut short: they ended by themselves, or at their timeout.
pub(super) fn whole_run_times<'a>(task: &'a TaskFacts) -> impl Iterator<Item = u64> + use<'a> {
    let attempts = task.instances.iter().flat_map(|instance| &instance.attempts);
    let is_whole = |end| matches!(end, Some(End::Succeeded | End::Failed | End::FailedForGood | End::TimedOut));
    attempts.filter(move |attempt| is_whole(attempt.end)).filter_map(|attempt| Some(attempt.ended_ms?.saturating_sub(attempt.began_ms)))
}

/// Most handlers of a task at work at the same moment.
fn peak_running(task: &TaskFacts, end_ms: u64) -> u64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for attempt in task.instances.iter().flat_map(|instance| &instance.attempts) {
        changes.push((attempt.began_ms, 1));
        changes.push((attempt.ended_ms.unwrap_or(end_ms).max(attempt.began_ms), -1));
    }
    // At the same moment one that ends makes room first.
    changes.sort_unstable();
    let mut running = 0_i64;
    changes.into_iter().fold(0, |peak, (_, change)| {
        running += change;
        peak.max(running)
    }) as u64
}

/// All tasks together.
pub(super) fn total(facts: &Facts, tasks: &[TaskReport]) -> Numbers {
    let all = || facts.tasks.iter().flat_map(|task| &task.instances);
    let mut total = Numbers {
        lateness: spread(all().filter_map(Instance::lateness_ms).collect()),
        queue_wait: spread(all().filter_map(Instance::queue_wait_ms).collect()),
        runs: spread(facts.tasks.iter().flat_map(run_times).collect()),
        ..Numbers::default()
    };
    for numbers in tasks.iter().map(|task| &task.numbers) {
        total.expected += numbers.expected;
        total.fired += numbers.fired;
        total.unfinished += numbers.unfinished;
        total.attempts += numbers.attempts;
        total.failures += numbers.failures;
        total.retries += numbers.retries;
        total.lost_workers += numbers.lost_workers;
        total.timeouts += numbers.timeouts;
        total.limit_reached += numbers.limit_reached;
        total.peak_running = total.peak_running.max(numbers.peak_running);
        for (into, from) in [(&mut total.dropped, &numbers.dropped), (&mut total.states, &numbers.states)] {
            for (name, count) in from {
                *into.entry(name.clone()).or_insert(0) += count;
            }
        }
    }
    total
}

/// Each service's figures, in the order in which the tasks name them.
pub(super) fn downstreams(facts: &Facts) -> Vec<DownstreamReport> {
    facts.plan.downstreams().into_iter().map(|name| downstream(facts, name)).collect()
}

fn downstream(facts: &Facts, name: &str) -> DownstreamReport {
    let tasks: Vec<&TaskFacts> = facts.tasks.iter().filter(|task| task.handler.downstream.as_deref() == Some(name)).collect();
    // For each minute: calls of first attempts, and of later ones.
    let mut minutes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let (mut instances, mut failures) = (0, 0);
    for instance in tasks.iter().flat_map(|task| &task.instances) {
        instances += u64::from(!instance.attempts.is_empty());
        for attempt in &instance.attempts {
            let minute = minutes.entry(attempt.began_ms / MINUTE).or_default();
            *(if attempt.number > 1 { &mut minute.1 } else { &mut minute.0 }) += 1;
            failures += u64::from(attempt.ended_ms.is_some() && attempt.end != Some(End::Succeeded));
        }
    }
    let calls: u64 = minutes.values().map(|(first, later)| first + later).sum();
    let retries = minutes.values().map(|(_, later)| later).sum();
    let mut usual: Vec<u64> = minutes.values().map(|(first, _)| *first).filter(|first| *first > 0).collect();
    // The first of the worst ones.
    let (peak_minute, peak) =
        minutes.iter().rev().max_by_key(|(_, (first, later))| first + later).map_or((0, (0, 0)), |(at, calls)| (*at, *calls));
    DownstreamReport {
        name: name.to_owned(),
        tasks: tasks.iter().map(|task| task.name.clone()).collect(),
        instances,
        calls,
        failures,
        retries,
        amplification_per_mille: calls.saturating_mul(1_000).checked_div(instances).unwrap_or(0),
        usual_per_minute: usual_per_minute(&tasks, &mut usual),
        peak_per_minute: peak.0 + peak.1,
        peak_retries_per_minute: peak.1,
        peak_at_ms: peak_minute * MINUTE,
    }
}

/// Calls in a usual minute, of the first calls in each minute that had any: with the retries of tasks that fail as often as they are said
/// to, or take longer than they may.
fn usual_per_minute(tasks: &[&TaskFacts], first_calls: &mut [u64]) -> u64 {
    let Some(median) = words::percentile(first_calls, 500) else { return 0 };
    let sum: u64 = first_calls.iter().sum();
    let first_per_mille = (sum * 1_000 / first_calls.len() as u64).max(median * 1_000);
    // Whoever has more instances counts for more.
    let (mut instances, mut attempts_per_mille) = (0, 0);
    for task in tasks {
        let count = task.instances.len() as u64;
        instances += count;
        let attempts = |definition: &TaskDefinition| attempts_per_thousand(&definition.policies, task.handler);
        attempts_per_mille += count * task.definition.as_ref().map_or(1_000, attempts);
    }
    let of_an_instance = attempts_per_mille.checked_div(instances).unwrap_or(1_000).max(1_000);
    ((first_per_mille * of_an_instance + 500_000) / 1_000_000).max(1)
}

/// What makes a task fire, in words.
fn trigger(document: &serde_json::Value, definition: Option<&TaskDefinition>) -> String {
    let spec = TaskSpec::from_json(&document.to_string());
    let resting = if definition.is_some_and(|definition| !definition.enabled) { " (disabled)" } else { "" };
    let words = match spec.map(|spec| spec.trigger) {
        Ok(spec::Trigger::Cron(cron)) if cron.timezone == "UTC" => cron.cron,
        Ok(spec::Trigger::Cron(cron)) => format!("{} {}", cron.cron, cron.timezone),
        Ok(spec::Trigger::FixedRate(interval)) => format!("every {}", duration::format(interval)),
        Ok(spec::Trigger::FixedDelay(interval)) => format!("{} after the last end", duration::format(interval)),
        Ok(spec::Trigger::Delay(delay)) => format!("{} after a trigger", duration::format(delay)),
        Ok(spec::Trigger::Manual) => "by hand".to_owned(),
        Err(_) => match definition.map(|definition| &definition.trigger) {
            Some(Trigger::Manual) => "by hand".to_owned(),
            _ => "?".to_owned(),
        },
    };
    format!("{words}{resting}")
}
