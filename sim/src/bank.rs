//! The bank of planted bugs: guards that can be switched off, and what has to notice.

use punctual_core::guard::Guard;
use punctual_core::time::{Millis, Timestamp};

use crate::history::Recorder;
use crate::model::{Database, DatabaseConfig, StoreGuard};
use crate::plan::{FaultKind, Plan};

/// A guard that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// One of the core's.
    Core(Guard),
    /// One of the store's.
    Store(StoreGuard),
}

/// The places of the world that a sweep must have come through, besides the core's own.
pub const PROBES: [&str; 9] = [
    "commit.unknown_applied",
    "commit.unknown_not_applied",
    "database.failed_over",
    "database.lost_its_tail",
    "frame.repeated",
    "frame.missed",
    "wake_up.lost",
    "wake_ups.flushed_with_work_waiting",
    "everything.healed",
];

/// The database of a plan's world, without the guards that are switched off. It has a replica where somebody reads it or it takes over.
pub(crate) fn database(plan: &Plan, recorder: Recorder, flaws: &[Flaw]) -> Database {
    let fails_over = plan.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Failover));
    let reads_replica = flaws.contains(&Flaw::Store(StoreGuard::ReadsFromPrimary));
    let config = DatabaseConfig {
        partitions: plan.shape.partitions,
        starts_at: Timestamp(plan.starts_at),
        replica_lag: (fails_over || reads_replica).then_some(Millis(plan.knobs.replica_lag_ms)),
    };
    let mut database = Database::new(config, recorder);
    for flaw in flaws {
        if let Flaw::Store(guard) = flaw {
            database.switch_off(*guard);
        }
    }
    database
}
