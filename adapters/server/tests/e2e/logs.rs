//! Lines of attempts: read, searched, followed; what is left of them when workers and replicas are killed; and what a flood costs.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::cluster::{Cluster, Replica, check_all};
use crate::support::{Dev, Folder, PATIENCE, eventually, request};

/// All lines of an instance, page by page.
#[track_caller]
fn lines(dev: &Dev, id: &str, query: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = dev.get(&format!("/api/v1/instances/{id}/logs?limit=700{query}{after}"));
        all.extend(page["lines"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}

fn messages(lines: &[Value]) -> Vec<String> {
    lines.iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn triggered(dev: &Dev, task: &str) -> String {
    let fired = dev.cli(&["trigger", task, "--json"]);
    assert_eq!(fired.code, Some(0), "{}", fired.stderr);
    fired.json()["instance"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_log_is_followed_read_and_searched_and_outlives_its_process() {
    let folder = Folder::with(
        "tasks:
  - name: steps
    trigger: manual
    retry: {max_attempts: 2, first: 100ms, jitter: none}
    command: |
      echo \"trace $TRACEPARENT\"
      for i in 1 2 3 4 5; do echo \"INFO step $i\"; done
      while [ ! -e go-$PUNCTUAL_ATTEMPT ]; do sleep 0.02; done
      echo 'WARN low' >&2; printf 'ERROR <b>out</b> \\033[31mred\\033[0m'
      exit 3
",
    );
    std::fs::create_dir(folder.path("punctual.db.logs")).unwrap();
    folder.write("punctual.db.logs/2020-01-01.db", "old");
    let dev = folder.dev_with(&["--keep-log-days", "3"]);
    dev.says("logs dropped: 1 days, 2020-01-01 to 2020-01-01");
    let id = triggered(&dev, "steps");
    let mut follow = std::process::Command::new(env!("CARGO_BIN_EXE_punctual"));
    follow.args(["logs", &id, "--follow", "--timestamps"]).env("PUNCTUAL_API", format!("http://{}", dev.address()));
    let mut follow = Dev::spawn(follow);
    // It says so while the attempt waits.
    follow.says("step 5");
    assert!(!follow.told().contains("low"));
    folder.write("go-1", "");
    follow.says("--- attempt 2");
    folder.write("go-2", "");
    // It ends with the instance.
    assert_eq!(follow.ended().code(), Some(0), "{}", follow.told());
    let told = follow.stdout.text();
    assert_eq!(told.matches("step 3").count(), 2, "{told}");
    assert!(told.contains("  error  ERROR <b>out</b> \u{1b}[31mred"), "a file gets it as it is: {told:?}");

    let all = lines(&dev, &id, "");
    let trace = messages(&all)[0].clone();
    assert_eq!(
        messages(&all)[1..8],
        ["INFO step 1", "INFO step 2", "INFO step 3", "INFO step 4", "INFO step 5", "WARN low", "ERROR <b>out</b> \u{1b}[31mred\u{1b}[0m"]
    );
    assert_eq!(all.len(), 16);
    for (index, line) in all.iter().enumerate() {
        assert_eq!(line["attempt"], 1 + index as u64 / 8, "{line}");
        assert_eq!(line["number"], 1 + index as u64 % 8);
        assert_eq!((line["worker"].as_str(), line["dropped"].as_u64()), (Some("local"), Some(0)));
        assert!(trace.starts_with(&format!("trace 00-{}-", line["trace_id"].as_str().unwrap())), "{trace} {line}");
    }
    for (query, count) in [
        ("&level=warn", 4),
        ("&level=error", 2),
        ("&attempt=2", 8),
        ("&text=step", 10),
        ("&text=%3Cb%3E&attempt=1", 1),
        ("&text=nothing", 0),
        ("&level=debug", 16),
    ] {
        assert_eq!(lines(&dev, &id, query).len(), count, "{query}");
    }
    let newest = dev.get(&format!("/api/v1/instances/{id}/logs?newest=true&limit=2&attempt=1"));
    assert_eq!(messages(newest["lines"].as_array().unwrap())[0], "WARN low");
    for bad in ["level=loud", "after=x", "after=1_2_3", "limit=0", "limit=1001", "attempt=0", "attempt=x"] {
        let path = format!("/api/v1/instances/{id}/logs?{bad}");
        request(dev.address(), "GET", &path, &[], b"").check_refusal(400, "PUN-305");
    }
    // An event that is no line's was heard elsewhere: the stream begins anew.
    let anew = request(dev.address(), "GET", &format!("/api/v1/instances/{id}/logs/stream"), &[("last-event-id", "7.x")], b"");
    assert_eq!(anew.body.matches("event: line").count(), all.len(), "{}", anew.body);
    request(dev.address(), "GET", &format!("/api/v1/instances/{id}/logs?more=1"), &[], b"").check_refusal(400, "PUN-446");
    request(dev.address(), "GET", &format!("/api/v1/instances/{id}/logs/stream?level=loud"), &[], b"").check_refusal(400, "PUN-305");
    request(dev.address(), "GET", "/api/v1/instances/1-1/logs/stream", &[], b"").check_refusal(404, "PUN-304");

    // What ended long ago is told at once, and that it is over.
    dev.stop();
    let dev = folder.dev();
    assert_eq!(lines(&dev, &id, ""), all, "it is kept");
    let stream = request(dev.address(), "GET", &format!("/api/v1/instances/{id}/logs/stream?level=error"), &[], b"");
    assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
    assert_eq!(stream.body.matches("event: line").count(), 2, "{}", stream.body);
    assert!(stream.body.contains("event: end") && stream.body.contains("dead_lettered"), "{}", stream.body);
    let grep = dev.cli(&["logs", "--task", "steps", "--level", "warn", "--attempt", "1", "--grep", "o"]);
    assert_eq!(grep.stdout, "WARN low\nERROR <b>out</b> \u{1b}[31mred\u{1b}[0m\n");
    let tail = dev.cli(&["logs", &id, "--tail", "1"]);
    assert!(tail.stdout.starts_with("ERROR"), "{}", tail.stdout);
    let nobody = dev.cli(&["logs", "--task", "nothing"]);
    assert_ne!(nobody.code, Some(0));
    dev.stop();
}

/// Hears server-sent events, each with the moment at which it came.
fn hear(address: SocketAddr, id: &str) -> impl Iterator<Item = (Duration, Value)> + use<> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /api/v1/instances/{id}/logs/stream HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    BufReader::new(stream).lines().map_while(Result::ok).filter_map(|line| {
        let data = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        Some((SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), data))
    })
}

/// From the moment at which a command says a line to that at which whoever listens has it.
fn report(what: &str, heard: impl Iterator<Item = (Duration, Value)>, count: usize) {
    let mut delays: Vec<u128> = heard
        .filter_map(|(at, line)| {
            let said: u128 = line["message"].as_str()?.strip_prefix("at ")?.parse().ok()?;
            Some(at.as_nanos().saturating_sub(said) / 1_000_000)
        })
        .take(count)
        .collect();
    assert_eq!(delays.len(), count);
    delays.sort_unstable();
    eprintln!("{what}: of {count} lines, half within {} ms, all within {} ms", delays[count / 2], delays[count - 1]);
}

const CLOCK: &str = "
  - name: clock
    trigger: manual
    command: for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo at $(date +%s%N); sleep 0.13; done
  - name: counts
    trigger: manual
    retry: {max_attempts: 1}
    command: i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.01; done
";

/// The lines of `counts`: each once, in order, from the first on.
#[track_caller]
fn check_counts(replica: &Replica, id: &str) -> usize {
    let all = lines(&replica.process, id, "");
    for (index, line) in all.iter().enumerate() {
        assert_eq!(line["message"].as_str().unwrap(), format!("line {}", index + 1), "{line}");
        assert_eq!(line["number"], index as u64 + 1);
    }
    all.len()
}

#[test]
fn killed_replicas_and_workers_leave_lines_once_and_in_order() {
    let cluster = Cluster::new();
    cluster.folder.write("tasks.yaml", &format!("tasks:{CLOCK}"));
    let a = cluster.server("a");
    let worker = cluster.worker(&a, "w");
    let b = cluster.server("b");
    worker.says(&b.workers);
    cluster.apply(&a);
    let id = triggered(&a.process, "clock");
    let (of_a, of_b) = (hear(a.process.address(), &id), hear(b.process.address(), &id));
    let listening = std::thread::spawn(move || report("a line, by the replica that stores it", of_a, 20));
    report("a line, by another replica", of_b, 20);
    listening.join().unwrap();

    // The replica that lines are sent to goes in the middle of it.
    let id = triggered(&b.process, "counts");
    eventually("some lines", || (check_counts(&b, &id) > 50).then_some(()));
    a.process.kill();
    eventually("all lines", || (check_counts(&b, &id) == 400).then_some(()));
    b.process.instance_in("counts", "succeeded");
    assert_eq!(check_counts(&b, &id), 400);

    // The worker goes in the middle of it; what it had sent stays.
    let c = cluster.server("c");
    let id = triggered(&c.process, "counts");
    let seen = eventually("some lines", || Some(check_counts(&c, &id)).filter(|count| *count > 50));
    worker.kill();
    b.process.kill();
    let left = check_counts(&c, &id);
    assert!((seen..400).contains(&left), "{left} of {seen}");
    let shown = c.process.cli(&["logs", &id]).stdout;
    assert!(shown.starts_with("line 1\nline 2\n"), "{shown}");
    c.process.stop();
}

fn memory_most_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok()).unwrap()
}

#[test]
fn a_flood_costs_its_own_lines_and_nothing_else() {
    const LINES: u64 = 1_000_000;
    let cluster = Cluster::new();
    let flood = format!("  - name: flood\n    trigger: manual\n    command: yes \"$(printf %0999d 0)\" | head -n {LINES}\n");
    cluster.folder.write("tasks.yaml", &(cluster.folder.read("tasks.yaml") + &flood));
    let a = cluster.server("a");
    let worker = cluster.worker(&a, "w");
    cluster.apply(&a);
    a.fires(1);
    let id = triggered(&a.process, "flood");
    eventually("its end", || (a.process.instance(&id)["state"] == "succeeded").then_some(()));
    // Each line of it is there or counted, once all of them have come.
    let (kept, dropped) = eventually("all lines", || {
        let all = lines(&a.process, &id, "");
        let kept = all.iter().filter(|line| line["dropped"] == 0).count() as u64;
        let dropped: u64 = all.iter().map(|line| line["dropped"].as_u64().unwrap()).sum();
        (kept + dropped == LINES).then_some((kept, dropped))
    });
    assert!((1_000..20_000).contains(&kept), "{kept}");
    let shown = lines(&a.process, &id, "&level=warn");
    assert!(messages(&shown).iter().any(|text| text.contains("dropped here") || text.contains("counted only")), "{shown:?}");
    let most = [memory_most_kib(worker.pid()), memory_most_kib(a.process.pid())].map(|kib| kib / 1_024);
    eprintln!("1 GB of lines: {kept} kept, {dropped} counted; at most {} MiB in the worker, {} MiB in the replica", most[0], most[1]);
    assert!(most[0] < 200, "the worker has had {} MiB", most[0]);
    // The others fired on through it, each time once.
    a.fires(1);
    check_all(&cluster, &a, false);
    worker.stop();
    a.process.stop();
}
