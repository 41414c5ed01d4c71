//! The key of a concurrency limit: the limit holds for each value that stands at a place in the payload.
//!
//! Values are told apart by a hash of 64 bits, so that a key costs the same whatever is in it. Two that have the same one would share a
//! limit: they would wait for each other without need, and no more would run than may.

use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::Value;

use crate::limits;
use crate::text::cut;

/// A value of the key of one task's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitKey(NonZeroU64);

impl LimitKey {
    /// The one of the value that `pointer`, a JSON pointer, leads to in `payload`. All payloads without one share one key: no payload, one that
    /// is not JSON, one without the place, and `null` there.
    pub fn of(pointer: &str, payload: Option<&str>) -> LimitKey {
        match value_at(pointer, payload) {
            Some(value) => LimitKey::hashed(b"=", &text_of(&value)),
            None => LimitKey::hashed(b"", ""),
        }
    }

    /// FNV-1a.
    fn hashed(prefix: &[u8], text: &str) -> LimitKey {
        let bytes = prefix.iter().chain(text.as_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        LimitKey(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }
}

/// The value of the key in words, of a bounded length.
pub fn shown(pointer: &str, payload: Option<&str>) -> Arc<str> {
    let Some(value) = value_at(pointer, payload) else { return Arc::from(format!("no {pointer}")) };
    Arc::from(format!("{pointer} = {}", cut(text_of(&value), limits::LIMIT_KEY_SHOWN_BYTES_MAX)))
}

/// What is wrong with a pointer, in words.
pub fn pointer_problem(pointer: &str) -> Option<&'static str> {
    let is_escaped = |part: &str| part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if pointer.len() > limits::LIMIT_KEY_BYTES_MAX {
        Some("it is too long")
    } else if !pointer.starts_with('/') {
        Some("it doesn't begin with a slash")
    } else if pointer.chars().any(char::is_control) {
        Some("it has control characters")
    } else if !pointer.split('/').all(is_escaped) {
        Some("a ~ in it is neither ~0 nor ~1")
    } else {
        None
    }
}

fn value_at(pointer: &str, payload: Option<&str>) -> Option<Value> {
    let mut payload: Value = serde_json::from_str(payload?).ok()?;
    payload.pointer_mut(pointer).map(Value::take).filter(|value| !value.is_null())
}

/// A value's text: the same for equal values, however their fields are ordered.
fn text_of(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(payload: &str) -> LimitKey {
        LimitKey::of("/customer/id", Some(payload))
    }

    #[test]
    fn equal_values_have_one_key_and_others_another() {
        assert_eq!(of(r#"{"customer":{"id":7,"name":"a"}}"#), of(r#"{"x":1,"customer":{"id":7}}"#));
        assert_ne!(of(r#"{"customer":{"id":7}}"#), of(r#"{"customer":{"id":8}}"#));
        assert_ne!(of(r#"{"customer":{"id":7}}"#), of(r#"{"customer":{"id":"7"}}"#), "a number is no text");
        assert_eq!(of(r#"{"customer":{"id":{"a":1,"b":2}}}"#), of(r#"{"customer":{"id":{"b":2,"a":1}}}"#));
    }

    #[test]
    fn whatever_has_no_value_shares_a_key_that_no_value_has() {
        let none = LimitKey::of("/customer/id", None);
        for payload in ["", "no json", "7", "{}", r#"{"customer":7}"#, r#"{"customer":{"id":null}}"#] {
            assert_eq!(of(payload), none, "{payload}");
        }
        assert_ne!(of(r#"{"customer":{"id":""}}"#), none);
    }

    #[test]
    fn what_is_shown_is_bounded() {
        assert_eq!(&*shown("/a", Some(r#"{"a":"x"}"#)), "/a = \"x\"");
        assert_eq!(&*shown("/a", None), "no /a");
        let long = format!(r#"{{"a":"{}"}}"#, "ü".repeat(1_000));
        assert!(shown("/a", Some(&long)).len() < limits::LIMIT_KEY_SHOWN_BYTES_MAX + 16);
    }

    #[test]
    fn pointers_that_lead_nowhere_are_refused() {
        for pointer in ["/", "/a", "/a/0/b", "/a~1b/~0"] {
            assert_eq!(pointer_problem(pointer), None, "{pointer}");
        }
        for pointer in ["", "a", "a/b", "/a~", "/~2", "/a\nb"] {
            assert!(pointer_problem(pointer).is_some(), "{pointer:?}");
        }
    }
}
