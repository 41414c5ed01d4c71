//! Workflows: what nodes hand on, what people say of nodes, and runs that run again from one.

use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually};

const FILE: &str = r#"
tasks:
  - name: load
    trigger: manual
    nodes:
      - name: extract
        command: echo '{"rows":' $((PUNCTUAL_RUN + 1)) '}' > "$PUNCTUAL_RESULT"; echo "$PUNCTUAL_NODE"
      - name: check
        after: extract
        command: test -e mended
      - name: load
        after: [extract, check]
        command: echo "$PUNCTUAL_INPUTS"
      - name: nothing
        after: extract
        when: {node: extract, pointer: /rows, less_than: 0}
        command: "false"
  - name: slow
    trigger: manual
    nodes:
      - {name: wait, command: "while [ ! -e go ]; do sleep 0.05; done"}
      - {name: second, after: wait, command: "false"}
      - {name: third, after: second, command: "true"}
"#;

fn run_of(dev: &Dev, task: &str) -> String {
    dev.cli(&["trigger", task, "--json"]).json()["instance"]["id"].as_str().unwrap().to_owned()
}

fn ended(dev: &Dev, run: &str) -> Value {
    eventually("the end of the run", || Some(dev.instance(run)).filter(|run| !run["ended_at"].is_null()))
}

fn states(run: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    run["nodes"].as_array().unwrap().iter().map(|node| (text(&node["node"]), text(&node["state"]))).collect()
}

fn check(run: &Value, state: &str, nodes: &[(&str, &str)]) {
    assert_eq!(run["state"], state, "{run:#}");
    assert_eq!(states(run), nodes.iter().map(|(node, state)| ((*node).to_owned(), (*state).to_owned())).collect::<Vec<_>>());
}

#[test]
fn a_run_is_mended_from_the_node_that_failed() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let first = run_of(&dev, "load");
    let failed = ended(&dev, &first);
    check(&failed, "failed", &[("extract", "succeeded"), ("check", "failed"), ("load", "skipped"), ("nothing", "skipped")]);
    assert_eq!((&failed["detail"], &failed["nodes_count"]), (&json!("1 of 4 nodes did not succeed: `check`"), &json!(4)));
    assert_eq!(failed["nodes"][3]["detail"], "`/rows` of the result of `extract` is 2, and `less_than` does not hold");
    assert_eq!(dev.get("/api/v1/instances?task=load")["instances"].as_array().unwrap().len(), 1, "parts are not listed unless asked for");
    assert_eq!(dev.instance(failed["nodes"][0]["instance"].as_str().unwrap())["node"], "extract");
    let shown = dev.cli(&["instance", &first]).stdout;
    for part in ["NODE", "extract, check", "upstream `check` failed"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    let path = format!("/api/v1/instances/{first}/rerun");
    dev.post(&path, None, &json!({ "from": ["gone"] })).check_refusal(404, "PUN-171");
    dev.post(&path, None, &json!({ "cascade": true })).check_refusal(400, "PUN-305");
    folder.write("mended", "");
    let again = dev.cli(&["rerun", &first, "--from", "check", "--reason", "mended", "--json"]).json();
    let second = again["instance"]["id"].as_str().unwrap().to_owned();
    let mended = ended(&dev, &second);
    check(&mended, "succeeded", &[("extract", "succeeded"), ("check", "succeeded"), ("load", "succeeded"), ("nothing", "skipped")]);
    assert_eq!((&mended["run"], &mended["nodes"][0]["cause"]), (&json!(2), &json!("carried_over")));
    let loaded = dev.instance(mended["nodes"][2]["instance"].as_str().unwrap());
    let logs = dev.get(&format!("/api/v1/instances/{}/logs", loaded["id"].as_str().unwrap()));
    assert_eq!(logs["outputs"][0]["output"], "{\"extract\":{\"rows\": 2 },\"check\":null}\n", "what was carried over is handed on");
    dev.stop();
}

#[test]
fn nodes_are_skipped_or_said_to_be_done_while_the_run_goes_on() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let run = run_of(&dev, "slow");
    eventually("the first node", || (states(&dev.instance(&run))[0].1 == "running").then_some(()));
    let path = |node: &str| format!("/api/v1/instances/{run}/nodes/{node}");
    let said = |state: &str| json!({ "state": state, "by": "ada", "reason": "by hand" });
    dev.post(&path("wait"), None, &said("skipped")).check_refusal(409, "PUN-172");
    dev.post(&path("gone"), None, &said("skipped")).check_refusal(404, "PUN-171");
    dev.post(&path("second"), None, &said("lost")).check_refusal(400, "PUN-305");
    let skipped = dev.cli(&["skip", &run, "third", "--json"]).json();
    assert_eq!((&skipped["instance"]["state"], &skipped["instance"]["cause"]), (&json!("skipped"), &json!("marked")));
    let marked = dev.cli(&["mark-succeeded", &run, "second", "--reason", "done by hand"]);
    assert_eq!((marked.code, &*marked.stdout), (Some(0), &*format!("second of {run} is succeeded\n")), "{}", marked.stderr);
    assert_eq!(dev.cli(&["mark-failed", &run, "third"]).code, Some(1), "it was skipped");
    folder.write("go", "");
    check(&ended(&dev, &run), "succeeded", &[("wait", "succeeded"), ("second", "succeeded"), ("third", "skipped")]);
    dev.post(&path("second"), None, &said("failed")).check_refusal(409, "PUN-172");
    let load = run_of(&dev, "load");
    ended(&dev, &load);
    dev.post(&format!("/api/v1/instances/{load}/nodes/check"), None, &said("succeeded")).check_refusal(409, "PUN-173");
    let node = dev.instance(&load)["nodes"][0]["instance"].as_str().unwrap().to_owned();
    dev.post(&format!("/api/v1/instances/{node}/nodes/check"), None, &said("succeeded")).check_refusal(409, "PUN-170");
    dev.stop();
}

const CALLING: &str = r#"
tasks:
  - name: prepare
    trigger: manual
    nodes:
      - name: fetch
        command: echo "$PUNCTUAL_PAYLOAD" > fetched; while [ ! -e go ]; do sleep 0.05; done; test ! -e damaged
  - name: last
    trigger: manual
    command: echo '{"rows":3}' > "$PUNCTUAL_RESULT"
  - name: month
    trigger: manual
    nodes:
      - {name: prepare, task: prepare, payload: {months: 2}}
      - {name: last, after: prepare, task: last}
      - {name: close, after: last, command: echo "$PUNCTUAL_INPUTS"}
"#;

#[test]
fn a_node_that_is_another_task_ends_as_that_does() {
    let folder = Folder::with(CALLING);
    let dev = folder.dev();
    let run = run_of(&dev, "month");
    let called = |run: &str| dev.instance(run)["nodes"][0]["calls"]["instance"].as_str().map(str::to_owned);
    let prepare = eventually("the call", || called(&run));
    eventually("what was called", || (dev.instance(&prepare)["nodes"][0]["state"] == "running").then_some(()));
    let node = dev.instance(&run)["nodes"][0]["instance"].as_str().unwrap().to_owned();
    let (shown, of) = (dev.instance(&node), dev.instance(&prepare));
    assert_eq!((&shown["state"], &shown["calls"]), (&json!("running"), &json!({ "task": "prepare", "instance": prepare })));
    assert_eq!((&of["origin"], &of["caused_by"], &of["payload"]), (&json!("call"), &json!(node), &json!("{\"months\":2}")));
    for (id, part) in [
        (&run, format!("prepare, as {prepare}")),
        (&node, format!("calls      prepare, as {prepare}")),
        (&prepare, format!("call, by {node}")),
    ] {
        let shown = dev.cli(&["instance", id]).stdout;
        assert!(shown.contains(&part), "{part}: {shown}");
    }
    folder.write("go", "");
    let ended_run = ended(&dev, &run);
    check(&ended_run, "succeeded", &[("prepare", "succeeded"), ("last", "succeeded"), ("close", "succeeded")]);
    assert_eq!(ended_run["nodes"][0]["detail"], format!("instance {prepare} of `prepare` is succeeded"));
    let close = ended_run["nodes"][2]["instance"].as_str().unwrap();
    let logs = dev.get(&format!("/api/v1/instances/{close}/logs"));
    assert_eq!(logs["outputs"][0]["output"], "{\"last\":{\"rows\":3}}\n", "its result is handed on");

    // One that fails, and is called once more.
    folder.write("damaged", "");
    let failed = ended(&dev, &run_of(&dev, "month"));
    check(&failed, "failed", &[("prepare", "failed"), ("last", "skipped"), ("close", "skipped")]);
    let detail = failed["nodes"][0]["detail"].as_str().unwrap();
    assert!(detail.ends_with("of `prepare` is failed: 1 of 1 nodes did not succeed: `fetch`"), "{detail}");
    std::fs::remove_file(folder.path("damaged")).unwrap();
    let again = dev.cli(&["rerun", failed["id"].as_str().unwrap(), "--from", "prepare", "--cascade", "--json"]).json();
    check(
        &ended(&dev, again["instance"]["id"].as_str().unwrap()),
        "succeeded",
        &[("prepare", "succeeded"), ("last", "succeeded"), ("close", "succeeded")],
    );

    // And one that is cancelled with what it has called.
    std::fs::remove_file(folder.path("go")).unwrap();
    let run = run_of(&dev, "month");
    let prepare = eventually("the call", || called(&run));
    eventually("what was called", || (dev.instance(&prepare)["nodes"][0]["state"] == "running").then_some(()));
    assert_eq!(dev.cli(&["kill", &run]).code, Some(0));
    let killed = ended(&dev, &prepare);
    assert_eq!((&killed["state"], &killed["cause"]), (&json!("cancelled"), &json!("kill_requested")));
    assert_eq!(ended(&dev, &run)["state"], "cancelled");
    dev.stop();
}

#[test]
fn a_workflow_that_makes_no_sense_is_refused_with_its_line() {
    let folder = Folder::with(
        "tasks:\n  - name: w\n    trigger: manual\n    nodes:\n      - {name: a, after: c, command: x}\n      - {name: b, after: a, command: x}\n      - {name: c, after: [b, gone], command: x}\n",
    );
    let refused = folder.refused(&[]);
    assert!(refused.contains("tasks.yaml:5:") && refused.contains("PUN-162") && refused.contains("a > b > c > a"), "{refused}");
    assert!(refused.contains("tasks.yaml:7:") && refused.contains("PUN-161") && refused.contains("`gone`"), "{refused}");
}
