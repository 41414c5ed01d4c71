//! `punctual logs`: what the attempts of an instance wrote, and what they write.
//!
//! Without any choice of lines it prints what an ended attempt wrote as it wrote it: the output that is kept with the attempt, or its lines
//! where they have more of it. With a choice, or while it follows, it prints lines.

use std::io::IsTerminal;
use std::time::Duration;

use punctual_driver::logs::buffer::CUT_MARK;
use serde_json::{Value, json};

use super::Exit;
use super::ask::field;
use super::client::{ApiArgs, Client, ClientError};
use super::output::Output;
use super::remote::{pretty, text};

#[derive(clap::Args, Debug)]
pub(crate) struct LogsArgs {
    /// The instance's id, such as 43-17
    #[arg(required_unless_present = "task")]
    id: Option<String>,
    /// The newest instance of this task instead
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    task: Option<String>,
    /// Goes on printing lines as they come, until the instance has ended
    #[arg(long, short)]
    follow: bool,
    /// Of this attempt only
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "NUMBER")]
    attempt: Option<u32>,
    /// Lines that matter at least so much: trace, debug, info, warn, error
    #[arg(long, value_parser = ["trace", "debug", "info", "warn", "error"], value_name = "LEVEL")]
    level: Option<String>,
    /// Lines that have this text in them
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// The last so many lines only
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000), value_name = "COUNT")]
    tail: Option<u32>,
    /// Print before each line when it was written, and how much it matters
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// How soon a stream that has ended is asked for again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often in a row nothing may answer, while it follows.
const TRIES: u32 = 120;

impl LogsArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                output.remark(error);
                return Exit::Found;
            }
        };
        match runtime.block_on(self.print(output)) {
            Ok(()) => Exit::Done,
            Err(error) => {
                if self.api.json {
                    output.json(&json!({ "error": error.to_json() }));
                }
                let exit = error.exit();
                output.remark(error);
                exit
            }
        }
    }

    async fn print(&self, output: &mut Output) -> Result<(), ClientError> {
        let client = Client::new(&self.api);
        let id = self.instance(&client).await?;
        let mut printer = Lines { to_terminal: std::io::stdout().is_terminal(), ..Lines::default() };
        printer.timestamps = self.timestamps;
        printer.as_json = self.api.json;
        let mut query = self.query();
        query.push(("limit", self.tail.unwrap_or(1_000).to_string()));
        if self.tail.is_some() {
            query.push(("newest", "true".to_owned()));
        }
        let mut page = client.get(&["instances", &id, "logs"], &query).await?;
        if self.follow {
            let mut last = None;
            loop {
                for line in page["lines"].as_array().into_iter().flatten() {
                    last = line["cursor"].as_str().map(str::to_owned).or(last);
                    printer.line(line, output);
                }
                output.flush();
                let Some(next) = page["next"].as_str().filter(|_| self.tail.is_none()) else { break };
                let behind = [query.clone(), vec![("after", next.to_owned())]].concat();
                page = client.get(&["instances", &id, "logs"], &behind).await?;
            }
            return self.follow(&client, &id, last, printer, output).await;
        }
        // All of it, page by page.
        let mut lines = page["lines"].as_array().cloned().unwrap_or_default();
        let mut next = page["next"].take();
        while let Some(after) = next.as_str().filter(|_| self.tail.is_none()) {
            let behind = [query.clone(), vec![("after", after.to_owned())]].concat();
            let mut more = client.get(&["instances", &id, "logs"], &behind).await?;
            lines.extend(more["lines"].as_array().cloned().unwrap_or_default());
            next = more["next"].take();
        }
        if self.api.json {
            page["lines"] = Value::Array(lines);
            output.line(pretty(&page));
            return Ok(());
        }
        let outputs = page["outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_chosen = self.level.is_some() || self.grep.is_some() || self.tail.is_some() || self.timestamps;
        match is_chosen {
            true => lines.iter().for_each(|line| printer.line(line, output)),
            false => printer.attempts(outputs, &lines, output),
        }
        Ok(())
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        let attempt = self.attempt.map(|attempt| ("attempt", attempt.to_string()));
        let level = self.level.clone().map(|level| ("level", level));
        let grep = self.grep.clone().map(|text| ("text", text));
        [attempt, level, grep].into_iter().flatten().collect()
    }

    async fn instance(&self, client: &Client) -> Result<String, ClientError> {
        let Some(task) = &self.task else { return Ok(self.id.clone().unwrap_or_default()) };
        let found = client.get(&["instances"], &[("task", task.clone()), ("limit", "1".to_owned())]).await?;
        match found["instances"][0]["id"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Err(ClientError::Unfit { field: "--task", problem: "it has no instance yet: trigger it, or wait for its fire time" }),
        }
    }

    /// Streams end after a while, also with their replica: it goes on behind the last line.
    async fn follow(
        &self,
        client: &Client,
        id: &str,
        mut last: Option<String>,
        mut printer: Lines,
        output: &mut Output,
    ) -> Result<(), ClientError> {
        let mut failures = 0;
        loop {
            let after = last.clone().map(|after| ("after", after));
            let query: Vec<_> = self.query().into_iter().chain(after).collect();
            let ended = client
                .events(&["instances", id, "logs", "stream"], &query, |kind, data| {
                    failures = 0;
                    if kind == "line" {
                        last = data["cursor"].as_str().map(str::to_owned).or(last.take());
                        printer.line(&data, output);
                        // Who reads along waits for it.
                        output.flush();
                    }
                    kind != "end" && !output.has_failed()
                })
                .await;
            match ended {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.is_passing() && failures < TRIES => failures += 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Prints lines.
#[derive(Default)]
struct Lines {
    timestamps: bool,
    as_json: bool,
    to_terminal: bool,
    /// The attempt of the last line.
    attempt: Option<u64>,
}

impl Lines {
    /// What each attempt wrote, where several did with a title before it.
    fn attempts(&mut self, outputs: &[Value], lines: &[Value], output: &mut Output) {
        let of = |value: &Value| value["attempt"].as_u64().unwrap_or_default();
        let mut numbers: Vec<u64> = outputs.iter().chain(lines).map(of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            if numbers.len() > 1 {
                output.line(format_args!("--- attempt {number}"));
            }
            let kept = outputs.iter().find(|output| of(output) == *number);
            let of_attempt: Vec<_> = lines.iter().filter(|line| of(line) == *number).collect();
            match kept {
                Some(kept) if !have_more(&of_attempt, kept) => self.output(kept, output),
                _ => {
                    // There is a title already.
                    self.attempt = Some(*number);
                    of_attempt.into_iter().for_each(|line| self.line(line, output));
                }
            }
        }
    }

    fn output(&self, kept: &Value, output: &mut Output) {
        let mut shown: String = self.shown(kept["output"].as_str().unwrap_or_default(), true);
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        output.text(&shown);
        if let Some(dropped) = kept["dropped_bytes"].as_u64().filter(|dropped| *dropped > 0) {
            output.line(format_args!("--- {dropped} bytes in between were dropped"));
        }
    }

    fn line(&mut self, line: &Value, output: &mut Output) {
        if self.as_json {
            return output.line(line);
        }
        let attempt = line["attempt"].as_u64();
        if self.attempt.is_some() && self.attempt != attempt {
            output.line(format_args!("--- attempt {}", text(&line["attempt"])));
        }
        self.attempt = attempt;
        let message = self.shown(line["message"].as_str().unwrap_or_default(), false);
        if line["dropped"].as_u64() > Some(0) {
            output.line(format_args!("--- {message}"));
        } else if self.timestamps {
            output.line(format_args!("{:<29}  {:<5}  {message}", field(line, "at"), text(&line["level"])));
        } else {
            output.line(message);
        }
    }

    /// Nothing that could write to the terminal; all of it to a file.
    fn shown(&self, text: &str, with_lines: bool) -> String {
        let is_shown =
            |character: &char| !self.to_terminal || !character.is_control() || *character == '\t' || (with_lines && *character == '\n');
        text.chars().filter(is_shown).collect()
    }
}

/// Whether the lines of an attempt have more than the output that was kept of it: where some are missing they say so in their places, which the
/// output can't. They come on a way of their own, so the last ones may still be under way.
fn have_more(lines: &[&Value], kept: &Value) -> bool {
    let message = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
    let is_uncut = |line: &&Value| !message(line).ends_with(CUT_MARK);
    let bytes: usize = lines.iter().filter(|line| line["dropped"] == 0).map(|line| message(line).len() + 1).sum();
    let written = kept["output"].as_str().unwrap_or_default().trim_end_matches('\n');
    let are_all_there = lines.last().is_some_and(|last| written.ends_with(message(last).trim_end_matches('\n')));
    kept["dropped_bytes"].as_u64() > Some(0) && are_all_there && bytes > written.len() && lines.iter().all(is_uncut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_for_an_output_that_was_cut_where_they_are_whole() {
        let line = |message: &str| json!({ "message": message, "dropped": 0 });
        let kept = |output: &str, dropped: u64| json!({ "output": output, "dropped_bytes": dropped });
        let lines = [line("one"), line("two"), line("three")];
        let of = |lines: &[Value], kept: &Value| have_more(&lines.iter().collect::<Vec<_>>(), kept);
        assert!(of(&lines, &kept("one\nthree\n", 4)));
        assert!(!of(&lines, &kept("one\ntwo\nthree\n", 0)), "the output has all");
        assert!(!of(&lines[..2], &kept("one\nthree\n", 4)), "the last line is under way");
        assert!(!of(&[], &kept("one\n", 4)));
        let notice = json!({ "message": "3 lines were dropped here", "dropped": 3 });
        assert!(!of(&[notice.clone(), line("three")], &kept("one\nthree\n", 4)), "the output has more");
        assert!(of(&[line("one"), notice, line("two"), line("three")], &kept("one\nthree\n", 40)), "what is missing is told in its place");
        assert!(!of(&[line(&format!("one{CUT_MARK}")), line("three")], &kept("one\nthree\n", 4)));
    }
}
