//! The largest message of each kind fits a frame, and whatever a task file may hold fits a message.

use std::sync::Arc;

use bytes::BytesMut;
use prost::Message;
use punctual_core::ids::{Fence, InstanceId, PartitionId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::limits::{
    DELAY_MAX, DETAIL_BYTES_MAX, INPUTS_BYTES_MAX, MAP_BYTES_MAX, MAP_ITEM_BYTES_MAX, MAP_ITEMS_MAX, NAME_CHARS_MAX, OUTPUT_BYTES_MAX,
    PARTITIONS_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX, RETRY_AFTER_MAX, SHARD_KEY_BYTES_MAX, SHARDS_MAX,
};
use punctual_core::limits::{TAG_BYTES_MAX, TAGS_MAX, WORKER_VERSION_BYTES_MAX};
use punctual_core::protocol::{MapRole, Node, Running, Shard, ToScheduler, ToWorker};
use punctual_core::routing::{WorkerTraits, WorkerVersion};
use punctual_core::time::Timestamp;
use punctual_proto::connection::{SchedulerSide, WorkerSide};
use punctual_proto::frame;
use punctual_proto::limits::*;
use punctual_proto::wire::{to_scheduler, to_worker};

use crate::samples;

/// A character of four bytes.
fn widest(chars: usize) -> Arc<str> {
    Arc::from("\u{10ffff}".repeat(chars))
}

fn instance() -> InstanceId {
    InstanceId::new(PartitionId(PARTITIONS_MAX - 1), (1 << 48) - 1)
}

/// What was computed is right, and no more than some bytes too much.
fn assert_close(bytes: usize, computed: usize) {
    assert!(bytes <= computed, "{bytes} bytes, and at most {computed} were thought possible");
    assert!(computed - bytes < 100, "{bytes} bytes, and {computed} were thought possible");
}

#[test]
fn the_largest_hello_and_report_fit() {
    let mut hello = samples::hello();
    (hello.worker, hello.life) = (WorkerId(Arc::from("x".repeat(WORKER_ID_BYTES_MAX))), WorkerLife(u64::MAX));
    (hello.slots, hello.received) = (SLOTS_MAX, u64::MAX);
    hello.handlers = vec![widest(HANDLER_NAME_CHARS_MAX); HANDLERS_MAX];
    hello.running = vec![Running { instance: instance(), fence: Fence(u64::MAX) }; RUNNING_MAX];
    let tag: Arc<str> = Arc::from(format!("k={}", "v".repeat(TAG_BYTES_MAX - 2)));
    let version = WorkerVersion::parse(&format!("1-{}", "a".repeat(WORKER_VERSION_BYTES_MAX - 2))).ok();
    hello.traits = WorkerTraits { tags: vec![tag; TAGS_MAX], version, reserved: [SLOTS_MAX - 1, 1], ..WorkerTraits::default() };
    let mut report = samples::report();
    (report.instance, report.fence, report.code) = (instance(), Fence(u64::MAX), Some(i32::MIN));
    report.detail = Some(Arc::from("x".repeat(DETAIL_BYTES_MAX)));
    (report.output.bytes, report.output.dropped) = (vec![7; OUTPUT_BYTES_MAX], u64::MAX);

    report.result = Some(Arc::from("x".repeat(RESULT_BYTES_MAX)));
    let item = "x".repeat(MAP_ITEM_BYTES_MAX - 1);
    report.items = Some(Arc::from(vec![&*item; MAP_BYTES_MAX / MAP_ITEM_BYTES_MAX].join("\n")));
    report.retry_after = Some(RETRY_AFTER_MAX);

    let sent = vec![ToScheduler::Hello(hello), ToScheduler::Finished(report)];
    let frames = WorkerSide::default().send(sent.clone()).unwrap();
    for message in frames.iter().flat_map(|frame| &frame.messages) {
        match message.kind.as_ref().unwrap() {
            to_scheduler::Kind::Hello(hello) => assert_close(hello.encoded_len(), HELLO_BYTES_MAX),
            to_scheduler::Kind::Finished(finished) => assert_close(finished.encoded_len(), FINISHED_BYTES_MAX),
            other => panic!("{other:?} was not sent"),
        }
    }
    let (mut stream, mut scheduler, mut read) = (BytesMut::new(), SchedulerSide::default(), Vec::new());
    for frame in &frames {
        frame::encode(frame, &mut stream).unwrap();
    }
    while let Some(frame) = frame::decode(&mut stream).unwrap() {
        read.extend(scheduler.receive(frame).unwrap());
    }
    assert!(read == sent, "what was sent arrives");
}

#[test]
fn the_largest_assignment_fits() {
    let mut assignment = samples::assignment();
    (assignment.instance, assignment.fence, assignment.attempt) = (instance(), Fence(u64::MAX), u32::MAX);
    (assignment.task, assignment.version, assignment.ordinal) = (TaskId(u64::MAX), Version(u32::MAX), u64::MAX);
    assignment.map = Some(MapRole::Reduce { results: Arc::from("x".repeat(MAP_BYTES_MAX)) });
    let key = Some(Arc::from("x".repeat(SHARD_KEY_BYTES_MAX)));
    (assignment.run, assignment.shard) = (u32::MAX, Some(Shard { index: MAP_ITEMS_MAX - 1, count: MAP_ITEMS_MAX, key }));
    (assignment.task_name, assignment.fire_time) = (widest(NAME_CHARS_MAX), Timestamp::MIN);
    (assignment.handler.name, assignment.handler.config) = (widest(HANDLER_NAME_CHARS_MAX), "x".repeat(HANDLER_CONFIG_BYTES_MAX).into());
    assignment.payload = Some("x".repeat(PAYLOAD_BYTES_MAX).into());
    assignment.node = Some(Node { name: widest(NAME_CHARS_MAX), inputs: "x".repeat(INPUTS_BYTES_MAX).into() });
    assignment.shard = Some(Shard { index: SHARDS_MAX - 1, count: SHARDS_MAX, key: Some("x".repeat(SHARD_KEY_BYTES_MAX).into()) });
    (assignment.timeout.after, assignment.timeout.grace) = (Some(DELAY_MAX), DELAY_MAX);

    let mut scheduler = SchedulerSide::default();
    for frame in WorkerSide::default().send(vec![ToScheduler::Hello(samples::hello())]).unwrap() {
        scheduler.receive(frame).unwrap();
    }
    let sent = ToWorker::Assign(Arc::new(assignment));
    let frame = scheduler.send(vec![sent.clone()]).unwrap().remove(0);
    let Some(to_worker::Kind::Assign(assign)) = &frame.messages[0].kind else { panic!("an assignment") };
    assert_close(assign.encoded_len(), ASSIGN_BYTES_MAX);
    let mut stream = BytesMut::new();
    frame::encode(&frame, &mut stream).unwrap();
    let read = WorkerSide::default().receive(frame::decode(&mut stream).unwrap().unwrap()).unwrap();
    assert!(read == [sent], "what was sent arrives");
}

/// A task that was taken over but can't be sent to any worker would never run.
#[test]
fn what_a_task_file_may_hold_fits() {
    use punctual_spec::limits;
    assert_eq!(HANDLER_NAME_CHARS_MAX, limits::HANDLER_NAME_CHARS_MAX);
    assert_eq!(HANDLER_CONFIG_BYTES_MAX, limits::HANDLER_CONFIG_BYTES_MAX);
}
