//! Whatever arrives, nothing panics, and what is let in could have been sent.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use punctual_core::protocol::ToScheduler;
use punctual_proto::connection::{SchedulerSide, WorkerSide};
use punctual_proto::convert;
use punctual_proto::frame;
use punctual_proto::version::{PROTOCOL_VERSION, Versions};
use punctual_proto::wire::{ToSchedulerFrame, ToWorkerFrame};

use crate::{samples, strategies};

/// Reads the bytes as a scheduler would, up to the first error; how many messages it let in.
fn read_as_scheduler(mut bytes: BytesMut) -> usize {
    let (mut side, mut count) = (SchedulerSide::default(), 0);
    while let Ok(Some(frame)) = frame::decode::<ToSchedulerFrame>(&mut bytes) {
        let Ok(messages) = side.receive(frame) else { break };
        count += messages.len();
        for message in messages {
            let wire = convert::scheduler_message_into_wire(message.clone(), Versions::OURS).expect("what is let in may be sent");
            assert_eq!(convert::scheduler_message_from_wire(wire), Ok(Some(message)));
        }
    }
    count
}

/// The same as a worker would.
fn read_as_worker(mut bytes: BytesMut) -> usize {
    let (mut side, mut count) = (WorkerSide::default(), 0);
    while let Ok(Some(frame)) = frame::decode::<ToWorkerFrame>(&mut bytes) {
        let Ok(messages) = side.receive(frame) else { break };
        count += messages.len();
        for message in messages {
            let wire = convert::worker_message_into_wire(message.clone(), PROTOCOL_VERSION).expect("what is let in may be sent");
            assert_eq!(convert::worker_message_from_wire(wire), Ok(Some(message)));
        }
    }
    count
}

/// What both sides say, as bytes.
fn both_streams(said: Vec<ToScheduler>, answered: Vec<punctual_core::protocol::ToWorker>) -> (BytesMut, BytesMut) {
    let (mut worker, mut scheduler) = (samples::welcomed(), SchedulerSide::default());
    let (mut to_scheduler, mut to_worker) = (BytesMut::new(), BytesMut::new());
    let hello = vec![ToScheduler::Hello(samples::hello())];
    for frame in [worker.send(hello).unwrap(), worker.send(said).unwrap()].into_iter().flatten() {
        frame::encode(&frame, &mut to_scheduler).unwrap();
        scheduler.receive(frame).unwrap();
    }
    for frame in scheduler.send(answered).unwrap() {
        frame::encode(&frame, &mut to_worker).unwrap();
    }
    (to_scheduler, to_worker)
}

#[test]
fn what_is_not_garbage_is_read_to_its_end() {
    let (to_scheduler, to_worker) = both_streams(samples::to_scheduler(), samples::to_worker());
    assert_eq!(read_as_scheduler(to_scheduler), 1 + samples::to_scheduler().len());
    assert_eq!(read_as_worker(to_worker), samples::to_worker().len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..300)) {
        read_as_scheduler(BytesMut::from(&bytes[..]));
        read_as_worker(BytesMut::from(&bytes[..]));
        // Nearly no random length is within the limit: a small one lets the rest be looked at.
        let framed = [&[0, 0, 0, bytes.len().min(255) as u8], &bytes[..]].concat();
        read_as_scheduler(BytesMut::from(&framed[..]));
        read_as_worker(BytesMut::from(&framed[..]));
    }

    #[test]
    fn good_bytes_gone_bad(
        said in vec(strategies::to_scheduler(), 0..4),
        answered in vec(strategies::to_worker(), 0..4),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let (mut to_scheduler, mut to_worker) = both_streams(said, answered);
        for stream in [&mut to_scheduler, &mut to_worker] {
            // The first bytes are those of small numbers and lengths: half of the changes go there.
            let near = stream.len().min(64);
            for (count, (place, value)) in changes.iter().enumerate().filter(|_| near > 0) {
                let place = place.index(if count % 2 == 0 { near } else { stream.len() });
                stream[place] = *value;
            }
        }
        read_as_scheduler(to_scheduler);
        read_as_worker(to_worker);
    }
}
