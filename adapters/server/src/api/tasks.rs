//! Tasks: list, detail, what became of their fire times, and firing by hand.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract;
use axum::http::StatusCode;
use punctual_core::ids::InboxId;
use punctual_core::inbox::{Submission, ordinal_of};
use punctual_core::instance::{Origin, State};
use punctual_core::limits;
use punctual_core::time::Millis;
use punctual_driver::ports::{Catalog, Clock, InstanceFilter, PauseView, Submitted, TaskPage, TaskQuery, TaskView, VersionView};
use punctual_spec::payload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::answers::IdempotencyKey;
use super::extract::{Asked, Asker, Body, Client, Known, Named};
use super::openapi::{Done, Tagged};
use super::reruns::Reason;
use super::sight::Sight;
use super::{Api, ApiError, PAGE_DEFAULT, PAGE_MAX, edits, fires, views};
use crate::identity::{Identity, Role};

/// A page of something of a task.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// Which tasks; those that have all that is asked for.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// The `next` of the page before.
    pub(crate) after: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    pub(crate) limit: Option<usize>,
    /// Whose names have this in them, in upper or lower case.
    pub(crate) q: Option<String>,
    /// Whose names or descriptions have this in them, in upper or lower case.
    pub(crate) text: Option<String>,
    /// Whose names begin so.
    pub(crate) prefix: Option<String>,
    /// Of this group.
    pub(crate) group: Option<String>,
    /// Of this owner.
    pub(crate) owner: Option<String>,
    /// Whether a pause holds them.
    pub(crate) paused: Option<bool>,
    /// Whether they are enabled.
    pub(crate) enabled: Option<bool>,
    /// Whether they are workflows.
    pub(crate) workflow: Option<bool>,
    /// That ask for workers with this tag: `zone`, or `zone=eu`.
    pub(crate) tag: Option<String>,
    /// That this makes fire.
    #[schemars(regex(pattern = "^(cron|fixed_rate|fixed_delay|delay|manual)$"))]
    pub(crate) trigger: Option<String>,
}

/// Kinds of triggers.
const TRIGGERS: [&str; 5] = ["cron", "fixed_rate", "fixed_delay", "delay", "manual"];
/// So many names are looked at for a page.
const NAMES_LOOKED_AT: usize = 100_000;
/// So many documents are read for a page where what is asked for stands in them.
const DOCUMENTS_LOOKED_AT: usize = 4_000;

impl Filter {
    /// Whether documents have to be read to know.
    fn asks_for_documents(&self) -> bool {
        [&self.owner, &self.text, &self.tag, &self.trigger].iter().any(|field| field.is_some())
            || [self.paused, self.enabled, self.workflow].iter().any(|field| field.is_some())
    }

    fn matches(&self, view: &TaskView, pauses: &[PauseView]) -> bool {
        if !self.asks_for_documents() {
            return true;
        }
        let document: Value = serde_json::from_str(&view.document).unwrap_or_default();
        let is_paused = || !super::pauses::of_task(pauses, &view.name, document["group"].as_str()).is_empty();
        let has_tag = |tag: &String| {
            let (name, value) = tag.split_once('=').map_or((tag.as_str(), None), |(name, value)| (name, Some(value)));
            document["routing"]["tags"][name].as_str().is_some_and(|is| value.is_none_or(|value| value == is))
        };
        let finds = |text: &str, wanted: &str| text.to_lowercase().contains(&wanted.to_lowercase());
        let has_text =
            |wanted: &String| finds(&view.name, wanted) || document["description"].as_str().is_some_and(|text| finds(text, wanted));
        let is_workflow = document["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty());
        let trigger = &document["trigger"];
        let is_of = |kind: &String| trigger.as_str() == Some(kind) || trigger.get(kind).is_some();
        self.owner.as_ref().is_none_or(|owner| document["owner"].as_str() == Some(owner))
            && self.enabled.is_none_or(|enabled| document["enabled"].as_bool().unwrap_or(true) == enabled)
            && self.paused.is_none_or(|paused| is_paused() == paused)
            && self.workflow.is_none_or(|workflow| is_workflow == workflow)
            && self.text.as_ref().is_none_or(has_text)
            && self.tag.as_ref().is_none_or(has_tag)
            && self.trigger.as_ref().is_none_or(is_of)
    }
}

/// A page of tasks, by name.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tasks {
    tasks: Vec<views::TaskShown>,
    /// For `after` of the next call; null: there are no more. A page may have fewer than asked for with more behind it.
    next: Option<String>,
}

pub(crate) async fn list<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Tasks>, ApiError> {
    let (found, pauses, next) = page_of(&api, &identity, &filter).await?;
    let tasks = found.iter().map(|view| views::task(view, &pauses, &api.zones)).collect();
    Ok(Json(Tasks { tasks, next: next.map(|name| name.to_string()) }))
}

/// A page of tasks that somebody sees, the pauses that there are, and behind which name the next page begins.
pub(crate) async fn page_of<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    filter: &Filter,
) -> Result<(Vec<TaskView>, Vec<PauseView>, Option<Arc<str>>), ApiError> {
    let sight = Sight::new(api, identity, Role::Viewer);
    let limit = checked_limit(filter.limit)?;
    if let Some(kind) = filter.trigger.as_ref().filter(|kind| !TRIGGERS.contains(&kind.as_str())) {
        return Err(ApiError::BadRequest { field: "trigger", problem: format!("{kind:?} is not one of {}", TRIGGERS.join(", ")) });
    }
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    let mut query = TaskQuery {
        after: text(&filter.after),
        prefix: text(&filter.prefix),
        contains: text(&filter.q),
        group: text(&filter.group),
        limit,
        look_at: NAMES_LOOKED_AT,
    };
    let pauses = api.store.pauses().await?;
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let next = loop {
        let page = seen_page(api, identity, &query).await?;
        looked_at += page.tasks.len();
        let seen = page.tasks.into_iter().filter(|view| sight.group(super::rules::group_in(&view.document).as_deref()));
        for view in seen.filter(|view| filter.matches(view, &pauses)) {
            if found.len() < limit {
                found.push(view);
            }
        }
        let Some(next) = page.next else { break None };
        if found.len() == limit {
            break found.last().map(|last: &TaskView| last.name.clone());
        }
        if looked_at >= DOCUMENTS_LOOKED_AT || !filter.asks_for_documents() {
            break Some(next);
        }
        query.after = Some(next);
        query.limit = limit.max(500);
    };
    Ok((found, pauses, next))
}

/// A page of tasks of the groups that somebody sees: a page of all would tell in `next` the names of others.
pub(super) async fn seen_page<S: Catalog, C: Clock>(api: &Api<S, C>, identity: &Identity, query: &TaskQuery) -> Result<TaskPage, ApiError> {
    if identity.may(Role::Viewer, None) {
        return Ok(api.store.task_page(query.clone()).await?);
    }
    let groups: BTreeSet<_> = identity.grants.iter().filter_map(|grant| grant.group.clone()).collect();
    let (mut tasks, mut next) = (Vec::new(), None::<Arc<str>>);
    for group in groups.into_iter().filter(|group| query.group.as_ref().is_none_or(|asked| asked == group)) {
        let page = api.store.task_page(TaskQuery { group: Some(group), ..query.clone() }).await?;
        tasks.extend(page.tasks);
        next = [next, page.next].into_iter().flatten().min();
    }
    tasks.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    // Behind the end of one group's page there may be more of it.
    tasks.retain(|task| next.as_ref().is_none_or(|next| task.name <= *next));
    if tasks.len() > query.limit {
        tasks.truncate(query.limit);
        next = tasks.last().map(|last| last.name.clone());
    }
    Ok(TaskPage { tasks, next })
}

/// A task with its versions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TaskDetail {
    #[serde(flatten)]
    task: views::TaskShown,
    /// Newest first.
    versions: Vec<views::VersionShown>,
    /// Missed fire times that still wait to be made up for, of a task that spaces them.
    catching_up: Option<CatchingUp>,
    /// What is odd about when it fires next; null: nothing.
    warning: Option<String>,
}

/// Missed fire times that still wait to be made up for.
#[derive(Serialize, JsonSchema)]
struct CatchingUp {
    left: usize,
    last_begins_at: String,
}

pub(crate) async fn detail<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Named(name): Named,
    known: Known,
) -> Result<Tagged<TaskDetail>, ApiError> {
    let (view, versions) = find(&api, &name).await?;
    let tag = edits::tag(view.version);
    let detail = TaskDetail {
        task: views::task(&view, &api.store.pauses().await?, &api.zones),
        versions: versions.iter().map(views::version).collect(),
        catching_up: catching_up(&api, &view).await?,
        warning: fires::warning(&view, &api.zones, api.clock.now().wall),
    };
    Ok(Tagged { is_known: known.is(&tag), tag, body: Json(detail) })
}

/// A task, also a removed one, and its versions, newest first.
pub(super) async fn find<S: Catalog, C: Clock>(api: &Api<S, C>, name: &str) -> Result<(TaskView, Vec<VersionView>), ApiError> {
    api.store.task(Arc::from(name)).await?.ok_or_else(|| ApiError::NoSuchTask { name: name.to_owned() })
}

/// Missed fire times that still wait to be made up for, of a task that spaces them.
async fn catching_up<S: Catalog, C: Clock>(api: &Api<S, C>, view: &TaskView) -> Result<Option<CatchingUp>, ApiError> {
    let document: Value = serde_json::from_str(&view.document).unwrap_or(Value::Null);
    if document["misfire"].get("rate").is_none() {
        return Ok(None);
    }
    let limit = limits::CATCH_UP_MAX as usize;
    let filter = InstanceFilter { task: Some(view.name.clone()), state: Some(State::Waiting), limit, ..InstanceFilter::default() };
    let waiting = api.store.instances(filter).await?;
    let due: Vec<_> = waiting.iter().filter(|of| of.row.origin == Origin::CatchUp).filter_map(|of| of.row.due_at).collect();
    Ok(due.iter().max().map(|last| CatchingUp { left: due.len(), last_begins_at: last.to_string() }))
}

/// Fire times that were not fired, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Occurrences {
    occurrences: Vec<views::OccurrenceShown>,
}

pub(crate) async fn occurrences<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Named(name): Named,
    Asked(page): Asked<Page>,
) -> Result<Json<Occurrences>, ApiError> {
    let name: Arc<str> = Arc::from(name);
    if api.store.task_now(name.clone()).await?.is_none() {
        return Err(ApiError::NoSuchTask { name: name.to_string() });
    }
    let occurrences = api.store.occurrences(name, checked_limit(page.limit)?).await?;
    Ok(Json(Occurrences { occurrences: occurrences.iter().map(views::occurrence).collect() }))
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trigger {
    /// Any JSON; text is handed over as it is, everything else as its JSON text, character for character.
    #[schemars(with = "Option<Value>")]
    payload: Option<Box<RawValue>>,
    /// In milliseconds; the trigger's own delay where it is left out.
    #[schemars(range(max = limits::DELAY_MAX.0))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    delay_ms: Option<u64>,
    /// The version of the task that the payload was written for: refused where the payload's schema has changed since.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    task_version: Option<u32>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
}

/// What became of a trigger.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Triggered {
    submission: String,
    /// Null: its owner has not made it yet.
    instance: Option<views::InstanceShown>,
}

pub(crate) async fn trigger<S: Catalog, C: Clock>(
    extract::State(api): extract::State<Api<S, C>>,
    Named(name): Named,
    key: IdempotencyKey,
    client: Client,
    Body(trigger): Body<Trigger>,
) -> Result<Done<Triggered>, ApiError> {
    let actor = Reason { reason: trigger.reason, by: trigger.by }.actor(client)?;
    let key = key.0;
    let submission = submission(trigger.payload, trigger.delay_ms, key.clone())?;
    check_payload(&api, &name, submission.payload.as_deref(), trigger.task_version).await?;
    let task: Arc<str> = Arc::from(name.as_str());
    let submitted = api.store.trigger(task, actor, key, vec![submission], api.clock.now().wall).await?;
    let (status, entry) = match submitted {
        Submitted::Accepted { entry } => (StatusCode::ACCEPTED, entry),
        Submitted::Repeated { entry } => (StatusCode::OK, entry),
        Submitted::KeyTaken => return Err(ApiError::KeyTaken),
        _ => return Err(ApiError::NoSuchTask { name }),
    };
    api.signal();
    Ok(Done(status, Json(accepted(&api, entry).await?)))
}

fn submission(payload: Option<Box<RawValue>>, delay_ms: Option<u64>, key: Option<Arc<str>>) -> Result<Submission, ApiError> {
    let payload = payload.map(|payload| serde_json::from_str::<String>(payload.get()).unwrap_or_else(|_| payload.get().to_owned()));
    if payload.as_ref().is_some_and(|payload| payload.len() > limits::PAYLOAD_BYTES_MAX) {
        let problem = format!("is longer than {} bytes; pass a reference to the data instead", limits::PAYLOAD_BYTES_MAX);
        return Err(ApiError::BadRequest { field: "payload", problem });
    }
    let delay = delay_ms.map(Millis);
    if delay.is_some_and(|delay| delay > limits::DELAY_MAX) {
        let problem = format!("is more than {} ms, a hundred years", limits::DELAY_MAX.0);
        return Err(ApiError::BadRequest { field: "delay_ms", problem });
    }
    Ok(Submission { key, payload: payload.map(Arc::from), delay })
}

/// Checks a payload against the schema of the task's version in force, where it has one; and that it was written for the same schema.
async fn check_payload<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    name: &str,
    payload: Option<&str>,
    written_for: Option<u32>,
) -> Result<(), ApiError> {
    let Some(view) = api.store.task_now(Arc::from(name)).await? else {
        return Err(ApiError::NoSuchTask { name: name.to_owned() });
    };
    let document = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let now = document(&view.document);
    let schema = now.get("payload_schema");
    if let Some(written_for) = written_for.filter(|written_for| *written_for != view.version.0) {
        let versions = api.store.task(Arc::from(name)).await?.map(|(_, versions)| versions).unwrap_or_default();
        let version = versions.iter().find(|version| version.version.0 == written_for);
        let Some(older) = version.and_then(|version| version.document.as_deref()).map(document) else {
            return Err(ApiError::NoSuchVersion { task: name.to_owned(), version: written_for });
        };
        if let Some(changes) = payload::changes(older.get("payload_schema"), schema) {
            return Err(ApiError::OlderSchema { written_for, version: view.version.0, changes });
        }
    }
    let Some(schema) = schema else { return Ok(()) };
    fits(api, schema, payload.or_else(|| now["payload"].as_str())).await.map_err(|problem| ApiError::Payload { problem })
}

/// Checks at once that may take longer than the others who wait for a thread should.
static LONG_CHECKS: Semaphore = Semaphore::const_new(2);

/// Checks a payload against a schema. A schema was checked when its task was applied; an older program may have taken more than this one does.
pub(super) async fn fits<S, C>(api: &Api<S, C>, schema: &Value, payload: Option<&str>) -> Result<(), String> {
    let schema = api.zones.payload_schema(schema).map_err(|problem| format!("the task's schema can't be followed any more: {problem}"))?;
    if schema.is_quick(payload) {
        return schema.check(payload);
    }
    let _place = LONG_CHECKS.acquire().await.map_err(|_| "the server ends".to_owned())?;
    let payload = payload.map(str::to_owned);
    let checked = tokio::task::spawn_blocking(move || schema.check(payload.as_deref())).await;
    checked.unwrap_or_else(|_| Err("the check has failed".to_owned()))
}

/// Waits for the owner to apply the entry, so that the caller learns the instance's id.
async fn accepted<S: Catalog, C: Clock>(api: &Api<S, C>, entry: InboxId) -> Result<Triggered, ApiError> {
    let ordinal = ordinal_of(entry, 0);
    let found = api.when_applied(entry, || async move { Ok(api.store.instance_of_submission(ordinal).await?) }).await?;
    Ok(Triggered { submission: entry.to_string(), instance: found.as_ref().map(views::instance) })
}

pub(crate) fn checked_limit(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        limit => Err(ApiError::BadRequest { field: "limit", problem: format!("{limit} is not within 1 to {PAGE_MAX}") }),
    }
}
