//! What nodes hand to the tasks that they call, checked against those tasks' schemas when it is applied.

use std::sync::Arc;

use punctual_driver::ports::{Catalog, Clock, TaskDocument};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::tasks::fits;
use super::{Api, ApiError};

/// Refuses documents with a node whose own payload is not what the task that it calls takes: by that task's document among these, else by the one
/// in force. A payload that comes from elsewhere, or a schema that changes later, is met when the node calls.
pub(super) async fn check_handed<S: Catalog, C: Clock>(api: &Api<S, C>, documents: &[TaskDocument]) -> Result<(), ApiError> {
    // The last one of a name counts.
    let by_name: FxHashMap<&str, &str> = documents.iter().map(|document| (&*document.definition.name, &*document.document)).collect();
    // A source may have a hundred thousand tasks, which call few others: each one's schema is looked up once.
    let mut schemas: FxHashMap<Arc<str>, Option<Value>> = FxHashMap::default();
    for document in documents {
        let Some(workflow) = &document.definition.workflow else { continue };
        for (node, called) in workflow.nodes().filter_map(|node| Some((node, node.calls.as_ref()?))) {
            // One that says what its task says is given what the run was triggered with, where that is something else.
            let Some(payload) = node.payload.as_deref().filter(|_| node.payload != document.definition.payload) else { continue };
            if !schemas.contains_key(called) {
                let schema = match by_name.get(&**called) {
                    Some(document) => schema_in(document),
                    None => api.store.task_now(called.clone()).await?.and_then(|view| schema_in(&view.document)),
                };
                schemas.insert(called.clone(), schema);
            }
            let Some(schema) = schemas.get(called).and_then(Option::as_ref) else { continue };
            if let Err(problem) = fits(api, schema, Some(payload)).await {
                let (task, called) = (document.definition.name.to_string(), called.to_string());
                return Err(ApiError::Handed { task, called, problem });
            }
        }
    }
    Ok(())
}

/// The schema of the payload in a task's document.
fn schema_in(document: &str) -> Option<Value> {
    serde_json::from_str::<Value>(document).ok()?.get_mut("payload_schema").map(Value::take)
}
