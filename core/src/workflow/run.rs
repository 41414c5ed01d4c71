//! One run through a graph: what happens to nodes goes in, what is to be done about others comes out.

use std::collections::VecDeque;

use super::condition::Unmet;
use super::graph::{Graph, NodeIndex};
use super::named;
use super::rule::{FailurePolicy, Outcome, Tally, TriggerRule, Verdict, outcome};
use crate::guard;
use crate::guard::Guard;

/// Where a node of a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// For its upstreams.
    #[default]
    Waiting,
    /// It was told to start and has not ended: its attempts, retries and shards are all in this state.
    Started,
    /// It did what it was to do, or an operator says so.
    Succeeded,
    /// It ended otherwise and no attempt is left, or an operator says so.
    Failed,
    /// It never started, or its instance was skipped.
    Skipped,
    /// It was ended by an operator or with the whole run. To rules and policies it has failed.
    Cancelled,
}

named!(NodeState {
    Waiting = "waiting",
    Started = "started",
    Succeeded = "succeeded",
    Failed = "failed",
    Skipped = "skipped",
    Cancelled = "cancelled",
});

impl NodeState {
    /// Whether the node has ended.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, NodeState::Waiting | NodeState::Started)
    }
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunEnd {
    /// No node failed under another policy than `continue`.
    Succeeded,
    /// A node did, or was cancelled.
    Failed,
    /// The whole run was cancelled before its end.
    Cancelled,
}

named!(RunEnd { Succeeded = "succeeded", Failed = "failed", Cancelled = "cancelled" });

/// What is to be done. The run has already taken it into account; it is carried out once the states are on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The node is started.
    Start(NodeIndex),
    /// The node is skipped, and never starts.
    Skip(NodeIndex, SkipReason),
    /// The node runs and is to be cancelled; its end is awaited as ever. Comes again after a takeover.
    Cancel(NodeIndex),
    /// The run is over. Always the last step.
    End(RunEnd),
}

/// Why a node is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// Its rule suffers no failed upstream, and this one has failed.
    UpstreamFailed(NodeIndex),
    /// Its rule suffers no skipped upstream, and this one was skipped.
    UpstreamSkipped(NodeIndex),
    /// Its rule wants a failed upstream, and none has failed.
    NoneFailed,
    /// Its rule wants a succeeded upstream, and none has succeeded.
    NoneSucceeded,
    /// Its condition does not hold.
    Condition(Unmet),
    /// The failure of this node ended the run.
    RunFailed(NodeIndex),
    /// The run was cancelled.
    RunCancelled,
}

impl SkipReason {
    /// The names of all reasons.
    pub const NAMES: [&str; 7] =
        ["upstream_failed", "upstream_skipped", "none_failed", "none_succeeded", "condition", "run_failed", "run_cancelled"];

    /// Its name, the same in API, CLI, console and database.
    pub const fn name(&self) -> &'static str {
        match self {
            SkipReason::UpstreamFailed(_) => "upstream_failed",
            SkipReason::UpstreamSkipped(_) => "upstream_skipped",
            SkipReason::NoneFailed => "none_failed",
            SkipReason::NoneSucceeded => "none_succeeded",
            SkipReason::Condition(_) => "condition",
            SkipReason::RunFailed(_) => "run_failed",
            SkipReason::RunCancelled => "run_cancelled",
        }
    }

    /// The reason in words, why `node` was skipped.
    pub fn explain(&self, graph: &Graph, node: NodeIndex) -> String {
        match self {
            SkipReason::UpstreamFailed(upstream) => format!("upstream `{}` failed", graph.name(*upstream)),
            SkipReason::UpstreamSkipped(upstream) => format!("upstream `{}` was skipped", graph.name(*upstream)),
            SkipReason::NoneFailed => "no upstream failed".to_owned(),
            SkipReason::NoneSucceeded => "no upstream succeeded".to_owned(),
            SkipReason::Condition(unmet) => explain_condition(graph, node, unmet),
            SkipReason::RunFailed(culprit) => format!("the failure of `{}` ended the run", graph.name(*culprit)),
            SkipReason::RunCancelled => "the run was cancelled".to_owned(),
        }
    }
}

fn explain_condition(graph: &Graph, node: NodeIndex, unmet: &Unmet) -> String {
    let Some((condition, reads)) = graph.condition(node) else {
        return "its condition does not hold".to_owned();
    };
    let (name, pointer, test) = (graph.name(reads), &condition.pointer, condition.test.name());
    match unmet {
        Unmet::NoResult => format!("its condition reads the result of `{name}`, and there is none"),
        Unmet::NotJson => format!("its condition reads the result of `{name}`, which is no JSON"),
        Unmet::NoValue => format!("its condition reads `{pointer}` of the result of `{name}`, and there is nothing"),
        Unmet::Differs { found } => format!("`{pointer}` of the result of `{name}` is {found}, and `{test}` does not hold"),
    }
}

/// Why an operator's action was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The workflow has no such node.
    #[error("the workflow has no node {0}")]
    UnknownNode(NodeIndex),
    /// The node runs.
    #[error("the node runs: cancel it first, or wait for its end")]
    Runs,
    /// The node has ended in this state, succeeded or skipped, and that stands.
    #[error("the node has ended, as {0}: run it again")]
    Ended(NodeState),
    /// The run was cancelled, or the failure of a node has ended it: only what still runs is waited for.
    #[error("the run is being ended: wait for its end, then run the nodes again")]
    RunIsEnding,
    /// The run is over.
    #[error("the run is over: run the nodes again")]
    RunIsOver,
}

/// Looks up the result that a node has left, a JSON text. Asked only for nodes that have ended, and only if a condition reads them.
pub type Results<'a, 'text> = &'a dyn Fn(NodeIndex) -> Option<&'text str>;

/// What keeps a run from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Failed(NodeIndex),
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    state: NodeState,
    upstreams: Tally,
}

/// One run through a graph. It is handed the graph with each call, so that all runs of a workflow share one; it must be the same each time.
///
/// What an ended node costs is its own edges, and those of the nodes that are skipped in consequence. Only what ends the whole run goes
/// through all nodes, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    nodes: Vec<Node>,
    /// Nodes that have not ended.
    unfinished: usize,
    /// Nodes that make the run fail.
    failures: usize,
    ending: Option<Ending>,
    end: Option<RunEnd>,
}

impl Run {
    /// A new run and its first steps: the nodes without upstreams start.
    pub fn begin(graph: &Graph) -> (Run, Vec<Step>) {
        Run::restore(graph, std::iter::empty(), false, &|_| None)
    }

    /// The run with these states, and the steps that follow from them and were not taken, so that it goes on exactly as if it had never
    /// been put down. Each node is named at most once, and those that are not are waiting. The steps to cancel what runs in a run that is being ended come again.
    ///
    /// `cancelled` says whether the run [was cancelled](Run::cancel), which the states alone don't tell. A run whose end is on record is
    /// not to be restored: it would end again.
    pub fn restore(
        graph: &Graph,
        states: impl Iterator<Item = (NodeIndex, NodeState)>,
        cancelled: bool,
        results: Results,
    ) -> (Run, Vec<Step>) {
        let fresh = |node: NodeIndex| Node {
            state: NodeState::Waiting,
            upstreams: Tally { unfinished: graph.upstreams(node).len() as u32, ..Tally::default() },
        };
        let mut run = Run { nodes: graph.nodes().map(fresh).collect(), unfinished: graph.len(), failures: 0, ending: None, end: None };
        let mut turn = Turn::new(&mut run, graph, results);
        for (node, state) in states {
            assert!(graph.contains(node), "node {node} is not of a graph of {} nodes", graph.len());
            turn.settle(node, state);
        }
        if cancelled {
            turn.run.ending = Some(Ending::Cancelled);
        }
        turn.ended.clear();
        if turn.run.ending.is_some() {
            turn.wind_up();
        } else {
            for node in graph.order() {
                turn.consider(*node);
                turn.cascade();
            }
        }
        let steps = turn.finish();
        (run, steps)
    }

    /// A node that was started has ended in this state. What that leads to.
    ///
    /// Changes nothing if the node does not run: the same end may arrive any number of times, and late, after an operator's action. Nor
    /// does a state that is no end.
    pub fn node_ended(&mut self, graph: &Graph, node: NodeIndex, state: NodeState, results: Results) -> Vec<Step> {
        if !graph.contains(node) || self.state(node) != NodeState::Started || !state.is_terminal() {
            return Vec::new();
        }
        self.settle(graph, node, state, results)
    }

    /// An operator skips a node that waits, or that has failed or was cancelled. What that leads to; that the node itself is skipped, the
    /// caller knows.
    ///
    /// # Errors
    ///
    /// Why this is not done; then nothing has changed.
    pub fn skip(&mut self, graph: &Graph, node: NodeIndex, results: Results) -> Result<Vec<Step>, Refused> {
        self.mark(graph, node, NodeState::Skipped, results)
    }

    /// An operator says that a node has succeeded that waits, or that has failed or was cancelled. What that leads to. What was skipped
    /// because of its failure remains so in this run.
    ///
    /// # Errors
    ///
    /// Why this is not done; then nothing has changed.
    pub fn mark_succeeded(&mut self, graph: &Graph, node: NodeIndex, results: Results) -> Result<Vec<Step>, Refused> {
        self.mark(graph, node, NodeState::Succeeded, results)
    }

    /// An operator says that a node has failed that waits, or that has failed anyway or was cancelled. What that leads to, as if it had run
    /// and failed: nothing that has ended starts again.
    ///
    /// # Errors
    ///
    /// Why this is not done; then nothing has changed.
    pub fn mark_failed(&mut self, graph: &Graph, node: NodeIndex, results: Results) -> Result<Vec<Step>, Refused> {
        self.mark(graph, node, NodeState::Failed, results)
    }

    /// An operator cancels the whole run: all that waits is skipped, what runs is to be cancelled, and the run ends once that has ended.
    /// Cancelling it again changes nothing.
    ///
    /// # Errors
    ///
    /// If the run is over.
    pub fn cancel(&mut self, graph: &Graph) -> Result<Vec<Step>, Refused> {
        if self.end.is_some() {
            return Err(Refused::RunIsOver);
        }
        // If a failure is ending it, all has been skipped and all that runs has been told.
        let is_told = self.ending.replace(Ending::Cancelled).is_some();
        let mut turn = Turn::new(self, graph, &|_| None);
        if !is_told {
            turn.wind_up();
        }
        Ok(turn.finish())
    }

    /// Where a node stands.
    pub fn state(&self, node: NodeIndex) -> NodeState {
        self.nodes[node.place()].state
    }

    /// Where all nodes stand, in their order.
    pub fn states(&self) -> impl Iterator<Item = NodeState> + '_ {
        self.nodes.iter().map(|node| node.state)
    }

    /// How many nodes have not ended.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Whether the run was cancelled: what [`Run::restore`] has to be told.
    pub fn is_cancelled(&self) -> bool {
        self.ending == Some(Ending::Cancelled)
    }

    /// What became of the run, once it is over.
    pub fn end(&self) -> Option<RunEnd> {
        self.end
    }

    fn mark(&mut self, graph: &Graph, node: NodeIndex, state: NodeState, results: Results) -> Result<Vec<Step>, Refused> {
        if !graph.contains(node) {
            return Err(Refused::UnknownNode(node));
        }
        if self.end.is_some() {
            return Err(Refused::RunIsOver);
        }
        if self.ending.is_some() {
            return Err(Refused::RunIsEnding);
        }
        match self.state(node) {
            NodeState::Waiting | NodeState::Failed | NodeState::Cancelled => Ok(self.settle(graph, node, state, results)),
            NodeState::Started => Err(Refused::Runs),
            ended @ (NodeState::Succeeded | NodeState::Skipped) => Err(Refused::Ended(ended)),
        }
    }

    fn settle(&mut self, graph: &Graph, node: NodeIndex, state: NodeState, results: Results) -> Vec<Step> {
        let was_ending = self.ending.is_some();
        let mut turn = Turn::new(self, graph, results);
        turn.settle(node, state);
        if turn.run.ending.is_some() && !was_ending {
            turn.wind_up();
        }
        turn.finish()
    }
}

/// One event and all that follows from it. Iterative: a skip cascades through a queue, however deep the graph is.
struct Turn<'a, 'text> {
    run: &'a mut Run,
    graph: &'a Graph,
    results: Results<'a, 'text>,
    /// Nodes that have ended, and whose dependants have not been looked at yet.
    ended: VecDeque<NodeIndex>,
    steps: Vec<Step>,
}

impl<'a, 'text> Turn<'a, 'text> {
    fn new(run: &'a mut Run, graph: &'a Graph, results: Results<'a, 'text>) -> Self {
        assert_eq!(run.nodes.len(), graph.len(), "a run keeps to the graph that it began with");
        Turn { run, graph, results, ended: VecDeque::new(), steps: Vec::new() }
    }

    /// Puts a node into a state, and counts it where it counts: with its dependants and with the run.
    fn settle(&mut self, node: NodeIndex, state: NodeState) {
        let policy = self.graph.on_failure(node);
        let before = std::mem::replace(&mut self.run.nodes[node.place()].state, state);
        let (was, is) = (outcome(before, policy), outcome(state, policy));
        if was == is {
            return;
        }
        for dependant in self.graph.dependants(node) {
            let upstreams = &mut self.run.nodes[dependant.place()].upstreams;
            *upstreams.of(was) -= 1;
            *upstreams.of(is) += 1;
        }
        self.run.unfinished -= usize::from(was.is_none());
        self.run.failures -= usize::from(was == Some(Outcome::Failed));
        if is == Some(Outcome::Failed) {
            self.run.failures += 1;
            if policy == FailurePolicy::FailRun && self.run.ending.is_none() {
                self.run.ending = Some(Ending::Failed(node));
            }
        }
        self.ended.push_back(node);
    }

    /// Looks at all that depends on what has ended, until nothing more follows.
    fn cascade(&mut self) {
        while let Some(node) = self.ended.pop_front() {
            for dependant in self.graph.dependants(node).iter().chain(self.graph.far_readers(node)) {
                self.consider(*dependant);
            }
        }
    }

    /// Starts or skips a waiting node, if it can be told which.
    fn consider(&mut self, node: NodeIndex) {
        let Node { state, upstreams } = self.run.nodes[node.place()];
        if state != NodeState::Waiting {
            return;
        }
        match self.graph.rule(node).verdict(upstreams) {
            Verdict::OutOfReach => self.skip(node, self.rule_broken(node)),
            Verdict::Open if !guard!(Guard::NodesWait, false) => {}
            Verdict::Open | Verdict::Met => match self.condition(node) {
                None => {}
                Some(Ok(())) => {
                    self.run.nodes[node.place()].state = NodeState::Started;
                    self.steps.push(Step::Start(node));
                }
                Some(Err(unmet)) => self.skip(node, SkipReason::Condition(unmet)),
            },
        }
    }

    /// Whether a node's condition holds; nothing as long as the node that it reads has not ended.
    fn condition(&self, node: NodeIndex) -> Option<Result<(), Unmet>> {
        match self.graph.condition(node) {
            None => Some(Ok(())),
            Some((_, reads)) if !self.run.state(reads).is_terminal() => None,
            Some((condition, reads)) => Some(condition.check((self.results)(reads))),
        }
    }

    /// Which upstream has put a node's rule out of reach, the first of them. The same whoever asks and when: it follows from the states.
    fn rule_broken(&self, node: NodeIndex) -> SkipReason {
        let first = |wanted| {
            let counts = |upstream: &NodeIndex| outcome(self.run.state(*upstream), self.graph.on_failure(*upstream)) == Some(wanted);
            self.graph.upstreams(node).iter().copied().find(counts)
        };
        match self.graph.rule(node) {
            TriggerRule::OneFailed => SkipReason::NoneFailed,
            TriggerRule::OneSucceeded => SkipReason::NoneSucceeded,
            TriggerRule::AllSucceeded | TriggerRule::AllDone | TriggerRule::NoneFailed => first(Outcome::Failed)
                .map(SkipReason::UpstreamFailed)
                .or_else(|| first(Outcome::Skipped).map(SkipReason::UpstreamSkipped))
                .expect("a rule is put out of reach by a failed or a skipped upstream"),
        }
    }

    fn skip(&mut self, node: NodeIndex, reason: SkipReason) {
        self.settle(node, NodeState::Skipped);
        self.steps.push(Step::Skip(node, reason));
    }

    /// Ends the run as far as that can be done at once: skips all that waits, and has all that runs cancelled.
    fn wind_up(&mut self) {
        let reason = match self.run.ending {
            Some(Ending::Failed(culprit)) => SkipReason::RunFailed(culprit),
            Some(Ending::Cancelled) | None => SkipReason::RunCancelled,
        };
        for node in self.graph.order() {
            match self.run.state(*node) {
                NodeState::Waiting => self.skip(*node, reason.clone()),
                NodeState::Started => self.steps.push(Step::Cancel(*node)),
                NodeState::Succeeded | NodeState::Failed | NodeState::Skipped | NodeState::Cancelled => {}
            }
        }
        self.ended.clear();
    }

    /// All steps that follow, the end of the run last if it has come.
    fn finish(mut self) -> Vec<Step> {
        self.cascade();
        if self.run.unfinished == 0 && self.run.end.is_none() {
            let end = match (self.run.ending, self.run.failures) {
                (Some(Ending::Cancelled), _) => RunEnd::Cancelled,
                (_, 0) => RunEnd::Succeeded,
                (_, _) => RunEnd::Failed,
            };
            self.run.end = Some(end);
            self.steps.push(Step::End(end));
        }
        self.steps
    }
}
