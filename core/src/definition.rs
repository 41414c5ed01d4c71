//! What a task is, as far as deciding goes.
//!
//! Descriptions, owners and the like live in the stored document, not here. What a handler does is not the core's business either: it
//! passes the handler's configuration on to the worker unread.

use std::sync::Arc;

use crate::backoff::BackoffPolicy;
use crate::cron::{Schedule, Series, Timetable};
use crate::limits;
use crate::time::{Millis, Timestamp};

/// One version of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDefinition {
    /// The task's name, 1 to 128 characters, unique among the tasks.
    pub name: Arc<str>,
    /// A task that is not enabled fires by hand only.
    pub enabled: bool,
    /// What makes it fire.
    pub trigger: Trigger,
    /// What is run.
    pub handler: Handler,
    /// Handed to the handler with each instance, unless a manual trigger brings its own.
    pub payload: Option<Arc<str>>,
    /// What is done when things don't go as they should. Shared by tasks that have the same: a million tasks hardly have more than a few.
    pub policies: Arc<Policies>,
    /// Whether an attempt may be repeated when nobody knows how far the last one got.
    pub idempotent: bool,
    /// The band of the ready queue that its instances wait in.
    pub band: Band,
}

/// What is done when things don't go as they should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policies {
    /// What becomes of fire times that passed while nobody could fire them.
    pub misfire: MisfirePolicy,
    /// How many instances may be in progress at once.
    pub concurrency: ConcurrencyPolicy,
    /// What follows a failed or lost attempt.
    pub retry: RetryPolicy,
    /// What bounds an attempt in time.
    pub timeout: TimeoutPolicy,
}

/// What makes a task fire.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// At the times of a cron schedule.
    Cron(Arc<Schedule>),
    /// Every `interval`, counted from fire time to fire time, the first one `interval` after the task was made.
    FixedRate {
        /// From one fire time to the next.
        interval: Millis,
    },
    /// `interval` after the last instance has ended, the first one `interval` after the task was made.
    FixedDelay {
        /// From the end of an instance to the next fire time.
        interval: Millis,
    },
    /// Once, `delay` after the task was made, and once again `delay` after each manual trigger.
    Delay {
        /// From the submission to the fire time.
        delay: Millis,
    },
    /// One of the first three, refined: in a window, without some days or hours, with jitter. A trigger that nothing refines is none of these.
    Timetable(Arc<Timetable>),
    /// By hand only.
    Manual,
}

impl Trigger {
    /// The interval of a fixed delay, refined or not.
    pub fn fixed_delay(&self) -> Option<Millis> {
        match self {
            Trigger::FixedDelay { interval } => Some(*interval),
            Trigger::Timetable(timetable) => match timetable.series() {
                Series::FixedDelay(interval) => Some(*interval),
                Series::Cron(_) | Series::FixedRate(_) => None,
            },
            Trigger::Cron(_) | Trigger::FixedRate { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
        }
    }

    /// Whether a cursor goes by the wall clock: cron, a rate that counts from an instant, and whatever waits for its window. Everything else
    /// goes by the time that passes.
    pub fn goes_by_wall_clock(&self, cursor: Timestamp) -> bool {
        match self {
            Trigger::Cron(_) => true,
            Trigger::Timetable(timetable) => match timetable.series() {
                Series::Cron(_) => true,
                Series::FixedRate(_) => timetable.window().starts_at.is_some(),
                Series::FixedDelay(_) => timetable.window().starts_at == Some(cursor),
            },
            Trigger::FixedRate { .. } | Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => false,
        }
    }
}

/// What a worker is to run: a handler that it knows by name, and that handler's own configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// The name under which workers announce the handler: `command`, `http`, or a user's own.
    pub name: Arc<str>,
    /// The handler's configuration as a JSON object, read by the worker alone.
    pub config: Arc<str>,
}

/// What becomes of fire times that passed while nobody could fire them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MisfirePolicy {
    /// Which of the missed fire times are made up for.
    pub action: MisfireAction,
    /// A fire time later than this is skipped, whatever the action.
    pub deadline: Option<Millis>,
}

impl Default for MisfirePolicy {
    fn default() -> Self {
        MisfirePolicy { action: MisfireAction::FireOnce, deadline: None }
    }
}

/// Which of the missed fire times are made up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MisfireAction {
    /// The latest one; the others are coalesced into it.
    FireOnce,
    /// The latest `limit` of them, in order; earlier ones are dropped, on record.
    FireAll {
        /// At most this many; 1 to [`limits::CATCH_UP_MAX`].
        limit: u32,
    },
    /// None.
    Skip,
}

/// How many instances of a task may be in progress at once. One that waits to be retried is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConcurrencyPolicy {
    /// At least 1, at most [`limits::MAX_RUNNING_MAX`].
    pub max_running: u32,
    /// What becomes of an instance that comes when that many are in progress.
    pub blocking: Blocking,
}

impl Default for ConcurrencyPolicy {
    fn default() -> Self {
        ConcurrencyPolicy { max_running: 1, blocking: Blocking::Queue { max_queue: limits::MAX_QUEUE_DEFAULT } }
    }
}

/// What becomes of an instance that comes when the task is at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocking {
    /// It waits, first in first out; where `max_queue` wait already it is discarded.
    Queue {
        /// At most [`limits::MAX_QUEUE_MAX`].
        max_queue: u32,
    },
    /// It is discarded, on record.
    Discard,
    /// The oldest one in progress is cancelled, and the new one starts when that has stopped.
    Replace,
}

/// What follows a failed or lost attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// At most this many attempts in all, failed ones and lost workers together. `None`: the first failure ends the instance, and up to
    /// `max_losses` lost workers are made up for.
    pub max_attempts: Option<u32>,
    /// An instance that has lost this many workers and loses one more is quarantined in the dead letters.
    pub max_losses: u32,
    /// How long to wait before the next attempt.
    pub backoff: BackoffPolicy,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { max_attempts: None, max_losses: limits::MAX_LOSSES_DEFAULT, backoff: BackoffPolicy::default() }
    }
}

/// What bounds an attempt in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeoutPolicy {
    /// How long an attempt may run; `None`: as long as it likes.
    pub after: Option<Millis>,
    /// From the cancel signal to the kill.
    pub grace: Millis,
    /// What is done when the time is over.
    pub action: TimeoutAction,
}

impl Default for TimeoutPolicy {
    fn default() -> Self {
        TimeoutPolicy { after: None, grace: Millis::from_secs(10), action: TimeoutAction::Kill }
    }
}

/// What is done when an attempt's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutAction {
    /// It gets the cancel signal, and after the grace it is killed.
    Kill,
    /// It may end, and its result counts if its fence still holds; the overrun is on record.
    Wait,
}

/// A band of the ready queue. Urgent instances go first, by weight, so that none starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Before all others.
    Urgent,
    /// The usual one.
    #[default]
    Normal,
    /// When there is room.
    Low,
}
