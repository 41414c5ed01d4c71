//! Fire times of the past that are made up for.

use serde_json::{Value, json};

use super::Exit;
use super::client::{ApiArgs, Client, ClientError};
use super::output::Output;
use super::remote::{Printed, answer, pretty, text, user};

/// Make fire times of the past up for: one instance for each that has none.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackfillArgs {
    #[command(subcommand)]
    which: Option<BackfillCommand>,
    #[command(flatten)]
    ask: BackfillAskArgs,
}

#[derive(clap::Subcommand, Debug)]
enum BackfillCommand {
    /// List the backfills of a task, or of all, newest first, with how far they have come.
    List(BackfillListArgs),
    /// End a backfill: what no worker has is cancelled, what runs may end.
    Cancel(BackfillCancelArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct BackfillAskArgs {
    /// The task; one that is called `list` or `cancel` comes behind the options
    #[arg(required = true)]
    task: Option<String>,
    /// The first instant, such as 2026-11-01T00:00:00Z
    #[arg(long, required = true)]
    from: Option<String>,
    /// The instant behind the last
    #[arg(long, required = true)]
    to: Option<String>,
    /// Only list the fire times
    #[arg(long)]
    dry_run: bool,
    /// Which fire time is made up for first
    #[arg(long, value_parser = ["oldest", "newest"], default_value = "oldest")]
    order: String,
    /// At most so many of its instances at once
    #[arg(long, default_value_t = 1)]
    concurrency: u32,
    /// Also those that have an instance
    #[arg(long)]
    again: bool,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct BackfillListArgs {
    /// The task; all of them where it is left out
    task: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct BackfillCancelArgs {
    /// The backfill's id
    id: String,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl BackfillArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        match self.which {
            Some(BackfillCommand::List(args)) => args.run(output),
            Some(BackfillCommand::Cancel(args)) => args.run(output),
            None => self.ask.run(output),
        }
    }
}

/// A backfill on one line.
fn backfill_line(row: &serde_json::Value) -> String {
    let field = |name: &str| text(&row[name]);
    format!("{}  {}  {}  {} of {} done, {} made", field("id"), field("task"), field("state"), field("done"), field("total"), field("made"))
}

impl BackfillAskArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        let mut body = json!({
            "from": self.from, "to": self.to, "order": self.order, "concurrency": self.concurrency, "again": self.again,
            "dry_run": self.dry_run, "reason": self.reason, "by": user(),
        });
        let path = ["tasks", self.task.as_deref().unwrap_or_default(), "backfills"];
        let mut answer = client.post(&path, None, &body).await?;
        if !self.dry_run {
            return Ok(match self.api.json {
                true => pretty(&answer),
                false => format!("backfill {}: {} fire times", text(&answer["backfill"]["id"]), text(&answer["backfill"]["total"])),
            });
        }
        if self.api.json {
            return Ok(pretty(&answer));
        }
        let mut lines = vec![format!("{} fire times, {} more have instances", text(&answer["count"]), text(&answer["passed_over"]))];
        loop {
            lines.extend(answer["fire_times"].as_array().into_iter().flatten().map(text));
            let Some(next) = answer["next"].as_str() else { return Ok(lines.join("\n")) };
            body["after"] = json!(next);
            answer = client.post(&path, None, &body).await?;
        }
    }
}

/// The backfills of a task, or of all.
pub(super) async fn backfills(client: &Client, task: Option<&str>) -> Result<Value, ClientError> {
    match task {
        Some(task) => client.get(&["tasks", task, "backfills"], &[]).await,
        None => client.get(&["backfills"], &[]).await,
    }
}

impl BackfillListArgs {
    async fn ask(&self) -> Printed {
        let answer = backfills(&Client::new(&self.api), self.task.as_deref()).await?;
        if self.api.json {
            return Ok(pretty(&answer));
        }
        let lines: Vec<_> = answer["backfills"].as_array().into_iter().flatten().map(backfill_line).collect();
        Ok(if lines.is_empty() { "no backfills".to_owned() } else { lines.join("\n") })
    }
}

impl BackfillCancelArgs {
    async fn ask(&self) -> Printed {
        let body = json!({ "by": user(), "reason": self.reason });
        let answer = Client::new(&self.api).post(&["backfills", &self.id, "cancel"], None, &body).await?;
        Ok(match (self.api.json, answer["backfill"].is_null()) {
            (true, _) => pretty(&answer),
            (false, true) => "accepted, and not taken up yet; see `punctual backfill list`".to_owned(),
            (false, false) => backfill_line(&answer["backfill"]),
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
commands!(BackfillAskArgs, BackfillListArgs, BackfillCancelArgs);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        backfill: BackfillArgs,
    }

    #[test]
    fn a_task_may_be_called_as_a_command_is() {
        for name in ["list", "cancel"] {
            let asked = ["backfill", "--from", "a", "--to", "b", name];
            let Line { backfill } = Line::try_parse_from(asked).unwrap_or_else(|error| panic!("{error}"));
            assert!(backfill.which.is_none());
            assert_eq!(backfill.ask.task.as_deref(), Some(name));
            assert!(matches!(Line::try_parse_from(["backfill", name, "x"]), Ok(Line { backfill }) if backfill.which.is_some()));
        }
    }
}
