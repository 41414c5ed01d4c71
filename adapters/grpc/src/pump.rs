//! Messages of a node as frames of a stream, and back: the same for both sides.

use std::collections::VecDeque;
use std::time::Duration;

use punctual_proto::connection::{ConnectionError, Side};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

use crate::limits::MESSAGES_PER_FRAME_MAX;
use crate::status;

/// Why a stream is over.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer ended it, or the connection broke; `None`: without a word.
    Peer(Option<Status>),
    /// The peer sent what it may not send.
    Broken(ConnectionError),
    /// Nobody takes what is sent.
    Stalled(Duration),
    /// This side's node has let go of the link, which it does with peers that are too far behind.
    LetGo,
    /// This side's node would send what the other side is bound to refuse.
    Unsendable(ConnectionError),
}

/// A stream, and the link of a node. `Item` is what goes into the stream: a frame, or one with a status beside it.
pub(crate) struct Pump<S: Side, Item> {
    side: S,
    incoming: Streaming<S::Incoming>,
    outgoing: mpsc::Receiver<Vec<S::Out>>,
    wire: mpsc::Sender<Item>,
    wrap: fn(S::Outgoing) -> Item,
    waiting: VecDeque<S::Outgoing>,
    /// Since when nothing was taken of what waits.
    waits_since: Instant,
    stall_time_max: Duration,
}

impl<S: Side, Item: Send> Pump<S, Item> {
    pub(crate) fn new(
        side: S,
        incoming: Streaming<S::Incoming>,
        outgoing: mpsc::Receiver<Vec<S::Out>>,
        wire: mpsc::Sender<Item>,
        wrap: fn(S::Outgoing) -> Item,
        stall_time_max: Duration,
    ) -> Self {
        Pump { side, incoming, outgoing, wire, wrap, waiting: VecDeque::new(), waits_since: Instant::now(), stall_time_max }
    }

    /// Sends what there is to send until something has come. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Vec<S::In>, End> {
        loop {
            let Pump { side, incoming, outgoing, wire, wrap, waiting, waits_since, stall_time_max } = self;
            tokio::select! {
                biased;
                room = wire.reserve(), if !waiting.is_empty() => {
                    let (Ok(room), Some(frame)) = (room, waiting.pop_front()) else { return Err(End::Peer(None)) };
                    room.send(wrap(frame));
                    *waits_since = Instant::now();
                }
                messages = outgoing.recv(), if waiting.is_empty() => {
                    let Some(mut messages) = messages else { return Err(End::LetGo) };
                    while messages.len() < MESSAGES_PER_FRAME_MAX && let Ok(more) = outgoing.try_recv() {
                        messages.extend(more);
                    }
                    waiting.extend(side.send(messages).map_err(End::Unsendable)?);
                    *waits_since = Instant::now();
                }
                frame = incoming.message() => match frame {
                    Ok(Some(frame)) => {
                        let messages = side.receive(frame).map_err(End::Broken)?;
                        if !messages.is_empty() {
                            return Ok(messages);
                        }
                    }
                    Ok(None) => return Err(End::Peer(None)),
                    Err(status) => return Err(End::Peer(Some(status::of_reading(status)))),
                },
                () = sleep_until(*waits_since + *stall_time_max), if !waiting.is_empty() => return Err(End::Stalled(*stall_time_max)),
            }
        }
    }
}
