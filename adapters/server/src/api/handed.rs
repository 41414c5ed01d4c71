//! What nodes hand to the tasks that they call, checked against those tasks' schemas when it is applied.

use punctual_driver::ports::{Catalog, Clock, TaskDocument};
use serde_json::Value;

use super::tasks::fits;
use super::{Api, ApiError};

/// Refuses documents with a node whose own payload is not what the task that it calls takes: by that task's document among these, else by the one
/// in force. A payload that comes from elsewhere, or a schema that changes later, is met when the node calls.
pub(super) async fn check_handed<S: Catalog, C: Clock>(api: &Api<S, C>, documents: &[TaskDocument]) -> Result<(), ApiError> {
    for document in documents {
        let Some(workflow) = &document.definition.workflow else { continue };
        for (node, called) in workflow.nodes().filter_map(|node| Some((node, node.calls.as_ref()?))) {
            // One that says what its task says is given what the run was triggered with, where that is something else.
            let Some(payload) = node.payload.as_deref().filter(|_| node.payload != document.definition.payload) else { continue };
            let written = match documents.iter().rev().find(|other| other.definition.name == *called) {
                Some(other) => Some(other.document.clone()),
                None => api.store.task_now(called.clone()).await?.map(|view| view.document),
            };
            let Some(schema) = written.and_then(|text| serde_json::from_str::<Value>(&text).ok()?.get("payload_schema").cloned()) else {
                continue;
            };
            if let Err(problem) = fits(api, &schema, Some(payload)).await {
                let (task, called) = (document.definition.name.to_string(), called.to_string());
                return Err(ApiError::Handed { task, called, problem });
            }
        }
    }
    Ok(())
}
