//! What people ask for, in the numbers that are stored.

use std::sync::Arc;

use punctual_core::ids::{TaskId, WorkerId};
use punctual_core::inbox::DelayedChange;
use punctual_core::pause::PauseScope;
use punctual_driver::ports::{AuditAction, InstanceAction, PauseTarget};

use crate::set_aside::{KIND_CANCEL, KIND_KILL, KIND_SKIP};

/// What a pause holds, as a number. They are listed in this order.
pub(crate) const fn kind_of(target: &PauseTarget) -> u8 {
    match target {
        PauseTarget::All => 0,
        PauseTarget::Group(_) => 1,
        PauseTarget::Task(_) => 2,
        PauseTarget::Worker(_) => 3,
    }
}

/// What a pause of this kind and name holds.
pub(crate) fn target_of(kind: u8, name: Arc<str>) -> PauseTarget {
    match kind {
        0 => PauseTarget::All,
        1 => PauseTarget::Group(name),
        2 => PauseTarget::Task(name),
        _ => PauseTarget::Worker(name),
    }
}

/// The same, as owners know it.
pub(crate) fn scope_of(target: &PauseTarget, task: Option<TaskId>) -> PauseScope {
    match target {
        PauseTarget::All => PauseScope::All,
        PauseTarget::Group(group) => PauseScope::Group(group.clone()),
        PauseTarget::Task(_) => PauseScope::Task(task.unwrap_or_default()),
        PauseTarget::Worker(worker) => PauseScope::Worker(WorkerId(worker.clone())),
    }
}

/// What the audit names besides the task.
pub(crate) fn subject_of(target: &PauseTarget) -> Option<&str> {
    match target {
        PauseTarget::Group(name) | PauseTarget::Worker(name) => Some(name),
        PauseTarget::All | PauseTarget::Task(_) => None,
    }
}

/// What the audit calls a pause of this, or its end.
pub(crate) const fn audited_pause(target: &PauseTarget, is_paused: bool) -> AuditAction {
    match (target, is_paused) {
        (PauseTarget::Worker(_), true) => AuditAction::Drain,
        (PauseTarget::Worker(_), false) => AuditAction::Undrain,
        (_, true) => AuditAction::Pause,
        (_, false) => AuditAction::Resume,
    }
}

/// The kind of the inbox entry that asks for this.
pub(crate) const fn kind_of_action(action: InstanceAction) -> u8 {
    match action {
        InstanceAction::Cancel => KIND_CANCEL,
        InstanceAction::Kill => KIND_KILL,
        InstanceAction::Skip => KIND_SKIP,
    }
}

/// What the audit calls a change to a trigger that is not due yet.
pub(crate) const fn audited_change(change: DelayedChange) -> AuditAction {
    match change {
        DelayedChange::Cancel => AuditAction::CancelTrigger,
        DelayedChange::Reschedule(_) => AuditAction::Reschedule,
    }
}
