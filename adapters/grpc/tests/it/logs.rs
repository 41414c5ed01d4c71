//! Lines of attempts: which replica takes them, when it takes none, and from whom.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use prost::Message;
use punctual_core::definition::{Handler, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerId};
use punctual_core::protocol::Assignment;
use punctual_core::time::Timestamp;
use punctual_driver::clock::SystemClock;
use punctual_driver::logs::{AttemptLog, Level, LogBatch, LogBuffer, LogSink, NotTaken};
use punctual_grpc::{ServerOptions, Tokens, WorkerToken};
use punctual_proto::wire;
use tokio::sync::watch;
use tonic::Code;

use crate::harness::{Dialling, Listening, in_time, options};
use crate::raw;

/// Notes what it is given; takes none of it so often as it is told to, and keeps whoever sends it waiting while it is told to.
#[derive(Debug, Default)]
struct Sink {
    lines: watch::Sender<Vec<String>>,
    batches: Mutex<Vec<Arc<LogBatch>>>,
    hangs: AtomicBool,
    /// How often it takes nothing.
    busy: usize,
    not_taken: watch::Sender<Vec<Arc<LogBatch>>>,
}

impl LogSink for Sink {
    fn take(&self, batch: Arc<LogBatch>) -> Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + '_>> {
        Box::pin(async move {
            if self.not_taken.borrow().len() < self.busy {
                self.not_taken.send_modify(|all| all.push(batch));
                return Err(NotTaken::Busy);
            }
            let lines = batch.attempts.iter().flat_map(|attempt| &attempt.lines);
            let lines: Vec<_> = lines.map(|line| format!("{} {}", line.seq, line.message)).collect();
            self.lines.send_modify(|all| all.extend(lines));
            self.batches.lock().unwrap().push(batch);
            if self.hangs.load(Ordering::Relaxed) {
                // Stored, and nobody hears of it.
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

impl Sink {
    async fn has(&self, lines: &[&str]) {
        let mut heard = self.lines.subscribe();
        in_time("the lines", heard.wait_for(|heard| heard.len() >= lines.len())).await.expect("it lives");
        assert_eq!(*self.lines.borrow(), lines);
    }
}

async fn listening(name: &str, sink: Option<&Arc<Sink>>) -> Listening {
    let logs = sink.cloned().map(|sink| sink as Arc<dyn LogSink>);
    Listening::start(ServerOptions { logs, ..options(name) }).await
}

fn buffer(worker: &str) -> (Arc<LogBuffer>, AttemptLog) {
    let buffer = LogBuffer::new(WorkerId(worker.into()), Arc::new(SystemClock::new()));
    let log = buffer.attempt(&Assignment {
        instance: InstanceId(1),
        attempt: 1,
        fence: Fence(2),
        task: TaskId(3),
        task_name: "t".into(),
        version: Version(1),
        fire_time: Timestamp(0),
        ordinal: 0,
        run: 1,
        shard: None,
        map: None,
        node: None,
        handler: Handler { name: "h".into(), config: "{}".into() },
        payload: None,
        timeout: TimeoutPolicy::default(),
    });
    (buffer, log)
}

#[tokio::test]
async fn a_replica_that_dies_with_an_answer_has_another_one_asked_again() {
    let (first, second) = (Arc::<Sink>::default(), Arc::<Sink>::default());
    first.hangs.store(true, Ordering::Relaxed);
    let (mut a, mut b) = (listening("a", Some(&first)).await, listening("b", Some(&second)).await);
    let (logs, log) = buffer("w");
    log.line(Level::Info, "one");
    let seeds = [a.address.to_string()];
    let given = logs.clone();
    let mut worker = Dialling::start(&seeds, |options| options.logs = Some(given));
    let (_, _to_a) = worker.connected("w").await;
    let _of_a = a.welcomed().await;
    first.has(&["1 one"]).await;
    log.line(Level::Info, "two");
    drop(worker);
    // The same worker, at another replica: what may be stored comes again, under the same numbers, and what was written since behind it.
    let seeds = [b.address.to_string()];
    let given = logs.clone();
    let mut worker = Dialling::start(&seeds, |options| options.logs = Some(given));
    let (_, _to_b) = worker.connected("w").await;
    let _of_b = b.welcomed().await;
    second.has(&["1 one", "2 two"]).await;
    in_time("nothing is left", logs.emptied()).await;
    assert_eq!((first.batches.lock().unwrap()[0].clone(), logs.dropped()), (second.batches.lock().unwrap()[0].clone(), 0));
    a.kill().await;
}

#[tokio::test]
async fn lines_go_to_whoever_takes_them_and_what_is_left_goes_last() {
    let sink = Arc::new(Sink { busy: 1, ..Sink::default() });
    // One is of before, and knows no such call.
    let (mut old, mut new) = (listening("old", None).await, listening("new", Some(&sink)).await);
    let (logs, log) = buffer("w");
    log.line(Level::Info, "one");
    let seeds = [old.address.to_string(), new.address.to_string()];
    let given = logs.clone();
    let mut worker = Dialling::start(&seeds, |options| options.logs = Some(given));
    let links = [worker.connected("w").await, worker.connected("w").await];
    let _of = (old.welcomed().await, new.welcomed().await);
    sink.has(&["1 one"]).await;
    // What is written before the worker ends is sent before its connections go.
    log.line(Level::Info, "last");
    drop(links);
    worker.end().await;
    sink.has(&["1 one", "2 last"]).await;
}

#[tokio::test]
async fn what_a_replica_can_not_store_just_now_is_sent_again_until_it_can_and_is_there_once() {
    let sink = Arc::new(Sink { busy: 2, ..Sink::default() });
    let mut replica = listening("r", Some(&sink)).await;
    let (logs, log) = buffer("w");
    log.write(Level::Info, "one\ntwo");
    let seeds = [replica.address.to_string()];
    let given = logs.clone();
    let mut worker = Dialling::start(&seeds, |options| options.logs = Some(given));
    let (_, _to) = worker.connected("w").await;
    let _of = replica.welcomed().await;
    let mut heard = sink.not_taken.subscribe();
    in_time("a refusal", heard.wait_for(|heard| !heard.is_empty())).await.expect("it lives");
    // It waits behind those that are sent again.
    log.line(Level::Info, "three");
    sink.has(&["1 one", "2 two", "3 three"]).await;
    in_time("nothing is left", logs.emptied()).await;
    // The same ones each time, over the connection that there is.
    let (taken, not_taken) = (sink.batches.lock().unwrap().clone(), sink.not_taken.borrow().clone());
    assert_eq!((not_taken, taken.len(), logs.dropped()), (vec![taken[0].clone(); 2], 2, 0));
    assert_eq!(sink.lines.borrow().len(), 3);
}

#[tokio::test]
async fn lines_of_another_worker_are_refused() {
    let sink = Arc::<Sink>::default();
    let check = |token: &str| (token == "token-of-a").then(|| WorkerToken::for_workers(["a"]));
    let logs: Option<Arc<dyn LogSink>> = Some(sink.clone());
    let scheduler = Listening::start(ServerOptions { tokens: Tokens::Checked(Arc::new(check)), logs, ..options("r") }).await;
    let line = wire::LogLine { sequence: 1, at_ms: 0, level: 3, dropped: 0, message: "m".into() };
    let attempt = Some(wire::Attempt { instance: Some(1), fence: Some(1) });
    let lines = wire::LogLines { attempt, number: 1, task: Some(1), trace_id: vec![1; 16], lines: vec![line] };
    let batch = |worker: &str, attempts: Vec<wire::LogLines>| wire::LogBatch { worker: worker.into(), attempts }.encode_to_vec();
    for (token, sent, code) in [
        (None, batch("a", vec![lines.clone()]), Some(Code::Unauthenticated)),
        (Some("Bearer token-of-b"), batch("a", vec![lines.clone()]), Some(Code::Unauthenticated)),
        (Some("Bearer token-of-a"), batch("b", vec![lines.clone()]), Some(Code::PermissionDenied)),
        (Some("Bearer token-of-a"), batch("a", vec![wire::LogLines { number: 0, ..lines.clone() }]), Some(Code::InvalidArgument)),
        (Some("Bearer token-of-a"), vec![0xff; 9], Some(Code::InvalidArgument)),
        (Some("Bearer token-of-a"), batch("a", vec![lines.clone()]), None),
    ] {
        let answer = raw::call(scheduler.address, "Log", token, sent).await;
        assert_eq!(answer.as_ref().err().map(tonic::Status::code), code, "{token:?}: {answer:?}");
    }
    sink.has(&["1 m"]).await;
}
