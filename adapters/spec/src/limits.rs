//! The limits of files and documents. Those of what the scheduler does are in [`punctual_core::limits`].

use punctual_core::limits::PAYLOAD_BYTES_MAX;
use punctual_core::time::Millis;

/// Largest task file or crontab, in bytes.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Deepest nesting of lists and maps in a task file.
pub const DEPTH_MAX: usize = 64;
/// Most values in one task, counting what aliases stand for: room for the largest workflow.
pub const TASK_NODES_MAX: u64 = 1_000_000;
/// Most values that the aliases of one file stand for.
pub const ALIASED_NODES_MAX: u64 = 10_000_000;
/// Most calendars of one file.
pub const CALENDARS_MAX: usize = 1_000;
/// Longest name of a calendar, in characters.
pub const CALENDAR_NAME_CHARS_MAX: usize = 128;
/// Most groups that one file sets limits for.
pub const GROUPS_MAX: usize = 1_000;
/// Most problems of one file that are kept; the rest is counted.
pub const PROBLEMS_MAX: usize = 10_000;

/// Longest description, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 4_096;
/// Longest owner, in characters.
pub const OWNER_CHARS_MAX: usize = 128;
/// Longest name of a handler, in characters.
pub const HANDLER_NAME_CHARS_MAX: usize = 128;
/// Largest configuration of a handler, in bytes of JSON.
pub const HANDLER_CONFIG_BYTES_MAX: usize = 256 << 10;
/// Longest name of a downstream that a task or a rehearsal names, in characters.
pub const DOWNSTREAM_CHARS_MAX: usize = 128;
/// Largest schema of a payload, in bytes of JSON.
pub const PAYLOAD_SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Most steps of a schema for one value and what is below it, if each part of that is met once: what is referred to twice counts twice.
pub const SCHEMA_STEPS_MAX: u64 = 100_000;
/// Most schemas within each other, with what they refer to, on any way through a payload: a check takes stack for each.
pub const SCHEMA_DEPTH_MAX: usize = 200;
/// Largest pattern of a schema, in bytes of the machine that matches it.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 64 << 10;
/// Most states of all patterns of a schema together.
pub const SCHEMA_PATTERN_STATES_MAX: usize = 20_000;
/// Most steps that a payload is checked in: about a tenth of a second.
pub const CHECK_STEPS_MAX: u64 = 2_000_000;
/// Most steps of a check whose problems are told with their places: each of them may be a problem, and all are gathered.
pub const CHECK_STEPS_TOLD: u64 = 100_000;
/// Most steps of a check when a node calls a task: the scheduler waits for it.
pub const CHECK_STEPS_CALL: u64 = 100_000;
/// Steps that anybody may wait for.
pub const CHECK_STEPS_QUICK: u64 = 50_000;
/// Schemas of payloads that are kept to check the next payload with.
pub const KEPT_SCHEMAS_MAX: usize = 64;
/// Longest name of a worker that a task is pinned to, in bytes, as the workers' protocol has it.
pub const WORKER_NAME_BYTES_MAX: usize = 512;
/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 8 << 10;
/// Shortest duration where zero makes no sense.
pub const DURATION_MIN: Millis = Millis(1);
/// Largest factor of an exponential backoff.
pub const FACTOR_MAX: u32 = 100;
/// Different schedules that are kept for tasks to share.
pub const SHARED_SCHEDULES_MAX: usize = 1 << 18;
/// Different policies, and different configurations of handlers, that are kept for tasks to share.
pub const SHARED_VALUES_MAX: usize = 1 << 14;

const _: () = assert!(TASK_NODES_MAX <= ALIASED_NODES_MAX);
const _: () = assert!(HANDLER_CONFIG_BYTES_MAX >= PAYLOAD_BYTES_MAX, "what a payload may hold may be written as the standard input");
