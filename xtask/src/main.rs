//! `cargo sim ...`: builds `punctual-rehearse` with the simulated world and runs it.
//!
//! An alias alone would not do: flags in the environment, as CI sets them, beat those of an alias, and what would be built then is not
//! the simulated world. The build has a folder of its own in the target folder, so that the two kinds of build leave each other alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Separates the flags in cargo's variable.
const FLAGS: &str = "--cfg\u{1f}madsim";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some("sim".as_ref()) {
        eprintln!("usage: cargo sim <command>; `cargo sim help` lists the commands");
        return ExitCode::from(2);
    }
    let arguments: Vec<OsString> = arguments.collect();
    let is_debug = arguments.first().is_some_and(|first| first == "--debug");
    let arguments = &arguments[usize::from(is_debug)..];
    let target = target_folder().join("sim");
    let mut build = cargo(&target);
    build.args(["build", "--quiet", "--locked", "--package", "punctual-sim", "--bin", "punctual-rehearse"]);
    if !is_debug {
        build.arg("--release");
    }
    match build.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return ExitCode::from(2),
        Err(error) => return fail("cargo", &error),
    }
    let program = target.join(if is_debug { "debug" } else { "release" }).join("punctual-rehearse");
    match Command::new(&program).args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => fail(&program.display().to_string(), &error),
    }
}

fn fail(program: &str, error: &std::io::Error) -> ExitCode {
    eprintln!("{program} can't be run: {error}");
    ExitCode::from(2)
}

fn cargo(target: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", target);
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
