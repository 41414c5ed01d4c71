//! `punctual explain`: why something ran, or did not.

use punctual_core::ids::InstanceId;
use serde_json::{Value, json};

use super::Exit;
use super::ask::{Said, ask, when};
use super::client::{ApiArgs, Client};
use super::output::Output;
use super::remote::{pretty, table, text};
use crate::explain::with_instants;

/// Of what.
#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArgs {
    /// An instance's id, such as 43-17; with --at a task's name
    what: String,
    /// The time: 2026-11-30T02:00:00Z, or in the task's own zone 2026-11-30T02:00
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ExplainArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        if self.at.is_none() && self.what.parse::<InstanceId>().is_err() {
            output.remark(format_args!(
                "{:?} is no instance's id, such as 43-17; of a task say the time, too: --at 2026-11-30T02:00",
                self.what
            ));
            return Exit::Refused;
        }
        ask(output, self.api.json, Exit::Found, self.ask())
    }

    async fn ask(&self) -> Said {
        let client = Client::new(&self.api);
        let explained = match &self.at {
            Some(at) => client.get(&["tasks", &self.what, "explain"], &[("at", at.clone())]).await?,
            None => client.get(&["instances", &self.what, "explain"], &[]).await?,
        };
        let shown = match (self.api.json, self.at.is_some()) {
            (true, _) => pretty(&explained),
            (false, true) => of_task(&explained),
            (false, false) => of_instance(&explained),
        };
        Ok((shown, Exit::Done))
    }
}

/// Sentences, a line each, with instants in the reader's zone.
fn sentences(list: &Value) -> String {
    let sentence = |sentence: &Value| with_instants(&text(sentence), |instant| when(&json!(instant)));
    list.as_array().into_iter().flatten().map(sentence).collect::<Vec<_>>().join("\n")
}

fn of_task(explained: &Value) -> String {
    let mut shown =
        format!("{} at {}: {}\n", text(&explained["task"]), when(&explained["at"]), text(&explained["verdict"]).replace('_', " "));
    shown += &sentences(&explained["says"]);
    for id in explained["instances"].as_array().into_iter().flatten() {
        shown += &format!("\n`punctual explain {}` says more.", text(id));
    }
    shown
}

fn of_instance(explained: &Value) -> String {
    let [id, task, state] = ["instance", "task", "state"].map(|field| text(&explained[field]));
    let mut steps = table(["AT", "WHAT", "THEN"]);
    for step in explained["steps"].as_array().into_iter().flatten() {
        let says = with_instants(&text(&step["says"]), |instant| when(&json!(instant)));
        steps.add_row([when(&step["at"]), says, text(&step["then_says"])]);
    }
    format!("{id}  {task}  {state}\n{}\n\n{steps}", sentences(&explained["summary"]))
}
