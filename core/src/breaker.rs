//! A circuit breaker: what keeps attempts away from a downstream that fails.
//!
//! ```text
//! closed --(so many failures in a row)--> open --(some time)--> half open --(the probe succeeds)--> closed
//!                                           ^                       |
//!                                           '---(the probe fails)---'
//! ```
//!
//! Closed, everything passes. Open, nothing does. Half open, one attempt at a time passes as the probe, and nothing but its result counts:
//! what had begun before the breaker opened says nothing about now.
//!
//! Absent: who waits, and what a label is. The policy comes with each failure, so tasks that share a breaker may differ in what they bear.

use std::collections::VecDeque;

use crate::definition::BreakerPolicy;
use crate::limits;
use crate::time::Monotonic;

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything passes.
    Closed,
    /// Nothing passes until then.
    Open {
        /// When it lets a probe through.
        until: Monotonic,
    },
    /// A probe is to pass, or has.
    HalfOpen {
        /// Whether one has, and its result is waited for.
        is_probed: bool,
    },
}

impl BreakerState {
    /// Its name, the same in API, CLI and console.
    pub const fn name(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open { .. } => "open",
            BreakerState::HalfOpen { .. } => "half_open",
        }
    }
}

/// What becomes of an attempt that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may begin.
    Pass,
    /// It may begin, and its result decides.
    Probe,
    /// It has to wait.
    Wait,
}

/// What a result did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that concerns others.
    None,
    /// The breaker, which was closed, is open.
    Opened,
    /// The breaker is closed.
    Closed,
}

/// The breaker of one downstream.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: BreakerState,
    /// When the last failures in a row were, oldest first, at most [`limits::BREAKER_FAILURES_MAX`].
    failures: VecDeque<Monotonic>,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { state: BreakerState::Closed, failures: VecDeque::new() }
    }
}

impl Breaker {
    /// Where it stands.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Failures in a row that are counted.
    pub fn failures(&self) -> usize {
        self.failures.len()
    }

    /// An attempt is to begin. [`Admission::Probe`] is given to one, until its result is told.
    pub fn admit(&mut self, now: Monotonic) -> Admission {
        self.half_open(now);
        match &mut self.state {
            BreakerState::Closed => Admission::Pass,
            BreakerState::HalfOpen { is_probed } if !*is_probed => {
                *is_probed = true;
                Admission::Probe
            }
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => Admission::Wait,
        }
    }

    /// Lets a probe pass from here on, where the time for it has come. Answers whether one may.
    pub fn half_open(&mut self, now: Monotonic) -> bool {
        if matches!(self.state, BreakerState::Open { until } if until <= now) {
            self.state = BreakerState::HalfOpen { is_probed: false };
        }
        self.state == BreakerState::HalfOpen { is_probed: false }
    }

    /// An attempt has failed, the probe or another one.
    pub fn failed(&mut self, now: Monotonic, policy: BreakerPolicy, is_probe: bool) -> Change {
        let until = now + policy.open;
        match self.state {
            BreakerState::Closed => {
                if self.failures.len() >= limits::BREAKER_FAILURES_MAX as usize {
                    self.failures.pop_front();
                }
                self.failures.push_back(now);
                let nth_last = self.failures.len().checked_sub(policy.failures.max(1) as usize);
                if nth_last.is_none_or(|index| now.since(self.failures[index]) > policy.within) {
                    return Change::None;
                }
                self.state = BreakerState::Open { until };
                Change::Opened
            }
            BreakerState::HalfOpen { is_probed: true } if is_probe => {
                self.state = BreakerState::Open { until };
                Change::None
            }
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => Change::None,
        }
    }

    /// An attempt has succeeded, the probe or another one.
    pub fn succeeded(&mut self, is_probe: bool) -> Change {
        match self.state {
            BreakerState::Closed => {
                self.failures.clear();
                Change::None
            }
            BreakerState::HalfOpen { is_probed: true } if is_probe => {
                self.state = BreakerState::Closed;
                self.failures.clear();
                Change::Closed
            }
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => Change::None,
        }
    }

    /// The probe is over and has said nothing about the downstream: the next attempt takes its place.
    pub fn probe_gone(&mut self) {
        if let BreakerState::HalfOpen { is_probed } = &mut self.state {
            *is_probed = false;
        }
    }

    /// Whether it is as good as new: closed, and its last failure counts for nobody any more.
    pub fn is_idle(&self, now: Monotonic) -> bool {
        self.state == BreakerState::Closed && self.failures.back().is_none_or(|last| now.since(*last) > limits::BREAKER_TIME_MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::Millis;

    fn at(millis: u64) -> Monotonic {
        Monotonic(millis)
    }

    fn policy(failures: u32, within: u64, open: u64) -> BreakerPolicy {
        BreakerPolicy { failures, within: Millis(within), open: Millis(open) }
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_probe_closes_it() {
        let (mut breaker, policy) = (Breaker::default(), policy(3, 1_000, 500));
        assert_eq!(breaker.failed(at(0), policy, false), Change::None);
        assert_eq!(breaker.failed(at(10), policy, false), Change::None);
        assert_eq!(breaker.failed(at(1_000), policy, false), Change::Opened);
        assert_eq!(breaker.admit(at(1_499)), Admission::Wait);
        assert_eq!(breaker.admit(at(1_500)), Admission::Probe);
        assert_eq!(breaker.admit(at(1_500)), Admission::Wait);
        assert_eq!(breaker.succeeded(false), Change::None, "one that had begun before");
        assert_eq!(breaker.failed(at(1_600), policy, true), Change::None);
        assert_eq!(breaker.admit(at(2_099)), Admission::Wait);
        assert_eq!(breaker.admit(at(2_100)), Admission::Probe);
        assert_eq!(breaker.succeeded(true), Change::Closed);
        assert_eq!(breaker.admit(at(2_100)), Admission::Pass);
        assert_eq!(breaker.failures(), 0);
    }

    #[test]
    fn a_success_between_them_and_too_much_time_keep_it_closed() {
        let (mut breaker, policy) = (Breaker::default(), policy(2, 1_000, 500));
        breaker.failed(at(0), policy, false);
        breaker.succeeded(false);
        assert_eq!(breaker.failed(at(1), policy, false), Change::None);
        assert_eq!(breaker.failed(at(1_002), policy, false), Change::None);
        assert_eq!(breaker.failed(at(1_003), policy, false), Change::Opened);
    }

    #[test]
    fn a_probe_that_says_nothing_makes_room_for_the_next() {
        let (mut breaker, policy) = (Breaker::default(), policy(1, 1_000, 500));
        breaker.failed(at(0), policy, false);
        assert_eq!(breaker.admit(at(500)), Admission::Probe);
        breaker.probe_gone();
        assert_eq!(breaker.admit(at(500)), Admission::Probe);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pass(u64),
        Begin,
        /// One of those that run.
        Fail(usize),
        Succeed(usize),
        Vanish(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0..2_000_u64).prop_map(Step::Pass),
            6 => Just(Step::Begin),
            4 => any::<usize>().prop_map(Step::Fail),
            2 => any::<usize>().prop_map(Step::Succeed),
            1 => any::<usize>().prop_map(Step::Vanish),
        ]
    }

    proptest! {
        #[test]
        fn never_more_than_one_probe_and_nothing_else_passes_while_it_is_not_closed(
            policies in proptest::collection::vec((1..6_u32, 1..4_000_u64, 1..3_000_u64), 1..3),
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let mut breaker = Breaker::default();
            // Each that runs, and whether it is the probe.
            let mut running: Vec<bool> = Vec::new();
            let (mut now, mut is_open, mut shut_until, mut in_a_row) = (0, false, 0, 0);
            for (index, step) in steps.into_iter().enumerate() {
                let (failures, within, open) = policies[index % policies.len()];
                let policy = policy(failures, within, open);
                let of = |nth: usize| (!running.is_empty()).then(|| nth % running.len());
                match step {
                    Step::Pass(millis) => now += millis,
                    Step::Begin => {
                        let probes = running.iter().filter(|is_probe| **is_probe).count();
                        match breaker.admit(at(now)) {
                            Admission::Pass => {
                                prop_assert!(!is_open);
                                running.push(false);
                            }
                            Admission::Probe => {
                                prop_assert!(is_open && now >= shut_until && probes == 0);
                                running.push(true);
                            }
                            Admission::Wait => prop_assert!(is_open && (now < shut_until || probes == 1)),
                        }
                    }
                    Step::Fail(nth) => if let Some(place) = of(nth) {
                        let is_probe = running.swap_remove(place);
                        in_a_row += 1;
                        match breaker.failed(at(now), policy, is_probe) {
                            Change::Opened => {
                                prop_assert!(!is_open && in_a_row >= failures);
                                (is_open, shut_until) = (true, now + open);
                            }
                            change => {
                                prop_assert_eq!(change, Change::None);
                                if is_probe {
                                    shut_until = now + open;
                                }
                            }
                        }
                    }
                    Step::Succeed(nth) => if let Some(place) = of(nth) {
                        let is_probe = running.swap_remove(place);
                        let change = breaker.succeeded(is_probe);
                        prop_assert_eq!(change == Change::Closed, is_probe);
                        if is_probe || !is_open {
                            (is_open, in_a_row) = (false, 0);
                        }
                    }
                    Step::Vanish(nth) => if let Some(place) = of(nth)
                        && running.swap_remove(place)
                    {
                        breaker.probe_gone();
                    }
                }
                prop_assert!(breaker.failures() <= limits::BREAKER_FAILURES_MAX as usize);
            }
        }
    }
}
