//! Sources with clocks of their own become one history.

use std::sync::Arc;

use punctual_chaos::clock::Origin;
use punctual_chaos::merge::{ENTRY_UNTOLD, Sources, merge};
use punctual_chaos::told::Note;
use punctual_chaos::truth::{Line, Told};
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId};
use punctual_core::time::Timestamp;
use punctual_sim::history::{Answer, Ask, History, What, Who};
use punctual_store::recorder::{Logged, Seen};

/// The run began at 5 s by the monotonic clock and at 1 000 s by the wall clock.
const ORIGIN: Origin = Origin { monotonic_us: 5_000_000, wall_us: 1_000_000_000 };

fn sources() -> Sources {
    Sources { origin: ORIGIN, end_us: 65_000_000, notes: Vec::new(), accounts: Vec::new(), logged: Vec::new(), left: Default::default() }
}

fn note(us: i64, who: Who, what: What) -> Note {
    Note { us: ORIGIN.monotonic_us + us, who, what }
}

fn logged(us: i64, seen: Seen) -> Logged {
    Logged { at_micros: ORIGIN.wall_us + us, made_at: None, seen }
}

fn cancel(entry: u64) -> Seen {
    Seen::CancelSubmitted { entry: InboxId(entry), instance: InstanceId(7) }
}

fn answers(history: &History) -> Vec<Answer> {
    let answer = |what: &What| if let What::Answered { answer, .. } = what { Some(answer.clone()) } else { None };
    history.records.iter().filter_map(|record| answer(&record.what)).collect()
}

fn words(history: &History) -> Vec<String> {
    let word = |what: &What| format!("{what:?}").split([' ', '(']).next().unwrap_or_default().to_owned();
    history.records.iter().map(|record| format!("{} {}", record.at, word(&record.what))).collect()
}

#[test]
fn records_are_in_the_order_of_true_time() {
    let effect = Told::Effect { instance: 7, fence: 1 };
    let merged = merge(Sources {
        notes: vec![note(-3_000, Who::Scheduler(0), What::Started { life: 1 }), note(2_500, Who::World, What::Healed)],
        // A worker whose wall clock is an hour ahead.
        accounts: vec![vec![Line { us: ORIGIN.monotonic_us + 1_200, wall_us: ORIGIN.wall_us + 3_600_001_200, told: effect }]],
        logged: vec![logged(1_100, cancel(1)), logged(9_000_000, cancel(2))],
        ..sources()
    });
    assert_eq!(words(&merged), ["0 Started", "1 CancelSubmitted", "1 Effect", "2 Healed", "9000 CancelSubmitted", "60000 Left"]);
    assert_eq!(merged.records[1].wall, Timestamp(1_000_001));
    assert_eq!(merged.records[2].wall, Timestamp(4_600_001));
}

#[test]
fn the_databases_records_keep_their_order_and_what_came_after_the_end_is_left_out() {
    let merged =
        merge(Sources { logged: vec![logged(5_000, cancel(1)), logged(4_000, cancel(2)), logged(60_000_001, cancel(3))], ..sources() });
    assert_eq!(words(&merged), ["5 CancelSubmitted", "5 CancelSubmitted", "60000 Left"]);
    assert!(matches!(merged.records[0].what, What::CancelSubmitted { entry: InboxId(1), .. }));
}

/// Its owner goes by that.
#[test]
fn an_entry_says_when_it_was_made() {
    let entry = Logged { made_at: Some(Timestamp(1_000_003)), ..logged(5_000, cancel(1)) };
    let merged = merge(Sources { logged: vec![entry], ..sources() });
    assert_eq!((merged.records[0].at, merged.records[0].wall), (5, Timestamp(1_000_003)));
}

#[test]
fn leases_run_out_in_milliseconds_since_the_beginning() {
    let (partition, owner) = (PartitionId(0), ReplicaId(Arc::from("s1-1")));
    let until = Timestamp(1_010_000);
    let merged = merge(Sources { logged: vec![logged(0, Seen::LeaseGranted { partition, owner, epoch: Epoch(1), until })], ..sources() });
    assert!(matches!(merged.records[0].what, What::LeaseGranted { until: 10_000, .. }));
}

#[test]
fn calls_get_the_entries_that_they_have_written() {
    let asked = |call| What::Asked { call, ask: Ask::Cancel { instance: InstanceId(7) } };
    let accepted = |call| What::Answered { call, answer: Answer::Accepted(ENTRY_UNTOLD) };
    let merged = merge(Sources {
        notes: vec![
            note(1_000, Who::Client, asked(1)),
            note(2_000, Who::Client, asked(2)),
            note(5_000, Who::Client, accepted(1)),
            note(6_000, Who::Client, accepted(2)),
            // There is a cancellation already: none is written.
            note(7_000, Who::Client, asked(3)),
            note(8_000, Who::Client, accepted(3)),
        ],
        logged: vec![logged(3_000, cancel(11)), logged(4_000, cancel(12))],
        ..sources()
    });
    assert_eq!(answers(&merged), [Answer::Accepted(InboxId(11)), Answer::Accepted(InboxId(12)), Answer::Repeated(InboxId(12))]);
}

/// It must show that nothing was written: an entry that was accepted and is not there.
#[test]
fn a_call_that_was_accepted_and_has_written_nothing_has_no_entry() {
    let ask = Ask::Define { task: Arc::from("a") };
    let notes = vec![
        note(1_000, Who::Client, What::Asked { call: 1, ask }),
        note(2_000, Who::Client, What::Answered { call: 1, answer: Answer::Accepted(ENTRY_UNTOLD) }),
    ];
    assert_eq!(answers(&merge(Sources { notes, ..sources() })), [Answer::Accepted(ENTRY_UNTOLD)]);
}
