//! Tasks that fire after others, what they hand on, and firings in shards.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually};

const FILE: &str = r#"
tasks:
  - {name: a, trigger: manual, command: "echo '{\"n\": 3}' > $PUNCTUAL_RESULT; echo counted"}
  - {name: b, after: a, command: "cat; echo \" in run $PUNCTUAL_RUN\""}
  - name: c
    trigger: manual
    shards: [eu, us, asia]
    command: "echo $PUNCTUAL_SHARD_KEY $PUNCTUAL_SHARD/$PUNCTUAL_SHARDS"
  - {name: d, after: {task: c, on: any}, command: "echo once"}
"#;

fn output(dev: &Dev, instance: &Value) -> String {
    let logs = dev.cli(&["logs", instance["id"].as_str().unwrap()]);
    assert_eq!(logs.code, Some(0), "{}", logs.stderr);
    logs.stdout
}

#[test]
fn a_result_is_the_payload_of_what_fires_after_it() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    assert_eq!(dev.cli(&["trigger", "a"]).code, Some(0));
    let after = dev.instance_in("b", "succeeded");
    assert_eq!(output(&dev, &after), "{\"n\": 3} in run 1\n");
    let before = dev.instance_in("a", "succeeded");
    assert_eq!((&before["result"], &before["caused_by"], &before["shard"]), (&json!("{\"n\": 3}"), &Value::Null, &Value::Null));
    assert_eq!((&after["payload"], &after["caused_by"], &after["origin"]), (&before["result"], &before["id"], &json!("chain")));

    let shown = dev.cli(&["instance", after["id"].as_str().unwrap()]).stdout;
    for line in [format!("origin     chain, after {}", before["id"].as_str().unwrap()), "payload    {\"n\": 3}".to_owned()] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let shown = dev.cli(&["instance", before["id"].as_str().unwrap()]).stdout;
    assert!(shown.lines().any(|line| line == "result     {\"n\": 3}"), "{shown}");
    assert!(!dev.cli(&["instances", "--task", "b"]).stdout.contains("SHARD"), "a column for nothing");
    assert_eq!(dev.instances("b").len(), 1);
    dev.stop();
}

#[test]
fn a_firing_in_shards_is_done_when_all_of_them_are() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let triggered = dev.cli(&["trigger", "c", "--json"]).json();
    let whole = triggered["instance"]["id"].as_str().unwrap().to_owned();
    let ended = eventually("the end of the whole", || Some(dev.instance(&whole)).filter(|whole| whole["state"] == "succeeded"));
    assert_eq!((&ended["shards"], &ended["shard"], &ended["parent"]), (&json!(3), &Value::Null, &Value::Null));

    let all = dev.instances("c");
    let shards: Vec<&Value> = all.iter().filter(|instance| !instance["shard"].is_null()).collect();
    assert_eq!((all.len(), shards.len()), (4, 3));
    assert!(shards.iter().all(|shard| shard["state"] == "succeeded" && shard["parent"] == *whole), "{shards:#?}");
    let outputs: BTreeSet<String> = shards.iter().map(|shard| output(&dev, shard)).collect();
    assert_eq!(outputs, BTreeSet::from(["asia 2/3\n", "eu 0/3\n", "us 1/3\n"].map(str::to_owned)));

    let shown = dev.cli(&["instances", "--task", "c", "--parts"]).stdout;
    for part in ["SHARD", "all 3", "1 of 3, eu", "2 of 3, us", "3 of 3, asia"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let asia = shards.iter().find(|shard| shard["shard"]["key"] == "asia").unwrap();
    let shown = dev.cli(&["instance", asia["id"].as_str().unwrap()]).stdout;
    assert!(shown.contains(&format!("shard      3 of 3, asia; a part of {whole}\n")), "{shown}");

    dev.instance_in("d", "succeeded");
    assert_eq!(dev.instances("d").len(), 1, "the whole has an end for those after it, its shards have none");
    let printed = dev.stop();
    assert!(printed.contains("divided into 3 shards") && printed.contains("shard 3 of 3, asia: succeeded in "), "{printed}");
}

#[test]
fn tasks_that_cannot_follow_one_another_are_refused_with_the_reason() {
    let folder = Folder::with("tasks:\n  - {name: b, after: gone, command: x}\n");
    let refused = folder.refused(&[]);
    assert!(refused.contains("PUN-151") && refused.contains("`gone`"), "{refused}");
    folder.write("tasks.yaml", "tasks:\n  - {name: a, after: b, command: x}\n  - {name: b, after: a, command: x}\n");
    let refused = folder.refused(&[]);
    assert!(refused.contains("tasks.yaml:3:") && refused.contains("PUN-152") && refused.contains("`a`, then `b`"), "{refused}");

    // What a file by itself can't tell, the one that has all tasks does.
    folder.write("tasks.yaml", "tasks:\n  - {name: a, trigger: manual, command: x}\n");
    let dev = folder.dev();
    let apply = |source: &str, file: &str| {
        folder.write("other.yaml", file);
        dev.cli(&["apply", folder.path("other.yaml").to_str().unwrap(), "--source", source, "--remove"])
    };
    assert_eq!(apply("one", "tasks:\n  - {name: b, after: a, command: x}\n").code, Some(0));
    for (source, file, code, names) in [
        ("two", "tasks:\n  - {name: c, after: gone, command: x}\n", "PUN-151", "`gone`"),
        ("file", "tasks:\n  - {name: a, after: b, command: x}\n", "PUN-152", "a > b > a"),
        ("file", "tasks:\n  - {name: other, trigger: manual, command: x}\n", "PUN-151", "`a`"),
    ] {
        let refused = apply(source, file);
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{}", refused.stderr);
        assert!(refused.stderr.starts_with(&format!("{code}: ")) && refused.stderr.contains(names), "{}", refused.stderr);
        assert_eq!(refused.stderr.matches(code).count(), 1, "{}", refused.stderr);
    }
    assert_eq!(apply("two", "tasks:\n  - {name: c, after: b, command: x}\n").code, Some(0));
    // Nodes that are other tasks hang together with all that.
    assert_eq!(apply("three", "tasks:\n  - {name: d, trigger: manual, nodes: [{name: n, task: c}]}\n").code, Some(0));
    for (source, file, code, names) in [
        (
            "four",
            "tasks:\n  - {name: e, trigger: manual, nodes: [{name: n, task: gone}]}\n",
            "PUN-151",
            "a node of `e` calls the task `gone`",
        ),
        ("two", "tasks:\n  - {name: c, after: b, nodes: [{name: n, task: a}]}\n", "PUN-152", "a > b > c > a"),
        ("two", "tasks:\n  - {name: other, trigger: manual, command: x}\n", "PUN-151", "a node of `d` calls the task `c`"),
    ] {
        let refused = apply(source, file);
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{}", refused.stderr);
        assert!(refused.stderr.starts_with(&format!("{code}: ")) && refused.stderr.contains(names), "{}", refused.stderr);
    }
    dev.stop();
}
