//! Connections to the API: so many at once, and none that says nothing for long. Callers that open connections and forget them would
//! otherwise use up the descriptors that the commands need. Over TLS, where there is a certificate: each connection agrees on it by itself, so
//! that one that is slow holds up nobody.
//!
//! Nobody is kept out by connections that wait: where all places are taken, one that asks for nothing gives way to the next, or one whose body is
//! long on its way, of an address that has its share of them. A connection that begins a request has so long for its head, however few bytes it
//! sends.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tower::ServiceExt;

use super::places::{CONNECTIONS_MAX, Phase, Place, Places};
use crate::sign_in::origin::network;

/// How long a connection may go without a byte in either direction. Longer than any answer takes.
const IDLE_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a connection may wait for a request and read its head, counted from the answer before.
const HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// How long nobody is taken in when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// So many connections may wait until they are taken in: the system turns others away, who ask again after a second or more.
const BACKLOG: u32 = 1_024;

/// Listens at an address, also at one where connections of an earlier process have not faded yet.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until it is dropped.
pub(crate) async fn serve(listener: TcpListener, tls: Option<Arc<ServerConfig>>, router: Router) {
    serve_in(Places::new(CONNECTIONS_MAX), listener, tls, router).await;
}

async fn serve_in(places: Places, listener: TcpListener, tls: Option<Arc<ServerConfig>>, router: Router) {
    let tls = tls.map(TlsAcceptor::from);
    // What is under way ends with this.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(_) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = places.take(network(address.ip())).await;
        // Answers are small and wait for nothing.
        let _ = stream.set_nodelay(true);
        let stream = match &tls {
            None => Stream::Plain(stream),
            Some(tls) => Stream::Agreeing(Box::new(tls.accept(stream))),
        };
        let connection = Connection { stream, idle: Box::pin(sleep(IDLE_TIME_MAX)) };
        connections.spawn(serve_one(connection, address, place, router.clone()));
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve_one(connection: Connection, address: SocketAddr, place: Place, router: Router) {
    let place = Arc::new(place);
    let answering = place.clone();
    let answer = service_fn(move |mut request: Request<Incoming>| {
        let asked = Asked::new(answering.clone());
        request.extensions_mut().insert(ConnectInfo(Peer(address)));
        let answer = router.clone().oneshot(request.map(|body| received(body, answering.clone())));
        async move { answer.await.map(|response: Response| response.map(|body| Answer { body, _asked: asked })) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(connection), answer);
    tokio::select! {
        biased;
        () = place.given_up() => {}
        // Whoever has gone, or is too slow, needs no answer.
        _ = serving => {}
    }
}

/// A request, until its answer is written.
struct Asked(Arc<Place>);

impl Asked {
    fn new(place: Arc<Place>) -> Self {
        place.enters(Phase::Answering);
        Asked(place)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.enters(Phase::Idle);
    }
}

/// The body of a request: its connection receives until all of it is there, or nobody wants it any more.
fn received(body: Incoming, place: Arc<Place>) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    place.enters(Phase::Receiving);
    Body::new(Received { body, place: Some(place) })
}

struct Received {
    body: Incoming,
    /// None once the end was seen.
    place: Option<Arc<Place>>,
}

impl Received {
    fn ends(&mut self) {
        if let Some(place) = self.place.take() {
            place.enters(Phase::Answering);
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.ends();
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.ends();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer on its way; the request is over when all of it is written.
struct Answer {
    body: Body,
    _asked: Asked,
}

impl HttpBody for Answer {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// What goes over a connection.
enum Stream {
    Plain(TcpStream),
    /// The two ends agree on keys.
    Agreeing(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// They have not agreed.
    Failed,
}

/// What bytes are read from and written to.
trait Wire: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Wire for T {}

impl Stream {
    /// Waits until both ends have agreed.
    fn agreed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut dyn Wire>> {
        if let Stream::Agreeing(accept) = self {
            match ready!(Pin::new(&mut **accept).poll(context)) {
                Ok(stream) => *self = Stream::Tls(Box::new(stream)),
                Err(error) => {
                    // It may not be asked again, and whoever serves the connection flushes it once more.
                    *self = Stream::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match self {
            Stream::Plain(stream) => Ok(stream),
            Stream::Tls(stream) => Ok(&mut **stream),
            Stream::Agreeing(_) | Stream::Failed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

/// A connection that ends when nothing moves.
struct Connection {
    stream: Stream,
    idle: Pin<Box<Sleep>>,
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// However often a byte comes.
    #[tokio::test(start_paused = true)]
    async fn a_head_that_comes_byte_by_byte_has_so_long_as_a_whole() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, None, Router::new()));
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut sent = 0;
        // Each comes long before a connection counts as idle.
        while sent < 100 && slow.write_all(b"x").await.is_ok() {
            sent += 1;
            sleep(IDLE_TIME_MAX / 4).await;
        }
        assert!(sent < 20, "{sent} bytes");
        serving.abort();
    }

    /// Each phase is entered where it begins: a body that is not there yet, and an answer that is written, give way; an answer that is not, does not.
    #[tokio::test]
    async fn what_a_connection_does_decides_whether_it_gives_way() {
        const PLACES: usize = 4;
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let never = async move || {
            begins.send(()).unwrap();
            std::future::pending::<()>().await
        };
        let never = Router::new().route("/never", axum::routing::get(never));
        let router = never.fallback(|_: axum::body::Bytes| async { "read" });
        let serving = tokio::spawn(serve_in(Places::new(PLACES), listener, None, router));
        let connect = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        };
        let read = async |stream: &mut TcpStream| {
            let mut bytes = [0; 4_096];
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        // All the places but one are answered for long; the last one is somebody's who is slow, then idle.
        let mut busy = Vec::new();
        for _ in 1..PLACES {
            busy.push(connect("GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await);
            begun.recv().await.unwrap();
        }
        let whole = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc";
        let mut slow = connect(&whole[..whole.len() - 1]).await;
        let mut idle = connect(whole).await;
        assert!(read(&mut idle).await.ends_with("read"), "whose body does not come gives way");
        assert_eq!(read(&mut slow).await, "");
        let mut next = connect(whole).await;
        assert!(read(&mut next).await.ends_with("read"), "who is answered gives way");
        assert_eq!(read(&mut idle).await, "");
        drop(next);
        for mut busy in busy {
            let is_over = tokio::time::timeout(Duration::from_millis(1), read(&mut busy)).await;
            assert!(is_over.is_err(), "who is not answered stays");
        }
        serving.abort();
    }
}
