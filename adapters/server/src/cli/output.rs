//! Where commands write. A reader that goes away, as `head` does, is no reason to panic or to fail.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};

use serde::Serialize;

/// The standard output and the standard error.
pub(crate) struct Output {
    stdout: BufWriter<Stdout>,
    /// What kept the output from being written; nothing more is written then.
    failure: Option<io::Error>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Output { stdout: BufWriter::new(io::stdout()), failure: None }
    }

    /// Writes a line to the standard output.
    pub(crate) fn line(&mut self, line: impl fmt::Display) {
        self.attempt(|stdout| writeln!(stdout, "{line}"));
    }

    /// Writes a text that has its own line ends.
    pub(crate) fn text(&mut self, text: &str) {
        self.attempt(|stdout| stdout.write_all(text.as_bytes()));
    }

    /// Writes a value as indented JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        self.attempt(|stdout| serde_json::to_writer_pretty(&mut *stdout, value).map_err(io::Error::from));
        self.line("");
    }

    /// Writes a line to the standard error.
    pub(crate) fn remark(&mut self, line: impl fmt::Display) {
        // Nobody is left to be told when that fails.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Hands over what is left to be written.
    pub(crate) fn flush(&mut self) {
        self.attempt(Write::flush);
    }

    /// Whether nobody reads any more, or nothing can be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) {
        if self.failure.is_none() {
            self.failure = write(&mut self.stdout).err();
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// What kept the output from being written, said on the standard error too; a reader that went away is none.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.attempt(Write::flush);
        match self.failure.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                self.remark(format_args!("the output can't be written: {error}"));
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
