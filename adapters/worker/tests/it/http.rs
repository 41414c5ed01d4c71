use std::sync::{Arc, Mutex};

use punctual_core::ids::Fence;
use punctual_core::limits::{OUTPUT_BYTES_MAX, RESULT_BYTES_MAX, RETRY_AFTER_MAX};
use punctual_core::protocol::{End, MapRole, Shard};
use punctual_core::time::Millis;
use punctual_driver::logs::TraceId;
use punctual_driver::ports::{Ended, Stop};
use punctual_worker::REDIRECTS_MAX;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::harness::{Attempt, DEADLINE, assignment, built_in, run, run_for_map, run_node, run_on, run_shard, text, until};
use crate::helper::{printed, worker_process};

/// A request as the server saw it.
#[derive(Clone, Debug)]
struct Received {
    /// Method and path.
    line: String,
    head: String,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A server on this machine; dropping it ends it.
struct Server {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    /// How each connection ended, by the server's account.
    closed: Arc<Mutex<Vec<std::io::Result<()>>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers each request with the bytes that `answer` makes of it, again and again where `endless`, and closes the connection.
    async fn start(endless: bool, answer: impl Fn(&Received) -> String + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(Mutex::new(Vec::new()));
        let (log, ends) = (received.clone(), closed.clone());
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let (log, ends, answer) = (log.clone(), ends.clone(), answer.clone());
                tokio::spawn(async move {
                    let Some(request) = receive(&mut connection).await else { return };
                    log.lock().expect("a lock").push(request.clone());
                    let bytes = answer(&request);
                    let mut end = connection.write_all(bytes.as_bytes()).await;
                    while endless && end.is_ok() {
                        end = connection.write_all(b"1000\r\n").await;
                        end = end.and(connection.write_all(&[b'x'; 0x1000]).await).and(connection.write_all(b"\r\n").await);
                    }
                    ends.lock().expect("a lock").push(end);
                });
            }
        });
        Server { url, received, closed, task }
    }

    /// Answers everything with this status and this body.
    async fn answering(status: &'static str, body: &'static str) -> Server {
        Server::start(false, move |_| response(status, "", body)).await
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().expect("a lock").clone()
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

async fn receive(connection: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("UTF-8");
    let mut request = Received { line: head.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned(), head, body: String::new() };
    let length: usize = request.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    while bytes.len() < head_end + length {
        connection.read_buf(&mut bytes).await.ok()?;
    }
    request.body = String::from_utf8(bytes[head_end..].to_vec()).expect("UTF-8");
    Some(request)
}

async fn call(config: Value) -> Ended {
    run("http", config).await
}

#[tokio::test]
async fn a_call_is_made_as_the_task_says() {
    let server = Server::answering("201 Created", "made").await;
    let headers = json!({"X-Mine": "a b", "Authorization": "Bearer t", "Idempotency-Key": "not this"});
    let ended = call(json!({"url": format!("{}/a?b=c", server.url), "method": "PUT", "headers": headers, "body": "{\"a\": 1}"})).await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref(), text(&ended.output)), (End::Succeeded, Some(201), None, "made"));
    let [request] = &server.received()[..] else { panic!("one request") };
    assert_eq!((&*request.line, &*request.body), ("PUT /a?b=c", "{\"a\": 1}"));
    for (name, value) in [
        ("X-Mine", "a b"),
        ("Authorization", "Bearer t"),
        ("PUNCTUAL-Instance", "0-42"),
        ("PUNCTUAL-Attempt", "3"),
        ("PUNCTUAL-Fence", "77"),
        ("PUNCTUAL-Fire-Time", "2023-11-14T22:13:20.5Z"),
        ("Idempotency-Key", "5/2023-11-14T22:13:20.5Z/0"),
        ("PUNCTUAL-Run", "1"),
        ("Traceparent", &TraceId::of(&assignment("http", &json!({}), None)).parent(Fence(77))),
        ("Content-Type", "application/json"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert!(!request.head.to_ascii_lowercase().contains("punctual-shard"), "{}", request.head);
    assert!(request.header("User-Agent").expect("one").starts_with("punctual/"));
}

#[tokio::test]
async fn an_answer_in_json_is_the_list() {
    for (answer, expected) in [("[1, {\"k\": 2}]", Some("1\n{\"k\":2}")), ("{}", None), ("", None)] {
        let server = Server::answering("200 OK", answer).await;
        let ended = run_for_map("http", json!({"url": server.url}), MapRole::List).await;
        let end = if expected.is_some() { End::Succeeded } else { End::FailedForGood };
        assert_eq!((ended.end, ended.items.as_deref()), (end, expected), "{answer}: {:?}", ended.detail);
    }
    let server = Server::answering("500 Internal Server Error", "[1]").await;
    assert_eq!(run_for_map("http", json!({"url": server.url}), MapRole::List).await.end, End::Failed);
}

#[tokio::test]
async fn the_server_is_told_which_shard_calls() {
    let server = Server::answering("200 OK", "").await;
    for (key, expected) in [(Some("eu west/每%"), Some("eu%20west/%E6%AF%8F%25")), (None, None)] {
        let shard = Shard { index: 1, count: 5, key: key.map(Into::into) };
        let ended = run_shard("http", json!({"url": server.url}), shard).await;
        assert_eq!(ended.end, End::Succeeded, "{:?}", ended.detail);
        let request = server.received().pop().expect("a request");
        let told = ["Punctual-Shard", "Punctual-Shards", "Punctual-Shard-Key", "Punctual-Run"].map(|name| request.header(name));
        assert_eq!(told, [Some("1"), Some("5"), expected, Some("2")]);
    }
}

#[tokio::test]
async fn a_node_sends_what_its_upstreams_answered_where_it_has_nothing_else() {
    let server = Server::answering("200 OK", "").await;
    let url = &server.url;
    for (config, inputs, body) in [
        (json!({"url": url, "method": "POST"}), "{\"a\":1}", "{\"a\":1}"),
        (json!({"url": url, "method": "POST"}), "{}", ""),
        (json!({"url": url, "method": "POST", "body": "own"}), "{\"a\":1}", "own"),
        (json!({"url": url}), "{\"a\":1}", ""),
    ] {
        assert_eq!(run_node("http", config, inputs).await.end, End::Succeeded);
        let last = server.received().pop().expect("a request");
        assert_eq!((&*last.body, last.header("Punctual-Node")), (body, Some("l%C3%A4dt")));
    }
}

#[tokio::test]
async fn an_answer_in_json_is_the_result() {
    let long = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    for (status, kind, body, is_result) in [
        ("200 OK", "application/json", "{\"n\": 3}\n".to_owned(), true),
        ("200 OK", "Application/Problem+JSON; charset=utf-8", "[]".to_owned(), true),
        ("200 OK", "application/json", long(RESULT_BYTES_MAX), true),
        ("200 OK", "application/json", long(RESULT_BYTES_MAX + 1), false),
        ("200 OK", "application/json", format!(" {} ", long(OUTPUT_BYTES_MAX)), false),
        ("200 OK", "application/json", "{\"n\": ".to_owned(), false),
        ("200 OK", "application/json", "null".to_owned(), false),
        ("200 OK", "application/json", String::new(), false),
        ("200 OK", "text/plain", "{}".to_owned(), false),
        ("200 OK", "application/jsonl", "{}".to_owned(), false),
        ("500 Sorry", "application/json", "{}".to_owned(), false),
    ] {
        let (headers, answer) = (format!("Content-Type: {kind}\r\n"), body.clone());
        let server = Server::start(false, move |_| response(status, &headers, &answer)).await;
        let ended = call(json!({"url": server.url})).await;
        assert_eq!(ended.end == End::Succeeded, status == "200 OK");
        assert_eq!(ended.result.as_deref(), is_result.then(|| body.trim_end()), "{kind} {}", body.len());
    }
    let server = Server::answering("200 OK", "{}").await;
    assert_eq!(call(json!({"url": server.url})).await.result, None, "an answer that doesn't say what it is");
}

#[tokio::test]
async fn the_payload_is_the_body_unless_the_method_has_none() {
    let server = Server::answering("200 OK", "").await;
    let executor = built_in("m", true);
    for (method, body) in [("POST", "pay"), ("PATCH", "pay"), ("DELETE", "pay"), ("GET", ""), ("HEAD", "")] {
        let ended = run_on(&executor, "http", json!({"url": server.url, "method": method}), Some("pay")).await;
        assert_eq!(ended.end, End::Succeeded, "{method} {:?}", ended.detail);
        let last = server.received().pop().expect("a request");
        assert_eq!((&*last.line, &*last.body), (&*format!("{method} /"), body));
        assert_eq!(last.header("content-type"), Some("text/plain; charset=utf-8").filter(|_| !body.is_empty()));
    }
}

#[tokio::test]
async fn the_status_decides() {
    let missing = Server::answering("404 Not Found", "no such thing").await;
    let ended = call(json!({"url": missing.url})).await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Failed, Some(404), Some("status 404 Not Found")));
    assert_eq!(text(&ended.output), "no such thing");
    let ended = call(json!({"url": missing.url, "success_statuses": ["200-299", "404"]})).await;
    assert_eq!((ended.end, ended.code), (End::Succeeded, Some(404)));
    let fine = Server::answering("200 OK", "").await;
    assert_eq!(call(json!({"url": fine.url, "success_statuses": ["201"]})).await.end, End::Failed);
}

#[tokio::test]
async fn what_cannot_be_called_fails_for_good() {
    let server = Server::answering("200 OK", "").await;
    for (config, reason) in [
        (json!({"url": "no url"}), "the URL can't be read"),
        (json!({"url": "http://"}), "the URL can't be read"),
        (json!({"url": "ftp://127.0.0.1/x"}), "only http and https"),
        (json!({"url": "file:///etc/passwd"}), "only http and https"),
        (json!({"url": server.url, "headers": {"a b": "x"}}), "name of a header"),
        (json!({"url": server.url, "headers": {"a": "s3cret\r\nB: y"}}), "value of the header"),
        (json!({"url": server.url, "success_statuses": ["2xx"]}), "2xx"),
        (json!({"url": server.url, "colour": "red"}), "colour"),
    ] {
        let ended = call(config.clone()).await;
        assert_eq!((ended.end, ended.code), (End::FailedForGood, None), "{config}");
        let detail = ended.detail.expect("a detail");
        assert!(detail.contains(reason) && detail.ends_with("Correct the task") && !detail.contains("s3cret"), "{detail}");
    }
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn no_answer_may_be_better_next_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let refused = format!("http://{}/?token=s3cret", listener.local_addr().expect("an address"));
    drop(listener);
    let silent = Server::start(false, |_| String::new()).await;
    let babbling = Server::start(false, |_| "what?\r\n\r\n".into()).await;
    let greeter = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let no_tls = format!("https://{}", greeter.local_addr().expect("an address"));
    let greeting = tokio::spawn(async move {
        let (mut connection, _) = greeter.accept().await.expect("a connection");
        connection.write_all(b"220 this speaks no TLS\r\n").await
    });
    for (url, reason) in [
        (&*refused, "no connection to http://127.0.0.1:"),
        ("http://no-such-host.invalid/", "no connection to http://no-such-host.invalid"),
        (&silent.url, "no answer from http://127.0.0.1:"),
        (&babbling.url, "no answer from"),
        (&no_tls, "no connection to https://127.0.0.1:"),
    ] {
        let ended = call(json!({"url": url})).await;
        assert_eq!((ended.end, ended.code), (End::Failed, None), "{url}");
        let detail = ended.detail.expect("a detail");
        assert!(detail.contains(reason) && !detail.contains("s3cret"), "{url}: {detail}");
    }
    greeting.abort();
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure_with_what_had_come() {
    let server = Server::start(false, |_| "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".into()).await;
    let ended = call(json!({"url": server.url})).await;
    assert_eq!((ended.end, ended.code, text(&ended.output)), (End::Failed, None, "half"), "it is not judged by the status of a success");
    let detail = ended.detail.expect("a detail");
    assert!(detail.starts_with("status 200 OK, but the answer broke off after 4 bytes"), "{detail}");
    let server = Server::start(false, |_| "HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nContent-Length: 100\r\n\r\nhalf".into()).await;
    let ended = call(json!({"url": server.url})).await;
    assert_eq!((ended.end, ended.code, ended.retry_after), (End::Failed, Some(503), Some(Millis::from_secs(9))));
}

#[tokio::test]
async fn an_answer_may_say_how_long_to_wait() {
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (status, headers, wait) in [
        ("429 Too Many Requests", "Retry-After: 120\r\n".to_owned(), Some(120)),
        ("503 Service Unavailable", "retry-after:  0 \r\n".to_owned(), Some(0)),
        ("404 Not Found", "Retry-After: 5\r\n".to_owned(), Some(5)),
        // By the answer's own clock, wherever ours is.
        ("503 Service Unavailable", format!("{date}Retry-After: Sun, 06 Nov 1994 08:51:07 GMT\r\n"), Some(90)),
        ("503 Service Unavailable", format!("{date}Retry-After: Sun Nov  6 08:49:38 1994\r\n"), Some(1)),
        ("503 Service Unavailable", format!("{date}Retry-After: Sun, 06 Nov 1994 08:00:00 GMT\r\n"), Some(0)),
        // Without one by ours: it has passed.
        ("503 Service Unavailable", "Retry-After: Sun, 06 Nov 1994 08:51:07 GMT\r\n".to_owned(), Some(0)),
        ("503 Service Unavailable", "Retry-After: soon\r\n".to_owned(), None),
        ("503 Service Unavailable", "Retry-After: -5\r\n".to_owned(), None),
        ("503 Service Unavailable", "Retry-After:\r\n".to_owned(), None),
        ("503 Service Unavailable", String::new(), None),
        ("200 OK", "Retry-After: 120\r\n".to_owned(), None),
    ] {
        let shown = headers.clone();
        let server = Server::start(false, move |_| response(status, &headers, "")).await;
        let ended = call(json!({"url": server.url})).await;
        assert_eq!(ended.retry_after, wait.map(Millis::from_secs), "{status} {shown}");
        if wait == Some(120) {
            assert_eq!(ended.detail.as_deref(), Some("status 429 Too Many Requests; it asks to wait 2m"));
        }
    }
}

#[tokio::test]
async fn a_wait_that_fits_no_number_is_the_longest() {
    let server = Server::start(false, |_| response("503 Busy", &format!("Retry-After: {}\r\n", "9".repeat(40)), "")).await;
    assert!(call(json!({"url": server.url})).await.retry_after.is_some_and(|wait| wait > RETRY_AFTER_MAX));
}

#[tokio::test]
async fn a_huge_answer_is_cut_between_characters_and_what_is_missing_is_counted() {
    let server = Server::start(false, |_| response("200 OK", "", &"€".repeat(400_000))).await;
    let ended = call(json!({"url": server.url})).await;
    assert_eq!((ended.end, ended.code), (End::Succeeded, Some(200)));
    assert_eq!(ended.output.bytes.len(), OUTPUT_BYTES_MAX / 3 * 3);
    assert_eq!(text(&ended.output).len() as u64 + ended.output.dropped, 1_200_000);
}

#[tokio::test]
async fn an_endless_answer_is_cut_and_the_connection_closed() {
    let server = Server::start(true, |_| "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n".into()).await;
    let ended = call(json!({"url": server.url})).await;
    assert_eq!((ended.end, ended.code, ended.output.bytes.len()), (End::Failed, Some(500), OUTPUT_BYTES_MAX));
    assert!(ended.output.dropped > 0);
    until("the server notices", || server.closed.lock().expect("a lock").iter().any(Result::is_err)).await;
}

/// A server whose `/to-URL` redirects there, whose `/loop` never ends, and that answers everything else.
async fn redirecting(status: &'static str) -> Server {
    Server::start(false, move |request| {
        let path = request.line.split_once(' ').map_or("", |(_, path)| path);
        match path.strip_prefix("/to-").or((path == "/loop").then_some("/loop")) {
            Some(target) => response(status, &format!("Location: {target}\r\n"), "moved"),
            None => response("200 OK", "", "there"),
        }
    })
    .await
}

#[tokio::test]
async fn redirects_lead_no_further_than_allowed() {
    let (here, elsewhere) = (redirecting("302 Found").await, redirecting("302 Found").await);
    let inside = format!("{}/to-/end", here.url);
    let outside = format!("{}/to-{}/end", here.url, elsewhere.url);
    let around = format!("{}/to-/to-{}/end", here.url, elsewhere.url);
    for (redirects, url, code) in [
        (json!("none"), &inside, 302),
        (json!("same_origin"), &inside, 200),
        (json!("same_origin"), &outside, 302),
        (json!("same_origin"), &around, 302),
        (json!("any"), &inside, 200),
    ] {
        let ended = call(json!({"url": url, "redirects": redirects})).await;
        assert_eq!(ended.code, Some(code), "{redirects} {url}");
        assert_eq!(ended.end, if code == 200 { End::Succeeded } else { End::Failed });
        let place = if url == &inside { &here.url } else { &elsewhere.url };
        assert!(ended.detail.is_none_or(|detail| detail.contains(&format!("it redirects to {place},"))), "{redirects} {url}");
    }
    assert_eq!(call(json!({"url": &outside})).await.code, Some(302), "the same origin only, where the task doesn't say");
    assert!(elsewhere.received().is_empty());

    let secrets = json!({"Authorization": "Bearer t", "Cookie": "c=1"});
    assert_eq!(call(json!({"url": around, "redirects": "any", "headers": secrets})).await.code, Some(200));
    let at = |server: &Server| server.received().pop().expect("a request");
    assert_eq!(at(&here).header("authorization"), Some("Bearer t"), "within the origin it goes along");
    assert_eq!((at(&elsewhere).header("authorization"), at(&elsewhere).header("cookie")), (None, None));

    let with_password = outside.replacen("http://", "http://me:s3cret@", 1);
    assert_eq!(call(json!({"url": with_password, "redirects": "any"})).await.code, Some(200));
    assert!(at(&here).header("authorization").is_some_and(|value| value.starts_with("Basic ")));
    assert_eq!(at(&elsewhere).header("authorization"), None);
}

#[tokio::test]
async fn redirects_in_a_circle_come_to_an_end() {
    let server = redirecting("302 Found").await;
    for redirects in ["same_origin", "any"] {
        let before = server.received().len();
        let ended = call(json!({"url": format!("{}/loop", server.url), "redirects": redirects})).await;
        assert_eq!(ended.end, End::Failed);
        assert!(ended.detail.expect("a detail").contains("too many redirects"));
        assert_eq!(server.received().len() - before, REDIRECTS_MAX + 1);
    }
}

#[tokio::test]
async fn a_redirect_keeps_method_and_body_where_the_status_says_so() {
    for (status, line, body) in [("303 See Other", "GET /end", ""), ("307 Temporary Redirect", "POST /end", "pay")] {
        let server = redirecting(status).await;
        call(json!({"url": format!("{}/to-/end", server.url), "method": "POST", "body": "pay"})).await;
        let last = server.received().pop().expect("a request");
        assert_eq!((&*last.line, &*last.body), (line, body));
        assert_eq!(last.header("punctual-fence"), Some("77"));
    }
}

#[tokio::test]
async fn a_call_that_hangs_is_broken_off_when_told() {
    for stop in [Some(Stop::Cancel), Some(Stop::Kill), None] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let attempt = Attempt::begin(&built_in("m", true), "http", &json!({"url": url}), None);
        let (mut connection, _) = tokio::time::timeout(DEADLINE, listener.accept()).await.expect("a call").expect("a connection");
        receive(&mut connection).await.expect("a request");
        match stop {
            Some(stop) => {
                attempt.stop.send_replace(stop);
                let ended = attempt.end().await;
                assert_eq!((ended.end, ended.code), (End::Cancelled, None));
            }
            None => attempt.task.abort(),
        }
        let rest = tokio::time::timeout(DEADLINE, connection.read(&mut [0; 16])).await.expect("the connection is closed");
        assert!(matches!(rest, Ok(0) | Err(_)));
    }
}

#[tokio::test]
async fn the_environments_proxy_is_not_used() {
    let server = Server::answering("200 OK", "direct").await;
    let proxy = Server::answering("200 OK", "proxy").await;
    let environment = [("http_proxy", &*proxy.url), ("HTTP_PROXY", &proxy.url), ("all_proxy", &proxy.url), ("ALL_PROXY", &proxy.url)];
    let output = printed(worker_process("m", &[("http", json!({"url": server.url}))], &environment)).await;
    assert!(output.contains("Succeeded None direct"), "{output}");
    assert!(proxy.received().is_empty());
}

#[tokio::test]
async fn one_whose_stopper_is_gone_goes_on() {
    let server = Server::answering("200 OK", "").await;
    let Attempt { stop, task } = Attempt::begin(&built_in("m", true), "http", &json!({"url": server.url}), None);
    drop(stop);
    assert_eq!(tokio::time::timeout(DEADLINE, task).await.expect("hangs").expect("panicked").end, End::Succeeded);
}

/// Answers one connection after another over TLS, under a certificate for 127.0.0.1 that nobody has signed but itself.
async fn over_tls() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let Ok(mut connection) = acceptor.accept(connection).await else { continue };
            if receive(&mut connection).await.is_some() {
                let _ = connection.write_all(response("200 OK", "", "over TLS").as_bytes()).await;
                let _ = connection.shutdown().await;
            }
        }
    });
    (url, made.cert.pem())
}

#[tokio::test]
async fn a_certificate_is_believed_only_if_its_root_is_known() {
    let (url, certificate) = over_tls().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roots.pem");
    std::fs::write(&file, certificate).expect("a file");
    let attempts = [("http", json!({"url": url}))];

    let output = printed(worker_process("m", &attempts, &[("SSL_CERT_FILE", file.to_str().expect("UTF-8"))])).await;
    assert!(output.contains("Succeeded None over TLS"), "{output}");
    let output = printed(worker_process("m", &attempts, &[("SSL_CERT_FILE", "/dev/null")])).await;
    assert!(output.contains("Failed Some(\"no connection to https://127.0.0.1") && output.contains("UnknownIssuer"), "{output}");
}
