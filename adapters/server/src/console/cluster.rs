//! Workers, replicas and partitions, and what this program is.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use punctual_core::breaker::BreakerState;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Clock};

use super::accounts::{SessionLine, sessions};
use super::error::{Answer, answered};
use super::overview::breaker_detail;
use super::page::{Nav, Page, Viewer};
use super::show::{Count, MaybeTime, Time};
use super::words::Words;
use super::{Console, terms};
use crate::sign_in::Means;

struct WorkerLine {
    id: Arc<str>,
    held: usize,
    slots: usize,
    is_connected: bool,
    is_draining: bool,
    is_drained: bool,
    handlers: String,
    tags: String,
    version: String,
}

struct WaitingLine {
    needs: String,
    count: usize,
    nobody: Option<&'static str>,
}

struct BreakerLine {
    downstream: Arc<str>,
    state: &'static str,
    is_open: bool,
    detail: String,
}

#[derive(Template)]
#[template(path = "console/workers.html")]
struct WorkersPage {
    p: Page,
    w: &'static Words,
    is_answered: bool,
    workers: Vec<WorkerLine>,
    waiting: Vec<WaitingLine>,
    breakers: Vec<BreakerLine>,
    throttled: usize,
}

pub(super) async fn workers<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer) -> Response {
    let (w, status) = (viewer.words(), console.status().await);
    let own = status.as_ref();
    let join = |texts: Vec<&str>| texts.join(", ");
    let workers = own.iter().flat_map(|own| &own.workers).map(|worker| WorkerLine {
        id: worker.worker.0.clone(),
        held: worker.held,
        slots: worker.slots,
        is_connected: worker.is_connected,
        is_draining: worker.is_draining,
        is_drained: worker.is_drained,
        handlers: join(worker.handlers.iter().map(|handler| &**handler).collect()),
        tags: join(worker.traits.tags.iter().map(|tag| &**tag).collect()),
        version: worker.traits.version.as_ref().map(|version| version.as_str().to_owned()).unwrap_or_default(),
    });
    let waiting = own.iter().flat_map(|own| &own.waiting).map(|waiting| WaitingLine {
        needs: waiting.needs.to_string(),
        count: waiting.waiting,
        nobody: waiting.nobody.map(|nobody| terms::nobody(nobody, viewer.lang)),
    });
    let breakers = own.iter().flat_map(|own| &own.breakers).map(|breaker| BreakerLine {
        downstream: breaker.downstream.clone(),
        state: terms::breaker(&breaker.state, viewer.lang),
        is_open: breaker.state != BreakerState::Closed,
        detail: breaker_detail(breaker, viewer.lang, w),
    });
    let page = WorkersPage {
        p: viewer.page(Nav::Workers, w.workers),
        w,
        is_answered: own.is_some(),
        workers: workers.collect(),
        waiting: waiting.collect(),
        breakers: breakers.collect(),
        throttled: own.map_or(0, |own| own.throttled),
    };
    viewer.show(&page)
}

struct ReplicaLine {
    id: Arc<str>,
    address: Option<Arc<str>>,
    since: Time,
    expires: Time,
    is_alive: bool,
    partitions: usize,
}

struct PartitionLine {
    number: u16,
    owner: Option<Arc<str>>,
    is_held: bool,
    epoch: u64,
    expires: MaybeTime,
    commits: Count,
    inbox: u64,
    live: Count,
}

#[derive(Template)]
#[template(path = "console/replicas.html")]
struct ReplicasPage {
    p: Page,
    w: &'static Words,
    replicas: Vec<ReplicaLine>,
    partitions: Vec<PartitionLine>,
}

pub(super) async fn replicas<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer) -> Response {
    let answer = show_replicas(&console, &viewer).await;
    answered(&viewer, answer)
}

async fn show_replicas<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer) -> Answer {
    let (w, store) = (viewer.words(), &console.api.store);
    let now: Timestamp = console.api.clock.now().wall;
    let (replicas, partitions) = (store.replicas().await?, store.partition_views().await?);
    let lines = replicas.iter().map(|replica| ReplicaLine {
        id: replica.id.0.clone(),
        address: replica.address.clone(),
        since: Time(replica.since),
        expires: Time(replica.expires_at),
        is_alive: replica.expires_at >= now,
        partitions: partitions.iter().filter(|partition| partition.owner.as_ref() == Some(&replica.id)).count(),
    });
    let of_partition = |partition: &punctual_driver::ports::PartitionView| PartitionLine {
        number: partition.partition.0,
        owner: partition.owner.as_ref().map(|owner| owner.0.clone()),
        is_held: partition.owner.is_some() && partition.expires_at >= now,
        epoch: partition.epoch.0,
        expires: MaybeTime(partition.owner.is_some().then_some(partition.expires_at)),
        commits: Count(partition.commit_seq),
        inbox: partition.inbox,
        live: Count(partition.live),
    };
    let page = ReplicasPage {
        p: viewer.page(Nav::Replicas, w.replicas),
        w,
        replicas: lines.collect(),
        partitions: partitions.iter().map(of_partition).collect(),
    };
    Ok(viewer.show(&page))
}

#[derive(Template)]
#[template(path = "console/settings.html")]
struct SettingsPage {
    p: Page,
    w: &'static Words,
    version: &'static str,
    tzdata: String,
    now: Time,
    partitions: usize,
    tasks_in_memory: Option<usize>,
    instances_in_memory: Option<usize>,
    roles: Vec<String>,
    /// The zone that times are shown in; empty: the browser's.
    zone: String,
    zones: Vec<String>,
    /// Where somebody has signed in.
    sessions: Option<Vec<SessionLine>>,
}

pub(super) async fn settings<S: Catalog, C: Clock>(State(console): State<Console<S, C>>, viewer: Viewer) -> Response {
    let answer = show_settings(&console, &viewer).await;
    answered(&viewer, answer)
}

async fn show_settings<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer) -> Answer {
    let w = viewer.words();
    let status = console.status().await;
    let roles = viewer.identity.grants.iter().map(|grant| {
        let role = w.role(grant.role);
        grant.group.as_ref().map_or_else(|| role.to_owned(), |group| format!("{role}, {} {group}", w.fact_group))
    });
    let page = SettingsPage {
        p: viewer.page(Nav::Settings, w.settings),
        w,
        version: env!("CARGO_PKG_VERSION"),
        tzdata: console.api.zones.version().to_string(),
        now: Time(console.api.clock.now().wall),
        partitions: console.api.store.partition_views().await?.len(),
        tasks_in_memory: status.as_ref().map(|status| status.tasks),
        instances_in_memory: status.as_ref().map(|status| status.instances),
        roles: roles.collect(),
        zone: viewer.zone.clone(),
        zones: console.api.zones.names().filter(|name| name.contains('/') || *name == "UTC").map(str::to_owned).collect(),
        sessions: match viewer.means {
            Some(Means::Session { .. }) => Some(sessions(console, viewer, &viewer.identity.name).await?),
            _ => None,
        },
    };
    Ok(viewer.show(&page))
}
