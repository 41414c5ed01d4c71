//! `regressions`: plans that once failed.

use std::path::PathBuf;
use std::process::ExitCode;

use punctual_sim::regressions::load_all;
use punctual_sim::trial::{Trial, World};

use crate::cli::{exit_code, print_line, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where they are kept.
    #[arg(default_value = "sim/regressions")]
    folder: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let regressions = match load_all(&arguments.folder) {
        Ok(regressions) => regressions,
        Err(error) => return refused(&error.to_string()),
    };
    let mut all = Vec::new();
    for regression in &regressions {
        let failures = Trial::of(World::Rehearsal, &regression.plan, &[]).failures();
        for failure in &failures {
            print_line(&format!("{}: {}: {}", regression.file_name(), failure.property, failure.witness));
        }
        all.extend(failures);
    }
    print_line(&format!("{} regressions, {} violations", regressions.len(), all.len()));
    exit_code(&all)
}
