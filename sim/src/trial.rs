//! A trial: a plan carried out in one of the worlds, and judged.

use std::collections::BTreeMap;

use crate::bank::Flaw;
use crate::check::{self, Judgement, Verdict};
use crate::history::History;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::tabletop;
#[cfg(madsim)]
use crate::world;

/// Where a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// The core's machines in a plain loop.
    Tabletop,
    /// The production loops on simulated time and network.
    #[cfg(madsim)]
    Rehearsal,
}

impl World {
    /// Carries a plan out with these guards switched off.
    pub fn run(self, plan: &Plan, flaws: &[Flaw]) -> Outcome {
        match self {
            World::Tabletop => tabletop::run(plan, flaws),
            #[cfg(madsim)]
            World::Rehearsal => world::run(plan, flaws),
        }
    }
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was seen.
    pub history: History,
    /// The verdicts.
    pub judgements: Vec<Judgement>,
    /// How often each probe was hit.
    pub probes: BTreeMap<&'static str, u64>,
    /// How often what was switched off had something to hold back.
    pub hits: BTreeMap<Flaw, u64>,
    /// Set where the run broke an assertion.
    pub crash: Option<String>,
}

/// The name under which a broken assertion is reported.
pub const CRASH: &str = "crash";

/// Why a trial failed: the first property that was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The property, or [`CRASH`].
    pub property: String,
    /// What shows it.
    pub witness: String,
}

impl Trial {
    /// Carries a plan out with these guards switched off, and judges it.
    pub fn of(world: World, plan: &Plan, flaws: &[Flaw]) -> Trial {
        let outcome = world.run(plan, flaws);
        // A run that broke off is not judged: it was not to its end.
        let judgements = match outcome.crash {
            None => check::judge(plan, &outcome.history),
            Some(_) => Vec::new(),
        };
        let Outcome { history, probes, hits, crash } = outcome;
        Trial { history, judgements, probes, hits, crash }
    }

    /// All that failed.
    pub fn failures(&self) -> Vec<Failure> {
        let crash = self.crash.iter().map(|words| Failure { property: CRASH.to_owned(), witness: words.clone() });
        let violated = self.judgements.iter().filter_map(|judgement| match &judgement.verdict {
            Verdict::Violated { witness } => Some(Failure { property: judgement.property.to_owned(), witness: witness.clone() }),
            Verdict::Held | Verdict::Unknown(_) => None,
        });
        crash.chain(violated).collect()
    }

    /// Whether this property failed.
    pub fn fails(&self, property: &str) -> bool {
        self.failures().iter().any(|failure| failure.property == property)
    }
}
