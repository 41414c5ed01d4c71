//! `punctual rehearse`: a program of its own, since the simulated world is a build of its own. This finds it and becomes it.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::{Exit, Output};

/// The program.
const PROGRAM: &str = "punctual-rehearse";

/// Passed on as they are, `--help` too.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The task file, and options of `punctual-rehearse`; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILE")]
    arguments: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        // Beside this executable first: there it is of the same version.
        let beside = std::env::current_exe().ok().and_then(|path| path.parent().map(|folder| folder.join(PROGRAM)));
        let candidates = beside.into_iter().filter(|path| path.is_file()).chain([PathBuf::from(PROGRAM)]);
        for program in candidates {
            let error = self.become_program(&program);
            if error.kind() != ErrorKind::NotFound {
                output.remark(format_args!("{} can't be started: {error}", program.display()));
                return Exit::Refused;
            }
        }
        output.remark(format_args!(
            "`punctual rehearse` is a program of its own, {PROGRAM}, which is neither beside this executable nor on the PATH.\n\
             From a checkout: cargo sim rehearse FILE"
        ));
        Exit::Refused
    }

    /// Comes back only where that fails.
    fn become_program(&self, program: &PathBuf) -> Error {
        Command::new(program).arg("rehearse").args(&self.arguments).exec()
    }
}
