//! What attempts write goes in here, and out to a replica: a bounded queue, and the loop that empties it.
//!
//! What finds no room is dropped and counted with its attempt, the newest first, each attempt having its share of the room: the next line of
//! the attempt that finds room has a notice before it that says how many are missing there, and an attempt that ends has one behind its last
//! line. So lines are in order, and each is either there or counted. Whoever writes a line never waits.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_core::ids::WorkerId;
use punctual_core::protocol::Assignment;
use punctual_core::time::Millis;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, sleep};

use super::queue::{About, Key, LIMITS, Limits, Queue};
use super::{AGAIN_TIME_MAX, LINE_BYTES_MAX, Level, LogBatch, LogLine, LogSink, NotTaken, SEND_BYTES_PER_SECOND, SEND_INTERVAL, TraceId};
use crate::ports::Clock;

/// Stands at the end of a line that was cut.
pub const CUT_MARK: &str = " … (cut)";
/// How soon lines that were not taken are sent again, at first.
const AGAIN: Duration = Duration::from_millis(100);

/// What waits, and what is under way.
#[derive(Debug)]
struct State {
    queue: Queue,
    /// What was handed out, and is not yet taken by anybody.
    sent: Option<Arc<LogBatch>>,
    /// How often in a row it was not taken.
    failures: u32,
}

/// The lines of a worker.
pub struct LogBuffer {
    worker: WorkerId,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
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
        let state = Mutex::new(State { queue: Queue::new(limits), sent: None, failures: 0 });
        Arc::new(LogBuffer { worker, clock, state, came: Notify::new(), is_empty: watch::Sender::new(true) })
    }

    /// Whose lines these are.
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// The log of an attempt that begins.
    pub fn attempt(self: &Arc<Self>, assignment: &Assignment) -> AttemptLog {
        let Assignment { instance, fence, attempt, task, .. } = *assignment;
        let about = About { instance, fence, attempt, task, trace: TraceId::of(assignment) };
        let key = self.state().queue.begin(about);
        AttemptLog(Arc::new(Ending { buffer: self.clone(), about, key }))
    }

    /// How many lines were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.state().queue.dropped()
    }

    /// The lines that nobody has asked for yet, for tests.
    #[doc(hidden)]
    pub fn waiting(&self) -> Vec<LogLine> {
        self.state().queue.waiting()
    }

    /// Ends when all that was written is with somebody.
    pub async fn emptied(&self) {
        // The sender is this buffer's own.
        let _ = self.is_empty.subscribe().wait_for(|is_empty| *is_empty).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, key: Key, level: Level, message: &str) {
        let (message, now) = (cut(message), self.clock.now().wall);
        self.change(|queue| queue.push(key, now, level, message));
    }

    /// What is missing by the attempt's end.
    fn end(&self, key: Key) {
        let now = self.clock.now().wall;
        self.change(|queue| queue.end(key, now));
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut state = self.state();
        change(&mut state.queue);
        if !state.queue.is_empty() {
            self.is_empty.send_if_modified(|is_empty| std::mem::replace(is_empty, false));
            self.came.notify_one();
        }
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
        let mut state = self.state();
        if state.sent.is_none() {
            let attempts = state.queue.take();
            state.sent = (!attempts.is_empty()).then(|| Arc::new(LogBatch { worker: self.worker.clone(), attempts }));
        }
        state.sent.clone()
    }

    /// These lines are taken by nobody.
    fn lost(&self, batch: &Arc<LogBatch>) {
        self.state().queue.lost(&batch.attempts);
        self.taken(batch);
    }

    /// How long to wait before the same lines are handed out again.
    fn again(&self) -> Duration {
        let mut state = self.state();
        let wait = (AGAIN * 2_u32.pow(state.failures.min(8))).min(Duration::from_millis(AGAIN_TIME_MAX.0));
        state.failures += 1;
        wait
    }

    /// These lines are with somebody.
    fn taken(&self, batch: &Arc<LogBatch>) {
        let mut state = self.state();
        // Where two hand lines over at once, for a moment, the other one may have been quicker, and others may be under way.
        if state.sent.as_ref().is_none_or(|sent| !Arc::ptr_eq(sent, batch)) {
            return;
        }
        state.sent = None;
        state.failures = 0;
        if state.queue.is_empty() {
            self.is_empty.send_replace(true);
        }
    }
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
    about: About,
    key: Key,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.buffer.end(self.key);
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
        self.0.buffer.push(self.0.key, level, message);
    }

    /// The trace that the instance is.
    pub fn trace(&self) -> TraceId {
        self.0.about.trace
    }

    /// The value of `traceparent` for what the attempt does.
    pub fn traceparent(&self) -> String {
        self.trace().parent(self.0.about.fence)
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
    use punctual_core::ids::{Fence, InstanceId, TaskId, Version};
    use punctual_core::time::{Monotonic, Now, Timestamp};

    use super::super::{ATTEMPT_SHARE, AttemptLines, BUFFER_BYTES_MAX, WAIT_TIME_MAX};
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
        assert!(buffer.waiting().iter().map(LogLine::cost).sum::<usize>() <= ATTEMPT_SHARE);
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

    /// All that waits, by attempt.
    fn all(buffer: &LogBuffer) -> BTreeMap<u64, Vec<LogLine>> {
        let mut all: BTreeMap<u64, Vec<LogLine>> = BTreeMap::new();
        loop {
            let lines = taken(buffer);
            if lines.is_empty() {
                return all;
            }
            for attempt in lines {
                all.entry(attempt.instance.0).or_default().extend(attempt.lines);
            }
        }
    }

    #[test]
    fn floods_beside_a_quiet_attempt_leave_it_its_lines() {
        const LINES: u64 = 9_000;
        for floods in [1, 3, 4, 40] {
            let (buffer, _) = buffer(LIMITS);
            let logs: Vec<_> = (1..=floods).map(|number| buffer.attempt(&assignment(number))).collect();
            let quiet = buffer.attempt(&assignment(0));
            for number in 0..LINES {
                logs.iter().for_each(|log| log.line(Level::Info, &"x".repeat(1_000)));
                if number % 100 == 0 {
                    quiet.line(Level::Info, &"quiet".repeat(20));
                }
            }
            drop((logs, quiet));
            let all = all(&buffer);
            assert_eq!(all[&0].iter().map(|line| line.dropped).collect::<Vec<_>>(), [0; LINES as usize / 100], "beside {floods}");
            let kept = |number: &u64| all[number].iter().filter(|line| line.dropped == 0).count() as u64;
            let counted = |number: &u64| all[number].iter().map(|line| line.dropped).sum::<u64>();
            for number in 1..=floods {
                assert_eq!(kept(&number) + counted(&number), LINES);
                assert!(kept(&number) * floods.max(4) > 6_000, "{} of {floods}: they have the rest in equal parts", kept(&number));
            }
            assert_eq!(buffer.dropped(), (1..=floods).map(|number| counted(&number)).sum::<u64>());
        }
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

    /// Notes what it takes at once, and when.
    #[derive(Debug, Default)]
    struct Quick(Mutex<Vec<(tokio::time::Instant, Arc<LogBatch>)>>);

    impl LogSink for Quick {
        fn take(&self, batch: Arc<LogBatch>) -> Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + '_>> {
            self.0.lock().unwrap().push((tokio::time::Instant::now(), batch));
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_line_of_a_full_buffer_is_sent_in_the_time_that_is_said() {
        for bytes in [0, 1_000, LINE_BYTES_MAX] {
            let (buffer, _) = buffer(LIMITS);
            let floods: Vec<_> = (1..=8).map(|number| buffer.attempt(&assignment(number))).collect();
            let fill = || {
                let text = "x".repeat(bytes);
                (0..BUFFER_BYTES_MAX / (bytes + super::super::LINE_OVERHEAD))
                    .for_each(|_| floods.iter().for_each(|log| log.line(Level::Info, &text)));
            };
            fill();
            let sink = Quick::default();
            let writing = async {
                // As soon as a batch is under way, and its room is taken again.
                while sink.0.lock().unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
                fill();
                let log = buffer.attempt(&assignment(99));
                log.line(Level::Info, "last");
                let written = tokio::time::Instant::now();
                buffer.emptied().await;
                written
            };
            let written = tokio::select! {
                () = ship_to(&buffer, &sink) => panic!("it goes on"),
                written = writing => written,
            };
            let taken = sink.0.lock().unwrap();
            let (at, batch) = taken.last().expect("batches");
            assert_eq!(messages(&batch.attempts).last().map(String::as_str), Some("last"));
            let waited = at.duration_since(written).as_millis() as u64;
            assert!((3_500..=WAIT_TIME_MAX.0).contains(&waited), "{waited} ms, with lines of {bytes} bytes");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Line(u64, usize),
        Take,
        End(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..3_u64, 0..2_000_usize).prop_map(|(attempt, bytes)| Step::Line(attempt, bytes)),
            1 => Just(Step::Take),
            1 => (0..3_u64).prop_map(Step::End),
        ]
    }

    proptest! {
        /// Below the bounds nothing is lost; beyond, what is lost is counted where it is lost, exactly; the bounds hold; order is kept.
        #[test]
        fn every_line_is_there_or_counted(steps in prop::collection::vec(step(), 1..200), room in 52_000_usize..100_000) {
            // Room for a notice of as many attempts as there are steps.
            let (buffer, _) = buffer(Limits { buffer: room, share: room / 2, attempt: 50_000 });
            let mut logs: BTreeMap<u64, (u64, AttemptLog)> = BTreeMap::new();
            // For each attempt: how many lines were written, and what has come out.
            let mut written: BTreeMap<u64, u64> = BTreeMap::new();
            let mut came: BTreeMap<u64, Vec<LogLine>> = BTreeMap::new();
            let mut lives = 0;
            let mut counted = 0;
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
                prop_assert!(buffer.waiting().iter().map(LogLine::cost).sum::<usize>() <= room, "notices too");
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
                        counted += line.dropped;
                    } else {
                        let of: u64 = line.message.split(' ').next().unwrap().parse().unwrap();
                        prop_assert_eq!(of, next, "what is missing is counted where it is missing");
                        next += 1;
                    }
                }
                prop_assert_eq!(next, count);
            }
            prop_assert!(came.is_empty());
            prop_assert_eq!(buffer.dropped(), counted);
        }
    }
}
