//! Situations from public bug reports, and what has to come of them. The ids are those of the collected cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::cron::{Dialect, Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::definition::{Blocking, MisfireAction, TaskDefinition, Trigger};
use punctual_core::instance::{Cause, Origin, State};
use punctual_core::misfire;
use punctual_core::occurrence::Outcome;
use punctual_core::protocol::{End, ToScheduler};
use punctual_core::scheduler::Alert;
use punctual_core::time::{Millis, Timestamp};

use punctual_sim::tabletop::{Began, Run, START, World, every, minutely, task};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn with(mut definition: TaskDefinition, change: impl FnOnce(&mut TaskDefinition)) -> TaskDefinition {
    change(&mut definition);
    definition
}

fn cron(expression: &str) -> Trigger {
    let expression = Expression::parse(expression, Some(Dialect::Unix5)).expect("a valid expression");
    Trigger::Cron(Arc::new(Schedule::new(expression, jiff::tz::TimeZone::UTC, GapPolicy::default(), OverlapPolicy::default())))
}

fn takes(millis: u64) -> Run {
    Run { takes: millis, ..Run::default() }
}

fn seconds(times: &[u64]) -> Vec<u64> {
    times.iter().map(|millis| millis / SECOND).collect()
}

fn outcomes(world: &World, outcome: Outcome) -> Vec<i64> {
    world.data().occurrences.iter().filter(|run| run.outcome == outcome).map(|run| (run.first.0 - START) / 1_000).collect()
}

fn count(world: &World, outcome: Outcome) -> u64 {
    world.data().occurrences.iter().filter(|run| run.outcome == outcome).map(|run| run.count).sum()
}

/// C303: a paused owner comes back after another one took over. Nothing that it had in mind is written.
#[test]
fn a_paused_owner_changes_nothing_when_it_comes_back() {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    let owner = world.owner();
    world.define(task("a", every(5)));
    world.run(12 * SECOND);
    world.pause_replica(owner);
    world.run(30 * SECOND);
    let epoch = world.data().leases[0].epoch;
    world.resume_replica(owner);
    world.run(30 * SECOND);
    assert!(world.data().leases[0].epoch.0 <= epoch.0 + 1, "it takes nothing from a living owner: it is handed its share");
    let fired = world.fire_times("a");
    assert!(fired.windows(2).all(|pair| pair[0] < pair[1]), "{fired:?}");
    assert_eq!(world.began.len(), fired.len(), "no instance was begun twice");
    world.assert_sound();
}

/// C305: twenty changes of owner under load, and the task still fires.
#[test]
fn twenty_changes_of_owner_lose_no_schedule() {
    let mut world = World::new(1, 2, 1);
    world.run(100);
    world.define(task("a", every(5)));
    for _ in 0..20 {
        let owner = world.owner();
        world.crash_replica(owner);
        world.run(14 * SECOND);
        world.start_replica(owner);
        world.run(6 * SECOND);
        let last = *world.fire_times("a").last().expect("it has fired");
        let now = (world.now().wall.0 - START) / 1_000;
        assert!(now - last <= 6, "at {now} the last fire time was {last}");
    }
    world.assert_sound();
}

/// C306: a timer that wakes 70 ms early waits them out.
#[test]
fn a_wake_up_before_the_fire_time_fires_once_and_not_early() {
    let mut world = World::settled(1);
    world.define(task("a", minutely()));
    world.run_until(MINUTE - 70);
    world.tell_replica(0, punctual_core::scheduler::Event::Tick);
    world.run(0);
    assert!(world.rows("a").is_empty());
    world.run_until(MINUTE + 7);
    world.step_wall(-100);
    world.run(10 * SECOND);
    assert_eq!(world.fire_times("a"), [60]);
    assert!(world.rows("a")[0].created_at() >= Timestamp(START + 60_000));
}

/// C306, for a loop and a clock that was slewed back by less than a second.
#[test]
fn a_clock_that_stands_still_makes_nothing_early() {
    let mut world = World::settled(1);
    world.step_wall(-900);
    world.define(task("a", every(10)));
    world.trigger("a", Some(5_000));
    let due = world.now().wall.saturating_add(Millis(10_000));
    world.run(9_950);
    assert_eq!(world.rows("a").iter().filter(|row| row.origin == Origin::Schedule).count(), 0);
    world.run(200);
    let rows = world.rows("a");
    let fired = rows.iter().find(|row| row.origin == Origin::Schedule).expect("it has fired");
    assert_eq!(fired.fire_time, due);
    assert!(fired.created_at() >= due);
}

fn after_downtime(action: MisfireAction, deadline: Option<u64>) -> (Vec<i64>, u64) {
    let mut world = World::settled(1);
    world.define(with(task("a", every(15)), |task| {
        Arc::make_mut(&mut task.policies).misfire.action = action;
        Arc::make_mut(&mut task.policies).misfire.deadline = deadline.map(Millis::from_secs);
    }));
    world.run_until(50 * SECOND);
    world.crash_replica(0);
    world.run_until(102 * SECOND);
    world.start_replica(0);
    world.run_until(110 * SECOND);
    world.assert_sound();
    (world.fire_times("a"), world.data().occurrences.iter().map(|run| run.count).sum())
}

/// C307: down from :50 to 1:42 at a fire time each quarter of a minute.
#[test]
fn a_downtime_of_three_fire_times_goes_by_the_policy() {
    assert_eq!(after_downtime(MisfireAction::Skip, None), (vec![15, 30, 45, 105], 3));
    assert_eq!(after_downtime(MisfireAction::FireOnce, None), (vec![15, 30, 45, 90, 105], 2));
    assert_eq!(after_downtime(MisfireAction::FireAll { limit: 100 }, None), (vec![15, 30, 45, 60, 75, 90, 105], 0));
    assert_eq!(after_downtime(MisfireAction::FireAll { limit: 100 }, Some(20)), (vec![15, 30, 45, 90, 105], 2));
}

/// C381: by default one of the fire times that passed is made up for, however long ago, and the record says how many were passed over.
#[test]
fn by_default_the_last_missed_fire_time_is_made_up_for() {
    for (down, passed_over) in [(2 * MINUTE, 1), (2 * DAY, 2 * 24 * 60 - 1)] {
        let mut world = World::settled(1);
        world.define(task("a", minutely()));
        world.run_until(30 * SECOND);
        world.crash_replica(0);
        world.run_until(30 * SECOND + down);
        world.start_replica(0);
        world.run(10 * SECOND);
        let last = down / MINUTE * MINUTE;
        assert_eq!(world.fire_times("a"), [(last / SECOND) as i64], "down for {down} ms");
        assert_eq!(count(&world, Outcome::Coalesced), passed_over);
        world.assert_sound();
    }
}

/// C308: the stored policy counts after a restart, for a cron task and for a one-shot.
#[test]
fn an_overdue_one_shot_goes_by_its_stored_policy() {
    for (action, expected) in [(MisfireAction::Skip, 0), (MisfireAction::FireOnce, 1)] {
        let mut world = World::settled(1);
        world.define(with(task("cron", minutely()), |task| Arc::make_mut(&mut task.policies).misfire.action = action));
        world.define(with(task("once", Trigger::Delay { delay: Millis(30 * SECOND) }), |task| {
            Arc::make_mut(&mut task.policies).misfire.action = action
        }));
        world.run(SECOND);
        world.crash_replica(0);
        world.run_until(150 * SECOND);
        world.start_replica(0);
        world.run(SECOND);
        assert_eq!((world.rows("cron").len(), world.rows("once").len()), (expected, expected), "{action:?}");
        assert_eq!(count(&world, Outcome::MisfireSkipped), if expected == 0 { 3 } else { 0 });
        let cron = world.task_id("cron");
        assert_eq!(world.data().tasks[&cron].next_fire, Some(Timestamp(START + 180_000)));
        world.assert_sound();
    }
}

/// C309: ten hours of a minutely task.
#[test]
fn six_hundred_missed_fire_times_block_nothing() {
    for (action, fired, dropped) in
        [(MisfireAction::FireOnce, 1, 599), (MisfireAction::Skip, 0, 600), (MisfireAction::FireAll { limit: 100 }, 100, 500)]
    {
        let mut world = World::settled(1);
        world.define(with(task("a", minutely()), |task| Arc::make_mut(&mut task.policies).misfire.action = action));
        world.run(SECOND);
        world.crash_replica(0);
        world.run_until(10 * HOUR + 30 * SECOND);
        world.start_replica(0);
        world.run(20 * SECOND);
        let dropped_found = world.data().occurrences.iter().map(|run| run.count).sum::<u64>();
        assert_eq!((world.rows("a").len(), dropped_found), (fired, dropped), "{action:?}");
        world.run(30 * SECOND);
        assert_eq!(world.fire_times("a").last(), Some(&(601 * 60)), "it goes on");
        world.assert_sound();
    }
}

/// C309: ten years of a one-second task start in a moment.
#[test]
fn ten_years_of_a_one_second_task_start_in_a_moment() {
    for action in [MisfireAction::FireOnce, MisfireAction::Skip, MisfireAction::FireAll { limit: 100 }] {
        let mut world = World::settled(1);
        world.define(with(task("a", every(1)), |task| Arc::make_mut(&mut task.policies).misfire.action = action));
        world.run(100);
        world.crash_replica(0);
        world.step_wall(315_576_000_000);
        let began = Instant::now();
        world.start_replica(0);
        world.run(SECOND);
        assert!(began.elapsed() < Duration::from_secs(1));
        let dropped = world.data().occurrences.iter().map(|run| run.count).sum::<u64>();
        assert!(dropped + world.rows("a").len() as u64 >= 315_576_000, "{dropped}");
        world.assert_sound();
    }
}

/// C311: a pause is not downtime.
#[test]
fn a_pause_is_no_misfire() {
    let mut world = World::settled(1);
    let definition = |enabled| {
        with(task("a", every(5)), |task| {
            task.enabled = enabled;
            Arc::make_mut(&mut task.policies).misfire.action = MisfireAction::FireAll { limit: 100 };
        })
    };
    world.define(definition(true));
    world.run_until(11 * SECOND);
    world.define(definition(false));
    world.run_until(21 * SECOND);
    world.define(definition(true));
    world.run_until(27 * SECOND);
    assert_eq!(world.fire_times("a"), [5, 10, 26]);
    assert!(world.rows("a").iter().all(|row| row.origin == Origin::Schedule));
    world.assert_sound();
}

/// C312: the day's fire time moves from 13:30 to 16:00 at 12:20, and from 15:00 to 13:00 at 14:00: both count from the moment of the edit.
#[test]
fn a_daily_task_that_is_moved_fires_next_at_its_new_time() {
    // START is at 8:00 of the first day.
    let clock = |day: u64, hours: u64, minutes: u64| day * DAY + hours * HOUR + minutes * MINUTE - 8 * HOUR;
    for (first, ran_at, edited_at, second, next) in [
        ("30 13 * * *", clock(0, 13, 30), clock(1, 12, 20), "0 16 * * *", clock(1, 16, 0)),
        ("0 15 * * *", clock(0, 15, 0), clock(1, 14, 0), "0 13 * * *", clock(2, 13, 0)),
    ] {
        let mut world = World::settled(1);
        world.define(task("a", cron(first)));
        world.run_until(edited_at);
        assert_eq!(world.fire_times("a"), [(ran_at / SECOND) as i64]);
        world.define(task("a", cron(second)));
        world.run(MINUTE);
        assert_eq!(world.rows("a").len(), 1, "the edit fires nothing");
        let id = world.task_id("a");
        assert_eq!(world.data().tasks[&id].next_fire, Some(Timestamp(START + next as i64)), "{first} to {second}");
        world.run_until(next - SECOND);
        assert_eq!(world.rows("a").len(), 1);
        world.run_until(next + SECOND);
        assert_eq!(world.fire_times("a"), [(ran_at / SECOND) as i64, (next / SECOND) as i64]);
        world.assert_sound();
    }
}

/// C312: an edit fires nothing; the next fire time counts from it.
#[test]
fn an_edit_fires_nothing_by_itself() {
    let mut world = World::settled(1);
    world.define(task("a", every(90 * 60)));
    world.run_until(HOUR);
    world.define(task("a", every(3 * 3_600)));
    world.run_until(4 * HOUR - SECOND);
    assert!(world.rows("a").is_empty());
    world.run_until(4 * HOUR + SECOND);
    assert_eq!(world.fire_times("a"), [4 * 3_600]);
    world.define(task("a", minutely()));
    world.run_until(4 * HOUR + 30 * SECOND);
    assert_eq!(world.rows("a").len(), 1);
    world.assert_sound();
}

/// An edit is written just before a fire time and heard of just after it.
#[test]
fn an_edit_that_crosses_a_fire_time_does_not_fire_it_twice() {
    for to in [minutely(), every(1)] {
        let mut world = World::settled(1);
        world.define(task("a", minutely()));
        world.run_until(MINUTE - 1);
        world.store_latency = 50;
        world.define(with(task("a", to.clone()), |task| task.enabled = false));
        world.define(task("a", to));
        world.run(2 * MINUTE);
        assert_eq!(world.rows("a").iter().filter(|row| row.fire_time == Timestamp(START + 60_000)).count(), 1);
        assert!(world.alerts.is_empty(), "{:?}", world.alerts);
        world.assert_sound();
    }
}

/// A task is removed, the clock set back over its last fire time, and the task made again.
#[test]
fn a_task_that_comes_back_does_not_fire_again_what_it_had_fired() {
    let mut world = World::settled(1);
    world.define(task("a", minutely()));
    world.run_until(61 * SECOND);
    world.remove("a");
    world.run(10);
    world.step_wall(-2_000);
    world.define(task("a", minutely()));
    world.run(2 * MINUTE);
    assert_eq!(world.fire_times("a"), [60, 120]);
    world.assert_sound();
}

fn discarding(run_for: u64) -> World {
    let mut world = World::settled(2);
    world.define(with(task("a", every(30)), |task| Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Discard));
    world.script("a", &[takes(80 * SECOND)]);
    world.run_until(30 * SECOND + run_for);
    world.assert_sound();
    world
}

/// C316: the limit counts over all workers, and each discarded fire time is on record.
#[test]
fn discarding_holds_over_several_workers() {
    let world = discarding(3 * MINUTE + SECOND);
    assert_eq!(world.fire_times("a"), [30, 120, 210]);
    assert_eq!(outcomes(&world, Outcome::LimitReached), [60, 90, 150, 180]);
}

/// C317: the running mark goes with each end.
#[test]
fn discarding_opens_again_after_each_end() {
    let world = discarding(30 * MINUTE - SECOND);
    let expected: Vec<_> = (0..20).map(|nth| 30 + nth * 90).collect();
    assert_eq!(world.fire_times("a"), expected);
}

/// C318: only the task's own instance is replaced, and its late success does not count.
#[test]
fn a_replacement_starts_when_the_old_one_has_stopped() {
    let mut world = World::settled(1);
    world.define(with(task("a", every(10)), |task| Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Replace));
    world.define(task("b", Trigger::Manual));
    world.script("a", &[Run { takes: 60 * SECOND, obeys_after: Some(3 * SECOND), ..Run::default() }]);
    world.script("b", &[takes(60 * SECOND)]);
    world.trigger("b", None);
    world.run_until(25 * SECOND);
    let rows = world.rows("a");
    let last = rows[0].transitions.last().expect("it has ended");
    assert_eq!((rows[0].state, last.cause), (State::Cancelled, Cause::Replaced));
    assert_eq!((rows[1].state, world.states("b")), (State::Running, vec![State::Running]));
    assert_eq!(seconds(&world.starts("a")), [10, 23]);
    world.assert_sound();
}

/// C318: whatever the old one makes of being stopped, it is cancelled, nothing is retried, and the other task's run on that worker goes on.
#[test]
fn what_is_replaced_is_cancelled_however_it_ends() {
    for when_cancelled in [End::Failed, End::FailedForGood, End::TimedOut, End::Cancelled] {
        let mut world = World::settled(1);
        world.define(with(task("a", Trigger::Manual), |task| {
            Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Replace;
            Arc::make_mut(&mut task.policies).retry.max_attempts = Some(9);
        }));
        world.define(task("b", Trigger::Manual));
        world.script("a", &[Run { takes: 60 * SECOND, obeys_after: Some(3 * SECOND), when_cancelled, ..Run::default() }]);
        world.script("b", &[takes(30 * SECOND)]);
        world.trigger("b", None);
        world.trigger("a", None);
        world.run_until(10 * SECOND);
        world.trigger("a", None);
        world.run_until(20 * SECOND);
        let last = world.rows("a")[0].transitions.last().map(|last| (last.to, last.cause));
        assert_eq!(last, Some((State::Cancelled, Cause::Replaced)), "{when_cancelled:?}");
        assert_eq!((world.states("a")[1], seconds(&world.starts("a"))), (State::Running, vec![0, 13]), "{when_cancelled:?}");
        world.run_until(40 * SECOND);
        assert_eq!(world.states("b"), [State::Succeeded]);
        world.assert_sound();
    }
}

/// C318: the new one starts when the old one's lease has ended, and what the old one says later counts for nothing.
#[test]
fn a_late_success_of_what_was_replaced_does_not_count() {
    let mut world = World::settled(2);
    world.define(with(task("a", Trigger::Manual), |task| {
        Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Replace;
        // It is not stopped by anything.
        Arc::make_mut(&mut task.policies).timeout.grace = Millis(HOUR);
    }));
    world.script("a", &[Run { takes: 70 * SECOND, obeys_after: None, ..Run::default() }]);
    world.trigger("a", None);
    world.run_until(5 * SECOND);
    world.silence(world.began[0].worker);
    world.trigger("a", None);
    world.run_until(15 * SECOND);
    assert_eq!(world.states("a"), [State::Running, State::Waiting], "the old one may still run");
    world.run_until(60 * SECOND);
    assert_eq!(world.states("a"), [State::Cancelled, State::Running]);
    let before = world.rows("a")[0].clone();
    assert_eq!(before.transitions.last().map(|last| last.cause), Some(Cause::Replaced));
    // It has succeeded by then.
    world.run_until(75 * SECOND);
    world.unsilence(world.began[0].worker);
    world.run(10 * SECOND);
    assert!(matches!(world.began[0].ended, Some((_, true))), "{:?}", world.began[0]);
    assert_eq!(*world.rows("a")[0], before);
    assert!(world.alerts.iter().any(|(_, alert)| matches!(alert, Alert::LateResult { .. })), "{:?}", world.alerts);
    world.run(60 * SECOND);
    assert_eq!(world.states("a"), [State::Cancelled, State::Succeeded]);
    world.assert_sound();
}

/// C318: the replacement goes on over a change of owner.
#[test]
fn a_replacement_survives_a_reload() {
    let mut world = World::settled(1);
    world.define(with(task("a", every(10)), |task| {
        Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Replace;
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(9);
    }));
    world.script("a", &[Run { takes: 600 * SECOND, obeys_after: Some(5 * SECOND), ..Run::default() }]);
    world.run_until(21 * SECOND);
    world.crash_replica(0);
    world.start_replica(0);
    world.run_until(29 * SECOND);
    assert_eq!(world.states("a"), [State::Cancelled, State::Running]);
    world.assert_sound();
}

/// C319: eleven fires, four ended, one running, six waiting, first in first out; and a bound.
#[test]
fn a_queue_is_in_order_and_bounded() {
    let world = |max_queue, until| {
        let mut world = World::settled(1);
        world.define(with(task("a", every(10)), |task| {
            Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Queue { max_queue }
        }));
        world.script("a", &[takes(24_900)]);
        world.run_until(until);
        world.assert_sound();
        world
    };
    let wide = world(100, 111 * SECOND);
    let of = |world: &World, state| world.states("a").iter().filter(|found| **found == state).count();
    assert_eq!((of(&wide, State::Succeeded), of(&wide, State::Running), of(&wide, State::Waiting)), (4, 1, 6));
    assert!(wide.rows("a").windows(2).all(|pair| pair[0].fire_time < pair[1].fire_time));
    let narrow = world(5, 111 * SECOND);
    assert_eq!((of(&narrow, State::Waiting), count(&narrow, Outcome::QueueFull)), (5, 1));
    let day = world(5, DAY);
    assert!(day.scheduler().instance_count() <= 7, "{}", day.scheduler().instance_count());
}

/// C320: a running instance holds its place over a restart of the scheduler.
#[test]
fn the_limit_is_not_forgotten_in_a_restart() {
    let mut world = World::settled(1);
    world.define(with(task("a", every(10)), |task| Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Discard));
    world.script("a", &[takes(35 * SECOND)]);
    world.run_until(12 * SECOND);
    world.crash_replica(0);
    world.start_replica(0);
    world.run_until(44 * SECOND);
    assert_eq!(world.fire_times("a"), [10]);
    assert_eq!(outcomes(&world, Outcome::LimitReached), [20, 30, 40]);
    world.assert_sound();
}

/// C321: what was discarded never starts, whatever the deadline for misfires.
#[test]
fn a_discarded_fire_time_never_comes_back() {
    let mut world = World::settled(1);
    world.define(with(task("a", every(60)), |task| {
        Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Discard;
        Arc::make_mut(&mut task.policies).misfire.deadline = Some(Millis(10 * MINUTE));
    }));
    world.script("a", &[takes(62 * SECOND)]);
    world.run_until(179 * SECOND);
    assert_eq!(world.fire_times("a"), [60]);
    assert_eq!(outcomes(&world, Outcome::LimitReached), [120]);
    world.assert_sound();
}

/// C325: a thousand tasks at midnight, and a scheduler that stands still from 5 s before it until 65 s after it. Each has its run of
/// midnight, and not one fire time is passed over.
#[test]
fn a_thousand_tasks_of_one_midnight_all_fire() {
    let midnight = 16 * HOUR;
    let mut world = World::settled(4);
    for index in 0..1_000 {
        let name = format!("a{index}");
        world.define(task(&name, cron("0 0 * * *")));
        world.script(&name, &[takes(50)]);
    }
    world.run(SECOND);
    // Nothing happens until then.
    world.crash_replica(0);
    world.run_until(midnight - MINUTE);
    world.start_replica(0);
    world.run_until(midnight - 5 * SECOND);
    world.pause_replica(0);
    world.run_until(midnight + 65 * SECOND);
    assert_eq!(world.data().instances.len(), 0);
    world.resume_replica(0);
    world.run(3 * MINUTE);
    let data = world.data();
    assert_eq!(data.instances.len(), 1_000);
    for row in data.instances.values() {
        assert_eq!((row.fire_time, row.state), (Timestamp(START + midnight as i64), State::Succeeded), "{}", row.id);
    }
    assert_eq!(data.instances.values().map(|row| row.task).collect::<std::collections::BTreeSet<_>>().len(), 1_000);
    assert!(data.occurrences.is_empty(), "{:?}", data.occurrences);
    world.assert_sound();
}

/// C326: the store stands still for 50 seconds; each fire time is fired or on record.
#[test]
fn a_store_that_stands_still_loses_no_fire_time() {
    let mut world = World::settled(1);
    world.define(with(task("a", every(10)), |task| Arc::make_mut(&mut task.policies).misfire.action = MisfireAction::Skip));
    world.run_until(15 * SECOND);
    world.store_is_held = true;
    world.run(50 * SECOND);
    world.release_store();
    world.run_until(81 * SECOND);
    let skipped = count(&world, Outcome::MisfireSkipped);
    assert_eq!(world.rows("a").len() as u64 + skipped, 8);
    assert!(skipped >= 3);
    world.assert_sound();
}

/// C333: delays beyond what fits 31 and 32 bits of milliseconds.
#[test]
fn very_long_delays_stay_pending_and_come_once() {
    let years = 3_652 * DAY;
    let year_9999 = (Timestamp::MAX.0 - START) as u64 - DAY;
    for delay in [24 * DAY, 25 * DAY, 50 * DAY, years, year_9999] {
        let mut world = World::settled(0);
        world.define(task("a", Trigger::Manual));
        world.trigger("a", Some(delay));
        world.run(10);
        world.crash_replica(0);
        world.time += delay - 30 * SECOND;
        world.start_replica(0);
        world.run(20 * SECOND);
        assert_eq!(world.states("a"), [State::Waiting], "{delay}");
        assert_eq!(world.rows("a")[0].due_at, Some(Timestamp(START + delay as i64)), "{delay}");
        world.run(20 * SECOND);
        assert_eq!(world.states("a"), [State::Created], "{delay}");
        world.assert_sound();
    }
    let end_of_time = misfire::first(&Trigger::Delay { delay: Millis(u64::MAX) }, Timestamp(START));
    assert_eq!(end_of_time, Some(Timestamp::MAX));
}

/// C354: a trigger by hand and the task's own schedule give an instance each, marked with where it comes from.
#[test]
fn each_trigger_gives_an_instance_of_its_own() {
    let mut world = World::settled(1);
    world.define(with(task("a", every(10)), |task| Arc::make_mut(&mut task.policies).concurrency.max_running = 9));
    world.run_until(10 * SECOND - 2);
    world.trigger("a", Some(2));
    world.trigger("a", Some(2));
    world.run(5 * SECOND);
    let mut origins: Vec<_> = world.rows("a").iter().map(|row| (row.fire_time.0 - START, row.origin.name())).collect();
    origins.sort_unstable();
    assert_eq!(origins, [(10_000, "manual"), (10_000, "manual"), (10_000, "schedule")]);
    world.assert_sound();
}

/// C360: a result under an old fence changes nothing and is told of; under the current one it counts, lost or not.
#[test]
fn a_late_result_counts_only_under_the_current_fence() {
    let mut world = World::settled(2);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[takes(50 * SECOND), takes(90 * SECOND)]);
    world.trigger("a", None);
    world.run(SECOND);
    let holder = world.began[0].worker;
    world.silence(holder);
    world.run_until(60 * SECOND);
    world.unsilence(holder);
    world.run(10 * SECOND);
    let row = world.rows("a")[0].clone();
    assert_eq!((row.state, row.attempt, row.losses), (State::Running, 2, 1));
    assert!(world.alerts.iter().any(|(_, alert)| matches!(alert, Alert::LateResult { .. })));
    world.run(60 * SECOND);
    assert_eq!(world.states("a"), [State::Succeeded]);
    world.assert_sound();
}

/// C360: nobody took over, so the late success is one.
#[test]
fn a_late_success_counts_where_nobody_took_over() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[Run { takes: 45 * SECOND, obeys_after: None, ..Run::default() }]);
    let hold = |task: &mut TaskDefinition| Arc::make_mut(&mut task.policies).timeout.grace = Millis(HOUR);
    world.define(with(task("a", Trigger::Manual), hold));
    world.trigger("a", None);
    world.run(SECOND);
    world.silence(0);
    world.run_until(60 * SECOND);
    assert_eq!(world.states("a"), [State::Created]);
    world.unsilence(0);
    world.run(SECOND);
    assert_eq!(world.states("a"), [State::Succeeded]);
    assert_eq!(world.began.len(), 1);
    world.assert_sound();
}

/// C361: a run that is longer than a lease is nothing but long.
#[test]
fn a_run_longer_than_the_lease_is_run_once() {
    let mut world = World::settled(2);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[takes(100 * SECOND)]);
    world.trigger("a", None);
    world.run(110 * SECOND);
    assert_eq!((world.states("a"), world.began.len()), (vec![State::Succeeded], 1));
    assert!(world.alerts.is_empty(), "{:?}", world.alerts);
}

/// C362: a heartbeat that crosses the result is nothing to speak of.
#[test]
fn a_heartbeat_that_crosses_a_result_is_quiet() {
    let mut world = World::settled(1);
    world.network_latency = 400;
    world.define(task("a", Trigger::Manual));
    world.script("a", &[takes(9_300)]);
    world.trigger("a", None);
    world.run(30 * SECOND);
    assert_eq!(world.states("a"), [State::Succeeded]);
    assert!(world.alerts.is_empty(), "{:?}", world.alerts);
}

/// C362: a heartbeat and a word of the start that arrive behind the result, before and after it is written.
#[test]
fn what_arrives_behind_a_result_changes_nothing() {
    for written in [false, true] {
        let mut world = World::settled(1);
        world.define(with(task("a", Trigger::Manual), |task| Arc::make_mut(&mut task.policies).retry.max_attempts = Some(3)));
        world.script("a", &[takes(5 * SECOND)]);
        world.trigger("a", None);
        world.run(4 * SECOND);
        let Began { instance, fence, .. } = world.began[0];
        world.store_latency = 500;
        world.run(1_100);
        assert!(world.began[0].ended.is_some());
        if written {
            world.run(10 * SECOND);
            assert_eq!(world.states("a"), [State::Succeeded]);
        } else {
            assert_eq!(world.states("a"), [State::Running], "it is on its way into the store");
        }
        let messages = vec![ToScheduler::Heartbeat, ToScheduler::Started { instance, fence }, ToScheduler::Heartbeat];
        world.tell_replica(0, punctual_core::scheduler::Event::WorkerMessages { connection: world.connection_of(0), messages });
        world.run(MINUTE);
        let row = world.rows("a")[0];
        assert_eq!((row.state, row.attempt, row.losses), (State::Succeeded, 1, 0));
        assert_eq!(row.transitions.last().map(|last| last.cause), Some(Cause::Finished));
        assert!(world.alerts.is_empty(), "{:?}", world.alerts);
        world.assert_sound();
    }
}

/// C363: the worker dies in the last attempt.
#[test]
fn a_worker_lost_in_the_last_attempt_is_a_dead_letter() {
    let mut world = World::settled(1);
    world.define(with(task("a", Trigger::Manual), |task| {
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(3);
        Arc::make_mut(&mut task.policies).retry.backoff =
            BackoffPolicy { kind: Backoff::Fixed, first: Millis(2_000), cap: Millis(2_000), jitter: Jitter::None };
    }));
    let fails = Run { takes: 100, end: End::Failed, ..Run::default() };
    world.script("a", &[fails, fails, takes(50 * SECOND)]);
    world.trigger("a", None);
    world.run(10 * SECOND);
    world.crash_worker(0);
    world.run(60 * SECOND);
    let row = world.rows("a")[0];
    assert_eq!((row.state, row.transitions.last().map(|last| last.cause)), (State::DeadLettered, Some(Cause::WorkerLost)));
    assert!(world.alerts.iter().any(|(_, alert)| *alert == Alert::DeadLettered { instance: row.id, cause: Cause::WorkerLost }));
}

/// C366: cancel and success arrive together, in every order that a thousand runs give.
#[test]
fn cancel_and_success_end_in_one_state() {
    let mut ended = std::collections::BTreeSet::new();
    for offset in 0..1_000_u64 {
        let mut world = World::settled(1);
        world.define(with(task("a", Trigger::Manual), |task| Arc::make_mut(&mut task.policies).retry.max_attempts = Some(5)));
        world.script("a", &[takes(20)]);
        world.trigger("a", None);
        world.run(10 + offset % 30);
        let id = world.first("a");
        world.network_latency = 1 + offset % 7;
        world.store_latency = 1 + offset % 5;
        world.cancel(id);
        world.run(2 * SECOND);
        let row = world.rows("a")[0];
        assert!(row.state == State::Succeeded || row.state == State::Cancelled, "{:?}", row.state);
        assert_eq!(row.transitions.iter().filter(|transition| transition.to.is_terminal()).count(), 1);
        assert_eq!(row.attempt, 1);
        assert!(world.data().inbox.is_empty());
        world.assert_sound();
        ended.insert(row.state);
    }
    assert_eq!(ended.len(), 2, "both were seen");
}

/// C368: the clock is set back by an hour.
#[test]
fn a_clock_set_back_repeats_nothing_and_slows_no_loop() {
    let mut world = World::settled(1);
    world.define(task("loop", every(10)));
    world.define(task("cron", minutely()));
    world.run_until(90 * SECOND);
    let (loops, crons) = (world.rows("loop").len(), world.rows("cron").len());
    world.step_wall(-(HOUR as i64));
    world.run(HOUR);
    assert_eq!(world.rows("loop").len(), loops + 360);
    assert_eq!(world.rows("cron").len(), crons, "no minute comes twice");
    assert!(!world.alerts.iter().any(|(_, alert)| matches!(alert, Alert::WorkerLost { .. } | Alert::PartitionReloaded { .. })));
    world.run(MINUTE);
    assert_eq!(world.rows("cron").len(), crons + 1);
    world.assert_sound();
}

/// C368, over a reload: a new owner finds a cursor an hour ahead.
#[test]
fn a_loop_keeps_its_pace_over_a_reload_after_the_clock_was_set_back() {
    let mut world = World::settled(1);
    world.define(task("loop", every(10)));
    world.run_until(15 * SECOND);
    world.step_wall(-(HOUR as i64));
    world.crash_replica(0);
    world.start_replica(0);
    world.run(MINUTE);
    assert!(world.rows("loop").len() >= 6, "{:?}", world.fire_times("loop"));
    world.assert_sound();
}

/// A clock that was years ahead when a task fired: whoever takes it over says that it fires no more, and a task of another name does.
#[test]
fn tasks_that_a_wrong_clock_has_fired_are_told_of() {
    let mut world = World::settled(1);
    world.define(task("cron", minutely()));
    world.run_until(90 * SECOND);
    let told = |world: &World| world.alerts.iter().filter(|(_, alert)| matches!(alert, Alert::FiredAhead { tasks: 1, .. })).count();
    world.crash_replica(0);
    world.start_replica(0);
    world.run(MINUTE);
    assert_eq!(told(&world), 0, "nothing was wrong");
    let years = 100 * 365 * 24 * HOUR as i64;
    world.step_wall(years);
    world.run(2 * MINUTE);
    let fired = world.rows("cron").len();
    world.step_wall(-years);
    world.crash_replica(0);
    world.start_replica(0);
    world.run(3 * MINUTE);
    assert_eq!((world.rows("cron").len(), told(&world)), (fired, 1));
    // What mends it, as the handbook says: another name.
    world.remove("cron");
    world.define(task("cron-2", minutely()));
    world.run(3 * MINUTE);
    assert!(world.rows("cron-2").len() >= 2);
    world.assert_sound();
}

/// C373: what has fired is known by the cursor, not by the rows.
#[test]
fn a_fire_time_whose_row_is_gone_does_not_come_again() {
    let mut world = World::settled(1);
    world.define(task("a", minutely()));
    world.run_until(61_500);
    assert_eq!(world.fire_times("a"), [60]);
    let id = world.first("a");
    world.crash_replica(0);
    world.delete_instance(id);
    world.start_replica(0);
    world.run_until(90 * SECOND);
    assert!(world.rows("a").is_empty());
    world.assert_sound();
}

/// C378: the task is removed during a run, with one more waiting.
#[test]
fn a_removed_task_ends_what_runs_and_cancels_what_waits() {
    let mut world = World::settled(1);
    world.define(task("a", every(10)));
    world.script("a", &[takes(15 * SECOND)]);
    world.run_until(21 * SECOND);
    world.remove("a");
    world.run(MINUTE);
    assert_eq!(world.states("a"), [State::Succeeded, State::Cancelled]);
    assert!(world.alerts.is_empty(), "{:?}", world.alerts);
    world.assert_sound();
}

/// A task is removed and made again while an instance of it runs.
#[test]
fn what_still_runs_counts_when_the_task_is_made_again() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[takes(20 * SECOND)]);
    world.trigger("a", None);
    world.run(SECOND);
    world.remove("a");
    world.run(SECOND);
    world.define(task("a", Trigger::Manual));
    world.trigger("a", None);
    world.run(SECOND);
    assert_eq!(world.states("a"), [State::Running, State::Waiting]);
    world.run(MINUTE);
    assert_eq!(world.states("a"), [State::Succeeded, State::Succeeded]);
    world.assert_sound();
}

/// C379: disabled in the middle of catching up.
#[test]
fn a_task_that_is_disabled_while_catching_up_stops() {
    let mut world = World::settled(1);
    let definition = |enabled| {
        with(task("a", every(10)), |task| {
            task.enabled = enabled;
            Arc::make_mut(&mut task.policies).misfire.action = MisfireAction::FireAll { limit: 100 };
        })
    };
    world.define(definition(true));
    world.run(SECOND);
    world.crash_replica(0);
    world.run_until(201 * SECOND);
    world.start_replica(0);
    world.run(4_500);
    let started = world.began.len();
    world.define(definition(false));
    world.run(MINUTE);
    let cancelled = |world: &World| world.rows("a").iter().filter(|row| row.state == State::Cancelled).count();
    assert_eq!((world.rows("a").len(), world.began.len(), started, cancelled(&world)), (20, 5, 5, 15));
    world.define(definition(true));
    world.run(9 * SECOND);
    assert_eq!((world.began.len(), cancelled(&world)), (started, 15), "enabling does not bring them back");
    world.run(12 * SECOND);
    let rows = world.rows("a");
    assert!(rows[20..].iter().all(|row| row.fire_time > Timestamp(START + 205_000)), "it goes on with fire times to come");
    assert!(rows.len() > 20);
    world.assert_sound();
}

/// C380: the worker dies with the report; its place is free when its lease has ended.
#[test]
fn a_dead_worker_holds_no_place() {
    let mut world = World::settled(2);
    world.define(with(task("a", every(60)), |task| {
        Arc::make_mut(&mut task.policies).concurrency.blocking = Blocking::Discard;
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(1);
    }));
    world.script("a", &[takes(10 * SECOND)]);
    world.run_until(65 * SECOND);
    world.crash_worker(world.began[0].worker);
    world.run_until(121 * SECOND);
    assert_eq!(world.states("a"), [State::DeadLettered, State::Running]);
    world.assert_sound();
}

/// Quiesced, a scheduler still takes results in and commits them.
#[test]
fn a_quiesced_scheduler_takes_results() {
    let mut world = World::settled(1);
    world.define(task("a", every(5)));
    world.script("a", &[takes(3 * SECOND)]);
    world.run_until(6 * SECOND);
    world.tell_replica(0, punctual_core::scheduler::Event::Quiesce);
    world.run(MINUTE);
    assert_eq!(world.states("a"), [State::Succeeded]);
    world.tell_replica(0, punctual_core::scheduler::Event::Shutdown);
    world.run(10);
    assert!(world.replicas[0].stopped);
    assert_eq!(world.data().leases[0].owner, None);
    world.assert_sound();
}

/// What is refused again and again is asked for less and less often.
#[test]
fn a_partition_whose_commits_are_refused_does_not_spin() {
    let mut world = World::settled(1);
    world.define(task("a", every(1)));
    world.run(10 * SECOND);
    world.fates.extend([punctual_sim::tabletop::Fate::Refused; 8]);
    world.run(5 * MINUTE);
    let reloads = world.alerts.iter().filter(|(_, alert)| matches!(alert, Alert::PartitionReloaded { .. })).count();
    assert_eq!(reloads, 8);
    assert!(world.alerts.last().expect("eight").0 - world.alerts[0].0 > 2 * MINUTE);
    world.run(MINUTE);
    assert_eq!(world.alerts.len(), 8, "then it goes on");
    world.assert_sound();
}

/// A worker that always gives back is not asked for ever.
#[test]
fn a_worker_that_gives_back_is_left_alone_for_a_while() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[Run { takes: HOUR, obeys_after: None, ..Run::default() }]);
    world.define(with(task("a", Trigger::Manual), |task| Arc::make_mut(&mut task.policies).timeout.grace = Millis(HOUR)));
    world.trigger("a", None);
    world.run(SECOND);
    // The scheduler loses it, the worker still ends it.
    world.silence(0);
    world.run(40 * SECOND);
    world.unsilence(0);
    world.run(10 * MINUTE);
    assert!(world.rows("a")[0].transitions.len() < 100, "{}", world.rows("a")[0].transitions.len());
    world.assert_sound();
}

/// An idle replica with a silent worker that has a connection gives it nothing.
#[test]
fn a_silent_worker_gets_nothing() {
    let mut world = World::settled(1);
    world.define(task("a", Trigger::Manual));
    world.script("a", &[takes(100 * SECOND)]);
    world.trigger("a", None);
    world.run(SECOND);
    world.silence(0);
    world.run(5 * MINUTE);
    let row = world.rows("a")[0];
    assert_eq!((row.state, row.losses), (State::Created, 1), "one lease, one loss");
}

/// What was running when the scheduler died, and whose task was removed before it came back, is not begun again.
#[test]
fn what_a_dead_scheduler_left_is_not_begun_again_once_its_task_is_removed() {
    let mut world = World::settled(1);
    // The worker's account is there long before the inbox.
    world.store_latency = 50;
    world.define(task("a", Trigger::Manual));
    world.run(SECOND);
    world.trigger("a", None);
    world.script("a", &[takes(MINUTE)]);
    world.run(SECOND);
    assert_eq!(world.states("a"), [State::Running]);
    world.crash_replica(0);
    world.crash_worker(0);
    world.remove("a");
    world.start_replica(0);
    world.start_worker(0);
    world.run(MINUTE);
    assert_eq!((world.states("a"), world.began.len()), (vec![State::Cancelled], 1));
    world.assert_sound();
}

fn owners(world: &World) -> Vec<usize> {
    let replicas = 0..world.replicas.len();
    let owned = |index: usize| world.replicas[index].scheduler.as_ref().map_or(0, |scheduler| scheduler.owned_partitions().len());
    replicas.map(owned).collect()
}

/// Partitions are shared evenly, whoever comes and goes, and nothing is late on account of that.
#[test]
fn replicas_share_partitions_evenly_and_move_them_without_losing_a_beat() {
    let mut world = World::new(16, 3, 2);
    world.crash_replica(2);
    // By then nobody counts on the third any more.
    world.run(15 * SECOND);
    for index in 0..20 {
        let name = format!("t{index}");
        world.define(task(&name, every(1)));
        world.script(&name, &[takes(100)]);
    }
    world.run(20 * SECOND);
    assert_eq!(owners(&world), [8, 8, 0]);
    world.start_replica(2);
    world.run(10 * SECOND);
    assert_eq!(owners(&world), [6, 5, 5]);
    // One stops in good order: the others have all at once.
    world.tell_replica(0, punctual_core::scheduler::Event::Shutdown);
    world.run(2 * SECOND);
    assert_eq!(owners(&world)[1..], [8, 8]);
    world.crash_replica(0);
    world.run(10 * SECOND);
    world.start_replica(0);
    world.run(20 * SECOND);
    assert_eq!(owners(&world), [6, 5, 5]);
    let reloaded = world.alerts.iter().filter(|(_, alert)| matches!(alert, Alert::PartitionReloaded { .. })).count();
    assert_eq!(reloaded, 0, "nobody had to let go of anything: {:?}", world.alerts);
    for index in 0..20 {
        let rows = world.rows(&format!("t{index}"));
        assert!(rows.len() > 60, "{}", rows.len());
        for row in rows {
            let late = row.transitions[0].at.since(row.fire_time);
            assert!(late < Millis(500), "instance {} was {late:?} late", row.id);
        }
    }
    world.assert_sound();
}

/// A dead replica's partitions are taken over once its leases have run out.
#[test]
fn a_dead_replicas_share_is_taken_over() {
    let mut world = World::new(4, 2, 1);
    world.run(10 * SECOND);
    assert_eq!(owners(&world), [2, 2]);
    world.crash_replica(1);
    world.run(12 * SECOND);
    assert_eq!(owners(&world), [4, 0]);
}

/// A report is repeated while what followed it is still being written, and that is never written: the report must not be forgotten.
#[test]
fn a_failure_is_not_forgotten_before_what_follows_it_is_written() {
    let mut world = World::settled(1);
    world.define(with(task("a", Trigger::Manual), |task| {
        Arc::make_mut(&mut task.policies).retry.max_attempts = Some(5);
        Arc::make_mut(&mut task.policies).retry.backoff =
            BackoffPolicy { kind: Backoff::Fixed, first: Millis(100), cap: Millis(100), jitter: Jitter::None };
    }));
    world.script("a", &[Run { takes: 100, end: End::Failed, ..Run::default() }, takes(SECOND)]);
    world.trigger("a", None);
    world.run(50);
    world.store_latency = 500;
    world.fates.push_back(punctual_sim::tabletop::Fate::UnknownNotApplied);
    world.run(300);
    world.disconnect(0);
    world.connect(0);
    world.run(5_000);
    world.store_latency = 1;
    world.run(20_000);
    let row = world.rows("a")[0];
    assert_eq!((row.state, row.failures, row.losses), (State::Succeeded, 1, 0), "{:#?}", row.transitions);
    world.assert_sound();
}

/// A replica's own clock is ahead, and it learns what time it is by the store's only after it has begun.
#[test]
fn what_the_clock_showed_before_anything_was_owned_fires_nothing() {
    let mut world = World::settled(1);
    world.define(task("a", minutely()));
    world.run(1_000);
    world.crash_replica(0);
    world.run_until(59_300);
    world.step_wall(800);
    world.start_replica(0);
    world.step_wall(-800);
    world.run_until(59_900);
    assert_eq!(world.rows("a").len(), 0, "by the store's clock it is not yet time");
    world.run_until(60_500);
    assert_eq!(world.rows("a").len(), 1);
    world.assert_sound();
}
