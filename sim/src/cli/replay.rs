//! `replay`: one seed or plan again, with its history.

use std::path::PathBuf;

use punctual_core::ids::InstanceId;
use punctual_sim::check::Verdict;
use punctual_sim::files::Target;
use punctual_sim::show;
use punctual_sim::trial::{Failure, Trial, World};
use serde::Serialize;

use crate::cli::drawing::{Asked, Drawing, plan_of};
use crate::cli::output::{complain, print_json, print_line};
use crate::cli::{NONDETERMINISTIC, exit_code, refused};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A seed, or the file of a plan.
    what: String,
    #[command(flatten)]
    drawing: Drawing,
    /// Prints the history, a line a record.
    #[arg(long, conflicts_with = "json")]
    history: bool,
    /// Of the history, only what names this instance, such as 4-21.
    #[arg(long, value_name = "INSTANCE", requires = "history", value_parser = instance)]
    instance: Option<InstanceId>,
    /// Of the history, only records from this one on.
    #[arg(long, value_name = "RECORD", requires = "history", default_value_t = 0)]
    from: usize,
    /// Of the history, only records up to this one.
    #[arg(long, value_name = "RECORD", requires = "history", default_value_t = usize::MAX, hide_default_value = true)]
    to: usize,
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

fn instance(text: &str) -> Result<InstanceId, String> {
    text.parse().map_err(|()| format!("`{text}` is no instance: a partition and a number are wanted, such as 4-21"))
}

impl Arguments {
    /// The plan, and where it is to be kept.
    fn plan(&self) -> Result<(Asked, Option<Target>), String> {
        let asked = plan_of(&self.what, &self.drawing)?;
        let target = match &self.plan {
            Some(path) => Some(Target::new(path).map_err(|error| format!("--plan {}: {error}", path.display()))?),
            None => None,
        };
        if let Some(target) = &target
            && target.is(self.what.as_ref())
        {
            return Err(format!("--plan {}: that is the file which is read", target.path().display()));
        }
        Ok((asked, target))
    }

    fn is_shown(&self, index: usize, line: &str) -> bool {
        let names = |instance: InstanceId| {
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '(' | ')' | '_' | '.');
            let (short, long) = (instance.to_string(), format!("{instance:?}"));
            line.split(|c: char| !is_part(c)).any(|word| word.trim_matches(['(', ')']) == short || word.contains(&long))
        };
        (self.from..=self.to).contains(&index) && self.instance.is_none_or(names)
    }
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let (plan, target) = match arguments.plan() {
        Ok((asked, target)) => (asked.plan, target),
        Err(why) => return refused(&why),
    };
    if let Some(target) = &target {
        let text = serde_json::to_string_pretty(&plan).expect("plans can be written as JSON");
        if let Err(error) = target.write(&(text + "\n")) {
            return refused(&format!("{} can't be written: {error}", target.path().display()));
        }
    }
    let trial = arguments.drawing.trial(world, &plan);
    let digest = trial.history.digest();
    let others: Vec<_> = (1..arguments.times).map(|_| arguments.drawing.trial(world, &plan).history.digest()).collect();
    if arguments.history {
        for (index, record) in trial.history.records.iter().enumerate() {
            let line = show::line(index, record);
            if arguments.is_shown(index, &line) {
                print_line(&line);
            }
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
        complain("the same plan gave two different runs");
        return NONDETERMINISTIC;
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
