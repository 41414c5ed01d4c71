//! `state.legal`, `state.terminal_final` and `audit.unbroken`: what may become of a row.

use punctual_core::instance::{Cause, InstanceRow, State, Transition};

use crate::check::facts::{Facts, RowVersion};
use crate::check::{Case, Verdict};

/// The diagram in the documentation of instances, written down a second time.
///
/// - The first state is waiting or created; or any end, for a node of a workflow that is not run.
/// - From waiting: created, or skipped or cancelled; waiting, where it is put off.
/// - From created: dispatched; running, where it is divided into parts, or calls another task, which run in its place; a late success of an attempt that was given back;
///   failed, where it is for one worker only and that is gone, or for too many; skipped or cancelled, since nobody has it.
/// - From dispatched: created where it was given back; running; any end, since what happens in one batch may pass over running.
/// - From running: retrying or any end.
/// - From retrying: created; a late success of the attempt that was taken for lost; cancelled, since nobody has it.
const LEGAL: [(Option<State>, &[State]); 6] = [
    (None, &[State::Waiting, State::Created]),
    (Some(State::Waiting), &[State::Waiting, State::Created, State::Skipped, State::Cancelled]),
    (Some(State::Created), &[State::Dispatched, State::Succeeded, State::Skipped, State::Cancelled]),
    (
        Some(State::Dispatched),
        &[
            State::Created,
            State::Running,
            State::Retrying,
            State::Succeeded,
            State::Failed,
            State::TimedOut,
            State::DeadLettered,
            State::Cancelled,
        ],
    ),
    (Some(State::Running), &[State::Retrying, State::Succeeded, State::Failed, State::TimedOut, State::DeadLettered, State::Cancelled]),
    (Some(State::Retrying), &[State::Created, State::Succeeded, State::Cancelled]),
];

fn is_legal(row: &InstanceRow, from: Option<State>, transition: &Transition) -> bool {
    let to = transition.to;
    match (from, to) {
        // Whatever a node has come to in the run before, it has come to here.
        (None, to) if to.is_terminal() => return row.part.node_index().is_some() && !row.part.is_shard(),
        (Some(State::Created), State::Running) => return row.has_parts() || row.calls().is_some(),
        (Some(State::Created), State::Failed) => {
            let is_for_worker = row.links.as_ref().is_some_and(|links| links.is_for_worker);
            return match transition.cause {
                Cause::WorkerGone => is_for_worker,
                Cause::TooManyParts => !is_for_worker,
                _ => false,
            };
        }
        _ => {}
    }
    LEGAL.iter().any(|(before, after)| *before == from && after.contains(&to))
}

/// Each transition is one of the diagram's, taken from the state in which the last one left the instance.
///
/// What is written after a terminal state is `state.terminal_final`'s affair.
pub(super) fn legal(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for (version, known) in versions(facts) {
        let mut last = known.checked_sub(1).and_then(|last| version.row.transitions.get(last)).map(|last| last.to);
        for transition in version.row.transitions.iter().skip(known) {
            if !last.is_some_and(State::is_terminal) && !is_legal(version.row, last, transition) {
                let (row, record) = (version.row, facts.commit_of(version).record);
                case.violated(|| {
                    format!("instance {} of task {}: {} -> {} (record {record})", row.id, row.task, name(last), transition.to.name())
                });
            }
            last = Some(transition.to);
        }
    }
    case.verdict()
}

/// Nothing is written of an instance after a terminal state.
pub(super) fn terminal_final(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for (version, _) in versions(facts) {
        let row = version.row;
        let record = facts.commit_of(version).record;
        if let Some(before) = version.before.map(|before| facts.versions[before].row)
            && before.state.is_terminal()
            && version.expected.is_some()
        {
            case.violated(|| {
                format!("instance {} of task {} was {} and was written again (record {record})", row.id, row.task, before.state.name())
            });
        } else if let Some(place) = row.transitions.iter().position(|transition| transition.to.is_terminal())
            && place + 1 < row.transitions.len()
        {
            let (ended, after) = (&row.transitions[place], &row.transitions[place + 1]);
            case.violated(|| {
                let (ended, after) = (ended.to.name(), after.to.name());
                format!("instance {} of task {} was {ended} and became {after} (record {record})", row.id, row.task)
            });
        }
    }
    case.verdict()
}

/// The log of transitions is only added to; each begins where the last one ended, the last one's end is the row's state, times never go
/// back by more than clocks were apart; and the row that a batch took to be there is the one that was there, the same firing as ever.
pub(super) fn unbroken(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for (version, known) in versions(facts) {
        let row = version.row;
        let record = facts.commit_of(version).record;
        let mut bad = |what: String| case.violated(|| format!("instance {} of task {}: {what} (record {record})", row.id, row.task));
        let before = version.before.map(|before| facts.versions[before].row);
        match (version.expected, before) {
            (Some(expected), Some(before)) => {
                if expected != (before.state, before.fence) {
                    let (state, fence) = (expected.0.name(), expected.1);
                    bad(format!("the batch took it to be {state} under {fence}, it was {} under {}", before.state.name(), before.fence));
                }
                if !row.transitions.starts_with(&before.transitions) {
                    bad("its log was rewritten".into());
                }
                if firing(row) != firing(before) {
                    bad("it became another firing".into());
                }
            }
            (Some(_), None) => bad("it was updated and is not there".into()),
            (None, _) => {}
        }
        if let Some(what) = broken(&row.transitions, known, facts.clocks.apart) {
            bad(what);
        }
        if row.transitions.last().map(|last| last.to) != Some(row.state) {
            bad(format!("the row is {}, its log ends with {}", row.state.name(), name(row.transitions.last().map(|last| last.to))));
        }
    }
    case.verdict()
}

/// All versions, each with how many of its transitions were there before.
fn versions<'f, 'a>(facts: &'f Facts<'a>) -> impl Iterator<Item = (&'f RowVersion<'a>, usize)> {
    facts.versions.iter().map(|version| {
        let before = version.before.filter(|_| version.expected.is_some());
        (version, before.map_or(0, |before| facts.versions[before].row.transitions.len()))
    })
}

/// Where a log is broken, from the transition with this index on.
fn broken(transitions: &[Transition], known: usize, apart: u64) -> Option<String> {
    for (index, transition) in transitions.iter().enumerate().skip(known) {
        let before = index.checked_sub(1).map(|before| &transitions[before]);
        let last = before.map(|before| before.to);
        if transition.from != last {
            return Some(format!("{} -> {} comes after {}", name(transition.from), transition.to.name(), name(last)));
        }
        if let Some(before) = before
            && before.at.since(transition.at).0 > apart
        {
            return Some(format!("{} at {} comes after {}", transition.to.name(), transition.at, before.at));
        }
    }
    None
}

fn firing(row: &InstanceRow) -> impl PartialEq {
    (row.task, row.version, row.fire_time, row.ordinal, row.run, row.part, row.origin, row.key.clone(), row.payload.clone())
}

fn name(state: Option<State>) -> &'static str {
    state.map_or("nothing", State::name)
}
