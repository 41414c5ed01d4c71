//! `fingerprints`: the same seed must give the same run: alone, last in a batch, and in another process.

use std::process::Command;

use punctual_sim::swarm::Profile;
use punctual_sim::trial::{Trial, World};

use crate::cli::drawing::Drawing;
use crate::cli::limits::{Seeds, up_to};
use crate::cli::output::{complain, print_line};
use crate::cli::{NONDETERMINISTIC, refused};

/// Most seeds of a profile: each is run three times.
const SEEDS_MAX: u64 = 100_000;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds of each profile.
    #[arg(long, default_value_t = 3, value_parser = up_to(SEEDS_MAX))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs each seed once, here: what another process is started with.
    #[arg(long, hide = true)]
    once: bool,
}

const PROFILES: [Profile; 3] = [Profile::Default, Profile::LostTail, Profile::DatabaseClock];

fn fingerprint(world: World, profile: Profile, seed: u64) -> u64 {
    Trial::of(world, &Drawing::from(profile).plan(seed), &[]).history.digest()
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let seeds = match Seeds::new(arguments.from, arguments.seeds) {
        Ok(seeds) => seeds,
        Err(why) => return refused(&why),
    };
    let runs: Vec<_> = PROFILES.into_iter().flat_map(|profile| seeds.iter().map(move |seed| (profile, seed))).collect();
    let line = |(profile, seed): &(Profile, u64)| format!("{} {seed} {:016x}", profile.name(), fingerprint(world, *profile, *seed));
    let first: Vec<String> = runs
        .iter()
        .map(|run| {
            let line = line(run);
            print_line(&line);
            line
        })
        .collect();
    if arguments.once {
        return 0;
    }
    // In another order, each behind others.
    let mut behind_others: Vec<String> = runs.iter().rev().map(line).collect();
    behind_others.reverse();
    let elsewhere = match in_another_process(arguments, world) {
        Ok(lines) => lines,
        Err(why) => return refused(&why),
    };
    for (name, other) in [("behind other runs", behind_others), ("in another process", elsewhere)] {
        if let Some((here, there)) = first.iter().zip(&other).find(|(here, there)| here != there) {
            complain(&format!("{here} here, {there} {name}"));
            return NONDETERMINISTIC;
        }
        if other.len() != first.len() {
            complain(&format!("{} runs here, {} {name}", first.len(), other.len()));
            return NONDETERMINISTIC;
        }
    }
    print_line(&format!("{} runs: equal alone, behind other runs and in another process", first.len()));
    0
}

fn in_another_process(arguments: &Arguments, world: World) -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program can't be found: {error}"))?;
    let (seeds, from) = (arguments.seeds.to_string(), arguments.from.to_string());
    let output = Command::new(program)
        .args(["fingerprints", "--once", "--seeds", &seeds, "--from", &from])
        .args((world == World::Tabletop).then_some("--tabletop"))
        .output()
        .map_err(|error| format!("this program can't be started again: {error}"))?;
    if !output.status.success() {
        return Err(format!("another process failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
