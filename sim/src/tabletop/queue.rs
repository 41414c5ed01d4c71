//! What is to come, in the order of its time; of what is due at the same time, what was put in first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of things that are due at some moment.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// When, the how-manieth, and its place among `things`: the heap moves small keys only.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    things: Vec<Option<T>>,
    free: Vec<usize>,
    count: u64,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        Queue { order: BinaryHeap::new(), things: Vec::new(), free: Vec::new(), count: 0 }
    }

    pub(super) fn push(&mut self, at: u64, thing: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.things.push(None);
            self.things.len() - 1
        });
        self.things[place] = Some(thing);
        self.count += 1;
        self.order.push(Reverse((at, self.count, place)));
    }

    /// When the next thing is due.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next thing, if it is due by then.
    pub(super) fn pop(&mut self, by: u64) -> Option<T> {
        if self.next_at()? > by {
            return None;
        }
        let Reverse((_, _, place)) = self.order.pop()?;
        self.free.push(place);
        self.things[place].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_first_comes_first_and_ties_keep_their_order() {
        let mut queue = Queue::new();
        for (at, name) in [(5, 'c'), (3, 'a'), (3, 'b'), (9, 'd')] {
            queue.push(at, name);
        }
        let mut popped = Vec::new();
        while let Some(name) = queue.pop(8) {
            popped.push(name);
            if name == 'a' {
                queue.push(5, 'e');
            }
        }
        assert_eq!((popped, queue.next_at()), (vec!['a', 'b', 'c', 'e'], Some(9)));
    }
}
