//! Messages of the core as messages of the wire, and back.
//!
//! Both ways are checked, by the same rules. Versions are no part of the core's messages: [`crate::connection`] reads and checks them.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::definition::{Handler, TimeoutAction, TimeoutPolicy};
use punctual_core::ids::{Fence, InstanceId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::limits::{DETAIL_BYTES_MAX, OUTPUT_BYTES_MAX, RETRY_AFTER_MAX};
use punctual_core::protocol::{Assignment, End, Hello, MapRole, Node, Report, Running, Shard, ToScheduler, ToWorker};
use punctual_core::routing::{Understanding, WorkerTraits, WorkerVersion};
use punctual_core::text::cut;
use punctual_core::time::{Millis, Timestamp};

use crate::check;
pub use crate::check::{Problem, Refused, Unit};
use crate::version::Versions;
use crate::wire;
use crate::wire::{to_scheduler, to_worker};

/// Wraps a scheduler's message for the wire. `version` is the one that was chosen; only a welcome carries it.
///
/// # Errors
///
/// Where the worker would refuse the message.
pub fn worker_message_into_wire(message: ToWorker, version: u32) -> Result<wire::ToWorker, Refused> {
    let kind = match message {
        ToWorker::Welcome { heartbeat, lease } => {
            check::welcome(heartbeat, lease)?;
            to_worker::Kind::Welcome(wire::Welcome { version, heartbeat_ms: heartbeat.0, lease_ms: lease.0 })
        }
        ToWorker::Assign(assignment) => to_worker::Kind::Assign(Box::new(assignment_into_wire(&assignment)?)),
        ToWorker::Cancel { instance, fence } => {
            to_worker::Kind::Cancel(wire::Cancel { attempt: attempt_into_wire(check::Kind("Cancel"), instance, fence)?, at_once: false })
        }
        ToWorker::Kill { instance, fence } => {
            to_worker::Kind::Cancel(wire::Cancel { attempt: attempt_into_wire(check::Kind("Cancel"), instance, fence)?, at_once: true })
        }
        ToWorker::Acknowledge { instance, fence } => {
            to_worker::Kind::Acknowledge(wire::Acknowledge { attempt: attempt_into_wire(check::Kind("Acknowledge"), instance, fence)? })
        }
        ToWorker::Alive => to_worker::Kind::Alive(wire::Alive {}),
        ToWorker::GiveAccount => to_worker::Kind::GiveAccount(wire::GiveAccount {}),
    };
    Ok(wire::ToWorker { kind: Some(kind) })
}

/// Reads a scheduler's message; `None` is one of a kind that this version doesn't know, to be skipped.
///
/// # Errors
///
/// Where something is missing or out of range.
pub fn worker_message_from_wire(message: wire::ToWorker) -> Result<Option<ToWorker>, Refused> {
    let Some(kind) = message.kind else { return Ok(None) };
    Ok(Some(match kind {
        to_worker::Kind::Welcome(welcome) => {
            let (heartbeat, lease) = (Millis(welcome.heartbeat_ms), Millis(welcome.lease_ms));
            check::welcome(heartbeat, lease)?;
            ToWorker::Welcome { heartbeat, lease }
        }
        to_worker::Kind::Assign(assign) => ToWorker::Assign(Arc::new(assignment_from_wire(*assign)?)),
        to_worker::Kind::Cancel(cancel) => {
            let (instance, fence) = attempt_from_wire(check::Kind("Cancel"), cancel.attempt)?;
            if cancel.at_once { ToWorker::Kill { instance, fence } } else { ToWorker::Cancel { instance, fence } }
        }
        to_worker::Kind::Acknowledge(acknowledge) => {
            let (instance, fence) = attempt_from_wire(check::Kind("Acknowledge"), acknowledge.attempt)?;
            ToWorker::Acknowledge { instance, fence }
        }
        to_worker::Kind::Alive(wire::Alive {}) => ToWorker::Alive,
        to_worker::Kind::GiveAccount(wire::GiveAccount {}) => ToWorker::GiveAccount,
    }))
}

/// Wraps a worker's message for the wire. A hello says which versions this side `speaks`. What a report holds beyond the limits is cut:
/// a report that was refused would be repeated for ever.
///
/// # Errors
///
/// Where the scheduler would refuse the message.
pub fn scheduler_message_into_wire(message: ToScheduler, speaks: Versions) -> Result<wire::ToScheduler, Refused> {
    let kind = match message {
        ToScheduler::Hello(hello) => to_scheduler::Kind::Hello(Box::new(hello_into_wire(hello, speaks)?)),
        ToScheduler::Heartbeat => to_scheduler::Kind::Heartbeat(wire::Heartbeat {}),
        ToScheduler::Started { instance, fence } => {
            to_scheduler::Kind::Started(wire::Started { attempt: attempt_into_wire(check::Kind("Started"), instance, fence)? })
        }
        ToScheduler::Finished(report) => to_scheduler::Kind::Finished(Box::new(report_into_wire(report)?)),
        ToScheduler::Returned { instance, fence } => {
            to_scheduler::Kind::Returned(wire::Returned { attempt: attempt_into_wire(check::Kind("Returned"), instance, fence)? })
        }
        ToScheduler::Draining => to_scheduler::Kind::Draining(wire::Draining {}),
    };
    Ok(wire::ToScheduler { kind: Some(kind) })
}

/// Reads a worker's message; `None` is one of a kind that this version doesn't know, to be skipped.
///
/// # Errors
///
/// Where something is missing or out of range.
pub fn scheduler_message_from_wire(message: wire::ToScheduler) -> Result<Option<ToScheduler>, Refused> {
    let Some(kind) = message.kind else { return Ok(None) };
    Ok(Some(match kind {
        to_scheduler::Kind::Hello(hello) => ToScheduler::Hello(hello_from_wire(*hello)?),
        to_scheduler::Kind::Heartbeat(wire::Heartbeat {}) => ToScheduler::Heartbeat,
        to_scheduler::Kind::Started(started) => {
            let (instance, fence) = attempt_from_wire(check::Kind("Started"), started.attempt)?;
            ToScheduler::Started { instance, fence }
        }
        to_scheduler::Kind::Finished(finished) => ToScheduler::Finished(report_from_wire(*finished)?),
        to_scheduler::Kind::Returned(returned) => {
            let (instance, fence) = attempt_from_wire(check::Kind("Returned"), returned.attempt)?;
            ToScheduler::Returned { instance, fence }
        }
        to_scheduler::Kind::Draining(wire::Draining {}) => ToScheduler::Draining,
    }))
}

fn attempt_into_wire(kind: check::Kind, instance: InstanceId, fence: Fence) -> Result<Option<wire::Attempt>, Refused> {
    kind.instance("attempt.instance", instance)?;
    Ok(Some(unchecked_attempt(instance, fence)))
}

fn attempt_from_wire(kind: check::Kind, attempt: Option<wire::Attempt>) -> Result<(InstanceId, Fence), Refused> {
    let attempt = kind.need("attempt", attempt)?;
    let instance = InstanceId(kind.need("attempt.instance", attempt.instance)?);
    kind.instance("attempt.instance", instance)?;
    Ok((instance, Fence(kind.need("attempt.fence", attempt.fence)?)))
}

fn unchecked_attempt(instance: InstanceId, fence: Fence) -> wire::Attempt {
    wire::Attempt { instance: Some(instance.0), fence: Some(fence.0) }
}

fn assignment_into_wire(assignment: &Assignment) -> Result<wire::Assign, Refused> {
    check::assignment(assignment)?;
    let handler = wire::Handler { name: assignment.handler.name.to_string(), config: Some(assignment.handler.config.to_string()) };
    let action = match assignment.timeout.action {
        TimeoutAction::Kill => wire::TimeoutAction::Kill,
        TimeoutAction::Wait => wire::TimeoutAction::Wait,
    };
    let timeout = wire::Timeout {
        after_ms: assignment.timeout.after.map(|after| after.0),
        grace_ms: Some(assignment.timeout.grace.0),
        action: action.into(),
    };
    Ok(wire::Assign {
        attempt: Some(unchecked_attempt(assignment.instance, assignment.fence)),
        number: assignment.attempt,
        task: Some(assignment.task.0),
        task_name: assignment.task_name.to_string(),
        task_version: assignment.version.0,
        fire_time_ms: Some(assignment.fire_time.0),
        ordinal: Some(assignment.ordinal),
        handler: Some(handler),
        payload: assignment.payload.as_deref().map(str::to_owned),
        timeout: Some(timeout),
        run: assignment.run,
        shard: assignment.shard.as_ref().map(|shard| wire::Shard {
            index: shard.index,
            count: shard.count,
            key: shard.key.as_deref().map(str::to_owned),
        }),
        lists: assignment.map == Some(MapRole::List),
        results: match &assignment.map {
            Some(MapRole::Reduce { results }) => Some(results.to_string()),
            _ => None,
        },
        node: assignment.node.as_ref().map(|node| wire::Node { name: node.name.to_string(), inputs: node.inputs.to_string() }),
    })
}

fn assignment_from_wire(assign: wire::Assign) -> Result<Assignment, Refused> {
    let kind = check::ASSIGN;
    let (instance, fence) = attempt_from_wire(kind, assign.attempt)?;
    let handler = kind.need("handler", assign.handler)?;
    let timeout = kind.need("timeout", assign.timeout)?;
    let assignment = Assignment {
        instance,
        attempt: assign.number,
        fence,
        task: TaskId(kind.need("task", assign.task)?),
        task_name: Arc::from(assign.task_name),
        version: Version(assign.task_version),
        fire_time: Timestamp(kind.need("fire_time_ms", assign.fire_time_ms)?),
        ordinal: kind.need("ordinal", assign.ordinal)?,
        run: assign.run.max(1),
        shard: assign.shard.map(|shard| Shard { index: shard.index, count: shard.count, key: shard.key.map(Arc::from) }),
        map: match assign.results {
            Some(results) => Some(MapRole::Reduce { results: Arc::from(results) }),
            None => assign.lists.then_some(MapRole::List),
        },
        node: assign.node.map(|node| Node { name: Arc::from(node.name), inputs: Arc::from(node.inputs) }),
        handler: Handler { name: Arc::from(handler.name), config: Arc::from(kind.need("handler.config", handler.config)?) },
        payload: assign.payload.map(Arc::from),
        timeout: TimeoutPolicy {
            after: timeout.after_ms.map(Millis),
            grace: Millis(kind.need("timeout.grace_ms", timeout.grace_ms)?),
            action: timeout_action_from_wire(timeout.action)?,
        },
    };
    check::assignment(&assignment)?;
    Ok(assignment)
}

fn timeout_action_from_wire(value: i32) -> Result<TimeoutAction, Refused> {
    match wire::TimeoutAction::try_from(value) {
        Ok(wire::TimeoutAction::Kill) => Ok(TimeoutAction::Kill),
        Ok(wire::TimeoutAction::Wait) => Ok(TimeoutAction::Wait),
        Ok(wire::TimeoutAction::Unspecified) => Err(check::ASSIGN.refuse("timeout.action", Problem::Missing)),
        Err(_) => Err(check::ASSIGN.refuse("timeout.action", Problem::UnknownValue { value })),
    }
}

fn hello_into_wire(hello: Hello, speaks: Versions) -> Result<wire::Hello, Refused> {
    check::hello(&hello)?;
    Ok(wire::Hello {
        oldest_version: speaks.oldest,
        newest_version: speaks.newest,
        worker: hello.worker.0.to_string(),
        life: Some(hello.life.0),
        slots: hello.slots,
        handlers: hello.handlers.iter().map(|handler| handler.to_string()).collect(),
        draining: hello.draining,
        running: hello.running.iter().map(|running| unchecked_attempt(running.instance, running.fence)).collect(),
        received: Some(hello.received),
        tags: hello.traits.tags.iter().map(|tag| tag.to_string()).collect(),
        program_version: hello.traits.version.map(|version| version.as_str().to_owned()),
        reserved_urgent: hello.traits.reserved[0],
        reserved_normal: hello.traits.reserved[1],
    })
}

fn hello_from_wire(hello: wire::Hello) -> Result<Hello, Refused> {
    let kind = check::HELLO;
    let running = |attempt: wire::Attempt| {
        let instance = InstanceId(kind.need("running.instance", attempt.instance)?);
        Ok(Running { instance, fence: Fence(kind.need("running.fence", attempt.fence)?) })
    };
    let version = hello.program_version.as_deref().map(WorkerVersion::parse).transpose();
    let traits = WorkerTraits {
        tags: hello.tags.into_iter().map(Arc::from).collect(),
        version: version.map_err(|error| kind.refuse("program_version", Problem::Version(error)))?,
        reserved: [hello.reserved_urgent, hello.reserved_normal],
        understands: Understanding::default(),
    };
    let hello = Hello {
        worker: WorkerId(Arc::from(hello.worker)),
        life: WorkerLife(kind.need("life", hello.life)?),
        slots: hello.slots,
        handlers: hello.handlers.into_iter().map(Arc::from).collect(),
        draining: hello.draining,
        running: hello.running.into_iter().map(running).collect::<Result<_, Refused>>()?,
        received: kind.need("received", hello.received)?,
        traits,
    };
    check::hello(&hello)?;
    Ok(hello)
}

fn report_into_wire(mut report: Report) -> Result<wire::Finished, Refused> {
    cut_output(&mut report.output);
    if let Some(detail) = report.detail.as_mut().filter(|detail| detail.len() > DETAIL_BYTES_MAX) {
        *detail = Arc::from(cut(detail.to_string(), DETAIL_BYTES_MAX));
    }
    check::report(&report)?;
    let end = match report.end {
        End::Succeeded => wire::End::Succeeded,
        End::Failed => wire::End::Failed,
        End::FailedForGood => wire::End::FailedForGood,
        End::TimedOut => wire::End::TimedOut,
        End::Cancelled => wire::End::Cancelled,
    };
    Ok(wire::Finished {
        attempt: Some(unchecked_attempt(report.instance, report.fence)),
        end: end.into(),
        code: report.code,
        detail: report.detail.as_deref().map(str::to_owned),
        output: output_into_wire(report.output),
        result: report.result.as_deref().map(str::to_owned),
        items: report.items.as_deref().map(str::to_owned),
        retry_after_ms: report.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX).0),
    })
}

fn report_from_wire(finished: wire::Finished) -> Result<Report, Refused> {
    let (instance, fence) = attempt_from_wire(check::FINISHED, finished.attempt)?;
    let report = Report {
        instance,
        fence,
        end: end_from_wire(finished.end)?,
        code: finished.code,
        detail: finished.detail.map(Arc::from),
        output: output_from_wire(finished.output),
        result: finished.result.map(Arc::from),
        items: finished.items.map(Arc::from),
        // Cut, not refused: a report that was refused would be repeated for ever.
        retry_after: finished.retry_after_ms.map(|wait| Millis(wait).min(RETRY_AFTER_MAX)),
    };
    check::report(&report)?;
    Ok(report)
}

fn output_into_wire(output: Output) -> Option<wire::Output> {
    let is_silent = output == Output::default();
    (!is_silent).then_some(wire::Output { bytes: output.bytes, dropped: output.dropped })
}

fn output_from_wire(output: Option<wire::Output>) -> Output {
    output.map(|output| Output { bytes: output.bytes, dropped: output.dropped }).unwrap_or_default()
}

fn end_from_wire(value: i32) -> Result<End, Refused> {
    match wire::End::try_from(value) {
        Ok(wire::End::Succeeded) => Ok(End::Succeeded),
        Ok(wire::End::Failed) => Ok(End::Failed),
        Ok(wire::End::FailedForGood) => Ok(End::FailedForGood),
        Ok(wire::End::TimedOut) => Ok(End::TimedOut),
        Ok(wire::End::Cancelled) => Ok(End::Cancelled),
        Ok(wire::End::Unspecified) => Err(check::FINISHED.refuse("end", Problem::Missing)),
        Err(_) => Err(check::FINISHED.refuse("end", Problem::UnknownValue { value })),
    }
}

/// Keeps the beginning and the end of output that is too long, half of the limit each.
fn cut_output(output: &mut Output) {
    let over = output.bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
    let head = OUTPUT_BYTES_MAX / 2;
    if over > 0 {
        output.bytes.drain(head..head + over);
        output.dropped = output.dropped.saturating_add(over as u64);
    }
}
