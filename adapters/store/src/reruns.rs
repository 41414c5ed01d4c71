//! What a rerun needs of the instance that it is of, and when there is none.

use std::sync::Arc;

use punctual_core::ids::InstanceId;
use punctual_core::inbox::Rerun;
use punctual_core::instance::{InstanceRow, Part, ShardsAgain};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{Rerunning, Submitted};

use crate::codec;
use crate::plan::request_hash;

/// The idempotency key under which an instance's rerun is written: one a run, whoever asks. It begins with a control character, so that it
/// is none that a caller may use.
pub(crate) fn rerun_key(instance: InstanceId) -> String {
    format!("\u{1}rerun:{instance}")
}

/// What tells one rerun of an instance from another: all but why. By it a call that is repeated is known from one that wants something else.
pub(crate) fn rerun_hash(of: &Rerun) -> [u8; 16] {
    request_hash(of.task, &codec::pack_rerun(&Rerun { reason: None, ..of.clone() }))
}

/// What the new run has of this row, or why there is none.
pub(crate) fn rerun_of(row: InstanceRow, reason: Option<&str>, which: Rerunning) -> Result<Rerun, Submitted> {
    if row.part != Part::WHOLE {
        return Err(Submitted::IsPart { whole: row.parent().unwrap_or(row.id) });
    }
    if !row.state.is_terminal() {
        return Err(Submitted::StillRuns);
    }
    let from = match which {
        Rerunning::From(_) if !row.is_run() => return Err(Submitted::NoWorkflow),
        Rerunning::From(from) => Some(Box::new(from)),
        Rerunning::Unsuccessful | Rerunning::All => None,
    };
    let hops = row.links.as_ref().map_or(0, |links| links.hops);
    let InstanceRow { id: instance, task, fire_time, ordinal, run, payload, key, .. } = row;
    Ok(Rerun { instance, task, fire_time, ordinal, run, hops, payload, key, reason: reason.map(Arc::from), shards: None, from })
}

/// Into how many shards this firing was divided, where those of them that have not succeeded are to be run again. What was mapped over a list
/// lists anew.
pub(crate) fn divided_into(row: &InstanceRow, which: &Rerunning) -> Option<u32> {
    let links = row.links.as_ref().filter(|_| *which == Rerunning::Unsuccessful && row.has_parts())?;
    (links.map.is_none() && links.nodes == 0).then_some(links.shards)
}

/// The shards that are to run again, of these that have not succeeded; `None` where there is none: then all of it runs again.
pub(crate) fn shards_again(count: u32, unsuccessful: Vec<InstanceRow>) -> Option<Box<ShardsAgain>> {
    let are_for_workers = unsuccessful.iter().any(|row| row.links.as_ref().is_some_and(|links| links.is_for_worker));
    let number_and_key = |row: InstanceRow| Some((row.part.shard_index()?, row.links.and_then(|links| links.shard_key)));
    let shards: Vec<_> = unsuccessful.into_iter().filter_map(number_and_key).collect();
    (!shards.is_empty()).then(|| Box::new(ShardsAgain { count, are_for_workers, shards }))
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
