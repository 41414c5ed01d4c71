//! `punctual-rehearse`: the simulated world as a program.

#[cfg(madsim)]
mod cli;

#[cfg(madsim)]
fn main() -> std::process::ExitCode {
    cli::main()
}

/// Whatever RUSTFLAGS says, a build without the simulated world must not pass for one with it.
#[cfg(not(madsim))]
fn main() -> std::process::ExitCode {
    eprintln!("this punctual-rehearse was built without the simulated world; from a checkout, `cargo sim` builds one with it");
    std::process::ExitCode::from(2)
}
