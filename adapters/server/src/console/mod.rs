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
//! | `logs` | lines of attempts on an instance's page |
//! | `health` | how a task's firings ended over 30 days |
//! | `accounts` | users, tokens, one's own account |
//! | `help` | what codes mean |
//! | `graph` | where the nodes of a workflow go in a drawing |
//! | `fires` | when a task fires next, and why not |
//! | `pulse` | what has ended in the last hour, minute by minute |

mod accounts;
mod assets;
mod calendar;
mod call;
mod cluster;
mod edit;
mod error;
mod fires;
mod form;
mod graph;
mod health;
mod help;
mod instances;
mod lists;
mod logs;
mod overview;
mod page;
mod pulse;
mod runs;
mod show;
mod tasks;
mod terms;
mod why;
mod words;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use punctual_driver::ports::{Catalog, Clock};

use crate::api::rules::{Needs, Rule, allow};
use crate::api::{Api, ApiError};
use crate::identity::Role;

pub(crate) use page::words;
pub(crate) use pulse::Pulse;
pub(crate) use words::Words;

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

/// The routes of all pages, each with what it needs of whoever looks. `calls` are the API's own.
pub(crate) fn routes<S: Catalog, C: Clock>(api: Api<S, C>, calls: Router) -> (Router, Vec<Rule>) {
    use Needs::{Backfill, Everywhere, Instance, Nothing, SignedIn, Somewhere, Task};
    use Role::{Admin, Editor, Operator, Viewer};
    let pages = Pages { api: api.clone(), router: Router::new(), rules: Vec::new() };
    let pages = pages
        .on(Method::GET, "/", Somewhere(Viewer), overview::page::<S, C>)
        .on(Method::GET, "/tasks", Somewhere(Viewer), tasks::list::<S, C>)
        .on(Method::POST, "/tasks", Somewhere(Editor), edit::create::<S, C>)
        .on(Method::GET, "/tasks/new", Everywhere(Editor), edit::new::<S, C>)
        .on(Method::POST, "/tasks/check", Somewhere(Editor), edit::check::<S, C>)
        .on(Method::GET, "/tasks/{name}", Task(Viewer), tasks::detail::<S, C>)
        .on(Method::GET, "/tasks/{name}/edit", Task(Editor), edit::edit::<S, C>)
        .on(Method::POST, "/tasks/{name}/edit", Task(Editor), edit::save::<S, C>)
        .on(Method::POST, "/tasks/{name}/remove", Task(Editor), edit::remove::<S, C>)
        .on(Method::GET, "/tasks/{name}/changes", Task(Viewer), tasks::changes::<S, C>)
        .on(Method::GET, "/tasks/{name}/why", Task(Viewer), why::task::<S, C>)
        .on(Method::POST, "/tasks/{name}/trigger", Task(Operator), tasks::trigger::<S, C>)
        .on(Method::POST, "/tasks/{name}/pause", Task(Operator), tasks::pause::<S, C>)
        .on(Method::POST, "/tasks/{name}/resume", Task(Operator), tasks::resume::<S, C>)
        .on(Method::POST, "/tasks/{name}/backfill", Task(Operator), tasks::backfill::<S, C>)
        .on(Method::GET, "/instances", Somewhere(Viewer), instances::list::<S, C>)
        .on(Method::GET, "/instances/{id}", Instance(Viewer), instances::detail::<S, C>)
        .on(Method::GET, "/instances/{id}/why", Instance(Viewer), why::instance::<S, C>)
        .on(Method::POST, "/instances/{id}/cancel", Instance(Operator), instances::cancel::<S, C>)
        .on(Method::POST, "/instances/{id}/kill", Instance(Operator), instances::kill::<S, C>)
        .on(Method::POST, "/instances/{id}/skip", Instance(Operator), instances::skip::<S, C>)
        .on(Method::POST, "/instances/{id}/rerun", Instance(Operator), instances::rerun::<S, C>)
        .on(Method::POST, "/instances/{id}/nodes/{node}", Instance(Operator), runs::mark::<S, C>)
        .on(Method::GET, "/dead-letters", Somewhere(Viewer), lists::dead_letters_page::<S, C>)
        .on(Method::POST, "/dead-letters/replay", Somewhere(Operator), lists::replay::<S, C>)
        .on(Method::POST, "/dead-letters/discard", Somewhere(Operator), lists::discard::<S, C>)
        .on(Method::GET, "/backfills", Somewhere(Viewer), lists::backfills::<S, C>)
        .on(Method::POST, "/backfills/{id}/cancel", Backfill(Operator), lists::cancel_backfill::<S, C>)
        .on(Method::GET, "/pauses", Somewhere(Viewer), lists::pauses::<S, C>)
        .on(Method::POST, "/pauses/set", Somewhere(Operator), lists::set_pause::<S, C>)
        .on(Method::GET, "/audit", Somewhere(Viewer), lists::audit_page::<S, C>)
        .on(Method::GET, "/workers", Everywhere(Viewer), cluster::workers::<S, C>)
        .on(Method::GET, "/replicas", Everywhere(Viewer), cluster::replicas::<S, C>)
        .on(Method::GET, "/calendar", Somewhere(Viewer), calendar::page::<S, C>)
        .on(Method::GET, "/users", Everywhere(Admin), accounts::users::<S, C>)
        .on(Method::POST, "/users", Everywhere(Admin), accounts::add::<S, C>)
        .on(Method::GET, "/users/{user}", Everywhere(Admin), accounts::user::<S, C>)
        .on(Method::POST, "/users/{user}", Everywhere(Admin), accounts::change::<S, C>)
        .on(Method::GET, "/tokens", SignedIn, accounts::tokens::<S, C>)
        .on(Method::POST, "/tokens", SignedIn, accounts::make_token::<S, C>)
        .on(Method::POST, "/tokens/{token}/revoke", SignedIn, accounts::revoke::<S, C>)
        .on(Method::POST, "/settings/password", SignedIn, accounts::own_password::<S, C>)
        .on(Method::POST, "/settings/sign-out", SignedIn, accounts::own_sessions::<S, C>)
        .on(Method::GET, "/errors/{code}", SignedIn, help::code)
        .on(Method::GET, "/settings", SignedIn, cluster::settings::<S, C>)
        .on(Method::POST, "/preferences", SignedIn, page::preferences::<S, C>)
        .on(Method::GET, "/assets/{name}", Nothing, assets::serve);
    (pages.router.with_state(Console { api, calls }), pages.rules)
}

/// Pages that are being registered.
struct Pages<S, C> {
    api: Api<S, C>,
    router: Router<Console<S, C>>,
    rules: Vec<Rule>,
}

impl<S: Catalog, C: Clock> Pages<S, C> {
    /// Registers a page with what it needs; who lacks that is told so in a page.
    fn on<T: 'static>(mut self, method: Method, path: &'static str, needs: Needs, handler: impl Handler<T, Console<S, C>>) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("a method that routes are for");
        let check = from_fn_with_state((self.api.clone(), needs), check::<S, C>);
        self.router = self.router.route(path, on(filter, handler).route_layer(check));
        self.rules.push(Rule { method, path, needs });
        self
    }
}

/// Lets a request through to its page, or refuses it.
async fn check<S: Catalog, C: Clock>(State((api, needs)): State<(Api<S, C>, Needs)>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let refused = match allow(&api, needs, &mut parts).await {
        Ok(()) => return next.run(Request::from_parts(parts, body)).await,
        Err(ApiError::Forbidden { role, group }) => ConsoleError::Forbidden { role, is_everywhere: group.is_none() },
        Err(error) => error.into(),
    };
    refused.page(&Viewer::of(&parts.headers, &parts.uri, &parts.extensions))
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
    ConsoleError::NoSuchPage.page(&viewer)
}
