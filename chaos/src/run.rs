//! A run from its beginning to its verdict.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use anyhow::Context;
use punctual_sim::check::{Judgement, Slack, Verdict, judge_with};
use punctual_sim::history::{History, What, Who};
use punctual_sim::plan::Plan;
use punctual_sim::show;
use punctual_sim::workload::zones;
use punctual_store::recorder;
use tokio::task::JoinSet;

use crate::clock::monotonic_us;
use crate::cluster::{Cluster, Programs, account};
use crate::merge::{Sources, merge};
use crate::trouble::{self, Done};
use crate::truth;

/// A machine that is busy takes its time to begin a handler that was handed to it.
const SLACK: Slack = Slack { begins_ms: 2_000 };
/// How far the machine's wall clock may move against its monotonic one before that is said.
const DRIFT_US_MAX: i64 = 1_000;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was seen.
    pub history: History,
    /// The verdicts.
    pub judgements: Vec<Judgement>,
    /// What became of the faults.
    pub faults: Vec<Done>,
    /// What nobody did to the system: processes that ended unasked.
    pub findings: Vec<String>,
}

/// Exit codes, those of `cargo sim`: something that must never happen, something that must come and did not, and a process that ended by
/// itself.
const SAFETY: u8 = 10;
const LIVENESS: u8 = 11;
const CRASH: u8 = 12;

impl Ran {
    /// What this program exits with.
    pub fn exit_code(&self) -> u8 {
        let violated = self.judgements.iter().filter(|judgement| matches!(judgement.verdict, Verdict::Violated { .. }));
        let of_property = |property: &str| if property.starts_with("heal.") { LIVENESS } else { SAFETY };
        let crash = (!self.findings.is_empty()).then_some(CRASH);
        violated.map(|judgement| of_property(judgement.property)).chain(crash).min().unwrap_or(0)
    }

    /// Whether everything is as it should be.
    pub fn is_good(&self) -> bool {
        self.exit_code() == 0
    }
}

/// Carries a plan out, and judges it. Logs, accounts and the plan are written into the folder.
///
/// # Errors
///
/// Something can't be started, or what was seen can't be read.
pub async fn run(plan: Plan, programs: &Programs, folder: &Path) -> anyhow::Result<Ran> {
    let cluster = Cluster::start(Arc::new(plan), programs, folder).await?;
    eprintln!("{} schedulers and {} workers are ready", cluster.replicas.len(), cluster.workers.len());
    let ran = carry_out(&cluster).await;
    cluster.end();
    cluster.pair.lock().unwrap_or_else(PoisonError::into_inner).keep_logs();
    let ran = ran?;
    keep(&ran, folder)?;
    Ok(ran)
}

async fn carry_out(cluster: &Arc<Cluster>) -> anyhow::Result<Ran> {
    cluster.define_all().await;
    let mut calls = JoinSet::new();
    for call in cluster.plan.calls.clone() {
        let cluster = cluster.clone();
        calls.spawn(async move {
            cluster.sleep_until(call.at_ms).await;
            cluster.make(&call).await;
        });
    }
    let faults = trouble::carry_out(cluster).await;
    cluster.sleep_until(cluster.plan.heal_at_ms).await;
    cluster.sky.send_modify(|weather| weather.world.is_healed = true);
    cluster.notes.note(Who::World, What::Healed);
    let healed_at = cluster.origin.at_ms();
    eprintln!("{:>7.1} s  all is well again", healed_at as f64 / 1_000.0);
    // Faults may have taken longer than the plan says; the time to settle begins when they are over.
    cluster.sleep_until(healed_at + cluster.plan.horizon_ms - cluster.plan.heal_at_ms).await;
    cluster.note_what_is_left().await;
    let end_us = monotonic_us();
    let url = cluster.pair.lock().unwrap_or_else(PoisonError::into_inner).url();
    let left = recorder::left(&url).await.context("what is left in the database")?;
    calls.abort_all();
    cluster.end();
    let drift_us = cluster.origin.drift_us();
    if drift_us.abs() > DRIFT_US_MAX {
        eprintln!("the machine's wall clock has moved by {drift_us} µs meanwhile: times of the database are off by as much");
    }
    let decode = |document: &str| {
        let in_words = |findings: Vec<_>| findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        punctual_spec::decode(document, zones()).map_err(in_words)
    };
    let logged = recorder::read(&url, Arc::new(decode)).await.context("what the database recorded")?;
    let accounts = (0..cluster.workers.len()).map(|worker| truth::read(&account(&cluster.folder, worker)));
    let accounts = accounts.collect::<anyhow::Result<_>>()?;
    let history = merge(Sources { origin: cluster.origin, end_us, notes: cluster.notes.all(), accounts, logged, left });
    let judgements = judge(&cluster.plan, &history);
    complaints(cluster);
    let findings = cluster.findings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Ran { history, judgements, faults, findings })
}

/// What schedulers must never say here: that confirmed commits are gone, or that one of their threads broke.
const COMPLAINTS: [&str; 2] = ["has forgotten commits", "panicked at"];

/// Finds what schedulers have said that they never should.
fn complaints(cluster: &Cluster) {
    for replica in &cluster.replicas {
        let log = std::fs::read_to_string(replica.node.log()).unwrap_or_default();
        for line in log.lines().filter(|line| COMPLAINTS.iter().any(|words| line.contains(words))) {
            cluster.find(format!("{:?} says: {line}", replica.node.who));
        }
    }
}

/// Judges what was seen of real processes by all properties.
pub fn judge(plan: &Plan, history: &History) -> Vec<Judgement> {
    judge_with(plan, history, SLACK)
}

/// Writes down what came of it.
fn keep(ran: &Ran, folder: &Path) -> anyhow::Result<()> {
    let lines = ran.history.records.iter().enumerate().map(|(index, record)| show::line(index, record) + "\n");
    std::fs::write(folder.join("history.txt"), lines.collect::<String>())?;
    let faults = ran.faults.iter().map(|done| trouble::line(done) + "\n");
    std::fs::write(folder.join("faults.txt"), faults.collect::<String>())?;
    std::fs::write(folder.join("verdicts.txt"), verdicts(ran).join("\n") + "\n")?;
    Ok(())
}

/// The verdicts, a line each.
pub fn verdicts(ran: &Ran) -> Vec<String> {
    let found = ran.findings.iter().map(|finding| format!("{:<24} violated: {finding}", "processes"));
    let judged = ran.judgements.iter().map(|judgement| {
        let (verdict, witness) = said(&judgement.verdict);
        let witness = witness.map(|witness| format!(": {witness}")).unwrap_or_default();
        format!("{:<24} {verdict}{witness}", judgement.property)
    });
    found.chain(judged).collect()
}

/// A verdict in a word, and what shows it.
pub fn said(verdict: &Verdict) -> (&'static str, Option<&str>) {
    match verdict {
        Verdict::Held => ("held", None),
        Verdict::Unknown(why) => ("unknown", Some(why)),
        Verdict::Violated { witness } => ("violated", Some(witness)),
    }
}

/// The program beside this one that is called so.
///
/// # Errors
///
/// There is none.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name(name);
    anyhow::ensure!(program.is_file(), "{} is not there; name it with --{name} PATH", program.display());
    Ok(program)
}
