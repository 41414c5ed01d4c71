//! `group.held`, `group.no_leak` and `key.held`: limits that tasks share, and limits of a key.

use std::collections::BTreeMap;

use punctual_core::definition::{GroupLimits, Policies};
use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::instance::{InstanceRow, Part, State};
use serde_json::Value;

use crate::check::facts::{Facts, RowVersion, Task};
use crate::check::{Case, SETTLE_MS, Verdict};

/// By the rows, no batch lets an instance of a group begin (its first dispatch, or its division) beyond the group's `max_running`: it counts
/// from there until it has ended, over all partitions. Of those tasks whose versions all say the same of group and limits, and of groups
/// whose tasks do.
pub(super) fn held(facts: &Facts<'_>) -> Verdict {
    let groups = groups(facts);
    let of_row = |row: &InstanceRow| groups.get(&row.task).map(|(group, limits)| (*group, limits.max_running.unwrap_or(u32::MAX)));
    let has_begun = |row: &InstanceRow| {
        let begun = row.transitions.iter().any(|transition| matches!(transition.to, State::Dispatched | State::Running));
        begun && !row.state.is_terminal()
    };
    most_at_once(facts, &of_row, &has_begun, |group, count, most| {
        format!("group {group}: {count} instances have begun and not ended, {most} are allowed")
    })
}

/// By the rows, no batch lets more instances of one value of a limit's key be in progress than `max_running` says. Of those tasks whose
/// versions all say the same of limit and key.
pub(super) fn key_held(facts: &Facts<'_>) -> Verdict {
    let keyed: BTreeMap<TaskId, &Policies> = facts.tasks.iter().filter_map(|task| Some((task.id, keyed(task)?))).collect();
    let of_row = |row: &InstanceRow| {
        let policies = keyed.get(&row.task)?;
        let payload = row.payload.as_deref().or(facts.definition(row.task, row.version)?.payload.as_deref());
        let value: Value = payload.and_then(|payload| serde_json::from_str(payload).ok()).unwrap_or_default();
        let value = value.pointer(policies.limit_key.as_deref()?).map(Value::to_string);
        Some(((row.task, value.filter(|value| value != "null")), policies.concurrency.max_running))
    };
    let in_progress = |row: &InstanceRow| row.state.is_in_progress();
    most_at_once(facts, &of_row, &in_progress, |(task, value), count, most| {
        format!("task {task}: {count} instances of the key {value:?} are in progress, {most} are allowed")
    })
}

/// Counts those rows that `counts`, by what they share, and says where a batch that lets one come exceeds what is allowed.
fn most_at_once<K: Ord + Clone>(
    facts: &Facts<'_>,
    of_row: &dyn Fn(&InstanceRow) -> Option<(K, u32)>,
    counts: &dyn Fn(&InstanceRow) -> bool,
    says: impl Fn(&K, i64, u32) -> String,
) -> Verdict {
    let mut case = Case::default();
    let mut events: Vec<(usize, K, i64, bool, u32, InstanceId)> = Vec::new();
    let counted = |version: &RowVersion<'_>| i64::from(counts(version.row));
    for version in facts.versions.iter().filter(|version| version.row.part == Part::WHOLE) {
        let change = counted(version) - version.before.map_or(0, |before| counted(&facts.versions[before]));
        let Some((key, most)) = of_row(version.row).filter(|_| change != 0) else { continue };
        let commit = facts.commit_of(version);
        events.push((commit.record, key.clone(), change, false, most, version.row.id));
        if !commit.stands() {
            events.push((commit.undone_by, key, -change, true, most, version.row.id));
        }
    }
    events.sort_by(|one, other| (one.0, &one.1, one.2).cmp(&(other.0, &other.1, other.2)));
    let mut running: BTreeMap<K, i64> = BTreeMap::new();
    for of_batch in events.chunk_by(|one, other| (one.0, &one.1) == (other.0, &other.1)) {
        let (record, key) = (of_batch[0].0, &of_batch[0].1);
        let count = running.entry(key.clone()).or_default();
        *count += of_batch.iter().map(|event| event.2).sum::<i64>();
        let last = of_batch.iter().rfind(|event| event.2 > 0 && !event.3);
        if let Some((.., most, id)) = last.filter(|event| *count > i64::from(event.4)) {
            let (count, most) = (*count, *most);
            case.violated(|| format!("{}, with instance {id} (record {record})", says(key, count, most)));
        }
    }
    case.verdict()
}

/// At the end of a run that has healed, no group's owner keeps a slot of an instance that has ended [`SETTLE_MS`] before.
pub(super) fn no_leak(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let Some(healed) = facts.healed_at() else { return Verdict::Unknown("the run never healed".into()) };
    let recent = facts.end.saturating_sub(SETTLE_MS);
    if recent < healed {
        return Verdict::Unknown(format!("the run ended {} ms after it had healed", facts.end - healed.min(facts.end)));
    }
    let mut slots = BTreeMap::new();
    for commit in facts.commits.iter().filter(|commit| commit.stands()) {
        for write in &commit.batch.slots {
            match &write.slot {
                Some(slot) => _ = slots.insert(write.instance, slot),
                None => _ = slots.remove(&write.instance),
            }
        }
    }
    for (id, slot) in slots {
        let Some(last) = facts.instance(id).and_then(|instance| instance.last) else {
            case.violated(|| format!("group {} keeps a slot of instance {id}, which was never there", slot.group));
            continue;
        };
        let (row, at) = (facts.versions[last].row, facts.commit_of(&facts.versions[last]).at);
        if row.state.is_terminal() && at < recent {
            let state = row.state.name();
            case.violated(|| format!("group {} keeps a slot of instance {id}, which has been {state} since {at} ms", slot.group));
        }
    }
    case.verdict()
}

/// The tasks that have been in one group all the time, with one set of limits, which all tasks of the group share.
fn groups<'a>(facts: &Facts<'a>) -> BTreeMap<TaskId, (&'a str, GroupLimits)> {
    let mut of_tasks: BTreeMap<TaskId, (&str, GroupLimits)> = BTreeMap::new();
    let mut agreed: BTreeMap<&str, Option<GroupLimits>> = BTreeMap::new();
    for task in &facts.tasks {
        let said: Vec<_> = task.edits.iter().filter_map(|edit| edit.definition).collect();
        for definition in &said {
            let Some(group) = definition.group.as_deref() else { continue };
            let limits = agreed.entry(group).or_insert(definition.policies.group);
            if *limits != definition.policies.group {
                *limits = None;
            }
        }
        let one = said.first().and_then(|first| Some((first.group.as_deref()?, first.policies.group?)));
        let same = |other: &&punctual_core::definition::TaskDefinition| one == other.group.as_deref().zip(other.policies.group);
        if let Some(one) = one.filter(|_| said.len() == task.edits.len() && said.iter().all(same)) {
            of_tasks.insert(task.id, one);
        }
    }
    of_tasks.retain(|_, (group, limits)| agreed.get(group) == Some(&Some(*limits)));
    of_tasks
}

/// The policies of a task whose limit has had one key, and been the same, in all its versions.
fn keyed<'a>(task: &Task<'a>) -> Option<&'a Policies> {
    let first = &*task.edits.first()?.definition?.policies;
    let what = |policies: &Policies| (policies.limit_key.clone(), policies.concurrency.max_running);
    first.limit_key.as_ref()?;
    task.edits.iter().all(|edit| edit.definition.is_some_and(|other| what(&other.policies) == what(first))).then_some(first)
}
