//! What operators do: pause and resume, settle dead letters, change what is not due, kill, skip; and what the audit says of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually, request};

const FILE: &str = r#"
tasks:
  - {name: tick, group: clocks, trigger: {fixed_rate: 200ms}, command: "true"}
  - {name: hand, trigger: manual, command: "true"}
  - {name: bad, trigger: manual, retry: {max_attempts: 2, first: 20ms, cap: 20ms}, command: "false"}
  - {name: long, trigger: manual, timeout: {grace: 60s}, command: "trap '' TERM; sleep 60 & wait; wait"}
  - name: order
    trigger: manual
    payload_schema: {type: object, required: [id], properties: {id: {type: integer}}}
    command: cat
"#;

fn actions(dev: &Dev, arguments: &str) -> Vec<String> {
    let page = dev.get(&format!("/api/v1/audit{arguments}"));
    page["audit"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap().to_owned()).collect()
}

fn call(dev: &Dev, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let headers = [("content-type", "application/json"), ("user-agent", "e2e/1")];
    let answer = request(dev.address(), method, path, &headers, body.to_string().as_bytes());
    (answer.status, answer.json())
}

#[test]
fn a_pause_holds_over_a_restart_and_says_who_and_why() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    dev.instance_in("tick", "succeeded");
    let paused = dev.cli(&["pause", "--group", "clocks", "--why", "a leap second"]);
    let since = Instant::now();
    assert_eq!((paused.code, paused.stdout.trim()), (Some(0), "the group clocks is paused"), "{}", paused.stderr);
    let task = dev.get("/api/v1/tasks/tick");
    assert_eq!((&task["paused"][0]["group"], &task["paused"][0]["reason"]), (&json!("clocks"), &json!("a leap second")));
    assert_eq!((&task["next_fire"], task["paused"][0]["by"].is_string()), (&Value::Null, true));
    assert!(dev.cli(&["tasks", "tick"]).stdout.contains("paused     group clocks, since "));
    assert!(dev.cli(&["status"]).stdout.contains("paused     group clocks, since "));
    dev.stop();
    let dev = folder.dev();
    let before = dev.instances("tick").len();
    let again = dev.cli(&["pause", "--group", "clocks"]);
    assert_eq!((again.code, again.stdout.trim()), (Some(0), "the group clocks was paused before"));
    assert_eq!(dev.instances("tick").len(), before);
    assert_eq!(dev.cli(&["pause", "hand"]).code, Some(0));
    let triggered = dev.post("/api/v1/tasks/hand/trigger", None, &json!({})).json();
    assert_eq!(triggered["instance"]["state"], "created", "it waits for the end of the pause");
    assert_eq!(dev.cli(&["resume", "hand"]).code, Some(0));
    dev.instance_in("hand", "succeeded");
    eventually("fire times have passed", || (since.elapsed() > Duration::from_millis(500)).then_some(()));
    assert_eq!(dev.cli(&["resume", "--group", "clocks"]).code, Some(0));
    eventually("it ticks again", || (dev.instances("tick").len() > before).then_some(()));
    let passed = dev.get("/api/v1/tasks/tick/occurrences");
    let outcomes: Vec<_> = passed["occurrences"].as_array().unwrap().iter().map(|passed| passed["outcome"].clone()).collect();
    assert!(outcomes.contains(&json!("paused")), "{passed}");
    let unknown = dev.cli(&["pause", "--group", "none"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.starts_with("PUN-317: no task has the group"), "{}", unknown.stderr);
    assert_eq!(dev.cli(&["pause", "--all"]).code, Some(0));
    assert_eq!(dev.get("/api/v1/pauses")["pauses"][0]["all"], true);
    assert_eq!(dev.cli(&["resume", "--all"]).code, Some(0));
    assert_eq!(actions(&dev, "?task=hand"), ["resume", "trigger", "pause", "create"]);
    dev.stop();
}

#[test]
fn a_drained_worker_is_given_nothing_over_a_restart() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    dev.instance_in("tick", "succeeded");
    let worker = dev.get("/api/v1/workers")["workers"][0]["id"].as_str().unwrap().to_owned();
    let drained = dev.cli(&["drain", &worker, "--why", "a new disk"]);
    let expected = format!("{worker} is drained; what it runs goes on, see `punctual status`");
    assert_eq!((drained.code, drained.stdout.trim()), (Some(0), &*expected), "{}", drained.stderr);
    assert_eq!(dev.cli(&["drain", &worker]).stdout.trim(), format!("{worker} was drained before"));
    let status = dev.cli(&["status"]).stdout;
    assert!(status.contains(&format!("drained    {worker}, since ")) && status.contains(": a new disk"), "{status}");
    let listed = dev.cli(&["get", "pauses"]).stdout;
    assert!(listed.contains(&format!("worker {worker}")) && !listed.contains("everything"), "{listed}");
    let workers = dev.cli(&["get", "workers"]).stdout;
    assert!(workers.contains("drained"), "{workers}");
    let unknown = dev.cli(&["drain", "nobody"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.starts_with("PUN-470: no worker"), "{}", unknown.stderr);
    assert_eq!(dev.cli(&["undrain", "nobody"]).stdout.trim(), "nobody was not drained before");
    dev.stop();
    let dev = folder.dev();
    assert_eq!(dev.get("/api/v1/workers")["workers"][0]["drained"], true);
    assert_eq!(dev.post("/api/v1/tasks/hand/trigger", None, &json!({})).json()["instance"]["state"], "created");
    eventually("what waits says why", || (dev.get("/api/v1/cluster")["waiting"][0]["nobody"] == "draining").then_some(()));
    assert_eq!(dev.cli(&["undrain", &worker]).stdout.trim(), format!("{worker} is not drained"));
    dev.instance_in("hand", "succeeded");
    let audit = dev.get("/api/v1/audit?limit=1000");
    let told = audit["audit"].as_array().unwrap().iter().filter(|row| row["subject"] == *worker);
    assert_eq!(told.map(|row| row["action"].clone()).collect::<Vec<_>>(), ["undrain", "drain"]);
    dev.stop();
}

/// C363, C364: listed and replayable, once however often that is asked.
#[test]
fn dead_letters_are_listed_replayed_and_discarded() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    (0..3).for_each(|_| drop(dev.post("/api/v1/tasks/bad/trigger", None, &json!({}))));
    let letters = |task: &str| {
        let page = dev.get(&format!("/api/v1/dead-letters?task={task}"));
        page["dead_letters"].as_array().unwrap().iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let ids = eventually("three dead letters", || Some(letters("bad")).filter(|letters| letters.len() == 3));
    assert!(dev.cli(&["dead-letters", "list", "--task", "bad"]).stdout.contains("attempts_exhausted"));
    let replayed = dev.cli(&["dead-letters", "replay", &ids[0], &ids[0], "--json"]).json();
    assert_eq!((&replayed["replayed"], &replayed["repeated"]), (&json!([ids[0]]), &json!([ids[0]])));
    // The new run fails as the first did, and is a dead letter of its own.
    let after = eventually("the new run", || Some(letters("bad")).filter(|letters| letters.len() == 3 && !letters.contains(&ids[0])));
    assert!(after.contains(&ids[1]) && after.contains(&ids[2]));
    assert_eq!(dev.cli(&["dead-letters", "discard", &ids[1]]).code, Some(2), "a reason is asked for");
    let discarded = dev.cli(&["dead-letters", "discard", &ids[1], "--reason", "known"]);
    assert_eq!((discarded.code, discarded.stdout.trim()), (Some(0), "1 discarded"));
    let again = dev.cli(&["dead-letters", "discard", &ids[1], "--reason", "known"]);
    assert!(again.stdout.contains("0 discarded") && again.stdout.contains("PUN-345"), "{}", again.stdout);
    let (status, refused) = call(&dev, "POST", "/api/v1/dead-letters/discard", &json!({ "instances": [ids[2]] }));
    assert_eq!((status, &refused["code"]), (400, &json!("PUN-305")));
    let (_, audited) = call(&dev, "GET", &format!("/api/v1/audit?instance={}", ids[1]), &Value::Null);
    assert_eq!((&audited["audit"][0]["action"], &audited["audit"][0]["reason"]), (&json!("discard"), &json!("known")));
    let all = dev.cli(&["dead-letters", "discard", "--task", "bad", "--why", "all of them"]);
    assert_eq!((all.stdout.trim(), letters("bad")), ("2 discarded", Vec::new()));
    dev.stop();
}

#[test]
fn a_trigger_that_is_not_due_is_put_off_and_cancelled_by_its_key() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    assert_eq!(dev.cli(&["trigger", "hand", "--key", "k", "--delay", "1h"]).code, Some(0));
    let put_off = dev.cli(&["trigger", "hand", "--key", "k", "--reschedule", "2h", "--json"]).json();
    assert_eq!((&put_off["rescheduled"], &put_off["instance"]["cause"]), (&json!(true), &json!("rescheduled")));
    let cancelled = dev.cli(&["cancel", "hand", "--key", "k", "--why", "not needed", "--json"]).json();
    assert_eq!((&cancelled["cancelled"], &cancelled["instance"]["state"]), (&json!(true), &json!("cancelled")));
    let path = "/api/v1/tasks/hand/triggers/k";
    let (status, over) = call(&dev, "DELETE", path, &json!({}));
    assert_eq!((status, &over["cancelled"]), (409, &json!(false)));
    let (status, unknown) = call(&dev, "DELETE", "/api/v1/tasks/hand/triggers/other", &json!({}));
    assert_eq!((status, &unknown["code"]), (404, &json!("PUN-318")));
    for body in [
        json!({}),
        json!({ "delay_ms": u64::MAX }),
        json!({ "delay_ms": 1, "at": "2030-01-01T00:00:00Z" }),
        json!({ "at": "2001-01-01T00:00:00Z" }),
    ] {
        let (status, refused) = call(&dev, "PATCH", path, &body);
        assert_eq!((status, &refused["code"]), (400, &json!("PUN-305")), "{body}");
    }
    assert_eq!(actions(&dev, "?task=hand")[..3], ["cancel_trigger", "reschedule", "trigger"]);
    let (_, audited) = call(&dev, "GET", "/api/v1/audit?limit=1", &Value::Null);
    assert!(audited["audit"][0]["from"].as_str().is_some_and(|from| from.starts_with("punctual-cli/")), "{audited}");
    dev.stop();
}

#[test]
fn a_kill_is_at_once_and_a_skip_is_of_what_has_not_begun() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    dev.post("/api/v1/tasks/long/trigger", None, &json!({}));
    let running = dev.instance_in("long", "running");
    let id = running["id"].as_str().unwrap();
    dev.post("/api/v1/tasks/long/trigger", None, &json!({}));
    let waiting = dev.instance_in("long", "waiting");
    let skipped = dev.cli(&["skip", waiting["id"].as_str().unwrap(), "--why", "one is enough"]);
    assert_eq!(skipped.code, Some(0), "{}", skipped.stderr);
    assert_eq!(dev.instance(waiting["id"].as_str().unwrap())["cause"], "skip_requested");
    let refused = dev.cli(&["skip", id]);
    assert!(refused.stderr.starts_with("PUN-319: "), "{}", refused.stderr);
    assert_eq!(dev.cli(&["kill", id]).code, Some(0));
    let ended = eventually("it is killed", || Some(dev.instance(id)).filter(|instance| instance["state"] == "cancelled"));
    assert_eq!(ended["cause"], "kill_requested");
    dev.stop();
}

#[test]
fn a_payload_is_what_its_schema_says_and_of_its_version() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let trigger = |body: Value| call(&dev, "POST", "/api/v1/tasks/order/trigger", &body);
    assert_eq!(trigger(json!({ "payload": { "id": 7 }, "task_version": 1 })).0, 202);
    let (status, refused) = trigger(json!({ "payload": { "id": "seven" } }));
    assert_eq!((status, &refused["code"]), (422, &json!("PUN-342")));
    assert!(refused["detail"].as_str().unwrap().contains("/id: "), "{refused}");
    assert_eq!(trigger(json!({})).1["code"], "PUN-342");
    assert_eq!(trigger(json!({ "payload": { "id": 7 }, "task_version": 2 })).1["code"], "PUN-444");
    folder.write("tasks.yaml", &FILE.replace("required: [id]", "required: [id, to]"));
    let applied = dev.cli(&["apply", "--source", "dev", "--take-over", folder.path("tasks.yaml").to_str().unwrap()]);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    let (status, older) = trigger(json!({ "payload": { "id": 7 }, "task_version": 1 }));
    assert_eq!((status, &older["code"]), (409, &json!("PUN-343")), "{older}");
    assert!(older["detail"].as_str().unwrap().ends_with("required now: to"), "{older}");
    folder.write("bad.yaml", "tasks:\n  - name: x\n    trigger: manual\n    payload_schema: {type: whole}\n    command: x\n");
    let refused = dev.cli(&["apply", folder.path("bad.yaml").to_str().unwrap()]);
    assert!(refused.stderr.contains("PUN-341") && refused.stderr.contains(":4:"), "{}", refused.stderr);
    dev.stop();
}
