//! Users and tokens, and who asks.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use punctual_core::time::Millis;
use punctual_driver::accounts::{Accounts, Digest, NewToken, Token, TokenMade, User, UserChange, UserChanged, are_within, common};
use punctual_driver::ports::{Actor, Catalog, Clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Asked, Asker, Body, Client, Named, check_characters};
use super::openapi::{Made, WithCookie};
use super::reruns::Reason;
use super::tasks::checked_limit;
use super::{Api, ApiError, views};
use crate::identity::{Grant, Identity, Role};
use crate::sign_in::origin::Visitor;
use crate::sign_in::{Csrf, Means, flow, secret};

/// Most grants of a user or a token.
const GRANTS_MAX: usize = 100;
/// Longest name of a group or a token, in characters.
const TEXT_CHARACTERS_MAX: usize = 256;
/// How long a token lasts that doesn't say, in days.
const TOKEN_DAYS_DEFAULT: u64 = 90;
/// How long a token lasts at most.
const TOKEN_TIME_MAX: Millis = Millis::from_secs(366 * 86_400);

/// A role, in one group of tasks or everywhere.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedGrant {
    #[schemars(regex(pattern = "^(viewer|operator|editor|admin)$"))]
    role: String,
    /// Everywhere where it is left out.
    #[schemars(length(min = 1, max = 256))]
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
        if asked.group.as_deref().is_some_and(|group| group.is_empty() || group.chars().nth(TEXT_CHARACTERS_MAX).is_some()) {
            return Err(bad(format!("a group has 1 to {TEXT_CHARACTERS_MAX} characters; leave it out for everywhere")));
        }
        Ok(Grant { role, group: asked.group.as_deref().map(Arc::from) })
    };
    asked.iter().map(one).collect()
}

/// A role that somebody has.
#[derive(Clone, Serialize, JsonSchema)]
struct GrantShown {
    role: &'static str,
    /// Null: everywhere.
    group: Option<String>,
}

fn shown(grants: &[Grant]) -> Vec<GrantShown> {
    grants.iter().map(|grant| GrantShown { role: grant.role.name(), group: grant.group.as_deref().map(str::to_owned) }).collect()
}

/// A user.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserShown {
    name: String,
    /// Whether they may not sign in.
    disabled: bool,
    grants: Vec<GrantShown>,
    created_at: String,
    /// When their password was set last.
    password_at: String,
}

fn user_view(user: &User) -> UserShown {
    UserShown {
        name: user.name.to_string(),
        disabled: user.is_disabled,
        grants: shown(&user.grants),
        created_at: user.created_at.to_string(),
        password_at: user.password_at.to_string(),
    }
}

/// A token, without what it is shown by.
#[derive(Serialize, JsonSchema)]
struct TokenShown {
    id: u64,
    /// What it is for.
    name: String,
    owner: String,
    /// What it is good for, as far as its owner may that.
    grants: Vec<GrantShown>,
    created_at: String,
    expires_at: String,
    /// When it was shown last, to about a minute.
    used_at: Option<String>,
}

fn token_view(token: &Token) -> TokenShown {
    TokenShown {
        id: token.id,
        name: token.name.to_string(),
        owner: token.owner.to_string(),
        grants: shown(&token.grants),
        created_at: token.created_at.to_string(),
        expires_at: token.expires_at.to_string(),
        used_at: views::instant(token.used_at),
    }
}

/// Who asks, and what they may do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Me {
    name: String,
    /// How that is known: `here`, from this machine; `session`; `token`.
    by: &'static str,
    grants: Vec<GrantShown>,
    /// What requests that write with a session have to show as `x-csrf-token`.
    csrf: Option<String>,
}

pub(crate) async fn me(Asker(identity): Asker, Extension(means): Extension<Means>, Extension(csrf): Extension<Csrf>) -> Json<Me> {
    let (by, csrf) = match means {
        Means::Here => ("here", Some(csrf.0)),
        Means::Session { .. } => ("session", Some(csrf.0)),
        Means::Token { .. } => ("token", None),
    };
    let (name, grants) = (identity.name.to_string(), shown(&identity.grants));
    Json(Me { name, by, grants, csrf: csrf.map(|csrf| csrf.to_string()) })
}

/// A name and its password.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    name: String,
    password: String,
}

/// A session has begun.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SignedIn {
    name: String,
    /// What requests that write have to show as `x-csrf-token`.
    csrf: String,
}

/// Begins a session; its cookie comes with the answer.
pub(crate) async fn sign_in<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    client: Client,
    Body(asked): Body<SignIn>,
) -> Result<WithCookie<SignedIn>, ApiError> {
    let begun = flow::sign_in(&api, asked.name, asked.password, &headers, (&visitor, &client)).await?;
    Ok(WithCookie(Some(begun.cookie()), Json(SignedIn { name: begun.user.to_string(), csrf: begun.csrf() })))
}

/// Whether a session has ended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SignedOut {
    /// False: whoever asks has none.
    signed_out: bool,
}

/// Ends the session, where there is one.
pub(crate) async fn sign_out<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
    Extension(visitor): Extension<Visitor>,
    client: Client,
) -> Result<WithCookie<SignedOut>, ApiError> {
    let Means::Session { digest } = means else { return Ok(WithCookie(None, Json(SignedOut { signed_out: false }))) };
    let by = Actor { by: identity.name, from: client.from, why: None };
    let signed_out = api.store.end_session(digest, by, api.clock.now().wall).await?;
    Ok(WithCookie(Some(flow::no_cookie(&visitor)), Json(SignedOut { signed_out })))
}

/// Which users.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// The `next` of the page before.
    after: Option<String>,
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// Users by name.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Users {
    users: Vec<UserShown>,
    /// For `after` of the next call; null: there are no more.
    next: Option<String>,
}

pub(crate) async fn users<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asked(page): Asked<Page>,
) -> Result<Json<Users>, ApiError> {
    let limit = checked_limit(page.limit)?;
    let users = api.store.users(page.after.map(Arc::from), limit).await?;
    let next = (users.len() == limit).then(|| users.last().map(|last| last.name.to_string())).flatten();
    Ok(Json(Users { users: users.iter().map(user_view).collect(), next }))
}

pub(crate) async fn user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
) -> Result<Json<UserShown>, ApiError> {
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

/// A user that is to be added.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    /// Letters, digits and . _ @ + -, a letter or a digit first; not `local` or `api`.
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$"))]
    name: String,
    /// Left out, one is made, and told once.
    #[schemars(length(min = 12, max = 1_024))]
    password: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 100))]
    grants: Vec<AskedGrant>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
}

/// A user that was added.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserMade {
    #[serde(flatten)]
    user: UserShown,
    /// The password that was made, told this once; null where one was given.
    password: Option<String>,
}

pub(crate) async fn add_user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    client: Client,
    Body(asked): Body<NewUser>,
) -> Result<Made<UserMade>, ApiError> {
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
    let user = user_view(&find(&api, &asked.name).await?);
    Ok(Made(Json(UserMade { user, password: made })))
}

/// What changes of a user: one of both.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserEdit {
    /// What they may do from now on, in place of what they might until now.
    #[schemars(length(max = 100))]
    grants: Option<Vec<AskedGrant>>,
    /// Whether they may not sign in; their sessions end.
    disabled: Option<bool>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
}

pub(crate) async fn edit_user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    client: Client,
    Body(asked): Body<UserEdit>,
) -> Result<Json<UserShown>, ApiError> {
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

/// A password that is to be set.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    #[serde(default)]
    #[schemars(length(min = 12, max = 1_024))]
    password: String,
    /// The one until now; of one's own only.
    current: Option<String>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
}

/// The user that something was done with.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserNamed {
    name: String,
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
) -> Result<Json<UserNamed>, ApiError> {
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
    Ok(Json(UserNamed { name }))
}

/// A session, without what it is shown by.
#[derive(Serialize, JsonSchema)]
struct SessionShown {
    created_at: String,
    /// When it was used last, to about a minute.
    seen_at: String,
    /// When it ends, unless it is used before.
    expires_at: String,
    /// Whether it is the one that asks.
    current: bool,
}

/// Sign-ins of a user that have not ended, those that were used last first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Sessions {
    sessions: Vec<SessionShown>,
}

/// One's own sessions; as an admin anybody's.
pub(crate) async fn sessions<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
) -> Result<Json<Sessions>, ApiError> {
    check_own(&identity, &means, &name)?;
    find(&api, &name).await?;
    let found = api.store.sessions(Arc::from(name), api.clock.now().wall).await?;
    let shown = found.iter().map(|session| SessionShown {
        created_at: session.created_at.to_string(),
        seen_at: session.seen_at.to_string(),
        expires_at: session.expires_at.to_string(),
        current: matches!(means, Means::Session { digest } if digest == session.digest),
    });
    Ok(Json(Sessions { sessions: shown.collect() }))
}

/// Which sessions are to end.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ending {
    /// All but the one that asks.
    #[serde(default)]
    others: bool,
}

/// Ends one's own sessions, tokens stay; as an admin anybody's.
pub(crate) async fn end_sessions<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
    Asked(ending): Asked<Ending>,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Json<UserNamed>, ApiError> {
    check_own(&identity, &means, &name)?;
    let keep = match means {
        Means::Session { digest } if ending.others => Some(digest),
        _ => None,
    };
    change(&api, &name, UserChange::EndSessions { keep }, reason.actor(client)?).await?;
    Ok(Json(UserNamed { name }))
}

/// Refuses what is about somebody else, unless an admin asks; whoever is only at this machine is nobody's user.
fn check_own(identity: &Identity, means: &Means, name: &str) -> Result<(), ApiError> {
    let is_own = *identity.name == *name && !matches!(means, Means::Here);
    match is_own || identity.may(Role::Admin, None) {
        true => Ok(()),
        false => Err(ApiError::Forbidden { role: Role::Admin, group: None }),
    }
}

/// The user that was removed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserRemoved {
    removed: String,
}

pub(crate) async fn remove_user<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(name): Named,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Json<UserRemoved>, ApiError> {
    change(&api, &name, UserChange::Remove, reason.actor(client)?).await?;
    Ok(Json(UserRemoved { removed: name }))
}

/// Which tokens.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenPage {
    /// Whose; one's own where it is left out.
    owner: Option<String>,
    /// Everybody's.
    #[serde(default)]
    all: bool,
    /// The `next` of the page before.
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    after: Option<u64>,
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// Tokens that have not expired, by number.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tokens {
    tokens: Vec<TokenShown>,
    /// For `after` of the next call; null: there are no more.
    next: Option<u64>,
}

/// One's own tokens; as an admin those of others, or all.
pub(crate) async fn tokens<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Asked(page): Asked<TokenPage>,
) -> Result<Json<Tokens>, ApiError> {
    let limit = checked_limit(page.limit)?;
    if page.after.is_some_and(|after| i64::try_from(after).is_err()) {
        return Err(ApiError::BadRequest { field: "after", problem: "is not the `next` of a page".to_owned() });
    }
    let owner = if page.all { None } else { Some(page.owner.map_or(identity.name.clone(), Arc::from)) };
    if owner.as_ref() != Some(&identity.name) && !identity.may(Role::Admin, None) {
        return Err(ApiError::Forbidden { role: Role::Admin, group: None });
    }
    let tokens = api.store.tokens(owner, page.after.unwrap_or(0), limit, api.clock.now().wall).await?;
    let next = (tokens.len() == limit).then(|| tokens.last().map(|last| last.id)).flatten();
    Ok(Json(Tokens { tokens: tokens.iter().map(token_view).collect(), next }))
}

/// A token that is to be made.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedToken {
    /// What it is for, without control characters.
    #[schemars(length(min = 1, max = 256))]
    name: String,
    /// Left out, it is whoever asks.
    owner: Option<String>,
    /// Left out, it is what its owner may.
    #[schemars(length(max = 100))]
    grants: Option<Vec<AskedGrant>>,
    /// How long it is good, in seconds: a year at most, 90 days where it is left out.
    #[schemars(range(min = 1, max = 31_622_400))]
    #[serde(default, deserialize_with = "super::extract::whole")]
    expires_in_s: Option<u64>,
    /// Why, for the audit.
    #[schemars(length(max = 4_096))]
    reason: Option<String>,
    /// Who asks, for the audit.
    #[schemars(length(max = 256))]
    by: Option<String>,
}

/// A token that was made.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenTold {
    id: u64,
    name: String,
    owner: String,
    grants: Vec<GrantShown>,
    expires_at: String,
    /// The token itself, told this once.
    token: String,
}

/// Makes a token, which is told this once.
pub(crate) async fn make_token<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Asker(identity): Asker,
    Extension(means): Extension<Means>,
    client: Client,
    Body(asked): Body<AskedToken>,
) -> Result<Made<TokenTold>, ApiError> {
    let by = Reason { reason: asked.reason, by: asked.by }.actor(client)?;
    check_characters("name", Some(&asked.name), TEXT_CHARACTERS_MAX)?;
    if asked.name.trim().is_empty() || asked.name.chars().any(char::is_control) {
        let problem = "say what the token is for, without control characters".to_owned();
        return Err(ApiError::BadRequest { field: "name", problem });
    }
    let seconds = asked.expires_in_s.unwrap_or(TOKEN_DAYS_DEFAULT * 86_400);
    if !(1..=TOKEN_TIME_MAX.0 / 1_000).contains(&seconds) {
        let problem = format!("{seconds} s is not within 1 to {}, a year", TOKEN_TIME_MAX.0 / 1_000);
        return Err(ApiError::BadRequest { field: "expires_in_s", problem });
    }
    let lasts = Millis::from_secs(seconds);
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
            let (grants, expires_at) = (shown(&grants), expires_at.to_string());
            Ok(Made(Json(TokenTold { id, name: asked.name, owner, grants, expires_at, token })))
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

/// The token that was revoked.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenRevoked {
    revoked: u64,
}

/// Revokes one's own token; as an admin anybody's.
pub(crate) async fn revoke_token<S: Catalog + Accounts, C: Clock>(
    State(api): State<Api<S, C>>,
    Named(id): Named,
    Asker(identity): Asker,
    client: Client,
    Body(reason): Body<Reason>,
) -> Result<Json<TokenRevoked>, ApiError> {
    let by = reason.actor(client)?;
    let problem = || format!("{id:?} is not a token's number");
    let id: u64 = id.parse().map_err(|_| ApiError::BadRequest { field: "id", problem: problem() })?;
    // No number is as large.
    if i64::try_from(id).is_err() {
        return Err(ApiError::NoSuchToken { id });
    }
    let owner = (!identity.may(Role::Admin, None)).then(|| identity.name.clone());
    match api.store.revoke_token(id, owner, by, api.clock.now().wall).await? {
        true => Ok(Json(TokenRevoked { revoked: id })),
        false => Err(ApiError::NoSuchToken { id }),
    }
}
