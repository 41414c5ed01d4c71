//! What people ask for: `inbox.once`, `submit.durable`, `cancel.effective`.

use punctual_core::batch::TaskWrite;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::ordinal_of;
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::pause::PauseScope;
use punctual_core::time::Millis;
use punctual_sim::history::{Answer, Ask, What, Who};
use punctual_sim::tabletop::PauseTarget;

use crate::story::{Story, manual, policies};

fn definition() -> TaskDefinition {
    policies(manual("t"), |policies| {
        policies.concurrency.max_running = 100;
        policies.retry.max_attempts = Some(4);
        policies.retry.backoff.first = Millis(0);
    })
}

fn story() -> (Story, TaskId) {
    let mut story = Story::new();
    let task = story.define(1, definition());
    (story, task)
}

fn of_nothing(story: &mut Story, task: TaskId) {
    let at = story.wall();
    let (version, outcome) = (Version(0), Outcome::Withdrawn);
    story.batch.occurrences.push(Occurrence { task, version, first: at, last: at, count: 1, outcome, instance: None, at });
}

#[test]
fn entries_are_applied_with_their_effects() {
    let (mut story, task) = story();
    // Two submissions at once.
    let entry = story.submit(task, 2, Some("key"));
    story.batch.applied.push(entry);
    for index in 0..2 {
        story.insert(task, story.wall(), ordinal_of(entry, index), Origin::Manual);
    }
    story.commit();
    // A trigger that comes too late for its task.
    let late = story.submit(task, 2, None);
    story.remove(task);
    story.batch.applied.push(late);
    of_nothing(&mut story, task);
    of_nothing(&mut story, task);
    story.commit();
    // A removal of what is not there, and an edit that a later one has overtaken.
    let removal = story.write_definition(task, 3, None);
    story.batch.applied.push(removal);
    story.commit();
    let (fourth, fifth) = (story.write_definition(task, 4, Some(definition())), story.write_definition(task, 5, Some(definition())));
    story.batch.applied.push(fourth);
    story.apply_definition(fifth, task, Some(5));
    story.commit();
    // A cancellation that ends its instance, and one that finds it ended.
    let id = story.trigger(task);
    let cancel = story.cancel(id);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.batch.applied.push(cancel);
    story.commit();
    let cancel = story.cancel(id);
    story.batch.applied.push(cancel);
    story.commit();
    // What was cancelled runs once more, and so does that; a task that is gone takes no rerun.
    let mut of = id;
    for _ in 0..2 {
        let rerun = story.rerun(of);
        story.batch.applied.push(rerun);
        let next = story.insert_next_run(of);
        story.commit();
        story.change(next, State::Cancelled, Cause::CancelRequested);
        story.commit();
        of = next;
    }
    let rerun = story.rerun(of);
    story.batch.applied.push(rerun);
    of_nothing(&mut story, task);
    story.commit();
    story.holds("inbox.once");
    story.holds("submit.durable");
    story.holds("fire.no_duplicate");
}

/// A task with an instance that has ended.
fn with_ended() -> (Story, TaskId, InstanceId) {
    let (mut story, task) = story();
    let id = story.trigger(task);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.commit();
    (story, task, id)
}

#[test]
fn a_rerun_is_not_applied_without_the_next_run() {
    let (mut story, _, id) = with_ended();
    let entry = story.rerun(id);
    story.batch.applied.push(entry);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {entry}"), &format!("instance {id} of task 1 has no further run")]);
    let (mut story, _, id) = with_ended();
    let entry = story.rerun(id);
    story.batch.applied.push(entry);
    let next = story.insert_next_run(id);
    story.row(next).run = 3;
    story.commit();
    story.violates("inbox.once", &[&format!("entry {entry}"), &format!("instance {next} is no further run of instance {id}")]);
}

#[test]
fn a_rerun_is_of_what_has_ended() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    let entry = story.rerun(id);
    story.batch.applied.push(entry);
    story.insert_next_run(id);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {entry}"), &format!("instance {id} of task 1 is created")]);
}

#[test]
fn a_further_run_comes_with_its_entry() {
    let (mut story, _, id) = with_ended();
    let next = story.insert_next_run(id);
    story.commit();
    story.violates("inbox.once", &[&format!("instance {next}"), "without its entry"]);
}

#[test]
fn a_rerun_is_made_once() {
    let (mut story, _, id) = with_ended();
    for _ in 0..2 {
        let entry = story.rerun(id);
        story.batch.applied.push(entry);
        story.insert_next_run(id);
        story.commit();
    }
    story.violates("fire.no_duplicate", &["the same firing"]);
}

#[test]
fn an_entry_is_applied_once() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    let cancel = story.cancel(id);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.batch.applied.push(cancel);
    story.commit();
    story.batch.applied.push(cancel);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {cancel} was applied twice"), "records"]);
}

#[test]
fn an_entry_that_is_not_there_is_not_applied() {
    let (mut story, _) = story();
    story.batch.applied.push(InboxId(77));
    story.commit();
    story.violates("inbox.once", &["entry 77", "not there"]);
}

#[test]
fn a_trigger_is_not_applied_without_its_instances() {
    let (mut story, task) = story();
    let entry = story.submit(task, 2, None);
    story.apply_trigger(entry, task);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {entry}"), "submission 1 of task 1 has no instance"]);
}

#[test]
fn a_triggers_instances_come_in_its_own_batch() {
    let (mut story, task) = story();
    let entry = story.submit(task, 1, None);
    story.insert(task, story.wall(), ordinal_of(entry, 0), Origin::Manual);
    story.commit();
    story.violates("inbox.once", &["instance 0-1", "without its entry"]);
}

#[test]
fn a_trigger_makes_instances_of_its_own_task() {
    let (mut story, task) = story();
    let other = story.define(2, manual("other"));
    let entry = story.submit(task, 1, None);
    story.apply_trigger(entry, other);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {entry}"), "instance 0-1 is of task 2"]);
}

#[test]
fn a_trigger_of_nothing_has_its_entry() {
    let (mut story, task) = story();
    of_nothing(&mut story, task);
    story.commit();
    story.violates("inbox.once", &["a trigger of task 1"]);
}

#[test]
fn a_definition_is_not_applied_without_being_written() {
    let (mut story, task) = story();
    let edit = story.write_definition(task, 2, Some(manual("t")));
    story.batch.applied.push(edit);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {edit}"), "task 1 is not written as version 2"]);
    let (mut story, task) = self::story();
    let removal = story.write_definition(task, 2, None);
    story.batch.applied.push(removal);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {removal}"), "task 1 is not removed by version 2"]);
}

#[test]
fn of_two_definitions_in_one_batch_the_later_one_counts() {
    for is_in_order in [true, false] {
        let (mut story, task) = story();
        let removal = story.write_definition(task, 2, None);
        let made_again = story.write_definition(task, 3, Some(definition()));
        story.batch.applied.extend([removal, made_again]);
        let write = |version: Option<u32>| TaskWrite {
            task,
            partition: crate::story::PARTITION,
            version: version.map(Version),
            next_fire: None,
            fired_until: None,
        };
        let mut writes = vec![write(None), write(Some(3))];
        if !is_in_order {
            writes.reverse();
        }
        story.batch.tasks = writes;
        story.commit();
        if is_in_order {
            story.holds("inbox.once");
        } else {
            story.violates("inbox.once", &[&format!("entry {made_again}"), "task 1 is not written as version 3"]);
        }
    }
}

#[test]
fn a_request_to_cancel_stays_while_its_instance_goes_on() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    let cancel = story.cancel(id);
    story.batch.applied.push(cancel);
    story.commit();
    story.violates("inbox.once", &[&format!("entry {cancel}"), "instance 0-1 of task 1 is created"]);
}

#[test]
fn entries_that_were_undone_may_be_applied_again() {
    let (mut story, task) = story();
    let entry = story.submit(task, 1, None);
    let before = story.clone();
    let from = story.history.records.len();
    story.apply_trigger(entry, task);
    story.commit();
    story.record(Who::Database, What::TailLost { from });
    (story.commit_seq, story.rows, story.stored) = (before.commit_seq, before.rows, before.stored);
    story.apply_trigger(entry, task);
    story.commit();
    story.holds("inbox.once");
}

#[test]
fn answers_of_all_kinds_can_be_true() {
    let (mut story, task) = story();
    story.submit(task, 1, Some("once"));
    let repeated = story.ask(Ask::Trigger { task: "t".into(), key: Some("once".into()) });
    story.answer(repeated, Answer::Repeated(InboxId(2)));
    let refused = story.ask(Ask::Trigger { task: "nobody".into(), key: None });
    story.answer(refused, Answer::Refused("no such task".into()));
    // Of two whose answers were lost one was written.
    let unknown = story.ask(Ask::Trigger { task: "t".into(), key: None });
    story.ask(Ask::Trigger { task: "t".into(), key: None });
    let refused = story.ask(Ask::Trigger { task: "t".into(), key: None });
    let entry = story.entry();
    story.record(Who::Database, What::Submitted { entry, task, submissions: 1, key: None });
    story.answer(unknown, Answer::Unknown);
    story.answer(refused, Answer::Refused("too many".into()));
    story.holds("submit.durable");
}

#[test]
fn what_was_accepted_is_there() {
    let (mut story, _) = story();
    let call = story.ask(Ask::Trigger { task: "t".into(), key: None });
    story.answer(call, Answer::Accepted(InboxId(50)));
    story.violates("submit.durable", &["entry 50, which is not there", "records"]);
}

#[test]
fn what_was_accepted_is_what_was_asked_for() {
    let (mut story, task) = story();
    story.define(2, manual("other"));
    let entry = story.submit(task, 1, None);
    for ask in [
        Ask::Trigger { task: "other".into(), key: None },
        Ask::Trigger { task: "t".into(), key: Some("key".into()) },
        Ask::Define { task: "t".into() },
    ] {
        let mut story = story.clone();
        let call = story.ask(ask);
        story.answer(call, Answer::Repeated(entry));
        story.violates("submit.durable", &[&format!("entry {entry}, which is not what it asked for")]);
    }
}

#[test]
fn an_entry_is_one_calls() {
    let (mut story, task) = story();
    let (first, second) =
        (story.ask(Ask::Trigger { task: "t".into(), key: None }), story.ask(Ask::Trigger { task: "t".into(), key: None }));
    let entry = story.entry();
    story.record(Who::Database, What::Submitted { entry, task, submissions: 1, key: None });
    story.answer(first, Answer::Accepted(entry));
    story.answer(second, Answer::Accepted(entry));
    story.violates("submit.durable", &[&format!("entry {entry} was accepted for two calls")]);
}

#[test]
fn what_was_accepted_was_written_before_the_answer_and_after_the_call() {
    let (mut story, task) = story();
    let call = story.ask(Ask::Trigger { task: "t".into(), key: None });
    let entry = story.entry();
    story.answer(call, Answer::Accepted(entry));
    story.record(Who::Database, What::Submitted { entry, task, submissions: 1, key: None });
    story.violates("submit.durable", &[&format!("entry {entry}")]);
    let (mut story, task) = self::story();
    let entry = story.entry();
    story.record(Who::Database, What::Submitted { entry, task, submissions: 1, key: None });
    let call = story.ask(Ask::Trigger { task: "t".into(), key: None });
    story.answer(call, Answer::Accepted(entry));
    story.violates("submit.durable", &[&format!("entry {entry}")]);
}

#[test]
fn what_was_refused_is_not_there() {
    let (mut story, task) = story();
    let call = story.ask(Ask::Trigger { task: "t".into(), key: None });
    let entry = story.entry();
    story.record(Who::Database, What::Submitted { entry, task, submissions: 1, key: None });
    story.answer(call, Answer::Refused("no".into()));
    story.violates("submit.durable", &["refused", &format!("entry {entry}"), "records"]);
}

/// A pause has an entry for each partition and is answered with the first. Who asks for the same meanwhile may be refused; none of them is
/// his, but one more of a partition is.
#[test]
fn the_entries_of_a_pause_are_those_of_one_call() {
    for is_paused in [true, false] {
        let (mut story, _) = story();
        let ask = Ask::Pause { target: PauseTarget::All, is_paused };
        let (accepted, refused) = (story.ask(ask.clone()), story.ask(ask));
        let write = |story: &mut Story, partition| {
            let entry = story.entry();
            story.record(Who::Database, What::PauseChanged { entry, partition, scope: PauseScope::All, is_paused });
            entry
        };
        let entries = [0, 1, 2].map(|partition| write(&mut story, PartitionId(partition)));
        let mut twice = story.clone();
        story.answer(accepted, Answer::Accepted(entries[0]));
        story.answer(refused, Answer::Refused("it is so already".into()));
        story.holds("submit.durable");
        let again = write(&mut twice, PartitionId(1));
        twice.answer(accepted, Answer::Accepted(entries[0]));
        twice.answer(refused, Answer::Refused("it is so already".into()));
        twice.violates("submit.durable", &["refused", &format!("entry {again}")]);
    }
}

#[test]
fn a_key_has_one_entry() {
    let (mut story, task) = story();
    story.submit(task, 1, Some("twice"));
    story.submit(task, 1, Some("twice"));
    story.violates("submit.durable", &["\"twice\"", "entries 2 and 3"]);
}

#[test]
fn an_accepted_call_that_was_undone_is_not_known() {
    let (mut story, task) = story();
    let from = story.history.records.len();
    let entry = story.submit(task, 1, Some("key"));
    story.record(Who::Database, What::TailLost { from });
    story.leaves_open("submit.durable", &format!("entry {entry}, which was undone"));
    // One that never was is another matter.
    let call = story.ask(Ask::Trigger { task: "t".into(), key: None });
    story.answer(call, Answer::Accepted(InboxId(50)));
    story.violates("submit.durable", &["entry 50"]);
}

#[test]
fn what_is_cancelled_ends() {
    let (mut story, task) = story();
    story.heal();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    let cancel = story.cancel(id);
    story.pass(5_000);
    story.end(id, fence, 0, None);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.batch.applied.push(cancel);
    story.commit();
    // A result that came first stands.
    let id = story.trigger(task);
    story.start(id, 0);
    let cancel = story.cancel(id);
    story.succeed(id, 0);
    story.batch.applied.push(cancel);
    story.commit();
    story.pass(100_000);
    story.finish();
    story.holds("cancel.effective");
}

#[test]
fn what_is_cancelled_and_goes_on_is_found() {
    let (mut story, task) = story();
    story.takes("t", 200_000);
    story.heal();
    let id = story.trigger(task);
    story.start(id, 0);
    story.cancel(id);
    story.pass(60_000);
    let mut young = story.clone();
    young.finish();
    young.holds("cancel.effective");
    story.pass(11_000);
    story.finish();
    story.violates("cancel.effective", &["instance 0-1", "task 1", "to be cancelled and is running", "record"]);
}

#[test]
fn what_is_cancelled_is_not_dispatched_again() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    let first = story.start(id, 0);
    story.cancel(id);
    // Its owner may not have read it yet.
    story.end(id, first, 0, None);
    story.lose(id);
    story.ready_again(id);
    let second = story.start(id, 1);
    story.holds("cancel.effective");
    // A later entry was applied, so the owner has read this one.
    story.trigger(task);
    story.end(id, second, 1, None);
    story.change(id, State::Retrying, Cause::WorkerLost);
    let due_at = story.wall().saturating_add(Millis(0));
    story.row(id).due_at = Some(due_at);
    story.commit();
    story.ready_again(id);
    story.dispatch(id, 0);
    story.commit();
    story.violates("cancel.effective", &["instance 0-1", "dispatched again under fence 5", "had heard of it"]);
}

#[test]
fn a_cancellation_that_was_undone_asks_for_nothing() {
    let (mut story, task) = story();
    let id = story.trigger(task);
    let from = story.history.records.len();
    story.cancel(id);
    story.record(Who::Database, What::TailLost { from });
    story.trigger(task);
    story.run(id, 0);
    story.holds("cancel.effective");
}
