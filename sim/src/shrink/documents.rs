//! Simpler documents.

use punctual_spec::decode;
use serde_json::{Map, Value, json};

use crate::workload::{document, spec, zones};

/// Fields that a task can't be without.
const REQUIRED: [&str; 5] = ["name", "trigger", "command", "http", "handler"];

/// Documents that are simpler than this one in one way and still compile, the boldest first.
pub(super) fn simpler(before: &Value) -> Vec<Value> {
    let Some(fields) = before.as_object() else { return Vec::new() };
    let optional: Vec<&String> = fields.keys().filter(|field| !REQUIRED.contains(&field.as_str())).collect();
    let required: Map<String, Value> = fields
        .iter()
        .filter(|(field, _)| REQUIRED.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let mut candidates = vec![Value::Object(required)];
    candidates.extend(optional.iter().map(|field| without(before, &[field.as_str()])));
    // Then the fields of its groups.
    for group in optional.iter().map(|field| field.as_str()).chain(["trigger"]) {
        let inner = fields[group].as_object().into_iter().flat_map(Map::keys);
        candidates.extend(inner.map(|field| without(before, &[group, field])));
    }
    candidates.extend(simpler_triggers(&fields["trigger"]).into_iter().map(|trigger| {
        let mut candidate = before.clone();
        candidate["trigger"] = trigger;
        candidate
    }));
    let mut simpler: Vec<Value> = Vec::new();
    for candidate in candidates {
        // Some fields can't go alone: a retry's first wait may be longer than the longest one then.
        if decode(&candidate.to_string(), zones()).is_err() {
            continue;
        }
        let Ok(candidate) = spec(&candidate).map(document) else { continue };
        if candidate != *before && !simpler.contains(&candidate) {
            simpler.push(candidate);
        }
    }
    simpler
}

/// By hand is simplest, then a round interval.
fn simpler_triggers(trigger: &Value) -> Vec<Value> {
    let manual = json!("manual");
    if *trigger == manual {
        return Vec::new();
    }
    let round = json!({"fixed_rate": "10s"});
    if *trigger == round { vec![manual] } else { vec![manual, round] }
}

/// The document without the field at the end of this path.
fn without(document: &Value, path: &[&str]) -> Value {
    let mut document = document.clone();
    if let Some((field, groups)) = path.split_last() {
        let group = groups.iter().fold(&mut document, |group, field| &mut group[*field]);
        if let Some(map) = group.as_object_mut() {
            map.remove(*field);
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_go_alone_or_with_their_group() {
        let before = json!({"name": "a", "trigger": {"cron": "* * * * *", "timezone": "Asia/Tokyo"}, "handler": {"name": "noop"},
            "idempotent": false, "retry": {"max_attempts": 3, "jitter": "none"}});
        let base = |trigger: Value, rest: Value| {
            let mut document = json!({"name": "a", "trigger": trigger, "handler": {"name": "noop"}});
            document.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            document
        };
        let tokyo = json!({"cron": "* * * * *", "timezone": "Asia/Tokyo"});
        let retry = json!({"max_attempts": 3, "jitter": "none"});
        assert_eq!(
            simpler(&before),
            [
                base(tokyo.clone(), json!({})),
                base(tokyo.clone(), json!({"retry": retry})),
                base(tokyo.clone(), json!({"idempotent": false})),
                base(tokyo.clone(), json!({"idempotent": false, "retry": {"max_attempts": 3}})),
                base(tokyo.clone(), json!({"idempotent": false, "retry": {"jitter": "none"}})),
                base(json!({"cron": "* * * * *"}), json!({"idempotent": false, "retry": retry})),
                base(json!("manual"), json!({"idempotent": false, "retry": retry})),
                base(json!({"fixed_rate": "10s"}), json!({"idempotent": false, "retry": retry})),
            ]
        );
    }

    #[test]
    fn the_simplest_task_stays() {
        assert_eq!(simpler(&json!({"name": "a", "trigger": "manual", "handler": {"name": "noop"}})), [Value::Null; 0]);
    }
}
