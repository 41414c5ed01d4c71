//! Who may do what: each route is registered with what it needs, and there is no other way to register one.
//!
//! Where a route is about a task, an instance, a group or a backfill, it is looked up before the handler runs. Who may not even read it is
//! told that there is no such thing; who may read it, and no more, is told what they lack. Whoever may something everywhere costs no look.

use std::sync::Arc;

use aide::axum::ApiRouter;
use aide::axum::routing::ApiMethodRouter;
use aide::openapi::OpenApi;
use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use punctual_core::ids::InboxId;
use punctual_driver::ports::{Catalog, Clock};
use serde::Deserialize;

use super::{Api, ApiError};
use crate::identity::{Identity, Role};

/// What a route needs of whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it is for all.
    Nothing,
    /// That they have signed in. The handler looks after the rest: it is about themselves.
    SignedIn,
    /// The role in one group at least. The handler leaves out what is of other groups, or refuses it.
    Somewhere(Role),
    /// The role everywhere.
    Everywhere(Role),
    /// The role in the group of the task `{name}`.
    Task(Role),
    /// The role in the group of the task of the instance `{id}`.
    Instance(Role),
    /// The role in the group `{group}`.
    Group(Role),
    /// The role in the group of the task of the backfill `{id}`.
    Backfill(Role),
}

/// A route and what it needs.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) needs: Needs,
}

/// Routes that are being registered.
pub(crate) struct Routes<S, C> {
    api: Api<S, C>,
    router: ApiRouter<Api<S, C>>,
    rules: Vec<Rule>,
}

impl<S: Catalog, C: Clock> Routes<S, C> {
    pub(crate) fn new(api: Api<S, C>) -> Self {
        Routes { api, router: ApiRouter::new(), rules: Vec::new() }
    }

    /// Registers an operation of the API, which its document describes, with what it needs.
    pub(crate) fn api(mut self, method: Method, path: &'static str, needs: Needs, operation: ApiMethodRouter<Api<S, C>>) -> Self {
        let check = from_fn_with_state((self.api.clone(), needs), check::<S, C>);
        self.router = self.router.api_route(path, operation.route_layer(check));
        self.rules.push(Rule { method, path, needs });
        self
    }

    /// Registers a route that the document leaves out, with what it needs.
    pub(crate) fn on<T: 'static>(mut self, method: Method, path: &'static str, needs: Needs, handler: impl Handler<T, Api<S, C>>) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("a method that routes are for");
        let check = from_fn_with_state((self.api.clone(), needs), check::<S, C>);
        self.router = self.router.route(path, on(filter, handler).route_layer(check));
        self.rules.push(Rule { method, path, needs });
        self
    }

    pub(crate) fn get<T: 'static>(self, path: &'static str, needs: Needs, handler: impl Handler<T, Api<S, C>>) -> Self {
        self.on(Method::GET, path, needs, handler)
    }

    pub(crate) fn post<T: 'static>(self, path: &'static str, needs: Needs, handler: impl Handler<T, Api<S, C>>) -> Self {
        self.on(Method::POST, path, needs, handler)
    }

    /// The routes, which add themselves to the document, and their rules.
    pub(crate) fn done(self, document: &mut OpenApi) -> (Router<Api<S, C>>, Vec<Rule>) {
        (self.router.finish_api(document), self.rules)
    }
}

/// Lets a request through to its handler, or refuses it.
async fn check<S: Catalog, C: Clock>(
    State((api, needs)): State<(Api<S, C>, Needs)>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    allow(&api, needs, &mut parts).await?;
    Ok(next.run(Request::from_parts(parts, body)).await)
}

/// Refuses whoever has not what a route needs.
pub(crate) async fn allow<S: Catalog, C: Clock>(api: &Api<S, C>, needs: Needs, parts: &mut Parts) -> Result<(), ApiError> {
    if needs == Needs::Nothing {
        return Ok(());
    }
    let identity = parts.extensions.get::<Identity>().cloned().ok_or(ApiError::NotSignedIn)?;
    let role = match needs {
        Needs::Nothing | Needs::SignedIn => None,
        Needs::Somewhere(role) if identity.may_somewhere(role) => None,
        Needs::Somewhere(role) | Needs::Everywhere(role) if !identity.may(role, None) => {
            return Err(ApiError::Forbidden { role, group: None });
        }
        Needs::Somewhere(_) | Needs::Everywhere(_) => None,
        Needs::Task(role) | Needs::Instance(role) | Needs::Group(role) | Needs::Backfill(role) => Some(role),
    };
    if let Some(role) = role.filter(|role| !identity.may(*role, None)) {
        // Who may it nowhere is told the same of what is there and of what is not.
        if !identity.may_somewhere(role) {
            return Err(ApiError::Forbidden { role, group: None });
        }
        let params = RawPathParams::from_request_parts(parts, &()).await;
        let params = params.map_err(|rejection| ApiError::BadRequest { field: "address", problem: rejection.body_text() })?;
        let named = |name: &str| params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).unwrap_or_default();
        match needs {
            Needs::Group(_) => may(&identity, role, Some(&named("group")), || ApiError::NoSuchGroup { group: named("group") })?,
            Needs::Instance(_) => {
                let id = named("id");
                let task = super::instances::find(api, &id).await?.task_name;
                may_on_task(api, &identity, role, &task, || ApiError::NoSuchInstance { id }).await?;
            }
            Needs::Backfill(_) => {
                let id = named("id");
                let missing = || ApiError::NoSuchBackfill { id: id.clone() };
                let task = task_of_backfill(api, id.parse().map(InboxId).map_err(|_| missing())?).await?.ok_or_else(missing)?;
                may_on_task(api, &identity, role, &task, missing).await?;
            }
            _ => may_on_task(api, &identity, role, &named("name"), || ApiError::NoSuchTask { name: named("name") }).await?,
        }
    }
    Ok(())
}

async fn task_of_backfill<S: Catalog, C: Clock>(api: &Api<S, C>, id: InboxId) -> Result<Option<Arc<str>>, ApiError> {
    match super::backfills::find(api, None, id).await? {
        Some(row) => Ok(api.store.name_of(row.plan.task).await?),
        None => Ok(None),
    }
}

/// Refuses what somebody may not do in a group: as `missing` where they may not read there either.
pub(crate) fn may(identity: &Identity, role: Role, group: Option<&str>, missing: impl FnOnce() -> ApiError) -> Result<(), ApiError> {
    if identity.may(role, group) {
        return Ok(());
    }
    if !identity.may(Role::Viewer, group) {
        return Err(missing());
    }
    Err(ApiError::Forbidden { role, group: group.map(Arc::from) })
}

/// The same of a task, which may be a removed one.
pub(crate) async fn may_on_task<S: Catalog, C: Clock>(
    api: &Api<S, C>,
    identity: &Identity,
    role: Role,
    task: &str,
    missing: impl FnOnce() -> ApiError,
) -> Result<(), ApiError> {
    if identity.may(role, None) {
        return Ok(());
    }
    match group_of(api, task).await? {
        Some(group) => may(identity, role, group.as_deref(), missing),
        None => Err(missing()),
    }
}

#[derive(Deserialize)]
struct Grouped {
    group: Option<String>,
}

/// The group in a task's document.
pub(crate) fn group_in(document: &str) -> Option<Arc<str>> {
    serde_json::from_str::<Grouped>(document).ok().and_then(|grouped| grouped.group).map(Arc::from)
}

/// The group of a task, which may have none; `None`: there is no such task.
pub(crate) async fn group_of<S: Catalog, C: Clock>(api: &Api<S, C>, task: &str) -> Result<Option<Option<Arc<str>>>, ApiError> {
    Ok(api.store.task_now(Arc::from(task)).await?.map(|view| group_in(&view.document)))
}
