//! The tabletop world: plans drawn from seeds hold what is promised, and do the same each time.

use punctual_sim::bank::Flaw;
use punctual_sim::model::StoreGuard;
use punctual_sim::plan::{Family, Plan};
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

#[test]
fn every_profile_holds_what_is_promised() {
    for profile in Profile::ALL {
        let failures = failures(0..20, &profile.swarm());
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

#[test]
fn a_store_that_does_not_look_at_leases_is_found_out() {
    let families = [Family::NodePause, Family::NodeCrash, Family::Network].into();
    let options = Swarm { always: families, ..Swarm::default() };
    let flaws = [StoreGuard::LeaseOnCommit, StoreGuard::CommitsInOrder].map(Flaw::Store);
    let is_found = (0..50).any(|seed| !Trial::of(World::Tabletop, &swarm(seed, &options), &flaws).failures().is_empty());
    assert!(is_found, "nothing fails without it");
}
