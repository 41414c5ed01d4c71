//! What a handler knows of its attempt.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::limits::OUTPUT_BYTES_MAX;
use punctual_core::protocol::Assignment;
use punctual_core::time::Timestamp;
use punctual_driver::ports::Stop;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output::Capture;

/// An attempt, as its handler sees it. Clones are of the same attempt.
#[derive(Clone, Debug)]
pub struct TaskContext {
    assignment: Arc<Assignment>,
    begun: Instant,
    stop: watch::Receiver<Stop>,
    lines: Arc<Mutex<Capture>>,
}

impl TaskContext {
    pub(crate) fn new(assignment: Arc<Assignment>, stop: watch::Receiver<Stop>) -> Self {
        // The rest of the room is for the result.
        let lines = Arc::new(Mutex::new(Capture::new(OUTPUT_BYTES_MAX / 2)));
        TaskContext { assignment, begun: Instant::now(), stop, lines }
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

    /// The nominal instant that the instance belongs to.
    pub fn fire_time(&self) -> Timestamp {
        self.assignment.fire_time
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
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.as_ref().as_bytes());
        lines.push(b"\n");
    }

    /// What was logged, with the result behind it.
    pub(crate) fn output(&self, result: &str) -> Output {
        let mut output = std::mem::replace(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner), Capture::new(0)).finish();
        output.bytes.extend_from_slice(result.as_bytes());
        output
    }
}
