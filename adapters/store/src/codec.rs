//! How values without a column of their own are packed: an instance's transitions and an inbox entry's request.
//!
//! A first byte names the layout. Numbers are LEB128 varints, signed ones zigzag; text is its length and its bytes. Instants and fences
//! are differences to the one before, and a worker that is the one before is not repeated: a usual life of five transitions takes about
//! forty bytes.

use std::sync::Arc;

use punctual_core::backfill::BackfillPlan;
use punctual_core::batch::{GroupSlot, Reference};
use punctual_core::definition::{ChainOn, GroupLimits};
use punctual_core::ids::{Fence, InboxId, InstanceId, PartitionId, TaskId, WorkerId};
use punctual_core::inbox::{DelayedChange, NodeMark, Notice, Rerun, RerunFrom, Submission};
use punctual_core::instance::{CallLink, Cause, InstanceRow, Links, MapPhase, MapProgress, ShardsAgain, SlotLink, State, Transition};
use punctual_core::pause::PauseScope;
use punctual_core::rate::RateLimit;
use punctual_core::time::{Millis, Timestamp};
use punctual_core::workflow::NodeIndex;
use punctual_driver::accounts::{Grant, Role};

use crate::codes::Coded;

/// The layout that is written.
const LAYOUT: u8 = 1;

const HAS_WORKER: u8 = 1;
const SAME_WORKER: u8 = 2;
const HAS_CODE: u8 = 4;
const HAS_DETAIL: u8 = 8;

const HAS_KEY: u8 = 1;
const HAS_PAYLOAD: u8 = 2;
const HAS_DELAY: u8 = 4;

/// What is wrong with packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "packed bytes are malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(u8::from(text.is_some()));
    text.iter().for_each(|text| put_text(out, text));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("they end too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed("a number is too long"))
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed("a number is too large"))
    }

    fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed("a length is too large"))?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Malformed("they end too early"))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| Malformed("text is not UTF-8"))
    }

    fn optional(&mut self) -> Result<Option<Arc<str>>, Malformed> {
        Ok(if self.byte()? == 0 { None } else { Some(self.text()?.into()) })
    }

    /// How many elements follow. Each takes a byte at least, which bounds what a damaged count can allocate.
    fn count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.number()?).map_err(|_| Malformed("a count is too large"))?;
        if count > self.0.len() { Err(Malformed("a count is too large")) } else { Ok(count) }
    }

    fn layout(&mut self) -> Result<(), Malformed> {
        if self.byte()? == LAYOUT { Ok(()) } else { Err(Malformed("their layout is unknown")) }
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("something follows their end")) }
    }
}

/// Appends the packed transitions to `out`.
pub(crate) fn put_transitions(out: &mut Vec<u8>, transitions: &[Transition]) {
    out.push(LAYOUT);
    put_number(out, transitions.len() as u64);
    let mut at_before = 0_i64;
    let mut fence_before = 0_i64;
    let mut worker_before: Option<&WorkerId> = None;
    for transition in transitions {
        let same_worker = transition.worker.is_some() && transition.worker.as_ref() == worker_before;
        let mut flags = 0;
        if transition.worker.is_some() {
            flags |= if same_worker { SAME_WORKER } else { HAS_WORKER };
        }
        if transition.code.is_some() {
            flags |= HAS_CODE;
        }
        if transition.detail.is_some() {
            flags |= HAS_DETAIL;
        }
        out.extend_from_slice(&[flags, transition.from.map_or(0, |from| from.code() + 1), transition.to.code(), transition.cause.code()]);
        put_signed(out, transition.at.0.wrapping_sub(at_before));
        put_number(out, u64::from(transition.attempt));
        let fence = transition.fence.0.cast_signed();
        put_signed(out, fence.wrapping_sub(fence_before));
        if let Some(worker) = &transition.worker {
            if !same_worker {
                put_text(out, &worker.0);
            }
            worker_before = Some(worker);
        }
        if let Some(code) = transition.code {
            put_signed(out, i64::from(code));
        }
        if let Some(detail) = &transition.detail {
            put_text(out, detail);
        }
        at_before = transition.at.0;
        fence_before = fence;
    }
}

/// The transitions that were packed.
pub(crate) fn transitions(bytes: &[u8]) -> Result<Vec<Transition>, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let count = reader.count()?;
    let mut transitions = Vec::with_capacity(count);
    let mut at_before = 0_i64;
    let mut fence_before = 0_i64;
    let mut worker_before: Option<WorkerId> = None;
    for _ in 0..count {
        let flags = reader.byte()?;
        let from = match reader.byte()? {
            0 => None,
            code => Some(State::from_code(code - 1).ok_or(Malformed("a state is unknown"))?),
        };
        let to = State::from_code(reader.byte()?).ok_or(Malformed("a state is unknown"))?;
        let cause = Cause::from_code(reader.byte()?).ok_or(Malformed("a cause is unknown"))?;
        at_before = at_before.wrapping_add(reader.signed()?);
        let attempt = reader.small()?;
        fence_before = fence_before.wrapping_add(reader.signed()?);
        let worker = if flags & HAS_WORKER != 0 {
            worker_before = Some(WorkerId(reader.text()?.into()));
            worker_before.clone()
        } else if flags & SAME_WORKER != 0 {
            Some(worker_before.clone().ok_or(Malformed("a worker is repeated before it is named"))?)
        } else {
            None
        };
        let code =
            if flags & HAS_CODE != 0 { Some(i32::try_from(reader.signed()?).map_err(|_| Malformed("a code is too large"))?) } else { None };
        let detail = if flags & HAS_DETAIL != 0 { Some(reader.text()?.into()) } else { None };
        let fence = Fence(fence_before.cast_unsigned());
        transitions.push(Transition { from, to, cause, at: Timestamp(at_before), attempt, fence, worker, code, detail });
    }
    reader.end()?;
    Ok(transitions)
}

const HAS_PARENT: u8 = 1;
const HAS_SHARD_KEY: u8 = 2;
const HAS_CAUSE: u8 = 4;
const HAS_RESULT: u8 = 8;
const HAS_LINKS: u8 = 16;
/// Another byte of flags follows all that these speak of, and what those speak of.
const HAS_FURTHER: u8 = 32;
const HAS_CARRIED: u8 = 1;
const IS_FOR_WORKER: u8 = 2;
const HAS_AGAIN: u8 = 4;
const HAS_MAP: u8 = 8;
const HAS_SLOT: u8 = 16;
const SLOT_IS_GRANTED: u8 = 32;
const HAS_NODES: u8 = 64;
const HAS_CALL: u8 = 128;

const CALLS: u8 = 0;
const HAS_CALLED: u8 = 1;
const CALLED_BY: u8 = 2;

/// What few instances have, packed: links and result; `None` where there is neither.
pub(crate) fn pack_more(row: &InstanceRow) -> Option<Vec<u8>> {
    if row.links.is_none() && row.result.is_none() {
        return None;
    }
    let none = Links::default();
    let links = row.links.as_deref().unwrap_or(&none);
    let mut out = vec![LAYOUT, 0];
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    out[1] = flag(row.links.is_some(), HAS_LINKS)
        | flag(links.parent.is_some(), HAS_PARENT)
        | flag(links.shard_key.is_some(), HAS_SHARD_KEY)
        | flag(links.cause.is_some(), HAS_CAUSE)
        | flag(row.result.is_some(), HAS_RESULT);
    let further = flag(links.carried > 0, HAS_CARRIED)
        | flag(links.is_for_worker, IS_FOR_WORKER)
        | flag(links.again.is_some(), HAS_AGAIN)
        | flag(links.map.is_some(), HAS_MAP)
        | flag(links.slot.is_some(), HAS_SLOT)
        | flag(links.slot.as_ref().is_some_and(|slot| slot.is_granted), SLOT_IS_GRANTED)
        | flag(links.nodes > 0, HAS_NODES)
        | flag(links.call.is_some(), HAS_CALL);
    out[1] |= flag(further != 0, HAS_FURTHER);
    put_number(&mut out, u64::from(links.shards));
    put_number(&mut out, u64::from(links.hops));
    links.parent.iter().chain(&links.cause).for_each(|id| put_number(&mut out, id.0));
    links.shard_key.iter().chain(&row.result).for_each(|text| put_text(&mut out, text));
    if further != 0 {
        out.push(further);
        if links.carried > 0 {
            put_number(&mut out, u64::from(links.carried));
        }
        links.again.iter().for_each(|again| put_shards_again(&mut out, again));
        if let Some(MapProgress { phase, made, result_bytes }) = links.map.as_deref() {
            out.push(phase.code());
            put_number(&mut out, u64::from(*made));
            put_number(&mut out, *result_bytes);
        }
        links.slot.iter().for_each(|slot| put_text(&mut out, &slot.group));
        if links.nodes > 0 {
            put_number(&mut out, u64::from(links.nodes));
        }
        links.call.iter().for_each(|call| put_call(&mut out, call));
    }
    Some(out)
}

fn put_call(out: &mut Vec<u8>, call: &CallLink) {
    match call {
        CallLink::Calls { task, instance } => {
            out.push(if instance.is_some() { HAS_CALLED } else { CALLS });
            put_text(out, task);
            instance.iter().for_each(|instance| put_number(out, instance.0));
        }
        CallLink::CalledBy { task } => {
            out.push(CALLED_BY);
            put_number(out, task.0);
        }
    }
}

fn call(reader: &mut Reader<'_>) -> Result<CallLink, Malformed> {
    match reader.byte()? {
        CALLS => Ok(CallLink::Calls { task: reader.text()?.into(), instance: None }),
        HAS_CALLED => Ok(CallLink::Calls { task: reader.text()?.into(), instance: Some(InstanceId(reader.number()?)) }),
        CALLED_BY => Ok(CallLink::CalledBy { task: TaskId(reader.number()?) }),
        _ => Err(Malformed("a call is of an unknown kind")),
    }
}

fn put_shards_again(out: &mut Vec<u8>, again: &ShardsAgain) {
    put_number(out, u64::from(again.count));
    out.push(u8::from(again.are_for_workers));
    put_number(out, again.shards.len() as u64);
    for (index, key) in &again.shards {
        put_number(out, u64::from(*index));
        out.push(u8::from(key.is_some()));
        key.iter().for_each(|key| put_text(out, key));
    }
}

fn shards_again(reader: &mut Reader<'_>) -> Result<ShardsAgain, Malformed> {
    let (count, are_for_workers) = (reader.small()?, reader.byte()? != 0);
    let mut shards = Vec::with_capacity(reader.count()?);
    for _ in 0..shards.capacity() {
        let index = reader.small()?;
        let key = if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) };
        shards.push((index, key));
    }
    // What is made of them counts on that.
    if shards.is_empty() || shards.len() > count as usize || !shards.is_sorted_by(|(one, _), (next, _)| one < next) {
        return Err(Malformed("shards are not in order"));
    }
    Ok(ShardsAgain { count, are_for_workers, shards })
}

/// Links and result of an instance.
type More = (Option<Box<Links>>, Option<Arc<str>>);

/// The links and the result that were packed.
pub(crate) fn more(bytes: Option<&[u8]>) -> Result<More, Malformed> {
    let Some(bytes) = bytes else { return Ok((None, None)) };
    let mut reader = Reader(bytes);
    reader.layout()?;
    let flags = reader.byte()?;
    let mut links = Links { shards: reader.small()?, hops: reader.small()?, ..Links::default() };
    if flags & HAS_PARENT != 0 {
        links.parent = Some(InstanceId(reader.number()?));
    }
    if flags & HAS_CAUSE != 0 {
        links.cause = Some(InstanceId(reader.number()?));
    }
    if flags & HAS_SHARD_KEY != 0 {
        links.shard_key = Some(reader.text()?.into());
    }
    let result = if flags & HAS_RESULT != 0 { Some(reader.text()?.into()) } else { None };
    if flags & HAS_FURTHER != 0 {
        let further = reader.byte()?;
        if further & HAS_CARRIED != 0 {
            links.carried = reader.small()?;
        }
        links.is_for_worker = further & IS_FOR_WORKER != 0;
        if further & HAS_AGAIN != 0 {
            links.again = Some(Box::new(shards_again(&mut reader)?));
        }
        if further & HAS_MAP != 0 {
            let phase = MapPhase::from_code(reader.byte()?).ok_or(Malformed("a phase is unknown"))?;
            links.map = Some(Box::new(MapProgress { phase, made: reader.small()?, result_bytes: reader.number()? }));
        }
        if further & HAS_SLOT != 0 {
            links.slot = Some(SlotLink { group: reader.text()?.into(), is_granted: further & SLOT_IS_GRANTED != 0 });
        }
        if further & HAS_NODES != 0 {
            links.nodes = reader.small()?;
        }
        if further & HAS_CALL != 0 {
            links.call = Some(Box::new(call(&mut reader)?));
        }
    }
    reader.end()?;
    Ok(((flags & HAS_LINKS != 0).then(|| Box::new(links)), result))
}

const NOTICE_CHAINED: u8 = 1;
const NOTICE_GROUP_ASK: u8 = 30;
const NOTICE_GROUP_GRANT: u8 = 31;
const NOTICE_GROUP_RELEASE: u8 = 32;
const NOTICE_CALLED: u8 = 33;
const NOTICE_CALL_CANCELLED: u8 = 34;
const NOTICE_CALL_ENDED: u8 = 35;

/// A packed notice, without the task that it is for.
pub(crate) fn pack_notice(notice: &Notice) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    match notice {
        Notice::Chained { task: _, cause, hops, payload } => {
            out.push(NOTICE_CHAINED);
            put_number(&mut out, cause.0);
            put_number(&mut out, u64::from(*hops));
            out.push(u8::from(payload.is_some()));
            payload.iter().for_each(|payload| put_text(&mut out, payload));
        }
        Notice::GroupAsk { group, instance, task, limits } => {
            out.push(NOTICE_GROUP_ASK);
            put_text(&mut out, group);
            put_number(&mut out, instance.0);
            put_number(&mut out, task.0);
            put_limits(&mut out, limits);
        }
        Notice::GroupGrant { task: _, instance } => {
            out.push(NOTICE_GROUP_GRANT);
            put_number(&mut out, instance.0);
        }
        Notice::GroupRelease { group, instance } => {
            out.push(NOTICE_GROUP_RELEASE);
            put_text(&mut out, group);
            put_number(&mut out, instance.0);
        }
        Notice::Called { name, task: _, caller, caller_task, hops, payload } => {
            out.push(NOTICE_CALLED);
            put_text(&mut out, name);
            [caller.0, caller_task.0, u64::from(*hops)].into_iter().for_each(|number| put_number(&mut out, number));
            put_optional(&mut out, payload.as_deref());
        }
        Notice::CallCancelled { name, task: _, caller, is_killed } => {
            out.push(NOTICE_CALL_CANCELLED);
            put_text(&mut out, name);
            put_number(&mut out, caller.0);
            out.push(u8::from(*is_killed));
        }
        Notice::CallEnded { task: _, caller, instance, state, result, detail } => {
            out.push(NOTICE_CALL_ENDED);
            put_number(&mut out, caller.0);
            out.push(u8::from(instance.is_some()));
            instance.iter().for_each(|instance| put_number(&mut out, instance.0));
            out.push(state.code());
            put_optional(&mut out, result.as_deref());
            put_optional(&mut out, detail.as_deref());
        }
    }
    out
}

const HAS_MAX_RUNNING: u8 = 1;
const HAS_RATE: u8 = 2;

fn put_limits(out: &mut Vec<u8>, limits: &GroupLimits) {
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    out.push(flag(limits.max_running.is_some(), HAS_MAX_RUNNING) | flag(limits.rate.is_some(), HAS_RATE));
    limits.max_running.iter().for_each(|most| put_number(out, u64::from(*most)));
    if let Some(rate) = &limits.rate {
        put_number(out, u64::from(rate.starts));
        put_number(out, rate.per.0);
    }
}

fn limits(reader: &mut Reader<'_>) -> Result<GroupLimits, Malformed> {
    let flags = reader.byte()?;
    let max_running = if flags & HAS_MAX_RUNNING != 0 { Some(reader.small()?) } else { None };
    let rate = if flags & HAS_RATE != 0 { Some(RateLimit { starts: reader.small()?, per: Millis(reader.number()?) }) } else { None };
    Ok(GroupLimits { max_running, rate })
}

/// A packed slot of a group, without its instance and the group's partition.
pub(crate) fn pack_slot(slot: &GroupSlot) -> Vec<u8> {
    let mut out = vec![LAYOUT, u8::from(slot.is_granted)];
    put_text(&mut out, &slot.group);
    put_number(&mut out, slot.task.0);
    put_number(&mut out, slot.place.0);
    put_limits(&mut out, &slot.limits);
    out
}

/// The slot that was packed.
pub(crate) fn slot(partition: PartitionId, instance: InstanceId, bytes: &[u8]) -> Result<GroupSlot, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let is_granted = reader.byte()? != 0;
    let (group, task, place) = (reader.text()?.into(), TaskId(reader.number()?), InboxId(reader.number()?));
    let limits = limits(&mut reader)?;
    reader.end()?;
    Ok(GroupSlot { partition, group, instance, task, place, limits, is_granted })
}

/// The notice that was packed.
pub(crate) fn notice(task: TaskId, bytes: &[u8]) -> Result<Notice, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let notice = match reader.byte()? {
        NOTICE_CHAINED => Notice::Chained {
            task,
            cause: InstanceId(reader.number()?),
            hops: reader.small()?,
            payload: if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) },
        },
        NOTICE_GROUP_ASK => Notice::GroupAsk {
            group: reader.text()?.into(),
            instance: InstanceId(reader.number()?),
            task: TaskId(reader.number()?),
            limits: limits(&mut reader)?,
        },
        NOTICE_GROUP_GRANT => Notice::GroupGrant { task, instance: InstanceId(reader.number()?) },
        NOTICE_GROUP_RELEASE => Notice::GroupRelease { group: reader.text()?.into(), instance: InstanceId(reader.number()?) },
        NOTICE_CALLED => Notice::Called {
            name: reader.text()?.into(),
            task: found(task),
            caller: InstanceId(reader.number()?),
            caller_task: TaskId(reader.number()?),
            hops: reader.small()?,
            payload: reader.optional()?,
        },
        NOTICE_CALL_CANCELLED => Notice::CallCancelled {
            name: reader.text()?.into(),
            task: found(task),
            caller: InstanceId(reader.number()?),
            is_killed: reader.byte()? != 0,
        },
        NOTICE_CALL_ENDED => Notice::CallEnded {
            task,
            caller: InstanceId(reader.number()?),
            instance: if reader.byte()? == 0 { None } else { Some(InstanceId(reader.number()?)) },
            state: State::from_code(reader.byte()?).ok_or(Malformed("a state is unknown"))?,
            result: reader.optional()?,
            detail: reader.optional()?,
        },
        _ => return Err(Malformed("a notice is of an unknown kind")),
    };
    reader.end()?;
    Ok(notice)
}

/// The task that an entry was written for; none has the number 0.
fn found(task: TaskId) -> Option<TaskId> {
    (task != TaskId(0)).then_some(task)
}

/// What a task's ends make fire, packed.
pub(crate) fn pack_references(references: &[Reference]) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, references.len() as u64);
    for reference in references {
        put_number(&mut out, reference.to.0);
        put_number(&mut out, u64::from(reference.partition.0));
        out.push(reference.on.code());
    }
    out
}

/// The references that were packed.
pub(crate) fn references(from: TaskId, bytes: &[u8]) -> Result<Vec<Reference>, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let count = reader.count()?;
    let mut references = Vec::with_capacity(count);
    for _ in 0..count {
        references.push(Reference {
            from,
            to: TaskId(reader.number()?),
            partition: PartitionId(u16::try_from(reader.number()?).map_err(|_| Malformed("a partition is too large"))?),
            on: ChainOn::from_code(reader.byte()?).ok_or(Malformed("a condition is unknown"))?,
        });
    }
    reader.end()?;
    Ok(references)
}

/// The packed submissions of a manual trigger.
pub(crate) fn pack_submissions(submissions: &[Submission]) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, submissions.len() as u64);
    for submission in submissions {
        let mut flags = 0;
        if submission.key.is_some() {
            flags |= HAS_KEY;
        }
        if submission.payload.is_some() {
            flags |= HAS_PAYLOAD;
        }
        if submission.delay.is_some() {
            flags |= HAS_DELAY;
        }
        out.push(flags);
        if let Some(key) = &submission.key {
            put_text(&mut out, key);
        }
        if let Some(payload) = &submission.payload {
            put_text(&mut out, payload);
        }
        if let Some(delay) = submission.delay {
            put_number(&mut out, delay.0);
        }
    }
    out
}

/// The submissions that were packed.
pub(crate) fn submissions(bytes: &[u8]) -> Result<Vec<Submission>, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let count = reader.count()?;
    let mut submissions = Vec::with_capacity(count);
    for _ in 0..count {
        let flags = reader.byte()?;
        let key = if flags & HAS_KEY != 0 { Some(reader.text()?.into()) } else { None };
        let payload = if flags & HAS_PAYLOAD != 0 { Some(reader.text()?.into()) } else { None };
        let delay = if flags & HAS_DELAY != 0 { Some(Millis(reader.number()?)) } else { None };
        submissions.push(Submission { key, payload, delay });
    }
    reader.end()?;
    Ok(submissions)
}

/// A packed cancellation.
pub(crate) fn pack_cancel(instance: InstanceId, reason: Option<&str>) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, instance.0);
    if let Some(reason) = reason {
        out.push(1);
        put_text(&mut out, reason);
    } else {
        out.push(0);
    }
    out
}

/// The cancellation that was packed.
pub(crate) fn cancel(bytes: &[u8]) -> Result<(InstanceId, Option<Arc<str>>), Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let instance = InstanceId(reader.number()?);
    let reason = if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) };
    reader.end()?;
    Ok((instance, reason))
}

const PAUSE_ALL: u8 = 0;
const PAUSE_GROUP: u8 = 1;
const PAUSE_TASK: u8 = 2;
const PAUSE_WORKER: u8 = 3;

/// A packed pause, or the end of one.
pub(crate) fn pack_pause(scope: &PauseScope, is_paused: bool) -> Vec<u8> {
    let mut out = vec![LAYOUT, u8::from(is_paused)];
    match scope {
        PauseScope::All => out.push(PAUSE_ALL),
        PauseScope::Group(group) => {
            out.push(PAUSE_GROUP);
            put_text(&mut out, group);
        }
        PauseScope::Task(task) => {
            out.push(PAUSE_TASK);
            put_number(&mut out, task.0);
        }
        PauseScope::Worker(worker) => {
            out.push(PAUSE_WORKER);
            put_text(&mut out, &worker.0);
        }
    }
    out
}

/// The pause that was packed, and whether it holds.
pub(crate) fn pause(bytes: &[u8]) -> Result<(PauseScope, bool), Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let is_paused = reader.byte()? != 0;
    let scope = match reader.byte()? {
        PAUSE_ALL => PauseScope::All,
        PAUSE_GROUP => PauseScope::Group(reader.text()?.into()),
        PAUSE_TASK => PauseScope::Task(TaskId(reader.number()?)),
        PAUSE_WORKER => PauseScope::Worker(WorkerId(reader.text()?.into())),
        _ => return Err(Malformed("a pause is of an unknown kind")),
    };
    reader.end()?;
    Ok((scope, is_paused))
}

const DELAYED_CANCEL: u8 = 0;
const DELAYED_RESCHEDULE: u8 = 1;

/// A packed change to a manual trigger that is not due yet, without its task.
pub(crate) fn pack_delayed(ordinal: u64, change: DelayedChange, reason: Option<&str>) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, ordinal);
    match change {
        DelayedChange::Cancel => out.push(DELAYED_CANCEL),
        DelayedChange::Reschedule(to) => {
            out.push(DELAYED_RESCHEDULE);
            put_signed(&mut out, to.0);
        }
    }
    out.push(u8::from(reason.is_some()));
    reason.iter().for_each(|reason| put_text(&mut out, reason));
    out
}

/// A change to a manual trigger that is not due yet: its ordinal, what becomes of it, and why.
type Delayed = (u64, DelayedChange, Option<Arc<str>>);

/// The change that was packed.
pub(crate) fn delayed(bytes: &[u8]) -> Result<Delayed, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let ordinal = reader.number()?;
    let change = match reader.byte()? {
        DELAYED_CANCEL => DelayedChange::Cancel,
        DELAYED_RESCHEDULE => DelayedChange::Reschedule(Timestamp(reader.signed()?)),
        _ => return Err(Malformed("a change is of an unknown kind")),
    };
    let reason = if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) };
    reader.end()?;
    Ok((ordinal, change, reason))
}

/// What somebody says of a node, packed.
pub(crate) fn pack_mark(instance: InstanceId, node: NodeIndex, mark: NodeMark, reason: Option<&str>) -> Vec<u8> {
    let mut out = pack_cancel(instance, reason);
    put_number(&mut out, u64::from(node.0));
    out.push(mark.code());
    out
}

/// What was said of a node.
#[derive(Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) instance: InstanceId,
    pub(crate) node: NodeIndex,
    pub(crate) mark: NodeMark,
    pub(crate) reason: Option<Arc<str>>,
}

/// What was said of a node and packed.
pub(crate) fn mark(bytes: &[u8]) -> Result<Mark, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let instance = InstanceId(reader.number()?);
    let reason = if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) };
    let node = NodeIndex(reader.small()?);
    let mark = NodeMark::from_code(reader.byte()?).ok_or(Malformed("a mark is unknown"))?;
    reader.end()?;
    Ok(Mark { instance, node, mark, reason })
}

const HAS_REASON: u8 = 4;
const HAS_FROM: u8 = 8;
const CASCADES: u8 = 16;

/// A packed backfill, without its task.
pub(crate) fn pack_backfill(plan: &BackfillPlan) -> Vec<u8> {
    let mut out = vec![LAYOUT, u8::from(plan.reason.is_some())];
    plan.reason.iter().for_each(|reason| put_text(&mut out, reason));
    put_number(&mut out, u64::from(plan.concurrency));
    put_number(&mut out, plan.fire_times.len() as u64);
    let mut before = 0_i64;
    for fire_time in plan.fire_times.iter() {
        put_signed(&mut out, fire_time.0.wrapping_sub(before));
        before = fire_time.0;
    }
    out
}

/// The backfill that was packed.
pub(crate) fn backfill(task: TaskId, bytes: &[u8]) -> Result<BackfillPlan, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let reason = if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) };
    let concurrency = reader.small()?;
    let count = reader.count()?;
    let mut fire_times = Vec::with_capacity(count);
    let mut before = 0_i64;
    for _ in 0..count {
        before = before.wrapping_add(reader.signed()?);
        fire_times.push(Timestamp(before));
    }
    reader.end()?;
    Ok(BackfillPlan { task, fire_times: fire_times.into(), concurrency, reason })
}

/// The packed end of a backfill.
pub(crate) fn pack_backfill_cancel(backfill: InboxId, reason: Option<&str>) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, backfill.0);
    out.push(u8::from(reason.is_some()));
    reason.iter().for_each(|reason| put_text(&mut out, reason));
    out
}

/// The end of a backfill that was packed.
pub(crate) fn backfill_cancel(bytes: &[u8]) -> Result<(InboxId, Option<Arc<str>>), Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let backfill = InboxId(reader.number()?);
    let reason = if reader.byte()? == 0 { None } else { Some(reader.text()?.into()) };
    reader.end()?;
    Ok((backfill, reason))
}

/// A packed rerun, without the task that it is of.
pub(crate) fn pack_rerun(of: &Rerun) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, of.instance.0);
    put_signed(&mut out, of.fire_time.0);
    put_number(&mut out, of.ordinal);
    put_number(&mut out, u64::from(of.run));
    put_number(&mut out, u64::from(of.hops));
    let texts = [(&of.key, HAS_KEY), (&of.payload, HAS_PAYLOAD), (&of.reason, HAS_REASON)];
    let flags: u8 = texts.iter().filter(|(text, _)| text.is_some()).map(|(_, flag)| flag).sum();
    let from = of.from.as_deref();
    let of_nodes = if from.is_some() { HAS_FROM } else { 0 } | if from.is_some_and(|from| from.cascade) { CASCADES } else { 0 };
    out.push(flags | of_nodes);
    texts.iter().filter_map(|(text, _)| text.as_ref()).for_each(|text| put_text(&mut out, text));
    out.push(u8::from(of.shards.is_some()));
    of.shards.iter().for_each(|again| put_shards_again(&mut out, again));
    if let Some(from) = from {
        put_number(&mut out, from.nodes.len() as u64);
        from.nodes.iter().for_each(|node| put_text(&mut out, node));
    }
    out
}

/// The rerun that was packed.
pub(crate) fn rerun(task: TaskId, bytes: &[u8]) -> Result<Rerun, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let (instance, fire_time) = (InstanceId(reader.number()?), Timestamp(reader.signed()?));
    let (ordinal, run, hops) = (reader.number()?, reader.small()?, reader.small()?);
    let flags = reader.byte()?;
    let mut text = |flag: u8| if flags & flag != 0 { reader.text().map(|text| Some(text.into())) } else { Ok(None) };
    let (key, payload, reason) = (text(HAS_KEY)?, text(HAS_PAYLOAD)?, text(HAS_REASON)?);
    // Entries from before there was a choice end here.
    let shards = if reader.0.is_empty() || reader.byte()? == 0 { None } else { Some(Box::new(shards_again(&mut reader)?)) };
    let mut from = None;
    if flags & HAS_FROM != 0 {
        let count = reader.count()?;
        let nodes = (0..count).map(|_| Ok(reader.text()?.into())).collect::<Result<_, Malformed>>()?;
        from = Some(Box::new(RerunFrom { nodes, cascade: flags & CASCADES != 0, ended: Vec::new() }));
    }
    reader.end()?;
    Ok(Rerun { instance, task, fire_time, ordinal, run, hops, payload, key, reason, shards, from })
}

/// Packs what somebody may do.
pub(crate) fn pack_grants(grants: &[Grant]) -> Vec<u8> {
    let mut out = vec![LAYOUT];
    put_number(&mut out, grants.len() as u64);
    for grant in grants {
        out.push(grant.role.code());
        out.push(u8::from(grant.group.is_some()));
        if let Some(group) = &grant.group {
            put_text(&mut out, group);
        }
    }
    out
}

/// What [`pack_grants`] has packed.
pub(crate) fn grants(bytes: &[u8]) -> Result<Arc<[Grant]>, Malformed> {
    let mut reader = Reader(bytes);
    reader.layout()?;
    let count = reader.count()?;
    let mut grants = Vec::with_capacity(count);
    for _ in 0..count {
        let role = Role::from_code(reader.byte()?).ok_or(Malformed("a role is unknown"))?;
        let group = if reader.byte()? == 0 { None } else { Some(Arc::from(reader.text()?)) };
        grants.push(Grant { role, group });
    }
    reader.end()?;
    Ok(grants.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_transition() -> impl Strategy<Value = Transition> {
        let worker = proptest::option::of(prop_oneof![Just("w1".to_owned()), Just("w2".to_owned()), ".{0,20}"]);
        (
            proptest::option::of(proptest::sample::select(&State::ALL[..])),
            proptest::sample::select(&State::ALL[..]),
            proptest::sample::select(&Cause::ALL[..]),
            any::<(i64, u32, u64, Option<i32>, Option<String>)>(),
            worker,
        )
            .prop_map(|(from, to, cause, (at, attempt, fence, code, detail), worker)| Transition {
                from,
                to,
                cause,
                at: Timestamp(at),
                attempt,
                fence: Fence(fence),
                worker: worker.map(|id| WorkerId(id.into())),
                code,
                detail: detail.map(Into::into),
            })
    }

    pub(crate) fn any_shards_again() -> impl Strategy<Value = ShardsAgain> {
        let shards = proptest::collection::btree_map(0..10_000_u32, any::<Option<String>>(), 1..20);
        (any::<bool>(), shards).prop_map(|(are_for_workers, shards)| ShardsAgain {
            count: 10_000,
            are_for_workers,
            shards: shards.into_iter().map(|(index, key)| (index, key.map(Into::into))).collect(),
        })
    }

    fn any_submission() -> impl Strategy<Value = Submission> {
        any::<(Option<String>, Option<String>, Option<u64>)>().prop_map(|(key, payload, delay)| Submission {
            key: key.map(Into::into),
            payload: payload.map(Into::into),
            delay: delay.map(Millis),
        })
    }

    proptest! {
        #[test]
        fn transitions_come_back_as_they_were(list in proptest::collection::vec(any_transition(), 0..20)) {
            let mut bytes = Vec::new();
            put_transitions(&mut bytes, &list);
            prop_assert_eq!(transitions(&bytes).unwrap(), list);
        }

        #[test]
        fn submissions_come_back_as_they_were(list in proptest::collection::vec(any_submission(), 0..20)) {
            prop_assert_eq!(submissions(&pack_submissions(&list)).unwrap(), list);
        }

        #[test]
        fn a_cancellation_comes_back_as_it_was(id in any::<u64>(), reason in any::<Option<String>>()) {
            let reason: Option<Arc<str>> = reason.map(Into::into);
            prop_assert_eq!(cancel(&pack_cancel(InstanceId(id), reason.as_deref())).unwrap(), (InstanceId(id), reason));
        }

        #[test]
        fn a_pause_comes_back_as_it_was(group in any::<String>(), task in any::<u64>(), is_paused in any::<bool>()) {
            let worker = PauseScope::Worker(WorkerId(group.as_str().into()));
            for scope in [PauseScope::All, PauseScope::Group(group.into()), PauseScope::Task(TaskId(task)), worker] {
                prop_assert_eq!(pause(&pack_pause(&scope, is_paused)).unwrap(), (scope, is_paused));
            }
        }

        #[test]
        fn a_change_of_a_trigger_comes_back_as_it_was(ordinal in any::<u64>(), to in any::<i64>(), reason in any::<Option<String>>()) {
            let reason: Option<Arc<str>> = reason.map(Into::into);
            for change in [DelayedChange::Cancel, DelayedChange::Reschedule(Timestamp(to))] {
                let packed = pack_delayed(ordinal, change, reason.as_deref());
                prop_assert_eq!(delayed(&packed).unwrap(), (ordinal, change, reason.clone()));
            }
        }

        #[test]
        fn a_rerun_comes_back_as_it_was(
            (instance, task, fire_time, ordinal, run, hops) in any::<(u64, u64, i64, u64, u32, u32)>(),
            (payload, key, reason) in any::<(Option<String>, Option<String>, Option<String>)>(),
            shards in proptest::option::of(any_shards_again()),
            from in any::<Option<(Vec<String>, bool)>>(),
        ) {
            let from = from.map(|(nodes, cascade)| RerunFrom { nodes: nodes.into_iter().map(Into::into).collect(), cascade, ended: Vec::new() });
            let [payload, key, reason] = [payload, key, reason].map(|text| text.map(Into::into));
            let (instance, task, fire_time) = (InstanceId(instance), TaskId(task), Timestamp(fire_time));
            let shards = shards.map(Box::new);
            let of = Rerun { instance, task, fire_time, ordinal, run, hops, payload, key, reason, shards, from: from.map(Box::new) };
            prop_assert_eq!(rerun(task, &pack_rerun(&of)).unwrap(), of);
        }

        #[test]
        fn what_groups_say_comes_back_as_it_was(
            (group, instance, task, place) in any::<(String, u64, u64, u64)>(),
            (max_running, rate, is_granted) in any::<(Option<u32>, Option<(u32, u64)>, bool)>(),
        ) {
            let rate = rate.map(|(starts, per)| RateLimit { starts, per: Millis(per) });
            let (limits, instance, task) = (GroupLimits { max_running, rate }, InstanceId(instance), TaskId(task));
            let group: Arc<str> = group.into();
            let slot = GroupSlot { partition: PartitionId(7), group: group.clone(), instance, task, place: InboxId(place), limits, is_granted };
            prop_assert_eq!(super::slot(PartitionId(7), instance, &pack_slot(&slot)).unwrap(), slot);
            for notice in [
                Notice::GroupAsk { group: group.clone(), instance, task, limits },
                Notice::GroupGrant { task, instance },
                Notice::GroupRelease { group, instance },
            ] {
                prop_assert_eq!(super::notice(notice.task().unwrap_or_default(), &pack_notice(&notice)).unwrap(), notice);
            }
        }

        #[test]
        fn what_callers_and_called_say_comes_back_as_it_was(
            (name, task, caller, caller_task, hops) in any::<(String, Option<u64>, u64, u64, u32)>(),
            (payload, instance, result, detail, is_killed) in any::<(Option<String>, Option<u64>, Option<String>, Option<String>, bool)>(),
            state in proptest::sample::select(&State::ALL[..]),
        ) {
            let [payload, result, detail] = [payload, result, detail].map(|text| text.map(Arc::<str>::from));
            let (name, task, caller): (Arc<str>, _, _) = (name.into(), task.filter(|task| *task > 0).map(TaskId), InstanceId(caller));
            let caller_task = TaskId(caller_task);
            for notice in [
                Notice::Called { name: name.clone(), task, caller, caller_task, hops, payload },
                Notice::CallCancelled { name, task, caller, is_killed },
                Notice::CallEnded { task: caller_task, caller, instance: instance.map(InstanceId), state, result, detail },
            ] {
                prop_assert_eq!(super::notice(notice.task().unwrap_or_default(), &pack_notice(&notice)).unwrap(), notice);
            }
        }

        #[test]
        fn backfills_come_back_as_they_were(times in proptest::collection::vec(any::<i64>(), 0..40), most in any::<u32>(), why in any::<Option<String>>()) {
            let reason: Option<Arc<str>> = why.map(Into::into);
            let plan = BackfillPlan { task: TaskId(3), fire_times: times.into_iter().map(Timestamp).collect(), concurrency: most, reason: reason.clone() };
            prop_assert_eq!(backfill(TaskId(3), &pack_backfill(&plan)).unwrap(), plan);
            prop_assert_eq!(backfill_cancel(&pack_backfill_cancel(InboxId(7), reason.as_deref())).unwrap(), (InboxId(7), reason));
        }

        #[test]
        fn what_was_said_of_a_node_comes_back_as_it_was(
            (instance, node, reason) in any::<(u64, u32, Option<String>)>(),
            said in proptest::sample::select(&NodeMark::ALL[..]),
        ) {
            let (instance, node, reason): (_, _, Option<Arc<str>>) = (InstanceId(instance), NodeIndex(node), reason.map(Into::into));
            let read = mark(&pack_mark(instance, node, said, reason.as_deref())).unwrap();
            prop_assert_eq!(read, Mark { instance, node, mark: said, reason });
        }

        #[test]
        fn damaged_bytes_are_an_error_and_no_panic(list in proptest::collection::vec(any_transition(), 0..5), cut in any::<prop::sample::Index>(), noise in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = Vec::new();
            put_transitions(&mut bytes, &list);
            prop_assert!(transitions(&bytes[..cut.index(bytes.len())]).is_err());
            let _ = transitions(&noise);
            let _ = submissions(&noise);
            let _ = cancel(&noise);
            let _ = pause(&noise);
            let _ = delayed(&noise);
            let _ = mark(&noise);
            let _ = rerun(TaskId(1), &noise);
            let _ = slot(PartitionId(1), InstanceId(1), &noise);
            let _ = (backfill(TaskId(1), &noise), backfill_cancel(&noise));
        }
    }

    #[test]
    fn a_usual_life_is_short() {
        let step = |from, to, cause, at: i64| Transition {
            from,
            to,
            cause,
            at: Timestamp(1_700_000_000_000 + at),
            attempt: 1,
            fence: Fence(1 << 30),
            worker: Some(WorkerId("worker-12".into())),
            code: None,
            detail: None,
        };
        let list = [
            step(None, State::Waiting, Cause::Fired, 0),
            step(Some(State::Waiting), State::Created, Cause::SlotFree, 1),
            step(Some(State::Created), State::Dispatched, Cause::Assigned, 1),
            step(Some(State::Dispatched), State::Running, Cause::Started, 4),
            step(Some(State::Running), State::Succeeded, Cause::Finished, 400),
        ];
        let mut bytes = Vec::new();
        put_transitions(&mut bytes, &list);
        assert!(bytes.len() < 60, "{}", bytes.len());
    }
}
