//! Frames as messages of gRPC.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// How many bytes are gathered before they are handed to HTTP/2, and at what size a buffer starts.
const BUFFER_BYTES: usize = 32 << 10;

/// Protobuf, both ways. What can't be read is the sender's fault, and the status says so.
#[derive(Debug)]
pub(crate) struct FrameCodec<Out, In>(PhantomData<(Out, In)>);

impl<Out, In> Default for FrameCodec<Out, In> {
    fn default() -> Self {
        FrameCodec(PhantomData)
    }
}

impl<Out: Message + Send + 'static, In: Message + Default + Send + 'static> Codec for FrameCodec<Out, In> {
    type Encode = Out;
    type Decode = In;
    type Encoder = Half<Out>;
    type Decoder = Half<In>;

    fn encoder(&mut self) -> Half<Out> {
        Half(PhantomData)
    }

    fn decoder(&mut self) -> Half<In> {
        Half(PhantomData)
    }
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Half<M>(PhantomData<M>);

impl<M: Message> Encoder for Half<M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, message: M, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(into).map_err(|error| Status::internal(format!("a message that can't be written: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}

impl<M: Message + Default> Decoder for Half<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let message = M::decode(from).map_err(|error| Status::invalid_argument(format!("a frame that can't be read: {error}")))?;
        Ok(Some(message))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}
