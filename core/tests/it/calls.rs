//! Nodes of workflows that call other tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::definition::{Blocking, PayloadRule, Takes, TaskDefinition, Trigger, Workflow};
use punctual_core::ids::InstanceId;
use punctual_core::inbox::{Notice, Submission};
use punctual_core::instance::{CallLink, Cause, InstanceRow, Origin, Part, State};
use punctual_core::limits;
use punctual_core::protocol::End;
use punctual_core::workflow::{FailurePolicy, Graph, NodeIndex, NodeSpec};
use punctual_sim::tabletop::{InstanceAction, PauseTarget, Run, World, task};

use crate::workflows::node;

const SECOND: u64 = 1_000;

/// A workflow of these nodes, some of which call a task.
fn calling(name: &str, nodes: Vec<NodeSpec>, calls: &[(&str, &str)]) -> TaskDefinition {
    let base = task(name, Trigger::Manual);
    let definitions = nodes.iter().map(|node| {
        let called = calls.iter().find(|(caller, _)| *caller == &*node.name).map(|(_, called)| Arc::from(*called));
        Arc::new(TaskDefinition { calls: called, ..base.clone() })
    });
    let definitions = definitions.collect();
    TaskDefinition { workflow: Some(Arc::new(Workflow::new(Graph::new(nodes).expect("a graph"), definitions))), ..base }
}

/// `w`: `a`, then `c`, which calls the task `sub`, then `b`.
fn caller() -> TaskDefinition {
    calling("w", vec![node("a", &[]), node("c", &["a"]), node("b", &["c"])], &[("c", "sub")])
}

fn of_task(name: &str) -> PauseTarget {
    PauseTarget::Task(Arc::from(name))
}

fn failing() -> Run {
    Run { end: End::FailedForGood, ..Run::default() }
}

fn takes(takes: u64) -> Run {
    Run { takes, ..Run::default() }
}

fn whole<'a>(world: &'a World, name: &str) -> Vec<&'a InstanceRow> {
    world.rows(name).into_iter().filter(|row| row.part == Part::WHOLE).collect()
}

/// The node `c` of the newest run of `w`.
fn calling_node(world: &World) -> &InstanceRow {
    let run = whole(world, "w").last().expect("a run").id;
    let of_run = |row: &&InstanceRow| row.parent() == Some(run) && row.part == Part::node(1);
    world.rows("w").into_iter().find(of_run).expect("the node")
}

fn called_by_row(row: &InstanceRow) -> Option<InstanceId> {
    match row.links.as_ref()?.call.as_deref()? {
        CallLink::Calls { instance, .. } => *instance,
        CallLink::CalledBy { .. } => None,
    }
}

fn detail(row: &InstanceRow) -> &str {
    row.transitions.last().and_then(|last| last.detail.as_deref()).unwrap_or_default()
}

fn states(world: &World, name: &str) -> BTreeMap<String, State> {
    let rows = world.rows(name);
    let run = whole(world, name).last().expect("a run").id;
    let definition = world.data().definition(rows[0].task, rows[0].version).expect("its version").clone();
    let graph = definition.workflow.as_ref().expect("a workflow").graph();
    let of_run = rows.into_iter().filter(|row| row.parent() == Some(run));
    of_run.map(|row| (graph.name(NodeIndex(row.part.node_index().expect("a node"))).to_string(), row.state)).collect()
}

/// A node that calls is running while the instance is, ends after it, and hands its result on. Both say which the other one is.
#[test]
pub(crate) fn a_node_ends_with_what_it_has_called() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    world.script("sub", &[takes(5 * SECOND)]);
    world.answer("sub", "{\"rows\":7}");
    world.trigger("w", None);
    world.run(3 * SECOND);
    let called = whole(&world, "sub")[0];
    let node = calling_node(&world);
    assert_eq!((called.state, called.origin, called.transitions[0].cause), (State::Running, Origin::Call, Cause::Called));
    assert_eq!(called.caller(), Some((node.id, node.task)));
    assert_eq!(called.links.as_ref().and_then(|links| links.cause), Some(node.id));
    assert_eq!((node.state, node.transitions.last().map(|last| last.cause)), (State::Running, Some(Cause::Calls)));
    assert_eq!((node.attempt, node.worker.is_some(), detail(node)), (0, false, "`sub`"));
    assert_eq!(called.ordinal, punctual_core::inbox::called_ordinal(node.id), "so it is found before it has ended");
    let (called, node) = (called.id, node.id);
    world.run(10 * SECOND);
    let node_now = world.data().instances[&node].clone();
    assert_eq!((node_now.state, called_by_row(&node_now)), (State::Succeeded, Some(called)));
    assert_eq!(node_now.result.as_deref(), Some("{\"rows\":7}"));
    assert_eq!(detail(&node_now), format!("instance {called} of `sub` is succeeded"));
    assert!(node_now.ended_at() >= world.data().instances[&called].ended_at());
    assert_eq!(whole(&world, "w")[0].state, State::Succeeded);
    assert_eq!(world.began.len(), 3, "a, sub and b");
    world.assert_sound();
}

/// However the called instance ends but well, the node has failed and says with whose help.
#[test]
fn a_node_fails_with_what_it_has_called() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    let mut retried = task("sub", Trigger::Manual);
    Arc::make_mut(&mut retried.policies).retry.max_attempts = Some(2);
    let failure = Run { end: End::Failed, ..Run::default() };
    for (definition, run, end) in [
        (task("sub", Trigger::Manual), failing(), State::Failed),
        (retried, failure, State::DeadLettered),
        (task("sub", Trigger::Manual), takes(100 * SECOND), State::Cancelled),
    ] {
        world.define(definition);
        world.script("sub", &[run]);
        world.trigger("w", None);
        world.run(5 * SECOND);
        let called = whole(&world, "sub").last().expect("called").id;
        if end == State::Cancelled {
            world.cancel(called);
        }
        world.run(60 * SECOND);
        let (row, node) = (&world.data().instances[&called], calling_node(&world));
        assert_eq!((row.state, node.state), (end, State::Failed));
        assert!(detail(node).starts_with(&format!("instance {called} of `sub` is {}", end.name())), "{}", detail(node));
        assert_eq!(
            states(&world, "w"),
            BTreeMap::from([("a".into(), State::Succeeded), ("b".into(), State::Skipped), ("c".into(), State::Failed)])
        );
        assert_eq!(whole(&world, "w").last().map(|run| run.state), Some(State::Failed));
    }
    world.assert_sound();
}

/// A workflow calls a workflow calls a task, each of another owner.
#[test]
fn workflows_call_workflows_whoever_owns_them() {
    let mut world = World::new(8, 3, 3);
    world.run(20 * SECOND);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    for index in 0..10 {
        world.define(calling(&format!("top{index}"), vec![node("x", &[]), node("y", &["x"])], &[("x", "w")]));
    }
    let mut many = caller();
    Arc::make_mut(&mut many.policies).concurrency.max_running = 20;
    world.define(many);
    world.answer_node("w", "b", "[7]");
    world.answer_node("top0", "y", "1");
    for index in 0..10 {
        world.trigger(&format!("top{index}"), None);
    }
    world.run(120 * SECOND);
    assert_eq!(whole(&world, "sub").iter().filter(|row| row.state == State::Succeeded).count(), 10);
    assert_eq!(whole(&world, "w").iter().filter(|row| row.state == State::Succeeded && row.origin == Origin::Call).count(), 10);
    for index in 0..10 {
        assert_eq!(whole(&world, &format!("top{index}"))[0].state, State::Succeeded);
    }
    let results: Vec<_> = whole(&world, "top0").iter().map(|row| row.result.as_deref()).collect();
    assert_eq!(results, [Some("{\"y\":1}")], "of its own last node");
    let handed: Vec<_> = world.rows("top0").into_iter().filter(|row| row.part == Part::node(0)).map(|row| row.result.as_deref()).collect();
    assert_eq!(handed, [Some("{\"b\":[7]}")], "what the run that was called has answered");
    let hops: Vec<_> = whole(&world, "sub").iter().map(|row| row.links.as_ref().map_or(0, |links| links.hops)).collect();
    assert_eq!(hops, [2; 10]);
    world.assert_sound();
}

/// Owners of both sides die all the time, each time at another moment of a call: each is made once, and answered.
#[test]
fn takeovers_on_both_sides_make_each_call_once() {
    let mut world = World::new(8, 3, 3);
    world.run(20 * SECOND);
    let mut sub = task("sub", Trigger::Manual);
    Arc::make_mut(&mut sub.policies).concurrency.max_running = 50;
    world.define(sub);
    for index in 0..6 {
        let name = format!("w{index}");
        world.define(calling(&name, vec![node("a", &[]), node("c", &["a"]), node("b", &["c"])], &[("c", "sub")]));
    }
    let mut asked = 0;
    for round in 0..12_u64 {
        for index in 0..6 {
            world.script("sub", &[takes(700)]);
            world.trigger(&format!("w{index}"), None);
            asked += 1;
        }
        world.run(5 + round * 11);
        let replica = round as usize % 3;
        world.crash_replica(replica);
        world.run(14 * SECOND);
        world.start_replica(replica);
        world.run(8 * SECOND);
    }
    world.run(60 * SECOND);
    world.record_healed();
    world.run(120 * SECOND);
    let called: Vec<_> = whole(&world, "sub");
    assert_eq!(called.len(), asked, "each once");
    let mut callers: Vec<_> = called.iter().map(|row| row.caller().expect("was called").0).collect();
    callers.sort_unstable();
    callers.dedup();
    assert_eq!(callers.len(), asked, "each by another node");
    for index in 0..6 {
        assert!(whole(&world, &format!("w{index}")).iter().all(|run| run.state == State::Succeeded));
    }
    world.assert_sound();
}

/// A run that is cancelled cancels what it has called, through two owners, also where they change meanwhile.
#[test]
fn cancelling_a_run_cancels_what_it_has_called() {
    for crashes in [false, true] {
        let mut world = World::settled(2);
        world.define(task("sub", Trigger::Manual));
        world.define(caller());
        world.script("sub", &[Run { takes: 300 * SECOND, obeys_after: Some(2 * SECOND), ..Run::default() }]);
        world.trigger("w", None);
        world.run(5 * SECOND);
        if crashes {
            // The new owner knows from the rows alone who has called whom.
            world.crash_replica(0);
            world.start_replica(0);
            world.run(20 * SECOND);
        }
        let run = whole(&world, "w")[0].id;
        world.cancel(run);
        world.run(SECOND);
        assert_eq!(whole(&world, "sub")[0].state, State::Running, "it takes its time");
        if crashes {
            world.crash_replica(0);
            world.start_replica(0);
        }
        world.run(30 * SECOND);
        let (called, node) = (whole(&world, "sub")[0], calling_node(&world));
        assert_eq!((called.state, node.state, whole(&world, "w")[0].state), (State::Cancelled, State::Cancelled, State::Cancelled));
        let why = format!("by w: the node {} that called it was cancelled", node.id);
        assert!(detail(called).starts_with(&why), "{}", detail(called));
        assert!(world.data().inbox.is_empty());
        world.assert_sound();
    }
}

/// A run is cancelled when the owner of what its node has called has changed. How many instances were called.
pub(crate) fn cancelled_after_a_takeover() -> (World, usize) {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    world.script("sub", &[takes(300 * SECOND)]);
    world.trigger("w", None);
    world.run(5 * SECOND);
    world.crash_replica(0);
    world.start_replica(0);
    world.run(20 * SECOND);
    world.cancel(whole(&world, "w")[0].id);
    world.run(20 * SECOND);
    let called = whole(&world, "sub").len();
    (world, called)
}

/// A kill is a kill, for what a run's nodes do and for what they have called.
#[test]
fn killing_a_run_kills_its_nodes_and_what_they_have_called() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(calling("w", vec![node("a", &[]), node("c", &[])], &[("c", "sub")]));
    // They don't obey, and would have ten seconds.
    let stubborn = Run { takes: 300 * SECOND, obeys_after: None, ..Run::default() };
    world.script("sub", &[stubborn]);
    world.script_node("w", "a", &[stubborn]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    let run = whole(&world, "w")[0].id;
    world.cancel(run);
    world.run(2 * SECOND);
    assert_eq!(whole(&world, "sub")[0].state, State::Running, "they are in their grace");
    world.act(run, InstanceAction::Kill);
    world.run(SECOND);
    let rows = world.rows("w").into_iter().chain(world.rows("sub"));
    let ends: Vec<_> = rows.map(|row| (row.state, row.transitions.last().map(|last| last.cause))).collect();
    assert_eq!(ends, vec![(State::Cancelled, Some(Cause::KillRequested)); 4]);
    world.assert_sound();
}

/// The cancellation comes when the called instance has just ended: what it came to counts, and nothing else happens.
#[test]
fn a_cancellation_that_comes_too_late_changes_nothing() {
    for lead in 0..40_u64 {
        let mut world = World::settled(2);
        world.define(task("sub", Trigger::Manual));
        world.define(calling("w", vec![node("c", &[])], &[("c", "sub")]));
        world.script("sub", &[takes(1_000)]);
        world.trigger("w", None);
        world.run(1_000 + lead);
        world.cancel(whole(&world, "w")[0].id);
        world.run(30 * SECOND);
        let (called, node, run) = (whole(&world, "sub")[0].state, world.rows("w")[1].state, whole(&world, "w")[0].state);
        match called {
            State::Succeeded => assert_eq!(node, State::Succeeded, "{lead}"),
            _ => assert_eq!((called, node, run), (State::Cancelled, State::Cancelled, State::Cancelled), "{lead}"),
        }
        assert!(run.is_terminal());
        assert!(world.data().inbox.is_empty());
        world.assert_sound();
    }
}

/// What the called task's limit does to others it does to what is called.
#[test]
fn limits_of_the_called_task_hold() {
    for (blocking, ends) in [
        (Blocking::Queue { max_queue: 10 }, [State::Succeeded, State::Succeeded]),
        (Blocking::Discard, [State::Succeeded, State::Failed]),
        (Blocking::Replace, [State::Failed, State::Succeeded]),
    ] {
        let mut world = World::settled(2);
        let mut sub = task("sub", Trigger::Manual);
        Arc::make_mut(&mut sub.policies).concurrency.blocking = blocking;
        world.define(sub);
        ["v", "w"].iter().for_each(|name| _ = world.define(calling(name, vec![node("c", &[])], &[("c", "sub")])));
        world.script("sub", &[takes(5 * SECOND), takes(5 * SECOND)]);
        world.trigger("v", None);
        world.run(SECOND);
        world.trigger("w", None);
        world.run(30 * SECOND);
        let nodes = ["v", "w"].map(|name| world.rows(name).into_iter().find(|row| row.part != Part::WHOLE).expect("its node"));
        assert_eq!(nodes.map(|node| node.state), ends, "{blocking:?}");
        if blocking == Blocking::Discard {
            assert_eq!(whole(&world, "sub")[1].state, State::Skipped);
            assert!(detail(nodes[1]).ends_with("is skipped: the task is at its limit of running instances"), "{}", detail(nodes[1]));
        }
        world.assert_sound();
    }
}

/// A call that comes when the task is gone, or not enabled, is answered with the reason.
#[test]
pub(crate) fn a_call_that_can_not_be_is_answered() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    world.remove("sub");
    world.trigger("w", None);
    world.run(10 * SECOND);
    let node = calling_node(&world);
    assert_eq!((node.state, detail(node)), (State::Failed, "`sub` was not fired: there is no such task any more"));
    assert_eq!(called_by_row(node), None);
    world.define(TaskDefinition { enabled: false, ..task("sub", Trigger::Manual) });
    world.trigger("w", None);
    world.run(10 * SECOND);
    assert_eq!(detail(calling_node(&world)), "`sub` was not fired: it is not enabled, and fires by hand only");
    assert!(whole(&world, "sub").is_empty());
    world.assert_sound();
}

#[derive(Debug)]
struct Numbers;

impl PayloadRule for Numbers {
    fn problem(&self, payload: Option<&str>) -> Option<String> {
        payload.is_none_or(|text| text.parse::<u64>().is_err()).then(|| "it is no number".to_owned())
    }

    fn text(&self) -> &str {
        "numbers"
    }
}

/// What the task takes may have changed since the node was written, or the payload is the run's: then it is said when the node calls.
#[test]
fn a_call_with_a_payload_that_the_task_does_not_take_is_answered() {
    let mut world = World::settled(2);
    world.define(TaskDefinition { takes: Some(Takes(Arc::new(Numbers))), ..task("sub", Trigger::Manual) });
    world.define(caller());
    for (payload, expected) in [(Some("12"), State::Succeeded), (Some("twelve"), State::Failed), (None, State::Failed)] {
        world.submit("w", vec![Submission { key: None, payload: payload.map(Arc::from), delay: None }]);
        world.run(10 * SECOND);
        assert_eq!(calling_node(&world).state, expected, "{payload:?}");
    }
    let why = "`sub` was not fired: PUN-154: the payload is not as the task's schema says: it is no number";
    assert_eq!((detail(calling_node(&world)), whole(&world, "sub").len()), (why, 1));
    // Without one, the task's own counts, as for whoever triggers it.
    let own = TaskDefinition { payload: Some(Arc::from("7")), takes: Some(Takes(Arc::new(Numbers))), ..task("sub", Trigger::Manual) };
    world.define(own);
    world.trigger("w", None);
    world.run(10 * SECOND);
    assert_eq!(calling_node(&world).state, State::Succeeded);
    world.assert_sound();
}

/// Workflows that call each other, written before anybody could check: there is an end to that, and all of them hear of it.
#[test]
fn calls_end_also_where_tasks_call_each_other() {
    let mut world = World::settled(2);
    for (name, called) in [("w", "v"), ("v", "w")] {
        let mut definition = calling(name, vec![node("c", &[])], &[("c", called)]);
        Arc::make_mut(&mut definition.policies).concurrency.max_running = 100;
        world.define(definition);
    }
    world.trigger("w", None);
    world.run(300 * SECOND);
    let runs: Vec<_> = whole(&world, "w").into_iter().chain(whole(&world, "v")).map(|row| row.state).collect();
    assert_eq!(runs, vec![State::Failed; limits::CHAIN_HOPS_MAX as usize + 1]);
    assert!(world.rows("w").into_iter().any(|row| detail(row).contains("tasks fire or call each other before it, and no more may")));
    assert!(world.violations().is_empty());
}

/// Whatever comes twice has its effect once.
#[test]
fn what_owners_say_twice_counts_once() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    world.script("sub", &[takes(5 * SECOND)]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    let (caller, caller_task, called) = (calling_node(&world).id, calling_node(&world).task, whole(&world, "sub")[0].id);
    let (name, payload) = (Arc::from("sub"), None);
    world.put_notice("sub", Notice::Called { name, task: None, caller, caller_task, hops: 1, payload });
    world.run(20 * SECOND);
    let before: Vec<_> = world.data().instances.values().map(|row| (row.id, row.state, row.transitions.len())).collect();
    assert_eq!(whole(&world, "sub").len(), 1);
    let (instance, state) = (Some(called), State::Failed);
    world.put_notice("w", Notice::CallEnded { task: caller_task, caller, instance, state, result: None, detail: None });
    world.put_notice("sub", Notice::CallCancelled { name: "sub".into(), task: None, caller, is_killed: true });
    world.run(20 * SECOND);
    let after: Vec<_> = world.data().instances.values().map(|row| (row.id, row.state, row.transitions.len())).collect();
    assert_eq!((before, whole(&world, "w")[0].state), (after, State::Succeeded));
    assert!(world.data().inbox.is_empty());
    world.assert_sound();
}

/// A paused task is called, and begins when the pause ends; a node of a paused workflow calls when its pause ends.
#[test]
fn pauses_hold_on_both_sides() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    world.script_node("w", "a", &[takes(3 * SECOND)]);
    world.trigger("w", None);
    world.run(SECOND);
    world.set_pause(&of_task("w"), true);
    world.run(10 * SECOND);
    assert_eq!((calling_node(&world).state, whole(&world, "sub").len()), (State::Created, 0));
    world.crash_replica(0);
    world.start_replica(0);
    world.run(20 * SECOND);
    assert_eq!((calling_node(&world).state, whole(&world, "sub").len()), (State::Created, 0), "a new owner knows of the pause");
    world.set_pause(&of_task("sub"), true);
    world.set_pause(&of_task("w"), false);
    world.run(10 * SECOND);
    assert_eq!((calling_node(&world).state, whole(&world, "sub")[0].state), (State::Running, State::Created));
    world.set_pause(&of_task("sub"), false);
    world.run(10 * SECOND);
    assert_eq!(whole(&world, "w")[0].state, State::Succeeded);
    world.assert_sound();
}

/// A failure that ends the run ends what another node has called.
#[test]
fn a_failure_that_ends_the_run_cancels_what_was_called() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    let fatal = NodeSpec { on_failure: FailurePolicy::FailRun, ..node("a", &[]) };
    world.define(calling("w", vec![fatal, node("c", &[])], &[("c", "sub")]));
    world.script("sub", &[takes(300 * SECOND)]);
    world.script_node("w", "a", &[Run { takes: 3 * SECOND, ..failing() }]);
    world.trigger("w", None);
    world.run(20 * SECOND);
    assert_eq!(whole(&world, "sub")[0].state, State::Cancelled);
    assert_eq!(whole(&world, "w")[0].state, State::Failed);
    world.assert_sound();
}

/// A rerun from a node that calls calls again.
#[test]
fn a_rerun_from_a_node_calls_again() {
    let mut world = World::settled(2);
    world.define(task("sub", Trigger::Manual));
    world.define(caller());
    world.script("sub", &[failing()]);
    world.trigger("w", None);
    world.run(10 * SECOND);
    assert_eq!(whole(&world, "w")[0].state, State::Failed);
    world.script("sub", &[Run::default()]);
    world.rerun_from(whole(&world, "w")[0].id, &["c"], true).expect("it is accepted");
    world.run(10 * SECOND);
    assert_eq!(whole(&world, "w").last().map(|run| run.state), Some(State::Succeeded));
    let called: Vec<_> = whole(&world, "sub").iter().map(|row| (row.state, row.run)).collect();
    assert_eq!(called, [(State::Failed, 1), (State::Succeeded, 1)]);
    world.assert_sound();
}
