//! How long to wait before the next attempt.
//!
//! Absent: a source of randomness. Jitter is a hash of a seed that the caller derives from instance and attempt, so whoever computes
//! the delay again gets the same one. All arithmetic saturates; no delay is ever above the cap.

use crate::time::Millis;

/// How the delay grows with the number of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// The first delay, always.
    Fixed,
    /// The first delay times the number of failures.
    Linear,
    /// The delay before, times a factor.
    Exponential {
        /// The factor in thousandths: 2 000 doubles. Less than 1 000 counts as 1 000.
        factor_permille: u32,
    },
}

/// What chance does to a delay `d`, so that tasks that failed together don't come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// Nothing.
    None,
    /// Between nothing and `d`. Spreads best, and may retry at once.
    Full,
    /// Between half of `d` and `d`.
    Equal,
    /// `d` give or take a share of it, which cuts off at the cap: where `d` is near the cap, the mean is less than `d`.
    Proportional {
        /// The share in thousandths: 200 is a fifth up or down. More than 1 000 counts as 1 000.
        permille: u32,
    },
}

/// When to try again. The default doubles from 30 s to half an hour with [`Jitter::Equal`], which spreads a wave of failures and still
/// leaves what failed some time to recover; full jitter may leave none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackoffPolicy {
    /// How the delay grows.
    pub kind: Backoff,
    /// The delay after the first failure.
    pub first: Millis,
    /// The longest delay. It is applied before the jitter, and again after it.
    pub cap: Millis,
    /// What chance adds or takes away.
    pub jitter: Jitter,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        BackoffPolicy {
            kind: Backoff::Exponential { factor_permille: 2_000 },
            first: Millis::from_secs(30),
            cap: Millis::from_secs(30 * 60),
            jitter: Jitter::Equal,
        }
    }
}

impl BackoffPolicy {
    /// The delay after the `failures`-th failure, counted from 1; 0 counts as 1. The same arguments give the same delay.
    pub fn delay(&self, failures: u32, seed: u64) -> Millis {
        let cap = self.cap.0;
        let steps = failures.saturating_sub(1);
        let delay = match self.kind {
            Backoff::Fixed => self.first.0,
            Backoff::Linear => self.first.0.saturating_mul(u64::from(steps) + 1),
            Backoff::Exponential { factor_permille } => exponential(self.first.0, factor_permille, steps, cap),
        };
        let delay = delay.min(cap);
        let jittered = match self.jitter {
            Jitter::None => delay,
            Jitter::Full => between(0, delay, seed),
            Jitter::Equal => between(delay.div_ceil(2), delay, seed),
            Jitter::Proportional { permille } => {
                let share = (u128::from(delay) * u128::from(permille.min(1_000)) / 1_000) as u64;
                between(delay - share, delay.saturating_add(share), seed)
            }
        };
        Millis(jittered.min(cap))
    }
}

/// `first` times the `steps`-th power of the factor, rounded down, at most `cap`. Carries 64 bits of fraction from step to step, so
/// that 1 ms grows by a factor of 1.5 too. Stops at the cap: after at most 64 steps with a factor of 2, and some 44 000 with the
/// smallest, 1.001.
fn exponential(first: u64, factor_permille: u32, steps: u32, cap: u64) -> u64 {
    let factor = u128::from(factor_permille.max(1_000));
    if factor == 1_000 || first == 0 {
        return first.min(cap);
    }
    let (mut whole, mut fraction) = (first, 0);
    for _ in 0..steps {
        if whole >= cap {
            break;
        }
        let low = u128::from(fraction) * factor;
        let high = u128::from(whole) * factor + (low >> 64);
        let remainder = ((high % 1_000) << 64) | u128::from(low as u64);
        whole = u64::try_from(high / 1_000).unwrap_or(u64::MAX);
        fraction = (remainder / 1_000) as u64;
    }
    whole.min(cap)
}

/// One of the whole numbers from `low` to `high`, each as likely as the others.
pub(crate) fn between(low: u64, high: u64, seed: u64) -> u64 {
    let choices = u128::from(high - low) + 1;
    low + ((u128::from(splitmix64(seed)) * choices) >> 64) as u64
}

/// Sebastiano Vigna's SplitMix64: one step from `seed`.
pub(crate) fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DOUBLING: Backoff = Backoff::Exponential { factor_permille: 2_000 };
    const TEN_YEARS: u64 = 315_576_000_000;
    const SAMPLES: u64 = 100_000;

    fn policy(kind: Backoff, first: u64, cap: u64, jitter: Jitter) -> BackoffPolicy {
        BackoffPolicy { kind, first: Millis(first), cap: Millis(cap), jitter }
    }

    fn delays(policy: BackoffPolicy, failures: impl Iterator<Item = u32>) -> Vec<u64> {
        failures.map(|n| policy.delay(n, 0).0).collect()
    }

    /// C328, and `grows_by_one_and_a_half_exactly` and `extreme_policies_stay_within_the_cap`.
    #[test]
    fn doubles_up_to_the_cap_and_stays_there() {
        let got = delays(policy(DOUBLING, 300, 60_000, Jitter::None), 1..=10_000);
        assert_eq!(got[..8], [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400]);
        assert!(got[8..].iter().all(|&delay| delay == 60_000));
    }

    #[test]
    fn grows_by_one_and_a_half_exactly() {
        let kind = Backoff::Exponential { factor_permille: 1_500 };
        let got = delays(policy(kind, 1, u64::MAX, Jitter::None), 1..=65);
        let expected: Vec<u64> = (0..=64).map(|n| (3u128.pow(n) >> n) as u64).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn extreme_policies_stay_within_the_cap() {
        for first in [0, 1, 300, TEN_YEARS, u64::MAX] {
            for factor_permille in [0, 1_000, 1_001, 1_500, 2_000, u32::MAX] {
                for kind in [Backoff::Fixed, Backoff::Linear, Backoff::Exponential { factor_permille }] {
                    for cap in [0, 1, 60_000, TEN_YEARS, u64::MAX] {
                        let policy = policy(kind, first, cap, Jitter::None);
                        let got = delays(policy, [0, 1, 2, 56, 63, 64, 65, 10_000, u32::MAX].into_iter());
                        assert!(got.is_sorted() && got[0] == first.min(cap) && got[8] <= cap, "{policy:?} gave {got:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn gaps_after_each_failure() {
        let gaps = |kind, first| delays(policy(kind, first, 1_800_000, Jitter::None), 1..=3);
        assert_eq!(gaps(Backoff::Fixed, 5_000), [5_000, 5_000, 5_000]);
        assert_eq!(gaps(Backoff::Linear, 5_000), [5_000, 10_000, 15_000]);
        assert_eq!(gaps(DOUBLING, 2_000), [2_000, 4_000, 8_000]);
    }

    #[test]
    fn default_is_half_a_minute_to_half_an_hour() {
        let policy = BackoffPolicy::default();
        assert!((15_000..=30_000).contains(&policy.delay(1, 7).0));
        assert!((900_000..=1_800_000).contains(&policy.delay(100, 7).0));
    }

    /// Least, mean and greatest of many delays.
    fn spread(policy: BackoffPolicy, failures: u32) -> (u64, f64, u64) {
        let samples: Vec<u64> = (0..SAMPLES).map(|seed| policy.delay(failures, seed).0).collect();
        let sum: u64 = samples.iter().sum();
        (*samples.iter().min().unwrap(), sum as f64 / SAMPLES as f64, *samples.iter().max().unwrap())
    }

    /// C329.
    fn check_spread(jitter: Jitter, low_permille: u64, high_permille: u64) {
        for failures in 1..=12 {
            let d = policy(DOUBLING, 300, 60_000, Jitter::None).delay(failures, 0).0;
            let high = (d * high_permille / 1_000).min(60_000);
            let low = d * low_permille / 1_000;
            let (least, mean, greatest) = spread(policy(DOUBLING, 300, 60_000, jitter), failures);
            assert!(low <= least && greatest <= high, "{jitter:?} of {d}: {least} to {greatest}");
            if d * high_permille / 1_000 <= 60_000 {
                let expected = (low + high) as f64 / 2.0;
                assert!((mean - expected).abs() < expected / 100.0, "{jitter:?} of {d}: mean {mean}");
            }
        }
    }

    #[test]
    fn full_jitter_takes_all_of_the_delay() {
        check_spread(Jitter::Full, 0, 1_000);
    }

    #[test]
    fn equal_jitter_keeps_half() {
        check_spread(Jitter::Equal, 500, 1_000);
    }

    #[test]
    fn proportional_jitter_goes_both_ways_but_never_over_the_cap() {
        check_spread(Jitter::Proportional { permille: 200 }, 800, 1_200);
    }

    fn any_kind() -> impl Strategy<Value = Backoff> {
        let exponential = prop_oneof![0..5_000u32, any::<u32>()].prop_map(|factor_permille| Backoff::Exponential { factor_permille });
        prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), exponential]
    }

    fn any_jitter() -> impl Strategy<Value = Jitter> {
        let proportional = any::<u32>().prop_map(|permille| Jitter::Proportional { permille });
        prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Equal), proportional]
    }

    fn any_millis() -> impl Strategy<Value = u64> {
        prop_oneof![0..100u64, 0..TEN_YEARS, any::<u64>()]
    }

    proptest! {
        #[test]
        fn never_above_the_cap(
            kind in any_kind(), first in any_millis(), cap in any_millis(), jitter in any_jitter(), failures: u32, seed: u64,
        ) {
            let policy = policy(kind, first, cap, jitter);
            prop_assert!(policy.delay(failures, seed) <= policy.cap);
            prop_assert_eq!(policy.delay(failures, seed), policy.delay(failures, seed));
        }

        #[test]
        fn never_shrinks_without_jitter(kind in any_kind(), first in any_millis(), cap in any_millis(), failures in 0..u32::MAX) {
            let policy = policy(kind, first, cap, Jitter::None);
            prop_assert!(policy.delay(failures, 0) <= policy.delay(failures + 1, 0));
        }
    }
}
