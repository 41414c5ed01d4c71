//! The one binary.

mod api;
mod applied;
mod bench;
mod cli;
mod console;
mod embedded;
mod events;
mod feed;
mod identity;
mod logs;
mod open;
mod printer;
mod sign_in;
mod tokens;

fn main() -> std::process::ExitCode {
    cli::run()
}
