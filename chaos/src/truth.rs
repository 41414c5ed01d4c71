//! The handlers' own account: what really happened, as lines of a file, each written at once. It survives whatever becomes of the worker.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use punctual_core::ids::{Fence, InstanceId, TaskId, Version};
use punctual_core::protocol::End;
use punctual_core::time::Timestamp;
use punctual_sim::history::What;
use serde::{Deserialize, Serialize};

use crate::clock::{monotonic_us, wall_us};

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// By the monotonic clock of the machine, in microseconds.
    pub us: i64,
    /// By the wall clock of the process, in microseconds.
    pub wall_us: i64,
    /// What.
    pub told: Told,
}

/// What a handler tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Told {
    /// It began.
    Began { life: u64, instance: u64, fence: u64, attempt: u32, task: u64, version: u32, fire_time: i64, ordinal: u64 },
    /// It reached the point where its effect is durable.
    Effect { instance: u64, fence: u64 },
    /// It ended; without an end of its own where it was cut off.
    Ended { instance: u64, fence: u64, end: Option<String> },
}

impl Told {
    /// As a record of the history.
    pub fn what(&self) -> What {
        match *self {
            Told::Began { life, instance, fence, attempt, task, version, fire_time, ordinal } => What::Began {
                life,
                instance: InstanceId(instance),
                fence: Fence(fence),
                attempt,
                task: TaskId(task),
                version: Version(version),
                fire_time: Timestamp(fire_time),
                ordinal,
            },
            Told::Effect { instance, fence } => What::Effect { instance: InstanceId(instance), fence: Fence(fence) },
            Told::Ended { instance, fence, ref end } => {
                What::Ended { instance: InstanceId(instance), fence: Fence(fence), end: end.as_deref().and_then(end_of) }
            }
        }
    }
}

/// The name of an end.
pub fn name_of(end: End) -> &'static str {
    match end {
        End::Succeeded => "succeeded",
        End::Failed => "failed",
        End::FailedForGood => "failed for good",
        End::TimedOut => "timed out",
        End::Cancelled => "cancelled",
    }
}

fn end_of(name: &str) -> Option<End> {
    [End::Succeeded, End::Failed, End::FailedForGood, End::TimedOut, End::Cancelled].into_iter().find(|end| name_of(*end) == name)
}

/// Where handlers write. Clones write into the same file.
#[derive(Clone, Debug)]
pub struct Account(Arc<File>);

impl Account {
    /// Adds to this file.
    ///
    /// # Errors
    ///
    /// It can't be written.
    pub fn open(path: &Path) -> std::io::Result<Account> {
        Ok(Account(Arc::new(File::options().create(true).append(true).open(path)?)))
    }

    /// Writes a line, at once.
    ///
    /// # Panics
    ///
    /// Where it can't be written: a handler whose account is lost must not go on.
    pub fn tell(&self, told: Told) {
        let line = Line { us: monotonic_us(), wall_us: wall_us(), told };
        let mut text = serde_json::to_string(&line).expect("a line can be written as JSON");
        text.push('\n');
        (&*self.0).write_all(text.as_bytes()).expect("the account can be written");
    }
}

/// Reads an account. A last line that is not whole was being written when its process died.
///
/// # Errors
///
/// It can't be read, or has a line that is none.
pub fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let read = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| anyhow::anyhow!("{}:{}: {error}", path.display(), index + 1))
    };
    whole.lines().enumerate().map(read).collect()
}
