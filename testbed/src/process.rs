//! Any other process that must not outlive this one.

use std::path::Path;

use crate::server::{Problem, Server};

/// A process that runs. It is killed when this is dropped, and when this process ends, however it does.
#[derive(Debug)]
pub struct Process(Server);

impl Process {
    /// Starts a program in this environment, which is added to the own one. What it says is added to the log.
    ///
    /// # Errors
    ///
    /// It can't be started.
    pub fn start(program: &Path, arguments: &[String], environment: &[(String, String)], log: &Path) -> Result<Process, Problem> {
        Server::start_with(&program.display().to_string(), arguments, environment, log).map(Process)
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends it a signal, such as `STOP` or `TERM`.
    pub fn signal(&self, name: &str) {
        self.0.signal(name);
    }

    /// How it has ended, as a shell says it: its code, or 128 and the signal. `None`: it has not.
    pub fn code(&mut self) -> Option<i32> {
        self.0.code()
    }

    /// Ends it as a crash would, and waits until it has ended.
    pub fn kill(self) {
        self.0.kill();
    }
}
