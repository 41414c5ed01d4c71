//! `punctual get`: lists of everything, each with the filters that the API has.

use serde_json::{Value, json};

use super::Exit;
use super::ask::{Said, ask, when};
use super::backfill::backfills;
use super::client::{ApiArgs, Client};
use super::operator;
use super::output::Output;
use super::remote::{InstancesArgs, paused, pretty, table, text, trigger};
use super::status::worker_state;

/// What.
#[derive(clap::Args, Debug)]
pub(crate) struct GetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Tasks, by name
    #[command(visible_alias = "task")]
    Tasks(TasksArgs),
    /// Instances, newest first
    #[command(visible_alias = "instance")]
    Instances(InstancesArgs),
    /// Workers of the replica that answers, and their load
    #[command(visible_alias = "worker")]
    Workers(NodesArgs),
    /// Replicas that say that they are alive
    #[command(visible_alias = "replica")]
    Replicas(NodesArgs),
    /// Dead letters that nobody has settled, newest first
    DeadLetters(operator::ListArgs),
    /// Backfills of a task, or of all, newest first
    #[command(visible_alias = "backfill")]
    Backfills(BackfillsArgs),
    /// The versions of a task, newest first
    #[command(visible_alias = "version")]
    Versions(super::versions::ListArgs),
    /// Fire times of a task that were not fired, newest first, and why
    Occurrences(OccurrencesArgs),
    /// All pauses
    Pauses(NodesArgs),
    /// Fire times to come of all tasks, in order
    Coming(ComingArgs),
    /// What people have done, newest first
    Audit(operator::AuditArgs),
}

impl GetArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        match self.what {
            What::Tasks(args) => ask(output, args.api.json, Exit::Found, args.ask()),
            What::Instances(args) => args.run(output),
            What::Workers(args) => ask(output, args.api.json, Exit::Found, args.workers()),
            What::Replicas(args) => ask(output, args.api.json, Exit::Found, args.replicas()),
            What::DeadLetters(args) => args.run(output),
            What::Backfills(args) => ask(output, args.api.json, Exit::Found, args.ask()),
            What::Versions(args) => args.run(output),
            What::Occurrences(args) => ask(output, args.api.json, Exit::Found, args.ask()),
            What::Pauses(args) => ask(output, args.api.json, Exit::Found, args.pauses()),
            What::Coming(args) => ask(output, args.api.json, Exit::Found, args.ask()),
            What::Audit(args) => args.run(output),
        }
    }
}

#[derive(clap::Args, Debug)]
struct TasksArgs {
    /// Of this group only
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Of this owner only
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Of this source only
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// That ask for workers with this tag only: `zone`, or `zone=eu`
    #[arg(long)]
    tag: Option<String>,
    /// That this makes fire only
    #[arg(long, value_parser = ["cron", "fixed_rate", "fixed_delay", "delay", "manual"])]
    trigger: Option<String>,
    /// Whose names have this in them only
    #[arg(long, value_name = "TEXT")]
    like: Option<String>,
    /// Whether a pause holds them
    #[arg(long, value_name = "BOOL")]
    paused: Option<bool>,
    /// Whether they are enabled
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    #[command(flatten)]
    api: ApiArgs,
}

impl TasksArgs {
    async fn ask(&self) -> Said {
        let client = Client::new(&self.api);
        let flag = |flag: Option<bool>| flag.map(|flag| flag.to_string());
        let filters = [
            ("group", self.group.clone()),
            ("owner", self.owner.clone()),
            ("tag", self.tag.clone()),
            ("trigger", self.trigger.clone()),
            ("q", self.like.clone()),
            ("paused", flag(self.paused)),
            ("enabled", flag(self.enabled)),
        ];
        let filters: Vec<_> = filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let mut tasks = client.all("tasks", &filters).await?;
        tasks.retain(|task| self.source.as_deref().is_none_or(|source| task["source"].as_str() == Some(source)));
        if self.api.json {
            return Ok((pretty(&json!({ "tasks": tasks })), Exit::Done));
        }
        Ok((tasks_table(&tasks), Exit::Done))
    }
}

/// Tasks, a row each.
pub(super) fn tasks_table(tasks: &[Value]) -> String {
    let mut shown = table(["TASK", "VERSION", "GROUP", "SOURCE", "TRIGGER", "NEXT FIRE"]);
    for task in tasks {
        let is_paused = task["paused"].as_array().is_some_and(|paused| !paused.is_empty());
        let next = match (is_paused, task["definition"]["enabled"].as_bool()) {
            (_, Some(false)) => "disabled".to_owned(),
            (true, _) => "paused".to_owned(),
            _ => when(&task["next_fire"]),
        };
        let [name, version, source] = ["name", "version", "source"].map(|field| text(&task[field]));
        shown.add_row([name, version, text(&task["definition"]["group"]), source, trigger(&task["definition"]), next]);
    }
    shown.to_string()
}

#[derive(clap::Args, Debug)]
struct NodesArgs {
    #[command(flatten)]
    api: ApiArgs,
}

impl NodesArgs {
    async fn workers(&self) -> Said {
        let workers = Client::new(&self.api).get(&["workers"], &[]).await?;
        if self.api.json {
            return Ok((pretty(&workers), Exit::Done));
        }
        let mut shown = table(["WORKER", "SLOTS", "HELD", "STATE", "VERSION", "HANDLERS", "TAGS"]);
        for worker in workers["workers"].as_array().into_iter().flatten() {
            let words = |list: &Value| list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
            let [id, slots, held, version] = ["id", "slots", "held", "version"].map(|field| text(&worker[field]));
            shown.add_row([id, slots, held, worker_state(worker).to_owned(), version, words(&worker["handlers"]), words(&worker["tags"])]);
        }
        Ok((shown.to_string(), Exit::Done))
    }

    async fn replicas(&self) -> Said {
        let cluster = Client::new(&self.api).get(&["cluster"], &[]).await?;
        let replicas = &cluster["replicas"];
        if self.api.json {
            return Ok((pretty(&json!({ "replicas": replicas })), Exit::Done));
        }
        let mut shown = table(["REPLICA", "ADDRESS", "PARTITIONS", "SINCE", "ALIVE UNTIL"]);
        for replica in replicas.as_array().into_iter().flatten() {
            let [id, address, partitions] = ["id", "address", "partitions"].map(|field| text(&replica[field]));
            shown.add_row([id, address, partitions, when(&replica["since"]), when(&replica["expires_at"])]);
        }
        Ok((shown.to_string(), Exit::Done))
    }

    async fn pauses(&self) -> Said {
        let pauses = Client::new(&self.api).get(&["pauses"], &[]).await?;
        if self.api.json {
            return Ok((pretty(&pauses), Exit::Done));
        }
        let mut shown = table(["PAUSED", "SINCE", "BY", "REASON"]);
        for pause in pauses["pauses"].as_array().into_iter().flatten() {
            shown.add_row([paused(pause), when(&pause["since"]), text(&pause["by"]), text(&pause["reason"])]);
        }
        Ok((shown.to_string(), Exit::Done))
    }
}

#[derive(clap::Args, Debug)]
struct BackfillsArgs {
    /// The task; all of them where it is left out
    task: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl BackfillsArgs {
    async fn ask(&self) -> Said {
        let answer = backfills(&Client::new(&self.api), self.task.as_deref()).await?;
        if self.api.json {
            return Ok((pretty(&answer), Exit::Done));
        }
        let mut shown = table(["BACKFILL", "TASK", "STATE", "DONE", "OF", "MADE"]);
        for backfill in answer["backfills"].as_array().into_iter().flatten() {
            shown.add_row(["id", "task", "state", "done", "total", "made"].map(|field| text(&backfill[field])));
        }
        Ok((shown.to_string(), Exit::Done))
    }
}

#[derive(clap::Args, Debug)]
struct OccurrencesArgs {
    /// The task
    task: String,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    api: ApiArgs,
}

impl OccurrencesArgs {
    async fn ask(&self) -> Said {
        let query = [("limit", self.limit.to_string())];
        let answer = Client::new(&self.api).get(&["tasks", &self.task, "occurrences"], &query).await?;
        Ok((if self.api.json { pretty(&answer) } else { occurrences(&answer) }, Exit::Done))
    }
}

/// Fire times that were not fired, as a table.
pub(super) fn occurrences(answer: &Value) -> String {
    let mut shown = table(["FIRST", "LAST", "FIRE TIMES", "WHY", "INSTANCE", "DECIDED"]);
    for occurrence in answer["occurrences"].as_array().into_iter().flatten() {
        let [count, outcome, instance] = ["count", "outcome", "instance"].map(|field| text(&occurrence[field]));
        let [first, last, at] = ["first", "last", "at"].map(|field| when(&occurrence[field]));
        shown.add_row([first, last, count, outcome.replace('_', " "), instance, at]);
    }
    shown.to_string()
}

#[derive(clap::Args, Debug)]
struct ComingArgs {
    /// From this instant on; the present where it is left out
    #[arg(long, value_name = "INSTANT")]
    from: Option<String>,
    /// Before this instant; a day later where it is left out
    #[arg(long, value_name = "INSTANT")]
    to: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    api: ApiArgs,
}

impl ComingArgs {
    async fn ask(&self) -> Said {
        let mut query = vec![("limit", self.limit.to_string())];
        query.extend([("from", &self.from), ("to", &self.to)].into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        let coming = Client::new(&self.api).get(&["coming"], &query).await?;
        if self.api.json {
            return Ok((pretty(&coming), Exit::Done));
        }
        let mut shown = table(["AT", "TASK", ""]);
        for fire in coming["fires"].as_array().into_iter().flatten() {
            let held = if fire["paused"] == json!(true) { "paused" } else { "" };
            shown.add_row([when(&fire["at"]), text(&fire["task"]), held.to_owned()]);
        }
        let mut shown = shown.to_string();
        for herd in coming["herds"].as_array().into_iter().flatten() {
            shown += &format!("\n{} tasks fire in the minute {}", text(&herd["fires"]), when(&herd["minute"]));
        }
        if let Some(next) = coming["next"].as_str() {
            shown += &format!("\nmore: --from {next}");
        }
        Ok((shown, Exit::Done))
    }
}
