//! What owners make of what workers do: `result.kept`, `cancel.meant`, `state.begun`.

use punctual_core::instance::{Cause, State};
use punctual_core::protocol::End;
use punctual_sim::history::{What, Who};

use crate::story::Story;
use crate::tasks::retrying;

/// An instance that has succeeded on a worker, of which its owner knows nothing and which it gives out again.
fn done_again(disturb: impl FnOnce(&mut Story)) -> Story {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    story.pass(1_000);
    story.effect(id, fence, 0);
    story.end(id, fence, 0, Some(End::Succeeded));
    disturb(&mut story);
    story.pass(1_000);
    story.lose(id);
    story.ready_again(id);
    story.dispatch(id, 1);
    story.commit();
    story
}

#[test]
fn a_result_that_an_undisturbed_worker_told_is_not_lost() {
    done_again(|_| {}).violates("result.kept", &["instance 0-1", "under fence 2", "worker 0", "gave it out again", "record"]);
}

#[test]
fn a_result_may_be_lost_with_its_worker_or_while_messages_are_cut() {
    done_again(|story| _ = story.record(Who::Worker(0), What::Crashed)).holds("result.kept");
    done_again(|story| _ = story.record(Who::Worker(0), What::Cut)).holds("result.kept");
    done_again(|story| _ = story.record(Who::Scheduler(0), What::Paused)).holds("result.kept");
}

#[test]
fn a_result_that_is_written_is_kept() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.run(id, 0);
    story.holds("result.kept");
}

#[test]
fn nobody_is_asked_to_end_for_no_reason() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    story.pass(1_000);
    let mut meant = story.clone();
    story.end(id, fence, 0, Some(End::Cancelled));
    story.violates("cancel.meant", &["instance 0-1", "under fence 2", "worker 0", "asked to end", "record"]);

    meant.cancel(id);
    meant.end(id, fence, 0, Some(End::Cancelled));
    meant.holds("cancel.meant");
}

#[test]
fn whoever_hears_of_nobody_ends_what_it_runs() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    let fence = story.start(id, 0);
    story.record(Who::Worker(0), What::Cut);
    story.pass(31_000);
    story.end(id, fence, 0, Some(End::Cancelled));
    story.holds("cancel.meant");
}

#[test]
fn what_runs_has_begun() {
    let (mut story, task) = retrying();
    let id = story.trigger(task);
    story.dispatch(id, 0);
    story.commit();
    let mut begun = story.clone();
    story.change(id, State::Running, Cause::Started);
    story.commit();
    story.violates("state.begun", &["instance 0-1", "under fence 2", "no handler has begun", "record"]);

    begun.begin(id, 0);
    begun.change(id, State::Running, Cause::Started);
    begun.commit();
    begun.holds("state.begun");
}
