//! `punctual-rehearse`: the simulated world as a program.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
