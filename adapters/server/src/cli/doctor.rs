//! `punctual doctor`: what is wrong with a store or a cluster, and what to do about it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use punctual_driver::clock::SystemClock;
use punctual_driver::ports::Clock;
use punctual_spec::zones::Zones;
use punctual_store::{MySqlOptions, MySqlStore, SqliteStore};
use serde_json::{Value, json};

use super::Exit;
use super::ask::{ask, when};
use super::client::{ANSWER_TIME_MAX, ApiArgs, Client};
use super::output::Output;
use super::remote::{pretty, text};
use crate::api::doctor::{Seen, findings, is_ok};
use crate::doctor::{Finding, of_store};
use crate::explain::with_instants;
use crate::open;

/// Longest wait for a look at every instance: each of its statements may take 10 minutes.
const THOROUGH_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Of what.
#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Look straight at a database: an SQLite file, which is only read, or mysql://user:password@host/name
    #[arg(long, value_name = "FILE or URL")]
    store: Option<String>,
    /// Also look at every instance that there is: minutes, where there are millions. Always done with --store FILE
    #[arg(long)]
    thorough: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl DoctorArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let Some(store) = &self.store else {
            return ask(output, self.api.json, Exit::Refused, async {
                let query = [("thorough", self.thorough.to_string())];
                let most = if self.thorough { THOROUGH_TIME_MAX } else { ANSWER_TIME_MAX };
                let found = Client::new(&self.api).get_within(most, &["doctor"], &query).await?;
                Ok(self.told(found))
            });
        };
        let found = match store.starts_with("mysql:") || store.starts_with("mariadb:") {
            true => of_database(store, self.thorough),
            false => of_file(Path::new(store)),
        };
        match found {
            Ok(found) => {
                let (shown, exit) = self.told(found);
                output.line(shown);
                exit
            }
            Err(error) => {
                output.remark(format_args!("{error:#}"));
                Exit::Refused
            }
        }
    }

    fn told(&self, found: Value) -> (String, Exit) {
        let exit = if found["ok"] == json!(true) { Exit::Done } else { Exit::Found };
        (if self.api.json { pretty(&found) } else { described(&found) }, exit)
    }
}

fn checkup(findings: &[Finding], now: impl ToString, tasks: usize) -> Value {
    json!({ "now": now.to_string(), "version": env!("CARGO_PKG_VERSION"), "ok": is_ok(findings), "findings": findings, "tasks": tasks })
}

fn of_file(path: &Path) -> anyhow::Result<Value> {
    anyhow::ensure!(path.is_file(), "PUN-453: there is no file {}; name the .db file of `punctual dev`, or mysql://...", path.display());
    let now = SystemClock::new().now().wall;
    let (schema, newest, found) = SqliteStore::checkup(path, now)?;
    if schema != newest {
        return Err(of_another_schema(path.display(), schema, newest, "`punctual dev`"));
    }
    let findings: Vec<_> = found.iter().map(of_store).collect();
    Ok(checkup(&findings, now, 0))
}

/// `brings`: the program that brings a database to the newest schema.
fn of_another_schema(name: impl std::fmt::Display, schema: u32, newest: u32, brings: &str) -> anyhow::Error {
    let has = if schema == 0 { "has no schema of Punctual's".to_owned() } else { format!("has the schema {schema}") };
    anyhow::anyhow!(
        "PUN-453: {name} {has}, and this program checks {newest}; use the program of the version that wrote it, or let {brings} bring a copy to the newest \
         schema"
    )
}

fn of_database(url: &str, thorough: bool) -> anyhow::Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let zones = Arc::new(Zones::load());
        let (schema, newest, store) = MySqlStore::open_to_check(MySqlOptions::new(url, open::decode(&zones))).await?;
        let Some(store) = store else { return Err(of_another_schema("the database", schema, newest, "`punctual server`")) };
        // What is in it was written by its clock.
        let now = store.time().await?;
        let seen = Seen { own: None, is_served: false, trouble: None, thorough };
        let (findings, tasks) = findings(&store, zones, now, seen).await?;
        Ok(checkup(&findings, now, tasks))
    })
}

fn described(found: &Value) -> String {
    let findings = found["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let in_zone = |sentence: &Value| with_instants(&text(sentence), |instant| when(&json!(instant)));
    let mut shown = String::new();
    for finding in findings {
        let severity = if finding["severity"] == json!("wrong") { "WRONG" } else { "warning" };
        shown += &format!("{severity}  {}: {}\n", text(&finding["check"]), in_zone(&finding["says"]));
        for example in finding["examples"].as_array().into_iter().flatten() {
            shown += &format!("    {}\n", in_zone(example));
        }
        if finding["more"] == json!(true) {
            shown += "    and more\n";
        }
        shown += &format!("  -> {}\n", text(&finding["fix"]));
    }
    let wrong = findings.iter().filter(|finding| finding["severity"] == json!("wrong")).count();
    let count = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    shown
        + &match (wrong, findings.len() - wrong) {
            (0, 0) => "nothing is wrong".to_owned(),
            (0, warnings) => format!("nothing is wrong; {}", count(warnings, "warning")),
            (wrong, warnings) => format!("{} wrong, {}", count(wrong, "thing"), count(warnings, "warning")),
        }
}
