//! Runs by hand: policies, operators, ends, and graphs of all sizes.

use super::super::{Refused, SkipReason};
use super::*;
use crate::limits;

const NOTHING: [&str; 0] = [];

fn diamond() -> [NodeSpec; 4] {
    [node("a", ""), node("b", "a"), node("c", "a"), node("d", "b c")]
}

#[test]
fn a_diamond_joins_once() {
    let (mut run, steps) = ByName::begin(diamond());
    assert_eq!(steps, ["start a"]);
    assert_eq!(run.succeeds("a"), ["start b", "start c"]);
    assert_eq!(run.succeeds("c"), NOTHING);
    assert_eq!(run.succeeds("b"), ["start d"]);
    assert_eq!(run.succeeds("d"), ["end succeeded"]);
    assert_eq!(run.run.end(), Some(RunEnd::Succeeded));
}

/// A thousand ways to run the diamond: which branch ends first, how often each end arrives, and where the run is taken up again.
#[test]
fn a_thousand_diamonds_join_once_each() {
    let graph = graph(diamond());
    for way in 0_u32..1_000 {
        let bit = |place: u32| way >> place & 1 == 1;
        let (mut run, mut steps) = Run::begin(&graph);
        let (first, second) = if bit(0) { (1, 2) } else { (2, 1) };
        for (moment, node) in (0..).zip([0, first, second, 3]) {
            let repeats = 1 + u32::from(bit(1 + moment)) + u32::from(bit(5 + moment));
            for _ in 0..repeats {
                steps.extend(run.node_ended(&graph, NodeIndex(node), NodeState::Succeeded, &no_results));
                if bit(moment + 6) && run.end().is_none() {
                    let (again, missed) = Run::restore(&graph, graph.nodes().zip(run.states()), false, &no_results);
                    assert_eq!((&again, missed), (&run, Vec::new()));
                    run = again;
                }
            }
        }
        let place = |wanted| steps.iter().filter(|step| **step == wanted).count();
        assert!((0..4).all(|node| place(Step::Start(NodeIndex(node))) == 1), "way {way}: {steps:?}");
        assert_eq!(steps.last(), Some(&Step::End(RunEnd::Succeeded)), "way {way}");
        assert_eq!(steps.len(), 5, "way {way}: {steps:?}");
    }
}

#[test]
fn the_run_goes_on_until_the_last_node_has_ended_and_fails_then() {
    let (mut run, _) = ByName::begin([node("a", ""), node("b", "a"), node("c", "b"), node("d", ""), node("e", "d")]);
    assert_eq!(run.fails("a"), ["skip b: upstream_failed", "skip c: upstream_skipped"]);
    assert_eq!(run.run.end(), None);
    assert_eq!(run.succeeds("d"), ["start e"]);
    assert_eq!(run.succeeds("e"), ["end failed"]);
}

#[test]
fn an_end_that_arrives_again_or_before_the_start_changes_nothing() {
    let (mut run, _) = ByName::begin(diamond());
    run.succeeds("a");
    let before = run.run.clone();
    assert_eq!(run.succeeds("a"), NOTHING);
    assert_eq!(run.fails("a"), NOTHING);
    assert_eq!(run.fails("d"), NOTHING, "d was not started");
    assert_eq!(run.ends("b", NodeState::Started), NOTHING);
    assert_eq!(run.ends("b", NodeState::Waiting), NOTHING);
    assert_eq!(run.run.node_ended(&run.graph, NodeIndex(4), NodeState::Failed, &no_results), []);
    assert_eq!(run.run, before);
}

#[test]
fn an_alarm_fires_while_others_still_run() {
    let alarm = ruled(TriggerRule::OneFailed, node("alarm", "a b"));
    let (mut run, _) = ByName::begin([node("a", ""), node("b", ""), alarm]);
    assert_eq!(run.ends("a", NodeState::Cancelled), ["start alarm"]);
    assert_eq!(run.fails("b"), NOTHING, "once is enough");
    assert_eq!(run.succeeds("alarm"), ["end failed"], "an alarm repairs nothing");
}

#[test]
fn a_failure_that_ends_the_run_skips_what_waits_and_cancels_what_runs() {
    let always = ruled(TriggerRule::AllDone, node("always", "a c"));
    let (mut run, _) =
        ByName::begin([failing(FailurePolicy::FailRun, node("a", "")), node("b", "a"), node("c", ""), always, node("d", "")]);
    run.succeeds("d");
    assert_eq!(run.fails("a"), ["cancel c", "skip b: run_failed", "skip always: run_failed"]);
    assert_eq!(run.run.end(), None, "c still runs");
    assert_eq!(run.run.mark_succeeded(&run.graph, NodeIndex(0), &no_results), Err(Refused::RunIsEnding));
    assert_eq!(run.ends("c", NodeState::Succeeded), ["end failed"], "it was quicker than its cancellation");
    assert_eq!(run.states().iter().filter(|state| **state == NodeState::Skipped).count(), 2);
}

#[test]
fn a_failure_that_does_not_matter_counts_as_success() {
    let (mut run, _) = ByName::begin([failing(FailurePolicy::Continue, node("a", "")), node("b", "a")]);
    assert_eq!(run.fails("a"), ["start b"]);
    assert_eq!(run.state("a"), NodeState::Failed, "and remains on record as what it was");
    assert_eq!(run.succeeds("b"), ["end succeeded"]);
}

#[test]
fn a_run_that_is_cancelled_ends_when_the_last_node_has() {
    let (mut run, _) = ByName::begin([node("a", ""), node("b", ""), node("c", "a b")]);
    run.succeeds("a");
    let steps = run.run.cancel(&run.graph).expect("the run goes on");
    assert_eq!(run.told(steps), ["cancel b", "skip c: run_cancelled"]);
    assert_eq!(run.run.cancel(&run.graph), Ok(Vec::new()), "once is enough");
    let (_, again) = Run::restore(&run.graph, run.graph.nodes().zip(run.run.states()), true, &no_results);
    assert_eq!(again, [Step::Cancel(NodeIndex(1))], "a new owner doesn't know who was told");
    assert_eq!(run.run.skip(&run.graph, NodeIndex(1), &no_results), Err(Refused::RunIsEnding));
    assert_eq!(run.ends("b", NodeState::Cancelled), ["end cancelled"]);
    assert_eq!(run.run.cancel(&run.graph), Err(Refused::RunIsOver));
}

#[test]
fn a_run_that_is_failing_can_be_cancelled() {
    let (mut run, _) = ByName::begin([failing(FailurePolicy::FailRun, node("a", "")), node("b", "")]);
    assert_eq!(run.fails("a"), ["cancel b"]);
    assert_eq!(run.run.cancel(&run.graph), Ok(Vec::new()), "all has been done already");
    assert_eq!(run.ends("b", NodeState::Cancelled), ["end cancelled"]);
}

#[test]
fn cancelling_a_run_that_only_waits_for_the_next_owner_ends_it() {
    let graph = graph([node("a", ""), node("b", "a")]);
    let (run, steps) = Run::restore(&graph, [(NodeIndex(0), NodeState::Succeeded)].into_iter(), true, &no_results);
    assert_eq!(steps, [Step::Skip(NodeIndex(1), SkipReason::RunCancelled), Step::End(RunEnd::Cancelled)]);
    assert!(run.is_cancelled());
}

#[test]
fn an_operator_decides_for_a_node_that_waits() {
    let nodes = || [node("a", ""), node("b", "a"), node("c", "b"), ruled(TriggerRule::AllDone, node("d", "b"))];
    let node_b = NodeIndex(1);

    let (mut run, _) = ByName::begin(nodes());
    let steps = run.run.skip(&run.graph, node_b, &no_results).expect("b waits");
    assert_eq!(run.told(steps), ["skip c: upstream_skipped", "start d"]);
    assert_eq!(run.succeeds("a"), NOTHING, "b has ended and does not start");
    assert_eq!(run.run.mark_failed(&run.graph, node_b, &no_results), Err(Refused::Ended(NodeState::Skipped)));

    let (mut run, _) = ByName::begin(nodes());
    let steps = run.run.mark_succeeded(&run.graph, node_b, &no_results).expect("b waits");
    assert_eq!(run.told(steps), ["start c", "start d"]);

    let (mut run, _) = ByName::begin(nodes());
    let steps = run.run.mark_failed(&run.graph, node_b, &no_results).expect("b waits");
    assert_eq!(run.told(steps), ["skip c: upstream_failed", "start d"]);
    run.succeeds("d");
    assert_eq!(run.succeeds("a"), ["end failed"]);
}

#[test]
fn marking_a_node_failed_makes_nothing_run_again() {
    let (mut run, _) = ByName::begin([node("a", ""), node("b", "a"), node("c", "b"), node("d", "c"), node("e", "")]);
    run.succeeds("a");
    run.fails("b");
    let steps = run.run.mark_failed(&run.graph, NodeIndex(1), &no_results).expect("it has failed anyway");
    assert_eq!(run.told(steps), NOTHING);
    use NodeState::{Failed, Skipped, Started, Succeeded};
    assert_eq!(run.states(), [Succeeded, Failed, Skipped, Skipped, Started]);
}

#[test]
fn an_operator_makes_good_a_failure() {
    let nodes = || [node("a", ""), node("b", ""), node("c", "a b"), ruled(TriggerRule::OneSucceeded, node("d", "a b")), node("e", "a")];
    let (mut run, _) = ByName::begin(nodes());
    assert_eq!(run.fails("a"), ["skip c: upstream_failed", "skip e: upstream_failed"]);
    let steps = run.run.mark_succeeded(&run.graph, NodeIndex(0), &no_results).expect("a has failed");
    assert_eq!(run.told(steps), ["start d"], "what was skipped remains so");
    assert_eq!(run.fails("a"), NOTHING, "its own end comes late");
    run.succeeds("d");
    assert_eq!(run.succeeds("b"), ["end succeeded"]);

    let (mut run, _) = ByName::begin(nodes());
    run.ends("a", NodeState::Cancelled);
    let steps = run.run.skip(&run.graph, NodeIndex(0), &no_results).expect("a was cancelled");
    assert_eq!(run.told(steps), NOTHING);
    assert_eq!(run.ends("b", NodeState::Skipped), ["skip d: none_succeeded", "end succeeded"]);
}

#[test]
fn an_operator_is_told_why_something_is_refused() {
    let (mut run, _) = ByName::begin(diamond());
    assert_eq!(run.run.skip(&run.graph, NodeIndex(0), &no_results), Err(Refused::Runs));
    run.succeeds("a");
    assert_eq!(run.run.mark_failed(&run.graph, NodeIndex(0), &no_results), Err(Refused::Ended(NodeState::Succeeded)));
    assert_eq!(run.run.skip(&run.graph, NodeIndex(9), &no_results), Err(Refused::UnknownNode(NodeIndex(9))));
    let steps = run.run.mark_failed(&run.graph, NodeIndex(3), &no_results).expect("d waits");
    assert_eq!(run.told(steps), NOTHING);
    run.succeeds("b");
    assert_eq!(run.succeeds("c"), ["end failed"]);
    assert_eq!(run.run.mark_succeeded(&run.graph, NodeIndex(3), &no_results), Err(Refused::RunIsOver));
    assert_eq!(Refused::Ended(NodeState::Skipped).to_string(), "the node has ended, as skipped: run it again");
}

#[test]
fn reasons_to_skip_are_told_in_words() {
    let graph = graph(diamond());
    let told = |reason: SkipReason| (reason.name(), reason.explain(&graph, NodeIndex(3)));
    let condition = SkipReason::Condition(super::super::Unmet::NoResult);
    let all = [
        (SkipReason::UpstreamFailed(NodeIndex(1)), "upstream `b` failed"),
        (SkipReason::UpstreamSkipped(NodeIndex(2)), "upstream `c` was skipped"),
        (SkipReason::NoneFailed, "no upstream failed"),
        (SkipReason::NoneSucceeded, "no upstream succeeded"),
        (condition, "its condition does not hold"),
        (SkipReason::RunFailed(NodeIndex(0)), "the failure of `a` ended the run"),
        (SkipReason::RunCancelled, "the run was cancelled"),
    ];
    for (name, (reason, words)) in SkipReason::NAMES.into_iter().zip(all) {
        assert_eq!(told(reason), (name, words.to_owned()));
    }
}

#[test]
fn chains_of_any_depth_run_to_their_end() {
    for depth in [1_000, limits::WORKFLOW_NODES_MAX] {
        let name = |place: usize| format!("n{place}");
        let graph = graph((0..depth).map(|place| node(&name(place), &place.checked_sub(1).map(name).unwrap_or_default())));
        let (states, end) = run_through(&graph, |_| NodeState::Succeeded);
        assert!(states.iter().all(|state| *state == NodeState::Succeeded));
        assert_eq!(end, RunEnd::Succeeded);
        let (states, end) = run_through(&graph, |_| NodeState::Failed);
        assert_eq!(states.iter().filter(|state| **state == NodeState::Skipped).count(), depth - 1, "one failure skips all the rest");
        assert_eq!(end, RunEnd::Failed);
    }
}

#[test]
fn as_many_nodes_as_there_may_be_run_to_their_end() {
    let name = |layer: usize, place: usize| format!("n{layer}.{place}");
    let after = |layer: usize, place: usize| match layer {
        0 => String::new(),
        _ => (0..5).map(|step| name(layer - 1, (place + 7 * step) % 100)).collect::<Vec<_>>().join(" "),
    };
    let graph = graph((0..100).flat_map(|layer| (0..100).map(move |place| node(&name(layer, place), &after(layer, place)))));
    assert_eq!(graph.len(), limits::WORKFLOW_NODES_MAX);
    let (states, end) = run_through(&graph, |_| NodeState::Succeeded);
    assert!(states.iter().all(|state| *state == NodeState::Succeeded));
    assert_eq!(end, RunEnd::Succeeded);
    let (states, end) = run_through(&graph, |node| if node.0 == 0 { NodeState::Failed } else { NodeState::Succeeded });
    let count = |wanted| states.iter().filter(|state| **state == wanted).count();
    assert_eq!((count(NodeState::Failed), end), (1, RunEnd::Failed));
    assert!(count(NodeState::Skipped) > 7_000, "a failure in the first layer reaches all of the later ones: {}", count(NodeState::Skipped));
}
