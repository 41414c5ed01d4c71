//! `sweep`: many seeds, on all cores.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use punctual_sim::trial::{Failure, Trial, World};
use serde::Serialize;

use crate::cli::{Drawing, Progress, exit_code, jobs, print_json, print_line};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    drawing: Drawing,
    /// How many at once; as many as there are cores where nothing is said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints the outcome as JSON.
    #[arg(long)]
    json: bool,
}

/// What came of a sweep.
#[derive(Debug, Default, Serialize)]
pub(super) struct Swept {
    pub(super) seeds: u64,
    /// Properties that were violated, counted once a seed, and runs that broke off.
    pub(super) violations: usize,
    pub(super) virtual_seconds_per_second: f64,
    pub(super) seeds_per_second: f64,
    pub(super) records: u64,
    pub(super) failures: Vec<Failed>,
    pub(super) probes: BTreeMap<&'static str, u64>,
}

/// A violated property.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub(super) seed: u64,
    pub(super) property: String,
    pub(super) witness: String,
    /// The command that runs it again.
    pub(super) replay: String,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let swept = sweep(seeds, arguments.drawing, jobs(arguments.jobs), &Progress::new("seeds", arguments.seeds, arguments.json));
    if arguments.json {
        print_json(&swept);
    } else {
        print_line(&format!(
            "{} seeds, {} violations, {:.1} seeds/s, {:.0} virtual seconds a second",
            swept.seeds, swept.violations, swept.seeds_per_second, swept.virtual_seconds_per_second
        ));
    }
    exit_code_of(&swept)
}

pub(super) fn exit_code_of(swept: &Swept) -> ExitCode {
    let failures: Vec<_> =
        swept.failures.iter().map(|failed| Failure { property: failed.property.clone(), witness: String::new() }).collect();
    exit_code(&failures)
}

/// Runs these seeds; what fails is shown at once.
pub(super) fn sweep(seeds: Range<u64>, drawing: Drawing, jobs: usize, progress: &Progress) -> Swept {
    let next = AtomicU64::new(seeds.start);
    let swept = Mutex::new(Swept { seeds: seeds.end - seeds.start, ..Swept::default() });
    let virtual_ms = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let plan = drawing.plan(seed);
                    let trial = Trial::of(World::Rehearsal, &plan, &[]);
                    virtual_ms.fetch_add(plan.horizon_ms, Ordering::Relaxed);
                    take(&mut swept.lock().unwrap_or_else(PoisonError::into_inner), seed, &trial, drawing, progress);
                }
            });
        }
    });
    progress.finish();
    let mut swept = swept.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    swept.violations = swept.failures.len();
    swept.virtual_seconds_per_second = virtual_ms.into_inner() as f64 / 1_000.0 / seconds;
    swept.seeds_per_second = swept.seeds as f64 / seconds;
    swept.failures.sort_by(|one, other| (one.seed, &one.property).cmp(&(other.seed, &other.property)));
    swept
}

fn take(swept: &mut Swept, seed: u64, trial: &Trial, drawing: Drawing, progress: &Progress) {
    swept.records += trial.history.records.len() as u64;
    for (name, hits) in &trial.probes {
        *swept.probes.entry(name).or_default() += hits;
    }
    for Failure { property, witness } in trial.failures() {
        let replay = drawing.replay(seed);
        progress.say(&format!("seed {seed}: {property}: {witness}\n    {replay}"));
        swept.failures.push(Failed { seed, property, witness, replay });
    }
    progress.step((!swept.failures.is_empty()).then(|| format!("({} violations)", swept.failures.len())));
}
