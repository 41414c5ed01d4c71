//! The checkup: of a process that runs, and of copies of its file that were spoilt.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::{Folder, eventually};

const FILE: &str = r#"
tasks:
  - {name: tick, trigger: {fixed_rate: 200ms}, command: "true"}
  - {name: nightly, trigger: {cron: "0 2 * * *"}, command: "true"}
  - {name: next, after: hand, command: "true"}
  - {name: hand, trigger: manual, command: "true"}
  - {name: bad, trigger: manual, retry: {max_attempts: 2, first: 20ms, cap: 20ms}, command: "false"}
  - {name: long, trigger: manual, command: "sleep 60"}
  - {name: flow, trigger: manual, nodes: [{name: first, command: "true"}, {name: then, after: [first], task: hand}]}
  - {name: limited, trigger: manual, group: db, group_limits: {max_running: 1}, command: "true"}
"#;

fn checks(found: &Value) -> Vec<&str> {
    found["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect()
}

#[test]
fn a_spoilt_store_is_named_with_what_to_do() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    for task in ["hand", "bad", "bad", "flow", "limited", "limited", "long"] {
        dev.post(&format!("/api/v1/tasks/{task}/trigger"), None, &json!({}));
    }
    for (task, state) in
        [("next", "succeeded"), ("bad", "dead_lettered"), ("flow", "succeeded"), ("limited", "succeeded"), ("long", "running")]
    {
        dev.instance_in(task, state);
    }
    eventually("both are dead", || {
        let dead = dev.instances("bad").iter().filter(|instance| instance["state"] == "dead_lettered").count();
        (dead == 2).then_some(())
    });
    let bad = dev.instances("bad");
    let id = |instance: &Value| instance["id"].as_str().unwrap().to_owned();
    assert_eq!(dev.cli(&["dead-letters", "discard", &id(&bad[0]), "--reason", "x"]).code, Some(0));
    assert_eq!(dev.cli(&["rerun", &id(&bad[1])]).code, Some(0));
    eventually("the rerun is dead, too", || {
        let dead = dev.instances("bad").iter().filter(|instance| instance["state"] == "dead_lettered").count();
        (dead == 3).then_some(())
    });
    // While it runs, by the API and beside it.
    let well = dev.cli(&["doctor", "--thorough"]);
    assert_eq!((well.code, &*well.stdout), (Some(0), "nothing is wrong\n"), "{}", well.stderr);
    let file = folder.path("punctual.db");
    let beside = folder.punctual(&["doctor", "--store", file.to_str().unwrap(), "--json"]);
    assert_eq!((beside.code, checks(&beside.json())), (Some(0), Vec::<&str>::new()), "{}{}", beside.stdout, beside.stderr);
    dev.kill();

    let spoilt = folder.path("spoilt.db");
    let copy = |from: &Path| {
        // With what is still in the log beside it.
        let _ = std::fs::remove_file(&spoilt);
        let connection = Connection::open(from).unwrap();
        connection.execute("VACUUM INTO ?1", [spoilt.to_str().unwrap()]).unwrap();
    };
    let day = "(SELECT day FROM task_days WHERE task = (SELECT id FROM tasks WHERE name = 'next') ORDER BY day DESC LIMIT 1)";
    for (check, exit, sql) in [
        ("task_without_record", 1, "DELETE FROM task_states WHERE task = (SELECT id FROM tasks WHERE name = 'nightly')".to_owned()),
        ("record_without_task", 1, "INSERT INTO task_states VALUES (0, 999, 1, NULL, NULL)".to_owned()),
        ("task_without_version", 1, "UPDATE tasks SET version = 7 WHERE name = 'hand'".to_owned()),
        ("instance_without_task", 1, "UPDATE instances SET task = 999 WHERE state < 5".to_owned()),
        ("part_without_whole", 1, "UPDATE instances SET part = 1, state = 0 WHERE state < 5".to_owned()),
        ("attempt_without_worker", 1, "UPDATE instances SET state = 2, worker = NULL WHERE state < 5".to_owned()),
        ("dead_letters", 0, "UPDATE instances SET settled = 1 WHERE state = 5".to_owned()),
        ("dead_letters", 0, "UPDATE instances SET settled = 0 WHERE state = 5".to_owned()),
        ("counts", 0, "UPDATE counts SET count = count + 1 WHERE state = 10".to_owned()),
        ("counts", 0, "DELETE FROM instances WHERE state = 5".to_owned()),
        ("day_too_long", 0, format!("UPDATE task_days SET succeeded = 99999 WHERE day = {day}")),
        ("day_too_short", 0, "DELETE FROM task_days".to_owned()),
        ("reference", 1, "UPDATE task_references SET target = 999".to_owned()),
        ("call", 1, "UPDATE task_calls SET called = 999".to_owned()),
        ("group_slot", 1, "DELETE FROM inbox; INSERT INTO group_slots VALUES (0, 999, x'00')".to_owned()),
        ("backfill", 1, "INSERT INTO backfills VALUES (1, 0, 0, 'me', 999, 0, 1, 0, x'00')".to_owned()),
        ("pause", 0, "INSERT INTO pauses VALUES (2, 'gone', 999, 0, 0, 'me', NULL, NULL)".to_owned()),
        ("lease_missing", 1, "DELETE FROM leases WHERE partition = 3".to_owned()),
        ("stray_request", 1, "INSERT INTO inbox (partition, at, by, kind) VALUES (9999, 9000000000000, 'me', 0)".to_owned()),
        ("old_request", 1, "INSERT INTO inbox (partition, at, by, kind) VALUES (0, 0, 'me', 0)".to_owned()),
        ("overdue", 1, "UPDATE instances SET state = 4, due_at = 1 WHERE state < 5".to_owned()),
        ("occurrence", 0, "INSERT INTO occurrences VALUES (1, 1, 2, 1, 1, 1, NULL, 0)".to_owned()),
        ("output", 0, "INSERT INTO outputs VALUES (999, 1, 0, x'00')".to_owned()),
    ] {
        copy(&file);
        Connection::open(&spoilt).unwrap().execute_batch(&sql).unwrap();
        let found = folder.punctual(&["doctor", "--store", spoilt.to_str().unwrap(), "--json"]);
        let json = found.json();
        assert!(checks(&json).contains(&check), "{check}: {json}");
        let finding = json["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == check).unwrap();
        assert!(finding["examples"].as_array().is_some_and(|examples| !examples.is_empty()), "{finding}");
        assert!(exit == 0 || found.code == Some(1), "{check}: {:?}", found.code);
    }
    // A page of it is gone.
    copy(&file);
    let bytes = std::fs::read(&spoilt).unwrap();
    let mut torn = bytes.clone();
    let places = torn.len() / 4096;
    for page in 2..places {
        torn[page * 4096..page * 4096 + 100].fill(0xff);
    }
    std::fs::write(&spoilt, torn).unwrap();
    let torn = folder.punctual(&["doctor", "--store", spoilt.to_str().unwrap()]);
    assert!(torn.code == Some(1) || torn.code == Some(2), "{}{}", torn.stdout, torn.stderr);
    assert!(torn.stdout.contains("WRONG  file_damaged") || torn.stderr.contains("PUN-"), "{}{}", torn.stdout, torn.stderr);
    let nowhere = folder.punctual(&["doctor", "--store", "none.db"]);
    assert_eq!((nowhere.code, nowhere.stderr.starts_with("PUN-453")), (Some(2), true), "{}", nowhere.stderr);
}

#[test]
fn a_cluster_that_lacks_something_is_told_what() {
    let folder = Folder::with("tasks:\n  - {name: gpu, trigger: manual, routing: {tags: {gpu: a100}}, command: \"true\"}\n");
    let dev = folder.dev();
    dev.post("/api/v1/tasks/gpu/trigger", None, &json!({}));
    let found = eventually("nobody has the tag", || {
        let found = dev.cli(&["doctor"]);
        found.stdout.contains("WRONG  nobody_for").then_some(found)
    });
    assert_eq!(found.code, Some(1));
    assert!(
        found.stdout.contains("tag \"gpu=a100\": no worker that knows the handler has the tags.\n  -> Start a worker"),
        "{}",
        found.stdout
    );
    assert!(found.stdout.ends_with("1 thing wrong, 0 warnings\n"), "{}", found.stdout);
    dev.stop();
}
