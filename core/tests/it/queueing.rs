//! Who goes first where workers are short, how often a task may start, and slots that are kept for a band.

use std::sync::Arc;

use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::definition::{Band, Blocking, ConcurrencyPolicy, TaskDefinition, Trigger};
use punctual_core::instance::State;
use punctual_core::limits;
use punctual_core::protocol::End;
use punctual_core::rate::RateLimit;
use punctual_core::time::Millis;
use punctual_sim::tabletop::{every, task};

use crate::desk::Desk;

/// A manual task of which any number may run.
pub(crate) fn roomy(name: &str) -> TaskDefinition {
    let mut definition = task(name, Trigger::Manual);
    Arc::make_mut(&mut definition.policies).concurrency =
        ConcurrencyPolicy { max_running: limits::MAX_RUNNING_MAX, blocking: Blocking::Discard };
    definition
}

fn in_band(name: &str, band: Band) -> TaskDefinition {
    TaskDefinition { band, ..roomy(name) }
}

fn rated(name: &str, starts: u32, per: u64) -> TaskDefinition {
    let mut definition = roomy(name);
    Arc::make_mut(&mut definition.policies).rate = Some(RateLimit { starts, per: Millis(per) });
    definition
}

fn most_in_any(window: u64, starts: &[u64]) -> usize {
    starts.iter().map(|first| starts.iter().filter(|at| (*first..first + window).contains(*at)).count()).max().unwrap_or(0)
}

/// C375: capacity is one a second. Each second one of the highest level comes, for ever; one of the lowest came first.
#[test]
fn the_lowest_level_starts_when_it_has_waited_for_the_difference() {
    let mut desk = Desk::new();
    desk.takes = [("high", 1_000), ("low", 1_000)].into();
    let high = TaskDefinition { trigger: every(1), level: limits::LEVEL_MAX, ..roomy("high") };
    let low = desk.define(TaskDefinition { level: 0, ..roomy("low") });
    desk.define(high);
    desk.trigger(low, 1);
    // The worker comes when one of the highest level waits already.
    desk.run(1_000);
    desk.worker("w", 1);
    desk.run(400_000);
    let bound = u64::from(limits::LEVEL_MAX) * limits::AGING_INTERVAL.0;
    let began = desk.starts_of("low");
    assert_eq!(began.len(), 1);
    assert!((bound..=bound + 1_000).contains(&began[0]), "it began at {began:?}, and was to at {bound} or a second later");
    assert_eq!(desk.starts_of("high").len() as u64, 400, "the worker was never idle: one place was the other's");
}

#[test]
fn a_band_goes_by_level_then_by_who_was_ready_first() {
    let mut desk = Desk::new();
    desk.takes = [("a", 10), ("b", 10), ("c", 10)].into();
    let levels = [("a", 5), ("b", 7), ("c", 5)];
    let tasks = levels.map(|(name, level)| desk.define(TaskDefinition { level, ..roomy(name) }));
    for task in tasks {
        desk.trigger(task, 2);
        desk.run(5);
    }
    desk.worker("w", 1);
    desk.run(1_000);
    let order: Vec<_> = desk.starts.iter().map(|start| &*start.task).collect();
    assert_eq!(order, ["b", "b", "a", "a", "c", "c"]);
}

#[test]
fn one_that_is_given_back_or_tried_again_keeps_its_place() {
    let mut desk = Desk::new();
    desk.ends = [("first", End::Failed)].into();
    let mut first = roomy("first");
    let retry = &mut Arc::make_mut(&mut first.policies).retry;
    retry.max_attempts = Some(3);
    retry.backoff = BackoffPolicy { kind: Backoff::Fixed, first: Millis(100), cap: Millis(100), jitter: Jitter::None };
    let (first, second) = (desk.define(first), desk.define(roomy("second")));
    desk.worker("w", 1);
    desk.trigger(first, 1);
    desk.run(10);
    desk.trigger(second, 5);
    desk.run(10);
    desk.give_back(&desk.starts[0].clone());
    desk.run(1_000);
    assert_eq!(desk.starts.iter().map(|start| &*start.task).collect::<Vec<_>>(), ["first", "first"]);
    desk.takes = [("second", 60)].into();
    desk.end(&desk.starts[1].clone());
    desk.run(1_000);
    let order: Vec<_> = desk.starts.iter().map(|start| &*start.task).collect();
    assert_eq!(order[2..5], ["second", "second", "first"], "two had their turn while it waited to be tried again");
}

/// It would wait again, and what waits when its task is removed is cancelled.
#[test]
fn what_is_given_back_does_not_start_when_its_task_was_removed() {
    let mut desk = Desk::new();
    let task = desk.define(roomy("t"));
    desk.worker("w", 1);
    desk.trigger(task, 1);
    desk.run(10);
    desk.remove(task);
    desk.run(10);
    assert_eq!(desk.states(task), [State::Dispatched]);
    desk.give_back(&desk.starts[0].clone());
    desk.run(60_000);
    assert_eq!((desk.states(task), desk.starts.len()), (vec![State::Cancelled], 1));
}

#[test]
fn a_low_instance_is_passed_over_by_two_turns_at_most_whatever_route_the_others_take() {
    let mut desk = Desk::new();
    desk.takes = [("urgent", 100), ("normal", 100), ("low", 100)].into();
    // Routes of their own on the same worker: it has both tags.
    let tagged = |definition: TaskDefinition, tag: &str| TaskDefinition {
        routing: Some(Arc::new(punctual_core::routing::Routing { tags: vec![Arc::from(tag)], ..Default::default() })),
        ..definition
    };
    let urgent = desk.define(tagged(in_band("urgent", Band::Urgent), "a=1"));
    let normal = desk.define(tagged(in_band("normal", Band::Normal), "b=2"));
    let low = desk.define(in_band("low", Band::Low));
    for task in [urgent, normal, low] {
        desk.trigger(task, 200);
    }
    desk.worker_with("w", 1, |hello| hello.traits.tags = vec![Arc::from("a=1"), Arc::from("b=2")]);
    desk.run(100 * 210 - 1);
    let count = |name| desk.starts.iter().filter(|start| &*start.task == name).count();
    assert_eq!([count("urgent"), count("normal"), count("low")], [160, 40, 10], "ten turns by weight");
    let gaps: Vec<_> = desk.starts_of("low").windows(2).map(|pair| (pair[1] - pair[0]) / 100 - 1).collect();
    assert!(gaps.iter().all(|others| *others <= 40), "{gaps:?}");
}

#[test]
fn a_busy_route_on_one_worker_takes_no_turn_from_another() {
    let mut desk = Desk::new();
    desk.takes = [("urgent", 100), ("low", 100), ("elsewhere", 1)].into();
    let only = |definition: TaskDefinition, tag: &str| TaskDefinition {
        routing: Some(Arc::new(punctual_core::routing::Routing { tags: vec![Arc::from(tag)], ..Default::default() })),
        ..definition
    };
    let urgent = desk.define(only(in_band("urgent", Band::Urgent), "a=1"));
    let low = desk.define(only(in_band("low", Band::Low), "a=1"));
    let elsewhere = desk.define(only(in_band("elsewhere", Band::Low), "b=2"));
    for (task, count) in [(urgent, 500), (low, 10), (elsewhere, 1_000), (elsewhere, 1_000), (elsewhere, 1_000)] {
        desk.trigger(task, count);
    }
    desk.worker_with("a", 1, |hello| hello.traits.tags = vec![Arc::from("a=1")]);
    desk.worker_with("b", 1, |hello| hello.traits.tags = vec![Arc::from("b=2")]);
    desk.run(3_000);
    assert!(desk.starts_of("elsewhere").len() > 1_000);
    assert!(!desk.starts_of("low").is_empty(), "its worker's turns are its worker's alone");
}

#[test]
fn a_task_at_its_rate_holds_up_nobody_and_comes_back_in_order() {
    let mut desk = Desk::new();
    desk.takes = [("limited", 1), ("other", 1)].into();
    let limited = desk.define(rated("limited", 10, 1_000));
    let other = desk.define(roomy("other"));
    desk.worker("w", 4);
    desk.trigger(limited, 100);
    desk.trigger(other, 50);
    desk.run(100);
    assert_eq!(desk.starts_of("limited").len(), 10);
    assert_eq!(desk.starts_of("other").len(), 50, "those behind it are not held up");
    assert_eq!(desk.scheduler.throttled_count(), 90);
    assert!(desk.scheduler.waiting_for().is_empty(), "what is throttled waits for no worker");
    desk.run(20_000);
    let starts = desk.starts_of("limited");
    assert_eq!(starts.len(), 100);
    assert!(most_in_any(1_000, &starts) <= 10, "{starts:?}");
    assert!(starts[99] <= 9 * 1_005 + 200, "no slower than the rate but for the coarseness of its log: {starts:?}");
    let order: Vec<_> = desk.starts.iter().filter(|start| &*start.task == "limited").map(|start| start.instance).collect();
    assert!(order.is_sorted(), "first in, first out: {order:?}");
    assert_eq!(desk.scheduler.throttled_count(), 0);
    assert_eq!(desk.scheduler.instance_count(), 0);
}

#[test]
fn repeated_attempts_count_against_the_rate_as_first_ones_do() {
    let mut desk = Desk::new();
    desk.takes = [("limited", 1)].into();
    desk.ends = [("limited", End::Failed)].into();
    let mut definition = rated("limited", 3, 1_000);
    let retry = &mut Arc::make_mut(&mut definition.policies).retry;
    retry.max_attempts = Some(4);
    retry.backoff = BackoffPolicy { kind: Backoff::Fixed, first: Millis(10), cap: Millis(10), jitter: Jitter::None };
    let limited = desk.define(definition);
    desk.worker("w", 4);
    desk.trigger(limited, 2);
    desk.run(20_000);
    let starts = desk.starts_of("limited");
    assert_eq!(starts.len(), 8);
    assert!(most_in_any(1_000, &starts) <= 3, "{starts:?}");
}

#[test]
fn the_rate_holds_over_a_takeover() {
    let mut desk = Desk::new();
    desk.takes = [("limited", 1)].into();
    let limited = desk.define(rated("limited", 5, 2_000));
    desk.worker("w", 10);
    desk.trigger(limited, 20);
    desk.run(500);
    assert_eq!(desk.starts_of("limited").len(), 5);
    desk.take_over();
    desk.run(20_000);
    let starts = desk.starts_of("limited");
    assert_eq!(starts.len(), 20);
    assert!(most_in_any(2_000, &starts) <= 5, "{starts:?}");
    assert!(starts[5] >= 2_500, "the new owner takes all for used up: {starts:?}");
}

#[test]
fn an_edit_of_the_rate_counts_at_once() {
    let mut desk = Desk::new();
    desk.takes = [("limited", 1)].into();
    let limited = desk.define(rated("limited", 2, 3_600_000));
    desk.worker("w", 10);
    desk.trigger(limited, 20);
    desk.run(500);
    assert_eq!(desk.starts_of("limited").len(), 2);
    desk.define(rated("limited", 6, 3_600_000));
    desk.run(500);
    assert_eq!(desk.starts_of("limited").len(), 6, "with what had started before");
    desk.define(roomy("limited"));
    desk.run(500);
    assert_eq!(desk.starts_of("limited").len(), 20);
}

#[test]
fn what_is_throttled_can_be_cancelled_and_its_task_removed() {
    let mut desk = Desk::new();
    desk.takes = [("limited", 1)].into();
    let limited = desk.define(rated("limited", 1, 1_000));
    desk.worker("w", 10);
    desk.trigger(limited, 5);
    desk.run(100);
    // The one that has the timer: the next in line still comes when it would have.
    let second = desk.instances(limited)[1];
    desk.cancel(second);
    desk.run(2_000);
    assert_eq!(desk.starts_of("limited"), [0, 1_000, 2_000]);
    desk.remove(limited);
    desk.run(5_000);
    assert_eq!(desk.starts_of("limited").len(), 3);
    let cancelled = desk.states(limited).iter().filter(|state| **state == State::Cancelled).count();
    assert_eq!((cancelled, desk.scheduler.throttled_count(), desk.scheduler.instance_count()), (2, 0, 0));
}

#[test]
fn what_is_released_and_finds_no_worker_waits_its_turn() {
    let mut desk = Desk::new();
    desk.takes = [("limited", 1)].into();
    let limited = desk.define(rated("limited", 2, 1_000));
    desk.worker("w", 10);
    desk.trigger(limited, 10);
    desk.run(100);
    desk.disconnect("w");
    desk.run(10_000);
    assert_eq!(desk.starts_of("limited").len(), 2);
    desk.worker("w", 10);
    desk.run(10_000);
    let starts = desk.starts_of("limited");
    assert_eq!(starts.len(), 10);
    assert!(most_in_any(1_000, &starts) <= 2, "{starts:?}");
}

#[test]
fn slots_that_are_kept_for_a_band_are_used_by_it_and_those_above() {
    let mut desk = Desk::new();
    let low = desk.define(in_band("low", Band::Low));
    let normal = desk.define(in_band("normal", Band::Normal));
    let urgent = desk.define(in_band("urgent", Band::Urgent));
    desk.worker_with("w", 6, |hello| hello.traits.reserved = [2, 1]);
    desk.trigger(low, 10);
    desk.run(10);
    assert_eq!(desk.starts_of("low").len(), 3);
    desk.trigger(normal, 10);
    desk.run(10);
    assert_eq!(desk.starts_of("normal").len(), 1);
    desk.trigger(urgent, 10);
    desk.run(10);
    assert_eq!(desk.starts_of("urgent").len(), 2);
    assert!(desk.alerts.is_empty(), "{:?}", desk.alerts);
}

#[test]
fn slots_that_are_kept_for_a_band_take_no_turn_from_those_below() {
    let mut desk = Desk::new();
    desk.takes = [("urgent", 10), ("low", 100)].into();
    let urgent = desk.define(in_band("urgent", Band::Urgent));
    let low = desk.define(in_band("low", Band::Low));
    for _ in 0..4 {
        desk.trigger(urgent, 1_000);
    }
    desk.trigger(low, 10);
    desk.worker_with("w", 2, |hello| hello.traits.reserved = [1, 0]);
    desk.run(10_000);
    assert!(desk.starts_of("low").len() >= 10, "{:?}: the slot for all is shared by turns", desk.starts_of("low"));
}

#[test]
fn a_worker_that_gives_account_is_tried_again_at_once() {
    let mut desk = Desk::new();
    desk.worker("w", 1);
    let plain = desk.define(roomy("plain"));
    desk.trigger(plain, 1);
    for _ in 0..4 {
        desk.give_back(&desk.starts.last().expect("it was given one").clone());
        desk.run(4_000);
    }
    let before = desk.starts.len();
    desk.give_back(&desk.starts[before - 1].clone());
    desk.run(100);
    assert_eq!(desk.starts.len(), before, "it was full a moment ago");
    desk.worker("w", 1);
    desk.run(10);
    assert_eq!(desk.starts.len(), before + 1);
}
