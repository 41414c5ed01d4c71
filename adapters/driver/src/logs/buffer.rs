//! Lines that wait in a worker for a replica: a bounded queue, and the loop that empties it.
//!
//! What finds no room is dropped, the newest first, and counted with its attempt: the next line of the attempt that finds room has a notice
//! before it that says how many are missing there, and an attempt that ends has one behind its last line. So lines are in order, and each is
//! either there or counted. Whoever writes a line never waits.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_core::ids::{Fence, InstanceId, TaskId, WorkerId};
use punctual_core::protocol::Assignment;
use punctual_core::time::{Millis, Timestamp};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, sleep};

use super::{
    ATTEMPT_BYTES_MAX, ATTEMPT_SHARE, AttemptLines, BATCH_BYTES_MAX, BATCH_LINES_MAX, BUFFER_BYTES_MAX, LINE_BYTES_MAX, Level, LogBatch,
    LogLine, LogSink, NotTaken, SEND_BYTES_PER_SECOND, SEND_INTERVAL, TraceId,
};
use crate::ports::Clock;

/// Stands at the end of a line that was cut.
pub const CUT_MARK: &str = " … (cut)";
/// How soon lines that were not taken are sent again, at first and at most.
const AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// What an attempt's lines are under.
#[derive(Debug)]
struct About {
    instance: InstanceId,
    fence: Fence,
    attempt: u32,
    task: TaskId,
    trace: TraceId,
}

/// What is counted of an attempt.
#[derive(Debug, Default)]
struct Counts {
    /// The last number that was given.
    seq: u64,
    /// Bytes of it in the queue.
    waiting: usize,
    /// Bytes that it has been let in with.
    written: usize,
    /// Lines that were dropped since the last notice.
    dropped: u64,
    /// It has written all that it may.
    is_full: bool,
}

/// The limits; tests have smaller ones.
#[derive(Clone, Copy, Debug)]
struct Limits {
    buffer: usize,
    share: usize,
    attempt: usize,
}

const LIMITS: Limits = Limits { buffer: BUFFER_BYTES_MAX, share: ATTEMPT_SHARE, attempt: ATTEMPT_BYTES_MAX };

#[derive(Debug)]
struct Attempt {
    about: About,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<(Arc<Attempt>, LogLine)>,
    bytes: usize,
    /// The time of the newest line: none comes before it.
    last_at: Timestamp,
    /// What was handed out, and is not yet taken by anybody.
    sent: Option<Arc<LogBatch>>,
    /// How often in a row it was not taken.
    failures: u32,
    /// Lines that were dropped, of all attempts.
    dropped: u64,
}

/// The lines of a worker.
pub struct LogBuffer {
    worker: WorkerId,
    clock: Arc<dyn Clock>,
    limits: Limits,
    queue: Mutex<Queue>,
    came: Notify,
    /// Whether nothing is left.
    is_empty: watch::Sender<bool>,
}

impl std::fmt::Debug for LogBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogBuffer").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl LogBuffer {
    /// An empty one.
    pub fn new(worker: WorkerId, clock: Arc<dyn Clock>) -> Arc<LogBuffer> {
        LogBuffer::limited(worker, clock, LIMITS)
    }

    fn limited(worker: WorkerId, clock: Arc<dyn Clock>, limits: Limits) -> Arc<LogBuffer> {
        let (queue, came, is_empty) = (Mutex::default(), Notify::new(), watch::Sender::new(true));
        Arc::new(LogBuffer { worker, clock, limits, queue, came, is_empty })
    }

    /// Whose lines these are.
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// The log of an attempt that begins.
    pub fn attempt(self: &Arc<Self>, assignment: &Assignment) -> AttemptLog {
        let Assignment { instance, fence, attempt, task, .. } = *assignment;
        let about = About { instance, fence, attempt, task, trace: TraceId::of(assignment) };
        AttemptLog(Arc::new(Ending { buffer: self.clone(), attempt: Arc::new(Attempt { about, counts: Mutex::default() }) }))
    }

    /// How many lines were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.queue().dropped
    }

    /// The lines that nobody has asked for yet, for tests.
    #[doc(hidden)]
    pub fn waiting(&self) -> Vec<LogLine> {
        self.queue().lines.iter().map(|(_, line)| line.clone()).collect()
    }

    /// Ends when all that was written is with somebody.
    pub async fn emptied(&self) {
        // The sender is this buffer's own.
        let _ = self.is_empty.subscribe().wait_for(|is_empty| *is_empty).await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, attempt: &Arc<Attempt>, level: Level, message: &str) {
        let mut counts = attempt.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let message = cut(message);
        let now = self.clock.now().wall;
        let mut queue = self.queue();
        let line = LogLine { seq: 0, at: now, level, dropped: 0, message };
        let cost = line.cost();
        if counts.is_full || counts.written + cost > self.limits.attempt {
            if !std::mem::replace(&mut counts.is_full, true) {
                let most = ATTEMPT_BYTES_MAX >> 20;
                let text =
                    format!("this attempt has logged {most} MiB: what it writes from here on is counted only; its end is in the output");
                self.put_notice(&mut queue, attempt, &mut counts, now, 1, text);
            } else {
                counts.dropped += 1;
            }
            queue.dropped += 1;
            return;
        }
        if queue.bytes + cost > self.limits.buffer || counts.waiting + cost > self.limits.share {
            counts.dropped += 1;
            queue.dropped += 1;
            return;
        }
        if counts.dropped > 0 {
            self.notice(&mut queue, attempt, &mut counts, now);
        }
        counts.written += cost;
        self.put(&mut queue, attempt, &mut counts, line);
    }

    /// What is missing by the attempt's end.
    fn end(&self, attempt: &Arc<Attempt>) {
        let mut counts = attempt.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.dropped > 0 {
            let now = self.clock.now().wall;
            self.notice(&mut self.queue(), attempt, &mut counts, now);
        }
    }

    fn notice(&self, queue: &mut Queue, attempt: &Arc<Attempt>, counts: &mut Counts, now: Timestamp) {
        let missing = std::mem::take(&mut counts.dropped);
        let why = if counts.is_full { "the attempt's log is full" } else { "they came faster than they could be stored" };
        self.put_notice(queue, attempt, counts, now, missing, format!("{missing} lines were dropped here: {why}"));
    }

    /// A notice goes in whether there is room or not: there are at most as many as lines, and one more for each attempt.
    fn put_notice(&self, queue: &mut Queue, attempt: &Arc<Attempt>, counts: &mut Counts, now: Timestamp, dropped: u64, text: String) {
        self.put(queue, attempt, counts, LogLine { seq: 0, at: now, level: Level::Warn, dropped, message: text.into() });
    }

    fn put(&self, queue: &mut Queue, attempt: &Arc<Attempt>, counts: &mut Counts, mut line: LogLine) {
        counts.seq += 1;
        counts.waiting += line.cost();
        line.seq = counts.seq;
        line.at = line.at.max(queue.last_at);
        queue.last_at = line.at;
        queue.bytes += line.cost();
        queue.lines.push_back((attempt.clone(), line));
        self.is_empty.send_if_modified(|is_empty| std::mem::replace(is_empty, false));
        self.came.notify_one();
    }

    /// The oldest lines that nobody has taken; the same ones until [`LogBuffer::taken`].
    async fn next(&self) -> Arc<LogBatch> {
        loop {
            if let Some(batch) = self.try_next() {
                return batch;
            }
            self.came.notified().await;
        }
    }

    fn try_next(&self) -> Option<Arc<LogBatch>> {
        let mut taken = Vec::new();
        let batch = {
            let mut queue = self.queue();
            if queue.sent.is_none() {
                let mut bytes = 0;
                while bytes < BATCH_BYTES_MAX
                    && taken.len() < BATCH_LINES_MAX
                    && let Some((attempt, line)) = queue.lines.pop_front()
                {
                    bytes += line.cost();
                    taken.push((attempt, line));
                }
                queue.bytes -= bytes;
                queue.sent = (!taken.is_empty()).then(|| Arc::new(by_attempt(&self.worker, &taken)));
            }
            queue.sent.clone()
        };
        // Not under the queue's lock: a writer has its attempt's first.
        for (attempt, line) in taken {
            attempt.counts.lock().unwrap_or_else(PoisonError::into_inner).waiting -= line.cost();
        }
        batch
    }

    /// These lines are taken by nobody.
    fn lost(&self, batch: &Arc<LogBatch>) {
        self.queue().dropped += batch.attempts.iter().map(|attempt| attempt.lines.len() as u64).sum::<u64>();
        self.taken(batch);
    }

    /// How long to wait before the same lines are handed out again.
    fn again(&self) -> Duration {
        let mut queue = self.queue();
        let wait = (AGAIN[0] * 2_u32.pow(queue.failures.min(8))).min(AGAIN[1]);
        queue.failures += 1;
        wait
    }

    /// These lines are with somebody.
    fn taken(&self, batch: &Arc<LogBatch>) {
        let mut queue = self.queue();
        // Where two hand lines over at once, for a moment, the other one may have been quicker, and others may be under way.
        if queue.sent.as_ref().is_none_or(|sent| !Arc::ptr_eq(sent, batch)) {
            return;
        }
        queue.sent = None;
        queue.failures = 0;
        if queue.lines.is_empty() {
            self.is_empty.send_replace(true);
        }
    }
}

fn by_attempt(worker: &WorkerId, lines: &[(Arc<Attempt>, LogLine)]) -> LogBatch {
    let mut attempts: Vec<AttemptLines> = Vec::new();
    let mut places: FxHashMap<(InstanceId, Fence), usize> = FxHashMap::default();
    for (of, line) in lines {
        let About { instance, fence, attempt, task, trace } = of.about;
        let place = *places.entry((instance, fence)).or_insert_with(|| {
            attempts.push(AttemptLines { instance, fence, attempt, task, trace, lines: Vec::new() });
            attempts.len() - 1
        });
        attempts[place].lines.push(line.clone());
    }
    LogBatch { worker: worker.clone(), attempts }
}

/// A line that is not too long.
fn cut(message: &str) -> Arc<str> {
    if message.len() <= LINE_BYTES_MAX {
        return message.into();
    }
    let end = message.floor_char_boundary(LINE_BYTES_MAX - CUT_MARK.len());
    format!("{}{CUT_MARK}", &message[..end]).into()
}

/// The log of one attempt. Clones are of the same one; with the last of them it ends.
#[derive(Clone, Debug)]
pub struct AttemptLog(Arc<Ending>);

#[derive(Debug)]
struct Ending {
    buffer: Arc<LogBuffer>,
    attempt: Arc<Attempt>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.buffer.end(&self.attempt);
    }
}

impl AttemptLog {
    /// Writes lines: one, or as many as the text has.
    pub fn write(&self, level: Level, text: &str) {
        for line in text.split('\n') {
            self.line(level, line.strip_suffix('\r').unwrap_or(line));
        }
    }

    /// Writes one line, whatever is in it.
    pub fn line(&self, level: Level, message: &str) {
        self.0.buffer.push(&self.0.attempt, level, message);
    }

    /// The trace that the instance is.
    pub fn trace(&self) -> TraceId {
        self.0.attempt.about.trace
    }

    /// The value of `traceparent` for what the attempt does.
    pub fn traceparent(&self) -> String {
        self.trace().parent(self.0.attempt.about.fence)
    }
}

/// Cuts a stream of bytes into lines and writes them. What is no UTF-8 becomes replacement characters.
#[derive(Debug)]
pub struct LineWriter {
    log: AttemptLog,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// The rest of this line is left out: it is too long.
    is_over: bool,
}

impl LineWriter {
    /// One at the beginning of a line.
    pub fn new(log: AttemptLog) -> LineWriter {
        LineWriter { log, begun: Vec::new(), is_over: false }
    }

    /// Takes the stream's next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.add(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.add(rest);
    }

    fn add(&mut self, bytes: &[u8]) {
        // One byte more than fits makes it a line that was cut.
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.begun.len());
        self.is_over |= bytes.len() > room;
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        let line = self.begun.strip_suffix(b"\r").filter(|_| !self.is_over).unwrap_or(&self.begun);
        let text = String::from_utf8_lossy(line);
        self.log.line(Level::of(&text), &text);
        self.begun.clear();
        self.is_over = false;
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        if !self.begun.is_empty() {
            self.end_line();
        }
    }
}

/// Why lines are handed over no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// They were not taken lately: perhaps somebody else takes them.
    NotNow,
    /// They are never taken there.
    NotHere,
}

/// Hands lines over as they come, until they are not taken, which it has waited for a while after. What is under way then, or when this is
/// dropped, is handed over by whoever calls this next.
pub async fn ship<F: Future<Output = Result<(), NotTaken>>>(buffer: &LogBuffer, take: impl Fn(Arc<LogBatch>) -> F) -> Shipped {
    loop {
        let batch = buffer.next().await;
        let begun = buffer.clock.now().monotonic;
        match take(batch.clone()).await {
            Ok(()) => {
                buffer.taken(&batch);
                let bytes: usize = batch.attempts.iter().flat_map(|attempt| &attempt.lines).map(LogLine::cost).sum();
                let pause = Millis((bytes * 1_000 / SEND_BYTES_PER_SECOND) as u64).max(SEND_INTERVAL);
                let lasted = buffer.clock.now().monotonic.since(begun);
                sleep(Duration::from_millis(pause.0.saturating_sub(lasted.0))).await;
            }
            Err(NotTaken::Busy) => {
                sleep(buffer.again()).await;
                return Shipped::NotNow;
            }
            // As good as dropped; they are not let in the way of those behind them.
            Err(NotTaken::Refused) => buffer.lost(&batch),
            Err(NotTaken::Never) => return Shipped::NotHere,
        }
    }
}

/// Hands lines of attempts over within a process, until it is dropped.
pub async fn ship_to(buffer: &LogBuffer, sink: &dyn LogSink) {
    while ship(buffer, |batch| sink.take(batch)).await == Shipped::NotNow {}
}

/// Tries to hand over what is left, for a time; what is left then is lost.
pub async fn flush(buffer: &LogBuffer, shipping: impl Future<Output = ()>) {
    let time_max = Duration::from_millis(super::FLUSH_TIME_MAX.0);
    let _ = tokio::time::timeout(time_max, async {
        tokio::select! {
            biased;
            () = buffer.emptied() => {}
            () = shipping => {}
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicI64, Ordering};

    use proptest::prelude::*;
    use punctual_core::definition::{Handler, TimeoutPolicy};
    use punctual_core::ids::Version;
    use punctual_core::time::{Monotonic, Now};

    use super::*;

    /// A clock that tests set, also back.
    #[derive(Default)]
    struct Set(AtomicI64);

    impl Clock for Set {
        fn now(&self) -> Now {
            Now { wall: Timestamp(self.0.load(Ordering::Relaxed)), monotonic: Monotonic(0) }
        }
    }

    fn assignment(number: u64) -> Assignment {
        Assignment {
            instance: InstanceId(number),
            attempt: 1,
            fence: Fence(number * 10),
            task: TaskId(1),
            task_name: "test".into(),
            version: Version(1),
            fire_time: Timestamp(0),
            ordinal: 0,
            run: 1,
            shard: None,
            map: None,
            node: None,
            handler: Handler { name: "test".into(), config: "{}".into() },
            payload: None,
            timeout: TimeoutPolicy::default(),
        }
    }

    fn buffer(limits: Limits) -> (Arc<LogBuffer>, Arc<Set>) {
        let clock = Arc::new(Set::default());
        (LogBuffer::limited(WorkerId("w".into()), clock.clone(), limits), clock)
    }

    fn taken(buffer: &LogBuffer) -> Vec<AttemptLines> {
        let Some(batch) = buffer.try_next() else { return Vec::new() };
        assert_eq!(buffer.try_next(), Some(batch.clone()), "the same until somebody has it");
        buffer.taken(&batch);
        batch.attempts.clone()
    }

    fn messages(lines: &[AttemptLines]) -> Vec<String> {
        lines.iter().flat_map(|attempt| &attempt.lines).map(|line| line.message.to_string()).collect()
    }

    #[test]
    fn bytes_become_lines() {
        let (buffer, _) = buffer(LIMITS);
        let mut writer = LineWriter::new(buffer.attempt(&assignment(1)));
        for piece in ["one\ntw", "o\r\n", "\n\u{1b}[31mERROR\u{1b}[0m <script>\0", "\nlast"] {
            writer.push(piece.as_bytes());
        }
        drop(writer);
        let lines = taken(&buffer);
        assert_eq!(messages(&lines), ["one", "two", "", "\u{1b}[31mERROR\u{1b}[0m <script>\0", "last"]);
        assert_eq!(lines[0].lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(lines[0].lines[3].level, Level::Error);
    }

    #[test]
    fn a_long_line_is_cut_and_marked() {
        let (buffer, _) = buffer(LIMITS);
        let mut writer = LineWriter::new(buffer.attempt(&assignment(1)));
        writer.push("x".repeat(LINE_BYTES_MAX).as_bytes());
        writer.push(b"\n");
        for _ in 0..100 {
            writer.push("€".repeat(1_000).as_bytes());
            assert!(writer.begun.len() <= LINE_BYTES_MAX + 1);
        }
        writer.push(b"\r\nnext\n");
        let lines = messages(&taken(&buffer));
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].len(), LINE_BYTES_MAX);
        assert!(lines[1].len() <= LINE_BYTES_MAX && lines[1].ends_with(CUT_MARK) && !lines[1].contains('\u{fffd}'));
        assert_eq!(lines[2], "next");
    }

    #[test]
    fn a_flood_drowns_itself_and_no_other() {
        let (buffer, _) = buffer(LIMITS);
        let (flood, calm) = (buffer.attempt(&assignment(1)), buffer.attempt(&assignment(2)));
        for _ in 0..100_000 {
            flood.line(Level::Info, &"x".repeat(1_000));
        }
        calm.line(Level::Info, "here");
        assert!(buffer.queue().bytes <= ATTEMPT_SHARE + 1_000);
        drop((flood, calm));
        let mut all = Vec::new();
        loop {
            let lines = taken(&buffer);
            if lines.is_empty() {
                break;
            }
            all.extend(lines);
        }
        let of = |instance| all.iter().filter(move |attempt| attempt.instance == InstanceId(instance)).flat_map(|attempt| &attempt.lines);
        let (stored, counted) = (of(1).filter(|line| line.dropped == 0).count() as u64, of(1).map(|line| line.dropped).sum::<u64>());
        assert_eq!((stored + counted, of(2).count()), (100_000, 1));
        assert_eq!(buffer.dropped(), counted);
        assert!(stored > 1_000);
    }

    #[test]
    fn an_attempt_has_so_much_and_says_when_that_is_over() {
        let (buffer, _) = buffer(Limits { attempt: 2_000, ..LIMITS });
        let log = buffer.attempt(&assignment(1));
        for number in 0..100 {
            log.line(Level::Info, &format!("line {number}"));
        }
        drop(log);
        let lines = taken(&buffer).remove(0).lines;
        let kept = lines.iter().filter(|line| line.dropped == 0).count();
        assert_eq!(kept, 2_000 / (LogLine::cost(&lines[0])), "{lines:?}");
        let notices: Vec<_> = lines[kept..].iter().map(|line| line.dropped).collect();
        assert_eq!(notices, [1, 100 - kept as u64 - 1], "at once, and at the end");
    }

    #[test]
    fn who_hears_late_that_lines_were_taken_takes_no_others_away() {
        let (buffer, _) = buffer(LIMITS);
        let log = buffer.attempt(&assignment(1));
        log.line(Level::Info, "one");
        let first = buffer.try_next().expect("a line");
        buffer.taken(&first);
        log.line(Level::Info, "two");
        let second = buffer.try_next().expect("a line");
        buffer.taken(&first);
        assert_eq!(buffer.try_next(), Some(second));
    }

    #[test]
    fn a_clock_that_is_set_back_turns_no_line_round() {
        let (buffer, clock) = buffer(LIMITS);
        let log = buffer.attempt(&assignment(1));
        for at in [5, 3, 9, -1] {
            clock.0.store(at, Ordering::Relaxed);
            log.line(Level::Info, "x");
        }
        assert_eq!(taken(&buffer)[0].lines.iter().map(|line| line.at.0).collect::<Vec<_>>(), [5, 5, 9, 9]);
    }

    /// Takes every other batch.
    #[derive(Debug)]
    struct Moody(Mutex<(bool, Vec<Arc<LogBatch>>)>);

    impl LogSink for Moody {
        fn take(&self, batch: Arc<LogBatch>) -> Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + '_>> {
            let mut state = self.0.lock().unwrap();
            state.0 = !state.0;
            if state.0 {
                return Box::pin(std::future::ready(Err(NotTaken::Busy)));
            }
            state.1.push(batch);
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_is_sent_again_and_all_is_in_order() {
        let (buffer, _) = buffer(LIMITS);
        let log = buffer.attempt(&assignment(1));
        let sink = Moody(Mutex::default());
        let writing = async {
            for number in 0..50 {
                log.line(Level::Info, &format!("{number}"));
                sleep(Duration::from_millis(37)).await;
            }
            buffer.emptied().await;
        };
        tokio::select! {
            () = ship_to(&buffer, &sink) => panic!("it goes on"),
            () = writing => {}
        }
        let batches = sink.0.lock().unwrap().1.clone();
        let lines: Vec<_> = batches.iter().flat_map(|batch| messages(&batch.attempts)).collect();
        assert_eq!(lines, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(batches.len() < 25, "lines that come meanwhile go together: {}", batches.len());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Line(u64, usize),
        Take,
        End(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..3_u64, 0..200_usize).prop_map(|(attempt, bytes)| Step::Line(attempt, bytes)),
            1 => Just(Step::Take),
            1 => (0..3_u64).prop_map(Step::End),
        ]
    }

    proptest! {
        /// Below the bounds nothing is lost; beyond, what is lost is counted where it is lost, exactly; the bounds hold; order is kept.
        #[test]
        fn every_line_is_there_or_counted(steps in prop::collection::vec(step(), 1..200), room in 600_usize..6_000) {
            let (buffer, _) = buffer(Limits { buffer: room, share: room / 2, attempt: 8_000 });
            let mut logs: BTreeMap<u64, (u64, AttemptLog)> = BTreeMap::new();
            // For each attempt: how many lines were written, and what has come out.
            let mut written: BTreeMap<u64, u64> = BTreeMap::new();
            let mut came: BTreeMap<u64, Vec<LogLine>> = BTreeMap::new();
            let mut lives = 0;
            let mut take = |buffer: &LogBuffer| {
                let lines = taken(buffer);
                for attempt in &lines {
                    came.entry(attempt.instance.0).or_default().extend(attempt.lines.clone());
                }
                !lines.is_empty()
            };
            for step in steps {
                match step {
                    Step::Line(which, bytes) => {
                        let (number, log) = logs.entry(which).or_insert_with(|| {
                            lives += 1;
                            (lives, buffer.attempt(&assignment(lives)))
                        });
                        let count = written.entry(*number).or_default();
                        let text = format!("{count} {}", "x".repeat(bytes));
                        *count += 1;
                        log.line(Level::Info, &text);
                    }
                    Step::Take => { take(&buffer); }
                    Step::End(which) => { logs.remove(&which); }
                }
                let queue = buffer.queue();
                let of_lines: usize = queue.lines.iter().filter(|(_, line)| line.dropped == 0).map(|(_, line)| line.cost()).sum();
                prop_assert!(of_lines <= room);
                prop_assert_eq!(queue.bytes, queue.lines.iter().map(|(_, line)| line.cost()).sum::<usize>());
            }
            logs.clear();
            while take(&buffer) {}
            prop_assert!(*buffer.is_empty.borrow());
            for (number, count) in written {
                let lines = came.remove(&number).unwrap_or_default();
                let mut next = 0;
                for (index, line) in lines.iter().enumerate() {
                    prop_assert_eq!(line.seq, index as u64 + 1);
                    if line.dropped > 0 {
                        next += line.dropped;
                    } else {
                        let of: u64 = line.message.split(' ').next().unwrap().parse().unwrap();
                        prop_assert_eq!(of, next, "what is missing is counted where it is missing");
                        next += 1;
                    }
                }
                prop_assert_eq!(next, count);
            }
            prop_assert!(came.is_empty());
        }
    }
}
