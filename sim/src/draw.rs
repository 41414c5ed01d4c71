//! Drawing from a stream of random numbers: whole numbers only, so that debug, release and every machine draw the same.

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use crate::plan;

/// A stream that is drawn from.
#[derive(Clone, Debug)]
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The stream that belongs to this seed and actor.
    pub fn new(seed: u64, actor: &str) -> Draw {
        Draw(plan::stream(seed, actor))
    }

    /// One of the numbers from 0 to `count - 1`, each as likely as the others; 0 where there is none.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// One of the numbers from `low` to `high`, both included; `low` where that is not below `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// An index into a list of this length; 0 where it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True for so many of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of these, which must not be empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// One of these, as likely as its weight says. At least one must have a weight.
    pub fn weighted<'a, T>(&mut self, from: &'a [(u64, T)]) -> &'a T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in from {
            if at < *weight {
                return value;
            }
            at -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_numbers_of_a_range_come_and_no_others() {
        let mut draw = Draw::new(7, "test");
        let drawn: BTreeSet<u64> = (0..200).map(|_| draw.between(3, 6)).collect();
        assert_eq!(drawn, BTreeSet::from([3, 4, 5, 6]));
        assert_eq!((draw.between(6, 3), draw.below(0), draw.below(1), draw.index(0)), (6, 0, 0, 0));
        assert!((0..200).all(|_| draw.chance(1_000) && !draw.chance(0)));
    }

    #[test]
    fn weights_are_followed() {
        let mut draw = Draw::new(7, "test");
        let drawn: Vec<char> = (0..1_000).map(|_| *draw.weighted(&[(0, 'a'), (900, 'b'), (0, 'c'), (100, 'd')])).collect();
        let count = |letter| drawn.iter().filter(|drawn| **drawn == letter).count();
        assert_eq!((count('a'), count('c')), (0, 0));
        assert!((850..950).contains(&count('b')), "{}", count('b'));
    }

    #[test]
    fn the_stream_of_a_name_never_changes() {
        let mut draw = Draw::new(42, "worker 0");
        assert_eq!([(); 3].map(|()| draw.below(1_000_000)), [872_354, 58_940, 640_249]);
    }
}
