//! Arguments out of their limits are refused with 2, at once.

use crate::{folder, refused, run, with_tasks};

#[test]
fn nothing_to_do_is_no_success() {
    let folder = folder();
    for arguments in [
        &["sweep", "--seeds", "0"][..],
        &["sweep", "--jobs", "0"],
        &["soak", "--minutes", "0"],
        &["fingerprints", "--seeds", "0"],
        &["probes", "--seeds", "0"],
        &["bank", "--rounds", "0"],
        &["bank", "--only", ""],
        &["bank", "--only", "nosuch"],
        &["shrink", "1", "--budget", "0"],
        &["regressions", "."],
        &["regressions", "nowhere"],
    ] {
        let said = refused(folder.path(), arguments);
        assert!(!said.is_empty(), "{arguments:?}");
    }
}

#[test]
fn numbers_without_bounds_are_refused() {
    let folder = with_tasks();
    let most = u64::MAX.to_string();
    for arguments in [
        &["sweep", "--from", &most, "--seeds", "3"][..],
        &["sweep", "--seeds", &most],
        &["sweep", "--jobs", &most],
        &["soak", "--minutes", &most],
        &["fingerprints", "--from", &most, "--seeds", "2"],
        &["fingerprints", "--seeds", &most],
        &["bank", "--rounds", &most],
        &["rehearse", "tasks.yaml", "--workers", "1000"],
        &["rehearse", "tasks.yaml", "--schedulers", "100"],
        &["rehearse", "tasks.yaml", "--hours", &most],
        &["rehearse", "tasks.yaml", "--start", "2300-01-01T00:00:00Z"],
    ] {
        refused(folder.path(), arguments);
    }
    let said = refused(folder.path(), &["rehearse", "tasks.yaml", "--start", "1969-12-31T12:00:00Z"]);
    assert!(said.contains("1970-01-01T00:00:00Z or later"), "{said}");
    let said = refused(folder.path(), &["rehearse", "tasks.yaml", "--start", "nonsense"]);
    assert!(said.contains("such as 2026-10-24T12:00:00Z"), "{said}");
}

#[test]
fn the_last_seed_is_a_seed_like_others() {
    let run = run(folder().path(), &["sweep", "--from", &u64::MAX.to_string(), "--seeds", "1", "--profile", "calm"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("1 seeds, 0 violations"), "{}", run.stdout);
}

#[test]
fn names_that_nobody_has_are_refused_with_those_there_are() {
    let folder = folder();
    for (arguments, names) in [
        (&["shrink", "1", "--property", "nosuch"][..], "fire.never_early"),
        (&["replay", "1", "--without", "nosuch"], "FenceOnResult"),
        (&["replay", "1", "--bank", "nosuch"], "FenceOnResult"),
        (&["replay", "1", "--profile", "nosuch"], "lost-tail"),
        (&["replay", "1", "--history", "--instance", "nosuch"], "4-21"),
        (&["replay", "nosuch"], "No such file"),
        (&["replay", "."], "it is a folder"),
    ] {
        let said = refused(folder.path(), arguments);
        assert!(said.contains(names), "{arguments:?}: {said}");
    }
    refused(folder.path(), &["replay", "1", "--history", "--json"]);
}

#[test]
fn a_plan_that_no_world_can_carry_out_is_refused_with_the_place() {
    let folder = folder();
    let made = run(folder.path(), &["replay", "1", "--times", "1", "--plan", "plan.json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let plan: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("plan.json")).unwrap()).unwrap();
    let huge = 1_u64 << 32;
    for (pointer, value, place) in [
        ("/shape/schedulers", huge, "shape.schedulers"),
        ("/shape/workers", huge, "shape.workers"),
        ("/shape/slots", 1_000_000, "shape.slots"),
        ("/horizon_ms", u64::MAX, "horizon_ms"),
        ("/knobs/network_ms/1", huge, "knobs.network_ms"),
        ("/knobs/database_ms/1", huge, "knobs.database_ms"),
        ("/knobs/replica_lag_ms", huge, "knobs.replica_lag_ms"),
        ("/tasks/0/handler/takes_ms/1", u64::MAX, "takes_ms"),
    ] {
        let mut plan = plan.clone();
        *plan.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value.into();
        std::fs::write(folder.path().join("bad.json"), plan.to_string()).unwrap();
        let said = refused(folder.path(), &["replay", "bad.json"]);
        assert!(said.contains(place), "{pointer}: {said}");
    }
    let mut hostile = plan;
    hostile["tasks"][0]["handler"]["downstream"] = "\u{1b}[2J".into();
    std::fs::write(folder.path().join("bad.json"), hostile.to_string()).unwrap();
    assert!(refused(folder.path(), &["replay", "bad.json"]).contains("downstream"));
    std::fs::write(folder.path().join("bad.json"), format!("{{\"\\u001b[2J{}\": 1}}", "x".repeat(100_000))).unwrap();
    let said = refused(folder.path(), &["replay", "bad.json"]);
    assert!(!said.contains('\u{1b}') && said.len() < 10_000, "{} bytes", said.len());
}
