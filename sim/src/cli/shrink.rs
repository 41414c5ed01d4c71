//! `shrink`: a failing plan, as small as it gets.

use std::path::PathBuf;
use std::process::Command;

use punctual_sim::check::CATALOGUE;
use punctual_sim::files;
use punctual_sim::regressions::Regression;
use punctual_sim::shrink::shrink;
use punctual_sim::trial::{CRASH, Trial, World};
use serde::Serialize;

use crate::cli::drawing::{Drawing, plan_of};
use crate::cli::limits::up_to;
use crate::cli::output::{complain, print, print_json, print_line};
use crate::cli::{Progress, exit_code, refused};

/// Where plans that failed are kept.
const REGRESSIONS: &str = "sim/regressions";
/// Most runs.
const BUDGET_MAX: u64 = 1_000_000;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A seed, or the file of a plan.
    what: String,
    #[command(flatten)]
    drawing: Drawing,
    /// The property that has to go on failing; the first one that fails where nothing is said.
    #[arg(long, value_parser = property)]
    property: Option<String>,
    /// At most so many runs.
    #[arg(long, default_value_t = 2_000, value_parser = up_to(BUDGET_MAX))]
    budget: u64,
    /// The folder that the small plan is kept in, as a regression; sim/regressions where nothing is said and no guard is off.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
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
    /// `null`: it could not be kept.
    file: Option<PathBuf>,
}

fn property(name: &str) -> Result<String, String> {
    if name == CRASH || CATALOGUE.iter().any(|property| property.id == name) {
        return Ok(name.to_owned());
    }
    let names = CATALOGUE.iter().map(|property| property.id).collect::<Vec<_>>().join(", ");
    Err(format!("there is no property `{name}`; the properties are {names} and {CRASH}"))
}

impl Arguments {
    /// The folder for the small plan. It is looked at before the work begins.
    fn folder(&self) -> Result<PathBuf, String> {
        let folder = match &self.into {
            Some(folder) => folder.clone(),
            None if self.drawing.flaws().is_empty() => PathBuf::from(REGRESSIONS),
            None => return Err("a plan that fails without a guard is no regression: say where to keep it, with --into FOLDER".to_owned()),
        };
        let unusable = |error| format!("{}: {error}; --into names a folder that the small plan is kept in", folder.display());
        files::check_folder(&folder).map_err(unusable)?;
        Ok(folder)
    }
}

/// What is known of the code that runs: the commit where there is a checkout.
fn version() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = output.ok().filter(|output| output.status.success()).and_then(|output| String::from_utf8(output.stdout).ok());
    commit.map_or_else(|| format!("version {}", env!("CARGO_PKG_VERSION")), |commit| format!("commit {}", commit.trim()))
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let drawing = &arguments.drawing;
    let asked = match plan_of(&arguments.what, drawing) {
        Ok(asked) => asked,
        Err(why) => return refused(&why),
    };
    let folder = match arguments.folder() {
        Ok(folder) => folder,
        Err(why) => return refused(&why),
    };
    let failures = drawing.trial(world, &asked.plan).failures();
    let failure = match &arguments.property {
        Some(meant) => failures.iter().find(|failure| failure.property == *meant),
        None => failures.first(),
    };
    let Some(failure) = failure else { return refused(&nothing_to_shrink(arguments, &failures)) };
    let property = failure.property.clone();
    let progress = Progress::new("runs", arguments.budget, arguments.json);
    let small = shrink(
        &asked.plan,
        arguments.budget as usize,
        |candidate| {
            progress.step(None);
            drawing.trial(world, candidate).fails(&property)
        },
        |_| {},
    );
    progress.finish();
    let failures = Trial::of(world, &small, &drawing.flaws()).failures();
    let witness = failures.iter().find(|failure| failure.property == property).map(|failure| failure.witness.clone()).unwrap_or_default();
    let found_with = asked.found_with.unwrap_or_else(|| format!("{}: {}", version(), drawing.command("shrink", &arguments.what)));
    let regression = Regression { property: property.clone(), found_with, plan: small.clone() };
    let saved = regression.save(&folder);
    let (faults, tasks, calls) = (small.faults.len(), small.tasks.len(), small.calls.len());
    let shrunk = Shrunk { property, witness, faults, tasks, calls, horizon_ms: small.horizon_ms, file: saved.as_ref().ok().cloned() };
    if arguments.json {
        print_json(&shrunk);
    } else {
        let Shrunk { property, witness, file, .. } = &shrunk;
        print_line(&format!("{property}: {witness}"));
        print_line(&format!("{faults} faults, {tasks} tasks, {calls} calls, {} s", small.horizon_ms / 1_000));
        for fault in &small.faults {
            print_line(&format!("    from {} ms for {} ms: {:?} on {:?}", fault.at_ms, fault.lasts_ms, fault.kind, fault.on));
        }
        match file {
            Some(file) => {
                let again = drawing.command_of_file("replay", &file.display().to_string());
                print_line(&format!("kept as {}; {again} runs it again", file.display()));
            }
            // What was found in so many runs is not thrown away.
            None => print(&regression.to_json()),
        }
    }
    if let Err(error) = saved {
        complain(&format!("the small plan can't be kept: {error}"));
    }
    exit_code(&failures)
}

fn nothing_to_shrink(arguments: &Arguments, failures: &[punctual_sim::trial::Failure]) -> String {
    match &arguments.property {
        Some(meant) if !failures.is_empty() => {
            let others = failures.iter().map(|failure| failure.property.as_str()).collect::<Vec<_>>().join(", ");
            format!("{meant} does not fail; what fails is {others}")
        }
        _ => "it does not fail: there is nothing to shrink".to_owned(),
    }
}
