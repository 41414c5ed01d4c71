//! The inbox: taking entries in, and doing what they ask for.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::definition::{TaskDefinition, Trigger};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use crate::inbox::{InboxEntry, Notice, Request, ordinal_of};
use crate::instance::{Cause, Links, Origin, Part, State};
use crate::limits;
use crate::misfire;
use crate::occurrence::{Occurrence, Outcome};
use crate::scheduler::firing::{self, Firing};
use crate::scheduler::{Command, Removed, Scheduler, Task, TaskInstances};
use crate::time::{Millis, Timestamp};

/// So many tasks that were removed are remembered for what they have fired; those with running instances are remembered beyond it.
const REMOVED_MAX: usize = 10_000;

/// What is known of the inboxes of this replica's partitions.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Something may have come since it was last read.
    pub(super) is_signalled: bool,
    is_being_read: bool,
    /// The partitions that it is being read for, unless they were dropped meanwhile: what was read for those is out of date.
    asked_for: Vec<PartitionId>,
    /// Applied and committed while it was being read: the answer may still have them.
    applied_meanwhile: Vec<InboxId>,
    /// Read and not applied yet, in order.
    pub(super) backlog: VecDeque<InboxEntry>,
    /// In the backlog, or applied in a batch that has not been committed yet: the store still has them.
    known: FxHashMap<InboxId, PartitionId>,
    /// Where to read on while there is more; 0 begins anew.
    after: InboxId,
    /// Partitions have come while it was being read: their entries may lie before where it would be read on.
    begins_anew: bool,
}

/// A firing that somebody asks for.
pub(super) struct Asked {
    pub(super) task: TaskId,
    pub(super) partition: PartitionId,
    pub(super) origin: Origin,
    pub(super) ordinal: u64,
    /// When it was asked for, by the store's clock.
    pub(super) at: Timestamp,
    /// Who asks.
    pub(super) by: Arc<str>,
    pub(super) payload: Option<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
    /// In place of the trigger's own.
    pub(super) delay: Option<Millis>,
    pub(super) links: Option<Box<Links>>,
}

impl Inbox {
    /// Partitions have come: read from the beginning.
    pub(super) fn restart(&mut self) {
        self.after = InboxId(0);
        self.begins_anew = self.is_being_read;
        self.is_signalled = true;
    }

    /// A partition has gone: its entries will be read anew.
    pub(super) fn forget_partition(&mut self, id: PartitionId) {
        self.asked_for.retain(|partition| *partition != id);
        self.known.retain(|_, partition| *partition != id);
        self.backlog.retain(|entry| entry.partition != id);
    }

    /// These entries are gone from the store.
    pub(super) fn forget(&mut self, ids: impl IntoIterator<Item = InboxId>) {
        if self.is_being_read {
            return self.applied_meanwhile.extend(ids);
        }
        for id in ids {
            self.known.remove(&id);
        }
    }
}

impl Scheduler {
    /// Reads the inbox when there may be something in it, and room for it.
    pub(super) fn read_inbox(&mut self) {
        if !self.inbox.is_signalled || self.inbox.is_being_read || !self.inbox.backlog.is_empty() || !self.takes_new_work() {
            return;
        }
        let partitions = self.owned_partitions();
        if partitions.is_empty() {
            return;
        }
        self.inbox.is_signalled = false;
        self.inbox.is_being_read = true;
        self.inbox.asked_for.clone_from(&partitions);
        self.commands.push_back(Command::ReadInbox { partitions, after: self.inbox.after });
    }

    pub(super) fn inbox_read(&mut self, entries: Vec<InboxEntry>, more: bool) {
        if !std::mem::take(&mut self.inbox.is_being_read) {
            return;
        }
        let begins_anew = std::mem::take(&mut self.inbox.begins_anew);
        self.inbox.after = match entries.last() {
            Some(last) if more && !begins_anew => last.id,
            _ => InboxId(0),
        };
        self.inbox.is_signalled |= more;
        let asked_for = std::mem::take(&mut self.inbox.asked_for);
        for entry in entries {
            let is_fresh = asked_for.contains(&entry.partition);
            if is_fresh && guard!(Guard::InboxOnce, !self.inbox.known.contains_key(&entry.id)) {
                self.inbox.known.insert(entry.id, entry.partition);
                self.inbox.backlog.push_back(entry);
            }
        }
        let applied = std::mem::take(&mut self.inbox.applied_meanwhile);
        self.inbox.forget(applied);
        self.inbox_was_read_for(&asked_for);
    }

    /// Applies what was read, as far as there is room.
    pub(super) fn apply_inbox(&mut self) {
        while self.takes_new_work()
            && let Some(entry) = self.inbox.backlog.pop_front()
        {
            if let Some(applied) = self.apply(entry) {
                self.lanes.pending(applied.0).applied.push(applied);
            }
        }
    }

    /// Does what an entry asks for. Answers with the entry where that is all there is to it.
    fn apply(&mut self, entry: InboxEntry) -> Option<(PartitionId, InboxId)> {
        if !self.is_owned(entry.partition) {
            // To be handed over: the next owner applies it.
            return None;
        }
        let applied = Some((entry.partition, entry.id));
        let entry = match self.take_notice(entry) {
            Ok(()) => return applied,
            Err(entry) => entry,
        };
        match entry.request {
            Request::DefinitionChanged { task, version, definition: Some(definition), fired_until } => {
                self.define(task, version, definition, entry.partition, entry.at, fired_until.unwrap_or(Timestamp::MIN));
            }
            Request::DefinitionChanged { task, version, definition: None, .. } => self.remove(task, version, entry.at),
            Request::Trigger { task, submissions } => {
                for (index, submission) in submissions.into_iter().take(limits::SUBMISSIONS_MAX).enumerate() {
                    self.fire_for(Asked {
                        task,
                        partition: entry.partition,
                        origin: Origin::Manual,
                        ordinal: ordinal_of(entry.id, index),
                        at: entry.at,
                        by: entry.by.clone(),
                        payload: submission.payload,
                        key: submission.key,
                        delay: submission.delay,
                        links: None,
                    });
                }
            }
            Request::ReferencesChanged { task, references } => self.references_changed(entry.partition, task, references),
            Request::Notice(_) => unreachable!("taken above"),
            Request::Rerun { of } => self.rerun(entry.partition, entry.at, &entry.by, *of),
            Request::MarkNode { instance, node, mark, reason } => {
                self.mark_node(instance, node, mark, by_whom(&entry.by, reason.as_deref()));
            }
            Request::Cancel { instance, reason } => {
                let detail = by_whom(&entry.by, reason.as_deref());
                self.cancel_instance(instance, Cause::CancelRequested, Some(detail));
                if let Some(live) = self.instances.get_mut(&instance)
                    && live.row.state.is_with_worker()
                    && !guard!(Guard::CancelKeptUntilEnd, false)
                {
                    live.cancel_requests.push(entry.id);
                    return None;
                }
            }
        }
        applied
    }

    /// Does what another owner asks for; anything else is handed back.
    fn take_notice(&mut self, entry: InboxEntry) -> Result<(), InboxEntry> {
        let Request::Notice(notice) = &entry.request else { return Err(entry) };
        match notice {
            Notice::Chained { task, cause, hops, payload } => self.chained(&entry, *task, *cause, *hops, payload.clone()),
        }
        Ok(())
    }

    /// A task was made or edited at `at`. Nothing that an edit does makes it fire by itself.
    fn define(
        &mut self,
        id: TaskId,
        version: Version,
        definition: Arc<TaskDefinition>,
        partition: PartitionId,
        at: Timestamp,
        fired_until: Timestamp,
    ) {
        let Some(task) = self.tasks.get(&id) else {
            return self.make(id, version, definition, partition, at, fired_until);
        };
        if task.version >= version {
            return;
        }
        self.disarm_task(id);
        let task = self.tasks.get_mut(&id).expect("looked up above");
        let before = std::mem::replace(&mut task.definition, definition.clone());
        let version_before = std::mem::replace(&mut task.version, version);
        let cursor = task.next_fire;
        let is_kept = before.trigger == definition.trigger && before.enabled == definition.enabled;
        if let Some(fired) = cursor.and_then(|cursor| misfire::preceding(&before.trigger, at, cursor)) {
            task.fired_until = task.fired_until.max(fired);
        }
        if !is_kept {
            let fired_until = task.fired_until;
            let has_scheduled_instance = self.has_scheduled_instance(id);
            let task = self.tasks.get_mut(&id).expect("looked up above");
            task.next_fire = match (&definition.trigger, cursor) {
                _ if !definition.enabled => None,
                // The next fire time counts from the end of the instance.
                (trigger, None) if trigger.fixed_delay().is_some() && has_scheduled_instance => None,
                // One that is still to come moves with the delay; one that has come does not come again.
                (Trigger::Delay { delay }, Some(_)) if matches!(before.trigger, Trigger::Delay { .. }) => Some(at.saturating_add(*delay)),
                _ => after_edit(&definition, at, fired_until),
            };
            if let Some(cursor) = cursor
                && cursor <= at
            {
                // Fire times of the old trigger that had passed by the time of the edit, with nobody there to fire them.
                for run in misfire::withdrawn(&before.trigger, cursor, at) {
                    self.record_run(id, version_before, run, None);
                }
            }
        }
        if !definition.enabled && before.enabled {
            self.cancel_scheduled_waiting(id, Cause::TaskDisabled);
        }
        if before.policies.rate != definition.policies.rate {
            self.release_throttled(id);
        }
        self.mark_task(id);
        self.arm_task(id);
        self.fill_free_places(id);
    }

    /// A task is new to this owner.
    fn make(
        &mut self,
        id: TaskId,
        version: Version,
        definition: Arc<TaskDefinition>,
        partition: PartitionId,
        at: Timestamp,
        fired_until: Timestamp,
    ) {
        let removed = self.removed.remove(&id);
        // One batch must not say both; what it would say last is not what counts.
        self.lanes.pending(partition).removed_tasks.retain(|(_, removed, _)| *removed != id);
        let fired_until = removed.as_ref().map_or(fired_until, |removed| removed.fired_until.max(fired_until));
        let next_fire = if definition.enabled && version == Version(1) {
            misfire::first(&definition.trigger, at)
        } else {
            after_edit(&definition, at, fired_until)
        };
        let in_progress = removed.map(|removed| removed.in_progress).unwrap_or_default();
        let instances = (!in_progress.is_empty()).then(|| Box::new(TaskInstances { in_progress, ..TaskInstances::default() }));
        let task = Task { version, definition, partition, next_fire, timer: None, fired_until, is_dirty: false, instances };
        self.tasks.insert(id, Box::new(task));
        self.mark_task(id);
        self.arm_task(id);
    }

    /// A task was removed: it fires no more, what waits is cancelled, what runs may end.
    fn remove(&mut self, id: TaskId, version: Version, at: Timestamp) {
        let Some(task) = self.tasks.get(&id) else { return };
        if task.version >= version {
            return;
        }
        let (cursor, version_before, trigger) = (task.next_fire, task.version, task.definition.trigger.clone());
        if let Some(cursor) = cursor
            && cursor <= at
        {
            for run in misfire::withdrawn(&trigger, cursor, at) {
                self.record_run(id, version_before, run, None);
            }
        }
        self.disarm_task(id);
        // First those that wait: they are not to take the places of the others.
        let of_task = self.tasks[&id].instances.as_ref();
        let all = of_task.into_iter().flat_map(|of| of.waiting.iter().chain(&of.delayed).chain(&of.in_progress));
        let not_started: Vec<_> = all.copied().filter(|id| !self.instances[id].row.state.is_with_worker()).collect();
        for instance in not_started {
            self.cancel_instance(instance, Cause::TaskRemoved, None);
        }
        self.wind_up_runs(id);
        self.disarm_task(id);
        let task = self.tasks.remove(&id).expect("looked up above");
        let fired = cursor.and_then(|cursor| misfire::preceding(&trigger, at, cursor));
        let fired_until = task.fired_until.max(fired.unwrap_or(Timestamp::MIN));
        self.lanes.pending(task.partition).removed_tasks.push((task.partition, id, fired_until));
        let in_progress = task.instances.map(|of| of.in_progress).unwrap_or_default();
        if self.removed.len() >= REMOVED_MAX {
            self.removed.retain(|_, removed| !removed.in_progress.is_empty());
        }
        self.removed.insert(id, Removed { partition: task.partition, in_progress, fired_until });
    }

    /// An instance of a task that was removed has ended.
    pub(super) fn forget_left_behind(&mut self, task: TaskId, instance: InstanceId) {
        let Some(removed) = self.removed.get_mut(&task) else { return };
        removed.in_progress.remove(&instance);
    }

    /// Fires a task for whoever has asked, at once or when its delay has passed.
    pub(super) fn fire_for(&mut self, asked: Asked) {
        let Asked { task: id, partition, origin, ordinal, at, by, payload, key, delay, links } = asked;
        let Some(task) = self.tasks.get(&id) else {
            return self.record_trigger_of_nothing(id, partition, at);
        };
        let own_delay = match task.definition.trigger {
            Trigger::Delay { delay } => delay,
            _ => Millis::ZERO,
        };
        let delay = delay.unwrap_or(own_delay);
        let fire_time = at.saturating_add(delay);
        let firing = Firing {
            task: id,
            version: task.version,
            definition: task.definition.clone(),
            fire_time,
            ordinal,
            run: 1,
            part: Part::WHOLE,
            origin,
            payload,
            key,
            links,
            detail: Some(by),
            carried: Vec::new(),
        };
        // Never longer than what was asked for, also where the wall clock was set back meanwhile.
        let due_in = fire_time.since(self.wall_read).min(delay);
        if due_in == Millis::ZERO {
            self.fire(firing);
            return;
        }
        let cause = firing::cause_of(origin);
        let instance = self.insert(firing, State::Waiting, cause);
        self.instances.get_mut(&instance).expect("just inserted").row.due_at = Some(self.now.wall.saturating_add(due_in));
        let task = self.tasks.get_mut(&id).expect("looked up above");
        task.instances.get_or_insert_default().delayed.insert(instance);
        self.arm_instance(instance, due_in);
    }

    /// Cancels an instance: at once where no worker has it, else by asking the worker. One that has ended stays as it is.
    pub(super) fn cancel_instance(&mut self, id: InstanceId, cause: Cause, detail: Option<Arc<str>>) {
        let now = self.now.wall;
        let Some(live) = self.instances.get_mut(&id) else { return };
        if live.row.state.is_terminal() {
            return;
        }
        if live.row.state.is_with_worker() {
            // A run that is left to its end, since its task is gone or a new owner has found it cancelled, can still be cancelled.
            let is_wound_up = live.row.is_run() && matches!(live.cancel, Some((Cause::TaskRemoved | Cause::ParentEnded, _)));
            if live.cancel.is_none() || is_wound_up {
                live.cancel = Some((cause, detail));
                match live.row.has_parts() {
                    true => self.cancel_parts(id),
                    false => self.ask_to_cancel(id),
                }
            }
            return;
        }
        let was_in_progress = live.row.state.is_in_progress();
        live.change(State::Cancelled, cause, now).detail = detail;
        live.row.due_at = None;
        let task = live.row.task;
        let was_created = live.row.transitions.iter().rev().nth(1).is_some_and(|before| before.to == State::Created);
        if let Some(key) = live.timer.take() {
            self.instance_timers.cancel(key);
        }
        self.mark_instance(id);
        self.tell_chained(id);
        if was_created {
            self.forget_ready(id);
        }
        if was_in_progress {
            return self.leave_progress(id);
        }
        if let Some(instances) = self.tasks.get_mut(&task).and_then(|task| task.instances.as_mut()) {
            instances.waiting.retain(|waiting| *waiting != id);
            instances.delayed.remove(&id);
        }
        self.fill_free_places(task);
        // A fixed delay waits for this one no longer.
        self.end_fixed_delay(id);
    }

    /// The owner knows of no such task, or of no such nodes: it was removed or changed before the entry came. On record as a fire time that was
    /// given up.
    pub(super) fn record_trigger_of_nothing(&mut self, task: TaskId, partition: PartitionId, at: Timestamp) {
        let (version, outcome) = (Version(0), Outcome::Withdrawn);
        let occurrence = Occurrence { task, version, first: at, last: at, count: 1, outcome, instance: None, at: self.now.wall };
        self.lanes.pending(partition).occurrences.push((partition, occurrence));
    }

    /// Cancels those behind a task's limit that `is_meant`.
    pub(super) fn cancel_waiting(&mut self, task: TaskId, cause: Cause, is_meant: impl Fn(Origin) -> bool) {
        let Some(instances) = self.tasks.get(&task).and_then(|task| task.instances.as_ref()) else { return };
        let waiting: Vec<_> = instances.waiting.iter().copied().filter(|id| is_meant(self.instances[id].row.origin)).collect();
        for id in waiting {
            self.cancel_instance(id, cause, None);
        }
    }

    /// A disabled task starts nothing of its own any more; what was asked for by hand stays.
    fn cancel_scheduled_waiting(&mut self, task: TaskId, cause: Cause) {
        self.cancel_waiting(task, cause, |origin| !origin.is_by_hand());
        let Some(instances) = self.tasks.get(&task).and_then(|task| task.instances.as_ref()) else { return };
        let created: Vec<_> = instances.in_progress.iter().copied().collect();
        for id in created {
            let row = &self.instances[&id].row;
            if row.state == State::Created && !row.origin.is_by_hand() {
                self.cancel_instance(id, cause, None);
            }
        }
    }
}

/// Who asked for something, and why.
pub(super) fn by_whom(by: &str, reason: Option<&str>) -> Arc<str> {
    match reason {
        Some(reason) => Arc::from(format!("by {by}: {reason}")),
        None => Arc::from(format!("by {by}")),
    }
}

/// The cursor after an edit at `at`: counted from the edit, and none for a delay, which only a trigger sets going again.
///
/// The old version may have fired between the edit and the moment at which its owner heard of it, or before the wall clock was set
/// back: a fire time that was dealt with does not come again.
fn after_edit(definition: &TaskDefinition, at: Timestamp, fired_until: Timestamp) -> Option<Timestamp> {
    match definition.trigger {
        _ if !definition.enabled => None,
        Trigger::Delay { .. } => None,
        _ => match misfire::first(&definition.trigger, at) {
            Some(first) if first <= fired_until => misfire::first(&definition.trigger, fired_until),
            first => first,
        },
    }
}
