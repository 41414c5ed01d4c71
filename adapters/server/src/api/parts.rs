//! The parts of a firing that was divided: its shards, or its items with what lists and reduces them.

use punctual_core::instance::{InstanceRow, Part};
use punctual_driver::ports::{Catalog, Clock, InstanceCursor, InstanceFilter, InstanceView, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, ApiError, views};

/// Shards or items that are shown: the first ones.
const SHOWN: u32 = 100;

/// A part of a firing that was divided.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PartShown {
    instance: String,
    /// Which shard or item it is, counted from 0; null for what lists or reduces.
    index: Option<u32>,
    key: Option<String>,
    /// `list` or `reduce`.
    part: Option<&'static str>,
    state: &'static str,
    cause: Option<&'static str>,
    attempt: u32,
    worker: Option<String>,
    code: Option<i32>,
    detail: Option<String>,
    ended_at: Option<String>,
}

/// The parts of an instance, in their order. `None`: it was not divided.
pub(crate) async fn of<S: Catalog, C: Clock>(api: &Api<S, C>, view: &InstanceView) -> Result<Option<Vec<PartShown>>, ApiError> {
    let row = &view.row;
    if row.part.is_shard() || row.is_run() || !row.has_parts() {
        return Ok(None);
    }
    // In a list the parts come right before their whole, the last one first.
    let mut found = below(api, view, row.part.and_shard(SHOWN), SHOWN).await?;
    found.reverse();
    if row.links.as_deref().is_some_and(|links| links.map.is_some()) {
        let others = below(api, view, Part(row.part.and_list().0 + 1), 2).await?;
        let is_one = |view: &&InstanceView| view.row.part.is_list() || view.row.part.is_reduce();
        let (list, reduce): (Vec<_>, Vec<_>) = others.iter().filter(is_one).cloned().partition(|view| view.row.part.is_list());
        found.splice(0..0, list);
        found.extend(reduce);
    }
    Ok(Some(found.iter().map(|view| shown(&view.row)).collect()))
}

/// So many parts of an instance right below this one, the highest first.
async fn below<S: Catalog, C: Clock>(api: &Api<S, C>, of: &InstanceView, part: Part, limit: u32) -> Result<Vec<InstanceView>, StoreError> {
    let before = Some(InstanceCursor { part, ..InstanceCursor::of(&of.row) });
    let filter = InstanceFilter { task: Some(of.task_name.clone()), before, limit: limit as usize, ..InstanceFilter::default() };
    let found = api.store.instances(filter).await?;
    Ok(found.into_iter().filter(|view| view.row.parent() == Some(of.row.id)).collect())
}

fn shown(row: &InstanceRow) -> PartShown {
    let last = row.transitions.last();
    PartShown {
        instance: row.id.to_string(),
        index: row.part.shard_index(),
        key: row.links.as_deref().and_then(|links| links.shard_key.as_deref().map(str::to_owned)),
        part: views::part(row),
        state: row.state.name(),
        cause: last.map(|last| last.cause.name()),
        attempt: row.attempt,
        worker: row.worker.as_ref().map(|worker| worker.id.to_string()),
        code: last.and_then(|last| last.code),
        detail: last.and_then(|last| last.detail.as_deref().map(str::to_owned)),
        ended_at: views::instant(row.ended_at()),
    }
}
