//! Who asks: every request comes through here before it reaches a page or the API.
//!
//! Where nobody but this machine reaches the API and there is no user, whoever asks is `local` and may everything, as long as the request was
//! meant for this machine. From the first user on, and wherever others reach the API, a request has a session's cookie or a token with
//! it, or is for one of the few addresses that are for all ([`PUBLIC`]).
//!
//! A page of another site can't act for somebody who has signed in: the cookie is not sent along, the page's origin is looked at, and what
//! writes shows what only our own pages know (the field `csrf` of a form, or the header `x-csrf-token`).

pub(crate) mod access;
mod cookie;
pub(crate) mod flow;
pub(crate) mod headers;
pub(crate) mod oidc;
pub(crate) mod origin;
pub(crate) mod pages;
pub(crate) mod password;
pub(crate) mod secret;
mod throttle;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use punctual_core::time::Millis;
use punctual_driver::accounts::{Accounts, Digest, common};
use punctual_driver::ports::{Catalog, Clock};

use crate::api::{Api, ApiError};
use crate::identity::{Grant, Identity, Role};
use origin::Visitor;

/// Addresses that are for all.
pub(crate) const PUBLIC: [&str; 8] =
    ["/health", "/api/v1/health", "/openapi.json", "/sign-in", "/sign-in/oidc", oidc::CALLBACK, "/first-run", "/api/v1/sign-in"];
/// Assets of pages are for all as well: the page to sign in has some.
const PUBLIC_ASSETS: &str = "/assets/";
/// Who asks where nobody signs in.
pub(crate) const LOCAL: &str = "local";
/// How long a session may be idle.
pub(crate) const IDLE_TIME_MAX: Millis = Millis::from_secs(8 * 3_600);
/// How long it lasts at most.
pub(crate) const SESSION_TIME_MAX: Millis = Millis::from_secs(7 * 86_400);
/// How often the use of a session or a token is noted.
const NOTE_INTERVAL: Millis = Millis::from_secs(60);
/// Largest form, in bytes.
const FORM_BYTES_MAX: usize = 1 << 20;

/// By what somebody has shown who they are.
#[derive(Clone, Debug)]
pub(crate) enum Means {
    /// By asking from this machine.
    Here,
    /// By a session's cookie.
    Session {
        /// Of the session's id.
        digest: Digest,
    },
    /// By a token.
    Token {
        /// Its number.
        id: u64,
    },
}

/// What a form has to send as the field `csrf`, and a script as the header `x-csrf-token`. Pages find it beside the request.
#[derive(Clone, Debug)]
pub(crate) struct Csrf(pub(crate) Arc<str>);

/// Lets a request through, with who asks beside it, or refuses it.
pub(crate) async fn guard<S: Catalog + Accounts, C: Clock>(State(api): State<Api<S, C>>, request: Request, next: Next) -> Response {
    match admit(&api, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    }
}

async fn admit<S: Catalog + Accounts, C: Clock>(api: &Api<S, C>, mut request: Request) -> Result<Request, Response> {
    let refused = |error: ApiError| error.into_response();
    let visitor = Visitor::of(&request, &api.access.reach);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let must_sign_in = api.access.must_sign_in(&*api.store).await.map_err(|error| refused(error.into()))?;
    if !must_sign_in {
        origin::check_this_machine(request.headers(), &visitor, is_read).map_err(refused)?;
        let local = Identity { name: LOCAL.into(), grants: [Grant::everywhere(Role::Admin)].into() };
        put(&mut request, visitor, Some((local, Means::Here, Csrf(api.access.csrf.clone()))));
        return Ok(request);
    }
    origin::check_page(request.headers(), &visitor, is_read).map_err(refused)?;
    let is_public = is_public(request.uri().path());
    match find(api, request.headers(), &visitor).await {
        Ok(found) if is_public => put(&mut request, visitor, found),
        Err(error) if is_public && !matches!(error, ApiError::Store(_)) => put(&mut request, visitor, None),
        Err(error) => return Err(refused(error)),
        Ok(None) => return Err(not_signed_in(&request)),
        Ok(Some((identity, means, csrf))) => {
            if matches!(means, Means::Session { .. }) && !is_read {
                request = check_csrf(request, &csrf).await.map_err(refused)?;
            }
            put(&mut request, visitor, Some((identity, means, csrf)));
        }
    }
    Ok(request)
}

fn put(request: &mut Request, visitor: Visitor, found: Option<(Identity, Means, Csrf)>) {
    let beside = request.extensions_mut();
    beside.insert(visitor);
    if let Some((identity, means, csrf)) = found {
        beside.insert(identity);
        beside.insert(means);
        beside.insert(csrf);
    }
}

/// Whether an address is for all.
pub(crate) fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path) || path.starts_with(PUBLIC_ASSETS)
}

/// Programs are told; people are led to where they sign in, and back afterwards.
fn not_signed_in(request: &Request) -> Response {
    let is_page = matches!(*request.method(), Method::GET | Method::HEAD) && !request.uri().path().starts_with("/api/");
    let accepts = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if !is_page || !accepts.contains("text/html") {
        return ApiError::NotSignedIn.into_response();
    }
    let wanted = request.uri().path_and_query().map_or("/", |wanted| wanted.as_str());
    Redirect::to(&format!("/sign-in?next={}", pages::escaped(wanted))).into_response()
}

/// Who asks, by the token or the cookie that is shown.
async fn find<S: Catalog + Accounts, C: Clock>(
    api: &Api<S, C>,
    headers: &HeaderMap,
    visitor: &Visitor,
) -> Result<Option<(Identity, Means, Csrf)>, ApiError> {
    let now = api.clock.now().wall;
    if let Some(shown) = headers.get(header::AUTHORIZATION) {
        let token = shown.to_str().ok().and_then(|shown| shown.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let digest = token.and_then(|(_, token)| secret::digest(token.trim())).ok_or(ApiError::NoSuchTokenShown)?;
        let (token, owner) = api.store.bearer(digest, now).await?.ok_or(ApiError::NoSuchTokenShown)?;
        if token.used_at.is_none_or(|used_at| now.since(used_at) > NOTE_INTERVAL) {
            // It is for people to see; the request is none the worse without.
            let _ = api.store.note_token(token.id, now).await;
        }
        let identity = Identity { name: owner.name, grants: common(&token.grants, &owner.grants).into() };
        return Ok(Some((identity, Means::Token { id: token.id }, Csrf(Arc::default()))));
    }
    let Some(session) = cookie::of(headers, visitor.is_secure) else { return Ok(None) };
    let Some(digest) = secret::digest(session) else { return Ok(None) };
    let Some((found, user)) = api.store.session(digest, now).await? else { return Ok(None) };
    if now.since(found.seen_at) > NOTE_INTERVAL {
        let _ = api.store.note_session(digest, IDLE_TIME_MAX, now).await;
    }
    let identity = Identity { name: user.name, grants: user.grants };
    Ok(Some((identity, Means::Session { digest }, Csrf(secret::csrf_of(session).into()))))
}

#[derive(serde::Deserialize)]
struct CsrfField {
    csrf: String,
}

/// Refuses what does not show what only our own pages know.
async fn check_csrf(request: Request, csrf: &Csrf) -> Result<Request, ApiError> {
    if let Some(shown) = request.headers().get("x-csrf-token") {
        let is_right = shown.to_str().is_ok_and(|shown| secret::are_equal(shown, &csrf.0));
        return if is_right { Ok(request) } else { Err(ApiError::Forged) };
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(ApiError::Forged);
    }
    let (parts, body) = request.into_parts();
    let bytes: Bytes = axum::body::to_bytes(body, FORM_BYTES_MAX).await.map_err(|_| ApiError::TooLarge)?;
    let copy = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
    let shown = axum::Form::<CsrfField>::from_request(copy, &()).await.map_err(|_| ApiError::Forged)?;
    if !secret::are_equal(&shown.csrf, &csrf.0) {
        return Err(ApiError::Forged);
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}
