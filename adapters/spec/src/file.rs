//! A whole task file, read task by task: no more than one task's tree is in memory, besides what anchors hold.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use punctual_core::chains::{self, Call, ChainProblem, Edge};
use punctual_core::definition::TaskDefinition;
use punctual_core::limits::{FOLLOWING_FIRINGS_MAX, REFERENCES_MAX};
use saphyr_parser::Event;

use crate::fields;
use crate::limits::FILE_BYTES_MAX;
use crate::node::{Flaw, Kind, Node, Place, Reader, duplicate_key};
use crate::problem::{Code, FieldPath, Finding, Problem, Problems, Step, one_of, quoted};
use crate::read::Cursor;
use crate::rehearsal::Rehearsal;
use crate::spec::{GroupLimits, TaskSpec};
use crate::task::Defaults;
use crate::zones::Zones;

/// The tasks of a file, in its order.
#[derive(Clone, Debug, Default)]
pub struct TaskFile {
    /// At least one.
    pub tasks: Vec<FileTask>,
}

/// A task of a file.
#[derive(Clone, Debug)]
pub struct FileTask {
    /// As written, with the file's defaults.
    pub spec: TaskSpec,
    /// As the scheduler follows it.
    pub definition: Arc<TaskDefinition>,
    /// How its handler behaves in a rehearsal. No part of the task: the task's document, and so its version, doesn't know of it.
    pub rehearsal: Rehearsal,
    /// The line that it begins on.
    pub line: u32,
}

/// Reads and checks a task file; `-` is the standard input.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn read_file(path: &Path, zones: &Zones) -> Result<TaskFile, Problems> {
    let name = path.display().to_string();
    let refuse = |code, message: String, help: &str| whole_file(&name, code, message, help);
    let bytes = read_bytes(path).map_err(|error| match error {
        FileError::Io(error) => refuse(Code::Unreadable, format!("the file can't be read: {error}"), "check its name and its permissions"),
        FileError::TooLarge => {
            refuse(Code::TooLarge, format!("the file has more than {FILE_BYTES_MAX} bytes"), "split it into several files")
        }
    })?;
    read_bytes_of(&name, &bytes, zones)
}

/// Why the bytes of a file can't be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says so.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// More than [`FILE_BYTES_MAX`].
    #[error("the file has more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

/// The bytes of a file, within the limit; `-` is the standard input.
///
/// # Errors
///
/// [`FileError`].
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)?
    } else {
        std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?
    };
    if read as u64 == limit { Err(FileError::TooLarge) } else { Ok(bytes) }
}

/// Reads and checks the bytes of a task file; `name` is what problems call it.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn read_bytes_of(name: &str, bytes: &[u8], zones: &Zones) -> Result<TaskFile, Problems> {
    match std::str::from_utf8(bytes) {
        Ok(text) => read_text(name, text, zones),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let mut problems = whole_file(name, Code::Unreadable, "the file is not UTF-8".to_owned(), "save it as UTF-8");
            problems.problems[0].line = u32::try_from(line).unwrap_or(u32::MAX);
            Err(problems)
        }
    }
}

/// Reads and checks the text of a task file; `name` is what problems call it.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn read_text(name: &str, text: &str, zones: &Zones) -> Result<TaskFile, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reading = Reading {
        reader: Reader::new(text),
        cursor: Cursor::new(name),
        zones,
        defaults: Defaults::default(),
        defaults_node: None,
        refused_defaults: HashSet::new(),
        lines_by_name: HashMap::new(),
        limits_by_group: HashMap::new(),
        chains: Vec::new(),
        handed: Vec::new(),
        tasks: Vec::new(),
    };
    if let Err(flaw) = reading.file() {
        reading.cursor.add_flaw(flaw);
    }
    reading.take_flaws();
    reading.check_chains();
    reading.check_handed();
    let Reading { mut cursor, tasks, .. } = reading;
    if cursor.problems.is_empty() {
        return Ok(TaskFile { tasks });
    }
    cursor.problems.sort();
    Err(cursor.problems)
}

fn whole_file(name: &str, code: Code, message: String, help: &str) -> Problems {
    let (field, help) = (String::new(), Some(help.to_owned()));
    Problems { problems: vec![Problem { code, file: name.to_owned(), line: 0, column: 0, field, message, help }], left_out: 0 }
}

struct Reading<'a> {
    reader: Reader<'a>,
    cursor: Cursor<'a>,
    zones: &'a Zones,
    defaults: Defaults,
    defaults_node: Option<Rc<Node>>,
    /// What was found wrong with the defaults: said once, not for each task.
    refused_defaults: HashSet<(u32, u32, Code)>,
    lines_by_name: HashMap<String, u32>,
    /// What the file says of each group's limits, and on which line first.
    limits_by_group: HashMap<String, (Option<GroupLimits>, u32)>,
    chains: Vec<Written>,
    handed: Vec<Handed>,
    tasks: Vec<FileTask>,
}

/// What a node hands to the task that it calls, and where it is written.
struct Handed {
    called: String,
    payload: String,
    path: FieldPath,
    place: Place,
}

/// An edge or a call of the file, and where it is written.
struct Written {
    tie: Tie,
    path: FieldPath,
    place: Place,
}

enum Tie {
    Edge(Edge),
    Call(Call),
}

/// How many tasks of a ring are named.
const RING_NAMES_MAX: usize = 8;

const NO_TASKS: &str = "write `tasks:` and under it a list of tasks, each with name, trigger and command; see docs/task-file.md";

impl<'a> Reading<'a> {
    fn file(&mut self) -> Result<(), Flaw> {
        let (mut event, mut place) = self.reader.next()?;
        while matches!(event, Event::StreamStart | Event::DocumentStart(_) | Event::Nothing) {
            (event, place) = self.reader.next()?;
        }
        match event {
            Event::MappingStart(..) => self.top(place)?,
            Event::StreamEnd | Event::DocumentEnd => {
                self.cursor.refuse(Code::NoTasks, Place { line: 1, column: 1 }, "the file is empty", NO_TASKS);
                return Ok(());
            }
            other => {
                let node = self.reader.node(other, place, 0)?;
                let what = if node.is_null() { "the file is empty".to_owned() } else { format!("the file is {}", node.description()) };
                self.cursor.refuse(Code::NoTasks, place, what, NO_TASKS);
            }
        }
        loop {
            match self.reader.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentEnd, _) => {}
                (_, place) => {
                    let help = "put all tasks under one `tasks:`, or into several files";
                    self.cursor.refuse(Code::Syntax, place, "a second document begins here", help);
                    return Ok(());
                }
            }
        }
    }

    fn top(&mut self, start: Place) -> Result<(), Flaw> {
        let mut places: HashMap<String, Place> = HashMap::new();
        loop {
            let (event, place) = self.reader.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.reader.node(event, place, 1)?;
            let (event, value_place) = self.reader.next()?;
            let key = match &key.kind {
                Kind::Text { text, .. } => text.as_str(),
                _ => "",
            };
            let first = places.get(key).copied();
            places.entry(key.to_owned()).or_insert(place);
            match (key, first) {
                (_, Some(first)) => {
                    self.reader.node(event, value_place, 1)?;
                    self.cursor.add_flaw(duplicate_key(key, place, first));
                }
                ("tasks", None) => self.list(event, value_place)?,
                ("calendars", None) => {
                    let node = self.reader.node(event, value_place, 1)?;
                    let below = ["defaults", "tasks"].into_iter().find(|field| places.contains_key(*field));
                    self.read_calendars(&node, place, below);
                }
                ("groups", None) => {
                    let node = self.reader.node(event, value_place, 1)?;
                    self.take_flaws();
                    if let Some(field) = ["defaults", "tasks"].into_iter().find(|field| places.contains_key(*field)) {
                        self.cursor.refuse(Code::Conflict, place, format!("`groups:` stands below `{field}:`"), "move it above");
                    }
                    if !node.is_null() {
                        self.cursor.step(Step::Field("groups".into()), |cursor| cursor.groups(&node));
                    }
                }
                ("defaults", None) => {
                    let node = self.reader.node(event, value_place, 1)?;
                    self.read_defaults(node, place, places.contains_key("tasks"));
                }
                (other, None) => {
                    self.reader.node(event, value_place, 1)?;
                    let help = match other {
                        "name" | "command" | "trigger" => NO_TASKS.to_owned(),
                        other => one_of(other, fields::FILE.iter().copied()),
                    };
                    self.cursor.refuse(Code::UnknownField, place, format!("there is no field {}", quoted(other)), help);
                }
            }
        }
        if !places.contains_key("tasks") {
            self.cursor.refuse(Code::NoTasks, start, "the file has no `tasks:`", NO_TASKS);
        }
        Ok(())
    }

    fn read_calendars(&mut self, node: &Node, place: Place, below: Option<&str>) {
        self.take_flaws();
        if let Some(field) = below {
            self.cursor.refuse(Code::Conflict, place, format!("`calendars:` stands below `{field}:`"), "move it above");
        }
        if !node.is_null() {
            self.cursor.step(Step::Field("calendars".into()), |cursor| cursor.calendars(node));
        }
    }

    fn read_defaults(&mut self, node: Rc<Node>, place: Place, is_late: bool) {
        self.take_flaws();
        if is_late {
            self.cursor.refuse(Code::Conflict, place, "`defaults:` stands below `tasks:`", "move it above");
        }
        if node.is_null() {
            return;
        }
        self.defaults = self.cursor.step(Step::Field("defaults".into()), |cursor| cursor.defaults(&node));
        self.defaults_node = Some(node);
    }

    fn list(&mut self, event: Event<'a>, place: Place) -> Result<(), Flaw> {
        if !matches!(event, Event::SequenceStart(..)) {
            let node = self.reader.node(event, place, 1)?;
            let (code, what) = if node.is_null() {
                (Code::NoTasks, "`tasks:` is empty".to_owned())
            } else {
                (Code::WrongKind, format!("{} where a list of tasks is wanted", node.description()))
            };
            self.cursor.refuse(code, node.place, what, NO_TASKS);
            return Ok(());
        }
        let mut index = 0;
        loop {
            let (event, entry_place) = self.reader.next()?;
            if event == Event::SequenceEnd {
                break;
            }
            let node = self.reader.node(event, entry_place, 2)?;
            self.cursor.path = FieldPath::of(&["tasks"]).index(index);
            self.take_flaws();
            self.task(&node, entry_place);
            self.cursor.path = FieldPath::default();
            index += 1;
        }
        if index == 0 {
            self.cursor.refuse(Code::NoTasks, place, "`tasks:` is empty", NO_TASKS);
        }
        Ok(())
    }

    fn task(&mut self, node: &Node, entry_place: Place) {
        let spec = self.cursor.task(node, &self.defaults);
        self.claim_name(node);
        let Some((spec, rehearsal)) = spec else { return };
        self.agree_on_group(&spec, node);
        match spec.to_definition(self.zones) {
            Ok(definition) if self.cursor.problems.is_empty() => {
                self.note_chains(&spec, node);
                self.tasks.push(FileTask { spec, definition: Arc::new(definition), rehearsal, line: entry_place.line });
            }
            Ok(_) => {}
            Err(findings) => {
                self.tasks = Vec::new();
                findings.into_iter().for_each(|finding| self.place_finding(finding, node));
            }
        }
    }

    /// Names are taken also by tasks that are refused for something else, so that both are said at once.
    fn claim_name(&mut self, node: &Node) {
        let Kind::Map(entries) = &node.kind else { return };
        let Some(entry) = entries.iter().find(|entry| entry.key == "name") else { return };
        let Kind::Text { text, .. } = &entry.value.kind else { return };
        let place = entry.value.place;
        match self.lines_by_name.get(text) {
            None => {
                self.lines_by_name.insert(text.clone(), place.line);
            }
            Some(first) => {
                let message = format!("two tasks are named {}: here and on line {first}", quoted(text));
                let path = self.cursor.path.clone().field("name");
                self.cursor.add(place, Finding::new(Code::DuplicateName, path, message).help("give each task a name of its own"));
            }
        }
    }

    /// All tasks of a group have the same limits, within a file.
    fn agree_on_group(&mut self, spec: &TaskSpec, node: &Node) {
        let Some(group) = &spec.group else { return };
        let (place, path, _) = self.written_at(&FieldPath::of(&["group"]), node);
        let known = self.limits_by_group.entry(group.clone()).or_insert_with(|| (spec.group_limits.clone(), place.line));
        if known.0 != spec.group_limits {
            let message = format!("the group {} has other limits here than on line {}", quoted(group), known.1);
            let help = "write its limits once, under `groups:` at the top of the file, and no `group_limits` with the tasks";
            self.cursor.add(place, Finding::new(Code::Group, path, message).help(help));
        }
    }

    /// Finds out where what is wrong was written.
    fn place_finding(&mut self, finding: Finding, node: &Node) {
        let (place, path, is_default) = self.written_at(&finding.path, node);
        if is_default && !self.refused_defaults.insert((place.line, place.column, finding.code)) {
            return;
        }
        self.cursor.add(place, Finding { path, ..finding });
    }

    /// Where what a path leads to was written: in the task, else in the defaults; the path from the top of the file, and whether it is in the
    /// defaults.
    fn written_at(&self, in_task: &FieldPath, node: &Node) -> (Place, FieldPath, bool) {
        let (place, depth) = locate(node, in_task);
        let in_defaults = self.defaults_node.as_ref().map(|node| locate(node, in_task)).filter(|(_, at)| *at > depth);
        let (place, mut path) = match in_defaults {
            Some((place, _)) => (place, FieldPath::of(&["defaults"])),
            None => (place, self.cursor.path.clone()),
        };
        path.0.extend(in_task.0.iter().cloned());
        (place, path, in_defaults.is_some())
    }

    /// Keeps after which tasks a task is to fire, and which its nodes are, for when all are known.
    fn note_chains(&mut self, spec: &TaskSpec, node: &Node) {
        for (index, after) in spec.after.iter().enumerate() {
            let in_task = FieldPath::of(&["after"]).index(index);
            let (place, path, _) = self.written_at(&in_task, node);
            let edge = Edge { after: Arc::from(after.task.as_str()), task: Arc::from(spec.name.as_str()) };
            self.chains.push(Written { tie: Tie::Edge(edge), path, place });
        }
        for (index, called) in spec.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.task.as_ref()?))) {
            let in_task = FieldPath::of(&["nodes"]).index(index).field("task");
            let (place, path, _) = self.written_at(&in_task, node);
            let call = Call { task: Arc::from(spec.name.as_str()), called: Arc::from(called.as_str()), times: 1 };
            self.chains.push(Written { tie: Tie::Call(call), path, place });
            if let Some(payload) = &spec.nodes[index].payload {
                let in_task = FieldPath::of(&["nodes"]).index(index).field("payload");
                let (place, path, _) = self.written_at(&in_task, node);
                self.handed.push(Handed { called: called.clone(), payload: payload.clone(), path, place });
            }
        }
    }

    /// What nodes hand to tasks of the file has to be what those take.
    fn check_handed(&mut self) {
        if self.handed.is_empty() || !self.cursor.problems.is_empty() {
            return;
        }
        let with_schema = self.tasks.iter().filter_map(|task| Some((task.spec.name.as_str(), task.spec.payload_schema.as_ref()?)));
        let schemas: HashMap<&str, &serde_json::Value> = with_schema.collect();
        for Handed { called, payload, path, place } in &self.handed {
            let Some(schema) = schemas.get(called.as_str()) else { continue };
            let Ok(schema) = self.zones.payload_schema(schema) else { continue };
            if let Err(problem) = schema.check(Some(payload)) {
                let message = format!("the payload is not as the schema of {} says: {problem}", quoted(called));
                let finding = Finding::new(Code::CallPayload, path.clone(), message);
                self.cursor.add(*place, finding.help("write a payload that the task's `payload_schema` allows"));
            }
        }
    }

    /// What is wrong with the chains of the file by themselves. A task that is not in the file may be elsewhere.
    fn check_chains(&mut self) {
        if !self.cursor.problems.is_empty() {
            return;
        }
        let (mut edges, mut calls) = (Vec::new(), Vec::new());
        for written in &self.chains {
            match &written.tie {
                Tie::Edge(edge) => edges.push(edge.clone()),
                Tie::Call(call) => calls.push(call.clone()),
            }
        }
        for problem in chains::problems(&edges, &calls, |_| true) {
            let of_ring: HashSet<(&str, &str)> = match &problem {
                ChainProblem::Cycle { path } => path.windows(2).map(|step| (&*step[0], &*step[1])).collect(),
                _ => HashSet::new(),
            };
            let is_part = |tie: &Tie| match (&problem, tie) {
                (ChainProblem::Cycle { .. }, Tie::Edge(edge)) => of_ring.contains(&(&*edge.after, &*edge.task)),
                (ChainProblem::Cycle { .. }, Tie::Call(call)) => of_ring.contains(&(&*call.task, &*call.called)),
                (ChainProblem::TooMany { after, .. }, Tie::Edge(edge)) => *after == edge.after,
                (ChainProblem::Spreads { task, .. }, Tie::Edge(edge)) => *task == edge.after,
                (ChainProblem::Spreads { task, .. }, Tie::Call(call)) => *task == call.task,
                (ChainProblem::NoSuchTask(missing), Tie::Edge(edge)) => missing == edge,
                (ChainProblem::NothingToCall(missing), Tie::Call(call)) => missing == call,
                _ => false,
            };
            // The one that is written last closes the ring, or is one too many.
            let Some(written) = self.chains.iter().rev().find(|written| is_part(&written.tie)) else { continue };
            if let Some(finding) = chain_finding(&problem, &written.path) {
                self.cursor.add(written.place, finding);
            }
        }
    }

    fn take_flaws(&mut self) {
        for flaw in std::mem::take(&mut self.reader.flaws) {
            self.cursor.add_flaw(flaw);
        }
    }
}

/// A problem of chains as a finding; `None` where a file alone doesn't tell.
fn chain_finding(problem: &ChainProblem, path: &FieldPath) -> Option<Finding> {
    match problem {
        ChainProblem::Cycle { path: ring } => {
            let shown = ring.iter().take(RING_NAMES_MAX).map(|name| quoted(name)).collect::<Vec<_>>().join(", then ");
            let end = if ring.len() > RING_NAMES_MAX { format!(" and so on, {} tasks", ring.len() - 1) } else { String::new() };
            let message = format!("these tasks would fire each other for ever: {shown}{end}");
            let help = match path.0.iter().any(|step| *step == Step::Field("nodes".into())) {
                true => "take one of them out of another one's `after`, or out of its nodes",
                false => "take one of them out of another one's `after`",
            };
            Some(Finding::new(Code::ChainCycle, path.clone(), message).help(help))
        }
        ChainProblem::TooMany { after, count } => {
            let message = format!("{count} tasks would fire after {}", quoted(after));
            let help = format!("at most {REFERENCES_MAX}; let some of them fire after another one of them");
            Some(Finding::new(Code::ChainFan, path.clone(), message).help(help))
        }
        ChainProblem::Spreads { task, firings } => {
            let message = format!("each time that {} fires, {firings} firings of other tasks could follow", quoted(task));
            let help = format!("at most {FOLLOWING_FIRINGS_MAX}; give a task that it calls the work at once, in `shards` or a `map`");
            Some(Finding::new(Code::ChainSpreads, path.clone(), message).help(help))
        }
        ChainProblem::NoSuchTask(_) | ChainProblem::NothingToCall(_) => None,
    }
}

/// The place of what a path leads to, or of the last thing on the way, and how many steps that was.
fn locate(node: &Node, path: &FieldPath) -> (Place, usize) {
    let mut node = node;
    let mut depth = 0;
    for step in &path.0 {
        let next = match (&node.kind, step) {
            (Kind::Map(entries), Step::Field(name)) => entries.iter().find(|entry| entry.key == *name).map(|entry| &*entry.value),
            (Kind::List(list), Step::Index(index)) => list.get(*index).map(|entry| &**entry),
            _ => None,
        };
        // A short form, such as `timeout: 5m` or `command: [...]`, stands for the field within.
        let Some(next) = next else { break };
        node = next;
        depth += 1;
    }
    (node.place, depth)
}
