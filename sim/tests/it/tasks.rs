//! Tasks that several tests use, and stories that begin with one.

use std::sync::Arc;

use jiff::tz::TimeZone;
use punctual_core::backoff::{Backoff, BackoffPolicy, Jitter};
use punctual_core::cron::{Expression, GapPolicy, OverlapPolicy, Schedule};
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::ids::TaskId;
use punctual_core::time::Millis;

use crate::story::{Story, every, manual, policies, secs, with};

/// A task of a cron expression, in UTC.
pub(crate) fn cron(name: &str, expression: &str) -> TaskDefinition {
    let expression = Expression::parse(expression, None).expect("a cron expression");
    let schedule = Schedule::new(expression, TimeZone::UTC, GapPolicy::AfterGap, OverlapPolicy::First);
    roomy(with(name, Trigger::Cron(Arc::new(schedule))))
}

/// Without a limit that could get in the way.
pub(crate) fn roomy(definition: TaskDefinition) -> TaskDefinition {
    policies(definition, |policies| policies.concurrency.max_running = 1_000)
}

/// The task `t` at a fixed rate.
pub(crate) fn rate(secs: u64) -> TaskDefinition {
    roomy(every("t", secs))
}

/// Fires these fire times, in seconds, each on time, and ends each at once.
pub(crate) fn fire_all(story: &mut Story, task: TaskId, fire_times: impl IntoIterator<Item = u64>) {
    for fire_time in fire_times {
        story.until(fire_time.max(story.at.div_ceil(1_000)));
        let id = story.fire(task, secs(fire_time));
        story.run(id, 0);
    }
}

/// A healed story of one task.
pub(crate) fn story_of(definition: TaskDefinition) -> (Story, TaskId) {
    let mut story = Story::new();
    story.heal();
    let task = story.define(1, definition);
    (story, task)
}

/// A story of one task that has not healed yet, so that nothing is said of the rate.
pub(crate) fn unhealed(definition: TaskDefinition) -> (Story, TaskId) {
    let mut story = Story::new();
    let task = story.define(1, definition);
    (story, task)
}

/// The run ends so many seconds after the beginning.
pub(crate) fn finish(story: &mut Story, at: u64) {
    story.until(at);
    story.finish();
}

/// A task that is retried after one second, four attempts in all.
pub(crate) fn retried(name: &str) -> TaskDefinition {
    policies(manual(name), |policies| {
        policies.retry.max_attempts = Some(4);
        policies.retry.backoff = BackoffPolicy { kind: Backoff::Fixed, first: Millis(1_000), cap: Millis(60_000), jitter: Jitter::None };
        policies.concurrency.max_running = 100;
    })
}

/// A story that has made this task.
pub(crate) fn begun(definition: TaskDefinition) -> (Story, TaskId) {
    let mut story = Story::new();
    let task = story.define(1, definition);
    (story, task)
}

/// A story of a task that is retried.
pub(crate) fn retrying() -> (Story, TaskId) {
    begun(retried("t"))
}
