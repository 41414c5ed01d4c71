//! Every limit in one place, related to the others by assertions that the compiler checks.

use crate::time::Millis;

/// Longest cron expression, in bytes.
pub const CRON_EXPRESSION_BYTES_MAX: usize = 1_024;
/// How far ahead a cron expression is searched for its next fire time, in years.
pub const CRON_SEARCH_YEARS: i16 = 130;

/// Most days that a calendar excludes and includes, together: ten years of them.
pub const CALENDAR_DAYS_MAX: usize = 3_660;
/// Most blackout windows of a trigger.
pub const BLACKOUTS_MAX: usize = 64;
/// Longest start jitter.
pub const START_JITTER_MAX: Millis = Millis::from_secs(24 * 3_600);

/// Most partitions that a cluster can be laid out for.
pub const PARTITIONS_MAX: u16 = 1 << 14;
/// Partitions of a cluster that doesn't say.
pub const PARTITIONS_DEFAULT: u16 = 64;

/// Longest task name, in characters.
pub const NAME_CHARS_MAX: usize = 255;
/// Largest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Largest error text that is kept with a transition, in bytes.
pub const DETAIL_BYTES_MAX: usize = 4 << 10;
/// Most output that is kept of an attempt, in bytes: half from its beginning, half from its end.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Longest delay, interval and timeout: a hundred years.
pub const DELAY_MAX: Millis = Millis::from_secs(100 * 366 * 24 * 3_600);
/// Shortest interval of a loop.
pub const INTERVAL_MIN: Millis = Millis(100);
/// Most submissions in one manual trigger.
pub const SUBMISSIONS_MAX: usize = 1_024;

/// Largest result that a handler may answer, in bytes.
pub const RESULT_BYTES_MAX: usize = 16 << 10;
/// Most that a node of a workflow is given of what its upstreams have answered, in bytes of JSON.
pub const INPUTS_BYTES_MAX: usize = 64 << 10;
/// Most shards that a firing is divided into.
pub const SHARDS_MAX: u32 = 10_000;
/// Most workers that a firing is broadcast to.
pub const BROADCAST_WORKERS_MAX: usize = 1_000;
/// Most items that a firing is mapped over.
pub const MAP_ITEMS_MAX: u32 = 100_000;
/// Largest item, in bytes of its JSON.
pub const MAP_ITEM_BYTES_MAX: usize = 16 << 10;
/// Most bytes of all items of a firing together, and of all their results that are handed on, a line each.
pub const MAP_BYTES_MAX: usize = 3 << 20;
/// Items and results are written and read in pages of so many.
pub const MAP_PAGE_ITEMS: usize = 1_000;
/// Most items of a firing that are instances at once.
pub const MAP_PARALLEL_MAX: u32 = 1_000;
/// Items of a firing that are instances at once, where the task doesn't say.
pub const MAP_PARALLEL_DEFAULT: u32 = 100;
/// Longest key of a shard, in bytes.
pub const SHARD_KEY_BYTES_MAX: usize = 256;
/// Most tasks whose ends make one task fire.
pub const CHAINS_MAX: usize = 64;
/// Most chained tasks one behind the other.
pub const CHAIN_HOPS_MAX: u32 = 64;
/// Most tasks that one task's end makes fire, or that it calls.
pub const REFERENCES_MAX: usize = 1_024;
/// Most firings of other tasks that one firing can lead to, by calls and chains, over all steps.
pub const FOLLOWING_FIRINGS_MAX: u64 = 100_000;

/// Most instances of one task in progress at once.
pub const MAX_RUNNING_MAX: u32 = 100_000;
/// Instances of one task that wait behind its limit, where the task doesn't say.
pub const MAX_QUEUE_DEFAULT: u32 = 100;
/// Most instances of one task that wait behind its limit.
pub const MAX_QUEUE_MAX: u32 = 100_000;
/// Longest pointer into a payload to the key of a limit, in bytes.
pub const LIMIT_KEY_BYTES_MAX: usize = 256;
/// Most of the value of a limit's key that is shown, in bytes.
pub const LIMIT_KEY_SHOWN_BYTES_MAX: usize = 128;
/// Longest name of a group, in characters.
pub const GROUP_CHARS_MAX: usize = 128;
/// Most missed fire times that `fire_all` makes up for.
pub const CATCH_UP_MAX: u32 = 10_000;
/// Missed fire times that `fire_all` makes up for, where the task doesn't say.
pub const CATCH_UP_DEFAULT: u32 = 100;
/// Most fire times of a backfill.
pub const BACKFILL_MAX: usize = 10_000;
/// How far ahead of the wall clock a task's last fire time is when that is told: a clock must have been wrong.
pub const FIRED_AHEAD_TOLD: Millis = Millis::from_secs(3_600);
/// Backfills of a task that are remembered. With the next one the oldest that has ended goes.
pub const BACKFILLS_KEPT_MAX: usize = 100;
/// Most instances of a backfill that have not ended at once.
pub const BACKFILL_CONCURRENCY_MAX: u32 = 1_000;
/// Most attempts of an instance.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// Longest wait that what an attempt met may ask for, such as the answer to an HTTP call: a day. It is kept also where it is beyond the
/// backoff's cap.
pub const RETRY_AFTER_MAX: Millis = Millis::from_secs(24 * 3_600);
/// Largest share of retries in a budget, in thousandths of the first attempts: ten retries for each.
pub const BUDGET_RATIO_PERMILLE_MAX: u32 = 10_000;
/// Most retries a minute that a budget gives however few first attempts there are.
pub const BUDGET_PER_MINUTE_MAX: u32 = 1_000_000;
/// Most failures in a row that a circuit breaker waits for.
pub const BREAKER_FAILURES_MAX: u32 = 1_000;
/// Longest time in which a circuit breaker counts failures, and longest that it stays open before it probes.
pub const BREAKER_TIME_MAX: Millis = Millis::from_secs(24 * 3_600);
/// Workers that an instance may lose before it is quarantined, where the task doesn't say.
pub const MAX_LOSSES_DEFAULT: u32 = 3;

/// The highest level inside a band of the ready queue; the lowest is 0.
pub const LEVEL_MAX: u8 = 9;
/// The level of a task that doesn't say.
pub const LEVEL_DEFAULT: u8 = 5;
/// An instance that waits for a worker goes one level up each time that this has passed, beyond the highest one too.
pub const AGING_INTERVAL: Millis = Millis::from_secs(30);
/// Routes of the ready queue that are kept although nothing waits in them.
pub const ROUTES_KEPT_MAX: usize = 4_096;

/// Most starts of a rate limit.
pub const RATE_STARTS_MAX: u32 = 1_000_000;
/// Shortest time that a rate limit counts over.
pub const RATE_PER_MIN: Millis = Millis(100);
/// Longest time that a rate limit counts over. An owner that takes over doesn't know what was started before, and lets this long pass at
/// most to be sure.
pub const RATE_PER_MAX: Millis = Millis::from_secs(3_600);
/// A rate limit remembers starts that are closer together than this part of its time as one.
pub const RATE_PARTS: u64 = 256;

/// Most tags of a worker, and of a task's routing.
pub const TAGS_MAX: usize = 32;
/// Longest tag, in bytes, its `=` included.
pub const TAG_BYTES_MAX: usize = 128;
/// Longest version of a worker program, in bytes.
pub const WORKER_VERSION_BYTES_MAX: usize = 64;
/// Most nodes of a workflow.
pub const WORKFLOW_NODES_MAX: usize = 10_000;
/// Most edges of a workflow.
pub const WORKFLOW_EDGES_MAX: usize = 100_000;
/// Most nodes of a cycle that an error names; of a longer one it names the beginning.
pub const WORKFLOW_CYCLE_NAMED_MAX: usize = 16;
/// Most of a value that did not meet a condition that is kept with the reason, in bytes.
pub const CONDITION_FOUND_BYTES_MAX: usize = 128;

/// A fire time that is later than this when its owner sees it has been missed; one that is less late is just late.
pub const MISFIRE_THRESHOLD: Millis = Millis::from_secs(5);

/// How often a worker sends a heartbeat.
pub const HEARTBEAT_INTERVAL: Millis = Millis::from_secs(10);
/// Shortest interval between heartbeats that a worker lets itself be told.
pub const HEARTBEAT_INTERVAL_MIN: Millis = Millis(100);
/// How long an attempt lives without a heartbeat of its worker.
pub const WORKER_LEASE: Millis = Millis::from_secs(30);
/// How long an owner holds a partition without renewing.
pub const PARTITION_LEASE: Millis = Millis::from_secs(10);
/// An owner stops trusting its lease this long before it ends.
pub const PARTITION_LEASE_MARGIN: Millis = Millis::from_secs(1);

/// A fence that is further ahead than this of what was given out is not one that the store has forgotten: no worker can make an owner use
/// its numbers up.
pub const LOST_TAIL_MAX: u64 = 1 << 24;

/// Most rows that a batch takes on before the engine stops taking in new work until a commit has ended.
pub const BATCH_ROWS_MAX: usize = 4_000;
/// Most instances in progress in one replica's memory; beyond it nothing new is fired or read from the inbox until some have ended.
pub const LIVE_INSTANCES_MAX: usize = 500_000;
/// Most inbox entries that are read at once.
pub const INBOX_READ_MAX: usize = 256;

const _: () = assert!(HEARTBEAT_INTERVAL.0 * 3 <= WORKER_LEASE.0, "a worker may miss two heartbeats");
const _: () = assert!(PARTITION_LEASE_MARGIN.0 * 3 <= PARTITION_LEASE.0, "a lease is worth having");
const _: () = assert!(LEVEL_DEFAULT <= LEVEL_MAX);
const _: () = assert!(MAP_PARALLEL_DEFAULT <= MAP_PARALLEL_MAX && MAP_PARALLEL_MAX as usize <= BATCH_ROWS_MAX);
const _: () = assert!(MAP_ITEM_BYTES_MAX <= PAYLOAD_BYTES_MAX, "an item is a payload");
const _: () = assert!(MAP_ITEM_BYTES_MAX <= MAP_BYTES_MAX && MAP_ITEMS_MAX as usize * 2 <= MAP_BYTES_MAX, "so many items can be listed");
const _: () = assert!(BROADCAST_WORKERS_MAX <= SHARDS_MAX as usize, "a worker each is a shard each");
const _: () = assert!(RATE_PER_MIN.0 <= RATE_PER_MAX.0);
const _: () = assert!(RATE_PER_MAX.0 / RATE_PARTS >= 1, "starts of one moment are remembered as one");
const _: () = assert!(BATCH_ROWS_MAX < LIVE_INSTANCES_MAX);
const _: () = assert!(RETRY_AFTER_MAX.0 <= DELAY_MAX.0 && BREAKER_TIME_MAX.0 <= DELAY_MAX.0);
const _: () = assert!(WORKFLOW_EDGES_MAX < u32::MAX as usize, "edges and nodes are counted in 32 bits");
const _: () = assert!(WORKFLOW_NODES_MAX <= WORKFLOW_EDGES_MAX, "each node may have an upstream");
const _: () = assert!(CONDITION_FOUND_BYTES_MAX * 2 < DETAIL_BYTES_MAX, "a reason with a found value fits into a transition's detail");
const _: () = assert!(CATCH_UP_DEFAULT <= CATCH_UP_MAX);
const _: () = assert!(MAX_QUEUE_DEFAULT <= MAX_QUEUE_MAX);
