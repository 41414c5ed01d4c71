//! Whatever a history looks like, judging it ends with a verdict on each property.

use std::sync::Arc;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use punctual_core::cron::{Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::definition::{MisfireAction, Trigger};
use punctual_core::instance::{Cause, State};
use punctual_core::occurrence::Outcome;
use punctual_core::time::Millis;
use punctual_sim::check;
use punctual_sim::history::{History, Record, What, Who};

use crate::story::{Story, every, manual, policies, secs, with};

/// A good history with something of everything.
fn rich() -> Story {
    let mut story = Story::new();
    let schedule = Schedule::new(
        Expression::parse("* * * * *", None).expect("a cron expression"),
        TimeZone::UTC,
        GapPolicy::AfterGap,
        OverlapPolicy::First,
    );
    let many = |policies: &mut punctual_core::definition::Policies| {
        policies.concurrency.max_running = 10;
        policies.retry.max_attempts = Some(5);
        policies.retry.backoff.first = Millis(0);
        policies.timeout.after = Some(Millis(60_000));
        policies.misfire.action = MisfireAction::Skip;
    };
    let rate = story.define(1, policies(every("rate", 50), many));
    let cron = story.define(2, policies(with("cron", Trigger::Cron(Arc::new(schedule))), many));
    let by_hand = story.define(3, policies(manual("by-hand"), many));
    let delay = story.define(4, policies(with("delay", Trigger::FixedDelay { interval: Millis::from_secs(1_000) }), many));
    story.takes("rate", 1_000);
    story.until(50);
    let id = story.fire(rate, secs(50));
    story.run(id, 0);
    story.until(60);
    let id = story.fire(cron, secs(60));
    story.start(id, 1);
    story.fail(id, 1, 0);
    story.ready_again(id);
    story.run(id, 0);
    let id = story.trigger(by_hand);
    let fence = story.start(id, 0);
    story.effect(id, fence, 0);
    story.record(Who::Worker(0), What::Crashed);
    story.lose(id);
    story.ready_again(id);
    story.record(Who::Worker(0), What::Started { life: 2 });
    story.record(Who::Worker(1), What::Paused);
    story.record(Who::Worker(1), What::Resumed);
    story.run(id, 1);
    let id = story.trigger(by_hand);
    let cancel = story.cancel(id);
    story.change(id, State::Cancelled, Cause::CancelRequested);
    story.batch.applied.push(cancel);
    story.commit();
    story.until(90);
    story.remove(delay);
    // A tail that is lost, and what follows.
    let before = story.clone();
    let from = story.history.records.len();
    story.trigger(by_hand);
    story.record(Who::Database, What::TailLost { from });
    (story.commit_seq, story.rows, story.stored) = (before.commit_seq, before.rows, before.stored);
    story.heal();
    story.until(110);
    story.drop_run(rate, secs(100), secs(100), 1, Outcome::MisfireSkipped);
    story.commit();
    for at in [(120, cron), (150, rate), (180, cron), (200, rate), (240, cron), (250, rate), (300, cron)] {
        story.until(at.0);
        let id = story.fire(at.1, secs(at.0));
        story.run(id, 1);
        if at.0 == 300 {
            let id = story.fire(rate, secs(300));
            story.run(id, 0);
        }
    }
    story.until(320);
    story.finish();
    story
}

#[test]
fn a_rich_history_is_good() {
    let story = rich();
    assert_eq!(story.violations(), []);
    assert_eq!(check::judge(&story.plan, &story.history).len(), check::CATALOGUE.len());
}

#[test]
fn an_empty_history_is_judged_too() {
    let story = Story::new();
    for judgement in check::judge(&story.plan, &History::default()) {
        assert!(!matches!(judgement.verdict, check::Verdict::Violated { .. }), "{judgement:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Blow {
    Drop(usize),
    Repeat(usize, usize),
    Swap(usize, usize),
    Cut(usize),
    LoseTail(usize, usize),
    StepClock(usize, i64),
    SetTime(usize, u64, i64),
    GiveAway(usize, usize),
}

fn blow() -> impl Strategy<Value = Blow> {
    let place = || 0..1_000_usize;
    prop_oneof![
        5 => place().prop_map(Blow::Drop),
        5 => (place(), place()).prop_map(|(from, to)| Blow::Repeat(from, to)),
        5 => (place(), place()).prop_map(|(a, b)| Blow::Swap(a, b)),
        1 => place().prop_map(Blow::Cut),
        2 => (place(), place()).prop_map(|(from, at)| Blow::LoseTail(from, at)),
        2 => (place(), any::<i64>()).prop_map(|(at, by)| Blow::StepClock(at, by)),
        1 => (place(), any::<u64>(), any::<i64>()).prop_map(|(place, at, wall)| Blow::SetTime(place, at, wall)),
        2 => (place(), 0..4_usize).prop_map(|(place, whose)| Blow::GiveAway(place, whose)),
    ]
}

fn strike(records: &mut Vec<Record>, blow: Blow) {
    let count = records.len();
    if count == 0 {
        return;
    }
    let beside = |place: usize, who, what| Record { who, what, ..records[place].clone() };
    match blow {
        Blow::Drop(place) => {
            records.remove(place % count);
        }
        Blow::Repeat(from, to) => {
            let record = records[from % count].clone();
            records.insert(to % count, record);
        }
        Blow::Swap(a, b) => records.swap(a % count, b % count),
        Blow::Cut(place) => records.truncate(place % count),
        Blow::LoseTail(from, at) => {
            let record = beside(at % count, Who::Database, What::TailLost { from });
            records.insert(at % count, record);
        }
        Blow::StepClock(at, by) => {
            let who = if by % 2 == 0 { Who::Database } else { Who::Scheduler(0) };
            let record = beside(at % count, who, What::ClockStepped { by });
            records.insert(at % count, record);
        }
        Blow::SetTime(place, at, wall) => {
            records[place % count].at = at;
            records[place % count].wall.0 = wall;
        }
        Blow::GiveAway(place, whose) => {
            records[place % count].who = [Who::World, Who::Database, Who::Scheduler(1), Who::Worker(1)][whose];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn judging_never_panics(blows in proptest::collection::vec(blow(), 0..12)) {
        thread_local!(static RICH: Story = rich());
        let mut story = RICH.with(Story::clone);
        for blow in blows {
            strike(&mut story.history.records, blow);
        }
        let judgements = check::judge(&story.plan, &story.history);
        prop_assert_eq!(judgements.len(), check::CATALOGUE.len());
        prop_assert_eq!(judgements, check::judge(&story.plan, &story.history));
    }
}
