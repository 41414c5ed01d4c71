//! The handler `command`: runs a program.
//!
//! The program leads a process group of its own. It gets the worker's environment without the worker's own `PUNCTUAL_` variables (they may
//! hold secrets), then the task's, then what tells it about the attempt. Its standard output and standard error are one pipe, so what it
//! writes is captured in the order in which it was written.
//!
//! The run is over when the program has ended. What it left in its group is killed then; what is in the pipe by then is captured, and a
//! process that has left the group (`setsid`) and holds the pipe open is not waited for.
//!
//! What a program that succeeds has written into the file that `PUNCTUAL_RESULT` names is its result. Where that can't be taken, it has
//! succeeded all the same: to run it again would have its effect again.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, io};

use punctual_core::protocol::{Assignment, End, MapRole};
use punctual_driver::logs::buffer::LineWriter;
use punctual_driver::logs::{AttemptLog, TraceId};
use punctual_driver::ports::{Ended, Stop};
use punctual_spec::handler::{CommandConfig, Program};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{ChildStdin, Command};
use tokio::sync::watch;

use crate::output::Capture;
use crate::process::Leader;
use crate::result_file::{self, ResultFile, Results};
use crate::user::{self, RunAs, UserError};
use crate::{failed, failed_for_good, items, orphans};

/// Bytes that are read of the pipe at once.
const READ_BYTES: usize = 64 << 10;
/// How long what is in the pipe at the program's end is read: longer only matters while somebody goes on writing.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
/// How much of a program's name is shown in messages.
const SHOWN_BYTES_MAX: usize = 256;

/// What this worker's commands have in common.
#[derive(Debug)]
pub(crate) struct CommandWorld {
    owner: String,
    worker: String,
    results: Results,
}

impl CommandWorld {
    pub(crate) fn new(worker: &str, marker: &str) -> Self {
        CommandWorld { owner: orphans::owner_value(marker), worker: worker.to_owned(), results: Results::default() }
    }
}

/// Runs one attempt.
pub(crate) async fn run(world: &CommandWorld, assignment: &Assignment, mut stop: watch::Receiver<Stop>, log: Option<AttemptLog>) -> Ended {
    let config: CommandConfig = match serde_json::from_str(&assignment.handler.config) {
        Ok(config) => config,
        Err(error) => return failed_for_good(format!("the configuration of the command can't be read: {error}. Correct the task")),
    };
    let prepared = match Prepared::new(world, assignment, &config).await {
        Ok(prepared) => prepared,
        Err(ended) => return ended,
    };
    // Spawning is the point of no return, so a stop that came meanwhile is seen before it.
    let asked = *stop.borrow();
    if asked != Stop::No {
        return crate::stopped_before_start();
    }
    let input = config.stdin.as_deref().or(assignment.payload.as_deref()).unwrap_or_default();
    let mut running = match prepared.start(input.is_empty()) {
        Ok(running) => running,
        Err(error) => return prepared.explain(&error),
    };
    running.written.log = log.map(LineWriter::new);
    let (status, stopped) = running.follow(input.as_bytes(), &mut stop).await;
    let output = running.written.capture.finish();
    match status {
        Ok(status) => prepared.with_result(Ended { output, ..judge(status, &config.success_codes, stopped) }),
        Err(error) => Ended { output, ..failed(format!("how the program ended can't be told: {error}")) },
    }
}

/// A command that is ready to be started.
struct Prepared {
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    /// Where its result goes; `None`: this machine has no room for one.
    result: Option<ResultFile>,
    /// Where it lists its items, if it is to; or where it finds the results.
    of_map: Option<ResultFile>,
    lists: bool,
    /// For messages.
    program: String,
}

impl Prepared {
    async fn new(world: &CommandWorld, assignment: &Assignment, config: &CommandConfig) -> Result<Prepared, Ended> {
        let mut arguments: Vec<OsString> = match &config.program {
            Program::Argv(argv) => argv.iter().map(OsString::from).collect(),
            Program::Shell(line) => {
                let shell = config.env.get("SHELL").filter(|shell| !shell.is_empty()).map_or("/bin/sh", String::as_str);
                let mut argv = vec![shell, "-c"];
                if line.starts_with(['-', '+']) {
                    argv.push("--");
                }
                argv.push(line);
                argv.into_iter().map(OsString::from).collect()
            }
        };
        let program = match arguments.first() {
            Some(program) if !program.is_empty() => program.clone(),
            _ => return Err(failed_for_good("the command is empty. Name a program in the task")),
        };
        if let Some(name) = config.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(failed_for_good(format!("{name:?} can't be the name of an environment variable. Correct the task's `env`")));
        }
        let directory = config.working_directory.as_ref().map(PathBuf::from);
        if let Some(directory) = &directory {
            check_directory(directory).await?;
        }

        let own = env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"PUNCTUAL_"));
        let mut environment: Vec<(OsString, OsString)> = own.collect();
        let mut other_account = None;
        if let Some(user) = &config.user {
            match user::resolve(user).await {
                Ok(RunAs::Myself) => {}
                Ok(RunAs::Other { account, setpriv }) => {
                    let path = config.env.get("PATH").map(OsString::from).or_else(|| env::var_os("PATH"));
                    let from = directory.clone().unwrap_or_else(|| PathBuf::from("."));
                    if user::find_program(&program.to_string_lossy(), path.as_deref(), &from).is_none() {
                        return Err(failed_for_good(not_found(&shown(&program.to_string_lossy()))));
                    }
                    let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
                    let prefix = ["--reuid", &uid, "--regid", &gid, "--init-groups", "--"];
                    arguments.splice(..0, [setpriv.into_os_string()].into_iter().chain(prefix.map(OsString::from)));
                    let of_the_user =
                        [("HOME", &account.home), ("SHELL", &account.shell), ("USER", &account.name), ("LOGNAME", &account.name)];
                    environment.extend(of_the_user.map(|(name, value)| (name.into(), value.into())));
                    other_account = Some(account);
                }
                Err(error @ UserError::Database(_)) => return Err(failed(error.to_string())),
                Err(error) => return Err(failed_for_good(error.to_string())),
            }
        }
        environment.push(("TRACEPARENT".into(), TraceId::of(assignment).parent(assignment.fence).into()));
        environment.extend(config.env.iter().map(|(name, value)| (name.into(), value.into())));
        environment.extend(about_attempt(world, assignment));
        let placed = world.results.place(other_account.as_ref()).await;
        let result = placed
            .inspect_err(|error| tracing::warn!(%error, "commands get no {}: no folder for it can be made", result_file::RESULT))
            .ok();
        environment.extend(result.iter().map(|file| (result_file::RESULT.into(), file.path().into())));
        let of_map = match &assignment.map {
            None => None,
            Some(role) => {
                let no_folder = |error: io::Error| failed(format!("no folder can be made for its items or results: {error}"));
                let file = world.results.place(other_account.as_ref()).await.map_err(no_folder)?;
                let name = match role {
                    MapRole::List => items::ITEMS,
                    MapRole::Reduce { results } => {
                        file.write(results).await.map_err(no_folder)?;
                        items::RESULTS
                    }
                };
                environment.push((name.into(), file.path().into()));
                Some(file)
            }
        };
        let lists = assignment.map == Some(MapRole::List);
        Ok(Prepared { arguments, environment, directory, result, of_map, lists, program: shown(&program.to_string_lossy()) })
    }

    fn start(&self, no_input: bool) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        let pipe = pipe::Receiver::from_owned_fd(reader.into())?;
        let mut command = Command::new(&self.arguments[0]);
        command.args(&self.arguments[1..]).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(if no_input { Stdio::null() } else { Stdio::piped() });
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut leader = Leader::spawn(&mut command)?;
        let stdin = leader.take_stdin();
        Ok(Running { leader, stdin, pipe: Some(pipe), written: Written::default() })
    }

    fn path(&self) -> Option<&OsStr> {
        self.environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str())
    }

    /// The end of the program, with its result where it has one.
    fn with_result(&self, ended: Ended) -> Ended {
        if let Some(file) = self.of_map.as_ref().filter(|_| self.lists && ended.end == End::Succeeded) {
            let named = |reason: String| format!("can't be taken: its {} {reason}", items::ITEMS);
            let nothing = || format!("is not there: write a JSON array into the file that {} names", items::ITEMS);
            let text = file.read_up_to(items::LISTED_BYTES_MAX).map_err(named).and_then(|text| text.ok_or_else(nothing));
            return match text {
                Ok(text) => items::listed(ended, Ok(&text)),
                Err(reason) => items::listed(ended, Err(reason)),
            };
        }
        let Some(file) = self.result.as_ref().filter(|_| ended.end == End::Succeeded) else { return ended };
        match file.read() {
            Ok(result) => Ended { result, ..ended },
            Err(reason) => {
                let detail = format!("no result: its {} {reason}", result_file::RESULT);
                Ended { detail: Some(crate::cut_detail(&detail)), ..ended }
            }
        }
    }

    /// Why the program could not be started, and what to do.
    fn explain(&self, error: &io::Error) -> Ended {
        let program = &self.program;
        match error.kind() {
            io::ErrorKind::NotFound => failed_for_good(not_found(program)),
            // The system says so too where it found nothing, but could not look into every folder of the PATH.
            io::ErrorKind::PermissionDenied
                if !program.contains('/') && user::find_program(program, self.path(), Path::new("")).is_none() =>
            {
                failed_for_good(not_found(program))
            }
            io::ErrorKind::PermissionDenied => failed_for_good(format!(
                "{program:?} may not be executed by this worker's user: {error}. Make it executable (chmod +x), and its folder and the \
                 working directory accessible"
            )),
            io::ErrorKind::NotADirectory => {
                failed_for_good(format!("the path of {program:?} leads through something that is no folder. Correct the task"))
            }
            io::ErrorKind::ArgumentListTooLong => {
                failed_for_good("arguments and environment together are too long for the system. Hand the data over by standard input")
            }
            io::ErrorKind::InvalidInput => {
                failed_for_good(format!("an argument or variable can't be handed to a program: {error}. Remove the zero byte from it"))
            }
            io::ErrorKind::InvalidFilename => failed_for_good(format!("{program:?} is too long for a path. Correct the task")),
            _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => failed_for_good(format!(
                "{program:?} is no program for this machine. If it is a script, begin it with a line such as #!/bin/sh"
            )),
            _ => failed(format!("{program:?} could not be started: {error}")),
        }
    }
}

/// A program's name for a message: whole, unless it is so long that there would be no room for the rest.
fn shown(program: &str) -> String {
    match program.floor_char_boundary(SHOWN_BYTES_MAX) {
        end if end < program.len() => format!("{}…", &program[..end]),
        _ => program.to_owned(),
    }
}

fn not_found(program: &str) -> String {
    if program.contains('/') {
        format!(
            "the program {program:?} was not found, or the interpreter that its first line names was not. Install it on this worker, or \
             correct the path in the task"
        )
    } else {
        format!("the program {program:?} was not found on the PATH. Install it on this worker, or give its full path in the task")
    }
}

async fn check_directory(directory: &Path) -> Result<(), Ended> {
    let advice = "Make it on this worker, or correct `working_directory` in the task";
    match tokio::fs::metadata(directory).await {
        Ok(data) if data.is_dir() => Ok(()),
        Ok(_) => Err(failed_for_good(format!("the working directory {directory:?} is no folder. {advice}"))),
        Err(error) => Err(failed_for_good(format!("the working directory {directory:?} can't be used: {error}. {advice}"))),
    }
}

/// What the program is told about the attempt.
fn about_attempt(world: &CommandWorld, assignment: &Assignment) -> impl Iterator<Item = (OsString, OsString)> {
    let of_all = [
        ("PUNCTUAL_INSTANCE", assignment.instance.to_string()),
        ("PUNCTUAL_ATTEMPT", assignment.attempt.to_string()),
        ("PUNCTUAL_FENCE", assignment.fence.to_string()),
        ("PUNCTUAL_KEY", assignment.idempotency_key()),
        ("PUNCTUAL_TASK", assignment.task_name.replace('\0', "\u{fffd}")),
        ("PUNCTUAL_FIRE_TIME", assignment.fire_time.to_string()),
        ("PUNCTUAL_RUN", assignment.run.to_string()),
        ("PUNCTUAL_WORKER", world.worker.replace('\0', "\u{fffd}")),
        (orphans::OWNER, world.owner.clone()),
    ];
    let shard = assignment.shard.as_ref();
    let of_shards = shard.map(|shard| [("PUNCTUAL_SHARD", shard.index.to_string()), ("PUNCTUAL_SHARDS", shard.count.to_string())]);
    let key = shard.and_then(|shard| shard.key.as_deref()).map(|key| ("PUNCTUAL_SHARD_KEY", key.replace('\0', "\u{fffd}")));
    let node = assignment.node.as_ref();
    let of_node = node.map(|node| [("PUNCTUAL_NODE", node.name.replace('\0', "\u{fffd}")), ("PUNCTUAL_INPUTS", node.inputs.to_string())]);
    let of_parts = of_shards.into_iter().flatten().chain(key).chain(of_node.into_iter().flatten());
    of_all.into_iter().chain(of_parts).map(|(name, value)| (name.into(), value.into()))
}

/// A command that was started. Dropping it kills its process group.
struct Running {
    leader: Leader,
    stdin: Option<ChildStdin>,
    pipe: Option<pipe::Receiver>,
    written: Written,
}

/// What a command has written.
#[derive(Default)]
struct Written {
    capture: Capture,
    log: Option<LineWriter>,
}

impl Written {
    fn push(&mut self, bytes: &[u8]) {
        self.capture.push(bytes);
        if let Some(log) = &mut self.log {
            log.push(bytes);
        }
    }
}

impl Running {
    /// Feeds the program, takes in what it writes and passes stops on, until it has ended; then ends its group. Says with the exit
    /// status whether it was asked to end.
    async fn follow(&mut self, input: &[u8], stop: &mut watch::Receiver<Stop>) -> (io::Result<ExitStatus>, bool) {
        let stdin = self.stdin.take();
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // A program that doesn't read all of it is none the worse for that.
                let _ = stdin.write_all(input).await;
            }
        };
        tokio::pin!(feed);
        let mut feeding = true;
        let mut passed_on = Stop::No;
        let mut commanded = true;
        let mut buffer = vec![0; READ_BYTES];
        stop.mark_changed();
        loop {
            tokio::select! {
                () = self.leader.ended() => break,
                changed = stop.changed(), if commanded => {
                    let asked = *stop.borrow_and_update();
                    match asked {
                        Stop::Cancel if passed_on < Stop::Cancel => self.leader.terminate(),
                        Stop::Kill if passed_on < Stop::Kill => self.leader.kill(),
                        _ => {}
                    }
                    passed_on = passed_on.max(asked);
                    // Nobody is left who could ask for more: the one who dropped the sender drops this future too, if it is to end.
                    commanded = changed.is_ok();
                }
                read = read_some(&mut self.pipe, &mut buffer) => match read {
                    Ok(count) if count > 0 => self.written.push(&buffer[..count]),
                    _ => self.pipe = None,
                },
                () = &mut feed, if feeding => feeding = false,
            }
        }
        let status = self.leader.reap().await;
        self.drain(&mut buffer);
        (status, passed_on != Stop::No)
    }

    /// Takes in what is in the pipe, and waits for nothing.
    fn drain(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = self.pipe.take() else { return };
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        while Instant::now() < deadline {
            // Past the runtime, which would answer from what it last heard about the pipe.
            match rustix::io::read(&pipe, &mut *buffer) {
                Ok(count) if count > 0 => self.written.push(&buffer[..count]),
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
}

/// Reads; never ends without a pipe.
async fn read_some(pipe: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => std::future::pending().await,
    }
}

fn judge(status: ExitStatus, success_codes: &[u8], stopped: bool) -> Ended {
    let code = status.code();
    let detail = match (code, status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by {}", signal_text(signal)),
        (None, None) => status.to_string(),
    };
    let succeeded = code.is_some_and(|code| u8::try_from(code).is_ok_and(|code| success_codes.contains(&code)));
    let end = match (stopped, succeeded) {
        // A script that cleans up and exits with 0 when it is told to end has not done its work.
        (true, _) => End::Cancelled,
        (false, true) => End::Succeeded,
        (false, false) => End::Failed,
    };
    let detail = (end != End::Succeeded).then(|| crate::cut_detail(&detail));
    Ended { end, code, detail, output: Default::default(), result: None, items: None, retry_after: None }
}

fn signal_text(number: i32) -> String {
    let names = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    match names.iter().find(|(signal, _)| signal.as_raw() == number) {
        Some((_, name)) => format!("signal {number} ({name})"),
        None => format!("signal {number}"),
    }
}
