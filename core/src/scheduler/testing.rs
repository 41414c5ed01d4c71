//! Helpers for core's own tests.

use std::sync::Arc;

use crate::definition::{Handler, TaskDefinition, Trigger};

/// A manual task with all defaults.
pub(crate) fn definition(name: &str) -> TaskDefinition {
    TaskDefinition::new(name, Trigger::Manual, Handler { name: Arc::from("command"), config: Arc::from("{}") })
}
