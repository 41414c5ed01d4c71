//! The commands.

mod explore;
mod rehearse;
mod replay;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Rehearses Punctual in a simulated world: crashes, partitions, clocks, databases that fail over, all from one number.
#[derive(Debug, Parser)]
#[command(name = "punctual-rehearse", bin_name = "cargo sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Explore(explore::Arguments),
    /// Puts a task file into a simulated world that goes wrong, and says what becomes of its tasks.
    Rehearse(rehearse::Arguments),
    /// Runs one seed or plan again.
    Replay(replay::Arguments),
    /// Runs many seeds.
    Sweep(sweep::Arguments),
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    // A literal `--` that an alias has left in is passed over.
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "--") {
        arguments.remove(1);
    }
    let arguments = Arguments::parse_from(arguments);
    match arguments.command {
        Command::Explore(arguments) => explore::run(&arguments),
        Command::Rehearse(arguments) => rehearse::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
    }
}
