//! Reading values of a tree, with everything that is wrong on the way.

use std::collections::BTreeMap;
use std::rc::Rc;

use punctual_core::time::Millis;
use serde_json::{Map, Number, Value};

use crate::choice::Choice;
use crate::duration;
use crate::node::{Entry, Flaw, Kind, Node, Place};
use crate::problem::{Code, FieldPath, Finding, Problem, Problems, Step, one_of, quoted};
use crate::spec::GroupLimits;
use crate::timing::Days;

/// A place in the tree being read, and the problems so far.
pub(crate) struct Cursor<'a> {
    pub(crate) file: &'a str,
    pub(crate) path: FieldPath,
    pub(crate) problems: Problems,
    /// The calendars of the file, by their names.
    pub(crate) calendars: BTreeMap<String, Days>,
    /// What the groups of the file are limited to, by their names.
    pub(crate) groups: BTreeMap<String, GroupLimits>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: &'a str) -> Self {
        Cursor { file, path: FieldPath::default(), problems: Problems::default(), calendars: BTreeMap::new(), groups: BTreeMap::new() }
    }

    /// Records a problem with the current field.
    pub(crate) fn refuse(&mut self, code: Code, place: Place, message: impl Into<String>, help: impl Into<String>) {
        self.add(place, Finding::new(code, self.path.clone(), message).help(help));
    }

    /// Records a finding as it is.
    pub(crate) fn add(&mut self, place: Place, finding: Finding) {
        let Finding { code, path, message, help } = finding;
        let (line, column) = (place.line, place.column);
        self.problems.push(Problem { code, file: self.file.to_owned(), line, column, field: path.to_string(), message, help });
    }

    /// Records a flaw of the YAML.
    pub(crate) fn add_flaw(&mut self, flaw: Flaw) {
        let path = self.path.clone();
        self.add(flaw.place, Finding { code: flaw.code, path, message: flaw.message, help: flaw.help });
    }

    /// Reads something one step further in.
    pub(crate) fn step<R>(&mut self, step: Step, read: impl FnOnce(&mut Self) -> R) -> R {
        self.path.0.push(step);
        let result = read(self);
        self.path.0.pop();
        result
    }

    /// The entries of a map all of whose keys are among `fields`; others are refused and left out.
    pub(crate) fn map<'n>(&mut self, node: &'n Node, fields: &'static [&'static str]) -> Option<Vec<(&'static str, &'n Entry)>> {
        let Kind::Map(entries) = &node.kind else {
            let help = format!("a map with {}", fields.join(", "));
            self.refuse(Code::WrongKind, node.place, format!("{} where a map is wanted", node.description()), help);
            return None;
        };
        let mut known = Vec::with_capacity(entries.len());
        for entry in entries {
            match fields.iter().find(|field| **field == entry.key) {
                Some(field) => known.push((*field, entry)),
                None => {
                    let help = match entry.key.as_str() {
                        "<<" => "merge keys are not read; put what tasks share under `defaults:`".to_owned(),
                        "every" | "interval" => {
                            "write fixed_rate (from fire time to fire time) or fixed_delay (from the end of a run)".to_owned()
                        }
                        "schedule" if fields.contains(&"trigger") => "write `trigger: {cron: ...}`".to_owned(),
                        key => one_of(key, fields.iter().copied()),
                    };
                    self.refuse(Code::UnknownField, entry.place, format!("there is no field {}", quoted(&entry.key)), help);
                }
            }
        }
        Some(known)
    }

    /// A text. Numbers and truths are taken as they are written.
    pub(crate) fn text(&mut self, node: &Node) -> Option<String> {
        match &node.kind {
            Kind::Text { text, .. } if !node.is_null() => Some(text.clone()),
            _ => {
                let help = if node.is_null() { "write \"\" for an empty text, or leave the field out" } else { "a text" };
                self.refuse(Code::WrongKind, node.place, format!("{} where a text is wanted", node.description()), help);
                None
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn truth(&mut self, node: &Node) -> Option<bool> {
        match &node.kind {
            Kind::Text { text, plain: true } if matches!(text.as_str(), "true" | "True" | "TRUE") => Some(true),
            Kind::Text { text, plain: true } if matches!(text.as_str(), "false" | "False" | "FALSE") => Some(false),
            _ => {
                let message = format!("{} where a truth is wanted", node.description());
                self.refuse(Code::WrongKind, node.place, message, "write true or false");
                None
            }
        }
    }

    /// A whole number that fits 32 bits and is not negative.
    pub(crate) fn number(&mut self, node: &Node) -> Option<u32> {
        let number = match &node.kind {
            Kind::Text { text, .. } if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let message = format!("{} where a whole number is wanted", node.description());
            self.refuse(Code::Number, node.place, message, "digits only, at most 4294967295");
        }
        number
    }

    /// A duration; whether it is within its limits is checked with the whole task.
    pub(crate) fn duration(&mut self, node: &Node) -> Option<Millis> {
        let text = match &node.kind {
            Kind::Text { text, .. } if !node.is_null() => text,
            _ => {
                let message = format!("{} where a duration is wanted", node.description());
                self.refuse(Code::WrongKind, node.place, message, "a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m");
                return None;
            }
        };
        match duration::parse(text) {
            Ok(duration) => Some(duration),
            Err(error) => {
                let help = "a number and a unit, such as 500ms, 10s, 5m, 2h, 1d or 1h30m";
                self.refuse(Code::Duration, node.place, format!("{}: {error}", quoted(text)), help);
                None
            }
        }
    }

    /// One of a closed set of words.
    pub(crate) fn choice<C: Choice>(&mut self, node: &Node) -> Option<C> {
        let names = C::ALL.iter().map(|(name, _)| *name);
        self.word(node, names.clone()).and_then(|word| C::from_name(&word))
    }

    /// One of these words.
    pub(crate) fn word<'w>(&mut self, node: &Node, words: impl Iterator<Item = &'w str> + Clone) -> Option<String> {
        match &node.kind {
            Kind::Text { text, .. } if words.clone().any(|word| word == text) => Some(text.clone()),
            Kind::Text { text, .. } => {
                let message = format!("{} is not one of the values", node.description());
                self.refuse(Code::UnknownValue, node.place, message, one_of(text, words));
                None
            }
            _ => {
                let message = format!("{} where a word is wanted", node.description());
                self.refuse(Code::WrongKind, node.place, message, one_of("", words));
                None
            }
        }
    }

    /// A list, each entry read by `read`; entries that can't be read are left out, on record.
    pub(crate) fn list<T>(&mut self, node: &Node, mut read: impl FnMut(&mut Self, &Node) -> Option<T>) -> Option<Vec<T>> {
        let Kind::List(list) = &node.kind else {
            self.refuse(Code::WrongKind, node.place, format!("{} where a list is wanted", node.description()), "a list");
            return None;
        };
        let read_entry = |(index, entry): (usize, &Rc<Node>)| self.step(Step::Index(index), |cursor| read(cursor, entry));
        Some(list.iter().enumerate().filter_map(read_entry).collect())
    }

    /// A map from words to texts.
    pub(crate) fn texts_by_name(&mut self, node: &Node) -> Option<BTreeMap<String, String>> {
        let Kind::Map(entries) = &node.kind else {
            let message = format!("{} where a map is wanted", node.description());
            self.refuse(Code::WrongKind, node.place, message, "a map from names to texts");
            return None;
        };
        let mut texts = BTreeMap::new();
        for entry in entries {
            let step = Step::Field(entry.key.clone().into());
            if let Some(text) = self.step(step, |cursor| cursor.text(&entry.value)) {
                texts.insert(entry.key.clone(), text);
            }
        }
        Some(texts)
    }

    /// Any value as JSON. Parts that JSON can't hold are left out, on record.
    pub(crate) fn json(&mut self, node: &Node) -> Option<Value> {
        match &node.kind {
            Kind::Text { text, plain: false } => Some(Value::String(text.clone())),
            Kind::Text { text, plain: true } => self.plain_word(text, node.place),
            Kind::List(_) => self.list(node, |cursor, entry| cursor.json(entry)).map(Value::Array),
            Kind::Map(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    let step = Step::Field(entry.key.clone().into());
                    if let Some(value) = self.step(step, |cursor| cursor.json(&entry.value)) {
                        map.insert(entry.key.clone(), value);
                    }
                }
                Some(Value::Object(map))
            }
        }
    }

    /// A plain word by the core schema of YAML 1.2.
    fn plain_word(&mut self, text: &str, place: Place) -> Option<Value> {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let number = match text {
            _ if crate::node::is_null_word(text) => return Some(Value::Null),
            "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
            "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
            _ if text.starts_with("0x") => u64::from_str_radix(&text[2..], 16).ok().map(Number::from),
            _ if text.starts_with("0o") => u64::from_str_radix(&text[2..], 8).ok().map(Number::from),
            _ if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let whole = text.strip_prefix('+').unwrap_or(text);
                whole.parse::<u64>().map(Number::from).or_else(|_| whole.parse::<i64>().map(Number::from)).ok()
            }
            _ if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") => None,
            _ if is_decimal(digits) => text.parse::<f64>().ok().and_then(Number::from_f64),
            _ => return Some(Value::String(text.to_owned())),
        };
        if number.is_none() {
            self.refuse(Code::Number, place, format!("{} is a number that JSON can't hold", quoted(text)), "quote it to pass it as a text");
        }
        number.map(Value::Number)
    }
}

/// Whether a word without its sign is a decimal number: `1.5`, `.5`, `1e3`.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(mantissa, exponent)| (mantissa, Some(exponent)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && has_exponent
}
