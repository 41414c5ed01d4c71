//! `rehearse`: a user's task file in the world, with a report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use punctual_sim::files::{self, Target};
use punctual_sim::plan::{Family, Shape};
use punctual_sim::problems::{SCHEDULERS_MAX, SLOTS_MAX, STARTS_AT_MAX, WORKERS_MAX};
use punctual_sim::rehearsal::{HOURS_MAX, Options, families_of, plan_of};
use punctual_sim::report::{Class, Report};
use punctual_sim::trial::{Trial, World};
use punctual_sim::workload::zones;
use punctual_spec::file::read_file;

use crate::cli::limits::up_to;
use crate::cli::output::{complain, print};
use crate::cli::{REFUSED, refused};

/// Most partitions that a rehearsal asks for.
const PARTITIONS_MAX: u64 = 1_024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 every promise held; 2 wrong usage, or a file that was refused; 10 something happened that must never \
    happen; 11 something that must come did not; 12 the simulated world crashed; 13 the same seed gave two different runs. \
    docs/rehearsal.md explains the findings."
)]
pub(super) struct Arguments {
    /// The task file; `-` is the standard input.
    file: PathBuf,
    /// What everything is drawn from: the same number, file and options give the same run.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How long things go wrong.
    #[arg(long, default_value_t = 24, value_parser = up_to(HOURS_MAX))]
    hours: u64,
    /// What goes wrong: families of faults with commas between them, all, or none.
    #[arg(long, value_name = "FAMILIES", value_parser = families)]
    faults: Option<Families>,
    /// Scheduler replicas.
    #[arg(long, default_value_t = 3, value_parser = up_to(SCHEDULERS_MAX))]
    schedulers: u64,
    /// Workers.
    #[arg(long, default_value_t = 4, value_parser = up_to(WORKERS_MAX))]
    workers: u64,
    /// Attempts that a worker runs at once.
    #[arg(long, default_value_t = 16, value_parser = up_to(SLOTS_MAX))]
    slots: u64,
    /// Partitions of the store.
    #[arg(long, default_value_t = 16, value_parser = up_to(PARTITIONS_MAX))]
    partitions: u64,
    /// When it begins, by the wall clock: 2026-10-24T12:00:00Z begins before a night of daylight saving.
    #[arg(long, value_name = "INSTANT", value_parser = start)]
    start: Option<Timestamp>,
    /// Writes the report as one page of HTML into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes the plan into this file.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    json: bool,
    /// Runs it twice, and compares the two runs.
    #[arg(long)]
    twice: bool,
}

#[derive(Clone, Debug)]
struct Families(BTreeSet<Family>);

fn families(list: &str) -> Result<Families, String> {
    families_of(list).map(Families).map_err(|error| error.to_string())
}

fn start(text: &str) -> Result<Timestamp, String> {
    let example = "such as 2026-10-24T12:00:00Z";
    let instant: Timestamp = text.parse().map_err(|error| format!("{error}; an instant is wanted, {example}"))?;
    let latest = Timestamp::from_millisecond(STARTS_AT_MAX).unwrap_or(Timestamp::MAX);
    if instant < Timestamp::UNIX_EPOCH || instant > latest {
        return Err(format!("it must be 1970-01-01T00:00:00Z or later, and {latest} at most, {example}"));
    }
    Ok(instant)
}

impl Arguments {
    fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            seed: self.seed,
            hours: self.hours,
            families: self.faults.clone().map_or(usual.families, |Families(families)| families),
            shape: Shape {
                // All of them are small: see the limits above.
                schedulers: self.schedulers as usize,
                workers: self.workers as usize,
                slots: self.slots as u32,
                partitions: self.partitions as u16,
            },
            starts_at: self.start.map_or(usual.starts_at, Timestamp::as_millisecond),
        }
    }
}

/// Where the report and the plan go besides the standard output.
struct Targets {
    html: Option<Target>,
    plan: Option<Target>,
}

impl Arguments {
    /// Looked at before the work begins: the places can be written to, and none of them is another one's.
    fn targets(&self) -> Result<Targets, String> {
        let target = |flag: &str, path: &Option<PathBuf>| match path {
            Some(path) => Target::new(path).map(Some).map_err(|error| format!("{flag} {}: {error}", path.display())),
            None => Ok(None),
        };
        let targets = Targets { html: target("--html", &self.html)?, plan: target("--plan", &self.plan)? };
        for (flag, target) in [("--html", &targets.html), ("--plan", &targets.plan)] {
            if let Some(target) = target
                && target.is(&self.file)
            {
                return Err(format!("{flag} {}: that is the task file itself", target.path().display()));
            }
        }
        match (&targets.html, &targets.plan) {
            (Some(html), Some(plan)) if html.is_same(plan) => {
                Err(format!("--html and --plan name the same file, {}", html.path().display()))
            }
            _ => Ok(targets),
        }
    }
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    match rehearse(arguments, world) {
        Ok(code) => code,
        Err(message) => refused(&message),
    }
}

fn rehearse(arguments: &Arguments, world: World) -> Result<u8, String> {
    let options = arguments.options();
    if arguments.file != Path::new("-") {
        files::must_be_ordinary(&arguments.file).map_err(|error| format!("{}: {error}", arguments.file.display()))?;
    }
    let targets = arguments.targets()?;
    let file = read_file(&arguments.file, zones()).map_err(|problems| problems.to_string())?;
    let plan = plan_of(&file.tasks, &options);
    let unwritten = |target: &Target, error| format!("{} can't be written: {error}", target.path().display());
    if let Some(target) = &targets.plan {
        let text = serde_json::to_string_pretty(&plan).map_err(|error| error.to_string())?;
        target.write(&(text + "\n")).map_err(|error| unwritten(target, error))?;
    }
    let trial = Trial::of(world, &plan, &[]);
    let name = arguments.file.display().to_string();
    let mut report = Report::judged(&plan, &trial.history, &trial.judgements).about(&name, options.command(&name));
    if let Some(words) = &trial.crash {
        report = report.crashed(words);
    } else if arguments.twice && Trial::of(world, &plan, &[]).history.digest() != trial.history.digest() {
        report = report.nondeterministic();
    }
    print(&if arguments.json { format!("{}\n", report.to_json()) } else { report.to_text() });
    let page = targets.html.as_ref().map(|target| target.write(&report.to_html()).map_err(|error| unwritten(target, error)));
    // Whatever becomes of the page, the report was printed, and what it says counts more.
    match (report.class, page) {
        (class, Some(Err(message))) => {
            complain(&message);
            Ok(if class == Class::Held { REFUSED } else { class.exit_code() })
        }
        (class, _) => Ok(class.exit_code()),
    }
}
