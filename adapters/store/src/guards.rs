//! The guards that safety rests on, each of which can be left out, to show that a test notices.

/// Which guards are in place. All of them are, unless a test says otherwise: without the feature `conformance` there is no way to.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// A commit is refused unless each lease has the batch's epoch.
    pub lease_epoch: bool,
    /// A commit is refused unless each lease is the batch's replica's.
    pub lease_owner: bool,
    /// A commit is refused unless each lease has exactly one commit less than the batch says.
    pub lease_commits: bool,
    /// A commit is refused if it writes in a partition whose lease it does not rely on.
    pub lease_relied_on: bool,
    /// An update is refused unless the row has the expected state.
    pub instance_state: bool,
    /// An update is refused unless the row has the expected fence.
    pub instance_fence: bool,
    /// A firing is unique by fire time, task, ordinal and run. Left out, the index goes, and listings that need it fail.
    #[cfg(feature = "conformance")]
    pub unique_firing: bool,
    /// A commit is refused if an inbox entry that it applies is gone.
    pub inbox_entry: bool,
}

impl Guards {
    /// All of them.
    pub const ALL: Guards = Guards {
        lease_epoch: true,
        lease_owner: true,
        lease_commits: true,
        lease_relied_on: true,
        instance_state: true,
        instance_fence: true,
        #[cfg(feature = "conformance")]
        unique_firing: true,
        inbox_entry: true,
    };
}
