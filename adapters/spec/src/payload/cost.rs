//! What it takes to check a payload against a schema, before anything is checked.
//!
//! A schema is read into a graph: what applies to the same value (`allOf`, `$ref` and the like) and what applies to the values below it. The number
//! of ways through that graph is what a check takes. A short schema may have more ways than anybody can wait for, since a part that is referred
//! to twice is checked twice: such a one is refused when its task is applied. What a schema that refers to itself takes depends on the payload, so
//! that its steps are counted for each one.

use std::collections::{BTreeMap, HashMap};

use jsonschema_regex::to_rust_regex;
use regex_automata::nfa::thompson::{Compiler, Config};
use serde_json::{Map, Value};

use crate::limits;
use crate::problem::quoted;

/// Keywords with a list of schemas for the value itself.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with one schema for the value itself.
const HERE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with schemas by name for the value itself; a list of names is one more that is required.
const BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords with one schema for all entries of a list.
const ENTRIES: [&str; 3] = ["contains", "additionalItems", "unevaluatedItems"];
/// Keywords with one schema for what has none by name.
const OTHERS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords that point to a schema whose place depends on the way to it.
const DYNAMIC: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// A step of a pattern's states is shorter than that of a schema.
const STATES_OF_A_STEP: u64 = 8;
/// So is one of a text's bytes.
const BYTES_OF_A_STEP: u64 = 64;

/// Place of a schema among those of its graph.
type Place = usize;

/// Schemas, and which apply below which.
#[derive(Debug)]
pub(super) struct Graph {
    schemas: Vec<Schema>,
    /// Steps for one value, and all that is below it if each part of it is met once. Of what refers to itself only the first round.
    weight: u64,
    is_recursive: bool,
}

#[derive(Debug, Default)]
struct Schema {
    /// Steps for what it says itself.
    own: u64,
    /// States of its pattern.
    states: u64,
    /// Apply to the same value.
    here: Vec<Place>,
    /// What applied is looked for again afterwards: `unevaluatedProperties`, `unevaluatedItems`.
    looks_back: bool,
    properties: HashMap<String, Place>,
    /// By patterns of so many states.
    patterned: Vec<(u64, Place)>,
    others: Vec<Place>,
    names: Option<Place>,
    first_entries: Vec<Place>,
    entries: Vec<Place>,
}

impl Schema {
    fn below(&self) -> impl Iterator<Item = Place> {
        let lists = [&self.others, &self.first_entries, &self.entries];
        let listed = lists.into_iter().flatten().chain(&self.names).copied();
        self.properties.values().copied().chain(self.patterned.iter().map(|(_, place)| *place)).chain(listed)
    }
}

impl Graph {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// It takes too much, refers to what can't be followed, or has a pattern that can't be matched in one pass.
    pub(super) fn read(root: &Value) -> Result<Self, String> {
        let mut reader = Reader { root, schemas: Vec::new(), known: BTreeMap::new(), unread: Vec::new(), states: 0 };
        reader.place("", root);
        while let Some((place, pointer, value)) = reader.unread.pop() {
            let schema = reader.schema(&pointer, value).map_err(|problem| format!("at {}: {problem}", shown(&pointer)))?;
            reader.schemas[place] = schema;
        }
        let Reader { schemas, known, .. } = reader;
        let (_, circle) = visited(&schemas, |schema| schema.here.clone());
        if let Some(place) = circle {
            let pointer = known.iter().find(|(_, known)| **known == place).map_or("", |(pointer, _)| pointer);
            return Err(format!("at {}: it refers to itself without going deeper into the payload", shown(pointer)));
        }
        let (order, circle) = visited(&schemas, |schema| schema.here.iter().copied().chain(schema.below()).collect());
        let (mut weights, mut depths) = (vec![0_u64; schemas.len()], vec![0_usize; schemas.len()]);
        for place in order {
            let schema = &schemas[place];
            let times = if schema.looks_back { 2 } else { 1 };
            let patterns: u64 = schema.patterned.iter().map(|(states, _)| 1 + states / STATES_OF_A_STEP).sum();
            let here = schema.here.iter().fold(0_u64, |sum, place| sum.saturating_add(weights[*place].saturating_mul(times)));
            let below = schema.below().fold(0_u64, |sum, place| sum.saturating_add(weights[place]));
            let own = schema.own + schema.states.div_ceil(STATES_OF_A_STEP) + patterns;
            weights[place] = own.saturating_add(here).saturating_add(below);
            depths[place] = 1 + schema.here.iter().copied().chain(schema.below()).map(|place| depths[place]).max().unwrap_or_default();
        }
        let (weight, depth) = (weights[0], depths[0]);
        if weight > limits::SCHEMA_STEPS_MAX {
            let most = limits::SCHEMA_STEPS_MAX;
            return Err(format!("with what it refers to it has more than {most} parts: what is referred to twice counts twice"));
        }
        if depth > limits::SCHEMA_DEPTH_MAX {
            return Err(format!("with what it refers to it is {depth} schemas deep, more than {}", limits::SCHEMA_DEPTH_MAX));
        }
        Ok(Graph { schemas, weight, is_recursive: circle.is_some() })
    }

    /// Most steps that any payload of so many bytes can take; `None`: that depends on what is in it.
    pub(super) fn most_steps(&self, bytes: usize) -> Option<u64> {
        (!self.is_recursive).then(|| self.weight.saturating_mul(bytes as u64 + 1))
    }

    /// The steps that it takes to check this payload, if there are at most so many.
    pub(super) fn steps(&self, payload: &Value, most: u64) -> Option<u64> {
        let mut walk = Walk { graph: self, left: most };
        walk.value(0, payload, 0).then_some(most - walk.left)
    }
}

fn shown(pointer: &str) -> &str {
    if pointer.is_empty() { "the schema" } else { pointer }
}

/// All schemas that the first one leads to, each after those that it leads to but for what closes a circle; and where one closes.
fn visited(schemas: &[Schema], next: impl Fn(&Schema) -> Vec<Place>) -> (Vec<Place>, Option<Place>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Met {
        No,
        OnTheWay,
        Done,
    }
    let (mut met, mut order, mut circle) = (vec![Met::No; schemas.len()], Vec::with_capacity(schemas.len()), None);
    // A circle of what applies here may be anywhere, not only where the first one leads to without going deeper.
    for start in 0..schemas.len() {
        if met[start] != Met::No {
            continue;
        }
        met[start] = Met::OnTheWay;
        let mut way = vec![(start, next(&schemas[start]))];
        while let Some((place, open)) = way.last_mut() {
            let place = *place;
            match open.pop() {
                None => {
                    met[place] = Met::Done;
                    order.push(place);
                    way.pop();
                }
                Some(below) => match met[below] {
                    Met::No => {
                        met[below] = Met::OnTheWay;
                        way.push((below, next(&schemas[below])));
                    }
                    Met::OnTheWay => circle = Some(below),
                    Met::Done => {}
                },
            }
        }
    }
    (order, circle)
}

struct Reader<'a> {
    root: &'a Value,
    schemas: Vec<Schema>,
    /// By where they are in the schema.
    known: BTreeMap<String, Place>,
    unread: Vec<(Place, String, &'a Value)>,
    /// States of all patterns so far.
    states: usize,
}

impl<'a> Reader<'a> {
    fn place(&mut self, pointer: &str, value: &'a Value) -> Place {
        if let Some(known) = self.known.get(pointer) {
            return *known;
        }
        let place = self.schemas.len();
        self.schemas.push(Schema::default());
        self.known.insert(pointer.to_owned(), place);
        self.unread.push((place, pointer.to_owned(), value));
        place
    }

    fn schema(&mut self, pointer: &str, value: &'a Value) -> Result<Schema, String> {
        let mut schema = Schema { own: 1, ..Schema::default() };
        let Value::Object(fields) = value else { return Ok(schema) };
        for (keyword, value) in fields {
            let at = format!("{pointer}/{}", keyword.replace('~', "~0").replace('/', "~1"));
            let keyword = keyword.as_str();
            match value {
                Value::Array(list) if LISTS.contains(&keyword) => {
                    schema.here.extend(list.iter().enumerate().map(|(index, value)| self.place(&format!("{at}/{index}"), value)));
                }
                Value::Array(list) if matches!(keyword, "items" | "prefixItems") => {
                    let places = list.iter().enumerate().map(|(index, value)| self.place(&format!("{at}/{index}"), value));
                    schema.first_entries.extend(places);
                }
                Value::Object(by_name) if BY_NAME.contains(&keyword) => {
                    schema.own += weight_of(value);
                    let schemas = by_name.iter().filter(|(_, value)| !value.is_array());
                    schema.here.extend(schemas.map(|(name, value)| self.place(&below(&at, name), value)));
                }
                Value::Object(by_name) if keyword == "properties" => {
                    let places = by_name.iter().map(|(name, value)| (name.clone(), self.place(&below(&at, name), value)));
                    schema.properties = places.collect();
                }
                Value::Object(by_pattern) if keyword == "patternProperties" => {
                    for (pattern, value) in by_pattern {
                        let states = self.states_of(pattern)?;
                        schema.patterned.push((states, self.place(&below(&at, pattern), value)));
                    }
                }
                _ if HERE.contains(&keyword) => schema.here.push(self.place(&at, value)),
                _ if ENTRIES.contains(&keyword) || keyword == "items" => {
                    schema.looks_back |= keyword == "unevaluatedItems";
                    schema.entries.push(self.place(&at, value));
                }
                _ if OTHERS.contains(&keyword) => {
                    schema.looks_back |= keyword == "unevaluatedProperties";
                    schema.others.push(self.place(&at, value));
                }
                _ if keyword == "propertyNames" => schema.names = Some(self.place(&at, value)),
                Value::String(pattern) if keyword == "pattern" => schema.states = self.states_of(pattern)?,
                Value::String(reference) if keyword == "$ref" => schema.here.push(self.target(reference)?),
                _ if DYNAMIC.contains(&keyword) => {
                    return Err(format!("`{keyword}` is not followed; write `$ref: \"#/...\"`"));
                }
                // What is below would refer to another beginning than this document.
                Value::String(_) if !pointer.is_empty() && matches!(keyword, "$id" | "id") => {
                    return Err(format!("`{keyword}` may be at the top only"));
                }
                Value::Object(_) if matches!(keyword, "$defs" | "definitions") => {}
                _ => schema.own += weight_of(value),
            }
        }
        Ok(schema)
    }

    fn target(&mut self, reference: &str) -> Result<Place, String> {
        let is_within = |rest: &str| (rest.is_empty() || rest.starts_with('/')) && !rest.contains('%');
        let Some(pointer) = reference.strip_prefix('#').filter(|rest| is_within(rest)) else {
            return Err(format!("{} leads out of the schema; write `$ref: \"#/...\"`, with `~1` for `/`, `~0` for `~`", quoted(reference)));
        };
        let Some(value) = self.root.pointer(pointer) else {
            return Err(format!("{} is not in the schema", quoted(reference)));
        };
        Ok(self.place(pointer, value))
    }

    /// The states of a pattern: a text is matched in at most so many steps for each of its bytes. Whatever takes more than one pass has none.
    fn states_of(&mut self, pattern: &str) -> Result<u64, String> {
        let Ok(translated) = to_rust_regex(pattern) else {
            return Err(format!("{} is no regular expression", quoted(pattern)));
        };
        let config = Config::new().nfa_size_limit(Some(limits::SCHEMA_PATTERN_BYTES_MAX));
        let machine = Compiler::new().configure(config).build(&translated).map_err(|error| {
            if error.size_limit().is_some() {
                return format!("the pattern {} is too large: say less often what is repeated", quoted(pattern));
            }
            let what = "it is matched in one pass, so look-around, back-references and the like are not taken";
            format!("the pattern {}: {what}", quoted(pattern))
        })?;
        let states = machine.states().len();
        self.states += states;
        if self.states > limits::SCHEMA_PATTERN_STATES_MAX {
            return Err("its patterns are too large together".to_owned());
        }
        Ok(states as u64)
    }
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The values of a document.
fn weight_of(value: &Value) -> u64 {
    match value {
        Value::Array(list) => 1 + list.iter().map(weight_of).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(weight_of).sum::<u64>(),
        _ => 1,
    }
}

/// The way that a check would go, if each part of it failed as late as it can.
struct Walk<'a> {
    graph: &'a Graph,
    left: u64,
}

impl Walk<'_> {
    /// Whether the steps suffice.
    fn value(&mut self, place: Place, value: &Value, depth: usize) -> bool {
        let schema = &self.graph.schemas[place];
        let text = value.as_str().map_or(0, str::len) as u64;
        let times = if schema.looks_back { 2 } else { 1 };
        self.take(schema.own + text_steps(text, schema.states))
            && depth < limits::SCHEMA_DEPTH_MAX
            && (0..times).all(|_| schema.here.iter().all(|place| self.value(*place, value, depth + 1)))
            && match value {
                Value::Object(fields) => self.fields(schema, fields, depth),
                Value::Array(list) => list.iter().enumerate().all(|(index, value)| {
                    let first = schema.first_entries.get(index);
                    self.take(1) && first.into_iter().chain(&schema.entries).all(|place| self.value(*place, value, depth + 1))
                }),
                _ => true,
            }
    }

    fn fields(&mut self, schema: &Schema, fields: &Map<String, Value>, depth: usize) -> bool {
        fields.iter().all(|(name, value)| {
            let known = schema.properties.get(name);
            let others = if known.is_none() { &schema.others[..] } else { &[] };
            self.take(1)
                && known.into_iter().chain(others).all(|place| self.value(*place, value, depth + 1))
                && schema
                    .patterned
                    .iter()
                    .all(|(states, place)| self.take(1 + text_steps(name.len() as u64, *states)) && self.value(*place, value, depth + 1))
                && schema.names.is_none_or(|place| self.value(place, &Value::from(name.as_str()), depth + 1))
        })
    }

    fn take(&mut self, steps: u64) -> bool {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

fn text_steps(bytes: u64, states: u64) -> u64 {
    bytes / BYTES_OF_A_STEP + bytes.saturating_mul(states) / STATES_OF_A_STEP
}
