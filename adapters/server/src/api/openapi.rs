//! The document that describes the API, made from the types of the handlers: what they take, and what they answer.

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{
    self, ApiKeyLocation, Contact, HeaderStyle, Info, License, MediaType, OpenApi, Operation, Parameter, ParameterData,
    ParameterSchemaOrContent, PathItem, ReferenceOr, Response, SchemaObject, SecurityScheme, StatusCode,
};
use aide::transform::TransformOperation;
use axum::Json;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use indexmap::IndexMap;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, json_schema};
use serde::Serialize;

use super::error::Problem;
use super::{BODY_BYTES_MAX, answers};

/// How an operation is called, and what it does in a line.
pub(crate) fn named(id: &'static str, summary: &'static str) -> impl FnOnce(TransformOperation<'_>) -> TransformOperation<'_> {
    move |operation| operation.id(id).summary(summary)
}

/// A schema as a part of a document.
pub(crate) fn schema_object(json_schema: Schema) -> SchemaObject {
    SchemaObject { json_schema, external_docs: None, example: None }
}

/// A response that has a body.
pub(crate) fn response(description: &str, content_type: &str, schema: Schema) -> Response {
    let media = MediaType { schema: Some(schema_object(schema)), ..MediaType::default() };
    Response {
        description: description.to_owned(),
        content: IndexMap::from_iter([(content_type.to_owned(), media)]),
        ..Response::default()
    }
}

/// A stream of server-sent events, which has no schema of its own: the description names those of its events.
pub(crate) fn event_stream(description: &str) -> Response {
    response(description, "text/event-stream", json_schema!({}))
}

/// An answer to something that somebody asked for: done (200), or accepted and under way (202).
pub(crate) struct Done<T>(pub(crate) axum::http::StatusCode, pub(crate) Json<T>);

impl<T: Serialize> IntoResponse for Done<T> {
    fn into_response(self) -> axum::response::Response {
        (self.0, self.1).into_response()
    }
}

impl<T: JsonSchema> OperationOutput for Done<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<Response> {
        Some(response("Done", "application/json", ctx.schema.subschema_for::<T>()))
    }

    fn inferred_responses(ctx: &mut GenContext, _: &mut Operation) -> Vec<(Option<u16>, Response)> {
        let mut of = |description| response(description, "application/json", ctx.schema.subschema_for::<T>());
        vec![(Some(200), of("Done")), (Some(202), of("Accepted; its owner carries it out"))]
    }
}

/// The same, for what may have come too late: then the answer says how it stands (409).
pub(crate) struct Attempted<T>(pub(crate) axum::http::StatusCode, pub(crate) Json<T>);

impl<T: Serialize> IntoResponse for Attempted<T> {
    fn into_response(self) -> axum::response::Response {
        (self.0, self.1).into_response()
    }
}

impl<T: JsonSchema> OperationOutput for Attempted<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, operation: &mut Operation) -> Option<Response> {
        Done::<T>::operation_response(ctx, operation)
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, Response)> {
        let mut responses = Done::<T>::inferred_responses(ctx, operation);
        let mut late = response("It came too late: how it stands", "application/json", ctx.schema.subschema_for::<T>());
        let problem = MediaType { schema: Some(schema_object(ctx.schema.subschema_for::<Problem>())), ..MediaType::default() };
        late.content.insert("application/problem+json".to_owned(), problem);
        responses.push((Some(409), late));
        responses
    }
}

/// An answer to something that was made (201).
pub(crate) struct Made<T>(pub(crate) Json<T>);

impl<T: Serialize> IntoResponse for Made<T> {
    fn into_response(self) -> axum::response::Response {
        (axum::http::StatusCode::CREATED, self.0).into_response()
    }
}

impl<T: JsonSchema> OperationOutput for Made<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<Response> {
        Some(response("Made", "application/json", ctx.schema.subschema_for::<T>()))
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, Response)> {
        Self::operation_response(ctx, operation).into_iter().map(|response| (Some(201), response)).collect()
    }
}

/// An answer that sets the cookie of a session, or takes it away.
pub(crate) struct WithCookie<T>(pub(crate) Option<HeaderValue>, pub(crate) Json<T>);

impl<T: Serialize> IntoResponse for WithCookie<T> {
    fn into_response(self) -> axum::response::Response {
        let mut response = self.1.into_response();
        if let Some(cookie) = self.0 {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

impl<T: JsonSchema> OperationOutput for WithCookie<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, operation: &mut Operation) -> Option<Response> {
        Json::<T>::operation_response(ctx, operation)
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, Response)> {
        Json::<T>::inferred_responses(ctx, operation)
    }
}

/// An answer with its version in the ETag. A request that names that version in If-None-Match gets no body (304).
pub(crate) struct Tagged<T> {
    /// What the ETag says, without its quotes.
    pub(crate) tag: String,
    /// Whether the caller has it already.
    pub(crate) is_known: bool,
    pub(crate) body: Json<T>,
}

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> axum::response::Response {
        let tag = HeaderValue::from_str(&format!("\"{}\"", self.tag)).unwrap_or(HeaderValue::from_static("\"\""));
        match self.is_known {
            true => (axum::http::StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response(),
            false => ([(header::ETAG, tag)], self.body).into_response(),
        }
    }
}

impl<T: JsonSchema> OperationOutput for Tagged<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<Response> {
        let mut response = response("", "application/json", ctx.schema.subschema_for::<T>());
        response.headers.insert("ETag".to_owned(), ReferenceOr::Item(etag()));
        Some(response)
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, Response)> {
        let known = Response { description: "The caller has it already".to_owned(), ..Response::default() };
        let known = if has_header(operation, "If-None-Match") { vec![(Some(304), known)] } else { Vec::new() };
        Self::operation_response(ctx, operation).into_iter().map(|response| (Some(200), response)).chain(known).collect()
    }
}

fn has_header(operation: &Operation, wanted: &str) -> bool {
    operation
        .parameters
        .iter()
        .any(|parameter| matches!(parameter, ReferenceOr::Item(Parameter::Header { parameter_data, .. }) if parameter_data.name == wanted))
}

fn etag() -> openapi::Header {
    openapi::Header {
        description: Some("Its version, for If-Match".to_owned()),
        style: HeaderStyle::Simple,
        required: true,
        deprecated: None,
        format: ParameterSchemaOrContent::Schema(schema_object(json_schema!({ "type": "string" }))),
        example: None,
        examples: IndexMap::new(),
        extensions: IndexMap::new(),
    }
}

/// A parameter of a request.
pub(crate) fn parameter_data(name: &str, description: &str, required: bool, schema: Schema) -> ParameterData {
    ParameterData {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        required,
        deprecated: None,
        format: ParameterSchemaOrContent::Schema(schema_object(schema)),
        example: None,
        examples: IndexMap::new(),
        explode: None,
        extensions: IndexMap::new(),
    }
}

/// A header of a request.
pub(crate) fn header_parameter(name: &str, description: &str, schema: Schema) -> Parameter {
    Parameter::Header { parameter_data: parameter_data(name, description, false, schema), style: HeaderStyle::Simple }
}

/// An empty document, to be filled by the router.
pub(crate) fn document() -> OpenApi {
    let description = format!(
        "Refusals are problem details (RFC 9457) with a code that docs/errors.md explains. Lists are paged: `next` of an answer is `after` of \
         the next call, and a page may have fewer entries than asked for with more behind it. A body has at most {BODY_BYTES_MAX} bytes, unless \
         it says otherwise. `maxLength` of a text counts its bytes in UTF-8."
    );
    OpenApi {
        info: Info {
            title: "Punctual".to_owned(),
            description: Some(description),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            contact: None::<Contact>,
            license: Some(License { name: "Apache-2.0".to_owned(), identifier: Some("Apache-2.0".to_owned()), ..License::default() }),
            ..Info::default()
        },
        ..OpenApi::default()
    }
}

/// What all operations have: the parts of their addresses, keys of those that write, refusals.
pub(crate) fn complete(document: &mut OpenApi) {
    let Some(paths) = &mut document.paths else { return };
    for (path, item) in &mut paths.paths {
        let ReferenceOr::Item(item) = item else { continue };
        let names: Vec<String> = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).map(str::to_owned).collect();
        for (method, operation) in operations(item) {
            let parts = names.iter().rev().map(|name| {
                let (description, schema) = part(path, name);
                let parameter_data = parameter_data(name, description, true, schema);
                ReferenceOr::Item(Parameter::Path { parameter_data, style: openapi::PathStyle::Simple })
            });
            for part in parts {
                operation.parameters.insert(0, part);
            }
            for parameter in &mut operation.parameters {
                never_null(parameter);
                if let ReferenceOr::Item(parameter) = parameter
                    && let ParameterSchemaOrContent::Schema(SchemaObject { json_schema, .. }) = &mut parameter.parameter_data_mut().format
                {
                    RecursiveTransform(bounded).transform(json_schema);
                }
            }
            if method != "get" && !answers::has_secret(method, path) {
                let key = "Makes the call repeatable: the same call under the same key is answered as it was the first time, for a day";
                let schema = json_schema!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" });
                operation.parameters.push(ReferenceOr::Item(header_parameter("Idempotency-Key", key, schema)));
            }
            let problem = json_schema!({ "$ref": "#/components/schemas/Problem" });
            let responses = operation.responses.get_or_insert_default();
            responses.default = Some(ReferenceOr::Item(response("A refusal", "application/problem+json", problem)));
            responses.responses.retain(|status, _| *status != StatusCode::Range(0));
        }
    }
    for SchemaObject { json_schema, .. } in document.components.iter_mut().flat_map(|components| components.schemas.values_mut()) {
        RecursiveTransform(bounded).transform(json_schema);
    }
    secure(document);
    prune(document);
}

/// What a number's type says of its greatest value, where nothing narrower is said. Without it, the document promises to take any.
fn bounded(schema: &mut Schema) {
    let maximum: u64 = match schema.get("format").and_then(serde_json::Value::as_str) {
        Some("uint8") => u8::MAX.into(),
        Some("uint16") => u16::MAX.into(),
        Some("uint32") => u32::MAX.into(),
        Some("uint" | "uint64") => u64::MAX,
        _ => return,
    };
    schema.ensure_object().entry("maximum").or_insert_with(|| maximum.into());
}

/// What opens the API: a token, or the cookie of a session. Where there is no user, this machine needs neither.
fn secure(document: &mut OpenApi) {
    let bearer = SecurityScheme::Http {
        scheme: "bearer".to_owned(),
        bearer_format: None,
        description: Some("A token, as POST /api/v1/tokens makes it".to_owned()),
        extensions: IndexMap::new(),
    };
    let session = SecurityScheme::ApiKey {
        location: ApiKeyLocation::Cookie,
        name: "punctual".to_owned(),
        description: Some(
            "A session, as POST /api/v1/sign-in begins it; over TLS with the prefix __Host-. Writes show x-csrf-token too".to_owned(),
        ),
        extensions: IndexMap::new(),
    };
    let components = document.components.get_or_insert_default();
    for (name, scheme) in [("token", bearer), ("session", session)] {
        components.security_schemes.insert(name.to_owned(), ReferenceOr::Item(scheme));
        document.security.push(IndexMap::from_iter([(name.to_owned(), Vec::new())]));
    }
    let Some(paths) = &mut document.paths else { return };
    for (path, item) in &mut paths.paths {
        let ReferenceOr::Item(item) = item else { continue };
        if crate::sign_in::is_public(path) {
            // None will do.
            operations(item).for_each(|(_, operation)| operation.security.push(IndexMap::new()));
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [("get", get), ("put", put), ("post", post), ("delete", delete), ("patch", patch)]
        .into_iter()
        .filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}

/// What is left out of an address is not there: nothing in it stands for null.
fn never_null(parameter: &mut ReferenceOr<Parameter>) {
    let ReferenceOr::Item(Parameter::Query { parameter_data, .. }) = parameter else { return };
    let ParameterSchemaOrContent::Schema(SchemaObject { json_schema, .. }) = &mut parameter_data.format else { return };
    let only = match json_schema.get("type") {
        Some(serde_json::Value::Array(types)) => types.iter().find(|kind| *kind != "null").cloned(),
        _ => None,
    };
    if let Some(only) = only {
        json_schema.insert("type".to_owned(), only);
    }
}

/// Leaves out descriptions of types that nothing names: those of what stands behind the question mark.
fn prune(document: &mut OpenApi) {
    loop {
        let text = serde_json::to_string(&document).unwrap_or_default();
        let Some(components) = &mut document.components else { return };
        let before = components.schemas.len();
        let is_named = |name: &String| text.contains(&format!("\"#/components/schemas/{name}\"")) || name.ends_with("Event");
        components.schemas.retain(|name, _| is_named(name));
        if components.schemas.len() == before {
            return;
        }
    }
}

/// What stands at a place of an address.
fn part(path: &str, name: &str) -> (&'static str, Schema) {
    let name_schema = json_schema!({ "type": "string", "minLength": 1 });
    match name {
        "id" if path.starts_with("/api/v1/backfills") => {
            ("A backfill's id", json_schema!({ "type": "string", "pattern": "^[1-9][0-9]{0,14}$" }))
        }
        "id" => ("An instance's id", json_schema!({ "type": "string", "pattern": "^(0|[1-9][0-9]{0,3})-(0|[1-9][0-9]{0,13})$" })),
        "version" => ("A version, from 1 on", json_schema!({ "type": "integer", "minimum": 1, "maximum": 4_294_967_295_u32 })),
        "group" => ("A group's name", name_schema),
        "source" => ("The name of what has the tasks", json_schema!({ "type": "string", "minLength": 1, "maxLength": 256 })),
        "key" => ("The idempotency key that it was triggered under", name_schema),
        "node" => ("A node's name", name_schema),
        "user" => ("A user's name", name_schema),
        "token" => ("A token's number", json_schema!({ "type": "string", "pattern": "^(0|[1-9][0-9]{0,17})$" })),
        _ => ("A task's name", name_schema),
    }
}
