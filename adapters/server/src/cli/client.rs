//! Talks to a running Punctual.

use std::time::Duration;

use reqwest::header::HeaderValue;
use serde_json::Value;

use super::Exit;
use super::context::{self, ContextError};

/// Where the API is, and what it is shown.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct ApiArgs {
    /// Address of the running Punctual; by default that of the context, or http://127.0.0.1:8650
    #[arg(long, env = "PUNCTUAL_API", value_name = "URL")]
    pub(crate) api: Option<String>,
    /// The token to show; by default that of the context
    #[arg(long, env = "PUNCTUAL_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The context to take address and token of; see `punctual context`
    #[arg(long, env = "PUNCTUAL_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Send the token, or a password, without TLS to another machine
    #[arg(long)]
    pub(crate) plain_http: bool,
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
    #[error("{0}")]
    Context(#[from] ContextError),
    #[error(
        "PUN-421: what opens the API would go to {api} without TLS, where it can be read on the way. Name an address that begins with https://, or accept it with \
         --plain-http"
    )]
    InTheClear { api: String },
    #[error("PUN-305: {field}: {problem}")]
    Unfit { field: &'static str, problem: &'static str },
    /// What was asked for came too late, or was done by somebody else: what is printed of that.
    #[error("{shown}")]
    NotDone { shown: String },
    #[error("{code}: {detail}")]
    Refused { code: String, detail: String, problem: Value },
}

impl ClientError {
    /// As problem details, the API's own where there are any.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            ClientError::Refused { problem, .. } => problem.clone(),
            ClientError::NotDone { shown } => Value::from(shown.as_str()),
            ClientError::Context(error) => serde_json::json!({ "code": error.code(), "detail": self.to_string() }),
            ClientError::InTheClear { .. } => serde_json::json!({ "code": "PUN-421", "detail": self.to_string() }),
            ClientError::Unfit { .. } => serde_json::json!({ "code": "PUN-305", "detail": self.to_string() }),
            ClientError::Unreachable { .. } => serde_json::json!({ "code": "PUN-401", "detail": self.to_string() }),
            ClientError::NotPunctual { .. } => serde_json::json!({ "code": "PUN-402", "detail": self.to_string() }),
        }
    }
}

impl ClientError {
    /// Whether the same call may be answered a little later: nobody answers, or the database can't be reached.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Refused { problem, .. } => problem["status"] == 503,
            _ => false,
        }
    }

    /// What the command ends with: input that was refused is told apart from what could not be done.
    pub(super) fn exit(&self) -> Exit {
        match self {
            ClientError::Unfit { .. } => Exit::Refused,
            ClientError::Refused { problem, .. } if matches!(problem["status"].as_u64(), Some(400 | 413 | 422)) => Exit::Refused,
            _ => Exit::Found,
        }
    }
}

/// Rows that a list is asked for at once.
const PAGE_ROWS: usize = 1_000;
/// Longest wait for an answer.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest stream of events; a server ends its own earlier.
const STREAM_TIME_MAX: Duration = Duration::from_secs(300);
/// Longest line of one, in bytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// Trusts the system's roots where the address asks for TLS, and nobody where it does not: reading them takes a while.
fn tls(is_wanted: bool) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    if is_wanted {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    versions.expect("the provider knows them").with_root_certificates(roots).with_no_client_auth()
}

/// Where a request comes from, for the audit.
fn user_agent() -> String {
    let host: String = super::host_name().chars().filter(char::is_ascii_graphic).take(100).collect();
    format!("punctual-cli/{} ({host})", env!("CARGO_PKG_VERSION"))
}

/// A client over TLS or not. A proxy from the environment would not find this machine, and a token is for one address: no redirects.
pub(super) fn http(is_tls: bool) -> reqwest::Client {
    let http = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(user_agent())
        .tls_backend_preconfigured(tls(is_tls))
        .timeout(ANSWER_TIME_MAX)
        .build();
    http.expect("a client without options of the system's")
}

/// Whether nobody on the way reads or changes what goes there: over TLS, or within this machine.
pub(super) fn is_safe(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || (url.scheme() == "http" && is_here)
}

/// A client of one address.
pub(crate) struct Client {
    api: String,
    http: reqwest::Client,
    token: Option<String>,
    plain_http: bool,
    /// What keeps it from asking anybody: said at the first request.
    problem: Option<ContextError>,
    session: Option<Session>,
}

/// A session of the program's own, for what a token does not do.
struct Session {
    cookie: HeaderValue,
    csrf: HeaderValue,
}

impl Client {
    pub(crate) fn new(args: &ApiArgs) -> Self {
        let (target, problem) = match context::target(args) {
            Ok(target) => (target, None),
            Err(problem) => (context::Target::default(), Some(problem)),
        };
        let context::Target { api, token, plain_http } = target;
        let http = http(api.starts_with("https:"));
        Client { api: api.trim_end_matches('/').to_owned(), http, token, plain_http, problem, session: None }
    }

    /// Begins a session, which stands for the token from now on.
    pub(crate) async fn sign_in(&mut self, name: &str, password: &str) -> Result<(), ClientError> {
        let url = self.url(&["sign-in"])?;
        if !self.may_be_told(&url) {
            return Err(ClientError::InTheClear { api: self.api.clone() });
        }
        let body = serde_json::json!({ "name": name, "password": password }).to_string();
        let request = self.http.post(url).header("content-type", "application/json").body(body);
        let unreachable = |error: reqwest::Error| ClientError::Unreachable { api: self.api.clone(), reason: root_cause(&error) };
        let response = request.send().await.map_err(unreachable)?;
        let set = response.headers().get("set-cookie").and_then(|cookie| cookie.to_str().ok());
        let cookie = set.and_then(|cookie| cookie.split(';').next()).and_then(|cookie| HeaderValue::from_str(cookie).ok());
        let answer = self.read(response).await?;
        let csrf = answer["csrf"].as_str().and_then(|csrf| HeaderValue::from_str(csrf).ok());
        let not_punctual = || ClientError::NotPunctual { api: self.api.clone(), reason: "it begins no session".to_owned() };
        self.session = Some(Session { cookie: cookie.ok_or_else(not_punctual)?, csrf: csrf.ok_or_else(not_punctual)? });
        Ok(())
    }

    /// Whether what opens the API may be sent there.
    fn may_be_told(&self, url: &reqwest::Url) -> bool {
        is_safe(url) || self.plain_http
    }

    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.get_within(ANSWER_TIME_MAX, path, query).await
    }

    /// The same for what may take longer, or less long.
    pub(crate) async fn get_within(&self, most: Duration, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.get(url).query(query).timeout(most)).await
    }

    /// All rows of a list, page by page: the list and the field of its rows have one name.
    pub(crate) async fn all(&self, what: &str, filters: &[(&str, String)]) -> Result<Vec<Value>, ClientError> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let mut query = [filters, &[("limit", PAGE_ROWS.to_string())]].concat();
            query.extend(after.map(|after| ("after", after)));
            let mut page = self.get(&[what], &query).await?;
            if let Value::Array(found) = page[what].take() {
                rows.extend(found);
            }
            after = match page["next"].take() {
                Value::Null => return Ok(rows),
                Value::String(next) => Some(next),
                next => Some(next.to_string()),
            };
        }
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

    /// The same, with what goes with it in the address.
    pub(crate) async fn delete_with(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.delete(url).query(query)).await
    }

    pub(crate) async fn put(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        let url = self.url(path)?;
        self.answer(self.http.put(url).header("content-type", "application/json").body(body.to_string())).await
    }

    /// Hears server-sent events until `hear` has had enough, which is answered with `false`, or until the stream ends, with `true`. `hear` is
    /// told of each event's kind and data.
    pub(crate) async fn events(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        mut hear: impl FnMut(&str, Value) -> bool,
    ) -> Result<bool, ClientError> {
        let url = self.url(path)?;
        // It lasts as long as there is something to hear.
        let request = self.signed(self.http.get(url).query(query).timeout(STREAM_TIME_MAX));
        let unreachable = |error: reqwest::Error| ClientError::Unreachable { api: self.api.clone(), reason: root_cause(&error) };
        let mut response = request.send().await.map_err(unreachable)?;
        if !response.status().is_success() {
            return self.read(response).await.map(|_| true);
        }
        let (mut begun, mut kind, mut data) = (Vec::new(), String::new(), String::new());
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
                begun.extend_from_slice(piece);
                if begun.last() != Some(&b'\n') {
                    if begun.len() > EVENT_BYTES_MAX {
                        return Err(ClientError::NotPunctual { api: self.api.clone(), reason: "an event without end".to_owned() });
                    }
                    continue;
                }
                let line = String::from_utf8_lossy(&begun).trim_end_matches(['\r', '\n']).to_owned();
                begun.clear();
                match line.split_once(':') {
                    Some(("event", value)) => kind = value.trim_start().to_owned(),
                    Some(("data", value)) => data.push_str(value.trim_start()),
                    None if line.is_empty() && !kind.is_empty() => {
                        let told = serde_json::from_str(&data).unwrap_or_default();
                        if !hear(&kind, told) {
                            return Ok(false);
                        }
                        (kind, data) = (String::new(), String::new());
                    }
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    /// Names may hold anything, so each part of the path is escaped.
    fn url(&self, path: &[&str]) -> Result<reqwest::Url, ClientError> {
        // The rules for addresses take these two away, even when they are escaped.
        if path.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(ClientError::Unfit { field: "name or id", problem: "nothing has a name that is empty, `.` or `..`" });
        }
        let not_an_address = |reason: &str| ClientError::Unreachable { api: self.api.clone(), reason: reason.to_owned() };
        if let Some(problem) = &self.problem {
            return Err(problem.clone().into());
        }
        let mut url = reqwest::Url::parse(&self.api).map_err(|error| not_an_address(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(not_an_address("its addresses begin with http:// or https://"));
        }
        if self.token.is_some() && !self.may_be_told(&url) {
            return Err(ClientError::InTheClear { api: self.api.clone() });
        }
        url.path_segments_mut().map_err(|()| not_an_address("not an address"))?.pop_if_empty().extend(["api", "v1"]).extend(path);
        Ok(url)
    }

    /// With what opens the API.
    fn signed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match (&self.session, &self.token) {
            (Some(session), _) => request.header("cookie", session.cookie.clone()).header("x-csrf-token", session.csrf.clone()),
            (None, Some(token)) => request.bearer_auth(token),
            (None, None) => request,
        }
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Value, ClientError> {
        let request = self.signed(request);
        let unreachable = |error: reqwest::Error| ClientError::Unreachable { api: self.api.clone(), reason: root_cause(&error) };
        self.read(request.send().await.map_err(unreachable)?).await
    }

    async fn read(&self, response: reqwest::Response) -> Result<Value, ClientError> {
        let unreachable = |error: reqwest::Error| ClientError::Unreachable { api: self.api.clone(), reason: root_cause(&error) };
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
