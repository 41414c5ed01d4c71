//! Tasks that fire when others have ended, or that nodes of others call: what is wrong with how they hang together.
//!
//! A task file sees its own tasks only, and so does whoever edits one. So this is checked where all are known: by the store, on what there
//! would be after a change, before anything of it is written.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::limits;
use crate::workflow::find_cycle;

/// A task that fires when another one has ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The one that ends.
    pub after: Arc<str>,
    /// The one that fires.
    pub task: Arc<str>,
}

/// A task of whose nodes one calls another task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The one that calls.
    pub task: Arc<str>,
    /// The one that is called, and fires.
    pub called: Arc<str>,
    /// By so many nodes.
    pub times: u32,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainProblem {
    /// A task would fire after one that there is not, or is no more.
    NoSuchTask(Edge),
    /// A node calls a task that there is not, or is no more.
    NothingToCall(Call),
    /// Tasks would fire each other for ever.
    Cycle {
        /// From one task back to itself, in the order of firing.
        path: Vec<Arc<str>>,
    },
    /// More tasks would fire after one than is good.
    TooMany {
        /// The one that ends.
        after: Arc<str>,
        /// How many.
        count: usize,
    },
    /// One firing would lead to more firings of other tasks than is good: each of them leads to several in turn.
    Spreads {
        /// The one that fires.
        task: Arc<str>,
        /// How many firings of other tasks follow, at most.
        firings: u64,
    },
}

impl ChainProblem {
    /// The code that docs/errors.md explains.
    pub const fn code(&self) -> &'static str {
        match self {
            ChainProblem::NoSuchTask(_) | ChainProblem::NothingToCall(_) => "PUN-151",
            ChainProblem::Cycle { .. } => "PUN-152",
            ChainProblem::TooMany { .. } => "PUN-153",
            ChainProblem::Spreads { .. } => "PUN-155",
        }
    }
}

impl fmt::Display for ChainProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainProblem::NoSuchTask(Edge { after, task }) => write!(
                f,
                "PUN-151: the task `{task}` is to fire after `{after}`, which there is not. Add that task, or take it out of `after` first"
            ),
            ChainProblem::NothingToCall(Call { task, called, .. }) => write!(
                f,
                "PUN-151: a node of `{task}` calls the task `{called}`, which there is not. Add that task, or take the node out first"
            ),
            ChainProblem::Cycle { path } => {
                write!(
                    f,
                    "PUN-152: these tasks would fire each other for ever: {}. Take one of them out of another one's `after`, or out of its nodes",
                    path.join(" > ")
                )
            }
            ChainProblem::TooMany { after, count } => write!(
                f,
                "PUN-153: {count} tasks would fire after `{after}`; at most {} may. Let some of them fire after another one of them",
                limits::REFERENCES_MAX
            ),
            ChainProblem::Spreads { task, firings } => write!(
                f,
                "PUN-155: each time that `{task}` fires, {firings} firings of other tasks could follow; at most {} may. Let fewer tasks call \
                 several others or fire after several others, one behind the other",
                limits::FOLLOWING_FIRINGS_MAX
            ),
        }
    }
}

/// Everything that is wrong with these edges and calls. `is_there`: whether there is a task of this name.
pub fn problems(edges: &[Edge], calls: &[Call], is_there: impl Fn(&str) -> bool) -> Vec<ChainProblem> {
    let missing = edges.iter().filter(|edge| !is_there(&edge.after));
    let mut problems: Vec<_> = missing.cloned().map(ChainProblem::NoSuchTask).collect();
    let missing = calls.iter().filter(|call| !is_there(&call.called));
    problems.extend(missing.cloned().map(ChainProblem::NothingToCall));
    let (mut names, mut numbers) = (Vec::<&Arc<str>>::new(), FxHashMap::<&Arc<str>, usize>::default());
    let (pairs, called): (Vec<_>, Vec<_>) = {
        let mut number_of = |name| {
            *numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let pairs = edges.iter().map(|edge| (number_of(&edge.after), number_of(&edge.task))).collect();
        (pairs, calls.iter().map(|call| (number_of(&call.task), number_of(&call.called), call.times)).collect())
    };
    let mut next = vec![Vec::new(); names.len()];
    pairs.iter().for_each(|(after, task)| next[*after].push((*task, 1)));
    for (after, next) in names.iter().zip(&next).filter(|(_, next)| next.len() > limits::REFERENCES_MAX) {
        problems.push(ChainProblem::TooMany { after: Arc::clone(after), count: next.len() });
    }
    called.iter().for_each(|(task, called, times)| next[*task].push((*called, *times)));
    match find_cycle(next.len(), |task| next[task].iter().map(|(follows, _)| *follows)) {
        Some(mut path) => {
            path.extend(path.first().copied());
            problems.push(ChainProblem::Cycle { path: path.into_iter().map(|number| names[number].clone()).collect() });
        }
        None => problems.extend(spreading(&next).map(|(task, firings)| ChainProblem::Spreads { task: names[task].clone(), firings })),
    }
    problems
}

/// The first tasks on their ways to whose firings too many others follow, and how many. `next`: what follows each task's firing, and how often;
/// in no ring.
fn spreading(next: &[Vec<(usize, u32)>]) -> impl Iterator<Item = (usize, u64)> {
    let mut before = vec![Vec::new(); next.len()];
    for (task, next) in next.iter().enumerate() {
        next.iter().for_each(|(follows, _)| before[*follows].push(task));
    }
    let mut open: Vec<_> = next.iter().map(Vec::len).collect();
    let mut ready: Vec<_> = (0..next.len()).filter(|task| open[*task] == 0).collect();
    let mut firings = vec![0_u64; next.len()];
    while let Some(task) = ready.pop() {
        let following = next[task].iter().map(|(follows, times)| u64::from(*times).saturating_mul(firings[*follows].saturating_add(1)));
        firings[task] = following.fold(0, u64::saturating_add);
        for earlier in &before[task] {
            open[*earlier] -= 1;
            if open[*earlier] == 0 {
                ready.push(*earlier);
            }
        }
    }
    let is_first = |task: usize| next[task].iter().all(|(follows, _)| firings[*follows] <= limits::FOLLOWING_FIRINGS_MAX);
    let firsts: Vec<_> = (0..next.len()).filter(|task| firings[*task] > limits::FOLLOWING_FIRINGS_MAX && is_first(*task)).collect();
    firsts.into_iter().map(move |task| (task, firings[task]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(&str, &str)]) -> Vec<Edge> {
        pairs.iter().map(|(after, task)| Edge { after: Arc::from(*after), task: Arc::from(*task) }).collect()
    }

    fn calls(pairs: &[(&str, &str)]) -> Vec<Call> {
        pairs.iter().map(|(task, called)| Call { task: Arc::from(*task), called: Arc::from(*called), times: 1 }).collect()
    }

    /// C345: over whatever kinds of edges, and also a task with itself.
    #[test]
    fn calls_and_ends_make_cycles_together() {
        let after = edges(&[("b", "c")]);
        assert_eq!(path(&problems(&after, &calls(&[("a", "b"), ("c", "a")]), |_| true)), ["b", "c", "a", "b"]);
        assert_eq!(path(&problems(&[], &calls(&[("a", "a")]), |_| true)), ["a", "a"]);
        // One that it calls may fire once more when it has ended.
        assert_eq!(problems(&edges(&[("a", "b")]), &calls(&[("a", "b")]), |_| true), []);
    }

    #[test]
    fn a_task_that_is_called_and_missing_is_named() {
        let found = problems(&[], &calls(&[("a", "b"), ("a", "gone")]), |name| name != "gone");
        assert_eq!(found, [ChainProblem::NothingToCall(calls(&[("a", "gone")]).remove(0))]);
        assert_eq!(
            found[0].to_string(),
            "PUN-151: a node of `a` calls the task `gone`, which there is not. Add that task, or take the node out first"
        );
    }

    #[test]
    fn calls_are_no_ends() {
        let names: Vec<_> = (0..=limits::REFERENCES_MAX).map(|number| number.to_string()).collect();
        let all: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        assert_eq!(problems(&[], &calls(&all), |_| true), []);
    }

    /// Of tasks that each lead to two others in a row: 2 + 4 + 8 and so on.
    #[test]
    fn what_doubles_on_each_step_is_refused_where_it_is_too_much() {
        let names: Vec<_> = (0..=60).map(|number| number.to_string()).collect();
        let steps = || names.windows(2).map(|step| (&*step[1], &*step[0]));
        let twice = |(task, called): (&str, &str)| Call { task: Arc::from(task), called: Arc::from(called), times: 2 };
        let refused = |firings, task: &str| [ChainProblem::Spreads { task: Arc::from(task), firings }];
        assert_eq!(problems(&[], &steps().map(twice).collect::<Vec<_>>(), |_| true), refused(131_070, "16"));
        assert_eq!(problems(&[], &steps().take(15).map(twice).collect::<Vec<_>>(), |_| true), []);
        // Each calls the one before it, and fires it when it has ended.
        let pairs: Vec<_> = steps().collect();
        assert_eq!(problems(&edges(&pairs), &calls(&pairs), |_| true), refused(131_070, "16"));
    }

    #[test]
    fn a_wide_step_and_a_long_row_are_no_spread() {
        let names: Vec<_> = (0..limits::REFERENCES_MAX).map(|number| number.to_string()).collect();
        let row: Vec<_> = names.windows(2).map(|step| (&*step[0], &*step[1])).collect();
        let wide: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
        assert_eq!(problems(&edges(&row), &[], |_| true), []);
        assert_eq!(problems(&edges(&wide), &[], |_| true), []);
    }

    fn path(problems: &[ChainProblem]) -> Vec<&str> {
        let path = problems.iter().find_map(|problem| if let ChainProblem::Cycle { path } = problem { Some(path) } else { None });
        path.into_iter().flatten().map(|name| &**name).collect()
    }

    #[test]
    fn a_diamond_is_no_cycle() {
        assert_eq!(problems(&edges(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]), &[], |_| true), []);
    }

    #[test]
    fn a_task_after_itself_is_a_cycle() {
        assert_eq!(path(&problems(&edges(&[("a", "a")]), &[], |_| true)), ["a", "a"]);
    }

    #[test]
    fn a_cycle_is_named_without_what_leads_to_it() {
        let found = problems(&edges(&[("x", "w1"), ("w1", "w3"), ("w3", "w2"), ("w2", "w1"), ("w3", "y")]), &[], |_| true);
        assert_eq!(path(&found), ["w1", "w3", "w2", "w1"]);
    }

    #[test]
    fn a_long_ring_ends_at_once() {
        let names: Vec<Arc<str>> = (0..100_000).map(|number| Arc::from(number.to_string())).collect();
        let ring = |index: usize| Edge { after: names[index].clone(), task: names[(index + 1) % names.len()].clone() };
        assert_eq!(path(&problems(&(0..names.len()).map(ring).collect::<Vec<_>>(), &[], |_| true)).len(), names.len() + 1);
    }

    #[test]
    fn a_task_that_is_missing_is_named() {
        let found = problems(&edges(&[("a", "b"), ("gone", "b")]), &[], |name| name != "gone");
        assert_eq!(found, [ChainProblem::NoSuchTask(edges(&[("gone", "b")]).remove(0))]);
    }

    #[test]
    fn too_many_after_one_are_counted() {
        let all: Vec<_> =
            (0..=limits::REFERENCES_MAX).map(|number| Edge { after: Arc::from("a"), task: Arc::from(number.to_string()) }).collect();
        assert!(
            matches!(&problems(&all, &[], |_| true)[..], [ChainProblem::TooMany { count, .. }] if *count == limits::REFERENCES_MAX + 1)
        );
    }
}
