//! Nodes that are other tasks: `call.complete`.

use std::sync::Arc;

use punctual_core::definition::{TaskDefinition, Workflow};
use punctual_core::ids::{InstanceId, PartitionId, TaskId};
use punctual_core::inbox::{Notice, called_ordinal};
use punctual_core::instance::{CallLink, Cause, Links, Origin, Part, State};
use punctual_core::workflow::{Graph, NodeSpec};
use punctual_sim::history::{What, Who};

use crate::story::{Story, manual};

/// What goes wrong with a call.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    CallsTwice,
    CallsAnother,
    EndsEarly,
    EndsOtherwise,
    SaysThatThereIsNone,
}

/// A workflow of one node that calls `sub`.
fn caller() -> TaskDefinition {
    let node = TaskDefinition { calls: Some("sub".into()), ..manual("w") };
    let graph = Graph::new(vec![NodeSpec::new("c", [])]).expect("a graph");
    TaskDefinition { workflow: Some(Arc::new(Workflow::new(graph, vec![Arc::new(node)]))), ..manual("w") }
}

/// A notice that the next batch applies.
fn noticed(story: &mut Story, notice: Notice) {
    let entry = story.entry();
    story.record(Who::Database, What::Noticed { entry, partition: PartitionId(0), notice });
    story.batch.applied.push(entry);
}

/// The instance that a node calls.
fn call(story: &mut Story, of: TaskId, node: (InstanceId, TaskId)) -> InstanceId {
    let (caller, caller_task) = node;
    let name = Arc::from("sub");
    noticed(story, Notice::Called { name, task: Some(of), caller, caller_task, hops: 1, payload: None });
    let called = story.insert(of, story.wall(), called_ordinal(caller), Origin::Call);
    let call = Some(Box::new(CallLink::CalledBy { task: caller_task }));
    story.row(called).links = Some(Box::new(Links { cause: Some(caller), hops: 1, call, ..Links::default() }));
    story.commit();
    called
}

fn called(wrong: Wrong) -> Story {
    let mut story = Story::new();
    let [sub, other, task] =
        [(1, manual("sub")), (2, manual("other")), (3, caller())].map(|(task, definition)| story.define(task, definition));
    story.commit();
    let entry = story.submit(task, 1, None);
    let run = story.apply_trigger(entry, task);
    story.row(run).links = Some(Box::new(Links { nodes: 1, ..Links::default() }));
    story.change(run, State::Running, Cause::Divided);
    let (fire_time, ordinal) = (story.row(run).fire_time, story.row(run).ordinal);
    let node = story.insert(task, fire_time, ordinal, Origin::Manual);
    story.row(node).part = Part::node(0);
    let calls = |instance| Some(Box::new(CallLink::Calls { task: "sub".into(), instance }));
    story.row(node).links = Some(Box::new(Links { parent: Some(run), call: calls(None), ..Links::default() }));
    story.change(node, State::Running, Cause::Calls);
    story.commit();
    story.pass(10);
    let instance = call(&mut story, if wrong == Wrong::CallsAnother { other } else { sub }, (node, task));
    if wrong != Wrong::EndsEarly {
        story.run(instance, 0);
    }
    if wrong == Wrong::CallsTwice {
        story.pass(10);
        let second = call(&mut story, sub, (node, task));
        story.run(second, 1);
    }
    let instance = Some(instance).filter(|_| wrong != Wrong::SaysThatThereIsNone);
    let state = if matches!(wrong, Wrong::EndsOtherwise | Wrong::SaysThatThereIsNone) { State::Failed } else { State::Succeeded };
    noticed(&mut story, Notice::CallEnded { task, caller: node, instance, state, result: None, detail: None });
    story.row(node).links.get_or_insert_default().call = calls(instance);
    story.change(node, state, Cause::CallEnded);
    story.change(run, state, Cause::PartsEnded);
    story.commit();
    story
}

#[test]
fn a_node_calls_once_and_ends_as_what_it_has_called() {
    called(Wrong::Nothing).holds("call.complete");
    // Both have the ordinal that the node gives them, so that is another property's as well.
    let twice: Vec<_> = called(Wrong::CallsTwice).violations().into_iter().map(|(property, _)| property).collect();
    assert_eq!(twice, ["fire.no_duplicate", "call.complete"]);
    called(Wrong::CallsAnother).violates("call.complete", &["was called by no node that calls it", "record"]);
    called(Wrong::EndsEarly).violates("call.complete", &["is succeeded, and what it has called is created", "record"]);
    called(Wrong::EndsOtherwise).violates("call.complete", &["is failed, and what it has called is succeeded", "record"]);
    called(Wrong::SaysThatThereIsNone).violates("call.complete", &["is failed, and what it has called is not there", "record"]);
}
