//! Lists and descriptions, as somebody who comes from other schedulers' programs looks for them.

use serde_json::json;

use crate::support::{Folder, eventually, request};

const FILE: &str = r#"
tasks:
  - {name: nightly, group: night, owner: ann, trigger: {cron: "0 2 * * *", timezone: Europe/Berlin}, command: "true"}
  - {name: hand, trigger: manual, command: "true"}
  - {name: bad, trigger: manual, retry: {max_attempts: 2, first: 20ms, cap: 20ms}, command: "false"}
"#;

#[test]
fn everything_that_is_listed_is_a_table_and_json() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let hand = dev.cli(&["trigger", "hand", "--key", "k1", "--reason", "why"]);
    let id = hand.stdout.split(' ').next().unwrap().to_owned();
    assert!(hand.stdout.contains(&format!("follow it with `punctual logs {id} --follow`")), "{}", hand.stdout);
    dev.instance_in("hand", "succeeded");
    dev.cli(&["trigger", "bad"]);
    dev.instance_in("bad", "dead_lettered");
    let command = json!({ "name": "hand", "trigger": "manual", "command": "echo" });
    let path = "/api/v1/tasks/hand?take_over=true&source=file";
    let answer = request(dev.address(), "PUT", path, &[("content-type", "application/json")], command.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(dev.cli(&["rerun", &id]).code, Some(0));
    eventually("it has run again", || (dev.instances("hand").iter().filter(|run| run["state"] == "succeeded").count() == 2).then_some(()));
    assert_eq!(dev.cli(&["pause", "nightly", "--reason", "snow"]).code, Some(0));
    for (what, words, field) in [
        (&["tasks", "--group", "night", "--owner", "ann", "--paused", "true"][..], &["TASK", "nightly", "paused"][..], "tasks"),
        (&["tasks", "--trigger", "manual", "--like", "an", "--source", "file", "--enabled", "true"], &["hand", "manual"], "tasks"),
        (&["instances", "--task", "hand", "--origin", "rerun"], &["INSTANCE", "RUN", "hand", "succeeded"], "instances"),
        (&["instances", "--state", "dead_lettered,failed"], &["bad"], "instances"),
        (&["instances", "--key", "k1", "--limit", "1"], &["hand", "more: --before "], "instances"),
        (&["workers"], &["WORKER", "local", "connected", "command"], "workers"),
        (&["replicas"], &["REPLICA", "ALIVE UNTIL"], "replicas"),
        (&["dead-letters", "--task", "bad"], &["CAUSE", "bad"], "dead_letters"),
        (&["backfills", "nightly"], &["BACKFILL"], "backfills"),
        (&["backfills"], &["BACKFILL"], "backfills"),
        (&["versions", "hand"], &["VERSION", "2"], "versions"),
        (&["occurrences", "nightly"], &["FIRST", "WHY"], "occurrences"),
        (&["pauses"], &["task nightly", "snow"], "pauses"),
        (&["coming"], &["AT", "nightly", "paused"], "fires"),
        (&["audit", "--task", "hand"], &["ACTION", "trigger", "why"], "audit"),
    ] {
        let run = dev.cli(&[&["get"], what].concat());
        assert_eq!((run.code, &*run.stderr), (Some(0), ""), "{what:?}");
        for word in words {
            assert!(run.stdout.contains(word), "{what:?} says no {word}: {}", run.stdout);
        }
        let json = dev.cli(&[&["get"], what, &["--json"]].concat()).json();
        assert!(json[field].is_array(), "{what:?}: {json}");
        assert!(!json.to_string().contains("+00:00"), "instants for programs are in UTC: {json}");
    }
    assert!(!dev.cli(&["get", "tasks", "--group", "night"]).stdout.contains("hand"));
    // The short forms are the same.
    for (short, long) in
        [(&["instances", "--task", "bad"][..], &["get", "instances", "--task", "bad"][..]), (&["audit"], &["get", "audit"])]
    {
        assert_eq!(dev.cli(short).stdout, dev.cli(long).stdout);
    }
    for arguments in [&["get", "cats"][..], &["get"], &["get", "tasks", "--trigger", "moon"]] {
        assert_eq!(dev.cli(arguments).code, Some(2), "{arguments:?}");
    }
    let hint = dev.cli(&["cancel", "hand"]);
    assert!(hint.stderr.contains("say the task's name and --key KEY"), "{}", hint.stderr);

    let all = dev.cli(&["describe", "hand"]);
    for word in ["hand  version 2, of the source file\n", "\ntrigger: manual\n", "LAST RUNS", "HEALTH", "VERSIONS"] {
        assert!(all.stdout.contains(word), "no {word}: {}", all.stdout);
    }
    assert!(!all.stdout.contains("NEXT FIRES") && !all.stdout.contains("BACKFILLS"), "nothing of what there is not: {}", all.stdout);
    let nightly = dev.cli(&["describe", "nightly"]);
    assert!(nightly.stdout.contains("02:00:00 +0") && nightly.stdout.contains("paused     task nightly, since "), "{}", nightly.stdout);
    assert_eq!(dev.cli(&["describe", "hand", "--json"]).json()["instances"].as_array().map(Vec::len), Some(2));
    assert_eq!(dev.cli(&["describe", &id]).stdout, dev.cli(&["instance", &id]).stdout);
    assert!(dev.cli(&["describe", &id, "--task"]).stderr.starts_with("PUN-303"));
    assert!(dev.cli(&["tasks", "hand"]).stdout.contains("VERSION"), "{}", dev.cli(&["tasks", "hand"]).stdout);

    let diff = |more: &[&str]| dev.cli(&[&["get", "versions", "hand", "--diff"], more].concat());
    let newest = diff(&[]);
    assert_eq!(newest.code, Some(1), "{}", newest.stderr);
    assert!(newest.stdout.starts_with("--- hand  version 1\n+++ hand  version 2\n@@ "), "{}", newest.stdout);
    assert!(newest.stdout.contains("\n-command: {shell: \"true\"}\n+command: {shell: echo}"), "{}", newest.stdout);
    assert_eq!(diff(&["2", "2"]).code, Some(0));
    assert_eq!(diff(&["7"]).code, Some(2));
    assert!(diff(&["0", "1"]).stdout.contains("+name: hand"));
    dev.stop();
}
