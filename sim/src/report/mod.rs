//! What a rehearsal found out, for people.
//!
//! A report is made of the plan, the history and the verdicts alone, and the same three give the same report: whole numbers only, in a
//! fixed order. Times are virtual milliseconds since the run began, unless they say otherwise.
//!
//! | file | what it does |
//! | --- | --- |
//! | `observe` | reads the history once, into what became of each instance |
//! | `numbers` | the figures of each task and each service |
//! | `timeline` | the same over time |
//! | `findings`, `rules` | sentences that say what to change |
//! | `text`, `html`, `plots` | the report as a page of a terminal, and of a browser |
//! | `words` | durations, counts and shares as people write them |

mod findings;
mod html;
mod numbers;
mod observe;
mod plots;
mod rules;
mod text;
mod timeline;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::{self, Judgement};
use crate::history::History;
use crate::plan::Plan;
pub use findings::{Finding, Severity};
use observe::Facts;
pub use words::shown;

/// Everything that a rehearsal found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// What was rehearsed.
    pub about: About,
    /// How it went, in one word.
    pub class: Class,
    /// What became of each promise, in the order in which they were judged.
    pub verdicts: Vec<Verdict>,
    /// All tasks together.
    pub total: Numbers,
    /// What to look at, the worst first.
    pub findings: Vec<Finding>,
    /// In the order of the file.
    pub tasks: Vec<TaskReport>,
    /// In the order in which the tasks name them.
    pub downstreams: Vec<DownstreamReport>,
    /// The same over time.
    pub timeline: Timeline,
}

/// What was rehearsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The task file, where the caller said.
    pub file: Option<String>,
    /// The command that does it again, where the caller said.
    pub command: Option<String>,
    /// What everything was drawn from.
    pub seed: u64,
    /// What the wall clock said at the beginning: milliseconds since 1970.
    pub starts_at: i64,
    /// When the world healed.
    pub heal_at_ms: u64,
    /// When the run ended.
    pub horizon_ms: u64,
    /// Scheduler replicas.
    pub schedulers: usize,
    /// Workers.
    pub workers: usize,
    /// Attempts that a worker runs at once.
    pub slots: u32,
    /// The families of the faults that came, by name.
    pub families: Vec<String>,
    /// How many faults came.
    pub faults: usize,
}

/// How a run went, in one word: the exit code of whatever ran it. A number never changes its meaning; 2 is for wrong usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// 0: every promise was held.
    Held,
    /// 10: something happened that must never happen.
    SafetyViolated,
    /// 11: something that must come after the healing did not come.
    LivenessViolated,
    /// 12: the world itself came to an end: a panic.
    Crashed,
    /// 13: the same plan and seed gave two histories.
    Nondeterministic,
}

impl Class {
    /// Its exit code.
    pub const fn exit_code(self) -> u8 {
        match self {
            Class::Held => 0,
            Class::SafetyViolated => 10,
            Class::LivenessViolated => 11,
            Class::Crashed => 12,
            Class::Nondeterministic => 13,
        }
    }

    /// What these verdicts come to. What must never happen weighs more than what has yet to come.
    pub fn of(verdicts: &[Verdict]) -> Class {
        let violated = || verdicts.iter().filter(|verdict| verdict.violation().is_some());
        if violated().any(|verdict| !verdict.is_liveness()) {
            Class::SafetyViolated
        } else if violated().next().is_some() {
            Class::LivenessViolated
        } else {
            Class::Held
        }
    }
}

/// What became of a promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Its name: `fire.no_duplicate`.
    pub property: String,
    /// What the run says about it.
    pub judged: Judged,
}

/// What a run says about a promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// Nothing speaks against it.
    Held,
    /// It can't be said, and why.
    Unknown(String),
    /// It was broken, and what shows it.
    Violated(String),
}

impl Verdict {
    /// How it was broken.
    pub fn violation(&self) -> Option<&str> {
        match &self.judged {
            Judged::Violated(witness) => Some(witness),
            Judged::Held | Judged::Unknown(_) => None,
        }
    }

    /// Whether it is about what must come after the healing. All others are about what must never happen.
    pub fn is_liveness(&self) -> bool {
        self.property.starts_with("heal.")
    }
}

/// How a quantity in milliseconds is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Of how many.
    pub count: u64,
    /// Half are at most this.
    pub p50_ms: u64,
    /// 99 of a hundred are at most this.
    pub p99_ms: u64,
    /// The largest.
    pub max_ms: u64,
}

/// The figures of one task, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// Fire times that its trigger named; of loops with a fixed delay and of triggers by hand, those that came.
    pub expected: u64,
    /// Fire times that became instances.
    pub fired: u64,
    /// Fire times that did not, by outcome: `coalesced`, `limit_reached` and so on.
    pub dropped: BTreeMap<String, u64>,
    /// Instances by their last state: `succeeded`, `dead_lettered` and so on.
    pub states: BTreeMap<String, u64>,
    /// Instances that had not ended when the run did.
    pub unfinished: u64,
    /// From the fire time to the handler's beginning.
    pub lateness: Spread,
    /// From the time that an instance was due to its first worker.
    pub queue_wait: Spread,
    /// How long attempts ran.
    pub runs: Spread,
    /// Attempts that began.
    pub attempts: u64,
    /// Attempts that failed by the handler's own account.
    pub failures: u64,
    /// Times that an instance went back to wait for another attempt.
    pub retries: u64,
    /// Attempts whose worker was lost, whether they were repeated or not.
    pub lost_workers: u64,
    /// Attempts that ran out of time.
    pub timeouts: u64,
    /// Instances that had to wait because the task was at its limit.
    pub limit_reached: u64,
    /// Most handlers of a task at work at the same moment.
    pub peak_running: u64,
}

impl Numbers {
    /// Fire times that did not become instances.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Fire times that became neither, by the end of the run: they had just come, or nobody knows of them.
    pub fn undecided(&self) -> u64 {
        self.expected.saturating_sub(self.fired + self.dropped_total())
    }

    /// Instances that ended in this state.
    pub fn in_state(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or(0)
    }

    /// Instances that were ended by a person or by a newer one, or never begun on purpose.
    pub fn cancelled(&self) -> u64 {
        ["cancelled", "skipped"].iter().map(|state| self.in_state(state)).sum()
    }

    /// Instances that ended in any other way than they should.
    pub fn gone_wrong(&self) -> u64 {
        ["failed", "timed_out", "dead_lettered"].iter().map(|state| self.in_state(state)).sum()
    }
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// What makes it fire, in words.
    pub trigger: String,
    /// The service that it calls.
    pub downstream: Option<String>,
    /// The usual time from fire time to fire time, where it fires by itself.
    pub interval_ms: Option<u64>,
    /// Its figures.
    pub numbers: Numbers,
    /// How much trouble it had, for ordering: 0 is none.
    pub trouble: u64,
}

/// What came down on a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DownstreamReport {
    /// Its name.
    pub name: String,
    /// The tasks that call it.
    pub tasks: Vec<String>,
    /// Instances that called it.
    pub instances: u64,
    /// Calls: each attempt makes one.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Calls of second and later attempts.
    pub retries: u64,
    /// Calls for a thousand instances.
    pub amplification_per_mille: u64,
    /// Calls in a usual minute: first calls of instances, the median or the mean of those minutes that had any, whichever is more, and
    /// the retries that go with them where handlers fail as often as they are said to.
    pub usual_per_minute: u64,
    /// Calls in the worst minute.
    pub peak_per_minute: u64,
    /// Of these, calls of second and later attempts.
    pub peak_retries_per_minute: u64,
    /// When the worst minute began.
    pub peak_at_ms: u64,
}

/// The run over time, in buckets of equal length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// The length of a bucket.
    pub bucket_ms: u64,
    /// All of them, from the beginning to the end.
    pub buckets: Vec<Bucket>,
    /// The faults that came, by when they began.
    pub faults: Vec<FaultSpan>,
    /// What happened to the tasks that had the most trouble.
    pub lanes: Vec<Lane>,
}

/// A stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Of the handlers that began: from the fire time to the beginning.
    pub lateness: Spread,
    /// Most instances at one moment that were due and had no worker.
    pub backlog: u64,
    /// Most instances at one moment that a worker had.
    pub running: u64,
    /// Instances that were made.
    pub fires: u64,
    /// Second and later attempts that began, for each of the report's services in its order.
    pub retries: Vec<u64>,
}

/// A fault that came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpan {
    /// Its place in the plan.
    pub fault: usize,
    /// Its family's name.
    pub family: String,
    /// What went wrong, and for whom, in words.
    pub what: String,
    /// When it began.
    pub from_ms: u64,
    /// When it ended; the same where it lasts no time.
    pub until_ms: u64,
}

/// A task over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// The task's place in the report.
    pub task: usize,
    /// Buckets in which something happened, in order.
    pub cells: Vec<Cell>,
}

/// What happened to a task in one bucket. Instances count where they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Which bucket.
    pub bucket: usize,
    /// Instances that were made.
    pub fired: u64,
    /// Of these, those that began more than a minute after their fire time, or never.
    pub late: u64,
    /// Of these, those that needed another attempt.
    pub retried: u64,
    /// Of these, those that ended wrong, or not at all.
    pub wrong: u64,
    /// Of these, those that were cancelled: by a person, or for the next one.
    pub cancelled: u64,
    /// Fire times that were dropped then.
    pub dropped: u64,
}

impl Report {
    /// The report on this run as the properties have judged it.
    pub fn judged(plan: &Plan, history: &History, judgements: &[Judgement]) -> Report {
        let verdicts = judgements.iter().map(|judgement| Verdict {
            property: judgement.property.to_owned(),
            judged: match &judgement.verdict {
                check::Verdict::Held => Judged::Held,
                check::Verdict::Unknown(why) => Judged::Unknown(why.clone()),
                check::Verdict::Violated { witness } => Judged::Violated(witness.clone()),
            },
        });
        Report::made(plan, history, verdicts.collect())
    }

    /// The report on this run, with these verdicts: what is wrong, for each property where something is.
    pub fn of(plan: &Plan, history: &History, verdicts: &[(&str, Result<(), String>)]) -> Report {
        let verdicts = verdicts.iter().map(|(property, verdict)| Verdict {
            property: (*property).to_owned(),
            judged: verdict.clone().map_or_else(Judged::Violated, |()| Judged::Held),
        });
        Report::made(plan, history, verdicts.collect())
    }

    fn made(plan: &Plan, history: &History, verdicts: Vec<Verdict>) -> Report {
        let facts = Facts::of(plan, history);
        let tasks = numbers::tasks(&facts);
        let downstreams = numbers::downstreams(&facts);
        let timeline = timeline::of(&facts, &tasks);
        let findings = findings::of(&facts, &tasks, &downstreams);
        let mut families: Vec<String> = facts.faults.iter().map(|fault| fault.family.clone()).collect();
        families.sort();
        families.dedup();
        Report {
            about: About {
                file: None,
                command: None,
                seed: plan.seed,
                starts_at: plan.starts_at,
                heal_at_ms: plan.heal_at_ms,
                horizon_ms: plan.horizon_ms,
                schedulers: plan.shape.schedulers,
                workers: plan.shape.workers,
                slots: plan.shape.slots,
                families,
                faults: facts.faults.len(),
            },
            class: Class::of(&verdicts),
            verdicts,
            total: numbers::total(&facts, &tasks),
            findings,
            tasks,
            downstreams,
            timeline,
        }
    }

    /// The same, with the file that was rehearsed and the command that does it again.
    #[must_use]
    pub fn about(mut self, file: impl Into<String>, command: impl Into<String>) -> Report {
        self.about.file = Some(file.into());
        self.about.command = Some(command.into());
        self
    }

    /// The same for a run that broke off with these words, and so was not judged.
    #[must_use]
    pub fn crashed(mut self, words: impl Into<String>) -> Report {
        self.verdicts.push(Verdict { property: "crash".to_owned(), judged: Judged::Violated(words.into()) });
        self.class = Class::Crashed;
        // What was half done when it broke off says nothing about the task file.
        self.findings.clear();
        self
    }

    /// The same for a run whose second run had another history.
    #[must_use]
    pub fn nondeterministic(mut self) -> Report {
        self.class = Class::Nondeterministic;
        self
    }

    /// The same with all its texts as they may be shown.
    fn shown(&self) -> Report {
        let json = serde_json::to_value(self).and_then(|json| serde_json::from_value(shown_in(json)));
        json.expect("a report reads back as itself")
    }

    /// As a page of a terminal.
    pub fn to_text(&self) -> String {
        text::render(&self.shown())
    }

    /// As indented JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has only texts for keys")
    }

    /// As one page of HTML that needs nothing else.
    pub fn to_html(&self) -> String {
        html::render(&self.shown())
    }
}

/// JSON with all its texts as they may be shown.
fn shown_in(json: Value) -> Value {
    match json {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(list) => list.into_iter().map(shown_in).collect(),
        Value::Object(map) => map.into_iter().map(|(name, value)| (name, shown_in(value))).collect(),
        other => other,
    }
}
