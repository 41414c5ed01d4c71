//! The properties: what has to be true of every run, as pure functions from a history to a verdict.
//!
//! They read the history, and the plan where a bound comes from it; nothing of the engine but its data types. The cron schedule is the one
//! oracle that is the engine's own: it is proved elsewhere. The table of legal transitions is written down here a second time.
//!
//! # When the tail was lost
//!
//! A failover of an asynchronous database undoes commits that were confirmed ([`What::TailLost`](crate::history::What::TailLost)). What the
//! handlers did because of them stands. So these properties answer [`Verdict::Unknown`] where *all* that speaks against them concerns
//! something that was undone, and are judged as ever for everything else:
//!
//! - `fire.no_duplicate`: a handler had begun of a firing that was undone, and the fire time was fired again;
//! - `effect.once`: the instance was written by a batch that was undone, so that its id or fences may have been given out twice;
//! - `submit.durable`: the entry of an accepted call was undone;
//! - `fence.monotone`: one of the two attempts was dispatched by a batch that was undone;
//! - `attempt.exclusive`: the store has forgotten an attempt that goes on.
//!
//! # Clocks
//!
//! Durations are measured in virtual time, which nobody can set. Where a clock of a scheduler or of the database was touched during the
//! run, what the engine decided by it is judged less strictly; each property says how.
//!
//! # What is to come
//!
//! With their features: `dag.parents_first`, `dag.counter_exact`.

mod accounted;
mod attempts;
mod backfills;
mod calls;
mod chains;
mod clock;
mod dag;
mod effects;
mod facts;
mod fires;
mod groups;
mod heal;
mod inbox;
mod leases;
mod limits;
mod misfires;
mod parts;
mod pauses;
mod queueing;
mod results;
mod retries;
mod rows;
mod series;
mod starvation;
mod stuck;

use std::fmt;

use crate::history::History;
use crate::plan::Plan;
use facts::Facts;

/// How far the wall clocks of two nodes that nobody touched may lie apart.
pub const SKEW_MS: u64 = 1_000;
/// How long after the heal, or before the end, things may still be under way: leases run out, attempts are found again, inboxes are read.
pub const SETTLE_MS: u64 = 60_000;
/// How much longer than its own grace an old attempt may run beside a new one: a heartbeat that the scheduler did not see and the worker
/// had an answer to, and five seconds for the ways of messages.
pub const OVERLAP_SLACK_MS: u64 = 15_000;
/// How much later than that where messages were lost one way: a worker that is still spoken to does not fence itself for another lease.
pub const ONE_WAY_SLACK_MS: u64 = 30_000;
/// How much later than its timeout and grace a handler may end.
pub const TIMEOUT_SLACK_MS: u64 = 2_000;

/// How far the order of records may be from what happened, beyond what the properties allow: nothing in a simulated world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slack {
    /// A worker says that a handler runs when it has handed it to its threads; so much later the handler may begin.
    pub begins_ms: u64,
}

/// What a history says about a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against it.
    Held,
    /// It can't be said, and why.
    Unknown(String),
    /// It does not hold.
    Violated {
        /// What shows it: instance, task, times and the indices of records.
        witness: String,
    },
}

/// A property and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The property's id.
    pub property: &'static str,
    /// The verdict.
    pub verdict: Verdict,
}

/// A property.
#[derive(Clone, Copy)]
pub struct Property {
    /// Its id.
    pub id: &'static str,
    /// What it says, in a sentence.
    pub says: &'static str,
    judge: fn(&Facts<'_>) -> Verdict,
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Property").field("id", &self.id).field("says", &self.says).finish()
    }
}

const fn property(id: &'static str, says: &'static str, judge: fn(&Facts<'_>) -> Verdict) -> Property {
    Property { id, says, judge }
}

/// All properties, in the order in which they are judged.
pub const CATALOGUE: &[Property] = &[
    property("fire.never_early", "nothing is fired, and no handler begins, before its fire time", fires::never_early),
    property("fire.accounted", "each fire time that the trigger gives ends in exactly one outcome", accounted::accounted),
    property("fire.no_duplicate", "a fire time, and a submission, has one instance", fires::no_duplicate),
    property("effect.once", "an attempt has one effect, and another attempt's follows only a recorded loss", effects::once),
    property("attempt.exclusive", "two handlers of one instance overlap no longer than fencing takes", attempts::exclusive),
    property("fence.monotone", "fences grow, and an older one changes nothing", effects::fences_grow),
    property("lease.exclusive", "a partition has one owner, and only it writes, one numbered commit after the other", leases::exclusive),
    property("state.legal", "instances change their state only as the diagram allows", rows::legal),
    property("state.terminal_final", "an instance that has ended is never written again", rows::terminal_final),
    property("audit.unbroken", "the log of transitions is only added to, and leads without a gap to the state", rows::unbroken),
    property("speak.after_commit", "a handler begins only what a commit before it gave to its worker", attempts::after_commit),
    property("inbox.once", "an inbox entry is applied once, and its effect is in the same batch", inbox::once),
    property("submit.durable", "what was accepted is there, what was refused is not, and a key has one entry", inbox::durable),
    property("result.kept", "what a worker has done is not done again for want of a listener", results::kept),
    property("cancel.meant", "a handler that is asked to end had reason to", results::cancels_are_meant),
    property("state.begun", "an instance is running only once its handler has begun", results::begun),
    property("retry.bounded", "attempts are as many, and as far apart, as the policy says", retries::bounded),
    property("timeout.enforced", "no handler runs on after its timeout and grace", attempts::timeout_enforced),
    property("limit.held", "no instance starts beyond the task's limit", limits::held),
    property("cancel.effective", "what is cancelled ends and is not dispatched again", inbox::cancel_effective),
    property("shard.complete", "a firing has all its shards, each once, and ends when they have, as they have", parts::complete),
    property("map.complete", "a list has each of its items run once, and is reduced when all have succeeded", parts::mapped),
    property(
        "dag.parents_first",
        "a node starts only if its rule holds by what is committed, and is skipped only with reason",
        dag::parents_first,
    ),
    property("dag.complete", "a run ends when all its nodes have, once each, as they have", dag::complete),
    property("chain.told", "what fires after another task fires once for each of its ends, and for nothing else", chains::told),
    property("call.complete", "a node calls one instance, and ends after it and as it has", calls::complete),
    property("pause.held", "nothing of a paused task starts from the pause's commit until its end", pauses::held),
    property("rate.held", "a task starts no more often than its rate allows, whoever owns it", queueing::held),
    property("backfill.complete", "a backfill has one instance for each of its fire times, in order, a few at once", backfills::complete),
    property("group.held", "no instance of a group begins beyond the group's limit, whoever owns it", groups::held),
    property("group.no_leak", "when all is well again, a group keeps no slot of what has ended", groups::no_leak),
    property("key.held", "no instance starts beyond the limit of its key", groups::key_held),
    property("priority.no_starvation", "no instance is passed over by other bands for longer than their weights say", starvation::none),
    property("route.fits", "a handler begins on a worker that has what its task asks for", queueing::fits),
    property("misfire.by_policy", "what becomes of missed fire times is what the policy says", misfires::by_policy),
    property("heal.converges", "when all is well again, everything comes to its end", stuck::converges),
    property("heal.no_orphans", "when all is well again, nobody holds what has ended", heal::no_orphans),
    property("heal.rate", "when all is well again, tasks fire as they should", heal::rate),
];

/// Judges a run by all properties.
pub fn judge(plan: &Plan, history: &History) -> Vec<Judgement> {
    judge_with(plan, history, Slack::default())
}

/// Judges a run of real processes by all properties.
pub fn judge_with(plan: &Plan, history: &History, slack: Slack) -> Vec<Judgement> {
    let facts = Facts::new(plan, history, slack);
    CATALOGUE.iter().map(|property| Judgement { property: property.id, verdict: (property.judge)(&facts) }).collect()
}

/// Gathers what speaks against a property.
#[derive(Debug, Default)]
struct Case {
    witness: Option<String>,
    further: usize,
    unknown: Option<String>,
}

impl Case {
    /// This speaks against it.
    fn violated(&mut self, witness: impl FnOnce() -> String) {
        match self.witness {
            None => self.witness = Some(witness()),
            Some(_) => self.further += 1,
        }
    }

    /// This speaks against it, unless it concerns what was undone with the tail.
    fn violated_unless_undone(&mut self, was_undone: bool, witness: impl FnOnce() -> String) {
        if was_undone {
            self.unknown(|| format!("the tail was lost: {}", witness()));
        } else {
            self.violated(witness);
        }
    }

    /// This keeps it from being judged whole.
    fn unknown(&mut self, why: impl FnOnce() -> String) {
        if self.unknown.is_none() {
            self.unknown = Some(why());
        }
    }

    fn verdict(self) -> Verdict {
        match (self.witness, self.unknown) {
            (Some(witness), _) if self.further > 0 => Verdict::Violated { witness: format!("{witness} (and {} more)", self.further) },
            (Some(witness), _) => Verdict::Violated { witness },
            (None, Some(why)) => Verdict::Unknown(why),
            (None, None) => Verdict::Held,
        }
    }
}
