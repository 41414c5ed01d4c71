//! The console: pages for people, beside the API.
//!
//! Rendered here, with a little script that adds to pages which work without it. What a page shows is read through the store's ports; what
//! it does is a call of the API's own handlers from within the process, so that whatever holds for a program holds for a person, and each
//! action is an API call and a command as well.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `page` | who looks, in which language, and what every page has |
//! | `words`, `terms` | every text, in each language |
//! | `show` | times, durations, states, as HTML |
//! | `assets` | style, script and icon, under addresses that change with them |
//! | `form` | fields of forms and addresses |
//! | `error` | what can't be done, as a page |
//! | `call` | calls of the API |
//! | `overview`, `tasks`, `edit`, `instances`, `runs`, `lists`, `cluster`, `calendar` | the pages |
//! | `graph` | where the nodes of a workflow go in a drawing |
//! | `fires` | when a task fires next, and why not |
//! | `pulse` | what has ended in the last hour, minute by minute |

mod assets;
mod calendar;
mod call;
mod cluster;
mod edit;
mod error;
mod fires;
mod form;
mod graph;
mod instances;
mod lists;
mod overview;
mod page;
mod pulse;
mod runs;
mod show;
mod tasks;
mod terms;
mod words;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use punctual_driver::ports::{Catalog, Clock};

use crate::api::{Api, ApiError};
use crate::identity::Role;

pub(crate) use pulse::Pulse;

use error::ConsoleError;
use page::Viewer;

/// What the pages need.
pub(crate) struct Console<S, C> {
    api: Api<S, C>,
    /// The API's handlers.
    calls: Router,
}

impl<S, C> Clone for Console<S, C> {
    fn clone(&self) -> Self {
        Console { api: self.api.clone(), calls: self.calls.clone() }
    }
}

/// The routes of all pages. `calls` are the API's own.
pub(crate) fn routes<S: Catalog, C: Clock>(api: Api<S, C>, calls: Router) -> Router {
    let console = Console { api, calls };
    Router::new()
        .route("/", get(overview::page::<S, C>))
        .route("/tasks", get(tasks::list::<S, C>).post(edit::create::<S, C>))
        .route("/tasks/new", get(edit::new::<S, C>))
        .route("/tasks/check", post(edit::check::<S, C>))
        .route("/tasks/{name}", get(tasks::detail::<S, C>))
        .route("/tasks/{name}/edit", get(edit::edit::<S, C>).post(edit::save::<S, C>))
        .route("/tasks/{name}/remove", post(edit::remove::<S, C>))
        .route("/tasks/{name}/changes", get(tasks::changes::<S, C>))
        .route("/tasks/{name}/trigger", post(tasks::trigger::<S, C>))
        .route("/tasks/{name}/pause", post(tasks::pause::<S, C>))
        .route("/tasks/{name}/resume", post(tasks::resume::<S, C>))
        .route("/tasks/{name}/backfill", post(tasks::backfill::<S, C>))
        .route("/instances", get(instances::list::<S, C>))
        .route("/instances/{id}", get(instances::detail::<S, C>))
        .route("/instances/{id}/cancel", post(instances::cancel::<S, C>))
        .route("/instances/{id}/kill", post(instances::kill::<S, C>))
        .route("/instances/{id}/skip", post(instances::skip::<S, C>))
        .route("/instances/{id}/rerun", post(instances::rerun::<S, C>))
        .route("/instances/{id}/nodes/{node}", post(runs::mark::<S, C>))
        .route("/dead-letters", get(lists::dead_letters::<S, C>))
        .route("/dead-letters/replay", post(lists::replay::<S, C>))
        .route("/dead-letters/discard", post(lists::discard::<S, C>))
        .route("/backfills", get(lists::backfills::<S, C>))
        .route("/backfills/{id}/cancel", post(lists::cancel_backfill::<S, C>))
        .route("/pauses", get(lists::pauses::<S, C>))
        .route("/pauses/set", post(lists::set_pause::<S, C>))
        .route("/audit", get(lists::audit::<S, C>))
        .route("/workers", get(cluster::workers::<S, C>))
        .route("/replicas", get(cluster::replicas::<S, C>))
        .route("/calendar", get(calendar::page::<S, C>))
        .route("/settings", get(cluster::settings::<S, C>))
        .route("/preferences", post(page::preferences))
        .route("/assets/{name}", get(assets::serve))
        .layer(axum::middleware::from_fn(harden))
        .with_state(console)
}

/// What there is at an address that nothing has: a page for a browser, a problem for a program.
pub(crate) async fn nothing_here(request: Request) -> Response {
    absent(&request, ApiError::NoSuchPage)
}

/// The same where something is done by a form only, and a browser has gone back to it.
pub(crate) async fn wrong_method(request: Request) -> Response {
    absent(&request, ApiError::MethodNotAllowed)
}

fn absent(request: &Request, problem: ApiError) -> Response {
    let accepted = request.headers().get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok());
    let wants_page = accepted.is_some_and(|kinds| kinds.contains("text/html"));
    if !wants_page || request.uri().path().starts_with("/api/") {
        return problem.into_response();
    }
    let viewer = Viewer::of(request.headers(), request.uri(), request.extensions());
    let mut response = ConsoleError::NoSuchPage.page(&viewer);
    protect(&mut response);
    response
}

async fn harden(request: Request, next: Next) -> Response {
    let viewer = Viewer::of(request.headers(), request.uri(), request.extensions());
    // Who reads in some group reads the pages; style and script are nobody's secret.
    let reads = request.uri().path().starts_with("/assets/") || !viewer.identity.grants.is_empty();
    let mut response = if reads { next.run(request).await } else { ConsoleError::Forbidden { role: Role::Viewer }.page(&viewer) };
    protect(&mut response);
    response
}

/// Nothing is loaded from elsewhere, nothing inline is run, and no other site shows the pages in a frame.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

fn protect(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
