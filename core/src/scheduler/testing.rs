//! Helpers for core's own tests.

use std::sync::Arc;

use crate::definition::{Band, ConcurrencyPolicy, Handler, MisfirePolicy, RetryPolicy, TaskDefinition, TimeoutPolicy, Trigger};

/// A manual task with all defaults.
pub(crate) fn definition(name: &str) -> TaskDefinition {
    TaskDefinition {
        name: Arc::from(name),
        enabled: true,
        trigger: Trigger::Manual,
        handler: Handler { name: Arc::from("command"), config: Arc::from("{}") },
        payload: None,
        misfire: MisfirePolicy::default(),
        concurrency: ConcurrencyPolicy::default(),
        retry: RetryPolicy::default(),
        timeout: TimeoutPolicy::default(),
        idempotent: true,
        band: Band::Normal,
    }
}
