//! More comes due at once than one batch takes.

use std::sync::Arc;

use punctual_core::batch::{CommitOutcome, Output, Snapshot, TaskRecord};
use punctual_core::ids::{ConnectionId, Epoch, PartitionId, ReplicaId, TaskId, Version, WorkerId, WorkerLife};
use punctual_core::limits;
use punctual_core::protocol::{End, Hello, Report, ToScheduler, ToWorker};
use punctual_core::scheduler::{Command, Config, Event, Scheduler};
use punctual_core::time::{Millis, Monotonic, Now, Timestamp};
use punctual_sim::tabletop::{START, every, task};

const CONNECTION: ConnectionId = ConnectionId(1);
/// Each firing is a row for the instance and one for the cursor.
const FIRES_A_BATCH: usize = limits::BATCH_ROWS_MAX / 2;

fn now(monotonic: u64) -> Now {
    Now { wall: Timestamp(START + monotonic as i64), monotonic: Monotonic(monotonic) }
}

/// A scheduler whose tasks all come due at once, and a worker that has done each as soon as it hears of it.
struct Burst {
    scheduler: Scheduler,
    time: u64,
    begun: usize,
    acknowledged: usize,
    /// How many had begun when each commit was asked for; what it lets begin comes after the next one.
    before_commits: Vec<usize>,
}

impl Burst {
    fn new(tasks: usize, slots: u32) -> Burst {
        let replica = ReplicaId(Arc::from("s"));
        let config = Config { replica, partitions: 1, commits_at_once: 1, misfire_threshold: Millis(5_000) };
        let scheduler = Scheduler::new(config, now(0));
        let mut burst = Burst { scheduler, time: 0, begun: 0, acknowledged: 0, before_commits: Vec::new() };
        let handlers = vec![task("any", every(1)).handler.name];
        let (worker, life) = (WorkerId(Arc::from("w")), WorkerLife(1));
        let hello = Hello { worker, life, slots, handlers, draining: false, running: vec![], received: 0, traits: Default::default() };
        burst.tell(Event::WorkerMessages { connection: CONNECTION, messages: vec![ToScheduler::Hello(hello)] });
        let (partition, epoch) = (PartitionId(0), Epoch(1));
        burst.tell(Event::LeaseGranted { partition, epoch, commit_seq: 0, sequence: 0, requested_at: Monotonic(0) });
        let record = |id: usize| TaskRecord {
            task: TaskId(id as u64),
            version: Version(1),
            definition: Arc::new(task(&format!("t{id}"), every(3_600))),
            next_fire: Some(Timestamp(START + 1_000)),
            fired_until: None,
        };
        let tasks = (0..tasks).map(record).collect();
        burst.tell(Event::SnapshotLoaded { partition, epoch, snapshot: Snapshot { tasks, ..Snapshot::default() } });
        burst.time = 1_000;
        burst
    }

    /// Takes an event in, and answers what the scheduler asks for until it asks for nothing more than a commit.
    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.scheduler.handle_event(now(self.time), event);
            while let Some(command) = self.scheduler.poll_command() {
                match command {
                    Command::Commit(batch) => {
                        self.before_commits.push(self.begun);
                        events.insert(0, Event::CommitFinished { commit: batch.id, outcome: CommitOutcome::Committed });
                    }
                    Command::ReadInbox { .. } => events.push(Event::InboxRead { entries: vec![], more: false }),
                    Command::Send { messages, .. } => {
                        let reports: Vec<_> = messages.iter().filter_map(|message| self.works(message)).collect();
                        if !reports.is_empty() {
                            events.push(Event::WorkerMessages { connection: CONNECTION, messages: reports });
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn works(&mut self, message: &ToWorker) -> Option<ToScheduler> {
        match message {
            ToWorker::Assign(assignment) => {
                self.begun += 1;
                let (instance, fence) = (assignment.instance, assignment.fence);
                let (end, code, detail, output) = (End::Succeeded, None, None, Output::default());
                Some(ToScheduler::Finished(Report {
                    instance,
                    fence,
                    end,
                    code,
                    detail,
                    output,
                    result: None,
                    items: None,
                    retry_after: None,
                }))
            }
            ToWorker::Acknowledge { .. } => {
                self.acknowledged += 1;
                None
            }
            _ => None,
        }
    }
}

#[test]
fn what_is_due_begins_before_what_has_ended_is_written() {
    let mut burst = Burst::new(5 * FIRES_A_BATCH, u32::MAX);
    burst.tell(Event::Tick);
    // Commit by commit a whole batch of them: reports take no room from what is due.
    let whole: Vec<_> = (0..6_usize).map(|commits| commits.saturating_sub(1) * FIRES_A_BATCH).collect();
    assert_eq!(burst.before_commits[..6], whole);
    assert_eq!((burst.begun, burst.acknowledged), (5 * FIRES_A_BATCH, 5 * FIRES_A_BATCH));
}

#[test]
fn reports_that_free_slots_wait_for_nothing() {
    let mut burst = Burst::new(2 * FIRES_A_BATCH, 10);
    burst.tell(Event::Tick);
    assert_eq!((burst.begun, burst.acknowledged), (2 * FIRES_A_BATCH, 2 * FIRES_A_BATCH));
}
