//! Several commits under way at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use punctual_core::batch::{Batch, CommitOutcome, Snapshot, TaskRecord};
use punctual_core::definition::{Handler, Map, TaskDefinition, Trigger};
use punctual_core::ids::{Epoch, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::{InboxEntry, Request, Submission};
use punctual_core::instance::{InstanceRow, Links, MapPhase, MapProgress, State};
use punctual_core::scheduler::{Alert, Command, Config, Event, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_sim::tabletop::{START, task};

use crate::odd_input;

const PARTITIONS: u16 = 6;

/// A scheduler that owns all partitions, with a task in each, and the commits that it has under way.
struct Desk {
    scheduler: Scheduler,
    time: u64,
    entries: u64,
    under_way: Vec<Arc<Batch>>,
    reading: bool,
    /// Firings whose next items were asked for.
    read_items: Vec<InstanceId>,
    inbox: Vec<InboxEntry>,
    reloaded: BTreeSet<PartitionId>,
    /// Commits of each partition that were confirmed.
    confirmed: Vec<u64>,
}

impl Desk {
    fn new(commits_at_once: usize) -> Desk {
        let replica = ReplicaId(Arc::from("s"));
        let config = Config { replica, partitions: PARTITIONS, commits_at_once, misfire_threshold: Millis(5_000) };
        let confirmed = vec![0; usize::from(PARTITIONS)];
        let mut desk = Desk {
            scheduler: Scheduler::new(config, now(0)),
            time: 0,
            entries: 0,
            under_way: Vec::new(),
            reading: false,
            read_items: Vec::new(),
            inbox: Vec::new(),
            reloaded: BTreeSet::new(),
            confirmed,
        };
        for partition in (0..PARTITIONS).map(PartitionId) {
            let record = TaskRecord {
                task: TaskId(u64::from(partition.0)),
                version: Version(1),
                definition: Arc::new(task(&format!("t{partition}"), Trigger::Manual)),
                next_fire: None,
                fired_until: None,
            };
            desk.load(partition, Snapshot { tasks: vec![record], ..Snapshot::default() });
        }
        desk
    }

    fn load(&mut self, partition: PartitionId, snapshot: Snapshot) {
        let (epoch, commit_seq) = (Epoch(self.time), self.confirmed[usize::from(partition.0)]);
        self.tell(Event::LeaseGranted { partition, epoch, commit_seq, sequence: 0, requested_at: Monotonic(0) });
        self.tell(Event::SnapshotLoaded { partition, epoch, snapshot });
    }

    fn tell(&mut self, event: Event) {
        self.time += 1;
        self.scheduler.handle_event(now(self.time), event);
        while let Some(command) = self.scheduler.poll_command() {
            match command {
                Command::Commit(batch) => self.commit_begins(batch),
                Command::ReadInbox { .. } => self.reading = true,
                Command::ReadItems { whole, .. } => self.read_items.push(whole),
                Command::Alert(Alert::PartitionReloaded { partition, .. }) => {
                    self.reloaded.insert(partition);
                }
                _ => {}
            }
        }
        if std::mem::take(&mut self.reading) {
            let entries = std::mem::take(&mut self.inbox);
            self.tell(Event::InboxRead { entries, more: false });
        }
    }

    fn commit_begins(&mut self, batch: Arc<Batch>) {
        for lease in &batch.leases {
            let writes_it = |other: &Arc<Batch>| other.leases.iter().any(|held| held.partition == lease.partition);
            assert!(!self.under_way.iter().any(writes_it), "partition {} is in two commits that are under way", lease.partition);
            let confirmed = self.confirmed[usize::from(lease.partition.0)];
            assert_eq!(lease.commit_seq, confirmed + 1, "partition {}", lease.partition);
        }
        self.under_way.push(batch);
    }

    fn trigger(&mut self, partition: u16) {
        self.entries += 1;
        let request = Request::Trigger { task: TaskId(u64::from(partition)), submissions: vec![Submission::default()] };
        let (id, partition) = (InboxId(self.entries), PartitionId(partition));
        self.inbox.push(InboxEntry { id, partition, at: Timestamp(START), by: Arc::from("somebody"), request });
        self.tell(Event::InboxSignalled);
    }

    fn finish(&mut self, nth: usize, goes_through: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let batch = self.under_way.remove(nth % self.under_way.len());
        let outcome = match goes_through {
            true => CommitOutcome::Committed,
            false => CommitOutcome::Unknown { reason: Arc::from("nobody knows") },
        };
        for lease in batch.leases.iter().filter(|_| goes_through) {
            self.confirmed[usize::from(lease.partition.0)] += 1;
        }
        self.reloaded.clear();
        self.tell(Event::CommitFinished { commit: batch.id, outcome });
        let concerned: BTreeSet<_> = batch.leases.iter().filter(|_| !goes_through).map(|lease| lease.partition).collect();
        assert_eq!(self.reloaded, concerned, "doubt about a commit concerns its partitions and no others");
    }
}

fn now(monotonic: u64) -> Now {
    Now { wall: Timestamp(START + monotonic as i64), monotonic: Monotonic(monotonic) }
}

#[test]
fn partitions_of_different_lanes_do_not_wait_for_each_other() {
    let mut desk = Desk::new(2);
    desk.trigger(0);
    desk.trigger(1);
    desk.trigger(2);
    let partitions: Vec<_> = desk.under_way.iter().map(|batch| batch.leases[0].partition.0).collect();
    assert_eq!(partitions, [0, 1], "2 shares its lane with 0");
    desk.finish(1, true);
    assert_eq!(desk.under_way.len(), 1);
    desk.finish(0, true);
    assert_eq!(desk.under_way[0].leases[0].partition, PartitionId(2));
}

/// A new owner wants the next items of a firing, which rests on nothing that it has to write. The batch that is handed out then is another
/// partition's.
#[test]
fn doubt_about_a_commit_loses_no_reading_of_another_partition() {
    let handler = Handler { name: Arc::from("command"), config: Arc::from("{}") };
    let definition = Arc::new(TaskDefinition {
        map: Some(Arc::new(Map { list: handler, reduce: None, parallel: 1 })),
        ..task("mapped", Trigger::Manual)
    });
    let whole = InstanceId::new(PartitionId(1), 1);
    let map = Some(Box::new(MapProgress { phase: MapPhase::Items, made: 1, result_bytes: 0 }));
    let links = Some(Box::new(Links { shards: 2, map, ..Links::default() }));
    let row = InstanceRow { task: TaskId(1), links, ..odd_input::row(whole, State::Running) };
    let record = TaskRecord { task: TaskId(1), version: Version(1), definition: definition.clone(), next_fire: None, fired_until: None };
    let mut desk = Desk::new(1);
    desk.trigger(1);
    desk.finish(0, false);
    desk.trigger(0);
    desk.trigger(0);
    desk.load(PartitionId(1), Snapshot { tasks: vec![record], instances: vec![(row, definition)], ..Snapshot::default() });
    desk.finish(0, true);
    assert!(desk.read_items.is_empty(), "it waits for the batch that it was put behind");
    assert_eq!(desk.under_way[0].leases.iter().map(|lease| lease.partition).collect::<Vec<_>>(), [PartitionId(0)]);
    desk.finish(0, false);
    assert_eq!(desk.read_items, [whole]);
}

/// What was fired at the end of a run is on its way to the store.
#[test]
fn what_is_under_way_is_not_written() {
    let mut desk = Desk::new(1);
    let counts = |desk: &Desk| (desk.scheduler.instance_count(), desk.scheduler.written_count());
    desk.trigger(0);
    desk.trigger(0);
    assert_eq!(counts(&desk), (2, 0), "one is in a commit, one waits for the next");
    desk.finish(0, true);
    assert_eq!(counts(&desk), (2, 1));
    desk.finish(0, true);
    assert_eq!(counts(&desk), (2, 2));
}

proptest! {
    #[test]
    fn a_partitions_commits_follow_each_other(
        commits_at_once in 1_usize..5,
        steps in proptest::collection::vec((0..PARTITIONS, any::<Option<usize>>(), proptest::bool::weighted(0.9)), 1..60),
    ) {
        let mut desk = Desk::new(commits_at_once);
        let mut most = 0;
        for (partition, nth, goes_through) in steps {
            match nth {
                None => desk.trigger(partition),
                // A partition in doubt is gone for good here: nobody grants its lease again.
                Some(nth) => desk.finish(nth, goes_through),
            }
            most = most.max(desk.under_way.len());
        }
        prop_assert!(most <= commits_at_once);
        // What went through is all there is: nothing stays behind.
        for _ in 0..100 {
            desk.finish(0, true);
        }
        prop_assert!(desk.under_way.is_empty());
    }
}
