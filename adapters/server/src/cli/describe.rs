//! `punctual describe`: all about a task or an instance.

use punctual_core::ids::InstanceId;
use serde_json::{Value, json};

use super::Exit;
use super::ask::{Said, ask, when};
use super::client::{ApiArgs, Client};
use super::files::yaml_of;
use super::get::occurrences;
use super::output::Output;
use super::remote::{InstanceArgs, instances, paused_line, pretty, table, text};
use super::versions;

/// Rows of each list.
const SHOWN: usize = 5;

/// Of what.
#[derive(clap::Args, Debug)]
pub(crate) struct DescribeArgs {
    /// A task's name, or an instance's id, such as 43-17
    what: String,
    /// It is a task, whatever it looks like
    #[arg(long)]
    task: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl DescribeArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        if !self.task && self.what.parse::<InstanceId>().is_ok() {
            return InstanceArgs { id: self.what, api: self.api }.run(output);
        }
        ask(output, self.api.json, Exit::Found, self.ask())
    }

    async fn ask(&self) -> Said {
        let client = Client::new(&self.api);
        let name = &*self.what;
        let task = client.get(&["tasks", name], &[]).await?;
        let limit = |limit: usize| [("limit", limit.to_string())];
        let last = client.get(&["instances"], &[("task", name.to_owned()), ("limit", SHOWN.to_string())]).await?;
        let fires = client.get(&["tasks", name, "next-fires"], &[("count", SHOWN.to_string())]).await?;
        let days = client.get(&["tasks", name, "days"], &[]).await?;
        let not_fired = client.get(&["tasks", name, "occurrences"], &limit(SHOWN)).await?;
        let backfills = client.get(&["tasks", name, "backfills"], &[]).await?;
        if self.api.json {
            let all = json!({
                "task": task, "instances": last["instances"], "next_fires": fires["next_fires"], "days": days["days"],
                "occurrences": not_fired["occurrences"], "backfills": backfills["backfills"],
            });
            return Ok((pretty(&all), Exit::Done));
        }
        Ok((described(&task, &last, &fires, &days, &not_fired, &backfills), Exit::Done))
    }
}

fn described(task: &Value, last: &Value, fires: &Value, days: &Value, not_fired: &Value, backfills: &Value) -> String {
    let removed = if task["removed"] == json!(true) { ", removed" } else { "" };
    let mut shown =
        format!("{}  version {}{removed}, of the source {}\n", text(&task["name"]), text(&task["version"]), text(&task["source"]));
    for pause in task["paused"].as_array().into_iter().flatten() {
        shown += &format!("{}\n", paused_line(pause));
    }
    if let Some(left) = task["catching_up"]["left"].as_u64() {
        shown += &format!(
            "made up for {left} more missed fire times, the last one begins at {}\n",
            when(&task["catching_up"]["last_begins_at"])
        );
    }
    shown += &format!("\n{}", yaml_of(&task["definition"]));
    let mut section = |title: &str, body: String| {
        if body.lines().count() > 1 || (!body.is_empty() && !body.contains("  ")) {
            shown += &format!("\n{title}\n{body}\n");
        }
    };
    section("NEXT FIRES", next_fires(fires));
    section("LAST RUNS", instances(last["instances"].as_array().map(Vec::as_slice).unwrap_or_default()));
    section("NOT FIRED", occurrences(not_fired));
    let mut each = table(["DAY (UTC)", "SUCCEEDED", "FAILED", "STOPPED"]);
    for day in days["days"].as_array().into_iter().flatten().rev() {
        each.add_row(["day", "succeeded", "failed", "stopped"].map(|field| text(&day[field])));
    }
    section("HEALTH", each.to_string());
    let mut each = table(["BACKFILL", "STATE", "DONE", "OF"]);
    for backfill in backfills["backfills"].as_array().into_iter().flatten().take(SHOWN) {
        each.add_row(["id", "state", "done", "total"].map(|field| text(&backfill[field])));
    }
    section("BACKFILLS", each.to_string());
    section("VERSIONS", versions::listed(task));
    shown.trim_end().to_owned()
}

/// Fire times to come, with what the clock on the wall says in the task's zone.
fn next_fires(fires: &Value) -> String {
    let mut shown = table(["AT", "IN THE TASK'S ZONE", ""]);
    for fire in fires["next_fires"].as_array().into_iter().flatten() {
        let local = match fire["local"].as_str() {
            Some(local) => format!("{} {}", local.replace('T', " "), text(&fire["offset"])),
            None => String::new(),
        };
        let mark = match (fire["fires"].as_bool(), fire["mark"].as_str()) {
            (Some(false), _) => format!("left out: {}", text(&fire["left_out"]).replace('_', " ")),
            (_, Some("normal") | None) => String::new(),
            (_, Some(mark)) => mark.replace('_', " "),
        };
        shown.add_row([when(&fire["utc"]), local, mark]);
    }
    shown.to_string()
}
