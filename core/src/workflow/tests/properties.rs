//! Graphs, ends and orders by chance.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use super::*;

const NODES_MAX: usize = 40;

/// A graph, and how each of its nodes ends if it is started.
#[derive(Clone, Debug)]
struct Case {
    graph: Graph,
    ends: Vec<NodeState>,
    results: Vec<&'static str>,
}

/// What is drawn for a node.
#[derive(Clone, Debug)]
struct Draw {
    after: Vec<Index>,
    rule: TriggerRule,
    on_failure: FailurePolicy,
    reads: Option<Index>,
    end: NodeState,
    result: &'static str,
}

/// What graphs are drawn from.
#[derive(Clone, Copy)]
struct Kind {
    rules: &'static [TriggerRule],
    fail_run: bool,
}

const ALL_KINDS: Kind = Kind { rules: &TriggerRule::ALL, fail_run: true };
const NO_FAIL_RUN: Kind = Kind { rules: &TriggerRule::ALL, fail_run: false };

fn a_draw(kind: Kind) -> impl Strategy<Value = Draw> {
    let ends = prop_oneof![
        6 => Just(NodeState::Succeeded), 3 => Just(NodeState::Failed), 1 => Just(NodeState::Cancelled), 1 => Just(NodeState::Skipped)
    ];
    let policies = prop_oneof![
        6 => Just(FailurePolicy::SkipDownstream),
        2 => Just(FailurePolicy::Continue),
        u32::from(kind.fail_run) => Just(FailurePolicy::FailRun),
    ];
    let after = proptest::collection::vec(any::<Index>(), 0..4);
    let reads = proptest::option::weighted(0.2, any::<Index>());
    let result = proptest::sample::select(&["1", "2", "{}", "no JSON"][..]);
    (after, proptest::sample::select(kind.rules), policies, reads, ends, result)
        .prop_map(|(after, rule, on_failure, reads, end, result)| Draw { after, rule, on_failure, reads, end, result })
}

fn a_case(kind: Kind) -> impl Strategy<Value = Case> {
    (1..=NODES_MAX)
        .prop_flat_map(move |nodes| (proptest::collection::vec(a_draw(kind), nodes), Just((0..nodes).collect::<Vec<_>>()).prop_shuffle()))
        .prop_map(|(draws, places)| build(&draws, &places))
}

/// The case of these draws: each has its upstreams among those before it, and `places` says where each is defined.
fn build(draws: &[Draw], places: &[usize]) -> Case {
    let mut above: Vec<BTreeSet<usize>> = Vec::new();
    let mut specs = vec![node("", ""); draws.len()];
    for (number, draw) in draws.iter().enumerate() {
        let upstreams: BTreeSet<usize> = draw.after.iter().filter(|_| number > 0).map(|index| index.index(number)).collect();
        let ancestors: BTreeSet<usize> =
            upstreams.iter().flat_map(|upstream| above[*upstream].iter().copied()).chain(upstreams.clone()).collect();
        let after: Vec<String> = upstreams.iter().map(|upstream| format!("n{upstream}")).collect();
        let spec = ruled(draw.rule, failing(draw.on_failure, node(&format!("n{number}"), &after.join(" "))));
        let read = draw.reads.filter(|_| !ancestors.is_empty()).and_then(|index| ancestors.iter().nth(index.index(ancestors.len())));
        specs[places[number]] = match read {
            Some(read) => if_equal(&format!("n{read}"), "", json!(1), spec),
            None => spec,
        };
        above.push(ancestors);
    }
    let by_place = |place: usize| &draws[places.iter().position(|candidate| *candidate == place).expect("a permutation")];
    Case {
        graph: graph(specs),
        ends: (0..draws.len()).map(|place| by_place(place).end).collect(),
        results: (0..draws.len()).map(|place| by_place(place).result).collect(),
    }
}

impl Case {
    /// The result that a node leaves. A node that was skipped, or said to have ended by an operator while it waited, has none.
    fn result(&self, run_states: &[NodeState], node: NodeIndex) -> Option<&str> {
        matches!(run_states[node.place()], NodeState::Succeeded | NodeState::Failed).then(|| self.results[node.place()])
    }

    /// What becomes of all nodes by the book, without a machine: node by node from the top. No node's failure ends the run.
    fn by_the_book(&self) -> Vec<NodeState> {
        let mut states = vec![NodeState::Waiting; self.graph.len()];
        for node in self.graph.order() {
            let counts: Vec<NodeState> = self.graph.upstreams(*node).iter().map(|upstream| self.counts_as(&states, *upstream)).collect();
            let all = |allowed: &[NodeState]| counts.iter().all(|state| allowed.contains(state));
            let is_met = counts.is_empty()
                || match self.graph.rule(*node) {
                    TriggerRule::AllSucceeded => all(&[NodeState::Succeeded]),
                    TriggerRule::AllDone => true,
                    TriggerRule::OneFailed => counts.contains(&NodeState::Failed),
                    TriggerRule::OneSucceeded => counts.contains(&NodeState::Succeeded),
                    TriggerRule::NoneFailed => all(&[NodeState::Succeeded, NodeState::Skipped]),
                };
            let holds = self.graph.condition(*node).is_none_or(|(condition, reads)| condition.check(self.result(&states, reads)).is_ok());
            states[node.place()] = if is_met && holds { self.ends[node.place()] } else { NodeState::Skipped };
        }
        states
    }

    fn counts_as(&self, states: &[NodeState], node: NodeIndex) -> NodeState {
        match (states[node.place()], self.graph.on_failure(node)) {
            (NodeState::Failed | NodeState::Cancelled, FailurePolicy::Continue) => NodeState::Succeeded,
            (NodeState::Cancelled, _) => NodeState::Failed,
            (state, _) => state,
        }
    }

    fn end_by_the_book(&self, states: &[NodeState]) -> RunEnd {
        let fails = |node| self.counts_as(states, node) == NodeState::Failed;
        if self.graph.nodes().any(fails) { RunEnd::Failed } else { RunEnd::Succeeded }
    }

    fn restore(&self, states: &[NodeState], cancelled: bool) -> (Run, Vec<Step>) {
        Run::restore(&self.graph, self.graph.nodes().zip(states.iter().copied()), cancelled, &|node| self.result(states, node))
    }
}

/// What happens to a run. The numbers choose among the nodes that are there to be chosen from.
#[derive(Clone, Debug)]
enum Happening {
    /// A node that runs ends.
    Ends(Index),
    /// The end of some node arrives, which may have ended long ago, or never have started.
    Stray(Index, NodeState),
    /// An operator says how a node ended.
    Marked(Index, NodeState),
    /// An operator cancels the run.
    Cancelled,
}

fn a_happening() -> impl Strategy<Value = Happening> {
    let stray = proptest::sample::select(&NodeState::ALL[..]);
    let marked = proptest::sample::select(&[NodeState::Succeeded, NodeState::Failed, NodeState::Skipped][..]);
    prop_oneof![
        12 => any::<Index>().prop_map(Happening::Ends),
        4 => (any::<Index>(), stray).prop_map(|(node, state)| Happening::Stray(node, state)),
        3 => (any::<Index>(), marked).prop_map(|(node, state)| Happening::Marked(node, state)),
        1 => Just(Happening::Cancelled),
    ]
}

/// How a watched run is disturbed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Not at all.
    Unbroken,
    /// After each event another owner goes on from the states on record.
    TakenOverAlways,
}

/// A run that is watched: each step is checked against what must hold of any run.
struct Watched<'a> {
    case: &'a Case,
    run: Run,
    watch: Watch,
    running: Vec<NodeIndex>,
    decided: BTreeSet<NodeIndex>,
    ends: Vec<RunEnd>,
    has_fail_run: bool,
}

impl<'a> Watched<'a> {
    fn begin(case: &'a Case, watch: Watch) -> Self {
        let (run, steps) = Run::begin(&case.graph);
        let has_fail_run = case.graph.nodes().any(|node| case.graph.on_failure(node) == FailurePolicy::FailRun);
        let mut watched = Watched { case, run, watch, running: Vec::new(), decided: BTreeSet::new(), ends: Vec::new(), has_fail_run };
        watched.after(steps);
        watched
    }

    fn states(&self) -> Vec<NodeState> {
        self.run.states().collect()
    }

    fn happens(&mut self, happening: &Happening) {
        let case = self.case;
        let any_node = |index: &Index| NodeIndex(index.index(case.graph.len()) as u32);
        match happening {
            Happening::Ends(_) if self.running.is_empty() => {}
            Happening::Ends(index) => {
                let node = self.running.remove(index.index(self.running.len()));
                self.ends_as(node, case.ends[node.place()]);
            }
            Happening::Stray(index, state) => {
                let node = any_node(index);
                if !self.running.contains(&node) {
                    let before = self.run.clone();
                    assert_eq!(self.run.node_ended(&case.graph, node, *state, &no_results), []);
                    assert_eq!(self.run, before, "a stray end changes nothing");
                }
            }
            Happening::Marked(index, state) => self.marks(any_node(index), *state),
            Happening::Cancelled => {
                let was_over = self.run.end().is_some();
                match self.run.cancel(&case.graph) {
                    Ok(steps) => self.after(steps),
                    Err(_) => assert!(was_over),
                }
            }
        }
    }

    fn ends_as(&mut self, node: NodeIndex, state: NodeState) {
        let case = self.case;
        let mut states = self.states();
        states[node.place()] = state;
        let steps = self.run.node_ended(&case.graph, node, state, &|node| case.result(&states, node));
        self.after(steps);
    }

    fn marks(&mut self, node: NodeIndex, state: NodeState) {
        let case = self.case;
        let mut states = self.states();
        let before = std::mem::replace(&mut states[node.place()], state);
        let results = |node| case.result(&states, node);
        let untouched = self.run.clone();
        let answer = match state {
            NodeState::Succeeded => self.run.mark_succeeded(&case.graph, node, &results),
            NodeState::Failed => self.run.mark_failed(&case.graph, node, &results),
            _ => self.run.skip(&case.graph, node, &results),
        };
        match answer {
            Ok(steps) => {
                assert!(matches!(before, NodeState::Waiting | NodeState::Failed | NodeState::Cancelled), "{before}");
                assert_eq!(self.run.state(node), state);
                self.decided.insert(node);
                self.after(steps);
            }
            Err(_) => assert_eq!(self.run, untouched, "what is refused changes nothing"),
        }
    }

    /// What must hold after each event.
    fn after(&mut self, steps: Vec<Step>) {
        for (place, step) in steps.iter().enumerate() {
            match step {
                Step::Start(node) => {
                    self.starts(*node);
                    self.running.push(*node);
                }
                Step::Skip(node, _) => {
                    assert!(self.decided.insert(*node), "{node} was decided about already");
                    assert_eq!(self.run.state(*node), NodeState::Skipped);
                }
                Step::Cancel(node) => assert!(self.running.contains(node), "{node} does not run"),
                Step::End(end) => {
                    assert_eq!(place, steps.len() - 1, "the end comes last");
                    self.ends.push(*end);
                }
            }
        }
        let states = self.states();
        let unfinished = states.iter().filter(|state| !state.is_terminal()).count();
        assert_eq!(self.run.unfinished(), unfinished);
        assert_eq!(self.ends.len(), usize::from(unfinished == 0), "a run ends once, when its last node has");
        assert_eq!(self.run.end(), self.ends.first().copied());
        if self.ends.is_empty() {
            self.takeover(&states);
        }
        self.takeover_midway(&states, &steps);
    }

    fn starts(&mut self, node: NodeIndex) {
        assert!(self.decided.insert(node), "{node} was decided about already");
        let is_early = matches!(self.case.graph.rule(node), TriggerRule::OneFailed | TriggerRule::OneSucceeded);
        let have_ended = self.case.graph.upstreams(node).iter().all(|upstream| self.run.state(*upstream).is_terminal());
        assert!(is_early || have_ended, "{node} started before its upstreams had ended");
        assert_eq!(self.run.state(node), NodeState::Started);
    }

    /// The states on record make the same run, and nothing follows from them that had not been done.
    fn takeover(&mut self, states: &[NodeState]) {
        let (again, steps) = self.case.restore(states, self.run.is_cancelled());
        assert!(steps.iter().all(|step| matches!(step, Step::Cancel(_))), "{steps:?}");
        if !self.has_fail_run {
            assert_eq!(again, self.run);
        }
        if self.watch == Watch::TakenOverAlways {
            self.run = again;
        }
    }

    /// If the owner dies when only some of the steps are on record, the next one takes the others.
    fn takeover_midway(&self, states: &[NodeState], steps: &[Step]) {
        let decides = |step: &Step| match step {
            Step::Start(node) => Some((*node, "start")),
            Step::Skip(node, reason) => Some((*node, reason.name())),
            Step::Cancel(_) | Step::End(_) => None,
        };
        for taken in [0, steps.len() / 2] {
            let missed: BTreeSet<_> = steps[taken..].iter().filter_map(decides).collect();
            let mut record = states.to_vec();
            for (node, _) in &missed {
                record[node.place()] = NodeState::Waiting;
            }
            let (again, made_up) = self.case.restore(&record, self.run.is_cancelled());
            assert_eq!(made_up.iter().filter_map(decides).collect::<BTreeSet<_>>(), missed);
            assert_eq!(again.states().collect::<Vec<_>>(), states);
            assert_eq!(again.end(), self.run.end());
        }
    }

    /// Ends all that runs and comes to run, in an order made of these numbers.
    fn until_the_end(&mut self, order: &[Index]) -> (Vec<NodeState>, RunEnd) {
        let mut order = order.iter().cycle();
        while !self.running.is_empty() {
            self.happens(&Happening::Ends(*order.next().expect("a cycle has no end")));
        }
        (self.states(), self.run.end().expect("what nothing keeps from its end has ended"))
    }
}

fn an_order() -> impl Strategy<Value = Vec<Index>> {
    proptest::collection::vec(any::<Index>(), 1..NODES_MAX)
}

proptest! {
    /// In whatever order nodes end, all comes to the same: what the rules say of the ends alone.
    #[test]
    fn the_order_of_ends_makes_no_difference(case in a_case(NO_FAIL_RUN), one in an_order(), other in an_order()) {
        let expected = case.by_the_book();
        let end = case.end_by_the_book(&expected);
        for order in [&one, &other] {
            prop_assert_eq!(Watched::begin(&case, Watch::Unbroken).until_the_end(order), (expected.clone(), end));
            prop_assert_eq!(Watched::begin(&case, Watch::TakenOverAlways).until_the_end(order), (expected.clone(), end));
        }
    }

    /// Whatever happens, and whoever goes on after each event: all that must hold of a run holds, and it comes to the same end.
    #[test]
    fn runs_survive_whatever_happens(
        case in a_case(ALL_KINDS), happenings in proptest::collection::vec(a_happening(), 0..80), order in an_order(),
    ) {
        let [unbroken, taken_over] = [Watch::Unbroken, Watch::TakenOverAlways].map(|watch| {
            let mut watched = Watched::begin(&case, watch);
            for happening in &happenings {
                watched.happens(happening);
            }
            watched.until_the_end(&order)
        });
        prop_assert_eq!(unbroken, taken_over);
    }

    /// Once a failure has ended the run, nothing starts, and the run fails.
    #[test]
    fn nothing_starts_after_the_failure_that_ends_the_run(case in a_case(ALL_KINDS), order in an_order()) {
        let mut watched = Watched::begin(&case, Watch::Unbroken);
        let mut culprit = None;
        for index in order.iter().cycle().take(10_000) {
            let Some(node) = watched.running.get(index.index(watched.running.len().max(1))).copied() else { break };
            let started = watched.running.len();
            watched.happens(&Happening::Ends(*index));
            prop_assert!(culprit.is_none() || watched.running.len() == started - 1, "something started");
            let is_failure = matches!(watched.run.state(node), NodeState::Failed | NodeState::Cancelled);
            if is_failure && case.graph.on_failure(node) == FailurePolicy::FailRun {
                culprit.get_or_insert(node);
                prop_assert!(watched.states().iter().all(|state| *state != NodeState::Waiting));
            }
        }
        let end = watched.run.end();
        prop_assert!(end.is_some());
        prop_assert!(culprit.is_none() || end == Some(RunEnd::Failed));
    }

    /// When the failures of a run are repaired and those nodes are run again, all is as if they had not failed; what had succeeded is not
    /// run again.
    #[test]
    fn a_rerun_of_what_failed_makes_up_for_it(
        case in a_case(Kind { rules: &[TriggerRule::AllSucceeded, TriggerRule::NoneFailed], fail_run: true }), order in an_order(),
    ) {
        let repaired = Case {
            ends: case.graph.nodes().map(|node| match case.counts_as(&case.ends, node) {
                NodeState::Failed => NodeState::Succeeded,
                _ => case.ends[node.place()],
            }).collect(),
            ..case.clone()
        };
        let mut first = Watched::begin(&case, Watch::Unbroken);
        let mut order_of_first = order.iter().cycle();
        while let Some(index) = order_of_first.next().filter(|_| !first.running.is_empty()) {
            // What is told to be cancelled obeys.
            let is_ending = first.has_fail_run && first.states().iter().all(|state| *state != NodeState::Waiting)
                && case.graph.nodes().any(|node| case.graph.on_failure(node) == FailurePolicy::FailRun
                    && case.counts_as(&first.states(), node) == NodeState::Failed);
            let node = first.running.remove(index.index(first.running.len()));
            first.ends_as(node, if is_ending { NodeState::Cancelled } else { case.ends[node.place()] });
        }
        let states = first.states();
        let failed: Vec<NodeIndex> = case.graph.nodes().filter(|node| case.counts_as(&states, *node) == NodeState::Failed).collect();
        prop_assume!(!failed.is_empty());
        let again = case.graph.rerun_set(&states, &failed, false).expect("the run is over, and all that failed is asked for");
        prop_assert!(again.iter().all(|node| states[node.place()] != NodeState::Succeeded));
        let mut carried = states.clone();
        for node in &again {
            carried[node.place()] = NodeState::Waiting;
        }
        let (run, steps) = repaired.restore(&carried, false);
        let decided = case.graph.nodes().filter(|node| carried[node.place()].is_terminal()).collect();
        let mut second =
            Watched { case: &repaired, run, watch: Watch::Unbroken, running: Vec::new(), decided, ends: Vec::new(), has_fail_run: true };
        second.after(steps);
        let (states, end) = second.until_the_end(&order);
        prop_assert_eq!(states, repaired.by_the_book());
        prop_assert_eq!(end, RunEnd::Succeeded);
    }
}
