//! What refines when a task fires: blackouts, excluded days, windows, start jitter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use punctual_core::cron::{
    Blackouts, Calendar, DailyBlackout, Expression, GapPolicy, LeftOut, OverlapPolicy, Schedule, Series, Timetable, Window,
};
use punctual_core::definition::{MisfireAction, MisfirePolicy, Trigger};
use punctual_core::ids::TaskId;
use punctual_core::misfire::{self, Run};
use punctual_core::occurrence::Outcome;
use punctual_core::time::{Millis, Timestamp};
use punctual_sim::tabletop::{START, World, every, task};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

fn cron(expression: &str) -> Series {
    let expression = Expression::parse(expression, None).expect("an expression");
    Series::Cron(Arc::new(Schedule::new(expression, TimeZone::UTC, GapPolicy::default(), OverlapPolicy::default())))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(START + seconds * 1_000)
}

/// From the beginning of a test, in seconds.
fn span(from: i64, to: i64) -> Blackouts {
    Blackouts::new([], [(START / 1_000 + from, START / 1_000 + to)])
}

fn blacked_out(series: Series, from: i64, to: i64) -> Trigger {
    Trigger::Timetable(Arc::new(Timetable::new(series, Window::default(), None, span(from, to), Millis::ZERO)))
}

fn in_window(series: Series, from: Option<i64>, to: Option<i64>) -> Trigger {
    let window = Window { starts_at: from.map(at), ends_at: to.map(at) };
    Trigger::Timetable(Arc::new(Timetable::new(series, window, None, Blackouts::default(), Millis::ZERO)))
}

fn jittered(series: Series, jitter: u64) -> Trigger {
    Trigger::Timetable(Arc::new(Timetable::new(series, Window::default(), None, Blackouts::default(), Millis(jitter))))
}

/// First, last and count of the runs with an outcome, from the beginning of the test, in seconds.
fn runs(world: &World, outcome: Outcome) -> Vec<(i64, i64, u64)> {
    let runs = world.data().occurrences.iter().filter(|run| run.outcome == outcome);
    runs.map(|run| ((run.first.0 - START) / 1_000, (run.last.0 - START) / 1_000, run.count)).collect()
}

/// A world whose task has passed by a blackout, which nothing says before it has passed.
pub(crate) fn after_a_blackout() -> World {
    let mut world = World::settled(1);
    world.define(task("a", blacked_out(cron("* * * * *"), 180, 361)));
    world.run_until(299 * SECOND);
    assert_eq!(runs(&world, Outcome::BlackedOut), [], "it has not passed yet");
    world.run_until(361 * SECOND);
    world
}

#[test]
fn what_a_blackout_takes_out_is_on_record_in_one_row_once_it_has_passed() {
    let mut world = after_a_blackout();
    assert_eq!(runs(&world, Outcome::BlackedOut), [(180, 360, 4)]);
    world.run_until(490 * SECOND);
    assert_eq!(world.fire_times("a"), [60, 120, 420, 480]);
    assert_eq!(world.data().occurrences.len(), 1);
    world.assert_sound();
}

#[test]
fn an_excluded_day_is_on_record_and_an_included_one_fires() {
    let mut world = World::settled(1);
    let today = TimeZone::UTC.to_datetime(jiff::Timestamp::from_millisecond(START).unwrap()).date();
    let tomorrow = today.tomorrow().unwrap();
    let calendar = Calendar::new([(today, today)], [(tomorrow, tomorrow)]).unwrap();
    // Only on a day of the month that is neither.
    let series = cron(&format!("0 */6 {} * *", today.day()));
    let timetable = Timetable::new(series, Window::default(), Some(Arc::new(calendar)), Blackouts::default(), Millis::ZERO);
    world.define(task("a", Trigger::Timetable(Arc::new(timetable))));
    world.run(48 * HOUR);
    let left_out = runs(&world, Outcome::ExcludedDay);
    let fired = world.fire_times("a");
    assert_eq!(left_out.len(), 1);
    assert_eq!(left_out[0].1 - left_out[0].0, (left_out[0].2 as i64 - 1) * 6 * 3_600);
    assert!(fired.len() >= 3 && fired.windows(2).all(|pair| pair[1] - pair[0] == 6 * 3_600));
    assert_eq!(fired[0] - left_out[0].1, 6 * 3_600);
    world.assert_sound();
}

#[test]
fn a_downtime_over_a_blackout_is_two_rows_and_one_instance() {
    let mut world = World::settled(1);
    world.define(task("a", blacked_out(cron("* * * * *"), 600, 1_200)));
    world.run_until(90 * SECOND);
    world.crash_replica(0);
    world.run_until(3_000 * SECOND + 30 * SECOND);
    world.start_replica(0);
    world.run(20 * SECOND);
    assert_eq!(world.fire_times("a"), [60, 3_000]);
    assert_eq!(runs(&world, Outcome::BlackedOut), [(600, 1_140, 10)]);
    assert_eq!(runs(&world, Outcome::Coalesced), [(120, 2_940, 38)]);
    world.assert_sound();
}

#[test]
fn a_takeover_within_a_blackout_loses_none_of_it() {
    let mut world = World::settled(1);
    world.define(task("a", blacked_out(cron("*/10 * * * * *"), 60, 600)));
    world.run_until(200 * SECOND);
    world.crash_replica(0);
    world.run_until(230 * SECOND);
    world.start_replica(0);
    world.run_until(615 * SECOND);
    assert_eq!(world.fire_times("a"), [10, 20, 30, 40, 50, 600, 610]);
    assert_eq!(runs(&world, Outcome::BlackedOut), [(60, 590, 54)]);
    world.assert_sound();
}

#[test]
fn an_edit_within_a_blackout_puts_on_record_what_has_passed() {
    let mut world = World::settled(1);
    world.define(task("a", blacked_out(cron("* * * * *"), 100, 1_000)));
    world.run_until(330 * SECOND);
    world.define(task("a", Trigger::Manual));
    world.run_until(1_200 * SECOND);
    assert_eq!(world.fire_times("a"), [60]);
    assert_eq!(runs(&world, Outcome::BlackedOut), [(120, 300, 4)]);
    assert_eq!(runs(&world, Outcome::Withdrawn), []);
    world.assert_sound();
}

#[test]
fn a_cron_task_fires_from_the_start_of_its_window_to_its_end() {
    let mut world = World::settled(1);
    world.define(task("a", in_window(cron("* * * * *"), Some(180), Some(360))));
    world.run_until(600 * SECOND);
    assert_eq!(world.fire_times("a"), [180, 240, 300]);
    assert!(world.data().occurrences.is_empty(), "bounds need no rows");
    world.assert_sound();
}

#[test]
fn a_rate_begins_at_its_start_and_keeps_its_phase_over_a_downtime() {
    let mut world = World::settled(1);
    world.define(task("a", in_window(Series::FixedRate(Millis::from_secs(20)), Some(67), Some(301))));
    world.run_until(90 * SECOND);
    assert_eq!(world.fire_times("a"), [67, 87]);
    world.crash_replica(0);
    world.run_until(180 * SECOND);
    world.start_replica(0);
    world.run_until(600 * SECOND);
    let fired = world.fire_times("a");
    assert!(fired.iter().all(|second| (second - 67) % 20 == 0 && *second < 301), "{fired:?}");
    assert_eq!(fired.last(), Some(&287));
    world.assert_sound();
}

/// A loop's timer goes by the time that passes; its window by the clock on the wall.
#[test]
fn a_clock_that_is_set_makes_no_rate_and_no_delay_start_early() {
    for series in [Series::FixedRate(Millis::from_secs(20)), Series::FixedDelay(Millis::from_secs(20))] {
        let mut world = World::settled(1);
        world.define(task("a", in_window(series, Some(100), None)));
        world.run(30 * SECOND);
        world.step_wall(-20_000);
        world.run(80 * SECOND);
        assert!(world.fire_times("a").is_empty(), "by the wall clock it is not time yet");
        world.run(30 * SECOND);
        assert_eq!(world.fire_times("a").first(), Some(&100));
        let first = world.rows("a")[0];
        assert!(first.created_at() >= at(100));
        world.assert_sound();
    }
}

#[test]
fn a_fixed_delay_ends_with_its_window() {
    let mut world = World::settled(1);
    world.define(task("a", in_window(Series::FixedDelay(Millis::from_secs(30)), Some(100), Some(190))));
    world.run_until(600 * SECOND);
    let fired = world.fire_times("a");
    assert_eq!(fired.len(), 3, "{fired:?}");
    assert!(fired[0] == 100 && fired[2] < 190);
    world.assert_sound();
}

/// When the firing of the first fire time began, from the beginning of the test, in milliseconds.
fn started(world: &World) -> i64 {
    world.rows("a")[0].created_at().0 - START
}

#[test]
fn jitter_puts_the_start_off_and_leaves_the_fire_time() {
    let mut world = World::settled(1);
    let id = world.define(task("a", jittered(cron("* * * * *"), 50_000)));
    let Trigger::Timetable(timetable) = jittered(cron("* * * * *"), 50_000) else { unreachable!() };
    let start = timetable.start_of(id, at(60));
    assert!(start > at(61), "a draw that this test can tell from none");
    world.run_until(60 * SECOND + start.since(at(60)).0 - 1);
    assert!(world.rows("a").is_empty());
    world.run(SECOND);
    assert_eq!(world.fire_times("a"), [60]);
    assert!((started(&world) - (start.0 - START)).abs() < 100);
    world.run_until(10 * MINUTE);
    assert!(world.data().occurrences.is_empty(), "nothing was missed");
    world.assert_sound();
}

#[test]
fn jitter_is_the_same_after_a_takeover_and_a_step_back() {
    let undisturbed = {
        let mut world = World::settled(1);
        world.define(task("a", jittered(cron("0 * * * *"), 3_000_000)));
        world.run(2 * HOUR);
        started(&world)
    };
    let mut world = World::settled(1);
    world.define(task("a", jittered(cron("0 * * * *"), 3_000_000)));
    let fire_time = undisturbed / 3_600_000 * 3_600_000;
    assert!(undisturbed - fire_time > 200_000, "long enough for a takeover and a step in between");
    world.run_until(fire_time as u64 + 30 * SECOND);
    world.crash_replica(0);
    world.run(30 * SECOND);
    world.start_replica(0);
    world.run(20 * SECOND);
    world.step_wall(-60_000);
    world.run(2 * HOUR);
    assert!((started(&world) - undisturbed).abs() < 100, "{} and {undisturbed}", started(&world));
    let fired = world.fire_times("a");
    assert!(fired.windows(2).all(|pair| pair[1] - pair[0] == 3_600), "{fired:?}");
    world.assert_sound();
}

#[test]
fn a_rate_with_jitter_keeps_its_pace() {
    let mut world = World::settled(1);
    world.define(task("a", jittered(Series::FixedRate(Millis::from_secs(30)), 20_000)));
    world.run(10 * MINUTE);
    world.crash_replica(0);
    world.run(14 * SECOND);
    world.start_replica(0);
    world.run(10 * MINUTE);
    let fired: Vec<_> = world.rows("a").iter().map(|row| row.fire_time.0).collect();
    assert!(fired.len() >= 38, "{}", fired.len());
    assert!(fired.windows(2).all(|pair| pair[1] - pair[0] == 30_000), "{fired:?}");
    world.assert_sound();
}

#[test]
fn lateness_counts_from_the_start_that_jitter_gives() {
    let trigger = jittered(cron("0 * * * *"), 1_800_000);
    let hour = Timestamp(1_800_000_000_000 / 3_600_000 * 3_600_000);
    let Trigger::Timetable(timetable) = &trigger else { unreachable!() };
    let start = timetable.start_of(TaskId(7), hour);
    let policy = MisfirePolicy { action: MisfireAction::Skip, deadline: Some(Millis(60_000)), rate: None };
    let planned = |now: Timestamp| misfire::plan(&trigger, TaskId(7), hour, now, Millis(5_000), policy);
    let early = planned(Timestamp(start.0 - 1));
    assert_eq!((early.on_time.len(), early.dropped.len(), early.next), (0, 0, Some(hour)));
    assert_eq!(planned(Timestamp(start.0 + 5_000)).on_time, [hour]);
    assert_eq!(planned(Timestamp(start.0 + 5_001)).dropped[0].outcome, Outcome::MisfireSkipped);
    assert_eq!(planned(Timestamp(start.0 + 60_001)).dropped[0].outcome, Outcome::DeadlinePassed);
}

#[test]
fn a_herd_with_jitter_is_spread() {
    let Trigger::Timetable(timetable) = jittered(cron("0 * * * *"), 60_000) else { unreachable!() };
    let hour = Timestamp(1_800_000_000_000 / 3_600_000 * 3_600_000);
    let mut by_second = [0_u32; 61];
    for task in 0..6_000 {
        by_second[(timetable.start_of(TaskId(task), hour).since(hour).0 / 1_000) as usize] += 1;
    }
    assert!(by_second[..60].iter().all(|count| (50..200).contains(count)), "{by_second:?}");
}

#[test]
fn ten_years_of_downtime_with_nightly_blackouts_are_planned_at_once() {
    let nightly = Blackouts::new([DailyBlackout { from: 79_200, to: 21_600, weekdays: 0x7f }], []);
    let day = |year| date(year, 5, 1);
    let calendar = Calendar::new((2017..2026).map(|year| (day(year), day(year))), []).unwrap();
    let timetable = Timetable::new(cron("* * * * * *"), Window::default(), Some(Arc::new(calendar)), nightly, Millis(400));
    let nominal = timetable.clone();
    let trigger = Trigger::Timetable(Arc::new(timetable));
    let (cursor, now) = (Timestamp(1_480_000_000_000), Timestamp(1_795_600_000_000));
    for action in [MisfireAction::Skip, MisfireAction::FireOnce, MisfireAction::FireAll { limit: 100 }] {
        let started = Instant::now();
        let plan = misfire::plan(&trigger, TaskId(1), cursor, now, Millis(5_000), MisfirePolicy { action, deadline: None, rate: None });
        assert!(started.elapsed() < Duration::from_secs(1), "{action:?}: {:?}", started.elapsed());
        let rows = plan.dropped.iter().chain(&plan.left_out).map(|run| run.count).sum::<u64>();
        let all = rows + (plan.caught_up.len() + plan.on_time.len()) as u64;
        let next = plan.next.unwrap();
        assert_eq!(all, 1 + nominal.count_nominal_in(cursor, Timestamp(next.0 - 1)));
        assert!(plan.left_out.len() <= 2 && plan.dropped.len() <= 2);
    }
}

fn days() -> impl Strategy<Value = Vec<(Date, Date)>> {
    proptest::collection::vec((0..12_i16, 0..3_i16), 0..3).prop_map(|ranges| {
        let day = |number: i16| date(2026, 11, 1).saturating_add(jiff::Span::new().days(number));
        ranges.into_iter().map(|(from, length)| (day(from), day(from + length))).collect()
    })
}

fn any_timetable() -> impl Strategy<Value = Arc<Timetable>> {
    let expression = prop_oneof![
        Just("*/7 * * * *"),
        Just("0 * * * *"),
        Just("30 9 * * 1-5"),
        Just("*/20 * * * * *"),
        Just("0 6,18 * * *"),
        Just("15 10 */3 * *")
    ];
    let daily = (0..48_u32, 1..40_u32, any::<u8>()).prop_map(|(from, length, weekdays)| DailyBlackout {
        from: from * 1_800,
        to: (from + length) % 48 * 1_800,
        weekdays: weekdays & 0x7f,
    });
    let bound = || proptest::option::weighted(0.3, 0..14 * 86_400_000_i64);
    (expression, days(), proptest::collection::vec(daily, 0..2), bound(), bound(), prop_oneof![Just(0), 1..90_000_u64, 0..7_200_000_u64])
        .prop_map(|(expression, exclude, daily, starts_at, ends_at, jitter)| {
            let begin = 1_793_491_200_000; // 2026-11-01
            let window = Window { starts_at: starts_at.map(|ms| Timestamp(begin + ms)), ends_at: ends_at.map(|ms| Timestamp(begin + ms)) };
            let calendar = Calendar::new(exclude, []).unwrap();
            let blackouts = Blackouts::new(daily, []);
            Arc::new(Timetable::new(cron(expression), window, Some(Arc::new(calendar)), blackouts, Millis(jitter)))
        })
}

/// The reason that stands behind an outcome.
fn reason_of(outcome: Outcome) -> Option<LeftOut> {
    match outcome {
        Outcome::ExcludedDay => Some(LeftOut::ExcludedDay),
        Outcome::BlackedOut => Some(LeftOut::BlackedOut),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// An owner that looks whenever the cursor comes, or late: each nominal fire time has one fate, nothing starts early, and what is on
    /// time starts when jitter says so.
    #[test]
    fn each_nominal_fire_time_has_one_fate(
        timetable in any_timetable(),
        task in any::<u64>(),
        made in 0..5 * 86_400_000_i64,
        lateness in proptest::collection::vec(prop_oneof![4 => 0..3_000_i64, 2 => 3_000..200_000_i64, 1 => 0..300_000_000_i64], 1..30),
        action in prop_oneof![
            Just(MisfireAction::Skip), Just(MisfireAction::FireOnce), (1_u32..40).prop_map(|limit| MisfireAction::FireAll { limit })
        ],
        deadline in proptest::option::of(6_000_u64..5_000_000),
    ) {
        let (task, trigger) = (TaskId(task), Trigger::Timetable(Arc::clone(&timetable)));
        let policy = MisfirePolicy { action, deadline: deadline.map(Millis), rate: None };
        let made_at = Timestamp(1_793_491_200_000 + made);
        let mut cursor = misfire::first(&trigger, made_at);
        let begin = cursor;
        let (mut fates, mut fired) = (0, Vec::new());
        let mut end = made_at;
        for late in lateness {
            let Some(at) = cursor else { break };
            let due = misfire::due_at(&trigger, task, at);
            prop_assert!(due >= at);
            let now = due.saturating_add(Millis(late.unsigned_abs()));
            let plan = misfire::plan(&trigger, task, at, now, Millis(5_000), policy);
            prop_assert!(plan.next.is_none_or(|next| next > at), "the cursor moves on");
            for run in plan.dropped.iter().chain(&plan.left_out) {
                check_run(&timetable, run)?;
                fates += run.count;
            }
            for fire_time in &plan.on_time {
                let start = timetable.start_of(task, *fire_time);
                prop_assert!(start <= now && now.since(start).0 <= 5_000);
            }
            for fire_time in &plan.caught_up {
                prop_assert!(now.since(timetable.start_of(task, *fire_time)).0 > 5_000);
            }
            for fire_time in plan.caught_up.iter().chain(&plan.on_time) {
                prop_assert_eq!(timetable.left_out(*fire_time), None);
                fired.push(*fire_time);
            }
            if let Some(next) = plan.next {
                prop_assert!(misfire::due_at(&trigger, task, next) > now || plan.on_time.len() == 64);
            }
            end = plan.next.map_or(Timestamp::MAX, |next| Timestamp(next.0 - 1));
            cursor = plan.next;
        }
        prop_assert!(fired.windows(2).all(|pair| pair[0] < pair[1]));
        if let Some(begin) = begin {
            let end = if end == Timestamp::MAX { timetable.window().ends_at.unwrap_or(end) } else { end };
            let nominal = timetable.count_nominal_in(Timestamp(begin.0 - 1), end);
            prop_assert_eq!(fates + fired.len() as u64, nominal);
        }
    }
}

fn check_run(timetable: &Timetable, run: &Run) -> Result<(), TestCaseError> {
    prop_assert!(run.count >= 1 && run.first <= run.last);
    let before = Timestamp(run.first.0 - 1);
    let expected = match reason_of(run.outcome) {
        None => timetable.count_in(before, run.last),
        Some(reason) => {
            let runs = timetable.left_out_in(before, run.last);
            runs.iter().find(|found| found.reason == reason).map_or(0, |found| found.count)
        }
    };
    prop_assert_eq!(run.count, expected);
    Ok(())
}

/// A trigger that nothing refines is not a timetable: it costs what it did.
#[test]
fn a_task_in_memory_is_no_larger_for_it() {
    assert_eq!(size_of::<Trigger>(), 16);
    assert!(matches!(every(5), Trigger::FixedRate { .. }));
}
