//! Talks to a running Punctual.

use std::time::Duration;

use reqwest::header::HeaderValue;
use serde_json::Value;

/// Where the API is.
#[derive(clap::Args, Debug)]
pub(crate) struct ApiArgs {
    /// Address of the running Punctual
    #[arg(long, env = "PUNCTUAL_API", default_value = "http://127.0.0.1:8650", value_name = "URL")]
    pub(crate) api: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("PUN-401: no Punctual answers at {api} ({reason}). Start one with `punctual dev FILE`, or name its address with --api")]
    Unreachable { api: String, reason: String },
    #[error("PUN-402: {api} answers, but not as Punctual does ({reason}). Name Punctual's address with --api")]
    NotPunctual { api: String, reason: String },
    #[error("PUN-305: {field}: {problem}")]
    Unfit { field: &'static str, problem: &'static str },
    #[error("{code}: {detail}")]
    Refused { code: String, detail: String, problem: Value },
}

impl ClientError {
    /// As problem details, the API's own where there are any.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            ClientError::Refused { problem, .. } => problem.clone(),
            ClientError::Unfit { .. } => serde_json::json!({ "code": "PUN-305", "detail": self.to_string() }),
            ClientError::Unreachable { .. } => serde_json::json!({ "code": "PUN-401", "detail": self.to_string() }),
            ClientError::NotPunctual { .. } => serde_json::json!({ "code": "PUN-402", "detail": self.to_string() }),
        }
    }
}

/// Longest wait for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The client asks for TLS settings, though the API speaks plain HTTP on loopback and other addresses are refused.
fn trusts_nobody() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    versions.expect("the provider knows them").with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

/// Where a request comes from, for the audit.
fn user_agent() -> String {
    let host: String = super::host_name().chars().filter(char::is_ascii_graphic).take(100).collect();
    format!("punctual-cli/{} ({host})", env!("CARGO_PKG_VERSION"))
}

/// A client of one address.
pub(crate) struct Client {
    api: String,
    http: reqwest::Client,
}

impl Client {
    pub(crate) fn new(args: &ApiArgs) -> Self {
        // Always this machine: a proxy from the environment would not find it.
        let http = reqwest::Client::builder()
            .no_proxy()
            .user_agent(user_agent())
            .tls_backend_preconfigured(trusts_nobody())
            .timeout(ANSWER_TIME_MAX)
            .build();
        Client { api: args.api.trim_end_matches('/').to_owned(), http: http.expect("a client without options of the system's") }
    }

    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.get(url).query(query)).await
    }

    pub(crate) async fn post(&self, path: &[&str], key: Option<&str>, body: &Value) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        let mut request = self.http.post(url).header("content-type", "application/json").body(body.to_string());
        if let Some(key) = key {
            let key = HeaderValue::from_str(key)
                .map_err(|_| ClientError::Unfit { field: "--key", problem: "must be 1 to 255 visible ASCII characters" })?;
            request = request.header("idempotency-key", key);
        }
        self.answer(request).await
    }

    pub(crate) async fn patch(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.patch(url).header("content-type", "application/json").body(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.delete(url).header("content-type", "application/json").body(body.to_string())).await
    }

    pub(crate) async fn put(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.put(url).header("content-type", "application/json").body(body.to_string())).await
    }

    /// Names may hold anything, so each part of the path is escaped.
    fn url(&self, path: &[&str]) -> Result<reqwest::Url, ClientError> {
        // The rules for addresses take these two away, even when they are escaped.
        if path.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(ClientError::Unfit { field: "name or id", problem: "nothing has a name that is empty, `.` or `..`" });
        }
        let not_an_address = |reason: &str| ClientError::Unreachable { api: self.api.clone(), reason: reason.to_owned() };
        let mut url = reqwest::Url::parse(&self.api).map_err(|error| not_an_address(&error.to_string()))?;
        if url.scheme() != "http" {
            return Err(not_an_address("its addresses begin with http://"));
        }
        url.path_segments_mut().map_err(|()| not_an_address("not an address"))?.pop_if_empty().extend(["api", "v1"]).extend(path);
        Ok(url)
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Value, ClientError> {
        let unreachable = |error: reqwest::Error| ClientError::Unreachable { api: self.api.clone(), reason: root_cause(&error) };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let text = response.text().await.map_err(unreachable)?;
        let not_punctual = || ClientError::NotPunctual { api: self.api.clone(), reason: format!("status {status}") };
        let value: Value = serde_json::from_str(&text).map_err(|_| not_punctual())?;
        // A conflict that carries an instance is an answer, not an error.
        if status.is_success() || value.get("instance").is_some() {
            return Ok(value);
        }
        match (value["code"].as_str(), value["detail"].as_str()) {
            (Some(code), Some(detail)) => Err(ClientError::Refused { code: code.to_owned(), detail: detail.to_owned(), problem: value }),
            _ => Err(not_punctual()),
        }
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
