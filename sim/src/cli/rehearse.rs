//! `rehearse`: a user's task file in the world, with a report.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use jiff::Timestamp;
use punctual_sim::plan::{Family, Shape};
use punctual_sim::rehearsal::{HOURS_MAX, Options, families_of, plan_of};
use punctual_sim::report::Report;
use punctual_sim::trial::{Trial, World};
use punctual_sim::workload::zones;
use punctual_spec::file::read_file;

/// Wrong usage, or input that was refused.
const REFUSED: u8 = 2;

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
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=HOURS_MAX))]
    hours: u64,
    /// What goes wrong: families of faults with commas between them, or none.
    #[arg(long, value_name = "FAMILIES", value_parser = families)]
    faults: Option<Families>,
    /// Scheduler replicas.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    schedulers: u16,
    /// Workers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=999))]
    workers: u16,
    /// Attempts that a worker runs at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slots: u32,
    /// Partitions of the store.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    partitions: u16,
    /// When it begins, by the wall clock: 2026-10-24T12:00:00Z begins before a night of daylight saving.
    #[arg(long, value_name = "INSTANT")]
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

impl Arguments {
    fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            seed: self.seed,
            hours: self.hours,
            families: self.faults.clone().map_or(usual.families, |Families(families)| families),
            shape: Shape {
                schedulers: usize::from(self.schedulers),
                workers: usize::from(self.workers),
                slots: self.slots,
                partitions: self.partitions,
            },
            starts_at: self.start.map_or(usual.starts_at, Timestamp::as_millisecond),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match rehearse(arguments) {
        Ok(report) => ExitCode::from(report.class.exit_code()),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(REFUSED)
        }
    }
}

fn rehearse(arguments: &Arguments) -> Result<Report, String> {
    let options = arguments.options();
    let file = read_file(&arguments.file, zones()).map_err(|problems| problems.to_string())?;
    let plan = plan_of(&file.tasks, &options);
    let write = |path: &PathBuf, text: String| std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()));
    if let Some(path) = &arguments.plan {
        write(path, serde_json::to_string_pretty(&plan).map_err(|error| error.to_string())?)?;
    }
    let trial = Trial::of(World::Rehearsal, &plan, &[]);
    let name = arguments.file.display().to_string();
    let mut report = Report::judged(&plan, &trial.history, &trial.judgements).about(&name, options.command(&name));
    if let Some(words) = &trial.crash {
        report = report.crashed(words);
    } else if arguments.twice && Trial::of(World::Rehearsal, &plan, &[]).history.digest() != trial.history.digest() {
        report = report.nondeterministic();
    }
    if let Some(path) = &arguments.html {
        write(path, report.to_html())?;
    }
    let page = if arguments.json { format!("{}\n", report.to_json()) } else { report.to_text() };
    match std::io::stdout().lock().write_all(page.as_bytes()) {
        // A reader that goes away, as `head` does, has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("the report can't be written: {error}")),
        _ => Ok(report),
    }
}
