//! Runs of workflows.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::definition::{Blocking, Sharding, TaskDefinition, Trigger, Workflow};
use punctual_core::ids::InstanceId;
use punctual_core::inbox::NodeMark;
use punctual_core::instance::{Cause, InstanceRow, Part, State};
use punctual_core::limits;
use punctual_core::protocol::End;
use punctual_core::scheduler::Alert;
use punctual_core::workflow::{Comparison, Condition, FailurePolicy, Graph, NodeSpec, TriggerRule};
use punctual_sim::tabletop::{Run, World, task};

const SECOND: u64 = 1_000;

pub(crate) fn node(name: &str, after: &[&str]) -> NodeSpec {
    NodeSpec::new(name, after.iter().copied())
}

fn failing() -> Run {
    Run { end: End::FailedForGood, ..Run::default() }
}

fn takes(takes: u64) -> Run {
    Run { takes, ..Run::default() }
}

pub(crate) fn workflow_of(name: &str, nodes: Vec<NodeSpec>, change: impl Fn(&str, &mut TaskDefinition)) -> TaskDefinition {
    let base = task(name, Trigger::Manual);
    let definition = |node: &NodeSpec| {
        let mut definition = base.clone();
        change(&node.name, &mut definition);
        Arc::new(definition)
    };
    let definitions = nodes.iter().map(definition).collect();
    let graph = Graph::new(nodes).expect("a graph");
    TaskDefinition { workflow: Some(Arc::new(Workflow::new(graph, definitions))), ..base }
}

fn workflow(name: &str, nodes: Vec<NodeSpec>) -> TaskDefinition {
    workflow_of(name, nodes, |_, _| {})
}

pub(crate) fn diamond(name: &str) -> TaskDefinition {
    workflow(name, vec![node("a", &[]), node("b", &["a"]), node("c", &["a"]), node("d", &["b", "c"])])
}

/// The runs of a task, oldest first.
fn wholes<'a>(world: &'a World, name: &str) -> Vec<&'a InstanceRow> {
    world.rows(name).into_iter().filter(|row| row.part == Part::WHOLE).collect()
}

/// What is on record of a run's nodes, by name: what was said of one later counts.
fn nodes<'a>(world: &'a World, name: &str, run: u32) -> BTreeMap<String, &'a InstanceRow> {
    let mut rows = world.rows(name);
    rows.retain(|row| row.run == run && row.part.shard_index().is_none());
    rows.sort_by_key(|row| row.part);
    let whole = rows[0];
    let definition = world.data().definition(whole.task, whole.version).expect("its version").clone();
    let graph = definition.workflow.as_ref().expect("a workflow").graph();
    let named = |row: &'a InstanceRow| Some((graph.name(punctual_core::workflow::NodeIndex(row.part.node_index()?)).to_string(), row));
    rows.into_iter().filter_map(named).collect()
}

fn states(world: &World, name: &str, run: u32) -> Vec<(String, State)> {
    nodes(world, name, run).into_iter().map(|(name, row)| (name, row.state)).collect()
}

fn expect(world: &World, name: &str, run: u32, whole: State, expected: &[(&str, State)]) {
    let found = wholes(world, name).into_iter().find(|row| row.run == run).expect("the run").state;
    let expected: Vec<_> = expected.iter().map(|(node, state)| ((*node).to_owned(), *state)).collect();
    assert_eq!((found, states(world, name, run)), (whole, expected));
}

fn detail(row: &InstanceRow) -> &str {
    row.transitions.last().and_then(|last| last.detail.as_deref()).unwrap_or_default()
}

/// C346: a diamond, its two sides ending in the same millisecond, whoever owns it: what joins them starts once, after both.
#[test]
fn a_join_starts_once_after_both_sides() {
    let mut world = World::new(4, 2, 4);
    world.run(15 * SECOND);
    let names: Vec<_> = (0..50).map(|number| format!("w{number}")).collect();
    names.iter().for_each(|name| _ = world.define(diamond(name)));
    for _ in 0..20 {
        names.iter().for_each(|name| _ = world.trigger(name, None));
        world.run(20 * SECOND);
    }
    world.run(60 * SECOND);
    for name in &names {
        let runs = wholes(&world, name);
        assert_eq!(runs.len(), 20);
        for run in runs {
            assert_eq!(run.state, State::Succeeded);
            let parts: Vec<_> = world.rows(name).into_iter().filter(|row| row.parent() == Some(run.id)).collect();
            assert_eq!(parts.len(), 4);
            let of = |index: u32| parts.iter().find(|row| row.part == Part::node(index)).expect("the node");
            assert!(of(3).created_at() >= of(1).ended_at().max(of(2).ended_at()).expect("both have ended"));
        }
    }
    assert_eq!(world.began.len(), 50 * 20 * 4);
    world.assert_sound();
}

/// C348: a node has failed and others go on: the run goes on until the last of them has ended, and fails then, once.
#[test]
fn a_run_ends_with_its_last_node() {
    let mut world = World::settled(2);
    world.define(workflow("w", vec![node("a", &[]), node("b", &["a"]), node("c", &["b"]), node("d", &["a"]), node("e", &["d"])]));
    world.script_node("w", "b", &[failing()]);
    world.script_node("w", "d", &[takes(10 * SECOND)]);
    world.trigger("w", None);
    world.run(5 * SECOND);
    let [("a", State::Succeeded), ("b", State::Failed), ("c", State::Skipped), ("d", State::Running)] =
        [0, 1, 2, 3].map(|index| (["a", "b", "c", "d"][index], states(&world, "w", 1)[index].1))
    else {
        panic!("{:?}", states(&world, "w", 1))
    };
    assert_eq!(wholes(&world, "w")[0].state, State::Running);
    assert_eq!(detail(nodes(&world, "w", 1)["c"]), "upstream `b` failed");
    world.run(20 * SECOND);
    assert_eq!(wholes(&world, "w")[0].state, State::Failed);
    assert_eq!(detail(wholes(&world, "w")[0]), "1 of 5 nodes did not succeed: `b`");
    assert_eq!(nodes(&world, "w", 1)["e"].state, State::Succeeded);
    let run = wholes(&world, "w")[0].id;
    let alerts: Vec<_> = world.alerts.iter().map(|(_, alert)| alert.clone()).collect();
    let cause = wholes(&world, "w")[0].transitions.last().expect("it has ended").cause;
    assert_eq!(alerts, [Alert::Failed { instance: run, state: State::Failed, cause }], "one, and it is the run's");
    world.assert_sound();
}

/// C349: what depends on a node waits while that is retried, and is skipped only when it is given up.
#[test]
fn what_depends_on_a_node_waits_for_its_retries() {
    let mut world = World::settled(1);
    let retried = |name: &str, definition: &mut TaskDefinition| {
        if name == "a" {
            let retry = &mut Arc::make_mut(&mut definition.policies).retry;
            retry.max_attempts = Some(2);
        }
    };
    world.define(workflow_of("w", vec![node("a", &[]), node("b", &["a"])], retried));
    let failure = Run { end: End::Failed, ..Run::default() };
    world.script_node("w", "a", &[failure, Run::default()]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    expect(&world, "w", 1, State::Running, &[("a", State::Retrying)]);
    world.run(120 * SECOND);
    expect(&world, "w", 1, State::Succeeded, &[("a", State::Succeeded), ("b", State::Succeeded)]);
    assert_eq!(nodes(&world, "w", 1)["a"].attempt, 2);
    world.script_node("w", "a", &[failure]);
    world.trigger("w", None);
    world.run(120 * SECOND);
    let run = wholes(&world, "w")[1];
    let parts: Vec<_> = world.rows("w").into_iter().filter(|row| row.parent() == Some(run.id)).map(|row| row.state).collect();
    assert_eq!((run.state, parts), (State::Failed, vec![State::DeadLettered, State::Skipped]));
    world.assert_sound();
}

/// C350: a failed node is run again, and with it what was skipped because of it; nothing that had succeeded. Then one node alone, and one
/// with all that comes after it.
#[test]
pub(crate) fn a_rerun_from_a_node_runs_what_follows_from_it() {
    let mut world = World::settled(2);
    world.define(workflow("w", vec![node("other", &[]), node("a", &[]), node("b", &["a"]), node("c", &["b"])]));
    world.answer_node("w", "other", "7");
    world.script_node("w", "a", &[failing()]);
    world.trigger("w", None);
    world.run(10 * SECOND);
    expect(
        &world,
        "w",
        1,
        State::Failed,
        &[("a", State::Failed), ("b", State::Skipped), ("c", State::Skipped), ("other", State::Succeeded)],
    );
    world.script_node("w", "a", &[Run::default()]);
    let all = [("a", State::Succeeded), ("b", State::Succeeded), ("c", State::Succeeded), ("other", State::Succeeded)];
    world.rerun_from(wholes(&world, "w")[0].id, &["a"], false).expect("it is accepted");
    world.run(10 * SECOND);
    expect(&world, "w", 2, State::Succeeded, &all);
    assert_eq!(world.began.len(), 2 + 3);
    let carried = nodes(&world, "w", 2)["other"];
    assert_eq!((carried.transitions.len(), carried.transitions[0].cause, carried.result.as_deref()), (1, Cause::CarriedOver, Some("7")));
    assert_eq!(carried.links.as_ref().and_then(|links| links.cause), Some(nodes(&world, "w", 1)["other"].id));
    world.rerun_from(wholes(&world, "w")[1].id, &["b"], false).expect("it is accepted");
    world.run(10 * SECOND);
    expect(&world, "w", 3, State::Succeeded, &all);
    assert_eq!(world.began.len(), 2 + 3 + 1, "b alone");
    world.rerun_from(wholes(&world, "w")[2].id, &["b"], true).expect("it is accepted");
    world.run(10 * SECOND);
    expect(&world, "w", 4, State::Succeeded, &all);
    assert_eq!(world.began.len(), 2 + 3 + 1 + 2, "b and c");
    assert!(world.rerun_from(wholes(&world, "w")[2].id, &["b"], true).is_some_and(|entry| entry.0 > 0), "it was asked for before");
    assert_eq!(world.rerun_from(nodes(&world, "w", 4)["b"].id, &["b"], true), None, "a node is rerun by its run");
    world.assert_sound();
}

/// What the nodes have answered that nothing comes after is the run's result, and what it hands on; also where its owner has changed.
#[test]
fn a_run_answers_what_its_last_nodes_have_answered() {
    for is_taken_over in [false, true] {
        let mut world = World::settled(2);
        world.define(workflow("w", vec![node("a", &[]), node("b", &["a"]), node("c", &["a"]), node("d", &["a"])]));
        let after = [punctual_core::definition::Chain { task: "w".into(), on: punctual_core::definition::ChainOn::Success }];
        world.define(TaskDefinition { chains: Some(after.into()), ..task("next", Trigger::Manual) });
        world.answer_node("w", "a", "1");
        world.answer_node("w", "b", "{\"rows\":2}");
        world.answer_node("w", "d", "no json");
        world.script_node("w", "d", &[takes(30 * SECOND)]);
        world.trigger("w", None);
        world.run(5 * SECOND);
        if is_taken_over {
            world.crash_replica(0);
            world.start_replica(0);
        }
        world.run(60 * SECOND);
        let expected = Some(r#"{"b":{"rows":2},"d":"no json"}"#);
        assert_eq!(wholes(&world, "w")[0].result.as_deref(), expected, "{is_taken_over}");
        assert_eq!(world.rows("next")[0].payload.as_deref(), expected);
        world.answer_node("w", "b", &"x".repeat(limits::RESULT_BYTES_MAX));
        world.trigger("w", None);
        world.run(60 * SECOND);
        let result = wholes(&world, "w")[1].result.as_deref().map(str::len);
        assert!(result.is_none_or(|bytes| bytes <= limits::RESULT_BYTES_MAX), "what does not fit is left out");
        world.assert_sound();
    }
}

/// A rerun from a node that the workflow in force has no more does nothing, and is on record.
#[test]
fn a_rerun_from_a_node_that_is_gone_is_on_record() {
    let mut world = World::settled(1);
    world.define(workflow("w", vec![node("a", &[]), node("b", &["a"])]));
    world.trigger("w", None);
    world.run(10 * SECOND);
    world.define(workflow("w", vec![node("a", &[]), node("c", &["a"])]));
    world.rerun_from(wholes(&world, "w")[0].id, &["b"], false).expect("it is accepted");
    world.run(10 * SECOND);
    assert_eq!(wholes(&world, "w").len(), 1);
    assert_eq!(world.data().occurrences.len(), 1);
    world.assert_sound();
}

/// A changed workflow carries over by name what it still has, and runs what is new.
#[test]
fn a_rerun_goes_by_the_version_in_force() {
    let mut world = World::settled(1);
    world.define(workflow("w", vec![node("a", &[]), node("b", &["a"])]));
    world.script_node("w", "b", &[failing()]);
    world.trigger("w", None);
    world.run(10 * SECOND);
    world.script_node("w", "b", &[Run::default()]);
    world.define(workflow("w", vec![node("new", &[]), node("b", &["a", "new"]), node("a", &[])]));
    world.rerun_from(wholes(&world, "w")[0].id, &["b"], false).expect("it is accepted");
    world.run(10 * SECOND);
    expect(&world, "w", 2, State::Succeeded, &[("a", State::Succeeded), ("b", State::Succeeded), ("new", State::Succeeded)]);
    assert_eq!(nodes(&world, "w", 2)["a"].transitions[0].cause, Cause::CarriedOver);
    assert_eq!(world.began.len(), 4);
}

/// A rerun waits behind the task's limit, and its owner dies meanwhile: what is carried over is not forgotten.
#[test]
fn what_is_carried_over_survives_a_takeover_before_the_run_begins() {
    let mut world = World::new(1, 2, 2);
    world.run(15 * SECOND);
    world.define(workflow("w", vec![node("a", &[]), node("b", &["a"])]));
    world.answer_node("w", "a", "{\"rows\": 3}");
    world.script_node("w", "b", &[failing()]);
    world.trigger("w", None);
    world.run(10 * SECOND);
    world.script_node("w", "b", &[takes(30 * SECOND)]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    world.rerun_from(wholes(&world, "w")[0].id, &["b"], false).expect("it is accepted");
    world.run(SECOND);
    let again = wholes(&world, "w")[2];
    assert_eq!((again.run, again.state), (2, State::Waiting));
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(150 * SECOND);
    expect(&world, "w", 2, State::Succeeded, &[("a", State::Succeeded), ("b", State::Succeeded)]);
    let b = nodes(&world, "w", 2)["b"].id;
    assert_eq!(world.inputs[&b].as_ref(), "{\"a\":{\"rows\": 3}}");
    assert_eq!(world.began.len(), 2 + 2 + 1);
    world.assert_sound();
}

/// C352: somebody says that a node has failed: what depends on it is skipped, and nothing runs again.
#[test]
fn what_is_marked_as_failed_skips_what_depends_on_it() {
    let mut world = World::settled(1);
    world.define(workflow("w", vec![node("a", &[]), node("b", &["a"]), node("c", &["b"])]));
    world.script_node("w", "a", &[takes(10 * SECOND)]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    world.mark(wholes(&world, "w")[0].id, 1, NodeMark::Failed).expect("it is accepted");
    world.run(2 * SECOND);
    expect(&world, "w", 1, State::Running, &[("a", State::Running), ("b", State::Failed), ("c", State::Skipped)]);
    let said = &nodes(&world, "w", 1)["b"].transitions[0];
    assert_eq!((said.cause, said.detail.as_deref()), (Cause::Marked, Some("by ops: done by hand")));
    world.run(20 * SECOND);
    expect(&world, "w", 1, State::Failed, &[("a", State::Succeeded), ("b", State::Failed), ("c", State::Skipped)]);
    assert_eq!(world.began.len(), 1);
    assert_eq!(world.mark(wholes(&world, "w")[0].id, 1, NodeMark::Skipped), None, "the run has ended");
    world.assert_sound();
}

/// A node that has failed is said to have succeeded while the run goes on, and its owner dies: both rows stay, and what was said counts.
#[test]
pub(crate) fn what_was_said_of_a_failed_node_counts_after_a_takeover() {
    let mut world = World::new(1, 2, 2);
    world.run(15 * SECOND);
    let last = NodeSpec { rule: TriggerRule::AllDone, ..node("last", &["long"]) };
    world.define(workflow("w", vec![node("a", &[]), node("long", &[]), last]));
    world.script_node("w", "a", &[failing()]);
    world.script_node("w", "long", &[takes(40 * SECOND)]);
    world.trigger("w", None);
    world.run(5 * SECOND);
    let run = wholes(&world, "w")[0].id;
    world.mark(run, 0, NodeMark::Succeeded).expect("it is accepted");
    world.mark(run, 1, NodeMark::Skipped).expect("whether it can be is for the owner to say");
    world.run(2 * SECOND);
    let rows: Vec<_> = world.rows("w").into_iter().filter(|row| row.part.node_index() == Some(0)).collect();
    assert_eq!(
        rows.iter().map(|row| (row.part.is_amendment(), row.state)).collect::<Vec<_>>(),
        [(false, State::Failed), (true, State::Succeeded)]
    );
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(120 * SECOND);
    expect(&world, "w", 1, State::Succeeded, &[("a", State::Succeeded), ("last", State::Succeeded), ("long", State::Succeeded)]);
    world.assert_sound();
}

#[test]
fn a_node_that_waits_can_be_skipped_or_said_to_be_done() {
    let mut world = World::settled(1);
    world.define(workflow("w", vec![node("a", &[]), node("b", &["a"]), node("c", &["b"]), node("d", &["a"]), node("e", &["d"])]));
    world.script_node("w", "a", &[takes(10 * SECOND)]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    let run = wholes(&world, "w")[0].id;
    world.mark(run, 1, NodeMark::Skipped).expect("it is accepted");
    world.mark(run, 3, NodeMark::Succeeded).expect("it is accepted");
    assert_eq!(world.mark(run, 5, NodeMark::Skipped), None, "there are five nodes");
    world.run(30 * SECOND);
    let expected =
        [("a", State::Succeeded), ("b", State::Skipped), ("c", State::Skipped), ("d", State::Succeeded), ("e", State::Succeeded)];
    expect(&world, "w", 1, State::Succeeded, &expected);
    assert_eq!(world.began.len(), 2, "a and e");
    world.assert_sound();
}

#[test]
fn the_failure_of_a_node_can_end_the_run() {
    let mut world = World::settled(2);
    let fatal = NodeSpec { on_failure: FailurePolicy::FailRun, ..node("a", &[]) };
    world.define(workflow("w", vec![fatal, node("long", &[]), node("b", &["long"])]));
    world.script_node("w", "a", &[failing()]);
    world.script_node("w", "long", &[takes(60 * SECOND)]);
    world.trigger("w", None);
    world.run(10 * SECOND);
    expect(&world, "w", 1, State::Failed, &[("a", State::Failed), ("b", State::Skipped), ("long", State::Cancelled)]);
    assert_eq!(detail(nodes(&world, "w", 1)["b"]), "the failure of `a` ended the run");
    world.assert_sound();
}

#[test]
fn rules_policies_and_conditions_are_followed() {
    let mut world = World::settled(2);
    let when = |pointer: &str, test| Some(Condition { node: Arc::from("count"), pointer: Arc::from(pointer), test });
    let many = NodeSpec { when: when("/rows", Comparison::GreaterThan(100.into())), ..node("many", &["count"]) };
    let some = NodeSpec { when: when("/rows", Comparison::GreaterThan(0.into())), ..node("some", &["many", "count"]) };
    let some = NodeSpec { rule: TriggerRule::AllDone, ..some };
    let bad = NodeSpec { on_failure: FailurePolicy::Continue, ..node("bad", &["count"]) };
    let alarm = NodeSpec { rule: TriggerRule::OneFailed, ..node("alarm", &["worse"]) };
    let nodes_of = vec![node("count", &[]), many, some, bad, node("behind", &["bad"]), node("worse", &[]), alarm];
    world.define(workflow("w", nodes_of));
    world.answer_node("w", "count", "{\"rows\": 12}");
    world.script_node("w", "bad", &[failing()]);
    world.script_node("w", "worse", &[failing()]);
    world.trigger("w", None);
    world.run(20 * SECOND);
    let expected = [
        ("alarm", State::Succeeded),
        ("bad", State::Failed),
        ("behind", State::Succeeded),
        ("count", State::Succeeded),
        ("many", State::Skipped),
        ("some", State::Succeeded),
        ("worse", State::Failed),
    ];
    expect(&world, "w", 1, State::Failed, &expected);
    let rows = nodes(&world, "w", 1);
    assert_eq!(detail(rows["many"]), "`/rows` of the result of `count` is 12, and `greater_than` does not hold");
    assert_eq!(world.inputs[&rows["some"].id].as_ref(), "{\"many\":null,\"count\":{\"rows\": 12}}");
    assert_eq!(world.inputs[&rows["count"].id].as_ref(), "{}");
    world.assert_sound();
}

/// The owner dies while nodes run, wait and have ended; the next one goes on as if nothing had been, results included.
#[test]
fn a_takeover_goes_on_with_the_run() {
    for crash_after in [1_500, 2_500, 4_000, 6_000, 8_000] {
        let mut world = World::new(1, 2, 2);
        world.run(15 * SECOND);
        let far = Condition { node: Arc::from("a"), pointer: Arc::from("/ok"), test: Comparison::Equals(true.into()) };
        let far = NodeSpec { when: Some(far), rule: TriggerRule::AllDone, ..node("far", &["d"]) };
        world.define(workflow("w", vec![node("a", &[]), node("b", &["a"]), node("c", &["a"]), node("d", &["b", "c"]), far]));
        world.answer_node("w", "a", "{\"ok\": true}");
        world.script_node("w", "c", &[failing()]);
        world.script("w", &[takes(2 * SECOND)]);
        world.trigger("w", None);
        world.run(crash_after);
        let owner = world.owner();
        world.crash_replica(owner);
        world.run(120 * SECOND);
        let expected =
            [("a", State::Succeeded), ("b", State::Succeeded), ("c", State::Failed), ("d", State::Skipped), ("far", State::Succeeded)];
        expect(&world, "w", 1, State::Failed, &expected);
        assert_eq!(world.began.len(), 4, "{crash_after}");
        world.assert_sound();
    }
}

#[test]
fn cancelling_a_run_cancels_what_runs_and_skips_the_rest() {
    let mut world = World::new(1, 2, 2);
    world.run(15 * SECOND);
    world.define(diamond("w"));
    world.script("w", &[takes(SECOND)]);
    world.script_node("w", "b", &[Run { takes: 60 * SECOND, obeys_after: Some(8 * SECOND), ..Run::default() }]);
    world.script_node("w", "c", &[takes(60 * SECOND)]);
    world.trigger("w", None);
    world.run(4 * SECOND);
    let cancelled = world.cancel(wholes(&world, "w")[0].id);
    world.run(3 * SECOND);
    let expected = [("a", State::Succeeded), ("b", State::Running), ("c", State::Cancelled), ("d", State::Skipped)];
    expect(&world, "w", 1, State::Running, &expected);
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(60 * SECOND);
    let expected = [("a", State::Succeeded), ("b", State::Cancelled), ("c", State::Cancelled), ("d", State::Skipped)];
    expect(&world, "w", 1, State::Cancelled, &expected);
    assert_eq!(detail(wholes(&world, "w")[0]), "by ops: no longer needed");
    assert!(!world.data().inbox.contains_key(&cancelled));
    world.assert_sound();
}

/// A cancelled node is a failed one to those that depend on it.
#[test]
fn a_node_can_be_cancelled_by_itself() {
    let mut world = World::settled(2);
    world.define(diamond("w"));
    world.script_node("w", "b", &[takes(60 * SECOND)]);
    world.trigger("w", None);
    world.run(3 * SECOND);
    world.cancel(nodes(&world, "w", 1)["b"].id);
    world.run(5 * SECOND);
    let expected = [("a", State::Succeeded), ("b", State::Cancelled), ("c", State::Succeeded), ("d", State::Skipped)];
    expect(&world, "w", 1, State::Failed, &expected);
    world.assert_sound();
}

/// What runs when its task is removed may end; nothing else of the run starts, whoever owns it.
#[test]
fn the_removal_of_a_task_winds_its_runs_up() {
    for crashes in [false, true] {
        let mut world = World::new(1, 2, 2);
        world.run(15 * SECOND);
        world.define(diamond("w"));
        world.script("w", &[takes(8 * SECOND)]);
        world.trigger("w", None);
        world.run(3 * SECOND);
        world.remove("w");
        world.run(2 * SECOND);
        if crashes {
            let owner = world.owner();
            world.crash_replica(owner);
        }
        world.run(60 * SECOND);
        let expected = [("a", State::Succeeded), ("b", State::Skipped), ("c", State::Skipped), ("d", State::Skipped)];
        expect(&world, "w", 1, State::Cancelled, &expected);
        assert_eq!(wholes(&world, "w")[0].transitions.last().map(|last| last.cause), Some(Cause::TaskRemoved));
        world.assert_sound();
    }
}

/// The limit counts runs, not nodes; a newer run takes the place of one that goes on.
#[test]
fn runs_count_against_the_limit_as_one() {
    let mut world = World::settled(2);
    world.define(diamond("w"));
    world.trigger("w", None);
    world.trigger("w", None);
    world.run(500);
    assert_eq!(wholes(&world, "w").iter().map(|row| row.state).collect::<Vec<_>>(), [State::Running, State::Waiting]);
    world.run(20 * SECOND);
    assert!(wholes(&world, "w").iter().all(|row| row.state == State::Succeeded));
    let mut replaced = diamond("r");
    Arc::make_mut(&mut replaced.policies).concurrency.blocking = Blocking::Replace;
    world.define(replaced);
    world.script("r", &[takes(5 * SECOND)]);
    world.trigger("r", None);
    world.run(SECOND);
    world.trigger("r", None);
    world.run(30 * SECOND);
    let ends: Vec<_> = wholes(&world, "r").iter().map(|row| (row.state, row.transitions.last().map(|last| last.cause))).collect();
    assert_eq!(ends, [(State::Cancelled, Some(Cause::Replaced)), (State::Succeeded, Some(Cause::PartsEnded))]);
    world.assert_sound();
}

/// A node is divided into shards; the owner dies in between; what comes after it starts once, after all of them.
#[test]
fn a_node_may_be_divided_into_shards() {
    let mut world = World::new(1, 2, 2);
    world.run(15 * SECOND);
    let sharded = |name: &str, definition: &mut TaskDefinition| {
        if name == "b" {
            Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(3);
        }
    };
    world.define(workflow_of("w", vec![node("a", &[]), node("b", &["a"]), node("c", &["b"])], sharded));
    world.script_node("w", "b", &[takes(10 * SECOND)]);
    world.answer_node("w", "a", "1");
    world.trigger("w", None);
    world.run(5 * SECOND);
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(60 * SECOND);
    expect(&world, "w", 1, State::Succeeded, &[("a", State::Succeeded), ("b", State::Succeeded), ("c", State::Succeeded)]);
    let of_b = nodes(&world, "w", 1)["b"].id;
    let shards: Vec<_> = world.rows("w").into_iter().filter(|row| row.parent() == Some(of_b)).collect();
    assert_eq!(shards.iter().map(|row| row.part).collect::<Vec<_>>(), [0, 1, 2].map(|index| Part::node(1).and_shard(index)));
    assert!(shards.iter().all(|shard| world.inputs[&shard.id].as_ref() == "{\"a\":1}"));
    assert_eq!(world.began.len(), 5);
    world.assert_sound();
}

/// Thousands into one, and hundreds one behind the other.
#[test]
fn wide_and_deep_runs_come_to_their_end() {
    let mut world = World::settled(8);
    world.script("wide", &[takes(10)]);
    world.script("deep", &[takes(10)]);
    let names: Vec<_> = (0..1_500).map(|number| format!("n{number}")).collect();
    let mut wide: Vec<_> = names.iter().map(|name| node(name, &["first"])).collect();
    wide.insert(0, node("first", &[]));
    wide.push(node("last", &names.iter().map(String::as_str).collect::<Vec<_>>()));
    world.define(workflow("wide", wide));
    let deep =
        (0..400).map(|at: usize| node(&names[at], &at.checked_sub(1).map(|before| names[before].as_str()).into_iter().collect::<Vec<_>>()));
    world.define(workflow("deep", deep.collect()));
    world.trigger("wide", None);
    world.trigger("deep", None);
    world.run(120 * SECOND);
    for (name, count) in [("wide", 1_502), ("deep", 400)] {
        assert_eq!(wholes(&world, name)[0].state, State::Succeeded);
        assert_eq!(nodes(&world, name, 1).len(), count);
    }
    assert_eq!(world.scheduler().instance_count(), 0);
}

/// Each node's instance knows of what it is a part, and nothing of a run is left in memory when it has ended.
#[test]
fn nothing_of_a_run_is_left_when_it_has_ended() {
    let mut world = World::settled(1);
    world.define(diamond("w"));
    world.trigger("w", None);
    world.run(20 * SECOND);
    let run: InstanceId = wholes(&world, "w")[0].id;
    assert!(nodes(&world, "w", 1).values().all(|node| node.parent() == Some(run) && node.payload.is_none()));
    assert_eq!(wholes(&world, "w")[0].links.as_ref().map(|links| links.nodes), Some(4));
    assert_eq!(world.scheduler().instance_count(), 0);
    world.assert_sound();
}
