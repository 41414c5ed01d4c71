//! `sweep`: many seeds, on all cores.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use punctual_sim::trial::{Failure, Trial, World};
use serde::Serialize;

use crate::cli::drawing::Drawing;
use crate::cli::limits::{Jobs, SEEDS_MAX, Seeds, up_to};
use crate::cli::output::{print_json, print_line};
use crate::cli::{Progress, exit_code, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100, value_parser = up_to(SEEDS_MAX))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    drawing: Drawing,
    #[command(flatten)]
    jobs: Jobs,
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

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let seeds = match Seeds::new(arguments.from, arguments.seeds) {
        Ok(seeds) => seeds,
        Err(why) => return refused(&why),
    };
    let how = How { world, drawing: &arguments.drawing, jobs: arguments.jobs.count(seeds.count), fail_fast: false };
    let swept = sweep(seeds, &how, &Progress::new("seeds", arguments.seeds, arguments.json));
    if arguments.json {
        print_json(&swept);
    } else {
        print_line(&swept.summary());
    }
    swept.exit_code()
}

impl Swept {
    pub(super) fn summary(&self) -> String {
        format!(
            "{} seeds, {} violations, {:.1} seeds/s, {:.0} virtual seconds a second",
            self.seeds, self.violations, self.seeds_per_second, self.virtual_seconds_per_second
        )
    }

    pub(super) fn exit_code(&self) -> u8 {
        let failure = |failed: &Failed| Failure { property: failed.property.clone(), witness: String::new() };
        exit_code(&self.failures.iter().map(failure).collect::<Vec<_>>())
    }
}

/// How a sweep goes.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    pub(super) world: World,
    pub(super) drawing: &'a Drawing,
    pub(super) jobs: usize,
    /// No run begins once one has failed.
    pub(super) fail_fast: bool,
}

/// Runs these seeds; what fails is shown at once.
pub(super) fn sweep(seeds: Seeds, how: &How, progress: &Progress) -> Swept {
    let next = AtomicU64::new(0);
    let has_failed = AtomicBool::new(false);
    let swept = Mutex::new(Swept::default());
    let virtual_ms = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..how.jobs {
            scope.spawn(|| {
                while !(how.fail_fast && has_failed.load(Ordering::Relaxed))
                    && let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let plan = how.drawing.plan(seed);
                    let trial = how.drawing.trial(how.world, &plan);
                    virtual_ms.fetch_add(plan.horizon_ms, Ordering::Relaxed);
                    let mut swept = swept.lock().unwrap_or_else(PoisonError::into_inner);
                    take(&mut swept, seed, &trial, how.drawing, progress);
                    has_failed.store(!swept.failures.is_empty(), Ordering::Relaxed);
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

fn take(swept: &mut Swept, seed: u64, trial: &Trial, drawing: &Drawing, progress: &Progress) {
    swept.seeds += 1;
    swept.records += trial.history.records.len() as u64;
    for (name, hits) in &trial.probes {
        *swept.probes.entry(name).or_default() += hits;
    }
    for Failure { property, witness } in trial.failures() {
        let replay = drawing.command("replay", &seed.to_string());
        progress.say(&format!("seed {seed}: {property}: {witness}\n    {replay}"));
        swept.failures.push(Failed { seed, property, witness, replay });
    }
    progress.step((!swept.failures.is_empty()).then(|| format!("({} violations)", swept.failures.len())));
}
