//! The handler `http`: makes an HTTP call.
//!
//! Each call opens a connection of its own (HTTP/1.1) and closes it: scheduled calls are far apart, and one that meets a kept connection
//! which the server is just closing would fail with nothing wrong. Environment variables such as `HTTPS_PROXY` are not heeded: a call goes
//! where the task says. Root certificates are the system's; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
//!
//! - An answer whose status is a success, read to its end or to the limit of what is kept: succeeded.
//!   Its body is the result too, if it is JSON by its `Content-Type` and by itself and not larger than a result may be. An answer
//!   is often larger, and meant for nobody: that is no finding.
//! - An answer with another status, whichever: failed. Whether to call again is for the task's retry policy; what a 404 means, only its
//!   author knows.
//! - No answer, or one that breaks off: failed, with the reason. The call may have had its effect, so the server should go by the
//!   `Idempotency-Key`.
//! - A call that can't be made at all, such as one with a malformed URL, or to an internal address that this worker does not call
//!   ([`InternalAddresses`]): failed for good.
//!
//! An answer that is no success may say in `Retry-After` how long to wait, in seconds or until when: the next attempt waits that long at
//! least. The answer's `Date` tells what time it is there, so that clocks which differ make no difference.
//!
//! A redirect is followed as the task allows, at most [`REDIRECTS_MAX`] times. `Authorization`, `Cookie` and the URL's password stay
//! with the origin that they were meant for; other headers go along, so an API key in a header of its own should not be combined with
//! `redirects: any`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_core::batch::Output;
use punctual_core::limits::{OUTPUT_BYTES_MAX, RESULT_BYTES_MAX};
use punctual_core::protocol::{Assignment, End, MapRole};
use punctual_core::time::Millis;
use punctual_driver::logs::TraceId;
use punctual_driver::ports::{Ended, Stop};
use punctual_spec::handler::{HttpConfig, Method, Redirects};
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response, Url};
use tokio::sync::{OnceCell, watch};

use crate::internal::{self, Guarded, InternalAddresses, Lookup, Refused};
use crate::output::Capture;
use crate::{failed, failed_for_good, http_date, items};

/// Most redirects that a call follows.
pub const REDIRECTS_MAX: usize = 10;
/// How long making a connection may take: name, TCP and TLS together. The rest of the call has the attempt's own time limit.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);

/// The clients, made at the first call: reading the root certificates takes a while.
pub(crate) struct HttpWorld {
    clients: OnceCell<Clients>,
    internal: InternalAddresses,
    lookup: Lookup,
}

impl std::fmt::Debug for HttpWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpWorld").field("internal", &self.internal).finish_non_exhaustive()
    }
}

impl HttpWorld {
    /// One whose calls go to public addresses, and to these.
    pub(crate) fn new(internal: InternalAddresses) -> Self {
        HttpWorld { clients: OnceCell::new(), internal, lookup: internal::by_system() }
    }
}

#[derive(Debug)]
struct Clients {
    staying: Client,
    same_origin: Client,
    anywhere: Client,
}

impl Clients {
    fn new(internal: &InternalAddresses, lookup: Lookup) -> Result<Clients, Box<dyn Error + Send + Sync>> {
        let mut roots = rustls::RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (known, unusable) = roots.add_parsable_certificates(found.certs);
        if known == 0 {
            tracing::warn!(unusable, errors = ?found.errors, "no root certificates: https calls will fail. Install ca-certificates, or set SSL_CERT_FILE");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let resolver = Arc::new(Guarded { allowed: internal.clone(), lookup });
        let client = |redirects: Redirects| {
            Client::builder()
                .dns_resolver(resolver.clone())
                .tls_backend_preconfigured(tls.clone())
                .redirect(policy(redirects, internal.clone()))
                .no_proxy()
                .referer(false)
                .pool_max_idle_per_host(0)
                .connect_timeout(CONNECT_TIME_MAX)
                .build()
        };
        Ok(Clients { staying: client(Redirects::None)?, same_origin: client(Redirects::SameOrigin)?, anywhere: client(Redirects::Any)? })
    }
}

fn policy(redirects: Redirects, internal: InternalAddresses) -> Policy {
    if redirects == Redirects::None {
        return Policy::none();
    }
    Policy::custom(move |attempt| {
        let is_elsewhere = attempt.previous().last().is_none_or(|previous| previous.origin() != attempt.url().origin());
        if redirects == Redirects::SameOrigin && is_elsewhere {
            return attempt.stop();
        }
        match internal::check_url(&internal, attempt.url()) {
            Ok(()) => Policy::limited(REDIRECTS_MAX).redirect(attempt),
            Err(refused) => attempt.error(refused),
        }
    })
}

/// Runs one attempt.
pub(crate) async fn run(world: &HttpWorld, assignment: &Assignment, mut stop: watch::Receiver<Stop>) -> Ended {
    let asked = async {
        if stop.wait_for(|asked| *asked != Stop::No).await.is_err() {
            // The sender is gone: nobody asks any more.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = asked => Ended { end: End::Cancelled, ..failed("the call was broken off; it may have had its effect") },
        ended = call(world, assignment) => match assignment.map {
            Some(MapRole::List) if ended.end == End::Succeeded => listed(ended),
            _ => ended,
        },
    }
}

/// The answer of a call that lists.
fn listed(ended: Ended) -> Ended {
    let body = ended.output.bytes.clone();
    if ended.output.dropped > 0 {
        return items::listed(
            ended,
            Err(format!("has more bytes than are kept of an answer, {}", punctual_core::limits::OUTPUT_BYTES_MAX)),
        );
    }
    match std::str::from_utf8(&body) {
        Ok(text) => items::listed(ended, Ok(text)),
        Err(error) => items::listed(ended, Err(format!("is not UTF-8 from byte {} on", error.valid_up_to()))),
    }
}

async fn call(world: &HttpWorld, assignment: &Assignment) -> Ended {
    let config: HttpConfig = match serde_json::from_str(&assignment.handler.config) {
        Ok(config) => config,
        Err(error) => return failed_for_good(format!("the configuration of the call can't be read: {error}. Correct the task")),
    };
    let (internal, lookup) = (world.internal.clone(), world.lookup.clone());
    let make = || async move { tokio::task::spawn_blocking(move || Clients::new(&internal, lookup)).await? };
    let clients = match world.clients.get_or_try_init(make).await {
        Ok(clients) => clients,
        Err(error) => return failed(format!("the HTTP client could not be made: {error}")),
    };
    let client = match config.redirects {
        Redirects::None => &clients.staying,
        Redirects::SameOrigin => &clients.same_origin,
        Redirects::Any => &clients.anywhere,
    };
    let (request, successes) = match request(client, &config, assignment).and_then(|request| Ok((request, config.success_ranges()?))) {
        Ok(prepared) => prepared,
        Err(reason) => return failed_for_good(format!("{reason}. Correct the task")),
    };
    if let Err(refused) = internal::check_url(&world.internal, request.url()) {
        return failed_for_good(refused.to_string());
    }
    let target = origin(request.url());
    match client.execute(request).await {
        Ok(response) => {
            let succeeded = successes.iter().any(|range| range.contains(&response.status().as_u16()));
            take_in(response, succeeded).await
        }
        // Nothing is found out about what is there: nobody was asked.
        Err(error) => match Refused::behind(&error) {
            Some(refused) => failed_for_good(refused.to_string()),
            None => failed(explain(&error, &target)),
        },
    }
}

fn request(client: &Client, config: &HttpConfig, assignment: &Assignment) -> Result<Request, String> {
    let url = Url::parse(&config.url).map_err(|error| format!("the URL can't be read: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the URL's scheme is {:?}, and only http and https can be called", url.scheme()));
    }
    let method = match config.method {
        Method::Get => reqwest::Method::GET,
        Method::Head => reqwest::Method::HEAD,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
    };
    let takes_payload = !matches!(config.method, Method::Get | Method::Head);
    let inputs = assignment.node.as_ref().map(|node| &*node.inputs).filter(|inputs| *inputs != "{}");
    let body = config.body.as_deref().or(assignment.payload.as_deref().or(inputs).filter(|_| takes_payload));

    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("punctual/", env!("CARGO_PKG_VERSION"))));
    if let Some(body) = body {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(body).is_ok();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(if is_json { "application/json" } else { "text/plain; charset=utf-8" }));
    }
    if let Ok(parent) = HeaderValue::try_from(TraceId::of(assignment).parent(assignment.fence)) {
        headers.insert("traceparent", parent);
    }
    for (name, value) in &config.headers {
        let header = HeaderName::try_from(name).map_err(|_| format!("{name:?} can't be the name of a header"))?;
        // The value may be a secret, so it isn't shown.
        headers.insert(header, HeaderValue::try_from(value).map_err(|_| format!("the value of the header {name:?} is not allowed"))?);
    }
    for (name, value) in about_attempt(assignment) {
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| format!("the value of the header {name:?} is not allowed"))?);
    }

    let mut request = client.request(method, url).headers(headers);
    if let Some(body) = body {
        request = request.body(body.to_owned());
    }
    request.build().map_err(|error| format!("the call can't be made: {}", error.without_url()))
}

/// What the server is told about the attempt.
fn about_attempt(assignment: &Assignment) -> impl Iterator<Item = (&'static str, String)> {
    let of_all = [
        ("punctual-instance", assignment.instance.to_string()),
        ("punctual-attempt", assignment.attempt.to_string()),
        ("punctual-fence", assignment.fence.to_string()),
        ("punctual-fire-time", assignment.fire_time.to_string()),
        ("punctual-run", assignment.run.to_string()),
        ("idempotency-key", assignment.idempotency_key()),
    ];
    let shard = assignment.shard.as_ref();
    let of_shards = shard.map(|shard| [("punctual-shard", shard.index.to_string()), ("punctual-shards", shard.count.to_string())]);
    let key = shard.and_then(|shard| shard.key.as_deref()).map(|key| ("punctual-shard-key", escaped(key)));
    let node = assignment.node.as_ref().map(|node| ("punctual-node", escaped(&node.name)));
    of_all.into_iter().chain(of_shards.into_iter().flatten()).chain(key).chain(node)
}

/// A text as a header can hold it: percent-encoded but for visible ASCII.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'!'..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Reads an answer's body up to the limit, and leaves the rest unread, which closes the connection.
async fn take_in(mut response: Response, succeeded: bool) -> Ended {
    let status = response.status();
    let code = Some(i32::from(status.as_u16()));
    let mut detail = (!succeeded).then(|| format!("status {status}"));
    if let (Some(detail), true) = (&mut detail, status.is_redirection())
        && let Some(location) = response.headers().get(LOCATION).and_then(|location| location.to_str().ok())
        && let Ok(target) = response.url().join(location)
    {
        detail.push_str(&format!("; it redirects to {}, where the task's `redirects` doesn't let it go", origin(&target)));
    }
    let end = if succeeded { End::Succeeded } else { End::Failed };
    let retry_after = (!succeeded).then(|| retry_after(response.headers(), SystemTime::now())).flatten();
    if let (Some(detail), Some(wait)) = (&mut detail, retry_after) {
        detail.push_str(&format!("; it asks to wait {}", punctual_spec::duration::format(wait)));
    }

    let is_json = is_json(response.headers());
    let length = response.content_length();
    let mut capture = Capture::default();
    let mut received = 0_u64;
    let output = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let (kept, over) = chunk.split_at(chunk.len().min(OUTPUT_BYTES_MAX - capture.len()));
                capture.push(kept);
                received += chunk.len() as u64;
                if !over.is_empty() {
                    let unread = length.map_or(0, |length| length.saturating_sub(received));
                    break capture.finish_cut(over.len() as u64 + unread);
                }
            }
            Ok(None) => break capture.finish(),
            Err(error) => {
                let reason = root_cause(&error);
                let detail = format!("status {status}, but the answer broke off after {received} bytes: {reason}");
                // A success that was never finished is a call without an answer: it is not judged by its status.
                let code = code.filter(|_| !succeeded);
                return Ended { code, output: capture.finish(), retry_after, ..failed(detail) };
            }
        }
    };
    let result = if succeeded && is_json { result_of(&output) } else { None };
    Ended { end, code, detail: detail.map(|detail| crate::cut_detail(&detail)), output, result, items: None, retry_after }
}

/// Whether an answer says that it is JSON: `application/json`, or another type that ends with `+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

/// An answer in JSON as a result, where it is one: whole, not too long, and more than `null`.
fn result_of(body: &Output) -> Option<Arc<str>> {
    let text = std::str::from_utf8(&body.bytes).ok().filter(|_| body.dropped == 0)?.trim_ascii();
    let is_one = text.len() <= RESULT_BYTES_MAX && text != "null" && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    is_one.then(|| Arc::from(text))
}

/// How long an answer asks to wait (RFC 9110, 10.2.3): seconds, or an instant. `None` where it doesn't say, or says what can't be read. An
/// instant that has passed is no wait.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Millis> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // What doesn't fit is longer than any wait that is kept.
        return Some(Millis::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = http_date::parse(text)?;
    let there = headers.get(DATE).and_then(|date| date.to_str().ok()).and_then(http_date::parse);
    let here = || now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Some(Millis::from_secs(until.saturating_sub(there.unwrap_or_else(here))))
}

/// Scheme, host and port: what may be shown of a URL, whose path and query may hold secrets.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn explain(error: &reqwest::Error, target: &str) -> String {
    let reason = root_cause(error);
    if error.is_redirect() {
        format!("the redirects that {target} began can't be followed: {reason}")
    } else if error.is_connect() {
        format!("no connection to {target}: {reason}")
    } else {
        format!("no answer from {target}: {reason}")
    }
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use punctual_core::definition::{Handler, TimeoutPolicy};
    use punctual_core::ids::{Fence, InstanceId, TaskId, Version};
    use punctual_core::time::Timestamp;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn assignment(url: &str, redirects: &str) -> Assignment {
        let config = serde_json::json!({ "url": url, "redirects": redirects }).to_string();
        Assignment {
            instance: InstanceId(42),
            attempt: 1,
            fence: Fence(7),
            task: TaskId(5),
            task_name: "x".into(),
            version: Version(1),
            fire_time: Timestamp(0),
            ordinal: 0,
            run: 1,
            shard: None,
            map: None,
            node: None,
            handler: Handler { name: "http".into(), config: config.into() },
            payload: None,
            timeout: TimeoutPolicy::default(),
        }
    }

    /// A server that answers with this, and counts its connections.
    async fn server(answer: String) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut bytes = [0; 4_096];
                let _ = connection.read(&mut bytes).await;
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        (address, count)
    }

    fn well() -> String {
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
    }

    fn to(location: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")
    }

    /// A name that says something else each time it is looked up, and how often it was.
    fn changing(answers: &[&[&str]]) -> (Lookup, Arc<AtomicUsize>) {
        let answers: Vec<Vec<SocketAddr>> =
            answers.iter().map(|answer| answer.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect()).collect();
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, answers) = (count.clone(), Mutex::new(answers.into_iter()));
        let lookup: Lookup = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = answers.lock().unwrap().next().unwrap_or_default();
            Box::pin(async move { Ok(answer) })
        });
        (lookup, count)
    }

    async fn called(internal: &str, lookup: Lookup, url: &str, redirects: &str) -> Ended {
        let internal = if internal.is_empty() { InternalAddresses::default() } else { internal.parse().unwrap() };
        let world = HttpWorld { lookup, ..HttpWorld::new(internal) };
        let (_stop, stopped) = watch::channel(Stop::No);
        run(&world, &assignment(url, redirects), stopped).await
    }

    fn is_refused(ended: &Ended) -> bool {
        ended.end == End::FailedForGood && ended.detail.as_deref().is_some_and(|detail| detail.starts_with("PUN-422: "))
    }

    #[tokio::test]
    async fn what_was_looked_at_is_what_is_connected_to() {
        let (address, count) = server(well()).await;
        let url = format!("http://rebinding.example:{}/", address.port());
        // Allowed when it is looked at, and another address the next moment, which nobody asks for.
        let (lookup, asked) = changing(&[&["127.0.0.1"], &["10.0.0.1"]]);
        let ended = called("127.0.0.1", lookup, &url, "none").await;
        assert_eq!((ended.end, ended.code, count.load(Ordering::SeqCst)), (End::Succeeded, Some(200), 1), "{:?}", ended.detail);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // Among several the internal ones are left out.
        let (lookup, _) = changing(&[&["10.0.0.1", "127.0.0.1", "::1"]]);
        let ended = called("127.0.0.1", lookup, &url, "none").await;
        assert_eq!((ended.end, count.load(Ordering::SeqCst)), (End::Succeeded, 2), "{:?}", ended.detail);
    }

    #[tokio::test]
    async fn internal_addresses_are_not_even_connected_to() {
        let (address, count) = server(well()).await;
        let port = address.port();
        let (lookup, _) = changing(&[&["127.0.0.1"]]);
        assert!(is_refused(&called("", lookup, &format!("http://rebinding.example:{port}/"), "none").await));
        for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "localhost"] {
            let ended = called("", internal::by_system(), &format!("http://{host}:{port}/"), "none").await;
            assert!(is_refused(&ended), "{host}: {:?}", ended.detail);
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
        let ended = called("127.0.0.0/8", internal::by_system(), &format!("http://127.0.0.1:{port}/"), "none").await;
        assert_eq!((ended.end, count.load(Ordering::SeqCst)), (End::Succeeded, 1), "{:?}", ended.detail);
    }

    #[tokio::test]
    async fn a_redirect_leads_to_no_internal_address() {
        let (secret, count) = server(well()).await;
        for target in [format!("http://127.0.0.1:{}/", secret.port()), format!("http://inside.example:{}/", secret.port())] {
            // The first server is at an address that is allowed, the second one is not.
            let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
            let (port, answer) = (listener.local_addr().unwrap().port(), to(&target));
            tokio::spawn(async move {
                while let Ok((mut connection, _)) = listener.accept().await {
                    let mut bytes = [0; 4_096];
                    let _ = connection.read(&mut bytes).await;
                    let _ = connection.write_all(answer.as_bytes()).await;
                }
            });
            let (lookup, _) = changing(&[&["127.0.0.2"], &["127.0.0.1"]]);
            let ended = called("127.0.0.2", lookup, &format!("http://outside.example:{port}/"), "any").await;
            assert!(is_refused(&ended), "{target}: {:?}", ended.detail);
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}
