//! Limits that tasks share, and fire times of the past.

use serde_json::json;

use crate::support::{Folder, eventually};

#[test]
fn tasks_of_a_group_run_one_after_the_other_and_say_so() {
    let folder = Folder::with(
        "
groups:
  printer: {max_running: 1}
defaults: {group: printer}
tasks:
  - {name: a, trigger: manual, command: 'while [ ! -e go ]; do sleep 0.05; done'}
  - {name: b, trigger: manual, command: 'echo b'}
",
    );
    let dev = folder.dev();
    assert_eq!(dev.cli(&["trigger", "a"]).code, Some(0));
    dev.instance_in("a", "running");
    let id = dev.cli(&["trigger", "b", "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned();
    let waits = dev.instance(&id);
    assert_eq!((&waits["state"], &waits["waits_for_group"]), (&json!("created"), &json!("printer")));
    assert!(dev.cli(&["instance", &id]).stdout.contains("a slot of the group printer"));
    folder.write("go", "");
    let ended = dev.instance_in("b", "succeeded");
    assert_eq!(ended["waits_for_group"], json!(null));
    dev.instance_in("a", "succeeded");
    dev.stop();
}

#[test]
fn each_value_of_a_key_has_its_own_limit() {
    let folder = Folder::with(
        "
tasks:
  - name: sync
    trigger: manual
    command: 'while [ ! -e go ]; do sleep 0.05; done'
    concurrency: {max_running: 1, when_full: discard, key: /customer/id}
",
    );
    let dev = folder.dev();
    let submit = |customer: u32| {
        let answer = dev.post("/api/v1/tasks/sync/trigger", None, &json!({ "payload": { "customer": { "id": customer } } }));
        answer.json()["instance"].clone()
    };
    assert_ne!(submit(7)["state"], "skipped");
    assert_ne!(submit(8)["state"], "skipped");
    let refused = submit(7);
    assert_eq!((&refused["state"], &refused["cause"]), (&json!("skipped"), &json!("limit_reached")));
    folder.write("go", "");
    dev.instance_in("sync", "succeeded");
    dev.stop();
}

#[test]
fn fire_times_of_the_past_are_made_up_for() {
    let folder = Folder::with(
        "
tasks:
  - {name: settle, trigger: {cron: '*/5 * 1 1 *'}, command: 'echo settled'}
  - {name: held, trigger: {cron: '*/5 * 1 1 *'}, command: 'while [ ! -e go ]; do sleep 0.05; done'}
  - {name: manual, trigger: manual, command: 'true'}
",
    );
    let dev = folder.dev();
    let range = ["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T01:00:00Z"];
    let backfill = |task: &str, rest: &[&str]| dev.cli(&[&["backfill", task][..], &range, rest].concat());
    let dry = backfill("settle", &["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    let lines: Vec<&str> = dry.stdout.lines().collect();
    assert_eq!((lines.len(), lines[0]), (13, "12 fire times, 0 more have instances"));
    assert_eq!((lines[1], lines[12]), ("2026-01-01T00:00:00Z", "2026-01-01T00:55:00Z"));
    assert!(dev.instances("settle").is_empty(), "a dry run makes nothing");

    let made = backfill("settle", &["--concurrency", "3", "--reason", "late feed", "--json"]).json();
    assert_eq!(made["backfill"]["total"], json!(12));
    let listed = || dev.cli(&["backfill", "list", "settle"]).stdout;
    eventually("its end", || listed().contains("done  12 of 12 done, 12 made").then_some(()));
    let all = dev.instances("settle");
    assert_eq!(all.iter().filter(|of| of["origin"] == "backfill" && of["state"] == "succeeded").count(), 12);
    let story = dev.instance(all.last().unwrap()["id"].as_str().unwrap());
    assert!(story["transitions"].to_string().contains("late feed"), "{story}");
    let again = backfill("settle", &[]);
    assert!(again.code == Some(2) && again.stderr.starts_with("PUN-360: "), "{}", again.stderr);
    assert!(backfill("settle", &["--again", "--dry-run"]).stdout.starts_with("12 fire times, 0 more"));

    let id = backfill("held", &["--order", "newest", "--json"]).json()["backfill"]["id"].as_str().unwrap().to_owned();
    let running = dev.instance_in("held", "running");
    assert_eq!(running["fire_time"], "2026-01-01T00:55:00Z");
    dev.post("/api/v1/tasks/held/backfills", None, &json!({ "from": range[1], "to": range[3] })).check_refusal(409, "PUN-362");
    assert_eq!(dev.cli(&["backfill", "cancel", &id]).code, Some(0));
    folder.write("go", "");
    dev.instance_in("held", "succeeded");
    assert_eq!(dev.instances("held").len(), 1);

    let backfills = |task: &str| format!("/api/v1/tasks/{task}/backfills");
    dev.post(&backfills("manual"), None, &json!({ "from": range[1], "to": range[3] })).check_refusal(400, "PUN-361");
    dev.post(&backfills("settle"), None, &json!({ "from": range[3], "to": range[1] })).check_refusal(400, "PUN-360");
    dev.post(&backfills("settle"), None, &json!({ "from": "yesterday", "to": range[1] })).check_refusal(400, "PUN-305");
    dev.post(&backfills("none"), None, &json!({ "from": range[1], "to": range[3] })).check_refusal(404, "PUN-303");
    dev.post("/api/v1/backfills/99999/cancel", None, &json!({})).check_refusal(404, "PUN-363");
    dev.stop();
}
