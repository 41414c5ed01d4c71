//! The commands.

mod bank;
mod drawing;
mod fingerprints;
mod limits;
mod output;
mod probes;
mod regressions;
mod rehearse;
mod replay;
mod shrink;
mod soak;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use punctual_sim::outcome;
use punctual_sim::report::shown;
use punctual_sim::trial::{CRASH, Failure, World};

/// Rehearses Punctual in a simulated world: crashes, partitions, clocks, databases that fail over, all from one number.
#[derive(Debug, Parser)]
#[command(name = "punctual-rehearse", bin_name = "cargo sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Carries plans out in the tabletop world: the core's machines in a plain loop.
    #[arg(long, global = true, hide = true)]
    tabletop: bool,
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
    /// Runs seed after seed for hours.
    Soak(soak::Arguments),
    /// Runs the plans that once failed.
    Regressions(regressions::Arguments),
    /// Checks that a seed gives the same run each time.
    Fingerprints(fingerprints::Arguments),
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    // A literal `--` that an alias has left in is passed over.
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "--") {
        arguments.remove(1);
    }
    // A run that breaks an assertion says so in its verdict, with the seed: not in the midst of a progress bar.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !outcome::is_running() {
            usual(panic);
        }
    }));
    let Arguments { command, tabletop } = Arguments::parse_from(arguments);
    let code = match world(tabletop) {
        Ok(world) => run(&command, world),
        Err(why) => refused(why),
    };
    ExitCode::from(output::exit_code(code))
}

/// Where plans are carried out. Whatever RUSTFLAGS says, a build without the simulated world must not pass for one with it.
fn world(is_tabletop: bool) -> Result<World, &'static str> {
    if is_tabletop {
        return Ok(World::Tabletop);
    }
    #[cfg(madsim)]
    return Ok(World::Rehearsal);
    #[cfg(not(madsim))]
    Err("this punctual-rehearse was built without the simulated world; from a checkout, `cargo sim` builds one with it")
}

fn run(command: &Command, world: World) -> u8 {
    match command {
        Command::Rehearse(arguments) => rehearse::run(arguments, world),
        Command::Sweep(arguments) => sweep::run(arguments, world),
        Command::Replay(arguments) => replay::run(arguments, world),
        Command::Shrink(arguments) => shrink::run(arguments, world),
        Command::Bank(arguments) => bank::run(arguments, world),
        Command::Probes(arguments) => probes::run(arguments, world),
        Command::Soak(arguments) => soak::run(arguments, world),
        Command::Regressions(arguments) => regressions::run(arguments, world),
        Command::Fingerprints(arguments) => fingerprints::run(arguments, world),
    }
}

/// Exit codes, the same as those of rehearsals.
const REFUSED: u8 = 2;
const SAFETY: u8 = 10;
const LIVENESS: u8 = 11;
const CRASHED: u8 = 12;
const NONDETERMINISTIC: u8 = 13;

/// The exit code for the worst of these.
fn exit_code<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> u8 {
    let code = failures.into_iter().map(|failure| match failure.property.as_str() {
        CRASH => CRASHED,
        property if property.starts_with("heal.") => LIVENESS,
        _ => SAFETY,
    });
    code.min().unwrap_or(0)
}

fn refused(why: &str) -> u8 {
    output::complain(why);
    REFUSED
}

/// A progress bar on the standard error, where that is a terminal and nobody reads JSON.
struct Progress {
    bar: ProgressBar,
    /// Somebody reads JSON: nothing else may come on the standard output.
    is_quiet: bool,
}

impl Progress {
    fn new(what: &str, count: u64, is_quiet: bool) -> Progress {
        if is_quiet {
            return Progress { bar: ProgressBar::hidden(), is_quiet };
        }
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:40}] {pos}/{len} {prefix}, {per_sec}, {eta} left {msg}");
        let bar = ProgressBar::new(count).with_style(style.expect("a valid template")).with_prefix(what.to_owned());
        Progress { bar, is_quiet }
    }

    /// One more is done.
    fn step(&self, message: Option<String>) {
        self.bar.inc(1);
        if let Some(message) = message {
            self.bar.set_message(message);
        }
    }

    /// Shows a line above the bar.
    fn say(&self, line: &str) {
        if self.is_quiet {
            output::complain(line);
        } else if self.bar.is_hidden() {
            output::print_line(line);
        } else {
            self.bar.println(shown(line));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
