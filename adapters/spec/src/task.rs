//! Reading one task, or the defaults, from the tree.

use std::borrow::Cow;

use crate::choice::Choice;
use crate::fields;
use crate::handler::{CommandConfig, HttpConfig, Method, NOOP, Program, Redirects};
use crate::node::{Entry, Kind, Node};
use crate::problem::{Code, Step, one_of, quoted};
use crate::read::Cursor;
use crate::rehearsal::Rehearsal;
use crate::spec::{
    Backoff, Concurrency, CronTrigger, CustomHandler, Factor, Handler, Misfire, MisfireAction, Priority, Retry, TaskSpec, Timeout, Trigger,
    WhenFull,
};
use crate::timetable;
use crate::timing::Timing;
use crate::wire::MANUAL;

/// What a task starts from: the file's defaults, or the program's.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) description: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) cron_options: CronTrigger,
    pub(crate) timing: Timing,
    pub(crate) handler: Option<Handler>,
    pub(crate) payload: Option<String>,
    pub(crate) misfire: Misfire,
    pub(crate) concurrency: Concurrency,
    pub(crate) retry: Retry,
    pub(crate) timeout: Timeout,
    pub(crate) idempotent: bool,
    pub(crate) priority: Priority,
    pub(crate) rehearsal: Rehearsal,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            description: None,
            owner: None,
            enabled: true,
            trigger: None,
            cron_options: CronTrigger::new(""),
            timing: Timing::default(),
            handler: None,
            payload: None,
            misfire: Misfire::default(),
            concurrency: Concurrency::default(),
            retry: Retry::default(),
            timeout: Timeout::default(),
            idempotent: true,
            priority: Priority::default(),
            rehearsal: Rehearsal::default(),
        }
    }
}

/// What may go wrong is recorded at the cursor; `None` then stands for a value that could not be read.
impl Cursor<'_> {
    /// The defaults. They have no name.
    pub(crate) fn defaults(&mut self, node: &Node) -> Defaults {
        let mut defaults = Defaults::default();
        if let Some(entries) = self.map(node, &fields::TASK[1..]) {
            self.common(&entries, &mut defaults, true);
        }
        defaults
    }

    /// A task. What can't be read is recorded, and something harmless stands in its place, so that the rest can be checked too.
    pub(crate) fn task(&mut self, node: &Node, defaults: &Defaults) -> Option<(TaskSpec, Rehearsal)> {
        let entries = self.map(node, fields::TASK)?;
        let name = match entries.iter().find(|(field, _)| *field == "name") {
            Some((_, entry)) => self.step(Step::Field(Cow::Borrowed("name")), |cursor| cursor.text(&entry.value)),
            None => {
                self.refuse(Code::MissingField, node.place, "the task has no `name`", "add `name: ...`");
                None
            }
        };
        let mut filled = defaults.clone();
        self.common(&entries, &mut filled, false);
        let has = |names: &[&str]| entries.iter().any(|(field, _)| names.contains(field));
        if filled.trigger.is_none() && !has(&["trigger"]) {
            let help = "add `trigger:` with cron, fixed_rate, fixed_delay or delay, or `trigger: manual`";
            self.refuse(Code::MissingField, node.place, "the task has no `trigger`", help);
        }
        if filled.handler.is_none() && !has(fields::HANDLERS) {
            self.refuse(Code::MissingField, node.place, "the task runs nothing", "add one of command, http, handler");
        }
        let harmless = CustomHandler { name: NOOP.to_owned(), config: Default::default() };
        let mut spec = TaskSpec {
            name: name.unwrap_or_else(|| "unnamed".to_owned()),
            description: filled.description,
            owner: filled.owner,
            enabled: filled.enabled,
            timing: filled.trigger.as_ref().map(|trigger| timetable::of_kind(trigger, filled.timing)).unwrap_or_default(),
            trigger: filled.trigger.unwrap_or(Trigger::Manual),
            handler: filled.handler.unwrap_or(Handler::Custom(harmless)),
            payload: filled.payload,
            misfire: filled.misfire,
            concurrency: filled.concurrency,
            retry: filled.retry,
            timeout: filled.timeout,
            idempotent: filled.idempotent,
            priority: filled.priority,
        };
        spec.normalise();
        Some((spec, filled.rehearsal))
    }

    /// The fields that tasks and defaults share.
    fn common(&mut self, entries: &[(&'static str, &Entry)], to: &mut Defaults, is_defaults: bool) {
        self.one_handler(entries);
        for (field, entry) in entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "description" => cursor.put_some(node, &mut to.description),
                "owner" => cursor.put_some(node, &mut to.owner),
                "enabled" => put(cursor.truth(node), &mut to.enabled),
                "trigger" => {
                    to.trigger = cursor.trigger(node, &mut to.cron_options, &mut to.timing, is_defaults);
                }
                "command" => to.handler = cursor.command(node).map(Handler::Command),
                "http" => to.handler = cursor.http(node).map(Handler::Http),
                "handler" => to.handler = cursor.custom_handler(node).map(Handler::Custom),
                "payload" => to.payload = cursor.payload(node),
                "misfire" => cursor.misfire(node, &mut to.misfire),
                "concurrency" => cursor.concurrency(node, &mut to.concurrency),
                "retry" => cursor.retry(node, &mut to.retry),
                "timeout" => cursor.timeout(node, &mut to.timeout),
                "idempotent" => put(cursor.truth(node), &mut to.idempotent),
                "priority" => put(cursor.choice(node), &mut to.priority),
                "rehearsal" => cursor.rehearsal(node, &mut to.rehearsal),
                _ => {}
            });
        }
    }

    fn one_handler(&mut self, entries: &[(&'static str, &Entry)]) {
        let handlers: Vec<_> = entries.iter().filter(|(field, _)| fields::HANDLERS.contains(field)).collect();
        if let [(first, _), (second, entry), ..] = handlers[..] {
            let message = format!("a task runs one thing: it has `{first}` and `{second}`");
            self.refuse(Code::Conflict, entry.place, message, "keep one of command, http, handler, or make two tasks");
        }
    }

    fn put_some(&mut self, node: &Node, to: &mut Option<String>) {
        if let Some(text) = self.text(node) {
            *to = Some(text);
        }
    }

    fn trigger(&mut self, node: &Node, options: &mut CronTrigger, timing: &mut Timing, is_defaults: bool) -> Option<Trigger> {
        if let Kind::Text { text, .. } = &node.kind {
            if text == MANUAL {
                return Some(Trigger::Manual);
            }
            let help = if text.split_ascii_whitespace().count() >= 5 || text.starts_with('@') {
                format!("write `trigger: {{cron: {text:?}}}`")
            } else {
                "a map with one of cron, fixed_rate, fixed_delay, delay; or the word manual".to_owned()
            };
            self.refuse(Code::WrongKind, node.place, format!("{} is not a trigger", node.description()), help);
            return None;
        }
        let entries = self.map(node, fields::TRIGGER)?;
        let kinds: Vec<_> = entries.iter().filter(|(field, _)| fields::TRIGGER_KINDS.contains(field)).collect();
        let mut trigger = None;
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "cron" => trigger = cursor.text(node).map(|cron| Trigger::Cron(CronTrigger::new(cron))),
                "timezone" => put(cursor.text(node), &mut options.timezone),
                "dialect" => options.dialect = cursor.choice(node),
                "gap" => put(cursor.choice(node), &mut options.gap),
                "overlap" => put(cursor.choice(node), &mut options.overlap),
                "fixed_rate" => trigger = cursor.duration(node).map(Trigger::FixedRate),
                "fixed_delay" => trigger = cursor.duration(node).map(Trigger::FixedDelay),
                "delay" => trigger = cursor.duration(node).map(Trigger::Delay),
                refining => cursor.timing(refining, node, timing),
            });
        }
        match kinds[..] {
            [] if is_defaults => return None,
            [] => {
                self.refuse(
                    Code::MissingField,
                    node.place,
                    "the trigger doesn't say when",
                    "add one of cron, fixed_rate, fixed_delay, delay",
                );
            }
            [(first, _), (second, entry), ..] => {
                let message = format!("a trigger is of one kind: it has `{first}` and `{second}`");
                self.refuse(Code::Conflict, entry.place, message, "keep one, or make two tasks");
            }
            [(kind, _)] => {
                for (field, entry) in entries.iter().filter(|(field, _)| field != kind && !timetable::may_have(kind, field)) {
                    let belongs = fields::TRIGGER_OPTIONS.iter().find(|(option, _)| option == field).map_or(&[][..], |(_, kinds)| *kinds);
                    let message = format!("`{field}` belongs to `{}`, this trigger has `{kind}`", belongs.join("`, `"));
                    self.refuse(Code::Conflict, entry.place, message, "leave it out");
                }
            }
        }
        if let Some(Trigger::Cron(cron)) = trigger {
            return Some(Trigger::Cron(CronTrigger { cron: cron.cron, ..options.clone() }));
        }
        trigger
    }

    fn payload(&mut self, node: &Node) -> Option<String> {
        if node.is_null() {
            return None;
        }
        match &node.kind {
            Kind::Text { text, .. } => Some(text.clone()),
            _ => self.json(node).map(|mut value| {
                value.sort_all_objects();
                value.to_string()
            }),
        }
    }

    fn command(&mut self, node: &Node) -> Option<CommandConfig> {
        let of = |program| CommandConfig {
            program,
            env: Default::default(),
            working_directory: None,
            stdin: None,
            user: None,
            success_codes: vec![0],
        };
        match &node.kind {
            Kind::Text { .. } => return self.text(node).map(|line| of(Program::Shell(line))),
            Kind::List(_) => return self.list(node, |cursor, word| cursor.text(word)).map(|argv| of(Program::Argv(argv))),
            Kind::Map(_) => {}
        }
        let entries = self.map(node, fields::COMMAND)?;
        let mut program = None;
        let mut config = of(Program::Argv(Vec::new()));
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "argv" => program = cursor.list(node, |cursor, word| cursor.text(word)).map(Program::Argv),
                "shell" => program = cursor.text(node).map(Program::Shell),
                "env" => put(cursor.texts_by_name(node), &mut config.env),
                "working_directory" => cursor.put_some(node, &mut config.working_directory),
                "stdin" => cursor.put_some(node, &mut config.stdin),
                "user" => cursor.put_some(node, &mut config.user),
                _ => put(cursor.list(node, Cursor::exit_code), &mut config.success_codes),
            });
        }
        match entries.iter().filter(|(field, _)| ["argv", "shell"].contains(field)).count() {
            0 => self.refuse(Code::MissingField, node.place, "the command doesn't say what to run", "add one of argv, shell"),
            1 => {}
            _ => self.refuse(Code::Conflict, node.place, "a command has either `argv` or `shell`", "keep one of them"),
        }
        config.program = program?;
        Some(config)
    }

    fn exit_code(&mut self, node: &Node) -> Option<u8> {
        let code = self.number(node)?;
        if code > 255 {
            self.refuse(Code::Number, node.place, format!("{code} is out of range"), "0 to 255");
        }
        u8::try_from(code).ok()
    }

    fn http(&mut self, node: &Node) -> Option<HttpConfig> {
        let mut config = HttpConfig {
            url: String::new(),
            method: Method::default(),
            headers: Default::default(),
            body: None,
            success_statuses: vec!["200-299".to_owned()],
            redirects: Redirects::default(),
        };
        if let Kind::Text { .. } = &node.kind {
            config.url = self.text(node)?;
            return Some(config);
        }
        let entries = self.map(node, fields::HTTP)?;
        let mut has_url = false;
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "url" => {
                    let url = cursor.text(node);
                    has_url = url.is_some();
                    put(url, &mut config.url);
                }
                "method" => put(cursor.serde_word(node, fields::METHODS), &mut config.method),
                "headers" => put(cursor.texts_by_name(node), &mut config.headers),
                "body" => cursor.put_some(node, &mut config.body),
                "success_statuses" => put(cursor.list(node, |cursor, status| cursor.text(status)), &mut config.success_statuses),
                _ => put(cursor.serde_word(node, fields::REDIRECTS), &mut config.redirects),
            });
        }
        if !names(&entries, "url") {
            self.refuse(Code::MissingField, node.place, "the call has no `url`", "add `url: ...`");
        }
        has_url.then_some(config)
    }

    /// One of the words that serde knows a type's values by.
    fn serde_word<T: serde::de::DeserializeOwned>(&mut self, node: &Node, words: &'static [&'static str]) -> Option<T> {
        let word = self.word(node, words.iter().copied())?;
        serde_json::from_value(serde_json::Value::String(word)).ok()
    }

    fn custom_handler(&mut self, node: &Node) -> Option<CustomHandler> {
        if let Kind::Text { .. } = &node.kind {
            return self.text(node).map(|name| CustomHandler { name, config: Default::default() });
        }
        let entries = self.map(node, fields::HANDLER)?;
        let mut handler = CustomHandler { name: NOOP.to_owned(), config: Default::default() };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "name" => put(cursor.text(node), &mut handler.name),
                _ => match (&node.kind, cursor.json(node)) {
                    (_, Some(serde_json::Value::Object(map))) => handler.config = map,
                    (_, None) => {}
                    _ => {
                        let message = format!("{} where a map is wanted", node.description());
                        cursor.refuse(Code::WrongKind, node.place, message, "a map, handed to the handler as JSON");
                    }
                },
            });
        }
        if !names(&entries, "name") {
            self.refuse(Code::MissingField, node.place, "the handler has no `name`", "add the name under which workers announce it");
            return None;
        }
        Some(handler)
    }

    fn misfire(&mut self, node: &Node, to: &mut Misfire) {
        let inherited = to.limit.take();
        if let Kind::Text { .. } = &node.kind {
            put(self.short_form(node, "action"), &mut to.action);
        } else if let Some(entries) = self.map(node, fields::MISFIRE) {
            for (field, entry) in &entries {
                let node = &*entry.value;
                self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                    "action" => put(cursor.choice(node), &mut to.action),
                    "limit" => to.limit = cursor.number(node),
                    _ => to.deadline = cursor.duration(node),
                });
            }
        }
        // What was inherited gives way; what stands here does not.
        if to.action == MisfireAction::FireAll && to.limit.is_none() {
            to.limit = inherited;
        }
    }

    fn concurrency(&mut self, node: &Node, to: &mut Concurrency) {
        let Some(entries) = self.map(node, fields::CONCURRENCY) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "max_running" => put(cursor.number(node), &mut to.max_running),
                "when_full" => put(cursor.choice(node), &mut to.when_full),
                _ => to.max_queue = cursor.number(node),
            });
        }
        if to.when_full != WhenFull::Queue && !names(&entries, "max_queue") {
            to.max_queue = None;
        }
    }

    fn retry(&mut self, node: &Node, to: &mut Retry) {
        let Some(entries) = self.map(node, fields::RETRY) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "max_attempts" => to.max_attempts = cursor.number(node),
                "max_losses" => put(cursor.number(node), &mut to.max_losses),
                "backoff" => put(cursor.choice(node), &mut to.backoff),
                "first" => put(cursor.duration(node), &mut to.first),
                "cap" => put(cursor.duration(node), &mut to.cap),
                "factor" => to.factor = cursor.factor(node),
                _ => put(cursor.choice(node), &mut to.jitter),
            });
        }
        if to.backoff != Backoff::Exponential && !names(&entries, "factor") {
            to.factor = None;
        }
        // A first wait beyond the longest one that nobody named: the longest follows.
        if !names(&entries, "cap") && to.cap < to.first {
            to.cap = to.first;
        }
    }

    fn factor(&mut self, node: &Node) -> Option<Factor> {
        let factor = match &node.kind {
            Kind::Text { text, .. } => text.parse().ok().and_then(Factor::from_number),
            _ => None,
        };
        if factor.is_none() {
            let message = format!("{} is not a factor", node.description());
            self.refuse(Code::Number, node.place, message, "a number with at most three decimals, such as 2 or 1.5");
        }
        factor
    }

    fn timeout(&mut self, node: &Node, to: &mut Timeout) {
        if let Kind::Text { .. } = &node.kind {
            to.after = self.duration(node);
            return;
        }
        let Some(entries) = self.map(node, fields::TIMEOUT) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "after" => to.after = cursor.duration(node),
                "grace" => put(cursor.duration(node), &mut to.grace),
                _ => put(cursor.choice(node), &mut to.action),
            });
        }
    }

    /// A word in place of a map with that one field.
    fn short_form<C: Choice>(&mut self, node: &Node, field: &str) -> Option<C> {
        match &node.kind {
            Kind::Text { text, .. } if C::from_name(text).is_none() => {
                let help = format!("{}; or a map with `{field}`", one_of(text, C::ALL.iter().map(|(name, _)| *name)));
                self.refuse(Code::UnknownValue, node.place, format!("{} is not one of the values", quoted(text)), help);
                None
            }
            _ => self.choice(node),
        }
    }
}

pub(crate) fn put<T>(value: Option<T>, to: &mut T) {
    if let Some(value) = value {
        *to = value;
    }
}

fn names(entries: &[(&'static str, &Entry)], field: &str) -> bool {
    entries.iter().any(|(known, _)| *known == field)
}
