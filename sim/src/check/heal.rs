//! `heal.no_orphans` and `heal.rate`: when all is well again, nobody holds what has ended, and tasks fire as they should.

use std::collections::BTreeMap;

use punctual_core::definition::Trigger;
use punctual_core::occurrence::Outcome;
use punctual_core::time::{Millis, Timestamp};

use crate::check::facts::{Edit, Facts, Fired, NEVER, Run, Task};
use crate::check::series::Series;
use crate::check::{Case, SETTLE_MS, Verdict};
use crate::history::{Left, Who};

/// At the end no handler runs whose instance had ended, or whose attempt had been followed by another one, [`SETTLE_MS`] and its grace
/// before. A worker that is up holds no more attempts than it runs handlers, and no more reports than handlers of it have ended, in the last
/// [`SETTLE_MS`]. The schedulers hold no more instances than live, or have ended in the last [`SETTLE_MS`].
pub(super) fn no_orphans(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let Some(healed) = facts.healed_at() else { return Verdict::Unknown("the run never healed".into()) };
    if facts.end < healed.saturating_add(SETTLE_MS) {
        return Verdict::Unknown(format!("the run ended {} ms after it had healed", facts.end - healed.min(facts.end)));
    }
    let recent = facts.end.saturating_sub(SETTLE_MS);
    let mut running: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ended: BTreeMap<usize, usize> = BTreeMap::new();
    for run in &facts.runs {
        match run.ended_at {
            Some(at) if at >= recent => *ended.entry(run.worker).or_default() += 1,
            Some(_) => {}
            None => {
                *running.entry(run.worker).or_default() += 1;
                orphan(facts, run, recent, &mut case);
            }
        }
    }
    workers(facts, &running, &ended, &mut case);
    schedulers(facts, recent, &mut case);
    case.verdict()
}

fn orphan(facts: &Facts<'_>, run: &Run, recent: u64, case: &mut Case) {
    let Some(instance) = facts.instance(run.instance) else { return };
    // The first batch by which the attempt was over.
    let over = facts.versions[instance.versions.clone()].iter().find(|version| {
        let is_over = version.row.fence > run.fence || (version.row.fence == run.fence && version.row.state.is_terminal());
        is_over && facts.commit_of(version).stands()
    });
    let Some(over) = over else { return };
    let (row, commit) = (over.row, facts.commit_of(over));
    let grace = facts.definition_of(row).map_or(0, |definition| definition.policies.timeout.grace.0);
    if commit.at.saturating_add(grace) < recent {
        case.violated(|| {
            format!(
                "instance {} of task {} still runs under fence {} on worker {}, and was {} under {} at {} ms (records {} and {})",
                run.instance,
                row.task,
                run.fence,
                run.worker,
                row.state.name(),
                row.fence,
                commit.at,
                run.began,
                commit.record
            )
        });
    }
}

fn workers(facts: &Facts<'_>, running: &BTreeMap<usize, usize>, ended: &BTreeMap<usize, usize>, case: &mut Case) {
    for (who, left) in &facts.left {
        let (Who::Worker(worker), Left::InWorker { is_up: true, running: attempts, reports }) = (who, left) else { continue };
        let (handlers, young) = (running.get(worker).copied().unwrap_or(0), ended.get(worker).copied().unwrap_or(0));
        if *attempts > handlers + young {
            case.violated(|| format!("worker {worker} holds {attempts} attempts at the end and runs {handlers} handlers"));
        }
        if *reports > young {
            case.violated(|| format!("worker {worker} holds {reports} reports at the end, and {young} handlers have ended lately"));
        }
    }
}

fn schedulers(facts: &Facts<'_>, recent: u64, case: &mut Case) {
    let last = facts.instances.iter().filter_map(|instance| instance.last).map(|last| &facts.versions[last]);
    let alive = last.filter(|version| !version.row.state.is_terminal() || facts.commit_of(version).at >= recent).count();
    let held = facts.left.iter().map(|(_, left)| match left {
        Left::InScheduler { is_up: true, instances, .. } => *instances,
        _ => 0,
    });
    let held: usize = held.sum();
    if held > alive {
        case.violated(|| format!("schedulers hold {held} instances in memory at the end, and {alive} live or have ended lately"));
    }
}

/// In the last stretch of the run, from [`SETTLE_MS`] after the heal until [`SETTLE_MS`] before the end, tasks fire at 0.8 of what their
/// triggers give or more, all of them together, and each enabled task that has a fire time there fires (a fixed delay: where the stretch is
/// longer than its interval and its longest run, twice over). A fire time that the concurrency limit discards counts as fired.
///
/// Judged are tasks whose last version was applied before the stretch. Not known where there is no such stretch.
pub(super) fn rate(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let Some(healed) = facts.healed_at() else { return Verdict::Unknown("the run never healed".into()) };
    if facts.clocks.database_was_set() {
        return Verdict::Unknown("the database's clock was set: loops go on at their pace, and their fire times by another clock".into());
    }
    let (begin, end) = (healed.saturating_add(SETTLE_MS), facts.end.saturating_sub(SETTLE_MS));
    if begin >= end {
        return Verdict::Unknown(format!("the run ended {} ms after it had healed", facts.end - healed.min(facts.end)));
    }
    let stretch = (facts.clocks.database_at(begin), facts.clocks.database_at(end));
    let (mut expected, mut fired) = (0_u64, 0_u64);
    for task in &facts.tasks {
        let Some(edit) = in_force(facts, task, begin) else { continue };
        let given = given(facts, task, edit, stretch);
        let did_fire = fired_in(facts, task, stretch);
        if given > 0 && did_fire == 0 {
            let (id, name) = (task.id, task.name());
            case.violated(|| format!("task {id} ({name}) has {given} fire times from {} to {} and fired for none", stretch.0, stretch.1));
        }
        if !matches!(edit.definition.map(|definition| &definition.trigger), Some(Trigger::FixedDelay { .. })) {
            expected += given;
            fired += did_fire.min(given);
        }
    }
    if u128::from(fired) * 10 < u128::from(expected) * 8 {
        case.violated(|| format!("{fired} of {expected} fire times from {} to {} were fired", stretch.0, stretch.1));
    }
    case.verdict()
}

/// The version that counts in the last stretch, where it fires by itself.
fn in_force<'f, 'a>(facts: &Facts<'_>, task: &'f Task<'a>, begin: u64) -> Option<&'f Edit<'a>> {
    let edit = task.edits.iter().rev().find(|edit| edit.undone_by == NEVER)?;
    let applied = facts.applied_by(edit.entry, edit.record)?;
    let is_enabled = edit.definition.is_some_and(|definition| definition.enabled);
    (is_enabled && facts.commits[applied].at < begin).then_some(edit)
}

/// How many fire times the trigger gives in the stretch; of a fixed delay whether there is surely one.
fn given(facts: &Facts<'_>, task: &Task<'_>, edit: &Edit<'_>, (begin, end): (Timestamp, Timestamp)) -> u64 {
    let Some(definition) = edit.definition else { return 0 };
    match (Series::of(&definition.trigger), &definition.trigger) {
        (Some(Series::Rate(interval)), _) => end.since(begin).0 / interval.0,
        (Some(series @ (Series::Cron(_) | Series::Timetable(_))), _) => series.first(begin).map_or(0, |first| series.count(first, end)),
        (None, Trigger::FixedDelay { interval }) => {
            let is_it = |document: &serde_json::Value| document.get("name").and_then(serde_json::Value::as_str) == Some(task.name());
            let planned = facts.plan.tasks.iter().find(|task| is_it(&task.document));
            let Some(planned) = planned else { return 0 };
            let round = interval.saturating_add(Millis(planned.handler.takes_ms.1)).saturating_add(Millis(SETTLE_MS / 2));
            u64::from(end.since(begin) > round.saturating_mul(2))
        }
        (None, _) => 0,
    }
}

fn fired_in(facts: &Facts<'_>, task: &Task<'_>, (begin, end): (Timestamp, Timestamp)) -> u64 {
    let fires = facts.fires_of(task.id).iter().filter(|fire| fire.first > begin && fire.last <= end);
    let counts = fires.map(|fire| match fire.outcome {
        Fired::Instance(row) => u64::from(row.origin.is_own()),
        Fired::Occurrence(occurrence) if matches!(occurrence.outcome, Outcome::LimitReached | Outcome::QueueFull) => fire.count,
        Fired::Occurrence(_) => 0,
    });
    counts.sum()
}
