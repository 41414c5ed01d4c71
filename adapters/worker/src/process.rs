//! A child process and the process group that it leads.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

/// A running program, the leader of a process group of its own. Dropping it kills the group.
///
/// The leader is reaped after its group was killed, not before: until then its number can't be given to somebody else, so a signal never
/// reaches a stranger.
pub(crate) struct Leader {
    child: Child,
    group: Pid,
    exit: Option<ExitWatch>,
    reaped: bool,
}

impl Leader {
    /// Starts the program in a process group of its own.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Leader> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("a child that was not waited for has its number");
        Ok(Leader { exit: ExitWatch::new(group), child, group, reaped: false })
    }

    /// The program's standard input, once.
    pub(crate) fn take_stdin(&mut self) -> Option<tokio::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for the program's end. May be dropped and called again.
    pub(crate) async fn ended(&mut self) {
        let watched = match &self.exit {
            Some(exit) => exit.ended().await.is_ok(),
            None => false,
        };
        if !watched {
            // The leader is reaped here, before its group is killed: the second best, for systems that can't tell the one without the other.
            let _ = self.child.wait().await;
        }
    }

    /// Asks the group to end. A stopped process is woken so that it can.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Kills the group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// After [`Leader::ended`]: kills what is left of the group and says how the program ended.
    pub(crate) async fn reap(&mut self) -> io::Result<ExitStatus> {
        self.kill();
        let status = self.child.wait().await;
        self.reaped = true;
        status
    }

    fn signal(&self, signal: Signal) {
        // An error means that nobody is left, or that what is left has changed its user and is out of reach.
        if let Err(error) = rustix::process::kill_process_group(self.group, signal) {
            tracing::debug!(group = self.group.as_raw_pid(), ?signal, %error, "process group not signalled");
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
        }
    }
}

/// Sees a child end without reaping it.
#[cfg(target_os = "linux")]
struct ExitWatch(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl ExitWatch {
    fn new(pid: Pid) -> Option<ExitWatch> {
        let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        #[allow(deprecated, reason = "its successor is unsafe for the sake of types that change their descriptor; OwnedFd does not")]
        let fd = tokio::io::unix::AsyncFd::with_interest(fd, tokio::io::Interest::READABLE).ok()?;
        Some(ExitWatch(fd))
    }

    async fn ended(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
struct ExitWatch;

#[cfg(not(target_os = "linux"))]
impl ExitWatch {
    fn new(_: Pid) -> Option<ExitWatch> {
        None
    }

    async fn ended(&self) -> io::Result<()> {
        Ok(())
    }
}
