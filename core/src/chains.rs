//! Tasks that fire when others have ended: what is wrong with how they hang together.
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

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainProblem {
    /// A task would fire after one that there is not, or is no more.
    NoSuchTask(Edge),
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
}

impl ChainProblem {
    /// The code that docs/errors.md explains.
    pub const fn code(&self) -> &'static str {
        match self {
            ChainProblem::NoSuchTask(_) => "PUN-151",
            ChainProblem::Cycle { .. } => "PUN-152",
            ChainProblem::TooMany { .. } => "PUN-153",
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
            ChainProblem::Cycle { path } => {
                write!(
                    f,
                    "PUN-152: these tasks would fire each other for ever: {}. Take one of them out of the other's `after`",
                    path.join(" > ")
                )
            }
            ChainProblem::TooMany { after, count } => write!(
                f,
                "PUN-153: {count} tasks would fire after `{after}`; at most {} may. Let some of them fire after another one of them",
                limits::REFERENCES_MAX
            ),
        }
    }
}

/// Everything that is wrong with these edges. `is_there`: whether there is a task of this name.
pub fn problems(edges: &[Edge], is_there: impl Fn(&str) -> bool) -> Vec<ChainProblem> {
    let missing = edges.iter().filter(|edge| !is_there(&edge.after));
    let mut problems: Vec<_> = missing.cloned().map(ChainProblem::NoSuchTask).collect();
    let (mut names, mut numbers) = (Vec::<&Arc<str>>::new(), FxHashMap::<&Arc<str>, usize>::default());
    let pairs: Vec<_> = {
        let mut number_of = |name| {
            *numbers.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            })
        };
        edges.iter().map(|edge| (number_of(&edge.after), number_of(&edge.task))).collect()
    };
    let mut next = vec![Vec::new(); names.len()];
    pairs.iter().for_each(|(after, task)| next[*after].push(*task));
    for (after, next) in names.iter().zip(&next).filter(|(_, next)| next.len() > limits::REFERENCES_MAX) {
        problems.push(ChainProblem::TooMany { after: Arc::clone(after), count: next.len() });
    }
    if let Some(mut path) = find_cycle(next.len(), |task| next[task].iter().copied()) {
        path.extend(path.first().copied());
        problems.push(ChainProblem::Cycle { path: path.into_iter().map(|number| names[number].clone()).collect() });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(&str, &str)]) -> Vec<Edge> {
        pairs.iter().map(|(after, task)| Edge { after: Arc::from(*after), task: Arc::from(*task) }).collect()
    }

    fn path(problems: &[ChainProblem]) -> Vec<&str> {
        let path = problems.iter().find_map(|problem| if let ChainProblem::Cycle { path } = problem { Some(path) } else { None });
        path.into_iter().flatten().map(|name| &**name).collect()
    }

    #[test]
    fn a_diamond_is_no_cycle() {
        assert_eq!(problems(&edges(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]), |_| true), []);
    }

    #[test]
    fn a_task_after_itself_is_a_cycle() {
        assert_eq!(path(&problems(&edges(&[("a", "a")]), |_| true)), ["a", "a"]);
    }

    #[test]
    fn a_cycle_is_named_without_what_leads_to_it() {
        let found = problems(&edges(&[("x", "w1"), ("w1", "w3"), ("w3", "w2"), ("w2", "w1"), ("w3", "y")]), |_| true);
        assert_eq!(path(&found), ["w1", "w3", "w2", "w1"]);
    }

    #[test]
    fn a_long_ring_ends_at_once() {
        let names: Vec<Arc<str>> = (0..100_000).map(|number| Arc::from(number.to_string())).collect();
        let ring = |index: usize| Edge { after: names[index].clone(), task: names[(index + 1) % names.len()].clone() };
        assert_eq!(path(&problems(&(0..names.len()).map(ring).collect::<Vec<_>>(), |_| true)).len(), names.len() + 1);
    }

    #[test]
    fn a_task_that_is_missing_is_named() {
        let found = problems(&edges(&[("a", "b"), ("gone", "b")]), |name| name != "gone");
        assert_eq!(found, [ChainProblem::NoSuchTask(edges(&[("gone", "b")]).remove(0))]);
    }

    #[test]
    fn too_many_after_one_are_counted() {
        let all: Vec<_> =
            (0..=limits::REFERENCES_MAX).map(|number| Edge { after: Arc::from("a"), task: Arc::from(number.to_string()) }).collect();
        assert!(matches!(&problems(&all, |_| true)[..], [ChainProblem::TooMany { count, .. }] if *count == limits::REFERENCES_MAX + 1));
    }
}
