//! Reading one task, or the defaults, from the tree.

use std::borrow::Cow;
use std::collections::BTreeMap;

use punctual_core::limits as core_limits;

use crate::choice::Choice;
use crate::fields;
use crate::handler::{CommandConfig, HttpConfig, Method, NOOP, Program, Redirects};
use crate::node::{Entry, Kind, Node, Place};
use crate::problem::{Code, Step, one_of, quoted};
use crate::read::Cursor;
use crate::rehearsal::Rehearsal;
use crate::spec::{
    After, Backoff, Band, CircuitBreaker, Concurrency, CronTrigger, CustomHandler, Factor, Handler, Misfire, MisfireAction, On, Priority,
    RateLimit, Retry, RetryBudget, RetryOn, Routing, RoutingStrategy, Shards, TaskSpec, Timeout, Trigger, WhenFull,
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
    pub(crate) after: Vec<After>,
    pub(crate) cron_options: CronTrigger,
    pub(crate) timing: Timing,
    pub(crate) handler: Option<Handler>,
    pub(crate) payload: Option<String>,
    pub(crate) misfire: Misfire,
    pub(crate) concurrency: Concurrency,
    pub(crate) shards: Shards,
    pub(crate) retry: Retry,
    pub(crate) downstream: Option<String>,
    pub(crate) circuit_breaker: Option<CircuitBreaker>,
    pub(crate) timeout: Timeout,
    pub(crate) idempotent: bool,
    pub(crate) priority: Priority,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) routing: Routing,
    pub(crate) rehearsal: Rehearsal,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            description: None,
            owner: None,
            enabled: true,
            trigger: None,
            after: Vec::new(),
            cron_options: CronTrigger::new(""),
            timing: Timing::default(),
            handler: None,
            payload: None,
            misfire: Misfire::default(),
            concurrency: Concurrency::default(),
            shards: Shards::None,
            retry: Retry::default(),
            downstream: None,
            circuit_breaker: None,
            timeout: Timeout::default(),
            idempotent: true,
            priority: Priority::default(),
            rate_limit: None,
            routing: Routing::default(),
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
        give_way(&entries, &mut filled);
        let has = |names: &[&str]| entries.iter().any(|(field, _)| names.contains(field));
        if filled.trigger.is_none() && filled.after.is_empty() && !has(&["trigger", "after"]) {
            let help = "add `trigger:` with cron, fixed_rate, fixed_delay or delay, or `trigger: manual`, or `after:` with another task";
            self.refuse(Code::MissingField, node.place, "the task has no `trigger`", help);
        }
        let nodes = entries
            .iter()
            .find(|(field, _)| *field == "nodes")
            .map(|(_, entry)| self.step(Step::Field(Cow::Borrowed("nodes")), |cursor| cursor.workflow_nodes(&entry.value)));
        if filled.handler.is_none() && nodes.is_none() && !has(fields::HANDLERS) {
            self.refuse(Code::MissingField, node.place, "the task runs nothing", "add one of command, http, handler, nodes");
        }
        let harmless = match &nodes {
            Some(nodes) if !nodes.is_empty() => Handler::None,
            _ => Handler::Custom(CustomHandler { name: NOOP.to_owned(), config: Default::default() }),
        };
        let mut spec = TaskSpec {
            name: name.unwrap_or_else(|| "unnamed".to_owned()),
            description: filled.description,
            owner: filled.owner,
            enabled: filled.enabled,
            timing: filled.trigger.as_ref().map(|trigger| timetable::of_kind(trigger, filled.timing)).unwrap_or_default(),
            trigger: filled.trigger.unwrap_or(Trigger::Manual),
            after: filled.after,
            handler: filled.handler.unwrap_or(harmless),
            nodes: nodes.unwrap_or_default(),
            payload: filled.payload,
            misfire: filled.misfire,
            concurrency: filled.concurrency,
            shards: filled.shards,
            retry: filled.retry,
            downstream: filled.downstream,
            circuit_breaker: filled.circuit_breaker,
            timeout: filled.timeout,
            idempotent: filled.idempotent,
            priority: filled.priority,
            rate_limit: filled.rate_limit,
            routing: filled.routing,
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
                "after" => put(cursor.after(node), &mut to.after),
                "command" => to.handler = cursor.command(node).map(Handler::Command),
                "http" => to.handler = cursor.http(node).map(Handler::Http),
                "handler" => to.handler = cursor.custom_handler(node).map(Handler::Custom),
                "nodes" if is_defaults => {
                    let help = "move them to the task; what its nodes have in common can stand here";
                    cursor.refuse(Code::Conflict, node.place, "nodes are a task's own", help);
                }
                "payload" => to.payload = cursor.payload(node),
                "misfire" => cursor.misfire(node, &mut to.misfire),
                "concurrency" => cursor.concurrency(node, &mut to.concurrency),
                "shards" => put(cursor.shards(node), &mut to.shards),
                "retry" => cursor.retry(node, &mut to.retry),
                // Nothing takes back what the defaults say.
                "downstream" if node.is_null() => to.downstream = None,
                "downstream" => cursor.put_some(node, &mut to.downstream),
                "circuit_breaker" => cursor.circuit_breaker(node, to.circuit_breaker.get_or_insert_default()),
                "timeout" => cursor.timeout(node, &mut to.timeout),
                "idempotent" => put(cursor.truth(node), &mut to.idempotent),
                "priority" => cursor.priority(node, &mut to.priority),
                "rate_limit" => cursor.rate_limit(node, &mut to.rate_limit),
                "routing" => cursor.routing(node, &mut to.routing),
                "rehearsal" => cursor.rehearsal(node, &mut to.rehearsal),
                _ => {}
            });
        }
    }

    pub(crate) fn one_handler(&mut self, entries: &[(&'static str, &Entry)]) {
        let handlers: Vec<_> = entries.iter().filter(|(field, _)| fields::HANDLERS.contains(field)).collect();
        if let [(first, _), (second, entry), ..] = handlers[..] {
            let message = format!("a task runs one thing: it has `{first}` and `{second}`");
            self.refuse(Code::Conflict, entry.place, message, "keep one of command, http, handler, or make two tasks");
        }
    }

    pub(crate) fn put_some(&mut self, node: &Node, to: &mut Option<String>) {
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

    /// One task or several: a name, or a map that says which of its ends.
    fn after(&mut self, node: &Node) -> Option<Vec<After>> {
        match &node.kind {
            Kind::List(_) => self.list(node, Cursor::after_one),
            _ => self.after_one(node).map(|after| vec![after]),
        }
    }

    fn after_one(&mut self, node: &Node) -> Option<After> {
        if let Kind::Text { .. } = &node.kind {
            return self.text(node).map(|task| After { task, on: On::default() });
        }
        let entries = self.map(node, fields::AFTER)?;
        let mut after = After { task: String::new(), on: On::default() };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "task" => put(cursor.text(node), &mut after.task),
                _ => put(cursor.choice(node), &mut after.on),
            });
        }
        if !names(&entries, "task") {
            self.refuse(Code::MissingField, node.place, "it doesn't say after which task", "add `task:` with the task's name");
            return None;
        }
        Some(after)
    }

    pub(crate) fn shards(&mut self, node: &Node) -> Option<Shards> {
        match &node.kind {
            Kind::List(_) => self.list(node, |cursor, key| cursor.text(key)).map(Shards::Keys),
            _ => self.number(node).map(Shards::Count),
        }
    }

    pub(crate) fn payload(&mut self, node: &Node) -> Option<String> {
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

    pub(crate) fn command(&mut self, node: &Node) -> Option<CommandConfig> {
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

    pub(crate) fn http(&mut self, node: &Node) -> Option<HttpConfig> {
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

    pub(crate) fn custom_handler(&mut self, node: &Node) -> Option<CustomHandler> {
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

    pub(crate) fn retry(&mut self, node: &Node, to: &mut Retry) {
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
                "on" => cursor.retry_on(node, &mut to.on),
                // Nothing takes back what the defaults say.
                "budget" if node.is_null() => to.budget = None,
                "budget" => cursor.retry_budget(node, to.budget.get_or_insert_default()),
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

    fn retry_on(&mut self, node: &Node, to: &mut RetryOn) {
        let Some(entries) = self.map(node, fields::RETRY_ON) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "exit_codes" => to.exit_codes = cursor.list(node, |cursor, code| cursor.text(code)),
                "statuses" => to.statuses = cursor.list(node, |cursor, status| cursor.text(status)),
                _ => put(cursor.truth(node), &mut to.timeouts),
            });
        }
    }

    fn retry_budget(&mut self, node: &Node, to: &mut RetryBudget) {
        let Some(entries) = self.map(node, fields::RETRY_BUDGET) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "ratio" => put(cursor.decimal(node, "a ratio", "a number with at most three decimals, such as 0.2"), &mut to.ratio),
                _ => put(cursor.number(node), &mut to.min_per_minute),
            });
        }
    }

    pub(crate) fn circuit_breaker(&mut self, node: &Node, to: &mut CircuitBreaker) {
        let Some(entries) = self.map(node, fields::CIRCUIT_BREAKER) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "failures" => put(cursor.number(node), &mut to.failures),
                "within" => put(cursor.duration(node), &mut to.within),
                _ => put(cursor.duration(node), &mut to.open),
            });
        }
    }

    fn factor(&mut self, node: &Node) -> Option<Factor> {
        self.decimal(node, "a factor", "a number with at most three decimals, such as 2 or 1.5")
    }

    fn decimal(&mut self, node: &Node, what: &str, help: &str) -> Option<Factor> {
        let number = match &node.kind {
            Kind::Text { text, .. } => text.parse().ok().and_then(Factor::from_number),
            _ => None,
        };
        if number.is_none() {
            self.refuse(Code::Number, node.place, format!("{} is not {what}", node.description()), help);
        }
        number
    }

    pub(crate) fn timeout(&mut self, node: &Node, to: &mut Timeout) {
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

    pub(crate) fn priority(&mut self, node: &Node, to: &mut Priority) {
        match &node.kind {
            Kind::Text { text, .. } if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                put(self.number(node), &mut to.level);
            }
            Kind::Text { text, .. } if Band::from_name(text).is_none() => {
                let bands = one_of(text, Band::ALL.iter().map(|(name, _)| *name));
                let help = format!("{bands}; or a level, 0 to {}; or a map with band and level", core_limits::LEVEL_MAX);
                self.refuse(Code::UnknownValue, node.place, format!("{} is not one of the values", node.description()), help);
            }
            Kind::Text { .. } => put(self.choice(node), &mut to.band),
            _ => {
                let Some(entries) = self.map(node, fields::PRIORITY) else { return };
                for (field, entry) in &entries {
                    let node = &*entry.value;
                    self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                        "band" => put(cursor.choice(node), &mut to.band),
                        _ => put(cursor.number(node), &mut to.level),
                    });
                }
            }
        }
    }

    fn rate_limit(&mut self, node: &Node, to: &mut Option<RateLimit>) {
        let Some(entries) = self.map(node, fields::RATE_LIMIT) else { return };
        let inherited = to.take();
        let (mut starts, mut per) = (inherited.as_ref().map(|limit| limit.starts), inherited.as_ref().map(|limit| limit.per));
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "starts" => starts = cursor.number(node).or(starts),
                _ => per = cursor.duration(node).or(per),
            });
        }
        for (field, is_missing) in [("starts", starts.is_none()), ("per", per.is_none())] {
            if is_missing && !names(&entries, field) {
                let message = format!("the rate limit has no `{field}`");
                self.refuse(Code::MissingField, node.place, message, "write both, as in `rate_limit: {starts: 10, per: 1s}`");
            }
        }
        *to = starts.zip(per).map(|(starts, per)| RateLimit { starts, per });
    }

    pub(crate) fn routing(&mut self, node: &Node, to: &mut Routing) {
        if let Kind::Text { .. } = &node.kind {
            put(self.short_form(node, "strategy"), &mut to.strategy);
            to.worker = None;
            return;
        }
        let Some(entries) = self.map(node, fields::ROUTING) else { return };
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "strategy" => put(cursor.choice(node), &mut to.strategy),
                "worker" => to.worker = cursor.text(node),
                "tags" => put(cursor.tags(node), &mut to.tags),
                _ => to.min_worker_version = cursor.text(node),
            });
        }
        if to.strategy != RoutingStrategy::Pinned && !names(&entries, "worker") {
            to.worker = None;
        }
    }

    /// Tags as a map, or as a list of `key=value`.
    fn tags(&mut self, node: &Node) -> Option<BTreeMap<String, String>> {
        if !matches!(node.kind, Kind::List(_)) {
            return self.texts_by_name(node);
        }
        let mut tags = BTreeMap::new();
        for (key, value, place) in self.list(node, Cursor::tag)? {
            if tags.insert(key.clone(), value).is_some() {
                let message = format!("there are two tags {}", quoted(&key));
                self.refuse(Code::Conflict, place, message, "keep one: a worker has to have all tags of the list");
            }
        }
        Some(tags)
    }

    fn tag(&mut self, node: &Node) -> Option<(String, String, Place)> {
        let text = self.text(node)?;
        match text.split_once('=') {
            Some((key, value)) => Some((key.to_owned(), value.to_owned(), node.place)),
            None => {
                self.refuse(Code::Tag, node.place, format!("{} is not a tag", quoted(&text)), "write `key=value`, such as zone=eu");
                None
            }
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

/// What was inherited gives way where it has nothing to say about this task; what stands here does not.
fn give_way(entries: &[(&'static str, &Entry)], filled: &mut Defaults) {
    let of_task = |field: &str| entries.iter().find(|(known, _)| *known == field).map(|(_, entry)| &*entry.value);
    let on = of_task("retry").and_then(|retry| child(retry, "on"));
    let says = |field: &str| on.is_some_and(|on| child(on, field).is_some());
    if !matches!(filled.handler, Some(Handler::Command(_))) && !says("exit_codes") {
        filled.retry.on.exit_codes = None;
    }
    if !matches!(filled.handler, Some(Handler::Http(_))) && !says("statuses") {
        filled.retry.on.statuses = None;
    }
    if filled.downstream.is_none() && of_task("circuit_breaker").is_none() {
        filled.circuit_breaker = None;
    }
}

/// The value of a map's field.
fn child<'n>(node: &'n Node, field: &str) -> Option<&'n Node> {
    match &node.kind {
        Kind::Map(entries) => entries.iter().find(|entry| entry.key == field).map(|entry| &*entry.value),
        _ => None,
    }
}

pub(crate) fn put<T>(value: Option<T>, to: &mut T) {
    if let Some(value) = value {
        *to = value;
    }
}

pub(crate) fn names(entries: &[(&'static str, &Entry)], field: &str) -> bool {
    entries.iter().any(|(known, _)| *known == field)
}
