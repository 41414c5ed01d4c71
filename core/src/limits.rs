//! Every limit in one place, related to the others by assertions that the compiler checks.

/// Longest cron expression, in bytes.
pub const CRON_EXPRESSION_BYTES_MAX: usize = 1_024;
/// How far ahead a cron expression is searched for its next fire time, in years.
pub const CRON_SEARCH_YEARS: i16 = 130;
