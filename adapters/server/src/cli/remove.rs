//! `punctual remove`: tasks that are to be no more.

use super::Exit;
use super::ask::{Said, ask};
use super::client::{ApiArgs, Client};
use super::output::Output;
use super::remote::{pretty, text, user};
use serde_json::{Value, json};

/// Which tasks.
#[derive(clap::Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Their names
    #[arg(value_name = "TASK", required = true)]
    names: Vec<String>,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl RemoveArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        ask(output, self.api.json, Exit::Found, self.ask())
    }

    /// One after the other; the first that is refused ends it.
    async fn ask(&self) -> Said {
        let client = Client::new(&self.api);
        let (mut removed, mut shown) = (Vec::new(), Vec::new());
        for name in &self.names {
            // Whoever names a task means it, whichever file it is of.
            let task = client.get(&["tasks", name], &[]).await?;
            let mut query = vec![("source", text(&task["source"])), ("by", user())];
            query.extend(self.reason.iter().map(|reason| ("reason", reason.clone())));
            query.extend(self.dry_run.then(|| ("dry_run", "true".to_owned())));
            let answer = client.delete_with(&["tasks", name], &query).await?;
            let done = if self.dry_run { "would be removed" } else { "is removed; its history stays" };
            shown.push(format!("{} {done}", text(&Value::from(name.as_str()))));
            removed.push(answer);
        }
        let shown = if self.api.json { pretty(&json!({ "removed": removed })) } else { shown.join("\n") };
        Ok((shown, Exit::Done))
    }
}
