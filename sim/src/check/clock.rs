//! What is known of the clocks of a run.

use punctual_core::time::Timestamp;

use crate::check::SKEW_MS;
use crate::history::{Record, What, Who};
use crate::plan::{Fault, FaultKind, Plan, Selector};

/// The clocks of a run.
pub(super) struct Clocks {
    /// From these virtual instants on the database's clock was so far ahead of virtual time. Never empty.
    database: Vec<(u64, i64)>,
    /// The first record at which the database's clock was set.
    database_set: Option<usize>,
    /// Clocks of schedulers were set or ran wrong, or the database's was set.
    pub(super) were_touched: bool,
    /// How far times of different schedulers may lie apart at most.
    pub(super) apart: u64,
}

impl Clocks {
    pub(super) fn new(plan: &Plan, records: &[Record]) -> Self {
        let mut database: Vec<(u64, i64)> = Vec::new();
        let mut database_set = None;
        let mut were_touched = false;
        let mut apart = SKEW_MS;
        for (index, record) in records.iter().enumerate() {
            // What is left at the end is read by the world, not by the database; and what people ask for says when it was made, which with a
            // real database is a little before it was carried out.
            let is_entry = matches!(
                record.what,
                What::Defined { .. }
                    | What::Submitted { .. }
                    | What::CancelSubmitted { .. }
                    | What::RerunSubmitted { .. }
                    | What::SkipSubmitted { .. }
                    | What::DelayedChanged { .. }
                    | What::PauseChanged { .. }
                    | What::MarkSubmitted { .. }
                    | What::Noticed { .. }
                    | What::ReferencesChanged { .. }
            );
            if record.who == Who::Database && !is_entry && !matches!(record.what, What::Left(_)) {
                let ahead = record.wall.0.saturating_sub_unsigned(record.at);
                if database.last().is_none_or(|(_, last)| *last != ahead) {
                    database.push((record.at, ahead));
                }
            }
            match record.what {
                // It knows the time from answers that take this long: what it takes up may move by as much.
                What::Started { .. } if matches!(record.who, Who::Scheduler(_)) && slow_near(plan, record.at) => were_touched = true,
                What::ClockStepped { by } if by != 0 && !matches!(record.who, Who::Worker(_) | Who::Client) => {
                    were_touched = true;
                    apart = apart.saturating_add(by.unsigned_abs());
                    if record.who == Who::Database {
                        database_set = database_set.or(Some(index));
                    }
                }
                What::FaultBegan(fault) => {
                    // A drift has no record of its own.
                    if let Some(Fault { kind: FaultKind::ClockDrift { per_mille }, lasts_ms, on, .. }) = plan.faults.get(fault)
                        && !matches!(on, Selector::Worker(_) | Selector::Busy(_) | Selector::AllWorkers)
                    {
                        were_touched = true;
                        apart = apart.saturating_add(lasts_ms.saturating_mul(per_mille.unsigned_abs()) / 1_000);
                    }
                }
                _ => {}
            }
        }
        if database.is_empty() {
            let ahead = records.first().map_or(0, |record| record.wall.0.saturating_sub_unsigned(record.at));
            database.push((0, ahead));
        }
        Clocks { database, database_set, were_touched, apart }
    }

    /// What the database's clock says at this virtual instant.
    pub(super) fn database_at(&self, at: u64) -> Timestamp {
        let place = self.database.partition_point(|(since, _)| *since <= at).saturating_sub(1);
        Timestamp(self.database[place].1.saturating_add_unsigned(at))
    }

    /// Whether the database's clock was set during the run.
    pub(super) fn database_was_set(&self) -> bool {
        self.database_set.is_some()
    }

    /// Whether the database's clock had been set before this record.
    pub(super) fn database_was_set_before(&self, record: usize) -> bool {
        self.database_set.is_some_and(|set| set < record)
    }
}

/// Whether the database's answers take longer than a second about then.
fn slow_near(plan: &Plan, at: u64) -> bool {
    let is_slow = |fault: &&Fault| match fault.kind {
        FaultKind::DatabaseSlow { ms } | FaultKind::Delay { ms } => ms >= 500,
        _ => false,
    };
    let begins = |fault: &Fault| fault.at_ms <= at + SLOW_START_MS && fault.at_ms + fault.lasts_ms >= at;
    plan.faults.iter().filter(is_slow).any(begins)
}

/// How long a scheduler may look for the time when it starts.
const SLOW_START_MS: u64 = 60_000;
