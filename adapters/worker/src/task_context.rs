//! What a handler knows of its attempt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId, TaskId, Version};
use punctual_core::limits::OUTPUT_BYTES_MAX;
use punctual_core::protocol::{Assignment, MapRole, Shard};
use punctual_core::time::Timestamp;
use punctual_driver::logs::{AttemptLog, Level, TraceId};
use punctual_driver::ports::Stop;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output::{Capture, cut_detail};

/// An attempt, as its handler sees it. Clones are of the same attempt.
#[derive(Clone, Debug)]
pub struct TaskContext {
    assignment: Arc<Assignment>,
    begun: Instant,
    stop: watch::Receiver<Stop>,
    log: Option<AttemptLog>,
    lines: Arc<Mutex<Lines>>,
}

/// What a handler has said.
#[derive(Debug)]
struct Lines {
    logged: Capture,
    /// What was said last of how far it is, and when.
    progress: (String, Option<Instant>),
}

/// How often progress is a line of the log at most.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

impl TaskContext {
    pub(crate) fn new(assignment: Arc<Assignment>, stop: watch::Receiver<Stop>, log: Option<AttemptLog>) -> Self {
        // The rest of the room is for the result.
        let lines = Lines { logged: Capture::new(OUTPUT_BYTES_MAX / 2), progress: Default::default() };
        TaskContext { assignment, begun: Instant::now(), stop, log, lines: Arc::new(Mutex::new(lines)) }
    }

    /// The instance.
    pub fn instance(&self) -> InstanceId {
        self.assignment.instance
    }

    /// Which attempt of the instance this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.assignment.attempt
    }

    /// The attempt's token: a later attempt has a higher one, and whoever guards a resource refuses all below the highest that it has seen.
    pub fn fence(&self) -> Fence {
        self.assignment.fence
    }

    /// The key that all attempts of the instance share: whoever does something once a key does it once an instance.
    pub fn idempotency_key(&self) -> String {
        self.assignment.idempotency_key()
    }

    /// What [`once`](crate::once) needs to know, so that an effect happens once an instance.
    #[cfg(any(feature = "once-mysql", feature = "once-postgres", feature = "once-redis", feature = "once-sqlite"))]
    pub fn once(&self) -> crate::once::Key {
        crate::once::Key::new(self)
    }

    /// The task's name.
    pub fn task_name(&self) -> &str {
        &self.assignment.task_name
    }

    /// The task's number, which stays the same however it is edited.
    pub fn task(&self) -> TaskId {
        self.assignment.task
    }

    /// The version of the task that the instance was fired by.
    pub fn task_version(&self) -> Version {
        self.assignment.version
    }

    /// Tells manual triggers of one millisecond apart; 0 for all other instances.
    pub fn ordinal(&self) -> u64 {
        self.assignment.ordinal
    }

    /// The nominal instant that the instance belongs to.
    pub fn fire_time(&self) -> Timestamp {
        self.assignment.fire_time
    }

    /// 1, and one more for each time that somebody had the instance run again.
    pub fn run(&self) -> u32 {
        self.assignment.run
    }

    /// Which part of the work is this attempt's, where the task divides its firings: shard `index` of `count`, counted from 0, and its key
    /// where the task names some. `None`: all of it.
    pub fn shard(&self) -> Option<&Shard> {
        self.assignment.shard.as_ref()
    }

    /// The name of the workflow's node that this is an attempt of; `None`: the task is no workflow.
    pub fn node(&self) -> Option<&str> {
        self.assignment.node.as_ref().map(|node| &*node.name)
    }

    /// What the upstreams of the node have answered: a JSON object with a member for each of them, by name. What is no JSON is a text there,
    /// `null` stands for nothing. Results beyond 64 KiB in all have no member. `None`: the task is no workflow.
    pub fn inputs(&self) -> Option<&str> {
        self.assignment.node.as_ref().map(|node| &*node.inputs)
    }

    /// What the items of a map have answered, for what reduces them: a line each, in their order, as JSON; `null` where an item has answered
    /// nothing. `None`: this attempt reduces nothing.
    pub fn results(&self) -> Option<&str> {
        match &self.assignment.map {
            Some(MapRole::Reduce { results }) => Some(results),
            _ => None,
        }
    }

    /// Whether it lists the items of a map: what it returns is the list.
    pub fn lists(&self) -> bool {
        self.assignment.map == Some(MapRole::List)
    }

    /// The payload as it came, JSON; `None`: there is none.
    pub fn payload(&self) -> Option<&str> {
        self.assignment.payload.as_deref()
    }

    /// How much of the attempt's time is left; `None`: it may take as long as it likes.
    pub fn time_left(&self) -> Option<Duration> {
        let after = Duration::from_millis(self.assignment.timeout.after?.0);
        Some(after.saturating_sub(self.begun.elapsed()))
    }

    /// Whether the attempt is asked to end.
    pub fn is_cancelled(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    /// Ends when the attempt is asked to end: its time is over, somebody has cancelled it, or the worker has lost all its schedulers. A
    /// handler that doesn't end within the task's grace is dropped.
    pub async fn cancelled(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|asked| *asked != Stop::No).await.is_err() {
            // The sender is gone: nobody asks any more.
            std::future::pending::<()>().await;
        }
    }

    /// Writes a line to the attempt's log, where it can be read at once, and to its output. Of too many the output has the beginning and the
    /// end; what was dropped is counted in both.
    pub fn log(&self, line: impl AsRef<str>) {
        self.log_at(Level::Info, line);
    }

    /// The same, with how much it matters. Nothing waits for it, however much there is.
    pub fn log_at(&self, level: Level, line: impl AsRef<str>) {
        let line = line.as_ref();
        if let Some(log) = &self.log {
            log.write(level, line);
        }
        let mut lines = self.lines();
        lines.logged.push(line.as_bytes());
        lines.logged.push(b"\n");
    }

    /// Says how much is done, from 0 to 1, and what is going on: a line of the attempt's log such as `progress 40 %: reading`, unless one came
    /// just now. In its output it has no place.
    pub fn progress(&self, done: f32, note: impl AsRef<str>) {
        // What is not done is not shown as done.
        let most = if done >= 1.0 { 100.0 } else { 99.0 };
        // What is no number is 0.
        let percent = (done * 100.0).round().clamp(0.0, most) as u8;
        let note = cut_detail(&note.as_ref().replace(char::is_control, " "));
        let separator = if note.is_empty() { "" } else { ": " };
        let line = format!("progress {percent} %{separator}{note}");
        let mut lines = self.lines();
        let (said, at) = &lines.progress;
        let is_soon = percent < 100 && at.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL);
        if is_soon || *said == line {
            return;
        }
        if let Some(log) = &self.log {
            log.line(Level::Info, &line);
        }
        lines.progress = (line, Some(Instant::now()));
    }

    /// The trace that the instance is, as 32 hexadecimal digits: the same for all its attempts, on whichever worker.
    pub fn trace_id(&self) -> String {
        TraceId::of(&self.assignment).to_string()
    }

    /// The value of W3C's `traceparent` for what the attempt calls.
    pub fn traceparent(&self) -> String {
        TraceId::of(&self.assignment).parent(self.assignment.fence)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was logged, with the result behind it.
    pub(crate) fn output(&self, result: &str) -> Output {
        let mut output = std::mem::replace(&mut self.lines().logged, Capture::new(0)).finish();
        output.bytes.extend_from_slice(result.as_bytes());
        output
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::WorkerId;
    use punctual_driver::clock::SystemClock;
    use punctual_driver::logs::{LogBuffer, LogLine};

    use super::*;
    use crate::testing::Attempt;

    #[test]
    fn what_is_said_is_a_line_at_once_and_output_in_the_end() {
        let buffer = LogBuffer::new(WorkerId("w".into()), Arc::new(SystemClock::new()));
        let attempt = Attempt::default();
        let log = buffer.attempt(&attempt.assignment);
        let context = TaskContext::new(Arc::new(attempt.assignment.clone()), attempt.stop.subscribe(), Some(log));
        context.progress(0.4, "reading");
        context.log("one\ntwo");
        context.log_at(Level::Error, "three");
        for (done, note) in [(0.29, "two\nlines"), (0.999, ""), (7.5, ""), (-3.0, "")] {
            // As if the interval had passed.
            context.lines().progress.1 = None;
            context.progress(done, note);
            context.progress(0.5, "too soon");
        }
        context.lines().progress = Default::default();
        context.progress(f32::NAN, "");
        let lines = buffer.waiting();
        let shown: Vec<_> = lines.iter().map(|LogLine { level, message, .. }| format!("{level} {message}")).collect();
        assert_eq!(
            shown,
            [
                "info progress 40 %: reading",
                "info one",
                "info two",
                "error three",
                "info progress 29 %: two lines",
                "info progress 99 %",
                "info progress 100 %",
                "info progress 0 %",
                "info progress 0 %"
            ]
        );
        assert_eq!(context.output("2").bytes, b"one\ntwo\nthree\n2");
        assert_eq!(context.traceparent(), format!("00-{}-{}-01", context.trace_id(), &context.traceparent()[36..52]));
    }
}
