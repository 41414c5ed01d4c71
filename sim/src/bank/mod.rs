//! The bank of planted bugs: guards that can be switched off, and the property that has to notice.
//!
//! For each guard there are plans in which it matters, and one or more properties of which one must fail without it, within
//! [`SEEDS_MAX`] seeds; with it, none may. A guard that had something to hold back and whose absence nobody noticed shows a hole in the
//! properties; one that never had shows a hole in the plans.
//!
//! Where two locks are on one door, the row of the second lock switches the first one off as well.

mod aims;

use punctual_core::guard::Guard;
use punctual_core::time::{Millis, Timestamp};

use crate::history::Recorder;
use crate::model::{Database, DatabaseConfig, StoreGuard};
use crate::plan::{FaultKind, Plan};
use crate::swarm::{Profile, swarm};

pub use aims::Aim;

/// Within so many seeds the absence of a guard must be noticed.
pub const SEEDS_MAX: u64 = 200;

/// A guard that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// One of the core's.
    Core(Guard),
    /// One of the store's.
    Store(StoreGuard),
}

impl Flaw {
    /// Every guard.
    pub fn all() -> impl Iterator<Item = Flaw> {
        Guard::ALL.into_iter().map(Flaw::Core).chain(StoreGuard::ALL.into_iter().map(Flaw::Store))
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Flaw::Core(guard) => format!("{guard:?}"),
            Flaw::Store(guard) => format!("Store{guard:?}"),
        }
    }
}

/// A guard of the bank.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The guard that is switched off.
    pub guard: Flaw,
    /// Other locks on the same door, switched off with it.
    pub with: &'static [Flaw],
    /// One of these has to fail.
    pub properties: &'static [&'static str],
    /// Which plans are drawn.
    pub profile: Profile,
    /// What is done to them, so that the guard matters.
    pub aim: Aim,
    /// A seed that is known to do.
    pub known_seed: u64,
}

impl Row {
    /// The plan of this seed.
    pub fn plan(&self, seed: u64) -> Plan {
        let mut plan = swarm(seed, &self.profile.swarm());
        self.aim.take(&mut plan);
        plan
    }

    /// All that is switched off.
    pub fn flaws(&self) -> Vec<Flaw> {
        [self.guard].into_iter().chain(self.with.iter().copied()).collect()
    }
}

const fn row(guard: Flaw, properties: &'static [&'static str]) -> Row {
    Row { guard, with: &[], properties, profile: Profile::Default, aim: Aim::None, known_seed: 0 }
}

impl Row {
    const fn with(mut self, with: &'static [Flaw]) -> Row {
        self.with = with;
        self
    }

    const fn in_profile(mut self, profile: Profile) -> Row {
        self.profile = profile;
        self
    }

    const fn aimed(mut self, aim: Aim) -> Row {
        self.aim = aim;
        self
    }

    const fn known(mut self, seed: u64) -> Row {
        self.known_seed = seed;
        self
    }
}

use Flaw::{Core, Store};

/// The bank.
pub const BANK: &[Row] = &[
    row(Core(Guard::FenceOnResult), &["fence.monotone"]).known(10007),
    row(Core(Guard::FenceOnProgress), &["state.begun"]).aimed(Aim::SlowMessages).known(11),
    row(Core(Guard::SpeakAfterCommit), &["speak.after_commit"]).known(1),
    row(Core(Guard::UnknownCommitReloads), &["speak.after_commit"]).known(1),
    row(Core(Guard::RefusedCommitReloads), &["speak.after_commit"])
        .with(&[Core(Guard::LeaseTrusted)])
        .aimed(Aim::PausedOwners)
        .known(10000),
    row(Core(Guard::CursorMovesWithFiring), &["fire.accounted"]).known(10000),
    row(Core(Guard::MisfireScan), &["misfire.by_policy"]).known(1),
    row(Core(Guard::ConcurrencyLimit), &["limit.held"]).known(10000),
    row(Core(Guard::AttemptsBounded), &["retry.bounded"]).known(10000),
    row(Core(Guard::NotIdempotentNotRepeated), &["effect.once"]).known(10000),
    row(Core(Guard::InboxOnce), &["lease.exclusive"]).known(10000),
    row(Core(Guard::LeaseTrusted), &["cancel.meant"]).aimed(Aim::IdleStaleOwners).known(20),
    row(Core(Guard::ResultKeptUntilAcknowledged), &["result.kept", "heal.converges"]).known(10001),
    row(Core(Guard::WorkerSelfFences), &["attempt.exclusive"]).aimed(Aim::LongHandlersCutOff).known(10000),
    row(Core(Guard::LateAssignmentReturned), &["attempt.exclusive"]).aimed(Aim::PausedWorkers).known(3),
    row(Core(Guard::AccountCoversAssignment), &["effect.once"]).known(15),
    row(Core(Guard::HeartbeatsWithinLease), &["heal.rate"]).known(0),
    row(Core(Guard::WorkerLivesApart), &["effect.once"]).aimed(Aim::DeadOnArrival).known(10000),
    row(Core(Guard::BackoffCapped), &["retry.bounded"]).known(10005),
    row(Core(Guard::UnknownCommitNotRepeated), &["lease.exclusive"]).with(&[Store(StoreGuard::CommitsInOrder)]).known(1),
    row(Core(Guard::CancelKeptUntilEnd), &["inbox.once"]),
    row(Core(Guard::StepBackMovesNoCursor), &["fire.accounted"]).in_profile(Profile::DatabaseClock),
    row(Core(Guard::RateLimit), &["rate.held"]).known(50),
    row(Core(Guard::PartsUnderstood), &["route.fits"]).aimed(Aim::OldWorkers).known(1),
    row(Core(Guard::GroupLimit), &["group.held"]).known(11),
    row(Core(Guard::BandsTakeTurns), &["priority.no_starvation"]).aimed(Aim::MixedBands).known(34),
    row(Core(Guard::PauseHolds), &["pause.held"]).known(2),
    row(Core(Guard::DrainHolds), &["pause.held"]).known(1),
    row(Core(Guard::NodesWait), &["dag.parents_first"]).known(8),
    row(Core(Guard::EndedNodesKnown), &["dag.complete", "dag.parents_first", "fire.no_duplicate", "heal.converges"]).known(8),
    row(Core(Guard::CallsKnown), &["inbox.once"]).aimed(Aim::CalledTakenOver).known(0),
    row(Store(StoreGuard::LeaseOnCommit), &["lease.exclusive"])
        .with(&[Core(Guard::LeaseTrusted), Store(StoreGuard::CommitsInOrder)])
        .aimed(Aim::PausedOwners)
        .known(10000),
    row(Store(StoreGuard::CommitsInOrder), &["lease.exclusive"]).in_profile(Profile::LostTail).known(1),
    row(Store(StoreGuard::CommitsOnRenewal), &["heal.converges"]).in_profile(Profile::LostTail).aimed(Aim::ForgottenEnds).known(10000),
    row(Store(StoreGuard::StateAndFenceOnUpdate), &["audit.unbroken", "state.legal", "state.terminal_final"])
        .with(&[Store(StoreGuard::LeaseOnCommit), Store(StoreGuard::CommitsInOrder), Core(Guard::LeaseTrusted)])
        .aimed(Aim::PausedOwners)
        .known(10006),
    row(Store(StoreGuard::FiringsUnique), &["fire.no_duplicate"]).with(&[Core(Guard::CursorMovesWithFiring)]).known(10000),
    row(Store(StoreGuard::EntryThereOnApply), &["inbox.once"]).with(&[Core(Guard::InboxOnce)]).known(10000),
    row(Store(StoreGuard::SubmissionKeys), &["submit.durable"]).known(10000),
    row(Store(StoreGuard::LeasesByOwnClock), &["lease.exclusive"]).known(121),
    row(Store(StoreGuard::ReadsFromPrimary), &["lease.exclusive"]).in_profile(Profile::LostTail).known(10000),
];

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
        // With semi-synchronous replication the replica has whatever was done: see `trouble::Way`.
        replica_lag: (fails_over || reads_replica).then_some(Millis(if plan.knobs.semi_synchronous {
            0
        } else {
            plan.knobs.replica_lag_ms
        })),
    };
    let mut database = Database::new(config, recorder);
    for flaw in flaws {
        if let Flaw::Store(guard) = flaw {
            database.switch_off(*guard);
        }
    }
    database
}
