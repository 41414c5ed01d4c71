//! Histories made by hand: what a test says happened, in the form that worlds write.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::batch::{Batch, InstanceUpdate};
use punctual_core::ids::{Fence, InboxId, InstanceId, PartitionId, TaskId, Version, partition_of};
use punctual_core::instance::{Cause, InstanceRow, Origin, Part, State, Transition};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::protocol::End;
use punctual_core::time::Timestamp;
use punctual_sim::history::{History, Record, What, Who};
use punctual_sim::plan::{Fault, Plan};
use punctual_sim::rehearsal::{Options, plan_of};
use punctual_sim::report::Report;
use punctual_spec::file::{FileTask, read_text};
use punctual_spec::zones::Zones;

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;

/// A run of a task file, told step by step. Steps of one instance are told in their order; those of several in any.
pub(crate) struct Story {
    pub(crate) plan: Plan,
    pub(crate) tasks: Vec<FileTask>,
    records: Vec<Record>,
    rows: BTreeMap<InstanceId, InstanceRow>,
    sequence: u64,
}

impl Story {
    /// A run without faults of so many hours, all of whose tasks are made at its beginning; it ends when it heals.
    pub(crate) fn of(yaml: &str, hours: u64) -> Story {
        Story::with(yaml, Options { seed: 1, hours, families: Default::default(), ..Options::default() })
    }

    pub(crate) fn with(yaml: &str, options: Options) -> Story {
        let tasks = read_text("tasks.yaml", yaml, &Zones::bundled()).unwrap_or_else(|problems| panic!("{problems}")).tasks;
        let mut plan = plan_of(&tasks, &options);
        plan.calls.clear();
        plan.horizon_ms = plan.heal_at_ms;
        let mut story = Story { plan, tasks, records: Vec::new(), rows: BTreeMap::new(), sequence: 1 };
        for index in 0..story.tasks.len() {
            let definition = Some(story.tasks[index].definition.clone());
            let (task, partition) = (id_of(index), story.partition(index));
            story.tell(
                0,
                Who::Database,
                What::Defined { entry: InboxId(index as u64 + 1), task, partition, version: Version(1), definition },
            );
        }
        story
    }

    fn partition(&self, task: usize) -> PartitionId {
        partition_of(&self.tasks[task].spec.name, self.plan.shape.partitions)
    }

    fn index(&self, task: &str) -> usize {
        self.tasks.iter().position(|other| other.spec.name == task).unwrap_or_else(|| panic!("there is no task {task}"))
    }

    fn wall(&self, at_ms: u64) -> Timestamp {
        Timestamp(self.plan.starts_at + at_ms as i64)
    }

    pub(crate) fn tell(&mut self, at: u64, who: Who, what: What) {
        let wall = self.wall(at);
        self.records.push(Record { at, wall, who, what });
    }

    fn commit(&mut self, at: u64, batch: Batch) {
        self.tell(at, Who::Database, What::Committed(Arc::new(batch)));
    }

    /// An instance is made: ready, or behind the limit.
    pub(crate) fn made(&mut self, task: &str, fire_ms: u64, at_ms: u64, state: State, cause: Cause) -> InstanceId {
        let index = self.index(task);
        self.sequence += 1;
        let id = InstanceId::new(self.partition(index), self.sequence);
        let origin = match cause {
            Cause::CaughtUp => Origin::CatchUp,
            Cause::Triggered => Origin::Manual,
            _ => Origin::Schedule,
        };
        let row = InstanceRow {
            id,
            task: id_of(index),
            version: Version(1),
            fire_time: self.wall(fire_ms),
            ordinal: if origin == Origin::Manual { self.sequence } else { 0 },
            run: 1,
            part: Part::WHOLE,
            links: None,
            result: None,
            origin,
            state,
            fence: Fence(0),
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: None,
            due_at: None,
            payload: None,
            key: None,
            transitions: vec![self.transition(None, state, cause, at_ms, 0)],
        };
        self.rows.insert(id, row.clone());
        self.commit(at_ms, Batch { inserts: vec![row], ..Batch::default() });
        id
    }

    /// An instance fires on time and is ready.
    pub(crate) fn fired(&mut self, task: &str, fire_ms: u64) -> InstanceId {
        self.made(task, fire_ms, fire_ms, State::Created, Cause::Fired)
    }

    fn transition(&self, from: Option<State>, to: State, cause: Cause, at_ms: u64, attempt: u32) -> Transition {
        Transition { from, to, cause, at: self.wall(at_ms), attempt, fence: Fence(0), worker: None, code: None, detail: None }
    }

    /// It goes into another state.
    pub(crate) fn becomes(&mut self, id: InstanceId, at_ms: u64, state: State, cause: Cause) {
        let row = &self.rows[&id];
        let (expected_state, expected_fence) = (row.state, row.fence);
        let transition = self.transition(Some(row.state), state, cause, at_ms, row.attempt);
        let row = self.rows.get_mut(&id).unwrap();
        row.state = state;
        row.transitions.push(transition);
        let update = InstanceUpdate { expected_state, expected_fence, row: row.clone() };
        self.commit(at_ms, Batch { updates: vec![update], ..Batch::default() });
    }

    /// A worker gets it and begins.
    pub(crate) fn begins(&mut self, id: InstanceId, at_ms: u64) {
        self.sequence += 1;
        let fence = Fence(self.sequence);
        let row = self.rows.get_mut(&id).unwrap();
        row.attempt += 1;
        row.fence = fence;
        let (attempt, task, version, fire_time, ordinal) = (row.attempt, row.task, row.version, row.fire_time, row.ordinal);
        self.becomes(id, at_ms, State::Dispatched, Cause::Assigned);
        let what = What::Began { life: 1, instance: id, fence, attempt, task, version, fire_time, ordinal };
        self.tell(at_ms, Who::Worker(0), what);
        self.becomes(id, at_ms, State::Running, Cause::Started);
    }

    /// Its handler ends, by its own account.
    pub(crate) fn handler_ends(&mut self, id: InstanceId, at_ms: u64, end: Option<End>) {
        let fence = self.rows[&id].fence;
        self.tell(at_ms, Who::Worker(0), What::Ended { instance: id, fence, end });
    }

    /// It runs from then to then, and succeeds.
    pub(crate) fn succeeds(&mut self, id: InstanceId, from_ms: u64, until_ms: u64) {
        self.begins(id, from_ms);
        self.handler_ends(id, until_ms, Some(End::Succeeded));
        self.becomes(id, until_ms, State::Succeeded, Cause::Finished);
    }

    /// It runs from then to then, fails, and is to be tried again at a third time.
    pub(crate) fn fails(&mut self, id: InstanceId, from_ms: u64, until_ms: u64, again_ms: u64) {
        self.begins(id, from_ms);
        self.handler_ends(id, until_ms, Some(End::Failed));
        self.becomes(id, until_ms, State::Retrying, Cause::Finished);
        self.becomes(id, again_ms, State::Created, Cause::BackoffElapsed);
    }

    /// It runs from then to then, fails, and that is the end of it.
    pub(crate) fn fails_for_good(&mut self, id: InstanceId, from_ms: u64, until_ms: u64) {
        self.begins(id, from_ms);
        self.handler_ends(id, until_ms, Some(End::FailedForGood));
        self.becomes(id, until_ms, State::Failed, Cause::Finished);
    }

    /// Its worker is lost while it runs.
    pub(crate) fn is_lost(&mut self, id: InstanceId, from_ms: u64, until_ms: u64, becomes: State, cause: Cause) {
        self.begins(id, from_ms);
        self.handler_ends(id, until_ms, None);
        self.becomes(id, until_ms, becomes, cause);
    }

    /// The row of the last instance that was made.
    pub(crate) fn row(&self) -> InstanceRow {
        self.rows.last_key_value().map(|(_, row)| row.clone()).expect("an instance was made")
    }

    /// Fire times are dropped.
    pub(crate) fn dropped(&mut self, task: &str, at_ms: u64, outcome: Outcome, count: u64) {
        let task = id_of(self.index(task));
        let at = self.wall(at_ms);
        let occurrence = Occurrence { task, version: Version(1), first: at, last: at, count, outcome, instance: None, at };
        self.commit(at_ms, Batch { occurrences: vec![occurrence], ..Batch::default() });
    }

    /// Something goes wrong, and is right again.
    pub(crate) fn fault(&mut self, fault: Fault) {
        let index = self.plan.faults.len();
        self.tell(fault.at_ms, Who::World, What::FaultBegan(index));
        self.tell(fault.at_ms + fault.lasts_ms, Who::World, What::FaultEnded(index));
        self.plan.faults.push(fault);
    }

    pub(crate) fn history(&self) -> History {
        let mut records = self.records.clone();
        records.sort_by_key(|record| record.at);
        History { records }
    }

    /// The report, with all promises held.
    pub(crate) fn report(&self) -> Report {
        self.report_with(&[("fire.accounted", Ok(())), ("heal.converges", Ok(()))])
    }

    pub(crate) fn report_with(&self, verdicts: &[(&str, Result<(), String>)]) -> Report {
        Report::of(&self.plan, &self.history(), verdicts)
    }
}

/// The id of the task at this place.
pub(crate) fn id_of(index: usize) -> TaskId {
    TaskId(index as u64 + 1)
}
