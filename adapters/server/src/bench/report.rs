//! What a scenario has shown.

use std::collections::HashMap;

use serde::Serialize;

use super::record::{Counter, Recorder};
use super::{Expected, Scenario, Settings};
use punctual_core::time::Timestamp;

/// What a scenario has shown.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    scenario: String,
    /// Instances that ended, by the store's account.
    instances: u64,
    seconds: f64,
    instances_per_second: f64,
    /// From the fire time, or the call, to the handler's begin.
    lateness_ms: Lateness,
    /// Accepted or due, and in no handler's record.
    lost: u64,
    /// Begins of an instance after its first.
    duplicated: u64,
    /// 0: not known.
    commits: u64,
    /// The largest resident memory of the replica's process.
    rss_bytes_max: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_fire_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed_seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Lateness {
    p50: i64,
    p99: i64,
    max: i64,
}

impl Report {
    pub(super) fn new(settings: &Settings, recorder: &Recorder, counter: &Counter, expected: &[Expected], rss_bytes_max: u64) -> Self {
        let begun = recorder.judged();
        let called: HashMap<u64, Timestamp> = expected.iter().filter_map(Expected::call).collect();
        let since = |begun: &super::record::Begun| called.get(&begun.ordinal).copied().unwrap_or(begun.fire_time);
        let mut late: Vec<i64> = begun.iter().map(|begun| begun.at.0 - since(begun).0).collect();
        late.sort_unstable();
        let at = |share: f64| late.get(((late.len() as f64 * share) as usize).min(late.len().saturating_sub(1))).copied().unwrap_or(0);
        let mut begins: HashMap<_, u64> = HashMap::with_capacity(begun.len());
        for begun in &begun {
            *begins.entry(begun.instance).or_default() += 1;
        }
        let duplicated = begins.values().map(|count| count - 1).sum();
        let (instances, seconds) = counter.measured();
        Report {
            scenario: settings.scenario.to_string(),
            instances,
            seconds,
            instances_per_second: if seconds > 0.0 { instances as f64 / seconds } else { 0.0 },
            lateness_ms: Lateness { p50: at(0.50), p99: at(0.99), max: late.last().copied().unwrap_or(0) },
            lost: lost(&begun, expected),
            duplicated,
            commits: counter.commits(),
            rss_bytes_max,
            first_fire_seconds: None,
            seed_seconds: None,
        }
    }
}

/// Compares what must have run with what did.
fn lost(begun: &[super::record::Begun], expected: &[Expected]) -> u64 {
    let by_ordinal: std::collections::HashSet<u64> = begun.iter().map(|begun| begun.ordinal).collect();
    let mut lost = 0;
    for expected in expected {
        lost += match *expected {
            Expected::Submissions { first_ordinal, count, .. } => {
                (first_ordinal..first_ordinal + count).filter(|ordinal| !by_ordinal.contains(ordinal)).count() as u64
            }
            Expected::EachSecond { tasks, first, last } => {
                let mut instances: HashMap<i64, std::collections::HashSet<_>> = HashMap::new();
                for begun in begun.iter().filter(|begun| begun.fire_time >= first && begun.fire_time <= last) {
                    instances.entry(begun.fire_time.0).or_default().insert(begun.instance);
                }
                let seconds = (first.0..=last.0).step_by(1_000);
                seconds.map(|second| tasks - (instances.get(&second).map_or(0, |seen| seen.len()) as u64).min(tasks)).sum()
            }
            Expected::Instances(count) => {
                let seen: std::collections::HashSet<_> = begun.iter().map(|begun| begun.instance).collect();
                count.saturating_sub(seen.len() as u64)
            }
        };
    }
    lost
}

/// The largest resident memory that a process has had, in bytes; 0 where the system doesn't say.
pub(super) fn rss_bytes_max(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).map_or(0, |kib| kib * 1_024)
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} instances in {:.2} s: {:.0} a second", self.instances, self.seconds, self.instances_per_second)?;
        let Lateness { p50, p99, max } = self.lateness_ms;
        writeln!(f, "begun after p50 {p50} ms, p99 {p99} ms, at most {max} ms")?;
        write!(f, "lost {}, duplicated {}", self.lost, self.duplicated)?;
        match self.commits {
            0 => writeln!(f)?,
            commits => writeln!(f, ", {commits} commits")?,
        }
        write!(f, "memory at most {:.0} MB", self.rss_bytes_max as f64 / 1e6)?;
        if let Some(seconds) = self.first_fire_seconds {
            write!(f, "\nfirst fire {seconds:.1} s after the start")?;
        }
        Ok(())
    }
}

/// The scenario's own name in the report.
impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use clap::ValueEnum;
        self.to_possible_value().expect("no scenario is hidden").get_name().fmt(f)
    }
}
