//! `attempt.exclusive`, `speak.after_commit` and `timeout.enforced`: handlers, by their own account.

use std::collections::BTreeMap;

use punctual_core::definition::TimeoutAction;
use punctual_core::ids::WorkerId;

use crate::check::facts::{Facts, Run};
use crate::check::{Case, ONE_WAY_SLACK_MS, OVERLAP_SLACK_MS, TIMEOUT_SLACK_MS, Verdict};
use crate::history::{What, Who};
use crate::plan::FaultKind;

/// Two handlers of one instance run at the same time no longer than the older one's grace and [`OVERLAP_SLACK_MS`]; time in which its worker
/// stood still does not count. Where messages were lost, delayed or cut one way not long before, a worker may have been spoken to by those
/// that did not hear it: [`ONE_WAY_SLACK_MS`] more.
pub(super) fn exclusive(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for runs in facts.runs.chunk_by(|a, b| a.instance == b.instance) {
        for (index, older) in runs.iter().enumerate() {
            for younger in &runs[index + 1..] {
                let older_end = older.ended_at.unwrap_or(facts.end);
                let until = younger.ended_at.unwrap_or(facts.end).min(older_end);
                if until <= younger.began_at || !is_other(older, younger) {
                    continue;
                }
                let overlap = facts.moved(older.worker, younger.began_at, until);
                let grace = facts
                    .last_row(older.instance)
                    .and_then(|row| facts.definition_of(row))
                    .map_or(0, |definition| definition.policies.timeout.grace.0);
                let allowed = grace.saturating_add(OVERLAP_SLACK_MS).saturating_add(one_way_slack(facts, younger.began_at));
                if overlap > allowed {
                    case.violated_unless_undone(facts.was_undone(older.instance), || {
                        format!(
                            "instance {}: the handlers under fences {} and {} ran side by side for {overlap} ms, allowed are {allowed} \
                             (records {} and {})",
                            older.instance, older.fence, younger.fence, older.began, younger.began
                        )
                    });
                }
            }
        }
    }
    case.verdict()
}

/// Two beginnings of one attempt are another property's affair.
fn is_other(older: &Run, younger: &Run) -> bool {
    older.fence != younger.fence
}

fn one_way_slack(facts: &Facts<'_>, at: u64) -> u64 {
    let is_one_way =
        |kind| matches!(kind, FaultKind::CutOutgoing | FaultKind::CutIncoming | FaultKind::Delay { .. } | FaultKind::Lose { .. });
    let near = |begin: u64, lasts: u64| begin <= at && begin.saturating_add(lasts).saturating_add(2 * ONE_WAY_SLACK_MS) >= at;
    let was_one_way = facts.plan.faults.iter().any(|fault| is_one_way(fault.kind) && near(fault.at_ms, fault.lasts_ms));
    if was_one_way { ONE_WAY_SLACK_MS } else { 0 }
}

/// A handler begins only an attempt whose dispatch, under this fence and to this worker, was committed before; and what it is told of the
/// instance is what the row says.
///
/// Which worker of the history is which one of the rows is taken from its first attempt; one worker is one worker from then on.
pub(super) fn after_commit(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut begins: Vec<&Run> = facts.runs.iter().collect();
    begins.sort_unstable_by_key(|run| run.began);
    let mut names: BTreeMap<usize, &WorkerId> = BTreeMap::new();
    let mut taken: BTreeMap<&WorkerId, usize> = BTreeMap::new();
    for run in begins {
        let What::Began { attempt, task, version, fire_time, ordinal, .. } = &facts.records[run.began].what else { continue };
        let (instance, fence, worker, record) = (run.instance, run.fence, run.worker, run.began);
        let mut bad = |what: String| {
            case.violated(|| {
                format!("instance {instance} of task {task} began under fence {fence} on worker {worker}: {what} (record {record})")
            });
        };
        let dispatches = facts.dispatches_of(instance, fence);
        let committed = |version: usize| facts.commit_of(&facts.versions[version]).record;
        let Some(dispatch) = dispatches.iter().rev().find(|dispatch| committed(dispatch.version) < record) else {
            let later = dispatches
                .first()
                .map(|dispatch| format!("its dispatch was committed after that, in record {}", committed(dispatch.version)));
            bad(later.unwrap_or_else(|| "it was never dispatched".into()));
            continue;
        };
        if let Some(name) = dispatch.worker {
            let known = *names.entry(worker).or_insert(name);
            let owner = *taken.entry(name).or_insert(worker);
            if known != name || owner != worker {
                bad(format!("it was dispatched to {name}, which is not that worker"));
            }
        }
        let row = facts.versions[dispatch.version].row;
        if (*task, *version, *fire_time, *ordinal) != (row.task, row.version, row.fire_time, row.ordinal) || *attempt != dispatch.attempt {
            bad("it was told something else than what the row says".into());
        }
    }
    case.verdict()
}

/// Where the definition says `kill`, a handler runs no longer than its timeout, its grace and [`TIMEOUT_SLACK_MS`]; time in which its worker
/// stood still does not count.
pub(super) fn timeout_enforced(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for run in &facts.runs {
        let record = &facts.records[run.began];
        let (What::Began { task, version, .. }, Who::Worker(worker)) = (&record.what, record.who) else { continue };
        let Some(definition) = facts.definition(*task, *version) else { continue };
        let timeout = definition.policies.timeout;
        let Some(after) = timeout.after.filter(|_| timeout.action == TimeoutAction::Kill) else { continue };
        let until = run.ended_at.unwrap_or(facts.end);
        let (ran, allowed) =
            (facts.moved(worker, run.began_at, until), after.0.saturating_add(timeout.grace.0).saturating_add(TIMEOUT_SLACK_MS));
        if ran > allowed {
            case.violated(|| {
                format!(
                    "instance {} of task {task} under fence {} ran for {ran} ms, allowed are {allowed} (record {})",
                    run.instance, run.fence, run.began
                )
            });
        }
    }
    case.verdict()
}
