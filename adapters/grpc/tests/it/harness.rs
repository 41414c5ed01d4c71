//! A listening scheduler and a dialling worker whose nodes are the tests themselves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::{ConnectionId, ReplicaId, WorkerId, WorkerLife};
use punctual_core::protocol::{Hello, ToScheduler, ToWorker};
use punctual_core::time::Millis;
use punctual_driver::link::{ToSchedulerNode, ToWorkerNode};
use punctual_grpc::{ClientOptions, LinkState, ServerOptions, Timing};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Nothing here takes this long unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// What the node of a test may leave unread.
const QUEUE_MAX: usize = 1_024;

/// Patience for tests: short, but longer than a busy machine stands still.
pub(crate) fn hasty() -> Timing {
    Timing {
        keepalive_interval: Duration::from_millis(500),
        keepalive_timeout: Duration::from_secs(5),
        handshake_time_max: Duration::from_secs(2),
        stall_time_max: Duration::from_secs(3),
        replicas_interval: Duration::from_millis(100),
        redial_eager_for: Duration::from_secs(3),
    }
}

pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}

pub(crate) fn options(replica: &str) -> ServerOptions {
    ServerOptions { timing: hasty(), ..ServerOptions::for_loopback(ReplicaId(replica.into())) }
}

/// A scheduler's port, with the test in the place of its node. On a runtime of its own, so that it can be killed in the middle of anything.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) node: mpsc::Receiver<ToSchedulerNode>,
    runtime: Option<tokio::runtime::Runtime>,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), punctual_grpc::ServeError>>,
}

impl Listening {
    pub(crate) async fn start(options: ServerOptions) -> Listening {
        Listening::start_at(([127, 0, 0, 1], 0).into(), options).await
    }

    pub(crate) async fn start_at(address: SocketAddr, options: ServerOptions) -> Listening {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (to_node, node) = mpsc::channel(QUEUE_MAX);
        let (shutdown, stopped) = oneshot::channel::<()>();
        let (bound, is_bound) = oneshot::channel();
        let serving = runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.expect("the address is free");
            bound.send(listener.local_addr().expect("an address")).expect("the test waits");
            let shutdown = async {
                let _ = stopped.await;
            };
            punctual_grpc::serve(listener, options, to_node, shutdown).await
        });
        let address = in_time("a listener", is_bound).await.expect("it listens");
        Listening { address, node, runtime: Some(runtime), shutdown: Some(shutdown), serving }
    }

    /// Everything of it is gone at once, as after a crash.
    pub(crate) async fn kill(mut self) {
        let runtime = self.runtime.take().expect("it runs");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(DEADLINE)).await.expect("it ends");
    }

    pub(crate) async fn shut_down(mut self) -> Result<(), punctual_grpc::ServeError> {
        drop(self.shutdown.take());
        in_time("the server shuts down", &mut self.serving).await.expect("it does not panic")
    }

    pub(crate) async fn next(&mut self) -> ToSchedulerNode {
        in_time("something reaches the scheduler", self.node.recv()).await.expect("the server runs")
    }

    pub(crate) async fn connected(&mut self) -> (ConnectionId, mpsc::Sender<Vec<ToWorker>>) {
        match self.next().await {
            ToSchedulerNode::Connected(connection, link) => (connection, link),
            other => panic!("{other:?} instead of a connection"),
        }
    }

    /// A connection and its hello, answered.
    pub(crate) async fn welcomed(&mut self) -> (ConnectionId, mpsc::Sender<Vec<ToWorker>>) {
        let (connection, link) = self.connected().await;
        let hello = self.messages(connection, 1).await;
        assert!(matches!(hello[..], [ToScheduler::Hello(_)]), "{hello:?}");
        link.send(vec![ToWorker::Welcome { heartbeat: Millis(1_000), lease: Millis(3_000) }]).await.expect("the link is open");
        (connection, link)
    }

    /// So many messages of this connection.
    pub(crate) async fn messages(&mut self, connection: ConnectionId, count: usize) -> Vec<ToScheduler> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.next().await {
                ToSchedulerNode::Messages(from, messages) if from == connection => all.extend(messages),
                other => panic!("{other:?} instead of messages of {connection:?}"),
            }
        }
        all
    }

    pub(crate) async fn disconnected(&mut self, connection: ConnectionId) {
        loop {
            match self.next().await {
                ToSchedulerNode::Disconnected(gone) if gone == connection => return,
                ToSchedulerNode::Messages(from, _) if from == connection => {}
                other => panic!("{other:?} instead of the end of {connection:?}"),
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A worker's dialling, with the test in the place of its node.
pub(crate) struct Dialling {
    pub(crate) node: mpsc::Receiver<ToWorkerNode>,
    states: mpsc::UnboundedReceiver<(String, LinkState)>,
    task: JoinHandle<()>,
}

impl Dialling {
    pub(crate) fn start(seeds: &[String], with: impl FnOnce(&mut ClientOptions)) -> Dialling {
        let (told, states) = mpsc::unbounded_channel();
        let watcher = move |address: &str, state: &LinkState| {
            let _ = told.send((address.to_owned(), state.clone()));
        };
        let mut options =
            ClientOptions { seeds: seeds.to_vec(), timing: hasty(), watcher: Some(Arc::new(watcher)), ..ClientOptions::default() };
        with(&mut options);
        let (to_node, node) = mpsc::channel(QUEUE_MAX);
        let task = tokio::spawn(punctual_grpc::dial(options, to_node).expect("options that can work"));
        Dialling { node, states, task }
    }

    pub(crate) async fn next(&mut self) -> ToWorkerNode {
        in_time("something reaches the worker", self.node.recv()).await.expect("the client runs")
    }

    /// The next connection, over which this worker says hello.
    pub(crate) async fn connected(&mut self, worker: &str) -> (ConnectionId, mpsc::Sender<Vec<ToScheduler>>) {
        match self.next().await {
            ToWorkerNode::Connected(connection, link) => {
                link.send(vec![hello(worker)]).await.expect("the link is open");
                (connection, link)
            }
            other => panic!("{other:?} instead of a connection"),
        }
    }

    pub(crate) async fn messages(&mut self, connection: ConnectionId, count: usize) -> Vec<ToWorker> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.next().await {
                ToWorkerNode::Messages(from, messages) if from == connection => all.extend(messages),
                other => panic!("{other:?} instead of messages of {connection:?}"),
            }
        }
        all
    }

    pub(crate) async fn disconnected(&mut self, connection: ConnectionId) {
        match self.next().await {
            ToWorkerNode::Disconnected(gone) if gone == connection => {}
            other => panic!("{other:?} instead of the end of {connection:?}"),
        }
    }

    /// The next state that is told.
    pub(crate) async fn state(&mut self) -> (String, LinkState) {
        in_time("a state is told", self.states.recv()).await.expect("the client runs")
    }

    /// Why there is no connection, the next time that is told.
    pub(crate) async fn reason(&mut self) -> String {
        loop {
            if let (_, LinkState::Disconnected { reason }) = self.state().await {
                return reason;
            }
        }
    }

    /// The client ends when its node does.
    pub(crate) async fn end(self) {
        drop(self.node);
        in_time("the client ends", self.task).await.expect("it does not panic");
    }
}

pub(crate) fn hello(worker: &str) -> ToScheduler {
    ToScheduler::Hello(Hello {
        worker: WorkerId(worker.into()),
        life: WorkerLife(1),
        slots: 4,
        handlers: vec!["noop".into()],
        draining: false,
        running: Vec::new(),
        received: 0,
        traits: Default::default(),
    })
}
