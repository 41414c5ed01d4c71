//! `punctual-chaos`: carries plans out on real processes, and judges what was seen.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use punctual_chaos::cluster::Programs;
use punctual_chaos::drawing::{Drawing, draw};
use punctual_chaos::run::{Ran, beside, run, said, verdicts};
use punctual_chaos::worker;
use punctual_sim::plan::{Family, Plan};
use punctual_sim::problems::{SCHEDULERS_MAX, WORKERS_MAX, problems};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// It could not be run.
const REFUSED: u8 = 2;
/// Somebody has interrupted it.
const INTERRUPTED: u8 = 130;
/// How long threads that wait for servers may go on at the end.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// Carries plans out on real processes, and judges what was seen
#[derive(Debug, clap::Parser)]
#[command(name = "punctual-chaos", bin_name = "cargo chaos", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Carries out the plan of a seed, or one from a file
    Run(Run),
    /// A worker of a run; for this program's own use
    #[command(hide = true)]
    Worker(worker::Arguments),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The seed that the plan is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Minutes until all is well again; then as many as it takes to settle
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Scheduler replicas
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=SCHEDULERS_MAX))]
    schedulers: u64,
    /// Workers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=WORKERS_MAX))]
    workers: u64,
    /// Tasks; drawn where it is left out
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    tasks: Option<u64>,
    /// The families of faults that may be drawn, with commas between them; left out, all that can be done to real processes
    #[arg(long, value_delimiter = ',', value_parser = family)]
    families: Option<Vec<Family>>,
    /// All of these families, not half of them
    #[arg(long)]
    all_families: bool,
    /// A plan's file, in place of a seed's plan
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "minutes", "schedulers", "workers", "tasks", "families", "all_families"])]
    plan: Option<PathBuf>,
    /// The program `punctual`; left out, the one beside this program
    #[arg(long, value_name = "PATH")]
    punctual: Option<PathBuf>,
    /// Keeps plan, history, logs and accounts here, whatever the verdict; left out, only where something is violated
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Prints the outcome as JSON
    #[arg(long)]
    json: bool,
}

fn family(name: &str) -> Result<Family, String> {
    let all = || Family::ALL.map(Family::name).join(", ");
    Family::from_name(name).ok_or_else(|| format!("there are {}", all()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error.into()),
    };
    let code = runtime.block_on(async {
        match arguments.command {
            Command::Run(asked) => asked.run().await,
            Command::Worker(arguments) => worker::run(arguments).await.map(|()| ExitCode::SUCCESS),
        }
    });
    runtime.shutdown_timeout(END_TIME_MAX);
    code.unwrap_or_else(|error| complain(&error))
}

fn complain(error: &anyhow::Error) -> ExitCode {
    eprintln!("{error:#}");
    ExitCode::from(REFUSED)
}

impl Run {
    async fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.plan()?;
        let punctual = self.punctual.clone().map_or_else(|| beside("punctual"), Ok)?;
        let programs = Programs { punctual, chaos: std::env::current_exe()? };
        let (mut interrupted, mut ended) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let temporary = tempfile::Builder::new().prefix("punctual-chaos-").tempdir()?;
        let folder = match &self.keep {
            Some(folder) => {
                std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
                std::path::absolute(folder)?
            }
            None => temporary.path().to_owned(),
        };
        let ran = tokio::select! {
            biased;
            _ = interrupted.recv() => return Ok(ExitCode::from(INTERRUPTED)),
            _ = ended.recv() => return Ok(ExitCode::from(INTERRUPTED)),
            ran = run(plan.clone(), &programs, &folder) => ran,
        };
        let is_good = ran.as_ref().is_ok_and(Ran::is_good);
        if !is_good && self.keep.is_none() {
            eprintln!("plan, history, logs and accounts are in {}", temporary.keep().display());
        }
        let ran = ran?;
        self.print(&plan, &ran, &folder)?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(ran.exit_code()) })
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let plan = match &self.plan {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
                serde_json::from_str(&text).with_context(|| format!("{} is no plan", path.display()))?
            }
            None => draw(&Drawing {
                seed: self.seed,
                heal_at_ms: self.minutes * 60_000,
                schedulers: self.schedulers as usize,
                workers: self.workers as usize,
                tasks: self.tasks.map(|tasks| tasks as usize),
                families: self.families.clone().map(BTreeSet::from_iter),
                all: self.all_families,
            }),
        };
        let problems = problems(&plan);
        anyhow::ensure!(problems.is_empty(), "{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        eprintln!(
            "seed {}: {} tasks, {} calls, {} faults, well again at {} s, over at {} s",
            plan.seed,
            plan.tasks.len(),
            plan.calls.len(),
            plan.faults.len(),
            plan.heal_at_ms / 1_000,
            plan.horizon_ms / 1_000
        );
        Ok(plan)
    }

    fn print(&self, plan: &Plan, ran: &Ran, folder: &Path) -> anyhow::Result<()> {
        if self.json {
            let verdicts = ran.judgements.iter().map(|judgement| {
                let (verdict, witness) = said(&judgement.verdict);
                json!({ "property": judgement.property, "verdict": verdict, "witness": witness })
            });
            let outcome = json!({
                "seed": plan.seed,
                "seconds": ran.history.records.last().map(|last| last.at as f64 / 1_000.0),
                "records": ran.history.records.len(),
                "findings": ran.findings,
                "faults": ran.faults,
                "verdicts": verdicts.collect::<Vec<_>>(),
                "folder": folder,
            });
            println!("{}", serde_json::to_string_pretty(&outcome)?);
            return Ok(());
        }
        println!("{} records", ran.history.records.len());
        verdicts(ran).iter().for_each(|line| println!("{line}"));
        Ok(())
    }
}
