//! The tabletop world: plans drawn from seeds hold what is promised, and do the same each time.

use punctual_core::guard::Guard;
use punctual_sim::bank::{BANK, Flaw};
use punctual_sim::history::{Record, What, Who};
use punctual_sim::load::settling_ms;
use punctual_sim::model::StoreGuard;
use punctual_sim::plan::{Fault, FaultKind, Plan, Selector};
use punctual_sim::problems::problems;
use punctual_sim::swarm::{Profile, Swarm, swarm};
use punctual_sim::trial::{Trial, World};

fn trial(plan: &Plan) -> Trial {
    Trial::of(World::Tabletop, plan, &[])
}

fn failures(seeds: std::ops::Range<u64>, swarm_of: &Swarm) -> Vec<String> {
    let seeds: Vec<u64> = seeds.collect();
    let of_seeds = |seeds: &[u64]| {
        let failures = seeds.iter().flat_map(|seed| {
            let failures = trial(&swarm(*seed, swarm_of)).failures();
            failures.into_iter().map(move |failure| format!("seed {seed}: {}: {}", failure.property, failure.witness))
        });
        failures.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let halves: Vec<_> = seeds.chunks(seeds.len().div_ceil(2)).map(|half| scope.spawn(move || of_seeds(half))).collect();
        halves.into_iter().flat_map(|half| half.join().expect("no panic outside of a run")).collect()
    })
}

#[test]
fn three_hundred_seeds_hold_what_is_promised() {
    let failures = failures(0..300, &Swarm::default());
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Floods and clusters of usual size take too long in a debug build.
#[test]
fn calm_plans_and_lost_tails_hold_what_is_promised() {
    for profile in [Profile::Calm, Profile::LostTail] {
        let failures = failures(0..60, &profile.swarm());
        assert!(failures.is_empty(), "{profile:?}: {failures:#?}");
    }
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 0..10 {
        let plan = swarm(seed, &Swarm::default());
        let (first, second) = (trial(&plan), trial(&plan));
        assert_eq!(first.history.digest(), second.history.digest(), "seed {seed}");
        assert!(first.history.records.len() > 50, "seed {seed}");
    }
}

/// What it takes: nothing is written meanwhile, and everything afterwards.
#[test]
fn a_database_that_is_full_writes_nothing_and_then_goes_on() {
    let calm = Swarm { tasks: (6, 6), ..Profile::Calm.swarm() };
    let (from, until) = (30_000, 75_000);
    for seed in 0..12 {
        let mut plan = swarm(seed, &calm);
        plan.faults = vec![Fault { at_ms: from, lasts_ms: until - from, kind: FaultKind::DatabaseFull, on: Selector::World }];
        plan.horizon_ms = plan.heal_at_ms + settling_ms(&plan);
        assert_eq!(problems(&plan), []);
        let trial = trial(&plan);
        assert_eq!(trial.failures(), [], "seed {seed}");
        // What was under way when it began may still have arrived, and been carried out, within the database's longest time.
        let is_in_database = |record: &&Record| record.who == Who::Database && !matches!(record.what, What::Left(_));
        let written = |from, until| trial.history.records.iter().filter(is_in_database).any(|record| (from..until).contains(&record.at));
        assert!(written(0, from) && !written(from + 1_000, until) && written(until, plan.heal_at_ms), "seed {seed}");
    }
}

/// What shows in so few plans of the tabletop world that it is left to the rehearsal world.
const RARE: [Flaw; 4] = [
    Flaw::Core(Guard::RefusedCommitReloads),
    Flaw::Core(Guard::LeaseTrusted),
    Flaw::Core(Guard::HeartbeatsWithinLease),
    Flaw::Store(StoreGuard::LeasesByOwnClock),
];

#[test]
fn planted_bugs_are_found_out() {
    for row in BANK.iter().filter(|row| !RARE.contains(&row.guard)) {
        let fails = |seed: u64| {
            let trial = Trial::of(World::Tabletop, &row.plan(seed), &row.flaws());
            row.properties.iter().any(|property| trial.fails(property))
        };
        assert!((0..100).any(fails), "{:?}: nothing fails without it", row.guard);
    }
}
