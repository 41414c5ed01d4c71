//! What is printed, and what becomes of it where that fails.

use std::io::{ErrorKind, Write};
use std::sync::Mutex;

use punctual_sim::report::shown;
use serde::Serialize;

/// Longest line that is said about something wrong.
const LINE_CHARS_MAX: usize = 2_000;

/// How the standard output is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// Whoever read has seen enough.
    Left,
    /// It can't be written, and that was said.
    Broken,
}

static STATE: Mutex<State> = Mutex::new(State::Good);

/// Prints a text as it is. The first error is said; after it nothing more is tried.
pub(super) fn print(text: &str) {
    let mut state = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *state != State::Good {
        return;
    }
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => *state = State::Left,
        Err(error) => {
            *state = State::Broken;
            complain(&format!("the output can't be written: {error}"));
        }
    }
}

/// Prints a line for people. It may quote what others wrote.
pub(super) fn print_line(text: &str) {
    print(&format!("{}\n", shown(text)));
}

/// Prints JSON for programs.
pub(super) fn print_json(value: &impl Serialize) {
    let json = serde_json::to_string_pretty(value).expect("what is printed can be written as JSON");
    print(&format!("{json}\n"));
}

/// Says on the standard error what is wrong. It may quote what others wrote: nothing that a terminal would obey, and no endless lines.
pub(super) fn complain(why: &str) {
    for line in why.lines() {
        let mut line = shown(line);
        if let Some((end, _)) = line.char_indices().nth(LINE_CHARS_MAX) {
            line.truncate(end);
            line.push('…');
        }
        // There is nobody else to tell.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// The exit code, where the verdict is this and all that was to be printed may not have been: a verdict is never hidden by that.
pub(super) fn exit_code(verdict: u8) -> u8 {
    let state = STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *state == State::Broken && verdict == 0 { super::REFUSED } else { verdict }
}
