//! The one binary.

mod api;
mod applied;
mod bench;
mod cli;
mod console;
mod doctor;
mod embedded;
mod events;
mod explain;
mod feed;
mod identity;
mod logs;
mod open;
mod printer;
mod seats;
mod sign_in;
mod tokens;
mod upkeep;

fn main() -> std::process::ExitCode {
    cli::run()
}
