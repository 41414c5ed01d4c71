//! How a page of instances is looked for, the same in every database: one walk through an index, or several whose lists are put together.

use std::collections::BTreeMap;

use punctual_core::batch::Batch;
use punctual_core::ids::TaskId;
use punctual_core::instance::{Part, State};
use punctual_driver::ports::{InstanceQuery, TaskDay};
use rustc_hash::FxHashSet;

use crate::codes::{Coded, LIVE_STATES_END, TROUBLED_STATES_END};

/// Of so few tasks of a group each has a walk of its own.
const WALKED_TASKS_MAX: usize = 16;
/// Walks of tasks find at most so many rows together.
const WALKED_ROWS_MAX: usize = 5_000;

/// A walk through an index, newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk<'a> {
    /// The index has this task only.
    pub(crate) task: Option<TaskId>,
    /// The index has this state only, of those that ended otherwise than well.
    pub(crate) state: Option<State>,
    /// Rows in these states only; `None`: in any.
    pub(crate) states: Option<Vec<State>>,
    /// Whether all of these are live, so that what is live is all there is to look at.
    pub(crate) is_live: bool,
    /// Rows of these tasks only.
    pub(crate) tasks: Option<&'a FxHashSet<TaskId>>,
}

impl Walk<'_> {
    /// Whether a row that is met is asked for, by state and task.
    pub(crate) fn takes(&self, state: Option<State>, task: TaskId) -> bool {
        self.states.as_ref().is_none_or(|states| state.is_some_and(|state| states.contains(&state)))
            && self.tasks.is_none_or(|tasks| tasks.contains(&task))
    }
}

fn is_troubled(state: State) -> bool {
    (LIVE_STATES_END..TROUBLED_STATES_END).contains(&state.code())
}

/// The walks that find what is asked for: each instance on one of them.
pub(crate) fn walks<'a>(query: &InstanceQuery, task: Option<TaskId>, group: Option<&'a FxHashSet<TaskId>>) -> Vec<Walk<'a>> {
    let states = query.states();
    let tasks = match (task, group) {
        // Of another group: nothing.
        (Some(task), Some(group)) if !group.contains(&task) => return Vec::new(),
        (Some(task), _) => vec![Some(task)],
        (None, Some(group)) if group.is_empty() => return Vec::new(),
        (None, Some(group)) if group.len() <= WALKED_TASKS_MAX && group.len() * query.filter.limit <= WALKED_ROWS_MAX => {
            let mut tasks: Vec<_> = group.iter().copied().map(Some).collect();
            tasks.sort_unstable();
            tasks
        }
        _ => vec![None],
    };
    let is_live = !states.is_empty() && states.iter().all(|state| !state.is_terminal());
    // A key has few instances, and what is live is read once.
    if query.filter.key.is_some() || is_live {
        let states = Some(states).filter(|states| !states.is_empty());
        return vec![Walk { task, state: None, states, is_live, tasks: group }];
    }
    let mut walks = Vec::new();
    for task in tasks {
        let tasks = group.filter(|_| task.is_none());
        if !states.is_empty() && states.iter().copied().all(is_troubled) {
            walks.extend(states.iter().map(|state| Walk { task, state: Some(*state), states: None, is_live, tasks }));
        } else {
            let states = Some(states.clone()).filter(|states| !states.is_empty());
            walks.push(Walk { task, state: None, states, is_live, tasks });
        }
    }
    walks
}

/// How the whole firings that end with a batch did so, by task and day.
pub(crate) fn days_of(batch: &Batch) -> BTreeMap<(TaskId, i64), TaskDay> {
    let mut days = BTreeMap::<_, TaskDay>::new();
    let ended = batch.updates.iter().filter(|update| !update.expected_state.is_terminal()).map(|update| &update.row);
    for row in batch.inserts.iter().chain(ended).filter(|row| row.part == Part::WHOLE) {
        if let Some(at) = row.ended_at() {
            let day = TaskDay::of(at);
            let counted = days.entry((row.task, day)).or_insert(TaskDay { day, ..TaskDay::default() });
            counted.add(row.state);
        }
    }
    days
}
