//! How long lists and pages of the console take on a database that the program `seed` has made:
//! `cargo build --release && cargo run --release -p punctual-benches --bin listing -- --store sqlite:PATH [--calls 300]`.
//!
//! Runs the built `punctual` beside this program on the database and asks its API, one call after another, each with something else that is
//! asked for and with a page somewhere in the list. Prints p50, p99 and the longest of each kind of call; a p99 above 100 ms is
//! said, of a page one above 200 ms.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

type Anyhow<T> = Result<T, Box<dyn Error>>;

/// What a list may take, and a page.
const P99_MAX: Duration = Duration::from_millis(100);
const PAGE_P99_MAX: Duration = Duration::from_millis(200);
/// How long the program may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(120);

/// A kind of call: its name, and what is asked for. `{task}`, `{group}`, `{worker}`, `{instance}` and `{time}` are drawn for each call.
const KINDS: [(&str, &str); 29] = [
    ("instances", "/api/v1/instances?limit=50"),
    ("instances, a thousand", "/api/v1/instances?limit=1000"),
    ("instances from a time on", "/api/v1/instances?limit=50&fired_before={time}"),
    ("instances of a task", "/api/v1/instances?limit=50&task={task}"),
    ("failures", "/api/v1/instances?limit=50&state=failed,timed_out&fired_before={time}"),
    ("failures of a task", "/api/v1/instances?limit=50&state=failed&task={task}"),
    ("successes of a group", "/api/v1/instances?limit=50&state=succeeded&group={group}"),
    ("of a group from a time on", "/api/v1/instances?limit=50&group={group}&fired_before={time}"),
    ("of a worker", "/api/v1/instances?limit=50&worker={worker}&fired_before={time}"),
    ("waiting", "/api/v1/instances?limit=50&state=waiting"),
    ("of an origin that is rare", "/api/v1/instances?limit=50&origin=backfill&fired_before={time}"),
    ("made within an hour", "/api/v1/instances?limit=50&created_before={time}"),
    ("dead letters", "/api/v1/dead-letters?limit=50"),
    ("tasks", "/api/v1/tasks?limit=100"),
    ("tasks by a part of the name", "/api/v1/tasks?limit=100&q=77"),
    ("status", "/api/v1/status"),
    ("page: overview", "/"),
    ("page: tasks", "/tasks"),
    ("page: tasks by a text", "/tasks?q=77"),
    ("page: a task", "/tasks/{task}"),
    ("page: instances", "/instances"),
    ("page: failures of a task", "/instances?state=failed&task={task}"),
    ("page: an instance", "/instances/{instance}"),
    ("page: why an instance", "/instances/{instance}/why"),
    ("page: calendar", "/calendar"),
    ("page: dead letters", "/dead-letters"),
    ("page: workers", "/workers"),
    ("page: replicas", "/replicas"),
    ("page: audit", "/audit"),
];

fn main() -> Anyhow<()> {
    let (mut store, mut calls) = (String::new(), 300_u64);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
        match name.as_str() {
            "--store" => store = value,
            "--calls" => calls = value.parse()?,
            _ => return Err(format!("there is no {name}; there are --store and --calls").into()),
        }
    }
    let program = std::env::current_exe()?.with_file_name("punctual");
    if !program.exists() {
        return Err(format!("{} is not there; build it: cargo build --release", program.display()).into());
    }
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(program);
    match store.strip_prefix("sqlite:") {
        Some(path) => {
            let file = folder.path().join("tasks.yaml");
            std::fs::write(&file, "tasks:\n  - name: listing\n    trigger: manual\n    command: { argv: [\"true\"] }\n")?;
            command.arg("dev").arg(file).args(["--db", path]);
        }
        None => _ = command.args(["server", "--listen-workers", "127.0.0.1:0"]).env("PUNCTUAL_DATABASE", &store),
    }
    command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut process = Process(command.spawn()?);
    let api = address(&mut process)?;
    let tasks = names(&json(&get(&api, "/api/v1/tasks?limit=1000")?.0)?["tasks"], "name");
    if tasks.is_empty() {
        return Err("the database has no tasks; make some with the program seed".into());
    }
    let instances = names(&json(&get(&api, "/api/v1/instances?limit=1000")?.0)?["instances"], "id");
    if instances.is_empty() {
        return Err("the database has no instances; make some with the program seed".into());
    }
    let now = json(&get(&api, "/api/v1/status")?.0)?["now"].as_str().unwrap_or_default().to_owned();
    println!("{:<28} {:>9} {:>9} {:>9}  instances", "", "p50 ms", "p99 ms", "max ms");
    let mut slow = Vec::new();
    for (name, path) in KINDS {
        let (mut times, mut found, is_page) = (Vec::new(), 0, !path.starts_with("/api/"));
        for call in 0..calls {
            let drawn = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            let pick = |count: usize| drawn as usize % count;
            let path = path
                .replace("{task}", &tasks[pick(tasks.len())])
                .replace("{group}", &format!("group-{:02}", pick(50)))
                .replace("{instance}", &instances[pick(instances.len())])
                .replace("{worker}", &format!("worker-{}", pick(20)))
                .replace("{time}", &back(&now, drawn % (29 * 86_400))?);
            let (body, took) = get(&api, &path)?;
            found += if is_page { 0 } else { json(&body)?["instances"].as_array().map_or(0, Vec::len) };
            times.push(took);
        }
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        println!("{name:<28} {:>9} {:>9} {:>9}  {:.1}", ms(at(50)), ms(at(99)), ms(at(100)), found as f64 / calls as f64);
        if at(99) > if is_page { PAGE_P99_MAX } else { P99_MAX } {
            slow.push(name);
        }
    }
    if slow.is_empty() { Ok(()) } else { Err(format!("a p99 that is too long: {}", slow.join(", ")).into()) }
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the API is, as the program says.
fn address(process: &mut Process) -> Anyhow<String> {
    let begun = Instant::now();
    let mut lines = BufReader::new(process.0.stdout.take().ok_or("no output")?).lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line?.split_once("API on http://").map(|(_, rest)| rest.to_owned()) {
            // What it says later is read by nobody, and may not stop it.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(rest.split([';', ',']).next().unwrap_or_default().trim().to_owned());
        }
        if begun.elapsed() > START_TIME_MAX {
            break;
        }
    }
    Err("punctual does not say where its API is".into())
}

/// The body of an answer, and how long it took.
fn get(api: &str, path: &str) -> Anyhow<(String, Duration)> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(api)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let took = begun.elapsed();
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("not an answer")?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{path}: {head}\n{body}").into());
    }
    Ok((body.to_owned(), took))
}

fn json(body: &str) -> Anyhow<Value> {
    Ok(serde_json::from_str(body)?)
}

fn names(rows: &Value, field: &str) -> Vec<String> {
    rows.as_array().into_iter().flatten().filter_map(|row| row[field].as_str().map(str::to_owned)).collect()
}

/// An instant so many seconds before.
fn back(now: &str, seconds: u64) -> Anyhow<String> {
    let now: jiff::Timestamp = now.parse()?;
    Ok((now - jiff::SignedDuration::from_secs(i64::try_from(seconds)?)).to_string())
}
