//! What payloads have to be like: JSON Schemas, and payloads that are checked against them.

mod cost;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, Validator};
use punctual_core::definition::{PayloadRule, Takes};
use punctual_core::text;
use serde_json::Value;

use self::cost::Graph;
use crate::limits;

/// Problems with a payload that are told at once.
const TOLD_MAX: usize = 5;
/// Most bytes of one of them: it may quote the payload.
const TOLD_BYTES_MAX: usize = 300;

/// A JSON Schema that payloads are checked against. Nothing is fetched for it: it refers to nothing outside itself. What a check takes is bounded,
/// by the schema and for each payload.
#[derive(Debug)]
pub struct PayloadSchema {
    validator: Validator,
    graph: Graph,
}

impl PayloadSchema {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where in it; or that it would take too much to check a payload.
    pub fn new(schema: &Value) -> Result<Self, String> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err("a schema is a map, or true or false".to_owned());
        }
        // Before anything is made of it.
        let graph = Graph::read(schema).map_err(cut)?;
        let patterns = PatternOptions::regex();
        let validator = jsonschema::options().offline().with_pattern_options(patterns).build(schema).map_err(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { String::new() } else { format!("at {place}: ") };
            cut(format!("{place}{error}"))
        })?;
        Ok(PayloadSchema { validator, graph })
    }

    /// Whether a check is over at once, so that anybody may wait for it; else it takes a tenth of a second at most.
    pub fn is_quick(&self, payload: Option<&str>) -> bool {
        self.graph.most_steps(payload.map_or(0, str::len)).is_some_and(|steps| steps <= limits::CHECK_STEPS_QUICK)
    }

    /// Checks a payload: a text that is JSON counts as what it says, or as the text itself, whichever fits. `None`: there is no payload, which
    /// counts as null.
    ///
    /// # Errors
    ///
    /// What does not fit, and where in the payload; or that it would take too much to find out.
    pub fn check(&self, payload: Option<&str>) -> Result<(), String> {
        self.check_within(payload, limits::CHECK_STEPS_MAX)
    }

    fn check_within(&self, payload: Option<&str>, most: u64) -> Result<(), String> {
        let Some(text) = payload else { return self.check_value(&Value::Null, most) };
        let as_text = Value::from(text);
        match serde_json::from_str(text) {
            Ok(value) => self.check_value(&value, most).or_else(|problem| self.check_value(&as_text, most).map_err(|_| problem)),
            Err(_) => self.check_value(&as_text, most),
        }
    }

    fn check_value(&self, value: &Value, most: u64) -> Result<(), String> {
        let Some(steps) = self.graph.steps(value, most) else {
            let depth = limits::SCHEMA_DEPTH_MAX;
            return Err(format!(
                "it would take more than {most} steps to check it, or go more than {depth} schemas deep; make the payload smaller, or the schema simpler"
            ));
        };
        if self.validator.is_valid(value) {
            return Ok(());
        }
        // All problems are gathered before the first one is known.
        if steps > limits::CHECK_STEPS_TOLD {
            return Err("it does not fit, and is too large for the places to be told".to_owned());
        }
        let mut problems = self.validator.iter_errors(value);
        let told: Vec<_> = problems
            .by_ref()
            .take(TOLD_MAX)
            .map(|error| {
                let place = error.instance_path().to_string();
                cut(format!("{}: {error}", if place.is_empty() { "the payload" } else { &place }))
            })
            .collect();
        let told = told.join("; ");
        match problems.count() {
            0 => Err(told),
            further => Err(format!("{told}; and {further} more")),
        }
    }
}

/// The schema as a scheduler follows it: made when the first node calls the task.
#[derive(Debug)]
struct Lazy {
    text: String,
    schema: OnceLock<Result<PayloadSchema, String>>,
}

impl PayloadRule for Lazy {
    fn problem(&self, payload: Option<&str>) -> Option<String> {
        let made = || {
            let schema = serde_json::from_str(&self.text).map_err(|error| error.to_string())?;
            PayloadSchema::new(&schema).map_err(|problem| format!("the schema can't be followed any more: {problem}"))
        };
        // All other tasks wait meanwhile.
        let checked = self.schema.get_or_init(made).as_ref().map(|schema| schema.check_within(payload, limits::CHECK_STEPS_CALL));
        checked.map_or_else(|problem| Some(problem.clone()), Result::err)
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// A schema as a rule for what nodes of other tasks hand over.
pub(crate) fn takes(schema: &Value) -> Takes {
    Takes(Arc::new(Lazy { text: schema.to_string(), schema: OnceLock::new() }))
}

fn cut(text: String) -> String {
    text::cut(text, TOLD_BYTES_MAX)
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
    fn a_rule_is_made_once_and_equal_ones_are_equal() {
        let schema = json!({ "type": "object", "required": ["id"] });
        let rule = takes(&schema);
        assert_eq!((rule.0.problem(Some(r#"{"id":1}"#)), rule == takes(&schema), rule == takes(&json!(true))), (None, true, false));
        assert!(rule.0.problem(None).is_some_and(|problem| problem.contains("null")));
        // Shorter than for whoever triggers, who holds up nobody else.
        let numbers = json!({ "type": "array", "items": { "enum": (0..500).collect::<Vec<_>>() } });
        let payload = Value::from(vec![499; 1_000]).to_string();
        assert!(takes(&numbers).0.problem(Some(&payload)).is_some_and(|problem| problem.contains("more than 100000 steps")));
    }

    /// A chain of so many parts, each of which says `times` times what the next one says.
    fn doubling(parts: usize, times: usize) -> Value {
        let mut all = serde_json::Map::new();
        for part in 0..parts {
            let next = json!({ "$ref": format!("#/$defs/p{}", part + 1) });
            all.insert(format!("p{part}"), json!({ "allOf": vec![next; times] }));
        }
        all.insert(format!("p{parts}"), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/p0", "$defs": all })
    }

    #[test]
    fn a_schema_that_multiplies_is_refused_before_anything_is_made_of_it() {
        let evil = doubling(40, 2);
        assert!(evil.to_string().len() < 3_000);
        let problem = PayloadSchema::new(&evil).unwrap_err();
        assert!(problem.contains("more than 100000 parts"), "{problem}");
        // What is only long is taken, and so is what is referred to often.
        assert!(PayloadSchema::new(&doubling(12, 2)).is_ok());
        let looks_back = |depth: usize| {
            (0..depth).fold(json!({ "type": "object" }), |below, _| json!({ "unevaluatedProperties": false, "allOf": [below] }))
        };
        assert!(PayloadSchema::new(&looks_back(4)).is_ok());
        let problem = PayloadSchema::new(&looks_back(20)).unwrap_err();
        assert!(problem.contains("parts"), "{problem}");
    }

    #[test]
    fn what_would_never_end_or_go_too_deep_is_refused() {
        for evil in
            [json!({ "$ref": "#" }), json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }] } }, "items": { "$ref": "#/$defs/a" } })]
        {
            let problem = PayloadSchema::new(&evil).unwrap_err();
            assert!(problem.contains("refers to itself without going deeper"), "{problem}");
        }
        let problem = PayloadSchema::new(&doubling(1_500, 1)).unwrap_err();
        assert!(problem.contains("schemas deep, more than 200"), "{problem}");
    }

    #[test]
    fn patterns_take_one_pass() {
        for evil in [r"(?=(a+))\1{1,30}(a*)*b", r"(a)\1", "(?=a)b", "(?<!a)b"] {
            for schema in [json!({ "pattern": evil }), json!({ "patternProperties": { evil: true } })] {
                let problem = PayloadSchema::new(&schema).unwrap_err();
                assert!(problem.contains("in one pass"), "{evil}: {problem}");
            }
        }
        let problem = PayloadSchema::new(&json!({ "pattern": "(((a{1,100}){1,100}){1,100}){1,100}" })).unwrap_err();
        assert!(problem.contains("is too large"), "{problem}");
        let many: Vec<_> = (0..200).map(|number| json!({ "pattern": format!("^[a-z]{{1,200}}{number}$") })).collect();
        let problem = PayloadSchema::new(&json!({ "anyOf": many })).unwrap_err();
        assert!(problem.contains("too large together"), "{problem}");
        // One that backtracking would take an age for.
        let nested = PayloadSchema::new(&json!({ "pattern": "^(a+)+$" })).expect("a schema");
        assert!(nested.check(Some(&format!("{}b", "a".repeat(2_000)))).is_err());
        let usual = PayloadSchema::new(&json!({ "pattern": r"^[\w.+-]{1,64}@\d{1,3}\.example$" })).expect("a schema");
        assert_eq!((usual.check(Some("a.b@12.example")), usual.is_quick(Some("a.b@12.example"))), (Ok(()), true));
    }

    #[test]
    fn references_stay_within_the_schema() {
        for evil in [
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "http://json-schema.org/draft-07/schema#" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "$ref": "#name", "$defs": { "a": { "$anchor": "name" } } }),
            json!({ "$ref": "#/$defs/missing" }),
            json!({ "$dynamicRef": "#a" }),
            json!({ "properties": { "a": { "$id": "https://example.com/other", "$ref": "#/properties/a" } } }),
        ] {
            assert!(PayloadSchema::new(&evil).is_err(), "{evil}");
        }
        let escaped = json!({ "$id": "https://example.com/s", "$ref": "#/$defs/a~1b", "$defs": { "a/b": { "type": "integer" } } });
        let escaped = PayloadSchema::new(&escaped).expect("a schema");
        assert!(escaped.check(Some("1")).is_ok() && escaped.check(Some("x")).is_err());
    }

    #[test]
    fn a_payload_that_takes_too_much_is_refused_and_the_same_schema_takes_others() {
        let tree = json!({ "$ref": "#/$defs/t", "$defs": { "t": {
            "type": ["integer", "object"],
            "allOf": [{ "properties": { "x": { "$ref": "#/$defs/t" } } }, { "properties": { "x": { "$ref": "#/$defs/t" } } }],
        } } });
        let schema = PayloadSchema::new(&tree).expect("a schema");
        let nested = |depth: usize, end: &str| format!("{}{end}{}", r#"{"x":"#.repeat(depth), "}".repeat(depth));
        assert_eq!(schema.check(Some(&nested(8, "1"))), Ok(()));
        assert!(!schema.is_quick(Some("1")), "it depends on the payload");
        let problem = schema.check(Some(&nested(60, "1"))).unwrap_err();
        assert!(problem.contains("it would take more than"), "{problem}");
        // The first five of many are told, and what has more than can be gathered says so.
        let problem = schema.check(Some(&nested(8, "true"))).unwrap_err();
        assert!(problem.starts_with("/x/x/x/x/x/x/x/x: ") && problem.ends_with("; and 251 more"), "{problem}");
        let problem = schema.check(Some(&nested(16, "true"))).unwrap_err();
        assert!(problem.contains("too large for the places"), "{problem}");
        // A chain without branches is bounded in depth alone.
        let chain = json!({ "type": ["object", "integer"], "properties": { "x": { "anyOf": [{ "allOf": [{ "$ref": "#" }] }] } } });
        let chain = PayloadSchema::new(&chain).expect("a schema");
        assert_eq!(chain.check(Some(&nested(40, "1"))), Ok(()));
        assert!(chain.check(Some(&nested(100, "1"))).unwrap_err().contains("200 schemas deep"));
    }

    #[test]
    fn long_texts_and_lists_count() {
        let schema = PayloadSchema::new(&json!({ "pattern": "^([a-z]{1,50}-){1,9}$" })).expect("a schema");
        let problem = schema.check(Some(&"a".repeat(64 << 10))).unwrap_err();
        assert!(problem.contains("it would take more than"), "{problem}");
        let numbers = PayloadSchema::new(&json!({ "type": "array", "items": { "enum": (0..500).collect::<Vec<_>>() } })).expect("a schema");
        let list = |entries: usize| Value::from(vec![499; entries]).to_string();
        assert_eq!(numbers.check(Some(&list(1_000))), Ok(()));
        assert!(numbers.check(Some(&list(10_000))).unwrap_err().contains("it would take more than"));
        assert!(schema.is_quick(Some("abc-")) && !numbers.is_quick(Some(&list(1_000))));
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
