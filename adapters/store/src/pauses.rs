//! What people ask for, in the numbers that are stored.

use std::sync::Arc;

use punctual_core::ids::TaskId;
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
    }
}

/// What a pause of this kind and name holds.
pub(crate) fn target_of(kind: u8, name: Arc<str>) -> PauseTarget {
    match kind {
        0 => PauseTarget::All,
        1 => PauseTarget::Group(name),
        _ => PauseTarget::Task(name),
    }
}

/// The same, as owners know it.
pub(crate) fn scope_of(target: &PauseTarget, task: Option<TaskId>) -> PauseScope {
    match target {
        PauseTarget::All => PauseScope::All,
        PauseTarget::Group(group) => PauseScope::Group(group.clone()),
        PauseTarget::Task(_) => PauseScope::Task(task.unwrap_or_default()),
    }
}

/// What the audit names besides the task.
pub(crate) fn subject_of(target: &PauseTarget) -> Option<&str> {
    match target {
        PauseTarget::Group(group) => Some(group),
        PauseTarget::All | PauseTarget::Task(_) => None,
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
