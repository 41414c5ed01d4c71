//! A task's budget of retries: what ends a storm of them.
//!
//! Counts first attempts that ended and retries that were granted over the last minute, in buckets of ten seconds. A minute may begin and
//! end in the middle of a bucket, so one more is kept than a minute has: in no minute are there more retries than the budget gives, and
//! what was used up comes back after 60 to 70 seconds.
//!
//! Absent: the policy, which comes with each question, and memory beyond the buckets. One that has counted nothing for so long is the same
//! as a new one.

use crate::definition::RetryBudget;
use crate::time::{Millis, Monotonic};

/// How long a bucket counts.
const BUCKET: Millis = Millis(10_000);
/// A minute, and one more.
const BUCKETS: usize = 7;

/// What a task has used of its budget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    buckets: [Bucket; BUCKETS],
    /// Which of all buckets since the clock's beginning the newest one is.
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    firsts: u32,
    retries: u32,
}

impl Budget {
    /// Nothing is used yet.
    pub fn new(now: Monotonic) -> Self {
        Budget { buckets: Default::default(), newest: now.0 / BUCKET.0 }
    }

    /// The first attempt of an instance has ended, however it did.
    pub fn first_ended(&mut self, now: Monotonic) {
        let bucket = self.bucket(now);
        bucket.firsts = bucket.firsts.saturating_add(1);
    }

    /// Takes one retry out. False: there is none, and nothing was taken.
    pub fn withdraw(&mut self, now: Monotonic, policy: RetryBudget) -> bool {
        self.advance(now);
        let (firsts, retries) = self.counted();
        let by_ratio = firsts * u64::from(policy.ratio_permille) / 1_000;
        if retries >= by_ratio.max(u64::from(policy.min_per_minute)) {
            return false;
        }
        let bucket = self.bucket(now);
        bucket.retries = bucket.retries.saturating_add(1);
        true
    }

    /// Whether it is as good as new.
    pub fn is_unused(&mut self, now: Monotonic) -> bool {
        self.advance(now);
        self.counted() == (0, 0)
    }

    /// First attempts and retries of all buckets.
    fn counted(&self) -> (u64, u64) {
        let sum = |of: fn(&Bucket) -> u32| self.buckets.iter().map(|bucket| u64::from(of(bucket))).sum();
        (sum(|bucket| bucket.firsts), sum(|bucket| bucket.retries))
    }

    fn bucket(&mut self, now: Monotonic) -> &mut Bucket {
        self.advance(now);
        &mut self.buckets[(self.newest % BUCKETS as u64) as usize]
    }

    /// Empties the buckets whose time has come round again.
    fn advance(&mut self, now: Monotonic) {
        let newest = now.0 / BUCKET.0;
        let first = (self.newest + 1).max(newest.saturating_sub(BUCKETS as u64 - 1));
        for number in first..=newest {
            self.buckets[(number % BUCKETS as u64) as usize] = Bucket::default();
        }
        self.newest = self.newest.max(newest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: u64 = 60_000;

    fn at(millis: u64) -> Monotonic {
        Monotonic(millis)
    }

    fn policy(ratio_permille: u32, min_per_minute: u32) -> RetryBudget {
        RetryBudget { ratio_permille, min_per_minute }
    }

    #[test]
    fn the_least_is_there_without_a_first_attempt_and_comes_back() {
        let mut budget = Budget::new(at(5));
        assert!((0..10).all(|_| budget.withdraw(at(5), policy(0, 10))));
        assert!(!budget.withdraw(at(MINUTE), policy(0, 10)), "the minute is not over");
        assert!(budget.withdraw(at(MINUTE + 10_000), policy(0, 10)));
    }

    #[test]
    fn each_first_attempt_brings_its_share() {
        let mut budget = Budget::new(at(0));
        (0..100).for_each(|_| budget.first_ended(at(0)));
        let granted = (0..100).filter(|_| budget.withdraw(at(1), policy(200, 10))).count();
        assert_eq!(granted, 20);
        assert!(!budget.is_unused(at(69_999)));
        assert!(budget.is_unused(at(70_000)));
        assert!(budget.is_unused(at(u64::MAX)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pass(u64),
        First,
        Retry,
    }

    fn step() -> impl Strategy<Value = Step> {
        let pass = prop_oneof![0..500_u64, 0..20_000_u64, 0..200_000_u64];
        prop_oneof![2 => pass.prop_map(Step::Pass), 3 => Just(Step::First), 6 => Just(Step::Retry)]
    }

    proptest! {
        #[test]
        fn no_minute_has_more_retries_than_the_budget_gives(
            ratio in 0..3_000_u32,
            least in 0..6_u32,
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let policy = policy(ratio, least);
            let mut now = 0;
            let mut budget = Budget::new(at(now));
            let (mut firsts, mut retries): (Vec<u64>, Vec<u64>) = Default::default();
            for step in steps {
                let since = |times: &[u64], length: u64| times.iter().filter(|time| **time + length > now).count() as u64;
                match step {
                    Step::Pass(millis) => now += millis,
                    Step::First => {
                        budget.first_ended(at(now));
                        firsts.push(now);
                    }
                    Step::Retry => {
                        let most = |firsts: u64| u64::from(least).max(firsts * u64::from(ratio) / 1_000);
                        let granted = budget.withdraw(at(now), policy);
                        if granted {
                            prop_assert!(since(&retries, MINUTE) < most(since(&firsts, MINUTE + 10_000)));
                            retries.push(now);
                        } else {
                            let used = since(&retries, MINUTE + 10_000);
                            prop_assert!(used >= most(since(&firsts, MINUTE)), "refused with {used} used");
                        }
                    }
                }
            }
        }
    }
}
