//! What a person can pause.

use std::sync::Arc;

use crate::ids::{TaskId, WorkerId};

/// What a pause holds. While a task is held by any, nothing of it starts: its fire times pass by, on record, and what is asked for waits. A
/// worker that is held is given nothing more. Attempts that run go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseScope {
    /// Every task.
    All,
    /// The tasks with this group.
    Group(Arc<str>),
    /// One task.
    Task(TaskId),
    /// One worker, in whatever life.
    Worker(WorkerId),
}
