//! Drawing tasks, and what people do with them.
//!
//! Intervals, waits and limits are small: a plan is over in minutes, and each of its policies should have come to bear by then.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use punctual_core::limits;
use punctual_core::time::Millis;
use punctual_spec::choice::Choice;
use punctual_spec::handler::NOOP;
use punctual_spec::problem::Finding;
use punctual_spec::spec::{
    Backoff, Band, Concurrency, CronTrigger, CustomHandler, Dialect, Factor, Gap, Handler, Jitter, Misfire, MisfireAction, Overlap, Retry,
    TaskSpec, Timeout, TimeoutAction, Trigger, WhenFull,
};
use punctual_spec::timing::Timing;
use punctual_spec::zones::Zones;
use serde_json::Value;

use crate::draw::Draw;
use crate::features;
use crate::plan::{Call, CallKind, Family, HandlerPlan, TaskPlan};

/// Zones of all kinds: none, whole hours in both hemispheres, half and quarter hours.
const ZONES: [&str; 6] =
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham", "Asia/Kolkata", "Africa/Casablanca"];
/// The services that handlers call.
const DOWNSTREAMS: [&str; 3] = ["mail", "billing", "search"];
/// Cron expressions, each with its longest interval.
const CRONS: [(&str, Option<Dialect>, u64); 9] = [
    ("* * * * *", None, 60_000),
    ("1-59/2 * * * *", None, 120_000),
    ("*/2 * * * *", None, 120_000),
    ("*/10 * * * * *", None, 10_000),
    ("*/15 * * * * *", Some(Dialect::Seconds6), 15_000),
    ("*/20 * * * * *", None, 20_000),
    ("5,35 * * * * *", None, 30_000),
    ("0/30 * * * * ?", Some(Dialect::Quartz), 30_000),
    ("7 * * * * *", None, 60_000),
];
/// A queue holds about so much work at most: what is in it when the world heals has to be worked off.
const QUEUED_WORK_MS: u64 = 20_000;
/// How often people fire a task by hand, where that is all that fires it. An estimate.
const BY_HAND_MS: u64 = 30_000;

/// The zones that documents are compiled with: the same on every machine.
pub fn zones() -> &'static Zones {
    static ZONES: LazyLock<Zones> = LazyLock::new(Zones::bundled);
    &ZONES
}

/// The task that a plan's document means. A document in a plan has its keys in any order: [`TaskSpec::to_json`] of this is the canonical
/// text.
///
/// # Errors
///
/// Where it is no task document.
pub fn spec(document: &Value) -> Result<TaskSpec, Finding> {
    TaskSpec::from_json(&document.to_string())
}

/// The document of a task.
pub fn document(mut spec: TaskSpec) -> Value {
    spec.normalise();
    serde_json::to_value(&spec).expect("a spec has neither maps with other keys than texts nor numbers that JSON lacks")
}

/// Draws so many tasks. Some families need a task of a certain kind; they get one.
pub fn draw_tasks(draw: &mut Draw, seed: u64, count: usize, families: &BTreeSet<Family>) -> Vec<TaskPlan> {
    let mut tasks: Vec<TaskPlan> = (0..count).map(|number| draw_task(draw, number)).collect();
    features::draw_features(seed, &mut tasks);
    features::draw_shared_limits(seed, &mut tasks);
    if families.contains(&Family::RetryStorm)
        && tasks.iter().all(|task| task.handler.downstream.is_none())
        && let Some(task) = tasks.first_mut()
    {
        task.handler.downstream = Some(DOWNSTREAMS[0].to_owned());
    }
    if families.contains(&Family::Flood) {
        tasks.push(flooded_task());
    }
    tasks
}

/// A task that can take tens of thousands of submissions.
fn flooded_task() -> TaskPlan {
    let mut spec = TaskSpec::new("flooded", Trigger::Manual, noop());
    spec.concurrency = Concurrency { max_running: 1_000, when_full: WhenFull::Queue, max_queue: Some(limits::MAX_QUEUE_MAX), key: None };
    let handler = HandlerPlan { takes_ms: (1, 5), fails_per_mille: 0, fails_for_good: false, obeys_after_ms: Some(0), downstream: None };
    TaskPlan { document: document(spec), handler }
}

/// Whether a task may be flooded: it fires by hand, and its handler is short.
pub fn takes_floods(task: &TaskPlan) -> bool {
    task.handler.takes_ms.1 <= 20 && spec(&task.document).is_ok_and(|spec| spec.trigger == Trigger::Manual)
}

fn noop() -> Handler {
    Handler::Custom(CustomHandler { name: NOOP.to_owned(), config: serde_json::Map::new() })
}

fn draw_task(draw: &mut Draw, number: usize) -> TaskPlan {
    let (kind, trigger, interval_ms) = draw_trigger(draw);
    let handler = draw_handler(draw, interval_ms);
    let mut spec = TaskSpec::new(format!("{kind}-{number}"), trigger, noop());
    spec.enabled = !draw.chance(60);
    spec.idempotent = !draw.chance(200);
    spec.priority = (*draw.weighted(&[(20, Band::Urgent), (60, Band::Normal), (20, Band::Low)])).into();
    if draw.chance(100) {
        spec.payload = Some(format!("payload of {number}"));
    }
    spec.timeout = draw_timeout(draw, &handler);
    draw_policies(draw, &mut spec, handler.takes_ms.1);
    TaskPlan { document: document(spec), handler }
}

/// A trigger, what to call it, and its longest interval.
fn draw_trigger(draw: &mut Draw) -> (&'static str, Trigger, u64) {
    match *draw.weighted(&[(30, 0), (25, 1), (15, 2), (10, 3), (20, 4)]) {
        0 => {
            let (expression, dialect, interval_ms) = *draw.pick(&CRONS);
            let mut cron = CronTrigger { dialect, ..CronTrigger::new(expression) };
            if draw.chance(500) {
                cron.timezone = (*draw.pick(&ZONES)).to_owned();
            }
            if draw.chance(300) {
                (cron.gap, cron.overlap) = (choice::<Gap>(draw), choice::<Overlap>(draw));
            }
            ("cron", Trigger::Cron(cron), interval_ms)
        }
        1 => {
            let interval = draw_interval(draw);
            ("rate", Trigger::FixedRate(interval), interval.0)
        }
        2 => {
            let interval = draw_interval(draw);
            ("loop", Trigger::FixedDelay(interval), interval.0)
        }
        3 => ("delay", Trigger::Delay(Millis::from_secs(draw.between(1, 60))), BY_HAND_MS),
        _ => ("manual", Trigger::Manual, BY_HAND_MS),
    }
}

fn draw_interval(draw: &mut Draw) -> Millis {
    let (low, high) = *draw.pick(&[(2, 5), (5, 15), (15, 60)]);
    Millis::from_secs(draw.between(low, high))
}

fn choice<T: Choice>(draw: &mut Draw) -> T {
    draw.pick(T::ALL).1
}

fn draw_handler(draw: &mut Draw, interval_ms: u64) -> HandlerPlan {
    let lease = limits::WORKER_LEASE.0;
    let (low, high) = match *draw.weighted(&[(30, 0), (35, 1), (12, 2), (13, 3), (10, 4)]) {
        0 => (1, draw.between(1, 50)),
        1 => (draw.between(50, 500), draw.between(500, 2_000)),
        2 => (draw.between(1_000, 5_000), draw.between(5_000, 20_000)),
        // Longer than its interval.
        3 => ((interval_ms / 2).min(lease), (interval_ms * draw.between(11, 25) / 10).min(2 * lease)),
        // Longer than the worker's lease.
        _ => (lease, draw.between(lease + 1_000, 2 * lease)),
    };
    HandlerPlan {
        takes_ms: (low, high),
        fails_per_mille: *draw.weighted(&[(50, 0), (20, 50), (20, 300), (10, 1_000)]),
        fails_for_good: draw.chance(150),
        obeys_after_ms: *draw.weighted(&[(40, Some(0)), (30, Some(200)), (15, Some(8_000)), (15, None)]),
        downstream: if draw.chance(400) { Some((*draw.pick(&DOWNSTREAMS)).to_owned()) } else { None },
    }
}

fn draw_timeout(draw: &mut Draw, handler: &HandlerPlan) -> Timeout {
    let mut timeout = Timeout::default();
    if draw.chance(350) {
        let (low, high) = handler.takes_ms;
        // Half of the handlers with a timeout can run into it.
        let after = if draw.chance(500) { draw.between(low, high) } else { high + draw.between(1_000, 10_000) };
        timeout.after = Some(Millis(round(after.max(100))));
        timeout.action = *draw.weighted(&[(65, TimeoutAction::Kill), (35, TimeoutAction::Wait)]);
        timeout.grace = *draw.pick(&[Millis(0), Millis(500), Millis(3_000), timeout.grace]);
    }
    timeout
}

/// Misfire, concurrency and retry of a task whose handler takes this long at most.
fn draw_policies(draw: &mut Draw, spec: &mut TaskSpec, takes_ms: u64) {
    spec.misfire = Misfire { action: choice(draw), limit: None, deadline: None, rate: spec.misfire.rate.take() };
    if spec.misfire.action == MisfireAction::FireAll {
        spec.misfire.limit = Some(*draw.pick(&[1, 2, 5, 20]));
    } else {
        spec.misfire.rate = None;
    }
    if draw.chance(300) {
        spec.misfire.deadline = Some(Millis::from_secs(*draw.pick(&[2, 6, 15, 45])));
    }
    spec.concurrency = Concurrency {
        max_running: *draw.weighted(&[(50, 1), (25, 2), (15, 3), (10, 5)]),
        when_full: *draw.weighted(&[(50, WhenFull::Queue), (25, WhenFull::Discard), (25, WhenFull::Replace)]),
        max_queue: None,
        key: spec.concurrency.key.take(),
    };
    if spec.concurrency.when_full == WhenFull::Queue {
        let most =
            (QUEUED_WORK_MS * u64::from(spec.concurrency.max_running) / takes_ms.max(1)).clamp(1, u64::from(limits::MAX_QUEUE_DEFAULT));
        spec.concurrency.max_queue = Some((*draw.pick(&[1, 2, 5, limits::MAX_QUEUE_DEFAULT])).min(most as u32));
    }
    let first = *draw.pick(&[100, 500, 1_000, 5_000]);
    spec.retry = Retry {
        max_attempts: if draw.chance(650) { Some(draw.between(1, 6) as u32) } else { None },
        max_losses: *draw.weighted(&[(15, 0), (15, 1), (20, 2), (50, limits::MAX_LOSSES_DEFAULT)]),
        backoff: choice(draw),
        first: Millis(first),
        cap: Millis(first * draw.between(1, 4)),
        factor: None,
        jitter: choice::<Jitter>(draw),
        ..Retry::default()
    };
    if spec.retry.backoff == Backoff::Exponential {
        spec.retry.factor = Some(*draw.pick(&[Factor(1_000), Factor(1_500), Factor::DEFAULT, Factor(4_000)]));
    }
}

/// Draws about so many things that people do, all of them before the world heals, ordered by when.
pub fn draw_calls(draw: &mut Draw, count: usize, tasks: &[TaskPlan], heal_at_ms: u64) -> Vec<Call> {
    if tasks.is_empty() {
        return Vec::new();
    }
    let mut times: Vec<u64> = (0..count).map(|_| round(draw.between(1_000, heal_at_ms * 9 / 10))).collect();
    times.sort_unstable();
    let mut documents: Vec<Value> = tasks.iter().map(|task| task.document.clone()).collect();
    let mut calls = Vec::new();
    for (number, at_ms) in times.into_iter().enumerate() {
        let task = draw.index(tasks.len());
        match *draw.weighted(&[(60, 0), (12, 1), (16, 2), (12, 3)]) {
            0 => draw_trigger_calls(draw, number, task, at_ms, heal_at_ms, &mut calls),
            1 => calls.push(Call { at_ms, what: CallKind::Cancel { nth: draw.index(6) } }),
            2 => {
                let document = edited(draw, &documents[task], tasks[task].handler.takes_ms.1);
                documents[task] = document.clone();
                calls.push(Call { at_ms, what: CallKind::Edit { task, document } });
            }
            _ => {
                calls.push(Call { at_ms, what: CallKind::Remove { task } });
                let back_at_ms = at_ms + draw.between(1, 300) * 100;
                if draw.chance(850) && back_at_ms < heal_at_ms {
                    calls.push(Call { at_ms: back_at_ms, what: CallKind::Edit { task, document: documents[task].clone() } });
                }
            }
        }
    }
    calls.sort_by_key(|call| call.at_ms);
    calls
}

/// A manual trigger; with a key it may be made again, as somebody does who got no answer.
fn draw_trigger_calls(draw: &mut Draw, number: usize, task: usize, at_ms: u64, heal_at_ms: u64, calls: &mut Vec<Call>) {
    let key = if draw.chance(500) { Some(format!("key-{number}")) } else { None };
    let delay_ms = if draw.chance(250) { Some(draw.between(1, 300) * 100) } else { None };
    // What is fired after the world has healed would have to be waited for.
    let delay_ms = delay_ms.filter(|delay_ms| at_ms + delay_ms < heal_at_ms);
    let mut again_at_ms = at_ms;
    loop {
        calls.push(Call { at_ms: again_at_ms, what: CallKind::Trigger { task, delay_ms, key: key.clone() } });
        again_at_ms += draw.between(1, 150) * 100;
        if key.is_none() || again_at_ms + delay_ms.unwrap_or(0) >= heal_at_ms || !draw.chance(400) {
            return;
        }
    }
}

/// The document, changed in one way.
fn edited(draw: &mut Draw, before: &Value, takes_ms: u64) -> Value {
    let Ok(mut spec) = spec(before) else { return before.clone() };
    match draw.below(3) {
        0 => spec.enabled = !spec.enabled,
        1 => {
            spec.trigger = draw_trigger(draw).1;
            spec.timing = Timing::default();
        }
        _ => draw_policies(draw, &mut spec, takes_ms),
    }
    document(spec)
}

/// Rounded down to two figures: somebody is going to read it.
fn round(ms: u64) -> u64 {
    let mut unit = 1;
    while ms / unit >= 1_000 {
        unit *= 10;
    }
    ms / unit * unit
}
