//! What everybody may read, and what an application of documents has to write.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::chains::{self, Call, ChainProblem, Edge};
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{InstanceId, PartitionId, TaskId, Version};
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::occurrence::Occurrence;
use punctual_core::scheduler::Firings;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    Applied, Applying, ComingTask, InstanceCursor, InstanceFilter, InstancePage, InstanceQuery, InstanceView, PartitionView, Revision,
    TaskDay, TaskDocument, TaskEdit, TaskPage, TaskQuery, TaskView, VersionView,
};

use crate::model::data::{Data, Named};

/// Something that an application has to write.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// A new version.
    Version(&'a TaskDocument),
    /// A removal.
    Removal(Arc<str>),
    /// The task is as its document says, but another source made it.
    TakeOver(Arc<str>),
}

impl Data {
    /// Compares what `source` says with what is stored.
    pub(crate) fn compare<'a>(&self, source: &str, documents: &'a [TaskDocument], how: &Applying) -> (Vec<Change<'a>>, Applied) {
        let is_named = |name: &str| documents.iter().any(|task| &*task.definition.name == name);
        let mut gone: Vec<(TaskId, &Arc<str>)> = self
            .names
            .iter()
            .filter(|(name, named)| !named.removed && &*named.source == source && !is_named(name))
            .map(|(name, named)| (named.task, name))
            .collect();
        gone.sort_unstable();
        let gone: Vec<_> = gone.into_iter().map(|(_, name)| name.clone()).collect();
        let (removed, left) = if how.remove { (gone, Vec::new()) } else { (Vec::new(), gone) };
        let (changes, applied) = self.compare_with(source, documents, removed);
        let left = if applied.refused.is_empty() { left } else { Vec::new() };
        (changes, Applied { left, ..applied })
    }

    /// The same for one task, which was not refused.
    pub(crate) fn compare_edit<'a>(&self, edit: &'a TaskEdit) -> (Vec<Change<'a>>, Applied) {
        let gone = if edit.document.is_none() { vec![edit.name.clone()] } else { Vec::new() };
        self.compare_with(&edit.source, edit.document.as_slice(), gone)
    }

    fn compare_with<'a>(&self, source: &str, documents: &'a [TaskDocument], removed: Vec<Arc<str>>) -> (Vec<Change<'a>>, Applied) {
        // Of two documents of one name the later one counts.
        let last: BTreeMap<&str, usize> = documents.iter().enumerate().map(|(index, task)| (&*task.definition.name, index)).collect();
        let (mut created, mut changed, mut taken_over, mut applied) = (Vec::new(), Vec::new(), Vec::new(), Applied::default());
        let counting = documents.iter().enumerate().filter(|(index, task)| last[&*task.definition.name] == *index);
        for task in counting.map(|(_, task)| task) {
            let name = &task.definition.name;
            let Some(named) = self.names.get(name) else {
                applied.created.push(name.clone());
                created.push(Change::Version(task));
                continue;
            };
            if !named.removed && &*named.source != source {
                applied.taken.push((name.clone(), named.source.clone()));
            }
            let newest = self.versions[&(named.task, named.version)].document.as_ref();
            if newest != Some(&task.document) {
                applied.changed.push(name.clone());
                changed.push(Change::Version(task));
                continue;
            }
            applied.unchanged += 1;
            if &*named.source != source {
                taken_over.push(Change::TakeOver(name.clone()));
            }
        }
        applied.removed = removed;
        applied.refused = self.chain_problems(&created, &changed, &applied.removed);
        if !applied.refused.is_empty() {
            return (Vec::new(), Applied { refused: applied.refused, ..Applied::default() });
        }
        let removed = applied.removed.iter().cloned().map(Change::Removal);
        (created.into_iter().chain(changed).chain(removed).chain(taken_over).collect(), applied)
    }

    /// What would be wrong with how tasks hang together.
    fn chain_problems(&self, created: &[Change<'_>], changed: &[Change<'_>], removed: &[Arc<str>]) -> Vec<ChainProblem> {
        let documents = created.iter().chain(changed).filter_map(|change| match change {
            Change::Version(task) => Some(&task.definition),
            _ => None,
        });
        let documents: Vec<_> = documents.collect();
        let has_ties = |definition: &Arc<TaskDefinition>| definition.chains.is_some() || !definition.called_tasks().is_empty();
        if removed.is_empty() && !documents.iter().any(|definition| has_ties(definition)) {
            return Vec::new();
        }
        let is_new = |name: &str| documents.iter().any(|definition| &*definition.name == name);
        let is_removed = |name: &str| removed.iter().any(|removed| &**removed == name);
        let name_of = |task: TaskId| self.names_of[&task].clone();
        let stored = self.references.keys().map(|(from, to)| Edge { after: name_of(*from), task: name_of(*to) });
        let mut edges: Vec<_> = stored.filter(|edge| !is_new(&edge.task) && !is_removed(&edge.task)).collect();
        for definition in &documents {
            let chains = definition.chains.iter().flat_map(|chains| chains.iter());
            edges.extend(chains.map(|chain| Edge { after: chain.task.clone(), task: definition.name.clone() }));
        }
        let stored =
            self.calls.iter().map(|((task, called), times)| Call { task: name_of(*task), called: name_of(*called), times: *times });
        let mut calls: Vec<_> = stored.filter(|call| !is_new(&call.task) && !is_removed(&call.task)).collect();
        for definition in &documents {
            let called = definition.called_tasks().into_iter();
            calls.extend(called.map(|(called, times)| Call { task: definition.name.clone(), called, times }));
        }
        let is_there = |name: &str| self.names.get(name).is_some_and(|named| !named.removed);
        chains::problems(&edges, &calls, |name| is_new(name) || is_there(name) && !is_removed(name))
    }

    /// Tasks that were not removed, by name.
    pub fn task_views(&self, after: Option<&str>, limit: usize) -> Vec<TaskView> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let there = self.names.range::<str, _>((behind, Bound::Unbounded)).filter(|(_, named)| !named.removed);
        there.map(|(name, named)| self.task_view(name, named)).take(limit).collect()
    }

    /// A task, also a removed one, and its versions, newest first.
    pub fn task_with_versions(&self, name: &str) -> Option<(TaskView, Vec<VersionView>)> {
        let (name, named) = self.names.get_key_value(name)?;
        let versions = self.versions.range((named.task, Version(0))..=(named.task, named.version)).rev();
        let versions = versions.map(|((_, version), stored)| VersionView {
            version: *version,
            at: stored.at,
            by: stored.by.clone(),
            document: stored.document.clone(),
        });
        Some((self.task_view(name, named), versions.collect()))
    }

    fn task_view(&self, name: &Arc<str>, named: &Named) -> TaskView {
        let versions = self.versions.range((named.task, Version(0))..=(named.task, named.version));
        TaskView {
            task: named.task,
            name: name.clone(),
            version: named.version,
            document: versions.rev().find_map(|(_, stored)| stored.document.clone()).unwrap_or_default(),
            removed: named.removed,
            next_fire: self.tasks.get(&named.task).and_then(|stored| stored.next_fire),
            source: named.source.clone(),
        }
    }

    /// The name of a task, also of a removed one.
    pub fn name_of(&self, task: TaskId) -> Option<&Arc<str>> {
        self.names_of.get(&task)
    }

    /// Instances, newest first.
    pub fn instance_views(&self, filter: &InstanceFilter) -> Vec<InstanceView> {
        let task = filter.task.as_ref().map(|name| self.names.get(name).map(|named| named.task));
        let end = filter.before.map_or(Bound::Unbounded, |before: InstanceCursor| Bound::Excluded((before, InstanceId(0))));
        let rows = self.firings.range((Bound::Unbounded, end)).rev().map(|(_, id)| &self.instances[id]);
        let meant = rows.filter(|row| {
            task.is_none_or(|task| task == Some(row.task))
                && (!filter.whole || row.part == Part::WHOLE)
                && filter.state.is_none_or(|state| row.state == state)
                && filter.key.as_ref().is_none_or(|key| row.key.as_ref() == Some(key))
        });
        meant.take(filter.limit).map(|row| self.instance_view(row)).collect()
    }

    /// A page of instances. The model looks at all there are.
    pub fn instance_page(&self, query: &InstanceQuery) -> InstancePage {
        let group = |task: TaskId| self.group_of(task);
        let filter = InstanceFilter { state: None, whole: false, key: None, limit: usize::MAX, ..query.filter.clone() };
        let all = self.instance_views(&filter).into_iter();
        let meant =
            all.filter(|view| query.matches(&view.row) && query.group.as_ref().is_none_or(|of| group(view.row.task).as_ref() == Some(of)));
        let instances: Vec<_> = meant.take(query.filter.limit).collect();
        let next = instances.last().filter(|_| instances.len() == query.filter.limit).map(|last| InstanceCursor::of(&last.row));
        InstancePage { instances, next }
    }

    /// The group of a task that was not removed.
    fn group_of(&self, task: TaskId) -> Option<Arc<str>> {
        let named = self.names.get(self.names_of.get(&task)?)?;
        self.versions[&(task, named.version)].definition.as_ref()?.group.clone()
    }

    /// Which tasks a source has, and how many.
    pub fn revision(&self, source: &str) -> (Revision, u64) {
        let own = self.names.values().filter(|named| !named.removed && &*named.source == source);
        let mut tasks: Vec<_> = own.map(|named| (named.task, named.version)).collect();
        tasks.sort_unstable();
        let revision = tasks.iter().fold(Revision::default(), |revision, (task, version)| revision.with(*task, *version));
        (revision, tasks.len() as u64)
    }

    /// A page of tasks.
    pub fn task_page(&self, query: &TaskQuery) -> TaskPage {
        if query.limit == 0 {
            return TaskPage::default();
        }
        let all = self.task_views(query.after.as_deref(), usize::MAX).into_iter();
        let of_group = all.filter(|view| query.group.as_ref().is_none_or(|group| self.group_of(view.task).as_ref() == Some(group)));
        let from_prefix = of_group.filter(|view| query.prefix.as_ref().is_none_or(|prefix| view.name >= *prefix));
        let Ok((tasks, next)) = query.choose(from_prefix.map(|view| Ok::<_, std::convert::Infallible>((view.clone(), view.name))));
        TaskPage { tasks, next }
    }

    /// Tasks that fire next before an instant.
    pub fn coming(&self, until: Timestamp, limit: usize) -> Vec<ComingTask> {
        let coming = self.tasks.iter().filter_map(|(task, stored)| {
            let (version, next_fire) = (stored.version?, stored.next_fire.filter(|at| *at < until)?);
            let name = self.names_of[task].clone();
            let document = self.versions[&(*task, version)].document.clone().filter(|_| !self.names[&name].removed)?;
            Some((next_fire, *task, ComingTask { name, version, document, next_fire }))
        });
        let mut coming: Vec<_> = coming.collect();
        coming.sort_by_key(|(at, task, _)| (*at, *task));
        coming.into_iter().take(limit).map(|(_, _, coming)| coming).collect()
    }

    /// How the firings of a task ended.
    pub fn task_days(&self, task: TaskId, from: i64) -> Vec<TaskDay> {
        let mut days = BTreeMap::<i64, TaskDay>::new();
        for row in self.instances.values().filter(|row| row.task == task && row.part == Part::WHOLE) {
            if let Some(day) = row.ended_at().map(TaskDay::of).filter(|day| *day >= from) {
                days.entry(day).or_insert(TaskDay { day, ..TaskDay::default() }).add(row.state);
            }
        }
        days.into_values().collect()
    }

    /// The nodes of a run, in the order of their parts.
    pub fn node_views(&self, run: InstanceId) -> Vec<InstanceView> {
        let whole = self.instances.get(&run).filter(|row| row.part == Part::WHOLE);
        whole.into_iter().flat_map(|row| self.nodes_of(row)).map(|row| self.instance_view(row)).collect()
    }

    /// An instance.
    pub fn instance(&self, id: InstanceId) -> Option<InstanceView> {
        self.instances.get(&id).map(|row| self.instance_view(row))
    }

    /// The instance that a manual trigger became: its first run.
    pub fn instance_of_submission(&self, ordinal: u64) -> Option<InstanceView> {
        let (found, _, id) = self.by_ordinal.range((ordinal, 0, InstanceId(0))..).next()?;
        (*found == ordinal).then(|| self.instance_view(&self.instances[id]))
    }

    fn instance_view(&self, row: &InstanceRow) -> InstanceView {
        InstanceView { row: row.clone(), task_name: self.name_of(row.task).cloned().unwrap_or_default() }
    }

    /// What this attempt of an instance wrote.
    pub fn output_of(&self, id: InstanceId, attempt: u32) -> Option<Output> {
        self.outputs.get(&(id, attempt)).cloned()
    }

    /// What the parts of a firing have answered, in their order.
    pub fn results_of(&self, of: Firings, from: Part, until: Part, limit: usize) -> Vec<Option<Arc<str>>> {
        let Firings { task, fire_time, ordinal, run, .. } = of;
        let place = |part| InstanceCursor { fire_time, task, ordinal, run, part };
        let parts = self.firings.range((place(from), InstanceId(0))..(place(until), InstanceId(0)));
        parts.take(limit).map(|(_, id)| self.instances[id].result.clone()).collect()
    }

    /// What the attempts of an instance wrote, by attempt.
    pub fn outputs_of(&self, id: InstanceId) -> Vec<(u32, Output)> {
        self.outputs.range((id, 0)..=(id, u32::MAX)).map(|((_, attempt), output)| (*attempt, output.clone())).collect()
    }

    /// The fire times of a task that were not fired, newest first; where that is equal, what was written last comes first.
    pub fn occurrences_of(&self, task: &str, limit: usize) -> Vec<Occurrence> {
        let Some(named) = self.names.get(task) else { return Vec::new() };
        let mut found: Vec<_> = self.occurrences.iter().filter(|occurrence| occurrence.task == named.task).rev().cloned().collect();
        found.sort_by_key(|occurrence| std::cmp::Reverse(occurrence.first));
        found.truncate(limit);
        found
    }

    /// All partitions and how they stand.
    pub fn partition_views(&self) -> Vec<PartitionView> {
        let views = (0_u16..).zip(&self.leases).map(|(partition, lease)| PartitionView {
            partition: PartitionId(partition),
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            expires_at: lease.expires_at,
            commit_seq: lease.commit_seq,
            inbox: self.inbox.values().filter(|entry| entry.partition.0 == partition).count() as u64,
            live: self.live.iter().filter(|id| id.partition().0 == partition).count() as u64,
        });
        views.collect()
    }

    /// How many instances are in each state that has any.
    pub fn counts(&self) -> Vec<(State, u64)> {
        let mut counts = BTreeMap::new();
        for row in self.instances.values() {
            *counts.entry(row.state).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}
