//! The limits of the transport. Those of the frames are in [`punctual_proto::limits`].

use std::time::Duration;

use punctual_core::limits::{HEARTBEAT_INTERVAL, WORKER_LEASE};
use punctual_proto::limits::FRAME_BYTES_MAX;

/// How often each side asks whether the other is still there.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long the other side may take to answer.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to get from nothing to a stream, and a stream to get to the worker's hello.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a peer may take nothing of what is ready for it.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a stream that ends waits for its last word to be taken.
pub const LAST_WORD_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a server that shuts down waits for its connections.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// Most connections of a replica.
pub const CONNECTIONS_MAX: usize = 1 << 14;
/// Most connections among them that have not shown a token yet.
pub const UNKNOWN_CONNECTIONS_MAX: usize = 1 << 10;
/// Most calls over one connection at once: its stream, and questions for replicas.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 8;
/// Frames of a stream that wait for the peer to take them, besides what HTTP/2 itself has under way.
pub const FRAMES_IN_FLIGHT_MAX: usize = 4;
/// Messages that are put into one frame where more than one batch is waiting.
pub const MESSAGES_PER_FRAME_MAX: usize = 1 << 10;
/// What a stream may send ahead of its reader, in bytes.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// What a connection may send ahead of its readers, in bytes.
pub const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Most bytes of the headers of one call.
pub const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 4 << 10;

/// How long a replica may take to store lines of attempts.
pub const LOG_TIME_MAX: Duration = Duration::from_secs(10);

/// Most replicas that a worker dials.
pub const REPLICAS_MAX: usize = 256;
/// Longest address of a replica, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 512;
/// How often a worker asks which replicas there are.
pub const REPLICAS_INTERVAL: Duration = Duration::from_secs(5);
/// How long a dialling may wait for each of TCP, TLS and the first answer.
pub const DIAL_TIME_MAX: Duration = Duration::from_secs(5);
/// Waits between diallings: drawn between zero and a bound that doubles from the first of these to the second.
pub const REDIAL: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// The longest wait while the replica has not been away for [`REDIAL_EAGER_FOR`]: one that is restarted is to have its workers at once.
pub const REDIAL_EAGER: Duration = Duration::from_millis(500);
/// How long a replica that went may take to come back, and be found at once; it is dialled for so long though no other lists it.
pub const REDIAL_EAGER_FOR: Duration = Duration::from_secs(60);
/// Shortest wait between two diallings, whatever was drawn.
pub const REDIAL_MIN: Duration = Duration::from_millis(20);
/// The bound starts anew after a connection that lasted so long.
pub const REDIAL_STABLE_AFTER: Duration = Duration::from_secs(10);
/// How long a worker waits at least whose place another of the same id has, and how much is drawn on top: the older life is refused until the
/// newer one has gone, and somebody sees it.
pub const REDIAL_REPLACED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];
/// How long an address is left alone that leads to a replica which is connected already, and how much is drawn on top.
pub const REDIAL_SAME: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(30)];

const _: () = assert!(
    KEEPALIVE_INTERVAL.as_millis() + KEEPALIVE_TIMEOUT.as_millis() < WORKER_LEASE.0 as u128,
    "a link that is cut is dialled again before the attempts are lost with it"
);
const _: () = assert!(REDIAL[1].as_millis() <= HEARTBEAT_INTERVAL.0 as u128, "a replica that is back is found within a heartbeat");
const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
const _: () = assert!(UNKNOWN_CONNECTIONS_MAX < CONNECTIONS_MAX);
const _: () = assert!(REPLICAS_MAX * (ADDRESS_BYTES_MAX + 4) < FRAME_BYTES_MAX, "an answer with all replicas can be read");
const _: () = assert!(TOKEN_BYTES_MAX < HEADER_BYTES_MAX as usize);

/// How patient a side is. The defaults are the constants of this module; tests are in more of a hurry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// [`KEEPALIVE_INTERVAL`].
    pub keepalive_interval: Duration,
    /// [`KEEPALIVE_TIMEOUT`].
    pub keepalive_timeout: Duration,
    /// [`HANDSHAKE_TIME_MAX`].
    pub handshake_time_max: Duration,
    /// [`STALL_TIME_MAX`].
    pub stall_time_max: Duration,
    /// [`REPLICAS_INTERVAL`].
    pub replicas_interval: Duration,
    /// [`REDIAL_EAGER_FOR`].
    pub redial_eager_for: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            keepalive_interval: KEEPALIVE_INTERVAL,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            stall_time_max: STALL_TIME_MAX,
            replicas_interval: REPLICAS_INTERVAL,
            redial_eager_for: REDIAL_EAGER_FOR,
        }
    }
}
