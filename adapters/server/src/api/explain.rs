//! Why something ran or did not. What is on record is gathered here; [`crate::explain`] makes sentences of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use punctual_core::breaker::BreakerState;
use punctual_core::definition::TaskDefinition;
use punctual_core::instance::{Cause, InstanceRow, State as InstanceState};
use punctual_core::routing::Needs;
use punctual_core::time::{Millis, Timestamp};
use punctual_core::workflow::NodeIndex;
use punctual_driver::ports::{AuditFilter, Catalog, Clock, InstanceFilter, InstanceQuery, InstanceView, PauseView, VersionView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, Named};
use super::pauses::PauseShown;
use super::{Api, ApiError, cluster, pauses, tasks, veil, views};
use crate::explain::fire_time::{self, Firing};
use crate::explain::instance::{self, Live, Past, Rerun, Route};
use crate::explain::pauses as held;

/// Firings of one time that are told.
const FIRINGS_MAX: usize = 20;
/// Rows that are looked at for them.
const LOOK_AT: usize = 10_000;
/// Instances in progress that are looked for.
const HOLDERS_MAX: usize = 20;
/// What people did that is looked at for pauses: with the task, and at all.
const AUDIT_MAX: usize = 500;

/// At which time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct When {
    /// An instant such as 2026-11-30T02:00:00Z, or a time in the task's own zone such as 2026-11-30T02:00; to the second, unless it says more;
    /// the present where it is left out.
    #[schemars(length(max = 64))]
    at: Option<String>,
}

/// Why a task fired at a time, or did not.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TaskExplained {
    task: String,
    /// The instant that was asked about.
    at: String,
    /// In a word: `fired`; an outcome of an occurrence, such as `misfire_skipped` or `paused`; `not_a_fire_time`, `before_the_task`, `removed`,
    /// `disabled`, `by_hand_only`, `outside_window`, `excluded_day`, `blacked_out`, `ahead`, `just_due`, `nothing_on_record`, `unreadable`.
    verdict: &'static str,
    /// The same in sentences; instants in them are in UTC.
    says: Vec<String>,
    /// The version that was in force then; null: there was none.
    version: Option<u32>,
    /// The fire time that it is by that version, left out or not.
    fire_time: Option<String>,
    /// The fire times around it.
    before: Option<String>,
    after: Option<String>,
    /// Instances of that time.
    instances: Vec<String>,
}

/// Why an instance is where it is.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InstanceExplained {
    instance: String,
    task: String,
    state: &'static str,
    /// In short; instants in sentences are in UTC.
    summary: Vec<String>,
    steps: Vec<StepShown>,
    times: Vec<TimeShown>,
}

/// A step, and what came after it.
#[derive(Serialize, JsonSchema)]
struct StepShown {
    at: String,
    /// What happened.
    says: String,
    /// What the time until the next step, or until now, went into: `delay`, `slot`, `ready` (until it is dispatched), `begin`, `running`, `backoff`, `parts`, `ended`.
    then: &'static str,
    ms: u64,
    /// The same in words, where it took long enough.
    then_says: Option<String>,
}

/// What an instance's time went into.
#[derive(Serialize, JsonSchema)]
struct TimeShown {
    /// As in `then` of a step.
    what: &'static str,
    ms: u64,
}

pub(crate) async fn instance<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
) -> Result<Json<InstanceExplained>, ApiError> {
    let mut view = super::instances::find(&api, &id).await?;
    veil::instances(&api, &identity, std::slice::from_mut(&mut view)).await?;
    let definition = definition_of(&api, &view).await?;
    let live = if view.row.state.is_terminal() { Live::default() } else { live(&api, &view, definition.as_ref()).await? };
    let now = api.clock.now().wall;
    let past = past(&api, &view, definition.as_ref()).await?;
    let explained = instance::explain(&instance::Facts { row: &view.row, definition: definition.as_ref(), now, live, past });
    let steps = explained.steps.into_iter().map(|step| StepShown {
        at: step.at.to_string(),
        says: step.says,
        then: step.kind.name(),
        ms: step.lasted.0,
        then_says: step.then,
    });
    Ok(Json(InstanceExplained {
        instance: id,
        task: view.task_name.to_string(),
        state: view.row.state.name(),
        summary: explained.summary,
        steps: steps.collect(),
        times: explained.times.into_iter().map(|(kind, time)| TimeShown { what: kind.name(), ms: time.0 }).collect(),
    }))
}

/// The task by the version that an instance runs by.
async fn definition_of<S: Catalog, C: Clock>(api: &Api<S, C>, view: &InstanceView) -> Result<Option<Arc<TaskDefinition>>, ApiError> {
    let versions = api.store.task(view.task_name.clone()).await?.map(|(_, versions)| versions).unwrap_or_default();
    let version = versions.iter().find(|version| version.version == view.row.version);
    Ok(version.and_then(|version| decode(api, version)))
}

fn decode<S, C>(api: &Api<S, C>, version: &VersionView) -> Option<Arc<TaskDefinition>> {
    version.document.as_deref().and_then(|document| punctual_spec::decode(document, &api.zones).ok()).map(Arc::new)
}

/// A pause as the end of a sentence.
fn in_words(pause: &PauseShown, task: &str) -> String {
    let shown = serde_json::to_value(pause).unwrap_or_default();
    let what = match (shown["task"].as_str(), shown["group"].as_str()) {
        (Some(_), _) => format!("the task {task:?}"),
        (None, Some(group)) => format!("the group {group:?}"),
        (None, None) => "everything".to_owned(),
    };
    let why = shown["reason"].as_str().map(|reason| format!(", because: {reason}")).unwrap_or_default();
    format!(
        "{what} has been paused since {} by {}{why}",
        shown["since"].as_str().unwrap_or_default(),
        shown["by"].as_str().unwrap_or_default()
    )
}

fn pauses_in_words(pauses: &[PauseView], task: &str, group: Option<&str>) -> Vec<String> {
    pauses::of_task(pauses, task, group).iter().map(|pause| in_words(pause, task)).collect()
}

/// What is known of the present of an instance that has not ended.
async fn live<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    view: &InstanceView,
    definition: Option<&Arc<TaskDefinition>>,
) -> Result<Live, ApiError> {
    let row = &view.row;
    let group = super::rules::group_of(api, &view.task_name).await?.flatten();
    let pauses = pauses_in_words(&api.store.pauses().await?, &view.task_name, group.as_deref());
    let mut holders = Vec::new();
    if row.state == InstanceState::Waiting && row.due_at.is_none() {
        let filter = InstanceFilter { task: Some(view.task_name.clone()), whole: true, limit: HOLDERS_MAX, ..InstanceFilter::default() };
        let states = InstanceState::ALL.into_iter().filter(|state| state.is_in_progress()).collect();
        let query = InstanceQuery { filter, states, look_at: LOOK_AT, ..InstanceQuery::default() };
        holders = api.store.instance_page(query).await?.instances.iter().map(|holder| holder.row.id).collect();
    }
    let route = if row.state == InstanceState::Created { route(api, row, definition).await? } else { Route::Nothing };
    Ok(Live { pauses, holders, route })
}

/// What is on record beside an instance. Each read is bounded; what lies further back is not claimed.
async fn past<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    view: &InstanceView,
    definition: Option<&Arc<TaskDefinition>>,
) -> Result<Past, ApiError> {
    let row = &view.row;
    let mut past = Past::default();
    if instance::was_ready_long(row) {
        let audit = |task: Option<Arc<str>>| api.store.audit(AuditFilter { task, limit: AUDIT_MAX, ..AuditFilter::default() });
        let (of_task, of_all) = (audit(Some(view.task_name.clone())).await?, audit(None).await?);
        past.are_all_pauses = of_all.len() < AUDIT_MAX || of_all.last().is_some_and(|last| last.at < row.created_at());
        let mut audit = of_task;
        audit.extend(of_all);
        audit.sort_unstable_by_key(|written| std::cmp::Reverse(written.id));
        audit.dedup_by_key(|written| written.id);
        let group = super::rules::group_of(api, &view.task_name).await?.flatten();
        past.pauses = held::spans(&audit, &api.store.pauses().await?, &view.task_name, group.as_deref());
    }
    if row.state.is_terminal() && row.parent().is_none() {
        let filter = InstanceFilter { task: Some(view.task_name.clone()), whole: true, limit: FIRINGS_MAX, ..InstanceFilter::default() };
        let query = InstanceQuery {
            filter,
            fired_from: Some(row.fire_time),
            fired_until: Some(row.fire_time.saturating_add(Millis(1))),
            created_from: Some(row.created_at()),
            look_at: LOOK_AT,
            ..InstanceQuery::default()
        };
        let of_time = api.store.instance_page(query).await?.instances;
        let reruns = of_time.iter().map(|view| &view.row).filter(|other| (other.ordinal, other.part) == (row.ordinal, row.part));
        past.reruns =
            reruns.filter(|other| other.run > row.run).map(|other| Rerun { id: other.id, run: other.run, state: other.state }).collect();
        past.reruns.sort_unstable_by_key(|rerun| rerun.run);
    }
    if row.is_run() && row.state == InstanceState::Failed {
        let graph = definition.and_then(|definition| definition.workflow.as_ref()).map(|workflow| workflow.graph());
        for node in api.store.nodes(row.id).await? {
            let index = node.row.part.node_index().map(NodeIndex);
            // Those that the end of the run has cancelled have not ended it.
            let has_failed = match node.row.state {
                InstanceState::Failed | InstanceState::TimedOut | InstanceState::DeadLettered => true,
                InstanceState::Cancelled => node.row.transitions.last().is_some_and(|last| last.cause != Cause::ParentEnded),
                _ => false,
            };
            if let Some((graph, index)) = graph.zip(index).filter(|_| has_failed) {
                past.failed_nodes.push((graph.name(index).clone(), node.row.id));
            }
        }
    }
    Ok(past)
}

/// Why no worker has it yet.
async fn route<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    row: &InstanceRow,
    definition: Option<&Arc<TaskDefinition>>,
) -> Result<Route, ApiError> {
    let own = cluster::own_status(api).await;
    let partition = row.id.partition();
    let Some(own) = own.filter(|own| own.partitions.contains(&partition)) else {
        let owner = api.store.partition_views().await?.into_iter().find(|view| view.partition == partition).and_then(|view| view.owner);
        let Some(owner) = owner else { return Ok(Route::NoOwner { partition: partition.0 }) };
        let address = api.store.replicas().await?.into_iter().find(|replica| replica.id == owner).and_then(|replica| replica.address);
        return Ok(Route::Elsewhere { replica: owner.0.to_string(), address: address.map(|address| address.to_string()) });
    };
    let Some(definition) = definition.map(|definition| definition.of_part(row.part)) else { return Ok(Route::Nothing) };
    if let Some(breaker) = own.breakers.iter().find(|breaker| Some(&breaker.downstream) == definition.downstream.as_ref())
        && !matches!(breaker.state, BreakerState::Closed)
    {
        let downstream = breaker.downstream.clone();
        return Ok(Route::Breaker { downstream, failures: breaker.failures, probe_in: breaker.opens_in });
    }
    let needs = Needs::of(&definition, row);
    let waiting = own.waiting.iter().find(|waiting| waiting.needs == needs);
    Ok(match waiting {
        Some(waiting) => match waiting.nobody {
            Some(nobody) => Route::Nobody(nobody, needs),
            None => Route::Full { waiting: waiting.waiting },
        },
        None => Route::Nothing,
    })
}

pub(crate) async fn task<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asked(when): Asked<When>,
) -> Result<Json<TaskExplained>, ApiError> {
    let (view, versions) = tasks::find(&api, &name).await?;
    let newest = versions.first().and_then(|newest| decode(&api, newest)).or_else(|| {
        // Of a removed task, the zone that it had last.
        versions.iter().find(|version| version.document.is_some()).and_then(|version| decode(&api, version))
    });
    let at = when.at.unwrap_or_else(|| api.clock.now().wall.to_string());
    let (from, until) = stretch(&at, newest.as_deref())?;
    let version = versions.iter().find(|version| version.at < until);
    let definition = version.and_then(|version| decode(&api, version));
    let page = |from: Option<Timestamp>, until: Timestamp, limit: usize| {
        let filter = InstanceFilter { task: Some(view.name.clone()), whole: true, limit, ..InstanceFilter::default() };
        let query = InstanceQuery { filter, fired_from: from, fired_until: Some(until), look_at: LOOK_AT, ..InstanceQuery::default() };
        api.store.instance_page(query)
    };
    let firings: Vec<_> = page(Some(from), until, FIRINGS_MAX).await?.instances.iter().map(firing).collect();
    let before = page(None, from, 1).await?.instances.first().map(firing);
    let group = definition.as_ref().and_then(|definition| definition.group.clone());
    let pauses = pauses_in_words(&api.store.pauses().await?, &view.name, group.as_deref());
    let occurrences = api.store.occurrences_around(view.name.clone(), from, until).await?;
    let is_newest = version.is_some_and(|version| version.version == view.version);
    let facts = fire_time::Facts {
        task: view.task,
        from,
        until,
        now: api.clock.now().wall,
        made_at: versions.last().map_or(from, |first| first.at),
        version: version.map(|version| (version.version, version.at)),
        was_removed: version.is_some_and(|version| version.document.is_none()),
        definition: definition.as_deref(),
        firings: &firings,
        occurrences: &occurrences,
        is_in_force: is_newest,
        cursor: view.next_fire.filter(|_| is_newest),
        pauses: &pauses,
        before: before.as_ref(),
    };
    let explained = fire_time::explain(&facts);
    Ok(Json(TaskExplained {
        task: name,
        at: from.to_string(),
        verdict: explained.verdict.name(),
        says: explained.says,
        version: facts.version.map(|(version, _)| version.0),
        fire_time: views::instant(explained.fire_time),
        before: views::instant(explained.before),
        after: views::instant(explained.after),
        instances: firings.iter().map(|firing| firing.id.to_string()).collect(),
    }))
}

fn firing(view: &InstanceView) -> Firing {
    let row = &view.row;
    let (id, origin, state, run) = (row.id, row.origin, row.state, row.run);
    Firing { id, origin, state, run, fire_time: row.fire_time, created_at: row.created_at() }
}

/// The stretch that a time means: a second, or a millisecond where it says so much. Without an offset it is of the task's own zone.
fn stretch(text: &str, definition: Option<&TaskDefinition>) -> Result<(Timestamp, Timestamp), ApiError> {
    let text = text.trim();
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let zone = definition.and_then(|definition| fire_time::schedule(&definition.trigger)).map(|schedule| schedule.zone().clone());
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        zone.unwrap_or(jiff::tz::TimeZone::UTC).to_ambiguous_timestamp(civil).compatible().ok()
    });
    let problem = || format!("{text:?} is not a time; write it as 2026-11-30T02:00:00Z, or in the task's own zone as 2026-11-30T02:00");
    let from = instant.map(|at| Timestamp(at.as_millisecond())).ok_or_else(|| ApiError::BadRequest { field: "at", problem: problem() })?;
    let length = if from.0.rem_euclid(1_000) == 0 && !text.contains('.') { Millis::from_secs(1) } else { Millis(1) };
    Ok((from, from.saturating_add(length)))
}
