//! Who may speak, and as whom.

use std::sync::Arc;

use punctual_core::ids::ReplicaId;
use punctual_driver::link::ToWorkerNode;
use punctual_grpc::{ClientOptions, DialError, ServeError, ServerOptions, Tokens, WorkerToken, dial, serve};
use punctual_proto::connection::WorkerSide;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::Code;

use crate::harness::{Dialling, Listening, hello, options};
use crate::raw::RawStream;

async fn guarded() -> Listening {
    let check = |token: &str| match token {
        "token-of-a" => Some(WorkerToken::for_workers(["a"])),
        "token-of-all" => Some(WorkerToken::for_any()),
        _ => None,
    };
    Listening::start(ServerOptions { tokens: Tokens::Checked(Arc::new(check)), ..options("r") }).await
}

#[tokio::test]
async fn a_worker_with_a_token_is_let_in() {
    let mut scheduler = guarded().await;
    for (token, worker) in [("token-of-a", "a"), ("token-of-all", "b")] {
        let mut worker_side = Dialling::start(&[scheduler.address.to_string()], |options| options.token = Some(token.to_owned()));
        let (_, _link) = worker_side.connected(worker).await;
        let (connection, _link) = scheduler.welcomed().await;
        worker_side.end().await;
        scheduler.disconnected(connection).await;
    }
}

#[tokio::test]
async fn a_token_that_is_missing_or_wrong_is_refused_before_the_node_hears_of_it() {
    let mut scheduler = guarded().await;
    for authorization in [None, Some("Bearer wrong"), Some("Basic dG9rZW4="), Some("token-of-all"), Some("Bearer")] {
        let refused = RawStream::open(scheduler.address, authorization).await.err().expect("refused");
        assert_eq!(refused.code(), Code::Unauthenticated, "{authorization:?}: {refused:?}");
    }
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |options| options.token = Some("wrong".to_owned()));
    let reason = worker.reason().await;
    assert!(reason.contains("not let in") && reason.contains("not a worker's"), "{reason}");
    assert!(scheduler.node.try_recv().is_err());
}

#[tokio::test]
async fn a_token_of_one_worker_is_not_one_of_another() {
    let mut scheduler = guarded().await;
    let stream = RawStream::open(scheduler.address, Some("Bearer token-of-a")).await.expect("let in");
    stream.send(&mut WorkerSide::default(), vec![hello("b")]).await;
    let end = stream.end().await;
    assert_eq!(end.code(), Code::PermissionDenied, "{end:?}");
    assert!(end.message().contains("\"b\""), "{end:?}");
    assert!(scheduler.node.try_recv().is_err());
    // Nor does a later hello make another worker of it.
    let stream = RawStream::open(scheduler.address, Some("Bearer token-of-all")).await.expect("let in");
    let mut side = WorkerSide::default();
    stream.send(&mut side, vec![hello("a")]).await;
    let (connection, _link) = scheduler.welcomed().await;
    stream.send(&mut side, vec![hello("b")]).await;
    scheduler.disconnected(connection).await;
    assert_eq!(stream.end().await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn nothing_listens_beyond_the_loopback_without_tokens() {
    let listener = TcpListener::bind("0.0.0.0:0").await.expect("a listener");
    let (node, _inbound) = mpsc::channel(1);
    let refused = serve(listener, ServerOptions::for_loopback(ReplicaId("r".into())), node, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::NoTokens { .. })), "{refused:?}");
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_at_once() {
    let refused = |seeds: &[&str], token: Option<&str>| {
        let (node, _inbound) = mpsc::channel::<ToWorkerNode>(1);
        let seeds = seeds.iter().map(|seed| (*seed).to_owned()).collect();
        dial(ClientOptions { seeds, token: token.map(str::to_owned), ..ClientOptions::default() }, node).err()
    };
    assert_eq!(refused(&[], None), Some(DialError::NoSeed));
    assert!(matches!(refused(&["127.0.0.1:1", "nonsense"], None), Some(DialError::Seed { seed, .. }) if seed == "nonsense"));
    for token in ["", "line\nfeed", &"x".repeat(5_000)] {
        assert_eq!(refused(&["127.0.0.1:1"], Some(token)), Some(DialError::Token));
    }
    assert_eq!(refused(&["127.0.0.1:1"], Some("fine")), None);
}
