//! What is wrong just now, and for whom: the part of a fault that is the same in every world.

use std::collections::BTreeMap;

use punctual_core::ids::{PartitionId, ReplicaId};
use rand_core::RngCore;
use serde::{Deserialize, Serialize};

use crate::calls::Failed;
use crate::history::Who;
use crate::plan::{Family, FaultKind, Knobs, Selector, Shape};

/// How long a node that is stopped in good order has for it.
pub const PATIENCE_MS: u64 = 30_000;
/// How long a client of the database waits for an answer.
pub(crate) const ANSWER_TIMEOUT_MS: u64 = 5_000;
/// How long it takes until somebody notices that its question is gone with its connection.
pub(crate) const NOTICED_AFTER_MS: u64 = 1_000;
/// How long a side of a connection waits for anything at all before it takes the other one for dead: what keepalive does. Longer than a
/// worker's lease, so that what was said before it ended may still come.
pub(crate) const SILENCE_MAX_MS: u64 = 60_000;
/// How long a worker waits before it dials again.
pub(crate) const REDIAL_AFTER_MS: u64 = 500;

/// What is wrong with a node just now. Faults add to it and take away what they added, so that several may overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTrouble {
    /// Of its wall clock.
    pub offset_ms: i64,
    /// Parts of a thousand that its wall clock runs too fast, and since when.
    pub drift: Option<(i64, u64)>,
    /// Faults that keep messages of the node from leaving.
    pub outgoing_cut: u32,
    /// Faults that keep messages from reaching the node.
    pub incoming_cut: u32,
    /// Faults that keep it and the database apart.
    pub database_cut: u32,
    /// How much longer its messages take.
    pub delay_ms: u64,
    /// Of a thousand frames so many are lost.
    pub lose_per_mille: u32,
    /// Of a thousand frames so many come twice.
    pub duplicate_per_mille: u32,
    /// Faults that let its handlers hang.
    pub hang: u32,
    /// Times that its handlers take as long; 0: as long as they do.
    pub slow_times: u64,
    /// Faults that let its handlers panic.
    pub panics: u32,
}

impl NodeTrouble {
    /// A fault of the node begins.
    pub fn begin(&mut self, kind: FaultKind, at: u64) {
        match kind {
            FaultKind::Isolate => (self.outgoing_cut, self.incoming_cut) = (self.outgoing_cut + 1, self.incoming_cut + 1),
            FaultKind::CutOutgoing => self.outgoing_cut += 1,
            FaultKind::CutIncoming => self.incoming_cut += 1,
            FaultKind::CutFromDatabase => self.database_cut += 1,
            FaultKind::Delay { ms } => self.delay_ms += ms,
            FaultKind::Lose { per_mille } => self.lose_per_mille += per_mille,
            FaultKind::Duplicate { per_mille } => self.duplicate_per_mille += per_mille,
            FaultKind::ClockStep { by } => self.offset_ms += by,
            // One drift at a time: a second one takes the place of the first.
            FaultKind::ClockDrift { per_mille } => self.drift = Some((per_mille, at)),
            FaultKind::HandlersHang => self.hang += 1,
            FaultKind::HandlersSlow { times } => self.slow_times += times,
            FaultKind::HandlersPanic => self.panics += 1,
            _ => {}
        }
    }

    /// It ends.
    pub fn end(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Isolate => (self.outgoing_cut, self.incoming_cut) = (self.outgoing_cut - 1, self.incoming_cut - 1),
            FaultKind::CutOutgoing => self.outgoing_cut -= 1,
            FaultKind::CutIncoming => self.incoming_cut -= 1,
            FaultKind::CutFromDatabase => self.database_cut -= 1,
            FaultKind::Delay { ms } => self.delay_ms -= ms,
            FaultKind::Lose { per_mille } => self.lose_per_mille -= per_mille,
            FaultKind::Duplicate { per_mille } => self.duplicate_per_mille -= per_mille,
            FaultKind::ClockStep { by } => self.offset_ms -= by,
            FaultKind::ClockDrift { .. } => self.drift = None,
            FaultKind::HandlersHang => self.hang -= 1,
            FaultKind::HandlersSlow { times } => self.slow_times -= times,
            FaultKind::HandlersPanic => self.panics -= 1,
            _ => {}
        }
    }

    /// How far its wall clock is ahead.
    pub fn ahead_ms(&self, at: u64) -> i64 {
        self.offset_ms + self.drift.map_or(0, |(per_mille, since)| (at - since) as i64 * per_mille / 1_000)
    }
}

/// What is wrong with everything else just now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldTrouble {
    /// How much longer the database takes.
    pub database_slow_ms: u64,
    /// Faults that keep the database from answering.
    pub database_down: u32,
    /// Faults that leave the database no room.
    pub database_full: u32,
    /// Of a thousand commits so many are aborted.
    pub aborts_per_mille: u32,
    /// Of a thousand commits so many are carried out without an answer.
    pub applied_lost_per_mille: u32,
    /// Of a thousand commits so many are not carried out and have no answer.
    pub not_applied_lost_per_mille: u32,
    /// Faults that keep all wake-ups away.
    pub wake_ups_down: u32,
    /// Of a thousand wake-ups so many are lost.
    pub wake_ups_lost_per_mille: u32,
    /// Faults that let each wake-up come twice.
    pub wake_ups_doubled: u32,
    /// By downstream: how many storms rage.
    storms: BTreeMap<usize, u32>,
    /// From here on handlers succeed.
    pub is_healed: bool,
}

impl WorldTrouble {
    /// A fault of the world begins.
    pub fn begin(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::DatabaseSlow { ms } => self.database_slow_ms += ms,
            FaultKind::DatabaseDown => self.database_down += 1,
            FaultKind::DatabaseFull => self.database_full += 1,
            FaultKind::DatabaseAborts { per_mille } => self.aborts_per_mille += per_mille,
            FaultKind::CommitAppliedAnswerLost { per_mille } => self.applied_lost_per_mille += per_mille,
            FaultKind::CommitNotAppliedAnswerLost { per_mille } => self.not_applied_lost_per_mille += per_mille,
            FaultKind::WakeUpsDown => self.wake_ups_down += 1,
            FaultKind::WakeUpsLost { per_mille } => self.wake_ups_lost_per_mille += per_mille,
            FaultKind::WakeUpsDoubled => self.wake_ups_doubled += 1,
            FaultKind::RetryStorm { downstream } => *self.storms.entry(downstream).or_default() += 1,
            _ => {}
        }
    }

    /// It ends.
    pub fn end(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::DatabaseSlow { ms } => self.database_slow_ms -= ms,
            FaultKind::DatabaseDown => self.database_down -= 1,
            FaultKind::DatabaseFull => self.database_full -= 1,
            FaultKind::DatabaseAborts { per_mille } => self.aborts_per_mille -= per_mille,
            FaultKind::CommitAppliedAnswerLost { per_mille } => self.applied_lost_per_mille -= per_mille,
            FaultKind::CommitNotAppliedAnswerLost { per_mille } => self.not_applied_lost_per_mille -= per_mille,
            FaultKind::WakeUpsDown => self.wake_ups_down -= 1,
            FaultKind::WakeUpsLost { per_mille } => self.wake_ups_lost_per_mille -= per_mille,
            FaultKind::WakeUpsDoubled => self.wake_ups_doubled -= 1,
            FaultKind::RetryStorm { downstream } => *self.storms.entry(downstream).or_default() -= 1,
            _ => {}
        }
    }

    /// Whether a storm is over the service with this place.
    pub fn rages(&self, downstream: Option<usize>) -> bool {
        downstream.is_some_and(|place| self.storms.get(&place).is_some_and(|storms| *storms > 0))
    }
}

/// For whom a fault is, as things stand now. `owner` knows who has the lease of a partition, `busy` is how many attempts each worker runs.
pub fn select(on: Selector, shape: Shape, owner: impl FnOnce(PartitionId) -> Option<ReplicaId>, busy: &[usize]) -> Vec<Who> {
    let scheduler = |index: usize| vec![Who::Scheduler(index % shape.schedulers)];
    let worker = |index: usize| vec![Who::Worker(index % shape.workers)];
    let schedulers = || (0..shape.schedulers).map(Who::Scheduler);
    let workers = || (0..shape.workers).map(Who::Worker);
    match on {
        Selector::World => Vec::new(),
        Selector::Scheduler(index) => scheduler(index),
        Selector::Worker(index) => worker(index),
        Selector::Owner(partition) => {
            let partition = PartitionId((partition % usize::from(shape.partitions)) as u16);
            let owner = owner(partition).and_then(|owner| {
                let number = owner.0.strip_prefix('s')?.split('-').next()?;
                number.parse::<usize>().ok()
            });
            scheduler(owner.map_or(0, |number| number - 1))
        }
        Selector::Busy(nth) => {
            let busy: Vec<_> = (0..busy.len()).filter(|index| busy[*index] > 0).collect();
            worker(if busy.is_empty() { nth } else { busy[nth % busy.len()] })
        }
        Selector::Minority => schedulers().take((shape.schedulers - 1) / 2).collect(),
        Selector::AllSchedulers => schedulers().collect(),
        Selector::AllWorkers => workers().collect(),
        Selector::Everybody => schedulers().chain(workers()).collect(),
    }
}

/// Whether this goes on record as a cut. A connection that breaks is made again at once, and a frame that comes twice is dropped.
pub fn is_on_record_as_cut(kind: FaultKind) -> bool {
    kind.family(true) == Family::Network && !matches!(kind, FaultKind::Reset | FaultKind::Duplicate { .. })
}

/// How long the way to the database takes there and back, and what goes wrong on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    pub(crate) there_ms: u64,
    pub(crate) back_ms: u64,
    pub(crate) is_aborted: bool,
    pub(crate) is_full: bool,
    pub(crate) answer_is_lost: bool,
    pub(crate) request_is_lost: bool,
}

impl Way {
    /// Why what is asked for surely isn't done, where the database says so.
    pub(crate) fn surely_fails(&self) -> Option<Failed> {
        match (self.is_aborted, self.is_full) {
            (true, _) => Some(Failed::Aborted),
            (false, true) => Some(Failed::Full),
            (false, false) => None,
        }
    }

    /// `writes`: it may be aborted, and it is done only when the replica has it too where replication is semi-synchronous.
    pub(crate) fn draw(random: &mut impl RngCore, knobs: &Knobs, trouble: &WorldTrouble, delay_ms: u64, writes: bool) -> Way {
        let takes_ms = between(random, knobs.database_ms) + trouble.database_slow_ms + delay_ms;
        let there_ms = between(random, (0, takes_ms));
        // Drawn in any case, so that what comes later is the same with and without.
        let rates = [trouble.aborts_per_mille, trouble.applied_lost_per_mille, trouble.not_applied_lost_per_mille];
        let draws = rates.map(|per_mille| chance(random, per_mille.max(1)) && per_mille > 0);
        let [is_aborted, answer_is_lost, request_is_lost] = draws.map(|happens| happens && writes);
        let is_full = writes && trouble.database_full > 0;
        // Nobody sees what the replica does not have yet.
        let lag_ms = if writes && knobs.semi_synchronous { knobs.replica_lag_ms } else { 0 };
        Way { there_ms: there_ms + lag_ms, back_ms: takes_ms - there_ms, is_aborted, is_full, answer_is_lost, request_is_lost }
    }
}

/// One of so many parts of a thousand.
pub(crate) fn chance(random: &mut impl RngCore, per_mille: u32) -> bool {
    per_mille > 0 && random.next_u64() % 1_000 < u64::from(per_mille)
}

/// A number from the first to the second, both included.
pub(crate) fn between(random: &mut impl RngCore, (low, high): (u64, u64)) -> u64 {
    low + random.next_u64() % (high.max(low) - low + 1)
}
