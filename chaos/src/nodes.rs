//! The processes of schedulers and workers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_sim::history::{What, Who};
use punctual_testbed::{Problem, Process};
use tokio::time::{Instant, sleep};

use crate::proxy::Pids;
use crate::told::Notes;

/// How soon somebody looks again whether a process has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a node's process is started with.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program.
    pub program: PathBuf,
    /// Its arguments. `LIFE` stands for the number of its life.
    pub arguments: Vec<String>,
    /// Its environment, beside the own one.
    pub environment: Vec<(String, String)>,
    /// Where what it says goes.
    pub log: PathBuf,
}

/// A node: a process that is started and ended, and how often it was stopped without having been started again since.
#[derive(Debug)]
pub struct Node {
    /// Which.
    pub who: Who,
    command: Command,
    notes: Notes,
    /// Where the proxies look which process it is, where it is a worker.
    pids: Option<Pids>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    life: u64,
    down: usize,
    paused: usize,
}

impl Node {
    /// One that has not been started.
    pub fn new(who: Who, command: Command, notes: Notes, pids: Option<Pids>) -> Node {
        Node { who, command, notes, pids, state: Mutex::default() }
    }

    /// What it says goes here.
    pub fn log(&self) -> &Path {
        &self.command.log
    }

    /// Whether it runs and moves.
    pub fn is_well(&self) -> bool {
        let state = self.lock();
        state.process.is_some() && state.paused == 0
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// It can't be started.
    pub fn start(&self) -> Result<(), Problem> {
        self.start_in(&mut self.lock())
    }

    fn start_in(&self, state: &mut State) -> Result<(), Problem> {
        state.life += 1;
        let life = state.life.to_string();
        let arguments: Vec<String> = self.command.arguments.iter().map(|text| text.replace("LIFE", &life)).collect();
        self.notes.note(self.who, What::Started { life: state.life });
        let process = Process::start(&self.command.program, &arguments, &self.command.environment, &self.command.log)?;
        if state.paused > 0 {
            process.signal("STOP");
        }
        self.know(Some(process.pid()));
        state.process = Some(process);
        Ok(())
    }

    /// It dies, with its memory.
    pub fn crash(&self) {
        let mut state = self.lock();
        state.down += 1;
        if let Some(process) = state.process.take() {
            self.end(process, What::Crashed);
        }
    }

    fn end(&self, process: Process, what: What) {
        process.kill();
        self.know(None);
        self.notes.note(self.who, what);
    }

    /// It may start again.
    ///
    /// # Errors
    ///
    /// It can't be started.
    pub fn start_again(&self) -> Result<(), Problem> {
        let mut state = self.lock();
        state.down -= 1;
        if state.down > 0 {
            return Ok(());
        }
        if let Some(process) = state.process.take() {
            self.end(process, What::Crashed);
        }
        self.start_in(&mut state)
    }

    /// It stands still.
    pub fn pause(&self) {
        let mut state = self.lock();
        state.paused += 1;
        if state.paused == 1 {
            self.notes.note(self.who, What::Paused);
            self.signal_in(&state, "STOP");
        }
    }

    /// It goes on.
    pub fn resume(&self) {
        let mut state = self.lock();
        state.paused -= 1;
        if state.paused == 0 {
            self.signal_in(&state, "CONT");
            self.notes.note(self.who, What::Resumed);
        }
    }

    fn signal_in(&self, state: &State, name: &str) {
        if let Some(process) = &state.process {
            process.signal(name);
        }
    }

    /// It is asked to stop in good order, has so long to do it, and is then killed.
    pub async fn stop(&self, patience: Duration) {
        {
            let mut state = self.lock();
            state.down += 1;
            if state.down > 1 {
                return;
            }
            self.signal_in(&state, "TERM");
        }
        let until = Instant::now() + patience;
        loop {
            {
                let mut state = self.lock();
                let Some(process) = state.process.as_mut() else { return };
                let how = if process.code().is_some() { What::Stopped } else { What::Crashed };
                if how_ended(&how) || Instant::now() >= until {
                    let process = state.process.take().expect("it was there");
                    return self.end(process, how);
                }
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Looks whether it has ended although nobody asked it to; then it is started again. How it ended, as a shell says it.
    ///
    /// # Errors
    ///
    /// It can't be started.
    pub fn look_after(&self) -> Result<Option<i32>, Problem> {
        let mut state = self.lock();
        if state.down > 0 {
            return Ok(None);
        }
        let Some(code) = state.process.as_mut().and_then(Process::code) else { return Ok(None) };
        if let Some(process) = state.process.take() {
            self.end(process, What::Crashed);
        }
        self.start_in(&mut state)?;
        Ok(Some(code))
    }

    /// Ends it for good.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.down += 1;
        state.process.take();
        self.know(None);
    }

    fn know(&self, pid: Option<u32>) {
        if let (Some(pids), Who::Worker(index)) = (&self.pids, self.who) {
            pids.lock().unwrap_or_else(PoisonError::into_inner)[index] = pid;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn how_ended(how: &What) -> bool {
    matches!(how, What::Stopped)
}
