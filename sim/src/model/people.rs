//! What people do: pauses, the audit, dead letters, and changes to what has not begun.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use punctual_core::ids::{InboxId, InstanceId, PartitionId, TaskId, WorkerId};
use punctual_core::inbox::{DelayedChange, Request, ordinal_of};
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::pause::PauseScope;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{
    Actor, AuditAction, AuditFilter, AuditView, DeadLetterFilter, Discarded, InstanceAction, InstanceCursor, InstanceView, PauseSet,
    PauseTarget, PauseView, Submitted, TriggerChanged,
};

use crate::history::What;
use crate::model::data::{Data, Write};
use crate::model::database::Database;

/// A write by a person.
#[derive(Clone, Debug)]
pub(crate) struct Audited {
    pub(crate) at: Timestamp,
    pub(crate) actor: Actor,
    pub(crate) action: AuditAction,
    pub(crate) task: Option<TaskId>,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) subject: Option<Arc<str>>,
}

/// What people have done, and what waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct People {
    audit: Vec<Audited>,
    pauses: BTreeMap<PauseTarget, (Timestamp, Actor)>,
    dead_letters: BTreeSet<(InstanceCursor, InstanceId)>,
}

impl People {
    /// An instance was written.
    pub(crate) fn row_is(&mut self, before: Option<State>, row: &InstanceRow) {
        let is_dead = |state: State| state == State::DeadLettered && row.part == Part::WHOLE;
        let letter = (InstanceCursor::of(row), row.id);
        match (before.is_some_and(is_dead), is_dead(row.state)) {
            (false, true) => _ = self.dead_letters.insert(letter),
            (true, false) => _ = self.dead_letters.remove(&letter),
            _ => {}
        }
    }

    pub(crate) fn put_audit(&mut self, audited: Audited) {
        self.audit.push(audited);
    }

    pub(crate) fn set_pause(&mut self, target: &PauseTarget, pause: Option<(Timestamp, Actor)>) {
        match pause {
            Some(pause) => _ = self.pauses.insert(target.clone(), pause),
            None => _ = self.pauses.remove(target),
        }
    }

    pub(crate) fn settle(&mut self, instance: InstanceId) {
        self.dead_letters.retain(|(_, id)| *id != instance);
    }
}

impl Data {
    fn scope_of(&self, target: &PauseTarget) -> PauseScope {
        match target {
            PauseTarget::All => PauseScope::All,
            PauseTarget::Group(group) => PauseScope::Group(group.clone()),
            PauseTarget::Task(name) => PauseScope::Task(self.names.get(name).map_or(TaskId(0), |named| named.task)),
            PauseTarget::Worker(name) => PauseScope::Worker(WorkerId(name.clone())),
        }
    }

    /// The pauses that the owner of a partition has to know.
    pub(crate) fn pauses_of(&self, partition: PartitionId) -> Vec<PauseScope> {
        let concerns = |target: &&PauseTarget| match target {
            PauseTarget::All | PauseTarget::Group(_) | PauseTarget::Worker(_) => true,
            PauseTarget::Task(name) => self.partition_of(name) == partition,
        };
        self.people.pauses.keys().filter(concerns).map(|target| self.scope_of(target)).collect()
    }

    /// All pauses.
    pub fn pause_views(&self) -> Vec<PauseView> {
        let view = |(target, (since, actor)): (&PauseTarget, &(Timestamp, Actor))| PauseView {
            target: target.clone(),
            since: *since,
            actor: actor.clone(),
        };
        self.people.pauses.iter().map(view).collect()
    }

    /// What people have done, newest first.
    pub fn audit_views(&self, filter: &AuditFilter) -> Vec<AuditView> {
        let task = filter.task.as_ref().map(|name| self.names.get(name).map(|named| named.task));
        let numbered = self.people.audit.iter().enumerate().rev().map(|(index, audited)| (index as u64 + 1, audited));
        let meant = numbered.filter(|(id, audited)| {
            filter.before.is_none_or(|before| *id < before)
                && task.is_none_or(|task| task.is_some() && task == audited.task)
                && filter.instance.is_none_or(|instance| audited.instance == Some(instance))
        });
        let view = |(id, audited): (u64, &Audited)| AuditView {
            id,
            at: audited.at,
            actor: audited.actor.clone(),
            action: audited.action,
            task: audited.task.and_then(|task| self.name_of(task).cloned()),
            instance: audited.instance,
            subject: audited.subject.clone(),
        };
        meant.take(filter.limit).map(view).collect()
    }

    /// Dead letters that nobody has settled, newest first.
    pub fn dead_letter_views(&self, filter: &DeadLetterFilter) -> Vec<InstanceView> {
        let task = filter.task.as_ref().map(|name| self.names.get(name).map(|named| named.task));
        let end = filter.before.map_or(Bound::Unbounded, |before| Bound::Excluded((before, InstanceId(0))));
        let letters = self.people.dead_letters.range((Bound::Unbounded, end)).rev();
        let meant = letters.filter(|(place, _)| task.is_none_or(|task| task == Some(place.task)));
        meant.take(filter.limit).filter_map(|(_, id)| self.instance(*id)).collect()
    }
}

impl Database {
    /// Puts a write by a person on record.
    pub fn audited(
        &mut self,
        at: u64,
        actor: &Actor,
        action: AuditAction,
        task: Option<TaskId>,
        instance: Option<InstanceId>,
        subject: Option<Arc<str>>,
    ) {
        let audited = Audited { at: self.clock(at), actor: actor.clone(), action, task, instance, subject };
        self.write(at, Write::Audit(audited), None);
    }

    /// Makes a pause, or lifts it, and tells all owners that it concerns.
    pub fn set_pause(&mut self, at: u64, target: &PauseTarget, is_paused: bool, by: &Actor) -> PauseSet {
        let task = match target {
            PauseTarget::All | PauseTarget::Worker(_) => None,
            PauseTarget::Group(group) => {
                let newest = self.data().names.values().filter(|named| !named.removed);
                let mut definitions = newest.filter_map(|named| self.data().definition(named.task, named.version));
                if is_paused && !definitions.any(|definition| definition.group.as_ref() == Some(group)) {
                    return PauseSet::NoSuchGroup;
                }
                None
            }
            PauseTarget::Task(name) => match self.data().names.get(name) {
                Some(named) if !named.removed || !is_paused => Some(named.task),
                _ => return PauseSet::NoSuchTask,
            },
        };
        if self.data().people.pauses.contains_key(target) == is_paused {
            return PauseSet::Unchanged;
        }
        let now = self.clock(at);
        let pause = is_paused.then(|| (now, by.clone()));
        self.write(at, Write::SetPause { target: target.clone(), pause }, None);
        let scope = self.data().scope_of(target);
        let all = 0..self.data().leases.len() as u16;
        let concerned: Vec<_> = match target {
            PauseTarget::Task(name) => vec![self.data().partition_of(name)],
            _ => all.map(PartitionId).collect(),
        };
        let mut entries = Vec::with_capacity(concerned.len());
        for partition in concerned {
            let entry = InboxId(self.data().last_entry().0 + 1);
            let request = Request::PauseChanged { scope: scope.clone(), is_paused };
            let what = What::PauseChanged { entry, partition, scope: scope.clone(), is_paused };
            self.write(at, Write::Submit { partition, by: by.by.clone(), key: None, request, at: now }, Some(what));
            entries.push(entry);
        }
        let (action, subject) = match (target, is_paused) {
            (PauseTarget::Worker(name), true) => (AuditAction::Drain, Some(name.clone())),
            (PauseTarget::Worker(name), false) => (AuditAction::Undrain, Some(name.clone())),
            (_, is_paused) => {
                let subject = if let PauseTarget::Group(group) = target { Some(group.clone()) } else { None };
                (if is_paused { AuditAction::Pause } else { AuditAction::Resume }, subject)
            }
        };
        self.audited(at, by, action, task, None, subject);
        PauseSet::Accepted { entries }
    }

    /// Asks for something to be done with an instance.
    pub fn act(&mut self, at: u64, instance: InstanceId, action: InstanceAction, by: &Actor) -> Submitted {
        let Some(task) = self.data().instances.get(&instance).map(|row| row.task) else { return Submitted::NoSuchInstance };
        let reason = by.why.clone();
        let entry = InboxId(self.data().last_entry().0 + 1);
        let (request, what) = match action {
            InstanceAction::Cancel => (Request::Cancel { instance, reason }, What::CancelSubmitted { entry, instance }),
            InstanceAction::Kill => (Request::Kill { instance, reason }, What::CancelSubmitted { entry, instance }),
            InstanceAction::Skip => (Request::Skip { instance, reason }, What::SkipSubmitted { entry, instance }),
        };
        let (partition, now) = (instance.partition(), self.clock(at));
        self.write(at, Write::Submit { partition, by: by.by.clone(), key: None, request, at: now }, Some(what));
        self.audited(at, by, action.audited(), Some(task), Some(instance), None);
        Submitted::Accepted { entry }
    }

    /// Asks for a manual trigger that is not due yet to be cancelled or to come at another time.
    pub fn change_trigger(&mut self, at: u64, name: &str, key: &Arc<str>, change: DelayedChange, by: &Actor) -> TriggerChanged {
        let Some(task) = self.data().names.get(name).map(|named| named.task) else { return TriggerChanged::NoSuchTask };
        let Some(asked) = self.data().entry_under(key) else { return TriggerChanged::NoSuchTrigger };
        let ordinal = ordinal_of(asked, 0);
        let waits =
            self.data().inbox.get(&asked).is_some_and(|entry| matches!(entry.request, Request::Trigger { task: of, .. } if of == task));
        if !waits {
            let made = self.data().instance_of_submission(ordinal).filter(|view| view.row.task == task);
            match made {
                None => return TriggerChanged::NoSuchTrigger,
                Some(view) if view.row.state == State::Waiting && view.row.due_at.is_some() => {}
                Some(_) => return TriggerChanged::Over { ordinal },
            }
        }
        let (partition, now) = (self.data().partition_of(name), self.clock(at));
        let entry = InboxId(self.data().last_entry().0 + 1);
        let request = Request::Delayed { task, ordinal, change, reason: by.why.clone() };
        let what = What::DelayedChanged { entry, task, ordinal };
        self.write(at, Write::Submit { partition, by: by.by.clone(), key: None, request, at: now }, Some(what));
        let action = match change {
            DelayedChange::Cancel => AuditAction::CancelTrigger,
            DelayedChange::Reschedule(_) => AuditAction::Reschedule,
        };
        self.audited(at, by, action, Some(task), None, Some(key.clone()));
        TriggerChanged::Accepted { entry, ordinal }
    }

    /// Settles a dead letter without running it again.
    pub fn discard(&mut self, at: u64, instance: InstanceId, by: &Actor) -> Discarded {
        let Some(row) = self.data().instances.get(&instance) else { return Discarded::NoSuchInstance };
        if row.state != State::DeadLettered || row.part != Part::WHOLE {
            return Discarded::NotDead;
        }
        let (letter, task) = ((InstanceCursor::of(row), instance), row.task);
        if !self.data().people.dead_letters.contains(&letter) {
            return Discarded::Settled;
        }
        self.write(at, Write::Settle { instance }, None);
        self.audited(at, by, AuditAction::Discard, Some(task), Some(instance), None);
        Discarded::Done
    }
}
