//! `heal.converges`: when all is well again, everything comes to its end.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::time::{Millis, Timestamp};

use crate::check::facts::{EntryKind, Facts, Instance, NEVER};
use crate::check::{Case, SETTLE_MS, Verdict};
use crate::history::{Left, Who};
use crate::plan::FaultKind;

/// At the end of the run nothing is stuck. An instance that has not ended is not stuck where
///
/// - it was dispatched, or became ready, less than [`SETTLE_MS`] and its handler's longest run before the end;
/// - it is not due yet, or became due less than [`SETTLE_MS`] before the end;
/// - it waits behind its task's limit and one of the task's instances in progress is not stuck;
/// - it waits for a slot of its group and one of the instances that have one is not stuck;
/// - one of its parts, or what it calls, is not stuck;
/// - it is ready and workers are being kept busy with its own partition's older ones: one of those was dispatched in the last
///   [`SETTLE_MS`];
/// - it is ready and the workers have no room: in the last [`SETTLE_MS`] their slots were taken for [`FULL_PER_MILLE`] of the time or more,
///   by handlers that run no longer than they should. A cluster that is too small is nobody's broken promise.
///
/// The inbox is empty but for what came in the last [`SETTLE_MS`]; cancellations are `cancel.effective`'s affair. Each partition is owned by
/// exactly one running scheduler. Not known where the run did not heal, or ended less than [`SETTLE_MS`] after.
pub(super) fn converges(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let Some(healed) = facts.healed_at() else { return Verdict::Unknown("the run never healed".into()) };
    if facts.end < healed.saturating_add(SETTLE_MS) {
        return Verdict::Unknown(format!("the run ended {} ms after it had healed", facts.end - healed.min(facts.end)));
    }
    instances(facts, &mut case);
    inbox(facts, &mut case);
    owners(facts, &mut case);
    case.verdict()
}

fn instances(facts: &Facts<'_>, case: &mut Case) {
    let now = facts.clocks.database_at(facts.end);
    let recent = facts.end.saturating_sub(SETTLE_MS);
    let longest = longest_runs(facts);
    let worked_off = worked_off(facts, recent);
    let is_full = is_full(facts, &longest, recent);
    let mut waiting: Vec<(&Instance, &InstanceRow)> = Vec::new();
    let mut moving = Moving::default();
    for instance in &facts.instances {
        let Some(row) = instance.last.map(|last| facts.versions[last].row).filter(|row| !row.state.is_terminal()) else { continue };
        let since = stands_since(facts, instance);
        let is_due_late = |due_at: Timestamp| due_at.saturating_add(Millis(SETTLE_MS)) >= now;
        let is_moving = match row.state {
            _ if row.waits_for_group().is_some() => since >= recent,
            State::Waiting if row.due_at.is_none() => since >= recent,
            State::Waiting | State::Retrying => row.due_at.is_some_and(is_due_late) || since >= recent,
            State::Created => since >= recent || is_full || worked_off.get(&row.id.partition()).is_some_and(|oldest| *oldest <= row.id),
            _ => {
                let run = longest.get(&row.task).copied().unwrap_or(0);
                since.saturating_add(run) >= recent
            }
        };
        match is_moving {
            true => moving.insert(row),
            false => waiting.push((instance, row)),
        }
    }
    // What waits for what moves is not stuck, and whatever waits for that.
    let mut before = usize::MAX;
    while waiting.len() < before {
        before = waiting.len();
        waiting.retain(|(_, row)| {
            let goes_on = moving.carries(row);
            if goes_on {
                moving.insert(row);
            }
            !goes_on
        });
    }
    for (instance, row) in waiting {
        stuck(facts, instance, row, stands_since(facts, instance), case);
    }
}

/// What is not stuck.
#[derive(Default)]
struct Moving<'a> {
    tasks: BTreeSet<TaskId>,
    /// Groups of which one has a slot.
    groups: BTreeSet<&'a str>,
    /// Instances of which a part is not stuck, or what they have called.
    wholes: BTreeSet<InstanceId>,
}

impl<'a> Moving<'a> {
    fn insert(&mut self, row: &'a InstanceRow) {
        // What waits behind its task's limit moves nobody else.
        if !waits_for_limit(row) {
            self.tasks.insert(row.task);
        }
        self.groups.extend(row.links.as_ref().and_then(|links| links.slot.as_ref()).map(|slot| &*slot.group));
        self.wholes.extend(row.parent());
        self.wholes.extend(row.caller().map(|(caller, _)| caller));
    }

    fn carries(&self, row: &InstanceRow) -> bool {
        match row.waits_for_group() {
            Some(group) => self.groups.contains(&**group),
            None if waits_for_limit(row) => self.tasks.contains(&row.task),
            None => self.wholes.contains(&row.id),
        }
    }
}

fn waits_for_limit(row: &InstanceRow) -> bool {
    row.state == State::Waiting && row.due_at.is_none() && row.waits_for_group().is_none()
}

fn stuck(facts: &Facts<'_>, instance: &Instance, row: &InstanceRow, since: u64, case: &mut Case) {
    let record = instance.last.map_or(0, |last| facts.commit_of(&facts.versions[last]).record);
    case.violated(|| {
        format!(
            "instance {} of task {} for {} has been {} since {since} ms, and the run ended at {} ms (record {record})",
            instance.id,
            row.task,
            row.fire_time,
            row.state.name(),
            facts.end
        )
    });
}

/// Since when the row stands as it does.
fn stands_since(facts: &Facts<'_>, instance: &Instance) -> u64 {
    instance.last.map_or(0, |last| facts.commit_of(&facts.versions[last]).at)
}

/// The longest run of each task's handler, by the plan, as slow as faults make it.
fn longest_runs(facts: &Facts<'_>) -> BTreeMap<TaskId, u64> {
    let slower = |kind| if let FaultKind::HandlersSlow { times } = kind { times } else { 1 };
    let times = facts.plan.faults.iter().map(|fault| slower(fault.kind)).max().unwrap_or(1);
    let of_name = |name: &str| {
        let is_it = |document: &serde_json::Value| document.get("name").and_then(serde_json::Value::as_str) == Some(name);
        let planned = facts.plan.tasks.iter().find(|task| is_it(&task.document));
        planned.map_or(0, |task| task.handler.takes_ms.1.saturating_mul(times))
    };
    facts.tasks.iter().map(|task| (task.id, of_name(task.name()))).collect()
}

/// Of a thousand slots so many are taken, and there is no room.
const FULL_PER_MILLE: u128 = 900;

/// Whether the slots of all workers were taken lately, by handlers that run no longer than the plan says.
fn is_full(facts: &Facts<'_>, longest: &BTreeMap<TaskId, u64>, recent: u64) -> bool {
    let taken = facts.runs.iter().map(|run| {
        let ended_at = run.ended_at.unwrap_or(facts.end);
        let task = facts.instance(run.instance).and_then(|instance| instance.last).map(|last| facts.versions[last].row.task);
        let longest = task.and_then(|task| longest.get(&task)).copied().unwrap_or(0);
        let is_in_time = run.began_at.saturating_add(longest).saturating_add(SETTLE_MS) >= ended_at;
        if is_in_time { u128::from(ended_at.saturating_sub(run.began_at.max(recent))) } else { 0 }
    });
    let slots = facts.plan.shape.workers as u128 * u128::from(facts.plan.shape.slots);
    taken.sum::<u128>() * 1_000 >= slots * u128::from(facts.end - recent) * FULL_PER_MILLE
}

/// Per partition the oldest instance that was dispatched lately.
fn worked_off(facts: &Facts<'_>, recent: u64) -> BTreeMap<PartitionId, InstanceId> {
    let mut oldest: BTreeMap<PartitionId, InstanceId> = BTreeMap::new();
    for dispatch in &facts.dispatches {
        let commit = facts.commit_of(&facts.versions[dispatch.version]);
        if commit.stands() && commit.at >= recent {
            oldest
                .entry(dispatch.instance.partition())
                .and_modify(|oldest| *oldest = dispatch.instance.min(*oldest))
                .or_insert(dispatch.instance);
        }
    }
    oldest
}

fn inbox(facts: &Facts<'_>, case: &mut Case) {
    let recent = facts.end.saturating_sub(SETTLE_MS);
    for entry in facts.entries.iter().filter(|entry| entry.undone_by == NEVER && !matches!(entry.kind, EntryKind::Cancel { .. })) {
        let at = facts.records[entry.record].at;
        if at < recent && facts.applied_by(entry.id, entry.record).is_none() {
            let (id, record): (InboxId, usize) = (entry.id, entry.record);
            case.violated(|| format!("entry {id} has been in the inbox since {at} ms (record {record})"));
        }
    }
}

fn owners(facts: &Facts<'_>, case: &mut Case) {
    let mut owners: BTreeMap<PartitionId, Vec<usize>> = BTreeMap::new();
    let mut schedulers = 0;
    for (who, left) in &facts.left {
        if let (Who::Scheduler(index), Left::InScheduler { is_up, partitions, .. }) = (who, left) {
            schedulers += 1;
            for partition in partitions.iter().filter(|_| *is_up) {
                owners.entry(*partition).or_default().push(*index);
            }
        }
    }
    if schedulers == 0 {
        return case.unknown(|| "no scheduler says what it has left".into());
    }
    for partition in (0..facts.plan.shape.partitions).map(PartitionId) {
        match owners.get(&partition).map_or(&[][..], Vec::as_slice) {
            [_] => {}
            [] => case.violated(|| format!("partition {partition} is nobody's at the end")),
            several => case.violated(|| format!("partition {partition} is owned by the schedulers {several:?} at the end")),
        }
    }
}
