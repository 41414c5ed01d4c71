//! The scheduler's side: how a replica listens.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use punctual_core::ids::ReplicaId;
use punctual_driver::link::ToSchedulerNode;
use punctual_driver::logs::LogSink;
use punctual_proto::limits::FRAME_BYTES_MAX;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::limits::{
    CONNECTION_WINDOW_BYTES, HEADER_BYTES_MAX, SHUTDOWN_TIME_MAX, STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION_MAX, Timing,
};
use crate::service::Service;
use crate::status;
use crate::tokens::Tokens;
use crate::visitor;
use crate::wire::workers_server::WorkersServer;

/// Connections that have been accepted and wait to be looked at.
const ACCEPTED_MAX: usize = 16;

/// What a replica's server needs to be told.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The replica's id. Workers tell by it that two addresses lead to one replica.
    pub replica: ReplicaId,
    /// `None`: in the clear.
    pub tls: Option<ServerTls>,
    /// How tokens are checked.
    pub tokens: Tokens,
    /// Where the replicas that are alive can be reached, this one included, as workers see it: `host:port` or URLs. Kept up to date by
    /// whoever knows.
    pub replicas: watch::Receiver<Vec<String>>,
    /// How patient it is.
    pub timing: Timing,
    /// Where lines of attempts go. `None`: workers are told that they are not stored here.
    pub logs: Option<Arc<dyn LogSink>>,
}

impl ServerOptions {
    /// For the loopback: in the clear, without tokens, alone.
    pub fn for_loopback(replica: ReplicaId) -> Self {
        let (_, replicas) = watch::channel(Vec::new());
        ServerOptions { replica, tls: None, tokens: Tokens::Unchecked, replicas, timing: Timing::default(), logs: None }
    }
}

/// A certificate with its chain, and its key, both in PEM.
#[derive(Clone)]
pub struct ServerTls {
    /// The certificate, and those between it and the root.
    pub certificate_pem: Vec<u8>,
    /// Its key.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

/// Why a replica can't listen, or has stopped listening.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Nothing listens beyond the loopback without credentials.
    #[error("PUN-501: workers could connect to {address} without a token. Name a file of tokens (--worker-tokens), or listen on 127.0.0.1")]
    NoTokens {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// Certificate and key don't work.
    #[error("PUN-502: TLS for workers can't be set up: {reason}. Check that certificate and key are PEM and belong together")]
    Tls {
        /// What is wrong with them.
        reason: String,
    },
    /// The listener is of no use any more.
    #[error("PUN-503: the listener for workers failed: {reason}")]
    Listener {
        /// What the system said.
        reason: String,
    },
}

/// Lets workers in until `shutdown` ends, or until it can't go on.
///
/// Each worker's stream is a connection of `node`: [`Connected`](ToSchedulerNode::Connected) after its hello has been checked, its messages,
/// and [`Disconnected`](ToSchedulerNode::Disconnected) at its end. Numbers of connections begin at 2³², so that they are told from those of
/// [`in_process`](punctual_driver::link::in_process) and a node can have both.
///
/// # Errors
///
/// Before anything is accepted: [`ServeError::NoTokens`] and [`ServeError::Tls`].
pub async fn serve(
    listener: TcpListener,
    options: ServerOptions,
    node: mpsc::Sender<ToSchedulerNode>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(|error| ServeError::Listener { reason: error.to_string() })?;
    if matches!(options.tokens, Tokens::Unchecked) && !address.ip().is_loopback() {
        return Err(ServeError::NoTokens { address });
    }
    let mut server = server(&options)?;
    let handshake_time_max = options.timing.handshake_time_max;
    let (stop, stopping) = watch::channel(false);
    let service = WorkersServer::new(Arc::new(Service::new(options, node, stopping.clone()))).max_decoding_message_size(FRAME_BYTES_MAX);
    let (accepted, visitors) = mpsc::channel(ACCEPTED_MAX);
    let stopped = {
        let mut stopping = stopping;
        async move {
            let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
        }
    };
    let serving = server.add_service(service).serve_with_incoming_shutdown(ReceiverStream::new(visitors), stopped);
    tokio::pin!(serving);
    let failed = |error: tonic::transport::Error| ServeError::Listener { reason: status::chain(&error) };
    tokio::select! {
        biased;
        () = shutdown => {}
        ended = &mut serving => return ended.map_err(failed),
        () = visitor::accept(listener, handshake_time_max, accepted) => {}
    }
    let _ = stop.send(true);
    // Who doesn't go now is cut off when this is dropped.
    timeout(SHUTDOWN_TIME_MAX, serving).await.unwrap_or(Ok(())).map_err(failed)
}

fn server(options: &ServerOptions) -> Result<Server, ServeError> {
    let server = Server::builder()
        .http2_keepalive_interval(Some(options.timing.keepalive_interval))
        .http2_keepalive_timeout(Some(options.timing.keepalive_timeout))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX);
    let Some(tls) = &options.tls else { return Ok(server) };
    // Somebody else may have chosen one before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let identity = Identity::from_pem(&tls.certificate_pem, &tls.key_pem);
    let tls = ServerTlsConfig::new().identity(identity).timeout(options.timing.handshake_time_max);
    server.tls_config(tls).map_err(|error| ServeError::Tls { reason: status::chain(&error) })
}
