//! Which plans are drawn: the swarm's, within what can be done to real processes, and a full disk now and then.

use std::collections::BTreeSet;

use punctual_sim::draw::Draw;
use punctual_sim::load;
use punctual_sim::plan::{CallKind, Family, Fault, FaultKind, Plan, Selector, Shape};
use punctual_sim::swarm::{Swarm, swarm};

/// Most submissions of a flood: each is a request of its own here.
pub const FLOOD_MAX: usize = 3_000;
/// Families that can't be done: a pair that confirms each commit loses no tail, and the database's clock is the machine's.
const LEFT_OUT: [Family; 2] = [Family::DbLostTail, Family::DatabaseClock];
/// Attempts that a worker runs at once, and partitions.
const SLOTS: u32 = 6;
const PARTITIONS: u16 = 8;
/// Shortest and longest time without room.
const FULL_MS: (u64, u64) = (3_000, 20_000);
/// Before this nothing goes wrong.
const QUIET_MS: u64 = 5_000;

/// What is to be drawn.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The seed.
    pub seed: u64,
    /// When the world heals, in milliseconds.
    pub heal_at_ms: u64,
    /// Schedulers.
    pub schedulers: usize,
    /// Workers.
    pub workers: usize,
    /// Tasks; drawn where it is left out.
    pub tasks: Option<usize>,
    /// The families that may be drawn, each in half of the plans; all where it is left out.
    pub families: Option<BTreeSet<Family>>,
    /// Whether each plan has all of them.
    pub all: bool,
}

/// The plan of this seed.
pub fn draw(drawing: &Drawing) -> Plan {
    let can: BTreeSet<Family> = Family::ALL.into_iter().filter(|family| !LEFT_OUT.contains(family)).collect();
    let families: BTreeSet<Family> = drawing.families.as_ref().map_or(can.clone(), |asked| asked & &can);
    let minutes = drawing.heal_at_ms.div_ceil(60_000) as usize;
    let options = Swarm {
        always: if drawing.all { families.clone() } else { BTreeSet::new() },
        families,
        shape: Some(Shape { schedulers: drawing.schedulers, workers: drawing.workers, slots: SLOTS, partitions: PARTITIONS }),
        tasks: drawing.tasks.map_or((6, 16), |tasks| (tasks, tasks)),
        calls: (4 * minutes, 12 * minutes),
        heal_at_ms: (drawing.heal_at_ms, drawing.heal_at_ms),
        ..Swarm::default()
    };
    let mut plan = swarm(drawing.seed, &options);
    // Whom an operator meets is found in the database's memory, which real ones don't show.
    plan.calls.retain(|call| !matches!(call.what, CallKind::Operate { .. }));
    for fault in &mut plan.faults {
        if let FaultKind::Flood { count, .. } = &mut fault.kind {
            *count = (*count).min(FLOOD_MAX);
        }
    }
    fill(&mut plan, options.always.contains(&Family::DbJitter));
    plan.horizon_ms = plan.heal_at_ms + load::settling_ms(&plan);
    plan
}

/// Half of the plans with a database that is slow or away have one that is full as well. From a stream of its own: the swarm's seeds keep
/// their meaning.
fn fill(plan: &mut Plan, always: bool) {
    let semi_synchronous = plan.knobs.semi_synchronous;
    let mut draw = Draw::new(plan.seed, "chaos full");
    let has_jitter = plan.faults.iter().any(|fault| fault.kind.family(semi_synchronous) == Family::DbJitter);
    if !has_jitter || !(draw.chance(500) || always) {
        return;
    }
    let lasts_ms = draw.between(FULL_MS.0, FULL_MS.1).min(plan.heal_at_ms / 4) / 100 * 100;
    let latest = plan.heal_at_ms.saturating_sub(lasts_ms);
    let at_ms = draw.between(QUIET_MS.min(latest), latest) / 100 * 100;
    plan.faults.push(Fault { at_ms, lasts_ms, kind: FaultKind::DatabaseFull, on: Selector::World });
    plan.faults.sort_by_key(|fault| fault.at_ms);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(seed: u64, all: bool) -> Drawing {
        Drawing { seed, heal_at_ms: 240_000, schedulers: 3, workers: 4, tasks: None, families: None, all }
    }

    #[test]
    fn plans_can_be_carried_out_and_all_kinds_of_faults_come() {
        let plans: Vec<Plan> = (0..60).map(|seed| draw(&drawing(seed, false))).collect();
        for plan in &plans {
            assert_eq!(punctual_sim::problems::problems(plan), []);
            assert!(plan.knobs.semi_synchronous);
            let floods =
                plan.faults.iter().filter_map(|fault| if let FaultKind::Flood { count, .. } = fault.kind { Some(count) } else { None });
            assert!(floods.max().unwrap_or(0) <= FLOOD_MAX);
        }
        let full = plans.iter().filter(|plan| plan.faults.iter().any(|fault| fault.kind == FaultKind::DatabaseFull)).count();
        assert!((1..plans.len()).contains(&full), "{full}");
    }

    #[test]
    fn all_families_are_in_each_plan_where_that_is_asked_for() {
        let plan = draw(&drawing(7, true));
        let has: BTreeSet<Family> = plan.faults.iter().map(|fault| fault.kind.family(true)).collect();
        let wanted: BTreeSet<Family> = Family::ALL.into_iter().filter(|family| !LEFT_OUT.contains(family)).collect();
        assert_eq!(has, wanted);
        assert!(plan.faults.iter().any(|fault| fault.kind == FaultKind::DatabaseFull));
    }
}
