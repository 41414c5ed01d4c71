//! The HTTP API under `/api/v1`. Requests come through the [sign-in](crate::sign_in) first, and each route says what it needs of whoever
//! asks ([`rules`]).

mod accounts;
mod audit;
mod backfills;
mod cluster;
mod dead_letters;
mod error;
pub(crate) mod extract;
mod instances;
pub(crate) mod listener;
mod nodes;
mod pauses;
mod reruns;
pub(crate) mod rules;
mod sight;
mod sources;
mod tasks;
mod triggers;
pub(crate) mod views;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use punctual_core::ids::InboxId;
use punctual_driver::accounts::Accounts;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Catalog, Clock, Signals, Wake};
use punctual_spec::zones::Zones;
use serde_json::json;
use tokio::sync::{mpsc, watch};

pub(crate) use error::{ApiError, describe_chains};

use crate::applied::Applied;
use crate::identity::Role;
use crate::sign_in::access::Access;
use crate::sign_in::{self, pages};
use rules::{Needs, Routes, Rule};

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
    /// What the sign-in keeps in memory.
    pub(crate) access: Arc<Access>,
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
            access: self.access.clone(),
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

/// All routes, behind the sign-in.
pub(crate) fn router<S: Catalog + Accounts, C: Clock>(api: Api<S, C>) -> Router {
    let (router, rules) = routes(api.clone()).done();
    for Rule { method, path, needs } in &rules {
        assert_eq!(*needs == Needs::Nothing, sign_in::is_public(path), "{method} {path} is for all here, and not there");
    }
    router
        .fallback(|| async { ApiError::NoSuchPage })
        .method_not_allowed_fallback(|| async { ApiError::MethodNotAllowed })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(api.clone(), sign_in::guard::<S, C>))
        .layer(from_fn(sign_in::headers::add))
        .with_state(api)
}

/// All routes, each with what it needs of whoever asks.
fn routes<S: Catalog + Accounts, C: Clock>(api: Api<S, C>) -> Routes<S, C> {
    use Needs::{Backfill, Everywhere, Group, Instance, Nothing, SignedIn, Somewhere, Task};
    use Role::{Admin, Editor, Operator, Viewer};
    let apply = sources::apply::<S, C>.layer(DefaultBodyLimit::max(sources::BODY_BYTES_MAX));
    Routes::new(api)
        .get("/health", Nothing, health::<S, C>)
        .get("/api/v1/status", Somewhere(Viewer), status::<S, C>)
        .get("/api/v1/cluster", Everywhere(Viewer), cluster::status::<S, C>)
        .on(Method::PUT, "/api/v1/sources/{source}", Somewhere(Editor), apply)
        .get("/api/v1/tasks", Somewhere(Viewer), tasks::list::<S, C>)
        .get("/api/v1/tasks/{name}", Task(Viewer), tasks::detail::<S, C>)
        .get("/api/v1/tasks/{name}/occurrences", Task(Viewer), tasks::occurrences::<S, C>)
        .get("/api/v1/tasks/{name}/backfills", Task(Viewer), backfills::list::<S, C>)
        .post("/api/v1/tasks/{name}/backfills", Task(Operator), backfills::ask::<S, C>)
        .post("/api/v1/backfills/{id}/cancel", Backfill(Operator), backfills::cancel::<S, C>)
        .post("/api/v1/tasks/{name}/trigger", Task(Operator), tasks::trigger::<S, C>)
        .on(Method::DELETE, "/api/v1/tasks/{name}/triggers/{key}", Task(Operator), triggers::cancel::<S, C>)
        .on(Method::PATCH, "/api/v1/tasks/{name}/triggers/{key}", Task(Operator), triggers::reschedule::<S, C>)
        .post("/api/v1/tasks/{name}/pause", Task(Operator), pauses::pause_task::<S, C>)
        .post("/api/v1/tasks/{name}/resume", Task(Operator), pauses::resume_task::<S, C>)
        .post("/api/v1/groups/{group}/pause", Group(Operator), pauses::pause_group::<S, C>)
        .post("/api/v1/groups/{group}/resume", Group(Operator), pauses::resume_group::<S, C>)
        .post("/api/v1/pause", Everywhere(Operator), pauses::pause_all::<S, C>)
        .post("/api/v1/resume", Everywhere(Operator), pauses::resume_all::<S, C>)
        .get("/api/v1/pauses", Somewhere(Viewer), pauses::list::<S, C>)
        .get("/api/v1/dead-letters", Somewhere(Viewer), dead_letters::list::<S, C>)
        .post("/api/v1/dead-letters/replay", Somewhere(Operator), dead_letters::replay::<S, C>)
        .post("/api/v1/dead-letters/discard", Somewhere(Operator), dead_letters::discard::<S, C>)
        .get("/api/v1/audit", Somewhere(Viewer), audit::list::<S, C>)
        .get("/api/v1/instances", Somewhere(Viewer), instances::list::<S, C>)
        .get("/api/v1/instances/{id}", Instance(Viewer), instances::detail::<S, C>)
        .get("/api/v1/instances/{id}/logs", Instance(Viewer), instances::logs::<S, C>)
        .post("/api/v1/instances/{id}/cancel", Instance(Operator), instances::cancel::<S, C>)
        .post("/api/v1/instances/{id}/kill", Instance(Operator), instances::kill::<S, C>)
        .post("/api/v1/instances/{id}/skip", Instance(Operator), instances::skip::<S, C>)
        .post("/api/v1/instances/{id}/rerun", Instance(Operator), reruns::rerun::<S, C>)
        .post("/api/v1/instances/{id}/nodes/{node}", Instance(Operator), nodes::mark::<S, C>)
        .get("/api/v1/me", SignedIn, accounts::me)
        .post("/api/v1/sign-in", Nothing, accounts::sign_in::<S, C>)
        .post("/api/v1/sign-out", SignedIn, accounts::sign_out::<S, C>)
        .get("/api/v1/users", Everywhere(Admin), accounts::users::<S, C>)
        .post("/api/v1/users", Everywhere(Admin), accounts::add_user::<S, C>)
        .get("/api/v1/users/{user}", Everywhere(Admin), accounts::user::<S, C>)
        .on(Method::PATCH, "/api/v1/users/{user}", Everywhere(Admin), accounts::edit_user::<S, C>)
        .on(Method::DELETE, "/api/v1/users/{user}", Everywhere(Admin), accounts::remove_user::<S, C>)
        .on(Method::PUT, "/api/v1/users/{user}/password", SignedIn, accounts::set_password::<S, C>)
        .get("/api/v1/tokens", SignedIn, accounts::tokens::<S, C>)
        .post("/api/v1/tokens", SignedIn, accounts::make_token::<S, C>)
        .on(Method::DELETE, "/api/v1/tokens/{token}", SignedIn, accounts::revoke_token::<S, C>)
        .get("/sign-in", Nothing, pages::sign_in_form::<S, C>)
        .post("/sign-in", Nothing, pages::sign_in::<S, C>)
        .get("/sign-in/oidc", Nothing, pages::oidc::<S, C>)
        .get("/sign-in/oidc/callback", Nothing, pages::oidc_callback::<S, C>)
        .post("/sign-out", SignedIn, pages::sign_out::<S, C>)
        .get("/first-run", Nothing, pages::first_run_form::<S, C>)
        .post("/first-run", Nothing, pages::first_run::<S, C>)
        .get("/assets/sign-in.css", Nothing, pages::style)
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

#[cfg(test)]
mod tests;
