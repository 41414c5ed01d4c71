//! `punctual rehearse`: handing over to a program that may be missing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use expect_test::{Expect, expect};
use tempfile::TempDir;

use crate::{punctual, repository};

/// The built binary in a folder of its own, where nothing else lies beside it.
fn alone() -> TempDir {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::hard_link(env!("CARGO_BIN_EXE_punctual"), folder.path().join("punctual")).unwrap();
    folder
}

/// Puts a stand-in for the program into a folder: it says what it was given.
fn stand_in(folder: &Path, says: &str, code: u8) {
    let program = folder.join("punctual-rehearse");
    std::fs::write(&program, format!("#!/bin/sh\necho {says}\nprintf '<%s>\\n' \"$@\"\nexit {code}\n")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
}

fn check(folder: &Path, path: &str, arguments: &[&str], expected: Expect) {
    let mut command = Command::new(folder.join("punctual"));
    command.arg("rehearse").args(arguments).current_dir(repository()).env("PATH", path);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
    let mut seen = format!("{}exit code {}\n", text(&output.stdout), output.status.code().unwrap_or(-1));
    if !output.stderr.is_empty() {
        seen.push_str(&format!("--- stderr\n{}", text(&output.stderr)));
    }
    expected.assert_eq(&seen.replace(folder.to_str().unwrap(), "[FOLDER]"));
}

#[test]
fn where_the_program_is_missing_it_says_how_to_get_it() {
    let folder = alone();
    check(
        folder.path(),
        "/nowhere",
        &["--seed", "42", "examples/shop.yaml"],
        expect![[r#"
        exit code 2
        --- stderr
        `punctual rehearse` is a program of its own, punctual-rehearse, which is neither beside this executable nor on the PATH.
        From a checkout: cargo sim rehearse FILE
    "#]],
    );
    check(
        folder.path(),
        "/nowhere",
        &["--help"],
        expect![[r#"
        exit code 2
        --- stderr
        `punctual rehearse` is a program of its own, punctual-rehearse, which is neither beside this executable nor on the PATH.
        From a checkout: cargo sim rehearse FILE
    "#]],
    );
}

#[test]
fn the_program_beside_it_gets_all_arguments_and_gives_its_exit_code() {
    let (folder, elsewhere) = (alone(), TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    stand_in(folder.path(), "beside", 10);
    stand_in(elsewhere.path(), "elsewhere", 0);
    let path = elsewhere.path().to_str().unwrap();
    check(
        folder.path(),
        path,
        &["a b.yaml", "--seed", "42", "--faults=node-crash", "--", "-x"],
        expect![[r#"
        beside
        <rehearse>
        <a b.yaml>
        <--seed>
        <42>
        <--faults=node-crash>
        <-->
        <-x>
        exit code 10
    "#]],
    );
    check(
        folder.path(),
        path,
        &["--help"],
        expect![[r#"
        beside
        <rehearse>
        <--help>
        exit code 10
    "#]],
    );
}

#[test]
fn the_program_may_be_on_the_path() {
    let (folder, elsewhere) = (alone(), TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    stand_in(elsewhere.path(), "elsewhere", 0);
    check(
        folder.path(),
        elsewhere.path().to_str().unwrap(),
        &["tasks.yaml"],
        expect![[r#"
        elsewhere
        <rehearse>
        <tasks.yaml>
        exit code 0
    "#]],
    );
}

#[test]
fn a_program_that_may_not_be_run_is_said_to_be_there() {
    let folder = alone();
    stand_in(folder.path(), "never", 0);
    std::fs::set_permissions(folder.path().join("punctual-rehearse"), PermissionsExt::from_mode(0o644)).unwrap();
    check(
        folder.path(),
        "/nowhere",
        &["tasks.yaml"],
        expect![[r#"
        exit code 2
        --- stderr
        [FOLDER]/punctual-rehearse can't be started: Permission denied (os error 13)
    "#]],
    );
}

#[test]
fn help_lists_it() {
    let run = punctual(&["--help"], "");
    assert!(run.stdout.lines().any(|line| line.trim_start().starts_with("rehearse ")), "{}", run.stdout);
}
