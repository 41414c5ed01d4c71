//! This test binary, started again as a worker process of its own: one that can be killed, or given another environment.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::{DEADLINE, assignment, built_in, text};
use punctual_driver::ports::{Executor, Stop};

const VARIABLE: &str = "WORKER_TEST_HELPER";

/// A worker process that runs these attempts, each a handler's name and its configuration, and prints what each of them gave.
pub(crate) fn worker_process(marker: &str, attempts: &[(&str, Value)], environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "helper::helper_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, json!([marker, attempts]).to_string())
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the helper starts")
}

/// What a worker process printed, once all its attempts have ended.
pub(crate) async fn printed(child: Child) -> String {
    let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await.expect("the helper hangs").expect("the helper's output");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
#[ignore = "not a test: the other side of worker_process"]
async fn helper_process() {
    let Ok(wanted) = std::env::var(VARIABLE) else { return };
    let (marker, attempts): (String, Vec<(String, Value)>) = serde_json::from_str(&wanted).expect("the helper's orders");
    let executor = built_in(&marker, true);
    let (_stop, receiver) = tokio::sync::watch::channel(Stop::No);
    let run = |(i, (handler, config)): (usize, &(String, Value))| {
        let mut assignment = assignment(handler, config, None);
        // Attempts of their own, by their fence.
        Arc::make_mut(&mut assignment).fence.0 += i as u64;
        tokio::spawn(executor.run(assignment, receiver.clone()))
    };
    let running: Vec<_> = attempts.iter().enumerate().map(run).collect();
    for attempt in running {
        let ended = attempt.await.expect("no panic");
        println!("{:?} {:?} {}", ended.end, ended.detail, text(&ended.output));
    }
    if std::env::var_os("WORKER_TEST_ORPHANS").is_some() {
        println!("{:?}", punctual_worker::end_orphans(&marker, Duration::ZERO).await);
    }
}
