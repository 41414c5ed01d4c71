//! What commands write, line by line while they run.

use std::sync::Arc;

use punctual_core::ids::{Fence, WorkerId};
use punctual_core::protocol::End;
use punctual_driver::clock::SystemClock;
use punctual_driver::logs::{ATTEMPT_SHARE, LINE_OVERHEAD, Level, LogBuffer, TraceId};
use punctual_driver::ports::Stop;
use punctual_worker::{BuiltIn, InternalAddresses, Options};
use serde_json::json;

use crate::harness::{Attempt, assignment, text, until};

fn logging() -> (BuiltIn, Arc<LogBuffer>) {
    let worker = WorkerId("w1".into());
    let logs = LogBuffer::new(worker.clone(), Arc::new(SystemClock::new()));
    let (marker, internal) = ("punctual-tests".to_owned(), InternalAddresses::loopback());
    (BuiltIn::new(&Options { allow_commands: true, worker, marker, internal, logs: Some(logs.clone()) }), logs)
}

fn messages(logs: &LogBuffer) -> Vec<String> {
    logs.waiting().iter().map(|line| line.message.to_string()).collect()
}

#[tokio::test]
async fn a_line_is_there_while_the_command_runs() {
    let (executor, logs) = logging();
    let line = "echo out; echo 'WARN err' >&2; printf half; read x; echo; echo ERROR $x";
    let mut attempt = Attempt::begin(&executor, "command", &json!({"shell": line}), None);
    // Its standard input is empty, so it would end: the lines are there all the same.
    until("two lines", || logs.waiting().len() >= 2).await;
    let ended = (&mut attempt.task).await.expect("no panic");
    assert_eq!((ended.end, text(&ended.output)), (End::Succeeded, "out\nWARN err\nhalf\nERROR\n"));
    assert_eq!(messages(&logs), ["out", "WARN err", "half", "ERROR"]);
    assert_eq!(logs.waiting().iter().map(|line| line.level).collect::<Vec<_>>(), [Level::Info, Level::Warn, Level::Info, Level::Error]);
}

#[tokio::test]
async fn a_command_that_waits_has_its_lines_out() {
    let (executor, logs) = logging();
    let attempt = Attempt::begin(&executor, "command", &json!({"shell": "echo here; sleep 600"}), None);
    until("a line", || messages(&logs) == ["here"]).await;
    attempt.stop.send(Stop::Kill).expect("it runs");
    assert_eq!(attempt.end().await.end, End::Cancelled);
    assert_eq!(messages(&logs), ["here"]);
}

#[tokio::test]
async fn a_command_knows_its_trace_unless_the_task_names_one() {
    let (executor, _) = logging();
    let traceparent = TraceId::of(&assignment("command", &json!({}), None)).parent(Fence(77));
    for (config, expected) in [
        (json!({"shell": "printf %s $TRACEPARENT"}), &*traceparent),
        (json!({"shell": "printf %s $TRACEPARENT", "env": {"TRACEPARENT": "mine"}}), "mine"),
    ] {
        let ended = Attempt::begin(&executor, "command", &config, None).end().await;
        assert_eq!(text(&ended.output), expected);
    }
    assert_eq!((traceparent.len(), &traceparent[..3], &traceparent[52..]), (55, "00-", "-01"));
}

/// The worker's memory is bounded whatever a command writes, and each line is kept or counted.
#[tokio::test]
async fn a_flood_is_bounded_and_counted() {
    let (executor, logs) = logging();
    let ended = Attempt::begin(&executor, "command", &json!({"shell": "yes 0123456789 | head -n 2000000"}), None).end().await;
    assert_eq!(ended.end, End::Succeeded);
    let lines = logs.waiting();
    let kept = lines.iter().filter(|line| line.dropped == 0).count();
    assert_eq!(kept as u64 + lines.iter().map(|line| line.dropped).sum::<u64>(), 2_000_000);
    assert!((1_000..=ATTEMPT_SHARE / LINE_OVERHEAD).contains(&kept), "{kept}");
}
