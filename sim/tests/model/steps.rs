//! Random steps, and the world that makes calls of them: what owners believe, which may be wrong, and what is known of what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use punctual_core::batch::{AttemptOutput, Batch, GroupSlot, InstanceUpdate, LeaseCheck, Message, Output, Renewal, SlotWrite, TaskWrite};
use punctual_core::definition::GroupLimits;
use punctual_core::ids::{Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, partition_of};
use punctual_core::inbox::{InboxEntry, Notice, Request, Submission, ordinal_of};
use punctual_core::instance::{Cause, InstanceRow, Links, Origin, Part as FiringPart, State, Transition};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{InstanceCursor, InstanceFilter, LeaseAnswer, PauseTarget};
use punctual_store::conformance::{PARTITIONS, START, all_partitions, broken_document, document};

use crate::calls::{Call, Reply};

/// The tasks that there may be. The last one is never defined.
pub(crate) const NAMES: [&str; 6] = ["a", "b", "c", "d", "每日", "never"];
const SOURCES: [&str; 3] = ["files", "api", "crontab"];
const REPLICAS: [&str; 3] = ["a", "b", "c"];
const TEXTS: [&str; 3] = ["p", "q", ""];

/// One step. Numbers choose among what there is then, so that any numbers will do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Pass(i64),
    Beat(usize),
    Acquire {
        replica: usize,
        partitions: Vec<u16>,
        most: usize,
    },
    Renew {
        replica: usize,
        believed_by: usize,
        behind: u64,
        /// Partitions of which it knows of one commit more than there was.
        too_many: u8,
    },
    Release {
        replica: usize,
        believed_by: usize,
        behind: u64,
        keep: u8,
        leaves: bool,
    },
    Apply {
        source: usize,
        documents: Vec<(usize, usize)>,
        dry_run: bool,
    },
    Trigger {
        task: usize,
        key: Option<usize>,
        submissions: Vec<usize>,
        by: usize,
    },
    /// The last trigger with a key, once more.
    Repeat(usize),
    Cancel {
        instance: usize,
        reason: Option<usize>,
    },
    Rerun {
        instance: usize,
        reason: Option<usize>,
    },
    /// Of a task, or of everything.
    Pause {
        task: Option<usize>,
        is_paused: bool,
    },
    Discard {
        instance: usize,
    },
    Commit {
        replica: usize,
        parts: Vec<Part>,
        wrong: Option<Wrong>,
    },
    Inbox {
        partitions: Vec<u16>,
        after: usize,
        limit: usize,
    },
    Tasks {
        after: Option<usize>,
        limit: usize,
    },
    Instances {
        task: Option<usize>,
        state: Option<usize>,
        key: Option<usize>,
        before: Option<usize>,
        limit: usize,
    },
    Look(usize),
}

/// Something that a batch says.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Insert {
        task: usize,
        slot: i64,
        ordinal: u64,
        run: u32,
        shard: Option<u32>,
        version: u32,
        state: usize,
        key: Option<usize>,
    },
    Update {
        instance: usize,
        state: usize,
        new_fence: bool,
    },
    ApplyEntries(usize),
    Cursor {
        task: usize,
        next_fire: Option<i64>,
        fired_until: Option<i64>,
    },
    Occurrence {
        task: usize,
        slot: i64,
        outcome: usize,
    },
    Output {
        instance: usize,
        attempt: u32,
        text: usize,
    },
    Message {
        task: usize,
        hops: u32,
        payload: Option<usize>,
    },
    /// A group's slot: 0, it goes; 1, it waits; 2, it is granted.
    Slot {
        instance: u64,
        group: usize,
        becomes: u8,
    },
}

/// What is wrong with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    OldEpoch,
    OtherReplica,
    TooManyCommits,
    TooFewCommits,
    NoCommit,
    Uncovered,
    NoPartition,
    State,
    Fence,
    NoInstance,
    RepeatedFiring,
    RepeatedId,
    TwiceInOne,
    GoneEntry,
    NoEntry,
    EntryTwice,
}

impl Wrong {
    pub(crate) const ALL: [Wrong; 16] = [
        Wrong::OldEpoch,
        Wrong::OtherReplica,
        Wrong::TooManyCommits,
        Wrong::TooFewCommits,
        Wrong::NoCommit,
        Wrong::Uncovered,
        Wrong::NoPartition,
        Wrong::State,
        Wrong::Fence,
        Wrong::NoInstance,
        Wrong::RepeatedFiring,
        Wrong::RepeatedId,
        Wrong::TwiceInOne,
        Wrong::GoneEntry,
        Wrong::NoEntry,
        Wrong::EntryTwice,
    ];
}

fn any_part() -> impl Strategy<Value = Part> {
    let task = 0..NAMES.len() - 1;
    let key = proptest::option::of(0..TEXTS.len());
    let slot = 0..6_i64;
    prop_oneof![
        4 => (task.clone(), slot.clone(), 0..3_u64, (1..3_u32, proptest::option::of(0..3_u32)), 1..4_u32, 0..State::ALL.len(), key.clone())
            .prop_map(|(task, slot, ordinal, (run, shard), version, state, key)| {
                Part::Insert { task, slot, ordinal, run, shard, version, state, key: key.filter(|_| shard.is_none()) }
            }),
        1 => (task.clone(), 0..9_u32, key).prop_map(|(task, hops, payload)| Part::Message { task, hops, payload }),
        1 => (1..4_u64, 0..TEXTS.len(), 0..3_u8).prop_map(|(instance, group, becomes)| Part::Slot { instance, group, becomes }),
        4 => (any::<usize>(), 0..State::ALL.len(), any::<bool>())
            .prop_map(|(instance, state, new_fence)| Part::Update { instance, state, new_fence }),
        4 => (1..20_usize).prop_map(Part::ApplyEntries),
        1 => (task.clone(), proptest::option::of(slot.clone()), proptest::option::of(slot.clone()))
            .prop_map(|(task, next_fire, fired_until)| Part::Cursor { task, next_fire, fired_until }),
        1 => (task, slot, 0..Outcome::ALL.len()).prop_map(|(task, slot, outcome)| Part::Occurrence { task, slot, outcome }),
        1 => (any::<usize>(), 1..3_u32, 0..TEXTS.len()).prop_map(|(instance, attempt, text)| Part::Output { instance, attempt, text }),
    ]
}

/// Any step.
pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    let replica = 0..REPLICAS.len();
    let partitions = || proptest::collection::vec(0..PARTITIONS, 0..6);
    let name = 0..NAMES.len();
    let text = || proptest::option::of(0..TEXTS.len());
    let wrong = proptest::option::weighted(0.3, proptest::sample::select(&Wrong::ALL[..]));
    prop_oneof![
        2 => (-3_000..12_000_i64).prop_map(Step::Pass),
        1 => replica.clone().prop_map(Step::Beat),
        2 => (replica.clone(), partitions(), 0..9_usize)
            .prop_map(|(replica, partitions, most)| Step::Acquire { replica, partitions, most }),
        1 => (replica.clone(), replica.clone(), 0..2_u64, any::<u8>())
            .prop_map(|(replica, believed_by, behind, too_many)| Step::Renew { replica, believed_by, behind, too_many: too_many & (too_many >> 4) }),
        1 => (replica.clone(), replica.clone(), 0..2_u64, any::<u8>(), any::<bool>())
            .prop_map(|(replica, believed_by, behind, keep, leaves)| Step::Release { replica, believed_by, behind, keep, leaves }),
        3 => (0..SOURCES.len(), proptest::collection::vec((0..NAMES.len() - 1, 0..4_usize), 0..5), proptest::bool::weighted(0.2))
            .prop_map(|(source, documents, dry_run)| Step::Apply { source, documents, dry_run }),
        3 => (name.clone(), text(), proptest::collection::vec(0..TEXTS.len(), 0..3), 0..2_usize)
            .prop_map(|(task, key, submissions, by)| Step::Trigger { task, key, submissions, by }),
        1 => (0..REPLICAS.len()).prop_map(Step::Repeat),
        1 => (any::<usize>(), text()).prop_map(|(instance, reason)| Step::Cancel { instance, reason }),
        2 => (any::<usize>(), text()).prop_map(|(instance, reason)| Step::Rerun { instance, reason }),
        2 => (proptest::option::weighted(0.8, 0..NAMES.len()), any::<bool>()).prop_map(|(task, is_paused)| Step::Pause { task, is_paused }),
        1 => any::<usize>().prop_map(|instance| Step::Discard { instance }),
        8 => (replica, proptest::collection::vec(any_part(), 0..6), wrong)
            .prop_map(|(replica, parts, wrong)| Step::Commit { replica, parts, wrong }),
        2 => (partitions(), 0..12_usize, 0..6_usize).prop_map(|(partitions, after, limit)| Step::Inbox { partitions, after, limit }),
        1 => (proptest::option::of(name.clone()), 0..4_usize).prop_map(|(after, limit)| Step::Tasks { after, limit }),
        2 => (proptest::option::of(name), proptest::option::of(0..State::ALL.len()), text(), proptest::option::of(any::<usize>()), 0..5_usize)
            .prop_map(|(task, state, key, before, limit)| Step::Instances { task, state, key, before, limit }),
        1 => any::<usize>().prop_map(Step::Look),
    ]
}

/// What the callers know.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    /// What each replica was told of the leases that it was granted.
    believed: [BTreeMap<PartitionId, LeaseCheck>; REPLICAS.len()],
    /// The numbers of instances, fences and the like.
    sequence: u64,
    instances: Vec<InstanceRow>,
    /// Entries that can be read.
    inbox: BTreeMap<InboxId, InboxEntry>,
    gone: BTreeSet<InboxId>,
    /// Tasks in the order in which they were made.
    made: Vec<Arc<str>>,
    in_force: BTreeMap<TaskId, Option<Version>>,
    /// The last trigger with a key.
    keyed: Option<Call>,
}

impl World {
    pub(crate) fn new() -> World {
        World {
            now: START,
            believed: Default::default(),
            sequence: 0,
            instances: Vec::new(),
            inbox: BTreeMap::new(),
            gone: BTreeSet::new(),
            made: Vec::new(),
            in_force: BTreeMap::new(),
            keyed: None,
        }
    }

    /// The steps that each run begins with: an owner of everything, tasks, and what is in the inbox in force.
    pub(crate) fn beginning() -> Vec<Step> {
        vec![
            Step::Acquire { replica: 0, partitions: (0..PARTITIONS).collect(), most: 100 },
            Step::Apply { source: 0, documents: vec![(0, 0), (1, 0), (2, 0)], dry_run: false },
            Step::Inbox { partitions: vec![], after: 0, limit: 0 },
            Step::Commit { replica: 0, parts: vec![Part::ApplyEntries(9)], wrong: None },
        ]
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn task(&self, name: usize) -> (TaskId, PartitionId) {
        let place = self.made.iter().position(|made| **made == *NAMES[name]);
        (TaskId(place.map_or(77 + name as u64, |place| place as u64 + 1)), partition_of(NAMES[name], PARTITIONS))
    }

    fn instance(&self, which: usize) -> Option<&InstanceRow> {
        (!self.instances.is_empty()).then(|| &self.instances[which % self.instances.len()])
    }

    /// The calls that a step is.
    pub(crate) fn calls(&mut self, step: Step) -> Vec<Call> {
        let replica = |index: usize| ReplicaId(REPLICAS[index].into());
        // In any order, each once.
        let partitions = |some: Vec<u16>| {
            let mut named = BTreeSet::new();
            some.into_iter().map(PartitionId).filter(|partition| named.insert(*partition)).collect::<Vec<_>>()
        };
        let text = |index: usize| Arc::<str>::from(TEXTS[index]);
        match step {
            Step::Pass(millis) => {
                self.now.0 += millis;
                vec![]
            }
            Step::Beat(index) => vec![Call::Beat(replica(index))],
            Step::Acquire { replica: index, partitions: some, most } => vec![Call::Acquire(replica(index), partitions(some), most)],
            Step::Renew { replica: index, believed_by, behind, too_many } => {
                let mut leases = self.leases(believed_by, behind);
                leases.push((PartitionId(PARTITIONS + 1), Epoch(1)));
                let known = |partition| self.believed[believed_by].get(&partition).map_or(0, |lease| lease.commit_seq);
                let renewals = leases.into_iter().map(|(partition, epoch)| {
                    let commit_seq = known(partition) + u64::from(too_many.checked_shr(partition.0.into()).unwrap_or(0) & 1);
                    Renewal { partition, epoch, commit_seq }
                });
                vec![Call::Renew(replica(index), renewals.collect())]
            }
            Step::Release { replica: index, believed_by, behind, keep, leaves } => {
                let mut leases = self.leases(believed_by, behind);
                leases.retain(|(partition, _)| keep & (1 << partition.0) == 0);
                leases.push((PartitionId(PARTITIONS + 1), Epoch(1)));
                vec![Call::Release(replica(index), leases, leaves)]
            }
            Step::Apply { source, documents, dry_run } => {
                let document = |(name, text): (usize, usize)| match TEXTS.get(text) {
                    Some(text) => document(NAMES[name], text),
                    None => broken_document(NAMES[name]),
                };
                vec![Call::Apply { source: SOURCES[source].into(), documents: documents.into_iter().map(document).collect(), dry_run }]
            }
            Step::Trigger { task, key, submissions, by } => {
                let submission = |index: usize| Submission {
                    key: (index > 0).then(|| text(index)),
                    payload: Some(text(index)),
                    delay: (index > 1).then_some(Millis(7)),
                };
                let submissions = submissions.into_iter().map(submission).collect();
                let call = Call::Trigger { task: NAMES[task].into(), by: REPLICAS[by].into(), key: key.map(text), submissions };
                if key.is_some() {
                    self.keyed = Some(call.clone());
                }
                vec![call]
            }
            Step::Repeat(index) => {
                let mut call = self.keyed.clone();
                if let Some(Call::Trigger { by, .. }) = &mut call {
                    *by = REPLICAS[index].into();
                }
                Vec::from_iter(call)
            }
            Step::Cancel { instance, reason } => {
                let id = self.instance(instance).map_or(InstanceId(5), |row| row.id);
                vec![Call::Cancel(id, reason.map(text))]
            }
            Step::Rerun { instance, reason } => {
                let id = self.instance(instance).map_or(InstanceId(5), |row| row.id);
                vec![Call::Rerun(id, reason.map(text))]
            }
            Step::Pause { task, is_paused } => {
                vec![Call::Pause(task.map_or(PauseTarget::All, |task| PauseTarget::Task(NAMES[task].into())), is_paused)]
            }
            Step::Discard { instance } => vec![Call::Discard(self.instance(instance).map_or(InstanceId(5), |row| row.id))],
            Step::Commit { replica, parts, wrong } => vec![Call::Commit(Arc::new(self.batch(replica, parts, wrong)))],
            Step::Inbox { partitions: some, after, limit } => {
                // As owners do: snapshots, then the inbox from its beginning.
                let mut calls: Vec<_> = all_partitions().into_iter().map(Call::Snapshot).collect();
                calls.push(Call::Inbox(all_partitions(), InboxId(0), usize::MAX));
                let after = after.checked_sub(1).and_then(|index| self.inbox.keys().nth(index)).copied().unwrap_or_default();
                calls.push(Call::Inbox(all_partitions(), after, limit));
                calls.push(Call::Inbox(partitions(some), after, limit));
                calls
            }
            Step::Tasks { after, limit } => vec![Call::Tasks(after.map(|name| NAMES[name].into()), limit)],
            Step::Instances { task, state, key, before, limit } => {
                let before = before.and_then(|which| self.instance(which)).map(InstanceCursor::of);
                let (task, state) = (task.map(|name| NAMES[name].into()), state.map(|index| State::ALL[index]));
                vec![Call::Instances(InstanceFilter { task, whole: limit == 2, state, key: key.map(text), before, limit })]
            }
            Step::Look(which) => {
                let row = self.instance(which);
                let (id, ordinal) = row.map_or((InstanceId(5), 5), |row| (row.id, row.ordinal));
                let name = NAMES[which % NAMES.len()];
                let task = self.task(which % NAMES.len()).0;
                vec![
                    Call::Instance(id),
                    Call::Outputs(id),
                    Call::OfSubmission(ordinal),
                    Call::NameOf(task),
                    Call::Task(name.into()),
                    Call::Occurrences(name.into(), which % 3),
                    Call::Counts,
                    Call::People,
                ]
            }
        }
    }

    fn leases(&self, replica: usize, behind: u64) -> Vec<(PartitionId, Epoch)> {
        self.believed[replica].values().map(|lease| (lease.partition, Epoch(lease.epoch.0 - behind))).collect()
    }

    fn batch(&mut self, index: usize, parts: Vec<Part>, wrong: Option<Wrong>) -> Batch {
        let mut batch = Batch { replica: ReplicaId(REPLICAS[index].into()), ..Batch::default() };
        for part in parts {
            self.say(&mut batch, index, part);
        }
        batch.leases = self.believed[index].values().map(|lease| LeaseCheck { commit_seq: lease.commit_seq + 1, ..*lease }).collect();
        // An occurrence does not say its partition: stores take it without a lease, which no owner is without.
        if batch.leases.is_empty() {
            batch.occurrences.clear();
        }
        if let Some(wrong) = wrong {
            self.spoil(&mut batch, wrong);
        }
        self.sequence += 1;
        let sequence = self.sequence;
        batch.leases.iter_mut().for_each(|lease| lease.sequence = sequence);
        batch
    }

    fn say(&mut self, batch: &mut Batch, index: usize, part: Part) {
        let at = |slot: i64| Timestamp(START.0 + slot * 1_000);
        match part {
            Part::Insert { task, slot, ordinal, run, shard, version, state, key } => {
                let (task, partition) = self.task(task);
                // No two tasks and fire times have an ordinal in common.
                let ordinal = if ordinal == 0 { 0 } else { ordinal_of(InboxId(task.0 * 10 + slot as u64), ordinal as usize) };
                let row = self.row(partition, task, at(slot));
                let (state, version) = (State::ALL[state], Version(version));
                let part = shard.map_or(FiringPart::WHOLE, FiringPart::shard);
                let links =
                    Links { parent: Some(row.id), shards: 3, shard_key: key.map(|key| TEXTS[key].into()), hops: 7, ..Links::default() };
                let links = shard.map(|_| Box::new(links));
                let key = key.map(|key| TEXTS[key].into());
                batch.inserts.push(InstanceRow { ordinal, run, part, links, version, state, key, ..row });
            }
            Part::Update { instance, state, new_fence } => {
                let Some(row) = self.instance(instance) else { return };
                let (expected_state, expected_fence, mut row) = (row.state, row.fence, row.clone());
                row.state = State::ALL[state];
                row.attempt += 1;
                row.payload = Some("not what it is".into());
                row.result = new_fence.then(|| TEXTS[state % TEXTS.len()].into());
                if new_fence {
                    row.fence = Fence(self.next());
                }
                batch.updates.push(InstanceUpdate { expected_state, expected_fence, row });
            }
            Part::ApplyEntries(most) => {
                let believed = &self.believed[index];
                let entries = self.inbox.values().filter(|entry| believed.contains_key(&entry.partition)).take(most);
                for entry in entries {
                    batch.applied.push(entry.id);
                    if let Request::DefinitionChanged { task, version, definition, fired_until } = &entry.request {
                        let version = definition.as_ref().map(|_| *version);
                        let (task, partition, fired_until) = (*task, entry.partition, *fired_until);
                        batch.tasks.push(TaskWrite { task, partition, version, next_fire: Some(at(1)), fired_until });
                    }
                }
            }
            Part::Cursor { task, next_fire, fired_until } => {
                let (task, partition) = self.task(task);
                let version = self.in_force.get(&task).copied().flatten();
                batch.tasks.push(TaskWrite { task, partition, version, next_fire: next_fire.map(at), fired_until: fired_until.map(at) });
            }
            Part::Occurrence { task, slot, outcome } => batch.occurrences.push(Occurrence {
                task: self.task(task).0,
                version: Version(1),
                first: at(slot),
                last: at(slot + 1),
                count: 2,
                outcome: Outcome::ALL[outcome],
                instance: None,
                at: self.now,
            }),
            Part::Message { task, hops, payload } => {
                let Some(from) = self.believed[index].keys().next().copied() else { return };
                let name = NAMES[task].into();
                let (task, partition) = self.task(task);
                let (cause, payload) = (InstanceId::new(from, 7), payload.map(|text| TEXTS[text].into()));
                let caller_task = task;
                let notice = match hops {
                    0..4 => Notice::Chained { task, cause, hops, payload },
                    4 | 5 => Notice::Called { name, task: None, caller: cause, caller_task, hops, payload },
                    6 => Notice::CallCancelled { name, task: None, caller: cause, is_killed: payload.is_some() },
                    _ => {
                        let instance = (hops == 7).then(|| InstanceId::new(partition, 9));
                        Notice::CallEnded { task, caller: cause, instance, state: State::Skipped, result: payload, detail: None }
                    }
                };
                batch.messages.push(Message { partition, from, at: self.now, by: "an owner".into(), notice });
            }
            Part::Slot { instance, group, becomes } => {
                let Some(partition) = self.believed[index].keys().next().copied() else { return };
                let (group, task, place): (Arc<str>, _, _) = (TEXTS[group].into(), TaskId(instance), InboxId(u64::from(becomes)));
                let instance = InstanceId::new(PartitionId(1), instance);
                // An owner says each once.
                if batch.slots.iter().any(|write| write.instance == instance) {
                    return;
                }
                let limits = GroupLimits { max_running: (becomes == 1).then_some(7), rate: None };
                let notice = Notice::GroupAsk { group: group.clone(), instance, task, limits };
                batch.messages.push(Message { partition: PartitionId(1), from: partition, at: self.now, by: "an owner".into(), notice });
                let slot = GroupSlot { partition, group, instance, task, place, limits, is_granted: becomes == 2 };
                batch.slots.push(SlotWrite { partition, instance, slot: (becomes > 0).then_some(slot) });
            }
            Part::Output { instance, attempt, text } => {
                let Some(row) = self.instance(instance) else { return };
                let output = Output { bytes: TEXTS[text].into(), dropped: text as u64 };
                batch.outputs.push(AttemptOutput { instance: row.id, attempt, output });
            }
        }
    }

    fn row(&mut self, partition: PartitionId, task: TaskId, fire_time: Timestamp) -> InstanceRow {
        let (number, fence) = (self.next(), Fence(self.next()));
        let state = State::Created;
        let (at, cause) = (self.now, Cause::Fired);
        let transition = Transition { from: None, to: state, cause, at, attempt: 0, fence, worker: None, code: Some(1), detail: None };
        InstanceRow {
            id: InstanceId::new(partition, number),
            task,
            version: Version(1),
            fire_time,
            ordinal: 0,
            run: 1,
            part: FiringPart::WHOLE,
            links: None,
            result: None,
            origin: Origin::Schedule,
            state,
            fence,
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: None,
            due_at: Some(at),
            payload: Some("what it is".into()),
            key: None,
            transitions: vec![transition],
        }
    }

    /// Makes one thing wrong with the batch, where that can be done.
    fn spoil(&mut self, batch: &mut Batch, wrong: Wrong) {
        let lease = batch.leases.first_mut();
        match wrong {
            Wrong::OldEpoch => lease.into_iter().for_each(|lease| lease.epoch.0 -= 1),
            Wrong::OtherReplica => batch.replica = ReplicaId("somebody".into()),
            Wrong::TooManyCommits => lease.into_iter().for_each(|lease| lease.commit_seq += 1),
            Wrong::TooFewCommits => lease.into_iter().for_each(|lease| lease.commit_seq -= 1),
            Wrong::NoCommit => lease.into_iter().for_each(|lease| lease.commit_seq = 0),
            Wrong::NoPartition => {
                let (partition, epoch) = (PartitionId(PARTITIONS + 1), Epoch(1));
                batch.leases.push(LeaseCheck { partition, epoch, commit_seq: 1, sequence: 1 });
            }
            Wrong::Uncovered => {
                let (task, partition) = self.task(0);
                let row = self.row(partition, task, Timestamp(self.now.0 + 1));
                batch.inserts.push(row);
                batch.leases.retain(|lease| lease.partition != partition);
            }
            Wrong::State | Wrong::Fence | Wrong::NoInstance => {
                let (task, partition) = self.task(0);
                let mut row = match self.instances.first() {
                    Some(row) if wrong != Wrong::NoInstance => row.clone(),
                    _ => self.row(partition, task, START),
                };
                let (state, fence) = (row.state, row.fence);
                row.state = State::Cancelled;
                let (expected_state, expected_fence) = match wrong {
                    Wrong::State => (if state == State::Running { State::Created } else { State::Running }, fence),
                    _ => (state, Fence(fence.0 + 1)),
                };
                batch.updates.insert(0, InstanceUpdate { expected_state, expected_fence, row });
            }
            Wrong::RepeatedFiring | Wrong::RepeatedId | Wrong::TwiceInOne => {
                let (task, partition) = self.task(0);
                let fresh = self.row(partition, task, Timestamp(self.now.0 + 1));
                let first = self.instances.first().filter(|_| wrong != Wrong::TwiceInOne).cloned().unwrap_or_else(|| fresh.clone());
                let id = InstanceId::new(first.id.partition(), self.next());
                match wrong {
                    Wrong::RepeatedFiring => batch.inserts.extend([InstanceRow { id, ..first.clone() }, first]),
                    Wrong::RepeatedId => batch.inserts.push(InstanceRow { id: first.id, ..fresh }),
                    _ => batch.inserts.extend([fresh.clone(), InstanceRow { run: 9, ..fresh }]),
                }
            }
            Wrong::GoneEntry => batch.applied.extend(self.gone.first()),
            Wrong::NoEntry => batch.applied.push(InboxId(4_711)),
            Wrong::EntryTwice => batch.applied.extend(batch.applied.first().copied()),
        }
    }

    /// Learns from what came back.
    pub(crate) fn learn(&mut self, call: &Call, reply: &Reply) {
        match (call, reply) {
            (Call::Acquire(replica, ..), Reply::Leases(answers)) => {
                let Some(index) = REPLICAS.iter().position(|name| **name == *replica.0) else { return };
                for answer in answers {
                    if let LeaseAnswer::Granted { partition, epoch, commit_seq, sequence } = *answer {
                        self.believed[index].insert(partition, LeaseCheck { partition, epoch, commit_seq, sequence });
                    }
                }
            }
            (Call::Inbox(partitions, InboxId(0), usize::MAX), Reply::Page(page)) if partitions.len() == usize::from(PARTITIONS) => {
                self.inbox = page.entries.iter().map(|entry| (entry.id, entry.clone())).collect();
            }
            (Call::Commit(batch), Reply::Committed) => {
                // Somebody who holds nothing may say nothing.
                if let Some(index) = REPLICAS.iter().position(|name| **name == *batch.replica.0) {
                    self.believed[index].extend(batch.leases.iter().map(|lease| (lease.partition, *lease)));
                }
                self.instances.extend(batch.inserts.iter().cloned());
                for update in &batch.updates {
                    let row = self.instances.iter_mut().find(|row| row.id == update.row.id).expect("it was updated");
                    *row = update.row.clone();
                }
                for entry in &batch.applied {
                    self.inbox.remove(entry);
                    self.gone.insert(*entry);
                }
                self.in_force.extend(batch.tasks.iter().map(|write| (write.task, write.version)));
            }
            _ => {}
        }
    }

    /// Learns the ids of new tasks.
    pub(crate) fn learn_task(&mut self, name: &Arc<str>) {
        if !self.made.contains(name) {
            self.made.push(name.clone());
        }
    }

    /// The instances that are known.
    pub(crate) fn instances(&self) -> impl Iterator<Item = InstanceId> {
        self.instances.iter().map(|row| row.id)
    }
}
