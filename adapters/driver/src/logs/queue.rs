//! The lines that wait in a worker, and whose give way where there is no room.
//!
//! Lines leave in the order in which they came. As long as there is room, each attempt may have up to [`ATTEMPT_SHARE`] of it. Where there is
//! none, the room is shared by the attempts that have something waiting, those that have ended among them: of n attempts the *fair share* of
//! each is an n-th of [`BUFFER_BYTES_MAX`].
//!
//! - A line by which its attempt gets beyond its fair share is dropped.
//! - Any other line comes in: for it, whoever has the most loses its newest lines, one after the other, until there is room.
//!
//! So what an attempt writes within its fair share comes in, and stays, whatever the others do. *It comes in:* where there is no room for a
//! line by which its attempt has x, the other n - 1 attempts have more than the buffer less x, which is n - 1 fair shares at least; so one of
//! them has more than its own. *It stays:* only those are asked to give way. While replicas take lines, one leaves within
//! [`WAIT_TIME_MAX`](super::WAIT_TIME_MAX): an attempt that writes a little less than an n-th of what a worker may send stays within its share.
//!
//! A dropped line is counted with its attempt, and told where it is missing: before the attempt's next line, or behind its last one. What
//! tells it has its room within the bound too, with the line that it stands before, or from the attempt's first line on. There is room for
//! [`ATTEMPTS_TOLD_MAX`] attempts, and for a line of any length of [`ATTEMPTS_HEARD_MAX`]; what one of even more has lost may be in the worker's
//! own count only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId};
use punctual_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::{
    ATTEMPT_BYTES_MAX, ATTEMPT_SHARE, AttemptLines, BATCH_BYTES_MAX, BATCH_LINES_MAX, BUFFER_BYTES_MAX, LINE_BYTES_MAX, LINE_OVERHEAD,
    Level, LogLine, NOTICE_BYTES_MAX, TraceId,
};

/// Room for a notice, in bytes with overhead.
const NOTICE_ROOM: usize = LINE_OVERHEAD + 128;
/// So many attempts have room at once for a notice of what they have lost.
const ATTEMPTS_TOLD_MAX: usize = BUFFER_BYTES_MAX / NOTICE_ROOM;
/// So many attempts have a fair share that holds a line of any length, and what may be missing before and behind it.
const ATTEMPTS_HEARD_MAX: usize = BUFFER_BYTES_MAX / (LINE_BYTES_MAX + LINE_OVERHEAD + 2 * NOTICE_ROOM);

const _: () = assert!(NOTICE_ROOM <= LINE_OVERHEAD + NOTICE_BYTES_MAX);
const _: () = assert!(ATTEMPTS_HEARD_MAX >= 900 && ATTEMPTS_TOLD_MAX >= 32_768, "more than workers usually have slots");

/// What an attempt's lines are under.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) instance: InstanceId,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) task: TaskId,
    pub(super) trace: TraceId,
}

/// The limits; tests have smaller ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) buffer: usize,
    pub(super) share: usize,
    pub(super) attempt: usize,
}

pub(super) const LIMITS: Limits = Limits { buffer: BUFFER_BYTES_MAX, share: ATTEMPT_SHARE, attempt: ATTEMPT_BYTES_MAX };

/// An attempt, by the number that this worker gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(u64);

/// Why lines are missing.
#[derive(Clone, Copy, Debug)]
enum Missing {
    /// There was no room for them.
    NoRoom,
    /// The attempt has written all that it may, just now.
    FullNow,
    /// It had written all that it may.
    Full,
}

impl Missing {
    fn notice(self, count: u64) -> String {
        match self {
            Missing::NoRoom => format!("{count} lines were dropped here: they came faster than they could be stored"),
            Missing::FullNow => {
                let most = ATTEMPT_BYTES_MAX >> 20;
                format!("this attempt has logged {most} MiB: what it writes from here on is counted only; its end is in the output")
            }
            Missing::Full => format!("{count} lines were dropped here: the attempt's log is full"),
        }
    }
}

/// A line, what is missing before it, or both.
#[derive(Debug)]
struct Entry {
    turn: u64,
    at: Timestamp,
    missing: Option<(Missing, u64)>,
    line: Option<(Level, Arc<str>)>,
    /// Room that it has of its own: what an attempt has lost by its end is told in the room that each attempt has for that.
    cost: usize,
}

impl Entry {
    /// What it becomes when it is handed out: a notice, a line, or the one before the other.
    fn tell(&self, seq: &mut u64, mut to: impl FnMut(LogLine)) {
        let mut tell = |level, dropped, message| {
            *seq += 1;
            to(LogLine { seq: *seq, at: self.at, level, dropped, message });
        };
        if let Some((why, count)) = self.missing {
            let notice = why.notice(count);
            assert!(LINE_OVERHEAD + notice.len() <= NOTICE_ROOM, "{notice}");
            tell(Level::Warn, count, notice.into());
        }
        if let Some((level, message)) = &self.line {
            tell(*level, 0, message.clone());
        }
    }
}

#[derive(Debug)]
struct Attempt {
    about: About,
    /// The last number that was given to a line that was handed out.
    seq: u64,
    /// What waits of it, the oldest first.
    entries: VecDeque<Entry>,
    /// The room that it has: its entries', and as long as there are any, that of a notice.
    bytes: usize,
    /// Bytes of its lines that were let in, and not pushed out.
    written: usize,
    /// Lines that were dropped since the newest entry.
    dropped: u64,
    /// It has written all that it may.
    is_full: bool,
    has_ended: bool,
}

impl Attempt {
    /// Why its newest lines are missing.
    fn missing(&self) -> Missing {
        if self.is_full { Missing::Full } else { Missing::NoRoom }
    }
}

/// The lines that wait.
#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    /// Those that have not ended, and those that have something waiting.
    attempts: FxHashMap<Key, Attempt>,
    /// Whose entry is handed out when.
    turns: BTreeMap<u64, Key>,
    /// Those that have something waiting, by the room that they have.
    by_room: BTreeSet<(usize, Key)>,
    /// The room that is taken.
    bytes: usize,
    last_key: u64,
    last_turn: u64,
    /// The time of the newest line: none comes before it.
    last_at: Timestamp,
    /// Lines that were dropped, of all attempts.
    dropped: u64,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Queue {
        let (attempts, turns, by_room) = (FxHashMap::default(), BTreeMap::new(), BTreeSet::new());
        Queue { limits, attempts, turns, by_room, bytes: 0, last_key: 0, last_turn: 0, last_at: Timestamp::default(), dropped: 0 }
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, about: About) -> Key {
        self.last_key += 1;
        let key = Key(self.last_key);
        let (entries, is_full, has_ended) = (VecDeque::new(), false, false);
        self.attempts.insert(key, Attempt { about, seq: 0, entries, bytes: 0, written: 0, dropped: 0, is_full, has_ended });
        key
    }

    /// A line of an attempt that has not ended.
    pub(super) fn push(&mut self, key: Key, at: Timestamp, level: Level, message: Arc<str>) {
        let cost = message.len() + LINE_OVERHEAD;
        let attempt = self.attempts.get_mut(&key).expect("it has not ended");
        if attempt.is_full || attempt.written + cost > self.limits.attempt {
            let is_first = !std::mem::replace(&mut attempt.is_full, true);
            attempt.dropped += 1;
            self.dropped += 1;
            if is_first && self.makes_room(key, NOTICE_ROOM) {
                self.put(key, at, Missing::FullNow, None, NOTICE_ROOM);
            }
            return;
        }
        let cost_told = if attempt.dropped > 0 { cost + NOTICE_ROOM } else { cost };
        if self.makes_room(key, cost_told) {
            self.put(key, at, Missing::NoRoom, Some((level, message)), cost_told);
        } else {
            self.attempts.get_mut(&key).expect("as before").dropped += 1;
            self.dropped += 1;
        }
    }

    /// An attempt has ended: what is missing by then is told.
    pub(super) fn end(&mut self, key: Key, at: Timestamp) {
        let attempt = self.attempts.get_mut(&key).expect("it ends once");
        attempt.has_ended = true;
        let (missing, has_lost) = (attempt.missing(), attempt.dropped > 0);
        if has_lost && self.makes_room(key, 0) {
            self.put(key, at, missing, None, 0);
        }
        if self.attempts[&key].entries.is_empty() {
            self.attempts.remove(&key);
        }
    }

    /// Whether there is so much room for an attempt, by its share and where others have given way.
    fn makes_room(&mut self, key: Key, cost: usize) -> bool {
        let Attempt { bytes, ref entries, .. } = self.attempts[&key];
        let is_new = entries.is_empty();
        let more = if is_new { cost + NOTICE_ROOM } else { cost };
        if bytes + more > self.limits.share {
            return false;
        }
        let is_there_room = |queue: &Queue| queue.bytes + more <= queue.limits.buffer;
        let there = self.by_room.len() + usize::from(is_new);
        if !is_there_room(self) && bytes + more > self.limits.buffer / there {
            return false;
        }
        while !is_there_room(self) {
            let &(most, whose) = self.by_room.last().expect("there is room in an empty one");
            assert!(most > bytes + more, "who gives way has more than its fair share");
            self.push_out(whose);
        }
        true
    }

    /// Puts something in for which there is room.
    fn put(&mut self, key: Key, at: Timestamp, missing: Missing, line: Option<(Level, Arc<str>)>, cost: usize) {
        self.last_turn += 1;
        self.last_at = self.last_at.max(at);
        let (turn, at) = (self.last_turn, self.last_at);
        let attempt = self.attempts.get_mut(&key).expect("whose it is");
        if let Some((_, message)) = &line {
            attempt.written += message.len() + LINE_OVERHEAD;
        }
        let count = std::mem::take(&mut attempt.dropped);
        attempt.entries.push_back(Entry { turn, at, missing: (count > 0).then_some((missing, count)), line, cost });
        self.turns.insert(turn, key);
        self.resize(key, |bytes| bytes + cost);
    }

    /// Drops the newest line of an attempt that has one waiting.
    fn push_out(&mut self, key: Key) {
        let attempt = self.attempts.get_mut(&key).expect("whose it is");
        let mut freed = 0;
        // What an attempt that has ended has behind its last line takes no room.
        while freed == 0
            && let Some(mut entry) = attempt.entries.pop_back()
        {
            self.turns.remove(&entry.turn);
            freed = entry.cost;
            attempt.dropped += entry.missing.map_or(0, |(_, count)| count);
            if let Some((_, message)) = entry.line.take() {
                attempt.written -= message.len() + LINE_OVERHEAD;
                attempt.dropped += 1;
                self.dropped += 1;
            }
            if attempt.has_ended && freed > 0 {
                // Nothing comes behind it that could tell.
                let missing = Some((attempt.missing(), std::mem::take(&mut attempt.dropped)));
                self.turns.insert(entry.turn, key);
                attempt.entries.push_back(Entry { missing, cost: 0, ..entry });
            }
        }
        self.resize(key, |bytes| bytes - freed);
    }

    /// Counts the room of an attempt anew, after what it has waiting has changed.
    fn resize(&mut self, key: Key, bytes: impl FnOnce(usize) -> usize) {
        let attempt = self.attempts.get_mut(&key).expect("whose it is");
        let before = attempt.bytes;
        let of_notice = if before > 0 { NOTICE_ROOM } else { 0 };
        attempt.bytes = bytes(before - of_notice) + if attempt.entries.is_empty() { 0 } else { NOTICE_ROOM };
        self.bytes = self.bytes - before + attempt.bytes;
        if before > 0 {
            self.by_room.remove(&(before, key));
        }
        if attempt.bytes > 0 {
            self.by_room.insert((attempt.bytes, key));
        }
        assert!(self.bytes <= self.limits.buffer, "the bound of what waits");
    }

    /// Takes the oldest lines out, as many as are sent at once; none, where there are none.
    pub(super) fn take(&mut self) -> Vec<AttemptLines> {
        let mut batch: Vec<AttemptLines> = Vec::new();
        let mut places: FxHashMap<Key, usize> = FxHashMap::default();
        let (mut bytes, mut count) = (0, 0);
        // An entry may become two lines.
        while bytes < BATCH_BYTES_MAX
            && count + 2 <= BATCH_LINES_MAX
            && let Some((turn, key)) = self.turns.pop_first()
        {
            let attempt = self.attempts.get_mut(&key).expect("it has something waiting");
            let entry = attempt.entries.pop_front().filter(|entry| entry.turn == turn).expect("its oldest");
            let About { instance, fence, attempt: number, task, trace } = attempt.about;
            let place = *places.entry(key).or_insert_with(|| {
                batch.push(AttemptLines { instance, fence, attempt: number, task, trace, lines: Vec::new() });
                batch.len() - 1
            });
            entry.tell(&mut attempt.seq, |line| {
                bytes += line.cost();
                count += 1;
                batch[place].lines.push(line);
            });
            let is_over = attempt.has_ended && attempt.entries.is_empty();
            self.resize(key, |bytes| bytes - entry.cost);
            if is_over {
                self.attempts.remove(&key);
            }
        }
        batch
    }

    /// Lines that were taken out are lost. Notices among them tell of lines that were counted when they were dropped.
    pub(super) fn lost(&mut self, batch: &[AttemptLines]) {
        let lines = batch.iter().flat_map(|attempt| &attempt.lines);
        self.dropped += lines.filter(|line| line.dropped == 0).count() as u64;
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Lines that were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All that waits, as it would be handed out.
    pub(super) fn waiting(&self) -> Vec<LogLine> {
        let mut lines = Vec::new();
        for attempt in self.attempts.values() {
            let mut seq = attempt.seq;
            attempt.entries.iter().for_each(|entry| entry.tell(&mut seq, |line| lines.push((entry.turn, line))));
        }
        lines.sort_by_key(|(turn, line)| (*turn, line.seq));
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn about(number: u64) -> About {
        About { instance: InstanceId(number), fence: Fence(number), attempt: 1, task: TaskId(1), trace: TraceId([1; 16]) }
    }

    impl Queue {
        fn line(&mut self, key: Key, bytes: usize) {
            self.push(key, Timestamp(0), Level::Info, "x".repeat(bytes).into());
        }

        /// What an attempt has lost, told or not.
        fn lost_of(&self, key: Key) -> u64 {
            let attempt = &self.attempts[&key];
            attempt.dropped + attempt.entries.iter().filter_map(|entry| entry.missing).map(|(_, count)| count).sum::<u64>()
        }

        /// Counts everything from the entries.
        fn check(&self) {
            let (mut bytes, mut turns) = (0, 0);
            for (key, attempt) in &self.attempts {
                let entries: usize = attempt.entries.iter().map(|entry| entry.cost).sum();
                let expected = if attempt.entries.is_empty() { 0 } else { entries + NOTICE_ROOM };
                assert_eq!((attempt.bytes, self.by_room.contains(&(expected, *key))), (expected, expected > 0));
                assert!(attempt.bytes <= self.limits.share && (!attempt.has_ended || (expected > 0 && attempt.dropped == 0)));
                assert!(attempt.entries.iter().all(|entry| self.turns[&entry.turn] == *key));
                assert!(attempt.entries.iter().is_sorted_by(|a, b| a.turn < b.turn && a.at <= b.at));
                bytes += attempt.bytes;
                turns += attempt.entries.len();
            }
            assert_eq!((self.bytes, self.turns.len()), (bytes, turns));
            assert!(self.by_room.len() <= self.attempts.len() && self.bytes <= self.limits.buffer);
            let told: usize = self.waiting().iter().map(LogLine::cost).sum();
            assert!(told <= self.bytes, "notices have their room within the bound");
        }
    }

    #[test]
    fn a_line_within_the_fair_share_has_the_largest_give_way() {
        let limits = Limits { buffer: 5_300, share: 5_300, attempt: 100_000 };
        let mut queue = Queue::new(limits);
        let [large, small, late] = [1, 2, 3].map(|number| queue.begin(about(number)));
        (0..7).for_each(|_| queue.line(large, 372));
        (0..2).for_each(|_| queue.line(small, 372));
        assert_eq!((queue.bytes, queue.dropped), (2 * NOTICE_ROOM + 9 * 500, 0), "all of it, and no room for one more");
        queue.line(large, 372);
        assert_eq!(queue.dropped, 1, "beyond its share it pushes nobody out");
        queue.line(late, 372);
        queue.line(late, 372);
        assert_eq!([large, small, late].map(|key| queue.lost_of(key)), [3, 0, 0]);
        queue.end(large, Timestamp(0));
        queue.check();
        let batch = queue.take();
        let lines = |place: usize| batch[place].lines.iter().map(|line| (line.seq, line.dropped)).collect::<Vec<_>>();
        assert_eq!(lines(0), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 3)], "what is missing is told where it is missing");
        assert_eq!((lines(1), lines(2)), (vec![(1, 0), (2, 0)], vec![(1, 0), (2, 0)]));
        assert!(queue.is_empty() && queue.bytes == 0 && queue.attempts.len() == 2);
    }

    #[test]
    fn an_attempt_that_has_ended_gives_way_too_and_tells_it() {
        let mut queue = Queue::new(Limits { buffer: 3_100, share: 3_100, attempt: 100_000 });
        let [ended, late] = [1, 2].map(|number| queue.begin(about(number)));
        (0..5).for_each(|_| queue.line(ended, 372));
        queue.line(ended, 372);
        queue.end(ended, Timestamp(0));
        queue.line(late, 372);
        queue.line(late, 372);
        queue.check();
        let batch = queue.take();
        assert_eq!(batch[0].lines.iter().map(|line| line.dropped).collect::<Vec<_>>(), [0, 0, 0, 3]);
        assert_eq!((batch[1].lines.len(), queue.dropped()), (2, 3));
    }

    /// More attempts than there is room for cost no memory.
    #[test]
    fn attempts_without_end_stay_within_the_bound() {
        let mut queue = Queue::new(Limits { buffer: 10_000, share: 2_500, attempt: 100_000 });
        for number in 0..1_000 {
            let key = queue.begin(about(number));
            (0..3).for_each(|_| queue.line(key, 100));
            queue.end(key, Timestamp(0));
        }
        queue.check();
        assert!(queue.attempts.len() <= 10_000 / NOTICE_ROOM);
        let mut kept = 0;
        while !queue.is_empty() {
            kept += queue.take().iter().flat_map(|attempt| &attempt.lines).filter(|line| line.dropped == 0).count() as u64;
        }
        assert_eq!(kept + queue.dropped(), 3_000);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Lines { of: usize, count: usize, bytes: usize },
        End(usize),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0..9_usize, 1..40_usize, 0..600_usize).prop_map(|(of, count, bytes)| Step::Lines { of, count, bytes }),
            2 => (0..9_usize).prop_map(Step::End),
            1 => Just(Step::Take),
        ]
    }

    proptest! {
        /// The rule, line by line: what stays within the fair share comes in, and who has no more than the fair share loses nothing by it.
        #[test]
        fn who_stays_within_the_fair_share_loses_nothing(
            steps in prop::collection::vec(step(), 1..80),
            buffer in 1_000_usize..60_000,
            part in 1_usize..5,
            attempt in 4_000_usize..40_000,
        ) {
            let mut queue = Queue::new(Limits { buffer, share: buffer / part, attempt });
            let (mut keys, mut lives) = ([None; 9], 0);
            let (mut written, mut kept) = (0, 0);
            for step in steps {
                match step {
                    Step::Lines { of, count, bytes } => {
                        let key = *keys[of].get_or_insert_with(|| {
                            lives += 1;
                            queue.begin(about(lives))
                        });
                        for _ in 0..count {
                            let before = queue.attempts.iter().map(|(key, attempt)| (*key, attempt.bytes, queue.lost_of(*key))).collect::<Vec<_>>();
                            let Attempt { bytes: own, dropped, written: so_far, is_full, .. } = queue.attempts[&key];
                            let more = bytes + LINE_OVERHEAD + if dropped > 0 { NOTICE_ROOM } else { 0 } + if own == 0 { NOTICE_ROOM } else { 0 };
                            let share = buffer / (queue.by_room.len() + usize::from(own == 0));
                            let lost = queue.lost_of(key);
                            queue.line(key, bytes);
                            written += 1;
                            let fits = !is_full && so_far + bytes + LINE_OVERHEAD <= attempt && own + more <= share.min(buffer / part);
                            prop_assert!(!fits || queue.lost_of(key) == lost, "within its fair share");
                            for (other, had, lost) in before {
                                prop_assert!(other == key || had > share || queue.lost_of(other) == lost, "has {} of {}", had, share);
                            }
                        }
                    }
                    Step::End(of) => keys[of].take().into_iter().for_each(|key| queue.end(key, Timestamp(0))),
                    Step::Take => {
                        let batch = queue.take();
                        kept += batch.iter().flat_map(|attempt| &attempt.lines).filter(|line| line.dropped == 0).count() as u64;
                    }
                }
                queue.check();
            }
            keys.into_iter().flatten().for_each(|key| queue.end(key, Timestamp(0)));
            while !queue.is_empty() {
                kept += queue.take().iter().flat_map(|attempt| &attempt.lines).filter(|line| line.dropped == 0).count() as u64;
            }
            prop_assert_eq!((kept + queue.dropped(), queue.bytes, queue.attempts.len()), (written, 0, 0), "each line is there or counted once");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// With a part of what may be sent that is less than its equal one, an attempt loses nothing, however many flood beside it.
        #[test]
        fn who_writes_less_than_an_equal_part_loses_nothing(
            floods in 1_usize..100,
            rounds in prop::collection::vec((0_usize..400, 0_usize..LINE_BYTES_MAX), 60..90),
            line in 0_usize..500,
        ) {
            let mut queue = Queue::new(LIMITS);
            let keys: Vec<Key> = (0..floods).map(|number| queue.begin(about(number as u64))).collect();
            let quiet = queue.begin(about(u64::MAX));
            // A line leaves with the batch at the latest that makes as much as the buffer holds; a batch of the shortest lines is the smallest.
            let batches = BUFFER_BYTES_MAX / ((BATCH_LINES_MAX - 1) * LINE_OVERHEAD) + 1;
            let each_round = (BUFFER_BYTES_MAX / (floods + 1) - NOTICE_ROOM) / batches;
            for (count, bytes) in rounds {
                // At first they fill it.
                let count = if queue.last_turn == 0 { BUFFER_BYTES_MAX / floods / (bytes + LINE_OVERHEAD) + 1 } else { count / floods + 1 };
                let text: Arc<str> = "x".repeat(bytes).into();
                for _ in 0..count {
                    keys.iter().for_each(|key| queue.push(*key, Timestamp(0), Level::Info, text.clone()));
                }
                (0..each_round / (line + LINE_OVERHEAD)).for_each(|_| queue.line(quiet, line));
                prop_assert_eq!(queue.lost_of(quiet), 0);
                queue.take();
            }
        }
    }
}
