//! Both sides of a connection: numbers, versions and conversions in the right order.
//!
//! Each side is a small machine for one connection: make a new one with each connection. After an error it is of no more use, and the
//! connection has to be reset.

use punctual_core::protocol;

use crate::convert;
use crate::convert::Refused;
use crate::frame::{Frame, FrameError, Numbering, Order, Sequence, SequenceError};
use crate::version;
use crate::version::{VersionError, Versions};
use crate::wire::{ToScheduler, ToSchedulerFrame, ToWorker, ToWorkerFrame, to_scheduler, to_worker};

/// Why a connection has to be reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// Bytes that are no frame, or a frame that can't be sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Frames are missing.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The two sides can't talk to each other.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// A message that is not as it should be.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The worker has to say hello first: until then nobody knows which version it speaks.
    #[error("the worker has not said hello")]
    NoHello,
}

/// What a side has dropped of what it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Frames that came before.
    pub repeated_frames: u64,
    /// Messages of kinds that this version doesn't know.
    pub unknown_messages: u64,
}

/// The scheduler's side.
#[derive(Clone, Debug, Default)]
pub struct SchedulerSide {
    incoming: Incoming,
    outgoing: Numbering,
    version: Option<u32>,
}

impl SchedulerSide {
    /// Reads a worker's frame. A hello settles the version.
    ///
    /// # Errors
    ///
    /// Where the connection has to be reset; nothing of the frame counts then.
    pub fn receive(&mut self, frame: ToSchedulerFrame) -> Result<Vec<protocol::ToScheduler>, ConnectionError> {
        let version = &mut self.version;
        self.incoming.receive(frame, |message: ToScheduler| {
            if let Some(to_scheduler::Kind::Hello(hello)) = &message.kind {
                let theirs = Versions { oldest: hello.oldest_version, newest: hello.newest_version };
                *version = Some(version::negotiate(Versions::OURS, theirs)?);
            }
            let mut known = convert::scheduler_message_from_wire(message)?;
            let version = match known {
                None => return Ok(None),
                Some(_) => version.ok_or(ConnectionError::NoHello)?,
            };
            if let Some(protocol::ToScheduler::Hello(hello)) = &mut known {
                hello.traits.understands = version::understanding(version);
            }
            Ok(known)
        })
    }

    /// Makes frames of messages to the worker.
    ///
    /// # Errors
    ///
    /// Where the worker would refuse a message, and where it has not said hello: nothing is sent then.
    pub fn send(&mut self, messages: Vec<protocol::ToWorker>) -> Result<Vec<ToWorkerFrame>, ConnectionError> {
        let version = self.version.ok_or(ConnectionError::NoHello)?;
        let messages = messages.into_iter().map(|message| convert::worker_message_into_wire(message, version));
        Ok(self.outgoing.frames(messages.collect::<Result<_, _>>()?)?)
    }

    /// The version that both sides speak, once the worker has said hello.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// What was dropped of what the worker sent.
    pub fn dropped(&self) -> Dropped {
        self.incoming.dropped()
    }
}

/// The worker's side.
#[derive(Clone, Debug, Default)]
pub struct WorkerSide {
    incoming: Incoming,
    outgoing: Numbering,
    version: Option<u32>,
    speaks: Versions,
}

impl WorkerSide {
    /// A worker's side that speaks these versions only.
    pub fn speaking(speaks: Versions) -> WorkerSide {
        WorkerSide { speaks, ..WorkerSide::default() }
    }

    /// Reads a scheduler's frame. A welcome settles the version.
    ///
    /// # Errors
    ///
    /// Where the connection has to be reset; nothing of the frame counts then.
    pub fn receive(&mut self, frame: ToWorkerFrame) -> Result<Vec<protocol::ToWorker>, ConnectionError> {
        let (version, speaks) = (&mut self.version, self.speaks);
        self.incoming.receive(frame, |message: ToWorker| {
            if let Some(to_worker::Kind::Welcome(welcome)) = &message.kind {
                *version = Some(version::accept(speaks, welcome.version)?);
            }
            Ok(convert::worker_message_from_wire(message)?)
        })
    }

    /// Makes frames of messages to the scheduler.
    ///
    /// # Errors
    ///
    /// Where the scheduler would refuse a message: nothing is sent then.
    pub fn send(&mut self, messages: Vec<protocol::ToScheduler>) -> Result<Vec<ToSchedulerFrame>, ConnectionError> {
        let speaks = self.speaks;
        let messages = messages.into_iter().map(|message| convert::scheduler_message_into_wire(message, speaks));
        Ok(self.outgoing.frames(messages.collect::<Result<_, _>>()?)?)
    }

    /// The version that both sides speak, once the scheduler has said welcome.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// What was dropped of what the scheduler sent.
    pub fn dropped(&self) -> Dropped {
        self.incoming.dropped()
    }
}

/// One side of a connection, whichever it is: for whoever moves the bytes.
pub trait Side: Send {
    /// The frames that come.
    type Incoming: Frame + 'static;
    /// The frames that go.
    type Outgoing: Frame + 'static;
    /// The messages that come.
    type In: Send;
    /// The messages that go.
    type Out: Send;

    /// Takes a frame in; the messages that it carries.
    ///
    /// # Errors
    ///
    /// The connection is of no use any more.
    fn receive(&mut self, frame: Self::Incoming) -> Result<Vec<Self::In>, ConnectionError>;

    /// The frames that carry these messages.
    ///
    /// # Errors
    ///
    /// The other side would be bound to refuse one of them.
    fn send(&mut self, messages: Vec<Self::Out>) -> Result<Vec<Self::Outgoing>, ConnectionError>;

    /// What came and was not for this side.
    fn dropped(&self) -> Dropped;
}

impl Side for SchedulerSide {
    type Incoming = ToSchedulerFrame;
    type Outgoing = ToWorkerFrame;
    type In = protocol::ToScheduler;
    type Out = protocol::ToWorker;

    fn receive(&mut self, frame: ToSchedulerFrame) -> Result<Vec<protocol::ToScheduler>, ConnectionError> {
        SchedulerSide::receive(self, frame)
    }

    fn send(&mut self, messages: Vec<protocol::ToWorker>) -> Result<Vec<ToWorkerFrame>, ConnectionError> {
        SchedulerSide::send(self, messages)
    }

    fn dropped(&self) -> Dropped {
        SchedulerSide::dropped(self)
    }
}

impl Side for WorkerSide {
    type Incoming = ToWorkerFrame;
    type Outgoing = ToSchedulerFrame;
    type In = protocol::ToWorker;
    type Out = protocol::ToScheduler;

    fn receive(&mut self, frame: ToWorkerFrame) -> Result<Vec<protocol::ToWorker>, ConnectionError> {
        WorkerSide::receive(self, frame)
    }

    fn send(&mut self, messages: Vec<protocol::ToScheduler>) -> Result<Vec<ToSchedulerFrame>, ConnectionError> {
        WorkerSide::send(self, messages)
    }

    fn dropped(&self) -> Dropped {
        WorkerSide::dropped(self)
    }
}

/// What both sides do with a frame that arrives.
#[derive(Clone, Debug, Default)]
struct Incoming {
    sequence: Sequence,
    unknown_messages: u64,
}

impl Incoming {
    fn receive<F: Frame, M>(
        &mut self,
        frame: F,
        mut read: impl FnMut(F::Message) -> Result<Option<M>, ConnectionError>,
    ) -> Result<Vec<M>, ConnectionError> {
        let (number, messages) = frame.into_parts();
        if self.sequence.take(number)? == Order::Repeated {
            return Ok(Vec::new());
        }
        let mut known = Vec::with_capacity(messages.len());
        for message in messages {
            match read(message)? {
                Some(message) => known.push(message),
                None => self.unknown_messages += 1,
            }
        }
        Ok(known)
    }

    fn dropped(&self) -> Dropped {
        Dropped { repeated_frames: self.sequence.repeated(), unknown_messages: self.unknown_messages }
    }
}
