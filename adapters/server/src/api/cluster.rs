//! The cluster: replicas, partitions, workers, what waits.

use axum::Json;
use axum::extract::State;
use punctual_core::scheduler::{BreakerView, WaitingView, WorkerView};
use punctual_driver::link::{SchedulerStatus, ToSchedulerNode};
use punctual_driver::ports::{Catalog, Clock, PartitionView, ReplicaView};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Api, ApiError};

pub(crate) async fn status<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Json<Value>, ApiError> {
    let (replicas, partitions) = (api.store.replicas().await?, api.store.partition_views().await?);
    let pauses = api.store.pauses().await?;
    let (asker, answer) = oneshot::channel();
    let _ = api.scheduler.send(ToSchedulerNode::Status(asker)).await;
    // A scheduler that has stopped answers nobody; the rest is still worth knowing.
    let own = answer.await.ok();
    let owned = |id: &ReplicaView| partitions.iter().filter(|partition| partition.owner.as_ref() == Some(&id.id)).count();
    let replicas = replicas.iter().map(|view| {
        json!({
            "id": &*view.id.0,
            "address": view.address.as_deref(),
            "since": view.since.to_string(),
            "expires_at": view.expires_at.to_string(),
            "partitions": owned(view),
        })
    });
    Ok(Json(json!({
        "replicas": replicas.collect::<Vec<_>>(),
        "partitions": partitions.iter().map(partition).collect::<Vec<_>>(),
        "workers": own.iter().flat_map(|own: &SchedulerStatus| &own.workers).map(worker).collect::<Vec<_>>(),
        "waiting": own.iter().flat_map(|own| &own.waiting).map(waiting).collect::<Vec<_>>(),
        "breakers": own.iter().flat_map(|own| &own.breakers).map(breaker).collect::<Vec<_>>(),
        "throttled": own.as_ref().map(|own| own.throttled),
        "inbox": partitions.iter().map(|partition| partition.inbox).sum::<u64>(),
        "live": partitions.iter().map(|partition| partition.live).sum::<u64>(),
        "memory": own.as_ref().map(memory),
        "pauses": pauses.iter().map(super::pauses::view).collect::<Vec<_>>(),
        "trouble": api.trouble.borrow().as_deref(),
    })))
}

fn partition(view: &PartitionView) -> Value {
    json!({
        "partition": view.partition.0,
        "owner": view.owner.as_ref().map(|owner| &*owner.0),
        "epoch": view.epoch.0,
        "expires_at": view.owner.is_some().then(|| view.expires_at.to_string()),
        "commits": view.commit_seq,
        "inbox": view.inbox,
        "live": view.live,
    })
}

/// What the replica that answers holds in memory.
fn memory(own: &SchedulerStatus) -> Value {
    let partitions: Vec<u16> = own.partitions.iter().map(|partition| partition.0).collect();
    json!({ "partitions": partitions, "tasks": own.tasks, "instances": own.instances })
}

fn worker(view: &WorkerView) -> Value {
    json!({
        "id": &*view.worker.0,
        "slots": view.slots,
        "held": view.held,
        "connected": view.is_connected,
        "draining": view.is_draining,
        "handlers": view.handlers.iter().map(|handler| &**handler).collect::<Vec<_>>(),
        "tags": view.traits.tags.iter().map(|tag| &**tag).collect::<Vec<_>>(),
        "version": view.traits.version.as_ref().map(|version| version.as_str()),
        "reserved": { "urgent": view.traits.reserved[0], "normal": view.traits.reserved[1] },
    })
}

/// What waits for workers of one kind, and why none can be given it, where none can.
fn waiting(view: &WaitingView) -> Value {
    json!({
        "handler": &*view.needs.handler,
        "tags": view.needs.tags().iter().map(|tag| &**tag).collect::<Vec<_>>(),
        "min_worker_version": view.needs.min_worker_version().map(|version| version.as_str()),
        "worker": view.needs.pinned().map(|worker| &*worker.0),
        "instances": view.waiting,
        "nobody": view.nobody.map(|nobody| nobody.name()),
        "reason": view.nobody.map(|nobody| nobody.reason()),
    })
}

/// A circuit breaker of the replica that answers.
fn breaker(view: &BreakerView) -> Value {
    json!({
        "downstream": &*view.downstream,
        "state": view.state.name(),
        "probe_in_ms": view.opens_in.map(|wait| wait.0),
        "failures": view.failures,
        "held": view.held,
    })
}
