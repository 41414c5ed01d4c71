//! Callers and systems that mean no good: connections that say nothing, schemas that take for ever, files that may not grow.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually, request};

const TASK: &str = "tasks:\n  - {name: t, trigger: manual, command: cat}\n";

/// Whether the other end has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 512]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    let mut idle: Vec<_> = (0..700).map(|_| TcpStream::connect(dev.address()).unwrap()).collect();
    for _ in 0..10 {
        assert_eq!(request(dev.address(), "GET", "/health", &[], b"").status, 200);
    }
    // Those that are too many have given way, and no others: nobody has waited until they all had been idle for too long.
    let closed = idle.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count();
    assert!((150..400).contains(&closed), "{closed} of 700");
    dev.stop();
}

fn put(dev: &Dev, name: &str, document: &Value) -> crate::support::Answer {
    let headers = [("content-type", "application/json")];
    request(dev.address(), "PUT", &format!("/api/v1/tasks/{name}"), &headers, document.to_string().as_bytes())
}

#[test]
fn a_schema_that_would_take_for_ever_is_refused_and_so_is_such_a_payload() {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    let with = |schema: Value| json!({ "name": "s", "trigger": "manual", "command": { "shell": "cat" }, "payload_schema": schema });
    let parts = (0..40).map(|part| {
        let next = json!({ "$ref": format!("#/$defs/p{}", part + 1) });
        (format!("p{part}"), json!({ "allOf": [next.clone(), next] }))
    });
    let mut parts: serde_json::Map<String, Value> = parts.collect();
    parts.insert("p40".to_owned(), json!({ "type": "string" }));
    for (schema, why) in [
        (json!({ "$ref": "#/$defs/p0", "$defs": parts }), "counts twice"),
        (json!({ "pattern": r"(?=(a+))\1{1,30}(a*)*b" }), "in one pass"),
        (json!({ "$ref": "https://example.com/x" }), "leads out of the schema"),
        (json!({ "$ref": "#" }), "refers to itself"),
    ] {
        let refused = put(&dev, "s", &with(schema));
        refused.check_refusal(400, "PUN-305");
        assert!(refused.body.contains(why) && refused.body.contains("PUN-341"), "{}", refused.body);
    }
    let tree = json!({ "$ref": "#/$defs/t", "$defs": { "t": { "type": ["integer", "object"],
        "allOf": [{ "properties": { "x": { "$ref": "#/$defs/t" } } }, { "properties": { "x": { "$ref": "#/$defs/t" } } }] } } });
    assert_eq!(put(&dev, "s", &with(tree)).status, 200);
    let nested = |depth: usize| format!("{}1{}", r#"{"x":"#.repeat(depth), "}".repeat(depth));
    let trigger = |payload: String| dev.post("/api/v1/tasks/s/trigger", None, &json!({ "payload": payload }));
    let refused = trigger(nested(50));
    refused.check_refusal(422, "PUN-342");
    assert!(refused.body.contains("it would take more than"), "{}", refused.body);
    assert_eq!(trigger(nested(5)).status, 202);
    dev.stop();
}

#[test]
fn a_node_hands_over_what_the_called_task_takes() {
    let folder = Folder::with(
        "
tasks:
  - {name: sub, trigger: manual, command: cat, payload_schema: {type: object, required: [id]}}
  - {name: run, trigger: manual, nodes: [{name: c, task: sub}]}
",
    );
    let dev = folder.dev();
    let run = |payload: Value| json!({ "name": "w", "trigger": "manual", "nodes": [{ "name": "c", "task": "sub", "payload": payload.to_string() }] });
    let refused = put(&dev, "w", &run(json!({ "id2": 1 })));
    refused.check_refusal(400, "PUN-154");
    assert!(refused.body.contains("sub") && refused.body.contains("id"), "{}", refused.body);
    assert_eq!(put(&dev, "w", &run(json!({ "id": 1 }))).status, 200);
    // What the run brings is met when the node calls.
    assert_eq!(dev.post("/api/v1/tasks/run/trigger", None, &json!({ "payload": "{}" })).status, 202);
    let run = dev.instance_in("run", "failed")["id"].clone();
    let parts = dev.instances("run");
    let node = parts.iter().find(|instance| instance["id"] != run).expect("its node");
    let story = dev.instance(node["id"].as_str().unwrap());
    assert!(story["transitions"].to_string().contains("PUN-154"), "{story:#}");
    assert!(dev.instances("sub").is_empty());
    dev.stop();
}

#[test]
fn a_limit_of_file_sizes_is_said_and_nothing_is_lost() {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    assert_eq!(dev.cli(&["trigger", "t"]).code, Some(0));
    dev.instance_in("t", "succeeded");
    let pid = Pid::from_raw(dev.pid().cast_signed()).unwrap();
    let limit = |most: Option<u64>| prlimit(Some(pid), Resource::Fsize, Rlimit { current: most, maximum: None }).unwrap();
    let payload = json!({ "payload": "x".repeat(60_000) });
    limit(Some(4_096));
    eventually("a write fails", || {
        let answer = dev.post("/api/v1/tasks/t/trigger", Some("k"), &payload);
        (answer.status == 503).then(|| answer.check_refusal(503, "PUN-309"))
    });
    dev.says("PUN-207: ");
    assert!(dev.told().contains("a limit of file sizes"), "{}", dev.told());
    limit(None);
    dev.says("the database works again");
    eventually("it is taken", || matches!(dev.post("/api/v1/tasks/t/trigger", Some("k"), &payload).status, 200 | 202).then_some(()));
    eventually("both have run", || {
        let instances = dev.instances("t");
        (instances.len() == 2 && instances.iter().all(|instance| instance["state"] == "succeeded")).then_some(())
    });
    dev.stop();
}
