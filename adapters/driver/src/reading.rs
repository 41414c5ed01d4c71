//! What people list: instances and tasks by what they ask for, page by page.
//!
//! A page costs what it looks at, not what it finds: a store looks at so many rows and says where it has come to. A page may so have fewer
//! entries than asked for, or none, with more behind it; [`InstancePage::next`] says whether it is the last one.

use std::sync::Arc;

use punctual_core::ids::Version;
use punctual_core::instance::{InstanceRow, Origin, State};
use punctual_core::time::Timestamp;

use crate::ports::{InstanceCursor, InstanceFilter, InstanceView, TaskView};

/// Which instances to list, newest first, as [`InstanceFilter`] has it, and what that leaves open.
#[derive(Clone, Debug, Default)]
pub struct InstanceQuery {
    /// What an index finds. Its `state` is left out where `states` has any.
    pub filter: InstanceFilter,
    /// In one of these states; none: in any.
    pub states: Vec<State>,
    /// Of tasks of this group only.
    pub group: Option<Arc<str>>,
    /// That have an attempt on this worker.
    pub worker: Option<Arc<str>>,
    /// That came about so.
    pub origin: Option<Origin>,
    /// With a fire time from this instant on.
    pub fired_from: Option<Timestamp>,
    /// With a fire time before this instant.
    pub fired_until: Option<Timestamp>,
    /// Made from this instant on.
    pub created_from: Option<Timestamp>,
    /// Made before this instant.
    pub created_until: Option<Timestamp>,
    /// At most so many rows are looked at, where no index has all that is asked for.
    pub look_at: usize,
}

impl InstanceQuery {
    /// The states that are meant, each once; none: any.
    pub fn states(&self) -> Vec<State> {
        let mut states = if self.states.is_empty() { self.filter.state.into_iter().collect() } else { self.states.clone() };
        states.sort_unstable();
        states.dedup();
        states
    }

    /// Whether an instance's story is what is asked for: what its columns don't say.
    pub fn has_story(&self, row: &InstanceRow) -> bool {
        let on = |worker: &Arc<str>| row.transitions.iter().any(|step| step.worker.as_ref().is_some_and(|on| on.0 == *worker));
        self.worker.as_ref().is_none_or(on)
            && self.created_from.is_none_or(|from| row.created_at() >= from)
            && self.created_until.is_none_or(|until| row.created_at() < until)
    }

    /// Whether a story has to be read to know.
    pub fn asks_for_story(&self) -> bool {
        self.worker.is_some() || self.created_from.is_some() || self.created_until.is_some()
    }

    /// Whether an instance is asked for, but for task, group and place.
    pub fn matches(&self, row: &InstanceRow) -> bool {
        let states = self.states();
        (states.is_empty() || states.contains(&row.state))
            && (!self.filter.whole || row.part == punctual_core::instance::Part::WHOLE)
            && self.filter.key.as_ref().is_none_or(|key| row.key.as_ref() == Some(key))
            && self.origin.is_none_or(|origin| row.origin == origin)
            && self.fired_from.is_none_or(|from| row.fire_time >= from)
            && self.fired_until.is_none_or(|until| row.fire_time < until)
            && self.has_story(row)
    }
}

/// A page of instances.
#[derive(Clone, Debug, Default)]
pub struct InstancePage {
    /// Newest first.
    pub instances: Vec<InstanceView>,
    /// Where the next page begins; `None`: there is nothing behind this one.
    pub next: Option<InstanceCursor>,
}

impl InstancePage {
    /// Puts pages of lists that share no instance together, as one of at most `limit`. What lies behind the place that one of the lists has
    /// come to is left for the next page: that list may have something before it.
    pub fn merged(pages: Vec<InstancePage>, limit: usize) -> InstancePage {
        let horizon = pages.iter().filter_map(|page| page.next).max();
        let mut instances: Vec<_> = pages.into_iter().flat_map(|page| page.instances).collect();
        instances.sort_by_key(|view| std::cmp::Reverse(InstanceCursor::of(&view.row)));
        if let Some(horizon) = horizon {
            instances.retain(|view| InstanceCursor::of(&view.row) >= horizon);
        }
        if instances.len() > limit {
            instances.truncate(limit);
            let next = instances.last().map(|last| InstanceCursor::of(&last.row));
            return InstancePage { instances, next };
        }
        InstancePage { instances, next: horizon }
    }
}

/// Which tasks to list, by name; removed ones are left out.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Behind this name only: where the last page came to.
    pub after: Option<Arc<str>>,
    /// Whose names begin so.
    pub prefix: Option<Arc<str>>,
    /// Whose names have this in them, in upper or lower case.
    pub contains: Option<Arc<str>>,
    /// Of this group only.
    pub group: Option<Arc<str>>,
    /// At most so many.
    pub limit: usize,
    /// At most so many names are looked at.
    pub look_at: usize,
}

impl TaskQuery {
    /// Tells which names are asked for.
    pub fn names(&self) -> impl Fn(&str) -> bool {
        let (prefix, wanted) = (self.prefix.clone(), self.contains.as_ref().map(|text| text.to_lowercase()));
        move |name| {
            prefix.as_ref().is_none_or(|prefix| name.starts_with(&**prefix))
                && wanted.as_ref().is_none_or(|wanted| name.to_lowercase().contains(wanted))
        }
    }

    /// Chooses from names, which come in order from `after` or `prefix` on. Answers with the chosen ones, and where the next page begins.
    pub fn choose<N, E>(&self, candidates: impl IntoIterator<Item = Result<(N, Arc<str>), E>>) -> Result<(Vec<N>, Option<Arc<str>>), E> {
        let is_wanted = self.names();
        let (mut chosen, mut seen) = (Vec::new(), 0);
        for candidate in candidates {
            let (task, name) = candidate?;
            if self.prefix.as_ref().is_some_and(|prefix| !name.starts_with(&**prefix) && *name > **prefix) {
                return Ok((chosen, None));
            }
            seen += 1;
            if is_wanted(&name) {
                chosen.push(task);
            }
            if chosen.len() == self.limit || seen == self.look_at {
                return Ok((chosen, Some(name)));
            }
        }
        Ok((chosen, None))
    }
}

/// A page of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// By name.
    pub tasks: Vec<TaskView>,
    /// Where the next page begins; `None`: there is nothing behind this one.
    pub next: Option<Arc<str>>,
}

/// When a task fires next, as its owner has it.
#[derive(Clone, Debug)]
pub struct ComingTask {
    /// The task's name.
    pub name: Arc<str>,
    /// The version in force.
    pub version: Version,
    /// Its document.
    pub document: Arc<str>,
    /// The cursor.
    pub next_fire: Timestamp,
}

/// How the whole firings of a task ended on a day, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskDay {
    /// Days since 1 January 1970.
    pub day: i64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that failed, ran out of time, or were given up.
    pub failed: u64,
    /// Those that were cancelled or left out.
    pub stopped: u64,
}

/// So many days of a task are kept.
pub const TASK_DAYS: i64 = 32;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

impl TaskDay {
    /// The day that has this instant.
    pub fn of(at: Timestamp) -> i64 {
        at.0.div_euclid(DAY_MS)
    }

    /// Counts one that ended so.
    pub fn add(&mut self, state: State) {
        match state {
            State::Succeeded => self.succeeded += 1,
            State::Failed | State::TimedOut | State::DeadLettered => self.failed += 1,
            State::Cancelled | State::Skipped => self.stopped += 1,
            State::Waiting | State::Created | State::Dispatched | State::Running | State::Retrying => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(query: &TaskQuery, names: &[&'static str]) -> (Vec<&'static str>, Option<Arc<str>>) {
        query.choose(names.iter().map(|name| Ok::<_, ()>((*name, Arc::from(*name))))).unwrap()
    }

    #[test]
    fn names_are_chosen_up_to_the_limit_or_the_end_of_what_is_looked_at() {
        let all = ["a", "b-one", "b-two", "bc", "c-ONE"];
        let query = TaskQuery { limit: 10, look_at: 10, ..TaskQuery::default() };
        assert_eq!(choose(&query, &all), (all.to_vec(), None));
        let one = TaskQuery { contains: Some("One".into()), ..query.clone() };
        assert_eq!(choose(&one, &all), (vec!["b-one", "c-ONE"], None));
        assert_eq!(choose(&TaskQuery { limit: 1, ..one.clone() }, &all), (vec!["b-one"], Some("b-one".into())));
        assert_eq!(choose(&TaskQuery { look_at: 1, ..one }, &all), (vec![], Some("a".into())));
        // Behind the last that begins so nothing is looked at, however many there are.
        let begins = TaskQuery { prefix: Some("b-".into()), ..query };
        assert_eq!(choose(&begins, &all[1..]), (vec!["b-one", "b-two"], None));
    }
}
