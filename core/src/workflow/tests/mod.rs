//! Workflows by hand and by chance.

mod conditions;
mod graphs;
mod properties;
mod reruns;
mod rules;
mod runs;

use std::sync::Arc;

use serde_json::Value;

use super::{Comparison, Condition, FailurePolicy, Graph, NodeIndex, NodeSpec, NodeState, Run, RunEnd, Step, TriggerRule};

/// A node that comes after those named, with blanks between them.
fn node(name: &str, after: &str) -> NodeSpec {
    NodeSpec::new(name, after.split_whitespace())
}

fn ruled(rule: TriggerRule, spec: NodeSpec) -> NodeSpec {
    NodeSpec { rule, ..spec }
}

fn failing(on_failure: FailurePolicy, spec: NodeSpec) -> NodeSpec {
    NodeSpec { on_failure, ..spec }
}

/// Only if the result of `reads` has this value at this pointer.
fn if_equal(reads: &str, pointer: &str, value: Value, spec: NodeSpec) -> NodeSpec {
    let when = Condition { node: Arc::from(reads), pointer: Arc::from(pointer), test: Comparison::Equals(value) };
    NodeSpec { when: Some(when), ..spec }
}

fn graph(nodes: impl IntoIterator<Item = NodeSpec>) -> Graph {
    Graph::new(nodes.into_iter().collect()).expect("the test's graph is sound")
}

fn no_results<'text>(_: NodeIndex) -> Option<&'text str> {
    None
}

/// A run that is spoken to by the names of nodes. It checks with every step that the run could be put down and taken up again there.
struct ByName {
    graph: Graph,
    run: Run,
    results: Vec<Option<String>>,
}

impl ByName {
    fn begin(nodes: impl IntoIterator<Item = NodeSpec>) -> (Self, Vec<String>) {
        let graph = graph(nodes);
        let (run, steps) = Run::begin(&graph);
        let results = vec![None; graph.len()];
        let started = ByName { graph, run, results };
        let steps = started.told(steps);
        (started, steps)
    }

    fn node(&self, name: &str) -> NodeIndex {
        self.graph.node(name).unwrap_or_else(|| panic!("no node {name}"))
    }

    fn state(&self, name: &str) -> NodeState {
        self.run.state(self.node(name))
    }

    fn leaves(&mut self, name: &str, result: &str) {
        let node = self.node(name);
        self.results[node.place()] = Some(result.to_owned());
    }

    fn ends(&mut self, name: &str, state: NodeState) -> Vec<String> {
        let node = self.node(name);
        let results = &self.results;
        let steps = self.run.node_ended(&self.graph, node, state, &|node| results[node.place()].as_deref());
        self.told(steps)
    }

    fn succeeds(&mut self, name: &str) -> Vec<String> {
        self.ends(name, NodeState::Succeeded)
    }

    fn fails(&mut self, name: &str) -> Vec<String> {
        self.ends(name, NodeState::Failed)
    }

    fn states(&self) -> Vec<NodeState> {
        self.run.states().collect()
    }

    /// Steps as `start b`, `skip c: upstream_failed`, `cancel d`, `end failed`.
    fn told(&self, steps: Vec<Step>) -> Vec<String> {
        if self.run.end().is_none() {
            let results = &self.results;
            let states = self.graph.nodes().zip(self.run.states());
            let (_, again) = Run::restore(&self.graph, states, self.run.is_cancelled(), &|node| results[node.place()].as_deref());
            assert!(again.iter().all(|step| matches!(step, Step::Cancel(_))), "taken up again, the run goes on by itself: {again:?}");
        }
        let tell = |step| match step {
            Step::Start(node) => format!("start {}", self.graph.name(node)),
            Step::Skip(node, reason) => format!("skip {}: {}", self.graph.name(node), reason.name()),
            Step::Cancel(node) => format!("cancel {}", self.graph.name(node)),
            Step::End(end) => format!("end {end}"),
        };
        steps.into_iter().map(tell).collect()
    }
}

/// Runs a graph to its end, each node ending as it is said, the one that was started first ending first.
fn run_through(graph: &Graph, outcome: impl Fn(NodeIndex) -> NodeState) -> (Vec<NodeState>, RunEnd) {
    let (mut run, steps) = Run::begin(graph);
    let mut steps = std::collections::VecDeque::from(steps);
    let mut end = None;
    while let Some(step) = steps.pop_front() {
        match step {
            Step::Start(node) => steps.extend(run.node_ended(graph, node, outcome(node), &no_results)),
            Step::Skip(..) | Step::Cancel(_) => {}
            Step::End(state) => assert_eq!(end.replace(state), None, "a run ends once"),
        }
    }
    (run.states().collect(), end.expect("the run ended"))
}
