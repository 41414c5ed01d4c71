//! Tasks that fire when another one has ended.
//!
//! Who ends and who fires may have different owners. So the owner of the one that ends writes a notice into the other's inbox, in the batch
//! that has the end: it is there if and only if the end is, and is applied once, like every entry.

use std::sync::Arc;

use crate::batch::{Message, Reference};
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InstanceId, PartitionId, TaskId};
use crate::inbox::{InboxEntry, Notice, ordinal_of};
use crate::instance::{Links, Origin, Part};
use crate::limits;
use crate::occurrence::Outcome;
use crate::probe;
use crate::scheduler::requests::Asked;
use crate::scheduler::{Alert, Scheduler};

/// What a task's ends make fire, and where it is owned.
#[derive(Debug)]
pub(super) struct References {
    pub(super) partition: PartitionId,
    list: Box<[Reference]>,
}

impl Scheduler {
    /// What the ends of tasks make fire, as a snapshot has it.
    pub(super) fn take_up_references(&mut self, partition: PartitionId, mut references: Vec<Reference>) {
        references.sort_by_key(|reference| reference.from);
        for of_task in references.chunk_by(|one, next| one.from == next.from) {
            self.references_changed(partition, of_task[0].from, of_task.to_vec());
        }
    }

    pub(super) fn references_changed(&mut self, partition: PartitionId, task: TaskId, references: Vec<Reference>) {
        match references.is_empty() {
            true => self.references.remove(&task),
            false => self.references.insert(task, References { partition, list: references.into() }),
        };
    }

    /// An instance has ended: what it makes fire is told, in the batch that has the end.
    pub(super) fn tell_chained(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        let row = &live.row;
        let Some(references) = self.references.get(&row.task).filter(|_| row.part == Part::WHOLE) else { return };
        let (end, hops) = (row.state, row.links.as_ref().map_or(0, |links| links.hops) + 1);
        let (payload, by) = (row.result.clone(), live.definition.name.clone());
        let met = references.list.iter().filter(|reference| reference.on.is_met_by(end));
        let messages = met.map(|reference| {
            let notice = Notice::Chained { task: reference.to, cause: id, hops, payload: payload.clone() };
            Message { partition: reference.partition, from: id.partition(), at: self.now.wall, by: by.clone(), notice }
        });
        let messages: Vec<_> = messages.collect();
        if !messages.is_empty() {
            probe!("chain.told");
            self.lanes.pending(id.partition()).messages.extend(messages);
        }
    }

    /// An instance of another task has ended, and this task is to fire for it.
    pub(super) fn chained(&mut self, entry: &InboxEntry, task: TaskId, cause: InstanceId, hops: u32, payload: Option<Arc<str>>) {
        let Some(known) = self.tasks.get(&task) else {
            return self.record_trigger_of_nothing(task, entry.partition, entry.at);
        };
        if !known.definition.enabled {
            return self.record_not_fired(task, entry.at, Outcome::Disabled);
        }
        if !guard!(Guard::ChainsEnd, hops <= limits::CHAIN_HOPS_MAX) {
            self.hold_alert(entry.partition, Alert::ChainTooLong { task, cause });
            return self.record_not_fired(task, entry.at, Outcome::ChainTooLong);
        }
        let payload = payload.filter(|_| known.definition.payload.is_none());
        let links = Links { cause: Some(cause), hops, ..Links::default() };
        self.fire_for(Asked {
            task,
            partition: entry.partition,
            origin: Origin::Chain,
            ordinal: ordinal_of(entry.id, 0),
            at: entry.at,
            by: entry.by.clone(),
            payload,
            key: None,
            delay: None,
            links: Some(Box::new(links)),
        });
    }
}
