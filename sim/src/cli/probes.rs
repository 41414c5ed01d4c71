//! `probes`: the places that runs came through.

use std::collections::BTreeMap;

use punctual_sim::swarm::Profile;
use punctual_sim::trial::World;
use serde::Serialize;

use crate::cli::Progress;
use crate::cli::drawing::Drawing;
use crate::cli::limits::{Jobs, SEEDS_MAX, Seeds, up_to};
use crate::cli::output::{complain, print_json, print_line};
use crate::cli::sweep::{How, sweep};

/// The profiles that together come through every place, and of how many seeds each gets one.
const PROFILES: [(Profile, u64); 4] = [(Profile::Default, 1), (Profile::LostTail, 4), (Profile::DatabaseClock, 4), (Profile::Flood, 100)];

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds of the default profile; of the others there are fewer.
    #[arg(long, default_value_t = 400, value_parser = up_to(SEEDS_MAX))]
    seeds: u64,
    #[command(flatten)]
    jobs: Jobs,
    /// Prints a row a probe as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    probe: &'static str,
    hits: u64,
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let mut hits: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for (profile, one_in) in PROFILES {
        let seeds = arguments.seeds.div_ceil(one_in).max(2);
        let progress = Progress::new(profile.name(), seeds, arguments.json);
        let how = How { world, drawing: &Drawing::from(profile), jobs: arguments.jobs.count(seeds), fail_fast: false };
        let swept = sweep(Seeds { from: 0, count: seeds }, &how, &progress);
        for (probe, count) in &swept.probes {
            *hits.entry(probe).or_default() += count;
        }
        failures.push(swept.exit_code());
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
        complain(&format!("never hit: {}", missed.join(", ")));
    }
    // A run that failed says more than a place that was missed.
    let failed = failures.into_iter().filter(|code| *code > 0).min();
    failed.unwrap_or(u8::from(!missed.is_empty()))
}
