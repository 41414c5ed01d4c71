//! Random sequences of everything that can happen, healed at the end, judged by what the store and the workers saw.

use std::sync::Arc;

use proptest::prelude::*;
use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::definition::{Blocking, MisfireAction, Sharding, TaskDefinition, TimeoutAction, Trigger};
use punctual_core::ids::{InstanceId, PartitionId};
use punctual_core::inbox::NodeMark;
use punctual_core::instance::State;
use punctual_core::protocol::End;
use punctual_core::time::Millis;
use punctual_core::workflow::{FailurePolicy, TriggerRule};
use punctual_sim::tabletop::{Fate, Run, World, every, minutely, task};

use crate::workflows::{node, workflow_of};

pub(crate) const TASKS: usize = 8;
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
    /// A node of one of the workflow's runs that have not ended.
    Mark(usize, u32, NodeMark),
    /// One of the workflow's runs that have ended, from a node.
    RerunFrom(usize, usize, bool),
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
        WORKFLOW => every(6 * times),
        _ => Trigger::Delay { delay: Millis::from_secs(5 * times) },
    };
    let mut task = task(&name(index), trigger);
    task.enabled = enabled;
    Arc::make_mut(&mut task.policies).retry.backoff =
        BackoffPolicy { kind: Backoff::Fixed, first: Millis(1_500), cap: Millis(10_000), jitter: Jitter::None };
    match index {
        0 => Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Queue { max_queue: 2 },
        1 => {
            Arc::make_mut(&mut task.policies).concurrency.max_running = 2;
            Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Discard;
            Arc::make_mut(&mut task.policies).misfire.action = MisfireAction::Skip;
            Arc::make_mut(&mut task.policies).retry.max_attempts = Some(3);
        }
        2 => {
            Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Replace;
            Arc::make_mut(&mut task.policies).misfire.action = MisfireAction::FireAll { limit: 3 };
            Arc::make_mut(&mut task.policies).misfire.deadline = Some(Millis::from_secs(60));
        }
        3 => Arc::make_mut(&mut task.policies).retry.max_attempts = Some(2),
        4 => {
            Arc::make_mut(&mut task.policies).concurrency.max_running = 3;
            Arc::make_mut(&mut task.policies).timeout.after = Some(Millis(2_500));
            Arc::make_mut(&mut task.policies).timeout.grace = Millis(500);
        }
        5 => task.idempotent = false,
        WORKFLOW => return workflow(task),
        _ => {
            Arc::make_mut(&mut task.policies).retry.max_losses = 1;
            Arc::make_mut(&mut task.policies).timeout.after = Some(Millis(500));
            Arc::make_mut(&mut task.policies).timeout.action = TimeoutAction::Wait;
        }
    }
    task
}

/// The task that is a workflow.
const WORKFLOW: usize = 7;
/// Its nodes.
const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Each rule but one, each policy, shards, and other tasks.
fn workflow(base: TaskDefinition) -> TaskDefinition {
    let [mut a, mut b, mut c, mut d, mut e, mut f] =
        [(0, &[][..]), (1, &["a"]), (2, &["a"]), (3, &["b", "c"]), (4, &["b", "c"]), (5, &["d"])]
            .map(|(index, after)| node(NODES[index], after));
    a.on_failure = FailurePolicy::Continue;
    b.rule = TriggerRule::AllDone;
    c.on_failure = FailurePolicy::FailRun;
    d.rule = TriggerRule::NoneFailed;
    e.rule = TriggerRule::OneFailed;
    f.rule = TriggerRule::OneSucceeded;
    let made = workflow_of(&base.name, vec![a, b, c, d, e, f], |node, definition| {
        definition.policies = base.policies.clone();
        if node == "b" {
            Arc::make_mut(&mut definition.policies).sharding = Sharding::Count(2);
        }
        if node == "d" {
            Arc::make_mut(&mut definition.policies).retry.max_attempts = Some(2);
        }
        if node == "e" || node == "f" {
            definition.calls = Some(name(if node == "e" { 1 } else { 3 }).into());
        }
    });
    TaskDefinition { workflow: made.workflow, ..base }
}

fn run() -> impl Strategy<Value = Run> {
    let end = prop_oneof![4 => Just(End::Succeeded), 2 => Just(End::Failed), 1 => Just(End::FailedForGood)];
    let takes = prop_oneof![Just(0), 1..3_000_u64, 3_000..40_000_u64];
    let obeys_after = prop_oneof![3 => Just(Some(0)), 2 => Just(Some(700)), 1 => Just(None)];
    let when_cancelled = prop_oneof![3 => Just(End::Cancelled), 1 => Just(End::Failed), 1 => Just(End::Succeeded)];
    (takes, end, obeys_after, when_cancelled).prop_map(|(takes, end, obeys_after, when_cancelled)| Run {
        when_cancelled,
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
        2 => (0..3_usize, 0..7_u32, prop::sample::select(NodeMark::ALL.to_vec())).prop_map(|(nth, node, mark)| Op::Mark(nth, node, mark)),
        2 => (0..3_usize, 0..NODES.len(), any::<bool>()).prop_map(|(nth, node, cascade)| Op::RerunFrom(nth, node, cascade)),
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
            let live = world.data().instances.values().filter(|row| !row.state.is_terminal()).map(|row| row.id).nth(nth);
            if let Some(id) = live {
                world.cancel(id);
            }
        }
        Op::Mark(nth, node, mark) => {
            if let Some(id) = run_of_workflow(world, nth, false) {
                world.mark(id, node, mark);
            }
        }
        Op::RerunFrom(nth, node, cascade) => {
            if let Some(id) = run_of_workflow(world, nth, true) {
                world.rerun_from(id, &[NODES[node]], cascade);
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
            world.steal_lease(PartitionId(partition), "another", Millis(3_000));
        }
    }
}

fn run_of_workflow(world: &World, nth: usize, has_ended: bool) -> Option<InstanceId> {
    let rows = world.rows(&name(WORKFLOW));
    rows.into_iter().filter(|row| row.is_run() && row.state.is_terminal() == has_ended).map(|row| row.id).nth(nth)
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
    world.record_healed();
    // The longest handler, lease, grace and retries.
    world.run(300_000);
    world.record_what_is_left();
}

/// By all properties, and by what no record shows: what only the definition knows, and what the machines hold in memory.
fn judge(world: &World) -> Result<(), String> {
    if let Some(violation) = world.violations().into_iter().next() {
        return Err(violation);
    }
    for row in world.data().instances.values() {
        let definition = world.data().definition(row.task, row.version).expect("it has one");
        let began = world.began.iter().filter(|began| began.instance == row.id);
        if !definition.idempotent && began.count() > 1 {
            return Err(format!("instance {} is not idempotent and began twice", row.id));
        }
        // Its parts, or what it has called, did; or nobody was to, since somebody has said so, or it had been done in the run before.
        let is_without_attempts = row.has_parts() || row.calls().is_some() || row.transitions.len() == 1;
        if row.state == State::Succeeded
            && !is_without_attempts
            && !world.began.iter().any(|began| began.instance == row.id && began.ended.is_some_and(|(_, whole)| whole))
        {
            return Err(format!("instance {} has succeeded and nobody did it", row.id));
        }
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
