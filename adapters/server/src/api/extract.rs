//! Reads the parts of a request, so that whatever is wrong with one is answered as a problem with a code.

use std::sync::Arc;

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::{StatusCode, header, request};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;

use super::ApiError;
use crate::identity::Identity;
use crate::sign_in::Means;
use crate::sign_in::origin::Visitor;

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

/// Whom a request comes from, as the audit keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Who has signed in; `None`: nobody does, and whoever asks says who they are.
    pub(crate) by: Option<Arc<str>>,
    /// The program's own account of itself, the address that it asks from, and the token that it shows.
    pub(crate) from: Option<Arc<str>>,
}

/// Most bytes that are kept of a program's account of itself.
const CLIENT_BYTES_MAX: usize = 256;

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        let beside = &parts.extensions;
        let (identity, means) = (beside.get::<Identity>(), beside.get::<Means>());
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let agent = agent.map(|agent| agent[..agent.floor_char_boundary(CLIENT_BYTES_MAX)].to_owned());
        let address = beside.get::<Visitor>().and_then(|visitor| visitor.address).map(|address| address.to_string());
        let token = match means {
            Some(Means::Token { id }) => Some(format!("token {id}")),
            _ => None,
        };
        let from: Vec<_> = [agent, address, token].into_iter().flatten().collect();
        Ok(Client {
            by: identity.filter(|_| !matches!(means, Some(Means::Here))).map(|identity| identity.name.clone()),
            from: (!from.is_empty()).then(|| from.join(", ").into()),
        })
    }
}

/// Who asks.
pub(crate) struct Asker(pub(crate) Identity);

impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Identity>().cloned().map(Asker).ok_or(ApiError::NotSignedIn)
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

/// A form.
pub(crate) struct Posted<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Posted<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let form = axum::Form::<T>::from_request(request, state).await;
        form.map(|axum::Form(form)| Posted(form))
            .map_err(|rejection| ApiError::BadRequest { field: "form", problem: rejection.body_text() })
    }
}

/// Refuses a text that is kept on record and longer than this many bytes.
pub(crate) fn check_length(field: &'static str, text: Option<&str>, bytes_max: usize) -> Result<(), ApiError> {
    match text {
        Some(text) if text.len() > bytes_max => Err(ApiError::BadRequest { field, problem: format!("is longer than {bytes_max} bytes") }),
        _ => Ok(()),
    }
}
