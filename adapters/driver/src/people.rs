//! What people ask of the store, and what is on record of that.

use std::sync::Arc;

use punctual_core::ids::{InboxId, InstanceId};
use punctual_core::time::Timestamp;

use crate::ports::InstanceCursor;

/// Who asks for something. All of it goes to the audit, in the transaction that has what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// Who: whoever has signed in; where nobody does, by their own account.
    pub by: Arc<str>,
    /// From where: what they used, and its address.
    pub from: Option<Arc<str>>,
    /// Why, in their words.
    pub why: Option<Arc<str>>,
}

impl From<Arc<str>> for Actor {
    fn from(by: Arc<str>) -> Self {
        Actor { by, from: None, why: None }
    }
}

impl From<&str> for Actor {
    fn from(by: &str) -> Self {
        Arc::<str>::from(by).into()
    }
}

/// What people have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditAction {
    /// A task was made.
    Create,
    /// A task was edited.
    Change,
    /// A task was removed.
    Remove,
    /// A task was fired by hand.
    Trigger,
    /// An instance was cancelled.
    Cancel,
    /// An instance was killed.
    Kill,
    /// An instance was left out.
    Skip,
    /// An instance was run again.
    Rerun,
    /// A pause was made.
    Pause,
    /// A pause was lifted.
    Resume,
    /// A worker was drained.
    Drain,
    /// A worker may be given attempts again.
    Undrain,
    /// A dead letter was discarded.
    Discard,
    /// A manual trigger that was not due yet was cancelled.
    CancelTrigger,
    /// A manual trigger that was not due yet was put off, or forward.
    Reschedule,
    /// Of a node of a workflow it was said what it has come to.
    MarkNode,
    /// Fire times of the past were to be made up for.
    Backfill,
    /// A backfill was ended.
    CancelBackfill,
    /// A user was added.
    AddUser,
    /// A user may do something else, or was disabled or enabled.
    ChangeUser,
    /// A password was set.
    SetPassword,
    /// A user was removed.
    RemoveUser,
    /// A token was made.
    MakeToken,
    /// A token was revoked.
    RevokeToken,
    /// Somebody has signed in.
    SignIn,
    /// Somebody has signed out.
    SignOut,
}

impl AuditAction {
    /// Every action.
    pub const ALL: [AuditAction; 26] = [
        AuditAction::Create,
        AuditAction::Change,
        AuditAction::Remove,
        AuditAction::Trigger,
        AuditAction::Cancel,
        AuditAction::Kill,
        AuditAction::Skip,
        AuditAction::Rerun,
        AuditAction::Pause,
        AuditAction::Resume,
        AuditAction::Drain,
        AuditAction::Undrain,
        AuditAction::Discard,
        AuditAction::CancelTrigger,
        AuditAction::Reschedule,
        AuditAction::MarkNode,
        AuditAction::Backfill,
        AuditAction::CancelBackfill,
        AuditAction::AddUser,
        AuditAction::ChangeUser,
        AuditAction::SetPassword,
        AuditAction::RemoveUser,
        AuditAction::MakeToken,
        AuditAction::RevokeToken,
        AuditAction::SignIn,
        AuditAction::SignOut,
    ];

    /// Its name, the same in API, CLI and console.
    pub const fn name(self) -> &'static str {
        match self {
            AuditAction::Create => "create",
            AuditAction::Change => "change",
            AuditAction::Remove => "remove",
            AuditAction::Trigger => "trigger",
            AuditAction::Cancel => "cancel",
            AuditAction::Kill => "kill",
            AuditAction::Skip => "skip",
            AuditAction::Rerun => "rerun",
            AuditAction::Pause => "pause",
            AuditAction::Resume => "resume",
            AuditAction::Drain => "drain",
            AuditAction::Undrain => "undrain",
            AuditAction::Discard => "discard",
            AuditAction::CancelTrigger => "cancel_trigger",
            AuditAction::Reschedule => "reschedule",
            AuditAction::MarkNode => "mark_node",
            AuditAction::Backfill => "backfill",
            AuditAction::CancelBackfill => "cancel_backfill",
            AuditAction::AddUser => "add_user",
            AuditAction::ChangeUser => "change_user",
            AuditAction::SetPassword => "set_password",
            AuditAction::RemoveUser => "remove_user",
            AuditAction::MakeToken => "make_token",
            AuditAction::RevokeToken => "revoke_token",
            AuditAction::SignIn => "sign_in",
            AuditAction::SignOut => "sign_out",
        }
    }
}

/// A write by a person. It is never changed and never removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditView {
    /// Later ones have greater numbers.
    pub id: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// What.
    pub action: AuditAction,
    /// The name of the task that it concerns.
    pub task: Option<Arc<str>>,
    /// The instance that it concerns.
    pub instance: Option<InstanceId>,
    /// What else it names: the source of a task, the key of a trigger, a group.
    pub subject: Option<Arc<str>>,
}

/// Which writes to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Of this task only.
    pub task: Option<Arc<str>>,
    /// Of this instance only.
    pub instance: Option<InstanceId>,
    /// Older than this one only: the last of the page before.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// What is to be done with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceAction {
    /// It ends; its attempt has time to clean up.
    Cancel,
    /// It ends at once.
    Kill,
    /// It is left out, unless it has begun.
    Skip,
}

impl InstanceAction {
    /// What the audit calls it.
    pub const fn audited(self) -> AuditAction {
        match self {
            InstanceAction::Cancel => AuditAction::Cancel,
            InstanceAction::Kill => AuditAction::Kill,
            InstanceAction::Skip => AuditAction::Skip,
        }
    }
}

/// What a pause holds, by the names that people use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseTarget {
    /// Every task.
    All,
    /// The tasks with this group.
    Group(Arc<str>),
    /// The task of this name.
    Task(Arc<str>),
    /// The worker of this name, there or not: it is drained.
    Worker(Arc<str>),
}

impl PauseTarget {
    /// The name of the group, the task, or the worker.
    pub fn name(&self) -> &str {
        match self {
            PauseTarget::All => "",
            PauseTarget::Group(name) | PauseTarget::Task(name) | PauseTarget::Worker(name) => name,
        }
    }
}

/// What became of a pause, or of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseSet {
    /// It is in the inboxes of all owners that it concerns.
    Accepted {
        /// Its entries: one for each partition.
        entries: Vec<InboxId>,
    },
    /// It was so before.
    Unchanged,
    /// There is no such task, or it was removed.
    NoSuchTask,
    /// No task has this group.
    NoSuchGroup,
}

/// A pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseView {
    /// What it holds.
    pub target: PauseTarget,
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// Who made it, and why.
    pub actor: Actor,
}

/// What became of a change to a manual trigger that is not due yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerChanged {
    /// It is in the inbox. Whether it comes before the trigger's time, the instance will tell.
    Accepted {
        /// Its entry.
        entry: InboxId,
        /// The ordinal of the trigger's instance.
        ordinal: u64,
    },
    /// The trigger's instance has begun, or ended.
    Over {
        /// The ordinal of the trigger's instance.
        ordinal: u64,
    },
    /// There is no such task.
    NoSuchTask,
    /// The task was never triggered under this key.
    NoSuchTrigger,
}

/// Which dead letters to list, newest first: whole firings that were given up, and neither run again nor discarded.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterFilter {
    /// Of this task only.
    pub task: Option<Arc<str>>,
    /// Behind this place only: that of the last one of the page before.
    pub before: Option<InstanceCursor>,
    /// At most this many.
    pub limit: usize,
}

/// What became of a dead letter that was to be discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// It is in the list no longer.
    Done,
    /// It was run again, or discarded, before.
    Settled,
    /// The instance is no dead letter.
    NotDead,
    /// There is no such instance.
    NoSuchInstance,
}
