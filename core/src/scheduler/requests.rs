//! The inbox: taking entries in, and doing what they ask for.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::definition::{TaskDefinition, Trigger};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId, Version};
use crate::inbox::{InboxEntry, Request, Submission, ordinal_of};
use crate::instance::{Cause, Origin, State};
use crate::misfire;
use crate::occurrence::Outcome;
use crate::scheduler::firing::Firing;
use crate::scheduler::{Command, Scheduler, Task};
use crate::time::{Millis, Timestamp};

/// What is known of the inboxes of this replica's partitions.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Something may have come since it was last read.
    pub(super) is_signalled: bool,
    is_being_read: bool,
    /// Read and not applied yet, in order.
    pub(super) backlog: VecDeque<InboxEntry>,
    /// In the backlog, or applied in a batch that has not been committed yet: the store still has them.
    known: FxHashMap<InboxId, PartitionId>,
    /// Where to read on while there is more; 0 begins anew.
    after: InboxId,
}

impl Inbox {
    /// Partitions have come: read from the beginning.
    pub(super) fn restart(&mut self) {
        self.after = InboxId(0);
        self.is_signalled = true;
    }

    /// A partition has gone: its entries will be read anew.
    pub(super) fn forget_partition(&mut self, id: PartitionId) {
        self.known.retain(|_, partition| *partition != id);
        self.backlog.retain(|entry| entry.partition != id);
    }

    /// These entries are gone from the store.
    pub(super) fn forget(&mut self, ids: impl IntoIterator<Item = InboxId>) {
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
        self.commands.push_back(Command::ReadInbox { partitions, after: self.inbox.after });
    }

    pub(super) fn inbox_read(&mut self, entries: Vec<InboxEntry>, more: bool) {
        self.inbox.is_being_read = false;
        self.inbox.after = match entries.last() {
            Some(last) if more => last.id,
            _ => InboxId(0),
        };
        self.inbox.is_signalled |= more;
        for entry in entries {
            if self.is_owned(entry.partition) && guard!(Guard::InboxOnce, !self.inbox.known.contains_key(&entry.id)) {
                self.inbox.known.insert(entry.id, entry.partition);
                self.inbox.backlog.push_back(entry);
            }
        }
    }

    /// Applies what was read, as far as there is room.
    pub(super) fn apply_inbox(&mut self) {
        while self.takes_new_work()
            && let Some(entry) = self.inbox.backlog.pop_front()
        {
            self.pending.applied.push((entry.partition, entry.id));
            self.apply(entry);
        }
    }

    fn apply(&mut self, entry: InboxEntry) {
        match entry.request {
            Request::DefinitionChanged { task, version, definition: Some(definition) } => {
                self.define(task, version, definition, entry.partition, entry.at);
            }
            Request::DefinitionChanged { task, version, definition: None } => self.remove(task, version, entry.at),
            Request::Trigger { task, submissions } => {
                for (index, submission) in submissions.into_iter().enumerate() {
                    self.trigger(task, submission, ordinal_of(entry.id, index), entry.at, &entry.by);
                }
            }
            Request::Cancel { instance, reason } => {
                let reason = match reason {
                    Some(reason) => format!("by {}: {reason}", entry.by),
                    None => format!("by {}", entry.by),
                };
                self.cancel_instance(instance, Cause::CancelRequested, Some(Arc::from(reason)));
            }
        }
    }

    /// A task was made or edited at `at`. Nothing that an edit does makes it fire by itself.
    fn define(&mut self, id: TaskId, version: Version, definition: Arc<TaskDefinition>, partition: PartitionId, at: Timestamp) {
        let Some(task) = self.tasks.get(&id) else {
            let next_fire = if definition.enabled && version == Version(1) {
                misfire::first(&definition.trigger, at)
            } else {
                after_edit(&definition, at)
            };
            let task = Task { version, definition, partition, next_fire, timer: None, is_dirty: false, instances: None };
            self.tasks.insert(id, task);
            self.mark_task(id);
            self.arm_task(id);
            return;
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
        if !is_kept {
            let is_in_progress = task.instances.as_ref().is_some_and(|of| !of.in_progress.is_empty());
            task.next_fire = match (&definition.trigger, cursor) {
                _ if !definition.enabled => None,
                // The next fire time counts from the end of the instance.
                (Trigger::FixedDelay { .. }, None) if is_in_progress => None,
                // One that is still to come moves with the delay; one that has come does not come again.
                (Trigger::Delay { delay }, Some(_)) if matches!(before.trigger, Trigger::Delay { .. }) => Some(at.saturating_add(*delay)),
                _ => after_edit(&definition, at),
            };
            if let Some(cursor) = cursor
                && cursor <= at
            {
                // Fire times of the old trigger that had passed by the time of the edit, with nobody there to fire them.
                let last = misfire::last_until(&before.trigger, cursor, at);
                let count = misfire::count_until(&before.trigger, cursor, last);
                self.record_run(id, version_before, misfire::Run { first: cursor, last, count, outcome: Outcome::Withdrawn });
            }
        }
        if !definition.enabled && before.enabled {
            self.cancel_scheduled_waiting(id, Cause::TaskDisabled);
        }
        self.mark_task(id);
        self.arm_task(id);
        self.fill_free_places(id);
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
            let last = misfire::last_until(&trigger, cursor, at);
            let count = misfire::count_until(&trigger, cursor, last);
            self.record_run(id, version_before, misfire::Run { first: cursor, last, count, outcome: Outcome::Withdrawn });
        }
        self.disarm_task(id);
        let mut not_started: Vec<_> = self
            .instances
            .values()
            .filter(|live| live.row.task == id && !live.row.state.is_with_worker() && !live.row.state.is_terminal())
            .map(|live| live.row.id)
            .collect();
        not_started.sort_unstable();
        for instance in not_started {
            self.cancel_instance(instance, Cause::TaskRemoved, None);
        }
        let task = self.tasks.remove(&id).expect("looked up above");
        self.pending.removed_tasks.push((task.partition, id));
    }

    fn trigger(&mut self, id: TaskId, submission: Submission, ordinal: u64, at: Timestamp, by: &Arc<str>) {
        let Some(task) = self.tasks.get(&id) else { return };
        let own_delay = match task.definition.trigger {
            Trigger::Delay { delay } => delay,
            _ => Millis::ZERO,
        };
        let fire_time = at.saturating_add(submission.delay.unwrap_or(own_delay));
        let firing = Firing {
            task: id,
            version: task.version,
            definition: task.definition.clone(),
            fire_time,
            ordinal,
            origin: Origin::Manual,
            payload: submission.payload,
            key: submission.key,
            detail: Some(by.clone()),
        };
        if fire_time <= self.now.wall {
            self.fire(firing);
            return;
        }
        let due_in = fire_time.since(self.now.wall);
        let instance = self.insert(firing, State::Waiting, Cause::Triggered);
        self.instances.get_mut(&instance).expect("just inserted").row.due_at = Some(fire_time);
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
            if live.cancel.is_none() {
                live.cancel = Some((cause, detail));
                self.ask_to_cancel(id);
            }
            return;
        }
        let was_in_progress = live.row.state.is_in_progress();
        live.change(State::Cancelled, cause, now).detail = detail;
        live.row.due_at = None;
        let task = live.row.task;
        if let Some(key) = live.timer.take() {
            self.monotonic_timers.cancel(key);
        }
        self.mark_instance(id);
        if was_in_progress {
            self.leave_progress(id);
        } else if let Some(instances) = self.tasks.get_mut(&task).and_then(|task| task.instances.as_mut()) {
            instances.waiting.retain(|waiting| *waiting != id);
        }
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
        self.cancel_waiting(task, cause, |origin| origin != Origin::Manual);
        let Some(instances) = self.tasks.get(&task).and_then(|task| task.instances.as_ref()) else { return };
        let created: Vec<_> = instances.in_progress.iter().copied().collect();
        for id in created {
            let row = &self.instances[&id].row;
            if row.state == State::Created && row.origin != Origin::Manual {
                self.cancel_instance(id, cause, None);
            }
        }
    }
}

/// The cursor after an edit at `at`: counted from the edit, and none for a delay, which only a trigger sets going again.
fn after_edit(definition: &TaskDefinition, at: Timestamp) -> Option<Timestamp> {
    match definition.trigger {
        _ if !definition.enabled => None,
        Trigger::Delay { .. } => None,
        _ => misfire::first(&definition.trigger, at),
    }
}
