//! The commands of those who put things right: rerun, and what becomes of nodes of workflows.

use punctual_core::instance::State;
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
    /// Of a workflow's run only these nodes, and what was skipped because of them; several with commas between them
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    from: Vec<String>,
    /// With --from: also what comes after them and had succeeded
    #[arg(long, requires = "from")]
    cascade: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args, Debug)]
struct NodeArgs {
    /// The id of the run, such as 43-17
    run: String,
    /// The node's name
    node: String,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl NodeArgs {
    /// Says that the node has come to this state.
    fn say(self, state: &'static str, output: &mut Output) -> Exit {
        answer(output, self.api.json, async move {
            let client = Client::new(&self.api);
            let body = json!({ "by": user(), "reason": self.reason, "state": state });
            let said = client.post(&["instances", &self.run, "nodes", &self.node], None, &body).await?;
            if self.api.json {
                return Ok(pretty(&said));
            }
            Ok(match said["instance"]["state"].as_str() {
                Some(state) => format!("{} of {} is {state}", self.node, self.run),
                None => format!("accepted, and not taken up yet; see `punctual instance {}`", self.run),
            })
        })
    }
}

impl RerunArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        let body = json!({ "by": user(), "reason": self.reason, "all": self.all, "from": self.from, "cascade": self.cascade });
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

macro_rules! marks {
    ($($args:ident: $state:ident),*) => { $(
        #[derive(clap::Args, Debug)]
        pub(crate) struct $args {
            #[command(flatten)]
            node: NodeArgs,
        }

        impl $args {
            pub(super) fn run(self, output: &mut Output) -> Exit {
                self.node.say(State::$state.name(), output)
            }
        }
    )* };
}
marks!(SkipArgs: Skipped, MarkSucceededArgs: Succeeded, MarkFailedArgs: Failed);
