//! How many steps a second the tabletop world makes: events that a machine or the database handles. Drawing the plans is counted in, judging
//! the runs is told apart.
//!
//! `cargo run --release -p punctual-sim --example tabletop_speed -- [seeds] [first seed] [profile]`

use std::time::{Duration, Instant};

use punctual_sim::check::{self, Verdict};
use punctual_sim::history::Recorder;
use punctual_sim::swarm::{Profile, Swarm, swarm};
use punctual_sim::tabletop::World;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(otherwise, |number| number.parse().expect("a number"));
    let (seeds, first) = (number(200), number(0));
    let options = arguments.next().map_or(Swarm::default(), |name| Profile::from_name(&name).expect("a profile").swarm());
    let (mut running, mut judging) = (Duration::ZERO, Duration::ZERO);
    let (mut steps, mut virtual_ms, mut records, mut violated) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        let begun = Instant::now();
        let plan = swarm(seed, &options);
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
        for judgement in judgements {
            if let Verdict::Violated { witness } = judgement.verdict {
                violated += 1;
                println!("seed {seed}: {}: {witness}", judgement.property);
            }
        }
    }
    let seconds = running.as_secs_f64();
    println!("{seeds} seeds, {steps} steps, {records} records, {violated} properties violated");
    println!("{:.0} steps a second, {:.0} virtual seconds a second", steps as f64 / seconds, virtual_ms as f64 / 1_000.0 / seconds);
    println!("running {seconds:.2} s, judging {:.2} s", judging.as_secs_f64());
}
