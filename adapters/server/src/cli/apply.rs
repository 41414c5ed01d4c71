//! `punctual apply`.

use std::path::PathBuf;

use punctual_spec::file::read_file;
use punctual_spec::zones::Zones;
use serde_json::{Value, json};

use super::client::{ApiArgs, Client};
use super::output::Output;
use super::{Exit, remote};

/// Which file, and what to do with it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The task file; `-` is the standard input
    file: PathBuf,
    /// Whose tasks these are: a task of the same source that is not in the file is removed
    #[arg(long, default_value = "file", value_name = "NAME")]
    source: String,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        let file = match read_file(&self.file, &Zones::load()) {
            Ok(file) => file,
            Err(problems) => {
                output.remark(problems);
                return Exit::Refused;
            }
        };
        let documents: Vec<Value> =
            file.tasks.iter().map(|task| serde_json::from_str(&task.spec.to_json()).expect("a document is JSON")).collect();
        remote::answer(output, self.api.json, async move {
            let client = Client::new(&self.api);
            let by = format!("{}, file {}", remote::user(), self.file.display());
            let body = json!({ "documents": documents, "dry_run": self.dry_run, "by": by });
            let applied = client.put(&["sources", &self.source], &body).await?;
            Ok(if self.api.json { remote::pretty(&applied) } else { described(&applied, self.dry_run) })
        })
    }
}

fn described(applied: &Value, dry_run: bool) -> String {
    let names = |field: &str| applied[field].as_array().cloned().unwrap_or_default();
    let labels = [("created", "new"), ("changed", "changed"), ("removed", "removed")];
    let counts = labels.map(|(field, label)| format!("{} {label}", names(field).len())).join(", ");
    let mut shown = format!("{}{counts}, {} unchanged", if dry_run { "would be: " } else { "" }, applied["unchanged"]);
    for (field, label) in labels {
        for name in names(field) {
            shown += &format!("\n  {label:<8} {}", remote::text(&name));
        }
    }
    shown
}
