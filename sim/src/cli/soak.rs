//! `soak`: seed after seed for hours.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::cli::sweep::{Swept, exit_code_of, sweep};
use crate::cli::{Drawing, Progress, jobs, print_json, print_line};

/// Seeds between two looks at the clock.
const SEEDS_AT_ONCE: u64 = 200;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How long, in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1_000_000)]
    from: u64,
    #[command(flatten)]
    drawing: Drawing,
    /// Ends with the first failure.
    #[arg(long)]
    fail_fast: bool,
    /// How many at once; as many as there are cores where nothing is said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints the outcome as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let ends_after = Duration::from_secs(arguments.minutes.saturating_mul(60));
    let mut all = Swept::default();
    let mut virtual_seconds = 0.0;
    while began.elapsed() < ends_after && !(arguments.fail_fast && all.violations > 0) {
        let from = arguments.from + all.seeds;
        let progress = Progress::new("seeds", SEEDS_AT_ONCE, arguments.json);
        let swept = sweep(from..from + SEEDS_AT_ONCE, arguments.drawing, jobs(arguments.jobs), &progress);
        virtual_seconds += swept.virtual_seconds_per_second * swept.seeds as f64 / swept.seeds_per_second;
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
    }
    exit_code_of(&all)
}
