//! What is left out of answers for whoever does not see all: names of tasks that are none of theirs, where something of theirs hangs together
//! with those.

use std::sync::Arc;

use punctual_core::chains::{Call, ChainProblem, Edge};
use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, InstanceRow, Origin};
use punctual_driver::ports::{Catalog, Clock, InstanceView};
use rustc_hash::FxHashMap;

use super::sight::Sight;
use super::{Api, ApiError, views};
use crate::identity::{Identity, Role};

/// What stands in place of a name.
const HIDDEN: &str = "a task that you do not see";

/// Leaves out whose end or call made an instance fire, and how ended what it calls, where that is none of theirs. Whoever answers with instances to somebody who may be of
/// one group only calls this first.
pub(crate) async fn instances<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    views: &mut [InstanceView],
) -> Result<(), ApiError> {
    let mut sight = Sight::new(api, identity, Role::Viewer);
    if sight.is_whole() {
        return Ok(());
    }
    // Many of a page may have one cause; it is read once.
    let mut causes: FxHashMap<InstanceId, bool> = FxHashMap::default();
    for view in views {
        if let Some(called) = view.row.calls().cloned()
            && !sight.task(&called).await?
        {
            cover_call(&mut view.row);
        }
        if !matches!(view.row.origin, Origin::Chain | Origin::Call) {
            continue;
        }
        let Some(cause) = view.row.links.as_deref().and_then(|links| links.cause) else { continue };
        let is_seen = match causes.get(&cause) {
            Some(is_seen) => *is_seen,
            None => match api.store.instance(cause).await? {
                Some(cause) => sight.task(&cause.task_name).await?,
                // It is no longer remembered; its name may still be.
                None => false,
            },
        };
        causes.insert(cause, is_seen);
        if !is_seen {
            cover(&mut view.row);
        }
    }
    Ok(())
}

/// An instance as somebody may see it.
pub(crate) async fn shown<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    mut view: InstanceView,
) -> Result<views::InstanceShown, ApiError> {
    instances(api, identity, std::slice::from_mut(&mut view)).await?;
    Ok(views::instance(&view))
}

fn cover(row: &mut InstanceRow) {
    if let Some(links) = &mut row.links {
        links.cause = None;
    }
    // Who made it, which is the other task; and what became of that, where it was ended along with it.
    for (place, transition) in row.transitions.iter_mut().enumerate() {
        if place == 0 || matches!(transition.cause, Cause::CancelRequested | Cause::KillRequested) {
            transition.detail = None;
        }
    }
}

/// How what it called has ended, and who did what to that, is told to those who see it. That it is called is in the task's own document.
fn cover_call(row: &mut InstanceRow) {
    for transition in row.transitions.iter_mut().filter(|transition| transition.cause == Cause::CallEnded) {
        transition.detail = Some(Arc::from("how what it called has ended, which you do not see"));
    }
}

/// What is wrong with how tasks hang together, without the names of those that are not seen. Those of `own` are: whoever asks has written them.
pub(crate) async fn chains<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    own: &[Arc<str>],
    problems: Vec<ChainProblem>,
) -> Result<Vec<ChainProblem>, ApiError> {
    let mut sight = Sight::new(api, identity, Role::Viewer);
    if sight.is_whole() {
        return Ok(problems);
    }
    let mut told: Vec<ChainProblem> = Vec::with_capacity(problems.len());
    for problem in problems {
        let mut name = async |name: Arc<str>| -> Result<Arc<str>, ApiError> {
            Ok(if own.contains(&name) || sight.task(&name).await? { name } else { Arc::from(HIDDEN) })
        };
        let problem = match problem {
            ChainProblem::NoSuchTask(Edge { after, task }) => {
                ChainProblem::NoSuchTask(Edge { after: name(after).await?, task: name(task).await? })
            }
            ChainProblem::NothingToCall(Call { task, called, times }) => {
                ChainProblem::NothingToCall(Call { task: name(task).await?, called: name(called).await?, times })
            }
            ChainProblem::Cycle { path } => {
                let mut shown = Vec::with_capacity(path.len());
                for one in path {
                    shown.push(name(one).await?);
                }
                // How many there are between those that are seen is theirs alone.
                shown.dedup();
                ChainProblem::Cycle { path: shown }
            }
            ChainProblem::TooMany { after, count } => ChainProblem::TooMany { after: name(after).await?, count },
            ChainProblem::Spreads { task, firings } => ChainProblem::Spreads { task: name(task).await?, firings },
        };
        if !told.contains(&problem) {
            told.push(problem);
        }
    }
    Ok(told)
}
