//! Real processes and real connections.

mod command;
mod harness;
mod helper;
mod http;
mod logs;
mod once;
mod orphans;
mod own_handlers;
mod reminder;
mod stop;
mod user;

use std::sync::Arc;

use punctual_core::limits::DETAIL_BYTES_MAX;
use punctual_core::protocol::End;
use punctual_driver::ports::Executor;
use punctual_worker::output::CUT_MARK;
use serde_json::json;

use crate::harness::{built_in, run, run_on};

#[tokio::test]
async fn noop_ends_at_once() {
    let ended = run("noop", json!({})).await;
    assert_eq!((ended.end, ended.code, ended.detail), (End::Succeeded, None, None));
}

#[tokio::test]
async fn a_handler_that_nobody_knows_fails_for_good() {
    let ended = run("mine", json!({})).await;
    assert_eq!(ended.end, End::FailedForGood);
    assert!(ended.detail.expect("a detail").contains("no handler \"mine\""));
}

#[tokio::test]
async fn a_long_detail_is_cut_and_marked() {
    let detail = run(&"€".repeat(50_000), json!({})).await.detail.expect("a detail");
    assert!(detail.len() <= DETAIL_BYTES_MAX && detail.ends_with(CUT_MARK));
}

#[tokio::test]
async fn commands_are_run_only_where_allowed() {
    let with = built_in("m", true);
    let without = built_in("m", false);
    assert_eq!(with.handlers(), ["command", "http", "noop"].map(Arc::from));
    assert_eq!(without.handlers(), ["http", "noop"].map(Arc::from));
    let ended = run_on(&without, "command", json!({"shell": "true"}), None).await;
    assert_eq!(ended.end, End::FailedForGood);
    assert!(ended.detail.expect("a detail").contains("commands allowed"));
}
