//! What attempts write while they run, line by line, on a way of its own.
//!
//! Lines are no part of what decides: they come through no batch, under no fence, and nobody waits for them. A worker keeps them in a
//! bounded [`buffer`] that counts what it drops; [`ship`](buffer::ship) hands them to whichever replica takes them; the replica writes them
//! to a [`LogStore`], which has a writer of its own. Where any of that is slow, lines are dropped and counted, and fires go on.
//!
//! A line has a number in its attempt, given by the worker, so what is sent twice is read once. Lines lie by the day that their worker
//! gives them, which never goes back within an attempt: old days go whole.

pub mod buffer;
pub mod level;
mod queue;
pub mod trace;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId, WorkerId};
use punctual_core::time::{Millis, Timestamp};

pub use self::buffer::{AttemptLog, LogBuffer};
pub use self::level::Level;
pub use self::trace::TraceId;
use crate::ports::StoreError;

/// Longest line, in bytes; what is longer is cut, and marked.
pub const LINE_BYTES_MAX: usize = 8 << 10;
/// What a line counts besides its bytes, for the row that it makes.
pub const LINE_OVERHEAD: usize = 128;
/// Longest notice of lines that are missing, in bytes.
pub const NOTICE_BYTES_MAX: usize = 512;
/// Most that one attempt may have in its log, in bytes with overhead. The end of what it writes is in the attempt's output all the same.
pub const ATTEMPT_BYTES_MAX: usize = 16 << 20;
/// Most that waits in a worker for a replica, in bytes with overhead.
pub const BUFFER_BYTES_MAX: usize = 8 << 20;
/// Most of it that is one attempt's. Where there is no room left it may be less: an equal part of the buffer for each attempt that has lines in
/// it, so that a flood drowns itself, and no other.
pub const ATTEMPT_SHARE: usize = BUFFER_BYTES_MAX / 4;
/// Most that is sent at once, in bytes with overhead, but for the notices among it.
pub const BATCH_BYTES_MAX: usize = 256 << 10;
/// Most lines that are sent at once. A batch ends with the line that reaches either limit.
pub const BATCH_LINES_MAX: usize = 2_000;
/// Shortest time from one sending to the next: lines that come meanwhile go together.
pub const SEND_INTERVAL: Millis = Millis(100);
/// Most that a worker sends a second, in bytes with overhead.
pub const SEND_BYTES_PER_SECOND: usize = 2 << 20;
/// Longest wait before lines that were not taken are sent again.
pub const AGAIN_TIME_MAX: Millis = Millis(2_000);
/// Longest time that a line waits in a worker until it is sent, where replicas take lines as fast as they may be sent: what may be before it is
/// the batch under way, up to the line that reaches its limit and the notice before that one, and a full buffer.
pub const WAIT_TIME_MAX: Millis = {
    let bytes = BATCH_BYTES_MAX + 2 * LINE_BYTES_MAX + BUFFER_BYTES_MAX;
    Millis((bytes * 1_000 / SEND_BYTES_PER_SECOND) as u64 + SEND_INTERVAL.0)
};
/// How long a worker that stops tries to get rid of what is left.
pub const FLUSH_TIME_MAX: Millis = Millis(2_000);
/// Days that lines are kept, where nobody says.
pub const KEEP_DAYS_DEFAULT: u32 = 14;
/// Most days that lines are kept.
pub const KEEP_DAYS_MAX: u32 = 3_660;
/// Most lines of a page.
pub const PAGE_LINES_MAX: usize = 1_000;
/// Most of a page in bytes with overhead: it ends before the line that doesn't fit.
pub const PAGE_BYTES_MAX: usize = 256 << 10;
/// Longest text that lines are searched for, in bytes.
pub const SEARCH_BYTES_MAX: usize = 256;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

const _: () = assert!(LINE_BYTES_MAX + LINE_OVERHEAD <= BATCH_BYTES_MAX, "each line fits into a batch");
const _: () = assert!(LINE_BYTES_MAX + LINE_OVERHEAD <= PAGE_BYTES_MAX, "each line fits into a page");
const _: () = assert!(
    (BATCH_LINES_MAX - 1) * LINE_OVERHEAD * 1_000 / SEND_BYTES_PER_SECOND >= SEND_INTERVAL.0 as usize,
    "a full batch, of the shortest lines too, is followed by the next one as soon as its bytes allow"
);
const _: () = assert!(BATCH_BYTES_MAX <= ATTEMPT_SHARE && ATTEMPT_SHARE <= BUFFER_BYTES_MAX && BUFFER_BYTES_MAX <= ATTEMPT_BYTES_MAX);

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its number in its attempt, counted from 1 without gaps.
    pub seq: u64,
    /// When it was written, by the worker's clock; never before the line before it.
    pub at: Timestamp,
    /// How much it matters.
    pub level: Level,
    /// So many lines are missing here; what follows is a notice of that, not a line of the attempt's. 0: it is the attempt's.
    pub dropped: u64,
    /// What it says, control characters and all, without the end of the line.
    pub message: Arc<str>,
}

impl LogLine {
    /// What it counts where lines are counted in bytes.
    pub fn cost(&self) -> usize {
        self.message.len() + LINE_OVERHEAD
    }
}

/// Lines of one attempt, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLines {
    /// The instance.
    pub instance: InstanceId,
    /// The attempt's fence, by which its lines are told from another one's.
    pub fence: Fence,
    /// Which attempt of the instance it is.
    pub attempt: u32,
    /// The task.
    pub task: TaskId,
    /// The trace that the instance is.
    pub trace: TraceId,
    /// The lines.
    pub lines: Vec<LogLine>,
}

/// Lines of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBatch {
    /// Whose.
    pub worker: WorkerId,
    /// By attempt.
    pub attempts: Vec<AttemptLines>,
}

/// Where a page begins or ends: at a line of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCursor {
    /// The attempt's fence.
    pub fence: Fence,
    /// The line's number.
    pub seq: u64,
}

impl fmt::Display for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.fence, self.seq)
    }
}

impl std::str::FromStr for LogCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (fence, seq) = text.split_once('_').ok_or(())?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|number| is_number && *number <= i64::MAX as u64).ok_or(())
        };
        Ok(LogCursor { fence: Fence(number(fence)?), seq: number(seq)? })
    }
}

/// Which lines of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The instance.
    pub instance: InstanceId,
    /// Not before this: the instance was not there.
    pub from: Timestamp,
    /// Not long after this: it had ended.
    pub until: Option<Timestamp>,
    /// Behind this line.
    pub after: Option<LogCursor>,
    /// The last lines instead of the first.
    pub newest: bool,
    /// Of this attempt.
    pub attempt: Option<u32>,
    /// That matter at least so much.
    pub level: Level,
    /// That have this text in them. Notices of what is missing come all the same.
    pub text: Option<Arc<str>>,
    /// At most so many.
    pub limit: usize,
}

impl LogQuery {
    /// The first lines of an instance that was made then.
    pub fn of(instance: InstanceId, from: Timestamp) -> LogQuery {
        LogQuery {
            instance,
            from,
            until: None,
            after: None,
            newest: false,
            attempt: None,
            level: Level::Trace,
            text: None,
            limit: PAGE_LINES_MAX,
        }
    }

    /// The days that its lines can lie on. Clocks of workers are not the store's.
    pub fn days(&self) -> (Day, Day) {
        let last = self.until.map_or(Day::MAX, |until| Day(Day::of(until).0 + 2));
        (Day(Day::of(self.from).0 - 1), last)
    }
}

/// A line as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLine {
    /// The attempt's fence.
    pub fence: Fence,
    /// Which attempt.
    pub attempt: u32,
    /// Its task.
    pub task: TaskId,
    /// The worker.
    pub worker: WorkerId,
    /// The trace.
    pub trace: TraceId,
    /// The line.
    pub line: LogLine,
}

impl FoundLine {
    /// Where it is.
    pub fn cursor(&self) -> LogCursor {
        LogCursor { fence: self.fence, seq: self.line.seq }
    }
}

/// Lines of an instance that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, by attempt and number, each once.
    pub lines: Vec<FoundLine>,
    /// The last line that was looked at, whether it was wanted or not: who goes on behind it misses nothing. `None`: there was none to look at.
    pub seen: Option<LogCursor>,
    /// There may be more of those that are wanted.
    pub is_full: bool,
}

impl LogPage {
    /// Of lines that are wanted, in order and at most as many as that, those that a page holds. `end`: the last line that there was.
    pub fn of(query: &LogQuery, mut lines: Vec<FoundLine>, end: Option<LogCursor>) -> LogPage {
        let mut is_full = lines.len() >= query.limit;
        // One that was sent again lies on two days where midnight came between, by a clock that is far off.
        lines.dedup_by_key(|found| found.cursor());
        let mut bytes = 0;
        let fits = |found: &&FoundLine| {
            bytes += found.line.cost();
            bytes <= PAGE_BYTES_MAX
        };
        let count = if query.newest { lines.iter().rev().take_while(fits).count() } else { lines.iter().take_while(fits).count() };
        is_full |= count < lines.len();
        if query.newest {
            lines.drain(..lines.len() - count);
        } else {
            lines.truncate(count);
        }
        let last = lines.last().map(FoundLine::cursor);
        LogPage { seen: last.filter(|_| is_full && !query.newest).or(end), lines, is_full }
    }
}

/// A day, counted from 1970-01-01, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// Behind all days that there are.
    pub const MAX: Day = Day(3_000_000);

    /// The day that has this instant.
    pub const fn of(at: Timestamp) -> Day {
        Day(at.0.div_euclid(DAY_MS))
    }

    /// The day that a line is kept under, today being this: a worker whose clock is far off has it under today.
    pub fn of_line(at: Timestamp, today: Day) -> Day {
        let day = Day::of(at);
        if (day.0 - today.0).abs() <= 1 { day } else { today }
    }

    /// The first day that is kept where so many are, today among them.
    pub const fn first_kept(today: Day, keep: u32) -> Day {
        Day(today.0 - keep as i64 + 1)
    }
}

/// Such as `2026-11-30`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Timestamp(self.0.saturating_mul(DAY_MS)).to_string();
        f.write_str(text.split('T').next().unwrap_or(&text))
    }
}

/// What a store of lines answers, in its own time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps lines. No call of it waits for a commit of [`Store`](crate::ports::Store), or makes one wait.
pub trait LogStore: Send + Sync + 'static {
    /// Adds lines. Those that are there already stay as they are: whoever has no answer calls again. `now` is the store's clock, as of the
    /// other ports.
    fn append(&self, batches: Vec<Arc<LogBatch>>, now: Timestamp) -> Answer<'_, ()>;

    /// Reads lines, by attempt and number.
    fn lines(&self, query: LogQuery) -> Answer<'_, LogPage>;

    /// Drops the days before the last `days`, today being one of them, and makes room for those to come; answers with what was dropped.
    fn keep(&self, days: u32, now: Timestamp) -> Answer<'_, Vec<Day>>;
}

/// Why lines were not taken. They may be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// Not now.
    Busy,
    /// Never by this replica: it doesn't know how.
    Never,
    /// Never by anybody: they are not as they should be.
    Refused,
}

/// Takes lines that workers send.
pub trait LogSink: fmt::Debug + Send + Sync + 'static {
    /// Ends when they are stored.
    fn take(&self, batch: Arc<LogBatch>) -> Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + '_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_names_and_bounds() {
        let at = Timestamp(1_790_000_000_000);
        assert_eq!(Day::of(at).to_string(), "2026-09-21");
        assert_eq!((Day::of(Timestamp(-1)), Day::of(Timestamp(0))), (Day(-1), Day(0)));
        let today = Day::of(at);
        for (days, kept) in [(0, 0), (1, 1), (-1, -1), (2, 0), (-300, 0)] {
            let line = Timestamp(at.0 + days * DAY_MS);
            assert_eq!(Day::of_line(line, today), Day(today.0 + kept), "{days}");
        }
        assert_eq!(Day::first_kept(today, 1), today);
    }

    #[test]
    fn a_page_ends_where_it_is_full() {
        let found = |seq: u64, message: &str| FoundLine {
            fence: Fence(3),
            attempt: 1,
            task: TaskId(1),
            worker: WorkerId("w".into()),
            trace: TraceId([1; 16]),
            line: LogLine { seq, at: Timestamp(0), level: Level::Info, dropped: 0, message: message.into() },
        };
        let query = |newest, limit| LogQuery { newest, limit, ..LogQuery::of(InstanceId(1), Timestamp(0)) };
        let at = |seq| Some(LogCursor { fence: Fence(3), seq });
        let numbers = |page: &LogPage| page.lines.iter().map(|found| found.line.seq).collect::<Vec<_>>();
        let few = || vec![found(1, "a"), found(2, "first"), found(2, "again"), found(3, "b")];
        let page = LogPage::of(&query(false, 9), few(), at(7));
        assert_eq!((numbers(&page), page.seen, page.is_full), (vec![1, 2, 3], at(7), false), "all that was wanted up to 7");
        assert_eq!(&*page.lines[1].line.message, "first");
        let page = LogPage::of(&query(false, 4), few(), at(7));
        assert_eq!((numbers(&page), page.seen, page.is_full), (vec![1, 2, 3], at(3), true), "there may be more before 7");
        let long = "x".repeat(LINE_BYTES_MAX);
        let many = || (1..=100).map(|seq| found(seq, &long)).collect();
        let held = (PAGE_BYTES_MAX / (LINE_BYTES_MAX + LINE_OVERHEAD)) as u64;
        let page = LogPage::of(&query(false, 1_000), many(), at(100));
        assert_eq!((numbers(&page), page.seen, page.is_full), ((1..=held).collect(), at(held), true));
        let page = LogPage::of(&query(true, 1_000), many(), at(100));
        assert_eq!((numbers(&page), page.seen, page.is_full), ((101 - held..=100).collect(), at(100), true));
        assert_eq!(LogPage::of(&query(false, 9), Vec::new(), None), LogPage::default());
    }

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let cursor = LogCursor { fence: Fence(17), seq: 4 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "1", "_", "1_", "1_2_3", "+1_2", "1_-2", "9223372036854775808_1", "x_1"] {
            assert_eq!(bad.parse::<LogCursor>(), Err(()), "{bad}");
        }
    }
}
