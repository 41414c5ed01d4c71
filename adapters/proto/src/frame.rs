//! Frames: messages that travel together, under a number.
//!
//! In a stream of bytes a frame stands behind its length, four bytes, the highest first. Transports that keep frames apart by themselves
//! send them without.

use std::mem;

use bytes::{Buf, BufMut, BytesMut};
use prost::Message;

use crate::limits::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES_MAX};
use crate::wire::{ToScheduler, ToSchedulerFrame, ToWorker, ToWorkerFrame};

/// Bytes of the length that stands before a frame.
pub const LENGTH_BYTES: usize = size_of::<u32>();

/// A frame of one direction.
pub trait Frame: Message + Default {
    /// What it carries.
    type Message: Message;

    /// A frame of these messages.
    fn new(sequence: u64, messages: Vec<Self::Message>) -> Self;

    /// Its number and its messages.
    fn into_parts(self) -> (u64, Vec<Self::Message>);
}

impl Frame for ToWorkerFrame {
    type Message = ToWorker;

    fn new(sequence: u64, messages: Vec<ToWorker>) -> Self {
        ToWorkerFrame { sequence, messages }
    }

    fn into_parts(self) -> (u64, Vec<ToWorker>) {
        (self.sequence, self.messages)
    }
}

impl Frame for ToSchedulerFrame {
    type Message = ToScheduler;

    fn new(sequence: u64, messages: Vec<ToScheduler>) -> Self {
        ToSchedulerFrame { sequence, messages }
    }

    fn into_parts(self) -> (u64, Vec<ToScheduler>) {
        (self.sequence, self.messages)
    }
}

/// Bytes that are no frame, or a frame that can't be sent. The connection has to be reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// More bytes than a frame may have.
    #[error("a frame of {bytes} bytes, more than {FRAME_BYTES_MAX}")]
    TooLarge {
        /// How many bytes it has, without its length.
        bytes: usize,
    },
    /// No protobuf, or of another type.
    #[error("a frame that can't be read: {0}")]
    Garbled(#[from] prost::DecodeError),
}

/// Writes a frame behind its length.
///
/// # Errors
///
/// [`FrameError::TooLarge`], with nothing written. Frames that [`Numbering::frames`] made are never too large.
pub fn encode<F: Frame>(frame: &F, into: &mut BytesMut) -> Result<(), FrameError> {
    let bytes = frame.encoded_len();
    if bytes > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge { bytes });
    }
    into.reserve(LENGTH_BYTES + bytes);
    into.put_u32(u32::try_from(bytes).expect("within the limit"));
    frame.encode(into).expect("room was made");
    Ok(())
}

/// Takes the first frame off what has arrived; `None`, and nothing taken, where it is not all there yet. Call it again until there is none.
///
/// # Errors
///
/// Where the bytes are no frame. A length beyond the limit is refused before the frame has arrived, so that `arrived` never has to hold
/// more than [`LENGTH_BYTES`] and [`FRAME_BYTES_MAX`] for this to go on.
pub fn decode<F: Frame>(arrived: &mut BytesMut) -> Result<Option<F>, FrameError> {
    let Some(length) = arrived.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let bytes = u32::from_be_bytes(*length) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge { bytes });
    }
    if arrived.len() < LENGTH_BYTES + bytes {
        return Ok(None);
    }
    arrived.advance(LENGTH_BYTES);
    Ok(Some(F::decode(arrived.split_to(bytes))?))
}

/// The sender's side of the frame numbers of one connection and direction.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    last: u64,
}

impl Numbering {
    /// The messages in their order, in as few frames as hold them. No messages make no frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] where one message alone is too large for a frame: none that [`crate::convert`] made is. No number is used
    /// then, and all messages are dropped.
    pub fn frames<F: Frame>(&mut self, messages: Vec<F::Message>) -> Result<Vec<F>, FrameError> {
        let mut groups = Vec::new();
        let (mut group, mut bytes) = (Vec::new(), FRAME_HEAD_BYTES_MAX);
        for message in messages {
            let more = framed_bytes(&message);
            if FRAME_HEAD_BYTES_MAX + more > FRAME_BYTES_MAX {
                return Err(FrameError::TooLarge { bytes: FRAME_HEAD_BYTES_MAX + more });
            }
            if bytes + more > FRAME_BYTES_MAX {
                groups.push(mem::take(&mut group));
                bytes = FRAME_HEAD_BYTES_MAX;
            }
            bytes += more;
            group.push(message);
        }
        if !group.is_empty() {
            groups.push(group);
        }
        Ok(groups.into_iter().map(|messages| F::new(self.next(), messages)).collect())
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// How many bytes the message takes in a frame: its tag, its length and itself.
fn framed_bytes(message: &impl Message) -> usize {
    let bytes = message.encoded_len();
    1 + prost::length_delimiter_len(bytes) + bytes
}

/// The receiver's side of the frame numbers of one connection and direction.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    last: u64,
    repeated: u64,
}

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It is the next one: take it.
    Next,
    /// It came before: drop it.
    Repeated,
}

/// Frames are missing. The connection has to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// Some never came.
    #[error("frame {found} came where {expected} was expected: what lies between is lost")]
    Gap {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// Numbers count from 1.
    #[error("a frame without a number")]
    NoNumber,
}

impl Sequence {
    /// Takes the next frame's number.
    ///
    /// # Errors
    ///
    /// Where a frame before it is missing, or where it has no number.
    pub fn take(&mut self, number: u64) -> Result<Order, SequenceError> {
        if number == 0 {
            return Err(SequenceError::NoNumber);
        }
        if number <= self.last {
            self.repeated += 1;
            return Ok(Order::Repeated);
        }
        if number - self.last > 1 {
            return Err(SequenceError::Gap { expected: self.last + 1, found: number });
        }
        self.last = number;
        Ok(Order::Next)
    }

    /// How many frames came before and were dropped.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }
}
