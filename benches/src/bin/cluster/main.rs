//! What a cluster on MariaDB holds: `cargo build --release && cargo run --release -p punctual-benches --bin cluster -- [SCENARIO...]`
//!
//! Starts a private MariaDB with durable settings and a private Redis, runs the built `punctual` beside this program, and prints a line for
//! each scenario. Without names it runs all of them; each is repeated, and the median is what counts.

mod fleet;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_testbed::{MariaDb, Redis};
use serde_json::Value;

use fleet::Fleet;

type Anyhow<T> = Result<T, Box<dyn Error>>;

/// How often each scenario of `punctual bench` is run.
const REPEATS: usize = 3;
/// The server's memory for pages, as on a machine that has more to do.
const OPTIONS: [&str; 3] = ["--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=512M", "--innodb-buffer-pool-size=1G"];
/// Scenarios of `punctual bench`: a name, and what it is started with.
const BENCHES: [(&str, &[&str]); 7] = [
    ("flat-out", &["--scenario", "flat-out"]),
    ("flat-out-one-process", &["--scenario", "flat-out"]),
    ("rate", &["--scenario", "rate", "--slots", "64"]),
    ("cron", &["--scenario", "cron", "--rate", "10000"]),
    ("burst", &["--scenario", "burst", "--tasks", "50000"]),
    ("100-thousand-idle", &["--scenario", "flat-out", "--idle", "100000"]),
    ("one-million-idle", &["--scenario", "flat-out", "--idle", "1000000"]),
];

fn main() -> Anyhow<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let all: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).chain(["takeover", "rolling-restart"]).collect();
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("there is no scenario {unknown}; there are {}", all.join(", ")).into());
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let program = punctual()?;
    let database = MariaDb::start_with(&OPTIONS)?;
    let redis = Redis::start()?;
    for (name, arguments) in BENCHES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let mut reports = Vec::new();
        for round in 0..REPEATS {
            let url = database.create(&format!("{}_{round}", name.replace('-', "_")))?;
            let mut bench = Command::new(&program);
            bench.arg("bench").args(arguments).arg("--json").env("PUNCTUAL_DATABASE", &url);
            if !name.ends_with("one-process") {
                bench.arg("--processes").env("PUNCTUAL_REDIS", redis.url());
            }
            reports.push(report(&mut bench)?);
        }
        println!("{name}: {}", line(&reports));
    }
    for (name, hurt) in [("takeover", Fleet::kill_one as fn(&mut Fleet) -> Anyhow<()>), ("rolling-restart", Fleet::restart_each)] {
        if !is_wanted(name) {
            continue;
        }
        let url = database.create(&name.replace('-', "_"))?;
        let mut fleet = Fleet::start(&program, &url, &redis.url())?;
        std::thread::sleep(Duration::from_secs(10));
        // What fired before all had found each other doesn't count.
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?;
        std::thread::sleep(Duration::from_secs(2));
        hurt(&mut fleet)?;
        std::thread::sleep(Duration::from_secs(20));
        println!("{name}: {}", fleet.judge(since)?);
    }
    Ok(())
}

/// The program that lies beside this one.
fn punctual() -> Anyhow<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("punctual");
    match program.exists() {
        true => Ok(program),
        false => Err(format!("{} is not there; build it: cargo build --release", program.display()).into()),
    }
}

fn report(bench: &mut Command) -> Anyhow<Value> {
    let output = bench.output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(format!("{bench:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// The numbers of some reports: smallest, median, largest.
fn line(reports: &[Value]) -> String {
    let mut columns: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for report in reports {
        for (name, value) in [
            ("instances/s", &report["instances_per_second"]),
            ("p50 ms", &report["lateness_ms"]["p50"]),
            ("p99 ms", &report["lateness_ms"]["p99"]),
            ("latest ms", &report["lateness_ms"]["max"]),
            ("memory bytes", &report["rss_bytes_max"]),
            ("lost", &report["lost"]),
            ("doubled", &report["duplicated"]),
        ] {
            columns.entry(name).or_default().extend(value.as_f64());
        }
    }
    let column = |(name, mut values): (&str, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        format!("{name} {:.0} ({:.0} to {:.0})", at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
    };
    columns.into_iter().map(column).collect::<Vec<_>>().join(", ")
}
