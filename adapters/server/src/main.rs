//! The one binary.

mod api;
mod bench;
mod cli;
mod console;
mod embedded;
mod feed;
mod open;

fn main() -> std::process::ExitCode {
    cli::run()
}
