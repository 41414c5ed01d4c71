//! What comes of a run, in whichever world.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use punctual_core::{guard, probe};

use crate::bank::Flaw;
use crate::history::{History, Recorder};
use crate::model::Database;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was seen.
    pub history: History,
    /// How often each probe was hit, the world's own included.
    pub probes: BTreeMap<&'static str, u64>,
    /// How often the guards that were switched off had something to hold back.
    pub hits: BTreeMap<Flaw, u64>,
    /// Set where the run broke an assertion.
    pub crash: Option<String>,
}

/// What a world has counted by the end of its run.
pub(crate) struct Counted {
    /// The world's own probes.
    pub(crate) probes: BTreeMap<&'static str, u64>,
    /// Of the store's guards.
    pub(crate) hits: BTreeMap<Flaw, u64>,
}

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread carries a plan out just now: a panic then becomes the run's verdict.
pub fn is_running() -> bool {
    RUNNING.get()
}

impl Outcome {
    /// Of a run in this thread, with these guards switched off. The core's own counts are taken also where the run breaks off.
    pub(crate) fn of(flaws: &[Flaw], recorder: &Recorder, simulate: impl FnOnce() -> Counted) -> Outcome {
        guard::reset();
        probe::reset();
        for flaw in flaws {
            if let Flaw::Core(guard) = flaw {
                guard::switch_off(*guard);
            }
        }
        RUNNING.set(true);
        let counted = catch_unwind(AssertUnwindSafe(simulate));
        RUNNING.set(false);
        let mut probes: BTreeMap<_, _> = probe::CATALOGUE.iter().map(|name| (*name, probe::hits(name))).collect();
        let of_core = |flaw: &Flaw| match flaw {
            Flaw::Core(guard) => Some((*flaw, guard::hits(*guard))),
            Flaw::Store(_) => None,
        };
        let mut hits: BTreeMap<_, _> = flaws.iter().filter_map(of_core).collect();
        guard::reset();
        let crash = match counted {
            Ok(counted) => {
                probes.extend(counted.probes);
                hits.extend(counted.hits);
                None
            }
            Err(panic) => Some(words_of(&*panic)),
        };
        Outcome { history: recorder.take(), probes, hits, crash }
    }
}

/// How often the store's guards that were switched off had something to hold back.
pub(crate) fn store_hits(database: &Database, flaws: &[Flaw]) -> BTreeMap<Flaw, u64> {
    let of_store = |flaw: &Flaw| match flaw {
        Flaw::Store(guard) => Some((*flaw, database.hits(*guard))),
        Flaw::Core(_) => None,
    };
    flaws.iter().filter_map(of_store).collect()
}

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}
