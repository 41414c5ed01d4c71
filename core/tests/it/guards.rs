//! Each guard, switched off, makes something fail that holds with it, and it was hit.

use punctual_core::definition::{Band, Blocking, Chain, ChainOn, MisfireAction, Sharding, TaskDefinition, Trigger};
use punctual_core::guard::{self, Guard};
use punctual_core::ids::Fence;
use punctual_core::instance::State;
use punctual_core::limits;
use punctual_core::probe;
use punctual_core::protocol::{End, Report, ToScheduler};
use punctual_core::rate::RateLimit;
use punctual_core::scheduler::Event;
use punctual_core::time::Millis;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::failures;
use crate::routing;
use punctual_sim::tabletop::{Fate, PauseTarget, Run, World, every, minutely, task};

/// What goes wrong in a scenario, if anything.
type Scenario = fn() -> Result<(), String>;

fn sound(world: &World) -> Result<(), String> {
    world.violations().into_iter().next().map_or(Ok(()), Err)
}

fn ensure(holds: bool, property: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(property.into()) }
}

fn slow(takes: u64) -> Run {
    Run { takes, obeys_after: None, ..Run::default() }
}

/// A worker that was lost reports while another one is at it.
fn late_result() -> Result<(), String> {
    let mut world = World::settled(2);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).timeout.grace = Millis(3_600_000);
    world.define(definition);
    world.script("a", &[Run { end: End::Failed, ..slow(25_000) }, slow(100_000)]);
    world.trigger("a", None);
    world.run(1_000);
    let holder = world.began[0].worker;
    world.silence(holder);
    world.run(50_000);
    world.unsilence(holder);
    world.run(120_000);
    sound(&world)?;
    ensure(world.states("a") == [State::Succeeded], "effect.once: the current attempt's success was lost to an old one's failure")
}

/// A return that was delayed speaks of an attempt that is over.
fn late_return() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    definition.idempotent = false;
    world.define(definition);
    world.script("a", &[slow(20_000)]);
    world.hold_messages_to(0);
    world.trigger("a", None);
    world.run(100);
    let row = world.rows("a")[0].clone();
    let connection = world.connection_of(0);
    let old = ToScheduler::Returned { instance: row.id, fence: Fence(row.fence.0 - 1) };
    world.tell_replica(0, Event::WorkerMessages { connection, messages: vec![old] });
    world.run(1_000);
    world.let_messages_through_to(0);
    world.run(60_000);
    sound(&world)?;
    ensure(world.rows("a")[0].fence == row.fence, "fence.monotone: an attempt was given out again on the word of an older one")
}

/// The assignment's commit never happened.
fn speech_before_commit() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.run(100);
    world.store_is_held = true;
    world.trigger("a", None);
    world.release_store();
    world.run(1);
    world.fates.push_back(Fate::UnknownNotApplied);
    world.run(1);
    world.store_is_held = true;
    world.run(50);
    let unjustified = world.began.iter().any(|began| !world.data().instances.contains_key(&began.instance));
    ensure(!unjustified, "a handler began whose assignment was not committed")
}

fn unknown_commit() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", every(10)));
    world.run(5_000);
    world.fates.push_back(Fate::UnknownNotApplied);
    world.run(60_000);
    sound(&world)
}

fn refused_commit() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", every(10)));
    world.run(5_000);
    world.fates.push_back(Fate::Refused);
    world.run(60_000);
    sound(&world)
}

fn cursor_with_firing() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", every(10)));
    world.run(12_000);
    world.crash_replica(0);
    world.start_replica(0);
    world.run(20_000);
    sound(&world)
}

fn missed_by_policy() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", every(10));
    Arc::make_mut(&mut definition.policies).misfire.action = MisfireAction::Skip;
    world.define(definition);
    world.run(5_000);
    world.crash_replica(0);
    world.run(60_000);
    world.start_replica(0);
    world.run(1_000);
    let late = world.rows("a").iter().filter(|row| row.created_at().since(row.fire_time) >= Millis(5_000)).count();
    ensure(late == 0, "misfire.by_policy: a fire time that was to be skipped was fired")
}

fn limit() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", every(5));
    Arc::make_mut(&mut definition.policies).concurrency.blocking = Blocking::Discard;
    world.define(definition);
    world.script("a", &[slow(12_000)]);
    world.run(30_000);
    sound(&world)
}

fn bounded_attempts() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    Arc::make_mut(&mut definition.policies).retry.max_attempts = Some(2);
    Arc::make_mut(&mut definition.policies).retry.backoff.first = Millis(1_000);
    world.define(definition);
    world.script("a", &[Run { takes: 10, end: End::Failed, ..Run::default() }]);
    world.trigger("a", None);
    world.run(300_000);
    sound(&world)
}

fn not_idempotent() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    definition.idempotent = false;
    world.define(definition);
    world.script("a", &[slow(30_000)]);
    world.trigger("a", None);
    world.run(1_000);
    world.crash_worker(0);
    world.start_worker(0);
    world.run(60_000);
    sound(&world)?;
    ensure(world.began.len() == 1, "effect.once: what is not idempotent was begun twice")
}

/// The inbox is read again while an entry's commit is under way.
fn inbox_once() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.run(100);
    world.store_latency = 100;
    world.trigger("a", None);
    world.tell_replica(0, Event::InboxSignalled);
    for _ in 0..20 {
        world.run(60);
        world.tell_replica(0, Event::InboxSignalled);
    }
    world.run(2_000);
    sound(&world)?;
    ensure(world.rows("a").len() == 1, "inbox.once: an entry was applied twice")
}

/// An owner that was paused beyond its lease hears a result that it takes for an old one.
fn trusted_lease() -> Result<(), String> {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    let owner = world.owner();
    world.define(task("a", Trigger::Manual));
    world.script("a", &[slow(1_000)]);
    world.run(100);
    world.pause_replica(owner);
    world.run(12_000);
    world.trigger("a", None);
    world.store_latency = 300;
    world.run(3_000);
    // Its renewals get no answer yet: all that it can go by is its own clock.
    let instance = world.first("a");
    let fence = world.rows("a")[0].fence;
    let report = Report {
        instance,
        fence,
        end: End::Succeeded,
        code: None,
        detail: None,
        output: Default::default(),
        result: None,
        items: None,
        retry_after: None,
    };
    let connection = world.connection_between(0, owner);
    let before = world.alerts.len();
    world.replicas[owner].paused = false;
    world.tell_replica(owner, Event::WorkerMessages { connection, messages: vec![ToScheduler::Finished(report)] });
    world.run(100);
    let is_late = |alert: &punctual_core::scheduler::Alert| matches!(alert, punctual_core::scheduler::Alert::LateResult { .. });
    ensure(
        !world.alerts[before..].iter().any(|(_, alert)| is_late(alert)),
        "lease.exclusive: an owner spoke on the strength of a lease that had run out",
    )
}

/// The result is lost with its connection.
fn kept_result() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[slow(3_000)]);
    world.trigger("a", None);
    world.run(1_000);
    world.disconnect(0);
    world.run(5_000);
    world.connect(0);
    world.run(30_000);
    sound(&world)?;
    ensure(world.began.len() == 1 && world.states("a") == [State::Succeeded], "effect.once: a completed attempt was repeated")
}

fn self_fencing() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[Run { takes: 300_000, ..Run::default() }]);
    world.trigger("a", None);
    world.run(1_000);
    world.silence(0);
    world.run(60_000);
    ensure(world.running_count() == 0, "a handler runs on that no scheduler counts on any more")
}

/// An account is asked for and given while an assignment is on its way.
fn account_and_assignment() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    definition.idempotent = false;
    world.define(definition);
    world.script("a", &[slow(10_000)]);
    world.run(100);
    world.network_latency = 200;
    world.trigger("a", None);
    world.run(50);
    let connection = world.connection_of(0);
    let hello = world.hello_of(0);
    world.tell_replica(0, Event::WorkerMessages { connection, messages: vec![ToScheduler::Hello(hello)] });
    world.run(60_000);
    sound(&world)?;
    ensure(world.began.len() == 1, "effect.once: an assignment on its way was taken for never received")
}

/// An assignment is on its way for so long that its worker may have been given up meanwhile.
fn late_assignment() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.run(100);
    world.hold_messages_to(0);
    world.trigger("a", None);
    world.run(40_000);
    let late = world.rows("a")[0].fence;
    world.let_messages_through_to(0);
    world.run(60_000);
    sound(&world)?;
    ensure(world.states("a") == [State::Succeeded], "heal.converges: what was returned was not given out again")?;
    ensure(world.began.iter().all(|began| began.fence > late), "attempt.exclusive: an assignment from before the silence was begun")
}

/// Two tasks that fire each other, written before anybody could check.
fn ring_of_tasks() -> Result<(), String> {
    let mut world = World::settled(1);
    let after = |name: &str, other: &str| {
        let chains = [Chain { task: other.into(), on: ChainOn::Success }];
        TaskDefinition { chains: Some(chains.into()), ..task(name, Trigger::Manual) }
    };
    world.define(task("a", Trigger::Manual));
    world.define(after("b", "a"));
    world.define(after("a", "b"));
    ["a", "b"].into_iter().for_each(|name| world.script(name, &[slow(10)]));
    world.trigger("a", None);
    world.run(60_000);
    let fired = world.rows("a").len() + world.rows("b").len();
    ensure(fired <= limits::CHAIN_HOPS_MAX as usize + 1, "chain.ends: tasks fire each other for ever")
}

/// More come than the rate lets start.
fn rate() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    let policies = Arc::make_mut(&mut definition.policies);
    policies.rate = Some(RateLimit { starts: 2, per: Millis(10_000) });
    policies.concurrency.max_running = 10;
    world.define(definition);
    for _ in 0..6 {
        world.trigger("a", None);
    }
    world.run(40_000);
    sound(&world)?;
    let starts = world.starts("a");
    let is_kept = starts.windows(3).all(|three| three[2] - three[0] >= 9_900);
    ensure(starts.len() == 6 && is_kept, "rate.held: more started in the time of the limit than it allows")
}

/// A task whose instances all fail.
fn retry_budget() -> Result<(), String> {
    let (retries, _) = failures::retries_on_a_budget(50);
    ensure(retries <= 10, "a task had more retries than its budget gives")
}

/// Everything that depends on one downstream fails.
fn open_breaker() -> Result<(), String> {
    ensure(failures::storm() <= 200, "attempts went on to a downstream whose breaker was open")
}

/// A worker from before there were shards is the only one with room.
fn worker_of_before() -> Result<(), String> {
    let given = routing::shards_given_to_a_worker_of_before();
    ensure(given == 0, "a worker was given a shard that it takes for the whole firing")
}

/// A task's queue is full when one of its instances is to run once more.
fn full_queue() -> Result<(), String> {
    let mut world = World::settled(1);
    let mut definition = task("a", Trigger::Manual);
    let concurrency = &mut Arc::make_mut(&mut definition.policies).concurrency;
    (concurrency.max_running, concurrency.blocking) = (1, Blocking::Queue { max_queue: 0 });
    world.define(definition);
    world.trigger("a", None);
    world.run(5_000);
    world.script("a", &[slow(10_000)]);
    world.trigger("a", None);
    world.run(1_000);
    world.rerun(world.first("a"));
    world.run(1_000);
    ensure(world.states("a").last() == Some(&State::Waiting), "what was to run once more was discarded")
}

/// Three tasks of a group that lets one run at a time, and two begin in four seconds.
fn group() -> Result<(), String> {
    let mut world = World::settled(3);
    world.run(5_000);
    for name in ["a", "b", "c"] {
        let mut definition = task(name, Trigger::Manual);
        definition.group = Some(Arc::from("group"));
        let rate = Some(punctual_core::rate::RateLimit { starts: 2, per: Millis(4_000) });
        Arc::make_mut(&mut definition.policies).group = Some(punctual_core::definition::GroupLimits { max_running: Some(1), rate });
        world.define(definition);
        world.script(name, &[slow(1_000)]);
        world.trigger(name, None);
    }
    world.run(1_600);
    let running = world.began.len();
    world.run(15_000);
    ensure(running == 1 && world.began.len() == 3, "two began at once, or one never did")
}

/// A diamond, one side of which takes long.
fn diamond() -> Result<(), String> {
    let mut world = World::settled(2);
    world.define(crate::workflows::diamond("w"));
    world.script_node("w", "b", &[slow(10_000)]);
    world.trigger("w", None);
    world.run(30_000);
    sound(&world)?;
    ensure(world.states("w").iter().all(|state| *state == State::Succeeded), "the run has not succeeded")
}

/// A diamond whose owner dies when its first node has ended.
fn diamond_taken_over() -> Result<(), String> {
    let mut world = World::new(1, 2, 2);
    world.run(15_000);
    world.define(crate::workflows::diamond("w"));
    world.script("w", &[slow(3_000)]);
    world.trigger("w", None);
    world.run(5_000);
    let owner = world.owner();
    world.crash_replica(owner);
    world.run(60_000);
    sound(&world)?;
    ensure(world.states("w").iter().all(|state| *state == State::Succeeded), "the run has not succeeded")?;
    ensure(world.began.len() == 4, "a node that had ended ran again")
}

/// One worker, and more urgent work than it can do.
fn mixed_bands() -> Result<(), String> {
    let mut world = World::settled(1);
    for (name, band) in [("urgent", Band::Urgent), ("low", Band::Low)] {
        let mut definition = task(name, every(1));
        definition.band = band;
        Arc::make_mut(&mut definition.policies).concurrency.max_running = 50;
        world.define(definition);
        world.script(name, &[slow(10_000)]);
    }
    world.run(600_000);
    let low = world.rows("low").iter().filter(|row| row.attempt > 0).count();
    ensure(low * 25 >= world.began.len(), "low work does not have its share")
}

/// A paused task's fire times pass by and what is asked for waits, also with another owner.
fn paused() -> Result<(), String> {
    let mut world = World::settled(1);
    world.define(task("a", every(2)));
    world.set_pause(&PauseTarget::All, true);
    world.trigger("a", None);
    world.run(10_000);
    world.crash_replica(0);
    world.start_replica(0);
    world.run(20_000);
    ensure(world.starts("a").is_empty() && world.rows("a").len() == 1, "a paused task has started something")
}

/// One of two workers is drained, and its owner is another one by then.
fn drained() -> Result<(), String> {
    let world = crate::pauses::with_a_drained_worker();
    ensure(world.0.rows("a").len() > 8 && world.1 == 0, "pause.held: a drained worker was given something")
}

/// A run is cancelled whose node has called a task, and the owner of that is another one by then.
fn call_taken_over() -> Result<(), String> {
    let (world, called) = crate::calls::cancelled_after_a_takeover();
    ensure(world.states("sub") == [State::Cancelled], "cancel.effective: what a cancelled node has called goes on")?;
    ensure(called == 1, "call.complete: a node has called twice")
}

const SCENARIOS: [(Guard, Scenario); 29] = [
    (Guard::FenceOnResult, late_result),
    (Guard::FenceOnProgress, late_return),
    (Guard::SpeakAfterCommit, speech_before_commit),
    (Guard::UnknownCommitReloads, unknown_commit),
    (Guard::RefusedCommitReloads, refused_commit),
    (Guard::CursorMovesWithFiring, cursor_with_firing),
    (Guard::MisfireScan, missed_by_policy),
    (Guard::ConcurrencyLimit, limit),
    (Guard::AttemptsBounded, bounded_attempts),
    (Guard::NotIdempotentNotRepeated, not_idempotent),
    (Guard::InboxOnce, inbox_once),
    (Guard::LeaseTrusted, trusted_lease),
    (Guard::ResultKeptUntilAcknowledged, kept_result),
    (Guard::WorkerSelfFences, self_fencing),
    (Guard::LateAssignmentReturned, late_assignment),
    (Guard::AccountCoversAssignment, account_and_assignment),
    (Guard::ChainsEnd, ring_of_tasks),
    (Guard::RateLimit, rate),
    (Guard::RetryBudget, retry_budget),
    (Guard::BreakerHolds, open_breaker),
    (Guard::RerunsWait, full_queue),
    (Guard::PartsUnderstood, worker_of_before),
    (Guard::GroupLimit, group),
    (Guard::NodesWait, diamond),
    (Guard::EndedNodesKnown, diamond_taken_over),
    (Guard::BandsTakeTurns, mixed_bands),
    (Guard::PauseHolds, paused),
    (Guard::DrainHolds, drained),
    (Guard::CallsKnown, call_taken_over),
];

/// Guards that random plans in the simulated world show to be needed, and no scenario here.
const PROVED_ELSEWHERE: [Guard; 6] = [
    Guard::HeartbeatsWithinLease,
    Guard::WorkerLivesApart,
    Guard::BackoffCapped,
    Guard::UnknownCommitNotRepeated,
    Guard::CancelKeptUntilEnd,
    Guard::StepBackMovesNoCursor,
];

#[test]
fn every_guard_has_a_scenario_or_is_proved_elsewhere() {
    let guards: Vec<_> = SCENARIOS.iter().map(|(guard, _)| *guard).chain(PROVED_ELSEWHERE).collect();
    let guards: BTreeSet<_> = guards.into_iter().collect();
    assert_eq!(guards, BTreeSet::from(Guard::ALL));
    assert_eq!(SCENARIOS.len() + PROVED_ELSEWHERE.len(), Guard::ALL.len(), "each once");
}

#[test]
fn every_guard_is_hit_and_something_fails_without_it() {
    let mut wrong = Vec::new();
    for (guard, scenario) in SCENARIOS {
        guard::reset();
        if let Err(why) = scenario() {
            wrong.push(format!("{guard:?}: fails with it on: {why}"));
        }
        if guard::hits(guard) == 0 {
            wrong.push(format!("{guard:?}: not hit"));
        }
        guard::reset();
        guard::switch_off(guard);
        let found = std::panic::catch_unwind(scenario);
        guard::reset();
        match found {
            Ok(Ok(())) => wrong.push(format!("{guard:?}: nothing fails without it")),
            Ok(Err(why)) => println!("{guard:?} | {why}"),
            Err(_) => println!("{guard:?} | a panic"),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Scenarios that come through every place that a good run must have come through.
#[test]
fn every_probe_is_hit() {
    probe::reset();
    guard::reset();
    for (_, scenario) in SCENARIOS {
        scenario().expect("all guards are on");
    }
    let mut world = World::settled(1);
    // Coalesced and made up for, queued and replaced.
    let mut replaced = task("replaced", every(5));
    std::sync::Arc::make_mut(&mut replaced.policies).concurrency.blocking = Blocking::Replace;
    world.define(replaced);
    world.define(task("queued", every(5)));
    world.define(task("cron", minutely()));
    world.script("replaced", &[Run { takes: 7_000, ..Run::default() }]);
    world.script("queued", &[Run { takes: 7_000, ..Run::default() }]);
    world.run(20_000);
    world.crash_replica(0);
    world.run(40_000);
    world.start_replica(0);
    world.run(15_000);
    world.step_wall(-10_000);
    world.run(10_000);
    // A worker that kills whatever kills it.
    let mut cursed = task("cursed", Trigger::Manual);
    std::sync::Arc::make_mut(&mut cursed.policies).retry.max_losses = 1;
    std::sync::Arc::make_mut(&mut cursed.policies).retry.backoff.first = Millis(100);
    world.define(cursed);
    world.script("cursed", &[slow(60_000)]);
    world.trigger("cursed", None);
    for _ in 0..4 {
        world.run(1_000);
        world.crash_worker(0);
        world.start_worker(0);
    }
    // An assignment whose commit is unknown is not received; one for a worker that drains is returned.
    world.run(1_000);
    world.define(task("once", Trigger::Manual));
    world.run(10);
    world.hold_messages_to(0);
    world.trigger("once", None);
    world.run(20);
    world.disconnect(0);
    world.connect(0);
    world.run(20);
    world.hold_messages_to(0);
    world.trigger("once", None);
    world.run(4_000);
    world.drain(0);
    world.let_messages_through_to(0);
    world.run(4_000);
    // More than a batch is to hold.
    let mut busy = World::settled(0);
    busy.inbox_page = punctual_core::limits::INBOX_READ_MAX;
    busy.define(task("many", Trigger::Manual));
    busy.run(10);
    busy.store_is_held = true;
    busy.run(10);
    busy.store_is_held = false;
    for _ in 0..8 {
        let submissions = vec![Default::default(); punctual_core::limits::SUBMISSIONS_MAX];
        busy.submit("many", submissions);
    }
    busy.run(2_000);
    // Shards, of which one fails.
    let mut sharded = World::settled(1);
    let mut divided = task("divided", Trigger::Manual);
    std::sync::Arc::make_mut(&mut divided.policies).sharding = Sharding::Count(2);
    sharded.define(divided);
    sharded.script("divided", &[Run { end: End::Failed, ..Run::default() }]);
    sharded.trigger("divided", None);
    sharded.run(5_000);
    crate::maps::each_item_is_run_once_and_the_results_are_reduced_in_their_order();
    crate::shards::a_rerun_has_the_shards_that_have_not_succeeded();
    crate::broadcast::a_worker_that_is_gone_before_it_began_costs_its_shard();
    // Nodes of workflows are skipped, marked, carried over, and found by a new owner.
    crate::workflows::a_rerun_from_a_node_runs_what_follows_from_it();
    crate::workflows::what_was_said_of_a_failed_node_counts_after_a_takeover();
    // Nodes call, also what can't be.
    crate::calls::a_node_ends_with_what_it_has_called();
    crate::calls::a_call_that_can_not_be_is_answered();
    // A fire time is made up for.
    sharded.backfill("divided", &[punctual_core::time::Timestamp(0)], 1);
    sharded.run(5_000);
    // A blackout is passed by.
    crate::timetable::after_a_blackout();
    crate::workers::a_slot_is_kept_for_the_scheduler_that_was_turned_away_for_long();
    // A replica that comes late is handed its share.
    let mut shared = World::new(4, 2, 1);
    shared.crash_replica(1);
    shared.run(15_000);
    shared.start_replica(1);
    shared.run(15_000);
    // Only a plan's failover loses a tail.
    let missed: Vec<_> = probe::CATALOGUE.into_iter().filter(|name| probe::hits(name) == 0 && *name != "tail.lost").collect();
    assert!(missed.is_empty(), "{missed:?}");
}
