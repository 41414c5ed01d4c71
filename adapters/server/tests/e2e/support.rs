//! Processes, requests and waiting. Nothing here sleeps to make a test pass: every wait is for a condition, and ends with a reason.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_core::instance::State;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Longest wait for anything; a machine that has other work needs some of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until there is something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, look).unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// Waits until there is something, or the time is over.
pub(crate) fn within<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if begun.elapsed() > time {
            return None;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// A folder for a test's files, its working directory.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    /// One with a task file.
    pub(crate) fn with(tasks: &str) -> Self {
        let folder = Folder::new();
        folder.write("tasks.yaml", tasks);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Nothing where there is no such file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `punctual dev tasks.yaml` on a free port, not started yet.
    pub(crate) fn dev_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["dev", "tasks.yaml"]).args(arguments);
        for (option, value) in [("--db", "punctual.db"), ("--listen", "127.0.0.1:0")] {
            if !arguments.contains(&option) {
                command.args([option, value]);
            }
        }
        command.current_dir(self.0.path()).env("TZ", "Asia/Kathmandu");
        command
    }

    /// A running `punctual dev tasks.yaml`.
    #[track_caller]
    pub(crate) fn dev(&self) -> Dev {
        self.dev_with(&[])
    }

    #[track_caller]
    pub(crate) fn dev_with(&self, arguments: &[&str]) -> Dev {
        let dev = Dev::spawn(self.dev_command(arguments));
        dev.address();
        dev
    }

    /// Runs any command of the binary in this folder.
    pub(crate) fn punctual(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        run(command.args(arguments).current_dir(self.0.path()))
    }

    /// Runs `punctual dev tasks.yaml` that is expected to refuse its service.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let mut dev = Dev::spawn(self.dev_command(arguments));
        let status = dev.ended();
        assert!(status.code().is_some_and(|code| code == 1 || code == 2), "{status}: {}", dev.told());
        dev.stderr.text()
    }
}

/// What a run of the binary gave.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {:?} {:?}", self.stdout, self.stderr))
    }
}

pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Text that a process writes, as it comes.
#[derive(Clone, Default)]
pub(crate) struct Stream {
    text: Arc<Mutex<String>>,
    has_ended: Arc<AtomicBool>,
}

impl Stream {
    fn of(reader: impl Read + Send + 'static) -> Self {
        let stream = Stream::default();
        let Stream { text, has_ended } = stream.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
            has_ended.store(true, Ordering::Release);
        });
        stream
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}

/// A `punctual dev`. Dropping it ends it, with all that it runs.
pub(crate) struct Dev {
    child: Child,
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
    status: Option<ExitStatus>,
}

impl Dev {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().map(Stream::of).unwrap_or_default();
        let stderr = child.stderr.take().map(Stream::of).unwrap_or_default();
        Dev { child, stdout, stderr, status: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its API listens, once it says so.
    pub(crate) fn address_now(&self) -> Option<SocketAddr> {
        address_in(&self.stdout.text())
    }

    #[track_caller]
    pub(crate) fn address(&self) -> SocketAddr {
        let found = within(PATIENCE, || self.address_now());
        found.unwrap_or_else(|| panic!("no API; it said {}", self.told()))
    }

    /// All that it has said.
    pub(crate) fn told(&self) -> String {
        format!("{}\n--- stderr\n{}", self.stdout.text(), self.stderr.text())
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = request(self.address(), "GET", path, &[], b"");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    pub(crate) fn post(&self, path: &str, key: Option<&str>, body: &Value) -> Answer {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        request(self.address(), "POST", path, &headers, body.to_string().as_bytes())
    }

    /// Runs a client command against this one.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        run(command.args(arguments).env("PUNCTUAL_API", format!("http://{}", self.address())))
    }

    /// The instances of a task, newest first.
    #[track_caller]
    pub(crate) fn instances(&self, task: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut before = String::new();
        loop {
            let page = self.get(&format!("/api/v1/instances?limit=1000&parts=true&task={}{before}", escaped(task)));
            all.extend(page["instances"].as_array().unwrap().iter().cloned());
            match page["next"].as_str() {
                Some(next) => before = format!("&before={next}"),
                None => return all,
            }
        }
    }

    /// An instance's whole story.
    #[track_caller]
    pub(crate) fn instance(&self, id: &str) -> Value {
        let instance = self.get(&format!("/api/v1/instances/{id}"));
        check_story(&instance);
        instance
    }

    /// The first instance of a task that is in this state.
    #[track_caller]
    pub(crate) fn instance_in(&self, task: &str, state: &str) -> Value {
        let found = within(PATIENCE, || self.instances(task).into_iter().rev().find(|instance| instance["state"] == state));
        let found = found.unwrap_or_else(|| panic!("no {task} is {state}: {:#?}; it said {}", self.instances(task), self.told()));
        self.instance(found["id"].as_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn says(&self, what: &str) {
        let found = within(PATIENCE, || self.told().contains(what).then_some(()));
        found.unwrap_or_else(|| panic!("never said {what:?}, but {}", self.told()));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            rustix::process::kill_process(pid, signal).unwrap();
        }
    }

    /// Whether it has ended, and how.
    pub(crate) fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap();
        }
        self.status
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let all_is_read = |stream: &Stream| stream.has_ended.load(Ordering::Acquire);
        let ended = within(PATIENCE, || self.poll().filter(|_| all_is_read(&self.stdout) && all_is_read(&self.stderr)));
        ended.unwrap_or_else(|| panic!("it doesn't end; it said {}", self.told()))
    }

    /// Kills it as the kernel or a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.status = Some(self.child.wait().unwrap());
    }

    /// Ctrl-C, and the end that follows.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::INT);
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{}", self.told());
        assert!(!self.told().contains("panicked"), "{}", self.told());
        self.stdout.text()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        for _ in 0..2 {
            if self.poll().is_none() {
                self.signal(Signal::INT);
                within(Duration::from_secs(3), || self.poll());
            }
        }
        if self.poll().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn address_in(text: &str) -> Option<SocketAddr> {
    text.split("API on http://").nth(1)?.split([';', ',']).next()?.parse().ok()
}

/// An answer of the API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// That it is a refusal as the API words them all.
    #[track_caller]
    pub(crate) fn check_refusal(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()), "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{problem}");
    }
}

/// A request, byte for byte as it is given.
pub(crate) fn try_request(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<Answer> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        write!(text, "host: {address}\r\n").unwrap();
    }
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    text.push_str("\r\n");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(text.as_bytes())?;
    // A server that has heard enough answers before all is sent.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return Err(read.err().unwrap_or_else(|| std::io::Error::other("half an answer")));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answer { status: status.ok_or_else(|| std::io::Error::other("no status"))?, head: head.to_owned(), body: body.to_owned() })
}

#[track_caller]
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    try_request(address, method, path, headers, body).unwrap()
}

/// Escapes everything but letters and digits.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// That an instance's transitions lead from one to the next, on allowed ways, and to the state that it shows; that fences only grow.
#[track_caller]
pub(crate) fn check_story(instance: &Value) {
    let state = |value: &Value| value.as_str().map(|name| State::from_name(name).unwrap());
    let mut current = None;
    let mut fence = 0;
    let mut attempt = 0;
    for transition in instance["transitions"].as_array().unwrap() {
        let (from, to) = (state(&transition["from"]), state(&transition["to"]).unwrap());
        assert_eq!(from, current, "{instance:#}");
        assert!(from.is_none_or(|from| from.may_become(to)), "{from:?} to {to:?}: {instance:#}");
        let its_fence: u64 = transition["fence"].as_str().unwrap().parse().unwrap();
        if transition["cause"] == "assigned" {
            assert!(its_fence > fence, "{instance:#}");
        }
        assert!(its_fence >= fence && transition["attempt"].as_u64().unwrap() >= attempt, "{instance:#}");
        (fence, attempt) = (its_fence, transition["attempt"].as_u64().unwrap());
        current = Some(to);
    }
    assert_eq!(state(&instance["state"]), current, "{instance:#}");
}

/// Processes whose environment has this text, with that environment.
pub(crate) fn processes_with(text: &str) -> Vec<(i32, String)> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let with_environment = pids.filter_map(|pid: i32| Some((pid, std::fs::read(format!("/proc/{pid}/environ")).ok()?)));
    let texts = with_environment.map(|(pid, bytes)| (pid, String::from_utf8_lossy(&bytes).into_owned()));
    texts.filter(|(_, environment)| environment.contains(text)).collect()
}

/// Whether a process with this number is running; one that has ended and was not waited for is not.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// The repository's own files.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
