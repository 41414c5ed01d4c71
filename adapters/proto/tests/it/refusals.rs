//! Each thing that can be wrong with a message is refused by its name.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::limits::{DELAY_MAX, DETAIL_BYTES_MAX, OUTPUT_BYTES_MAX, PAYLOAD_BYTES_MAX, TAGS_MAX};
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_core::routing::{ReservedTooMany, TagSyntax, VersionSyntax};
use punctual_core::time::{Millis, Timestamp};
use punctual_proto::convert::{self, Problem, Refused, Unit};
use punctual_proto::limits::{HANDLER_CONFIG_BYTES_MAX, HANDLER_NAME_CHARS_MAX, HANDLERS_MAX, RUNNING_MAX, SLOTS_MAX, WORKER_ID_BYTES_MAX};
use punctual_proto::version::{PROTOCOL_VERSION, Versions};
use punctual_proto::wire::{self, to_scheduler, to_worker};

use crate::samples;

/// A partition that no cluster has.
const FOREIGN: Problem = Problem::NoSuchPartition { partition: 1 << 14 };
const FOREIGN_INSTANCE: u64 = 1 << (14 + 48);

fn range(value: impl Into<i128>, least: impl Into<i128>, most: impl Into<i128>) -> Problem {
    Problem::OutOfRange { value: value.into(), least: least.into(), most: most.into() }
}

fn long(length: usize, most: usize, unit: Unit) -> Problem {
    Problem::TooLong { length, most, unit }
}

/// The sample of a scheduler's message with a change is refused.
fn check_to_worker(message: &'static str, field: &'static str, problem: Problem, change: impl Fn(&mut to_worker::Kind)) {
    let mut changed = 0;
    for sample in samples::to_worker() {
        let mut wire = convert::worker_message_into_wire(sample, PROTOCOL_VERSION).unwrap();
        let before = wire.clone();
        change(wire.kind.as_mut().unwrap());
        if wire != before {
            changed += 1;
            assert_eq!(convert::worker_message_from_wire(wire), Err(Refused { message, field, problem: problem.clone() }));
        }
    }
    assert_eq!(changed, 1, "{message}.{field}: one sample is to change");
}

/// The sample of a worker's message with a change is refused.
fn check_to_scheduler(message: &'static str, field: &'static str, problem: Problem, change: impl Fn(&mut to_scheduler::Kind)) {
    let mut changed = 0;
    for sample in samples::to_scheduler() {
        let mut wire = convert::scheduler_message_into_wire(sample, Versions::OURS).unwrap();
        let before = wire.clone();
        change(wire.kind.as_mut().unwrap());
        if wire != before {
            changed += 1;
            assert_eq!(convert::scheduler_message_from_wire(wire), Err(Refused { message, field, problem: problem.clone() }));
        }
    }
    assert_eq!(changed, 1, "{message}.{field}: one sample is to change");
}

/// All that can be wrong with the attempt that a message is about.
fn check_attempt(message: &'static str, check: impl Fn(&'static str, &'static str, Problem, &dyn Fn(&mut Option<wire::Attempt>))) {
    check(message, "attempt", Problem::Missing, &|attempt| *attempt = None);
    check(message, "attempt.instance", Problem::Missing, &|attempt| attempt.as_mut().unwrap().instance = None);
    check(message, "attempt.fence", Problem::Missing, &|attempt| attempt.as_mut().unwrap().fence = None);
    check(message, "attempt.instance", FOREIGN, &|attempt| attempt.as_mut().unwrap().instance = Some(FOREIGN_INSTANCE));
}

#[test]
fn attempts() {
    macro_rules! check {
        ($check:ident, $kinds:ident, $kind:ident) => {
            check_attempt(stringify!($kind), |message, field, problem, change| {
                $check(message, field, problem, |kind| {
                    if let $kinds::Kind::$kind(message) = kind {
                        change(&mut message.attempt);
                    }
                });
            });
        };
    }
    check!(check_to_worker, to_worker, Assign);
    check!(check_to_worker, to_worker, Cancel);
    check!(check_to_worker, to_worker, Acknowledge);
    check!(check_to_scheduler, to_scheduler, Started);
    check!(check_to_scheduler, to_scheduler, Finished);
    check!(check_to_scheduler, to_scheduler, Returned);
}

#[test]
fn welcomes() {
    let check = |field, problem, change: fn(&mut wire::Welcome)| {
        check_to_worker("Welcome", field, problem, |kind| {
            if let to_worker::Kind::Welcome(welcome) = kind {
                change(welcome);
            }
        });
    };
    let most = DELAY_MAX.0;
    check("heartbeat_ms", range(0, 1, most), |welcome| welcome.heartbeat_ms = 0);
    check("heartbeat_ms", range(most + 1, 1, most), |welcome| welcome.heartbeat_ms = DELAY_MAX.0 + 1);
    check("heartbeat_ms", range(u64::MAX, 1, most), |welcome| welcome.heartbeat_ms = u64::MAX);
    check("lease_ms", range(0, 1, most), |welcome| welcome.lease_ms = 0);
    check("lease_ms", range(most + 1, 1, most), |welcome| welcome.lease_ms = DELAY_MAX.0 + 1);
    let too_rare = Problem::TooRare { heartbeat_ms: 10_001, lease_ms: 30_000 };
    check("heartbeat_ms", too_rare, |welcome| welcome.heartbeat_ms = 10_001);
    let too_rare = Problem::TooRare { heartbeat_ms: 10_000, lease_ms: 29_999 };
    check("heartbeat_ms", too_rare, |welcome| welcome.lease_ms = 29_999);
}

fn check_assign(field: &'static str, problem: Problem, change: fn(&mut wire::Assign)) {
    check_to_worker("Assign", field, problem, |kind| {
        if let to_worker::Kind::Assign(assign) = kind {
            change(assign);
        }
    });
}

#[test]
fn parts_of_assignments_that_are_missing() {
    check_assign("number", range(0, 1, u32::MAX), |assign| assign.number = 0);
    check_assign("task", Problem::Missing, |assign| assign.task = None);
    check_assign("task_name", Problem::Missing, |assign| assign.task_name.clear());
    check_assign("task_version", range(0, 1, u32::MAX), |assign| assign.task_version = 0);
    check_assign("fire_time_ms", Problem::Missing, |assign| assign.fire_time_ms = None);
    check_assign("ordinal", Problem::Missing, |assign| assign.ordinal = None);
    check_assign("handler", Problem::Missing, |assign| assign.handler = None);
    check_assign("handler.name", Problem::Missing, |assign| assign.handler.as_mut().unwrap().name.clear());
    check_assign("handler.config", Problem::Missing, |assign| assign.handler.as_mut().unwrap().config = None);
    check_assign("timeout", Problem::Missing, |assign| assign.timeout = None);
    check_assign("timeout.grace_ms", Problem::Missing, |assign| assign.timeout.as_mut().unwrap().grace_ms = None);
    check_assign("timeout.action", Problem::Missing, |assign| assign.timeout.as_mut().unwrap().action = 0);
}

#[test]
fn parts_of_assignments_beyond_their_limits() {
    let characters = long(129, 128, Unit::Characters);
    check_assign("task_name", long(256, 255, Unit::Characters), |assign| assign.task_name = "名".repeat(256));
    check_assign("handler.name", characters, |assign| assign.handler.as_mut().unwrap().name = "名".repeat(129));
    let config = long(HANDLER_CONFIG_BYTES_MAX + 1, HANDLER_CONFIG_BYTES_MAX, Unit::Bytes);
    check_assign("handler.config", config, |assign| {
        assign.handler.as_mut().unwrap().config = Some("x".repeat(HANDLER_CONFIG_BYTES_MAX + 1));
    });
    let payload = long(PAYLOAD_BYTES_MAX + 1, PAYLOAD_BYTES_MAX, Unit::Bytes);
    check_assign("payload", payload, |assign| assign.payload = Some("x".repeat(PAYLOAD_BYTES_MAX + 1)));

    let (least, most) = (Timestamp::MIN.0, Timestamp::MAX.0);
    check_assign("fire_time_ms", range(least - 1, least, most), |assign| assign.fire_time_ms = Some(Timestamp::MIN.0 - 1));
    check_assign("fire_time_ms", range(most + 1, least, most), |assign| assign.fire_time_ms = Some(Timestamp::MAX.0 + 1));
    let duration = range(DELAY_MAX.0 + 1, 0, DELAY_MAX.0);
    check_assign("timeout.after_ms", duration.clone(), |assign| {
        assign.timeout.as_mut().unwrap().after_ms = Some(DELAY_MAX.0 + 1);
    });
    check_assign("timeout.grace_ms", duration, |assign| assign.timeout.as_mut().unwrap().grace_ms = Some(DELAY_MAX.0 + 1));
    check_assign("timeout.action", Problem::UnknownValue { value: 3 }, |assign| assign.timeout.as_mut().unwrap().action = 3);
}

#[test]
fn hellos() {
    let check = |field, problem, change: fn(&mut wire::Hello)| {
        check_to_scheduler("Hello", field, problem, |kind| {
            if let to_scheduler::Kind::Hello(hello) = kind {
                change(hello);
            }
        });
    };
    check("worker", Problem::Missing, |hello| hello.worker.clear());
    let id = long(WORKER_ID_BYTES_MAX + 1, WORKER_ID_BYTES_MAX, Unit::Bytes);
    check("worker", id, |hello| hello.worker = "x".repeat(WORKER_ID_BYTES_MAX + 1));
    check("life", Problem::Missing, |hello| hello.life = None);
    check("slots", range(0, 1, SLOTS_MAX), |hello| hello.slots = 0);
    check("slots", range(SLOTS_MAX + 1, 1, SLOTS_MAX), |hello| hello.slots = SLOTS_MAX + 1);
    check("handlers", Problem::Missing, |hello| hello.handlers[1].clear());
    let name = long(HANDLER_NAME_CHARS_MAX + 1, HANDLER_NAME_CHARS_MAX, Unit::Characters);
    check("handlers", name, |hello| hello.handlers[1] = "名".repeat(HANDLER_NAME_CHARS_MAX + 1));
    let handlers = long(HANDLERS_MAX + 1, HANDLERS_MAX, Unit::Elements);
    check("handlers", handlers, |hello| hello.handlers = vec!["x".to_owned(); HANDLERS_MAX + 1]);
    check("running.instance", Problem::Missing, |hello| hello.running[0].instance = None);
    check("running.fence", Problem::Missing, |hello| hello.running[0].fence = None);
    check("running.instance", FOREIGN, |hello| hello.running[0].instance = Some(FOREIGN_INSTANCE));
    let running = long(RUNNING_MAX + 1, RUNNING_MAX, Unit::Elements);
    check("running", running, |hello| hello.running = vec![hello.running[0]; RUNNING_MAX + 1]);
    check("received", Problem::Missing, |hello| hello.received = None);
    check("tags", Problem::Tag(TagSyntax), |hello| hello.tags[1] = "zone".to_owned());
    let tags = long(TAGS_MAX + 1, TAGS_MAX, Unit::Elements);
    check("tags", tags, |hello| hello.tags = vec!["a=b".to_owned(); TAGS_MAX + 1]);
    check("program_version", Problem::Version(VersionSyntax), |hello| hello.program_version = Some("new".to_owned()));
    let reserved = Problem::Reserved(ReservedTooMany { reserved: 6, slots: 4 });
    check("reserved_urgent", reserved, |hello| hello.reserved_urgent = 4);
}

#[test]
fn reports() {
    let check = |field, problem, change: fn(&mut wire::Finished)| {
        check_to_scheduler("Finished", field, problem, |kind| {
            if let to_scheduler::Kind::Finished(finished) = kind {
                change(finished);
            }
        });
    };
    check("end", Problem::Missing, |finished| finished.end = 0);
    check("end", Problem::UnknownValue { value: 6 }, |finished| finished.end = 6);
    check("end", Problem::UnknownValue { value: -1 }, |finished| finished.end = -1);
    let detail = long(DETAIL_BYTES_MAX + 1, DETAIL_BYTES_MAX, Unit::Bytes);
    check("detail", detail, |finished| finished.detail = Some("x".repeat(DETAIL_BYTES_MAX + 1)));
    let output = long(OUTPUT_BYTES_MAX + 1, OUTPUT_BYTES_MAX, Unit::Bytes);
    check("output.bytes", output, |finished| finished.output.as_mut().unwrap().bytes = vec![0; OUTPUT_BYTES_MAX + 1]);
}

#[test]
fn what_may_be_left_out() {
    let mut assign = convert::worker_message_into_wire(ToWorker::Assign(Arc::new(samples::assignment())), 1).unwrap();
    let Some(to_worker::Kind::Assign(part)) = &mut assign.kind else { panic!("an assignment") };
    part.payload = None;
    part.timeout.as_mut().unwrap().after_ms = None;
    let Ok(Some(ToWorker::Assign(read))) = convert::worker_message_from_wire(assign) else { panic!("an assignment") };
    assert_eq!((&read.payload, read.timeout.after), (&None, None));

    let mut finished = convert::scheduler_message_into_wire(ToScheduler::Finished(samples::report()), Versions::OURS).unwrap();
    let Some(to_scheduler::Kind::Finished(part)) = &mut finished.kind else { panic!("a report") };
    (part.code, part.detail, part.output, part.retry_after_ms) = (None, None, None, None);
    let Ok(Some(ToScheduler::Finished(read))) = convert::scheduler_message_from_wire(finished) else { panic!("a report") };
    assert_eq!((read.code, read.detail, read.output, read.retry_after), (None, None, Output::default(), None));
}

#[test]
fn a_wait_that_is_too_long_is_cut_on_both_sides() {
    let longest = punctual_core::limits::RETRY_AFTER_MAX;
    for (asked, read) in [(None, None), (Some(0), Some(0)), (Some(longest.0 + 1), Some(longest.0)), (Some(u64::MAX), Some(longest.0))] {
        let report = punctual_core::protocol::Report { retry_after: asked.map(Millis), ..samples::report() };
        let mut wire = convert::scheduler_message_into_wire(ToScheduler::Finished(report), Versions::OURS).unwrap();
        let Some(to_scheduler::Kind::Finished(part)) = &mut wire.kind else { panic!("a report") };
        assert_eq!(part.retry_after_ms, read);
        part.retry_after_ms = asked;
        let Ok(Some(ToScheduler::Finished(report))) = convert::scheduler_message_from_wire(wire) else { panic!("a report") };
        assert_eq!(report.retry_after, read.map(Millis));
    }
}

#[test]
fn what_the_other_side_would_refuse_is_not_sent() {
    let (instance, fence) = (InstanceId(FOREIGN_INSTANCE), Fence(1));
    let assign = |change: fn(&mut punctual_core::protocol::Assignment)| {
        let mut assignment = samples::assignment();
        change(&mut assignment);
        ToWorker::Assign(Arc::new(assignment))
    };
    let hello = |change: fn(&mut punctual_core::protocol::Hello)| {
        let mut hello = samples::hello();
        change(&mut hello);
        ToScheduler::Hello(hello)
    };
    for (message, refused) in [
        (ToWorker::Welcome { heartbeat: Millis(1), lease: Millis(2) }, "Welcome.heartbeat_ms"),
        (ToWorker::Cancel { instance, fence }, "Cancel.attempt.instance"),
        (ToWorker::Acknowledge { instance, fence }, "Acknowledge.attempt.instance"),
        (assign(|assignment| assignment.attempt = 0), "Assign.number"),
        (assign(|assignment| assignment.task_name = Arc::from("")), "Assign.task_name"),
    ] {
        let error = convert::worker_message_into_wire(message, PROTOCOL_VERSION).unwrap_err();
        assert_eq!(format!("{}.{}", error.message, error.field), refused);
    }
    for (message, refused) in [
        (ToScheduler::Started { instance, fence }, "Started.attempt.instance"),
        (ToScheduler::Returned { instance, fence }, "Returned.attempt.instance"),
        (hello(|hello| hello.slots = 0), "Hello.slots"),
        (hello(|hello| hello.running[0].instance = InstanceId(u64::MAX)), "Hello.running.instance"),
    ] {
        let error = convert::scheduler_message_into_wire(message, Versions::OURS).unwrap_err();
        assert_eq!(format!("{}.{}", error.message, error.field), refused);
    }
}

/// Core adds to a detail, and handlers of users may write what they like: a report that was refused would be repeated for ever.
#[test]
fn a_report_that_is_too_long_is_cut_and_sent() {
    let mut report = samples::report();
    report.detail = Some(Arc::from(format!("x{}", "名".repeat(DETAIL_BYTES_MAX))));
    let half = OUTPUT_BYTES_MAX / 2;
    report.output.bytes = [vec![1; half], vec![2; 5], vec![3; half]].concat();
    let wire = convert::scheduler_message_into_wire(ToScheduler::Finished(report), Versions::OURS).unwrap();
    let Ok(Some(ToScheduler::Finished(read))) = convert::scheduler_message_from_wire(wire) else { panic!("a report") };
    let detail = read.detail.unwrap();
    assert!(detail.starts_with("x名") && detail.ends_with("名…"));
    assert!((DETAIL_BYTES_MAX - 2..=DETAIL_BYTES_MAX).contains(&detail.len()), "{} bytes", detail.len());
    assert!(read.output.bytes == [vec![1; half], vec![3; half]].concat());
    assert_eq!(read.output.dropped, samples::report().output.dropped + 5);
}

#[test]
fn refusals_name_the_field() {
    let text = |problem| Refused { message: "Hello", field: "slots", problem }.to_string();
    assert_eq!(text(Problem::Missing), "Hello.slots is missing");
    assert_eq!(text(range(0, 1, 9)), "Hello.slots is 0, not 1 to 9");
    assert_eq!(text(long(3, 2, Unit::Characters)), "Hello.slots has 3 characters, more than 2");
    assert_eq!(text(Problem::UnknownValue { value: 7 }), "Hello.slots is 7, which this version doesn't know");
    assert_eq!(text(FOREIGN), "Hello.slots is of partition 16384; there are at most 16384");
    let rare = Problem::TooRare { heartbeat_ms: 2, lease_ms: 5 };
    assert_eq!(text(rare), "Hello.slots is 2, more than a third of the lease of 5 ms");
}
