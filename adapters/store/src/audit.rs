//! What is put on record of a write by a person, the same in every database.

use punctual_core::ids::{InstanceId, TaskId};
use punctual_driver::ports::{Actor, AuditAction};

/// A write by a person.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audit<'a> {
    pub(crate) actor: &'a Actor,
    pub(crate) action: AuditAction,
    pub(crate) task: Option<TaskId>,
    pub(crate) instance: Option<InstanceId>,
    /// What else it names.
    pub(crate) subject: Option<&'a str>,
}
