//! What becomes of files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{folder, refused, run, with_tasks};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_rehearsal_leaves_its_files_and_nothing_else() {
    let folder = with_tasks();
    let arguments = ["rehearse", "tasks.yaml", "--hours", "1", "--faults", "none", "--html", "page.html", "--plan", "plan.json"];
    let first = run(folder.path(), &arguments);
    assert_eq!(first.code, 0, "{}{}", first.stdout, first.stderr);
    assert_eq!(names(folder.path()), ["page.html", "plan.json", "tasks.yaml"]);
    assert!(std::fs::read_to_string(folder.path().join("page.html")).unwrap().ends_with("</html>"));
    let again = run(folder.path(), &["replay", "plan.json", "--times", "1"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
}

#[test]
fn no_file_is_written_over_what_is_read() {
    let folder = with_tasks();
    let before = std::fs::read_to_string(folder.path().join("tasks.yaml")).unwrap();
    std::os::unix::fs::symlink("tasks.yaml", folder.path().join("link.yaml")).unwrap();
    std::fs::hard_link(folder.path().join("tasks.yaml"), folder.path().join("hard.yaml")).unwrap();
    for flag in ["--plan", "--html"] {
        for name in ["tasks.yaml", "./tasks.yaml", "link.yaml", "hard.yaml"] {
            let said = refused(folder.path(), &["rehearse", "tasks.yaml", flag, name]);
            assert!(said.contains("the task file itself"), "{flag} {name}: {said}");
        }
    }
    let said = refused(folder.path(), &["rehearse", "tasks.yaml", "--html", "new", "--plan", "./new"]);
    assert!(said.contains("the same file"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("tasks.yaml")).unwrap(), before);
    assert_eq!(names(folder.path()), ["hard.yaml", "link.yaml", "tasks.yaml"]);
}

#[test]
fn places_that_can_not_be_written_are_refused_before_the_run() {
    let folder = with_tasks();
    for (flag, place) in [("--html", "nowhere/x.html"), ("--plan", "nowhere/x.json"), ("--html", "."), ("--html", "-")] {
        let said = refused(folder.path(), &["rehearse", "tasks.yaml", flag, place]);
        assert!(said.contains(flag), "{said}");
    }
    let said = refused(folder.path(), &["shrink", "1", "--bank", "FenceOnResult", "--into", "nowhere"]);
    assert!(said.contains("nowhere") && said.contains("--into"), "{said}");
    assert!(refused(folder.path(), &["shrink", "1"]).contains("sim/regressions"));
    assert!(refused(folder.path(), &["shrink", "1", "--bank", "FenceOnResult"]).contains("--into"));
}

#[test]
fn a_page_that_can_not_be_written_costs_neither_the_report_nor_the_old_page() {
    let folder = with_tasks();
    let run = run(folder.path(), &["rehearse", "tasks.yaml", "--hours", "1", "--faults", "none", "--html", "/dev/full"]);
    assert_eq!(run.code, 2);
    assert!(run.stdout.contains("rehearsed for 1 hour"), "{}", run.stdout);
    assert!(run.stderr.contains("/dev/full can't be written"), "{}", run.stderr);
}

#[test]
fn a_file_keeps_what_it_was_until_the_new_one_is_whole() {
    let folder = folder();
    let path = folder.path().join("page.html");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let target = punctual_sim::files::Target::new(&path).unwrap();
    target.write("new").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(folder.path()), ["page.html"]);
}

#[test]
fn what_is_no_ordinary_file_is_not_read() {
    let folder = folder();
    let status = Command::new("mkfifo").arg(folder.path().join("pipe.json")).status().unwrap();
    assert!(status.success());
    assert!(refused(folder.path(), &["rehearse", "pipe.json"]).contains("no ordinary file"));
    assert!(refused(folder.path(), &["replay", "pipe.json"]).contains("no ordinary file"));
    let run = run(folder.path(), &["regressions", "."]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("no ordinary file") && run.stdout.contains("0 regressions"), "{}{}", run.stdout, run.stderr);
}

#[test]
fn one_file_that_can_not_be_read_keeps_nobody_from_the_others() {
    let folder = folder();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions/fire.never_early-8312.json");
    std::fs::copy(kept, folder.path().join("fire.never_early-8312.json")).unwrap();
    std::fs::write(folder.path().join("bare.json"), "{}").unwrap();
    let run = run(folder.path(), &["regressions", "."]);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("bare.json"), "{}", run.stderr);
    assert!(run.stdout.contains("1 regressions, 0 violations, 1 files that can't be read"), "{}", run.stdout);
}
