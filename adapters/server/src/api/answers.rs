//! Calls that are made again under the same idempotency key are answered as they were the first time.

use std::sync::Arc;

use aide::OperationInput;
use aide::openapi::{OpenApi, ReferenceOr};
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header, request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use punctual_driver::ports::{Catalog, Clock, KeptAnswer, Reserved};
use rustc_hash::FxHashSet;
use sha2::{Digest, Sha256};

use super::{Api, ApiError, BODY_BYTES_MAX, sources};
use crate::identity::{Identity, Role};
use crate::sign_in::Means;

const KEY: &str = "idempotency-key";
/// Says of an answer that it was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Longer answers are not kept: the same call is carried out again, which its own rules have to bear.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Calls with a secret in what is asked or answered: a store keeps none, so they are carried out each time, and take no key.
const SECRET: [(&str, &str); 5] = [
    ("post", "/api/v1/sign-in"),
    ("post", "/api/v1/sign-out"),
    ("post", "/api/v1/users"),
    ("put", "/api/v1/users/{user}/password"),
    ("post", "/api/v1/tokens"),
];

/// Whether a call has a secret in it.
pub(super) fn has_secret(method: &str, path: &str) -> bool {
    SECRET.iter().any(|(of, at)| method.eq_ignore_ascii_case(of) && path == *at)
}

/// The key that a caller has for a call.
pub(crate) struct IdempotencyKey(pub(crate) Option<Arc<str>>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, ApiError> {
        match parts.headers.get(KEY).map(HeaderValue::to_str) {
            None => Ok(IdempotencyKey(None)),
            Some(Ok(key)) if (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(IdempotencyKey(Some(Arc::from(key))))
            }
            Some(_) => {
                Err(ApiError::BadRequest { field: "Idempotency-Key", problem: "must be 1 to 255 visible ASCII characters".to_owned() })
            }
        }
    }
}

// Every call that writes has it.
impl OperationInput for IdempotencyKey {}

/// The calls that write, such as `POST /api/v1/pause`. Those that keep their keys themselves are not among them.
#[derive(Clone)]
pub(crate) struct Writes(Arc<FxHashSet<String>>);

impl Writes {
    /// Those of a document.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let mut writes = FxHashSet::default();
        for (path, item) in document.paths.iter().flat_map(|paths| &paths.paths) {
            let ReferenceOr::Item(item) = item else { continue };
            let methods = [("POST", &item.post), ("PUT", &item.put), ("PATCH", &item.patch), ("DELETE", &item.delete)];
            let there = methods.into_iter().filter(|(_, operation)| operation.is_some() && !path.ends_with("/trigger"));
            writes.extend(there.map(|(method, _)| format!("{method} {path}")));
        }
        Writes(Arc::new(writes))
    }
}

/// Carries each write out once a key. A trigger's key is kept with the trigger, for ever.
pub(crate) async fn once<S: Catalog, C: Clock>(State((api, writes)): State<(Api<S, C>, Writes)>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    if path.is_some_and(|path| has_secret(request.method().as_str(), path.as_str())) && request.headers().contains_key(KEY) {
        return ApiError::NeverKept.into_response();
    }
    let route = path.map(|path| format!("{} {}", request.method(), path.as_str()));
    if !request.headers().contains_key(KEY) || route.is_none_or(|route| !writes.0.contains(&route)) {
        return next.run(request).await;
    }
    match keyed(&api, request, next).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn keyed<S: Catalog, C: Clock>(api: &Api<S, C>, request: Request, next: Next) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let IdempotencyKey(Some(key)) = IdempotencyKey::from_request_parts(&mut parts, &()).await? else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    // A key is its caller's own, and a token's: nobody is answered what they could not have asked for.
    let identity = parts.extensions.get::<Identity>();
    let (caller, sees_all) = identity.map_or(("", false), |identity| (&*identity.name, identity.may(Role::Viewer, None)));
    let token = match parts.extensions.get::<Means>() {
        Some(Means::Token { id }) => id.to_string(),
        _ => String::new(),
    };
    let key: Arc<str> = Arc::from(format!("{caller}\n{token}\n{key}"));
    let is_source = parts.uri.path().starts_with("/api/v1/sources/");
    let body = axum::body::to_bytes(body, if is_source { sources::BODY_BYTES_MAX } else { BODY_BYTES_MAX });
    let body = body.await.map_err(|_| ApiError::TooLarge)?;
    let digest = digest(&parts, &body);
    match api.store.reserve_answer(key.clone(), digest, api.clock.now().wall).await? {
        Reserved::New => {}
        Reserved::UnderWay => return Err(ApiError::UnderWay),
        Reserved::Other => return Err(ApiError::KeyTaken),
        Reserved::Answered(answer) => return Ok(replayed(&answer)),
    }
    // Carried out and kept also where the caller goes in between.
    let (store, request) = (api.store.clone(), Request::from_parts(parts, Body::from(body)));
    let carried_out = tokio::spawn(async move {
        let (parts, body) = next.run(request).await.into_parts();
        let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        // What was refused for want of a right is asked again when there is one.
        let is_of_rights = match parts.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => true,
            StatusCode::NOT_FOUND => !sees_all,
            _ => false,
        };
        let is_kept = !parts.status.is_server_error() && !is_of_rights && body.len() <= ANSWER_BYTES_MAX;
        let answer = is_kept.then(|| KeptAnswer {
            status: parts.status.as_u16(),
            headers: [header::CONTENT_TYPE, header::ETAG].iter().filter_map(|name| line(&parts.headers, name)).collect::<String>().into(),
            body: Arc::from(&*body),
        });
        // An answer that can't be kept is an answer all the same; the key is free again in a minute.
        let _ = store.keep_answer(key, digest, answer).await;
        Response::from_parts(parts, Body::from(body))
    });
    Ok(carried_out.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()))
}

fn line(headers: &axum::http::HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(format!("{name}: {value}\n"))
}

/// Tells calls apart: what is asked, of what, under which conditions.
fn digest(parts: &request::Parts, body: &Bytes) -> [u8; 32] {
    let mut digest = Sha256::new();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let condition = |name: HeaderName| parts.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    let all = [parts.method.as_str().as_bytes(), target.as_bytes(), condition(header::IF_MATCH), condition(header::IF_NONE_MATCH), body];
    for part in all {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

fn replayed(answer: &KeptAnswer) -> Response {
    let mut response = Response::new(Body::from(answer.body.to_vec()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    for (name, value) in answer.headers.lines().filter_map(|line| line.split_once(": ")) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
