//! Connections to the API: so many at once, and none that says nothing for long. Callers that open connections and forget them would
//! otherwise use up the descriptors that the commands need. Over TLS, where there is a certificate: each connection agrees on it by itself, so
//! that one that is slow holds up nobody.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Most connections at once; more wait until one ends. Half of the descriptors that most systems allow a process.
const CONNECTIONS_MAX: usize = 512;
/// How long a connection may go without a byte in either direction. Longer than any answer takes.
const IDLE_TIME_MAX: Duration = Duration::from_secs(20);

/// A listener that hands out [`CONNECTIONS_MAX`] connections at once.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    tls: Option<TlsAcceptor>,
}

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener, tls: Option<Arc<ServerConfig>>) -> Self {
        BoundedListener { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), tls: tls.map(TlsAcceptor::from) }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Answers are small and wait for nothing.
        let _ = stream.set_nodelay(true);
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(tls) => Stream::Agreeing(Box::new(tls.accept(stream))),
        };
        (Connection { stream, idle: Box::pin(sleep(IDLE_TIME_MAX)), _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Connected<IncomingStream<'_, BoundedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Peer(*stream.remote_addr())
    }
}

/// What goes over a connection.
enum Stream {
    Plain(TcpStream),
    /// The two ends agree on keys.
    Agreeing(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What bytes are read from and written to.
trait Bytes: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Bytes for T {}

impl Stream {
    /// Waits until both ends have agreed.
    fn agreed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut dyn Bytes>> {
        if let Stream::Agreeing(accept) = self {
            let stream = ready!(Pin::new(&mut **accept).poll(context))?;
            *self = Stream::Tls(Box::new(stream));
        }
        Poll::Ready(match self {
            Stream::Plain(stream) => Ok(stream),
            Stream::Tls(stream) => Ok(&mut **stream),
            Stream::Agreeing(_) => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

/// A connection that ends when nothing moves.
pub(crate) struct Connection {
    stream: Stream,
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// Passes on what has moved; where nothing has, waits for it as long as a connection may be idle.
    fn moved<T>(&mut self, context: &mut Context<'_>, step: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if step.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_TIME_MAX);
            return step;
        }
        ready!(self.idle.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let step = match self.stream.agreed(context) {
            Poll::Ready(Ok(stream)) => Pin::new(stream).poll_read(context, buffer),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        self.moved(context, step)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let step = match self.stream.agreed(context) {
            Poll::Ready(Ok(stream)) => Pin::new(stream).poll_write(context, bytes),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        self.moved(context, step)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(ready!(self.stream.agreed(context))?).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(ready!(self.stream.agreed(context))?).poll_shutdown(context)
    }
}
