//! Workflows: graphs of nodes, and the runs that go through them.
//!
//! What is absent: what a node runs, its attempts, retries and shards, its instance, time. A [`Graph`] is structure only, and whoever keeps
//! the work of a node keeps it by [`NodeIndex`]. To a [`Run`] a node starts once and ends once, whatever it took in between.
//!
//! ```text
//!            NodeSpec, NodeSpec, ...                 the states on record
//!                      |                                      |
//!                 Graph::new ---> all that is wrong           |  Run::restore
//!                      |                                      v
//!                    Graph ------- Run::begin ------------> Run ------> Start, Skip, Cancel, ..., End
//!                      |                                    ^  |
//!                      |        node_ended, skip, mark_*,   |  |
//!                      |        cancel ---------------------'  v
//!                      '------- rerun_set <------------- the states of a run that is over
//! ```
//!
//! ```text
//! waiting -> started -> succeeded | failed | cancelled | skipped
//! waiting -> skipped | succeeded | failed            (by its rule, its condition, the run's end, or an operator)
//! failed, cancelled -> succeeded | failed | skipped  (by an operator, while the run goes on)
//! ```
//!
//! # Trigger rules
//!
//! When a node starts, by what its direct upstreams came to. A node without upstreams starts at once, whatever its rule.
//!
//! | rule | starts as soon as | is skipped as soon as |
//! | --- | --- | --- |
//! | `all_succeeded` (default) | all have succeeded | one has failed or was skipped |
//! | `all_done` | all have ended, in whatever way | never |
//! | `one_failed` | one has failed, though others still run | all have ended and none has failed |
//! | `one_succeeded` | one has succeeded, though others still run | all have ended and none has succeeded |
//! | `none_failed` | all have ended, each succeeded or skipped | one has failed |
//!
//! To a rule, a cancelled upstream has failed. A skip cascades: to the dependants of a node, its skip is an upstream's end like any other.
//! A rule looks at the direct upstreams alone: a node that was skipped *because* something further up failed is skipped, not failed. So
//! whoever wants to hear of a failure two nodes up names that node among its upstreams.
//!
//! Which nodes start and which are skipped depends on what the upstreams came to, never on the order in which they did; only a node whose
//! failure ends the run brings the order in.
//!
//! # Failure policies
//!
//! What follows when a node fails or is cancelled.
//!
//! | policy | for its dependants | for the run |
//! | --- | --- | --- |
//! | `skip_downstream` (default) | has failed: each decides by its rule | goes on, and fails at its end |
//! | `fail_run` | skipped, as is all that has not started | what runs is cancelled, and the run fails once that has ended |
//! | `continue` | has succeeded | goes on as if it had succeeded |
//!
//! # Conditions
//!
//! A node may look into the result of a node upstream of it, near or far, before it starts. Its rule comes first: where that skips it, the
//! condition is not asked. A condition waits for the node that it reads to end. Where there is no result, where it isn't JSON, and where the
//! pointer finds nothing, the condition is false; and a node whose condition is false is skipped.
//!
//! # The end of a run
//!
//! A run ends when nothing waits and nothing runs any more, and not before. It is
//!
//! - cancelled, if somebody cancelled it before its end;
//! - failed, if a node has failed or was cancelled under another policy than `continue`, whether or not another node took care of it;
//! - succeeded otherwise: nodes that were skipped don't fail it.
//!
//! # Reruns
//!
//! A rerun is a new run, which begins with the states of the old one: those of the nodes in [`Graph::rerun_set`] are forgotten, all others
//! are carried over, and [`Run::restore`] starts what is to start.
//!
//! | | goes into the set |
//! | --- | --- |
//! | asked for | always |
//! | downstream of that, skipped | always |
//! | waiting, anywhere, because the old run was put down and not ended | always |
//! | downstream of that, ended otherwise | with `cascade` only |
//! | skipped or cancelled, anywhere | if a node that is asked for had ended the old run by its failure |
//! | everything else | never: its end is carried over |
//!
//! What is in the set goes by its rule again. So a node that is asked for alone, while a failed upstream of it is carried over, is skipped
//! again.

mod condition;
mod cycle;
mod graph;
mod rerun;
mod rule;
mod run;
#[cfg(test)]
mod tests;

pub use condition::{Comparison, Condition, Unmet};
pub use cycle::find_cycle;
pub use graph::{Graph, GraphError, NodeIndex, NodeSpec};
pub use rerun::RerunRefused;
pub use rule::{FailurePolicy, TriggerRule};
pub use run::{NodeState, Refused, Results, Run, RunEnd, SkipReason, Step};

/// Gives an enum without data its list and its names, the same in API, CLI, console and database.
macro_rules! named {
    ($type:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every one of them.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// Its name, the same in API, CLI, console and database.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
use named;
