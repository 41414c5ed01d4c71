//! Users and tokens, and who asks.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use punctual_core::time::Millis;
use punctual_driver::accounts::{Accounts, Digest, NewToken, Token, TokenMade, User, UserChange, UserChanged, are_within, common};
use punctual_driver::ports::{Actor, Catalog, Clock};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{Asked, Asker, Body, Client, Named, check_length};
use super::reruns::Reason;
use super::tasks::checked_limit;
use super::{Api, ApiError};
use crate::identity::{Grant, Identity, Role};
use crate::sign_in::origin::Visitor;
use crate::sign_in::{Csrf, Means, flow, secret};

/// Most grants of a user or a token.
const GRANTS_MAX: usize = 100;
/// Longest name of a group or a token, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// How long a token lasts that doesn't say, in days.
const TOKEN_DAYS_DEFAULT: u64 = 90;
/// How long a token lasts at most.
const TOKEN_TIME_MAX: Millis = Millis::from_secs(366 * 86_400);

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedGrant {
    role: String,
    group: Option<String>,
}

fn grants(asked: &[AskedGrant]) -> Result<Arc<[Grant]>, ApiError> {
    let bad = |problem: String| ApiError::BadRequest { field: "grants", problem };
    if asked.len() > GRANTS_MAX {
        return Err(bad(format!("{} are more than {GRANTS_MAX}", asked.len())));
    }
    let one = |asked: &AskedGrant| {
        let all = || Role::ALL.map(Role::name).join(", ");
        let role = Role::from_name(&asked.role).ok_or_else(|| bad(format!("{:?} is not one of {}", asked.role, all())))?;
        if asked.group.as_deref().is_some_and(|group| group.is_empty() || group.len() > TEXT_BYTES_MAX) {
            return Err(bad(format!("a group has 1 to {TEXT_BYTES_MAX} bytes; leave it out for everywhere")));
        }
        Ok(Grant { role, group: asked.group.as_deref().map(Arc::from) })
    };
    asked.iter().map(one).collect()
}

fn shown(grants: &[Grant]) -> Value {
    grants.iter().map(|grant| json!({ "role": grant.role.name(), "group": grant.group.as_deref() })).collect()
}

fn user_view(user: &User) -> Value {
    json!({
        "name": &*user.name,
        "disabled": user.is_disabled,
        "grants": shown(&user.grants),
        "created_at": user.created_at.to_string(),
        "password_at": user.password_at.to_string(),
    })
}

fn token_view(token: &Token) -> Value {
    json!({
        "id": token.id,
        "name": &*token.name,
        "owner": &*token.owner,
        "grants": shown(&token.grants),
        "created_at": token.created_at.to_string(),
        "expires_at": token.expires_at.to_string(),
        "used_at": token.used_at.map(|at| at.to_string()),
    })
}

/// Who asks, and what they may do.
pub(crate) async fn me(Asker(identity): Asker, Extension(means): Extension<Means>, Extension(csrf): Extension<Csrf>) -> Json<Value> {
    let (by, csrf) = match means {
        Means::Here => ("here", Some(csrf.0)),
        Means::Session { .. } => ("session", Some(csrf.0)),
        Means::Token { .. } => ("token", None),
    };
    Json(json!({ "name": &*identity.name, "by": by, "grants": shown(&identity.grants), "csrf": csrf.as_deref() }))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    name: String,
    password: String,
}

/// Begins a session; its cookie comes with the answer.
pub(crate) async fn sign_in<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    client: Client,
    Body(asked): Body<SignIn>,
) -> Result<Response, ApiError> {
    let begun = flow::sign_in(&api, asked.name, asked.password, &headers, (&visitor, &client)).await?;
    let answer = json!({ "name": &*begun.user, "csrf": begun.csrf() });
    Ok(([(header::SET_COOKIE, begun.cookie())], Json(answer)).into_response())
}

/// Ends the session, where there is one.
pub(crate) async fn sign_out<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
    Extension(visitor): Extension<Visitor>,
    client: Client,
) -> Result<Response, ApiError> {
    let Means::Session { digest } = means else { return Ok(Json(json!({ "signed_out": false })).into_response()) };
    let by = Actor { by: identity.name, from: client.from, why: None };
    let ended = api.store.end_session(digest, by, api.clock.now().wall).await?;
    Ok(([(header::SET_COOKIE, flow::no_cookie(&visitor))], Json(json!({ "signed_out": ended }))).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

pub(crate) async fn users<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asked(page): Asked<Page>,
) -> Result<Json<Value>, ApiError> {
    let limit = checked_limit(page.limit)?;
    let users = api.store.users(page.after.map(Arc::from), limit).await?;
    let next = (users.len() == limit).then(|| users.last().map(|last| last.name.to_string())).flatten();
    Ok(Json(json!({ "users": users.iter().map(user_view).collect::<Vec<_>>(), "next": next })))
}

pub(crate) async fn user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(user_view(&find(&api, &name).await?)))
}

async fn find<S: Catalog + Accounts, C: Clock>(api: &Api<S, C>, name: &str) -> Result<User, ApiError> {
    api.store.user(Arc::from(name)).await?.ok_or_else(|| ApiError::NoSuchUser { name: name.to_owned() })
}

async fn change<S: Catalog + Accounts, C: Clock>(api: &Api<S, C>, name: &str, change: UserChange, by: Actor) -> Result<(), ApiError> {
    match api.store.change_user(Arc::from(name), change, by, api.clock.now().wall).await? {
        UserChanged::Done => Ok(()),
        UserChanged::NoSuchUser => Err(ApiError::NoSuchUser { name: name.to_owned() }),
        UserChanged::NameTaken | UserChanged::NotFirst => Err(ApiError::NameTaken { name: name.to_owned() }),
        UserChanged::LastAdmin => Err(ApiError::LastAdmin),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    name: String,
    /// Left out, one is made, and told once.
    password: Option<String>,
    #[serde(default)]
    grants: Vec<AskedGrant>,
    reason: Option<String>,
    by: Option<String>,
}

pub(crate) async fn add_user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    client: Client,
    Body(asked): Body<NewUser>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let by = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    let made = asked.password.is_none().then(secret::random);
    let password = asked.password.or_else(|| made.clone()).unwrap_or_default();
    flow::check_new(&asked.name, &password)?;
    let grants = grants(&asked.grants)?;
    // From the first user on everybody signs in: one who can't let others in would lock all out.
    if !are_within(&[Grant::everywhere(Role::Admin)], &grants) && !api.access.has_users(&*api.store).await? {
        return Err(ApiError::FirstNotAdmin);
    }
    let password = api.access.passwords().hash(password).await;
    change(&api, &asked.name, UserChange::Add { password, grants, as_first: false }, by).await?;
    let mut shown = user_view(&find(&api, &asked.name).await?);
    shown["password"] = json!(made);
    Ok((StatusCode::CREATED, Json(shown)))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserEdit {
    grants: Option<Vec<AskedGrant>>,
    disabled: Option<bool>,
    reason: Option<String>,
    by: Option<String>,
}

pub(crate) async fn edit_user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    client: Client,
    Body(asked): Body<UserEdit>,
) -> Result<Json<Value>, ApiError> {
    let by = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    let edit = match (asked.grants, asked.disabled) {
        (Some(asked), None) => UserChange::SetGrants(grants(&asked)?),
        (None, Some(disabled)) => UserChange::SetDisabled(disabled),
        // Each is a transaction of its own, and half of a change is none.
        _ => {
            let problem = "say what changes: `grants` or `disabled`, and only one of them".to_owned();
            return Err(ApiError::BadRequest { field: "grants", problem });
        }
    };
    change(&api, &name, edit, by).await?;
    Ok(Json(user_view(&find(&api, &name).await?)))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    #[serde(default)]
    password: String,
    /// The one until now; of one's own only.
    current: Option<String>,
    reason: Option<String>,
    by: Option<String>,
}

/// Sets a password: one's own by showing the one until now, anybody's as an admin. Other sessions of the user end.
pub(crate) async fn set_password<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
    Extension(visitor): Extension<Visitor>,
    client: Client,
    Body(asked): Body<NewPassword>,
) -> Result<Json<Value>, ApiError> {
    let by = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    let is_admin = identity.may(Role::Admin, None);
    let is_own = *identity.name == *name && !matches!(means, Means::Here);
    if !is_own && !is_admin {
        return Err(ApiError::Forbidden { role: Role::Admin, group: None });
    }
    // An admin's own password as well: a page that was left open must not be enough to become its user.
    if is_own {
        check_no_token(&means, &identity)?;
        flow::check_password(&api, &name, asked.current.unwrap_or_default(), &visitor).await?;
    }
    flow::check_new_password(&name, &asked.password)?;
    let keep: Option<Digest> = match means {
        Means::Session { digest } if is_own => Some(digest),
        _ => None,
    };
    let password = api.access.passwords().hash(asked.password).await;
    change(&api, &name, UserChange::SetPassword { password, keep }, by).await?;
    Ok(Json(json!({ "name": name })))
}

pub(crate) async fn remove_user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Json<Value>, ApiError> {
    change(&api, &name, UserChange::Remove, reason.actor(client)?).await?;
    Ok(Json(json!({ "removed": name })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenPage {
    owner: Option<String>,
    #[serde(default)]
    all: bool,
    after: Option<u64>,
    limit: Option<usize>,
}

/// One's own tokens; as an admin those of others, or all.
pub(crate) async fn tokens<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(page): Asked<TokenPage>,
) -> Result<Json<Value>, ApiError> {
    let limit = checked_limit(page.limit)?;
    let owner = if page.all { None } else { Some(page.owner.map_or(identity.name.clone(), Arc::from)) };
    if owner.as_ref() != Some(&identity.name) && !identity.may(Role::Admin, None) {
        return Err(ApiError::Forbidden { role: Role::Admin, group: None });
    }
    let tokens = api.store.tokens(owner, page.after.unwrap_or(0), limit, api.clock.now().wall).await?;
    let next = (tokens.len() == limit).then(|| tokens.last().map(|last| last.id)).flatten();
    Ok(Json(json!({ "tokens": tokens.iter().map(token_view).collect::<Vec<_>>(), "next": next })))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedToken {
    name: String,
    /// Left out, it is whoever asks.
    owner: Option<String>,
    /// Left out, it is what its owner may.
    grants: Option<Vec<AskedGrant>>,
    expires_in_s: Option<u64>,
    reason: Option<String>,
    by: Option<String>,
}

/// Makes a token, which is told this once.
pub(crate) async fn make_token<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
    client: Client,
    Body(asked): Body<AskedToken>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let by = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    check_length("name", Some(&asked.name), TEXT_BYTES_MAX)?;
    if asked.name.trim().is_empty() || asked.name.chars().any(char::is_control) {
        let problem = "say what the token is for, without control characters".to_owned();
        return Err(ApiError::BadRequest { field: "name", problem });
    }
    let lasts = Millis::from_secs(asked.expires_in_s.unwrap_or(TOKEN_DAYS_DEFAULT * 86_400));
    if lasts == Millis(0) || lasts > TOKEN_TIME_MAX {
        let problem = format!("{} s is not within 1 to {}, a year", lasts.0 / 1_000, TOKEN_TIME_MAX.0 / 1_000);
        return Err(ApiError::BadRequest { field: "expires_in_s", problem });
    }
    check_no_token(&means, &identity)?;
    let owner = asked.owner.unwrap_or_else(|| identity.name.to_string());
    if *owner != *identity.name && !identity.may(Role::Admin, None) {
        return Err(ApiError::Forbidden { role: Role::Admin, group: None });
    }
    let owned = find(&api, &owner).await?.grants;
    let allowed: Arc<[Grant]> = common(&owned, &identity.grants).into();
    let grants = match asked.grants {
        Some(asked) => grants(&asked)?,
        None => allowed.clone(),
    };
    if !are_within(&grants, &allowed) {
        return Err(ApiError::MoreThanOwner);
    }
    let token = secret::token();
    let digest = secret::digest(&token).unwrap_or_default();
    let new = NewToken { name: asked.name.as_str().into(), owner: owner.as_str().into(), digest, grants: grants.clone(), lasts };
    match api.store.make_token(new, by, api.clock.now().wall).await? {
        TokenMade::Done { id, expires_at } => {
            let told = json!({
                "id": id, "name": asked.name, "owner": owner, "grants": shown(&grants), "expires_at": expires_at.to_string(), "token": token,
            });
            Ok((StatusCode::CREATED, Json(told)))
        }
        TokenMade::NoSuchUser => Err(ApiError::NoSuchUser { name: owner }),
        TokenMade::TooMany => Err(ApiError::TooManyTokens { owner }),
    }
}

/// Whoever finds a token must not be able to outlast it. An admin's could add users in any case.
fn check_no_token(means: &Means, identity: &Identity) -> Result<(), ApiError> {
    match means {
        Means::Token { .. } if !identity.may(Role::Admin, None) => Err(ApiError::NotByToken),
        _ => Ok(()),
    }
}

/// Revokes one's own token; as an admin anybody's.
pub(crate) async fn revoke_token<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Json<Value>, ApiError> {
    let by = reason.actor(client)?;
    let problem = || format!("{id:?} is not a token's number");
    let id: u64 = id.parse().map_err(|_| ApiError::BadRequest { field: "id", problem: problem() })?;
    let owner = (!identity.may(Role::Admin, None)).then(|| identity.name.clone());
    match api.store.revoke_token(id, owner, by, api.clock.now().wall).await? {
        true => Ok(Json(json!({ "revoked": id }))),
        false => Err(ApiError::NoSuchToken { id }),
    }
}
