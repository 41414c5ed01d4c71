//! Firings in parts that are made while they run: maps, broadcasts, and what is run again of shards.

use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually};

const FILE: &str = r#"
tasks:
  - name: squares
    trigger: manual
    map:
      list: {command: "echo '[1, 2, 3, 4]' > $PUNCTUAL_ITEMS"}
      reduce: {command: "paste -s -d+ $PUNCTUAL_RESULTS > $PUNCTUAL_RESULT"}
      parallel: 2
    command: "n=$(cat); echo $((n * n)) > $PUNCTUAL_RESULT"
  - {name: no-list, trigger: manual, map: {list: {command: "true"}}, command: "true"}
  - {name: everywhere, trigger: manual, routing: broadcast, command: "echo $PUNCTUAL_SHARD_KEY"}
  - {name: flaky, trigger: manual, shards: 3, command: "test $PUNCTUAL_SHARD != 1 || test $PUNCTUAL_RUN -gt 1"}
"#;

fn ended(dev: &Dev, id: &str) -> Value {
    eventually("an end", || {
        Some(dev.instance(id)).filter(|instance| ["succeeded", "failed"].contains(&instance["state"].as_str().unwrap()))
    })
}

fn triggered(dev: &Dev, task: &str) -> Value {
    let made = dev.cli(&["trigger", task, "--json"]).json();
    ended(dev, made["instance"]["id"].as_str().unwrap())
}

#[test]
fn a_list_is_mapped_and_reduced() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let whole = triggered(&dev, "squares");
    assert_eq!((&whole["state"], &whole["result"]), (&json!("succeeded"), &json!("1+4+9+16")), "{whole:#}");
    let map = &whole["map"];
    assert_eq!((&map["phase"], &map["items"], &map["made"], &map["failed"]), (&json!("reduce"), &json!(4), &json!(4), &json!(0)));
    let all = dev.instances("squares");
    let parts: Vec<_> = all.iter().filter_map(|instance| instance["part"].as_str()).collect();
    assert_eq!((all.len(), parts.len()), (7, 2), "{parts:?}");
    let shown = dev.cli(&["instance", whole["id"].as_str().unwrap()]).stdout;
    assert!(shown.contains("map        reduce: 4 of 4 items begun, 0 failed\n"), "{shown}");

    let refused = triggered(&dev, "no-list");
    assert_eq!(refused["state"], "failed");
    let list = dev.instances("no-list").into_iter().find(|instance| instance["part"] == "list").unwrap();
    assert!(list["detail"].as_str().unwrap().contains("PUNCTUAL_ITEMS"), "{list:#}");
    dev.stop();
}

#[test]
fn what_is_broadcast_has_a_shard_for_each_worker() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    assert_eq!(triggered(&dev, "everywhere")["state"], "succeeded");
    let all = dev.instances("everywhere");
    let shard = all.iter().find(|instance| !instance["shard"].is_null()).unwrap();
    assert_eq!((all.len(), &shard["shard"]["count"]), (2, &json!(1)));
    assert_eq!(shard["state"], "succeeded");
    dev.stop();
}

#[test]
fn a_rerun_has_the_shards_that_failed_or_all_where_that_is_said() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let first = triggered(&dev, "flaky");
    assert_eq!(first["state"], "failed");
    let rerun = |of: &Value, all: bool| {
        let id = of["id"].as_str().unwrap().to_owned();
        let flags: &[&str] = if all { &["--all", "--json"] } else { &["--json"] };
        let made = dev.cli(&[&["rerun", &id], flags].concat()).json();
        ended(&dev, made["instance"]["id"].as_str().unwrap())
    };
    let again = rerun(&first, false);
    assert_eq!((&again["state"], &again["shards"], &again["carried_over"]), (&json!("succeeded"), &json!(3), &json!(2)));
    let of_run = |run: u64| dev.instances("flaky").iter().filter(|instance| instance["run"] == run).count();
    assert_eq!(of_run(2), 2, "the firing, and one shard");
    let all = rerun(&again, true);
    assert_eq!((&all["state"], &all["carried_over"], of_run(3)), (&json!("succeeded"), &Value::Null, 4));
    dev.stop();
}
