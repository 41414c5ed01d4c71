//! `soak`: seed after seed for hours.

use std::time::{Duration, Instant};

use punctual_sim::trial::World;

use crate::cli::Progress;
use crate::cli::drawing::Drawing;
use crate::cli::limits::{Jobs, Seeds, up_to};
use crate::cli::output::{print_json, print_line};
use crate::cli::sweep::{How, Swept, sweep};

/// Seeds between two looks at the clock.
const SEEDS_AT_ONCE: u64 = 200;
/// Longest soak: a year.
const MINUTES_MAX: u64 = 366 * 24 * 60;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How long, in minutes.
    #[arg(long, default_value_t = 60, value_parser = up_to(MINUTES_MAX))]
    minutes: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1_000_000)]
    from: u64,
    #[command(flatten)]
    drawing: Drawing,
    /// Ends with the first failure.
    #[arg(long)]
    fail_fast: bool,
    #[command(flatten)]
    jobs: Jobs,
    /// Prints the outcome as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let began = Instant::now();
    let ends_after = Duration::from_secs(arguments.minutes * 60);
    let jobs = arguments.jobs.count(SEEDS_AT_ONCE);
    let how = How { world, drawing: &arguments.drawing, jobs, fail_fast: arguments.fail_fast };
    let mut all = Swept::default();
    let mut virtual_seconds = 0.0;
    while began.elapsed() < ends_after && !(arguments.fail_fast && all.violations > 0) {
        let Some(seeds) = next_seeds(arguments.from, all.seeds) else { break };
        let progress = Progress::new("seeds", SEEDS_AT_ONCE, arguments.json);
        let swept = sweep(seeds, &how, &progress);
        virtual_seconds += swept.virtual_seconds_per_second * swept.seeds as f64 / swept.seeds_per_second.max(1e-9);
        all.seeds += swept.seeds;
        all.violations += swept.violations;
        all.records += swept.records;
        all.failures.extend(swept.failures);
        for (probe, hits) in swept.probes {
            *all.probes.entry(probe).or_default() += hits;
        }
        let seconds = began.elapsed().as_secs_f64();
        all.seeds_per_second = all.seeds as f64 / seconds;
        all.virtual_seconds_per_second = virtual_seconds / seconds;
        if !arguments.json {
            print_line(&format!("{} seeds, {} violations after {:.0} s", all.seeds, all.violations, seconds));
        }
    }
    if arguments.json {
        print_json(&all);
    } else {
        print_line(&all.summary());
    }
    all.exit_code()
}

/// The next ones after so many; there may be none left.
fn next_seeds(first: u64, done: u64) -> Option<Seeds> {
    let from = first.checked_add(done)?;
    Seeds::new(from, (u64::MAX - from).saturating_add(1).min(SEEDS_AT_ONCE)).ok()
}
