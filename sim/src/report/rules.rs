//! The rules. Each looks at one task, or one service, and says at most one thing: what was seen, in numbers, and which field to change.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::cron::{GapPolicy, Mark, OverlapPolicy, Schedule};
use punctual_core::definition::{Blocking, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::limits;
use punctual_core::occurrence::Outcome;

use super::findings::{Finding, Severity, Subject};
use super::observe::Facts;
use super::{DownstreamReport, Numbers, numbers, words};

/// A fire waits for a new owner about this long when its scheduler dies: the lease runs out, and the partition is read.
const TAKEOVER_MS: u64 = limits::PARTITION_LEASE.0 + limits::MISFIRE_THRESHOLD.0;
/// Of a thousand runs so many are longer than the interval, and it is no accident.
const LONGER_PER_MILLE: u64 = 100;
/// Of a thousand fire times so many are discarded, or of a thousand instances replaced, and it is worth a word.
const DISCARDED_PER_MILLE: u64 = 50;
/// Calls of a service in the worst minute, in usual minutes.
const AMPLIFIED_TIMES: u64 = 3;
/// Fewer calls a minute than this harm nobody; as many as this are serious.
const AMPLIFIED_CALLS: (u64, u64) = (30, 100);
/// Of a thousand runs so many are longer than the timeout.
const TIMED_OUT_PER_MILLE: u64 = 50;
/// Of a thousand slots so many were taken: there was no room.
const FULL_PER_MILLE: u64 = 900;
/// A wait for a worker that is longer than this, and than the interval, is starving.
const STARVED_MS: u64 = 10 * 60_000;
/// What had less time than this after the healing may still be on its way.
const SETTLED_MS_MIN: u64 = 60_000;
/// Of a thousand instances so many ended wrong.
const WRONG_PER_MILLE: u64 = 50;
/// Tasks in the same second.
const HERD_MIN: usize = 10;

/// The rule that others follow from.
pub(super) const OVERLOAD: &str = "overload";
/// What is no news of a task that can't keep up.
pub(super) const FOLLOW_FROM_OVERLOAD: &[&str] = &["discarded", "starved", "unfinished"];

/// A rule about tasks.
type Rule = fn(Subject) -> Option<Finding>;

/// The rules about tasks, in the order in which they speak.
pub(super) const FOR_TASKS: [Rule; 12] = [
    overload,
    discarded,
    replaced,
    never_ran,
    ended_wrong,
    retries_without_effect,
    not_idempotent,
    timeout_too_short,
    misfire_deadline,
    starved,
    unfinished,
    daylight,
];

fn finding(subject: Subject, severity: Severity, rule: &str, field: &str, what: String, advice: impl Into<String>) -> Option<Finding> {
    let field = if field.is_empty() { None } else { Some(field.to_owned()) };
    let about = Some(subject.task.name.clone());
    Some(Finding { severity, rule: rule.to_owned(), about, what, advice: advice.into(), field })
}

fn per_mille(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1_000).checked_div(whole).unwrap_or(0)
}

fn definition(subject: Subject<'_>) -> Option<&TaskDefinition> {
    subject.task.definition.as_ref()
}

fn outcome(numbers: &Numbers, outcome: Outcome) -> u64 {
    numbers.dropped.get(outcome.name()).copied().unwrap_or(0)
}

/// Runs that are longer than what the interval leaves for them.
fn overload(subject: Subject) -> Option<Finding> {
    let concurrency = definition(subject)?.policies.concurrency;
    let Blocking::Queue { max_queue } = concurrency.blocking else { return None };
    let interval_ms = subject.report.interval_ms?;
    let numbers = &subject.report.numbers;
    let running = u64::from(concurrency.max_running);
    let runs: Vec<u64> = numbers::whole_run_times(subject.task).collect();
    let (count, sum) = (runs.len() as u64, runs.iter().sum::<u64>());
    let mean_ms = sum.checked_div(count).filter(|_| count >= 5)?;
    let room_ms = interval_ms.saturating_mul(running);
    let longer = runs.iter().filter(|run| **run > room_ms).count() as u64;
    let full = outcome(numbers, Outcome::QueueFull);
    let at_once = if running == 1 { "only one may be in progress".to_owned() } else { format!("{running} may be in progress") };
    let fires = format!(
        "It fires every {} and a run takes {} on average, up to {}",
        words::duration(interval_ms),
        words::duration(mean_ms),
        words::duration(numbers.runs.max_ms)
    );
    if mean_ms > room_ms {
        let lost = match full {
            0 => format!("{} waited, and so they pile up without end", words::count(numbers.limit_reached, "fire")),
            full => format!(
                "its queue of {max_queue} fills up, and {} of {} ({}) {} discarded",
                words::thousands(full),
                words::count(numbers.expected, "fire time"),
                words::share(full, numbers.expected),
                words::was(full)
            ),
        };
        let what = format!("{fires}, but {at_once}: {lost}. The longest wait was {}.", words::duration(numbers.queue_wait.max_ms));
        // Half as much again for retries and bad days, and one more.
        let fits = (mean_ms + mean_ms / 2).div_ceil(interval_ms) + 1;
        let advice = format!(
            "Use `max_running: {fits}` if runs may overlap; if not, fire less often than a run takes. `when_full: discard` ends \
             the queue, and leaves out the fire times that come too soon."
        );
        return finding(subject, Severity::Serious, OVERLOAD, "concurrency.max_running", what, advice);
    }
    if per_mille(longer, count) < LONGER_PER_MILLE || numbers.limit_reached == 0 {
        return None;
    }
    let what = format!(
        "{fires}: {} of {} ({}) took longer than the interval, and {} had to wait, up to {}.",
        words::thousands(longer),
        words::count(count, "run"),
        words::share(longer, count),
        words::count(numbers.limit_reached, "fire"),
        words::duration(numbers.queue_wait.max_ms)
    );
    let advice = format!("Use `max_running: {}` if runs may overlap; if not, leave more time between fires.", running + 1);
    finding(subject, Severity::Warning, "runs-over-interval", "concurrency.max_running", what, advice)
}

/// Fire times that were discarded because the task was at its limit.
fn discarded(subject: Subject) -> Option<Finding> {
    let numbers = &subject.report.numbers;
    let full = outcome(numbers, Outcome::QueueFull);
    let discarded = outcome(numbers, Outcome::LimitReached) + full;
    let share = per_mille(discarded, numbers.expected);
    // One or two are an accident, whatever share they are.
    if (share < DISCARDED_PER_MILLE || discarded < 3) && full == 0 {
        return None;
    }
    let why = if full > 0 { "the queue was full" } else { "another run was still in progress" };
    let what = format!(
        "{} of {} ({}) {} discarded because {why}. Runs take up to {}.",
        words::thousands(discarded),
        words::count(numbers.expected, "fire time"),
        words::share(discarded, numbers.expected),
        words::was(discarded),
        words::duration(numbers.runs.max_ms)
    );
    // A limit that discards was chosen.
    let (severity, field, advice) = if full > 0 {
        (Severity::Serious, "concurrency.max_queue", "Raise `max_queue` if these are peaks, or `max_running` if it is always so.")
    } else {
        let advice = "That is what `when_full: discard` is for. If each fire time counts, raise `max_running`, or fire less often.";
        (Severity::Note, "concurrency.max_running", advice)
    };
    finding(subject, severity, "discarded", field, what, advice)
}

/// Runs that were cancelled for the next one.
fn replaced(subject: Subject) -> Option<Finding> {
    let numbers = &subject.report.numbers;
    let replaced = subject.task.instances.iter().filter(|instance| instance.count(Cause::Replaced) > 0).count() as u64;
    if per_mille(replaced, numbers.fired) < DISCARDED_PER_MILLE {
        return None;
    }
    let what = format!(
        "{} of {} ({}) {} cancelled because the next one came. Runs take up to {}.",
        words::thousands(replaced),
        words::count(numbers.fired, "instance"),
        words::share(replaced, numbers.fired),
        words::was(replaced),
        words::duration(numbers.runs.max_ms)
    );
    let advice = "That is what `when_full: replace` is for, but a run that is always replaced never ends: raise `max_running`, or fire \
                  less often than a run takes.";
    finding(subject, Severity::Warning, "replaced", "concurrency.max_running", what, advice)
}

/// Tasks of which no handler ever began.
fn never_ran(subject: Subject) -> Option<Finding> {
    let numbers = &subject.report.numbers;
    let definition = definition(subject)?;
    if numbers.attempts > 0 || !definition.enabled {
        return None;
    }
    if numbers.expected == 0 {
        let hours = words::hours(subject.facts.plan.heal_at_ms);
        let nothing = match definition.trigger {
            Trigger::Manual => "Nobody triggered it",
            _ => "It has no fire time",
        };
        let what = format!("{nothing} in this rehearsal of {hours}, so nothing is known of it.");
        return finding(
            subject,
            Severity::Note,
            "never-due",
            "trigger",
            what,
            "Rehearse more hours, or begin nearer to its fire time with --start.",
        );
    }
    let what = format!("Not one of its {} led to a run.", words::count(numbers.expected, "fire time"));
    finding(
        subject,
        Severity::Serious,
        "never-ran",
        "misfire",
        what,
        "See what became of them below, and change the policy that dropped them.",
    )
}

/// Instances that ended wrong, more than now and then.
fn ended_wrong(subject: Subject) -> Option<Finding> {
    let numbers = &subject.report.numbers;
    let wrong = numbers.gone_wrong();
    let unknown = subject.task.instances.iter().filter(|instance| instance.count(Cause::OutcomeUnknown) > 0).count() as u64;
    // Those have a rule of their own.
    let wrong = wrong.saturating_sub(unknown + numbers.in_state(State::TimedOut.name()));
    if wrong < 3 || per_mille(wrong, numbers.fired) < WRONG_PER_MILLE {
        return None;
    }
    let share = words::share(wrong, numbers.fired);
    let of = format!("{} of {} ({share}) failed for good", words::thousands(wrong), words::count(numbers.fired, "instance"));
    let definition = definition(subject)?;
    match definition.policies.retry.max_attempts {
        // That has a rule of its own.
        Some(2..) if !definition.idempotent => None,
        None => {
            let what = format!("{of}: it has no retries, so the first failure is final.");
            finding(
                subject,
                Severity::Warning,
                "no-retries",
                "retry.max_attempts",
                what,
                "Set `max_attempts` to 3 or more with a `first` wait that outlasts a hiccup.",
            )
        }
        Some(most) => {
            let what = format!("{of} after up to {}.", words::count(most.into(), "attempt"));
            let advice = "Raise `max_attempts` or the waits, so that retries outlast an outage; or see why it fails so often.";
            finding(subject, Severity::Warning, "retries-exhausted", "retry", what, advice)
        }
    }
}

/// Retries that never come, because the task is not idempotent.
fn retries_without_effect(subject: Subject) -> Option<Finding> {
    let definition = definition(subject)?;
    let most = definition.policies.retry.max_attempts.filter(|most| *most > 1)?;
    let failed = subject.report.numbers.in_state(State::Failed.name());
    if definition.idempotent || failed == 0 {
        return None;
    }
    let what = format!(
        "{} of {} failed at the first attempt and were not tried again: it has {most} attempts, \
         but a task that is not idempotent is never repeated.",
        words::thousands(failed),
        words::count(subject.report.numbers.fired, "instance")
    );
    let advice = "Have the handler use its idempotency key and set `idempotent: true`; or say what is so, with `max_attempts: 1`.";
    finding(subject, Severity::Warning, "retries-without-effect", "idempotent", what, advice)
}

/// Dead letters because nobody knows how far a lost attempt got.
fn not_idempotent(subject: Subject) -> Option<Finding> {
    if definition(subject)?.idempotent {
        return None;
    }
    let unknown = subject.task.instances.iter().filter(|instance| instance.count(Cause::OutcomeUnknown) > 0).count() as u64;
    if unknown == 0 {
        return None;
    }
    let what = format!(
        "{} of {} ended in the dead letters, for a person to look at: a worker was lost while it may \
         have been at work, and the task is not idempotent.",
        words::thousands(unknown),
        words::count(subject.report.numbers.fired, "instance")
    );
    let advice = "Have the handler use its idempotency key and set `idempotent: true`; until then make sure that \
     somebody looks at the dead letters.";
    finding(subject, Severity::Warning, "dead-letters-after-loss", "idempotent", what, advice)
}

/// A timeout that ends runs which were going well.
fn timeout_too_short(subject: Subject) -> Option<Finding> {
    let after_ms = definition(subject)?.policies.timeout.after?.0;
    let numbers = &subject.report.numbers;
    let takes_ms = subject.task.handler.takes_ms;
    let usual_ms = takes_ms.0.midpoint(takes_ms.1);
    // By what the file says of its runs: in one rehearsal there may be a single one.
    let longer = match takes_ms.1.saturating_sub(takes_ms.0) {
        _ if after_ms >= takes_ms.1 => 0,
        0 => 1_000,
        spread => per_mille(takes_ms.1 - after_ms.max(takes_ms.0), spread),
    };
    if longer < TIMED_OUT_PER_MILLE || numbers.timeouts == 0 {
        return None;
    }
    let severity = if after_ms <= usual_ms { Severity::Serious } else { Severity::Warning };
    let what = format!(
        "It may run for {}, and by its `rehearsal.takes` a run takes {} to {}, {} of them longer than that; {} of {} ran out of time.",
        words::duration(after_ms),
        words::duration(takes_ms.0),
        words::duration(takes_ms.1),
        words::share(longer, 1_000),
        words::thousands(numbers.timeouts),
        words::count(numbers.attempts, "attempt")
    );
    let advice = format!(
        "Raise `timeout.after` well above the longest run, to {} or so, or correct `rehearsal.takes`.",
        words::duration(takes_ms.1.saturating_mul(2))
    );
    finding(subject, severity, "timeout-too-short", "timeout.after", what, advice)
}

/// A deadline that is over before anybody else can take over.
fn misfire_deadline(subject: Subject) -> Option<Finding> {
    let deadline_ms = definition(subject)?.policies.misfire.deadline?.0;
    let passed = outcome(&subject.report.numbers, Outcome::DeadlinePassed);
    if deadline_ms >= TAKEOVER_MS || passed == 0 {
        return None;
    }
    let what = format!(
        "Its deadline of {} gave up {}: it is over before the {} in which another scheduler takes over.",
        words::duration(deadline_ms),
        words::count(passed, "fire time"),
        words::duration(TAKEOVER_MS)
    );
    let advice = format!("Set the deadline to {} or more.", words::duration(2 * TAKEOVER_MS));
    finding(subject, Severity::Warning, "misfire-deadline-too-short", "misfire.deadline", what, advice)
}

/// Instances that waited very long for their first worker.
fn starved(subject: Subject) -> Option<Finding> {
    let wait = subject.report.numbers.queue_wait;
    let bound_ms = subject.report.interval_ms.unwrap_or(0).max(STARVED_MS);
    if wait.max_ms <= bound_ms {
        return None;
    }
    let what = format!(
        "An instance waited {} for its first worker; 99 of a hundred waited {} at most, half {}.",
        words::duration(wait.max_ms),
        words::duration(wait.p99_ms),
        words::duration(wait.p50_ms)
    );
    if let Some(holder) = slots_taken(subject) {
        let shape = subject.facts.plan.shape;
        let slots = words::count((shape.workers as u64).saturating_mul(shape.slots.into()), "slot");
        let what = format!("{what} All the workers have {slots}, and they were taken meanwhile, most of the time by `{holder}`.");
        let advice = "Run more workers, or give them more slots: --workers and --slots show here how many it takes.";
        return finding(subject, Severity::Warning, "starved", "", what, advice);
    }
    let (field, advice) = if subject.report.numbers.limit_reached > 0 {
        ("concurrency", "They wait behind the task's own limit: raise `max_running`, or keep the queue short with `max_queue`.")
    } else {
        ("", "The workers had room: see in the timeline what was wrong then.")
    };
    finding(subject, Severity::Warning, "starved", field, what, advice)
}

/// Whether the workers had no room while the instance that waited longest did: the name of the task that held most of it.
fn slots_taken(subject: Subject<'_>) -> Option<&str> {
    let facts = subject.facts;
    let waits = subject.task.instances.iter().filter_map(|instance| Some((instance.queue_wait_ms()?, instance.dispatched_ms?)));
    let (wait_ms, until_ms) = waits.max()?;
    let from_ms = until_ms.saturating_sub(wait_ms);
    let overlap_ms = |task: &super::observe::TaskFacts| {
        let attempts = task.instances.iter().flat_map(|instance| &instance.attempts);
        let of_one = attempts.map(|attempt| {
            let ended_ms = attempt.ended_ms.unwrap_or(facts.end_ms());
            ended_ms.min(until_ms).saturating_sub(attempt.began_ms.max(from_ms))
        });
        of_one.sum::<u64>()
    };
    let held: Vec<u64> = facts.tasks.iter().map(overlap_ms).collect();
    let slots = (facts.plan.shape.workers as u64).saturating_mul(facts.plan.shape.slots.into());
    let (most, _) = held.iter().enumerate().rev().max_by_key(|(_, ms)| **ms)?;
    let is_full = per_mille(held.iter().sum(), slots.saturating_mul(wait_ms)) >= FULL_PER_MILLE;
    is_full.then(|| facts.tasks[most].name.as_str())
}

/// Instances that had not ended when all had been well for a while.
fn unfinished(subject: Subject) -> Option<Finding> {
    let facts = subject.facts;
    let settled_ms = facts.end_ms().saturating_sub(facts.plan.heal_at_ms);
    if settled_ms < SETTLED_MS_MIN {
        return None;
    }
    let healed_ms = i64::try_from(facts.plan.heal_at_ms).unwrap_or(i64::MAX);
    let left = subject.task.instances.iter().filter(|instance| !instance.state.is_terminal() && instance.fire_ms < healed_ms);
    let left = left.count() as u64;
    if left == 0 {
        return None;
    }
    let after = words::duration(settled_ms);
    let what = format!("{} from before the healing had not ended {after} after it.", words::count(left, "instance"));
    finding(subject, Severity::Warning, "unfinished", "", what, "See in its line of the timeline when it fell behind.")
}

/// What daylight saving does to a task within the run.
fn daylight(subject: Subject) -> Option<Finding> {
    let definition = definition(subject).filter(|definition| definition.enabled)?;
    let Trigger::Cron(schedule) = &definition.trigger else { return None };
    let (begin, end) = (subject.facts.wall(0), subject.facts.wall(subject.facts.end_ms()));
    let marks = |gap| {
        let schedule = Schedule::new(schedule.expression().clone(), schedule.zone().clone(), gap, schedule.overlap());
        let mut marks = Vec::new();
        let mut at = begin;
        // A task that fires more often than this has no fixed times that a night could take from it.
        for _ in 0..FIRES_MAX {
            let Some(fire) = schedule.explain(at, 1).first().copied().filter(|fire| fire.at <= end) else { break };
            marks.push((fire.local, fire.mark));
            at = fire.at;
        }
        marks
    };
    let zone = schedule.zone().iana_name().unwrap_or("its zone");
    if let Some((local, _)) = marks(GapPolicy::AfterGap).into_iter().find(|(_, mark)| *mark == Mark::AfterGap) {
        let (severity, becomes) = match schedule.gap() {
            GapPolicy::AfterGap => (Severity::Note, "it fires once, right after the gap"),
            GapPolicy::ShiftForward => (Severity::Note, "it fires later by the length of the gap"),
            GapPolicy::Skip => (Severity::Warning, "it does not fire that day"),
        };
        let what = format!("In {zone} the clock jumps on {} over a time at which it would fire: {becomes}.", local.date());
        return finding(
            subject,
            severity,
            "daylight-gap",
            "trigger.gap",
            what,
            "If that is not what you mean, choose another `gap`, or an hour that is never left out.",
        );
    }
    if schedule.overlap() == OverlapPolicy::Both
        && let Some((local, _)) = marks(schedule.gap()).into_iter().find(|(_, mark)| *mark == Mark::SecondPass)
    {
        let what = format!("In {zone} {:02}:{:02} comes twice on {}, and it fires both times.", local.hour(), local.minute(), local.date());
        return finding(
            subject,
            Severity::Note,
            "daylight-overlap",
            "trigger.overlap",
            what,
            "If once is enough, use `overlap: first` or `last`.",
        );
    }
    None
}

/// Most fire times that are looked at for what the clock did.
const FIRES_MAX: usize = 3_000;

/// Retries that came down on a service all at once.
pub(super) fn retry_amplification(facts: &Facts, downstream: &DownstreamReport) -> Option<Finding> {
    let bound = downstream.usual_per_minute.saturating_mul(AMPLIFIED_TIMES).max(AMPLIFIED_CALLS.0);
    if downstream.peak_per_minute < bound || downstream.peak_retries_per_minute * 2 < downstream.peak_per_minute {
        return None;
    }
    let what = format!(
        "At {} it got {} in a minute, {} of them retries; {} is usual. Over the whole run it was called {} times for each instance.",
        words::clock(facts.plan.starts_at, downstream.peak_at_ms),
        words::count(downstream.peak_per_minute, "call"),
        words::thousands(downstream.peak_retries_per_minute),
        words::thousands(downstream.usual_per_minute),
        words::times(downstream.amplification_per_mille)
    );
    // Whoever retries fastest is to blame.
    let calls = |task: &&super::observe::TaskFacts| task.handler.downstream.as_deref() == Some(downstream.name.as_str());
    let retries =
        |task: &super::observe::TaskFacts| task.instances.iter().map(|instance| instance.attempts.len().saturating_sub(1)).sum::<usize>();
    let worst = facts.tasks.iter().filter(calls).rev().max_by_key(|task| retries(task))?;
    let advice = format!(
        "Most of them come from `{}`: let it wait longer between attempts with `retry.first` and `cap`, and spread them with \
         `jitter: full`.",
        worst.name
    );
    let about = Some(downstream.name.clone());
    Some(Finding {
        severity: if downstream.peak_per_minute >= AMPLIFIED_CALLS.1 { Severity::Serious } else { Severity::Warning },
        rule: "retry-amplification".to_owned(),
        about,
        what,
        advice,
        field: Some("retry".to_owned()),
    })
}

/// Many tasks in the same second.
pub(super) fn herd(facts: &Facts) -> Option<Finding> {
    let mut seconds: BTreeMap<i64, BTreeSet<usize>> = BTreeMap::new();
    for (index, task) in facts.tasks.iter().enumerate() {
        if !task.definition.as_ref().is_some_and(|definition| matches!(definition.trigger, Trigger::Cron(_))) {
            continue;
        }
        for instance in task.instances.iter().filter(|instance| instance.origin == Origin::Schedule) {
            seconds.entry(instance.fire_ms.div_euclid(1_000)).or_default().insert(index);
        }
    }
    let (second, tasks) = seconds.iter().rev().max_by_key(|(_, tasks)| tasks.len())?;
    if tasks.len() < HERD_MIN {
        return None;
    }
    let slots = facts.plan.shape.workers * facts.plan.shape.slots as usize;
    let times = seconds.values().filter(|others| others.len() == tasks.len()).count() as u64;
    let more = if tasks.len() > slots { format!(", more than the {slots} that run at once") } else { String::new() };
    let names: Vec<&str> = tasks.iter().take(3).map(|task| facts.tasks[*task].name.as_str()).collect();
    let what = format!(
        "{} tasks fire in the same second{more}, {} in this run, first at {}: {} and others.",
        tasks.len(),
        words::count(times, "time"),
        words::clock(facts.plan.starts_at, u64::try_from(second * 1_000).unwrap_or(0)),
        names.join(", ")
    );
    Some(Finding {
        severity: if tasks.len() > slots { Severity::Warning } else { Severity::Note },
        rule: "herd".to_owned(),
        about: None,
        what,
        advice: "Spread them over minutes that nobody else uses, such as 7 and 23 in place of 0.".to_owned(),
        field: Some("trigger.cron".to_owned()),
    })
}
