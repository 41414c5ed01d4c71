//! `punctual cron explain`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use punctual_core::cron::{Mark, Occurrence};
use punctual_core::time::Timestamp;
use punctual_spec::choice::Choice;
use punctual_spec::compile;
use punctual_spec::problem::Finding;
use punctual_spec::spec::{CronTrigger, Dialect, Gap, Overlap};
use punctual_spec::zones::Zones;
use serde::Serialize;
use serde_json::json;

use super::{Exit, Output};

mod task;

/// What to do with an expression.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: CronCommand,
}

#[derive(clap::Subcommand)]
enum CronCommand {
    /// Say in words what an expression means, and when it fires next.
    Explain(ExplainArgs),
}

#[derive(clap::Args)]
struct ExplainArgs {
    /// Five, six or seven fields, or a word such as @daily.
    #[arg(value_name = "EXPR", allow_hyphen_values = true, required_unless_present = "task")]
    expression: Option<String>,
    /// A task of a task file in place of an expression: its window, calendar, blackouts and jitter count, and what they leave out is shown.
    #[arg(long, value_names = ["FILE", "NAME"], num_args = 2, conflicts_with_all = ["expression", "timezone", "dialect", "gap", "overlap"])]
    task: Option<Vec<String>>,
    /// The IANA name of the time zone.
    #[arg(long = "tz", value_name = "ZONE", default_value = "UTC")]
    timezone: String,
    /// How to read the fields; by their number where it is left out.
    #[arg(long, value_parser = choice::<Dialect>())]
    dialect: Option<Dialect>,
    /// Fire times after this instant, such as 2026-11-01T00:00:00Z; the present where it is left out.
    #[arg(long, value_name = "INSTANT")]
    after: Option<jiff::Timestamp>,
    /// How many fire times.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// For wall times that do not exist.
    #[arg(long, default_value = "after_gap", value_parser = choice::<Gap>())]
    gap: Gap,
    /// For wall times that come twice.
    #[arg(long, default_value = "first", value_parser = choice::<Overlap>())]
    overlap: Overlap,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Reads one of the names of a choice.
fn choice<C: Choice + Send + Sync>() -> impl TypedValueParser<Value = C> {
    let names = C::ALL.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(|name| C::from_name(&name).ok_or("not one of the names"))
}

impl Args {
    pub(crate) fn run(self, output: &mut Output) -> Exit {
        match self.command {
            CronCommand::Explain(args) => args.run(output),
        }
    }
}

impl ExplainArgs {
    fn run(self, output: &mut Output) -> Exit {
        let zones = Zones::load();
        let after = self.after.map_or_else(present, |after| Timestamp(floor_millis(after)));
        if let Some([file, name]) = self.task.as_deref() {
            return task::explain(Path::new(file), name, after, self.count as usize, self.json, &zones, output);
        }
        let expression = self.expression.unwrap_or_default();
        let mut trigger =
            CronTrigger { cron: expression, timezone: self.timezone, dialect: self.dialect, gap: self.gap, overlap: self.overlap };
        trigger.normalise();
        let schedule = match compile::schedule(&trigger, &zones) {
            Ok(schedule) => schedule,
            Err(findings) => return refuse(&findings, self.json, output),
        };
        let occurrences = schedule.explain(after, self.count as usize);
        let description = schedule.expression().describe();
        if self.json {
            output.json(&Explanation {
                expression: &trigger.cron,
                dialect: schedule.expression().dialect().to_string(),
                timezone: &trigger.timezone,
                tzdata: zones.version(),
                description,
                next: occurrences.iter().map(|occurrence| occurrence.at.to_string()).collect(),
                occurrences: occurrences.iter().map(Fire::of).collect(),
            });
            return Exit::Done;
        }
        output.line(format_args!("{}  in {} (tzdata {})", trigger.cron, trigger.timezone, zones.version()));
        output.line(format_args!("{description}\n"));
        if occurrences.is_empty() {
            output.line(format_args!("never after {after}"));
            return Exit::Done;
        }
        output.line(format_args!("{:<24}{:<11}UTC", "local time", "offset"));
        occurrences.iter().for_each(|occurrence| output.line(row(occurrence)));
        Exit::Done
    }
}

/// Says why on the standard error, and in JSON where that is wanted.
fn refuse(findings: &[Finding], json: bool, output: &mut Output) -> Exit {
    for finding in findings {
        output.remark(format_args!("{}: {}", finding.code, finding.message));
        if let Some(help) = &finding.help {
            output.remark(format_args!("    {help}"));
        }
    }
    if let (true, Some(first)) = (json, findings.first()) {
        output.json(&json!({ "error": { "code": first.code.as_str(), "message": first.message, "help": first.help } }));
    }
    Exit::Refused
}

fn present() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Whole milliseconds, rounded down also before 1970.
fn floor_millis(instant: jiff::Timestamp) -> i64 {
    i64::try_from(instant.as_nanosecond().div_euclid(1_000_000)).unwrap_or(i64::MAX)
}

fn row(occurrence: &Occurrence) -> String {
    let local = occurrence.local.strftime("%a %Y-%m-%d %H:%M:%S").to_string();
    let line = format!("{local:<24}{:<11}{}  {}", offset(occurrence), occurrence.at, occurrence.mark);
    line.trim_end().to_owned()
}

pub(crate) fn offset(occurrence: &Occurrence) -> String {
    let seconds = occurrence.offset.seconds();
    let (sign, magnitude) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
    let text = format!("{sign}{:02}:{:02}", magnitude / 3_600, magnitude / 60 % 60);
    if magnitude.is_multiple_of(60) { text } else { format!("{text}:{:02}", magnitude % 60) }
}

/// The answer as JSON.
#[derive(Serialize)]
struct Explanation<'a> {
    expression: &'a str,
    dialect: String,
    timezone: &'a str,
    tzdata: &'a str,
    description: String,
    next: Vec<String>,
    occurrences: Vec<Fire>,
}

/// One fire time as JSON.
#[derive(Serialize)]
struct Fire {
    utc: String,
    local: String,
    offset: String,
    mark: &'static str,
}

impl Fire {
    fn of(occurrence: &Occurrence) -> Fire {
        let mark = match occurrence.mark {
            Mark::Normal => "normal",
            Mark::AfterGap => "after_gap",
            Mark::ShiftedFromGap => "shifted_from_gap",
            Mark::FirstPass => "first_pass",
            Mark::SecondPass => "second_pass",
            Mark::DayOfTransition => "day_of_transition",
        };
        Fire { utc: occurrence.at.to_string(), local: occurrence.local.to_string(), offset: offset(occurrence), mark }
    }
}
