//! `shard.complete`: firings that are divided into shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, InstanceRow, State};
use punctual_core::routing::Understanding;

use crate::check::facts::Facts;
use crate::check::{Case, Verdict};
use crate::features;
use crate::plan::{Call, CallKind, PauseOn, STARTS_AT};

/// So long after a world's beginning every worker has connected.
const CONNECTED_WITHIN_MS: i64 = 15_000;

/// The shards of each firing that was divided, with the records in which they were made.
type Shards<'a> = BTreeMap<InstanceId, Vec<(usize, &'a InstanceRow)>>;

/// A firing that is divided is so in the batch that makes its shards: as many as it says, numbered from 0, each once. It ends in a batch after
/// which none of them is unfinished: succeeded where all have, failed where one has not, or cancelled.
///
/// Of a rerun, those are left out that are carried over: those which have succeeded in an earlier run. What is broadcast has a shard for each
/// worker that it names, each worker once, which fits; and begins nowhere else.
pub(super) fn complete(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let shards = all_shards(facts);
    for (whole, parts) in &shards {
        if facts.was_undone(*whole) || is_mapped(facts, *whole) {
            continue;
        }
        divided(facts, *whole, &shards, &mut case);
        broadcast(facts, *whole, parts, &mut case);
        ended(facts, *whole, parts, &mut case);
    }
    case.verdict()
}

fn all_shards<'a>(facts: &'a Facts<'_>) -> Shards<'a> {
    let mut shards = Shards::new();
    for commit in &facts.commits {
        for row in &commit.batch.inserts {
            if let Some(whole) = row.parent().filter(|_| row.part.is_shard()) {
                shards.entry(whole).or_default().push((commit.record, row));
            }
        }
    }
    shards
}

fn is_mapped(facts: &Facts<'_>, whole: InstanceId) -> bool {
    facts.last_row(whole).and_then(|row| row.links.as_ref()).is_some_and(|links| links.map.is_some())
}

/// A firing that is mapped over a list has one part that lists. Its items are those that this has listed, each an instance once, in order and
/// with its item, and no more at once than the task allows. What reduces comes when all of them have succeeded, and is given as many
/// results. It ends when all that there is of it has: succeeded where all has.
pub(super) fn mapped(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for (whole, parts) in &all_shards(facts) {
        if facts.was_undone(*whole) || !is_mapped(facts, *whole) {
            continue;
        }
        map_of(facts, *whole, parts, &mut case);
    }
    case.verdict()
}

fn map_of(facts: &Facts<'_>, whole: InstanceId, parts: &[(usize, &InstanceRow)], case: &mut Case) {
    let Some(last) = facts.last_row(whole) else { return };
    let links = last.links.as_deref().cloned().unwrap_or_default();
    let made = links.map.as_ref().map_or(0, |map| map.made);
    let lists = parts.iter().filter(|(_, row)| row.part.is_list()).count();
    if lists != 1 {
        case.violated(|| format!("instance {whole} has {lists} parts that list"));
    }
    let items: Vec<_> = parts.iter().filter(|(_, row)| row.part.shard_index().is_some()).collect();
    let indices: Vec<_> = items.iter().filter_map(|(_, row)| row.part.shard_index()).collect();
    if !indices.iter().copied().eq(0..made) || made > links.shards {
        case.violated(|| format!("instance {whole} has {} items and has made {made}, there are {indices:?}", links.shards));
    }
    // What is listed in the simulated world are the numbers from 0 on.
    if let Some((record, row)) =
        items.iter().find(|(_, row)| row.payload.as_deref() != row.part.shard_index().map(|index| index.to_string()).as_deref())
    {
        case.violated(|| format!("item {} of instance {whole} is {:?} (record {record})", row.id, row.payload));
    }
    let end_of = |row: &InstanceRow| facts.last_row(row.id).map_or(row.state, |last| last.state);
    let is_listed = parts.iter().any(|(_, row)| row.part.is_list() && end_of(row) == State::Succeeded);
    let have_all = is_listed && items.iter().all(|(_, row)| end_of(row) == State::Succeeded) && made == links.shards;
    for (record, row) in parts.iter().filter(|(_, row)| row.part.is_reduce()) {
        let were_all = items.iter().all(|(_, item)| facts.row_at(item.id, record + 1).is_some_and(|item| item.state == State::Succeeded));
        if !were_all || items.len() != links.shards as usize {
            case.violated(|| format!("what reduces of instance {whole} was made before all items had succeeded (record {record})"));
        }
        let answer = facts.last_row(row.id).filter(|row| row.state == State::Succeeded).map(|row| row.result.clone());
        if answer.is_some_and(|answer| answer.as_deref() != Some(&links.shards.to_string())) {
            case.violated(|| format!("what reduces of instance {whole} was given other results than {} (record {record})", links.shards));
        }
    }
    let unfinished = parts.iter().filter(|(_, row)| !end_of(row).is_terminal()).count();
    let reduced = parts.iter().any(|(_, row)| row.part.is_reduce() && end_of(row) == State::Succeeded);
    let reduces = facts.definition(last.task, last.version).and_then(|task| task.map.as_ref()).is_some_and(|map| map.reduce.is_some());
    let is_right = match last.state {
        State::Succeeded => have_all && reduced == reduces,
        State::Failed => !have_all || (reduces && !reduced),
        _ => true,
    };
    if last.state.is_terminal() && (unfinished > 0 || !is_right) {
        case.violated(|| {
            format!("instance {whole} is {}, {unfinished} parts have not ended, of {made} items all have: {have_all}", last.state.name())
        });
    }
}

fn divided(facts: &Facts<'_>, whole: InstanceId, shards: &Shards<'_>, case: &mut Case) {
    let parts = &shards[&whole];
    let record = parts[0].0;
    let Some(row) = facts.row_at(whole, record + 1) else {
        return case.violated(|| format!("shards of instance {whole} were made, and it is not there (record {record})"));
    };
    let count = row.links.as_ref().map_or(0, |links| links.shards);
    let mut indices: Vec<_> = parts.iter().filter_map(|(_, part)| part.part.shard_index()).collect();
    indices.sort_unstable();
    let carried = row.links.as_ref().map_or(0, |links| links.carried);
    let has_succeeded = carried_over(facts, row, carried, shards);
    let is_new = |index: &u32| indices.binary_search(index).is_ok();
    let is_accounted = (0..count).all(|index| is_new(&index) != has_succeeded.contains(&index));
    let are_distinct = indices.windows(2).all(|two| two[0] < two[1]) && indices.last().is_none_or(|last| *last < count);
    let is_whole = parts.iter().all(|(made, _)| *made == record)
        && are_distinct
        && is_accounted
        && indices.len() as u64 + u64::from(carried) == u64::from(count);
    if !is_whole {
        case.violated(|| format!("instance {whole} was divided into {count} shards, there are {indices:?} (record {record})"));
    }
}

/// The shards that have succeeded in runs before this one, where it carries some over.
fn carried_over(facts: &Facts<'_>, row: &InstanceRow, carried: u32, shards: &Shards<'_>) -> BTreeSet<u32> {
    let mut succeeded = BTreeSet::new();
    let before = |row: &InstanceRow| row.links.as_ref().and_then(|links| links.cause).and_then(|cause| facts.last_row(cause));
    let mut of = if carried > 0 { before(row) } else { None };
    while let Some(run) = of {
        let ends = shards.get(&run.id).into_iter().flatten().filter_map(|(_, part)| facts.last_row(part.id));
        succeeded.extend(ends.filter(|part| part.state == State::Succeeded).filter_map(|part| part.part.shard_index()));
        of = if run.links.as_ref().is_some_and(|links| links.carried > 0) { before(run) } else { None };
    }
    succeeded
}

/// Each is for one worker, which no other is for, and begins there only.
fn broadcast(facts: &Facts<'_>, whole: InstanceId, parts: &[(usize, &InstanceRow)], case: &mut Case) {
    let is_for_worker = |row: &InstanceRow| row.links.as_ref().is_some_and(|links| links.is_for_worker);
    if !parts.iter().any(|(_, row)| is_for_worker(row)) {
        return;
    }
    let mut workers = BTreeSet::new();
    for (record, row) in parts {
        let worker = row.links.as_ref().and_then(|links| links.shard_key.clone()).filter(|_| is_for_worker(row));
        let Some(worker) = worker.filter(|worker| workers.insert(worker.clone())) else {
            case.violated(|| {
                format!("shard {} of instance {whole} is for no worker, or for that of another one (record {record})", row.id)
            });
            continue;
        };
        let ran_elsewhere = facts.runs.iter().find(|run| run.instance == row.id && *worker != *format!("w{}", run.worker + 1));
        if let Some(run) = ran_elsewhere {
            case.violated(|| format!("shard {} is for worker {worker} and began on worker {} (record {})", row.id, run.worker, run.began));
        }
    }
    every_worker(facts, whole, parts[0].0, &workers, case);
}

/// In a world in which nothing goes wrong and nobody drains workers, every worker that fits has been there since its beginning.
fn every_worker(facts: &Facts<'_>, whole: InstanceId, record: usize, named: &BTreeSet<Arc<str>>, case: &mut Case) {
    let Some(row) = facts.row_at(whole, record + 1) else { return };
    let Some(routing) = facts.definition(row.task, row.version).and_then(|definition| definition.routing.as_deref()) else { return };
    let divided_at = row.transitions.iter().find(|transition| transition.cause == Cause::Divided).map(|transition| transition.at);
    let is_drain = |call: &Call| matches!(call.what, CallKind::Pause { on: PauseOn::Worker(_), .. });
    let is_calm = facts.plan.faults.is_empty()
        && !facts.plan.calls.iter().any(is_drain)
        && divided_at.is_some_and(|at| at.0 - STARTS_AT >= CONNECTED_WITHIN_MS);
    if !is_calm || row.run > 1 {
        return;
    }
    let fits = |worker: &usize| features::fits(*worker, routing) && features::traits(*worker).understands >= Understanding::Shards;
    let expected: BTreeSet<Arc<str>> =
        (0..facts.plan.shape.workers).filter(fits).map(|worker| Arc::from(format!("w{}", worker + 1))).collect();
    if *named != expected {
        case.violated(|| format!("instance {whole} was broadcast to {named:?}, there were {expected:?} (record {record})"));
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
