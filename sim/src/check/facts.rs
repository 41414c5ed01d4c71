//! The index over a history that all properties read: built once, in one pass and a few sorts, without copying a row.
//!
//! A failover that loses the tail ([`What::TailLost`]) undoes what the database carried out from some record on. Whatever comes from the
//! database therefore carries the record by which it was undone, [`NEVER`] where it stands.

use std::collections::BTreeMap;
use std::ops::Range;

use punctual_core::batch::Batch;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Fence, InboxId, InstanceId, PartitionId, TaskId, Version, WorkerId};
use punctual_core::inbox::Notice;
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::pause::PauseScope;
use punctual_core::protocol::End;
use punctual_core::time::Timestamp;
use punctual_core::workflow::NodeIndex;
use rustc_hash::FxHashMap;

use crate::check::Slack;
use crate::check::clock::Clocks;
use crate::history::{Answer, Ask, History, Left, Record, What, Who};
use crate::plan::Plan;

/// The record that undoes what was never undone.
pub(super) const NEVER: usize = usize::MAX;

/// A batch that was carried out.
pub(super) struct Commit<'a> {
    pub(super) record: usize,
    /// In virtual milliseconds.
    pub(super) at: u64,
    /// By the database's clock.
    pub(super) wall: Timestamp,
    pub(super) batch: &'a Batch,
    pub(super) undone_by: usize,
}

impl Commit<'_> {
    pub(super) fn stands(&self) -> bool {
        self.undone_by == NEVER
    }
}

/// A row as one batch wrote it.
pub(super) struct RowVersion<'a> {
    pub(super) row: &'a InstanceRow,
    /// The place of its batch among the commits.
    pub(super) commit: usize,
    /// The state and fence that the batch relied on; `None`: it was inserted.
    pub(super) expected: Option<(State, Fence)>,
    /// The row that it took the place of, as the database had it by then.
    pub(super) before: Option<usize>,
}

/// An instance and all that was written of it.
pub(super) struct Instance {
    pub(super) id: InstanceId,
    /// Its versions in the order of their commits.
    pub(super) versions: Range<usize>,
    /// The version that the database has at the end.
    pub(super) last: Option<usize>,
    /// Something of it was undone.
    pub(super) was_undone: bool,
}

/// A run of a handler.
pub(super) struct Run {
    pub(super) worker: usize,
    pub(super) instance: InstanceId,
    pub(super) fence: Fence,
    pub(super) began: usize,
    pub(super) began_at: u64,
    /// When it ended, with its worker at the latest; `None`: it still runs at the end.
    pub(super) ended_at: Option<u64>,
    /// The record by which it ended by its own account, and how.
    pub(super) ended: Option<(usize, Option<End>)>,
}

/// What an inbox entry asks for.
#[derive(Clone, Copy)]
pub(super) enum EntryKind<'a> {
    Defined { task: TaskId, version: Version, is_removal: bool },
    Submitted { task: TaskId, submissions: usize, key: Option<&'a str> },
    Cancel { instance: InstanceId },
    Rerun { instance: InstanceId },
    Mark { instance: InstanceId },
    Backfill { task: TaskId },
    BackfillCancel { backfill: InboxId, task: TaskId },
    Noticed { notice: &'a Notice },
    ReferencesChanged { task: TaskId },
    Skip,
    Delayed { task: TaskId, ordinal: u64 },
    Paused { scope: &'a PauseScope, is_paused: bool },
}

/// An inbox entry.
pub(super) struct Entry<'a> {
    pub(super) id: InboxId,
    pub(super) record: usize,
    pub(super) partition: Option<PartitionId>,
    pub(super) kind: EntryKind<'a>,
    pub(super) undone_by: usize,
}

/// A version of a task, or its removal.
pub(super) struct Edit<'a> {
    pub(super) record: usize,
    pub(super) wall: Timestamp,
    pub(super) entry: InboxId,
    pub(super) version: Version,
    pub(super) definition: Option<&'a TaskDefinition>,
    pub(super) undone_by: usize,
}

/// A task and its versions, in the order in which they were written.
pub(super) struct Task<'a> {
    pub(super) id: TaskId,
    pub(super) edits: Vec<Edit<'a>>,
}

impl<'a> Task<'a> {
    /// Its name, for people.
    pub(super) fn name(&self) -> &'a str {
        self.edits.iter().rev().find_map(|edit| edit.definition).map_or("?", |definition| &definition.name)
    }
}

/// What became of one fire time, or of several in a row: those of batches that stand.
pub(super) struct Fire<'a> {
    pub(super) task: TaskId,
    pub(super) version: Version,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u64,
    pub(super) commit: usize,
    pub(super) outcome: Fired<'a>,
}

/// Whether fire times became an instance.
#[derive(Clone, Copy)]
pub(super) enum Fired<'a> {
    Instance(&'a InstanceRow),
    Occurrence(&'a Occurrence),
}

/// A call of a client.
pub(super) struct Call<'a> {
    pub(super) asked: usize,
    pub(super) ask: &'a Ask,
    pub(super) answered: Option<(usize, &'a Answer)>,
}

/// A dispatch as it was first written.
pub(super) struct Dispatch<'a> {
    pub(super) instance: InstanceId,
    pub(super) fence: Fence,
    pub(super) version: usize,
    pub(super) attempt: u32,
    pub(super) worker: Option<&'a WorkerId>,
}

/// All that is known of a history.
pub(super) struct Facts<'a> {
    pub(super) plan: &'a Plan,
    pub(super) slack: Slack,
    pub(super) records: &'a [Record],
    pub(super) clocks: Clocks,
    /// Failovers that lost the tail: the first record that was undone, and the record that did so.
    pub(super) tails: Vec<(usize, usize)>,
    pub(super) commits: Vec<Commit<'a>>,
    /// By instance, then in the order of commits.
    pub(super) versions: Vec<RowVersion<'a>>,
    pub(super) instances: Vec<Instance>,
    /// By instance and fence, then in the order of commits.
    pub(super) dispatches: Vec<Dispatch<'a>>,
    /// By id, then in the order of records.
    pub(super) entries: Vec<Entry<'a>>,
    /// Entry and commit, by entry, then in the order of commits.
    pub(super) applied: Vec<(InboxId, usize)>,
    pub(super) tasks: Vec<Task<'a>>,
    /// By task, then in the order of commits.
    pub(super) fires: Vec<Fire<'a>>,
    /// Task, commit and the version in force from then on, by task, then in the order of commits.
    pub(super) in_force: Vec<(TaskId, usize, Option<Version>)>,
    /// By instance, then in the order of their beginning.
    pub(super) runs: Vec<Run>,
    /// By instance and fence, then in the order of records.
    pub(super) effects: Vec<(InstanceId, Fence, usize)>,
    pub(super) calls: Vec<Call<'a>>,
    /// When workers stood still, each in order.
    pub(super) pauses: BTreeMap<usize, Vec<(u64, u64)>>,
    pub(super) left: Vec<(Who, &'a Left)>,
    /// The record from which on nothing went wrong any more.
    pub(super) healed: Option<usize>,
    /// The end of the run, in virtual milliseconds.
    pub(super) end: u64,
}

impl<'a> Facts<'a> {
    /// Reads a history.
    pub(super) fn new(plan: &'a Plan, history: &'a History, slack: Slack) -> Self {
        let records = &history.records[..];
        let undone_by = undone(records);
        let end = records.iter().map(|record| record.at).max().unwrap_or(0);
        let mut facts = Facts {
            plan,
            slack,
            records,
            clocks: Clocks::new(plan, records),
            tails: tails(records),
            commits: Vec::new(),
            versions: Vec::new(),
            instances: Vec::new(),
            dispatches: Vec::new(),
            entries: Vec::new(),
            applied: Vec::new(),
            tasks: Vec::new(),
            fires: Vec::new(),
            in_force: Vec::new(),
            runs: Vec::new(),
            effects: Vec::new(),
            calls: Vec::new(),
            pauses: BTreeMap::new(),
            left: Vec::new(),
            healed: None,
            end,
        };
        facts.read_database(&undone_by);
        facts.read_workers();
        facts.read_the_rest();
        facts.chain_versions();
        facts.collect_dispatches();
        facts.collect_fires();
        facts
    }

    fn read_database(&mut self, undone_by: &[usize]) {
        let mut tasks: BTreeMap<TaskId, Vec<Edit<'a>>> = BTreeMap::new();
        for (index, record) in self.records.iter().enumerate() {
            let undone_by = undone_by[index];
            let entry = |id, partition, kind| Entry { id, record: index, partition, kind, undone_by };
            match &record.what {
                What::Committed(batch) => {
                    let place = self.commits.len();
                    self.commits.push(Commit { record: index, at: record.at, wall: record.wall, batch, undone_by });
                    let inserts = batch.inserts.iter().map(|row| (row, None));
                    let updates = batch.updates.iter().map(|update| (&update.row, Some((update.expected_state, update.expected_fence))));
                    self.versions.extend(inserts.chain(updates).map(|(row, expected)| RowVersion {
                        row,
                        commit: place,
                        expected,
                        before: None,
                    }));
                    self.applied.extend(batch.applied.iter().map(|entry| (*entry, place)));
                    self.in_force.extend(batch.tasks.iter().map(|write| (write.task, place, write.version)));
                }
                What::Defined { entry: id, task, partition, version, definition } => {
                    let definition = definition.as_deref();
                    let kind = EntryKind::Defined { task: *task, version: *version, is_removal: definition.is_none() };
                    self.entries.push(entry(*id, Some(*partition), kind));
                    let edit = Edit { record: index, wall: record.wall, entry: *id, version: *version, definition, undone_by };
                    tasks.entry(*task).or_default().push(edit);
                }
                What::Submitted { entry: id, task, submissions, key } => {
                    let kind = EntryKind::Submitted { task: *task, submissions: *submissions, key: key.as_deref() };
                    self.entries.push(entry(*id, None, kind));
                }
                What::BackfillSubmitted { entry: id, task } => {
                    self.entries.push(entry(*id, None, EntryKind::Backfill { task: *task }));
                }
                What::BackfillCancelSubmitted { entry: id, backfill, task } => {
                    self.entries.push(entry(*id, None, EntryKind::BackfillCancel { backfill: *backfill, task: *task }));
                }
                What::Noticed { entry: id, partition, notice } => {
                    self.entries.push(entry(*id, Some(*partition), EntryKind::Noticed { notice }));
                }
                What::ReferencesChanged { entry: id, task } => {
                    self.entries.push(entry(*id, None, EntryKind::ReferencesChanged { task: *task }));
                }
                What::CancelSubmitted { entry: id, instance } => {
                    self.entries.push(entry(*id, Some(instance.partition()), EntryKind::Cancel { instance: *instance }));
                }
                What::MarkSubmitted { entry: id, instance } => {
                    self.entries.push(entry(*id, Some(instance.partition()), EntryKind::Mark { instance: *instance }));
                }
                What::RerunSubmitted { entry: id, instance } => {
                    self.entries.push(entry(*id, Some(instance.partition()), EntryKind::Rerun { instance: *instance }));
                }
                What::SkipSubmitted { entry: id, instance } => {
                    self.entries.push(entry(*id, Some(instance.partition()), EntryKind::Skip));
                }
                What::DelayedChanged { entry: id, task, ordinal } => {
                    self.entries.push(entry(*id, None, EntryKind::Delayed { task: *task, ordinal: *ordinal }));
                }
                What::PauseChanged { entry: id, partition, scope, is_paused } => {
                    let kind = EntryKind::Paused { scope, is_paused: *is_paused };
                    self.entries.push(entry(*id, Some(*partition), kind));
                }
                _ => {}
            }
        }
        self.entries.sort_by_key(|entry| entry.id);
        self.applied.sort_by_key(|(entry, _)| *entry);
        self.in_force.sort_by_key(|(task, commit, _)| (*task, *commit));
        self.tasks = tasks.into_iter().map(|(id, edits)| Task { id, edits }).collect();
        self.versions.sort_by_key(|version| version.row.id);
        for index in 0..self.entries.len() {
            if let EntryKind::Submitted { task, .. }
            | EntryKind::ReferencesChanged { task }
            | EntryKind::Delayed { task, .. }
            | EntryKind::Backfill { task }
            | EntryKind::BackfillCancel { task, .. } = self.entries[index].kind
            {
                self.entries[index].partition = self.partition_of(task);
            }
        }
    }

    fn partition_of(&self, task: TaskId) -> Option<PartitionId> {
        let record = self.task(task)?.edits.first()?.record;
        match &self.records[record].what {
            What::Defined { partition, .. } => Some(*partition),
            _ => None,
        }
    }

    fn read_workers(&mut self) {
        let mut open: FxHashMap<(usize, InstanceId, Fence), usize> = FxHashMap::default();
        let mut of_worker: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        let mut paused: BTreeMap<usize, u64> = BTreeMap::new();
        for (index, record) in self.records.iter().enumerate() {
            let Who::Worker(worker) = record.who else { continue };
            match &record.what {
                What::Began { instance, fence, .. } => {
                    open.insert((worker, *instance, *fence), self.runs.len());
                    of_worker.entry(worker).or_default().push(self.runs.len());
                    self.runs.push(Run {
                        worker,
                        instance: *instance,
                        fence: *fence,
                        began: index,
                        began_at: record.at,
                        ended_at: None,
                        ended: None,
                    });
                }
                What::Effect { instance, fence } => self.effects.push((*instance, *fence, index)),
                What::Ended { instance, fence, end } => {
                    if let Some(run) = open.remove(&(worker, *instance, *fence)) {
                        self.runs[run].ended_at = self.runs[run].ended_at.or(Some(record.at));
                        self.runs[run].ended = Some((index, *end));
                    }
                }
                What::Crashed | What::Stopped | What::Started { .. } => {
                    for run in of_worker.remove(&worker).unwrap_or_default() {
                        self.runs[run].ended_at = self.runs[run].ended_at.or(Some(record.at));
                    }
                    if let Some(since) = paused.remove(&worker) {
                        self.pauses.entry(worker).or_default().push((since, record.at));
                    }
                }
                What::Paused => {
                    paused.entry(worker).or_insert(record.at);
                }
                What::Resumed => {
                    if let Some(since) = paused.remove(&worker) {
                        self.pauses.entry(worker).or_default().push((since, record.at));
                    }
                }
                _ => {}
            }
        }
        for (worker, since) in paused {
            self.pauses.entry(worker).or_default().push((since, self.end));
        }
        self.runs.sort_by_key(|run| run.instance);
        self.effects.sort();
    }

    fn read_the_rest(&mut self) {
        let mut open: FxHashMap<u64, usize> = FxHashMap::default();
        for (index, record) in self.records.iter().enumerate() {
            match &record.what {
                What::Asked { call, ask } => {
                    open.insert(*call, self.calls.len());
                    self.calls.push(Call { asked: index, ask, answered: None });
                }
                What::Answered { call, answer } => {
                    if let Some(call) = open.get(call) {
                        self.calls[*call].answered.get_or_insert((index, answer));
                    }
                }
                What::Healed => self.healed = Some(index),
                What::Left(left) => self.left.push((record.who, left)),
                _ => {}
            }
        }
    }

    /// Finds for each version the one that it took the place of, and for each instance the last one.
    fn chain_versions(&mut self) {
        let mut stack: Vec<usize> = Vec::new();
        let mut begin = 0;
        while begin < self.versions.len() {
            let id = self.versions[begin].row.id;
            let end = begin + self.versions[begin..].partition_point(|version| version.row.id == id);
            stack.clear();
            let mut was_undone = false;
            for index in begin..end {
                let commit = &self.commits[self.versions[index].commit];
                while stack.last().is_some_and(|last| self.commits[self.versions[*last].commit].undone_by < commit.record) {
                    stack.pop();
                }
                was_undone |= !commit.stands();
                self.versions[index].before = stack.last().copied();
                stack.push(index);
            }
            while stack.last().is_some_and(|last| !self.commits[self.versions[*last].commit].stands()) {
                stack.pop();
            }
            self.instances.push(Instance { id, versions: begin..end, last: stack.last().copied(), was_undone });
            begin = end;
        }
    }

    fn collect_dispatches(&mut self) {
        for (index, version) in self.versions.iter().enumerate() {
            let known = version.before.map_or(0, |before| self.versions[before].row.transitions.len());
            for transition in version.row.transitions.iter().skip(known).filter(|transition| transition.to == State::Dispatched) {
                self.dispatches.push(Dispatch {
                    instance: version.row.id,
                    fence: transition.fence,
                    version: index,
                    attempt: transition.attempt,
                    worker: transition.worker.as_ref(),
                });
            }
        }
        self.dispatches.sort_by_key(|dispatch| (dispatch.instance, dispatch.fence));
    }

    fn collect_fires(&mut self) {
        for (place, commit) in self.commits.iter().enumerate().filter(|(_, commit)| commit.stands()) {
            for row in commit.batch.inserts.iter().filter(|row| row.origin.is_own() && row.run == 1 && row.part == Part::WHOLE) {
                self.fires.push(Fire {
                    task: row.task,
                    version: row.version,
                    first: row.fire_time,
                    last: row.fire_time,
                    count: 1,
                    commit: place,
                    outcome: Fired::Instance(row),
                });
            }
            // Version 0 stands for triggers of tasks that are not there; and the end of another task is no fire time of this one's trigger.
            let is_of_chain = |occurrence: &Occurrence| match occurrence.outcome {
                Outcome::ChainTooLong => true,
                Outcome::Disabled => {
                    let definition = self.definition(occurrence.task, occurrence.version);
                    definition.is_some_and(|definition| !definition.enabled && definition.chains.is_some())
                }
                _ => false,
            };
            let is_own = |occurrence: &&Occurrence| occurrence.version != Version(0) && !is_of_chain(occurrence);
            let own: Vec<_> = commit.batch.occurrences.iter().filter(is_own).collect();
            for occurrence in own {
                self.fires.push(Fire {
                    task: occurrence.task,
                    version: occurrence.version,
                    first: occurrence.first,
                    last: occurrence.last,
                    count: occurrence.count,
                    commit: place,
                    outcome: Fired::Occurrence(occurrence),
                });
            }
        }
        // In one batch a fire time that is dropped may come before one that is fired.
        self.fires.sort_by_key(|fire| (fire.task, fire.commit, fire.first));
    }

    /// The commit that wrote this version.
    pub(super) fn commit_of(&self, version: &RowVersion<'_>) -> &Commit<'a> {
        &self.commits[version.commit]
    }

    pub(super) fn instance(&self, id: InstanceId) -> Option<&Instance> {
        let place = self.instances.binary_search_by_key(&id, |instance| instance.id).ok()?;
        Some(&self.instances[place])
    }

    /// Whether something that was written of this instance was undone.
    pub(super) fn was_undone(&self, id: InstanceId) -> bool {
        self.instance(id).is_some_and(|instance| instance.was_undone)
    }

    /// The instance's row as the database has it at the end.
    pub(super) fn last_row(&self, id: InstanceId) -> Option<&'a InstanceRow> {
        Some(self.versions[self.instance(id)?.last?].row)
    }

    /// Whether an instance is a part of that one, or of a part of it.
    pub(super) fn is_part_of(&self, row: &InstanceRow, whole: InstanceId) -> bool {
        let parent = row.parent();
        let above = || parent.and_then(|parent| self.last_row(parent)).and_then(InstanceRow::parent);
        parent == Some(whole) || parent.is_some() && above() == Some(whole)
    }

    /// The instance's row as the database had it at this record.
    pub(super) fn row_at(&self, id: InstanceId, record: usize) -> Option<&'a InstanceRow> {
        let versions = &self.versions[self.instance(id)?.versions.clone()];
        let known = versions.partition_point(|version| self.commit_of(version).record <= record);
        let version = versions[..known].iter().rev().find(|version| self.commit_of(version).undone_by > record)?;
        Some(version.row)
    }

    pub(super) fn task(&self, id: TaskId) -> Option<&Task<'a>> {
        let place = self.tasks.binary_search_by_key(&id, |task| task.id).ok()?;
        Some(&self.tasks[place])
    }

    /// A version's definition. One number can stand for two where the first was undone: then it is the one that stands.
    pub(super) fn definition(&self, task: TaskId, version: Version) -> Option<&'a TaskDefinition> {
        let edits = &self.task(task)?.edits;
        let of_version = || edits.iter().filter(|edit| edit.version == version && edit.definition.is_some());
        of_version().find(|edit| edit.undone_by == NEVER).or_else(|| of_version().next())?.definition
    }

    /// The definition that an instance is run by: a node of a workflow by the node's own.
    pub(super) fn definition_of(&self, row: &InstanceRow) -> Option<&'a TaskDefinition> {
        let definition = self.definition(row.task, row.version)?;
        let node = definition.workflow.as_ref().zip(row.part.node_index().map(NodeIndex));
        Some(node.filter(|(workflow, node)| workflow.graph().contains(*node)).map_or(definition, |(workflow, node)| workflow.node(node)))
    }

    /// The entry of this id as the database had it at this record.
    pub(super) fn entry_at(&self, id: InboxId, record: usize) -> Option<&Entry<'a>> {
        self.entries_of(id).iter().find(|entry| entry.record < record && entry.undone_by > record)
    }

    /// All entries of this id: more than one where the first was undone.
    pub(super) fn entries_of(&self, id: InboxId) -> &[Entry<'a>] {
        let begin = self.entries.partition_point(|entry| entry.id < id);
        let count = self.entries[begin..].partition_point(|entry| entry.id == id);
        &self.entries[begin..begin + count]
    }

    /// The commits that applied entries of this id.
    pub(super) fn applications_of(&self, id: InboxId) -> impl Iterator<Item = usize> + '_ {
        let begin = self.applied.partition_point(|(entry, _)| *entry < id);
        self.applied[begin..].iter().take_while(move |(entry, _)| *entry == id).map(|(_, commit)| *commit)
    }

    /// The commit by which an entry is gone at the end.
    pub(super) fn applied_by(&self, id: InboxId, record: usize) -> Option<usize> {
        self.applications_of(id).find(|commit| self.commits[*commit].stands() && self.commits[*commit].record > record)
    }

    /// The version of a task in force when a batch was carried out, before that batch; `None`: there was no such task.
    pub(super) fn version_before(&self, task: TaskId, commit: usize) -> Option<Version> {
        let record = self.commits[commit].record;
        let known = self.in_force.partition_point(|(other, at, _)| (*other, *at) < (task, commit));
        let of_task = self.in_force[..known].iter().rev().take_while(|(other, ..)| *other == task);
        of_task.filter(|(_, at, _)| self.commits[*at].undone_by > record).map(|(.., version)| *version).next()?
    }

    /// What became of a task's fire times, in the order of commits.
    pub(super) fn fires_of(&self, task: TaskId) -> &[Fire<'a>] {
        let begin = self.fires.partition_point(|fire| fire.task < task);
        let count = self.fires[begin..].partition_point(|fire| fire.task == task);
        &self.fires[begin..begin + count]
    }

    /// All dispatches of an instance under this fence: more than one where the first was undone.
    pub(super) fn dispatches_of(&self, instance: InstanceId, fence: Fence) -> &[Dispatch<'a>] {
        let key = (instance, fence);
        let begin = self.dispatches.partition_point(|dispatch| (dispatch.instance, dispatch.fence) < key);
        let count = self.dispatches[begin..].partition_point(|dispatch| (dispatch.instance, dispatch.fence) == key);
        &self.dispatches[begin..begin + count]
    }

    pub(super) fn runs_of(&self, instance: InstanceId) -> &[Run] {
        let begin = self.runs.partition_point(|run| run.instance < instance);
        let count = self.runs[begin..].partition_point(|run| run.instance == instance);
        &self.runs[begin..begin + count]
    }

    /// How much of a stretch of time a worker did not stand still.
    pub(super) fn moved(&self, worker: usize, from: u64, until: u64) -> u64 {
        let pauses = self.pauses.get(&worker).map_or(&[][..], Vec::as_slice);
        let stood_still: u64 = pauses.iter().map(|(begin, end)| (*end).min(until).saturating_sub((*begin).max(from))).sum();
        until.saturating_sub(from).saturating_sub(stood_still)
    }

    /// When the world healed, in virtual milliseconds.
    pub(super) fn healed_at(&self) -> Option<u64> {
        self.healed.map(|record| self.records[record].at)
    }
}

fn tails(records: &[Record]) -> Vec<(usize, usize)> {
    let tail = |(index, record): (usize, &Record)| match record.what {
        What::TailLost { from } => Some((from, index)),
        _ => None,
    };
    records.iter().enumerate().filter_map(tail).collect()
}

/// For each record the one that undid it.
fn undone(records: &[Record]) -> Vec<usize> {
    let mut undone_by = vec![NEVER; records.len()];
    for (from, index) in tails(records) {
        for earlier in (from.min(index)..index).filter(|earlier| is_in_database(&records[*earlier].what)) {
            if undone_by[earlier] == NEVER {
                undone_by[earlier] = index;
            }
        }
    }
    undone_by
}

/// Whether the database carried something out.
fn is_in_database(what: &What) -> bool {
    matches!(
        what,
        What::Defined { .. }
            | What::Submitted { .. }
            | What::CancelSubmitted { .. }
            | What::RerunSubmitted { .. }
            | What::SkipSubmitted { .. }
            | What::DelayedChanged { .. }
            | What::PauseChanged { .. }
            | What::MarkSubmitted { .. }
            | What::Noticed { .. }
            | What::ReferencesChanged { .. }
            | What::LeaseGranted { .. }
            | What::LeaseRenewed { .. }
            | What::LeaseReleased { .. }
            | What::Committed(_)
    )
}
