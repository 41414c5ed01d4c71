//! The bytes of each kind of message, written down once: what is out there reads them by these numbers for ever.

use std::sync::Arc;

use prost::Message;
use punctual_core::definition::TimeoutAction;
use punctual_core::protocol::{End, ToScheduler, ToWorker};
use punctual_proto::convert;
use punctual_proto::version::Versions;
use punctual_proto::wire::{Attempt, LogBatch, LogLevel, LogLine, LogLines, LogReply, to_scheduler, to_worker};

use crate::samples;

fn hex(message: &impl Message) -> String {
    message.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_schedulers_say() {
    let bytes: Vec<_> =
        samples::to_worker().into_iter().map(|message| hex(&convert::worker_message_into_wire(message, 1).unwrap())).collect();
    assert_eq!(
        bytes,
        [
            "0a09080110904e18b0ea01",
            concat!(
                "127e0a0b091100000000002b00101210021805220ce6af8fe697a5e5afb9e8b4a6280330013809421b0a07636f6d6d61",
                "6e6412107b227368656c6c223a2274727565227d4a077061796c6f6164520908e0d40310904e180258026208080110031a026575",
                "6a150a046c6f6164120d7b2265787472616374223a377d920202310a",
            ),
            "1a0d0a0b091100000000002b001012",
            "220d0a0b091100000000002b001012",
            "2a00",
            "3200",
        ]
    );
    // A kill is a cancellation that older workers take for one with its grace.
    let kill = samples::to_worker().into_iter().find_map(|message| match message {
        ToWorker::Cancel { instance, fence } => Some(ToWorker::Kill { instance, fence }),
        _ => None,
    });
    let kill = kill.expect("a sample of a cancellation");
    assert_eq!(hex(&convert::worker_message_into_wire(kill, 1).unwrap()), "1a0f0a0b091100000000002b0010121001");
}

#[test]
fn what_workers_say() {
    let bytes: Vec<_> = samples::to_scheduler()
        .into_iter()
        .map(|message| hex(&convert::scheduler_message_into_wire(message, Versions::OURS).unwrap()))
        .collect();
    assert_eq!(
        bytes,
        [
            concat!(
                "0a55080110041a08776f726b65722d31200728043207636f6d6d616e643204687474703801420b091100000000002b001012480b",
                "52086770753d7472756552077a6f6e653d65755a0a312e342e302d72632e3160016802",
            ),
            "1200",
            "1a0d0a0b091100000000002b001012",
            "22300a0b091100000000002b0010121002181122066b696c6c65642a060a0200ff100632035b315d3890bf05e20103310a32",
            "2a0d0a0b091100000000002b001012",
            "3200",
        ]
    );
}

#[test]
fn how_an_attempt_ended() {
    for (end, number) in [(End::Succeeded, 1), (End::Failed, 2), (End::FailedForGood, 3), (End::TimedOut, 4), (End::Cancelled, 5)] {
        let mut report = samples::report();
        report.end = end;
        let wire = convert::scheduler_message_into_wire(ToScheduler::Finished(report), Versions::OURS).unwrap();
        let Some(to_scheduler::Kind::Finished(finished)) = wire.kind else { panic!("a report") };
        assert_eq!(finished.end, number, "{end:?}");
    }
}

#[test]
fn what_is_done_when_the_time_is_over() {
    for (action, number) in [(TimeoutAction::Kill, 1), (TimeoutAction::Wait, 2)] {
        let mut assignment = samples::assignment();
        assignment.timeout.action = action;
        let wire = convert::worker_message_into_wire(ToWorker::Assign(Arc::new(assignment)), 1).unwrap();
        let Some(to_worker::Kind::Assign(assign)) = wire.kind else { panic!("an assignment") };
        assert_eq!(assign.timeout.unwrap().action, number, "{action:?}");
    }
}

/// Lines go beside the connection.
#[test]
fn what_attempts_log() {
    let line = LogLine { sequence: 7, at_ms: -5, level: LogLevel::Warn.into(), dropped: 3, message: "ä".into() };
    let attempt = Some(Attempt { instance: Some(0x2b_0000_0000_0011), fence: Some(18) });
    let lines = LogLines { attempt, number: 2, task: Some(9), trace_id: vec![7; 2], lines: vec![line] };
    let batch = LogBatch { worker: "w1".into(), attempts: vec![lines] };
    assert_eq!(hex(&batch), "0a02773112230a0b091100000000002b00101210021809220207072a0c08071009180420032a02c3a4");
    assert_eq!(hex(&LogReply {}), "");
}
