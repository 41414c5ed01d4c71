//! Firings in parts: `shard.complete` and `map.complete`.

use std::sync::Arc;

use punctual_core::definition::{Map, TaskDefinition};
use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::instance::{Cause, Links, MapPhase, MapProgress, Origin, Part, State};

use crate::story::{Story, manual};

/// A story with a firing of this task that is about to be divided.
fn firing(definition: TaskDefinition) -> (Story, TaskId, InstanceId) {
    let mut story = Story::new();
    let task = story.define(1, definition);
    story.commit();
    let entry = story.submit(task, 1, None);
    let whole = story.apply_trigger(entry, task);
    story.change(whole, State::Running, Cause::Divided);
    (story, task, whole)
}

/// Inserts a part of a firing, in the next batch.
fn part(story: &mut Story, task: TaskId, whole: InstanceId, part: Part, links: Links) -> InstanceId {
    let (fire_time, ordinal, run, shards) = {
        let row = story.row(whole);
        (row.fire_time, row.ordinal, row.run, row.links.as_ref().map_or(0, |links| links.shards))
    };
    let id = story.insert(task, fire_time, ordinal, Origin::Manual);
    let row = story.row(id);
    (row.part, row.run) = (part, run);
    row.payload = part.shard_index().map(|index| Arc::from(index.to_string()));
    row.links = Some(Box::new(Links { parent: Some(whole), shards, ..links }));
    id
}

fn ended(story: &mut Story, id: InstanceId, state: State) {
    if state == State::Succeeded {
        return story.run(id, 0);
    }
    story.dispatch(id, 0);
    story.change(id, state, Cause::Finished);
}

/// Two shards for workers, of which the second begins on this one.
fn broadcast(begins_on: usize, second_is_for: &str) -> Story {
    let (mut story, task, whole) = firing(manual("a"));
    story.row(whole).links = Some(Box::new(Links { shards: 2, ..Links::default() }));
    let ids = ["w1", second_is_for].into_iter().zip(0..).map(|(worker, index)| {
        let links = Links { shard_key: Some(worker.into()), is_for_worker: true, ..Links::default() };
        part(&mut story, task, whole, Part::shard(index), links)
    });
    let ids: Vec<_> = ids.collect();
    story.commit();
    story.start(ids[1], begins_on);
    story
}

#[test]
fn what_is_broadcast_begins_on_its_worker_only_and_once_on_each() {
    broadcast(1, "w2").holds("shard.complete");
    broadcast(0, "w2").violates("shard.complete", &["is for worker w2", "began on worker 0", "record"]);
    broadcast(0, "w1").violates("shard.complete", &["is for no worker, or for that of another one", "record"]);
}

/// A firing of two shards of which the first has ended so, and a rerun that has the second only.
fn rerun(first: State) -> Story {
    let (mut story, task, whole) = firing(manual("a"));
    story.row(whole).links = Some(Box::new(Links { shards: 2, ..Links::default() }));
    let ids = [0, 1].map(|index| part(&mut story, task, whole, Part::shard(index), Links::default()));
    story.commit();
    ended(&mut story, ids[0], first);
    ended(&mut story, ids[1], State::Failed);
    story.change(whole, State::Failed, Cause::PartsEnded);
    story.commit();
    let entry = story.rerun(whole);
    let again = story.insert_next_run(whole);
    story.batch.applied.push(entry);
    story.change(again, State::Running, Cause::Divided);
    let links = story.row(again).links.get_or_insert_default();
    (links.shards, links.carried) = (2, 1);
    part(&mut story, task, again, Part::shard(1), Links::default());
    story.commit();
    story
}

#[test]
fn what_is_carried_over_has_succeeded_before() {
    rerun(State::Succeeded).holds("shard.complete");
    rerun(State::Cancelled).violates("shard.complete", &["was divided into 2 shards, there are [1]", "record"]);
}

/// What goes wrong with a list of two items.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    LeavesOneOut,
    RunsOneTwice,
    TakesAnother,
    ReducesEarly,
    GivesTooFew,
    EndsEarly,
    NeverReduces,
}

fn mapped(wrong: Wrong) -> Story {
    let handler = manual("a").handler;
    let map = Map { list: handler.clone(), reduce: Some(handler), parallel: 2 };
    let (mut story, task, whole) = firing(TaskDefinition { map: Some(Arc::new(map)), ..manual("a") });
    let progress = |story: &mut Story, shards, phase, made| {
        let map = Some(Box::new(MapProgress { phase, made, result_bytes: 0 }));
        story.row(whole).links = Some(Box::new(Links { shards, map, ..Links::default() }));
    };
    progress(&mut story, 0, MapPhase::List, 0);
    let list = part(&mut story, task, whole, Part::WHOLE.and_list(), Links::default());
    story.commit();
    ended(&mut story, list, State::Succeeded);
    progress(&mut story, 2, MapPhase::Items, 2);
    let numbers: &[u32] = match wrong {
        Wrong::LeavesOneOut => &[0],
        Wrong::RunsOneTwice => &[0, 1, 1],
        _ => &[0, 1],
    };
    let items: Vec<_> = numbers.iter().map(|index| part(&mut story, task, whole, Part::shard(*index), Links::default())).collect();
    if wrong == Wrong::TakesAnother {
        story.row(items[1]).payload = Some("7".into());
    }
    story.commit();
    let last = items.len() - usize::from(matches!(wrong, Wrong::ReducesEarly | Wrong::EndsEarly));
    items[..last].iter().for_each(|item| ended(&mut story, *item, State::Succeeded));
    story.commit();
    progress(&mut story, 2, MapPhase::Reduce, 2);
    if wrong != Wrong::NeverReduces && wrong != Wrong::EndsEarly {
        let reduce = part(&mut story, task, whole, Part::WHOLE.and_reduce(), Links::default());
        story.row(reduce).result = Some(if wrong == Wrong::GivesTooFew { "1" } else { "2" }.into());
        story.commit();
        ended(&mut story, reduce, State::Succeeded);
    }
    if wrong != Wrong::ReducesEarly {
        story.change(whole, State::Succeeded, Cause::PartsEnded);
    }
    story.commit();
    story
}

#[test]
fn a_list_has_each_item_once_and_is_reduced_at_its_end() {
    mapped(Wrong::Nothing).holds("map.complete");
    for (wrong, said) in [
        (Wrong::LeavesOneOut, "there are [0]"),
        (Wrong::RunsOneTwice, "there are [0, 1, 1]"),
        (Wrong::TakesAnother, "is Some(\"7\")"),
        (Wrong::ReducesEarly, "before all items had succeeded"),
        (Wrong::GivesTooFew, "other results than 2"),
        (Wrong::EndsEarly, "1 parts have not ended"),
        (Wrong::NeverReduces, "is succeeded"),
    ] {
        // Other properties may notice as well.
        let violations = mapped(wrong).violations();
        let found = violations.iter().find(|(property, _)| *property == "map.complete").map(|(_, witness)| witness);
        assert!(found.is_some_and(|witness| witness.contains(said)), "{said}: {violations:?}");
    }
}
