//! What is sent is what arrives, however the bytes are cut on their way.

use bytes::{Buf, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use punctual_core::protocol::{ToScheduler, ToWorker};
use punctual_proto::connection::{Dropped, SchedulerSide, WorkerSide};
use punctual_proto::convert;
use punctual_proto::frame::{self, Frame};
use punctual_proto::version::{PROTOCOL_VERSION, Versions};

use crate::{samples, strategies};

/// The frames as they come out of a stream that brings them in pieces.
fn through_a_stream<F: Frame>(frames: &[F], cuts: &[Index]) -> Vec<F> {
    let mut stream = BytesMut::new();
    for frame in frames {
        frame::encode(frame, &mut stream).unwrap();
    }
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();

    let (mut arrived, mut read) = (BytesMut::new(), Vec::new());
    for piece in cuts.windows(2) {
        arrived.extend_from_slice(&stream[piece[0]..piece[1]]);
        while let Some(frame) = frame::decode(&mut arrived).unwrap() {
            read.push(frame);
        }
    }
    assert!(!arrived.has_remaining(), "{} bytes are left over", arrived.remaining());
    read
}

#[test]
fn every_kind_of_message_comes_back() {
    for message in samples::to_worker() {
        let wire = convert::worker_message_into_wire(message.clone(), PROTOCOL_VERSION).unwrap();
        assert_eq!(convert::worker_message_from_wire(wire), Ok(Some(message)));
    }
    for message in samples::to_scheduler() {
        let wire = convert::scheduler_message_into_wire(message.clone(), Versions::OURS).unwrap();
        assert_eq!(convert::scheduler_message_from_wire(wire), Ok(Some(message)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_workers_say_arrives(
        hello in strategies::hello(),
        batches in vec(vec(strategies::to_scheduler(), 0..8), 0..4),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let (mut worker, mut scheduler) = (samples::welcomed(), SchedulerSide::default());
        let mut frames = worker.send(vec![ToScheduler::Hello(hello.clone())]).unwrap();
        for batch in batches.clone() {
            frames.extend(worker.send(batch).unwrap());
        }
        let arrived: Vec<_> =
            through_a_stream(&frames, &cuts).into_iter().flat_map(|frame| scheduler.receive(frame).unwrap()).collect();
        let sent: Vec<_> = [ToScheduler::Hello(hello)].into_iter().chain(batches.into_iter().flatten()).collect();
        prop_assert_eq!(arrived, sent);
        prop_assert_eq!(scheduler.dropped(), Dropped::default());
    }

    #[test]
    fn what_schedulers_say_arrives(
        batches in vec(vec(strategies::to_worker(), 0..8), 1..4),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let (mut worker, mut scheduler) = (WorkerSide::default(), SchedulerSide::default());
        for frame in worker.send(vec![ToScheduler::Hello(samples::hello())]).unwrap() {
            scheduler.receive(frame).unwrap();
        }
        let mut frames = Vec::new();
        for batch in batches.clone() {
            frames.extend(scheduler.send(batch).unwrap());
        }
        let arrived: Vec<ToWorker> =
            through_a_stream(&frames, &cuts).into_iter().flat_map(|frame| worker.receive(frame).unwrap()).collect();
        prop_assert_eq!(arrived, batches.into_iter().flatten().collect::<Vec<_>>());
        prop_assert_eq!(worker.dropped(), Dropped::default());
    }
}
