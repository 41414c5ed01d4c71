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
/// Removes a folder then, and what is mounted there.
const CLEANER: &str = r#"while read -r line; do :; done; sleep 1; [ -z "$2" ] || umount -l "$1"; rm -rf "$1""#;

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
        Folder::make(name, None)
    }

    /// One with so much room, on a file system of its own in memory.
    pub(crate) fn with_room(name: &str, bytes: u64) -> Result<Folder, Problem> {
        let folder = Folder::make(name, Some("mounted"))?;
        let path = folder.path.display().to_string();
        output("mount", &["-t", "tmpfs", "-o", &format!("size={bytes},mode=0700"), "tmpfs", &path].map(str::to_owned))?;
        Ok(folder)
    }

    /// Changes its room; where that is less than what is in it, nothing more can be written.
    pub(crate) fn set_room(&self, bytes: u64) -> Result<(), Problem> {
        let path = self.path.display().to_string();
        output("mount", &["-o", &format!("remount,size={bytes}"), &path].map(str::to_owned)).map(drop)
    }

    /// How many bytes of its room are taken.
    pub(crate) fn taken(&self) -> Result<u64, Problem> {
        let text = output("df", &["--output=used", "-B1", &self.path.display().to_string()].map(str::to_owned))?;
        let taken = text.lines().last().and_then(|line| line.trim().parse().ok());
        taken.ok_or_else(|| Problem::new(format!("df says {text:?}")))
    }

    fn make(name: &str, mounted: Option<&str>) -> Result<Folder, Problem> {
        let made = tempfile::Builder::new().prefix(&format!("punctual-{name}-")).tempdir();
        let path = made.map_err(|error| Problem::new(format!("no temporary folder: {error}")))?.keep();
        let mut shell = Command::new("sh");
        shell.args(["-c", CLEANER, "cleaner"]).arg(&path).args(mounted).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
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
        let mut server = Server::start_with(program, arguments, &[], log)?;
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if server.has_ended() || began.elapsed() > START_MAX {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(20).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(Problem::new(format!("{program} does not listen on port {port}:\n{}", tail.join("\n"))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Starts a program in this environment, which is added to the own one. What it says is added to the log.
    pub(crate) fn start_with(program: &str, arguments: &[String], environment: &[(String, String)], log: &Path) -> Result<Server, Problem> {
        let file = std::fs::File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| Problem::new(format!("{}: {error}", log.display())))?;
        let mut shell = Command::new("sh");
        // For the program alone: the shell and what it calls are left as they are.
        let environment = environment.iter().map(|(name, value)| format!("{name}={value}"));
        shell.args(["-c", KEEPER, "keeper", "env"]).args(environment).arg(program).args(arguments);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut keeper = spawn(shell)?;
        let mut line = String::new();
        let told = BufReader::new(keeper.stdout.take().expect("piped")).read_line(&mut line);
        told.map_err(|error| Problem::new(format!("{program}: {error}")))?;
        let pid = line.trim().parse().map_err(|_| Problem::new(format!("{program} did not start: {line}")))?;
        Ok(Server { keeper, pid })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.keeper.try_wait().is_ok_and(|status| status.is_some())
    }

    /// How it has ended, as a shell says it; `None`: it has not.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.keeper.try_wait().ok().flatten().map(|status| status.code().unwrap_or(-1))
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
