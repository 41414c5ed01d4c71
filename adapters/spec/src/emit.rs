//! Specs as a task file in YAML. What comes out reads back as the same specs.

use serde_json::{Map, Value};

use crate::fields;
use crate::spec::TaskSpec;

/// Fields that move to `defaults:` where all tasks agree on them.
const SHARED: &[&str] = &[
    "owner",
    "misfire",
    "concurrency",
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
];

/// The tasks as a file; each line of `header` becomes a comment at its top.
pub fn to_yaml(tasks: &[TaskSpec], header: &[String]) -> String {
    let mut yaml = Yaml { text: String::new() };
    for line in header {
        yaml.comment(line);
    }
    let documents: Vec<Map<String, Value>> = tasks.iter().map(document).collect();
    let shared = shared_fields(&documents);
    if !shared.is_empty() {
        yaml.text.push_str("defaults:\n");
        yaml.fields(&shared, fields::TASK, 1);
    }
    yaml.text.push_str(if tasks.is_empty() { "tasks: []\n" } else { "tasks:\n" });
    for mut task in documents {
        task.retain(|field, _| !shared.contains_key(field));
        let start = yaml.text.len();
        yaml.fields(&task, fields::TASK, 2);
        // The first field stands behind the dash of its list entry.
        yaml.text.replace_range(start..start + 4, "  - ");
    }
    yaml.text
}

fn document(task: &TaskSpec) -> Map<String, Value> {
    match serde_json::to_value(task) {
        Ok(Value::Object(map)) => map,
        other => unreachable!("a spec is written as a map: {other:?}"),
    }
}

fn shared_fields(documents: &[Map<String, Value>]) -> Map<String, Value> {
    let [first, rest @ ..] = documents else { return Map::new() };
    if rest.is_empty() {
        return Map::new();
    }
    let agreed = |field: &&&str| first.contains_key(**field) && rest.iter().all(|task| task.get(**field) == first.get(**field));
    SHARED.iter().filter(agreed).map(|field| ((*field).to_owned(), first[*field].clone())).collect()
}

struct Yaml {
    text: String,
}

impl Yaml {
    fn comment(&mut self, line: &str) {
        let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.text.push_str(format!("# {shown}").trim_end());
        self.text.push('\n');
    }

    /// The fields of a map: those of the table in its order, then any others.
    fn fields(&mut self, map: &Map<String, Value>, table: &'static [&'static str], indent: usize) {
        let known = table.iter().filter_map(|field| map.get_key_value(*field));
        let other = map.iter().filter(|(field, _)| !table.contains(&field.as_str()));
        for (field, value) in known.chain(other) {
            self.text.push_str(&"  ".repeat(indent));
            self.text.push_str(&scalar(field));
            self.text.push(':');
            self.value(field, value, indent);
        }
    }

    fn value(&mut self, field: &str, value: &Value, indent: usize) {
        match value {
            Value::Object(map) if map.is_empty() => self.text.push_str(" {}\n"),
            // A line for each node.
            Value::Array(list) if field == "nodes" && !list.is_empty() => {
                self.text.push('\n');
                for entry in list {
                    self.text.push_str(&"  ".repeat(indent + 1));
                    self.text.push_str("- ");
                    flow(entry, fields::NODE, &mut self.text);
                    self.text.push('\n');
                }
            }
            Value::String(text) if is_block(text) => {
                self.text.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
                for line in text.lines() {
                    if !line.is_empty() {
                        self.text.push_str(&"  ".repeat(indent + 1));
                        self.text.push_str(line);
                    }
                    self.text.push('\n');
                }
            }
            Value::Object(map) if indent <= 2 && !is_small(map) => {
                self.text.push('\n');
                self.fields(map, table_of(field), indent + 1);
            }
            _ => {
                self.text.push(' ');
                flow(value, table_of(field), &mut self.text);
                self.text.push('\n');
            }
        }
    }
}

/// Whether a text is shown line by line: several lines, and nothing in them that would be read differently.
fn is_block(text: &str) -> bool {
    let is_plain = |c: char| c == '\n' || (!c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'));
    let lines = text.strip_suffix('\n').unwrap_or(text);
    let begins_plainly = !lines.starts_with([' ', '\n']);
    lines.contains('\n')
        && begins_plainly
        && !lines.ends_with('\n')
        && text.chars().all(is_plain)
        && lines.lines().all(|line| line.trim_end() == line)
}

/// Whether a map goes on one line.
fn is_small(map: &Map<String, Value>) -> bool {
    let is_short = |value: &Value| match value {
        Value::String(text) => text.len() <= 30 && !text.contains('\n'),
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    map.len() <= 3 && map.values().all(is_short)
}

fn table_of(field: &str) -> &'static [&'static str] {
    match field {
        "trigger" => fields::TRIGGER,
        "command" => fields::COMMAND,
        "http" => fields::HTTP,
        "handler" => fields::HANDLER,
        "misfire" => fields::MISFIRE,
        "concurrency" => fields::CONCURRENCY,
        "retry" => fields::RETRY,
        "on" => fields::RETRY_ON,
        "budget" => fields::RETRY_BUDGET,
        "circuit_breaker" => fields::CIRCUIT_BREAKER,
        "timeout" => fields::TIMEOUT,
        "priority" => fields::PRIORITY,
        "rate_limit" => fields::RATE_LIMIT,
        "routing" => fields::ROUTING,
        "group_limits" => fields::GROUP_LIMITS,
        _ => &[],
    }
}

/// A value on one line.
fn flow(value: &Value, table: &'static [&'static str], out: &mut String) {
    match value {
        Value::String(text) => out.push_str(&scalar(text)),
        Value::Array(list) => {
            out.push('[');
            for (index, entry) in list.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                flow(entry, &[], out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let known = table.iter().filter_map(|field| map.get_key_value(*field));
            let other = map.iter().filter(|(field, _)| !table.contains(&field.as_str()));
            out.push('{');
            for (index, (field, value)) in known.chain(other).enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                out.push_str(&scalar(field));
                out.push_str(": ");
                flow(value, &[], out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// A text: plain where nobody could take it for anything else, otherwise in double quotes.
fn scalar(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    let begins_well = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '/';
    let is_duration = crate::duration::parse(text).is_ok();
    let reserved = matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n");
    if is_duration || (text.starts_with(begins_well) && text.chars().all(is_word) && !reserved) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
