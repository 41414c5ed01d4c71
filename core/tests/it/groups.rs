//! Limits that tasks share, over all partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::definition::{GroupLimits, Sharding, TaskDefinition, Trigger};
use punctual_core::instance::{InstanceRow, State};
use punctual_core::rate::RateLimit;
use punctual_core::time::Millis;

use punctual_sim::tabletop::{Run, World, every, task};

const SECOND: u64 = 1_000;

fn member(name: &str, trigger: Trigger, max_running: Option<u32>, rate: Option<RateLimit>) -> TaskDefinition {
    let mut definition = task(name, trigger);
    definition.group = Some(Arc::from("billing"));
    let policies = Arc::make_mut(&mut definition.policies);
    policies.group = Some(GroupLimits { max_running, rate });
    policies.concurrency.max_running = 50;
    definition
}

fn group(world: &mut World, tasks: u32, max_running: u32) {
    for number in 0..tasks {
        world.define(member(&format!("t{number}"), Trigger::Manual, Some(max_running), None));
    }
}

/// The most that ran at once, by what handlers did.
fn most_at_once(world: &World, takes: u64) -> usize {
    let mut events: Vec<(u64, i64)> = Vec::new();
    for began in &world.began {
        events.extend([(began.at, 1), (began.at + takes, -1)]);
    }
    events.sort_unstable();
    let (mut now, mut most) = (0_i64, 0_i64);
    for (_, change) in events {
        now += change;
        most = most.max(now);
    }
    most as usize
}

fn all_rows(world: &World) -> Vec<&InstanceRow> {
    world.data().instances.values().collect()
}

#[test]
fn tasks_of_a_group_share_its_limit_wherever_they_are_owned() {
    for (partitions, replicas) in [(1, 1), (8, 3)] {
        let mut world = World::new(partitions, replicas, 3);
        world.run(20 * SECOND);
        group(&mut world, 6, 2);
        for number in 0..6 {
            world.script(&format!("t{number}"), &[Run { takes: 5 * SECOND, ..Run::default() }]);
            world.trigger(&format!("t{number}"), None);
            world.trigger(&format!("t{number}"), None);
        }
        world.run(3 * SECOND);
        let states: BTreeMap<_, usize> = all_rows(&world).iter().fold(BTreeMap::new(), |mut states, row| {
            *states.entry(row.waits_for_group().is_some()).or_default() += 1;
            states
        });
        assert_eq!(states, BTreeMap::from([(false, 2), (true, 10)]), "those that wait say so");
        world.run(50 * SECOND);
        assert_eq!(world.began.len(), 12, "{partitions} partitions");
        assert_eq!(most_at_once(&world, 5 * SECOND), 2);
        assert!(world.data().slots.is_empty(), "every slot was given back");
        world.assert_sound();
    }
}

/// Owners of members and of the group die all the time: neither is a slot granted twice nor one lost.
#[test]
fn takeovers_on_both_sides_keep_the_limit_and_leak_no_slot() {
    let mut world = World::new(8, 3, 3);
    world.run(20 * SECOND);
    group(&mut world, 6, 2);
    let mut asked = 0;
    for round in 0..12_u64 {
        for number in 0..6 {
            let name = format!("t{number}");
            world.script(&name, &[Run { takes: 700, ..Run::default() }]);
            world.trigger(&name, None);
            asked += 1;
        }
        // Each time at another moment of the exchange.
        world.run(5 + round * 7);
        let replica = round as usize % 3;
        world.crash_replica(replica);
        world.run(14 * SECOND);
        world.start_replica(replica);
        world.run(8 * SECOND);
    }
    world.run(60 * SECOND);
    world.record_healed();
    world.run(120 * SECOND);
    assert_eq!(all_rows(&world).iter().filter(|row| row.state == State::Succeeded).count(), asked);
    assert!(world.data().slots.is_empty());
    world.assert_sound();
}

#[test]
fn what_is_cancelled_or_removed_while_it_waits_gives_its_place_up() {
    let mut world = World::settled(2);
    group(&mut world, 3, 1);
    world.script("t0", &[Run { takes: 10 * SECOND, ..Run::default() }]);
    world.trigger("t0", None);
    world.run(SECOND);
    (0..2).for_each(|_| _ = world.trigger("t1", None));
    world.trigger("t2", None);
    world.run(SECOND);
    assert_eq!(world.data().slots.len(), 4);
    world.cancel(world.first("t1"));
    world.remove("t2");
    world.run(SECOND);
    assert_eq!(world.data().slots.len(), 2, "one runs and one waits");
    world.run(20 * SECOND);
    assert_eq!(world.states("t1"), [State::Cancelled, State::Succeeded]);
    assert_eq!(world.states("t2"), [State::Cancelled]);
    assert!(world.data().slots.is_empty());
    world.assert_sound();
}

/// A running member that is cancelled gives its slot back with its end, whatever its handler does until then.
#[test]
fn a_running_member_that_is_cancelled_gives_its_slot_back() {
    let mut world = World::settled(1);
    group(&mut world, 2, 1);
    world.script("t0", &[Run { takes: 600 * SECOND, ..Run::default() }]);
    world.trigger("t0", None);
    world.run(SECOND);
    world.trigger("t1", None);
    world.run(2 * SECOND);
    assert_eq!(world.states("t1"), [State::Created]);
    world.cancel(world.first("t0"));
    world.run(30 * SECOND);
    assert_eq!((world.states("t0"), world.states("t1")), (vec![State::Cancelled], vec![State::Succeeded]));
    world.assert_sound();
}

#[test]
fn a_sharded_firing_takes_one_slot() {
    let mut world = World::settled(2);
    let mut definition = member("t", Trigger::Manual, Some(1), None);
    Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(3);
    world.define(definition);
    (0..2).for_each(|_| _ = world.trigger("t", None));
    world.run(500);
    assert_eq!(world.data().slots.len(), 2);
    world.run(20 * SECOND);
    assert_eq!(world.began.len(), 6);
    assert!(world.data().slots.is_empty());
    world.assert_sound();
}

/// A group's rate holds over all its tasks, and also where the group's owner changes: the next one doesn't know what was granted.
#[test]
fn a_groups_rate_holds_over_takeovers() {
    let mut world = World::new(4, 2, 3);
    world.run(20 * SECOND);
    let rate = RateLimit { starts: 2, per: Millis(5 * SECOND) };
    for number in 0..3 {
        world.define(member(&format!("t{number}"), Trigger::Manual, None, Some(rate)));
        world.script(&format!("t{number}"), &[Run { takes: 10, ..Run::default() }]);
    }
    for number in 0..15 {
        world.trigger(&format!("t{}", number % 3), None);
    }
    world.run(8 * SECOND);
    world.crash_replica(0);
    world.run(14 * SECOND);
    world.start_replica(0);
    world.run(60 * SECOND);
    assert_eq!(world.began.len(), 15);
    let mut begun: Vec<_> = world.began.iter().map(|began| began.at).collect();
    begun.sort_unstable();
    for stretch in begun.windows(3) {
        // From grant to start there are a few commits and messages.
        assert!(stretch[2] - stretch[0] >= 5 * SECOND - 200, "{begun:?}");
    }
    world.assert_sound();
}

#[test]
fn an_instance_that_waits_to_be_retried_keeps_its_slot() {
    let mut world = World::settled(2);
    for name in ["t0", "t1"] {
        let mut definition = member(name, Trigger::Manual, Some(1), None);
        let retry = &mut Arc::make_mut(&mut definition.policies).retry;
        retry.max_attempts = Some(2);
        retry.backoff.first = Millis(5 * SECOND);
        world.define(definition);
    }
    let failing = Run { end: punctual_core::protocol::End::Failed, takes: 100, ..Run::default() };
    world.script("t0", &[failing, Run { takes: 100, ..Run::default() }]);
    world.trigger("t0", None);
    world.run(SECOND);
    world.trigger("t1", None);
    world.run(SECOND);
    assert_eq!((world.states("t0"), world.states("t1")), (vec![State::Retrying], vec![State::Created]));
    world.run(20 * SECOND);
    assert_eq!((world.states("t0"), world.states("t1")), (vec![State::Succeeded], vec![State::Succeeded]));
    world.assert_sound();
}

/// The limit is raised and lowered by edits: each instance keeps to what its task knew when it asked.
#[test]
fn an_edit_counts_from_the_next_question_on() {
    let mut world = World::settled(3);
    world.define(member("t", every(1), Some(1), None));
    world.script("t", &[Run { takes: 3 * SECOND, ..Run::default() }]);
    world.run(10 * SECOND);
    world.define(member("t", every(1), Some(3), None));
    world.run(30 * SECOND);
    let running = all_rows(&world).iter().filter(|row| row.state == State::Running).count();
    assert_eq!(running, 3);
    world.define(TaskDefinition { group: None, ..member("t", Trigger::Manual, None, None) });
    world.run(60 * SECOND);
    assert!(world.data().slots.is_empty(), "also those that waited have had their turn");
    assert!(all_rows(&world).iter().all(|row| row.state.is_terminal()));
}
