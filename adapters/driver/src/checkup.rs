//! What a store says twice has to be the same twice: what a checkup looks at, both ways.

/// Something that has to hold in a store at every moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// The file is sound.
    Damaged,
    /// A task that is there has its owner's record, unless a request for it waits.
    TaskWithoutRecord,
    /// An owner's record is of a task of its partition; of a removed one it has no fire time.
    RecordWithoutTask,
    /// The version that a task is in is there.
    TaskWithoutVersion,
    /// An instance that has not ended is of a task of its partition.
    InstanceWithoutTask,
    /// What is with a worker says with which.
    AttemptWithoutWorker,
    /// A part that has not begun is a part of something that has not ended.
    PartWithoutWhole,
    /// Whoever lists what has not ended finds it, and nothing else.
    LiveList,
    /// The same of what has ended otherwise than well.
    TroubledList,
    /// A dead letter waits until it is run again or discarded, and no longer.
    DeadLetters,
    /// The number of instances in each state.
    Counts,
    /// A task's day has no more firings than the task.
    DayTooLong,
    /// A task's day has each of its firings.
    DayTooShort,
    /// What fires after something names tasks that are there.
    Reference,
    /// What calls something names tasks that are there.
    Call,
    /// A slot of a group is held by somebody who has not ended.
    Slot,
    /// A backfill that runs is of a task that is there, and has made no less than has ended.
    Backfill,
    /// A pause of a task is of one that is there.
    Pause,
    /// Each partition has its lease.
    Lease,
    /// A request is of a partition that there is.
    StrayRequest,
    /// A request is taken up soon.
    OldRequest,
    /// What waits for a time goes on when that has come.
    Overdue,
    /// What is on record of fire times makes sense, and is of a task that is there.
    Occurrence,
    /// What was written was written by an instance.
    Output,
}

impl Check {
    /// Every check.
    pub const ALL: [Check; 24] = [
        Check::Damaged,
        Check::TaskWithoutRecord,
        Check::RecordWithoutTask,
        Check::TaskWithoutVersion,
        Check::InstanceWithoutTask,
        Check::AttemptWithoutWorker,
        Check::PartWithoutWhole,
        Check::LiveList,
        Check::TroubledList,
        Check::DeadLetters,
        Check::Counts,
        Check::DayTooLong,
        Check::DayTooShort,
        Check::Reference,
        Check::Call,
        Check::Slot,
        Check::Backfill,
        Check::Pause,
        Check::Lease,
        Check::StrayRequest,
        Check::OldRequest,
        Check::Overdue,
        Check::Occurrence,
        Check::Output,
    ];
}

/// A check that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// Which.
    pub check: Check,
    /// Of what: instances, tasks or partitions, at most [`EXAMPLES_MAX`].
    pub examples: Vec<String>,
    /// Whether there are more.
    pub has_more: bool,
}

/// Most examples of one check.
pub const EXAMPLES_MAX: usize = 10;
/// A request that waits longer than this, or an instance that is so long overdue, is forgotten by its owner.
pub const OVERDUE_MS: i64 = 300_000;
/// Firings of today that are read to count them.
pub const COUNTED_TODAY_MAX: usize = 20_000;
