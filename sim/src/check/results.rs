//! `result.kept`, `cancel.meant` and `state.begun`: what owners make of what workers do.

use std::collections::BTreeMap;

use punctual_core::definition::Blocking;
use punctual_core::ids::{InstanceId, ReplicaId};
use punctual_core::inbox::Notice;
use punctual_core::instance::{Cause, InstanceRow, State, Transition};
use punctual_core::protocol::End;
use punctual_core::workflow::FailurePolicy;

use crate::check::facts::{Facts, Run};
use crate::check::{Case, Verdict};
use crate::history::{Record, What, Who};

/// How long before a result its worker, and who did not hear of it, must have been undisturbed: more than a worker's lease.
const QUIET_MS: u64 = 40_000;

/// How close to its timeout a handler's end may be taken for one.
const CLOSE_MS: u64 = 1_000;

/// When nodes were down, stood still, or could not be reached.
struct Disturbances(BTreeMap<Who, Vec<(u64, u64)>>);

impl Disturbances {
    fn of(records: &[Record], end: u64) -> Disturbances {
        let mut all: BTreeMap<Who, Vec<(u64, u64)>> = BTreeMap::new();
        let mut since: BTreeMap<(Who, u8), (u32, u64)> = BTreeMap::new();
        for record in records {
            let (kind, begins) = match record.what {
                What::Crashed | What::Stopped => (0, true),
                What::Started { .. } => (0, false),
                What::Paused => (1, true),
                What::Resumed => (1, false),
                What::Cut => (2, true),
                What::Mended => (2, false),
                _ => continue,
            };
            let (depth, from) = since.entry((record.who, kind)).or_insert((0, record.at));
            if begins {
                *from = if *depth == 0 { record.at } else { *from };
                *depth += 1;
            } else if *depth > 0 {
                *depth -= 1;
                if *depth == 0 {
                    all.entry(record.who).or_default().push((*from, record.at));
                }
            }
        }
        for ((who, _), (depth, from)) in since {
            if depth > 0 {
                all.entry(who).or_default().push((from, end));
            }
        }
        Disturbances(all)
    }

    fn is_quiet(&self, who: Who, from: u64, until: u64) -> bool {
        self.0.get(&who).is_none_or(|spells| spells.iter().all(|(begin, end)| *end < from || *begin > until))
    }
}

/// Whether a node has called this instance, or the one that it is a part of.
fn calls_it(facts: &Facts<'_>, node: InstanceId, row: &InstanceRow) -> bool {
    let of = |row: &InstanceRow| row.caller().is_some_and(|(caller, _)| caller == node);
    of(row) || facts.instances.iter().filter_map(|whole| facts.last_row(whole.id)).any(|whole| of(whole) && facts.is_part_of(row, whole.id))
}

/// The scheduler that this replica is: their names begin with their number.
fn scheduler(replica: &ReplicaId) -> Option<Who> {
    let number = replica.0.strip_prefix('s')?.split('-').next()?;
    number.parse::<usize>().ok()?.checked_sub(1).map(Who::Scheduler)
}

/// A handler succeeded under the fence that the store had for its instance. Neither its worker nor the owner that gave the instance out again
/// afterwards was down, stood still or was cut off, from [`QUIET_MS`] before. Then the result must have been heard: it is repeated until an
/// owner has written it down.
pub(super) fn kept(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let disturbances = Disturbances::of(facts.records, facts.end);
    for run in &facts.runs {
        let Some((record, Some(End::Succeeded))) = run.ended else { continue };
        let was_current = facts.row_at(run.instance, record).is_some_and(|row| row.fence == run.fence && row.is_with_worker());
        if !was_current || facts.was_undone(run.instance) {
            continue;
        }
        let Some(instance) = facts.instance(run.instance) else { continue };
        let versions = &facts.versions[instance.versions.clone()];
        let again = versions.iter().find(|version| version.row.fence > run.fence && facts.commit_of(version).record > record);
        let Some(again) = again else { continue };
        // Another end that the worker told of, such as a timeout that came first, is an answer too.
        let unheard = |step: &&Transition| step.fence == run.fence && matches!(step.cause, Cause::WorkerLost | Cause::Returned);
        if !again.row.transitions.iter().any(|step| unheard(&step)) {
            continue;
        }
        let commit = facts.commit_of(again);
        let ended_at = facts.records[record].at;
        let from = ended_at.saturating_sub(QUIET_MS);
        // One whose name doesn't tell which scheduler it is may be any.
        let owners = match scheduler(&commit.batch.replica) {
            Some(owner) => vec![owner],
            None => (0..facts.plan.shape.schedulers).map(Who::Scheduler).collect(),
        };
        let is_quiet = disturbances.is_quiet(Who::Worker(run.worker), from, commit.at)
            && owners.iter().all(|owner| disturbances.is_quiet(*owner, from, commit.at));
        if is_quiet {
            case.violated(|| {
                format!(
                    "instance {} had succeeded under fence {} on worker {} (record {record}), and {} gave it out again under fence {} (record {})",
                    run.instance, run.fence, run.worker, commit.batch.replica, again.row.fence, commit.record
                )
            });
        }
    }
    case.verdict()
}

/// A handler that was asked to end, and did, had reason to: its instance was cancelled, replaced or its task removed; its time was over; its
/// fence was no longer the one in the store; or its worker may have heard of nobody for its lease.
pub(super) fn cancels_are_meant(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let disturbances = Disturbances::of(facts.records, facts.end);
    if facts.clocks.database_was_set() {
        return Verdict::Unknown("the database's clock was set: leases ended before their owners could know".to_owned());
    }
    let schedulers = facts.plan.shape.schedulers;
    for run in &facts.runs {
        let Some((record, Some(End::Cancelled))) = run.ended else { continue };
        let Some(row) = facts.row_at(run.instance, record) else { continue };
        let is_current = row.fence == run.fence && row.is_with_worker();
        if !is_current || facts.was_undone(run.instance) {
            continue;
        }
        let Some(definition) = facts.definition_of(row) else { continue };
        let at = facts.records[record].at;
        // By the policy of whatever version is in force.
        let edits = facts.task(row.task).map_or(&[][..], |task| &task.edits);
        let may_be_replaced =
            edits.iter().filter_map(|edit| edit.definition).any(|definition| definition.policies.concurrency.blocking == Blocking::Replace);
        let is_over = definition.policies.timeout.after.is_some_and(|after| at - run.began_at >= after.0.saturating_sub(CLOSE_MS));
        let was_asked = facts.records[..record].iter().any(|record| match &record.what {
            What::CancelSubmitted { instance, .. } => *instance == run.instance || facts.is_part_of(row, *instance),
            What::Defined { task, definition, .. } => *task == row.task && definition.is_none(),
            What::Noticed { notice: Notice::CallCancelled { caller, .. }, .. } => calls_it(facts, *caller, row),
            _ => false,
        });
        let from = at.saturating_sub(QUIET_MS);
        let hears_somebody = (0..schedulers).any(|scheduler| disturbances.is_quiet(Who::Scheduler(scheduler), from, at));
        let may_be_fenced = !hears_somebody || !disturbances.is_quiet(Who::Worker(run.worker), from, at);
        // The failure of another node may end the run.
        let may_end = facts.definition(row.task, row.version).and_then(|definition| definition.workflow.as_ref());
        let may_end = may_end
            .is_some_and(|workflow| workflow.graph().nodes().any(|node| workflow.graph().on_failure(node) == FailurePolicy::FailRun));
        if !may_be_replaced && !is_over && !was_asked && !may_be_fenced && !may_end {
            case.violated(|| {
                format!(
                    "instance {} under fence {} on worker {} was asked to end while it was the one in the store (record {record})",
                    run.instance, run.fence, run.worker
                )
            });
        }
    }
    case.verdict()
}

/// A step to running that the diagram allows; others are another property's affair.
fn is_start(step: &Transition) -> bool {
    step.from == Some(State::Dispatched) && step.to == State::Running
}

/// Whether a handler is under way that begins a little later than its worker says, or died with its worker before it did.
fn is_about_to_begin(facts: &Facts<'_>, run: Option<&Run>, said_at: u64) -> bool {
    let slack = facts.slack.begins_ms;
    match run {
        Some(run) => facts.moved(run.worker, said_at, run.began_at) < slack,
        None => facts.records.iter().any(|record| {
            let dies = matches!((record.who, &record.what), (Who::Worker(_), What::Crashed));
            dies && record.at.abs_diff(said_at) < slack
        }),
    }
}

/// An instance is running only once its handler has begun; with slack, a little before.
pub(super) fn begun(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    for version in &facts.versions {
        let commit = facts.commit_of(version);
        let known = version.before.map_or(0, |before| facts.versions[before].row.transitions.len());
        for step in version.row.transitions.iter().skip(known).filter(|step| is_start(step)) {
            let run = facts.runs_of(version.row.id).iter().find(|run| run.fence == step.fence);
            if run.is_none_or(|run| run.began >= commit.record) && !is_about_to_begin(facts, run, commit.at) {
                case.violated(|| {
                    format!(
                        "instance {} is running under fence {}, and no handler has begun (record {})",
                        version.row.id, step.fence, commit.record
                    )
                });
            }
        }
    }
    case.verdict()
}
