//! What an attempt does: from the plan and the assignment, and from nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::protocol::{Assignment, End, MapRole};
use punctual_core::time::Timestamp;

use crate::plan::{HandlerPlan, Plan, stream};
use crate::trouble::{between, chance};

/// The handlers that every worker knows.
pub(crate) const HANDLERS: [&str; 3] = ["command", "http", "noop"];

/// How soon a handler that hangs looks whether it still does.
pub const HANG_STEP_MS: u64 = 500;

/// Most items that a handler of a plan lists.
pub(crate) const ITEMS_MAX: u32 = 6;

/// What an attempt that succeeds answers, and what it lists: of a map only. Its items are numbers, what is run for one answers the item, and
/// what reduces answers how many there are. `listed`: so many items; else by the fire time.
pub(crate) fn answers(assignment: &Assignment, listed: Option<u32>) -> (Option<Arc<str>>, Option<Arc<str>>) {
    match (&assignment.map, &assignment.shard) {
        (Some(MapRole::List), _) => {
            let count = listed.unwrap_or((assignment.fire_time.0 / 1_000).rem_euclid(i64::from(ITEMS_MAX) + 1) as u32);
            let items: Vec<_> = (0..count).map(|item| item.to_string()).collect();
            (None, Some(Arc::from(items.join("\n"))))
        }
        (Some(MapRole::Reduce { results }), _) => (Some(Arc::from(results.lines().count().to_string())), None),
        (None, Some(_)) => (assignment.payload.clone(), None),
        (None, None) => (None, None),
    }
}

/// How the handlers of a plan behave.
#[derive(Clone, Debug)]
pub struct Behaviours {
    seed: u64,
    /// By task name, with the place of the service that it calls.
    of_tasks: BTreeMap<String, (HandlerPlan, Option<usize>)>,
}

/// What an attempt does if nothing comes in between.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// How long its handler runs.
    pub takes_ms: u64,
    /// Whether it fails then.
    pub fails: bool,
}

impl Behaviours {
    /// Of this plan's tasks.
    pub fn new(plan: &Plan) -> Behaviours {
        let downstreams = plan.downstreams();
        let of_tasks = plan.tasks.iter().map(|task| {
            let name = task.document["name"].as_str().unwrap_or_default().to_owned();
            let place = task.handler.downstream.as_ref().and_then(|name| downstreams.iter().position(|downstream| downstream == name));
            (name, (task.handler.clone(), place))
        });
        Behaviours { seed: plan.seed, of_tasks: of_tasks.collect() }
    }

    /// How a task's handler behaves, and the place of the service that it calls.
    ///
    /// # Panics
    ///
    /// Where the plan has no such task.
    pub fn of(&self, task_name: &str) -> &(HandlerPlan, Option<usize>) {
        &self.of_tasks[task_name]
    }

    /// Each attempt, and each node of a workflow, has a stream of its own: whatever else happens, it does the same.
    ///
    /// # Panics
    ///
    /// Where the plan has no such task.
    pub fn attempt(&self, task_name: &str, fire_time: Timestamp, ordinal: u64, attempt: u32, node: Option<&str>) -> Attempt {
        let (handler, _) = self.of(task_name);
        let node = node.map(|node| format!("/{node}")).unwrap_or_default();
        let mut random = stream(self.seed, &format!("handler/{task_name}/{fire_time}/{ordinal}/{attempt}{node}"));
        let takes_ms = between(&mut random, handler.takes_ms);
        Attempt { takes_ms, fails: chance(&mut random, handler.fails_per_mille) }
    }
}

/// How an attempt ends that has come to its end. `rages`: a storm is over the service that it calls.
pub fn end_of(handler: &HandlerPlan, fails: bool, rages: bool) -> (End, Option<&'static str>) {
    match (fails || rages, handler.fails_for_good && !rages) {
        (false, _) => (End::Succeeded, None),
        (true, false) => (End::Failed, Some(if rages { "the service is down" } else { "failed" })),
        (true, true) => (End::FailedForGood, Some("failed for good")),
    }
}
