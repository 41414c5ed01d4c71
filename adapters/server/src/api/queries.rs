//! Fields behind the question mark that a route does not have: refused, or a filter with a letter too few would find everything.

use std::sync::Arc;

use aide::openapi::{OpenApi, Parameter, PathItem, ReferenceOr};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use punctual_spec::choice::did_you_mean;
use rustc_hash::FxHashMap;

use super::ApiError;

/// An older name of `after`, which the document leaves out.
const OLDER: &str = "before";
/// The routes that this is about. Pages ignore what they don't know, as browsers and links expect of them.
const PREFIX: &str = "/api/v1/";

/// The fields of each route, such as `GET /api/v1/tasks`.
#[derive(Clone)]
pub(crate) struct Queries(Arc<FxHashMap<String, Vec<String>>>);

impl Queries {
    /// Those of a document.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let mut queries: FxHashMap<String, Vec<String>> = FxHashMap::default();
        for (path, item) in document.paths.iter().flat_map(|paths| &paths.paths) {
            let ReferenceOr::Item(PathItem { get, put, post, delete, patch, .. }) = item else { continue };
            for (method, operation) in [("GET", get), ("PUT", put), ("POST", post), ("DELETE", delete), ("PATCH", patch)] {
                let Some(operation) = operation else { continue };
                let names = operation.parameters.iter().filter_map(|parameter| match parameter {
                    ReferenceOr::Item(Parameter::Query { parameter_data, .. }) => Some(parameter_data.name.clone()),
                    _ => None,
                });
                queries.insert(format!("{method} {path}"), names.collect());
            }
        }
        Queries(Arc::new(queries))
    }

    /// What is wrong with a query.
    fn problem(&self, route: &str, query: &str) -> Option<ApiError> {
        let known = self.0.get(route).map(Vec::as_slice).unwrap_or_default();
        let has = |name: &str| known.iter().any(|known| known == name) || (name == OLDER && known.iter().any(|known| known == "after"));
        let unknown = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name).find(|name| !has(name))?;
        let names = || known.iter().map(String::as_str);
        let nearest = did_you_mean(&unknown, names()).map(str::to_owned);
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        Some(ApiError::UnknownQuery { name: unknown.chars().take(100).collect(), nearest, all: all.join(", ") })
    }
}

/// Refuses a request with a field that its route does not have.
pub(crate) async fn known(State(queries): State<Queries>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).filter(|path| path.starts_with(PREFIX));
    if let Some((path, query)) = path.zip(request.uri().query()) {
        // HEAD asks what GET asks.
        let method = if request.method() == axum::http::Method::HEAD { "GET" } else { request.method().as_str() };
        if let Some(problem) = queries.problem(&format!("{method} {path}"), query) {
            return problem.into_response();
        }
    }
    next.run(request).await
}
