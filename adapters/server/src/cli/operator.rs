//! The commands of those who put things right: kill, skip, rerun, pause, resume, drain, undrain, dead-letters, audit.

use punctual_core::instance::State;
use punctual_core::text::cut_to_width;
use serde_json::{Value, json};

use super::Exit;
use super::ask::{field, when};
use super::client::{ApiArgs, Client};
use super::nodes::NodeArgs;
use super::output::Output;
use super::remote::{Printed, answer, done, ended, pretty, table, text, user};

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
                let (task, run, state) = (text(&instance["task"]), text(&instance["run"]), text(&instance["state"]));
                format!("{id}  {task}  run {run}  {state}, again of {}", self.id)
            }
            None => "accepted, and not taken up yet; see `punctual instances`".to_owned(),
        })
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct KillArgs {
    /// The instance's id, such as 43-17
    id: String,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl KillArgs {
    async fn ask(&self) -> Printed {
        let body = json!({ "by": user(), "reason": self.reason });
        let answer = Client::new(&self.api).post(&["instances", &self.id, "kill"], None, &body).await?;
        ended(&self.id, &answer, self.api.json, "killed", "is being killed")
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct SkipArgs {
    /// The instance's id, such as 43-17
    id: String,
    /// Of a workflow's run: only this node of it, which waits or has failed
    node: Option<String>,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl SkipArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        match self.node {
            Some(node) => NodeArgs { run: self.id, node, reason: self.reason, api: self.api }.say(State::Skipped.name(), output),
            None => answer(output, self.api.json, async move { self.ask().await }),
        }
    }

    async fn ask(&self) -> Printed {
        let body = json!({ "by": user(), "reason": self.reason });
        let answer = Client::new(&self.api).post(&["instances", &self.id, "skip"], None, &body).await?;
        if self.api.json {
            return Ok(pretty(&answer));
        }
        Ok(match answer["skipped"].as_bool() {
            Some(_) => format!("{} is skipped", self.id),
            None => format!("accepted, and not taken up yet; see `punctual instance {}`", self.id),
        })
    }
}

/// What a pause is of.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Target {
    /// The task's name
    task: Option<String>,
    /// All tasks with this group
    #[arg(long)]
    group: Option<String>,
    /// Every task
    #[arg(long)]
    all: bool,
}

impl Target {
    fn path<'a>(&'a self, verb: &'a str) -> Vec<&'a str> {
        match (&self.task, &self.group) {
            (Some(task), _) => vec!["tasks", task, verb],
            (None, Some(group)) => vec!["groups", group, verb],
            (None, None) => vec![verb],
        }
    }

    fn name(&self) -> String {
        match (&self.task, &self.group) {
            (Some(task), _) => text(&Value::from(task.as_str())),
            (None, Some(group)) => format!("the group {}", text(&Value::from(group.as_str()))),
            (None, None) => "everything".to_owned(),
        }
    }

    async fn set(&self, verb: &str, reason: Option<&String>, api: &ApiArgs) -> Printed {
        let body = json!({ "by": user(), "reason": reason });
        let answer = Client::new(api).post(&self.path(verb), None, &body).await?;
        if api.json {
            return Ok(pretty(&answer));
        }
        let (name, done) = (self.name(), if verb == "pause" { "paused" } else { "resumed" });
        Ok(match (answer["changed"].as_bool(), answer["in_effect"].as_bool()) {
            (Some(false), _) => format!("{name} was {} before", if verb == "pause" { "paused" } else { "not paused" }),
            (_, Some(true)) => format!("{name} is {done}"),
            _ => format!("{name} is {done} as soon as all owners have heard of it"),
        })
    }
}

/// Which worker, and why.
#[derive(clap::Args, Debug)]
struct OneWorker {
    /// The worker's name
    worker: String,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
}

impl OneWorker {
    async fn set(&self, is_drained: bool, api: &ApiArgs) -> Printed {
        let (verb, follow) = if is_drained { ("drain", "; what it runs goes on, see `punctual status`") } else { ("undrain", "") };
        let body = json!({ "by": user(), "reason": self.reason });
        let answer = Client::new(api).post(&["workers", &self.worker, verb], None, &body).await?;
        if api.json {
            return Ok(pretty(&answer));
        }
        let (name, state) = (text(&Value::from(self.worker.as_str())), if is_drained { "drained" } else { "not drained" });
        Ok(match (answer["changed"].as_bool(), answer["in_effect"].as_bool()) {
            (Some(false), _) => format!("{name} was {state} before"),
            (_, Some(true)) => format!("{name} is {state}{follow}"),
            _ => format!("{name} is {state} as soon as all owners have heard of it"),
        })
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    worker: OneWorker,
    #[command(flatten)]
    api: ApiArgs,
}

impl DrainArgs {
    async fn ask(&self) -> Printed {
        self.worker.set(true, &self.api).await
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    worker: OneWorker,
    #[command(flatten)]
    api: ApiArgs,
}

impl UndrainArgs {
    async fn ask(&self) -> Printed {
        self.worker.set(false, &self.api).await
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    target: Target,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl PauseArgs {
    async fn ask(&self) -> Printed {
        self.target.set("pause", self.reason.as_ref(), &self.api).await
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    target: Target,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ResumeArgs {
    async fn ask(&self) -> Printed {
        self.target.set("resume", self.reason.as_ref(), &self.api).await
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct DeadLettersArgs {
    #[command(subcommand)]
    command: DeadLetters,
}

#[derive(clap::Subcommand, Debug)]
enum DeadLetters {
    /// List those that nobody has settled, newest first
    List(ListArgs),
    /// Show the whole story of one
    Show(super::remote::InstanceArgs),
    /// Run them again, each once however often it is asked
    Replay(ReplayArgs),
    /// Settle them without running them again
    Discard(DiscardArgs),
}

impl DeadLettersArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        match self.command {
            DeadLetters::List(args) => args.run(output),
            DeadLetters::Show(args) => args.run(output),
            DeadLetters::Replay(args) => args.run(output),
            DeadLetters::Discard(args) => args.run(output),
        }
    }
}

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    /// Of this task only
    #[arg(long)]
    task: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Older than this one only: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    before: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ListArgs {
    async fn ask(&self) -> Printed {
        let mut query = vec![("limit", self.limit.to_string())];
        let filters = [("task", &self.task), ("before", &self.before)];
        query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        let page = Client::new(&self.api).get(&["dead-letters"], &query).await?;
        if self.api.json {
            return Ok(pretty(&page));
        }
        let mut shown = table(["INSTANCE", "TASK", "FIRE TIME", "ENDED", "CAUSE", "ATTEMPT", "DETAIL"]);
        for letter in page["dead_letters"].as_array().into_iter().flatten() {
            let fields = ["id", "task", "fire_time", "ended_at", "cause", "attempt", "detail"];
            let at = |field: &str| if matches!(field, "fire_time" | "ended_at") { when(&letter[field]) } else { text(&letter[field]) };
            shown.add_row(fields.map(|field| cut_to_width(&at(field), 60)));
        }
        let next = page["next"].as_str().map(|next| format!("\nmore: --before {next}")).unwrap_or_default();
        Ok(format!("{shown}{next}"))
    }
}

/// Which dead letters.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Which {
    /// Instances, such as 43-17
    ids: Vec<String>,
    /// All of this task
    #[arg(long)]
    task: Option<String>,
    /// All that there are
    #[arg(long)]
    all: bool,
}

impl Which {
    /// Asks in parts, until none is left that can be settled.
    async fn settle(&self, verb: &str, done: &str, reason: Option<&String>, api: &ApiArgs) -> Result<Value, super::client::ClientError> {
        let client = Client::new(api);
        let body = json!({ "by": user(), "reason": reason, "instances": self.ids, "task": self.task, "all": self.all });
        let (mut all, mut repeated, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let mut part = client.post(&["dead-letters", verb], None, &body).await?;
            let mut take = |field: &str| if let Value::Array(list) = part[field].take() { list } else { Vec::new() };
            let settled = take(done);
            let is_over = settled.is_empty();
            all.extend(settled);
            let refused = take("refused");
            repeated.extend(take("repeated"));
            runs.extend(take("runs"));
            if is_over || part["more"].as_bool() != Some(true) {
                return Ok(json!({ done: all, "repeated": repeated, "runs": runs, "refused": refused }));
            }
        }
    }

    async fn described(&self, verb: &str, what: &str, reason: Option<&String>, api: &ApiArgs) -> Printed {
        let answer = self.settle(verb, what, reason, api).await?;
        let count = |field: &str| answer[field].as_array().map_or(0, Vec::len);
        let is_done = count("refused") == 0;
        if api.json {
            return done(is_done, pretty(&answer));
        }
        let mut shown = format!("{} {what}", count(what));
        if count("repeated") > 0 {
            shown += &format!(", {} were before", count("repeated"));
        }
        for refused in answer["refused"].as_array().into_iter().flatten() {
            shown += &format!("\n{}: {}", text(&refused["code"]), text(&refused["detail"]));
        }
        for run in answer["runs"].as_array().into_iter().flatten().filter(|run| run["instance"].is_string()) {
            shown += &format!("\n{} runs again as {}", text(&run["of"]), text(&run["instance"]));
        }
        done(is_done, shown)
    }
}

#[derive(clap::Args, Debug)]
struct ReplayArgs {
    #[command(flatten)]
    which: Which,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ReplayArgs {
    async fn ask(&self) -> Printed {
        self.which.described("replay", "replayed", self.reason.as_ref(), &self.api).await
    }
}

#[derive(clap::Args, Debug)]
struct DiscardArgs {
    #[command(flatten)]
    which: Which,
    /// Why, for the record
    #[arg(long, alias = "why", required = true)]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl DiscardArgs {
    async fn ask(&self) -> Printed {
        self.which.described("discard", "discarded", self.reason.as_ref(), &self.api).await
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct AuditArgs {
    /// Of this task only
    #[arg(long)]
    task: Option<String>,
    /// Of this instance only
    #[arg(long)]
    instance: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Older than this one only: `next` of the page before
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    #[command(flatten)]
    api: ApiArgs,
}

impl AuditArgs {
    async fn ask(&self) -> Printed {
        let mut query = vec![("limit", self.limit.to_string())];
        let before = self.before.map(|before| before.to_string());
        let filters = [("task", &self.task), ("instance", &self.instance), ("before", &before)];
        query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        let page = Client::new(&self.api).get(&["audit"], &query).await?;
        if self.api.json {
            return Ok(pretty(&page));
        }
        let mut shown = table(["AT", "BY", "ACTION", "TASK", "INSTANCE", "SUBJECT", "REASON", "FROM"]);
        for entry in page["audit"].as_array().into_iter().flatten() {
            let fields = ["at", "by", "action", "task", "instance", "subject", "reason", "from"];
            shown.add_row(fields.map(|name| cut_to_width(&field(entry, name), 60)));
        }
        let next = page["next"].as_u64().map(|next| format!("\nmore: --before {next}")).unwrap_or_default();
        Ok(format!("{shown}{next}"))
    }
}

macro_rules! commands {
    ($($args:ident),*) => { $(impl $args {
        pub(super) fn run(self, output: &mut Output) -> Exit {
            answer(output, self.api.json, async move { self.ask().await })
        }
    })* };
}
commands!(KillArgs, RerunArgs, PauseArgs, ResumeArgs, DrainArgs, UndrainArgs, ListArgs, ReplayArgs, DiscardArgs, AuditArgs);
