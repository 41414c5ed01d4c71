//! What shells and `man` want to know of the commands.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use super::output::Output;
use super::{Cli, Exit};

/// For which shell.
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = clap::value_parser!(Shell))]
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "punctual", &mut script);
        output.text(&String::from_utf8_lossy(&script));
        Exit::Done
    }
}

/// Where to.
#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// The folder; it is made where it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl ManArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let written = std::fs::create_dir_all(&self.out).and_then(|()| clap_mangen::generate_to(Cli::command(), &self.out));
        match written.and_then(|()| Ok(std::fs::read_dir(&self.out)?.count())) {
            Ok(count) => {
                output.line(format_args!("{count} pages in {}; read one with `man {}/punctual.1`", self.out.display(), self.out.display()));
                Exit::Done
            }
            Err(error) => {
                output.remark(format_args!("PUN-454: the pages can't be written to {}: {error}", self.out.display()));
                Exit::Found
            }
        }
    }
}
