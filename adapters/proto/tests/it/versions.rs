//! Two sides agree on a version, or say clearly why they can't.

use punctual_core::protocol::{Hello, ToScheduler, ToWorker};
use punctual_core::routing::{Understanding, WorkerTraits};
use punctual_core::time::Millis;
use punctual_proto::connection::{SchedulerSide, WorkerSide};
use punctual_proto::version::{OLDEST_VERSION, PROTOCOL_VERSION, SHARDS_SINCE, TRAITS_SINCE, VersionError, Versions, accept, negotiate};
use punctual_proto::wire::to_scheduler;

use crate::samples;

const fn versions(oldest: u32, newest: u32) -> Versions {
    Versions { oldest, newest }
}

#[test]
fn the_newest_that_both_speak_is_chosen() {
    for (ours, theirs, chosen) in [
        (versions(1, 1), versions(1, 1), 1),
        (versions(1, 3), versions(2, 5), 3),
        (versions(2, 5), versions(1, 3), 3),
        (versions(1, 9), versions(4, 6), 6),
        (versions(4, 6), versions(1, 9), 6),
        (versions(1, 3), versions(3, 3), 3),
        (versions(1, 3), versions(1, u32::MAX), 3),
    ] {
        assert_eq!(negotiate(ours, theirs), Ok(chosen), "{ours:?} and {theirs:?}");
    }
}

#[test]
fn sides_with_nothing_in_common_say_what_they_speak() {
    for (ours, theirs) in [
        (versions(1, 2), versions(3, 4)),
        (versions(3, 4), versions(1, 2)),
        (versions(1, 2), versions(0, 0)),
        (versions(1, 2), versions(0, 1)),
        (versions(1, 4), versions(3, 2)),
        (versions(1, 1), versions(u32::MAX, 1)),
    ] {
        assert_eq!(negotiate(ours, theirs), Err(VersionError::NoneInCommon { ours, theirs }));
    }
    let text = |theirs| negotiate(versions(3, 3), theirs).unwrap_err().to_string();
    let (start, end) =
        ("no version of the worker protocol in common: this side speaks version 3, the other side ", "Bring the older one up to date");
    assert_eq!(text(versions(1, 2)), format!("{start}versions 1 to 2. {end}"));
    assert_eq!(text(versions(0, 0)), format!("{start}no version that it names. {end}"));
}

#[test]
fn a_worker_takes_only_what_it_has_offered() {
    let ours = versions(2, 4);
    for chosen in 2..=4 {
        assert_eq!(accept(ours, chosen), Ok(chosen));
    }
    for chosen in [0, 1, 5] {
        assert_eq!(accept(ours, chosen), Err(VersionError::NotOffered { chosen, ours }));
    }
    let text = accept(ours, 5).unwrap_err().to_string();
    let expected =
        "the scheduler chose version 5 of the worker protocol, but this worker speaks versions 2 to 4. Bring the older one up to date";
    assert_eq!(text, expected);
}

#[test]
fn this_side_speaks_what_its_constants_say() {
    assert_eq!(Versions::OURS, versions(OLDEST_VERSION, PROTOCOL_VERSION));
    assert_eq!((OLDEST_VERSION, PROTOCOL_VERSION), (1, 4));
}

/// By what both speak, not by what the worker could: a worker of before is given no shard, however often it says hello.
#[test]
fn what_a_worker_understands_is_what_its_version_has() {
    for newest in OLDEST_VERSION..=PROTOCOL_VERSION {
        let (mut worker, mut scheduler) = (WorkerSide::speaking(versions(1, newest)), SchedulerSide::default());
        let frames = worker.send(vec![ToScheduler::Hello(samples::hello())]).unwrap();
        let heard: Vec<_> = frames.into_iter().flat_map(|frame| scheduler.receive(frame).unwrap()).collect();
        let [ToScheduler::Hello(hello)] = &heard[..] else { panic!("a hello") };
        assert_eq!(hello.traits.understands >= Understanding::Shards, newest >= SHARDS_SINCE, "version {newest}");
        let welcome = ToWorker::Welcome { heartbeat: Millis(10_000), lease: Millis(30_000) };
        worker.receive(scheduler.send(vec![welcome]).unwrap().remove(0)).unwrap();
        assert_eq!(worker.version(), Some(newest));
    }
}

#[test]
fn a_worker_of_before_has_no_traits() {
    let mut worker = WorkerSide::default();
    let mut hello = worker.send(vec![ToScheduler::Hello(samples::hello())]).unwrap().remove(0);
    let Some(to_scheduler::Kind::Hello(said)) = &mut hello.messages[0].kind else { panic!("a hello") };
    // What such a worker doesn't write.
    (said.newest_version, said.tags, said.program_version) = (TRAITS_SINCE - 1, Vec::new(), None);
    (said.reserved_urgent, said.reserved_normal) = (0, 0);
    let mut scheduler = SchedulerSide::default();
    let traits = WorkerTraits { understands: Understanding::Firings, ..WorkerTraits::default() };
    let expected = Hello { traits, ..samples::hello() };
    assert_eq!(scheduler.receive(hello), Ok(vec![ToScheduler::Hello(expected)]));
    assert_eq!(scheduler.version(), Some(TRAITS_SINCE - 1));
}
