//! What may be wrong with a task file, where, and what to do about it.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use crate::choice::did_you_mean;
use crate::limits::PROBLEMS_MAX;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal,)+) => {
        /// The kinds of problems. Each has a code with a section in docs/errors.md.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant,)+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$variant),+];

            /// The code as it is printed.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Code::$variant => $code,)+
                }
            }
        }
    };
}

codes! {
    /// The file can't be read.
    Unreadable = "PUN-101",
    /// The text is not YAML.
    Syntax = "PUN-102",
    /// A key occurs twice in one map.
    DuplicateKey = "PUN-103",
    /// Too large, too deep, or too much behind aliases.
    TooLarge = "PUN-104",
    /// The file has no tasks.
    NoTasks = "PUN-105",
    /// There is no such field.
    UnknownField = "PUN-106",
    /// A field is missing.
    MissingField = "PUN-107",
    /// A text where a list is wanted, and the like.
    WrongKind = "PUN-108",
    /// Not one of the values that are allowed.
    UnknownValue = "PUN-109",
    /// Not a duration, or one beyond the limits.
    Duration = "PUN-110",
    /// Not a whole number, or one beyond the limits.
    Number = "PUN-111",
    /// Not a name for a task.
    Name = "PUN-112",
    /// Two tasks have the same name.
    DuplicateName = "PUN-113",
    /// The cron expression is refused.
    Cron = "PUN-114",
    /// There is no such time zone.
    Zone = "PUN-115",
    /// Two fields that exclude each other.
    Conflict = "PUN-116",
    /// A text that is too long, or has characters that are not allowed.
    Text = "PUN-117",
    /// The handler's configuration is refused.
    Handler = "PUN-118",
    /// A stored document can't be read.
    Document = "PUN-119",
    /// The schema of the payload is refused, or the task's own payload is not as it says.
    PayloadSchema = "PUN-341",
    /// A line of a crontab can't be carried over.
    CrontabLine = "PUN-121",
    /// A time zone's data is damaged.
    ZoneData = "PUN-122",
    /// Not a date, a time of day or an instant.
    Moment = "PUN-130",
    /// The calendar is refused, or there is none of this name.
    Calendar = "PUN-131",
    /// The trigger could never fire.
    NeverFires = "PUN-132",
    /// Not a tag of a worker, or too many.
    Tag = "PUN-141",
    /// Not a version of a worker's program.
    WorkerVersion = "PUN-142",
    /// Not the name of a worker.
    WorkerName = "PUN-143",
    /// Not a pointer into the payload.
    LimitKey = "PUN-144",
    /// The group is refused, or its limits are.
    Group = "PUN-145",
    /// Tasks would fire each other for ever.
    ChainCycle = "PUN-152",
    /// More tasks would fire after one than may.
    ChainFan = "PUN-153",
    /// Too many firings could follow one.
    ChainSpreads = "PUN-155",
    /// What a node hands to the task that it calls is not as that one's schema says.
    CallPayload = "PUN-154",
    /// Two nodes of a workflow have the same name.
    NodeDuplicate = "PUN-160",
    /// A workflow has no node of this name.
    NodeMissing = "PUN-161",
    /// Nodes of a workflow wait for each other in a circle.
    NodeCycle = "PUN-162",
    /// A node names another one twice.
    NodeEdge = "PUN-163",
    /// The condition of a node is refused.
    NodeCondition = "PUN-164",
    /// A workflow has no nodes, too many, or too many edges between them.
    WorkflowSize = "PUN-165",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field of a map.
    Field(Cow<'static, str>),
    /// An entry of a list, counted from 0.
    Index(usize),
}

/// Where in a document: `tasks[3].trigger.cron`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<Step>);

impl FieldPath {
    /// The path that leads through these fields.
    pub fn of(fields: &[&'static str]) -> Self {
        FieldPath(fields.iter().map(|field| Step::Field(Cow::Borrowed(field))).collect())
    }

    /// Puts these fields before it.
    pub(crate) fn begin_with(&mut self, fields: &[&'static str]) {
        self.0.splice(0..0, FieldPath::of(fields).0);
    }

    /// The path one field on.
    #[must_use]
    pub fn field(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.0.push(Step::Field(name.into()));
        self
    }

    /// The path one list entry on.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Step::Index(index));
        self
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Field(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') && !name.is_empty() => {
                    write!(f, "{}{name}", if place == 0 { "" } else { "." })?;
                }
                Step::Field(name) => write!(f, "[{:?}]", name.chars().take(64).collect::<String>())?,
            }
        }
        Ok(())
    }
}

/// Something wrong, with the field that it is about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {path}: {message}{}", help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default())]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// The field.
    pub path: FieldPath,
    /// What is wrong.
    pub message: String,
    /// What is allowed, or what to do.
    pub help: Option<String>,
}

impl Finding {
    /// A finding that needs no further help.
    pub fn new(code: Code, path: FieldPath, message: impl Into<String>) -> Self {
        Finding { code, path, message: message.into(), help: None }
    }

    /// The same with help.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// What to say about a word that is none of `known`.
pub(crate) fn one_of<'a>(given: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let list = known.clone().into_iter().collect::<Vec<_>>().join(", ");
    match did_you_mean(given, known) {
        Some(meant) => format!("did you mean `{meant}`? Allowed: {list}"),
        None => format!("allowed: {list}"),
    }
}

/// A quoted piece of somebody's text, cut where it gets long, with nothing in it that a terminal would obey.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// Something wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its code, see docs/errors.md.
    #[serde(serialize_with = "as_text")]
    pub code: Code,
    /// The file.
    pub file: String,
    /// The line, counted from 1; 0 where the whole file is meant.
    pub line: u32,
    /// The column, in characters from 1; 0 where the whole line is meant.
    pub column: u32,
    /// The field, such as `tasks[3].trigger.cron`; empty where none is meant.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What is allowed, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

fn as_text<S: serde::Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.as_str())
}

impl fmt::Display for Problem {
    /// `file:line:column: code field: message`, and the help on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column] {
            if number > 0 {
                write!(f, ":{number}")?;
            }
        }
        write!(f, ": {}", self.code)?;
        if !self.field.is_empty() {
            write!(f, " {}", self.field)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(help) = &self.help {
            write!(f, "\n    {help}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// In the order of the file, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
    /// How many more there were.
    pub left_out: usize,
}

impl Problems {
    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// How many there are, with those that were left out.
    pub fn count(&self) -> usize {
        self.problems.len() + self.left_out
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn sort(&mut self) {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        if self.left_out > 0 {
            writeln!(f, "and {} more", self.left_out)?;
        }
        Ok(())
    }
}
