//! How things look in JSON, the same in the API and in the CLI's `--json`. Ids are text, such as `43-17`; instants are such as
//! `2026-11-29T17:12:01.5Z`. What is not there is null.

use punctual_core::batch::Output;
use punctual_core::cron::{LeftOut, Mark, Planned};
use punctual_core::instance::{Cause, InstanceRow, MapPhase, MapProgress, State, Transition};
use punctual_core::misfire;
use punctual_core::occurrence::Occurrence;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{InstanceView, PauseView, TaskView, VersionView};
use punctual_spec::zones::Zones;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::pauses::{self, PauseShown};

/// A task in a list.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TaskShown {
    name: String,
    id: String,
    /// The newest version.
    version: u32,
    removed: bool,
    /// What has it: a file, the API, the console.
    source: String,
    /// When it fires next; null where nothing is known, or where it is paused.
    next_fire: Option<String>,
    /// The pauses that hold it.
    paused: Vec<PauseShown>,
    /// Its document.
    definition: Value,
}

/// A task in a list.
pub(crate) fn task(view: &TaskView, pauses: &[PauseView], zones: &Zones) -> TaskShown {
    let definition: Value = serde_json::from_str(&view.document).unwrap_or(Value::Null);
    let paused = pauses::of_task(pauses, &view.name, definition["group"].as_str());
    TaskShown {
        name: view.name.to_string(),
        id: view.task.to_string(),
        version: view.version.0,
        removed: view.removed,
        source: view.source.to_string(),
        next_fire: instant(next_fire(view, &definition, zones).filter(|_| paused.is_empty())),
        paused,
        definition,
    }
}

/// A version of a task.
#[derive(Serialize, JsonSchema)]
pub(crate) struct VersionShown {
    version: u32,
    at: String,
    by: String,
    /// Whether the task was removed with it.
    removed: bool,
    /// Its document.
    definition: Option<Value>,
}

/// A version of a task.
pub(crate) fn version(version: &VersionView) -> VersionShown {
    VersionShown {
        version: version.version.0,
        at: version.at.to_string(),
        by: version.by.to_string(),
        removed: version.document.is_none(),
        definition: version.document.as_deref().and_then(|document| serde_json::from_str(document).ok()),
    }
}

/// When the task fires next: its cursor, unless that stands on a fire time that the task leaves out.
fn next_fire(view: &TaskView, document: &Value, zones: &Zones) -> Option<Timestamp> {
    let cursor = view.next_fire?;
    let may_leave_out = ["calendar", "blackouts"].iter().any(|field| document["trigger"].get(field).is_some());
    if !may_leave_out {
        return Some(cursor);
    }
    match punctual_spec::decode(&view.document, zones) {
        Ok(definition) => misfire::fired_from(&definition.trigger, cursor),
        Err(_) => Some(cursor),
    }
}

/// An instance in a list.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct InstanceShown {
    id: String,
    task: String,
    /// The version of the task that it runs by.
    version: u32,
    fire_time: String,
    /// Counted from 1: a rerun is the next one.
    run: u32,
    /// Which shard it is.
    shard: Option<ShardShown>,
    /// Into how many it was divided.
    shards: Option<u32>,
    /// Of a workflow's run: how many nodes it has.
    nodes_count: Option<u32>,
    /// Of a workflow's run: how many nodes were carried over from the run before.
    carried_over: Option<u32>,
    /// How far it has come, where it is mapped over a list.
    map: Option<MapShown>,
    /// What it does for a firing that is mapped: `list` or `reduce`.
    part: Option<&'static str>,
    /// The instance that it is a part of.
    parent: Option<String>,
    /// The instance whose end made it fire.
    caused_by: Option<String>,
    origin: &'static str,
    state: &'static str,
    /// Why it is in that state.
    cause: Option<&'static str>,
    /// The exit code of a command, the status of a call.
    code: Option<i32>,
    detail: Option<String>,
    /// Counted from 1; 0 before the first.
    attempt: u32,
    failures: u32,
    losses: u32,
    /// The worker that has it now.
    worker: Option<String>,
    /// When it goes on, where it waits for a time.
    due_at: Option<String>,
    /// The group that it waits for.
    waits_for_group: Option<String>,
    /// The idempotency key that it was triggered under.
    key: Option<String>,
    created_at: String,
    ended_at: Option<String>,
}

/// Which shard an instance is.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct ShardShown {
    /// Counted from 0.
    index: u32,
    count: u32,
    key: Option<String>,
}

/// How far a firing has come that is mapped over a list.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct MapShown {
    /// `list`, `items` or `reduce`.
    phase: &'static str,
    items: Option<u32>,
    made: u32,
    failed: u32,
    result_bytes: u64,
}

/// An instance in a list.
pub(crate) fn instance(view: &InstanceView) -> InstanceShown {
    let row = &view.row;
    let (last, links) = (row.transitions.last(), row.links.as_deref());
    InstanceShown {
        id: row.id.to_string(),
        task: view.task_name.to_string(),
        version: row.version.0,
        fire_time: row.fire_time.to_string(),
        run: row.run,
        shard: shard(row),
        shards: links.map(|links| links.shards).filter(|_| row.has_parts() && !row.is_run()),
        nodes_count: links.map(|links| links.nodes).filter(|nodes| *nodes > 0),
        carried_over: links.map(|links| links.carried).filter(|carried| *carried > 0),
        map: links.and_then(|links| map(row, links.map.as_deref()?)),
        part: part(row),
        parent: row.parent().map(|id| id.to_string()),
        caused_by: links.and_then(|links| links.cause).map(|id| id.to_string()),
        origin: row.origin.name(),
        state: row.state.name(),
        cause: last.map(|last| last.cause.name()),
        code: last.and_then(|last| last.code),
        detail: last.and_then(|last| last.detail.as_deref().map(str::to_owned)),
        attempt: row.attempt,
        failures: row.failures,
        losses: row.losses,
        worker: row.worker.as_ref().map(|worker| worker.id.to_string()),
        due_at: instant(row.due_at),
        waits_for_group: row.waits_for_group().map(|group| group.to_string()),
        key: row.key.as_deref().map(str::to_owned),
        created_at: row.created_at().to_string(),
        ended_at: instant(row.ended_at()),
    }
}

/// How far a firing has come that is mapped over a list.
fn map(row: &InstanceRow, progress: &MapProgress) -> Option<MapShown> {
    let (phase, items) = (progress.phase, row.links.as_deref()?.shards);
    Some(MapShown {
        phase: match phase {
            MapPhase::List => "list",
            MapPhase::Items => "items",
            MapPhase::Reduce => "reduce",
        },
        items: (phase != MapPhase::List).then_some(items),
        made: progress.made,
        failed: row.failures,
        result_bytes: progress.result_bytes,
    })
}

/// What an instance does for a firing that is mapped, where it runs no item of it.
pub(crate) fn part(row: &InstanceRow) -> Option<&'static str> {
    match row.part {
        part if part.is_list() => Some("list"),
        part if part.is_reduce() => Some("reduce"),
        _ => None,
    }
}

/// Which shard an instance is; nothing where it is none.
fn shard(row: &InstanceRow) -> Option<ShardShown> {
    let (index, links) = (row.part.shard_index()?, row.links.as_deref()?);
    Some(ShardShown { index, count: links.shards, key: links.shard_key.as_deref().map(str::to_owned) })
}

/// An instance with its whole story.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InstanceDetail {
    #[serde(flatten)]
    instance: InstanceShown,
    payload: Option<String>,
    /// What it answered.
    result: Option<String>,
    fence: String,
    transitions: Vec<TransitionShown>,
    attempts: Vec<AttemptShown>,
    /// The node of a workflow that it is.
    pub(crate) node: Option<String>,
    /// Which task it calls, where it is such a node, and as which instance.
    pub(crate) calls: Option<super::nodes::CallShown>,
    /// The nodes of a workflow's run.
    pub(crate) nodes: Option<Vec<super::nodes::NodeShown>>,
    /// The shards or items of what was divided: the first hundred, and what lists and reduces them.
    pub(crate) parts: Option<Vec<super::parts::PartShown>>,
}

/// An instance with its whole story, but for what a workflow says of it.
pub(crate) fn instance_detail(view: &InstanceView) -> InstanceDetail {
    InstanceDetail {
        instance: instance(view),
        payload: view.row.payload.as_deref().map(str::to_owned),
        result: view.row.result.as_deref().map(str::to_owned),
        fence: view.row.fence.to_string(),
        transitions: view.row.transitions.iter().map(transition).collect(),
        attempts: attempts(&view.row).iter().map(attempt).collect(),
        node: None,
        calls: None,
        nodes: None,
        parts: None,
    }
}

/// A step of an instance's story.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TransitionShown {
    at: String,
    from: Option<&'static str>,
    to: &'static str,
    cause: &'static str,
    attempt: u32,
    fence: String,
    worker: Option<String>,
    code: Option<i32>,
    detail: Option<String>,
}

pub(crate) fn transition(transition: &Transition) -> TransitionShown {
    TransitionShown {
        at: transition.at.to_string(),
        from: transition.from.map(State::name),
        to: transition.to.name(),
        cause: transition.cause.name(),
        attempt: transition.attempt,
        fence: transition.fence.to_string(),
        worker: transition.worker.as_ref().map(ToString::to_string),
        code: transition.code,
        detail: transition.detail.as_deref().map(str::to_owned),
    }
}

/// One attempt, put together from the transitions that speak of it.
pub(crate) struct Attempt<'a> {
    /// Counted from 1.
    pub(crate) number: u32,
    /// When it was assigned.
    pub(crate) assigned: &'a Transition,
    /// When the worker began.
    pub(crate) started_at: Option<Timestamp>,
    /// How it ended.
    pub(crate) ended: Option<&'a Transition>,
}

/// The attempts of an instance, oldest first. Assignments that came back unbegun are attempts of the same number.
pub(crate) fn attempts(row: &InstanceRow) -> Vec<Attempt<'_>> {
    let mut attempts: Vec<Attempt<'_>> = Vec::new();
    for transition in &row.transitions {
        match transition.cause {
            Cause::Assigned => attempts.push(Attempt { number: transition.attempt, assigned: transition, started_at: None, ended: None }),
            Cause::Started => {
                if let Some(last) = attempts.last_mut() {
                    last.started_at = Some(transition.at);
                }
            }
            _ => {
                if let Some(last) = attempts.last_mut().filter(|last| last.ended.is_none() && last.assigned.fence == transition.fence) {
                    last.ended = Some(transition);
                }
            }
        }
    }
    attempts
}

/// One attempt.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AttemptShown {
    attempt: u32,
    fence: String,
    worker: Option<String>,
    assigned_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// What the instance became with its end.
    state: Option<&'static str>,
    cause: Option<&'static str>,
    code: Option<i32>,
    detail: Option<String>,
}

fn attempt(attempt: &Attempt<'_>) -> AttemptShown {
    let ended = attempt.ended;
    AttemptShown {
        attempt: attempt.number,
        fence: attempt.assigned.fence.to_string(),
        worker: attempt.assigned.worker.as_ref().map(ToString::to_string),
        assigned_at: attempt.assigned.at.to_string(),
        started_at: instant(attempt.started_at),
        ended_at: instant(ended.map(|ended| ended.at)),
        state: ended.map(|ended| ended.to.name()),
        cause: ended.map(|ended| ended.cause.name()),
        code: ended.and_then(|ended| ended.code),
        detail: ended.and_then(|ended| ended.detail.as_deref().map(str::to_owned)),
    }
}

/// What an attempt wrote. Bytes that are not UTF-8 show as replacement characters.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OutputShown {
    attempt: u32,
    output: String,
    /// Bytes that found no room.
    dropped_bytes: u64,
}

pub(crate) fn output(attempt: u32, output: &Output) -> OutputShown {
    OutputShown { attempt, output: String::from_utf8_lossy(&output.bytes).into_owned(), dropped_bytes: output.dropped }
}

/// Fire times that were not fired.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OccurrenceShown {
    first: String,
    last: String,
    count: u64,
    /// What became of them.
    outcome: &'static str,
    /// The instance that stands for them.
    instance: Option<String>,
    at: String,
    version: u32,
}

pub(crate) fn occurrence(occurrence: &Occurrence) -> OccurrenceShown {
    OccurrenceShown {
        first: occurrence.first.to_string(),
        last: occurrence.last.to_string(),
        count: occurrence.count,
        outcome: occurrence.outcome.name(),
        instance: occurrence.instance.map(|id| id.to_string()),
        at: occurrence.at.to_string(),
        version: occurrence.version.0,
    }
}

/// A fire time to come, or some that are left out.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FireShown {
    utc: String,
    /// What the clock on the wall says in the trigger's zone; null where it has none.
    local: Option<String>,
    /// That zone's offset from UTC then.
    offset: Option<String>,
    /// What the clock does: `normal`, `after_gap`, `shifted_from_gap`, `first_pass`, `second_pass` or `day_of_transition`.
    mark: Option<&'static str>,
    /// False: it is left out.
    fires: bool,
    /// Why it is left out: `excluded_day` or `blacked_out`.
    left_out: Option<&'static str>,
    /// How many in a row are left out.
    count: u64,
    /// The last of these.
    until: Option<String>,
}

/// A fire time of a trigger without a zone.
pub(crate) fn plain_fire(at: Timestamp) -> FireShown {
    FireShown { utc: at.to_string(), local: None, offset: None, mark: None, fires: true, left_out: None, count: 1, until: None }
}

/// A line of a preview.
pub(crate) fn planned(planned: &Planned) -> FireShown {
    let (at, fires, left_out, count, until) = match planned {
        Planned::Fires { at, .. } => (at, true, None, 1, None),
        Planned::LeftOut { first, last, count, reason } => {
            let reason = match reason {
                LeftOut::ExcludedDay => "excluded_day",
                LeftOut::BlackedOut => "blacked_out",
            };
            (first, false, Some(reason), *count, Some(last.at.to_string()))
        }
    };
    let mark = match at.mark {
        Mark::Normal => "normal",
        Mark::AfterGap => "after_gap",
        Mark::ShiftedFromGap => "shifted_from_gap",
        Mark::FirstPass => "first_pass",
        Mark::SecondPass => "second_pass",
        Mark::DayOfTransition => "day_of_transition",
    };
    let (local, offset) = (Some(at.local.to_string()), Some(crate::cli::offset(at)));
    FireShown { utc: at.at.to_string(), local, offset, mark: Some(mark), fires, left_out, count, until }
}

pub(crate) fn instant(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}
