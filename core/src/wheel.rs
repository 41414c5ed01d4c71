//! A hierarchical timing wheel: what is due, and when to look again.
//!
//! Absent: a clock. A tick is a millisecond since an origin of the caller's choice, and time passes when the caller says so.
//!
//! # Levels
//!
//! Eight levels of 256 slots. The level of a timer is the highest byte in which its deadline differs from the present, its slot is the
//! value of that byte:
//!
//! | level | a slot spans | the level spans |
//! | ----- | ------------ | --------------- |
//! | 0     | 1 ms         | 256 ms          |
//! | 1     | 256 ms       | 65.5 s          |
//! | 2     | 65.5 s       | 4.7 h           |
//! | 3     | 4.7 h        | 49.7 d          |
//! | 4     | 49.7 d       | 34.8 y          |
//! | 5     | 34.8 y       | 8 900 y         |
//! | 6     | 8 900 y      | 2.3 million y   |
//! | 7     | 2.3 M y      | every `u64`     |
//!
//! Eight bytes are a whole `u64`, so nothing is too far ahead and there is no overflow list. When the present reaches a slot of an upper
//! level, its timers move to the levels below: at most seven moves in the life of a timer, two for one that is an hour ahead. A timer
//! always sits where its deadline and the present say, so its slot is computed and never stored, all timers of one deadline share a
//! slot at every moment, and the first occupied slot of the lowest occupied level is the next in time. Two bitmaps find that
//! slot in two instructions, so a jump over ten years costs no more than one over ten milliseconds.
//!
//! # Memory
//!
//! A table holds the timers, 16 bytes each beside the payload; a slot is a chain of blocks of 63 table indices. At ten million timers the cost is cache
//! misses, and this way moving a timer down reads indices in sequence and misses once, on the timer itself, with many such reads
//! in flight; a list linked through the timers waits for each miss before it knows the next. Table and blocks grow chunk by
//! chunk, so growing neither copies nor doubles. Freed places are used again; memory stays at its highest.
//!
//! Cancelling marks the timer and leaves its index where it is. A slot where the cancelled outnumber the rest is swept, so they never take
//! more than the living do, apart from a block a slot.
//!
//! # Order
//!
//! Timers come out by deadline, those of the same deadline in order of insertion. A deadline that has passed when it is inserted
//! counts as the present.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// Bits of a deadline that one level looks at.
const LEVEL_BITS: u32 = 8;
const SLOTS_PER_LEVEL: usize = 1 << LEVEL_BITS;
const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;
const SLOTS: usize = LEVELS * SLOTS_PER_LEVEL;
/// Timers in a block: with the link it fills four cache lines.
const BLOCK_TIMERS: usize = 128;
/// Stands for no block, or no timer.
const NONE: u32 = u32::MAX;

/// Timers waiting for their deadlines, each carrying a `T`.
#[derive(Debug)]
pub struct Wheel<T> {
    /// Every deadline before this has been handed out.
    elapsed: u64,
    /// Timers that are neither fired nor cancelled.
    len: usize,
    timers: Chunks<Timer<T>>,
    free_timer: u32,
    /// Blocks to use again.
    spare: Vec<Block>,
    /// Level after level, so that the lowest occupied index is the next in time.
    slots: Box<[Slot]>,
    /// A bit for each slot that isn't empty.
    occupied: [u64; SLOTS / 64],
    /// A bit for each word of `occupied` that isn't zero.
    occupied_words: u32,
}

/// Names a timer for as long as it waits. A key whose timer fired or was cancelled stays harmless: it can only be mistaken for
/// another's after its place was used two thousand million times more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Timer<T> {
    deadline: u64,
    payload: T,
    /// Odd while the timer waits. Grows by one when it is inserted, fired or cancelled.
    generation: u32,
    /// The next free place, while this one is free.
    next_free: u32,
}

impl<T> Timer<T> {
    fn waits(&self) -> bool {
        self.generation % 2 == 1
    }
}

/// A queue of timers in blocks, full but for the first and the last.
#[derive(Debug, Default)]
struct Slot {
    blocks: VecDeque<Block>,
    /// Where the queue begins in the first block.
    start: usize,
    /// Timers in the queue, the cancelled ones included.
    len: u32,
    cancelled: u32,
}

type Block = Box<[Entry; BLOCK_TIMERS]>;

/// A timer in a slot, with enough of its deadline to move down without a look at the table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    timer: u32,
    deadline_low: u32,
}

/// The slot of a deadline that isn't before the present.
fn slot_for(elapsed: u64, deadline: u64) -> usize {
    let level = (elapsed ^ deadline | 1).ilog2() / LEVEL_BITS;
    let byte = (deadline >> (level * LEVEL_BITS)) as usize % SLOTS_PER_LEVEL;
    level as usize * SLOTS_PER_LEVEL + byte
}

/// The first tick of a slot that isn't before the present.
fn slot_start(elapsed: u64, slot: usize) -> u64 {
    let shift = (slot / SLOTS_PER_LEVEL) as u32 * LEVEL_BITS;
    let upper = elapsed >> shift & !(SLOTS_PER_LEVEL as u64 - 1);
    (upper | (slot % SLOTS_PER_LEVEL) as u64) << shift
}

impl<T: Copy> Wheel<T> {
    /// An empty wheel whose present is `start`.
    pub fn new(start: u64) -> Self {
        Wheel {
            elapsed: start,
            len: 0,
            timers: Chunks::default(),
            free_timer: NONE,
            spare: Vec::new(),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            occupied: [0; SLOTS / 64],
            occupied_words: 0,
        }
    }

    /// Adds a timer. One whose deadline isn't after the present comes with the next [`pop_due`](Self::pop_due).
    ///
    /// # Panics
    ///
    /// With 2³² timers in the wheel.
    pub fn insert(&mut self, deadline: u64, payload: T) -> TimerKey {
        let index = self.free_timer;
        let key = if index == NONE {
            let index = self.timers.push(Timer { deadline, payload, generation: 1, next_free: NONE });
            TimerKey { index, generation: 1 }
        } else {
            let timer = &mut self.timers[index];
            self.free_timer = timer.next_free;
            let generation = timer.generation.wrapping_add(1);
            *timer = Timer { deadline, payload, generation, next_free: NONE };
            TimerKey { index, generation }
        };
        self.len += 1;
        let deadline = deadline.max(self.elapsed);
        self.append(slot_for(self.elapsed, deadline), Entry { timer: key.index, deadline_low: deadline as u32 });
        key
    }

    /// Takes a timer out and returns its payload; `None` where it fired or was cancelled before. Constant time, amortised.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let timer = self.timers.get_mut(key.index)?;
        if timer.generation != key.generation {
            return None;
        }
        timer.generation = timer.generation.wrapping_add(1);
        let (deadline, payload) = (timer.deadline, timer.payload);
        self.len -= 1;
        let index = slot_for(self.elapsed, deadline.max(self.elapsed));
        let slot = &mut self.slots[index];
        slot.cancelled += 1;
        if slot.cancelled == slot.len || slot.cancelled > (slot.len / 2).max(BLOCK_TIMERS as u32) {
            self.redistribute(index);
        }
        Some(payload)
    }

    /// The next timer that is due at `now`, with its deadline. Called until there is none left, it brings the present to `now`. Time
    /// never goes back: an earlier `now` counts as the present.
    pub fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        let now = now.max(self.elapsed);
        while let Some(slot) = self.first_slot() {
            let start = slot_start(self.elapsed, slot);
            if start > now {
                break;
            }
            self.elapsed = start;
            if slot >= SLOTS_PER_LEVEL {
                self.redistribute(slot);
            } else if let Some(due) = self.pop_front(slot) {
                return Some(due);
            }
        }
        self.elapsed = now;
        None
    }

    /// When to call [`pop_due`](Self::pop_due) again: never after the earliest deadline, and exactly then where that is less than a
    /// level-0 turn away; otherwise at the latest when its slot begins. `None` where nothing waits.
    pub fn next_deadline(&self) -> Option<u64> {
        self.first_slot().map(|slot| slot_start(self.elapsed, slot))
    }

    /// Timers that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory that the wheel holds, in bytes, free places included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.slots)
            + self.timers.memory_bytes()
            + (self.spare.capacity() * 8 + self.spare.len() * 1024)
            + self.slots.iter().map(|s| s.blocks.capacity() * 8 + s.blocks.len() * 1024).sum::<usize>()
    }

    fn first_slot(&self) -> Option<usize> {
        let word = self.occupied_words.trailing_zeros() as usize;
        self.occupied.get(word).map(|bits| word * 64 + bits.trailing_zeros() as usize)
    }

    /// Appends a timer to the slot of its deadline.
    fn append(&mut self, slot_index: usize, entry: Entry) {
        let slot = &mut self.slots[slot_index];
        let at = (slot.start + slot.len as usize) % BLOCK_TIMERS;
        if at == 0 {
            let block = self.spare.pop().unwrap_or_else(|| Box::new([Entry { timer: NONE, deadline_low: 0 }; BLOCK_TIMERS]));
            slot.blocks.push_back(block);
        }
        if slot.len == 0 {
            self.occupied[slot_index / 64] |= 1 << (slot_index % 64);
            self.occupied_words |= 1 << (slot_index / 64);
        }
        slot.len += 1;
        slot.blocks.back_mut().unwrap()[at] = entry;
    }

    fn redistribute(&mut self, index: usize) {
        let upper = slot_start(self.elapsed, index) >> 32 << 32;
        let mut slot = self.vacate(index);
        let mut left = slot.len as usize;
        let mut start = slot.start;
        for block in slot.blocks.drain(..) {
            let end = (start + left).min(BLOCK_TIMERS);
            let entries = &block[start..end];
            left -= end - start;
            start = 0;
            if index >= 256 && index < 512 && slot.cancelled == 0 {
                let mut waits = [(0, 0); BLOCK_TIMERS];
                for (waits, entry) in waits.iter_mut().zip(entries) {
                    let timer = &self.timers[entry.timer];
                    *waits = (timer.deadline, timer.generation);
                }
                for (waits, &entry) in waits.iter().zip(entries) {
                    if waits.1 % 2 == 1 {
                        self.append(waits.0 as usize % 256, entry);
                    } else {
                        self.release_timer(entry.timer);
                    }
                }
            } else {
                for &entry in entries {
                    let deadline = if index >= 5 * 256 { self.timers[entry.timer].deadline } else { upper | u64::from(entry.deadline_low) };
                    let to = slot_for(self.elapsed, deadline.max(self.elapsed));
                    if (to >= 256 && to != index) || self.timers[entry.timer].waits() {
                        self.append(to, entry);
                    } else {
                        self.release_timer(entry.timer);
                    }
                }
            }
            self.spare.push(block);
        }
    }

    /// Takes the first timer that still waits out of a slot.
    fn pop_front(&mut self, index: usize) -> Option<(u64, T)> {
        loop {
            let slot = &mut self.slots[index];
            if slot.len == 0 {
                return None;
            }
            let timer_index = slot.blocks.front()?[slot.start].timer;
            slot.start += 1;
            slot.len -= 1;
            if slot.len == 0 || slot.start == BLOCK_TIMERS {
                slot.start = 0;
                self.spare.extend(slot.blocks.pop_front());
            }
            let cleared = slot.len == 0;
            if cleared {
                slot.cancelled = 0;
                self.clear(index);
            }
            let timer = &mut self.timers[timer_index];
            if timer.waits() {
                timer.generation = timer.generation.wrapping_add(1);
                let due = (timer.deadline, timer.payload);
                self.len -= 1;
                self.release_timer(timer_index);
                return Some(due);
            }
            self.release_timer(timer_index);
            if !cleared {
                self.slots[index].cancelled -= 1;
            }
        }
    }

    fn clear(&mut self, index: usize) {
        let word = &mut self.occupied[index / 64];
        *word &= !(1 << (index % 64));
        if *word == 0 {
            self.occupied_words &= !(1 << (index / 64));
        }
    }

    fn vacate(&mut self, index: usize) -> Slot {
        self.clear(index);
        std::mem::take(&mut self.slots[index])
    }

    fn release_timer(&mut self, index: u32) {
        self.timers[index].next_free = std::mem::replace(&mut self.free_timer, index);
    }
}

/// A vector that grows without moving what it holds.
#[derive(Debug)]
struct Chunks<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Chunks { chunks: Vec::new() }
    }
}

impl<T> Chunks<T> {
    /// Items in a chunk: a power of two that makes it 32 to 64 KiB.
    const ITEMS: usize = 1 << (524_288 / size_of::<T>()).ilog2();

    fn push(&mut self, item: T) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == Self::ITEMS) {
            self.chunks.push(Vec::with_capacity(Self::ITEMS));
        }
        let last = self.chunks.len() - 1;
        let index = last * Self::ITEMS + self.chunks[last].len();
        assert!(index < NONE as usize, "more than 2³² timers");
        self.chunks[last].push(item);
        index as u32
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.chunks.get_mut(index as usize / Self::ITEMS)?.get_mut(index as usize % Self::ITEMS)
    }

    fn memory_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<T>>() + self.chunks.len() * Self::ITEMS * size_of::<T>()
    }
}

impl<T> Index<u32> for Chunks<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        &self.chunks[index as usize / Self::ITEMS][index as usize % Self::ITEMS]
    }
}

impl<T> IndexMut<u32> for Chunks<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[index as usize / Self::ITEMS][index as usize % Self::ITEMS]
    }
}

#[cfg(test)]
mod tests;
