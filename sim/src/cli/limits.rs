//! Arguments with limits, the same for all commands.

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// Most seeds that one command runs.
pub(super) const SEEDS_MAX: u64 = 1_000_000_000;
/// Most runs at once.
const JOBS_MAX: u64 = 256;

/// A number from 1 to this.
pub(super) fn up_to(most: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(1..=most)
}

/// How many runs at once.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Jobs {
    /// How many runs at once; as many as there are cores where nothing is said.
    #[arg(long, value_parser = up_to(JOBS_MAX))]
    jobs: Option<u64>,
}

impl Jobs {
    /// As many as were asked for, and no more than there is to do.
    pub(super) fn count(self, runs: u64) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from) as u64;
        self.jobs.unwrap_or_else(cores).clamp(1, runs.clamp(1, JOBS_MAX)) as usize
    }
}

/// Seeds one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seeds {
    pub(super) from: u64,
    pub(super) count: u64,
}

impl Seeds {
    /// So many from this one on.
    pub(super) fn new(from: u64, count: u64) -> Result<Seeds, String> {
        match from.checked_add(count.saturating_sub(1)) {
            Some(_) => Ok(Seeds { from, count }),
            None => Err(format!("{count} seeds from {from} on go beyond the last one, {}", u64::MAX)),
        }
    }

    /// The seed at this place.
    pub(super) fn get(self, place: u64) -> Option<u64> {
        (place < self.count).then(|| self.from + place)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |place| self.from + place)
    }
}
