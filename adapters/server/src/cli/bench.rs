//! `punctual bench`: measures this machine.

use std::path::PathBuf;

use super::Exit;
use super::output::Output;
use crate::bench::{self, Scenario, Settings};

#[derive(clap::Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(long, value_enum, default_value_t = Scenario::FlatOut)]
    scenario: Scenario,
    /// Tasks
    #[arg(long, default_value_t = 1_000)]
    tasks: u32,
    /// Cron tasks besides those, which fire once a day
    #[arg(long, default_value_t = 0)]
    idle: u32,
    /// Instances of the flat-out scenario
    #[arg(long, default_value_t = 300_000)]
    instances: u64,
    /// Triggers or fires a second
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// How long to go on
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Attempts that run at once
    #[arg(long, default_value_t = 8_192, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slots: u32,
    /// The database file, which must not exist yet; a temporary one where it is left out
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// A MySQL or MariaDB to measure with, instead of SQLite; the tables are made, and what is there is left alone
    #[arg(long, env = "PUNCTUAL_DATABASE", hide_env_values = true, value_name = "URL", conflicts_with = "db")]
    database: Option<String>,
    /// Replica and worker as processes of their own, triggers over the API
    #[arg(long, requires = "database")]
    processes: bool,
    /// A Redis for wake-ups between the processes
    #[arg(long, env = "PUNCTUAL_REDIS", hide_env_values = true, value_name = "URL", requires = "processes")]
    redis: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Make the store of the idle scenario and stop
    #[arg(long, hide = true)]
    seed_only: bool,
    /// Be the worker of the replica at this address, and write down what begins
    #[arg(long, hide = true, requires = "records")]
    worker_of: Option<String>,
    #[arg(long, hide = true)]
    records: Option<PathBuf>,
}

impl BenchArgs {
    pub(super) fn run(self, output: &mut Output) -> Exit {
        super::block_on(self.measure(), output)
    }

    async fn measure(&self) -> anyhow::Result<Exit> {
        if let (Some(server), Some(records)) = (&self.worker_of, &self.records) {
            bench::work(server.clone(), self.slots, records, super::interrupts()?).await?;
            return Ok(Exit::Done);
        }
        if self.seed_only {
            let db = self.db.as_ref().ok_or_else(|| anyhow::anyhow!("--seed-only needs --db"))?;
            bench::seed_idle(self.tasks, db).await?;
            return Ok(Exit::Done);
        }
        anyhow::ensure!(self.database.is_none() || self.scenario != Scenario::Idle, "the idle scenario is measured with SQLite only");
        let temporary = tempfile::tempdir()?;
        let db = self.db.clone().unwrap_or_else(|| temporary.path().join("bench.db"));
        anyhow::ensure!(!db.exists(), "{} exists; a bench needs a database of its own", db.display());
        let settings = Settings {
            scenario: self.scenario,
            tasks: self.tasks.max(1),
            idle: self.idle,
            instances: self.instances,
            rate: self.rate.max(1),
            seconds: self.seconds,
            slots: self.slots,
            db,
            database: self.database.clone(),
            processes: self.processes,
            redis: self.redis.clone(),
        };
        let report = bench::run(&settings).await?;
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&report)?),
            false => println!("{report}"),
        }
        Ok(Exit::Done)
    }
}
