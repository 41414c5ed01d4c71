//! Why a stream ends, in gRPC's words.

use std::error::Error;

use punctual_proto::connection::ConnectionError;
use punctual_proto::frame::FrameError;
use punctual_proto::limits::FRAME_BYTES_MAX;
use tonic::{Code, Status};

/// What the peer did wrong.
pub(crate) fn of_broken(error: &ConnectionError) -> Status {
    let message = error.to_string();
    match error {
        ConnectionError::Version(_) => Status::failed_precondition(message),
        ConnectionError::Frame(FrameError::TooLarge { .. }) => Status::resource_exhausted(message),
        ConnectionError::Sequence(_) => Status::data_loss(message),
        ConnectionError::Frame(FrameError::Garbled(_)) | ConnectionError::Refused(_) | ConnectionError::NoHello => {
            Status::invalid_argument(message)
        }
    }
}

/// What was met while reading. gRPC's own word for a message beyond the limit is one for numbers.
pub(crate) fn of_reading(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(format!("a frame of more than {FRAME_BYTES_MAX} bytes: {}", status.message())),
        _ => status,
    }
}

/// A status on one line.
pub(crate) fn in_words(status: &Status) -> String {
    let name = match status.code() {
        Code::Unauthenticated => "not let in",
        Code::PermissionDenied => "not allowed",
        Code::FailedPrecondition => "no common ground",
        Code::ResourceExhausted => "too much",
        Code::InvalidArgument => "not understood",
        Code::Aborted => "replaced",
        Code::Unavailable => "unavailable",
        Code::DeadlineExceeded => "too slow",
        Code::DataLoss => "frames were lost",
        Code::Unimplemented => "no such service there",
        Code::Cancelled => "cancelled",
        _ => "broken",
    };
    let source = status.source().map(|source| format!(" ({})", chain(source))).unwrap_or_default();
    format!("{name}: {}{source}", status.message())
}

/// An error and what it comes from.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
