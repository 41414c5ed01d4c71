//! The history of a run: what was seen, in one order. The properties read nothing else.
//!
//! Four sources that never mix: clients (what they asked for and were answered), the database (what it carried out, recorded where it
//! carries it out), workers (what handlers did, written by the handlers themselves: the ground truth), and the world (nodes and faults).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_core::batch::Batch;
use punctual_core::definition::TaskDefinition;
use punctual_core::ids::{Epoch, Fence, InboxId, InstanceId, PartitionId, ReplicaId, TaskId, Version};
use punctual_core::inbox::Notice;
use punctual_core::pause::PauseScope;
use punctual_core::protocol::End;
use punctual_core::time::Timestamp;
use punctual_driver::ports::PauseTarget;

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The world itself: faults, and the end of the run.
    World,
    /// The database, by its own clock.
    Database,
    /// Somebody who uses the API.
    Client,
    /// A scheduler replica, counted from 0.
    Scheduler(usize),
    /// A worker, counted from 0.
    Worker(usize),
}

/// Something that was seen.
#[derive(Clone, Debug)]
pub struct Record {
    /// When, in virtual milliseconds since the run began: the one clock that nobody can set.
    pub at: u64,
    /// When by the wall clock of whoever wrote it.
    pub wall: Timestamp,
    /// Who wrote it.
    pub who: Who,
    /// What.
    pub what: What,
}

/// What was seen.
#[derive(Clone, Debug)]
pub enum What {
    // Clients.
    /// A call was made.
    Asked {
        /// Names the call in its answer.
        call: u64,
        /// What was asked for.
        ask: Ask,
    },
    /// A call came back. One that never does is as good as unknown.
    Answered {
        /// The call.
        call: u64,
        /// How.
        answer: Answer,
    },

    // The database. Each of them is carried out when it is recorded.
    /// A definition was written, and with it an inbox entry.
    Defined {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
        /// Its partition.
        partition: PartitionId,
        /// Its version.
        version: Version,
        /// What it is now; `None`: removed.
        definition: Option<Arc<TaskDefinition>>,
    },
    /// A manual trigger was written to the inbox.
    Submitted {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
        /// How many instances it asks for.
        submissions: usize,
        /// The idempotency key of the call.
        key: Option<Arc<str>>,
    },
    /// A cancellation was written to the inbox.
    CancelSubmitted {
        /// The entry.
        entry: InboxId,
        /// The instance.
        instance: InstanceId,
    },
    /// A backfill was written to the inbox.
    BackfillSubmitted {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
    },
    /// The end of a backfill was written to the inbox.
    BackfillCancelSubmitted {
        /// The entry.
        entry: InboxId,
        /// The backfill.
        backfill: InboxId,
        /// Its task.
        task: TaskId,
    },
    /// A rerun was written to the inbox.
    RerunSubmitted {
        /// The entry.
        entry: InboxId,
        /// The instance that is to run once more.
        instance: InstanceId,
    },
    /// That an instance is to be left out was written to the inbox.
    SkipSubmitted {
        /// The entry.
        entry: InboxId,
        /// The instance.
        instance: InstanceId,
    },
    /// A change to a manual trigger that is not due yet was written to the inbox.
    DelayedChanged {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
        /// The ordinal of the trigger's instance.
        ordinal: u64,
    },
    /// A pause, or its end, was written to an owner's inbox.
    PauseChanged {
        /// The entry.
        entry: InboxId,
        /// Whose inbox.
        partition: PartitionId,
        /// What it holds.
        scope: PauseScope,
        /// Whether it holds from now on.
        is_paused: bool,
    },
    /// What somebody says of a node was written to the inbox.
    MarkSubmitted {
        /// The entry.
        entry: InboxId,
        /// The run that the node is of.
        instance: InstanceId,
    },
    /// An owner has written to an inbox, in the batch before.
    Noticed {
        /// The entry.
        entry: InboxId,
        /// Whose inbox.
        partition: PartitionId,
        /// What it asks for.
        notice: Notice,
    },
    /// What a task's ends make fire was written to its owner's inbox.
    ReferencesChanged {
        /// The entry.
        entry: InboxId,
        /// The task.
        task: TaskId,
    },
    /// A lease was granted.
    LeaseGranted {
        /// The partition.
        partition: PartitionId,
        /// To whom.
        owner: ReplicaId,
        /// Under which epoch.
        epoch: Epoch,
        /// Until when, in virtual milliseconds, unless it is renewed.
        until: u64,
    },
    /// A lease was renewed.
    LeaseRenewed {
        /// The partition.
        partition: PartitionId,
        /// Under which epoch.
        epoch: Epoch,
        /// Until when, in virtual milliseconds.
        until: u64,
    },
    /// A lease was given up.
    LeaseReleased {
        /// The partition.
        partition: PartitionId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// A batch was carried out.
    Committed(Arc<Batch>),
    /// A batch was refused, and nothing of it written.
    CommitRefused {
        /// Whose it was.
        replica: ReplicaId,
        /// Whether a lease was the reason. Else it was a row, of which whoever holds the lease should know better.
        is_lease: bool,
        /// In words.
        reason: Arc<str>,
    },
    /// A failover: what the database carried out from the record with this index on is undone, clients' entries included.
    TailLost {
        /// The first record that is undone. Records of others than the database stand.
        from: usize,
    },

    // Workers: the handler's own account.
    /// A handler began.
    Began {
        /// Of which life of its worker.
        life: u64,
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
        /// The attempt, counted from 1.
        attempt: u32,
        /// The task.
        task: TaskId,
        /// The task's version.
        version: Version,
        /// The nominal instant.
        fire_time: Timestamp,
        /// Tells manual triggers of one millisecond apart; 0 for all others.
        ordinal: u64,
    },
    /// A handler reached the point where its effect is durable outside. It was not fenced there: this is what really happened.
    Effect {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
    },
    /// A handler ended.
    Ended {
        /// The instance.
        instance: InstanceId,
        /// The attempt's fence.
        fence: Fence,
        /// How, by its own account; `None`: it was cut off, by a kill or with its worker.
        end: Option<End>,
    },

    // Nodes.
    /// A node started.
    Started {
        /// Its life, counted from 1.
        life: u64,
    },
    /// A node crashed, with all that it held in memory.
    Crashed,
    /// A node stopped cleanly.
    Stopped,
    /// A node stands still.
    Paused,
    /// It goes on.
    Resumed,
    /// Messages of the node, or to it, are lost, late or repeated from here on.
    Cut,
    /// They are no longer.
    Mended,
    /// Whoever wrote the record had its wall clock set.
    ClockStepped {
        /// By so many milliseconds.
        by: i64,
    },
    /// A scheduler told people something.
    Alerted(Arc<str>),

    // The world.
    /// The fault with this place in the plan began.
    FaultBegan(usize),
    /// It ended.
    FaultEnded(usize),
    /// From here on nothing is wrong any more.
    Healed,
    /// What is left at the end of the run, one record for each node and one for the database.
    Left(Left),
}

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Make, edit or remove this task.
    Define {
        /// Its name.
        task: Arc<str>,
    },
    /// Fire this task.
    Trigger {
        /// Its name.
        task: Arc<str>,
        /// The idempotency key.
        key: Option<Arc<str>>,
    },
    /// Cancel this instance.
    Cancel {
        /// Which.
        instance: InstanceId,
    },
    /// Pause this, or go on with it.
    Pause {
        /// What.
        target: PauseTarget,
        /// Whether it is to be paused.
        is_paused: bool,
    },
    /// Run this instance once more.
    Rerun {
        /// Which.
        instance: InstanceId,
    },
    /// Say what a node of this run has come to.
    Mark {
        /// Which run.
        instance: InstanceId,
    },
    /// Leave this instance out.
    Skip {
        /// Which.
        instance: InstanceId,
    },
    /// Make up for fire times of this task.
    Backfill {
        /// Its name.
        task: Arc<str>,
    },
    /// End this backfill.
    EndBackfill {
        /// Which.
        backfill: InboxId,
    },
    /// Change a trigger of this task that is not due yet.
    Change {
        /// Its name.
        task: Arc<str>,
    },
}

/// What a client was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is in the inbox, under this entry.
    Accepted(InboxId),
    /// The same call was accepted before, under this entry.
    Repeated(InboxId),
    /// It was refused, and nothing was written.
    Refused(Arc<str>),
    /// Nobody knows.
    Unknown,
}

/// What is left at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// In the database.
    InDatabase {
        /// Instances that have not ended.
        live: Vec<InstanceId>,
        /// Inbox entries that nobody has applied.
        inbox: Vec<InboxId>,
    },
    /// In a scheduler's memory.
    InScheduler {
        /// Whether it runs.
        is_up: bool,
        /// Instances that are written.
        instances: usize,
        /// Partitions that it owns.
        partitions: Vec<PartitionId>,
    },
    /// In a worker's memory.
    InWorker {
        /// Whether it runs.
        is_up: bool,
        /// Attempts.
        running: usize,
        /// Results that nobody has acknowledged.
        reports: usize,
    },
}

/// A run, as it was seen.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which it happened.
    pub records: Vec<Record>,
}

impl History {
    /// The run's fingerprint: two runs that did the same have the same.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for record in &self.records {
            record.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Where a running world writes its history.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<History>>, Arc<AtomicBool>);

impl Recorder {
    /// Adds a record; answers with its index.
    pub fn record(&self, at: u64, wall: Timestamp, who: Who, what: What) -> usize {
        let mut history = self.lock();
        if self.1.load(Ordering::Relaxed) {
            return history.records.len();
        }
        history.records.push(Record { at, wall, who, what });
        history.records.len() - 1
    }

    /// The run is over: what is recorded from here on does not count.
    pub fn close(&self) {
        self.1.store(true, Ordering::Relaxed);
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks at the history so far.
    pub fn with<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.lock())
    }

    /// Takes the history out.
    pub fn take(&self) -> History {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hash for Record {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.at, self.wall, self.who).hash(state);
        self.what.hash(state);
    }
}

impl Hash for What {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            What::Asked { call, ask } => (call, ask).hash(state),
            What::Answered { call, answer } => (call, answer).hash(state),
            What::Defined { entry, task, partition, version, definition } => {
                (entry, task, partition, version, definition.as_ref().map(|definition| &definition.name)).hash(state);
            }
            What::Submitted { entry, task, submissions, key } => (entry, task, submissions, key).hash(state),
            What::BackfillSubmitted { entry, task } => (entry, task).hash(state),
            What::BackfillCancelSubmitted { entry, backfill, task } => (entry, backfill, task).hash(state),
            What::CancelSubmitted { entry, instance }
            | What::RerunSubmitted { entry, instance }
            | What::SkipSubmitted { entry, instance }
            | What::MarkSubmitted { entry, instance } => (entry, instance).hash(state),
            What::DelayedChanged { entry, task, ordinal } => (entry, task, ordinal).hash(state),
            What::PauseChanged { entry, partition, scope, is_paused } => (entry, partition, scope, is_paused).hash(state),
            What::Noticed { entry, partition, notice } => (entry, partition, notice).hash(state),
            What::ReferencesChanged { entry, task } => (entry, task).hash(state),
            What::LeaseGranted { partition, owner, epoch, until } => (partition, owner, epoch, until).hash(state),
            What::LeaseRenewed { partition, epoch, until } => (partition, epoch, until).hash(state),
            What::LeaseReleased { partition, epoch } => (partition, epoch).hash(state),
            What::Committed(batch) => batch.hash(state),
            What::CommitRefused { replica, is_lease, reason } => (replica, is_lease, reason).hash(state),
            What::TailLost { from } => from.hash(state),
            What::Began { life, instance, fence, attempt, task, version, fire_time, ordinal } => {
                (life, instance, fence, attempt, task, version, fire_time, ordinal).hash(state);
            }
            What::Effect { instance, fence } => (instance, fence).hash(state),
            What::Ended { instance, fence, end } => (instance, fence, end).hash(state),
            What::Started { life } => life.hash(state),
            What::ClockStepped { by } => by.hash(state),
            What::Alerted(text) => text.hash(state),
            What::FaultBegan(index) | What::FaultEnded(index) => index.hash(state),
            What::Left(left) => left.hash(state),
            What::Crashed | What::Stopped | What::Paused | What::Resumed | What::Cut | What::Mended | What::Healed => {}
        }
    }
}
