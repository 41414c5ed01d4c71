//! `replay`: one seed or plan, with its history.

use std::process::ExitCode;

use punctual_sim::check::Verdict;
use punctual_sim::regressions::Regression;
use punctual_sim::show;
use punctual_sim::swarm::{Profile, swarm};
use punctual_sim::trial::{Trial, World};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A seed, or the file of a plan.
    what: String,
    /// Which plans the seed draws from.
    #[arg(long, default_value = "default")]
    profile: String,
    /// Prints the history.
    #[arg(long)]
    history: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let plan = match arguments.what.parse() {
        Ok(seed) => swarm(seed, &Profile::from_name(&arguments.profile).expect("a profile").swarm()),
        Err(_) => Regression::load(std::path::Path::new(&arguments.what)).expect("a plan").plan,
    };
    let trial = Trial::of(World::Rehearsal, &plan, &[]);
    if arguments.history {
        println!("{}", serde_json::to_string_pretty(&plan).unwrap());
        for (index, record) in trial.history.records.iter().enumerate() {
            println!("{}", show::line(index, record));
        }
    }
    println!("fingerprint {:016x}", trial.history.digest());
    for judgement in &trial.judgements {
        match &judgement.verdict {
            Verdict::Held => {}
            verdict => println!("{}: {verdict:?}", judgement.property),
        }
    }
    println!("{:?}", trial.crash);
    ExitCode::SUCCESS
}
