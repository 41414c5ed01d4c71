//! Conditions on the result of a node upstream.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Number, Value};

use crate::limits::CONDITION_FOUND_BYTES_MAX;
use crate::text::cut;

/// What the result of a node upstream must be like for a node to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The name of the node whose result is read; upstream of the node with the condition, near or far.
    pub node: Arc<str>,
    /// Where in the result to look: a JSON pointer (RFC 6901), such as `/rows/0/count`. The empty one means the whole result.
    pub pointer: Arc<str>,
    /// What to look for.
    pub test: Comparison,
}

/// What a value is compared with. Numbers are compared as numbers: `1` equals `1.0`. Two that are both integers are compared exactly,
/// others as 64-bit floats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The value is equal to this one. Objects are, whatever the order of their members.
    Equals(Value),
    /// There is a value, and it isn't equal to this one.
    NotEquals(Value),
    /// The value is a number above this one.
    GreaterThan(Number),
    /// The value is a number below this one.
    LessThan(Number),
    /// There is a value; `null` is one.
    Exists,
}

impl Comparison {
    /// The names of all comparisons.
    pub const NAMES: [&str; 5] = ["equals", "not_equals", "greater_than", "less_than", "exists"];

    /// Its name, the same in API, CLI, console and database.
    pub const fn name(&self) -> &'static str {
        match self {
            Comparison::Equals(_) => "equals",
            Comparison::NotEquals(_) => "not_equals",
            Comparison::GreaterThan(_) => "greater_than",
            Comparison::LessThan(_) => "less_than",
            Comparison::Exists => "exists",
        }
    }

    fn holds(&self, found: &Value) -> bool {
        let ordered = |bound: &Number, wanted| found.as_number().and_then(|found| compare(found, bound)) == Some(wanted);
        match self {
            Comparison::Equals(wanted) => equal(found, wanted),
            Comparison::NotEquals(unwanted) => !equal(found, unwanted),
            Comparison::GreaterThan(bound) => ordered(bound, Ordering::Greater),
            Comparison::LessThan(bound) => ordered(bound, Ordering::Less),
            Comparison::Exists => true,
        }
    }
}

/// Why a condition does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unmet {
    /// The node that it reads has left no result: it had none, or was skipped.
    NoResult,
    /// The result is no JSON.
    NotJson,
    /// The pointer finds nothing in the result.
    NoValue,
    /// There is a value, and it is another one.
    Differs {
        /// The value as JSON, at most [`CONDITION_FOUND_BYTES_MAX`] bytes of it.
        found: Arc<str>,
    },
}

impl Condition {
    /// Whether the condition holds of the result of the node that it reads, a JSON text.
    ///
    /// # Errors
    ///
    /// Why it does not hold.
    pub fn check(&self, result: Option<&str>) -> Result<(), Unmet> {
        let value: Value = serde_json::from_str(result.ok_or(Unmet::NoResult)?).map_err(|_| Unmet::NotJson)?;
        let found = value.pointer(&self.pointer).ok_or(Unmet::NoValue)?;
        if self.test.holds(found) { Ok(()) } else { Err(Unmet::Differs { found: beginning(&found.to_string()) }) }
    }

    /// Whether the pointer is one by RFC 6901. One that isn't would find nothing in any result.
    pub(super) fn has_valid_pointer(&self) -> bool {
        let is_rooted = self.pointer.is_empty() || self.pointer.starts_with('/');
        is_rooted && self.pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
    }
}

fn beginning(text: &str) -> Arc<str> {
    Arc::from(cut(text.to_owned(), CONDITION_FOUND_BYTES_MAX))
}

fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// Equality in which numbers are numbers. Recursive: a result is parsed, and so at most as deep as serde_json goes, 128 levels.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Some(Ordering::Equal),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len() && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| equal(left, right)))
        }
        _ => left == right,
    }
}
