//! What a rerun runs again.

use std::sync::Arc;

use super::graph::{Graph, NodeIndex};
use super::rule::{FailurePolicy, Outcome, outcome};
use super::run::NodeState;

/// Why a run is not rerun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RerunRefused {
    /// No node was asked for.
    #[error("name at least one node to run again")]
    NothingAskedFor,
    /// The workflow has no such node.
    #[error("the workflow has no node {0}")]
    UnknownNode(NodeIndex),
    /// The run is not over: nodes of it still run, the first of them this one.
    #[error("node `{0}` still runs: cancel the run, or wait for its end")]
    StillRuns(Arc<str>),
    /// A node whose failure ended the run is not asked for: carried over, it would end the new run at once. The first of them.
    #[error("the failure of node `{0}` ended the run, and would end the new one at once: run it again too")]
    EndedBy(Arc<str>),
}

impl Graph {
    /// The nodes that a rerun from these nodes runs again, in topological order; all others are carried over as they ended. The table is
    /// in the [module's documentation](super).
    ///
    /// `states` has one state for each node, as the run that is to be rerun left them.
    ///
    /// # Errors
    ///
    /// Why this can't be rerun.
    pub fn rerun_set(&self, states: &[NodeState], from: &[NodeIndex], cascade: bool) -> Result<Vec<NodeIndex>, RerunRefused> {
        assert_eq!(states.len(), self.len(), "a run has a state for each node of its graph");
        if from.is_empty() {
            return Err(RerunRefused::NothingAskedFor);
        }
        if let Some(unknown) = from.iter().find(|node| !self.contains(**node)) {
            return Err(RerunRefused::UnknownNode(*unknown));
        }
        if let Some(running) = self.order().iter().find(|node| states[node.place()] == NodeState::Started) {
            return Err(RerunRefused::StillRuns(Arc::clone(self.name(*running))));
        }
        let mut again = vec![false; self.len()];
        for node in from {
            again[node.place()] = true;
        }
        let ended_the_run = |node: NodeIndex| {
            let policy = self.on_failure(node);
            policy == FailurePolicy::FailRun && outcome(states[node.place()], policy) == Some(Outcome::Failed)
        };
        let run_was_ended = from.iter().any(|node| ended_the_run(*node));
        let mut downstream = again.clone();
        for node in self.order() {
            let place = node.place();
            downstream[place] |= self.upstreams(*node).iter().any(|upstream| downstream[upstream.place()]);
            again[place] |= match states[place] {
                NodeState::Waiting => true,
                NodeState::Skipped => downstream[place] || run_was_ended,
                NodeState::Cancelled => downstream[place] && cascade || run_was_ended,
                NodeState::Started | NodeState::Succeeded | NodeState::Failed => downstream[place] && cascade,
            };
        }
        match self.order().iter().find(|node| !again[node.place()] && ended_the_run(**node)) {
            Some(node) => Err(RerunRefused::EndedBy(Arc::clone(self.name(*node)))),
            None => Ok(self.order().iter().copied().filter(|node| again[node.place()]).collect()),
        }
    }
}
