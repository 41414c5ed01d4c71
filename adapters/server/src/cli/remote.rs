//! The commands that ask a running Punctual: tasks, instances, instance, trigger, cancel.

use std::fs::File;
use std::io::{IsTerminal, Read};

use comfy_table::{Table, presets};
use punctual_core::limits;
use serde_json::{Value, json};

use super::Exit;
use super::ask::{ask, field, when};
use super::client::{ApiArgs, Client, ClientError};
use super::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct TasksArgs {
    /// Show one task with its versions and the fire times that were not fired
    name: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct InstancesArgs {
    /// Of this task only
    #[arg(long)]
    task: Option<String>,
    /// Of tasks of this group only
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// With an attempt on this worker only
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// That came about so only: schedule, catch_up, manual, chain, rerun, backfill
    #[arg(long)]
    origin: Option<String>,
    /// With this idempotency key only
    #[arg(long)]
    key: Option<String>,
    /// With a fire time from this instant on only
    #[arg(long, value_name = "INSTANT")]
    fired_after: Option<String>,
    /// With a fire time before this instant only
    #[arg(long, value_name = "INSTANT")]
    fired_before: Option<String>,
    /// In this state only, or in one of several with commas between them: waiting, created, dispatched, running, retrying, succeeded, failed, timed_out, dead_lettered, cancelled, skipped
    #[arg(long)]
    state: Option<String>,
    /// Also shards and nodes of workflows, not only whole firings
    #[arg(long)]
    parts: bool,
    /// At most this many
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Older than this one only: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    before: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct InstanceArgs {
    /// The instance's id, such as 43-17
    pub(super) id: String,
    #[command(flatten)]
    pub(super) api: ApiArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TriggerArgs {
    /// The task's name
    task: String,
    /// Handed to the handler in place of the task's own payload
    #[arg(long)]
    payload: Option<String>,
    /// Hands over what this file has, or standard input where it is `-`
    #[arg(long, value_name = "FILE", value_parser = text_of, conflicts_with = "payload")]
    payload_file: Option<String>,
    /// How long to wait, such as 90s or 1h30m; the task's own delay where it is left out
    #[arg(long, value_parser = duration)]
    delay: Option<punctual_core::time::Millis>,
    /// Makes the call repeatable: the same key fires once
    #[arg(long)]
    key: Option<String>,
    /// The version of the task that the payload was written for: refused where its schema has changed since
    #[arg(long, value_name = "VERSION")]
    task_version: Option<u32>,
    /// Lets the trigger with this key, which is not due yet, come so much later from now instead
    #[arg(long, value_name = "DELAY", value_parser = duration, requires = "key", conflicts_with_all = ["payload", "payload_file", "delay", "task_version"])]
    reschedule: Option<punctual_core::time::Millis>,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct CancelArgs {
    /// The instance's id, such as 43-17; with --key the task's name
    id: String,
    /// Cancels the trigger of the task with this key, unless its time has come
    #[arg(long)]
    key: Option<String>,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

fn duration(text: &str) -> Result<punctual_core::time::Millis, String> {
    punctual_spec::duration::parse(text).map_err(|error| error.to_string())
}

/// The text of a file, or of standard input; of one that is too long for a payload, enough that it is refused.
fn text_of(file: &str) -> Result<String, String> {
    let source: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin()),
        file => Box::new(File::open(file).map_err(|error| format!("PUN-323: {file} can't be read: {error}"))?),
    };
    let mut bytes = Vec::new();
    let read = source.take(limits::PAYLOAD_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("PUN-323: {file} can't be read: {error}"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // Cut anywhere, and refused for its length.
        Err(error) if error.as_bytes().len() > limits::PAYLOAD_BYTES_MAX => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Err(_) => Err(format!("PUN-323: {file} can't be read: it is not UTF-8")),
    }
}

/// What a command prints: JSON where asked for, else text.
pub(super) type Printed = Result<String, ClientError>;

impl TasksArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        match &self.name {
            Some(name) => self.one(&client, name).await,
            None => self.all(&client).await,
        }
    }

    async fn all(&self, client: &Client) -> Printed {
        let tasks = client.all("tasks", &[]).await?;
        if self.api.json {
            return Ok(pretty(&json!({ "tasks": tasks })));
        }
        Ok(super::get::tasks_table(&tasks))
    }

    async fn one(&self, client: &Client, name: &str) -> Printed {
        let mut task = client.get(&["tasks", name], &[]).await?;
        let occurrences = client.get(&["tasks", name, "occurrences"], &[("limit", "20".to_owned())]).await?;
        task["occurrences"] = occurrences["occurrences"].clone();
        if self.api.json {
            return Ok(pretty(&task));
        }
        let mut shown = format!("{}  (version {})\n", text(&task["name"]), text(&task["version"]));
        for pause in task["paused"].as_array().into_iter().flatten() {
            shown += &format!("{}\n", paused_line(pause));
        }
        shown += &format!("next fire  {}\n{}\n", when(&task["next_fire"]), pretty(&task["definition"]));
        if let Some(warning) = task["warning"].as_str() {
            shown += &format!("! {}\n", text(&Value::from(warning)));
        }
        if let Some(left) = task["catching_up"]["left"].as_u64() {
            let last = when(&task["catching_up"]["last_begins_at"]);
            shown += &format!("made up for {left} more missed fire times, the last one begins at {last}\n");
        }
        for occurrence in task["occurrences"].as_array().into_iter().flatten() {
            let times = match occurrence["count"].as_u64() {
                Some(1) => when(&occurrence["first"]),
                _ => format!(
                    "{} fire times from {} to {}",
                    text(&occurrence["count"]),
                    when(&occurrence["first"]),
                    when(&occurrence["last"])
                ),
            };
            shown += &format!("not fired  {times}: {}\n", text(&occurrence["outcome"]));
        }
        shown += &format!("\n{}", super::versions::listed(&task));
        Ok(shown.trim_end().to_owned())
    }
}

impl InstancesArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        let mut query = vec![("limit", self.limit.to_string()), ("parts", self.parts.to_string())];
        let filters = [
            ("task", &self.task),
            ("group", &self.group),
            ("worker", &self.worker),
            ("origin", &self.origin),
            ("key", &self.key),
            ("fired_after", &self.fired_after),
            ("fired_before", &self.fired_before),
            ("state", &self.state),
            ("before", &self.before),
        ];
        query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
        let page = client.get(&["instances"], &query).await?;
        if self.api.json {
            return Ok(pretty(&page));
        }
        let next = page["next"].as_str().map(|next| format!("\nmore: --before {next}")).unwrap_or_default();
        Ok(instances(page["instances"].as_array().map(Vec::as_slice).unwrap_or_default()) + &next)
    }
}

/// Instances as a table. Only where some are shards, or divided into some, there is a column for that; and for runs where one is not the first.
pub(super) fn instances(instances: &[Value]) -> String {
    let parts: Vec<String> = instances.iter().map(|instance| part(instance).unwrap_or_default()).collect();
    let has_parts = parts.iter().any(|part| !part.is_empty());
    let has_runs = instances.iter().any(|instance| instance["run"].as_u64().is_some_and(|run| run > 1));
    let header = ["INSTANCE", "TASK", "SHARD", "FIRE TIME", "RUN", "STATE", "ATTEMPT", "CODE", "DETAIL"];
    let is_shown = |column: &&&str| (has_parts || **column != "SHARD") && (has_runs || **column != "RUN");
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().filter(is_shown));
    for (instance, part) in instances.iter().zip(&parts) {
        let fields = ["id", "task", "fire_time", "state", "attempt", "code", "detail"];
        let mut row = fields.map(|name| cut(&field(instance, name))).to_vec();
        if has_runs {
            row.insert(3, text(&instance["run"]));
        }
        if has_parts {
            row.insert(2, cut(part));
        }
        table.add_row(row);
    }
    table.to_string()
}

/// As much of a text as a column has room for.
fn cut(text: &str) -> String {
    punctual_core::text::cut_to_width(text, 60)
}

/// Which part an instance is: `2 of 5, eu` for a shard or an item, counted from 1; `all 5` for what was divided into them, `7 nodes` for a
/// workflow's run; `list` and `reduce` for what does that for a map.
fn part(instance: &Value) -> Option<String> {
    if let Some(part) = instance["part"].as_str() {
        return Some(part.to_owned());
    }
    if instance["map"]["phase"].as_str() == Some("list") {
        return Some("all".to_owned());
    }
    if let Some(shards) = instance["shards"].as_u64() {
        return Some(format!("all {shards}"));
    }
    if let Some(nodes) = instance["nodes_count"].as_u64() {
        return Some(format!("{nodes} nodes"));
    }
    let shard = instance["shard"].as_object()?;
    let key = shard["key"].as_str().map(|_| format!(", {}", text(&shard["key"]))).unwrap_or_default();
    Some(format!("{} of {}{key}", shard["index"].as_u64()? + 1, text(&shard["count"])))
}

/// What an instance's shard, or its being divided, means, in a sentence.
fn part_line(instance: &Value) -> Option<String> {
    let parent = || text(&instance["parent"]);
    let map = &instance["map"];
    if let Some(phase) = map["phase"].as_str() {
        let of = map["items"].as_u64().map(|items| format!(" of {items}")).unwrap_or_default();
        let (made, failed) = (text(&map["made"]), text(&map["failed"]));
        return Some(format!("map        {phase}: {made}{of} items begun, {failed} failed\n"));
    }
    match instance["shards"].as_u64() {
        Some(shards) if instance["carried_over"].as_u64().is_some() => {
            Some(format!("shards     {shards}, which run in its place, {} of them carried over\n", text(&instance["carried_over"])))
        }
        Some(shards) => Some(format!("shards     {shards}, which run in its place\n")),
        None if !instance["nodes_count"].is_null() => None,
        None => part(instance).map(|part| format!("shard      {part}; a part of {}\n", parent())),
    }
}

impl InstanceArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        let mut instance = client.get(&["instances", &self.id], &[]).await?;
        let logs = client.get(&["instances", &self.id, "logs"], &[("limit", "1".to_owned())]).await?;
        instance["outputs"] = logs["outputs"].clone();
        if self.api.json {
            return Ok(pretty(&instance));
        }
        let mut shown = format!("{}  {}  {}\n", text(&instance["id"]), text(&instance["task"]), text(&instance["state"]));
        shown += &facts(&instance);
        shown += &nodes(&instance["nodes"]);
        shown += &parts(&instance);
        let mut transitions = table(["AT", "STATE", "CAUSE", "ATTEMPT", "FENCE", "WORKER", "CODE", "DETAIL"]);
        for transition in instance["transitions"].as_array().into_iter().flatten() {
            let fields = ["at", "to", "cause", "attempt", "fence", "worker", "code", "detail"];
            transitions.add_row(fields.map(|name| field(transition, name)));
        }
        shown += &format!("\n{transitions}\n");
        shown += &outputs(&instance["outputs"]);
        Ok(shown.trim_end().to_owned())
    }
}

/// The nodes of a workflow's run, in its order.
fn nodes(nodes: &Value) -> String {
    let Some(nodes) = nodes.as_array() else { return String::new() };
    let mut shown = table(["NODE", "AFTER", "STATE", "INSTANCE", "ATTEMPT", "DETAIL"]);
    for node in nodes {
        let after: Vec<_> = node["after"].as_array().into_iter().flatten().map(text).collect();
        let [state, instance, attempt, mut detail] = ["state", "instance", "attempt", "detail"].map(|field| cut(&text(&node[field])));
        if node["ended_at"].is_null()
            && let Some(called) = call(node)
        {
            detail = cut(&called);
        }
        shown.add_row([cut(&text(&node["node"])), cut(&after.join(", ")), state, instance, attempt, detail]);
    }
    format!("\n{shown}\n")
}

/// The shards or items of a firing that was divided.
fn parts(instance: &Value) -> String {
    let Some(parts) = instance["parts"].as_array().filter(|parts| !parts.is_empty()) else { return String::new() };
    let mut shown = table(["PART", "INSTANCE", "STATE", "ATTEMPT", "WORKER", "CODE", "DETAIL"]);
    for part in parts {
        let name = match (part["index"].as_u64(), part["key"].as_str()) {
            (Some(index), Some(_)) => format!("{}, {}", index + 1, text(&part["key"])),
            (Some(index), None) => (index + 1).to_string(),
            (None, _) => text(&part["part"]),
        };
        let fields = ["instance", "state", "attempt", "worker", "code", "detail"].map(|field| cut(&text(&part[field])));
        shown.add_row(std::iter::once(cut(&name)).chain(fields));
    }
    let of = instance["map"]["items"].as_u64().or(instance["shards"].as_u64()).unwrap_or(0);
    let listed = parts.iter().filter(|part| !part["index"].is_null()).count() as u64;
    let more = match of.saturating_sub(listed) {
        0 => String::new(),
        _ if instance["ended_at"].is_null() && listed < 100 => String::new(),
        _ if listed < 100 => String::new(),
        left => format!("and {left} more; see `punctual instances --parts --task {}`\n", text(&instance["task"])),
    };
    format!("\n{shown}\n{more}")
}

/// Which task a node calls, and as which instance.
fn call(node: &Value) -> Option<String> {
    let (task, instance) = (node["calls"]["task"].as_str()?, node["calls"]["instance"].as_str());
    Some(format!("{task}{}", instance.map(|id| format!(", as {id}")).unwrap_or_default()))
}

/// What there is to say about an instance besides its transitions, line by line.
fn facts(instance: &Value) -> String {
    let line = |label: &str, name: &str| match instance[name].is_null() {
        true => String::new(),
        false => format!("{label:<10} {}\n", field(instance, name)),
    };
    let run = if instance["run"] == json!(1) { String::new() } else { line("run", "run") };
    let origin = match instance["caused_by"].as_str() {
        Some(node) if instance["origin"] == json!("call") => format!("origin     call, by {node}\n"),
        Some(cause) => format!("origin     {}, after {cause}\n", text(&instance["origin"])),
        None => line("origin", "origin"),
    };
    [
        line("fire time", "fire_time"),
        line("node", "node"),
        part_line(instance).unwrap_or_default(),
        call(instance).map(|call| format!("calls      {call}\n")).unwrap_or_default(),
        run,
        origin,
        line("version", "version"),
        line("due at", "due_at"),
        instance["waits_for_group"].as_str().map(|group| format!("waits for  a slot of the group {group}\n")).unwrap_or_default(),
        line("payload", "payload"),
        line("result", "result"),
    ]
    .concat()
}

impl TriggerArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        if let (Some(delay), Some(key)) = (self.reschedule, &self.key) {
            let body = json!({ "by": user(), "reason": self.reason, "delay_ms": delay.0 });
            let answer = client.patch(&["tasks", &self.task, "triggers", key], &body).await?;
            return changed(&answer, "rescheduled", self.api.json);
        }
        let mut body = json!({ "by": user(), "reason": self.reason });
        if let Some(version) = self.task_version {
            body["task_version"] = json!(version);
        }
        if let Some(payload) = self.payload.as_ref().or(self.payload_file.as_ref()) {
            body["payload"] = json!(payload);
        }
        if let Some(delay) = self.delay {
            body["delay_ms"] = json!(delay.0);
        }
        let accepted = client.post(&["tasks", &self.task, "trigger"], self.key.as_deref(), &body).await?;
        if self.api.json {
            return Ok(pretty(&accepted));
        }
        Ok(match accepted["instance"]["id"].as_str() {
            Some(id) => {
                let (task, state) = (text(&accepted["instance"]["task"]), text(&accepted["instance"]["state"]));
                format!(
                    "{id}  {task}  {state}\nfollow it with `punctual logs {id} --follow`; `punctual explain {id}` says what it waits for"
                )
            }
            None => "accepted, and not taken up yet; see `punctual instances`".to_owned(),
        })
    }
}

impl CancelArgs {
    async fn ask(&self) -> Printed {
        let client = Client::new(&self.api);
        let body = json!({ "by": user(), "reason": self.reason });
        if let Some(key) = &self.key {
            let answer = client.delete(&["tasks", &self.id, "triggers", key], &body).await?;
            return changed(&answer, "cancelled", self.api.json);
        }
        if self.id.parse::<punctual_core::ids::InstanceId>().is_err() {
            let problem = "is no instance's id, such as 43-17; to cancel what was triggered under a key, say the task's name and --key KEY, and `punctual get \
                           instances --task NAME` lists its instances";
            return Err(ClientError::Unfit { field: "ID", problem });
        }
        let answer = client.post(&["instances", &self.id, "cancel"], None, &body).await?;
        ended(&self.id, &answer, self.api.json, "cancelled", "was asked to end")
    }
}

/// What became of a trigger that was not due yet.
fn changed(answer: &Value, what: &str, as_json: bool) -> Printed {
    let is_done = answer[what].as_bool();
    if as_json {
        return done(is_done != Some(false), pretty(answer));
    }
    let [id, state, due] = ["id", "state", "due_at"].map(|name| field(&answer["instance"], name));
    let shown = match is_done {
        Some(true) if due.is_empty() => format!("{id} is {what}"),
        Some(true) => format!("{id} is {what}: due at {due}"),
        // By a word before its time, or by one to the instance since.
        Some(false) if state == "cancelled" => format!("it was cancelled before: {id} is {state}"),
        Some(false) => format!("its time had come: {id} is {state}"),
        None => "accepted, and not taken up yet; see `punctual instances`".to_owned(),
    };
    done(is_done != Some(false), shown)
}

/// A pause in a sentence.
pub(super) fn paused_line(pause: &Value) -> String {
    if pause["worker"].is_string() {
        return format!(
            "drained    {}, since {} by {}{}",
            text(&pause["worker"]),
            when(&pause["since"]),
            text(&pause["by"]),
            reason(pause)
        );
    }
    format!("paused     {}, since {} by {}{}", paused(pause), when(&pause["since"]), text(&pause["by"]), reason(pause))
}

/// What a pause holds.
pub(super) fn paused(pause: &Value) -> String {
    let named = ["task", "group", "worker"].into_iter().find(|kind| pause[*kind].is_string());
    named.map_or_else(|| "everything".to_owned(), |kind| format!("{kind} {}", text(&pause[kind])))
}

/// Why, behind a colon, where somebody said why.
fn reason(pause: &Value) -> String {
    pause["reason"].as_str().map(|_| format!(": {}", text(&pause["reason"]))).unwrap_or_default()
}

macro_rules! commands {
    ($($args:ident),*) => { $(impl $args {
        pub(super) fn run(self, output: &mut Output) -> Exit {
            answer(output, self.api.json, async move { self.ask().await })
        }
    })* };
}
commands!(TasksArgs, InstancesArgs, InstanceArgs, TriggerArgs, CancelArgs);

/// Prints what a running Punctual answers, or why it doesn't.
pub(super) fn answer(output: &mut Output, as_json: bool, asking: impl Future<Output = Printed>) -> Exit {
    ask(output, as_json, Exit::Found, async { Ok((asking.await?, Exit::Done)) })
}

/// What a command prints that was to do something: an error where it was not done.
pub(super) fn done(is_done: bool, shown: String) -> Printed {
    if is_done { Ok(shown) } else { Err(ClientError::NotDone { shown }) }
}

/// What became of an instance that was to end.
pub(super) fn ended(id: &str, answer: &Value, as_json: bool, cancelled: &str, asked: &str) -> Printed {
    let is_done = answer["cancelled"].as_bool();
    let shown = match is_done {
        _ if as_json => pretty(answer),
        Some(true) => format!("{id} is {cancelled}"),
        Some(false) => format!("{id} had ended already: {}", text(&answer["instance"]["state"])),
        None => format!("{id} {asked}; see `punctual instance {id}`"),
    };
    done(is_done != Some(false), shown)
}

pub(super) fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "cli".to_owned())
}

pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON values can be written")
}

pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// A value as text; nothing for null, and nothing that could write to the terminal.
pub(super) fn text(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// What makes a task fire, in a line.
pub(super) fn trigger(definition: &Value) -> String {
    in_a_line(&definition["trigger"])
}

/// A value of a task's document, without its brackets.
fn in_a_line(value: &Value) -> String {
    let parts: Vec<String> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| format!("{name} {}", in_a_line(value))).collect(),
        Value::Array(values) => values.iter().map(in_a_line).collect(),
        other => return text(other),
    };
    parts.join(", ")
}

fn outputs(outputs: &Value) -> String {
    let to_terminal = std::io::stdout().is_terminal();
    let mut shown = String::new();
    let outputs = outputs.as_array().map(Vec::as_slice).unwrap_or_default();
    for output in outputs {
        if outputs.len() > 1 {
            shown += &format!("--- attempt {}\n", text(&output["attempt"]));
        }
        let written = output["output"].as_str().unwrap_or_default();
        let is_shown = |character: &char| !to_terminal || !character.is_control() || matches!(character, '\n' | '\t');
        shown.extend(written.chars().filter(is_shown));
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        if let Some(dropped) = output["dropped_bytes"].as_u64().filter(|dropped| *dropped > 0) {
            shown += &format!("--- {dropped} bytes in between were dropped\n");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_task_fire_has_no_brackets() {
        for (document, shown) in [
            (json!({ "trigger": "manual" }), "manual"),
            (json!({ "trigger": { "fixed_rate": "30s" } }), "fixed_rate 30s"),
            (json!({ "trigger": { "after": ["load", { "task": "extract" }] } }), "after load, task extract"),
        ] {
            assert_eq!(trigger(&document), shown);
        }
    }
}
