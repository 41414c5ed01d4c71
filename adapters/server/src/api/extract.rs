//! Reads the parts of a request, so that whatever is wrong with one is answered as a problem with a code.

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::{StatusCode, header, request};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;

use super::ApiError;

/// The part of the address that names a task or an instance.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Named(name)),
            Err(rejection) => Err(ApiError::BadRequest { field: "address", problem: rejection.body_text() }),
        }
    }
}

/// The parts of the address that name a run and one of its nodes.
pub(crate) struct NamedNode(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for NamedNode {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((run, node))) => Ok(NamedNode(run, node)),
            Err(rejection) => Err(ApiError::BadRequest { field: "address", problem: rejection.body_text() }),
        }
    }
}

/// What stands behind the question mark.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, ApiError> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Asked(asked)).map_err(|rejection| ApiError::BadRequest { field: "query", problem: rejection.body_text() })
    }
}

/// What a request was sent with, as the audit keeps it: the program's own account of itself. All requests come from this machine.
pub(crate) struct Client(pub(crate) Option<std::sync::Arc<str>>);

/// Most bytes of that which are kept.
const CLIENT_BYTES_MAX: usize = 256;

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        Ok(Client(agent.map(|agent| agent[..agent.floor_char_boundary(CLIENT_BYTES_MAX)].into())))
    }
}

/// A body of JSON; none is the default.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes: Result<axum::body::Bytes, BytesRejection> = axum::body::Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|rejection| {
            let problem = rejection.body_text();
            match rejection.into_response().status() {
                StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge,
                _ => bad(problem),
            }
        })?;
        if bytes.is_empty() {
            return Ok(Body(T::default()));
        }
        if !content_type.and_then(|kind| kind.to_str().map(is_json).ok()).unwrap_or(false) {
            return Err(bad("a body is JSON, and has `Content-Type: application/json` with it".to_owned()));
        }
        serde_json::from_slice(&bytes).map(Body).map_err(|error| bad(error.to_string()))
    }
}

fn bad(problem: String) -> ApiError {
    ApiError::BadRequest { field: "body", problem }
}

fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Refuses a text that is kept on record and longer than this many bytes.
pub(crate) fn check_length(field: &'static str, text: Option<&str>, bytes_max: usize) -> Result<(), ApiError> {
    match text {
        Some(text) if text.len() > bytes_max => Err(ApiError::BadRequest { field, problem: format!("is longer than {bytes_max} bytes") }),
        _ => Ok(()),
    }
}
