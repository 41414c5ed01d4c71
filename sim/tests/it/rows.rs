//! Rows: `state.legal`, `state.terminal_final`, `audit.unbroken`, `lease.exclusive`, `limit.held`.

use std::sync::Arc;

use punctual_core::ids::{Epoch, Fence, PartitionId, ReplicaId, TaskId};
use punctual_core::inbox::ordinal_of;
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::history::{What, Who};

use crate::story::{PARTITION, Story, manual, policies};

fn story() -> (Story, TaskId) {
    let mut story = Story::new();
    let task = story.define(1, policies(manual("t"), |policies| policies.retry.max_attempts = Some(5)));
    (story, task)
}

/// An instance that was retried, given back, retried again after a loss, and has succeeded late.
fn full_life() -> Story {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.pass(50);
    story.fail(id, 0, 20_000);
    story.pass(20_000);
    story.ready_again(id);
    story.dispatch(id, 0);
    story.commit();
    story.row(id).attempt -= 1;
    story.change(id, State::Created, Cause::Returned);
    story.commit();
    story.start(id, 1);
    story.lose(id);
    story.pass(100);
    story.succeed(id, 1);
    story
}

#[test]
fn a_full_life_is_legal_and_on_record() {
    for property in ["state.legal", "state.terminal_final", "audit.unbroken", "lease.exclusive", "limit.held"] {
        full_life().holds(property);
    }
}

#[test]
fn every_transition_outside_the_diagram_is_illegal() {
    use State::*;
    // From, to, and how the story gets there.
    for (from, to) in
        [(Waiting, Dispatched), (Waiting, Failed), (Created, Running), (Created, Retrying), (Created, Waiting), (Created, Failed)]
    {
        let (mut story, task) = story();
        let entry = story.submit(task, 1, None);
        let id = story.apply_trigger(entry, task);
        if from == Waiting {
            story.row(id).transitions.clear();
            story.change(id, Waiting, Cause::LimitReached);
        }
        story.commit();
        if to == Dispatched {
            story.dispatch(id, 0);
        } else {
            story.change(id, to, Cause::SlotFree);
        }
        story.commit();
        story.violates("state.legal", &["instance 0-1", from.name(), to.name(), "record"]);
    }
    for to in [Created, Waiting, Dispatched, Skipped] {
        let (mut story, task) = story();
        let id = story.trigger(task);
        story.start(id, 0);
        if to == Dispatched {
            story.dispatch(id, 0);
        } else {
            story.change(id, to, Cause::SlotFree);
        }
        story.commit();
        story.violates("state.legal", &["instance 0-1", "running", to.name()]);
    }
    for to in [Dispatched, Running, Failed, Waiting] {
        let (mut story, task) = story();
        let id = story.trigger(task);
        story.start(id, 0);
        story.lose(id);
        if to == Dispatched {
            story.dispatch(id, 0);
        } else {
            story.change(id, to, Cause::Started);
        }
        story.commit();
        story.violates("state.legal", &["instance 0-1", "retrying", to.name()]);
    }
}

#[test]
fn no_life_begins_in_the_middle() {
    for first in [State::Running, State::Succeeded, State::Retrying] {
        let (mut story, task) = story();
        let entry = story.submit(task, 1, None);
        let id = story.apply_trigger(entry, task);
        story.row(id).transitions.clear();
        story.change(id, first, Cause::Triggered);
        if first == State::Succeeded {
            story.effect(id, Fence(0), 0);
        }
        story.commit();
        story.violates("state.legal", &["instance 0-1", "nothing", first.name()]);
    }
}

#[test]
fn an_illegal_step_inside_one_batch_is_found() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.change(id, State::Running, Cause::Started);
    story.change(id, State::Retrying, Cause::WorkerLost);
    story.commit();
    story.violates("state.legal", &["created -> running"]);
}

#[test]
fn nothing_follows_a_terminal_state() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.run(id, 0);
    story.change(id, State::Created, Cause::BackoffElapsed);
    story.commit();
    story.violates("state.terminal_final", &["instance 0-1", "succeeded"]);
}

#[test]
fn nothing_follows_a_terminal_state_in_the_same_batch_either() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.change(id, State::Created, Cause::BackoffElapsed);
    story.commit();
    story.violates("state.terminal_final", &["instance 0-1", "cancelled", "created"]);
}

#[test]
fn a_terminal_row_is_not_even_written_again() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.run(id, 0);
    story.row(id).due_at = Some(Timestamp(7));
    story.commit();
    story.violates("state.terminal_final", &["instance 0-1"]);
}

#[test]
fn a_rewritten_log_is_found() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.row(id).transitions[0].detail = Some(Arc::from("it was somebody else"));
    story.succeed(id, 0);
    story.violates("audit.unbroken", &["instance 0-1", "rewritten"]);
}

#[test]
fn a_shortened_log_is_found() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.row(id).transitions.truncate(2);
    story.row(id).state = State::Dispatched;
    story.commit();
    story.violates("audit.unbroken", &["instance 0-1", "rewritten"]);
}

#[test]
fn a_gap_in_the_log_is_found() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.lose(id);
    story.change(id, State::Created, Cause::BackoffElapsed);
    story.row(id).transitions.last_mut().unwrap().from = Some(State::Waiting);
    story.commit();
    story.violates("audit.unbroken", &["instance 0-1", "waiting -> created comes after retrying"]);
}

#[test]
fn a_state_that_the_log_does_not_have_is_found() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.row(id).state = State::Waiting;
    story.commit();
    story.violates("audit.unbroken", &["instance 0-1", "the row is waiting", "created"]);
}

#[test]
fn time_in_the_log_does_not_go_back() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.change(id, State::Retrying, Cause::WorkerLost);
    story.row(id).transitions.last_mut().unwrap().at = Timestamp(crate::story::START - 5_000);
    story.commit();
    story.violates("audit.unbroken", &["instance 0-1", "retrying at"]);
    // Unless a clock did.
    let mut stepped = story.clone();
    stepped.record(Who::Scheduler(0), What::ClockStepped { by: -5_000 });
    stepped.holds("audit.unbroken");
}

#[test]
fn a_batch_rests_on_the_row_as_it_is() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.start(id, 0);
    story.stored.insert(id, (State::Dispatched, Fence(2)));
    story.lose(id);
    story.violates("audit.unbroken", &["instance 0-1", "the batch took it to be dispatched under 2, it was running under 2"]);
}

#[test]
fn what_is_not_there_is_not_updated() {
    let (mut story, task) = story();
    let entry = story.submit(task, 1, None);
    let id = story.insert(task, story.wall(), ordinal_of(entry, 0), Origin::Manual);
    story.stored.insert(id, (State::Waiting, Fence(0)));
    story.commit();
    story.violates("audit.unbroken", &["instance 0-1", "not there"]);
}

#[test]
fn a_row_stays_the_firing_that_it_is() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.row(id).key = Some(Arc::from("another"));
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.commit();
    story.violates("audit.unbroken", &["instance 0-1", "another firing"]);
}

#[test]
fn a_lease_that_ran_out_or_was_released_may_be_taken() {
    let (mut story, task) = story();
    story.record(Who::Database, What::LeaseRenewed { partition: PARTITION, epoch: Epoch(1), until: 10_000_000 });
    story.record(Who::Database, What::LeaseReleased { partition: PARTITION, epoch: Epoch(1) });
    story.grant("s1", Epoch(2), 10_000);
    (story.owner, story.epoch) = ("s1", Epoch(2));
    story.pass(100);
    let id = story.trigger(task);
    story.owner = "s0";
    story.pass(9_900);
    story.grant("s0", Epoch(3), 30_000);
    story.pass(100);
    // The same owner may take its own lease again.
    story.grant("s0", Epoch(4), 40_000);
    story.epoch = Epoch(4);
    story.run(id, 0);
    story.holds("lease.exclusive");
}

#[test]
fn a_lease_is_not_taken_from_its_holder() {
    let (mut story, _) = story();
    story.pass(1_000);
    story.grant("s1", Epoch(2), 11_000);
    story.violates("lease.exclusive", &["partition 0", "s1 while s0"]);
}

#[test]
fn a_renewed_lease_is_held_for_longer() {
    let mut story = Story::new();
    story.record(Who::Database, What::LeaseReleased { partition: PARTITION, epoch: Epoch(1) });
    story.grant("s0", Epoch(2), 10_000);
    story.record(Who::Database, What::LeaseRenewed { partition: PARTITION, epoch: Epoch(2), until: 20_000 });
    story.until(15);
    story.grant("s1", Epoch(3), 25_000);
    story.violates("lease.exclusive", &["s1 while s0"]);
}

#[test]
fn epochs_grow() {
    let (mut story, _) = story();
    story.grant("s0", Epoch(1), 10_000_000);
    story.violates("lease.exclusive", &["partition 0", "epoch 1 comes after 1"]);
}

#[test]
fn an_old_epoch_is_not_renewed() {
    let (mut story, _) = story();
    story.grant("s0", Epoch(2), 10_000_000);
    story.record(Who::Database, What::LeaseRenewed { partition: PARTITION, epoch: Epoch(1), until: 20_000_000 });
    story.violates("lease.exclusive", &["partition 0", "epoch 1 was renewed"]);
}

#[test]
fn an_old_epoch_writes_nothing() {
    let (mut story, task) = story();
    story.grant("s0", Epoch(2), 10_000_000);
    story.trigger(task);
    story.violates("lease.exclusive", &["partition 0", "epoch 1", "granted is 2"]);
}

#[test]
fn nothing_is_written_under_a_lease_that_was_given_up() {
    let (mut story, task) = story();
    story.record(Who::Database, What::LeaseReleased { partition: PARTITION, epoch: Epoch(1) });
    story.trigger(task);
    story.violates("lease.exclusive", &["partition 0", "given up"]);
}

#[test]
fn only_the_owner_writes() {
    let (mut story, task) = story();
    story.owner = "s1";
    story.trigger(task);
    story.violates("lease.exclusive", &["partition 0", "a batch of s1, the owner is s0"]);
}

#[test]
fn the_owner_knows_the_rows() {
    let (mut story, _) = story();
    let what = What::CommitRefused { replica: ReplicaId("s0".into()), is_lease: true, reason: "too late".into() };
    story.record(Who::Database, what);
    story.holds("lease.exclusive");
    let what = What::CommitRefused { replica: ReplicaId("s0".into()), is_lease: false, reason: "instance 0-1 is running".into() };
    story.record(Who::Database, what.clone());
    story.violates("lease.exclusive", &["s0", "instance 0-1 is running", "record"]);
    let (mut story, _) = self::story();
    story.record(Who::Database, What::TailLost { from: 1_000 });
    story.record(Who::Database, what);
    story.leaves_open("lease.exclusive", "the tail was lost");
}

#[test]
fn a_lease_runs_out_by_the_databases_clock() {
    let mut story = Story::new();
    story.record(Who::Database, What::LeaseReleased { partition: PARTITION, epoch: Epoch(1) });
    story.grant("s0", Epoch(2), 10_000);
    story.wall_offset = 60_000;
    story.record(Who::Database, What::ClockStepped { by: 60_000 });
    story.grant("s1", Epoch(3), 10_000);
    story.holds("lease.exclusive");
}

#[test]
fn commits_are_numbered_without_a_gap() {
    for numbers in [2, -1_i64] {
        let (mut story, task) = story();
        story.trigger(task);
        story.commit_seq = story.commit_seq.wrapping_add_signed(numbers);
        story.commit();
        story.violates("lease.exclusive", &["partition 0", "comes after 2"]);
    }
}

#[test]
fn the_sequence_does_not_go_back() {
    let (mut story, task) = story();
    story.sequence = 100;
    story.trigger(task);
    story.sequence = 50;
    story.commit();
    story.violates("lease.exclusive", &["the sequence goes back from 101 to 50"]);
}

#[test]
fn a_batch_relies_on_each_lease_that_it_writes_under() {
    let (mut story, task) = story();
    let write = punctual_core::batch::TaskWrite {
        task,
        partition: PartitionId(1),
        version: Some(punctual_core::ids::Version(1)),
        next_fire: None,
        fired_until: None,
    };
    story.batch.tasks.push(write);
    story.commit();
    story.violates("lease.exclusive", &["partition 1"]);
}

#[test]
fn a_lost_tail_takes_the_lease_back_and_its_commits_with_it() {
    let (mut story, task) = story();
    let before = (story.commit_seq, story.rows.clone(), story.stored.clone());
    let from = story.history.records.len();
    story.trigger(task);
    story.record(Who::World, What::TailLost { from });
    let unnoticed = story.clone();
    (story.commit_seq, story.rows, story.stored) = before;
    story.grant("s0", Epoch(2), 10_000_000);
    story.epoch = Epoch(2);
    story.trigger(task);
    assert_eq!(story.violations(), []);
    // An owner that goes on as if nothing had been.
    let mut story = unnoticed;
    story.trigger(task);
    story.violates("lease.exclusive", &["commit 3 comes after 1"]);
}

fn limited(max_running: u32) -> punctual_core::definition::TaskDefinition {
    policies(manual("t"), |policies| policies.concurrency.max_running = max_running)
}

#[test]
fn at_the_limit_others_wait() {
    let mut story = Story::new();
    let task = story.define(1, limited(2));
    let (first, second) = (story.trigger(task), story.trigger(task));
    let entry = story.submit(task, 1, None);
    let third = story.apply_trigger(entry, task);
    story.row(third).transitions.clear();
    story.change(third, State::Waiting, Cause::LimitReached);
    story.commit();
    story.run(first, 0);
    story.change(third, State::Created, Cause::SlotFree);
    story.commit();
    // A lowered limit lets those go on that have begun.
    let lowered = story.define(1, limited(1));
    story.run(second, 0);
    story.run(third, 1);
    let last = story.trigger(lowered);
    story.run(last, 0);
    story.holds("limit.held");
}

#[test]
fn one_more_than_the_limit_is_too_many() {
    let mut story = Story::new();
    let task = story.define(1, limited(2));
    for _ in 0..3 {
        story.trigger(task);
    }
    story.violates("limit.held", &["task 1", "3 instances", "instance 0-3", "the limit is 2"]);
}

#[test]
fn none_begins_while_more_run_than_a_lowered_limit_allows() {
    let mut story = Story::new();
    let task = story.define(1, limited(3));
    for _ in 0..3 {
        story.trigger(task);
    }
    story.define(1, limited(2));
    story.trigger(task);
    story.violates("limit.held", &["task 1", "4 instances", "the limit is 2"]);
}

#[test]
fn those_that_were_undone_take_no_place() {
    let mut story = Story::new();
    let task = story.define(1, limited(1));
    let before = (story.commit_seq, story.rows.clone(), story.stored.clone());
    let from = story.history.records.len();
    story.trigger(task);
    story.record(Who::World, What::TailLost { from });
    (story.commit_seq, story.rows, story.stored) = before;
    story.next_entry = 2;
    story.trigger(task);
    assert_eq!(story.violations(), []);
    story.trigger(task);
    story.violates("limit.held", &["2 instances"]);
}

#[test]
fn a_retry_keeps_its_place() {
    let mut story = Story::new();
    let definition = policies(limited(1), |policies| {
        policies.retry.max_attempts = Some(3);
        policies.retry.backoff.first = Millis(1_000);
    });
    let task = story.define(1, definition);
    let id = story.trigger(task);
    story.start(id, 0);
    story.fail(id, 0, 1_000);
    story.trigger(task);
    story.violates("limit.held", &["2 instances"]);
}
