//! `punctual schema`.

use super::{Exit, Output};

/// Nothing to say.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        output.text(&punctual_spec::schema::schema_text());
        Exit::Done
    }
}
