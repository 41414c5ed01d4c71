//! The built program: what it refuses, what it prints, what becomes of files. Plans are carried out in the tabletop world.

mod files;
mod limits;
mod outputs;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program, in a folder of its own.
fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-rehearse"));
    command.args(arguments).arg("--tabletop").current_dir(folder).stdin(Stdio::null());
    command
}

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

fn finished(output: Output) -> Run {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn run(folder: &Path, arguments: &[&str]) -> Run {
    finished(program(folder, arguments).output().expect("the program is there"))
}

/// What a refusal says.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let run = run(folder, arguments);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}: {}", run.stderr);
    run.stderr
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A folder with a small task file, `tasks.yaml`.
fn with_tasks() -> tempfile::TempDir {
    let folder = folder();
    let text = "tasks:\n- {name: beat, trigger: {fixed_rate: 10m}, command: x}\n- {name: hand, trigger: manual, command: x}\n";
    std::fs::write(folder.path().join("tasks.yaml"), text).expect("a file");
    folder
}

#[test]
fn without_the_simulated_world_it_does_not_pass_for_it() {
    if cfg!(madsim) {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_punctual-rehearse")).args(["sweep", "--seeds", "1"]).output().expect("the program");
    let run = finished(output);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("without the simulated world"), "{}", run.stderr);
}

#[test]
fn no_test_file_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let main = std::fs::read_to_string(folder.join("main.rs")).expect("this file");
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let module = name.strip_suffix(".rs").expect("a test file");
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not run");
    }
}
