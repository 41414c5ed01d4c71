//! `punctual import`.

use std::path::{Path, PathBuf};

use punctual_spec::crontab::{self, Kind, Note, Options};
use punctual_spec::file::read_bytes;
use punctual_spec::problem::Code;
use punctual_spec::spec::TaskSpec;
use punctual_spec::zones::Zones;
use serde::Serialize;
use serde_json::json;

use super::{Exit, Output};

/// What to import.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ImportCommand,
}

#[derive(clap::Subcommand)]
enum ImportCommand {
    /// Turn a crontab into a task file, on the standard output. Nothing else is written: applying the file is up to you.
    Crontab(CrontabArgs),
}

#[derive(clap::Args)]
struct CrontabArgs {
    /// The crontab; `-` is the standard input.
    file: PathBuf,
    /// It is a system crontab, with a column for the user. So are /etc/crontab and what is in a folder cron.d.
    #[arg(long, conflicts_with = "user")]
    system: bool,
    /// It is a user's own crontab.
    #[arg(long)]
    user: bool,
    /// The time zone of lines that no CRON_TZ precedes.
    #[arg(long = "tz", value_name = "ZONE", default_value = "UTC")]
    timezone: String,
    /// Print tasks and notes as JSON.
    #[arg(long)]
    json: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    tasks: &'a [TaskSpec],
    notes: &'a [Note],
}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        match self.command {
            ImportCommand::Crontab(args) => args.run(output),
        }
    }
}

impl CrontabArgs {
    fn run(self, output: &mut Output) -> Exit {
        let zones = Zones::load();
        let file = if self.file == Path::new("-") { "crontab".to_owned() } else { self.file.display().to_string() };
        if let Err(finding) = zones.check(&self.timezone) {
            let help = finding.help.map(|help| format!(" ({help})")).unwrap_or_default();
            return refuse(finding.code, &format!("--tz: {}{help}", finding.message), self.json, output);
        }
        let bytes = match read_bytes(&self.file) {
            Ok(bytes) => bytes,
            Err(error) => return refuse(Code::Unreadable, &format!("{file}: {error}"), self.json, output),
        };
        let kind = match (self.system, self.user) {
            (true, _) => Kind::System,
            (_, true) => Kind::User,
            _ => Kind::of(&self.file),
        };
        let import = crontab::import(&bytes, &Options { file: file.clone(), kind, timezone: self.timezone }, &zones);
        if self.json {
            output.json(&Report { tasks: &import.tasks, notes: &import.notes });
        } else {
            output.text(&import.to_yaml(&file));
        }
        for note in &import.notes {
            let place = if note.line == 0 { String::new() } else { format!(":{}", note.line) };
            output.remark(format_args!("{file}{place}: {}: {}", punctual_spec::choice::Choice::name(note.severity), note.text));
        }
        if import.has_errors() || import.tasks.is_empty() { Exit::Found } else { Exit::Done }
    }
}

fn refuse(code: Code, message: &str, json: bool, output: &mut Output) -> Exit {
    output.remark(format_args!("{code}: {message}"));
    if json {
        output.json(&json!({ "error": { "code": code.as_str(), "message": message } }));
    }
    Exit::Refused
}
