//! Histories made by hand, a step at a time, as a world would write them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::batch::{Batch, InstanceUpdate, LeaseCheck, TaskWrite};
use punctual_core::definition::{Handler, Policies, TaskDefinition, Trigger};
use punctual_core::ids::{CommitId, Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::inbox::ordinal_of;
use punctual_core::instance::{Cause, InstanceRow, Links, Origin, Part, State, Transition, WorkerRef};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::protocol::End;
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::check::{self, Verdict};
use punctual_sim::history::{Answer, Ask, History, Left, Record, What, Who};
use punctual_sim::plan::{HandlerPlan, Knobs, Plan, Shape, TaskPlan};
use serde_json::json;

/// The database's clock when a run begins: a full minute.
pub(crate) const START: i64 = 1_800_000_000_000;
/// The one partition of most stories.
pub(crate) const PARTITION: PartitionId = PartitionId(0);

/// A history under way.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) plan: Plan,
    pub(crate) history: History,
    /// Virtual time.
    pub(crate) at: u64,
    /// How far the database's clock is ahead of where it should be.
    pub(crate) wall_offset: i64,
    /// What the next commit writes.
    pub(crate) batch: Batch,
    /// Who commits, and under which epoch.
    pub(crate) owner: &'static str,
    pub(crate) epoch: Epoch,
    pub(crate) commit_seq: u64,
    pub(crate) sequence: u64,
    pub(crate) rows: BTreeMap<InstanceId, InstanceRow>,
    /// The rows as the last commit wrote them.
    pub(crate) stored: BTreeMap<InstanceId, (State, Fence)>,
    dirty: BTreeSet<InstanceId>,
    tasks: BTreeMap<TaskId, (Version, Arc<TaskDefinition>)>,
    pub(crate) next_entry: u64,
    pub(crate) next_call: u64,
}

/// A task that fires by hand only, with all defaults.
pub(crate) fn manual(name: &str) -> TaskDefinition {
    TaskDefinition::new(name, Trigger::Manual, Handler { name: Arc::from("command"), config: Arc::from("{}") })
}

/// A task with this trigger.
pub(crate) fn with(name: &str, trigger: Trigger) -> TaskDefinition {
    TaskDefinition { trigger, ..manual(name) }
}

/// A task that fires at a fixed rate.
pub(crate) fn every(name: &str, secs: u64) -> TaskDefinition {
    with(name, Trigger::FixedRate { interval: Millis::from_secs(secs) })
}

/// With other policies.
pub(crate) fn policies(mut definition: TaskDefinition, change: impl FnOnce(&mut Policies)) -> TaskDefinition {
    change(Arc::make_mut(&mut definition.policies));
    definition
}

/// So many seconds after the beginning, by the database's clock.
pub(crate) fn secs(secs: u64) -> Timestamp {
    Timestamp(START + secs as i64 * 1_000)
}

impl Story {
    /// One scheduler that owns the one partition, and two workers. Healed from the beginning; ends after a while.
    pub(crate) fn new() -> Story {
        let plan = Plan {
            starts_at: punctual_sim::plan::STARTS_AT,
            seed: 1,
            shape: Shape { schedulers: 1, workers: 2, slots: 4, partitions: 1 },
            knobs: Knobs::default(),
            tasks: Vec::new(),
            calls: Vec::new(),
            faults: Vec::new(),
            heal_at_ms: 0,
            horizon_ms: 600_000,
        };
        let mut story = Story {
            plan,
            history: History::default(),
            at: 0,
            wall_offset: 0,
            batch: Batch::default(),
            owner: "s0",
            epoch: Epoch(1),
            commit_seq: 0,
            sequence: 0,
            rows: BTreeMap::new(),
            stored: BTreeMap::new(),
            dirty: BTreeSet::new(),
            tasks: BTreeMap::new(),
            next_entry: 1,
            next_call: 1,
        };
        story.record(Who::Scheduler(0), What::Started { life: 1 });
        story.record(Who::Worker(0), What::Started { life: 1 });
        story.record(Who::Worker(1), What::Started { life: 1 });
        story.grant("s0", Epoch(1), 10_000_000);
        story
    }

    /// What the database's clock says.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp(START + self.at as i64 + self.wall_offset)
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.at += ms;
    }

    /// Time passes until so many seconds after the beginning.
    pub(crate) fn until(&mut self, secs: u64) {
        assert!(self.at <= secs * 1_000, "{} ms is over", self.at);
        self.at = secs * 1_000;
    }

    pub(crate) fn record(&mut self, who: Who, what: What) -> usize {
        let record = Record { at: self.at, wall: self.wall(), who, what };
        self.history.records.push(record);
        self.history.records.len() - 1
    }

    pub(crate) fn grant(&mut self, owner: &str, epoch: Epoch, until: u64) -> usize {
        let owner = ReplicaId(Arc::from(owner));
        self.record(Who::Database, What::LeaseGranted { partition: PARTITION, owner, epoch, until })
    }

    pub(crate) fn ask(&mut self, ask: Ask) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        self.record(Who::Client, What::Asked { call, ask });
        call
    }

    pub(crate) fn answer(&mut self, call: u64, answer: Answer) {
        self.record(Who::Client, What::Answered { call, answer });
    }

    pub(crate) fn entry(&mut self) -> InboxId {
        self.next_entry += 1;
        InboxId(self.next_entry - 1)
    }

    /// Writes a definition and leaves its entry in the inbox.
    pub(crate) fn write_definition(&mut self, task: TaskId, version: u32, definition: Option<TaskDefinition>) -> InboxId {
        let name = match (&definition, self.tasks.get(&task)) {
            (Some(definition), _) => definition.name.clone(),
            (None, known) => known.map_or_else(|| Arc::from("?"), |(_, definition)| definition.name.clone()),
        };
        let call = self.ask(Ask::Define { task: name });
        let entry = self.entry();
        let definition = definition.map(Arc::new);
        if let Some(definition) = &definition {
            self.tasks.insert(task, (Version(version), definition.clone()));
        }
        let what = What::Defined { entry, task, partition: PARTITION, version: Version(version), definition };
        self.record(Who::Database, what);
        self.answer(call, Answer::Accepted(entry));
        entry
    }

    /// Takes a definition over into the next batch.
    pub(crate) fn apply_definition(&mut self, entry: InboxId, task: TaskId, version: Option<u32>) {
        let write = TaskWrite { task, partition: PARTITION, version: version.map(Version), next_fire: None, fired_until: None };
        self.batch.tasks.push(write);
        self.batch.applied.push(entry);
    }

    /// Makes or edits a task, and its owner takes it over at once.
    pub(crate) fn define(&mut self, task: u64, definition: TaskDefinition) -> TaskId {
        let task = TaskId(task);
        let version = self.tasks.get(&task).map_or(1, |(version, _)| version.0 + 1);
        let entry = self.write_definition(task, version, Some(definition));
        self.apply_definition(entry, task, Some(version));
        self.commit();
        task
    }

    /// Removes a task, and its owner takes it over at once.
    pub(crate) fn remove(&mut self, task: TaskId) {
        let version = self.tasks[&task].0.0 + 1;
        let entry = self.write_definition(task, version, None);
        self.apply_definition(entry, task, None);
        self.commit();
    }

    fn definition_of(&self, task: TaskId) -> (Version, Arc<TaskDefinition>) {
        self.tasks[&task].clone()
    }

    fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A new row in the next batch.
    pub(crate) fn insert(&mut self, task: TaskId, fire_time: Timestamp, ordinal: u64, origin: Origin) -> InstanceId {
        let id = InstanceId::new(PARTITION, self.number());
        let version = self.definition_of(task).0;
        let row = InstanceRow {
            id,
            task,
            version,
            fire_time,
            ordinal,
            run: 1,
            part: Part::WHOLE,
            links: None,
            result: None,
            origin,
            state: State::Created,
            fence: Fence(0),
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: None,
            due_at: None,
            payload: None,
            key: None,
            transitions: Vec::new(),
        };
        self.rows.insert(id, row);
        let cause = match origin {
            Origin::Schedule => Cause::Fired,
            Origin::CatchUp => Cause::CaughtUp,
            Origin::Manual => Cause::Triggered,
            Origin::Chain => Cause::Chained,
            Origin::Rerun => Cause::RerunRequested,
            Origin::Backfill => Cause::Backfilled,
            Origin::Call => Cause::Called,
        };
        self.change(id, State::Created, cause);
        id
    }

    /// A fire time of the task, on time or made up for, in a batch of its own.
    pub(crate) fn fire(&mut self, task: TaskId, fire_time: Timestamp) -> InstanceId {
        let origin = if self.wall().since(fire_time) > Millis(5_000) { Origin::CatchUp } else { Origin::Schedule };
        let id = self.insert(task, fire_time, 0, origin);
        self.commit();
        id
    }

    /// What is fired from here on is fired by this version.
    pub(crate) fn learn(&mut self, task: TaskId, version: u32, definition: TaskDefinition) {
        self.tasks.insert(task, (Version(version), Arc::new(definition)));
    }

    /// Fire times that are not fired, in the next batch.
    pub(crate) fn drop_run(&mut self, task: TaskId, first: Timestamp, last: Timestamp, count: u64, outcome: Outcome) {
        let version = self.definition_of(task).0.0;
        self.drop_run_of(task, version, first, last, count, outcome);
    }

    /// Fire times of this version that are not fired, in the next batch.
    pub(crate) fn drop_run_of(&mut self, task: TaskId, version: u32, first: Timestamp, last: Timestamp, count: u64, outcome: Outcome) {
        let version = Version(version);
        let occurrence = Occurrence { task, version, first, last, count, outcome, instance: None, at: self.wall() };
        self.batch.occurrences.push(occurrence);
    }

    /// Writes a trigger into the inbox.
    pub(crate) fn submit(&mut self, task: TaskId, submissions: usize, key: Option<&str>) -> InboxId {
        let key: Option<Arc<str>> = key.map(Arc::from);
        let name = self.definition_of(task).1.name.clone();
        let call = self.ask(Ask::Trigger { task: name, key: key.clone() });
        let entry = self.entry();
        self.record(Who::Database, What::Submitted { entry, task, submissions, key });
        self.answer(call, Answer::Accepted(entry));
        entry
    }

    /// Applies a trigger of one submission, in the next batch.
    pub(crate) fn apply_trigger(&mut self, entry: InboxId, task: TaskId) -> InstanceId {
        self.batch.applied.push(entry);
        let at = self.wall();
        self.insert(task, at, ordinal_of(entry, 0), Origin::Manual)
    }

    /// Fires a task by hand.
    pub(crate) fn trigger(&mut self, task: TaskId) -> InstanceId {
        let entry = self.submit(task, 1, None);
        let id = self.apply_trigger(entry, task);
        self.commit();
        id
    }

    /// Writes a cancellation into the inbox.
    pub(crate) fn cancel(&mut self, instance: InstanceId) -> InboxId {
        let call = self.ask(Ask::Cancel { instance });
        let entry = self.entry();
        self.record(Who::Database, What::CancelSubmitted { entry, instance });
        self.answer(call, Answer::Accepted(entry));
        entry
    }

    /// Writes a rerun into the inbox.
    pub(crate) fn rerun(&mut self, instance: InstanceId) -> InboxId {
        let call = self.ask(Ask::Rerun { instance });
        let entry = self.entry();
        self.record(Who::Database, What::RerunSubmitted { entry, instance });
        self.answer(call, Answer::Accepted(entry));
        entry
    }

    /// Inserts the next run of an instance, in the next batch.
    pub(crate) fn insert_next_run(&mut self, of: InstanceId) -> InstanceId {
        let InstanceRow { task, fire_time, ordinal, run, .. } = self.rows[&of];
        let id = self.insert(task, fire_time, ordinal, Origin::Rerun);
        let row = self.row(id);
        (row.run, row.links) = (run + 1, Some(Box::new(Links { cause: Some(of), ..Links::default() })));
        id
    }

    pub(crate) fn row(&mut self, id: InstanceId) -> &mut InstanceRow {
        self.dirty.insert(id);
        self.rows.get_mut(&id).expect("a row of this story")
    }

    /// A transition, in the next batch.
    pub(crate) fn change(&mut self, id: InstanceId, to: State, cause: Cause) {
        let at = self.wall();
        let row = self.row(id);
        let from = row.transitions.last().map(|last| last.to);
        row.state = to;
        let worker = row.worker.as_ref().map(|worker| worker.id.clone());
        let (attempt, fence) = (row.attempt, row.fence);
        row.transitions.push(Transition { from, to, cause, at, attempt, fence, worker, code: None, detail: None });
    }

    /// Dispatches an instance, in the next batch.
    pub(crate) fn dispatch(&mut self, id: InstanceId, worker: usize) -> Fence {
        let fence = Fence(self.number());
        let row = self.row(id);
        row.attempt += 1;
        row.fence = fence;
        row.worker = Some(WorkerRef { id: WorkerId(Arc::from(format!("w{worker}"))), life: WorkerLife(1) });
        self.change(id, State::Dispatched, Cause::Assigned);
        fence
    }

    /// Carries the next batch out.
    pub(crate) fn commit(&mut self) -> usize {
        for id in std::mem::take(&mut self.dirty) {
            let row = self.rows[&id].clone();
            match self.stored.insert(id, (row.state, row.fence)) {
                None => self.batch.inserts.push(row),
                Some((expected_state, expected_fence)) => {
                    self.batch.updates.push(InstanceUpdate { expected_state, expected_fence, row });
                }
            }
        }
        self.commit_seq += 1;
        let mut batch = std::mem::take(&mut self.batch);
        batch.id = CommitId(self.commit_seq);
        batch.replica = ReplicaId(Arc::from(self.owner));
        let check = LeaseCheck { partition: PARTITION, epoch: self.epoch, commit_seq: self.commit_seq, sequence: self.sequence };
        batch.leases.push(check);
        self.record(Who::Database, What::Committed(Arc::new(batch)))
    }

    /// The handler of the current attempt begins.
    pub(crate) fn begin(&mut self, id: InstanceId, worker: usize) -> usize {
        let row = &self.rows[&id];
        let what = What::Began {
            life: 1,
            instance: id,
            fence: row.fence,
            attempt: row.attempt,
            task: row.task,
            version: row.version,
            fire_time: row.fire_time,
            ordinal: row.ordinal,
        };
        self.record(Who::Worker(worker), what)
    }

    pub(crate) fn effect(&mut self, id: InstanceId, fence: Fence, worker: usize) -> usize {
        self.record(Who::Worker(worker), What::Effect { instance: id, fence })
    }

    pub(crate) fn end(&mut self, id: InstanceId, fence: Fence, worker: usize, end: Option<End>) -> usize {
        self.record(Who::Worker(worker), What::Ended { instance: id, fence, end })
    }

    /// Dispatches an instance, and its handler begins.
    pub(crate) fn start(&mut self, id: InstanceId, worker: usize) -> Fence {
        let fence = self.dispatch(id, worker);
        self.commit();
        self.pass(5);
        self.begin(id, worker);
        self.change(id, State::Running, Cause::Started);
        self.commit();
        fence
    }

    /// The handler of the current attempt ends, as it should.
    pub(crate) fn succeed(&mut self, id: InstanceId, worker: usize) {
        let fence = self.rows[&id].fence;
        self.effect(id, fence, worker);
        self.end(id, fence, worker, Some(End::Succeeded));
        self.pass(5);
        self.change(id, State::Succeeded, Cause::Finished);
        self.commit();
    }

    /// The handler of the current attempt fails, and is to be retried after this wait.
    pub(crate) fn fail(&mut self, id: InstanceId, worker: usize, wait: u64) {
        let fence = self.rows[&id].fence;
        self.end(id, fence, worker, Some(End::Failed));
        self.pass(5);
        let due_at = self.wall().saturating_add(Millis(wait));
        self.row(id).failures += 1;
        self.change(id, State::Retrying, Cause::Finished);
        self.row(id).due_at = Some(due_at);
        self.commit();
    }

    /// The worker of the current attempt is taken for lost.
    pub(crate) fn lose(&mut self, id: InstanceId) {
        let due_at = self.wall();
        self.row(id).losses += 1;
        self.change(id, State::Retrying, Cause::WorkerLost);
        self.row(id).due_at = Some(due_at);
        self.commit();
    }

    /// The wait is over.
    pub(crate) fn ready_again(&mut self, id: InstanceId) {
        self.row(id).due_at = None;
        self.change(id, State::Created, Cause::BackoffElapsed);
        self.commit();
    }

    /// An instance runs, and ends as it should.
    pub(crate) fn run(&mut self, id: InstanceId, worker: usize) {
        self.start(id, worker);
        self.pass(100);
        self.succeed(id, worker);
    }

    /// The plan knows the task's handler, which takes up to this long.
    pub(crate) fn takes(&mut self, name: &str, ms: u64) {
        let handler = HandlerPlan { takes_ms: (1, ms), fails_per_mille: 0, fails_for_good: false, obeys_after_ms: None, downstream: None };
        self.plan.tasks.push(TaskPlan { document: json!({ "name": name }), handler });
    }

    /// All is well from here on.
    pub(crate) fn heal(&mut self) {
        self.plan.heal_at_ms = self.at;
        self.record(Who::World, What::Healed);
    }

    /// The run ends, with nothing in anybody's memory but what lives.
    pub(crate) fn finish(&mut self) {
        let live: Vec<_> = self.stored.iter().filter(|(_, (state, _))| !state.is_terminal()).map(|(id, _)| *id).collect();
        let instances = live.len();
        self.record(Who::Database, What::Left(Left::InDatabase { live, inbox: Vec::new() }));
        self.record(Who::Scheduler(0), What::Left(Left::InScheduler { is_up: true, instances, partitions: vec![PARTITION] }));
        for worker in 0..2 {
            self.record(Who::Worker(worker), What::Left(Left::InWorker { is_up: true, running: 0, reports: 0 }));
        }
    }

    /// The verdict on one property.
    pub(crate) fn verdict(&self, property: &str) -> Verdict {
        let judgements = check::judge(&self.plan, &self.history);
        judgements.into_iter().find(|judgement| judgement.property == property).expect("a property of the catalogue").verdict
    }

    /// Nothing is violated, and this property holds.
    #[track_caller]
    pub(crate) fn holds(&self, property: &str) {
        assert_eq!(self.violations(), [], "in a good history");
        assert_eq!(self.verdict(property), Verdict::Held, "{property}");
    }

    /// This property is violated, no other one is, and the witness names these.
    #[track_caller]
    pub(crate) fn violates(&self, property: &str, names: &[&str]) {
        let violations = self.violations();
        let properties: Vec<_> = violations.iter().map(|(property, _)| *property).collect();
        assert_eq!(properties, [property], "{violations:#?}");
        for name in names {
            assert!(violations[0].1.contains(name), "{name:?} is not in {:?}", violations[0].1);
        }
    }

    /// Nothing is violated, and of this property nothing can be said.
    #[track_caller]
    pub(crate) fn leaves_open(&self, property: &str, why: &str) {
        assert_eq!(self.violations(), [], "in a history that leaves {property} open");
        match self.verdict(property) {
            Verdict::Unknown(text) => assert!(text.contains(why), "{why:?} is not in {text:?}"),
            verdict => panic!("{property}: {verdict:?}"),
        }
    }

    pub(crate) fn violations(&self) -> Vec<(&'static str, String)> {
        let judgements = check::judge(&self.plan, &self.history);
        judgements
            .into_iter()
            .filter_map(|judgement| match judgement.verdict {
                Verdict::Violated { witness } => Some((judgement.property, witness)),
                _ => None,
            })
            .collect()
    }
}
