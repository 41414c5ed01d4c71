//! `priority.no_starvation`: bands wait for each other, and not for ever.

use std::collections::BTreeMap;

use punctual_core::definition::{Band, TaskDefinition};
use punctual_core::ids::{Epoch, InstanceId, PartitionId, ReplicaId};
use punctual_core::instance::{InstanceRow, State};

use crate::check::facts::{Commit, Facts};
use crate::check::{Case, Verdict};

/// Of so many slots that a worker is given while all bands wait, each band gets these. Written down here a second time.
const WEIGHTS: [usize; 3] = [16, 4, 1];

/// Further starts of other bands that are nobody's fault: what an owner gives while it is still reading an inbox.
const SLACK: usize = 64;

/// While an instance waits for a worker, its owner gives slots of each worker to the other bands for two turns at most, and as often once more as
/// its own band is given one. So of `n` starts of its own band, with `w` workers, it is passed over by at most `2 * (n + w)` times the other
/// bands' weights.
///
/// Judged are waits that began and ended under one owner's epoch, of tasks that nothing else holds back: no rate, routing, breaker or group.
pub(super) fn none(facts: &Facts<'_>) -> Verdict {
    let mut case = Case::default();
    let starts = starts(facts);
    let workers = facts.plan.shape.workers;
    for instance in &facts.instances {
        let Some(wait) = wait(facts, instance.id) else { continue };
        let Some(of_owner) = starts.get(&wait.replica) else { continue };
        let of_band = |band: Band| {
            let list = &of_owner[band.index()];
            list.partition_point(|record| *record < wait.until) - list.partition_point(|record| *record <= wait.from)
        };
        let own = of_band(wait.band);
        for other in Band::ALL.into_iter().filter(|other| *other != wait.band) {
            let (passed_over, most) = (of_band(other), 2 * (own + workers) * WEIGHTS[other.index()] + SLACK);
            if passed_over > most {
                let (id, from, until, band) = (instance.id, wait.from, wait.until, wait.band);
                case.violated(|| {
                    format!(
                        "instance {id} of band {band:?} was passed over by {passed_over} of band {other:?}, at most {most} go first \
                         while {own} of its own begin (records {from} to {until})"
                    )
                });
            }
        }
    }
    case.verdict()
}

/// From becoming ready to the first dispatch.
struct Wait {
    replica: ReplicaId,
    band: Band,
    from: usize,
    until: usize,
}

fn wait(facts: &Facts<'_>, id: InstanceId) -> Option<Wait> {
    let instance = facts.instance(id).filter(|instance| !instance.was_undone)?;
    let versions = &facts.versions[instance.versions.clone()];
    let begin = versions.iter().find(|version| version.row.state == State::Created)?;
    let definition = facts.definition(begin.row.task, begin.row.version).filter(|definition| is_free(definition))?;
    let begun = facts.commit_of(begin);
    let end = versions.iter().find(|version| facts.commit_of(version).record > begun.record)?;
    let ended = facts.commit_of(end);
    let is_one_wait = was_dispatched(end.row) && epoch(begun, id.partition()) == epoch(ended, id.partition());
    is_one_wait.then(|| Wait { replica: begun.batch.replica.clone(), band: definition.band, from: begun.record, until: ended.record })
}

/// Whether nothing but its band says when its instances begin, in any of its versions.
fn is_free(definition: &TaskDefinition) -> bool {
    let policies = &definition.policies;
    definition.routing.is_none() && definition.downstream.is_none() && definition.group.is_none() && policies.rate.is_none()
}

fn was_dispatched(row: &InstanceRow) -> bool {
    row.transitions.iter().any(|transition| transition.to == State::Dispatched)
}

fn epoch(commit: &Commit<'_>, partition: PartitionId) -> Option<Epoch> {
    commit.batch.leases.iter().find(|lease| lease.partition == partition).map(|lease| lease.epoch)
}

/// By owner and band, the records of the batches that dispatch.
fn starts(facts: &Facts<'_>) -> BTreeMap<ReplicaId, [Vec<usize>; 3]> {
    let mut starts: BTreeMap<ReplicaId, [Vec<usize>; 3]> = BTreeMap::new();
    for dispatch in &facts.dispatches {
        let version = &facts.versions[dispatch.version];
        let commit = facts.commit_of(version);
        let Some(definition) = facts.definition(version.row.task, version.row.version) else { continue };
        let of_owner = starts.entry(commit.batch.replica.clone()).or_default();
        of_owner[definition.band.index()].push(commit.record);
    }
    starts.values_mut().flatten().for_each(|list| list.sort_unstable());
    starts
}
