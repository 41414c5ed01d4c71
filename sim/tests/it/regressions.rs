//! Regressions are kept as they are, and what can't be read says why and where.

use std::path::{Path, PathBuf};

use punctual_sim::plan::{FaultKind, Plan, Selector};
use punctual_sim::regressions::{Regression, RegressionError, load_all};
use punctual_sim::swarm::{Profile, Swarm, swarm};
use serde_json::{Value, json};

fn regression(plan: Plan) -> Regression {
    Regression { property: "fire.no_duplicate".to_owned(), found_with: "0123abc: sweep --seed 1".to_owned(), plan }
}

/// The kept regressions.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

#[test]
fn the_kept_regressions_can_be_read() {
    load_all(&folder()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn plans_of_all_profiles_read_back_as_themselves() {
    for profile in Profile::ALL {
        for seed in (0..50).chain([u64::MAX]) {
            let before = regression(swarm(seed, &profile.swarm()));
            let after = Regression::parse(Path::new(&before.file_name()), &before.to_json()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(after, before);
            assert_eq!(after.to_json(), before.to_json());
        }
    }
}

#[test]
fn a_folder_is_read_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let saved: Vec<Regression> = [3, 20, 1].map(|seed| regression(swarm(seed, &Swarm::default()))).into();
    for regression in &saved {
        let path = regression.save(folder.path()).unwrap();
        assert_eq!(path.file_name().unwrap(), &*regression.file_name());
        assert_eq!(Regression::load(&path).unwrap(), *regression);
    }
    std::fs::write(folder.path().join("README.md"), "passed over").unwrap();
    let seeds: Vec<u64> = load_all(folder.path()).unwrap().iter().map(|regression| regression.plan.seed).collect();
    assert_eq!(seeds, [1, 20, 3]);
}

/// What is said of seed 1's file with a change.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let regression = regression(swarm(1, &Swarm { tasks: (3, 3), ..Profile::Calm.swarm() }));
    let mut json = serde_json::to_value(&regression).unwrap();
    change(&mut json);
    let text = serde_json::to_string_pretty(&json).unwrap();
    Regression::parse(Path::new("fire.no_duplicate-1.json"), &text).unwrap_err().to_string()
}

#[test]
fn a_text_of_another_shape_is_refused_with_its_line() {
    let said = |text: &str| Regression::parse(Path::new("a.json"), text).unwrap_err().to_string();
    assert_eq!(said(""), "a.json: EOF while parsing a value at line 1 column 0");
    assert!(said("{\n  \"property\": 3\n}").starts_with("a.json: invalid type: integer `3`, expected a string at line 2"));
    assert!(said("{\n  \"colour\": 3\n}").contains("unknown field `colour`, expected one of `property`, `found_with`, `plan` at line 2"));
    let text = regression(swarm(1, &Swarm::default())).to_json();
    assert!(said(&format!("{text}{{")).contains("trailing characters at line"));
    assert!(refusal(|json| json["plan"]["faults"] = json!([{"at_ms": 1, "lasts_ms": 1, "kind": "flod", "on": "world"}])).contains("flod"));
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_every_place() {
    let said = refusal(|json| {
        json["found_with"] = json!(" ");
        let plan = &mut json["plan"];
        plan["shape"]["workers"] = json!(0);
        plan["knobs"]["network_ms"] = json!([9, 3]);
        plan["horizon_ms"] = json!(1);
        plan["heal_at_ms"] = json!(10_000);
        let name = plan["tasks"][0]["document"]["name"].clone();
        plan["tasks"][0]["document"] = json!({"name": name, "trigger": {"cron": "61 * * * *"}, "handler": {"name": "noop"}});
        plan["tasks"][1]["document"] = json!({"name": name, "trigger": "manual", "handler": {"name": "noop"}, "enabled": true});
        plan["tasks"][2]["handler"]["takes_ms"] = json!([2, 1]);
        plan["tasks"][2]["handler"]["fails_per_mille"] = json!(1_001);
        plan["calls"] = json!([
            {"at_ms": 10_001, "what": {"trigger": {"task": 3, "delay_ms": null, "key": null}}},
            {"at_ms": 1, "what": {"edit": {"task": 0, "document": {"name": "other", "trigger": "manual", "handler": {"name": "noop"}}}}},
        ]);
        plan["faults"] = json!([
            {"at_ms": 9_000, "lasts_ms": 1_001, "kind": "crash", "on": "world"},
            {"at_ms": 0, "lasts_ms": 0, "kind": {"lose": {"per_mille": 2_000}}, "on": {"worker": 0}},
            {"at_ms": 0, "lasts_ms": 0, "kind": {"retry_storm": {"downstream": 7}}, "on": "world"},
            {"at_ms": 0, "lasts_ms": 0, "kind": {"flood": {"task": 3, "count": 1}}, "on": "everybody"},
            {"at_ms": 0, "lasts_ms": 0, "kind": {"clock_drift": {"per_mille": -1_000}}, "on": "everybody"},
        ]);
    });
    expect_test::expect![[r#"
        fire.no_duplicate-1.json:
          found_with: say which commit and command found it
          plan.shape.workers: there must be at least 1
          plan.knobs.network_ms: the shortest, 9, is longer than the longest, 3
          plan.horizon_ms: it ends before it heals, at 10000
          plan.tasks[0].document.trigger.cron: `61` in the minute field is out of range: 0 to 59
          plan.tasks[1].document: it is not in its canonical form, {"handler":{"name":"noop"},"name":"cron-0","trigger":"manual"}
          plan.tasks[1].document.name: tasks[0] has the same name, "cron-0"
          plan.tasks[2].handler.takes_ms: the shortest, 2, is longer than the longest, 1
          plan.tasks[2].handler.fails_per_mille: 1001 of 1000 are too many
          plan.calls[0].at_ms: no calls are made after the world has healed, at 10000
          plan.calls[0].what.trigger.task: there are 3 tasks, and this is number 3, counted from 0
          plan.calls[1].what.edit.document.name: the task's name is "cron-0"
          plan.faults[0].lasts_ms: it is not over when the world heals, at 10000
          plan.faults[0].on: it is for nodes
          plan.faults[1].kind: 2000 of 1000 are too many
          plan.faults[2].kind: handlers call 0 services, and this is for number 7, counted from 0
          plan.faults[3].on: it is for nobody in particular: `world`
          plan.faults[3].kind: there are 3 tasks, and this is number 3, counted from 0
          plan.faults[4].kind: the clock would run backwards"#]]
    .assert_eq(&said);
}

#[test]
fn a_plan_that_asks_for_too_much_is_refused_with_every_place() {
    let said = refusal(|json| {
        let plan = &mut json["plan"];
        plan["shape"] = json!({"schedulers": 100, "workers": 1_000, "slots": 10_001, "partitions": 65_535});
        plan["knobs"]["network_ms"] = json!([1, 1_001]);
        plan["knobs"]["database_ms"] = json!([1, 1_001]);
        plan["knobs"]["replica_lag_ms"] = json!(60_001);
        plan["starts_at"] = json!(-1);
        plan["heal_at_ms"] = json!(10_000);
        plan["horizon_ms"] = json!(u64::MAX);
        plan["tasks"][0]["handler"]["takes_ms"] = json!([1, u64::MAX]);
        plan["tasks"][0]["handler"]["obeys_after_ms"] = json!(u64::MAX);
        plan["tasks"][0]["handler"]["downstream"] = json!("");
        plan["tasks"][1]["handler"]["downstream"] = json!("x".repeat(1_000_000));
        plan["calls"] = json!([{"at_ms": 1, "what": {"trigger": {"task": 0, "delay_ms": u64::MAX, "key": null}}}]);
        let kinds = [
            json!({"clock_drift": {"per_mille": 1_001}}),
            json!({"clock_step": {"by": i64::MIN}}),
            json!({"delay": {"ms": 3_600_001}}),
            json!({"handlers_slow": {"times": 1_001}}),
        ];
        let mut faults: Vec<Value> = kinds.iter().map(|kind| json!({"at_ms": 0, "lasts_ms": 0, "kind": kind, "on": "everybody"})).collect();
        for kind in [json!({"flood": {"task": 0, "count": 100_001}}), json!({"database_slow": {"ms": 3_600_001}})] {
            faults.push(json!({"at_ms": 0, "lasts_ms": 0, "kind": kind, "on": "world"}));
        }
        plan["faults"] = json!(faults);
    });
    expect_test::expect![[r#"
        fire.no_duplicate-1.json:
          plan.shape.schedulers: 100 is too much: 99 at most
          plan.shape.workers: 1000 is too much: 999 at most
          plan.shape.slots: 10001 is too much: 10000 at most
          plan.shape.partitions: 65535 is too much: 16384 at most
          plan.knobs.network_ms: 1001 is too much: 1000 at most
          plan.knobs.database_ms: 1001 is too much: 1000 at most
          plan.knobs.replica_lag_ms: 60001 is too much: 60000 at most
          plan.horizon_ms: 18446744073709551615 is too much: 34300800000 at most
          plan.starts_at: it must be 0 to 7258118400000: 1970 to 2200
          plan.tasks[0].handler.takes_ms: 18446744073709551615 is too much: 3162240000000 at most
          plan.tasks[0].handler.obeys_after_ms: 18446744073709551615 is too much: 3162240000000 at most
          plan.tasks[0].handler.downstream: a name has 1 to 128 characters, without control characters
          plan.tasks[1].handler.downstream: a name has 1 to 128 characters, without control characters
          plan.calls[0].what.trigger.delay_ms: 18446744073709551615 is too much: 3162240000000 at most
          plan.faults[0].kind: 1001 is too much: 1000 at most
          plan.faults[1].kind: 9223372036854775808 is too much: 31622400000 at most
          plan.faults[2].kind: 3600001 is too much: 3600000 at most
          plan.faults[3].kind: 1001 is too much: 1000 at most
          plan.faults[4].kind: 100001 is too much: 100000 at most
          plan.faults[5].kind: 3600001 is too much: 3600000 at most"#]]
    .assert_eq(&said);
}

#[test]
fn a_file_is_called_after_property_and_seed() {
    let said = refusal(|json| json["plan"]["seed"] = json!(2));
    assert_eq!(said, "fire.no_duplicate-1.json:\n  property: a file with this property and this seed is called fire.no_duplicate-2.json");
    for name in ["", "../x", "Fire", ".x", "a b"] {
        assert!(refusal(|json| json["property"] = json!(name)).contains("is no name of a property"), "{name}");
    }
}

#[test]
fn what_nobody_could_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = swarm(1, &Swarm::default());
    plan.shape.slots = 0;
    assert!(matches!(regression(plan).save(folder.path()), Err(RegressionError::Wrong { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let missing = folder.path().join("nowhere");
    assert!(matches!(load_all(&missing), Err(RegressionError::Read { .. })));
    assert!(matches!(regression(swarm(1, &Swarm::default())).save(&missing), Err(RegressionError::Write { .. })));
}

#[test]
fn drawn_plans_have_no_problems() {
    for profile in Profile::ALL {
        for seed in 0..100 {
            assert_eq!(punctual_sim::problems::problems(&swarm(seed, &profile.swarm())), [], "{profile:?} {seed}");
        }
    }
    let of_the_world = FaultKind::DatabaseDown.is_of_the_world();
    assert_eq!((of_the_world, FaultKind::Pause.is_of_the_world()), (true, false));
    assert_eq!(serde_json::to_value(Selector::World).unwrap(), "world");
}
