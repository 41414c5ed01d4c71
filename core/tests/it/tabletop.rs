//! Random sequences of everything that can happen, healed at the end, judged by what the store and the workers saw.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::definition::{Blocking, MisfireAction, TaskDefinition, TimeoutAction, Trigger};
use punctual_core::ids::{PartitionId, ReplicaId};
use punctual_core::instance::{Origin, State};
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::End;
use punctual_core::time::{Millis, Monotonic};

use crate::world::{Fate, Run, World, every, minutely, task};

pub(crate) const TASKS: usize = 7;
const PARTITIONS: u16 = 2;

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Pass(u64),
    StepWall(i64),
    Trigger(usize, Option<u64>),
    /// Enabled, and with the interval times this.
    Define(usize, bool, u64),
    Remove(usize),
    /// One of the instances that have not ended.
    Cancel(usize),
    Behave(usize, Run),
    CrashWorker(usize),
    StartWorker(usize),
    Disconnect(usize),
    Connect(usize),
    Silence(usize),
    Unsilence(usize),
    HoldMessages(usize),
    LetMessagesThrough(usize),
    Drain(usize),
    Commit(Fate),
    FailSnapshots(u32),
    HoldStore,
    ReleaseStore,
    CrashReplica(usize),
    StartReplica(usize),
    PauseReplica(usize),
    ResumeReplica(usize),
    /// Somebody else holds the lease for a while.
    StealLease(u16),
}

fn name(index: usize) -> String {
    format!("t{index}")
}

fn definition(index: usize, enabled: bool, times: u64) -> TaskDefinition {
    let trigger = match index {
        0 => every(5 * times),
        1 => every(3 * times),
        2 => every(7 * times),
        3 => Trigger::FixedDelay { interval: Millis::from_secs(4 * times) },
        4 => minutely(),
        5 => Trigger::Manual,
        _ => Trigger::Delay { delay: Millis::from_secs(5 * times) },
    };
    let mut task = task(&name(index), trigger);
    task.enabled = enabled;
    task.retry.backoff = BackoffPolicy { kind: Backoff::Fixed, first: Millis(1_500), cap: Millis(10_000), jitter: Jitter::None };
    match index {
        0 => task.concurrency.blocking = Blocking::Queue { max_queue: 2 },
        1 => {
            task.concurrency.max_running = 2;
            task.concurrency.blocking = Blocking::Discard;
            task.misfire.action = MisfireAction::Skip;
            task.retry.max_attempts = Some(3);
        }
        2 => {
            task.concurrency.blocking = Blocking::Replace;
            task.misfire.action = MisfireAction::FireAll { limit: 3 };
            task.misfire.deadline = Some(Millis::from_secs(60));
        }
        3 => task.retry.max_attempts = Some(2),
        4 => {
            task.concurrency.max_running = 3;
            task.timeout.after = Some(Millis(2_500));
            task.timeout.grace = Millis(500);
        }
        5 => task.idempotent = false,
        _ => {
            task.retry.max_losses = 1;
            task.timeout.after = Some(Millis(500));
            task.timeout.action = TimeoutAction::Wait;
        }
    }
    task
}

fn run() -> impl Strategy<Value = Run> {
    let end = prop_oneof![4 => Just(End::Succeeded), 2 => Just(End::Failed), 1 => Just(End::FailedForGood)];
    let takes = prop_oneof![Just(0), 1..3_000_u64, 3_000..40_000_u64];
    (takes, end, prop_oneof![3 => Just(Some(0)), 2 => Just(Some(700)), 1 => Just(None)]).prop_map(|(takes, end, obeys_after)| Run {
        takes,
        end,
        obeys_after,
    })
}

pub(crate) fn op(replicas: usize) -> impl Strategy<Value = Op> {
    let worker = || 0..2_usize;
    let replica = move || 0..replicas;
    let of_tasks = || 0..TASKS;
    let calm = prop_oneof![
        8 => (0..200_u64).prop_map(Op::Pass),
        10 => (200..8_000_u64).prop_map(Op::Pass),
        3 => (8_000..70_000_u64).prop_map(Op::Pass),
        4 => (of_tasks(), prop_oneof![Just(None), (0..9_000_u64).prop_map(Some)]).prop_map(|(task, delay)| Op::Trigger(task, delay)),
        4 => (of_tasks(), any::<bool>(), 1..3_u64).prop_map(|(task, enabled, times)| Op::Define(task, enabled, times)),
        2 => of_tasks().prop_map(Op::Remove),
        3 => (0..8_usize).prop_map(Op::Cancel),
        3 => (of_tasks(), run()).prop_map(|(task, run)| Op::Behave(task, run)),
    ];
    let workers = prop_oneof![
        1 => worker().prop_map(Op::CrashWorker),
        2 => worker().prop_map(Op::StartWorker),
        1 => worker().prop_map(Op::Disconnect),
        2 => worker().prop_map(Op::Connect),
        1 => worker().prop_map(Op::Silence),
        1 => worker().prop_map(Op::Unsilence),
        1 => worker().prop_map(Op::HoldMessages),
        1 => worker().prop_map(Op::LetMessagesThrough),
    ];
    let fate = prop_oneof![3 => Just(Fate::Carried), 1 => Just(Fate::Refused), 1 => Just(Fate::UnknownApplied), 1 => Just(Fate::UnknownNotApplied)];
    let store = prop_oneof![
        4 => fate.prop_map(Op::Commit),
        1 => (1..3_u32).prop_map(Op::FailSnapshots),
        1 => Just(Op::HoldStore),
        2 => Just(Op::ReleaseStore),
    ];
    let schedulers = prop_oneof![
        1 => replica().prop_map(Op::CrashReplica),
        2 => replica().prop_map(Op::StartReplica),
        1 => replica().prop_map(Op::PauseReplica),
        2 => replica().prop_map(Op::ResumeReplica),
        1 => (0..PARTITIONS).prop_map(Op::StealLease),
    ];
    let step = prop_oneof![-7_200_000..-1_i64, -900..900_i64, 1..7_200_000_i64].prop_map(Op::StepWall);
    prop_oneof![30 => calm, 8 => workers, 5 => store, 3 => schedulers, 1 => step, 1 => worker().prop_map(Op::Drain)]
}

pub(crate) fn perform(world: &mut World, op: Op) {
    match op {
        Op::Pass(millis) => world.run(millis),
        Op::StepWall(by) => world.step_wall(by),
        Op::Trigger(index, delay) => {
            if world.is_defined(&name(index)) {
                world.trigger(&name(index), delay);
            }
        }
        Op::Define(index, enabled, times) => {
            world.define(definition(index, enabled, times));
        }
        Op::Remove(index) => {
            if world.is_defined(&name(index)) {
                world.remove(&name(index));
            }
        }
        Op::Cancel(nth) => {
            let live = world.store.instances.values().filter(|row| !row.state.is_terminal()).map(|row| row.id).nth(nth);
            if let Some(id) = live {
                world.cancel(id);
            }
        }
        Op::Behave(index, run) => world.script(&name(index), &[run]),
        Op::CrashWorker(worker) => world.crash_worker(worker),
        Op::StartWorker(worker) => {
            if world.workers[worker].node.is_none() {
                world.start_worker(worker);
            }
        }
        Op::Disconnect(worker) => world.disconnect(worker),
        Op::Connect(worker) => world.connect(worker),
        Op::Silence(worker) => world.silence(worker),
        Op::Unsilence(worker) => world.unsilence(worker),
        Op::HoldMessages(worker) => world.hold_messages_to(worker),
        Op::LetMessagesThrough(worker) => world.let_messages_through_to(worker),
        Op::Drain(worker) => world.drain(worker),
        Op::Commit(fate) => world.fates.push_back(fate),
        Op::FailSnapshots(count) => world.failing_snapshots += count,
        Op::HoldStore => world.store_is_held = true,
        Op::ReleaseStore => world.release_store(),
        Op::CrashReplica(replica) => world.crash_replica(replica),
        Op::StartReplica(replica) => {
            if world.replicas[replica].scheduler.is_none() {
                world.start_replica(replica);
            }
        }
        Op::PauseReplica(replica) => world.pause_replica(replica),
        Op::ResumeReplica(replica) => world.resume_replica(replica),
        Op::StealLease(partition) => {
            let now = Monotonic(world.time);
            let lease = world.store.lease(PartitionId(partition));
            lease.epoch.0 += 1;
            lease.owner = Some(ReplicaId("another".into()));
            lease.expires_at = now + Millis(3_000);
        }
    }
}

/// All is well again, and nothing new is to come.
fn heal(world: &mut World) {
    world.fates.clear();
    world.failing_snapshots = 0;
    world.release_store();
    for replica in 0..world.replicas.len() {
        world.resume_replica(replica);
        if world.replicas[replica].scheduler.is_none() {
            world.start_replica(replica);
        }
    }
    for worker in 0..world.workers.len() {
        world.let_messages_through_to(worker);
        world.unsilence(worker);
        world.crash_if_draining(worker);
        if world.workers[worker].node.is_none() {
            world.start_worker(worker);
        }
        world.connect(worker);
    }
    // A clock that was set back is right again: what was put off meanwhile may come.
    world.step_wall(world.highest_offset - world.wall_offset);
    world.run(30_000);
    for index in 0..TASKS {
        world.script(&name(index), &[Run::default()]);
        if world.is_defined(&name(index)) {
            world.define(definition(index, false, 1));
        }
    }
    // The longest handler, lease, grace and retries.
    world.run(300_000);
}

fn judge(world: &World) -> Result<(), String> {
    if let Some(violation) = world.store.violations.first() {
        return Err(violation.clone());
    }
    let mut seen = BTreeMap::new();
    for began in &world.began {
        if seen.insert((began.instance, began.fence), began.worker).is_some() {
            return Err(format!("instance {} began twice under fence {}", began.instance, began.fence));
        }
    }
    for row in world.store.instances.values() {
        let definition = &world.store.definitions[&(row.task, row.version)];
        let began = world.began.iter().filter(|began| began.instance == row.id);
        if !definition.idempotent && began.count() > 1 {
            return Err(format!("instance {} is not idempotent and began twice", row.id));
        }
        let made_at = row.transitions[0].at;
        if row.origin != Origin::Manual && !world.store.wall_was_set && made_at < row.fire_time {
            return Err(format!("instance {} was made at {made_at}, before its fire time {}", row.id, row.fire_time));
        }
        if row.origin == Origin::CatchUp && definition.misfire.action == MisfireAction::Skip {
            return Err(format!("instance {} made up for a fire time that was to be skipped", row.id));
        }
        if !row.state.is_terminal() {
            return Err(format!("instance {} of {} is stuck: {:?} {:#?}", row.id, definition.name, row.state, row.transitions));
        }
        if row.state == State::Succeeded
            && !world.began.iter().any(|began| began.instance == row.id && began.ended.is_some_and(|(_, whole)| whole))
        {
            return Err(format!("instance {} has succeeded and nobody did it", row.id));
        }
    }
    for occurrence in &world.store.occurrences {
        let action = world.store.definitions.get(&(occurrence.task, occurrence.version)).map(|definition| definition.misfire.action);
        let is_by_policy = match occurrence.outcome {
            Outcome::Coalesced => action == Some(MisfireAction::FireOnce),
            Outcome::MisfireSkipped => action == Some(MisfireAction::Skip),
            Outcome::CatchUpLimit => matches!(action, Some(MisfireAction::FireAll { .. })),
            _ => true,
        };
        if !is_by_policy {
            return Err(format!("{occurrence:?} under {action:?}"));
        }
    }
    if !world.store.inbox.is_empty() {
        return Err(format!("the inbox still holds {:?}", world.store.inbox));
    }
    if world.running_count() > 0 {
        return Err(format!("{} handlers still run", world.running_count()));
    }
    for node in &world.replicas {
        let held = node.scheduler.as_ref().map_or(0, |scheduler| scheduler.instance_count());
        if held > 0 {
            return Err(format!("a scheduler still has {held} instances in memory"));
        }
    }
    for node in &world.workers {
        let held = node.node.as_ref().map_or(0, |node| node.running_count() + node.report_count());
        if held > 0 {
            return Err(format!("a worker still holds {held} attempts or reports"));
        }
    }
    Ok(())
}

/// What becomes of these operations in this world.
pub(crate) fn outcome(replicas: usize, ops: &[Op]) -> (Result<(), String>, World) {
    let mut world = World::new(PARTITIONS, replicas, 2);
    world.run(100);
    for index in 0..TASKS {
        world.define(definition(index, true, 1));
    }
    for op in ops {
        perform(&mut world, *op);
    }
    heal(&mut world);
    (judge(&world), world)
}

pub(crate) fn check(replicas: usize, ops: &[Op]) {
    if let (Err(why), _) = outcome(replicas, ops) {
        panic!("{why}");
    }
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default);
    ProptestConfig { cases, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn whatever_happens_to_one_scheduler_all_is_accounted_for(ops in proptest::collection::vec(op(1), 0..40)) {
        check(1, &ops);
    }

    #[test]
    fn whatever_happens_to_two_schedulers_all_is_accounted_for(ops in proptest::collection::vec(op(2), 0..40)) {
        check(2, &ops);
    }
}
