//! The figures of a report, on small histories.

use std::sync::Arc;

use punctual_core::batch::Batch;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::instance::{Cause, InstanceRow, State};
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_sim::check;
use punctual_sim::history::{What, Who};
use punctual_sim::plan::{Fault, FaultKind, Selector};
use punctual_sim::report::{Class, DownstreamReport, Judged, Numbers, Report, Spread, TaskReport};

use crate::told::{HOUR, MINUTE, Story, id_of};

fn spread(count: u64, p50_ms: u64, p99_ms: u64, max_ms: u64) -> Spread {
    Spread { count, p50_ms, p99_ms, max_ms }
}

fn counts(counts: &[(&str, u64)]) -> std::collections::BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

const TWO: &str = "tasks:\n\
    - {name: pay, trigger: {fixed_rate: 9m}, command: x, retry: {max_attempts: 3}, rehearsal: {downstream: bank}}\n\
    - {name: idle, trigger: manual, command: x}\n";

/// An hour of a task that fires every ten minutes: one on time, one with two failures, one lost and repeated, one that waits, one dropped,
/// one that never ends.
pub(crate) fn hour() -> Story {
    let mut story = Story::of(TWO, 1);
    let first = story.fired("pay", 10 * MINUTE);
    story.succeeds(first, 10 * MINUTE + 100, 11 * MINUTE);
    let second = story.fired("pay", 20 * MINUTE);
    story.fails(second, 20 * MINUTE + 200, 20 * MINUTE + 1_200, 21 * MINUTE);
    story.fails(second, 21 * MINUTE + 10, 21 * MINUTE + 1_010, 22 * MINUTE);
    story.fails_for_good(second, 22 * MINUTE + 10, 22 * MINUTE + 2_010);
    let third = story.fired("pay", 30 * MINUTE);
    story.is_lost(third, 30 * MINUTE + 300, 31 * MINUTE, State::Retrying, Cause::WorkerLost);
    story.becomes(third, 31 * MINUTE, State::Created, Cause::BackoffElapsed);
    let fourth = story.made("pay", 40 * MINUTE, 40 * MINUTE, State::Waiting, Cause::LimitReached);
    story.succeeds(third, 41 * MINUTE, 42 * MINUTE);
    story.becomes(fourth, 42 * MINUTE, State::Created, Cause::SlotFree);
    story.succeeds(fourth, 42 * MINUTE + 500, 43 * MINUTE);
    story.dropped("pay", 50 * MINUTE, Outcome::LimitReached, 1);
    let last = story.fired("pay", 60 * MINUTE - 1);
    story.begins(last, 60 * MINUTE - 1);
    story
}

#[test]
fn a_task_has_exact_figures() {
    let report = hour().report();
    let numbers = Numbers {
        expected: 6,
        fired: 5,
        dropped: counts(&[("limit_reached", 1)]),
        states: counts(&[("failed", 1), ("succeeded", 3)]),
        unfinished: 1,
        lateness: spread(5, 200, 120_500, 120_500),
        queue_wait: spread(5, 200, 120_500, 120_500),
        runs: spread(7, 59_500, 60_000, 60_000),
        attempts: 8,
        failures: 3,
        retries: 3,
        lost_workers: 1,
        timeouts: 0,
        limit_reached: 1,
        peak_running: 1,
    };
    let TaskReport { name, trigger, downstream, interval_ms, numbers: seen, .. } = &report.tasks[0];
    assert_eq!((name.as_str(), trigger.as_str(), downstream.as_deref(), *interval_ms), ("pay", "every 9m", Some("bank"), Some(540_000)));
    assert_eq!(*seen, numbers);
    assert_eq!(report.tasks[1].numbers, Numbers::default());
    assert_eq!(report.total, numbers, "the other task did nothing");
}

#[test]
fn a_service_has_exact_figures() {
    let report = hour().report();
    let expected = DownstreamReport {
        name: "bank".to_owned(),
        tasks: vec!["pay".to_owned()],
        instances: 5,
        calls: 8,
        failures: 4,
        retries: 3,
        amplification_per_mille: 1_600,
        usual_per_minute: 1,
        peak_per_minute: 1,
        peak_retries_per_minute: 0,
        peak_at_ms: 10 * MINUTE,
    };
    assert_eq!(report.downstreams, [expected]);
}

#[test]
fn the_run_over_time_has_exact_figures() {
    let mut story = hour();
    let kind = FaultKind::RetryStorm { downstream: 0 };
    story.fault(Fault { at_ms: 20 * MINUTE, lasts_ms: 2 * MINUTE, kind, on: Selector::World });
    story.fault(Fault { at_ms: 30 * MINUTE, lasts_ms: 0, kind: FaultKind::Reset, on: Selector::Worker(0) });
    let timeline = story.report().timeline;
    assert_eq!((timeline.bucket_ms, timeline.buckets.len()), (10_000, 360));
    let at = |ms: u64| &timeline.buckets[(ms / 10_000) as usize];
    assert_eq!((at(10 * MINUTE).fires, at(10 * MINUTE).lateness), (1, spread(1, 100, 100, 100)));
    assert_eq!((at(10 * MINUTE).running, at(10 * MINUTE).backlog), (1, 1));
    assert_eq!((at(10 * MINUTE + 30_000).running, at(10 * MINUTE + 30_000).backlog), (1, 0), "a level holds until it changes");
    assert_eq!((at(15 * MINUTE).running, at(15 * MINUTE).backlog), (0, 0));
    assert_eq!(at(40 * MINUTE + 10_000).backlog, 2, "one waits for a worker, one behind the limit");
    assert_eq!(timeline.buckets.iter().map(|bucket| bucket.retries[0]).sum::<u64>(), 3);
    let faults: Vec<_> = timeline.faults.iter().map(|fault| (fault.what.as_str(), fault.from_ms, fault.until_ms)).collect();
    assert_eq!(faults, [("all calls of bank fail", 20 * MINUTE, 22 * MINUTE), ("worker 0: connections reset", 30 * MINUTE, 30 * MINUTE)]);
    let lane = &timeline.lanes[0];
    let cells: Vec<_> = lane.cells.iter().map(|cell| (cell.fired, cell.late, cell.retried, cell.wrong, cell.dropped)).collect();
    assert_eq!(lane.task, 0, "the one with trouble first");
    assert_eq!(cells, [(1, 0, 0, 0, 0), (1, 0, 1, 1, 0), (1, 0, 1, 0, 0), (1, 1, 0, 0, 0), (0, 0, 0, 0, 1), (1, 0, 0, 1, 0)]);
}

#[test]
fn runs_that_overlap_are_seen_at_the_handlers() {
    let mut story = Story::of(TWO, 1);
    let zombie = story.fired("pay", 10 * MINUTE);
    story.begins(zombie, 10 * MINUTE);
    // The scheduler gives it up; the handler doesn't know.
    story.becomes(zombie, 11 * MINUTE, State::Retrying, Cause::WorkerLost);
    story.becomes(zombie, 11 * MINUTE, State::Created, Cause::BackoffElapsed);
    story.succeeds(zombie, 12 * MINUTE, 13 * MINUTE);
    assert_eq!(story.report().tasks[0].numbers.peak_running, 2);
}

#[test]
fn what_a_failover_has_undone_did_not_happen() {
    let mut story = Story::of(TWO, 1);
    let from = story.history().records.len();
    let lost = story.fired("pay", 10 * MINUTE);
    story.begins(lost, 10 * MINUTE);
    story.tell(10 * MINUTE + 1, Who::Database, What::TailLost { from });
    let again = story.made("pay", 10 * MINUTE, 10 * MINUTE + 2, State::Created, Cause::Fired);
    story.succeeds(again, 10 * MINUTE + 3, 11 * MINUTE);
    let numbers = &story.report().tasks[0].numbers;
    assert_eq!(numbers.states, counts(&[("succeeded", 1)]));
    assert_eq!((numbers.attempts, numbers.unfinished), (2, 1), "the handler did begin");
}

#[test]
fn loops_with_a_delay_and_triggers_by_hand_count_what_came() {
    let yaml = "tasks:\n- {name: loop, trigger: {fixed_delay: 10m}, command: x}\n- {name: hand, trigger: manual, command: x}\n\
        - {name: off, enabled: false, trigger: {fixed_rate: 1m}, command: x}\n- {name: night, trigger: {cron: '0 2 * * *'}, command: x}\n";
    let mut story = Story::of(yaml, 24);
    let fire = story.fired("loop", 10 * MINUTE);
    story.succeeds(fire, 10 * MINUTE, 11 * MINUTE);
    for task in ["hand", "off"] {
        let fire = story.made(task, HOUR, HOUR, State::Created, Cause::Triggered);
        story.succeeds(fire, HOUR + 5, HOUR + 10);
    }
    let report = story.report();
    let seen: Vec<_> = report.tasks.iter().map(|task| (task.numbers.expected, task.numbers.fired, task.trigger.as_str())).collect();
    assert_eq!(seen, [(1, 1, "10m after the last end"), (1, 1, "by hand"), (1, 1, "every 1m (disabled)"), (1, 0, "0 2 * * *")]);
}

#[test]
fn a_history_that_ends_in_the_middle_of_everything_is_reported_too() {
    let mut story = Story::of(TWO, 1);
    story.fired("idle", 1);
    story.tell(1, Who::World, What::FaultBegan(99));
    // About a task that nobody has heard of.
    let row = InstanceRow { id: unknown(), task: id_of(99), ..story.row() };
    story.tell(5, Who::Database, What::Committed(Arc::new(Batch { inserts: vec![row], ..Batch::default() })));
    story.tell(9, Who::Worker(0), What::Ended { instance: unknown(), fence: Fence(1), end: Some(End::Succeeded) });
    assert_eq!((story.report().total.fired, story.report().total.unfinished), (1, 1));
    let nothing = Report::of(&story.plan, &Default::default(), &[]);
    assert_eq!((nothing.total.expected, nothing.class), (0, Class::Held));
    assert!(nothing.to_html().contains("No promise was judged.") && nothing.to_text().contains("No promise was judged."));
}

fn unknown() -> InstanceId {
    InstanceId(77)
}

#[test]
fn the_class_is_the_worst_that_was_violated_and_has_a_fixed_number() {
    let story = Story::of(TWO, 1);
    let broken = |reason: &str| Err(reason.to_owned());
    let class = |verdicts: &[(&str, Result<(), String>)]| story.report_with(verdicts).class;
    assert_eq!(class(&[("fire.accounted", Ok(())), ("heal.converges", Ok(()))]), Class::Held);
    assert_eq!(class(&[("fire.accounted", Ok(())), ("heal.converges", broken("stuck"))]), Class::LivenessViolated);
    assert_eq!(class(&[("heal.converges", broken("stuck")), ("effect.once", broken("twice"))]), Class::SafetyViolated);
    let numbers =
        [Class::Held, Class::SafetyViolated, Class::LivenessViolated, Class::Crashed, Class::Nondeterministic].map(Class::exit_code);
    assert_eq!(numbers, [0, 10, 11, 12, 13]);
    let crashed = story.report().crashed("assertion failed");
    assert_eq!(crashed.class.exit_code(), 12);
    assert!(crashed.to_text().contains("The simulated world crashed.") && crashed.to_html().contains("assertion failed"));
}

#[test]
fn a_run_that_no_world_could_have_had_is_judged_by_the_properties() {
    let story = hour();
    let report = Report::judged(&story.plan, &story.history(), &check::judge(&story.plan, &story.history()));
    let properties: Vec<&str> = report.verdicts.iter().map(|verdict| verdict.property.as_str()).collect();
    let catalogue: Vec<&str> = check::CATALOGUE.iter().map(|property| property.id).collect();
    assert_eq!(properties, catalogue);
    assert_eq!(report.class, Class::SafetyViolated, "nobody had a lease");
    assert_eq!(report.total, story.report().total);
}

#[test]
fn what_can_not_be_said_is_neither_held_nor_violated() {
    let mut report = hour().report();
    report.verdicts[0].judged = Judged::Unknown("no lease was ever granted".to_owned());
    assert_eq!(Class::of(&report.verdicts), Class::Held);
    let (text, html) = (report.to_text(), report.to_html());
    assert!(text.contains("1 promise was held; of 1 nothing can be said.") && text.contains("unknown  fire.accounted: no lease"));
    assert!(html.contains("class=\"unknown\"") && html.contains("no lease was ever granted"));
}
