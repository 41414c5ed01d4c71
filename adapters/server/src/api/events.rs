//! Server-sent events: what changes, as it is committed.
//!
//! A replica hears at once of the partitions that it has, which the event `scope` names. Of an instance or a task that another one has, which
//! somebody listens to by name, it looks once a second, while somebody does: the story of an instance is in its row, so nothing of it is
//! missed, only later.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response};
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use punctual_core::batch::TaskWrite;
use punctual_core::ids::{InstanceId, PartitionId, TaskId, partition_of};
use punctual_core::instance::InstanceRow;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Clock, InstanceFilter, InstanceView};
use rustc_hash::FxHashMap;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::cluster::{self, WorkerShown};
use super::extract::{Asked, Asker, text_of};
use super::instances::parse_id;
use super::rules::{group_of, may_on_task};
use super::{Api, ApiError, openapi, tasks, veil, views};
use crate::events::{LISTENERS_MAX, Listener, Next};
use crate::identity::{Identity, Role};

/// Events that may wait for a connection; then its listener waits, and loses what finds no room.
const WAITING_MAX: usize = 64;
/// How often something is said where there is nothing to say.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A stream ends after so long, and its listener comes again: what they may see is looked at then.
const STREAM_TIME_MAX: Duration = Duration::from_secs(60);
/// How often what other replicas have is looked at, and who has what.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// So many of the newest instances of a task that another replica has are looked at.
const LOOKED_AT: usize = 50;

/// What to hear of.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this task and its instances only.
    task: Option<String>,
    /// Of this instance only.
    #[schemars(regex(pattern = r"^(0|[1-9][0-9]{0,3})-(0|[1-9][0-9]{0,13})$"))]
    instance: Option<String>,
    /// Of these kinds only, with commas between them; instance and task where it is left out.
    #[schemars(regex(pattern = "^(instance|task|worker|change)(,(instance|task|worker|change))*$"))]
    kinds: Option<String>,
}

/// The event that was heard last, in Last-Event-ID.
pub(crate) struct LastEvent(pub(crate) Option<String>);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for LastEvent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &S) -> Result<Self, ApiError> {
        text_of(parts, axum::http::HeaderName::from_static("last-event-id")).map(LastEvent)
    }
}

impl aide::OperationInput for LastEvent {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let schema = json_schema!({ "type": "string" });
        let last = openapi::header_parameter(
            "Last-Event-ID",
            "The event that was heard last: goes on behind it where that can be, and anew elsewhere",
            schema,
        );
        aide::operation::add_parameters(ctx, operation, [last]);
    }
}

/// Which kinds are wanted.
#[derive(Clone, Copy, Default)]
struct Kinds {
    instance: bool,
    task: bool,
    worker: bool,
    change: bool,
}

impl Kinds {
    fn parse(text: Option<&str>) -> Result<Kinds, ApiError> {
        let mut kinds = Kinds::default();
        for kind in text.unwrap_or("instance,task").split(',') {
            match kind {
                "instance" => kinds.instance = true,
                "task" => kinds.task = true,
                "worker" => kinds.worker = true,
                "change" => kinds.change = true,
                _ => {
                    let problem = format!("{kind:?} is not one of instance, task, worker, change");
                    return Err(ApiError::BadRequest { field: "kinds", problem });
                }
            }
        }
        Ok(kinds)
    }
}

/// An instance has come to another state, or is new.
#[derive(Serialize, JsonSchema)]
struct InstanceEvent {
    #[serde(flatten)]
    instance: views::InstanceShown,
    /// How many steps its story has.
    steps: usize,
}

/// A task was taken over, removed, or has another fire time ahead.
#[derive(Serialize, JsonSchema)]
struct TaskEvent {
    task: String,
    version: Option<u32>,
    next_fire: Option<String>,
}

/// A worker has come, gone, or has another load.
#[derive(Serialize, JsonSchema)]
struct WorkerEvent {
    id: String,
    /// Null: it is gone.
    worker: Option<WorkerShown>,
}

/// Something of what is asked for has changed; told once a second at most, for whoever reads again what they show.
#[derive(Serialize, JsonSchema)]
struct ChangeEvent {}

/// Changes that were not told. `count` is of all changes, not only of those that were asked for.
#[derive(Serialize, JsonSchema)]
struct LostEvent {
    /// Null: that can't be known; read the lists.
    count: Option<u64>,
}

/// What is told at once; of the rest only what was asked for by name, once a second.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
struct ScopeEvent {
    /// The partitions of this replica.
    partitions: Vec<u16>,
    /// How many there are.
    of: usize,
    /// Whether another replica has what was asked for by name: it is looked at once a second.
    looks: bool,
}

/// A stream of events.
pub(crate) struct Stream(ReceiverStream<Result<Event, Infallible>>);

impl IntoResponse for Stream {
    fn into_response(self) -> axum::response::Response {
        Sse::new(self.0).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("still here")).into_response()
    }
}

impl OperationOutput for Stream {
    type Inner = String;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<Response> {
        // Described here, since a stream has no schema of its own.
        for schema in [
            ctx.schema.subschema_for::<InstanceEvent>(),
            ctx.schema.subschema_for::<TaskEvent>(),
            ctx.schema.subschema_for::<WorkerEvent>(),
            ctx.schema.subschema_for::<ChangeEvent>(),
            ctx.schema.subschema_for::<LostEvent>(),
            ctx.schema.subschema_for::<ScopeEvent>(),
        ] {
            drop(schema);
        }
        let description = "Events named instance (InstanceEvent), task (TaskEvent), worker (WorkerEvent), change (ChangeEvent), lost (LostEvent) and scope (ScopeEvent)";
        Some(openapi::event_stream(description))
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, Response)> {
        Self::operation_response(ctx, operation).into_iter().map(|response| (Some(200), response)).collect()
    }
}

pub(crate) async fn listen<S: Catalog, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(filter): Asked<Filter>,
    last: LastEvent,
) -> Result<Stream, ApiError> {
    let kinds = Kinds::parse(filter.kinds.as_deref())?;
    // Workers are of no group.
    if kinds.worker && !identity.may(Role::Viewer, None) {
        return Err(ApiError::Forbidden { role: Role::Viewer, group: None });
    }
    let task = match &filter.task {
        None => None,
        Some(name) => {
            may_on_task(&api, &identity, Role::Viewer, name, || ApiError::NoSuchTask { name: name.clone() }).await?;
            Some((tasks::find(&api, name).await?.0.task, Arc::<str>::from(name.as_str())))
        }
    };
    let instance = match &filter.instance {
        None => None,
        Some(text) => {
            let id = parse_id(text)?;
            let missing = || ApiError::NoSuchInstance { id: text.clone() };
            let view = api.store.instance(id).await?.ok_or_else(missing)?;
            may_on_task(&api, &identity, Role::Viewer, &view.task_name, missing).await?;
            Some(view.row.id)
        }
    };
    let (after, is_unknown) = match last.0.as_deref().map(|text| parse_last(text, api.events.life())) {
        None => (None, false),
        Some(Some(number)) => (Some(number), false),
        // Of another life of this process, or of another replica.
        Some(None) => (None, true),
    };
    let listener = api.events.listen(&identity.name, after).ok_or(ApiError::TooManyListeners { most: LISTENERS_MAX })?;
    let (events, stream) = mpsc::channel(WAITING_MAX);
    let names = FxHashMap::default();
    let is_seen = FxHashMap::default();
    let teller = Teller {
        api,
        identity,
        is_seen,
        events,
        kinds,
        task,
        instance,
        names,
        scope: None,
        workers: BTreeMap::new(),
        seen: None,
        is_changed: false,
        change_told: None,
    };
    tokio::spawn(teller.run(listener, is_unknown));
    Ok(Stream(ReceiverStream::new(stream)))
}

/// The number of an event of this life.
fn parse_last(text: &str, life: u64) -> Option<u64> {
    let (of, number) = text.split_once('-')?;
    if u64::from_str_radix(of, 16).ok()? != life {
        return None;
    }
    number.parse().ok()
}

/// Nobody listens any more.
struct Gone;

/// Tells one connection.
struct Teller<S, C> {
    api: Api<S, C>,
    identity: Identity,
    /// Which tasks whoever listens may see, where they don't see all.
    is_seen: FxHashMap<Arc<str>, bool>,
    events: mpsc::Sender<Result<Event, Infallible>>,
    kinds: Kinds,
    task: Option<(TaskId, Arc<str>)>,
    instance: Option<InstanceId>,
    /// Names of tasks, each read once.
    names: FxHashMap<TaskId, Arc<str>>,
    scope: Option<ScopeEvent>,
    workers: BTreeMap<String, WorkerShown>,
    /// How many steps the stories have that were looked at.
    seen: Option<BTreeMap<InstanceId, usize>>,
    /// Whether something has changed since that was told last.
    is_changed: bool,
    change_told: Option<Instant>,
}

impl<S: Catalog, C: Clock> Teller<S, C> {
    async fn run(mut self, mut listener: Listener, is_unknown: bool) {
        let _ = self.tell_all(&mut listener, is_unknown).await;
    }

    async fn tell_all(&mut self, listener: &mut Listener, is_unknown: bool) -> Result<(), Gone> {
        if is_unknown {
            self.tell("lost", listener.heard(), &LostEvent { count: None }).await?;
        }
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let gone = self.events.clone();
        let mut is_over = std::pin::pin!(tokio::time::sleep(STREAM_TIME_MAX));
        loop {
            tokio::select! {
                biased;
                () = gone.closed() => return Err(Gone),
                () = &mut is_over => return Ok(()),
                _ = look.tick() => {
                    self.look(listener.heard()).await?;
                    self.tell_change(listener.heard()).await?;
                }
                next = listener.next() => match next {
                    None => return Ok(()),
                    Some(Next::Lost(count)) => self.tell("lost", listener.heard(), &LostEvent { count: Some(count) }).await?,
                    Some(Next::Batch(numbered, skip)) => {
                        let rows = numbered.batch.inserts.iter().chain(numbered.batch.updates.iter().map(|update| &update.row));
                        for (number, row) in (numbered.before + 1..).zip(rows).skip(skip as usize) {
                            self.tell_instance(number, row).await?;
                        }
                        let rows = numbered.batch.inserts.len() + numbered.batch.updates.len();
                        let tasks = (numbered.before + 1 + rows as u64..).zip(&numbered.batch.tasks);
                        for (number, write) in tasks.skip((skip as usize).saturating_sub(rows)) {
                            self.tell_task(number, write).await?;
                        }
                        self.tell_change(listener.heard()).await?;
                    }
                },
            }
        }
    }

    async fn tell(&self, kind: &'static str, number: u64, data: &impl Serialize) -> Result<(), Gone> {
        let data = serde_json::to_string(data).unwrap_or_default();
        let event = Event::default().event(kind).id(format!("{:x}-{number}", self.api.events.life())).data(data);
        self.events.send(Ok(event)).await.map_err(|_| Gone)
    }

    /// Tells that something has changed, unless that was told just now: then the next look does.
    async fn tell_change(&mut self, number: u64) -> Result<(), Gone> {
        if !self.is_changed || self.change_told.is_some_and(|told| told.elapsed() < LOOK_INTERVAL) {
            return Ok(());
        }
        (self.is_changed, self.change_told) = (false, Some(Instant::now()));
        self.tell("change", number, &ChangeEvent {}).await
    }

    fn is_asked_for(&self, row: &InstanceRow) -> bool {
        (self.kinds.instance || self.kinds.change)
            && self.task.as_ref().is_none_or(|(task, _)| row.task == *task)
            && self.instance.is_none_or(|instance| row.id == instance)
    }

    async fn tell_instance(&mut self, number: u64, row: &InstanceRow) -> Result<(), Gone> {
        if !self.is_asked_for(row) {
            return Ok(());
        }
        // Of many changes it takes one, and no name, to know that there are some.
        self.is_changed |= self.kinds.change && self.identity.may(Role::Viewer, None);
        if self.is_changed && !self.kinds.instance {
            return Ok(());
        }
        let task_name = self.name(row.task).await;
        self.tell_view(number, InstanceView { row: row.clone(), task_name }).await
    }

    async fn tell_view(&mut self, number: u64, view: InstanceView) -> Result<(), Gone> {
        if !self.sees(&view.task_name).await {
            return Ok(());
        }
        self.is_changed |= self.kinds.change;
        if !self.kinds.instance {
            return Ok(());
        }
        let steps = view.row.transitions.len();
        // Who can't be told what they may see comes again.
        let instance = veil::shown(&self.api, &self.identity, view).await.map_err(|_| Gone)?;
        let event = InstanceEvent { instance, steps };
        self.tell("instance", number, &event).await
    }

    async fn tell_task(&mut self, number: u64, write: &TaskWrite) -> Result<(), Gone> {
        if !(self.kinds.task || self.kinds.change)
            || self.instance.is_some()
            || self.task.as_ref().is_some_and(|(task, _)| *task != write.task)
        {
            return Ok(());
        }
        let name = self.name(write.task).await;
        if write.version.is_some() {
            // It may be of another group now.
            self.is_seen.remove(&name);
        }
        if !self.sees(&name).await {
            return Ok(());
        }
        self.is_changed |= self.kinds.change;
        if !self.kinds.task {
            return Ok(());
        }
        let task = name.to_string();
        let event = TaskEvent { task, version: write.version.map(|version| version.0), next_fire: views::instant(write.next_fire) };
        self.tell("task", number, &event).await
    }

    async fn sees(&mut self, task: &Arc<str>) -> bool {
        if self.identity.may(Role::Viewer, None) {
            return true;
        }
        if let Some(known) = self.is_seen.get(task) {
            return *known;
        }
        let Ok(group) = group_of(&self.api, task).await else { return false };
        let is_seen = group.is_some_and(|group| self.identity.may(Role::Viewer, group.as_deref()));
        self.is_seen.insert(task.clone(), is_seen);
        is_seen
    }

    async fn name(&mut self, task: TaskId) -> Arc<str> {
        if let Some(name) = self.names.get(&task) {
            return name.clone();
        }
        let name = self.api.store.name_of(task).await.ok().flatten().unwrap_or_default();
        self.names.insert(task, name.clone());
        name
    }

    /// Looks who has which partitions, how the workers are, and how what was asked for by name stands where another replica has it.
    async fn look(&mut self, number: u64) -> Result<(), Gone> {
        let Some(own) = cluster::own_status(&self.api).await else { return Ok(()) };
        let partitions: Vec<u16> = own.partitions.iter().map(|partition| partition.0).collect();
        let of = self.api.partitions;
        let named = match (self.instance, &self.task) {
            (Some(instance), _) => Some(instance.partition()),
            (None, Some((_, name))) => Some(partition_of(name, of)),
            (None, None) => None,
        };
        let looks = named.is_some_and(|PartitionId(partition)| !partitions.contains(&partition));
        let scope = ScopeEvent { partitions, of: usize::from(of), looks };
        if self.scope.as_ref() != Some(&scope) {
            self.tell("scope", number, &scope).await?;
            self.scope = Some(scope);
        }
        if self.kinds.worker {
            let now: BTreeMap<_, _> = own.workers.iter().map(cluster::worker).map(|worker| (worker.id.clone(), worker)).collect();
            let gone: Vec<_> = self.workers.keys().filter(|id| !now.contains_key(*id)).cloned().collect();
            for id in gone {
                self.tell("worker", number, &WorkerEvent { id, worker: None }).await?;
            }
            for (id, worker) in &now {
                if self.workers.get(id) != Some(worker) {
                    self.tell("worker", number, &WorkerEvent { id: id.clone(), worker: Some(worker.clone()) }).await?;
                }
            }
            self.workers = now;
        }
        if looks && (self.kinds.instance || self.kinds.change) { self.look_at_others(number).await } else { Ok(()) }
    }

    async fn look_at_others(&mut self, number: u64) -> Result<(), Gone> {
        let mut views = Vec::new();
        if let Some(instance) = self.instance {
            views.extend(self.api.store.instance(instance).await.ok().flatten());
        } else if let Some((_, name)) = self.task.clone() {
            let filter = InstanceFilter { task: Some(name), limit: LOOKED_AT, ..InstanceFilter::default() };
            views.extend(self.api.store.instances(filter).await.unwrap_or_default());
        }
        // The oldest first, as they came about.
        views.sort_by_key(|view| view.row.transitions.last().map_or(Timestamp(0), |last| last.at));
        let mut seen = BTreeMap::new();
        for view in views {
            let steps = view.row.transitions.len();
            seen.insert(view.row.id, steps);
            // What was there at the first look is no change.
            if self.seen.as_ref().is_some_and(|seen| seen.get(&view.row.id) != Some(&steps)) {
                self.tell_view(number, view).await?;
            }
        }
        self.seen = Some(seen);
        Ok(())
    }
}
