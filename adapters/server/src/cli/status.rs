//! `punctual status`.

use serde_json::Value;

use super::Exit;
use super::ask::when;
use super::client::{ApiArgs, Client};
use super::output::Output;
use super::remote::{self, pretty, table, text};

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// Show each partition
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl StatusArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        remote::answer(output, self.api.json, async move {
            let status = Client::new(&self.api).get(&["cluster"], &[]).await?;
            Ok(if self.api.json { pretty(&status) } else { self.described(&status) })
        })
    }

    fn described(&self, status: &Value) -> String {
        let rows = |field: &str| status[field].as_array().cloned().unwrap_or_default();
        let partitions = rows("partitions");
        let unowned = partitions.iter().filter(|partition| partition["owner"].is_null()).count();
        let mut shown = format!(
            "{} partitions, {unowned} without an owner; {} inbox entries wait, {} instances have not ended\n",
            partitions.len(),
            status["inbox"],
            status["live"]
        );
        if let Some(trouble) = status["trouble"].as_str() {
            shown += &format!("! {}\n", text(&Value::from(trouble)));
        }
        let mut replicas = table(["REPLICA", "ADDRESS", "PARTITIONS", "SINCE", "ALIVE UNTIL"]);
        for replica in rows("replicas") {
            let [id, address, partitions] = ["id", "address", "partitions"].map(|field| text(&replica[field]));
            replicas.add_row([id, address, partitions, when(&replica["since"]), when(&replica["expires_at"])]);
        }
        let mut workers = table(["WORKER", "SLOTS", "HELD", "STATE", "VERSION", "HANDLERS", "TAGS"]);
        for worker in rows("workers") {
            let [id, slots, held, version] = ["id", "slots", "held", "version"].map(|field| text(&worker[field]));
            workers.add_row([
                id,
                slots,
                held,
                worker_state(&worker).to_owned(),
                version,
                words(&worker["handlers"]),
                words(&worker["tags"]),
            ]);
        }
        shown += &format!("\n{replicas}\n\n{workers}\n");
        let mut waiting = table(["WAITING", "HANDLER", "TAGS", "NEEDS", "WHY"]);
        for route in rows("waiting") {
            let version = route["min_worker_version"].as_str().map(|version| format!("version {version} or newer"));
            let worker = route["worker"].as_str().map(|worker| format!("worker {worker}"));
            let needs = version.into_iter().chain(worker).collect::<Vec<_>>().join(", ");
            let why = route["reason"].as_str().unwrap_or("no free slot");
            waiting.add_row([text(&route["instances"]), text(&route["handler"]), words(&route["tags"]), needs, why.to_owned()]);
        }
        if !rows("waiting").is_empty() {
            shown += &format!("\n{waiting}\n");
        }
        let mut breakers = table(["BREAKER", "STATE", "PROBE IN", "FAILURES", "HELD"]);
        for breaker in rows("breakers") {
            let probe_in = breaker["probe_in_ms"].as_u64().map(|ms| format!("{} s", ms.div_ceil(1_000)));
            let [downstream, state, failures, held] = ["downstream", "state", "failures", "held"].map(|field| text(&breaker[field]));
            breakers.add_row([downstream, state, probe_in.unwrap_or_default(), failures, held]);
        }
        if !rows("breakers").is_empty() {
            shown += &format!("\n{breakers}\n");
        }
        for pause in rows("pauses") {
            shown += &format!("\n{}\n", remote::paused_line(&pause));
        }
        let mut failures = table(["FAILED", "TASK", "STATE", "CAUSE", "ENDED", "DETAIL"]);
        for failure in rows("failures") {
            let fields = ["id", "task", "state", "cause", "ended_at", "detail"];
            failures.add_row(fields.map(|field| text(&failure[field]).chars().take(60).collect::<String>()));
        }
        if !rows("failures").is_empty() {
            shown += &format!("\n{failures}\n");
        }
        if let Some(letters @ 1..) = status["dead_letters"].as_u64() {
            let more = if letters < 100 { "" } else { " or more" };
            shown += &format!("\n{letters}{more} dead letters wait; see `punctual dead-letters list`\n");
        }
        if let Some(throttled @ 1..) = status["throttled"].as_u64() {
            shown += &format!("\n{throttled} instances wait for the rate limit of their task\n");
        }
        if self.partitions {
            let mut each = table(["PARTITION", "OWNER", "EPOCH", "COMMITS", "INBOX", "LIVE"]);
            for partition in &partitions {
                each.add_row(["partition", "owner", "epoch", "commits", "inbox", "live"].map(|field| text(&partition[field])));
            }
            shown += &format!("\n{each}\n");
        }
        shown.trim_end().to_owned()
    }
}

/// A list of texts, with blanks between them.
fn words(list: &Value) -> String {
    list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ")
}

/// How a worker is, in a word or two.
pub(super) fn worker_state(worker: &Value) -> &'static str {
    let is = |field: &str| worker[field].as_bool() == Some(true);
    match (is("connected"), is("drained"), is("draining")) {
        (true, true, _) => "drained",
        (true, false, true) => "draining",
        (true, false, false) => "connected",
        (false, ..) => "not connected",
    }
}
