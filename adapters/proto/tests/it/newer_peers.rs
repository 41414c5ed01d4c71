//! What a newer peer adds is skipped.

use bytes::BytesMut;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_proto::connection::{Dropped, SchedulerSide, WorkerSide};
use punctual_proto::wire::{ToSchedulerFrame, ToWorkerFrame};

use crate::samples;

/// Fields that no message has: a number, and bytes.
fn with_unknown_fields(message: Vec<u8>) -> Vec<u8> {
    let mut bytes = message;
    encode_key(1_000, WireType::Varint, &mut bytes);
    encode_varint(u64::MAX, &mut bytes);
    with_part(bytes, 1_001, b"something newer")
}

/// A part that follows after what is there already.
fn with_part(mut bytes: Vec<u8>, tag: u32, part: &[u8]) -> Vec<u8> {
    encode_key(tag, WireType::LengthDelimited, &mut bytes);
    encode_varint(part.len() as u64, &mut bytes);
    bytes.extend_from_slice(part);
    bytes
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut worker = samples::welcomed();
    let sent = samples::to_scheduler();
    let frame = worker.send(sent.clone()).unwrap().remove(0);
    // The same frame, with more in it at every depth that is written by hand here: frame, message, kind.
    let mut bytes = with_unknown_fields(ToSchedulerFrame { sequence: 1, messages: Vec::new() }.encode_to_vec());
    for message in &frame.messages {
        let message = message.encode_to_vec();
        let (tag, mut rest) = (u32::from(message[0] >> 3), &message[1..]);
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        assert_eq!(length, rest.len(), "the kind is all that a message has");
        let kind = with_unknown_fields(rest.to_vec());
        bytes = with_part(bytes, 2, &with_unknown_fields(with_part(Vec::new(), tag, &kind)));
    }
    let frame = ToSchedulerFrame::decode(BytesMut::from(&bytes[..])).unwrap();
    let mut scheduler = SchedulerSide::default();
    assert_eq!(scheduler.receive(frame), Ok(sent));
    assert_eq!(scheduler.dropped(), Dropped::default());
}

#[test]
fn kinds_that_are_not_known_are_skipped_and_counted() {
    let mut scheduler = SchedulerSide::default();
    let hello = WorkerSide::default().send(vec![ToScheduler::Hello(samples::hello())]).unwrap().remove(0);
    // A newer kind before the hello is no reason to cut the worker off, nor is one between others.
    let newer = with_part(Vec::new(), 15, b"newer");
    let mut bytes = with_part(vec![0x08, 1], 2, &newer);
    bytes = with_part(bytes, 2, &hello.messages[0].encode_to_vec());
    bytes = with_part(bytes, 2, &newer);
    let frame = ToSchedulerFrame::decode(&bytes[..]).unwrap();
    assert_eq!(scheduler.receive(frame), Ok(vec![ToScheduler::Hello(samples::hello())]));
    assert_eq!(scheduler.dropped(), Dropped { repeated_frames: 0, unknown_messages: 2 });

    let mut worker = WorkerSide::default();
    let alive = scheduler.send(vec![ToWorker::Alive]).unwrap().remove(0);
    let bytes = with_part(with_part(vec![0x08, 1], 2, &newer), 2, &alive.messages[0].encode_to_vec());
    assert_eq!(worker.receive(ToWorkerFrame::decode(&bytes[..]).unwrap()), Ok(vec![ToWorker::Alive]));
    assert_eq!(worker.dropped(), Dropped { repeated_frames: 0, unknown_messages: 1 });
}

/// Workers of versions 2 to 4 tell what running attempts have written so far, which nobody reads any more.
#[test]
fn what_older_workers_tell_besides_is_skipped() {
    let mut scheduler = SchedulerSide::default();
    let hello = WorkerSide::default().send(vec![ToScheduler::Hello(samples::hello())]).unwrap().remove(0);
    scheduler.receive(hello).unwrap();
    let progress = [0x3a, 0x15, 0x0a, 0x0b, 0x09, 0x11, 0, 0, 0, 0, 0, 0x2b, 0, 0x10, 0x12, 0x12, 6, 0x0a, 2, 0, 0xff, 0x10, 6];
    let bytes = with_part(with_part(vec![0x08, 2], 2, &progress), 2, &[0x12, 0]);
    let frame = ToSchedulerFrame::decode(&bytes[..]).unwrap();
    assert_eq!(scheduler.receive(frame), Ok(vec![ToScheduler::Heartbeat]));
    assert_eq!(scheduler.dropped().unknown_messages, 1);
}
