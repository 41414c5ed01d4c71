//! Helpers for core's own tests.

use std::sync::Arc;

use crate::definition::{Band, Handler, TaskDefinition, Trigger};

/// A manual task with all defaults.
pub(crate) fn definition(name: &str) -> TaskDefinition {
    TaskDefinition {
        name: Arc::from(name),
        enabled: true,
        trigger: Trigger::Manual,
        handler: Handler { name: Arc::from("command"), config: Arc::from("{}") },
        payload: None,
        policies: Arc::default(),
        idempotent: true,
        band: Band::Normal,
        downstream: None,
    }
}
