//! `punctual logs --follow` of a server that can't answer for a while.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

use serde_json::json;

/// Gives these answers, one after the other, each on a connection of its own; tells what was asked.
fn answering(listener: TcpListener, answers: Vec<String>) -> std::thread::JoinHandle<Vec<String>> {
    let answer_one = move |answer: String| {
        let (stream, _) = listener.accept().unwrap();
        let mut head = BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty());
        let asked = head.next().unwrap();
        assert!(head.count() > 0, "it has headers");
        (&stream).write_all(answer.as_bytes()).unwrap();
        asked.split(' ').nth(1).unwrap().trim_start_matches("/api/v1/instances/1-1/logs").to_owned()
    };
    std::thread::spawn(move || answers.into_iter().map(answer_one).collect())
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn line(number: u64) -> serde_json::Value {
    json!({
        "cursor": format!("7_{number}"), "at": "2026-01-01T00:00:00Z", "level": "info", "attempt": 1, "number": number,
        "message": format!("line {number}"), "dropped": 0,
    })
}

fn event(kind: &str, data: &serde_json::Value) -> String {
    format!("event: {kind}\ndata: {data}\n\n")
}

#[test]
fn what_can_not_be_answered_just_now_is_asked_again_behind_the_last_line() {
    let page = json!({ "lines": [line(1)], "next": null, "outputs": [] }).to_string();
    let passing = json!({ "status": 503, "code": "PUN-309", "title": "t", "detail": "the database is away" }).to_string();
    let passing = answer("503 Service Unavailable", "application/problem+json", &passing);
    let stream = |events: &[String]| answer("200 OK", "text/event-stream", &events.concat());
    let end = event("end", &json!({ "state": "succeeded" }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = answering(
        listener,
        vec![
            answer("200 OK", "application/json", &page),
            passing.clone(),
            passing.clone(),
            stream(&[event("line", &line(2))]),
            passing,
            stream(&[event("line", &line(3)), end]),
        ],
    );
    let run = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["logs", "1-1", "--follow"])
        .env("PUNCTUAL_API", format!("http://{address}"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stdout), "line 1\nline 2\nline 3\n", "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0));
    let [first, second] = ["/stream?after=7_1", "/stream?after=7_2"];
    assert_eq!(asked.join().unwrap(), ["?limit=1000", first, first, first, second, second]);
}

#[test]
fn what_is_refused_for_good_ends_it() {
    let page = json!({ "lines": [], "next": null, "outputs": [] }).to_string();
    let gone = json!({ "status": 404, "code": "PUN-304", "title": "t", "detail": "there is no instance 1-1" }).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answers = vec![answer("200 OK", "application/json", &page), answer("404 Not Found", "application/problem+json", &gone)];
    let asked = answering(listener, answers);
    let run = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["logs", "1-1", "--follow"])
        .env("PUNCTUAL_API", format!("http://{address}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("PUN-304") && run.status.code() != Some(0), "{said}");
    assert_eq!(asked.join().unwrap(), ["?limit=1000", "/stream"]);
}
