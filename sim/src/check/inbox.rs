//! `inbox.once`, `submit.durable` and `cancel.effective`: what people ask for.

use punctual_core::backfill::BackfillState;
use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use punctual_core::inbox::{Notice, called_ordinal, ordinal_of};
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State};
use punctual_core::limits;
use punctual_core::occurrence::Outcome;
use punctual_core::pause::PauseScope;
use punctual_driver::ports::PauseTarget;
use rustc_hash::FxHashMap;

use crate::check::facts::{Call, Commit, Entry, EntryKind, Facts, NEVER};
use crate::check::{Case, SETTLE_MS, Verdict};
use crate::history::{Answer, Ask};

/// Each entry is applied by at most one batch, after it was written, and its effect is in that batch: a trigger's instances, or an occurrence
/// for each submission where there was no such task; a definition's record of the task; a cancellation's end of the instance, which has
/// ended before or ends there; a rerun's instance, the next run. No instance that was asked for comes without its entry.
pub(super) fn once(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for pair in facts.applied.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let (first, second) = (&facts.commits[pair[0].1], &facts.commits[pair[1].1]);
        if first.undone_by > second.record {
            case.violated(|| format!("entry {} was applied twice (records {} and {})", pair[0].0, first.record, second.record));
        }
    }
    for place in 0..facts.commits.len() {
        judge_batch(facts, place, &mut case);
    }
    case.verdict()
}

/// What a batch has that only entries can bring.
struct Brought<'a> {
    /// By ordinal.
    asked_for: FxHashMap<u64, &'a InstanceRow>,
    /// By the instance that they are reruns of.
    reruns: FxHashMap<InstanceId, &'a InstanceRow>,
    /// Occurrences of tasks that there are not.
    of_nothing: FxHashMap<TaskId, u64>,
    /// Occurrences of tasks that did not fire for another one's end.
    chained: FxHashMap<TaskId, u64>,
}

fn judge_batch(facts: &Facts<'_>, place: usize, case: &mut Case) {
    let commit = &facts.commits[place];
    let asked_for =
        |row: &&InstanceRow| matches!(row.origin, Origin::Manual | Origin::Chain | Origin::Call) && row.run == 1 && row.part == Part::WHOLE;
    let asked_for = commit.batch.inserts.iter().filter(asked_for);
    let (mut of_nothing, mut chained) = (FxHashMap::default(), FxHashMap::default());
    for occurrence in &commit.batch.occurrences {
        let counted = match occurrence.outcome {
            _ if occurrence.version == Version(0) => &mut of_nothing,
            Outcome::Disabled | Outcome::ChainTooLong => &mut chained,
            _ => continue,
        };
        *counted.entry(occurrence.task).or_insert(0) += occurrence.count;
    }
    let reruns = commit.batch.inserts.iter().filter(|row| row.origin == Origin::Rerun && row.part == Part::WHOLE);
    let reruns = reruns.filter_map(|row| Some((row.links.as_ref()?.cause?, row))).collect();
    let mut brought = Brought { asked_for: asked_for.map(|row| (row.ordinal, row)).collect(), reruns, of_nothing, chained };
    for id in &commit.batch.applied {
        let record = commit.record;
        let Some(entry) = facts.entry_at(*id, record) else {
            case.violated(|| format!("entry {id} was applied and was not there (record {record})"));
            continue;
        };
        let why = match entry.kind {
            EntryKind::Submitted { task, submissions, .. } => trigger_without_effect(*id, task, submissions, &mut brought),
            EntryKind::Noticed { notice: Notice::Chained { task, .. } } => match brought.chained.get_mut(task) {
                // Of one batch some may have been fired before the task was disabled.
                Some(left) if *left > 0 && !brought.asked_for.contains_key(&ordinal_of(*id, 0)) => {
                    *left -= 1;
                    None
                }
                _ => trigger_without_effect(*id, *task, 1, &mut brought),
            },
            EntryKind::Backfill { .. } => {
                let is_there = commit.batch.backfills.iter().any(|write| write.row.id == *id && write.is_new);
                (!is_there).then(|| "there is no such backfill".to_owned())
            }
            // One that has ended stays as it is.
            EntryKind::BackfillCancel { backfill, .. } => {
                let written = commit.batch.backfills.iter().find(|write| write.row.id == backfill);
                let runs_on = written.is_some_and(|write| write.row.state == BackfillState::Running);
                runs_on.then(|| format!("backfill {backfill} runs on"))
            }
            EntryKind::Noticed { notice: Notice::Called { task, caller, .. } } => {
                call_without_effect(facts, commit, *task, *caller, &mut brought)
            }
            EntryKind::Noticed { notice: Notice::CallCancelled { caller, .. } } => {
                let called = facts.instances.iter().filter_map(|instance| facts.row_at(instance.id, record));
                let runs_on =
                    called.into_iter().find(|row| !row.state.is_terminal() && row.caller().is_some_and(|(node, _)| node == *caller));
                runs_on.map(|row| format!("instance {}, which node {caller} has called, is {}", row.id, row.state.name()))
            }
            EntryKind::Noticed { notice: Notice::CallEnded { caller, .. } } => cancel_without_effect(facts, *caller, record),
            EntryKind::Noticed { notice } => slot_without_effect(facts, place, notice),
            // It changes what the owner has in memory only.
            EntryKind::ReferencesChanged { .. } | EntryKind::Paused { .. } => None,
            // What has begun goes on.
            EntryKind::Skip => None,
            EntryKind::Delayed { task, ordinal } => delayed_without_effect(facts, task, ordinal, record),
            // Where the node has gone on since, it is of no effect.
            EntryKind::Mark { .. } => None,
            EntryKind::Cancel { instance } => cancel_without_effect(facts, instance, record),
            EntryKind::Rerun { instance } => rerun_without_effect(facts, instance, record, &mut brought),
            EntryKind::Defined { task, version, is_removal } => definition_without_effect(facts, place, task, version, is_removal),
        };
        if let Some(why) = why {
            case.violated(|| format!("entry {id} was applied without its effect: {why} (record {record})"));
        }
    }
    let is_left = |row: &&InstanceRow| {
        brought.asked_for.get(&row.ordinal).is_some_and(|left| left.id == row.id)
            || row.origin == Origin::Rerun && row.part == Part::WHOLE && brought.reruns.values().any(|left| left.id == row.id)
    };
    let rest = commit.batch.inserts.iter().find(is_left);
    if let Some(row) = rest {
        let record = commit.record;
        case.violated(|| format!("instance {} of task {} was inserted without its entry (record {record})", row.id, row.task));
    }
    let rest = commit
        .batch
        .occurrences
        .iter()
        .find(|occurrence| occurrence.version == Version(0) && brought.of_nothing.get(&occurrence.task).is_some_and(|left| *left > 0));
    if let Some(occurrence) = rest {
        let (task, record) = (occurrence.task, commit.record);
        case.violated(|| format!("a trigger of task {task}, which is not there, is on record without its entry (record {record})"));
    }
}

fn trigger_without_effect(id: InboxId, task: TaskId, submissions: usize, brought: &mut Brought<'_>) -> Option<String> {
    if id.0 > u64::MAX / limits::SUBMISSIONS_MAX as u64 - 1 {
        return None;
    }
    for index in 0..submissions.min(limits::SUBMISSIONS_MAX) {
        match brought.asked_for.remove(&ordinal_of(id, index)) {
            Some(row) if row.task == task => continue,
            Some(row) => return Some(format!("instance {} is of task {}, not {task}", row.id, row.task)),
            None => {}
        }
        match brought.of_nothing.get_mut(&task) {
            Some(left) if *left > 0 => *left -= 1,
            _ => return Some(format!("submission {index} of task {task} has no instance")),
        }
    }
    None
}

/// A call has its instance in the same batch, or is answered there that it can't have one.
fn call_without_effect(
    facts: &Facts<'_>,
    commit: &Commit<'_>,
    task: Option<TaskId>,
    caller: InstanceId,
    brought: &mut Brought<'_>,
) -> Option<String> {
    let answers = |notice: &Notice| matches!(notice, Notice::CallEnded { caller: node, instance: None, .. } if *node == caller);
    match brought.asked_for.remove(&called_ordinal(caller)) {
        Some(row) if Some(row.task) == task && row.caller().is_some_and(|(node, _)| node == caller) => None,
        Some(row) => Some(format!("instance {} of task {} is not what node {caller} called", row.id, row.task)),
        None if commit.batch.messages.iter().any(|message| answers(&message.notice)) => None,
        None => {
            let there = facts.instances.iter().filter_map(|instance| facts.row_at(instance.id, commit.record));
            let is_there = there.into_iter().any(|row| row.caller().is_some_and(|(node, _)| node == caller));
            (!is_there).then(|| format!("node {caller} has called nothing, and was not told why"))
        }
    }
}

/// A question for a slot makes one, a grant is in the row of an instance that has not ended, and what is given back is gone.
fn slot_without_effect(facts: &Facts<'_>, place: usize, notice: &Notice) -> Option<String> {
    let commit = &facts.commits[place];
    let applied = || commit.batch.applied.iter().filter_map(|id| facts.entry_at(*id, commit.record));
    let is_there = |is_it: &dyn Fn(&Notice) -> bool| {
        applied().any(|entry| if let EntryKind::Noticed { notice } = entry.kind { is_it(notice) } else { false })
    };
    let gives_back = |notice: &Notice, of: InstanceId| matches!(notice, Notice::GroupRelease { instance, .. } if *instance == of);
    let asks = |notice: &Notice, of: InstanceId| matches!(notice, Notice::GroupAsk { instance, .. } if *instance == of);
    let written = |instance: &InstanceId| commit.batch.slots.iter().rev().find(|write| write.instance == *instance);
    match notice {
        Notice::Chained { .. } | Notice::Called { .. } | Notice::CallCancelled { .. } | Notice::CallEnded { .. } => None,
        // One that is given back in the same batch was never written.
        Notice::GroupAsk { instance, .. } if written(instance).is_none() && !is_there(&|other| gives_back(other, *instance)) => {
            Some(format!("instance {instance} has no slot"))
        }
        Notice::GroupGrant { instance, .. } => {
            let row = facts.row_at(*instance, commit.record).filter(|row| !row.state.is_terminal())?;
            let is_granted = row.links.as_ref().and_then(|links| links.slot.as_ref()).is_some_and(|slot| slot.is_granted);
            (!is_granted).then(|| format!("instance {instance} doesn't have the slot that it was granted"))
        }
        Notice::GroupRelease { instance, .. }
            if written(instance).map_or_else(|| !is_there(&|other| asks(other, *instance)), |write| write.slot.is_some()) =>
        {
            Some(format!("instance {instance} still has its slot"))
        }
        Notice::GroupAsk { .. } | Notice::GroupRelease { .. } => None,
    }
}

fn rerun_without_effect(facts: &Facts<'_>, instance: InstanceId, record: usize, brought: &mut Brought<'_>) -> Option<String> {
    let Some(of) = facts.row_at(instance, record) else { return Some(format!("instance {instance} was never there")) };
    if !of.state.is_terminal() {
        return Some(format!("instance {instance} of task {} is {}", of.task, of.state.name()));
    }
    let firing = |row: &InstanceRow, run: u32| (row.task, row.fire_time, row.ordinal, run, row.payload.clone());
    match brought.reruns.remove(&instance) {
        Some(row) if firing(row, row.run) == firing(of, of.run.saturating_add(1)) => return None,
        Some(row) => return Some(format!("instance {} is no further run of instance {instance}", row.id)),
        None => {}
    }
    match brought.of_nothing.get_mut(&of.task) {
        Some(left) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => Some(format!("instance {instance} of task {} has no further run", of.task)),
    }
}

/// A change to a trigger that is not due yet: its instance does not go on waiting as if nothing had been.
fn delayed_without_effect(facts: &Facts<'_>, task: TaskId, ordinal: u64, record: usize) -> Option<String> {
    let is_it = |row: &&InstanceRow| row.ordinal == ordinal && row.task == task && row.run == 1 && row.part == Part::WHOLE;
    let instances = facts.instances.iter().filter_map(|instance| facts.row_at(instance.id, record));
    let row = instances.filter(is_it).find(|row| row.state == State::Waiting && row.due_at.is_some())?;
    let was_put_off = row.transitions.iter().any(|transition| transition.cause == Cause::Rescheduled);
    (!was_put_off).then(|| format!("instance {} of task {task} waits as before", row.id))
}

fn cancel_without_effect(facts: &Facts<'_>, instance: InstanceId, record: usize) -> Option<String> {
    let row = facts.row_at(instance, record).filter(|row| !row.state.is_terminal())?;
    Some(format!("instance {instance} of task {} is {}", row.task, row.state.name()))
}

fn definition_without_effect(facts: &Facts<'_>, place: usize, task: TaskId, version: Version, is_removal: bool) -> Option<String> {
    let commit = &facts.commits[place];
    // The last one counts.
    let written = commit.batch.tasks.iter().rev().find(|write| write.task == task).map(|write| write.version);
    let before = facts.version_before(task, place);
    let is_removed_later = || {
        let mut entries = commit.batch.applied.iter().filter_map(|id| facts.entry_at(*id, commit.record));
        entries.any(|entry| match entry.kind {
            EntryKind::Defined { task: other, version: later, is_removal } => other == task && later > version && is_removal,
            _ => false,
        })
    };
    let is_there = match (written, is_removal) {
        (Some(Some(written)), false) => written >= version,
        (Some(Some(written)), true) => written > version,
        (Some(None), is_removal) => is_removal || is_removed_later(),
        // What is not there, or newer than the entry, stays as it is.
        (None, true) => before.is_none_or(|before| before >= version),
        (None, false) => before.is_some_and(|before| before >= version),
    };
    let what = if is_removal { "removed by" } else { "written as" };
    (!is_there).then(|| format!("task {task} is not {what} version {version}"))
}

/// A call that was answered with an entry has it in the database, of its kind and for its target, written between call and answer
/// (a repeated one: before, under its key); one that was refused has written none; and a key has at most one entry.
///
/// Where the entry was undone with the tail, it is not known.
pub(super) fn durable(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    keys(facts, &mut case);
    let mut named: Vec<(InboxId, usize)> = Vec::new();
    for call in &facts.calls {
        match call.answered {
            Some((answered, Answer::Accepted(id))) => {
                named.push((*id, call.asked));
                accepted(facts, call, *id, answered, false, &mut case);
            }
            Some((answered, Answer::Repeated(id))) => accepted(facts, call, *id, answered, true, &mut case),
            _ => {}
        }
    }
    named.sort_unstable();
    for pair in named.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let (id, first, second) = (pair[0].0, pair[0].1, pair[1].1);
        let was_undone = facts.entries_of(id).iter().any(|entry| entry.undone_by != NEVER);
        case.violated_unless_undone(was_undone, || format!("entry {id} was accepted for two calls (records {first} and {second})"));
    }
    refused(facts, &named, &mut case);
    case.verdict()
}

fn keys(facts: &Facts<'_>, case: &mut Case) {
    let keyed = facts.entries.iter().filter_map(|entry| match entry.kind {
        EntryKind::Submitted { key: Some(key), .. } => Some((key, entry)),
        _ => None,
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by_key(|(key, entry)| (*key, entry.record));
    for pair in keyed.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let ((key, first), (_, second)) = (pair[0], pair[1]);
        let was_undone = first.undone_by < second.record;
        case.violated_unless_undone(was_undone, || {
            format!("the key {key:?} has the entries {} and {} (records {} and {})", first.id, second.id, first.record, second.record)
        });
    }
}

/// Whether an entry is what a call asks for.
fn is_of(facts: &Facts<'_>, ask: &Ask, entry: &Entry<'_>) -> bool {
    let is_named = |task: TaskId, name: &str| facts.task(task).is_some_and(|task| task.name() == name);
    match (ask, entry.kind) {
        (Ask::Define { task: name }, EntryKind::Defined { task, .. }) => is_named(task, name),
        (Ask::Trigger { task: name, key }, EntryKind::Submitted { task, key: own, .. }) => is_named(task, name) && key.as_deref() == own,
        (Ask::Cancel { instance }, EntryKind::Cancel { instance: own }) => *instance == own,
        (Ask::Rerun { instance }, EntryKind::Rerun { instance: own }) => *instance == own,
        (Ask::Pause { target, is_paused }, EntryKind::Paused { scope, is_paused: own }) => {
            let is_same = match (target, scope) {
                (PauseTarget::All, PauseScope::All) => true,
                (PauseTarget::Group(group), PauseScope::Group(own)) => group == own,
                (PauseTarget::Worker(name), PauseScope::Worker(own)) => *name == own.0,
                (PauseTarget::Task(name), PauseScope::Task(task)) => is_named(*task, name),
                _ => false,
            };
            is_same && *is_paused == own
        }
        (Ask::Mark { instance }, EntryKind::Mark { instance: own }) => *instance == own,
        (Ask::Skip { .. }, EntryKind::Skip) => true,
        (Ask::Backfill { task: name }, EntryKind::Backfill { task }) => is_named(task, name),
        (Ask::EndBackfill { backfill }, EntryKind::BackfillCancel { backfill: own, .. }) => *backfill == own,
        (Ask::Change { task: name }, EntryKind::Delayed { task, .. }) => is_named(task, name),
        _ => false,
    }
}

fn accepted(facts: &Facts<'_>, call: &Call<'_>, id: InboxId, answered: usize, is_repeated: bool, case: &mut Case) {
    let entries = facts.entries_of(id);
    let is_meant = |entry: &&Entry<'_>| {
        let is_in_time = entry.record < answered && (is_repeated || entry.record > call.asked);
        is_in_time && is_of(facts, call.ask, entry)
    };
    let witness = |what: &str| format!("{:?} was answered with entry {id}, {what} (records {} and {answered})", call.ask, call.asked);
    match entries.iter().filter(is_meant).map(|entry| entry.undone_by).max() {
        Some(NEVER) => {}
        Some(_) => case.violated_unless_undone(true, || witness("which was undone")),
        None if entries.is_empty() => case.violated(|| witness("which is not there")),
        None => case.violated(|| witness("which is not what it asked for")),
    }
}

/// Entries that came while a call was under way that was refused, and that no other call can have written.
fn refused(facts: &Facts<'_>, named: &[(InboxId, usize)], case: &mut Case) {
    let refusals = facts.calls.iter().filter_map(|call| match call.answered {
        Some((answered, Answer::Refused(_))) => Some((call, answered)),
        _ => None,
    });
    let mut by_record: Vec<&Entry<'_>> = Vec::new();
    for (call, answered) in refusals {
        if by_record.is_empty() {
            by_record = facts.entries.iter().collect();
            by_record.sort_unstable_by_key(|entry| entry.record);
        }
        let begin = by_record.partition_point(|entry| entry.record < call.asked);
        let meanwhile = by_record[begin..].iter().take_while(|entry| entry.record < answered);
        for entry in meanwhile.filter(|entry| is_of(facts, call.ask, entry)) {
            let is_named = named.binary_search_by_key(&entry.id, |(id, _)| *id).is_ok();
            let may_be_anothers = || {
                facts.calls.iter().filter(|other| other.asked < entry.record && is_of(facts, other.ask, entry)).any(|other| {
                    match other.answered {
                        None | Some((_, Answer::Unknown)) => true,
                        Some((answered, Answer::Accepted(first))) => entry.record < answered && is_along_with(facts, *first, entry),
                        Some(_) => false,
                    }
                })
            };
            if !is_named && !may_be_anothers() {
                case.violated(|| {
                    let (ask, id, asked, record) = (call.ask, entry.id, call.asked, entry.record);
                    format!("{ask:?} was refused and has written entry {id} (records {asked}, {record} and {answered})")
                });
            }
        }
    }
}

/// Whether a pause, or its end, that was answered with its first entry has this one as well: each partition that it concerns has one.
fn is_along_with(facts: &Facts<'_>, first: InboxId, entry: &Entry<'_>) -> bool {
    let EntryKind::Paused { scope, is_paused } = entry.kind else { return false };
    let is_same = |other: &&Entry<'_>| {
        let is_same_kind = matches!(other.kind, EntryKind::Paused { scope: of, is_paused: to } if of == scope && to == is_paused);
        is_same_kind && other.id >= first && other.id < entry.id && other.undone_by > entry.record
    };
    let mut before = facts.entries.iter().filter(is_same).peekable();
    before.peek().is_some_and(|before| before.id == first) && before.all(|before| before.partition != entry.partition)
}

/// A live instance whose cancellation was written ends (as cancelled, or as its result has it that came first), at the latest
/// [`SETTLE_MS`] and its grace after that and after the heal. It is not dispatched again once its owner has heard of it: once that entry,
/// or a later one of its partition, has been applied.
pub(super) fn cancel_effective(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let heard = heard(facts);
    for entry in facts.entries.iter().filter(|entry| entry.undone_by == NEVER) {
        let EntryKind::Cancel { instance: id } = entry.kind else { continue };
        let Some(instance) = facts.instance(id) else { continue };
        let (asked_at, record) = (facts.records[entry.record].at, entry.record);
        if let Some(row) = instance.last.map(|last| facts.versions[last].row).filter(|row| !row.state.is_terminal()) {
            let grace = facts.definition_of(row).map_or(0, |definition| definition.policies.timeout.grace.0);
            let from = facts.healed_at().map(|healed| healed.max(asked_at));
            if from.is_some_and(|from| from.saturating_add(SETTLE_MS).saturating_add(grace) <= facts.end) {
                case.violated(|| {
                    format!("instance {id} of task {} was to be cancelled and is {} (record {record})", row.task, row.state.name())
                });
            }
        }
        if let Some(since) = heard_since(&heard, id.partition(), entry) {
            let begin = facts.dispatches.partition_point(|dispatch| dispatch.instance < id);
            let again = facts.dispatches[begin..].iter().take_while(|dispatch| dispatch.instance == id).find(|dispatch| {
                let version = &facts.versions[dispatch.version];
                version.commit > since && facts.commit_of(version).stands()
            });
            if let Some(again) = again {
                let (heard, dispatched): (&Commit<'_>, &Commit<'_>) =
                    (&facts.commits[since], facts.commit_of(&facts.versions[again.version]));
                case.violated(|| {
                    format!(
                        "instance {id} was to be cancelled (record {record}), its owner had heard of it (record {}), and it was dispatched \
                         again under fence {} (record {})",
                        heard.record, again.fence, dispatched.record
                    )
                });
            }
        }
    }
    case.verdict()
}

/// Per partition the commits that stand, each with the highest entry that was applied up to then.
fn heard(facts: &Facts<'_>) -> FxHashMap<PartitionId, Vec<(InboxId, usize)>> {
    let mut heard: FxHashMap<PartitionId, Vec<(InboxId, usize)>> = FxHashMap::default();
    for (place, commit) in facts.commits.iter().enumerate().filter(|(_, commit)| commit.stands()) {
        for id in &commit.batch.applied {
            let Some(partition) = facts.entry_at(*id, commit.record).and_then(|entry| entry.partition) else { continue };
            let of_partition = heard.entry(partition).or_default();
            if of_partition.last().is_none_or(|(highest, _)| highest < id) {
                of_partition.push((*id, place));
            }
        }
    }
    heard
}

/// The commit by which an owner had heard of an entry.
fn heard_since(heard: &FxHashMap<PartitionId, Vec<(InboxId, usize)>>, partition: PartitionId, entry: &Entry<'_>) -> Option<usize> {
    let of_partition = heard.get(&partition)?;
    of_partition.get(of_partition.partition_point(|(id, _)| *id < entry.id)).map(|(_, commit)| *commit)
}
