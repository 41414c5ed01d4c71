//! Signing in and out, the same for pages and for the API.

use std::sync::Arc;

use axum::http::HeaderMap;
use punctual_driver::accounts::{Accounts, NewSession, UserChange, UserChanged};
use punctual_driver::ports::{Actor, Catalog, Clock};

use super::oidc::Known;
use super::origin::Visitor;
use super::{IDLE_TIME_MAX, SESSION_TIME_MAX, cookie, password, secret};
use crate::api::extract::Client;
use crate::api::{Api, ApiError};
use crate::identity::{Grant, Role};

/// A session that has begun.
pub(crate) struct Begun {
    pub(crate) user: Arc<str>,
    /// What goes into the cookie.
    pub(crate) session: String,
    pub(crate) is_secure: bool,
}

impl Begun {
    /// The header that hands the session to the browser.
    pub(crate) fn cookie(&self) -> axum::http::HeaderValue {
        cookie::set(&self.session, self.is_secure)
    }

    pub(crate) fn csrf(&self) -> String {
        secret::csrf_of(&self.session)
    }
}

/// Begins a session under a new id. What is wrong is not told apart: there is no such name, it is not the password, or the user is disabled.
pub(crate) async fn sign_in<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    name: String,
    password: String,
    headers: &HeaderMap,
    (visitor, client): (&Visitor, &Client),
) -> Result<Begun, ApiError> {
    let checked = check_password(api, &name, password, visitor).await?;
    begin(api, name.into(), checked, headers, (visitor, client)).await
}

/// Whether this is the user's password, and which hash it was checked against. Each try is counted unless it is right.
pub(crate) async fn check_password<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    name: &str,
    password: String,
    visitor: &Visitor,
) -> Result<Arc<str>, ApiError> {
    let access = &api.access;
    access.take_try(name, visitor.address).map_err(|wait| ApiError::TooManyTries { wait })?;
    let user = api.store.user(Arc::from(name)).await?.filter(|_| password.len() <= password::PASSWORD_BYTES_MAX);
    // Users of the provider have none here.
    let hash = user.as_ref().map(|user| user.password.clone()).filter(|hash| !hash.is_empty());
    let is_right = access.passwords.check(password, hash).await;
    match user.filter(|user| is_right && !user.is_disabled) {
        None => Err(ApiError::WrongPassword),
        Some(user) => {
            access.throttle.give_back(name, visitor.address);
            Ok(user.password)
        }
    }
}

async fn begin<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    user: Arc<str>,
    password: Arc<str>,
    headers: &HeaderMap,
    (visitor, client): (&Visitor, &Client),
) -> Result<Begun, ApiError> {
    let session = secret::random();
    let digest = secret::digest(&session).unwrap_or_default();
    let new = NewSession { digest, user: user.clone(), idle_max: IDLE_TIME_MAX, lasts: SESSION_TIME_MAX, password };
    let replaces = cookie::of(headers, visitor.is_secure).and_then(secret::digest);
    let by = Actor { by: user.clone(), from: client.from.clone(), why: None };
    match api.store.begin_session(new, replaces, by, api.clock.now().wall).await? {
        true => Ok(Begun { user, session, is_secure: visitor.is_secure }),
        // Disabled, or another password, since it was looked at.
        false => Err(ApiError::WrongPassword),
    }
}

/// Signs somebody in whom the provider knows: as the user of their name, who may what their groups may now.
pub(crate) async fn known<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    known: Known,
    headers: &HeaderMap,
    (visitor, client): (&Visitor, &Client),
) -> Result<Begun, ApiError> {
    let Known { name, grants } = known;
    let now = api.clock.now().wall;
    let by = Actor { by: name.clone(), from: client.from.clone(), why: Some("groups at the provider".into()) };
    let change = match api.store.user(name.clone()).await? {
        None => Some(UserChange::Add { password: Arc::default(), grants, as_first: false }),
        Some(user) if user.grants != grants => Some(UserChange::SetGrants(grants)),
        Some(_) => None,
    };
    if let Some(change) = change {
        match api.store.change_user(name.clone(), change, by, now).await? {
            // Of two sign-ins at once the other one was first, with the same groups.
            UserChanged::Done | UserChanged::NameTaken => {}
            UserChanged::LastAdmin => return Err(ApiError::LastAdmin),
            UserChanged::NoSuchUser | UserChanged::NotFirst => return Err(ApiError::WrongPassword),
        }
    }
    begin(api, name, Arc::default(), headers, (visitor, client)).await
}

/// Makes the first user, who may everything, and signs them in. The link is good for that once.
pub(crate) async fn first_run<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    key: &str,
    name: String,
    password: String,
    headers: &HeaderMap,
    (visitor, client): (&Visitor, &Client),
) -> Result<Begun, ApiError> {
    let now = api.clock.now().wall;
    if !api.access.is_first_run(key, now) || api.access.has_users(&*api.store).await? {
        return Err(ApiError::LinkOver);
    }
    check_new(&name, &password)?;
    let hash = api.access.passwords.hash(password).await;
    let change = UserChange::Add { password: hash.clone(), grants: [Grant::everywhere(Role::Admin)].into(), as_first: true };
    let user: Arc<str> = name.into();
    let by = Actor { by: user.clone(), from: client.from.clone(), why: Some("the link for the first user".into()) };
    match api.store.change_user(user.clone(), change, by, now).await? {
        UserChanged::Done => {
            api.access.end_first_run();
            begin(api, user, hash, headers, (visitor, client)).await
        }
        _ => Err(ApiError::LinkOver),
    }
}

/// Longest name of a user, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Refuses what can't be a user's name or password.
pub(crate) fn check_new(name: &str, password: &str) -> Result<(), ApiError> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._@+-".contains(character);
    let is_name =
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain);
    if !is_name || [super::LOCAL, "api"].contains(&name) {
        let problem = format!(
            "{name:?} can't be a user's name: it has 1 to {NAME_BYTES_MAX} letters, digits and . _ @ + -, begins with a letter or a digit, and is not \
             `local` or `api`"
        );
        return Err(ApiError::BadRequest { field: "name", problem });
    }
    check_new_password(name, password)
}

/// Refuses what can't be a password.
pub(crate) fn check_new_password(name: &str, password: &str) -> Result<(), ApiError> {
    password::problem(name, password).map_or(Ok(()), |problem| Err(ApiError::UnfitPassword { problem }))
}

/// The header that takes the session from the browser.
pub(crate) fn no_cookie(visitor: &Visitor) -> axum::http::HeaderValue {
    cookie::unset(visitor.is_secure)
}
