//! Drawing plans from seeds.
//!
//! Each family of faults is off for half of the seeds: a plan that has everything hides what only shows when something is missing. What
//! a part of a plan draws comes from a stream of the part's own, so that another choice of families leaves shape, tasks and calls alone.

use std::collections::BTreeSet;

use crate::draw::Draw;
use crate::faults::{self, Ground};
use crate::features;
use crate::load;
use crate::operations;
use crate::plan::{Family, Knobs, Plan, STARTS_AT, Shape, TaskPlan};
use crate::workload;

/// Of so many plans one has no faults at all.
const CALM_ONE_IN: u64 = 32;

/// Which plans are to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Swarm {
    /// The families that may be drawn, each in half of the plans.
    pub families: BTreeSet<Family>,
    /// The families that are in every plan.
    pub always: BTreeSet<Family>,
    /// How many of what; drawn where it is left out.
    pub shape: Option<Shape>,
    /// Fewest and most tasks.
    pub tasks: (usize, usize),
    /// These tasks in place of drawn ones. The calls to them are drawn all the same.
    pub workload: Option<Vec<TaskPlan>>,
    /// Fewest and most calls.
    pub calls: (usize, usize),
    /// Shortest and longest time until the world heals, in milliseconds.
    pub heal_at_ms: (u64, u64),
}

impl Default for Swarm {
    fn default() -> Self {
        let of_their_own = [Family::DbLostTail, Family::DatabaseClock, Family::Flood];
        Swarm {
            families: Family::ALL.into_iter().filter(|family| !of_their_own.contains(family)).collect(),
            always: BTreeSet::new(),
            shape: None,
            tasks: (1, 12),
            workload: None,
            calls: (0, 20),
            heal_at_ms: (120_000, 480_000),
        }
    }
}

/// Choices of plans that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Everything that the promises cover.
    Default,
    /// No faults.
    Calm,
    /// Failovers that lose the tail. The promises are weaker then.
    LostTail,
    /// The database's clock is set, with all other faults.
    DatabaseClock,
    /// Tens of thousands of submissions in one second.
    Flood,
    /// A cluster of usual size.
    Rehearsal,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Profile; 6] =
        [Profile::Default, Profile::Calm, Profile::LostTail, Profile::DatabaseClock, Profile::Flood, Profile::Rehearsal];

    /// Its name, on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Calm => "calm",
            Profile::LostTail => "lost-tail",
            Profile::DatabaseClock => "database-clock",
            Profile::Flood => "flood",
            Profile::Rehearsal => "rehearsal",
        }
    }

    /// The profile of this name.
    pub fn from_name(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Its choice.
    pub fn swarm(self) -> Swarm {
        let usual = Swarm::default();
        match self {
            Profile::Default => usual,
            Profile::Calm => Swarm { families: BTreeSet::new(), ..usual },
            Profile::LostTail => Swarm { always: BTreeSet::from([Family::DbLostTail]), ..usual },
            Profile::DatabaseClock => Swarm { always: BTreeSet::from([Family::DatabaseClock]), ..usual },
            Profile::Flood => Swarm {
                always: BTreeSet::from([Family::Flood]),
                shape: Some(Shape { schedulers: 3, workers: 4, slots: 64, partitions: 8 }),
                tasks: (1, 4),
                ..usual
            },
            Profile::Rehearsal => {
                let shape = Shape { schedulers: 3, workers: 8, slots: 16, partitions: 64 };
                Swarm { shape: Some(shape), tasks: (200, 200), calls: (20, 60), ..usual }
            }
        }
    }
}

/// The plan of this seed. The same seed and options give the same plan for ever.
pub fn swarm(seed: u64, options: &Swarm) -> Plan {
    let families = families(seed, options);
    let mut shape = options.shape.unwrap_or_else(|| draw_shape(&mut Draw::new(seed, "swarm shape")));
    let mut knobs = draw_knobs(&mut Draw::new(seed, "swarm knobs"), &families);
    let mut tasks = match &options.workload {
        Some(tasks) => tasks.clone(),
        None => {
            let mut draw = Draw::new(seed, "swarm tasks");
            let count = draw.between(options.tasks.0 as u64, options.tasks.1 as u64) as usize;
            workload::draw_tasks(&mut draw, seed, count, &families)
        }
    };
    let mut draw = Draw::new(seed, "swarm time");
    // Whole seconds: somebody is going to read it.
    let heal_at_ms = draw.between(options.heal_at_ms.0 / 1_000, options.heal_at_ms.1 / 1_000) * 1_000;
    let mut draw = Draw::new(seed, "swarm calls");
    let count = draw.between(options.calls.0 as u64, options.calls.1 as u64) as usize;
    let mut calls = workload::draw_calls(&mut draw, count, &tasks, heal_at_ms);
    if options.workload.is_none() {
        features::draw_pauses(seed, &mut tasks, &mut calls, heal_at_ms);
        operations::draw_operations(seed, &tasks, &mut calls, heal_at_ms);
        load::balance(&mut tasks, &calls, &mut knobs, &mut shape, options.shape.is_some());
        features::draw_drains(seed, shape.workers, &mut calls, heal_at_ms);
    }
    let ground = Ground { shape, tasks: &tasks, heal_at_ms };
    let faults = faults::draw_faults(seed, &families, &ground);
    let mut plan = Plan { seed, shape, knobs, tasks, calls, faults, heal_at_ms, horizon_ms: heal_at_ms, starts_at: STARTS_AT };
    plan.horizon_ms = heal_at_ms + load::settling_ms(&plan);
    plan
}

/// The families that this plan has.
fn families(seed: u64, options: &Swarm) -> BTreeSet<Family> {
    let mut draw = Draw::new(seed, "swarm families");
    let is_calm = draw.below(CALM_ONE_IN) == 0;
    // Each draws its coin, whether it may be on or not: the choice of one says nothing about the others.
    let heads: Vec<Family> = Family::ALL.into_iter().filter(|_| draw.chance(516)).collect();
    let mut families: BTreeSet<Family> = heads.into_iter().filter(|family| !is_calm && options.families.contains(family)).collect();
    families.extend(&options.always);
    if families.contains(&Family::DbLostTail) {
        // Replication is asynchronous then, and every failover loses the tail.
        families.remove(&Family::DbFailover);
    }
    families
}

fn draw_shape(draw: &mut Draw) -> Shape {
    Shape {
        schedulers: *draw.weighted(&[(25, 1), (35, 2), (35, 3), (5, 5)]),
        workers: *draw.weighted(&[(25, 1), (30, 2), (25, 3), (20, 4)]),
        slots: draw.between(1, 6) as u32,
        partitions: *draw.weighted(&[(20, 1), (15, 2), (15, 3), (20, 4), (10, 6), (20, 8)]),
    }
}

fn draw_knobs(draw: &mut Draw, families: &BTreeSet<Family>) -> Knobs {
    let semi_synchronous = !families.contains(&Family::DbLostTail);
    Knobs {
        network_ms: *draw.pick(&[(1, 1), (1, 5), (1, 20), (5, 60), (20, 150)]),
        database_ms: *draw.pick(&[(1, 2), (1, 10), (2, 30), (5, 100)]),
        replica_lag_ms: if semi_synchronous { *draw.pick(&[0, 0, 5, 50, 1_000]) } else { *draw.pick(&[50, 500, 2_000]) },
        semi_synchronous,
        wake_ups: draw.chance(800) || families.contains(&Family::WakeUps),
        commits_at_once: *draw.pick(&[1, 2, 3]),
    }
}
