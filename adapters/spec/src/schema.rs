//! The JSON Schema of task files, made of the tables and limits that files are read by.

use std::ops::RangeInclusive;

use punctual_core::limits as core_limits;
use serde_json::{Map, Value, json};

use crate::choice::Choice;
use crate::codes;
use crate::duration::format;
use crate::fields;
use crate::limits;
use crate::spec::{Backoff, Band, Dialect, Gap, Jitter, MisfireAction, On, Overlap, RoutingStrategy, TimeoutAction, WhenFull};
use crate::workflow::{OnFailure, Rule};

/// The schema (2020-12) as indented text with a line end: what docs/task-file.schema.json holds.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

/// The schema (2020-12). Rules that span several tasks, zone names and cron expressions are beyond it; `punctual validate` knows them.
pub fn schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Punctual task file",
        "description": "Tasks for the Punctual scheduler. See docs/task-file.md.",
        "type": "object",
        "additionalProperties": false,
        "required": ["tasks"],
        "properties": {
            "calendars": {
                "type": "object",
                "maxProperties": limits::CALENDARS_MAX,
                "additionalProperties": { "$ref": "#/$defs/calendar" },
                "description": "Calendars that triggers name. Stands above `defaults` and `tasks`.",
            },
            "groups": {
                "type": "object",
                "maxProperties": limits::GROUPS_MAX,
                "propertyNames": { "minLength": 1, "maxLength": core_limits::GROUP_CHARS_MAX },
                "additionalProperties": { "$ref": "#/$defs/groupLimits" },
                "description": "What groups of tasks are limited to. Stands above `defaults` and `tasks`.",
            },
            "defaults": { "$ref": "#/$defs/defaults", "description": "What tasks have that don't say otherwise. Stands above `tasks`." },
            "tasks": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/task" } },
        },
        "$defs": {
            "text": { "type": ["string", "number", "boolean"], "description": "A text. Numbers and truths are taken as they are written." },
            "texts": { "type": "object", "additionalProperties": { "$ref": "#/$defs/text" } },
            "duration": {
                "type": "string",
                "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
                "minLength": 2,
                "description": "Numbers and units, larger units first: 500ms, 10s, 5m, 2h, 1d, 1h30m.",
            },
            "task": task(false),
            "defaults": task(true),
            "trigger": { "oneOf": [{ "const": "manual", "description": "By hand only." }, trigger(false)] },
            "defaultTrigger": { "oneOf": [{ "const": "manual" }, trigger(true)] },
            "calendar": calendar(),
            "blackout": blackout(),
            "command": command(),
            "http": http(),
            "handler": handler(),
            "node": node(),
            "when": when(),
            "misfire": { "oneOf": [choice::<MisfireAction>("Short for `action`."), misfire()] },
            "concurrency": concurrency(),
            "after": after(),
            "shards": shards(),
            "map": map_over(),
            "retry": retry(),
            "circuitBreaker": circuit_breaker(),
            "rehearsal": rehearsal(),
            "priority": priority(),
            "rateLimit": rate_limit(),
            "routing": routing(),
            "groupLimits": group_limits(),
            "timeout": { "oneOf": [described("#/$defs/duration", "Short for `after`."), timeout()] },
        },
    });
    sort(&mut schema);
    schema
}

/// Sorts what the schema's reader would otherwise find in any order, whatever features the JSON library was built with.
fn sort(schema: &mut Value) {
    schema.sort_all_objects();
}

fn described(reference: &str, description: &str) -> Value {
    json!({ "$ref": reference, "description": description })
}

fn text(description: &str) -> Value {
    described("#/$defs/text", description)
}

fn duration(description: &str) -> Value {
    described("#/$defs/duration", description)
}

fn choice<C: Choice>(description: &str) -> Value {
    words(&C::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>(), description)
}

fn words(words: &[&str], description: &str) -> Value {
    json!({ "enum": words, "description": description })
}

fn number(least: u32, most: u32, description: &str) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "description": description })
}

fn truth(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

/// A map with these fields and no others. The table says which ones there are: one without a schema is a mistake in this file.
fn object(table: &[&str], required: &[&str], properties: Value) -> Value {
    let Value::Object(given) = properties else { unreachable!("properties are a map") };
    assert!(given.len() == table.len() && table.iter().all(|field| given.contains_key(*field)), "{table:?} and {given:?} differ");
    let mut object = Map::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("additionalProperties".to_owned(), json!(false));
    if !required.is_empty() {
        object.insert("required".to_owned(), json!(required));
    }
    object.insert("properties".to_owned(), Value::Object(given));
    Value::Object(object)
}

fn exactly_one(mut object: Value, of: &[&str]) -> Value {
    object["oneOf"] = of.iter().map(|field| json!({ "required": [field] })).collect();
    object
}

fn task(is_defaults: bool) -> Value {
    let mut properties = json!({
        "name": {
            "type": ["string", "number", "boolean"],
            "minLength": 1,
            "maxLength": core_limits::NAME_CHARS_MAX,
            "not": { "enum": [".", ".."] },
            "description": "Unique among all tasks; no control characters, no blanks at its ends.",
        },
        "description": text("What it is for."),
        "owner": text("Whom to ask about it."),
        "enabled": truth("Whether it fires by itself; default true."),
        "trigger": described(if is_defaults { "#/$defs/defaultTrigger" } else { "#/$defs/trigger" }, "What makes it fire."),
        "after": described("#/$defs/after", "The tasks whose ends make it fire, besides its trigger; then `trigger` may be left out."),
        "command": described("#/$defs/command", "Runs a program."),
        "http": described("#/$defs/http", "Makes an HTTP call."),
        "handler": described("#/$defs/handler", "Runs a handler of your own workers."),
        "nodes": {
            "type": "array", "minItems": 1, "maxItems": core_limits::WORKFLOW_NODES_MAX, "items": { "$ref": "#/$defs/node" },
            "description": "The nodes of a workflow, each with what it comes after. What one doesn't say for itself it has of the task.",
        },
        "payload": { "description": "Given to the handler: a text as it is, anything else as JSON." },
        "payload_schema": {
            "type": ["object", "boolean", "null"],
            "description": "What payloads have to be like: a JSON Schema. A trigger with another payload is refused.",
        },
        "misfire": described("#/$defs/misfire", "What becomes of fire times that nobody could fire."),
        "concurrency": described("#/$defs/concurrency", "How many instances may be in progress at once."),
        "shards": described("#/$defs/shards", "Into how many instances each firing is divided; by default it is one."),
        "map": described("#/$defs/map", "Lists items; what the task runs is run for each of them."),
        "retry": described("#/$defs/retry", "What follows a failed attempt, or one whose worker was lost."),
        "downstream": {
            "type": ["string", "number", "boolean", "null"], "minLength": 1, "maxLength": limits::DOWNSTREAM_CHARS_MAX,
            "description": "What it depends on, such as a service: tasks that name the same share its circuit breaker.",
        },
        "circuit_breaker": described("#/$defs/circuitBreaker", "When the breaker of the downstream opens, and for how long."),
        "timeout": described("#/$defs/timeout", "How long an attempt may run."),
        "idempotent": truth("Whether an attempt may be repeated when nobody knows how far the last one got; default true."),
        "priority": described("#/$defs/priority", "Who goes first where workers are short."),
        "rate_limit": described("#/$defs/rateLimit", "How often its instances may start."),
        "routing": described("#/$defs/routing", "Which workers may have its instances."),
        "group": {
            "type": ["string", "number", "boolean", "null"], "minLength": 1, "maxLength": core_limits::GROUP_CHARS_MAX,
            "description": "The group of tasks that it belongs to: they are paused together, and share its limits.",
        },
        "group_limits": { "oneOf": [{ "$ref": "#/$defs/groupLimits" }, { "type": "null" }], "description": "What its group is limited to; by default what the file's `groups` says." },
        "rehearsal": described("#/$defs/rehearsal", "How its handler behaves in `punctual rehearse`. No part of the task: an edit makes no new version."),
    });
    if is_defaults {
        properties.as_object_mut().map(|map| map.remove("name"));
        // They are a task's own.
        properties["nodes"] = json!(false);
        return object(&fields::TASK[1..], &[], properties);
    }
    object(fields::TASK, &["name"], properties)
}

fn trigger(is_defaults: bool) -> Value {
    let object = object(
        fields::TRIGGER,
        &[],
        json!({
            "cron": { "type": "string", "maxLength": core_limits::CRON_EXPRESSION_BYTES_MAX, "description": "Five, six or seven fields, or @daily and the like." },
            "timezone": { "type": "string", "description": "The IANA name of the zone; default UTC." },
            "dialect": choice::<Dialect>("How to read the fields; by their number where it is left out."),
            "gap": choice::<Gap>("For wall times that do not exist; default after_gap."),
            "overlap": choice::<Overlap>("For wall times that come twice; default first."),
            "fixed_rate": duration("From fire time to fire time."),
            "fixed_delay": duration("From the end of an instance to the next fire time."),
            "starts_at": moment("Nothing fires before it; of the trigger's zone where it has no offset."),
            "ends_at": moment("Nothing fires at it or after it."),
            "calendar": {
                "oneOf": [{ "type": "string" }, { "$ref": "#/$defs/calendar" }, { "type": "null" }],
                "description": "For cron: the name of a calendar, or its days.",
            },
            "blackouts": {
                "type": "array", "maxItems": core_limits::BLACKOUTS_MAX, "items": { "$ref": "#/$defs/blackout" },
                "description": "For cron: windows in which nothing fires.",
            },
            "jitter": duration("For cron and fixed_rate: a start is put off by up to this long; at most 1d."),
            "delay": duration("Once, this long after the task was made or triggered."),
        }),
    );
    if is_defaults { object } else { exactly_one(object, fields::TRIGGER_KINDS) }
}

fn moment(description: &str) -> Value {
    json!({
        "type": ["string", "null"],
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$",
        "description": description,
    })
}

fn calendar() -> Value {
    let days = |description: &str| {
        json!({
            "type": "array",
            "items": { "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(\\.\\.[0-9]{4}-[0-9]{2}-[0-9]{2})?$" },
            "description": description,
        })
    };
    object(
        fields::CALENDAR,
        &[],
        json!({
            "exclude": days("Days on which nothing fires: dates, or ranges such as 2027-02-06..2027-02-12."),
            "include": days("Days on which it fires at its times of day, whatever its day fields say."),
        }),
    )
}

fn blackout() -> Value {
    let end = |description: &str| json!({ "type": "string", "description": description });
    let weekday = json!({ "type": "string", "pattern": "^[A-Za-z, -]+$" });
    object(
        fields::BLACKOUT,
        &["from", "to"],
        json!({
            "from": end("A time of day such as 22:00, or a time with its date."),
            "to": end("Exclusive. A time of day not after `from` is on the next day; 24:00 is the end of the day."),
            "days": {
                "oneOf": [weekday, { "type": "array", "minItems": 1, "items": weekday }],
                "description": "For times of day: the weekdays on which the window begins, such as mon-fri; all by default.",
            },
        }),
    )
}

fn command() -> Value {
    let map = object(
        fields::COMMAND,
        &[],
        json!({
            "argv": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/text" }, "description": "The program and its arguments." },
            "shell": text("A line for the shell."),
            "env": described("#/$defs/texts", "Added to the worker's own environment."),
            "working_directory": text("Where to run it; where the worker runs, by default."),
            "stdin": text("What the program reads; the payload by default."),
            "user": text("Whom to run it as; only root may."),
            "success_codes": {
                "type": "array", "minItems": 1, "items": { "type": "integer", "minimum": 0, "maximum": 255 },
                "description": "Exit codes that mean success; default [0].",
            },
        }),
    );
    json!({ "oneOf": [
        { "type": "string", "description": "Short for `shell`." },
        { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/text" }, "description": "Short for `argv`." },
        exactly_one(map, &["argv", "shell"]),
    ] })
}

fn http() -> Value {
    let url = json!({ "type": "string", "pattern": "^https?://", "maxLength": limits::URL_BYTES_MAX });
    let map = object(
        fields::HTTP,
        &["url"],
        json!({
            "url": url,
            "method": words(fields::METHODS, "Default GET."),
            "headers": described("#/$defs/texts", "Added to the worker's own."),
            "body": text("What is sent; the payload by default, unless the method is GET or HEAD."),
            "success_statuses": {
                "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/text" },
                "description": "Statuses that mean success, or ranges; default [200-299].",
            },
            "redirects": words(fields::REDIRECTS, "Where redirects may lead; default same_origin."),
        }),
    );
    json!({ "oneOf": [{ "type": "string", "pattern": "^https?://", "description": "Short for `url`." }, map] })
}

fn handler() -> Value {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": limits::HANDLER_NAME_CHARS_MAX });
    let map = object(
        fields::HANDLER,
        &["name"],
        json!({ "name": name, "config": { "type": "object", "description": "Handed to the handler as JSON." } }),
    );
    json!({ "oneOf": [{ "type": "string", "minLength": 1, "description": "Short for `name`." }, map] })
}

fn node() -> Value {
    let name = |description: &str| json!({ "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": core_limits::NAME_CHARS_MAX, "description": description });
    let nodes = json!({ "type": "array", "items": { "$ref": "#/$defs/text" } });
    object(
        fields::NODE,
        &["name"],
        json!({
            "name": name("Unique among the nodes."),
            "after": { "oneOf": [name("The node that it comes after."), nodes], "description": "The nodes that it comes after; by default none." },
            "rule": choice::<Rule>("When it starts, by what those came to; default all_succeeded."),
            "on_failure": choice::<OnFailure>("What follows when it fails; default skip_downstream."),
            "when": described("#/$defs/when", "What must hold besides for it to start; else it is skipped."),
            "command": described("#/$defs/command", "Runs a program."),
            "http": described("#/$defs/http", "Makes an HTTP call."),
            "handler": described("#/$defs/handler", "Runs a handler of your own workers."),
            "task": name("Another task: the node is a firing of it, and ends with that."),
            "payload": { "description": "Given to the handler: a text as it is, anything else as JSON." },
            "shards": described("#/$defs/shards", "Into how many instances it is divided; by default it is one."),
            "retry": described("#/$defs/retry", "What follows a failed attempt."),
            "downstream": text("What it depends on."),
            "circuit_breaker": described("#/$defs/circuitBreaker", "When the breaker of the downstream opens."),
            "timeout": described("#/$defs/timeout", "How long an attempt may run."),
            "idempotent": truth("Whether an attempt may be repeated when nobody knows how far the last one got."),
            "priority": described("#/$defs/priority", "Where it stands among what waits for a worker."),
            "routing": described("#/$defs/routing", "Which workers may have it."),
        }),
    )
}

fn when() -> Value {
    let map = object(
        fields::WHEN,
        &["node"],
        json!({
            "node": text("The node whose result is looked at; it comes before this one, near or far."),
            "pointer": { "type": "string", "description": "Where in the result, as a JSON pointer such as /rows/0; by default all of it." },
            "equals": { "description": "There is this value." },
            "not_equals": { "description": "There is a value, and another one." },
            "greater_than": { "type": "number", "description": "There is a number above this one." },
            "less_than": { "type": "number", "description": "There is a number below this one." },
            "exists": { "const": true, "description": "There is a value." },
        }),
    );
    exactly_one(map, fields::TESTS)
}

fn misfire() -> Value {
    object(
        fields::MISFIRE,
        &[],
        json!({
            "action": choice::<MisfireAction>("Default fire_once."),
            "limit": number(1, core_limits::CATCH_UP_MAX, &format!("For fire_all; default {}.", core_limits::CATCH_UP_DEFAULT)),
            "deadline": duration("A fire time later than this is skipped."),
            "rate": described("#/$defs/rateLimit", "For fire_all: how often those that are made up for begin; default all at once."),
        }),
    )
}

fn concurrency() -> Value {
    object(
        fields::CONCURRENCY,
        &[],
        json!({
            "max_running": number(1, core_limits::MAX_RUNNING_MAX, "Default 1."),
            "when_full": choice::<WhenFull>("Default queue."),
            "max_queue": number(1, core_limits::MAX_QUEUE_MAX, &format!("For queue; default {}.", core_limits::MAX_QUEUE_DEFAULT)),
            "key": { "type": "string", "pattern": "^/", "maxLength": core_limits::LIMIT_KEY_BYTES_MAX, "description": "A JSON pointer into the payload: the limit holds for each value there." },
        }),
    )
}

fn after() -> Value {
    let map = object(
        fields::AFTER,
        &["task"],
        json!({ "task": text("The task's name."), "on": choice::<On>("Which of its ends; default success.") }),
    );
    let one = json!({ "oneOf": [{ "type": "string", "minLength": 1, "description": "Short for `task`." }, map] });
    let several = json!({ "type": "array", "maxItems": core_limits::CHAINS_MAX, "items": one });
    json!({ "oneOf": [one, several] })
}

fn shards() -> Value {
    let key = json!({ "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": core_limits::SHARD_KEY_BYTES_MAX });
    json!({ "oneOf": [
        number(1, core_limits::SHARDS_MAX, "How many."),
        { "type": "array", "minItems": 1, "maxItems": core_limits::SHARDS_MAX, "items": key, "description": "One for each key." },
    ] })
}

fn map_over() -> Value {
    let one = |what: &str| {
        let handlers = json!({
            "command": described("#/$defs/command", "Runs a program."),
            "http": described("#/$defs/http", "Makes an HTTP call."),
            "handler": described("#/$defs/handler", "Runs a handler of your own workers."),
        });
        let mut one = exactly_one(object(fields::HANDLERS, &[], handlers), fields::HANDLERS);
        one["description"] = json!(what);
        one
    };
    let map = object(
        fields::MAP,
        &["list"],
        json!({
            "list": one("Lists the items: a JSON array."),
            "reduce": one("Is given the results, when all items have succeeded."),
            "parallel": number(1, core_limits::MAP_PARALLEL_MAX, "So many items run at once; default 100."),
        }),
    );
    json!({ "oneOf": [{ "type": "null" }, map] })
}

fn retry() -> Value {
    object(
        fields::RETRY,
        &[],
        json!({
            "max_attempts": number(1, core_limits::ATTEMPTS_MAX, "Attempts in all; without it a failure is final."),
            "max_losses": number(0, core_limits::ATTEMPTS_MAX, &format!("Workers that an instance may lose; default {}.", core_limits::MAX_LOSSES_DEFAULT)),
            "backoff": choice::<Backoff>("How the wait grows; default exponential."),
            "first": duration("The first wait; default 30s."),
            "cap": duration("The longest wait; default 30m."),
            "factor": { "type": "number", "minimum": 1, "maximum": limits::FACTOR_MAX, "description": "For exponential; default 2." },
            "jitter": choice::<Jitter>("How much of the wait is left to chance; default equal."),
            "on": retry_on(),
            "budget": retry_budget(),
        }),
    )
}

fn retry_on() -> Value {
    let list = |all: &RangeInclusive<u16>, description: &str| {
        json!({
            "type": "array", "minItems": 1, "description": description,
            "items": {
                "type": ["integer", "string"], "minimum": all.start(), "maximum": all.end(),
                "pattern": "^ *[0-9]{1,3} *(- *[0-9]{1,3} *)?$",
            },
        })
    };
    let mut object = object(
        fields::RETRY_ON,
        &[],
        json!({
            "exit_codes": list(&codes::EXIT_CODES, "For a command: exit codes or ranges such as 100-110; default all."),
            "statuses": list(&codes::STATUSES, "For an HTTP call: statuses or ranges such as 500-599; default all."),
            "timeouts": truth("Whether attempts that ran out of time are retried; default true."),
        }),
    );
    object["description"] = json!("Which failures are retried; a failure that has no code always is.");
    object
}

fn retry_budget() -> Value {
    let (ratio_max, per_minute_max) = (core_limits::BUDGET_RATIO_PERMILLE_MAX / 1_000, core_limits::BUDGET_PER_MINUTE_MAX);
    let mut object = object(
        fields::RETRY_BUDGET,
        &[],
        json!({
            "ratio": { "type": "number", "minimum": 0, "maximum": ratio_max, "description": "Retries for each first attempt; default 0.2." },
            "min_per_minute": number(0, per_minute_max, "Retries however few first attempts there are; default 10."),
        }),
    );
    object["type"] = json!(["object", "null"]);
    object["description"] =
        json!("How many retries the task may have in all, over the last minute; default as many as its instances have.");
    object
}

fn circuit_breaker() -> Value {
    object(
        fields::CIRCUIT_BREAKER,
        &[],
        json!({
            "failures": number(1, core_limits::BREAKER_FAILURES_MAX, "Failures in a row that open it; default 5."),
            "within": duration("In how much time they count; default 1m."),
            "open": duration("How long it stays open before an attempt probes; default 30s."),
        }),
    )
}

fn timeout() -> Value {
    object(
        fields::TIMEOUT,
        &[],
        json!({
            "after": duration("How long an attempt may run."),
            "grace": duration("From the cancel signal to the kill; default 10s."),
            "action": choice::<TimeoutAction>("Default kill."),
        }),
    )
}

fn priority() -> Value {
    let level = || {
        number(
            0,
            core_limits::LEVEL_MAX.into(),
            &format!("Inside the band the highest goes first; default {}.", core_limits::LEVEL_DEFAULT),
        )
    };
    let map = object(fields::PRIORITY, &[], json!({ "band": choice::<Band>("Default normal."), "level": level() }));
    json!({ "oneOf": [choice::<Band>("Short for `band`; default normal."), level(), map] })
}

fn rate_limit() -> Value {
    let per =
        format!("In any stretch of time of this length; {} to {}.", format(core_limits::RATE_PER_MIN), format(core_limits::RATE_PER_MAX));
    object(
        fields::RATE_LIMIT,
        &[],
        json!({
            "starts": number(1, core_limits::RATE_STARTS_MAX, "So many attempts, repeated ones included."),
            "per": duration(&per),
        }),
    )
}

fn group_limits() -> Value {
    let mut object = object(
        fields::GROUP_LIMITS,
        &[],
        json!({
            "max_running": number(1, core_limits::MAX_RUNNING_MAX, "Instances of all its tasks that may have begun and not ended."),
            "rate_limit": described("#/$defs/rateLimit", "How often one of them may begin."),
        }),
    );
    object["minProperties"] = json!(1);
    object
}

fn routing() -> Value {
    let tag = json!({ "type": "string", "pattern": "^[A-Za-z0-9_./-]+=[A-Za-z0-9_./:-]+$", "maxLength": core_limits::TAG_BYTES_MAX });
    let map = object(
        fields::ROUTING,
        &[],
        json!({
            "strategy": choice::<RoutingStrategy>("Which of several workers; default least_loaded."),
            "worker": { "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": limits::WORKER_NAME_BYTES_MAX, "description": "The one that is meant, for pinned." },
            "tags": {
                "oneOf": [
                    { "type": "object", "maxProperties": core_limits::TAGS_MAX, "additionalProperties": { "$ref": "#/$defs/text" } },
                    { "type": "array", "maxItems": core_limits::TAGS_MAX, "items": tag },
                ],
                "description": "Tags that the worker has to have, all of them: a map, or a list of key=value.",
            },
            "min_worker_version": {
                "type": ["string", "number"], "maxLength": core_limits::WORKER_VERSION_BYTES_MAX,
                "description": "The oldest version of the worker program that will do.",
            },
        }),
    );
    json!({ "oneOf": [choice::<RoutingStrategy>("Short for `strategy`."), map] })
}

fn rehearsal() -> Value {
    let percent = json!({ "oneOf": [
        { "type": "number", "minimum": 0, "maximum": 100 },
        { "type": "string", "pattern": "^(100(\\.0)?|[0-9]{1,2}(\\.[0-9])?)%?$" },
    ], "description": "Percent of the attempts that fail, at most one decimal; default 1%." });
    let pair = json!({ "type": "array", "minItems": 2, "maxItems": 2, "items": { "$ref": "#/$defs/duration" } });
    let mut object = object(
        fields::REHEARSAL,
        &[],
        json!({
            "takes": {
                "oneOf": [{ "$ref": "#/$defs/duration" }, pair],
                "description": "How long an attempt takes, or shortest and longest; default [1s, 5s].",
            },
            "fails": percent,
            "fails_for_good": truth("Whether a failure is for good, so that no retry follows; default false."),
            "stubborn": truth("Whether it ignores the cancel signal, so that it has to be killed; default false."),
            "obeys_after": duration("From the cancel signal to its end; default at once."),
            "downstream": {
                "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": limits::DOWNSTREAM_CHARS_MAX,
                "description": "The service that it calls: a retry storm makes all calls of one service fail.",
            },
        }),
    );
    object["not"] = json!({ "required": ["obeys_after", "stubborn"], "properties": { "stubborn": { "const": true } } });
    object
}
