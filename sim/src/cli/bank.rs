//! `bank`: each guard switched off in turn.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use comfy_table::{Table, presets};
use punctual_sim::bank::{BANK, Flaw, Row, SEEDS_MAX};
use punctual_sim::trial::{Trial, World};
use serde::Serialize;

use crate::cli::limits::{Jobs, up_to};
use crate::cli::output::{print_json, print_line};
use crate::cli::{Progress, refused};

/// Most rounds.
const ROUNDS_MAX: u64 = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only guards whose name contains one of these, separated by commas, in capitals or not.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    only: Vec<String>,
    /// How often each is tried, each time from another first seed; the median counts.
    #[arg(long, default_value_t = 5, value_parser = up_to(ROUNDS_MAX))]
    rounds: u64,
    /// One seed a guard, the one that is known to show it.
    #[arg(long)]
    known: bool,
    #[command(flatten)]
    jobs: Jobs,
    /// Prints a row a guard as JSON.
    #[arg(long)]
    json: bool,
}

/// What became of a guard.
#[derive(Clone, Debug, Serialize)]
struct Found {
    guard: String,
    /// `caught`, `hit_but_missed`, `never_hit`, or `fails_when_clean`.
    outcome: &'static str,
    /// The property that failed; the ones that should have where none did.
    property: String,
    /// The median of the rounds; `null` where it was not caught in most of them.
    seeds_to_catch: Option<u64>,
    /// How often it had something to hold back, in all runs.
    hits: u64,
    /// The first seed that showed it.
    seed: Option<u64>,
}

pub(super) fn run(arguments: &Arguments, world: World) -> u8 {
    let contains = |row: &Row, only: &String| row.guard.name().to_lowercase().contains(&only.to_lowercase());
    let is_meant = |row: &&Row| arguments.only.is_empty() || arguments.only.iter().any(|only| contains(row, only));
    let rows: Vec<&Row> = BANK.iter().filter(is_meant).collect();
    if rows.is_empty() {
        let names = Flaw::all().map(Flaw::name).collect::<Vec<_>>().join(", ");
        return refused(&format!("no guard has such a name; the guards are {names}"));
    }
    let progress = Progress::new("guards", rows.len() as u64, arguments.json);
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.count(rows.len() as u64) {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let outcome =
                        if arguments.known { try_seeds(world, row, [row.known_seed]) } else { try_rounds(world, row, arguments.rounds) };
                    progress.step(None);
                    found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    progress.finish();
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort_by_key(|found| BANK.iter().position(|row| row.guard.name() == found.guard));
    if arguments.json {
        print_json(&found);
    } else {
        print_table(&found);
    }
    u8::from(found.iter().any(|found| found.outcome != "caught"))
}

fn print_table(found: &[Found]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["GUARD", "OUTCOME", "PROPERTY", "SEEDS", "HITS", "SEED"]);
    for found in found {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let (seeds, seed) = (number(found.seeds_to_catch), number(found.seed));
        table.add_row([found.guard.clone(), found.outcome.to_owned(), found.property.clone(), seeds, found.hits.to_string(), seed]);
    }
    print_line(&table.to_string());
    let mut seeds: Vec<_> = found.iter().filter_map(|found| found.seeds_to_catch).collect();
    seeds.sort_unstable();
    let caught = found.iter().filter(|found| found.outcome == "caught").count();
    let median = seeds.get(seeds.len() / 2).map_or("-".to_owned(), u64::to_string);
    print_line(&format!("{caught} of {} caught; median seeds to catch {median}", found.len()));
}

/// Several times, each from another first seed.
fn try_rounds(world: World, row: &Row, rounds: u64) -> Found {
    let mut tried: Vec<Found> = (0..rounds).map(|round| try_seeds(world, row, round * 10_000..round * 10_000 + SEEDS_MAX)).collect();
    let hits = tried.iter().map(|found| found.hits).sum();
    if let Some(bad) = tried.iter().position(|found| found.outcome == "fails_when_clean") {
        return Found { hits, ..tried.swap_remove(bad) };
    }
    // Those that were never caught count as longest.
    tried.sort_by_key(|found| found.seeds_to_catch.unwrap_or(u64::MAX));
    let median = tried.swap_remove(tried.len() / 2);
    let outcome = match median.outcome {
        "never_hit" if hits > 0 => "hit_but_missed",
        outcome => outcome,
    };
    Found { hits, outcome, ..median }
}

/// Until one of these seeds shows that the guard is off.
fn try_seeds(world: World, row: &Row, seeds: impl IntoIterator<Item = u64>) -> Found {
    let flaws = row.flaws();
    let mut hits = 0;
    for (number, seed) in seeds.into_iter().enumerate() {
        let plan = row.plan(seed);
        let trial = Trial::of(world, &plan, &flaws);
        hits += trial.hits.get(&row.guard).copied().unwrap_or(0);
        let Some(property) = row.properties.iter().find(|property| trial.fails(property)) else { continue };
        // With the guard in place the same plan must be sound.
        let is_clean = Trial::of(world, &plan, &[]).failures().is_empty();
        let outcome = if is_clean { "caught" } else { "fails_when_clean" };
        let seeds_to_catch = Some(number as u64 + 1);
        return Found { guard: row.guard.name(), outcome, property: (*property).to_owned(), seeds_to_catch, hits, seed: Some(seed) };
    }
    let outcome = if hits > 0 { "hit_but_missed" } else { "never_hit" };
    Found { guard: row.guard.name(), outcome, property: row.properties.join(" or "), seeds_to_catch: None, hits, seed: None }
}
