//! Fire times: when a trigger fires next, and what becomes of those that were missed.
//!
//! A fire time that its owner sees less than the threshold late is just late and is fired. One that is later than that was *missed*:
//! nobody could fire it, and the task's misfire policy decides. Nothing here takes longer for ten years than for a minute.
//!
//! A task's *cursor* is its next nominal fire time. Those that its timetable leaves out are passed by and put on record: the cursor stands on
//! the first of them and comes when the last has passed. A start may be put off by jitter: the fire time stays, and lateness counts from
//! the start.

use crate::cron::{LeftOut, Series, Timetable};
use crate::definition::{MisfireAction, MisfirePolicy, Trigger};
use crate::guard;
use crate::guard::Guard;
use crate::ids::TaskId;
use crate::limits;
use crate::occurrence::Outcome;
use crate::time::{Millis, Timestamp};

/// The fire time that follows `fired` and is fired, for triggers that know it before the instance has ended.
pub fn following(trigger: &Trigger, fired: Timestamp) -> Option<Timestamp> {
    match trigger {
        Trigger::Cron(schedule) => schedule.next_after(fired),
        Trigger::FixedRate { interval } => Some(fired.saturating_add(Millis(interval.0.max(1)))),
        Trigger::Timetable(timetable) => timetable.next_after(fired),
        Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
    }
}

/// The first cursor of a task that was made at `made_at`.
pub fn first(trigger: &Trigger, made_at: Timestamp) -> Option<Timestamp> {
    match trigger {
        Trigger::Cron(schedule) => schedule.next_after(made_at),
        Trigger::FixedRate { interval } | Trigger::FixedDelay { interval } => Some(made_at.saturating_add(*interval)),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(_) | Series::FixedRate(_) => timetable.next_nominal_after(made_at),
            Series::FixedDelay(interval) => in_window(timetable, made_at.saturating_add(*interval)),
        },
        Trigger::Delay { delay } => Some(made_at.saturating_add(*delay)),
        Trigger::Manual => None,
    }
}

/// The cursor of a fixed delay that may fire from `due` on; `None` where its window is over by then.
pub fn next_delayed(trigger: &Trigger, due: Timestamp) -> Option<Timestamp> {
    match trigger {
        Trigger::Timetable(timetable) => in_window(timetable, due),
        _ => Some(due),
    }
}

fn in_window(timetable: &Timetable, due: Timestamp) -> Option<Timestamp> {
    let window = timetable.window();
    let due = window.starts_at.map_or(due, |starts_at| due.max(starts_at));
    window.ends_at.is_none_or(|ends_at| due < ends_at).then_some(due)
}

/// The nominal fire time before `cursor` and after `after`, where `cursor` is one itself. It may be one that there was never, before the task
/// was made.
pub fn preceding(trigger: &Trigger, after: Timestamp, cursor: Timestamp) -> Option<Timestamp> {
    let rate = |interval: Millis| Some(cursor.saturating_sub(interval)).filter(|before| *before > after);
    match trigger {
        Trigger::Cron(schedule) => schedule.latest_in(after, Timestamp(cursor.0 - 1)),
        Trigger::FixedRate { interval } => rate(*interval),
        Trigger::Timetable(timetable) => match timetable.series() {
            Series::Cron(_) => timetable.latest_nominal_in(after, Timestamp(cursor.0 - 1)),
            Series::FixedRate(interval) => rate(*interval).filter(|before| timetable.window().starts_at.is_none_or(|at| at <= *before)),
            Series::FixedDelay(_) => None,
        },
        Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
    }
}

/// The last fire time in `cursor..=until` that is fired, where `cursor` is one itself.
pub fn last_until(trigger: &Trigger, cursor: Timestamp, until: Timestamp) -> Timestamp {
    match trigger {
        Trigger::Cron(schedule) => schedule.latest_in(cursor, until).unwrap_or(cursor),
        Trigger::FixedRate { interval } => {
            let intervals = until.since(cursor).0 / interval.0.max(1);
            cursor.saturating_add(interval.saturating_mul(intervals))
        }
        Trigger::Timetable(timetable) => timetable.latest_in(cursor, until).unwrap_or(cursor),
        Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => cursor,
    }
}

/// How many fire times there are in `cursor..=until` that are fired, where `cursor` is one itself and `until >= cursor`.
pub fn count_until(trigger: &Trigger, cursor: Timestamp, until: Timestamp) -> u64 {
    match trigger {
        Trigger::Cron(schedule) => 1 + schedule.count_in(cursor, until),
        Trigger::FixedRate { interval } => 1 + until.since(cursor).0 / interval.0.max(1),
        Trigger::Timetable(timetable) => 1 + timetable.count_in(cursor, until),
        Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => 1,
    }
}

/// The first fire time from `cursor` on that is fired; `cursor` is a nominal one. That of a loop moves with a clock that is set ahead, and so may
/// have left its window.
pub fn fired_from(trigger: &Trigger, cursor: Timestamp) -> Option<Timestamp> {
    match trigger {
        Trigger::Timetable(timetable) if timetable.left_out(cursor).is_some() => timetable.next_after(cursor),
        Trigger::Timetable(timetable) => Some(cursor).filter(|cursor| timetable.window().ends_at.is_none_or(|end| *cursor < end)),
        _ => Some(cursor),
    }
}

/// When the firing of a fire time starts.
fn start_of(trigger: &Trigger, task: TaskId, fire_time: Timestamp) -> Timestamp {
    match trigger {
        Trigger::Timetable(timetable) => timetable.start_of(task, fire_time),
        _ => fire_time,
    }
}

/// When a cursor comes: at the start of its firing, or with the last of the fire times that are left out with it.
pub fn due_at(trigger: &Trigger, task: TaskId, cursor: Timestamp) -> Timestamp {
    match trigger {
        Trigger::Timetable(timetable) => match timetable.left_out(cursor) {
            Some(_) => timetable.left_out_until(cursor),
            None => timetable.start_of(task, cursor),
        },
        _ => cursor,
    }
}

/// Fire times with the same fate, in a row but for those that have another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// Their fate.
    pub outcome: Outcome,
}

/// What is to be done about a cursor that has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Missed fire times that are not fired, oldest first.
    pub dropped: Vec<Run>,
    /// Fire times that the timetable leaves out, at most one run for each reason.
    pub left_out: Vec<Run>,
    /// Missed fire times that are made up for, oldest first.
    pub caught_up: Vec<Timestamp>,
    /// Fire times that are on time, or just late, oldest first.
    pub on_time: Vec<Timestamp>,
    /// The next one after all these.
    pub next: Option<Timestamp>,
}

/// Most fire times of one task that a plan fires as on time; the rest come in the next plan.
const ON_TIME_MAX: usize = 64;

/// Plans for a task whose cursor is `cursor <= now`.
pub fn plan(trigger: &Trigger, task: TaskId, cursor: Timestamp, now: Timestamp, threshold: Millis, policy: MisfirePolicy) -> Plan {
    let mut plan = Plan::default();
    let missed_until = now.saturating_sub(threshold);
    let mut due = fired_from(trigger, cursor);
    if let Some(first) = due
        && !guard!(Guard::MisfireScan, start_of(trigger, task, first) >= missed_until)
    {
        due = plan_missed(&mut plan, trigger, task, first, now, missed_until, policy);
    }
    while let Some(fire_time) = due
        && fire_time <= now
        && plan.on_time.len() < ON_TIME_MAX
        && start_of(trigger, task, fire_time) <= now
    {
        plan.on_time.push(fire_time);
        due = following(trigger, fire_time);
    }
    plan.next = due;
    if let Trigger::Timetable(timetable) = trigger {
        plan_left_out(&mut plan, timetable, cursor, now);
    }
    plan
}

/// Passes by what is left out between the fire times that are planned, and behind the last of them where its last one has passed.
fn plan_left_out(plan: &mut Plan, timetable: &Timetable, cursor: Timestamp, now: Timestamp) {
    let dropped = plan.dropped.last().map(|run| run.last);
    let planned = plan.on_time.last().or(plan.caught_up.last()).copied().max(dropped);
    if let Series::Cron(_) = timetable.series() {
        let behind = planned.map_or(Some(cursor), |last| timetable.next_nominal_after(last));
        plan.next = match behind {
            Some(nominal) if timetable.left_out(nominal).is_some() => {
                let last = timetable.left_out_until(nominal);
                if last <= now { timetable.next_nominal_after(last) } else { Some(nominal) }
            }
            behind => behind,
        };
        let until = plan.next.map_or(now, |next| Timestamp(next.0 - 1));
        plan.left_out = left_out_runs(timetable, cursor, until);
    }
}

fn left_out_runs(timetable: &Timetable, cursor: Timestamp, until: Timestamp) -> Vec<Run> {
    let runs = timetable.left_out_in(Timestamp(cursor.0 - 1), until).into_iter();
    runs.map(|run| Run { first: run.first, last: run.last, count: run.count, outcome: outcome_of(run.reason) }).collect()
}

fn outcome_of(reason: LeftOut) -> Outcome {
    match reason {
        LeftOut::ExcludedDay => Outcome::ExcludedDay,
        LeftOut::BlackedOut => Outcome::BlackedOut,
    }
}

/// The nominal fire times in `cursor..=until`, none of which was fired, where `cursor` is one itself: those that would have been, with this
/// outcome, and those that the timetable leaves out.
pub fn passed_by(trigger: &Trigger, cursor: Timestamp, until: Timestamp, outcome: Outcome) -> Vec<Run> {
    let first = fired_from(trigger, cursor).filter(|first| *first <= until);
    let given_up = first.map(|first| run(trigger, first, last_until(trigger, first, until), outcome));
    let left_out = match trigger {
        Trigger::Timetable(timetable) => left_out_runs(timetable, cursor, until),
        _ => Vec::new(),
    };
    given_up.into_iter().chain(left_out).collect()
}

/// The cursor behind those that are [`passed_by`], for triggers that know it before an instance has ended.
pub fn behind(trigger: &Trigger, cursor: Timestamp, until: Timestamp) -> Option<Timestamp> {
    match trigger {
        Trigger::Timetable(timetable) if matches!(timetable.series(), Series::Cron(_)) => timetable.next_nominal_after(until),
        _ => {
            let first = fired_from(trigger, cursor)?;
            if first > until { Some(first) } else { following(trigger, last_until(trigger, first, until)) }
        }
    }
}

/// Plans for the fire times from `cursor` on that start before `missed_until`, and answers with the one that follows. The first is one.
fn plan_missed(
    plan: &mut Plan,
    trigger: &Trigger,
    task: TaskId,
    cursor: Timestamp,
    now: Timestamp,
    missed_until: Timestamp,
    policy: MisfirePolicy,
) -> Option<Timestamp> {
    let last = last_started(trigger, task, cursor, missed_until);
    let next = following(trigger, last);
    let too_late = policy.deadline.map(|deadline| now.saturating_sub(deadline));
    // What is within the deadline begins here; `None` where nothing is.
    let in_time = match too_late {
        Some(bound) if start_of(trigger, task, last) < bound => None,
        Some(bound) if start_of(trigger, task, cursor) < bound => {
            let passed = last_started(trigger, task, cursor, bound);
            plan.dropped.push(run(trigger, cursor, passed, Outcome::DeadlinePassed));
            following(trigger, passed)
        }
        _ => Some(cursor),
    };
    let Some(begin) = in_time else {
        plan.dropped.push(run(trigger, cursor, last, Outcome::DeadlinePassed));
        return next;
    };
    match policy.action {
        MisfireAction::Skip => plan.dropped.push(run(trigger, begin, last, Outcome::MisfireSkipped)),
        MisfireAction::FireOnce => {
            if let Some(before) = last_before(trigger, begin, last) {
                plan.dropped.push(run(trigger, begin, before, Outcome::Coalesced));
            }
            plan.caught_up.push(last);
        }
        MisfireAction::FireAll { limit } => {
            let limit = u64::from(limit.clamp(1, limits::CATCH_UP_MAX));
            let count = count_until(trigger, begin, last);
            let mut from = begin;
            if count > limit {
                let dropped = nth(trigger, begin, last, count - limit - 1);
                plan.dropped.push(run(trigger, begin, dropped, Outcome::CatchUpLimit));
                from = following(trigger, dropped).unwrap_or(last);
            }
            let mut fire_time = Some(from);
            while let Some(at) = fire_time
                && at <= last
            {
                plan.caught_up.push(at);
                fire_time = following(trigger, at);
            }
        }
    }
    next
}

fn run(trigger: &Trigger, first: Timestamp, last: Timestamp, outcome: Outcome) -> Run {
    Run { first, last, count: count_until(trigger, first, last), outcome }
}

/// The last fire time from `cursor` on that starts before `bound`; `cursor` does.
fn last_started(trigger: &Trigger, task: TaskId, cursor: Timestamp, bound: Timestamp) -> Timestamp {
    let last = last_until(trigger, cursor, Timestamp(bound.0 - 1));
    // A start stays before the next fire time, so only the last one can be put off beyond the bound.
    if start_of(trigger, task, last) < bound { last } else { last_until(trigger, cursor, Timestamp(last.0 - 1)) }
}

/// The last fire time before `last` in `begin..last`, where there is one.
fn last_before(trigger: &Trigger, begin: Timestamp, last: Timestamp) -> Option<Timestamp> {
    (begin < last).then(|| last_until(trigger, begin, Timestamp(last.0 - 1)))
}

/// The fire time with `index` others before it in `begin..=last`, by bisection.
fn nth(trigger: &Trigger, begin: Timestamp, last: Timestamp, index: u64) -> Timestamp {
    let (mut low, mut high) = (begin, last);
    while low < high {
        let middle = Timestamp(low.0 + (high.0 - low.0) / 2);
        if count_until(trigger, begin, middle) > index {
            high = middle;
        } else {
            low = Timestamp(middle.0 + 1);
        }
    }
    last_until(trigger, begin, low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000;
    const THRESHOLD: Millis = Millis(5_000);
    const TASK: TaskId = TaskId(1);

    fn every(secs: u64) -> Trigger {
        Trigger::FixedRate { interval: Millis::from_secs(secs) }
    }

    fn policy(action: MisfireAction, deadline: Option<u64>) -> MisfirePolicy {
        MisfirePolicy { action, deadline: deadline.map(Millis::from_secs), rate: None }
    }

    /// Cursor, now and answers in seconds; down from :50 to :42, a fire time each quarter of a minute.
    fn after_downtime(action: MisfireAction, deadline: Option<u64>) -> (Vec<i64>, Option<i64>, u64) {
        let plan = plan(&every(15), TASK, Timestamp(60 * SECOND), Timestamp(102 * SECOND), THRESHOLD, policy(action, deadline));
        assert!(plan.on_time.is_empty());
        let dropped = plan.dropped.iter().map(|run| run.count).sum();
        (plan.caught_up.iter().map(|t| t.0 / SECOND).collect(), plan.next.map(|t| t.0 / SECOND), dropped)
    }

    #[test]
    fn a_downtime_of_three_fire_times_goes_by_the_policy() {
        assert_eq!(after_downtime(MisfireAction::Skip, None), (vec![], Some(105), 3));
        assert_eq!(after_downtime(MisfireAction::FireOnce, None), (vec![90], Some(105), 2));
        assert_eq!(after_downtime(MisfireAction::FireAll { limit: 100 }, None), (vec![60, 75, 90], Some(105), 0));
        assert_eq!(after_downtime(MisfireAction::FireAll { limit: 2 }, None), (vec![75, 90], Some(105), 1));
        assert_eq!(after_downtime(MisfireAction::FireAll { limit: 100 }, Some(20)), (vec![90], Some(105), 2));
        assert_eq!(after_downtime(MisfireAction::FireOnce, Some(20)), (vec![90], Some(105), 2));
        assert_eq!(after_downtime(MisfireAction::FireOnce, Some(6)), (vec![], Some(105), 3));
    }

    #[test]
    fn an_overdue_one_shot_goes_by_the_policy_too() {
        let delay = Trigger::Delay { delay: Millis::from_secs(60) };
        let planned = |action| plan(&delay, TASK, Timestamp(0), Timestamp(600 * SECOND), THRESHOLD, policy(action, None));
        assert_eq!(planned(MisfireAction::FireOnce).caught_up, [Timestamp(0)]);
        let skipped = planned(MisfireAction::Skip);
        assert_eq!((skipped.caught_up.len(), skipped.dropped.len(), skipped.next), (0, 1, None));
    }

    #[test]
    fn ten_years_of_a_one_second_task_are_planned_at_once() {
        let years = 315_576_000;
        let now = Timestamp(years * SECOND);
        for action in [MisfireAction::Skip, MisfireAction::FireOnce, MisfireAction::FireAll { limit: 100 }] {
            let plan = plan(&every(1), TASK, Timestamp(SECOND), now, THRESHOLD, policy(action, None));
            let missed = plan.dropped.iter().map(|run| run.count).sum::<u64>() + plan.caught_up.len() as u64;
            assert_eq!(missed, years as u64 - 6);
            assert_eq!(plan.on_time.len(), 6, "the last five seconds and the present one are just late");
        }
    }

    #[test]
    fn what_is_just_late_is_fired_whatever_the_policy() {
        let plan = plan(&every(1), TASK, Timestamp(97 * SECOND), Timestamp(100 * SECOND), THRESHOLD, policy(MisfireAction::Skip, None));
        assert_eq!(plan.on_time.len(), 4);
        assert_eq!(plan.next, Some(Timestamp(101 * SECOND)));
    }

    proptest! {
        /// Each fire time up to now is in exactly one place, in order, and the next one lies ahead.
        #[test]
        fn every_fire_time_is_accounted_for(
            interval in 1_u64..5_000, cursor in 0_i64..100_000, late in 0_i64..2_000_000,
            action in prop_oneof![
                Just(MisfireAction::Skip), Just(MisfireAction::FireOnce), (1_u32..40).prop_map(|limit| MisfireAction::FireAll { limit })
            ],
            deadline in proptest::option::of(1_u64..2_000),
        ) {
            let trigger = Trigger::FixedRate { interval: Millis(interval) };
            let (cursor, now) = (Timestamp(cursor), Timestamp(cursor + late));
            let plan = plan(&trigger, TASK, cursor, now, THRESHOLD, policy(action, deadline));
            let mut expected = cursor;
            let mut seen = 0_u64;
            for run in &plan.dropped {
                prop_assert_eq!(run.first, expected);
                prop_assert!(run.count >= 1 && run.first <= run.last);
                expected = run.last.saturating_add(Millis(interval));
                seen += run.count;
            }
            for fired in plan.caught_up.iter().chain(&plan.on_time) {
                prop_assert_eq!(*fired, expected);
                expected = fired.saturating_add(Millis(interval));
                seen += 1;
            }
            prop_assert_eq!(plan.next, Some(expected));
            prop_assert!(expected > now || plan.on_time.len() == ON_TIME_MAX);
            prop_assert_eq!(seen, count_until(&trigger, cursor, Timestamp(expected.0 - 1)));
            if let MisfireAction::FireAll { limit } = action {
                prop_assert!(plan.caught_up.len() <= limit as usize);
            }
        }
    }
}
