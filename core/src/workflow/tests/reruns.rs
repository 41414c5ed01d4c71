//! Reruns: what runs again, and what is carried over.

use super::super::RerunRefused;
use super::*;

/// What a rerun of these states from these nodes runs again, and the first steps of the new run.
fn rerun(graph: &Graph, states: &[NodeState], from: &str, cascade: bool) -> Result<(Vec<String>, Run, Vec<Step>), RerunRefused> {
    let from: Vec<NodeIndex> = from.split_whitespace().map(|name| graph.node(name).expect("a node")).collect();
    let again = graph.rerun_set(states, &from, cascade)?;
    let carried = graph.nodes().zip(states.iter().copied()).filter(|(node, _)| !again.contains(node));
    let (run, steps) = Run::restore(graph, carried, false, &no_results);
    Ok((again.iter().map(|node| graph.name(*node).to_string()).collect(), run, steps))
}

use NodeState::{Cancelled, Failed, Skipped, Started, Succeeded, Waiting};

#[test]
fn what_a_failure_had_skipped_runs_after_its_rerun_without_more_ado() {
    let graph = graph([node("z", ""), node("a", "z"), node("b", "a"), node("c", "b"), node("other", "z")]);
    let (again, mut run, steps) = rerun(&graph, &[Succeeded, Failed, Skipped, Skipped, Succeeded], "a", false).expect("the run is over");
    assert_eq!(again, ["a", "b", "c"], "what had succeeded is not run again");
    assert_eq!(steps, [Step::Start(NodeIndex(1))]);
    assert_eq!(run.states().collect::<Vec<_>>(), [Succeeded, Started, Waiting, Waiting, Succeeded]);
    for node in [1, 2] {
        let steps = run.node_ended(&graph, NodeIndex(node), Succeeded, &no_results);
        assert_eq!(steps, [Step::Start(NodeIndex(node + 1))]);
    }
    assert_eq!(run.node_ended(&graph, NodeIndex(3), Succeeded, &no_results), [Step::End(RunEnd::Succeeded)]);
}

#[test]
fn what_comes_after_a_rerun_runs_again_only_if_asked_for() {
    let graph = graph([node("a", ""), node("b", "a"), node("c", "b"), node("d", "c")]);
    let states = [Succeeded; 4];
    let (again, mut run, steps) = rerun(&graph, &states, "b", false).expect("the run is over");
    assert_eq!((again, steps), (vec!["b".to_owned()], vec![Step::Start(NodeIndex(1))]));
    assert_eq!(run.node_ended(&graph, NodeIndex(1), Succeeded, &no_results), [Step::End(RunEnd::Succeeded)]);
    let (again, _, steps) = rerun(&graph, &states, "b", true).expect("the run is over");
    assert_eq!((again.join(" "), steps), ("b c d".to_owned(), vec![Step::Start(NodeIndex(1))]));
}

#[test]
fn skipped_nodes_behind_a_node_that_is_carried_over_are_reached() {
    let alarm = ruled(TriggerRule::AllDone, node("m", "a"));
    let graph = graph([node("a", ""), node("q", ""), alarm, node("s", "m q"), node("t", "s")]);
    let (again, run, steps) = rerun(&graph, &[Failed, Failed, Succeeded, Skipped, Skipped], "a", false).expect("the run is over");
    assert_eq!(again.join(" "), "a s t");
    let skipped: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Skip(..))).collect();
    assert_eq!(skipped.len(), 2, "q, carried over, has failed as before: {steps:?}");
    assert_eq!(run.state(NodeIndex(0)), Started);
}

#[test]
fn a_node_whose_upstream_is_still_failed_goes_by_its_rule() {
    let graph = graph([node("a", ""), node("b", "a")]);
    let (_, run, _) = rerun(&graph, &[Failed, Skipped], "b", false).expect("the run is over");
    assert_eq!((run.state(NodeIndex(1)), run.end()), (Skipped, Some(RunEnd::Failed)));
}

#[test]
fn what_the_end_of_the_run_took_away_comes_back_with_the_node_that_ended_it() {
    let ender = failing(FailurePolicy::FailRun, node("a", ""));
    let graph = graph([ender, node("b", ""), node("c", "b"), node("d", "")]);
    let states = [Failed, Cancelled, Skipped, Succeeded];
    let (again, _, steps) = rerun(&graph, &states, "a", false).expect("the run is over");
    assert_eq!(again.join(" "), "a b c");
    assert_eq!(steps, [Step::Start(NodeIndex(0)), Step::Start(NodeIndex(1))]);
    let refused = rerun(&graph, &states, "b", false).expect_err("a would end it at once");
    assert_eq!(refused, RerunRefused::EndedBy(Arc::from("a")));
    assert_eq!(refused.to_string(), "the failure of node `a` ended the run, and would end the new one at once: run it again too");
}

#[test]
fn only_what_is_over_is_rerun() {
    let graph = graph([node("a", ""), node("b", ""), node("c", "b")]);
    assert_eq!(graph.rerun_set(&[Failed, Started, Waiting], &[NodeIndex(0)], false), Err(RerunRefused::StillRuns(Arc::from("b"))));
    assert_eq!(graph.rerun_set(&[Failed; 3], &[], true), Err(RerunRefused::NothingAskedFor));
    assert_eq!(graph.rerun_set(&[Failed; 3], &[NodeIndex(3)], true), Err(RerunRefused::UnknownNode(NodeIndex(3))));
    // Put down before c was told to start: it has to be decided about in any case.
    assert_eq!(graph.rerun_set(&[Failed, Succeeded, Waiting], &[NodeIndex(0)], false), Ok(vec![NodeIndex(0), NodeIndex(2)]));
}

#[test]
fn a_cancelled_node_runs_again_if_it_is_asked_for_or_the_rerun_cascades() {
    let graph = graph([node("a", ""), ruled(TriggerRule::AllDone, node("b", "a"))]);
    let places = |from: u32, cascade| graph.rerun_set(&[Failed, Cancelled], &[NodeIndex(from)], cascade).expect("the run is over").len();
    assert_eq!((places(0, false), places(0, true), places(1, false)), (1, 2, 1));
}
