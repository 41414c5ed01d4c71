//! An instance's states, the transitions between them, and its row.
//!
//! ```text
//! waiting -> created -> dispatched -> running -> succeeded
//!               ^            |           |-----> retrying -> created     (after backoff, under a higher fence)
//!               |            '-----------'-----> failed | timed_out | dead_lettered | cancelled
//! waiting, created -> skipped | cancelled
//! ```
//!
//! An instance that is divided into parts has no worker: it goes from `created` to `running`, and ends when they have; so does a node that
//! calls another task, with the instance that it has called. What is for one
//! worker only goes from `created` to `failed` when that is gone. A node of a workflow that never starts begins with its end: `skipped`, or what somebody says that it came to, or what it came to in the run before.
//!
//! A worker that was taken for lost may still report a success while its fence is the current one: then `retrying` or `created` goes
//! straight to `succeeded`.

use std::sync::Arc;

use crate::ids::{Fence, InstanceId, TaskId, Version, WorkerId, WorkerLife};
use crate::time::Timestamp;

/// Where an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Behind a concurrency limit, or not due yet.
    Waiting,
    /// Ready for a worker.
    Created,
    /// Assigned to a worker that has not said yet that it began.
    Dispatched,
    /// A worker is at it.
    Running,
    /// An attempt failed or was lost; the next one follows.
    Retrying,
    /// Done.
    Succeeded,
    /// An attempt failed and none was to follow.
    Failed,
    /// An attempt ran out of time and none was to follow.
    TimedOut,
    /// Given up after all attempts, or because nobody knows how far an attempt got. Waits for a person.
    DeadLettered,
    /// Ended by a person, a newer instance or the task's removal.
    Cancelled,
    /// Never started, on purpose.
    Skipped,
}

impl State {
    /// Every state, in the order of the diagram.
    pub const ALL: [State; 11] = [
        State::Waiting,
        State::Created,
        State::Dispatched,
        State::Running,
        State::Retrying,
        State::Succeeded,
        State::Failed,
        State::TimedOut,
        State::DeadLettered,
        State::Cancelled,
        State::Skipped,
    ];

    /// Terminal is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::TimedOut | State::DeadLettered | State::Cancelled | State::Skipped)
    }

    /// Whether a worker holds an attempt of it.
    pub const fn is_with_worker(self) -> bool {
        matches!(self, State::Dispatched | State::Running)
    }

    /// Whether it counts against the task's `max_running`.
    pub const fn is_in_progress(self) -> bool {
        matches!(self, State::Created | State::Dispatched | State::Running | State::Retrying)
    }

    /// Whether an instance may go from this state to that one.
    pub const fn may_become(self, next: State) -> bool {
        use State::*;
        match self {
            // One that is put off goes on waiting.
            Waiting => matches!(next, Waiting | Created | Skipped | Cancelled),
            Created => matches!(next, Dispatched | Running | Succeeded | Failed | Skipped | Cancelled),
            Dispatched => matches!(next, Created | Running | Succeeded | Retrying | Failed | TimedOut | DeadLettered | Cancelled),
            Running => matches!(next, Succeeded | Retrying | Failed | TimedOut | DeadLettered | Cancelled),
            Retrying => matches!(next, Created | Succeeded | Cancelled),
            Succeeded | Failed | TimedOut | DeadLettered | Cancelled | Skipped => false,
        }
    }

    /// Its name, the same in API, CLI, console and database.
    pub const fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Created => "created",
            State::Dispatched => "dispatched",
            State::Running => "running",
            State::Retrying => "retrying",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::TimedOut => "timed_out",
            State::DeadLettered => "dead_lettered",
            State::Cancelled => "cancelled",
            State::Skipped => "skipped",
        }
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Why an instance changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its fire time came.
    Fired,
    /// Its fire time had been missed and is made up for.
    CaughtUp,
    /// Somebody asked for it.
    Triggered,
    /// The task was at its concurrency limit.
    LimitReached,
    /// A slot of the concurrency limit became free.
    SlotFree,
    /// Its delay had passed.
    DelayElapsed,
    /// A worker was chosen.
    Assigned,
    /// The worker began.
    Started,
    /// The worker could not start it and gave it back; costs no attempt.
    Returned,
    /// The handler said so.
    Finished,
    /// The attempt ran out of time.
    TimedOut,
    /// The worker's lease ended, or it came back without the attempt.
    WorkerLost,
    /// The wait before the next attempt was over.
    BackoffElapsed,
    /// No attempt was left.
    AttemptsExhausted,
    /// It kept losing its workers.
    Quarantined,
    /// A worker may have begun, and the task is not idempotent.
    OutcomeUnknown,
    /// A newer instance took its place.
    Replaced,
    /// Somebody cancelled it.
    CancelRequested,
    /// The task was removed.
    TaskRemoved,
    /// The task was disabled.
    TaskDisabled,
    /// The instance of another task has ended.
    Chained,
    /// It was divided into parts, which run in its place.
    Divided,
    /// All its parts have ended.
    PartsEnded,
    /// What it is a part of has ended.
    ParentEnded,
    /// Its failure is not one of those that the task retries.
    NotRetried,
    /// The task had used up its retries.
    RetryBudgetExhausted,
    /// Somebody asked for it to run once more.
    RerunRequested,
    /// The only worker that it was for is gone.
    WorkerGone,
    /// It would have been divided into more parts than the limits allow.
    TooManyParts,
    /// What its parts have answered is too much to be handed on.
    ResultsTooLarge,
    /// Somebody put it off, or forward.
    Rescheduled,
    /// Somebody wanted it left out.
    SkipRequested,
    /// Somebody killed it.
    KillRequested,
    /// It is a node of a workflow, and its upstreams have come to what its rule wants.
    RuleMet,
    /// It is a node of a workflow, and its rule, its condition or the end of the run keeps it from starting.
    NodeSkipped,
    /// It is a node of a workflow, and somebody has said what became of it.
    Marked,
    /// It is a node of a workflow that is run again from other nodes: it had ended so in the run before.
    CarriedOver,
    /// Somebody had its fire time made up for.
    Backfilled,
    /// A node of another task's run called its task.
    Called,
    /// It is a node that calls another task.
    Calls,
    /// The instance that it called has ended, or there is none.
    CallEnded,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 41] = [
        Cause::Fired,
        Cause::CaughtUp,
        Cause::Triggered,
        Cause::LimitReached,
        Cause::SlotFree,
        Cause::DelayElapsed,
        Cause::Assigned,
        Cause::Started,
        Cause::Returned,
        Cause::Finished,
        Cause::TimedOut,
        Cause::WorkerLost,
        Cause::BackoffElapsed,
        Cause::AttemptsExhausted,
        Cause::Quarantined,
        Cause::OutcomeUnknown,
        Cause::Replaced,
        Cause::CancelRequested,
        Cause::TaskRemoved,
        Cause::TaskDisabled,
        Cause::Chained,
        Cause::Divided,
        Cause::PartsEnded,
        Cause::ParentEnded,
        Cause::NotRetried,
        Cause::RetryBudgetExhausted,
        Cause::RerunRequested,
        Cause::WorkerGone,
        Cause::TooManyParts,
        Cause::ResultsTooLarge,
        Cause::Rescheduled,
        Cause::SkipRequested,
        Cause::KillRequested,
        Cause::RuleMet,
        Cause::NodeSkipped,
        Cause::Marked,
        Cause::CarriedOver,
        Cause::Backfilled,
        Cause::Called,
        Cause::Calls,
        Cause::CallEnded,
    ];

    /// Its name, the same in API, CLI, console and database.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Fired => "fired",
            Cause::CaughtUp => "caught_up",
            Cause::Triggered => "triggered",
            Cause::LimitReached => "limit_reached",
            Cause::SlotFree => "slot_free",
            Cause::DelayElapsed => "delay_elapsed",
            Cause::Assigned => "assigned",
            Cause::Started => "started",
            Cause::Returned => "returned",
            Cause::Finished => "finished",
            Cause::TimedOut => "timed_out",
            Cause::WorkerLost => "worker_lost",
            Cause::BackoffElapsed => "backoff_elapsed",
            Cause::AttemptsExhausted => "attempts_exhausted",
            Cause::Quarantined => "quarantined",
            Cause::OutcomeUnknown => "outcome_unknown",
            Cause::Replaced => "replaced",
            Cause::CancelRequested => "cancel_requested",
            Cause::TaskRemoved => "task_removed",
            Cause::TaskDisabled => "task_disabled",
            Cause::Chained => "chained",
            Cause::Divided => "divided",
            Cause::PartsEnded => "parts_ended",
            Cause::ParentEnded => "parent_ended",
            Cause::NotRetried => "not_retried",
            Cause::RetryBudgetExhausted => "retry_budget_exhausted",
            Cause::RerunRequested => "rerun_requested",
            Cause::WorkerGone => "worker_gone",
            Cause::TooManyParts => "too_many_parts",
            Cause::ResultsTooLarge => "results_too_large",
            Cause::Rescheduled => "rescheduled",
            Cause::SkipRequested => "skip_requested",
            Cause::KillRequested => "kill_requested",
            Cause::RuleMet => "rule_met",
            Cause::NodeSkipped => "node_skipped",
            Cause::Marked => "marked",
            Cause::CarriedOver => "carried_over",
            Cause::Backfilled => "backfilled",
            Cause::Called => "called",
            Cause::Calls => "calls",
            Cause::CallEnded => "call_ended",
        }
    }
}

/// One change of state: a value of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The state before; `None` for the first.
    pub from: Option<State>,
    /// The state after.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// When the owner decided it, by the cluster's clock.
    pub at: Timestamp,
    /// The attempt that it concerns, counted from 1; 0 before the first.
    pub attempt: u32,
    /// That attempt's fence; 0 before the first.
    pub fence: Fence,
    /// The worker that holds, held or lost the attempt.
    pub worker: Option<WorkerId>,
    /// The exit code of a command or the status of an HTTP call.
    pub code: Option<i32>,
    /// In words: an error, or who asked and why.
    pub detail: Option<Arc<str>>,
}

/// Where an instance comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Its trigger's fire time, on time.
    Schedule,
    /// A missed fire time that is made up for.
    CatchUp,
    /// A manual trigger.
    Manual,
    /// The end of another task's instance.
    Chain,
    /// Somebody had an instance run once more.
    Rerun,
    /// Somebody had its trigger's fire time, long past, made up for.
    Backfill,
    /// A node of another task's run called its task.
    Call,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Origin; 7] =
        [Origin::Schedule, Origin::CatchUp, Origin::Manual, Origin::Chain, Origin::Rerun, Origin::Backfill, Origin::Call];

    /// Whether its task's own trigger gave the fire time.
    pub const fn is_own(self) -> bool {
        matches!(self, Origin::Schedule | Origin::CatchUp)
    }

    /// Whether a person or a program asked for it.
    pub const fn is_by_hand(self) -> bool {
        matches!(self, Origin::Manual | Origin::Rerun | Origin::Backfill)
    }

    /// Its name, the same in API, CLI, console and database.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Schedule => "schedule",
            Origin::CatchUp => "catch_up",
            Origin::Manual => "manual",
            Origin::Chain => "chain",
            Origin::Rerun => "rerun",
            Origin::Backfill => "backfill",
            Origin::Call => "call",
        }
    }
}

/// A worker in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRef {
    /// Which worker.
    pub id: WorkerId,
    /// In which life.
    pub life: WorkerLife,
}

/// The shard's place of a part that lists: no shard has it.
const LIST: u64 = u32::MAX as u64;
/// The shard's place of a part that reduces.
const REDUCE: u64 = LIST - 1;

/// Which part of a firing an instance is: the whole of it, a node of a workflow, a shard, or a shard of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part(pub u64);

impl Part {
    /// The firing itself.
    pub const WHOLE: Part = Part(0);

    /// A shard of the firing itself.
    pub const fn shard(index: u32) -> Part {
        Part(index as u64 + 1)
    }

    /// A node of a workflow.
    pub const fn node(index: u32) -> Part {
        Part((index as u64 + 1) << 32)
    }

    /// What an operator has said of a node that had ended: its own row stays as it was.
    #[must_use]
    pub const fn amended(self) -> Part {
        Part(self.0 | Part::AMENDED)
    }

    /// Whether it is what an operator has said of a node that had ended.
    pub const fn is_amendment(self) -> bool {
        self.0 & Part::AMENDED != 0
    }

    /// Far above the nodes, and below what a database takes for a sign.
    const AMENDED: u64 = 1 << 62;

    /// A shard of this part, which is not one itself.
    pub const fn and_shard(self, index: u32) -> Part {
        Part(self.without_shard().0 | (index as u64 + 1))
    }

    /// The part that lists the items of this one, which is mapped.
    pub const fn and_list(self) -> Part {
        Part(self.without_shard().0 | LIST)
    }

    /// The part that reduces the results of this one, which is mapped.
    pub const fn and_reduce(self) -> Part {
        Part(self.without_shard().0 | REDUCE)
    }

    /// Whether it lists the items of a map.
    pub const fn is_list(self) -> bool {
        self.0 & LIST == LIST
    }

    /// Whether it reduces the results of a map.
    pub const fn is_reduce(self) -> bool {
        self.0 & LIST == REDUCE
    }

    /// Whether it is a shard or an item, or lists or reduces: no part of its own can follow.
    pub const fn is_shard(self) -> bool {
        self.0 as u32 != 0
    }

    /// Which shard or item it is, counted from 0.
    pub const fn shard_index(self) -> Option<u32> {
        if self.is_list() || self.is_reduce() { None } else { (self.0 as u32).checked_sub(1) }
    }

    /// Which node of its workflow it is, or is a shard of; counted from 0.
    pub const fn node_index(self) -> Option<u32> {
        (((self.0 & !Part::AMENDED) >> 32) as u32).checked_sub(1)
    }

    const fn without_shard(self) -> Part {
        Part(self.0 >> 32 << 32)
    }

    /// What it is a part of; `None` for the whole.
    pub const fn parent(self) -> Option<Part> {
        match (self.is_shard(), self.node_index()) {
            (true, _) => Some(self.without_shard()),
            (false, Some(_)) => Some(Part::WHOLE),
            (false, None) => None,
        }
    }
}

/// How an instance hangs together with others. Most hang together with none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Links {
    /// The instance that it is a part of.
    pub parent: Option<InstanceId>,
    /// Into how many shards it was divided, or of how many it is one; 0: no shards.
    pub shards: u32,
    /// How many nodes the run of a workflow has, for the run itself; 0: it is none.
    pub nodes: u32,
    /// Where the shards are not numbered only: this one's key, or the worker that it is for.
    pub shard_key: Option<Arc<str>>,
    /// The instance whose end, whose call or whose rerun made this one.
    pub cause: Option<InstanceId>,
    /// How many chained tasks lie between this instance and one that a trigger fired.
    pub hops: u32,
    /// Of the shards that it was divided into, so many have succeeded in the run before and are not run again.
    pub carried: u32,
    /// It is a shard for the worker that its key names, and for nobody else.
    pub is_for_worker: bool,
    /// The shards that a rerun is to have, until it has them.
    pub again: Option<Box<ShardsAgain>>,
    /// How far it has come, where it is mapped over a list: then `shards` is how many items there are, once that is known.
    pub map: Option<Box<MapProgress>>,
    /// Its slot of a group, where it had to ask for one.
    pub slot: Option<SlotLink>,
    /// The call that it makes, or that made it.
    pub call: Option<Box<CallLink>>,
}

/// The two sides of a call: a node of a workflow's run that runs as an instance of another task, and that instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallLink {
    /// The node.
    Calls {
        /// The other task, by its name.
        task: Arc<str>,
        /// The instance, once that has ended. Until then [`called_ordinal`](crate::inbox::called_ordinal) finds it.
        instance: Option<InstanceId>,
    },
    /// The instance; its cause is the node.
    CalledBy {
        /// The node's task.
        task: TaskId,
    },
}

/// How far a firing has come that is mapped over a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapProgress {
    /// What is under way.
    pub phase: MapPhase,
    /// Of so many items instances were made, the first ones.
    pub made: u32,
    /// How much those of them that have ended have answered, in bytes.
    pub result_bytes: u64,
}

/// What is under way of a firing that is mapped over a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MapPhase {
    /// Its items are listed.
    #[default]
    List,
    /// Its items are run.
    Items,
    /// The results are reduced.
    Reduce,
}

/// The shards of a firing that are to run again: of what the run before was divided into, those that have not succeeded there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardsAgain {
    /// Into how many the firing was divided, at most [`SHARDS_MAX`](crate::limits::SHARDS_MAX).
    pub count: u32,
    /// Whether each is for the worker that its key names.
    pub are_for_workers: bool,
    /// Number and key of those that are to run again, in the order of their numbers; at least one.
    pub shards: Vec<(u32, Option<Arc<str>>)>,
}

/// An instance's slot of a group, as the instance's owner keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotLink {
    /// The group.
    pub group: Arc<str>,
    /// Whether it was granted; an instance that still waits for it has not begun.
    pub is_granted: bool,
}

/// An instance as the store keeps it. Its owner writes it whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstanceRow {
    /// Its id; names its partition.
    pub id: InstanceId,
    /// The task that it is a firing of.
    pub task: TaskId,
    /// The version of the task that it fired under and is run by.
    pub version: Version,
    /// The nominal instant.
    pub fire_time: Timestamp,
    /// Tells manual triggers of one millisecond apart (see [`ordinal_of`](crate::inbox::ordinal_of)); 0 for all others.
    pub ordinal: u64,
    /// 1, and one more for each rerun.
    pub run: u32,
    /// Which part of the firing it is. With `task`, `fire_time`, `ordinal` and `run` it is unique for ever.
    pub part: Part,
    /// Where it comes from.
    pub origin: Origin,
    /// Where it stands.
    pub state: State,
    /// The current attempt's fence; 0 before the first.
    pub fence: Fence,
    /// Attempts so far.
    pub attempt: u32,
    /// Attempts that failed or ran out of time.
    pub failures: u32,
    /// Attempts whose worker was lost.
    pub losses: u32,
    /// Who holds the current attempt.
    pub worker: Option<WorkerRef>,
    /// When a waiting or retrying instance becomes due.
    pub due_at: Option<Timestamp>,
    /// The payload that a manual trigger brought.
    pub payload: Option<Arc<str>>,
    /// The idempotency key of the manual trigger.
    pub key: Option<Arc<str>>,
    /// How it hangs together with others.
    pub links: Option<Box<Links>>,
    /// What its handler answered, at most [`RESULT_BYTES_MAX`](crate::limits::RESULT_BYTES_MAX) bytes.
    pub result: Option<Arc<str>>,
    /// All transitions, oldest first; never empty.
    pub transitions: Vec<Transition>,
}

impl InstanceRow {
    /// Whether it was divided into parts, which run in its place.
    pub fn has_parts(&self) -> bool {
        !self.part.is_shard() && self.links.as_ref().is_some_and(|links| links.shards > 0 || links.map.is_some() || links.nodes > 0)
    }

    /// Whether it is the run of a workflow.
    pub fn is_run(&self) -> bool {
        self.part == Part::WHOLE && self.links.as_ref().is_some_and(|links| links.nodes > 0)
    }

    /// Whether a worker holds an attempt of it.
    pub fn is_with_worker(&self) -> bool {
        self.state.is_with_worker() && !self.has_parts() && self.calls().is_none()
    }

    /// The task that it calls, for a node that runs as an instance of another task.
    pub fn calls(&self) -> Option<&Arc<str>> {
        match self.links.as_ref()?.call.as_deref()? {
            CallLink::Calls { task, .. } => Some(task),
            CallLink::CalledBy { .. } => None,
        }
    }

    /// The node that called it, and that one's task.
    pub fn caller(&self) -> Option<(InstanceId, TaskId)> {
        let links = self.links.as_ref()?;
        match links.call.as_deref()? {
            CallLink::Calls { .. } => None,
            CallLink::CalledBy { task } => Some((links.cause?, *task)),
        }
    }

    /// The instance that it is a part of.
    pub fn parent(&self) -> Option<InstanceId> {
        self.links.as_ref().and_then(|links| links.parent)
    }

    /// The group whose slot it waits for.
    pub fn waits_for_group(&self) -> Option<&Arc<str>> {
        let slot = self.links.as_ref()?.slot.as_ref()?;
        (self.state == State::Created && !slot.is_granted).then_some(&slot.group)
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.transitions.first().map_or(self.fire_time, |transition| transition.at)
    }

    /// When it ended, where it has.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.transitions.last().filter(|transition| transition.to.is_terminal()).map(|transition| transition.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_states_are_final() {
        for from in State::ALL {
            for to in State::ALL {
                assert!(!(from.is_terminal() && from.may_become(to)), "{from:?} -> {to:?}");
                assert!(from == State::Waiting || !from.may_become(from), "{from:?} to itself is no transition");
            }
            assert_eq!(State::from_name(from.name()), Some(from));
        }
    }

    #[test]
    fn every_state_can_be_reached_and_left() {
        for state in State::ALL {
            let reachable = state == State::Waiting || State::ALL.iter().any(|from| from.may_become(state));
            assert!(reachable, "{state:?}");
            assert!(state.is_terminal() || State::ALL.iter().any(|to| state.may_become(*to)), "{state:?}");
        }
    }
}
