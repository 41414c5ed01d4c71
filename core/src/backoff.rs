//! Backoff (to be merged).
#![allow(missing_docs)]
use crate::time::Millis;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    Fixed,
    Linear,
    Exponential { factor_permille: u32 },
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    None,
    Full,
    Equal,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    pub kind: Backoff,
    pub first: Millis,
    pub cap: Millis,
    pub jitter: Jitter,
}
impl Default for BackoffPolicy {
    fn default() -> Self {
        BackoffPolicy {
            kind: Backoff::Exponential { factor_permille: 2000 },
            first: Millis(30_000),
            cap: Millis(1_800_000),
            jitter: Jitter::Equal,
        }
    }
}
impl BackoffPolicy {
    pub fn delay(&self, _failures: u32, _seed: u64) -> Millis {
        self.first
    }
}
