//! Single tasks that people edit, and answers that are kept for calls that come again.

use std::sync::Arc;

use punctual_core::chains::ChainProblem;
use punctual_core::ids::{TaskId, Version};

use crate::ports::{Applied, TaskDocument};

/// The edit of one task, which leaves all others of its source alone.
#[derive(Clone, Debug)]
pub struct TaskEdit {
    /// The source that it belongs to afterwards.
    pub source: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// What it is from now on; `None`: it is removed. It has the same name.
    pub document: Option<TaskDocument>,
    /// What it has to be now.
    pub expected: Expected,
    /// Whether it may belong to another source now.
    pub take_over: bool,
}

/// Which tasks a source has, in which versions: what changes with each of them. FNV-1a in 64 bits, no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision(pub u64);

impl Default for Revision {
    fn default() -> Self {
        Revision(0xcbf2_9ce4_8422_2325)
    }
}

impl Revision {
    /// With another task, in the order of their ids.
    pub fn with(self, task: TaskId, version: Version) -> Revision {
        let bytes = task.0.to_le_bytes().into_iter().chain(version.0.to_le_bytes());
        Revision(bytes.fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)))
    }
}

/// How far an application of documents may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applying {
    /// How the source has to be now.
    pub expected: Option<Revision>,
    /// Whether tasks of the source that are not among the documents are removed; else they are left as they are.
    pub remove: bool,
    /// Whether tasks that another source has are taken over; else nothing is written where a document is of one.
    pub take_over: bool,
    /// Whether nothing is written in any case.
    pub dry_run: bool,
}

/// What a task has to be for an edit to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Whatever it is.
    #[default]
    Anything,
    /// Not there.
    Nothing,
    /// There.
    Something,
    /// There, in this version.
    Version(Version),
}

impl Expected {
    /// Whether a task that is in this version, or is not there, is as expected.
    pub fn is_met_by(self, version: Option<Version>) -> bool {
        match self {
            Expected::Anything => true,
            Expected::Nothing => version.is_none(),
            Expected::Something => version.is_some(),
            Expected::Version(expected) => version == Some(expected),
        }
    }
}

/// What became of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// It is made, or would be; or nothing differs.
    Done(Applied),
    /// There is no such task to be removed.
    NoSuchTask,
    /// Another source has it.
    OwnedBy {
        /// Which.
        source: Arc<str>,
    },
    /// It is not as expected.
    Unexpected {
        /// Its version; `None`: it is not there.
        is: Option<Version>,
    },
    /// Tasks would hang together as they must not.
    Refused(Vec<ChainProblem>),
}

/// How an edit finds its task.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Who has it.
    pub source: Arc<str>,
    /// Its version; `None`: it was removed.
    pub version: Option<Version>,
}

impl TaskEdit {
    /// Why the edit is not to be made of a task that stands so; `None`: nobody ever made one of this name.
    pub fn refused(&self, standing: Option<&Standing>) -> Option<Edited> {
        let version = standing.and_then(|standing| standing.version);
        if !self.expected.is_met_by(version) {
            return Some(Edited::Unexpected { is: version });
        }
        if version.is_none() && self.document.is_none() {
            return Some(Edited::NoSuchTask);
        }
        let owner = standing.filter(|standing| standing.version.is_some()).map(|standing| &standing.source);
        owner.filter(|owner| **owner != self.source && !self.take_over).map(|owner| Edited::OwnedBy { source: owner.clone() })
    }
}

/// An answer that was given to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Its HTTP status.
    pub status: u16,
    /// Its headers that matter: a line each, the name before the first colon.
    pub headers: Arc<str>,
    /// Its body.
    pub body: Arc<[u8]>,
}

/// What is known of a call under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Nothing: the caller is to carry it out and keep the answer.
    New,
    /// The same call is under way, or its caller died.
    UnderWay,
    /// The key was used for another call.
    Other,
    /// The same call was answered.
    Answered(KeptAnswer),
}

/// So long an answer is kept, in milliseconds.
pub const ANSWER_KEPT_MS: i64 = 86_400_000;
/// So long a call may be under way before somebody else carries it out, in milliseconds.
pub const UNDER_WAY_MS: i64 = 60_000;
