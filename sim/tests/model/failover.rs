//! The replica takes the primary's place: exactly what it had not done yet is lost.

use std::sync::Arc;

use punctual_core::batch::{Batch, LeaseCheck, Renewal};
use punctual_core::ids::{Epoch, InboxId, PartitionId, ReplicaId, Version};
use punctual_core::inbox::Submission;
use punctual_core::time::Millis;
use punctual_driver::ports::{LeaseAnswer, Submitted};
use punctual_sim::history::{Recorder, What, Who};
use punctual_sim::model::{Database, DatabaseConfig};
use punctual_store::conformance::{PARTITIONS, START, TTL, all_partitions, document};

const P: PartitionId = PartitionId(3);
const LAG: u64 = 500;

struct Run {
    database: Database,
    recorder: Recorder,
}

impl Run {
    fn new(lag: Option<u64>) -> Run {
        let recorder = Recorder::default();
        let config = DatabaseConfig { partitions: PARTITIONS, starts_at: START, replica_lag: lag.map(Millis) };
        Run { database: Database::new(config, recorder.clone()), recorder }
    }

    fn granted(&mut self, at: u64, replica: &str) -> (Epoch, u64, u64) {
        match self.database.acquire(at, &ReplicaId(replica.into()), &[P], 1, TTL, START).remove(0) {
            LeaseAnswer::Granted { epoch, commit_seq, sequence, .. } => (epoch, commit_seq, sequence),
            held => panic!("{held:?}"),
        }
    }

    fn commit(&mut self, at: u64, epoch: Epoch, commit_seq: u64, sequence: u64) {
        let leases = vec![LeaseCheck { partition: P, epoch, commit_seq, sequence }];
        let batch = Batch { replica: ReplicaId("a".into()), leases, ..Batch::default() };
        self.database.commit(at, &Arc::new(batch)).expect("a commit");
    }

    fn define(&mut self, at: u64, name: &str) -> InboxId {
        self.database.define(at, &name.into(), Some(document(name, "v1").definition))
    }

    fn names(&self) -> Vec<&str> {
        self.database.data().names.keys().map(|name| &**name).collect()
    }

    /// The record from which on the tail was lost.
    fn lost_from(&self) -> Option<usize> {
        let history = self.recorder.take();
        let tails: Vec<_> = history.records.iter().filter(|record| matches!(record.what, What::TailLost { .. })).collect();
        assert!(tails.len() <= 1 && tails.iter().all(|record| record.who == Who::Database));
        tails.first().map(|record| match record.what {
            What::TailLost { from } => from,
            _ => unreachable!("looked at"),
        })
    }
}

#[test]
fn exactly_what_is_younger_than_the_lag_is_lost() {
    let mut run = Run::new(Some(LAG));
    // Somebody else's records count as well: the index is one of the whole history.
    run.recorder.record(0, START, Who::World, What::FaultBegan(0));
    run.define(0, "old");
    run.define(100, "just old enough");
    run.recorder.record(101, START, Who::World, What::FaultEnded(0));
    let first_lost = run.recorder.len();
    run.define(101, "young");
    run.define(600, "new");
    assert_eq!(run.names().len(), 4);
    assert_eq!(run.database.fail_over(600), 2);
    assert_eq!(run.names(), ["just old enough", "old"]);
    assert_eq!(run.database.generation(), 1);
    assert_eq!(run.lost_from(), Some(first_lost));
}

#[test]
fn for_each_lag_and_moment_the_cut_is_at_the_same_age() {
    for failed_at in 0..40 {
        for lag in [1, 7, 20, 100] {
            let mut run = Run::new(Some(lag));
            let names: Vec<String> = (0..20).map(|number| format!("task-{number:02}")).collect();
            for (at, name) in (0..).map(|number| number * 2).zip(&names).filter(|(at, _)| *at <= failed_at) {
                run.define(at, name);
            }
            let there = run.names().len();
            let expected = (0..there as u64).filter(|number| number * 2 + lag <= failed_at).count();
            assert_eq!(run.database.fail_over(failed_at), there - expected, "lag {lag}, at {failed_at}");
            assert_eq!(run.names(), names[..expected].iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(run.lost_from(), (expected < there).then_some(expected), "each of them made one record");
        }
    }
}

#[test]
fn leases_and_numbers_go_back() {
    let mut run = Run::new(Some(LAG));
    let (epoch, ..) = run.granted(0, "a");
    run.commit(0, epoch, 1, 10);
    run.commit(1_000, epoch, 2, 20);
    let until = run.database.data().lease(P).expires_at;
    assert_eq!(run.database.renew(1_100, &ReplicaId("a".into()), &[Renewal { partition: P, epoch, commit_seq: 2 }], TTL), []);
    assert!(run.database.data().lease(P).expires_at > until);
    let (second, commits, sequence) = run.granted(1_200, "a");
    assert_eq!((second.0, commits, sequence), (epoch.0 + 1, 2, 20));

    assert_eq!(run.database.fail_over(1_300), 3);
    let lease = run.database.data().lease(P);
    assert_eq!((lease.epoch, lease.commit_seq, lease.sequence, lease.expires_at), (epoch, 1, 10, until));
    assert_eq!(lease.owner, Some(ReplicaId("a".into())));
    // The epoch of the lost grant is given out again. That is why a batch says whose it is, and how many commits it knows of.
    let late = TTL.0;
    assert_eq!(run.granted(late, "b"), (second, 1, 10));
    let leases = vec![LeaseCheck { partition: P, epoch: second, commit_seq: 3, sequence: 21 }];
    let batch = Batch { replica: ReplicaId("a".into()), leases, ..Batch::default() };
    run.database.commit(late, &Arc::new(batch)).expect_err("a batch of the lost term");
}

#[test]
fn entries_keys_versions_and_members_go_back() {
    let mut run = Run::new(Some(LAG));
    run.define(0, "one");
    let trigger = |run: &mut Run, at, key: &str| {
        let key = Arc::from(key);
        run.database.trigger(at, "one", &"me".into(), Some(&key), vec![Submission::default()])
    };
    run.database.beat(0, &ReplicaId("a".into()), TTL);
    let kept = trigger(&mut run, 0, "kept");
    run.database.beat(1_000, &ReplicaId("b".into()), TTL);
    let lost = trigger(&mut run, 1_000, "lost");
    run.define(1_000, "one");
    assert_eq!(run.database.fail_over(1_400), 3);
    let versions: Vec<_> = run.database.data().versions.keys().map(|(_, version)| *version).collect();
    assert_eq!(versions, [Version(1)]);
    assert_eq!(run.database.data().members.keys().map(|replica| &*replica.0).collect::<Vec<_>>(), ["a"]);
    let (Submitted::Accepted { entry: kept }, Submitted::Accepted { entry: gone }) = (kept, lost) else { panic!("they were accepted") };
    assert_eq!(trigger(&mut run, 1_400, "kept"), Submitted::Repeated { entry: kept });
    assert_eq!(trigger(&mut run, 1_400, "lost"), Submitted::Accepted { entry: gone }, "nobody remembers it, and its number is free");
}

#[test]
fn without_a_lag_nothing_is_lost() {
    let mut run = Run::new(Some(0));
    run.define(0, "one");
    let (epoch, ..) = run.granted(700, "a");
    run.commit(700, epoch, 1, 10);
    assert_eq!(run.database.fail_over(700), 0);
    assert_eq!((run.names(), run.database.data().lease(P).commit_seq), (vec!["one"], 1));
    assert_eq!(run.database.generation(), 1, "answers that are under way don't come all the same");
    assert_eq!(run.lost_from(), None);
    // And it goes on from there, with a replica again.
    run.commit(701, epoch, 2, 11);
    assert_eq!((run.database.fail_over(702), run.database.data().lease(P).commit_seq), (0, 2));
}

#[test]
fn without_a_replica_there_is_no_failover() {
    let mut run = Run::new(None);
    run.define(0, "one");
    assert_eq!((run.database.fail_over(1_000), run.database.generation()), (0, 0));
    assert_eq!((run.names(), run.lost_from()), (vec!["one"], None));
}

#[test]
fn a_second_failover_loses_what_came_since() {
    let mut run = Run::new(Some(LAG));
    run.define(0, "one");
    run.define(900, "two");
    assert_eq!(run.database.fail_over(1_000), 1);
    run.define(1_100, "three");
    run.define(1_900, "four");
    assert_eq!(run.database.fail_over(2_000), 1);
    assert_eq!(run.names(), ["one", "three"]);
    let entries = run.database.read_inbox(2_000, &all_partitions(), InboxId(0), usize::MAX).0;
    assert_eq!(entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), [1, 2]);
}
