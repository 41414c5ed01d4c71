//! The real loops, a real database, and a worker over gRPC.

use std::sync::Arc;

use punctual_core::batch::{Batch, Output};
use punctual_core::ids::{ReplicaId, WorkerId, WorkerLife};
use punctual_core::instance::State;
use punctual_core::limits::MISFIRE_THRESHOLD;
use punctual_core::protocol::{Assignment, End};
use punctual_core::{inbox, scheduler, worker};
use punctual_driver::clock::SystemClock;
use punctual_driver::link::{ToSchedulerNode, ToWorkerNode};
use punctual_driver::ports::{Alone, Catalog, Clock, Ended, Executor, InstanceFilter, Observer, Stop, Store};
use punctual_grpc::{ClientOptions, ServerOptions, dial, serve};
use punctual_store::conformance::{decode, document};
use punctual_store::{Options, SqliteStore};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::harness::in_time;

/// Says what it was given.
struct Echo;

impl Executor for Echo {
    fn handlers(&self) -> Vec<Arc<str>> {
        vec!["command".into()]
    }

    fn run(&self, assignment: Arc<Assignment>, _: watch::Receiver<Stop>) -> impl Future<Output = Ended> + Send + 'static {
        let bytes = assignment.payload.as_deref().unwrap_or_default().as_bytes().to_vec();
        std::future::ready(Ended {
            end: End::Succeeded,
            code: None,
            detail: None,
            output: Output { bytes, dropped: 0 },
            result: None,
            items: None,
            retry_after: None,
        })
    }
}

struct Commits(watch::Sender<u64>);

impl Observer for Commits {
    fn committed(&self, _: &Arc<Batch>) {
        self.0.send_modify(|commits| *commits += 1);
    }
}

#[tokio::test]
async fn a_task_is_run_by_a_worker_over_grpc() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(SqliteStore::open(Options::new(folder.path().join("punctual.db"), decode())).expect("a store"));
    let clock = Arc::new(SystemClock::new());
    let now = || clock.now().wall;
    store.apply("test".into(), "test".into(), vec![document("greet", "\"hello\"")], false, now()).await.expect("applied");

    let (commits, mut committed) = watch::channel(0);
    let (scheduler, inbound) = mpsc::channel(punctual_driver::scheduler::QUEUE_MAX);
    let replica = ReplicaId("a".into());
    let config = scheduler::Config {
        replica: replica.clone(),
        partitions: store.partitions(),
        commits_at_once: 1,
        misfire_threshold: MISFIRE_THRESHOLD,
    };
    let node = punctual_driver::scheduler::run(config, store.clone(), clock.clone(), Arc::new(Alone), Arc::new(Commits(commits)), inbound);
    let scheduler_task = tokio::spawn(node);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let seeds = vec![listener.local_addr().expect("an address").to_string()];
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let serving = tokio::spawn(serve(listener, ServerOptions::for_loopback(replica), scheduler.clone(), shutdown));

    let (worker, inbound) = mpsc::channel(punctual_driver::worker::QUEUE_MAX);
    let config = worker::Config {
        worker: WorkerId("w1".into()),
        life: WorkerLife(1),
        slots: 4,
        handlers: Echo.handlers(),
        traits: Default::default(),
    };
    let worker_task = tokio::spawn(punctual_driver::worker::run(config, Arc::new(Echo), clock.clone(), inbound));
    let dialling = tokio::spawn(dial(ClientOptions { seeds, ..ClientOptions::default() }, worker.clone()).expect("options that can work"));

    let submission = inbox::Submission { key: None, payload: None, delay: None };
    store.trigger("greet".into(), "test".into(), None, vec![submission], now()).await.expect("triggered");
    scheduler.send(ToSchedulerNode::InboxSignalled).await.expect("the scheduler runs");
    let instance = in_time("the task succeeds", async {
        loop {
            let filter = InstanceFilter { state: Some(State::Succeeded), limit: 1, ..InstanceFilter::default() };
            if let Some(view) = store.instances(filter).await.expect("a list").pop() {
                return view.row;
            }
            committed.changed().await.expect("the scheduler runs");
        }
    })
    .await;
    let outputs = store.outputs(instance.id).await.expect("outputs");
    assert_eq!(outputs, [(1, Output { bytes: b"\"hello\"".to_vec(), dropped: 0 })]);

    worker.send(ToWorkerNode::Drain).await.expect("the worker runs");
    in_time("the worker drains", worker_task).await.expect("it does not panic");
    in_time("the client ends", dialling).await.expect("it does not panic");
    scheduler.send(ToSchedulerNode::Shutdown).await.expect("the scheduler runs");
    in_time("the scheduler stops", scheduler_task).await.expect("it does not panic");
    stop.send(()).expect("it serves");
    in_time("the server stops", serving).await.expect("it does not panic").expect("nothing is wrong");
}
