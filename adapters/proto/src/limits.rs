//! The limits of the wire. Those of what the messages mean are in [`punctual_core::limits`].

use punctual_core::limits::{
    DETAIL_BYTES_MAX, MAP_BYTES_MAX, NAME_CHARS_MAX, OUTPUT_BYTES_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX, SHARD_KEY_BYTES_MAX,
    TAG_BYTES_MAX, TAGS_MAX, WORKER_VERSION_BYTES_MAX,
};

/// Longest id of a worker, in bytes: two host names and a number.
pub const WORKER_ID_BYTES_MAX: usize = 512;
/// Most attempts that a worker runs at once.
pub const SLOTS_MAX: u32 = 1 << 16;
/// Most attempts that a worker holds: as many as it has slots, and as many reports that were not acknowledged.
pub const RUNNING_MAX: usize = 2 * SLOTS_MAX as usize;
/// Most handlers that a worker knows.
pub const HANDLERS_MAX: usize = 1 << 10;
/// Longest name of a handler, in characters, as task files have it.
pub const HANDLER_NAME_CHARS_MAX: usize = 128;
/// Largest configuration of a handler, in bytes, as task files have it.
pub const HANDLER_CONFIG_BYTES_MAX: usize = 256 << 10;

/// Largest frame, in bytes, without the length that stands before it in a stream. Room for the largest message of each kind, and what
/// implementations of gRPC accept by default.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// Most of a frame that is no message: its number.
pub const FRAME_HEAD_BYTES_MAX: usize = NUMBER;

/// Largest [`Hello`](crate::wire::Hello), in bytes.
pub const HELLO_BYTES_MAX: usize = part(WORKER_ID_BYTES_MAX)
    + 8 * NUMBER
    + TAGS_MAX * part(TAG_BYTES_MAX)
    + part(WORKER_VERSION_BYTES_MAX)
    + HANDLERS_MAX * part(HANDLER_NAME_CHARS_MAX * CHAR_BYTES_MAX)
    + RUNNING_MAX * part(ATTEMPT_BYTES_MAX);
/// Largest [`Assign`](crate::wire::Assign), in bytes.
pub const ASSIGN_BYTES_MAX: usize = part(ATTEMPT_BYTES_MAX)
    + 5 * NUMBER
    + part(NAME_CHARS_MAX * CHAR_BYTES_MAX)
    + part(part(HANDLER_NAME_CHARS_MAX * CHAR_BYTES_MAX) + part(HANDLER_CONFIG_BYTES_MAX))
    + part(PAYLOAD_BYTES_MAX)
    + part(3 * NUMBER)
    + part(2 * NUMBER + part(SHARD_KEY_BYTES_MAX))
    + LONG_TAG
    + NUMBER
    + LONG_TAG
    + part(MAP_BYTES_MAX);
/// Largest [`Finished`](crate::wire::Finished), in bytes.
pub const FINISHED_BYTES_MAX: usize = part(ATTEMPT_BYTES_MAX)
    + 2 * NUMBER
    + part(DETAIL_BYTES_MAX)
    + part(part(OUTPUT_BYTES_MAX) + NUMBER)
    + part(RESULT_BYTES_MAX)
    + NUMBER
    + LONG_TAG
    + part(MAP_BYTES_MAX);

/// A number and its tag: tags of the protocol take one byte, and a number at most ten.
const NUMBER: usize = 1 + 10;
/// What tags from 16 on take more.
const LONG_TAG: usize = 1;
/// A fixed number and its tag, and the fence.
const ATTEMPT_BYTES_MAX: usize = 1 + 8 + NUMBER;
/// A character of UTF-8.
const CHAR_BYTES_MAX: usize = 4;

/// A text, bytes or message of this many bytes, with its tag and its length.
const fn part(bytes: usize) -> usize {
    let bits = usize::BITS - bytes.leading_zeros();
    1 + bits.div_ceil(7) as usize + bytes
}

/// A message of a kind that takes this many bytes, as it stands in a frame.
const fn framed(bytes: usize) -> usize {
    FRAME_HEAD_BYTES_MAX + part(part(bytes))
}

const _: () = assert!(framed(HELLO_BYTES_MAX) <= FRAME_BYTES_MAX, "a frame holds the largest hello");
const _: () = assert!(framed(ASSIGN_BYTES_MAX) <= FRAME_BYTES_MAX, "a frame holds the largest assignment");
const _: () = assert!(framed(FINISHED_BYTES_MAX) <= FRAME_BYTES_MAX, "a frame holds the largest report");
const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize, "the length of a frame is four bytes");
