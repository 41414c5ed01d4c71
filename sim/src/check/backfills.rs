//! `backfill.complete`: fire times that somebody wants made up for.

use std::collections::BTreeMap;

use punctual_core::backfill::{BackfillRow, BackfillState};
use punctual_core::ids::InboxId;
use punctual_core::instance::{InstanceRow, Origin, Part};

use crate::check::facts::Facts;
use crate::check::{Case, Verdict};

/// A backfill has one instance for each fire time of its plan, in the plan's order and for no other; as many as it says that it has made, and
/// as many of them have ended as it says, also where it was cancelled. One that is done has made all, and all have ended. At no time have more of them not ended than it may have.
pub(super) fn complete(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let mut backfills: BTreeMap<InboxId, (BackfillRow, usize)> = BTreeMap::new();
    for commit in facts.commits.iter().filter(|commit| commit.stands()) {
        for write in &commit.batch.backfills {
            backfills.insert(write.row.id, (write.row.clone(), commit.record));
        }
    }
    for (id, (row, record)) in &backfills {
        let inserts = facts.commits.iter().filter(|commit| commit.stands()).flat_map(|commit| &commit.batch.inserts);
        let is_of = |made: &&InstanceRow| made.origin == Origin::Backfill && made.ordinal == row.ordinal() && made.part == Part::WHOLE;
        let mut made: Vec<_> = inserts.filter(is_of).collect();
        made.sort_by_key(|made| made.id);
        let planned = row.plan.fire_times.iter().take(row.made as usize);
        if !made.iter().map(|made| &made.fire_time).eq(planned) {
            let (made, count) = (made.len(), row.made);
            case.violated(|| {
                format!("backfill {id} says that it has made {count} instances, and has made {made}, or others (record {record})")
            });
            continue;
        }
        let unfinished = made.iter().filter(|made| facts.last_row(made.id).is_none_or(|last| !last.state.is_terminal())).count();
        if row.ended as usize + unfinished != made.len() {
            let (ended, count) = (row.ended, made.len() - unfinished);
            case.violated(|| format!("backfill {id} says that {ended} of its instances have ended, and {count} have (record {record})"));
        }
        if row.state == BackfillState::Done && (unfinished > 0 || made.len() != row.plan.fire_times.len()) {
            let total = row.plan.fire_times.len();
            case.violated(|| format!("backfill {id} is done: {} of {total} were made, {unfinished} have not ended", made.len()));
        }
        at_once(facts, row, &made, &mut case);
    }
    case.verdict()
}

fn at_once(facts: &Facts<'_>, row: &BackfillRow, made: &[&InstanceRow], case: &mut Case) {
    let mut changes: Vec<(usize, i64)> = Vec::new();
    for made in made {
        let Some(instance) = facts.instance(made.id) else { continue };
        for version in facts.versions[instance.versions.clone()].iter().filter(|version| facts.commit_of(version).stands()) {
            let record = facts.commit_of(version).record;
            if version.expected.is_none() {
                changes.push((record, 1));
            }
            if version.row.state.is_terminal() {
                changes.push((record, -1));
            }
        }
    }
    changes.sort_unstable();
    let mut now = 0;
    for of_batch in changes.chunk_by(|one, other| one.0 == other.0) {
        now += of_batch.iter().map(|(_, change)| change).sum::<i64>();
        if now > i64::from(row.plan.concurrency) {
            let (id, most, record) = (row.id, row.plan.concurrency, of_batch[0].0);
            return case.violated(|| format!("backfill {id}: {now} instances have not ended, {most} are allowed (record {record})"));
        }
    }
}
