//! `shrink`: a failing plan, as small as it gets.

use std::path::PathBuf;
use std::process::ExitCode;

use punctual_sim::regressions::Regression;
use punctual_sim::shrink::shrink;
use punctual_sim::trial::{Trial, World};
use serde::Serialize;

use crate::cli::{Drawing, Progress, exit_code, plan_of, print_json, print_line, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A seed, or the file of a plan.
    what: String,
    #[command(flatten)]
    drawing: Drawing,
    /// The property that has to go on failing; the first one that fails where nothing is said.
    #[arg(long)]
    property: Option<String>,
    /// At most so many runs.
    #[arg(long, default_value_t = 2_000)]
    budget: usize,
    /// The folder that the small plan is kept in, as a regression.
    #[arg(long, value_name = "FOLDER", default_value = "sim/regressions")]
    into: PathBuf,
    /// Prints the outcome as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Shrunk {
    property: String,
    witness: String,
    faults: usize,
    tasks: usize,
    calls: usize,
    horizon_ms: u64,
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let plan = match plan_of(&arguments.what, arguments.drawing) {
        Ok(plan) => plan,
        Err(why) => return refused(&why),
    };
    let failures = Trial::of(World::Rehearsal, &plan, &[]).failures();
    let is_meant = |property: &str| arguments.property.as_ref().is_none_or(|meant| meant == property);
    let Some(failure) = failures.iter().find(|failure| is_meant(&failure.property)) else {
        return refused("it does not fail: there is nothing to shrink");
    };
    let property = failure.property.clone();
    let progress = Progress::new("runs", arguments.budget as u64, arguments.json);
    let small = shrink(
        &plan,
        arguments.budget,
        |candidate| {
            progress.step(None);
            Trial::of(World::Rehearsal, candidate, &[]).fails(&property)
        },
        |_| {},
    );
    progress.finish();
    let failures = Trial::of(World::Rehearsal, &small, &[]).failures();
    let witness = failures.iter().find(|failure| failure.property == property).map(|failure| failure.witness.clone()).unwrap_or_default();
    let found_with = format!("cargo sim shrink {} --profile {}", arguments.what, arguments.drawing.profile.name());
    let regression = Regression { property: property.clone(), found_with, plan: small.clone() };
    let file = match regression.save(&arguments.into) {
        Ok(file) => file,
        Err(error) => return refused(&format!("the small plan can't be kept: {error}")),
    };
    let (faults, tasks, calls) = (small.faults.len(), small.tasks.len(), small.calls.len());
    let shrunk = Shrunk { property, witness, faults, tasks, calls, horizon_ms: small.horizon_ms, file };
    if arguments.json {
        print_json(&shrunk);
    } else {
        let Shrunk { property, witness, file, .. } = &shrunk;
        print_line(&format!("{property}: {witness}"));
        print_line(&format!("{faults} faults, {tasks} tasks, {calls} calls, {} s", small.horizon_ms / 1_000));
        for fault in &small.faults {
            print_line(&format!("    from {} ms for {} ms: {:?} on {:?}", fault.at_ms, fault.lasts_ms, fault.kind, fault.on));
        }
        print_line(&format!("kept as {}; cargo sim replay {} runs it again", file.display(), file.display()));
    }
    exit_code(&failures)
}
