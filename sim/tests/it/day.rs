//! A whole day of the example shop, told by a few rules of thumb: much to look at, for the pages.

use punctual_core::definition::{Blocking, Trigger};
use punctual_core::instance::{Cause, State};
use punctual_core::misfire;
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_core::time::Timestamp;
use punctual_sim::draw::Draw;
use punctual_sim::plan::{CallKind, Fault, FaultKind, Selector};
use punctual_sim::rehearsal::{Options, plan_of};

use crate::told::{HOUR, MINUTE, SECOND, Story};

/// The day of this seed.
pub(crate) fn day(seed: u64) -> Story {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/shop.yaml");
    let yaml = std::fs::read_to_string(path).unwrap();
    let options = Options { seed, ..Options::default() };
    let mut story = Story::with(&yaml, options.clone());
    story.plan.horizon_ms = story.plan.heal_at_ms + HOUR;
    let faults: Vec<Fault> = std::mem::take(&mut story.plan.faults);
    for fault in faults {
        story.fault(fault);
    }
    // One that nobody can overlook.
    let payments = story.plan.downstreams().iter().position(|name| *name == "payments").unwrap();
    let kind = FaultKind::RetryStorm { downstream: payments };
    story.fault(Fault { at_ms: 9 * HOUR, lasts_ms: 25 * MINUTE, kind, on: Selector::World });
    let calls = plan_of(&story.tasks, &options).calls;
    for task in 0..story.tasks.len() {
        let mut fires = fires(&story, task);
        fires.extend(
            calls.iter().filter(|call| matches!(call.what, CallKind::Trigger { task: other, .. } if other == task)).map(|call| call.at_ms),
        );
        fires.sort_unstable();
        tell_task(&mut story, task, &fires, &mut Draw::new(seed, &format!("day {task}")));
    }
    story
}

fn fires(story: &Story, task: usize) -> Vec<u64> {
    let start = Timestamp(story.plan.starts_at);
    let trigger = match &story.tasks[task].definition.trigger {
        Trigger::FixedDelay { interval } => Trigger::FixedRate { interval: *interval },
        other => other.clone(),
    };
    let first = misfire::first(&trigger, start);
    let times = std::iter::successors(first, |at| misfire::following(&trigger, *at)).map(|at| at.since(start).0);
    times.take_while(|at_ms| *at_ms < story.plan.horizon_ms - 10 * MINUTE).collect()
}

/// When the world has no scheduler, or no database, for a while.
fn standstill(story: &Story, at_ms: u64) -> u64 {
    let stops = |fault: &Fault| match fault.kind {
        FaultKind::DatabaseDown => fault.lasts_ms,
        FaultKind::Crash | FaultKind::Pause | FaultKind::Isolate if matches!(fault.on, Selector::Owner(_) | Selector::Scheduler(_)) => {
            fault.lasts_ms.min(14 * SECOND)
        }
        FaultKind::Crash | FaultKind::Pause if matches!(fault.on, Selector::AllSchedulers | Selector::Everybody) => fault.lasts_ms,
        _ => 0,
    };
    let stopped = story.plan.faults.iter().filter(|fault| (fault.at_ms..fault.at_ms + stops(fault)).contains(&at_ms));
    stopped.map(|fault| fault.at_ms + stops(fault) - at_ms).max().unwrap_or(0)
}

fn goes_on(story: &Story, at_ms: u64, is_kind: impl Fn(FaultKind) -> bool) -> bool {
    story.plan.faults.iter().any(|fault| is_kind(fault.kind) && (fault.at_ms..fault.at_ms + fault.lasts_ms).contains(&at_ms))
}

fn tell_task(story: &mut Story, task: usize, fires: &[u64], draw: &mut Draw) {
    let name = story.tasks[task].spec.name.clone();
    let definition = story.tasks[task].definition.clone();
    let handler = story.plan.tasks[task].handler.clone();
    let service = handler.downstream.as_deref().map(|name| story.plan.downstreams().iter().position(|other| *other == name).unwrap());
    let policies = &definition.policies;
    let by_hand = !matches!(definition.trigger, Trigger::Cron(_) | Trigger::FixedRate { .. } | Trigger::FixedDelay { .. });
    let cause = if by_hand { Cause::Triggered } else { Cause::Fired };
    let mut ends: Vec<u64> = Vec::new();
    for &fire_ms in fires {
        let made_ms = fire_ms + standstill(story, fire_ms) + draw.between(1, 25);
        ends.retain(|end_ms| *end_ms > made_ms);
        let is_full = ends.len() >= policies.concurrency.max_running as usize;
        let waiting = ends.len().saturating_sub(policies.concurrency.max_running as usize) as u64;
        let id = match policies.concurrency.blocking {
            Blocking::Discard if is_full => {
                story.dropped(&name, made_ms, Outcome::LimitReached, 1);
                continue;
            }
            Blocking::Queue { max_queue } if is_full && waiting >= max_queue.into() => {
                story.dropped(&name, made_ms, Outcome::QueueFull, 1);
                continue;
            }
            Blocking::Queue { .. } if is_full => story.made(&name, fire_ms, made_ms, State::Waiting, Cause::LimitReached),
            _ => story.made(&name, fire_ms, made_ms, State::Created, cause),
        };
        let mut at_ms = made_ms;
        if is_full && matches!(policies.concurrency.blocking, Blocking::Queue { .. }) {
            ends.sort_unstable();
            at_ms = at_ms.max(ends[ends.len() - policies.concurrency.max_running as usize]);
            if at_ms >= story.plan.horizon_ms {
                ends.push(u64::MAX);
                continue;
            }
            story.becomes(id, at_ms, State::Created, Cause::SlotFree);
        }
        at_ms += draw.between(2, 40);
        let most = policies.retry.max_attempts.unwrap_or(1);
        for attempt in 1.. {
            let slow = if goes_on(story, at_ms, |kind| matches!(kind, FaultKind::HandlersSlow { .. })) { 3 } else { 1 };
            let takes = draw.between(handler.takes_ms.0, handler.takes_ms.1) * slow;
            let storms = goes_on(story, at_ms, |kind| matches!(kind, FaultKind::RetryStorm { downstream } if Some(downstream) == service));
            let until_ms = at_ms + if storms { takes.min(500) } else { takes };
            if until_ms >= story.plan.horizon_ms {
                story.begins(id, at_ms);
                at_ms = until_ms;
                break;
            }
            let fails = storms || draw.chance(u64::from(handler.fails_per_mille));
            if !fails && draw.chance(4) {
                if !definition.idempotent {
                    story.is_lost(id, at_ms, until_ms, State::DeadLettered, Cause::OutcomeUnknown);
                    at_ms = until_ms;
                    break;
                }
                story.is_lost(id, at_ms, until_ms, State::Retrying, Cause::WorkerLost);
            } else if !fails {
                story.succeeds(id, at_ms, until_ms);
                at_ms = until_ms;
                break;
            } else {
                story.begins(id, at_ms);
                story.handler_ends(id, until_ms, Some(End::Failed));
                if attempt >= most {
                    let state = if most > 1 { State::DeadLettered } else { State::Failed };
                    story.becomes(id, until_ms, state, if most > 1 { Cause::AttemptsExhausted } else { Cause::Finished });
                    at_ms = until_ms;
                    break;
                }
                story.becomes(id, until_ms, State::Retrying, Cause::Finished);
            }
            at_ms = until_ms + policies.retry.backoff.delay(attempt, draw.below(u64::MAX)).0;
            story.becomes(id, at_ms, State::Created, Cause::BackoffElapsed);
        }
        ends.push(at_ms);
    }
}
