//! Both sides of a connection: what comes first, and what ends it.

use punctual_core::ids::InstanceId;
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_core::time::Millis;
use punctual_proto::connection::{ConnectionError, Dropped, SchedulerSide, WorkerSide};
use punctual_proto::frame::SequenceError;
use punctual_proto::version::{PROTOCOL_VERSION, VersionError, Versions};
use punctual_proto::wire::{self, to_scheduler, to_worker};

use crate::samples;

fn welcome() -> ToWorker {
    ToWorker::Welcome { heartbeat: Millis(10_000), lease: Millis(30_000) }
}

fn hello_frame() -> wire::ToSchedulerFrame {
    WorkerSide::default().send(vec![ToScheduler::Hello(samples::hello())]).unwrap().remove(0)
}

/// A scheduler's side to which a worker has said hello.
fn introduced() -> SchedulerSide {
    let mut scheduler = SchedulerSide::default();
    scheduler.receive(hello_frame()).unwrap();
    scheduler
}

#[test]
fn a_hello_and_a_welcome_settle_the_version() {
    let (mut worker, mut scheduler) = (WorkerSide::default(), SchedulerSide::default());
    assert_eq!((worker.version(), scheduler.version()), (None, None));
    for frame in worker.send(vec![ToScheduler::Hello(samples::hello())]).unwrap() {
        assert_eq!(scheduler.receive(frame), Ok(vec![ToScheduler::Hello(samples::hello())]));
    }
    assert_eq!(scheduler.version(), Some(PROTOCOL_VERSION));
    for frame in scheduler.send(vec![welcome()]).unwrap() {
        assert_eq!(worker.receive(frame), Ok(vec![welcome()]));
    }
    assert_eq!(worker.version(), Some(PROTOCOL_VERSION));
}

#[test]
fn a_worker_of_another_age_is_told_so_before_anything_of_it_is_read() {
    let mut frame = hello_frame();
    let Some(to_scheduler::Kind::Hello(hello)) = &mut frame.messages[0].kind else { panic!("a hello") };
    (hello.oldest_version, hello.newest_version) = (PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 4);
    // The newer version may mean something else by this.
    hello.slots = 0;
    let theirs = Versions { oldest: PROTOCOL_VERSION + 1, newest: PROTOCOL_VERSION + 4 };
    let error = VersionError::NoneInCommon { ours: Versions::OURS, theirs };
    assert_eq!(SchedulerSide::default().receive(frame), Err(ConnectionError::Version(error)));
}

#[test]
fn a_worker_that_also_speaks_newer_versions_is_welcome() {
    let mut frame = hello_frame();
    let Some(to_scheduler::Kind::Hello(hello)) = &mut frame.messages[0].kind else { panic!("a hello") };
    hello.newest_version = PROTOCOL_VERSION + 4;
    let mut scheduler = SchedulerSide::default();
    scheduler.receive(frame).unwrap();
    assert_eq!(scheduler.version(), Some(PROTOCOL_VERSION));
}

#[test]
fn a_version_that_was_not_offered_is_refused() {
    let mut frame = introduced().send(vec![welcome()]).unwrap().remove(0);
    let Some(to_worker::Kind::Welcome(welcome)) = &mut frame.messages[0].kind else { panic!("a welcome") };
    welcome.version = PROTOCOL_VERSION + 1;
    let error = VersionError::NotOffered { chosen: PROTOCOL_VERSION + 1, ours: Versions::OURS };
    assert_eq!(WorkerSide::default().receive(frame), Err(ConnectionError::Version(error)));
}

#[test]
fn nothing_is_said_before_the_hello() {
    for message in samples::to_scheduler().into_iter().skip(1) {
        let frame = samples::welcomed().send(vec![message]).unwrap().remove(0);
        assert_eq!(SchedulerSide::default().receive(frame), Err(ConnectionError::NoHello));
    }
    assert_eq!(SchedulerSide::default().send(vec![ToWorker::Alive]), Err(ConnectionError::NoHello));
}

#[test]
fn frames_that_come_again_are_dropped_and_lost_ones_noticed() {
    let (mut worker, mut scheduler) = (WorkerSide::default(), introduced());
    let frames: Vec<_> = (0..3).map(|_| scheduler.send(vec![ToWorker::Alive]).unwrap().remove(0)).collect();
    assert_eq!(worker.receive(frames[0].clone()), Ok(vec![ToWorker::Alive]));
    assert_eq!(worker.receive(frames[0].clone()), Ok(vec![]));
    assert_eq!(worker.dropped(), Dropped { repeated_frames: 1, unknown_messages: 0 });
    let gap = SequenceError::Gap { expected: 2, found: 3 };
    assert_eq!(worker.receive(frames[2].clone()), Err(ConnectionError::Sequence(gap)));

    assert_eq!(scheduler.receive(hello_frame()), Ok(vec![]), "the same frame as before");
    assert_eq!(scheduler.dropped(), Dropped { repeated_frames: 1, unknown_messages: 0 });
}

#[test]
fn one_message_that_is_refused_stops_the_whole_batch() {
    let mut scheduler = introduced();
    let (instance, fence) = (InstanceId(u64::MAX), punctual_core::ids::Fence(1));
    let error = scheduler.send(vec![ToWorker::Alive, ToWorker::Cancel { instance, fence }]).unwrap_err();
    assert!(matches!(error, ConnectionError::Refused(_)), "{error}");
    assert_eq!(scheduler.send(vec![ToWorker::Alive]).unwrap()[0].sequence, 1, "no number was used");

    let mut frame = hello_frame();
    frame.messages.push(wire::ToScheduler { kind: Some(to_scheduler::Kind::Started(wire::Started { attempt: None })) });
    let error = SchedulerSide::default().receive(frame).unwrap_err();
    assert_eq!(error.to_string(), "Started.attempt is missing");
}
