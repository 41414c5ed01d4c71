//! `pause.held`, driven by histories made by hand.

use std::sync::Arc;

use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{InboxId, TaskId};
use punctual_core::instance::{Cause, State};
use punctual_core::occurrence::Outcome;
use punctual_core::pause::PauseScope;
use punctual_sim::history::{What, Who};

use crate::story::{PARTITION, Story, every, manual, policies, secs};

/// Writes a pause, or its end, into the inbox.
fn write(story: &mut Story, scope: PauseScope, is_paused: bool) -> InboxId {
    let entry = story.entry();
    story.record(Who::Database, What::PauseChanged { entry, partition: PARTITION, scope, is_paused });
    entry
}

fn apply(story: &mut Story, entry: InboxId) {
    story.batch.applied.push(entry);
    story.commit();
}

fn grouped(name: &str) -> TaskDefinition {
    let definition = TaskDefinition { group: Some(Arc::from("g")), ..manual(name) };
    policies(definition, |policies| policies.concurrency.max_running = 10)
}

fn scopes(task: TaskId) -> [PauseScope; 3] {
    [PauseScope::All, PauseScope::Group(Arc::from("g")), PauseScope::Task(task)]
}

#[test]
fn what_starts_before_and_after_a_pause_is_well() {
    for scope in 0..3 {
        let mut story = Story::new();
        let task = story.define(1, grouped("a"));
        let scope = scopes(task)[scope].clone();
        let first = story.trigger(task);
        story.dispatch(first, 0);
        story.commit();
        let second = story.trigger(task);
        let paused = write(&mut story, scope.clone(), true);
        // Nobody has applied it yet.
        story.dispatch(second, 0);
        story.commit();
        apply(&mut story, paused);
        let third = story.trigger(task);
        // Its end is written, and not applied yet.
        let resumed = write(&mut story, scope, false);
        story.dispatch(third, 0);
        story.commit();
        apply(&mut story, resumed);
        story.holds("pause.held");
        story.holds("inbox.once");
    }
}

#[test]
fn what_starts_in_a_pause_is_not() {
    for scope in 0..3 {
        let mut story = Story::new();
        let task = story.define(1, grouped("a"));
        let paused = write(&mut story, scopes(task)[scope].clone(), true);
        apply(&mut story, paused);
        let id = story.trigger(task);
        story.holds("pause.held");
        story.dispatch(id, 0);
        story.commit();
        story.violates("pause.held", &[&id.to_string(), "dispatched in a pause"]);
    }
}

/// A part of what had begun when its task was removed starts, whatever is paused. Where the task comes back, so does its pause.
#[test]
fn a_task_that_was_removed_is_not_held() {
    for scope in 0..3 {
        let mut story = Story::new();
        let task = story.define(1, grouped("a"));
        let paused = write(&mut story, scopes(task)[scope].clone(), true);
        let (first, second) = (story.trigger(task), story.trigger(task));
        apply(&mut story, paused);
        story.remove(task);
        story.dispatch(first, 0);
        story.commit();
        story.holds("pause.held");
        let entry = story.write_definition(task, 3, Some(grouped("a")));
        story.apply_definition(entry, task, Some(3));
        story.commit();
        story.dispatch(second, 0);
        story.commit();
        story.violates("pause.held", &[&second.to_string(), "dispatched in a pause"]);
    }
}

/// Another group, another task: nobody is held by those.
#[test]
fn a_pause_of_others_holds_nobody() {
    let mut story = Story::new();
    let (one, other) = (story.define(1, grouped("a")), story.define(2, manual("b")));
    for scope in [PauseScope::Group(Arc::from("h")), PauseScope::Task(other)] {
        let paused = write(&mut story, scope, true);
        apply(&mut story, paused);
    }
    let id = story.trigger(one);
    story.dispatch(id, 0);
    story.commit();
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.commit();
    story.holds("pause.held");
}

#[test]
fn fire_times_pass_by_only_in_a_pause() {
    let mut story = Story::new();
    let task = story.define(1, every("a", 10));
    let paused = write(&mut story, PauseScope::Task(task), true);
    apply(&mut story, paused);
    story.until(25);
    let mut fired = story.clone();
    let resumed = write(&mut story, PauseScope::Task(task), false);
    story.drop_run(task, secs(10), secs(20), 2, Outcome::Paused);
    apply(&mut story, resumed);
    story.holds("pause.held");
    story.holds("fire.accounted");
    let id = fired.fire(task, secs(10));
    fired.commit();
    fired.violates("pause.held", &[&id.to_string(), "fired in a pause"]);

    let mut story = Story::new();
    let task = story.define(1, every("a", 10));
    story.until(25);
    story.drop_run(task, secs(10), secs(20), 2, Outcome::Paused);
    story.commit();
    story.violates("pause.held", &["there was none"]);
}
