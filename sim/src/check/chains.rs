//! `chain.told`: tasks that fire after others.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::inbox::Notice;
use punctual_core::instance::{InstanceRow, Part};

use crate::check::facts::{Commit, EntryKind, Facts, NEVER};
use crate::check::{Case, SETTLE_MS, Verdict};

/// A notice is written in the batch that has the end which it speaks of, once for each end and task; and an end is told to each task that
/// fired after it by its definition from long before until long after.
///
/// What a notice leads to is `inbox.once`'s affair.
pub(super) fn told(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut told: BTreeSet<(InstanceId, TaskId)> = BTreeSet::new();
    for entry in &facts.entries {
        let EntryKind::Noticed { notice: Notice::Chained { task, cause, .. } } = entry.kind else { continue };
        if entry.undone_by != NEVER {
            continue;
        }
        let record = entry.record;
        if !told.insert((*cause, *task)) {
            case.violated(|| format!("the end of instance {cause} was told to task {task} twice (record {record})"));
        }
        let end = facts.row_at(*cause, record).filter(|row| row.state.is_terminal());
        if end.is_none() {
            case.violated(|| format!("the end of instance {cause}, which has not ended, was told to task {task} (record {record})"));
        }
    }
    let waiting = waiting(facts);
    for commit in facts.commits.iter().filter(|commit| commit.stands()) {
        for row in ended(commit).filter(|row| row.part == Part::WHOLE) {
            for (task, since, until) in waiting.get(&row.task).into_iter().flatten() {
                let is_long_so = since.saturating_add(SETTLE_MS) <= commit.at && commit.at.saturating_add(SETTLE_MS) <= *until;
                if is_long_so && is_met(facts, *task, row) && !told.contains(&(row.id, *task)) {
                    let (id, state, record) = (row.id, row.state.name(), commit.record);
                    case.violated(|| format!("instance {id} is {state}, and task {task} was not told (record {record})"));
                }
            }
        }
    }
    case.verdict()
}

/// The rows that a batch ends.
fn ended<'a>(commit: &Commit<'a>) -> impl Iterator<Item = &'a InstanceRow> {
    let rows = commit.batch.inserts.iter().chain(commit.batch.updates.iter().map(|update| &update.row));
    rows.filter(|row| row.state.is_terminal())
}

/// By task that ends: which tasks fire after it, and from when until when nothing was changed about that.
fn waiting(facts: &Facts<'_>) -> BTreeMap<TaskId, Vec<(TaskId, u64, u64)>> {
    let mut names: BTreeMap<&str, TaskId> = BTreeMap::new();
    for task in &facts.tasks {
        names.extend(task.edits.iter().filter_map(|edit| edit.definition).map(|definition| (&*definition.name, task.id)));
    }
    let mut waiting: BTreeMap<TaskId, Vec<(TaskId, u64, u64)>> = BTreeMap::new();
    for task in &facts.tasks {
        for (place, edit) in task.edits.iter().enumerate() {
            let chains = edit.definition.and_then(|definition| definition.chains.as_deref()).unwrap_or_default();
            let since = facts.records[edit.record].at;
            let until = task.edits.get(place + 1).map_or(facts.end, |next| facts.records[next.record].at);
            let until = if edit.undone_by == NEVER { until } else { since };
            let known = chains.iter().filter_map(|chain| names.get(&*chain.task));
            known.for_each(|from| waiting.entry(*from).or_default().push((task.id, since, until)));
        }
    }
    waiting
}

/// Whether the newest version of a task that fires after this one asks for such an end.
fn is_met(facts: &Facts<'_>, task: TaskId, row: &InstanceRow) -> bool {
    let name = facts.task(row.task).and_then(|task| task.edits.iter().find_map(|edit| edit.definition)).map(|definition| &definition.name);
    let edits = facts.task(task).map_or(&[][..], |task| &task.edits);
    let chains = edits.iter().filter_map(|edit| edit.definition?.chains.as_deref()).flatten();
    let mut own = chains.filter(|chain| Some(&chain.task) == name).peekable();
    own.peek().is_some() && own.all(|chain| chain.on.is_met_by(row.state))
}
