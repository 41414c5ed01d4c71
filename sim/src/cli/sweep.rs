//! `sweep`: many seeds, on all cores.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use punctual_sim::swarm::{Profile, swarm};
use punctual_sim::trial::{Trial, World};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Which plans to draw.
    #[arg(long, default_value = "default")]
    profile: String,
    /// How many at once.
    #[arg(long)]
    jobs: Option<usize>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let profile = Profile::from_name(&arguments.profile).expect("a profile");
    let options = profile.swarm();
    let next = AtomicU64::new(arguments.from);
    let end = arguments.from + arguments.seeds;
    let found = Mutex::new(BTreeMap::new());
    let probes = Mutex::new(BTreeMap::<&str, u64>::new());
    let virtual_ms = AtomicU64::new(0);
    let records = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.unwrap_or(2) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let plan = swarm(seed, &options);
                    let trial = Trial::of(World::Rehearsal, &plan, &[]);
                    virtual_ms.fetch_add(plan.horizon_ms, Ordering::Relaxed);
                    records.fetch_add(trial.history.records.len() as u64, Ordering::Relaxed);
                    for (name, hits) in &trial.probes {
                        *probes.lock().unwrap().entry(name).or_default() += hits;
                    }
                    let failures = trial.failures();
                    if !failures.is_empty() {
                        found.lock().unwrap().insert(seed, failures);
                    }
                }
            });
        }
    });
    let took = began.elapsed().as_secs_f64();
    let found = found.into_inner().unwrap();
    for (seed, failures) in &found {
        for failure in failures {
            println!("seed {seed}: {} {}", failure.property, failure.witness);
        }
    }
    println!("{:?}", probes.into_inner().unwrap());
    let virtual_s = virtual_ms.into_inner() as f64 / 1000.0;
    println!(
        "{} seeds, {} failing, {took:.1} s, {:.0} virtual s/s, {} records",
        arguments.seeds,
        found.len(),
        virtual_s / took,
        records.into_inner()
    );
    ExitCode::SUCCESS
}
