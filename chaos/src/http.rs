//! Requests to the API, one a connection.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take. Longer than the API waits for anything.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// What the API said.
#[derive(Clone, Debug)]
pub struct Said {
    /// The status.
    pub status: u16,
    /// The body; null where it is no JSON.
    pub body: Value,
}

/// Asks the API that listens on this port of the loopback. `None`: no whole answer came.
pub async fn request(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Option<Said> {
    timeout(ANSWER_TIME_MAX, ask(port, method, path, headers, body)).await.ok()?
}

async fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Option<Said> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !body.is_empty() {
        text.push_str("Content-Type: application/json\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(&body);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    stream.write_all(text.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    parse(&String::from_utf8_lossy(&answer))
}

/// An answer that came whole.
fn parse(text: &str) -> Option<Said> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let is_whole = length.is_none_or(|length| body.len() == length);
    is_whole.then(|| Said { status, body: serde_json::from_str(body).unwrap_or(Value::Null) })
}

/// A text as a part of a path.
pub fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.bytes().map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_answer_is_none() {
        let whole = "HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\nContent-Length: 9\r\n\r\n{\"a\": 42}";
        let said = parse(whole).unwrap();
        assert_eq!((said.status, &said.body["a"]), (202, &Value::from(42)));
        assert!(parse(&whole[..whole.len() - 1]).is_none());
        assert!(parse("HTTP/1.1 202").is_none());
    }

    #[test]
    fn names_are_parts_of_paths() {
        assert_eq!(encoded("a-1.b_c"), "a-1.b_c");
        assert_eq!(encoded("a/ä"), "a%2F%C3%A4");
    }
}
