//! The built binary: whole outputs and exit codes.

mod cron;
mod help;
mod import;
mod logs;
mod rehearse;
mod validate;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::Expect;

/// What a run of the binary gave.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `punctual` in the repository's folder, with a machine zone that must not matter.
fn punctual(arguments: &[&str], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(arguments)
        .current_dir(repository())
        .env("TZ", "Asia/Kathmandu")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A binary that refuses its arguments doesn't read.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares everything that a run gave, with the version of the zone data hidden.
fn check(arguments: &[&str], input: &str, expected: Expect) {
    let run = punctual(arguments, input);
    let mut text = format!("{}exit code {}\n", run.stdout, run.code.unwrap_or(-1));
    if !run.stderr.is_empty() {
        text.push_str(&format!("--- stderr\n{}", run.stderr));
    }
    expected.assert_eq(&text.replace(&tzdata(), "[TZDATA]"));
}

/// The version of the zone data on this machine.
fn tzdata() -> String {
    let run = punctual(&["cron", "explain", "@daily", "--json", "--count", "1"], "");
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    answer["tzdata"].as_str().unwrap().to_owned()
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_panic() {
    let arguments = ["cron", "explain", "* * * * *", "--count", "10000", "--json"];
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_punctual")).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn the_schema_is_the_published_one() {
    let run = punctual(&["schema"], "");
    let published = std::fs::read_to_string(repository().join("docs/task-file.schema.json")).unwrap();
    assert!(run.code == Some(0) && run.stdout == published);
}

#[test]
fn usage_is_refused_with_two() {
    for arguments in [&[][..], &["nonsense"], &["validate"], &["cron", "explain"], &["cron", "explain", "@daily", "--count", "0"]] {
        assert_eq!(punctual(arguments, "").code, Some(2), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["cron", "explain", "--help"]] {
        assert_eq!(punctual(arguments, "").code, Some(0), "{arguments:?}");
    }
}

#[test]
fn no_test_file_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not run");
    }
}
