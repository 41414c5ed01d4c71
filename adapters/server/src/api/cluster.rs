//! The cluster: replicas, partitions, workers, what waits.

use axum::Json;
use axum::extract::State;
use punctual_core::scheduler::{BreakerView, WaitingView, WorkerView};
use punctual_driver::link::{SchedulerStatus, ToSchedulerNode};
use punctual_driver::ports::{Catalog, Clock, DeadLetterFilter, PartitionView, ReplicaView};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::oneshot;

use super::pauses::PauseShown;
use super::views::{self, InstanceShown};
use super::{Api, ApiError, failures};

/// Failures that are shown.
const FAILURES: usize = 5;
/// Dead letters that are counted.
const LETTERS: usize = 100;

/// The cluster as the replica that answers knows it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClusterShown {
    replicas: Vec<ReplicaShown>,
    partitions: Vec<PartitionShown>,
    workers: Vec<WorkerShown>,
    waiting: Vec<WaitingShown>,
    breakers: Vec<BreakerShown>,
    throttled: Option<u64>,
    /// Inbox entries that wait.
    inbox: u64,
    /// Instances that have not ended.
    live: u64,
    memory: Option<MemoryShown>,
    pauses: Vec<PauseShown>,
    /// The latest firings that have failed, whatever became of them since.
    failures: Vec<InstanceShown>,
    /// Dead letters that nobody has settled; a hundred stands for as many or more.
    dead_letters: usize,
    /// Why the replica that answers can't write, where it can't.
    trouble: Option<String>,
}

/// A replica that has said that it is alive.
#[derive(Serialize, JsonSchema)]
struct ReplicaShown {
    id: String,
    address: Option<String>,
    since: String,
    expires_at: String,
    /// How many it has the leases of.
    partitions: usize,
}

/// A partition and who has it.
#[derive(Serialize, JsonSchema)]
struct PartitionShown {
    partition: u16,
    owner: Option<String>,
    epoch: u64,
    expires_at: Option<String>,
    commits: u64,
    inbox: u64,
    live: u64,
}

/// What the replica that answers holds in memory.
#[derive(Serialize, JsonSchema)]
struct MemoryShown {
    partitions: Vec<u16>,
    tasks: usize,
    instances: usize,
}

/// A worker, as the replica that answers knows it.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct WorkerShown {
    pub(crate) id: String,
    /// Attempts that it runs at once.
    slots: usize,
    /// Attempts that it has.
    held: usize,
    connected: bool,
    /// Whether it takes nothing more: it was told to stop, or is drained.
    draining: bool,
    /// Whether that is because somebody drains it; who and why is among the pauses.
    drained: bool,
    handlers: Vec<String>,
    tags: Vec<String>,
    version: Option<String>,
    reserved: ReservedShown,
}

/// Slots that are kept for what is urgent.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
struct ReservedShown {
    urgent: u32,
    normal: u32,
}

/// What waits for workers of one kind, and why none can be given it, where none can.
#[derive(Serialize, JsonSchema)]
struct WaitingShown {
    handler: String,
    tags: Vec<String>,
    min_worker_version: Option<String>,
    worker: Option<String>,
    instances: usize,
    nobody: Option<&'static str>,
    reason: Option<String>,
}

/// A circuit breaker of the replica that answers.
#[derive(Serialize, JsonSchema)]
struct BreakerShown {
    downstream: String,
    state: &'static str,
    probe_in_ms: Option<u64>,
    failures: usize,
    held: usize,
}

/// All workers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Workers {
    workers: Vec<WorkerShown>,
}

/// What this process's scheduler says of itself; nothing where it has stopped.
pub(crate) async fn own_status<S, C>(api: &Api<S, C>) -> Option<SchedulerStatus> {
    let (asker, answer) = oneshot::channel();
    let _ = api.scheduler.send(ToSchedulerNode::Status(asker)).await;
    answer.await.ok()
}

pub(crate) async fn workers<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Json<Workers>, ApiError> {
    let own = own_status(&api).await;
    Ok(Json(Workers { workers: own.iter().flat_map(|own| &own.workers).map(worker).collect() }))
}

pub(crate) async fn status<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Json<ClusterShown>, ApiError> {
    let (replicas, partitions) = (api.store.replicas().await?, api.store.partition_views().await?);
    let pauses = api.store.pauses().await?;
    let failures = failures::latest(&*api.store, FAILURES).await?;
    let letters = api.store.dead_letters(DeadLetterFilter { limit: LETTERS, ..DeadLetterFilter::default() }).await?;
    // A scheduler that has stopped answers nobody; the rest is still worth knowing.
    let own = own_status(&api).await;
    let owned = |id: &ReplicaView| partitions.iter().filter(|partition| partition.owner.as_ref() == Some(&id.id)).count();
    let replicas = replicas.iter().map(|view| ReplicaShown {
        id: view.id.0.to_string(),
        address: view.address.as_deref().map(str::to_owned),
        since: view.since.to_string(),
        expires_at: view.expires_at.to_string(),
        partitions: owned(view),
    });
    Ok(Json(ClusterShown {
        replicas: replicas.collect(),
        partitions: partitions.iter().map(partition).collect(),
        workers: own.iter().flat_map(|own| &own.workers).map(worker).collect(),
        waiting: own.iter().flat_map(|own| &own.waiting).map(waiting).collect(),
        breakers: own.iter().flat_map(|own| &own.breakers).map(breaker).collect(),
        throttled: own.as_ref().map(|own| own.throttled as u64),
        inbox: partitions.iter().map(|partition| partition.inbox).sum(),
        live: partitions.iter().map(|partition| partition.live).sum(),
        memory: own.as_ref().map(memory),
        pauses: pauses.iter().map(super::pauses::view).collect(),
        failures: failures.iter().map(views::instance).collect(),
        dead_letters: letters.len(),
        trouble: api.trouble.borrow().as_deref().map(str::to_owned),
    }))
}

fn partition(view: &PartitionView) -> PartitionShown {
    PartitionShown {
        partition: view.partition.0,
        owner: view.owner.as_ref().map(|owner| owner.0.to_string()),
        epoch: view.epoch.0,
        expires_at: view.owner.is_some().then(|| view.expires_at.to_string()),
        commits: view.commit_seq,
        inbox: view.inbox,
        live: view.live,
    }
}

fn memory(own: &SchedulerStatus) -> MemoryShown {
    let partitions = own.partitions.iter().map(|partition| partition.0).collect();
    MemoryShown { partitions, tasks: own.tasks, instances: own.instances }
}

pub(crate) fn worker(view: &WorkerView) -> WorkerShown {
    WorkerShown {
        id: view.worker.0.to_string(),
        slots: view.slots,
        held: view.held,
        connected: view.is_connected,
        draining: view.is_draining,
        drained: view.is_drained,
        handlers: view.handlers.iter().map(|handler| handler.to_string()).collect(),
        tags: view.traits.tags.iter().map(|tag| tag.to_string()).collect(),
        version: view.traits.version.as_ref().map(|version| version.as_str().to_owned()),
        reserved: ReservedShown { urgent: view.traits.reserved[0], normal: view.traits.reserved[1] },
    }
}

fn waiting(view: &WaitingView) -> WaitingShown {
    WaitingShown {
        handler: view.needs.handler.to_string(),
        tags: view.needs.tags().iter().map(|tag| tag.to_string()).collect(),
        min_worker_version: view.needs.min_worker_version().map(|version| version.as_str().to_owned()),
        worker: view.needs.pinned().map(|worker| worker.0.to_string()),
        instances: view.waiting,
        nobody: view.nobody.map(|nobody| nobody.name()),
        reason: view.nobody.map(|nobody| nobody.reason().to_string()),
    }
}

fn breaker(view: &BreakerView) -> BreakerShown {
    BreakerShown {
        downstream: view.downstream.to_string(),
        state: view.state.name(),
        probe_in_ms: view.opens_in.map(|wait| wait.0),
        failures: view.failures,
        held: view.held,
    }
}
