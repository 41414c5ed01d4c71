//! How many steps a second the tabletop world makes: events that a machine or the database handles. Drawing the plans is counted in, judging
//! the runs is told apart.
//!
//! `cargo run --release -p punctual-sim --example tabletop_speed -- [seeds] [first seed]`

use std::time::{Duration, Instant};

use punctual_sim::check::{self, Verdict};
use punctual_sim::history::Recorder;
use punctual_sim::swarm::{Swarm, swarm};
use punctual_sim::tabletop::World;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>().expect("a number"));
    let (seeds, first) = (numbers.next().unwrap_or(200), numbers.next().unwrap_or(0));
    let (mut running, mut judging) = (Duration::ZERO, Duration::ZERO);
    let (mut steps, mut virtual_ms, mut records, mut violated) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        let begun = Instant::now();
        let plan = swarm(seed, &Swarm::default());
        let recorder = Recorder::default();
        let mut world = World::of_plan(&plan, recorder.clone(), &[]);
        world.play_out();
        steps += world.steps;
        drop(world);
        running += begun.elapsed();
        let history = recorder.take();
        let begun = Instant::now();
        let judgements = check::judge(&plan, &history);
        judging += begun.elapsed();
        virtual_ms += plan.horizon_ms;
        records += history.records.len();
        violated += judgements.iter().filter(|judgement| matches!(judgement.verdict, Verdict::Violated { .. })).count();
    }
    let seconds = running.as_secs_f64();
    println!("{seeds} seeds, {steps} steps, {records} records, {violated} properties violated");
    println!("{:.0} steps a second, {:.0} virtual seconds a second", steps as f64 / seconds, virtual_ms as f64 / 1_000.0 / seconds);
    println!("running {seconds:.2} s, judging {:.2} s", judging.as_secs_f64());
}
