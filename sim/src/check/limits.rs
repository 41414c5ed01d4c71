//! `limit.held`: how many instances of a task are in progress at once.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::ids::{TaskId, Version};
use punctual_core::instance::Part;

use crate::check::facts::{Facts, RowVersion, Task};
use crate::check::{Case, Verdict};

/// By the rows, no batch lets an instance begin (created, dispatched, running or retrying) beyond the highest `max_running` of these: the
/// version that was in force before the batch, those that it brings into force, and the versions of the instances that it lets begin.
///
/// Where the limit has a key, or has had one, `key.held` judges it.
///
/// So those that run when the limit is lowered may end, and none begins meanwhile.
pub(super) fn held(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut events = changes(facts);
    events.sort_by_key(|event| (event.record, event.task, event.change));
    let mut counts: BTreeMap<TaskId, i64> = BTreeMap::new();
    for of_batch in events.chunk_by(|a, b| (a.record, a.task) == (b.record, b.task)) {
        let task = of_batch[0].task;
        let count = counts.entry(task).or_default();
        *count += of_batch.iter().map(|event| event.change).sum::<i64>();
        let begins = of_batch.iter().filter(|event| event.change > 0 && !event.is_undoing);
        let Some(last) = begins.clone().next_back() else { continue };
        let commit = facts.versions[last.version].commit;
        let own = begins.map(|event| facts.versions[event.version].row.version);
        let Some(limit) = limits(facts, task, commit).chain(own.filter_map(|version| limit(facts, task, version))).max() else { continue };
        if *count > i64::from(limit) {
            let (id, record, count) = (facts.versions[last.version].row.id, last.record, *count);
            case.violated(|| {
                format!("task {task}: {count} instances are in progress with instance {id}, the limit is {limit} (record {record})")
            });
        }
    }
    case.verdict()
}

/// A row that comes into progress or leaves it.
struct Change {
    record: usize,
    task: TaskId,
    change: i64,
    version: usize,
    is_undoing: bool,
}

fn changes(facts: &Facts<'_>) -> Vec<Change> {
    let mut events = Vec::new();
    let has_key = |task: &Task<'_>| task.edits.iter().any(|edit| edit.definition.is_some_and(|of| of.policies.limit_key.is_some()));
    let keyed: BTreeSet<TaskId> = facts.tasks.iter().filter(|task| has_key(task)).map(|task| task.id).collect();
    let is_in_progress = |version: &RowVersion<'_>| i64::from(version.row.state.is_in_progress());
    // What an instance was divided into counts with it, as one.
    for (index, version) in
        facts.versions.iter().enumerate().filter(|(_, version)| version.row.part == Part::WHOLE && !keyed.contains(&version.row.task))
    {
        let before = version.before.map_or(0, |before| is_in_progress(&facts.versions[before]));
        let change = is_in_progress(version) - before;
        if change == 0 {
            continue;
        }
        let (task, commit) = (version.row.task, facts.commit_of(version));
        events.push(Change { record: commit.record, task, change, version: index, is_undoing: false });
        if !commit.stands() {
            events.push(Change { record: commit.undone_by, task, change: -change, version: index, is_undoing: true });
        }
    }
    events
}

/// The limits of the versions in force before a batch and in it.
fn limits<'f>(facts: &'f Facts<'_>, task: TaskId, commit: usize) -> impl Iterator<Item = u32> + 'f {
    let before = facts.version_before(task, commit);
    let written = facts.commits[commit].batch.tasks.iter().filter(move |write| write.task == task).filter_map(|write| write.version).max();
    let first = before.or(written).map_or(1, |version| version.0);
    let last = written.or(before).map_or(0, |version| version.0);
    (first..=last).filter_map(move |version| limit(facts, task, Version(version)))
}

fn limit(facts: &Facts<'_>, task: TaskId, version: Version) -> Option<u32> {
    Some(facts.definition(task, version)?.policies.concurrency.max_running)
}
