//! One replica: dialling, one stream, dialling again.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_core::ids::ConnectionId;
use punctual_driver::link::{LINK_BATCHES_MAX, ToWorkerNode};
use punctual_driver::logs::buffer::{self, Shipped};
use punctual_proto::connection::WorkerSide;
use punctual_proto::limits::FRAME_BYTES_MAX;
use punctual_proto::wire::{ReplicasReply, ReplicasRequest, ToSchedulerFrame};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::client::{ClientOptions, ClientTls, LinkState};
use crate::limits::{
    CONNECTION_WINDOW_BYTES, DIAL_TIME_MAX, FRAMES_IN_FLIGHT_MAX, HEADER_BYTES_MAX, REDIAL_REPLACED, REDIAL_SAME, STREAM_WINDOW_BYTES,
};
use crate::logs::Remote;
use crate::pump::{End, Pump};
use crate::status;
use crate::wire::workers_client::WorkersClient;

/// What the tasks of all replicas share.
pub(crate) struct Common {
    pub(crate) options: ClientOptions,
    pub(crate) token: Option<(&'static str, MetadataValue<Ascii>)>,
    pub(crate) node: mpsc::Sender<ToWorkerNode>,
    pub(crate) news: mpsc::Sender<News>,
    pub(crate) last_connection: AtomicU64,
    /// The replicas to which there is a stream, or soon will be, by their own names.
    pub(crate) reached: Mutex<BTreeSet<String>>,
    /// Says that there is one less of them.
    pub(crate) freed: watch::Sender<()>,
    /// Held by the one that sends the lines of attempts.
    pub(crate) shipping: tokio::sync::Mutex<()>,
}

/// What the tasks tell whoever started them.
#[derive(Debug)]
pub(crate) enum News {
    /// This one is connected, and lists these.
    Listed { by: Address, addresses: Vec<String> },
    /// This one is no longer connected.
    Disconnected { from: Address },
}

/// Why there is no stream.
enum Failure {
    /// It failed, or has ended.
    Failed(String),
    /// Another worker of the same id has taken this one's place.
    Replaced(String),
    /// There is a stream to this replica already.
    Same(String),
}

impl Common {
    pub(crate) fn tell(&self, address: &Address, state: &LinkState) {
        match state {
            LinkState::Connected => tracing::info!(%address, "connected to a scheduler"),
            LinkState::Disconnected { reason } => tracing::warn!(%address, reason, "no connection to a scheduler; dialling again"),
            LinkState::SameReplica { replica } => tracing::debug!(%address, replica, "this scheduler is connected by another address"),
            LinkState::Dropped => tracing::info!(%address, "a scheduler is no longer listed"),
        }
        if let Some(watcher) = &self.options.watcher {
            watcher(address.url(), state);
        }
    }

    /// An address that a replica has listed. None that would take a worker's token out of TLS.
    pub(crate) fn learn(&self, address: &str) -> Option<Address> {
        let with_tls = self.options.tls.is_some();
        let address = Address::parse(address, with_tls)
            .inspect_err(|reason| tracing::debug!(address, reason, "a listed address that can't be dialled"))
            .ok()?;
        (!with_tls || address.is_secure()).then_some(address)
    }

    /// A call with the worker's token.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some((key, value)) = &self.token {
            request.metadata_mut().insert(*key, value.clone());
        }
        request
    }

    fn endpoint(&self, address: &Address) -> Result<Endpoint, tonic::transport::Error> {
        let timing = &self.options.timing;
        let endpoint = Endpoint::from_shared(address.url().to_owned())?
            .connect_timeout(DIAL_TIME_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(timing.keepalive_interval)
            .keep_alive_timeout(timing.keepalive_timeout)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        if !address.is_secure() {
            return Ok(endpoint);
        }
        let tls = self.options.tls.as_ref().map_or_else(|| ClientTls::default().config(), ClientTls::config);
        endpoint.tls_config(tls.timeout(DIAL_TIME_MAX))
    }
}

/// Says that a replica is reached, until it is dropped.
struct Claim<'a> {
    common: &'a Common,
    replica: String,
}

impl<'a> Claim<'a> {
    /// `None`: somebody else has it. Replicas without a name are all different.
    fn take(common: &'a Common, replica: String) -> Option<Claim<'a>> {
        let mut reached = common.reached.lock().unwrap_or_else(PoisonError::into_inner);
        // Made only where it is taken: a claim that is dropped gives the replica up.
        (replica.is_empty() || reached.insert(replica.clone())).then(|| Claim { common, replica })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.common.reached.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.replica);
        self.common.freed.send_replace(());
    }
}

/// Keeps a stream to a replica, for as long as the task lives.
pub(crate) async fn keep(common: Arc<Common>, address: Address) {
    let mut backoff = Backoff::default();
    let mut told = None;
    loop {
        let begun = Instant::now();
        let mut freed = common.freed.subscribe();
        let failure = visit(&common, &address, &mut told).await;
        let (state, wait) = match failure {
            Failure::Failed(reason) => (LinkState::Disconnected { reason }, backoff.next(begun.elapsed())),
            Failure::Replaced(reason) => (LinkState::Disconnected { reason }, backoff.between(REDIAL_REPLACED)),
            Failure::Same(replica) => (LinkState::SameReplica { replica }, backoff.between(REDIAL_SAME)),
        };
        let is_spare = matches!(state, LinkState::SameReplica { .. });
        tell_once(&common, &address, &mut told, state);
        tokio::select! {
            biased;
            // The way that was as good as this one is gone: this one may be better.
            _ = freed.changed(), if is_spare => sleep(backoff.next(Duration::ZERO)).await,
            () = sleep(wait) => {}
        }
    }
}

fn tell_once(common: &Common, address: &Address, told: &mut Option<LinkState>, state: LinkState) {
    if told.as_ref() != Some(&state) {
        common.tell(address, &state);
        *told = Some(state);
    }
}

/// Dials, and carries messages until the stream ends; answers why it did.
async fn visit(common: &Common, address: &Address, told: &mut Option<LinkState>) -> Failure {
    let mut client = match reach(common, address).await {
        Ok(client) => client,
        Err(failure) => return failure,
    };
    let ReplicasReply { replica, addresses } = match ask(common, &mut client).await {
        Ok(reply) => reply,
        Err(failure) => return failure,
    };
    let Some(_claim) = Claim::take(common, replica.clone()) else { return Failure::Same(replica) };

    let (wire, frames) = mpsc::channel::<ToSchedulerFrame>(FRAMES_IN_FLIGHT_MAX);
    let connecting = in_time("a stream", client.connect(common.request(ReceiverStream::new(frames))));
    let incoming = match connecting.await {
        Ok(response) => response.into_inner(),
        Err(failure) => return failure,
    };
    let (link, outgoing) = mpsc::channel(LINK_BATCHES_MAX);
    let connection = ConnectionId(common.last_connection.fetch_add(1, Ordering::Relaxed) + 1);
    let mut stream = Pump::new(
        WorkerSide::speaking(common.options.speaks),
        incoming,
        outgoing,
        wire,
        |frame| frame,
        common.options.timing.stall_time_max,
    );
    let by = address.clone();
    let remote = Remote { common, client: client.clone() };
    // Fails only when the node or the dialler has ended, and then this task soon does too.
    let _ = common.news.send(News::Listed { by, addresses }).await;
    let _ = common.node.send(ToWorkerNode::Connected(connection, link)).await;
    tell_once(common, address, told, LinkState::Connected);

    let conversing = async {
        loop {
            let messages = match stream.next().await {
                Ok(messages) => messages,
                Err(end) => return into_failure(end),
            };
            if common.node.send(ToWorkerNode::Messages(connection, messages)).await.is_err() {
                return Failure::Failed("this worker has stopped".to_owned());
            }
        }
    };
    let asking = async {
        loop {
            sleep(common.options.timing.replicas_interval).await;
            // A stream that still works is worth more than an answer to this.
            if let Ok(reply) = ask(common, &mut client).await {
                let _ = common.news.send(News::Listed { by: address.clone(), addresses: reply.addresses }).await;
            }
        }
    };
    let shipping = ship(common, remote);
    tokio::pin!(shipping);
    let failure = tokio::select! {
        biased;
        failure = conversing => failure,
        never = asking => never,
        () = &mut shipping => unreachable!("it goes on for as long as the replica is there"),
    };
    if common.node.is_closed()
        && let Some(logs) = &common.options.logs
    {
        // The worker stops: what its attempts have said last is sent over the connection, which is still there.
        buffer::flush(logs, shipping).await;
    }
    let _ = common.node.send(ToWorkerNode::Disconnected(connection)).await;
    let _ = common.news.send(News::Disconnected { from: address.clone() }).await;
    failure
}

/// Sends lines of attempts to this replica, in turns with the others, until it is dropped.
async fn ship(common: &Common, remote: Remote<'_>) {
    let Some(logs) = &common.options.logs else { return std::future::pending().await };
    loop {
        let turn = common.shipping.lock().await;
        let ended = buffer::ship(logs, |batch| remote.send(batch)).await;
        drop(turn);
        match ended {
            // An older one: others may know how.
            Shipped::NotHere => return std::future::pending().await,
            Shipped::NotNow => {}
        }
    }
}

async fn reach(common: &Common, address: &Address) -> Result<WorkersClient<Channel>, Failure> {
    let failed = |error: tonic::transport::Error| Failure::Failed(status::chain(&error));
    let endpoint = common.endpoint(address).map_err(failed)?;
    // TCP and TLS have their own limits; the name's look-up has none but this.
    let channel = match timeout(3 * DIAL_TIME_MAX, endpoint.connect()).await {
        Ok(channel) => channel.map_err(failed)?,
        Err(_) => return Err(Failure::Failed(format!("no connection within {:?}", 3 * DIAL_TIME_MAX))),
    };
    Ok(WorkersClient::new(channel).max_decoding_message_size(FRAME_BYTES_MAX))
}

async fn ask(common: &Common, client: &mut WorkersClient<Channel>) -> Result<ReplicasReply, Failure> {
    let reply = in_time("an answer", client.replicas(common.request(ReplicasRequest {}))).await?;
    Ok(reply.into_inner())
}

async fn in_time<T>(what: &str, call: impl Future<Output = Result<T, tonic::Status>>) -> Result<T, Failure> {
    match timeout(DIAL_TIME_MAX, call).await {
        Ok(answer) => answer.map_err(|status| Failure::Failed(status::in_words(&status))),
        Err(_) => Err(Failure::Failed(format!("the scheduler has not given {what} within {DIAL_TIME_MAX:?}"))),
    }
}

fn into_failure(end: End) -> Failure {
    Failure::Failed(match end {
        End::Peer(Some(status)) if status.code() == Code::Aborted => return Failure::Replaced(status::in_words(&status)),
        End::Peer(Some(status)) => status::in_words(&status),
        End::Peer(None) => "the scheduler has ended the stream".to_owned(),
        End::Broken(error) => error.to_string(),
        End::Stalled(time) => format!("the scheduler has taken nothing for {time:?}"),
        End::LetGo => "this worker has let go of the connection: it has stopped, or the scheduler is too far behind".to_owned(),
        End::Unsendable(error) => format!("this worker has made a message that it may not send: {error}"),
    })
}
