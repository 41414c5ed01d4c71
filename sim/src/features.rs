//! What only some tasks have: shards, chains, rates, routing, levels, refined triggers, breakers and budgets; and what people pause.
//!
//! Drawn behind the tasks and from a stream of its own, and in part of the plans only: what else a seed draws stays as it is. All of it is
//! such that a healed world comes to rest: rates are above what is needed, what workers are asked for one of them always has, and nothing
//! is left out after the healing.

use std::sync::Arc;

use punctual_core::routing::{Understanding, WorkerTraits, WorkerVersion};
use punctual_core::time::Millis;
use punctual_proto::version::{SHARDS_SINCE, understanding};
use punctual_spec::spec::{
    After, CircuitBreaker, GroupLimits, Handler, Map, MisfireAction, On, Priority, RateLimit, RetryBudget, Routing, RoutingStrategy,
    Shards, TaskSpec, Trigger,
};
use punctual_spec::timing::{Blackout, Moment, Timing};
use punctual_spec::workflow::{OnFailure, Rule, Test, When, WorkflowNode};

use crate::draw::Draw;
use crate::plan::{Call, CallKind, PauseOn, STARTS_AT, TaskPlan};
use crate::workload::{document, spec};

/// Of a thousand plans so many have any of it.
const PLANS_PER_MILLE: u64 = 700;
/// What a shard of a drawn task takes at most, so that its firing is no more work than it was.
const SHARD_TAKES_MS: u64 = 500;
/// What an instance takes at most that fires after another one: its load is not accounted for.
const CHAINED_TAKES_MS: u64 = 300;
/// What a node of a workflow takes at most.
const NODE_TAKES_MS: u64 = 300;
/// The tag that only some workers have; the first one always has it.
const ZONE: (&str, &str) = ("zone", "a");

/// Every so many workers there is one from before there were shards, and tags. The first is never one.
const OLD_WORKER_EVERY: usize = 4;

/// The newest version of the protocol that the worker of this number speaks; `None`: all that there are.
pub fn newest_version(worker: usize) -> Option<u32> {
    (worker % OLD_WORKER_EVERY == OLD_WORKER_EVERY - 1).then_some(SHARDS_SINCE - 1)
}
/// Where in a payload the key of a limit stands.
pub const LIMIT_KEY: &str = "/customer/id";
/// Of a thousand plans so many have a group of tasks with limits, and so many have limits with keys.
const GROUPS_PER_MILLE: u64 = 350;
const KEYS_PER_MILLE: u64 = 300;
/// What an instance of a group takes at most: they go one after the other, with commits of two owners between them.
const GROUPED_TAKES_MS: u64 = 300;

/// What the worker of this number has, by which routing goes.
pub fn traits(worker: usize) -> WorkerTraits {
    if let Some(newest) = newest_version(worker) {
        return WorkerTraits { understands: understanding(newest), ..WorkerTraits::default() };
    }
    let zone = if worker.is_multiple_of(2) { ZONE.1 } else { "b" };
    WorkerTraits {
        tags: vec![Arc::from(format!("{}={zone}", ZONE.0))],
        version: WorkerVersion::parse(&format!("1.{worker}.0")).ok(),
        reserved: [0, 0],
        understands: Understanding::default(),
    }
}

/// Whether a worker has all that a task asks for.
pub(crate) fn fits(worker: usize, routing: &punctual_core::routing::Routing) -> bool {
    let own = traits(worker);
    routing.tags.iter().all(|tag| own.tags.contains(tag))
        && routing.min_worker_version.as_ref().is_none_or(|least| own.version.as_ref().is_some_and(|version| version.is_at_least(least)))
}

/// Gives drawn tasks what only some have.
pub fn draw_features(seed: u64, tasks: &mut [TaskPlan]) {
    if !Draw::new(seed, "swarm features").chance(PLANS_PER_MILLE) {
        return;
    }
    let names: Vec<_> = tasks.iter().filter_map(|task| spec(&task.document).ok()).map(|spec| spec.name).collect();
    for index in 0..tasks.len() {
        // A flood is what it is.
        if names[index] == "flooded" {
            continue;
        }
        draw_of_task(&mut Draw::new(seed, &format!("swarm features/{index}")), &mut tasks[index], &names[..index]);
        draw_broadcast(&mut Draw::new(seed, &format!("swarm features/broadcast/{index}")), &mut tasks[index]);
        draw_map(&mut Draw::new(seed, &format!("swarm features/map/{index}")), &mut tasks[index]);
        draw_workflow(&mut Draw::new(seed, &format!("swarm workflows/{index}")), &mut tasks[index]);
    }
    draw_calls(seed, tasks);
}

/// Of a thousand workflows so many call another task.
const CALLING_PER_MILLE: u64 = 500;

/// Has some nodes of workflows call tasks further down the list: what fires after another one stands behind that, so there is no ring.
fn draw_calls(seed: u64, tasks: &mut [TaskPlan]) {
    for index in 0..tasks.len() {
        let mut draw = Draw::new(seed, &format!("swarm calls/{index}"));
        let Ok(mut spec) = spec(&tasks[index].document) else { continue };
        let behind = tasks.iter().enumerate().skip(index + 1);
        let behind = behind.filter_map(|(place, task)| Some((place, crate::workload::spec(&task.document).ok()?)));
        // One with a delay waits for that each time, in every node that calls it.
        let fit = behind.filter(|(_, spec)| spec.name != "flooded" && !matches!(spec.trigger, Trigger::Delay(_)));
        let others: Vec<_> = fit.map(|(place, spec)| (place, spec.name)).collect();
        if spec.nodes.is_empty() || others.is_empty() || !draw.chance(CALLING_PER_MILLE) {
            continue;
        }
        for node in &mut spec.nodes {
            if draw.chance(300) {
                let (place, name) = draw.pick(&others);
                (node.task, node.shards) = (Some(name.clone()), Shards::None);
                node.payload = draw.chance(300).then(|| format!("{{\"customer\":{{\"id\":{}}}}}", draw.below(3)));
                limit(&mut tasks[*place].handler.takes_ms, NODE_TAKES_MS);
            }
        }
        tasks[index].document = document(spec);
    }
}

/// Puts some of the tasks into a group with limits, and gives some limits a key.
pub fn draw_shared_limits(seed: u64, tasks: &mut [TaskPlan]) {
    let mut draw = Draw::new(seed, "swarm groups");
    if draw.chance(GROUPS_PER_MILLE) {
        let limits = GroupLimits {
            max_running: Some(draw.between(1, 3) as u32),
            rate_limit: draw.chance(250).then(|| RateLimit { starts: draw.between(3, 6) as u32, per: Millis(500) }),
        };
        for task in tasks.iter_mut() {
            let is_in_it = draw.chance(600);
            change(task, |spec, takes_ms| {
                let calls = spec.nodes.iter().any(|node| node.task.is_some());
                if is_in_it && spec.name != "flooded" && !calls {
                    (spec.group, spec.group_limits) = (Some("group".to_owned()), Some(limits.clone()));
                    limit(takes_ms, GROUPED_TAKES_MS);
                }
            });
        }
    }
    let mut draw = Draw::new(seed, "swarm spacing");
    for task in tasks.iter_mut() {
        let (is_spaced, starts) = (draw.chance(250), draw.between(1, 4) as u32);
        change(task, |spec, _| {
            if is_spaced && spec.misfire.action == MisfireAction::FireAll {
                spec.misfire.rate = Some(RateLimit { starts, per: Millis(500) });
            }
        });
    }
    let mut draw = Draw::new(seed, "swarm keys");
    if draw.chance(KEYS_PER_MILLE) {
        for task in tasks.iter_mut() {
            let is_keyed = draw.chance(500);
            change(task, |spec, _| {
                if is_keyed && spec.name != "flooded" {
                    spec.concurrency.key = Some(LIMIT_KEY.to_owned());
                }
            });
        }
    }
}

fn change(task: &mut TaskPlan, change: impl FnOnce(&mut TaskSpec, &mut (u64, u64))) {
    let Ok(mut spec) = spec(&task.document) else { return };
    change(&mut spec, &mut task.handler.takes_ms);
    task.document = document(spec);
}

/// Of a thousand plans so many have pauses.
const PAUSED_PER_MILLE: u64 = 400;
/// And so many have workers drained.
const DRAINED_PER_MILLE: u64 = 200;
/// The group that some tasks have.
const GROUP: &str = "g";

/// Has people pause tasks, groups and everything, and gives some tasks a group for that. All of it is over before the world heals.
pub fn draw_pauses(seed: u64, tasks: &mut [TaskPlan], calls: &mut Vec<Call>, heal_at_ms: u64) {
    let mut draw = Draw::new(seed, "swarm pauses");
    if !draw.chance(PAUSED_PER_MILLE) || tasks.is_empty() {
        return;
    }
    for task in tasks.iter_mut().filter(|_| draw.chance(300)) {
        if let Ok(mut spec) = spec(&task.document) {
            spec.group = Some(GROUP.to_owned());
            task.document = document(spec);
        }
    }
    for _ in 0..draw.between(1, 4) {
        let on = match *draw.weighted(&[(60, 0), (25, 1), (15, 2)]) {
            0 => PauseOn::Task(draw.index(tasks.len())),
            1 => PauseOn::Group(GROUP.to_owned()),
            _ => PauseOn::All,
        };
        let at_ms = draw.between(10, heal_at_ms / 100 * 8 / 10) * 100;
        let lasts_ms = (draw.between(1, 600) * 100).min(heal_at_ms - at_ms);
        calls.push(Call { at_ms, what: CallKind::Pause { on, lasts_ms } });
    }
    calls.sort_by_key(|call| call.at_ms);
}

/// Has people drain workers, now and then all of them. All of it is over before the world heals.
pub fn draw_drains(seed: u64, workers: usize, calls: &mut Vec<Call>, heal_at_ms: u64) {
    let mut draw = Draw::new(seed, "swarm drains");
    if !draw.chance(DRAINED_PER_MILLE) {
        return;
    }
    for _ in 0..draw.between(1, 3) {
        let on = PauseOn::Worker(draw.index(workers));
        let at_ms = draw.between(10, heal_at_ms / 100 * 8 / 10) * 100;
        let lasts_ms = (draw.between(1, 600) * 100).min(heal_at_ms - at_ms);
        calls.push(Call { at_ms, what: CallKind::Pause { on, lasts_ms } });
    }
    calls.sort_by_key(|call| call.at_ms);
}

fn draw_of_task(draw: &mut Draw, task: &mut TaskPlan, earlier: &[String]) {
    let Ok(mut spec) = spec(&task.document) else { return };
    if draw.chance(200) && !earlier.is_empty() {
        // Only after one before it in the list: no ring.
        let on = *draw.pick(&[On::Success, On::Success, On::Failure, On::Any]);
        spec.after = vec![After { task: draw.pick(earlier).clone(), on }];
        limit(&mut task.handler.takes_ms, CHAINED_TAKES_MS);
    }
    if draw.chance(150) {
        let count = draw.between(2, 4) as u32;
        spec.shards = match draw.chance(500) {
            true => Shards::Count(count),
            false => Shards::Keys((0..count).map(|index| format!("key {index}")).collect()),
        };
        limit(&mut task.handler.takes_ms, SHARD_TAKES_MS);
    }
    if draw.chance(150) {
        spec.rate_limit = Some(RateLimit { starts: draw.between(2, 4) as u32, per: Millis(*draw.pick(&[500, 1_000])) });
    }
    if draw.chance(200) {
        let strategy = *draw.pick(&[RoutingStrategy::RoundRobin, RoutingStrategy::Random, RoutingStrategy::Hash]);
        let mut routing = Routing { strategy, ..Routing::default() };
        match draw.below(3) {
            0 => _ = routing.tags.insert(ZONE.0.to_owned(), ZONE.1.to_owned()),
            1 => routing.min_worker_version = Some("1.0.0".to_owned()),
            _ => {}
        }
        spec.routing = routing;
    }
    if draw.chance(300) {
        spec.priority = Priority { level: draw.between(0, 9) as u32, ..spec.priority };
    }
    if draw.chance(250) {
        spec.timing = draw_timing(draw, &spec.trigger);
    }
    // Drawn whether it has a downstream or not: the families of a plan may give it one.
    let breaker =
        CircuitBreaker { failures: draw.between(2, 5) as u32, within: Millis::from_secs(60), open: Millis(*draw.pick(&[500, 2_000])) };
    let has_breaker = draw.chance(400);
    if draw.chance(100) && spec.retry.max_attempts.is_some() {
        spec.retry.budget = Some(RetryBudget { min_per_minute: draw.between(1, 10) as u32, ..RetryBudget::default() });
    }
    if has_breaker && let Some(downstream) = &task.handler.downstream {
        (spec.downstream, spec.circuit_breaker) = (Some(downstream.clone()), Some(breaker));
    }
    task.document = document(spec);
}

/// Makes a workflow of a task, of few nodes, each behind some of those before it.
fn draw_workflow(draw: &mut Draw, task: &mut TaskPlan) {
    let Ok(mut spec) = spec(&task.document) else { return };
    if !draw.chance(100) || spec.shards != Shards::None || spec.map.is_some() || spec.routing.strategy == RoutingStrategy::Broadcast {
        return;
    }
    let count = draw.between(2, 8);
    for index in 0..count {
        let before = (0..index).filter(|_| draw.chance(400)).map(|before| format!("n{before}"));
        let mut node = WorkflowNode::new(format!("n{index}"), before.collect::<Vec<_>>());
        let rules = [(60, Rule::AllSucceeded), (15, Rule::AllDone), (8, Rule::OneFailed), (8, Rule::OneSucceeded), (9, Rule::NoneFailed)];
        node.rule = *draw.weighted(&rules);
        node.on_failure = *draw.weighted(&[(70, OnFailure::SkipDownstream), (15, OnFailure::FailRun), (15, OnFailure::Continue)]);
        if draw.chance(100) {
            node.shards = Shards::Count(2);
        }
        // Handlers of plans answer nothing, so it is skipped.
        if let Some(read) = node.after.first().filter(|_| draw.chance(50)) {
            node.when = Some(When { node: read.clone(), pointer: String::new(), test: Test::Exists(true) });
        }
        spec.nodes.push(node);
    }
    limit(&mut task.handler.takes_ms, NODE_TAKES_MS);
    task.document = document(spec);
}

/// What is for all workers, in place of how it was divided and routed. A stream of its own: what was drawn before stays as it is.
fn draw_broadcast(draw: &mut Draw, task: &mut TaskPlan) {
    let Ok(mut spec) = spec(&task.document) else { return };
    if !draw.chance(100) {
        return;
    }
    spec.shards = Shards::None;
    (spec.routing.strategy, spec.routing.worker) = (RoutingStrategy::Broadcast, None);
    limit(&mut task.handler.takes_ms, SHARD_TAKES_MS);
    task.document = document(spec);
}

/// What is mapped over a short list, in place of how it was divided. A stream of its own, for the same reason.
fn draw_map(draw: &mut Draw, task: &mut TaskPlan) {
    let Ok(mut spec) = spec(&task.document) else { return };
    if !draw.chance(80) || spec.routing.strategy == RoutingStrategy::Broadcast {
        return;
    }
    let reduce = draw.chance(600).then(|| spec.handler.clone()).filter(|handler| !matches!(handler, Handler::Http(_)));
    spec.shards = Shards::None;
    spec.map = Some(Map { list: spec.handler.clone(), reduce, parallel: draw.between(1, 3) as u32 });
    limit(&mut task.handler.takes_ms, SHARD_TAKES_MS / 2);
    task.document = document(spec);
}

/// A trigger that is refined, as far as it can be.
fn draw_timing(draw: &mut Draw, trigger: &Trigger) -> Timing {
    let mut timing = Timing::default();
    match trigger {
        Trigger::Cron(_) if draw.chance(500) => {
            // Over before any world has healed.
            let from = draw.between(20, 60);
            let (from, to) = (moment(from), moment(from + draw.between(10, 50)));
            timing.blackouts = vec![Blackout::Span { from, to }];
        }
        Trigger::Cron(_) => timing.jitter = Millis::from_secs(draw.between(1, 4)),
        Trigger::FixedRate(interval) if draw.chance(500) => timing.jitter = Millis((interval.0 / 2).min(4_000)),
        Trigger::FixedRate(_) | Trigger::FixedDelay(_) => timing.starts_at = Some(moment(draw.between(5, 40))),
        Trigger::Delay(_) | Trigger::Manual => {}
    }
    timing
}

/// So many seconds after a plan's beginning.
fn moment(secs: u64) -> Moment {
    let second = STARTS_AT / 1_000 + secs as i64;
    Moment::Instant(jiff::Timestamp::from_second(second).expect("a plan begins in this century"))
}

fn limit(takes_ms: &mut (u64, u64), most: u64) {
    *takes_ms = (takes_ms.0.min(most), takes_ms.1.min(most));
}
