//! The fields of a task file: one table each, for reading, for messages and for the schema.

/// Fields of the file.
pub(crate) const FILE: &[&str] = &["calendars", "groups", "defaults", "tasks"];
/// Fields of a task; `defaults` has all of them but the name.
pub(crate) const TASK: &[&str] = &[
    "name",
    "description",
    "owner",
    "enabled",
    "trigger",
    "after",
    "command",
    "http",
    "handler",
    "nodes",
    "payload",
    "payload_schema",
    "misfire",
    "concurrency",
    "shards",
    "map",
    "retry",
    "downstream",
    "circuit_breaker",
    "timeout",
    "idempotent",
    "priority",
    "rate_limit",
    "routing",
    "group",
    "group_limits",
    "rehearsal",
];
/// The fields that say what a task runs; it has one of them.
pub(crate) const HANDLERS: &[&str] = &["command", "http", "handler"];
/// Fields of `map`.
pub(crate) const MAP: &[&str] = &["list", "reduce", "parallel"];
/// Fields of a node of a workflow.
pub(crate) const NODE: &[&str] = &[
    "name",
    "after",
    "rule",
    "on_failure",
    "when",
    "command",
    "http",
    "handler",
    "task",
    "payload",
    "shards",
    "retry",
    "downstream",
    "circuit_breaker",
    "timeout",
    "idempotent",
    "priority",
    "routing",
];
/// Fields of `when`.
pub(crate) const WHEN: &[&str] = &["node", "pointer", "equals", "not_equals", "greater_than", "less_than", "exists"];
/// The fields of `when` of which it has one.
pub(crate) const TESTS: &[&str] = &["equals", "not_equals", "greater_than", "less_than", "exists"];
/// Fields of `trigger`.
pub(crate) const TRIGGER: &[&str] = &[
    "cron",
    "timezone",
    "dialect",
    "gap",
    "overlap",
    "fixed_rate",
    "fixed_delay",
    "delay",
    "starts_at",
    "ends_at",
    "calendar",
    "blackouts",
    "jitter",
];
/// The fields of `trigger` of which it has one.
pub(crate) const TRIGGER_KINDS: &[&str] = &["cron", "fixed_rate", "fixed_delay", "delay"];
/// The fields of `trigger` that are not a kind, and the kinds that they belong to.
pub(crate) const TRIGGER_OPTIONS: &[(&str, &[&str])] = &[
    ("timezone", &["cron"]),
    ("dialect", &["cron"]),
    ("gap", &["cron"]),
    ("overlap", &["cron"]),
    ("starts_at", &["cron", "fixed_rate", "fixed_delay"]),
    ("ends_at", &["cron", "fixed_rate", "fixed_delay"]),
    ("calendar", &["cron"]),
    ("blackouts", &["cron"]),
    ("jitter", &["cron", "fixed_rate"]),
];
/// Fields of a calendar.
pub(crate) const CALENDAR: &[&str] = &["exclude", "include"];
/// Fields of a blackout.
pub(crate) const BLACKOUT: &[&str] = &["from", "to", "days"];
/// Fields of an entry of `after`.
pub(crate) const AFTER: &[&str] = &["task", "on"];
/// Fields of `command`.
pub(crate) const COMMAND: &[&str] = &["argv", "shell", "env", "working_directory", "stdin", "user", "success_codes"];
/// Fields of `http`.
pub(crate) const HTTP: &[&str] = &["url", "method", "headers", "body", "success_statuses", "redirects"];
/// Fields of `handler`.
pub(crate) const HANDLER: &[&str] = &["name", "config"];
/// Fields of `misfire`.
pub(crate) const MISFIRE: &[&str] = &["action", "limit", "deadline", "rate"];
/// Fields of `concurrency`.
pub(crate) const CONCURRENCY: &[&str] = &["max_running", "when_full", "max_queue", "key"];
/// Fields of `retry`.
pub(crate) const RETRY: &[&str] = &["max_attempts", "max_losses", "backoff", "first", "cap", "factor", "jitter", "on", "budget"];
/// Fields of `retry.on`.
pub(crate) const RETRY_ON: &[&str] = &["exit_codes", "statuses", "timeouts"];
/// Fields of `retry.budget`.
pub(crate) const RETRY_BUDGET: &[&str] = &["ratio", "min_per_minute"];
/// Fields of `circuit_breaker`.
pub(crate) const CIRCUIT_BREAKER: &[&str] = &["failures", "within", "open"];
/// Fields of `timeout`.
pub(crate) const TIMEOUT: &[&str] = &["after", "grace", "action"];

/// Fields of `priority`.
pub(crate) const PRIORITY: &[&str] = &["band", "level"];
/// Fields of `rate_limit`.
pub(crate) const RATE_LIMIT: &[&str] = &["starts", "per"];
/// Fields of `group_limits`, and of an entry of `groups`.
pub(crate) const GROUP_LIMITS: &[&str] = &["max_running", "rate_limit"];
/// Fields of `routing`.
pub(crate) const ROUTING: &[&str] = &["strategy", "worker", "tags", "min_worker_version"];

/// Fields of `rehearsal`.
pub(crate) const REHEARSAL: &[&str] = &["takes", "fails", "fails_for_good", "stubborn", "obeys_after", "downstream"];

/// The names of HTTP methods.
pub(crate) const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// The names of the rules for redirects.
pub(crate) const REDIRECTS: &[&str] = &["none", "same_origin", "any"];
