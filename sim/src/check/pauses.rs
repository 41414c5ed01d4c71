//! `pause.held`: nothing of a paused task starts, and nothing on a drained worker.

use std::collections::BTreeMap;

use punctual_core::ids::{InboxId, PartitionId, TaskId};
use punctual_core::instance::InstanceRow;
use punctual_core::occurrence::Outcome;
use punctual_core::pause::PauseScope;

use crate::check::facts::{EntryKind, Facts};
use crate::check::{Case, Verdict};

/// Where a pause is in effect, from behind the batch that applied it until its end is written, no instance of a task that it holds is
/// dispatched, none is made for a fire time of its trigger, and none is given to a worker that it drains. Fire times are put on record as passed by in a pause only for a task that
/// was paused at some time.
///
/// A batch that changes the task itself is not judged: the edit may have taken the task out of its group. A task that was removed is not
/// held: what has begun of it may end, and its shards belong to that. Where the tail was lost, whatever speaks against it is unknown.
pub(super) fn held(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let pauses = Pauses::of(facts);
    if pauses.0.is_empty() {
        let paused = facts.commits.iter().flat_map(|commit| &commit.batch.occurrences).find(|other| other.outcome == Outcome::Paused);
        if let Some(occurrence) = paused {
            case.violated(|| format!("task {}: {} was passed by in a pause, and there was none", occurrence.task, occurrence.first));
        }
        return case.verdict();
    }
    let was_undone = !facts.tails.is_empty();
    let mut judge = |row: &InstanceRow, place: usize, what: &str| {
        if let Some(applied) = pauses.in_effect(facts, row.id.partition(), row.task, place) {
            let (paused, record) = (facts.commits[applied].record, facts.commits[place].record);
            let (id, task) = (row.id, row.task);
            let witness = || format!("instance {id} of task {task} was {what} in a pause (record {record}; paused by record {paused})");
            case.violated_unless_undone(was_undone, witness);
        }
    };
    for dispatch in &facts.dispatches {
        let version = &facts.versions[dispatch.version];
        judge(version.row, version.commit, "dispatched");
    }
    for (place, commit) in facts.commits.iter().enumerate() {
        for row in commit.batch.inserts.iter().filter(|row| row.origin.is_own() && row.run == 1 && row.parent().is_none()) {
            judge(row, place, "fired");
        }
    }
    for dispatch in &facts.dispatches {
        let (partition, place) = (dispatch.instance.partition(), facts.versions[dispatch.version].commit);
        let Some(scope) = dispatch.worker.map(|worker| PauseScope::Worker(worker.clone())) else { continue };
        if let Some(applied) = pauses.of_scope(facts, partition, &scope, place) {
            let (drained, record) = (facts.commits[applied].record, facts.commits[place].record);
            let id = dispatch.instance;
            let witness = || format!("instance {id} was given to a drained worker (record {record}; drained by record {drained})");
            case.violated_unless_undone(was_undone, witness);
        }
    }
    case.verdict()
}

/// A pause or its end: the record by which it was written, its entry, and whether it is one.
type Written = (usize, InboxId, bool);

/// By partition and scope, in the order in which they were written.
struct Pauses<'a>(BTreeMap<(PartitionId, &'a PauseScope), Vec<Written>>);

impl<'a> Pauses<'a> {
    fn of(facts: &Facts<'a>) -> Self {
        let mut pauses: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in &facts.entries {
            if let (EntryKind::Paused { scope, is_paused }, Some(partition)) = (entry.kind, entry.partition) {
                pauses.entry((partition, scope)).or_default().push((entry.record, entry.id, is_paused));
            }
        }
        pauses.values_mut().for_each(|written| written.sort_unstable());
        Pauses(pauses)
    }

    /// The commit by which a pause that holds the task was in effect when this commit was made.
    fn in_effect(&self, facts: &Facts<'_>, partition: PartitionId, task: TaskId, place: usize) -> Option<usize> {
        if facts.commits[place].batch.tasks.iter().any(|write| write.task == task && write.version != facts.version_before(task, place)) {
            return None;
        }
        let version = facts.version_before(task, place)?;
        let group = facts.definition(task, version).and_then(|definition| definition.group.clone());
        let scopes = [Some(PauseScope::All), group.map(PauseScope::Group), Some(PauseScope::Task(task))];
        scopes.into_iter().flatten().find_map(|scope| self.of_scope(facts, partition, &scope, place))
    }

    /// The same, of a pause that holds this.
    fn of_scope(&self, facts: &Facts<'_>, partition: PartitionId, scope: &PauseScope, place: usize) -> Option<usize> {
        let commit = &facts.commits[place];
        let written = self.0.get(&(partition, scope))?;
        let known = written.partition_point(|(record, ..)| *record < commit.record);
        let (record, id, is_paused) = *written[..known].last()?;
        let applied = facts.applied_by(id, record).filter(|applied| is_paused && *applied < place)?;
        // The batch that was made when it was applied may be the next one.
        (commit.record > facts.commits[applied].record).then_some(applied)
    }
}
