//! `replay`: one seed or plan again, with its history.

use std::path::PathBuf;
use std::process::ExitCode;

use punctual_sim::check::Verdict;
use punctual_sim::show;
use punctual_sim::trial::{Failure, Trial, World};
use serde::Serialize;

use crate::cli::{Drawing, NONDETERMINISTIC, exit_code, plan_of, print_json, print_line, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A seed, or the file of a plan.
    what: String,
    #[command(flatten)]
    drawing: Drawing,
    /// Prints the history, a line a record.
    #[arg(long)]
    history: bool,
    /// Writes the plan into this file.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Runs it so many times, which must all be the same.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,
    /// Prints the outcome as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Replayed {
    /// The run's fingerprint: the same in each process and each kind of build.
    fingerprint: String,
    virtual_seconds: f64,
    records: usize,
    verdicts: Vec<Said>,
}

#[derive(Debug, Serialize)]
struct Said {
    property: String,
    /// `held`, `unknown` or `violated`.
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    witness: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let plan = match plan_of(&arguments.what, arguments.drawing) {
        Ok(plan) => plan,
        Err(why) => return refused(&why),
    };
    if let Some(path) = &arguments.plan {
        let text = serde_json::to_string_pretty(&plan).expect("plans can be written as JSON");
        if let Err(error) = std::fs::write(path, text + "\n") {
            return refused(&format!("{} can't be written: {error}", path.display()));
        }
    }
    let trial = Trial::of(World::Rehearsal, &plan, &[]);
    let digest = trial.history.digest();
    let others: Vec<_> = (1..arguments.times).map(|_| Trial::of(World::Rehearsal, &plan, &[]).history.digest()).collect();
    if arguments.history && !arguments.json {
        for (index, record) in trial.history.records.iter().enumerate() {
            print_line(&show::line(index, record));
        }
    }
    let failures = trial.failures();
    let virtual_seconds = plan.horizon_ms as f64 / 1_000.0;
    let verdicts = verdicts(&trial, &failures);
    let records = trial.history.records.len();
    let replayed = Replayed { fingerprint: format!("{digest:016x}"), virtual_seconds, records, verdicts };
    if arguments.json {
        print_json(&replayed);
    } else {
        print_line(&format!("fingerprint {}, {} records, {virtual_seconds} virtual seconds", replayed.fingerprint, replayed.records));
        for said in &replayed.verdicts {
            let witness = said.witness.as_ref().map(|witness| format!(": {witness}")).unwrap_or_default();
            print_line(&format!("{:<24} {}{witness}", said.property, said.verdict));
        }
    }
    if others.iter().any(|other| *other != digest) {
        eprintln!("the same plan gave two different runs");
        return ExitCode::from(NONDETERMINISTIC);
    }
    exit_code(&failures)
}

fn verdicts(trial: &Trial, failures: &[Failure]) -> Vec<Said> {
    if let Some(words) = &trial.crash {
        return vec![Said { property: failures[0].property.clone(), verdict: "violated", witness: Some(words.clone()) }];
    }
    let said = trial.judgements.iter().map(|judgement| {
        let (verdict, witness) = match &judgement.verdict {
            Verdict::Held => ("held", None),
            Verdict::Unknown(why) => ("unknown", Some(why.clone())),
            Verdict::Violated { witness } => ("violated", Some(witness.clone())),
        };
        Said { property: judgement.property.to_owned(), verdict, witness }
    });
    said.collect()
}
