//! A server process that does not outlive this one, and the folder that it lives in.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer.
const START_MAX: Duration = Duration::from_secs(60);

/// Runs a command, and ends it as soon as nobody holds the other end of its standard input: when this process ends, however it does.
const KEEPER: &str = r#"exec 3<&0
"$@" </dev/null >&2 3<&- & pid=$!
echo $pid; exec >&-
( while read -r line <&3; do :; done; kill -9 $pid 2>/dev/null ) &
wait $pid"#;
/// Removes a folder then.
const CLEANER: &str = r#"while read -r line; do :; done; sleep 1; rm -rf "$1""#;

/// What kept a server from starting.
#[derive(Debug)]
pub struct Problem(String);

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Problem {
        Problem(text.into())
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

/// A port of the loopback that nobody listened on just now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has free ports");
    listener.local_addr().expect("it is bound").port()
}

/// A temporary folder that is gone when this process is.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _cleaner: ChildStdin,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Folder, Problem> {
        let made = tempfile::Builder::new().prefix(&format!("punctual-{name}-")).tempdir();
        let path = made.map_err(|error| Problem::new(format!("no temporary folder: {error}")))?.keep();
        let mut shell = Command::new("sh");
        shell.args(["-c", CLEANER, "cleaner"]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: Ctrl-C ends the test, and this cleans up behind it.
        let mut cleaner = spawn(shell)?;
        Ok(Folder { path, _cleaner: cleaner.stdin.take().expect("piped") })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A server that runs. It is ended, without being asked, when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    keeper: Child,
    pid: u32,
}

impl Server {
    /// Starts a program and waits until something listens on the port.
    pub(crate) fn start(program: &str, arguments: &[String], port: u16, log: &Path) -> Result<Server, Problem> {
        let file = std::fs::File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| Problem::new(format!("{}: {error}", log.display())))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", KEEPER, "keeper", program]).args(arguments);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut keeper = spawn(shell)?;
        let mut line = String::new();
        let told = BufReader::new(keeper.stdout.take().expect("piped")).read_line(&mut line);
        told.map_err(|error| Problem::new(format!("{program}: {error}")))?;
        let pid = line.trim().parse().map_err(|_| Problem::new(format!("{program} did not start: {line}")))?;
        let mut server = Server { keeper, pid };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let is_over = server.keeper.try_wait().is_ok_and(|status| status.is_some());
            if is_over || began.elapsed() > START_MAX {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(20).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(Problem::new(format!("{program} does not listen on port {port}:\n{}", tail.join("\n"))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it as a crash would, and waits until it has ended.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([&format!("-{name}"), &self.pid.to_string()]).status();
    }

    fn end(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(mut command: Command) -> Result<Child, Problem> {
    use std::os::unix::process::CommandExt;
    command.process_group(0).spawn().map_err(|error| Problem::new(format!("sh: {error}")))
}

/// Runs a program to its end; its standard output, or what it complained of.
pub(crate) fn output(program: &str, arguments: &[String]) -> Result<String, Problem> {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| Problem::new(format!("{program}: {error}; it comes with Debian's mariadb-server or redis-server")))?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(Problem::new(format!("{program}: {}\n{}", ran.status, String::from_utf8_lossy(&ran.stderr)))),
    }
}
