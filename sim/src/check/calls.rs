//! `call.complete`: nodes of workflows that call other tasks.

use std::collections::BTreeMap;

use punctual_core::ids::InstanceId;
use punctual_core::instance::{CallLink, Cause, InstanceRow, Origin, Part, State};

use crate::check::facts::Facts;
use crate::check::{Case, Verdict};

/// A node calls one instance at most, of the task that it names, and that instance says which node has called it. The node ends in a batch
/// behind the one that has the instance's end: succeeded, with its result, where it has succeeded; failed where it has not, or where there is
/// none; cancelled only where the node itself was to be.
pub(super) fn complete(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut called: BTreeMap<InstanceId, Vec<(usize, &InstanceRow)>> = BTreeMap::new();
    for commit in facts.commits.iter().filter(|commit| commit.stands()) {
        for row in commit.batch.inserts.iter().filter(|row| row.origin == Origin::Call && row.part == Part::WHOLE && row.run == 1) {
            let caller = row.caller().and_then(|(caller, task)| facts.row_at(caller, commit.record).filter(|node| node.task == task));
            let Some(node) = caller.filter(|node| node.calls().is_some_and(|name| name_of(facts, row) == &**name)) else {
                let (id, record) = (row.id, commit.record);
                case.violated(|| format!("instance {id} of task {} was called by no node that calls it (record {record})", row.task));
                continue;
            };
            let of_node = called.entry(node.id).or_default();
            of_node.push((commit.record, row));
            if of_node.len() > 1 {
                let (first, record) = (of_node[0].1.id, commit.record);
                case.violated(|| format!("node {} called instance {first}, and {} as well (record {record})", node.id, row.id));
            }
        }
    }
    for version in &facts.versions {
        let (row, commit) = (version.row, facts.commit_of(version));
        let is_end = row.state.is_terminal() && row.part.node_index().is_some();
        let Some(CallLink::Calls { instance, .. }) = row.links.as_ref().and_then(|links| links.call.as_deref()).filter(|_| is_end) else {
            continue;
        };
        if !commit.stands() {
            continue;
        }
        let record = commit.record;
        let end = instance.and_then(|instance| facts.row_at(instance, record.saturating_sub(1)));
        let cause = row.transitions.last().map(|last| last.cause);
        let is_right = match (row.state, end) {
            (_, Some(end)) if !end.state.is_terminal() || end.caller().map(|(caller, _)| caller) != Some(row.id) => false,
            (State::Succeeded, Some(end)) => end.state == State::Succeeded && end.result == row.result,
            (State::Failed, Some(end)) => end.state != State::Succeeded && cause == Some(Cause::CallEnded),
            (State::Failed, None) => instance.is_none() && cause == Some(Cause::CallEnded) && !called.contains_key(&row.id),
            (State::Cancelled, end) => cause != Some(Cause::CallEnded) && end.is_none_or(|end| end.state != State::Succeeded),
            _ => false,
        };
        if !is_right {
            let (node, state) = (row.id, row.state.name());
            let end = end.map_or("not there", |end| end.state.name());
            case.violated_unless_undone(facts.was_undone(row.id), || {
                format!("node {node} is {state}, and what it has called is {end} (record {record})")
            });
        }
    }
    case.verdict()
}

fn name_of<'a>(facts: &Facts<'a>, row: &InstanceRow) -> &'a str {
    facts.task(row.task).map_or("?", |task| task.name())
}
