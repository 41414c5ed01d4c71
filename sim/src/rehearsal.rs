//! Plans for rehearsals: the user's own tasks, and a day on which things go wrong.
//!
//! Other than the plans of a sweep these are for reading: the tasks are given, the day is as long as a day, and faults are spread over
//! all of it, a few an hour, with outages among them that last as long as outages do.

use std::collections::BTreeSet;

use punctual_spec::file::FileTask;
use punctual_spec::spec::Trigger;
use serde_json::Value;

use crate::draw::Draw;
use crate::faults::{self, Ground};
use crate::load;
use crate::plan::{Call, CallKind, Family, Fault, FaultKind, HandlerPlan, Knobs, Plan, STARTS_AT, Selector, Shape, TaskPlan, downstreams};

/// A minute and an hour, in milliseconds.
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// Longest rehearsal: a leap year.
pub const HOURS_MAX: u64 = 366 * 24;
/// Longest time to settle: what piles up for longer than this is for the report to tell.
const SETTLING_MS_MAX: u64 = 2 * HOUR;
/// How often there is an outage, on average.
const OUTAGE_EVERY_HOURS: u64 = 4;
/// Most faults of one family in one hour, besides outages.
const FAULTS_MAX: u64 = 3;
/// Times between two triggers by hand of one task.
const TRIGGERED_EVERY_MS: (u64, u64) = (5 * MINUTE, 90 * MINUTE);

/// What is to be rehearsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What everything is drawn from.
    pub seed: u64,
    /// How long things go wrong, 1 to [`HOURS_MAX`].
    pub hours: u64,
    /// What may go wrong. Of these nothing is left out, unlike in a sweep.
    pub families: BTreeSet<Family>,
    /// How many of what there are.
    pub shape: Shape,
    /// What the wall clock says when it begins: milliseconds since 1970.
    pub starts_at: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 0,
            hours: 24,
            families: BTreeSet::from(FAMILIES_DEFAULT),
            shape: Shape { schedulers: 3, workers: 4, slots: 16, partitions: 16 },
            starts_at: STARTS_AT,
        }
    }
}

/// What goes wrong where nothing is said: what happens to everybody sooner or later.
pub const FAMILIES_DEFAULT: [Family; 7] =
    [Family::NodeCrash, Family::NodePause, Family::Network, Family::DbJitter, Family::DbUnknown, Family::Handlers, Family::RetryStorm];

/// Why a list of families is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no family of faults `{name}`; use `all`, `none` or some of {}, separated by commas", Family::ALL.map(Family::name).join(", "))]
pub struct UnknownFamily {
    /// What was given.
    pub name: String,
}

/// The families that a list names: `node-crash,db-jitter`. `none` names none of them, `all` each.
///
/// # Errors
///
/// The first name that is none.
pub fn families_of(list: &str) -> Result<BTreeSet<Family>, UnknownFamily> {
    if list == "none" {
        return Ok(BTreeSet::new());
    }
    if list == "all" {
        return Ok(BTreeSet::from(Family::ALL));
    }
    list.split(',').map(|name| Family::from_name(name.trim()).ok_or_else(|| UnknownFamily { name: name.trim().to_owned() })).collect()
}

impl Options {
    /// The command that does it again, for a shell.
    pub fn command(&self, file: &str) -> String {
        let usual = Options::default();
        let mut command = format!("punctual rehearse {} --seed {} --hours {}", quoted(file), self.seed, self.hours);
        let names: Vec<&str> = self.families.iter().map(|family| family.name()).collect();
        command.push_str(&format!(" --faults {}", if names.is_empty() { "none".to_owned() } else { names.join(",") }));
        let numbers = [
            ("schedulers", self.shape.schedulers as u64, usual.shape.schedulers as u64),
            ("workers", self.shape.workers as u64, usual.shape.workers as u64),
            ("slots", self.shape.slots.into(), usual.shape.slots.into()),
            ("partitions", self.shape.partitions.into(), usual.shape.partitions.into()),
        ];
        for (flag, number, _) in numbers.iter().filter(|(_, number, usual)| number != usual) {
            command.push_str(&format!(" --{flag} {number}"));
        }
        if self.starts_at != usual.starts_at {
            command.push_str(&format!(" --start {}", punctual_core::time::Timestamp(self.starts_at)));
        }
        command
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let word = if word.starts_with('-') && word != "-" { format!("./{word}") } else { word.to_owned() };
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The plan of these tasks and options. The same ones give the same plan.
pub fn plan_of(tasks: &[FileTask], options: &Options) -> Plan {
    let Options { seed, shape, starts_at, .. } = *options;
    let heal_at_ms = options.hours.clamp(1, HOURS_MAX) * HOUR;
    let plans: Vec<TaskPlan> = tasks.iter().map(task_plan).collect();
    let calls = calls(seed, tasks, heal_at_ms);
    let faults = faults(options, &plans, heal_at_ms);
    let knobs = knobs(&mut Draw::new(seed, "rehearsal knobs"), &options.families);
    let mut plan = Plan { seed, shape, knobs, tasks: plans, calls, faults, heal_at_ms, horizon_ms: heal_at_ms, starts_at };
    plan.horizon_ms = heal_at_ms + load::settling_ms(&plan).min(SETTLING_MS_MAX);
    plan
}

fn task_plan(task: &FileTask) -> TaskPlan {
    let document: Value = serde_json::from_str(&task.spec.to_json()).expect("a canonical document is JSON");
    let rehearsal = &task.rehearsal;
    let handler = HandlerPlan {
        takes_ms: (rehearsal.takes.0.0, rehearsal.takes.1.0),
        fails_per_mille: rehearsal.fails_per_mille,
        fails_for_good: rehearsal.fails_for_good,
        obeys_after_ms: rehearsal.obeys_after.map(|after| after.0),
        downstream: rehearsal.downstream.clone(),
    };
    TaskPlan { document, handler }
}

/// The world of an ordinary cluster. A failover loses its tail only where that was asked for.
fn knobs(draw: &mut Draw, families: &BTreeSet<Family>) -> Knobs {
    Knobs {
        network_ms: (1, draw.between(2, 10)),
        database_ms: (1, draw.between(4, 20)),
        replica_lag_ms: draw.between(5, 200),
        semi_synchronous: !families.contains(&Family::DbLostTail),
        wake_ups: true,
        commits_at_once: 2,
    }
}

/// Triggers by hand, now and then, of what doesn't fire by itself; half of them under an idempotency key.
fn calls(seed: u64, tasks: &[FileTask], until: u64) -> Vec<Call> {
    let mut calls = Vec::new();
    for (task, file_task) in tasks.iter().enumerate() {
        let spec = &file_task.spec;
        if spec.enabled && !matches!(spec.trigger, Trigger::Manual | Trigger::Delay(_)) {
            continue;
        }
        let mut draw = Draw::new(seed, &format!("rehearsal calls {}", spec.name));
        let mut at_ms = draw.between(MINUTE, TRIGGERED_EVERY_MS.1.min(until / 2));
        for count in 1.. {
            if at_ms >= until {
                break;
            }
            let key = draw.chance(500).then(|| format!("rehearsal-{task}-{count}"));
            calls.push(Call { at_ms: whole_seconds(at_ms), what: CallKind::Trigger { task, delay_ms: None, key } });
            at_ms += draw.between(TRIGGERED_EVERY_MS.0, TRIGGERED_EVERY_MS.1);
        }
    }
    calls.sort_by_key(|call| call.at_ms);
    calls
}

/// Short faults hour by hour, and outages.
fn faults(options: &Options, tasks: &[TaskPlan], until: u64) -> Vec<Fault> {
    let families: Vec<Family> = options.families.iter().copied().collect();
    if families.is_empty() {
        return Vec::new();
    }
    let ground = Ground { shape: options.shape, tasks, heal_at_ms: HOUR };
    let mut draw = Draw::new(options.seed, "rehearsal faults");
    let mut faults = Vec::new();
    let mut turn = draw.index(families.len());
    let hours = until / HOUR;
    for hour in 0..hours {
        // Families take turns, so that all of them come, also in a short rehearsal.
        let count = draw.between(1, 2).max((families.len() as u64).div_ceil(hours));
        for next in 0..count as usize {
            let family = families[(turn + next) % families.len()];
            // A sweep's hour has far more; a few that follow each other keep what belongs together, such as a node that dies twice.
            let drawn = faults::draw_faults(draw.below(u64::MAX), &BTreeSet::from([family]), &ground);
            let from = draw.index(drawn.len());
            let few = drawn.into_iter().skip(from).take(draw.between(1, FAULTS_MAX) as usize);
            faults.extend(few.map(|fault| Fault { at_ms: hour * HOUR + fault.at_ms, ..fault }));
        }
        turn += count as usize;
    }
    let mut draw = Draw::new(options.seed, "rehearsal outages");
    let outages = (hours / OUTAGE_EVERY_HOURS).max(1);
    for outage in 0..outages {
        let family = *draw.pick(&families);
        let (begins, ends) = (until / outages * outage, until / outages * (outage + 1));
        let Some((kind, on, minutes)) = self::outage(&mut draw, family, options.shape, tasks) else { continue };
        let lasts_ms = (draw.between(minutes.0, minutes.1) * MINUTE).min((ends - begins) / 2);
        let at_ms = whole_seconds(draw.between(begins + MINUTE, ends - lasts_ms - MINUTE));
        faults.push(Fault { at_ms, lasts_ms, kind, on });
    }
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}

/// Something that lasts, where the family has such a thing: what, for whom, and fewest and most minutes.
fn outage(draw: &mut Draw, family: Family, shape: Shape, tasks: &[TaskPlan]) -> Option<(FaultKind, Selector, (u64, u64))> {
    let scheduler = Selector::Scheduler(draw.index(shape.schedulers));
    let worker = Selector::Worker(draw.index(shape.workers));
    let node = if draw.chance(500) { scheduler } else { worker };
    Some(match family {
        Family::NodeCrash | Family::RollingRestart => (FaultKind::Crash, node, (5, 30)),
        Family::NodePause => (FaultKind::Pause, node, (2, 5)),
        Family::Network => (FaultKind::Isolate, node, (3, 15)),
        Family::Clock => (FaultKind::ClockDrift { per_mille: 10 }, node, (10, 40)),
        Family::DbJitter if draw.chance(300) => (FaultKind::DatabaseDown, Selector::World, (1, 6)),
        Family::DbJitter => (FaultKind::DatabaseSlow { ms: *draw.pick(&[100, 300, 1_000]) }, Selector::World, (10, 30)),
        Family::DbUnknown => (FaultKind::CommitAppliedAnswerLost { per_mille: 50 }, Selector::World, (5, 20)),
        Family::WakeUps => (FaultKind::WakeUpsDown, Selector::World, (10, 40)),
        Family::Handlers => (FaultKind::HandlersSlow { times: draw.between(2, 4) }, Selector::AllWorkers, (10, 30)),
        Family::RetryStorm => {
            let count = downstreams(tasks).len();
            if count == 0 {
                return None;
            }
            (FaultKind::RetryStorm { downstream: draw.index(count) }, Selector::World, (10, 30))
        }
        Family::DatabaseClock | Family::DbFailover | Family::DbLostTail | Family::Flood => return None,
    })
}

/// Somebody is going to read it.
fn whole_seconds(ms: u64) -> u64 {
    ms / 1_000 * 1_000
}
