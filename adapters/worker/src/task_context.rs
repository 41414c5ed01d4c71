//! What a handler knows of its attempt.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId, TaskId, Version};
use punctual_core::limits::OUTPUT_BYTES_MAX;
use punctual_core::protocol::{Assignment, MapRole, Shard};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Stop, Window, Written};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output::{Capture, Shared, cut_detail};

/// An attempt, as its handler sees it. Clones are of the same attempt.
#[derive(Clone, Debug)]
pub struct TaskContext {
    assignment: Arc<Assignment>,
    begun: Instant,
    stop: watch::Receiver<Stop>,
    lines: Arc<Shared<Lines>>,
}

/// What a handler has said.
#[derive(Debug)]
struct Lines {
    logged: Capture,
    /// How far it is, as a line.
    progress: String,
    /// How often it has said that.
    progressed: u64,
}

impl Written for Shared<Lines> {
    fn mark(&self) -> u64 {
        let lines = self.lock();
        lines.logged.taken() + lines.progressed
    }

    fn output(&self) -> Output {
        let (logged, progress) = {
            let lines = self.lock();
            (lines.logged.clone(), lines.progress.clone())
        };
        let mut output = logged.finish();
        output.bytes.extend_from_slice(progress.as_bytes());
        output
    }
}

impl TaskContext {
    pub(crate) fn new(assignment: Arc<Assignment>, stop: watch::Receiver<Stop>) -> Self {
        // The rest of the room is for the result.
        let lines = Lines { logged: Capture::new(OUTPUT_BYTES_MAX / 2), progress: String::new(), progressed: 0 };
        TaskContext { assignment, begun: Instant::now(), stop, lines: Arc::new(Shared::new(lines)) }
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

    /// Writes a line to the attempt's output. Of too many the beginning and the end are kept, and what was dropped is counted.
    pub fn log(&self, line: impl AsRef<str>) {
        let mut lines = self.lines.lock();
        lines.logged.push(line.as_ref().as_bytes());
        lines.logged.push(b"\n");
    }

    /// Says how much is done, from 0 to 1, and what is going on. While the attempt runs this is the last line of its output, such as
    /// `progress 40 %: reading`, in place of the one before; in its output at the end it has no place.
    pub fn progress(&self, done: f32, note: impl AsRef<str>) {
        // What is not done is not shown as done.
        let most = if done >= 1.0 { 100.0 } else { 99.0 };
        // What is no number is 0.
        let percent = (done * 100.0).round().clamp(0.0, most) as u8;
        let note = cut_detail(&note.as_ref().replace(char::is_control, " "));
        let separator = if note.is_empty() { "" } else { ": " };
        let mut lines = self.lines.lock();
        lines.progress = format!("progress {percent} %{separator}{note}\n");
        lines.progressed += 1;
    }

    /// Shows what is written there.
    pub(crate) fn show(&self, window: &Window) {
        window.open(self.lines.clone());
    }

    /// What was logged, with the result behind it.
    pub(crate) fn output(&self, result: &str) -> Output {
        let mut output = std::mem::replace(&mut self.lines.lock().logged, Capture::new(0)).finish();
        output.bytes.extend_from_slice(result.as_bytes());
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Attempt;

    #[test]
    fn progress_is_the_last_line_until_the_end() {
        let (context, window) = (Attempt::default().context(), Window::default());
        context.show(&window);
        let written = window.written().expect("it is open");
        assert_eq!(written.mark(), 0);
        let mut marks = vec![0];
        let mut check = |expected: &str| {
            assert_eq!(String::from_utf8_lossy(&written.output().bytes), expected);
            assert!(!marks.contains(&written.mark()));
            marks.push(written.mark());
        };
        context.progress(0.4, "reading");
        check("progress 40 %: reading\n");
        context.log("one");
        check("one\nprogress 40 %: reading\n");
        for (done, note, line) in [
            (0.29, "two\nlines", "progress 29 %: two lines"),
            (0.999, "", "progress 99 %"),
            (1.0, "", "progress 100 %"),
            (7.5, "", "progress 100 %"),
            (-3.0, "", "progress 0 %"),
            (f32::NAN, "", "progress 0 %"),
        ] {
            context.progress(done, note);
            check(&format!("one\n{line}\n"));
        }
        assert_eq!(context.output("2").bytes, b"one\n2");
    }
}
