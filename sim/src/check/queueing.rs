//! `rate.held` and `route.fits`: when instances start, and where.

use std::collections::BTreeMap;

use punctual_core::ids::TaskId;
use punctual_core::instance::{Part, State};
use punctual_core::rate::RateLimit;
use punctual_core::routing::Understanding;

use crate::check::facts::{Facts, Task};
use crate::check::{Case, Verdict};
use crate::features;

/// How much shorter than its length a stretch of a rate may be: the log of starts is a little coarse, and owners' clocks differ.
const RATE_SLACK_MS: u64 = 60;

/// In no stretch of a rate's length has a task more starts than the rate gives, whoever owned it: of those tasks that had one rate all the
/// time. Starts that were given back count.
///
/// Where clocks were touched, lengths of time can't be told.
pub(super) fn held(facts: &Facts<'_>) -> Verdict {
    if facts.clocks.were_touched {
        return Verdict::Unknown("clocks were touched".to_owned());
    }
    let mut case = Case::default();
    let mut starts: BTreeMap<TaskId, Vec<i64>> = BTreeMap::new();
    for dispatch in &facts.dispatches {
        let row = facts.versions[dispatch.version].row;
        let transition = row.transitions.iter().find(|transition| transition.to == State::Dispatched && transition.fence == dispatch.fence);
        if let Some(transition) = transition {
            starts.entry(row.task).or_default().push(transition.at.0);
        }
    }
    for (task, mut starts) in starts {
        let Some(RateLimit { starts: most, per }) = facts.task(task).and_then(one_rate) else { continue };
        starts.sort_unstable();
        let least = per.0.saturating_sub(RATE_SLACK_MS + per.0 / 128);
        for stretch in starts.windows(most as usize + 1) {
            let took = stretch[most as usize].abs_diff(stretch[0]);
            if took < least {
                let (from, per) = (stretch[0], per.0);
                case.violated(|| {
                    format!("task {task}: {} starts within {took} ms from {from} on, {most} in {per} ms are allowed", most + 1)
                });
            }
        }
    }
    case.verdict()
}

/// The rate that a task has had in all its versions; `None` where it was removed meanwhile, which makes it a new one.
fn one_rate(task: &Task<'_>) -> Option<RateLimit> {
    let rate = task.edits.first()?.definition?.policies.rate?;
    task.edits.iter().all(|edit| edit.definition.is_some_and(|other| other.policies.rate == Some(rate))).then_some(rate)
}

/// A handler begins on a worker that has what its task asks for, and a shard on one that understands what that is.
pub(super) fn fits(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for run in &facts.runs {
        let Some(row) = facts.last_row(run.instance) else { continue };
        let needed = match (row.part.node_index(), row.part.shard_index()) {
            (None, None) if row.part == Part::WHOLE => Understanding::Firings,
            (None, Some(_)) => Understanding::Shards,
            _ => Understanding::Nodes,
        };
        if features::traits(run.worker).understands < needed {
            case.violated(|| {
                format!("part {} of task {} began on worker {}, which knows none (record {})", row.id, row.task, run.worker, run.began)
            });
        }
        let Some(routing) = facts.definition_of(row).and_then(|definition| definition.routing.as_deref()) else { continue };
        if !features::fits(run.worker, routing) {
            case.violated(|| format!("instance {} of task {} began on worker {} (record {})", row.id, row.task, run.worker, run.began));
        }
    }
    case.verdict()
}
