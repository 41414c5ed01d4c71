//! The JSON of a [`TaskSpec`]: keys in a fixed order, defaults left out.

use std::fmt;

use punctual_core::limits::MAP_PARALLEL_DEFAULT;
use punctual_core::time::Millis;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration;
use crate::handler::{CommandConfig, HttpConfig, Program};
use crate::spec::{
    After, CircuitBreaker, Concurrency, CronTrigger, CustomHandler, Dialect, Gap, GroupLimits, Handler, Map, Misfire, Overlap, Priority,
    RateLimit, Retry, Routing, Shards, TaskSpec, Timeout, Trigger,
};
use crate::timing::{Blackout, Days, Moment, Timing};
use crate::workflow::WorkflowNode;

/// What a task says of its trigger when it fires by hand only.
pub(crate) const MANUAL: &str = "manual";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default = "yes")]
    enabled: bool,
    trigger: Timed,
    #[serde(default)]
    after: Vec<After>,
    #[serde(default, deserialize_with = "command")]
    command: Option<CommandConfig>,
    #[serde(default)]
    http: Option<HttpConfig>,
    #[serde(default)]
    handler: Option<CustomHandler>,
    #[serde(default)]
    nodes: Vec<WorkflowNode>,
    #[serde(default)]
    payload: Option<String>,
    #[serde(default)]
    payload_schema: Option<serde_json::Value>,
    #[serde(default)]
    misfire: Misfire,
    #[serde(default)]
    concurrency: Concurrency,
    #[serde(default)]
    shards: Shards,
    #[serde(default)]
    map: Option<Map>,
    #[serde(default)]
    retry: Retry,
    #[serde(default)]
    downstream: Option<String>,
    #[serde(default)]
    circuit_breaker: Option<CircuitBreaker>,
    #[serde(default)]
    timeout: Timeout,
    #[serde(default = "yes")]
    idempotent: bool,
    #[serde(default)]
    priority: Priority,
    #[serde(default)]
    rate_limit: Option<RateLimit>,
    #[serde(default)]
    routing: Routing,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    group_limits: Option<GroupLimits>,
}

fn yes() -> bool {
    true
}

impl<'de> Deserialize<'de> for TaskSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let handler = WireHandler { command: wire.command, http: wire.http, handler: wire.handler };
        let handler = match handler {
            WireHandler { command: None, http: None, handler: None } if !wire.nodes.is_empty() => Handler::None,
            handler => Handler::try_from(handler).map_err(D::Error::custom)?,
        };
        Ok(TaskSpec {
            name: wire.name,
            description: wire.description,
            owner: wire.owner,
            enabled: wire.enabled,
            trigger: wire.trigger.trigger,
            timing: wire.trigger.timing,
            after: wire.after,
            handler,
            nodes: wire.nodes,
            payload: wire.payload,
            payload_schema: wire.payload_schema,
            misfire: wire.misfire,
            concurrency: wire.concurrency,
            shards: wire.shards,
            map: wire.map,
            retry: wire.retry,
            downstream: wire.downstream,
            circuit_breaker: wire.circuit_breaker,
            timeout: wire.timeout,
            idempotent: wire.idempotent,
            priority: wire.priority,
            rate_limit: wire.rate_limit,
            routing: wire.routing,
            group: wire.group,
            group_limits: wire.group_limits,
        })
    }
}

impl Serialize for TaskSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        differing(&mut map, "description", &self.description, &None)?;
        differing(&mut map, "owner", &self.owner, &None)?;
        differing(&mut map, "enabled", &self.enabled, &true)?;
        map.serialize_entry("trigger", &TriggerText { trigger: &self.trigger, timing: &self.timing })?;
        differing(&mut map, "after", &self.after, &Vec::new())?;
        match &self.handler {
            Handler::Command(config) => map.serialize_entry("command", config)?,
            Handler::Http(config) => map.serialize_entry("http", config)?,
            Handler::Custom(custom) => map.serialize_entry("handler", custom)?,
            Handler::None => {}
        }
        differing(&mut map, "nodes", &self.nodes, &Vec::new())?;
        differing(&mut map, "payload", &self.payload, &None)?;
        differing(&mut map, "payload_schema", &self.payload_schema, &None)?;
        differing(&mut map, "misfire", &self.misfire, &Misfire::default())?;
        differing(&mut map, "concurrency", &self.concurrency, &Concurrency::default())?;
        differing(&mut map, "shards", &self.shards, &Shards::None)?;
        differing(&mut map, "map", &self.map, &None)?;
        differing(&mut map, "retry", &self.retry, &Retry::default())?;
        differing(&mut map, "downstream", &self.downstream, &None)?;
        differing(&mut map, "circuit_breaker", &self.circuit_breaker, &None)?;
        differing(&mut map, "timeout", &self.timeout, &Timeout::default())?;
        differing(&mut map, "idempotent", &self.idempotent, &true)?;
        differing(&mut map, "priority", &self.priority, &Priority::default())?;
        differing(&mut map, "rate_limit", &self.rate_limit, &None)?;
        differing(&mut map, "routing", &self.routing, &Routing::default())?;
        differing(&mut map, "group", &self.group, &None)?;
        differing(&mut map, "group_limits", &self.group_limits, &None)?;
        map.end()
    }
}

/// A command as a task file takes it, too: a line for a shell, a list of a program and its arguments, or a map of fields.
pub(crate) fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CommandConfig>, D::Error> {
    struct Command;

    impl<'de> Visitor<'de> for Command {
        type Value = Option<CommandConfig>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a command: a text for a shell, a list of texts, or a map")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, line: &str) -> Result<Self::Value, E> {
            Ok(Some(CommandConfig::of(Program::Shell(line.to_owned()))))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            let argv = Vec::deserialize(SeqAccessDeserializer::new(list))?;
            Ok(Some(CommandConfig::of(Program::Argv(argv))))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            CommandConfig::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_any(Command)
}

/// A handler inside a map: as in the task itself, a field that says what kind it is.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireHandler {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "command")]
    command: Option<CommandConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<HttpConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handler: Option<CustomHandler>,
}

impl TryFrom<WireHandler> for Handler {
    type Error = &'static str;

    fn try_from(wire: WireHandler) -> Result<Self, Self::Error> {
        match (wire.command, wire.http, wire.handler) {
            (Some(config), None, None) => Ok(Handler::Command(config)),
            (None, Some(config), None) => Ok(Handler::Http(config)),
            (None, None, Some(custom)) => Ok(Handler::Custom(custom)),
            _ => Err("exactly one of command, http and handler is wanted"),
        }
    }
}

impl From<Handler> for WireHandler {
    fn from(handler: Handler) -> Self {
        let mut wire = WireHandler { command: None, http: None, handler: None };
        match handler {
            Handler::Command(config) => wire.command = Some(config),
            Handler::Http(config) => wire.http = Some(config),
            Handler::Custom(custom) => wire.handler = Some(custom),
            Handler::None => {}
        }
        wire
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireMap {
    list: WireHandler,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reduce: Option<WireHandler>,
    #[serde(default = "parallel", skip_serializing_if = "is_usual")]
    parallel: u32,
}

fn parallel() -> u32 {
    MAP_PARALLEL_DEFAULT
}

fn is_usual(parallel: &u32) -> bool {
    *parallel == MAP_PARALLEL_DEFAULT
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WireMap { list, reduce, parallel } = WireMap::deserialize(deserializer)?;
        let list = Handler::try_from(list).map_err(D::Error::custom)?;
        let reduce = reduce.map(Handler::try_from).transpose().map_err(D::Error::custom)?;
        Ok(Map { list, reduce, parallel })
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Map { list, reduce, parallel } = self.clone();
        WireMap { list: list.into(), reduce: reduce.map(Into::into), parallel }.serialize(serializer)
    }
}

fn differing<M: SerializeMap, T: Serialize + PartialEq + ?Sized>(map: &mut M, key: &str, value: &T, default: &T) -> Result<(), M::Error> {
    if value == default { Ok(()) } else { map.serialize_entry(key, value) }
}

/// A trigger with what refines it: one map in documents.
struct Timed {
    trigger: Trigger,
    timing: Timing,
}

/// As it is written.
struct TriggerText<'a> {
    trigger: &'a Trigger,
    timing: &'a Timing,
}

impl Serialize for TriggerText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if matches!(self.trigger, Trigger::Manual) {
            return serializer.serialize_str(MANUAL);
        }
        let mut map = serializer.serialize_map(None)?;
        match self.trigger {
            Trigger::Cron(cron) => {
                map.serialize_entry("cron", &cron.cron)?;
                differing(&mut map, "timezone", cron.timezone.as_str(), "UTC")?;
                cron.dialect.map_or(Ok(()), |dialect| map.serialize_entry("dialect", &dialect))?;
                differing(&mut map, "gap", &cron.gap, &Gap::default())?;
                differing(&mut map, "overlap", &cron.overlap, &Overlap::default())?;
            }
            Trigger::FixedRate(interval) => map.serialize_entry("fixed_rate", &duration::format(*interval))?,
            Trigger::FixedDelay(interval) => map.serialize_entry("fixed_delay", &duration::format(*interval))?,
            Trigger::Delay(delay) => map.serialize_entry("delay", &duration::format(*delay))?,
            Trigger::Manual => {}
        }
        let Timing { starts_at, ends_at, calendar, blackouts, jitter } = self.timing;
        starts_at.map_or(Ok(()), |at| map.serialize_entry("starts_at", &at))?;
        ends_at.map_or(Ok(()), |at| map.serialize_entry("ends_at", &at))?;
        calendar.as_ref().map_or(Ok(()), |days| map.serialize_entry("calendar", days))?;
        if !blackouts.is_empty() {
            map.serialize_entry("blackouts", blackouts)?;
        }
        if *jitter > Millis::ZERO {
            map.serialize_entry("jitter", &duration::format(*jitter))?;
        }
        map.end()
    }
}

impl Serialize for Trigger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TriggerText { trigger: self, timing: &Timing::default() }.serialize(serializer)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct TriggerWire {
    cron: Option<String>,
    timezone: Option<String>,
    dialect: Option<Dialect>,
    gap: Option<Gap>,
    overlap: Option<Overlap>,
    #[serde(with = "duration::optional_text")]
    fixed_rate: Option<Millis>,
    #[serde(with = "duration::optional_text")]
    fixed_delay: Option<Millis>,
    #[serde(with = "duration::optional_text")]
    delay: Option<Millis>,
    starts_at: Option<Moment>,
    ends_at: Option<Moment>,
    calendar: Option<Days>,
    blackouts: Vec<Blackout>,
    #[serde(with = "duration::optional_text")]
    jitter: Option<Millis>,
}

struct TriggerVisitor;

impl<'de> Visitor<'de> for TriggerVisitor {
    type Value = Timed;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a trigger: a map, or `manual`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timed, E> {
        match text {
            MANUAL => Ok(Timed { trigger: Trigger::Manual, timing: Timing::default() }),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Timed, A::Error> {
        let wire = TriggerWire::deserialize(MapAccessDeserializer::new(map))?;
        let has_cron_options = wire.timezone.is_some() || wire.dialect.is_some() || wire.gap.is_some() || wire.overlap.is_some();
        let trigger = match (wire.cron, wire.fixed_rate, wire.fixed_delay, wire.delay) {
            (Some(cron), None, None, None) => Trigger::Cron(CronTrigger {
                timezone: wire.timezone.unwrap_or_else(|| "UTC".to_owned()),
                dialect: wire.dialect,
                gap: wire.gap.unwrap_or_default(),
                overlap: wire.overlap.unwrap_or_default(),
                ..CronTrigger::new(cron)
            }),
            (None, Some(interval), None, None) if !has_cron_options => Trigger::FixedRate(interval),
            (None, None, Some(interval), None) if !has_cron_options => Trigger::FixedDelay(interval),
            (None, None, None, Some(delay)) if !has_cron_options => Trigger::Delay(delay),
            _ => {
                return Err(A::Error::custom(
                    "exactly one of cron, fixed_rate, fixed_delay and delay is wanted, and options of cron only with it",
                ));
            }
        };
        let TriggerWire { starts_at, ends_at, calendar, blackouts, jitter, .. } = wire;
        let timing = Timing { starts_at, ends_at, calendar, blackouts, jitter: jitter.unwrap_or_default() };
        Ok(Timed { trigger, timing })
    }
}

impl<'de> Deserialize<'de> for Timed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TriggerVisitor)
    }
}
