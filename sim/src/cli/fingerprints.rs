//! `fingerprints`: the same seed must give the same run: alone, last in a batch, and in another process.

use std::process::{Command, ExitCode};

use punctual_sim::swarm::Profile;
use punctual_sim::trial::{Trial, World};

use crate::cli::{Drawing, NONDETERMINISTIC, print_line, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many seeds of each profile.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs each seed once, here: what another process is started with.
    #[arg(long, hide = true)]
    once: bool,
}

const PROFILES: [Profile; 3] = [Profile::Default, Profile::LostTail, Profile::DatabaseClock];

fn fingerprint(drawing: Drawing, seed: u64) -> u64 {
    Trial::of(World::Rehearsal, &drawing.plan(seed), &[]).history.digest()
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let runs: Vec<_> = PROFILES.into_iter().flat_map(|profile| seeds.clone().map(move |seed| (Drawing { profile }, seed))).collect();
    let text = |runs: &[(Drawing, u64)]| -> Vec<String> {
        let line = |(drawing, seed): &(Drawing, u64)| format!("{} {seed} {:016x}", drawing.profile.name(), fingerprint(*drawing, *seed));
        runs.iter().map(line).collect()
    };
    let first = text(&runs);
    first.iter().for_each(|line| print_line(line));
    if arguments.once {
        return ExitCode::SUCCESS;
    }
    // In another order, each behind others.
    let reversed: Vec<_> = runs.iter().copied().rev().collect();
    let mut behind_others = text(&reversed);
    behind_others.reverse();
    let elsewhere = match in_another_process(arguments) {
        Ok(lines) => lines,
        Err(why) => return refused(&why),
    };
    for (name, other) in [("behind other runs", behind_others), ("in another process", elsewhere)] {
        if let Some((here, there)) = first.iter().zip(&other).find(|(here, there)| here != there) {
            eprintln!("{here} here, {there} {name}");
            return ExitCode::from(NONDETERMINISTIC);
        }
        if other.len() != first.len() {
            eprintln!("{} runs here, {} {name}", first.len(), other.len());
            return ExitCode::from(NONDETERMINISTIC);
        }
    }
    ExitCode::SUCCESS
}

fn in_another_process(arguments: &Arguments) -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program can't be found: {error}"))?;
    let (seeds, from) = (arguments.seeds.to_string(), arguments.from.to_string());
    let output = Command::new(program)
        .args(["fingerprints", "--once", "--seeds", &seeds, "--from", &from])
        .output()
        .map_err(|error| format!("this program can't be started again: {error}"))?;
    if !output.status.success() {
        return Err(format!("another process failed: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
