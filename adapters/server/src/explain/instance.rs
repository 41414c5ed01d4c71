//! Why an instance is where it is: its story step by step, what it waited for between, and what it waits for now.

use std::sync::Arc;

use punctual_core::definition::{Blocking, TaskDefinition};
use punctual_core::ids::InstanceId;
use punctual_core::instance::{Cause, InstanceRow, MapPhase, Origin, State, Transition};
use punctual_core::routing::{Needs, Nobody};
use punctual_core::time::{Millis, Timestamp};

use super::pauses::{self, Span};
use super::{between, plural};
use crate::cli::ask::lasted;

/// Shorter waits are in the numbers only.
const TOLD_MIN: Millis = Millis(100);
/// From ready to dispatched: a longer wait wants a reason.
const READY_MAX: Millis = Millis::from_secs(1);
/// Longer than this a worker is not about to have it.
const ASSIGNED_WITHIN: Millis = Millis::from_secs(5);
/// Instances that hold a limit and are named.
const HOLDERS_NAMED: usize = 3;
/// Failed nodes, and pauses, that are named.
const NAMED_MAX: usize = 3;

/// What is known of an instance.
pub(crate) struct Facts<'a> {
    pub(crate) row: &'a InstanceRow,
    /// The task by the version that it runs by; `None` where this program can't read that.
    pub(crate) definition: Option<&'a Arc<TaskDefinition>>,
    pub(crate) now: Timestamp,
    pub(crate) live: Live,
    pub(crate) past: Past,
}

/// What is on record beside it.
#[derive(Default)]
pub(crate) struct Past {
    /// The pauses that held its task.
    pub(crate) pauses: Vec<Span>,
    /// Whether those are all since it was made.
    pub(crate) are_all_pauses: bool,
    /// Its later runs, oldest first.
    pub(crate) reruns: Vec<Rerun>,
    /// The nodes that failed, of the run of a workflow that did.
    pub(crate) failed_nodes: Vec<(Arc<str>, InstanceId)>,
}

/// A later run of the same firing.
#[derive(Clone, Debug)]
pub(crate) struct Rerun {
    pub(crate) id: InstanceId,
    pub(crate) run: u32,
    pub(crate) state: State,
}

/// What is known of the present, for one that has not ended.
#[derive(Default)]
pub(crate) struct Live {
    /// The pauses that hold its task, in words.
    pub(crate) pauses: Vec<String>,
    /// Instances of the same task that are in progress.
    pub(crate) holders: Vec<InstanceId>,
    pub(crate) route: Route,
}

/// Why no worker has it yet, as far as somebody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// It waits for no worker, or is just being assigned.
    #[default]
    Nothing,
    /// No worker may have it.
    Nobody(Nobody, Needs),
    /// Those that may have it are full.
    Full { waiting: usize },
    /// The circuit breaker of what it depends on lets nothing through.
    Breaker { downstream: Arc<str>, failures: usize, probe_in: Option<Millis> },
    /// Another replica owns its partition, and knows.
    Elsewhere { replica: String, address: Option<String> },
    /// Nobody owns its partition.
    NoOwner { partition: u16 },
}

/// What the time between two steps went into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A delay that was asked for, or spacing between fire times that are made up for.
    Delay,
    /// A limit.
    Slot,
    /// From ready to dispatched: a slot of a group, the end of a pause, a breaker, the rate limit, or a worker with room. Records don't tell
    /// which.
    Ready,
    /// From the assignment to the beginning.
    Begin,
    Running,
    /// The wait before the next attempt.
    Backoff,
    /// Shards, items, nodes, or a task that it called.
    Parts,
    /// Nothing: it has ended.
    Ended,
}

impl Kind {
    /// All that take time.
    pub(crate) const TIMED: [Kind; 7] = [Kind::Delay, Kind::Slot, Kind::Ready, Kind::Begin, Kind::Running, Kind::Backoff, Kind::Parts];

    /// For programs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Delay => "delay",
            Kind::Slot => "slot",
            Kind::Ready => "ready",
            Kind::Begin => "begin",
            Kind::Running => "running",
            Kind::Backoff => "backoff",
            Kind::Parts => "parts",
            Kind::Ended => "ended",
        }
    }

    /// As the end of "so long ...".
    const fn words(self) -> &'static str {
        match self {
            Kind::Delay => "waiting for its delay",
            Kind::Slot => "waiting for a slot",
            Kind::Ready => "from ready to dispatched",
            Kind::Begin => "until the worker began",
            Kind::Running => "running",
            Kind::Backoff => "waiting between attempts",
            Kind::Parts => "running its parts",
            Kind::Ended => "after its end",
        }
    }
}

/// A step of the story, and what came after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Timestamp,
    /// What happened.
    pub(crate) says: String,
    pub(crate) kind: Kind,
    /// How long that then took, until the next step or until now.
    pub(crate) lasted: Millis,
    /// The same in words, where it is worth them.
    pub(crate) then: Option<String>,
}

/// Why an instance is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// All of it in a sentence or two.
    pub(crate) summary: Vec<String>,
    pub(crate) steps: Vec<Step>,
    /// What its time went into; what took none is left out.
    pub(crate) times: Vec<(Kind, Millis)>,
}

/// Explains an instance.
pub(crate) fn explain(facts: &Facts<'_>) -> Explanation {
    let transitions = &facts.row.transitions;
    let mut steps = Vec::with_capacity(transitions.len());
    for (index, transition) in transitions.iter().enumerate() {
        let next = transitions.get(index + 1);
        let kind = kind_of(facts, transition, next);
        let until = next.map_or(facts.now, |next| next.at);
        let lasted = if kind == Kind::Ended { Millis::ZERO } else { until.since(transition.at) };
        let says = if index == 0 { begun(facts, transition) } else { happened(facts, transition) };
        steps.push(Step { at: transition.at, says, kind, lasted, then: then(facts, index, kind, lasted) });
    }
    let times: Vec<_> = Kind::TIMED
        .into_iter()
        .map(|kind| (kind, steps.iter().filter(|step| step.kind == kind).fold(Millis::ZERO, |sum, step| sum.saturating_add(step.lasted))))
        .filter(|(_, sum)| *sum > Millis::ZERO)
        .collect();
    let summary = match facts.row.state.is_terminal() {
        true => ended(facts, &times),
        false => not_ended(facts),
    };
    Explanation { summary, steps, times }
}

/// Whether it was ready for so long that pauses are worth looking for.
pub(crate) fn was_ready_long(row: &InstanceRow) -> bool {
    let transitions = &row.transitions;
    let waits = transitions.iter().zip(transitions.iter().skip(1)).filter(|(ready, _)| ready.to == State::Created);
    waits.into_iter().any(|(ready, next)| next.at.since(ready.at) >= TOLD_MIN)
}

/// What the time behind a transition goes into.
fn kind_of(facts: &Facts<'_>, transition: &Transition, next: Option<&Transition>) -> Kind {
    match transition.to {
        State::Waiting => match (next.map(|next| next.cause), transition.cause) {
            (Some(Cause::SlotFree), _) => Kind::Slot,
            (Some(Cause::DelayElapsed | Cause::Rescheduled), _) => Kind::Delay,
            (None, _) if facts.row.due_at.is_some() => Kind::Delay,
            (_, Cause::LimitReached) | (None, _) => Kind::Slot,
            (Some(_), _) if facts.row.links.as_ref().is_some_and(|links| links.slot.is_some()) => Kind::Slot,
            (Some(_), _) => Kind::Delay,
        },
        State::Created => Kind::Ready,
        State::Dispatched => Kind::Begin,
        State::Running if matches!(transition.cause, Cause::Divided | Cause::Calls) => Kind::Parts,
        State::Running => Kind::Running,
        State::Retrying => Kind::Backoff,
        _ => Kind::Ended,
    }
}

/// What came after a step, where that is worth a word.
fn then(facts: &Facts<'_>, index: usize, kind: Kind, took: Millis) -> Option<String> {
    let is_over = index + 1 < facts.row.transitions.len();
    if kind == Kind::Ended || (is_over && took < TOLD_MIN && kind != Kind::Running) {
        return None;
    }
    let verb = |over: &str, now: &str| format!("{} {}", if is_over { over } else { now }, lasted(took.0));
    Some(match kind {
        Kind::Delay => format!(
            "{} for {}",
            verb("waited", "has waited"),
            if facts.row.origin == Origin::CatchUp { "its turn (`misfire.rate`)" } else { "its delay" }
        ),
        Kind::Slot => format!("{} for {}", verb("waited", "has waited"), limit(facts)),
        Kind::Ready if !is_over => format!("ready for {}", lasted(took.0)),
        Kind::Ready => ready(facts, index, took),
        Kind::Begin => format!("{} for the worker to begin", verb("waited", "has waited")),
        Kind::Running => verb("ran", "has run"),
        Kind::Backoff => format!("{} before the next attempt", verb("waited", "has waited")),
        Kind::Parts => format!("{} {}", if is_over { "its parts ran" } else { "its parts have run" }, lasted(took.0)),
        Kind::Ended => return None,
    })
}

/// What can be told of the time from ready to dispatched.
fn ready(facts: &Facts<'_>, index: usize, took: Millis) -> String {
    let since = facts.row.transitions[index].at;
    let held = pauses::held(&facts.past.pauses, since, since.saturating_add(took));
    let is_returned = facts.row.transitions.get(index + 1).is_some_and(|next| next.cause != Cause::Assigned);
    let end = if is_returned { "this" } else { "dispatched" };
    let mut says = format!("from ready to {end} {}", lasted(took.0));
    if held >= TOLD_MIN {
        says += &format!(": {}", pauses::in_short(held));
    }
    if Millis(took.0.saturating_sub(held.0)) >= READY_MAX {
        says += if held >= TOLD_MIN { "; for the rest " } else { ": " };
        says += &reasons(facts, index);
    }
    says
}

/// All that may have held it when it was ready: what its task makes impossible is left out.
fn reasons(facts: &Facts<'_>, index: usize) -> String {
    let mut others = Vec::new();
    if !facts.past.are_all_pauses {
        others.push("a pause".to_owned());
    }
    if facts.definition.is_none_or(|definition| definition.of_part(facts.row.part).downstream.is_some()) {
        others.push("a breaker".to_owned());
    }
    match facts.definition {
        Some(_) => others.extend(rate_limit(facts)),
        None => others.push("a rate limit".to_owned()),
    }
    // It is asked for once, and kept until the end.
    let is_first = !facts.row.transitions[..index].iter().any(|before| before.cause == Cause::Assigned);
    if let Some(slot) = facts.row.links.as_ref().and_then(|links| links.slot.as_ref()).filter(|_| is_first) {
        others.push(format!("the limit of the group {:?}", slot.group));
    }
    let held = match others.split_last() {
        None => String::new(),
        Some((only, [])) => format!(", {only} held it"),
        Some((last, others)) => format!(", {} or {last} held it", others.join(", ")),
    };
    format!("no worker was free for it{held}, or no scheduler ran; records do not keep which")
}

/// The limit that it waits or waited for.
fn limit(facts: &Facts<'_>) -> String {
    let own = facts.definition.map(|definition| {
        let policies = &definition.policies;
        let each = policies.limit_key.as_ref().map(|key| format!(" for each `{key}` of the payload")).unwrap_or_default();
        format!("`max_running: {}`{each}", policies.concurrency.max_running)
    });
    match (facts.row.links.as_ref().and_then(|links| links.slot.as_ref()), own) {
        (Some(slot), _) => format!("a slot of the group {:?}", slot.group),
        (None, Some(own)) => format!("a slot of {own}"),
        (None, None) => "a slot of the task's limit".to_owned(),
    }
}

/// That the rate limit may be what it waits for.
fn rate(facts: &Facts<'_>) -> String {
    rate_limit(facts).map(|limit| format!(", or it waits for {limit}")).unwrap_or_default()
}

/// The same, where nothing else is known.
fn unless_rate(facts: &Facts<'_>) -> String {
    rate_limit(facts).map(|limit| format!(" but {limit}")).unwrap_or_default()
}

fn rate_limit(facts: &Facts<'_>) -> Option<String> {
    let rate = facts.definition.and_then(|definition| definition.policies.rate)?;
    Some(format!("the rate limit of {} in {}", plural(rate.starts.into(), "start", "starts"), lasted(rate.per.0)))
}

/// Where it comes from.
fn begun(facts: &Facts<'_>, first: &Transition) -> String {
    let row = facts.row;
    let (due, late) = (row.fire_time, between(row.fire_time, first.at));
    let detail = first.detail.as_deref().map(|detail| format!(" {detail}")).unwrap_or_default();
    // Behind it the key of a limit may stand.
    let who = detail.split(';').next().filter(|who| !who.is_empty());
    let cause = row.links.as_ref().and_then(|links| links.cause).map(|id| id.to_string());
    let cause = cause.as_deref().unwrap_or("another one");
    let mut says = match (row.parent(), row.origin) {
        (Some(parent), _) => match first.cause {
            Cause::CarriedOver | Cause::Marked | Cause::NodeSkipped | Cause::ParentEnded => happened(facts, first),
            Cause::RuleMet => format!("Its node of the run {parent} could start: the nodes before it had come to what its rule wants."),
            _ => format!("It was made as a part of instance {parent}."),
        },
        (None, Origin::Schedule) if late == "0 ms" => format!("The task's trigger fired at {due}."),
        (None, Origin::Schedule) => format!("The task's trigger was due at {due}, and fired {late} later."),
        (None, Origin::CatchUp) => format!("The fire time {due} was missed, and made up for {late} later (`misfire`)."),
        (None, Origin::Manual) => format!("It was triggered by{}.", who.unwrap_or(" hand")),
        (None, Origin::Chain) => format!("Instance {cause} of a task that this one fires `after` had ended."),
        (None, Origin::Rerun) => {
            format!("Instance {cause} was to run once more,{}.", if detail.is_empty() { " as somebody asked" } else { &detail })
        }
        (None, Origin::Backfill) => format!(
            "The fire time {due} was made up for by a backfill{}.",
            who.map(|who| format!(" that{who} asked for")).unwrap_or_default()
        ),
        (None, Origin::Call) => format!("The node {cause} of another task's run called the task."),
    };
    if first.cause == Cause::LimitReached {
        says += &format!(" {}", at_limit(facts, first));
    }
    says
}

/// That it came when the task was at its limit.
fn at_limit(facts: &Facts<'_>, transition: &Transition) -> String {
    let policy = facts.definition.map(|definition| definition.policies.concurrency);
    let what = match policy.map(|policy| policy.blocking) {
        Some(Blocking::Replace) => "so the oldest one was to end for it (`when_full: replace`)",
        _ => "so it was put into the queue",
    };
    let key = transition.detail.as_deref().filter(|_| facts.row.origin.is_own()).map(|detail| format!(" ({detail})")).unwrap_or_default();
    let most = policy.map(|policy| format!(": {} may run at once", policy.max_running)).unwrap_or_default();
    format!("The task was at its limit{key}{most}, {what}.")
}

/// The code and the words with which an attempt ended.
fn how(transition: &Transition) -> String {
    match (transition.code, transition.detail.as_deref()) {
        (Some(code), Some(detail)) => format!(" with code {code}: {detail}"),
        (Some(code), None) => format!(" with code {code}"),
        (None, Some(detail)) => format!(": {detail}"),
        (None, None) => String::new(),
    }
}

/// What happened with a transition. Every cause has its words.
fn happened(facts: &Facts<'_>, transition: &Transition) -> String {
    let (row, attempt, how) = (facts.row, transition.attempt, how(transition));
    let detail = transition.detail.as_deref();
    let worker = transition.worker.as_ref().map_or_else(|| "its worker".to_owned(), |worker| format!("worker {}", worker.0));
    // Who asked, and why: "by ann: wrong customer".
    let asked = detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    let because = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
    let part = facts.definition.map(|definition| definition.of_part(row.part));
    let failed = || if transition.attempt > 0 { format!("Attempt {attempt} failed{how}") } else { format!("It failed{how}") };
    match transition.cause {
        Cause::Fired => "Its fire time came.".to_owned(),
        Cause::CaughtUp => "Its fire time had been missed, and was made up for.".to_owned(),
        Cause::Triggered => format!("It was triggered by{}.", detail.map_or(" hand".to_owned(), |who| format!(" {who}"))),
        Cause::Backfilled => format!(
            "Its fire time was made up for by a backfill{}.",
            detail.map(|who| format!(" that {who} asked for")).unwrap_or_default()
        ),
        Cause::RerunRequested => format!("It was to run once more{asked}."),
        Cause::Chained => "Another task's instance had ended.".to_owned(),
        Cause::Called => "A node of another task's run called the task.".to_owned(),
        Cause::LimitReached if transition.to == State::Skipped => {
            format!(
                "It was discarded{}.",
                detail.map_or(": the task was at its limit (`when_full`)".to_owned(), |detail| format!(": {detail}"))
            )
        }
        Cause::LimitReached => at_limit(facts, transition),
        Cause::SlotFree => "A slot became free.".to_owned(),
        Cause::DelayElapsed => "Its time had come.".to_owned(),
        Cause::Rescheduled => format!("Its time was changed{asked}."),
        Cause::Assigned => format!("Attempt {attempt} was given to {worker}."),
        Cause::Started => format!("{} began.", capital(&worker)),
        Cause::Returned => format!("{} could not start it and gave it back, which costs no attempt{because}.", capital(&worker)),
        Cause::Finished if transition.to == State::Succeeded => {
            format!("Attempt {attempt} succeeded{}.", detail.map(|_| how.clone()).unwrap_or_default())
        }
        Cause::Finished if transition.to == State::Retrying => format!("{}.", failed()),
        Cause::Finished if part.as_ref().is_some_and(|part| part.policies.retry.max_attempts.is_none()) => {
            format!("{}. No other attempt follows: the task has no `retry`.", failed())
        }
        Cause::Finished => format!("{}. No other attempt follows: its handler said so, or none was left.", failed()),
        Cause::TimedOut => {
            let after = part.as_ref().and_then(|part| part.policies.timeout.after);
            let after = after.map(|after| format!(" (`timeout: {}`)", lasted(after.0))).unwrap_or_default();
            format!("Attempt {attempt} ran out of time{after}{because}.")
        }
        Cause::WorkerLost => format!("{} was lost with attempt {attempt}{because}.", capital(&worker)),
        Cause::BackoffElapsed => "The wait before the next attempt was over.".to_owned(),
        Cause::AttemptsExhausted => {
            let most = part.as_ref().and_then(|part| part.policies.retry.max_attempts);
            let most = most.map(|most| format!(" (`max_attempts: {most}`)")).unwrap_or_default();
            format!("{}, and no attempt was left{most}.", failed())
        }
        Cause::Quarantined => {
            format!(
                "{} was lost as well{because}: it has lost {}, and is kept from taking more with it.",
                capital(&worker),
                plural(row.losses.into(), "worker", "workers")
            )
        }
        Cause::OutcomeUnknown => {
            format!(
                "{} was lost{because}, and may have begun: the task is not `idempotent`, so it is not run again without a person.",
                capital(&worker)
            )
        }
        Cause::NotRetried => format!("{}. The task doesn't retry such failures (`retry.on`).", failed()),
        Cause::RetryBudgetExhausted => format!("{}. The task had used up its budget of retries (`retry.budget`).", failed()),
        Cause::Replaced => "A newer instance took its place (`when_full: replace`).".to_owned(),
        Cause::CancelRequested => format!("It was cancelled{asked}."),
        Cause::KillRequested => format!("It was killed{asked}."),
        Cause::SkipRequested => format!("It was left out{asked}."),
        Cause::TaskRemoved => "Its task was removed.".to_owned(),
        Cause::TaskDisabled => "Its task was disabled.".to_owned(),
        Cause::Divided => match row.links.as_deref() {
            Some(links) if links.map.is_some() => "Its items were to be listed and run in its place.".to_owned(),
            Some(links) if links.nodes > 0 => format!("Its {} run in its place.", plural(links.nodes.into(), "node", "nodes")),
            Some(links) => format!("It was divided into {}{because}.", plural(links.shards.into(), "shard", "shards")),
            None => "It was divided into parts, which run in its place.".to_owned(),
        },
        Cause::PartsEnded if transition.to == State::Succeeded => "All its parts had succeeded.".to_owned(),
        Cause::PartsEnded => format!("All its parts had ended{because}."),
        Cause::ParentEnded if transition.from.is_none() => format!("It did not start: the end of the run keeps it from that{because}."),
        Cause::ParentEnded => "What it is a part of has ended.".to_owned(),
        Cause::WorkerGone => format!("The only worker that it was for is gone{because}."),
        Cause::TooManyParts => format!("It would have had too many parts{because}."),
        Cause::ResultsTooLarge => format!("What its parts have answered is too much{because}."),
        Cause::RuleMet => "The nodes before it had come to what its rule wants.".to_owned(),
        Cause::NodeSkipped => format!("It did not start: {} keeps it from that{because}.", detail.map_or(KEPT_BY_ANY, kept_by)),
        Cause::Marked => format!("It is {} because somebody said so{asked}.", words(transition.to)),
        Cause::CarriedOver => format!("It had ended so in the run before, and was carried over{because}."),
        Cause::Calls => format!("It called the task {}, which runs in its place.", detail.unwrap_or("that it names")),
        Cause::CallEnded => format!("What it had called has ended{because}."),
    }
}

const KEPT_BY_ANY: &str = "its rule, its condition or the end of the run";

/// What keeps a node from starting, by the reason that is on record: see [`SkipReason::explain`](punctual_core::workflow::SkipReason::explain).
fn kept_by(reason: &str) -> &'static str {
    if reason.starts_with("upstream `") || reason.starts_with("no upstream ") {
        "its rule"
    } else if reason.starts_with("its condition ") || reason.starts_with('`') {
        "its condition"
    } else if reason.starts_with("the failure of `") || reason == "the run was cancelled" {
        "the end of the run"
    } else {
        KEPT_BY_ANY
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// A state as the end of "it is ...".
const fn words(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Created => "ready",
        State::Dispatched => "with a worker that has not begun",
        State::Running => "running",
        State::Retrying => "waiting for its next attempt",
        State::Succeeded => "done",
        State::Failed => "failed",
        State::TimedOut => "out of time",
        State::DeadLettered => "a dead letter",
        State::Cancelled => "cancelled",
        State::Skipped => "skipped",
    }
}

/// An instance that has ended, in short.
fn ended(facts: &Facts<'_>, times: &[(Kind, Millis)]) -> Vec<String> {
    let row = facts.row;
    let verb = match row.state {
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::TimedOut => "ran out of time",
        State::DeadLettered => "was given up and is a dead letter",
        State::Cancelled => "was cancelled",
        _ => "was skipped",
    };
    let attempts = match row.attempt {
        0 => " without an attempt".to_owned(),
        1 => String::new(),
        count => format!(" at attempt {count} ({} failed, {} lost)", row.failures, row.losses),
    };
    let since = if row.origin.is_own() && row.parent().is_none() { row.fire_time } else { row.created_at() };
    let ended_at = row.ended_at().unwrap_or(facts.now);
    let from = if row.origin.is_own() && row.parent().is_none() { "its fire time" } else { "it was made" };
    let mut spent: Vec<_> = times.iter().filter(|(_, time)| *time >= TOLD_MIN).collect();
    spent.sort_by_key(|(kind, time)| (std::cmp::Reverse(*time), *kind));
    let spent: Vec<_> = spent.into_iter().map(|(kind, time)| format!("{} {}", lasted(time.0), kind.words())).collect();
    let spent = if spent.is_empty() { String::new() } else { format!(": {}", spent.join(", ")) };
    let mut summary = vec![format!("It {verb}{attempts}, {} after {from}{spent}.", between(since, ended_at))];
    if row.state != State::Succeeded
        && let Some(last) = row.transitions.last()
    {
        summary.push(if row.transitions.len() == 1 { begun(facts, last) } else { happened(facts, last) });
    }
    let failed = facts.past.failed_nodes.iter().take(NAMED_MAX).map(|(name, id)| format!("Its node {name:?} failed, as instance {id}."));
    summary.extend(failed);
    let more = facts.past.failed_nodes.len().saturating_sub(NAMED_MAX) as u64;
    if more > 0 {
        summary.push(format!("So did {}.", plural(more, "other one", "others")));
    }
    summary.extend(held_while_ready(facts));
    if let Some(last) = facts.past.reruns.last() {
        let others = facts.past.reruns.len() as u64 - 1;
        let others = if others == 0 { String::new() } else { format!(", after {} between", plural(others, "other run", "other runs")) };
        summary.push(format!("It was run again, as instance {} (run {}{others}), which is {}.", last.id, last.run, words(last.state)));
    }
    summary
}

/// The pauses that held it when it was ready.
fn held_while_ready(facts: &Facts<'_>) -> Vec<String> {
    let transitions = &facts.row.transitions;
    let waits = transitions.iter().zip(transitions.iter().skip(1)).filter(|(ready, _)| ready.to == State::Created);
    let told = waits.flat_map(|(ready, next)| facts.past.pauses.iter().filter_map(|span| span.told(ready.at, next.at)));
    told.filter(|(held, _)| *held >= TOLD_MIN).map(|(_, told)| told).take(NAMED_MAX).collect()
}

/// What an instance waits for now.
fn not_ended(facts: &Facts<'_>) -> Vec<String> {
    let row = facts.row;
    let so_far = row.transitions.last().map(|last| between(last.at, facts.now)).unwrap_or_default();
    let is_held = matches!(row.state, State::Waiting | State::Created | State::Retrying) && !facts.live.pauses.is_empty();
    let mut summary = Vec::new();
    if is_held {
        summary.extend(facts.live.pauses.iter().map(|pause| format!("It is held by a pause: {pause}.")));
    }
    summary.push(match row.state {
        State::Waiting => match row.due_at.filter(|due| *due > facts.now) {
            Some(due) if row.origin == Origin::CatchUp => {
                format!("It waits for its turn until {due}: missed fire times are made up for one after the other (`misfire.rate`).")
            }
            Some(due) => format!("It waits for its time, {due}, which comes in {}.", between(facts.now, due)),
            None => {
                let named: Vec<_> = facts.live.holders.iter().take(HOLDERS_NAMED).map(ToString::to_string).collect();
                let more = facts.live.holders.len().saturating_sub(HOLDERS_NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let held = if named.is_empty() { String::new() } else { format!("; in progress: {}{more}", named.join(", ")) };
                format!("It has waited {so_far} for {}{held}.", limit(facts))
            }
        },
        State::Created if row.waits_for_group().is_some() => {
            format!("It has waited {so_far} for {}.", limit(facts))
        }
        State::Created if is_held && facts.live.route == Route::Nothing => format!("It has been ready for {so_far}."),
        State::Created => {
            let why = match &facts.live.route {
                Route::Nothing if row.transitions.last().is_none_or(|last| facts.now.since(last.at) <= ASSIGNED_WITHIN) => {
                    format!("one is about to have it{}", rate(facts))
                }
                Route::Nothing => format!("nothing is known to be in its way{}", unless_rate(facts)),
                Route::Nobody(nobody, needs) => format!("{}{}", nobody.reason(), asked_of_workers(needs)),
                Route::Full { waiting } => {
                    let others = waiting.saturating_sub(1) as u64;
                    let others = if others == 0 {
                        String::new()
                    } else {
                        format!("; {} beside it", plural(others, "other one waits", "others wait"))
                    };
                    format!("all slots of the workers that may have it are taken{others}{}", rate(facts))
                }
                Route::Breaker { downstream, failures, probe_in } => {
                    let probe = probe_in.map(|wait| format!("; it is tried again in {}", lasted(wait.0))).unwrap_or_default();
                    format!(
                        "the circuit breaker of {downstream:?} is open after {}{probe}",
                        plural(*failures as u64, "failure", "failures")
                    )
                }
                Route::Elsewhere { replica, address } => {
                    let address = address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
                    format!("the replica {replica}{address} owns it, and knows which worker it waits for: ask there")
                }
                Route::NoOwner { partition } => {
                    format!("nobody owns its partition, {partition}: no replica runs, or one is taking it over; see `punctual status`")
                }
            };
            format!("It has waited {so_far} for a worker: {why}.")
        }
        State::Dispatched => {
            let worker = row.worker.as_ref().map_or_else(|| "Its worker".to_owned(), |worker| format!("Worker {}", worker.id.0));
            format!("{worker} was given attempt {} {so_far} ago, and has not said yet that it began.", row.attempt)
        }
        State::Running => running(facts, &so_far),
        State::Retrying => match row.due_at.filter(|due| *due > facts.now) {
            Some(due) => format!("It waits for attempt {} until {due}, {} from now.", row.attempt + 1, between(facts.now, due)),
            None => format!("Attempt {} is about to follow.", row.attempt + 1),
        },
        _ => "It has ended.".to_owned(),
    });
    summary
}

fn running(facts: &Facts<'_>, so_far: &str) -> String {
    let row = facts.row;
    let links = row.links.as_deref();
    if let Some(called) = row.calls() {
        return format!("It has called the task {called:?}, which has run {so_far} in its place.");
    }
    if let Some(links) = links.filter(|_| row.has_parts()) {
        return match links.map.as_deref() {
            Some(map) => match map.phase {
                MapPhase::List => format!("Its items have been listed for {so_far}."),
                MapPhase::Items => {
                    format!("Of its {} items {} were begun, {} failed; {so_far} so far.", links.shards, map.made, row.failures)
                }
                MapPhase::Reduce => format!("The results of its {} items are reduced.", links.shards),
            },
            None if links.nodes > 0 => format!("Its {} have run {so_far} in its place.", plural(links.nodes.into(), "node", "nodes")),
            None => format!("Its {} have run {so_far} in its place.", plural(links.shards.into(), "shard", "shards")),
        };
    }
    let worker = row.worker.as_ref().map(|worker| format!(" on worker {}", worker.id.0)).unwrap_or_default();
    let after = facts.definition.and_then(|definition| definition.of_part(row.part).policies.timeout.after);
    let begun = row.transitions.last().map_or(facts.now, |last| last.at);
    let until = after.map(|after| format!("; its timeout ends it at {}", begun.saturating_add(after))).unwrap_or_default();
    format!("Attempt {} has run{worker} for {so_far}{until}.", row.attempt)
}

/// What is asked of a worker besides the handler.
fn asked_of_workers(needs: &Needs) -> String {
    let mut asked = vec![format!("handler {:?}", needs.handler)];
    asked.extend(needs.tags().iter().map(|tag| format!("tag {tag:?}")));
    asked.extend(needs.min_worker_version().map(|version| format!("version {} or newer", version.as_str())));
    asked.extend(needs.pinned().map(|worker| format!("worker {:?}", worker.0)));
    format!(" (it asks for {})", asked.join(", "))
}

#[cfg(test)]
mod tests;
