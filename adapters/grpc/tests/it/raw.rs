//! A peer that sends whatever bytes it likes.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use punctual_core::protocol::ToScheduler;
use punctual_proto::connection::WorkerSide;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::harness::in_time;

#[derive(Debug, Default)]
pub(crate) struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(into, &bytes);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; bytes::Buf::remaining(from)];
        bytes::Buf::copy_to_slice(from, &mut bytes);
        Ok(Some(bytes))
    }
}

/// A call with one message, showing this in the metadata `authorization`.
pub(crate) async fn call(address: SocketAddr, name: &str, authorization: Option<&str>, message: Vec<u8>) -> Result<Vec<u8>, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_timeout(Duration::from_secs(5));
    let channel = in_time("a connection", endpoint.connect()).await.expect("it listens");
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("a channel");
    let mut request = Request::new(message);
    if let Some(authorization) = authorization {
        request.metadata_mut().insert("authorization", authorization.parse().expect("ASCII"));
    }
    let path = format!("/punctual.worker.v1.Workers/{name}").parse().expect("a path");
    in_time("an answer", client.unary(request, path, Bytes)).await.map(Response::into_inner)
}

/// A stream to a scheduler.
pub(crate) struct RawStream {
    pub(crate) up: mpsc::Sender<Vec<u8>>,
    pub(crate) down: Streaming<Vec<u8>>,
    _channel: Channel,
}

impl RawStream {
    /// Opens one, showing this in the metadata `authorization`.
    pub(crate) async fn open(address: SocketAddr, authorization: Option<&str>) -> Result<RawStream, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_timeout(Duration::from_secs(5));
        let channel = in_time("a connection", endpoint.connect()).await.expect("it listens");
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.expect("a channel");
        let (up, frames) = mpsc::channel(64);
        let mut request = Request::new(ReceiverStream::new(frames));
        if let Some(authorization) = authorization {
            request.metadata_mut().insert("authorization", authorization.parse().expect("ASCII"));
        }
        let path = "/punctual.worker.v1.Workers/Connect".parse().expect("a path");
        let response: Response<Streaming<Vec<u8>>> = in_time("an answer", client.streaming(request, path, Bytes)).await?;
        Ok(RawStream { up, down: response.into_inner(), _channel: channel })
    }

    /// Sends messages as a well-behaved worker would.
    pub(crate) async fn send(&self, side: &mut WorkerSide, messages: Vec<ToScheduler>) {
        for frame in side.send(messages).expect("messages that may be sent") {
            self.up.send(frame.encode_to_vec()).await.expect("the stream is open");
        }
    }

    /// How it ends.
    pub(crate) async fn end(mut self) -> Status {
        loop {
            match in_time("the end of the stream", self.down.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("without a word"),
                Err(status) => return status,
            }
        }
    }
}
