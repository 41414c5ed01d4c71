//! Peers that behave badly: nobody else suffers.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_grpc::limits::FRAMES_IN_FLIGHT_MAX;
use punctual_proto::connection::WorkerSide;
use punctual_proto::limits::FRAME_BYTES_MAX;
use punctual_proto::version::Versions;
use punctual_proto::wire::{Hello, ToSchedulerFrame, to_scheduler};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Code;

use crate::harness::{Dialling, Listening, hasty, hello, in_time, options};
use crate::links::assignment;
use crate::raw::RawStream;

/// How a stream ends whose first bytes are these.
async fn end_after(scheduler: &Listening, bytes: Vec<u8>) -> tonic::Status {
    let stream = RawStream::open(scheduler.address, None).await.expect("let in");
    stream.up.send(bytes).await.expect("the stream is open");
    stream.end().await
}

fn frame(sequence: u64, oldest_version: u32, newest_version: u32) -> Vec<u8> {
    let hello =
        Hello { oldest_version, newest_version, worker: "w1".into(), life: Some(1), slots: 1, received: Some(0), ..Hello::default() };
    let message = punctual_proto::wire::ToScheduler { kind: Some(to_scheduler::Kind::Hello(Box::new(hello))) };
    ToSchedulerFrame { sequence, messages: vec![message] }.encode_to_vec()
}

#[tokio::test]
async fn what_is_no_frame_of_a_worker_is_refused_in_clear_words() {
    let mut scheduler = Listening::start(options("a")).await;
    let unknown_version = end_after(&scheduler, frame(1, 7, 9)).await;
    assert_eq!(unknown_version.code(), Code::FailedPrecondition, "{unknown_version:?}");
    assert!(
        unknown_version.message().contains(&Versions::OURS.to_string()) && unknown_version.message().contains("versions 7 to 9"),
        "{unknown_version:?}"
    );
    let too_large = end_after(&scheduler, vec![0; FRAME_BYTES_MAX + 1]).await;
    assert_eq!(too_large.code(), Code::ResourceExhausted, "{too_large:?}");
    for (garbage, code) in [
        (vec![0xff; 64], Code::InvalidArgument),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Code::InvalidArgument),
        (frame(5, 1, 1), Code::DataLoss),
        (
            ToSchedulerFrame {
                sequence: 1,
                messages: vec![punctual_proto::wire::ToScheduler {
                    kind: Some(to_scheduler::Kind::Heartbeat(punctual_proto::wire::Heartbeat {})),
                }],
            }
            .encode_to_vec(),
            Code::InvalidArgument,
        ),
    ] {
        let end = end_after(&scheduler, garbage.clone()).await;
        assert_eq!(end.code(), code, "{garbage:?}: {end:?}");
    }
    assert!(scheduler.node.try_recv().is_err(), "the node has heard nothing of it");
}

#[tokio::test]
async fn a_stream_without_a_hello_is_ended() {
    let scheduler = Listening::start(options("a")).await;
    let stream = RawStream::open(scheduler.address, None).await.expect("let in");
    let up = stream.up.clone();
    let end = stream.end().await;
    assert_eq!(end.code(), Code::DeadlineExceeded, "{end:?}");
    drop(up);
}

/// Writes these bytes and waits until the scheduler has closed the connection.
async fn cut_after(address: SocketAddr, bytes: &[u8]) -> Duration {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let begun = Instant::now();
    stream.write_all(bytes).await.expect("there is room");
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = in_time("the connection is closed", stream.read_to_end(&mut answer)).await;
    begun.elapsed()
}

#[tokio::test]
async fn bytes_that_are_no_http2_are_cut_off_and_nobody_else_suffers() {
    let mut scheduler = Listening::start(options("a")).await;
    let mut worker = Dialling::start(&[scheduler.address.to_string()], |_| {});
    let (up, to_scheduler) = worker.connected("w1").await;
    let (down, to_worker) = scheduler.welcomed().await;
    assert_eq!(worker.messages(up, 1).await.len(), 1);

    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // Headers of a hundred bytes, of which three come.
    let half_a_header = [&preface[..], &settings, &[0, 0, 100, 1, 4, 0, 0, 0, 1, 0x82, 0x84, 0x87]].concat();
    let no_stream = [&preface[..], &settings].concat();
    let address = scheduler.address;
    let troublemakers: Vec<_> = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        vec![0; 10_000],
        Vec::new(),
        preface[..10].to_vec(),
        half_a_header,
        no_stream,
    ]
    .into_iter()
    .map(|bytes| tokio::spawn(async move { cut_after(address, &bytes).await }))
    .collect();
    // Meanwhile the link works.
    for _ in 0..20 {
        to_scheduler.send(vec![ToScheduler::Heartbeat]).await.expect("the link is open");
        assert_eq!(scheduler.messages(down, 1).await, [ToScheduler::Heartbeat]);
        to_worker.send(vec![ToWorker::Alive]).await.expect("the link is open");
        assert_eq!(worker.messages(up, 1).await, [ToWorker::Alive]);
    }
    for troublemaker in troublemakers {
        let lasted = in_time("it is cut off", troublemaker).await.expect("it does not panic");
        assert!(lasted < 4 * hasty().handshake_time_max, "{lasted:?}");
    }
    to_scheduler.send(vec![ToScheduler::Heartbeat]).await.expect("the link is open");
    assert_eq!(scheduler.messages(down, 1).await, [ToScheduler::Heartbeat]);
}

/// Stands between worker and scheduler, and swallows everything once it is told to, with both connections open.
async fn swallowing_proxy(to: SocketAddr, swallows: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(to).await else { continue };
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            for (mut from, mut to) in [(from_client, to_server), (from_server, to_client)] {
                let swallows = swallows.clone();
                tokio::spawn(async move {
                    let mut bytes = [0; 4_096];
                    while let Ok(count @ 1..) = from.read(&mut bytes).await {
                        if !*swallows.borrow() && to.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                    // The other direction holds its connection open while it swallows.
                    if *swallows.borrow() {
                        std::future::pending::<()>().await;
                    }
                });
            }
        }
    });
    address
}

#[tokio::test]
async fn a_link_whose_packets_vanish_is_noticed_on_both_sides() {
    let mut scheduler = Listening::start(options("a")).await;
    let (swallow, swallows) = watch::channel(false);
    let proxy = swallowing_proxy(scheduler.address, swallows).await;
    let mut worker = Dialling::start(&[proxy.to_string()], |_| {});
    let (up, _to_scheduler) = worker.connected("w1").await;
    let (down, _to_worker) = scheduler.welcomed().await;
    assert_eq!(worker.messages(up, 1).await.len(), 1);
    swallow.send_replace(true);
    let begun = Instant::now();
    worker.disconnected(up).await;
    let by_worker = begun.elapsed();
    scheduler.disconnected(down).await;
    let by_scheduler = begun.elapsed();
    let bound = hasty().keepalive_interval + hasty().keepalive_timeout;
    // A busy machine may be late, but not for ever.
    assert!(by_worker < 2 * bound && by_scheduler < 2 * bound, "{by_worker:?}, {by_scheduler:?}, bound {bound:?}");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_cut_off_before_it_takes_much_memory() {
    let mut scheduler = Listening::start(options("a")).await;
    let stream = RawStream::open(scheduler.address, None).await.expect("let in");
    stream.send(&mut WorkerSide::default(), vec![hello("w1")]).await;
    let (down, to_worker) = scheduler.welcomed().await;
    let payload = "x".repeat(60_000);
    let (mut accepted, begun) = (0_usize, Instant::now());
    // As the node does, but waiting for room: how much finds room is what counts.
    loop {
        let sent = tokio::select! {
            biased;
            sent = to_worker.send(vec![assignment(&payload); 10]) => sent.is_ok(),
            () = to_worker.closed() => false,
        };
        if !sent {
            break;
        }
        accepted += 10 * payload.len();
        assert!(accepted < 1 << 30, "it takes on and on");
    }
    scheduler.disconnected(down).await;
    assert!(begun.elapsed() < 10 * hasty().stall_time_max, "{:?}", begun.elapsed());
    // The link's batches, the frames in flight and the windows of HTTP/2, with frames no larger than the limit.
    let bound = punctual_driver::link::LINK_BATCHES_MAX * 10 * payload.len() + 4 * FRAMES_IN_FLIGHT_MAX * FRAME_BYTES_MAX + (16 << 20);
    assert!(accepted < bound, "{accepted} bytes, bound {bound}");
    drop(stream);
}
