//! `dag.parents_first` and `dag.complete`: runs of workflows.
//!
//! The rules stand here a second time: a checker that asked the engine for them would agree with it.

use std::collections::BTreeMap;

use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, InstanceRow, State};
use punctual_core::workflow::{FailurePolicy, Graph, NodeIndex, TriggerRule};

use crate::check::facts::Facts;
use crate::check::{Case, Verdict};

/// The nodes of a run: each row with the record of the batch that made it.
type Nodes<'a> = BTreeMap<u32, Vec<(usize, &'a InstanceRow)>>;

/// A run, its graph, and its nodes.
struct Run<'f, 'a> {
    facts: &'f Facts<'a>,
    id: InstanceId,
    graph: &'a Graph,
    nodes: Nodes<'a>,
}

/// What a node counts as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    Unfinished,
    Succeeded,
    Failed,
    Skipped,
}

fn runs<'f, 'a>(facts: &'f Facts<'a>) -> Vec<Run<'f, 'a>> {
    let mut nodes: BTreeMap<InstanceId, Nodes<'a>> = BTreeMap::new();
    for commit in facts.commits.iter().filter(|commit| commit.stands()) {
        for row in commit.batch.inserts.iter().filter(|row| !row.part.is_shard()) {
            let Some((run, node)) = row.parent().zip(row.part.node_index()) else { continue };
            nodes.entry(run).or_default().entry(node).or_default().push((commit.record, row));
        }
    }
    let run = |(id, nodes): (InstanceId, Nodes<'a>)| {
        let row = facts.last_row(id)?;
        let definition = facts.definition(row.task, row.version)?;
        let graph = definition.workflow.as_ref()?.graph();
        (!facts.was_undone(id)).then_some(Run { facts, id, graph, nodes })
    };
    nodes.into_iter().filter_map(run).collect()
}

impl Run<'_, '_> {
    /// What a node counts as by what is committed up to this record; what was said of it later counts.
    fn counts(&self, node: NodeIndex, record: usize) -> Counts {
        let rows = self.nodes.get(&node.0).map_or(&[][..], Vec::as_slice);
        let known = rows.iter().filter(|(made, _)| *made <= record).filter_map(|(_, row)| self.facts.row_at(row.id, record));
        let Some(row) = known.max_by_key(|row| row.part) else { return Counts::Unfinished };
        match row.state {
            State::Succeeded => Counts::Succeeded,
            State::Skipped => Counts::Skipped,
            State::Failed | State::TimedOut | State::DeadLettered | State::Cancelled => match self.graph.on_failure(node) {
                FailurePolicy::Continue => Counts::Succeeded,
                FailurePolicy::SkipDownstream | FailurePolicy::FailRun => Counts::Failed,
            },
            State::Waiting | State::Created | State::Dispatched | State::Running | State::Retrying => Counts::Unfinished,
        }
    }

    /// Whether a node's rule is met by what is committed, and whether it can't be any more.
    fn rule(&self, node: NodeIndex, record: usize) -> (bool, bool) {
        let upstreams: Vec<_> = self.graph.upstreams(node).iter().map(|upstream| self.counts(*upstream, record)).collect();
        if upstreams.is_empty() {
            return (true, false);
        }
        let all_ended = !upstreams.contains(&Counts::Unfinished);
        let any = |counts| upstreams.contains(&counts);
        match self.graph.rule(node) {
            TriggerRule::AllSucceeded => {
                (upstreams.iter().all(|counts| *counts == Counts::Succeeded), any(Counts::Failed) || any(Counts::Skipped))
            }
            TriggerRule::AllDone => (all_ended, false),
            TriggerRule::OneFailed => (any(Counts::Failed), all_ended && !any(Counts::Failed)),
            TriggerRule::OneSucceeded => (any(Counts::Succeeded), all_ended && !any(Counts::Succeeded)),
            TriggerRule::NoneFailed => (all_ended && !any(Counts::Failed), any(Counts::Failed)),
        }
    }

    /// Whether a failure has ended the run by then.
    fn was_ended(&self, record: usize) -> bool {
        let is_fatal = |node: NodeIndex| self.graph.on_failure(node) == FailurePolicy::FailRun;
        self.graph.nodes().any(|node| is_fatal(node) && self.counts(node, record) == Counts::Failed)
    }

    fn name(&self, node: u32) -> &str {
        self.graph.name(NodeIndex(node))
    }
}

/// A node starts only if its rule is met by what is committed with its start, and is skipped only if that can't be any more, if it has a
/// condition, or if the run is being ended.
pub(super) fn parents_first(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for run in runs(facts) {
        let is_cancelled = facts.last_row(run.id).is_some_and(|row| row.state == State::Cancelled);
        let is_winding_up = facts.last_row(run.id).is_some_and(|row| !row.state.is_terminal());
        for (node, rows) in &run.nodes {
            for (record, row) in rows {
                let (is_met, is_out_of_reach) = run.rule(NodeIndex(*node), *record);
                let cause = row.transitions.first().map(|first| first.cause);
                let is_right = match cause {
                    Some(Cause::RuleMet) => is_met,
                    Some(Cause::NodeSkipped) => {
                        let may_be_by_condition = run.graph.condition(NodeIndex(*node)).is_some() && is_met;
                        is_out_of_reach || may_be_by_condition || is_cancelled || is_winding_up || run.was_ended(*record)
                    }
                    _ => true,
                };
                if !is_right {
                    let cause = cause.map_or("", Cause::name);
                    case.violated(|| {
                        format!("node `{}` of run {} was made ({cause}) against its rule (record {record})", run.name(*node), run.id)
                    });
                }
            }
        }
    }
    case.verdict()
}

/// Each node has one row, and what was said of it at most one more; a run ends in a batch after which none of its nodes is unfinished, as
/// they have: failed where one has failed, succeeded where none has, or cancelled.
pub(super) fn complete(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for run in runs(facts) {
        for (node, rows) in &run.nodes {
            let own = rows.iter().filter(|(_, row)| !row.part.is_amendment()).count();
            if own != 1 || rows.len() > 2 || !run.graph.contains(NodeIndex(*node)) {
                case.violated(|| format!("node {node} of run {} has {} rows, {own} of its own", run.id, rows.len()));
            }
        }
        let Some(row) = facts.last_row(run.id).filter(|row| row.state.is_terminal()) else { continue };
        // One that never began has no more nodes than were carried over into it.
        if !row.transitions.iter().any(|transition| transition.to == State::Running) {
            continue;
        }
        let Some(ended) = facts.commits.iter().find(|commit| {
            let rows = commit.batch.updates.iter().map(|update| &update.row).chain(&commit.batch.inserts);
            commit.stands() && rows.into_iter().any(|row| row.id == run.id && row.state.is_terminal())
        }) else {
            continue;
        };
        let counts: Vec<_> = run.graph.nodes().map(|node| run.counts(node, ended.record)).collect();
        let has_failed = counts.contains(&Counts::Failed);
        // What the cancelling of the run has kept from starting.
        let kept = |row: &InstanceRow| row.state == State::Skipped && row.transitions.iter().any(|made| made.cause == Cause::ParentEnded);
        let was_cancelled = run.nodes.values().flatten().any(|(_, row)| kept(row));
        let is_right = match row.state {
            State::Succeeded => !has_failed && !was_cancelled,
            State::Failed => has_failed && !was_cancelled,
            state => state == State::Cancelled,
        };
        if counts.contains(&Counts::Unfinished) || !is_right {
            let unfinished = counts.iter().filter(|counts| **counts == Counts::Unfinished).count();
            let state = row.state.name();
            case.violated(|| {
                format!("run {} is {state}, {unfinished} of its nodes are not (record {}), failed: {has_failed}", run.id, ended.record)
            });
        }
    }
    case.verdict()
}
