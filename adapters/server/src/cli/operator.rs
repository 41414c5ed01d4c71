//! The commands of those who put things right: rerun.

use serde_json::json;

use super::Exit;
use super::client::{ApiArgs, Client};
use super::output::Output;
use super::remote::{Printed, answer, pretty, text, user};

#[derive(clap::Args, Debug)]
pub(crate) struct RerunArgs {
    /// The instance's id, such as 43-17
    id: String,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
    /// Of a firing with shards: all of them, also those that have succeeded
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl RerunArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        let body = json!({ "by": user(), "reason": self.reason, "all": self.all });
        let made = client.post(&["instances", &self.id, "rerun"], None, &body).await?;
        if self.api.json {
            return Ok(pretty(&made));
        }
        Ok(match made["instance"]["id"].as_str() {
            Some(id) => {
                let instance = &made["instance"];
                format!("{id}  {}  run {}  {}", text(&instance["task"]), text(&instance["run"]), text(&instance["state"]))
            }
            None => "accepted, and not taken up yet; see `punctual instances`".to_owned(),
        })
    }
}

macro_rules! commands {
    ($($args:ident),*) => { $(impl $args {
        pub(super) fn run(self, output: &mut Output) -> Exit {
            answer(output, self.api.json, async move { self.ask().await })
        }
    })* };
}
commands!(RerunArgs);
