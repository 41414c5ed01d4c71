//! Frames in a stream, their numbers, and batches that are too large for one.

use bytes::{BufMut, BytesMut};
use prost::Message;
use punctual_proto::frame::{self, Frame, FrameError, Numbering, Order, Sequence, SequenceError};
use punctual_proto::limits::FRAME_BYTES_MAX;
use punctual_proto::wire::{Alive, Finished, Output, ToScheduler, ToSchedulerFrame, ToWorker, ToWorkerFrame, to_scheduler, to_worker};

fn alive() -> ToWorker {
    ToWorker { kind: Some(to_worker::Kind::Alive(Alive {})) }
}

/// A message with this much output, and a mark by which to know it.
fn output(mark: i32, bytes: usize) -> ToScheduler {
    let output = Some(Output { bytes: vec![7; bytes], dropped: 0 });
    ToScheduler { kind: Some(to_scheduler::Kind::Finished(Box::new(Finished { code: Some(mark), output, ..Finished::default() }))) }
}

#[test]
fn a_frame_stands_behind_its_length() {
    let mut stream = BytesMut::from(&b"before"[..]);
    frame::encode(&ToWorkerFrame::new(1, vec![alive()]), &mut stream).unwrap();
    assert_eq!(&stream[..], b"before\0\0\0\x06\x08\x01\x12\x02\x2a\0");
}

#[test]
fn a_frame_that_is_not_all_there_is_left() {
    let mut whole = BytesMut::new();
    let frame = ToWorkerFrame::new(7, vec![alive()]);
    frame::encode(&frame, &mut whole).unwrap();
    for length in 0..whole.len() {
        let mut arrived = BytesMut::from(&whole[..length]);
        assert_eq!(frame::decode::<ToWorkerFrame>(&mut arrived), Ok(None));
        assert_eq!(arrived[..], whole[..length]);
    }
    whole.put_u8(0);
    assert_eq!(frame::decode(&mut whole), Ok(Some(frame)));
    assert_eq!(&whole[..], [0], "the beginning of the next frame stays");
}

#[test]
fn a_length_beyond_the_limit_is_refused_at_once() {
    for bytes in [FRAME_BYTES_MAX + 1, u32::MAX as usize] {
        let mut arrived = BytesMut::from(&u32::try_from(bytes).unwrap().to_be_bytes()[..]);
        assert_eq!(frame::decode::<ToWorkerFrame>(&mut arrived), Err(FrameError::TooLarge { bytes }));
    }
    let mut arrived = BytesMut::from(&u32::try_from(FRAME_BYTES_MAX).unwrap().to_be_bytes()[..]);
    assert_eq!(frame::decode::<ToWorkerFrame>(&mut arrived), Ok(None));
}

#[test]
fn a_frame_of_the_limit_is_sent_and_one_byte_more_is_not() {
    let spare = FRAME_BYTES_MAX - ToSchedulerFrame::new(1, vec![output(1, FRAME_BYTES_MAX / 2)]).encoded_len();
    let mut stream = BytesMut::new();
    let largest = ToSchedulerFrame::new(1, vec![output(1, FRAME_BYTES_MAX / 2 + spare)]);
    assert_eq!(largest.encoded_len(), FRAME_BYTES_MAX);
    frame::encode(&largest, &mut stream).unwrap();
    assert!(frame::decode(&mut stream) == Ok(Some(largest)));

    let larger = ToSchedulerFrame::new(1, vec![output(1, FRAME_BYTES_MAX / 2 + spare + 1)]);
    assert_eq!(frame::encode(&larger, &mut stream), Err(FrameError::TooLarge { bytes: FRAME_BYTES_MAX + 1 }));
    assert!(stream.is_empty(), "nothing of it was written");
}

#[test]
fn bytes_that_are_no_frame_are_refused() {
    let mut arrived = BytesMut::from(&b"\0\0\0\x02\x12\x05"[..]);
    assert!(matches!(frame::decode::<ToWorkerFrame>(&mut arrived), Err(FrameError::Garbled(_))));
}

#[test]
fn a_batch_goes_out_in_as_few_frames_as_hold_it() {
    let sizes = [900_000, 5, 3_000_000, 200_000, 4_190_000, 100, 0, 2_500_000, 2_500_000];
    let messages: Vec<_> = sizes.iter().zip(1..).map(|(bytes, mark)| output(mark, *bytes)).collect();
    let mut numbering = Numbering::default();
    let frames: Vec<ToSchedulerFrame> = numbering.frames(messages.clone()).unwrap();
    assert_eq!(frames.iter().map(|frame| frame.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(frames.iter().map(|frame| frame.messages.len()).collect::<Vec<_>>(), [4, 3, 1, 1]);
    assert!(frames.iter().all(|frame| frame.encoded_len() <= FRAME_BYTES_MAX));
    assert!(frames.into_iter().flat_map(|frame| frame.messages).eq(messages), "in their order");

    let next: Vec<ToSchedulerFrame> = numbering.frames(vec![output(1, 1)]).unwrap();
    assert_eq!(next[0].sequence, 5, "numbers go on over batches");
}

#[test]
fn many_small_messages_share_a_frame_up_to_its_limit() {
    let each = ToWorkerFrame::new(0, vec![alive()]).encoded_len();
    let fit = (FRAME_BYTES_MAX - 11) / each;
    let frames: Vec<ToWorkerFrame> = Numbering::default().frames(vec![alive(); fit + 1]).unwrap();
    assert_eq!(frames.iter().map(|frame| frame.messages.len()).collect::<Vec<_>>(), [fit, 1]);
}

#[test]
fn no_messages_make_no_frame() {
    let mut numbering = Numbering::default();
    assert_eq!(numbering.frames::<ToWorkerFrame>(Vec::new()), Ok(Vec::new()));
    assert_eq!(numbering.frames(vec![alive()]), Ok(vec![ToWorkerFrame::new(1, vec![alive()])]));
}

#[test]
fn a_message_that_no_frame_holds_uses_no_number() {
    let mut numbering = Numbering::default();
    let messages = vec![output(1, 4_000_000), output(2, 4_000_000), output(3, FRAME_BYTES_MAX)];
    assert!(matches!(numbering.frames::<ToSchedulerFrame>(messages), Err(FrameError::TooLarge { bytes }) if bytes > FRAME_BYTES_MAX));
    assert_eq!(numbering.frames::<ToSchedulerFrame>(vec![output(1, 1)]).unwrap()[0].sequence, 1);
}

#[test]
fn the_next_number_is_taken_and_an_old_one_is_dropped() {
    let mut sequence = Sequence::default();
    for number in 1..=3 {
        assert_eq!(sequence.take(number), Ok(Order::Next));
    }
    for number in [3, 1] {
        assert_eq!(sequence.take(number), Ok(Order::Repeated));
    }
    assert_eq!(sequence.repeated(), 2);
    assert_eq!(sequence.take(4), Ok(Order::Next), "an old one changes nothing");
}

#[test]
fn a_gap_in_the_numbers_is_an_error() {
    let mut sequence = Sequence::default();
    assert_eq!(sequence.take(2), Err(SequenceError::Gap { expected: 1, found: 2 }), "the first is 1");
    assert_eq!(sequence.take(1), Ok(Order::Next), "and the gap was not taken");
    assert_eq!(sequence.take(3), Err(SequenceError::Gap { expected: 2, found: 3 }));
    assert_eq!(sequence.take(u64::MAX), Err(SequenceError::Gap { expected: 2, found: u64::MAX }));
    assert_eq!(sequence.take(0), Err(SequenceError::NoNumber));
    assert_eq!(sequence.repeated(), 0);
}

/// A frame of empty messages is two bytes for each: what they become must not be many times that.
#[test]
fn a_message_takes_little_room_whatever_its_kind() {
    assert!(size_of::<ToWorker>() <= 48, "{} bytes", size_of::<ToWorker>());
    assert!(size_of::<ToScheduler>() <= 48, "{} bytes", size_of::<ToScheduler>());
}
