//! What a person can pause.

use std::sync::Arc;

use crate::ids::TaskId;

/// What a pause holds. While a task is held by any, nothing of it starts: its fire times pass by, on record, and what is asked for waits.
/// Attempts that run go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseScope {
    /// Every task.
    All,
    /// The tasks with this group.
    Group(Arc<str>),
    /// One task.
    Task(TaskId),
}
