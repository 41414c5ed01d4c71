//! YAML as a tree of texts, lists and maps with their places.
//!
//! What a plain word means (a number, a truth, nothing) is left to whoever knows what is wanted there. Aliases share what they stand
//! for; their size counts wherever they stand, so a file can't grow without limit in memory or in time.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use std::borrow::Cow;

use crate::limits::{ALIASED_NODES_MAX, DEPTH_MAX, TASK_NODES_MAX};
use crate::problem::{Code, quoted};

/// A line and a column, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Place {
    fn of(span: &Span) -> Place {
        Place::new(span.start.line(), span.start.col())
    }

    fn new(line: usize, column: usize) -> Place {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Place { line: short(line), column: short(column + 1) }
    }
}

/// A value.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
    /// How many values it is made of, counting what aliases stand for.
    weight: u64,
}

/// What a value is.
#[derive(Debug)]
pub(crate) enum Kind {
    Text {
        text: String,
        /// A plain word may be a number, a truth or nothing; any other is a text.
        plain: bool,
    },
    List(Vec<Rc<Node>>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) value: Rc<Node>,
}

impl Node {
    /// Whether it is the absence of a value: nothing, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Text { text, plain: true } if is_null_word(text))
    }

    /// What it is, in words.
    pub(crate) fn description(&self) -> String {
        match &self.kind {
            _ if self.is_null() => "nothing".to_owned(),
            Kind::Text { text, .. } => quoted(text),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        }
    }
}

pub(crate) fn is_null_word(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Something that is wrong with the YAML itself.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) code: Code,
    pub(crate) place: Place,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Flaw {
    pub(crate) fn new(code: Code, place: Place, message: impl Into<String>, help: impl Into<String>) -> Flaw {
        Flaw { code, place, message: message.into(), help: Some(help.into()) }
    }
}

impl From<ScanError> for Flaw {
    fn from(error: ScanError) -> Flaw {
        let place = Place::new(error.marker().line(), error.marker().col());
        let help = match error.info() {
            info if info.contains("tab") => "indent with blanks, not with tabs",
            info if info.contains("alias") || info.contains("anchor") => "an alias needs its anchor above it",
            _ => "a text with `: `, ` #`, or a sign such as `*`, `&`, `@`, `%` or `{` in front is to be quoted",
        };
        Flaw::new(Code::Syntax, place, format!("not YAML: {}", error.info()), help)
    }
}

/// Reads values one after the other.
pub(crate) struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Rc<Node>>,
    aliased: u64,
    /// Flaws that did not keep the reader from going on.
    pub(crate) flaws: Vec<Flaw>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), aliased: 0, flaws: Vec::new() }
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Result<(Event<'a>, Place), Flaw> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, Place::of(&span))),
            Some(Err(error)) => Err(error.into()),
            None => Ok((Event::StreamEnd, Place { line: 0, column: 0 })),
        }
    }

    /// The value that begins with this event.
    pub(crate) fn node(&mut self, event: Event<'a>, place: Place, depth: usize) -> Result<Rc<Node>, Flaw> {
        if depth > DEPTH_MAX {
            return Err(Flaw::new(Code::TooLarge, place, "nested too deeply", format!("at most {DEPTH_MAX} levels")));
        }
        let (kind, anchor) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !self.is_text_tag(tag.as_deref(), place);
                (Kind::Text { text: text.into_owned(), plain }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag, place);
                (self.list(depth)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag, place);
                (self.map(depth)?, anchor)
            }
            _ => return Err(Flaw::new(Code::Syntax, place, "not YAML: a value is missing", "check the lines above")),
        };
        let weight = 1 + match &kind {
            Kind::Text { .. } => 0,
            Kind::List(list) => list.iter().map(|node| node.weight).sum(),
            Kind::Map(entries) => entries.iter().map(|entry| 1 + entry.value.weight).sum::<u64>(),
        };
        if weight > TASK_NODES_MAX {
            let message = "too many values in one place, counting what aliases stand for";
            return Err(Flaw::new(Code::TooLarge, place, message, format!("at most {TASK_NODES_MAX}")));
        }
        let node = Rc::new(Node { place, kind, weight });
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Rc<Node>, Flaw> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(Flaw::new(Code::Syntax, place, "an alias stands inside of what it stands for", "write the value out"));
        };
        self.aliased += node.weight;
        if self.aliased > ALIASED_NODES_MAX {
            let message = "the aliases of this file stand for too many values";
            return Err(Flaw::new(Code::TooLarge, place, message, format!("at most {ALIASED_NODES_MAX}")));
        }
        Ok(Rc::clone(node))
    }

    fn list(&mut self, depth: usize) -> Result<Kind, Flaw> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Kind::List(list)),
                (event, place) => list.push(self.node(event, place, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Kind, Flaw> {
        let mut entries = Vec::new();
        let mut keys = Keys::default();
        loop {
            let (event, place) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Kind::Map(entries));
            }
            let key = self.node(event, place, depth + 1)?;
            let (event, value_place) = self.next()?;
            let value = self.node(event, value_place, depth + 1)?;
            let Kind::Text { text: key, .. } = &key.kind else {
                self.flaws.push(Flaw::new(Code::WrongKind, place, "a key is a list or a map", "a key is a word"));
                continue;
            };
            match keys.add(key, &entries) {
                Some(first) => self.flaws.push(duplicate_key(key, place, first)),
                None => entries.push(Entry { key: key.clone(), place, value }),
            }
        }
    }

    /// Whether a tag makes a plain word a text.
    fn is_text_tag(&mut self, tag: Option<&Tag>, place: Place) -> bool {
        match tag {
            None => false,
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => true,
            Some(tag) => {
                self.refuse_tag(Some(Cow::Owned(tag.clone())), place);
                false
            }
        }
    }

    fn refuse_tag(&mut self, tag: Option<Cow<'_, Tag>>, place: Place) {
        let is_plain = |tag: &Tag| tag.is_yaml_core_schema() && matches!(tag.suffix.as_str(), "map" | "seq");
        if let Some(tag) = tag.filter(|tag| !is_plain(tag)) {
            let message = format!("the tag {} has no meaning here", quoted(&tag.to_string()));
            self.flaws.push(Flaw::new(Code::Syntax, place, message, "remove it, or quote the text that begins with `!`"));
        }
    }
}

pub(crate) fn duplicate_key(key: &str, place: Place, first: Place) -> Flaw {
    let message = format!("the key {} is there twice; the first one is on line {}", quoted(key), first.line);
    Flaw::new(Code::DuplicateKey, place, message, "remove one of them")
}

/// The keys of one map so far. Few are looked through, many are hashed.
#[derive(Default)]
struct Keys {
    hashed: HashSet<String>,
}

impl Keys {
    /// Where the key stood before, or `None` for a new one.
    fn add(&mut self, key: &str, entries: &[Entry]) -> Option<Place> {
        const FEW: usize = 16;
        let find = || entries.iter().find(|entry| entry.key == key).map(|entry| entry.place);
        if entries.len() < FEW {
            return find();
        }
        if self.hashed.is_empty() {
            self.hashed = entries.iter().map(|entry| entry.key.clone()).collect();
        }
        if self.hashed.insert(key.to_owned()) { None } else { find() }
    }
}
