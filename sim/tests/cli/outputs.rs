//! What is printed.

use std::fs::OpenOptions;

use serde_json::Value;

use crate::{finished, folder, program, run, with_tasks};

#[test]
fn a_full_disk_is_no_success_and_is_said_once() {
    let folder = with_tasks();
    for arguments in [
        &["sweep", "--seeds", "2", "--profile", "calm"][..],
        &["replay", "1", "--history", "--times", "1"],
        &["fingerprints", "--seeds", "1"],
        &["bank", "--known", "--only", "fenceonresult"],
        &["rehearse", "tasks.yaml", "--hours", "1", "--faults", "none"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let run = finished(program(folder.path(), arguments).stdout(full).output().unwrap());
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stderr.matches("the output can't be written").count(), 1, "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn a_full_disk_hides_no_verdict() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let arguments = ["replay", "1", "--bank", "FenceOnResult", "--times", "1"];
    let run = finished(program(folder().path(), &arguments).stdout(full).output().unwrap());
    assert_eq!(run.code, 10, "{}", run.stderr);
}

#[test]
fn a_row_of_the_bank_can_be_swept_replayed_and_shrunk() {
    let folder = folder();
    let swept = run(folder.path(), &["sweep", "--from", "1", "--seeds", "2", "--bank", "fenceonresult", "--json"]);
    let json: Value = serde_json::from_str(&swept.stdout).expect("nothing but JSON");
    assert_eq!(swept.code, 10, "{}", swept.stderr);
    let failure = &json["failures"][0];
    let replay = failure["replay"].as_str().unwrap();
    assert!(replay.starts_with("cargo sim replay ") && replay.ends_with(" --bank FenceOnResult"), "{replay}");
    let seed = failure["seed"].to_string();
    let sound = run(folder.path(), &["replay", &seed, "--times", "1"]);
    assert_eq!(sound.code, 0, "{}", sound.stdout);
    let replayed = run(folder.path(), &["replay", &seed, "--bank", "FenceOnResult"]);
    assert!(replayed.code == 10 && replayed.stdout.contains("violated"), "{}", replayed.stdout);
    let shrunk = run(folder.path(), &["shrink", &seed, "--bank", "FenceOnResult", "--into", ".", "--budget", "60", "--json"]);
    let json: Value = serde_json::from_str(&shrunk.stdout).expect("nothing but JSON");
    let file = json["file"].as_str().expect("it was kept");
    let kept = std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert!(kept.contains("--bank FenceOnResult"), "it says how it was found");
    assert_eq!(run(folder.path(), &["replay", file, "--without", "FenceOnResult"]).code, 10);
    assert_eq!(run(folder.path(), &["replay", file]).code, 0);
    // Shrunk again, it is still known how it was found.
    let again = run(folder.path(), &["shrink", file, "--without", "FenceOnResult", "--into", ".", "--budget", "10"]);
    assert_eq!(again.code, 10, "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("--without FenceOnResult runs it again"), "{}", again.stdout);
    let kept_again: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join(file)).unwrap()).unwrap();
    assert_eq!(kept_again["found_with"], serde_json::from_str::<Value>(&kept).unwrap()["found_with"]);
}

#[test]
fn a_history_can_be_narrowed_down() {
    let folder = folder();
    let whole = run(folder.path(), &["replay", "1", "--times", "1", "--history"]);
    let part = run(folder.path(), &["replay", "1", "--times", "1", "--history", "--from", "10", "--to", "12"]);
    let numbers: Vec<&str> = part.stdout.lines().take(3).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(numbers, ["10", "11", "12"]);
    assert!(part.stdout.lines().nth(3).unwrap().starts_with("fingerprint ") && whole.stdout.len() > part.stdout.len());
    let id = whole.stdout.split("new ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an instance");
    let life = run(folder.path(), &["replay", "1", "--times", "1", "--history", "--instance", id]);
    let lines: Vec<&str> = life.stdout.lines().take_while(|line| !line.starts_with("fingerprint")).collect();
    assert!(lines.len() >= 2 && lines.len() < whole.stdout.lines().count() / 2, "{}", life.stdout);
}

#[test]
fn fingerprints_say_what_they_found() {
    let run = run(folder().path(), &["fingerprints", "--seeds", "1"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.ends_with("3 runs: equal alone, behind other runs and in another process\n"), "{}", run.stdout);
}

#[test]
fn a_soak_that_is_to_end_with_the_first_failure_does() {
    let arguments = ["soak", "--from", "1", "--minutes", "1", "--fail-fast", "--jobs", "2", "--bank", "FenceOnResult"];
    let run = run(folder().path(), &arguments);
    assert_eq!(run.code, 10, "{}", run.stderr);
    let last = run.stdout.lines().last().expect("a closing line");
    let seeds: u64 = last.split_whitespace().next().unwrap().parse().unwrap_or_else(|_| panic!("{last}"));
    assert!(last.contains(" seeds, ") && seeds < 200, "{last}");
}

#[test]
fn what_a_plan_calls_its_tasks_is_shown_and_not_obeyed() {
    let folder = folder();
    let made = run(folder.path(), &["replay", "1", "--times", "1", "--plan", "plan.json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut plan: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("plan.json")).unwrap()).unwrap();
    plan["tasks"][0]["document"]["name"] = "a\u{202e}b".into();
    plan["calls"] = serde_json::json!([]);
    std::fs::write(folder.path().join("plan.json"), plan.to_string()).unwrap();
    let history = run(folder.path(), &["replay", "plan.json", "--times", "1", "--history"]);
    assert!(!format!("{}{}", history.stdout, history.stderr).contains('\u{202e}'));
}
