//! Runs of workflows.
//!
//! A run is an instance that no worker is given, like one that is divided into shards: it is `running` while its nodes are, and counts against
//! the task's limit as one. A node gets a row when it starts, or when it is known that it never will; until then it waits, and only the
//! [`Run`] in memory knows of it. What a node's end leads to is written in the batch that has the end, so a new owner finds both or
//! neither, and makes the run anew from the rows of its nodes.
//!
//! What an ended node costs is its own edges. Results are kept as long as a node that may be given them, or whose condition reads them, has
//! not ended. Those of nodes that nothing comes after are the run's own result.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::definition::{TaskDefinition, Workflow};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, TaskId};
use crate::inbox::{NodeMark, RerunFrom};
use crate::instance::{Cause, InstanceRow, Links, Part, State};
use crate::limits;
use crate::probe;
use crate::protocol::Node;
use crate::scheduler::Scheduler;
use crate::scheduler::firing::Firing;
use crate::workflow::{Graph, NodeIndex, NodeState, Run, RunEnd, SkipReason, Step};

/// What a node has come to.
#[derive(Clone, Debug)]
pub(super) struct NodeEnd {
    node: NodeIndex,
    /// Where it is on record.
    instance: InstanceId,
    state: State,
    result: Option<Arc<str>>,
    /// The run was cancelled before it could start.
    is_cancelled: bool,
}

/// A run that has begun.
#[derive(Debug)]
pub(super) struct Flow {
    workflow: Arc<Workflow>,
    run: Run,
    /// The instances of nodes that have started and not ended.
    started: FxHashMap<NodeIndex, InstanceId>,
    results: FxHashMap<NodeIndex, Arc<str>>,
    /// For each node, how many that may want its result have not ended; the run itself does, of those that nothing comes after.
    readers: Vec<u32>,
    /// How much of what the run wants is kept.
    kept_bytes: usize,
}

/// How far what runs is to be ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cancelling {
    All,
    /// What a worker has may end.
    NotStarted,
}

impl Flow {
    /// `over`: the nodes that had ended before. Those that the run has skipped meanwhile are told by its steps.
    fn new(
        workflow: Arc<Workflow>,
        run: Run,
        started: FxHashMap<NodeIndex, InstanceId>,
        results: FxHashMap<NodeIndex, Arc<str>>,
        over: &[NodeIndex],
    ) -> Self {
        let graph = workflow.graph();
        let wants = |node| graph.dependants(node).len() + graph.far_readers(node).len() + usize::from(graph.dependants(node).is_empty());
        let readers = graph.nodes().map(|node| wants(node) as u32).collect();
        let mut flow = Flow { workflow, run, started, results: FxHashMap::default(), readers, kept_bytes: 0 };
        over.iter().for_each(|node| flow.wants_no_more(*node));
        let mut results: Vec<_> = results.into_iter().collect();
        results.sort_unstable_by_key(|(node, _)| *node);
        results.into_iter().for_each(|(node, result)| flow.keep(node, result));
        flow
    }

    /// A node has answered: keeps that as long as it may be wanted, and for the run as far as there is room.
    fn keep(&mut self, node: NodeIndex, result: Arc<str>) {
        let graph = self.workflow.graph();
        if graph.dependants(node).is_empty() {
            if self.kept_bytes + result.len() > limits::RESULT_BYTES_MAX {
                return;
            }
            self.kept_bytes += result.len();
        }
        if self.readers[node.place()] > 0 {
            self.results.insert(node, result);
        }
    }

    /// What the nodes have answered that nothing comes after, by their names; `None`: nothing.
    fn result(&self) -> Option<Arc<str>> {
        let graph = self.workflow.graph();
        let last = graph.nodes().filter(|node| graph.dependants(*node).is_empty());
        let answers = last.filter_map(|node| Some((&**graph.name(node), Some(&**self.results.get(&node)?))));
        Some(inputs(answers, limits::RESULT_BYTES_MAX)).filter(|text| text != "{}").map(Arc::from)
    }

    /// A node has ended: it reads no results any more.
    fn wants_no_more(&mut self, node: NodeIndex) {
        let graph = self.workflow.graph();
        let upstreams = graph.upstreams(node);
        let far = graph.condition(node).map(|(_, reads)| reads).filter(|reads| !upstreams.contains(reads));
        for read in upstreams.iter().copied().chain(far) {
            self.readers[read.place()] -= 1;
            if self.readers[read.place()] == 0 {
                self.results.remove(&read);
            }
        }
    }

    /// Does something to the run, whose graph and results it needs.
    fn go_on<T>(&mut self, what: impl FnOnce(&mut Run, &Graph, crate::workflow::Results<'_, '_>) -> T) -> T {
        let Flow { workflow, run, results, .. } = self;
        let results = &*results;
        what(run, workflow.graph(), &|node| results.get(&node).map(|result| &**result))
    }
}

/// What a node's instance stands for in its run.
fn node_state(state: State) -> NodeState {
    match state {
        State::Succeeded => NodeState::Succeeded,
        State::Failed | State::TimedOut | State::DeadLettered => NodeState::Failed,
        State::Cancelled => NodeState::Cancelled,
        State::Skipped => NodeState::Skipped,
        State::Waiting | State::Created | State::Dispatched | State::Running | State::Retrying => NodeState::Started,
    }
}

impl Scheduler {
    /// An instance is about to begin whose task is a workflow.
    pub(super) fn begin_run(&mut self, id: InstanceId, workflow: Arc<Workflow>) {
        probe!("workflow.begun");
        let now = self.now.wall;
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        live.row.links.get_or_insert_default().nodes = workflow.graph().len() as u32;
        live.change(State::Running, Cause::Divided, now);
        self.mark_instance(id);
        self.put_run(id, workflow);
    }

    /// Nodes of a run that has not begun have ended, in the run before.
    pub(super) fn carry_over(&mut self, id: InstanceId, nodes: Vec<NodeEnd>) {
        self.parts.entry(id).or_default().ended_nodes = nodes;
    }

    /// Makes a run of what is known of its nodes, and takes the steps that follow.
    fn put_run(&mut self, id: InstanceId, workflow: Arc<Workflow>) {
        let Scheduler { parts, instances, .. } = self;
        let parts = parts.entry(id).or_default();
        let index_of = |part: &InstanceId| instances[part].row.part.node_index().map(|node| (NodeIndex(node), *part));
        let started: FxHashMap<_, _> = parts.unfinished.iter().filter_map(index_of).collect();
        let (mut states, mut results) = (vec![NodeState::Waiting; workflow.graph().len()], FxHashMap::default());
        let ended = std::mem::take(&mut parts.ended_nodes);
        let is_cancelled = ended.iter().any(|node| node.is_cancelled);
        for NodeEnd { node, state, result, .. } in ended.into_iter().filter(|ended| workflow.graph().contains(ended.node)) {
            states[node.place()] = node_state(state);
            result.map(|result| results.insert(node, result));
        }
        started.keys().for_each(|node| states[node.place()] = NodeState::Started);
        let over: Vec<_> = workflow.graph().nodes().filter(|node| states[node.place()].is_terminal()).collect();
        let known = workflow.graph().nodes().zip(states).filter(|(_, state)| *state != NodeState::Waiting);
        let (run, steps) =
            Run::restore(workflow.graph(), known, is_cancelled, &|node| results.get(&node).map(|result: &Arc<str>| &**result));
        parts.flow = Some(Box::new(Flow::new(workflow, run, started, results, &over)));
        if is_cancelled {
            // By whom, whoever cancels it again says: an entry that stays in the inbox, or the limit. Else what runs may end.
            self.instances.get_mut(&id).expect("checked by the caller").cancel.get_or_insert((Cause::ParentEnded, None));
            return self.take_steps(id, steps, Cancelling::NotStarted);
        }
        self.take_steps(id, steps, Cancelling::All);
    }

    /// Runs that a snapshot has, and the nodes that have ended of those and of others that have not begun.
    pub(super) fn take_up_runs(&mut self, runs: &[InstanceId], ended: Vec<InstanceRow>) {
        let mut ended = ended;
        // What was said of a node that had ended comes behind the node's own end.
        ended.sort_by_key(|row| row.part);
        for row in ended {
            let (Some(whole), Some(node)) = (row.parent(), row.part.node_index()) else { continue };
            let is_cancelled = row.state == State::Skipped && row.transitions.last().is_some_and(|last| last.cause == Cause::ParentEnded);
            let end = NodeEnd { node: NodeIndex(node), instance: row.id, state: row.state, result: row.result, is_cancelled };
            if let Some(parts) = self.parts.get_mut(&whole)
                && !guard!(Guard::EndedNodesKnown, false)
            {
                parts.ended_nodes.push(end);
            }
        }
        for id in runs {
            let live = &self.instances[id];
            if live.row.state != State::Running {
                continue;
            }
            let Some(workflow) = live.definition.workflow.clone() else { continue };
            probe!("workflow.restored");
            let is_without_task = !self.tasks.contains_key(&live.row.task);
            self.put_run(*id, workflow);
            if is_without_task {
                self.wind_up_run(*id);
            }
        }
    }

    /// Carries out what follows from something that has happened to a run. What is to be cancelled comes last: its end leads to further steps.
    fn take_steps(&mut self, whole: InstanceId, steps: Vec<Step>, cancelling: Cancelling) {
        let mut to_cancel = Vec::new();
        let mut end = None;
        for step in steps {
            match step {
                Step::Start(node) => self.start_node(whole, node),
                Step::Skip(node, reason) => {
                    probe!("node.skipped");
                    let Some(flow) = self.flow(whole) else { return };
                    flow.wants_no_more(node);
                    let why = reason.explain(flow.workflow.graph(), node);
                    // A new owner knows by that that the run was cancelled.
                    let cause = if reason == SkipReason::RunCancelled { Cause::ParentEnded } else { Cause::NodeSkipped };
                    self.put_ended_node(whole, Part::node(node.0), State::Skipped, cause, Some(Arc::from(why)));
                }
                Step::Cancel(node) => to_cancel.extend(self.flow(whole).and_then(|flow| flow.started.get(&node).copied())),
                Step::End(how) => end = Some(how),
            }
        }
        // A kill reaches the nodes as what it is.
        let asked = self.instances.get(&whole).and_then(|live| live.cancel.as_ref());
        let cause = if asked.is_some_and(|(cause, _)| *cause == Cause::KillRequested) { Cause::KillRequested } else { Cause::ParentEnded };
        for node in to_cancel {
            let is_with_worker = self.instances.get(&node).is_some_and(|live| live.row.state.is_with_worker());
            if cancelling == Cancelling::All || !is_with_worker {
                self.cancel_instance(node, cause, None);
            }
        }
        if let Some(end) = end {
            self.end_of_run(whole, end);
        }
    }

    fn flow(&mut self, whole: InstanceId) -> Option<&mut Flow> {
        self.parts.get_mut(&whole)?.flow.as_deref_mut()
    }

    fn start_node(&mut self, whole: InstanceId, node: NodeIndex) {
        let Some(firing) = self.firing_of_node(whole, Part::node(node.0), None) else { return };
        let id = self.insert(firing, State::Created, Cause::RuleMet);
        let parts = self.parts.get_mut(&whole).expect("its run is there");
        parts.unfinished.insert(id);
        parts.flow.as_mut().map(|flow| flow.started.insert(node, id));
        if !self.divide_if_due(id) {
            self.make_ready(id);
        }
    }

    /// Puts a node on record that is never run, or what an operator says of one.
    fn put_ended_node(&mut self, whole: InstanceId, part: Part, state: State, cause: Cause, detail: Option<Arc<str>>) {
        if let Some(firing) = self.firing_of_node(whole, part, detail) {
            self.insert(firing, state, cause);
        }
    }

    fn firing_of_node(&self, whole: InstanceId, part: Part, detail: Option<Arc<str>>) -> Option<Firing> {
        let live = self.instances.get(&whole)?;
        let row = &live.row;
        let hops = row.links.as_ref().map_or(0, |links| links.hops);
        Some(Firing {
            task: row.task,
            version: row.version,
            definition: live.definition.of_part(part),
            fire_time: row.fire_time,
            ordinal: row.ordinal,
            run: row.run,
            part,
            origin: row.origin,
            // The run has it: ten thousand nodes need no copies of it.
            payload: None,
            key: None,
            links: Some(Box::new(Links { parent: Some(whole), hops, ..Links::default() })),
            detail,
            carried: Vec::new(),
        })
    }

    /// The instance of a node has ended.
    pub(super) fn node_ended(&mut self, whole: InstanceId, part: InstanceId) {
        let row = &self.instances[&part].row;
        let Some(node) = row.part.node_index().map(NodeIndex) else { return };
        let (state, result) = (node_state(row.state), row.result.clone());
        let Some(flow) = self.flow(whole) else { return };
        flow.started.remove(&node);
        if let Some(result) = result {
            flow.keep(node, result);
        }
        flow.wants_no_more(node);
        let steps = flow.go_on(|run, graph, results| run.node_ended(graph, node, state, results));
        self.take_steps(whole, steps, Cancelling::All);
    }

    /// All nodes have ended, and with them the run.
    fn end_of_run(&mut self, whole: InstanceId, end: RunEnd) {
        let flow = self.parts.remove(&whole).and_then(|parts| parts.flow);
        let (failed, result) = (flow.as_ref().map(|flow| flow.failed_names()), flow.and_then(|flow| flow.result()));
        let Some(live) = self.instances.get_mut(&whole) else { return };
        match (live.cancel.take(), end) {
            (Some((Cause::ParentEnded, _)), _) => {
                let detail = Some(Arc::from("it was cancelled before its owner changed"));
                self.end(whole, State::Cancelled, Cause::CancelRequested, None, detail);
            }
            (Some((cause, detail)), _) => self.end(whole, State::Cancelled, cause, None, detail),
            (None, RunEnd::Succeeded) => {
                live.row.result = result;
                self.end(whole, State::Succeeded, Cause::PartsEnded, None, None);
            }
            (None, RunEnd::Cancelled) => self.end(whole, State::Cancelled, Cause::CancelRequested, None, None),
            (None, RunEnd::Failed) => {
                probe!("workflow.failed");
                self.end(whole, State::Failed, Cause::PartsEnded, None, failed);
            }
        }
    }

    /// Cancels a run: what waits is skipped, what runs is cancelled, and the run ends with that.
    pub(super) fn cancel_run(&mut self, whole: InstanceId) {
        self.cancel_nodes(whole, Cancelling::All);
    }

    /// The task of runs was removed: what runs of them may end, nothing else starts.
    pub(super) fn wind_up_runs(&mut self, task: TaskId) {
        let of_task = self.tasks.get(&task).and_then(|task| task.instances.as_ref());
        let runs: Vec<_> = of_task.into_iter().flat_map(|of| of.in_progress()).collect();
        for run in runs {
            self.wind_up_run(run);
        }
    }

    fn wind_up_run(&mut self, whole: InstanceId) {
        let Some(live) = self.instances.get_mut(&whole).filter(|live| live.row.is_run() && !live.row.state.is_terminal()) else { return };
        if live.cancel.as_ref().is_none_or(|(cause, _)| *cause == Cause::ParentEnded) {
            live.cancel = Some((Cause::TaskRemoved, None));
        }
        self.cancel_nodes(whole, Cancelling::NotStarted);
    }

    fn cancel_nodes(&mut self, whole: InstanceId, cancelling: Cancelling) {
        let Some(flow) = self.flow(whole) else { return };
        let Ok(mut steps) = flow.go_on(|run, graph, _| run.cancel(graph)) else { return };
        if flow.run.end().is_none() {
            // A run that is being ended for another reason has told those that run once; they are told again.
            let told = steps.iter().any(|step| matches!(step, Step::Cancel(_)));
            let mut again: Vec<_> = flow.started.keys().copied().filter(|_| !told).collect();
            again.sort_unstable();
            steps.extend(again.into_iter().map(Step::Cancel));
        }
        self.take_steps(whole, steps, cancelling);
    }

    /// Somebody says what a node has come to. Whoever asks has looked whether that can be; where it can't any more, it is of no effect.
    pub(super) fn mark_node(&mut self, whole: InstanceId, node: NodeIndex, mark: NodeMark, detail: Arc<str>) {
        let Some(flow) = self.flow(whole) else { return };
        let had_ended = flow.workflow.graph().contains(node) && flow.run.state(node).is_terminal();
        let marked = flow.go_on(|run, graph, results| match mark {
            NodeMark::Skipped => run.skip(graph, node, results),
            NodeMark::Succeeded => run.mark_succeeded(graph, node, results),
            NodeMark::Failed => run.mark_failed(graph, node, results),
        });
        let Ok(steps) = marked else { return };
        probe!("node.marked");
        if !had_ended {
            flow.wants_no_more(node);
            self.put_ended_node(whole, Part::node(node.0), mark.state(), Cause::Marked, Some(detail));
        } else if mark != NodeMark::Failed {
            self.put_ended_node(whole, Part::node(node.0).amended(), mark.state(), Cause::Marked, Some(detail));
        }
        self.take_steps(whole, steps, Cancelling::All);
    }

    /// What a rerun from some nodes carries over of the run before; `None`: the workflow in force has no such nodes, or can't be run from
    /// them.
    pub(super) fn carried(definition: &TaskDefinition, from: &RerunFrom) -> Option<Vec<NodeEnd>> {
        let graph = definition.workflow.as_ref()?.graph();
        let mut states = vec![NodeState::Waiting; graph.len()];
        let known = from.ended.iter().filter_map(|ended| graph.node(&ended.name).map(|node| (node, ended)));
        known.clone().for_each(|(node, ended)| states[node.place()] = node_state(ended.state));
        let nodes: Vec<_> = from.nodes.iter().map(|name| graph.node(name)).collect::<Option<_>>()?;
        let again = graph.rerun_set(&states, &nodes, from.cascade).ok()?;
        again.iter().for_each(|node| states[node.place()] = NodeState::Waiting);
        let carried = known.filter(|(node, _)| states[node.place()].is_terminal());
        let end = |(node, ended): (NodeIndex, &crate::inbox::EndedNode)| NodeEnd {
            node,
            instance: ended.instance,
            state: ended.state,
            result: ended.result.clone(),
            is_cancelled: false,
        };
        Some(carried.map(end).collect())
    }

    /// Puts nodes that are carried over on record as nodes of the new run.
    pub(super) fn record_carried(&mut self, whole: InstanceId, nodes: Vec<NodeEnd>) {
        let Some(live) = self.instances.get_mut(&whole) else { return };
        // It may have ended at once, with nothing to run; one that was discarded never begins.
        if live.row.state == State::Skipped {
            return;
        }
        let Some(workflow) = live.definition.workflow.clone() else { return };
        // Also before it begins, so that a new owner looks for them.
        live.row.links.get_or_insert_default().nodes = workflow.graph().len() as u32;
        self.mark_instance(whole);
        for NodeEnd { node, instance, state, result, .. } in nodes {
            let Some(mut firing) = self.firing_of_node(whole, Part::node(node.0), None) else { return };
            firing.links.get_or_insert_default().cause = Some(instance);
            let id = self.insert(firing, state, Cause::CarriedOver);
            self.instances.get_mut(&id).expect("just inserted").row.result = result;
        }
    }

    /// The run that an instance is a node of, or a shard of a node.
    fn run_of(&self, row: &InstanceRow) -> Option<InstanceId> {
        row.part.node_index()?;
        let parent = row.parent()?;
        match row.part.is_shard() {
            false => Some(parent),
            true => self.instances.get(&parent)?.row.parent(),
        }
    }

    /// What an attempt of an instance is given to work on: what whoever asked for the firing brought, unless the node says for itself.
    pub(super) fn payload_of(&self, id: InstanceId) -> Option<Arc<str>> {
        let live = self.instances.get(&id)?;
        let own = || live.definition.payload.clone();
        if live.row.payload.is_some() {
            return live.row.payload.clone();
        }
        let Some(whole) = self.run_of(&live.row).and_then(|whole| self.instances.get(&whole)) else { return own() };
        let says_itself = live.definition.payload != whole.definition.payload;
        whole.row.payload.clone().filter(|_| !says_itself).or_else(own)
    }

    /// Which node an instance is, with what its upstreams have answered.
    pub(super) fn node_of(&self, id: InstanceId) -> Option<Node> {
        let row = &self.instances.get(&id)?.row;
        let node = NodeIndex(row.part.node_index()?);
        let flow = self.parts.get(&self.run_of(row)?)?.flow.as_ref()?;
        let graph = flow.workflow.graph();
        let upstreams =
            graph.upstreams(node).iter().map(|upstream| (&**graph.name(*upstream), flow.results.get(upstream).map(|text| &**text)));
        Some(Node { name: Arc::clone(graph.name(node)), inputs: Arc::from(inputs(upstreams, limits::INPUTS_BYTES_MAX)) })
    }
}

impl Flow {
    /// Which nodes have failed, in words; no more of many than fit.
    fn failed_names(&self) -> Arc<str> {
        let graph = self.workflow.graph();
        let has_failed = |node: &NodeIndex| matches!(self.run.state(*node), NodeState::Failed | NodeState::Cancelled);
        let failed: Vec<_> = graph.nodes().filter(has_failed).collect();
        let named: Vec<_> = failed.iter().take(FAILED_NAMED_MAX).map(|node| format!("`{}`", graph.name(*node))).collect();
        let more = if failed.len() > named.len() { ", ..." } else { "" };
        Arc::from(format!("{} of {} nodes did not succeed: {}{more}", failed.len(), graph.len(), named.join(", ")))
    }
}

/// How many failed nodes the end of a run names.
const FAILED_NAMED_MAX: usize = 8;

/// A JSON object with what each of these has answered, as far as there is room.
fn inputs<'a>(answers: impl Iterator<Item = (&'a str, Option<&'a str>)>, most_bytes: usize) -> String {
    let mut text = String::from("{");
    for (name, result) in answers {
        let is_json = |text: &&str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        let value = match result {
            None => "null".to_owned(),
            Some(result) if is_json(&result) => result.to_owned(),
            Some(result) => serde_json::Value::from(result).to_string(),
        };
        let member = format!("{}{}:{value}", if text.len() > 1 { "," } else { "" }, serde_json::Value::from(name));
        if text.len() + member.len() < most_bytes {
            text.push_str(&member);
        }
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_json_whatever_was_answered() {
        let answers = [("a", Some("{\"n\": 1}")), ("b\"", None), ("c", Some("no json")), ("d", Some("7"))];
        let read: serde_json::Value = serde_json::from_str(&inputs(answers.into_iter(), limits::INPUTS_BYTES_MAX)).expect("JSON");
        assert_eq!(read, serde_json::json!({ "a": { "n": 1 }, "b\"": null, "c": "no json", "d": 7 }));
    }

    #[test]
    fn inputs_beyond_the_limit_are_left_out_and_those_behind_them_are_not() {
        let large = format!("\"{}\"", "x".repeat(limits::INPUTS_BYTES_MAX));
        let text = inputs([("a", Some("1")), ("large", Some(large.as_str())), ("b", Some("2"))].into_iter(), limits::INPUTS_BYTES_MAX);
        assert_eq!(text, r#"{"a":1,"b":2}"#);
    }
}
