//! Crontabs as tasks.
//!
//! Every line is accounted for: it became a task, it changed the environment of those below it, it is a comment or blank, or a note says
//! why it was not carried over. Bad lines do not keep the good ones from being imported.
//!
//! What cron does, the tasks do: runs may overlap, nothing is caught up, nothing is retried or run twice.

mod line;
mod name;

use std::collections::BTreeMap;
use std::path::Path;

use punctual_core::limits::MAX_RUNNING_MAX;
use serde::Serialize;

use crate::choice::choices;
use crate::handler::{CommandConfig, Program};
use crate::problem::{Code, quoted};
use crate::spec::{Concurrency, CronTrigger, Handler, Misfire, MisfireAction, TaskSpec, Trigger};
use crate::zones::Zones;
use line::{Entry, Parsed};

choices! {
    /// Whose crontab it is.
    Kind {
        /// A user's own, as `crontab -l` prints it.
        User = "user",
        /// `/etc/crontab` or a file in `cron.d`: a column names the user.
        System = "system",
    }
}

impl Kind {
    /// What a file of this name holds: `/etc/crontab` and what is in a folder `cron.d` are the system's.
    pub fn of(path: &Path) -> Kind {
        let in_cron_d = path.parent().is_some_and(|folder| folder.ends_with("cron.d"));
        if path.ends_with("etc/crontab") || in_cron_d { Kind::System } else { Kind::User }
    }
}

choices! {
    /// How much a note matters.
    Severity {
        /// Good to know.
        Info = "info",
        /// Carried over, with a difference.
        Warning = "warning",
        /// Not carried over.
        Error = "error",
    }
}

/// Something to know about the import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The line, counted from 1; 0 for the whole file.
    pub line: usize,
    /// How much it matters.
    pub severity: Severity,
    /// What it is.
    pub text: String,
}

/// What a line was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The task with this number, counted from 0.
    Task(usize),
    /// It sets a variable for the lines below it; where it could not be carried over there is a note.
    Environment,
    /// A comment.
    Comment,
    /// Nothing.
    Blank,
    /// Not carried over; there is a note.
    Noted,
}

/// A crontab, imported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// The tasks, in the order of the file.
    pub tasks: Vec<TaskSpec>,
    /// What there is to know, in the order of the file.
    pub notes: Vec<Note>,
    /// What each line of the file was taken for.
    pub lines: Vec<Line>,
}

impl Import {
    /// Whether some line could not be carried over.
    pub fn has_errors(&self) -> bool {
        self.notes.iter().any(|note| note.severity == Severity::Error)
    }

    /// The task file.
    pub fn to_yaml(&self, file: &str) -> String {
        let mut header = vec![
            format!("Imported from the crontab {file}."),
            "As under cron, runs may overlap, nothing is caught up or retried, and nothing is run twice. Change `defaults:` for better."
                .to_owned(),
        ];
        for note in &self.notes {
            let place = if note.line == 0 { String::new() } else { format!("line {}: ", note.line) };
            header.push(format!("{place}{}", note.text));
        }
        crate::emit::to_yaml(&self.tasks, &header)
    }
}

/// How to import.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file's name; names of tasks begin with its last part.
    pub file: String,
    /// Whose it is.
    pub kind: Kind,
    /// The zone of lines that no CRON_TZ precedes.
    pub timezone: String,
}

/// Imports a crontab.
pub fn import(bytes: &[u8], options: &Options, zones: &Zones) -> Import {
    let mut importer = Importer {
        options,
        zones,
        import: Import::default(),
        environment: BTreeMap::new(),
        timezone: Some(options.timezone.clone()),
        names_zone: false,
        comments: Vec::new(),
        candidates: Vec::new(),
    };
    importer.file(bytes);
    importer.import
}

/// A line that will be a task once names are known.
struct Candidate {
    line: usize,
    spec: TaskSpec,
}

struct Importer<'a> {
    options: &'a Options,
    zones: &'a Zones,
    import: Import,
    environment: BTreeMap<String, String>,
    /// The zone in force; `None` after a CRON_TZ that names none.
    timezone: Option<String>,
    /// Whether a CRON_TZ is in force.
    names_zone: bool,
    /// The comments right above.
    comments: Vec<String>,
    candidates: Vec<Candidate>,
}

/// More comment lines than this above a line are a heading, not its description.
const DESCRIPTION_LINES_MAX: usize = 3;

impl Importer<'_> {
    fn file(&mut self, bytes: &[u8]) {
        let marked = bytes.strip_prefix("\u{feff}".as_bytes());
        if marked.is_some() {
            self.note(1, Severity::Info, "a byte order mark in front was passed over");
        }
        let bytes = marked.unwrap_or(bytes);
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        if lines.last().is_some_and(|last| last.is_empty()) {
            lines.pop();
        } else {
            self.note(lines.len(), Severity::Info, "the last line has no line end, which cron would refuse; it was read all the same");
        }
        let mut has_carriage_returns = false;
        for (index, line) in lines.into_iter().enumerate() {
            let stripped = line.strip_suffix(b"\r");
            if stripped.is_some() && !std::mem::replace(&mut has_carriage_returns, true) {
                let text = "lines end in CR LF; the CR was removed, cron would pass it to the command";
                self.note(index + 1, Severity::Info, text);
            }
            let what = self.line(index + 1, stripped.unwrap_or(line));
            self.import.lines.push(what);
        }
        self.name_tasks();
        self.general_notes();
        self.import.notes.sort_by_key(|note| note.line);
    }

    fn note(&mut self, line: usize, severity: Severity, text: impl Into<String>) {
        self.import.notes.push(Note { line, severity, text: text.into() });
    }

    fn refuse(&mut self, line: usize, text: impl AsRef<str>) -> Line {
        self.note(line, Severity::Error, format!("{}: {}", Code::CrontabLine, text.as_ref()));
        self.comments.clear();
        Line::Noted
    }

    fn line(&mut self, number: usize, bytes: &[u8]) -> Line {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return self.refuse(number, "the line is not UTF-8");
        };
        if text.contains('\0') {
            return self.refuse(number, "the line has a zero character");
        }
        match line::parse(text, self.options.kind) {
            Ok(Parsed::Blank) => {
                self.comments.clear();
                Line::Blank
            }
            Ok(Parsed::Comment(text)) => {
                self.comments.push(text.to_owned());
                Line::Comment
            }
            Ok(Parsed::Variable { name, value }) => {
                self.comments.clear();
                self.variable(number, name, value);
                Line::Environment
            }
            Ok(Parsed::Entry(entry)) => self.entry(number, &entry),
            Err(reason) => self.refuse(number, reason),
        }
    }

    fn variable(&mut self, number: usize, name: String, value: String) {
        match name.as_str() {
            "CRON_TZ" => self.zone(number, value),
            "MAILTO" | "MAILFROM" => {
                let text = format!("{name} is not carried over: output is kept with each run and shown there, it is not mailed");
                self.note(number, Severity::Warning, text);
            }
            "LOGNAME" | "USER" => {
                self.note(number, Severity::Warning, format!("{name} is not carried over: cron does not let it be set either"));
            }
            "RANDOM_DELAY" | "START_HOURS_RANGE" => {
                self.note(number, Severity::Warning, format!("{name} is not carried over: tasks start at their time"));
            }
            _ => {
                if name == "TZ" {
                    let text = "TZ is kept for the commands alone, as cron does; CRON_TZ or --tz sets the zone of the schedule";
                    self.note(number, Severity::Info, text);
                }
                self.environment.insert(name, value);
            }
        }
    }

    fn zone(&mut self, number: usize, value: String) {
        self.names_zone = !value.is_empty();
        if value.is_empty() {
            self.timezone = Some(self.options.timezone.clone());
            return;
        }
        self.timezone = match self.zones.check(&value) {
            Ok(()) => Some(value),
            Err(finding) => {
                let help = finding.help.map(|help| format!(" ({help})")).unwrap_or_default();
                self.refuse(number, format!("CRON_TZ: {}{help}", finding.message));
                None
            }
        };
    }

    fn entry(&mut self, number: usize, entry: &Entry<'_>) -> Line {
        let comments = std::mem::take(&mut self.comments);
        if entry.schedule == "@reboot" {
            return self.refuse(number, "@reboot is not carried over: tasks fire at times; start such a command with the system");
        }
        let Some(timezone) = self.timezone.clone() else {
            return self.refuse(number, "the CRON_TZ above names no time zone, so nobody knows when this is to fire");
        };
        let mut environment = self.environment.clone();
        let working_directory = environment.get("HOME").filter(|home| !home.trim().is_empty()).cloned();
        environment.retain(|name, _| name != "LOGNAME");
        if self.options.kind == Kind::User && entry.command.split_ascii_whitespace().next() == Some("root") {
            let text = "the command begins with `root`: for a system crontab import again with --system";
            self.note(number, Severity::Warning, text);
        }
        let config = CommandConfig {
            program: Program::Shell(entry.command.clone()),
            env: environment,
            working_directory,
            stdin: entry.stdin.clone(),
            user: entry.user.map(str::to_owned),
            success_codes: vec![0],
        };
        let trigger = CronTrigger { timezone, ..CronTrigger::new(entry.schedule.clone()) };
        let mut spec = TaskSpec::new("imported", Trigger::Cron(trigger), Handler::Command(config));
        spec.description = self.description(&comments);
        spec.misfire = Misfire { action: MisfireAction::Skip, limit: None, deadline: None, rate: None };
        spec.concurrency = Concurrency { max_running: MAX_RUNNING_MAX, ..Concurrency::default() };
        spec.idempotent = false;
        spec.normalise();
        if let Err(findings) = spec.to_definition(self.zones) {
            let hint = line::extension_hint(&entry.schedule).unwrap_or_default();
            let reasons: Vec<String> = findings.iter().map(|finding| finding.message.clone()).collect();
            return self.refuse(number, format!("{}{hint}", reasons.join("; ")));
        }
        self.candidates.push(Candidate { line: number, spec });
        Line::Task(self.candidates.len() - 1)
    }

    /// The comments right above, unless they are a heading, the usual row of column names, or a line that was switched off.
    fn description(&self, comments: &[String]) -> Option<String> {
        let is_columns = |text: &str| {
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            words.starts_with(&["m", "h"]) || words.starts_with(&["min", "hour"])
        };
        let is_entry = |text: &str| matches!(line::parse(text, self.options.kind), Ok(Parsed::Entry(_) | Parsed::Variable { .. }));
        let lines: Vec<&str> = comments.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        if lines.is_empty() || lines.len() > DESCRIPTION_LINES_MAX || lines.iter().any(|text| is_columns(text) || is_entry(text)) {
            return None;
        }
        let text: String = lines.join("\n").chars().filter(|c| !c.is_control() || *c == '\n').collect();
        Some(text.chars().take(crate::limits::DESCRIPTION_CHARS_MAX).collect())
    }

    fn name_tasks(&mut self) {
        let candidates = std::mem::take(&mut self.candidates);
        let names = name::names(&self.options.file, &candidates);
        for (candidate, name) in candidates.into_iter().zip(names) {
            self.import.tasks.push(TaskSpec { name, ..candidate.spec });
        }
    }

    fn general_notes(&mut self) {
        if self.import.tasks.is_empty() {
            self.note(0, Severity::Warning, "no line of the file became a task");
            return;
        }
        let in_default_zone = |task: &TaskSpec| matches!(&task.trigger, Trigger::Cron(cron) if cron.timezone == self.options.timezone);
        if !self.names_zone && self.import.tasks.iter().any(in_default_zone) {
            let text = format!(
                "lines with no CRON_TZ above are read in the zone {}; cron uses the machine's zone: name another with --tz",
                quoted(&self.options.timezone)
            );
            self.note(0, Severity::Info, text);
        }
        let text = "cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; \
                    here they start where and as the worker does, with what the crontab sets added";
        self.note(0, Severity::Info, text);
    }
}
