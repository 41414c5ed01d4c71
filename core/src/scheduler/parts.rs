//! Firings that are divided into shards, and what runs of workflows share with them.
//!
//! The firing itself is an instance that no worker is given: it is `running` while its shards are, and ends when the last of them has. The
//! shards are instances of their own, with attempts and retries of their own; they count against the task's limit as one. All of them
//! are made in one batch with the division, so a new owner finds all or none, and what a firing was divided into stays so whatever becomes
//! of the task's rule.
//!
//! How many shards have failed is written in the firing's own row, with the end of the shard: a new owner needs to read only what has not
//! ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::definition::Sharding;
use crate::ids::InstanceId;
use crate::instance::{Cause, Links, State};
use crate::probe;
use crate::scheduler::Scheduler;
use crate::scheduler::firing::Firing;
use crate::scheduler::nodes::{Flow, NodeEnd};

/// The parts of an instance that have not ended.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) unfinished: BTreeSet<InstanceId>,
    /// For the run of a workflow, once it has begun.
    pub(super) flow: Option<Box<Flow>>,
    /// For one that is about to begin or was just read: its nodes that have ended.
    pub(super) ended_nodes: Vec<NodeEnd>,
}

impl Scheduler {
    /// An instance is about to begin: divides it where its task says so. False: it is to be run as it is.
    pub(super) fn divide_if_due(&mut self, id: InstanceId) -> bool {
        let live = &self.instances[&id];
        if live.row.part.shard_index().is_some() {
            return false;
        }
        if let Some(workflow) = live.definition.workflow.clone() {
            self.begin_run(id, workflow);
            return true;
        }
        let keys: Vec<Option<Arc<str>>> = match &live.definition.policies.sharding {
            Sharding::None => return false,
            Sharding::Count(count) => vec![None; *count as usize],
            Sharding::Keys(keys) => keys.iter().cloned().map(Some).collect(),
        };
        self.divide(id, keys);
        true
    }

    /// Divides an instance into shards with these keys.
    pub(super) fn divide(&mut self, id: InstanceId, keys: Vec<Option<Arc<str>>>) {
        probe!("shards.divided");
        let now = self.now.wall;
        let shards = u32::try_from(keys.len()).expect("as many shards as the limit allows");
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        let links = live.row.links.get_or_insert_default();
        links.shards = shards;
        let hops = links.hops;
        live.change(State::Running, Cause::Divided, now);
        self.mark_instance(id);
        self.parts.insert(id, Parts::default());
        for (index, shard_key) in (0..).zip(keys) {
            let links = Links { parent: Some(id), shards, shard_key, hops, ..Links::default() };
            self.make_part(id, index, links);
        }
    }

    fn make_part(&mut self, whole: InstanceId, shard: u32, links: Links) {
        let live = &self.instances[&whole];
        let row = &live.row;
        let firing = Firing {
            task: row.task,
            version: row.version,
            definition: live.definition.clone(),
            fire_time: row.fire_time,
            ordinal: row.ordinal,
            run: row.run,
            part: row.part.and_shard(shard),
            origin: row.origin,
            payload: row.payload.clone(),
            key: None,
            links: Some(Box::new(links)),
            detail: None,
            carried: Vec::new(),
        };
        let id = self.insert(firing, State::Created, Cause::Divided);
        self.parts.entry(whole).or_default().unfinished.insert(id);
        self.make_ready(id);
    }

    /// What a snapshot has of an instance with parts, or of a part.
    pub(super) fn take_up_part(&mut self, id: InstanceId) {
        let row = &self.instances[&id].row;
        if let Some(whole) = row.parent() {
            self.parts.entry(whole).or_default().unfinished.insert(id);
        } else if row.has_parts() {
            self.parts.entry(id).or_default();
        }
    }

    /// A part has ended.
    pub(super) fn part_ended(&mut self, whole: InstanceId, part: InstanceId) {
        let state = self.instances[&part].row.state;
        let Some(parts) = self.parts.get_mut(&whole) else { return };
        if !parts.unfinished.remove(&part) {
            return;
        }
        if parts.flow.is_some() {
            return self.node_ended(whole, part);
        }
        let is_last = parts.unfinished.is_empty();
        let Some(live) = self.instances.get_mut(&whole) else { return };
        if state != State::Succeeded {
            live.row.failures += 1;
            self.mark_instance(whole);
        }
        if is_last {
            self.end_of_parts(whole);
        }
    }

    /// All parts have ended, and with them what they are parts of.
    fn end_of_parts(&mut self, whole: InstanceId) {
        self.parts.remove(&whole);
        let live = self.instances.get_mut(&whole).expect("checked by the caller");
        let (failed, shards) = (live.row.failures, live.row.links.as_ref().map_or(0, |links| links.shards));
        match live.cancel.take() {
            Some((cause, detail)) => self.end(whole, State::Cancelled, cause, None, detail),
            None if failed == 0 => self.end(whole, State::Succeeded, Cause::PartsEnded, None, None),
            None => {
                probe!("shards.failed");
                let detail = format!("{failed} of {shards} shards did not succeed");
                self.end(whole, State::Failed, Cause::PartsEnded, None, Some(Arc::from(detail)));
            }
        }
    }

    /// Cancels all parts of an instance that have not ended; it ends when they have.
    pub(super) fn cancel_parts(&mut self, whole: InstanceId) {
        let Some(parts) = self.parts.get(&whole) else { return };
        if parts.flow.is_some() {
            return self.cancel_run(whole);
        }
        for part in parts.unfinished.clone() {
            self.cancel_instance(part, Cause::ParentEnded, None);
        }
    }
}
