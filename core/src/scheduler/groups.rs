//! Limits of groups: how many instances of several tasks may have begun and not ended, and how often one may begin, over all partitions.
//!
//! A group has a partition like a task has one, by its name; that one's owner keeps its slots. An instance that is about to begin stays
//! `created` and asks for one, in the batch that makes it so; it goes on when the grant has come, and its end gives the slot back, in the
//! batch that has the end. All three are entries in an inbox, and both sides write what they know: the group's owner its slots, in the
//! batch that applies the entry, the instance's owner in the instance's own row. So in the store there is at any moment, for each instance
//! that has asked and not ended, either its question on the way, or its slot, granted or not; whoever takes either side over goes on from
//! there, and neither is a slot granted twice nor one lost.
//!
//! An instance keeps its slot until it has ended, also while it waits to be retried. Who asks first is granted first. Each instance brings
//! what its own task knows of the limits: of two tasks that know different ones, each keeps to its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::batch::{GroupSlot, Message};
use crate::definition::GroupLimits;
use crate::guard;
use crate::guard::Guard;
use crate::ids::{InboxId, InstanceId, PartitionId, TaskId, partition_of};
use crate::inbox::{InboxEntry, Notice};
use crate::instance::SlotLink;
use crate::probe;
use crate::rate::{RateLimit, StartLog};
use crate::scheduler::Scheduler;
use crate::time::{Millis, Monotonic};

/// The groups whose partition this replica owns, as far as there is something to remember.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_name: BTreeMap<Arc<str>, Group>,
    /// Of all groups, by their instances.
    slots: FxHashMap<InstanceId, GroupSlot>,
    /// When a rate lets the next one begin, for those groups in which somebody waits for that.
    opens: BTreeSet<(Monotonic, Arc<str>)>,
    sweep_at: Monotonic,
}

#[derive(Debug)]
struct Group {
    partition: PartitionId,
    granted: usize,
    /// In the order in which they have asked.
    waiting: BTreeMap<InboxId, InstanceId>,
    /// What was granted lately; `None`: nobody has asked about a rate.
    log: Option<StartLog>,
    /// Its place in `opens`.
    opens_at: Option<Monotonic>,
}

/// How often groups without slots are forgotten.
const SWEEP_INTERVAL: Millis = Millis::from_secs(60);

/// A group as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Its name.
    pub group: Arc<str>,
    /// Instances that have a slot.
    pub running: usize,
    /// Instances that wait for one.
    pub waiting: usize,
}

impl Groups {
    /// Forgets what is known of a partition.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        let Groups { by_name, slots, opens, .. } = self;
        by_name.retain(|name, group| {
            if group.partition == partition
                && let Some(at) = group.opens_at
            {
                opens.remove(&(at, name.clone()));
            }
            group.partition != partition
        });
        slots.retain(|_, slot| slot.partition != partition);
    }

    /// When a rate lets one begin that waits for it.
    pub(super) fn next_at(&self) -> Option<Monotonic> {
        self.opens.first().map(|(at, _)| *at)
    }

    /// Forgets groups without slots whose rate has nothing to remember.
    pub(super) fn sweep(&mut self, now: Monotonic) {
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP_INTERVAL;
            let is_idle = |log: &Option<StartLog>| log.as_ref().is_none_or(|log| log.is_idle(now));
            self.by_name.retain(|_, group| group.granted > 0 || !group.waiting.is_empty() || !is_idle(&group.log));
        }
    }

    fn put(&mut self, slot: GroupSlot) {
        let new = || Group { partition: slot.partition, granted: 0, waiting: BTreeMap::new(), log: None, opens_at: None };
        let group = self.by_name.entry(slot.group.clone()).or_insert_with(new);
        match slot.is_granted {
            true => group.granted += 1,
            false => _ = group.waiting.insert(slot.place, slot.instance),
        }
        self.slots.insert(slot.instance, slot);
    }
}

impl Group {
    /// The log of its grants. Whoever has just come to own it doesn't know what was granted before that.
    fn log(&mut self, rate: RateLimit, owned_since: Monotonic) -> &mut StartLog {
        self.log.get_or_insert_with(|| StartLog::used_up(rate, owned_since))
    }
}

impl Scheduler {
    /// The groups whose partitions this replica owns and that have slots, by name.
    pub fn groups(&self) -> Vec<GroupView> {
        let groups = self.groups.by_name.iter().filter(|(_, group)| group.granted > 0 || !group.waiting.is_empty());
        let view =
            |(name, group): (&Arc<str>, &Group)| GroupView { group: name.clone(), running: group.granted, waiting: group.waiting.len() };
        groups.map(view).collect()
    }

    /// An instance is about to begin: asks for a slot of its group, where that has limits. False: it needs none.
    pub(super) fn asks_for_slot(&mut self, id: InstanceId) -> bool {
        let Some(live) = self.instances.get_mut(&id) else { return false };
        let Some(of_task) = self.tasks.get(&live.row.task) else { return false };
        let (Some(group), Some(limits)) = (&of_task.definition.group, of_task.definition.policies.group) else { return false };
        let (group, name) = (group.clone(), of_task.definition.name.clone());
        live.row.links.get_or_insert_default().slot = Some(SlotLink { group: group.clone(), is_granted: false });
        let (task, partition) = (live.row.task, partition_of(&group, self.config.partitions));
        self.mark_instance(id);
        let notice = Notice::GroupAsk { group, instance: id, task, limits };
        self.tell(id.partition(), partition, name, notice);
        true
    }

    /// An instance has ended: it needs its slot no more.
    pub(super) fn give_slot_back(&mut self, id: InstanceId) {
        let live = &self.instances[&id];
        let Some(slot) = live.row.links.as_ref().and_then(|links| links.slot.as_ref()) else { return };
        let (group, name) = (slot.group.clone(), live.definition.name.clone());
        let partition = partition_of(&group, self.config.partitions);
        self.tell(id.partition(), partition, name, Notice::GroupRelease { group, instance: id });
    }

    pub(super) fn tell(&mut self, from: PartitionId, to: PartitionId, by: Arc<str>, notice: Notice) {
        let at = self.now.wall;
        self.lanes.pending(from).messages.push(Message { partition: to, from, at, by, notice });
    }

    /// The grant has come. One that has ended meanwhile has said that it needs none.
    pub(super) fn slot_granted(&mut self, id: InstanceId) {
        let Some(live) = self.instances.get_mut(&id).filter(|live| live.row.waits_for_group().is_some()) else { return };
        if let Some(slot) = live.row.links.as_mut().and_then(|links| links.slot.as_mut()) {
            slot.is_granted = true;
        }
        self.mark_instance(id);
        self.begin(id);
    }

    /// An instance asks for a slot of a group that is this replica's.
    pub(super) fn slot_asked_for(&mut self, entry: &InboxEntry, group: &Arc<str>, instance: InstanceId, task: TaskId, limits: GroupLimits) {
        if self.groups.slots.contains_key(&instance) {
            return;
        }
        let (partition, place) = (entry.partition, entry.id);
        let slot = GroupSlot { partition, group: group.clone(), instance, task, place, limits, is_granted: false };
        self.lanes.pending(partition).slots.insert((partition, instance), Some(slot.clone()));
        self.groups.put(slot);
        self.grant_slots(group);
    }

    /// An instance has ended.
    pub(super) fn slot_given_back(&mut self, instance: InstanceId) {
        let Some(slot) = self.groups.slots.remove(&instance) else { return };
        self.lanes.pending(slot.partition).slots.insert((slot.partition, instance), None);
        if let Some(group) = self.groups.by_name.get_mut(&slot.group) {
            match slot.is_granted {
                true => group.granted -= 1,
                false => _ = group.waiting.remove(&slot.place),
            }
        }
        self.grant_slots(&slot.group);
    }

    /// What a snapshot has of the groups of its partition.
    pub(super) fn take_up_slots(&mut self, partition: PartitionId, slots: Vec<GroupSlot>) {
        let mut names = BTreeSet::new();
        for slot in slots {
            names.insert(slot.group.clone());
            self.groups.put(GroupSlot { partition, ..slot });
        }
        for name in names {
            self.grant_slots(&name);
        }
    }

    /// Lets those begin for which a rate has opened.
    pub(super) fn groups_due(&mut self) {
        while self.has_room_to_write()
            && let Some((at, _)) = self.groups.opens.first()
            && *at <= self.now.monotonic
        {
            let (_, name) = self.groups.opens.pop_first().expect("looked at");
            if let Some(group) = self.groups.by_name.get_mut(&name) {
                group.opens_at = None;
            }
            self.grant_slots(&name);
        }
    }

    /// Grants slots to those that wait, as far as the group's limits allow.
    fn grant_slots(&mut self, name: &Arc<str>) {
        let now = self.now.monotonic;
        while let Some(group) = self.groups.by_name.get_mut(name)
            && let Some((place, instance)) = group.waiting.first_key_value().map(|(place, instance)| (*place, *instance))
        {
            let partition = group.partition;
            if !self.partitions[usize::from(partition.0)].is_owned() {
                // To be handed over: its next owner grants.
                return;
            }
            let slot = self.groups.slots.get_mut(&instance).expect("whoever waits has a slot");
            let is_free = slot.limits.max_running.is_none_or(|most| group.granted < most as usize);
            if !guard!(Guard::GroupLimit, is_free) {
                probe!("group.full");
                return;
            }
            let owned_since = self.partitions[usize::from(partition.0)].loaded_at();
            if let Some(rate) = slot.limits.rate {
                let log = group.log(rate, owned_since);
                if log.free(rate, now) == 0 {
                    probe!("group.throttled");
                    let opens_at = log.opens_at(rate, now, 0).max(now + Millis(1));
                    if group.opens_at.is_none() {
                        group.opens_at = Some(opens_at);
                        self.groups.opens.insert((opens_at, name.clone()));
                    }
                    return;
                }
                log.note(rate, now);
            }
            let group = self.groups.by_name.get_mut(name).expect("looked up above");
            group.waiting.remove(&place);
            group.granted += 1;
            let slot = self.groups.slots.get_mut(&instance).expect("looked up above");
            slot.is_granted = true;
            let (task, slot) = (slot.task, slot.clone());
            self.lanes.pending(partition).slots.insert((partition, instance), Some(slot));
            self.tell(partition, instance.partition(), name.clone(), Notice::GroupGrant { task, instance });
        }
    }
}

/// Whether what an entry asks for makes nothing new, or what a node that has begun waits for: such an entry is applied also where there is no
/// room for more instances, since it makes room. There are no more calls than nodes that wait for them.
pub(super) fn makes_room(notice: &Notice) -> bool {
    // One that is cancelled stays behind its call.
    !matches!(notice, Notice::Chained { .. } | Notice::CallCancelled { .. })
}
