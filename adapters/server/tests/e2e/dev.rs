//! What a user gets, from the start to Ctrl-C.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually, is_running, repository, within};

fn outputs(dev: &Dev, instance: &Value) -> Vec<String> {
    let logs = dev.get(&format!("/api/v1/instances/{}/logs", instance["id"].as_str().unwrap()));
    logs["outputs"].as_array().unwrap().iter().map(|output| output["output"].as_str().unwrap().to_owned()).collect()
}

fn transitions(instance: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let transitions = instance["transitions"].as_array().unwrap().iter();
    transitions.map(|transition| format!("{} {}", text(&transition["to"]), text(&transition["cause"]))).collect()
}

#[test]
fn the_quick_start_runs() {
    let example = std::fs::read_to_string(repository().join("examples/quickstart.yaml")).unwrap();
    let mut quick = example;
    for (slow, fast) in [
        ("\"* * * * *\"", "\"* * * * * *\""),
        ("fixed_rate: 5s", "fixed_rate: 300ms"),
        ("fixed_delay: 10s", "fixed_delay: 400ms"),
        ("delay: 15s", "delay: 1s"),
        ("fixed_rate: 1m", "fixed_rate: 1s"),
        ("first: 2s", "first: 200ms"),
        ("fixed_rate: 15s", "fixed_rate: 500ms"),
        ("fixed_rate: 30s", "fixed_rate: 1s"),
        ("sleep 2", "sleep 0.2"),
    ] {
        assert!(quick.contains(slow), "the example has no {slow}");
        quick = quick.replace(slow, fast);
    }
    let folder = Folder::with(&quick);
    let dev = folder.dev();
    // The example asks Punctual itself, on its usual port.
    let address = dev.address().to_string();
    folder.write("tasks.yaml", &quick.replace("127.0.0.1:8650", &address));
    dev.stop();
    let dev = folder.dev_with(&["--listen", &address]);

    for (task, count) in [("every-minute", 2), ("heartbeat", 3), ("sweep", 2), ("health", 2)] {
        eventually(task, || (dev.instances(task).iter().filter(|one| one["state"] == "succeeded").count() >= count).then_some(()));
    }
    let given_up = dev.instance_in("flaky", "dead_lettered");
    assert_eq!((&given_up["attempt"], &given_up["failures"], &given_up["code"]), (&json!(3), &json!(3), &json!(3)));
    assert_eq!(outputs(&dev, &given_up), ["attempt goes wrong\n"; 3]);
    let welcome = dev.instance_in("welcome", "succeeded");
    assert_eq!(outputs(&dev, &welcome), ["hello, this runs once\n"]);

    let greeted = dev.cli(&["trigger", "greet", "--payload", "world"]);
    assert_eq!(greeted.code, Some(0), "{}", greeted.stderr);
    assert_eq!(outputs(&dev, &dev.instance_in("greet", "succeeded")), ["hello, world\n"]);
    assert_eq!(dev.cli(&["trigger", "count"]).code, Some(0));
    let told = outputs(&dev, &dev.instance_in("tell", "succeeded")).concat();
    assert!(told.ends_with(" files\n") && told.split(' ').next().is_some_and(|count| count.parse::<u32>().is_ok()), "{told}");
    let is_run = |one: &Value| !one["nodes_count"].is_null() && one["state"] == "succeeded";
    let baked = eventually("a run of the bakery", || dev.instances("bakery").into_iter().find(is_run));
    let baked = dev.instance(baked["id"].as_str().unwrap());
    let nodes: Vec<_> = baked["nodes"].as_array().unwrap().iter().map(|node| (&node["node"], &node["state"])).collect();
    let expected = [("bake", "succeeded"), ("brew", "succeeded"), ("sell", "succeeded"), ("apologise", "skipped")];
    assert_eq!(
        nodes,
        expected.map(|(node, state)| (json!(node), json!(state))).iter().map(|(node, state)| (node, state)).collect::<Vec<_>>()
    );
    let sold = outputs(&dev, &dev.instance(baked["nodes"][2]["instance"].as_str().unwrap())).concat();
    assert_eq!(sold, "selling {\"bake\":{\"loaves\": 12 },\"brew\":null}\n");
    assert_eq!(dev.instances("welcome").len(), 1, "a delay fires once");
    let printed = dev.stop();
    for what in ["Punctual 0.1.0, time zones ", "changed: health", "  heartbeat  ", "succeeded in ", "Stopped; everything"] {
        assert!(printed.contains(what), "{what}: {printed}");
    }
}

#[test]
fn the_same_file_changes_nothing_an_edit_makes_a_version_and_nothing_fires_by_an_edit() {
    let file = |middle: &str| format!("tasks:\n  - {{name: a, trigger: {{fixed_rate: 1h}}, command: 'true'}}\n{middle}");
    let b = "  - {name: b, trigger: {delay: 1h}, command: echo one}\n";
    let folder = Folder::with(&file(b));
    let first = folder.dev();
    let next_fire = eventually("a fire time", || first.get("/api/v1/tasks/a")["next_fire"].as_str().map(str::to_owned));
    first.says("Tasks: 2 new, 0 changed, 0 unchanged, 0 removed");
    first.stop();

    let dev = folder.dev();
    dev.says("Tasks: 0 new, 0 changed, 2 unchanged, 0 removed");
    let task = dev.get("/api/v1/tasks/b");
    assert_eq!((&task["version"], task["versions"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!(dev.get("/api/v1/tasks/a")["next_fire"], *next_fire, "a restart is no reason to begin anew");
    dev.stop();

    folder.write("tasks.yaml", &file("  - {name: b, trigger: {delay: 1h}, command: echo two}\n"));
    let dev = folder.dev();
    dev.says("Tasks: 0 new, 1 changed, 1 unchanged, 0 removed");
    let task = dev.get("/api/v1/tasks/b");
    let versions = task["versions"].as_array().unwrap();
    assert_eq!((&task["version"], versions.len()), (&json!(2), 2), "{task:#}");
    for command in ["echo one", "echo two"] {
        assert!(versions.iter().any(|version| version["definition"].to_string().contains(command)), "{task:#}");
    }
    assert_eq!(dev.cli(&["trigger", "b", "--delay", "1ms"]).code, Some(0));
    let run = dev.instance_in("b", "succeeded");
    assert_eq!((outputs(&dev, &run), &run["version"]), (vec!["two\n".to_owned()], &json!(2)));
    dev.stop();

    // Switched off: by hand only.
    folder.write("tasks.yaml", &file("  - {name: b, trigger: {fixed_rate: 100ms}, enabled: false, command: echo off}\n"));
    let dev = folder.dev();
    eventually("no fire time, once the edit is taken over", || dev.get("/api/v1/tasks/b")["next_fire"].is_null().then_some(()));
    assert_eq!(dev.instances("b").len(), 1);
    assert_eq!(dev.cli(&["trigger", "b"]).code, Some(0));
    eventually("a run by hand", || (dev.instances("b").len() == 2).then_some(()));
    dev.stop();

    // Removed: stopped, with its history.
    folder.write("tasks.yaml", &file(""));
    let dev = folder.dev();
    dev.says("not in the file, and left: b; --remove removes such");
    assert_eq!(dev.get("/api/v1/tasks/b")["removed"], false);
    dev.stop();
    let dev = folder.dev_with(&["--remove"]);
    dev.says("removed: b");
    assert_eq!(dev.instances("b").len(), 2);
    let task = dev.get("/api/v1/tasks/b");
    assert_eq!((&task["removed"], task["versions"].as_array().unwrap().len()), (&json!(true), 4), "{task:#}");
    let refused = dev.cli(&["trigger", "b"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.starts_with("PUN-303: "), "{}", refused.stderr);
    assert!(dev.instances("a").is_empty(), "its time had not come");
    dev.stop();

    // Back again under its name: the same task.
    folder.write("tasks.yaml", &file(b));
    let dev = folder.dev();
    dev.says("changed: b");
    let task = dev.get("/api/v1/tasks/b");
    assert_eq!((&task["removed"], &task["version"]), (&json!(false), &json!(5)));
    assert_eq!(dev.instances("b").len(), 2);
    dev.stop();
}

#[test]
fn what_a_command_writes_is_seen_while_it_runs() {
    let folder = Folder::with(
        "tasks:\n  - {name: talk, trigger: manual, command: 'echo one; echo two; while [ ! -e go ]; do sleep 0.05; done; echo three'}\n",
    );
    let dev = folder.dev();
    assert_eq!(dev.cli(&["trigger", "talk"]).code, Some(0));
    let running = dev.instance_in("talk", "running");
    let id = running["id"].as_str().unwrap();
    eventually("lines of a running attempt", || (dev.cli(&["logs", id]).stdout == "one\ntwo\n").then_some(()));
    assert_eq!(outputs(&dev, &running), [""; 0], "that comes with its end");
    assert_eq!(dev.instance(running["id"].as_str().unwrap())["state"], "running");
    folder.write("go", "");
    let done = dev.instance_in("talk", "succeeded");
    assert_eq!(outputs(&dev, &done), ["one\ntwo\nthree\n"]);
    dev.stop();
}

#[test]
fn a_delay_fires_once_over_restarts() {
    let folder = Folder::with("tasks:\n  - {name: once, trigger: {delay: 300ms}, command: echo done >> done}\n");
    let dev = folder.dev();
    dev.instance_in("once", "succeeded");
    dev.stop();
    let dev = folder.dev();
    assert_eq!(dev.get("/api/v1/tasks/once")["next_fire"], Value::Null);
    assert_eq!(dev.instances("once").len(), 1);
    dev.stop();
    assert_eq!(folder.read("done"), "done\n");
}

/// C376.
#[test]
fn a_key_fires_once_and_stands_for_one_request() {
    let folder =
        Folder::with("tasks:\n  - {name: t, trigger: manual, command: cat, payload: own}\n  - {name: u, trigger: manual, command: cat}\n");
    let dev = folder.dev();
    let body = json!({ "payload": "first" });
    let first = dev.post("/api/v1/tasks/t/trigger", Some("k"), &body);
    let again = dev.post("/api/v1/tasks/t/trigger", Some("k"), &body);
    assert_eq!((first.status, again.status), (202, 200));
    assert_eq!(first.json()["instance"]["id"], again.json()["instance"]["id"]);
    dev.post("/api/v1/tasks/t/trigger", Some("k"), &json!({ "payload": "other" })).check_refusal(409, "PUN-306");
    dev.post("/api/v1/tasks/u/trigger", Some("k"), &body).check_refusal(409, "PUN-306");
    assert_eq!(dev.instances("t").len(), 1);
    dev.stop();

    let dev = folder.dev();
    let again = dev.post("/api/v1/tasks/t/trigger", Some("k"), &body);
    assert_eq!((again.status, again.json()["instance"]["id"].clone()), (200, first.json()["instance"]["id"].clone()));
    let cli = |arguments: &[&str]| dev.cli(&[&["trigger", "t", "--key", "cli", "--json"], arguments].concat());
    let (one, two) = (cli(&["--payload", "x"]), cli(&["--payload", "x"]));
    assert_eq!(one.json()["instance"]["id"], two.json()["instance"]["id"]);
    folder.write("x", "x");
    let (file, nothing) = (folder.path("x").display().to_string(), folder.path("y").display().to_string());
    assert_eq!(cli(&["--payload-file", &file]).json()["instance"]["id"], one.json()["instance"]["id"], "the same payload");
    let refused = cli(&["--payload-file", &nothing]);
    assert!(refused.code == Some(2) && refused.stderr.contains("PUN-323"), "{}", refused.stderr);
    let other = cli(&["--payload", "y"]);
    assert_eq!((other.code, &other.json()["error"]["code"]), (Some(1), &json!("PUN-306")));

    // What is handed over: text as it is, everything else character for character.
    for (payload, expected) in [
        (r#""text""#, "text"),
        (r#"{"b":1,  "a":12345678901234567890123}"#, r#"{"b":1,  "a":12345678901234567890123}"#),
        ("1.10", "1.10"),
        (r#""""#, ""),
        ("null", "own"),
    ] {
        let headers = [("content-type", "application/json")];
        let body = format!("{{\"payload\":{payload}}}");
        let answer = crate::support::request(dev.address(), "POST", "/api/v1/tasks/t/trigger", &headers, body.as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        let id = answer.json()["instance"]["id"].as_str().unwrap().to_owned();
        eventually("its end", || (dev.instance(&id)["state"] == "succeeded").then_some(()));
        let written = outputs(&dev, &dev.instance(&id)).concat();
        assert_eq!(written, expected, "{payload}");
    }
    dev.stop();
}

#[test]
fn what_waits_and_what_runs_can_be_cancelled() {
    let folder = Folder::with(
        "
defaults: {timeout: {after: 1h, grace: 300ms}}
tasks:
  - {name: polite, trigger: manual, command: 'echo $$; exec sleep 60'}
  - {name: stubborn, trigger: manual, command: 'trap \"\" TERM; echo $$; while :; do sleep 1; done'}
",
    );
    let dev = folder.dev();
    let trigger = |arguments: &[&str]| {
        let run = dev.cli(&[&["trigger", "--json"], arguments].concat());
        run.json()["instance"]["id"].as_str().unwrap().to_owned()
    };
    let waiting = trigger(&["polite", "--delay", "1h"]);
    assert_eq!(dev.instance(&waiting)["state"], "waiting");
    let cancelled = dev.cli(&["cancel", &waiting, "--reason", "not needed"]);
    assert_eq!((cancelled.code, cancelled.stdout.trim()), (Some(0), format!("{waiting} is cancelled").as_str()));
    let story = dev.instance(&waiting);
    assert!(story["transitions"].to_string().contains("not needed"), "{story:#}");

    for (task, how) in [("polite", "killed by signal 15 (SIGTERM)"), ("stubborn", "killed by signal 9 (SIGKILL)")] {
        let id = trigger(&[task]);
        eventually("its start", || (dev.instance(&id)["state"] == "running").then_some(()));
        // It has set its trap once it writes; what it wrote is seen when it has ended.
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(dev.cli(&["cancel", &id]).code, Some(0));
        eventually("its end", || (dev.instance(&id)["state"] == "cancelled").then_some(()));
        let story = dev.instance(&id);
        assert!(story.to_string().contains(how), "{how}: {story:#}");
        let pid: u32 = outputs(&dev, &story)[0].trim().parse().unwrap();
        assert!(!is_running(pid));
    }
    let again = dev.cli(&["cancel", &waiting, "--json"]);
    assert_eq!((again.code, &again.json()["cancelled"]), (Some(1), &json!(false)));
    let unknown = dev.cli(&["cancel", "1-99999"]);
    assert!(unknown.code == Some(1) && unknown.stderr.starts_with("PUN-304: "), "{}", unknown.stderr);
    dev.stop();
}

/// A double click, too, makes one run of it.
#[test]
fn what_has_ended_is_run_once_more() {
    let folder = Folder::with(
        "
tasks:
  - {name: mended, trigger: manual, command: '[ -e mended ] || exit 7'}
  - {name: long, trigger: manual, command: 'sleep 60', timeout: {grace: 100ms}}
",
    );
    let dev = folder.dev();
    let trigger = |task: &str| dev.cli(&["trigger", "--json", task]).json()["instance"]["id"].as_str().unwrap().to_owned();
    let first = trigger("mended");
    eventually("its end", || (dev.instance(&first)["state"] == "dead_lettered" || dev.instance(&first)["state"] == "failed").then_some(()));
    folder.write("mended", "");
    let again = dev.cli(&["rerun", &first, "--reason", "the disk was full", "--json"]).json();
    let second = again["instance"]["id"].as_str().unwrap().to_owned();
    assert_eq!((&again["rerun_of"], &again["instance"]["run"], &again["instance"]["origin"]), (&json!(first), &json!(2), &json!("rerun")));
    eventually("its end", || (dev.instance(&second)["state"] == "succeeded").then_some(()));
    assert!(dev.instance(&second)["transitions"].to_string().contains("the disk was full"));
    let path = |id: &str| format!("/api/v1/instances/{id}/rerun");
    let repeated = dev.post(&path(&first), None, &json!({ "by": "somebody" }));
    assert_eq!((repeated.status, &repeated.json()["instance"]["id"]), (200, &json!(second)));
    assert_eq!(dev.get("/api/v1/instances?task=mended")["instances"].as_array().unwrap().len(), 2);

    dev.post(&path(&trigger("long")), None, &json!({})).check_refusal(409, "PUN-314");
    dev.post(&path("1-99999"), None, &json!({})).check_refusal(404, "PUN-304");
    let unknown = dev.cli(&["rerun", "1-99999"]);
    assert!(unknown.code == Some(1) && unknown.stderr.starts_with("PUN-304: "), "{}", unknown.stderr);
    drop(dev);
}

#[test]
fn an_instance_tells_its_whole_story() {
    let folder = Folder::with(
        "
tasks:
  - name: third
    trigger: manual
    command: 'echo attempt $PUNCTUAL_ATTEMPT; [ $PUNCTUAL_ATTEMPT = 3 ] || exit $((10 + PUNCTUAL_ATTEMPT))'
    retry: {max_attempts: 5, backoff: fixed, first: 100ms, jitter: none}
  - name: never
    trigger: manual
    command: 'exit 7'
    retry: {max_attempts: 2, first: 100ms}
  - name: unlucky
    trigger: manual
    command: 'exit 7'
  - name: slow
    trigger: manual
    command: 'echo begun; sleep 60'
    timeout: {after: 300ms, grace: 200ms}
  - name: let-go
    trigger: manual
    command: 'sleep 0.5; echo done'
    timeout: {after: 100ms, action: wait}
  - name: absent
    trigger: manual
    command: [no-such-program-anywhere]
    retry: {max_attempts: 9}
",
    );
    let dev = folder.dev();
    for task in ["third", "never", "unlucky", "slow", "let-go", "absent"] {
        assert_eq!(dev.cli(&["trigger", task]).code, Some(0));
    }
    let third = dev.instance_in("third", "succeeded");
    let expected = ["created triggered", "dispatched assigned", "running started", "retrying finished", "created backoff_elapsed"];
    assert_eq!(transitions(&third)[..5], expected, "{third:#}");
    let attempts = third["attempts"].as_array().unwrap();
    let codes: Vec<_> = attempts.iter().map(|attempt| attempt["code"].as_i64()).collect();
    assert_eq!(codes, [Some(11), Some(12), Some(0)], "{third:#}");
    assert_eq!(outputs(&dev, &third), ["attempt 1\n", "attempt 2\n", "attempt 3\n"]);

    let id = third["id"].as_str().unwrap();
    let shown = dev.cli(&["instance", id, "--json"]).json();
    assert_eq!(shown["transitions"], third["transitions"]);
    assert_eq!(shown["outputs"].as_array().unwrap().len(), 3);
    let text = dev.cli(&["instance", id]).stdout;
    assert!(text.contains("backoff_elapsed") && text.contains("--- attempt 2\nattempt 2\n"), "{text}");
    assert_eq!(dev.cli(&["logs", id]).stdout, "--- attempt 1\nattempt 1\n--- attempt 2\nattempt 2\n--- attempt 3\nattempt 3\n");

    let never = dev.instance_in("never", "dead_lettered");
    assert_eq!((&never["cause"], &never["code"], &never["attempt"]), (&json!("attempts_exhausted"), &json!(7), &json!(2)), "{never:#}");
    let unlucky = dev.instance_in("unlucky", "failed");
    assert_eq!((&unlucky["detail"], &unlucky["attempt"]), (&json!("exit code 7"), &json!(1)));
    let slow = dev.instance_in("slow", "timed_out");
    assert!(slow["detail"].as_str().unwrap().contains("timeout of 300 ms"), "{slow:#}");
    assert_eq!(outputs(&dev, &slow), ["begun\n"]);
    let let_go = dev.instance_in("let-go", "succeeded");
    assert!(let_go["detail"].as_str().unwrap().contains("let go on"), "{let_go:#}");
    let absent = dev.instance_in("absent", "failed");
    assert!(absent["detail"].as_str().unwrap().contains("was not found on the PATH"), "{absent:#}");
    assert_eq!(absent["attempt"], 1, "no retry makes a program appear");

    // Everything has a --json, and filters work.
    for arguments in [&["tasks"][..], &["tasks", "third"], &["instances"], &["instances", "--state", "dead_lettered", "--task", "never"]] {
        let run = dev.cli(&[arguments, &["--json"]].concat());
        assert!(run.code == Some(0) && run.json().is_object(), "{arguments:?}");
        let run = dev.cli(arguments);
        assert!(run.code == Some(0) && run.stdout.contains(if arguments[0] == "tasks" { "third" } else { "never" }), "{}", run.stdout);
    }
    dev.stop();
}

#[test]
fn what_runs_at_ctrl_c_ends_by_itself() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = Folder::with(
            "
tasks:
  - {name: long, trigger: {delay: 1ms}, command: 'touch begun; while [ ! -e go ]; do sleep 0.05; done; echo done'}
  - {name: often, trigger: {fixed_rate: 100ms}, command: 'true'}
",
        );
        let mut dev = folder.dev();
        eventually("its start", || folder.path("begun").exists().then_some(()));
        dev.signal(signal);
        dev.says("Stopping: what runs may end.");
        assert!(dev.poll().is_none());
        // It still answers, and takes in what the next start will do.
        assert_eq!(dev.post("/api/v1/tasks/often/trigger", Some("late"), &json!({})).status, 202);
        folder.write("go", "");
        assert_eq!(dev.ended().code(), Some(0), "{}", dev.told());
        dev.says("Stopped; everything is written down.");

        let dev = folder.dev();
        let long = dev.instance_in("long", "succeeded");
        assert_eq!((&long["attempt"], outputs(&dev, &long)), (&json!(1), vec!["done\n".to_owned()]));
        let late = eventually("the late one", || dev.get("/api/v1/instances?key=late")["instances"].get(0).cloned());
        assert_eq!(late["task"], "often");
        dev.stop();
    }
}

#[test]
fn a_second_ctrl_c_cancels_what_runs_and_a_third_stops_at_once() {
    let tasks = |trap: &str| {
        format!("tasks:\n  - {{name: long, trigger: {{delay: 1ms}}, command: '{trap} echo $$ > begun; while :; do sleep 0.1; done'}}\n")
    };
    let begin = |folder: &Folder| {
        let dev = folder.dev();
        let pid = eventually("its start", || folder.read("begun").trim().parse::<u32>().ok());
        dev.signal(Signal::INT);
        dev.says("Ctrl-C again cancels it.");
        dev.signal(Signal::INT);
        dev.says("Cancelling what runs.");
        (dev, pid)
    };
    let folder = Folder::with(&tasks(""));
    let (mut dev, pid) = begin(&folder);
    assert_eq!(dev.ended().code(), Some(0), "{}", dev.told());
    assert!(!is_running(pid));
    let dev = folder.dev();
    is_attempted_again(&dev);
    drop(dev);

    let folder = Folder::with(&tasks("trap \"\" TERM;"));
    let (mut dev, pid) = begin(&folder);
    dev.signal(Signal::INT);
    assert_eq!(dev.ended().code(), Some(130), "{}", dev.told());
    assert!(is_running(pid), "the next start ends it");
    let dev = folder.dev();
    dev.says("that an earlier run had left behind");
    assert!(!is_running(pid));
    is_attempted_again(&dev);
}

/// The interrupted attempt counts as a lost worker, and the second one runs.
fn is_attempted_again(dev: &Dev) {
    let long = eventually("a second attempt", || dev.instances("long").into_iter().find(|long| long["attempt"] == 2));
    assert_eq!(long["losses"], 1, "{long:#}");
    dev.instance_in("long", "running");
}

#[test]
fn a_reader_that_goes_away_or_stops_reading_stops_nothing() {
    let tasks = "tasks:\n  - {name: often, trigger: {fixed_rate: 100ms}, command: echo x >> runs}\n";
    let runs = |folder: &Folder| folder.read("runs").lines().count();
    // Gone, with both outputs.
    let folder = Folder::with(tasks);
    let mut command = folder.dev_command(&[]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let scheduled = within(crate::support::PATIENCE, || (runs(&folder) >= 10).then_some(()));
    signal(&child, Signal::INT);
    assert_eq!((scheduled, child.wait().unwrap().code()), (Some(()), Some(0)));

    // Never reads: the pipe is full at some time.
    let name = "n".repeat(128);
    let mut folder_tasks = String::from("defaults: {trigger: {timezone: UTC}}\ntasks:\n");
    for number in 0..20 {
        folder_tasks += &format!("  - {{name: '{number:02}{}', trigger: {{fixed_rate: 100ms}}, handler: noop}}\n", &name[2..]);
    }
    let folder = Folder::with(&(folder_tasks + &tasks["tasks:\n".len()..]));
    let mut command = folder.dev_command(&[]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let scheduled = within(crate::support::PATIENCE, || (runs(&folder) >= 60).then_some(()));
    signal(&child, Signal::INT);
    let ended = within(crate::support::PATIENCE, || child.try_wait().unwrap());
    if ended.is_none() {
        let _ = child.kill();
    }
    assert_eq!((scheduled, ended.and_then(|status| status.code())), (Some(()), Some(0)));
}

fn signal(child: &std::process::Child, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn an_imported_crontab_runs() {
    let folder = Folder::new();
    folder.write("crontab", "GREETING=hello\n# Says hello\n* * * * * echo $GREETING to 100\\% > greeting\n@reboot false\n");
    let imported = folder.punctual(&["import", "crontab", "crontab"]);
    assert_eq!(imported.code, Some(1), "one line is not carried over: {}", imported.stderr);
    folder.write("tasks.yaml", &imported.stdout);
    let dev = folder.dev();
    let tasks = dev.get("/api/v1/tasks");
    let name = tasks["tasks"][0]["name"].as_str().unwrap();
    assert!(tasks["tasks"][0]["next_fire"].is_string(), "{tasks:#}");
    // Nobody waits for the minute.
    assert_eq!(dev.cli(&["trigger", name]).code, Some(0));
    dev.instance_in(name, "succeeded");
    assert_eq!(folder.read("greeting"), "hello to 100%\n");
    dev.stop();
}
