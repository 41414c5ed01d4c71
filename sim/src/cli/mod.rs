//! The commands.

mod bank;
mod probes;
mod rehearse;
mod replay;
mod shrink;
mod soak;
mod sweep;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use punctual_sim::plan::Plan;
use punctual_sim::regressions::Regression;
use punctual_sim::swarm::{Profile, swarm};
use punctual_sim::trial::{CRASH, Failure};
use serde::Serialize;

/// Rehearses Punctual in a simulated world: crashes, partitions, clocks, databases that fail over, all from one number.
#[derive(Debug, Parser)]
#[command(name = "punctual-rehearse", bin_name = "cargo sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Puts a task file into a simulated world that goes wrong, and says what becomes of its tasks.
    Rehearse(rehearse::Arguments),
    /// Runs many seeds, on all cores, and says which fail.
    Sweep(sweep::Arguments),
    /// Runs one seed, or the plan of a file, again.
    Replay(replay::Arguments),
    /// Makes a failing plan as small as it gets.
    Shrink(shrink::Arguments),
    /// Switches each guard off in turn: something must notice.
    Bank(bank::Arguments),
    /// Counts the places that runs came through: none may be left out.
    Probes(probes::Arguments),
    /// Runs seed after seed for hours, and keeps what fails.
    Soak(soak::Arguments),
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    // A literal `--` that an alias has left in is passed over.
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "--") {
        arguments.remove(1);
    }
    // A run that breaks an assertion says so in its verdict, with the seed: not in the midst of a progress bar.
    std::panic::set_hook(Box::new(|_| {}));
    match Arguments::parse_from(arguments).command {
        Command::Rehearse(arguments) => rehearse::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Shrink(arguments) => shrink::run(&arguments),
        Command::Bank(arguments) => bank::run(&arguments),
        Command::Probes(arguments) => probes::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
    }
}

/// Exit codes, the same as those of rehearsals.
const REFUSED: u8 = 2;
const SAFETY: u8 = 10;
const LIVENESS: u8 = 11;
const CRASHED: u8 = 12;
const NONDETERMINISTIC: u8 = 13;

/// The exit code for the worst of these.
fn exit_code<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> ExitCode {
    let code = failures.into_iter().map(|failure| match failure.property.as_str() {
        CRASH => CRASHED,
        property if property.starts_with("heal.") => LIVENESS,
        _ => SAFETY,
    });
    ExitCode::from(code.min().unwrap_or(0))
}

/// Which plans to draw.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Drawing {
    /// Which plans to draw: default, calm, lost-tail, database-clock, flood or rehearsal.
    #[arg(long, default_value = "default", value_parser = profile)]
    profile: Profile,
}

impl Drawing {
    fn plan(self, seed: u64) -> Plan {
        swarm(seed, &self.profile.swarm())
    }

    /// The command that runs this seed again.
    fn replay(self, seed: u64) -> String {
        match self.profile {
            Profile::Default => format!("cargo sim replay {seed}"),
            profile => format!("cargo sim replay {seed} --profile {}", profile.name()),
        }
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::from_name(name).ok_or_else(|| format!("there is no profile `{name}`; use one of {}", names()))
}

/// A plan as it was asked for: a seed's, or that of a file with a regression or a bare plan.
fn plan_of(what: &str, drawing: Drawing) -> Result<Plan, String> {
    if let Ok(seed) = what.parse() {
        return Ok(drawing.plan(seed));
    }
    let path = Path::new(what);
    if !path.is_file() {
        return Err(format!("{what} is neither a seed nor a file"));
    }
    if let Ok(regression) = Regression::load(path) {
        return Ok(regression.plan);
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{what}: {error}"))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|error| format!("{what}: {error}"))?;
    match punctual_sim::problems::problems(&plan).first() {
        Some(problem) => Err(format!("{what}: {}: {}", problem.place, problem.message)),
        None => Ok(plan),
    }
}

fn refused(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(REFUSED)
}

fn jobs(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Prints JSON for programs.
fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).expect("what is printed can be written as JSON");
    print_line(&text);
}

/// Prints a line; whoever reads may have gone.
fn print_line(text: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}")
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprintln!("the output can't be written: {error}");
    }
}

/// A progress bar on the standard error, where that is a terminal and nobody reads JSON.
struct Progress(ProgressBar);

impl Progress {
    fn new(what: &str, count: u64, is_quiet: bool) -> Progress {
        if is_quiet {
            return Progress(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:40}] {pos}/{len} {prefix}, {per_sec}, {eta} left {msg}");
        let bar = ProgressBar::new(count).with_style(style.expect("a valid template")).with_prefix(what.to_owned());
        Progress(bar)
    }

    /// One more is done.
    fn step(&self, message: Option<String>) {
        self.0.inc(1);
        if let Some(message) = message {
            self.0.set_message(message);
        }
    }

    /// Shows a line above the bar.
    fn say(&self, line: &str) {
        if self.0.is_hidden() {
            return print_line(line);
        }
        self.0.println(line);
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}
