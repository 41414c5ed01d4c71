//! What payloads have to be like: JSON Schemas, and payloads that are checked against them.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::Value;

/// Problems with a payload that are told at once.
const TOLD_MAX: usize = 5;
/// Most characters of one of them: it may quote the payload.
const TOLD_CHARS_MAX: usize = 300;

/// A JSON Schema that payloads are checked against. Nothing is fetched for it: it refers to nothing outside itself.
#[derive(Debug)]
pub struct PayloadSchema(Validator);

impl PayloadSchema {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where in it.
    pub fn new(schema: &Value) -> Result<Self, String> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err("a schema is a map, or true or false".to_owned());
        }
        jsonschema::validator_for(schema).map(PayloadSchema).map_err(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { String::new() } else { format!("at {place}: ") };
            cut(format!("{place}{error}"))
        })
    }

    /// Checks a payload: a text that is JSON counts as what it says, or as the text itself, whichever fits. `None`: there is no payload, which
    /// counts as null.
    ///
    /// # Errors
    ///
    /// What does not fit, and where in the payload.
    pub fn check(&self, payload: Option<&str>) -> Result<(), String> {
        let Some(text) = payload else { return self.check_value(&Value::Null) };
        let as_text = Value::from(text);
        match serde_json::from_str(text) {
            Ok(value) => self.check_value(&value).or_else(|problem| if self.0.is_valid(&as_text) { Ok(()) } else { Err(problem) }),
            Err(_) => self.check_value(&as_text),
        }
    }

    fn check_value(&self, value: &Value) -> Result<(), String> {
        let mut problems = self.0.iter_errors(value).map(|error| {
            let place = error.instance_path().to_string();
            cut(format!("{}: {error}", if place.is_empty() { "the payload" } else { &place }))
        });
        let told: Vec<_> = problems.by_ref().take(TOLD_MAX).collect();
        let further = problems.count();
        match (told.is_empty(), further) {
            (true, _) => Ok(()),
            (false, 0) => Err(told.join("; ")),
            (false, further) => Err(format!("{}; and {further} more", told.join("; "))),
        }
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TOLD_CHARS_MAX) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// What has changed from one schema to the next, in words. `None`: they are the same. A task that has none takes any payload.
pub fn changes(older: Option<&Value>, newer: Option<&Value>) -> Option<String> {
    if older == newer {
        return None;
    }
    let (older, newer) = match (older, newer) {
        (None, _) => return Some("it took any payload, and has a schema now".to_owned()),
        (_, None) => return Some("it had a schema, and takes any payload now".to_owned()),
        (Some(older), Some(newer)) => (older, newer),
    };
    let names = |schema: &Value| -> BTreeSet<String> {
        schema["properties"].as_object().map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
    };
    let required = |schema: &Value| -> BTreeSet<String> {
        let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    let (had, has) = (names(older), names(newer));
    let (asked, asks) = (required(older), required(newer));
    let is_other = |name: &&String| older["properties"][name.as_str()] != newer["properties"][name.as_str()];
    let parts = [
        ("new", has.difference(&had).collect::<Vec<_>>()),
        ("gone", had.difference(&has).collect()),
        ("changed", had.intersection(&has).filter(is_other).collect()),
        ("required now", asks.difference(&asked).collect()),
        ("not required any more", asked.difference(&asks).collect()),
    ];
    let told = parts.iter().filter(|(_, names)| !names.is_empty());
    let told: Vec<_> =
        told.map(|(what, names)| format!("{what}: {}", names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "))).collect();
    Some(if told.is_empty() { "other parts of the schema than its properties".to_owned() } else { cut(told.join("; ")) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> PayloadSchema {
        PayloadSchema::new(&json!({
            "type": "object",
            "properties": { "id": { "type": "integer" }, "name": { "type": "string", "maxLength": 3 } },
            "required": ["id"],
            "additionalProperties": false,
        }))
        .expect("a schema")
    }

    #[test]
    fn a_payload_is_what_its_schema_says() {
        assert_eq!(schema().check(Some(r#"{"id": 1, "name": "abc"}"#)), Ok(()));
        let problem = schema().check(Some(r#"{"id": "x"}"#)).unwrap_err();
        assert!(problem.starts_with("/id: ") && problem.contains("integer"), "{problem}");
        for wrong in [None, Some("hello"), Some("{}"), Some(r#"{"id": 1, "more": 2}"#), Some(r#"{"id": 1, "name": "abcd"}"#)] {
            assert!(schema().check(wrong).is_err(), "{wrong:?}");
        }
        let many = format!("{{{}}}", (0..20).map(|number| format!("\"k{number}\": 1")).collect::<Vec<_>>().join(", "));
        assert!(schema().check(Some(&many)).unwrap_err().len() < 2_000);
    }

    #[test]
    fn a_text_counts_as_text_and_as_what_it_says() {
        let text = PayloadSchema::new(&json!({ "type": "string" })).expect("a schema");
        assert_eq!((text.check(Some("hello")), text.check(Some("12"))), (Ok(()), Ok(())));
        let number = PayloadSchema::new(&json!({ "type": "number" })).expect("a schema");
        assert_eq!(number.check(Some("12")), Ok(()));
        assert!(number.check(Some("twelve")).is_err());
        assert_eq!(PayloadSchema::new(&json!({ "type": ["null"] })).expect("a schema").check(None), Ok(()));
    }

    #[test]
    fn what_is_no_schema_is_refused_with_its_place() {
        let problem = PayloadSchema::new(&json!({ "properties": { "id": { "type": "whole" } } })).unwrap_err();
        assert!(problem.starts_with("at /properties/id/type: "), "{problem}");
        assert!(PayloadSchema::new(&json!("text")).is_err());
        assert!(PayloadSchema::new(&json!({ "$ref": "https://example.com/schema.json" })).is_err(), "nothing is fetched");
        assert!(PayloadSchema::new(&json!({ "pattern": "(" })).is_err());
    }

    #[test]
    fn what_has_changed_is_told() {
        let older = json!({ "properties": { "a": { "type": "string" }, "b": {}, "c": {} }, "required": ["b"] });
        let newer = json!({ "properties": { "a": { "type": "integer" }, "c": {}, "d": {} }, "required": ["d"] });
        let told = changes(Some(&older), Some(&newer)).expect("a change");
        assert_eq!(told, "new: d; gone: b; changed: a; required now: d; not required any more: b");
        assert_eq!(changes(Some(&older), Some(&older)), None);
        assert_eq!(changes(None, None), None);
        assert!(changes(None, Some(&newer)).is_some() && changes(Some(&older), None).is_some());
        assert!(changes(Some(&json!({ "minimum": 1 })), Some(&json!({ "minimum": 2 }))).is_some());
    }
}
