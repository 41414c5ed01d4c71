//! What is wrong with a store or a cluster, and what to do about it: pure. Each finding has its fix.

use punctual_core::breaker::BreakerState;
use punctual_core::definition::{TaskDefinition, Trigger};
use punctual_core::misfire;
use punctual_core::time::{Millis, Timestamp};
use punctual_driver::link::SchedulerStatus;
use punctual_driver::ports::{Check, Inconsistency, PartitionView, PauseTarget, PauseView, ReplicaView, TaskView};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::fires::far_ahead;
use crate::cli::ask::lasted;

/// Most examples of a finding.
const EXAMPLES_MAX: usize = 10;
/// A cursor so long in the past is one that nobody fires.
const BEHIND_MAX: Millis = Millis::from_secs(300);
/// Clocks further apart are told of.
const CLOCK_SLACK: Millis = Millis::from_secs(2);

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Finding {
    /// What was checked, in a word.
    pub(crate) check: &'static str,
    /// `wrong`, or `warning` where it may be meant so.
    pub(crate) severity: Severity,
    /// In a sentence.
    pub(crate) says: String,
    /// Tasks, instances, partitions or others that it is about.
    pub(crate) examples: Vec<String>,
    /// Whether there are more.
    pub(crate) more: bool,
    /// What to do.
    pub(crate) fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    Wrong,
    Warning,
}

fn finding(check: &'static str, severity: Severity, says: impl Into<String>, mut examples: Vec<String>, fix: impl Into<String>) -> Finding {
    let more = examples.len() > EXAMPLES_MAX;
    examples.truncate(EXAMPLES_MAX);
    Finding { check, severity, says: says.into(), examples, more, fix: fix.into() }
}

/// A task, and what this program makes of it.
pub(crate) struct KnownTask {
    pub(crate) view: TaskView,
    /// Or why it can't be read.
    pub(crate) definition: Result<TaskDefinition, String>,
    /// Whether a pause holds it.
    pub(crate) is_paused: bool,
}

/// What is known of a cluster.
pub(crate) struct Facts<'a> {
    /// By the store's clock.
    pub(crate) now: Timestamp,
    /// By the clock of the machine that answers.
    pub(crate) machine_now: Timestamp,
    pub(crate) replicas: &'a [ReplicaView],
    pub(crate) partitions: &'a [PartitionView],
    /// What the replica that answers says of itself; `None`: nobody answers for one.
    pub(crate) own: Option<&'a SchedulerStatus>,
    /// Whether a replica ought to answer.
    pub(crate) is_served: bool,
    pub(crate) trouble: Option<&'a str>,
    pub(crate) tasks: &'a [KnownTask],
    /// How many instances of each task are in progress, by name.
    pub(crate) in_progress: &'a FxHashMap<std::sync::Arc<str>, u32>,
    pub(crate) pauses: &'a [PauseView],
    pub(crate) inconsistencies: &'a [Inconsistency],
}

/// All that is wrong, what is worst first.
pub(crate) fn examine(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = facts.inconsistencies.iter().map(of_store).collect();
    if facts.is_served {
        of_replicas(facts, &mut found);
        of_workers(facts, &mut found);
    }
    of_clocks(facts, &mut found);
    of_tasks(facts, &mut found);
    found.sort_by_key(|finding| finding.severity == Severity::Warning);
    found
}

/// A contradiction within the store. Every check has its words and its fix.
pub(crate) fn of_store(found: &Inconsistency) -> Finding {
    use Severity::{Warning, Wrong};
    let restore = "Stop Punctual and restore a backup that `punctual doctor --store` finds nothing in; please report how it came about.";
    let reload =
        "Restart the replica that owns it (`punctual status --partitions`): it reads everything anew. Please report it if it comes back.";
    let report = "Nothing fires wrongly because of it, but please report how it came about.";
    let apply = "Apply the task again with a change, such as in its `description`: its owner then takes it over anew.";
    let (check, severity, says, fix) = match found.check {
        Check::Damaged => ("file_damaged", Wrong, "The database file is damaged.", restore),
        Check::TaskWithoutRecord => {
            ("task_without_record", Wrong, "Tasks are there, and their owners know nothing of their newest version.", apply)
        }
        Check::RecordWithoutTask => {
            ("record_without_task", Wrong, "Owners have records of tasks that are not there, or were removed.", reload)
        }
        Check::TaskWithoutVersion => ("task_without_version", Wrong, "Tasks are in versions that are not there.", apply),
        Check::InstanceWithoutTask => (
            "instance_without_task",
            Wrong,
            "Instances that have not ended are of no task of their partition.",
            "Cancel them: `punctual cancel ID`.",
        ),
        Check::AttemptWithoutWorker => ("attempt_without_worker", Wrong, "Instances are with a worker, and don't say with which.", reload),
        Check::PartWithoutWhole => (
            "part_without_whole",
            Wrong,
            "Shards or nodes wait, and what they are parts of has ended.",
            "Cancel them: `punctual cancel ID`.",
        ),
        Check::LiveList => ("live_list", Wrong, "The list of what has not ended does not agree with the instances.", restore),
        Check::TroubledList => ("troubled_list", Warning, "The list of what failed does not agree with the instances.", report),
        Check::DeadLetters => (
            "dead_letters",
            Warning,
            "Dead letters are listed that were settled, or are not listed and were never settled.",
            "Discard those that are listed (`punctual dead-letters discard ID --reason ...`); run the others again with `punctual rerun ID`.",
        ),
        Check::Counts => ("counts", Warning, "The number of instances in some states is not what the store says it is.", report),
        Check::DayTooLong => ("day_too_long", Warning, "Today more firings of some tasks are counted than they have.", report),
        Check::DayTooShort => ("day_too_short", Warning, "Today fewer firings of some tasks are counted than have ended.", report),
        Check::Reference => ("reference", Wrong, "Tasks fire after tasks that are not there, or are not there themselves.", apply),
        Check::Call => ("call", Wrong, "Workflows call tasks that are not there, or are not there themselves.", apply),
        Check::Slot => (
            "group_slot",
            Wrong,
            "Slots of groups are held by instances that have ended: as many fewer may run.",
            "Restart the replica that owns the group's partition: it asks those that hold slots anew.",
        ),
        Check::Backfill => (
            "backfill",
            Wrong,
            "Backfills run of tasks that are not there, or have ended more than they made.",
            "Cancel them: `punctual backfill cancel ID`.",
        ),
        Check::Pause => (
            "pause",
            Warning,
            "Tasks are paused that are not there.",
            "Lift the pause where it is not meant for when they come back: `punctual resume TASK`.",
        ),
        Check::Lease => ("lease_missing", Wrong, "Partitions have no lease row, so nobody can own them.", restore),
        Check::StrayRequest => ("stray_request", Wrong, "Requests wait for partitions that there are not.", restore),
        Check::OldRequest => (
            "old_request",
            Wrong,
            "Requests have waited for more than 5 minutes: nobody applies them.",
            "Look for partitions without an owner (`punctual status --partitions`), and start or restart a replica.",
        ),
        Check::Overdue => ("overdue", Wrong, "Instances wait for a time that came more than 5 minutes ago.", reload),
        Check::Occurrence => {
            ("occurrence", Warning, "What is on record of fire times makes no sense, or is of tasks that there never were.", report)
        }
        Check::Output => ("output", Warning, "Output is kept of instances that are not there.", report),
    };
    Finding { check, severity, says: says.to_owned(), examples: found.examples.clone(), more: found.has_more, fix: fix.to_owned() }
}

fn of_replicas(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    use Severity::{Warning, Wrong};
    if let Some(trouble) = facts.trouble {
        let fix = "Look at the database: space, permissions, whether it answers. The replica goes on by itself when that is mended.";
        found.push(finding("trouble", Wrong, format!("The replica that answers can't write: {trouble}"), Vec::new(), fix));
    }
    let (alive, silent): (Vec<_>, Vec<_>) = facts.replicas.iter().partition(|replica| replica.expires_at >= facts.now);
    if alive.is_empty() {
        let fix = "Start one: `punctual server`, or `punctual dev FILE`.";
        found.push(finding("no_replica", Wrong, "No replica says that it is alive: nothing fires.", Vec::new(), fix));
    }
    if !silent.is_empty() {
        let named = silent.iter().map(|replica| format!("{} (since {})", replica.id.0, replica.expires_at)).collect();
        let fix = "Look whether they run, and reach the database. Others take over what they had.";
        found.push(finding("replica_silent", Warning, "Replicas have stopped saying that they are alive.", named, fix));
    }
    let numbered = |views: Vec<&PartitionView>| views.iter().map(|view| view.partition.0.to_string()).collect::<Vec<_>>();
    let unowned: Vec<_> = facts.partitions.iter().filter(|view| view.owner.is_none() || view.expires_at < facts.now).collect();
    if !unowned.is_empty() {
        let says = format!("{} of {} partitions have no owner: nothing of them fires.", unowned.len(), facts.partitions.len());
        let fix = "Wait 15 s for a takeover; then start a replica, or look why those that run don't take them (their log says so).";
        found.push(finding("partition_unowned", Wrong, says, numbered(unowned), fix));
    }
    let is_alive = |view: &&PartitionView| view.owner.as_ref().is_some_and(|owner| !alive.iter().any(|replica| replica.id == *owner));
    let strangers: Vec<_> = facts.partitions.iter().filter(|view| view.expires_at >= facts.now).filter(is_alive).collect();
    if !strangers.is_empty() {
        let fix = "Wait 15 s: it may just have stopped. Else restart it: it holds leases, and doesn't say that it is alive.";
        found.push(finding(
            "owner_silent",
            Wrong,
            "Partitions are owned by a replica that doesn't say that it is alive.",
            numbered(strangers),
            fix,
        ));
    }
    if facts.own.is_none() {
        let fix = "Restart it; please report what it said before.";
        found.push(finding("scheduler_stopped", Wrong, "The scheduler of the replica that answers has stopped.", Vec::new(), fix));
    }
}

fn of_clocks(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let apart = Millis((facts.machine_now.0 - facts.now.0).unsigned_abs());
    if apart > CLOCK_SLACK {
        let says = format!("The clock of the machine that answers is {} from the store's, which counts.", lasted(apart.0));
        let fix = "Have both keep time, by NTP or chrony. Fire times go by the store's clock.";
        found.push(finding("clock", Severity::Warning, says, Vec::new(), fix));
    }
}

fn of_workers(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    use Severity::{Warning, Wrong};
    let Some(own) = facts.own else { return };
    let connected: Vec<_> = own.workers.iter().filter(|worker| worker.is_connected).collect();
    if connected.is_empty() && !facts.tasks.is_empty() {
        let fix = "Start one: `punctual worker --server HOST:PORT --allow-commands`. Each connects to every replica.";
        found.push(finding("no_worker", Wrong, "No worker is connected to the replica that answers: nothing runs.", Vec::new(), fix));
    }
    let away: Vec<_> = own.workers.iter().filter(|worker| !worker.is_connected).map(|worker| worker.worker.0.to_string()).collect();
    if !away.is_empty() {
        let fix = "Look whether they run and reach this replica; what they had is given to others when their lease has ended.";
        found.push(finding("worker_away", Warning, "Workers have lost their connection.", away, fix));
    }
    for waiting in &own.waiting {
        let Some(nobody) = waiting.nobody else { continue };
        let tags = waiting.needs.tags().iter().map(|tag| format!(", tag {tag:?}")).collect::<String>();
        let says = format!("{} instances wait for handler {:?}{tags}: {}.", waiting.waiting, waiting.needs.handler, nobody.reason());
        let fix = "Start a worker that may have them, or change what the tasks ask for (`routing`).";
        found.push(finding("nobody_for", Wrong, says, Vec::new(), fix));
    }
    let handlers: Vec<&str> = connected.iter().flat_map(|worker| worker.handlers.iter().map(|handler| &**handler)).collect();
    let asks = |task: &KnownTask| {
        let definition = task.definition.as_ref().ok().filter(|definition| definition.enabled && !task.view.removed)?;
        let unknown = asked_handlers(definition).into_iter().find(|handler| !handlers.contains(&&**handler))?;
        Some(format!("{} ({unknown})", task.view.name))
    };
    let unknown: Vec<_> = if connected.is_empty() { Vec::new() } else { facts.tasks.iter().filter_map(asks).collect() };
    if !unknown.is_empty() {
        let fix = "Start a worker that has the handler, or correct its name in the task.";
        found.push(finding("handler_unknown", Warning, "Tasks ask for handlers that no connected worker has.", unknown, fix));
    }
    let mut versions: Vec<_> =
        connected.iter().filter_map(|worker| worker.traits.version.as_ref().map(|version| version.as_str())).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        let versions = versions.into_iter().map(str::to_owned).collect();
        let fix = "Fine in the middle of a rollout; else upgrade the older ones.";
        found.push(finding("worker_versions", Warning, "Workers are of different versions.", versions, fix));
    }
    let open: Vec<_> = own
        .breakers
        .iter()
        .filter(|breaker| !matches!(breaker.state, BreakerState::Closed))
        .map(|breaker| breaker.downstream.to_string())
        .collect();
    if !open.is_empty() {
        let fix = "Look at what the tasks depend on: it fails. The breaker closes by itself when a probe succeeds.";
        found.push(finding("breaker_open", Warning, "Circuit breakers are open: what depends on these waits.", open, fix));
    }
}

/// The handlers that a task's firings are run by.
fn asked_handlers(definition: &TaskDefinition) -> Vec<std::sync::Arc<str>> {
    let Some(workflow) = &definition.workflow else {
        let map = definition.map.iter().flat_map(|map| [Some(&map.list), map.reduce.as_ref()]).flatten();
        return map.chain([&definition.handler]).map(|handler| handler.name.clone()).collect();
    };
    let nodes = (0..workflow.graph().len()).map(|node| workflow.node(punctual_core::workflow::NodeIndex(node as u32)));
    nodes.filter(|node| node.calls.is_none()).flat_map(|node| asked_handlers(node)).collect()
}

fn of_tasks(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    use Severity::{Warning, Wrong};
    let (mut unreadable, mut missing, mut ahead, mut behind, mut over) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for task in facts.tasks.iter().filter(|task| !task.view.removed) {
        let name = &task.view.name;
        let definition = match &task.definition {
            Ok(definition) => definition,
            Err(reason) => {
                unreadable.push(format!("{name}: {reason}"));
                continue;
            }
        };
        let (running, most) = (facts.in_progress.get(name).copied().unwrap_or(0), definition.policies.concurrency.max_running);
        if running > most && definition.policies.limit_key.is_none() {
            over.push(format!("{name}: {running} of {most}"));
        }
        if !definition.enabled || task.is_paused {
            continue;
        }
        let expected = misfire::first(&definition.trigger, facts.now);
        let is_regular = match &definition.trigger {
            Trigger::Cron(_) | Trigger::FixedRate { .. } => true,
            Trigger::Timetable(_) => definition.trigger.fixed_delay().is_none(),
            Trigger::FixedDelay { .. } | Trigger::Delay { .. } | Trigger::Manual => false,
        };
        match (task.view.next_fire, expected) {
            (None, Some(expected)) if is_regular => missing.push(format!("{name}: due at {expected}")),
            (Some(cursor), Some(_)) if is_regular && cursor > facts.now => {
                ahead.extend(far_ahead(&definition.trigger, cursor, facts.now).map(|due| format!("{name}: at {cursor}, due at {due}")));
            }
            (Some(cursor), _) if misfire::due_at(&definition.trigger, task.view.task, cursor).saturating_add(BEHIND_MAX) < facts.now => {
                behind.push(format!("{name}: due at {cursor}"));
            }
            _ => {}
        }
    }
    let anew = "Apply the task again with a change, such as in its `description`: its next fire time is then computed anew.";
    if !unreadable.is_empty() {
        let fix = "Use a program of the version that wrote them, or apply the tasks again.";
        found.push(finding(
            "task_unreadable",
            Wrong,
            "Tasks have documents that this program can't read: they don't fire.",
            unreadable,
            fix,
        ));
    }
    if !missing.is_empty() && facts.is_served {
        found.push(finding("cursor_missing", Wrong, "Tasks ought to fire by themselves, and have no next fire time.", missing, anew));
    }
    if !ahead.is_empty() {
        let says = "Tasks fire next much later than their triggers say: they were fired by a clock that was far ahead, and no fire time comes twice.";
        let fix = "Correct the clock first, the database server's where there is one. Then give them another name to have them fire now.";
        found.push(finding("cursor_ahead", Wrong, says, ahead, fix));
    }
    if !behind.is_empty() && facts.is_served {
        let fix = "Look for partitions without an owner (`punctual status --partitions`), and restart the replica that owns theirs.";
        found.push(finding("cursor_behind", Wrong, "Tasks were due more than 5 minutes ago, and did not fire.", behind, fix));
    }
    if !over.is_empty() {
        let fix = "Fine for a while where the limit was lowered or the task was run again by hand; else please report it.";
        found.push(finding("over_limit", Warning, "More instances of tasks are in progress than `max_running` says.", over, fix));
    }
    let (mut paused, mut drained) = (Vec::new(), Vec::new());
    for pause in facts.pauses {
        match &pause.target {
            PauseTarget::All => paused.push("everything".to_owned()),
            PauseTarget::Group(name) | PauseTarget::Task(name) => paused.push(name.to_string()),
            PauseTarget::Worker(name) => drained.push(name.to_string()),
        }
    }
    if !paused.is_empty() {
        let fix = "`punctual status` says by whom and why; `punctual resume` ends them.";
        found.push(finding("paused", Warning, "Pauses hold tasks.", paused, fix));
    }
    if !drained.is_empty() {
        let fix = "`punctual status` says by whom and why; `punctual undrain WORKER` gives them attempts again.";
        found.push(finding("worker_drained", Warning, "Workers are drained: they are given nothing more.", drained, fix));
    }
}

#[cfg(test)]
mod tests;
