//! What operators do with what is there: whom it meets is found when it is done.

use std::sync::Arc;

use punctual_core::backfill::BackfillPlan;
use punctual_core::ids::{InboxId, InstanceId};
use punctual_core::inbox::{DelayedChange, NodeMark, RerunFrom};
use punctual_core::instance::{InstanceRow, Part, State};
use punctual_core::time::{Millis, Timestamp};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{Actor, InstanceAction, Rerunning, Submitted, TriggerChanged};

use crate::calls::name_of;
use crate::draw::Draw;
use crate::history::Ask;
use crate::model::{Data, Database};
use crate::plan::{Call, CallKind, Mark, Operation, Plan, TaskPlan};

/// So many plans in a thousand have operators.
const OPERATED_PER_MILLE: u64 = 350;
/// Fire times of a backfill lie this far apart, all of them before the plan begins.
const BACKFILLED_MS: u64 = 60_000;
/// Most fire times of a backfill, and most instances that are looked through for what has ended.
pub const BACKFILLED_MAX: u32 = 6;
const ENDED_LOOKED_AT: usize = 40;

/// What is asked of the database, with whom it meets.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Act(InstanceId, InstanceAction),
    Rerun(InstanceId, Rerunning),
    Mark(InstanceId, NodeIndex, NodeMark),
    Backfill(Arc<str>, Arc<BackfillPlan>, Option<InboxId>),
    EndBackfill(InboxId),
    Change(Arc<str>, Arc<str>, DelayedChange),
}

/// Has operators do something in some plans, early enough that it is over when it has to be.
pub fn draw_operations(seed: u64, tasks: &[TaskPlan], calls: &mut Vec<Call>, heal_at_ms: u64) {
    let mut draw = Draw::new(seed, "swarm operators");
    if !draw.chance(OPERATED_PER_MILLE) || tasks.is_empty() {
        return;
    }
    for _ in 0..draw.between(1, 6) {
        let operation = match *draw.weighted(&[(15, 0), (10, 1), (15, 2), (10, 3), (15, 4), (15, 5), (10, 6), (5, 7), (10, 8), (5, 9)]) {
            0 => Operation::Kill,
            1 => Operation::Skip,
            2 => Operation::Rerun,
            3 => Operation::RerunAll,
            4 => Operation::RerunFrom,
            5 => Operation::Mark(*draw.pick(&[Mark::Skipped, Mark::Succeeded, Mark::Failed])),
            6 => Operation::Backfill {
                task: draw.index(tasks.len()),
                count: draw.between(1, BACKFILLED_MAX.into()) as u32,
                concurrency: draw.between(1, 3) as u32,
            },
            7 => Operation::EndBackfill,
            8 => Operation::Reschedule { by_ms: draw.between(1, 200) * 100 },
            _ => Operation::Withdraw,
        };
        let at_ms = draw.between(20, heal_at_ms / 100 * 7 / 10) * 100;
        calls.push(Call { at_ms, what: CallKind::Operate { operation, nth: draw.index(12) } });
    }
    calls.sort_by_key(|call| call.at_ms);
}

fn nth_of<T>(of: &[T], nth: usize) -> Option<&T> {
    of.get(nth % of.len().max(1))
}

/// What this comes to now; nothing where it meets nobody.
pub(crate) fn order(plan: &Plan, data: &Data, operation: &Operation, nth: usize, now: Timestamp) -> Option<Order> {
    let live = || data.live.iter().filter_map(|id| data.instances.get(id));
    match operation {
        Operation::Kill | Operation::Skip => {
            let action = if *operation == Operation::Kill { InstanceAction::Kill } else { InstanceAction::Skip };
            // One that has begun is passed over where it is to be left out.
            let may = |row: &&InstanceRow| action == InstanceAction::Kill || row.attempt == 0 && row.part == Part::WHOLE;
            let found: Vec<_> = live().filter(may).map(|row| row.id).collect();
            nth_of(&found, nth).map(|id| Order::Act(*id, action))
        }
        Operation::Rerun | Operation::RerunAll | Operation::RerunFrom => {
            let is_run_only = *operation == Operation::RerunFrom;
            let may = |row: &&InstanceRow| row.part == Part::WHOLE && row.state.is_terminal() && (!is_run_only || row.is_run());
            let found: Vec<_> = data.instances.values().rev().filter(may).take(ENDED_LOOKED_AT).collect();
            let row = nth_of(&found, nth)?;
            let which = match operation {
                Operation::Rerun => Rerunning::Unsuccessful,
                Operation::RerunAll => Rerunning::All,
                _ => Rerunning::From(from(data, row, nth)?),
            };
            Some(Order::Rerun(row.id, which))
        }
        Operation::Mark(mark) => {
            let runs: Vec<_> = live().filter(|row| row.is_run()).collect();
            let run = nth_of(&runs, nth)?;
            let nodes = run.links.as_ref().map_or(1, |links| links.nodes).max(1);
            let mark = match mark {
                Mark::Skipped => NodeMark::Skipped,
                Mark::Succeeded => NodeMark::Succeeded,
                Mark::Failed => NodeMark::Failed,
            };
            Some(Order::Mark(run.id, NodeIndex(nth as u32 % nodes), mark))
        }
        Operation::Backfill { task, count, concurrency } => {
            let name = name_of(plan, *task);
            let (task, newest) = (data.names.get(&name)?.task, data.fired(&name, now, now)?.newest);
            let at = |number: u32| Timestamp(plan.starts_at).saturating_sub(Millis(BACKFILLED_MS * u64::from(count + 1 - number)));
            // Another one has other fire times.
            let shift = Millis(newest.map_or(0, |newest| newest.0));
            let fire_times = (1..=*count).map(|number| at(number).saturating_sub(shift)).collect();
            let plan = BackfillPlan { task, fire_times, concurrency: *concurrency, reason: None };
            Some(Order::Backfill(name, Arc::new(plan), newest))
        }
        Operation::EndBackfill => {
            let running: Vec<_> = data.backfills.values().filter(|row| row.is_unfinished()).map(|row| row.id).collect();
            nth_of(&running, nth).map(|id| Order::EndBackfill(*id))
        }
        Operation::Reschedule { .. } | Operation::Withdraw => {
            let waits = |row: &&InstanceRow| row.state == State::Waiting && row.due_at.is_some() && row.part == Part::WHOLE;
            let named = |row: &InstanceRow| Some((data.name_of(row.task)?.clone(), row.key.clone()?));
            let waiting: Vec<_> = live().filter(waits).filter_map(named).collect();
            let (name, key) = nth_of(&waiting, nth)?.clone();
            let change = match operation {
                Operation::Reschedule { by_ms } => DelayedChange::Reschedule(now.saturating_add(Millis(*by_ms))),
                _ => DelayedChange::Cancel,
            };
            Some(Order::Change(name, key, change))
        }
    }
}

/// A node from which a run may run again: one that has ended, and not well, where there is one.
fn from(data: &Data, run: &InstanceRow, nth: usize) -> Option<RerunFrom> {
    let workflow = data.definition(run.task, run.version)?.workflow.as_ref()?;
    let nodes = data.nodes_of(run);
    let not_well: Vec<_> = nodes.iter().filter(|row| !matches!(row.state, State::Succeeded)).collect();
    let node = nth_of(&not_well, nth).map(|row| **row).or_else(|| nth_of(&nodes, nth).copied())?;
    let name = workflow.graph().name(NodeIndex(node.part.node_index()?)).clone();
    Some(RerunFrom { nodes: vec![name], cascade: nth.is_multiple_of(2), ended: Vec::new() })
}

impl Order {
    /// What the history says of it.
    pub(crate) fn ask(&self) -> Ask {
        match self {
            Order::Act(instance, InstanceAction::Skip) => Ask::Skip { instance: *instance },
            Order::Act(instance, _) => Ask::Cancel { instance: *instance },
            Order::Rerun(instance, _) => Ask::Rerun { instance: *instance },
            Order::Mark(instance, ..) => Ask::Mark { instance: *instance },
            Order::Backfill(task, ..) => Ask::Backfill { task: task.clone() },
            Order::EndBackfill(backfill) => Ask::EndBackfill { backfill: *backfill },
            Order::Change(task, ..) => Ask::Change { task: task.clone() },
        }
    }

    /// Has the database carry it out.
    pub(crate) fn carry_out(self, database: &mut Database, at: u64) -> Submitted {
        let by: Arc<str> = Arc::from("client");
        match self {
            Order::Act(instance, action) => database.act(at, instance, action, &Actor::from(by)),
            Order::Rerun(instance, which) => database.rerun(at, instance, &by, None, which),
            Order::Mark(instance, node, mark) => database.mark_node(at, instance, node, mark, &by, None),
            Order::Backfill(_, plan, newest) => database.backfill(at, &plan, newest, &by),
            Order::EndBackfill(backfill) => database.cancel_backfill(at, backfill, &by, None),
            Order::Change(name, key, change) => match database.change_trigger(at, &name, &key, change, &Actor::from(by)) {
                TriggerChanged::Accepted { entry, .. } => Submitted::Accepted { entry },
                TriggerChanged::Over { .. } => Submitted::HasEnded,
                TriggerChanged::NoSuchTask => Submitted::NoSuchTask,
                TriggerChanged::NoSuchTrigger => Submitted::NoSuchInstance,
            },
        }
    }
}
