//! Reads the parts of a request, so that whatever is wrong with one is answered as a problem with a code.

use std::sync::Arc;

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::{StatusCode, header, request};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::{Operation, RequestBody};
use aide::operation::{ParamLocation, add_parameters, parameters_from_schema, set_body};
use indexmap::IndexMap;
use punctual_core::ids::Version;
use punctual_driver::ports::Expected;
use schemars::{JsonSchema, json_schema};

use super::ApiError;
use super::openapi::{header_parameter, schema_object};
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

// Addresses are described by their routes.
impl OperationInput for Named {}
impl OperationInput for NamedTwo {}
impl OperationInput for NamedVersion {}
impl OperationInput for Client {}

impl OperationInput for Asker {}

impl<T: JsonSchema> OperationInput for Asked<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let schema = ctx.schema.subschema_for::<T>();
        let parameters = parameters_from_schema(ctx, schema, ParamLocation::Query);
        add_parameters(ctx, operation, parameters);
    }
}

impl<T: JsonSchema> OperationInput for Body<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let schema = ctx.schema.subschema_for::<T>();
        let media = aide::openapi::MediaType { schema: Some(schema_object(schema.clone())), ..Default::default() };
        let content = IndexMap::from_iter([("application/json".to_owned(), media)]);
        // Without a body all is as it is where it is left out, if it may be.
        let resolved =
            ctx.resolve_schema(&schema).get("required").and_then(|fields| fields.as_array()).is_some_and(|fields| !fields.is_empty());
        set_body(ctx, operation, RequestBody { content, required: resolved, ..RequestBody::default() });
    }
}

/// A body of any JSON, as it was written.
pub(crate) struct Document(pub(crate) String);

impl<S: Send + Sync> FromRequest<S> for Document {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = json_bytes(request, state).await?.ok_or_else(|| bad("the task's document is missing".to_owned()))?;
        String::from_utf8(bytes.into()).map(Document).map_err(|_| bad("it is not UTF-8".to_owned()))
    }
}

impl OperationInput for Document {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let schema = json_schema!({ "type": "object", "description": "The task's document, as docs/task-file.md has it" });
        let media = aide::openapi::MediaType { schema: Some(schema_object(schema)), ..Default::default() };
        let content = IndexMap::from_iter([("application/json".to_owned(), media)]);
        set_body(ctx, operation, RequestBody { content, required: true, ..RequestBody::default() });
    }
}

/// What If-Match and If-None-Match expect of what is written.
pub(crate) struct IfMatch(pub(crate) Expected);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, ApiError> {
        let (matches, none) = (text_of(parts, header::IF_MATCH)?, text_of(parts, header::IF_NONE_MATCH)?);
        Ok(IfMatch(match (matches, none) {
            (None, None) => Expected::Anything,
            (Some(tag), None) if tag == "*" => Expected::Something,
            // No version has any other tag.
            (Some(tag), None) => Expected::Version(version_of(&tag).unwrap_or(Version(0))),
            (_, Some(tag)) if tag != "*" => {
                return Err(ApiError::BadRequest { field: "If-None-Match", problem: "a write takes * only".to_owned() });
            }
            (None, Some(_)) => Expected::Nothing,
            // What is not there has no version.
            (Some(_), Some(_)) => Expected::Version(Version(0)),
        }))
    }
}

impl OperationInput for IfMatch {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let tag = json_schema!({ "type": "string", "maxLength": 1_000 });
        let matches = header_parameter("If-Match", "The ETag that it must have now; * where it must be there", tag);
        let star = json_schema!({ "type": "string", "enum": ["*"] });
        let none = header_parameter("If-None-Match", "* where it must not be there", star);
        add_parameters(ctx, operation, [matches, none]);
    }
}

/// The version that a reader has already.
pub(crate) struct Known(pub(crate) Option<String>);

impl Known {
    /// Whether that is this one.
    pub(crate) fn is(&self, tag: &str) -> bool {
        let is_same = |known: &str| known == "*" || known.trim_start_matches("W/").trim_matches('"') == tag;
        self.0.as_deref().is_some_and(|known| known.split(',').map(str::trim).any(is_same))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Known {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, ApiError> {
        text_of(parts, header::IF_NONE_MATCH).map(Known)
    }
}

impl OperationInput for Known {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let tag = json_schema!({ "type": "string", "maxLength": 1_000 });
        let known = header_parameter("If-None-Match", "An ETag that the caller has: no body where it is still that", tag);
        add_parameters(ctx, operation, [known]);
    }
}

/// A header's text, where it is there.
pub(crate) fn text_of(parts: &request::Parts, name: header::HeaderName) -> Result<Option<String>, ApiError> {
    let Some(value) = parts.headers.get(&name) else { return Ok(None) };
    match value.to_str() {
        Ok(text) if text.len() <= 1_000 => Ok(Some(text.trim().to_owned())),
        _ => Err(ApiError::BadRequest { field: "headers", problem: format!("{name} is not a short ASCII text") }),
    }
}

/// The version that an ETag speaks of.
fn version_of(tag: &str) -> Option<Version> {
    let digits = tag.strip_prefix("\"v")?.strip_suffix('"')?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok().map(Version)).flatten()
}

/// A task and one of its versions.
pub(crate) struct NamedVersion(pub(crate) String, pub(crate) u32);

impl<S: Send + Sync> FromRequestParts<S> for NamedVersion {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, ApiError> {
        let NamedTwo(task, version) = NamedTwo::from_request_parts(parts, state).await?;
        match version.parse() {
            Ok(version) => Ok(NamedVersion(task, version)),
            Err(_) => Err(ApiError::BadRequest { field: "version", problem: format!("{version:?} is not a number") }),
        }
    }
}

/// Two parts of the address: a run and one of its nodes, a task and a key.
pub(crate) struct NamedTwo(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for NamedTwo {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((run, node))) => Ok(NamedTwo(run, node)),
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
        match json_bytes(request, state).await? {
            None => Ok(Body(T::default())),
            Some(bytes) => serde_json::from_slice(&bytes).map(Body).map_err(|error| bad(error.to_string())),
        }
    }
}

/// A body that says that it is JSON; `None`: there is none.
async fn json_bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Option<axum::body::Bytes>, ApiError> {
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
        return Ok(None);
    }
    if !content_type.and_then(|kind| kind.to_str().map(is_json).ok()).unwrap_or(false) {
        return Err(bad("a body is JSON, and has `Content-Type: application/json` with it".to_owned()));
    }
    Ok(Some(bytes))
}

/// A whole number, also where it is written as 3.0: JSON knows one kind of number, and so do its schemas.
pub(crate) fn whole<'de, D: serde::Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    use serde::Deserialize;
    use serde::de::Error;

    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    // Beyond this not every whole number is one of these.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let written = || number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=EXACT_MAX).contains(float)).map(|float| float as u64);
    let whole = number.as_u64().or_else(written).and_then(|whole| T::try_from(whole).ok());
    whole.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number that fits here")))
}

fn bad(problem: String) -> ApiError {
    ApiError::BadRequest { field: "body", problem }
}

fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The place behind which a page begins: `after`, or `before`, its older name; not both.
pub(crate) fn behind<T>(after: Option<T>, before: Option<T>) -> Result<Option<T>, ApiError> {
    match (after, before) {
        (Some(_), Some(_)) => {
            Err(ApiError::BadRequest { field: "before", problem: "is the older name of `after`: give one of them".to_owned() })
        }
        (after, before) => Ok(after.or(before)),
    }
}

/// Refuses a name that is longer than this many characters.
pub(crate) fn check_characters(field: &'static str, text: Option<&str>, characters_max: usize) -> Result<(), ApiError> {
    match text {
        Some(text) if text.chars().nth(characters_max).is_some() => {
            Err(ApiError::BadRequest { field, problem: format!("is longer than {characters_max} characters") })
        }
        _ => Ok(()),
    }
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
