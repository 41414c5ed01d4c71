//! The HTTP API under `/api/v1`, for this machine only.
//!
//! It has no sign-in yet, so it listens on loopback alone, and answers only requests that were meant for it: the `Host` must name this
//! machine, and a request that a web page of somebody else's sends is refused.

mod answers;
mod audit;
mod backfills;
mod cluster;
mod dead_letters;
mod edits;
mod error;
mod events;
mod extract;
mod fires;
mod instances;
pub(crate) mod listener;
mod nodes;
mod openapi;
mod pauses;
mod reruns;
mod sources;
mod tasks;
mod triggers;
pub(crate) mod views;

use std::sync::Arc;
use std::time::Duration;

use aide::axum::ApiRouter;
use aide::axum::routing::{delete_with, get_with, post_with, put_with};
use aide::openapi::OpenApi;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use punctual_core::ids::InboxId;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Catalog, Clock, Signals, Wake};
use punctual_spec::zones::Zones;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

pub(crate) use error::{ApiError, describe_chains};
use openapi::named;

use crate::applied::Applied;
use crate::events::Events;

/// Most rows of a page.
pub(crate) const PAGE_MAX: usize = 1_000;
/// Rows of a page that doesn't say.
pub(crate) const PAGE_DEFAULT: usize = 50;
/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest name of whoever asks for something, in characters.
const BY_CHARACTERS_MAX: usize = 256;
/// How long an answer waits for the owner to apply what was asked for.
const APPLY_WAIT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the handlers need.
pub(crate) struct Api<S, C> {
    /// The store.
    pub(crate) store: Arc<S>,
    /// Its clock.
    pub(crate) clock: Arc<C>,
    /// This process's scheduler.
    pub(crate) scheduler: mpsc::Sender<ToSchedulerNode>,
    /// Wakes owners up.
    pub(crate) signals: Arc<dyn Signals>,
    /// Time zones, for the documents of tasks.
    pub(crate) zones: Arc<Zones>,
    /// The inbox entries that this process's scheduler applies.
    pub(crate) applied: Applied,
    /// The changes that this process commits.
    pub(crate) events: Events,
    /// How many partitions the store has.
    pub(crate) partitions: u16,
    /// Why the scheduler can't write, where it can't.
    pub(crate) trouble: watch::Receiver<Option<Arc<str>>>,
}

impl<S, C> Clone for Api<S, C> {
    fn clone(&self) -> Self {
        Api {
            store: self.store.clone(),
            clock: self.clock.clone(),
            scheduler: self.scheduler.clone(),
            signals: self.signals.clone(),
            zones: self.zones.clone(),
            applied: self.applied.clone(),
            events: self.events.clone(),
            partitions: self.partitions,
            trouble: self.trouble.clone(),
        }
    }
}

impl<S: Catalog, C: Clock> Api<S, C> {
    /// Tells owners that an inbox has a new entry. A signal that is lost costs half a second.
    pub(crate) fn signal(&self) {
        self.signals.wake(Wake::Inbox);
    }

    /// Reads when this replica has applied the entry, and every [`LOOK_AGAIN`] for the case that another one does, until there is something,
    /// for [`APPLY_WAIT`] at most.
    pub(crate) async fn when_applied<T, F: Future<Output = Result<Option<T>, ApiError>>>(
        &self,
        entry: InboxId,
        read: impl Fn() -> F,
    ) -> Result<Option<T>, ApiError> {
        let waiting = async {
            let mut applied = std::pin::pin!(self.applied.wait(entry));
            let mut is_applied = false;
            loop {
                match is_applied {
                    false => is_applied = tokio::time::timeout(LOOK_AGAIN, &mut applied).await.is_ok(),
                    true => tokio::time::sleep(LOOK_AGAIN).await,
                }
                if let Some(found) = read().await? {
                    return Ok(Some(found));
                }
            }
        };
        tokio::time::timeout(APPLY_WAIT, waiting).await.unwrap_or(Ok(None))
    }
}

/// All routes, and the document that describes them.
fn routes<S: Catalog, C: Clock>() -> (Router<Api<S, C>>, OpenApi) {
    let mut document = openapi::document();
    // In a context of its own: descriptions of types are gathered a thread.
    aide::generate::reset_context();
    let sources = put_with(sources::apply::<S, C>, named("putSource", "All tasks of one source, as they are from now on"))
        .get_with(sources::show::<S, C>, named("getSource", "A source, and how many tasks it has"));
    let task = get_with(tasks::detail::<S, C>, named("getTask", "A task with its versions"))
        .put_with(edits::put::<S, C>, named("putTask", "Makes a task, or changes it"))
        .delete_with(edits::delete::<S, C>, named("deleteTask", "Removes a task; its history stays"));
    let backfills = get_with(backfills::list::<S, C>, named("listBackfills", "The backfills of a task, newest first"))
        .post_with(backfills::ask::<S, C>, named("createBackfill", "Makes fire times up for, or says which there are"));
    let trigger = delete_with(triggers::cancel::<S, C>, named("cancelTrigger", "Cancels a trigger whose time has not come"))
        .patch_with(triggers::reschedule::<S, C>, named("rescheduleTrigger", "Puts a trigger off whose time has not come"));
    let router = ApiRouter::new()
        .api_route("/health", get_with(health::<S, C>, named("getHealth", "Whether this process works")))
        .api_route("/api/v1/status", get_with(status::<S, C>, named("getStatus", "How many instances are in which state")))
        .api_route("/api/v1/cluster", get_with(cluster::status::<S, C>, named("getCluster", "Replicas, partitions, workers, what waits")))
        .api_route(
            "/api/v1/workers",
            get_with(cluster::workers::<S, C>, named("listWorkers", "The workers of this replica, and their load")),
        )
        .api_route("/api/v1/events", get_with(events::listen::<S, C>, named("listenToEvents", "What changes, as it is committed")))
        .api_route("/api/v1/coming", get_with(fires::coming::<S, C>, named("listComing", "Fire times to come of all tasks, in order")))
        .api_route("/api/v1/sources/{source}", sources.layer(DefaultBodyLimit::max(sources::BODY_BYTES_MAX)))
        .api_route("/api/v1/tasks", get_with(tasks::list::<S, C>, named("listTasks", "Tasks, by name")))
        .api_route("/api/v1/tasks/{name}", task)
        .api_route(
            "/api/v1/tasks/{name}/versions",
            get_with(edits::versions::<S, C>, named("listVersions", "Versions of a task, newest first")),
        )
        .api_route("/api/v1/tasks/{name}/versions/{version}", get_with(edits::version::<S, C>, named("getVersion", "A version of a task")))
        .api_route("/api/v1/tasks/{name}/diff", get_with(edits::diff::<S, C>, named("diffVersions", "What differs between two versions")))
        .api_route("/api/v1/tasks/{name}/next-fires", get_with(fires::of_task::<S, C>, named("listNextFires", "When a task fires next")))
        .api_route(
            "/api/v1/tasks/{name}/days",
            get_with(edits::health::<S, C>, named("listDays", "How the firings of a task ended, a day each")),
        )
        .api_route(
            "/api/v1/tasks/{name}/occurrences",
            get_with(tasks::occurrences::<S, C>, named("listOccurrences", "Fire times that were not fired, newest first")),
        )
        .api_route("/api/v1/tasks/{name}/backfills", backfills)
        .api_route("/api/v1/backfills/{id}/cancel", post_with(backfills::cancel::<S, C>, named("cancelBackfill", "Ends a backfill")))
        .api_route("/api/v1/tasks/{name}/trigger", post_with(tasks::trigger::<S, C>, named("triggerTask", "Fires a task by hand")))
        .api_route("/api/v1/tasks/{task}/triggers/{key}", trigger)
        .api_route("/api/v1/tasks/{name}/pause", post_with(pauses::pause_task::<S, C>, named("pauseTask", "Pauses a task")))
        .api_route("/api/v1/tasks/{name}/resume", post_with(pauses::resume_task::<S, C>, named("resumeTask", "Lifts the pause of a task")))
        .api_route(
            "/api/v1/groups/{group}/pause",
            post_with(pauses::pause_group::<S, C>, named("pauseGroup", "Pauses the tasks of a group")),
        )
        .api_route(
            "/api/v1/groups/{group}/resume",
            post_with(pauses::resume_group::<S, C>, named("resumeGroup", "Lifts the pause of a group")),
        )
        .api_route("/api/v1/pause", post_with(pauses::pause_all::<S, C>, named("pauseAll", "Pauses everything")))
        .api_route("/api/v1/resume", post_with(pauses::resume_all::<S, C>, named("resumeAll", "Lifts the pause of everything")))
        .api_route("/api/v1/pauses", get_with(pauses::list::<S, C>, named("listPauses", "All pauses")))
        .api_route("/api/v1/dead-letters", get_with(dead_letters::list::<S, C>, named("listDeadLetters", "Dead letters, newest first")))
        .api_route(
            "/api/v1/dead-letters/replay",
            post_with(dead_letters::replay::<S, C>, named("replayDeadLetters", "Runs dead letters again")),
        )
        .api_route(
            "/api/v1/dead-letters/discard",
            post_with(dead_letters::discard::<S, C>, named("discardDeadLetters", "Settles dead letters without running them")),
        )
        .api_route("/api/v1/audit", get_with(audit::list::<S, C>, named("listAudit", "What people have done, newest first")))
        .api_route("/api/v1/instances", get_with(instances::list::<S, C>, named("listInstances", "Instances, newest first")))
        .api_route("/api/v1/instances/{id}", get_with(instances::detail::<S, C>, named("getInstance", "An instance with its whole story")))
        .api_route(
            "/api/v1/instances/{id}/logs",
            get_with(instances::logs::<S, C>, named("getLogs", "What the attempts of an instance wrote")),
        )
        .api_route("/api/v1/instances/{id}/cancel", post_with(instances::cancel::<S, C>, named("cancelInstance", "Cancels an instance")))
        .api_route("/api/v1/instances/{id}/kill", post_with(instances::kill::<S, C>, named("killInstance", "Ends an instance at once")))
        .api_route("/api/v1/instances/{id}/skip", post_with(instances::skip::<S, C>, named("skipInstance", "Leaves an instance out")))
        .api_route("/api/v1/instances/{id}/rerun", post_with(reruns::rerun::<S, C>, named("rerunInstance", "Runs an instance again")))
        .api_route("/api/v1/instances/{id}/nodes", get_with(nodes::list::<S, C>, named("listNodes", "The nodes of a workflow's run")))
        .api_route("/api/v1/instances/{id}/nodes/{node}", post_with(nodes::mark::<S, C>, named("markNode", "Says what a node has come to")))
        .finish_api(&mut document);
    openapi::complete(&mut document);
    (router, document)
}

/// All routes.
pub(crate) fn router<S: Catalog, C: Clock>(api: Api<S, C>) -> Router {
    let (routes, document) = routes::<S, C>();
    let writes = answers::Writes::of(&document);
    let document: Arc<str> = serde_json::to_string(&document).unwrap_or_default().into();
    let served = move || {
        let body = document.to_string();
        async move { ([(header::CONTENT_TYPE, "application/json")], body) }
    };
    routes
        .route("/openapi.json", get(served))
        .fallback(|| async { ApiError::NoSuchPage })
        .method_not_allowed_fallback(|| async { ApiError::MethodNotAllowed })
        .layer(axum::middleware::from_fn_with_state((api.clone(), writes), answers::once))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(only_for_this_machine))
        .with_state(api)
}

/// That this process works.
#[derive(Serialize, JsonSchema)]
struct Health {
    status: &'static str,
    version: &'static str,
    tzdata: String,
}

async fn health<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Json<Health>, ApiError> {
    api.store.tasks(None, 1).await?;
    if let Some(reason) = api.trouble.borrow().clone() {
        return Err(ApiError::Trouble { reason });
    }
    Ok(Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION"), tzdata: api.zones.version().to_string() }))
}

/// How many instances are in which state.
#[derive(Serialize, JsonSchema)]
struct Status {
    version: &'static str,
    tzdata: String,
    now: String,
    /// By the names of states; those without any are left out.
    instances: std::collections::BTreeMap<&'static str, u64>,
}

async fn status<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Json<Status>, ApiError> {
    let instances = api.store.counts().await?.into_iter().map(|(state, count)| (state.name(), count)).collect();
    let (version, now) = (env!("CARGO_PKG_VERSION"), api.clock.now().wall.to_string());
    Ok(Json(Status { version, tzdata: api.zones.version().to_string(), now, instances }))
}

/// Refuses what another machine's name or another site's page has sent: without a sign-in these would be anybody's.
async fn only_for_this_machine(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_this_machine) {
        return ApiError::ForeignHost.into_response();
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && !is_own_request(headers) {
        return ApiError::ForeignOrigin.into_response();
    }
    next.run(request).await
}

fn is_this_machine(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A browser names the page's origin with every request that writes; a program names none.
fn is_own_request(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
    authority.is_some() && authority == host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_routes_but_the_document_are_described() {
        let routes: Vec<_> = include_str!("mod.rs").lines().map(str::trim).filter(|line| line.starts_with(".route(")).collect();
        assert_eq!(routes, [".route(\"/openapi.json\", get(served))"]);
    }

    #[test]
    fn only_loopback_names_are_this_machine() {
        for own in ["localhost", "LOCALHOST:8650", "127.0.0.1:8650", "127.9.9.9", "[::1]:8650", "[::1]"] {
            assert!(is_this_machine(own), "{own}");
        }
        for foreign in ["", "example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1:8650", "[2001:db8::1]:80", "0.0.0.0"]
        {
            assert!(!is_this_machine(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_foreign_page_may_not_write() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (header::HeaderName::from_static(name), header::HeaderValue::from_static(value))).collect()
        };
        assert!(is_own_request(&headers(&[("host", "127.0.0.1:8650")])));
        assert!(is_own_request(&headers(&[("host", "127.0.0.1:8650"), ("origin", "http://127.0.0.1:8650")])));
        assert!(!is_own_request(&headers(&[("host", "127.0.0.1:8650"), ("origin", "http://127.0.0.1:9999")])));
        assert!(!is_own_request(&headers(&[("host", "127.0.0.1:8650"), ("origin", "https://evil.example")])));
        assert!(!is_own_request(&headers(&[("host", "127.0.0.1:8650"), ("origin", "null")])));
        assert!(!is_own_request(&headers(&[("host", "127.0.0.1:8650"), ("sec-fetch-site", "cross-site")])));
    }
}
