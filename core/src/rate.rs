//! How often a task may start.
//!
//! A window that slides: in no stretch of [`per`](RateLimit::per) that begins anywhere do more than [`starts`](RateLimit::starts) attempts
//! start. All of them may start at once, then the next ones as those grow older than `per`. A bucket that refills would need less memory,
//! and would let nearly twice as many start around a burst.
//!
//! Starts that are close together are remembered as one run, at the time of its last: so a log stays small whatever the limit is, never
//! lets too many start, and holds a start back by at most one [part](limits::RATE_PARTS) of `per` longer than it would have to.

use std::collections::VecDeque;

use crate::limits;
use crate::time::{Millis, Monotonic};

/// How often a task may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// So many attempts, first ones and repeated ones alike; 1 to [`limits::RATE_STARTS_MAX`].
    pub starts: u32,
    /// In any stretch of time of this length; [`limits::RATE_PER_MIN`] to [`limits::RATE_PER_MAX`].
    pub per: Millis,
}

/// What a task has started lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartLog {
    /// The oldest first.
    runs: VecDeque<Run>,
    /// Of all runs.
    count: u64,
}

/// Starts that are remembered as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: Monotonic,
    last: Monotonic,
    count: u64,
}

impl StartLog {
    /// The log of somebody who doesn't know what was started before `now`: as if it had been as much as was allowed, just then.
    pub fn used_up(limit: RateLimit, now: Monotonic) -> StartLog {
        let count = u64::from(limit.starts);
        StartLog { runs: VecDeque::from([Run { first: now, last: now, count }]), count }
    }

    /// How many may start now.
    pub fn free(&mut self, limit: RateLimit, now: Monotonic) -> u64 {
        self.forget_old(limit.per, now);
        u64::from(limit.starts).saturating_sub(self.count)
    }

    /// One has started.
    pub fn note(&mut self, limit: RateLimit, now: Monotonic) {
        self.forget_old(limit.per, now);
        self.count += 1;
        let part = Millis(limit.per.0 / limits::RATE_PARTS);
        match self.runs.back_mut() {
            Some(run) if now.since(run.first) <= part => {
                run.last = run.last.max(now);
                run.count += 1;
            }
            _ => self.runs.push_back(Run { first: now, last: now, count: 1 }),
        }
    }

    /// When one more may start, if before it so many start now.
    pub fn opens_at(&mut self, limit: RateLimit, now: Monotonic, before: u64) -> Monotonic {
        self.forget_old(limit.per, now);
        let mut too_many = (self.count + before + 1).saturating_sub(u64::from(limit.starts));
        if too_many == 0 {
            return now;
        }
        for run in &self.runs {
            if run.count >= too_many {
                return run.last + limit.per;
            }
            too_many -= run.count;
        }
        now + limit.per
    }

    /// Whether nothing in it is younger than any limit counts.
    pub fn is_idle(&self, now: Monotonic) -> bool {
        self.runs.back().is_none_or(|run| run.last + limits::RATE_PER_MAX <= now)
    }

    fn forget_old(&mut self, per: Millis, now: Monotonic) {
        while let Some(run) = self.runs.pop_front_if(|run| run.last + per <= now) {
            self.count -= run.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEN_A_SECOND: RateLimit = RateLimit { starts: 10, per: Millis(1_000) };

    #[test]
    fn all_may_start_at_once_and_then_none_until_they_are_old() {
        let mut log = StartLog::default();
        for start in 0..10 {
            assert_eq!(log.free(TEN_A_SECOND, Monotonic(5_000)), 10 - start);
            log.note(TEN_A_SECOND, Monotonic(5_000));
        }
        assert_eq!(log.free(TEN_A_SECOND, Monotonic(5_999)), 0);
        assert_eq!(log.opens_at(TEN_A_SECOND, Monotonic(5_500), 0), Monotonic(6_000));
        assert_eq!(log.free(TEN_A_SECOND, Monotonic(6_000)), 10);
    }

    #[test]
    fn who_does_not_know_the_past_waits_it_out() {
        let mut log = StartLog::used_up(TEN_A_SECOND, Monotonic(100));
        assert_eq!(log.free(TEN_A_SECOND, Monotonic(1_099)), 0);
        assert_eq!(log.free(TEN_A_SECOND, Monotonic(1_100)), 10);
    }

    #[test]
    fn the_next_places_open_in_the_order_in_which_they_were_taken() {
        let limit = RateLimit { starts: 2, per: Millis(1_000) };
        let mut log = StartLog::default();
        log.note(limit, Monotonic(0));
        log.note(limit, Monotonic(400));
        let opens = [0, 1, 2].map(|before| log.opens_at(limit, Monotonic(500), before).0);
        assert_eq!(opens, [1_000, 1_400, 1_500]);
    }

    #[test]
    fn an_edit_counts_with_what_was_started_under_the_limit_before() {
        let mut log = StartLog::default();
        (0..10).for_each(|_| log.note(TEN_A_SECOND, Monotonic(0)));
        assert_eq!(log.free(RateLimit { starts: 12, ..TEN_A_SECOND }, Monotonic(10)), 2);
        assert_eq!(log.free(RateLimit { starts: 3, ..TEN_A_SECOND }, Monotonic(10)), 0);
        assert_eq!(log.opens_at(RateLimit { starts: 3, ..TEN_A_SECOND }, Monotonic(10), 0), Monotonic(1_000));
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_starts_than_allowed(
            starts in 1..40_u32,
            per in 100..5_000_u64,
            waits in proptest::collection::vec(0..300_u64, 1..400),
        ) {
            let limit = RateLimit { starts, per: Millis(per) };
            let (mut log, mut now, mut started) = (StartLog::default(), Monotonic(1), Vec::new());
            for wait in waits {
                now += Millis(wait);
                if log.free(limit, now) > 0 {
                    log.note(limit, now);
                    started.push(now);
                }
            }
            for pair in started.windows(starts as usize + 1) {
                prop_assert!(pair[pair.len() - 1].since(pair[0]) >= limit.per, "{} starts within {:?}", pair.len(), limit.per);
            }
            prop_assert!(log.runs.len() as u64 <= limits::RATE_PARTS + 2);
        }

        /// Whoever starts as soon as it is said that one may gets all that is allowed, but for the coarseness of the log.
        #[test]
        fn whoever_waits_as_told_gets_the_whole_rate(starts in 1..40_u32, per in 100..5_000_u64) {
            let limit = RateLimit { starts, per: Millis(per) };
            let (mut log, mut now) = (StartLog::used_up(limit, Monotonic(0)), Monotonic(0));
            for _ in 0..4 * starts {
                now = log.opens_at(limit, now, 0);
                prop_assert!(log.free(limit, now) > 0, "it was said that one may start");
                log.note(limit, now);
            }
            let longest = 4 * (per + per / limits::RATE_PARTS + 1);
            prop_assert!(now.0 <= longest, "{} starts took {} ms of {longest}", 4 * starts, now.0);
        }

        #[test]
        fn a_log_stays_small(starts in 1..1_000_000_u32, per in 100..3_600_000_u64, steps in proptest::collection::vec(0..2_000_u64, 1..2_000)) {
            let limit = RateLimit { starts, per: Millis(per) };
            let (mut log, mut now) = (StartLog::default(), Monotonic(0));
            for step in steps {
                now += Millis(step);
                log.note(limit, now);
            }
            prop_assert!(log.runs.len() as u64 <= limits::RATE_PARTS + 2, "{} runs", log.runs.len());
        }
    }
}
