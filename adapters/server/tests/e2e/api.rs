//! The API as programs use it: what its document says, paging, edits under an ETag, keys, events, and what it refuses.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Dev, Folder, PATIENCE, escaped, eventually, request};

const FILE: &str = r#"
tasks:
  - {name: hand, trigger: manual, command: cat, group: hands}
  - {name: bad, trigger: manual, retry: {max_attempts: 2, first: 20ms, cap: 20ms}, command: "false"}
  - {name: slow, trigger: manual, timeout: {grace: 0s}, command: "sleep 600"}
  - {name: nightly, trigger: {cron: "30 2 * * *", timezone: Europe/Berlin}, owner: ops, routing: {tags: {zone: eu}}, command: "true"}
  - name: flow
    trigger: manual
    nodes:
      - {name: first, command: "true"}
      - {name: second, after: [first], command: "true"}
"#;

fn call(dev: &Dev, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(dev.address(), method, path, &all, body.as_bytes())
}

/// What the API says of itself.
struct Described(Value);

impl Described {
    fn of(dev: &Dev) -> Described {
        Described(dev.get("/openapi.json"))
    }

    /// Each operation: its method, its path, what it is.
    fn operations(&self) -> Vec<(String, String, &Value)> {
        let paths = self.0["paths"].as_object().unwrap();
        let of = |(path, item): (&String, &'_ Value)| {
            let methods = item.as_object().cloned().unwrap_or_default();
            methods.keys().map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        };
        let all = paths.iter().flat_map(of);
        all.map(|(method, path)| {
            let operation = &self.0["paths"][&path][method.to_lowercase()];
            (method, path, operation)
        })
        .collect()
    }

    /// That an answer is what the operation says that it answers.
    #[track_caller]
    fn check(&self, method: &str, path: &str, answer: &Answer) {
        let responses = &self.0["paths"][path][method.to_lowercase()]["responses"];
        let response = responses.get(answer.status.to_string()).unwrap_or(&responses["default"]);
        let kind = answer.head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "{method} {path}: nothing is said of {} {kind}: {responses:#}", answer.status);
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let body = answer.json();
        let errors: Vec<_> = validator.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?}\n{body:#}");
    }
}

#[test]
fn every_described_operation_is_there_and_says_what_it_takes() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let described = Described::of(&dev);
    assert_eq!(described.0["openapi"], "3.1.0");
    assert_eq!(described.0["security"], json!([{ "token": [] }, { "session": [] }]));
    // Without either: what is for all.
    let is_open = |operation: &Value| operation["security"] == json!([{}]);
    let open: Vec<_> = described.operations().into_iter().filter(|(.., operation)| is_open(operation)).map(|(_, path, _)| path).collect();
    assert_eq!(open.iter().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(["/api/v1/sign-in", "/health"]));
    let mut ids = BTreeSet::new();
    for (method, path, operation) in described.operations() {
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
        assert!(operation["summary"].as_str().is_some_and(|summary| summary.len() > 5), "{operation}");
        let names: Vec<_> = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let described: Vec<_> = parameters.iter().filter(|one| one["in"] == "path").map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(described, names, "{method} {path}");
        if path == "/api/v1/events" {
            continue;
        }
        let address = path.replace("{version}", "1").replace("{id}", "1-1").split('{').fold(String::new(), |text, part| {
            text + part.split_once('}').map_or(part.to_owned(), |(_, rest)| format!("none{rest}")).as_str()
        });
        // Each refuses a field that it does not know.
        let answer = match method.as_str() {
            "GET" => call(&dev, &method, &format!("{address}?no_such_field=1"), &[], &Value::Null),
            _ => call(&dev, &method, &address, &[], &json!({ "no_such_field": 1 })),
        };
        assert!(![405, 500, 501].contains(&answer.status), "{method} {path}: {answer:?}");
        assert!(answer.status == 200 || answer.json()["code"] != "PUN-301", "{method} {path}: {answer:?}");
    }
    assert!(ids.len() > 40, "{ids:?}");
}

#[test]
fn answers_are_what_the_document_says() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let described = Described::of(&dev);
    let ran = dev.post("/api/v1/tasks/hand/trigger", Some("k1"), &json!({ "payload": { "a": 1 } }));
    described.check("POST", "/api/v1/tasks/{name}/trigger", &ran);
    dev.post("/api/v1/tasks/bad/trigger", None, &json!({}));
    // The run itself: its nodes are instances of the task, too.
    let run = dev.post("/api/v1/tasks/flow/trigger", None, &json!({})).json()["instance"]["id"].as_str().unwrap().to_owned();
    let flow = eventually("the end of the run", || Some(dev.instance(&run)).filter(|run| run["state"] == "succeeded"));
    let (hand, bad) = (dev.instance_in("hand", "succeeded"), dev.instance_in("bad", "dead_lettered"));
    let id = |instance: &Value| instance["id"].as_str().unwrap().to_owned();
    let flow_nodes = format!("/api/v1/instances/{}/nodes", id(&flow));
    let reads = [
        ("/health", "/health".to_owned()),
        ("/api/v1/status", "/api/v1/status".to_owned()),
        ("/api/v1/cluster", "/api/v1/cluster".to_owned()),
        ("/api/v1/workers", "/api/v1/workers".to_owned()),
        ("/api/v1/coming", "/api/v1/coming?limit=5&herd=2".to_owned()),
        ("/api/v1/pauses", "/api/v1/pauses".to_owned()),
        ("/api/v1/audit", "/api/v1/audit?limit=2".to_owned()),
        ("/api/v1/doctor", "/api/v1/doctor?thorough=true".to_owned()),
        ("/api/v1/dead-letters", "/api/v1/dead-letters".to_owned()),
        ("/api/v1/tasks", "/api/v1/tasks?limit=2".to_owned()),
        ("/api/v1/tasks/{name}", "/api/v1/tasks/nightly".to_owned()),
        ("/api/v1/tasks/{name}/versions", "/api/v1/tasks/nightly/versions".to_owned()),
        ("/api/v1/tasks/{name}/versions/{version}", "/api/v1/tasks/nightly/versions/1".to_owned()),
        ("/api/v1/tasks/{name}/diff", "/api/v1/tasks/nightly/diff".to_owned()),
        ("/api/v1/tasks/{name}/next-fires", "/api/v1/tasks/nightly/next-fires".to_owned()),
        ("/api/v1/tasks/{name}/days", "/api/v1/tasks/hand/days".to_owned()),
        ("/api/v1/tasks/{name}/occurrences", "/api/v1/tasks/nightly/occurrences".to_owned()),
        ("/api/v1/tasks/{name}/backfills", "/api/v1/tasks/nightly/backfills".to_owned()),
        ("/api/v1/backfills", "/api/v1/backfills?limit=5".to_owned()),
        ("/api/v1/tasks/{name}/explain", "/api/v1/tasks/nightly/explain?at=2027-03-26T12:00:00Z".to_owned()),
        ("/api/v1/instances/{id}/explain", format!("/api/v1/instances/{}/explain", id(&hand))),
        ("/api/v1/instances", "/api/v1/instances?parts=true".to_owned()),
        ("/api/v1/instances/{id}", format!("/api/v1/instances/{}", id(&hand))),
        ("/api/v1/instances/{id}", format!("/api/v1/instances/{}", id(&flow))),
        ("/api/v1/instances/{id}/logs", format!("/api/v1/instances/{}/logs", id(&hand))),
        ("/api/v1/instances/{id}/nodes", flow_nodes.clone()),
        ("/api/v1/instances/{id}/nodes", format!("/api/v1/instances/{}/nodes", id(&hand))),
        ("/api/v1/tasks/{name}", "/api/v1/tasks/none".to_owned()),
        ("/api/v1/sources/{source}", "/api/v1/sources/file".to_owned()),
        ("/api/v1/calendars", "/api/v1/calendars?limit=1".to_owned()),
        ("/api/v1/me", "/api/v1/me".to_owned()),
        ("/api/v1/users", "/api/v1/users".to_owned()),
        ("/api/v1/users/{user}", "/api/v1/users/none".to_owned()),
        ("/api/v1/users/{user}/sessions", "/api/v1/users/none/sessions".to_owned()),
        ("/api/v1/tokens", "/api/v1/tokens".to_owned()),
    ];
    let mut asked = BTreeSet::new();
    for (path, address) in &reads {
        described.check("GET", path, &request(dev.address(), "GET", address, &[], b""));
        asked.insert(*path);
    }
    // None is forgotten but the streams.
    let operations = described.operations();
    let gets: BTreeSet<_> = operations.iter().filter(|(method, ..)| method == "GET").map(|(_, path, _)| path.as_str()).collect();
    assert_eq!(
        gets.difference(&asked).collect::<Vec<_>>(),
        ["/api/v1/events", "/api/v1/instances/{id}/logs/stream"].iter().collect::<Vec<_>>()
    );
    assert_eq!(dev.get(&flow_nodes)["nodes"][1]["after"], json!(["first"]));
    assert_eq!(dev.get("/api/v1/tasks/hand/days")["days"][0]["succeeded"], 1);
    dev.post("/api/v1/tasks/slow/trigger", None, &json!({}));
    let slow = dev.instance_in("slow", "running");
    let writes = [
        ("POST", "/api/v1/tasks/{name}/pause", "/api/v1/tasks/hand/pause".to_owned(), json!({ "by": "me" })),
        ("POST", "/api/v1/tasks/{name}/resume", "/api/v1/tasks/hand/resume".to_owned(), json!({})),
        ("POST", "/api/v1/groups/{group}/pause", "/api/v1/groups/hands/pause".to_owned(), json!({})),
        ("POST", "/api/v1/groups/{group}/resume", "/api/v1/groups/hands/resume".to_owned(), json!({})),
        ("POST", "/api/v1/pause", "/api/v1/pause".to_owned(), json!({})),
        ("POST", "/api/v1/resume", "/api/v1/resume".to_owned(), json!({})),
        ("POST", "/api/v1/resume", "/api/v1/resume".to_owned(), json!({})),
        ("POST", "/api/v1/instances/{id}/skip", format!("/api/v1/instances/{}/skip", id(&slow)), json!({})),
        ("POST", "/api/v1/instances/{id}/kill", format!("/api/v1/instances/{}/kill", id(&slow)), json!({})),
        ("POST", "/api/v1/instances/{id}/cancel", format!("/api/v1/instances/{}/cancel", id(&hand)), json!({})),
        ("POST", "/api/v1/instances/{id}/rerun", format!("/api/v1/instances/{}/rerun", id(&hand)), json!({ "reason": "again" })),
        ("POST", "/api/v1/instances/{id}/nodes/{node}", format!("{flow_nodes}/first"), json!({ "state": "failed" })),
        ("POST", "/api/v1/dead-letters/replay", "/api/v1/dead-letters/replay".to_owned(), json!({ "instances": [id(&bad)] })),
        (
            "POST",
            "/api/v1/dead-letters/discard",
            "/api/v1/dead-letters/discard".to_owned(),
            json!({ "instances": [id(&bad)], "reason": "x" }),
        ),
        (
            "POST",
            "/api/v1/tasks/{name}/backfills",
            "/api/v1/tasks/nightly/backfills".to_owned(),
            json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z", "dry_run": true }),
        ),
        (
            "POST",
            "/api/v1/tasks/{name}/backfills",
            "/api/v1/tasks/nightly/backfills".to_owned(),
            json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z" }),
        ),
        ("POST", "/api/v1/backfills/{id}/cancel", "/api/v1/backfills/1/cancel".to_owned(), json!({})),
        ("PUT", "/api/v1/sources/{source}", "/api/v1/sources/other".to_owned(), json!({ "documents": [], "dry_run": true })),
        ("PUT", "/api/v1/tasks/{name}", "/api/v1/tasks/new".to_owned(), document("new", "true")),
        ("DELETE", "/api/v1/tasks/{name}", "/api/v1/tasks/new".to_owned(), Value::Null),
        ("DELETE", "/api/v1/tasks/{name}/triggers/{key}", "/api/v1/tasks/hand/triggers/k1".to_owned(), json!({})),
        ("PATCH", "/api/v1/tasks/{name}/triggers/{key}", "/api/v1/tasks/hand/triggers/k1".to_owned(), json!({ "delay_ms": 5 })),
    ];
    for (method, path, address, body) in writes {
        described.check(method, path, &call(&dev, method, &address, &[], &body));
    }
}

fn document(name: &str, command: &str) -> Value {
    json!({ "name": name, "trigger": "manual", "command": { "shell": command } })
}

fn etag(answer: &Answer) -> String {
    answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

#[test]
fn a_task_is_made_changed_and_removed_under_its_etag() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let put = |query: &str, headers: &[(&str, &str)], command: &str| {
        call(&dev, "PUT", &format!("/api/v1/tasks/mine{query}"), headers, &document("mine", command))
    };
    put("", &[("if-match", "*")], "true").check_refusal(412, "PUN-440");
    let tried = put("?dry_run=true", &[], "true");
    assert_eq!((tried.status, &tried.json()["outcome"], &tried.json()["version"]), (200, &json!("created"), &Value::Null));
    assert_eq!(request(dev.address(), "GET", "/api/v1/tasks/mine", &[], b"").status, 404);
    let made = put("?by=me&reason=needed", &[("if-none-match", "*")], "true");
    assert_eq!((made.status, &made.json()["outcome"], etag(&made).as_str()), (200, &json!("created"), "\"v1\""));
    put("", &[("if-none-match", "*")], "false").check_refusal(412, "PUN-440");
    let read = request(dev.address(), "GET", "/api/v1/tasks/mine", &[], b"");
    assert_eq!((etag(&read).as_str(), &read.json()["source"]), ("\"v1\"", &json!("api")));
    let known = request(dev.address(), "GET", "/api/v1/tasks/mine", &[("if-none-match", "\"v1\"")], b"");
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    // Of two who read the same, the second one is told.
    assert_eq!(etag(&put("", &[("if-match", "\"v1\"")], "echo 1")), "\"v2\"");
    put("", &[("if-match", "\"v1\"")], "echo 2").check_refusal(412, "PUN-440");
    put("", &[("if-match", "\"another\"")], "echo 2").check_refusal(412, "PUN-440");
    put("", &[("if-none-match", "\"v1\"")], "echo 2").check_refusal(400, "PUN-305");
    assert_eq!(put("", &[("if-match", "\"v2\"")], "echo 1").json()["outcome"], "unchanged");
    let differences = dev.get("/api/v1/tasks/mine/diff?from=1&to=2");
    assert_eq!(differences["differences"], json!([{ "path": "/command/shell", "before": "true", "after": "echo 1" }]));
    assert_eq!(dev.get("/api/v1/tasks/mine/versions/1")["definition"]["command"]["shell"], "true");
    request(dev.address(), "GET", "/api/v1/tasks/mine/versions/9", &[], b"").check_refusal(404, "PUN-444");
    let page = dev.get("/api/v1/tasks/mine/versions?limit=1");
    assert_eq!((&page["versions"][0]["version"], &page["next"]), (&json!(2), &json!(2)));
    assert_eq!(dev.get("/api/v1/tasks/mine/versions?limit=1&after=2")["versions"][0]["version"], 1);
    // It runs, and the file's tasks are the file's.
    dev.post("/api/v1/tasks/mine/trigger", None, &json!({}));
    dev.instance_in("mine", "succeeded");
    let of_file = call(&dev, "PUT", "/api/v1/tasks/hand", &[], &document("hand", "true"));
    of_file.check_refusal(409, "PUN-441");
    call(&dev, "DELETE", "/api/v1/tasks/hand", &[], &Value::Null).check_refusal(409, "PUN-441");
    assert_eq!(call(&dev, "PUT", "/api/v1/tasks/hand?take_over=true", &[], &document("hand", "true")).status, 200);
    assert_eq!(dev.get("/api/v1/tasks/hand")["source"], "api");
    call(&dev, "PUT", "/api/v1/tasks/other", &[], &document("mine", "true")).check_refusal(400, "PUN-305");
    call(&dev, "PUT", "/api/v1/tasks/mine", &[], &json!({ "name": "mine", "trigger": "manual" })).check_refusal(400, "PUN-305");
    call(&dev, "PUT", "/api/v1/tasks/mine", &[], &Value::Null).check_refusal(400, "PUN-305");
    call(&dev, "DELETE", "/api/v1/tasks/mine", &[("if-match", "\"v1\"")], &Value::Null).check_refusal(412, "PUN-440");
    assert_eq!(call(&dev, "DELETE", "/api/v1/tasks/mine?dry_run=true", &[], &Value::Null).json()["outcome"], "removed");
    assert_eq!(dev.get("/api/v1/tasks/mine")["removed"], false);
    assert_eq!(call(&dev, "DELETE", "/api/v1/tasks/mine", &[("if-match", "\"v2\"")], &Value::Null).status, 200);
    assert_eq!(dev.get("/api/v1/tasks/mine")["removed"], true);
    call(&dev, "DELETE", "/api/v1/tasks/mine", &[], &Value::Null).check_refusal(404, "PUN-303");
    let audit = dev.get("/api/v1/audit?task=mine&limit=10");
    let told: Vec<_> = audit["audit"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(told, ["remove", "trigger", "change", "create"]);
    // A restart takes nothing back, neither what was taken over here nor what was made here.
    put("", &[], "true");
    dev.stop();
    let dev = folder.dev();
    assert_eq!((&dev.get("/api/v1/tasks/hand")["source"], &dev.get("/api/v1/tasks/mine")["removed"]), (&json!("api"), &json!(false)));
}

#[test]
fn a_source_is_applied_to_what_its_author_has_seen() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let read = || request(dev.address(), "GET", "/api/v1/sources/mine", &[], b"");
    let apply = |tag: &str, command: &str| {
        call(&dev, "PUT", "/api/v1/sources/mine", &[("if-match", tag)], &json!({ "documents": [document("mine", command)] }))
    };
    let none = etag(&read());
    assert_eq!((read().json()["tasks"].clone(), apply(&none, "true").json()["created"].clone()), (json!(0), json!(["mine"])));
    apply(&none, "false").check_refusal(412, "PUN-440");
    apply("*", "false").check_refusal(412, "PUN-440");
    let seen = etag(&read());
    call(&dev, "PUT", "/api/v1/tasks/mine?source=mine", &[], &document("mine", "echo"));
    apply(&seen, "false").check_refusal(412, "PUN-440");
    assert_eq!(apply(&etag(&read()), "false").json()["changed"], json!(["mine"]));
    assert_eq!((&dev.get("/api/v1/sources/file")["tasks"], &dev.get("/api/v1/sources/mine")["tasks"]), (&json!(5), &json!(1)));
}

#[test]
fn a_preview_says_what_the_clock_does() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let fires = dev.get("/api/v1/tasks/nightly/next-fires?count=4&after=2027-03-26T12:00:00Z");
    let marks: Vec<_> = fires["next_fires"].as_array().unwrap().iter().map(|fire| (fire["utc"].clone(), fire["mark"].clone())).collect();
    let expected = [
        ("2027-03-27T01:30:00Z", "normal"),
        ("2027-03-28T01:00:00Z", "after_gap"),
        ("2027-03-29T00:30:00Z", "normal"),
        ("2027-03-30T00:30:00Z", "normal"),
    ];
    assert_eq!(marks, expected.map(|(at, mark)| (json!(at), json!(mark))));
    let mut changed = document("night", "true");
    changed["trigger"] = json!({ "cron": "30 2 * * *", "timezone": "Europe/Berlin" });
    let tried = call(&dev, "PUT", "/api/v1/tasks/night?dry_run=true", &[], &changed).json();
    assert_eq!(tried["next_fires"].as_array().unwrap().len(), 10);
    let coming = dev.get("/api/v1/coming?from=2027-03-27T00:00:00Z&to=2027-03-29T00:00:00Z");
    let at: Vec<_> = coming["fires"].as_array().unwrap().iter().map(|fire| fire["at"].as_str().unwrap()).collect();
    assert_eq!((at, &coming["next"]), (vec!["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z"], &Value::Null));
}

#[test]
fn a_minute_with_many_is_told_of_and_pages_end_with_minutes() {
    let tasks: String =
        (0..30).map(|number| format!("  - {{name: t{number:02}, trigger: {{cron: \"0 0 * * *\"}}, command: \"true\"}}\n")).collect();
    let folder = Folder::with(&format!("tasks:\n{tasks}  - {{name: late, trigger: {{cron: \"1 0 * * *\"}}, command: \"true\"}}\n"));
    let dev = folder.dev();
    let range = "from=2030-01-01T00:00:00Z&to=2030-01-03T00:00:00Z";
    let page = dev.get(&format!("/api/v1/coming?{range}&limit=10&herd=20"));
    assert_eq!(page["herds"], json!([{ "minute": "2030-01-01T00:00:00Z", "fires": 30 }]));
    assert_eq!((page["fires"].as_array().unwrap().len(), &page["next"]), (10, &json!("2030-01-01T00:01:00Z")));
    let all = dev.get(&format!("/api/v1/coming?{range}&limit=1000&herd=20"));
    assert_eq!((all["fires"].as_array().unwrap().len(), all["herds"].as_array().unwrap().len(), &all["next"]), (62, 2, &Value::Null));
    let paused = dev.cli(&["pause", "late"]);
    assert_eq!(paused.code, Some(0));
    let held = dev.get(&format!("/api/v1/coming?{range}&limit=1000"))["fires"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|fire| fire["paused"] == true)
        .count();
    assert_eq!(held, 2);
}

#[test]
fn a_key_makes_any_write_repeatable() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let key = [("idempotency-key", "k-1")];
    let put = |headers: &[(&str, &str)], command: &str| call(&dev, "PUT", "/api/v1/tasks/mine", headers, &document("mine", command));
    let first = put(&key, "true");
    assert_eq!(put(&[], "false").json()["version"], 2);
    let again = put(&key, "true");
    assert_eq!((again.status, &again.body, etag(&again)), (first.status, &first.body, etag(&first)));
    assert!(again.head.contains("idempotency-replayed: true") && !first.head.contains("idempotency-replayed"), "{again:?}");
    assert_eq!(dev.get("/api/v1/tasks/mine")["version"], 2);
    put(&key, "other").check_refusal(409, "PUN-306");
    put(&[("idempotency-key", "k-1"), ("if-match", "\"v2\"")], "true").check_refusal(409, "PUN-306");
    call(&dev, "POST", "/api/v1/pause", &key, &json!({})).check_refusal(409, "PUN-306");
    // A refusal is an answer, too.
    let refused = [("idempotency-key", "k-2")];
    call(&dev, "DELETE", "/api/v1/tasks/new", &refused, &Value::Null).check_refusal(404, "PUN-303");
    call(&dev, "PUT", "/api/v1/tasks/new", &[], &document("new", "true"));
    let kept = call(&dev, "DELETE", "/api/v1/tasks/new", &refused, &Value::Null);
    kept.check_refusal(404, "PUN-303");
    for bad in ["", "a b", &"x".repeat(256)] {
        call(&dev, "POST", "/api/v1/pause", &[("idempotency-key", bad)], &json!({})).check_refusal(400, "PUN-305");
    }
    assert_eq!(dev.get("/api/v1/pauses")["pauses"], json!([]));
    // It is kept over a restart. Reads have none.
    dev.stop();
    let dev = folder.dev();
    assert_eq!(call(&dev, "PUT", "/api/v1/tasks/mine", &key, &document("mine", "true")).body, first.body);
    assert_eq!(call(&dev, "GET", "/api/v1/pauses", &key, &Value::Null).status, 200);
}

#[test]
fn lists_are_filtered_and_paged() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    for number in 0..5 {
        dev.post("/api/v1/tasks/hand/trigger", Some(&format!("key-{number}")), &json!({}));
        dev.post("/api/v1/tasks/bad/trigger", None, &json!({}));
    }
    eventually("all have ended", || {
        (dev.get("/api/v1/status")["instances"] == json!({ "succeeded": 5, "dead_lettered": 5 })).then_some(())
    });
    let pages = |query: &str| {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = dev.get(&format!("/api/v1/instances?limit=2{query}{after}"));
            let listed = page["instances"].as_array().unwrap();
            assert!(listed.len() <= 2);
            found.extend(listed.iter().map(|instance| instance["id"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return found,
            }
        }
    };
    let all = pages("");
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (10, 10));
    assert_eq!(pages("&state=succeeded").len(), 5);
    assert_eq!(pages("&state=succeeded,dead_lettered,failed"), all);
    assert_eq!(pages("&state=dead_lettered&task=bad").len(), 5);
    assert_eq!((pages("&group=hands").len(), pages("&group=none").len()), (5, 0));
    assert_eq!((pages("&worker=local"), pages("&worker=none").len()), (all.clone(), 0));
    assert_eq!((pages("&origin=manual"), pages("&origin=schedule").len()), (all.clone(), 0));
    assert_eq!(pages("&key=key-3").len(), 1);
    assert_eq!((pages("&created_after=2020-01-01T00:00:00Z"), pages("&created_before=2020-01-01T00:00:00Z").len()), (all.clone(), 0));
    assert_eq!((pages("&fired_after=2020-01-01T00:00:00Z"), pages("&fired_before=2020-01-01T00:00:00Z").len()), (all, 0));
    let tasks = |query: &str| {
        let page = dev.get(&format!("/api/v1/tasks?{query}"));
        page["tasks"].as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tasks("q=IGHT"), ["nightly"]);
    assert_eq!(tasks("prefix=s"), ["slow"]);
    assert_eq!(
        (tasks("group=hands"), tasks("owner=ops"), tasks("tag=zone")),
        (vec!["hand".into()], vec!["nightly".into()], vec!["nightly".into()])
    );
    assert_eq!((tasks("tag=zone=eu"), tasks("tag=zone=us").len()), (vec!["nightly".into()], 0));
    assert_eq!((tasks("trigger=cron"), tasks("trigger=manual&limit=2")), (vec!["nightly".into()], vec!["bad".into(), "flow".into()]));
    assert_eq!(dev.cli(&["pause", "--group", "hands"]).code, Some(0));
    assert_eq!((tasks("paused=true"), tasks("paused=false").len(), tasks("enabled=false").len()), (vec!["hand".into()], 4, 0));
    let page = dev.get("/api/v1/tasks?trigger=manual&limit=2");
    assert_eq!(tasks(&format!("trigger=manual&after={}", page["next"].as_str().unwrap())), ["hand", "slow"]);
}

#[test]
fn what_is_no_request_is_refused_with_a_code() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let deep = "[".repeat(100_000);
    let deep_document = format!("{{\"name\":\"x\",\"payload_schema\":{}1{}}}", "{\"a\":".repeat(500), "}".repeat(500));
    let long = "x".repeat(5_000);
    let reads = [
        "/api/v1/instances?limit=0",
        "/api/v1/instances?limit=1001",
        "/api/v1/instances?limit=-1",
        "/api/v1/instances?limit=99999999999999999999999",
        "/api/v1/instances?limit=1&limit=2",
        "/api/v1/instances?states=failed",
        "/api/v1/instances?state=",
        "/api/v1/instances?state=failed,,timed_out",
        &format!("/api/v1/instances?state={}", "failed,".repeat(1_000)),
        "/api/v1/instances?origin=nowhere",
        "/api/v1/instances?after=1",
        "/api/v1/instances?after=1_1_1_1&before=1_1_1_1",
        "/api/v1/instances?after=99999999999999999999_1_1_1",
        "/api/v1/instances?created_after=yesterday",
        "/api/v1/instances/1",
        "/api/v1/instances/%FF",
        "/api/v1/tasks?trigger=sometimes",
        "/api/v1/tasks/hand/next-fires?count=1001",
        "/api/v1/tasks/hand/versions/one",
        "/api/v1/tasks/hand/diff?to=0",
        "/api/v1/tasks/hand/days?days=31",
        "/api/v1/coming?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
        "/api/v1/coming?from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z",
        "/api/v1/coming?herd=1",
        "/api/v1/audit?after=9223372036854775808",
        "/api/v1/events?kinds=all",
        "/api/v1/events?instance=x",
        &format!("/api/v1/tasks?q={}&no_such_field=1", &long),
    ];
    for path in reads {
        let code = if path.contains("?states=") || path.contains("no_such_field") { "PUN-446" } else { "PUN-305" };
        request(dev.address(), "GET", path, &[], b"").check_refusal(400, code);
    }
    let json = ("content-type", "application/json");
    let too_large = vec![b' '; (1 << 20) + 1];
    let writes: [(&str, &[u8], u16, &str); 9] = [
        ("/api/v1/pause", b"{\"by\": \"\xff\"}", 400, "PUN-305"),
        ("/api/v1/pause", deep.as_bytes(), 400, "PUN-305"),
        ("/api/v1/pause", b"{", 400, "PUN-305"),
        ("/api/v1/pause", b"[]", 400, "PUN-305"),
        ("/api/v1/pause", b"{\"by\": \"me\", \"by\": \"you\"}", 400, "PUN-305"),
        ("/api/v1/pause", &too_large, 413, "PUN-312"),
        ("/api/v1/tasks/hand/nothing", b"{}", 404, "PUN-301"),
        ("/api/v1/tasks", b"{}", 405, "PUN-302"),
        ("/openapi.json", b"{}", 405, "PUN-302"),
    ];
    for (path, body, status, code) in writes {
        request(dev.address(), "POST", path, &[json], body).check_refusal(status, code);
    }
    // The same under a key, where the body is read before anything else.
    request(dev.address(), "POST", "/api/v1/pause", &[json, ("idempotency-key", "k")], &too_large).check_refusal(413, "PUN-312");
    request(dev.address(), "POST", "/api/v1/pause", &[("content-type", "text/plain")], b"{}").check_refusal(400, "PUN-305");
    request(dev.address(), "PUT", "/api/v1/tasks/x", &[json], deep_document.as_bytes()).check_refusal(400, "PUN-305");
    request(dev.address(), "PUT", "/api/v1/tasks/x", &[json], deep.as_bytes()).check_refusal(400, "PUN-305");
    let by = json!({ "by": "x".repeat(257) }).to_string();
    request(dev.address(), "POST", "/api/v1/pause", &[json], by.as_bytes()).check_refusal(400, "PUN-305");
    assert_eq!(dev.get("/api/v1/pauses")["pauses"], json!([]));
}

/// An event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

#[test]
fn accounts_are_as_the_document_says() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let described = Described::of(&dev);
    let password = "correct horse battery";
    let admin = json!([{ "role": "admin" }]);
    let made = call(&dev, "POST", "/api/v1/users", &[], &json!({ "name": "root", "password": password, "grants": admin }));
    assert_eq!(made.status, 201, "{made:?}");
    described.check("POST", "/api/v1/users", &made);
    let signed_in = call(&dev, "POST", "/api/v1/sign-in", &[], &json!({ "name": "root", "password": password }));
    described.check("POST", "/api/v1/sign-in", &signed_in);
    let cookie = signed_in.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().split(';').next().unwrap().to_owned();
    let csrf = signed_in.json()["csrf"].as_str().unwrap().to_owned();
    let session = [("cookie", &*cookie), ("x-csrf-token", &*csrf)];
    let ask = |method: &str, path: &str, address: &str, body: Value| {
        let answer = call(&dev, method, address, &session, &body);
        assert!((200..300).contains(&answer.status), "{method} {address}: {answer:?}");
        described.check(method, path, &answer);
        answer.json()
    };
    ask("POST", "/api/v1/users", "/api/v1/users", json!({ "name": "ann", "grants": [{ "role": "viewer", "group": "a" }] }));
    ask("PATCH", "/api/v1/users/{user}", "/api/v1/users/ann", json!({ "disabled": true }));
    ask("GET", "/api/v1/users", "/api/v1/users?limit=1", Value::Null);
    ask("GET", "/api/v1/users/{user}", "/api/v1/users/ann", Value::Null);
    ask("PUT", "/api/v1/users/{user}/password", "/api/v1/users/ann/password", json!({ "password": "three more words" }));
    ask("DELETE", "/api/v1/users/{user}", "/api/v1/users/ann", json!({ "reason": "she has left" }));
    let token = ask("POST", "/api/v1/tokens", "/api/v1/tokens", json!({ "name": "ci" }));
    assert_eq!(ask("GET", "/api/v1/tokens", "/api/v1/tokens", Value::Null)["tokens"][0]["token"], Value::Null, "it is told once");
    ask("DELETE", "/api/v1/tokens/{token}", &format!("/api/v1/tokens/{}", token["id"]), json!({}));
    assert_eq!(ask("GET", "/api/v1/me", "/api/v1/me", Value::Null)["by"], "session");
    // Everywhere but here, and then here too.
    let other = call(&dev, "POST", "/api/v1/sign-in", &[], &json!({ "name": "root", "password": password }));
    assert_eq!(other.status, 200);
    let sessions = |path: &str| ask("GET", "/api/v1/users/{user}/sessions", path, Value::Null)["sessions"].as_array().unwrap().clone();
    assert_eq!(sessions("/api/v1/users/root/sessions").len(), 2);
    ask("DELETE", "/api/v1/users/{user}/sessions", "/api/v1/users/root/sessions?others=true", json!({}));
    let left = sessions("/api/v1/users/root/sessions");
    assert_eq!((left.len(), &left[0]["current"]), (1, &json!(true)));
    ask("POST", "/api/v1/sign-out", "/api/v1/sign-out", json!({}));
    call(&dev, "GET", "/api/v1/me", &session, &Value::Null).check_refusal(401, "PUN-403");
    dev.stop();
}

/// Stored tasks have days, and no name for them.
#[test]
fn calendars_are_told_by_their_days() {
    let days = "{exclude: [2027-01-01, 2027-02-06..2027-02-12], include: [2027-02-20]}";
    let file = format!(
        "calendars:\n  holidays: {days}\n  other: {{exclude: [2027-05-01]}}\ntasks:\n\
         \x20 - {{name: a, trigger: {{cron: \"0 9 * * *\", timezone: UTC, calendar: holidays}}, command: x}}\n\
         \x20 - {{name: b, trigger: {{cron: \"0 8 * * *\", timezone: UTC, calendar: other}}, command: x, group: g}}\n\
         \x20 - {{name: c, trigger: {{cron: \"0 7 * * *\", timezone: UTC, calendar: {days}}}, command: x}}\n\
         \x20 - {{name: d, trigger: manual, command: x}}\n"
    );
    let folder = Folder::with(&file);
    let dev = folder.dev();
    let described = Described::of(&dev);
    let answer = request(dev.address(), "GET", "/api/v1/calendars", &[], b"");
    described.check("GET", "/api/v1/calendars", &answer);
    let all = answer.json();
    let told: Vec<_> = all["calendars"].as_array().unwrap().iter().map(|one| (&one["tasks"], &one["days"])).collect();
    assert_eq!(told, [(&json!(["a", "c"]), &json!(9)), (&json!(["b"]), &json!(1))], "{all}");
    assert_eq!((&all["calendars"][0]["include"], &all["next"]), (&json!(["2027-02-20"]), &Value::Null));
    // Page by page the same calendar has the same id.
    let first = dev.get("/api/v1/calendars?limit=1");
    assert_eq!((&first["calendars"][0]["tasks"], &first["next"]), (&json!(["a"]), &json!("a")));
    let second = dev.get("/api/v1/calendars?after=a");
    assert_eq!(second["calendars"][1]["id"], first["calendars"][0]["id"], "{second}");
    assert_eq!(dev.get("/api/v1/calendars?group=g")["calendars"].as_array().unwrap().len(), 1);
    dev.stop();
}

/// However much changes.
#[test]
fn that_something_has_changed_is_told_once_a_second_at_most() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let mut all = Listening::start(dev.address(), "?kinds=change", None).unwrap();
    all.until(|event| event.kind == "scope");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                dev.post("/api/v1/tasks/hand/trigger", None, &json!({}));
            }
        });
        let is_change = |event: &Event| event.kind == "change";
        all.until(is_change);
        let begun = std::time::Instant::now();
        (0..3).for_each(|_| assert_eq!(all.until(is_change).data, json!({})));
        let took = begun.elapsed();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(took > Duration::from_millis(2_500), "three in {took:?}");
    });
    dev.stop();
}

/// Listens to events.
pub(crate) struct Listening(BufReader<TcpStream>);

impl Listening {
    pub(crate) fn start(address: SocketAddr, query: &str, last: Option<&str>) -> Result<Listening, u16> {
        let last = last.map(|last| ("last-event-id", last));
        Listening::with(address, query, last.as_slice())
    }

    /// As whoever shows these headers.
    pub(crate) fn with(address: SocketAddr, query: &str, headers: &[(&str, &str)]) -> Result<Listening, u16> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "GET /api/v1/events{query} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 200 {
            return Err(status);
        }
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Ok(Listening(reader))
    }

    /// The next event, whatever stands between.
    #[track_caller]
    fn next(&mut self) -> Event {
        let mut event = Event { id: String::new(), kind: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("event", kind)) => event.kind = kind.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line.trim_end().is_empty() && !event.kind.is_empty() => return event,
                _ => {}
            }
        }
    }

    /// The next event of which this holds.
    #[track_caller]
    pub(crate) fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next();
            if is_it(&event) {
                return event;
            }
        }
    }
}

fn is_instance_in(state: &str) -> impl Fn(&Event) -> bool {
    move |event| event.kind == "instance" && event.data["state"] == state
}

#[test]
fn who_listens_hears_what_is_committed_and_goes_on_where_he_was() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let described = Described::of(&dev);
    assert!(described.0["components"]["schemas"]["InstanceEvent"].is_object());
    let mut all = Listening::start(dev.address(), "?kinds=instance,task,worker", None).unwrap();
    let scope = all.until(|event| event.kind == "scope");
    assert_eq!(
        (scope.data["partitions"].as_array().unwrap().len(), &scope.data["of"], &scope.data["looks"]),
        (64, &json!(64), &json!(false))
    );
    assert_eq!(all.until(|event| event.kind == "worker").data["worker"]["id"], "local");
    let mut of_bad = Listening::start(dev.address(), "?task=bad", None).unwrap();
    of_bad.until(|event| event.kind == "scope");
    dev.post("/api/v1/tasks/hand/trigger", None, &json!({}));
    let ended = all.until(is_instance_in("succeeded"));
    assert_eq!((&ended.data["task"], ended.data["steps"].as_u64().is_some_and(|steps| steps >= 3)), (&json!("hand"), true));
    dev.post("/api/v1/tasks/bad/trigger", None, &json!({}));
    // Of another task it hears nothing.
    let first = of_bad.until(|event| event.kind == "instance");
    assert_eq!(first.data["task"], "bad");
    let dead = all.until(is_instance_in("dead_lettered"));
    drop(all);
    // Who comes back hears what came behind the event that he names, once.
    let mut again = Listening::start(dev.address(), "", Some(&ended.id)).unwrap();
    let mut missed = Vec::new();
    loop {
        let event = again.until(|event| event.kind == "instance");
        missed.push(event.id.clone());
        assert_eq!(event.data["task"], "bad", "{event:?}");
        if event.id == dead.id {
            break;
        }
    }
    assert_eq!(missed.iter().collect::<BTreeSet<_>>().len(), missed.len());
    // Of another life nothing is known.
    let mut stranger = Listening::start(dev.address(), "", Some("1-5")).unwrap();
    assert_eq!(stranger.until(|event| event.kind == "lost").data["count"], Value::Null);
    call(&dev, "PUT", "/api/v1/tasks/new", &[], &document("new", "true"));
    assert_eq!(again.until(|event| event.kind == "task").data["task"], "new");
    assert_eq!(Listening::start(dev.address(), "?task=none", None).err(), Some(404));
}

#[test]
fn there_are_only_so_many_listeners() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    // Half of all, since all of them are whoever is at this machine.
    let mut all: Vec<_> = (0..32).map(|_| Listening::start(dev.address(), "", None).unwrap()).collect();
    request(dev.address(), "GET", "/api/v1/events", &[], b"").check_refusal(503, "PUN-443");
    all.pop();
    eventually("a place is free", || Listening::start(dev.address(), "", None).ok());
    // They hold nothing up, and the process ends while they listen.
    dev.post(&format!("/api/v1/tasks/{}/trigger", escaped("hand")), None, &json!({}));
    dev.instance_in("hand", "succeeded");
    dev.stop();
}
