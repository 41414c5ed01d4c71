//! `punctual status`.

use serde_json::Value;

use super::Exit;
use super::client::{ApiArgs, Client};
use super::output::Output;
use super::remote::{self, pretty, table, text};

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// Show each partition
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl StatusArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        remote::answer(output, self.api.json, async move {
            let status = Client::new(&self.api).get(&["cluster"], &[]).await?;
            Ok(if self.api.json { pretty(&status) } else { self.described(&status) })
        })
    }

    fn described(&self, status: &Value) -> String {
        let rows = |field: &str| status[field].as_array().cloned().unwrap_or_default();
        let partitions = rows("partitions");
        let unowned = partitions.iter().filter(|partition| partition["owner"].is_null()).count();
        let mut shown = format!(
            "{} partitions, {unowned} without an owner; {} inbox entries wait, {} instances have not ended\n",
            partitions.len(),
            status["inbox"],
            status["live"]
        );
        if let Some(trouble) = status["trouble"].as_str() {
            shown += &format!("! {}\n", text(&Value::from(trouble)));
        }
        let mut replicas = table(["REPLICA", "ADDRESS", "PARTITIONS", "SINCE", "ALIVE UNTIL"]);
        for replica in rows("replicas") {
            replicas.add_row(["id", "address", "partitions", "since", "expires_at"].map(|field| text(&replica[field])));
        }
        let mut workers = table(["WORKER", "SLOTS", "HELD", "STATE", "HANDLERS"]);
        for worker in rows("workers") {
            let state = match (worker["connected"].as_bool(), worker["draining"].as_bool()) {
                (Some(true), Some(true)) => "draining",
                (Some(true), _) => "connected",
                _ => "not connected",
            };
            let handlers = worker["handlers"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
            workers.add_row([text(&worker["id"]), text(&worker["slots"]), text(&worker["held"]), state.to_owned(), handlers]);
        }
        shown += &format!("\n{replicas}\n\n{workers}\n");
        if self.partitions {
            let mut each = table(["PARTITION", "OWNER", "EPOCH", "COMMITS", "INBOX", "LIVE"]);
            for partition in &partitions {
                each.add_row(["partition", "owner", "epoch", "commits", "inbox", "live"].map(|field| text(&partition[field])));
            }
            shown += &format!("\n{each}\n");
        }
        shown.trim_end().to_owned()
    }
}
