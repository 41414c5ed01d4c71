//! One worker's stream, from its token to its end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_core::ids::{ConnectionId, WorkerId, WorkerLife};
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_driver::link::{LINK_BATCHES_MAX, ToSchedulerNode};
use punctual_proto::connection::SchedulerSide;
use punctual_proto::wire::{LogBatch, LogReply, ReplicasReply, ReplicasRequest, ToSchedulerFrame, ToWorkerFrame};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::limits::{FRAMES_IN_FLIGHT_MAX, LAST_WORD_TIME_MAX, REPLICAS_MAX};
use crate::logs;
use crate::pump::{End, Pump};
use crate::server::ServerOptions;
use crate::status;
use crate::tokens::WorkerToken;
use crate::visitor::{Stay, Visitor};
use crate::wire::workers_server::Workers;

/// The number before the first connection's.
const CONNECTIONS_BEHIND: u64 = (1 << 32) - 1;

type Answer = Result<ToWorkerFrame, Status>;
type Stream = Pump<SchedulerSide, Answer>;

/// The calls that workers make.
pub(crate) struct Service {
    options: ServerOptions,
    node: mpsc::Sender<ToSchedulerNode>,
    stopping: watch::Receiver<bool>,
    last_connection: AtomicU64,
    /// The newest connection of each worker that is here.
    present: Mutex<BTreeMap<Arc<str>, Present>>,
}

struct Present {
    connection: ConnectionId,
    life: WorkerLife,
    /// Tells it that a newer one has taken its place.
    replaced: oneshot::Sender<()>,
}

impl Service {
    pub(crate) fn new(options: ServerOptions, node: mpsc::Sender<ToSchedulerNode>, stopping: watch::Receiver<bool>) -> Self {
        Service { options, node, stopping, last_connection: AtomicU64::new(CONNECTIONS_BEHIND), present: Mutex::default() }
    }

    /// Attends to one stream until its end, and says why it ended.
    async fn attend(&self, token: WorkerToken, mut stream: Stream, link: mpsc::Sender<Vec<ToWorker>>, wire: mpsc::Sender<Answer>) {
        let ended = match self.meet(&token, &mut stream).await {
            Ok((worker, life, _)) if self.is_outlived(&worker, life) => {
                Status::aborted(format!("a newer worker runs under the id {:?}. Give each worker an id of its own", &*worker.0))
            }
            Ok((worker, life, messages)) => {
                let connection = ConnectionId(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1);
                tracing::info!(worker = %worker.0, connection = connection.0, "a worker has connected");
                let ended = self.converse(&token, (&worker, life), connection, link, messages, &mut stream).await;
                self.leave(&worker, connection);
                // Fails only when the node has ended, and then it needs to know nothing more.
                let _ = self.node.send(ToSchedulerNode::Disconnected(connection)).await;
                tracing::info!(worker = %worker.0, connection = connection.0, reason = status::in_words(&ended), "a worker's connection has ended");
                ended
            }
            Err(ended) => {
                tracing::debug!(reason = status::in_words(&ended), "a stream ended before it was a worker's");
                ended
            }
        };
        // Where the stream is gone, or nobody reads it, there is nobody to hear it.
        let _ = timeout(LAST_WORD_TIME_MAX, wire.send(Err(ended))).await;
    }

    /// Waits for the worker's hello and checks it: until then nobody else hears of the stream.
    async fn meet(&self, token: &WorkerToken, stream: &mut Stream) -> Result<(WorkerId, WorkerLife, Vec<ToScheduler>), Status> {
        let time_max = self.options.timing.handshake_time_max;
        let messages = match timeout(time_max, stream.next()).await {
            Ok(messages) => messages.map_err(into_status)?,
            Err(_) => return Err(Status::deadline_exceeded(format!("the worker has not said hello within {time_max:?}"))),
        };
        let Some(ToScheduler::Hello(hello)) = messages.first() else {
            return Err(Status::invalid_argument("the worker has to say hello first"));
        };
        let (worker, life) = (hello.worker.clone(), hello.life);
        check(token, &worker, &messages)?;
        Ok((worker, life, messages))
    }

    /// Carries messages until one side has had enough; answers why.
    async fn converse(
        &self,
        token: &WorkerToken,
        (worker, life): (&WorkerId, WorkerLife),
        connection: ConnectionId,
        link: mpsc::Sender<Vec<ToWorker>>,
        hello: Vec<ToScheduler>,
        stream: &mut Stream,
    ) -> Status {
        let mut stopping = self.stopping.clone();
        let node_is_gone = || Status::unavailable("this scheduler has stopped");
        if self.node.send(ToSchedulerNode::Connected(connection, link)).await.is_err()
            || self.node.send(ToSchedulerNode::Messages(connection, hello)).await.is_err()
        {
            return node_is_gone();
        }
        // Only now: the node knows the newer connection before it loses the older one.
        let mut replaced = self.arrive(worker, life, connection);
        loop {
            let messages = tokio::select! {
                biased;
                _ = stopping.wait_for(|is_stopping| *is_stopping) => return Status::unavailable("this scheduler is shutting down"),
                _ = &mut replaced => return Status::aborted(format!(
                    "another connection of worker {:?} has taken this one's place. If two workers run under this id, give one another", &*worker.0
                )),
                messages = stream.next() => match messages {
                    Ok(messages) => messages,
                    Err(end) => return into_status(end),
                },
            };
            if let Err(refused) = check(token, worker, &messages) {
                return refused;
            }
            if self.node.send(ToSchedulerNode::Messages(connection, messages)).await.is_err() {
                return node_is_gone();
            }
        }
    }

    /// Whether a newer life of the worker is connected: two that run under one id must not push each other out in turns, since what each of
    /// them runs is then taken for lost.
    fn is_outlived(&self, worker: &WorkerId, life: WorkerLife) -> bool {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.get(&worker.0).is_some_and(|present| present.life.0 > life.0)
    }

    /// Notes that this connection is the worker's, and tells an older one.
    fn arrive(&self, worker: &WorkerId, life: WorkerLife, connection: ConnectionId) -> oneshot::Receiver<()> {
        let (replaced, is_replaced) = oneshot::channel();
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(older) = present.insert(worker.0.clone(), Present { connection, life, replaced }) {
            let _ = older.replaced.send(());
        }
        is_replaced
    }

    fn leave(&self, worker: &WorkerId, connection: ConnectionId) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if present.get(&worker.0).is_some_and(|present| present.connection == connection) {
            present.remove(&worker.0);
        }
    }
}

/// Whoever says hello has to be the worker that it was before, and one that the token is for.
fn check(token: &WorkerToken, worker: &WorkerId, messages: &[ToScheduler]) -> Result<(), Status> {
    for message in messages {
        let ToScheduler::Hello(hello) = message else { continue };
        if hello.worker != *worker {
            return Err(Status::invalid_argument(format!("worker {:?} says that it is worker {:?} now", worker.0, hello.worker.0)));
        }
        if !token.allows(&hello.worker) {
            return Err(Status::permission_denied(format!("this token is not one of worker {:?}. Use that worker's own", hello.worker.0)));
        }
    }
    Ok(())
}

fn into_status(end: End) -> Status {
    match end {
        End::Peer(None) => Status::cancelled("the worker has ended the stream"),
        End::Peer(Some(status)) => status,
        End::Broken(error) => status::of_broken(&error),
        End::Stalled(time) => Status::resource_exhausted(format!("the worker has taken nothing for {time:?}")),
        End::LetGo => Status::unavailable("the scheduler has let go of this connection: it has stopped, or the worker is too far behind"),
        End::Unsendable(error) => Status::internal(format!("the scheduler made a message that it may not send: {error}")),
    }
}

#[tonic::async_trait]
impl Workers for Arc<Service> {
    type ConnectStream = ReceiverStream<Answer>;

    async fn connect(&self, request: Request<Streaming<ToSchedulerFrame>>) -> Result<Response<Self::ConnectStream>, Status> {
        let (token, stay) = admit(self, &request)?;
        let (link, outgoing) = mpsc::channel(LINK_BATCHES_MAX);
        let (wire, answers) = mpsc::channel(FRAMES_IN_FLIGHT_MAX);
        let incoming = request.into_inner();
        let stall_time_max = self.options.timing.stall_time_max;
        let stream = Pump::new(SchedulerSide::default(), incoming, outgoing, wire.clone(), Ok, stall_time_max);
        let service = self.clone();
        tokio::spawn(async move {
            let _stay = stay;
            service.attend(token, stream, link, wire).await;
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn replicas(&self, request: Request<ReplicasRequest>) -> Result<Response<ReplicasReply>, Status> {
        let (_, _stay) = admit(self, &request)?;
        let addresses = self.options.replicas.borrow().iter().take(REPLICAS_MAX).cloned().collect();
        Ok(Response::new(ReplicasReply { replica: self.options.replica.0.to_string(), addresses }))
    }

    async fn log(&self, request: Request<LogBatch>) -> Result<Response<LogReply>, Status> {
        let (token, _stay) = admit(self, &request)?;
        let batch = logs::from_wire(request.into_inner()).map_err(Status::invalid_argument)?;
        if !token.allows(&batch.worker) {
            return Err(Status::permission_denied(format!("this token is not one of worker {:?}. Use that worker's own", batch.worker.0)));
        }
        logs::take(self.options.logs.as_ref(), batch).await.map_err(logs::into_status)?;
        Ok(Response::new(LogReply {}))
    }
}

/// Checks the token; whoever has one may stay.
fn admit<T>(service: &Service, request: &Request<T>) -> Result<(WorkerToken, Stay), Status> {
    let token = service.options.tokens.check(request.metadata())?;
    let visitor = request.extensions().get::<Visitor>().ok_or_else(|| Status::internal("a call without a connection"))?;
    Ok((token, visitor.stay()))
}
