//! Why something ran or did not, as the CLI says it of a real process.

use serde_json::json;

use crate::support::{Folder, eventually};

const FILE: &str = r#"
tasks:
  - {name: one, trigger: manual, command: "until test -e go; do sleep 0.05; done"}
  - {name: flaky, trigger: manual, retry: {max_attempts: 2, first: 300ms, cap: 300ms}, command: "echo no; exit 3"}
  - {name: gpu, trigger: manual, routing: {tags: {gpu: a100}}, command: "true"}
  - {name: nightly, trigger: {cron: "0 2 * * *", timezone: Europe/Berlin}, command: "true"}
  - {name: off, enabled: false, trigger: {cron: "0 2 * * *"}, command: "true"}
  - {name: tick, trigger: {fixed_rate: 300ms}, command: "true"}
"#;

#[test]
fn an_instance_says_what_it_waited_for_and_waits_for() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let trigger = |task: &str| {
        let answer = dev.post(&format!("/api/v1/tasks/{task}/trigger"), None, &json!({ "by": "ann", "reason": "it rained" })).json();
        answer["instance"]["id"].as_str().unwrap().to_owned()
    };
    let explain = |id: &str| {
        let run = dev.cli(&["explain", id]);
        assert_eq!((run.code, &*run.stderr), (Some(0), ""));
        run.stdout
    };
    let (first, second) = (trigger("one"), trigger("one"));
    dev.instance_in("one", "running");
    let told = explain(&second);
    assert!(told.contains("for a slot of `max_running: 1`; in progress: ") && told.contains(&first), "{told}");
    assert!(explain(&first).contains("Attempt 1 has run on worker local for "), "{}", explain(&first));
    let since = std::time::Instant::now();
    eventually("it has waited", || (since.elapsed() > std::time::Duration::from_millis(300)).then_some(()));
    folder.write("go", "");
    eventually("the second one is done", || (dev.instance(&second)["state"] == "succeeded").then_some(()));
    let told = explain(&second);
    assert!(told.starts_with(&format!("{second}  one  succeeded\nIt succeeded, ")) && told.contains(" waiting for a slot"), "{told}");
    assert!(told.contains("It was triggered by ann. The task was at its limit") && told.contains("waited "), "{told}");

    let flaky = trigger("flaky");
    eventually("it has failed", || (dev.instance(&flaky)["state"] == "dead_lettered").then_some(()));
    let told = explain(&flaky);
    assert!(told.contains("Attempt 2 failed with code 3: ") && told.contains("no attempt was left (`max_attempts: 2`)"), "{told}");
    let answer = dev.cli(&["explain", &flaky, "--json"]).json();
    let backoff = answer["times"].as_array().unwrap().iter().find(|time| time["what"] == "backoff").expect("a wait between attempts");
    assert!(backoff["ms"].as_u64().unwrap() > 0, "{answer}");

    let gpu = trigger("gpu");
    eventually("nobody has the tag", || {
        explain(&gpu)
            .contains("no worker that knows the handler has the tags (it asks for handler \"command\", tag \"gpu=a100\")")
            .then_some(())
    });
    assert_eq!(dev.cli(&["pause", "gpu", "--reason", "no cards"]).code, Some(0));
    eventually("it is held", || explain(&gpu).contains("It is held by a pause: the task \"gpu\" has been paused since ").then_some(()));
    assert!(explain(&gpu).contains(", because: no cards"), "{}", explain(&gpu));
    let none = dev.cli(&["explain", "1-999999"]);
    assert_eq!((none.code, none.stderr.starts_with("PUN-304")), (Some(1), true), "{}", none.stderr);
    dev.stop();
}

#[test]
fn a_time_of_a_task_says_what_became_of_it() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let explain = |task: &str, at: &str| {
        let run = dev.cli(&["explain", task, "--at", at, "--json"]);
        assert_eq!((run.code, &*run.stderr), (Some(0), ""));
        run.json()
    };
    let tick = dev.instance_in("tick", "succeeded");
    let fired = explain("tick", tick["fire_time"].as_str().unwrap());
    assert_eq!((&fired["verdict"], &fired["instances"]), (&json!("fired"), &json!([tick["id"]])), "{fired}");
    // In the task's own zone, where no other is said.
    let ahead = explain("nightly", "2033-06-30T02:00");
    assert_eq!((&ahead["verdict"], &ahead["fire_time"]), (&json!("ahead"), &json!("2033-06-30T00:00:00Z")), "{ahead}");
    let never = explain("nightly", "2033-06-30T02:00:00Z");
    assert_eq!((&never["verdict"], &never["before"]), (&json!("not_a_fire_time"), &json!("2033-06-30T00:00:00Z")), "{never}");
    assert_eq!(explain("nightly", "2001-01-01T02:00")["verdict"], "before_the_task");
    assert_eq!(explain("off", "2033-06-30T02:00")["verdict"], "disabled");
    assert_eq!(explain("gpu", "2033-06-30T02:00")["verdict"], "by_hand_only");
    // What passes in a pause is on record when that ends.
    assert_eq!(dev.cli(&["pause", "tick"]).code, Some(0));
    let before = dev.instances("tick").len();
    let since = std::time::Instant::now();
    eventually("fire times have passed", || (since.elapsed() > std::time::Duration::from_secs(2)).then_some(()));
    assert_eq!(dev.cli(&["resume", "tick"]).code, Some(0));
    eventually("it ticks again", || (dev.instances("tick").len() > before).then_some(()));
    let passed = eventually("it is on record", || {
        let occurrences = dev.get("/api/v1/tasks/tick/occurrences");
        occurrences["occurrences"].as_array().unwrap().iter().find(|passed| passed["outcome"] == "paused").cloned()
    });
    let explained = explain("tick", passed["first"].as_str().unwrap());
    assert_eq!(explained["verdict"], "paused", "{explained}");
    assert!(explained["says"][0].as_str().unwrap().ends_with("passed while the task was paused. Nothing is made up for after a pause."));
    let people = dev.cli(&["explain", "nightly", "--at", "2033-06-30T02:00"]);
    assert!(people.stdout.starts_with("nightly at 2033-06-30 ") && people.stdout.contains(": ahead\n"), "{}", people.stdout);
    for (arguments, code, says) in [
        (&["explain", "nightly"][..], 2, "of a task say the time, too"),
        (&["explain", "nightly", "--at", "soon"], 2, "PUN-305: at: \"soon\" is not a time"),
        (&["explain", "none", "--at", "2033-06-30T02:00"], 1, "PUN-303"),
    ] {
        let refused = dev.cli(arguments);
        assert_eq!((refused.code, refused.stderr.contains(says)), (Some(code), true), "{}", refused.stderr);
    }
    dev.stop();
}

const HELD: &str = r#"
groups:
  g: {max_running: 1}
tasks:
  - {name: ga, group: g, trigger: manual, command: "until test -e go; do sleep 0.05; done"}
  - {name: gb, group: g, trigger: manual, command: "true"}
  - {name: held, trigger: manual, command: "true"}
  - {name: reminder, trigger: {delay: 3s}, command: "true"}
  - {name: later, trigger: {delay: 1h}, command: "true"}
  - {name: stopped, enabled: false, trigger: {fixed_rate: 10s}, command: "true"}
  - name: flow
    trigger: manual
    nodes:
      - {name: load, command: "exit 3"}
      - {name: send, after: load, command: "true"}
"#;

/// What held something is told while it does and afterwards, and nothing else is.
#[test]
fn what_held_it_is_told_as_far_as_it_is_known() {
    let folder = Folder::with(HELD);
    let dev = folder.dev();
    let trigger = |task: &str| {
        let answer = dev.post(&format!("/api/v1/tasks/{task}/trigger"), None, &json!({})).json();
        answer["instance"]["id"].as_str().unwrap().to_owned()
    };
    let explain = |id: &str| dev.cli(&["explain", id]).stdout;
    let at = |task: &str, at: &str| dev.cli(&["explain", task, "--at", at, "--json"]).json();
    assert_eq!(dev.cli(&["pause", "reminder"]).code, Some(0));
    assert_eq!(dev.cli(&["pause", "held"]).code, Some(0));
    trigger("ga");
    dev.instance_in("ga", "running");
    let (gb, held) = (trigger("gb"), trigger("held"));
    eventually("it waits for the group", || explain(&gb).contains(" for a slot of the group \"g\".\n").then_some(()));
    let told = explain(&held);
    assert!(told.contains("It is held by a pause: ") && told.contains("It has been ready for ") && !told.contains("worker"), "{told}");
    let since = std::time::Instant::now();
    eventually("the delay is over", || (since.elapsed() > std::time::Duration::from_millis(3_200)).then_some(()));
    folder.write("go", "");
    for task in ["held", "reminder"] {
        assert_eq!(dev.cli(&["resume", task]).code, Some(0));
    }
    for id in [&gb, &held] {
        eventually("it is done", || (dev.instance(id)["state"] == "succeeded").then_some(()));
    }
    let told = dev.cli(&["explain", &gb, "--json"]).json().to_string();
    let possible = "no worker was free for it, or no scheduler ran";
    assert!(told.contains("the limit of the group") && !told.contains(possible) && told.contains("records do not keep which"), "{told}");
    let told = dev.cli(&["explain", &held, "--json"]).json()["summary"].to_string();
    assert!(told.contains("A pause of the task") && told.contains(" held it for ") && told.contains(" lifted it at "), "{told}");

    let passed = eventually("it has passed", || {
        let occurrences = dev.get("/api/v1/tasks/reminder/occurrences");
        occurrences["occurrences"].as_array().unwrap().first().cloned()
    });
    let first = passed["first"].as_str().unwrap();
    // To the millisecond, and to the second.
    for asked in [first.to_owned(), format!("{}Z", &first[..19])] {
        let told = at("reminder", &asked);
        assert_eq!((&told["verdict"], &told["fire_time"]), (&json!("paused"), &json!(first)), "{told}");
    }
    let next = dev.get("/api/v1/tasks/later")["next_fire"].as_str().unwrap().to_owned();
    let told = at("later", &next);
    assert_eq!((&told["verdict"], &told["fire_time"]), (&json!("ahead"), &json!(next)), "{told}");
    assert_eq!(at("stopped", &next)["verdict"], "disabled");

    let flow = trigger("flow");
    eventually("it has failed", || (dev.instance(&flow)["state"] == "failed").then_some(()));
    let nodes = dev.instance(&flow)["nodes"].clone();
    let node = |place: usize| nodes[place]["instance"].as_str().unwrap_or_else(|| panic!("{nodes}"));
    assert!(explain(&flow).contains(&format!("Its node \"load\" failed, as instance {}.", node(0))), "{}", explain(&flow));
    let told = explain(node(1));
    assert!(told.contains("It did not start: its rule keeps it from that: upstream `load` failed."), "{told}");
    let rerun = dev.cli(&["rerun", &flow, "--json"]);
    assert_eq!(rerun.code, Some(0), "{}", rerun.stderr);
    eventually("the later run is told", || explain(&flow).contains("It was run again, as instance ").then_some(()));
    dev.stop();
}
