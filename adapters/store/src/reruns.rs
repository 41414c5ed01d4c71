//! What a rerun needs of the instance that it is of, and when there is none.

use std::sync::Arc;

use punctual_core::ids::InstanceId;
use punctual_core::inbox::{Rerun, RerunFrom};
use punctual_core::instance::{InstanceRow, Part};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::Submitted;

/// The idempotency key under which an instance's rerun is written: one a run, whoever asks. It begins with a control character, so that it
/// is none that a caller may use.
pub(crate) fn rerun_key(instance: InstanceId) -> String {
    format!("\u{1}rerun:{instance}")
}

/// What the new run has of this row, or why there is none.
pub(crate) fn rerun_of(row: InstanceRow, reason: Option<&str>, from: Option<RerunFrom>) -> Result<Rerun, Submitted> {
    if row.part != Part::WHOLE {
        return Err(Submitted::IsPart { whole: row.parent().unwrap_or(row.id) });
    }
    if !row.state.is_terminal() {
        return Err(Submitted::StillRuns);
    }
    if from.is_some() && !row.is_run() {
        return Err(Submitted::NoWorkflow);
    }
    let from = from.map(Box::new);
    let hops = row.links.as_ref().map_or(0, |links| links.hops);
    let InstanceRow { id: instance, task, fire_time, ordinal, run, payload, key, .. } = row;
    Ok(Rerun { instance, task, fire_time, ordinal, run, hops, payload, key, reason: reason.map(Arc::from), from })
}

/// Why nothing is said of this node of this instance.
pub(crate) fn mark_refused(row: &InstanceRow, node: NodeIndex) -> Option<Submitted> {
    match row.links.as_ref().map_or(0, |links| links.nodes) {
        0 if row.part != Part::WHOLE => Some(Submitted::IsPart { whole: row.parent().unwrap_or(row.id) }),
        0 => Some(Submitted::NoWorkflow),
        _ if row.state.is_terminal() => Some(Submitted::HasEnded),
        nodes if node.0 >= nodes => Some(Submitted::NoSuchNode),
        _ => None,
    }
}
