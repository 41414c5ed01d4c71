//! The command line.
//!
//! Exit codes: 0 done; 1 something was found or failed; 2 wrong usage, or input that was refused. What a command has to say goes to
//! the standard output, remarks to the standard error.

mod accounts;
mod apply;
pub(crate) mod ask;
mod backfill;
mod bench;
pub(crate) mod client;
mod context;
mod cron;
mod describe;
mod dev;
mod doctor;
mod explain;
mod export;
mod files;
mod get;
mod help;
mod import;
mod internal;
mod logs;
mod migrate;
mod nodes;
mod oidc;
mod operator;
mod output;
mod reach;
mod rehearse;
mod remote;
mod remove;
mod schema;
mod server;
mod shell;
mod status;
mod validate;
mod versions;
mod worker;

pub(crate) use cron::offset;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use output::Output;
use tokio::sync::mpsc;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All well.
    Done,
    /// Something was found, or failed.
    Found,
    /// Wrong usage, or refused input.
    Refused,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Found => 1,
            Exit::Refused => 2,
        })
    }
}

/// Declares the subcommands: each has arguments with a `run`.
macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident($module:ident::$args:ident),)+) => {
        // Made once, and taken apart at once.
        #[allow(clippy::large_enum_variant)]
        #[derive(clap::Subcommand)]
        enum Command {
            $($(#[$doc])* $variant($module::$args),)+
        }

        impl Command {
            fn run(self, output: &mut Output) -> Exit {
                match self {
                    $(Command::$variant(args) => args.run(output),)+
                }
            }
        }
    };
}

commands! {
    /// Run a task file on this machine: scheduler, worker and API in one process.
    ///
    /// Commands in the file are run as the user who starts this. Ctrl-C lets what runs end and stops; a second one cancels it, a third stops
    /// at once.
    Dev(dev::DevArgs),
    /// Run a scheduler replica on MySQL or MariaDB, one of as many as you like.
    ///
    /// Replicas divide the work among them and take over from each other. Workers connect with `punctual worker`. Ctrl-C hands everything
    /// over and stops; what runs on workers goes on.
    Server(server::ServerArgs),
    /// Run commands and HTTP calls for the schedulers of a cluster.
    ///
    /// Ctrl-C lets what runs end and stops; a second one cancels it, a third stops at once.
    Worker(worker::WorkerArgs),
    /// Bring a MySQL or MariaDB database to the newest schema. `punctual server` does so as well when it starts.
    Migrate(migrate::MigrateArgs),
    /// Show replicas, partitions and what waits.
    Status(status::StatusArgs),
    /// Hand task files over to a running Punctual: tasks are made and changed; others are left, unless --remove says otherwise.
    Apply(apply::Args),
    /// Show what task files would change, line by line. Exit codes as of `diff`: 0 nothing, 1 something, 2 it can't be told.
    Diff(apply::DiffArgs),
    /// Remove tasks; what runs of them is cancelled, and their history stays.
    Remove(remove::RemoveArgs),
    /// Print tasks as a task file, which `punctual apply` takes back.
    Export(export::ExportArgs),
    /// List tasks, instances, workers, replicas, dead letters, backfills, versions, pauses, fire times to come, the audit.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Get(get::GetArgs),
    /// Show all about a task or an instance.
    Describe(describe::DescribeArgs),
    /// List the tasks of the running Punctual, or show one. Short for `get tasks` and `describe TASK`.
    #[command(hide = true)]
    Tasks(remote::TasksArgs),
    /// List instances, newest first. Short for `get instances`.
    #[command(hide = true)]
    Instances(remote::InstancesArgs),
    /// Show the whole story of an instance. Short for `describe ID`.
    #[command(hide = true)]
    Instance(remote::InstanceArgs),
    /// Show what the attempts of an instance wrote.
    Logs(logs::LogsArgs),
    /// Say in plain words why an instance is where it is, or why a task fired at a time or did not.
    Explain(explain::ExplainArgs),
    /// Check the store's own consistency and the cluster's health, and say what to do about what is wrong.
    Doctor(doctor::DoctorArgs),
    /// Fire a task now, or after its delay.
    Trigger(remote::TriggerArgs),
    /// Cancel an instance.
    Cancel(remote::CancelArgs),
    /// Cancel an instance, and give its attempt no time to clean up.
    Kill(operator::KillArgs),
    /// Leave out an instance that has not begun.
    Skip(operator::SkipArgs),
    /// Run an instance that has ended once more.
    Rerun(operator::RerunArgs),
    /// Say that a node of a workflow's run that waits or has failed is done.
    MarkSucceeded(nodes::MarkSucceededArgs),
    /// Say that a node of a workflow's run that waits can't be done.
    MarkFailed(nodes::MarkFailedArgs),
    /// Make fire times of the past up for: one instance for each that has none.
    Backfill(backfill::BackfillArgs),
    /// Pause a task, a group of tasks, or everything: nothing of it starts until it is resumed.
    Pause(operator::PauseArgs),
    /// Let a task, a group of tasks, or everything go on. Fire times that came in the pause are not made up for.
    Resume(operator::ResumeArgs),
    /// Give a worker nothing more, until it is undrained. What it runs goes on.
    Drain(operator::DrainArgs),
    /// Give a drained worker attempts again.
    Undrain(operator::UndrainArgs),
    /// List dead letters, run them again, or discard them.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    DeadLetters(operator::DeadLettersArgs),
    /// Show what people have done, newest first. Short for `get audit`.
    #[command(hide = true)]
    Audit(operator::AuditArgs),
    /// Add users, say what they may do, and set passwords.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Users(accounts::UsersArgs),
    /// Make tokens for the API, list and revoke them.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Tokens(accounts::TokensArgs),
    /// Name clusters, and choose which one commands go to.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Context(context::ContextArgs),
    /// Check task files and say everything that is wrong with them.
    Validate(validate::Args),
    /// Put a task file into a simulated world that goes wrong, and say what becomes of its tasks.
    Rehearse(rehearse::Args),
    /// Explain cron expressions.
    Cron(cron::Args),
    /// Turn other schedulers' files into task files.
    Import(import::Args),
    /// Print the JSON Schema of task files.
    Schema(schema::Args),
    /// Print a shell's completions: `punctual completions bash > /etc/bash_completion.d/punctual`.
    Completions(shell::CompletionsArgs),
    /// Write man pages, one for each command.
    Man(shell::ManArgs),
    /// Measure scheduler, worker and SQLite on this machine with a no-op handler.
    Bench(bench::BenchArgs),
}

/// Punctual: a distributed task scheduler.
#[derive(Parser)]
#[command(name = "punctual", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done; 1 something was found or failed; 2 wrong usage, or input that was refused.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Runs a command that needs the world, on all cores, and says what went wrong where something did.
fn block_on(command: impl Future<Output = anyhow::Result<Exit>>, output: &mut Output) -> Exit {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(anyhow::Error::from);
    let command = async {
        let _kept = file_sizes_are_errors()?;
        command.await
    };
    match runtime.and_then(|runtime| runtime.block_on(command)) {
        Ok(exit) => exit,
        Err(error) => {
            output.remark(format_args!("{error:#}"));
            Exit::Found
        }
    }
}

/// A write beyond the limit of file sizes fails, and is said as any other write that fails. Without anybody who takes the signal, it ends the
/// process. What is started gets it as it was.
fn file_sizes_are_errors() -> std::io::Result<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// A message for each Ctrl-C or termination signal.
fn interrupts() -> std::io::Result<mpsc::Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (send, receive) = mpsc::channel(4);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind)?;
        let send = send.clone();
        tokio::spawn(async move { while signals.recv().await.is_some() && send.send(()).await.is_ok() {} });
    }
    Ok(receive)
}

/// Longest name of a replica or worker, in bytes.
const NODE_NAME_BYTES_MAX: usize = 200;

/// The name of a replica or worker.
fn node_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NODE_NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {NODE_NAME_BYTES_MAX} bytes, and no control characters"));
    }
    Ok(text.to_owned())
}

/// Where workers reach a replica.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', '?', '#']) && !host.chars().any(char::is_whitespace);
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text.to_owned()),
        _ => Err("write it as host:port, such as scheduler-1:8651".to_owned()),
    }
}

/// What this machine calls itself.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// Reads the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let matches = help::grouped(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; a closed pipe is nobody's fault.
            let _ = error.print();
            return if error.use_stderr() { Exit::Refused.into() } else { Exit::Done.into() };
        }
    };
    let mut output = Output::new();
    let exit = cli.command.run(&mut output);
    match output.finish() {
        Ok(()) => exit.into(),
        Err(_) => Exit::Found.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{NODE_NAME_BYTES_MAX, host_and_port, node_name};

    #[test]
    fn names_of_nodes_are_short_text() {
        assert!(node_name("worker 1 é").is_ok() && node_name(&"x".repeat(NODE_NAME_BYTES_MAX)).is_ok());
        for bad in ["", "a\nb", "\u{1b}[31m", &"x".repeat(NODE_NAME_BYTES_MAX + 1)] {
            assert!(node_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn where_workers_reach_a_replica_is_host_and_port() {
        for good in ["scheduler-1:8651", "10.0.0.1:1", "[::1]:8651"] {
            assert_eq!(host_and_port(good).as_deref(), Ok(good));
        }
        for bad in ["", "x", ":1", "x:", "x:0", "x:99999", "http://h:1/path", "http://h:1", "a b:1", "u@h:1"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
