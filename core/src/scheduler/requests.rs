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
use crate::limit_key::LimitKey;
use crate::limits;
use crate::misfire;
use crate::occurrence::{Occurrence, Outcome};
use crate::scheduler::firing::Firing;
use crate::scheduler::groups::makes_room;
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

    /// Whether a task is still to be made, or removed, by what was read.
    fn defines(&self, id: TaskId) -> bool {
        self.backlog.iter().any(|entry| matches!(entry.request, Request::DefinitionChanged { task, .. } if task == id))
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
        if !self.inbox.is_signalled || self.inbox.is_being_read || !self.inbox.backlog.is_empty() || !self.has_room_to_write() {
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
            self.apply_and_remove(entry);
        }
        // A memory that is full of instances which wait for their groups, or for what they have called, would wait for ever.
        while self.has_room_to_write()
            && let Some(index) = self.inbox.backlog.iter().position(|entry| self.goes_before_others(entry))
            && let Some(entry) = self.inbox.backlog.remove(index)
        {
            self.apply_and_remove(entry);
        }
    }

    /// Whether an entry is applied also where there is no room for more instances.
    fn goes_before_others(&self, entry: &InboxEntry) -> bool {
        match &entry.request {
            Request::Notice(Notice::Called { task: Some(task), .. }) => self.tasks.contains_key(task) || !self.inbox.defines(*task),
            Request::Notice(notice) => makes_room(notice),
            _ => false,
        }
    }

    fn apply_and_remove(&mut self, entry: InboxEntry) {
        if let Some(applied) = self.apply(entry) {
            self.lanes.pending(applied.0).applied.push(applied);
        }
    }

    /// Does what an entry asks for. Answers with the entry where that is all there is to it.
    fn apply(&mut self, entry: InboxEntry) -> Option<(PartitionId, InboxId)> {
        if !self.is_owned(entry.partition) {
            // To be handed over: the next owner applies it.
            return None;
        }
        let applied = Some((entry.partition, entry.id));
        if let Request::Notice(notice) = &entry.request {
            let is_kept = self.take_notice(&entry, notice);
            return applied.filter(|_| !is_kept);
        }
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
            Request::PauseChanged { scope, is_paused } => self.pause_changed(entry.partition, scope, is_paused, entry.at),
            Request::Notice(_) => unreachable!("taken above"),
            Request::Backfill { ref plan } => self.backfill(&entry, Arc::clone(plan)),
            Request::CancelBackfill { backfill, reason, .. } => self.cancel_backfill(backfill, &entry.by, reason.as_deref()),
            Request::Rerun { of } => self.rerun(entry.partition, entry.at, &entry.by, *of),
            Request::Delayed { task, ordinal, change, reason } => self.change_delayed(task, ordinal, change, &entry.by, reason.as_deref()),
            Request::MarkNode { instance, node, mark, reason } => {
                self.mark_node(instance, node, mark, by_whom(&entry.by, reason.as_deref()));
            }
            Request::Skip { instance, reason } => self.skip_instance(instance, by_whom(&entry.by, reason.as_deref())),
            Request::Cancel { instance, ref reason } | Request::Kill { instance, ref reason } => {
                let cause = match entry.request {
                    Request::Kill { .. } => Cause::KillRequested,
                    _ => Cause::CancelRequested,
                };
                let detail = by_whom(&entry.by, reason.as_deref());
                self.cancel_instance(instance, cause, Some(detail));
                if self.is_kept_until_end(instance, entry.id) {
                    return None;
                }
            }
        }
        applied
    }

    /// An instance was asked to end, and hasn't yet: the entry stays in the inbox until it has, so that a new owner finds it.
    pub(super) fn is_kept_until_end(&mut self, instance: InstanceId, entry: InboxId) -> bool {
        let Some(live) = self.instances.get_mut(&instance).filter(|live| live.row.state.is_with_worker()) else { return false };
        let is_kept = !guard!(Guard::CancelKeptUntilEnd, false);
        if is_kept {
            live.cancel_requests.push(entry);
        }
        is_kept
    }

    /// Does what another owner asks for, and answers whether the entry stays in the inbox nevertheless.
    fn take_notice(&mut self, entry: &InboxEntry, notice: &Notice) -> bool {
        match notice {
            Notice::Chained { task, cause, hops, payload } => self.chained(entry, *task, *cause, *hops, payload.clone()),
            Notice::GroupAsk { group, instance, task, limits } => self.slot_asked_for(entry, group, *instance, *task, *limits),
            Notice::GroupGrant { instance, .. } => self.slot_granted(*instance),
            Notice::GroupRelease { instance, .. } => self.slot_given_back(*instance),
            Notice::Called { .. } => self.called(entry, notice),
            Notice::CallCancelled { caller, is_killed, .. } => return self.call_cancelled(entry, *caller, *is_killed),
            Notice::CallEnded { caller, instance, state, result, detail, .. } => {
                self.call_ended(*caller, *instance, *state, result.clone(), detail.as_deref());
            }
        }
        false
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
        let is_kept = {
            let before = &self.tasks[&id].definition;
            before.trigger == definition.trigger && before.enabled == definition.enabled
        };
        // Fire times of the old trigger that had passed by the time of the edit, with nobody there to fire them.
        let given_up = match self.tasks[&id].next_fire {
            Some(cursor) if !is_kept && cursor <= at => {
                let was_parked = self.pauses.unpark(partition, id);
                self.given_up(id, was_parked, cursor, at)
            }
            _ => Vec::new(),
        };
        let task = self.tasks.get_mut(&id).expect("looked up above");
        let before = std::mem::replace(&mut task.definition, definition.clone());
        let version_before = std::mem::replace(&mut task.version, version);
        let cursor = task.next_fire;
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
            given_up.into_iter().for_each(|run| self.record_run(id, version_before, run, None));
        }
        if !definition.enabled && before.enabled {
            self.cancel_scheduled_waiting(id, Cause::TaskDisabled);
        }
        if before.policies.rate != definition.policies.rate {
            self.release_throttled(id);
        }
        if before.policies.limit_key != definition.policies.limit_key {
            self.count_anew(id);
        }
        self.mark_task(id);
        self.arm_task(id);
        self.fill_all_free_places(id);
        if before.group != definition.group {
            self.release_paused(partition, at);
        }
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
        let instances = (!in_progress.is_empty()).then(|| {
            let mut instances = Box::<TaskInstances>::default();
            in_progress.into_iter().for_each(|instance| instances.begin(None, instance));
            instances
        });
        let task = Task { version, definition, partition, next_fire, timer: None, fired_until, is_dirty: false, instances };
        self.tasks.insert(id, Box::new(task));
        self.count_anew(id);
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
        let partition = task.partition;
        let was_parked = self.pauses.unpark(partition, id);
        if let Some(cursor) = cursor
            && cursor <= at
        {
            for run in self.given_up(id, was_parked, cursor, at) {
                self.record_run(id, version_before, run, None);
            }
        }
        self.disarm_task(id);
        self.cancel_backfill_of(id);
        // First those that wait: they are not to take the places of the others.
        let of_task = self.tasks[&id].instances.as_ref();
        let all = of_task.into_iter().flat_map(|of| of.waiting().chain(of.delayed()).chain(of.in_progress()));
        let not_started: Vec<_> = all.filter(|id| !self.instances[id].row.state.is_with_worker()).collect();
        for instance in not_started {
            self.cancel_instance(instance, Cause::TaskRemoved, None);
        }
        self.wind_up_runs(id);
        self.disarm_task(id);
        let task = self.tasks.remove(&id).expect("looked up above");
        let fired = cursor.and_then(|cursor| misfire::preceding(&trigger, at, cursor));
        let fired_until = task.fired_until.max(fired.unwrap_or(Timestamp::MIN));
        self.lanes.pending(task.partition).removed_tasks.push((task.partition, id, fired_until));
        let in_progress = task.instances.map(|of| of.in_progress().collect()).unwrap_or_default();
        if self.removed.len() >= REMOVED_MAX {
            self.removed.retain(|_, removed| !removed.in_progress.is_empty());
        }
        self.removed.insert(id, Removed { partition: task.partition, in_progress, fired_until });
        // What it has begun may end.
        self.release_paused(partition, at);
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
        self.fire_later(firing, due_in);
    }

    /// Cancels an instance: at once where no worker has it, else by asking the worker. One that has ended stays as it is.
    pub(super) fn cancel_instance(&mut self, id: InstanceId, cause: Cause, detail: Option<Arc<str>>) {
        let Some(live) = self.instances.get_mut(&id) else { return };
        if live.row.state.is_terminal() {
            return;
        }
        if live.row.state.is_with_worker() {
            let is_killed = cause == Cause::KillRequested;
            // Whoever asks first is on record, but a kill is more than what was asked for before.
            // A run that is left to its end, since its task is gone or a new owner has found it cancelled, can still be cancelled.
            let is_run = live.row.is_run();
            let is_more = |asked: &(Cause, _)| match asked.0 {
                Cause::KillRequested => false,
                Cause::TaskRemoved | Cause::ParentEnded => is_killed || is_run,
                _ => is_killed,
            };
            if live.cancel.as_ref().is_none_or(is_more) {
                live.cancel = Some((cause, detail));
                match () {
                    () if live.row.has_parts() => self.cancel_parts(id, if is_killed { cause } else { Cause::ParentEnded }),
                    () if live.row.calls().is_some() => self.cancel_call(id, is_killed),
                    () => self.ask_to_cancel(id),
                }
            }
            return;
        }
        self.end_unbegun(id, State::Cancelled, cause, detail);
    }

    /// Ends an instance that no worker has.
    pub(super) fn end_unbegun(&mut self, id: InstanceId, state: State, cause: Cause, detail: Option<Arc<str>>) {
        let now = self.now.wall;
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        let was_in_progress = live.row.state.is_in_progress();
        let waited_for_group = live.row.waits_for_group().is_some();
        let key = live.limit_key;
        live.change(state, cause, now).detail = detail;
        live.row.due_at = None;
        let (task, ordinal) = (live.row.task, live.row.ordinal);
        let was_created = live.row.transitions.iter().rev().nth(1).is_some_and(|before| before.to == State::Created);
        if let Some(key) = live.timer.take() {
            self.instance_timers.cancel(key);
        }
        self.mark_instance(id);
        self.tell_chained(id);
        self.tell_caller(id);
        self.give_slot_back(id);
        self.backfilled_one_ended(id);
        if was_created && !waited_for_group {
            self.forget_ready(id);
        }
        if was_in_progress {
            return self.leave_progress(id);
        }
        if let Some(instances) = self.tasks.get_mut(&task).and_then(|task| task.instances.as_mut()) {
            instances.leave(key, id);
            instances.delay_is_over(ordinal, id);
        }
        self.fill_free_places(task, key);
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

    /// Cancels those behind a task's limit, of one key or of all, that `is_meant`.
    pub(super) fn cancel_waiting(
        &mut self,
        task: TaskId,
        of_key: Option<Option<LimitKey>>,
        cause: Cause,
        is_meant: impl Fn(Origin) -> bool,
    ) {
        let Some(instances) = self.tasks.get(&task).and_then(|task| task.instances.as_ref()) else { return };
        let waiting: Vec<_> = match of_key {
            None => instances.waiting().collect(),
            Some(key) => instances.of(key).map(|of| of.waiting.iter().copied().collect()).unwrap_or_default(),
        };
        let waiting: Vec<_> = waiting.into_iter().filter(|id| is_meant(self.instances[id].row.origin)).collect();
        for id in waiting {
            self.cancel_instance(id, cause, None);
        }
    }

    /// A disabled task starts nothing of its own any more; what was asked for by hand stays.
    fn cancel_scheduled_waiting(&mut self, task: TaskId, cause: Cause) {
        self.cancel_waiting(task, None, cause, |origin| !origin.is_by_hand());
        let Some(instances) = self.tasks.get(&task).and_then(|task| task.instances.as_ref()) else { return };
        // Missed fire times that wait to be made up for are in neither.
        let rest: Vec<_> = instances.in_progress().chain(instances.delayed()).collect();
        for id in rest {
            let row = &self.instances[&id].row;
            if matches!(row.state, State::Created | State::Waiting) && !row.origin.is_by_hand() {
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
