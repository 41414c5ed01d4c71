//! Calls of the API's own handlers from within the process.

use axum::body::Body;
use axum::http::{HeaderName, Method, Request, StatusCode, header};
use axum::response::Response;
use punctual_driver::ports::{Catalog, Clock};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Console;
use super::error::ConsoleError;
use super::form::{Fields, address, segment};
use super::page::Viewer;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A call of the API.
pub(super) struct Call<'a> {
    /// Who makes it.
    pub(super) viewer: &'a Viewer,
    pub(super) method: Method,
    /// Behind `/api/v1`, part by part.
    pub(super) path: &'a [&'a str],
    /// Behind the question mark.
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Value,
    /// An idempotency key, where the call takes one.
    pub(super) key: Option<&'a str>,
}

impl<S: Catalog, C: Clock> Console<S, C> {
    /// Does what a form asks for, in the name of whoever has sent it.
    pub(super) async fn post(&self, viewer: &Viewer, path: &[&str], body: Value) -> Result<Value, ConsoleError> {
        self.call(Call { viewer, method: Method::POST, path, query: &[], body, key: None }).await
    }

    /// Reads what whoever looks may see.
    pub(super) async fn get(&self, viewer: &Viewer, path: &[&str], query: &[(&str, &str)]) -> Result<Value, ConsoleError> {
        self.call(Call { viewer, method: Method::GET, path, query, body: Value::Null, key: None }).await
    }

    pub(super) async fn call(&self, call: Call<'_>) -> Result<Value, ConsoleError> {
        let Call { viewer, method, path, query, mut body, key } = call;
        let body = match method {
            Method::GET => String::new(),
            _ => {
                body["by"] = json!(&*viewer.identity.name);
                body.to_string()
            }
        };
        let key = key.map(|key| (HeaderName::from_static("idempotency-key"), key.to_owned()));
        self.send(viewer, method, path, query, key, body).await
    }

    /// Makes a task, or changes it, where it is as the condition says. Who asks and why stands in the query: the body is the task's document.
    pub(super) async fn put_task(
        &self,
        viewer: &Viewer,
        name: &str,
        query: &[(&str, &str)],
        condition: (HeaderName, String),
        document: String,
    ) -> Result<Value, ConsoleError> {
        self.send(viewer, Method::PUT, &["tasks", name], query, Some(condition), document).await
    }

    pub(super) async fn delete_task(&self, viewer: &Viewer, name: &str, query: &[(&str, &str)]) -> Result<Value, ConsoleError> {
        self.send(viewer, Method::DELETE, &["tasks", name], query, None, String::new()).await
    }

    async fn send(
        &self,
        viewer: &Viewer,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        extra: Option<(HeaderName, String)>,
        body: String,
    ) -> Result<Value, ConsoleError> {
        let path: String = path.iter().flat_map(|part| ["/".to_owned(), segment(part)]).collect();
        let mut request = Request::builder().method(method).uri(address(&format!("/api/v1{path}"), query));
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(agent) = &viewer.agent {
            request = request.header(header::USER_AGENT, agent);
        }
        if let Some((name, value)) = extra {
            request = request.header(name, value);
        }
        let mut request = request.extension(viewer.identity.clone());
        if let Some(means) = &viewer.means {
            request = request.extension(means.clone());
        }
        if let Some(visitor) = &viewer.visitor {
            request = request.extension(visitor.clone());
        }
        let refused = |detail: String| ConsoleError::Api { status: StatusCode::BAD_REQUEST, code: "PUN-305".to_owned(), detail };
        let request = request.body(Body::from(body)).map_err(|error| refused(error.to_string()))?;
        let Ok(response) = self.calls.clone().oneshot(request).await;
        read(response).await.map_err(|(status, problem)| ConsoleError::Api {
            status,
            code: problem["code"].as_str().unwrap_or("PUN-305").to_owned(),
            detail: problem["detail"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

async fn read(response: Response) -> Result<Value, (StatusCode, Value)> {
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.unwrap_or_default();
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    // What came too late is told with the instance, and is no problem.
    let is_answer = status.is_success() || (status == StatusCode::CONFLICT && value.get("code").is_none());
    if is_answer { Ok(value) } else { Err((status, value)) }
}

/// Why, where somebody has said so.
pub(super) fn reason(fields: &Fields) -> Value {
    fields.get("reason").map_or_else(|| json!({}), |reason| json!({ "reason": reason.trim() }))
}
