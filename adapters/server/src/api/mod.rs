//! The HTTP API under `/api/v1`, for this machine only.
//!
//! It has no sign-in yet, so it listens on loopback alone, and answers only requests that were meant for it: the `Host` must name this
//! machine, and a request that a web page of somebody else's sends is refused.

mod audit;
mod backfills;
mod cluster;
mod dead_letters;
mod error;
mod extract;
mod instances;
pub(crate) mod listener;
mod nodes;
mod pauses;
mod reruns;
mod sources;
mod tasks;
mod triggers;
pub(crate) mod views;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use punctual_core::ids::InboxId;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Catalog, Clock, Signals, Wake};
use punctual_spec::zones::Zones;
use serde_json::json;
use tokio::sync::{mpsc, watch};

pub(crate) use error::{ApiError, describe_chains};
pub(crate) use instances::{cursor, cursor_text, parse_cursor};

use crate::applied::Applied;
use crate::console::{self, Pulse};

/// Most rows of a page.
pub(crate) const PAGE_MAX: usize = 1_000;
/// Rows of a page that doesn't say.
pub(crate) const PAGE_DEFAULT: usize = 50;
/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest name of whoever asks for something, in bytes.
const BY_BYTES_MAX: usize = 256;
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
    /// Why the scheduler can't write, where it can't.
    pub(crate) trouble: watch::Receiver<Option<Arc<str>>>,
    /// What has ended in the last hour.
    pub(crate) pulse: Arc<Pulse>,
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
            trouble: self.trouble.clone(),
            pulse: self.pulse.clone(),
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

/// All routes: those of programs, and the pages of people.
pub(crate) fn router<S: Catalog, C: Clock>(api: Api<S, C>) -> Router {
    let calls = routes(api.clone());
    calls
        .clone()
        .merge(console::routes(api, calls))
        .fallback(console::nothing_here)
        .method_not_allowed_fallback(console::wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(only_for_this_machine))
}

/// The API's own, which pages call as well.
fn routes<S: Catalog, C: Clock>(api: Api<S, C>) -> Router {
    Router::new()
        .route("/health", get(health::<S, C>))
        .route("/api/v1/status", get(status::<S, C>))
        .route("/api/v1/cluster", get(cluster::status::<S, C>))
        .route("/api/v1/sources/{source}", put(sources::apply::<S, C>).layer(DefaultBodyLimit::max(sources::BODY_BYTES_MAX)))
        .route("/api/v1/tasks", get(tasks::list::<S, C>))
        .route("/api/v1/tasks/{name}", get(tasks::detail::<S, C>))
        .route("/api/v1/tasks/{name}/occurrences", get(tasks::occurrences::<S, C>))
        .route("/api/v1/tasks/{name}/backfills", get(backfills::list::<S, C>).post(backfills::ask::<S, C>))
        .route("/api/v1/backfills/{id}/cancel", post(backfills::cancel::<S, C>))
        .route("/api/v1/tasks/{name}/trigger", post(tasks::trigger::<S, C>))
        .route("/api/v1/tasks/{name}/triggers/{key}", delete(triggers::cancel::<S, C>).patch(triggers::reschedule::<S, C>))
        .route("/api/v1/tasks/{name}/pause", post(pauses::pause_task::<S, C>))
        .route("/api/v1/tasks/{name}/resume", post(pauses::resume_task::<S, C>))
        .route("/api/v1/groups/{group}/pause", post(pauses::pause_group::<S, C>))
        .route("/api/v1/groups/{group}/resume", post(pauses::resume_group::<S, C>))
        .route("/api/v1/pause", post(pauses::pause_all::<S, C>))
        .route("/api/v1/resume", post(pauses::resume_all::<S, C>))
        .route("/api/v1/pauses", get(pauses::list::<S, C>))
        .route("/api/v1/dead-letters", get(dead_letters::list::<S, C>))
        .route("/api/v1/dead-letters/replay", post(dead_letters::replay::<S, C>))
        .route("/api/v1/dead-letters/discard", post(dead_letters::discard::<S, C>))
        .route("/api/v1/audit", get(audit::list::<S, C>))
        .route("/api/v1/instances", get(instances::list::<S, C>))
        .route("/api/v1/instances/{id}", get(instances::detail::<S, C>))
        .route("/api/v1/instances/{id}/logs", get(instances::logs::<S, C>))
        .route("/api/v1/instances/{id}/cancel", post(instances::cancel::<S, C>))
        .route("/api/v1/instances/{id}/kill", post(instances::kill::<S, C>))
        .route("/api/v1/instances/{id}/skip", post(instances::skip::<S, C>))
        .route("/api/v1/instances/{id}/rerun", post(reruns::rerun::<S, C>))
        .route("/api/v1/instances/{id}/nodes/{node}", post(nodes::mark::<S, C>))
        .with_state(api)
}

async fn health<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Response, ApiError> {
    api.store.tasks(None, 1).await?;
    if let Some(reason) = api.trouble.borrow().clone() {
        return Err(ApiError::Trouble { reason });
    }
    Ok(axum::Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "tzdata": api.zones.version() })).into_response())
}

async fn status<S: Catalog, C: Clock>(State(api): State<Api<S, C>>) -> Result<Response, ApiError> {
    let counts = api.store.counts().await?;
    let instances: serde_json::Map<_, _> = counts.into_iter().map(|(state, count)| (state.name().to_owned(), json!(count))).collect();
    let now = api.clock.now().wall.to_string();
    Ok(axum::Json(json!({ "version": env!("CARGO_PKG_VERSION"), "tzdata": api.zones.version(), "now": now, "instances": instances }))
        .into_response())
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
