//! Which version of the protocol two sides speak. The worker's hello says what it speaks; the scheduler chooses and says so in its welcome.

use std::fmt;

use punctual_core::routing::Understanding;

/// The newest version that this side speaks.
pub const PROTOCOL_VERSION: u32 = 4;
/// The oldest version that this side speaks.
pub const OLDEST_VERSION: u32 = 1;

/// The version since which workers say their tags, their program's version and what they reserve. Older schedulers don't read it, and assign
/// by handlers alone; an older worker has no tags, no version, and reserves nothing.
pub const TRAITS_SINCE: u32 = 3;

/// The version since which workers understand that an assignment is a shard. An older one would run the whole task: it is given none.
pub const SHARDS_SINCE: u32 = 3;

/// The version since which workers understand nodes of workflows, and that an assignment lists items or reduces results.
pub const NODES_SINCE: u32 = 4;

/// How much of an assignment a worker understands that speaks this version.
pub const fn understanding(version: u32) -> Understanding {
    if version < SHARDS_SINCE {
        Understanding::Firings
    } else if version < NODES_SINCE {
        Understanding::Shards
    } else {
        Understanding::Nodes
    }
}

const _: () = assert!(SHARDS_SINCE < NODES_SINCE && NODES_SINCE <= PROTOCOL_VERSION);
const _: () = assert!(TRAITS_SINCE <= PROTOCOL_VERSION);
const _: () = assert!(1 <= OLDEST_VERSION && OLDEST_VERSION <= PROTOCOL_VERSION);

/// The versions that one side speaks: these two and all between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

impl Versions {
    /// What this side speaks.
    pub const OURS: Versions = Versions { oldest: OLDEST_VERSION, newest: PROTOCOL_VERSION };

    /// Whether this version is among them.
    pub const fn contain(self, version: u32) -> bool {
        self.oldest <= version && version <= self.newest
    }
}

impl Default for Versions {
    fn default() -> Self {
        Versions::OURS
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Versions { newest: 0, .. } => f.write_str("no version that it names"),
            Versions { oldest, newest } if oldest == newest => write!(f, "version {newest}"),
            Versions { oldest, newest } => write!(f, "versions {oldest} to {newest}"),
        }
    }
}

/// Two sides that can't talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// There is none that both speak.
    #[error(
        "no version of the worker protocol in common: this side speaks {ours}, the other side {theirs}. Bring the older one up to date"
    )]
    NoneInCommon {
        /// What this side speaks.
        ours: Versions,
        /// What the other side speaks.
        theirs: Versions,
    },
    /// The scheduler chose one that this worker did not offer.
    #[error("the scheduler chose version {chosen} of the worker protocol, but this worker speaks {ours}. Bring the older one up to date")]
    NotOffered {
        /// What the scheduler chose.
        chosen: u32,
        /// What this worker speaks.
        ours: Versions,
    },
}

/// The newest version that both sides speak.
///
/// # Errors
///
/// [`VersionError::NoneInCommon`] where there is none, also where the other side's versions make no sense: version 0, or an oldest one
/// that is newer than the newest.
pub fn negotiate(ours: Versions, theirs: Versions) -> Result<u32, VersionError> {
    let newest = ours.newest.min(theirs.newest);
    let is_common = theirs.oldest >= 1 && theirs.contain(newest) && ours.contain(newest);
    if is_common { Ok(newest) } else { Err(VersionError::NoneInCommon { ours, theirs }) }
}

/// Checks the version that the scheduler chose.
///
/// # Errors
///
/// [`VersionError::NotOffered`] where this worker doesn't speak it.
pub fn accept(ours: Versions, chosen: u32) -> Result<u32, VersionError> {
    if ours.contain(chosen) { Ok(chosen) } else { Err(VersionError::NotOffered { chosen, ours }) }
}
