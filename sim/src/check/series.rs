//! What a trigger gives: the oracle for fire times.

use punctual_core::cron::{self, Schedule, Timetable};
use punctual_core::definition::Trigger;
use punctual_core::time::{Millis, Timestamp};

/// The fire times of a trigger that knows them ahead.
#[derive(Clone, Copy)]
pub(super) enum Series<'a> {
    Cron(&'a Schedule),
    Rate(Millis),
    /// Those that are fired of a timetable that knows them ahead.
    Timetable(&'a Timetable),
}

impl<'a> Series<'a> {
    /// The fire times of this trigger, where it knows them ahead.
    pub(super) fn of(trigger: &'a Trigger) -> Option<Self> {
        match trigger {
            Trigger::Cron(schedule) => Some(Series::Cron(schedule)),
            Trigger::FixedRate { interval } => Some(Series::Rate(Millis(interval.0.max(1)))),
            Trigger::Timetable(timetable) if trigger.fixed_delay().is_none() => Some(Series::Timetable(timetable)),
            Trigger::Timetable(_) | Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => None,
        }
    }

    /// Whether it goes by the time that passes, whatever the wall clock shows.
    pub(super) fn is_loop(self) -> bool {
        match self {
            Series::Cron(_) => false,
            Series::Rate(_) => true,
            Series::Timetable(timetable) => {
                matches!(timetable.series(), cron::Series::FixedRate(_)) && timetable.window().starts_at.is_none()
            }
        }
    }

    /// The first fire time of a task that was made at this instant.
    pub(super) fn first(self, made_at: Timestamp) -> Option<Timestamp> {
        match self {
            Series::Cron(schedule) => schedule.next_after(made_at),
            Series::Rate(interval) => Some(made_at.saturating_add(interval)),
            Series::Timetable(timetable) => timetable.next_after(made_at),
        }
    }

    /// The fire time that follows this one.
    pub(super) fn next(self, fire_time: Timestamp) -> Option<Timestamp> {
        self.first(fire_time)
    }

    /// How many fire times there are from this one to `until`.
    pub(super) fn count(self, from: Timestamp, until: Timestamp) -> u64 {
        match self {
            _ if until < from => 0,
            Series::Cron(schedule) => 1 + schedule.count_in(from, until),
            Series::Rate(interval) => 1 + until.since(from).0 / interval.0,
            Series::Timetable(timetable) => 1 + timetable.count_in(from, until),
        }
    }

    /// Whether there are so many fire times from the first to the last, both among them.
    pub(super) fn is_run(self, first: Timestamp, last: Timestamp, count: u64) -> bool {
        if count <= 1 || last <= first {
            return count == 1 && first == last;
        }
        let ends_with_one = match self {
            Series::Cron(schedule) => schedule.latest_in(first, last) == Some(last),
            Series::Rate(interval) => last.since(first).0.is_multiple_of(interval.0),
            Series::Timetable(timetable) => timetable.latest_in(first, last) == Some(last),
        };
        ends_with_one && self.count(first, last) == count
    }

    /// The fire time with `index` others before it from this one on, where it is not later than `until`.
    pub(super) fn nth(self, from: Timestamp, index: u64, until: Timestamp) -> Option<Timestamp> {
        if let Series::Rate(interval) = self {
            return Some(from.saturating_add(interval.saturating_mul(index))).filter(|nth| *nth <= until);
        }
        if index <= 16 {
            let mut nth = from;
            for _ in 0..index {
                nth = self.next(nth)?;
            }
            return (nth <= until).then_some(nth);
        }
        if self.count(from, until) <= index {
            return None;
        }
        let (mut low, mut high) = (from, until);
        while low < high {
            let middle = Timestamp(low.0 + (high.0 - low.0) / 2);
            if self.count(from, middle) > index {
                high = middle;
            } else {
                low = Timestamp(middle.0 + 1);
            }
        }
        Some(low)
    }
}
