//! Firings that are divided into shards, and what runs of workflows share with them.
//!
//! The firing itself is an instance that no worker is given: it is `running` while its shards are, and ends when the last of them has. The
//! shards are instances of their own, with attempts and retries of their own; they count against the task's limit as one. All of them
//! are made in one batch with the division, so a new owner finds all or none, and what a firing was divided into stays so whatever becomes
//! of the task's rule.
//!
//! What is broadcast is divided when it would be given to a worker, into one shard for each of those that may have it then. Each is for its
//! worker alone: where that is gone, it ends as failed, and the firing with it.
//!
//! A rerun of a divided firing has those shards only that have not succeeded in the run before, by the numbers and keys that they had there;
//! the others are carried over, which the firing's own row says.
//!
//! How many shards have failed is written in the firing's own row, with the end of the shard: a new owner needs to read only what has not
//! ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::definition::Sharding;
use crate::ids::InstanceId;
use crate::instance::{Cause, Links, Part, ShardsAgain, State};
use crate::limits;
use crate::probe;
use crate::routing::Strategy;
use crate::scheduler::firing::Firing;
use crate::scheduler::nodes::{Flow, NodeEnd};
use crate::scheduler::{Live, Scheduler};

/// The parts of an instance that have not ended.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) unfinished: BTreeSet<InstanceId>,
    /// For the run of a workflow, once it has begun.
    pub(super) flow: Option<Box<Flow>>,
    /// For one that is about to begin or was just read: its nodes that have ended.
    pub(super) ended_nodes: Vec<NodeEnd>,
}

impl Parts {
    pub(super) fn len(&self) -> usize {
        self.unfinished.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.is_empty()
    }

    pub(super) fn first(&self) -> Option<InstanceId> {
        self.unfinished.first().copied()
    }

    pub(super) fn all(&self) -> Vec<InstanceId> {
        self.unfinished.iter().copied().collect()
    }
}

impl Scheduler {
    /// An instance is about to begin: divides it where its task says so. False: it is to be run as it is.
    pub(super) fn divide_if_due(&mut self, id: InstanceId) -> bool {
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        if live.row.part.is_shard() {
            return false;
        }
        if let Some(again) = live.row.links.as_mut().and_then(|links| links.again.take()) {
            self.divide(id, *again);
            return true;
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
        self.divide(id, ShardsAgain::first_time(keys, false));
        true
    }

    /// What is broadcast has its turn: divides it among the workers that may have it now. False: there is none, and it stays where it is.
    pub(super) fn broadcast(&mut self, id: InstanceId, eligible: &[usize]) -> bool {
        let there = eligible.iter().map(|index| &self.workers.list[*index]).filter(|worker| worker.takes_part(self.now.monotonic));
        let mut keys: Vec<_> = there.map(|worker| Some(worker.id.0.clone())).collect();
        if keys.is_empty() {
            return false;
        }
        if keys.len() > limits::BROADCAST_WORKERS_MAX {
            let (count, most) = (keys.len(), limits::BROADCAST_WORKERS_MAX);
            let detail = format!("{count} workers would have a shard, and a firing is broadcast to at most {most}: ask for fewer by tags");
            self.end(id, State::Failed, Cause::TooManyParts, None, Some(Arc::from(detail)));
            return true;
        }
        probe!("shards.broadcast");
        keys.sort_unstable();
        self.divide(id, ShardsAgain::first_time(keys, true));
        true
    }

    /// The worker of what was broadcast is gone, and nobody else may have its shard.
    pub(super) fn worker_is_gone(&mut self, shard: InstanceId, why: &str) {
        probe!("shards.worker_gone");
        let live = self.instances.get_mut(&shard).expect("checked by the caller");
        live.row.failures += 1;
        self.end(shard, State::Failed, Cause::WorkerGone, None, Some(Arc::from(why)));
    }

    /// Divides an instance into these shards.
    fn divide(&mut self, id: InstanceId, into: ShardsAgain) {
        probe!("shards.divided");
        let now = self.now.wall;
        let ShardsAgain { count, are_for_workers, shards } = into;
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        let links = live.row.links.get_or_insert_default();
        links.shards = count;
        links.carried = count - shards.len() as u32;
        let (hops, carried) = (links.hops, links.carried);
        let transition = live.change(State::Running, Cause::Divided, now);
        if carried > 0 {
            probe!("shards.carried_over");
            transition.detail = Some(Arc::from(format!("{carried} of {count} shards have succeeded before and are carried over")));
        }
        self.mark_instance(id);
        self.parts.insert(id, Parts::default());
        for (index, shard_key) in shards {
            let links = Links { parent: Some(id), shards: count, shard_key, hops, is_for_worker: are_for_workers, ..Links::default() };
            let row = &self.instances[&id].row;
            let (part, payload) = (row.part.and_shard(index), row.payload.clone());
            self.make_part(id, part, links, payload);
        }
    }

    /// Makes a part of an instance and lets it wait for a worker.
    pub(super) fn make_part(&mut self, whole: InstanceId, part: Part, links: Links, payload: Option<Arc<str>>) {
        let live = &self.instances[&whole];
        let row = &live.row;
        let firing = Firing {
            task: row.task,
            version: row.version,
            definition: live.definition.clone(),
            fire_time: row.fire_time,
            ordinal: row.ordinal,
            run: row.run,
            part,
            origin: row.origin,
            payload,
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
            let is_mapped = row.links.as_ref().is_some_and(|links| links.map.is_some());
            self.parts.entry(id).or_default();
            if is_mapped {
                self.take_up_map(id);
            }
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
        if self.maps.contains_key(&whole) {
            self.map_part_ended(whole, part);
        } else if is_last {
            self.end_of_parts(whole);
        }
    }

    /// All parts have ended, and with them what they are parts of.
    pub(super) fn end_of_parts(&mut self, whole: InstanceId) {
        self.forget_map(whole);
        let live = self.instances.get_mut(&whole).expect("checked by the caller");
        let (failed, links) = (live.row.failures, live.row.links.as_deref().cloned().unwrap_or_default());
        match live.cancel.take() {
            Some((cause, detail)) => self.end(whole, State::Cancelled, cause, None, detail),
            None if failed == 0 => self.end(whole, State::Succeeded, Cause::PartsEnded, None, None),
            None => {
                probe!("shards.failed");
                let mut detail = format!("{failed} of {} shards did not succeed", links.shards);
                if links.carried > 0 {
                    detail.push_str(&format!(", {} were carried over", links.carried));
                }
                self.end(whole, State::Failed, Cause::PartsEnded, None, Some(Arc::from(detail)));
            }
        }
    }

    /// Cancels all parts of an instance that have not ended; it ends when they have.
    pub(super) fn cancel_parts(&mut self, whole: InstanceId, cause: Cause) {
        let Some(parts) = self.parts.get(&whole) else { return };
        if parts.is_empty() {
            // Of a map, while its next page is read.
            return self.end_of_parts(whole);
        }
        if parts.flow.is_some() {
            return self.cancel_run(whole);
        }
        for part in parts.unfinished.clone() {
            self.cancel_instance(part, cause, None);
        }
    }
}

impl ShardsAgain {
    /// All shards, with these keys.
    fn first_time(keys: Vec<Option<Arc<str>>>, are_for_workers: bool) -> ShardsAgain {
        let count = u32::try_from(keys.len()).expect("as many shards as the limit allows");
        ShardsAgain { count, are_for_workers, shards: (0..).zip(keys).collect() }
    }
}

impl Live {
    /// Whether it is to be divided among workers when it has its turn.
    pub(super) fn is_to_be_broadcast(&self) -> bool {
        let is_broadcast = self.definition.routing.as_ref().is_some_and(|routing| routing.strategy == Strategy::Broadcast);
        is_broadcast && !self.row.part.is_shard()
    }
}
