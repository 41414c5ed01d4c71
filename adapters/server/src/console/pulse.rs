//! What has ended in the last hour, minute by minute, and how late it began: counted as it is committed, so that nobody has to count rows.
//! It is what this replica has committed, since it started.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use punctual_core::batch::Batch;
use punctual_core::instance::{Cause, InstanceRow, Part, State};
use punctual_core::time::{Millis, Timestamp};

/// Minutes that are kept.
pub(super) const MINUTES: usize = 60;
const MINUTE_MS: i64 = 60_000;
/// The upper ends of the classes that delays are counted in, in milliseconds; what is longer is in a class of its own.
const DELAYS: [u64; 14] = [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000];

/// What has ended in a minute: whole firings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Minute {
    /// Minutes since 1970.
    at: i64,
    pub(super) succeeded: u64,
    /// Failed, out of time, or given up.
    pub(super) failed: u64,
    /// Cancelled or skipped.
    pub(super) left: u64,
    delays: [u64; DELAYS.len() + 1],
}

impl Minute {
    pub(super) fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.left
    }
}

/// The last hour. Of fixed size.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<VecDeque<Minute>>);

impl Pulse {
    /// Counts what a batch has ended.
    pub(crate) fn saw(&self, batch: &Batch) {
        let rows = batch.inserts.iter().chain(batch.updates.iter().map(|update| &update.row));
        let mut minutes = None;
        for (row, at) in rows.filter_map(|row| Some((row, row.ended_at()?))).filter(|(row, _)| row.part == Part::WHOLE) {
            let minutes = minutes.get_or_insert_with(|| self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if let Some(minute) = minute_of(minutes, at) {
                count(minute, row);
            }
        }
    }

    /// The minutes of the hour that ends at `now`, oldest first.
    pub(super) fn hour(&self, now: Timestamp) -> Vec<Minute> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = now.0.div_euclid(MINUTE_MS);
        let minute = |at: i64| kept.iter().find(|minute| minute.at == at).copied().unwrap_or(Minute { at, ..Minute::default() });
        (0..MINUTES as i64).rev().map(|ago| minute(last - ago)).collect()
    }
}

/// The minute of an instant; nothing where it is older than what is kept.
fn minute_of(minutes: &mut VecDeque<Minute>, at: Timestamp) -> Option<&mut Minute> {
    let at = at.0.div_euclid(MINUTE_MS);
    if minutes.back().is_none_or(|last| last.at < at) {
        minutes.push_back(Minute { at, ..Minute::default() });
        if minutes.len() > MINUTES {
            minutes.pop_front();
        }
    }
    // Clocks may be set back a little.
    minutes.iter_mut().rev().find(|minute| minute.at == at)
}

fn count(minute: &mut Minute, row: &InstanceRow) {
    match row.state {
        State::Succeeded => minute.succeeded += 1,
        State::Failed | State::TimedOut | State::DeadLettered => minute.failed += 1,
        _ => minute.left += 1,
    }
    // How late what was due by itself has begun.
    let begun = row.transitions.iter().find(|transition| matches!(transition.cause, Cause::Assigned | Cause::Divided));
    if let Some(begun) = begun.filter(|_| row.origin == punctual_core::instance::Origin::Schedule) {
        let delay = begun.at.since(row.fire_time).0;
        minute.delays[DELAYS.partition_point(|end| *end < delay)] += 1;
    }
}

/// The delay that so many of a hundred were not above, where anything began.
pub(super) fn delay(minutes: &[Minute], percent: u64) -> Option<Millis> {
    let of_class = |class: usize| minutes.iter().map(|minute| minute.delays[class]).sum::<u64>();
    let all: u64 = (0..=DELAYS.len()).map(of_class).sum();
    let wanted = (all * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let class = (0..=DELAYS.len()).find(|class| {
        seen += of_class(*class);
        seen >= wanted
    })?;
    Some(Millis(DELAYS.get(class).copied().unwrap_or(3_600_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut minutes = VecDeque::new();
        for number in 0..200 {
            minute_of(&mut minutes, Timestamp(number * MINUTE_MS + 5)).unwrap().succeeded += 1;
        }
        assert_eq!(minutes.len(), MINUTES);
        assert!(minute_of(&mut minutes, Timestamp(0)).is_none(), "it is long past");
        minute_of(&mut minutes, Timestamp(198 * MINUTE_MS)).unwrap().failed += 1;
        let pulse = Pulse(Mutex::new(minutes));
        let hour = pulse.hour(Timestamp(199 * MINUTE_MS));
        assert_eq!((hour.len(), hour.iter().map(Minute::ended).sum::<u64>()), (60, 61));
        assert_eq!((hour[58].failed, hour[59].failed), (1, 0));
        assert_eq!(pulse.hour(Timestamp(500 * MINUTE_MS)).iter().map(Minute::ended).sum::<u64>(), 0);
    }

    #[test]
    fn delays_are_told_by_their_class() {
        assert_eq!(delay(&[Minute::default()], 50), None);
        let mut minute = Minute::default();
        minute.delays[0] = 98;
        minute.delays[7] = 2;
        assert_eq!((delay(&[minute], 50), delay(&[minute], 99)), (Some(Millis(5)), Some(Millis(1_000))));
    }
}
