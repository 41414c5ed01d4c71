//! The HTTP API under `/api/v1`. Requests come through the [sign-in](crate::sign_in) first, and each route says what it needs of whoever
//! asks ([`rules`]).

mod accounts;
mod answers;
pub(crate) mod audit;
pub(crate) mod backfills;
mod calendars;
mod cluster;
pub(crate) mod dead_letters;
pub(crate) mod doctor;
mod edits;
mod error;
mod events;
mod explain;
pub(crate) mod extract;
pub(crate) mod failures;
pub(crate) mod fires;
mod handed;
pub(crate) mod instances;
pub(crate) mod listener;
pub(crate) mod logs;
mod nodes;
mod openapi;
mod parts;
pub(crate) mod pauses;
mod places;
mod queries;
mod reruns;
pub(crate) mod rules;
pub(crate) mod sight;
mod sources;
pub(crate) mod tasks;
mod triggers;
pub(crate) mod veil;
pub(crate) mod views;

use std::sync::Arc;
use std::time::Duration;

use aide::axum::routing::{delete_with, get_with, patch_with, post_with, put_with};
use aide::openapi::OpenApi;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use axum::{Json, Router};
use punctual_core::ids::InboxId;
use punctual_driver::accounts::Accounts;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Catalog, Clock, Signals, Wake};
use punctual_spec::zones::Zones;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc, watch};

pub(crate) use edits::days_of;
pub(crate) use error::{ApiError, describe_chains};
use openapi::named;

pub(crate) use instances::cursor;
use rules::{Needs, Routes, Rule};

use crate::applied::Applied;
use crate::console::{self, Pulse};
use crate::events::Events;
use crate::identity::Role;
use crate::logs::Logs;
use crate::sign_in::access::Access;
use crate::sign_in::{self, pages};

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
/// Where the document that describes the API is.
const DOCUMENT: &str = "/openapi.json";
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
    /// What the sign-in keeps in memory.
    pub(crate) access: Arc<Access>,
    /// What has ended in the last hour.
    pub(crate) pulse: Arc<Pulse>,
    /// Lines of attempts.
    pub(crate) logs: Arc<Logs>,
    /// The turn of the one checkup that may be under way.
    pub(crate) checkups: Arc<Semaphore>,
}

/// One checkup at a time: each may keep the database busy for minutes.
pub(crate) fn one_checkup() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
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
            access: self.access.clone(),
            pulse: self.pulse.clone(),
            logs: self.logs.clone(),
            checkups: self.checkups.clone(),
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

/// All routes, those of programs and the pages of people, behind the sign-in.
pub(crate) fn router<S: Catalog + Accounts, C: Clock>(api: Api<S, C>) -> Router {
    let (calls, document, rules) = described(api.clone());
    let writes = answers::Writes::of(&document);
    let known = from_fn_with_state(queries::Queries::of(&document), queries::known);
    let calls: Router = calls.layer(from_fn_with_state((api.clone(), writes), answers::once)).layer(known).with_state(api.clone());
    let (pages, rules_of_pages) = console::routes(api.clone(), calls.clone());
    for Rule { method, path, needs } in rules.iter().chain(&rules_of_pages) {
        assert_eq!(*needs == Needs::Nothing, sign_in::is_public(path), "{method} {path} is for all here, and not there");
    }
    calls
        .merge(pages)
        .fallback(console::nothing_here)
        .method_not_allowed_fallback(console::wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(api, sign_in::guard::<S, C>))
        .layer(from_fn(sign_in::headers::add))
}

/// All routes, the document that describes the API, which is one of them, and what each needs.
fn described<S: Catalog + Accounts, C: Clock>(api: Api<S, C>) -> (Router<Api<S, C>>, OpenApi, Vec<Rule>) {
    let mut document = openapi::document();
    // In a context of its own: descriptions of types are gathered a thread.
    aide::generate::reset_context();
    let (router, mut rules) = routes(api).done(&mut document);
    openapi::complete(&mut document);
    let text: Arc<str> = serde_json::to_string(&document).unwrap_or_default().into();
    let served = move || {
        let body = text.to_string();
        async move { ([(header::CONTENT_TYPE, "application/json")], body) }
    };
    rules.push(Rule { method: Method::GET, path: DOCUMENT, needs: Needs::Nothing });
    (router.route(DOCUMENT, get(served)), document, rules)
}

/// All routes, each with what it needs of whoever asks.
fn routes<S: Catalog + Accounts, C: Clock>(api: Api<S, C>) -> Routes<S, C> {
    use Needs::{Backfill, Everywhere, Group, Instance, Nothing, SignedIn, Somewhere, Task};
    use Role::{Admin, Editor, Operator, Viewer};
    Routes::new(api)
        .api(Method::GET, "/health", Nothing, get_with(health::<S, C>, named("getHealth", "Whether this process works")))
        .api(
            Method::GET,
            "/api/v1/status",
            Somewhere(Viewer),
            get_with(status::<S, C>, named("getStatus", "How many instances are in which state")),
        )
        .api(
            Method::GET,
            "/api/v1/cluster",
            Everywhere(Viewer),
            get_with(cluster::status::<S, C>, named("getCluster", "Replicas, partitions, workers, what waits")),
        )
        .api(
            Method::GET,
            "/api/v1/doctor",
            Everywhere(Viewer),
            get_with(doctor::checkup::<S, C>, named("getCheckup", "What is wrong with the store or the cluster")),
        )
        .api(
            Method::GET,
            "/api/v1/workers",
            Everywhere(Viewer),
            get_with(cluster::workers::<S, C>, named("listWorkers", "The workers of this replica, and their load")),
        )
        .api(
            Method::GET,
            "/api/v1/events",
            Somewhere(Viewer),
            get_with(events::listen::<S, C>, named("listenToEvents", "What changes, as it is committed")),
        )
        .api(
            Method::GET,
            "/api/v1/coming",
            Somewhere(Viewer),
            get_with(fires::coming::<S, C>, named("listComing", "Fire times to come of all tasks, in order")),
        )
        .api(
            Method::GET,
            "/api/v1/calendars",
            Somewhere(Viewer),
            get_with(calendars::list::<S, C>, named("listCalendars", "Days that tasks leave out or add, with those tasks")),
        )
        .api(
            Method::GET,
            "/api/v1/sources/{source}",
            Everywhere(Viewer),
            get_with(sources::show::<S, C>, named("getSource", "A source, and how many tasks it has")),
        )
        .api(
            Method::PUT,
            "/api/v1/sources/{source}",
            Somewhere(Editor),
            put_with(sources::apply::<S, C>, named("putSource", "Makes and changes tasks of one source"))
                .layer(DefaultBodyLimit::max(sources::BODY_BYTES_MAX)),
        )
        .api(Method::GET, "/api/v1/tasks", Somewhere(Viewer), get_with(tasks::list::<S, C>, named("listTasks", "Tasks, by name")))
        .api(
            Method::GET,
            "/api/v1/tasks/{name}",
            Task(Viewer),
            get_with(tasks::detail::<S, C>, named("getTask", "A task with its versions")),
        )
        .api(
            Method::PUT,
            "/api/v1/tasks/{name}",
            Somewhere(Editor),
            put_with(edits::put::<S, C>, named("putTask", "Makes a task, or changes it")),
        )
        .api(
            Method::DELETE,
            "/api/v1/tasks/{name}",
            Task(Editor),
            delete_with(edits::delete::<S, C>, named("deleteTask", "Removes a task; its history stays")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/versions",
            Task(Viewer),
            get_with(edits::versions::<S, C>, named("listVersions", "Versions of a task, newest first")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/versions/{version}",
            Task(Viewer),
            get_with(edits::version::<S, C>, named("getVersion", "A version of a task")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/diff",
            Task(Viewer),
            get_with(edits::diff::<S, C>, named("diffVersions", "What differs between two versions")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/next-fires",
            Task(Viewer),
            get_with(fires::of_task::<S, C>, named("listNextFires", "When a task fires next")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/days",
            Task(Viewer),
            get_with(edits::health::<S, C>, named("listDays", "How the firings of a task ended, a day each")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/occurrences",
            Task(Viewer),
            get_with(tasks::occurrences::<S, C>, named("listOccurrences", "Fire times that were not fired, newest first")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/explain",
            Task(Viewer),
            get_with(explain::task::<S, C>, named("explainTask", "Why a task fired at a time, or did not")),
        )
        .api(
            Method::GET,
            "/api/v1/tasks/{name}/backfills",
            Task(Viewer),
            get_with(backfills::list::<S, C>, named("listBackfills", "The backfills of a task, newest first")),
        )
        .api(
            Method::POST,
            "/api/v1/tasks/{name}/backfills",
            Task(Operator),
            post_with(backfills::ask::<S, C>, named("createBackfill", "Makes fire times up for, or says which there are")),
        )
        .api(
            Method::GET,
            "/api/v1/backfills",
            Somewhere(Viewer),
            get_with(backfills::list_all::<S, C>, named("listAllBackfills", "The backfills of all tasks, newest first")),
        )
        .api(
            Method::POST,
            "/api/v1/backfills/{id}/cancel",
            Backfill(Operator),
            post_with(backfills::cancel::<S, C>, named("cancelBackfill", "Ends a backfill")),
        )
        .api(
            Method::POST,
            "/api/v1/tasks/{name}/trigger",
            Task(Operator),
            post_with(tasks::trigger::<S, C>, named("triggerTask", "Fires a task by hand")),
        )
        .api(
            Method::DELETE,
            "/api/v1/tasks/{name}/triggers/{key}",
            Task(Operator),
            delete_with(triggers::cancel::<S, C>, named("cancelTrigger", "Cancels a trigger whose time has not come")),
        )
        .api(
            Method::PATCH,
            "/api/v1/tasks/{name}/triggers/{key}",
            Task(Operator),
            patch_with(triggers::reschedule::<S, C>, named("rescheduleTrigger", "Puts a trigger off whose time has not come")),
        )
        .api(
            Method::POST,
            "/api/v1/tasks/{name}/pause",
            Task(Operator),
            post_with(pauses::pause_task::<S, C>, named("pauseTask", "Pauses a task")),
        )
        .api(
            Method::POST,
            "/api/v1/tasks/{name}/resume",
            Task(Operator),
            post_with(pauses::resume_task::<S, C>, named("resumeTask", "Lifts the pause of a task")),
        )
        .api(
            Method::POST,
            "/api/v1/groups/{group}/pause",
            Group(Operator),
            post_with(pauses::pause_group::<S, C>, named("pauseGroup", "Pauses the tasks of a group")),
        )
        .api(
            Method::POST,
            "/api/v1/groups/{group}/resume",
            Group(Operator),
            post_with(pauses::resume_group::<S, C>, named("resumeGroup", "Lifts the pause of a group")),
        )
        .api(
            Method::POST,
            "/api/v1/pause",
            Everywhere(Operator),
            post_with(pauses::pause_all::<S, C>, named("pauseAll", "Pauses everything")),
        )
        .api(
            Method::POST,
            "/api/v1/resume",
            Everywhere(Operator),
            post_with(pauses::resume_all::<S, C>, named("resumeAll", "Lifts the pause of everything")),
        )
        .api(
            Method::POST,
            "/api/v1/workers/{worker}/drain",
            Everywhere(Operator),
            post_with(pauses::drain::<S, C>, named("drainWorker", "Gives a worker nothing more")),
        )
        .api(
            Method::POST,
            "/api/v1/workers/{worker}/undrain",
            Everywhere(Operator),
            post_with(pauses::undrain::<S, C>, named("undrainWorker", "Gives a drained worker attempts again")),
        )
        .api(Method::GET, "/api/v1/pauses", Somewhere(Viewer), get_with(pauses::list::<S, C>, named("listPauses", "All pauses")))
        .api(
            Method::GET,
            "/api/v1/dead-letters",
            Somewhere(Viewer),
            get_with(dead_letters::list::<S, C>, named("listDeadLetters", "Dead letters, newest first")),
        )
        .api(
            Method::POST,
            "/api/v1/dead-letters/replay",
            Somewhere(Operator),
            post_with(dead_letters::replay::<S, C>, named("replayDeadLetters", "Runs dead letters again")),
        )
        .api(
            Method::POST,
            "/api/v1/dead-letters/discard",
            Somewhere(Operator),
            post_with(dead_letters::discard::<S, C>, named("discardDeadLetters", "Settles dead letters without running them")),
        )
        .api(
            Method::GET,
            "/api/v1/audit",
            Somewhere(Viewer),
            get_with(audit::list::<S, C>, named("listAudit", "What people have done, newest first")),
        )
        .api(
            Method::GET,
            "/api/v1/instances",
            Somewhere(Viewer),
            get_with(instances::list::<S, C>, named("listInstances", "Instances, newest first")),
        )
        .api(
            Method::GET,
            "/api/v1/instances/{id}",
            Instance(Viewer),
            get_with(instances::detail::<S, C>, named("getInstance", "An instance with its whole story")),
        )
        .api(
            Method::GET,
            "/api/v1/instances/{id}/explain",
            Instance(Viewer),
            get_with(explain::instance::<S, C>, named("explainInstance", "Why an instance is where it is")),
        )
        .api(
            Method::GET,
            "/api/v1/instances/{id}/logs",
            Instance(Viewer),
            get_with(logs::page::<S, C>, named("getLogs", "What the attempts of an instance wrote")),
        )
        .api(
            Method::GET,
            "/api/v1/instances/{id}/logs/stream",
            Instance(Viewer),
            get_with(logs::stream::<S, C>, named("followLogs", "What the attempts of an instance write, as it comes")),
        )
        .api(
            Method::POST,
            "/api/v1/instances/{id}/cancel",
            Instance(Operator),
            post_with(instances::cancel::<S, C>, named("cancelInstance", "Cancels an instance")),
        )
        .api(
            Method::POST,
            "/api/v1/instances/{id}/kill",
            Instance(Operator),
            post_with(instances::kill::<S, C>, named("killInstance", "Ends an instance at once")),
        )
        .api(
            Method::POST,
            "/api/v1/instances/{id}/skip",
            Instance(Operator),
            post_with(instances::skip::<S, C>, named("skipInstance", "Leaves an instance out")),
        )
        .api(
            Method::POST,
            "/api/v1/instances/{id}/rerun",
            Instance(Operator),
            post_with(reruns::rerun::<S, C>, named("rerunInstance", "Runs an instance again")),
        )
        .api(
            Method::GET,
            "/api/v1/instances/{id}/nodes",
            Instance(Viewer),
            get_with(nodes::list::<S, C>, named("listNodes", "The nodes of a workflow's run")),
        )
        .api(
            Method::POST,
            "/api/v1/instances/{id}/nodes/{node}",
            Instance(Operator),
            post_with(nodes::mark::<S, C>, named("markNode", "Says what a node has come to")),
        )
        .api(Method::GET, "/api/v1/me", SignedIn, get_with(accounts::me, named("getMe", "Who asks, and what they may do")))
        .api(
            Method::POST,
            "/api/v1/sign-in",
            Nothing,
            post_with(accounts::sign_in::<S, C>, named("signIn", "Begins a session; its cookie comes with the answer")),
        )
        .api(
            Method::POST,
            "/api/v1/sign-out",
            SignedIn,
            post_with(accounts::sign_out::<S, C>, named("signOut", "Ends the session that asks")),
        )
        .api(Method::GET, "/api/v1/users", Everywhere(Admin), get_with(accounts::users::<S, C>, named("listUsers", "Users, by name")))
        .api(
            Method::POST,
            "/api/v1/users",
            Everywhere(Admin),
            post_with(accounts::add_user::<S, C>, named("addUser", "Adds a user; from the first one on everybody signs in")),
        )
        .api(Method::GET, "/api/v1/users/{user}", Everywhere(Admin), get_with(accounts::user::<S, C>, named("getUser", "A user")))
        .api(
            Method::PATCH,
            "/api/v1/users/{user}",
            Everywhere(Admin),
            patch_with(accounts::edit_user::<S, C>, named("changeUser", "Changes what a user may do, or whether they may sign in")),
        )
        .api(
            Method::DELETE,
            "/api/v1/users/{user}",
            Everywhere(Admin),
            delete_with(accounts::remove_user::<S, C>, named("removeUser", "Removes a user, with their sessions and tokens")),
        )
        .api(
            Method::PUT,
            "/api/v1/users/{user}/password",
            SignedIn,
            put_with(accounts::set_password::<S, C>, named("setPassword", "Sets a password; other sessions of the user end")),
        )
        .api(
            Method::GET,
            "/api/v1/users/{user}/sessions",
            SignedIn,
            get_with(accounts::sessions::<S, C>, named("listSessions", "Sign-ins of a user that have not ended")),
        )
        .api(
            Method::DELETE,
            "/api/v1/users/{user}/sessions",
            SignedIn,
            delete_with(accounts::end_sessions::<S, C>, named("endSessions", "Signs a user out everywhere; tokens stay")),
        )
        .api(
            Method::GET,
            "/api/v1/tokens",
            SignedIn,
            get_with(accounts::tokens::<S, C>, named("listTokens", "Tokens that have not expired, without what they are shown by")),
        )
        .api(
            Method::POST,
            "/api/v1/tokens",
            SignedIn,
            post_with(accounts::make_token::<S, C>, named("makeToken", "Makes a token, which is told this once")),
        )
        .api(
            Method::DELETE,
            "/api/v1/tokens/{token}",
            SignedIn,
            delete_with(accounts::revoke_token::<S, C>, named("revokeToken", "Revokes a token")),
        )
        .get("/sign-in", Nothing, pages::sign_in_form::<S, C>)
        .post("/sign-in", Nothing, pages::sign_in::<S, C>)
        .get("/sign-in/oidc", Nothing, pages::oidc::<S, C>)
        .get("/sign-in/oidc/callback", Nothing, pages::oidc_callback::<S, C>)
        .post("/sign-out", SignedIn, pages::sign_out::<S, C>)
        .get("/first-run", Nothing, pages::first_run_form::<S, C>)
        .post("/first-run", Nothing, pages::first_run::<S, C>)
        .get("/assets/sign-in.css", Nothing, pages::style)
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

#[cfg(test)]
mod tests;
