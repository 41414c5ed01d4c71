//! What a message may hold. Checked before it is sent, so that nothing goes out that the other side is bound to refuse, and again when it
//! comes in, because the other side may be anybody.

use std::fmt;

use punctual_core::batch::Output;
use punctual_core::ids::InstanceId;
use punctual_core::limits::{
    DELAY_MAX, DETAIL_BYTES_MAX, INPUTS_BYTES_MAX, MAP_BYTES_MAX, MAP_ITEM_BYTES_MAX, MAP_ITEMS_MAX, NAME_CHARS_MAX, OUTPUT_BYTES_MAX,
    PARTITIONS_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX, SHARD_KEY_BYTES_MAX, SHARDS_MAX, TAGS_MAX,
};
use punctual_core::protocol::{Assignment, Hello, MapRole, Report};
use punctual_core::routing::{ReservedTooMany, TagSyntax, TraitsError, VersionSyntax};
use punctual_core::time::{Millis, Timestamp};

use crate::limits::{HANDLER_CONFIG_BYTES_MAX, HANDLER_NAME_CHARS_MAX, HANDLERS_MAX, RUNNING_MAX, SLOTS_MAX, WORKER_ID_BYTES_MAX};

/// A message that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}.{field} {problem}")]
pub struct Refused {
    /// The kind of message, as `worker.proto` names it.
    pub message: &'static str,
    /// The field, as `worker.proto` names it, with dots between a field and a field in it.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field. Reads on from the field's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// It has a value that this version of the protocol doesn't know.
    #[error("is {value}, which this version doesn't know")]
    UnknownValue {
        /// The value.
        value: i32,
    },
    /// It is too small or too large.
    #[error("is {value}, not {least} to {most}")]
    OutOfRange {
        /// What it is.
        value: i128,
        /// The least that it may be.
        least: i128,
        /// The most that it may be.
        most: i128,
    },
    /// It is too long.
    #[error("has {length} {unit}, more than {most}")]
    TooLong {
        /// How long it is.
        length: usize,
        /// How long it may be.
        most: usize,
        /// What its length is counted in.
        unit: Unit,
    },
    /// Instances of a partition that no cluster has.
    #[error("is of partition {partition}; there are at most {PARTITIONS_MAX}")]
    NoSuchPartition {
        /// The partition.
        partition: u16,
    },
    /// A tag that is none.
    #[error("is {0}")]
    Tag(TagSyntax),
    /// A version that is none.
    #[error("is {0}")]
    Version(VersionSyntax),
    /// More slots are reserved than there are.
    #[error("is too much: {0}")]
    Reserved(ReservedTooMany),
    /// The worker could not miss two heartbeats.
    #[error("is {heartbeat_ms}, more than a third of the lease of {lease_ms} ms")]
    TooRare {
        /// From one heartbeat to the next.
        heartbeat_ms: u64,
        /// The lease.
        lease_ms: u64,
    },
}

/// What a length is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Characters.
    Characters,
    /// Elements of a list.
    Elements,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Bytes => "bytes",
            Unit::Characters => "characters",
            Unit::Elements => "elements",
        })
    }
}

/// A kind of message: makes the errors about its fields.
#[derive(Clone, Copy)]
pub(crate) struct Kind(pub(crate) &'static str);

impl Kind {
    pub(crate) fn refuse(self, field: &'static str, problem: Problem) -> Refused {
        Refused { message: self.0, field, problem }
    }

    /// The part, which has to be there.
    pub(crate) fn need<T>(self, field: &'static str, part: Option<T>) -> Result<T, Refused> {
        part.ok_or_else(|| self.refuse(field, Problem::Missing))
    }

    fn within(self, field: &'static str, value: impl Into<i128>, least: impl Into<i128>, most: impl Into<i128>) -> Result<(), Refused> {
        let (value, least, most) = (value.into(), least.into(), most.into());
        if (least..=most).contains(&value) { Ok(()) } else { Err(self.refuse(field, Problem::OutOfRange { value, least, most })) }
    }

    fn at_most(self, field: &'static str, length: usize, most: usize, unit: Unit) -> Result<(), Refused> {
        if length <= most { Ok(()) } else { Err(self.refuse(field, Problem::TooLong { length, most, unit })) }
    }

    /// A name: not empty, and not too long.
    fn name(self, field: &'static str, name: &str, most: usize, unit: Unit) -> Result<(), Refused> {
        let length = match unit {
            Unit::Characters => name.chars().count(),
            Unit::Bytes | Unit::Elements => name.len(),
        };
        self.need(field, (length > 0).then_some(()))?;
        self.at_most(field, length, most, unit)
    }

    pub(crate) fn instance(self, field: &'static str, instance: InstanceId) -> Result<(), Refused> {
        let partition = instance.partition().0;
        if partition < PARTITIONS_MAX { Ok(()) } else { Err(self.refuse(field, Problem::NoSuchPartition { partition })) }
    }
}

pub(crate) const WELCOME: Kind = Kind("Welcome");
pub(crate) const ASSIGN: Kind = Kind("Assign");
pub(crate) const HELLO: Kind = Kind("Hello");
pub(crate) const FINISHED: Kind = Kind("Finished");

pub(crate) fn welcome(heartbeat: Millis, lease: Millis) -> Result<(), Refused> {
    WELCOME.within("heartbeat_ms", heartbeat.0, 1u8, DELAY_MAX.0)?;
    WELCOME.within("lease_ms", lease.0, 1u8, DELAY_MAX.0)?;
    if heartbeat.saturating_mul(3) <= lease {
        Ok(())
    } else {
        Err(WELCOME.refuse("heartbeat_ms", Problem::TooRare { heartbeat_ms: heartbeat.0, lease_ms: lease.0 }))
    }
}

pub(crate) fn assignment(assignment: &Assignment) -> Result<(), Refused> {
    ASSIGN.instance("attempt.instance", assignment.instance)?;
    ASSIGN.within("number", assignment.attempt, 1u8, u32::MAX)?;
    ASSIGN.name("task_name", &assignment.task_name, NAME_CHARS_MAX, Unit::Characters)?;
    ASSIGN.within("task_version", assignment.version.0, 1u8, u32::MAX)?;
    ASSIGN.within("fire_time_ms", assignment.fire_time.0, Timestamp::MIN.0, Timestamp::MAX.0)?;
    ASSIGN.name("handler.name", &assignment.handler.name, HANDLER_NAME_CHARS_MAX, Unit::Characters)?;
    ASSIGN.at_most("handler.config", assignment.handler.config.len(), HANDLER_CONFIG_BYTES_MAX, Unit::Bytes)?;
    let payload_bytes = assignment.payload.as_ref().map_or(0, |payload| payload.len());
    ASSIGN.at_most("payload", payload_bytes, PAYLOAD_BYTES_MAX, Unit::Bytes)?;
    if let Some(shard) = &assignment.shard {
        ASSIGN.within("shard.count", shard.count, 1u8, SHARDS_MAX.max(MAP_ITEMS_MAX))?;
        ASSIGN.within("shard.index", shard.index, 0u8, shard.count - 1)?;
        ASSIGN.at_most("shard.key", shard.key.as_ref().map_or(0, |key| key.len()), SHARD_KEY_BYTES_MAX, Unit::Bytes)?;
    }
    if let Some(MapRole::Reduce { results }) = &assignment.map {
        ASSIGN.at_most("results", results.len(), MAP_BYTES_MAX, Unit::Bytes)?;
    }
    if let Some(node) = &assignment.node {
        ASSIGN.name("node.name", &node.name, NAME_CHARS_MAX, Unit::Characters)?;
        ASSIGN.at_most("node.inputs", node.inputs.len(), INPUTS_BYTES_MAX, Unit::Bytes)?;
    }
    if let Some(after) = assignment.timeout.after {
        ASSIGN.within("timeout.after_ms", after.0, 0u8, DELAY_MAX.0)?;
    }
    ASSIGN.within("timeout.grace_ms", assignment.timeout.grace.0, 0u8, DELAY_MAX.0)
}

pub(crate) fn hello(hello: &Hello) -> Result<(), Refused> {
    HELLO.name("worker", &hello.worker.0, WORKER_ID_BYTES_MAX, Unit::Bytes)?;
    HELLO.within("slots", hello.slots, 1u8, SLOTS_MAX)?;
    HELLO.at_most("handlers", hello.handlers.len(), HANDLERS_MAX, Unit::Elements)?;
    for handler in &hello.handlers {
        HELLO.name("handlers", handler, HANDLER_NAME_CHARS_MAX, Unit::Characters)?;
    }
    hello.traits.check(hello.slots).map_err(|error| match error {
        TraitsError::Tag(error) => HELLO.refuse("tags", Problem::Tag(error)),
        TraitsError::TooManyTags { count } => {
            HELLO.refuse("tags", Problem::TooLong { length: count, most: TAGS_MAX, unit: Unit::Elements })
        }
        TraitsError::Reserved(error) => HELLO.refuse("reserved_urgent", Problem::Reserved(error)),
    })?;
    HELLO.at_most("running", hello.running.len(), RUNNING_MAX, Unit::Elements)?;
    hello.running.iter().try_for_each(|running| HELLO.instance("running.instance", running.instance))
}

pub(crate) fn report(report: &Report) -> Result<(), Refused> {
    FINISHED.instance("attempt.instance", report.instance)?;
    let detail_bytes = report.detail.as_ref().map_or(0, |detail| detail.len());
    FINISHED.at_most("detail", detail_bytes, DETAIL_BYTES_MAX, Unit::Bytes)?;
    let result_bytes = report.result.as_ref().map_or(0, |result| result.len());
    FINISHED.at_most("result", result_bytes, RESULT_BYTES_MAX, Unit::Bytes)?;
    let items = report.items.as_deref().unwrap_or_default();
    FINISHED.at_most("items", items.len(), MAP_BYTES_MAX, Unit::Bytes)?;
    FINISHED.at_most("items", items.lines().count(), MAP_ITEMS_MAX as usize, Unit::Elements)?;
    let longest = items.lines().map(str::len).max().unwrap_or(0);
    FINISHED.at_most("items", longest, MAP_ITEM_BYTES_MAX, Unit::Bytes)?;
    output(FINISHED, &report.output)
}

pub(crate) fn output(kind: Kind, output: &Output) -> Result<(), Refused> {
    kind.at_most("output.bytes", output.bytes.len(), OUTPUT_BYTES_MAX, Unit::Bytes)
}
