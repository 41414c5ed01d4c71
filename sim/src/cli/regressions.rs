//! `regressions`: plans that once failed.

use std::path::PathBuf;

use punctual_sim::regressions::{Regression, paths};
use punctual_sim::trial::{Trial, World};

use crate::cli::output::{complain, print_line};
use crate::cli::{REFUSED, exit_code, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where they are kept.
    #[arg(default_value = "sim/regressions")]
    folder: PathBuf,
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let paths = match paths(&arguments.folder) {
        Ok(paths) if paths.is_empty() => {
            return refused(&format!("{} has no regressions: files that end in .json", arguments.folder.display()));
        }
        Ok(paths) => paths,
        Err(error) => return refused(&error.to_string()),
    };
    let (mut all, mut refusals) = (Vec::new(), 0);
    for path in &paths {
        // One that can't be read keeps nobody from running the others.
        let regression = match Regression::load(path) {
            Ok(regression) => regression,
            Err(error) => {
                complain(&error.to_string());
                refusals += 1;
                continue;
            }
        };
        let failures = Trial::of(world, &regression.plan, &[]).failures();
        for failure in &failures {
            print_line(&format!("{}: {}: {}", regression.file_name(), failure.property, failure.witness));
        }
        all.extend(failures);
    }
    let refused = if refusals > 0 { format!(", {refusals} files that can't be read") } else { String::new() };
    print_line(&format!("{} regressions, {} violations{refused}", paths.len() - refusals, all.len()));
    match exit_code(&all) {
        0 if refusals > 0 => REFUSED,
        code => code,
    }
}
