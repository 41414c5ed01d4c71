//! What goes wrong around it: each time a code, what to do, and nothing lost.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::support::{Dev, Folder, PATIENCE, escaped, eventually, request, run, within};

const TASK: &str = "tasks:\n  - {name: t, trigger: manual, command: cat}\n";
const OFTEN: &str =
    "tasks:\n  - {name: often, trigger: {fixed_rate: 100ms}, command: 'echo $PUNCTUAL_INSTANCE $PUNCTUAL_ATTEMPT >> runs'}\n";

/// A folder with a database that has been used.
fn used() -> Folder {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    assert_eq!(dev.cli(&["trigger", "t"]).code, Some(0));
    dev.instance_in("t", "succeeded");
    dev.stop();
    folder
}

#[test]
fn a_database_that_may_not_be_written_is_refused() {
    let as_nobody = |folder: &Folder| {
        let dev = folder.dev_command(&[]);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(dev.get_program()).args(dev.get_args());
        run(command.current_dir(folder.path("")))
    };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become somebody who may not write");
        return;
    }
    let folder = used();
    let mode = |path: PathBuf, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(folder.path(""), 0o755);
    let refused = as_nobody(&folder);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(
        refused.stderr.starts_with("PUN-202: ") && refused.stderr.contains("Make the file and its folder writable"),
        "{}",
        refused.stderr
    );
    // The lock may be had, the file may not be written.
    mode(folder.path(""), 0o777);
    let refused = as_nobody(&folder);
    assert!(refused.code == Some(1) && refused.stderr.starts_with("PUN-202: "), "{}", refused.stderr);
    std::fs::remove_file(folder.path("punctual.db.lock")).unwrap();
    let refused = as_nobody(&folder);
    assert!(refused.code == Some(1) && refused.stderr.starts_with("PUN-202: "), "{}", refused.stderr);
    std::fs::remove_file(folder.path("punctual.db.lock")).unwrap();
    let dev = folder.dev();
    assert_eq!(dev.instances("t").len(), 1);
    dev.stop();
}

#[test]
fn what_is_no_database_of_ours_is_refused_and_left_alone() {
    let folder = Folder::with(TASK);
    let refused = |what: &str, code: &str| {
        let before = std::fs::read(folder.path("punctual.db")).ok();
        let said = folder.refused(&[]);
        assert!(said.starts_with(&format!("{code}: ")) && !said.contains("panicked"), "{what}: {said}");
        assert_eq!(std::fs::read(folder.path("punctual.db")).ok(), before, "{what} was changed");
    };
    folder.write("punctual.db", &"This is no database. ".repeat(1000));
    refused("a text", "PUN-204");
    std::fs::remove_file(folder.path("punctual.db")).unwrap();
    let other = rusqlite::Connection::open(folder.path("punctual.db")).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(other);
    refused("another program's", "PUN-204");
    std::fs::remove_file(folder.path("punctual.db")).unwrap();
    std::fs::create_dir(folder.path("punctual.db")).unwrap();
    refused("a folder", "PUN-202");
    let said = folder.refused(&["--db", "no/such/folder/punctual.db"]);
    assert!(said.starts_with("PUN-202: "), "{said}");
    assert!(!folder.path("no").exists());
    // A file, whatever it is called.
    for name in [":memory:", "file:x?mode=memory", "ü \"%'.db"] {
        let dev = folder.dev_with(&["--db", name]);
        assert_eq!(dev.cli(&["trigger", "t"]).code, Some(0));
        dev.stop();
        let dev = folder.dev_with(&["--db", name]);
        assert_eq!(dev.instances("t").len(), 1, "{name}");
        dev.stop();
    }
    // Nothing in it: a new one.
    std::fs::remove_dir(folder.path("punctual.db")).unwrap();
    folder.write("punctual.db", "");
    folder.dev().stop();
}

#[test]
fn a_newer_and_a_damaged_database_are_refused() {
    let folder = used();
    let whole = std::fs::read(folder.path("punctual.db")).unwrap();
    // The schema's version, in the header at byte 60.
    let patch = |at: u64, bytes: &[u8]| {
        std::fs::write(folder.path("punctual.db"), &whole).unwrap();
        let mut file = OpenOptions::new().write(true).open(folder.path("punctual.db")).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    };
    patch(60, &1_000_u32.to_be_bytes());
    let said = folder.refused(&[]);
    assert!(said.starts_with("PUN-205: ") && said.contains("schema 1000"), "{said}");
    // Where a page begins: what is written over free room inside of one is no damage.
    let middle = whole.len() as u64 / 2 / 4096 * 4096;
    for (at, length) in [(4096 * 2, 4096), (4096 * 5, 4096 * 3), (100, 2000), (middle, 600)] {
        patch(at, &vec![0xa5; length]);
        let said = folder.refused(&[]);
        assert!(said.starts_with("PUN-204: ") && said.contains("Restore it from a backup"), "{at}: {said}");
    }
    std::fs::write(folder.path("punctual.db"), &whole[..whole.len() / 2]).unwrap();
    let said = folder.refused(&[]);
    assert!(said.starts_with("PUN-204: "), "cut: {said}");
    std::fs::write(folder.path("punctual.db"), &whole).unwrap();
    let dev = folder.dev();
    assert_eq!(dev.instances("t").len(), 1);
    dev.stop();
}

#[test]
fn damage_while_it_runs_is_said_once_and_stops_no_command_to_end_it() {
    let folder = Folder::with(OFTEN);
    let mut dev = folder.dev();
    dev.instance_in("often", "succeeded");
    for name in ["punctual.db", "punctual.db-wal"] {
        let mut file = OpenOptions::new().write(true).open(folder.path(name)).unwrap();
        file.write_all(&vec![0xa5; 400 << 10]).unwrap();
    }
    dev.says("PUN-204: ");
    request(dev.address(), "GET", "/health", &[], b"").check_refusal(503, "PUN-309");
    // Longer than it takes to try again, several times.
    within(Duration::from_secs(5), || None::<()>);
    let told = dev.told();
    assert!(told.matches("PUN-204").count() <= 2 && !told.contains("panicked"), "{told}");
    for _ in 0..3 {
        if dev.poll().is_none() {
            dev.signal(rustix::process::Signal::INT);
            within(Duration::from_secs(3), || dev.poll());
        }
    }
    assert!(dev.ended().code().is_some_and(|code| code == 0 || code == 130), "{}", dev.told());
    assert!(folder.refused(&[]).starts_with("PUN-204: "));
}

#[test]
fn another_programs_lock_is_said_once_and_waited_for() {
    let folder = Folder::with(OFTEN);
    let dev = folder.dev();
    dev.instance_in("often", "succeeded");
    let other = rusqlite::Connection::open(folder.path("punctual.db")).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    dev.says("PUN-206: ");
    // Reading is not hindered, writing is answered.
    assert!(!dev.instances("often").is_empty());
    let refused = dev.post("/api/v1/tasks/often/trigger", Some("k"), &json!({}));
    refused.check_refusal(503, "PUN-309");
    assert!(refused.body.contains("PUN-206"), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    dev.says("the database works again");
    assert_eq!(dev.post("/api/v1/tasks/often/trigger", Some("k"), &json!({})).status, 202);
    let count = dev.instances("often").len();
    eventually("it goes on", || (dev.instances("often").len() > count + 2).then_some(()));
    let told = dev.told();
    assert_eq!(told.matches("PUN-206").count(), 1, "{told}");
    check_all_ran(&dev, &folder);
    dev.stop();

    // From the start.
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let said = folder.refused(&[]);
    assert!(said.starts_with("PUN-206: "), "{said}");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    folder.dev().stop();
}

/// Every fire time of `often` is an instance that ran once, or on record.
#[track_caller]
fn check_all_ran(dev: &Dev, folder: &Folder) {
    // Before what they have written is read: they go on.
    let instances = dev.instances("often");
    let runs = folder.read("runs");
    let mut lines: Vec<&str> = runs.lines().collect();
    lines.sort_unstable();
    let count = lines.len();
    lines.dedup();
    assert_eq!(lines.len(), count, "an attempt ran twice");
    let at = |value: &serde_json::Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let scheduled = instances.iter().filter(|instance| instance["origin"] != "manual");
    let mut spans: Vec<(i64, i64)> = scheduled.map(|instance| (at(&instance["fire_time"]), at(&instance["fire_time"]))).collect();
    let occurrences = dev.get("/api/v1/tasks/often/occurrences?limit=1000");
    spans.extend(occurrences["occurrences"].as_array().unwrap().iter().map(|run| (at(&run["first"]), at(&run["last"]))));
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert_eq!(pair[0].1 + 100, pair[1].0, "fire times between {pair:?}");
    }
    for instance in &instances {
        if instance["state"] == "succeeded" {
            let line = format!("{} {}", instance["id"].as_str().unwrap(), instance["attempt"]);
            assert!(lines.binary_search(&line.as_str()).is_ok(), "{line} did not run");
        }
    }
}

/// A small file system of its own, for as long as this lives.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: PathBuf) -> Option<Disk> {
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&path).status();
        mounted.is_ok_and(|status| status.success()).then_some(Disk(path))
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        while file.write_all(&[0; 1]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_said_once_and_nothing_is_lost() {
    let folder = Folder::with(OFTEN);
    let Some(disk) = Disk::mount(folder.path("disk")) else {
        println!("skipped: this user can't mount a small file system");
        return;
    };
    let dev = folder.dev_with(&["--db", "disk/punctual.db"]);
    dev.instance_in("often", "succeeded");
    disk.fill();
    dev.says("PUN-203: ");
    let refused = dev.post("/api/v1/tasks/often/trigger", Some("k"), &json!({ "payload": "x".repeat(60_000) }));
    refused.check_refusal(503, "PUN-309");
    assert!(refused.body.contains("PUN-203"), "{refused:?}");
    request(dev.address(), "GET", "/health", &[], b"").check_refusal(503, "PUN-309");
    // Longer than leases last.
    std::thread::sleep(Duration::from_secs(12));
    disk.free();
    dev.says("the database works again");
    assert_eq!(dev.post("/api/v1/tasks/often/trigger", Some("k"), &json!({ "payload": "x".repeat(60_000) })).status, 202);
    assert_eq!(dev.get("/health")["status"], "ok");
    let count = dev.instances("often").len();
    eventually("it goes on", || (dev.instances("often").len() > count + 3).then_some(()));
    let told = dev.told();
    assert_eq!(told.matches("PUN-203").count(), 1, "{told}");
    check_all_ran(&dev, &folder);

    // Killed on a full disk, and started on it.
    disk.fill();
    eventually("it says so again", || (dev.told().matches("PUN-203").count() == 2).then_some(()));
    dev.kill();
    let mut started = Dev::spawn(folder.dev_command(&["--db", "disk/punctual.db"]));
    let ended = within(Duration::from_secs(20), || started.poll());
    match ended {
        Some(status) => assert!(status.code() == Some(1) && started.stderr.text().starts_with("PUN-203: "), "{}", started.told()),
        None => started.says("PUN-203: "),
    }
    drop(started);
    disk.free();
    let dev = folder.dev_with(&["--db", "disk/punctual.db"]);
    let count = dev.instances("often").len();
    eventually("it goes on", || (dev.instances("often").len() > count + 3).then_some(()));
    check_all_ran(&dev, &folder);
    dev.stop();
}

#[test]
fn two_on_one_database_or_one_port_are_one_too_many() {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    let said = folder.refused(&[]);
    assert!(said.starts_with("PUN-201: ") && said.contains(&format!("process {}", dev.pid())), "{said}");
    let address = dev.address().to_string();
    let said = folder.refused(&["--db", "other.db", "--listen", &address]);
    assert!(said.starts_with("PUN-311: ") && said.contains(&address), "{said}");
    assert!(!folder.path("other.db").exists(), "nothing is made by a start that fails");
    // Under another name, and after somebody has taken the lock's file away.
    std::os::unix::fs::symlink(folder.path("punctual.db"), folder.path("alias.db")).unwrap();
    std::fs::hard_link(folder.path("punctual.db"), folder.path("twin.db")).unwrap();
    std::fs::remove_file(folder.path("punctual.db.lock")).unwrap();
    for db in ["alias.db", "twin.db", "punctual.db", "./punctual.db"] {
        let said = folder.refused(&["--db", db]);
        assert!(said.starts_with("PUN-201: "), "{db}: {said}");
    }
    let said = folder.refused(&["--listen", "0.0.0.0:0"]);
    assert!(said.starts_with("PUN-310: "), "{said}");
    assert_eq!(dev.cli(&["trigger", "t"]).code, Some(0));
    dev.instance_in("t", "succeeded");
    dev.stop();
}

#[test]
fn bad_files_are_refused_and_the_database_is_left_alone() {
    let folder = used();
    // C385: a zone that is not there, too.
    let zoneless = "tasks:\n  - {name: t, trigger: {cron: '* * * * *', timezone: Asia/Mumbai}, command: x}\n";
    for (text, code) in [("", "PUN-105"), ("tasks: [", "PUN-102"), ("tasks:\n  - {name: ..}\n", "PUN-112"), (zoneless, "PUN-115")] {
        folder.write("tasks.yaml", text);
        let said = folder.refused(&[]);
        assert!(said.contains(code), "{text:?}: {said}");
    }
    std::fs::remove_file(folder.path("tasks.yaml")).unwrap();
    assert!(folder.refused(&[]).contains("PUN-101"));
    folder.write("tasks.yaml", TASK);
    let dev = folder.dev();
    dev.says("0 changed, 1 unchanged");
    dev.stop();
}

#[test]
fn a_gigabyte_of_output_is_kept_in_small_memory() {
    let folder = Folder::with(
        "tasks:\n  - {name: loud, trigger: manual, command: 'echo first; head -c 1073741824 /dev/zero; echo last'}\n  - {name: endless, trigger: manual, command: 'yes', timeout: {after: 1s, grace: 1s}}\n",
    );
    let dev = folder.dev();
    for task in ["loud", "endless"] {
        assert_eq!(dev.cli(&["trigger", task]).code, Some(0));
    }
    let loud = dev.instance_in("loud", "succeeded");
    let id = loud["id"].as_str().unwrap();
    let logs = dev.get(&format!("/api/v1/instances/{id}/logs"));
    let output = &logs["outputs"][0];
    let text = output["output"].as_str().unwrap();
    assert!(text.starts_with("first\n") && text.ends_with("last\n"));
    assert_eq!(output["dropped_bytes"], (1_u64 << 30) + 11 - (256 << 10));
    let shown = dev.cli(&["logs", id]);
    assert!(shown.code == Some(0) && shown.stdout.contains("bytes in between were dropped"), "{}", shown.stderr);
    dev.instance_in("endless", "timed_out");
    let status = std::fs::read_to_string(format!("/proc/{}/status", dev.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap();
    assert!(peak < 400 << 10, "{peak} kB");
    dev.stop();
}

/// C340: names of any kind are kept as they are.
#[test]
fn names_may_be_anything() {
    let long = "ж".repeat(255);
    let names = [
        "nächtlicher Bericht",
        "報告書/毎日",
        "a/b/../c",
        "100% sure",
        "%2F%00%",
        "it's \"quoted\"; $(rm -rf /) `x` \\",
        "?q=1&r#frag",
        "...",
        "--json",
        "-",
        "42",
        "true",
        "🦀 e\u{301}",
        "a + b = c",
        "<script>alert(1)</script>",
        "'; DROP TABLE tasks; --",
        &long,
    ];
    let mut file = "tasks:\n".to_owned();
    for name in names {
        let quoted = serde_json::to_string(name).unwrap();
        file += &format!("  - {{name: {quoted}, trigger: manual, command: 'printf %s \"$PUNCTUAL_TASK\"'}}\n");
    }
    let folder = Folder::with(&file);
    let dev = folder.dev();
    let listed = dev.cli(&["tasks", "--json"]).json();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), names.len());
    for name in names {
        assert_eq!(dev.get(&format!("/api/v1/tasks/{}", escaped(name)))["name"], name);
        let triggered = dev.cli(&["trigger", "--json", "--", name]);
        assert_eq!(triggered.code, Some(0), "{name}: {}", triggered.stderr);
        let instance = dev.instance_in(name, "succeeded");
        let logs = dev.cli(&["logs", instance["id"].as_str().unwrap(), "--json"]).json();
        assert_eq!(logs["outputs"][0]["output"], name);
        let shown = dev.cli(&["tasks", "--json", "--", name]).json();
        assert_eq!((&shown["name"], &shown["occurrences"]), (&json!(name), &json!([])));
        let found = dev.cli(&["instances", "--json", "--task", name].map(|part| part));
        let found = if name.starts_with('-') { dev.cli(&["instances", "--json", &format!("--task={name}")]) } else { found };
        assert_eq!(found.json()["instances"].as_array().unwrap().len(), 1, "{name}");
    }
    // Page by page, in any alphabet.
    let mut after = String::new();
    let mut seen = Vec::new();
    loop {
        let page = dev.get(&format!("/api/v1/tasks?limit=5{after}"));
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", escaped(next)),
            None => break,
        }
    }
    seen.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    for name in ["", ".", ".."] {
        for command in ["tasks", "trigger", "instance", "logs", "cancel"] {
            let run = dev.cli(&[command, name]);
            assert!(run.code == Some(2) && run.stderr.starts_with("PUN-3"), "{command} {name:?}: {:?} {}", run.code, run.stderr);
        }
    }
    dev.stop();
}

#[test]
fn bad_requests_get_an_answer_with_a_code() {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    let address = dev.address();
    let get = |path: &str| request(address, "GET", path, &[], b"");
    let post = |headers: &[(&str, &str)], body: &str| request(address, "POST", "/api/v1/tasks/t/trigger", headers, body.as_bytes());
    let json_type = ("content-type", "application/json");

    for (path, status, code) in [
        ("/nothing", 404, "PUN-301"),
        ("/api/v1/nothing", 404, "PUN-301"),
        ("/api/v1/tasks/", 404, "PUN-301"),
        ("/api/v1/tasks/t/trigger", 405, "PUN-302"),
        ("/api/v1/tasks/absent", 404, "PUN-303"),
        ("/api/v1/tasks/absent/occurrences", 404, "PUN-303"),
        ("/api/v1/tasks/%00", 404, "PUN-303"),
        ("/api/v1/tasks/%FF", 400, "PUN-305"),
        ("/api/v1/tasks?limit=0", 400, "PUN-305"),
        ("/api/v1/tasks?limit=1001", 400, "PUN-305"),
        ("/api/v1/tasks?limit=-1", 400, "PUN-305"),
        ("/api/v1/tasks?limit=many", 400, "PUN-305"),
        ("/api/v1/tasks?limit=99999999999999999999999", 400, "PUN-305"),
        ("/api/v1/tasks?limit=1&limit=2", 400, "PUN-305"),
        ("/api/v1/tasks?typo=1", 400, "PUN-446"),
        ("/api/v1/tasks?sort=name;select%20sleep(5)", 400, "PUN-446"),
        ("/api/v1/instances?task=%27%20OR%201=1%20--", 404, "PUN-303"),
        ("/api/v1/instances?state=sleeping", 400, "PUN-305"),
        ("/api/v1/instances?task=absent", 404, "PUN-303"),
        ("/api/v1/instances?before=1_2_3", 400, "PUN-305"),
        ("/api/v1/instances?before=99999999999999999999_1_1_1", 400, "PUN-305"),
        ("/api/v1/instances?before=1_18446744073709551615_1_1", 400, "PUN-305"),
        ("/api/v1/instances/1", 400, "PUN-305"),
        ("/api/v1/instances/-1-1", 400, "PUN-305"),
        ("/api/v1/instances/65535-1", 400, "PUN-305"),
        ("/api/v1/instances/1-18446744073709551615", 400, "PUN-305"),
        ("/api/v1/instances/1-1", 404, "PUN-304"),
        ("/api/v1/instances/1-1/logs", 404, "PUN-304"),
    ] {
        get(path).check_refusal(status, code);
    }
    assert_eq!(get("/api/v1/instances?before=-9223372036854775808_0_0_0").status, 200);
    assert_eq!(get("/api/v1/instances?task=t&key=&limit=1000").status, 200);

    let deep = format!("{{\"payload\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for body in [
        "{",
        "[]",
        "1",
        "{\"payload\":1,\"payload\":2}",
        "{\"typo\":1}",
        "{\"delay_ms\":-1}",
        "{\"delay_ms\":1.5}",
        "{\"delay_ms\":\"1s\"}",
        "{\"delay_ms\":9999999999999999}",
        "{\"by\":5}",
        "\u{feff}{}",
        &json!({ "payload": "x".repeat((64 << 10) + 1) }).to_string(),
        &json!({ "by": "x".repeat(10_000) }).to_string(),
    ] {
        post(&[json_type], body).check_refusal(400, "PUN-305");
    }
    request(address, "POST", "/api/v1/tasks/t/trigger", &[json_type], b"{\"payload\":\"\xff\"}").check_refusal(400, "PUN-305");
    post(&[("content-type", "text/plain")], "{}").check_refusal(400, "PUN-305");
    post(&[], "{\"delay_ms\":1000000}").check_refusal(400, "PUN-305");
    post(&[json_type], &format!("{{\"payload\":\"{}\"}}", "x".repeat(20 << 20))).check_refusal(413, "PUN-312");
    for key in ["", " ", "ключ", &"k".repeat(256)] {
        post(&[json_type, ("idempotency-key", key)], "{}").check_refusal(400, "PUN-305");
    }
    for key in ["ключ", "a\nb"] {
        let run = dev.cli(&["trigger", "t", "--key", key]);
        assert!(run.code == Some(2) && run.stderr.starts_with("PUN-305: "), "{}", run.stderr);
    }
    request(address, "POST", "/api/v1/tasks/absent/trigger", &[], b"").check_refusal(404, "PUN-303");
    request(address, "POST", "/api/v1/instances/1-1/cancel", &[], b"").check_refusal(404, "PUN-304");
    request(address, "PATCH", "/api/v1/tasks/t", &[], b"").check_refusal(405, "PUN-302");

    assert!(dev.instances("t").is_empty(), "none of these fired");
    // A bare request does, and so does one with an empty object.
    assert_eq!(post(&[], "").status, 202);
    assert_eq!(post(&[json_type], "").status, 202);
    assert_eq!(post(&[("content-type", "Application/JSON; charset=utf-8")], "{}").status, 202);
    // A payload is a text, whatever it looks like.
    assert_eq!(post(&[json_type], &deep).status, 202);
    assert_eq!(dev.instances("t").len(), 4);
    dev.stop();
}

#[test]
fn other_sites_and_other_names_are_refused() {
    let folder = Folder::with(TASK);
    let dev = folder.dev();
    let address = dev.address();
    let own = address.to_string();
    for host in ["evil.example", "evil.example:8650", "127.0.0.1.evil.example", "169.254.169.254", "[::2]", ""] {
        for path in ["/health", "/api/v1/tasks", "/nothing"] {
            request(address, "GET", path, &[("host", host)], b"").check_refusal(403, "PUN-307");
        }
    }
    let mut old = TcpStream::connect(address).unwrap();
    old.write_all(b"GET /api/v1/tasks HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut old, &mut answer).unwrap();
    assert!(answer.contains("PUN-307"), "{answer}");
    for header in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("origin", ""),
        ("sec-fetch-site", "cross-site"),
    ] {
        request(address, "POST", "/api/v1/tasks/t/trigger", &[header], b"").check_refusal(403, "PUN-308");
    }
    assert!(dev.instances("t").is_empty());
    let localhost = format!("localhost:{}", address.port());
    for (host, origin) in [(&own, format!("http://{own}")), (&localhost, format!("http://{localhost}"))] {
        assert_eq!(request(address, "POST", "/api/v1/tasks/t/trigger", &[("host", host), ("origin", &origin)], b"").status, 202);
    }
    dev.stop();
}

#[test]
fn callers_that_say_nothing_or_nonsense_hold_nobody_up() {
    let folder = Folder::with(OFTEN);
    let dev = folder.dev();
    let address = dev.address();
    let silent: Vec<_> = (0..900).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"POST /api/v1/tasks/t/trigger HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{").unwrap();
    let mut nonsense = TcpStream::connect(address).unwrap();
    nonsense.write_all(&[0xff; 5_000]).unwrap();
    let mut endless = TcpStream::connect(address).unwrap();
    let _ = endless.write_all(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(2 << 20)).as_bytes());
    // They use up neither the commands' descriptors nor anybody's patience.
    let count = folder.read("runs").lines().count();
    eventually("commands start", || (folder.read("runs").lines().count() > count + 5).then_some(()));
    let instances = dev.instances("often");
    assert!(instances.iter().all(|instance| instance["state"] != "failed"), "{instances:#?}");
    drop((silent, half));
    assert_eq!(dev.cli(&["trigger", "often"]).code, Some(0));
    dev.stop();
}

#[test]
fn a_client_says_whom_it_did_not_reach() {
    let folder = Folder::with(TASK);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        for stream in listener.incoming().take(1) {
            let mut stream = stream.unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap();
        }
    });
    let ask = |api: &str| folder.punctual(&["tasks", "--json", "--api", api]);
    let other = ask(&format!("http://127.0.0.1:{port}"));
    assert_eq!((other.code, &other.json()["error"]["code"]), (Some(1), &json!("PUN-402")), "{}", other.stderr);
    answering.join().unwrap();
    for api in [&*format!("http://127.0.0.1:{port}"), "nonsense", "ftp://127.0.0.1", "mailto:x@example.com", ""] {
        let run = ask(api);
        assert_eq!((run.code, &run.json()["error"]["code"]), (Some(1), &json!("PUN-401")), "{api}: {}", run.stderr);
        assert!(run.stderr.contains("--api"), "{}", run.stderr);
    }
    assert!(!Path::new(&folder.path("punctual.db")).exists());
}
