//! Rows of the collected cases that only a whole Punctual shows, and whether what it tells people is so.

use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually, request};

const FILE: &str = r#"
tasks:
  - {name: tick, trigger: {fixed_rate: 100ms}, command: echo tick}
  - {name: hand, trigger: manual, command: "true"}
  - {name: long, trigger: manual, command: exec sleep 60}
  - {name: bad, trigger: manual, command: exit 3, retry: {max_attempts: 2, first: 100ms, jitter: none}}
  - {name: fails, trigger: manual, command: exit 3, retry: {on: {exit_codes: [7]}}}
  - {name: thirds, trigger: manual, shards: 3, command: 'test "$PUNCTUAL_SHARD" != 1'}
  - {name: everywhere, trigger: manual, routing: broadcast, command: "true"}
  - name: squares
    trigger: manual
    map: {list: {command: "echo '[1, 2, 3]' > $PUNCTUAL_ITEMS"}, reduce: {command: "true"}}
    command: "true"
  - name: flow
    trigger: manual
    nodes:
      - {name: first, command: "true"}
      - {name: check, after: first, command: test -e mended}
      - {name: last, after: check, command: "true"}
"#;

fn made(dev: &Dev, arguments: &[&str]) -> String {
    let made = dev.cli(&[arguments, &["--json"]].concat());
    let made = made.json();
    made["instance"]["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
}

fn ended(dev: &Dev, id: &str) -> Value {
    eventually("its end", || Some(dev.instance(id)).filter(|instance| !instance["ended_at"].is_null()))
}

fn put(dev: &Dev, path: &str, body: &Value) -> (u16, Value) {
    let answer = request(dev.address(), "PUT", path, &[("content-type", "application/json")], body.to_string().as_bytes());
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
}

/// C337: what runs leaves no file behind: neither where the database is, nor where commands get theirs from. Logs are in the database; `dev`
/// keeps them, a server drops them by month.
#[test]
fn runs_leave_no_files_behind() {
    let folder = Folder::with(FILE);
    let temporary = Folder::new();
    let mut command = folder.dev_command(&[]);
    command.env("TMPDIR", temporary.path(""));
    let dev = Dev::spawn(command);
    dev.address();
    let files = |folder: &Folder| std::fs::read_dir(folder.path("")).unwrap().count();
    let succeeded = || dev.get("/api/v1/status")["instances"]["succeeded"].as_u64().unwrap_or(0);
    eventually("a few runs", || (succeeded() >= 5).then_some(()));
    let before = files(&folder);
    ended(&dev, &made(&dev, &["trigger", "squares"]));
    eventually("many more runs", || (succeeded() >= 60).then_some(()));
    assert_eq!(files(&folder), before, "as many as before");
    dev.stop();
    let left: Vec<_> = std::fs::read_dir(temporary.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    // That nothing is kept can't be asked for by a number that means something else.
    for months in ["0", "-1", "x"] {
        let run = folder.punctual(&["server", "--database", "mysql://a:b@127.0.0.1:1/x", &format!("--keep-months={months}")]);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains("--keep-months"), "{}", run.stderr);
    }
}

/// C341: escapes for a terminal in what a command writes, answers, and is told to do, are text on every page, and what they would do is there to
/// be read.
#[test]
fn escapes_for_terminals_are_text() {
    let folder = Folder::with(
        r#"
tasks:
  - name: "<script>alert(1)</script>"
    trigger: manual
    command: |
      printf '\033[2J\033]0;owned\007<script>alert(2)</script>\033[31mred\n'
      printf 'answer \033[31m<script>alert(3)</script>' > "$PUNCTUAL_RESULT"
"#,
    );
    let dev = folder.dev();
    let id = made(&dev, &["trigger", "<script>alert(1)</script>", "--reason", "why \u{1b}[31m<script>alert(5)</script>"]);
    ended(&dev, &id);
    for path in [format!("/instances/{id}"), "/instances".to_owned(), "/".to_owned(), "/audit".to_owned(), "/tasks".to_owned()] {
        let page = request(dev.address(), "GET", &path, &[], b"");
        assert_eq!(page.status, 200, "{path}");
        assert!(page.head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{}", page.head);
        assert!(!page.body.contains('\u{1b}') && !page.body.contains('\u{7}'), "{path}: {}", page.body);
        assert!(!page.body.contains("<script>alert"), "{path}: {}", page.body);
    }
    let story = request(dev.address(), "GET", &format!("/instances/{id}"), &[], b"").body;
    for shown in ["␛]0;owned␇&#60;script&#62;alert(2)&#60;/script&#62;red", "answer ␛[31m&#60;script&#62;alert(3)"] {
        assert!(story.contains(shown), "{shown}: {story}");
    }
    let audit = request(dev.address(), "GET", "/audit", &[], b"").body;
    assert!(audit.contains("why ␛[31m&#60;script&#62;alert(5)"), "{audit}");
    for arguments in [&["instance", &id][..], &["instances"], &["audit"], &["status"]] {
        let shown = dev.cli(arguments).stdout;
        assert!(!shown.contains('\u{1b}') || arguments == ["instance", &id], "{arguments:?}: {shown}");
    }
    dev.stop();
}

/// C343, C344, C385: what makes no sense is refused with its name, the stored version stays, and the old schedule goes on.
#[test]
fn a_refused_edit_changes_nothing() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let task = |name: &str| dev.get(&format!("/api/v1/tasks/{name}"));
    let before = (task("tick")["version"].clone(), task("flow")["version"].clone());
    let node = |name: &str, after: &[&str]| json!({ "name": name, "after": after, "command": "true" });
    let flow = |nodes: Vec<Value>| json!({ "name": "flow", "trigger": "manual", "nodes": nodes });
    // As the program that reads files hands it over, but for what is wrong with it.
    let document = |edit: &Value| {
        let mut document = task(edit["name"].as_str().unwrap())["definition"].clone();
        if let Some(nodes) = edit["nodes"].as_array() {
            let some = document["nodes"][0].clone();
            let with = |node: &Value| {
                let mut one = some.clone();
                (one["name"], one["after"]) = (node["name"].clone(), node["after"].clone());
                one
            };
            document["nodes"] = nodes.iter().map(with).collect();
        } else {
            document["trigger"] = edit["trigger"].clone();
        }
        document
    };
    let ring = vec![node("s1", &["s4"]), node("s2", &["s4"]), node("s3", &["s1", "s2"]), node("s4", &["s3"])];
    let zone = json!({ "name": "tick", "trigger": { "cron": "* * * * * *", "timezone": "Asia/Mumbai" }, "command": "true" });
    for (edit, code, named) in [
        (flow(vec![node("a", &["a"])]), "PUN-162", "node `a` comes after itself"),
        (flow(ring), "PUN-162", "s1 > s3 > s4 > s1"),
        (flow(vec![node("a", &[]), node("b", &["a", "a"])]), "PUN-163", "more than once"),
        (flow(vec![node("a", &["gone"])]), "PUN-161", "`gone`"),
        (zone, "PUN-115", "Asia/Mumbai"),
    ] {
        let name = edit["name"].as_str().unwrap().to_owned();
        folder.write("edit.yaml", &json!({ "tasks": [edit.clone()] }).to_string());
        let applied = dev.cli(&["apply", "--source", "dev", folder.path("edit.yaml").to_str().unwrap()]);
        assert_eq!(applied.code, Some(2), "{}", applied.stderr);
        assert!(applied.stderr.contains(code) && applied.stderr.contains(named), "{}", applied.stderr);
        // Past the program that reads files, too.
        let (status, refused) = put(&dev, &format!("/api/v1/tasks/{name}?take_over=true"), &document(&edit));
        assert!(status == 400 || status == 422, "{status} {refused}");
        assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains(named)), "{refused}");
        assert_eq!((task("tick")["version"].clone(), task("flow")["version"].clone()), before, "{refused}");
    }
    let ticks = dev.instances("tick").len();
    eventually("it ticks on", || (dev.instances("tick").len() > ticks + 2).then_some(()));
    dev.stop();
}

/// C333: what is further away than a hundred years is refused with the reason, and what is just within that is kept as it is.
#[test]
fn a_delay_is_kept_or_refused() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let trigger = |delay: u64| dev.post("/api/v1/tasks/hand/trigger", None, &json!({ "delay_ms": delay }));
    let day = 86_400_000;
    for days in [24, 25, 50, 3_652, 36_600] {
        let answer = trigger(days * day);
        assert_eq!(answer.status, 202, "{answer:?}");
        let instance = &answer.json()["instance"];
        assert_eq!(instance["state"], "waiting", "{days} d: {instance}");
        let at = |field: &str| instance[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let late = at("due_at") - at("created_at") - (days * day) as i64;
        assert!((-1_000..1_000).contains(&late), "{days} d: {instance}");
    }
    let year_9999 = 251_000_000_000_000;
    for delay in [36_600 * day + 1, year_9999] {
        let answer = trigger(delay);
        answer.check_refusal(400, "PUN-305");
        assert!(answer.body.contains("a hundred years"), "{}", answer.body);
    }
    assert_eq!(dev.cli(&["trigger", "hand", "--delay", "36601d"]).code, Some(2));
    assert_eq!(dev.instances("hand").len(), 5);
    dev.stop();
}

/// C335, C348: whoever looks at the cluster is told what has failed.
#[test]
fn what_has_failed_is_told() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    assert!(!dev.cli(&["status"]).stdout.contains("FAILED"));
    let run = made(&dev, &["trigger", "flow"]);
    assert_eq!(ended(&dev, &run)["state"], "failed");
    let status = dev.cli(&["status"]).stdout;
    let line = status.lines().find(|line| line.trim_start().starts_with(&run)).unwrap_or_else(|| panic!("{status}"));
    assert!(line.contains("flow") && line.contains("failed") && !status.contains("dead letter"), "{status}");
    let overview = request(dev.address(), "GET", "/", &[], b"").body;
    assert!(overview.contains("Firings that failed in the last hour: 1, the latest of flow"), "{overview}");
    let dead = made(&dev, &["trigger", "bad"]);
    assert_eq!(ended(&dev, &dead)["state"], "dead_lettered");
    let status = dev.cli(&["status"]).stdout;
    assert!(status.contains("1 dead letters wait") && status.contains(&dead), "{status}");
    let told = dev.get("/api/v1/cluster");
    assert_eq!((&told["failures"][0]["id"], &told["dead_letters"]), (&json!(dead), &json!(1)));
    dev.stop();
}

#[test]
fn a_divided_firing_shows_its_parts() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let story = |task: &str| {
        let id = made(&dev, &["trigger", task]);
        let whole = ended(&dev, &id);
        let parts: Vec<_> = whole["parts"].as_array().unwrap_or_else(|| panic!("{whole:#}")).clone();
        (parts, dev.cli(&["instance", &id]).stdout)
    };
    let (parts, shown) = story("thirds");
    let states: Vec<_> = parts.iter().map(|part| (part["index"].clone(), part["state"].clone())).collect();
    let state = |index: u64, state: &str| (json!(index), json!(state));
    assert_eq!(states, [state(0, "succeeded"), state(1, "failed"), state(2, "succeeded")], "{parts:#?}");
    let line = shown.lines().find(|line| line.contains(parts[1]["instance"].as_str().unwrap())).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.trim_start().starts_with('2') && line.contains("failed"), "{line}");
    let (parts, shown) = story("everywhere");
    assert_eq!(parts.len(), 1, "one worker");
    assert!(shown.contains(parts[0]["key"].as_str().unwrap()), "{shown}");
    let (parts, shown) = story("squares");
    let of: Vec<_> = parts.iter().map(|part| (part["part"].clone(), part["index"].clone())).collect();
    let item = |index: u64| (Value::Null, json!(index));
    assert_eq!(of, [(json!("list"), Value::Null), item(0), item(1), item(2), (json!("reduce"), Value::Null)], "{parts:#?}");
    assert!(shown.contains("list") && shown.contains("reduce") && !shown.contains("more; see"), "{shown}");
    let whole = dev.instance(&made(&dev, &["trigger", "hand"]));
    assert_eq!(whole["parts"], Value::Null);
    dev.stop();
}

#[test]
fn what_could_not_be_done_is_said_with_the_exit_code() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let id = made(&dev, &["trigger", "hand"]);
    ended(&dev, &id);
    for verb in ["cancel", "kill"] {
        let late = dev.cli(&[verb, &id]);
        assert_eq!((late.code, late.stdout.trim()), (Some(1), format!("{id} had ended already: succeeded").as_str()));
        let late = dev.cli(&[verb, &id, "--json"]);
        assert_eq!((late.code, &late.json()["cancelled"]), (Some(1), &json!(false)));
    }
    assert_eq!(dev.cli(&["dead-letters", "replay", &id]).code, Some(1), "it is none");
    let id = made(&dev, &["trigger", "long"]);
    dev.instance_in("long", "running");
    let killed = dev.cli(&["kill", &id]);
    assert_eq!(killed.code, Some(0), "{}", killed.stdout);
    assert_eq!(dev.cli(&["trigger", "hand", "--key", "k", "--delay", "1h"]).code, Some(0));
    assert_eq!(dev.cli(&["cancel", "hand", "--key", "k"]).code, Some(0));
    // It never came: somebody did not want it.
    for arguments in [&["cancel", "hand", "--key", "k"][..], &["trigger", "hand", "--key", "k", "--reschedule", "2h"]] {
        let late = dev.cli(arguments);
        assert_eq!(late.code, Some(1), "{}", late.stdout);
        assert!(late.stdout.starts_with("it was cancelled before: "), "{}", late.stdout);
    }
    assert_eq!(dev.cli(&["trigger", "hand", "--key", "now"]).code, Some(0));
    let late = dev.cli(&["trigger", "hand", "--key", "now", "--reschedule", "2h"]);
    assert_eq!(late.code, Some(1));
    assert!(late.stdout.starts_with("its time had come: "), "{}", late.stdout);
    // What is refused for what it says is another matter than what can't be done.
    for (arguments, code) in [
        (&["instance", "no-id"][..], 2),
        (&["instances", "--state", "unknown"], 2),
        (&["instance", "1-99999"], 1),
        (&["tasks", "never"], 1),
        (&["instances", "--limit", "100000"], 2),
    ] {
        let run = dev.cli(arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
    }
    dev.stop();
}

#[test]
fn a_rerun_is_what_was_asked_for_or_is_refused() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let run = made(&dev, &["trigger", "flow"]);
    assert_eq!(ended(&dev, &run)["state"], "failed");
    let again = dev.cli(&["rerun", &run, "--from", "check"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stdout.trim_end().ends_with(&format!("again of {run}")), "{}", again.stdout);
    let second = again.stdout.split_whitespace().next().unwrap().to_owned();
    assert_eq!(dev.instance(&second)["run"], 2);
    let same = dev.cli(&["rerun", &run, "--from", "check", "--reason", "once more"]);
    assert!(same.code == Some(0) && same.stdout.starts_with(&second), "{} {}", same.stdout, same.stderr);
    for other in [&["--from", "first"][..], &["--from", "check", "--cascade"], &[]] {
        let refused = dev.cli(&[&["rerun", &run], other].concat());
        assert_eq!(refused.code, Some(1), "{other:?}: {}", refused.stdout);
        assert!(refused.stderr.starts_with("PUN-316: "), "{}", refused.stderr);
    }
    // Dead letters, by their names: as what they run again.
    let dead = made(&dev, &["trigger", "bad"]);
    ended(&dev, &dead);
    let replayed = dev.cli(&["dead-letters", "replay", &dead]);
    let line = replayed.stdout.lines().nth(1).unwrap_or_else(|| panic!("{}", replayed.stdout)).to_owned();
    let new = line.strip_prefix(&format!("{dead} runs again as ")).unwrap_or_else(|| panic!("{line}"));
    assert_eq!(dev.instance(new)["run"], 2);
    dev.stop();
}

#[test]
fn the_audit_names_nodes_and_what_was_said_of_them() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    dev.cli(&["pause", "flow"]);
    let run = made(&dev, &["trigger", "flow"]);
    dev.cli(&["resume", "flow"]);
    let run_ended = ended(&dev, &run);
    assert_eq!(run_ended["state"], "failed");
    let id = made(&dev, &["rerun", &run, "--from", "check"]);
    ended(&dev, &id);
    let slow = Folder::new();
    slow.write(
        "slow.yaml",
        "tasks:\n  - name: slow\n    trigger: manual\n    nodes:\n      - {name: wait, command: exec sleep 60}\n      - {name: done, after: wait, command: 'true'}\n",
    );
    assert_eq!(dev.cli(&["apply", "--source", "slow", slow.path("slow.yaml").to_str().unwrap()]).code, Some(0));
    let run = made(&dev, &["trigger", "slow"]);
    dev.instance_in("slow", "running");
    assert_eq!(dev.cli(&["mark-succeeded", &run, "done"]).code, Some(0));
    let audited = dev.get(&format!("/api/v1/audit?instance={run}"));
    assert_eq!((&audited["audit"][0]["action"], &audited["audit"][0]["subject"]), (&json!("mark_node"), &json!("done: succeeded")));
    dev.cli(&["kill", &run]);
    dev.stop();
}
