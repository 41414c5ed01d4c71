//! `fire.never_early` and `fire.no_duplicate`.

use std::collections::BTreeSet;

use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, InstanceRow, Origin, Part};
use punctual_core::time::Timestamp;

use crate::check::facts::{Commit, Facts};
use crate::check::{Case, Verdict};
use crate::history::What;

/// By the database's clock an instance that a trigger fires is never committed before its fire time, and no handler begins before it;
/// delayed manual instances too are not begun early.
///
/// Not judged from the moment on at which the database's own clock was set: loops go by the time that has passed then.
pub(super) fn never_early(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for commit in &facts.commits {
        let is_early = |row: &&InstanceRow| row.origin.is_own() && row.fire_time > commit.wall;
        for row in commit.batch.inserts.iter().filter(is_early) {
            if facts.clocks.database_was_set_before(commit.record) {
                continue;
            }
            case.violated(|| {
                format!(
                    "instance {} of task {} for {} was committed at {} (record {})",
                    row.id, row.task, row.fire_time, commit.wall, commit.record
                )
            });
        }
    }
    for run in &facts.runs {
        let What::Began { fire_time, task, .. } = &facts.records[run.began].what else { continue };
        let began = facts.clocks.database_at(run.began_at);
        // Who was given another time has that one; the fire time stays.
        let due = rescheduled_to(facts, run.instance, run.began).unwrap_or(*fire_time);
        if due > began && !is_rerun(facts, run.instance) {
            if facts.clocks.database_was_set_before(run.began) {
                continue;
            }
            case.violated(|| format!("instance {} of task {task} for {due} began at {began} (record {})", run.instance, run.began));
        }
    }
    if facts.clocks.database_was_set() {
        case.unknown(|| "the database's clock was set".into());
    }
    case.verdict()
}

/// What was cancelled before its time and is run again has no time to wait for.
fn is_rerun(facts: &Facts<'_>, instance: InstanceId) -> bool {
    facts.instance(instance).and_then(|instance| instance.last).is_some_and(|last| facts.versions[last].row.run > 1)
}

/// The time that somebody has given an instance last, as it was written up to this record.
fn rescheduled_to(facts: &Facts<'_>, instance: InstanceId, record: usize) -> Option<Timestamp> {
    let versions = facts.versions[facts.instance(instance)?.versions.clone()].iter().rev();
    let mut known = versions.filter(|version| facts.commit_of(version).record <= record).map(|version| version.row);
    known.find(|row| row.transitions.last().is_some_and(|last| last.cause == Cause::Rescheduled))?.due_at
}

/// There is one instance of a task, fire time, ordinal, run and part, one of each submission, and each id is inserted once.
///
/// Where a firing was undone with the tail after its handler had begun, and the fire time was fired again, nobody can say.
pub(super) fn no_duplicate(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let inserts = facts.commits.iter().flat_map(|commit| commit.batch.inserts.iter().map(move |row| (commit, row)));
    let mut inserts: Vec<_> = inserts.collect();
    inserts.sort_by_key(|(_, row)| (row.task, row.fire_time, row.ordinal, row.run, row.part));
    judge_neighbours(facts, &mut case, &inserts, is_same_firing, "the same firing");
    // Those of submissions, and their later runs. A backfill has many instances: `backfill.complete` judges it.
    let backfills: BTreeSet<_> = inserts.iter().filter(|(_, row)| row.origin == Origin::Backfill).map(|(_, row)| row.ordinal).collect();
    inserts.retain(|(_, row)| !row.origin.is_own() && row.ordinal != 0 && row.part == Part::WHOLE && !backfills.contains(&row.ordinal));
    inserts.sort_by_key(|(commit, row)| (row.ordinal, row.run, commit.record));
    let is_same =
        |a: &InstanceRow, b: &InstanceRow| (a.ordinal, a.run) == (b.ordinal, b.run) && (a.task, a.fire_time) != (b.task, b.fire_time);
    judge_neighbours(facts, &mut case, &inserts, is_same, "the same submission");
    for version in &facts.versions {
        if let (None, Some(before)) = (version.expected, version.before) {
            let (record, earlier) = (facts.commit_of(version).record, facts.commit_of(&facts.versions[before]).record);
            let row = version.row;
            if !is_same_firing(row, facts.versions[before].row) {
                case.violated(|| format!("instance {} of task {} was inserted twice (records {earlier} and {record})", row.id, row.task));
            }
        }
    }
    case.verdict()
}

fn is_same_firing(a: &InstanceRow, b: &InstanceRow) -> bool {
    (a.task, a.fire_time, a.ordinal, a.run, a.part) == (b.task, b.fire_time, b.ordinal, b.run, b.part)
}

fn judge_neighbours(
    facts: &Facts<'_>,
    case: &mut Case,
    inserts: &[(&Commit<'_>, &InstanceRow)],
    is_same: impl Fn(&InstanceRow, &InstanceRow) -> bool,
    what: &str,
) {
    for pair in inserts.windows(2) {
        let [(earlier, first), (later, second)] = pair else { continue };
        if !is_same(first, second) {
            continue;
        }
        let witness = || {
            format!(
                "instances {} and {} of task {} are {what}, for {} ordinal {} (records {} and {})",
                first.id, second.id, second.task, second.fire_time, second.ordinal, earlier.record, later.record
            )
        };
        if earlier.undone_by > later.record {
            case.violated(witness);
        } else if facts.runs_of(first.id).iter().any(|run| run.began < later.record) {
            case.violated_unless_undone(true, witness);
        }
    }
}
