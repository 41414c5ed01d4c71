//! The scheduler: one replica's mind.
//!
//! A machine. Events go in ([`Scheduler::handle_event`]), commands come out ([`Scheduler::poll_command`], until it has none), and
//! [`Scheduler::poll_timeout`] says when to come back even if nothing happens. Time never goes back on its monotonic side; each event
//! carries both clocks.
//!
//! What is where: partitions and leases in `ownership`, fire times in `firing`, the inbox in `requests`, what one task's end means for
//! others in `chains`, nodes that call other tasks in `calls`, fire times of the past in `backfills`, shards in `parts`, runs of workflows in `nodes`, what is mapped over a list in
//! `maps`, places of limits in `places` and `groups`, what people have paused in `pauses`, who is given what in `assigning`, rate limits in `throttle`, circuit breakers and budgets of retries in `breakers`,
//! workers in `workers`, what becomes of their attempts in `attempts`, and the way to the store in `commit`.
//!
//! # The two rules that everything here follows
//!
//! *Memory may run ahead of the store; what leaves the replica may not.* A change is made in memory and marked as to be written;
//! assignments, acknowledgements and alerts that rest on it are held until its commit has succeeded.
//!
//! *Doubt means reloading.* A commit that was refused, or whose outcome nobody knows, makes the owner drop its memory of the partitions
//! concerned and take them again under a new epoch. Start, takeover and doubt are one path.

mod assigning;
mod attempts;
mod backfills;
mod breakers;
mod calls;
mod chains;
mod changes;
mod commit;
mod firing;
mod groups;
mod maps;
mod nodes;
mod ownership;
mod parts;
mod pauses;
mod places;
mod requests;
mod reruns;
mod throttle;
mod workers;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::batch::{Batch, CommitOutcome, Renewal, Snapshot};
use crate::definition::TaskDefinition;
use crate::ids::{CommitId, ConnectionId, Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use crate::inbox::InboxEntry;
use crate::instance::{Cause, InstanceRow, Part, State, Transition};
use crate::limit_key::LimitKey;
use crate::limits;
use crate::protocol::{ToScheduler, ToWorker};
use crate::ready_queue::ReadyQueue;
use crate::routing::{Needs, Nobody};
use crate::time::{Millis, Monotonic, Now, Timestamp};
use crate::wheel::{TimerKey, Wheel};

pub use assigning::WaitingView;
use attempts::PutOff;
use backfills::Backfills;
pub use breakers::BreakerView;
use breakers::Breakers;
use chains::References;
use commit::Lanes;
use groups::Groups;
use maps::Mapping;
use ownership::{Membership, NewPartition, Partition};
use parts::Parts;
use pauses::Pauses;
use places::TaskInstances;
use throttle::Throttle;
pub use workers::WorkerView;
use workers::Workers;

/// What can be set. Everything else is in [`limits`].
#[derive(Clone, Debug)]
pub struct Config {
    /// This replica.
    pub replica: ReplicaId,
    /// How many partitions the store was laid out for.
    pub partitions: u16,
    /// How many commits the store carries out at once, at least 1; those that are under way together have no partition in common.
    pub commits_at_once: usize,
    /// A fire time that is later than this was missed.
    pub misfire_threshold: Millis,
}

/// Everything that can happen to a scheduler.
#[derive(Debug)]
pub enum Event {
    /// Nothing but the passing of time.
    Tick,
    /// The lease of a partition was granted. `requested_at` is when it was asked for.
    LeaseGranted {
        /// The partition.
        partition: PartitionId,
        /// The new epoch.
        epoch: Epoch,
        /// Its commits so far.
        commit_seq: u64,
        /// The last number of its sequence that was given out.
        sequence: u64,
        /// When the request left.
        requested_at: Monotonic,
    },
    /// The replicas that are alive, this one included, in the order of their ids.
    MembersSeen {
        /// Their ids.
        members: Vec<ReplicaId>,
    },
    /// Partitions may have become free.
    LeasesSignalled,
    /// Partitions could not be had: somebody else holds them, the store had granted as many as were wanted, or it didn't answer.
    LeaseRefused {
        /// The partitions.
        partitions: Vec<PartitionId>,
    },
    /// The store answered a renewal.
    LeasesRenewed {
        /// When the request left.
        requested_at: Monotonic,
        /// All that were asked for.
        asked: Vec<Renewal>,
        /// Those of them that were not renewed: somebody else has them, or the store has forgotten commits.
        lost: Vec<PartitionId>,
    },
    /// What a new owner needs of a partition.
    SnapshotLoaded {
        /// The partition.
        partition: PartitionId,
        /// The epoch that it was asked for under.
        epoch: Epoch,
        /// The partition.
        snapshot: Snapshot,
    },
    /// A snapshot could not be read.
    SnapshotFailed {
        /// The partition.
        partition: PartitionId,
        /// The epoch that it was asked for under.
        epoch: Epoch,
    },
    /// A commit has ended.
    CommitFinished {
        /// Which.
        commit: CommitId,
        /// How.
        outcome: CommitOutcome,
    },
    /// Somebody has written to an inbox.
    InboxSignalled,
    /// The answer to [`Command::ReadInbox`]; empty where the store failed.
    InboxRead {
        /// The entries.
        entries: Vec<InboxEntry>,
        /// Whether there are more.
        more: bool,
    },
    /// The answer to [`Command::ReadItems`].
    ItemsRead {
        /// The firing.
        whole: InstanceId,
        /// The page.
        page: u32,
        /// The items, each on a line of its own.
        read: PageRead<Arc<str>>,
    },
    /// The answer to [`Command::ReadResults`].
    ResultsRead {
        /// The firing.
        whole: InstanceId,
        /// The first part that was asked for.
        from: Part,
        /// What the parts from there on have answered, in their order, at most a page.
        read: PageRead<Vec<Option<Arc<str>>>>,
    },
    /// Messages of a worker, in order. A connection begins with a hello.
    WorkerMessages {
        /// Its connection.
        connection: ConnectionId,
        /// The messages.
        messages: Vec<ToScheduler>,
    },
    /// A worker's connection is gone.
    WorkerDisconnected {
        /// Which.
        connection: ConnectionId,
    },
    /// Fire and assign nothing more; take in results.
    Quiesce,
    /// Write what there is to write, give the partitions up and stop.
    Shutdown,
}

/// Everything that a scheduler can ask of the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Say that this replica is alive, and ask who else is.
    Beat,
    /// Ask for the leases of these partitions, in this order, until as many were granted as are wanted.
    AcquireLeases {
        /// The partitions.
        partitions: Vec<PartitionId>,
        /// How many are wanted.
        most: usize,
    },
    /// Extend these leases.
    RenewLeases(Vec<Renewal>),
    /// Give these leases up, and wake up those who may want them.
    ReleaseLeases {
        /// The leases.
        leases: Vec<(PartitionId, Epoch)>,
        /// Whether this replica goes.
        leaves: bool,
    },
    /// Read what a new owner needs of a partition.
    LoadSnapshot {
        /// The partition.
        partition: PartitionId,
        /// Goes back with the answer.
        epoch: Epoch,
    },
    /// Carry this batch out. There is one at a time.
    Commit(Arc<Batch>),
    /// Read the oldest inbox entries of these partitions behind `after`.
    ReadInbox {
        /// The partitions.
        partitions: Vec<PartitionId>,
        /// Only what came later.
        after: InboxId,
    },
    /// Read a page of the items that a firing is mapped over: what was written as output of this instance, as that of an attempt whose number
    /// is one more than the page's.
    ReadItems {
        /// The firing.
        whole: InstanceId,
        /// The page, counted from 0.
        page: u32,
    },
    /// Read what parts of a firing have answered, at most [`MAP_PAGE_ITEMS`](limits::MAP_PAGE_ITEMS) of them.
    ReadResults {
        /// The firing.
        of: Firings,
        /// The first part.
        from: Part,
        /// Only parts before this one.
        until: Part,
    },
    /// Send these messages, in this order.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// The messages.
        messages: Vec<ToWorker>,
    },
    /// Tell people.
    Alert(Alert),
    /// Everything is written and given up.
    Stopped,
}

/// Which firing's parts are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firings {
    /// Its own instance.
    pub whole: InstanceId,
    /// Its task.
    pub task: TaskId,
    /// Its fire time.
    pub fire_time: Timestamp,
    /// Its ordinal.
    pub ordinal: u64,
    /// Its run.
    pub run: u32,
}

/// A page that was to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageRead<T> {
    /// Here it is.
    Found(T),
    /// It is not there.
    Missing,
    /// The store didn't answer.
    Failed,
}

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alert {
    /// A partition was dropped and is taken again.
    PartitionReloaded {
        /// The partition.
        partition: PartitionId,
        /// Why.
        reason: Arc<str>,
    },
    /// The store has forgotten commits that it had confirmed: it failed over to a replica that didn't have them. What they said may happen
    /// again.
    TailLost {
        /// The partition.
        partition: PartitionId,
        /// How far it was known to have come.
        known: u64,
        /// How far the store says that it has come.
        found: u64,
    },
    /// A result came under an older fence, or for an instance that has ended, and was refused.
    LateResult {
        /// The instance.
        instance: InstanceId,
        /// The fence that it came under.
        fence: Fence,
    },
    /// A firing has failed, or took too long, and is not retried. Said once of it, and not of its parts.
    Failed {
        /// The instance.
        instance: InstanceId,
        /// What it has come to.
        state: State,
        /// Why.
        cause: Cause,
    },
    /// A firing went to the dead letters. Said once of it, and not of its parts.
    DeadLettered {
        /// The instance.
        instance: InstanceId,
        /// Why.
        cause: Cause,
    },
    /// A worker's lease ended while it held attempts.
    WorkerLost {
        /// The worker.
        worker: crate::ids::WorkerId,
        /// How many attempts it held.
        attempts: usize,
    },
    /// The wall clock was set back.
    ClockSteppedBack {
        /// By how much.
        by: Millis,
    },
    /// Tasks of a partition that was taken over were fired by a clock that was far ahead. None of them fires until the wall clock has come to where
    /// that was, for no fire time comes twice.
    FiredAhead {
        /// The partition.
        partition: PartitionId,
        /// How many.
        tasks: usize,
        /// One of them.
        task: TaskId,
        /// When the last of them goes on, at the earliest.
        until: Timestamp,
    },
    /// A task was not fired for the end of another one's instance: too many chained tasks lie behind that.
    ChainTooLong {
        /// The task.
        task: TaskId,
        /// The instance that ended.
        cause: InstanceId,
    },
    /// Instances wait that no worker can be given. They start by themselves when one can. Said once, and again when the reason changes.
    NobodyFor {
        /// What they need.
        needs: Needs,
        /// Why nobody can be given them.
        reason: Nobody,
    },
    /// Attempts that depend on a downstream have failed in a row: instances wait until a probe succeeds. Said once until it closes.
    BreakerOpened {
        /// The downstream.
        downstream: Arc<str>,
        /// How many failures it took.
        failures: u32,
        /// When the first probe may begin.
        probe_in: Millis,
    },
    /// A probe has succeeded: what waited for the downstream goes on.
    BreakerClosed {
        /// The downstream.
        downstream: Arc<str>,
    },
}

/// The timer of a task's cursor, and the wheel that it is in.
#[derive(Clone, Copy, Debug)]
enum Armed {
    /// In the wheel of the wall clock: cron.
    Cron(TimerKey),
    /// In the wheel of loops, on the monotonic clock, with its deadline: a step of the wall clock doesn't touch them.
    Loop(TimerKey, u64),
}

/// A task in memory.
#[derive(Debug)]
struct Task {
    version: Version,
    definition: Arc<TaskDefinition>,
    partition: PartitionId,
    next_fire: Option<Timestamp>,
    timer: Option<Armed>,
    /// The latest fire time that has been dealt with, as far as it is known: none up to it may come again.
    fired_until: Timestamp,
    is_dirty: bool,
    /// Only where an instance is in progress or waiting: a million idle tasks pay for none.
    instances: Option<Box<TaskInstances>>,
}

/// What is left of a task that was removed, for the case that it is made again.
#[derive(Debug)]
struct Removed {
    partition: PartitionId,
    /// Instances that were running and may end; they still count against the limit.
    in_progress: BTreeSet<InstanceId>,
    /// Fire times up to then were dealt with.
    fired_until: Timestamp,
}

/// An instance in memory: not ended, or ended and about to be written.
#[derive(Debug)]
struct Live {
    row: InstanceRow,
    definition: Arc<TaskDefinition>,
    /// State and fence as the store has them, counting the commit in flight; `None`: the store doesn't have the row yet.
    stored: Option<(State, Fence)>,
    is_dirty: bool,
    timer: Option<TimerKey>,
    /// The key of its task's limit that it counts under.
    limit_key: Option<LimitKey>,
    /// When it became ready first, as [`Place`](crate::ready_queue::Place) counts it.
    ready_at: Option<i64>,
    sent: Sent,
    /// Set once the current attempt was asked to end.
    cancel: Option<(Cause, Option<Arc<str>>)>,
    /// The worker that was taken for lost has come back and is still at it. Its success counts until somebody else is given the instance; then
    /// it is told to end.
    stray: Option<ConnectionId>,
    /// The inbox entries that asked for it. They are applied with the instance's end: until then a new owner has to find them.
    cancel_requests: Vec<InboxId>,
}

/// Whether the current attempt has left for its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// There is none, or it is held until its commit is through.
    NotYet,
    /// Over this connection, with this place among all assignments on it.
    Over(ConnectionId, u64),
    /// By an owner before this one, or over a connection that is gone.
    Unknown,
}

impl Live {
    fn change(&mut self, to: State, cause: Cause, at: Timestamp) -> &mut Transition {
        let from = self.row.transitions.last().map(|last| last.to);
        assert!(from.is_none_or(|from| from.may_become(to)), "{}: {from:?} -> {to:?} ({cause:?})", self.row.id);
        self.row.state = to;
        self.row.transitions.push(Transition {
            from,
            to,
            cause,
            at,
            attempt: self.row.attempt,
            fence: self.row.fence,
            worker: self.row.worker.as_ref().map(|worker| worker.id.clone()),
            code: None,
            detail: None,
        });
        self.row.transitions.last_mut().expect("just pushed")
    }
}

/// How far the replica has gone towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Working,
    Quiesced,
    ShuttingDown,
    Stopped,
}

/// One replica's mind.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    /// The wall side never goes back by less than [`STEP_MIN`]: it stands still until the clock has caught up.
    now: Now,
    /// The wall clock as it was read, for what is counted from it.
    wall_read: Timestamp,
    phase: Phase,
    partitions: Vec<Partition>,
    membership: Membership,
    new_partitions: Vec<NewPartition>,
    /// Partitions whose lease is ours and that wait for their turn to be read.
    to_load: VecDeque<(PartitionId, Epoch)>,
    /// Partitions that are being read.
    loads: usize,
    /// Boxed, so that the empty places of the map cost next to nothing.
    tasks: FxHashMap<TaskId, Box<Task>>,
    /// What tasks that were removed have left behind.
    removed: FxHashMap<TaskId, Removed>,
    instances: FxHashMap<InstanceId, Live>,
    /// Of the instances that have parts.
    parts: FxHashMap<InstanceId, Parts>,
    /// Of the instances that are mapped over a list.
    maps: FxHashMap<InstanceId, Mapping>,
    /// Of the nodes that have called an instance which is this replica's: that instance.
    calls: FxHashMap<InstanceId, InstanceId>,
    /// Of the tasks whose ends make others fire.
    references: FxHashMap<TaskId, References>,
    pauses: Pauses,
    ready: ReadyQueue,
    workers: Workers,
    breakers: Breakers,
    /// Groups of tasks whose partition this replica owns.
    groups: Groups,
    backfills: Backfills,
    /// Cursors of cron tasks, by the wall clock.
    cron_timers: Wheel<TaskId>,
    /// Cursors of all other tasks, by the monotonic clock.
    loop_timers: Wheel<TaskId>,
    /// Delayed, retrying and throttled instances, by the monotonic clock.
    instance_timers: Wheel<InstanceId>,
    lanes: Lanes,
    next_commit: u64,
    inbox: requests::Inbox,
    /// There was no room for all cursors that have come.
    fires_wait: bool,
    put_off: VecDeque<PutOff>,
    housekeeping_at: Monotonic,
    commands: VecDeque<Command>,
    outgoing: BTreeMap<ConnectionId, Vec<ToWorker>>,
    /// The routes of the ready queue, by their numbers.
    routes: Vec<assigning::Route>,
    throttle: Throttle,
}

/// How often leases, workers and the inbox are looked after even if nothing happens.
const HOUSEKEEPING_INTERVAL: Millis = Millis(500);
/// A wall clock that goes back by less than this is taken to stand still; by more, or ahead by more than time has passed, to have been set.
const STEP_MIN: Millis = Millis(1_000);

impl Scheduler {
    /// A replica that owns nothing yet.
    pub fn new(config: Config, now: Now) -> Self {
        assert!(config.partitions >= 1 && config.partitions <= limits::PARTITIONS_MAX);
        Scheduler {
            now,
            wall_read: now.wall,
            phase: Phase::Working,
            partitions: (0..config.partitions).map(|_| Partition::default()).collect(),
            membership: Membership::beginning(now.monotonic),
            new_partitions: Vec::new(),
            to_load: VecDeque::new(),
            loads: 0,
            tasks: FxHashMap::default(),
            removed: FxHashMap::default(),
            instances: FxHashMap::default(),
            parts: FxHashMap::default(),
            maps: FxHashMap::default(),
            calls: FxHashMap::default(),
            references: FxHashMap::default(),
            pauses: Pauses::default(),
            ready: ReadyQueue::default(),
            workers: Workers::default(),
            breakers: Breakers::default(),
            groups: Groups::default(),
            backfills: Backfills::default(),
            cron_timers: Wheel::new(wall_tick(now.wall)),
            loop_timers: Wheel::new(monotonic_tick(now.monotonic)),
            instance_timers: Wheel::new(monotonic_tick(now.monotonic)),
            lanes: Lanes::new(config.commits_at_once),
            next_commit: 1,
            inbox: requests::Inbox::default(),
            fires_wait: false,
            put_off: VecDeque::new(),
            housekeeping_at: now.monotonic,
            commands: VecDeque::new(),
            outgoing: BTreeMap::new(),
            routes: Vec::new(),
            throttle: Throttle::default(),
            config,
        }
    }

    /// Takes one event in. Afterwards ask for commands until there are none.
    pub fn handle_event(&mut self, now: Now, event: Event) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.set_now(now);
        // Nothing is said on the strength of a lease that has run out meanwhile. What a renewal says about that is heard first.
        if !matches!(event, Event::LeasesRenewed { .. }) {
            self.keep_house();
        }
        match event {
            Event::Tick => {}
            Event::LeaseGranted { partition, epoch, commit_seq, sequence, requested_at } => {
                self.lease_granted(partition, epoch, commit_seq, sequence, requested_at);
            }
            Event::LeaseRefused { partitions } => self.lease_refused(&partitions),
            Event::MembersSeen { members } => self.members_seen(members),
            Event::LeasesSignalled => self.leases_signalled(),
            Event::LeasesRenewed { requested_at, asked, lost } => self.leases_renewed(requested_at, &asked, &lost),
            Event::SnapshotLoaded { partition, epoch, snapshot } => self.snapshot_loaded(partition, epoch, snapshot),
            Event::SnapshotFailed { partition, epoch } => self.snapshot_failed(partition, epoch),
            Event::CommitFinished { commit, outcome } => self.commit_finished(commit, outcome),
            Event::InboxSignalled => self.inbox.is_signalled = true,
            Event::InboxRead { entries, more } => self.inbox_read(entries, more),
            Event::ItemsRead { whole, page, read } => self.items_read(whole, page, read),
            Event::ResultsRead { whole, from, read } => self.results_read(whole, from, read),
            Event::WorkerMessages { connection, messages } => {
                for message in messages {
                    self.worker_message(connection, message);
                }
            }
            Event::WorkerDisconnected { connection } => self.worker_disconnected(connection),
            Event::Quiesce => self.phase = self.phase.max(Phase::Quiesced),
            Event::Shutdown => self.phase = self.phase.max(Phase::ShuttingDown),
        }
        self.keep_house();
        self.advance();
    }

    /// What is looked after every now and then, whatever happens.
    fn keep_house(&mut self) {
        if self.phase == Phase::Stopped || self.now.monotonic < self.housekeeping_at {
            return;
        }
        self.housekeeping_at = self.now.monotonic + HOUSEKEEPING_INTERVAL;
        self.look_after_leases();
        self.look_after_workers();
        self.throttle.sweep(self.now.monotonic);
        self.groups.sweep(self.now.monotonic);
        self.look_after_breakers();
        self.look_after_maps();
        self.inbox.is_signalled = true;
    }

    /// The next thing to do, where there is one. Commits go out before the messages that they make room for.
    pub fn poll_command(&mut self) -> Option<Command> {
        if let Some(command) = self.commands.pop_front() {
            return Some(command);
        }
        let (connection, messages) = self.outgoing.pop_first()?;
        Some(Command::Send { connection, messages })
    }

    /// When to come back with [`Event::Tick`] at the latest; `None` once stopped.
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        if self.phase == Phase::Stopped {
            return None;
        }
        let mut at = self.housekeeping_at;
        let monotonic = |deadline: u64| Monotonic(deadline.saturating_sub(MONOTONIC_ORIGIN));
        if self.phase == Phase::Working {
            at = self.breakers.next_at().map_or(at, |probe_at| at.min(probe_at));
        }
        if self.has_room_to_write() {
            at = self.groups.next_at().map_or(at, |opens_at| at.min(opens_at));
            at = self.instance_timers.next_deadline().map_or(at, |deadline| at.min(monotonic(deadline)));
        }
        if self.takes_new_work() {
            at = self.loop_timers.next_deadline().map_or(at, |deadline| at.min(monotonic(deadline)));
            if let Some(deadline) = self.cron_timers.next_deadline() {
                at = at.min(self.now.monotonic + Millis(deadline.saturating_sub(wall_tick(self.now.wall))));
            }
        }
        Some(at)
    }

    /// Tasks in memory.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Instances in memory.
    pub fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// Instances in memory that the store has as well, by this replica's account.
    pub fn written_count(&self) -> usize {
        self.instances.len().saturating_sub(self.unwritten_count())
    }

    /// Items of lists in memory that no instance was made for yet.
    pub fn mapped_item_count(&self) -> usize {
        self.maps.values().map(Mapping::item_count).sum()
    }

    /// The partitions that are this replica's and loaded.
    pub fn owned_partitions(&self) -> Vec<PartitionId> {
        self.leases().filter(|(_, partition)| partition.is_owned()).map(|(id, _)| id).collect()
    }

    /// The workers that are connected or hold something, by id.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.workers.views()
    }

    /// Instances that wait for the rate of their task.
    pub fn throttled_count(&self) -> usize {
        self.throttle.count()
    }

    /// Whether all partitions are this replica's and loaded.
    pub fn owns_everything(&self) -> bool {
        self.partitions.iter().all(Partition::is_owned)
    }

    /// Everything that follows from what has just changed.
    fn advance(&mut self) {
        self.instances_due();
        // What people want comes before what fires by itself: an edit that was made before a fire time counts for it.
        self.apply_inbox();
        self.open_new_partitions();
        self.fire_due();
        self.backfills_go_on();
        self.breakers_due();
        self.groups_due();
        self.assign_ready();
        if self.take_up_reports() {
            self.backfills_go_on();
            self.assign_ready();
        }
        self.read_inbox();
        self.start_commits();
        self.hand_over();
        self.finish_shutdown();
    }

    /// Whether new instances may be made: not while more is waiting to be written, or lives in memory, than is good.
    fn takes_new_work(&self) -> bool {
        let has_room = self.has_room_to_write() && self.instances.len() < limits::LIVE_INSTANCES_MAX;
        if !has_room && self.phase == Phase::Working {
            crate::probe!("backpressure.held");
        }
        has_room
    }

    /// Whether instances that exist may go on.
    fn has_room_to_write(&self) -> bool {
        self.phase == Phase::Working && self.lanes.rows() < limits::BATCH_ROWS_MAX
    }

    fn set_now(&mut self, now: Now) {
        let monotonic = now.monotonic.max(self.now.monotonic);
        self.wall_read = now.wall;
        let back = self.now.wall.since(now.wall);
        if self.tasks.is_empty() {
            // Nothing was fired by what the clock showed before: a replica knows the store's clock only once it has spoken to it.
            self.now = Now { wall: now.wall, monotonic };
            if back > Millis::ZERO {
                self.rebuild_cron_timers();
            }
        } else if back >= STEP_MIN {
            crate::probe!("clock.stepped_back");
            self.now = Now { wall: now.wall, monotonic };
            self.commands.push_back(Command::Alert(Alert::ClockSteppedBack { by: back }));
            self.rebuild_cron_timers();
        } else {
            self.now = Now { wall: now.wall.max(self.now.wall), monotonic };
        }
    }

    fn finish_shutdown(&mut self) {
        if self.phase == Phase::ShuttingDown && self.lanes.are_idle() {
            let leases = self.owned_leases();
            self.commands.push_back(Command::ReleaseLeases { leases, leaves: true });
            self.commands.push_back(Command::Stopped);
            self.phase = Phase::Stopped;
        }
    }
}

/// The wall clock as the wheel counts it: instants before 1970 are all the same to it.
fn wall_tick(at: Timestamp) -> u64 {
    at.0.max(0) as u64
}

/// Added to the monotonic clock for its wheel, so that deadlines from before its beginning have a place: 139 years.
const MONOTONIC_ORIGIN: u64 = 1 << 42;

/// The monotonic clock as its wheel counts it.
fn monotonic_tick(at: Monotonic) -> u64 {
    at.0.saturating_add(MONOTONIC_ORIGIN)
}
