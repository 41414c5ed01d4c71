//! `effect.once` and `fence.monotone`: what the fence is for.

use punctual_core::ids::Fence;
use punctual_core::instance::{Cause, InstanceRow, State};
use punctual_core::protocol::End;

use crate::check::facts::{Facts, Instance, RowVersion, Run};
use crate::check::{Case, Verdict};
use crate::history::What;

/// Per instance: an attempt begins once and has at most one effect; an instance that has succeeded has the effect of the attempt that it
/// succeeded with; an effect of another attempt comes only where the store has recorded that the earlier one failed, was lost or was given
/// back; and a task that is not idempotent begins once in all.
///
/// What concerns an instance that was written by a batch that was undone is not known.
pub(super) fn once(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    effects_of_one_attempt(facts, &mut case);
    effects_of_two_attempts(facts, &mut case);
    beginnings(facts, &mut case);
    for instance in &facts.instances {
        succeeded_without(facts, instance, &mut case);
    }
    case.verdict()
}

fn effects_of_one_attempt(facts: &Facts<'_>, case: &mut Case) {
    for pair in facts.effects.windows(2) {
        if (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1) {
            let ((instance, fence, first), second) = (pair[0], pair[1].2);
            case.violated_unless_undone(facts.was_undone(instance), || {
                format!("instance {instance} had two effects under fence {fence} (records {first} and {second})")
            });
        }
    }
}

fn effects_of_two_attempts(facts: &Facts<'_>, case: &mut Case) {
    for effects in facts.effects.chunk_by(|a, b| a.0 == b.0) {
        let Some(instance) = facts.instance(effects[0].0).filter(|_| effects.len() > 1) else { continue };
        let Some(row) = instance.versions.clone().next_back().map(|last| facts.versions[last].row) else { continue };
        for pair in effects.windows(2).filter(|pair| pair[0].1 != pair[1].1) {
            let ((id, older, first), (_, younger, second)) = (pair[0], pair[1]);
            if !is_accounted_for(row, older, younger) {
                case.violated_unless_undone(instance.was_undone, || {
                    format!(
                        "instance {id} of task {} had effects under fences {older} and {younger} (records {first} and {second}), and no end \
                         of the older attempt is on record before the younger one",
                        row.task
                    )
                });
            }
        }
    }
}

/// Whether an attempt was failed, lost or given back before another one was dispatched.
fn is_accounted_for(row: &InstanceRow, older: Fence, younger: Fence) -> bool {
    let dispatched = row.transitions.iter().position(|transition| transition.to == State::Dispatched && transition.fence == younger);
    let before = &row.transitions[..dispatched.unwrap_or(row.transitions.len())];
    before.iter().any(|transition| {
        let has_ended = transition.to == State::Retrying || (transition.to == State::Created && transition.cause == Cause::Returned);
        transition.fence == older && has_ended
    })
}

fn beginnings(facts: &Facts<'_>, case: &mut Case) {
    for runs in facts.runs.chunk_by(|a, b| a.instance == b.instance).filter(|runs| runs.len() > 1) {
        let id = runs[0].instance;
        let was_undone = facts.was_undone(id);
        let mut by_fence: Vec<&Run> = runs.iter().collect();
        by_fence.sort_by_key(|run| run.fence);
        for pair in by_fence.windows(2).filter(|pair| pair[0].fence == pair[1].fence) {
            case.violated_unless_undone(was_undone, || {
                format!("instance {id} began twice under fence {} (records {} and {})", pair[0].fence, pair[0].began, pair[1].began)
            });
        }
        let What::Began { task, version, .. } = &facts.records[runs[0].began].what else { continue };
        if facts.definition(*task, *version).is_some_and(|definition| !definition.idempotent) {
            case.violated_unless_undone(was_undone, || {
                format!(
                    "instance {id} of task {task} is not idempotent and began {} times (records {} and {})",
                    runs.len(),
                    runs[0].began,
                    runs[1].began
                )
            });
        }
    }
}

fn succeeded_without(facts: &Facts<'_>, instance: &Instance, case: &mut Case) {
    let Some(last) = instance.last.map(|last| &facts.versions[last]).filter(|last| last.row.state == State::Succeeded) else { return };
    let (row, record) = (last.row, facts.commit_of(last).record);
    // Its parts, or what it has called, have run in its place; or it was never to run, since somebody has said so, or it had succeeded in the run before.
    let is_said = matches!(&row.transitions[..], [only] if matches!(only.cause, Cause::Marked | Cause::CarriedOver));
    if row.has_parts() || row.calls().is_some() || is_said {
        return;
    }
    let fence = row.transitions.last().map_or(row.fence, |last| last.fence);
    let has_effect = facts.effects.binary_search_by_key(&(instance.id, fence), |(id, fence, _)| (*id, *fence)).is_ok();
    if !has_effect {
        case.violated_unless_undone(instance.was_undone, || {
            format!("instance {} of task {} has succeeded under fence {fence} without an effect (record {record})", row.id, row.task)
        });
    }
}

/// Per task the fences of attempts that began grow from commit to commit. A batch never lowers a row's fence, each dispatch has a higher
/// one, and what a handler reports changes the row only under the fence of the attempt that it belongs to: an attempt is finished in the
/// store only after *its* handler has ended (and, where it succeeded, has said so).
///
/// Where one of two attempts was dispatched by a batch that was undone, its fence may have been given out again: not known.
pub(super) fn fences_grow(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    grow_over_tasks(facts, &mut case);
    for version in &facts.versions {
        grow_in_row(facts, version, &mut case);
    }
    case.verdict()
}

fn grow_over_tasks(facts: &Facts<'_>, case: &mut Case) {
    // Task, commit of the dispatch, fence.
    let mut attempts: Vec<_> = facts
        .runs
        .iter()
        .filter_map(|run| {
            let dispatches = facts.dispatches_of(run.instance, run.fence).iter();
            let commits = dispatches.map(|dispatch| facts.versions[dispatch.version].commit);
            let commit = commits.rev().find(|commit| facts.commits[*commit].record < run.began)?;
            let What::Began { task, .. } = &facts.records[run.began].what else { return None };
            Some((*task, commit, run.fence, run))
        })
        .collect();
    attempts.sort_by_key(|(task, commit, fence, run)| (*task, *commit, *fence, run.began));
    for of_task in attempts.chunk_by(|a, b| a.0 == b.0) {
        // The highest fence of the commits before.
        let mut highest: Option<(Fence, usize, &Run)> = None;
        for of_commit in of_task.chunk_by(|a, b| a.1 == b.1) {
            for (task, commit, fence, run) in of_commit {
                if let Some((before, earlier, other)) = highest
                    && *fence <= before
                {
                    let was_undone = !facts.commits[earlier].stands() || !facts.commits[*commit].stands();
                    case.violated_unless_undone(was_undone, || {
                        format!(
                            "task {task}: instance {} under fence {fence} was dispatched after instance {} under {before} (records {} and {})",
                            run.instance, other.instance, run.began, other.began
                        )
                    });
                }
            }
            if let Some((_, commit, fence, run)) = of_commit.last()
                && highest.is_none_or(|(before, ..)| *fence > before)
            {
                highest = Some((*fence, *commit, run));
            }
        }
    }
}

fn grow_in_row(facts: &Facts<'_>, version: &RowVersion<'_>, case: &mut Case) {
    let row = version.row;
    let commit = facts.commit_of(version);
    let was_undone = facts.was_undone(row.id);
    let before = version.before.filter(|_| version.expected.is_some()).map(|before| facts.versions[before].row);
    let mut bad = |what: String| {
        case.violated_unless_undone(was_undone, || format!("instance {} of task {}: {what} (record {})", row.id, row.task, commit.record));
    };
    let mut fence = before.map_or(Fence(0), |before| before.fence);
    if row.fence < fence {
        bad(format!("its fence went from {fence} to {}", row.fence));
        return;
    }
    let known = before.map_or(0, |before| before.transitions.len());
    for transition in row.transitions.iter().skip(known) {
        let is_dispatch = transition.to == State::Dispatched;
        if transition.fence < fence || (is_dispatch && transition.fence == fence) {
            bad(format!("{} under fence {} after {fence}", transition.to.name(), transition.fence));
            return;
        }
        fence = transition.fence;
        let is_result = matches!(transition.cause, Cause::Finished | Cause::TimedOut | Cause::AttemptsExhausted);
        if is_result && let Some(what) = without_its_end(facts, row, transition.to, fence, commit.record) {
            bad(what);
        }
    }
    if fence != row.fence {
        bad(format!("the row's fence is {}, its log's is {fence}", row.fence));
    }
}

/// A result under this fence before the handler under this fence had ended, and so.
fn without_its_end(facts: &Facts<'_>, row: &InstanceRow, to: State, fence: Fence, record: usize) -> Option<String> {
    let runs = facts.runs_of(row.id);
    let has_ended =
        |run: &&Run| run.ended.is_some_and(|(ended, end)| ended < record && (to != State::Succeeded || end == Some(End::Succeeded)));
    if runs.iter().filter(|run| run.fence == fence).any(|run| has_ended(&run)) {
        return None;
    }
    let older = runs.iter().filter(|run| run.fence != fence).find(has_ended)?;
    Some(format!("{} under fence {fence}, by what the handler under {} reported", to.name(), older.fence))
}
