//! `punctual apply` and `punctual diff`: task files, and what they change.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::Exit;
use super::ask::{Said, ask};
use super::client::{ApiArgs, Client, ClientError};
use super::files::{Files, line_diff, yaml_of};
use super::output::Output;
use super::remote::{pretty, table, text, user};

/// Rows of tasks that are as they were; the others are counted.
const UNCHANGED_SHOWN: usize = 50;

/// Which files, and how far they may go.
#[derive(clap::Args, Debug)]
struct What {
    /// Task files; `-` is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Whose tasks these are
    #[arg(long, default_value = "file", value_name = "NAME")]
    source: String,
    /// Also remove the tasks of this source that are in none of the files
    #[arg(long, visible_alias = "prune")]
    remove: bool,
    /// Also take over tasks that another source has, such as the API or the console
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Hands task files over.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Only show what would change, line by line
    #[arg(long)]
    dry_run: bool,
    /// Why, for the record
    #[arg(long, alias = "why")]
    reason: Option<String>,
}

/// Shows what they would change.
#[derive(clap::Args, Debug)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    what: What,
}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        self.what.run(output, Exit::Found, async |what, files| {
            if self.dry_run {
                return what.differences(&files).await.map(|(shown, _)| (shown, Exit::Done));
            }
            let applied = what.put(&files, false, self.reason.as_deref()).await?;
            Ok((if what.api.json { pretty(&applied) } else { described(&applied, &files, what.remove) }, Exit::Done))
        })
    }
}

impl DiffArgs {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        self.what.run(output, Exit::Refused, async |what, files| what.differences(&files).await)
    }
}

impl What {
    fn run(&self, output: &mut Output, failed: Exit, asking: impl AsyncFnOnce(&What, Files) -> Said) -> Exit {
        match Files::read(&self.files) {
            Ok(files) => ask(output, self.api.json, failed, asking(self, files)),
            Err(problems) => {
                output.remark(problems);
                Exit::Refused
            }
        }
    }

    async fn put(&self, files: &Files, dry_run: bool, reason: Option<&str>) -> Result<Value, ClientError> {
        let body = json!({
            "documents": files.documents, "remove": self.remove, "take_over": self.take_over, "dry_run": dry_run,
            "by": format!("{}, file {}", user(), files.names).chars().take(256).collect::<String>(), "reason": reason,
        });
        Client::new(&self.api).put(&["sources", &self.source], &body).await
    }

    /// What would change, and whether anything would.
    async fn differences(&self, files: &Files) -> Said {
        let client = Client::new(&self.api);
        let mut would = self.put(files, true, None).await?;
        let mut differences = serde_json::Map::new();
        let mut shown = String::new();
        for name in names(&would["created"]) {
            let after = files.texts.get(&name).map(String::as_str).unwrap_or_default();
            differences.insert(name.clone(), json!(line_diff(("/dev/null", ""), (&name, after))));
        }
        for name in names(&would["changed"]).into_iter().chain(names(&would["removed"])) {
            let task = client.get(&["tasks", &name], &[]).await?;
            let is_there = task["removed"] != json!(true);
            let before = if is_there { yaml_of(&task["definition"]) } else { String::new() };
            let from = if is_there { format!("{name}  version {}", text(&task["version"])) } else { "/dev/null".to_owned() };
            let after = files.texts.get(&name).map(String::as_str);
            let to = if after.is_some() { &*name } else { "/dev/null" };
            differences.insert(name.clone(), json!(line_diff((&from, &before), (to, after.unwrap_or_default()))));
        }
        differences.values().filter_map(Value::as_str).for_each(|lines| shown += lines);
        let taken = would["taken"].as_array().cloned().unwrap_or_default();
        for task in &taken {
            let held = if self.take_over { "" } else { "; refused without --take-over" };
            shown += &format!("# {} would be taken over from the source {}{held}\n", text(&task["name"]), text(&task["source"]));
        }
        for name in names(&would["left"]) {
            shown += &format!("# {} is in none of the files, and would be left; --remove removes it\n", text(&json!(name)));
        }
        let exit = if differences.is_empty() && taken.is_empty() { Exit::Done } else { Exit::Found };
        if self.api.json {
            would["differences"] = Value::Object(differences);
            return Ok((pretty(&would), exit));
        }
        Ok((shown.trim_end().to_owned(), exit))
    }
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// A row for each task that the application has to do with, then how many there were of each kind.
fn described(applied: &Value, files: &Files, is_pruned: bool) -> String {
    let mut rows = table(["TASK", "OUTCOME", ""]);
    let taken: Vec<_> = applied["taken"].as_array().into_iter().flatten().collect();
    let from = |name: &str| {
        let taken = taken.iter().find(|task| task["name"] == json!(name));
        taken.map(|task| format!("taken over from the source {}", text(&task["source"]))).unwrap_or_default()
    };
    let mut counts = Vec::new();
    let mut told = std::collections::BTreeSet::new();
    for (field, outcome) in [("created", "created"), ("changed", "changed"), ("removed", "removed")] {
        let these = names(&applied[field]);
        counts.push(format!("{} {outcome}", these.len()));
        for name in these {
            rows.add_row([text(&json!(name)), outcome.to_owned(), from(&name)]);
            told.insert(name);
        }
    }
    let unchanged: Vec<_> = files.texts.keys().filter(|name| !told.contains(*name)).collect();
    for name in unchanged.iter().take(UNCHANGED_SHOWN) {
        rows.add_row([text(&json!(name)), "unchanged".to_owned(), from(name)]);
    }
    counts.push(format!("{} unchanged", unchanged.len()));
    let left = names(&applied["left"]);
    for name in left.iter().take(UNCHANGED_SHOWN) {
        rows.add_row([text(&json!(name)), "left".to_owned(), "in none of the files; --remove removes it".to_owned()]);
    }
    if !is_pruned {
        counts.push(format!("{} left", left.len()));
    }
    let rows = if rows.is_empty() { String::new() } else { format!("{rows}\n\n") };
    format!("{rows}{}", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_told_task_by_task() {
        let texts = ["a", "b", "c", "d"].map(|name| (name.to_owned(), String::new())).into();
        let files = Files { documents: Vec::new(), texts, names: String::new() };
        let applied = json!({
            "created": ["a"], "changed": ["b"], "unchanged": 2, "removed": [], "left": ["old\u{7}"], "taken": [{ "name": "c", "source": "api" }],
        });
        let shown = described(&applied, &files, false);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "created"]);
        assert_eq!(lines[3], ["c", "unchanged", "taken", "over", "from", "the", "source", "api"]);
        assert_eq!(lines[5][..2], ["old", "left"]);
        assert_eq!(shown.lines().last(), Some("1 created, 1 changed, 0 removed, 2 unchanged, 1 left"));
    }
}
