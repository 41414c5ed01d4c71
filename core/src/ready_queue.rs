//! The ready queue: what is ready to run and has no worker yet.
//!
//! One queue for each handler, so that what nobody can run never blocks what somebody can. Inside it three bands, each first in first
//! out. The bands are served in turn by weight, so urgent work goes first and low work still moves.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::definition::Band;
use crate::ids::InstanceId;

/// Of 21 instances that are taken while all bands are full, so many come from each.
const WEIGHTS: [u32; 3] = [16, 4, 1];

/// So many that want no worker any more are never worth a sweep.
const STALE_MIN: usize = 64;

/// Instances that wait for a worker.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    queues: Vec<HandlerQueue>,
    by_handler: FxHashMap<Arc<str>, usize>,
    len: usize,
    /// How many of them want no worker any more.
    stale: usize,
}

#[derive(Debug)]
struct HandlerQueue {
    handler: Arc<str>,
    bands: [VecDeque<InstanceId>; 3],
    /// What each band may still take in this turn.
    credits: [u32; 3],
}

impl ReadyQueue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an instance last in its band.
    pub fn push(&mut self, handler: &Arc<str>, band: Band, instance: InstanceId) {
        let index = self.queue_of(handler);
        self.queues[index].bands[slot(band)].push_back(instance);
        self.len += 1;
    }

    /// Puts an instance that was taken first in its band again.
    pub fn push_front(&mut self, handler: &Arc<str>, band: Band, instance: InstanceId) {
        let index = self.queue_of(handler);
        self.queues[index].bands[slot(band)].push_front(instance);
        self.len += 1;
    }

    /// The handlers that something waits for, in the order in which they first came up.
    pub fn handlers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queues.iter().filter(|queue| !queue.is_empty()).map(|queue| &queue.handler)
    }

    /// Takes the next instance that waits for this handler.
    pub fn pop(&mut self, handler: &Arc<str>) -> Option<InstanceId> {
        let index = *self.by_handler.get(handler)?;
        let instance = self.queues[index].pop()?;
        self.len -= 1;
        Some(instance)
    }

    /// One of those that wait wants no worker any more; it is still handed out. True when they are so many that it is time for a
    /// [`retain`](Self::retain).
    pub fn forget_one(&mut self) -> bool {
        self.stale += 1;
        self.stale > STALE_MIN && self.stale > self.len / 2
    }

    /// One that was handed out wanted no worker any more.
    pub fn passed_over(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// Drops what `keep` doesn't want.
    pub fn retain(&mut self, mut keep: impl FnMut(InstanceId) -> bool) {
        for queue in &mut self.queues {
            for band in &mut queue.bands {
                band.retain(|instance| keep(*instance));
            }
        }
        self.len = self.queues.iter().map(HandlerQueue::len).sum();
        self.stale = 0;
    }

    fn queue_of(&mut self, handler: &Arc<str>) -> usize {
        if let Some(index) = self.by_handler.get(handler) {
            return *index;
        }
        let index = self.queues.len();
        self.queues.push(HandlerQueue { handler: handler.clone(), bands: Default::default(), credits: WEIGHTS });
        self.by_handler.insert(handler.clone(), index);
        index
    }
}

impl HandlerQueue {
    fn len(&self) -> usize {
        self.bands.iter().map(VecDeque::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.bands.iter().all(VecDeque::is_empty)
    }

    fn pop(&mut self) -> Option<InstanceId> {
        // Two rounds: with the credits that are left, then with fresh ones.
        for _ in 0..2 {
            for (band, credit) in self.bands.iter_mut().zip(&mut self.credits) {
                if *credit > 0
                    && let Some(instance) = band.pop_front()
                {
                    *credit -= 1;
                    return Some(instance);
                }
            }
            self.credits = WEIGHTS;
        }
        None
    }
}

fn slot(band: Band) -> usize {
    match band {
        Band::Urgent => 0,
        Band::Normal => 1,
        Band::Low => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn a_band_is_first_in_first_out() {
        let mut queue = ReadyQueue::default();
        let shell = handler("shell");
        (1..=3).for_each(|id| queue.push(&shell, Band::Normal, InstanceId(id)));
        queue.push_front(&shell, Band::Normal, InstanceId(0));
        let taken: Vec<_> = std::iter::from_fn(|| queue.pop(&shell)).map(|id| id.0).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn urgent_goes_first_and_low_still_moves() {
        let mut queue = ReadyQueue::default();
        let shell = handler("shell");
        for id in 0..100 {
            queue.push(&shell, Band::Low, InstanceId(id));
            queue.push(&shell, Band::Normal, InstanceId(1_000 + id));
            queue.push(&shell, Band::Urgent, InstanceId(2_000 + id));
        }
        let taken: Vec<_> = (0..42).filter_map(|_| queue.pop(&shell)).map(|id| id.0 / 1_000).collect();
        assert_eq!(taken[0], 2);
        let of = |band| taken.iter().filter(|taken| **taken == band).count();
        assert_eq!((of(2), of(1), of(0)), (32, 8, 2), "two turns by weight");
    }

    #[test]
    fn a_handler_that_nobody_has_blocks_no_other() {
        let mut queue = ReadyQueue::default();
        queue.push(&handler("nobody"), Band::Urgent, InstanceId(1));
        queue.push(&handler("shell"), Band::Low, InstanceId(2));
        assert_eq!(queue.pop(&handler("shell")), Some(InstanceId(2)));
        assert_eq!(queue.pop(&handler("shell")), None);
        assert_eq!(queue.handlers().count(), 1);
        assert_eq!(queue.len(), 1);
    }
}
