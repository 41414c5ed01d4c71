//! Connections through a proxy, and what the weather does to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_chaos::proxy::{self, Link};
use punctual_chaos::weather::{Sky, Weather};
use punctual_sim::draw::Draw;
use punctual_sim::history::Who;
use punctual_sim::plan::{FaultKind, Shape};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const S1: [Who; 1] = [Who::Scheduler(0)];
/// Long enough for what arrives at all, and for what is kept back to have been kept back.
const A_WHILE: Duration = Duration::from_millis(300);
const IN_TIME: Duration = Duration::from_secs(10);

/// A scheduler's connection to a database that is the test.
struct Connection {
    sky: Sky,
    client: TcpStream,
    server: TcpStream,
    upstream: TcpListener,
    port: u16,
}

impl Connection {
    async fn new() -> Connection {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shape = Shape { schedulers: 1, workers: 1, slots: 1, partitions: 1 };
        let sky = Sky::new(Weather::fine(shape, upstream.local_addr().unwrap().port(), 0));
        let listener = proxy::listener().await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(proxy::serve(listener, Link::Database { scheduler: 0 }, Draw::new(1, "test"), sky.subscribe()));
        let client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (server, _) = upstream.accept().await.unwrap();
        Connection { sky, client, server, upstream, port }
    }

    fn begin(&self, kind: FaultKind) {
        self.sky.send_modify(|weather| weather.begin(&S1, kind, 0));
    }

    fn end(&self, kind: FaultKind) {
        self.sky.send_modify(|weather| weather.end(&S1, kind));
    }
}

async fn hears(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    timeout(IN_TIME, stream.read_exact(&mut heard)).await.expect("it comes in time").unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

async fn hears_nothing(stream: &mut TcpStream) {
    assert!(timeout(A_WHILE, stream.read_u8()).await.is_err(), "something came through");
}

/// The connection has ended, well or badly.
async fn has_ended(stream: &mut TcpStream) {
    let read = timeout(IN_TIME, stream.read_u8()).await.expect("it ends in time");
    assert!(read.is_err(), "{read:?}");
}

#[tokio::test]
async fn a_cut_one_way_keeps_back_what_goes_that_way_and_nothing_else() {
    let mut connection = Connection::new().await;
    connection.begin(FaultKind::CutOutgoing);
    connection.client.write_all(b"question").await.unwrap();
    connection.server.write_all(b"news").await.unwrap();
    hears(&mut connection.client, "news").await;
    hears_nothing(&mut connection.server).await;
    connection.end(FaultKind::CutOutgoing);
    hears(&mut connection.server, "question").await;
    connection.begin(FaultKind::CutIncoming);
    connection.server.write_all(b"answer").await.unwrap();
    hears_nothing(&mut connection.client).await;
    connection.end(FaultKind::CutIncoming);
    hears(&mut connection.client, "answer").await;
}

#[tokio::test]
async fn an_end_that_is_cut_off_is_heard_of_when_the_cut_is_mended() {
    let Connection { sky, client, mut server, .. } = Connection::new().await;
    sky.send_modify(|weather| weather.begin(&S1, FaultKind::Isolate, 0));
    drop(client);
    hears_nothing(&mut server).await;
    sky.send_modify(|weather| weather.end(&S1, FaultKind::Isolate));
    has_ended(&mut server).await;
}

#[tokio::test]
async fn nothing_is_dialled_through_a_cut() {
    let connection = Connection::new().await;
    connection.begin(FaultKind::CutFromDatabase);
    let _client = TcpStream::connect(("127.0.0.1", connection.port)).await.unwrap();
    assert!(timeout(A_WHILE, connection.upstream.accept()).await.is_err());
    connection.end(FaultKind::CutFromDatabase);
    timeout(IN_TIME, connection.upstream.accept()).await.expect("it is dialled in time").unwrap();
}

#[tokio::test]
async fn a_delay_is_kept() {
    let mut connection = Connection::new().await;
    connection.begin(FaultKind::Delay { ms: 500 });
    let began = std::time::Instant::now();
    connection.client.write_all(b"late").await.unwrap();
    hears(&mut connection.server, "late").await;
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_reset_breaks_both_ends() {
    let mut connection = Connection::new().await;
    connection.begin(FaultKind::Reset);
    has_ended(&mut connection.client).await;
    has_ended(&mut connection.server).await;
}

#[tokio::test]
async fn the_answer_to_a_commit_is_lost() {
    let mut connection = Connection::new().await;
    connection.begin(FaultKind::CommitAppliedAnswerLost { per_mille: 1_000 });
    let commit = "\x07\0\0\0\x03COMMIT";
    connection.client.write_all(commit.as_bytes()).await.unwrap();
    hears(&mut connection.server, commit).await;
    connection.server.write_all(b"ok").await.unwrap();
    has_ended(&mut connection.client).await;
}

/// Which worker dials is found by its process; this one's pid stands for worker 0.
#[tokio::test]
async fn workers_are_told_apart() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shape = Shape { schedulers: 1, workers: 2, slots: 1, partitions: 1 };
    let sky = Sky::new(Weather::fine(shape, 0, 0));
    let listener = proxy::listener().await.unwrap();
    let address = listener.local_addr().unwrap();
    let pids = Arc::new(Mutex::new(vec![Some(std::process::id()), None]));
    let link = Link::Workers { scheduler: 0, port: upstream.local_addr().unwrap().port(), pids };
    tokio::spawn(proxy::serve(listener, link, Draw::new(1, "test"), sky.subscribe()));
    let mut client = TcpStream::connect(address).await.unwrap();
    let (mut server, _) = upstream.accept().await.unwrap();
    sky.send_modify(|weather| weather.begin(&[Who::Worker(1)], FaultKind::CutOutgoing, 0));
    client.write_all(b"one").await.unwrap();
    hears(&mut server, "one").await;
    sky.send_modify(|weather| weather.begin(&[Who::Worker(0)], FaultKind::CutOutgoing, 0));
    client.write_all(b"two").await.unwrap();
    hears_nothing(&mut server).await;
}
