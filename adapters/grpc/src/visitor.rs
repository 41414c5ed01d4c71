//! Connections before anybody has said who they are.
//!
//! Half-open connections, bytes that are no HTTP/2, a header that comes one byte at a time: all are the same here. A connection over which
//! no stream is open is cut after [`HANDSHAKE_TIME_MAX`](crate::limits::HANDSHAKE_TIME_MAX), counted from the end of the last one where there
//! was one; so many of them may wait, and whoever comes then is turned away at once.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::transport::server::Connected;

use crate::limits::{CONNECTIONS_MAX, UNKNOWN_CONNECTIONS_MAX};

/// How soon to look again after the system could not accept a connection, as when it is out of descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A connection, as the calls that come over it see it.
#[derive(Clone, Debug)]
pub(crate) struct Visitor(Arc<Visit>);

#[derive(Debug)]
struct Visit {
    streams: AtomicUsize,
    /// When the last stream ended. What it said at its end needs time to be sent.
    left_at: Mutex<Option<Instant>>,
    /// Held until somebody has shown a token.
    unknown: Mutex<Option<OwnedSemaphorePermit>>,
}

/// As long as one of these is held, the connection may stay.
#[derive(Debug)]
pub(crate) struct Stay(Arc<Visit>);

impl Visitor {
    /// Lets the connection stay.
    pub(crate) fn stay(&self) -> Stay {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        self.0.unknown.lock().unwrap_or_else(PoisonError::into_inner).take();
        Stay(self.0.clone())
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // Before the count: whoever sees no stream sees when the last one ended.
        *self.0.left_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.streams.fetch_sub(1, Ordering::Release);
    }
}

/// The bytes of a connection, until its time is over.
#[derive(Debug)]
pub(crate) struct VisitorStream {
    stream: TcpStream,
    visit: Arc<Visit>,
    time_max: Duration,
    over: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connected for VisitorStream {
    type ConnectInfo = Visitor;

    fn connect_info(&self) -> Visitor {
        Visitor(self.visit.clone())
    }
}

impl VisitorStream {
    /// Whether the connection has to go.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.over.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let is_empty = self.visit.streams.load(Ordering::Acquire) == 0;
            let left_at = *self.visit.left_at.lock().unwrap_or_else(PoisonError::into_inner);
            let over_at = match left_at {
                _ if !is_empty => now + self.time_max,
                Some(left_at) => left_at + self.time_max,
                None => now,
            };
            if over_at <= now {
                return Poll::Ready(());
            }
            self.over.as_mut().reset(over_at);
        }
        Poll::Pending
    }
}

impl AsyncRead for VisitorStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.poll_over(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no stream was opened in time")));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for VisitorStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Takes connections in, for as long as somebody takes them.
pub(crate) async fn accept(listener: TcpListener, time_max: Duration, accepted: mpsc::Sender<io::Result<VisitorStream>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let unknown = Arc::new(Semaphore::new(UNKNOWN_CONNECTIONS_MAX));
    let mut is_full = false;
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection can't be accepted; trying again");
                sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let (Ok(place), Ok(unknown)) = (places.clone().try_acquire_owned(), unknown.clone().try_acquire_owned()) else {
            // Told once for each time that the house is full, not for each visitor.
            if !std::mem::replace(&mut is_full, true) {
                let (most, most_unknown) = (CONNECTIONS_MAX, UNKNOWN_CONNECTIONS_MAX);
                tracing::warn!(most, most_unknown, "too many connections of workers: new ones are turned away");
            }
            continue;
        };
        is_full = false;
        let _ = stream.set_nodelay(true);
        let visit = Arc::new(Visit { streams: AtomicUsize::new(0), left_at: Mutex::default(), unknown: Mutex::new(Some(unknown)) });
        let over = Box::pin(sleep_until(Instant::now() + time_max));
        if accepted.send(Ok(VisitorStream { stream, visit, time_max, over, _place: place })).await.is_err() {
            return;
        }
    }
}
