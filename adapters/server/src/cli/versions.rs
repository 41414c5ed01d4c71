//! The versions of a task, and what differs between two.

use serde_json::Value;

use super::Exit;
use super::ask::{Said, ask, when};
use super::client::{ApiArgs, Client};
use super::files::{line_diff, yaml_of};
use super::output::Output;
use super::remote::{pretty, table, text};

/// Of which task.
#[derive(clap::Args, Debug)]
pub(crate) struct ListArgs {
    /// The task
    task: String,
    /// Show what differs between two versions, line by line: FROM and TO, or FROM and the newest, or without either the newest and the one before.
    /// 0 is before there was one. Exit codes as of `diff`
    #[arg(long, value_name = "FROM TO", num_args = 0..=2)]
    diff: Option<Vec<u32>>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ListArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let failed = if self.diff.is_some() { Exit::Refused } else { Exit::Found };
        ask(output, self.api.json, failed, self.ask())
    }

    async fn ask(&self) -> Said {
        let client = Client::new(&self.api);
        if let Some(between) = &self.diff {
            return self.differences(&client, between).await;
        }
        let versions = client.get(&["tasks", &self.task, "versions"], &[("limit", "1000".to_owned())]).await?;
        Ok((if self.api.json { pretty(&versions) } else { listed(&versions) }, Exit::Done))
    }

    async fn differences(&self, client: &Client, between: &[u32]) -> Said {
        let names = [("from", between.first()), ("to", between.get(1))];
        let query: Vec<_> = names.into_iter().filter_map(|(name, version)| Some((name, version?.to_string()))).collect();
        let diff = client.get(&["tasks", &self.task, "diff"], &query).await?;
        let is_same = diff["differences"].as_array().is_none_or(Vec::is_empty);
        let exit = if is_same { Exit::Done } else { Exit::Found };
        if self.api.json {
            return Ok((pretty(&diff), exit));
        }
        let mut texts = Vec::with_capacity(2);
        for side in ["from", "to"] {
            let version = text(&diff[side]);
            let document = match version.as_str() {
                "0" => Value::Null,
                version => client.get(&["tasks", &self.task, "versions", version], &[]).await?["definition"].clone(),
            };
            texts.push((format!("{}  version {version}", self.task), yaml_of(&document)));
        }
        let lines = line_diff((&texts[0].0, &texts[0].1), (&texts[1].0, &texts[1].1));
        Ok((lines.trim_end().to_owned(), exit))
    }
}

/// Versions as a table.
pub(super) fn listed(answer: &Value) -> String {
    let mut shown = table(["VERSION", "MADE", "BY", ""]);
    for version in answer["versions"].as_array().into_iter().flatten() {
        let removed = if version["removed"] == Value::Bool(true) { "removed" } else { "" };
        shown.add_row([text(&version["version"]), when(&version["at"]), text(&version["by"]), removed.to_owned()]);
    }
    shown.to_string()
}
