//! `punctual export`: tasks as a file that `punctual apply` takes back.

use punctual_spec::emit;
use punctual_spec::spec::TaskSpec;
use serde_json::{Value, json};

use super::Exit;
use super::ask::{Said, ask};
use super::client::{ApiArgs, Client, ClientError};
use super::output::Output;
use super::remote::{pretty, text};

/// Which tasks.
#[derive(clap::Args, Debug)]
pub(crate) struct ExportArgs {
    /// Tasks; all that there are where none is named
    #[arg(value_name = "TASK")]
    names: Vec<String>,
    /// Of this source only
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Of this group only
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ExportArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        ask(output, self.api.json, Exit::Found, self.ask())
    }

    async fn ask(&self) -> Said {
        let client = Client::new(&self.api);
        let tasks = match self.names.is_empty() {
            true => {
                let group = self.group.iter().map(|group| ("group", group.clone()));
                client.all("tasks", &group.collect::<Vec<_>>()).await?
            }
            false => {
                let mut named = Vec::with_capacity(self.names.len());
                for name in &self.names {
                    let task = client.get(&["tasks", name], &[]).await?;
                    if task["removed"] == json!(true) {
                        let detail = format!("the task {name:?} was removed; `punctual versions` has what it was");
                        let problem = json!({ "code": "PUN-303", "detail": detail });
                        return Err(ClientError::Refused { code: "PUN-303".to_owned(), detail, problem });
                    }
                    named.push(task);
                }
                named
            }
        };
        let is_of = |asked: &Option<String>, is: &Value| asked.as_deref().is_none_or(|asked| is.as_str() == Some(asked));
        let wanted = tasks.iter().filter(|task| is_of(&self.source, &task["source"]) && is_of(&self.group, &task["definition"]["group"]));
        let documents: Vec<&Value> = wanted.map(|task| &task["definition"]).collect();
        if self.api.json {
            return Ok((pretty(&json!({ "tasks": documents })), Exit::Done));
        }
        let mut specs = Vec::with_capacity(documents.len());
        for document in &documents {
            specs.push(TaskSpec::from_json(&document.to_string()).map_err(|finding| {
                let detail =
                    format!("the task {} was written by another version of Punctual: {finding}; --json has it as it is", document["name"]);
                let problem = json!({ "code": "PUN-452", "detail": detail });
                ClientError::Refused { code: "PUN-452".to_owned(), detail, problem }
            })?);
        }
        let header = match (&self.source, &self.group) {
            (None, None) => Vec::new(),
            (source, group) => {
                let of = |what: &str, name: &Option<String>| name.as_ref().map(|name| format!("{what} {}", text(&json!(name))));
                vec![of("source", source).into_iter().chain(of("group", group)).collect::<Vec<_>>().join(", ")]
            }
        };
        Ok((emit::to_yaml(&specs, &header).trim_end_matches('\n').to_owned(), Exit::Done))
    }
}
