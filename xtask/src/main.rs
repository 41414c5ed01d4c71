//! `cargo sim ...`: builds `punctual-rehearse` with the simulated world and runs it. `cargo chaos ...`: builds `punctual` as it is shipped and
//! `punctual-chaos`, and carries a plan out on real processes.
//!
//! An alias alone would not do: flags in the environment, as CI sets them, beat those of an alias, and what would be built then is not
//! the simulated world. That build has a folder of its own in the target folder, so that the two kinds of build leave each other alone. And
//! `punctual` is built by itself: beside the chaos runs it would have what only simulations need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Separates the flags in cargo's variable.
const FLAGS: &str = "--cfg\u{1f}madsim";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next();
    let arguments: Vec<OsString> = arguments.collect();
    let is_debug = arguments.first().is_some_and(|first| first == "--debug");
    let arguments = &arguments[usize::from(is_debug)..];
    match command.as_ref().and_then(|command| command.to_str()) {
        Some("sim") => simulate(is_debug, arguments),
        Some("chaos") => chaos(is_debug, arguments),
        _ => {
            eprintln!("usage: cargo sim <command>, or cargo chaos; `cargo sim help` and `cargo chaos --help` say more");
            ExitCode::from(2)
        }
    }
}

fn simulate(is_debug: bool, arguments: &[OsString]) -> ExitCode {
    let target = target_folder().join("sim");
    let mut build = cargo(&target);
    build.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", FLAGS);
    build.args(["--package", "punctual-sim", "--bin", "punctual-rehearse"]);
    let built = built(build, is_debug);
    built.unwrap_or_else(|| run(&target.join(profile(is_debug)).join("punctual-rehearse"), arguments))
}

fn chaos(is_debug: bool, arguments: &[OsString]) -> ExitCode {
    let target = target_folder();
    for package in ["punctual", "punctual-chaos"] {
        let mut build = cargo(&target);
        build.args(["--package", package, "--bin", package]);
        if let Some(failed) = built(build, is_debug) {
            return failed;
        }
    }
    // There is nothing else that people would ask for.
    let command = if arguments.first().is_some_and(|first| first == "run") { None } else { Some(OsString::from("run")) };
    let arguments: Vec<OsString> = command.into_iter().chain(arguments.iter().cloned()).collect();
    run(&target.join(profile(is_debug)).join("punctual-chaos"), &arguments)
}

/// Builds; what is to be answered where that fails.
fn built(mut build: Command, is_debug: bool) -> Option<ExitCode> {
    if !is_debug {
        build.arg("--release");
    }
    match build.status() {
        Ok(status) if status.success() => None,
        Ok(_) => Some(ExitCode::from(2)),
        Err(error) => Some(fail("cargo", &error)),
    }
}

fn run(program: &Path, arguments: &[OsString]) -> ExitCode {
    match Command::new(program).args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => fail(&program.display().to_string(), &error),
    }
}

const fn profile(is_debug: bool) -> &'static str {
    if is_debug { "debug" } else { "release" }
}

fn fail(program: &str, error: &std::io::Error) -> ExitCode {
    eprintln!("{program} can't be run: {error}");
    ExitCode::from(2)
}

fn cargo(target: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_TARGET_DIR", target).args(["build", "--quiet", "--locked"]);
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of the workspace").to_owned()
}

fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| root().join("target")),
        None => root().join("target"),
    }
}
