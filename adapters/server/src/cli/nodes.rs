//! What becomes of the nodes of a workflow's run, by somebody's word.

use punctual_core::instance::State;
use serde_json::json;

use super::Exit;
use super::client::{ApiArgs, Client};
use super::output::Output;
use super::remote::{answer, pretty, user};

#[derive(clap::Args, Debug)]
pub(super) struct NodeArgs {
    /// The id of the run, such as 43-17
    pub(super) run: String,
    /// The node's name
    pub(super) node: String,
    /// Why, for the record
    #[arg(long, alias = "why")]
    pub(super) reason: Option<String>,
    #[command(flatten)]
    pub(super) api: ApiArgs,
}

impl NodeArgs {
    /// Says that the node has come to this state.
    pub(super) fn say(self, state: &'static str, output: &mut Output) -> Exit {
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
marks!(MarkSucceededArgs: Succeeded, MarkFailedArgs: Failed);
