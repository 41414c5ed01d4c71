use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const DAY: u64 = 86_400_000;
/// 9999-12-31 in milliseconds since 1970.
const YEAR_9999: u64 = 253_402_214_400_000;

fn drain(wheel: &mut Wheel<u64>, now: u64) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| wheel.pop_due(now)).collect()
}

#[test]
fn slot_of_every_level() {
    for level in 0..LEVELS {
        let unit = 1u64 << (level as u32 * LEVEL_BITS);
        for byte in 0..SLOTS_PER_LEVEL as u64 {
            let slot = level * SLOTS_PER_LEVEL + byte as usize;
            let start = byte * unit;
            if byte > 0 {
                for deadline in [start, start + unit / 2, start + (unit - 1)] {
                    assert_eq!(slot_for(0, deadline), slot, "deadline {deadline}");
                    assert_eq!(slot_for(start - 1, deadline), if byte == 1 { slot } else { slot_for(0, deadline) });
                }
            }
            assert_eq!(slot_start(0, slot), start);
            assert_eq!(slot_start(u64::MAX - (unit - 1), slot), (u64::MAX << (8 * level as u32) << 7 << 1) | start);
        }
    }
}

#[test]
fn slot_holds_the_deadline_from_everywhere() {
    let points: Vec<u64> = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u64::MAX - 1, u64::MAX]).collect();
    for &elapsed in &points {
        for &deadline in points.iter().filter(|&&deadline| deadline >= elapsed) {
            let slot = slot_for(elapsed, deadline);
            let start = slot_start(elapsed, slot);
            let span = 1u128 << ((slot / SLOTS_PER_LEVEL) as u32 * LEVEL_BITS);
            assert!(start <= deadline && u128::from(deadline) < u128::from(start) + span, "{elapsed} {deadline}");
            assert!(start > elapsed || slot < SLOTS_PER_LEVEL, "an upper slot is ahead: {elapsed} {deadline}");
        }
    }
}

#[test]
fn long_delays_come_once_and_never_early() {
    let start = 1_800_000_000_000;
    let deadlines = [start + 24 * DAY, start + 25 * DAY, start + 50 * DAY, start + 3_652 * DAY, YEAR_9999, u64::MAX];
    let mut wheel = Wheel::new(start);
    for deadline in deadlines {
        wheel.insert(deadline, deadline);
    }
    for deadline in deadlines {
        assert_eq!(wheel.pop_due(deadline - 1), None);
        assert_eq!(wheel.pop_due(deadline), Some((deadline, deadline)));
    }
    assert!(wheel.is_empty() && wheel.next_deadline().is_none());
}

#[test]
fn one_jump_brings_everything_in_order() {
    let mut wheel = Wheel::new(0);
    for i in 0..10_000u64 {
        wheel.insert(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 40), i);
    }
    let came = drain(&mut wheel, u64::MAX);
    assert_eq!(came.len(), 10_000);
    assert!(came.is_sorted());
}

/// Ten thousand jumps of ten years: done within the test's time only if empty slots cost nothing.
#[test]
fn a_jump_over_ten_years_is_quick() {
    let mut wheel = Wheel::new(0);
    for jump in 1..=10_000 {
        let deadline = jump * 3_652 * DAY;
        wheel.insert(deadline, jump);
        assert_eq!(drain(&mut wheel, deadline + jump % 2), [(deadline, jump)]);
    }
}

#[test]
fn passed_deadlines_count_as_the_present() {
    let mut wheel = Wheel::new(1_000);
    wheel.insert(1_001, 0);
    wheel.insert(1_000, 1);
    wheel.insert(0, 2);
    assert_eq!(wheel.next_deadline(), Some(1_000));
    assert_eq!(drain(&mut wheel, 10), [(1_000, 1), (1_000, 2)]);
    assert_eq!(drain(&mut wheel, 1_001), [(1_001, 0)]);
}

#[test]
fn a_key_is_stale_once_its_timer_came_or_was_cancelled() {
    let mut wheel = Wheel::new(0);
    let came = wheel.insert(1, 10);
    let cancelled = wheel.insert(1, 11);
    assert!(wheel.cancel(cancelled));
    assert!(!wheel.cancel(cancelled));
    assert_eq!(drain(&mut wheel, 1), [(1, 10)]);
    assert!(!wheel.cancel(came));
    let successors = [wheel.insert(2, 12), wheel.insert(2, 13)];
    assert!(!wheel.cancel(came) && !wheel.cancel(cancelled));
    assert!(successors.into_iter().all(|key| wheel.cancel(key)));
    assert!(wheel.is_empty() && wheel.next_deadline().is_none());
}

/// Timeouts of one hour that are cancelled a moment later, 25 000 a second: memory levels off at once.
#[test]
fn cancelled_timers_give_their_memory_back() {
    const PENDING: usize = 1_000;
    let mut wheel = Wheel::new(0);
    let mut pending = VecDeque::new();
    let mut after_a_minute = 0;
    for now in 0..180_000 {
        for _ in 0..25 {
            pending.push_back(wheel.insert(now + 3_600_000, now));
            if pending.len() > PENDING {
                assert!(wheel.cancel(pending.pop_front().unwrap()));
            }
        }
        assert_eq!(wheel.pop_due(now), None);
        if now == 60_000 {
            after_a_minute = wheel.memory_bytes();
        }
    }
    assert_eq!(wheel.len(), PENDING);
    assert!(wheel.memory_bytes() <= after_a_minute && after_a_minute < 1 << 20, "{after_a_minute} then {}", wheel.memory_bytes());
}

/// A few survivors in each block don't hold the memory of the many that were cancelled around them.
#[test]
fn survivors_hold_no_more_than_their_share() {
    let mut wheel = Wheel::new(0);
    let kept = (0..1_000_000u64).filter(|&i| {
        let key = wheel.insert(3_600_000 + i % 50, i);
        i % 100 == 0 || !wheel.cancel(key)
    });
    let kept = kept.count();
    assert_eq!((kept, wheel.len()), (10_000, 10_000));
    assert!(wheel.memory_bytes() < 2 << 20, "{}", wheel.memory_bytes());
    assert_eq!(drain(&mut wheel, 3_600_050).len(), kept);
}

#[test]
fn ten_thousand_timers_in_one_slot_take_their_turn_in_order() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<_> = (0..10_000).map(|i| wheel.insert(5_000_000, i)).collect();
    for key in keys.iter().skip(1).step_by(2) {
        wheel.cancel(*key);
    }
    for i in 0..2_000 {
        assert_eq!(wheel.pop_due(5_000_000), Some((5_000_000, 2 * i)));
    }
    for key in &keys[5_000..] {
        wheel.cancel(*key);
    }
    wheel.insert(0, 10_000);
    let rest: Vec<u64> = drain(&mut wheel, 5_000_000).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(rest, (2_000..2_500).map(|i| 2 * i).chain([10_000]).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    InsertMany { ahead: u64, count: u8 },
    Cancel(usize),
    PopOne { ahead: u64 },
    Advance { ahead: u64 },
    AdvanceToNext,
    GoBack(u64),
}

fn any_span() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..4u64, 4 => 0..600u64, 2 => 0..100_000u64, 2 => 0..DAY, 1 => 0..4_000 * DAY, 1 => any::<u64>()]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_span().prop_map(Step::Insert),
        2 => (any_span(), any::<u8>()).prop_map(|(ahead, count)| Step::InsertMany { ahead, count }),
        6 => any::<usize>().prop_map(Step::Cancel),
        3 => any_span().prop_map(|ahead| Step::PopOne { ahead }),
        2 => any_span().prop_map(|ahead| Step::Advance { ahead }),
        3 => Just(Step::AdvanceToNext),
        1 => any::<u64>().prop_map(Step::GoBack),
    ]
}

/// A wheel and what it should be: timers by deadline, then by insertion.
struct Pair {
    wheel: Wheel<u64>,
    model: BTreeMap<(u64, u64), TimerKey>,
    /// Every key ever given, with where the model has it.
    keys: Vec<(TimerKey, (u64, u64))>,
    present: u64,
}

impl Pair {
    fn insert(&mut self, deadline: u64) {
        let id = self.keys.len() as u64;
        let key = self.wheel.insert(deadline, id);
        let at = (deadline.max(self.present), id);
        self.model.insert(at, key);
        self.keys.push((key, at));
    }

    /// Pops once; whether something came.
    fn pop(&mut self, now: u64) -> bool {
        let now = now.max(self.present);
        let due = self.model.first_key_value().map(|(&at, _)| at).filter(|at| at.0 <= now);
        assert_eq!(self.wheel.pop_due(now), due);
        self.present = due.map_or(now, |at| at.0);
        due.is_some_and(|at| self.model.remove(&at).is_some())
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(ahead) => self.insert(self.present.wrapping_add(ahead)),
            Step::InsertMany { ahead, count } => (0..count).for_each(|_| self.insert(self.present.saturating_add(ahead))),
            Step::Cancel(_) if self.keys.is_empty() => {}
            Step::Cancel(choice) => {
                let (key, at) = self.keys[choice % self.keys.len()];
                assert_eq!(self.wheel.cancel(key), self.model.remove(&at).is_some());
            }
            Step::PopOne { ahead } => {
                self.pop(self.present.saturating_add(ahead));
            }
            Step::Advance { ahead } => {
                let now = self.present.saturating_add(ahead);
                while self.pop(now) {}
            }
            Step::AdvanceToNext => {
                if let Some(next) = self.wheel.next_deadline() {
                    while self.pop(next) {}
                }
            }
            Step::GoBack(now) => while self.pop(now.min(self.present)) {},
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.len());
        let earliest = self.model.first_key_value().map(|(at, _)| at.0);
        let next = self.wheel.next_deadline();
        assert_eq!(next.is_some(), earliest.is_some());
        assert!(next <= earliest && next.is_none_or(|next| next >= self.present));
        if earliest.is_some_and(|earliest| earliest >> LEVEL_BITS == self.present >> LEVEL_BITS) {
            assert_eq!(next, earliest);
        }
        let entries: usize = self.wheel.slots.iter().map(Slot::len).sum();
        let cancelled: usize = self.wheel.slots.iter().map(|slot| slot.cancelled).sum();
        assert_eq!(entries - cancelled, self.model.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn does_what_an_ordered_map_would(start in any_span(), steps in prop::collection::vec(any_step(), 1..150)) {
        let mut pair = Pair { wheel: Wheel::new(start), model: BTreeMap::new(), keys: Vec::new(), present: start };
        for step in steps {
            pair.step(step);
        }
        while pair.pop(u64::MAX) {}
        pair.check();
        prop_assert!(pair.model.is_empty());
        prop_assert_eq!(pair.wheel.free.len(), pair.wheel.places.iter().map(Vec::len).sum::<usize>());
    }
}
