//! A hierarchical timing wheel: what is due, and when to look again.
//!
//! Absent: a clock. A tick is a millisecond since an origin of the caller's choice, and time passes when the caller says so.
//!
//! # Levels
//!
//! Eight levels of 256 slots. The level of a timer is the highest byte in which its deadline differs from the present; its slot is the
//! value of that byte.
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
//! Eight bytes are a whole `u64`: nothing is too far ahead, and there is no overflow list. When the present reaches a slot of an
//! upper level, its timers move to the levels below, at most seven times in the life of a timer and twice for one that is an hour
//! ahead. So deadline and present alone say where a timer is: its slot is computed and never stored, timers with the same deadline
//! share a slot at every moment, and the first occupied slot of the lowest occupied level is the next in time. Two bitmaps find that
//! slot in two instructions, and a jump over ten years costs no more than one over ten milliseconds.
//!
//! # Memory
//!
//! With ten million timers, time goes to cache misses. A slot therefore holds its timers themselves, payload included, in blocks that
//! are read and written in sequence. A list linked through one table misses at each step of each move, and even a slot of table
//! indices misses once for each timer. All that is asked of a timer on its way is whether it still waits, and that is one bit in a
//! set small enough to stay in the cache. The table beside it, where keys point, is touched by `insert` and `cancel` alone, and grows
//! chunk by chunk, which neither copies nor doubles. What has been freed is used again; the whole stays at its largest.
//!
//! Cancelling clears the bit and leaves the entry. A slot where the cancelled outnumber the waiting is swept, so they never take up
//! more than the waiting do, give or take a block a slot.

/// Bits of a deadline that one level looks at.
const LEVEL_BITS: u32 = 8;
const SLOTS_PER_LEVEL: usize = 1 << LEVEL_BITS;
const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;
const SLOTS: usize = LEVELS * SLOTS_PER_LEVEL;
/// From this level on, a slot's timers may differ in the upper half of their deadlines.
const FAR_SLOTS: usize = (32 / LEVEL_BITS as usize + 1) * SLOTS_PER_LEVEL;
/// Timers in a block.
const BLOCK_TIMERS: usize = 128;
/// Places in a chunk of the table.
const CHUNK_PLACES: usize = 1 << 14;

/// Timers that wait for their deadlines, each carrying a `T`.
#[derive(Debug)]
pub struct Wheel<T> {
    /// The present: no deadline before it is still here.
    elapsed: u64,
    /// Timers that wait.
    len: usize,
    /// What keys point to, in chunks.
    places: Vec<Vec<Place>>,
    /// Places to use again.
    free: Vec<u32>,
    /// A bit for each place whose timer waits.
    waiting: Vec<u64>,
    /// Level after level.
    slots: Box<[Slot<T>]>,
    occupied: Occupied,
    /// Blocks to use again.
    spare: Vec<Block<T>>,
}

/// Names a timer while it waits. Afterwards the key is stale and does nothing; it could only be taken for another timer's after 2³²
/// more timers in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    place: u32,
    generation: u32,
}

/// What is known of a timer apart from its entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    deadline: u64,
    /// How many timers were here before.
    generation: u32,
}

/// A queue of timers. Fills one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<T> {
    /// The blocks before the last, each full.
    full: Vec<Block<T>>,
    last: Block<T>,
    /// Entries at the start that were taken out.
    taken: usize,
    /// Cancelled entries among those that are left.
    cancelled: usize,
}

impl<T> Slot<T> {
    /// Entries that are left.
    fn len(&self) -> usize {
        self.full.len() * BLOCK_TIMERS + self.last.len() - self.taken
    }
}

type Block<T> = Vec<Entry<T>>;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    payload: T,
    place: u32,
    /// The lower half of the deadline; the slot knows the rest.
    deadline_low: u32,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot { full: Vec::new(), last: Vec::new(), taken: 0, cancelled: 0 }
    }
}

/// The slot of a deadline that isn't before the present.
fn slot_for(elapsed: u64, deadline: u64) -> usize {
    let level = ((elapsed ^ deadline) | 1).ilog2() / LEVEL_BITS;
    let byte = (deadline >> (level * LEVEL_BITS)) as usize % SLOTS_PER_LEVEL;
    level as usize * SLOTS_PER_LEVEL + byte
}

/// The first tick of a slot.
fn slot_start(elapsed: u64, slot: usize) -> u64 {
    let shift = (slot / SLOTS_PER_LEVEL) as u32 * LEVEL_BITS;
    let upper = (elapsed >> shift) & !(SLOTS_PER_LEVEL as u64 - 1);
    (upper | (slot % SLOTS_PER_LEVEL) as u64) << shift
}

impl<T: Copy> Wheel<T> {
    /// An empty wheel whose present is `start`.
    pub fn new(start: u64) -> Self {
        Wheel {
            elapsed: start,
            len: 0,
            places: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            occupied: Occupied::default(),
            spare: Vec::new(),
        }
    }

    /// Adds a timer. A deadline that has passed counts as the present: the timer comes with the next [`pop_due`](Self::pop_due).
    ///
    /// # Panics
    ///
    /// Where 2³² timers wait already.
    pub fn insert(&mut self, deadline: u64, payload: T) -> TimerKey {
        let deadline = deadline.max(self.elapsed);
        let key = self.claim_place(deadline);
        self.waiting[key.place as usize / 64] |= 1 << (key.place % 64);
        self.len += 1;
        self.append(slot_for(self.elapsed, deadline), Entry { payload, place: key.place, deadline_low: deadline as u32 });
        key
    }

    /// Takes a timer out. False where the key is stale: its timer came or was cancelled before. Constant time, amortised: now and then
    /// it sweeps a slot.
    pub fn cancel(&mut self, key: TimerKey) -> bool {
        let chunk = self.places.get(key.place as usize / CHUNK_PLACES);
        let Some(&Place { deadline, generation }) = chunk.and_then(|chunk| chunk.get(key.place as usize % CHUNK_PLACES)) else {
            return false;
        };
        if generation != key.generation || !self.waits(key.place) {
            return false;
        }
        self.settle(key.place);
        let index = slot_for(self.elapsed, deadline);
        let slot = &mut self.slots[index];
        slot.cancelled += 1;
        let waiting = slot.len() - slot.cancelled;
        if waiting == 0 || slot.cancelled > waiting.max(BLOCK_TIMERS) {
            self.redistribute(index);
        }
        true
    }

    /// The next timer that is due at `now`, with its deadline: in order of deadlines, and of insertion where they are equal. Once it
    /// has returned `None`, the present is `now`. Time never goes back: an earlier `now` counts as the present.
    pub fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        let now = now.max(self.elapsed);
        while let Some(index) = self.occupied.first() {
            let start = slot_start(self.elapsed, index);
            if start > now {
                break;
            }
            self.elapsed = start;
            if index >= SLOTS_PER_LEVEL {
                crate::probe!("wheel.cascaded");
                self.redistribute(index);
            } else if let Some(payload) = self.pop_front(index) {
                return Some((start, payload));
            }
        }
        self.elapsed = now;
        None
    }

    /// When to call [`pop_due`](Self::pop_due) again; `None` where nothing waits. Never later than the earliest deadline, and exactly
    /// that once it is on level 0.
    pub fn next_deadline(&self) -> Option<u64> {
        self.occupied.first().map(|index| slot_start(self.elapsed, index))
    }

    /// Timers that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that the wheel holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let places: usize = self.places.iter().map(|chunk| chunk.capacity() * size_of::<Place>()).sum();
        let headers = self.places.capacity() * size_of::<Vec<Place>>() + self.spare.capacity() * size_of::<Block<T>>();
        let queues: usize = self.slots.iter().map(|slot| slot.full.capacity() * size_of::<Block<T>>()).sum();
        let blocks =
            self.spare.len() + self.slots.iter().map(|slot| slot.full.len() + usize::from(slot.last.capacity() > 0)).sum::<usize>();
        let sets = self.free.capacity() * size_of::<u32>() + self.waiting.capacity() * size_of::<u64>();
        let fixed = size_of::<Self>() + size_of_val(&*self.slots);
        fixed + places + headers + queues + blocks * BLOCK_TIMERS * size_of::<Entry<T>>() + sets
    }

    fn claim_place(&mut self, deadline: u64) -> TimerKey {
        if let Some(index) = self.free.pop() {
            let generation = self.place(index).generation.wrapping_add(1);
            self.places[index as usize / CHUNK_PLACES][index as usize % CHUNK_PLACES] = Place { deadline, generation };
            return TimerKey { place: index, generation };
        }
        if self.places.last().is_none_or(|chunk| chunk.len() == CHUNK_PLACES) {
            // The first chunk starts small, for the many wheels that stay so.
            self.places.push(Vec::with_capacity(if self.places.is_empty() { BLOCK_TIMERS } else { CHUNK_PLACES }));
        }
        let full_chunks = self.places.len() - 1;
        let chunk = &mut self.places[full_chunks];
        let index = full_chunks * CHUNK_PLACES + chunk.len();
        chunk.push(Place { deadline, generation: 0 });
        if index.is_multiple_of(64) {
            self.waiting.push(0);
        }
        TimerKey { place: u32::try_from(index).expect("fewer than 2³² timers"), generation: 0 }
    }

    fn place(&self, index: u32) -> Place {
        self.places[index as usize / CHUNK_PLACES][index as usize % CHUNK_PLACES]
    }

    fn waits(&self, place: u32) -> bool {
        self.waiting[place as usize / 64] & 1 << (place % 64) != 0
    }

    /// Marks a timer as not waiting any more. Its place becomes free when its entry goes.
    fn settle(&mut self, place: u32) {
        self.waiting[place as usize / 64] &= !(1 << (place % 64));
        self.len -= 1;
    }

    fn append(&mut self, index: usize, entry: Entry<T>) {
        let slot = &mut self.slots[index];
        if slot.last.is_empty() || slot.last.len() == BLOCK_TIMERS {
            let block = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_TIMERS));
            let full = std::mem::replace(&mut slot.last, block);
            if full.is_empty() {
                self.occupied.insert(index);
            } else {
                slot.full.push(full);
            }
        }
        slot.last.push(entry);
    }

    /// Empties a slot and puts those of its timers that wait where they belong now: on the levels below if its time has come, and back
    /// into the slot, in the same order, if it is only swept.
    fn redistribute(&mut self, index: usize) {
        let deadline_high = slot_start(self.elapsed, index) >> 32 << 32;
        let slot = self.vacate(index);
        let mut taken = slot.taken;
        for block in slot.full.into_iter().chain([slot.last]) {
            let entries = &block[taken.min(block.len())..];
            taken -= block.len() - entries.len();
            // Asked of the whole block first: a branch on each answer would make the reads wait for one another.
            let mut waits = [false; BLOCK_TIMERS];
            for (waits, entry) in waits.iter_mut().zip(entries) {
                *waits = self.waits(entry.place);
            }
            for (&waits, &entry) in waits.iter().zip(entries) {
                if !waits {
                    self.free.push(entry.place);
                    continue;
                }
                let near = deadline_high | u64::from(entry.deadline_low);
                let deadline = if index < FAR_SLOTS { near } else { self.place(entry.place).deadline };
                self.append(slot_for(self.elapsed, deadline), entry);
            }
            self.recycle(block);
        }
    }

    /// Takes the first timer that waits out of a slot of level 0.
    fn pop_front(&mut self, index: usize) -> Option<T> {
        loop {
            let slot = &mut self.slots[index];
            let block = slot.full.get(slot.taken / BLOCK_TIMERS).unwrap_or(&slot.last);
            let entry = *block.get(slot.taken % BLOCK_TIMERS)?;
            slot.taken += 1;
            if slot.len() == 0 {
                let slot = self.vacate(index);
                slot.full.into_iter().for_each(|block| self.recycle(block));
                self.recycle(slot.last);
            }
            self.free.push(entry.place);
            if self.waits(entry.place) {
                self.settle(entry.place);
                // What is left may all be cancelled, and then it must not look like something to wake up for.
                let slot = &self.slots[index];
                if slot.len() > 0 && slot.len() == slot.cancelled {
                    self.redistribute(index);
                }
                return Some(entry.payload);
            }
            let slot = &mut self.slots[index];
            slot.cancelled = slot.cancelled.saturating_sub(1);
        }
    }

    fn vacate(&mut self, index: usize) -> Slot<T> {
        self.occupied.remove(index);
        std::mem::take(&mut self.slots[index])
    }

    fn recycle(&mut self, mut block: Block<T>) {
        block.clear();
        self.spare.push(block);
    }
}

/// The set of slots that aren't empty.
#[derive(Debug, Default)]
struct Occupied {
    words: [u64; SLOTS / 64],
    /// A bit for each word that isn't zero.
    summary: u32,
}

impl Occupied {
    fn insert(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
        self.summary |= 1 << (slot / 64);
    }

    fn remove(&mut self, slot: usize) {
        self.words[slot / 64] &= !(1 << (slot % 64));
        if self.words[slot / 64] == 0 {
            self.summary &= !(1 << (slot / 64));
        }
    }

    /// The first of them, which is the next in time: an occupied slot is never behind the present, and an upper level is later than
    /// every level below it.
    fn first(&self) -> Option<usize> {
        let word = self.summary.trailing_zeros() as usize;
        self.words.get(word).map(|bits| word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests;
