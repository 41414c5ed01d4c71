//! `probes`: the places that runs came through.

use std::collections::BTreeMap;
use std::process::ExitCode;

use punctual_sim::swarm::Profile;
use serde::Serialize;

use crate::cli::sweep::{exit_code_of, sweep};
use crate::cli::{Drawing, Progress, jobs, print_json, print_line};

/// The profiles that together come through every place, and of how many seeds each gets one.
const PROFILES: [(Profile, u64); 4] = [(Profile::Default, 1), (Profile::LostTail, 4), (Profile::DatabaseClock, 4), (Profile::Flood, 100)];

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds of the default profile; of the others there are fewer.
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// How many runs at once; as many as there are cores where nothing is said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints a row a probe as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    probe: &'static str,
    hits: u64,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let mut hits: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut code = ExitCode::SUCCESS;
    for (profile, one_in) in PROFILES {
        let seeds = arguments.seeds.div_ceil(one_in).max(2);
        let progress = Progress::new(profile.name(), seeds, arguments.json);
        let swept = sweep(0..seeds, Drawing { profile }, jobs(arguments.jobs), &progress);
        for (probe, count) in &swept.probes {
            *hits.entry(probe).or_default() += count;
        }
        if swept.violations > 0 {
            code = exit_code_of(&swept);
        }
    }
    let rows: Vec<_> = hits.into_iter().map(|(probe, hits)| Row { probe, hits }).collect();
    let missed: Vec<_> = rows.iter().filter(|row| row.hits == 0).map(|row| row.probe).collect();
    if arguments.json {
        print_json(&rows);
    } else {
        rows.iter().for_each(|row| print_line(&format!("{:<40} {:>10}", row.probe, row.hits)));
        print_line(&format!("{} of {} hit", rows.len() - missed.len(), rows.len()));
    }
    if !missed.is_empty() {
        eprintln!("never hit: {}", missed.join(", "));
        return ExitCode::from(1);
    }
    code
}
