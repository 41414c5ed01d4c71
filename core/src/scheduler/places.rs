//! Who of a task's instances takes a place of its limit, and who waits for one: of the task, or of each value of its key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::definition::TaskDefinition;
use crate::ids::{InstanceId, TaskId};
use crate::instance::InstanceRow;
use crate::limit_key::{self, LimitKey};
use crate::limits;
use crate::scheduler::Scheduler;
use crate::text::cut;

/// Those that share a limit.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) in_progress: BTreeSet<InstanceId>,
    /// Behind the limit.
    pub(super) waiting: VecDeque<InstanceId>,
}

/// The instances of a task that have not ended.
#[derive(Debug, Default)]
pub(super) struct TaskInstances {
    /// Where the limit has no key.
    whole: Places,
    /// Where it has: the keys in use.
    keyed: BTreeMap<LimitKey, Places>,
    /// Of those that wait, so many wait for a key.
    keyed_waiting: usize,
    /// Those that are not due yet, by their ordinals: of a manual trigger there is one, others share 0.
    delayed: BTreeSet<(u64, InstanceId)>,
}

impl TaskInstances {
    pub(super) fn is_empty(&self) -> bool {
        let Places { in_progress, waiting } = &self.whole;
        in_progress.is_empty() && waiting.is_empty() && self.keyed.is_empty() && self.delayed.is_empty()
    }

    /// Those that share the limit of this key.
    pub(super) fn of(&self, key: Option<LimitKey>) -> Option<&Places> {
        match key {
            None => Some(&self.whole),
            Some(key) => self.keyed.get(&key),
        }
    }

    /// One is not due yet.
    pub(super) fn delay(&mut self, ordinal: u64, id: InstanceId) {
        self.delayed.insert((ordinal, id));
    }

    /// One that was not due is, or has ended.
    pub(super) fn delay_is_over(&mut self, ordinal: u64, id: InstanceId) {
        self.delayed.remove(&(ordinal, id));
    }

    /// That of a manual trigger, where it is not due yet.
    pub(super) fn delayed_of(&self, ordinal: u64) -> Option<InstanceId> {
        self.delayed.range((ordinal, InstanceId(0))..).next().filter(|(of, _)| *of == ordinal).map(|(_, id)| *id)
    }

    /// Those that are not due yet.
    pub(super) fn delayed(&self) -> impl Iterator<Item = InstanceId> {
        self.delayed.iter().map(|(_, id)| *id)
    }

    /// Whether so many wait for keys, all together, that no more may.
    pub(super) fn keys_are_full(&self) -> bool {
        self.keyed_waiting >= limits::MAX_QUEUE_MAX as usize
    }

    pub(super) fn in_progress(&self) -> impl Iterator<Item = InstanceId> {
        std::iter::once(&self.whole).chain(self.keyed.values()).flat_map(|of| of.in_progress.iter().copied())
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = InstanceId> {
        std::iter::once(&self.whole).chain(self.keyed.values()).flat_map(|of| of.waiting.iter().copied())
    }

    /// The keys whose limits somebody waits for.
    pub(super) fn keys_waited_for(&self) -> Vec<Option<LimitKey>> {
        let keyed = self.keyed.iter().filter(|(_, of)| !of.waiting.is_empty()).map(|(key, _)| Some(*key));
        (!self.whole.waiting.is_empty()).then_some(None).into_iter().chain(keyed).collect()
    }

    pub(super) fn begin(&mut self, key: Option<LimitKey>, id: InstanceId) {
        self.of_mut(key).in_progress.insert(id);
    }

    pub(super) fn wait(&mut self, key: Option<LimitKey>, id: InstanceId) {
        self.of_mut(key).waiting.push_back(id);
        self.keyed_waiting += usize::from(key.is_some());
    }

    /// The one that has waited longest for a place of this key, where fewer than `limit` are taken.
    pub(super) fn next(&mut self, key: Option<LimitKey>, limit: usize) -> Option<InstanceId> {
        let of = match key {
            None => &mut self.whole,
            Some(key) => self.keyed.get_mut(&key)?,
        };
        let next = if of.in_progress.len() < limit { of.waiting.pop_front() } else { None };
        self.keyed_waiting -= usize::from(next.is_some() && key.is_some());
        next
    }

    /// One has ended, or waits no more.
    pub(super) fn leave(&mut self, key: Option<LimitKey>, id: InstanceId) {
        let of = match key {
            None => &mut self.whole,
            Some(key) => match self.keyed.get_mut(&key) {
                Some(of) => of,
                None => return,
            },
        };
        if !of.in_progress.remove(&id) {
            let before = of.waiting.len();
            of.waiting.retain(|waiting| *waiting != id);
            if key.is_some() {
                self.keyed_waiting -= before - of.waiting.len();
            }
        }
        self.tidy(key);
    }

    /// Forgets a key that is not in use.
    pub(super) fn tidy(&mut self, key: Option<LimitKey>) {
        if let Some(key) = key
            && self.keyed.get(&key).is_some_and(|of| of.in_progress.is_empty() && of.waiting.is_empty())
        {
            self.keyed.remove(&key);
        }
    }

    fn of_mut(&mut self, key: Option<LimitKey>) -> &mut Places {
        match key {
            None => &mut self.whole,
            Some(key) => self.keyed.entry(key).or_default(),
        }
    }

    /// Takes all out, those that wait in their order.
    fn take(&mut self) -> (Vec<InstanceId>, Vec<InstanceId>) {
        let taken = (self.in_progress().collect(), self.waiting().collect());
        (self.whole, self.keyed, self.keyed_waiting) = (Places::default(), BTreeMap::new(), 0);
        taken
    }
}

/// The key under which an instance counts, by the task's definition as it is now.
pub(super) fn key_of(of_task: &TaskDefinition, row: &InstanceRow, of_instance: &TaskDefinition) -> Option<LimitKey> {
    let pointer = of_task.policies.limit_key.as_deref()?;
    Some(LimitKey::of(pointer, row.payload.as_deref().or(of_instance.payload.as_deref())))
}

/// Says for which key one waits.
pub(super) fn with_key(detail: Option<Arc<str>>, of_task: &TaskDefinition, payload: Option<&str>) -> Option<Arc<str>> {
    let Some(pointer) = of_task.policies.limit_key.as_deref() else { return detail };
    let key = limit_key::shown(pointer, payload.or(of_task.payload.as_deref()));
    Some(match detail {
        Some(detail) => Arc::from(cut(format!("{detail}; {key}"), limits::DETAIL_BYTES_MAX)),
        None => key,
    })
}

impl Scheduler {
    /// The key of a task's limit was edited: its instances count under those that they have now.
    pub(super) fn count_anew(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(of_task) = &mut task.instances else { return };
        let (in_progress, mut waiting) = of_task.take();
        waiting.sort_unstable();
        for (list, is_waiting) in [(in_progress, false), (waiting, true)] {
            for instance in list {
                let Some(live) = self.instances.get_mut(&instance) else { continue };
                live.limit_key = key_of(&task.definition, &live.row, &live.definition);
                match is_waiting {
                    true => of_task.wait(live.limit_key, instance),
                    false => of_task.begin(live.limit_key, instance),
                }
            }
        }
        for (_, instance) in &of_task.delayed {
            let Some(live) = self.instances.get_mut(instance) else { continue };
            live.limit_key = key_of(&task.definition, &live.row, &live.definition);
        }
    }
}
