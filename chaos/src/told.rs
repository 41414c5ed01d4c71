//! What the run writes down itself: nodes, faults, people's calls.

use std::sync::{Arc, Mutex, PoisonError};

use punctual_sim::history::{What, Who};

use crate::clock::monotonic_us;

/// Something that was seen, and when by the monotonic clock, in microseconds.
#[derive(Clone, Debug)]
pub struct Note {
    /// When.
    pub us: i64,
    /// Whose.
    pub who: Who,
    /// What.
    pub what: What,
}

/// Where it is written down. Clones write into the same.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    /// Writes down what has just happened.
    pub fn note(&self, who: Who, what: What) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(Note { us: monotonic_us(), who, what });
    }

    /// All of it.
    pub fn all(&self) -> Vec<Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
