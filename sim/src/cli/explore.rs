use punctual_core::guard::Guard;
use punctual_sim::bank::Flaw;
use punctual_sim::model::StoreGuard;
use punctual_sim::swarm::{Profile, swarm};
use punctual_sim::trial::{Trial, World};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    #[arg(long, default_value = "default")]
    profile: String,
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Together.
    #[arg(long)]
    together: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let all: Vec<Flaw> = Guard::ALL.map(Flaw::Core).into_iter().chain(StoreGuard::ALL.map(Flaw::Store)).collect();
    let chosen: Vec<Flaw> = all
        .into_iter()
        .filter(|flaw| arguments.only.is_empty() || arguments.only.iter().any(|only| format!("{flaw:?}").contains(only.as_str())))
        .collect();
    let options = Profile::from_name(&arguments.profile).unwrap().swarm();
    let sets: Vec<Vec<Flaw>> = if arguments.together { vec![chosen] } else { chosen.into_iter().map(|flaw| vec![flaw]).collect() };
    for set in sets {
        let next = AtomicU64::new(0);
        let found = Mutex::new(BTreeMap::<String, (u64, u64, String)>::new());
        let hits = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= arguments.seeds {
                            return;
                        }
                        let trial = Trial::of(World::Rehearsal, &swarm(seed, &options), &set);
                        hits.fetch_add(trial.hits.values().sum::<u64>(), Ordering::Relaxed);
                        for failure in trial.failures() {
                            let mut found = found.lock().unwrap();
                            let entry = found.entry(failure.property).or_insert((0, u64::MAX, String::new()));
                            entry.0 += 1;
                            if seed < entry.1 {
                                entry.1 = seed;
                                entry.2 = failure.witness;
                            }
                        }
                    }
                });
            }
        });
        println!("{set:?}: hits {}", hits.into_inner());
        for (property, (count, first, witness)) in found.into_inner().unwrap() {
            println!("    {property} x{count}, first {first}: {}", witness.chars().take(150).collect::<String>());
        }
    }
    ExitCode::SUCCESS
}
