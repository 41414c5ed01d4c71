//! `shard.complete`: firings that are divided into shards.

use std::collections::BTreeMap;

use punctual_core::ids::InstanceId;
use punctual_core::instance::{InstanceRow, State};

use crate::check::facts::Facts;
use crate::check::{Case, Verdict};

/// A firing that is divided is so in the batch that makes its shards: as many as it says, numbered from 0, each once. It ends in a batch after
/// which none of them is unfinished: succeeded where all have, failed where one has not, or cancelled.
pub(super) fn complete(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut shards: BTreeMap<InstanceId, Vec<(usize, &InstanceRow)>> = BTreeMap::new();
    for commit in &facts.commits {
        for row in &commit.batch.inserts {
            if let Some(whole) = row.parent().filter(|_| row.part.shard_index().is_some()) {
                shards.entry(whole).or_default().push((commit.record, row));
            }
        }
    }
    for (whole, parts) in &shards {
        if facts.was_undone(*whole) {
            continue;
        }
        divided(facts, *whole, parts, &mut case);
        ended(facts, *whole, parts, &mut case);
    }
    case.verdict()
}

fn divided(facts: &Facts<'_>, whole: InstanceId, parts: &[(usize, &InstanceRow)], case: &mut Case) {
    let record = parts[0].0;
    let Some(row) = facts.row_at(whole, record + 1) else {
        return case.violated(|| format!("shards of instance {whole} were made, and it is not there (record {record})"));
    };
    let count = row.links.as_ref().map_or(0, |links| links.shards);
    let mut indices: Vec<_> = parts.iter().filter_map(|(_, part)| part.part.shard_index()).collect();
    indices.sort_unstable();
    let is_whole = parts.iter().all(|(made, _)| *made == record) && indices.iter().copied().eq(0..count);
    if !is_whole {
        case.violated(|| format!("instance {whole} was divided into {count} shards, there are {indices:?} (record {record})"));
    }
}

fn ended(facts: &Facts<'_>, whole: InstanceId, parts: &[(usize, &InstanceRow)], case: &mut Case) {
    let Some(last) = facts.last_row(whole).filter(|row| row.state.is_terminal()) else { return };
    let states: Vec<_> = parts.iter().filter_map(|(_, part)| facts.last_row(part.id)).map(|row| row.state).collect();
    let unfinished = states.iter().filter(|state| !state.is_terminal()).count();
    let succeeded = states.iter().all(|state| *state == State::Succeeded);
    let is_right = match last.state {
        State::Succeeded => succeeded,
        State::Failed => !succeeded,
        state => state == State::Cancelled,
    };
    if unfinished > 0 || !is_right {
        case.violated(|| format!("instance {whole} is {}, its shards are {states:?}", last.state.name()));
    }
}
